"""What a scripted model does: turns that call tools, and the blocks that an agent in a workflow prints."""

from __future__ import annotations

import datetime
import re

from stub_model import Turn

ASKED = "Write a handoff for the next session"  # the reminder's words
WAITS = "until it is asked for a handoff"  # a step of an Agent
FULL = 150_000  # 89 % of what can be used of a 200,000 window, below the client's own compaction
NEAR = 140_000  # 83 %, so near the point that the launcher answers no call alone
PATH = re.compile(r"/\S*/\.context/handoffs/[\w.-]+\.md")


def bash(*commands, text="", tokens=1000, act=None):
    """Calls Bash once for each command, all in one message."""
    return Turn(text, [("Bash", {"command": command, "description": "scripted"}) for command in commands], tokens, act)


def read(path, tokens=1000):
    return Turn("", [("Read", {"file_path": str(path)})], tokens)


def write(path, content, tokens=1000, text=""):
    return Turn(text, [("Write", {"file_path": str(path), "content": content})], tokens)


def edit(world, name, content, tokens=1000, text=""):
    """Writes a new file of the project."""
    return write(world.path(name), content, tokens, text)


class Agent:
    """Takes its steps one after the other. At the step WAITS it looks around until the reminder comes: the transcript
    may lag a moment behind a tool call, so the reminder may be one call late. Then it writes the handoff."""

    def __init__(self, world, steps, handoff="", tokens=FULL):
        self.world, self.steps, self.handoff, self.tokens = world, list(steps), handoff, tokens
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


def complete(phase, following="none", text="All done.", **more):
    """A turn whose text ends with the completion block of a phase, stamped with the time of the answer."""
    fields = {"SIGNAL": phase.upper() + "_COMPLETE", "PHASE": phase, "STATUS": "complete", "NEXT": following, **more}
    return lambda _: Turn("%s\n\n%s" % (text, block(**fields)))


def blocked(phase, needs):
    return lambda _: Turn(block(SIGNAL="PHASE_BLOCKED", PHASE=phase, STATUS="blocked", NEEDS=needs))


def failed(phase, error, recoverable):
    word = "true" if recoverable else "false"
    return lambda _: Turn(block(SIGNAL="PHASE_ERROR", PHASE=phase, STATUS="error", ERROR=error, RECOVERABLE=word))


def block(**fields):
    first = {name: fields.pop(name) for name in ("SIGNAL", "PHASE", "STATUS")}
    now = datetime.datetime.now(datetime.timezone.utc)
    rows = {**first, "TIMESTAMP": now.strftime("%Y-%m-%dT%H:%M:%SZ"), **fields}
    return "\n".join(["---"] + ["%s: %s" % row for row in rows.items()] + ["---"])
