"""The world of a test: a project, a home, and a client that runs hooks and writes its transcript.

    world = World(tmp_path)
    session = world.session("s1")
    session.start()
    reply = session.call("Bash", {"command": "ls"}, tokens=150_000)
    assert "handoff" in reply.text

Hooks run in this process by the run's one function (fast, time is `world.now`), or as the
client runs them: world.launch(mode, event). A session is Claude Code's.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import time

TESTS = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(TESTS)
KIT = os.path.join(REPO, "ctx_hooks.py")
DATA = os.path.join(TESTS, "data")
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
IS_WINDOWS = os.name == "nt"


def load_kit():
    """The kit as a module of its own."""
    loader = importlib.machinery.SourceFileLoader("ctx_hooks_under_test", KIT)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


kit = load_kit()
kit.start_deadline = lambda seconds: None  # the process that it would end is pytest
MODES = kit.EVENTS  # event -> mode; that hooks.json says the same is for test_anatomy.py


def data(*names: str) -> str:
    return os.path.join(DATA, *names)


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path: str, text: str | bytes, at: float = 0.0) -> str:
    """Write a file, with its folders; `at` is its time."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode("utf-8"))
    if at:
        os.utime(path, (at, at))
    return path


def files_below(folder: str) -> list:
    """All files and links below a folder, by their relative names."""
    found = []
    for where, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(where, name))]
        found += [os.path.relpath(os.path.join(where, name), folder) for name in names + links]
    return sorted(found)


def as_bytes(event: object) -> bytes:
    return event if isinstance(event, bytes) else json.dumps(event).encode()


def finish(process: subprocess.Popen, event: object = b"") -> Reply:
    """Give a process its input, and wait for its end."""
    out, err = process.communicate(as_bytes(event), timeout=60)
    return Reply(out.decode(), err.decode(), process.returncode)


class Reply:
    """What a hook printed: `text` to the agent, `person` to the person."""

    def __init__(self, out: str, err: str = "", code: int = 0) -> None:
        self.out, self.err, self.code = out, err, code
        self.json = {}
        if out.startswith("{"):
            assert out.isascii() and out.count("\n") == 1, "one JSON object in ASCII, in one line"
            self.json = json.loads(out)
        own = self.json.get("hookSpecificOutput", {})
        self.text = own.get("additionalContext", "") or self.json.get("reason", "")
        self.person = self.json.get("systemMessage", "")

    def __repr__(self) -> str:
        return "Reply(%r, err=%r, code=%r)" % (self.out, self.err, self.code)


class World:
    """A project with two context files, its path with a space and a quote in it, and a home."""

    def __init__(self, base: object, context: bool = True) -> None:
        base = os.path.realpath(str(base))
        self.root = os.path.join(base, "the person's project")
        self.home = os.path.join(base, "home")
        self.temp = os.path.join(base, "tmp")
        for folder in (self.root, self.home, self.temp):
            os.makedirs(folder, exist_ok=True)
        self.now = float(int(time.time()))
        self.sessions: dict = {}
        self.env = {
            "HOME": self.home,
            "TMPDIR": self.temp,
            "PATH": os.path.dirname(sys.executable) + ":/usr/local/bin:/usr/bin:/bin",
            "CLAUDE_PROJECT_DIR": self.root,
            "CLAUDECODE": "1",
            "AI_AGENT": "claude-code_2-1-326_harness",
            "CLAUDE_PID": str(os.getpid()),  # of the client, which runs
        }
        if IS_WINDOWS:
            system = os.environ["SYSTEMROOT"]
            self.env.update(
                USERPROFILE=self.home,
                LOCALAPPDATA=os.path.join(self.home, "AppData", "Local"),
                TEMP=self.temp,
                SYSTEMROOT=system,
                PATH=os.path.dirname(sys.executable) + ";" + os.path.join(system, "system32"),
            )
        if context:
            self.write(".context/CONSTITUTION.md", "Amounts are integers, in cents.\n")
            self.write(".context/TASKS.md", "- discounts\n")

    # --- files

    def path(self, *names: str) -> str:
        return os.path.join(self.root, *names)

    def context(self, *names: str) -> str:
        return os.path.join(self.root, ".context", *names)

    def state(self, *names: str) -> str:
        """A path in our state folder of this project."""
        return os.path.join(kit.project_state_folder(self.root, self.env), *names)

    def cache(self, *names: str) -> str:
        return os.path.join(kit.cache_folder(self.env), *names)

    def write(self, name: str, text: str | bytes, age_s: float = 0.0) -> str:
        return write(self.path(name), text, self.now - age_s)

    def settings(self, text: str) -> None:
        self.write(".contextrc", text)

    def signal(self, body: str, folder: str = "global", name: str = "s.md", **header: object) -> str:
        """Write a signal; `folder` is "global" or a session's id."""
        self.know_project()
        where = "global" if folder == "global" else "sessions/" + folder
        lines = ["---"] + ["%s: %s" % item for item in header.items()] + ["---", body, ""]
        return self.write(".context/signals/%s/%s" % (where, name), "\n".join(lines))

    def know_project(self) -> None:
        """The user was here before: what is written now did not come with a clone."""
        if not os.path.exists(self.state("root")):
            write(self.state("root"), self.root)

    def handoff(self, session: str, text: str, age_s: float = 0.0) -> str:
        self.know_project()
        return self.write(".context/handoffs/%s.md" % session, text, age_s)

    def waiting(self) -> list:
        """The names of the handoffs that wait."""
        return [name for name in files_below(self.context("handoffs")) if os.sep not in name]

    def read_handoff(self, session: str) -> str:
        path = self.context("handoffs", session + ".md")
        return read(path) if os.path.exists(path) else ""

    def session_state(self, session: str) -> dict:
        with open(self.state("session-%s.json" % session), encoding="utf-8") as file:
            return json.load(file)

    def events(self) -> list:
        """The recorder's rows."""
        path = self.state("events.jsonl")
        lines = read(path).splitlines() if os.path.exists(path) else []
        return [json.loads(line) for line in lines]

    def metrics(self) -> dict:
        return json.loads(read(self.state("metrics.json")))

    def git(self, branch: str = "main", commit: str = "a" * 40) -> None:
        """A repository as far as the kit reads it."""
        self.write(".git/HEAD", "ref: refs/heads/%s\n" % branch)
        self.write(".git/refs/heads/" + branch, commit + "\n")

    # --- hooks

    def hook(self, mode: str, event: object, *words: str, **env: str) -> Reply:
        """Run a hook in this process, at `self.now`. `event` is an object, or bytes."""
        stdin = write(os.path.join(self.temp, "stdin"), as_bytes(event))
        before = sys.stdin
        kit.Run.error_log = ""
        with open(stdin, "rb") as sys.stdin, contextlib.redirect_stdout(io.StringIO()) as out:
            try:
                kit.run_hook(mode, list(words), dict(self.env, **env), self.now)
            finally:
                sys.stdin = before
        os.unlink(stdin)
        return Reply(out.getvalue())

    def start_hook(self, mode: str, *words: str, **more: object) -> subprocess.Popen:
        """Start a hook as the client does: in a shell, on Windows by Python itself."""
        env = self.with_bytecode(dict(self.env, **more.pop("env", {})))
        start = [sys.executable, "-I"] if IS_WINDOWS else ["sh"]
        command = more.pop("command", [*start, KIT, mode, *words])
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, cwd=self.root, env=env, **dict(pipes, **more))

    def launch(self, mode: str, event: object, *words: str, **env: str) -> Reply:
        """Run a hook as the client does."""
        return finish(self.start_hook(mode, *words, env=env), event)

    def launch_changed(self, mode: str, event: object, code: str) -> Reply:
        """Run a hook of a kit in which `code` was run first; `kit` is its module."""
        program = (
            "import sys; from importlib.machinery import SourceFileLoader as L;"
            "kit = L('kit', sys.argv[1]).load_module()\n%s\nkit.main(sys.argv[2:])" % code
        )
        command = [sys.executable, "-W", "ignore", "-B", "-c", program, KIT, mode]
        return finish(self.start_hook(mode, command=command), event)

    def launch_at_once(self, calls: list) -> list:
        """What all these hooks say that run at the same time: [(mode, event)]; none complains."""
        self.launch("gate", {})  # so that there is bytecode
        processes = []
        for number, (mode, event) in enumerate(calls):
            path = write(os.path.join(self.temp, "event-%d" % number), as_bytes(event))
            with open(path, "rb") as stdin:
                processes.append(self.start_hook(mode, stdin=stdin))
        replies = [finish(process) for process in processes]
        assert {(reply.code, reply.err) for reply in replies} == {(0, "")}
        return [reply.text for reply in replies]

    def with_bytecode(self, env: dict) -> dict:
        """All tests share the kit's bytecode: compiling is most of a first run."""
        link, shared = self.cache("bytecode"), os.path.join(self.home, "..", "..", "bytecode")
        if env.get("HOME") == self.home and not os.path.lexists(link) and not IS_WINDOWS:
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.makedirs(shared, exist_ok=True)
            os.symlink(os.path.realpath(shared), link)
        return env

    def session(self, name: str = "s1", **more: object) -> Session:
        if name not in self.sessions:
            self.sessions[name] = Session(self, name, **more)
        return self.sessions[name]

    def worked(self, name: str, *prompts: str, end: str = "other") -> Session:
        """A whole session that worked and ended."""
        session = self.session(name)
        session.start()
        for prompt in prompts or ("Add discounts.",):
            session.prompt(prompt)
            session.call("Edit", {"file_path": self.path("src", "cart.py")})
            session.say("Done with: " + prompt)
        session.stop()
        session.end(end)
        return session


class Session:
    """A session of Claude Code: it sends events, and writes its transcript as the client does."""

    def __init__(self, world: World, name: str, model: str = "claude-opus-4-6") -> None:
        self.world, self.id, self.model = world, name, model
        folder = os.path.join(world.home, ".claude", "projects", "p")
        os.makedirs(folder, exist_ok=True)
        self.transcript = os.path.join(folder, name + ".jsonl")
        self.tokens = 20_000
        self.count = 0
        self.leaves_receipts = True
        self.extra: dict = {}  # added to each event
        self.env: dict = {}

    # --- the transcript: each row a second later

    def row(self, **row: object) -> None:
        self.world.now += 1
        at = kit.format_iso(self.world.now)
        row = dict({"timestamp": at, "sessionId": self.id, "isSidechain": False}, **row)
        with open(self.transcript, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        os.utime(self.transcript, (self.world.now, self.world.now))

    def new_id(self, kind: str) -> str:
        self.count += 1
        return "%s_%s_%d" % (kind, self.id, self.count)

    def write_prompt(self, text: str, **more: object) -> None:
        self.row(type="user", message={"role": "user", "content": text}, **more)

    def write_answer(self, *blocks: dict, tokens: int = 0, answer: str = "", **more: object) -> str:
        """An answer of the agent; one row for each block, as the client writes it."""
        self.tokens = tokens or self.tokens
        answer = answer or self.new_id("msg")
        usage = {"input_tokens": 3, "cache_read_input_tokens": self.tokens - 3, "output_tokens": 9}
        for block in blocks:
            message = {"id": answer, "model": self.model, "role": "assistant"}
            message.update(content=[block], usage=usage)
            self.row(type="assistant", message=message, **more)
        return answer

    def write_result(self, call: str, text: str = "ok", failed: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": failed}
        self.row(type="user", message={"role": "user", "content": [block]})

    def write_boundary(self, tokens: int = 5_000) -> None:
        self.tokens = tokens
        meta = {"trigger": "auto", "preTokens": 168_000, "postTokens": tokens}
        self.row(type="system", subtype="compact_boundary", compactMetadata=meta)

    # --- what a person and an agent do; each gives the hook's reply

    def event(self, name: str, **more: object) -> dict:
        event = {"session_id": self.id, "transcript_path": self.transcript, "cwd": self.world.root}
        event.update(hook_event_name=name, permission_mode="default")
        return dict(event, **self.extra, **more)

    def send(self, name: str, **more: object) -> Reply:
        event = self.event(name, **more)
        env = dict({"CLAUDE_CODE_SESSION_ID": self.id}, **self.env)
        reply = self.world.hook(MODES[name], event, **env)
        if reply.text and self.leaves_receipts and name != "PreCompact":
            self.row(type="attachment", attachment={"type": "hook_additional_context", "content": [reply.text]})
        return reply

    def start(self, source: str = "startup", **more: object) -> Reply:
        return self.send("SessionStart", source=source, **more)

    def prompt(self, text: str, **more: object) -> Reply:
        reply = self.send("UserPromptSubmit", prompt=text, **more)
        self.write_prompt(text)
        return reply

    def say(self, text: str, tokens: int = 0) -> str:
        return self.write_answer({"type": "text", "text": text}, tokens=tokens)

    def gate(self, tool: str = "Bash") -> Reply:
        return self.send("PreToolUse", tool_name=tool, tool_input={}, tool_use_id="t")

    def call(self, tool: str, given: dict, **more: object) -> Reply:
        """A tool call: the agent's row, the hook after it, then the result's row."""
        text, failed = more.pop("text", "ok"), bool(more.pop("failed", False))
        call = self.new_id("toolu")
        block = {"type": "tool_use", "id": call, "name": tool, "input": given}
        self.write_answer(block, tokens=more.pop("tokens", 0), answer=more.pop("answer", ""))
        name = "PostToolUseFailure" if failed else "PostToolUse"
        reply = self.send(name, tool_name=tool, tool_input=given, tool_use_id=call, **more)
        self.write_result(call, text, failed)
        return reply

    def run(self, command: str, **more: object) -> Reply:
        return self.call("Bash", {"command": command}, **more)

    def edit(self, name: str, **more: object) -> Reply:
        return self.call("Edit", {"file_path": self.world.path(name)}, **more)

    def look(self, **more: object) -> Reply:
        """A call that only looks, another one each time."""
        self.count += 1
        return self.call("Read", {"file_path": "/src/file%d.py" % self.count}, **more)

    def write_handoff(self, text: str = "# Handoff\n\nGoal: discounts.\n", **more: object) -> Reply:
        path = self.world.handoff(self.id, text)
        return self.call("Write", {"file_path": path, "content": text}, **more)

    def stop(self, **more: object) -> Reply:
        return self.send("Stop", stop_hook_active=False, **more)

    def compact(self, trigger: str = "auto") -> Reply:
        """A compaction; gives what PreCompact printed."""
        reply = self.send("PreCompact", trigger=trigger)
        self.write_boundary()
        return reply

    def end(self, reason: str = "other") -> Reply:
        return self.send("SessionEnd", reason=reason)

    def state(self) -> dict:
        return self.world.session_state(self.id)
