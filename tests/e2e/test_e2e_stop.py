"""The auto workflow holds the agent at Stop until its phases are complete and proven so, and never traps it."""

from __future__ import annotations

import itertools
import json
import os
import signal

import pytest

from agents import block, blocked, complete, failed
from stub_model import SUBAGENT_MARKER, Turn, bash

HOLD = "## Auto Mode Continuation"
CLIENT_CAP = 8  # consecutive holds after which the client overrides hooks
PLANNING = "PLANNING_COMPLETE"
STATE = ".caw/auto-state.json"
TASK = "Add a parser for quotes"
THREE = "auto:\n  phases: [plan, build, test]\n  about:\n    build: write the parser\n  done_when:\n    test: sh check.sh\n"
CHECK = "grep -q quotes parser.txt && exit 0\necho 'parser.txt knows no quotes yet'\nexit 3\n"


@pytest.fixture
def two_phases(kit):
    """Planning and execution; `--any`, since nobody types in print mode."""
    start(kit, "--phase", "planning", "--skip-qa", "--skip-review", "--skip-reflect")
    return kit


@pytest.fixture
def three_phases(kit):
    kit.write(".contextrc", THREE)
    kit.write("check.sh", CHECK)
    start(kit)
    return kit


def start(kit, *arguments, binding=("--any",)):
    return kit.ctx("auto", "start", TASK, "--agree", *arguments, *binding)


def state(kit, *names):
    found = kit.json(STATE)
    return tuple(found.get(name) for name in names)


def holds(kit):
    return sum(r.news().count(HOLD) for r in kit.stub.of("main"))


# ---------------------------------------------------------------------------
# phases
# ---------------------------------------------------------------------------


def test_three_phases_with_a_check_that_fails_until_the_agent_repairs_it(three_phases):
    kit = three_phases
    kit.stub.script(
        bash("echo plan > plan.txt"),
        complete("plan", "build"),
        "Some of it is built.",
        bash("touch parser.txt"),
        complete("build", "test"),
        complete("test"),
        bash("echo quotes > parser.txt"),
        complete("test"),
        "never asked for",
    )
    kit.run("go")
    requests = kit.stub.of("main")
    assert TASK in requests[0].news() and "PLAN_COMPLETE" in requests[0].news()
    assert "BUILD_COMPLETE" in requests[2].news() and "write the parser" in requests[2].news()
    assert HOLD in requests[3].news() and "BUILD_COMPLETE" in requests[3].news()
    assert "TEST_COMPLETE" in requests[5].news()
    assert "parser.txt knows no quotes yet" in requests[6].news() and "3" in requests[6].news()
    assert len(requests) == 8 and len(kit.stub.turns) == 1
    assert state(kit, "phase", "active") == ("complete", False)
    shown = kit.ctx("auto", "status").stdout
    assert all(phase in shown for phase in ("plan", "build", "test")), shown


def test_the_task_is_told_with_the_first_prompt_and_later_holds_are_short(two_phases):
    kit = two_phases
    kit.stub.script("I had a look.", bash("echo a"), "One more look.", bash("echo b"), complete("planning", "execution"),
                    complete("execution"))
    kit.run("go")
    requests = kit.stub.of("main")
    assert TASK in requests[0].news() and PLANNING in requests[0].news() and HOLD not in requests[0].news()
    first, second = requests[1].news(), requests[3].news()
    assert HOLD in first and TASK in first and HOLD in second and PLANNING in second
    assert len(second) < len(first)
    assert state(kit, "phase", "active") == ("complete", False)


def test_a_block_followed_by_one_more_tool_call_still_counts(two_phases):
    kit = two_phases
    planned = lambda r: Turn(complete("planning", "execution")(r).text, [("Bash", {"command": "echo tidy"})])  # noqa: E731
    kit.stub.script(planned, "Everything is planned.", complete("execution"))
    kit.run("go")
    assert [PLANNING in r.news() for r in kit.stub.of("main")] == [True, False, False]
    assert state(kit, "phase") == ("complete",)


def test_a_block_of_another_day_gets_an_answer_that_names_the_field(two_phases):
    kit = two_phases
    stale = block(SIGNAL=PLANNING, PHASE="planning", STATUS="complete", NEXT="execution")
    stale = "\n".join("TIMESTAMP: 2020-02-03T10:45:00Z" if "TIMESTAMP" in row else row for row in stale.split("\n"))
    kit.stub.script(stale, complete("planning", "execution"), complete("execution"))
    kit.run("go")
    answer = [row for row in kit.stub.of("main")[1].news().split("\n") if "TIMESTAMP" in row]
    assert not answer[0].startswith("TIMESTAMP: <"), answer  # not only the block to print
    assert "EXECUTION_COMPLETE" in kit.stub.of("main")[2].news()


def test_a_workflow_until_a_command_is_execution_alone(kit):
    start(kit, "--until", "test -e done.txt")
    kit.stub.script(complete("execution"), bash("touch done.txt"), complete("execution"))
    kit.run("go")
    assert len(kit.stub.of("main")) == 3 and state(kit, "phase", "active") == ("complete", False)


def test_a_check_that_changed_after_it_was_agreed_to_is_not_run(three_phases):
    kit = three_phases
    kit.write(".contextrc", THREE.replace("sh check.sh", "touch planted.txt"))
    kit.stub.script(complete("plan", "build"), complete("build", "test"), complete("test"), "never asked for")
    session = kit.run("go")
    assert not kit.path("planted.txt").exists() and state(kit, "phase", "active") == ("test", True)
    assert len(kit.stub.of("main")) == 3 and any("check" in line for line in session.notices())


def test_a_check_sees_no_secret_of_the_session(kit):
    start(kit, "--until", "env > seen.txt")
    kit.stub.script(complete("execution"))
    kit.run("go", DEPLOY_TOKEN="a-secret", PLAIN_WORD="a-word")
    seen = kit.read("seen.txt")
    assert "a-word" in seen and "a-secret" not in seen and "ANTHROPIC_" not in seen and "CLAUDE_CODE_" not in seen


# ---------------------------------------------------------------------------
# ways out
# ---------------------------------------------------------------------------


def test_a_blocked_agent_may_ask_and_the_answer_takes_the_workflow_up_again(two_phases):
    kit = two_phases
    kit.stub.script(
        blocked("planning", "Which quotes, single or double?"), "Both, I see.", complete("planning", "execution"),
        complete("execution"),
    )
    with kit.session() as session:
        session.prompt("go")
        assert len(kit.stub.of("main")) == 1 and state(kit, "phase", "active") == ("planning", True)
        assert any("Which quotes" in line for line in session.notices())
        session.prompt("both")
    assert HOLD in kit.stub.of("main")[2].news() and state(kit, "phase", "active") == ("complete", False)


def test_a_prompt_that_cancels_releases_the_agent_at_once(two_phases):
    two_phases.stub.script("cancelled", "free")
    two_phases.run("ctx cancel", "go")
    assert len(two_phases.stub.of("main")) == 2 and PLANNING not in two_phases.stub.of("main")[1].news()
    assert "cancel" in two_phases.stub.of("main")[0].news().replace("ctx cancel", "")
    assert state(two_phases, "active", "exit_reason") == (False, "user_cancelled")


@pytest.mark.parametrize("words", [lambda _: "I am thinking about it.", lambda n: "Thought number %d." % n])
def test_an_agent_that_only_talks_is_released_at_its_third_stop(two_phases, words):
    numbers = itertools.count(1)
    two_phases.stub.script(otherwise=lambda _: Turn(words(next(numbers))))
    with two_phases.session() as session:
        result = session.prompt("go")
    assert [PLANNING in r.news() for r in two_phases.stub.of("main")] == [True, True, True]
    assert result["result"] == words(3) and not result["is_error"]
    assert state(two_phases, "active") == (True,)


def test_an_agent_that_works_without_an_end_is_failed_at_the_limit_and_not_by_the_client(kit):
    start(kit, "--phase", "planning", "--max-iterations", "3")
    work = itertools.cycle([bash("echo a"), Turn("Not yet.")])  # the same words again are another stop
    kit.stub.script(otherwise=lambda _: next(work))
    with kit.session() as session:
        result = session.prompt("go")
    assert holds(kit) == 3 and result["result"] == "Not yet." and state(kit, "phase", "active") == ("failed", False)
    assert session.notices()


def test_an_unrecoverable_error_block_ends_the_workflow(two_phases):
    two_phases.stub.script(failed("planning", "no such module", recoverable=False))
    two_phases.run("go")
    assert len(two_phases.stub.of("main")) == 1
    assert state(two_phases, "phase", "exit_reason") == ("failed", "critical_error")


def test_a_recoverable_error_block_asks_the_agent_to_recover(two_phases):
    two_phases.stub.script(failed("planning", "no network", recoverable=True), complete("planning", "execution"),
                           complete("execution"))
    two_phases.run("go")
    assert "recover" in two_phases.stub.of("main")[1].news() and state(two_phases, "phase") == ("complete",)


def test_plan_mode_is_not_held(two_phases):
    two_phases.stub.script("a plan", "never asked for")
    two_phases.run("go", mode="plan")
    assert len(two_phases.stub.of("main")) == 1 and state(two_phases, "active") == (True,)


# ---------------------------------------------------------------------------
# background work
# ---------------------------------------------------------------------------


def test_the_agent_may_stop_while_its_subagent_runs(two_phases):
    agent = ("Agent", {"description": "sub", "prompt": SUBAGENT_MARKER + " go", "subagent_type": "general-purpose"})
    two_phases.stub.subagent_turns = [bash("sleep 1; echo from-the-subagent"), Turn("the subagent is done")]
    two_phases.stub.script(
        Turn("", [agent]), "I wait for it.", complete("planning", "execution"), complete("execution")
    )
    with two_phases.session() as session:
        session.prompt("go")
        session.wait_result("the notification")
    requests = two_phases.stub.of("main")
    assert HOLD not in requests[2].news() and "task-notification" in requests[2].news()
    assert state(two_phases, "phase") == ("complete",)


def test_a_server_in_the_background_does_not_switch_it_off(two_phases):
    server = "echo $$ > server.pid; exec sleep 300"
    serve = ("Bash", {"command": server, "description": "serve", "run_in_background": True})
    two_phases.stub.script(
        Turn("", [serve]), "The server runs.", complete("planning", "execution"), complete("execution")
    )
    with two_phases.session() as session:
        session.prompt("go")
        os.kill(int(two_phases.read("server.pid")), signal.SIGKILL)  # the client waits for it before it ends
        two_phases.stub.script("I see that the server is gone.")
    assert HOLD in two_phases.stub.of("main")[2].news() and PLANNING in two_phases.stub.of("main")[2].news()
    assert state(two_phases, "phase") == ("complete",)


# ---------------------------------------------------------------------------
# whom it binds
# ---------------------------------------------------------------------------


def test_clear_in_the_middle_takes_the_workflow_to_the_new_session(two_phases):
    two_phases.stub.script(
        complete("planning", "execution"), blocked("execution", "May I go on?"), "Where was I?", complete("execution")
    )
    with two_phases.session() as session:
        session.prompt("go")
        before = session.id
        session.prompt("/clear")
        session.prompt("go on")
        assert session.id != before
    third, last = two_phases.stub.of("main")[2:]
    assert TASK in third.news() and "EXECUTION_COMPLETE" in third.news() and HOLD in last.news()
    assert state(two_phases, "phase", "active") == ("complete", False)


def test_a_compaction_in_the_middle_tells_phase_and_task_again(two_phases):
    two_phases.stub.script(blocked("planning", "May I go on?"), complete("planning", "execution"), complete("execution"))
    two_phases.run("go", "/compact", "go on")
    assert TASK in two_phases.stub.of("main")[1].text() and state(two_phases, "phase") == ("complete",)


def test_print_mode_beside_a_workflow_that_waits_for_its_person_is_not_captured(kit):
    start(kit, "--phase", "planning", binding=())
    kit.stub.script("42", "never asked for")
    kit.run("what is six times seven?")
    assert len(kit.stub.of("main")) == 1 and TASK not in kit.stub.of("main")[0].text()
    assert state(kit, "phase", "active") == ("planning", True)


def test_another_session_is_not_held_by_a_bound_workflow(two_phases):
    two_phases.stub.script(blocked("planning", "May I go on?"), "42", "never asked for")
    with two_phases.session() as session:
        session.prompt("go")
        two_phases.run("what is six times seven?")
    assert len(two_phases.stub.of("main")) == 2 and TASK not in two_phases.stub.of("main")[1].text()


def test_resume_hands_it_to_the_next_session_that_prompts(two_phases):
    two_phases.stub.script(blocked("planning", "May I go on?"), "Where was I?", complete("planning", "execution"),
                           complete("execution"))
    two_phases.run("go")
    two_phases.ctx("auto", "resume")
    two_phases.run("go on")
    assert TASK in two_phases.stub.of("main")[1].news() and state(two_phases, "phase") == ("complete",)


@pytest.mark.parametrize("bound", ["", "11111111-2222-3333-4444-555555555555"])
def test_a_state_that_came_with_a_clone_is_inert(kit, bound):
    elsewhere = str(kit.root / "another machine")
    kit.ctx("auto", "start", TASK, "--phase", "planning", "--any", XDG_STATE_HOME=elsewhere)
    kit.write(STATE, json.dumps(dict(kit.json(STATE), session_id=bound)))
    kit.stub.script("42", "never asked for")
    kit.run("what is six times seven?")
    assert len(kit.stub.of("main")) == 1 and TASK not in kit.stub.of("main")[0].text()
    assert "inert" in kit.ctx("status").stdout


def test_two_kits_on_one_machine_release_together(kit):
    kit.install("--scope", "user")
    start(kit, "--until", "echo ran >> runs.txt")
    kit.stub.script("I had a look.", complete("execution"), "never asked for")
    kit.run("go")
    assert [r.news().count(HOLD) for r in kit.stub.of("main")] == [0, 1]
    assert kit.read("runs.txt") == "ran\n" and state(kit, "phase", "active") == ("complete", False)
