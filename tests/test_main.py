"""Main: argv."""
from __future__ import annotations

import subprocess

import pytest

import helper


@pytest.mark.parametrize("word", ["", "nonsense", "GATE", "gate ", "stop_enforce", "--unknown", "\x1b[31m", "a" * 5000, "<system>"])
def test_an_unknown_mode_says_nothing_on_stdout_and_exits_1(project, word):
    before = project.tree()
    result = project.run_hook(word, project.event("PreToolUse.Bash", session_id="s1"))
    assert (result.rc, result.out) == (1, b"")
    assert result.err.startswith(b"error: unknown command: ") and b"\nhint: " in result.err and len(result.err) < 200
    assert b"\x1b" not in result.err
    assert project.tree() == before


def test_no_mode_at_all_is_an_unknown_one(project):
    result = project.command()
    assert (result.rc, result.out) == (1, b"")


def test_an_unknown_mode_says_nothing_on_stdout_even_when_stderr_is_closed(project):
    program = "import os, sys; os.close(2); os.execv(sys.argv[1], sys.argv[1:])"
    argv = [helper.PYTHON, "-I", "-S", "-c", program, *helper.hook_argv("nonsense")]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=project.env, cwd=project.root,
                          timeout=helper.RUN_TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_names_every_mode_and_command(project, kit, word):
    result = project.command(word)
    assert (result.rc, result.err) == (0, b"")
    text = result.out.decode("utf-8")
    for name in [*kit.MODES, *[row[0] for row in kit.COMMANDS], "--version"]:
        assert "\n  %s " % name in text, name
    assert max(len(line) for line in text.split("\n")) <= 120


def test_a_mode_ignores_further_words(project):
    argv = [helper.PYTHON, *helper.FLAGS, helper.IMPORT_LINE, "gate", "more", "words", helper.REPO]
    done = subprocess.run(argv, input=helper._as_input(project.event("PreToolUse.Bash", session_id="s1")), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=project.env, cwd=project.root, timeout=helper.RUN_TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, b"") and b"STOP." in done.stdout


def test_a_plain_run_of_the_file_is_the_same_hook(project):
    result = project.command("gate", stdin=helper._as_input(project.event("PreToolUse.Bash", session_id="s1")))
    assert (result.rc, result.err) == (0, b"") and result.context.startswith("STOP.")


def test_stdout_is_one_ascii_object_and_nothing_else(project):
    project.write(".contextrc", 'gate:\n  message: "Lies → {files} ⚠️"\n')
    result = project.run_hook("gate", project.event("PreToolUse.Bash", session_id="s1"))
    assert result.out.isascii() and result.out.startswith(b"{") and result.out.endswith(b"}") and b"\n" not in result.out
    assert result.context.startswith("Lies → .context/CONSTITUTION.md")
