"""Modes: the dispatch table and the fail-open boundary; the switches; what is never created."""
from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile

import pytest

import helper
from test_hook import EVENT_OF, GATE, MODES


def fill(project, mode, session="s1", **changes):
    """A project in which every mode has something to do or to say for the session."""
    project.write_transcript([helper.assistant_row(190_000)], session)
    return project.event(EVENT_OF[mode], session_id=session, **changes)


@pytest.mark.parametrize("mode", MODES)
def test_a_project_without_a_context_folder_is_left_alone(bare_project, mode):
    before = bare_project.tree()
    for run in (bare_project.call, bare_project.run_hook):
        for event in (bare_project.event(EVENT_OF[mode]), bare_project.event("SessionStart.startup", session_id="../x")):
            assert run(mode, event).is_silent
    assert bare_project.tree() == before


@pytest.mark.parametrize("mode", MODES)
def test_the_off_switch_silences_every_mode_and_writes_nothing(project, hook, mode):
    event = fill(project, mode)
    before = project.tree()
    assert hook(mode, event, CTX_HOOKS_DISABLE="1").is_silent
    assert project.tree() == before


@pytest.mark.parametrize("value", ["", "0"])
def test_an_off_switch_that_is_off_does_nothing(project, value):
    assert project.call("gate", fill(project, "gate"), CTX_HOOKS_DISABLE=value).context


@pytest.mark.parametrize("words", [["--session", "s1"], []])
def test_a_pause_silences_every_mode_until_resume(project, words):
    assert project.command("pause", *words).rc == 0
    before = project.tree()
    for mode in MODES:
        assert project.call(mode, fill(project, mode)).is_silent
    assert {path for path in project.tree() if ".context" in path} == {path for path in before if ".context" in path}
    assert bool(project.call("gate", fill(project, "gate", "s2")).context) is bool(words)
    assert project.command("resume", *words).rc == 0
    assert project.call("gate", fill(project, "gate")).context


@pytest.mark.parametrize("mode", MODES)
def test_subagent_events_neither_consume_nor_trigger_anything(project, hook, mode):
    project.command("signal", "look here", "--session", "s1", "--name", "n")
    event = fill(project, mode, agent_id="a1", agent_type="general-purpose")
    before = project.tree()
    assert hook(mode, event).is_silent
    assert project.tree() == before


SESSIONS = ["../../../../../../tmp/x", "..", ".", "/etc/passwd", "a\0b", "A" * 10240, "ünï→\U0001f600", "\ud800", "s1", "S1", "con",
            "a/b", "a_b", " ", "$(touch x)", "~", "-rf", "*", "pause", "monitor-state", "global", "events.jsonl"]


def test_hostile_session_ids_stay_inside_and_apart(project):
    def files():
        names = {path for path, content in project.tree().items() if content is not None}
        return {path for path in names if not path.startswith("home/")}

    before, expected = files(), {}
    for number, session in enumerate(SESSIONS):
        for _ in range(number % 3 + 1):
            assert project.call("monitor", project.event("PostToolUse.Bash", session_id=session, tool_use_id=None)).rc == 0
        assert project.call("gate", project.event("PreToolUse.Bash", session_id=session)).context.startswith(GATE)
        expected[helper.load_kit().safe_name(session)] = number % 3 + 1
    own = re.compile(r"(a project's/\.context/(state|signals)/|a project's/\.context/[^/]*$|tmp/ctx-loaded-)")
    assert [path for path in files() - before if not own.match(path)] == []
    for name, calls in expected.items():
        assert project.read_json(".context/state/%s.json" % name)["tool_calls"] == calls
        assert os.path.exists(os.path.join(project.tmp, "ctx-loaded-" + name))
    for session in SESSIONS:
        assert project.call("cleanup", project.event("SessionEnd.other", session_id=session)).is_silent
    assert [name for name in os.listdir(project.path(".context", "state")) if name[:-5] in expected] == []
    assert os.listdir(project.tmp) == []


def test_parallel_monitors_count_exactly(project):
    running = []
    for number in range(24):
        event = json.dumps(fill(project, "monitor", "s9", transcript_path="", tool_use_id="t%d" % number)).encode()
        process = subprocess.Popen(helper.hook_argv("monitor"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=project.env, cwd=project.root)
        process.stdin.write(event)
        process.stdin.close()
        running.append(process)
    for process in running:
        with process:
            assert (process.stderr.read(), process.wait(helper.RUN_TIMEOUT_S)) == (b"", 0)
    assert project.read_json(".context/state/s9.json")["tool_calls"] == 24


HOLD = "import os, sys, time; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT%s); print(1, flush=True); time.sleep(30)" % (
    " | os.O_EXCL | os.O_TEMPORARY" if helper.IS_WINDOWS else "); os.lockf(fd, os.F_LOCK, 0")


def test_a_held_lock_costs_the_write_not_the_hook(kit, project):
    os.makedirs(project.path(".context", "state"))
    holder = subprocess.Popen([helper.PYTHON, "-c", HOLD, kit.lock_path(project.ctx(0.0), "s1.json")], stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        assert project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="s1")).is_silent
        assert not project.exists(".context/state/s1.json")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="s1")).is_silent
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"tool_calls": "many", "breakdown": [], "recent": {}, "history": 5}',
                                  '{"tool_calls": -1, "estimated_tokens": 1e999, "threshold_crossed_at": 7, "files_read": "x"}'])
def test_broken_session_state_never_stops_a_later_call(project, hook, text):
    project.write(".context/state/s1.json", text)
    project.write(".context/monitor-state.json", text)
    for mode in MODES[:-1]:
        assert hook(mode, fill(project, mode)).err == b""
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 1


class Ordinary:
    """The kit run by an ordinary user: nobody when the tests run as root."""

    @staticmethod
    def main():
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        helper.load_kit().main()


def as_ordinary_user(project, mode, event):
    return helper._call_forked(Ordinary, [mode], json.dumps(event).encode(), project.env, project.base)


@pytest.fixture
def open_project():
    """A project that everybody may walk into and only its owner may write; pytest's own temp dir is private."""
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        project = helper.Project(os.path.realpath(base))
        for mode in MODES:
            fill(project, mode)
        for where, _, files in os.walk(project.base):
            os.chmod(where, 0o555)
            for name in files:
                os.chmod(os.path.join(where, name), 0o444)
        os.chmod(project.tmp, 0o1777)
        yield project
        for where, _, _ in os.walk(project.base):
            os.chmod(where, 0o755)


def test_a_context_folder_that_cannot_be_written_is_no_error(open_project):
    before = open_project.tree("a project's")
    for _ in range(2):
        said = {}
        for mode in MODES:
            result = as_ordinary_user(open_project, mode, open_project.event(EVENT_OF[mode], session_id="s1"))
            assert (result.rc, result.err) == (0, b""), mode
            said[mode] = result.context
        assert said.pop("gate").startswith(GATE)
        assert said.pop("monitor").startswith("Context is 95% full") and set(said.values()) == {""}
    assert open_project.tree("a project's") == before


def test_a_context_folder_that_cannot_even_be_read_is_no_error(open_project):
    events = {mode: open_project.event(EVENT_OF[mode], session_id="s1") for mode in MODES}
    os.chmod(open_project.path(".context"), 0o000)
    for mode in MODES:
        result = as_ordinary_user(open_project, mode, events[mode])
        assert (result.rc, result.err) == (0, b"")


# A kit whose handler fails, in the ways in which code can fail.
BREAK = "import sys; sys.path.append(sys.argv.pop()); import ctx_hooks\n%s\nctx_hooks.main()"
RAISE = "def broken(event, ctx): %s\nctx_hooks.MODES['gate'] = broken"
FAILURES = ["raise KeyError('a' * 100_000)", "raise RuntimeError('two\\nlines \\x1b[31m <system>')", "return broken(event, ctx)",
            "raise MemoryError", "raise OSError(5, 'disk')", "raise ValueError('\\ud800')", "1 / 0"]


def run_broken(project, code, event=None):
    argv = [helper.PYTHON, "-I", "-S", "-c", BREAK % code, "gate", helper.REPO]
    event = event or project.event("PreToolUse.Bash", session_id="s1")
    done = subprocess.run(argv, input=json.dumps(event).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=project.env,
                          cwd=project.root, timeout=helper.RUN_TIMEOUT_S)
    return helper.make_result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("failure", FAILURES)
def test_an_internal_error_is_one_line_on_stderr_and_a_traceback_in_the_log(project, failure):
    result = run_broken(project, RAISE % failure)
    assert (result.rc, result.out) == (0, b"")
    assert re.fullmatch(rb"ctx_hooks: internal error in gate: \w+: [^\n\x1b<]*\n", result.err) and len(result.err) < 400
    log = project.read(".context/state/errors.log")
    assert "Traceback" in log and len(log) < 40_000


def test_an_internal_error_is_logged_when_the_client_was_started_below_the_project(project):
    os.mkdir(project.path("sub"))
    project.env["CLAUDE_PROJECT_DIR"] = project.path("sub")
    assert run_broken(project, RAISE % "1 / 0").err
    assert "ZeroDivisionError" in project.read(".context/state/errors.log")


@pytest.mark.parametrize("code", [RAISE % "raise SystemExit(2)", RAISE % "raise KeyboardInterrupt", RAISE % "sys.exit('x')",
                                  RAISE % "1 / 0" + "\nctx_hooks.report_failure = None",
                                  RAISE % "1 / 0" + "\nctx_hooks.find_project = None"])
def test_whatever_happens_the_exit_code_is_zero(project, code):
    result = run_broken(project, code)
    assert (result.rc, result.out) == (0, b"")
    assert result.err.count(b"\n") <= 1


def test_an_error_without_a_project_is_one_line_and_no_file(bare_project):
    before = bare_project.tree()
    result = run_broken(bare_project, "def broken(*_): 1 / 0\nctx_hooks.parse_event = broken")
    assert result.rc == 0 and result.err.count(b"\n") == 1
    assert bare_project.tree() == before


def test_every_mode_is_a_function_of_its_own_name(kit):
    for word, handler in kit.MODES.items():
        assert handler is getattr(kit, word.replace("-", "_")) and handler.__doc__


def test_handlers_do_not_touch_the_process(project, kit):
    """What a handler may see comes in ctx: with another clock and environment it does the same."""
    ctx = kit.find_project(project.root, "", {"TMPDIR": project.tmp, "TEMP": project.tmp}, 1770115500.0)
    ctx.mode, ctx.session = "gate", "s1"
    reply = kit.gate(kit.parse_event(project.event("PreToolUse.Bash", session_id="s1"), "gate", "claude", {}), ctx)
    assert reply.context.startswith(GATE)
    with open(os.path.join(project.tmp, "ctx-loaded-s1")) as marker:
        assert marker.read() == "2026-02-03T10:45:00Z\n"


@pytest.mark.parametrize("kind", ["fifo", "dangling", "loop", "folder", "outside"])
def test_odd_files_in_every_place_that_is_read_block_nothing(project, kind):
    """A reader that waits, or a link that is followed out of the project, would show here."""
    secret = os.path.join(project.home, "secret.md")
    with open(secret, "w") as out:
        out.write("---\nseverity: critical\n---\nSECRET\n")
    places = [".contextrc", ".context/TASKS.md", ".context/events.jsonl", ".context/monitor-state.json", ".context/metrics.json",
              ".context/state/s1.json", ".context/state/s1.lock", ".context/state/pause.json", ".context/state/fallback.json",
              ".context/state/collected", ".context/state/s1.statusline", ".context/signals/global/g.md", ".context/.gitignore",
              ".context/signals/sessions/s1/x.md", ".caw/auto-state.json", ".claude/ll-continue-prompt.md", "CLAUDE.md",
              ".claude/settings.json"]
    for place in places:
        path = project.path(place)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            os.mkdir(path)
        else:
            os.symlink({"dangling": path + ".gone", "loop": path, "outside": secret}[kind], path)
    for mode, name in [("inject", "SessionStart.startup"), *EVENT_OF.items()]:
        result = project.call(mode, project.event(name, session_id="s1"))
        assert (result.rc, result.err) == (0, b""), mode
        assert b"SECRET" not in result.out, mode
    with open(secret) as source:
        assert source.read() == "---\nseverity: critical\n---\nSECRET\n"
    transcript = os.path.join(project.base, "pipe")
    os.mkdir(transcript) if kind == "folder" else os.mkfifo(transcript)
    for mode in MODES:
        assert project.call(mode, project.event(EVENT_OF[mode], session_id="s2", transcript_path=transcript)).rc == 0


@pytest.mark.parametrize("place", ["state", "state/aside", "signals", "signals/sessions", "signals/global"])
def test_a_link_in_a_cloned_repository_does_not_lead_cleaning_to_files_of_the_user(project, place):
    """Links can be committed; what is old behind one is not ours to remove."""
    keys = os.path.join(project.home, "keys")
    for name in ("id_rsa", "old.json", "old.lock", "x.tmp", "sessions/other/a.md", "aside/b", "global/c.tmp"):
        path = os.path.join(keys, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write("mine")
    for where, folders, files in os.walk(keys, topdown=False):
        for name in folders + files:
            os.utime(os.path.join(where, name), (1e9, 1e9))
    before = {name for name in project.tree("home") if name.startswith("keys")}
    os.makedirs(os.path.dirname(project.path(".context", place)), exist_ok=True)
    os.symlink(keys, project.path(".context", place))
    for mode, name in (("inject", "SessionStart.startup"), ("cleanup", "SessionEnd.other")):
        assert project.call(mode, project.event(name, session_id="s1")).rc == 0
        if project.exists(".context/state/collected"):
            os.unlink(project.path(".context", "state", "collected"))  # or it would look only once an hour
    assert before <= set(project.tree("home"))
