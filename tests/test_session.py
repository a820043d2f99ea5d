"""Whole sessions in random order: whatever comes after whatever, the promises of every reply hold."""
from __future__ import annotations

import os
import random

from helper import NOW, assistant_row

EVENTS = (  # mode, recorded event
    ("inject", "SessionStart.startup"), ("inject", "SessionStart.compact"), ("inject", "SessionStart.clear"),
    ("inject", "SessionStart.resume"), ("inject", "SessionStart.fork"), ("inject", "UserPromptSubmit"),
    ("inject", "UserPromptSubmit.task-notification"), ("gate", "PreToolUse.Bash"), ("gate", "PreToolUse.Read"),
    ("monitor", "PostToolUse.Bash"), ("monitor", "PostToolUse.Read"), ("monitor", "PostToolUseFailure"),
    ("monitor", "PreCompact.auto"),
    ("stop-enforce", "Stop"), ("stop-enforce", "Stop.background-tasks"), ("cleanup", "SessionEnd.other"),
)
WORDS = ("hm", "BEGIN HANDOFF\nGoal: the parser.\nEND HANDOFF", "ctx cancel", "", "ACK: context received", "x" * 5000, "---\n", "AUTO_COMPLETE", 7,
         "---\nSIGNAL: PLANNING_COMPLETE\nPHASE: planning\nSTATUS: complete\nTIMESTAMP: 2026-02-03T10:45:00Z\nNEXT: qa\n---")
SETTINGS = ("", "gate:\n  mode: content\n", "startup:\n  budget_chars: 9000\n  retry_backoffs_s: [0]\n",
            "monitor:\n  notify: desktop\n  inject_min_severity: info\n", "handoff:\n  threshold: 1\n", "nonsense")
FILES = (".context/state/s1.json", ".context/monitor-state.json", ".context/metrics.json", ".caw/auto-state.json",
         ".context/state/handoffs.json", ".context/signals/sessions/s1/x.md", ".context/signals/global/y.md")


def disturb(project, choice, now):
    """What people, other programs and crashes do between two events."""
    path = choice.choice(FILES)
    what = choice.random()
    if what < 0.3:
        project.write(".context/signals/%s.md" % choice.choice(["sessions/s1/a", "global/b", "sessions/s2/c"]),
                      "---\nseverity: %s\n---\n%s\n" % (choice.choice(["critical", "info"]), "word 😀 " * choice.choice([1, 3000])),
                      mtime=now - choice.choice([0, 10, 400, -500]))
    elif what < 0.4 and project.exists(path):
        with open(project.path(path), "rb") as source:
            data = source.read()
        project.write(path, data[:choice.randrange(len(data) + 1)])
    elif what < 0.5:
        project.write(path, choice.choice(["", "{}", "[]", "null", '{"startup": {"outcome": "pending"}}', "---\nx", b"\xff"]))
    elif what < 0.6:
        project.write(choice.choice([".claude/ll-continue-prompt.md", ".context/handoffs/s1.md", ".context/handoffs/s9.md"]), "# Goal\n" + "word " * choice.choice([1, 5000]), mtime=now)
    elif what < 0.7:
        project.write(".caw/auto-state.json", '{"active": true, "phase": "planning", "task_description": "t", "session_id": "%s"}'
                      % choice.choice(["s1", "s2", ""]))
    elif what < 0.8:
        project.write(".contextrc", choice.choice(SETTINGS))
    elif what < 0.9 and project.exists("CLAUDE.md"):
        with open(project.path("CLAUDE.md"), "a") as out:
            out.write("mine\n")


def check(reply, event):
    if reply is None:
        return
    assert set(reply) <= {"systemMessage", "terminalSequence", "hookSpecificOutput", "decision", "reason"}
    specific = reply.get("hookSpecificOutput", {})
    assert set(specific) <= {"hookEventName", "additionalContext"}, "never a permission decision"
    assert not specific or (specific["hookEventName"] == event["hook_event_name"] and specific["additionalContext"])
    assert "decision" not in reply or event["hook_event_name"] == "Stop"
    text = specific.get("additionalContext", "") + reply.get("reason", "")
    assert len(text.encode("utf-16-le")) // 2 < 10000


def test_no_order_of_events_breaks_a_promise(project, rounds):
    project.write("CLAUDE.md", "mine\n")
    kept = {name: project.read(name) for name in (".context/CONSTITUTION.md", ".context/TASKS.md")}
    choice = random.Random(7)
    now = NOW
    for _ in range(rounds(800)):
        now += choice.choice([0, 0.01, 1, 40, 1000, 9000, 200000, -30])
        mode, name = choice.choice(EVENTS)
        event = project.event(name, session_id=choice.choice(["s1", "s1", "s1", "s2"]))
        event.update({key: choice.choice(WORDS) for key in ("last_assistant_message", "prompt") if key in event})
        event["tool_use_id"] = ""  # else every call near the limit waits for a transcript that lags
        if choice.random() < 0.3:
            project.write_transcript([assistant_row(choice.choice([10, 150_000, 199_000, 900_000]), message={
                "content": [{"type": "text", "text": str(choice.choice(WORDS))}]})], event["session_id"])
        check(project.step(mode, event, now, AI_AGENT=choice.choice(["claude-code_2-1-325_x", None])).reply, event)
        disturb(project, choice, now)
    for session in ("s1", "s2"):
        project.step("cleanup", project.event("SessionEnd.other", session_id=session), now)
    assert {name: project.read(name) for name in kept} == kept
    assert project.read("CLAUDE.md").startswith("mine\n")
    assert os.listdir(project.tmp) == [] and not project.exists(".context/state/errors.log")
