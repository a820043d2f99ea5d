"""What each hook costs, as multiples of a bare interpreter measured in the same run.

    python3 tests/bench.py [--json | --markdown | --profile] [--rounds N] [--only PATTERN] [--python PATH] [--kit FILE]

Every case is a real process on real files. The rounds are interleaved and shuffled, so that a busy moment of the
machine meets all cases alike; a figure is the median of the better half of its rounds. What a run changed on disk is
put back before the next one, outside the measured time. A case that did not do its job (spoke when it should be
silent, or the other way round) is INVALID, whatever its time; then the exit code is 1.

Budgets are for the direct command. The commands exactly as hooks.json has them, through /bin/sh, stand on their own
lines. Peak memory is measured apart, one process at a time; the launcher's own 5 MB are the least it can see.
"""
from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TESTS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, TESTS)

from helper import REPO, Project, assistant_row, hook_argv, registered_commands  # noqa: E402

JQ_HOOK = os.path.join(TESTS, "data", "bench", "jq-hook.sh")
BARE = "python3 -I -S -c pass"
SESSION = "bench-0f3a2b7c-5d1e-4c1b-9a75-3f0f7c1d2e4b"
TOOL_USE_ID = "toolu_bench"
GATE_TEXT, HOLD_TEXT, REMINDER_TEXT = "STOP. Read your context files", "## Auto Mode Continuation", "Write a handoff"
SILENT_BUDGET, MONITOR_BUDGET, EMIT_BUDGET, MANY_BUDGET, MEMORY_BUDGET, GROWTH_BUDGET = 1.3, 1.5, 2.0, 2.5, 1.5, 0.1
PIPE_BYTES = 60_000  # fits into a pipe without anybody reading
MEMORY_ROUNDS = 3
RIVAL_EVERY = 4  # rounds; they are slow and need no second digit
RUN_LIMIT_S = 60
UNREST_LIMIT = 1.2

# Run by a small process: the peak of a fork counts the pages of the one that forked it.
LAUNCHER = """
import posix, sys
pid = posix.fork()
if pid == 0:
    posix.execve(sys.argv[1], sys.argv[1:], posix.environ)
usage = posix.wait4(pid, 0)[2]
posix.write(2, b"peak %d\\n" % usage[2])
"""


# -----------------------------------------------------------------------------
# a case, and the files it starts from
# -----------------------------------------------------------------------------

class Case:
    """One line of the table. says: None = nothing to check, "" = has to be silent, else has to be in the output."""

    def __init__(self, name: str, world: World, argv: list, **options):
        self.name, self.world, self.argv = name, world, argv
        self.says = options.get("says")
        self.budget = options.get("budget")
        self.event = options.get("event")
        self.env = options.get("env", {})
        self.group = options.get("group", "direct")
        self.skipped = options.get("skipped", "")
        self.invalid = ""
        self.wall_ms: list = []
        self.cpu_ms: list = []
        self.peak_kb = 0

    def input(self) -> bytes:
        return b"" if self.event is None else json.dumps(self.event).encode("utf-8")


class World(Project):
    """A project with the kit installed, and a snapshot of its files to return to before every run."""

    def __init__(self, base: str, kit: str, context: bool = True):
        super().__init__(base, context)
        self.env.update(CLAUDECODE="1", AI_AGENT="claude-code_2-1-325_agent", CLAUDE_CODE_ENTRYPOINT="cli")
        self.kit_dir = self.path(".claude", "hooks")
        os.makedirs(self.kit_dir)
        if kit:
            shutil.copy(kit, os.path.join(self.kit_dir, "ctx_hooks.py"))
        self.saved: dict = {}

    def on(self, name: str, **changes) -> dict:
        return self.event(name, session_id=SESSION, **changes)

    def hook(self, python: str, mode: str, event: dict) -> bytes:
        done = subprocess.run(hook_argv(mode, self.kit_dir, python), input=json.dumps(event).encode("utf-8"),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, cwd=self.root,
                              timeout=RUN_LIMIT_S)
        return done.stdout

    def save(self) -> None:
        self.saved = {path: self._read(path) for path in self._paths()}

    def restore(self) -> None:
        """Only what a run changed is written again; transcripts live in HOME and are never copied."""
        now = self._paths()
        for path in now.keys() - self.saved.keys():
            os.unlink(path)
        for path, (stamp, content) in self.saved.items():
            if now.get(path) != stamp:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as out:
                    out.write(content)
                os.utime(path, ns=(stamp[0], stamp[0]))

    def _paths(self) -> dict:
        found = {}
        for start in (self.root, self.tmp):
            for where, folders, files in os.walk(start):
                folders[:] = [name for name in folders if name != "__pycache__"]
                for name in files:
                    path = os.path.join(where, name)
                    status = os.lstat(path)
                    found[path] = (status.st_mtime_ns, status.st_size)
        return found

    def _read(self, path: str) -> tuple:
        with open(path, "rb") as source:
            content = source.read()
        return (os.lstat(path).st_mtime_ns, len(content)), content


def signal_text(number: int) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return ("---\ngenerated_at: %s\nseverity: warning\nttl: 86400\nauditor: bench-%d\ncode: BENCH_%d\n---\n"
            "Signal %d of the bench.\n→ Look at it\n") % (stamp, number, number, number)


def write_transcript(world: World, size_bytes: int, tokens: int, call_id: str = TOOL_USE_ID) -> None:
    """Turns of a tool call and its result up to the size, then the answer that made the call call_id."""
    filler = json.dumps({"type": "user", "isSidechain": False, "sessionId": SESSION, "message": {
        "role": "user", "content": [{"type": "tool_result", "content": "word " * 300}]}}).encode("utf-8") + b"\n"
    answer = json.dumps(assistant_row(tokens // 2, SESSION)).encode("utf-8") + b"\n"
    call = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "echo 9"}}
    last = json.dumps(assistant_row(tokens, SESSION, message={"content": [call], "id": "msg_" + call_id})) + "\n"
    path = world.transcript_path(SESSION)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    pair = filler + answer
    with open(path, "wb") as out:
        out.write(pair * max(1, (size_bytes - len(last)) // len(pair)) + last.encode("utf-8"))


def post_tool(world: World, name: str = "PostToolUse.Bash", **changes) -> dict:
    return world.on(name, **dict({"tool_input": {"command": "echo 9"}, "tool_use_id": TOOL_USE_ID}, **changes))


def warm_up(world: World, python: str, tokens: int) -> None:
    """Eight different calls of earlier answers: the session is under way and nothing repeats."""
    for number in range(8):
        call_id = "toolu_%d" % number
        write_transcript(world, 10_000, tokens, call_id)
        event = post_tool(world, tool_input={"command": "echo %d" % number}, tool_use_id=call_id)
        world.hook(python, "monitor", event)


def add_sessions(world: World, count: int) -> None:
    """State of other sessions, as many: a state file, a signal folder, a marker, keys in the monitor's state."""
    own = world.path(".context", "state", SESSION + ".json")
    state = world.read_json(own) if os.path.exists(own) else {}
    names = ["other-%04d-5d1e-4c1b-9a75-3f0f7c1d2e4b" % number for number in range(count)]
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for name in names:
        world.write(".context/state/%s.json" % name, json.dumps(state))
        world.write(".context/signals/sessions/%s/context-health.md" % name, signal_text(0))
        with open(os.path.join(world.tmp, "ctx-loaded-" + name), "w", encoding="utf-8") as out:
            out.write(stamp)
    shared = world.read_json(".context/monitor-state.json") if world.exists(".context/monitor-state.json") else {}
    for name in names:
        shared.setdefault("lastEmitted", {})[name + ":CTX_HEALTH_70"] = stamp
        shared.setdefault("activeAlerts", {})[name + ":CTX_HEALTH_70"] = True
        shared.setdefault("lastHealth", {})[name] = {"contextPercent": 71, "repetitionScore": 0}
    world.write(".context/monitor-state.json", json.dumps(shared))


# -----------------------------------------------------------------------------
# the cases
# -----------------------------------------------------------------------------

class Bench:
    """Builds the worlds in one temp dir and holds the cases in the order they are shown."""

    def __init__(self, base: str, python: str, kit: str):
        self.base, self.python, self.kit = base, python, kit
        self.cases: list = []
        self.count = 0

    def world(self, context: bool = True) -> World:
        self.count += 1
        return World(os.path.join(self.base, "w%02d" % self.count), self.kit, context)

    def session(self, size_bytes: int = 10_000, tokens: int = 40_000) -> World:
        """A session under way: gate passed, some calls made, measured from a transcript."""
        world = self.world()
        world.hook(self.python, "gate", world.on("PreToolUse.Bash"))
        warm_up(world, self.python, tokens)
        write_transcript(world, size_bytes, tokens)
        return world

    def add(self, name: str, world: World, argv: list, **options) -> None:
        self.cases.append(Case(name, world, argv, **options))

    def direct(self, name: str, world: World, mode: str, **options) -> None:
        options.setdefault("budget", SILENT_BUDGET if options.get("says") == "" else EMIT_BUDGET)
        self.add(name, world, hook_argv(mode, world.kit_dir, self.python), **options)

    def build(self) -> None:
        self.add_references()
        self.add_quiet()
        self.add_gate_and_inject()
        self.add_monitor()
        self.add_stop_and_cleanup()
        self.add_registered()
        self.add_rivals()
        for world in {id(case.world): case.world for case in self.cases}.values():
            world.save()

    def add_references(self) -> None:
        world = self.world(context=False)
        self.add(BARE, world, [self.python, "-I", "-S", "-c", "pass"], group="reference")
        self.add("sh -c true", world, ["/bin/sh", "-c", "true"], group="reference")
        self.add("python3 -c pass", world, [self.python, "-c", "pass"], group="reference")

    def add_quiet(self) -> None:
        world = self.world(context=False)
        for mode, event in (("gate", "PreToolUse.Bash"), ("monitor", "PostToolUse.Bash")):
            self.direct("%s, no context dir" % mode, world, mode, event=world.on(event), says="")
        world = self.session()
        self.direct("gate, switched off", world, "gate", event=world.on("PreToolUse.Bash"), says="",
                    env={"CTX_HOOKS_DISABLE": "1"})

    def add_gate_and_inject(self) -> None:
        world = self.session()
        self.direct("gate, already fired", world, "gate", event=world.on("PreToolUse.Bash"), says="")
        world = self.world()
        self.direct("gate, fires", world, "gate", event=world.on("PreToolUse.Bash"), says=GATE_TEXT)
        for count, budget in ((0, SILENT_BUDGET), (1, EMIT_BUDGET), (100, MANY_BUDGET)):
            world = self.session()
            for number in range(count):
                world.write(".context/signals/sessions/%s/bench-%d.md" % (SESSION, number), signal_text(number))
            says = {0: "", 1: "[ctx monitor] Signal 0 of the bench"}.get(count, "[ctx monitor] %d issues:" % count)
            self.direct("inject, %d signal%s" % (count, "s" * (count != 1)), world, "inject", budget=budget,
                        event=world.on("UserPromptSubmit"), says=says)
        world = self.world()
        self.direct("inject at start, nothing to say", world, "inject", event=world.on("SessionStart.startup"), says="")
        world = self.world()
        world.write(".claude/ll-continue-prompt.md", "# Handoff\n\n" + "Where we are and what is next. " * 60)
        self.direct("inject at start, handoff", world, "inject", event=world.on("SessionStart.startup"),
                    says="[CONTEXT INJECTION - Please acknowledge receipt]")

    def add_monitor(self) -> None:
        for label, size_bytes in (("10 KB", 10_000), ("10 MB", 10_000_000), ("100 MB", 100_000_000)):
            world = self.session(size_bytes)
            self.direct("monitor, %s transcript" % label, world, "monitor", event=post_tool(world), says="",
                        budget=MONITOR_BUDGET)
        for count in (1, 100, 1000):
            world = self.session()
            add_sessions(world, count)
            self.direct("monitor, %d other session%s" % (count, "s" * (count != 1)), world, "monitor",
                        event=post_tool(world), says="", budget=MONITOR_BUDGET)
        for label, size_bytes, budget in (("1 KB", 1_000, MONITOR_BUDGET), ("5 MB", 5_000_000, None)):
            world = self.session()
            response = {"stdout": "0123456789 word\n" * (size_bytes // 16), "stderr": "", "interrupted": False}
            self.direct("monitor, %s response" % label, world, "monitor", budget=budget, says="",
                        event=post_tool(world, tool_response=response))
        world = self.session()
        failure = post_tool(world, name="PostToolUseFailure")
        self.direct("monitor, failed call", world, "monitor", event=failure, says="", budget=MONITOR_BUDGET)
        world = self.session(tokens=170_000)
        self.direct("monitor, reminds", world, "monitor", event=post_tool(world), says=REMINDER_TEXT)

    def add_stop_and_cleanup(self) -> None:
        world = self.session()
        self.direct("stop-enforce, inactive", world, "stop-enforce", event=world.on("Stop"), says="")
        world = self.holding()
        self.direct("stop-enforce, holds", world, "stop-enforce", event=world.on("Stop"), says=HOLD_TEXT)
        world = self.session()
        self.direct("cleanup", world, "cleanup", event=world.on("SessionEnd.other"), says="", budget=None)

    def holding(self) -> World:
        """A workflow started as a person starts it; the state file is written by hand where that is not there yet."""
        world = self.session()
        script = [self.python, "-I", os.path.join(world.kit_dir, "ctx_hooks.py"), "auto", "start", "the bench"]
        subprocess.run(script, env=world.env, cwd=world.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=RUN_LIMIT_S)
        if not world.exists(".caw/auto-state.json"):
            world.write(".caw/auto-state.json", json.dumps({"phase": "execution", "iteration": 0, "signals": []}))
        return world

    def add_registered(self) -> None:
        """The commands of hooks.json to the letter, but for the interpreter: a shim would be measured instead."""
        events = {"SessionStart": "SessionStart.startup", "PreToolUse": "PreToolUse.Bash",
                  "PostToolUse": "PostToolUse.Bash", "SessionEnd": "SessionEnd.other"}
        for event, command in registered_commands().items():
            world = self.session()
            recorded = events.get(event, event)
            body = post_tool(world, name=recorded) if event.startswith("PostToolUse") else world.on(recorded)
            self.add("sh: %s" % event, world, self.shell(command), event=body, says="", group="registered")
        world = self.world()
        self.add("sh: PreToolUse, gate fires", world, self.shell(registered_commands()["PreToolUse"]),
                 event=world.on("PreToolUse.Bash"), says=GATE_TEXT, group="registered")

    def shell(self, command: str) -> list:
        assert command.startswith("python3 "), command
        return ["/bin/sh", "-c", "'%s' %s" % (self.python.replace("'", "'\\''"), command[len("python3 "):])]

    def add_rivals(self) -> None:
        world = self.session()
        script = os.path.join(world.kit_dir, "ctx_hooks.py")
        event = world.on("PreToolUse.Bash")
        self.add("python3 ctx_hooks.py gate", world, [self.python, script, "gate"], event=event, says="", group="rival")
        self.add("python3 -I -S ctx_hooks.py gate", world, [self.python, "-I", "-S", script, "gate"], event=event,
                 says="", group="rival")
        lacking = "" if shutil.which("jq") and shutil.which("bash") else "jq is missing"
        for name, mode, world, event, says in self.jq_jobs():
            self.add("bash + jq: " + name, world, ["/bin/bash", JQ_HOOK, mode], event=event, says=says, group="rival",
                     skipped=lacking)

    def jq_jobs(self):
        world = self.session()
        yield "gate, already fired", "gate", world, world.on("PreToolUse.Bash"), ""
        yield "inject, 0 signals", "inject", world, world.on("UserPromptSubmit"), ""
        yield "monitor, 10 KB transcript", "monitor", world, post_tool(world), ""
        world = self.session(tokens=170_000)
        yield "monitor, reminds", "monitor", world, post_tool(world), REMINDER_TEXT
        world = self.session()
        for number in range(100):
            world.write(".context/signals/sessions/%s/bench-%d.md" % (SESSION, number), signal_text(number))
        yield "inject, 100 signals", "inject", world, world.on("UserPromptSubmit"), "[ctx monitor]"
        world = self.holding()
        yield "stop-enforce, holds", "stop-enforce", world, world.on("Stop"), HOLD_TEXT


# -----------------------------------------------------------------------------
# running and measuring
# -----------------------------------------------------------------------------

def run_case(case: Case, argv: list, out_path: str, err_path: str) -> tuple:
    """(wall ms, cpu ms, exit code) of one run, the event on a pipe as the client sends it."""
    data = case.input()
    reading, writing = os.pipe()
    env = case.world.environment(case.env)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_OPEN, 1, out_path, flags, 0o600),
               (os.POSIX_SPAWN_OPEN, 2, err_path, flags, 0o600)]
    feeder = threading.Thread(target=feed, args=(writing, data))
    if len(data) <= PIPE_BYTES:
        feed(writing, data)
    os.chdir(case.world.root)
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=actions)
    os.close(reading)
    if len(data) > PIPE_BYTES:
        feeder.start()
    _, status, usage = os.wait4(pid, 0)
    wall_s = time.perf_counter() - start
    if feeder.ident is not None:
        feeder.join()
    rc = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
    return wall_s * 1000, (usage.ru_utime + usage.ru_stime) * 1000, rc


def feed(descriptor: int, data: bytes) -> None:
    try:
        with open(descriptor, "wb", buffering=0) as pipe:
            view = memoryview(data)
            while len(view):
                view = view[pipe.write(view):]
    except BrokenPipeError:
        pass  # a hook need not read what it does not use


def fault_of(case: Case, rc: int, out_path: str, whole: bool) -> str:
    """Why this run did not do the case's job, "" when it did; the text is looked at when whole."""
    size = os.path.getsize(out_path)
    if rc != 0:
        return "exit code %d" % rc
    if case.says == "" and size:
        return "spoke, should be silent"
    if case.says and not size:
        return "silent, should speak"
    if case.says and whole:
        with open(out_path, encoding="utf-8") as source:
            reply = json.load(source)
        said = reply.get("hookSpecificOutput", {}).get("additionalContext") or reply.get("reason", "")
        if case.says not in said:
            return "said something else: %.60r" % said
    return ""


def check(case: Case, scratch: str) -> None:
    """Once before measuring: it does its job. That run also leaves the bytecode cached."""
    out_path, err_path = os.path.join(scratch, "out"), os.path.join(scratch, "err")
    for _ in range(2):
        case.world.restore()
        _, _, rc = run_case(case, case.argv, out_path, err_path)
        try:
            case.invalid = fault_of(case, rc, out_path, whole=True)
        except ValueError:
            case.invalid = "stdout is not one JSON object"
    case.world.restore()


def measure(cases: list, rounds: int, scratch: str, show_progress: bool) -> None:
    out_path, err_path = os.path.join(scratch, "out"), os.path.join(scratch, "err")
    order = random.Random(1)
    bare = cases[0]
    for number in range(rounds):
        if show_progress:
            print("\rround %d/%d " % (number + 1, rounds), end="", file=sys.stderr, flush=True)
        turn = [case for case in cases if case.group != "rival" or number % RIVAL_EVERY == 0]
        turn += [bare] * 4  # the measure of all others is measured best
        order.shuffle(turn)
        for case in turn:
            case.world.restore()
            wall_ms, cpu_ms, rc = run_case(case, case.argv, out_path, err_path)
            case.wall_ms.append(wall_ms)
            case.cpu_ms.append(cpu_ms)
            case.invalid = case.invalid or fault_of(case, rc, out_path, whole=False)
    if show_progress:
        print("\r" + " " * 20 + "\r", end="", file=sys.stderr, flush=True)


def measure_memory(cases: list, python: str, scratch: str) -> None:
    out_path, err_path = os.path.join(scratch, "out"), os.path.join(scratch, "err")
    for case in cases:
        peaks = []
        for _ in range(MEMORY_ROUNDS):
            case.world.restore()
            run_case(case, [python, "-I", "-S", "-c", LAUNCHER, *case.argv], out_path, err_path)
            with open(err_path, encoding="utf-8", errors="replace") as source:
                peaks += [int(line.split()[1]) for line in source if line.startswith("peak ")]
        scale = 1024 if sys.platform == "darwin" else 1  # macOS counts bytes
        case.peak_kb = int(statistics.median(peaks)) // scale if peaks else 0


def best_half_median(values: list) -> float:
    return statistics.median(sorted(values)[:max(1, (len(values) + 1) // 2)])


# -----------------------------------------------------------------------------
# reports
# -----------------------------------------------------------------------------

def rows_of(cases: list) -> list:
    """One dict a case; multiples are against the bare interpreter of the same run."""
    bare = cases[0]
    floor_ms, floor_cpu = best_half_median(bare.wall_ms), best_half_median(bare.cpu_ms)
    rows = []
    for case in cases:
        row = {"case": case.name, "group": case.group, "skipped": case.skipped, "invalid": case.invalid}
        if not case.skipped:
            wall_ms = best_half_median(case.wall_ms)
            row.update(ms=round(wall_ms, 3), best_ms=round(min(case.wall_ms), 3),
                       multiple=round(wall_ms / floor_ms, 3), budget=case.budget,
                       cpu_multiple=round(best_half_median(case.cpu_ms) / max(floor_cpu, 1e-6), 3),
                       peak_kb=case.peak_kb, peak_multiple=round(case.peak_kb / max(bare.peak_kb, 1), 3))
        rows.append(row)
    return rows


def growth_of(rows: list) -> list:
    """Differences that must not grow with the size of the transcript or the number of sessions."""
    found = {row["case"]: (row["multiple"], row["cpu_multiple"]) for row in rows if "multiple" in row}
    pairs = (("monitor, 10 KB transcript", "monitor, 100 MB transcript"),
             ("monitor, 1 other session", "monitor, 1000 other sessions"))
    return [{"from": small, "to": large, "growth": round(found[large][0] - found[small][0], 3),
             "cpu_growth": round(found[large][1] - found[small][1], 3), "budget": GROWTH_BUDGET}
            for small, large in pairs if small in found and large in found]


def unrest_of(bare: Case) -> float:
    """How far apart the same bare start lies in this run, upper to lower quartile; 1.0 is a quiet machine."""
    ordered = sorted(bare.wall_ms)
    return round(ordered[len(ordered) * 3 // 4] / ordered[len(ordered) // 4], 2)


def about(python: str, rounds: int, bare: Case) -> dict:
    version = subprocess.run([python, "-I", "-S", "-c", "import sys; print(sys.version.split()[0])"],
                             stdout=subprocess.PIPE, text=True).stdout.strip()
    return {"python": version, "system": "%s %s" % (platform.system(), platform.machine()), "cpus": os.cpu_count(),
            "rounds": rounds, "unrest": unrest_of(bare)}


def print_lines(rows: list, growth: list, facts: dict) -> None:
    print("Python %(python)s, %(system)s, %(cpus)s CPUs, %(rounds)s rounds" % facts)
    print("x = multiples of `python3 -I -S -c pass` in this run")
    if facts["unrest"] > UNREST_LIMIT:
        print("the machine is busy: the same bare start varies by %(unrest)s; trust the cpu column more" % facts)
    print("%-38s %8s %7s %7s %7s %8s %7s" % ("", "ms", "x", "cpu x", "budget", "peak MB", "mem x"))
    for row in rows:
        if row["skipped"]:
            print("%-38s skipped: %s" % (row["case"], row["skipped"]))
            continue
        notes = ["INVALID: " + row["invalid"]] if row["invalid"] else []
        notes += ["OVER"] if row["budget"] and row["multiple"] > row["budget"] else []
        notes += ["OVER(memory)"] if row["budget"] and row["peak_multiple"] > MEMORY_BUDGET else []
        print("%-38s %8.2f %7.2f %7.2f %7s %8.1f %7.2f %s" % (
            row["case"], row["ms"], row["multiple"], row["cpu_multiple"], row["budget"] or "", row["peak_kb"] / 1024,
            row["peak_multiple"], " ".join(notes)))
    for item in growth:
        note = "OVER" if item["growth"] > item["budget"] else ""
        print("growth %+.2f x, cpu %+.2f x (budget %.1f) from `%s` to `%s` %s" % (
            item["growth"], item["cpu_growth"], item["budget"], item["from"], item["to"], note))


def print_markdown(rows: list, facts: dict) -> None:
    print("| what | × bare interpreter | ms | peak memory, MB |\n| --- | ---: | ---: | ---: |")
    for row in rows:
        if not row["skipped"] and not row["invalid"]:
            print("| %s | %.2f | %.1f | %.1f |" % (row["case"], row["multiple"], row["ms"], row["peak_kb"] / 1024))
    print("\nPython %(python)s, %(system)s, %(cpus)s CPUs; `make bench`, median of the better half of %(rounds)s "
          "interleaved rounds." % facts)


def profile(cases: list, scratch: str) -> None:
    """What a hook imports, asks of the kernel and executes beyond the bare interpreter; load does not matter."""
    bare = cases[0]
    known, bare_calls, floor = imports_of(bare, scratch), syscalls_of(bare, scratch), instructions_of(bare, scratch)
    print("bare interpreter: %d imports, %s syscalls, %s instructions" % (
        len(known), sum(bare_calls.values()) or "?", floor or "?"))
    for case in cases:
        if case.group != "direct":
            continue
        extra = [name for name in imports_of(case, scratch) if name not in known]
        instructions = "%.2f x instructions" % (instructions_of(case, scratch) / floor) if floor else ""
        print("%-38s %s%s\n  imports: %s" % (
            case.name, instructions, "  INVALID: " + case.invalid if case.invalid else "", ", ".join(extra) or "none"))
        calls = syscalls_of(case, scratch)
        if calls:
            more = {name: calls[name] - bare_calls.get(name, 0) for name in calls}
            detail = sorted(((count, name) for name, count in more.items() if count > 0), reverse=True)
            print("  syscalls: %+d: %s" % (sum(calls.values()) - sum(bare_calls.values()),
                                           ", ".join("%s %d" % (name, count) for count, name in detail)))


def imports_of(case: Case, scratch: str) -> list:
    err_path = os.path.join(scratch, "err")
    case.world.restore()
    run_case(case, [case.argv[0], "-X", "importtime", *case.argv[1:]], os.path.join(scratch, "out"), err_path)
    with open(err_path, encoding="utf-8", errors="replace") as source:
        lines = [line.split("|") for line in source if line.startswith("import time:")]
    return [parts[2].strip() for parts in lines[1:]]


def syscalls_of(case: Case, scratch: str) -> dict:
    strace = shutil.which("strace")
    if not strace:
        return {}
    table = os.path.join(scratch, "strace")
    case.world.restore()
    run_case(case, [strace, "-f", "-c", "-o", table, *case.argv], os.path.join(scratch, "out"),
             os.path.join(scratch, "err"))
    calls = {}
    with open(table, encoding="utf-8", errors="replace") as source:
        for line in source:
            words = line.split()
            if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
                calls[words[-1]] = int(words[3])
    return calls


def instructions_of(case: Case, scratch: str) -> int:
    """Counted by valgrind, which repeats to the digit where a clock does not; 0 without it."""
    valgrind, log = shutil.which("valgrind"), os.path.join(scratch, "valgrind")
    if not valgrind:
        return 0
    case.world.restore()
    run_case(case, [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-file=" + log, *case.argv],
             os.path.join(scratch, "out"), os.path.join(scratch, "err"))
    with open(log, encoding="utf-8", errors="replace") as source:
        counts = [line.split()[-1] for line in source if "Collected :" in line]
    return int(counts[0]) if counts else 0


# -----------------------------------------------------------------------------
# main
# -----------------------------------------------------------------------------

def parse_arguments(argv: list) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py", description=__doc__.split("\n")[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="a table for the README")
    form.add_argument("--profile", action="store_true",
                      help="no times: imports, syscalls (strace), instructions (valgrind)")
    parser.add_argument("--rounds", type=int, default=30, help="default 30")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="cases that contain it (or match, with * and ?)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to measure with")
    parser.add_argument("--kit", default=os.path.join(REPO, "ctx_hooks.py"), help="the ctx_hooks.py to measure")
    return parser.parse_args(argv)


def real_interpreter(path: str) -> str:
    """Behind links, shims and virtual environments."""
    code = "import os, sys; print(os.path.realpath(sys.executable))"
    return subprocess.run([path, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def chosen(cases: list, pattern: str) -> list:
    wanted = pattern if any(letter in pattern for letter in "*?[") else "*%s*" % pattern
    return [cases[0]] + [case for case in cases[1:] if fnmatch.fnmatchcase(case.name, wanted)]


def main(argv: list) -> int:
    options = parse_arguments(argv)
    if not os.path.isfile(options.kit):
        print("error: there is no %s\nhint: --kit FILE" % options.kit, file=sys.stderr)
        return 1
    python = real_interpreter(options.python)
    with tempfile.TemporaryDirectory(prefix="ctx-hooks-bench-") as base:
        bench = Bench(base, python, options.kit)
        bench.build()
        cases = chosen(bench.cases, options.only)
        running = [case for case in cases if not case.skipped]
        for case in running:
            check(case, base)
        if options.profile:
            profile(running, base)
        else:
            measure(running, options.rounds, base, sys.stderr.isatty())
            measure_memory(running, python, base)
            report(cases, about(python, options.rounds, cases[0]), options)
        os.chdir(REPO)
    return 1 if any(case.invalid for case in cases) else 0


def report(cases: list, facts: dict, options: argparse.Namespace) -> None:
    rows = rows_of(cases)
    if options.json:
        print(json.dumps(dict(facts, cases=rows, growth=growth_of(rows)), indent=1))
    elif options.markdown:
        print_markdown(rows, facts)
    else:
        print_lines(rows, growth_of(rows), facts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
