"""The harness itself: what the other tests rely on, shown with a hook that only says one word."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from delivery import arrivals
from stub_model import SIDE_ANSWER, Turn, bash

EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "SessionEnd")


def register_word_hooks(world):
    """Each event logs itself; those that may speak to the model say `word-<event>`."""
    hooks = {}
    for event in EVENTS:
        reply = json.dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": "word-%s." % event}})
        say = "; printf '%%s' '%s'" % reply if event != "SessionEnd" else ""
        hooks[event] = [{"hooks": [{"type": "command", "command": 'cat >> "$HOME/seen.jsonl"%s' % say}]}]
    world.write(".claude/settings.json", json.dumps({"hooks": hooks}))


def seen(world):
    return [json.loads(line) for line in (world.home / "seen.jsonl").read_text().splitlines()]


def test_a_word_of_each_hook_reaches_the_model(world):
    register_word_hooks(world)
    world.stub.script(
        Turn("two at once", [("Bash", {"command": "echo hi"}), ("Bash", {"command": "false"})]), "done", "again"
    )
    session = world.run("first prompt", "second prompt")
    first, after_tools, second = world.stub.of("main")
    assert "first prompt" in first.news() and "word-SessionStart." in first.news()
    assert after_tools.news().count("word-PreToolUse.") == 2
    assert after_tools.count("word-PostToolUse.") == after_tools.count("word-PostToolUseFailure.") == 1
    assert "second prompt" in second.news() and "first prompt" not in second.news()
    assert arrivals(world.stub, "word-UserPromptSubmit.") == 2 and arrivals(world.stub, "word-SessionStart.") == 1
    names = [event["hook_event_name"] for event in seen(world)]
    assert names.count("PreToolUse") == 2 and names[-1] == "SessionEnd"
    assert {event["session_id"] for event in seen(world)} == {session.id} and not world.stub.ran_out


def test_a_text_that_no_hook_said_is_in_no_request(world):
    register_word_hooks(world)
    world.stub.script("done")
    world.run("a prompt")
    assert arrivals(world.stub, "word-PreToolUse.") == arrivals(world.stub, "word-SessionEnd.") == 0


def test_usage_numbers_of_the_script_stand_in_the_transcript(world):
    world.stub.script(Turn("done", tokens=123456))
    world.run("a prompt")
    usages = [row["message"]["usage"] for row in world.transcripts() if row.get("type") == "assistant"]
    assert [u["input_tokens"] + u["cache_creation_input_tokens"] + u["cache_read_input_tokens"] for u in usages] == [
        123456
    ]


def test_a_request_without_tools_is_answered_without_using_up_the_script(world):
    world.stub.script("the scripted turn")
    body = json.dumps({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a title, please"}]})
    request = urllib.request.Request(
        world.stub.url + "/v1/messages", body.encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert json.load(answer)["content"][0]["text"] == SIDE_ANSWER
    assert len(world.stub.turns) == 1 and world.stub.requests[0].kind == "side"


def test_the_client_sees_nothing_of_the_callers_environment(world, monkeypatch):
    monkeypatch.setenv("CTX_E2E_CANARY", "canary-from-outside")
    world.stub.script(Turn("", [("Bash", {"command": "env | sort"})]), "done")
    world.run("show the environment")
    shown = world.stub.of("main")[1].news()
    assert "HOME=%s" % world.home in shown and "canary-from-outside" not in shown


def test_the_clients_tools_see_no_network_but_loopback(world):
    if [name for name in interfaces(Path("/proc/self/net/dev").read_text()) if name != "lo"]:
        pytest.skip("this system allows no network namespace")
    world.stub.script(bash("cat /proc/self/net/dev"), "done")
    world.run("show the network")
    assert interfaces(world.stub.of("main")[1].news()) == ["lo"]


def interfaces(text):
    return re.findall(r"^\s*([\w.-]+):\s+\d+\s+\d+\s+\d+\s+\d+", text, re.M)


def test_the_terminal_shows_an_answer_and_says_goodbye_with_session_end(world):
    register_word_hooks(world)
    world.stub.script("an answer for the terminal")
    with world.terminal() as terminal:
        terminal.wait_shown("bypass permissions")
        terminal.type("a typed prompt")
        terminal.wait_shown("an answer for the terminal")
    assert "word-UserPromptSubmit." in world.stub.of("main")[0].news()
    assert [e["reason"] for e in seen(world) if e["hook_event_name"] == "SessionEnd"] == ["prompt_input_exit"]
