"""Scripted agents that react to what the hooks tell them, and the blocks that an agent in a workflow prints.

Each agent is a function of the request (see stub_model.py). It works by reading a file, says how full its context is,
and goes its way when a request asks it for a handoff: it complies, refuses, or ignores it.
"""

from __future__ import annotations

import datetime
import re

from stub_model import Turn

FULL = 150_000  # over the threshold of a 200,000 window, below the client's own compaction
PATH = re.compile(r"/\S*/\.context/handoffs/[\w.-]+\.md")
BEGIN, END = "BEGIN HANDOFF", "END HANDOFF"
PATIENCE = 8  # calls after which an agent that was never asked gives up


class Worker:
    """Reads until it is asked for a handoff, then takes its way; what it was asked and did can be looked at."""

    def __init__(self, world, text, tokens=FULL, may_write=True):
        self.world = world
        self.text = text  # of the handoff
        self.tokens = tokens
        self.may_write = may_write  # the mode lets it write files
        self.asked = []  # the path it was to write, or "print", for each request that asked
        self.did = []  # "read", "write", "print", "no"

    def __call__(self, request):
        wish = wanted(request.news())
        if wish:
            self.asked.append(wish)
        if len(self.did) >= PATIENCE:
            return self.says("I was never asked for anything.", "end")
        return self.react(request) if self.asked else self.read()

    def read(self):
        return self.calls("Read", {"file_path": str(self.world.path("README.md"))}, "read")

    def write(self):
        path = next(wish for wish in reversed(self.asked) if wish != "print")
        return self.calls("Write", {"file_path": path, "content": self.text}, "write")

    def calls(self, name, arguments, deed):
        self.did.append(deed)
        return Turn("", [(name, arguments)], self.tokens)

    def says(self, text, deed):
        self.did.append(deed)
        return Turn(text, tokens=self.tokens)


class Complies(Worker):
    """Writes the file; where that is not permitted, or not asked for, prints the handoff at the end of its answer."""

    def react(self, request):
        last = self.did[-1]
        if last == "write" and not request.refusals():
            return self.says("The handoff is written.", "end")
        if last == "write" or self.asked[-1] == "print":
            return self.says("I stop here.\n\n%s\n%s\n%s\n" % (BEGIN, self.text, END), "print")
        return self.write()


class Refuses(Worker):
    """Says no; where the mode forbids writing, it tries first, is denied and leaves it at that."""

    def react(self, request):
        if self.asked[-1] != "print" and not self.may_write and "write" not in self.did:
            return self.write()
        return self.says("No, I will not do that. I stop here.", "no")


class Ignores(Worker):
    """Goes on with its work as if nothing had been said, then ends."""

    def react(self, request):
        return self.read() if len(self.asked) < 3 else self.says("That is all for today.", "end")


def wanted(news):
    """What a request asks for: the path of the handoff to write, "print", or nothing."""
    if BEGIN not in news:
        return ""
    found = PATH.search(news)
    return found.group() if found else "print"


# ---------------------------------------------------------------------------
# blocks of a workflow
# ---------------------------------------------------------------------------


def complete(phase, following="none", text="All done."):
    """A turn whose text ends with the completion block of a phase, stamped with the time of the answer."""
    fields = {"SIGNAL": phase.upper() + "_COMPLETE", "PHASE": phase, "STATUS": "complete", "NEXT": following}
    return lambda _: Turn("%s\n\n%s" % (text, block(**fields)))


def blocked(phase, needs):
    return lambda _: Turn(block(SIGNAL="PHASE_BLOCKED", PHASE=phase, STATUS="blocked", NEEDS=needs))


def failed(phase, error, recoverable):
    word = "true" if recoverable else "false"
    return lambda _: Turn(block(SIGNAL="PHASE_ERROR", PHASE=phase, STATUS="error", ERROR=error, RECOVERABLE=word))


def block(**fields):
    fields = dict(fields)
    stamped = {name: fields.pop(name) for name in ("SIGNAL", "PHASE", "STATUS")}
    stamped["TIMESTAMP"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    stamped.update(fields)
    return "\n".join(["---"] + ["%s: %s" % field for field in stamped.items()] + ["---"])
