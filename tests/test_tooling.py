"""The tools the other tests stand on: the environment they run in, the helper, the Makefile."""
from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

import bench
import helper

pytest.importorskip("fcntl", reason="the tools are for Linux and macOS")
TOOLS = os.path.join(helper.TESTS, "tools")


def run(argv, **env):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=dict(os.environ, **env), cwd=helper.REPO, timeout=60)


def test_registered_commands_are_the_argv_the_tests_run():
    for event, command in helper.registered_commands().items():
        flags = helper.FLAGS[:-1] + ['-c "%s"' % helper.load_kit().LOADER]
        assert " ".join(flags) in command and command.startswith(": ctx_hooks "), event


def test_clean_env_lets_nothing_of_the_caller_in():
    foreign = {"PYTHONPATH": "/x", "PYTEST_ADDOPTS": "-k nothing", "CLAUDE_PROJECT_DIR": "/x", "CTX_HOOKS_DISABLE": "1",
               "LANG": "de_DE.UTF-8", "BASH_ENV": "/x"}
    done = run([os.path.join(TOOLS, "clean-env"), helper.PYTHON, "env"], **foreign)
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert not set(foreign) & set(seen)
    assert seen["LC_ALL"] == "C" and seen["TEST_PYTHON"] == helper.PYTHON


def test_clean_env_passes_the_exit_code_on_and_leaves_nothing_behind(tmp_path):
    code = "import os, sys; os.chmod(os.environ['TMPDIR'], 0); print(os.environ['HOME']); sys.exit(7)"
    done = run([os.path.join(TOOLS, "clean-env"), helper.PYTHON, "python3", "-c", code], TMPDIR=str(tmp_path))
    assert done.returncode == 7
    assert done.stdout.startswith(str(tmp_path.resolve()))
    assert os.listdir(tmp_path) == []


def test_bootstrap_uses_what_is_there_without_any_network():
    """The tools run this test, so they are there; a PATH without pip, npm and apt-get proves nobody asked."""
    tool = [helper.PYTHON, "-I", os.path.join(TOOLS, "bootstrap")]
    for name in ("pytest", "bats"):
        done = run([*tool, name], PATH="/nowhere", PIP_INDEX_URL="file:///nowhere", PIP_NO_INDEX="1")
        assert done.returncode == 0, done.stdout
        assert os.access(done.stdout.splitlines()[-1], os.X_OK)


def test_bootstrap_says_in_one_sentence_what_cannot_be_had():
    done = run([helper.PYTHON, "-I", os.path.join(TOOLS, "bootstrap"), "oldest", "99.0"])
    assert (done.returncode, done.stdout) == (1, "error: no python >= 99.0 is on this machine\n")


@pytest.fixture
def bootstrap(monkeypatch):
    loader = importlib.machinery.SourceFileLoader("bootstrap", os.path.join(TOOLS, "bootstrap"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bootstrap", loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


@pytest.mark.skipif(os.name == "nt", reason="a tool of POSIX systems")
@pytest.mark.parametrize("comes", [True, False])
def test_tests_run_one_after_another_where_xdist_cannot_be_had(bootstrap, monkeypatch, capsys, tmp_path, comes):
    tried = []
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(bootstrap, "DEV", str(tmp_path))
    monkeypatch.setattr(bootstrap, "get_python_tool", lambda tool, python: str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(bootstrap, "attempt", lambda command: tried.append(command) or comes)
    for _ in range(2):
        assert bootstrap.get_pytest(helper.PYTHON) == str(tmp_path / "bin" / "python")
    assert all(bootstrap.PARALLEL in command for command in tried)
    assert ("will run one after another" in capsys.readouterr().err) is not comes
    assert len(tried) == 1 if comes else len(tried) >= 2


@pytest.mark.skipif(os.name == "nt", reason="a tool of POSIX systems")
def test_single_tests_run_in_one_process(tmp_path):
    done = run([os.path.join(TOOLS, "check"), helper.PYTHON, "tests/test_messages.py", "--collect-only", "-q"])
    assert done.returncode == 0 and ", one after another\n" in done.stdout and "check: passed" in done.stdout


def test_every_make_target_is_listed_by_help():
    with open(os.path.join(helper.REPO, "Makefile"), encoding="utf-8") as source:
        targets = re.search(r"^\.PHONY: (.*)$", source.read(), re.M).group(1).split()
    listed = [line.split()[0] for line in run(["make", "-s", "help"]).stdout.splitlines()[1:]]
    assert listed == targets


@pytest.mark.parametrize("name", helper.recorded_names())
def test_recorded_event_moves_into_the_project(project, name):
    assert helper.RECORDED_PROJECT not in json.dumps(project.event(name))
    if not name.startswith("statusLine"):
        assert name.split(".")[0] == helper.recorded(name)["hook_event_name"]


def test_an_event_can_be_changed_and_lose_fields(project):
    event = project.event("Stop", session_id="s1", last_assistant_message=None, extra=1)
    assert event["session_id"] == "s1" and event["extra"] == 1 and "last_assistant_message" not in event
    assert event["transcript_path"] == project.transcript_path("s1")


class FakeKit:
    """Stands where ctx_hooks stands: the fork has to bring back whatever main() does."""

    def __init__(self, main):
        self.main = main


def shout():
    os.write(1, b'{"a": 1}')
    os.write(2, os.environ["WORD"].encode())
    raise SystemExit(3)


def test_call_brings_back_descriptors_environment_and_exit_code(tmp_path):
    result = helper._call_forked(FakeKit(shout), ["gate"], b"", {"WORD": "w"}, str(tmp_path))
    assert result == (3, b'{"a": 1}', b"w", {"a": 1})


def test_call_replaces_the_environment_the_interpreter_started_with(tmp_path):
    posix = pytest.importorskip("posix")
    result = helper._call_forked(FakeKit(lambda: os.write(1, b"".join(posix.environ))), [], b"", {"A": "1"}, "/")
    assert result.out == b"A"


def test_call_survives_a_main_that_ends_its_process(tmp_path):
    result = helper._call_forked(FakeKit(lambda: os._exit(5)), [], b"", {}, str(tmp_path))
    assert result.rc == 5


def test_call_reports_an_exception_that_left_main(tmp_path):
    result = helper._call_forked(FakeKit(lambda: 1 / 0), [], b"", {}, str(tmp_path))
    assert result.rc == 70 and b"ZeroDivisionError" in result.err


def test_call_gives_main_the_event_on_stdin(tmp_path):
    result = helper._call_forked(FakeKit(lambda: os.write(1, os.read(0, 100))), [], b"[1]", {}, str(tmp_path))
    assert (result.out, result.reply) == (b"[1]", None)


def test_a_call_does_not_fork_this_process_unless_the_test_changed_the_kit(project, kit):
    """Who asks for monkeypatch may have changed anything; a kit that was changed without it is seen."""
    mark = os.path.join(project.base, "mark")
    before = kit.main
    kit.main = lambda: open(mark, "w").close()
    try:
        assert project.call("gate").is_silent and os.path.exists(mark)
    finally:
        kit.main = before
    os.unlink(mark)
    assert project.ask("--version").out.startswith(b"ctx_hooks ") and not os.path.exists(mark)


def test_what_a_test_patches_outside_the_kit_is_seen_by_its_calls(project, monkeypatch):
    monkeypatch.setattr(sys, "version", "patched")
    assert helper.changed_by_test


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_calls_from_two_threads_do_not_wait_for_each_other(project):
    """One that is under way, and one more meanwhile."""
    with helper._one_at_a_time:
        assert project.ask("--version").rc == 0
    ways = [project.call("gate", project.event("PreToolUse.Bash", session_id=name)).context for name in ("s1", "s2")]
    assert ways[0] == ways[1] != ""


# -----------------------------------------------------------------------------
# bench.py
# -----------------------------------------------------------------------------

TALKING_KIT = """
import os
def hook_main(args):
    context = os.environ["CLAUDE_PROJECT_DIR"] + "/.context/"
    open(context + "TASKS.md", "a").write("more")
    open(context + "new.md", "w").close()
    print('{"hookSpecificOutput": {"additionalContext": "STOP. Read your context files"}}')
"""
SILENT_KIT = "def hook_main(args):\n    pass\n"
COMPLAINING_KIT = "import sys\ndef hook_main(args):\n    print('ctx_hooks: an error', file=sys.stderr)\n"


@pytest.fixture
def make_bench(tmp_path):
    """A bench of a kit that is nothing but this text."""
    def make(text):
        (tmp_path / "kit.py").write_text(text, encoding="utf-8")
        return bench.Bench(str(tmp_path / "bench"), helper.PYTHON, str(tmp_path / "kit.py"))
    (tmp_path / "bench").mkdir()
    yield make
    os.chdir(helper.REPO)


def faults_of(it, world):
    world.save()
    for row in it.rows:
        bench.Runner(it.base).check(row)
    return [row.invalid for row in it.rows]


def test_bench_median_is_that_of_the_better_half():
    assert bench.better_half_median([9, 1, 2, 100, 3]) == 2
    assert bench.better_half_median([5]) == 5


def test_bench_calls_a_row_invalid_that_says_something_else(make_bench):
    it = make_bench(TALKING_KIT)
    world = it.world()
    for says in (bench.GATE_TEXT, "", "something else"):
        it.direct("gate", world, world.on("PreToolUse.Bash"), says=says)
    right, silent, other = faults_of(it, world)
    assert (right, silent) == ("", "spoke, should be silent") and other.startswith("said something else")


def test_bench_does_not_take_silence_for_success(make_bench):
    it = make_bench(SILENT_KIT)
    world = it.world()
    it.monitor("below the threshold", world)
    it.direct("gate, fired", world, world.on("PreToolUse.Bash"), speaks_when=(bench.World.forget_gate, bench.GATE_TEXT))
    it.direct("cleanup", world, world.on("SessionEnd.other"), proof=bench.cleaned)
    world.write(bench.STATE, "{}")
    assert faults_of(it, world) == ["tool_calls went from 0 to 0", "where it has to speak: silent, should speak",
                                    "the session's state is still there"]


def test_bench_does_not_take_a_complaint_for_silence(make_bench):
    it = make_bench(COMPLAINING_KIT)
    world = it.world()
    it.direct("gate", world, world.on("PreToolUse.Bash"))
    assert "ctx_hooks: an error" in faults_of(it, world)[0]


def test_bench_puts_back_what_a_run_changed(make_bench):
    it = make_bench(TALKING_KIT)
    world = it.world()
    it.direct("gate", world, world.on("PreToolUse.Bash"), says=bench.GATE_TEXT)
    before = world.tree("a project's/.context")
    world.save()
    bench.Runner(it.base).fresh(it.rows[0])
    assert world.tree("a project's/.context") != before
    world.restore()
    assert world.tree("a project's/.context") == before


def test_bench_starts_what_the_registered_command_starts(make_bench):
    argv = make_bench(SILENT_KIT).argv("PostToolUse")
    assert argv[:3] == [helper.PYTHON, "-I", "-S"] and "monitor" in argv
    assert argv[argv.index("-c") + 1] in helper.registered_commands()["PostToolUse"]


def test_bench_measures_every_registered_command(make_bench):
    it = make_bench(SILENT_KIT)
    it.add_registered()
    assert {"sh: " + event for event in helper.registered_commands()} == {row.name for row in it.rows}


def test_bench_says_in_one_sentence_that_the_client_is_not_there(monkeypatch, capsys):
    monkeypatch.setenv("CTX_E2E_CLIENT", "/nowhere")
    assert bench.measure_client(helper.PYTHON, "/nowhere", 1) == []
    assert capsys.readouterr().err.startswith("client: skipped, it is not installed")


# -----------------------------------------------------------------------------
# both ways to run the kit
# -----------------------------------------------------------------------------

MODES = {"SessionStart": "inject", "UserPromptSubmit": "inject", "PreToolUse": "gate", "PostToolUse": "monitor",
         "PostToolUseFailure": "monitor", "Stop": "stop-enforce", "SessionEnd": "cleanup"}


@pytest.mark.parametrize("name", [name for name in helper.recorded_names() if name.split(".")[0] in MODES])
def test_a_recorded_event_gets_the_same_answer_in_process_and_as_a_process(tmp_path, name):
    answers = []
    for way in ("call", "run_hook"):
        project = helper.Project(tmp_path / way)
        result = getattr(project, way)(MODES[name.split(".")[0]], project.event(name, session_id="s1"))
        files = {path.replace(way, "") for path in project.tree()}
        answers.append((result.rc, result.said.replace(project.root, ""), result.err, files))
    assert answers[0] == answers[1]
    assert answers[0][0] == 0 and answers[0][2] == b""
