"""Clients: what each client's events, transcripts and replies mean, by recorded ones (tests/data/agents)."""
from __future__ import annotations

import json
import os
import shutil
import threading
import time

import pytest

from helper import EVENTS, TESTS

AGENTS = os.path.join(TESTS, "data", "agents")
OTHERS = ("codex", "gemini", "qwen", "copilot", "droid")
ENV = {"HOME": "/home/user"}


def recorded(client, name):
    with open(os.path.join(AGENTS, client, name + ".json"), encoding="utf-8") as source:
        return json.load(source)


@pytest.fixture
def ctx_of(kit, tmp_path):
    """ctx_of(client) -> the context of a hook of this client."""

    def make(client):
        ctx = kit.Ctx(str(tmp_path), str(tmp_path / ".context"), {}, [])
        ctx.agent = client
        return ctx

    return make


@pytest.fixture
def transcript_of(tmp_path):
    """transcript_of(client, "compaction") -> the path of a recorded transcript with what was recorded after it."""

    def make(client, *more):
        path = tmp_path / "transcript.jsonl"
        for name in ("transcript",) + more:
            with open(os.path.join(AGENTS, client, name + ".jsonl"), "rb") as source, open(str(path), "ab") as target:
                target.write(source.read())
        if client == "droid":
            shutil.copy(os.path.join(AGENTS, client, "transcript.settings.json"), str(tmp_path / "transcript.settings.json"))
        return str(path)

    return make


# --- events: client, recorded event, mode -> what we make of it

CODEX_TURN = "01a1e2a6-d5bd-7c43-9d96-3757a3dfca17"
RECORDED = [
    ("codex", "SessionStart", "inject", {"name": "SessionStart", "source": "startup", "model": "gpt-5.5"}),
    ("codex", "UserPromptSubmit", "inject", {"name": "UserPromptSubmit", "prompt": "hello there", "prompt_id": CODEX_TURN, "by_person": True}),
    ("codex", "PreToolUse", "gate", {"name": "PreToolUse", "tool": "Bash", "kind": "run", "tool_use_id": "call_d96a57e8f69c4e1eb90a"}),
    ("codex", "PostToolUse", "monitor", {"name": "PostToolUse", "kind": "run", "response": "shell-ran\n", "failed": False}),
    ("codex", "PostToolUse.patch", "monitor", {"tool": "apply_patch", "kind": "edit", "path": "new.txt"}),
    ("codex", "Stop", "stop-enforce", {"name": "Stop", "last_message": "t4 final", "stop_active": False, "prompt_id": CODEX_TURN}),
    ("codex", "SessionEnd", "cleanup", {"name": "SessionEnd", "reason": "other"}),
    ("codex", "PreCompact", "monitor", {"name": "PreCompact"}),
    ("codex", "UserPromptSubmit.subagent", "inject", {"agent_id": "01a1e2ea-845f-7f73-94a8-0968fe50b3dd"}),
    ("gemini", "SessionStart", "inject", {"name": "SessionStart", "source": "startup"}),
    ("gemini", "BeforeAgent", "inject", {"name": "UserPromptSubmit", "theirs": "BeforeAgent", "prompt": "hello there"}),
    ("gemini", "BeforeTool", "gate", {"name": "PreToolUse", "kind": "run", "tool_use_id": ""}),
    ("gemini", "AfterTool", "monitor", {"name": "PostToolUse", "theirs": "AfterTool", "kind": "run"}),
    ("gemini", "AfterAgent", "stop-enforce", {"name": "Stop", "stop_active": False, "last_message": ""}),
    ("gemini", "SessionEnd", "cleanup", {"name": "SessionEnd", "reason": "exit"}),
    ("gemini", "PreCompress.manual", "monitor", {"name": "PreCompact"}),
    ("qwen", "SessionStart", "inject", {"name": "SessionStart", "source": "startup"}),
    ("qwen", "UserPromptSubmit", "inject", {"name": "UserPromptSubmit", "prompt": "hello there", "by_person": True}),
    ("qwen", "UserPromptSubmit.again", "inject", {"name": "UserPromptSubmit", "prompt": "", "by_person": False}),
    ("qwen", "PreToolUse", "gate", {"name": "PreToolUse", "tool_use_id": "call_2ef016251af740cd9908"}),
    ("qwen", "PostToolUse", "monitor", {"name": "PostToolUse", "kind": "run", "tool_use_id": "call_2ef016251af740cd9908"}),
    ("qwen", "PostToolUseFailure", "monitor", {"failed": True, "kind": "read", "path": "/no/such/file", "response": "File not found: /no/such/file"}),
    ("qwen", "Stop", "stop-enforce", {"name": "Stop", "last_message": "t4 final", "subagents": False}),
    ("qwen", "SessionEnd", "cleanup", {"reason": "clear"}),
    ("qwen", "PreCompact", "monitor", {"name": "PreCompact"}),
    ("qwen", "PostToolUse.subagent", "monitor", {"agent_id": "general-purpose-call_f8018bc308324e3c94df"}),
    ("copilot", "SessionStart", "inject", {"name": "SessionStart", "source": "new"}),
    ("copilot", "UserPromptSubmit", "inject", {"name": "UserPromptSubmit", "prompt": "hello there"}),
    ("copilot", "PreToolUse", "gate", {"name": "PreToolUse", "kind": "run"}),
    ("copilot", "PostToolUse", "monitor", {"name": "PostToolUse", "kind": "run", "tool": "Bash"}),
    ("copilot", "PostToolUseFailure", "monitor", {"failed": True, "kind": "read", "response": "Path does not exist"}),
    ("copilot", "Stop", "stop-enforce", {"name": "Stop", "stop_active": False, "last_message": ""}),
    ("copilot", "SessionEnd", "cleanup", {"name": "SessionEnd", "reason": "complete"}),
    ("copilot", "PreCompact", "monitor", {"name": "PreCompact"}),
    ("copilot", "PostToolUse.subagent", "monitor", {"agent_id": "36f4149f-fc6f-444a-87e4-35bc0b7b6689"}),
    ("droid", "SessionStart", "inject", {"name": "SessionStart", "source": "startup"}),
    ("droid", "UserPromptSubmit", "inject", {"prompt": "hello two", "prompt_id": "9ed996cf-1cf4-412b-9f9c-86799b59960d"}),
    ("droid", "PreToolUse", "gate", {"name": "PreToolUse", "tool": "Execute", "kind": "run"}),
    ("droid", "PostToolUse", "monitor", {"name": "PostToolUse", "kind": "run"}),
    ("droid", "Stop", "stop-enforce", {"name": "Stop", "last_message": ""}),
    ("droid", "SessionEnd", "cleanup", {"reason": "other"}),
    ("droid", "PreCompact", "monitor", {"name": "PreCompact"}),
]


@pytest.mark.parametrize("client, name, mode, wanted", RECORDED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_recorded_event_means_the_same_in_every_client(kit, client, name, mode, wanted):
    event = kit.parse_event(recorded(client, name), mode, client, ENV)
    assert {key: getattr(event, key) for key in wanted} == wanted
    assert event.session_id and event.session and event.cwd == "/home/user/project"
    if event.tool_input:
        assert event.tool_input == recorded(client, name).get("tool_input", event.tool_input)


def test_every_recorded_event_is_in_the_table():
    names = {(client, name) for client, name, _, _ in RECORDED} | {("gemini", "PreCompress")}
    found = {(client, file[:-5]) for client in OTHERS for file in os.listdir(os.path.join(AGENTS, client))
             if file.endswith(".json") and not file.startswith("transcript")}
    assert found == names


def test_gemini_tells_nothing_before_an_automatic_compression_because_it_does_so_before_every_request(kit):
    assert kit.parse_event(recorded("gemini", "PreCompress"), "monitor", "gemini", ENV) is None


def test_the_start_text_in_front_of_geminis_first_prompt_is_not_the_persons(kit):
    data = dict(recorded("gemini", "BeforeAgent"), prompt="<hook_context>ctx cancel</hook_context>\n\nhello there")
    assert kit.parse_event(data, "inject", "gemini", ENV).prompt == "hello there"


def test_copilots_transcript_is_found_where_the_event_does_not_name_it(kit):
    session = recorded("copilot", "PostToolUse")["session_id"]
    for env, home in ((ENV, "/home/user/.copilot"), (dict(ENV, COPILOT_HOME="/elsewhere"), "/elsewhere")):
        event = kit.parse_event(recorded("copilot", "PostToolUse"), "monitor", "copilot", env)
        assert event.transcript == home + "/session-state/%s/events.jsonl" % session
    named = kit.parse_event(recorded("copilot", "Stop"), "stop-enforce", "copilot", ENV)
    assert named.transcript == recorded("copilot", "Stop")["transcript_path"]


def test_copilots_transcript_on_windows_lies_below_the_profile(kit, monkeypatch):
    monkeypatch.setattr(kit, "IS_POSIX", False)
    event = kit.parse_event(recorded("copilot", "PostToolUse"), "monitor", "copilot", {"USERPROFILE": "C:\\Users\\me"})
    assert event.transcript.startswith("C:/Users/me/.copilot/session-state/")


def test_a_session_id_that_is_a_path_names_no_transcript_of_copilots(kit):
    data = dict(recorded("copilot", "PostToolUse"), session_id="../../other")
    assert kit.parse_event(data, "monitor", "copilot", ENV).transcript == ""


@pytest.mark.parametrize("client", OTHERS)
def test_wrong_types_in_an_event_count_as_missing(kit, client):
    for file in os.listdir(os.path.join(AGENTS, client)):
        if not file.endswith(".json") or file.startswith("transcript"):
            continue
        for wrong in (None, 7, [], {}, True, "x" * 10):
            data = recorded(client, file[:-5])
            broken = {key: wrong if key not in ("hook_event_name", "trigger") else value for key, value in data.items()}
            event = kit.parse_event(broken, "monitor", client, ENV)
            assert event is None or isinstance(event.prompt + event.session_id + event.last_message + event.path, str)


# --- whose event it is


@pytest.mark.parametrize("name", ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop",
                                  "SessionEnd", "PreCompact"])
def test_copilot_is_known_by_its_events_under_claudes_registration(kit, name):
    assert kit.detect_agent("claude", recorded("copilot", name)) == "copilot"


def test_an_editor_that_runs_claudes_settings_is_answered_in_both_forms(kit, ctx_of):
    """What is not known for certain gets the form that every client of this family reads."""
    data = {"timestamp": "2026-11-16T05:00:00.000Z", "cwd": "/home/user/project", "sessionId": "an-editors-session",
            "hookEventName": "PostToolUse", "transcript_path": "/home/user/editor/transcript.jsonl", "tool_name": "run_in_terminal",
            "tool_input": {"command": "make"}, "tool_response": "ok", "tool_use_id": "call-1"}
    agent = kit.detect_agent("claude", data)
    event = kit.parse_event(data, "monitor", agent, ENV)
    assert (event.name, event.kind, event.session_id) == ("PostToolUse", "run", "an-editors-session")
    reply = kit.render_reply(ctx_of(agent), event, kit.Reply("a text"))
    assert reply["additionalContext"] == reply["hookSpecificOutput"]["additionalContext"] == "a text"


def test_claudes_own_events_stay_claudes(kit):
    for file in os.listdir(EVENTS):
        with open(os.path.join(EVENTS, file), encoding="utf-8") as source:
            assert kit.detect_agent("claude", json.load(source)) == "claude", file


@pytest.mark.parametrize("client", OTHERS)
def test_the_registered_word_counts_whatever_the_event_looks_like(kit, client):
    for other in OTHERS:
        assert kit.detect_agent(client, recorded(other, "SessionEnd")) == client
    assert kit.detect_agent("no-such-agent", {}) == "claude"


@pytest.mark.parametrize("client, other, name", [
    ("claude", "gemini", "BeforeTool"), ("claude", "gemini", "AfterAgent"), ("codex", "gemini", "BeforeAgent"),
    ("gemini", "codex", "PostToolUse"), ("gemini", "qwen", "Stop"), ("droid", "gemini", "AfterTool"),
])
def test_an_event_that_the_registered_client_does_not_have_is_no_event(kit, client, other, name):
    assert kit.parse_event(recorded(other, name), "monitor", client, ENV) is None


def test_the_outer_agents_variables_do_not_decide_how_a_stop_is_held(kit, ctx_of):
    """An AI_AGENT that was inherited from Claude Code made Codex throw the hold away."""
    for client in OTHERS:
        event, ctx = kit.parse_event(recorded(client, STOPS[client]), "stop-enforce", client, ENV), ctx_of(client)
        ctx.env = {"AI_AGENT": "claude-code_2-1-325_agent", "CLAUDE_CODE_SESSION_ID": event.session_id}
        assert kit.render_reply(ctx, event, kit.Reply("go on", hold=True)) == {"decision": "block", "reason": "go on"}


# --- replies

STOPS = {"codex": "Stop", "gemini": "AfterAgent", "qwen": "Stop", "copilot": "Stop", "droid": "Stop"}
AFTER_TOOL = {"codex": "PostToolUse", "gemini": "AfterTool", "qwen": "PostToolUse", "copilot": "PostToolUse", "droid": "PostToolUse"}
BEFORE_TOOL = {"codex": True, "gemini": False, "qwen": False, "copilot": True, "droid": False}


@pytest.mark.parametrize("client", OTHERS)
def test_context_is_said_in_the_clients_own_shape(kit, ctx_of, client):
    event = kit.parse_event(recorded(client, AFTER_TOOL[client]), "monitor", client, ENV)
    wanted = {"hookSpecificOutput": {"hookEventName": AFTER_TOOL[client], "additionalContext": "a text"}}
    if client == "copilot":
        wanted["additionalContext"] = "a text"
    else:
        wanted["systemMessage"] = "a line"
    assert kit.render_reply(ctx_of(client), event, kit.Reply("a text", "a line")) == wanted


def test_codex_gets_no_key_that_it_does_not_know(kit, ctx_of):
    event, reply = kit.parse_event(recorded("codex", "PostToolUse"), "monitor", "codex", ENV), kit.Reply("text", "line")
    reply.terminal = "\a"
    assert set(kit.render_reply(ctx_of("codex"), event, reply)) == {"systemMessage", "hookSpecificOutput"}
    assert kit.render_reply(ctx_of("codex"), event, kit.Reply()) == {}


@pytest.mark.parametrize("client", OTHERS)
def test_nothing_speaks_at_an_event_whose_text_does_not_arrive(kit, ctx_of, client):
    ctx = ctx_of(client)
    assert kit.can_speak(ctx, "PreToolUse") is BEFORE_TOOL[client]
    assert all(kit.can_speak(ctx, name) for name in ("SessionStart", "UserPromptSubmit", "PostToolUse"))
    assert not any(kit.can_speak(ctx, name) for name in ("SessionEnd", "PreCompact"))


def test_codex_counts_bytes_and_the_others_utf_16_units(kit):
    lengths = {client: kit.DIALECTS[client].length("€😀") for client in OTHERS}
    assert lengths == {"codex": 7, "gemini": 3, "qwen": 3, "copilot": 3, "droid": 3}
    assert kit.REPLY_LIMIT < 10_000


# --- transcripts

USAGE = {  # tokens and window at the end, tokens after a compaction
    "codex": (1030, 258_400, 6795), "gemini": (1030, 0, None), "qwen": (1030, 1_000_000, 9000),
    "copilot": (1030, 922_000, 11265), "droid": (1030, 0, 1030),
}


@pytest.mark.parametrize("client", OTHERS)
def test_the_fullness_is_read_from_the_clients_own_numbers(kit, ctx_of, transcript_of, client):
    usage = kit.read_usage(ctx_of(client), transcript_of(client))
    assert (usage.tokens, usage.window) == USAGE[client][:2]


@pytest.mark.parametrize("client", OTHERS)
def test_numbers_from_before_a_compaction_do_not_count(kit, ctx_of, transcript_of, client):
    usage = kit.read_usage(ctx_of(client), transcript_of(client, "compaction"))
    assert (usage.tokens if usage else None) == USAGE[client][2]


def test_codex_tells_the_window_in_another_row_than_the_newest_numbers(kit, ctx_of, transcript_of):
    path = transcript_of("codex")
    with open(path, "rb") as source:
        whole = source.read()
    with open(path, "wb") as target:
        target.write(whole[:whole.index(b"\n", whole.rindex(b'"token_usage_record"')) + 1])
    usage = kit.read_usage(ctx_of("codex"), path)
    assert (usage.tokens, usage.window) == USAGE["codex"][:2]


def test_absurd_numbers_beside_droids_transcript_count_for_nothing(kit, ctx_of, tmp_path):
    (tmp_path / "t.settings.json").write_text('{"lastCallTokenUsage": {"inputTokens": 999999999999}}')
    (tmp_path / "t.jsonl").write_text("")
    assert kit.read_usage(ctx_of("droid"), str(tmp_path / "t.jsonl")) is None


def test_a_variable_of_claude_codes_tells_nothing_about_another_clients_person(kit):
    env = dict(ENV, CLAUDE_CODE_SESSION_ATTENDED="0")
    assert kit.parse_event(recorded("codex", "PreToolUse"), "gate", "codex", env).attended is True


def test_gemini_has_one_window_for_all_its_models(kit):
    assert kit.DIALECTS["gemini"].window == 1_048_576


SAID = {"codex": "answer four", "gemini": "answer four", "copilot": "answer four", "droid": "answer four",
        "qwen": "answer one\nanswer two\nanswer three\nanswer four"}  # its transcript has no row for a hold


@pytest.mark.parametrize("client", OTHERS)
def test_the_turn_is_what_the_agent_said_since_the_last_prompt_or_hold(kit, ctx_of, transcript_of, client):
    assert kit.read_turn(ctx_of(client), transcript_of(client)) == SAID[client]


THOUGHT = [{"text": "ACK: context received", "thought": True}, {"text": "hello"}]


@pytest.mark.parametrize("client, row", [("gemini", {"type": "gemini", "content": THOUGHT}),
                                         ("qwen", {"type": "assistant", "message": {"parts": THOUGHT}})])
def test_what_the_agent_only_thought_was_not_said(kit, ctx_of, client, row):
    assert kit.parse_line(ctx_of(client), json.dumps(row).encode()).text == "hello"


def test_a_patch_that_codex_was_given_as_a_text_names_its_file(kit, ctx_of):
    row = {"type": "response_item", "payload": {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch",
                                                "input": "*** Begin Patch\n*** Update File: src/a.py\n"}}
    (call_id, name, asked), = kit.parse_line(ctx_of("codex"), json.dumps(row).encode()).calls
    assert (call_id, name, kit.touched_path(asked)) == ("c1", "apply_patch", "src/a.py")


RECEIPTS = {"codex": "SessionStart UserPromptSubmit PreToolUse PostToolUse", "gemini": "SessionStart PostToolUse",
            "qwen": "UserPromptSubmit PostToolUse PostToolUseFailure",
            "copilot": "SessionStart UserPromptSubmit PostToolUse PostToolUseFailure", "droid": "SessionStart PostToolUse"}


@pytest.mark.parametrize("client", OTHERS)
def test_the_transcript_is_a_receipt_for_what_hooks_said(kit, ctx_of, transcript_of, client):
    news = kit.read_news(ctx_of(client), transcript_of(client), 0, 0.0)
    for event in RECEIPTS[client].split():
        assert "word-%s." % event in news.receipts
    assert "answer one" in news.text and "word-" not in news.text


@pytest.mark.parametrize("client", OTHERS)
def test_calls_and_results_of_a_transcript_are_seen(kit, ctx_of, transcript_of, client):
    rows = list(kit.rows_backward(ctx_of(client), transcript_of(client)))
    calls = [call for row in rows for call in row.calls]
    results = [result for row in rows for result in row.results]
    assert any("echo first" in json.dumps(call[2]) for call in calls) and all(call[0] and call[1] for call in calls)
    assert {call[0] for call in calls} == {result[0] for result in results}
    assert {result[1] for result in results} == {True, False} and all(len(result) == 3 for result in results)
    assert [row.text for row in rows if row.kind == "prompt"][-1] == "please look around"


@pytest.mark.parametrize("client", OTHERS)
def test_two_calls_of_one_answer_are_one_batch(kit, ctx_of, transcript_of, client):
    path, ctx = transcript_of(client), ctx_of(client)
    known = [call[0] for row in kit.rows_backward(ctx, path) for call in row.calls]
    found = kit.find_message(ctx, path, known[0] if client == "qwen" else "")
    assert found and found == kit.find_message(ctx, path, known[0] if client == "qwen" else "exec-unknown")


@pytest.mark.parametrize("client", OTHERS)
def test_a_transcript_that_is_missing_a_folder_or_broken_tells_nothing(kit, ctx_of, tmp_path, client):
    broken = tmp_path / "broken.jsonl"
    needles = [needle.decode() for needle in kit.DIALECTS[client].needles] or ["lastCallTokenUsage"]
    kinds = ["assistant", "user", "message", "gemini", "response_item", "event_msg", "token_usage_record", "hook.end",
             "tool.execution_complete", "session.usage_record", "assistant.message", "compacted", "system", "tool_result"]
    fields = ("payload", "message", "data", "content", "usage", "toolCalls", "$set", "systemPayload", "timestamp", "id")
    wrongs = (None, 7, "text", [7], {"usage": 7, "content": [7, {"type": 7}], "parts": [7, {"functionResponse": {"response": 7}}],
                                     "info": 7, "toolRequests": 7, "hookResults": [7], "output": 7, "role": "user"})
    lines = [json.dumps({"type": kind, "subtype": "chat_compression", **dict.fromkeys(fields, wrong), "x": needles})
             for kind in kinds for wrong in wrongs]
    broken.write_text("\n".join(lines + ["{", "[]", '"' + needles[0], "\x00"]) + "\n")
    ctx = ctx_of(client)
    for path in (str(tmp_path / "missing.jsonl"), str(tmp_path), str(broken), ""):
        usage = kit.read_usage(ctx, path)
        assert usage is None or usage.tokens > 0
        assert isinstance(kit.read_turn(ctx, path), str)
        assert isinstance(kit.read_news(ctx, path, 0, 0.0).receipts, str)
        assert isinstance(kit.find_message(ctx, path, "x"), str)


def test_a_late_transcript_is_waited_for_until_it_has_caught_up(kit, ctx_of, transcript_of, tmp_path):
    """Copilot writes its rows late; the row about the event itself is the sign that all before it are there."""
    with open(transcript_of("copilot"), "rb") as source:
        whole = source.read().splitlines(True)
    path, ctx = tmp_path / "late.jsonl", ctx_of("copilot")
    last = max(i for i, line in enumerate(whole) if b'"assistant.message"' in line)
    path.write_bytes(b"".join(whole[:last]))
    ctx.mode, ctx.now = "stop-enforce", time.time()

    def catch_up():
        sign = {"type": "hook.start", "data": {"hookType": "agentStop"}, "timestamp": kit.format_iso(ctx.now, True)}
        with open(str(path), "ab") as target:
            target.write(whole[last] + json.dumps(sign).encode() + b"\n")

    timer = threading.Timer(0.05, catch_up)
    timer.start()
    said = kit.read_turn(ctx, str(path))
    timer.join()
    assert said == "answer four"


@pytest.mark.parametrize("tokens, waits", [(0, True), (400, False), (500, True)])
def test_a_late_transcript_is_waited_for_when_its_numbers_begin_to_matter(kit, ctx_of, tmp_path, monkeypatch, tokens, waits):
    path, waited = tmp_path / "t.jsonl", []
    row = {"type": "session.usage_record", "data": {"usage": {"inputTokens": tokens, "maxPromptTokens": 1000}}}
    path.write_text(json.dumps(row) + "\n")
    monkeypatch.setattr(kit, "wait_for_rows", lambda ctx, path: waited.append(path))
    kit.read_usage(ctx_of("copilot"), str(path))
    assert bool(waited) is waits


def test_a_transcript_that_has_caught_up_is_not_waited_for(kit, ctx_of, tmp_path, monkeypatch):
    """The newest row is looked at, not the nothing after its line end."""
    path, ctx = tmp_path / "t.jsonl", ctx_of("copilot")
    ctx.mode, ctx.now = "stop-enforce", time.time()
    rows = ({"type": "assistant.message", "data": {"content": "answer", "messageId": "m1"}},
            {"type": "hook.start", "data": {"hookType": "agentStop"}, "timestamp": kit.format_iso(ctx.now, True)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(kit, "TRANSCRIPT_LATE_S", 5)
    assert kit.read_turn(ctx, str(path)) == "answer" and time.time() - ctx.now < 3


# --- the table itself


@pytest.mark.parametrize("client", ("claude",) + OTHERS)
def test_a_row_of_the_table_is_complete(kit, client):
    row = kit.DIALECTS[client]
    assert row.label and row.settings and row.user_settings and row.instruction_file in kit.INSTRUCTION_FILES
    assert set(row.events.values()) >= {"SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd"}
    assert {"PreCompact", "SessionEnd"} <= set(row.mute) < set(kit.DIALECTS["claude"].events.values())
    assert row.project_variable in kit.ENV_NAMES or client == "codex"


def test_the_dialects_stay_small():
    """Together under 260 lines, so that another client stays under 40."""
    with open(os.path.join(os.path.dirname(TESTS), "ctx_hooks.py"), encoding="utf-8") as source:
        text = source.read()
    own = text[text.index("# --- rows."):text.index("# --- replies\n")]
    table = text[text.index("# --- the table\n"):text.index("# Signals\n")]
    assert own.count("\n") + table.count("\n") < 260
