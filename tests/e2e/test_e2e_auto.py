"""A workflow holds the agent at Stop until its check passes or its phases are complete, and never traps it."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

import real_client
from agents import bash, blocked, complete, delegate, failed, said
from stub_model import Turn

HOLD = "## Auto Mode Continuation"
BRIEFED = "[ctx workflow] A workflow runs in this session."
UNTIL = "grep -q quotes parser.txt"
STATE = ".caw/auto-state.json"
TASK = "Add a parser for quotes"
CHECK = "env > seen.txt\ngrep -q quotes parser.txt && exit 0\necho 'parser.txt knows no quotes yet'\nexit 3\n"
THREE = (
    "auto:\n  phases: [plan, build, test]\n  about:\n    build: write the parser\n  done_when:\n    test: sh check.sh\n"
)


@pytest.fixture
def two_phases(kit):
    """Planning and execution; `--any`, since nobody types in print mode."""
    kit.write(".contextrc", "auto:\n  phases: [planning, execution]\n")
    start(kit, "--any")
    return kit


def start(kit, *arguments):
    kit.ctx("auto", "start", TASK, "--agree", *arguments)


def state(kit, *names):
    found = kit.json(STATE)
    return tuple(found.get(name) for name in names)


def test_three_phases_with_a_check_that_fails_until_the_agent_repairs_it(kit):
    kit.write(".contextrc", THREE)
    kit.write("check.sh", CHECK)
    start(kit, "--any")
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
    session = kit.run("go", DEPLOY_TOKEN="a-secret", PLAIN_WORD="a-word")
    news = [request.news() for request in kit.stub.of("main")]
    assert BRIEFED in news[0] and TASK in news[0] and "PLAN_COMPLETE" in news[0] and HOLD not in news[0]
    assert "BUILD_COMPLETE" in news[2] and "write the parser" in news[2]
    assert HOLD in news[3] and "BUILD_COMPLETE" in news[3] and "TEST_COMPLETE" in news[5]
    assert "parser.txt knows no quotes yet" in news[6]
    assert len(news) == 8 and state(kit, "phase", "active") == ("complete", False)
    failing, passing = session.notices()
    assert failing == "ctx: `sh check.sh` exits 3, round 1 of 20"
    assert passing.startswith("ctx: all phases are complete, `sh check.sh` passes; done after 5 rounds, ")
    seen = kit.read("seen.txt")  # a check gets no secret of the session
    assert "a-word" in seen and not [name for name in ("a-secret", "ANTHROPIC_", "CLAUDE_CODE_") if name in seen]


# ---------------------------------------------------------------------------
# until the check passes, in the client's default permission mode
# ---------------------------------------------------------------------------


def begin(kit, *arguments, check=UNTIL):
    """Start a workflow whose check fails now; what the person reads."""
    return kit.ctx("auto", "start", TASK, "--until", check, *arguments)


def works(kit, text, words=""):
    """The agent looks at something, then says that it is done; meanwhile the parser changes."""

    def write(_):
        kit.write("parser.txt", text)

    return [bash("echo looking", act=write), words or "I wrote %s." % text]


def until(kit, *turns, prompts=("go",), **options):
    """One session in print mode; its notices, and what was new in each request to the model."""
    kit.stub.script(*turns)
    session = kit.run(*prompts, mode="default", **options)
    return session.notices(), [request.news() for request in kit.stub.of("main")]


def test_a_check_that_fails_twice_and_then_passes(kit):
    assert "`%s` exits 2 now (0 s). The agent goes on until it exits 0." % UNTIL in begin(kit, "--any")
    turns = [*works(kit, "one"), *works(kit, "two"), *works(kit, "quotes"), "never asked for"]
    notices, news = until(kit, *turns)
    assert notices[:2] == ["ctx: `%s` exits 1, round %d of 20" % (UNTIL, number) for number in (1, 2)]
    assert notices[2].startswith("ctx: `%s` passes; done after 3 rounds, " % UNTIL) and len(notices) == 3
    assert BRIEFED in news[0] and TASK in news[0] and len(news) == 6
    assert "round 1 of 20" in news[2] and TASK in news[2] and "round 2 of 20" in news[4]
    assert not [text for text in news if "SIGNAL:" in text or HOLD in text]


def test_a_check_that_passes_at_the_first_stop_holds_nobody(kit):
    begin(kit, "--any")
    notices, news = until(kit, *works(kit, "quotes"), "never asked for")
    assert len(news) == 2 and notices[0].startswith("ctx: `%s` passes; done after 1 round, " % UNTIL)


def test_a_blocked_agent_may_stop_until_the_answer(kit):
    begin(kit, "--any")
    asks = works(kit, "one", "I looked.\n\nBLOCKED: single or double quotes?")
    notices, news = until(kit, *asks, *works(kit, "quotes"), prompts=("go", "double"))
    assert notices[0] == "ctx: the task waits for you: single or double quotes? (answer with your next prompt)"
    assert "passes; done after 2 rounds" in notices[1] and len(news) == 4


def test_it_goes_on_over_clear_and_over_a_compaction(kit):
    begin(kit, "--any")
    asks = ["BLOCKED: shall I?", "BLOCKED: really?"]
    prompts = ("go", "/clear", "yes", "/compact", "yes, really")
    notices, news = until(kit, *asks, *works(kit, "one"), *works(kit, "quotes"), prompts=prompts)
    assert [BRIEFED in text for text in news[:3]] == [True, True, True]
    assert "exits 1, round 1 of 20" in notices[2] and "passes" in notices[3]


def test_a_person_may_ask_something_else_in_between(kit):
    begin(kit, "--any")
    turns = ["BLOCKED: which quotes?", "It is noon.", *works(kit, "quotes")]
    notices, news = until(kit, *turns, prompts=("go", "What time is it?"))
    assert "exits 2, round 1 of 20" in notices[1] and "passes; done after 3 rounds" in notices[2]
    assert "exits 2, round 1 of 20" in news[2]


def test_a_cancelled_check_holds_nobody_any_more(kit):
    begin(kit, "--any")
    notices, news = until(kit, "BLOCKED: what now?", "I stop.", "never held", prompts=("go", "ctx cancel", "and?"))
    assert "cancelled" in notices[1] and len(news) == 3 and "cancelled" in kit.ctx("auto", "status")


def test_of_two_sessions_only_the_one_that_it_is_bound_to_is_held(kit):
    begin(kit, "--any")
    kit.stub.script("BLOCKED: what now?", "42", *works(kit, "quotes"))
    with kit.session(mode="default") as session:
        session.prompt("go")
        assert kit.run("what is six times seven?", mode="default").notices() == []
        session.prompt("go on")
    assert "passes" in session.notices()[1] and TASK not in kit.stub.of("main")[1].text()


def test_an_agent_that_removes_or_rewrites_the_state_is_still_held(kit):
    begin(kit, "--any")

    def remove(_):
        kit.path(STATE).unlink()

    def rewrite(_):
        kit.write(STATE, kit.read(STATE).replace('"active": true', '"active": false'))

    turns = [bash("echo a", act=remove), "Done.", bash("echo b", act=rewrite), "Done."]
    notices, _ = until(kit, *turns, *works(kit, "quotes"))
    told = [line for line in notices if "was changed or removed; what you agreed to counts" in line]
    assert len(told) == 2
    assert "passes; done after 3 rounds" in notices[-1]


@pytest.mark.long
def test_a_check_of_100_seconds_is_waited_for(kit, monkeypatch):
    monkeypatch.setattr(real_client, "ANSWER_S", 160)
    begin(kit, "--any", check="grep -q quotes parser.txt && sleep 100")
    notices, news = until(kit, *works(kit, "quotes"), "never asked for")
    assert "passes; done after 1 round, 1 min" in notices[0] and len(news) == 2


# ---------------------------------------------------------------------------
# ways out
# ---------------------------------------------------------------------------


def test_an_agent_that_only_talks_is_released(two_phases):
    numbers = itertools.count(1)
    two_phases.stub.script(otherwise=lambda _: Turn("Thought number %d." % next(numbers)))
    with two_phases.session() as session:
        assert not session.prompt("go")["is_error"]
        assert said(two_phases, HOLD) == [0, 1, 1] and state(two_phases, "active") == (True,)
        (line,) = session.notices()
        assert "without a tool call" in line
        session.prompt("ctx cancel")
        session.prompt("go")
    cancelled, free = two_phases.stub.of("main")[3:]
    assert "cancelled it" in cancelled.news() and TASK not in free.news()
    assert state(two_phases, "active", "phase") == (False, "cancelled") and len(session.notices()) == 2
    assert "cancelled" in two_phases.ctx("auto", "status")


def test_an_agent_that_works_without_an_end_fails_at_our_limit(kit):
    start(kit, "--any")
    work = itertools.cycle([bash("echo a"), Turn("Not yet.")])  # the same words again are another stop
    kit.stub.script(otherwise=lambda _: next(work))
    with kit.session() as session:
        assert session.prompt("go")["result"] == "Not yet."
    assert sum(said(kit, HOLD)) == 19 and state(kit, "phase", "active") == ("failed", False)
    assert len(session.notices()) == 1


def test_only_an_unrecoverable_error_block_ends_it(two_phases):
    two_phases.stub.script(failed("planning", "no network", "true"), failed("planning", "no such module", "false"))
    two_phases.run("go")
    assert len(two_phases.stub.of("main")) == 2 and "Recover" in two_phases.stub.of("main")[1].news()
    assert state(two_phases, "phase", "active") == ("failed", False)


def test_plan_mode_is_not_held(two_phases):
    two_phases.stub.script("a plan", "never asked for")
    session = two_phases.run("go", mode="plan")
    assert len(two_phases.stub.of("main")) == 1 and state(two_phases, "active") == (True,)
    assert "plan mode" in session.notices()[0]


def test_a_subagent_is_waited_for_but_no_server_in_the_background(two_phases):
    server = "echo $$ > server.pid; exec sleep 300"
    serve = ("Bash", {"command": server, "description": "serve", "run_in_background": True})
    two_phases.stub.subagent_turns = [bash("sleep 1; echo from-the-subagent"), Turn("the subagent is done")]
    two_phases.stub.script(Turn("", [serve]), "It runs.", delegate(), "I wait.")
    two_phases.stub.script(complete("planning", "execution"), complete("execution"), "The server is gone.")
    with two_phases.session() as session:
        session.prompt("go")
        session.wait_result()  # after the subagent's notification
        os.kill(int(two_phases.read("server.pid")), signal.SIGKILL)  # the client waits for it before it ends
    assert said(two_phases, HOLD)[:6] == [0, 0, 1, 0, 0, 1]
    assert "task-notification" in two_phases.stub.of("main")[4].news()
    assert state(two_phases, "phase") == ("complete",) and "subagents are at work" in session.notices()[0]


def test_a_scheduled_wake_up_lets_the_agent_pause(two_phases):
    wakes = {"cron": "59 23 31 12 *", "prompt": "look again", "recurring": False}
    two_phases.stub.script(Turn("", [("CronCreate", wakes)]), "I look again later.", "never asked for")
    session = two_phases.session()  # not ended: the client would wait for the wake-up
    session.prompt("go")
    assert "wake-up" in session.notices()[0]
    assert said(two_phases, HOLD) == [0, 0] and state(two_phases, "phase", "active") == ("planning", True)


# ---------------------------------------------------------------------------
# whom it binds
# ---------------------------------------------------------------------------


def test_clear_takes_the_workflow_to_the_new_session(two_phases):
    kit = two_phases
    kit.stub.script(complete("planning", "execution"), blocked("execution", "May I go on?"))
    kit.stub.script(blocked("execution", "And now?"), "Where was I?", complete("execution"))
    with kit.session() as session:
        session.prompt("go")
        before = session.id
        session.prompt("/clear")
        session.prompt("go on")
        assert session.id != before
    kit.ctx("auto", "resume", "--any")
    kit.run("go on")
    _, _, cleared, resumed, last = kit.stub.of("main")
    assert TASK in cleared.news() and "EXECUTION_COMPLETE" in cleared.news()
    assert TASK in resumed.news() and HOLD in last.news()
    assert state(kit, "phase", "active") == ("complete", False)


def test_print_mode_beside_a_workflow_that_waits_for_its_person_is_not_captured(kit):
    start(kit, "--skip", "expansion", "--skip", "init")
    kit.stub.script("42", "never asked for")
    kit.run("what is six times seven?")
    assert len(kit.stub.of("main")) == 1 and TASK not in kit.stub.of("main")[0].text()
    assert state(kit, "phase", "active") == ("planning", True)
