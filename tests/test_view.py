"""View: from data to text. Everything here is a pure function but `show`; colour is a parameter."""
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
        "any_prompt": False, "signals": {"detected_signals": []}, "task_description": "Add a login page"}
SESSION = {
    "session": "2a8cf45f-2bc7-4975-91c3-97e00a297524", "agent": "codex", "seen_at": "2026-02-03T10:44:48Z", "tool_calls": 42,
    "model": "claude-sonnet-5-5", "gate": "1 of 2 files read, not: DECISIONS.md",
    "context": {"percent": 68, "tokens": 136_000, "window": 200_000, "exact": True, "at": "2026-02-03T10:44:48Z",
                "shown": "68%", "kind": "exact"},
}
SIGNAL = {"session": "", "severity": "critical", "code": "", "at": "2026-02-03T10:43:59Z", "until": "2026-02-03T10:48:59Z",
          "text": "CI: 3 tests fail → look at the log"}
HANDOFF = {"session": "2a8cf45f-2bc7", "file": ".context/handoffs/2a8cf45f.md", "agent": "codex", "by": "agent",
           "asked_at": AN_HOUR_AGO, "written_at": AN_HOUR_AGO, "delivered_to": "", "delivered_at": None, "evidence": ""}
PAGE = {
    "version": "0.2.0", "at": NOW, "root": "/home/me/project", "paused": {},
    "sessions": [SESSION], "handoffs": [HANDOFF], "signals": [SIGNAL], "auto": FLOW, "problems": [],
    "attention": {"calls": 0, "by": {}},
}


def page(kit, colour=False, **changes):
    return kit.format_page(kit.render_status(json.loads(json.dumps(dict(PAGE, **changes)))), colour)


def test_what_was_said_is_counted_per_100_calls(kit):
    said = page(kit, attention={"calls": 50, "by": {"gate": {"chars": 300, "messages": 1}}})
    assert "said to the agent, per 100 tool calls\n  gate     600 characters in 2.0 messages" in said
    assert "per 100" not in page(kit)


# --- figures


@pytest.mark.parametrize("percent, style", [(0, "good"), (69, "good"), (70, "warn"), (84, "warn"), (85, "bad"), (100, "bad")])
def test_fullness_is_coloured_by_the_levels_of_the_alerts(kit, percent, style):
    assert kit.format_meter(percent)[0] == style


def test_a_bar_is_full_only_at_the_end(kit):
    bars = {0: "░" * 10, 10: "█" + "░" * 9, 99: "█" * 9 + "░", 100: "█" * 10}
    assert {percent: kit.format_meter(percent)[1] for percent in bars} == bars
    assert {len(kit.format_meter(percent)[1]) for percent in range(101)} == {10}


@pytest.mark.parametrize("seconds, text", [(-3, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"),
                                           (86399, "23h"), (86400, "1d"), (30 * 86400, "30d")])
def test_an_age_has_one_unit_rounded_down(kit, seconds, text):
    assert kit.format_ago(NOW, kit.parse_iso(NOW) + seconds) == text + " ago"


# --- the one way to a terminal


def test_each_part_of_a_line_has_its_own_colour(kit):
    line = kit.format_page([[("bad", "abc"), ("", " d "), ("good", "")]], True)
    assert line == "\033[31mabc\033[0m d"


def test_a_long_line_is_not_broken_so_that_it_can_be_pasted(kit):
    assert kit.format_page([[("", "  "), ("", "word " * 200 + "end")]], False) == "  " + "word " * 200 + "end"


@pytest.mark.parametrize("colour", [False, True])
def test_what_could_move_the_cursor_or_paint_goes_wherever_it_stands(kit, colour):
    chance = random.Random(3)
    alphabet = "ab \x1b\x9b\x07\r\x08\u202e\x7f\x00\u2028\udc80"
    for _ in range(200):
        text = "".join(chance.choice(alphabet) for _ in range(30))
        for line in (text, [("bad", text), ("", text)]):
            shown = ANSI.sub("", kit.format_page([line], colour))
            assert not set(shown) - set("ab ?"), ascii(shown)


def test_parts_are_one_line_whatever_they_hold(kit):
    assert "\n" not in kit.format_page([[("", "a\nb\tc\r\n")]], False)


def test_the_page_has_no_escape_sequences_without_colour(kit):
    assert "\033" not in page(kit)
    assert ANSI.sub("", page(kit, colour=True)) == page(kit) != page(kit, colour=True)


@pytest.mark.parametrize("env, colour", [({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_colour_is_by_the_usual_variables(kit, monkeypatch, capsys, env, colour, is_terminal):
    monkeypatch.setattr(kit, "read_environment", lambda names=(): env)
    monkeypatch.setattr(kit, "_os", type("Os", (), {"isatty": lambda fd: is_terminal}))
    kit.show([("bad", "x")])
    assert ("\033" in capsys.readouterr().out) == (colour and is_terminal)
    kit.show([("bad", "x")], is_bar=True)
    assert ("\033" in capsys.readouterr().out) == colour


# --- status


def test_a_session_block_tells_who_it_is_how_full_and_what_it_read(kit):
    text = page(kit)
    for expected in ("session 2a8cf45f · codex · 12s ago · tool calls: 42 · claude-sonnet-5-5", "68%  136,000/200,000 exact, 12s ago",
                     "  gate     1 of 2 files read, not: DECISIONS.md"):
        assert expected in text


def test_a_session_that_was_not_measured_says_so(kit):
    assert "model unknown\n  context  not measured yet" in page(kit, sessions=[dict(SESSION, context=None, model="")])


def test_a_signal_tells_its_severity_age_end_and_for_whom(kit):
    shown = page(kit, colour=True)
    assert re.search(r"critical .*\033\[31m1m ago, until 2026-02-03 \d\d:\d\d:59, every session  CI: 3 tests fail", shown)
    assert "2a8cf45f  CI" in page(kit, signals=[dict(SIGNAL, session="2a8cf45f-2bc7")])


@pytest.mark.parametrize("changes, style", [({"written_at": None}, "33"), ({}, "32")])
def test_a_handoff_is_coloured_by_its_state(kit, changes, style):
    assert re.search(r"\033\[%sm(asked|written)" % style, page(kit, colour=True, handoffs=[dict(HANDOFF, **changes)]))


HANDOFFS = [
    ({"written_at": None, "by": ""}, "asked for 1h ago"),
    ({}, "written 1h ago (agent) → waits for the next session"),
    ({"by": "mechanical"}, "written 1h ago (mechanical) → "),
    ({"delivered_to": "77aa1122-3", "delivered_at": NOW}, "→ to 77aa1122 0s ago, no evidence yet"),
    ({"delivered_to": "77aa1122-3", "delivered_at": NOW, "evidence": "receipt"}, "→ to 77aa1122 0s ago, receipt"),
]


@pytest.mark.parametrize("changes, text", HANDOFFS)
def test_a_handoff_tells_who_wrote_it_who_got_it_and_with_what_evidence(kit, changes, text):
    shown = page(kit, handoffs=[dict(HANDOFF, **changes)])
    assert text in shown and "codex · .context/handoffs/2a8cf45f.md" in shown


@pytest.mark.parametrize("changes, text", [
    ({"paused": {"*": None}}, "paused\n  every session, until `resume`"),
    ({"paused": {"2a8cf45f-2bc7": NOW}}, "paused\n  2a8cf45f, until 2026-02-03"),
    ({"sessions": []}, "no live session; whether the hooks are registered: "),
    ({"problems": ["no disk → buy one"]}, "problems\n  ✗ no disk → buy one")])
def test_what_else_a_page_can_say(kit, changes, text):
    assert text in page(kit, **changes)


@pytest.mark.parametrize("changes, line", [
    ({}, "phase: planning, of init, planning, qa"), ({"phase": "complete"}, "phase: complete, of init"),
    ({"phase": "failed", "last_phase": "qa"}, "phase: failed in qa, of init")])
def test_a_workflow_names_its_phase_among_all(kit, changes, line):
    assert line in page(kit, auto=dict(FLOW, **changes))


@pytest.mark.parametrize("changes, word", [
    ({}, "iteration 2/20, session 2a8cf45f"), ({"session_id": "", "any_prompt": True}, "iteration 2/20, for the next session that prompts"),
    ({"session_id": ""}, "iteration 2/20, for the next session in which a person types a prompt"),
    ({"inert": True}, "inert: not started on this machine, it holds nobody"), ({"needs": "a key"}, "waits for you: a key"),
    ({"active": False, "exit_reason": "stale_state"}, "ended (stale_state)")])
def test_a_workflow_says_how_it_stands(kit, changes, word):
    assert kit.render_workflow(dict(FLOW, **changes))[1] == word
    assert word in page(kit, auto=dict(FLOW, **changes))


def test_a_workflow_without_a_check_says_what_ends_a_phase(kit):
    line = "checks: none, a phase ends on the agent's word"
    check = {"phase": "qa", "command": "make", "agreed": True}
    assert line in kit.render_workflow(FLOW) and line not in kit.render_workflow(dict(FLOW, checks=[check]))


# --- the status line

LINE = {"model": "Sonnet 5.5", "percent": 71, "near": False, "phase": "qa 1/20", "pending": "signals: 2"}


@pytest.mark.parametrize("changes, text", [
    ({}, "███████░░░ 71% of the window · qa 1/20 · signals: 2 · Sonnet 5.5"),
    ({"phase": "", "pending": ""}, "███████░░░ 71% of the window · Sonnet 5.5"),
    ({"near": True, "phase": "", "pending": ""}, "███████░░░ 71% of the window, compaction near · Sonnet 5.5"),
    ({"percent": None}, "qa 1/20 · signals: 2 · Sonnet 5.5"), ({"percent": None, "phase": "", "pending": ""}, "Sonnet 5.5"),
    ({"percent": None, "model": "", "phase": "", "pending": ""}, "ctx")])
def test_the_status_line_says_first_what_is_needed_most(kit, changes, text):
    assert kit.format_page([kit.render_statusline(dict(LINE, **changes))], False) == text


# --- why and replay


def decision(kit, **row):
    return kit.format_page([kit.render_decision({"at": NOW, "session": "2a8cf45f-2bc7", **row})], False)


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
    ({"event": "stop:held", "phase": "qa", "iteration": 0, "reason": "advanced", "check": "exited 0"}, "this one is next (its check exited 0)"),
    ({"event": "gate:emitted", "files": "A.md", "agent": "codex"}, "2a8cf45f  codex: asked the agent to read A.md →"),
    ({"event": "gate:emitted", "files": "A.md", "agent": "claude"}, "2a8cf45f  asked the agent to read A.md →"),
    ({"event": "stop:released", "phase": "qa", "reason": "no_progress"}, "→ let the agent stop, no tool call over 3 stops; phase qa stays."),
    ({"event": "stop:released", "phase": "qa", "reason": "of another version"}, "→ of another version"),
    ({"event": "injection:succeeded", "attempts": 2, "evidence": "receipt"}, "→ receipt at attempt 2"),
    ({"event": "new:event", "what": "{code}", "mode": "gate"}, "new:event → by another version"),
    ({"event": "gate:emitted", "files": "{code}"}, "asked the agent to read {code} →"), ({"event": "gate:emitted"}, "to read ? →"),
    ({"event": None}, "None →"), ({}, "? →")])
def test_a_decision_says_when_who_what_and_by_which_rule(kit, row, said):
    shown = decision(kit, **row)
    assert said in shown and re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  2a8cf45f  ", shown)


@pytest.mark.parametrize("result, text", [
    ({"mode": "gate", "reply": {"hookSpecificOutput": {"additionalContext": "STOP.\nNow"}}}, "12 ms\n     STOP.\n     Now"),
    ({"mode": "gate", "reply": None}, "12 ms, silent"), ({"mode": "", "reply": None}, "not an event of this kit"),
    ({"mode": "stop-enforce", "reply": {"reason": "go on", "systemMessage": "told"}}, "12 ms\n     go on\n     told"),
    ({"mode": "gate", "reply": ["odd"], "error": "it broke"}, "     ✗ it broke")])
def test_a_replayed_event_shows_mode_time_and_text(kit, result, text):
    full = {"event": "PreToolUse", "ms": 12.3, "error": "", **result}
    shown = kit.format_page(kit.render_replay(full, 3), False)
    assert shown.startswith("  3  PreToolUse") and text in shown
