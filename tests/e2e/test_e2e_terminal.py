"""Interactive scenarios: what only the terminal UI shows."""

from __future__ import annotations

import json

from agents import FULL, Complies, complete
from real_client import wait_until
from stub_model import Turn, bash

HEAD = "⚠️ [ctx monitor] "
READY = "bypass permissions"
ASKS = "Do you want to create"
TEXT = "# Goal\nThe parser knows quotes.\n# Next steps\n1. escape sequences\n"


def test_a_signal_reaches_the_model_beside_a_typed_prompt(kit):
    kit.stub.script("the first answer", "the second answer")
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("first prompt")
        terminal.wait_shown("the first answer")
        kit.ctx("signal", "CI failed on main.", "--action", "Look at job 17", "--global")
        terminal.type("second prompt")
        terminal.wait_shown("the second answer")
    first, second = kit.stub.of("main")
    assert HEAD not in first.text() and HEAD + "CI failed on main." in second.news()
    assert "hook error" not in terminal.shown()


def test_an_attended_session_is_asked_for_the_checkpoint_line(kit):
    kit.stub.script(bash("echo a"), "the answer")
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("work now")
        terminal.wait_shown("the answer")
    assert "Context Loaded" in kit.stub.of("main")[1].news()


def test_leaving_the_terminal_runs_session_end_and_nothing_stays_behind(kit):
    kept = []
    kit.stub.script(bash("echo a"), bash("echo b", act=lambda _: kept.extend(kit.left_behind())), "the answer")
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("work now")
        terminal.wait_shown("the answer")
    assert len(kept) >= 2 and kit.left_behind() == []


def test_a_killed_client_leaves_state_that_the_next_session_survives(kit):
    kit.stub.script(bash("echo a"), "the answer")
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("work now")
        terminal.wait_shown("the answer")
        terminal.kill()
        terminal.end = lambda: None
    assert len(kit.markers()) == 1
    kit.stub.script(bash("echo b"), "done")
    kit.run("work")
    assert "STOP. Read your context files" in kit.stub.of("main")[-1].text() and len(kit.markers()) == 1


def test_the_statusline_shows_the_fullness_and_hands_the_window_to_the_monitor(kit):
    kit.install("--statusline")
    kit.stub.model = "claude-opus-5-5"
    kit.stub.script(bash("echo a", tokens=420_000), Turn("the answer", tokens=420_000))
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("work now")
        terminal.wait_shown("the answer")
        terminal.wait_shown("42%")
        measure = json.loads(kit.ctx("context", "--json").stdout)
    assert 1_000_000 in measure.values(), measure


def test_a_workflow_binds_to_the_person_who_types_and_holding_is_feedback_and_no_error(kit):
    kit.ctx("auto", "start", "Add a parser", "--until", "true")
    kit.stub.script("not yet finished", complete("execution", text="Finished now."))
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("go ahead")
        terminal.wait_shown("Finished now.")
        wait_until(lambda: kit.json(".caw/auto-state.json")["phase"] == "complete", "the end of the workflow")
    first, second = kit.stub.of("main")
    assert "Add a parser" in first.news() and "## Auto Mode Continuation" in second.news()
    assert "hook error" not in terminal.shown()


def test_with_the_rule_of_the_installer_nobody_is_asked_about_the_handoff(kit):
    kit.install("--allow-handoff")
    agent = Complies(kit, TEXT)
    kit.stub.script(otherwise=agent)
    with kit.terminal(mode="default") as terminal:
        terminal.wait_shown("for shortcuts")
        terminal.type("work now")
        terminal.wait_shown("The handoff is written.")
    assert ASKS not in terminal.shown() and list(kit.handoffs().values()) == [TEXT]
    assert "ctx: handoff written" in terminal.shown()


def test_a_person_who_says_no_to_the_file_is_not_asked_again(kit):
    """No to the question ends the turn; at the next prompt the agent is asked to print."""
    agent = Complies(kit, TEXT)
    kit.stub.script(otherwise=agent)
    with kit.terminal(mode="default") as terminal:
        terminal.wait_shown("for shortcuts")
        terminal.type("work now")
        terminal.wait_shown(ASKS)
        terminal.answer("3", "ejected write")  # "User rejected" until 2.1.325
        agent.did[:], agent.asked[:] = [], []
        before = len(terminal.raw)
        terminal.type("go on")
        terminal.wait_shown("END HANDOFF", before)
        wait_until(kit.handoffs, "the saved handoff")
    assert ASKS not in terminal.shown(before) and set(agent.asked) == {"print"}
    assert [t.strip() for t in kit.handoffs().values()] == [TEXT.strip()]


def test_compaction_shows_the_person_no_command_of_ours(kit):
    kit.stub.script(bash("echo a", tokens=FULL), "the answer")
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("work now")
        terminal.wait_shown("the answer")
        before = len(terminal.raw)
        terminal.type("/compact")
        terminal.wait_shown("Compacted", before)
        kit.stub.script("a last answer")
        terminal.type("go on")
        terminal.wait_shown("a last answer")
    assert "ctx_hooks" not in terminal.shown(before)
