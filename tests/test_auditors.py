"""Auditors: when an alert fires, when it stays quiet, when it comes again; and what is remembered."""
from __future__ import annotations

import os
import random

import pytest

from helper import NOW, assistant_row

MINUTE = 60
HEALTH = ".context/signals/sessions/s1/context-health.md"
REPETITION = ".context/signals/sessions/s1/repetition.md"
REMINDER = ".context/signals/global/audit-reminder.md"


def shot(kit, percent=0, score=0.0, active=(), last=None, **fields):
    return kit.Snapshot(now=NOW, percent=percent, percent_text="%d%%" % percent, note="", score=score, repeats=5,
                        active=set(active), last_emitted=last or {}, **fields)


LEVELS = (  # percent, active before -> (emitted code, severity), active after
    (69, (), None, []),
    (70, (), ("CTX_HEALTH_70", "warning"), ["CTX_HEALTH_70"]),
    (85, (), ("CTX_HEALTH_85", "warning"), ["CTX_HEALTH_85", "CTX_HEALTH_70"]),
    (95, (), ("CTX_HEALTH_95", "critical"), ["CTX_HEALTH_95", "CTX_HEALTH_85", "CTX_HEALTH_70"]),
    (100, (), ("CTX_HEALTH_95", "critical"), ["CTX_HEALTH_95", "CTX_HEALTH_85", "CTX_HEALTH_70"]),
    (60, ("CTX_HEALTH_70",), None, ["CTX_HEALTH_70"]),
    (59, ("CTX_HEALTH_70",), None, []),
    (75, ("CTX_HEALTH_85", "CTX_HEALTH_70"), None, ["CTX_HEALTH_85", "CTX_HEALTH_70"]),
    (74, ("CTX_HEALTH_85", "CTX_HEALTH_70"), None, ["CTX_HEALTH_70"]),
    (85, ("CTX_HEALTH_95", "CTX_HEALTH_85", "CTX_HEALTH_70"), None, ["CTX_HEALTH_95", "CTX_HEALTH_85", "CTX_HEALTH_70"]),
    (84, ("CTX_HEALTH_95", "CTX_HEALTH_85", "CTX_HEALTH_70"), None, ["CTX_HEALTH_85", "CTX_HEALTH_70"]),
)


@pytest.mark.parametrize("percent, before, emitted, after", LEVELS)
def test_health_levels_with_jumps_and_hysteresis(kit, percent, before, emitted, after):
    alerts, codes = kit.audit_health(shot(kit, percent, active=before, last=dict.fromkeys(before, NOW - 60)))
    assert [(a.codes[0], a.severity) for a in alerts] == ([emitted] if emitted else []) and codes == after
    for alert in alerts:
        assert alert.summary == "Context: %d%% full." % percent and alert.codes == after


@pytest.mark.parametrize("ago_s, fires", [(899, False), (900, True), (-50, True)])
def test_an_alert_comes_again_after_its_cooldown_while_the_condition_lasts(kit, ago_s, fires):
    """A last time in the future is a clock that went back: it must not silence the alert for ever."""
    alerts, _ = kit.audit_health(shot(kit, 72, active=["CTX_HEALTH_70"], last={"CTX_HEALTH_70": NOW - ago_s}))
    assert bool(alerts) == fires


@pytest.mark.parametrize("recent, score, repeats", [
    ("", 0.0, 0), ("a", 0.0, 0), ("abcdefgh", 0.0, 0), ("aaaa", 0.43, 3), ("aabbccdd", 0.57, 4), ("aaaaaaaa", 1.0, 7),
    ("abababab", 0.86, 6), ("aaaaaaaabcdefghi", 0.0, 0), ("tatbtctd", 0.43, 3)])
def test_repetition_is_scored_over_the_last_8_calls(kit, recent, score, repeats):
    """The last row is a sound working rhythm, one command after each of four edits: no alert."""
    assert kit.repetition_of(list(recent)) == (score, repeats)


@pytest.mark.parametrize("score, active, fires, stays", [
    (0.49, False, False, False), (0.5, False, True, True), (0.43, True, False, True), (0.29, True, False, False)])
def test_repetition_has_a_level_and_a_lower_clear_level(kit, score, active, fires, stays):
    before = ["CTX_REPETITION"] if active else []
    alerts, codes = kit.audit_repetition(shot(kit, score=score, active=before, last=dict.fromkeys(before, NOW - 1)))
    assert bool(alerts) == fires and codes == (["CTX_REPETITION"] if stays else [])


def test_same_tool_and_same_input_are_the_same_call(kit):
    sign = kit.call_signature
    assert sign("Bash", {"command": "ls"}) == sign("Bash", {"command": "ls"})
    assert len({sign("Bash", {"command": "ls"}), sign("Read", {"command": "ls"}), sign("Bash", {"command": "ls "}),
                sign("Bash", {}), sign("Bash", {"a": 1e308 * 10})}) == 5


def test_no_flapping_whatever_the_fullness_does(kit, rounds):
    """A code is never emitted twice within its cooldown, and only while its level or band is reached."""
    choice = random.Random(5)
    for _ in range(rounds(20)):
        active, last, now, percent = set(), {}, 0, choice.randrange(101)
        for _ in range(300):
            now += choice.choice([1, 20, 300, 1000])
            percent = min(100, max(0, percent + choice.choice([-40, -7, -2, -1, 0, 1, 2, 7, 40])))
            before = kit.Snapshot(now=now, percent=percent, percent_text="", note="", active=active, last_emitted=last)
            alerts, codes = kit.audit_health(before)
            for alert in alerts:
                code = alert.codes[0]
                assert code not in last or now - last[code] >= 900
                assert percent >= {"CTX_HEALTH_70": 60, "CTX_HEALTH_85": 75, "CTX_HEALTH_95": 85}[code]
                assert code == codes[0], "only the highest active level speaks"
                last.update(dict.fromkeys(alert.codes, now))
            active = set(codes)


# --- through the mode


def after_tool(project, percent, now=NOW, command=None, session="s1", name="PostToolUse.Bash"):
    project.write_transcript([assistant_row(percent * 2000)], session)
    after_tool.calls = getattr(after_tool, "calls", 0) + 1
    event = project.event(name, session_id=session, tool_input={"command": command or "c%d" % after_tool.calls})
    return project.step("monitor", event, now)


@pytest.fixture
def quiet(project):
    """Without handoff reminders, and with context files that are not stale."""
    project.write(".contextrc", "handoff:\n  enabled: false\n")
    for name in ("CONSTITUTION.md", "TASKS.md"):
        os.utime(project.path(".context", name), (NOW, NOW))
    return project


def test_an_alert_becomes_a_signal_file_that_the_next_prompt_delivers(quiet):
    assert after_tool(quiet, 87).is_silent
    assert quiet.read(HEALTH) == (
        "---\ngenerated_at: 2026-02-03T10:45:00Z\nseverity: warning\nttl: 300\nauditor: context-health\n"
        "code: CTX_HEALTH_85\n---\nContext: 87% full.\n"
        "→ Summarize current state in 5 bullets, write the handoff, then /clear and reload from DECISIONS.md\n")
    reply = quiet.step("inject", quiet.event("UserPromptSubmit", session_id="s1"), NOW + 5)
    assert reply.context.startswith("⚠️ [ctx monitor] Context: 87% full.\n→ ")
    assert not quiet.exists(HEALTH)


def test_monitor_state_has_exactly_its_keys(quiet):
    after_tool(quiet, 87)
    assert quiet.read_json(".context/monitor-state.json") == {
        "activeAlerts": {"s1:CTX_HEALTH_85": True, "s1:CTX_HEALTH_70": True},
        "lastEmitted": {"s1:CTX_HEALTH_85": "2026-02-03T10:45:00Z", "s1:CTX_HEALTH_70": "2026-02-03T10:45:00Z"},
        "lastHealth": {"s1": {"contextPercent": 87, "repetitionScore": 0.0}}}


def test_a_long_stay_in_the_band_speaks_once_per_cooldown(quiet):
    spoken = []
    for minute in range(40):
        after_tool(quiet, 72 + minute % 2, NOW + minute * MINUTE)
        if quiet.exists(HEALTH):
            spoken.append(minute)
            os.unlink(quiet.path(HEALTH))
    assert spoken == [0, 15, 30]


def test_a_higher_level_speaks_at_once_and_a_cleared_one_is_withdrawn(quiet):
    after_tool(quiet, 72)
    after_tool(quiet, 96, NOW + 1)
    assert "severity: critical" in quiet.read(HEALTH) and "code: CTX_HEALTH_95" in quiet.read(HEALTH)
    after_tool(quiet, 30, NOW + 2)
    assert not quiet.exists(HEALTH)
    assert quiet.read_json(".context/monitor-state.json")["activeAlerts"] == {}


def test_repetition_counts_failing_calls_too(quiet):
    for number in range(5):
        after_tool(quiet, 10, command="make", name="PostToolUseFailure" if number % 2 else "PostToolUse.Bash")
    assert quiet.read(REPETITION).split("---\n")[2] == (
        "Repetition in last 8 turns: 4 of 8 tool calls repeat an earlier one.\n"
        "→ Stop and try a different approach; say what you expected and what happened instead\n")
    assert "code: CTX_REPETITION\n" in quiet.read(REPETITION) and "ttl: 300\n" in quiet.read(REPETITION)


def test_an_estimate_says_that_it_is_one(quiet):
    quiet.write(".context/state/s1.json", '{"estimated_tokens": 150000}')
    quiet.step("monitor", quiet.event("PostToolUse.Bash", session_id="s1"), NOW)
    assert "Context: ~75% full (estimated)." in quiet.read(HEALTH)


def age_context_files(project, days, now=NOW):
    for name in ("CONSTITUTION.md", "TASKS.md"):
        os.utime(project.path(".context", name), (now - days * 86400, now - days * 86400))


def test_untouched_context_files_remind_every_session_every_4_hours(quiet):
    age_context_files(quiet, 20)
    after_tool(quiet, 5)
    text = quiet.read(REMINDER)
    assert "code: CTX_AUDIT_DUE\n" in text and "ttl: 3600\n" in text
    assert "Context files untouched for 20 days: CONSTITUTION.md, TASKS.md.\n→ " in text
    assert "global:CTX_AUDIT_DUE" in quiet.read_json(".context/monitor-state.json")["activeAlerts"]
    os.unlink(quiet.path(REMINDER))
    after_tool(quiet, 5, NOW + 14399, session="s2")
    assert not quiet.exists(REMINDER)
    after_tool(quiet, 5, NOW + 14400, session="s3")
    assert quiet.exists(REMINDER)


@pytest.mark.parametrize("days, setting, reminds", [(13, "", False), (14, "", True), (99, "audit:\n  stale_days: 0\n", False),
                                                    (3, "audit:\n  stale_days: 2\n", True)])
def test_stale_days_are_a_setting(quiet, days, setting, reminds):
    quiet.write(".contextrc", setting)
    age_context_files(quiet, days)
    after_tool(quiet, 5)
    assert quiet.exists(REMINDER) == reminds


def test_one_fresh_file_is_enough(quiet):
    age_context_files(quiet, 20)
    quiet.write(".context/DECISIONS.md", "x", mtime=NOW)
    after_tool(quiet, 5)
    assert not quiet.exists(REMINDER)


def test_the_reminder_is_withdrawn_when_a_file_was_touched(quiet):
    age_context_files(quiet, 20)
    after_tool(quiet, 5)
    os.utime(quiet.path(".context/TASKS.md"), (NOW, NOW))
    for _ in range(25):
        after_tool(quiet, 5, NOW + 60)
    assert not quiet.exists(REMINDER)
    assert quiet.read_json(".context/monitor-state.json")["activeAlerts"] == {}


@pytest.mark.parametrize("broken", ["[]", "{", "", '{"activeAlerts": 5, "lastEmitted": {"s1:CTX_HEALTH_70": 7}, "lastHealth": []}'])
def test_a_broken_monitor_state_does_not_stop_the_auditors(quiet, broken):
    quiet.write(".context/monitor-state.json", broken)
    after_tool(quiet, 72)
    assert quiet.exists(HEALTH)
    assert quiet.read_json(".context/monitor-state.json")["activeAlerts"] == {"s1:CTX_HEALTH_70": True}


def test_sessions_do_not_share_alerts(quiet):
    after_tool(quiet, 72)
    after_tool(quiet, 72, session="s2")
    assert quiet.exists(".context/signals/sessions/s2/context-health.md")


@pytest.mark.parametrize("session", ["global", "pause", "fallback", "metrics", "monitor-state", "collected", "aside"])
def test_a_session_that_is_called_like_a_file_of_ours_is_only_a_session(quiet, session):
    quiet.write(".context/state/pause.json", "{}")
    after_tool(quiet, 72, session=session)
    assert quiet.read(".context/state/pause.json") == "{}"
    active = list(quiet.read_json(".context/monitor-state.json")["activeAlerts"])
    assert len(active) == 1 and not active[0].startswith("global:")
    quiet.step("cleanup", quiet.event("SessionEnd.other", session_id=session), NOW + 1)
    assert quiet.read(".context/state/pause.json") == "{}"
    assert quiet.read_json(".context/monitor-state.json")["activeAlerts"] == {}


def test_an_input_nested_too_deeply_still_has_a_signature(kit):
    value: dict = {}
    for _ in range(5000):
        value = {"a": value}
    assert kit.call_signature("Write", value) == kit.call_signature("Write", value)
