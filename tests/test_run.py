"""Run: event in, at most one reply out, exit 0; whatever the event, the home or the pipe is like."""
from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time

import pytest

from helper import DATA, KIT, MODES, REPO, Reply, World, files_below, kit, read, write

fcntl = pytest.importorskip("fcntl", reason="about processes of POSIX")
BODY = "Goal: discounts in cents."


def recorded():
    folder = os.path.join(DATA, "events")
    return sorted(name[:-5] for name in os.listdir(folder) if not name.startswith("statusLine"))


def event_of(world, name):
    """A recorded event, moved into this world."""
    event = json.loads(read(os.path.join(DATA, "events", name + ".json")))
    return dict(event, cwd=world.root, transcript_path=world.session("s1").transcript)


def popen(world, mode, **more):
    env = world.with_bytecode(dict(world.env, **more.pop("env", {})))
    command = more.pop("command", ["sh", KIT, mode])
    pipes = dict({"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}, **more)
    return subprocess.Popen(command, cwd=world.root, env=env, **pipes)


# --- events


@pytest.mark.parametrize("name", recorded())
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
@pytest.mark.parametrize("mode", sorted(set(MODES.values())))
def test_what_is_no_event_is_silence(world, mode, raw):
    assert world.hook(mode, raw).out == ""


@pytest.mark.parametrize("raw", [b"", b"{", bytes(range(256)), b"[" * 100_000])
def test_what_is_no_event_is_silence_by_the_launcher_too(world, raw):
    reply = world.launch("monitor", raw)
    assert (reply.code, reply.out, reply.err) == (0, "", "")


def test_an_event_of_another_mode_is_silence(world, session):
    world.signal("Deploy is red.")
    assert world.hook("gate", session.event("PostToolUse")).out == ""


def test_no_field_of_any_type_is_an_error(world, rounds):
    chance = random.Random(5)
    odd = [None, 0, -1, 1e308, True, "", "\0", "\ud800", "x" * 5000, "../..", [], [{}], {}, {"a": [1]}]
    names = recorded()
    for _ in range(rounds(150)):
        event = event_of(world, chance.choice(names))
        mode = MODES[event["hook_event_name"]]
        for key in chance.sample(sorted(set(event) - {"hook_event_name", "cwd"}), 2):
            if chance.random() < 0.3:
                del event[key]
            else:
                event[key] = chance.choice(odd)
        world.hook(mode, event)


def test_an_event_beyond_the_limit_is_no_event(world, monkeypatch):
    monkeypatch.setattr(kit, "STDIN_LIMIT_BYTES", 50_000)
    event = world.session("s1").event("PreToolUse", tool_input={"x": "y" * 2_000_000})
    assert world.hook("gate", event).out == ""


def test_a_large_event_full_of_braces_is_read_whole(world):
    event = world.session("s1").event("PreToolUse", tool_input={"x": "}" * 12_000_000})
    assert world.launch("gate", event).text


def test_unknown_fields_are_ignored(world):
    event = world.session("s1").event("PreToolUse", something={"new": [1]})
    assert world.hook("gate", event).text


def test_an_event_of_a_subagent_neither_consumes_nor_triggers_anything(world, session):
    path = world.signal("Deploy is red.", "s1")
    before = session.state()
    for name, mode in MODES.items():
        event = session.event(name, agent_id="a1", agent_type="Explore", prompt="x", reason="other")
        assert world.hook(mode, event).out == ""
    assert os.path.exists(path) and session.state() == before


# --- pipes


def test_a_pipe_that_is_never_closed_is_read_as_soon_as_the_event_is_complete(world):
    raw = json.dumps(world.session("s1").event("PreToolUse", tool_input={"a": {"b": "}"}})).encode()
    process = popen(world, "gate")
    for piece in (raw[:60], raw[60:-1], raw[-1:]):
        process.stdin.write(piece)
        process.stdin.flush()
        time.sleep(0.02)
    assert Reply(process.stdout.read().decode()).text
    assert process.wait() == 0
    process.stdin.close(), process.stdout.close(), process.stderr.close()


def test_a_silent_pipe_ends_with_the_deadline(world):
    process = popen(world, "cleanup")  # 1.2 s
    assert (process.stdout.read(), process.stderr.read(), process.wait()) == (b"", b"", 0)
    process.stdin.close(), process.stdout.close(), process.stderr.close()


def test_a_terminal_is_no_input(world):
    terminal, end = os.openpty()
    process = popen(world, "gate", stdin=end)
    assert (process.stdout.read(), process.wait()) == (b"", 0)
    process.stdout.close(), process.stderr.close(), os.close(terminal), os.close(end)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", ">/dev/full 2>&1"])
def test_closed_and_full_descriptors_end_in_exit_0_and_spoil_no_file(world, session, closed):
    path = world.signal("Deploy is red.", "s1")
    raw = json.dumps(session.event("UserPromptSubmit", prompt="x")).encode()
    command = ["sh", "-c", 'sh "$0" inject %s' % closed, KIT]
    process = popen(world, "inject", command=command)
    out, err = process.communicate(raw)
    assert process.returncode == 0
    assert err.count(b"\n") <= 1
    if out == b"":
        assert os.path.exists(path)  # nothing that was not said is booked
    session.state()
    assert os.path.getsize(world.state("lock")) == 0


def test_a_reader_that_has_gone_leaves_the_signal_for_later(world, session):
    path = world.signal("Deploy is red.", "s1")
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = popen(world, "inject", stdout=write_end)
    os.close(write_end)
    process.communicate(json.dumps(session.event("UserPromptSubmit", prompt="x")).encode())
    assert process.returncode == 0 and os.path.exists(path)


# --- where there is nothing to do


@pytest.mark.parametrize("way", [World.hook, World.launch])
def test_without_a_context_folder_it_is_silent_and_nothing_is_created(bare_world, way):
    world = bare_world
    world.with_bytecode = lambda env: env
    session = world.session("s1")
    before = files_below(os.path.dirname(world.root))
    for name, mode in MODES.items():
        reply = way(world, mode, session.event(name, prompt="x", source="startup"))
        assert (reply.out, reply.err, reply.code) == ("", "", 0)
    assert files_below(os.path.dirname(world.root)) == before


@pytest.mark.parametrize("home", [None, "", "relative/home"])
def test_without_a_home_it_is_silent_and_nothing_is_created(world, home):
    world.with_bytecode = lambda env: env
    del world.env["HOME"]
    before = files_below(os.path.dirname(world.root))
    env = {} if home is None else {"HOME": home}
    for name, mode in MODES.items():
        event = world.session("s1").event(name, prompt="x", source="startup")
        reply = world.launch(mode, event, **env)
        assert (reply.out, reply.err, reply.code) == ("", "", 0)
    assert files_below(os.path.dirname(world.root)) == before


def test_a_home_in_which_nothing_can_be_made_is_silence(world):
    os.makedirs(os.path.join(world.home, ".local"))
    write(os.path.join(world.home, ".local", "state"), "a file in the folder's place")
    for name, mode in MODES.items():
        event = world.session("s1").event(name, prompt="x", source="startup")
        reply = world.launch(mode, event)
        assert (reply.out, reply.err, reply.code) == ("", "", 0)


@pytest.mark.parametrize("name", ["session-s1.json", "events.jsonl", "metrics.json"])
def test_a_folder_in_the_place_of_a_state_file_is_survived(world, name):
    os.makedirs(world.state(name))
    world.handoff("old", BODY)
    session = world.session("s1")
    for event in ("SessionStart", "UserPromptSubmit", "PostToolUse", "SessionEnd"):
        reply = world.launch(MODES[event], session.event(event, prompt="x", source="startup"))
        assert reply.code == 0 and reply.err == ""


@pytest.mark.parametrize("value, is_silent", [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_off_switch(world, value, is_silent):
    reply = world.hook("gate", world.session("s1").event("PreToolUse"), CTX_HOOKS_DISABLE=value)
    assert (reply.out == "") == is_silent


def test_a_pause_silences_everything_and_ends(world, session):
    write(world.state("paused"), "%d" % (world.now + 100))
    world.signal("Deploy is red.", "s1", ttl=9999)
    assert session.prompt("x").out == session.gate().out == ""
    world.now += 101
    assert "Deploy is red." in session.prompt("x").text
    write(world.state("paused"), "0")  # without an end
    world.now += 86_400 * 300
    assert session.gate().out == ""


# --- one kit speaks


def registered(world, name=".claude/settings.json"):
    line = 'sh "$CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py" gate || exit 0'
    hooks = {"PreToolUse": [{"hooks": [{"type": "command", "command": line}]}]}
    world.write(name, json.dumps({"hooks": hooks}))


@pytest.mark.parametrize("name", [".claude/settings.json", ".claude/settings.local.json"])
def test_a_kit_outside_is_silent_where_the_project_registers_its_own(world, name):
    session = world.session("s1")
    assert session.gate().text  # this kit lies outside of the project
    registered(world, name)
    assert world.session("s2").gate().out == ""


def test_the_projects_own_kit_speaks(world, monkeypatch):
    registered(world)
    monkeypatch.setattr(kit, "__file__", world.path(".claude", "hooks", "ctx_hooks.py"))
    assert world.session("s1").gate().text


def test_other_mentions_of_the_kit_do_not_silence_it(world):
    world.write(".claude/settings.json", '{"note": "we looked at ctx_hooks.py once"}')
    assert world.session("s1").gate().text


# --- one reply


def test_one_reply_holds_everything_in_its_order_and_within_its_limit(world, session):
    world.settings("monitor:\n  context_window: 200k\n")
    session.env["CLAUDE_PROJECT_DIR"] = world.root
    for number in range(40):
        world.signal("Issue %d %s" % (number, "é🎉" * 200), "s1", "%d.md" % number, severity="critical")
    text = session.look(tokens=150_000).text
    assert text.index("Write a handoff") < text.index("[ctx monitor]")
    assert len(text.encode("utf-16-le")) // 2 < 10_000
    assert "more will follow" in text


def test_startup_comes_first_and_signals_wait_for_room(world):
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


def test_the_event_is_named_in_the_reply(world, session):
    world.signal("Deploy is red.")
    reply = session.run("make", failed=True)
    assert reply.json["hookSpecificOutput"]["hookEventName"] == "PostToolUseFailure"


# --- the lock


def test_a_lock_that_cannot_be_had_is_silence(world, session):
    world.signal("Deploy is red.", "s1")
    with open(world.state("lock"), "a") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        reply = world.launch("inject", session.event("UserPromptSubmit", prompt="x"))
    assert (reply.out, reply.err, reply.code) == ("", "", 0)
    assert "Deploy is red." in session.prompt("x").text


def test_a_stop_of_a_running_workflow_that_is_locked_out_tells_the_person(world, session, monkeypatch):
    monkeypatch.setattr(kit, "LOCK_WAIT_STOP_S", 0.05)
    state = '{"active": true, "phase": "qa", "phases": ["qa"], "session_id": "s1"}'
    world.write(".caw/auto-state.json", state)
    with open(world.state("lock"), "a") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        reply = session.stop()
    assert reply.text == "" and reply.person.startswith("ctx: ")


# --- internal errors, unknown modes


def broken(world, code):
    return world.launch_changed("gate", world.session("s1").event("PreToolUse"), code)


@pytest.mark.parametrize("raised", ["ValueError('a\\nb\\x1b[2J')", "RecursionError()", "MemoryError()", "KeyboardInterrupt()"])
def test_an_internal_error_is_one_line_and_exit_0(world, raised):
    code = "kit.HANDLERS['gate'] = lambda run: (_ for _ in ()).throw(%s)" % raised
    reply = broken(world, code)
    assert (reply.code, reply.out) == (0, "")
    if raised != "KeyboardInterrupt()":
        assert reply.err.startswith("ctx_hooks: ") and reply.err.count("\n") == 1
        assert "\x1b" not in reply.err
        assert raised.partition("(")[0] in read(world.state("errors.log"))


def test_what_hangs_ends_with_the_deadline(world):
    code = "kit.DEADLINE_S = 0.3; kit.HANDLERS['gate'] = lambda run: kit.time.sleep(60)"
    reply = broken(world, code)
    assert (reply.code, reply.out, reply.err) == (0, "", "")


@pytest.mark.parametrize("word", ["nonsense", "Monitor", "injectt"])
def test_an_unknown_mode_says_nothing_on_stdout_and_exits_1(world, word):
    reply = world.launch(word, {})
    assert (reply.out, reply.code) == ("", 1)


# --- the interpreter


def test_the_first_run_leaves_a_link_to_the_real_interpreter(world):
    world.launch("gate", world.session("s1").event("PreToolUse"))
    link = world.cache("python3")
    assert os.path.realpath(link) == os.path.realpath(sys.executable)


def test_bytecode_lies_in_the_users_cache_and_nowhere_else(world):
    before = files_below(REPO)
    world.with_bytecode = lambda env: env
    world.launch("gate", world.session("s1").event("PreToolUse"))
    assert [name for name in files_below(world.cache("bytecode")) if name.endswith(".pyc")]
    new = set(files_below(REPO)) - set(before)
    assert not [name for name in new if "ctx_hooks" in name]


def test_stray_modules_beside_the_person_change_nothing(world):
    for name in ("json.py", "re.py", "os.py", "zlib.py", "sitecustomize.py"):
        world.write(name, "raise SystemExit(3)")
    session = world.session("s1")
    reply = world.launch("gate", session.event("PreToolUse"), PYTHONPATH=world.root, PYTHONSTARTUP="x")
    assert reply.code == 0 and reply.text


def test_a_c_locale_prints_the_pins_as_utf8(world, session):
    session.prompt("Niemals Fließkomma für Geld: 10 €.")
    reply = world.launch("monitor", session.event("PreCompact", trigger="auto"), "now", LC_ALL="C", LANG="")
    assert "> Niemals Fließkomma für Geld: 10 €." in reply.out


def test_a_project_whose_path_is_not_utf8_works(tmp_path):
    world = World(tmp_path)
    odd = os.fsencode(world.root) + b"/caf\xe9"
    os.makedirs(odd + b"/.context")
    with open(odd + b"/.context/TASKS.md", "w") as file:
        file.write("- discounts\n")
    world.env["CLAUDE_PROJECT_DIR"] = os.fsdecode(odd)
    reply = world.launch("gate", world.session("s1").event("PreToolUse"))
    assert reply.code == 0 and reply.err == "" and "TASKS.md" in reply.text


def test_a_folder_that_is_gone_is_survived(world):
    gone = os.path.join(world.temp, "gone")
    os.makedirs(gone)
    world.env["CLAUDE_PROJECT_DIR"] = gone
    session = world.session("s1")
    session.extra["cwd"] = gone
    os.rmdir(gone)
    assert world.launch("gate", session.event("PreToolUse")).code == 0
