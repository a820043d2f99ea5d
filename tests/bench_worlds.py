"""What the benchmark runs hooks in: a scratch project, its client's transcript, and a clock for child processes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import time
from pathlib import Path

SESSION = "0f3a2b7c-5d1e-4c1b-9a75-3f0f7c1d2e4b"
MODELS = {200_000: "claude-opus-4-6", 1_000_000: "claude-opus-4-7"}
COMPACTS_AT = {200_000: 167_000, 1_000_000: 977_000}  # where the client compacts by itself
HANDOFF_AT = {200_000: 141_950, 1_000_000: 400_000}  # where the kit asks for a handoff
START_TOKENS = 30_000
LEAST_GROWTH, MOST_GROWTH = 500, 10_000  # tokens a call, as in real sessions
BYTES_A_TOKEN = 8  # in the transcript, which holds each result twice
SEED = 2026
LINE = "src/parser.py:120: a line of a result, as a grep or a test prints it\n"
HANDOFF = "# Handoff\n\nGoal: finish the parser. State: part %d is there. Next: the other parts.\n"
HANDOFF_PATH = re.compile(r"(/\S+/\.context/handoffs/\S+?\.md)")  # where the agent is asked to write
SIGNAL = "---\nseverity: warning\nttl: 86400\nauditor: ci\ncode: CI_%d\n---\nThe build %d is red.\n→ Look at it\n"


class Run:
    """What one process cost, and what it said."""

    def __init__(self, cpu_ms: float, wall_ms: float, said: str, complaint: str) -> None:
        self.cpu_ms, self.wall_ms = cpu_ms, wall_ms
        self.said, self.complaint = said, complaint  # what stood on stdout, on stderr


class World:
    """A project with a kit in it. Everything that a hook may touch lies below `base`."""

    def __init__(self, base: Path, kit: str, python: str, window: int = 200_000) -> None:
        """`kit` is a folder with ctx_hooks.py and hooks.json."""
        self.base, self.python, self.window = base, python, window
        self.root, self.home, self.temp = base / "project", base / "home", base / "tmp"
        self.transcript = self.home / "transcript.jsonl"
        self.number = 0
        self.tokens = 0
        for folder in (self.temp, base / "bin", self.home, self.root / ".claude/hooks"):
            folder.mkdir(parents=True)
        self.write(".git/HEAD", "ref: refs/heads/main\n")
        self.write(".git/refs/heads/main", "1f" * 20 + "\n")
        self.write(".context/TASKS.md", "# Tasks\n\n- finish the parser\n")
        self.write(".context/DECISIONS.md", "# Decisions\n\n- amounts are integers\n")
        (self.root / ".context/signals/global").mkdir(parents=True)
        shutil.copy(os.path.join(kit, "ctx_hooks.py"), self.root / ".claude/hooks")
        self.lines = lines_of(kit)
        (base / "bin/python3").symlink_to(python)
        self.env = {
            "PATH": "%s:/usr/bin:/bin" % (base / "bin"),
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "LANG": "C.UTF-8",
            "CLAUDE_PROJECT_DIR": str(self.root),
            "CLAUDE_CODE_SESSION_ID": SESSION,
            "CLAUDECODE": "1",
            "AI_AGENT": "claude-code_2-1-325_harness",
        }
        self.let_age()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def let_age(self) -> None:
        """As if nothing had been changed for a while: real calls are seconds apart."""
        for name in (".context/signals/global", ".context/signals/sessions/" + SESSION, ".git/HEAD"):
            if (self.root / name).exists():
                os.utime(self.root / name, (1e9, 1e9))

    def end_calm(self) -> None:
        shutil.rmtree(self.home / ".cache/ctx_hooks/calm", ignore_errors=True)

    def renew_calm(self) -> None:
        """Calm holds for some calls only; here it begins anew."""
        self.let_age()
        for tally in self.home.glob(".cache/ctx_hooks/calm/**/*.tally"):
            tally.write_text("")
            os.utime(tally, (1e9, 1e9))
        self.answer(self.tokens)  # calm needs a transcript that has the present call

    def put_shim(self, seconds: float) -> None:
        """`python3` is a version manager's shim from now on."""
        shim = self.base / "bin/python3"
        shim.unlink()
        shim.write_text('#!/bin/sh\nsleep %s\nexec "%s" "$@"\n' % (seconds, self.python))
        shim.chmod(0o700)

    # running ----------------------------------------------------------------

    def time_of(self, words: list, given: str = "") -> Run:
        """Run a program; its own CPU time and that of its children."""
        names = [self.base / name for name in ("stdin", "stdout", "stderr")]
        names[0].write_text(given, encoding="utf-8")
        with open(names[0], "rb") as stdin, open(names[1], "wb") as stdout, open(names[2], "wb") as stderr:
            began = time.perf_counter()
            process = subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, env=self.env, cwd=self.root)
            _, _, usage = os.wait4(process.pid, 0)
            wall_ms = (time.perf_counter() - began) * 1000
            process.returncode = 0
        said, complaint = (name.read_text(encoding="utf-8", errors="replace") for name in names[1:])
        return Run((usage.ru_utime + usage.ru_stime) * 1000, wall_ms, said, complaint.strip())

    def bare(self) -> Run:
        return self.time_of([self.python, "-I", "-S", "-c", "pass"])

    def hook(self, name: str, **fields: object) -> Run:
        """The registered line of an event, as the client runs it."""
        event = {
            "session_id": SESSION,
            "transcript_path": str(self.transcript),
            "cwd": str(self.root),
            "permission_mode": "default",
            "hook_event_name": name,
        }
        if "Tool" in name:
            event.update(tool_name="Bash", tool_input={"command": "make part%d" % self.number})
            event.update(tool_use_id="toolu_%d" % self.number, tool_response={"stdout": "ok"})
        event.update(fields)
        run = self.time_of(["/bin/sh", "-c", self.lines[name]], json.dumps(event))
        if "additionalContext" in run.said:  # the client's receipt
            text = json.loads(run.said)["hookSpecificOutput"]["additionalContext"]
            self.add_row({"type": "attachment", "attachment": {"type": "hook_additional_context", "content": [text]}})
        return run

    # the client's side ------------------------------------------------------

    def add_row(self, row: dict) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + ".%03dZ" % (now % 1 * 1000)
        with open(self.transcript, "a", encoding="utf-8") as file:
            file.write(json.dumps(dict(row, sessionId=SESSION, timestamp=stamp)) + "\n")

    def begin(self) -> None:
        text = "Finish the parser. Amounts must be integers."
        self.hook("SessionStart", source="startup")
        self.hook("UserPromptSubmit", prompt=text)
        self.add_row({"type": "user", "message": {"role": "user", "content": text}})

    def answer(self, tokens: int, tool: str = "Bash", **given: object) -> None:
        """The result of the last call, and an answer with the next one."""
        if self.number:
            size = max(1_000, BYTES_A_TOKEN * (tokens - self.tokens))
            self.add_row(result_row(self.number, "ok %d\n" % self.number + LINE * (size // len(LINE))))
        self.number += 1
        self.tokens = tokens
        given = given or {"command": "make part%d" % self.number}
        usage = {"input_tokens": 10, "cache_read_input_tokens": tokens - 10}
        call = {"type": "tool_use", "id": "toolu_%d" % self.number, "name": tool, "input": given}
        text = {"type": "text", "text": "Now part %d." % self.number}
        message = {"id": "msg_%d" % self.number, "role": "assistant", "model": MODELS[self.window]}
        self.add_row({"type": "assistant", "message": dict(message, content=[text, call], usage=usage)})

    def get_under_way(self) -> None:
        """Eight different calls; the gate has spoken."""
        self.begin()
        for _ in range(8):
            self.answer(START_TOKENS)
            self.hook("PreToolUse")
            self.hook("PostToolUse")
        self.let_age()

    def add_signals(self, count: int) -> None:
        for number in range(count):
            self.write(".context/signals/global/ci-%d-%d.md" % (self.number, number), SIGNAL % (number, number))

    def hear_all(self) -> None:
        while "red" in self.hook("UserPromptSubmit", prompt="Go on.").said:
            pass
        self.let_age()

    def grow_transcript(self, size_bytes: int) -> None:
        """Earlier turns in front of what is there."""
        kept = self.transcript.read_text(encoding="utf-8")
        old = json.dumps(dict(result_row(0, "word " * 1000), timestamp="2026-01-01T00:00:00.000Z")) + "\n"
        with open(self.transcript, "w", encoding="utf-8") as file:
            for _ in range(size_bytes // len(old)):
                file.write(old)
            file.write(kept)

    def add_old_sessions(self, count: int) -> None:
        """Each file that has this session's id in its name, for so many other sessions."""
        found = [path for path in self.base.rglob("*%s*" % SESSION) if path.is_file() and "calm" not in path.parts]
        for path in found:
            text = path.read_text(encoding="utf-8")
            for number in range(count):
                other = "%08d%s" % (number, SESSION[8:])
                Path(str(path).replace(SESSION, other)).write_text(text.replace(SESSION, other), encoding="utf-8")


def lines_of(kit: str) -> dict:
    """{event: the registered line} of a kit."""
    hooks = json.loads(Path(kit, "hooks.json").read_text(encoding="utf-8"))["hooks"]
    return {event: groups[0]["hooks"][0]["command"] for event, groups in hooks.items()}


def result_row(number: int, text: str) -> dict:
    result = {"type": "tool_result", "tool_use_id": "toolu_%d" % number, "content": text}
    return {"type": "user", "message": {"role": "user", "content": [result]}}


class Replay:
    """A session of so many calls: what both hooks of each call cost, and how late the reminder came. With a growth, all
    calls grow by so much, and the point is crossed in their middle."""

    def __init__(self, world: World, count: int, growth: int = 0) -> None:
        self.world, self.random, self.growth = world, random.Random(SEED), growth
        start = HANDOFF_AT[world.window] - growth * count // 2 + growth // 2
        self.tokens = max(START_TOKENS, start) if growth else START_TOKENS
        self.hooks: list = []  # a Run each
        self.bare: list = []
        self.late: list = []  # for each crossing: how many calls later the reminder came
        self.crossed_at = -1
        self.handoff = ""  # where the agent was asked to write
        world.begin()
        for number in range(count):
            self.call(number)

    def call(self, number: int) -> None:
        """One answer of the agent with its call. Once asked, it writes the handoff."""
        world = self.world
        usual = int(LEAST_GROWTH * (MOST_GROWTH / LEAST_GROWTH) ** self.random.random())
        self.tokens += self.growth or usual
        if self.tokens > COMPACTS_AT[world.window]:
            self.compact()
        if self.handoff:
            text = HANDOFF % number
            world.answer(self.tokens, "Write", file_path=self.handoff, content=text)
            world.write(self.handoff, text)
            self.handoff = ""
        else:
            world.answer(self.tokens)
        if self.tokens >= HANDOFF_AT[world.window] and self.crossed_at < 0:
            self.crossed_at = number
        self.hooks += [world.hook("PreToolUse"), world.hook("PostToolUse")]
        self.bare.append(world.bare())
        asked = HANDOFF_PATH.search(self.hooks[-1].said)
        if asked:
            self.handoff = asked.group(1)
            self.late.append(number - self.crossed_at)

    def compact(self) -> None:
        """The client summarises and begins anew with little."""
        self.world.hook("PreCompact", trigger="auto")
        self.tokens, self.crossed_at, self.handoff = START_TOKENS, -1, ""
        boundary = {"type": "system", "subtype": "compact_boundary", "compactMetadata": {"postTokens": self.tokens}}
        self.world.add_row(boundary)
        self.world.hook("SessionStart", source="compact")
