"""The kit after other people's tools: formatters, fixers, a merge. It still works, or it is silent; and it never runs
what an event says."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

import helper

if helper.IS_WINDOWS:
    pytest.skip("runs the launcher in POSIX shells", allow_module_level=True)

BIN = os.path.join(os.environ.get("CTX_FORMATTERS") or "/nonexistent", "bin")
BATS = os.environ.get("CTX_BATS") or shutil.which("bats")
IS_SOAK = os.environ.get("CTX_SOAK") == "1"
TEXT = helper.read(helper.KIT)
HEAD, LAUNCHER, PROGRAM = re.fullmatch(r'(?s)(#!.*?\n)(""":".*?\n":"""\n)(.*)', TEXT).groups()
UNMARKED = re.sub("(?m)^# .*", "#", HEAD) + LAUNCHER + PROGRAM  # without the lines that keep tools away
UNTIDY = "UNTIDY = { 'a':1 }\n"  # so that a tidy kit, too, is something to work on
SHELLS = [words for words in (["dash"], ["bash"], ["busybox", "sh"], ["zsh"]) if shutil.which(words[0])]
SINGLE = [
    "--config",
    'lint.flake8-quotes = {inline-quotes="single", multiline-quotes="single", docstring-quotes="single"}',
]

FORMATTERS = {  # the file's name is added
    "black": ["black", "-q"],
    "ruff format": ["ruff", "format", "-q", "--isolated"],
    "autopep8": ["autopep8", "-i", "-aaa", "--experimental"],
    "isort": ["isort", "-q", "--float-to-top", "--profile", "black"],
    "ruff check --fix": ["ruff", "check", "-q", "--isolated", "--fix"],
    "ruff format, single": ["ruff", "format", "-q", "--isolated", "--config", 'format.quote-style = "single"'],
    "ruff, all unsafe fixes": ["ruff", "check", "-q", "--isolated", "--fix", "--unsafe-fixes", "--select", "ALL"],
    "ruff, summary below": ["ruff", "check", "-q", "--isolated", "--fix", "--unsafe-fixes", "--select", "D213"],
    "ruff, single quotes": ["ruff", "check", "-q", "--isolated", "--fix", "--unsafe-fixes", "--select", "Q", *SINGLE],
    "docformatter": ["docformatter", "-i", "--black"],
    "docformatter, multi-line": ["docformatter", "-i", "--pre-summary-newline", "--make-summary-multi-line"],
    "pyupgrade": ["pyupgrade", "--py38-plus"],
    "yapf": ["yapf", "-i"],
    "flynt": ["flynt", "-q"],
    "single quotes": ["double-quote-string-fixer"],
}
TOGETHER = ["black", "ruff format", "autopep8", "isort", "ruff check --fix"]  # as a team runs them, one after the other
CHECKERS = {
    "black": ["black", "--check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "ruff check": ["ruff", "check", "."],
    "ruff check, all rules": ["ruff", "check", "--select", "ALL", "."],
    "flake8": ["flake8", ".claude"],
    "isort": ["isort", "--check", "--float-to-top", ".claude/hooks/ctx_hooks.py"],
    "mypy": ["mypy", "--strict", ".claude/hooks/ctx_hooks.py"],
    "pylint": ["pylint", ".claude/hooks/ctx_hooks.py"],
    "autopep8": ["autopep8", "--diff", "--exit-code", ".claude/hooks/ctx_hooks.py"],
    "codespell": ["codespell", ".claude/hooks/ctx_hooks.py"],
}


def run_tool(words, cwd):
    """What a tool prints; the test is skipped, with a word, where it cannot be had."""
    program = os.path.join(BIN, words[0])
    if not os.path.exists(program):
        pytest.skip(words[0] + " could not be had; `make test` fetches it")
    env = {"PATH": BIN + ":/usr/bin:/bin", "HOME": str(cwd), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [program, *words[1:]],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    return done.returncode, done.stdout.decode()


@pytest.fixture
def formatted(request, tmp_path):
    """The kit after a formatter that really worked on it."""
    path = helper.write(str(tmp_path / "formatted" / "ctx_hooks.py"), UNMARKED + UNTIDY)
    os.chmod(path, 0o755)
    for tool in [request.param] if request.param in FORMATTERS else TOGETHER:
        code, printed = run_tool([*FORMATTERS[tool], "ctx_hooks.py"], os.path.dirname(path))
        assert code in (0, 1, 3), printed  # 3: docformatter changed it
    assert helper.read(path) != UNMARKED + UNTIDY
    return path


def hostile(pwned):
    """Words that try to be run, by a shell or by Python, whatever quote is open."""
    touch = "touch '%s'" % pwned
    return "x $(%s) `%s`; %s\n%s\n'; %s #\n\"; %s #\nimport os; os.system(%r)\n" % (*[touch] * 6, touch)


def play(base, kit, text):
    """Play a session with that text in every field. What the kit says in each mode, without paths and numbers, and
    what is on stderr."""
    world = helper.World(base)
    kit = world.write(".claude/hooks/ctx_hooks.py", helper.read(kit))
    world.hook = lambda mode, event, *words, **env: launch(world, kit, [mode, *words], event, env)
    world.handoff("before", "# Handoff\n\nGoal: discounts.\n", age_s=60)
    world.signal("CI is red: " + text.split("\n", 1)[0])
    session = world.session("s1")
    replies = [session.start(), session.prompt(text), session.gate()]
    replies.append(session.run(text, text=text))
    shutil.rmtree(world.cache("calm"), ignore_errors=True)  # on a slow machine the launcher would answer the next call
    replies.append(session.run("make", tokens=150_000, tool_response={"stdout": text}))
    replies += [session.run(text, text=text, failed=True, error=text), session.compact(), session.stop(), session.end()]
    assert {reply.code for reply in replies} == {0}, replies
    said = [re.sub(r"\d+", "0", reply.out.replace(world.root, "ROOT")) for reply in replies]
    return said, "".join(reply.err for reply in replies)


def launch(world, kit, words, event, env):
    line = 'sh "$0" "$@" || exit 0'
    return helper.finish(world.start_hook("", command=["sh", "-c", line, kit, *words], env=env), event)


@pytest.mark.parametrize("formatted", [*FORMATTERS, "together"], indirect=True)
def test_a_formatted_kit_works_as_the_untouched_one(formatted, tmp_path, request):
    pwned = str(tmp_path / "pwned")
    untouched, _ = play(tmp_path / "one", helper.KIT, hostile(pwned))
    assert "STOP" in untouched[2] and "CI is red" in untouched[1] and "handoff" in untouched[4]
    said, complaints = play(tmp_path / "two", formatted, hostile(pwned))
    assert not os.path.exists(pwned)
    if "all unsafe fixes" in request.node.name:  # what they make may need a newer Python, or another module
        assert said == untouched or not any(said)
        return
    assert said == untouched
    is_complaining = "summary below" in request.node.name  # the shell does not know the header's first word any more
    if is_complaining:
        complaints = re.sub("(?m)^.*\n:: not found\n", "", complaints)
    assert complaints == ""
    people_can_use(formatted, tmp_path)
    if is_complaining:
        return
    if IS_SOAK or "together" in request.node.name:
        passes_the_launchers_suite(formatted, tmp_path)


def people_can_use(formatted, tmp_path):
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    for start in ("sh", sys.executable):
        printed = subprocess.check_output([start, formatted, "--version"], env=env)
        assert printed.startswith(b"ctx_hooks " + helper.kit.VERSION.encode())


def passes_the_launchers_suite(formatted, tmp_path):
    if not BATS:
        pytest.skip("bats could not be had; `make test` fetches it")
    env = dict(os.environ, KIT=formatted, SHELLS="dash bash busybox zsh" if IS_SOAK else "sh", TMPDIR=str(tmp_path))
    suite = os.path.join(helper.TESTS, "launcher.bats")
    done = subprocess.run(
        [BATS, "--tap", suite], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
    )
    assert done.returncode == 0, done.stdout.decode()


SMALL_EDITS = {
    "a licence on line 2": TEXT.replace("\n", "\n# Copyright\n#\n", 1),
    "a licence above it": "# Copyright\n\n" + TEXT,
    "a coding line": TEXT.replace("\n", "\n# -*- coding: utf-8 -*-\n", 1),
    "blanks at the ends of lines": HEAD + LAUNCHER.replace("\n", "  \n") + PROGRAM,
    "tabs": HEAD + LAUNCHER.replace("  ", "\t") + PROGRAM,
    "no new line at its end": TEXT.rstrip("\n"),
}


@pytest.mark.parametrize("edit", SMALL_EDITS)
def test_small_edits_of_other_tools_change_nothing(edit, tmp_path):
    text = hostile(str(tmp_path / "pwned"))
    edited = helper.write(str(tmp_path / "ctx_hooks.py"), SMALL_EDITS[edit])
    assert play(tmp_path / "two", edited, text) == play(tmp_path / "one", helper.KIT, text)
    people_can_use(edited, tmp_path)
    assert not os.path.exists(tmp_path / "pwned")


# --- a team's own checks


@pytest.mark.parametrize("tool", CHECKERS)
def test_a_team_s_checks_find_nothing_in_an_installed_project(tool, tmp_path):
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "home").mkdir()
    subprocess.run(
        [sys.executable, os.path.join(helper.REPO, "install.py"), project],
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    code, printed = run_tool(CHECKERS[tool], project)
    assert (code, "ctx_hooks" in printed) == (0, False) or "no issues found" in printed, printed


# --- damage: an edit that nobody thought of


def damaged_files():
    """The file after each small accident in the shell part: (what happened, text)."""
    whole = HEAD + LAUNCHER
    for at, letter in enumerate(whole):
        if letter in "\"'":
            yield "quote %d lost" % at, whole[:at] + whole[at + 1 :] + PROGRAM
            yield "quote %d turned" % at, whole[:at] + ("'" if letter == '"' else '"') + whole[at + 1 :] + PROGRAM
    lines = whole.splitlines(keepends=True)
    for number, line in enumerate(lines):
        before, after = "".join(lines[:number]), "".join(lines[number + 1 :]) + PROGRAM
        yield "line %d lost" % number, before + after
        yield "line %d joined" % number, before + line.rstrip("\n") + " " + after
        for blank in re.finditer(" ", line if number else ""):  # nobody wraps the line with the interpreter
            at = blank.start()
            yield "line %d wrapped at %d" % (number, at), before + line[:at] + "\n" + line[at + 1 :] + after
        yield "line %d uncommented" % number, before + line.replace("#", " ") + after
        yield "cut before line %d" % number, before
        yield "cut in line %d" % number, before + line[: len(line) // 2]
        conflict = "<<<<<<< HEAD\n%s=======\n%s>>>>>>> theirs\n" % (line, line)
        yield "conflict at line %d" % number, before + conflict + after
    yield "all quotes turned", TEXT.replace('"""', "'''")
    yield "all quotes single", TEXT.replace('"', "'")
    yield "CRLF", TEXT.replace("\n", "\r\n")
    yield "BOM", "\ufeff" + TEXT
    yield "in one line", HEAD + re.sub(r"\s+", " ", LAUNCHER) + PROGRAM
    for width in (40, 60, 72, 79, 88, 120):
        yield "wrapped at %d" % width, HEAD + textwrap.fill(LAUNCHER, width) + "\n" + PROGRAM


def accidents(rounds):
    """The file after a few random ones at once."""
    for seed in range(rounds):
        rng = random.Random(seed)
        text = HEAD + LAUNCHER
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(HEAD), len(text))
            text = text[:at] + rng.choice(["", "", "\n", " ", '"', "'", "#", "\\"]) + text[at + rng.randrange(3) :]
        yield "seed %d" % seed, text + PROGRAM


# As an interpreter: with options alone it takes its input for the program.
SPY = """#!/bin/sh
while [ "$#" -gt 0 ]; do
  case $1 in -c) exit ;; -X) shift ;; -*) ;; *) exit ;; esac
  shift
done
[ -z "$(cat)" ] || echo "ran the event" >'%s'
"""


@pytest.fixture
def yard(tmp_path):
    """A project with a kit that can be damaged, and a `python3` that notes when it gets the event without a program."""
    world = helper.World(tmp_path)
    pwned = tmp_path / "pwned"
    os.chmod(helper.write(str(tmp_path / "bin" / "python3"), SPY % pwned), 0o755)
    world.env["PATH"] = str(tmp_path / "bin") + ":/usr/bin:/bin"
    return world, str(pwned)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_whatever_is_lost_in_the_launcher_nothing_of_the_event_is_run(shell, yard, rounds):
    world, pwned = yard
    event = helper.write(os.path.join(world.temp, "event"), '{"tool_response": "%s"}' % hostile(pwned))
    for number, (what, text) in enumerate([*damaged_files(), *accidents(rounds(200))]):
        kit = helper.write(world.path("ctx_hooks.py"), text)
        mode = ("inject", "gate", "monitor", "stop-enforce", "cleanup")[number % 5]
        with open(event, "rb") as stdin:
            process = subprocess.Popen(
                [*shell, kit, mode],
                cwd=world.temp,
                env=world.env,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        try:
            said, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # a loop that has lost its end: the client's time limit ends it, too
            process.kill()
            said, _ = process.communicate()
        assert b"touch" not in said and not os.path.exists(pwned), (what, said, shell)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_shell_does_not_take_the_program_for_its_own_when_the_launcher_was_taken_away(shell, yard):
    world, pwned = yard
    spy = (
        "#!/bin/sh\necho imported >'%s'\n" % pwned
    )  # with ImageMagick, `import json` would take a picture of the screen
    os.chmod(helper.write(os.path.join(os.path.dirname(pwned), "bin", "import"), spy), 0o755)
    kit = helper.write(world.path("ctx_hooks.py"), HEAD + PROGRAM)
    done = subprocess.run(
        [*shell, kit, "monitor"],
        cwd=world.temp,
        env=world.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=30,
    )
    assert done.stdout == b"" and not os.path.exists(pwned)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace('\n":"""\n', "\n", 1),
        TEXT[: len(TEXT) // 2],
        TEXT.replace("\ndef main(", "\n<<<<<<< HEAD\ndef main(", 1),
        HEAD + LAUNCHER,
    ],
    ids=["last line of the header lost", "cut in half", "a conflict below", "only the launcher"],
)
def test_a_damaged_program_is_silence_and_exit_0_in_every_mode(shell, text, world, tmp_path):
    pwned = str(tmp_path / "pwned")
    kit = helper.write(world.path("ctx_hooks.py"), text)
    event = '{"session_id": "s1", "tool_response": "%s"}' % hostile(pwned)
    for mode in helper.kit.HANDLERS:
        line = '"$@" || exit 0'
        process = world.start_hook("", command=["sh", "-c", line, "sh", *shell, kit, mode])
        reply = helper.finish(process, event.encode())
        assert (reply.out, reply.code) == ("", 0) and not os.path.exists(pwned)
