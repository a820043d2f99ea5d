"""A scratch project in which several coding agents work one after the other, with one kit and one state."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import clients
from real_client import leftovers
from stub_models import StubModel

PYTHON_WITH_RECORD = """#!/bin/sh
# becomes the real interpreter, so that the client stays its parent; what each hook mode said is kept
mode=
for word; do case $word in inject | gate | monitor | stop-enforce | cleanup) mode=$word ;; esac; done
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
        self.project, self.home, self.temp = self.root / "project", self.root / "home", self.root / "temp"
        self.bin, self.said_dir = self.root / "bin", self.root / "said"
        for folder in (self.project, self.home, self.temp, self.bin, self.said_dir):
            folder.mkdir(parents=True)
        self.python = os.path.realpath(os.environ.get("CTX_E2E_PYTHON") or sys.executable)
        words = {"python": shlex.quote(self.python), "said": shlex.quote(str(self.said_dir))}
        (self.bin / "python3").write_text(PYTHON_WITH_RECORD % words)
        (self.bin / "python3").chmod(0o755)
        self.stub = StubModel()
        self.left = []
        self.write("README.md", "A scratch repository.\n")
        for name, text in CONTEXT_FILES.items():
            self.write(".context/" + name, text)
        subprocess.run(["git", "init", "-q", str(self.project)], env=self.environment(), check=True)

    def close(self):
        self.stub.close()

    # files ------------------------------------------------------------------

    def write(self, name, content):
        _write(self.project / name, content)

    def write_home(self, name, content):
        _write(self.home / name, content)

    def files(self, pattern):
        return sorted(str(path.relative_to(self.project)) for path in self.project.glob(pattern) if path.is_file())

    def recorded(self):
        """The flight recorder's lines."""
        path = self.project / ".context/events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def said(self):
        """(mode, text for the agent) of every hook run that said something since the last call."""
        found = []
        for path in sorted(self.said_dir.iterdir(), key=lambda one: one.stat().st_mtime_ns):
            reply = json.loads(path.read_text() or "{}") if path.is_file() else {}
            special = reply.get("hookSpecificOutput") or {}
            texts = {special.get("additionalContext"), reply.get("additionalContext"), reply.get("reason")}
            found += [(path.name.split(".")[0], text) for text in texts if text]
            path.unlink()
        return found

    # programs ---------------------------------------------------------------

    def environment(self, **extra):
        """Nothing of the caller's but a search path of our own."""
        values = {"HOME": str(self.home), "TMPDIR": str(self.temp), "LANG": "C.UTF-8", "TERM": "xterm-256color",
                  "SHELL": "/bin/sh", "USER": "user", "LOGNAME": "user", "NO_COLOR": "1",
                  "PATH": "%s:%s" % (self.bin, clients.search_path())}
        return dict(values, **extra)

    def install(self, *agents):
        """The kit, installed as a person does it."""
        words = [self.python, "-I", str(clients.REPO / "install.py")]
        for agent in agents:
            words += ["--agent", agent]
        self.command(words)

    def ctx(self, *arguments):
        """One of the kit's own commands, run as a person in the project does."""
        return self.command([self.python, "-I", ".claude/hooks/ctx_hooks.py", *arguments])

    def command(self, words):
        done = subprocess.run(words, cwd=str(self.project), env=self.environment(), timeout=60, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, "%s: exit %d\n%s" % (words, done.returncode, done.stdout)
        return done.stdout

    def run(self, client, prompt, **extra):
        """One session: one prompt, until the client ends; what it printed."""
        client.prepare(self)
        command = [str(word) for word in client.command(client.install(), prompt)]
        path = "%s:%s" % (self.bin, clients.search_path(client.node_oldest))
        environment = self.environment(**dict(client.environment(self), PATH=path, **extra))
        process = subprocess.Popen(command, cwd=str(self.project), env=environment, stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", start_new_session=True)
        try:
            said = process.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError("%s did not end\n%s" % (client.name, process.communicate()[0][-2000:])) from None
        self.left += self._end_leftovers()
        return said

    def _end_leftovers(self):
        """Whatever still runs with this HOME a moment after its client has ended, by its id."""
        for _ in range(20):
            left = leftovers(self.home)
            if not left:
                return []
            time.sleep(0.1)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return left


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
