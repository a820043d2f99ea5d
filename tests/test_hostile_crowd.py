"""Many at once: one session in fifty processes, twenty sessions in one project, installers beside running hooks."""
from __future__ import annotations

import collections
import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from concurrent import futures

import pytest

import apart
import helper
import hostile

CROWD = 20 if helper.IS_WINDOWS else 50  # there each is an interpreter
PATIENT = ("LOCK_WAIT_S", "HOOK_LIMIT_S", "CLEANUP_LIMIT_S", "LOOK_LIMIT_S")
# What stands for a fork where there is none: a process that has the kit and waits for the file.
WAITING = """
import os, sys, time
sys.path.insert(0, sys.argv.pop(1))
import helper
kit, go = helper.load_kit(), sys.argv.pop(1)
vars(kit).update(dict.fromkeys(%r, helper.RUN_TIMEOUT_S - 5))
open(go + str(os.getpid()), "w").close()
while not os.path.exists(go):
    time.sleep(0.001)
kit.main()
""" % (PATIENT,)


@pytest.fixture
def crowd(kit, project, monkeypatch):
    """crowd([(mode, event), …]) -> results. Forks of this process that have their event and wait for the same pipe to
    close: what crowds is the work itself, not fifty starts of an interpreter. They have time: on a busy machine some
    would give the lock up after the second that they usually wait, which is right, and no count."""
    for name in PATIENT:
        monkeypatch.setattr(kit, name, helper.RUN_TIMEOUT_S - 5)

    def run(calls):
        ready, go = os.pipe()
        with contextlib.ExitStack() as files:
            started = [start(files, mode, event, ready, go) for mode, event in calls]
            os.close(go)
            os.close(ready)
            return [finish(*one) for one in started]

    def start(files, mode, event, ready, go):
        streams = [files.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(json.dumps(event).encode())
        streams[0].seek(0)
        pid = os.fork()
        if pid == 0:
            def wait():
                os.close(go)
                os.read(ready, 1)

            apart.run_child(kit, mode.split(), [stream.fileno() for stream in streams], project.environment({}), project.root, wait)
        return pid, streams

    def finish(pid, streams):
        status = os.waitpid(pid, 0)[1]
        assert not os.WIFSIGNALED(status), "it hangs"
        for stream in streams:
            stream.seek(0)
        result = helper.make_result(os.WEXITSTATUS(status), streams[1].read(), streams[2].read())
        hostile.check_result(result)
        return result

    return run if hasattr(os, "fork") else lambda calls: run_processes(project, calls)


def run_processes(project, calls):
    with tempfile.TemporaryDirectory() as folder, futures.ThreadPoolExecutor(len(calls)) as pool:
        go = os.path.join(folder, "go")
        argv = [helper.PYTHON, "-I", "-c", WAITING, helper.TESTS, go]
        runs = [pool.submit(helper.run_process, argv + mode.split(), json.dumps(event).encode(), project.environment({}), project.root)
                for mode, event in calls]
        while len(os.listdir(folder)) < len(calls) and not any(run.done() for run in runs):
            time.sleep(0.01)
        with open(go, "w", encoding="utf-8"):
            results = [run.result() for run in runs]
    for result in results:
        hostile.check_result(result)
    return results


def test_processes_that_start_at_once_count_every_call(kit, project):
    """The registered command itself, as many as a client starts for one batch of tool calls."""
    def run(number):
        event = project.event("PostToolUse.Bash", session_id="s1", tool_use_id="t%d" % number)
        hostile.check_result(project.run_hook("monitor", event))

    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 8


def test_fifty_calls_of_one_session_are_all_counted(project, crowd):
    crowd([("monitor", project.event("PostToolUse.Bash", session_id="s1", tool_use_id="t%d" % n)) for n in range(CROWD)])
    assert project.read_json(".context/state/s1.json")["tool_calls"] == CROWD


def test_fifty_first_tool_calls_are_gated_once(project, crowd):
    results = crowd([("gate", project.event("PreToolUse.Bash", session_id="s1")) for _ in range(CROWD)])
    assert len([result for result in results if "STOP." in result.context]) == 1


def test_fifty_prompts_deliver_each_signal_once(project, crowd):
    words = ["word%02d." % number for number in range(20)]
    for word in words[:15]:
        project.write(".context/signals/sessions/s1/%s.md" % word[:-1], "The word is %s\n" % word)
    for word in words[15:]:
        project.write(".context/signals/global/%s.md" % word[:-1], "The word is %s\n" % word)
    results = crowd([("inject", project.event("UserPromptSubmit", session_id="s1")) for _ in range(CROWD)])
    said = "\n".join(result.context for result in results)
    assert {word: said.count(word) for word in words} == dict.fromkeys(words, 1)
    assert os.listdir(project.path(".context/signals/sessions/s1")) == []


def test_all_modes_at_once_disturb_nobody(project, crowd):
    world = hostile.World(project)
    names = (("inject", "UserPromptSubmit"), ("gate", "PreToolUse.Bash"), ("monitor", "PostToolUse.Bash"), ("stop-enforce", "Stop"),
             ("inject", "SessionStart.resume"))
    calls = project.read_json(".context/state/s1.json")["tool_calls"]
    crowd([(mode, world.event(name, **({"tool_use_id": "t%d" % number} if "ToolUse" in name else {})))
           for number in range(CROWD // 5) for mode, name in names])
    state = project.read_json(".context/state/s1.json")
    assert state["tool_calls"] == calls + CROWD // 5
    for name in (".context/monitor-state.json", ".context/metrics.json", ".caw/auto-state.json"):
        assert isinstance(project.read_json(name), dict)
    for line in project.read(".context/events.jsonl").splitlines():
        assert isinstance(json.loads(line), dict), "two lines of the recorder got mixed"
    world.check_user_files()
    assert not [path for path in hostile.looks(project.base) if path.endswith(".tmp")]


def test_twenty_sessions_in_one_project_stay_apart(project, crowd):
    sessions = ["session-%02d" % number for number in range(CROWD * 2 // 5)]
    project.write(".context/signals/global/news.md", "The word is everyone.\n")
    for session in sessions:
        project.write(".context/signals/sessions/%s/own.md" % session, "The word is only-%s.\n" % session)
    calls = [(mode, project.event(name, session_id=session)) for session in sessions
             for mode, name in (("monitor", "PostToolUse.Bash"), ("inject", "UserPromptSubmit"), ("gate", "PreToolUse.Bash"))]
    results = crowd(calls)
    for session in sessions:  # a signal comes with the prompt or with the tool's result, whichever was first
        own = [(mode, result) for (mode, event), result in zip(calls, results) if event["session_id"] == session]
        said = "\n".join(result.context for _, result in own)
        assert [said.count(word) for word in ("everyone.", "only-%s." % session, "only-")] == [1, 1, 1]
        assert all("STOP." in result.context for mode, result in own if mode == "gate")
    for session in sessions:
        assert project.read_json(".context/state/%s.json" % session)["tool_calls"] == 1
    crowd([("cleanup", project.event("SessionEnd.other", session_id=session)) for session in sessions])
    left = [path for path in hostile.looks(project.base) if "session-" in path]
    assert left == []


def test_a_stop_in_ten_processes_moves_the_workflow_once(project, crowd):
    world = hostile.World(project)
    message = hostile.BLOCK % hostile.iso(world.now)
    results = crowd([("stop-enforce", world.event("Stop", last_assistant_message=message)) for _ in range(10)])
    state = project.read_json(".caw/auto-state.json")
    found = collections.Counter(row["signal"] for row in state["signals"]["detected_signals"])
    assert found["PLANNING_COMPLETE"] == 1 and state["phase"] == "execution"
    assert len([result for result in results if "planning is complete" in result.said]) == 1


# -----------------------------------------------------------------------------
# installers
# -----------------------------------------------------------------------------

INSTALL = os.path.join(helper.REPO, "install.py")
OLD = b'{\n    "model": "sonnet",\n    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}\n}\n'


def install(project, *words):
    done = subprocess.run([helper.PYTHON, INSTALL, project.root, "--python", helper.PYTHON, *words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=project.environment({}), cwd=project.root, timeout=60)
    return done.returncode, done.stdout


needs_installer = pytest.mark.skipif(not os.path.exists(INSTALL), reason="there is no install.py")


@needs_installer
@pytest.mark.skipif(helper.IS_WINDOWS, reason="the registered commands in a POSIX shell; test_windows has Git Bash")
def test_hooks_run_while_the_kit_comes_and_goes(project, rounds):
    """The registered commands through a shell, at any moment of an install or an uninstall."""
    settings = project.write(".claude/settings.json", OLD)
    commands, seen, broken = helper.registered_commands(), set(), []
    done = threading.Event()

    def use():
        while not done.is_set():
            with open(settings, "rb") as source:
                data = source.read()
            try:
                seen.add(len(json.loads(data)["hooks"]))
            except ValueError:
                broken.append(data)
            for event, name in (("PreToolUse", "PreToolUse.Bash"), ("PostToolUse", "PostToolUse.Bash"), ("UserPromptSubmit", "UserPromptSubmit")):
                run = subprocess.run(["/bin/sh", "-c", commands[event]], input=json.dumps(project.event(name)).encode(), cwd=project.root,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=project.environment({}), timeout=60)
                if run.returncode or (run.stdout and not isinstance(json.loads(run.stdout), dict)):
                    broken.append((run.returncode, run.stdout, run.stderr))

    users = [threading.Thread(target=use) for _ in range(2)]
    for user in users:
        user.start()
    try:
        for _ in range(min(rounds(2), 20)):
            assert install(project)[0] == 0
            assert install(project, "--uninstall")[0] == 0
    finally:
        done.set()
        for user in users:
            user.join()
    assert broken == [] and len(seen) >= 1
    with open(settings, "rb") as source:
        assert source.read() == OLD
