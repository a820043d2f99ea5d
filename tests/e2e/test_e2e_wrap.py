"""`wrap` with real programs in a pseudo-terminal, against a stub model on loopback: program × situation."""

from __future__ import annotations

import time

import pytest

import real_client
import wrapped
from stub_wires import Say
from wrapped import ACK, GOAL, RAN, REQUEST

CASES = [(name, situation) for name, program in wrapped.PROGRAMS.items() for situation in program.situations]


@pytest.fixture(scope="module")
def closed_network():
    """Everything is installed by now; from here on nothing but loopback is there."""
    if not real_client.is_isolated() and not real_client.isolate():
        pytest.skip("e2e: the network cannot be closed off here, and these programs would use it")


@pytest.fixture
def start(closed_network, tmp_path):
    """start(program, …) -> a Desk; a program that cannot be had skips the test with a sentence."""
    desks = []

    def begin(name, **options):
        found = wrapped.install(name)
        if isinstance(found, Exception):
            pytest.skip(str(found))
        desks.append(wrapped.Desk(tmp_path, name, **options))
        return desks[-1]

    yield begin
    for desk in desks:
        desk.close()


def look_away(desk, seconds=3.0):
    """Time for a detector that is wrong to show it."""
    time.sleep(seconds)
    return desk.rows()


def untouched_question(desk):
    """A question stands there, and after a while still does, with nothing decided about it."""
    desk.until(lambda: desk.obstacle() == "a question", "a question on the screen")
    before, text = desk.rows(), desk.shown()
    desk.asked += 1
    if look_away(desk) != before or desk.obstacle() != "a question":
        desk.touched += 1
    assert not desk.touched, "it was:\n%s\nnow it is:\n%s\n%s" % (text, desk.shown(), desk.rows())


def delivered_once(desk):
    """Acknowledged at the first attempt: typed and submitted once, and the model has it."""
    desk.told("injection:succeeded")
    assert [row["attempt"] for row in desk.rows("injection:attempted")] == [1]
    assert desk.stub.holds(GOAL)
    assert not (desk.project / desk.program.file).exists()


def trust_dialog(start, name):
    desk = start(name, trusted=False)
    untouched_question(desk)
    assert not desk.stub.requests  # Codex takes a text before it asks, and keeps it until then
    desk.press(desk.program.trust_keys)
    delivered_once(desk)
    return desk


def trusted(start, name):
    desk = start(name)
    if name in wrapped.MODELLESS:
        desk.told("wrap:submitted")
        desk.told("injection:escalated")  # nobody in there acknowledges anything
        assert GOAL in desk.read("CLAUDE.md")
    else:
        delivered_once(desk)
    return desk


def slow_start(start, name):
    desk = start(name, slow="4")
    desk.until(lambda: "Loading" in desk.shown(), "the first words")
    assert not look_away(desk)
    delivered_once(desk)
    return desk


def approval(start, name):
    """The agent wants to run something: asked for by the person's prompt, or while it answers us."""
    program = wrapped.PROGRAMS[name]
    mark = REQUEST if program.prompt_arguments else GOAL

    def answer(text):
        if mark in text and program.tool_result not in text:
            return Say(program.said, program.tool)
        return Say(ACK if GOAL in text else "It ran.")

    desk = start(name, asks=True, answer=answer)
    untouched_question(desk)
    assert not (desk.project / RAN).exists()
    desk.press(program.approve_keys)
    desk.until((desk.project / RAN).exists, "what the person approved")
    if program.prompt_arguments:
        delivered_once(desk)
    else:
        desk.told("injection:escalated")  # it said nothing more, so the file has it
    return desk


def late_answer(start, name):
    desk = start(name, answer=lambda text: Say(ACK, delay_s=20 if GOAL in text else 0))
    delivered_once(desk)
    return desk


def no_acknowledgement(start, name):
    desk = start(name, answer=lambda text: Say("Fine, what next?"))
    desk.told("injection:escalated")
    assert GOAL in desk.read(desk.program.file) and ACK not in desk.read(desk.program.file)
    desk.until(lambda: desk.stub.holds("Session context written to " + desk.program.file), "the notice")
    assert len(desk.rows("injection:attempted")) == 1
    return desk


def never(start, name):
    desk = start(name, options=["--timeout", "4"])
    desk.until(lambda: desk.raw, "the program's screen")
    desk.told("injection:escalated")
    assert desk.rows("wrap:timeout") and not desk.rows("injection:attempted") and "CONTEXT" not in desk.shown()
    assert GOAL in desk.read("CLAUDE.md")
    before = desk.read("notes.txt")
    desk.press(desk.program.quit_keys)
    desk.ends()
    assert desk.read("notes.txt") == before
    assert b"ctx: the agent did not take the context (not ready in time); it is now in CLAUDE.md" in desk.raw
    return desk


SITUATIONS = {
    "trust dialog": trust_dialog, "trusted": trusted, "slow start": slow_start, "approval": approval,
    "20 s answer": late_answer, "no acknowledgement": no_acknowledgement, "never": never,
}


@pytest.mark.parametrize("name, situation", CASES)
def test_wrap_delivers_and_answers_no_question(start, name, situation):
    desk = SITUATIONS[situation](start, name)
    wrapped.note(situation, desk)


@pytest.mark.parametrize("name", ["vim", "less"])
def test_an_editor_or_a_pager_as_the_command_is_refused(start, name):
    desk = start(name, direct=True)
    desk.process.wait(wrapped.ANSWER_S)
    desk.until(lambda: b"hint: " in desk.raw, "the hint")
    assert desk.process.returncode == 1 and b"is an editor or a pager" in desk.raw
