"""Run: event in, at most one reply out, exit 0; whatever the event, the home or the pipe is like."""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time

import pytest

from helper import KIT, MODES, REPO, Reply, World, data, files_below, finish, kit, read, write

fcntl = pytest.importorskip("fcntl", reason="about processes of POSIX")
BODY = "Goal: discounts in cents."
RECORDED = sorted(name[:-5] for name in os.listdir(data("events")) if not name.startswith("statusLine"))


def event_of(world, name):
    """A recorded event, moved into this world."""
    event = json.loads(read(data("events", name + ".json")))
    return dict(event, cwd=world.root, transcript_path=world.session("s1").transcript)


def gate_event(world, **more):
    return world.session("s1").event("PreToolUse", **more)


def prompt_event(world):
    return world.session("s1").event("UserPromptSubmit", prompt="x")


def assert_silent_in_every_mode(world, way=World.launch, **env):
    for name, mode in MODES.items():
        event = world.session("s1").event(name, prompt="x", source="startup")
        reply = way(world, mode, event, **env)
        assert (reply.out, reply.err, reply.code) == ("", "", 0)


# --- the first line that a person sees


def test_a_person_is_told_once_in_a_project_that_the_hooks_are_on(world):
    greeting = "ctx: hooks are on; "
    session = world.session("s1")
    assert session.start().person.startswith(greeting)
    assert greeting not in session.prompt("go on").person + world.session("s2").start().person


@pytest.mark.parametrize("where", [".", "packages/web"])
def test_the_command_that_the_person_is_shown_runs_where_they_started(world, where):
    start = os.path.normpath(world.path(where))
    own = write(os.path.join(start, ".claude/hooks/ctx_hooks.py"), read(KIT))
    hook = world.start_hook("inject", command=["sh", own, "inject"], env={"CLAUDE_PROJECT_DIR": start})
    reply = finish(hook, world.session("s1").event("SessionStart", source="startup"))
    assert "; python3 .claude/hooks/ctx_hooks.py status shows more" in reply.person


def test_a_person_is_told_so_also_when_the_folder_is_made_in_mid_session(bare_world):
    session = bare_world.session("s1")
    assert session.start().out == session.prompt("Begin.").out == ""
    os.mkdir(bare_world.path(".context"))
    session.run("make")
    assert session.stop().person.startswith("ctx: hooks are on; ")


# --- events


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_event_is_answered_alike_in_process_and_by_the_launcher(tmp_path, name):
    replies = []
    for place, way in (("a", World.hook), ("b", World.launch)):
        world = World(tmp_path / place)
        world.handoff("old", BODY)
        event = event_of(world, name)
        reply = way(world, MODES[event["hook_event_name"]], event)
        assert (reply.code, reply.err) == (0, "")
        replies.append(re.sub(r"\d s ago", "now", reply.text))
    assert replies[0] == replies[1]


ODD_EVENTS = [
    b"",
    b"   ",
    b"{",
    b'{"session_id": "s1"',
    b"null",
    b"[]",
    b'"text"',
    b"{}",
    b"\xff\xfe\x00",
    bytes(range(256)),
    b'{"hook_event_name": "PostToolUse"}',
    b'{"hook_event_name": "PostToolUse", "session_id": ""}',
    b'{"hook_event_name": "PostToolUse", "session_id": 7}',
    b'{"hook_event_name": "Nonsense", "session_id": "s1"}',
    b'{"hook_event_name": {"a": 1}, "session_id": "s1"}',
    b'{"a":' * 2000 + b"1" + b"}" * 2000,
    b"[" * 100_000,
]


@pytest.mark.parametrize("raw", ODD_EVENTS, ids=range(len(ODD_EVENTS)))
def test_what_is_no_event_is_silence(world, session, raw):
    for mode in set(MODES.values()):
        assert world.hook(mode, raw).out == ""
    world.signal("Deploy is red.")
    assert world.hook("gate", session.event("PostToolUse")).out == ""  # an event of another mode


def test_no_field_of_any_type_is_an_error(world, rounds):
    chance = random.Random(5)
    odd = [None, 0, -1, 1e308, True, "", "\0", "\ud800", "x" * 5000, "../..", [], [{}], {}, {"a": [1]}]
    for _ in range(rounds(150)):
        event = dict(event_of(world, chance.choice(RECORDED)), something={"new": [1]})
        mode = MODES[event["hook_event_name"]]
        for key in chance.sample(sorted(set(event) - {"hook_event_name", "cwd"}), 2):
            if chance.random() < 0.3:
                del event[key]
            else:
                event[key] = chance.choice(odd)
        world.hook(mode, event)


def test_a_large_event_full_of_braces_is_read_whole(world):
    assert world.launch("gate", gate_event(world, tool_input={"x": "}" * 6_000_000})).text


def test_an_event_beyond_the_limit_is_none(world, monkeypatch):
    monkeypatch.setattr(kit, "STDIN_LIMIT_BYTES", 50_000)
    event = world.session("s2").event("PreToolUse", tool_input={"x": "y" * 2_000_000})
    assert world.hook("gate", event).out == ""


def test_an_event_of_a_subagent_neither_consumes_nor_triggers_anything(world, session):
    path = world.signal("Deploy is red.", "s1")
    before = session.state()
    for name, mode in MODES.items():
        event = session.event(name, agent_id="a1", agent_type="Explore", prompt="x", reason="other")
        assert world.hook(mode, event).out == ""
    assert os.path.exists(path) and session.state() == before


# --- pipes


def test_a_pipe_that_is_never_closed_is_read_as_soon_as_the_event_is_complete(world):
    raw = json.dumps(gate_event(world, tool_input={"a": {"b": "}"}})).encode()
    with world.start_hook("gate") as process:
        for piece in (raw[:60], raw[60:-1], raw[-1:]):
            process.stdin.write(piece)
            process.stdin.flush()
            time.sleep(0.02)
        assert Reply(process.stdout.read().decode()).text


def test_a_silent_pipe_ends_with_the_deadline(world):
    with world.start_hook("cleanup") as process:  # 1.2 s
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")  # any exit code: the line makes it 0


def test_a_terminal_is_no_input(world):
    terminal, end = os.openpty()
    reply = finish(world.start_hook("gate", stdin=end))
    assert (reply.out, reply.code) == ("", 0)
    os.close(terminal)
    os.close(end)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", ">/dev/full 2>&1"])
def test_closed_and_full_descriptors_spoil_no_file(world, session, closed):
    path = world.signal("Deploy is red.", "s1")
    command = ["sh", "-c", 'sh "$0" inject %s || exit 0' % closed, KIT]
    reply = finish(world.start_hook("inject", command=command), prompt_event(world))
    assert reply.code == 0 and reply.err.count("\n") <= 1
    if reply.out == "":
        assert os.path.exists(path)  # nothing that was not said is booked
    session.state()
    assert os.path.getsize(world.state("lock")) == 0


def test_a_reader_that_has_gone_leaves_the_signal_for_later(world, session):
    path = world.signal("Deploy is red.", "s1")
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = world.start_hook("inject", stdout=write_end)
    os.close(write_end)
    process.communicate(json.dumps(prompt_event(world)).encode())
    assert process.returncode == 0 and os.path.exists(path)


# --- where there is nothing to do


@pytest.mark.parametrize("way", [World.hook, World.launch])
def test_without_a_context_folder_nothing_is_created(bare_world, way):
    bare_world.with_bytecode = lambda env: env
    bare_world.session("s1")
    before = files_below(os.path.dirname(bare_world.root))
    assert_silent_in_every_mode(bare_world, way)
    assert files_below(os.path.dirname(bare_world.root)) == before


@pytest.mark.parametrize("env", [{}, {"HOME": ""}, {"HOME": "relative/home"}], ids=str)
def test_without_a_home_nothing_is_created(world, env):
    world.with_bytecode = lambda env: env
    del world.env["HOME"]
    before = files_below(os.path.dirname(world.root))
    assert_silent_in_every_mode(world, **env)
    assert files_below(os.path.dirname(world.root)) == before


def test_a_home_in_which_nothing_can_be_made_is_silence(world):
    write(os.path.join(world.home, ".local", "state"), "a file in the folder's place")
    assert_silent_in_every_mode(world)


def test_a_folder_in_the_place_of_a_state_file_is_survived(world):
    for name in ("session-s1.json", "events.jsonl", "metrics.json"):
        os.makedirs(world.state(name))
    world.handoff("old", BODY)
    for event in ("SessionStart", "UserPromptSubmit", "PostToolUse", "SessionEnd"):
        reply = world.launch(MODES[event], world.session("s1").event(event, prompt="x", source="startup"))
        assert (reply.code, reply.err) == (0, "")


@pytest.mark.parametrize("value, is_silent", [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_off_switch(world, value, is_silent):
    assert (world.hook("gate", gate_event(world), CTX_HOOKS_DISABLE=value).out == "") == is_silent


@pytest.mark.parametrize("end, is_silent", [("0", True), ("", True), ("99999999999", True), ("1000", False)])
def test_a_pause_lasts_until_its_end_or_for_good(world, session, end, is_silent):
    write(world.state("paused"), end)
    assert (session.gate().out == "") == is_silent


@pytest.mark.parametrize("name", [".claude/settings.json", ".claude/settings.local.json"])
def test_of_two_kits_only_that_of_the_project_speaks(world, monkeypatch, name):
    world.write(name, '{"note": "we looked at ctx_hooks.py once"}')
    assert world.session("s1").gate().text  # this kit lies outside of the project
    line = 'sh "$CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py" gate || exit 0'
    hooks = {"PreToolUse": [{"hooks": [{"type": "command", "command": line}]}]}
    world.write(name, json.dumps({"hooks": hooks}))
    assert world.session("s1b").gate().text  # nor is there one in the project yet
    world.write(".claude/hooks/ctx_hooks.py", "#")
    assert world.session("s2").gate().out == ""
    for client in ("codex", "copilot", "grok"):  # the last two run Claude Code's line, too
        event = gate_event(world, session_id=client, hook_event_name="PostToolUse")
        assert bool(world.hook("monitor", event, client).out) is (client == "codex")
    monkeypatch.setattr(kit, "__file__", world.path(".claude", "hooks", "ctx_hooks.py"))
    assert world.session("s3").gate().text


def test_a_line_that_is_commented_out_does_not_silence_the_user_s_kit(world):
    world.write(".claude/hooks/ctx_hooks.py", "#")
    line = '"command": "sh ctx_hooks.py gate"'
    for name, start, end in (("s1", "//", ""), ("s2", "/*", "*/"), ("s3", "", "")):
        world.write(".claude/settings.json", "{%s %s %s\n}" % (start, line, end))
        assert bool(world.session(name).gate().out) is bool(start)


# --- one reply


def test_one_reply_holds_everything_in_its_order(world, session):
    world.settings("monitor:\n  context_window: 200k\n")
    for number in range(40):
        world.signal("Issue %d %s" % (number, "é🎉" * 200), "s1", "%d.md" % number, severity="critical")
    reply = session.run("make", tokens=150_000, failed=True)
    assert reply.text.index("Write a handoff") < reply.text.index("[ctx monitor]")
    assert len(reply.text.encode("utf-16-le")) // 2 < 10_000
    assert "more will follow" in reply.text
    assert reply.json["hookSpecificOutput"]["hookEventName"] == "PostToolUseFailure"


def test_signals_wait_for_room_behind_the_startup_text(world):
    world.handoff("old", "Goal: x\n" + "word " * 2000)
    for number in range(30):
        world.signal("Issue %d %s" % (number, "x" * 500), "s1", "%d.md" % number)
    session = world.session("s1")
    session.leaves_receipts = False
    session.start()
    session.say("Hm?")
    world.now += 60
    text = session.prompt("again").text
    assert text.startswith("Handoff of the session before") and "[ctx monitor] 30 issues:" in text
    assert len(text) < 10_000


# --- the lock


def test_without_the_lock_a_stop_passes(world, session, monkeypatch):
    monkeypatch.setattr(kit, "LOCK_WAIT_STOP_S", 0.05)
    with open(world.state("lock"), "a") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert session.stop().out == ""


def test_the_person_is_told_of_a_workflows_stop_without_the_lock(world, session, monkeypatch):
    monkeypatch.setattr(kit, "LOCK_WAIT_STOP_S", 0.05)
    world.write(".caw/auto-state.json", '{"active": true, "phase": "qa", "phases": ["qa"], "session_id": "s1"}')
    with open(world.state("lock"), "a") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        stopped = session.stop()
    assert stopped.text == "" and stopped.person.startswith("ctx: ")


# --- internal errors, unknown modes


ERRORS = ["ValueError('a\\nb\\x1b[2J')", "RecursionError()", "MemoryError()", "KeyboardInterrupt()"]


@pytest.mark.parametrize("raised", ERRORS)
def test_an_internal_error_is_one_line_and_exit_0(world, raised):
    code = "kit.HANDLERS['gate'] = lambda run: (_ for _ in ()).throw(%s)" % raised
    reply = world.launch_changed("gate", gate_event(world), code)
    assert (reply.code, reply.out) == (0, "")
    if raised != "KeyboardInterrupt()":
        assert reply.err.startswith("ctx_hooks: ") and reply.err.count("\n") == 1
        assert "\x1b" not in reply.err
        assert raised.partition("(")[0] in read(world.state("errors.log"))


@pytest.mark.parametrize("word", ["nonsense", "Monitor", "injectt"])
def test_an_unknown_mode_exits_1_without_a_word(world, word):
    reply = world.launch(word, {})
    assert (reply.out, reply.code) == ("", 1)


# --- the interpreter


def test_bytecode_lies_in_the_users_cache_alone(world):
    before = files_below(REPO)
    world.with_bytecode = lambda env: env
    world.launch("gate", gate_event(world))
    assert [name for name in files_below(world.cache("bytecode")) if name.endswith(".pyc")]
    assert not [name for name in set(files_below(REPO)) - set(before) if "ctx_hooks" in name]
    assert os.path.realpath(world.cache("python3")) == os.path.realpath(sys.executable)


def test_stray_modules_beside_the_person_change_nothing(world):
    for name in ("json.py", "re.py", "os.py", "zlib.py", "sitecustomize.py"):
        world.write(name, "raise SystemExit(3)")
    reply = world.launch("gate", gate_event(world), PYTHONPATH=world.root, PYTHONSTARTUP="x")
    assert reply.code == 0 and reply.text


def test_a_c_locale_prints_the_pins_as_utf8(world, session):
    session.prompt("Niemals Fließkomma für Geld: 10 €.")
    reply = world.launch("monitor", session.event("PreCompact", trigger="auto"), "now", LC_ALL="C", LANG="")
    assert "> Niemals Fließkomma für Geld: 10 €." in reply.out


def test_a_project_whose_path_is_not_utf8_works(world):
    odd = os.fsencode(world.root) + b"/caf\xe9"
    os.makedirs(odd + b"/.context")
    with open(odd + b"/.context/TASKS.md", "w") as file:
        file.write("- discounts\n")
    world.env["CLAUDE_PROJECT_DIR"] = os.fsdecode(odd)
    reply = world.launch("gate", gate_event(world))
    assert reply.code == 0 and reply.err == "" and "TASKS.md" in reply.text


def test_a_project_that_is_gone_is_no_error(world):
    gone = world.env["CLAUDE_PROJECT_DIR"] = os.path.join(world.temp, "gone")
    assert world.launch("gate", gate_event(world, cwd=gone)).code == 0
