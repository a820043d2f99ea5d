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


def test_an_unknown_mode_in_a_registered_command_is_silent_and_never_a_denial(project):
    """Settings of another version may name one; a client reads exit 2 as deny."""
    assert project.run_hook("nonsense", project.event("PreToolUse.Bash", session_id="s1"))[:3] == (1, b"", b"")


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


# --- the usage line is the parser


@pytest.mark.parametrize("word, args, expected", [
    ("status", [], {"session": "", "json": "", "watch": "", "words": [], "rest": []}),
    ("status", ["--session=ab", "--json"], {"session": "ab", "json": "yes"}),
    ("why", ["7"], {"words": ["7"]}), ("signal", ["-", "--ttl", "9"], {"words": ["-"], "ttl": "9"}),
    ("signal", ["--action", "--x", "a=b"], {"words": ["a=b"], "action": "--x"}),
    ("auto", ["start", "--skip", "qa", "a task", "--skip=fix"], {"words": ["start", "a task"], "skip": ["qa", "fix"]}),
    ("replay", ["a", "b", "c"], {"words": ["a", "b", "c"]}),
    ("statusline", ["--", "sh", "-c", "x --help"], {"rest": ["sh", "-c", "x --help"]}),
    ("wrap", ["--agent", "aider", "--", "aider", "--x"], {"agent": "aider", "rest": ["aider", "--x"]}),
])
def test_words_are_read_by_the_usage_line(kit, word, args, expected):
    given = vars(kit.parse_words(word, args))
    assert {key: given[key] for key in expected} == expected and given["word"] == word


@pytest.mark.parametrize("args, is_asked", [(["--help"], True), (["x", "-h"], True), (["--bogus", "--help"], True),
                                            (["--", "x", "--help"], False), (["--", "-h"], False)])
def test_help_is_asked_for_before_the_words_of_another_program(kit, args, is_asked):
    assert (kit.parse_words("statusline", args) is None) is is_asked


def test_every_command_has_a_usage_line_that_its_own_parser_reads(kit):
    for word, (usage, _, about) in kit.COMMANDS.items():
        assert about.endswith(".") and len("  %-13s %s" % (word, about)) <= 100
        options, places = kit.parse_usage(usage)
        said = [*places, *("[%s %s]" % pair if pair[1] else "[%s]" % pair[0] for pair in options.items())]
        assert sorted(" ".join(said).split()) == sorted(usage.partition("-- ")[0].replace(" | --", "] [--").rstrip("[").split()), usage


def test_every_explained_option_is_one_of_a_command(kit):
    options = {name for usage, _, _ in kit.COMMANDS.values() for name in kit.parse_usage(usage)[0]}
    assert set(kit.OPTIONS) <= options
