#!/usr/bin/env python3
"""Records the hook events of the client in use, as fixtures for the fast tests.

    python3 tests/e2e/record.py            write events that are new or changed their shape to tests/data/events/
    python3 tests/e2e/record.py --all      write every recorded event
    python3 tests/e2e/record.py --check    write nothing, say what changed, exit 1 if something did

Only the shape decides (keys and types): ids, times and texts differ in every run and are no news. Paths are scrubbed
to /home/user/project. Events that this script cannot provoke keep their files.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import real_client  # noqa: E402
from stub_model import SUBAGENT_MARKER, Turn, bash  # noqa: E402

EVENTS = HERE.parent / "data/events"
NAMES = (
    "SessionStart",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "PreCompact",
    "PostCompact",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "StopFailure",
    "SessionEnd",
)
KEEP = 'cat > "$(mktemp "$HOME/events/%s.XXXXXX")"'
HOLD_ONCE = """; if rm "$HOME/hold" 2>/dev/null; then
printf '%s' '{"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "Not yet: one more look."}}'; fi"""
SCRUBBED = "/home/user"
OPTIONAL = ("effort", "tool_input")  # comes with the model; what the scripted model asked for


# ---------------------------------------------------------------------------
# the sessions that provoke the events
# ---------------------------------------------------------------------------


def play(world):
    """Every event once, in a few short sessions."""
    world.write("a.txt", "one\ntwo\n")
    world.write(".claude/commands/foo.md", "Say foo.\n")
    _register(world)
    _tools_and_commands(world)
    _agents(world)
    _compaction_and_resume(world)
    _failure(world)
    _terminal(world)
    return {name_of(event): event for event in _recorded(world)}


def _register(world):
    (world.home / "events").mkdir()
    hooks = {name: [{"hooks": [{"type": "command", "command": KEEP % name}]}] for name in NAMES}
    hooks["Stop"][0]["hooks"][0]["command"] += HOLD_ONCE
    status = {"type": "command", "command": KEEP % "statusLine" + "; echo status"}
    world.write(".claude/settings.json", json.dumps({"hooks": hooks, "statusLine": status}))


def _tools_and_commands(world):
    (world.home / "hold").touch()
    a_file, new_file = str(world.path("a.txt")), str(world.path("b.txt"))
    world.stub.script(
        Turn("", [("Bash", {"command": "echo hi", "description": "say hi"})]),
        Turn("", [("Read", {"file_path": a_file}), ("Bash", {"command": "cat a.txt", "description": "show it"})]),
        Turn("", [("Write", {"file_path": new_file, "content": "new\n"})]),
        Turn("", [("Bash", {"command": "echo oops >&2; exit 3", "description": "fail"})]),
        "done",
        "looked again",
        "foo",
        "after clear",
    )
    world.run("hello there", "/foo bar baz", "/clear", "hello again")


def _agents(world):
    task = {"description": "sub work", "prompt": SUBAGENT_MARKER + " go", "subagent_type": "general-purpose"}
    sub = Turn("", [("Bash", {"command": "echo fromsub", "description": "sub bash"})])
    world.stub.script(
        Turn("", [("Agent", dict(task, run_in_background=False))]),
        "done",
        Turn("", [("Agent", dict(task, run_in_background=True))]),
        "waiting",
        "noted",
    )
    world.stub.subagent_turns = [sub, Turn("sub done"), bash("sleep 1; echo slow"), Turn("sub done")]
    with world.session() as session:
        session.prompt("ask an agent")
        session.prompt("ask another")
        session.wait_result("the notification")


def _compaction_and_resume(world):
    world.stub.script(
        "one", "two", bash("echo full", tokens=190_000), bash("echo on", tokens=20_000), "end", "resumed", "forked"
    )
    first = world.run("hello", "more", "/compact", "go on")
    world.run("again", arguments=("--resume", first.id))
    world.run("elsewhere", arguments=("--resume", first.id, "--fork-session"))


def _failure(world):
    world.stub.script(Turn("stub refuses", status=400))
    world.run("break")


def _terminal(world):
    world.stub.script("the answer")
    with world.terminal() as terminal:
        terminal.wait_shown("bypass permissions")
        terminal.type("hello terminal")
        terminal.wait_shown("the answer")
        real_client.wait_until(lambda: "statusLine" in map(name_of, _recorded(world)), "a status line after the answer")


# ---------------------------------------------------------------------------
# from files to fixtures
# ---------------------------------------------------------------------------


def _recorded(world):
    """The events in order of time, scrubbed; a later one of the same name wins."""
    files = sorted((world.home / "events").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    for path in files:
        text = path.read_text(encoding="utf-8")
        if text.strip().endswith("}"):  # a status line run that was cancelled leaves half a file
            yield json.loads(scrub(text, world))


def scrub(text, world):
    """Machine, user and scratch paths become those of an example; the result must hold none of the real ones."""
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(world.project))
    for real, example in (
        (str(world.project), SCRUBBED + "/project"),
        (slug, "-home-user-project"),
        (str(world.home), SCRUBBED),
        (str(world.temp), "/tmp"),
        (str(world.root), "/tmp"),
        (socket.gethostname(), "host"),
        ("claude-0", "claude-1000"),
        (world.stub.url[len("http://") :], "127.0.0.1:8080"),
    ):
        text = text.replace(real, example)
    return text


def name_of(event):
    """The fixture's name: the event and what makes this one special."""
    name = event.get("hook_event_name", "statusLine")
    rule = _SPECIAL.get(name)
    detail = rule(event) if rule else ""
    return "%s.%s" % (name, detail) if detail else name


def _prompt_kind(event):
    if event["prompt"].startswith("<task-notification>"):
        return "task-notification"
    return "slash-command" if event["prompt"].startswith("/") else ""


def _tool_kind(event):
    if event.get("agent_id"):
        return "in-subagent"
    if event["tool_name"] == "Agent" and event["hook_event_name"] == "PostToolUse":
        return "Agent.async" if event["tool_response"].get("status") == "async_launched" else "Agent.sync"
    return event["tool_name"]


def _stop_kind(event):
    return "background-tasks" if event.get("background_tasks") else "active" if event.get("stop_hook_active") else ""


def _status_kind(event):
    return "before-first-answer" if event["context_window"]["used_percentage"] is None else ""


_SPECIAL = {
    "SessionStart": lambda e: e["source"],
    "SessionEnd": lambda e: e["reason"],
    "UserPromptSubmit": _prompt_kind,
    "PreToolUse": _tool_kind,
    "PostToolUse": _tool_kind,
    "PreCompact": lambda e: e["trigger"],
    "PostCompact": lambda e: e["trigger"],
    "PostToolBatch": lambda e: "parallel" if len(e["tool_calls"]) > 1 else "",
    "Stop": _stop_kind,
    "SubagentStop": lambda e: "" if e.get("agent_type") else "compaction",
    "statusLine": _status_kind,
}


def shape(value):
    """Keys and types, nothing else; null goes with everything."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in sorted(value.items()) if key not in OPTIONAL}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def differences(old, new, place=""):
    """Where two shapes differ, as lines."""
    if isinstance(old, dict) and isinstance(new, dict):
        lines = ["%s%s is gone" % (place, key) for key in old if key not in new]
        lines += ["%s%s is new" % (place, key) for key in new if key not in old]
        for key in old:
            if key in new:
                lines += differences(old[key], new[key], "%s%s." % (place, key))
        return lines
    if old == new or "NoneType" in (old, new) or [] in (old, new):
        return []
    if isinstance(old, list) and isinstance(new, list):
        return differences(old[0], new[0], place)
    return ["%s was %s, is %s" % (place.rstrip("."), json.dumps(old), json.dumps(new))]


def compare(recorded, folder=EVENTS):
    """{name: lines} of the recorded events that have no fixture or another shape than it."""
    changed = {}
    for name, event in sorted(recorded.items()):
        path = folder / (name + ".json")
        if not path.is_file():
            changed[name] = ["there was no fixture"]
            continue
        lines = differences(shape(json.loads(path.read_text(encoding="utf-8"))), shape(event))
        if lines:
            changed[name] = lines
    return changed


def main(arguments):
    if set(arguments) - {"--all", "--check"}:
        print(__doc__.strip())
        return 2
    try:
        program = real_client.install()
    except real_client.Unavailable as reason:
        print(reason)
        return 1
    real_client.isolate()
    root = tempfile.mkdtemp(prefix="record-")
    world = real_client.World(root, program)
    try:
        recorded = play(world)
    finally:
        world.close()
        shutil.rmtree(root, ignore_errors=True)
    changed = compare(recorded)
    for name, lines in changed.items():
        print("%s: %s" % (name, "; ".join(lines)))
    print(
        "%d kinds of events recorded from Claude Code %s, %d changed"
        % (len(recorded), real_client.version(program), len(changed))
    )
    if "--check" in arguments:
        return 1 if changed else 0
    EVENTS.mkdir(parents=True, exist_ok=True)
    for name in recorded if "--all" in arguments else changed:
        text = json.dumps(recorded[name], indent=2, ensure_ascii=False) + "\n"
        (EVENTS / (name + ".json")).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
