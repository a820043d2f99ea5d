"""View: from data to text. Everything here is a pure function; width, colour and locale are parameters."""
from __future__ import annotations

import json
import random
import re

import pytest

ANSI = re.compile(r"\033\[[0-9;]*m")
NOW = "2026-02-03T10:45:00Z"
SESSION = {
    "session": "2a8cf45f-2bc7-4975-91c3-97e00a297524", "seen_at": "2026-02-03T10:44:48Z", "tool_calls": 42,
    "model": "claude-sonnet-5-5", "history": [10, 40, 68], "tools": {"Read": 41_000, "Bash": 999},
    "context": {"percent": 68, "tokens": 136_000, "window": 200_000, "exact": True, "at": "2026-02-03T10:44:48Z",
                "shown": "68%", "kind": "exact"},
    "handoff": {"state": "not due", "since": None, "reminders": 0, "file": ".claude/h.md"},
    "gate": {"mode": "directive", "fired": True, "files": ["TASKS.md", "DECISIONS.md"], "read": ["TASKS.md"]},
    "startup": {"outcome": "acknowledged", "attempts": 1, "receipt_at": NOW, "acked_at": NOW},
}
SIGNAL = {"scope": "global", "session": "", "name": "ci", "severity": "critical", "auditor": "ci", "code": "",
          "age_s": 61,
          "left_s": 200, "text": "CI: 3 tests fail → look at the log"}
PAGE = {
    "version": "0.1.0", "at": NOW, "root": "/home/me/project", "dir": ".context", "hooks_seen_at": NOW, "paused": [],
    "sessions": [SESSION], "signals": [SIGNAL], "metrics": {}, "problems": [],
    "auto": {"active": True, "phase": "planning", "iteration": 2, "max_iterations": 20, "config": {},
             "task_description": "Add a login page"},
}


def page(kit, width=100, colour=False, unicode=True, **changes):
    return kit.render_status(json.loads(json.dumps(dict(PAGE, **changes))), kit.Look(width, colour, unicode))


def session_page(kit, **changes):
    return page(kit, sessions=[dict(SESSION, **changes)])


def test_a_bar_is_as_long_as_asked_and_full_only_at_the_end(kit):
    assert kit.format_bar(0, 10) == "░" * 10
    assert kit.format_bar(1, 10) == "█" + "░" * 9
    assert kit.format_bar(99, 10) == "█" * 9 + "░"
    assert kit.format_bar(100, 10) == "█" * 10
    assert {len(kit.format_bar(percent, 17)) for percent in range(101)} == {17}


def test_a_sparkline_rises_from_0_to_100_and_no_further(kit):
    assert kit.format_spark([0, 12, 13, 50, 87, 88, 100]) == "▁▁▂▅▇██"
    assert kit.format_spark([-5, 4000]) == "▁█"


@pytest.mark.parametrize("seconds, text", [(-3, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600,
                                                                                                             "1h"),
                                           (86399, "23h"), (86400, "1d"), (30 * 86400, "30d")])
def test_an_age_has_one_unit_rounded_down(kit, seconds, text):
    assert kit.format_age(seconds) == text


@pytest.mark.parametrize("count, text", [(0, "0"), (999, "999"), (1000, "1k"), (850_999, "850k"),
                                         (1_299_999, "1299k")])
def test_a_count_is_short_and_rounded_down(kit, count, text):
    assert kit.format_count(count) == text


def test_wide_characters_take_two_cells_and_marks_none(kit):
    assert kit.cells("abc") == 3
    assert kit.cells("█░·…→✓●○") == 8
    assert kit.cells("日本") == 4
    assert kit.cells("e\u0301") == 1
    assert kit.cells("⚠️") == 1


def test_a_cut_text_ends_with_an_ellipsis_and_fits(kit, rounds):
    chance = random.Random(8)
    alphabet = "ab c日本é█→\u0301"
    for _ in range(rounds(300)):
        text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(40)))
        width = chance.randrange(0, 30)
        cut = kit.fit_text(text, width)
        assert kit.cells(cut) <= width
        assert cut == text or cut == "" or cut.endswith("…")


def test_a_line_is_cut_before_it_is_painted(kit):
    line = kit.format_line(kit.Look(10, True), ("bad", "abcdef"), ("good", "ghijklmnop"))
    assert ANSI.sub("", line) == "abcdefghi…"
    assert line == "\033[31mabcdef\033[0m\033[32mghi…\033[0m"


def test_without_utf8_every_glyph_of_ours_becomes_one_ascii_character(kit):
    text = page(kit, unicode=False, problems=["x"])
    assert text.isascii()
    assert [len(line) for line in text.split("\n")] == [len(line) for line in page(kit, problems=["x"]).split("\n")]


def test_a_users_own_text_is_not_lost_without_utf8(kit):
    assert "tâche" in page(kit, unicode=False, signals=[dict(SIGNAL, text="tâche")])


def test_the_page_has_no_escape_sequences_without_colour(kit):
    assert "\033" not in page(kit)
    assert "\033[" in page(kit, colour=True)
    assert ANSI.sub("", page(kit, colour=True)) == page(kit)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(kit, width):
    problem = "the client was active here 2h ago, but the hooks were last seen 4d ago; are they still registered?"
    text = page(kit, width, problems=[problem], root="/a/very/long/" + "path/" * 60,
                metrics={"attempted": 5, "failed": 1},
                paused=[{"session": "", "until": NOW}], signals=[SIGNAL, dict(SIGNAL, text="日本" * 200)],
                sessions=[dict(SESSION, model="m" * 300),
                          dict(SESSION, startup=None, context=None, history=list(range(40)))])
    assert max(kit.cells(line) for line in text.split("\n")) <= width


def test_at_60_columns_nothing_that_matters_is_cut(kit):
    text = page(kit, 60)
    assert "68%  136,000/200,000 exact, 12s ago" in text
    assert "✓✓●○○○○○○ planning" in text
    assert "1 of 2 files read, not: DECISIONS.md" in text


def test_at_200_columns_the_phases_stand_in_full_and_the_bar_stays_readable(kit):
    text = page(kit, 200)
    assert "expansion ✓ init ✓ planning ● execution ○" in text
    assert text.count("█") + text.count("░") == 40 + 0


def test_a_session_block_tells_every_mechanism(kit):
    text = page(kit)
    for expected in ("session 2a8cf45f · 12s ago · 42 calls · claude-sonnet-5-5", "▁▄▆  10% to 68%",
                     "Read 41k · Bash 999",
                     "not due: .claude/h.md", "acknowledged, 1 attempt, in the transcript",
                     "critical 1m old, 3m left, every session  CI: 3 tests fail", "iteration 2/20 · Add a login page"):
        assert expected in text


@pytest.mark.parametrize("state, text", [
    ("off", "off: .claude/h.md"), ("asked", "asked, 3 reminders in 5m: .claude/h.md"),
    ("written", "written: .claude/h.md")])
def test_the_handoff_is_told_by_its_state(kit, state, text):
    handoff = {"state": state, "since": "2026-02-03T10:40:00Z", "reminders": 3, "file": ".claude/h.md"}
    assert text in session_page(kit, handoff=handoff)


@pytest.mark.parametrize("changes, text", [
    ({"mode": "off"}, "switched off"), ({"files": []}, "no context files"),
    ({"fired": False, "read": []}, "not asked yet, 0 of 2 files read, not: TASKS.md, DECISIONS.md"),
    ({"read": ["DECISIONS.md", "TASKS.md", "OTHER.md"]}, "2 of 2 files read\n")])
def test_the_gate_tells_which_files_were_read(kit, changes, text):
    assert text in session_page(kit, gate=dict(SESSION["gate"], **changes))


@pytest.mark.parametrize("changes, text", [
    ({"outcome": "pending", "attempts": 2, "receipt_at": None}, "pending, 2 attempts, not seen in the transcript yet"),
    ({"outcome": "failed"}, "failed, 1 attempt"), ({"outcome": "escalated"}, "escalated, 1 attempt")])
def test_a_startup_delivery_tells_outcome_attempts_and_receipt(kit, changes, text):
    assert text in session_page(kit, startup=dict(SESSION["startup"], **changes))


def test_what_was_never_measured_says_so(kit):
    assert "not measured yet" in session_page(kit, context=None)
    assert "nothing to deliver" in session_page(kit, startup=None)
    assert "history" not in session_page(kit, history=[5])


def test_rates_count_as_the_issue_defines_them(kit):
    rates = kit.metric_rates({"attempted": 10, "succeededOnFirstTry": 6, "succeededAfterRetry": 2, "escalatedToFile": 1,
                              "failed": 0})
    assert rates == [("first attempt", 66, 70), ("with retry", 88, 95), ("acknowledged", 80, 80), ("visible", 100, 99)]


def test_rates_never_exceed_100_and_need_something_to_count(kit):
    assert [rate for _, rate, _ in kit.metric_rates({})] == [None] * 4
    assert [rate for _, rate, _ in kit.metric_rates({"attempted": 1})] == [None, None, 0, None]
    odd = {"attempted": 1, "succeededOnFirstTry": 5, "succeededAfterRetry": "x", "failed": -3}
    assert [rate for _, rate, _ in kit.metric_rates(odd)] == [100] * 4


def test_rates_show_their_targets(kit):
    text = page(kit, metrics={"attempted": 1})
    text = " ".join(text.split())
    assert "first attempt – (> 70%)" in text and "acknowledged 0% (> 80%)" in text and "1 sent" in text


def test_a_pause_is_said_at_the_top(kit):
    text = page(kit, paused=[{"session": "", "until": None}, {"session": "2a8cf45f-2bc7",
                                                              "until": "2026-02-03T11:15:00Z"}])
    assert text.split("\n")[1:3] == ["paused: every session, until `resume`", "paused: 2a8cf45f, for 30m"]


def test_a_project_with_nothing_yet_gets_three_lines_that_say_what_to_do(kit):
    text = page(kit, sessions=[], signals=[], auto=None, hooks_seen_at=None)
    assert [line[:2] for line in text.split("\n")[1:]] == ["1.", "2.", "3."]
    assert ".context/TASKS.md" in text


@pytest.mark.parametrize("phase, line", [
    ("expansion", "expansion ● init ○"), ("execution", "init ✓ planning ✓ execution ● qa ○"),
    ("complete", "check ✓ reflect ✓"),
    ("failed", "expansion ○ init ○"), (None, "expansion ● init ○"), ({"x": 1}, "expansion ● init ○")])
def test_the_phase_line_shows_done_current_and_coming(kit, phase, line):
    assert line in kit.phase_line({"phase": phase, "config": {}})


def test_skipped_phases_are_not_on_the_line(kit):
    line = kit.phase_line({"phase": "execution", "config": {"skip_review": True, "skip_reflect": True}})
    assert line == "expansion ✓ init ✓ planning ✓ execution ● qa ○"


BAR = {"model": "Sonnet 5.5", "percent": 15, "left": 850_000, "phase": "planning 2/20", "pending": "2 signals"}


def test_the_status_line_has_everything_where_there_is_room(kit):
    line = kit.render_statusline(BAR, kit.Look(100))
    assert line == "Sonnet 5.5 · █░░░░░░░░░ 15% · 850k left · planning 2/20 · 2 signals"


@pytest.mark.parametrize("width", [32, 40, 79])
def test_a_narrow_status_line_keeps_percent_phase_and_signals(kit, width):
    assert kit.render_statusline(BAR, kit.Look(width)) == "15% · planning 2/20 · 2 signals"
    assert kit.render_statusline(dict(BAR, percent=None, phase="", pending=""), kit.Look(width)) == "Sonnet 5.5"


def test_a_status_line_without_any_number_is_still_a_line(kit):
    nothing = {"model": "", "percent": None, "left": 0, "phase": "", "pending": ""}
    assert kit.render_statusline(nothing, kit.Look(80)) == "ctx"


def decision(kit, width=100, **row):
    rows = dict({"at": NOW, "session": "2a8cf45f-2bc7", "mode": "gate"}, **row)
    return "\n".join(kit.render_decision(rows, kit.Look(width), "2026-02-03"))


def test_every_event_the_kit_records_has_its_sentence(kit):
    import inspect

    recorded = set(re.findall(r'record\(ctx, "([a-z:-]+)"', inspect.getsource(kit)))
    recorded |= set(re.findall(r'record\(ctx, "([a-z:-]+)" if .* else "([a-z:-]+)"', inspect.getsource(kit))[0])
    assert len(recorded) > 10
    assert recorded <= set(kit.DECISIONS)


def test_a_decision_says_when_who_what_and_by_which_rule(kit, monkeypatch):
    text = decision(kit, event="gate:emitted", files=["TASKS.md", "DECISIONS.md"])
    assert re.match(r"(2026-02-0\d )?\d\d:\d\d:00  2a8cf45f  asked the agent to read TASKS.md, DECISIONS.md\n", text)
    assert "→ it was the first tool call" in text


@pytest.mark.parametrize("reason, text", [
    ("held", "its completion block is missing"), ("no_progress",
                                                  "no progress over 3 stops; the workflow stays in phase qa"),
    ("max_iterations_reached", "phase qa did not complete within the allowed iterations"),
    ("{phase} {0} %s", "{phase} {0} %s"), (7, "7")])
def test_a_stop_is_explained_by_its_reason(kit, reason, text):
    assert text in decision(kit, event="stop:released", reason=reason, phase="qa", iteration=3)


def test_unknown_events_and_odd_rows_are_told_too(kit):
    assert "later:invented" in decision(kit, event="later:invented", answer=42)
    assert "answer 42" in decision(kit, event="later:invented", answer=42)
    assert decision(kit, event=None, at=5, session=None)


def test_no_control_character_of_a_recorded_text_reaches_the_terminal(kit):
    assert "\033" not in decision(kit, event="alert:emitted", code="\033[31mX", summary="a\033]0;title\a")


def test_a_long_decision_is_wrapped_and_not_cut(kit):
    files = ["FILE%d.md" % number for number in range(30)]
    text = decision(kit, width=60, event="gate:emitted", files=files)
    assert all(name in text for name in files)
    assert max(map(len, text.split("\n"))) <= 60


def test_a_replayed_event_shows_mode_time_and_text(kit):
    reply = {"systemMessage": "for the person", "hookSpecificOutput": {"additionalContext": "one\ntwo"}}
    result = {"event": "Stop", "mode": "stop-enforce", "ms": 21.4, "reply": reply, "error": ""}
    assert kit.render_replay(result, 3, kit.Look(100)) == [
        "  3  Stop                stop-enforce  21 ms", "     one", "     two", "     for the person"]


@pytest.mark.parametrize("changes, text", [
    ({"reply": None}, "21 ms, silent"), ({"mode": ""}, "not an event of this kit"), ({"reply": [1]}, "silent"),
    ({"reply": None, "error": "ctx_hooks: internal error"}, "✗ ctx_hooks: internal error")])
def test_a_replayed_event_that_says_nothing_tells_why(kit, changes, text):
    result = dict({"event": "Stop", "mode": "stop-enforce", "ms": 21.4, "reply": None, "error": ""}, **changes)
    assert text in "\n".join(kit.render_replay(result, 1, kit.Look(100)))
