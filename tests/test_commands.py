"""Commands: what people run, in a pipe and on a terminal. What only a shell sees is in commands.bats."""
from __future__ import annotations

import json
import os
import re
import select
import shutil
import struct
import subprocess
import time

import pytest

from helper import IS_WINDOWS, KIT, PYTHON, REPO, RUN_TIMEOUT_S, assistant_row, load_kit, recorded

COMMANDS = list(load_kit().COMMANDS)
UTF8 = {"LC_ALL": "C.UTF-8"}
SESSION = "2a8cf45f-2bc7-4975-91c3-97e00a297524"


def text(result) -> str:
    assert (result.rc, result.err) == (0, b""), result.err.decode()
    return result.out.decode("utf-8").rstrip("\n")


def failure(result, code: int = 1) -> tuple[str, str]:
    """The two lines of a failed command, without their heads."""
    assert (result.rc, result.out) == (code, b"")
    error, hint = result.err.decode("utf-8").rstrip("\n").split("\n")
    assert error.startswith("error: ") and hint.startswith("hint: ")
    return error[7:], hint[6:]


def measured(project, tokens: int, session: str = SESSION, tool: str = "Bash", **changes) -> None:
    """One tool call whose transcript says so many tokens."""
    project.write_transcript([assistant_row(tokens, session)], session)
    project.calls = getattr(project, "calls", 0) + 1
    event = project.event("PostToolUse." + tool, session_id=session, tool_use_id="toolu_%d" % project.calls, **changes)
    assert project.call("monitor", event).rc == 0


def started(project, session: str = SESSION) -> None:
    """A session that got the handoff of the one before."""
    project.call("inject", project.event("SessionStart.startup", session_id="before", model=None))
    project.write(".context/handoffs/before.md", "# Handoff\n\nGo on with the parser.\n", time.time() + 1)
    event = project.event("SessionStart.startup", session_id=session, model=None)
    assert "parser" in project.call("inject", event).context


def shown_data(project, *words: str) -> dict:
    return json.loads(text(project.ask("status", "--json", *words)))


# --- all commands alike

PROGRAM = "py -3" if IS_WINDOWS else "python3"


@pytest.mark.parametrize("word", COMMANDS)
def test_help_says_what_a_command_does_and_gives_an_example(project, word):
    shown = text(project.ask(word, "--help"))
    assert shown.startswith("usage: ctx_hooks.py " + word)
    assert "\nexample: %s " % PROGRAM in shown and " %s" % word in shown.partition("example: ")[2]


@pytest.mark.parametrize("words, said", [
    (["status", "--bogus"], "unknown option --bogus"), (["status", "--jsno"], "did you mean --json?"),
    (["context", "x"], "one word too many: x"), (["why", "many"], "many wants a number"), (["why", ""], " wants a number"), (["signal"], "SUMMARY is missing"),
    (["signal", "x", "--severity", "loud"], "use one of info, warning, critical"),
    (["signal", "x", "--ttl", "soon"], "--ttl wants a number"),
    (["auto"], "start|status|resume|stop is missing"), (["auto", "fly"], "use one of start"), (["auto", "strat"], "did you mean start?"),
    (["pause", "--for"], "--for needs a value"), (["resume", "x"], "one word too many"), (["statusline", "--bogus"], "unknown option"),
    (["replay"], "FILE… is missing"), (["replay", "x", "--agent", "nobody"], "--agent: use one of claude"),
    (["completion", "powershell"], "use one of bash, zsh, fish")])
def test_wrong_usage_exits_2_with_error_and_hint(project, words, said):
    error, hint = failure(project.ask(*words), 2)
    assert said in error and hint.replace('"', "").endswith("ctx_hooks.py %s --help" % words[0])


@pytest.mark.parametrize("words", [["status"], ["context"], ["why"], ["signal", "x"], ["auto", "status"], ["pause"],
                                   ["resume"], ["config"], ["replay", "x"]])
def test_outside_a_project_nothing_is_created_and_the_hint_says_what_to_do(bare_project, words):
    before = bare_project.tree()
    error, hint = failure(bare_project.ask(*words))
    assert "no .context folder" in error and "mkdir .context" in hint
    assert bare_project.tree() == before


@pytest.mark.skipif(IS_WINDOWS, reason="Windows deletes no folder that somebody stands in")
def test_a_folder_that_is_gone_is_said(project):
    project.write("gone/x", "")
    script = 'cd gone && rm -r ../gone && exec "$0" "$1" status'
    done = subprocess.run(["/bin/sh", "-c", script, PYTHON, KIT], cwd=project.root, env=project.env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"error: " in done.stderr and b"hint: " in done.stderr and b"Traceback" not in done.stderr
    project.write("gone/x", "")
    done = subprocess.run(["/bin/sh", "-c", script.replace("status", "stauts"), PYTHON, KIT], cwd=project.root, env=project.env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"hint: did you mean status?" in done.stderr


def test_a_command_is_the_same_as_a_process(project):
    measured(project, 50_000)
    for words in (["context"], ["why", "--json"], ["auto", "status"]):
        assert project.command(*words) == project.ask(*words)


def test_commands_work_from_a_folder_below_the_project(project):
    project.write("src/deep/x", "")
    assert project.root in text(project.ask("status", cwd=project.path("src/deep"), COLUMNS="300"))


@pytest.mark.skipif(IS_WINDOWS, reason="into a POSIX shell; test_windows has cmd")
def test_a_hint_can_be_pasted_as_it_stands(project):
    error, hint = failure(project.command("statsu --now"))
    done = subprocess.run(["/bin/sh", "-c", hint], cwd=project.root, env=project.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and b"for people" in done.stdout
    assert failure(project.ask("statsu --now", CTX_LAUNCHER="1"))[1] == "ctx --help"


def test_a_kit_below_the_folder_one_is_in_is_named_from_there(project):
    os.makedirs(project.path(".claude/hooks"))
    shutil.copy(KIT, project.path(".claude/hooks/ctx_hooks.py"))
    done = subprocess.run([PYTHON, ".claude/hooks/ctx_hooks.py", "no such"], cwd=project.root, env=project.env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    last = done.stderr.decode().splitlines()[-1].replace('"', "")
    assert last == "hint: %s .claude/hooks/ctx_hooks.py --help" % PROGRAM


HOSTILE = "\x1b]0;evil\x07\x1b[31m\u202eevil\nFAIL  forged\x9b2J"


@pytest.mark.skipif(IS_WINDOWS, reason="Windows has no such names of files")
def test_nothing_hostile_in_names_keys_and_texts_reaches_a_terminal(project):
    """State files may be a stranger's: names of files, keys and values of JSON, settings, times."""
    strange = HOSTILE.replace("/", "").encode().decode()
    project.write(".context/state/%s.json" % strange, json.dumps({
        "session_start": HOSTILE, "agent": HOSTILE, "model": HOSTILE, "measured_model": HOSTILE, "window": 1000,
        "estimated_tokens": 900, "breakdown": {HOSTILE: 9}, "files_read": [HOSTILE], "startup": {"outcome": HOSTILE},
        "threshold_crossed_at": "2026-02-03T10:45:00Z"}))
    project.write(".context/state/pause.json", json.dumps({HOSTILE: None, "inode": os.stat(project.path(".context")).st_ino}))
    project.write(".context/signals/sessions/%s/x.md" % strange, HOSTILE)
    project.write(".caw/auto-state.json", json.dumps({
        "active": True, "phase": HOSTILE, "phases": [HOSTILE, "b"], "task_description": HOSTILE, "session_id": HOSTILE,
        "until": HOSTILE, "last_error": {"message": HOSTILE}, "needs": HOSTILE,
        "signals": {"detected_signals": [{"signal": HOSTILE, "detected_at": HOSTILE}]}}))
    project.write(".context/events.jsonl", "".join(json.dumps(row) + "\n" for row in (
        {"at": HOSTILE, "session": HOSTILE, "event": HOSTILE, HOSTILE: HOSTILE},
        {"event": "stop:held", "reason": HOSTILE, "phase": HOSTILE, "check": HOSTILE}, {"event": ["x"]})))
    project.write(".contextrc", "%s: 1\ngate:\n  mode: %s\n" % (HOSTILE.replace("\n", ""), HOSTILE.replace("\n", "")))
    inode = os.stat(project.path(".context")).st_ino
    project.write(".context/state/handoffs.json", json.dumps({
        "inode": inode, "first_event": "2026-02-03T10:45:00Z",
        "handoffs": {HOSTILE: {"file": HOSTILE, "agent": HOSTILE, "by": HOSTILE, "written_at": "2026-02-03T10:45:00Z",
                               "delivered_to": HOSTILE, "evidence": HOSTILE}}}))
    for words in (["status"], ["why"], ["config"], ["doctor"], ["auto", "status"], ["status", "--session", HOSTILE]):
        result = project.ask(*words, **UTF8)
        said = (result.out + result.err).decode("utf-8")
        assert not [c for c in said if c < " " and c != "\n" or "\x7f" <= c < "\xa0" or c == "\u202e"], words
        assert b"Traceback" not in result.err and "\nFAIL  forged" not in said, words
    assert json.loads(text(project.ask("status", "--json")))


# --- status


def test_a_new_project_is_told_what_to_do_next(project):
    lines = text(project.ask("status")).split("\n")
    assert "no live session" in lines[1] and lines[1].replace('"', "").endswith("ctx_hooks.py doctor")


def test_status_changes_nothing(project):
    started(project)
    measured(project, 171_000)
    before = project.tree()
    text(project.ask("status"))
    shown_data(project)
    assert project.tree() == before


def test_status_shows_a_session_from_its_start_to_the_reminder(project):
    started(project)
    project.call("gate", project.event("PreToolUse.Bash", session_id=SESSION))
    for tokens in (40_000, 90_000, 171_000):
        measured(project, tokens)
    shown = text(project.ask("status", **UTF8))
    for expected in ("session 2a8cf45f · claude", "tool calls: 3", "85%  171,000/200,000 exact", "0 of 2 files read",
                     "2a8cf45f asked for ", "claude · .context/handoffs/2a8cf45f.md"):
        assert expected in shown
    session = shown_data(project)["sessions"][0]
    assert session["context"]["percent"] == 85 and session["gate"].startswith("0 of 2 files read")


def test_status_shows_what_was_read_and_the_evidence(project):
    started(project)
    said = {"content": [{"type": "text", "text": "ACK: context received"}]}
    project.write_transcript([assistant_row(9000, SESSION, message=said, timestamp=None)], SESSION)
    event = project.event("PostToolUse.Read", session_id=SESSION,
                          tool_input={"file_path": project.path(".context/TASKS.md")})
    project.call("monitor", event)
    project.call("gate", project.event("PreToolUse.Bash", session_id=SESSION))
    shown = " ".join(text(project.ask("status", **UTF8)).split())
    assert "1 of 2 files read, not: CONSTITUTION.md" in shown and re.search("→ to 2a8cf45f [0-9]+s ago, acknowledgement", shown)
    assert project.read_json(".context/metrics.json")["succeededOnFirstTry"] == 1


def test_status_shows_the_ledger_who_wrote_what_and_who_got_it(project):
    started(project)
    measured(project, 171_000)
    shown = text(project.ask("status", COLUMNS="160", **UTF8)).partition("handoffs\n")[2]
    assert re.search(r"written [0-9]+s ago \(agent\) → to 2a8cf45f", shown) and "no evidence yet" in shown
    assert "2a8cf45f asked for " in shown and "claude · .context/handoffs/2a8cf45f.md" in shown
    project.write(".context/handoffs/2a8cf45f.md", "# Handoff\n\nThe parser is done.\n")
    measured(project, 172_000)
    rows = {row["session"]: row for row in shown_data(project)["handoffs"]}
    assert rows[SESSION]["by"] == "agent" and rows[SESSION]["written_at"] and not rows[SESSION]["delivered_to"]
    assert "waits for the next session" in text(project.ask("status", COLUMNS="160", **UTF8))


def test_the_ledger_is_shown_newest_first(project, kit):
    rows = {"old": {"asked_at": "2026-02-03T11:00:00Z"}, "new": {"asked_at": "2026-02-03T10:00:00Z", "written_at": "2026-02-03T12:00:00Z"}}
    project.write(".context/state/handoffs.json", json.dumps({
        "inode": os.stat(project.path(".context")).st_ino, "first_event": "2026-02-01T00:00:00Z", "handoffs": rows}))
    assert [row["session"] for row in shown_data(project)["handoffs"]] == ["new", "old"]


def test_a_whole_id_names_its_session_also_when_another_begins_with_it(project):
    for session in ("s1", "s10"):
        measured(project, 40_000, session)
    assert [row["session"] for row in shown_data(project, "--session", "s1")["sessions"]] == ["s1"]


def test_status_counts_what_was_said(project):
    """Nothing but what the recorder and the sessions hold: 40 calls that ended, 10 of a live session."""
    project.write(".context/state/s1.json", '{"tool_calls": 10}')
    rows = [{"event": "session:ended", "calls": 40}, {"event": "gate:emitted", "chars": 300},
            {"event": "signals:delivered", "chars": 100}, {"event": "signals:delivered", "chars": 50},
            {"event": "handoff:mechanical"}, {"event": "stop:released", "chars": 0},
            {"event": "injection:attempted", "type": "wrap", "chars": 3000}]  # no tool call is counted there
    project.write(".context/events.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert shown_data(project)["attention"] == {"calls": 50, "by": {
        "gate": {"messages": 1, "chars": 300}, "signals": {"messages": 2, "chars": 150}}}


def test_status_names_the_context_files_to_fill_in_when_none_says_anything(project):
    for name in ("CONSTITUTION.md", "TASKS.md"):
        project.write(".context/" + name, "# To do\n\n- TBD\n")
    assert "fill in .context/CONSTITUTION.md, .context/TASKS.md" in text(project.ask("status"))


def test_signals_show_severity_age_and_end_and_info_is_there(project, kit):
    for severity in ("info", "critical", "warning"):
        text(project.ask("signal", "it is " + severity, "--severity", severity, "--global", "--ttl", "600"))
    text(project.ask("signal", "for one", "--session", SESSION, "--severity", "info"))
    lines = [line for line in text(project.ask("status", **UTF8)).split("\n") if " ago, until " in line]
    assert [line.split()[0] for line in lines] == ["critical", "warning", "info", "info"]
    assert ", every session  it is critical" in lines[0] and ", 2a8cf45f  for one" in lines[3]
    rows = shown_data(project)["signals"]
    assert [(kit.parse_iso(row["until"]) - kit.parse_iso(row["at"])) for row in rows] == [600, 600, 600, 300]


def test_session_picks_one_by_its_first_letters(project):
    for session in ("aaaa-1", "aabb-2"):
        measured(project, 40_000, session)
        text(project.ask("signal", "for " + session, "--session", session))
    data = shown_data(project, "--session", "aab")
    assert [s["session"] for s in data["sessions"]] == ["aabb-2"]
    assert [s["text"] for s in data["signals"]] == ["for aabb-2"]
    error, hint = failure(project.ask("status", "--session", "aa"))
    assert "more than one" in error and "aaaa-1" in hint and "aabb-2" in hint
    for word in ("status", "context"):
        error, hint = failure(project.ask(word, "--session", "../../x"))
        assert "no session ../../x here" in error and "aaaa-1" in hint


@pytest.mark.parametrize("session", ["ABC-1", "we:ird/x", "ü n"])
def test_session_picks_one_by_its_whole_id_whatever_stands_in_it(project, session):
    measured(project, 50_000, session)
    measured(project, 50_000, "abc-12")
    assert text(project.ask("context", "--session", session)).startswith("25% 50000/200000 exact ")


@pytest.mark.parametrize("settings, state, row", [
    ("gate:\n  mode: off\n", {}, "gate     switched off"), ("gate:\n  files: [NONE.md]\n", {}, "gate     0 of 0 files read"),
    ("", {}, "gate     0 of 2 files read, not: CONSTITUTION.md, TASKS.md"),
    ("", {"files_read": ["CONSTITUTION.md", "TASKS.md"]}, "gate     2 of 2 files read\n"),
    ("", {"agent": "somebody's"}, "session s1 · somebody's · ")])
def test_a_session_is_told_by_its_state(project, settings, state, row):
    project.write(".contextrc", settings)
    project.write(".context/state/s1.json", json.dumps(state))
    assert row in text(project.ask("status")) + "\n"


def test_the_ten_newest_sessions_are_shown_and_any_other_when_asked_for(project):
    for number in range(12):
        path = project.write(".context/state/s%02d.json" % number, "{}")
        os.utime(path, (time.time() - 60 * number,) * 2)
    assert [s["session"] for s in shown_data(project)["sessions"]] == ["s%02d" % number for number in range(10)]
    assert [s["session"] for s in shown_data(project, "--session", "s11")["sessions"]] == ["s11"]


def test_problems_are_listed_one_by_one(project):
    measured(project, 40_000)
    project.write(".contextrc", "gate:\n  mode: loud\nbogus: 1\n")
    project.write(".context/state/aside/x.json.2026-1", "{")
    project.write(".context/state/errors.log", "boom")
    project.write(".caw/auto-state.json", "{broken")
    problems = "\n".join(shown_data(project)["problems"])
    for expected in (".contextrc line 2", "unknown setting `bogus`", "unreadable files were set aside (1)", "internal errors were logged",
                     "is not a JSON object"):
        assert expected in problems
    assert "problems" in text(project.ask("status"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]",
                                     b'{"breakdown": 3, "history": [{}, "x", 1e99], "startup": {"attempts": "many"},'
                                     b' "files_read": [1, {}], "threshold_crossed_at": 7, "session_start": []}',
                                     b"\xff\xfe"])
def test_status_bears_any_state_file(project, content):
    project.write(".context/state/s1.json", content)
    for name in (".context/metrics.json", ".context/state/pause.json", ".caw/auto-state.json", ".context/events.jsonl"):
        project.write(name, content)
    assert "session s1" in text(project.ask("status"))
    text(project.ask("why"))


def test_the_workflow_is_on_the_page(project):
    text(project.ask("auto", "start", "Add a login page", "--phase", "planning"))
    assert "phase: planning, of expansion, init, planning, " in text(project.ask("status"))
    text(project.ask("auto", "stop"))
    assert "ended (user_cancelled)" in text(project.ask("status"))


def test_a_workflow_from_elsewhere_is_called_inert(project):
    project.write(".caw/auto-state.json", '{"active": true, "phase": "qa", "session_id": "theirs", "task_description": "x"}')
    assert "inert: not started on this machine" in text(project.ask("status", **UTF8))
    assert any("inert" in problem for problem in shown_data(project)["problems"])
    text(project.ask("auto", "start", "mine"))
    assert "inert" not in text(project.ask("status", **UTF8))


def test_watch_needs_a_terminal(project):
    assert "needs a terminal" in failure(project.ask("status", "--watch"))[0]


# --- context


def test_context_prints_the_measure_of_the_most_recent_session(project):
    measured(project, 50_000, "s1")
    measured(project, 171_000, "s2")
    then = time.time() - 60
    os.utime(project.path(".context/state/s1.json"), (then, then))
    assert text(project.ask("context")) == "85% 171000/200000 exact s2"
    assert text(project.ask("context", "--session", "s1")) == "25% 50000/200000 exact s1"
    assert text(project.ask("context", CLAUDE_CODE_SESSION_ID="s1")) == "25% 50000/200000 exact s1"
    data = json.loads(text(project.ask("context", "--json")))
    assert {key: data[key] for key in ("session", "percent", "tokens", "window", "exact")} == {
        "session": "s2", "percent": 85, "tokens": 171_000, "window": 200_000, "exact": True}


def test_an_estimate_is_marked_twice(project):
    project.call("monitor", project.event("PostToolUse.Bash", session_id="s1"))
    assert text(project.ask("context")).startswith("~") and "estimated s1" in text(project.ask("context"))
    shown = text(project.ask("status"))
    assert " ~" in shown and " estimated, " in shown


def test_context_without_a_measure_is_an_error(project):
    assert "has not been measured" in failure(project.ask("context"))[0]
    assert failure(project.ask("context", CLAUDE_CODE_SESSION_ID="nobody"))


def test_context_prefers_newer_numbers_of_the_status_line(project):
    measured(project, 50_000, SESSION)
    text(project.ask("statusline", stdin=status_input(project, session_id=SESSION)))
    assert text(project.ask("context")) == "15% 150000/1000000 exact " + SESSION


def test_context_shows_the_monitors_numbers_when_they_are_newer(project):
    text(project.ask("statusline", stdin=status_input(project, session_id=SESSION)))
    measured(project, 50_000, SESSION)
    assert text(project.ask("context")).startswith("25% 50000/200000 exact")


def test_a_measure_is_as_old_as_the_one_who_made_it_says(project, kit):
    """After a compaction the status line is asked before there are numbers again."""
    measured(project, 50_000, SESSION)
    at = json.loads(text(project.ask("context", "--json")))["at"]
    handed = {"window": 200_000, "used": 0, "model": "m", "at": kit.format_iso(time.time() + 60)}
    project.write(".context/state/%s.statusline" % SESSION, json.dumps(handed))
    assert json.loads(text(project.ask("context", "--json")))["at"] == at


# --- why


def test_why_tells_the_last_decisions_newest_last(project):
    started(project)
    project.call("gate", project.event("PreToolUse.Bash", session_id=SESSION))
    measured(project, 171_000)
    shown = text(project.ask("why", COLUMNS="300", **UTF8))
    parts = ["sent the startup context, attempt 1", "asked the agent to read CONSTITUTION.md, TASKS.md",
             "saw the context reach 85%", "asked for the handoff at 85%", "wrote the signal CTX_HEALTH_85"]
    positions = [shown.find(part) for part in parts]
    assert -1 not in positions and positions == sorted(positions)
    assert text(project.ask("why", "1", **UTF8)).count("→ ") == 1
    assert len(json.loads(text(project.ask("why", "2", "--json")))) == 2


def test_why_has_something_to_say_when_nothing_happened(project):
    assert "nothing was said or decided" in text(project.ask("why"))
    assert json.loads(text(project.ask("why", "--json"))) == []


# --- statusline


def status_input(project, **changes) -> bytes:
    data = recorded("statusLine")
    data.update(session_id="s1", cwd=project.root, workspace={"current_dir": project.root, "project_dir": project.root})
    data["context_window"].update(context_window_size=1_000_000, current_usage={
        "input_tokens": 100, "output_tokens": 9_000, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 149_900})
    data.update(changes)
    return json.dumps(data).encode()


PLAIN = {"NO_COLOR": "1", "CLAUDE_PROJECT_DIR": None, **UTF8}


def test_the_status_line_shows_model_fullness_phase_and_signals(project):
    text(project.ask("auto", "start", "a task", "--phase", "qa", "--session", "s1"))
    text(project.ask("signal", "one", "--session", "s1"))
    text(project.ask("signal", "info is not counted", "--session", "s1", "--severity", "info"))
    line = text(project.ask("statusline", stdin=status_input(project), **PLAIN))
    assert line == "█░░░░░░░░░ 15% of the window · qa 0/20 · signals: 1 · Sonnet 5.5"


def test_a_status_line_of_ones_own_can_stand_alone(project):
    own = dict(stdin=status_input(project), **PLAIN)
    assert text(project.ask("statusline", "--only", "--", "echo mine", **own)).strip() == "mine"
    assert text(project.ask("statusline", "--only", "--", "exit 1", **own)).endswith("Sonnet 5.5")


def test_the_status_line_says_when_the_compaction_is_near(project):
    window = {"context_window_size": 200_000, "current_usage": {"input_tokens": 143_000}}
    data = status_input(project, context_window=window)
    assert "71% of the window, compaction near" in text(project.ask("statusline", stdin=data, **PLAIN))
    project.write(".context/state/s1.json", '{"compacts": false}')
    assert "compaction near" not in text(project.ask("statusline", stdin=data, **PLAIN)), "there is none"


def test_the_status_line_hands_window_and_usage_to_the_monitor(project):
    text(project.ask("statusline", stdin=status_input(project), **PLAIN))
    handed = project.read_json(".context/state/s1.statusline")
    assert {key: handed[key] for key in ("window", "used", "model")} == {
        "window": 1_000_000, "used": 150_000, "model": "claude-sonnet-5-5"}
    assert handed["at"].endswith("Z")
    before = os.stat(project.path(".context/state/s1.statusline")).st_mtime_ns
    text(project.ask("statusline", stdin=status_input(project), **PLAIN))
    assert os.stat(project.path(".context/state/s1.statusline")).st_mtime_ns == before


def test_the_monitor_uses_the_window_it_was_handed(project):
    data = status_input(project, model={"id": "claude-sonnet-4-5"})
    text(project.ask("statusline", stdin=data, **PLAIN))
    measured(project, 171_000, "s1")
    assert text(project.ask("context", "--json")).find('"window": 1000000') > 0


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe\x00",
                                  b'{"context_window": 5, "model": [], "session_id": {}}',
                                  b'{"context_window": {"context_window_size": "x", "current_usage": {"a": -1}}}',
                                  b'{"session_id": "s1", "cwd": 7, "workspace": "x"}'])
def test_the_status_line_never_fails(project, data):
    assert text(project.ask("statusline", stdin=data, **PLAIN))


def test_the_status_line_creates_nothing_outside_a_project(bare_project):
    before = bare_project.tree()
    line = text(bare_project.ask("statusline", stdin=status_input(bare_project), **PLAIN))
    assert "15%" in line and bare_project.tree() == before


def test_before_the_first_answer_the_status_line_shows_the_model_alone(project):
    data = dict(recorded("statusLine.before-first-answer"), session_id="s1", cwd=project.root)
    assert text(project.ask("statusline", stdin=json.dumps(data).encode(), **PLAIN)) == "Sonnet 5.5"


def test_the_status_line_says_paused(project):
    text(project.ask("pause"))
    assert text(project.ask("statusline", stdin=status_input(project), **PLAIN)).split(" · ")[1] == "paused"


@pytest.mark.skipif(IS_WINDOWS, reason="programs of a POSIX shell; test_windows has cmd")
@pytest.mark.parametrize("words, expected", [
    (["--", "printf", "mine"], "mine\n█"), (["--", "cat >/dev/null; printf 'a b'"], "a b\n█"),
    (["--", "sh", "-c", "exit 3"], "█"), (["--", "/nowhere/at all", "x"], "█"), (["--", "false"], "█"),
    (["--", "sh", "-c", "grep -o Sonnet | head -1; exit 1"], "Sonnet\n█")])
def test_a_status_line_of_ones_own_comes_first_and_its_failure_is_harmless(project, words, expected):
    assert text(project.ask("statusline", *words, stdin=status_input(project), **PLAIN)).startswith(expected)


@pytest.mark.skipif(IS_WINDOWS, reason="a POSIX shell tells its process; Wine's taskkill ends no tree")
def test_a_status_line_that_hangs_is_ended(project):
    pid_file = project.path("pid")
    line = text(project.ask("statusline", "--", "echo early; echo $$ >'%s'; sleep 600" % pid_file.replace("'", "'\\''"),
                                stdin=status_input(project), **PLAIN))
    assert line.startswith("early\n█")
    with open(pid_file) as source, pytest.raises(ProcessLookupError):
        os.kill(int(source.read()), 0)


# --- pause and resume


def test_pause_silences_every_hook_until_resume(project):
    event = project.event("PreToolUse.Bash", session_id=SESSION)
    assert text(project.ask("pause")) == "paused every session until `resume`"
    assert project.call("gate", event).is_silent
    assert "paused\n  every session, until `resume`" in text(project.ask("status"))
    assert text(project.ask("resume")) == "resumed every session"
    assert "STOP" in project.call("gate", event).context


def test_a_pause_of_one_session_leaves_the_others(project):
    measured(project, 40_000)
    assert SESSION in text(project.ask("pause", "--session", SESSION[:6], "--for", "30m"))
    assert project.call("gate", project.event("PreToolUse.Bash", session_id=SESSION)).is_silent
    assert project.call("gate", project.event("PreToolUse.Bash", session_id="other")).context
    shown = text(project.ask("status"))
    assert "paused\n  2a8cf45f, until " in shown
    text(project.ask("resume", "--session", SESSION))
    assert project.call("gate", project.event("PreToolUse.Bash", session_id=SESSION)).context


@pytest.mark.parametrize("until", ['"2020-01-01T00:00:00Z"', '"soon"', "5", "{}"])
def test_a_pause_that_is_over_or_broken_silences_nobody(project, until):
    inode = os.stat(project.path(".context")).st_ino
    project.write(".context/state/pause.json", '{"*": %s, "inode": %d}' % (until, inode))
    assert project.call("gate", project.event("PreToolUse.Bash", session_id=SESSION)).context
    assert shown_data(project)["paused"] == {}


@pytest.mark.parametrize("name", ["pause", "fallback", "metrics", "monitor-state", "auto-state", "events.jsonl", "handoffs-7"])
def test_a_session_called_like_one_of_our_files_is_a_session_like_any_other(project, name):
    measured(project, 40_000, name)
    assert not project.exists(".context/state/%s.json" % name)
    data = shown_data(project)
    assert [s["tool_calls"] for s in data["sessions"]] == [1] and data["paused"] == {}


def test_resume_of_one_session_leaves_the_others_paused(project):
    for session in ("s1", "s2"):
        text(project.ask("pause", "--session", session))
    text(project.ask("resume", "--session", "s1"))
    pauses = project.read_json(".context/state/pause.json")
    assert pauses.pop("inode") and pauses == {"s2": None}
    text(project.ask("resume"))
    assert list(project.read_json(".context/state/pause.json")) == ["inode"]


def test_resume_of_one_session_ends_the_pause_of_all_too(project):
    for words in (["pause"], ["resume", "--session", "s1"]):
        text(project.ask(*words))
    assert list(project.read_json(".context/state/pause.json")) == ["inode"]


def test_a_pause_that_came_with_a_clone_is_not_taken_over(project):
    project.write(".context/state/pause.json", '{"*": null, "inode": 1}')
    text(project.ask("pause", "--session", "s2"))
    assert project.call("gate", project.event("PreToolUse.Bash", session_id="s1")).context


@pytest.mark.parametrize("duration", ["soon", "0", "90", "-5m", "5x", "1.5h", "m", "9" * 9 + "d", ""])
def test_a_duration_that_is_none_is_explained(project, duration):
    if not duration:
        assert "until `resume`" in text(project.ask("pause", "--for="))
        return
    error, hint = failure(project.ask("pause", "--for=" + duration))
    assert "not a duration" in error and "30m" in hint


@pytest.mark.parametrize("duration, seconds", [("90s", 90), ("30m", 1800), ("2H", 7200), ("1d", 86400)])
def test_durations(project, kit, duration, seconds):
    text(project.ask("pause", "--for", duration))
    left = kit.parse_iso(project.read_json(".context/state/pause.json")["*"]) - time.time()
    assert seconds - 60 < left <= seconds


# --- signal


def test_a_signal_by_hand_reaches_the_agent_with_the_next_prompt(project):
    path = text(project.ask("signal", "CI: 3 tests fail", "--action", "Look first", "--session", "s1", "--code", "CI"))
    assert path.startswith(project.path(".context/signals/sessions/s1/external-"))
    said = project.call("inject", project.event("UserPromptSubmit", session_id="s1")).context
    assert said == "⚠️ [ctx monitor] CI: 3 tests fail\n→ Look first"


def test_a_signal_is_for_everybody_unless_a_session_is_known(project):
    assert "/signals/global/" in text(project.ask("signal", "x"))
    assert "/sessions/s9/" in text(project.ask("signal", "x", CLAUDE_CODE_SESSION_ID="s9"))
    assert "/signals/global/" in text(project.ask("signal", "x", "--global", CLAUDE_CODE_SESSION_ID="s9"))


def test_a_signal_comes_from_stdin_and_replaces_its_namesake(project):
    first = text(project.ask("signal", "-", "--name", "ci", stdin="one\r\n→ do it\r\n".encode()))
    assert text(project.ask("signal", "two", "--name", "ci")) == first
    assert project.read(os.path.relpath(first, project.root)).endswith("---\ntwo\n")


@pytest.mark.parametrize("words", [["signal", " "], ["signal", "x", "--ttl", "0"], ["signal", "x", "--ttl",
                                                                                    "99999999"]])
def test_a_signal_that_makes_no_sense_is_refused(project, words):
    failure(project.ask(*words))
    assert not project.exists(".context/signals")


def test_hostile_names_stay_inside_the_signals_folder(project):
    path = text(project.ask("signal", "x", "--name", "../../../escape", "--session", "../../s"))
    assert os.path.realpath(path).startswith(os.path.realpath(project.path(".context/signals/sessions")) + os.sep)


# --- auto


def test_a_workflow_is_started_shown_and_stopped(project):
    assert text(project.ask("auto", "status")).startswith("no workflow")
    lines = text(project.ask("auto", "start", "Build it", "--skip-expansion", "--skip", "fix")).split("\n")
    assert lines[:3] == ["phase: init, of init, planning, execution, qa, review, check, reflect",
                         "iteration 0/20, for the next session in which a person types a prompt", "task: Build it"]
    assert len(lines) == 5 and lines[4].startswith("out: ") and "`ctx cancel`" in lines[4]
    assert text(project.ask("auto", "status")).split("\n") == lines
    data = json.loads(text(project.ask("auto", "status", "--json")))
    assert data["phase"] == "init" and data["token"] == ""
    assert "active already" in failure(project.ask("auto", "start", "again"))[0]
    assert "for the next session that prompts" in text(project.ask("auto", "start", "again", "--force", "--any"))
    assert project.read_json(".caw/auto-state.json")["any_prompt"] is True
    assert text(project.ask("auto", "stop")) == "cancelled"
    assert text(project.ask("auto", "stop")) == "no workflow is active"


@pytest.mark.skipif(os.name == "nt", reason="needs a link")
def test_a_workflow_that_cannot_be_stopped_is_not_called_inactive(project, tmp_path):
    text(project.ask("auto", "start", "Build it"))
    os.rename(project.path(".caw"), str(tmp_path / "caw"))
    os.symlink(str(tmp_path / "caw"), project.path(".caw"))
    error, _ = failure(project.ask("auto", "stop"))
    assert error == "cannot write .caw/auto-state.json"
    assert project.read_json(".caw/auto-state.json")["active"] is True


@pytest.mark.parametrize("words, said", [
    (["  "], "the task is empty"), (["x", "--phase", "qa", "--skip-qa"], "there is no phase qa"), (["x", "--phase", "exekution"], "there is no phase exekution"),
    (["x", "--skip", "nothing"], "there is no phase nothing")])
def test_a_workflow_that_makes_no_sense_is_not_started(project, words, said):
    assert said in failure(project.ask("auto", "start", *words))[0]
    assert not project.exists(".caw")


@pytest.mark.parametrize("given, shown", [("0", "iteration 0/1,"), ("7", "iteration 0/7,"), ("51", "iteration 0/50,")])
def test_the_iterations_of_a_phase_stay_within_their_bounds(project, given, shown):
    assert shown in text(project.ask("auto", "start", "x", "--max-iterations", given))


def test_a_broken_workflow_file_is_none_and_is_kept_aside(project):
    project.write(".caw/auto-state.json", "{broken")
    assert "no workflow" in text(project.ask("auto", "status"))
    assert "no workflow" in failure(project.ask("auto", "resume"))[0]
    assert project.read(".caw/auto-state.json") == "{broken"
    text(project.ask("auto", "start", "x"))
    assert any("auto-state.json" in name for name in os.listdir(project.path(".context/state/aside")))


def trusted(project) -> dict:
    folder = os.path.join(project.home, *(("AppData", "Local") if IS_WINDOWS else (".local", "state")), "ctx_hooks", "workflows")
    with open(os.path.join(folder, os.listdir(folder)[0]), encoding="utf-8") as source:
        return json.load(source)


def test_until_makes_one_phase_whose_check_the_person_agreed_to_by_its_exact_text(project, kit):
    lines = text(project.ask("auto", "start", "Mend it", "--until", "make test"))
    assert "phase: execution, of execution\n" in lines and "check of execution: `make test`, you agreed to it" in lines
    trust, flow = trusted(project), project.read_json(".caw/auto-state.json")
    assert trust["checks"] == {"execution": kit.digest_of("make test")} and len(trust["token"]) == 32 and trust["token"] == flow["token"]
    assert "check of execution: `make test`, you agreed to it" in text(project.ask("auto", "status"))


def test_a_workflow_that_failed_under_an_older_release_is_taken_up_where_it_was(project):
    project.write(".caw/auto-state.json", json.dumps({
        "active": False, "phase": "failed", "exit_reason": "max_iterations_reached", "enforcer": {"last_phase": "qa"}}))
    assert "phase: failed in qa, of " in text(project.ask("auto", "status"))
    assert "phase: qa, of " in text(project.ask("auto", "resume"))


def test_a_check_that_changed_is_shown_as_not_agreed_until_the_workflow_is_taken_up_again(project):
    project.write(".contextrc", "auto:\n  phases: [plan, build]\n  done_when:\n    build: make\n")
    assert "check of build: `make`, you agreed to it" in text(project.ask("auto", "start", "Build", "--agree"))
    project.write(".contextrc", "auto:\n  phases: [plan, build]\n  done_when:\n    build: make all\n")
    shown = text(project.ask("auto", "status", COLUMNS="300"))
    assert "check of build: `make all`, nobody agreed to it, so it does not run" in shown
    assert "nobody agreed to it" in text(project.ask("auto", "resume", COLUMNS="300")), "nobody is there to answer"
    assert "nobody agreed to it" in text(project.ask("auto", "status", COLUMNS="300"))
    assert "check of build: `make all`, you agreed to it" in text(project.ask("auto", "resume", "--agree"))
    assert "`make all`, you agreed to it" in text(project.ask("auto", "status", COLUMNS="300"))

AGENTS_SHELL = ["CLAUDECODE", "AI_AGENT", "CODEX_CI", "CODEX_THREAD_ID", "COPILOT_CLI", "GEMINI_CLI", "QWEN_CODE"]


@pytest.mark.parametrize("words", [["start", "Build", "--until", "make"], ["start", "Build", "--agree"], ["resume", "--agree"]])
@pytest.mark.parametrize("name", AGENTS_SHELL)
def test_an_agent_in_its_own_shell_does_not_agree_for_the_person(project, words, name):
    project.write(".contextrc", "auto:\n  phases: [build]\n  done_when:\n    build: make\n")
    error, hint = failure(project.ask("auto", *words, **{name: "1"}))
    assert words[-2 if "--until" in words else -1] in error and name in error and "terminal of your own" in hint
    assert not project.exists(".caw") and not os.path.exists(os.path.join(project.home, ".local"))


def test_in_an_agents_shell_a_workflow_runs_no_check_but_those_agreed_to_before(project):
    project.write(".contextrc", "auto:\n  phases: [build]\n  done_when:\n    build: make\n")
    shown = text(project.ask("auto", "start", "Build", CLAUDECODE="1"))
    assert "nobody agreed to it" in shown and "terminal of your own" in shown and trusted(project)["checks"] == {}
    text(project.ask("auto", "resume", "--agree"))
    assert "you agreed to it" in text(project.ask("auto", "resume", CLAUDECODE="1"))
    project.write(".contextrc", "auto:\n  phases: [build]\n  done_when:\n    build: make all\n")
    assert "nobody agreed to it" in text(project.ask("auto", "resume", CLAUDECODE="1"))



def test_a_workflow_without_a_place_for_its_consent_is_not_started(project):
    error, _ = failure(project.ask("auto", "start", "x", HOME=None, USERPROFILE=None, LOCALAPPDATA=None))
    assert "state home" in error and not project.exists(".caw")


def test_a_failed_workflow_is_taken_up_where_it_was(project):
    text(project.ask("auto", "start", "Ship it", "--phase", "execution", "--session", "s1"))
    text(project.ask("auto", "stop"))
    assert "phase: failed in execution, of " in text(project.ask("auto", "status"))
    assert "for the next session" in text(project.ask("auto", "resume"))
    flow = project.read_json(".caw/auto-state.json")
    assert (flow["active"], flow["phase"], flow["session_id"], flow["exit_reason"]) == (True, "execution", "", "")
    assert project.read(".caw/.gitignore") == "auto-state.json\n.gitignore\n"


def test_nothing_is_taken_up_where_nothing_was_begun_or_all_is_done(project):
    assert "no workflow to take up" in failure(project.ask("auto", "resume"))[0]
    project.write(".caw/auto-state.json", '{"active": false, "phase": "complete"}')
    assert "no workflow to take up" in failure(project.ask("auto", "resume"))[0]


def test_the_signals_of_a_workflow_are_shown_with_their_times(project):
    text(project.ask("auto", "start", "Ship it", "--session", "s1"))
    flow = project.read_json(".caw/auto-state.json")
    flow["signals"]["detected_signals"] = [{"signal": "INIT_COMPLETE", "detected_at": "2026-02-03T10:45:00Z", "attempts": 3}, "odd"]
    project.write(".caw/auto-state.json", json.dumps(flow))
    assert "\nINIT_COMPLETE at 2026-02-03 10:45:00, attempt 3\n" in text(project.ask("auto", "status", TZ="UTC0"))


@pytest.mark.parametrize("given, bound", [("ABC-1", "ABC-1"), ("abc", "abc"), (SESSION[:8], SESSION), (SESSION, SESSION)])
def test_a_workflow_binds_to_the_id_that_the_clients_events_carry(project, given, bound):
    measured(project, 40_000)
    text(project.ask("auto", "start", "Ship it", "--session", given))
    assert project.read_json(".caw/auto-state.json")["session_id"] == bound


def test_a_workflow_started_inside_a_session_is_that_sessions(project):
    assert ", session s9" in text(project.ask("auto", "start", "Ship it", CLAUDE_CODE_SESSION_ID="s9"))


# --- replay


def write_events(project, name: str, events: list) -> str:
    return project.write(name, "\n".join(map(json.dumps, events)))


def session_events(project, session: str = "s1") -> list:
    project.write_transcript([assistant_row(171_000, session)], session)
    names = ("SessionStart.startup", "UserPromptSubmit", "PreToolUse.Bash", "PostToolUse.Bash", "Stop", "PreCompact.auto",
             "SessionEnd.other")
    return [project.event(name, session_id=session, model=None) for name in names]


def test_replay_shows_what_each_event_says_and_changes_nothing(project):
    text(project.ask("signal", "CI fails", "--global"))
    events = session_events(project)
    path = write_events(project, "events.jsonl", events + [dict(events[0], hook_event_name="Notification")])
    before = project.tree()
    shown = text(project.ask("replay", path, **UTF8))
    after = project.tree()
    assert {name for name in after if before.get(name, "new") != after[name] and ".cache" not in name and "home/AppData" not in name} == set()
    for expected in ("  1  SessionStart        inject", "⚠️ [ctx monitor] CI fails", "STOP. Read your context", "Context is 85% full",
                     project.path(".context/handoffs/s1.md"), "PreCompact          monitor", "not an event of this kit"):
        assert expected in shown, expected
    assert "ctx-replay" not in shown


def test_replay_reads_a_line_each_of_several_files_and_of_stdin(project):
    events = session_events(project)[:3]
    path = write_events(project, "events.jsonl", events)
    results = json.loads(text(project.ask("replay", "--json", path, path)))
    assert [r["event"] for r in results] == ["SessionStart", "UserPromptSubmit", "PreToolUse"] * 2
    assert results[2]["reply"]["hookSpecificOutput"]["additionalContext"].startswith("STOP.")
    one = b"\xef\xbb\xbf" + json.dumps(events[2]).encode() + b"\r\n\r\n"
    again = json.loads(text(project.ask("replay", "-", "--json", stdin=one)))
    assert again[0]["mode"] == "gate" and again[0]["reply"]


@pytest.mark.parametrize("wrap", [lambda event: event, lambda event: [event, event]])
def test_replay_reads_an_event_or_a_list_over_many_lines(project, wrap):
    event = session_events(project)[2]
    path = project.write("events.json", json.dumps(wrap(event), indent=2))
    results = json.loads(text(project.ask("replay", "--json", path)))
    assert {result["mode"] for result in results} == {"gate"} and results[0]["reply"]


def test_replay_speaks_the_dialects_of_other_agents(project):
    event = {"hook_event_name": "AfterTool", "session_id": "g1", "cwd": project.root, "tool_name": "read_file", "tool_input": {},
             "tool_response": {"llmContent": "x"}, "timestamp": "2026-11-16T00:00:00Z"}
    path = write_events(project, "events.jsonl", [event])
    result = json.loads(text(project.ask("replay", path, "--agent", "gemini", "--json")))[0]
    assert result["mode"] == "monitor" and "STOP." in json.dumps(result["reply"])


def test_replay_asks_the_kit_also_while_it_is_paused(project):
    text(project.ask("pause"))
    path = write_events(project, "events.jsonl", session_events(project)[2:3])
    assert "STOP." in text(project.ask("replay", path, CTX_HOOKS_DISABLE="1"))


def test_replay_follows_no_links_and_writes_nothing_outside_its_copy(project):
    outside = os.path.join(project.base, "outside")
    os.makedirs(outside)
    with open(os.path.join(outside, "secret.md"), "w", encoding="utf-8") as out:
        out.write("the secret\n")
    os.symlink(outside, project.path(".context/notes"))
    os.symlink(os.path.join(outside, "secret.md"), project.path(".context/CONVENTIONS.md"))
    os.mkfifo(project.path(".context/fifo"))
    project.write(".contextrc", "gate:\n  mode: content\n  files: [CONVENTIONS.md, notes/secret.md, TASKS.md]\n")
    path = write_events(project, "events.jsonl", session_events(project))
    shown = text(project.ask("replay", path))
    assert "one" in shown and "the secret" not in shown and os.listdir(outside) == ["secret.md"]
    os.symlink(outside, project.path(".context/state"))
    assert "leads out of the project" in failure(project.ask("replay", path))[0]


def test_replay_copies_a_context_folder_behind_a_link_in_the_project(project):
    os.rename(project.path(".context"), project.path("docs"))
    os.symlink("docs", project.path(".context"))
    path = write_events(project, "events.jsonl", session_events(project))
    assert "STOP. Read your context files" in text(project.ask("replay", path))


def test_replay_runs_no_check_that_the_person_agreed_to(project):
    mark = project.path("ran")
    text(project.ask("auto", "start", "x", "--until", "touch '%s'" % mark.replace("'", "'\\''"), "--session", "s1"))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    block = "---\nSIGNAL: EXECUTION_COMPLETE\nPHASE: execution\nSTATUS: complete\nTIMESTAMP: %s\nNEXT: none\n---" % now
    event = project.event("Stop", session_id="s1", last_assistant_message=block)
    shown = text(project.ask("replay", write_events(project, "events.jsonl", [event])))
    assert "nobody agreed to" in " ".join(shown.split()) and not os.path.exists(mark)


def test_replay_copies_a_bounded_amount(project, kit, monkeypatch):
    for number in range(30):
        project.write(".context/notes/%d.md" % number, "x" * 1000)
    monkeypatch.setattr(kit, "REPLAY_BYTES", 5000)
    scratch = os.path.join(project.base, "scratch")
    kit.copy_project(project.ctx(time.time()), scratch)
    sizes = [os.path.getsize(os.path.join(where, name)) for where, _, names in os.walk(scratch) for name in names]
    assert sum(sizes) <= 5000


def test_replay_bears_a_file_that_goes_while_it_is_copied(project, kit, monkeypatch):
    """A hook of a live session removes files at any time."""
    gone, real = project.write(".context/notes/gone.md", "soon gone"), kit.read_bytes

    def read(path, *args, **options):
        data = real(path, *args, **options)
        if path.endswith("/gone.md"):
            os.unlink(gone)
        return data

    monkeypatch.setattr(kit, "read_bytes", read)
    scratch = os.path.join(project.base, "scratch")
    kit.copy_project(project.ctx(time.time()), scratch)
    assert os.path.exists(os.path.join(scratch, "project", ".context", "TASKS.md"))


@pytest.mark.parametrize("content", ["{", '{"a": 1}\n\nbroken', "[1]", "null"])
def test_replay_says_which_file_is_broken(project, content):
    at = 2 if "broken" in content else 1
    assert "x, event %d" % at in failure(project.ask("replay", project.write("x", content)))[0]
    assert "cannot read gone" in failure(project.ask("replay", "gone"))[0]


def test_replay_bears_what_is_not_an_event(project):
    results = json.loads(text(project.ask("replay", project.write("x", '{"a": 1}\n{"hook_event_name": ["x"]}'), "--json")))
    assert [r["mode"] for r in results] == [""] * 2


# --- config and completion


def test_config_tells_value_and_source_of_every_setting(project, kit):
    project.write(".contextrc", "gate:\n  mode: content\nbogus: 1\n")
    user_file = project.home + ("/AppData/Roaming" if IS_WINDOWS else "/.config") + "/ctx_hooks/contextrc"
    project.write(user_file, "audit:\n  stale_days: 7\ngate:\n  mode: off\n")
    rows = {row["key"]: row for row in json.loads(text(project.ask("config", "--json", CTX_INJECT_MIN_SEVERITY="info")))}
    assert list(rows) == [row[0] for row in kit.SETTINGS]
    told = {key: (rows[key]["value"], rows[key]["source"]) for key in (
        "gate.mode", "audit.stale_days", "handoff.enabled", "monitor.inject_min_severity")}
    assert told == {"gate.mode": ("content", ".contextrc"), "audit.stale_days": (7, user_file), "handoff.enabled": (True, "default"),
                    "monitor.inject_min_severity": ("info", "CTX_INJECT_MIN_SEVERITY")}
    shown = text(project.ask("config", COLUMNS="300"))
    assert 'gate.mode = "content"  (.contextrc)' in shown and "unknown setting `bogus`" in shown


@pytest.mark.skipif(IS_WINDOWS, reason="the bash on the PATH of Windows is that of WSL, if there is one")
@pytest.mark.parametrize("line, at, expected", [
    ("ctx sta", 1, {"status", "statusline"}), ("ctx auto ", 2, {"start", "stop", "--until"}), ("ctx why --j", 2, {"--json"})])
def test_bash_completes_commands_actions_and_options(project, line, at, expected):
    script = text(project.ask("completion", "bash"))
    words = line.split(" ")
    call = "COMP_WORDS=(%s); COMP_CWORD=%d; _ctx_hooks; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
        " ".join("'%s'" % word for word in words), at)
    done = subprocess.run(["bash", "-c", script + "\n" + call], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    found = set(done.stdout.decode().split())
    assert expected <= found and done.stderr == b"" and all(word.startswith(words[-1]) for word in found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_knows_every_word(project, shell):
    script = text(project.ask("completion", shell))
    for word in COMMANDS + ["--until", "--severity"]:
        assert word in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script.encode(), check=True)


# --- on a terminal


def take_terminal() -> None:
    """In the child: ^C on this terminal is for us."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A command on a real pseudo-terminal of a given size."""

    def __init__(self, project, *words: str, columns: int = 80, lines: int = 40, **env):
        self.primary, secondary = os.openpty()
        import fcntl  # only where there are pseudo-terminals
        import termios

        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = project.environment(dict({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}, **env))
        self.process = subprocess.Popen([PYTHON, os.path.join(REPO, "ctx_hooks.py"), *words], cwd=project.root,
                                        env=environment,
                                        stdin=secondary, stdout=secondary, stderr=secondary, start_new_session=True,
                                        preexec_fn=take_terminal)
        os.close(secondary)
        self.shown = b""

    def read_until(self, wanted: bytes = b"") -> str:
        """What was shown up to the wanted text, or up to the end."""
        while not wanted or wanted not in self.shown:
            if not select.select([self.primary], [], [], RUN_TIMEOUT_S)[0]:
                self.process.kill()
                pytest.fail("nothing more on the terminal after %r" % self.shown)
            try:
                data = os.read(self.primary, 65536)
            except OSError:  # Linux says EIO where others say end of file
                data = b""
            if not data:
                break
            self.shown += data
        assert wanted in self.shown, self.shown
        return self.shown.decode("utf-8")

    def type(self, keys: bytes) -> None:
        os.write(self.primary, keys)

    def end(self) -> int:
        self.read_until()
        os.close(self.primary)
        return self.process.wait(RUN_TIMEOUT_S)


def test_an_agent_with_a_terminal_is_not_asked_for_consent_either(project):
    project.write(".contextrc", "auto:\n  phases: [build]\n  done_when:\n    build: make\n")
    terminal = Terminal(project, "auto", "start", "Build it", CLAUDECODE="1")
    assert terminal.end() == 0 and b"agree? [y/N]" not in terminal.shown and trusted(project)["checks"] == {}


def test_status_on_a_terminal_is_coloured(project):
    measured(project, 171_000)
    terminal = Terminal(project, "status")
    assert terminal.end() == 0 and "\033[31m█" in terminal.shown.decode("utf-8")


@pytest.mark.parametrize("answer, code, flow", [(b"n\r", 1, False), (b"\r", 1, False), (b"yes\r", 0, True)])
def test_a_person_is_asked_about_checks_that_came_with_the_project(project, answer, code, flow):
    project.write(".contextrc", 'auto:\n  phases: [build]\n  done_when:\n    build: "make\\nout: forged"\n')
    terminal = Terminal(project, "auto", "start", "Build it")
    assert "build: make⏎ out: forged" in terminal.read_until(b"agree? [y/N]")
    terminal.type(answer)
    assert (terminal.end(), project.exists(".caw/auto-state.json")) == (code, flow)


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_refused(project, env):
    measured(project, 171_000)
    terminal = Terminal(project, "status", **env)
    assert terminal.end() == 0 and b"\033" not in terminal.shown and b"85%" in terminal.shown


def test_watch_redraws_in_place_until_interrupted(project):
    measured(project, 40_000)
    terminal = Terminal(project, "status", "--watch", lines=12)
    terminal.read_until(b"20%")
    measured(project, 90_000)
    first, again = terminal.read_until(b"45%").split("\033[H\033[J")[1:]
    assert 0 < first.count("\n") < 12 and "20%" in first and first.endswith("\033[?7h\r\n"), "no line wraps meanwhile"
    terminal.type(b"\x03")
    assert terminal.end() == 130
    assert b"Traceback" not in terminal.shown and b"error" not in terminal.shown


def test_watch_shows_more_than_a_line_where_the_terminal_does_not_say_its_size(project):
    measured(project, 40_000)
    terminal = Terminal(project, "status", "--watch", columns=0, lines=0)
    assert "20%" in terminal.read_until(b"\033[?7h")
    terminal.type(b"\x03")
    assert terminal.end() == 130


# --- the demo


@pytest.mark.skipif(IS_WINDOWS, reason="the demo plays in a POSIX shell")
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1", "LC_ALL": "C"}])
def test_the_demo_plays_a_whole_session_and_leaves_nothing_behind(project, env):
    argv = [PYTHON, "-I", os.path.join(REPO, "tests", "demo.py")]
    done = subprocess.run(argv, env=project.environment(env), cwd=project.root, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE,
                          timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode("utf-8")
    assert "\033" not in shown
    for expected in ("[CONTEXT INJECTION - Please acknowledge receipt]", "STOP. Read your context files", "[ctx monitor] CI: 3 tests fail",
                     "Context is 71% full", "s ago, receipt · .context/handoffs/", "## Auto Mode Continuation", "`test -f checked` exited 1",
                     "ctx auto: all phases complete.", "check of execution: `test -f checked`, you agreed to it",
                     "last check, of execution at ", ": exited 0",
                     "stopped asking for the handoff", "the address form is done"):
        assert expected in shown
    assert os.listdir(project.tmp) == []


# --- what a newcomer trips over


def test_the_first_letters_of_a_session_are_enough_for_a_signal(project):
    measured(project, 40_000)
    path = text(project.ask("signal", "Hello", "--session", SESSION[:8])).strip()
    assert os.path.basename(os.path.dirname(path)) == SESSION
