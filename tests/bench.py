"""What people pay for the hooks: CPU as multiples of a bare interpreter in the same run, and milliseconds.

    make bench                    the whole table
    make bench ARGS=--client      also in the real client, against no hooks, `true` twice, two bare interpreters
    make bench ARGS="--beside F"  another kit (a folder with its ctx_hooks.py and hooks.json) in the same run
    make bench ARGS="--rounds 3"  a short run
    make bench ARGS=--words       instead, how much of the person's words is kept and delivered

Figures depend on the machine and on what else it does, so nothing here passes or fails by them. A row whose hook
did something else than the row says is marked; that is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS / "e2e")]

from bench_worlds import Replay, World, result_row  # noqa: E402

PYTHON = os.path.realpath(sys.executable)
THIS = "this kit"
WINDOWS = {200_000: "200k", 1_000_000: "1M"}
GROWTHS = (500, 3_000, 10_000, 20_000, 40_000)  # tokens a call
STEEP_CALLS = 24
STARTED = 0.5  # a hook that used less than half a bare interpreter did not start one
BIG_TEXT = "word " * 1_000_000


class Row:
    """A line of the table: a world, what is done before each run, the hook, and what it has to do."""

    def __init__(self, name: str, world: World, event: str, prepare: object, expected: str) -> None:
        self.name, self.world, self.event, self.prepare, self.expected = name, world, event, prepare, expected
        self.runs: list = []
        self.bare: list = []

    def measure(self) -> None:
        fields = self.prepare(self.world) or {}
        self.runs.append(self.world.hook(self.event, **fields))
        self.bare.append(self.world.bare())

    def figures(self) -> dict:
        """The first run does not count."""
        runs = self.runs[1:]
        cpu_ms, bare_ms = better_half(runs), better_half(self.bare[1:])
        has_started = cpu_ms > STARTED * bare_ms
        problems = [run.complaint[:200] for run in runs if run.complaint]
        problems += ["said %r" % run.said[:80] for run in runs if bool(run.said) != (self.expected == "speaks")]
        if has_started == (self.expected == "shell"):
            problems.append("Python was %sstarted" % ("" if has_started else "not "))
        return {
            "row": self.name,
            "multiple": cpu_ms / bare_ms,
            "cpu_ms": cpu_ms,
            "wall_ms": statistics.median(run.wall_ms for run in runs),
            "problem": "".join(problems[:1]),
        }


def better_half(runs: list) -> float:
    """The median of the faster half: what else the machine does only ever adds."""
    ordered = sorted(run.cpu_ms for run in runs)
    return statistics.median(ordered[: len(ordered) // 2 + 1])


# --- what is done before each run


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
    return {"tool_response": {"stdout": BIG_TEXT}}


def with_big_result(world: World) -> None:
    world.add_row(result_row(world.number, BIG_TEXT))
    usual(world)


def build_rows(make_world: object) -> list:
    """The rows of one kit. `make_world` gives a fresh world with a session under way."""
    common, empty, calm, shimmed = (make_world(name) for name in ("common", "empty", "calm", "shim"))
    shutil.rmtree(empty.root / ".context")
    shimmed.put_shim(0.3)
    for world in (calm, shimmed):
        usual(world)
        world.hook("PostToolUse")
    big, crowded, heard, full = (make_world(name) for name in ("big", "crowded", "heard", "full"))
    big.grow_transcript(100_000_000)
    crowded.add_old_sessions(1_000)
    heard.add_signals(200)
    heard.hear_all()
    return [
        Row("no context folder", empty, "PostToolUse", World.let_age, "shell"),
        Row("gate, after the first call", common, "PreToolUse", World.let_age, "shell"),
        Row("monitor, calm", calm, "PostToolUse", World.renew_calm, "shell"),
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


def measure(base: Path, kits: dict, options: argparse.Namespace) -> dict:
    """The figures of all kits. All rows take turns, so that a busy moment of the machine meets all alike."""
    rows: dict = {}
    for number, (name, kit) in enumerate(kits.items()):

        def make_world(what: str, kit: str = kit, number: int = number) -> World:
            progress("make: %s" % what)
            world = World(base / str(number) / what, kit, PYTHON)
            world.get_under_way()
            return world

        rows[name] = build_rows(make_world)
    for number in range(options.rounds + 1):
        for row in sum(rows.values(), []):
            progress("round %d of %d: %s" % (number, options.rounds, row.name))
            row.measure()
    found: dict = {"kits": {}, "client": []}
    for number, (name, kit) in enumerate(kits.items()):
        found["kits"][name] = [row.figures() for row in rows[name]]
        for window in WINDOWS:
            world = World(base / str(number) / str(window), kit, PYTHON, window)
            found["kits"][name].append(measure_replay(world, options.calls))
            for growth in GROWTHS:
                where = base / str(number) / ("%d-%d" % (window, growth))
                world = World(where, kit, PYTHON, window)
                found["kits"][name].append(measure_replay(world, STEEP_CALLS, growth))
    found["bare_ms"] = better_half([world.bare() for _ in range(15)])
    return dict(found, python=platform.python_version(), system=platform.system(), cpus=os.cpu_count())


def measure_replay(world: World, calls: int, growth: int = 0) -> dict:
    """Both hooks of each call, averaged over a session."""
    progress("replay, %s window" % WINDOWS[world.window])
    replay = Replay(world, calls, growth)
    bare_ms = statistics.mean(run.cpu_ms for run in replay.bare)
    cpu_ms = 2 * statistics.mean(run.cpu_ms for run in replay.hooks)
    problems = [run.complaint[:200] for run in replay.hooks if run.complaint]
    if replay.crossed_at >= 0 and not replay.late:
        problems.append("there was no reminder")
    if any(replay.late):
        problems.append("the reminder came late")
    what = "calls of {:,} tokens".format(growth) if growth else "%d calls" % calls
    return {
        "row": "both hooks of a call, %s, %s window" % (what, WINDOWS[world.window]),
        "multiple": cpu_ms / bare_ms,
        "cpu_ms": cpu_ms,
        "wall_ms": 2 * statistics.mean(run.wall_ms for run in replay.hooks),
        "started": statistics.mean(run.cpu_ms > STARTED * bare_ms for run in replay.hooks),
        "late": replay.late,
        "problem": "".join(problems[:1]),
    }


# --- reports


def progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K" + text)
        sys.stderr.flush()


def print_lines(found: dict) -> None:
    print("Python %(python)s, %(system)s, %(cpus)s CPUs; a bare interpreter: %(bare_ms).1f ms of CPU" % found)
    for name, rows in found["kits"].items():
        print("\n%-50s %9s %8s %8s" % (name, "multiple", "CPU ms", "wall ms"))
        for row in rows:
            line = "%(row)-50s %(multiple)9.2f %(cpu_ms)8.1f %(wall_ms)8.1f" % row
            if "late" in row:
                numbers = (row["started"] * 100, max(row["late"] or [0]), len(row["late"]))
                line += " %3.0f %% start Python; reminder late by at most %d calls in %d" % numbers
            if row["problem"] and name == THIS:
                line += " WRONG: " + row["problem"]
            print(line)
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
    print(
        "\nCPU as multiples of `python3 -I -S -c pass` in the same run (%(bare_ms).1f ms). Python %(python)s, "
        "%(system)s, %(cpus)s CPUs; `make bench`." % found
    )


def main() -> int:
    options = parse_arguments()
    if options.words:
        import bench_words

        bench_words.report()
        return 0
    kits = {THIS: str(TESTS.parent)}
    if options.beside:
        kits[Path(options.beside).resolve().name] = options.beside
    with tempfile.TemporaryDirectory(prefix="ctx-hooks-bench-") as base:
        found = measure(Path(base), kits, options)
    if options.client:
        import bench_client

        found["client"] = bench_client.measure(kits, progress)
    progress("")
    if options.json:
        print(json.dumps(found, indent=1))
    elif options.markdown:
        print_markdown(found)
    else:
        print_lines(found)
    return 1 if any(row["problem"] for row in found["kits"][THIS]) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py", description=__doc__.split("\n")[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="the README's table")
    parser.add_argument("--client", action="store_true", help="also milliseconds a call in the real client")
    parser.add_argument("--beside", metavar="FOLDER", help="another kit in the same run: its ctx_hooks.py, hooks.json")
    parser.add_argument("--words", action="store_true", help="instead, the shares of the person's words that are kept")
    parser.add_argument("--rounds", type=int, default=21, help="runs of each row (default 21)")
    parser.add_argument("--calls", type=int, default=200, help="calls of a replay (default 200)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
