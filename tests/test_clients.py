"""Clients: what events, transcripts and replies mean, by recorded ones."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import helper

TESTS = Path(__file__).resolve().parent
DATA = TESTS / "data" / "agents"
OTHERS = ("codex", "gemini", "qwen", "copilot", "droid", "grok")
EVERYBODY = ("claude",) + OTHERS
ENV = {"HOME": "/home/user"}
OUTER = {  # what an agent finds that was started from inside Claude Code
    "AI_AGENT": "claude-code_2-1-326_agent",
    "CLAUDECODE": "1",
    "CLAUDE_PROJECT_DIR": "/the/outer/project",
}


@pytest.fixture(scope="module")
def kit():
    return helper.kit


def recorded(client, name):
    return json.loads((DATA / client / (name + ".json")).read_text(encoding="utf-8"))


def recorded_names(client):
    files = (DATA / client).glob("*.json")
    return sorted(
        path.name[: -len(".json")]
        for path in files
        if path.name not in ("transcript.settings.json", "signals.json")
    )


@pytest.fixture
def facts_of(kit, tmp_path):
    """facts_of(client, "compaction") -> the session after a look at recorded rows."""

    def look(client, *more, head=""):
        folder = tmp_path / client
        folder.mkdir(exist_ok=True)
        path = folder / "transcript.jsonl"
        for name in more if more[:1] == ("codemode",) else ("transcript",) + more:
            with open(str(path), "ab") as target:
                target.write((DATA / client / (name + ".jsonl")).read_bytes())
        for beside in ("transcript.settings.json", "signals.json"):
            if (DATA / client / beside).is_file():
                shutil.copy(str(DATA / client / beside), str(folder / beside))
        session = kit.Session({"agent": client, "transcript": str(path)})
        session.delivery.head = head
        kit.look(session)
        return session

    return look


# --- events: client, recorded event, mode -> what we make of it

RUN = {"name": "PostToolUse", "is_subagent": False}
RECORDED = [
    ("codex", "SessionStart", "inject", {"source": "startup", "model": "gpt-5.5"}),
    (
        "codex",
        "UserPromptSubmit",
        "inject",
        {"prompt": "hello there", "is_typed": True},
    ),
    ("codex", "UserPromptSubmit.subagent", "inject", {"is_subagent": True}),
    ("codex", "PreToolUse", "gate", {"name": "PreToolUse"}),
    ("codex", "PostToolUse", "monitor", RUN),
    ("codex", "PostToolUse.patch", "monitor", RUN),
    ("codex", "PreCompact", "monitor", {"name": "PreCompact"}),
    ("codex", "Stop", "stop-enforce", {"last_assistant_message": "t4 final"}),
    ("codex", "SessionEnd", "cleanup", {"reason": "other"}),
    ("gemini", "SessionStart", "inject", {"source": "startup"}),
    ("gemini", "BeforeAgent", "inject", {"prompt": "hello there", "is_typed": True}),
    ("gemini", "BeforeTool", "gate", {"name": "PreToolUse"}),
    ("gemini", "AfterTool", "monitor", dict(RUN, hook_event_name="AfterTool")),
    ("gemini", "PreCompress", "monitor", None),
    ("gemini", "PreCompress.manual", "monitor", None),
    ("gemini", "AfterAgent", "stop-enforce", {"last_assistant_message": "t4 final"}),
    ("gemini", "SessionEnd", "cleanup", {"reason": "exit"}),
    ("qwen", "SessionStart", "inject", {"source": "startup"}),
    ("qwen", "UserPromptSubmit", "inject", {"prompt": "hello there", "is_typed": True}),
    ("qwen", "UserPromptSubmit.again", "inject", None),
    ("qwen", "PreToolUse", "gate", {"name": "PreToolUse"}),
    ("qwen", "PostToolUse", "monitor", RUN),
    ("qwen", "PostToolUse.subagent", "monitor", {"is_subagent": True}),
    ("qwen", "PostToolUseFailure", "monitor", {"name": "PostToolUseFailure"}),
    ("qwen", "PreCompact", "monitor", {"name": "PreCompact"}),
    ("qwen", "Stop", "stop-enforce", {"last_assistant_message": "t4 final"}),
    ("qwen", "SessionEnd", "cleanup", {"reason": "clear"}),
    ("copilot", "SessionStart", "inject", {"source": "startup"}),
    ("copilot", "UserPromptSubmit", "inject", {"prompt": "hello there"}),
    ("copilot", "PreToolUse", "gate", {"name": "PreToolUse"}),
    ("copilot", "PostToolUse", "monitor", RUN),
    ("copilot", "PostToolUse.subagent", "monitor", {"is_subagent": True}),
    ("copilot", "PostToolUseFailure", "monitor", {"name": "PostToolUseFailure"}),
    ("copilot", "PreCompact", "monitor", {"name": "PreCompact"}),
    ("copilot", "Stop", "stop-enforce", {"last_assistant_message": ""}),
    ("copilot", "SessionEnd", "cleanup", {"reason": "complete"}),
    ("droid", "SessionStart", "inject", {"source": "startup"}),
    ("droid", "UserPromptSubmit", "inject", {"prompt": "hello two"}),
    ("droid", "PreToolUse", "gate", {"name": "PreToolUse"}),
    ("droid", "PostToolUse", "monitor", RUN),
    ("droid", "PreCompact", "monitor", {"name": "PreCompact"}),
    ("droid", "Stop", "stop-enforce", {"last_assistant_message": ""}),
    ("droid", "SessionEnd", "cleanup", {"reason": "other"}),
    ("grok", "SessionStart", "inject", {"source": "startup"}),
    ("grok", "UserPromptSubmit", "inject", {"prompt": "hello there", "is_typed": True}),
    ("grok", "PreToolUse", "gate", {"name": "PreToolUse"}),
    ("grok", "PostToolUse", "monitor", RUN),
    ("grok", "PreCompact", "monitor", {"name": "PreCompact"}),
    ("grok", "Stop", "stop-enforce", {"last_assistant_message": "final"}),
    ("grok", "Stop.shutdown", "stop-enforce", None),
    ("grok", "SessionEnd", "cleanup", {"reason": "shutdown"}),
]


@pytest.mark.parametrize("client, name, mode, wanted", RECORDED)
def test_a_recorded_event_means_the_same_in_every_client(
    kit, client, name, mode, wanted
):
    event = kit.parse_event(recorded(client, name), mode, client, ENV)
    if wanted is None:
        assert event is None
        return
    assert {key: getattr(event, key) for key in wanted} == wanted
    assert event.agent == client and event.is_known
    assert event.session_id and event.cwd == "/home/user/project"


def test_every_recorded_event_is_in_the_table():
    names = {(client, name) for client, name, _, _ in RECORDED}
    found = {(client, name) for client in OTHERS for name in recorded_names(client)}
    assert found == names


def test_the_start_text_before_geminis_first_prompt_is_not_the_persons(kit):
    words = "<hook_context>ctx cancel</hook_context>\n\nhello there"
    data = dict(recorded("gemini", "BeforeAgent"), prompt=words)
    assert kit.parse_event(data, "inject", "gemini", ENV).prompt == "hello there"


def test_of_geminis_whole_turn_only_the_last_line_counts(kit):
    """What earlier holds brought is in it; an old completion block must not count."""
    turn = "---\nSIGNAL: EXECUTION_COMPLETE\n---\nI stop here."
    data = dict(recorded("gemini", "AfterAgent"), prompt_response=turn)
    event = kit.parse_event(data, "stop-enforce", "gemini", ENV)
    assert event.last_assistant_message == "I stop here."


def test_of_groks_two_spellings_each_counts_where_it_is_alone(kit):
    data = dict(recorded("grok", "Stop"), sessionId="another")
    event = kit.parse_event(data, "stop-enforce", "grok", ENV)
    assert event.session_id == data["session_id"]
    assert event.last_assistant_message == "final"


def test_a_child_session_of_groks_is_a_subagent(kit):
    data = dict(recorded("grok", "SessionEnd"), subagentType="explore")
    assert kit.parse_event(data, "cleanup", "grok", ENV).is_subagent


@pytest.mark.posix("paths of POSIX")
def test_copilots_transcript_is_found_where_the_event_does_not_name_it(kit):
    data = recorded("copilot", "PostToolUse")
    place = "/session-state/%s/events.jsonl" % data["session_id"]
    event = kit.parse_event(data, "monitor", "copilot", ENV)
    assert event.transcript_path == "/home/user/.copilot" + place
    env = dict(ENV, COPILOT_HOME="/elsewhere")
    event = kit.parse_event(data, "monitor", "copilot", env)
    assert event.transcript_path == "/elsewhere" + place
    named = kit.parse_event(recorded("copilot", "Stop"), "stop-enforce", "copilot", ENV)
    assert named.transcript_path == recorded("copilot", "Stop")["transcript_path"]


def test_a_session_id_that_is_a_path_names_no_transcript_of_copilots(kit):
    data = dict(recorded("copilot", "PostToolUse"), session_id="../../other")
    assert kit.parse_event(data, "monitor", "copilot", ENV).transcript_path == ""


# --- whose event it is


@pytest.mark.parametrize("client", ["copilot", "grok"])
def test_a_client_that_runs_claudes_line_is_known_by_its_events(kit, client):
    for name in recorded_names(client):
        assert kit.detect_agent("", recorded(client, name)) == client, name


@pytest.mark.parametrize("client", OTHERS)
def test_the_registered_word_counts_whatever_the_event_looks_like(kit, client):
    for other in OTHERS:
        assert kit.detect_agent(client, recorded(other, "SessionEnd")) == client
    assert kit.detect_agent("no-such-agent", {}) == "claude"


@pytest.mark.parametrize(
    "client, other, name",
    [
        ("claude", "gemini", "AfterTool"),
        ("codex", "gemini", "AfterTool"),
        ("gemini", "codex", "PostToolUse"),
        ("gemini", "qwen", "PostToolUse"),
        ("droid", "gemini", "AfterTool"),
    ],
)
def test_an_event_that_the_registered_client_does_not_have_is_no_event(
    kit, client, other, name
):
    assert kit.parse_event(recorded(other, name), "monitor", client, ENV) is None


@pytest.mark.parametrize("client", OTHERS)
def test_an_event_under_another_clients_registration_never_fails(kit, client):
    for other in EVERYBODY:
        for name in recorded_names(client):
            for mode in kit.HANDLERS:
                kit.parse_event(recorded(client, name), mode, other, OUTER)


def test_an_unknown_client_under_claudes_line_is_not_known(kit):
    data = {"hook_event_name": "PostToolUse", "session_id": "s", "cwd": "/x"}
    assert not kit.parse_event(data, "monitor", "", {}).is_known
    assert kit.parse_event(data, "monitor", "", {"CLAUDECODE": "1"}).is_known


@pytest.mark.parametrize("client", OTHERS)
def test_the_outer_agents_variables_name_no_folder(kit, client):
    name = "AfterTool" if client == "gemini" else "PostToolUse"
    event = kit.parse_event(recorded(client, name), "monitor", client, OUTER)
    assert kit.start_folder(event, OUTER) == "/home/user/project"


def test_wrong_types_in_an_event_count_as_missing(kit):
    chance = random.Random(31)
    wrongs = (None, 7, 1.5, [], {}, True, "x" * 10, [7], {"text": 7})
    kept = ("hook_event_name",)
    for client in OTHERS:
        for name in recorded_names(client):
            for mode in kit.HANDLERS:
                data = recorded(client, name)
                for key in [key for key in data if key not in kept]:
                    if chance.random() < 0.7:
                        data[key] = chance.choice(wrongs)
                event = kit.parse_event(data, mode, client, ENV)
                if event:
                    texts = (event.prompt, event.session_id, event.transcript_path)
                    assert all(isinstance(text, str) for text in texts)


# --- replies

AFTER_TOOL = dict.fromkeys(OTHERS, "PostToolUse")
AFTER_TOOL["gemini"] = "AfterTool"
STOPS = dict.fromkeys(OTHERS, "Stop")
STOPS["gemini"] = "AfterAgent"


@pytest.mark.parametrize("client", OTHERS)
def test_context_is_said_in_the_clients_own_shape(kit, client):
    name = AFTER_TOOL[client]
    event = kit.parse_event(recorded(client, name), "monitor", client, ENV)
    reply = kit.Reply(event)
    assert kit.render_reply(event, reply, ENV) == ""
    reply.add("a text")
    reply.tell("a line")
    reply.bell = "\a"
    wanted = {
        "systemMessage": "a line",
        "hookSpecificOutput": {"hookEventName": name, "additionalContext": "a text"},
    }
    if client == "copilot":
        wanted = {"additionalContext": "a text"}
    assert json.loads(kit.render_reply(event, reply, ENV)) == wanted


@pytest.mark.parametrize("client", OTHERS)
def test_a_stop_is_held_by_a_block_whatever_the_outer_agent_is(kit, client):
    """An AI_AGENT inherited from Claude Code made Codex throw the hold away."""
    data = recorded(client, STOPS[client])
    event = kit.parse_event(data, "stop-enforce", client, ENV)
    env = dict(OUTER, CLAUDE_CODE_SESSION_ID=event.session_id)
    reply = kit.Reply(event)
    reply.add("go on")
    reply.is_hold = True
    wanted = {"decision": "block", "reason": "go on"}
    assert json.loads(kit.render_reply(event, reply, env)) == wanted


SPEAKS_BEFORE_A_TOOL = ("claude", "codex", "copilot", "grok")


@pytest.mark.parametrize("client", EVERYBODY)
def test_nothing_speaks_at_an_event_whose_text_does_not_arrive(kit, client):
    def speaks(name):
        return kit.can_speak(kit.Event({"agent": client, "name": name}))

    assert speaks("PreToolUse") is (client in SPEAKS_BEFORE_A_TOOL)
    assert speaks("SessionStart") is speaks("UserPromptSubmit") is (client != "grok")
    assert speaks("PostToolUse") and speaks("Stop")
    assert not speaks("SessionEnd") and not speaks("PreCompact")


def test_codex_counts_bytes_and_the_others_utf_16_units(kit):
    lengths = {}
    for client in EVERYBODY:
        lengths[client] = kit.Reply(kit.Event({"agent": client})).length("€😀")
    assert lengths.pop("codex") == 7
    assert set(lengths.values()) == {3}


# --- transcripts

NUMBERS = {  # tokens and window at the end, and tokens after a compaction
    "codex": (1030, 258_400, 6795),
    "gemini": (1030, 0, 0),
    "qwen": (1030, 1_000_000, 9000),
    "copilot": (1030, 922_000, 11265),
    "droid": (1030, 0, 6),
    "grok": (133_031, 200_000, 9000),
}


@pytest.mark.parametrize("client", OTHERS)
def test_the_fullness_is_read_from_the_clients_own_numbers(facts_of, client):
    facts = facts_of(client).facts
    assert (facts.tokens, facts.window) == NUMBERS[client][:2]
    assert facts.answered_at.startswith("2026-11-1")


@pytest.mark.parametrize("client", OTHERS)
def test_numbers_from_before_a_compaction_do_not_count(facts_of, client):
    facts = facts_of(client, "compaction").facts
    assert (facts.tokens, facts.compactions) == (NUMBERS[client][2], 1)


@pytest.mark.parametrize("client", OTHERS)
def test_each_answer_is_measured_once(facts_of, client):
    measured = facts_of(client).facts.measured
    wanted = 1 if client == "droid" else 3 if client == "grok" else 4
    assert len(measured) == wanted
    assert [row[1] for row in measured] == sorted(row[1] for row in measured)


FAILED = {"qwen": "", "copilot": "", "droid": ""}  # a read failed, not a command


@pytest.mark.parametrize("client", OTHERS)
def test_calls_and_their_outcomes_are_seen(facts_of, client):
    facts = facts_of(client).facts
    assert facts.tool_calls == 2
    assert [call["outcome"] for call in facts.calls] == ["ok", "failed"]
    assert facts.commands[0][1] == "echo first"
    wanted = FAILED.get(client, "cat /no/such; exit 3")
    assert facts.failed.get("command", "") == wanted
    error = "cat: /no/such: No such file or directory"
    assert error in facts.failed.get("error", error)
    if client == "codex":  # the head that it puts before an output is gone
        assert facts.failed["error"] == error


@pytest.mark.parametrize("client", OTHERS)
def test_the_persons_words_are_the_only_request(facts_of, client, kit):
    requests = [words for _, words in facts_of(client).facts.requests]
    held = "word-Stop. second line"  # ours would begin with ## Auto Mode
    assert [words for words in requests if words != held] == ["please look around"]


@pytest.mark.parametrize("client", OTHERS)
def test_the_agents_last_words_are_seen_once(facts_of, client):
    said = facts_of(client).facts.said
    assert said.endswith("answer four")
    assert said.count("answer four") == 1
    assert "word-" not in said


RECEIPTS = {
    "codex": "SessionStart UserPromptSubmit PostToolUse",
    "gemini": "SessionStart UserPromptSubmit PostToolUse",
    "qwen": "UserPromptSubmit PostToolUse PostToolUseFailure",
    "copilot": "SessionStart UserPromptSubmit PostToolUse PostToolUseFailure",
    "droid": "SessionStart PostToolUse",
    "grok": "",
}


@pytest.mark.parametrize("client", OTHERS)
def test_the_transcript_is_a_receipt_where_the_table_says_so(kit, facts_of, client):
    for event in RECEIPTS[client].split():
        head = "word-%s. second line" % event
        assert facts_of(client, head=head).facts.received == head
    has_receipts = "SessionStart" in RECEIPTS[client]
    assert kit.DIALECTS[client].has_receipts is has_receipts


def test_a_script_of_codexs_code_mode_counts_as_the_commands_it_ran(facts_of):
    facts = facts_of("codex", "codemode").facts
    assert [command for _, command in facts.commands] == [
        "echo shell-ran | tee ran.txt",
        "cat /no/such/file; exit 3",
        "cat a.txt",
    ]
    assert [call["outcome"] for call in facts.calls] == ["ok", "failed", "ok", "ok"]
    assert facts.breakdown == {"exec_command": 3, "apply_patch": 1}
    edited = [os.path.basename(path) for path, _ in facts.edited]
    assert edited == ["x.txt", "y.txt"] and facts.work >= 2
    assert facts.failed["command"] == "cat /no/such/file; exit 3"


def test_parallel_calls_of_codex_belong_to_one_answer_without_words(kit):
    """An answer that only calls has no message; the usage row tells where it ends."""
    rows = [
        {"type": "response_item", "payload": {"type": "function_call", "name": "a", "call_id": "1"}},
        {"type": "response_item", "payload": {"type": "function_call", "name": "b", "call_id": "2"}},
        {"type": "token_usage_record", "payload": {"response_id": "resp_1"}},
    ]
    session = kit.Session({"agent": "codex"})
    for row in rows:
        kit.fold_row(session, kit.DIALECTS["codex"].read_row(row))
    assert session.facts.answer == "resp_1" and session.facts.tool_calls == 2


def test_a_patch_that_codex_was_given_as_a_text_names_its_file(kit):
    patch = "*** Begin Patch\n*** Update File: src/a.py\n"
    payload = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": patch}
    row = kit.DIALECTS["codex"].read_row({"type": "response_item", "payload": payload})
    ((call_id, tool, given),) = row.calls
    assert (call_id, tool) == ("c1", "apply_patch")
    assert kit.touched_paths(given) == ["src/a.py"]


THOUGHT = [{"text": "ACK: context received", "thought": True}, {"text": "hello"}]


@pytest.mark.parametrize(
    "client, row",
    [
        ("gemini", {"type": "gemini", "content": THOUGHT}),
        ("qwen", {"type": "assistant", "message": {"parts": THOUGHT}}),
    ],
)
def test_what_the_agent_only_thought_was_not_said(kit, client, row):
    assert kit.DIALECTS[client].read_row(row).text == "hello"


def test_absurd_numbers_count_for_nothing(kit, tmp_path):
    usage = {"lastCallTokenUsage": {"inputTokens": 999_999_999_999}}
    (tmp_path / "t.settings.json").write_text(json.dumps(usage))
    assert kit.DIALECTS["droid"].read_beside(str(tmp_path / "t.jsonl")).tokens == 0


@pytest.mark.parametrize("client", EVERYBODY)
def test_a_transcript_that_is_missing_or_a_folder_tells_nothing(kit, tmp_path, client):
    for path in ("", str(tmp_path), str(tmp_path / "missing.jsonl"), "\0"):
        session = kit.Session({"agent": client, "transcript": path})
        kit.look(session)
        assert session.facts.tokens == 0 and not session.facts.answered_at


def spoil(value, chance):
    """The same shape with something wrong in it."""
    if chance.random() < 0.15:
        return chance.choice([None, 7, -1.5, True, "text", [], {}, [7], [[]], {"a": 1}])
    if isinstance(value, dict):
        return {key: spoil(inner, chance) for key, inner in value.items()}
    if isinstance(value, list):
        return [spoil(inner, chance) for inner in value]
    return value


@pytest.mark.parametrize("client", OTHERS)
def test_spoilt_rows_never_break_a_look(kit, client):
    chance = random.Random(31)
    rows = []
    for path in sorted((DATA / client).glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines()
        rows += [json.loads(line) for line in lines]
    for _ in range(40):
        session = kit.Session({"agent": client})
        session.delivery.head = "x"
        for row in rows:
            spoilt = spoil(row, chance)
            found = isinstance(spoilt, dict) and kit.DIALECTS[client].read_row(spoilt)
            if found:
                kit.fold_row(session, found)
        json.dumps(session.as_dict())
        assert 0 <= session.facts.tokens < 20_000_000


@pytest.mark.parametrize("client", OTHERS)
def test_rows_of_another_client_never_break_a_look(kit, client):
    for other in OTHERS:
        session = kit.Session({"agent": client})
        session.transcript = str(DATA / other / "transcript.jsonl")
        kit.look(session)
        assert session.facts.tokens in (0, NUMBERS[other][0])


# --- a transcript that is written late


def late_session(kit, tmp_path, tokens):
    path = tmp_path / "events.jsonl"
    usage = {"inputTokens": tokens, "maxPromptTokens": 1000}
    row = {"type": "session.usage_record", "data": {"usage": usage}}
    row["timestamp"] = "2026-11-16T21:32:00.000Z"
    path.write_text(json.dumps(row) + "\n")
    return kit.Session({"agent": "copilot", "transcript": str(path)})


def late_event(name):
    return {"agent": "copilot", "name": name, "timestamp": "2026-11-16T21:32:01.168Z"}


def test_a_late_transcript_is_waited_for_until_it_has_caught_up(kit, tmp_path):
    """Copilot's row about the event itself says that all before it is there."""
    session = late_session(kit, tmp_path, 700)
    rows = [
        {"type": "assistant.message", "data": {"content": "answer", "messageId": "m"}},
        {"type": "hook.start", "data": {"hookType": "agentStop"}},
    ]
    lines = ""
    for row in rows:
        lines += json.dumps(dict(row, timestamp="2026-11-16T21:32:01.168Z")) + "\n"

    def catch_up():
        with open(session.transcript, "a") as target:
            target.write(lines)

    timer = threading.Timer(0.06, catch_up)
    timer.start()
    kit.look_at(session, kit.Event(late_event("Stop")))
    timer.join()
    assert session.facts.said == "answer"


@pytest.mark.parametrize(
    "name, tokens, waits",
    [
        ("PostToolUse", 700, True),
        ("PostToolUse", 400, False),
        ("Stop", 400, True),
        ("UserPromptSubmit", 700, False),
    ],
)
def test_a_late_transcript_is_waited_for_only_when_it_matters(
    kit, tmp_path, monkeypatch, name, tokens, waits
):
    session, naps = late_session(kit, tmp_path, tokens), []
    monkeypatch.setattr(kit, "LATE_S", 0.05)
    monkeypatch.setattr(kit.time, "sleep", naps.append)
    kit.look_at(session, kit.Event(late_event(name)))
    assert bool(naps) is waits


# --- the table itself


@pytest.mark.parametrize("client", EVERYBODY)
def test_a_row_of_the_table_is_complete(kit, client):
    row = kit.DIALECTS[client]
    assert row.label
    assert row.settings and row.user_settings and row.instruction_file.endswith(".md")
    assert ("PreToolUse" in row.registered) is (client == "claude")
    needed = {"SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"}
    assert needed <= set(row.registered) <= set(kit.EVENTS)
    assert {"PreCompact", "SessionEnd"} <= set(row.unheard) < set(kit.EVENTS)
    assert bool(row.project_variable) is (client != "codex")
    assert set(row.kinds.values()) <= set(kit.Row.__doc__.split())
    assert set(row.places) <= {name for name, _ in kit.Row.fields()}


def test_an_event_that_would_only_cost_is_not_registered(kit):
    registered = {name: row.registered for name, row in kit.DIALECTS.items()}
    with_failures = [
        name for name in registered if "PostToolUseFailure" in registered[name]
    ]
    assert with_failures == ["claude", "qwen", "copilot", "grok"]
    assert [name for name in registered if "PreCompact" not in registered[name]] == [
        "gemini"
    ]


# --- a whole session, as the client's hooks would run

PLAYED = {
    "SessionStart": "inject",
    "UserPromptSubmit": "inject",
    "PostToolUse": "monitor",
    "PreCompact": "monitor",
    "Stop": "stop-enforce",
    "SessionEnd": "cleanup",
}


class Stage:
    """A project in which recorded events are played to the kit."""

    def __init__(self, kit, client, root):
        self.dialect, self.client, self.root = kit.DIALECTS[client], client, root
        self.project, self.home = root / "project", root / "home"
        (self.project / ".context").mkdir(parents=True)
        (self.project / ".context/TASKS.md").write_text("# Tasks\n\n- mend it\n")
        self.transcript = root / "session-state" / "s" / "events.jsonl"
        self.transcript.parent.mkdir(parents=True)
        shutil.copy(str(DATA / client / "transcript.jsonl"), str(self.transcript))

    def play(self, name, mode):
        """The reply to one event."""
        data = recorded(self.client, self.dialect.renamed.get(name, name))
        data.update(session_id="s", cwd=str(self.project))
        if self.client != "copilot":  # it only tells at a Stop, and is found
            data["transcript_path"] = str(self.transcript)
        env = {"HOME": str(self.home), "TMPDIR": str(self.root), "PATH": os.defpath}
        env["COPILOT_HOME"] = str(self.root)
        if os.name == "nt":
            env.update(USERPROFILE=env["HOME"], TEMP=env["TMPDIR"], SYSTEMROOT=os.environ["SYSTEMROOT"])
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                str(TESTS.parent / "ctx_hooks.py"),
                mode,
                self.client,
            ],
            input=json.dumps(data).encode(),
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=20,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return json.loads(done.stdout or b"{}")


@pytest.mark.parametrize("client", OTHERS)
def test_a_session_of_recorded_events_is_answered_without_an_error(
    kit, client, tmp_path
):
    """A start told twice, an end told twice, a Stop after it."""
    stage = Stage(kit, client, tmp_path)
    stage.home.mkdir()
    events = [name for name in PLAYED if name in stage.dialect.registered]
    said = {}
    for name in ["SessionStart"] + events + ["SessionEnd", "Stop", "SessionEnd"]:
        reply = stage.play(name, PLAYED[name])
        said[name] = said.get(name, "") + json.dumps(reply)
    assert "Read your context files" in said["PostToolUse"]
    assert said["SessionEnd"] == "{}" * 3
    states = list(stage.home.glob(".local/state/ctx_hooks/*/*"))
    assert "session-s.json" in [path.name for path in states]
    assert "errors.log" not in [path.name for path in states]
    (state,) = [path for path in states if path.name == "session-s.json"]
    facts = json.loads(state.read_text())["facts"]
    assert facts["tool_calls"] == 2
