"""Scenario 7: resume, /clear, a new conversation, a fork and compaction; what is said again and what is not."""

from __future__ import annotations

import json

from stub_model import bash

GATE = "STOP. Read your context files"
OPEN = "[CONTEXT INJECTION"
REMINDER = "Context is 8"
ACK = "ACK: context received."
HANDOFF = ".claude/ll-continue-prompt.md"


def said(kit, text, start=0):
    return [r.news().count(text) for r in kit.stub.of("main")[start:]]


def test_a_resumed_session_is_not_told_again(kit):
    kit.write(HANDOFF, "# Goal\nthe parser\n")
    kit.stub.script(bash("echo a", text=ACK), "done")
    first = kit.run("work")
    kit.stub.script(bash("echo b"), "done")
    again = kit.run("go on", arguments=("--resume", first.id))
    assert again.id == first.id
    assert said(kit, GATE) == [0, 1, 0, 0] and said(kit, OPEN) == [1, 0, 0, 0]


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


def test_clear_starts_over_with_gate_startup_context_and_handoff_state(kit):
    kit.write(HANDOFF, "# Goal\nthe parser\n")
    kit.stub.script(
        bash("echo a", text=ACK, tokens=164_000),
        bash("echo b", tokens=165_000),
        "done",
        bash("echo c", text=ACK, tokens=20_000),
        bash("echo d", tokens=21_000),
        "done",
    )
    kit.run("work", "/clear", "work again")
    assert said(kit, GATE) == [0, 1, 0, 0, 1, 0]
    assert said(kit, OPEN) == [1, 0, 0, 1, 0, 0]
    assert said(kit, REMINDER)[2:] == [1, 0, 0, 0]
    assert kit.files(".context/state/*.json") == [] and kit.markers() == []


def test_compaction_by_hand_re_arms_the_gate_and_forgets_the_crossing(kit):
    kit.stub.script(
        bash("echo a", tokens=164_000),
        bash("echo b", tokens=165_000),
        "done",
        bash("echo c", tokens=20_000),
        bash("echo d", tokens=21_000),
        "done",
    )
    kit.run("work", "/compact", "work on")
    assert len(kit.stub.of("compact")) == 1
    assert said(kit, GATE, 3) == [0, 1, 0]
    assert said(kit, REMINDER)[2:] == [1, 0, 0, 0]


def test_automatic_compaction_in_the_middle_of_a_turn_does_the_same(kit):
    kit.stub.script(
        bash("echo a", tokens=20_000),
        bash("echo b", tokens=190_000),
        bash("echo c", tokens=30_000),
        bash("echo d", tokens=31_000),
        "done",
    )
    kit.run("work")
    assert len(kit.stub.of("compact")) == 1
    assert said(kit, GATE) == [0, 1, 0, 1, 0]
    assert said(kit, "full (")[3:] == [0, 0]


def test_a_fork_gets_the_startup_context_of_its_own(kit):
    kit.write(HANDOFF, "# Goal\nthe parser\n")
    kit.stub.script(ACK, ACK, "done")
    first = kit.run("work")
    fork = kit.run("another way", arguments=("--resume", first.id, "--fork-session"))
    assert fork.id != first.id and said(kit, OPEN) == [1, 1]


def test_a_fork_is_not_acknowledged_by_the_conversation_that_it_copied(kit):
    kit.write(HANDOFF, "# Goal\nthe parser\n")
    kit.stub.script(ACK, "no word about it")
    first = kit.run("work")
    kit.run("another way", arguments=("--resume", first.id, "--fork-session"))
    metrics = json.loads(kit.read(".context/metrics.json"))
    assert (metrics["attempted"], metrics["succeededOnFirstTry"]) == (2, 1)
