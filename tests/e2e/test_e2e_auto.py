"""The auto workflow holds the agent at Stop until its phases are complete and proven so, and never traps it."""

from __future__ import annotations

import itertools
import json
import os
import signal

import pytest

from agents import bash, block, blocked, complete, failed
from stub_model import SUBAGENT_MARKER, Turn

HOLD = "## Auto Mode Continuation"
BRIEFED = "[ctx auto] A workflow runs in this session."
PLANNING = "PLANNING_COMPLETE"
STATE = ".caw/auto-state.json"
TASK = "Add a parser for quotes"
CHECK = "grep -q quotes parser.txt && exit 0\necho 'parser.txt knows no quotes yet'\nexit 3\n"
TWO = "auto:\n  phases: [planning, execution]\n"
THREE = (
    "auto:\n  phases: [plan, build, test]\n  about:\n    build: write the parser\n  done_when:\n    test: sh check.sh\n"
)


@pytest.fixture
def two_phases(kit):
    """Planning and execution; `--any`, since nobody types in print mode."""
    kit.write(".contextrc", TWO)
    start(kit)
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
    return [request.news().count(HOLD) for request in kit.stub.of("main")]


def test_three_phases_with_a_check_that_fails_until_the_agent_repairs_it(three_phases, note):
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
    session = kit.run("go")
    news = [request.news() for request in kit.stub.of("main")]
    assert BRIEFED in news[0] and TASK in news[0] and "PLAN_COMPLETE" in news[0] and HOLD not in news[0]
    assert "BUILD_COMPLETE" in news[2] and "write the parser" in news[2]
    assert HOLD in news[3] and "BUILD_COMPLETE" in news[3] and "TEST_COMPLETE" in news[5]
    assert "parser.txt knows no quotes yet" in news[6] and "3" in news[6]
    assert len(news) == 8 and len(kit.stub.turns) == 1 and state(kit, "phase", "active") == ("complete", False)
    texts = [
        reply["hookSpecificOutput"]["additionalContext"] for mode, reply in kit.emitted() if HOLD in json.dumps(reply)
    ]
    lines = [text.count("\n") + 1 for text in texts]  # a person reads them too
    note("auto: three phases, lines of each hold %s, and one at the end" % lines)
    assert sorted(lines)[:3] == [3, 3, 3], lines  # the agent was briefed with its prompt; one holds the check's output
    assert session.notices() == ["ctx auto: the workflow passed: all of it is complete."]


def test_until_alone_speaks_of_the_task_and_takes_the_honest_way_out(kit):
    start(kit, "--until", "true")
    kit.stub.script("I had a look.", complete("execution", REASON="nothing was left to do, because it was there"))
    session = kit.run("go")
    news = [request.news() for request in kit.stub.of("main")]
    assert len(news) == 2 and "plan" not in news[1] and "phase" not in news[1].lower().replace("phase_", "")
    assert state(kit, "phase", "active") == ("complete", False) and len(session.notices()) == 1


def test_a_block_of_another_day_gets_an_answer_that_names_the_field(two_phases):
    stale = block(SIGNAL=PLANNING, PHASE="planning", STATUS="complete", NEXT="execution")
    stale = "\n".join("TIMESTAMP: 2020-02-03T10:45:00Z" if "TIMESTAMP" in row else row for row in stale.split("\n"))
    two_phases.stub.script(stale, complete("planning", "execution"), complete("execution"))
    two_phases.run("go")
    assert "does not count: TIMESTAMP" in two_phases.stub.of("main")[1].news()
    assert state(two_phases, "phase") == ("complete",)


def test_a_check_that_changed_after_it_was_agreed_to_is_not_run(three_phases):
    kit = three_phases
    kit.write(".contextrc", THREE.replace("sh check.sh", "touch planted.txt"))
    kit.write("parser.txt", "quotes")
    kit.stub.script(complete("plan", "build"), complete("build", "test"), complete("test"), "never asked for")
    kit.run("go")
    assert not kit.path("planted.txt").exists() and state(kit, "phase") == ("complete",)  # the agreed one ran


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
    kit.stub.script(blocked("planning", "Which quotes, single or double?"), "Both, I see.")
    kit.stub.script(complete("planning", "execution"), complete("execution"))
    with kit.session() as session:
        session.prompt("go")
        assert len(kit.stub.of("main")) == 1 and state(kit, "phase", "active") == ("planning", True)
        assert any("Which quotes" in line for line in session.notices())
        session.prompt("both")
    assert holds(kit) == [0, 0, 1, 1] and state(kit, "phase", "active") == ("complete", False)


def test_a_prompt_that_cancels_releases_the_agent_at_once(two_phases):
    two_phases.stub.script("cancelled", "free")
    session = two_phases.run("ctx cancel", "go")
    news = [request.news() for request in two_phases.stub.of("main")]
    assert len(news) == 2 and PLANNING not in news[1] and "cancelled the workflow" in news[0]
    assert state(two_phases, "active", "exit_reason") == (False, "user_cancelled") and len(session.notices()) == 1
    assert "cancelled" in two_phases.ctx("auto", "status").stdout


@pytest.mark.parametrize("words", [lambda _: "I am thinking about it.", lambda n: "Thought number %d." % n])
def test_an_agent_that_only_talks_is_released_and_the_person_told(two_phases, words):
    numbers = itertools.count(1)
    two_phases.stub.script(otherwise=lambda _: Turn(words(next(numbers))))
    with two_phases.session() as session:
        result = session.prompt("go")
    assert holds(two_phases) == [0, 1, 1] and not result["is_error"] and state(two_phases, "active") == (True,)
    assert len(session.notices()) == 1 and "without a tool call" in session.notices()[0]


def test_an_agent_that_works_without_an_end_is_failed_at_the_limit_and_not_by_the_client(kit):
    start(kit, "--phase", "planning", "--max-iterations", "3")
    work = itertools.cycle([bash("echo a"), Turn("Not yet.")])  # the same words again are another stop
    kit.stub.script(otherwise=lambda _: next(work))
    with kit.session() as session:
        result = session.prompt("go")
    assert (
        sum(holds(kit)) == 3 and result["result"] == "Not yet." and state(kit, "phase", "active") == ("failed", False)
    )
    assert len(session.notices()) == 1


def test_an_unrecoverable_error_block_ends_it_and_a_recoverable_one_goes_on(two_phases):
    two_phases.stub.script(failed("planning", "no network", True), failed("planning", "no such module", False))
    two_phases.run("go")
    assert len(two_phases.stub.of("main")) == 2 and "Recover" in two_phases.stub.of("main")[1].news()
    assert state(two_phases, "phase", "exit_reason") == ("failed", "critical_error")


def test_plan_mode_is_not_held(two_phases):
    two_phases.stub.script("a plan", "never asked for")
    session = two_phases.run("go", mode="plan")
    assert len(two_phases.stub.of("main")) == 1 and state(two_phases, "active") == (True,)
    assert "plan mode" in session.notices()[0]


# ---------------------------------------------------------------------------
# background work
# ---------------------------------------------------------------------------


def test_the_agent_may_stop_while_its_subagent_runs(two_phases):
    agent = ("Agent", {"description": "sub", "prompt": SUBAGENT_MARKER + " go", "subagent_type": "general-purpose"})
    two_phases.stub.subagent_turns = [bash("sleep 1; echo from-the-subagent"), Turn("the subagent is done")]
    two_phases.stub.script(Turn("", [agent]), "I wait.", complete("planning", "execution"), complete("execution"))
    with two_phases.session() as session:
        session.prompt("go")
        session.wait_result("the notification")
    requests = two_phases.stub.of("main")
    assert HOLD not in requests[2].news() and "task-notification" in requests[2].news()
    assert state(two_phases, "phase") == ("complete",) and "subagents are at work" in session.notices()[0]


def test_a_server_in_the_background_does_not_switch_it_off(two_phases):
    server = "echo $$ > server.pid; exec sleep 300"
    serve = ("Bash", {"command": server, "description": "serve", "run_in_background": True})
    two_phases.stub.script(Turn("", [serve]), "It runs.", complete("planning", "execution"), complete("execution"))
    with two_phases.session() as session:
        session.prompt("go")
        os.kill(int(two_phases.read("server.pid")), signal.SIGKILL)  # the client waits for it before it ends
        two_phases.stub.script("I see that the server is gone.")
    assert PLANNING in two_phases.stub.of("main")[2].news() and state(two_phases, "phase") == ("complete",)


def test_a_scheduled_wake_up_lets_the_agent_pause(two_phases):
    wakes = {"cron": "59 23 31 12 *", "prompt": "look again", "recurring": False}
    two_phases.stub.script(Turn("", [("CronCreate", wakes)]), "I look again later.", "never asked for")
    with two_phases.session() as session:
        session.prompt("go")
        request = two_phases.stub.of("main")[-1]
        if request.refusals() or "wake-up" not in "".join(session.notices()):
            pytest.skip("no wake-up can be scheduled here: %s" % request.news()[-200:])
        assert holds(two_phases) == [0, 0] and state(two_phases, "phase", "active") == ("planning", True)
        session.kill()
        session.end = lambda: None


# ---------------------------------------------------------------------------
# whom it binds
# ---------------------------------------------------------------------------


def test_clear_in_the_middle_takes_the_workflow_to_the_new_session(two_phases):
    two_phases.stub.script(complete("planning", "execution"), blocked("execution", "May I go on?"), "Where was I?")
    two_phases.stub.script(complete("execution"))
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
    two_phases.stub.script(blocked("planning", "May I go on?"), "Where was I?", complete("planning", "execution"))
    two_phases.stub.script(complete("execution"))
    two_phases.run("go", "/compact", "go on")
    assert TASK in two_phases.stub.of("main")[1].text() and BRIEFED in two_phases.stub.of("main")[1].text()
    assert state(two_phases, "phase") == ("complete",)


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
    two_phases.stub.script(blocked("planning", "May I go on?"), "Where was I?", complete("planning", "execution"))
    two_phases.stub.script(complete("execution"))
    two_phases.run("go")
    two_phases.ctx("auto", "resume", "--any")
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
    assert "holds nobody" in kit.ctx("auto", "status", check=False).stdout
