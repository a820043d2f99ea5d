"""View: from data to text. Everything here is a pure function; width, colour and locale are parameters."""
from __future__ import annotations

import json
import os
import random
import re

import pytest

from helper import REPO

ANSI = re.compile(r"\033\[[0-9;]*m")
NOW = "2026-02-03T10:45:00Z"
AN_HOUR_AGO = "2026-02-03T09:45:00Z"
FLOW = {"active": True, "phase": "planning", "phases": ["init", "planning", "qa"], "iteration": 2, "max_iterations": 20, "inert": False,
        "needs": "", "session_id": "2a8cf45f-2bc7", "exit_reason": "", "last_phase": "", "last_error": "", "last_check": {}, "checks": [],
        "signals": {"detected_signals": []},
        "task_description": "Add a login page"}
SESSION = {
    "session": "2a8cf45f-2bc7-4975-91c3-97e00a297524", "client": "Codex", "seen_at": "2026-02-03T10:44:48Z", "tool_calls": 42,
    "model": "claude-sonnet-5-5", "handoff": "not due", "gate": "1 of 2 files read, not: DECISIONS.md",
    "startup": "delivered, 1 attempt, receipt",
    "context": {"percent": 68, "tokens": 136_000, "window": 200_000, "exact": True, "at": "2026-02-03T10:44:48Z",
                "shown": "68%", "kind": "exact"},
}
SIGNAL = {"scope": "global", "session": "", "name": "ci", "severity": "critical", "auditor": "ci", "code": "", "age_s": 61,
          "left_s": 200, "text": "CI: 3 tests fail → look at the log"}
HANDOFF = {"session": "2a8cf45f-2bc7", "file": ".context/handoffs/2a8cf45f.md", "client": "Codex", "by": "agent",
           "asked_at": AN_HOUR_AGO, "written_at": AN_HOUR_AGO, "delivered_to": "", "delivered_at": None, "evidence": ""}
METRICS = {"attempted": 5, "succeededOnFirstTry": 3, "succeededAfterRetry": 1, "escalatedToFile": 1, "failed": 0, "confirmedByReceipt": 4}
PAGE = {
    "version": "0.2.0", "at": NOW, "root": "/home/me/project", "hooks_seen_at": NOW, "paused": {},
    "sessions": [SESSION], "handoffs": [HANDOFF], "signals": [SIGNAL], "auto": FLOW, "problems": [], "fill_in": [],
    "metrics": dict.fromkeys(METRICS, 0), "attention": {"calls": 0, "by": {}},
}


def look(kit, width=100, colour=False, unicode=True):
    return kit.Record(width=width, height=10_000, colour=colour, unicode=unicode)


def page(kit, width=100, colour=False, unicode=True, **changes):
    shape = look(kit, width, colour, unicode)
    return kit.format_page(kit.render_status(json.loads(json.dumps(dict(PAGE, **changes)))), shape)


def session_page(kit, **changes):
    return page(kit, sessions=[dict(SESSION, **changes)])


def test_without_utf8_every_glyph_of_ours_becomes_one_ascii_character(kit):
    text = page(kit, unicode=False, problems=["x"])
    assert text.isascii()
    assert [len(line) for line in text.split("\n")] == [len(line) for line in page(kit, problems=["x"]).split("\n")]
    assert "tâche" in page(kit, unicode=False, signals=[dict(SIGNAL, text="tâche")])


def test_what_was_said_is_counted_per_100_calls(kit):
    said = page(kit, attention={"calls": 50, "by": {"gate": {"chars": 300, "messages": 1}}})
    assert "per 100 tool calls (of 50): gate 600 characters in 2.0 messages" in said
    assert "per 100" not in page(kit)


# --- figures


def test_a_bar_is_as_long_as_asked_and_full_only_at_the_end(kit):
    bars = {0: "░" * 10, 1: "█" + "░" * 9, 99: "█" * 9 + "░", 100: "█" * 10}
    assert {percent: kit.format_bar(percent) for percent in bars} == bars
    assert {len(kit.format_bar(percent)) for percent in range(101)} == {10}


@pytest.mark.parametrize("seconds, text", [(-3, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"),
                                           (86399, "23h"), (86400, "1d"), (30 * 86400, "30d")])
def test_an_age_has_one_unit_rounded_down(kit, seconds, text):
    assert kit.format_age(seconds) == text


@pytest.mark.parametrize("text, width", [("abc", 3), ("█░·…→✓●○", 8), ("日本", 4), ("e\u0301", 1), ("⚠️", 1), ("", 0)])
def test_wide_characters_take_two_cells_and_marks_none(kit, text, width):
    assert kit.cells(text) == width


def test_a_long_text_is_wrapped_behind_its_head_and_nothing_is_lost(kit, rounds):
    chance = random.Random(8)
    alphabet = "ab c日本é█→"
    for _ in range(rounds(300)):
        text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(1, 80)))
        width = chance.randrange(24, 60)
        lines = kit.format_page([[("", "  x "), ("", text)]], look(kit, width)).split("\n")
        assert max(map(kit.cells, lines)) <= width and all(line.startswith("    ") for line in lines[1:])
        assert "".join("".join(lines).split()) == "x" + "".join(text.split())


# --- the one way to a terminal


def test_a_line_is_wrapped_before_it_is_painted(kit):
    line = kit.format_page([[("bad", "abcdef"), ("good", "ghij " * 5)]], look(kit, 27, True))
    assert line == "\033[31mabcdef\033[0m\033[32mghij ghij ghij ghij\033[0m\n      \033[32mghij\033[0m"


@pytest.mark.parametrize("colour", [False, True])
def test_what_could_move_the_cursor_or_paint_goes_wherever_it_stands(kit, colour):
    chance = random.Random(3)
    alphabet = "ab \x1b\x9b\x07\r\x08\u202e\x7f\x00\u2028\udc80"
    for _ in range(200):
        text = "".join(chance.choice(alphabet) for _ in range(30))
        for line in (text, [("bad", text), ("", text)]):
            shown = ANSI.sub("", kit.format_page([line], look(kit, 100, colour)))
            assert not set(shown) - set("ab ?"), ascii(shown)


def test_parts_are_one_line_whatever_they_hold(kit):
    assert "\n" not in kit.format_page([[("", "a\nb\tc\r\n")]], look(kit))


def test_the_page_has_no_escape_sequences_without_colour(kit):
    assert "\033" not in page(kit)
    assert ANSI.sub("", page(kit, colour=True)) == page(kit) != page(kit, colour=True)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(kit, width):
    text = page(kit, width, problems=["the client was active 2h ago, the hooks were last seen 4d ago; are they registered?"],
                root="/a/very/long/" + "path/" * 60, metrics=METRICS, paused={"*": NOW}, fill_in=["TASKS.md"] * 9,
                signals=[SIGNAL, dict(SIGNAL, text="日本" * 200)],
                sessions=[dict(SESSION, model="m" * 300), dict(SESSION, context=None)])
    assert max(kit.cells(line) for line in text.split("\n")) <= width


@pytest.mark.parametrize("env, colour", [({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)])
def test_colour_is_by_the_usual_variables(kit, monkeypatch, env, colour):
    monkeypatch.setattr(kit, "read_environment", lambda names=(): env)
    monkeypatch.setattr(kit, "_os", FakeTerminal())
    assert kit.read_look().colour == colour


@pytest.mark.parametrize("columns, width", [("0", 10_000), ("", 10_000), ("7", 20), ("133", 133), ("many", 10_000), ("-5", 10_000)])
def test_on_a_terminal_of_no_columns_nothing_is_cut(kit, monkeypatch, columns, width):
    monkeypatch.setattr(kit, "read_environment", lambda names=(): {"COLUMNS": columns})
    monkeypatch.setattr(kit, "_os", FakeTerminal())
    assert kit.read_look().width == width


def test_a_device_that_only_poses_as_a_terminal_is_none(kit, monkeypatch):
    """NUL on Windows: isatty says yes, and its size is an error."""
    monkeypatch.setattr(kit, "read_environment", lambda names=(): {})
    monkeypatch.setattr(kit, "_os", FakeTerminal(fails=True))
    assert (kit.read_look().colour, kit.read_look().width) == (False, 10_000)


class FakeTerminal:
    def __init__(self, fails=False):
        self.fails = fails

    def isatty(self, fd):
        return True

    def get_terminal_size(self, fd):
        if self.fails:
            raise OSError(6, "the handle is invalid")
        return os.terminal_size((0, 0))


# --- status


@pytest.mark.parametrize("percent, style", [(0, "good"), (69, "good"), (70, "warn"), (84, "warn"), (85, "bad"), (100, "bad")])
def test_fullness_is_coloured_by_the_levels_of_the_alerts(kit, percent, style):
    assert kit.level_style(percent) == style


def test_a_session_block_tells_every_mechanism(kit):
    text = page(kit)
    for expected in ("session 2a8cf45f · Codex · 12s ago · 42 calls · claude-sonnet-5-5", "68%  136,000/200,000 exact, 12s ago",
                     "  handoff  not due", "  gate     1 of 2 files read, not: DECISIONS.md", "  startup  delivered, 1 attempt, receipt"):
        assert expected in text


def test_a_session_that_was_not_measured_says_so(kit):
    assert "model unknown\n  context  not measured yet" in session_page(kit, context=None, model="")


@pytest.mark.parametrize("text, style", [("asked, 1 reminder: x.md", "31"), ("written", "32"), ("not due", "2")])
def test_a_handoff_is_coloured_by_its_state(kit, text, style):
    assert "\033[%sm%s" % (style, text) in page(kit, colour=True, sessions=[dict(SESSION, handoff=text)])


HANDOFFS = [
    ({"written_at": None, "by": ""}, "asked for 1h ago"),
    ({}, "written 1h ago (agent) → waits for the next session"),
    ({"by": "mechanical"}, "written 1h ago (mechanical) → "),
    ({"delivered_to": "77aa1122-3", "delivered_at": NOW}, "→ to 77aa1122 0s ago, no evidence yet"),
    ({"delivered_to": "77aa1122-3", "delivered_at": NOW, "evidence": "receipt"}, "→ to 77aa1122 0s ago, receipt"),
]


@pytest.mark.parametrize("changes, text", HANDOFFS)
def test_a_handoff_tells_who_wrote_it_who_got_it_and_with_what_evidence(kit, changes, text):
    shown = page(kit, 160, handoffs=[dict(HANDOFF, **changes)])
    assert text in shown and "Codex · .context/handoffs/2a8cf45f.md" in shown


@pytest.mark.parametrize("changes, text", [
    ({"paused": {"*": None}}, "paused: every session, until `resume`"), ({"paused": {"2a8cf45f-2bc7": None}}, "paused: 2a8cf45f, until"),
    ({"hooks_seen_at": None}, "start the agent here; whether the hooks are registered: "),
    ({"metrics": METRICS}, "startup\n  5 sent, 3 arrived at once, 0 failed"),
    ({"fill_in": ["TASKS.md"]}, "fill in\n  TASKS.md"),
    ({"problems": ["no disk → buy one"]}, "problems\n  ✗ no disk → buy one")])
def test_what_else_a_page_can_say(kit, changes, text):
    assert text in " ".join(page(kit, 120, **changes).split(" "))


@pytest.mark.parametrize("changes, line", [
    ({}, "init ✓ planning ● qa ○"), ({"phase": "complete"}, "init ✓ planning ✓ qa ✓"), ({"phase": "odd"}, "init ● planning ○ qa ○"),
    ({"phase": "failed", "last_phase": "qa"}, "init ✓ planning ✓ qa ✗")])
def test_the_phase_line_shows_done_current_and_coming(kit, changes, line):
    assert kit.phase_line(dict(FLOW, **changes)) == line


@pytest.mark.parametrize("changes, word", [
    ({}, "iteration 2/20, session 2a8cf45f"), ({"session_id": ""}, "iteration 2/20, not bound yet"),
    ({"inert": True}, "inert: not started on this machine, it holds nobody"), ({"needs": "a key"}, "waits for you: a key"),
    ({"active": False, "exit_reason": "stale_state"}, "ended (stale_state)")])
def test_a_workflow_says_how_it_stands(kit, changes, word):
    assert kit.auto_word(dict(FLOW, **changes)) == word
    assert word in page(kit, auto=dict(FLOW, **changes))


# --- the status line

LINE = {"model": "Sonnet 5.5", "percent": 71, "left": 58_999, "phase": "qa 1/20", "pending": "2 signals", "near": True}


@pytest.mark.parametrize("width, changes, text", [
    (100, {}, "Sonnet 5.5 · ███████░░░ 71% of the window, compaction near · 58k left · qa 1/20 · 2 signals"),
    (100, {"near": False, "phase": "", "pending": ""}, "Sonnet 5.5 · ███████░░░ 71% of the window · 58k left"),
    (80, {"near": False, "phase": "", "pending": ""}, "Sonnet 5.5 · ███████░░░ 71% of the window · 58k left"),
    (60, {}, "71%, compaction near · qa 1/20 · 2 signals"), (60, {"percent": None}, "Sonnet 5.5 · qa 1/20 · 2 signals"),
    (80, {}, "71%, compaction near · qa 1/20 · 2 signals"), (40, {}, "71%, compaction near · qa 1/20"),
    (24, {"phase": ""}, "71%, compaction near"), (60, {"phase": "p" * 90 + " 1/20"}, "71%, compaction near"),
    (100, {"percent": None, "model": "", "phase": "", "pending": ""}, "ctx")])
def test_the_status_line_says_what_it_measures_and_fits(kit, width, changes, text):
    shape = look(kit, width)
    assert kit.format_page([kit.render_statusline(dict(LINE, **changes), width)], shape) == text


# --- why and replay


def decision(kit, width=300, **row):
    shape = look(kit, width)
    return kit.format_page([kit.render_decision({"at": NOW, "session": "2a8cf45f-2bc7", **row})], shape)


def test_every_event_the_kit_records_has_its_sentence(kit):
    with open(os.path.join(REPO, "ctx_hooks.py"), encoding="utf-8") as source:
        text = source.read()
    recorded = set(re.findall(r'(?:record\(\s*ctx,|_note\(|on_event\(|_end\()\s*"([a-z]+:[a-z-]+)"', text))
    assert recorded and recorded <= set(kit.DECISIONS)


@pytest.mark.parametrize("row, said", [
    ({"event": "gate:emitted", "files": ["A.md", "B.md"]}, "2a8cf45f  asked the agent to read A.md, B.md → first tool since"),
    ({"event": "stop:held", "phase": "qa", "iteration": 2, "reason": "held"},
     "kept the agent going: phase qa, iteration 2 → its completion block is missing"),
    ({"event": "stop:held", "phase": "qa", "iteration": 2, "reason": "held", "check": "exited 1"}, "iteration 2 → its check exited 1"),
    ({"event": "stop:released", "phase": "qa", "reason": "no_progress"}, "→ let the agent stop, no tool call over 3 stops; phase qa stays."),
    ({"event": "stop:released", "phase": "qa", "reason": "of another version"}, "→ of another version"),
    ({"event": "injection:succeeded", "attempts": 2, "evidence": "receipt"}, "→ receipt at attempt 2"),
    ({"event": "new:event", "what": "{code}", "mode": "gate"}, "new:event → by another version"),
    ({"event": "gate:emitted", "files": "{code}"}, "asked the agent to read {code} →"), ({"event": "gate:emitted"}, "to read ? →"),
    ({"event": None}, "None →"), ({}, "? →")])
def test_a_decision_says_when_who_what_and_by_which_rule(kit, row, said):
    shown = decision(kit, **row)
    assert said in shown and re.match(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d  2a8cf45f  ", shown)


def test_a_long_decision_is_wrapped_and_not_cut(kit):
    shown = decision(kit, 60, event="alert:emitted", code="X", summary="word " * 30)
    assert max(map(len, shown.split("\n"))) <= 60 and shown.count("word") == 30


@pytest.mark.parametrize("result, text", [
    ({"mode": "gate", "reply": {"hookSpecificOutput": {"additionalContext": "STOP.\nNow"}}}, "12 ms\n     STOP.\n     Now"),
    ({"mode": "gate", "reply": None}, "12 ms, silent"), ({"mode": "", "reply": None}, "not an event of this kit"),
    ({"mode": "stop-enforce", "reply": {"reason": "go on", "systemMessage": "told"}}, "12 ms\n     go on\n     told"),
    ({"mode": "gate", "reply": ["odd"], "error": "it broke"}, "     ✗ it broke")])
def test_a_replayed_event_shows_mode_time_and_text(kit, result, text):
    shape = look(kit)
    full = {"event": "PreToolUse", "ms": 12.3, "error": "", **result}
    shown = kit.format_page(kit.render_replay(full, 3), shape)
    assert shown.startswith("  3  PreToolUse") and text in shown
