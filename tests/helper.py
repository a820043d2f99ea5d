"""What every test uses: a project in a temp dir, recorded events, and the three ways to run the kit.

    project.run_hook("gate", event)   a process, with the registered command's argv and a clean environment
    project.call("gate", event)       the same `main()` in a fork of a small process that has the kit (apart.py), or of
                                      this one when the test changed the kit: fast, same result (a process of its
                                      own where there is no fork)
    project.step("gate", event, now)  the handler alone, at a time of the test's choice
    load_kit()                        the module, for its functions
"""
from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from typing import NamedTuple

import apart

TESTS = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(TESTS)
EVENTS = os.path.join(TESTS, "data", "events")
TRANSCRIPTS = os.path.join(TESTS, "data", "transcripts")
PYTHON = os.path.realpath(sys.executable)
RECORDED_PROJECT = "/home/user/project"
RECORDED_HOME = "/home/user"
RUN_TIMEOUT_S = apart.LIMIT_S if os.name == "posix" else 120  # a process takes long to start under Wine
NOBODY = apart.NOBODY
IS_WINDOWS = os.name == "nt"
NO_EXEC = "no process takes the place of another on Windows"
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOW = 1_770_115_500.0  # 2026-02-03T10:45:00Z, the time of the tests that choose one

KIT = os.path.join(REPO, "ctx_hooks.py")
CACHE = os.path.join(REPO, ".dev", "bytecode")  # of all tests together; a person's is ~/.cache/ctx_hooks
FLAGS = ["-I", "-S", "-X", "utf8", "-c"]  # of the registered command; a test compares it with hooks.json


class Result(NamedTuple):
    rc: int
    out: bytes
    err: bytes
    reply: dict | None  # what stdout holds when it is one JSON object

    @property
    def context(self) -> str:
        """The text for the agent, "" when there is none."""
        specific = (self.reply or {}).get("hookSpecificOutput") or {}
        return specific.get("additionalContext", "")

    @property
    def said(self) -> str:
        """The text for the agent in either form: beside what happened, or as the reason of a hold."""
        return self.context or (self.reply or {}).get("reason", "")

    @property
    def is_silent(self) -> bool:
        return (self.rc, self.out, self.err) == (0, b"", b"")


def make_result(rc: int, out: bytes, err: bytes) -> Result:
    try:
        reply = json.loads(out.decode("ascii"))
    except ValueError:
        reply = None
    return Result(rc, out, err, reply if isinstance(reply, dict) else None)


def hook_argv(mode: str, kit: str = KIT, python: str = PYTHON) -> list[str]:
    """The registered command without its shell: the interpreter is the real one, never a shim.

    `mode` may name the agent too: "gate codex".
    """
    return [python, *FLAGS, load_kit().LOADER, *mode.split(), kit, CACHE]


def registered_commands() -> dict[str, str]:
    """event -> the literal command string of hooks.json."""
    with open(os.path.join(REPO, "hooks.json"), encoding="utf-8") as source:
        hooks = json.load(source)["hooks"]
    return {event: entries[0]["hooks"][0]["command"] for event, entries in hooks.items()}


def load_kit(name: str = "ctx_hooks"):
    """ctx_hooks as a module; another name gives a fresh copy."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, os.path.join(REPO, "ctx_hooks.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        _pristine[name] = dict(vars(module))
    return sys.modules[name]


_pristine: dict[str, dict] = {}


def recorded_names() -> list[str]:
    return sorted(name[:-len(".json")] for name in os.listdir(EVENTS) if name.endswith(".json"))


def recorded(name: str) -> dict:
    """An event as the client sent it, e.g. recorded("PostToolUse.Bash")."""
    with open(os.path.join(EVENTS, name + ".json"), encoding="utf-8") as source:
        return json.load(source)


def transcript_rows(name: str) -> list[dict]:
    """A recorded transcript: "main", "subagent" or "hook-receipts"."""
    with open(os.path.join(TRANSCRIPTS, name + ".jsonl"), encoding="utf-8") as source:
        return [json.loads(line) for line in source]


def slashed(path: str) -> str:
    """The form of a path in which the kit shows and the tests compare it."""
    return path.replace("\\", "/") if IS_WINDOWS else path


def native(path: str) -> str:
    """The form in which the client names it."""
    return path.replace("/", "\\") if IS_WINDOWS else path


class Project:
    """A project in a temp dir with its own HOME and TMPDIR. Nothing of the caller's environment gets in.

    Its paths have forward slashes everywhere; the environment and the events have the system's own.
    """

    def __init__(self, base, context: bool = True):
        self.base = slashed(str(base))
        self.root = self.base + "/a project's"  # a space and a quote, everywhere
        self.home = self.base + "/home"
        self.tmp = self.base + "/tmp"
        for folder in (self.root, self.home, self.tmp):
            os.makedirs(folder, exist_ok=True)
        self.env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": self.home, "TMPDIR": self.tmp,
                    "LC_ALL": "C", "CLAUDE_PROJECT_DIR": native(self.root)}
        if IS_WINDOWS:
            self.env.update(windows_environment(self.home, self.tmp))
        if context:
            self.write(".context/CONSTITUTION.md", "# Constitution\n\nBe exact.\n")
            self.write(".context/TASKS.md", "# Tasks\n\n- [ ] one\n")

    def path(self, *parts: str) -> str:
        return slashed(os.path.join(self.root, *parts))

    def write(self, name: str, content: str | bytes, mtime: float | None = None) -> str:
        """Write a file of the project; its folders are made. Returns its path."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(content.encode("utf-8") if isinstance(content, str) else content)
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return path

    def read(self, name: str) -> str:
        with open(self.path(name), encoding="utf-8", newline="") as source:
            return source.read()

    def read_json(self, name: str):
        return json.loads(self.read(name))

    def exists(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    def tree(self, folder: str = "") -> dict[str, bytes | str | None]:
        """Everything below the base (project, home, temp): path -> bytes, link target, or None for a folder."""
        found, start = {}, os.path.join(self.base, folder)
        for where, folders, files in os.walk(start):
            for name in folders + files:
                path = os.path.join(where, name)
                found[slashed(os.path.relpath(path, start))] = _content(path)
        return found

    def event(self, name: str, **changes) -> dict:
        """A recorded event moved into this project; a change to None removes the field."""
        event = _moved(recorded(name), self)
        if "transcript_path" in event:
            event["transcript_path"] = self.transcript_path(changes.get("session_id", event["session_id"]))
        event.update(changes)
        return {key: value for key, value in event.items() if value is not None}

    def transcript_path(self, session: str = "s1") -> str:
        name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in str(session))[:80]
        return self.home + "/.claude/projects/p/" + name + ".jsonl"

    def write_transcript(self, rows: list, session: str = "s1") -> str:
        """Rows are dicts, or str and bytes for what no JSON library would write. Returns the path."""
        path = self.transcript_path(session)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            for row in rows:
                text = json.dumps(row) if isinstance(row, dict) else row
                out.write((text.encode("utf-8") if isinstance(text, str) else text) + b"\n")
        return path

    def run_hook(self, mode: str, event=None, cwd: str | None = None, **env) -> Result:
        """The registered command as a process. event: dict, bytes (sent as they are) or None (empty stdin).

        Environment by keyword; None removes a variable.
        """
        return run_process(hook_argv(mode), _as_input(event), self.environment(env), cwd or self.root)

    def call(self, mode: str, event=None, cwd: str | None = None, **env) -> Result:
        """`main()` in a fork, with its own descriptors, environment and cwd."""
        return _call_apart(mode.split(), _as_input(event), self.environment(env), cwd or self.root)

    def call_as_user(self, mode: str, event=None, **env) -> Result:
        """The same without root's rights, to which nothing is read-only. The project becomes that user's."""
        if not IS_ROOT:
            return self.call(mode, event, **env)
        for where, _, files in os.walk(self.base):
            for path in [where] + [os.path.join(where, name) for name in files]:
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        return _call_apart([mode], _as_input(event), self.environment(env), self.root, as_nobody=True)

    def step(self, mode: str, event: dict, now: float, agent: str = "claude", **env) -> Result:
        """One event at the time `now`, in this process: the text, and then what follows once it is out."""
        text, after = load_kit().run_mode(mode, agent, event, self.environment(env), now)
        for action, *args in after:
            action(*args)
        return make_result(0, text.encode("ascii"), b"")

    def ctx(self, now: float, session: str = "s1", **env):
        """What a handler of this project gets, for tests of single functions."""
        kit = load_kit()
        ctx = kit.find_project(self.root, "", self.environment(env), now)
        ctx.mode, ctx.session, ctx.length = "test", session, kit.units
        return ctx

    def recorded_events(self, name: str = "") -> list[dict]:
        """The rows of the flight recorder, all or those of one kind."""
        if not self.exists(".context/events.jsonl"):
            return []
        rows = [json.loads(line) for line in self.read(".context/events.jsonl").splitlines()]
        return [row for row in rows if not name or row["event"] == name]

    def command(self, *words: str, cwd: str | None = None, stdin: bytes = b"", **env) -> Result:
        """A people's command as a person types it: `python3 ctx_hooks.py WORDS`."""
        argv = [PYTHON, os.path.join(REPO, "ctx_hooks.py"), *words]
        return _with_plain_lines(run_process(argv, stdin, self.environment(env), cwd or self.root))

    def ask(self, *words: str, cwd: str | None = None, stdin: bytes = b"", **env) -> Result:
        """The same in a fork: fast, since the file is not compiled again."""
        return _with_plain_lines(_call_apart(list(words), stdin, self.environment(env), cwd or self.root))

    def environment(self, changes: dict) -> dict[str, str]:
        merged = dict(self.env, **changes)
        return {name: str(value) for name, value in merged.items() if value is not None}


def assistant_row(tokens: int, session: str = "s1", **changes) -> dict:
    """A main-chain assistant row whose usage adds up to tokens, in the recorded shape."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
               "content": [{"type": "text", "text": "fin"}], "stop_reason": "end_turn",
               "usage": {"input_tokens": tokens % 7, "cache_creation_input_tokens": 0,
                         "cache_read_input_tokens": tokens - tokens % 7, "output_tokens": 5}}
    message.update(changes.pop("message", {}))
    row = {"parentUuid": None, "isSidechain": False, "type": "assistant", "uuid": "u1",
           "timestamp": "2026-11-16T00:03:09.000Z", "sessionId": session, "message": message}
    return dict(row, **changes)


def _with_plain_lines(result: Result) -> Result:
    """What people read ends its lines the way of the system."""
    return make_result(result.rc, result.out.replace(b"\r\n", b"\n"), result.err.replace(b"\r\n", b"\n")) if IS_WINDOWS else result


def _as_input(event) -> bytes:
    if event is None:
        return b""
    return event if isinstance(event, bytes) else json.dumps(event).encode("utf-8")


def _moved(value, project: Project):
    """Recorded paths become the project's own."""
    if isinstance(value, dict):
        return {key: _moved(item, project) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, project) for item in value]
    if isinstance(value, str):
        return value.replace(RECORDED_PROJECT, native(project.root)).replace(RECORDED_HOME, native(project.home))
    return value


def _content(path: str):
    if os.path.islink(path):
        return "-> " + os.readlink(path)
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as source:
        return source.read()


def windows_environment(home: str, tmp: str) -> dict[str, str]:
    """What a Windows program cannot do without, and the places that stand for HOME and TMPDIR there."""
    needed = ("SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "WINDIR")
    kept = {name: os.environ[name] for name in needed if name in os.environ}
    places = {"TEMP": tmp, "TMP": tmp, "USERPROFILE": home, "APPDATA": home + "/AppData/Roaming",
              "LOCALAPPDATA": home + "/AppData/Local"}
    return dict(kept, **{name: native(path) for name, path in places.items()})


# Without fork: a process whose kit comes from bytecode in a cache of the test run, compiled once. Of what a test has
# changed in the kit it gets the numbers and texts.
_APART_CODE = ("import sys; from _frozen_importlib_external import SourceFileLoader as L; sys.pycache_prefix = sys.argv.pop(1); "
               "p = sys.argv.pop(1); c = L('ctx_hooks', p).get_code('ctx_hooks'); sys.pycache_prefix = None; "
               "n = {'__name__': 'ctx_hooks', '__file__': p}; exec(c, n); n.update(eval(sys.argv.pop(1))); n['main']()")
_APART_CACHE: list[str] = []


def _call_apart(argv: list[str], data: bytes, env: dict[str, str], cwd: str, as_nobody: bool = False, fault=()) -> Result:
    """fault: (names of operations, which of them, what happens) for apart.Faulty."""
    if hasattr(os, "fork"):
        with _small_process() as channel:
            if channel:
                request = {"argv": argv, "env": env, "cwd": cwd, "as_nobody": as_nobody, "fault": fault}
                return _with_streams(data, lambda streams: _ask_small_process(channel, request, streams))
        kit = apart.Faulty(load_kit(), *fault) if fault else load_kit()
        return _call_forked(kit, argv, data, env, cwd, apart.drop_rights if as_nobody else None)
    if not _APART_CACHE:
        _APART_CACHE.append(tempfile.mkdtemp(prefix="ctx-hooks-bytecode-"))
        atexit.register(shutil.rmtree, _APART_CACHE[0], True)
    changes = {name: value for name, value in vars(load_kit()).items()
               if value is not _pristine["ctx_hooks"].get(name) and isinstance(value, (int, float, str))}
    if fault:
        request = json.dumps({"argv": argv, "fault": fault, "changes": changes})
        command = [PYTHON, "-I", "-S", "-X", "pycache_prefix=" + _APART_CACHE[0], apart.__file__, "once", KIT, request]
    else:
        command = [PYTHON, "-I", "-S", "-c", _APART_CODE, _APART_CACHE[0], KIT, repr(changes), *argv]
    return run_process(command, data, env, cwd)


# The process of apart.py. It knows nothing of what a test has changed in the kit: then this process is forked.
changed_by_test = False  # set by conftest.py for a test that patches
_small: list[socket.socket] = []
_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def _small_process():
    """Its socket, None when it would give another answer than this process or is busy."""
    now = vars(load_kit())
    if any(now.get(name) is not value for name, value in _pristine["ctx_hooks"].items()):
        yield None
        return
    if changed_by_test or not _one_at_a_time.acquire(blocking=False):
        yield None
        return
    try:
        if not _small:
            _small.append(_start_small_process())
        yield _small[0]
    finally:
        _one_at_a_time.release()


def _start_small_process() -> socket.socket:
    ours, theirs = socket.socketpair()
    ours.settimeout(2 * RUN_TIMEOUT_S)
    process = subprocess.Popen([PYTHON, "-I", "-S", apart.__file__, str(theirs.fileno()), KIT], pass_fds=[theirs.fileno()])
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # which ends it; the last registered is the first to be called
    return ours


def _ask_small_process(channel: socket.socket, request: dict, streams: list[int]) -> int:
    mask = os.umask(0)
    os.umask(mask)
    apart.send(channel, dict(request, umask=mask), streams)
    return int(channel.recv(16))


def run_process(argv: list[str], data: bytes, env: dict[str, str], cwd: str, limit_s: float = RUN_TIMEOUT_S) -> Result:
    """One process with `data` on its stdin. Its output goes to files: on Windows a pipe that a grandchild has
    inherited would keep us waiting after the time-out."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        done = subprocess.run(argv, input=data, stdout=out, stderr=err, env=env, cwd=cwd, timeout=limit_s)
        out.seek(0)
        err.seek(0)
        return make_result(done.returncode, out.read(), err.read())


def _call_forked(kit, argv: list[str], data: bytes, env: dict[str, str], cwd: str, first=None) -> Result:
    """A fork of this process, so that a kit that ends its process, sets alarms or closes descriptors cannot end the tests."""
    def fork(streams):
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            apart.run_child(kit, argv, streams, env, cwd, first)
        return apart.exit_code(os.waitpid(pid, 0)[1])
    return _with_streams(data, fork)


def _with_streams(data: bytes, run) -> Result:
    """run(the three standard streams) -> exit code; files, which nobody has to read from while it runs."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin.write(data)
        stdin.seek(0)
        rc = run([stdin.fileno(), out.fileno(), err.fileno()])
        out.seek(0)
        err.seek(0)
        return make_result(rc, out.read(), err.read())
