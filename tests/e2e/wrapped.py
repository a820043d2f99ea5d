"""Real programs under `ctx_hooks.py wrap`, in a pseudo-terminal with a person at it.

A `Program` says how a program is found or fetched into .dev/agents and how it is started: offline, with a HOME of its
own. A `Desk` is one run: a scratch project with a handoff, a stub model on loopback, the wrapped program, and a person
who reads output and presses keys. Everything waits for a fact, with a guard.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import real_client

REPO = Path(__file__).resolve().parents[2]
KIT = REPO / "ctx_hooks.py"
AGENTS = REPO / ".dev" / "agents"
ANSWER_S = 90.0  # a fact comes within this, or the test fails
LIMIT_S = 200.0  # no wrapped program lives longer
LOOK_AWAY_S = 3.0  # time for a wrong detector to show it
ACK = "ACK: context received"
GOAL = "Goal: finish the parser of the small language"
RAN = "ran.txt"  # what a shell command of the agent's would leave behind
TYPED = b"CONTEXT INJECTION"

REPL = """
import sys, time
print("Welcome to a small agent.")
while True:
    line = input("> ")
    if "CONTEXT INJECTION" in line:
        time.sleep(%(think_s)s)
        print(%(answer)r)
    else:
        print("You said: " + line)
"""
ASKS = {  # before its first prompt; what was asked, and what the person answers
    "hidden input": ("import getpass\nword = getpass.getpass('Secret word ')", b"Secret word", b"abc\r", "abc"),
    "[Y/n]": ("word = input('Remove the old index? [Y/n] ')", b"[Y/n]", b"n\r", "n"),
    "numbered choice": ("print('Pick a model\\n 1. small\\n 2. large')\nword = input('> ')", b"2. large", b"2\r", "2"),
    "trust": ("word = input('Do you trust the files in this folder?\\n> ')", b"trust", b"no\r", "no"),
    "a name": ("word = input('Project name: ')", b"Project name", b"mine\r", "mine"),
}


class Program:
    """One program: where it is, and its command line."""

    def __init__(self, name, package="", quit_keys=b"\x04"):
        self.name, self.package, self.quit_keys = name, package, quit_keys

    def install(self):
        """Its path; raises Unavailable with a sentence."""
        found = AGENTS / self.package / "bin" / self.name if self.package else None
        path = shutil.which(self.name) or (str(found) if found and os.access(str(found), os.X_OK) else "")
        if not path and not self.package:
            raise real_client.Unavailable("e2e: there is no %s on this machine" % self.name)
        if not path:
            home = found.parents[1]
            real_client._run([sys.executable, "-m", "venv", str(home)], "no virtual environment for " + self.package)
            install = [str(home / "bin/pip"), "install", "-q", "--disable-pip-version-check", self.package]
            real_client._run(install, "pip could not install " + self.package)
            path = str(found)
        return path

    def command(self, path, desk):
        return [path]


class Aider(Program):
    def command(self, path, desk):
        desk.extra = {"OPENAI_API_KEY": "dummy", "OPENAI_API_BASE": desk.stub.url + "/v1", "AIDER_ANALYTICS": "false"}
        options = ["--model", "openai/stub-model", "--no-show-model-warnings", "--no-show-release-notes"]
        options += ["--edit-format", "diff", "--no-check-update", "--no-auto-commits"]
        return [path, *options, *([] if desk.asks else ["--no-gitignore"])]


class Script(Program):
    """A small agent of ours; what it asks first stands in ASKS."""

    def install(self):
        return os.path.realpath(sys.executable)

    def command(self, path, desk):
        code = REPL % {"think_s": desk.think_s, "answer": desk.answer}
        if desk.asks:
            code = ASKS[desk.asks][0] + "\nopen('answer.txt', 'w').write(word)\n" + code
        return [path, "-I", "-c", code]


class Python(Script):
    def command(self, path, desk):
        return [path, "-I", "-q"]


class Ipython(Program):
    def command(self, path, desk):
        return [path, "--no-banner", "--no-confirm-exit"]


class Foreign(Program):
    """An editor, a pager, a monitor. A shell runs it, because alone it is refused."""

    def command(self, path, desk):
        desk.write("notes.txt", "".join("line %d of a person's file\n" % number for number in range(200)))
        arguments = {"vim": ["-n", "-u", "NONE", "notes.txt"], "less": ["notes.txt"]}.get(self.name, [])
        return ["sh", "-c", 'exec "$@"', "sh", path, *arguments]


PROGRAMS = {program.name: program for program in (
    Aider("aider", "aider-chat", b"\x04"), Ipython("ipython", "ipython", b"\x04"), Python("python3"), Program("cat"),
    Foreign("vim", quit_keys=b"\x1b:q!\r"), Foreign("less", quit_keys=b"q"), Foreign("top", quit_keys=b"q"),
    Script("small agent"))}
_found, _table = {}, []


def install(name):
    """The program's path, or why it cannot be had; tried once, before the network is closed off."""
    if name not in _found:
        try:
            _found[name] = PROGRAMS[name].install()
        except real_client.Unavailable as reason:
            _found[name] = reason
    return _found[name]


def install_all():
    for name in PROGRAMS:
        install(name)


def table():
    """The lines of the table: program x situation."""
    head = ("program", "situation", "typed", "submitted", "acknowledged", "questions answered for the person")
    rows = [head, *_table]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return lines if _table else []


# ---------------------------------------------------------------------------
# the model
# ---------------------------------------------------------------------------


class Stub:
    """Chat completions on loopback. `answer(request's text)` gives (text, seconds to wait)."""

    def __init__(self, answer):
        self.requests, self.closing = [], threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                self.reply("application/json", '{"object": "list", "data": []}')

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                text = json.dumps(request, ensure_ascii=False)
                stub.requests.append(text)
                said, wait_s = answer(text)
                stub.closing.wait(wait_s)
                head = {"id": "chatcmpl-1", "created": 1, "model": "stub-model"}
                if not request.get("stream"):
                    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
                    return self.reply("application/json", json.dumps(
                        dict(head, object="chat.completion", choices=[choice], usage={"total_tokens": 9})))
                deltas = [({"role": "assistant", "content": said}, None), ({}, "stop")]
                chunks = [dict(head, object="chat.completion.chunk", choices=[
                    {"index": 0, "delta": delta, "finish_reason": reason}]) for delta, reason in deltas]
                lines = ["data: %s\n\n" % json.dumps(chunk) for chunk in chunks] + ["data: [DONE]\n\n"]
                self.reply("text/event-stream", "".join(lines))

            def reply(self, kind, text):
                data = text.encode("utf-8")
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    pass  # the agent has gone

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def holds(self, words):
        return any(words in request for request in list(self.requests))

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()


# ---------------------------------------------------------------------------
# one run
# ---------------------------------------------------------------------------


class Desk:
    """A person at a terminal in which `wrap` runs a program."""

    def __init__(self, root, name, **situation):
        self.program, self.root, self.extra = PROGRAMS[name], Path(root), {}
        self.asks, self.answer, self.think_s = situation.get("asks", ""), situation.get("answer", ACK), situation.get("think_s", 0)
        self.asked = self.touched = 0
        self.home, self.project = self.root / "home", self.root / "project"
        for folder in (self.home / "tmp", self.project / ".context" / "handoffs"):
            folder.mkdir(parents=True)
        self.stub = Stub(lambda text: (self.answer, self.think_s) if GOAL in text else ("Fine.", 0))
        self.write(".context/handoffs/before.md", "# Handoff\n\n%s\n\n1. read the grammar\n2. write the tests\n" % GOAL)
        self.write(".contextrc", "startup:\n  file_fallback_after_attempts: 1\n  retry_backoffs_s: [1]\n")
        command = self.program.command(str(install(name)), self)
        subprocess.run(["git", "init", "-q"], cwd=str(self.project), env=self.environment(), check=True)
        for key, value in (("user.name", "user"), ("user.email", "user@localhost")):
            subprocess.run(["git", "config", key, value], cwd=str(self.project), env=self.environment(), check=True)
        if situation.get("slow"):
            command = ["sh", "-c", 'echo Loading; sleep %s; exec "$@"' % situation["slow"], "sh", *command]
        command = [sys.executable, str(KIT), "wrap", "--timeout", str(situation.get("timeout", 80)), "--", *command]
        self.start(["bash", "--norc", "-i"] if situation.get("shell") else command)
        if situation.get("shell"):
            self.write("start.sh", "exec " + " ".join(map(shlex.quote, command)) + "\n")
            self.press(b"sh start.sh\r")

    def environment(self):
        return dict({"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color",
                     "SHELL": "/bin/sh", "TMPDIR": str(self.home / "tmp"), "USER": "user"}, **self.extra)

    def start(self, command):
        self.raw, self.began, self.typed_s = b"", time.monotonic(), 0.0
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            command, cwd=str(self.project), env=self.environment(), stdin=self.slave, stdout=self.slave,
            stderr=self.slave, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.watchdog = threading.Timer(LIMIT_S, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.raw += data
            if TYPED in self.raw and not self.typed_s:
                self.typed_s = time.monotonic() - self.began
            if b"\x1b[6n" in data:  # a terminal answers where its cursor is
                self.press(b"\x1b[1;1R")

    def close(self):
        self.watchdog.cancel()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        for pid in real_client.leftovers(self.home):
            os.kill(pid, signal.SIGKILL)
        self.stub.close()
        os.close(self.slave)
        self.reader.join(5)
        os.close(self.master)

    # what the person does and sees

    def press(self, keys):
        os.write(self.master, keys)

    def until(self, fact, what):
        end = time.monotonic() + ANSWER_S
        while not fact():
            assert time.monotonic() < end, "never came: %s; %s\n%s" % (what, self.rows(), self.raw[-3000:].decode("utf-8", "replace"))
            time.sleep(0.05)

    def shows(self, words):
        self.until(lambda: words in self.raw, words)

    def stays_untouched(self, is_answered):
        """A question stands there, and after a while it still does."""
        rows = self.rows()
        self.asked += 1
        time.sleep(LOOK_AWAY_S)
        if self.rows() != rows or is_answered():
            self.touched += 1
        assert not self.touched, (rows, self.rows())

    def quits(self):
        self.press(self.program.quit_keys)
        self.process.wait(ANSWER_S)
        assert termios.tcgetattr(self.slave) == self.before, "the person's terminal was not restored"

    # files

    def write(self, name, text):
        (self.project / name).write_text(text, encoding="utf-8")

    def read(self, name):
        path = self.project / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def rows(self, *events):
        """The recorder's rows."""
        rows = []
        for path in (self.home / ".local/state/ctx_hooks").glob("*/events.jsonl"):
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        return [row for row in rows if not events or row["event"] in events]

    def told(self, event):
        self.until(lambda: self.rows(event), event)

    def note(self, situation):
        """A line of the table: what happened in this run."""
        when = "after %.1f s" % self.typed_s if self.typed_s else "never"
        is_acknowledged = bool(self.rows("injection:succeeded"))
        end = "yes" if is_acknowledged else "no: AGENTS.md" if self.read("AGENTS.md") else "no"
        questions = "%d of %d" % (self.touched, self.asked) if self.asked else "none asked"
        _table.append((self.program.name, situation, when, str(len(self.rows("wrap:submitted"))), end, questions))
