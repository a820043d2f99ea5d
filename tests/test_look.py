"""Look: one pass over the transcript, folded into facts; and fullness, a view of them."""
from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from helper import kit, write


def measured(world, session):
    """What the kit makes of the session now."""
    run = SimpleNamespace(session=kit.Session(session.state()), env=world.env)
    run.settings = kit.read_settings(world.root, world.env)
    return kit.fullness(run)


# --- facts


def test_facts_are_counted_from_the_transcript_once_each_and_not_from_events(world, session):
    for number in range(5):  # calls that the launcher answered
        block = {"type": "tool_use", "id": "t%d" % number, "name": "Read", "input": {"file_path": "a"}}
        session.write_answer(block)
        session.write_result("t%d" % number)
    session.run("ls", failed=True)
    session.row(type="attachment", attachment={"type": "queued_command", "prompt": "Use cents."})
    session.prompt("again")
    session.stop()
    facts = session.state()["facts"]
    assert facts["tool_calls"] == 6
    assert facts["breakdown"] == {"Read": 5, "Bash": 1}
    assert [call["outcome"] for call in facts["calls"]] == ["ok"] * 5 + ["failed"]
    assert [words for _, words in facts["requests"]] == ["Use cents.", "again"]


def test_an_answer_of_several_rows_is_one_and_sidechains_errors_and_synthetic_ones_do_not_count(world, session):
    text, call = {"type": "text", "text": "Look:"}, {"type": "tool_use", "id": "t", "name": "Read", "input": {}}
    session.write_answer(text, call, call, tokens=50_000)  # some clients write a row twice
    session.write_answer({"type": "text", "text": "Sub."}, tokens=90_000, isSidechain=True)
    session.write_answer({"type": "text", "text": "API error"}, tokens=91_000, isApiErrorMessage=True)
    session.model = "<synthetic>"
    session.write_answer({"type": "text", "text": "No."}, tokens=92_000)
    session.stop()
    facts = session.state()["facts"]
    assert (facts["tokens"], facts["tool_calls"]) == (50_000, 1) and len(facts["measured"]) == 1


def test_a_prompt_without_words_is_no_request(world, session):
    session.write_prompt([{"type": "image"}])
    session.stop()
    assert session.state()["facts"]["requests"] == []


def test_tasks_are_followed_one_by_one(world, session):
    session.call("TaskCreate", {"subject": "write it", "description": "…"})
    session.call("TaskCreate", {"subject": "test it", "description": "…"})
    session.call("TaskUpdate", {"taskId": "1", "status": "completed"})
    assert session.state()["facts"]["todos"] == [["completed", "write it"], ["pending", "test it"]]


@pytest.mark.parametrize(
    "command, files",
    [
        ("echo a > one.md; echo b >>'two words.md' 2>&1", ["one.md", "two words.md"]),
        ("cat <<'END' > one.md && rm x\n> no\nEND\necho x >| two.md", ["one.md", "two.md"]),
        ("make 2> err.log &> all.log | tee -a out.log", ["err.log", "all.log", "out.log"]),
        ("sed -i '' -e s/a/b/ -e s/c/d/ one.py two.py", ["one.py", "two.py"]),
        ("cp -r a b 2>/dev/null; git mv c d && mv \"it's e\" 'f g'", ["b", "d", "f g"]),
        ("tee out < in; (cd x && echo > y)", ["out", "y"]),
        ("# echo > a\ngrep '>' b; awk '$1 > 2' c; echo \"> d\" >&2", []),
        ("test -s a; git add b; cat c > $OUT; sed -n 1p d; cp e; python3 - <<E\nopen('f', 'w') > 1\nE", []),
    ],
)
def test_the_files_that_a_shell_command_writes(command, files):
    assert kit.written_files(command) == files


def test_what_counts_as_verified(world, session):
    checks = ["pytest -q", "cd src && python3 -m pytest tests/a.py", "npm run test:unit", "cargo build --release"]
    checks += ["make", "./run_tests.sh"]
    checks += ["X=1 timeout 60 uv run pytest", ".ci/run", "cat > a <<'EOF'\nx\nEOF\nbash scripts/check.sh"]
    others = ["npm install", "cargo add serde", "git commit -m 'add tests'", "ls tests"]
    others += ['git commit -am "make it right, tests fail"', "pip install pytest", "rm tests/test_x.py"]
    others += ["cat > a <<'EOF'\nmake test\nEOF", "./deploy.sh"]
    for command in checks + others:
        session.run(command)
        session.stop()
        passed = session.state()["facts"]["passed"]
        assert (passed["command"] == " ".join(command.split())) == (command in checks), command


# --- odd transcripts: silence, and the next look works


@pytest.mark.parametrize("content", [None, b"", bytes(range(256)) * 99, b"[]\n3\nnull\n{}\n\n"])
def test_a_transcript_that_cannot_be_read_is_silence(world, content):
    session = world.session("s1")
    if content is None:
        os.mkfifo(session.transcript)
    else:
        write(session.transcript, content)
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


def test_another_transcript_or_one_that_was_rewritten_shorter_is_read_anew(world, session):
    session.run("ls")
    session.transcript += ".other.jsonl"
    session.run("ls")
    assert session.state()["facts"]["tool_calls"] == 1
    os.unlink(session.transcript)
    session.say("Anew.", tokens=30_000)
    session.stop()
    facts = session.state()["facts"]
    assert (facts["tool_calls"], facts["tokens"]) == (0, 30_000)


def test_a_transcript_that_is_gone_takes_no_facts_with_it(world, session):
    session.prompt("Add discounts.")
    session.edit("src/cart.py")
    session.stop()
    os.unlink(session.transcript)
    session.end()
    assert "> Add discounts." in world.read_handoff("s1")


def test_ten_thousand_short_prompts_are_looked_at_in_one_go(world, session):
    row = json.dumps({"type": "user", "timestamp": "2026-01-01T00:00:00Z", "message": {"content": "ok %d"}}) + "\n"
    with open(session.transcript, "a", encoding="utf-8") as file:
        file.writelines(row % number for number in range(10_000))
    session.look()
    assert 100 < len(session.state()["facts"]["requests"]) < 400


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
        ("us.anthropic.claude-haiku-4-5-v1:0", 200_000),
        ("claude-3-5-sonnet", 200_000),
        ("claude-opus-4-7", 1_000_000),
        ("claude-opus-5-5", 1_000_000),
        ("claude-sonnet-4-5[1m]", 1_000_000),
        ("something-new", 1_000_000),
    ],
)
def test_the_window_by_the_models_name_at_the_start_is_the_clients(model, window):
    facts = {"model": model.replace("[1m]", "")}  # answers do not tell it
    session = kit.Session({"agent": "claude", "model": model, "facts": facts})
    assert kit.window_of_model(session) == window


def test_a_configured_window_wins_and_is_never_raised(world, session):
    world.settings("monitor:\n  context_window: 100_000\n")
    session.look(tokens=150_000)
    full = measured(world, session)
    assert (full.window, full.window_from, full.percent) == (100_000, "settings", 100)


def test_a_measured_value_proves_a_larger_window_for_good(world, session):
    session.look(tokens=250_000)
    assert measured(world, session).window == 1_000_000
    session.write_boundary()
    session.look(tokens=30_000)
    assert measured(world, session).window == 1_000_000


def test_fullness_is_unknown_before_an_answer_and_directly_after_a_compaction_the_boundarys(world, session):
    session.prompt("x" * 900_000)
    session.prompt("And this.")  # its hook sees the row of the first
    assert not measured(world, session).is_known
    session.look(tokens=160_000)
    session.write_boundary(7_000)
    session.stop()
    full = measured(world, session)
    assert (full.tokens, full.is_known) == (7_000, True)


@pytest.mark.parametrize(
    "window, env, usable",
    [
        (200_000, {}, 167_000),
        (1_000_000, {}, 977_000),
        (32_000, {}, 16_000),  # a small one that was set can still be used
        (200_000, {"DISABLE_AUTO_COMPACT": "1"}, 200_000),
        (200_000, {"DISABLE_AUTO_COMPACT": "0"}, 167_000),
        (200_000, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "150000"}, 117_000),
        (200_000, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "nonsense"}, 167_000),
        (200_000, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "50"}, 90_000),
        (200_000, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "0"}, 167_000),
    ],
)
def test_where_the_client_compacts_by_itself(window, env, usable):
    assert kit.DIALECTS["claude"].usable_tokens(window, env) == usable
