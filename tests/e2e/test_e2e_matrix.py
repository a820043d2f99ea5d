"""However a session ends, however full it was, whatever the agent did: the next one starts from what is true.

A cell is one session with two requests, its end, and the first request to the model after it. That request holds
the latest request, the file edited last and the person's rule word for word; a check that failed and was repaired
since is not in it, and neither is the handoff that the session itself had begun with.
"""

from __future__ import annotations

import os
import signal

import pytest

from agents import WAITS, Agent, bash, edit, first_request, write
from real_client import ANSWER_S, READY, leftovers, wait_until
from stub_model import Turn

RULE = "Never use the network in a test."
FIRST = "Build the parser. " + RULE
LATEST = "Now the escapes, and keep escapes.py short."
STALE = "A parser for quotes, begun yesterday."
OWN = "# Goal\nA parser.\n# The person's rules\n%s\n# State\nThe escapes are not begun.\n" % RULE
PRINTED = "I stop here.\n\nBEGIN HANDOFF\n%sEND HANDOFF\n" % OWN
SINCE = "## Since this handoff (added by ctx_hooks)"
MADE = "# Handoff, made by ctx_hooks from the transcript"
TOKENS = {5: 8_400, 40: 67_000, 90: 151_000}
OVER = 172_000  # from here on the client compacts by itself
DEEDS = ("wrote one and went on", "printed one and went on", "did nothing")


def steps_of(world, deed, tokens):
    """What the agent does for the two requests."""
    first = [bash("sh check.sh", tokens=tokens), edit(world, "parser.py", tokens)]
    if deed == DEEDS[0] and tokens < TOKENS[90]:
        first.append(lambda _: write(world.path(".context/handoffs/%s.md" % world.newest_id()), OWN, tokens))
    elif deed == DEEDS[0]:
        first.append(WAITS)
    first.append(Turn(PRINTED if deed == DEEDS[1] else "The parser is built.", tokens=tokens))
    last = [edit(world, "escapes.py", tokens), bash("sh check.sh", tokens=tokens)]
    return first + last + [Turn("The escapes are built.", tokens=tokens)]


def in_print_mode(world):
    """The two requests in print mode."""
    session = world.session()
    session.prompt(FIRST)
    session.prompt(LATEST)
    return session


def in_the_terminal(world):
    """The same in the terminal UI."""
    terminal = world.terminal()
    terminal.wait_shown(READY)
    terminal.type(FIRST)
    terminal.wait_shown("I stop here.", "The parser is built.")
    terminal.type(LATEST)
    terminal.wait_shown("The escapes are built.")
    return terminal


# Ways to end it; each gives the first request after that.


def leave(world, process):
    process.end()
    return first_request(world)


def clear(world, session):
    return go_on(world, session, "/clear")


def compact(world, session):
    return go_on(world, session, "/compact")


def go_on(world, session, *commands):
    """In the same process: neither command is a request of this kind."""
    before = len(world.stub.of("main"))
    world.stub.script(otherwise=Turn("Let us go on."))
    for prompt in (*commands, "go on"):
        session.prompt(prompt)
    session.end()
    return world.stub.of("main")[before]


def compact_by_itself(world, session):
    """One more answer brings the context over the edge; before the next request the client compacts."""
    world.stub.script(Turn("That was much.", tokens=OVER))
    session.prompt(LATEST)
    request = go_on(world, session)
    assert world.stub.of("compact"), "the client did not compact"
    return request


def kill(world, process):
    process.kill()
    return first_request(world)


def kill_at_work(world, session):
    world.stub.script(bash("touch started; sleep 60"))
    session.send(LATEST)
    wait_until(world.path("started").exists, "the call that is under way")
    session.kill()
    for pid in leftovers(world.home):  # the call itself outlives the client
        os.kill(pid, signal.SIGKILL)
    return first_request(world)


def close_window(world, terminal):
    """The terminal goes away under the client."""
    os.killpg(terminal.process.pid, signal.SIGHUP)
    terminal.process.wait(ANSWER_S)
    return first_request(world)


ENDS = {
    "/exit": (in_the_terminal, leave),
    "/clear": (in_print_mode, clear),
    "end of print mode": (in_print_mode, leave),
    "kill -9 after an answer": (in_print_mode, kill),
    "kill -9 in the middle of a call": (in_print_mode, kill_at_work),
    "window closed": (in_the_terminal, close_window),
    "/compact": (in_print_mode, compact),
    "automatic compaction": (in_print_mode, compact_by_itself),
}
CI_CELLS = {DEEDS[0]: 90, DEEDS[1]: 5, DEEDS[2]: 40}  # the others only in the whole suite


def cells():
    for end in ENDS:
        for deed in DEEDS:
            for percent in TOKENS:
                marks = [] if CI_CELLS[deed] == percent else [pytest.mark.long]
                yield pytest.param(end, deed, percent, marks=marks, id="%s, %s, %d%%" % (end, deed, percent))


@pytest.mark.parametrize("end, deed, percent", list(cells()))
def test_the_next_session_starts_from_what_is_true(kit, cell_table, end, deed, percent):
    kit.write("check.sh", "test -e escapes.py || { echo escapes are missing; exit 1; }\n")
    kit.leave_handoff("# Goal\n%s\n" % STALE)
    kit.stub.script(otherwise=Agent(steps_of(kit, deed, TOKENS[percent]), OWN, TOKENS[percent]))
    play, end_it = ENDS[end]
    start = end_it(kit, play(kit)).text()
    handoff = start[start.index("Your own handoff" if "ompact" in end else "andoff of the session before this one") :]
    body, found, since = handoff.partition(SINCE)
    assert LATEST in handoff and RULE in handoff and "escapes.py" in handoff.replace(LATEST, ""), handoff
    assert STALE not in handoff and "escapes are missing" not in handoff, handoff
    if deed == DEEDS[2]:
        assert MADE in body and not found, handoff
        arrived = "made from the transcript"
    else:
        assert "The escapes are not begun." in body and "escapes.py" in since and LATEST in since, handoff
        arrived = "its own, and what came since"
    cell_table.arrived(end, deed, percent, arrived)
