"""Finds, installs and runs the real Claude Code, offline and bounded, for the end-to-end tests.

    python3 tests/e2e/real_client.py          installs the client into .dev/client and prints its version

A `World` is one scratch repository with its own HOME. A `Session` in it is one client process in print mode that
takes several prompts (stream-json); a `Terminal` is the client's terminal UI in a pseudo-terminal. Both are ended
by process group, at the latest after `LIMIT_S`, and a `World` ends whatever was left open.

Environment: CTX_E2E_CLIENT (a path: use this client), CTX_E2E_VERSION (a version to install instead of the latest),
CTX_E2E_PYTHON (the `python3` that the hooks find; default: the one that runs the tests).
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import queue
import re
import shlex
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
API_KEY = "sk-ant-api03-stub-key-for-the-end-to-end-tests-only-0000000000"
LIMIT_S = 200.0  # no process in a terminal or in print mode lives longer
ANSWER_S = 90.0  # what a test waits for comes by then, or the test fails
INSTALL_S = 600
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
    program = Path(os.environ.get("CTX_E2E_CLIENT") or DEV / "client/node_modules/.bin/claude")
    return program if os.access(str(program), os.X_OK) else None


def install():
    """Install the client into .dev/client unless it is there; raise Unavailable when that fails."""
    if not locate():
        # Without a tag npm prefers the newest release whose `engines` accept the local Node and silently takes a
        # much older client; the program is native and does not use Node at all.
        wanted = "%s@%s" % (PACKAGE, os.environ.get("CTX_E2E_VERSION") or "latest")
        options = ["--prefix", str(DEV / "client"), "--no-audit", "--no-fund", "--loglevel=error"]
        fetch(["npm", "install", *options, wanted], "npm could not install %s" % wanted)
    return locate()


def version(program):
    out = subprocess.run([str(program), "--version"], stdout=subprocess.PIPE, text=True, timeout=60).stdout
    return out.split()[0]


def fetch(command, failure):
    """Run a command that installs something; raise Unavailable with this sentence when it fails."""
    try:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        subprocess.run(command, timeout=INSTALL_S, check=True, **pipes)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable("e2e: %s (%s)" % (failure, type(error).__name__)) from None


# ---------------------------------------------------------------------------
# no network but loopback
# ---------------------------------------------------------------------------

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def isolate():
    """Move this process into a network namespace that has only `lo`; False where the system does not allow it."""
    try:  # half an isolation would be worse than none, so a child goes first
        subprocess.run(["true"], preexec_fn=_enter)
    except subprocess.SubprocessError:
        return False
    _enter()
    return True


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
        self.said = self.root / "said"
        self.cache = self.home / ".cache/ctx_hooks"
        for folder in (self.home / ".claude", self.home / "tmp", self.temp, self.bin, self.said, self.cache):
            folder.mkdir(parents=True)
        self._write_python()
        self._prepare_home()
        self.write("README.md", "A scratch repository.\n")
        self.stub = StubModel()
        self.open = []

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
        return {
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
            **extra,
        }

    def _write_python(self):
        """The `python3` that hooks find: the real one, and a copy of what each hook mode said is kept in `said`."""
        program = self.bin / "python3"
        names = {
            "python": os.path.realpath(os.environ.get("CTX_E2E_PYTHON") or sys.executable),
            "said": self.said,
            "runs": self.root / "runs",
            "errors": self.root / "errors",
        }
        program.write_text(PYTHON_WITH_RECORD % {name: shlex.quote(str(value)) for name, value in names.items()})
        program.chmod(0o755)
        (self.cache / "python3").symlink_to(program)  # as `install.py --python` leaves it

    def runs(self, mode):
        """How often an interpreter was started for a hook mode."""
        started = self.root / "runs"
        return started.read_text().split().count(mode) if started.exists() else 0

    def emitted(self):
        """(mode, reply) of every hook run that said something; at PreCompact the reply is a text."""
        found = []
        for path in sorted(self.said.glob("*.*[0-9]")):
            text = path.read_text(encoding="utf-8")
            reply = json.loads(text) if text.startswith("{") else text
            if reply:
                found.append((path.name.split(".")[0], reply))
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

    def left_behind(self):
        """What only a running session needs: marker, launcher's files, its own signals."""
        left = [*self.temp.glob("ctx-loaded-*"), *self.cache.glob("calm/*")]
        return sorted(p.name for p in left) + self.files(".context/signals/sessions/*/*")

    def ours(self, name):
        """The kit's own files of this name about this project, in the user's home."""
        return list(self.home.glob(".local/state/ctx_hooks/*/" + name))

    def errors(self):
        """Internal errors of the kit: it says them on stderr and notes them."""
        logs = [*self.ours("errors.log"), self.root / "errors"]
        return "".join(p.read_text(encoding="utf-8") for p in logs if p.exists())

    def state(self, session):
        """The kit's state of one session."""
        return json.loads(self.ours("session-%s.json" % session)[0].read_text(encoding="utf-8"))

    def recorded(self, *events):
        """The recorder's rows of these kinds, or all."""
        lines = [line for log in self.ours("events.jsonl") for line in log.read_text(encoding="utf-8").splitlines()]
        rows = [json.loads(line) for line in lines if line.endswith("}")]  # one may be half written yet
        return [row for row in rows if not events or row["event"] in events]

    def handoffs(self):
        """{name: text} of the handoffs that wait."""
        return {Path(n).name: self.read(n) for n in self.files(".context/handoffs/*.md")}

    def delivered(self):
        return [Path(n).name for n in self.files(".context/handoffs/delivered/*.md")]

    def leave_handoff(self, text):
        """A handoff that waits, written by hand, by a user who was here before: it did not come with a clone."""
        name = os.path.realpath(self.project).replace("/", "%2F")
        known = self.home / ".local/state/ctx_hooks" / name
        known.mkdir(parents=True, exist_ok=True)
        (known / "root").write_text(str(self.project))
        self.write(".context/handoffs/earlier.md", text)

    def signal(self, body, name="one", where="global", **header):
        """A signal, written as anybody may write one: whole, or not there."""
        lines = ["---"] + ["%s: %s" % pair for pair in header.items()] + ["---", body]
        draft = self.write(".context/signals/%s/%s.draft" % (where, name), "\n".join(lines) + "\n")
        draft.rename(draft.with_suffix(".md"))

    # running ----------------------------------------------------------------

    def command(self, *arguments):
        """What a program prints that runs in the project with the same environment as the client's hooks have."""
        return self.command_in(self.project, *arguments)

    def command_in(self, folder, *arguments):
        words = [str(argument) for argument in arguments]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(words, cwd=str(folder), env=self.environment(), timeout=60, **pipes)
        assert done.returncode == 0, "%s: exit %d\n%s" % (words, done.returncode, done.stdout)
        return done.stdout

    def install(self, *arguments, folder="."):
        """install.py of this repository, run in the project as its README says. It tries a line: that is no hook."""
        runs, before = self.root / "runs", set(self.said.iterdir())
        kept = runs.read_text() if runs.exists() else ""
        told = self.command_in(self.path(folder), self.bin / "python3", REPO / "install.py", *arguments)
        for path in set(self.said.iterdir()) - before:
            path.unlink()
        runs.write_text(kept)
        return told

    def git(self, *arguments):
        who = ("-c", "user.name=user", "-c", "user.email=user@localhost")
        return self.command("git", *who, *arguments).strip()

    def ctx(self, *arguments):
        """One of the kit's own commands, run as a person in the project does."""
        return self.command(self.bin / "python3", ".claude/hooks/ctx_hooks.py", *arguments)

    def session(self, arguments=(), mode=BYPASS, folder=".", **extra):
        return Session(self, self.path(folder), permissions(mode) + arguments, extra)

    def terminal(self, mode=BYPASS):
        return Terminal(self, permissions(mode), {})

    def run(self, *prompts, **options):
        """One client process in print mode: all prompts one after the other, then its end."""
        with self.session(**options) as session:
            for prompt in prompts:
                session.prompt(prompt)
        return session

    def newest_id(self):
        """The id of the session whose transcript was written last."""
        found = (self.home / ".claude/projects").glob("*/*.jsonl")
        return max(found, key=lambda path: path.stat().st_mtime).stem

    def transcripts(self):
        """Every row of every transcript of this world, subagents' included."""
        found = (self.home / ".claude/projects").glob("**/*.jsonl")
        return [json.loads(line) for path in found for line in path.read_text(encoding="utf-8").splitlines()]


def permissions(mode):
    """The client's arguments for a permission mode."""
    return ("--dangerously-skip-permissions",) if mode == BYPASS else ("--permission-mode", mode)


# ---------------------------------------------------------------------------
# processes
# ---------------------------------------------------------------------------


def wait_until(condition, what, shown=str):
    """Poll for something that no event announces; the test fails when it does not come, and says what is `shown`."""
    end = time.monotonic() + ANSWER_S
    while not condition():
        assert time.monotonic() < end, "never came: %s\n%s" % (what, shown())
        time.sleep(0.1)


class Process:
    """What both forms share: bounded life, ended by process group."""

    def start(self, world, folder, command, extra, **pipes):
        words, env = [str(word) for word in command], world.environment(**extra)
        self.process = subprocess.Popen(words, cwd=str(folder), env=env, start_new_session=True, **pipes)
        world.open.append(self)
        self.watchdog = threading.Timer(LIMIT_S, self.kill)
        self.reader = threading.Thread(target=self.follow)
        for thread in (self.watchdog, self.reader):
            thread.daemon = True
            thread.start()

    def kill(self):
        """End the whole group; also what the client's tools and hooks may have left in it."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(10)
        self.watchdog.cancel()
        self.reader.join(5)
        for stream in self.streams:
            stream.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.end()
        self.kill()


class Session(Process):
    """`claude -p` with stream-json on both sides: several prompts in one session."""

    def __init__(self, world, folder, arguments, extra):
        self.events = []  # everything the client printed, parsed
        self.results = queue.Queue()
        formats = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        errors = open(str(world.root / "stderr.txt"), "a")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        self.start(world, folder, [world.program, "-p", *formats, *arguments], extra, **pipes)
        self.streams = (self.process.stdin, self.process.stdout, errors)

    def follow(self):
        for line in self.process.stdout:
            event = json.loads(line)
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
        return self.wait_result()

    def wait_result(self):
        try:
            result = self.results.get(timeout=ANSWER_S)
        except queue.Empty:
            result = None
        assert result, "no result\n" + "\n".join(json.dumps(event)[:400] for event in self.events[-8:])
        return result

    def end(self):
        """Close the input, as a caller does when it has no more prompts; SessionEnd runs, then the client exits."""
        self.process.stdin.close()
        self.process.wait(ANSWER_S)
        self.reader.join(5)

    @property
    def id(self):
        """The session's id, the newest one after /clear."""
        return next(e["session_id"] for e in reversed(self.events) if e.get("session_id"))

    def notices(self):
        """The lines that the client showed to the person on behalf of hooks."""
        shown = [e["content"] for e in self.events if e.get("subtype") == "informational"]
        return [line.partition(" says: ")[2] for line in shown if " says: " in line]


class Terminal(Process):
    """A program in a pseudo-terminal; `shown()` is what it ever drew, without the control sequences."""

    def __init__(self, world, arguments, extra, rows=40, columns=160):
        self.raw = bytearray()
        master, slave = os.openpty()
        self.master = os.fdopen(master, "r+b", buffering=0)
        self.streams = (self.master,)
        self.settings = termios.tcgetattr(slave)  # before the program changes them
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        pipes = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.start(world, world.project, [world.program, *arguments], extra, **pipes)
        os.close(slave)

    def follow(self):
        data = b"-"
        while data:
            try:
                data = self.master.read(65536)
            except OSError:  # EIO: the other side is closed
                return
            self.raw += data
            if b"\x1b[6n" in data:  # a terminal answers where its cursor is
                self.press("\x1b[1;1R")

    def shown(self, since=0):
        return plain(bytes(self.raw[since:]).decode("utf-8", "replace"))

    def wait_shown(self, *texts, since=0):
        """Wait until the program has drawn one of the texts."""
        wait_until(lambda: any(text in self.shown(since) for text in texts), texts, lambda: self.shown()[-3000:])

    def press(self, keys):
        self.master.write(keys.encode("utf-8"))

    def answer(self, key, shown):
        """Press a key until the UI shows what it causes: a question is drawn a moment before its keys count."""
        before = len(self.raw)

        def is_answered():
            self.press(key)
            time.sleep(1)
            return shown in self.shown(before)

        wait_until(is_answered, shown, self.shown)

    def type(self, text):
        """Type a line. The UI takes a burst of characters for a paste, so the Enter comes when the text is drawn."""
        before = len(self.raw)
        self.press(text)
        self.wait_shown(text.split()[-1], since=before)
        self.press("\r")

    def end(self):
        self.type("/exit")
        self.process.wait(ANSWER_S)


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
