"""Clients: whole hook runs with the recorded events of other agents, and what can go wrong between them and us."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from helper import IS_WINDOWS, REPO, TESTS, hook_argv, windows_environment

AGENTS = os.path.join(TESTS, "data", "agents")
OTHERS = ("codex", "gemini", "qwen", "copilot", "droid")
KIT = os.path.join(REPO, "ctx_hooks.py")
NAMES = {"gemini": {"UserPromptSubmit": "BeforeAgent", "PreToolUse": "BeforeTool", "PostToolUse": "AfterTool", "Stop": "AfterAgent"}}
MODES = {"SessionStart": "inject", "UserPromptSubmit": "inject", "PreToolUse": "gate", "PostToolUse": "monitor",
         "Stop": "stop-enforce", "SessionEnd": "cleanup"}
VARIABLES = {"gemini": "GEMINI_PROJECT_DIR", "qwen": "QWEN_PROJECT_DIR", "copilot": "COPILOT_PROJECT_DIR",
             "droid": "DROID_PROJECT_DIR", "claude": "CLAUDE_PROJECT_DIR"}
GATE, HOLD, SIGNAL = "STOP. Read your context files", "## Auto Mode Continuation", "The build is red."


class Place:
    """A project in which one client runs."""

    def __init__(self, root, client):
        self.client, self.root = client, str(root)
        self.project, self.home, self.temp = (os.path.join(self.root, name) for name in ("project", "home", "temp"))
        for folder in (self.project, self.home, self.temp):
            os.makedirs(folder)
        self.write(".context/TASKS.md", "# Tasks\n\n- finish the parser\n")
        self.env = {"HOME": self.home, "TMPDIR": self.temp, "PATH": os.environ["PATH"]}
        if IS_WINDOWS:
            self.env.update(windows_environment(self.home, self.temp))
        if client in VARIABLES:
            self.env[VARIABLES[client]] = self.project

    def write(self, name, text):
        path = os.path.join(self.project, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as target:
            target.write(text)

    def event(self, name, **fields):
        """A recorded event by our name of it, in this project."""
        file = name if "." in name else NAMES.get(self.client, {}).get(name, name)
        with open(os.path.join(AGENTS, self.client, file + ".json"), encoding="utf-8") as source:
            data = json.load(source)
        for key in ("session_id", "sessionId"):
            if key in data:
                data[key] = "one-session"
        if "transcript_path" in data:
            data["transcript_path"] = os.path.join(self.home, "none.jsonl")
        return dict(data, cwd=self.project, **fields)

    def start(self, mode, data, agent=None):
        agent = agent or self.client
        process = subprocess.Popen(hook_argv(mode if agent == "claude" else mode + " " + agent), cwd=self.project, env=self.env,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(json.dumps(data).encode())
        process.stdin.close()
        return process

    def end(self, process):
        """What a run said to the agent."""
        reply = self.reply(process)
        special = reply.get("hookSpecificOutput") or {}
        return special.get("additionalContext") or reply.get("reason") or ""

    def reply(self, process):
        """The reply's JSON, {} for silence; that the run kept the contract is checked."""
        out, err = process.stdout.read(), process.stderr.read()
        process.stdout.close()
        process.stderr.close()
        assert process.wait(30) == 0 and err == b""
        return json.loads(out.decode("ascii")) if out else {}

    def run(self, name, **fields):
        return self.end(self.start(MODES[name.partition(".")[0]], self.event(name, **fields)))

    def command(self, *words):
        done = subprocess.run([sys.executable, "-I", KIT, *words], cwd=self.project, env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        assert done.returncode == 0, done.stdout

    def files(self, *where):
        folder = os.path.join(self.project, *where)
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def hand_over(self):
        """The handoff of a session before: written after the kit saw the project for the first time."""
        self.end(self.start("inject", self.event("SessionStart", session_id="earlier", sessionId="earlier")))
        self.end(self.start("cleanup", self.event("SessionEnd", session_id="earlier", sessionId="earlier")))
        time.sleep(0.02)  # the file must be newer than that, to the millisecond
        self.write(".context/handoffs/earlier.md", "# Handoff\n\n## Goal\nfinish the parser for quotes\n\n## Next\n- run the tests\n")


@pytest.fixture(params=OTHERS)
def place(request, tmp_path):
    return Place(tmp_path / "place", request.param)


@pytest.fixture
def place_of(tmp_path):
    return lambda client: Place(tmp_path / client, client)


def test_every_recorded_event_of_a_client_keeps_the_contract_under_every_registration(kit, place):
    """Whatever runs somebody else's settings: one JSON object or nothing, and no exception."""
    for file in sorted(os.listdir(os.path.join(AGENTS, place.client))):
        if not file.endswith(".json") or file.startswith("transcript"):
            continue
        with open(os.path.join(AGENTS, place.client, file), encoding="utf-8") as source:
            data = dict(json.load(source), cwd=place.project)
        for agent in ("claude",) + OTHERS:
            for mode in sorted(set(MODES.values())):
                text, _ = kit.run_mode(mode, agent, dict(data), dict(place.env), time.time())
                assert text == "" or isinstance(json.loads(text), dict)


def test_the_gate_speaks_once_where_the_client_can_hear_it(place):
    before = place.run("PreToolUse")
    after = place.run("PostToolUse")
    assert [GATE in before, GATE in after] == [place.client in ("codex", "copilot"), place.client not in ("codex", "copilot")]
    assert GATE not in place.run("PreToolUse") + place.run("PostToolUse")


def test_nothing_is_booked_at_an_event_that_nobody_hears(place):
    if place.client in ("codex", "copilot"):
        pytest.skip("it hears every event before a tool")
    place.command("signal", SIGNAL, "--global", "--ttl", "3600")
    assert place.run("PreToolUse") == ""
    assert not [name for name in os.listdir(place.temp) if name.startswith("ctx-loaded-")]
    assert place.files(".context", "signals", "global") != []
    said = place.run("PostToolUse")
    assert GATE in said and SIGNAL in said and len(said) < 10_000


def test_copilot_is_answered_in_its_own_shape_under_claudes_registration(place_of):
    place = place_of("copilot")
    place.env["CLAUDE_PROJECT_DIR"] = place.project
    assert GATE in place.reply(place.start("gate", place.event("PreToolUse"), "claude"))["additionalContext"]


def test_on_resume_geminis_transcript_shows_that_the_gate_has_spoken(place_of):
    """Its tag stands on the same line as the text, in front of it."""
    place = place_of("gemini")
    place.write(".contextrc", "gate:\n  mode: content\n")
    said, path = place.run("PostToolUse"), os.path.join(place.home, "t.jsonl")
    output = {"output": "first\n\n<hook_context>%s</hook_context>" % said}
    with open(path, "w", encoding="utf-8") as target:
        target.write(json.dumps({"type": "user", "content": [{"functionResponse": {"id": "c1", "response": output}}]}) + "\n")
    place.run("SessionEnd")
    place.run("SessionStart", source="resume", transcript_path=path)
    assert "finish the parser" in said and place.run("PostToolUse") == ""


def test_variables_of_an_outer_agent_change_nothing(place):
    place.command("auto", "start", "Build it", "--any")
    place.env.update(AI_AGENT="claude-code_2-1-325_agent", CLAUDECODE="1", CLAUDE_CODE_SESSION_ID="outer",
                     CLAUDE_CODE_SESSION_ATTENDED="0", CLAUDE_PROJECT_DIR=place.root)
    place.run("UserPromptSubmit")
    out = place.reply(place.start("stop-enforce", place.event("Stop")))
    assert out["decision"] == "block" and HOLD in out["reason"] and "hookSpecificOutput" not in out


def test_a_start_and_a_prompt_at_the_same_time_deliver_everything_once(place):
    place.hand_over()
    place.command("signal", SIGNAL, "--global", "--ttl", "3600")
    start = place.start("inject", place.event("SessionStart"))
    prompt = place.start("inject", place.event("UserPromptSubmit"))
    said = place.end(start) + "\n" + place.end(prompt)
    assert said.count("finish the parser for quotes") == 1 and said.count(SIGNAL) == 1


def test_a_second_start_of_the_same_session_delivers_nothing_again(place):
    place.hand_over()
    assert "finish the parser for quotes" in place.run("SessionStart")
    assert place.run("SessionStart") == "" and "quotes" not in place.run("SessionStart", source="resume")


def test_a_session_may_end_twice(place):
    place.run("SessionStart")
    place.run("PostToolUse")
    for _ in range(2):
        assert place.run("SessionEnd") == ""
        assert [name for name in place.files(".context", "state") if name.startswith("one-session")] == []
        assert [name for name in os.listdir(place.temp) if name.startswith("ctx-") and "one-session" in name] == []


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "late"])
def test_a_transcript_that_is_missing_a_folder_or_late_costs_nothing_but_the_exact_number(place, kind):
    path = os.path.join(place.home, ".copilot/session-state/one-session/events.jsonl" if place.client == "copilot" else "t.jsonl")
    os.makedirs(path if kind == "folder" else os.path.dirname(path), exist_ok=True)
    if kind in ("empty", "late"):
        with open(path, "wb") as target:
            target.write(b"" if kind == "empty" else b'{"type":"mess')
    for name in ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"):
        place.run(name, transcript_path=path)


def test_the_exact_share_is_named_from_the_clients_own_transcript(place):
    place.write(".contextrc", "handoff:\n  threshold: 1\nmonitor:\n  context_window: 2000\n")
    path = os.path.join(place.home, "transcript.jsonl")
    for name in os.listdir(os.path.join(AGENTS, place.client)):
        if name.startswith("transcript."):
            shutil.copy(os.path.join(AGENTS, place.client, name), os.path.join(place.home, name))
    place.run("SessionStart", transcript_path=path)
    assert "Context is 51% full (1,030/2,000 tokens)" in place.run("PostToolUse", transcript_path=path)


def test_however_often_a_client_asks_the_holds_end(place):
    """Three clients have no limit of their own, and three send the hold's text as the next prompt."""
    place.command("auto", "start", "Build it", "--any")
    place.run("UserPromptSubmit")
    held = 0
    for number in range(242):
        said = place.run("Stop", stop_hook_active=number > 0, last_assistant_message="thought %d" % number,
                         message_id="answer-%d" % number, timestamp="2026-11-16T04:%02d:%02dZ" % divmod(number, 60))
        if not said:
            break
        held += 1
        if place.client in ("gemini", "copilot", "qwen"):
            again = "UserPromptSubmit.again" if place.client == "qwen" else "UserPromptSubmit"
            place.run(again, prompt=said, timestamp="2026-11-16T05:%02d:%02dZ" % divmod(number, 60))
    assert 1 <= held <= 8
