"""Resume, /clear, a new conversation, a fork and compaction; what is said again and what is not."""

from __future__ import annotations

import pytest

from agents import FULL
from stub_model import bash

GATE = "STOP. Read your context files"
OPEN = "[CONTEXT INJECTION"
REMINDER = "BEGIN HANDOFF"
ACK = "ACK: context received."
GOAL = "Teach the parser about quotes."


def said(kit, text, start=0):
    return [r.news().count(text) for r in kit.stub.of("main")[start:]]


@pytest.fixture
def handed(kit):
    """A project with a handoff that was written after the kit had seen its first event here."""
    kit.stub.script("hello")
    kit.run("the kit's first session")
    kit.stub.requests.clear()
    kit.write(".claude/ll-continue-prompt.md", "# Goal\n%s\n" % GOAL)
    return kit


def test_a_resumed_session_is_not_told_again(handed):
    handed.stub.script(bash("echo a"), "done")
    first = handed.run("work")
    handed.stub.script(bash("echo b"), "done")
    again = handed.run("go on", arguments=("--resume", first.id))
    assert again.id == first.id
    assert said(handed, GATE) == [0, 1, 0, 0] and said(handed, OPEN) == [1, 0, 0, 0]


def test_a_resumed_session_that_never_called_a_tool_still_meets_the_gate(kit):
    kit.stub.script("done")
    first = kit.run("talk")
    kit.stub.script(bash("echo b"), "done")
    kit.run("work", arguments=("--resume", first.id))
    assert said(kit, GATE) == [0, 0, 1]


def test_a_new_conversation_meets_the_gate_again(kit):
    kit.stub.script(bash("echo a"), "done", bash("echo b"), "done")
    kit.run("work")
    kit.run("work")
    assert said(kit, GATE) == [0, 1, 0, 1]


def test_clear_starts_over_with_the_gate_and_the_handoff_of_what_was_cleared(kit):
    kit.stub.script(
        bash("echo a", tokens=FULL),
        bash("echo b", tokens=FULL),
        "done",
        bash("echo c", tokens=20_000),
        bash("echo d", tokens=21_000),
        "done",
    )
    kit.run("work", "/clear", "work again")
    assert said(kit, GATE) == [0, 1, 0, 0, 1, 0]
    assert said(kit, OPEN) == [0, 0, 0, 1, 0, 0]
    assert said(kit, REMINDER)[2:] == [1, 0, 0, 0]
    assert kit.left_behind() == []


def test_compaction_by_hand_re_arms_the_gate_and_brings_the_sessions_own_handoff(kit):
    kit.stub.script(
        bash("echo a", tokens=FULL),
        bash("echo b", tokens=FULL),
        "done",
        bash("echo c", tokens=20_000),
        bash("echo d", tokens=21_000),
        "done",
    )
    kit.run("Rename the lexer.", "/compact", "work on")
    assert len(kit.stub.of("compact")) == 1 and "ctx_hooks" not in kit.stub.of("compact")[0].news()
    assert said(kit, GATE, 3) == [0, 1, 0]
    assert said(kit, OPEN) == [0, 0, 0, 1, 0, 0] and "Rename the lexer." in kit.stub.of("main")[3].text()
    assert said(kit, REMINDER)[2:] == [1, 0, 0, 0]


def test_automatic_compaction_in_the_middle_of_a_turn_does_the_same(kit):
    kit.stub.script(
        bash("echo a", tokens=20_000),
        bash("echo b", tokens=190_000),
        bash("echo c", tokens=30_000),
        bash("echo d", tokens=31_000),
        "done",
    )
    kit.run("Rename the lexer.")
    assert len(kit.stub.of("compact")) == 1
    assert said(kit, GATE) == [0, 1, 0, 1, 0]
    assert said(kit, OPEN) == [0, 0, 1, 0, 0]
    assert said(kit, REMINDER)[3:] == [0, 0]  # what was said before the compaction, the client may keep
    assert "Rename the lexer." in kit.stub.of("main")[2].news()


def test_a_fork_of_a_session_that_has_the_handoff_is_not_told_again(handed):
    handed.stub.script("I see.", "done", "done")
    first = handed.run("work")
    fork = handed.run("another way", "and on", arguments=("--resume", first.id, "--fork-session"))
    assert fork.id != first.id and said(handed, OPEN) == [1, 0, 0]
    assert GOAL in handed.stub.of("main")[1].text()


def test_resumed_by_another_session_a_handoff_that_was_delivered_stays_delivered(handed):
    handed.stub.script("I see.", "done", "done")
    first = handed.run("work")
    handed.run("something else")
    handed.run("go on", arguments=("--resume", first.id))
    assert said(handed, OPEN) == [1, 0, 0]
    metrics = handed.json(".context/metrics.json")
    assert (metrics["attempted"], metrics["confirmedByReceipt"]) == (1, 1)
