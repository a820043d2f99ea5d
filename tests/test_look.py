"""Look: one pass over the transcript, folded into facts; and fullness, a view of them."""
from __future__ import annotations

import json
import os
import random

import pytest

from helper import data, kit, write


def measured(world, session):
    """What the kit makes of the session now."""
    found = kit.Session(session.state())
    settings = kit.read_settings(world.root, world.env)
    return kit.measure(found, settings, dict(world.env, **session.env))


# --- facts


def test_facts_are_counted_from_the_transcript_not_from_events(world, session):
    session.prompt("Go.")
    for number in range(5):  # calls that the launcher answered
        block = {"type": "tool_use", "id": "t%d" % number, "name": "Read", "input": {"file_path": "a"}}
        session.write_answer(block)
        session.write_result("t%d" % number)
    session.run("ls")
    facts = session.state()["facts"]
    assert facts["tool_calls"] == 6
    assert facts["breakdown"] == {"Read": 5, "Bash": 1}


def test_each_row_is_folded_once(world, session):
    for _ in range(4):
        session.run("ls")
        session.prompt("again")
        session.stop()
    assert session.state()["facts"]["tool_calls"] == 4


def test_the_last_8_calls_have_their_outcome_one_call_later(world, session):
    for number in range(9):
        session.run("step %d" % number, failed=number == 7)
    calls = session.state()["facts"]["calls"]
    assert [call["outcome"] for call in calls] == ["ok"] * 6 + ["failed", ""]


def test_an_answer_of_several_rows_is_one(world, session):
    text, call = {"type": "text", "text": "Look:"}, {"type": "tool_use", "id": "t", "name": "Read", "input": {}}
    session.write_answer(text, call, tokens=50_000)
    session.stop()
    facts = session.state()["facts"]
    assert facts["tokens"] == 50_000 and len(facts["measured"]) == 1


def test_sidechains_errors_and_synthetic_answers_do_not_count(world, session):
    session.say("Real.", tokens=50_000)
    session.write_answer({"type": "text", "text": "Sub."}, tokens=90_000, isSidechain=True)
    session.write_answer({"type": "text", "text": "API error"}, tokens=91_000, isApiErrorMessage=True)
    session.model = "<synthetic>"
    session.write_answer({"type": "text", "text": "No."}, tokens=92_000)
    session.stop()
    assert session.state()["facts"]["tokens"] == 50_000


def test_a_prompt_typed_while_the_agent_worked_is_a_request(world, session):
    session.row(type="attachment", attachment={"type": "queued_command", "prompt": "Use cents."})
    session.stop()
    assert [row[1] for row in session.state()["facts"]["requests"]] == ["Use cents."]


def test_tasks_are_followed_one_by_one(world, session):
    session.call("TaskCreate", {"subject": "write it", "description": "…"})
    session.call("TaskCreate", {"subject": "test it", "description": "…"})
    session.call("TaskUpdate", {"taskId": "1", "status": "completed"})
    assert session.state()["facts"]["todos"] == [["completed", "write it"], ["pending", "test it"]]


@pytest.mark.parametrize(
    "command, is_check",
    [
        ("pytest -q", True),
        ("cd src && python3 -m pytest tests/a.py", True),
        ("npm run test:unit", True),
        ("npm test", True),
        ("cargo build --release", True),
        ("make", True),
        ("./run_tests.sh", True),
        ("npm install", False),
        ("cargo add serde", False),
        ("git commit -m 'add tests'", False),
        ("ls tests", False),
    ],
)
def test_what_counts_as_verified(world, session, command, is_check):
    session.run(command)
    session.stop()
    assert bool(session.state()["facts"]["passed"]) == is_check


def test_the_bounded_row_of_measures_stays_bounded(world, session):
    for number in range(200):
        session.say("x", tokens=20_000 + number)
    session.stop()
    rows = session.state()["facts"]["measured"]
    assert len(rows) <= kit.MEASURED_LIMIT
    assert [row[1] for row in rows][-5:] == [20_195, 20_196, 20_197, 20_198, 20_199]


def test_at_a_stop_the_last_words_count_though_the_transcript_lags(world, session):
    session.prompt("Go.")
    session.stop(last_assistant_message="I am done.")
    assert session.state()["facts"]["said"] == "I am done."


# --- odd transcripts: silence, and the next look works


@pytest.mark.parametrize("what", ["missing", "folder", "fifo", "null byte", "empty", "binary", "no rows"])
def test_a_transcript_that_cannot_be_read_is_silence(world, what):
    session = world.session("s1")
    path = session.transcript
    if what == "folder":
        os.makedirs(path)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "null byte":
        session.transcript = "/tmp/\0x"
    elif what != "missing":
        contents = {"empty": b"", "binary": bytes(range(256)) * 99, "no rows": b"[]\n3\nnull\n{}\n\n"}
        write(path, contents[what])
    for name in ("SessionStart", "UserPromptSubmit", "PostToolUse", "PreCompact", "Stop", "SessionEnd"):
        event = session.event(name, tool_name="Bash", tool_input={"command": "ls"}, prompt="x")
        assert world.hook(kit.EVENTS[name], event).text == ""


def test_half_a_row_is_read_when_it_is_whole(world, session):
    session.say("Before.", tokens=30_000)
    row = json.dumps({"type": "user", "message": {"content": "Use cents."}, "timestamp": "2030-01-01T00:00:00Z"})
    with open(session.transcript, "a") as file:
        file.write(row[:25])
        file.flush()
        session.send("Stop")
        assert session.state()["facts"]["requests"] == []
        file.write(row[25:] + "\n")
    session.stop()
    assert [words for _, words in session.state()["facts"]["requests"]] == ["Use cents."]


def test_a_transcript_that_was_rewritten_shorter_is_read_anew(world, session):
    for _ in range(5):
        session.run("ls")
    os.unlink(session.transcript)
    session.say("Anew.", tokens=30_000)
    session.stop()
    facts = session.state()["facts"]
    assert (facts["tool_calls"], facts["tokens"]) == (0, 30_000)


def test_another_transcript_for_the_same_session_is_read_from_its_beginning(world, session):
    session.run("ls")
    session.transcript += ".other.jsonl"
    session.run("ls")
    assert session.state()["facts"]["tool_calls"] == 1


def test_a_line_of_50_mb_costs_itself_only(world, session):
    session.run("ls")
    with open(session.transcript, "a") as file:
        file.write('{"type":"user","message":{"content":"' + "x" * 50_000_000 + '"}}\n')
    session.say("After it.", tokens=40_000)
    session.stop()
    facts = session.state()["facts"]
    assert facts["tokens"] == 40_000 and facts["said"].endswith("After it.")


def test_of_a_huge_transcript_the_last_4_mb_are_read(world):
    session = world.session("s1")
    session.write_prompt("The very first.")
    with open(session.transcript, "a") as file:
        for _ in range(90):
            file.write(json.dumps({"type": "user", "isMeta": True, "message": {"content": "x" * 100_000}}) + "\n")
    session.prompt("The latest.")
    session.edit("src/a.py")
    assert [words for _, words in session.state()["facts"]["requests"]] == ["The latest."]


def test_no_row_makes_the_look_fail(world, rounds):
    chance = random.Random(3)
    with open(data("transcripts", "work.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    odd = [None, 0, -1, 1e300, True, "", "x", [], {}, [[]], {"type": 3}, "\ud800", ["a", None, {"text": 3}]]
    session = world.session("s1")
    for number in range(rounds(60)):
        row = json.loads(json.dumps(chance.choice(rows)))
        spots = [row]
        while chance.random() < 0.7:
            inner = [value for value in spots[-1].values() if isinstance(value, dict) and value]
            if not inner:
                break
            spots.append(chance.choice(inner))
        spots[-1][chance.choice(sorted(spots[-1]) or ["x"])] = chance.choice(odd)
        with open(session.transcript, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if number % 6 == 0:
            session.send("PostToolUse", tool_name="Bash", tool_input={}, tool_use_id="t")
    session.end()


def test_a_call_nested_without_end_costs_nothing(world, session):
    deep = '{"a":' * 900 + "1" + "}" * 900
    row = '{"type":"assistant","timestamp":"2030-01-01T00:00:00Z","message":{"id":"m","model":"x","content":'
    row += '[{"type":"tool_use","id":"t","name":"mcp__x__y","input":%s}]}}\n' % deep
    with open(session.transcript, "a") as file:
        file.write(row)
    session.run("ls")
    assert session.state()["facts"]["tool_calls"] >= 1


# --- fullness


@pytest.mark.parametrize(
    "model, window",
    [
        ("claude-opus-4-6", 200_000),
        ("claude-sonnet-4-5-20250929", 200_000),
        ("us.anthropic.claude-haiku-4-5-v1:0", 200_000),
        ("claude-3-5-sonnet", 200_000),
        ("claude-opus-4-7", 1_000_000),
        ("claude-opus-5-5", 1_000_000),
        ("claude-sonnet-4-5[1m]", 1_000_000),
        ("something-new", 1_000_000),
    ],
)
def test_the_window_by_the_models_name_is_the_clients(model, window):
    session = kit.Session({"agent": "claude", "model": model})
    assert kit.window_of_model(session) == window


@pytest.mark.parametrize(
    "tokens, percent", [(1, 0), (116_899, 69), (116_900, 70), (166_999, 99), (167_000, 100), (199_000, 100)]
)
def test_percent_is_of_the_usable_context_rounded_down(world, session, tokens, percent):
    session.look(tokens=max(tokens, 4))
    full = measured(world, session)
    assert (full.usable, full.percent) == (167_000, percent)


def test_one_million_may_stand_only_at_the_sessions_start(world):
    session = world.session("s1", model="claude-sonnet-4-5")
    session.start(model="claude-sonnet-4-5[1m]")
    session.look(tokens=100_000)
    full = measured(world, session)
    assert (full.window, full.usable) == (1_000_000, 977_000)


def test_a_configured_window_wins_and_is_never_raised(world, session):
    world.settings("monitor:\n  context_window: 100k\n")
    session.look(tokens=150_000)
    full = measured(world, session)
    assert (full.window, full.window_from, full.percent) == (100_000, "settings", 100)


def test_a_small_configured_window_can_still_be_used(world, session):
    world.settings("monitor:\n  context_window: 32k\n")
    session.look(tokens=10_000)
    assert 30 <= measured(world, session).percent <= 70


def test_a_measured_value_proves_a_larger_window_for_good(world, session):
    session.look(tokens=250_000)
    assert measured(world, session).window == 1_000_000
    session.write_boundary()
    session.look(tokens=30_000)
    assert measured(world, session).window == 1_000_000


def test_an_estimate_proves_no_window(world, session):
    session.write_prompt("x" * 2_000_000)
    session.row(type="assistant", message={"id": "m", "model": "claude-opus-4-6", "content": "Hm."})
    session.stop()
    full = measured(world, session)
    assert not full.is_exact and full.window == 200_000


def test_without_an_answer_fullness_is_unknown(world, session):
    session.prompt("x" * 900_000)
    assert not measured(world, session).is_known


def test_directly_after_a_compaction_the_boundarys_number_counts(world, session):
    session.look(tokens=160_000)
    session.write_boundary(7_000)
    session.stop()
    full = measured(world, session)
    assert (full.tokens, full.is_known) == (7_000, True)


@pytest.mark.parametrize(
    "env, usable",
    [
        ({}, 167_000),
        ({"DISABLE_AUTO_COMPACT": "1"}, 200_000),
        ({"DISABLE_AUTO_COMPACT": "0"}, 167_000),
        ({"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "150000"}, 117_000),
        ({"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "nonsense"}, 167_000),
        ({"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "50"}, 90_000),
        ({"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "0"}, 167_000),
    ],
)
def test_where_the_client_compacts_by_itself(env, usable):
    assert kit.usable_tokens("claude", 200_000, env) == usable


def test_a_recorded_transcript_gives_the_clients_own_numbers(world):
    session = world.session("s1")
    with open(data("transcripts", "main.jsonl"), "rb") as file:
        write(session.transcript, file.read())
    session.stop()
    facts = session.state()["facts"]
    assert facts["compactions"] == 1 and facts["model"] == "claude-opus-5-5"
    assert facts["breakdown"]["Bash"] >= 2 and facts["requests"][0][1] == "hello"
