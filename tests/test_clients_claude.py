"""Clients, Claude Code's transcript: the last real usage, found from the end, whatever else stands in the file; batches,
turns, receipts; and the records of an event and a reply."""
from __future__ import annotations

import json
import os
import random

import pytest

import helper
from helper import NOW, assistant_row

BOUNDARY = {"type": "system", "subtype": "compact_boundary", "isSidechain": False,
            "compactMetadata": {"trigger": "manual", "preTokens": 90000, "postTokens": 1234}}
TOOL_RESULT = {"type": "user", "isSidechain": False, "message": {"role": "user", "content": [
    {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}}
PROMPT = {"type": "user", "isSidechain": False, "message": {"role": "user", "content": "go on"}}


def usage_tokens(kit, project, rows, tail=b""):
    path = project.write_transcript(rows)
    with open(path, "ab") as out:
        out.write(tail)
    usage = kit.read_usage(project.ctx(NOW), path)
    return usage.tokens if usage else None


def news_of(kit, project, path, offset=0, since=0.0):
    return kit.read_news(project.ctx(NOW), path, offset, since)


def tool_row(*ids, message_id="msg_9", text=""):
    content = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": name, "name": "Bash", "input": {}} for name in ids]
    return assistant_row(50, message={"id": message_id, "content": content, "stop_reason": "tool_use"})


def big_row(size):
    return {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "x" * size}]}}


MEASURED = {  # rows -> tokens of the last real answer, None when there is none
    "one answer": ([assistant_row(5000)], 5000),
    "the last of several": ([assistant_row(5000), TOOL_RESULT, assistant_row(6000)], 6000),
    "one row for each block of the same message": ([assistant_row(6000), assistant_row(6000)], 6000),
    "sidechain rows": ([assistant_row(5000), assistant_row(9000, isSidechain=True)], 5000),
    "synthetic rows": ([assistant_row(5000), assistant_row(0, message={"model": "<synthetic>"})], 5000),
    "API errors": ([assistant_row(5000), assistant_row(7000, isApiErrorMessage=True)], 5000),
    "usage of zeros": ([assistant_row(5000), assistant_row(0)], 5000),
    "absurd usage": ([assistant_row(5000), assistant_row(10 ** 12)], 5000),
    "usage of wrong types": ([assistant_row(5000), assistant_row(1, message={"usage": {
        "input_tokens": "9000", "cache_read_input_tokens": None, "cache_creation_input_tokens": [1]}})], 5000),
    "usage that is no object": ([assistant_row(5000), assistant_row(1, message={"usage": 7})], 5000),
    "message that is no object": ([assistant_row(5000), {"type": "assistant", "message": "usage"}], 5000),
    "rows of a kind that begins the same": ([assistant_row(5000), assistant_row(9000, type="assistant-draft")], 5000),
    "other rows with a message": ([assistant_row(5000), {"type": "api-request-blob", "message": {
        "role": "assistant", "usage": {"input_tokens": 9}}}], 5000),
    "a quoted usage in a tool result": ([assistant_row(5000), big_row(1), {"type": "user", "message": {
        "role": "user", "content": json.dumps(assistant_row(9000))}}], 5000),
    "broken lines": ([assistant_row(5000), '{"type":"assistant","usage"', "", "[]", "null", b"\xff\0\xfe"], 5000),
    "directly after a boundary": ([assistant_row(90000), BOUNDARY], 1234),
    "an answer after a boundary": ([assistant_row(90000), BOUNDARY, assistant_row(3000)], 3000),
    "a boundary without numbers": ([assistant_row(90000), {"type": "system", "subtype": "compact_boundary"}], None),
    "talk about a boundary": ([assistant_row(5000), {"type": "user", "message": {
        "content": "compact_boundary"}, "subtype": "compact_boundary"}], 5000),
    "another client's format": ([{"role": "assistant", "tokens": 5}, {"event": "usage"}], None),
    "nothing": ([], None),
}


@pytest.mark.parametrize("case", sorted(MEASURED))
def test_usage_is_that_of_the_last_real_answer(kit, project, case):
    rows, tokens = MEASURED[case]
    assert usage_tokens(kit, project, rows) == tokens


def test_usage_of_the_recorded_transcript_is_that_of_its_last_answer(kit, project):
    rows = helper.transcript_rows("main")
    last = [row for row in rows if row["type"] == "assistant"][-1]["message"]
    usage = kit.read_usage(project.ctx(NOW), project.write_transcript(rows))
    expected = sum(last["usage"][key] for key in (
        "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"))
    assert (usage.tokens, usage.model) == (expected, last["model"])


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_half_written_last_line_does_not_count(kit, project, cut):
    half = json.dumps(assistant_row(9000)).encode()[:-cut]
    assert usage_tokens(kit, project, [assistant_row(5000)], half) == 5000


def test_a_last_line_without_its_newline_counts(kit, project):
    assert usage_tokens(kit, project, [assistant_row(5000)], json.dumps(assistant_row(6000)).encode()) == 6000


@pytest.mark.parametrize("behind, tokens", [(100_000, 5000), (800_000, 5000), (2 << 20, None), (9 << 20, None)])
def test_usage_is_found_behind_large_results_near_the_end_only(kit, project, behind, tokens):
    """A client that never says how full the context is would cost megabytes of reading at every call; the last count and
    what came since are there."""
    assert usage_tokens(kit, project, [assistant_row(5000)] + [big_row(50_000)] * (behind // 50_000)) == tokens


def test_no_row_before_the_last_answer_is_parsed(kit, project, monkeypatch):
    """A hook runs at every call: what is measured already costs nothing more."""
    parsed, parse_line = [], kit.parse_line
    monkeypatch.setattr(kit, "parse_line", lambda ctx, line: parsed.append(line) or parse_line(ctx, line))
    assert usage_tokens(kit, project, [assistant_row(5000), assistant_row(6000), TOOL_RESULT]) == 6000
    assert len(parsed) == 1


def test_lines_backward_are_the_lines_of_the_file(kit, project, rounds):
    choice = random.Random(1)
    for _ in range(rounds(20)):
        lines = [bytes([choice.randrange(97, 120)]) * choice.choice([0, 1, 5, 4000, 33000, 70000]) for _ in range(12)]
        path = project.write("t", b"\n".join(lines))
        assert [line for line in kit.lines_backward(path) if line] == [line for line in reversed(lines) if line]


def test_not_more_than_the_limit_is_read_from_the_end(kit, project):
    assert usage_tokens(kit, project, [assistant_row(5000)] + [big_row(1 << 20)] * 10) is None


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "empty", "nul in the name", "unset"])
def test_what_is_no_transcript_measures_nothing(kit, project, kind):
    path = project.path("t")
    if kind == "directory":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "empty":
        project.write("t", "")
    path = {"nul in the name": "a\0b", "unset": ""}.get(kind, path)
    ctx = project.ctx(NOW)
    assert kit.read_usage(ctx, path) is None and kit.find_message(ctx, path, "t1") == ""
    assert kit.read_turn(ctx, path) == "" and news_of(kit, project, path).text == ""


def test_no_rows_make_the_readers_fail(kit, project, rounds, monkeypatch):
    monkeypatch.setattr(kit, "TRANSCRIPT_WAIT_S", 0)
    choice = random.Random(2)
    values = [None, 1, -1, 1e308, "x", [], {}, ["x"], [None], {"content": [1]}, {"usage": {"input_tokens": -5}}, True]
    for _ in range(rounds(40)):
        rows = []
        for _ in range(15):
            row = {"type": choice.choice(["assistant", "user", "system", "attachment", 3]), "subtype": "compact_boundary"
                   if choice.random() < 0.1 else None}
            for key in ("message", "attachment", "compactMetadata", "isSidechain", "timestamp"):
                if choice.random() < 0.5:
                    row[key] = choice.choice(values)
            if choice.random() < 0.5:
                row["message"] = {"id": choice.choice(values), "content": choice.choice(values), "role": "assistant",
                                  "usage": choice.choice(values), "model": choice.choice(values)}
            rows.append(row)
        path = project.write_transcript(rows)
        ctx = project.ctx(NOW)
        kit.read_usage(ctx, path), kit.read_turn(ctx, path), news_of(kit, project, path)
        kit.find_message(ctx, path, "assistant")


# --- messages and turns


def test_a_batch_is_the_message_that_holds_the_call(kit, project):
    path = project.write_transcript([tool_row("a", message_id="m1"), TOOL_RESULT, tool_row("b", message_id="m2"),
                                     tool_row("c", message_id="m2"), TOOL_RESULT])
    assert [kit.find_message(project.ctx(NOW), path, name) for name in ("a", "b", "c", "d", "")] == ["m1", "m2", "m2", "", ""]


def test_a_batch_is_found_behind_the_large_results_of_its_other_calls(kit, project):
    path = project.write_transcript([tool_row("a", "b", message_id="m1"), big_row(3 << 20)])
    assert kit.find_message(project.ctx(NOW), path, "b") == "m1"


def test_the_current_turn_ends_at_the_persons_prompt(kit, project):
    path = project.write_transcript([
        PROMPT, tool_row("a", text="old turn"), PROMPT, tool_row("b", text="first"), TOOL_RESULT,
        assistant_row(5, message={"content": [{"type": "text", "text": "second"}]}),
        assistant_row(5, isSidechain=True, message={"content": [{"type": "text", "text": "a subagent"}]})])
    assert kit.read_turn(project.ctx(NOW), path) == "first\nsecond"


def test_an_answer_that_stands_there_twice_was_said_once(kit, project):
    """Some clients write it again; a second block in it would look like a list of blocks."""
    path = project.write_transcript([PROMPT, *[tool_row("a", message_id="m1", text="done")] * 2])
    assert kit.read_turn(project.ctx(NOW), path) == "done"


def test_a_row_that_only_the_client_wrote_is_no_prompt_but_its_results_count(kit, project):
    ctx = project.ctx(NOW)
    assert kit.parse_line(ctx, json.dumps(dict(PROMPT, isMeta=True)).encode()).kind == "other"
    assert kit.parse_line(ctx, json.dumps(dict(TOOL_RESULT, isMeta=True)).encode()).results == [("t1", False, "ok")]


def test_the_model_that_was_asked_for_tells_its_large_window(kit, project):
    path = project.write_transcript([assistant_row(5000, requestedModel="claude-sonnet-4-5[1m]")])
    assert kit.read_usage(project.ctx(NOW), path).model == "claude-sonnet-4-5[1m]"


# --- news


def test_news_are_what_came_since_the_offset(kit, project):
    path = project.write_transcript([PROMPT, assistant_row(5, message={"content": [{"type": "text", "text": "one"}]})])
    first = news_of(kit, project, path, 0)
    assert first.text.strip() == "one" and news_of(kit, project, path, first.offset).text == ""
    with open(path, "ab") as out:
        for text in ("two", "three"):
            out.write(json.dumps(assistant_row(5, message={"content": [{"type": "text", "text": text}]})).encode() + b"\n")
    assert news_of(kit, project, path, first.offset).text == "two\nthree\n"
    assert news_of(kit, project, path, 10 ** 9).text == "one\ntwo\nthree\n", "another file under the same name"


def test_a_row_that_is_being_written_is_news_once_it_is_whole(kit, project):
    path = project.write_transcript([PROMPT])
    first = news_of(kit, project, path, 0)
    row = json.dumps(assistant_row(5, message={"content": [{"type": "text", "text": "two"}]})).encode()
    for part in (row[:40], row[40:], b"\n"):
        again = news_of(kit, project, path, first.offset)
        assert (again.text, again.offset) == ("", first.offset)
        with open(path, "ab") as out:
            out.write(part)
    assert news_of(kit, project, path, first.offset).text == "two\n"


def test_news_hold_the_receipts_of_what_hooks_injected(kit, project):
    path = project.write_transcript(helper.transcript_rows("hook-receipts"))
    news = news_of(kit, project, path, 0)
    injected = [row["attachment"]["content"] for row in helper.transcript_rows("hook-receipts")
                if row.get("attachment", {}).get("type") == "hook_additional_context"]
    assert injected and news.receipts.split() == " ".join(text for texts in injected for text in texts).split()
    assert not any(text in news.text for texts in injected for text in texts)


def test_rows_older_than_what_we_said_are_no_news(kit, project):
    """A forked session starts with a copy of the old conversation, and that may hold an old acknowledgement."""
    text = {"content": [{"type": "text", "text": "ACK"}]}
    path = project.write_transcript([assistant_row(5, message=text, timestamp="2026-02-03T10:44:00.000Z"), PROMPT])
    since = kit.parse_iso("2026-02-03T10:45:00Z")
    assert news_of(kit, project, path, 0, since=since).text == ""
    assert news_of(kit, project, path, 0, since=since - 60).text.strip() == "ACK"


# --- events and replies


@pytest.mark.parametrize("data", [{}, {"hook_event_name": "PostToolUse"}, {"tool_input": 5, "session_id": [], "cwd": 7, "model": 5,
                                  "tool_name": None, "prompt": {}, "background_tasks": "x", "stop_hook_active": 1}])
def test_missing_fields_have_a_meaning_and_wrong_types_count_as_missing(kit, data):
    event = kit.parse_event(data, "monitor", "claude", {})
    assert (event.session, event.cwd, event.tool, event.tool_input, event.prompt, event.stop_active) == ("", "", "?", {}, "", False)


@pytest.mark.parametrize("data", [None, [], "x", 5, {"hook_event_name": "Unheard"}])
def test_what_is_no_event_is_none(kit, data):
    assert kit.parse_event(data, "monitor", "claude", {}) is None


def test_two_replies_do_not_share_what_comes_after(kit):
    first, second = kit.Reply(), kit.Reply()
    first.after.append(1)
    assert second.after == []


def test_paths_stand_below_the_context_folder(kit):
    assert kit.Ctx("/p", "/p/.context", {}, []).path("state", "x.json") == "/p/.context/state/x.json"
