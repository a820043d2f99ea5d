"""What hooks cost in the real client, for the benchmark: milliseconds and interpreters per tool call.

A session of scripted Bash calls, one a turn; the time of a call is that between two requests that the stub model
sees. The variants take turns, so that a busy moment of the machine meets all alike.
"""
from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time

import real_client
from stub_model import Turn, bash

CALLS = 24  # in a session, after the first one, in which the gate speaks
NO_HOOKS, THE_KIT = "no hooks", "the kit"
COUNTING = """#!/bin/sh
for word; do case $word in gate | monitor | pass) echo "$word" >> '%(log)s' ;; esac; done
exec '%(python)s' "$@"
"""


def measure(python: str, kit: str, commands: dict, rounds: int, progress) -> tuple:
    """(variant -> milliseconds of its calls, variant -> interpreters started a call); empty without the client."""
    program = real_client.locate()
    if not program:
        print("client: skipped, it is not installed (python3 tests/e2e/real_client.py gets it)", file=sys.stderr)
        return {}, {}
    bare = "python3 -I -S -c pass"
    variants = {NO_HOOKS: {}, "`true` twice": {"PreToolUse": "true", "PostToolUse": "true"},
                "two bare interpreters": {"PreToolUse": bare, "PostToolUse": bare}, THE_KIT: commands}
    times: dict = {name: [] for name in variants}
    for number in range(rounds):
        for name, hooks in variants.items():
            progress("client, round %d/%d: %s" % (number + 1, rounds, name))
            times[name] += _session(program, python, kit, hooks)[0]
    return times, {name: _session(program, python, kit, hooks, counted=True)[1] for name, hooks in variants.items()}


def _session(program, python: str, kit: str, hooks: dict, counted: bool = False) -> tuple:
    """(milliseconds of each call, interpreters started per call when they are counted)."""
    stamps: list = []
    with tempfile.TemporaryDirectory(prefix="ctx-hooks-client-") as base:
        log = os.path.join(base, "started")
        world = real_client.World(os.path.join(base, "world"), program)
        try:
            _prepare(world, python, kit, hooks, log if counted else "")

            def note(_):
                stamps.append(time.perf_counter())

            turns = [bash("echo %d" % number, act=note) for number in range(CALLS + 1)]
            world.stub.script(*turns, Turn("done", act=note))
            with world.session() as session:
                session.prompt("work")
        finally:
            world.close()
        started = 0
        if os.path.exists(log):
            with open(log, encoding="utf-8") as source:
                started = len(source.readlines())
    return [(after - before) * 1000 for before, after in zip(stamps[1:], stamps[2:])], started / (CALLS + 1)


def _prepare(world, python: str, kit: str, hooks: dict, log: str) -> None:
    """The kit where its command looks for it, and a `python3` that is the real one or notes each start of it."""
    program = world.bin / "python3"
    program.unlink()
    if log:
        program.write_text(COUNTING % {"log": log, "python": python})
        program.chmod(0o755)
    else:
        program.symlink_to(python)
    entries = {event: [{"hooks": [{"type": "command", "command": command, "timeout": 10}]}]
               for event, command in hooks.items()}
    world.write(".claude/settings.json", json.dumps({"hooks": entries}))
    world.write(".context/TASKS.md", "# Tasks\n\n- finish the parser\n")
    world.path(".claude/hooks").mkdir()
    shutil.copy(kit, str(world.path(".claude/hooks/ctx_hooks.py")))
