"""Auditors: when an alert fires, when it stays quiet, when it comes again; and what is remembered."""
from __future__ import annotations

import os
import random

import pytest

import calls
from helper import NOW, assistant_row

MINUTE = 60
HEALTH = ".context/signals/sessions/s1/context-health.md"
REPETITION = ".context/signals/sessions/s1/repetition.md"
REMINDER = ".context/signals/global/audit-reminder.md"


def shot(kit, percent=0, score=0.0, active=(), **fields):
    usual = {"now": NOW, "percent": percent, "shown": "%d%%" % percent, "note": "", "score": score, "repeats": 5, "failing": False,
             "active": set(active), "handoff": "/p/.context/handoffs/s1.md", "is_written": False, "decisions": "", "stale_days": 0,
             "stale_files": None}
    return kit.Record(**dict(usual, **fields))


def run_auditors(kit, ctx, session, snapshot):
    """The recorder's rows of what they emitted."""
    before = len(kit.read_events(ctx, 9999))
    kit.run_auditors(ctx, session, snapshot)
    return [row for row in kit.read_events(ctx, 9999)[before:] if row["event"] == "alert:emitted"]


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
    """One alert names every level that is reached, or whose band still holds; the highest is its own."""
    alert = kit.audit_health(shot(kit, percent, active=before))
    assert (alert.codes if alert else []) == after
    if emitted:
        assert (alert.codes[0], alert.severity) == emitted
        assert alert.summary == "Context: %d%% of the window full." % percent


HEALTH_TEXTS = (  # percent, handoff, written, decisions -> in the text, not in it
    (72, "/h.md", False, "D.md", ["write open decisions into D.md"], ["handoff", "/clear"]),
    (72, "", False, "", [], ["handoff", "decisions", "/clear"]),
    (87, "/h.md", False, "", ["write the handoff to /h.md", "suggest /clear to the person"], ["DECISIONS"]),
    (87, "/h.md", True, "", ["handoff is written", "suggest /clear"], ["write the handoff"]),
    (87, "", False, "", ["suggest /clear"], ["handoff"]),
    (96, "/h.md", False, "", ["Write the handoff to /h.md now"], []),
    (96, "/h.md", True, "", ["handoff is written"], ["Write the handoff"]),
    (96, "", False, "", ["Suggest /clear"], ["handoff"]),
)


@pytest.mark.parametrize("percent, handoff, written, decisions, says, not_says", HEALTH_TEXTS)
def test_the_text_knows_the_state(kit, percent, handoff, written, decisions, says, not_says):
    """It names the real path and files that exist, and asks for nothing that is done or switched off."""
    alert = kit.audit_health(shot(kit, percent, handoff=handoff, is_written=written, decisions=decisions))
    text = alert.summary + " " + alert.action
    assert all(part in text for part in says) and not any(part in text for part in not_says), text
    assert "{" not in text and alert.action[0].isupper()


@pytest.mark.parametrize("score, active, fires", [(3.9, False, False), (4.0, False, True), (2.0, True, True), (1.9, True, False)])
def test_repetition_has_a_level_and_a_lower_clear_level(kit, score, active, fires):
    alert = kit.audit_repetition(shot(kit, score=score, active=["CTX_REPETITION"] if active else []))
    assert bool(alert) is fires


@pytest.mark.parametrize("failing, text", [(False, "Repetition: 5 of the last 8 tool calls did the same."),
                                           (True, "Repetition: 5 of the last 8 tool calls did the same and failed the same way.")])
def test_the_text_states_the_true_count(kit, failing, text):
    assert kit.audit_repetition(shot(kit, score=4.0, failing=failing)).summary == text


def test_the_reminder_is_told_apart_from_not_looked_at(kit, project):
    ctx = project.ctx(NOW)
    row, = run_auditors(kit, ctx, "s1", shot(kit, stale_files=["A.md", "B.md"], stale_days=20))
    assert row["summary"] == "Context files untouched for 20 days: A.md, B.md."
    for looked, stands in ((None, True), ([], False)):
        assert run_auditors(kit, ctx, "s1", shot(kit, stale_files=looked)) == []
        assert project.exists(REMINDER) is stands


def test_a_new_auditor_is_one_row_and_one_function(kit, project, monkeypatch):
    """Tried once: it took five places, never fired, and then raised on every later call."""
    def audit_calls(snapshot):
        return kit.Record(codes=["CTX_MINE"], severity="critical", summary="Fact.", action="Act") if snapshot.percent > 50 else None

    monkeypatch.setattr(kit, "AUDITORS", kit.AUDITORS + (("mine", audit_calls, "CTX_MINE", False, 60, 120),))
    ctx = project.ctx(NOW)
    for at, percent, emitted in ((0, 51, 1), (10, 52, 0), (60, 53, 1), (70, 10, 0), (80, 60, 0), (130, 60, 1)):
        ctx.now = NOW + at
        assert len(run_auditors(kit, ctx, "s1", shot(kit, percent, now=ctx.now))) == emitted, at
    assert "ttl: 120" in project.read(".context/signals/sessions/s1/mine.md")
    kit.run_auditors(ctx, "s1", shot(kit, 10, now=ctx.now))
    assert not project.exists(".context/signals/sessions/s1/mine.md"), "what is no longer true is not said"


def test_no_flapping_whatever_the_fullness_does(kit, project, rounds):
    """A code is never emitted twice within its cooldown, and only while its level or band is reached."""
    choice = random.Random(5)
    for number in range(rounds(3)):
        ctx, last, percent = project.ctx(NOW, session="s%d" % number), {}, choice.randrange(101)
        for _ in range(60):
            ctx.now += choice.choice([1, 20, 300, 1000])
            percent = min(100, max(0, percent + choice.choice([-40, -7, -2, -1, 0, 1, 2, 7, 40])))
            for row in run_auditors(kit, ctx, ctx.session, shot(kit, percent, now=ctx.now, handoff="")):
                code = row["code"]
                path = project.path(".context/signals/sessions", ctx.session, "context-health.md")
                assert code not in last or ctx.now - last[code] >= 300, "cooldown, or its TTL where nobody heard it"
                assert percent >= {"CTX_HEALTH_70": 60, "CTX_HEALTH_85": 75, "CTX_HEALTH_95": 85}[code]
                last.update((mark, ctx.now) for mark in ("CTX_HEALTH_70", "CTX_HEALTH_85", "CTX_HEALTH_95") if mark <= code)
                assert os.path.exists(path)


# --- repetition: what a call does


def event_of(kit, tool, tool_input, response, failed):
    name, field = ("PostToolUseFailure", "error") if failed else ("PostToolUse", "tool_response")
    data = {"hook_event_name": name, "session_id": "s1", "cwd": "/p", "tool_name": tool, "tool_input": tool_input, field: response}
    return kit.parse_event(data, "monitor", "claude", {})


def first_alert(kit, sequence):
    """(the number of the call at which the alert fires, or 0; the highest score)."""
    state, highest = kit.load_record({}, kit.SESSION), 0.0
    for number, made in enumerate(sequence, 1):
        kit.note_repetition(state, event_of(kit, *made))
        score = kit.repetition_of(state.recent)[0]
        highest = max(highest, score)
        if kit.audit_repetition(shot(kit, score=score)):
            return number, highest
    return 0, highest


@pytest.mark.parametrize("about", sorted(calls.STUCK))
def test_an_agent_that_is_stuck_is_told_within_8_calls(kit, about):
    assert 0 < first_alert(kit, calls.STUCK[about])[0] <= 8


@pytest.mark.parametrize("about", sorted(calls.WORK))
def test_ordinary_work_raises_no_alarm(kit, about):
    assert first_alert(kit, calls.WORK[about])[0] == 0


def test_the_figures_of_the_labelled_sequences(kit, capsys):
    found = [first_alert(kit, sequence)[0] for sequence in calls.STUCK.values()]
    false = [first_alert(kit, sequence)[0] for sequence in calls.WORK.values()]
    hits = [number for number in found if 0 < number <= 8]
    with capsys.disabled():
        print("\nrepetition: %d of %d stuck agents found within 8 calls (on average at call %.1f), %d false alarms in %d ordinary ones"
              % (len(hits), len(found), sum(hits) / max(1, len(hits)), len([n for n in false if n]), len(false)))
    assert len(found) >= 20 and len(false) >= 20 and len(hits) == len(found) and not any(false)


@pytest.mark.parametrize("one, other, same", [
    ("make", "make  # again", True), ("make", "make 2>&1 | tail -5", True), ("make", "cd /x && make", True), ("make", "A=b make", False),
    ("make", "make\n# note", True), ("make", "make test", False), ("git push", "git pull", False), ("cd /x/a && make", "cd /x/b && make", False), ("cat a | head -5", "cat b | head -5", False),
    ("echo '# no comment'", "echo ''", False), ("cat a | tail x", "cat a", False), ("a=b", "c=d", False), ("cd x", "cd y", False)])
def test_a_command_is_what_it_does(kit, one, other, same):
    assert (kit._plain_command(one, "/x") == kit._plain_command(other, "/x")) is same


@pytest.mark.parametrize("recent, found", [
    ("", (0.0, 0, False)), ("aaaa", (3.0, 4, False)), ("aaaaa", (4.0, 5, False)), ("aabbccdd", (0.0, 0, False)),
    ("abababab", (6.0, 8, False)), ("FFFF", (4.5, 4, True)), ("FFaaa", (3.5, 5, False)), ("aaaaaaaabcdefghi", (0.0, 0, False)),
    ("EE", (1.0, 2, False)), ("FGFGFG", (6.0, 6, True))])
def test_repetition_is_scored_over_the_last_8_calls_and_counts_every_call(kit, recent, found):
    """Five equal calls are five, not four."""
    how = {"F": "failed", "G": "failed", "E": "edit"}
    assert kit.repetition_of([" ".join((letter, letter, how.get(letter, ""))) for letter in recent]) == found


@pytest.mark.parametrize("recent", [[None], [5, "x", {}, []], [["a", "b", "failed"]] * 8, "aaaa"])
def test_rows_of_another_version_count_for_nothing(kit, recent):
    state = kit.load_record({"recent": recent}, kit.SESSION)
    assert kit.repetition_of(state.recent) == (0.0, 0, False)
    kit.note_repetition(state, event_of(kit, *calls.run("make")))
    assert len(state.recent[-1].split(" ")) == 3


def test_an_input_nested_too_deeply_still_has_a_signature(kit):
    value: dict = {}
    for _ in range(5000):
        value = {"a": value}
    state = kit.load_record({}, kit.SESSION)
    kit.note_repetition(state, event_of(kit, "mcp__x", value, "r", False))
    assert len(state.recent) == 1


def test_a_response_too_large_to_keep_is_known_by_its_size(kit):
    state = kit.load_record({}, kit.SESSION)
    for number in range(6):
        event = event_of(kit, "Bash", {"command": "cat big"}, None, False)
        event.response_bytes = 300_000 + number
        kit.note_repetition(state, event)
    assert kit.repetition_of(state.recent)[0] == 0


# --- through the mode


def after_tool(project, percent, now=NOW, command=None, session="s1", name="PostToolUse.Bash"):
    project.write_transcript([assistant_row(percent * 2000)], session)
    after_tool.calls = getattr(after_tool, "calls", 0) + 1
    event = project.event(name, session_id=session, tool_input={"command": command or "c%d" % after_tool.calls},
                          tool_use_id="t%d" % after_tool.calls)
    return project.step("monitor", event, now)


@pytest.fixture
def quiet(project):
    """Without handoff reminders, with context files that are not stale; what an auditor says waits for the prompt."""
    project.write(".contextrc", "handoff:\n  enabled: false\nmonitor:\n  inject_at: [prompt]\n")
    for name in ("CONSTITUTION.md", "TASKS.md"):
        os.utime(project.path(".context", name), (NOW, NOW))
    return project


def test_an_alert_becomes_a_signal_file_that_the_next_prompt_delivers(quiet):
    assert after_tool(quiet, 87).is_silent
    assert quiet.read(HEALTH) == (
        "---\ngenerated_at: 2026-02-03T10:45:00Z\nseverity: warning\nttl: 300\nauditor: context-health\n"
        "code: CTX_HEALTH_85\n---\nContext: 87% of the window full.\n"
        "→ Summarize the current state in 5 bullets, then suggest /clear to the person\n")
    reply = prompt(quiet, NOW + 5)
    assert reply.context.startswith("⚠️ [ctx monitor] Context: 87% of the window full.\n→ ")
    assert not quiet.exists(HEALTH)


def prompt(project, now, session="s1"):
    return project.step("inject", project.event("UserPromptSubmit", session_id=session), now)


def test_an_alert_reaches_a_working_agent_with_the_same_tool_result(quiet):
    quiet.write(".contextrc", "handoff:\n  enabled: false\n")
    reply = after_tool(quiet, 96)
    assert reply.context.startswith("⚠️ [ctx monitor] Context: 96% of the window full.")
    assert reply.reply["systemMessage"].startswith("ctx monitor: Context: 96%"), "critical: the person is told at once"
    assert not quiet.exists(HEALTH) and after_tool(quiet, 96, NOW + 1).is_silent


def test_a_new_auditor_is_heard_at_any_level_and_again_after_its_cooldown(kit, quiet, monkeypatch):
    """Its row and its function are all that it takes, also below the bands of the auditors that are there."""
    def audit_mine(snapshot):
        alert = kit.Record(codes=["CTX_MINE"], severity="warning", summary="Fact.", action="Act")
        return alert if snapshot.now < NOW + 400 else None

    quiet.write(".contextrc", "handoff:\n  enabled: false\n")
    monkeypatch.setattr(kit, "AUDITORS", kit.AUDITORS + (("mine", audit_mine, "CTX_MINE", False, 120, 300),))
    said = [at for at in range(0, 700, 60) if after_tool(quiet, 20, NOW + at).context]
    assert said == [0, 120, 240, 360]
    assert "s1:CTX_MINE" not in quiet.read_json(".context/monitor-state.json")["activeAlerts"]


def test_a_process_that_began_earlier_and_comes_later_repeats_no_alert(kit, quiet):
    ctx = quiet.ctx(NOW + 1)
    assert len(run_auditors(kit, ctx, "s1", shot(kit, 90, now=ctx.now))) == 1
    ctx.now = NOW + 0.5
    assert run_auditors(kit, ctx, "s1", shot(kit, 90, now=ctx.now)) == []


def test_a_clock_that_went_back_does_not_silence_an_alert(kit, quiet):
    ctx = quiet.ctx(NOW)
    for at in (0, -3600):
        ctx.now = NOW + at
        assert len(run_auditors(kit, ctx, "s1", shot(kit, 90, now=ctx.now))) == 1


def test_nine_equal_failing_commands_on_one_prompt_are_told_while_the_agent_works(quiet):
    quiet.write(".contextrc", "handoff:\n  enabled: false\n")
    said = [after_tool(quiet, 10, NOW + n, command="make", name="PostToolUseFailure").context for n in range(9)]
    assert [number for number, text in enumerate(said, 1) if text] == [4]
    assert "4 of the last 8 tool calls did the same and failed the same way." in said[3]


def test_an_alert_that_expired_unsaid_comes_again_with_the_next_prompt_or_call(quiet):
    after_tool(quiet, 87)
    os.utime(quiet.path(HEALTH), (NOW, NOW))
    assert prompt(quiet, NOW + 310).context.startswith("⚠️ [ctx monitor] Context: 87%")
    after_tool(quiet, 96, NOW + 320)
    quiet.write(".contextrc", "handoff:\n  enabled: false\n")
    assert "97%" in after_tool(quiet, 97, NOW + 320 + 301).context, "within the cooldown, since nobody was told"


def test_an_alert_that_was_said_does_not_come_again_when_it_expires(quiet):
    after_tool(quiet, 87)
    assert prompt(quiet, NOW + 5).context
    after_tool(quiet, 88, NOW + 400)
    assert prompt(quiet, NOW + 401).is_silent


@pytest.mark.parametrize("source", ["compact", "clear"])
def test_compaction_and_clear_withdraw_the_health_alerts(quiet, source):
    after_tool(quiet, 87)
    if source == "compact":
        quiet.step("inject", quiet.event("SessionStart.compact", session_id="s1"), NOW + 5)
    else:
        quiet.step("cleanup", quiet.event("SessionEnd.other", session_id="s1", reason="clear"), NOW + 5)
    assert not quiet.exists(HEALTH)
    assert quiet.read_json(".context/monitor-state.json")["activeAlerts"] == {}
    after_tool(quiet, 87, NOW + 10)
    assert quiet.exists(HEALTH), "the level is crossed anew"


def test_a_withdrawal_leaves_other_sessions_and_other_alerts(quiet):
    after_tool(quiet, 87)
    after_tool(quiet, 87, session="s11")
    for _ in range(4):
        after_tool(quiet, 87, NOW + 1, command="make", name="PostToolUseFailure")
    quiet.step("inject", quiet.event("SessionStart.compact", session_id="s1"), NOW + 2)
    state = quiet.read_json(".context/monitor-state.json")
    assert sorted(state["activeAlerts"]) == ["s11:CTX_HEALTH_70", "s11:CTX_HEALTH_85", "s1:CTX_REPETITION"]
    assert quiet.exists(REPETITION) and quiet.exists(".context/signals/sessions/s11/context-health.md") and not quiet.exists(HEALTH)


def test_monitor_state_has_exactly_its_keys(quiet):
    after_tool(quiet, 87)
    assert quiet.read_json(".context/monitor-state.json") == {
        "activeAlerts": {"s1:CTX_HEALTH_85": True, "s1:CTX_HEALTH_70": True},
        "lastEmitted": {"s1:CTX_HEALTH_85": "2026-02-03T10:45:00Z", "s1:CTX_HEALTH_70": "2026-02-03T10:45:00Z"},
        "lastHealth": {"s1": {"contextPercent": 87, "repetitionScore": 0.0}}, "confirmed": None}


def test_a_long_stay_in_the_band_speaks_once_per_cooldown(quiet):
    spoken = []
    for minute in range(40):
        after_tool(quiet, 72 + minute % 2, NOW + minute * MINUTE)
        if prompt(quiet, NOW + minute * MINUTE + 1).context:
            spoken.append(minute)
    assert spoken == [0, 15, 30]


def test_a_higher_level_speaks_at_once_and_a_cleared_one_is_withdrawn(quiet):
    after_tool(quiet, 72)
    after_tool(quiet, 96, NOW + 1)
    assert "severity: critical" in quiet.read(HEALTH) and "code: CTX_HEALTH_95" in quiet.read(HEALTH)
    after_tool(quiet, 30, NOW + 2)
    assert not quiet.exists(HEALTH)
    assert quiet.read_json(".context/monitor-state.json")["activeAlerts"] == {}


def test_repetition_counts_failing_calls_too(quiet):
    for _ in range(4):
        after_tool(quiet, 10, command="make", name="PostToolUseFailure")
    assert quiet.read(REPETITION).split("---\n")[2] == (
        "Repetition: 4 of the last 8 tool calls did the same and failed the same way.\n"
        "→ Stop and try a different approach; say what you expected and what happened instead\n")
    assert "code: CTX_REPETITION\n" in quiet.read(REPETITION) and "ttl: 300\n" in quiet.read(REPETITION)


def test_an_estimate_says_that_it_is_one(quiet):
    quiet.write(".context/state/s1.json", '{"estimated_tokens": 150000}')
    quiet.step("monitor", quiet.event("PostToolUse.Bash", session_id="s1"), NOW)
    assert "Context: ~75% of the window full (estimated)." in quiet.read(HEALTH)


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
    assert prompt(quiet, NOW + 1).context and prompt(quiet, NOW + 1, "s9").context
    spoken = []
    for hour in range(1, 9):
        after_tool(quiet, 5, NOW + hour * 3600 + 1, session="s%d" % (hour + 1))
        if prompt(quiet, NOW + hour * 3600 + 2).context:
            spoken.append(hour)
    assert spoken == [4, 8], "a reminder that everybody heard does not come again when its file expires"


@pytest.mark.parametrize("name", [".context/TASKS.md", ".context/CONSTITUTION.md"])
def test_reading_a_context_file_while_the_reminder_stands_confirms_it(quiet, name):
    age_context_files(quiet, 20)
    after_tool(quiet, 5)
    path = quiet.path(name)
    event = quiet.event("PostToolUse.Read", session_id="s1", tool_use_id="r1", tool_input={"file_path": path},
                        tool_response={"type": "text", "file": {"filePath": path, "content": "x"}})
    quiet.step("monitor", event, NOW + 60)
    for _ in range(25):
        after_tool(quiet, 5, NOW + 120)
    assert not quiet.exists(REMINDER)
    after_tool(quiet, 5, NOW + 13 * 86400, session="s2")
    assert not quiet.exists(REMINDER)
    after_tool(quiet, 5, NOW + 15 * 86400, session="s3")
    assert quiet.exists(REMINDER), "a confirmation ages too"


def test_reading_a_context_file_without_a_reminder_confirms_nothing(kit, quiet):
    after_tool(quiet, 72)
    kit.confirm_files(quiet.ctx(NOW))
    assert quiet.read_json(".context/monitor-state.json")["confirmed"] is None


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


def test_a_prompt_audits_only_where_an_alert_may_have_expired(kit, quiet, monkeypatch):
    """Another's signal is no reason to open the file that all sessions share."""
    after_tool(quiet, 10)
    quiet.write(".context/signals/sessions/s1/ci.md", "CI is red", mtime=NOW)
    monkeypatch.setattr(kit, "run_auditors", None)
    assert "CI is red" in prompt(quiet, NOW + 5).context
