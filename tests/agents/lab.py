"""A scratch project in which coding agents work one after the other, with one kit."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import clients
from stub_models import StubModel

PYTHON_WITH_RECORD = """#!/bin/sh
# Becomes the real interpreter, so that the client stays its parent. What each hook says
# is kept, with its mode.
mode=
for word; do
  case $word in inject | gate | monitor | stop-enforce | cleanup) mode=$word ;; esac
done
[ -n "$mode" ] || exec %(python)s "$@"
kept=%(said)s/$mode.$$
mkfifo "$kept.pipe"
tee "$kept" < "$kept.pipe" &
exec %(python)s "$@" > "$kept.pipe"
"""
LIMIT_S = 90  # one client process never lives longer
CONTEXT_FILES = {
    "CONSTITUTION.md": "# Constitution\n\nNever push to main.\n",
    "TASKS.md": "# Tasks\n\n- finish the parser\n",
}


class Lab:
    """A repository, a HOME, a stub model; `run` is one session of one client."""

    def __init__(self, root):
        self.root = Path(root)
        self.project = self.root / "project"
        self.home = self.root / "home"
        self.temp = self.root / "temp"
        self.said_dir = self.root / "said"
        for folder in (self.project, self.temp, self.said_dir):
            folder.mkdir(parents=True)
        self.state_home = self.home / ".local/state/ctx_hooks"
        self.python = os.path.realpath(os.environ.get("CTX_E2E_PYTHON", sys.executable))
        self.write_recorder()
        self.stub = StubModel()
        self.left = []
        self.write("README.md", "A scratch repository.\n")
        for name, text in CONTEXT_FILES.items():
            self.write(".context/" + name, text)
        self.command(["git", "init", "-q", str(self.project)])

    def close(self):
        self.end_leftovers(patience_s=0)
        self.stub.close()

    def write_recorder(self):
        """The interpreter that the launcher finds: the real one, with a record."""
        words = {"python": self.python, "said": str(self.said_dir)}
        quoted = {key: shlex.quote(value) for key, value in words.items()}
        self.write_home(".cache/ctx_hooks/python3", PYTHON_WITH_RECORD % quoted)
        (self.home / ".cache/ctx_hooks/python3").chmod(0o755)

    # --- files

    def write(self, name, content):
        write(self.project / name, content)

    def write_home(self, name, content):
        write(self.home / name, content)

    def files(self, pattern):
        found = [path for path in self.project.glob(pattern) if path.is_file()]
        return sorted(str(path.relative_to(self.project)) for path in found)

    def state_files(self, pattern):
        return sorted(self.state_home.glob("*/" + pattern))

    def recorded(self):
        """The recorder's rows."""
        lines = []
        for path in self.state_files("events.jsonl"):
            lines += path.read_text().splitlines()
        return [json.loads(line) for line in lines]

    def newest_session(self):
        """The kit's state about the session that ran last."""
        files = self.state_files("session-*")
        newest = max(files, key=lambda path: path.stat().st_mtime_ns)
        return json.loads(newest.read_text())

    def started(self, mode):
        """How often a hook of this mode started Python since `said` was called."""
        kept = self.said_dir.glob(mode + ".*")
        return len([path for path in kept if path.is_file()])

    def said(self):
        """(mode, text for the agent) of every hook that spoke since the last call."""
        found = []
        kept = [path for path in self.said_dir.iterdir() if path.is_file()]
        for path in sorted(kept, key=lambda one: one.stat().st_mtime_ns):
            text = path.read_text()
            reply = json.loads(text) if text.startswith("{") else {}
            special = reply.get("hookSpecificOutput") or reply
            told = special.get("additionalContext") or reply.get("reason")
            if told:
                found.append((path.name.split(".")[0], told))
            path.unlink()
        return found

    # --- programs

    def environment(self, **extra):
        """Nothing of the caller's but a search path of our own."""
        values = {
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": "/bin/sh",
            "USER": "user",
            "LOGNAME": "user",
            "NO_COLOR": "1",
            "PATH": clients.search_path(),
        }
        return dict(values, **extra)

    def client_environment(self, client, **extra):
        values = dict(
            client.environment(self), PATH=clients.search_path(client.node_oldest)
        )
        return self.environment(**dict(values, **extra))

    def install(self, *agents):
        """The kit, installed as a person does it."""
        words = [self.python, "-I", str(clients.REPO / "install.py")]
        for agent in agents:
            words += ["--agent", agent]
        return self.command(words)

    def ctx(self, *arguments):
        """One of the kit's own commands, run as a person in the project does."""
        return self.command(
            [self.python, "-I", ".claude/hooks/ctx_hooks.py", *arguments]
        )

    def command(self, words):
        done = subprocess.run(
            words,
            cwd=str(self.project),
            env=self.environment(),
            timeout=60,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        told = "%s: exit %d\n%s" % (words, done.returncode, done.stdout)
        assert done.returncode == 0, told
        return done.stdout

    def run(self, client, prompt, **extra):
        """One session: one prompt, until the client ends; what it printed."""
        client.prepare(self)
        process = subprocess.Popen(
            [str(word) for word in client.command(prompt)],
            cwd=str(self.project),
            env=self.client_environment(client, **extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            printed = process.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed = process.communicate()[0]
            told = "%s did not end\n%s" % (client.name, printed[-2000:])
            raise AssertionError(told) from None
        self.left += self.end_leftovers(patience_s=2)
        return printed

    def end_leftovers(self, patience_s):
        """End whatever still runs with this HOME, by its id."""
        deadline = time.monotonic() + patience_s
        while leftovers(self.home) and time.monotonic() < deadline:
            time.sleep(0.1)
        left = leftovers(self.home)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return left


class Terminal:
    """A client's terminal UI in a tmux of its own."""

    def __init__(self, lab, client, *words):
        client.prepare(lab)
        self.env = lab.client_environment(client)
        self.socket = str(lab.root / "tmux")
        pairs = ["%s=%s" % pair for pair in self.env.items()]
        program = [str(client.path()), *words]
        size = ["-x", "140", "-y", "45", "-c", str(lab.project)]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", *size)
        self.tmux("set-option", "-g", "remain-on-exit", "on")
        self.tmux("respawn-pane", "-k", "-t", "t", "env", "-i", *pairs, *program)

    def tmux(self, *words):
        done = subprocess.run(
            ["tmux", "-S", self.socket, *words],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", "t", "-S", "-200")

    def wait(self, text, limit_s=30):
        """Until a text is on the screen; the screen."""
        deadline = time.monotonic() + limit_s
        while text not in self.screen() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert text in self.screen(), "no %r on\n%s" % (text, self.screen())
        return self.screen()

    def type(self, text):
        self.tmux("send-keys", "-t", "t", "-l", text)
        time.sleep(0.5)
        self.tmux("send-keys", "-t", "t", "Enter")

    def is_over(self):
        return "1" in self.tmux("display-message", "-p", "-t", "t", "#{pane_dead}")

    def wait_for_end(self, limit_s=20):
        deadline = time.monotonic() + limit_s
        while not self.is_over() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert self.is_over(), self.screen()

    def close(self):
        self.tmux("kill-server")


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    path.write_text(text, encoding="utf-8")


# --- processes and the network

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


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


def isolate():
    """Leave this process only loopback; False where the system does not allow it."""
    here = str(Path(__file__).resolve().parent)
    code = "import sys; sys.path.append(sys.argv[1]); import lab; lab.enter_namespace()"
    tried = subprocess.run(
        [sys.executable, "-I", "-c", code, here],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
    if tried.returncode == 0:  # half an isolation would be worse than none
        enter_namespace()
    return tried.returncode == 0


def enter_namespace():
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNET if uid == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if uid != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text("%d %d 1" % (uid, uid))
        Path("/proc/self/gid_map").write_text("%d %d 1" % (gid, gid))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", IFF_UP | IFF_RUNNING)
        fcntl.ioctl(control, SIOCSIFFLAGS, request)
