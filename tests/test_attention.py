"""Attention: what a working day costs the agent and the person, counted. It is the number that we want small."""
from __future__ import annotations

import json

from helper import NOW, assistant_row

TOOLS = (("Read", "PostToolUse.Read", "file_path"), ("Bash", "PostToolUse.Bash", "command"), ("Edit", "PostToolUse.Write", "file_path"))


def play_session(project, session, calls, fullest, start):
    """One session that fills its context evenly and writes its handoff at the second reminder; what was said."""
    said, person, own = [], [], {"CLAUDE_CODE_SESSION_ID": session}

    def step(mode, event, now):
        reply = project.step(mode, event, now, **own)
        said.extend([reply.context] if reply.context else [])
        person.extend([reply.reply["systemMessage"]] if reply.reply and "systemMessage" in reply.reply else [])
        if reply.context:
            receipts.append({"type": "attachment", "attachment": {"type": "hook_additional_context", "content": [reply.context]}})
        return reply.context

    receipts, rows = [], []
    step("inject", project.event("SessionStart.startup", session_id=session, model=None), start)
    step("inject", project.event("UserPromptSubmit", session_id=session, prompt="go on"), start + 1)
    asked = 0
    for number in range(calls):
        now, (tool, name, key) = start + 10 + 30 * number, TOOLS[number % 3]
        shared = {"session_id": session, "tool_name": tool, "tool_use_id": "%s-%d" % (session, number),
                  "tool_input": {key: "thing %d" % number}}
        rows = [assistant_row(2000 + fullest * number // calls, message={"id": "m%d" % number})]
        project.write_transcript(receipts + rows, session)
        step("gate", project.event("PreToolUse.Bash", **shared), now)
        text = step("monitor", project.event(name, **shared), now + 1)
        asked += "a handoff for the next session" in text
        if asked == 2:
            project.write(".context/handoffs/%s.md" % session, "# Goal\n\nFinish part %s.\n" % session)
    step("stop-enforce", project.event("Stop", session_id=session, last_assistant_message="done"), now + 5)
    step("cleanup", project.event("SessionEnd.other", session_id=session), now + 9)
    return said, person, now + 60


def test_a_working_day_of_400_calls_in_three_sessions_stays_quiet(project):
    project.write(".contextrc", "audit:\n  stale_days: 0\n")
    now, said, person, calls = NOW, [], [], 0
    for session, count, fullest in (("s1", 150, 150_000), ("s2", 150, 150_000), ("s3", 100, 90_000)):
        texts, lines, now = play_session(project, session, count, fullest, now)
        said, person, calls = said + texts, person + lines, calls + count
    figures = {"calls": calls, "messages": len(said), "characters": sum(map(len, said)), "lines for the person": len(person)}
    figures["characters per 100 calls"] = figures["characters"] * 100 // calls
    print(json.dumps(figures))
    # three gates, two deliveries, two crossings with two reminders and two alerts each; nothing else
    assert figures["messages"] <= 14 and figures["characters per 100 calls"] < 1500, figures
    assert len(person) <= 6, person  # asked, written, delivered: once for each handoff
