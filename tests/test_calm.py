"""Calm: how many calls the launcher may answer alone. How it counts them is in launcher.bats."""

from __future__ import annotations

import os
import time

import pytest

from helper import kit, read, write


@pytest.fixture
def session(world):
    world.now -= 3600
    world.git()
    session = world.session("s1")
    session.start()
    session.prompt("Go.")
    return session


def left(world):
    """The lines that were left for the launcher; [] for none."""
    path = world.cache("calm", "claude-s1")
    return read(path).split("\n") if os.path.exists(path) else []


def room(world):
    """The number of calls that was left for the launcher."""
    return int((left(world) or ["0"])[0])


@pytest.mark.parametrize(
    "tokens, setting, tokens_left",
    [
        (20_000, "", 141_950 - 20_000),
        (140_000, "", 141_950 - 140_000),
        (110_000, "", 141_950 - 110_000),  # the warning at 70 % may come a few calls late
        (20_000, "handoff:\n  threshold: 30k\n", 10_000),
        (150_000, "handoff:\n  enabled: false\n", 158_650 - 150_000),  # to 95 %
        (160_000, "handoff:\n  enabled: false\n", 167_000),  # nothing urgent is above
    ],
)
def test_the_transcript_may_grow_by_three_bytes_a_token_up_to_the_next_urgent_level(
    world, session, tokens, setting, tokens_left
):
    world.settings(setting)
    session.look(tokens=tokens)
    session.look()  # the first one may have said how full it is
    least, most = map(int, left(world)[1].split())
    assert most - least == 3 * tokens_left


def test_a_client_that_writes_a_result_once_has_half_the_room():
    assert {
        name: dialect.bytes_per_token for name, dialect in kit.DIALECTS.items() if name != "claude"
    } == dict.fromkeys(["codex", "gemini", "qwen", "copilot", "droid", "grok"], 1.5)


def test_the_calm_file_names_what_ends_the_calm(world, session):
    session.look()
    path = world.cache("calm", "claude-s1")
    assert left(world)[2:] == [
        session.transcript,
        world.context("signals", "global"),
        world.context("signals", "sessions", "s1"),
        world.path(".git", "HEAD"),
        world.path(".git", "logs", "HEAD"),
        world.state("edits"),
        "",
    ]
    assert os.stat(path).st_mtime == world.now - 2  # the result's row is a second later
    assert not os.path.exists(path + ".tally")  # no call was counted yet
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


def test_no_calm_while_a_handoff_is_owed(world, session):
    session.look(tokens=20_000)
    assert room(world) == 8
    session.look(tokens=150_000)
    session.look()
    assert room(world) == 0
    session.write_handoff()
    session.look()
    assert room(world) == 8


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


def test_a_cache_that_cannot_be_written_gets_no_calm(world, session):
    write(world.cache("calm"), "a file in the folder's place")
    session.look()
    assert read(world.cache("calm")) == "a file in the folder's place"


def launched(world, *words):
    """Whether this call started Python: it notes when it saw the session last."""
    session = world.session("s1")
    before = session.state()["seen_at"]
    launch(world, session, *words)
    return session.state()["seen_at"] != before


def launch(world, session, *words):
    """What the client's next call of the monitor says."""
    event = session.event("PostToolUse", tool_name="Read", tool_input={}, tool_use_id="t")
    os.utime(session.transcript)  # the client has written the result of the call before
    reply = world.launch("monitor", event, *words, CLAUDE_CODE_SESSION_ID="s1")
    assert (reply.code, reply.err) == (0, "")
    return reply


@pytest.mark.parametrize("growth", [500, 3_000, 10_000, 24_000, 40_000])
@pytest.mark.posix("about the launcher")
def test_however_large_the_calls_the_request_comes_with_the_one_that_crosses(world, session, growth):
    tokens = 141_950 - 5 * growth // 2  # so it crosses with the third of these
    session.look(tokens=tokens - 9 * growth)
    for number in range(12):
        tokens_now = tokens + growth * (number - 8)
        call = session.new_id("toolu")
        block = {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": call}}
        session.write_answer(block, tokens=tokens_now)
        is_asked = "Write a handoff" in launch(world, session).text
        assert is_asked == (tokens_now >= 141_950), number
        session.write_result(call, "x" * growth * 3)


@pytest.mark.parametrize("what", ["global", "s1", "branch", "commit", "now", "in place"])
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
    elif what == "commit":
        world.write(".git/logs/HEAD", "commit: x")
    elif what != "now":
        world.signal("Deploy is red.", what if what == "s1" else "global")
    assert launched(world, *["now"] * (what == "now"))
