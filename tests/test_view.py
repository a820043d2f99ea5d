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
        "needs": "", "session_id": "2a8cf45f-2bc7", "exit_reason": "", "last_phase": "", "last_error": "", "steps": [], "checks": [],
        "task_description": "Add a login page"}
SESSION = {
    "session": "2a8cf45f-2bc7-4975-91c3-97e00a297524", "agent": "codex", "seen_at": "2026-02-03T10:44:48Z", "tool_calls": 42,
    "model": "claude-sonnet-5-5", "history": [10, 40, 68], "tools": {"Read": 41_000, "Bash": 999},
    "context": {"percent": 68, "tokens": 136_000, "window": 200_000, "exact": True, "at": "2026-02-03T10:44:48Z",
                "shown": "68%", "kind": "exact"},
    "handoff": {"state": "not due", "since": NOW, "reminders": 0, "file": ".context/handoffs/2a8cf45f.md"},
    "gate": {"mode": "directive", "fired": True, "files": ["TASKS.md", "DECISIONS.md"], "read": ["TASKS.md"]},
    "startup": {"outcome": "delivered", "attempts": 1, "evidence": "receipt"},
}
SIGNAL = {"scope": "global", "session": "", "name": "ci", "severity": "critical", "auditor": "ci", "code": "", "age_s": 61,
          "left_s": 200, "text": "CI: 3 tests fail → look at the log"}
HANDOFF = {"session": "2a8cf45f-2bc7", "file": ".context/handoffs/2a8cf45f.md", "agent": "codex", "by": "agent",
           "asked_at": AN_HOUR_AGO, "written_at": AN_HOUR_AGO, "delivered_to": "", "delivered_at": None, "evidence": ""}
METRICS = {"attempted": 5, "succeededOnFirstTry": 3, "succeededAfterRetry": 1, "escalatedToFile": 1, "failed": 0, "confirmedByReceipt": 4}
PAGE = {
    "version": "0.2.0", "at": NOW, "root": "/home/me/project", "doctor": "ctx doctor", "hooks_seen_at": NOW, "paused": {},
    "sessions": [SESSION], "handoffs": [HANDOFF], "signals": [SIGNAL], "auto": FLOW, "problems": [], "fill_in": [],
    "metrics": dict.fromkeys(METRICS, 0), "attention": {"calls": 0, "by": {}},
}


def look(kit, width=100, colour=False, unicode=True):
    return kit.Record(width=width, colour=colour, unicode=unicode)


def page(kit, width=100, colour=False, unicode=True, **changes):
    shape = look(kit, width, colour, unicode)
    return kit.format_page(kit.render_status(json.loads(json.dumps(dict(PAGE, **changes))), shape), shape)


def session_page(kit, **changes):
    return page(kit, sessions=[dict(SESSION, **changes)])


# --- figures


def test_a_bar_is_as_long_as_asked_and_full_only_at_the_end(kit):
    bars = {0: "░" * 10, 1: "█" + "░" * 9, 99: "█" * 9 + "░", 100: "█" * 10}
    assert {percent: kit.format_bar(percent, 10) for percent in bars} == bars
    assert {len(kit.format_bar(percent, 17)) for percent in range(101)} == {17}


@pytest.mark.parametrize("seconds, text", [(-3, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"),
                                           (86399, "23h"), (86400, "1d"), (30 * 86400, "30d")])
def test_an_age_has_one_unit_rounded_down(kit, seconds, text):
    assert kit.format_age(seconds) == text


@pytest.mark.parametrize("text, width", [("abc", 3), ("█░·…→✓●○", 8), ("日本", 4), ("e\u0301", 1), ("⚠️", 1), ("", 0)])
def test_wide_characters_take_two_cells_and_marks_none(kit, text, width):
    assert kit.cells(text) == width


def test_a_cut_text_ends_with_an_ellipsis_and_fits(kit, rounds):
    chance = random.Random(8)
    alphabet = "ab c日本é█→\u0301"
    for _ in range(rounds(300)):
        text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(40)))
        width = chance.randrange(0, 30)
        cut = kit.fit_text(text, width)
        assert kit.cells(cut) <= width
        assert cut == text or cut == "" or cut.endswith("…")


# --- the one way to a terminal


def test_a_line_is_cut_before_it_is_painted(kit):
    line = kit.format_page([[("bad", "abcdef"), ("good", "ghijklmnop")]], look(kit, 10, True))
    assert line == "\033[31mabcdef\033[0m\033[32mghi…\033[0m"


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


def test_without_utf8_every_glyph_of_ours_becomes_one_ascii_character(kit):
    text = page(kit, unicode=False, problems=["x"])
    assert text.isascii()
    assert [len(line) for line in text.split("\n")] == [len(line) for line in page(kit, problems=["x"]).split("\n")]
    assert "tâche" in page(kit, unicode=False, signals=[dict(SIGNAL, text="tâche")])


def test_the_page_has_no_escape_sequences_without_colour(kit):
    assert "\033" not in page(kit)
    assert ANSI.sub("", page(kit, colour=True)) == page(kit) != page(kit, colour=True)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(kit, width):
    text = page(kit, width, problems=["the client was active 2h ago, the hooks were last seen 4d ago; are they registered?"],
                root="/a/very/long/" + "path/" * 60, metrics=METRICS, paused={"*": NOW}, fill_in=["TASKS.md"] * 9,
                attention={"calls": 10, "by": {"gate": {"chars": 9, "messages": 1}}},
                signals=[SIGNAL, dict(SIGNAL, text="日本" * 200)],
                sessions=[dict(SESSION, model="m" * 300), dict(SESSION, startup=None, context=None)])
    assert max(kit.cells(line) for line in text.split("\n")) <= width


@pytest.mark.parametrize("env, colour, unicode", [
    ({}, True, False), ({"LANG": "en_US.UTF-8"}, True, True), ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, True, False),
    ({"LC_CTYPE": "C.utf8", "LANG": "C"}, True, True), ({"LC_ALL": "C.utf8", "LC_CTYPE": "C"}, True, True),
    ({"TERM": "dumb"}, False, False), ({"NO_COLOR": "1"}, False, False)])
@pytest.mark.skipif(os.name == "nt", reason="there the console always takes Unicode")
def test_colour_and_glyphs_are_by_the_usual_variables(kit, monkeypatch, env, colour, unicode):
    monkeypatch.setattr(kit, "read_environment", lambda names=(): env)
    monkeypatch.setattr(kit, "_os", FakeTerminal())
    assert (kit.read_look().colour, kit.read_look().unicode) == (colour, unicode)


@pytest.mark.parametrize("columns, width", [("0", 100), ("", 100), ("7", 20), ("133", 133), ("many", 100), ("-5", 100)])
def test_a_terminal_of_no_columns_is_a_page_wide(kit, monkeypatch, columns, width):
    monkeypatch.setattr(kit, "read_environment", lambda names=(): {"COLUMNS": columns})
    monkeypatch.setattr(kit, "_os", FakeTerminal())
    assert kit.read_look().width == width


def test_a_device_that_only_poses_as_a_terminal_is_none(kit, monkeypatch):
    """NUL on Windows: isatty says yes, and its size is an error."""
    monkeypatch.setattr(kit, "read_environment", lambda names=(): {})
    monkeypatch.setattr(kit, "_os", FakeTerminal(fails=True))
    assert (kit.read_look().colour, kit.read_look().width) == (False, 100)


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


@pytest.mark.parametrize("fired, style", [(True, "\033[33m"), (False, "\033[2m")])
def test_unread_files_stand_out_only_when_they_were_asked_for(kit, fired, style):
    text = page(kit, colour=True, sessions=[dict(SESSION, gate=dict(SESSION["gate"], fired=fired))])
    line, = [line for line in text.split("\n") if "files read" in line]
    assert style in line.partition("gate")[2]


def test_a_session_block_tells_every_mechanism(kit):
    text = page(kit)
    for expected in ("session 2a8cf45f · Codex · 12s ago · 42 calls · claude-sonnet-5-5", "68%  136,000/200,000 exact, 12s ago",
                     "  handoff  not due", "  gate     1 of 2 files read, not: DECISIONS.md", "  startup  delivered, 1 attempt, receipt"):
        assert expected in text


CHANGED = [
    ({"handoff": dict(SESSION["handoff"], state="asked", reminders=3, since=AN_HOUR_AGO)},
     "handoff  asked, 3 reminders in 1h: .context/handoffs/2a8cf45f.md"),
    ({"handoff": dict(SESSION["handoff"], state="written")}, "handoff  written\n"),
    ({"gate": dict(SESSION["gate"], mode="off")}, "gate     switched off"),
    ({"gate": dict(SESSION["gate"], files=[])}, "gate     no context file says anything"),
    ({"gate": dict(SESSION["gate"], fired=False, read=[])}, "gate     not asked yet, 0 of 2 files read, not: TASKS.md, DECISIONS.md"),
    ({"gate": dict(SESSION["gate"], read=["TASKS.md", "DECISIONS.md"])}, "gate     2 of 2 files read\n"),
    ({"startup": None}, "startup  nothing to deliver"),
    ({"startup": {"outcome": "pending", "attempts": 2, "evidence": ""}}, "startup  pending, 2 attempts, no evidence yet"),
    ({"context": None, "model": ""}, "model unknown\n  context  not measured yet"),
    ({"agent": "somebody's"}, "session 2a8cf45f · somebody's · "),
]


@pytest.mark.parametrize("changes, text", CHANGED)
def test_a_session_is_told_by_its_state(kit, changes, text):
    assert text in session_page(kit, **changes) + "\n"


HANDOFFS = [
    ({"written_at": None, "by": ""}, "asked for 1h ago"),
    ({}, "written 1h ago by the agent → waits for the next session"),
    ({"by": "printed"}, "written 1h ago as the agent printed it"), ({"by": "mechanical"}, "by the kit, from the transcript"),
    ({"delivered_to": "77aa1122-3", "delivered_at": NOW}, "→ to 77aa1122 0s ago, no evidence yet"),
    ({"delivered_to": "77aa1122-3", "delivered_at": NOW, "evidence": "receipt"}, "→ to 77aa1122 0s ago, receipt"),
]


@pytest.mark.parametrize("changes, text", HANDOFFS)
def test_a_handoff_tells_who_wrote_it_who_got_it_and_with_what_evidence(kit, changes, text):
    shown = page(kit, 160, handoffs=[dict(HANDOFF, **changes)])
    assert text in shown and "Codex · .context/handoffs/2a8cf45f.md" in shown


@pytest.mark.parametrize("changes, text", [
    ({"paused": {"*": None}}, "paused: every session, until `resume`"), ({"paused": {"2a8cf45f-2bc7": None}}, "paused: 2a8cf45f, until"),
    ({"hooks_seen_at": None}, "start the agent here; whether the hooks are registered: ctx doctor"),
    ({"metrics": METRICS}, "startup   5 sent, 3 arrived at once, 0 failed"),
    ({"fill_in": ["TASKS.md"]}, "fill in   TASKS.md"),
    ({"attention": {"calls": 50, "by": {"gate": {"chars": 300, "messages": 1}}}}, "per 100 tool calls (of 50): gate 600 in 2.0"),
    ({"problems": ["no disk → buy one"]}, "problems\n  ✗ no disk → buy one")])
def test_what_else_a_page_can_say(kit, changes, text):
    assert text in " ".join(page(kit, 120, **changes).split(" "))


@pytest.mark.parametrize("changes, line", [
    ({}, "init ✓ planning ● qa ○"), ({"phase": "complete"}, "init ✓ planning ✓ qa ✓"), ({"phase": "odd"}, "init ● planning ○ qa ○"),
    ({"phase": "failed", "last_phase": "qa"}, "init ✓ planning ✓ qa ✗")])
def test_the_phase_line_shows_done_current_and_coming(kit, changes, line):
    assert kit.phase_line(dict(FLOW, **changes)) == line


def test_a_narrow_phase_line_keeps_marks_and_the_current_name(kit):
    assert kit.phase_line(FLOW, 15) == "✓●○ planning"


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
    (100, {"percent": None, "model": "", "phase": "", "pending": ""}, "ctx")])
def test_the_status_line_says_what_it_measures_and_fits(kit, width, changes, text):
    shape = look(kit, width)
    assert kit.format_page([kit.render_statusline(dict(LINE, **changes), shape)], shape) == text


# --- why and replay


def decision(kit, width=300, **row):
    shape = look(kit, width)
    return kit.format_page(kit.render_decision({"at": NOW, "session": "2a8cf45f-2bc7", **row}, shape), shape)


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
    ({"event": "new:event", "what": "{others}", "mode": "gate"}, "new:event → what {others}"),
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
    shown = kit.format_page(kit.render_replay(full, 3, shape), shape)
    assert shown.startswith("  3  PreToolUse") and text in shown


# --- the usage line is the parser


@pytest.mark.parametrize("word, args, expected", [
    ("status", [], {"session": "", "json": "", "watch": "", "words": [], "rest": []}),
    ("status", ["--session=ab", "--json"], {"session": "ab", "json": "yes"}),
    ("why", ["7"], {"words": ["7"]}), ("signal", ["-", "--ttl", "9"], {"words": ["-"], "ttl": "9"}),
    ("signal", ["--action", "--x", "a=b"], {"words": ["a=b"], "action": "--x"}),
    ("auto", ["start", "--skip", "qa", "a task", "--skip=fix"], {"words": ["start", "a task"], "skip": ["qa", "fix"]}),
    ("replay", ["a", "b", "c"], {"words": ["a", "b", "c"]}),
    ("statusline", ["--only", "--", "sh", "-c", "x --help"], {"only": "yes", "rest": ["sh", "-c", "x --help"]}),
    ("wrap", ["--agent", "aider", "--", "aider", "--x"], {"agent": "aider", "rest": ["aider", "--x"]}),
])
def test_words_are_read_by_the_usage_line(kit, word, args, expected):
    given = vars(kit.parse_words(word, args))
    assert {key: given[key] for key in expected} == expected


def test_every_command_has_a_usage_line_that_its_own_parser_reads(kit):
    for word, (usage, about) in kit.COMMANDS.items():
        groups = kit.parse_usage(usage)
        assert about.endswith(".") and len("  %-13s %s" % (word, about)) <= 100
        assert all(name and (name.startswith("--") or not kind) for group in groups for name, kind, _ in group), usage


def test_every_explained_option_is_one_of_a_command(kit):
    options = {name for usage, _ in kit.COMMANDS.values() for group in kit.parse_usage(usage) for name, _, _ in group}
    assert set(kit.OPTIONS) <= options
