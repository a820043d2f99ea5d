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
    run.project = SimpleNamespace(root=world.root)
    run.settings = kit.read_settings(world.root, world.env)
    return kit.fullness(run)


# --- facts


def test_facts_come_from_the_transcript_alone(world, session):
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


def test_only_the_answers_of_the_main_agent_count(world, session):
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
        ("sed -i '' -e s/a/b/ -e s/c/d/ one.py", ["one.py"]),
        ("cp -r a b 2>/dev/null; git mv c d && mv \"it's e\" 'f g'", ["b", "d", "f g"]),
        ("tee out < in; (cd x && echo > y)", ["out", "x/y"]),
        ("cd >a; cd && (((tee b; ; 'c", ["a", "b"]),
        ("# echo > a\ngrep '>' b; awk '$1 > 2' c; echo \"> d\" >&2", []),
        ("test -s a; git add b; cat c > $OUT; sed -n 1p d; python3 - <<E\nopen('f', 'w') > 1\nE", []),
    ],
)
def test_the_files_that_a_shell_command_writes(command, files):
    assert kit.written_files(kit.parse_command(command)) == files


def test_what_only_looks():
    looks = [
        "ls",
        "cd src && git status 2>&1 | head -5",
        "find . -name '*.py'",
        "grep -rn 'a > b' . || cat x",
        "git log",
        "git branch",
        "cd src; python3 --version",
    ]
    others = [
        "ls > x",
        "env X=1 make",
        "find . -delete",
        "git branch new",
        "lsof",
        "cat x | sh",
        "git --no-pager merge",
    ]
    for command in looks + others:
        assert kit.is_looking(kit.parse_command(command)) == (command in looks), command


def test_what_counts_as_verified(world, session):
    checks = ["pytest -q", "cd src && python3 -m pytest tests/a.py", "npm run test:unit", "cargo build --release"]
    checks += ["make", "./run_tests.sh"]
    checks += ["X=1 timeout 60 uv run pytest", ".ci/run", "cat > a <<'EOF'\nx\nEOF\nbash scripts/check.sh"]
    others = ["npm install", "cargo add serde", "git commit -m 'add tests'", "ls tests"]
    others += ['git commit -am "make it right, tests fail"', "pip install pytest", "rm tests/test_x.py"]
    others += ["cat > a <<'EOF'\nmake test\nEOF", "./deploy.sh", "bash -c 'make test; true'"]
    for command in checks + others:
        session.run(command)
        session.stop()
        passed = session.state()["facts"]["passed"]
        told = " ".join(command.replace("\nx\nEOF", " …").split())
        assert (passed["command"] == told) == (command in checks), command


@pytest.mark.parametrize(
    "command, verdict",
    [
        ("cd src && pytest -k 'a && b' 2>&1", "passed"),
        ("(cd src && make test)", "passed"),
        ("make test &", "ran"),
        ("make test; echo 'a && b'", "ran"),
        ("make test || echo 'a && b'", "ran"),
        ("make test | tail", "ran"),
    ],
)
def test_a_check_passed_only_if_the_exit_code_is_its_own(command, verdict):
    assert kit.verdict_of(command, kit.parse_command(command)) == verdict


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
    kept = [words for _, words in session.state()["facts"]["requests"]]
    assert kept[0] == "ok 0" and kept[-3:] == ["ok 9997", "ok 9998", "ok 9999"]
    assert 1_000 < len(kept) < 3_000


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


def test_a_configured_window_is_never_raised(world, session):
    world.settings("monitor:\n  context_window: 100_000\n")
    session.look(tokens=150_000)
    full = measured(world, session)
    assert (full.window, full.percent) == (100_000, 100)


def test_a_measured_value_proves_a_larger_window_for_good(world, session):
    session.look(tokens=250_000)
    assert measured(world, session).window == 1_000_000
    session.write_boundary()
    session.look(tokens=30_000)
    assert measured(world, session).window == 1_000_000


def test_fullness_is_unknown_before_an_answer(world, session):
    session.prompt("x" * 900_000)
    session.prompt("And this.")  # its hook sees the row of the first
    assert not measured(world, session).is_measured


def test_directly_after_a_compaction_the_fullness_is_the_boundarys(world, session):
    session.look(tokens=160_000)
    session.write_boundary(7_000)
    session.stop()
    full = measured(world, session)
    assert (full.tokens, full.is_measured) == (7_000, True)


@pytest.mark.parametrize(
    "window, env, limit",
    [
        (200_000, {}, 167_000),
        (1_000_000, {}, 977_000),
        (32_000, {}, 16_000),  # a small one that was set can still be used
        (200_000, {"DISABLE_AUTO_COMPACT": "1"}, 0),
        (200_000, {"DISABLE_COMPACT": "true"}, 0),
        (200_000, {"DISABLE_AUTO_COMPACT": "0"}, 167_000),
        (200_000, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "150000"}, 117_000),
        (200_000, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "150k"}, 117_000),
        (200_000, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "nonsense"}, 167_000),
        (200_000, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "50000"}, 67_000),  # the client takes no less than 100,000
        (200_000, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "-150000"}, 167_000),
        (200_000, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "50"}, 90_000),
        (200_000, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "0"}, 167_000),
    ],
)
def test_where_the_client_compacts_by_itself(world, window, env, limit):
    found = kit.DIALECTS["claude"].find_limit(window, "claude-opus-4-6", world.root, dict(world.env, **env))
    assert found == limit


SAVED = {"modelSettings": {"claude-opus-5": {"autoCompactWindow": 200_000}}}  # as /autocompact 200k leaves it


@pytest.mark.parametrize(
    "user, project, local, usable",
    [
        (SAVED, {}, {}, 167_000),
        ({}, SAVED, {"autoCompactWindow": 300_000}, 267_000),  # the later file counts
        ({"autoCompactWindow": 300_000, **SAVED}, {}, {}, 167_000),  # in one file the model's own does
        (
            {"modelSettings": {"us.anthropic.claude-opus-5-20260101-v1:0": {"autoCompactWindow": 250_000}}},
            {},
            {},
            217_000,
        ),
        ({"modelSettings": {"claude-opus-4-6": {"autoCompactWindow": 200_000}}}, {}, {}, 977_000),
        (SAVED, {"modelSettings": {"claude-opus-5": {"autoCompactWindow": "auto"}}}, {}, 977_000),
        (SAVED, {}, {"autoCompactEnabled": False}, 1_000_000),
        ({"autoCompactEnabled": False}, {"autoCompactEnabled": True}, {}, 977_000),
        ({"autoCompactWindow": 5_000_000}, {}, {}, 967_000),  # what is told is never larger than the window
    ],
)
def test_the_limit_is_what_the_clients_settings_say(world, user, project, local, usable):
    write(os.path.join(world.home, "elsewhere", "settings.json"), json.dumps(user))
    world.env["CLAUDE_CONFIG_DIR"] = os.path.join(world.home, "elsewhere")
    world.write(".claude/settings.json", json.dumps(project))
    world.write(".claude/settings.local.json", json.dumps(local))
    session = world.session("s1", model="claude-opus-5")
    session.look(tokens=50_000)
    assert measured(world, session).usable == usable


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "\0",
        '{"autoCompactWindow": %s}',
        '{"modelSettings": {"claude-opus-5": {"autoCompactWindow": %s}}}',
    ]
    + [
        '{"modelSettings": %s}',
        '{"modelSettings": {"claude-opus-5": %s}}',
        '{"autoCompactWindow": "%s", "x": "' + "x" * 5_000_000,
    ],
)
def test_odd_settings_of_the_client_change_nothing(world, text):
    for value in ("0", "-200000", '"200k"', "null", "true", "1e99", "[200000]", "99999") if "%s" in text else [""]:
        write(os.path.join(world.home, ".claude", "settings.json"), text.replace("%s", value))
        session = world.session("s1", model="claude-opus-5")
        session.look(tokens=50_000)
        assert measured(world, session).usable == 977_000, value


@pytest.mark.parametrize(
    "agent, name, text, limit",
    [
        ("gemini", ".gemini/settings.json", "", 500_000),
        ("gemini", ".gemini/settings.json", '{"model": {"compressionThreshold": 0.8}}', 800_000),
        ("gemini", ".gemini/settings.json", '{"model": {"compressionThreshold": 0.8}} // mine', 800_000),
        ("gemini", ".gemini/settings.json", '{"model": {"compressionThreshold": 80}}', 500_000),
        ("gemini", ".gemini/settings.json", '{"model": {"compressionThreshold": "0.8"}}', 500_000),
        ("qwen", ".qwen/settings.json", "", 850_000),
        ("qwen", ".qwen/settings.json", '{"context": {"autoCompactThreshold": 0.6}}', 600_000),
        ("qwen", ".qwen/settings.json", '{"context": {"autoCompactThreshold": 1}}', 967_000),
        ("codex", ".codex/config.toml", "", 940_000),
        ("codex", ".codex/config.toml", 'model = "x"\nmodel_auto_compact_token_limit = 200_000\n[a]\n', 200_000),
        ("codex", ".codex/config.toml", "[a]\nmodel_auto_compact_token_limit = 200000\n", 940_000),
        ("codex", ".codex/config.toml", "model_auto_compact_token_limit = 0\n", 940_000),
        ("codex", ".codex/config.toml", "model_auto_compact_token_limit = 99000000\n", 940_000),
        ("copilot", ".copilot/settings.json", "", 800_000),
    ],
)
@pytest.mark.parametrize("scope", ["home", "root"])
def test_the_other_clients_limits_follow_their_settings(world, agent, name, text, limit, scope):
    write(os.path.join(getattr(world, scope), name), text)
    assert kit.DIALECTS[agent].find_limit(1_000_000, "", world.root, world.env) == limit


def test_qwen_keeps_room_for_its_summary_in_a_small_window(world):
    assert kit.DIALECTS["qwen"].find_limit(131_072, "", world.root, world.env) == 98_072


def compact_at(session, tokens, **more):
    session.look(tokens=tokens)
    meta = {"trigger": "auto", "preTokens": tokens, "postTokens": 5_000, **more}
    session.row(type="system", subtype="compact_boundary", compactMetadata=meta)
    session.start("compact")


def test_an_automatic_compaction_teaches_the_limit_to_this_session_and_the_next_ones_of_the_model(world):
    session = world.session("s1", model="claude-opus-5")
    compact_at(session, 172_000)
    session.look(tokens=30_000)
    assert measured(world, session).usable == 172_000
    for name, model, usable in (("s2", "claude-opus-5", 172_000), ("s3", "claude-opus-4-7", 977_000)):
        session = world.session(name, model=model)
        session.look(tokens=30_000)
        assert measured(world, session).usable == usable


@pytest.mark.parametrize(
    "more", [{"trigger": "manual"}, {"precomputed": True}, {"preTokens": "172000"}, {"preTokens": -5}]
)
def test_a_compaction_by_hand_or_prepared_while_the_person_was_away_teaches_nothing(world, more):
    session = world.session("s1", model="claude-opus-5")
    compact_at(session, 172_000, **more)
    session.look(tokens=30_000)
    assert measured(world, session).usable == 977_000


def test_a_limit_that_the_client_answers_above_is_forgotten(world):
    session = world.session("s1", model="claude-opus-5")
    compact_at(session, 172_000)
    session.look(tokens=175_000)  # with this one it might compact
    assert measured(world, session).usable == 172_000
    session.look(tokens=176_000)
    assert measured(world, session).usable == 977_000
    session = world.session("s2", model="claude-opus-5")
    session.look(tokens=30_000)
    assert measured(world, session).usable == 977_000
