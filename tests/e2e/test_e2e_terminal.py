"""What only the terminal UI shows: the few lines that a person sees, and nothing else of ours."""

from __future__ import annotations

import json
import re

from agents import FULL, NEAR, WAITS, Agent, bash, complete, edit
from real_client import READY, wait_until
from stub_model import Turn

OWN = "# Goal\nThe parser knows quotes.\n# Next steps\n1. escape sequences\n"
ASKS = "Do you want to create"
NOT_FOR_SCREENS = ("hook error", "ACK", "acknowledge", "STOP. Read", "additional context", "BEGIN HANDOFF", "Traceback")


def lines_of_ours(terminal, since=0):
    """How our lines to the person begin, each once, in their order: the UI redraws and wraps them."""
    return list(dict.fromkeys(re.findall(r"ctx(?: auto)?: \S+ \S+ \S+", terminal.shown(since))))


def assert_clean(terminal, since=0):
    shown = terminal.shown(since)
    assert not [words for words in NOT_FOR_SCREENS if words in shown], shown[-3000:]


def test_over_a_whole_life_a_person_sees_one_line_for_each_thing(kit):
    kit.leave_handoff(OWN)
    steps = [edit(kit, "parser.py", "x = 1\n", tokens=NEAR), bash("echo two", tokens=NEAR), WAITS]
    steps += [Turn("The parser is built.", tokens=FULL), Turn("a last answer", tokens=FULL)]
    kit.stub.script(otherwise=Agent(kit, steps, OWN))
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("Build the parser.")
        terminal.wait_shown("The parser is built.")
        kit.signal("The disk is full.", severity="critical")
        terminal.type("And the disk?")
        terminal.wait_shown("a last answer")
    shown = lines_of_ours(terminal)
    assert re.sub(r"of \d\d:\d\d", "of HH:MM", "|".join(shown)) == (
        "ctx: hooks are on;|ctx: handoff of HH:MM|ctx: context 89% full,|ctx: handoff written; /clear|ctx: The disk is"
    )
    assert_clean(terminal)
    assert kit.left_behind() == []


def test_compaction_shows_the_person_no_command_of_ours(kit):
    kit.stub.script(edit(kit, "parser.py", "x = 1\n"), "the answer", Turn("too much", tokens=172_000), "a last answer")
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("Build the parser.")
        terminal.wait_shown("the answer")
        before = len(terminal.raw)
        terminal.type("/compact")
        terminal.wait_shown("Compacted", since=before)
        terminal.type("go on")
        terminal.wait_shown("too much")
        terminal.type("and on")
        terminal.wait_shown("a last answer")
    assert len(kit.stub.of("compact")) == 2
    shown = terminal.shown(before)
    assert "PreCompact [" not in shown and "Keep these words" not in shown  # as the client shows a hook's output
    assert {line[:15] for line in lines_of_ours(terminal)} <= {"ctx: hooks are ", "ctx: handoff of", "ctx: context 10"}
    assert_clean(terminal, before)


def test_a_workflow_binds_to_the_person_who_types_and_holding_is_feedback_and_no_error(kit):
    kit.ctx("auto", "start", "Add a parser", "--until", "true")
    kit.stub.script("not yet finished", complete("execution", text="Finished now."))
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("go ahead")
        terminal.wait_shown("Finished now.")
        wait_until(lambda: kit.json(".caw/auto-state.json")["phase"] == "complete", "the end of the workflow")
        terminal.wait_shown("ctx auto: the workflow passed")
    first, second = kit.stub.of("main")
    assert "Add a parser" in first.news() and "## Auto Mode Continuation" in second.news()
    assert_clean(terminal)


def test_with_the_rule_of_the_installer_nobody_is_asked_about_the_handoff(kit):
    kit.install("--allow-handoff")
    kit.stub.script(
        otherwise=Agent(kit, [bash("echo one", tokens=FULL), WAITS, Turn("It is written.", tokens=FULL)], OWN)
    )
    with kit.terminal(mode="default") as terminal:
        terminal.wait_shown("for shortcuts")
        terminal.type("work now")
        terminal.wait_shown("It is written.")
    assert ASKS not in terminal.shown() and list(kit.handoffs().values()) == [OWN]
    assert_clean(terminal)


def test_a_person_who_says_no_to_the_file_gets_a_handoff_all_the_same(kit):
    kit.stub.script(otherwise=Agent(kit, [bash("echo 1 > one.txt"), WAITS, "All right."], OWN))
    with kit.terminal("--allowedTools", "Bash", mode="default") as terminal:
        terminal.wait_shown("for shortcuts")
        terminal.type("work now")
        terminal.wait_shown(ASKS)
        terminal.answer("3", "ejected")
        before = len(terminal.raw)
        terminal.type("go on")
        terminal.wait_shown("All right.", since=before)
    (text,) = kit.handoffs().values()
    assert "made by ctx_hooks" in text and "> work now" in text
    assert_clean(terminal)


def test_an_interrupted_call_is_no_end_and_the_words_typed_meanwhile_count(kit):
    kit.stub.script(edit(kit, "one.py", "x = 1\n"), bash("echo waiting > waits; sleep 60"), "I see.")
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("Build the parser.")
        wait_until(kit.path("waits").exists, "the call that is under way")
        terminal.answer("\x1b", "nterrupted")
        terminal.type("Never wait that long.")
        terminal.wait_shown("I see.")
    (text,) = kit.handoffs().values()
    assert "> Build the parser." in text and "> Never wait that long." in text
    assert_clean(terminal)


def test_the_statusline_shows_the_fullness_and_hands_the_window_to_the_monitor(kit):
    kit.install("--statusline")
    kit.stub.model = "claude-opus-5-5"
    kit.stub.script(
        bash("echo a", tokens=420_000), Turn("the answer", tokens=420_000), Turn("one more", tokens=420_000)
    )
    with kit.terminal() as terminal:
        terminal.wait_shown(READY)
        terminal.type("work now")
        terminal.wait_shown("the answer")
        terminal.type("go on")  # the client may cancel a status line that is under way
        terminal.wait_shown("one more")
        terminal.wait_shown("42%", "43%")
        session = kit.newest_id()
        status = json.loads(kit.ctx("status", "--json").stdout)
    assert "1000000" in json.dumps(status) and kit.state(session)["window_told"] == 1_000_000
    assert_clean(terminal)
