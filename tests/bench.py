"""What each hook costs: CPU time as multiples of a bare interpreter measured in the same run.

    python3 tests/bench.py [--json | --markdown | --profile] [--client] [--rounds N] [--only PATTERN]
                           [--python PATH] [--kit FILE]

    worlds (real files) ──► check: does every row do its job? ──► interleaved, shuffled rounds ──► memory ──► table

A row is one process on real files, started with the words of hooks.json: what the shell makes of them is asked of the
shell. The figure is the child's user + system time, the median of the better half of its rounds, over that of
`python3 -I -S -c pass`, so a busy moment of the machine meets all rows alike. Every single run is looked at: exit 0,
nothing on stderr, the text was said, the call was counted. A row that is silent by its nature is run once more in a
world where it has to speak. What did not do its job is INVALID, whatever its time, and makes the exit code 1; a
budget is shown as ok or OVER and decides nothing. What a run changed on disk is put back outside the measured time.
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
sys.path[:0] = [TESTS, os.path.join(TESTS, "e2e")]

from bench_worlds import FULL_TOKENS, STATE, USUAL_TOKENS, World  # noqa: E402
from helper import REPO, registered_commands  # noqa: E402

BARE = "python3 -I -S -c pass"
GATE_TEXT, HOLD_TEXT, REMINDER_TEXT = "STOP. Read your context files", "## Auto Mode Continuation", "handoff"
START_TEXT, SIGNAL_TEXT = "[CONTEXT INJECTION - Please acknowledge receipt]", "Signal 0 of the bench"

# × the bare interpreter. A row whose size or number must not matter has the budget of its small sister.
GUARD, SILENT, MONITOR, SPEAKING, MANY, LARGE, MEMORY = 0.15, 1.18, 1.28, 1.45, 2.2, 1.7, 1.2
CLIENT_MS = 16.0  # added to a tool call in the real client, on a quiet machine

PIPE_BYTES = 60_000  # fits into a pipe without anybody reading
SLOW_EVERY = 4  # rounds; a world of many files is slow to put back, and its row needs no second digit
BARE_TIMES = 4  # in each round: the measure of all others is measured best
CLIENT_EVERY = 7  # rounds; a round in the client is four sessions
MEMORY_ROUNDS = 2
PROGRESS_S = 10  # between two lines where there is no terminal
UNREST_LIMIT = 1.2

SHOW_ARGV = "#!/bin/sh\nprintf '%s\\0' \"$@\"\n"
SHOUT = "#!/bin/sh\necho 'an interpreter was started' >&2\n"
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
# rows
# -----------------------------------------------------------------------------

class Row:
    """One line of the table, and how a single run of it proves that it did its job.

    says: "" = has to be silent, else has to be in the text. proof: a function of the world that returns what is
    wrong with the files afterwards. speaks_when: (change of the world, text), for a row that is silent by its nature.
    first: an event sent before each run, outside the measured time.
    """

    def __init__(self, name: str, world: World, argv: list, **options):
        self.name, self.world, self.argv = name, world, argv
        event = options.get("event")
        self.input = b"" if event is None else json.dumps(event).encode("utf-8")
        self.says = options.get("says", "")
        self.proof = options.get("proof", lambda _: "")
        self.speaks_when = options.get("speaks_when")
        self.first = options.get("first")
        self.budget = options.get("budget")
        self.group = options.get("group", "hook")
        self.every = options.get("every", 1)
        self.env = options.get("env", {})
        self.invalid = ""
        self.wall_ms: list = []
        self.cpu_ms: list = []
        self.peak_kb = self.instructions = 0


def counted(world: World) -> str:
    before, after = world.calls_before, world.tool_calls()
    return "" if after == before + 1 else "tool_calls went from %d to %d" % (before, after)


def saved(world: World) -> str:
    return "" if world.exists(".context/handoffs") else "there is no handoff"


def cleaned(world: World) -> str:
    return "the session's state is still there" if world.exists(STATE) else ""


class Bench:
    """Builds the worlds in one temp dir and holds the rows in the order they are shown."""

    def __init__(self, base: str, python: str, kit: str):
        self.base, self.python = base, python
        self.rows: list = []
        self.count = 0
        os.makedirs(os.path.join(base, "kit"))
        shutil.copy(kit, os.path.join(base, "kit", "ctx_hooks.py"))
        os.makedirs(os.path.join(base, "bin"))
        os.symlink(python, os.path.join(base, "bin", "python3"))
        self.shout_dir, self.show_dir = self.program("shout", SHOUT), self.program("show", SHOW_ARGV)

    def program(self, folder: str, text: str) -> str:
        """A folder whose `python3` is this script."""
        path = os.path.join(self.base, folder, "python3")
        os.makedirs(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, 0o755)
        return os.path.dirname(path)

    def world(self, context: bool = True) -> World:
        self.count += 1
        progress("making world %d, the ones with many files take a moment" % self.count)
        return World(os.path.join(self.base, "w%02d" % self.count), self.base, context)

    def session(self, size_bytes: int = 10_000, tokens: int = USUAL_TOKENS) -> World:
        world = self.world()
        world.begin(size_bytes, tokens)
        return world

    def add(self, name: str, world: World, argv: list, **options) -> None:
        self.rows.append(Row(name, world, argv, **options))

    def direct(self, name: str, world: World, event: dict, **options) -> None:
        self.add(name, world, self.argv(event["hook_event_name"]), event=event, **options)

    def monitor(self, name: str, world: World, budget: float = MONITOR, **options) -> None:
        """A call after another one, unless it has to speak: the auditors look once a minute."""
        event = options.pop("event", None) or world.post_tool()
        before = None if options.get("says") else world.post_tool(tool_use_id="toolu_before")
        options = dict({"first": before}, **options)
        self.direct("monitor, " + name, world, event, budget=budget, proof=counted, **options)

    def shell(self, event: str) -> list:
        return ["/bin/sh", "-c", registered_commands()[event]]

    def argv(self, event: str) -> list:
        return self.argv_of(registered_commands()[event], self.world(context=False))

    def argv_of(self, command: str, world: World) -> list:
        """A command without its shell: the shell says what it would have started."""
        said = subprocess.run(["/bin/sh", "-c", command], cwd=world.root, env=dict(world.env, PATH=self.show_dir),
                              stdout=subprocess.PIPE, check=True).stdout
        return [self.python] + [os.fsdecode(word) for word in said.split(b"\0")[:-1]]

    def build(self) -> None:
        for step in (self.add_references, self.add_silent, self.add_speaking, self.add_large, self.add_many,
                     self.add_registered):
            step()
        worlds = {id(row.world): row.world for row in self.rows}.values()
        for number, world in enumerate(worlds, 1):
            progress("keeping a copy of world %d of %d" % (number, len(worlds)))
            world.save()

    def add_references(self) -> None:
        world = self.world(context=False)
        self.add(BARE, world, [self.python, "-I", "-S", "-c", "pass"], group="reference")
        self.add("sh -c true", world, ["/bin/sh", "-c", "true"], group="reference")
        self.add("python3 -c pass", world, [self.python, "-c", "pass"], group="reference")

    def add_silent(self) -> None:
        world = self.session()
        self.add("gate after its first call, as registered", world, self.shell("PreToolUse"), budget=GUARD,
                 event=world.on("PreToolUse.Bash"), env={"PATH": self.shout_dir + ":/usr/bin:/bin"})
        self.direct("gate after its first call, without the shell", world, world.on("PreToolUse.Bash"),
                    budget=SILENT, speaks_when=(World.forget_gate, GATE_TEXT))
        self.direct("inject, nothing to say", world, world.on("UserPromptSubmit"), budget=SILENT,
                    speaks_when=(lambda it: it.add_signals(1), SIGNAL_TEXT))
        self.direct("stop-enforce, no workflow", world, world.on("Stop"), budget=SILENT,
                    speaks_when=(World.start_workflow, HOLD_TEXT))
        self.monitor("below the threshold", world)
        self.monitor("failed call", world, event=world.post_tool("PostToolUseFailure"))
        self.direct("monitor, before a compaction", world, world.on("PreCompact.auto"), proof=saved)
        self.direct("cleanup", world, world.on("SessionEnd.other"), proof=cleaned)
        world = self.session()
        world.forget("audited", [])
        self.monitor("below it, first call in a minute", world, None, first=None)
        world = self.world(context=False)
        self.direct("gate, project without a context dir", world, world.on("PreToolUse.Bash"), budget=SILENT,
                    speaks_when=(lambda it: it.write(".context/TASKS.md", "# Tasks\n\n- one\n"), GATE_TEXT))

    def add_speaking(self) -> None:
        world = self.world()
        world.start()
        self.direct("gate, first call", world, world.on("PreToolUse.Bash"), says=GATE_TEXT, budget=SILENT)
        self.monitor("reminds", self.session(tokens=FULL_TOKENS), SPEAKING, says=REMINDER_TEXT)  # and writes an alert, and tells it
        world = self.session(1_000_000, FULL_TOKENS)
        if REMINDER_TEXT.encode() not in world.send(world.post_tool(tool_use_id="toolu_first")):
            raise SystemExit("error: there was no first reminder")
        self.monitor("reminds again", world, SPEAKING, says=REMINDER_TEXT)
        world = self.session()
        world.add_signals(1)
        self.direct("inject, 1 signal", world, world.on("UserPromptSubmit"), says=SIGNAL_TEXT, budget=SPEAKING)
        world = self.session()
        world.add_signals(100)
        self.direct("inject, 100 signals", world, world.on("UserPromptSubmit"), says="issues:", budget=MANY)
        world = self.world()
        world.leave_handoff()
        self.direct("inject at start, handoff", world, world.on("SessionStart.startup"), says=START_TEXT,
                    budget=SPEAKING)
        world = self.session()
        world.start_workflow()
        self.direct("stop-enforce, holds", world, world.on("Stop"), says=HOLD_TEXT, budget=SPEAKING)
        world = self.session()
        argv = self.argv_of(world.install_statusline(), world)
        self.add("statusline", world, argv, event=world.on("statusLine"), says="%", budget=SPEAKING)

    def add_large(self) -> None:
        """What must not cost by its size: the parts of an event, the transcript, the settings."""
        text = "0123456789 word\n" * 312_500
        objects = {"rows": [{"id": number, "name": "n"} for number in range(192_000)]}
        world = self.session()
        for name, part in (("response, 5 MB of text", {"tool_response": {"stdout": text, "stderr": ""}}),
                           ("response, 5 MB of small objects", {"tool_response": objects}),
                           ("tool_input of 5 MB", {"tool_input": {"command": text}})):
            self.monitor(name, world, LARGE, event=world.post_tool(**part))
        self.monitor("transcript of 100 MB", self.session(100_000_000))
        self.monitor("transcript of 31 MB without a usage row", self.session(31_000_000, tokens=0))
        world = self.session()
        world.write_rows(0, USUAL_TOKENS, last_bytes=31_000_000)
        self.monitor("last line of 31 MB", world)
        world = self.session()
        world.write(".contextrc", "gate:\n  files: [TASKS.md, %s]\n" % ("x" * 64_000))
        self.monitor(".contextrc of 64 KB in one item", world)

    def add_many(self) -> None:
        """What must not cost by its number: signals and sessions."""
        world = self.session()
        world.add_signals(1000)
        self.direct("inject, 1,000 pending", world, world.on("UserPromptSubmit"), says="issues:", budget=MANY,
                    every=SLOW_EVERY)
        world = self.session()
        world.add_signals(1000, "global")
        world.hear_all()
        world.forget("looked", None)
        prompt, another = world.on("UserPromptSubmit"), world.on("UserPromptSubmit", prompt_id="p-another")
        options = {"every": SLOW_EVERY, "speaks_when": (lambda it: it.add_signals(1), SIGNAL_TEXT)}
        self.direct("inject, 1,000 heard signals looked at", world, prompt, budget=MANY, **options)
        self.direct("inject, 1,000 heard signals", world, prompt, budget=SILENT, first=another, **options)
        self.monitor("1,000 heard signals", world, first=another, every=SLOW_EVERY)
        world = self.session()
        world.add_sessions(1000)
        self.monitor("1,000 other sessions", world, every=SLOW_EVERY)
        world = self.world()
        world.leave_handoff()
        world.add_sessions(10_000)
        world.make_collection_due()
        self.direct("inject at start, 10,000 sessions", world, world.on("SessionStart.startup"), says=START_TEXT,
                    budget=SPEAKING, every=SLOW_EVERY)

    def add_registered(self) -> None:
        """The commands of hooks.json to the letter; their `python3` is the real one, never a shim."""
        recorded = {"SessionStart": "SessionStart.startup", "PreToolUse": "PreToolUse.Bash",
                    "PostToolUse": "PostToolUse.Bash", "PreCompact": "PreCompact.auto", "SessionEnd": "SessionEnd.other"}
        world = self.session()
        for event in registered_commands():
            name = recorded.get(event, event)
            options = {"event": world.on(name)}
            if event.startswith("PostToolUse"):
                options = {"event": world.post_tool(name), "proof": counted}
            self.add("sh: " + event, world, self.shell(event), group="registered", **options)


# -----------------------------------------------------------------------------
# running and measuring
# -----------------------------------------------------------------------------

class Runner:
    """Starts rows one at a time; stdout and stderr go into files of the scratch folder."""

    def __init__(self, scratch: str):
        self.scratch = scratch
        self.out, self.err = os.path.join(scratch, "out"), os.path.join(scratch, "err")

    def run(self, row: Row, argv: list) -> tuple:
        """(wall ms, cpu ms, exit code) of one run, the event on a pipe as the client sends it."""
        reading, writing = os.pipe()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions = [(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_OPEN, 1, self.out, flags, 0o600),
                   (os.POSIX_SPAWN_OPEN, 2, self.err, flags, 0o600)]
        feeder = threading.Thread(target=feed, args=(writing, row.input))
        if len(row.input) <= PIPE_BYTES:
            feed(writing, row.input)
        os.chdir(row.world.root)
        start = time.perf_counter()
        pid = os.posix_spawn(argv[0], argv, row.world.environment(row.env), file_actions=actions)
        os.close(reading)
        if len(row.input) > PIPE_BYTES:
            feeder.start()
        _, status, usage = os.wait4(pid, 0)
        wall_s = time.perf_counter() - start
        if feeder.ident is not None:
            feeder.join()
        rc = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        return wall_s * 1000, (usage.ru_utime + usage.ru_stime) * 1000, rc

    def fresh(self, row: Row, *before: str) -> tuple:
        """A run on the files as they were saved, with other words before its own."""
        row.world.restore()
        if row.first:
            row.world.send(row.first)
        row.world.calls_before = row.world.tool_calls()
        return self.run(row, [*before, *row.argv])

    def fault(self, row: Row, rc: int) -> str:
        """Why the run just made did not do the row's job, "" when it did."""
        complaint = read_text(self.err)
        if rc != 0 or complaint:
            return "exit code %d, stderr %.80r" % (rc, complaint)
        return fault_of_text(read_text(self.out), row.says) or row.proof(row.world)

    def check(self, row: Row) -> None:
        """Before measuring: it does its job, twice, since the first run leaves the bytecode cached."""
        for _ in range(2):
            row.invalid = self.fault(row, self.fresh(row)[2])
        if row.speaks_when and not row.invalid:
            change, text = row.speaks_when
            row.world.restore()
            change(row.world)
            self.run(row, row.argv)
            fault = fault_of_text(read_text(self.out), text)
            row.invalid = "where it has to speak: " + fault if fault else ""
        row.world.restore()

    def measure(self, rows: list, rounds: int) -> None:
        order, started = random.Random(1), time.monotonic()
        for number in range(rounds):
            left = " (about %d s left)" % ((time.monotonic() - started) / number * (rounds - number)) if number else ""
            progress("round %d/%d, %d rows%s" % (number + 1, rounds, len(rows), left))
            turn = [row for row in rows if number % row.every == 0] + [rows[0]] * (BARE_TIMES - 1)
            order.shuffle(turn)
            for row in turn:
                wall_ms, cpu_ms, rc = self.fresh(row)
                row.wall_ms.append(wall_ms)
                row.cpu_ms.append(cpu_ms)
                row.invalid = row.invalid or self.fault(row, rc)

    def measure_memory(self, rows: list, python: str) -> None:
        scale = 1024 if sys.platform == "darwin" else 1  # macOS counts bytes
        for row in rows:
            progress("memory: " + row.name)
            peaks = []
            for _ in range(MEMORY_ROUNDS):
                self.fresh(row, python, "-I", "-S", "-c", LAUNCHER)
                words = read_text(self.err).split()
                peaks.append(int(words[-1]) if words[-2:-1] == ["peak"] else 0)
            row.peak_kb = min(peaks) // scale

    def count_instructions(self, rows: list, tools: tuple) -> bool:
        """With the first of the tools that works on this machine; False when none does."""
        found = [tool for tool in map(shutil.which, tools) if tool]
        tool = next((tool for tool in found if self.instructions(rows[0], tool)), "")
        for row in rows if tool else ():
            progress("instructions: " + row.name)
            row.instructions = self.instructions(row, tool)
        return bool(tool)

    def instructions(self, row: Row, tool: str) -> int:
        """In user mode; they repeat where a clock does not. 0 when the tool cannot say."""
        table = os.path.join(self.scratch, "counts")
        if os.path.basename(tool) == "perf":
            self.fresh(row, tool, "stat", "-x,", "-e", "instructions:u", "-o", table)
            numbers = [text.split(",")[0] for text in read_text(table).splitlines() if "instructions" in text]
        else:
            self.fresh(row, tool, "--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-file=" + table)
            numbers = [text.split()[-1] for text in read_text(table).splitlines() if "Collected :" in text]
        return int(numbers[0]) if numbers and numbers[0].isdigit() else 0

    def imports(self, row: Row) -> list:
        row.world.restore()
        self.run(row, [row.argv[0], "-X", "importtime", *row.argv[1:]])
        lines = [text.split("|") for text in read_text(self.err).splitlines() if text.startswith("import time:")]
        return [parts[2].strip() for parts in lines[1:]]

    def syscalls(self, row: Row) -> dict:
        strace, table = shutil.which("strace"), os.path.join(self.scratch, "strace")
        if not strace:
            return {}
        self.fresh(row, strace, "-f", "-c", "-o", table)
        words = [text.split() for text in read_text(table).splitlines()]
        return {each[-1]: int(each[3]) for each in words
                if len(each) >= 5 and each[3].isdigit() and each[-1] != "total"}


def feed(descriptor: int, data: bytes) -> None:
    try:
        with open(descriptor, "wb", buffering=0) as pipe:
            view = memoryview(data)
            while len(view):
                view = view[pipe.write(view):]
    except BrokenPipeError:
        pass  # a hook need not read what it does not use


def read_text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as source:
        return source.read()


def fault_of_text(said: str, wanted: str) -> str:
    """A reply is one JSON object, except the status line's, which is a line of text."""
    if not wanted or not said:
        return "" if wanted == said else "silent, should speak" if wanted else "spoke, should be silent"
    if said.startswith("{"):
        try:
            reply = json.loads(said)
        except ValueError:
            return "stdout is not one JSON object"
        said = reply.get("hookSpecificOutput", {}).get("additionalContext") or reply.get("reason", "")
    return "" if wanted in said else "said something else: %.60r" % said


def better_half_median(values: list) -> float:
    return statistics.median(sorted(values)[:max(1, (len(values) + 1) // 2)])


def progress(text: str, shown={"at": 0.0}) -> None:  # noqa: B006 - remembers when a line was last shown
    """On a terminal one line that changes, elsewhere a line now and then."""
    if sys.stderr.isatty():
        print("\r%-70.70s\r" % text, end="", file=sys.stderr, flush=True)
    elif text and time.monotonic() - shown["at"] > PROGRESS_S:
        print("bench: " + text, file=sys.stderr, flush=True)
        shown["at"] = time.monotonic()


def measure_client(python: str, kit: str, rounds: int) -> list:
    """One dict a variant, [] when the client is not there."""
    import client_cost

    times, started = client_cost.measure(python, kit, registered_commands(), rounds, progress)
    floor_ms = better_half_median(times[client_cost.NO_HOOKS]) if times else 0.0
    found = []
    for name in times:
        call_ms, budget_ms = better_half_median(times[name]), CLIENT_MS if name == client_cost.THE_KIT else None
        found.append({"variant": name, "ms": round(call_ms, 1), "added_ms": round(call_ms - floor_ms, 1),
                      "budget_ms": budget_ms, "interpreters": round(started[name], 2)})
    return found


# -----------------------------------------------------------------------------
# reports
# -----------------------------------------------------------------------------

def figures_of(rows: list) -> list:
    """One dict a row; multiples are against the bare interpreter of the same run."""
    bare, found = rows[0], []
    floor_cpu, floor_wall = better_half_median(bare.cpu_ms), better_half_median(bare.wall_ms)
    for row in rows:
        cpu_ms, wall_ms = better_half_median(row.cpu_ms), better_half_median(row.wall_ms)
        found.append({
            "row": row.name, "group": row.group, "invalid": row.invalid, "budget": row.budget,
            "multiple": round(cpu_ms / floor_cpu, 3), "cpu_ms": round(cpu_ms, 3),
            "wall_multiple": round(wall_ms / floor_wall, 3), "wall_ms": round(wall_ms, 3), "peak_kb": row.peak_kb,
            "peak_multiple": round(row.peak_kb / max(bare.peak_kb, 1), 3),
            "instructions_multiple": round(row.instructions / max(bare.instructions, 1), 3)})
    return found


def verdict(figures: dict) -> str:
    if figures["invalid"]:
        return "INVALID: " + figures["invalid"]
    if not figures["budget"]:
        return ""
    over = [name for name, is_over in (("time", figures["multiple"] > figures["budget"]),
                                       ("memory", figures["peak_multiple"] > MEMORY)) if is_over]
    return "OVER (%s)" % ", ".join(over) if over else "ok"


def about(python: str, rounds: int, bare: Row) -> dict:
    version = subprocess.run([python, "-I", "-S", "-c", "import sys; print(sys.version.split()[0])"],
                             stdout=subprocess.PIPE, text=True).stdout.strip()
    ordered = sorted(bare.cpu_ms)  # upper to lower quartile of the same bare start; 1.0 is a quiet machine
    return {"python": version, "system": "%s %s" % (platform.system(), platform.machine()), "cpus": os.cpu_count(),
            "rounds": rounds, "unrest": round(ordered[len(ordered) * 3 // 4] / ordered[len(ordered) // 4], 2)}


def print_lines(found: list, client: list, facts: dict) -> None:
    print("Python %(python)s, %(system)s, %(cpus)s CPUs, %(rounds)s rounds" % facts)
    print("x = CPU time in multiples of `%s` in this run" % BARE)
    if facts["unrest"] > UNREST_LIMIT:
        print("the machine is busy: the same bare start varies by %(unrest)s" % facts)
    counted_too = any(figures["instructions_multiple"] for figures in found)
    print("%-46s %7s %7s %7s %8s %7s%s" % ("", "cpu x", "budget", "cpu ms", "wall ms", "mem x",
                                           " instr x" if counted_too else ""))
    for figures in found:
        instructions = " %7.2f" % figures["instructions_multiple"] if counted_too else ""
        print("%-46s %7.2f %7s %7.2f %8.2f %7.2f%s %s" % (
            figures["row"], figures["multiple"], figures["budget"] or "", figures["cpu_ms"], figures["wall_ms"],
            figures["peak_multiple"], instructions, verdict(figures)))
    for row in client:
        note = "" if row["budget_ms"] is None else "ok" if row["added_ms"] <= row["budget_ms"] else "OVER"
        print("in the client, %-22s %6.1f ms a call, %+6.1f, %.2f interpreters a call %s" % (
            row["variant"], row["ms"], row["added_ms"], row["interpreters"], note))


def print_markdown(found: list, client: list, facts: dict) -> None:
    print("| what | × bare interpreter | budget | CPU, ms | memory, × |\n| --- | ---: | ---: | ---: | ---: |")
    for figures in found:
        if not figures["invalid"]:
            print("| %s | %.2f | %s | %.1f | %.2f |" % (figures["row"], figures["multiple"], figures["budget"] or "",
                                                       figures["cpu_ms"], figures["peak_multiple"]))
    if client:
        print("\n| in the real client | ms a tool call | added | interpreters started |\n| --- | ---: | ---: | ---: |")
    for row in client:
        print("| %(variant)s | %(ms).0f | %(added_ms)+.0f | %(interpreters).2f |" % row)
    print("\nPython %(python)s, %(system)s, %(cpus)s CPUs; `make bench`, CPU time of the process, median of the better "
          "half of %(rounds)s interleaved rounds." % facts)


def print_profile(rows: list, runner: Runner) -> None:
    """What a hook imports, asks of the kernel and executes beyond the bare interpreter; load does not matter."""
    bare, direct = rows[0], [row for row in rows if row.argv[0] == rows[0].argv[0]]
    has_counts = runner.count_instructions(direct, ("perf", "valgrind"))
    known, bare_calls = runner.imports(bare), runner.syscalls(bare)
    for row in direct:
        share = "%.3f x instructions" % (row.instructions / bare.instructions) if has_counts else ""
        print("%-46s %s%s" % (row.name, share, "  INVALID: " + row.invalid if row.invalid else ""))
        print("  imports: %s" % (", ".join(name for name in runner.imports(row) if name not in known) or "none"))
        more = {name: count - bare_calls.get(name, 0) for name, count in runner.syscalls(row).items()}
        detail = sorted(((count, name) for name, count in more.items() if count > 0), reverse=True)
        if more:
            print("  syscalls: %+d: %s" % (sum(more.values()), ", ".join("%s %d" % pair[::-1] for pair in detail)))


# -----------------------------------------------------------------------------
# main
# -----------------------------------------------------------------------------

def parse_arguments(argv: list) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py", description=__doc__.split("\n")[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="a table for the README")
    form.add_argument("--profile", action="store_true",
                      help="no times: imports, syscalls (strace), instructions (perf or valgrind)")
    parser.add_argument("--client", action="store_true", help="also milliseconds per tool call in the real client")
    parser.add_argument("--rounds", type=int, default=21, help="default 21")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="rows that contain it (or match, with * and ?)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to measure with")
    parser.add_argument("--kit", default=os.path.join(REPO, "ctx_hooks.py"), help="the ctx_hooks.py to measure")
    return parser.parse_args(argv)


def real_interpreter(path: str) -> str:
    """Behind links, shims and virtual environments."""
    code = "import os, sys; print(os.path.realpath(sys.executable))"
    return subprocess.run([path, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def chosen(rows: list, pattern: str) -> list:
    wanted = pattern if any(letter in pattern for letter in "*?[") else "*%s*" % pattern
    return [rows[0]] + [row for row in rows[1:] if fnmatch.fnmatchcase(row.name, wanted)]


def main(argv: list) -> int:
    options = parse_arguments(argv)
    if not os.path.isfile(options.kit):
        print("error: there is no %s\nhint: --kit FILE" % options.kit, file=sys.stderr)
        return 1
    python = real_interpreter(options.python)
    with tempfile.TemporaryDirectory(prefix="ctx-hooks-bench-") as base:
        bench, runner = Bench(base, python, options.kit), Runner(base)
        bench.build()
        rows = chosen(bench.rows, options.only)
        for row in rows:
            progress("check: " + row.name)
            runner.check(row)
        if options.profile:
            print_profile(rows, runner)
        else:
            measure_and_report(rows, runner, python, options)
        os.chdir(REPO)
    return 1 if any(row.invalid for row in rows) else 0


def measure_and_report(rows: list, runner: Runner, python: str, options: argparse.Namespace) -> None:
    runner.measure(rows, options.rounds)
    runner.measure_memory(rows, python)
    runner.count_instructions(rows, ("perf",))  # valgrind would take minutes; --profile asks it
    rounds = max(1, options.rounds // CLIENT_EVERY)
    client = measure_client(python, options.kit, rounds) if options.client else []
    facts, found = about(python, options.rounds, rows[0]), figures_of(rows)
    progress("")
    if options.json:
        print(json.dumps(dict(facts, rows=found, client=client), indent=1))
    elif options.markdown:
        print_markdown(found, client, facts)
    else:
        print_lines(found, client, facts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
