"""Scenario 5: the auto workflow holds the agent at Stop until its phases are complete, and never traps it."""

from __future__ import annotations

import itertools

import pytest

from stub_model import SUBAGENT_MARKER, Turn, bash

BLOCK = "---\nSIGNAL: %s_COMPLETE\nPHASE: %s\nSTATUS: complete\nTIMESTAMP: 2026-02-03T10:45:00Z\nNEXT: %s\n---"
HOLD = "## Auto Mode Continuation"
CLIENT_CAP = 8  # consecutive holds after which the client overrides hooks
STATE = ".caw/auto-state.json"


def block(phase, following):
    return "All done.\n\n" + BLOCK % (phase.upper(), phase, following)


@pytest.fixture
def auto(kit):
    kit.ctx(
        "auto",
        "start",
        "Add a parser for quotes",
        "--phase",
        "planning",
        "--skip-qa",
        "--skip-review",
        "--skip-reflect",
    )
    return kit


def test_the_agent_is_held_until_its_block_is_there_and_goes_through_two_phases(auto):
    auto.stub.script(
        "I had a look.",
        bash("echo plan > task_plan.md"),
        block("planning", "execution"),
        "Some steps are done.",
        bash("echo built"),
        block("execution", "none"),
        "never asked for",
    )
    result = auto.run("go").results.get(timeout=1) or {}
    requests = auto.stub.of("main")
    assert (
        HOLD in requests[1].news()
        and "PLANNING_COMPLETE" in requests[1].news()
        and "Add a parser for quotes" in requests[1].news()
    )
    assert "EXECUTION_COMPLETE" in requests[3].news() and "PLANNING_COMPLETE" not in requests[3].news()
    assert HOLD in requests[4].news() and "EXECUTION_COMPLETE" in requests[4].news()
    assert len(requests) == 6 and len(auto.stub.turns) == 1, result
    state = auto.json(STATE)
    assert (state["phase"], state["active"], state["exit_reason"]) == ("complete", False, "all_phases_complete")


def test_an_agent_that_says_the_same_forever_is_released_by_us_and_not_by_the_client(auto):
    auto.stub.script(otherwise=Turn("I am thinking about it."))
    with auto.session() as session:
        result = session.prompt("go")
    assert 2 <= len(auto.stub.of("main")) < CLIENT_CAP
    assert result["result"] == "I am thinking about it." and not result["is_error"]
    assert auto.json(STATE)["active"] is True


def test_an_agent_that_says_something_new_each_time_is_released_before_the_clients_cap(auto):
    numbers = itertools.count()
    auto.stub.script(otherwise=Turn(lambda _: "Thought number %d." % next(numbers)))
    with auto.session() as session:
        result = session.prompt("go")
    holds = len(auto.stub.of("main")) - 1
    assert 3 < holds < CLIENT_CAP and result["result"] == "Thought number %d." % holds


def test_a_workflow_bound_to_another_session_holds_nobody_else(kit):
    kit.ctx("auto", "start", "Somebody else's task", "--session", "another-session")
    kit.stub.script("done")
    kit.run("go")
    assert len(kit.stub.of("main")) == 1 and kit.json(STATE)["active"] is True


def test_the_agent_may_stop_while_its_background_work_runs(auto):
    agent = ("Agent", {"description": "sub", "prompt": SUBAGENT_MARKER + " go", "subagent_type": "general-purpose"})
    auto.stub.subagent_turns = [bash("sleep 1; echo from-the-subagent"), Turn("the subagent is done")]
    auto.stub.script(Turn("", [agent]), "I wait for it.", block("planning", "execution"), block("execution", "none"))
    with auto.session() as session:
        session.prompt("go")
        session.wait_result("the notification")
    requests = auto.stub.of("main")
    assert HOLD not in requests[2].news() and "task-notification" in requests[2].news()
    assert auto.json(STATE)["phase"] == "complete"


def test_a_prompt_that_cancels_releases_the_agent_at_once(auto):
    auto.stub.script("cancelled", "free")
    auto.run("ctx cancel", "go")
    assert len(auto.stub.of("main")) == 2 and HOLD not in auto.stub.of("main")[1].text()
    state = auto.json(STATE)
    assert state["active"] is False and state["exit_reason"] == "user_cancelled"


def test_an_unrecoverable_error_block_ends_the_workflow(auto):
    auto.stub.script(
        "---\nSIGNAL: PHASE_ERROR\nPHASE: planning\nSTATUS: error\nTIMESTAMP: 2026-02-03T10:45:00Z\n"
        "ERROR: no such module\nRECOVERABLE: false\n---"
    )
    auto.run("go")
    state = auto.json(STATE)
    assert len(auto.stub.of("main")) == 1 and (state["phase"], state["exit_reason"]) == ("failed", "critical_error")
