"""A scratch project in which coding agents work one after the other, with one kit."""

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
from real_client import PYTHON_WITH_RECORD, leftovers
from stub_models import StubModel

LIMIT_S = 90  # one client process never lives longer
FILES = {
    "README.md": "A scratch repository.\n",
    ".context/CONSTITUTION.md": "# Constitution\n\nNever push to main.\n",
    ".context/TASKS.md": "# Tasks\n\n- finish the parser\n",
}


class Lab:
    """A repository, a HOME, a stub model; `run` is one session of one client."""

    def __init__(self, root):
        self.root = Path(root)
        self.project = self.root / "project"
        self.home = self.root / "home"
        self.temp = self.root / "temp"
        self.said_dir = self.root / "said"
        for folder in (self.temp, self.said_dir):
            folder.mkdir(parents=True)
        self.python = os.path.realpath(sys.executable)
        self.stub = StubModel()
        self.left, self.open = [], []
        self.write_recorder()
        for name, text in FILES.items():
            self.write(name, text)
        self.command("git", "init", "-q")

    def close(self):
        self.end_leftovers(patience_s=0)
        self.stub.close()

    def write_recorder(self):
        """The interpreter that the launcher finds: the real one, with a record."""
        names = {
            "python": self.python,
            "said": self.said_dir,
            "runs": self.root / "runs",
            "errors": self.root / "errors",
        }
        quoted = {name: shlex.quote(str(value)) for name, value in names.items()}
        self.write_home(".cache/ctx_hooks/python3", PYTHON_WITH_RECORD % quoted)
        (self.home / ".cache/ctx_hooks/python3").chmod(0o755)

    # --- files

    def write(self, name, text):
        """A file of the project, or anywhere by its whole path."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def write_home(self, name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        self.write(self.home / name, self.fill(text))

    def fill(self, text):
        return text.replace("@URL@", self.stub.url).replace("@PROJECT@", str(self.project))

    def files(self, pattern):
        return sorted(str(path) for path in self.project.glob(pattern) if path.is_file())

    def state_files(self, pattern):
        return sorted(self.home.glob(".local/state/ctx_hooks/*/" + pattern))

    def recorded(self):
        """The events of the recorder's rows."""
        rows = "".join(path.read_text() for path in self.state_files("events.jsonl"))
        return [json.loads(line)["event"] for line in rows.splitlines()]

    def alerts(self):
        """(agent, code) of the alerts that were told, as they came."""
        agents = {one["id"]: one["agent"] for one in self.sessions()}
        rows = "".join(path.read_text() for path in self.state_files("events.jsonl")).splitlines()
        rows = [json.loads(row) for row in rows]
        return [(agents[row["session"]], row["code"]) for row in rows if row["event"] == "alert:said"]

    def sessions(self):
        """The kit's state about each session, the newest last."""
        files = sorted(self.state_files("session-*"), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(path.read_text()) for path in files]

    def said(self):
        """(mode, text for the agent) of every hook that started Python since the last call."""
        found = []
        kept = [path for path in self.said_dir.iterdir() if path.is_file()]
        for path in sorted(kept, key=lambda one: one.stat().st_mtime_ns):
            text = path.read_text()
            reply = json.loads(text) if text.startswith("{") else {}
            special = reply.get("hookSpecificOutput") or reply
            told = special.get("additionalContext") or reply.get("reason") or ""
            found.append((path.name.split(".")[0], told))
            path.unlink()
        return found

    # --- programs

    def environment(self, **variables):
        """Nothing of the caller's but a search path of our own."""
        values = {
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "CLAUDE_CODE_TMPDIR": str(self.temp),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": "/bin/sh",
            "USER": "user",
            "LOGNAME": "user",
            "NO_COLOR": "1",
            "PATH": clients.search_path(),
        }
        for name, value in variables.items():
            values[name] = self.fill(value)
        return values

    def install(self, *agents):
        """The kit, installed as a person does it."""
        chosen = [word for agent in agents for word in ("--agent", agent)]
        self.command(self.python, "-I", clients.REPO / "install.py", *chosen)

    def ctx(self, *arguments):
        """One of the kit's own commands, run as a person in the project does."""
        self.command(self.python, "-I", ".claude/hooks/ctx_hooks.py", *arguments)

    def command(self, *words):
        subprocess.run(
            words, cwd=self.project, env=self.environment(), timeout=60, check=True, stdin=subprocess.DEVNULL
        )

    def run(self, client, prompt, variables):
        """One session: one prompt, until the client ends; what it printed."""
        client.prepare(self)
        process = subprocess.Popen(
            [client.path(), *client.words, prompt],
            cwd=self.project,
            env=self.environment(**client.variables, **variables),
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
            raise AssertionError("%s did not end\n%s" % (client.name, printed[-2000:])) from None
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
