"""What the benchmark runs hooks in: a scratch project, its client's transcript, and a clock for child processes."""
from __future__ import annotations

import json
import os
import random
import re
import shutil
import stat
import subprocess
import time

SESSION = "0f3a2b7c-5d1e-4c1b-9a75-3f0f7c1d2e4b"
MODELS = {200_000: "claude-opus-4-6", 1_000_000: "claude-opus-4-7"}
COMPACTS_AT = {200_000: 167_000, 1_000_000: 977_000}  # where the client compacts by itself
HANDOFF_AT = {200_000: 141_950, 1_000_000: 400_000}  # where the kit asks for a handoff
START_TOKENS = 30_000
LEAST_GROWTH, MOST_GROWTH = 500, 10_000  # tokens a call, as in real sessions
RUN_LIMIT_S = 60
HANDOFF = "# Handoff\n\nGoal: finish the parser. State: part %d is there. Next: the other parts.\n"


class Run:
    """What one process cost, and what it said."""

    def __init__(self, cpu_ms: float, wall_ms: float, said: str) -> None:
        self.cpu_ms, self.wall_ms, self.said = cpu_ms, wall_ms, said
        self.complaint = ""  # what stood on stderr


class World:
    """A project with a kit in it. Everything that a hook may touch lies below `base`."""

    def __init__(self, base: str, kit: str, python: str, window: int = 200_000) -> None:
        """`kit` is a folder with ctx_hooks.py and hooks.json."""
        self.base, self.python, self.window = base, python, window
        self.root, self.home, self.temp = (os.path.join(base, name) for name in ("project", "home", "tmp"))
        self.transcript = os.path.join(self.home, "transcript.jsonl")
        self.number = 0
        for folder in (self.temp, os.path.join(base, "bin"), self.home):
            os.makedirs(folder)
        self.write(".git/HEAD", "ref: refs/heads/main\n")
        self.write(".git/refs/heads/main", "1f" * 20 + "\n")
        self.write(".context/TASKS.md", "# Tasks\n\n- finish the parser\n")
        self.write(".context/DECISIONS.md", "# Decisions\n\n- amounts are integers\n")
        os.makedirs(self.path(".context/signals/global"))
        os.makedirs(self.path(".claude/hooks"))
        shutil.copy(os.path.join(kit, "ctx_hooks.py"), self.path(".claude/hooks"))
        with open(os.path.join(kit, "hooks.json"), encoding="utf-8") as file:
            hooks = json.load(file)["hooks"]
        self.lines = {event: groups[0]["hooks"][0]["command"] for event, groups in hooks.items()}
        os.symlink(python, os.path.join(base, "bin", "python3"))
        self.env = {
            "PATH": os.path.join(base, "bin") + ":/usr/bin:/bin",
            "HOME": self.home,
            "TMPDIR": self.temp,
            "LANG": "C.UTF-8",
            "CLAUDE_PROJECT_DIR": self.root,
            "CLAUDE_CODE_SESSION_ID": SESSION,
            "CLAUDECODE": "1",
            "AI_AGENT": "claude-code_2-1-325_harness",
        }
        self.let_age()

    # files ------------------------------------------------------------------

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def write(self, name: str, text: str) -> str:
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def let_age(self) -> None:
        """As if nothing had been changed for a while: real calls are seconds apart."""
        for name in (".context/signals/global", ".context/signals/sessions/" + SESSION, ".git/HEAD"):
            if os.path.exists(self.path(name)):
                os.utime(self.path(name), (1e9, 1e9))

    def end_calm(self) -> None:
        shutil.rmtree(os.path.join(self.home, ".cache/ctx_hooks/calm"), ignore_errors=True)

    # running ----------------------------------------------------------------

    def time_of(self, argv: list, given: bytes = b"") -> Run:
        """Run a program; its own CPU time and that of its children."""
        paths = [os.path.join(self.base, name) for name in ("stdin", "stdout", "stderr")]
        with open(paths[0], "wb") as file:
            file.write(given)
        with open(paths[0], "rb") as stdin, open(paths[1], "wb") as stdout, open(paths[2], "wb") as stderr:
            began = time.perf_counter()
            process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, env=self.env, cwd=self.root)
            _, _, usage = os.wait4(process.pid, 0)
            wall_ms = (time.perf_counter() - began) * 1000
            process.returncode = 0
        said, complaint = map(read_text, paths[1:])
        run = Run((usage.ru_utime + usage.ru_stime) * 1000, wall_ms, said)
        run.complaint = complaint.strip()
        return run

    def bare(self) -> Run:
        return self.time_of([self.python, "-I", "-S", "-c", "pass"])

    def hook(self, name: str, **fields: object) -> Run:
        """The registered line of an event, as the client runs it."""
        event = {
            "session_id": SESSION,
            "transcript_path": self.transcript,
            "cwd": self.root,
            "permission_mode": "default",
            "hook_event_name": name,
        }
        if "Tool" in name:
            event.update(tool_name="Bash", tool_input={"command": "make part%d" % self.number})
            event.update(tool_use_id="toolu_%d" % self.number, tool_response={"stdout": "ok"})
        event.update(fields)
        run = self.time_of(["/bin/sh", "-c", self.lines[name]], json.dumps(event).encode())
        if "additionalContext" in run.said:  # the client's receipt
            text = json.loads(run.said)["hookSpecificOutput"]["additionalContext"]
            self.add_rows({"type": "attachment", "attachment": {"type": "hook_additional_context", "content": [text]}})
        return run

    # the client's side ------------------------------------------------------

    def add_rows(self, *rows: dict) -> None:
        with open(self.transcript, "a", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(dict(row, sessionId=SESSION, timestamp=iso_now())) + "\n")

    def prompt(self, text: str = "Finish the parser. Amounts must be integers.") -> Run:
        run = self.hook("UserPromptSubmit", prompt=text)
        self.add_rows({"type": "user", "message": {"role": "user", "content": text}})
        return run

    def answer(self, tokens: int, tool: str = "Bash", **given: object) -> None:
        """The result of the last call, and an answer with the next one."""
        if self.number:
            self.add_rows(result_row(self.number, "ok %d " % self.number + "word " * 200))
        self.number += 1
        given = given or {"command": "make part%d" % self.number}
        usage = {"input_tokens": 10, "cache_read_input_tokens": tokens - 10}
        call = {"type": "tool_use", "id": "toolu_%d" % self.number, "name": tool, "input": given}
        text = {"type": "text", "text": "Now part %d." % self.number}
        message = {"id": "msg_%d" % self.number, "role": "assistant", "model": MODELS[self.window]}
        self.add_rows({"type": "assistant", "message": dict(message, content=[text, call], usage=usage)})

    def begin(self, tokens: int = START_TOKENS) -> None:
        """A session under way: eight different calls, the gate has spoken."""
        self.hook("SessionStart", source="startup")
        self.prompt()
        for _ in range(8):
            self.answer(tokens)
            self.hook("PreToolUse")
            self.hook("PostToolUse")
        self.let_age()

    def add_signals(self, count: int) -> None:
        text = "---\nseverity: warning\nttl: 86400\nauditor: ci\ncode: CI_%d\n---\nThe build %d is red.\n→ Look at it\n"
        for number in range(count):
            self.write(".context/signals/global/ci-%d-%d.md" % (self.number, number), text % (number, number))

    def hear_all(self) -> None:
        while "red" in self.hook("UserPromptSubmit", prompt="Go on.").said:
            pass
        self.let_age()

    def grow_transcript(self, size_bytes: int) -> None:
        """Earlier turns in front of what is there."""
        with open(self.transcript, "rb") as file:
            kept = file.read()
        old = json.dumps(dict(result_row(0, "word " * 1000), timestamp="2026-01-01T00:00:00.000Z")).encode() + b"\n"
        with open(self.transcript, "wb") as file:
            for _ in range(size_bytes // len(old)):
                file.write(old)
            file.write(kept)

    def add_old_sessions(self, count: int) -> None:
        """Each file that has this session's id in its name, for so many other sessions."""
        for start in (self.home, self.temp, self.path(".context")):
            for folder, _, names in list(os.walk(start)):
                for name in names:
                    if SESSION in name and "calm" not in folder:
                        self.copy_for_others(os.path.join(folder, name), count)

    def copy_for_others(self, path: str, count: int) -> None:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for number in range(count):
            other = "%08d%s" % (number, SESSION[8:])
            with open(path.replace(SESSION, other), "w", encoding="utf-8") as file:
                file.write(text.replace(SESSION, other))

    def put_shim(self, seconds: float) -> None:
        """`python3` is a version manager's shim from now on."""
        self.put_script(os.path.join(self.base, "bin", "python3"), "sleep %s" % seconds)

    def count_starts(self) -> None:
        """Note each start of an interpreter from now on, also of the one that the launcher found."""
        for path in ("bin/python3", "home/.cache/ctx_hooks/python3"):
            self.put_script(os.path.join(self.base, path), "echo >>'%s/starts'" % self.base)

    def starts(self) -> int:
        path = os.path.join(self.base, "starts")
        return os.path.getsize(path) if os.path.exists(path) else 0

    def put_script(self, path: str, first: str) -> None:
        """A script that does something and then becomes the interpreter."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            os.unlink(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\n%s\nexec "%s" "$@"\n' % (first, self.python))
        os.chmod(path, stat.S_IRWXU)


def read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def iso_now() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + ".%03dZ" % (now % 1 * 1000)


def result_row(number: int, text: str) -> dict:
    result = {"type": "tool_result", "tool_use_id": "toolu_%d" % number, "content": text}
    return {"type": "user", "message": {"role": "user", "content": [result]}}


class Replay:
    """A session of so many calls: what both hooks of each call cost, and how late the reminder came."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.tokens = START_TOKENS
        self.calls: list = []  # [(gate, monitor, bare)]: a Run each
        self.starts = 0  # of interpreters, where the world counts them
        self.late: list = []  # for each crossing: how many calls later the reminder came
        self.crossed_at = -1
        self.handoff = ""  # where the agent was asked to write

    def run(self, count: int) -> Replay:
        self.world.hook("SessionStart", source="startup")
        self.world.prompt()
        for number in range(count):
            self.call(number)
        return self

    def call(self, number: int) -> None:
        """One answer of the agent with its call. Once asked, it writes the handoff."""
        world = self.world
        self.tokens += int(LEAST_GROWTH * (MOST_GROWTH / LEAST_GROWTH) ** self.random.random())
        if self.tokens > COMPACTS_AT[world.window]:
            self.compact()
        if self.handoff:
            text = HANDOFF % number
            world.answer(self.tokens, "Write", file_path=self.handoff, content=text)
            os.makedirs(os.path.dirname(self.handoff), exist_ok=True)
            with open(self.handoff, "w", encoding="utf-8") as file:
                file.write(text)
            self.handoff = ""
        else:
            world.answer(self.tokens)
        is_over = self.tokens >= HANDOFF_AT[world.window]
        self.crossed_at = number if is_over and self.crossed_at < 0 else self.crossed_at
        starts = world.starts()
        gate, monitor = world.hook("PreToolUse"), world.hook("PostToolUse")
        self.starts += world.starts() - starts
        self.calls.append((gate, monitor, world.bare()))
        asked = re.search(r"(/\S+/\.context/handoffs/\S+?\.md)", monitor.said)
        if asked:
            self.handoff = asked.group(1)
            self.late.append(number - self.crossed_at)

    def compact(self) -> None:
        """The client summarises and begins anew with little."""
        world = self.world
        world.hook("PreCompact", trigger="auto")
        self.tokens, self.crossed_at, self.handoff = START_TOKENS, -1, ""
        row = {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"postTokens": self.tokens}}
        world.add_rows(row)
        world.hook("SessionStart", source="compact")
