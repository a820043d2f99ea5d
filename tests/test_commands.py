"""What people run: each command through a real process."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import time

import pytest

import helper
from people import Desk, ask, in_terminal, install, person_env, tell

COMMANDS = list(helper.kit.COMMANDS)


def status_line(world, session_id="s1", window=200_000):
    data = json.loads(helper.read(helper.data("events", "statusLine.json")))
    data["session_id"] = session_id
    data["workspace"]["project_dir"] = world.root
    data["context_window"]["context_window_size"] = window
    data["context_window"]["current_usage"] = {"input_tokens": 2, "cache_read_input_tokens": 141_998}
    return json.dumps(data)


# --- the command line


def test_help_and_version_work_outside_a_project(bare_world):
    page = tell(bare_world, "--help")
    assert all("\n    %s" % command in page for command in COMMANDS)
    assert tell(bare_world) == page and "usage: " in tell(bare_world, "auto", "--help")
    assert tell(bare_world, "--version") == "ctx_hooks 0.4.0\n"
    assert not os.path.exists(os.path.dirname(helper.kit.project_state_folder("/", bare_world.env)))


@pytest.mark.parametrize(
    "words",
    [
        ["gat"],
        ["stauts"],
        ["why", "x"],
        ["status", "--jsno"],
        ["signal"],
        ["signal", " "],
        ["signal", "--withdraw", "nothing"],
        ["signal", "x", "--ttl=5y"],
        ["watch", "--severity", "loud"],
        ["pause", "--for=x"],
        ["pause", "--for=0m"],
        ["wrap", "no-such-agent", "model"],
    ],
)
def test_wrong_usage_is_an_error_with_a_hint(world, session, words):
    answer = ask(world, *words)
    assert answer.code == 1 and answer.out == ""
    assert answer.err.startswith("error: ") and "\nhint: " in answer.err
    named = {"--jsno": "--jsno", "model": "cannot start no-such-agent\n"}
    assert named.get(words[-1], "") in answer.err


@pytest.mark.parametrize(
    "words", [["status"], ["why"], ["handoff"], ["signal", "x"], ["watch"], ["pause"], ["auto", "status"]]
)
def test_without_a_context_folder_the_hint_is_init(bare_world, words):
    answer = ask(bare_world, *words)
    assert answer.code == 1 and "no .context folder" in answer.err
    assert re.search(r"hint: .*install\.py\n", answer.err)
    assert helper.files_below(bare_world.root) == []


@pytest.fixture
def plugin(bare_world):
    """The kit as a plugin that Claude Code reads where it lies."""
    root = os.path.join(bare_world.home, "ctx_hooks")
    kit = helper.write(os.path.join(root, "ctx_hooks.py"), helper.read(helper.KIT))
    shutil.copytree(os.path.join(helper.REPO, ".claude-plugin"), os.path.join(root, ".claude-plugin"))
    on = {"enabledPlugins": {"other@place": True, "ctx-hooks@ctx-hooks": True}}
    helper.write(os.path.join(bare_world.home, ".claude", "settings.json"), json.dumps(on))
    return bare_world, kit


def test_what_a_plugin_says_can_be_typed_into_the_client(plugin):
    world, kit = plugin
    assert ask(world, "status", kit=kit).err.endswith("hint: /ctx-hooks:init\n")
    assert "hint     no .context folder here or above" in tell(world, "doctor", kit=kit)
    os.mkdir(world.path(".context"))
    assert "is all in place? /ctx-hooks:doctor" in tell(world, "status", kit=kit)
    tell(world, "pause", kit=kit)
    assert re.search("silent here, since .* by `pause`\n +/ctx-hooks:resume", tell(world, "status", kit=kit))
    assert "ctx_hooks.py auto start" in tell(world, "auto", "status", kit=kit)  # for a terminal


@pytest.mark.posix("the line is for a POSIX shell")
def test_doctor_finds_all_in_place_for_a_plugin_that_is_read_where_it_lies(plugin):
    world, kit = plugin
    os.mkdir(world.path(".context"))
    page = tell(world, "doctor", kit=kit)
    assert re.search(r"ok +Claude Code is registered in .*\.claude-plugin/hooks\.json", page)
    assert re.search(r"ok +the registered line runs", page)


def test_a_plugin_that_is_switched_off_is_a_copy_like_any_other(plugin):
    world, kit = plugin
    helper.write(os.path.join(world.home, ".claude", "settings.json"), '{"enabledPlugins": {"ctx-hooks@x": false}}')
    assert "no client runs this kit here" in ask(world, "doctor", kit=kit).out


@pytest.mark.posix("the bit that makes a file executable")
def test_a_lone_file_that_cannot_be_executed_is_named_with_python(world):
    kit = world.write(".claude/hooks/ctx_hooks.py", helper.read(helper.KIT))
    assert "python3 .claude/hooks/ctx_hooks.py doctor" in tell(world, "status", kit=kit)
    assert "in your copy of ctx_hooks: python3 install.py\n" in ask(world, "doctor", kit=kit).out


@pytest.mark.posix("there may be no py here")
def test_the_hint_of_an_error_can_be_pasted(world):
    kit = install(world)
    hint = ask(world, "auto", "start", kit=kit, cwd=world.root).err.partition("hint: ")[2]
    assert hint == '`.claude/hooks/ctx_hooks.py auto start "Add a login page" --until "make test"`\n'
    done = subprocess.run(hint.strip("`\n"), shell=True, cwd=world.root, env=person_env(world))
    assert done.returncode == 0


@pytest.mark.posix("there may be no py here")
def test_hints_can_be_pasted_from_where_one_is(world):
    kit = install(world)
    sub = world.path("src")
    os.makedirs(sub)
    for folder in (world.root, sub):
        said = tell(world, "pause", kit=kit, cwd=folder).strip()
        command = said.partition("until you run ")[2]
        done = subprocess.run(command, shell=True, cwd=folder, env=person_env(world), stdout=subprocess.PIPE)
        assert done.stdout == b"the hooks are on\n"


# --- pause and resume


def test_pause_silences_until_resume_or_for_a_while(world, session):
    world.signal("CI is red", ttl=86400)
    assert "until you run" in tell(world, "pause")
    assert session.prompt("go on").out == ""
    assert re.search(r"silent here, since \d\d:\d\d, by `pause`\n", tell(world, "status"))
    assert tell(world, "resume") == "the hooks are on\n"
    assert "CI is red" in session.prompt("go on").text
    for told in ("30m", "1800s"):
        tell(world, "pause", "--for", told)
        world.now = time.time()
        world.signal("CI is " + told, name=told + ".md", ttl=86400)
        assert session.prompt("go on").out == ""
        world.now = time.time() + 31 * 60
        assert "CI is " + told in session.prompt("go on").text


# --- signals


def test_a_signal_is_kept_a_day_unless_ttl_says_otherwise(world, session):
    tell(world, "signal", "for long")
    tell(world, "signal", "for short", "--ttl", "2m")
    tell(world, "signal", "in seconds", "--ttl", "300")  # as in a header
    world.now = time.time() + 3600
    text = session.prompt("hello").text
    assert "for long" in text and "for short" not in text and "in seconds" not in text


def test_of_two_with_one_code_the_newer_is_told_a_critical_one_also_to_the_person(world, session):
    tell(world, "signal", "build 1 is red", "--code", "CI")
    tell(world, "signal", "---\nttl: 1\n---\nbuild 2 is red\n", "--code", "CI", "--severity", "critical")  # no header
    world.now = time.time()
    reply = session.prompt("hello")
    assert "build 2" in reply.text and "build 1" not in reply.text and reply.person.startswith("ctx: ")


# --- handoffs


def test_handoff_shows_what_the_next_session_would_get_also_of_a_killed_one(world):
    assert tell(world, "handoff") == "No handoff waits for the next session.\n"
    session = world.session("s1")
    session.start()
    session.prompt("Add discounts.")
    session.edit("src/cart.py")
    session.stop()
    shown = tell(world, "handoff")
    assert "> Add discounts." in shown
    assert shown.strip().split("\n")[2:] == world.session("s2").start().text.split("\n")[2:]


def test_an_empty_list_of_handoffs_says_so(world):
    assert tell(world, "handoff", "list") == "There is no handoff yet.\n"


def test_handoff_now_makes_one_of_a_session_that_did_some_work(world, session):
    answer = ask(world, "handoff", "now")
    assert answer.code == 1 and "did no work yet" in answer.err
    session.prompt("Add discounts.")
    session.edit("src/cart.py")
    assert tell(world, "handoff", "now") == world.context("handoffs", "s1.md") + "\n"
    assert "src/cart.py" in world.read_handoff("s1")


def test_handoff_drop_takes_one_away(world):
    assert "nothing waits" in ask(world, "handoff", "drop").err
    world.handoff("a1", "Goal one.\n")
    world.handoff("b2", "Goal two.\n")
    answer = ask(world, "handoff", "drop")
    assert answer.code == 1 and "say which one" in answer.err and "a1.md" in answer.err
    assert "error: there is no c3\n" in ask(world, "handoff", "drop", "c3").err
    assert "delivered/b2.md" in tell(world, "handoff", "drop", "b")
    assert world.waiting() == ["a1.md"] and os.path.exists(world.context("handoffs", "delivered", "b2.md"))
    assert "Goal two." not in world.session("s2").start().text


# --- auto


@pytest.mark.posix("a check in a POSIX shell")
def test_auto_starts_shows_and_stops_a_workflow(world, session):
    page = tell(world, "auto", "status")
    assert "no workflow" in page and "auto start" in page
    page = tell(world, "auto", "start", "Add discounts", "--until", "echo broken; exit 2")
    assert "`echo broken; exit 2` exits 2 now (0 s). The agent goes on until it exits 0." in page
    assert "Task: Add discounts" in page
    world.now = time.time()
    assert "Add discounts" in session.prompt("go").text
    assert session.stop(last_assistant_message="done").text
    tell(world, "auto", "stop")
    assert session.stop(last_assistant_message="done").text == ""


@pytest.mark.posix("its check is for a POSIX shell")
def test_a_check_that_does_not_end_counts_as_failed_at_the_start(world):
    world.settings("auto:\n  check_timeout_s: 1\n")
    assert "`sleep 60` did not end within 1 s now (1 s)." in tell(world, "auto", "start", "x", "--until", "sleep 60")


NO_START = {
    "`true` passes already": ["--until", "true"],
    "`nosuch-command -x`: not found": ["--until", "nosuch-command -x"],
    "the command of --until is empty": ["--until", ""],
}


@pytest.mark.posix("its check is for a POSIX shell")
@pytest.mark.parametrize("what", NO_START)
def test_a_workflow_that_could_not_end_rightly_does_not_start(world, what):
    answer = ask(world, "auto", "start", "Add discounts", *NO_START[what])
    assert answer.code == 1 and answer.err.startswith("error: %s\nhint: " % what)
    assert not os.path.exists(world.path(".caw"))


def test_a_workflow_needs_a_task(world):
    answer = ask(world, "auto", "start")
    assert answer.code == 1 and answer.err.startswith("error: the task is empty\nhint: ")


@pytest.mark.posix("signals of POSIX")
def test_ctrl_c_in_the_first_run_of_the_check_starts_nothing(world):
    desk = Desk(world, helper.KIT, "auto", "start", "x", "--until", "echo $$ >pid; sleep 77")
    desk.until(b"runs once, to see that it fails")
    while not os.path.exists(world.path("pid")):
        time.sleep(0.05)
    os.write(desk.master, b"\x03")
    desk.ends(130)
    desk.close()
    while True:  # until it is gone
        shown = subprocess.run(["ps", "-o", "stat=", "-p", helper.read(world.path("pid")).strip()], capture_output=True)
        if shown.stdout.decode().strip()[:1] in ("", "Z"):
            break
        time.sleep(0.1)
    assert not os.path.exists(world.path(".caw"))


def test_an_agent_cannot_agree_to_a_check(world):
    answer = ask(world, "auto", "start", "x", "--until", "touch ran; false", env={"CLAUDECODE": "1"})
    assert answer.code == 1 and "terminal of your own" in answer.err
    assert not os.path.exists(world.path("ran"))


def test_an_agent_cannot_end_a_workflow(world):
    tell(world, "auto", "start", "x", "--until", "false")
    answer = ask(world, "auto", "stop", env={"CLAUDECODE": "1"})
    assert answer.code == 1 and "`ctx cancel` as a prompt" in answer.err
    assert "waits for your next prompt" in tell(world, "auto", "status")


@pytest.fixture
def with_check(world):
    world.settings("auto:\n  done_when:\n    qa: make check\n")
    return world


def agreed(world):
    return json.loads(helper.read(world.state("agreed.json")))["checks"]


@pytest.mark.parametrize("typed, is_agreed", [(b"y\n", True), (b"\n", False)])
def test_a_person_is_asked_for_the_checks_of_the_project(with_check, typed, is_agreed):
    screen = in_terminal(with_check, "auto", "start", "Add discounts", typed=typed, code=0 if is_agreed else 1)
    assert "make check" in screen.partition("May these commands run as checks? [y/N]")[0]
    assert os.path.exists(with_check.path(".caw")) == is_agreed
    assert not is_agreed or agreed(with_check) == {"qa": "make check"}


def test_a_script_has_to_say_that_it_agrees_to_the_checks(with_check):
    answer = ask(with_check, "auto", "start", "Add discounts")
    assert answer.code == 1 and "did not agree to its checks: make check" in answer.err
    assert not os.path.exists(with_check.path(".caw"))
    tell(with_check, "auto", "start", "Add discounts", "--agree")
    assert agreed(with_check) == {"qa": "make check"}


# --- the status line


def test_the_status_line_shows_the_percent_of_the_kit_and_the_handoff(world, session):
    assert tell(world, "statusline", stdin=status_line(world)) == "ctx 85%\n"
    session.run("make", tokens=150_000)
    assert tell(world, "statusline", stdin=status_line(world)) == "ctx 85% · handoff asked for\n"
    session.write_handoff()
    assert tell(world, "statusline", stdin=status_line(world)) == "ctx 85% · handoff written\n"


def test_the_status_line_tells_the_window_of_a_session_that_the_hooks_know_to_the_monitor(world, session):
    tell(world, "statusline", stdin=status_line(world, window=500_000))
    assert session.state()["window_told"] == 500_000
    before = os.stat(world.state("session-s1.json")).st_mtime_ns
    tell(world, "statusline", stdin=status_line(world, window=500_000))
    assert os.stat(world.state("session-s1.json")).st_mtime_ns == before
    tell(world, "statusline", stdin=status_line(world, "nobody"))
    assert not os.path.exists(world.state("session-nobody.json"))


@pytest.mark.parametrize("stdin", ["", "{", "[]", '{"session_id": 3}', '{"workspace": []}', "\x00\xff"])
def test_the_status_line_is_silent_on_anything_odd(world, session, stdin):
    assert tell(world, "statusline", stdin=stdin) == ""


# --- the plugin


def test_slash_commands_may_run_no_more_than_they_do():
    folder = os.path.join(helper.REPO, ".claude-plugin", "commands")
    names = [name[: -len(".md")] for name in os.listdir(folder)]
    assert sorted(names) == sorted([*helper.kit.SLASH_COMMANDS, "auto"])
    for name in os.listdir(folder):
        word = name[: -len(".md")].replace("wake", "signal --list")
        text = helper.read(os.path.join(folder, name))
        command, tools = "mkdir -p .context", "mkdir -p .context"
        if word != "init":
            command = 'sh "${CLAUDE_PLUGIN_ROOT}/ctx_hooks.py" ' + word
            tools = command + ":*"
        assert word.split()[0] in [*COMMANDS, "init"] and "allowed-tools: Bash(%s)\n" % tools in text
        assert text.count("!`") == 1 and "!`" + command in text
        assert "disable-model-invocation: true" in text


def test_a_wrapped_program_is_no_session_to_make_a_handoff_of(world):
    world.worked("s1")
    state = dict(world.session_state("s1"), id="wrap-1", agent="", seen_at=world.now + 99)
    helper.write(world.state("session-wrap-1.json"), json.dumps(state), world.now + 99)
    assert tell(world, "handoff", "now").endswith("s1.md\n")


def test_a_signal_before_the_first_hook_is_ignored_by_git(world):
    assert "for every session" in tell(world, "signal", "Look at CI")
    assert "/signals/" in helper.read(world.context(".gitignore"))
    assert "`status` alone" in tell(world, "signal", "Just so", "--severity", "info")


def test_while_the_check_runs_a_person_sees_for_how_long(world):
    screen = in_terminal(world, "auto", "start", "x", "--until", "sleep 1.5; false")
    assert "runs once, to see that it fails" in screen and "0 s\r" in screen and "1 s\r" in screen


@pytest.mark.posix("pipes in a POSIX shell")
def test_a_reader_that_has_seen_enough_is_no_error(world):
    command = "sh %s --help | head -1" % shlex.quote(helper.KIT)
    done = subprocess.run(command, shell=True, env=person_env(world), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and done.stderr == b""


@pytest.mark.posix("closes a descriptor in a POSIX shell")
def test_a_closed_output_is_no_error(world):
    command = "sh %s status >&-" % shlex.quote(helper.KIT)
    done = subprocess.run(command, shell=True, cwd=world.root, env=person_env(world), stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
