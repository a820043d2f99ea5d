"""What a scripted model does and hears: turns that call tools, blocks of a workflow, what a request brought."""

from __future__ import annotations

import datetime
import re

from stub_model import SUBAGENT_MARKER, Turn

GATE = "STOP. Read your context files"
ASKED = "Write a handoff for the next session"  # the reminder's words
WAITS = "until it is asked for a handoff"  # a step of an Agent
FULL = 150_000  # 89 % of what can be used of a 200,000 window, below the client's own compaction
NEAR = 140_000  # 83 %, so near the point that the launcher answers no call alone
OWN = "# Goal\nThe parser knows quotes.\n# Next steps\n1. escape sequences\n"  # a handoff of the agent's own
PATH = re.compile(r"/\S*/\.context/handoffs/[\w.-]+\.md")


def said(world, text):
    """How often each request to the model newly brought a text."""
    return [request.news().count(text) for request in world.stub.of("main")]


def first_request(world, prompt="go on", **options):
    """The first request of a new session."""
    before = len(world.stub.of("main"))
    world.stub.script(otherwise=Turn("Let us go on."))
    world.run(prompt, **options)
    return world.stub.of("main")[before]


def bash(*commands, tokens=1000, act=None):
    """Calls Bash once for each command, all in one message."""
    return Turn("", [("Bash", {"command": command, "description": "scripted"}) for command in commands], tokens, act)


def read(path, tokens=1000):
    return Turn("", [("Read", {"file_path": str(path)})], tokens)


def delegate():
    """Starts a subagent, which runs in the background."""
    arguments = {"description": "sub", "prompt": SUBAGENT_MARKER + " go", "subagent_type": "general-purpose"}
    return Turn("", [("Agent", arguments)])


def write(path, content, tokens=1000):
    return Turn("", [("Write", {"file_path": str(path), "content": content})], tokens)


def edit(world, name, tokens=1000):
    """Writes a new file of the project."""
    return write(world.path(name), "x = 1\n", tokens)


class Agent:
    """Takes its steps one after the other. At the step WAITS it looks around until the reminder comes: the transcript
    may lag a moment behind a tool call, so the reminder may be one call late. Then it writes the handoff."""

    def __init__(self, steps, handoff=OWN, tokens=FULL):
        self.steps, self.handoff, self.tokens = list(steps), handoff, tokens
        self.waited = 0

    def __call__(self, request):
        if self.steps[0] is not WAITS:
            step = self.steps.pop(0)
            return step(request) if callable(step) else Turn(step) if isinstance(step, str) else step
        if ASKED in request.news():
            self.steps.pop(0)
            return write(PATH.search(request.news()).group(), self.handoff, self.tokens)
        self.waited += 1
        if self.waited > 9:
            return Turn("stub: never asked for a handoff")
        return bash("echo looking %d" % self.waited, tokens=self.tokens)


def complete(phase, following="none", text="All done."):
    return block(text, SIGNAL=phase.upper() + "_COMPLETE", PHASE=phase, STATUS="complete", NEXT=following)


def blocked(phase, needs):
    return block("", SIGNAL="PHASE_BLOCKED", PHASE=phase, STATUS="blocked", NEEDS=needs)


def failed(phase, error, recoverable):
    return block("", SIGNAL="PHASE_ERROR", PHASE=phase, STATUS="error", ERROR=error, RECOVERABLE=recoverable)


def block(text, **fields):
    """A turn whose text ends with a completion block, stamped with the time of the answer."""

    def answer(_):
        now = datetime.datetime.now(datetime.timezone.utc)
        rows = {**fields, "TIMESTAMP": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return Turn("\n".join([text, "", "---", *["%s: %s" % row for row in rows.items()], "---"]))

    return answer
