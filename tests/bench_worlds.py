"""The files that a row of the benchmark starts from: a project in a state, made through the registered commands."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import time

from helper import REPO, Project, assistant_row, registered_commands

SESSION = "bench-0f3a2b7c-5d1e-4c1b-9a75-3f0f7c1d2e4b"
CALL_ID = "toolu_bench"
STATE = ".context/state/%s.json" % SESSION
FULL_TOKENS, USUAL_TOKENS = 170_000, 40_000  # of a 200,000-token window
RUN_LIMIT_S = 60


class World(Project):
    """A project, and a snapshot of its files to return to before every run; transcripts are never copied."""

    def __init__(self, base: str, home: str, context: bool = True):
        """home holds what all worlds share: the kit, its bytecode and the `python3` of the registered commands."""
        super().__init__(base, context)
        del self.env["LC_ALL"]  # a person's locale is a UTF-8 one, and C would start in another way
        self.env.update(LANG="C.UTF-8", PATH=os.path.join(home, "bin") + ":/usr/bin:/bin",
                        XDG_CACHE_HOME=os.path.join(home, "cache"), CLAUDE_PLUGIN_ROOT=os.path.join(home, "kit"),
                        CLAUDE_CODE_SESSION_ID=SESSION, CLAUDECODE="1", CLAUDE_CODE_ENTRYPOINT="cli",
                        AI_AGENT="claude-code_2-1-325_agent", CLAUDE_CODE_SESSION_ATTENDED="1")
        self.saved: dict = {}
        self.calls_before = 0

    # events -----------------------------------------------------------------

    def on(self, name: str, **changes) -> dict:
        return self.event(name, **dict({"session_id": SESSION}, **changes))

    def post_tool(self, name: str = "PostToolUse.Bash", **changes) -> dict:
        return self.on(name, **dict({"tool_input": {"command": "echo 9"}, "tool_use_id": CALL_ID}, **changes))

    def send(self, event: dict) -> bytes:
        """One event through the registered command, while a world is made."""
        command = registered_commands()[event["hook_event_name"]]
        return subprocess.run(["/bin/sh", "-c", command], input=json.dumps(event).encode("utf-8"), env=self.env,
                              cwd=self.root, stdout=subprocess.PIPE, timeout=RUN_LIMIT_S).stdout

    # snapshot ---------------------------------------------------------------

    def save(self) -> None:
        self.saved = {path: (stamp, _content(path)) for path, stamp in self._stamps().items()}

    def restore(self) -> None:
        now = self._stamps()
        for path in now.keys() - self.saved.keys():
            os.unlink(path)
        for path, (stamp, content) in self.saved.items():
            if now.get(path) != stamp:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as out:
                    out.write(content)
                os.utime(path, ns=(stamp[0], stamp[0]))

    def _stamps(self) -> dict:
        found = {}
        for start in (self.root, self.tmp):
            for where, _, files in os.walk(start):
                for path in (os.path.join(where, name) for name in files):
                    status = os.lstat(path)
                    found[path] = (status.st_mtime_ns, status.st_size)
        return found

    def tool_calls(self) -> int:
        return self.read_json(STATE).get("tool_calls", 0) if self.exists(STATE) else 0

    # what a world may hold --------------------------------------------------

    def start(self) -> None:
        """What the client sends before all else; the transcript tells the model."""
        self.send(self.on("SessionStart.startup", model=None))

    def begin(self, size_bytes: int, tokens: int) -> None:
        """A session under way: gate passed, eight different calls made, measured from a transcript."""
        self.start()
        self.send(self.on("UserPromptSubmit", prompt_id="p-first"))
        for number in range(8):
            call_id, command = "toolu_%d" % number, {"command": "echo %d" % number}
            self.write_rows(10_000, min(tokens, USUAL_TOKENS), call_id)
            self.send(self.on("PreToolUse.Bash", tool_input=command, tool_use_id=call_id))
            self.send(self.post_tool(tool_input=command, tool_use_id=call_id))
        self.write_rows(size_bytes, tokens)

    def write_rows(self, size_bytes: int, tokens: int, call_id: str = CALL_ID, last_bytes: int = 0) -> None:
        """Turns of a call and its result up to the size, the answer that made the call, a result of last_bytes.

        Without tokens no row says how full the context is.
        """
        pair = _tool_result("word " * 300) + (_line(assistant_row(tokens // 2, SESSION)) if tokens else b"")
        call = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "echo 9"}}
        last = _line(assistant_row(tokens, SESSION, message={"content": [call], "id": "msg_" + call_id}))
        path = self.transcript_path(SESSION)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(pair * max(1, (size_bytes - len(last)) // len(pair)) + (last if tokens else b""))
            out.write(_tool_result("word " * (last_bytes // 5)) if last_bytes else b"")

    def add_signals(self, count: int, folder: str = "sessions/" + SESSION) -> None:
        for number in range(count):
            self.write(".context/signals/%s/bench-%d.md" % (folder, number), (
                "---\ngenerated_at: %s\nseverity: warning\nttl: 86400\nauditor: bench-%d\ncode: BENCH_%d\n---\n"
                "Signal %d of the bench.\n→ Look at it\n") % (_stamp(), number, number, number))

    def hear_all(self) -> None:
        """Prompts until nothing is said any more: every broadcast signal is one that this session knows."""
        for number in range(1000):
            if not self.send(self.on("UserPromptSubmit", prompt_id="p%d" % number)):
                return
        raise SystemExit("error: 1,000 prompts did not deliver what was pending")

    def forget(self, key: str, value: object) -> None:
        """The last look at the signals, or the last audit, was long ago."""
        self.write(STATE, json.dumps(dict(self.read_json(STATE), **{key: value})))

    def add_sessions(self, count: int) -> None:
        """Others, as many: a state file, a signal folder, a marker, keys in the monitor's state."""
        state = self.read(STATE) if self.exists(STATE) else "{}"
        path, stamp = ".context/monitor-state.json", _stamp()
        shared = self.read_json(path) if self.exists(path) else {}
        for name in ("other-%05d-5d1e-4c1b-9a75-3f0f7c1d2e4b" % number for number in range(count)):
            self.write(".context/state/%s.json" % name, state)
            self.add_signals(1, "sessions/" + name)
            self.write(os.path.join(self.tmp, "ctx-loaded-" + name), stamp)
            shared.setdefault("lastEmitted", {})[name + ":CTX_HEALTH_70"] = stamp
            shared.setdefault("activeAlerts", {})[name + ":CTX_HEALTH_70"] = True
            shared.setdefault("lastHealth", {})[name] = {"contextPercent": 71, "repetitionScore": 0}
        self.write(path, json.dumps(shared))

    def leave_handoff(self) -> None:
        """An earlier session wrote one, after the kit had seen this project for the first time."""
        self.send(self.on("SessionStart.startup", session_id="earlier"))
        self.write(".context/handoffs/earlier.md", "# Handoff\n\n" + "Where we are and what is next. " * 60)

    def make_collection_due(self) -> None:
        """What is collected by age now and then is due again."""
        self.write(".context/state/collected", "", mtime=1.0)

    def start_workflow(self) -> None:
        kit = os.path.join(self.env["CLAUDE_PLUGIN_ROOT"], "ctx_hooks.py")
        subprocess.run(["python3", "-I", kit, "auto", "start", "the bench"], env=self.env, cwd=self.root,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=RUN_LIMIT_S, check=True)

    def install_statusline(self) -> str:
        """The command of a status line as install.py sets it; the kit beside it is the one that is measured."""
        subprocess.run(["python3", "-I", os.path.join(REPO, "install.py"), self.root, "--statusline"], stdout=subprocess.DEVNULL,
                       env=self.env, stdin=subprocess.DEVNULL, timeout=RUN_LIMIT_S, check=True)
        shutil.copy(os.path.join(self.env["CLAUDE_PLUGIN_ROOT"], "ctx_hooks.py"), self.path(".claude", "hooks"))
        return self.read_json(".claude/settings.json")["statusLine"]["command"]

    def forget_gate(self) -> None:
        for name in os.listdir(self.tmp):
            os.unlink(os.path.join(self.tmp, name))


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _content(path: str) -> bytes:
    with open(path, "rb") as source:
        return source.read()


def _line(row: dict) -> bytes:
    return json.dumps(row).encode("utf-8") + b"\n"


def _tool_result(text: str) -> bytes:
    return _line({"type": "user", "isSidechain": False, "sessionId": SESSION, "message": {
        "role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_0", "content": text}]}})
