"""Alerts: the auditors, their levels, and monitor-state.json."""
from __future__ import annotations

import json
import os
import runpy

import pytest

from helper import data, kit, read

USABLE = 167_000
CALLS = runpy.run_path(data("calls.py"))  # labelled sequences: STUCK, WORK


@pytest.fixture
def session(world):
    """Without reminders for a handoff, beside which fullness is not said."""
    world.settings("handoff:\n  enabled: false\n")
    session = world.session("s1")
    session.start()
    return session


def at(session, percent):
    """A call at this fullness."""
    return session.look(tokens=-(-USABLE * percent // 100)).text


def state(world):
    return json.loads(read(world.context("monitor-state.json")))


# --- how full


def test_where_nothing_can_be_written_an_alert_is_said_once_too(world, session, monkeypatch):
    monkeypatch.setattr(kit, "write_object", lambda *_: False)
    assert "70% full" in at(session, 70) and at(session, 71) == ""


def test_the_levels_are_said_once_with_what_to_do(world, session):
    assert at(session, 69) == ""
    assert at(session, 70) == "⚠️ [ctx monitor] Context: 70% full.\n→ " + kit.HEALTH_LEVELS["CTX_HEALTH_70"]["action"]
    assert at(session, 71) == ""
    assert "Context: 86% full." in at(session, 86)
    assert at(session, 94) == ""
    reply = session.look(tokens=160_000)
    assert "Context: 95% full." in reply.text and reply.person.endswith("ctx: Context: 95% full.")
    session.look(tokens=199_000)
    assert state(world)["lastHealth"]["s1"]["contextPercent"] == 100  # at most


def test_a_jump_over_two_levels_says_the_higher_to_each_session(world, session):
    text = at(session, 96)
    assert "Context: 96% full." in text and "issues" not in text
    assert at(session, 96) == ""
    assert "Context: 96% full." in at(world.session("s2"), 96)


def test_a_critical_alert_in_the_same_second_as_a_warning_is_said(world, session):
    block = {"type": "tool_use", "id": "t", "name": "Read", "input": {}}
    session.write_answer(block, tokens=120_000)
    assert "Context: 71% full." in session.send("PostToolUse").text
    session.write_answer(block, tokens=160_000)
    world.now -= 2
    assert "Context: 95% full." in session.send("PostToolUse").text


def test_within_the_band_nothing_is_said_and_below_it_begins_anew(world, session):
    at(session, 70)
    world.now += 600
    assert at(session, 61) == at(session, 72) == ""
    world.now += 600
    assert at(session, 59) == ""
    assert "Context: 70% full." in at(session, 70)


def test_a_long_stay_speaks_once_per_cooldown_and_a_clock_that_went_back_silences_nothing(world, session):
    said = 0
    for _ in range(60):
        world.now += 55
        said += bool(at(session, 75))
    assert said == 4  # in 56 minutes, with 15 between
    world.now -= 86_400
    assert at(session, 75)


def test_fullness_is_not_said_beside_the_reminder_but_after_it(world):
    session = world.session("s2")
    session.start()
    text = session.look(tokens=150_000).text
    assert "Write a handoff" in text and "[ctx monitor]" not in text
    assert "Context: 89% full." in session.write_handoff().text


# --- repetition


def test_a_failing_command_again_and_again_is_told_once_with_the_true_count(world, session):
    session.look()
    session.run("git log")
    replies = [session.run("make test", failed=True, text="Exit code 1\nboom") for _ in range(6)]
    (said,) = [reply.text for reply in replies if "Repetition" in reply.text]
    assert "4 of the last 6 tool calls were repeats and failed the same way." in said
    assert "different approach" in said


def first_alarm(sequence):
    """The number of the call at which repetition is told; 0 for never."""
    session = kit.Session()
    facts = session.facts
    for number, (tool, given, text, failed) in enumerate(sequence, 1):
        kit.fold_call(session, "", str(number), tool, given)
        kit.fold_result(session, "", str(number), failed, text)
        if kit.repetition(facts)[0] >= kit.REPETITION_SAID:
            return number
    return 0


@pytest.mark.parametrize("about", sorted(CALLS["STUCK"]))
def test_an_agent_that_is_stuck_is_found_within_8_calls(about):
    assert 0 < first_alarm(CALLS["STUCK"][about]) <= 8


@pytest.mark.parametrize("about", sorted(CALLS["WORK"]))
def test_ordinary_work_raises_no_alarm(about):
    assert first_alarm(CALLS["WORK"][about]) == 0


# --- context files that nobody touches


def old_files(world, days):
    for name in ("CONSTITUTION.md", "TASKS.md"):
        stamp = world.now - days * 86400
        os.utime(world.context(name), (stamp, stamp))


def test_untouched_context_files_are_told_once_in_each_session_that_read_none(world, session):
    old_files(world, 20)
    text = session.look().text
    assert "Context files untouched for 20 days: CONSTITUTION.md, TASKS.md." in text
    assert session.look().text == ""
    assert "untouched" in world.session("s2").look().text
    assert world.session("s3").call("Read", {"file_path": world.context("TASKS.md")}).text == ""
    world.now += 4 * 3600
    assert "untouched" in session.look().text


@pytest.mark.parametrize("setting, days, is_told", [("", 13, False), ("", 15, True), ("3", 4, True), ("0", 99, False)])
def test_stale_days_are_a_setting(world, session, setting, days, is_told):
    if setting:
        world.settings("audit:\n  stale_days: %s\n" % setting)
    old_files(world, days)
    assert ("untouched" in session.look().text) == is_told


# --- the tree moved


@pytest.fixture
def on_main(world):
    world.git("main")
    session = world.session("s1")
    session.start()
    assert session.look().text == ""
    return session


def test_another_branch_that_no_command_of_this_session_made_is_told_once(world, on_main):
    world.git("feature/x")
    told = "is on feature/x now; it was on main, and no command of this session changed it."
    assert told in on_main.look().text
    assert on_main.look().text == ""
    world.git("main")
    assert "is on main now; it was on feature/x" in on_main.look().text


@pytest.mark.parametrize("tool, given", [("Bash", {"command": "git switch feature/x"}), ("Task", {"prompt": "look"})])
def test_silent_where_this_session_or_a_subagent_may_have_done_it(world, on_main, tool, given):
    world.git("feature/x")
    assert on_main.call(tool, given).text == ""
    assert on_main.look().text == ""


# --- monitor-state.json


def test_monitor_state_has_its_keys_and_those_of_a_session_go_with_it(world, session):
    old_files(world, 20)
    at(session, 86)
    known = state(world)
    assert set(known) == {"lastEmitted", "activeAlerts", "lastHealth"}
    assert known["activeAlerts"] == {
        "s1:CTX_HEALTH_85": True,
        "s1:CTX_HEALTH_70": True,
        "global:CTX_AUDIT_DUE": True,
    }
    assert all(kit.parse_iso(value) for value in known["lastEmitted"].values())
    assert known["lastHealth"]["s1"] == {"contextPercent": 86, "repetitionScore": 0.0}
    at(world.session("s12"), 86)
    session.end()
    left = [key for table in state(world).values() for key in table]
    assert len(left) > 3 and all(key.startswith(("s12", "global")) for key in left)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"lastEmitted": 3, "activeAlerts": []}', "\0"])
def test_a_broken_monitor_state_does_not_stop_the_auditors(world, session, content):
    world.write(".context/monitor-state.json", content)
    assert "Context: 86% full." in at(session, 86)
    assert state(world)["activeAlerts"]


def test_alerts_and_signals_come_in_one_block(world, session):
    world.signal("Deploy is red.", severity="critical")
    text = at(session, 75)
    assert text.startswith("⚠️ [ctx monitor] 2 issues:\n  • Deploy is red.\n  • Context: 75% full. → ")
    assert [row["code"] for row in world.events() if row["event"] == "alert:said"] == ["CTX_HEALTH_70"]


def test_a_look_at_git_does_not_hide_that_somebody_else_switched_the_branch(world, session):
    world.git("main")
    session.start()
    session.run("git status")
    world.git("feature/x")
    assert "on feature/x now; it was on main" in session.run("git log --oneline").text
