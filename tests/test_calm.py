"""Calm: how many calls the launcher may answer alone. How it counts them is in launcher.bats."""
from __future__ import annotations

import os
import time

import pytest

from helper import read, write


@pytest.fixture
def session(world):
    world.now -= 3600
    world.git()
    session = world.session("s1")
    session.start()
    session.prompt("Go.")
    return session


def room(world):
    """The number of calls that was left for the launcher."""
    path = world.cache("calm", "claude-s1")
    return int(read(path).split("\n")[0]) if os.path.exists(path) else 0


@pytest.mark.parametrize(
    "steps, calls",
    [
        ([20_000], 8),
        ([20_000, 21_000, 22_000], 8),
        ([107_000, 117_000, 127_000], 1),  # 14,950 to the handoff point, 10,000 a call
        ([20_000, 125_000, 130_000], 1),  # the largest growth of the last calls, at most 10,000
        ([137_000, 138_000], 1),  # at least 3,000 a call
        ([139_000, 140_500], 0),
        ([110_000, 111_000], 8),  # the warning at 70 % may come a few calls late
    ],
)
def test_the_room_follows_from_growth_and_the_next_level(world, session, steps, calls):
    for tokens in steps:
        session.look(tokens=tokens)
    assert room(world) == calls


def test_the_file_names_what_ends_the_calm_and_is_a_second_old(world, session):
    session.look()
    path = world.cache("calm", "claude-s1")
    assert read(path).split("\n")[1:] == [
        world.context("signals", "global"),
        world.context("signals", "sessions", "s1"),
        world.path(".git", "HEAD"),
        "",
    ]
    assert os.stat(path).st_mtime == world.now - 2  # the result's row is a second later
    assert read(path + ".tally") == ""
    session.end()
    assert os.listdir(world.cache("calm")) == []


def test_no_calm_while_fullness_is_unknown_something_is_said_or_calls_repeat(world, session):
    session.send("PostToolUse", tool_name="Bash", tool_input={}, tool_use_id="t")
    assert room(world) == 0
    world.signal("Deploy is red.")
    session.look()
    assert room(world) == 0
    session.look()
    assert room(world) == 8
    session.prompt("And now?")
    assert room(world) == 0
    for _ in range(3):
        session.run("make", failed=True, text="boom")
    session.run("make")
    assert room(world) == 0


def test_no_calm_while_a_handoff_is_owed_and_calm_again_once_it_is_there(world, session):
    session.look(tokens=20_000)
    assert room(world) == 8
    session.look(tokens=150_000)
    session.look()
    assert room(world) == 0
    session.write_handoff()
    for _ in range(9):  # until the jump is forgotten
        session.look()
    assert room(world) > 0


def test_no_calm_while_a_delivery_has_no_evidence(world):
    world.handoff("old", "Goal: discounts.")
    session = world.session("s1")
    session.leaves_receipts = False
    session.start()
    session.look()
    assert room(world) == 0
    session.say("ACK: context received")
    session.look()
    assert room(world) == 8


def test_no_calm_while_a_workflow_runs(world, session):
    state = '{"active": true, "phase": "qa", "phases": ["qa"], "session_id": "s1"}'
    world.write(".caw/auto-state.json", state)
    session.look()
    assert room(world) == 0


def test_an_odd_session_id_gets_no_calm_and_neither_does_a_cache_that_cannot_be_written(world, session):
    world.session("s 1;x").look()
    assert not os.path.exists(world.cache("calm"))
    write(world.cache("calm"), "a file in the folder's place")
    session.look()
    assert read(world.cache("calm")) == "a file in the folder's place"


def launched(world, *words):
    """Whether this call started Python: it notes when it saw the session last."""
    session = world.session("s1")
    before = session.state()["seen_at"]
    event = session.event("PostToolUse", tool_name="Read", tool_input={}, tool_use_id="t")
    reply = world.launch("monitor", event, *words, CLAUDE_CODE_SESSION_ID="s1")
    assert (reply.code, reply.err) == (0, "")
    return session.state()["seen_at"] != before


@pytest.mark.parametrize("what", ["global", "s1", "branch", "now", "in place"])
@pytest.mark.posix("about the launcher")
def test_calm_ends_at_once_with(world, session, what):
    if what == "in place":
        path = world.signal("Deploy is green.", severity="info")
        os.utime(os.path.dirname(path), (world.now - 60, world.now - 60))
        os.utime(path, (world.now - 60, world.now - 60))
    session.look(tokens=20_000)
    assert not launched(world)
    world.now = time.time()
    if what == "branch":
        world.git("other")
    elif what != "now":
        world.signal("Deploy is red.", what if what == "s1" else "global")
    assert launched(world, *["now"] * (what == "now"))
