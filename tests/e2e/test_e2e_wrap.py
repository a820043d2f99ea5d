"""`wrap` with real programs in a pseudo-terminal, against a stub model on loopback: program x situation."""

from __future__ import annotations

import pytest

import real_client
import wrapped
from wrapped import ACK, GOAL, POLLING_AGENT, RAN, SMALL_AGENT, Desk

RUN_IT = "Run this:\n\n```bash\ntouch %s\n```\n" % RAN
NO_ACK = "Fine, what next?"


@pytest.fixture(scope="module")
def closed_network():
    """Everything is installed by now; from here on nothing but loopback is there."""
    if not real_client.isolate():
        pytest.skip("e2e: the network cannot be closed off here, and these programs would use it")


@pytest.fixture
def start(closed_network, tmp_path, request, note):
    """start(program, …) -> a Desk; a program that cannot be had skips the test with a sentence."""
    world = real_client.World(tmp_path, "sh")
    world.git("init", "-q")
    world.git("config", "user.name", "user")
    world.git("config", "user.email", "user@localhost")

    def begin(name, **situation):
        if name not in wrapped.PATHS:
            pytest.skip("e2e: %s cannot be had here" % name)
        return Desk(world, name, **situation)

    yield begin
    for desk in world.open:
        note("wrap: %s: %s" % (request.node.name, desk.outcome()))
    world.close()


def delivered_once(desk):
    desk.told("injection:succeeded")
    assert [row["attempt"] for row in desk.rows("injection:attempted")] == [1]
    assert len(desk.rows("wrap:submitted")) == 1 and not desk.read("AGENTS.md")


def went_into_the_file(desk):
    desk.told("injection:escalated")
    assert GOAL in desk.read("AGENTS.md") and ACK not in desk.read("AGENTS.md")


SITUATIONS = {"at its prompt": {}, "slow start": {"slow_s": 4}, "20 s of answer": {"think_s": 20}}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", [SMALL_AGENT, POLLING_AGENT, "aider"])
def test_the_context_that_arrives_is_acknowledged(start, name, situation):
    desk = start(name, **SITUATIONS[situation])
    delivered_once(desk)
    assert name != "aider" or any(GOAL in request.text() for request in desk.world.stub.requests)
    desk.quits()


@pytest.mark.parametrize("prompt", ["a greeting", "a taught prompt"])
@pytest.mark.parametrize("name", [SMALL_AGENT, POLLING_AGENT])
def test_a_greeting_and_a_taught_prompt_are_prompts(start, name, prompt):
    desk = start(name, prompt=prompt)
    delivered_once(desk)
    desk.quits()


@pytest.mark.parametrize("name", [SMALL_AGENT, POLLING_AGENT, "aider"])
def test_without_an_acknowledgement_it_goes_into_the_file(start, name):
    desk = start(name, answer=NO_ACK)
    went_into_the_file(desk)
    desk.wait_shown("Session context written to AGENTS.md - please review")


@pytest.mark.parametrize("asks", wrapped.ASKS)
@pytest.mark.parametrize("name", [SMALL_AGENT, POLLING_AGENT])
def test_a_question_waits_for_the_person(start, name, asks):
    _, asked, word = wrapped.ASKS[asks]
    desk = start(name, asks=asks)
    desk.wait_shown(asked)
    desk.stays_untouched(lambda: desk.read("answer.txt"))
    desk.press(word + "\r")
    delivered_once(desk)
    assert desk.read("answer.txt") == word


def test_the_question_of_aider_at_its_start_waits_for_the_person(start):
    desk = start("aider", asks="gitignore")
    desk.wait_shown("(Y)es/(N)o")
    desk.stays_untouched(lambda: desk.read(".gitignore"))
    desk.press("n\r")
    delivered_once(desk)
    assert ".aider" not in desk.read(".gitignore")


def test_a_command_that_aider_wants_to_run_waits_for_the_person(start):
    desk = start("aider", answer=RUN_IT)
    desk.wait_shown("(Y)es/(N)o")
    desk.told("wrap:submitted")
    desk.stays_untouched(lambda: desk.world.path(RAN).exists())
    desk.press("n\r")
    went_into_the_file(desk)
    assert not desk.world.path(RAN).exists()


@pytest.mark.parametrize("name", ["python3", "ipython", "cat"])
def test_a_program_without_a_model_never_acknowledges(start, name):
    desk = start(name)
    desk.told("wrap:submitted")
    went_into_the_file(desk)


@pytest.mark.parametrize("name", wrapped.QUIT_KEYS)
def test_nothing_is_typed_into_a_screen(start, name):
    desk = start(name, timeout_s=4)
    before = desk.read("notes.txt")
    went_into_the_file(desk)
    desk.quits()
    assert "CONTEXT INJECTION" not in desk.shown() and not desk.rows("wrap:typed")
    assert desk.read("notes.txt") == before
    assert "not ready in time; it is in AGENTS.md; the next session gets it\r\n" in desk.shown()
