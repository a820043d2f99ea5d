"""What people pay for the hooks: CPU as multiples of a bare interpreter in the same run, and milliseconds.

    make bench                    the whole table
    make bench ARGS=--client      also in the real client, against no hooks, `true` twice, two bare interpreters
    make bench ARGS="--beside F"  another kit (a folder with its ctx_hooks.py and hooks.json) in the same run

Figures depend on the machine and on what else it does, so nothing here passes or fails by them. A row whose hook
did something else than the row says is marked; that is an error.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(TESTS)
sys.path[:0] = [TESTS, os.path.join(TESTS, "e2e")]

from bench_worlds import Replay, World, result_row  # noqa: E402

THIS = "this kit"
WINDOWS = {200_000: "200k", 1_000_000: "1M"}
REPLAY_CALLS, SEED = 200, 2026
STARTED = 0.5  # a hook that used less than half a bare interpreter did not start one
SHIM_S = 0.3
BIG_TRANSCRIPT_BYTES, BIG_RESPONSE_BYTES = 100_000_000, 5_000_000
MANY_SESSIONS, MANY_SIGNALS = 1_000, 200


class Row:
    """A line of the table: a world, what is done before each run, the hook, and what it has to do."""

    def __init__(self, name: str, world: World, event: str, prepare: object, expected: str) -> None:
        self.name, self.world, self.event, self.prepare, self.expected = name, world, event, prepare, expected
        self.runs: list = []
        self.bare: list = []
        self.problem = ""

    def measure(self, kind: str) -> None:
        fields = self.prepare(self.world) or {}
        run = self.world.hook(self.event, **fields)
        if kind == "count":
            self.runs.append(run)
            self.bare.append(self.world.bare())
            self.check(run)

    def check(self, run: object) -> None:
        if run.complaint:
            self.problem = run.complaint[:200]
        elif bool(run.said) != (self.expected == "speaks"):
            self.problem = "said %r" % run.said[:80]

    def figures(self) -> dict:
        cpu_ms, bare_ms = better_half(self.runs), better_half(self.bare)
        has_started = cpu_ms > STARTED * bare_ms
        if has_started == (self.expected == "shell"):
            self.problem = self.problem or "Python was %sstarted" % ("" if has_started else "not ")
        wall_ms = statistics.median(run.wall_ms for run in self.runs)
        found = {"row": self.name, "multiple": cpu_ms / bare_ms, "cpu_ms": cpu_ms, "wall_ms": wall_ms}
        return dict(found, problem=self.problem)


def better_half(runs: list) -> float:
    """The median of the faster half: what else the machine does only ever adds."""
    ordered = sorted(run.cpu_ms for run in runs)
    return statistics.median(ordered[: len(ordered) // 2 + 1])


# -----------------------------------------------------------------------------
# the rows
# -----------------------------------------------------------------------------


def usual(world: World) -> None:
    """The next call of a session with much room; Python has to look."""
    world.end_calm()
    world.answer(40_000)


def with_signal(world: World) -> None:
    usual(world)
    world.add_signals(1)


def over_the_point(world: World) -> None:
    world.answer(150_000)


def with_big_response(world: World) -> dict:
    usual(world)
    return {"tool_response": {"stdout": "word " * (BIG_RESPONSE_BYTES // 5)}}


def with_big_result(world: World) -> None:
    world.add_rows(result_row(world.number, "word " * (BIG_RESPONSE_BYTES // 5)))
    usual(world)


def nothing(world: World) -> None:
    world.let_age()


def build_rows(make_world: object) -> list:
    """The rows of one kit. `make_world` gives a fresh world with a session under way."""
    common, empty, calm, shimmed = (make_world(name) for name in ("common", "empty", "calm", "shim"))
    subprocess.run(["rm", "-r", empty.path(".context")], check=True)
    calm.end_calm()
    calm.answer(40_000)
    calm.hook("PostToolUse")
    shimmed.put_shim(SHIM_S)
    usual(shimmed)
    shimmed.hook("PostToolUse")
    big, crowded, heard, full = (make_world(name) for name in ("big", "crowded", "heard", "full"))
    big.grow_transcript(BIG_TRANSCRIPT_BYTES)
    crowded.add_old_sessions(MANY_SESSIONS)
    heard.add_signals(MANY_SIGNALS)
    heard.hear_all()
    return [
        Row("no context folder", empty, "PostToolUse", nothing, "shell"),
        Row("gate, after the first call", common, "PreToolUse", nothing, "shell"),
        Row("monitor, calm", calm, "PostToolUse", keep_calm, "shell"),
        Row("monitor, nothing to say", common, "PostToolUse", usual, "silent"),
        Row("monitor, a signal", common, "PostToolUse", with_signal, "speaks"),
        Row("monitor, the reminder", full, "PostToolUse", over_the_point, "speaks"),
        Row("a prompt, nothing to say", common, "UserPromptSubmit", usual, "silent"),
        Row("Stop, no workflow", common, "Stop", usual, "silent"),
        Row("through a shim of 300 ms, after the first call", shimmed, "PostToolUse", usual, "silent"),
        Row("monitor, 100 MB transcript", big, "PostToolUse", usual, "silent"),
        Row("monitor, the event has 5 MB", common, "PostToolUse", with_big_response, "silent"),
        Row("monitor, the transcript gained 5 MB", common, "PostToolUse", with_big_result, "silent"),
        Row("monitor, 1,000 old sessions", crowded, "PostToolUse", usual, "silent"),
        Row("monitor, 200 signals heard", heard, "PostToolUse", usual, "silent"),
    ]


def keep_calm(world: World) -> None:
    """Calm holds for some calls only; here it begins anew before each."""
    world.let_age()
    for folder, _, names in os.walk(os.path.join(world.home, ".cache/ctx_hooks/calm")):
        for name in names:
            if name.endswith(".tally"):
                open(os.path.join(folder, name), "w").close()


def measure_rows(rows: list, rounds: int) -> list:
    """All rows take turns, so that a busy moment of the machine meets all alike."""
    for row in rows:
        progress("first run: " + row.name)
        row.measure("warm")
    for number in range(rounds):
        for row in rows:
            progress("round %d of %d: %s" % (number + 1, rounds, row.name))
            row.measure("count")
    return [row.figures() for row in rows]


# -----------------------------------------------------------------------------
# the replay
# -----------------------------------------------------------------------------


def measure_replay(world: World, counted: World, calls: int, seed: int) -> dict:
    """Both hooks of each call, averaged over a session. The same session in `counted` tells the starts."""
    progress("replay, %s window" % WINDOWS[world.window])
    replay = Replay(world, seed).run(calls)
    counted.count_starts()
    starts = Replay(counted, seed).run(calls).starts
    pairs = [gate.cpu_ms + monitor.cpu_ms for gate, monitor, _ in replay.calls]
    walls = [gate.wall_ms + monitor.wall_ms for gate, monitor, _ in replay.calls]
    complaints = [run.complaint[:200] for pair in replay.calls for run in pair[:2] if run.complaint]
    cpu_ms = statistics.mean(pairs)
    return {
        "row": "both hooks of a call, %d calls, %s window" % (calls, WINDOWS[world.window]),
        "multiple": cpu_ms / statistics.mean(bare.cpu_ms for _, _, bare in replay.calls),
        "cpu_ms": cpu_ms,
        "wall_ms": statistics.mean(walls),
        "started": starts / (2 * calls),
        "late": replay.late,
        "problem": (complaints or ["" if replay.late else "there was no reminder"])[0],
    }


# -----------------------------------------------------------------------------
# reports
# -----------------------------------------------------------------------------


def progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K" + text)
        sys.stderr.flush()


def lateness(row: dict) -> str:
    return "late by at most %d calls in %d" % (max(row["late"] or [0]), len(row["late"]))


def print_lines(found: dict) -> None:
    print("Python %(python)s, %(system)s, %(cpus)s CPUs; a bare interpreter: %(bare_ms).1f ms of CPU" % found)
    for name, rows in found["kits"].items():
        print("\n%-50s %9s %8s %8s" % (name, "multiple", "CPU ms", "wall ms"))
        for row in rows:
            more = "%3.0f %% start Python; reminder %s" % (row["started"] * 100, lateness(row)) if "late" in row else ""
            line = "%(row)-50s %(multiple)9.2f %(cpu_ms)8.1f %(wall_ms)8.1f" % row
            is_wrong = row["problem"] and name == THIS
            print(line, more, "WRONG: " + row["problem"] if is_wrong else "")
    for row in found["client"]:
        print("in the client, %-24s %7.1f ms a call, %+6.1f" % (row["variant"], row["ms"], row["added_ms"]))


def print_markdown(found: dict) -> None:
    """The README's short table: multiples, and milliseconds beside them."""
    kits = list(found["kits"])
    print("| what | " + " | ".join(kits) + " |\n| --- |" + " ---: |" * len(kits))
    for rows in zip(*found["kits"].values()):
        cells = ["%.2f × (%.1f ms)" % (row["multiple"], row["cpu_ms"]) for row in rows]
        print("| %s | %s |" % (rows[0]["row"], " | ".join(cells)))
    if found["client"]:
        print("\n| in the real client | ms a tool call | added |\n| --- | ---: | ---: |")
    for row in found["client"]:
        print("| %(variant)s | %(ms).0f | %(added_ms)+.1f |" % row)
    print("\nCPU as multiples of `python3 -I -S -c pass` in the same run (%(bare_ms).1f ms). Python %(python)s, "
          "%(system)s, %(cpus)s CPUs; `make bench`." % found)


def main(argv: list) -> int:
    options = parse_arguments(argv)
    python = os.path.realpath(subprocess.run(
        [options.python, "-c", "import sys; print(sys.executable)"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip())
    kits = {THIS: options.kit}
    if options.beside:
        kits[version_of(options.beside)] = options.beside
    with tempfile.TemporaryDirectory(prefix="ctx-hooks-bench-") as base:
        found = measure(base, kits, python, options)
    if options.client:
        import bench_client

        found["client"] = bench_client.measure(python, kits, options.client_rounds, progress)
    progress("")
    if options.json:
        print(json.dumps(found, indent=1))
    elif options.markdown:
        print_markdown(found)
    else:
        print_lines(found)
    return 1 if any(row["problem"] for row in found["kits"][THIS]) else 0


def measure(base: str, kits: dict, python: str, options: argparse.Namespace) -> dict:
    """The figures of all kits. Their rows are measured together, in turns."""
    rows: dict = {}
    for name, kit in kits.items():
        def make_world(what: str, kit: str = kit, name: str = name) -> World:
            progress("make: %s, %s" % (name, what))
            world = World(os.path.join(base, name.replace(" ", "-"), what), kit, python)
            world.begin()
            return world

        rows[name] = [] if options.replay_only else build_rows(make_world)
    figures = measure_rows([row for kit in rows.values() for row in kit], options.rounds)
    found: dict = {"kits": {}, "client": []}
    for name, kit in kits.items():
        found["kits"][name], figures = figures[: len(rows[name])], figures[len(rows[name]) :]
        for window in WINDOWS:
            folder = os.path.join(base, "replay", name.replace(" ", "-"), str(window))
            world, counted = (World(os.path.join(folder, what), kit, python, window) for what in ("timed", "counted"))
            found["kits"][name].append(measure_replay(world, counted, options.calls, options.seed))
    found["bare_ms"] = better_half([world.bare() for _ in range(15)])
    version = subprocess.run([python, "--version"], stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    return dict(found, python=version, system=platform.system(), cpus=os.cpu_count())


def version_of(kit: str) -> str:
    with open(os.path.join(kit, "ctx_hooks.py"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("VERSION = "):
                return line.split('"')[1]
    return "the other"


def parse_arguments(argv: list) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py", description=__doc__.split("\n")[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="the README's table")
    parser.add_argument("--client", action="store_true", help="also milliseconds a call in the real client")
    parser.add_argument("--beside", metavar="FOLDER", help="another kit in the same run: its ctx_hooks.py, hooks.json")
    parser.add_argument("--kit", metavar="FOLDER", default=REPO, help="the kit to measure (default: this one)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to measure with")
    parser.add_argument("--rounds", type=int, default=21, help="runs of each row (default 21)")
    parser.add_argument("--client-rounds", type=int, default=3, help="sessions of each variant (default 3)")
    parser.add_argument("--calls", type=int, default=REPLAY_CALLS, help="calls of a replay (default 200)")
    parser.add_argument("--seed", type=int, default=SEED, help="of the replay's growth")
    parser.add_argument("--replay-only", action="store_true", help="only the replays")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
