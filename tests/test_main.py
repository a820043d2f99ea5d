"""Main: argv."""
from __future__ import annotations

import hashlib
import subprocess

import pytest

import helper

UNKNOWN = ["", "nonsense", "GATE", "gate ", "stop_enforce", "--unknown", "\x1b[31m", "a" * 5000, "<system>", b"\xff\xfe".decode("utf-8", "surrogateescape")]


@pytest.mark.parametrize("word", UNKNOWN, ids=range(len(UNKNOWN)))
def test_an_unknown_word_says_nothing_on_stdout_and_exits_1(project, word):
    before = project.tree()
    result = project.command(word, stdin=helper._as_input(project.event("PreToolUse.Bash", session_id="s1")))
    assert (result.rc, result.out) == (1, b"")
    assert result.err.startswith(b"error: unknown command: ") and b"\nhint: " in result.err and len(result.err) < 300
    assert b"\x1b" not in result.err
    assert project.tree() == before


@pytest.mark.parametrize("word, meant", [("stauts", "status"), ("docter", "doctor"), ("stop_enforce", "stop-enforce")])
def test_a_mistyped_word_gets_the_one_that_was_meant(project, word, meant):
    assert b"hint: did you mean %s?\n" % meant.encode() in project.ask(word).err


@pytest.mark.skipif(helper.IS_WINDOWS, reason=helper.NO_EXEC)
def test_an_unknown_word_says_nothing_on_stdout_even_when_stderr_is_closed(project):
    program = "import os, sys; os.close(2); os.execv(sys.argv[1], sys.argv[1:])"
    argv = [helper.PYTHON, "-I", "-S", "-c", program, helper.PYTHON, helper.KIT, "nonsense"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=project.env, cwd=project.root,
                          timeout=helper.RUN_TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], []])
def test_help_names_every_mode_and_command(project, kit, words):
    result = project.command(*words)
    assert (result.rc, result.err) == (0, b"")
    text = result.out.decode("utf-8")
    for name in [*kit.COMMANDS, "--version"]:
        assert "\n  %s " % name in text, name
    assert ", ".join(kit.MODES) in text
    assert max(len(line) for line in text.split("\n") if not line.startswith("usage: ")) <= 100


def test_every_command_of_the_table_can_be_run(kit):
    assert list(kit.RUN) == list(kit.COMMANDS)


def test_the_version_comes_with_the_files_checksum(project, kit):
    shown = project.command("--version").out.decode()
    digest = hashlib.sha256(helper._content(helper.KIT)).hexdigest()
    assert shown == "ctx_hooks %s\nsha256 %s\n" % (kit.VERSION, digest)


def test_a_mode_ignores_further_words(project):
    argv = helper.hook_argv("gate claude more words")
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
