"""What people run: each command through a real process."""
from __future__ import annotations

import json
import os
import shlex
import subprocess
import time

import pytest

import helper
from people import ask, in_terminal, install, person_env, tell

COMMANDS = "status why handoff signal auto pause resume doctor statusline wrap".split()


def status_line(world, session_id="s1", tokens=142_000, window=200_000):
    data = json.loads(helper.read(helper.data("events", "statusLine.json")))
    data["session_id"] = session_id
    data["workspace"]["project_dir"] = world.root
    data["context_window"]["context_window_size"] = window
    usage = {"input_tokens": 2, "cache_read_input_tokens": tokens - 2}
    data["context_window"]["current_usage"] = usage if tokens else None
    return json.dumps(data)


# --- the command line


def test_help_works_outside_a_project(bare_world):
    page = tell(bare_world, "--help")
    assert all("\n    %s" % command in page for command in COMMANDS)
    assert tell(bare_world) == page and "usage: " in tell(bare_world, "auto", "--help")


def test_version_tells_the_files_sha256(bare_world):
    import hashlib

    digest = hashlib.sha256(helper.read(helper.KIT).encode()).hexdigest()
    assert tell(bare_world, "--version") == "ctx_hooks 0.3.0\nsha256 %s\n" % digest


@pytest.mark.parametrize("words", [["gat"], ["stauts"], ["status", "--jsno"], ["why", "x"], ["signal"]])
def test_wrong_usage_is_said_on_stderr_and_never_exits_with_2(world, words):
    answer = ask(world, *words)
    assert answer.code == 1 and answer.out == ""
    assert answer.err.startswith("error: ") and "\nhint: " in answer.err


def test_an_unknown_option_is_named_as_it_was_typed(world):
    assert "--jsno" in ask(world, "status", "--jsno").err


@pytest.mark.parametrize("words", [["status"], ["why"], ["handoff"], ["signal", "x"], ["pause"], ["auto", "status"]])
def test_without_a_context_folder_the_hint_is_init(bare_world, words):
    answer = ask(bare_world, *words)
    assert answer.code == 1 and "no .context folder" in answer.err
    assert "install.py --init" in answer.err
    assert helper.files_below(bare_world.root) == []


def test_a_plugin_needs_no_installer_to_begin(bare_world):
    root = os.path.join(bare_world.home, ".claude", "plugins", "cache", "ctx-hooks")
    kit = helper.write(os.path.join(root, "ctx_hooks.py"), helper.read(helper.KIT))
    helper.write(os.path.join(root, ".claude-plugin", "plugin.json"), "{}")
    answer = ask(bare_world, "status", kit=kit)
    assert answer.err.endswith("hint: mkdir .context\n")


@pytest.mark.posix("there may be no py here")
def test_hints_can_be_pasted_from_where_one_is(world):
    install(world)
    sub = os.path.join(world.root, "src")
    os.makedirs(sub)
    kit = world.path(".claude", "hooks", "ctx_hooks.py")
    for folder in (world.root, sub):
        said = tell(world, "pause", kit=kit, cwd=folder).strip()
        command = said.partition("until you run ")[2]
        done = subprocess.run(command, shell=True, cwd=folder, env=person_env(world), stdout=subprocess.PIPE)
        assert done.stdout == b"the hooks are on again\n"


@pytest.mark.posix("pipes in a POSIX shell")
def test_a_reader_that_has_seen_enough_is_no_error(world):
    command = "sh %s --help | head -1" % shlex.quote(helper.KIT)
    done = subprocess.run(command, shell=True, env=person_env(world), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and done.stderr == b""


# --- pause and resume


def test_pause_silences_and_resume_ends_it(world, session):
    world.signal("CI is red", ttl=86400)
    assert "until you run" in tell(world, "pause")
    assert session.prompt("go on").out == ""
    assert "all hooks are off, by `pause`" in tell(world, "status")
    assert tell(world, "resume") == "the hooks are on again\n"
    assert "CI is red" in session.prompt("go on").text


def test_a_pause_for_a_while_ends_by_itself(world, session):
    tell(world, "pause", "--for", "30m")
    world.signal("CI is red", ttl=86400)
    assert session.prompt("go on").out == ""
    world.now = time.time() + 31 * 60
    assert "CI is red" in session.prompt("go on").text


@pytest.mark.parametrize("words", [["pause", "--for=x"], ["pause", "--for=0m"], ["signal", "x", "--ttl=5y"], ["signal", " "]])
def test_what_makes_no_sense_is_refused(world, words):
    answer = ask(world, *words)
    assert answer.code == 1 and answer.out == ""


# --- signals


def test_a_signal_reaches_every_session_once(world, session):
    said = tell(world, "signal", "CI: 3 tests fail → look at the log")
    assert said.startswith("for every session, until 20")
    world.now = time.time()
    reply = session.run("make")
    assert "CI: 3 tests fail → look at the log" in reply.text
    assert "CI" not in session.run("make again").text
    other = world.session("s2")
    other.start()
    assert "CI: 3 tests fail" in other.prompt("hello").text


def test_a_signal_for_one_session_is_heard_by_it_alone(world, session):
    other = world.session("s2")
    other.start()
    tell(world, "signal", "only you", "--session", "s2")
    world.now = time.time()
    assert "only you" not in session.prompt("hello").text
    assert "only you" in other.prompt("hello").text


def test_a_signal_is_kept_a_day_unless_ttl_says_otherwise(world, session):
    tell(world, "signal", "for long")
    tell(world, "signal", "for short", "--ttl", "2m")
    world.now = time.time() + 3600
    text = session.prompt("hello").text
    assert "for long" in text and "for short" not in text


def test_of_two_signals_with_one_code_the_newer_is_told(world, session):
    tell(world, "signal", "build 1 is red", "--code", "CI")
    tell(world, "signal", "build 2 is red", "--code", "CI")
    world.now = time.time()
    text = session.prompt("hello").text
    assert "build 2" in text and "build 1" not in text


def test_a_critical_signal_also_tells_the_person_and_its_text_is_no_header(world, session):
    tell(world, "signal", "---\nttl: 1\n---\nred\n", "--severity", "critical")
    world.now = time.time()
    reply = session.prompt("hello")
    assert "red" in reply.text and reply.person.startswith("ctx: ")


def test_an_unknown_session_is_refused_with_those_that_there_are(world, session):
    answer = ask(world, "signal", "x", "--session", "zz")
    assert answer.code == 1 and "there are: s1" in answer.err


# --- handoffs


def test_handoff_shows_what_the_next_session_would_get(world):
    assert tell(world, "handoff") == "No handoff waits for the next session.\n"
    world.worked("s1", "Add discounts.")
    shown = tell(world, "handoff")
    assert "> Add discounts." in shown
    assert shown.strip().split("\n")[2:] == world.session("s2").start().text.split("\n")[2:]


def test_handoff_brings_a_killed_sessions_up_to_date_first(world, session):
    session.prompt("Add discounts.")
    session.edit("src/cart.py")
    session.stop()
    assert "> Add discounts." in tell(world, "handoff")


def test_handoff_now_makes_one_of_a_session_at_work(world, session):
    session.prompt("Add discounts.")
    session.edit("src/cart.py")
    assert tell(world, "handoff", "now") == world.context("handoffs", "s1.md") + "\n"
    assert "src/cart.py" in world.read_handoff("s1")


def test_handoff_now_adds_to_the_agents_own(world, session):
    session.write_handoff("# Mine\n\nGoal: discounts.\n")
    session.edit("src/later.py")
    tell(world, "handoff", "now", "s1")
    text = world.read_handoff("s1")
    assert text.startswith("# Mine") and "Since this handoff" in text and "src/later.py" in text


def test_handoff_now_without_work_says_so(world, session):
    answer = ask(world, "handoff", "now")
    assert answer.code == 1 and "did no work yet" in answer.err


def test_handoff_drop_takes_one_away_and_keeps_it(world):
    world.worked("s1")
    said = tell(world, "handoff", "drop")
    assert world.waiting() == [] and "delivered/s1.md" in said
    assert os.path.exists(world.context("handoffs", "delivered", "s1.md"))
    assert "discounts" not in world.session("s2").start().text


def test_handoff_drop_asks_which_one(world):
    world.handoff("a1", "Goal one.\n")
    world.handoff("b2", "Goal two.\n")
    answer = ask(world, "handoff", "drop")
    assert answer.code == 1 and "say which one" in answer.err and "a1.md" in answer.err
    tell(world, "handoff", "drop", "b")
    assert world.waiting() == ["a1.md"]


# --- auto


def test_auto_starts_shows_and_stops_a_workflow(world, session):
    page = tell(world, "auto", "start", "Add discounts", "--until", "true")
    assert "Add discounts" in page and "`true`" in page
    world.now = time.time()
    assert "Add discounts" in session.prompt("go").text
    assert session.stop(last_assistant_message="done").text
    tell(world, "auto", "stop")
    assert session.stop(last_assistant_message="done").text == ""


def test_auto_status_without_a_workflow_says_how_to_begin(world):
    page = tell(world, "auto", "status")
    assert "no workflow" in page and "auto start" in page


def test_an_agent_cannot_agree_to_a_check(world):
    answer = ask(world, "auto", "start", "x", "--until", "true", env={"CLAUDECODE": "1"})
    assert answer.code == 1 and "terminal of your own" in answer.err


def test_a_person_is_asked_for_the_checks_of_the_project(world):
    world.settings("auto:\n  done_when:\n    qa: make check\n")
    screen = in_terminal(world, "auto", "start", "Add discounts", typed=b"y\n")
    assert "make check" in screen and "[y/N]" in screen
    assert json.loads(helper.read(world.state("agreed.json")))["checks"] == {"qa": "make check"}


def test_without_agreement_a_workflow_with_checks_does_not_start(world):
    world.settings("auto:\n  done_when:\n    qa: make check\n")
    answer = ask(world, "auto", "start", "Add discounts")
    assert answer.code == 1 and "did not agree to its checks: make check" in answer.err
    assert not os.path.exists(world.path(".caw"))


def test_agree_answers_for_a_script(world):
    world.settings("auto:\n  done_when:\n    qa: make check\n")
    tell(world, "auto", "start", "Add discounts", "--agree")
    assert json.loads(helper.read(world.state("agreed.json")))["checks"] == {"qa": "make check"}


# --- the status line


def test_the_status_line_shows_the_percent_of_the_kit(world, session):
    assert tell(world, "statusline", stdin=status_line(world)) == "ctx 85%\n"


def test_the_status_line_tells_the_window_to_the_monitor(world, session):
    tell(world, "statusline", stdin=status_line(world, window=500_000))
    assert session.state()["window_told"] == 500_000
    before = os.stat(world.state("session-s1.json")).st_mtime_ns
    tell(world, "statusline", stdin=status_line(world, window=500_000))
    assert os.stat(world.state("session-s1.json")).st_mtime_ns == before


def test_the_status_line_tells_of_the_handoff(world, session):
    session.run("make", tokens=150_000)
    assert tell(world, "statusline", stdin=status_line(world)) == "ctx 85% · handoff asked for\n"
    session.write_handoff()
    assert tell(world, "statusline", stdin=status_line(world)) == "ctx 85% · handoff written\n"


@pytest.mark.parametrize("stdin", ["", "{", "[]", '{"session_id": 3}', '{"workspace": []}', "\x00\xff"])
def test_the_status_line_is_silent_on_anything_odd(world, session, stdin):
    assert tell(world, "statusline", stdin=stdin) == ""


def test_a_session_that_the_hooks_do_not_know_is_not_made_up(world):
    tell(world, "statusline", stdin=status_line(world, "nobody"))
    assert not os.path.exists(world.state("session-nobody.json"))


# --- wrap


def test_wrap_wants_two_dashes_before_the_program(world):
    answer = ask(world, "wrap", "aider", "model")
    assert answer.code == 1 and "put -- before the program" in answer.err
    assert answer.err.rstrip().endswith("wrap -- aider model")


# --- the plugin


def test_slash_commands_may_run_no_more_than_they_do():
    folder = os.path.join(helper.REPO, ".claude-plugin", "commands")
    for name in os.listdir(folder):
        word = name[: -len(".md")]
        text = helper.read(os.path.join(folder, name))
        command = 'sh "${CLAUDE_PLUGIN_ROOT}/ctx_hooks.py" ' + word
        if word == "init":
            command = "mkdir -p .context"
            assert "allowed-tools: Bash(%s)\n" % command in text
        else:
            assert word in COMMANDS and "allowed-tools: Bash(%s:*)\n" % command in text
        assert text.count("!`") == 1 and "!`" + command in text
        assert "disable-model-invocation: true" in text
