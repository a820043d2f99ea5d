"""What only the terminal UI shows: the few lines that a person sees, and nothing else of ours."""

from __future__ import annotations

import contextlib
import re

from agents import FULL, NEAR, OWN, WAITS, Agent, bash, edit, said
from real_client import BYPASS, READY, wait_until
from stub_model import Turn

NOT_FOR_SCREENS = ("hook error", "ACK", "acknowledge", "STOP. Read", "additional context", "BEGIN HANDOFF", "Traceback")
PINS = "Keep these words of the person verbatim in the summary"


@contextlib.contextmanager
def at_the_prompt(kit, mode=BYPASS, ready=READY):
    """The client in a terminal, left with /exit; nothing of ours was on the screen that is not for a person."""
    with kit.terminal(mode) as terminal:
        terminal.wait_shown(ready)
        yield terminal
    shown = terminal.shown()
    assert not [words for words in NOT_FOR_SCREENS if words in shown], shown[-3000:]


def ask(terminal, prompt, answer):
    before = len(terminal.raw)
    terminal.type(prompt)
    terminal.wait_shown(answer, since=before)


def lines_of_ours(terminal):
    """How our lines to the person begin, each once, in their order: the UI redraws and wraps them."""
    return list(dict.fromkeys(re.findall(r"ctx: \S+ \S+ \S+", terminal.shown())))


def test_over_a_whole_life_a_person_sees_one_line_for_each_thing(kit):
    kit.leave_handoff(OWN)
    steps = [edit(kit, "parser.py", tokens=NEAR), bash("echo two", tokens=NEAR), WAITS]
    steps += [Turn("The parser is built.", tokens=FULL), Turn("a last answer", tokens=FULL)]
    kit.stub.script(otherwise=Agent(steps))
    with at_the_prompt(kit) as terminal:
        ask(terminal, "Build the parser.", "The parser is built.")
        kit.signal("The disk is full.", severity="critical")
        ask(terminal, "And the disk?", "a last answer")
    shown = lines_of_ours(terminal)
    assert re.sub(r"of \d\d:\d\d", "of HH:MM", "|".join(shown)) == (
        "ctx: hooks are on;|ctx: handoff of HH:MM|ctx: context 89% full,|ctx: handoff written; /clear|ctx: The disk is"
    )
    assert kit.left_behind() == []


def test_compaction_shows_the_person_no_command_of_ours(kit):
    kit.stub.script(edit(kit, "parser.py"), "the answer", Turn("too much", tokens=172_000), "a last answer")
    with at_the_prompt(kit) as terminal:
        ask(terminal, "Build the parser.", "the answer")
        ask(terminal, "/compact", "Compacted")
        ask(terminal, "go on", "too much")
        ask(terminal, "and on", "a last answer")
    by_hand, by_itself = kit.stub.of("compact")
    assert PINS not in by_hand.text() and PINS in by_itself.text()
    shown = terminal.shown()
    assert "PreCompact [" not in shown and "Keep these words" not in shown  # as the client shows a hook's output
    assert {line[:15] for line in lines_of_ours(terminal)} <= {"ctx: hooks are ", "ctx: handoff of", "ctx: context 10"}


def test_a_workflow_shows_the_person_who_types_one_line_for_each_round(kit):
    kit.write("check.sh", "test -e parser.txt\n")
    kit.ctx("auto", "start", "Add a parser", "--until", "sh check.sh")
    done = Turn("Finished now.", act=lambda _: kit.write("parser.txt", ""))
    kit.stub.script("not yet finished", done)
    with at_the_prompt(kit, "default", "for shortcuts") as terminal:
        ask(terminal, "go ahead", "Finished now.")
        wait_until(lambda: kit.json(".caw/auto-state.json")["phase"] == "complete", "the end of the workflow")
        terminal.wait_shown("done after 2 rounds")
    assert lines_of_ours(terminal)[-2:] == ["ctx: `sh check.sh` exits", "ctx: `sh check.sh` passes;"]
    first, second = kit.stub.of("main")
    assert "Add a parser" in first.news() and "`sh check.sh` exits 1, round 1 of 20" in second.news()


def test_with_the_rule_of_the_installer_nobody_is_asked_about_the_handoff(kit):
    kit.install("--allow-handoff")
    steps = [bash("echo one", tokens=FULL), WAITS, Turn("It is written.", tokens=FULL)]
    kit.stub.script(otherwise=Agent(steps))
    with at_the_prompt(kit, "default", "for shortcuts") as terminal:
        ask(terminal, "work now", "It is written.")
    assert "Do you want to create" not in terminal.shown() and list(kit.handoffs().values()) == [OWN]


def test_words_typed_after_an_interrupted_call_count(kit):
    kit.stub.script(edit(kit, "one.py"), bash("echo waiting > waits; sleep 60"), "I see.")
    with at_the_prompt(kit) as terminal:
        terminal.type("Build the parser.")
        wait_until(kit.path("waits").exists, "the call that is under way")
        terminal.answer("\x1b", "nterrupted")
        ask(terminal, "Never wait that long.", "I see.")
    (text,) = kit.handoffs().values()
    assert "> Build the parser." in text and "> Never wait that long." in text


def test_the_statusline_hands_the_window_to_the_monitor(kit):
    kit.install("--statusline")
    kit.stub.model = "claude-opus-5-5"
    answers = [Turn(words, tokens=420_000) for words in ("the answer", "one more")]
    calls = [bash("echo %d" % number, tokens=420_000) for number in range(3)]  # the transcript may lag behind the first
    kit.stub.script(*calls, *answers)
    with at_the_prompt(kit) as terminal:
        ask(terminal, "work now", "the answer")
        ask(terminal, "go on", "one more")  # the client may cancel a status line that is under way
        terminal.wait_shown("42%", "43%", " 42", " 43")  # the client may draw only what is new of a line
        assert "1000000" in kit.ctx("status", "--json")
    assert kit.state(kit.newest_id())["window_told"] == 1_000_000
    assert any(said(kit, "of 977,000 usable tokens"))
