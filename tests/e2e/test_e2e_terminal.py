"""Interactive scenarios: what only the terminal UI shows."""

from __future__ import annotations

import json

from stub_model import Turn, bash

HEAD = "⚠️ [ctx monitor] "
READY = "bypass permissions"


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


def test_leaving_the_terminal_runs_session_end_and_nothing_stays_behind(kit):
    kept = []
    kit.stub.script(
        bash("echo a"),
        bash("echo b", act=lambda _: kept.extend(kit.files(".context/state/*.json") + kit.markers())),
        "the answer",
    )
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("work now")
        terminal.wait_shown("the answer")
    assert len(kept) == 2
    assert kit.files(".context/state/*.json") == [] and kit.markers() == []


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


def test_holding_the_agent_is_shown_as_feedback_and_not_as_an_error(kit):
    kit.ctx("auto", "start", "Add a parser", "--phase", "execution", "--skip-qa", "--skip-review", "--skip-reflect")
    done = (
        "---\nSIGNAL: EXECUTION_COMPLETE\nPHASE: execution\nSTATUS: complete\n"
        "TIMESTAMP: 2026-02-03T10:45:00Z\nNEXT: none\n---"
    )
    kit.stub.script("not yet finished", "Finished now.\n" + done)
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("go ahead")
        terminal.wait_shown("Finished now.")
    assert "## Auto Mode Continuation" in kit.stub.of("main")[1].news()
    assert "hook error" not in terminal.shown()
