"""Nothing lost: kill -9, errors and full disks at every single file operation, folders that may not be written or vanish.

The operations of a run are counted; the fault comes at the first, then at the second, … until a run has no more.
So no point in time is left to chance.
"""
from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import pytest

import apart
import helper
import hostile
from hostile import CHANGING, ERRORS, KILLED, READING, STEP, World

is_root = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534
WRITERS = {
    "inject": ("inject", "UserPromptSubmit"), "inject at the start": ("inject", "SessionStart.startup"),
    "inject after a compaction": ("inject", "SessionStart.compact"), "gate": ("gate", "PreToolUse.Bash"),
    "monitor": ("monitor", "PostToolUse.Read"), "monitor before a compaction": ("monitor", "PreCompact.auto"), "stop-enforce": ("stop-enforce", "Stop"), "cleanup": ("cleanup", "SessionEnd.other"),
    "signal": ("signal Words --session s1 --name ci", None), "auto start": ("auto start Task --force", None), "auto stop": ("auto stop", None),
    "pause": ("pause", None)}
HOOKS = [name for name, (mode, _) in WRITERS.items() if mode in hostile.MODES]
MANY = 400


@pytest.fixture
def world(project):
    world = World(project)
    for name, word in (("ci", "alpha"), ("context-health", "beta")):
        project.write(".context/signals/sessions/s1/%s.md" % name, "The word is %s.\n" % word)
    project.write(".context/signals/global/news.md", "The word is gamma.\n")
    project.write(".contextrc", "monitor:\n  inject_min_severity: info\n")
    for name in (".context/signals/sessions/s1/ci.md", ".context/signals/sessions/s1/context-health.md",
                 ".context/signals/global/news.md", ".contextrc"):
        world.files[name] = project.read(name)
    return world


def event_of(world, writer):
    mode, name = WRITERS[writer]
    event = world.event(name) if name else None
    if writer == "stop-enforce":
        event["last_assistant_message"] = hostile.BLOCK % hostile.iso(world.now)
    return mode, event


def check_files(world):
    """Every file of ours can be read, every one of the user's is theirs."""
    for where, _, names in os.walk(world.project.root):
        for name in names:
            path = os.path.join(where, name)
            if name.endswith((".json", ".statusline", ".claims")) and "/aside/" not in helper.slashed(path) and os.path.getsize(path):
                with open(path, encoding="utf-8") as source:
                    assert isinstance(json.load(source), dict), path
    world.check_user_files()


def leftovers(world):
    return [path for path in hostile.looks(world.project.base) if path.endswith(".tmp")]


def unexpected(world, before):
    """What changed outside the allowed places, half-written files of a killed process aside."""
    now = world.foreign()
    return [path for path in {**before, **now} if before.get(path) != now.get(path) and not path.endswith(".tmp")]


# -----------------------------------------------------------------------------
# kill -9
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("writer", list(WRITERS))
def test_kill_9_at_any_operation_leaves_readable_files_and_the_next_run_works(world, writer):
    mode, event = event_of(world, writer)
    for at in range(1, MANY, STEP):
        world.reset()
        before = world.foreign()
        killed = hostile.run_with_fault(world.project, mode, event, CHANGING, at, "kill")
        check_files(world)
        again = world.project.call(mode, event)
        assert again.rc == 0 and again.err == b"", (at, again)
        check_files(world)
        assert not unexpected(world, before), at
        if killed.rc != KILLED:
            assert killed.rc == 0 and at > 2
            return
    pytest.fail("a run that never ends")


def test_kill_9_loses_no_signal_and_delivers_none_more_than_twice(world):
    """A claim that nothing followed is void after some seconds."""
    event = world.event("UserPromptSubmit")
    for at in range(1, MANY, STEP):
        world.reset()
        runs = [hostile.run_with_fault(world.project, "inject", event, CHANGING, at, "kill")]
        runs += [world.project.step("inject", event, world.now + 60 * number) for number in (1, 2, 3)]
        for word in ("alpha", "beta", "gamma"):
            said = [run.context.count(word + ".") for run in runs]
            assert 1 <= sum(said) <= 2 and max(said) == 1 and said[3] == 0, (at, word, said)
        if runs[0].rc == 0:
            return
    pytest.fail("a run that never ends")


def test_what_a_killed_writer_left_half_written_goes_by_age(world):
    """Beside the state and among the files of the context folder."""
    found = set()
    for writer in ("inject", "monitor", "stop-enforce", "cleanup", "signal"):
        mode, event = event_of(world, writer)
        for at in range(1, MANY, STEP):
            world.reset()
            killed = hostile.run_with_fault(world.project, mode, event, CHANGING, at, "kill")
            if killed.rc == 0:
                break
            if not leftovers(world):
                continue
            for path in leftovers(world):
                found.add(os.path.basename(path).split(".")[0])
                os.utime(os.path.join(world.project.base, path), (world.now - 10 * 86400,) * 2)
            for _ in range(MANY):  # a busy machine collects some at a time
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(world.project.path(".context/state/collected"))  # else the next one is due in an hour
                world.project.call("inject", world.event("SessionStart.startup", session_id="next"))
                left = [path for path in leftovers(world)  # a session's signals go with it
                        if "/.context/" in path and "/signals/" not in path]
                if not left:
                    break
            assert left == [], at
    assert STEP > 1 or {"s1", "monitor-state"} <= found


def test_kill_9_never_splits_the_fallback_section_from_its_removal(world):
    """However the writing was cut short: once acknowledged, the file is the user's again, byte for byte."""
    event = world.event("UserPromptSubmit")
    escalated = False
    for at in range(1, MANY, STEP):
        world.reset()
        killed = hostile.run_with_fault(world.project, "inject", event, CHANGING, at, "kill")
        world.project.call("inject", event)
        escalated = escalated or "STARTUP_CONTEXT_INJECTION" in world.project.read("CLAUDE.md")
        answer = {"id": "msg_2", "content": [{"type": "text", "text": "ACK: context received"}]}
        late = helper.assistant_row(1000, message=answer, timestamp=hostile.iso(time.time() + 60))
        with open(world.transcript, "ab") as out:
            out.write(json.dumps(late).encode() + b"\n")
        world.project.call("gate", world.event("PreToolUse.Bash"))
        assert world.project.read("CLAUDE.md").encode() == world.user["CLAUDE.md"], at
        if killed.rc == 0:
            assert escalated or STEP > 1
            return
    pytest.fail("a run that never ends")


# -----------------------------------------------------------------------------
# errors of the file system
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("writer", HOOKS)
def test_an_error_at_any_operation_stays_our_own(world, rounds, writer):
    mode, event = event_of(world, writer)
    rng = random.Random(writer)
    codes, start, step = (ERRORS, 1, 1) if rounds(1) > 1 else ((None,), rng.randrange(1, 6), 5 * STEP)
    for code in codes:
        for at in range(start, MANY, step):
            world.reset()
            before = world.foreign()
            result = hostile.run_with_fault(world.project, mode, event, READING, at, "fail", code or rng.choice(ERRORS))
            with hostile.told(writer, at, code):
                hostile.check_result(result)
                check_files(world)
                assert not unexpected(world, before)
            if at > 5 and at > operations(world, mode, event):
                break


def operations(world, mode, event, known={}):  # noqa: B006 - counted once for each mode
    """How many operations a run has at most, found by killing it at one that it has not."""
    key = (mode, event.get("hook_event_name"))
    if key not in known:
        for at in (40, 80, 120, 160, 200, 300, MANY, 4 * MANY):
            world.reset()
            if hostile.run_with_fault(world.project, mode, event, READING, at, "kill").rc == 0:
                known[key] = at
                break
    return known[key]


@pytest.mark.parametrize("writer", HOOKS)
def test_an_operation_that_never_ends_ends_in_silence(kit, world, rounds, monkeypatch, writer):
    """A hung file system: whichever operation it is, the deadline of the whole run holds, and exit 0."""
    mode, event = event_of(world, writer)
    monkeypatch.setattr(kit, "HOOK_LIMIT_S", 0.25)
    monkeypatch.setattr(kit, "CLEANUP_LIMIT_S", 0.25)
    rng = random.Random(writer)
    step = 1 if rounds(1) > 1 else 40 if STEP == 1 else 120
    for at in range(rng.randrange(1, 20), MANY, step):
        world.reset()
        before = world.foreign()
        result = hostile.run_with_fault(world.project, mode, event, READING, at, "hang", 2 * helper.RUN_TIMEOUT_S)
        with hostile.told(writer, at):
            hostile.check_result(result)
            check_files(world)
            assert not unexpected(world, before)
        if at > operations(world, mode, event):
            return


@pytest.mark.parametrize("writer", HOOKS)
@pytest.mark.parametrize("limit_bytes", [0, 1, 100])
def test_a_full_disk_costs_the_write_and_never_the_hook(kit, world, writer, limit_bytes):
    """By the limit of the process, which any user has: a file cannot grow any more."""
    resource = pytest.importorskip("resource")
    mode, event = event_of(world, writer)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    if limit_bytes == 1:  # one of them as the process that it is about
        done = subprocess.run(helper.hook_argv(mode), input=json.dumps(event).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=world.project.environment({}), cwd=world.project.root, timeout=helper.RUN_TIMEOUT_S, preexec_fn=fill)
        hostile.check_result(helper.make_result(done.returncode, done.stdout, done.stderr))
    else:  # its output is a file here, which cannot grow either
        result = helper._call_forked(kit, [mode], helper._as_input(event), world.project.environment({}), world.project.root, fill)
        assert (result.rc, result.err) == (0, b"")
    check_files(world)
    assert leftovers(world) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    if not is_root or not shutil.which("mount") or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield str(place)
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_really_full_disk_is_survived_and_works_again_when_there_is_room(kit, small_disk):
    project = helper.Project(small_disk)
    world = World(project)
    ballast = os.path.join(small_disk, "ballast")
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as out:
        for _ in range(5000):
            out.write(b"x" * 1024)
    for writer in HOOKS:
        mode, event = event_of(world, writer)
        if writer != "cleanup":
            hostile.check_result(project.call(mode, event))
            check_files(world)
    os.unlink(ballast)
    calls = project.read_json(".context/state/s1.json")["tool_calls"]
    hostile.check_result(project.call("monitor", world.event("PostToolUse.Read")))
    assert project.read_json(".context/state/s1.json")["tool_calls"] == calls + 1


# -----------------------------------------------------------------------------
# permissions
# -----------------------------------------------------------------------------


@pytest.fixture
def nobodys_world():
    """A project that belongs to an ordinary user and can be reached by one."""
    if helper.IS_WINDOWS:
        pytest.skip("Windows has no mode bits")
    base = tempfile.mkdtemp(prefix="ctx-hostile-", dir="/tmp")
    try:
        world = World(helper.Project(base))
        own(base)
        yield world
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", base])
        shutil.rmtree(base)


def own(base):
    os.chmod(base, 0o755)
    for where, folders, names in os.walk(base):
        for name in [".", *folders, *names]:
            if is_root:
                os.chown(os.path.join(where, name), NOBODY, NOBODY, follow_symlinks=False)


def as_nobody(world, mode, event):
    return helper._call_apart([mode], helper._as_input(event), world.project.environment({}), world.project.root, as_nobody=is_root)


FORBIDDEN = ((".context", 0o555), (".context", 0o111), (".context/state", 0o555), (".context/state", 0), (".context/signals", 0o555),
             (".context/signals/sessions/s1", 0o555), (".context/signals/sessions/s1", 0), (".context/signals/global", 0o555),
             (".context/signals/sessions/s1/ci.md", 0), (".context/state/s1.json", 0), (".context/state/s1.json", 0o444),
             (".context/monitor-state.json", 0), (".context/metrics.json", 0), (".caw/auto-state.json", 0), (".caw/auto-state.json", 0o444),
             (".caw", 0o555), (".caw", 0), ("CLAUDE.md", 0o444), ("CLAUDE.md", 0), (".contextrc", 0), (".context/TASKS.md", 0), ("../tmp", 0o555), ("../tmp", 0),
             (".", 0o555), (".", 0o111), (".", 0), ("../home/.claude/projects/p/s1.jsonl", 0), (".claude/ll-continue-prompt.md", 0),
             (".context/handoffs", 0o555), (".context/handoffs", 0), (".context/handoffs/s0.md", 0), (".context/state/handoffs.json", 0))


@pytest.mark.parametrize("name, mode_bits", FORBIDDEN)
def test_what_may_not_be_read_or_written_costs_itself_only(nobodys_world, name, mode_bits):
    world = nobodys_world
    path = os.path.normpath(world.project.path(name))
    usual = stat.S_IMODE(os.stat(path).st_mode)
    before = world.foreign()
    os.chmod(path, mode_bits)
    for writer in HOOKS:
        mode, event = event_of(world, writer)
        result = as_nobody(world, mode, event)
        with hostile.told(writer):
            hostile.check_result(result)
    if os.path.lexists(path):
        os.chmod(path, usual)
    check_files(world)
    changed = unexpected(world, before)
    assert [path for path in changed if not path.endswith((name, "/" + os.path.basename(name)))] == []


def test_a_read_only_project_repeats_no_signal_at_every_prompt(nobodys_world):
    """What cannot be remembered is not said."""
    world = nobodys_world
    world.project.write(".context/signals/sessions/s1/ci.md", "The word is alpha.\n")
    own(world.project.base)
    for name in (".context/signals/sessions/s1", ".context/state", ".context"):
        os.chmod(world.project.path(name), 0o555)
    assert not any("alpha." in as_nobody(world, "inject", world.event("UserPromptSubmit")).context for _ in range(3))


def test_a_lock_and_a_state_of_another_user_hold_nobody(nobodys_world):
    if not is_root:
        pytest.skip("needs root to give files away")
    world = nobodys_world
    for name in ("s1.lock", "monitor-state.lock", "metrics.lock", "auto-state.lock", "s1.json", "errors.log", "collected"):
        path = world.project.write(".context/state/" + name, "")
        os.chown(path, 0, 0)
        os.chmod(path, 0o600)
    for writer in HOOKS:
        mode, event = event_of(world, writer)
        hostile.check_result(as_nobody(world, mode, event))


# -----------------------------------------------------------------------------
# things that vanish, locks, clocks
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [".context", ".", ".context/state", ".context/signals", ".caw", "../tmp", ".context/signals/sessions/s1"])
@pytest.mark.parametrize("writer", ["inject", "monitor", "stop-enforce", "cleanup"])
def test_a_folder_that_vanishes_in_the_middle_is_not_missed(world, rounds, writer, gone):
    mode, event = event_of(world, writer)
    path = os.path.normpath(world.project.path(gone))
    for at in range(1, MANY, 1 if rounds(1) > 1 else 60 if STEP == 1 else 150):
        os.makedirs(world.project.tmp, exist_ok=True)
        os.makedirs(world.project.root, exist_ok=True)
        world.reset()
        result = hostile.run_with_fault(world.project, mode, event, READING, at, "vanish", path)
        with hostile.told(at):
            hostile.check_result(result)
            if gone in (".", "../tmp") and not os.path.isdir(path):
                continue
            if gone == ".context" and at < 60:
                assert not os.path.isdir(path), "created again: whoever removes it wants no hooks"
        if at > operations(world, mode, event):
            return


HOLDER = """
import os, sys, time
temporary = getattr(os, "O_TEMPORARY", 0)  # on Windows the file itself is the lock
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | (temporary and temporary | os.O_EXCL), 0o600)
if not temporary:
    os.lockf(fd, os.F_LOCK, 0)
print("held", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def holder(path):
    process = subprocess.Popen([helper.PYTHON, "-I", "-S", "-c", HOLDER, path], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline().strip() == b"held"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_lock_held_by_a_stopped_process_costs_the_write_and_never_the_hook(kit, project, monkeypatch):
    world = World(project)
    monkeypatch.setattr(kit, "LOCK_WAIT_S", 0.2)
    with holder(kit.lock_path(project.ctx(0.0), "s1.json")) as process:  # that of what it has heard, too
        if hasattr(signal, "SIGSTOP"):
            os.kill(process.pid, signal.SIGSTOP)
        state = project.read(".context/state/s1.json")
        hostile.check_result(project.call("monitor", world.event("PostToolUse.Read")))
        assert project.read(".context/state/s1.json") == state
        prompt = project.call("inject", world.event("UserPromptSubmit"))
        hostile.check_result(prompt)
        assert "87% full" not in prompt.context and project.exists(".context/signals/sessions/s1/ci.md")
    assert "87% full" in project.call("inject", world.event("UserPromptSubmit")).context


def test_a_lock_of_a_dead_process_holds_nobody(kit, project):
    world = World(project)
    calls = project.read_json(".context/state/s1.json")["tool_calls"]
    with holder(kit.lock_path(project.ctx(0.0), "s1.json")) as process:
        process.kill()
        process.wait()
        hostile.check_result(project.call("monitor", world.event("PostToolUse.Read")))
    assert project.read_json(".context/state/s1.json")["tool_calls"] == calls + 1


@pytest.mark.parametrize("jump_s", [-10 * 365 * 86400, -86400, -3, 3, 86400, 10 * 365 * 86400])
def test_a_clock_that_jumps_loses_no_signal_and_ends_every_reminder(kit, project, jump_s):
    world = World(project)
    os.unlink(project.path(".context/state/s1.json"))
    project.write(".contextrc", "monitor:\n  context_window: 200000\n")

    def run(mode, name, now):
        event = world.event(name, tool_use_id=None)  # no batch, so that each call is reminded
        return hostile.run_checked(kit, mode, event, world.env, now)

    assert "handoff" in run("monitor", "PostToolUse.Bash", world.now)
    then = world.now + jump_s
    for path in (project.write(".context/signals/sessions/s1/new.md", "The word is alpha.\n", mtime=then), ):
        assert os.path.exists(path)
    assert "alpha." in run("inject", "UserPromptSubmit", then)
    assert "handoff" in run("monitor", "PostToolUse.Read", then + 1)
    project.write(".context/handoffs/s1.md", "# Handoff\n\nThe goal.\n", mtime=then + 2)
    run("monitor", "PostToolUse.Read", then + 4)
    assert "handoff" not in run("monitor", "PostToolUse.Read", then + 5)


def test_a_signal_from_the_future_expires(kit, project):
    world = World(project)
    for name in ("ci", "context-health"):
        os.unlink(project.path(".context/signals/sessions/s1/%s.md" % name))
    text = "---\ngenerated_at: %s\nseverity: info\nttl: 60\n---\nThe word is delta.\n" % hostile.iso(world.now + 365 * 86400)
    project.write(".contextrc", "monitor:\n  inject_min_severity: critical\n")
    path = project.write(".context/signals/sessions/s1/x.md", text, mtime=world.now)
    hostile.run_checked(kit, "inject", world.event("UserPromptSubmit"), world.env, world.now)
    assert os.path.exists(path)
    hostile.run_checked(kit, "inject", world.event("UserPromptSubmit"), world.env, world.now + 120)
    assert not os.path.exists(path), "a signal from the future is immortal"


# -----------------------------------------------------------------------------
# the installer
# -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installer():
    path = os.path.join(helper.REPO, "install.py")
    if not os.path.exists(path):
        pytest.skip("there is no install.py")
    spec = importlib.util.spec_from_file_location("install_hostile", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Killed:
    """install.main() with kill -9 at one of the operations that change something."""

    NAMES = ("replace", "rename", "unlink", "mkdir", "rmdir", "fsync", "chmod", "open", "fdopen")

    def __init__(self, module, argv, at):
        self.module, self.argv, self.at, self.count = module, argv, at, 0

    def main(self):
        for name in self.NAMES:
            setattr(os, name, self._counted(getattr(os, name)))
        raise SystemExit(self.module.main(self.argv))

    def _counted(self, real):
        def operation(*args, **kwargs):
            self.count += 1
            if self.count == self.at:
                apart.end_at_once()
            return real(*args, **kwargs)
        return operation


@pytest.mark.parametrize("words", [[], ["--uninstall"]])
def test_kill_9_of_the_installer_leaves_old_or_new_settings(installer, tmp_path, words):
    old = b'{\r\n\t"model": "sonnet",\r\n\t"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}\r\n}'
    project = helper.Project(tmp_path)
    # The interpreter is named, so that none has to be looked for in each of the runs.
    argv = [project.root, "--python", helper.PYTHON]
    settings = project.write(".claude/settings.json", old)

    def run(words, at=0):
        fake = Killed(installer, argv + words, at)
        return helper._call_forked(fake, [], b"", project.environment({"PYTHONDONTWRITEBYTECODE": "1"}), project.root)

    assert run([]).rc == 0
    new = project.read(".claude/settings.json").encode()
    for at in range(1, MANY, 1 if os.environ.get("CTX_SOAK") == "1" else 29):
        shutil.rmtree(project.path(".claude"))
        project.write(".claude/settings.json", old)
        if "--uninstall" in words:
            assert run([]).rc == 0
        killed = run(words, at)
        with open(settings, "rb") as source:
            assert source.read() in (old, new), at
        if killed.rc != KILLED:
            assert killed.rc == 0, killed.err
            return
        assert run([]).rc == 0 and run(["--check"]).rc == 0
        assert run(["--uninstall"]).rc == 0
        with open(settings, "rb") as source:
            assert source.read() == old, at
    pytest.fail("a run that never ends")
