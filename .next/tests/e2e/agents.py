"""What a scripted model does: turns that call tools, and the blocks that an agent in a workflow prints."""

from __future__ import annotations

import datetime
import re

from stub_model import Turn

FULL = 150_000  # 89 % of what can be used of a 200,000 window, below the client's own compaction
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
