"""`wrap` with real programs in a pseudo-terminal, against a stub model on loopback: program x situation."""

from __future__ import annotations

import pytest

import real_client
import wrapped
from wrapped import ACK, GOAL, RAN, TYPED

RUN_IT = "Run this:\n\n```bash\ntouch %s\n```\n" % RAN
NO_ACK = "Fine, what next?"


@pytest.fixture(scope="module")
def closed_network():
    """Everything is installed by now; from here on nothing but loopback is there."""
    if not real_client.isolate():
        pytest.skip("e2e: the network cannot be closed off here, and these programs would use it")


@pytest.fixture
def start(closed_network, tmp_path):
    """start(program, …) -> a Desk; a program that cannot be had skips the test with a sentence."""
    desks = []

    def begin(name, **situation):
        found = wrapped.install(name)
        if isinstance(found, Exception):
            pytest.skip(str(found))
        desks.append(wrapped.Desk(tmp_path, name, **situation))
        return desks[-1]

    yield begin
    for desk in desks:
        desk.close()


def delivered_once(desk):
    desk.told("injection:succeeded")
    assert [row["attempt"] for row in desk.rows("injection:attempted")] == [1]
    assert len(desk.rows("wrap:submitted")) == 1 and not desk.read("AGENTS.md")


def went_into_the_file(desk):
    desk.told("injection:escalated")
    assert GOAL in desk.read("AGENTS.md") and ACK not in desk.read("AGENTS.md")


@pytest.mark.parametrize("situation, options", [
    ("at its prompt", {}), ("slow start", {"slow": "4"}), ("20 s of answer", {"think_s": 20})])
@pytest.mark.parametrize("name", ["small agent", "aider"])
def test_the_context_arrives_and_is_acknowledged(start, name, situation, options):
    desk = start(name, **options)
    delivered_once(desk)
    assert name != "aider" or desk.stub.holds(GOAL)
    desk.quits()
    desk.note(situation)


@pytest.mark.parametrize("name", ["small agent", "aider"])
def test_without_an_acknowledgement_it_goes_into_the_file(start, name):
    desk = start(name, answer=NO_ACK)
    went_into_the_file(desk)
    notice = "Session context written to AGENTS.md - please review"
    desk.shows(notice.encode())
    desk.note("no acknowledgement")


@pytest.mark.parametrize("asks", wrapped.ASKS)
def test_a_question_waits_for_the_person(start, asks):
    _, asked, answer, word = wrapped.ASKS[asks]
    desk = start("small agent", asks=asks)
    desk.shows(asked)
    desk.stays_untouched(lambda: desk.read("answer.txt"))
    desk.press(answer)
    delivered_once(desk)
    assert desk.read("answer.txt") == word
    desk.note(asks)


def test_the_question_of_aider_at_its_start_waits_for_the_person(start):
    desk = start("aider", asks="gitignore")
    desk.shows(b"(Y)es/(N)o")
    desk.stays_untouched(lambda: desk.read(".gitignore"))
    desk.press(b"n\r")
    delivered_once(desk)
    assert ".aider" not in desk.read(".gitignore")
    desk.note("asks at its start")


def test_a_command_that_aider_wants_to_run_waits_for_the_person(start):
    desk = start("aider", answer=RUN_IT)
    desk.shows(b"(Y)es/(N)o")
    desk.told("wrap:submitted")
    desk.stays_untouched(lambda: (desk.project / RAN).exists())
    desk.stays_untouched(lambda: (desk.project / RAN).exists())
    desk.press(b"n\r")
    went_into_the_file(desk)
    assert not (desk.project / RAN).exists()
    desk.note("wants to run something")


@pytest.mark.parametrize("name", ["python3", "ipython", "cat"])
def test_a_program_without_a_model_takes_it_and_never_acknowledges(start, name):
    desk = start(name)
    desk.told("wrap:submitted")
    went_into_the_file(desk)
    desk.note("nobody answers")


@pytest.mark.parametrize("name", ["vim", "less", "top"])
def test_nothing_is_typed_into_a_screen(start, name):
    desk = start(name, timeout=4)
    desk.until(lambda: desk.raw, "its screen")
    went_into_the_file(desk)
    before = desk.read("notes.txt")
    desk.quits()
    assert TYPED not in desk.raw and not desk.rows("wrap:typed")
    assert desk.read("notes.txt") == before
    assert b"not ready in time\r\n" in desk.raw and b"it is in AGENTS.md" in desk.raw
    desk.note("takes keys as commands")


def test_a_stopped_program_gives_the_persons_shell_its_terminal_back(start):
    desk = start("small agent", shell=True)
    desk.shows(b"Welcome")
    desk.press(b"\x1a")
    desk.shows(b"Stopped")
    desk.press(b"echo shell-$((1+1)); stty -a | grep -c ' icanon'\r")
    desk.shows(b"shell-2\r\n1")
    desk.press(b"fg\r")
    delivered_once(desk)
    desk.press(b"\x04")
    desk.shows(b"EOFError")
    desk.press(b"exit 0\r")
    assert desk.process.wait(wrapped.ANSWER_S) == 0
    desk.note("^Z and fg")
