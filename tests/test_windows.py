"""Windows: what it does differently. What is about Windows itself runs under `make test-windows`, the rest everywhere."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile

import pytest

from helper import IS_WINDOWS, KIT, MODES, REPO, TESTS, data, files_below, kit, read, write

on_windows = pytest.mark.skipif(not IS_WINDOWS, reason="about Windows itself")
PYTHON, CROWD = sys.executable, 8
GATE = "Read your context files"


# --- locks, and files that somebody reads


def test_of_hooks_of_many_sessions_at_once_each_speaks_exactly_once(world, session):
    events = [world.session("n%d" % number).event("PreToolUse") for number in range(CROWD)]
    said = world.launch_at_once([("gate", event) for event in events])
    spoke = [event["session_id"] for event, text in zip(events, said) if GATE in text]
    assert spoke and sorted(row["session"] for row in world.events()) == spoke
    for event in events:  # one that waited for the lock in vain speaks the next time
        assert (GATE in world.hook("gate", event).text) == (event["session_id"] not in spoke)
    world.signal("Deploy is red.", "s1")
    said = world.launch_at_once([("monitor", session.event("PostToolUse", tool_name="Bash"))] * CROWD)
    assert ["Deploy is red." in text for text in said].count(True) == 1


HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from helper import World, kit
world = World(sys.argv[2])
project = kit.find_project(world.root, world.env)
kit.prepare_folders(project)
lock = kit.take_lock(project, 1)
print("held" if lock else "busy", flush=True)
sys.stdin.read()
"""


def test_the_lock_of_a_killed_process_is_free_at_once(world):
    event = world.session("s1").event("PreToolUse")
    command = [PYTHON, "-I", "-c", HOLD, TESTS, os.path.dirname(world.root)]
    with world.start_hook("", command=command) as holder:
        assert holder.stdout.readline().strip() == b"held"
        assert world.launch("gate", event).out == ""
        holder.kill()
    assert GATE in world.launch("gate", event).text


def test_a_reader_that_holds_a_file_for_a_moment_does_not_cost_the_write(tmp_path):
    path = write(str(tmp_path / "state.json"), "{}")
    with open(path, "rb") as reader:
        threading.Timer(0.15, reader.close).start()
        assert kit.write_object(path, {"new": 1})
    assert kit.read_object(path) == {"new": 1} and os.listdir(str(tmp_path)) == ["state.json"]


# --- hooks as processes


SPEAKING = {
    "SessionStart.startup": "Goal: discounts.",
    "PreToolUse.Read": GATE,
    "PostToolUse.Bash": "Deploy is red.",
    "PreCompact.auto": "",
    "Stop": "",
    "SessionEnd.clear": "",
}


@pytest.mark.parametrize("name", SPEAKING)
def test_every_mode_answers_a_real_event(world, name):
    event = json.loads(read(data("events", name + ".json")))
    event = dict(event, cwd=world.root, transcript_path=world.session("s1").transcript)
    world.handoff("old", "Goal: discounts.\n")
    world.signal("Deploy is red.", ttl=600)
    reply = world.launch(MODES[event["hook_event_name"]], event)
    assert (reply.code, reply.err, bool(reply.text)) == (0, "", bool(SPEAKING[name]))
    assert SPEAKING[name] in reply.text
    assert "session-%s.json" % event["session_id"] in os.listdir(world.state())


def test_bytes_arrive_and_leave_as_they_are(world, session):
    """In UTF-8 whatever the code page, with any blanks, in several pieces of a pipe."""
    session.prompt("Always use → 円 for prices, never ¥.")
    text = "Done: Prüfung → 完了."
    event = session.event("Stop", last_assistant_message="BEGIN HANDOFF\n%s\nEND HANDOFF" % text, padding="x" * 200_000)
    raw = json.dumps(event, ensure_ascii=False, indent=1).replace("\n", "\r\n").encode()
    assert world.launch("stop-enforce", raw).err == "" and text in world.read_handoff("s1")
    out = world.launch("monitor", session.event("PreCompact", trigger="auto"), "now").out
    assert "Always use → 円 for prices, never ¥." in out and "\r" not in out


@pytest.mark.parametrize("word", ["gate", "status", "doctor", "--help"])
def test_a_reader_that_has_gone_is_no_error(world, word):
    path = write(os.path.join(world.temp, "event"), json.dumps(world.session("s1").event("PreToolUse")))
    with open(path, "rb") as stdin, world.start_hook(word, stdin=stdin) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert not [line for line in said.decode().splitlines() if word != "gate" or not line.startswith("ctx_hooks: ")]
    assert process.returncode == (0 if word == "gate" else 1)


@on_windows
def test_state_and_cache_lie_in_localappdata_and_the_marker_in_temp(world):
    world.env["HOME"] = "/c/nowhere"  # as Git Bash spells it
    assert GATE in world.launch("gate", world.session("s1").event("PreToolUse")).text
    local = os.path.join(world.home, "AppData", "Local", "ctx_hooks")
    assert world.state().startswith(local) and world.cache("x") == os.path.join(local, "cache", "x")
    assert files_below(local) and os.listdir(world.temp) == ["ctx-loaded-s1"]


@on_windows
def test_a_file_on_another_drive_is_named_as_it_is(world, session):
    session.call("Edit", {"file_path": r"Q:\other\cart.py"})
    session.end()
    assert r"Q:\other\cart.py" in world.read_handoff("s1")


def make_py(folder):
    """py.exe: pip's launcher, with a program that starts this Python."""
    distlib = pytest.importorskip("distlib", reason="what a py.exe is made of is not here")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr(
            "__main__.py", "import subprocess, sys; sys.exit(subprocess.call([%r] + sys.argv[2:]))" % PYTHON
        )
    with open(os.path.join(os.path.dirname(distlib.__file__), "t64.exe"), "rb") as source:
        write(os.path.join(folder, "py.exe"), source.read() + b"#!" + PYTHON.encode() + b"\r\n" + archive.getvalue())


@on_windows
@pytest.mark.parametrize(
    "scope, settings", [("local", ".claude/settings.local.json"), ("user", "../home/.claude/settings.json")]
)
def test_private_settings_get_lines_for_powershell_that_run_and_go_again(world, scope, settings):
    make_py(world.temp)
    world.env["PATH"] += ";" + world.temp
    path = write(world.path(settings), '{"model": "x"}\r\n')
    install = [PYTHON, "-I", os.path.join(REPO, "install.py"), "--scope", scope]
    streams = {"stdout": subprocess.PIPE, "cwd": world.root, "env": world.env, "timeout": 60}
    assert subprocess.run(install, **streams).returncode == 0
    lines = {" ".join(line.words): line for line in kit.find_lines(json.loads(read(path)))}
    assert lines["monitor"].entry["command"] == 'py -3 -I "%s" monitor; exit 0' % lines["monitor"].path
    event = json.dumps(world.session("s1").event("PreToolUse")).encode()
    command = lines["gate"].entry["command"].replace("; exit 0", "")  # for PowerShell, which is not here
    assert GATE in subprocess.run(command, input=event, shell=True, **streams).stdout.decode()
    assert b"installed, current, and speaks" in subprocess.run([*install, "--check"], **streams).stdout
    assert subprocess.run([*install, "--uninstall"], **streams).returncode == 0
    assert kit.read_bytes(path) == b'{"model": "x"}\r\n' and not os.path.exists(lines["gate"].path)


@on_windows
def test_git_bash_runs_the_registered_line(world):
    """Wine starts no program from a fork of Git Bash, so the line's shell takes the place of the one around it."""
    bash = os.environ.get("CTX_GIT_BASH") or os.path.join(os.environ.get("PROGRAMFILES", ""), r"Git\usr\bin\bash.exe")
    if not os.path.exists(bash):
        pytest.skip("Git Bash is not here")
    make_py(world.temp)
    shutil.copy(KIT, os.path.dirname(write(world.path(".claude", "hooks", "x"), "")))
    line = json.loads(read(os.path.join(REPO, "hooks.json")))["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    env = dict(world.env, PATH=";".join([os.path.dirname(bash), world.temp, world.env["PATH"]]), HOME="", TMPDIR="")
    stdin = write(os.path.join(world.temp, "event"), json.dumps(world.session("s1").event("PreToolUse")))
    with open(stdin, "rb") as event, open(stdin + ".said", "wb") as said:
        done = subprocess.run(
            [bash, "-c", line.replace("sh ", "exec bash ", 1)], stdin=event, stdout=said, env=env, timeout=120
        )
    assert done.returncode == 0 and GATE in read(stdin + ".said")
    assert os.path.isdir(world.cache("bytecode"))  # where the launcher looks is where Python looks
