"""What hooks cost in the real client, for the benchmark: milliseconds added to a tool call.

A session of scripted calls, one a turn, while the context fills up from 30,000 to 163,000 of 167,000 tokens: calm
stretches, the alerts, the reminder and the handoff are all in it. The time of a call is that between an answer of
the stub model and the next request; the stub thinks for a moment first, as a model does. The variants take turns, so that a busy moment of the machine meets all alike.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time

import real_client
from bench_worlds import HANDOFF, HANDOFF_PATH, lines_of
from stub_model import Turn

CALLS, ROUNDS = 48, 3
FIRST_TOKENS, LAST_TOKENS = 30_000, 163_000
MODEL_S = 0.2  # the client writes its transcript every 0.1 s or so
NO_HOOKS = "no hooks"


def measure(kits: dict, progress: object) -> list:
    """[{variant, ms, added_ms}], [] without the client. `kits` is {name: folder}."""
    program = real_client.locate()
    if not program:
        print("client: skipped, it is not installed (python3 tests/e2e/real_client.py gets it)", file=sys.stderr)
        return []
    variants = {NO_HOOKS: {}}
    for name, command in (("`true` twice", "true"), ("two bare interpreters", "python3 -I -S -c pass")):
        variants[name] = {"PreToolUse": command, "PostToolUse": command}
    for name, kit in kits.items():
        variants[name] = lines_of(kit)
    times: dict = {name: [] for name in variants}
    for number in range(ROUNDS):
        for name, lines in variants.items():
            progress("client, round %d of %d: %s" % (number + 1, ROUNDS, name))
            times[name] += run_session(program, lines, kits.get(name, ""))
    usual_ms = statistics.mean(trimmed(times[NO_HOOKS]))
    figures = {name: statistics.mean(trimmed(found)) for name, found in times.items()}
    return [{"variant": name, "ms": ms, "added_ms": ms - usual_ms} for name, ms in figures.items()]


def trimmed(times: list) -> list:
    """Without the slowest twentieth: pauses of the machine, not of the hooks."""
    return sorted(times)[: max(1, len(times) * 19 // 20)]


def run_session(program: object, lines: dict, kit: str) -> list:
    """Milliseconds of each call, the first one aside: the gate speaks there."""
    stamps: list = []
    with tempfile.TemporaryDirectory(prefix="ctx-hooks-client-") as base:
        world = real_client.World(os.path.join(base, "world"), program)
        try:
            prepare(world, lines, kit)
            world.stub.script(*[turn_of(number, stamps) for number in range(CALLS + 1)], "done")
            with world.session() as session:
                session.prompt("Work through all parts.")
        finally:
            world.close()
    return [(asked - answered) * 1000 for (_, answered), (asked, _) in zip(stamps[1:], stamps[2:])]


def turn_of(number: int, stamps: list) -> object:
    """An answer with one call; an agent that is asked for a handoff writes it."""

    def answer(request: object) -> Turn:
        arrived = time.perf_counter()
        time.sleep(MODEL_S)
        stamps.append((arrived, time.perf_counter()))
        tokens = FIRST_TOKENS + (LAST_TOKENS - FIRST_TOKENS) * number // CALLS
        asked = HANDOFF_PATH.search(request.news())
        if asked:
            os.makedirs(os.path.dirname(asked.group(1)), exist_ok=True)
            given = {"file_path": asked.group(1), "content": HANDOFF % number}
            return Turn("", [("Write", given)], tokens=tokens)
        return Turn("", [("Bash", {"command": "echo %d" % number})], tokens=tokens)

    return answer


def prepare(world: object, lines: dict, kit: str) -> None:
    """The kit where its lines look for it, and the real interpreter as `python3`."""
    program = world.bin / "python3"
    program.unlink()
    program.symlink_to(os.path.realpath(sys.executable))
    entries = {}
    for event, command in lines.items():
        entries[event] = [{"hooks": [{"type": "command", "command": command, "timeout": 10}]}]
    world.write(".claude/settings.json", json.dumps({"hooks": entries}))
    world.write(".context/TASKS.md", "# Tasks\n\n- finish the parser\n")
    if kit:
        world.path(".claude/hooks").mkdir()
        shutil.copy(os.path.join(kit, "ctx_hooks.py"), str(world.path(".claude/hooks/ctx_hooks.py")))
