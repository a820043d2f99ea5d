"""The handoff arrives as startup context; the client's receipt ends the delivery, else it is retried and written."""

from __future__ import annotations

import pytest

OPEN = "[CONTEXT INJECTION - Please acknowledge receipt]"
CLOSE = '[END CONTEXT - Reply "ACK: context received" to confirm]'
NOTICE = "[System] Session context written to CLAUDE.md - please review"
SECTION = "<!-- STARTUP_CONTEXT_INJECTION -->"
ACK = "ACK: context received. Going on."
GOAL = "Teach the parser about quotes."
OWN_TEXT = "# Our rules\n\nUse tabs.\n"
NO_TRANSCRIPT = ("--no-session-persistence",)  # the client keeps none, so there is never a receipt


@pytest.fixture
def handed(kit):
    """A project with a handoff that was written after the kit had seen its first event here."""
    kit.stub.script("hello")
    kit.run("the kit's first session")
    kit.stub.requests.clear()
    kit.write(".claude/ll-continue-prompt.md", "# Goal\n%s\n\n# Next steps\n1. tests\n" % GOAL)
    return kit


def metrics(kit, *names):
    found = kit.json(".context/metrics.json")
    return tuple(found[name] for name in names)


def opened(kit, start=0):
    return [r.news().count(OPEN) for r in kit.stub.of("main")[start:]]


def prompt_until_written(kit, session):
    """Prompts, answered without an acknowledgement, until CLAUDE.md has the section."""
    for number in range(1, 9):
        kit.stub.script("I see.")
        session.prompt("prompt %d" % number)
        if SECTION in kit.read("CLAUDE.md"):
            return
    raise AssertionError("CLAUDE.md was never written; metrics: %s" % kit.read(".context/metrics.json"))


def test_an_acknowledged_handoff_is_delivered_once_and_counted_as_first_try(handed):
    handed.stub.script(ACK, "done", "done")
    handed.run("first prompt", "second prompt", "third prompt")
    first = handed.stub.of("main")[0]
    assert GOAL in first.news() and CLOSE in first.news() and first.count(OPEN) == 1
    assert opened(handed) == [1, 0, 0]
    assert metrics(handed, "attempted", "succeededOnFirstTry", "succeededAfterRetry") == (1, 1, 0)
    assert not handed.path("CLAUDE.md").exists()


def test_the_clients_receipt_ends_the_delivery_without_any_acknowledgement(handed):
    handed.write("CLAUDE.md", OWN_TEXT)
    handed.write(".contextrc", "startup:\n  retry_backoffs_s: [0, 0, 0, 0, 0]\n")
    handed.stub.script("I see.", "I see.", "I see.", "I see.")
    handed.run("first prompt", "second prompt", "third prompt")
    handed.run("a new session")
    assert opened(handed) == [1, 0, 0, 0]
    assert metrics(handed, "attempted", "succeededOnFirstTry", "confirmedByReceipt", "escalatedToFile") == (1, 1, 1, 0)
    assert handed.read("CLAUDE.md") == OWN_TEXT


def test_without_a_transcript_the_acknowledgement_ends_the_delivery(handed):
    handed.write(".contextrc", "startup:\n  retry_backoffs_s: [0, 0, 0, 0, 0]\n")
    handed.stub.script("hello", ACK, "done")
    handed.run("first prompt", "second prompt", "third prompt", arguments=NO_TRANSCRIPT)
    assert opened(handed) == [1, 1, 0]
    assert metrics(handed, "attempted", "succeededOnFirstTry", "succeededAfterRetry") == (1, 0, 1)


def test_with_neither_the_context_goes_into_the_file_until_a_late_acknowledgement(handed):
    handed.write("CLAUDE.md", OWN_TEXT)
    handed.write(".contextrc", "startup:\n  retry_backoffs_s: [0, 0, 0, 0, 0]\n")
    with handed.session(*NO_TRANSCRIPT) as session:
        prompt_until_written(handed, session)
        written = handed.read("CLAUDE.md")
        handed.stub.script("hm", "hm", ACK, "done")
        for text in ("go on", "and on", "please confirm", "the end"):
            session.prompt(text)
    assert sum(opened(handed)) == 3
    assert sum(r.news().count(NOTICE) for r in handed.stub.of("main")) == 1
    assert "## Session Context (Auto-Injected)" in written and GOAL in written and OWN_TEXT in written
    assert handed.read("CLAUDE.md") == OWN_TEXT and metrics(handed, "escalatedToFile") == (1,)


def test_the_section_in_the_file_goes_with_the_receipt_of_a_later_delivery(handed):
    handed.write("CLAUDE.md", OWN_TEXT)
    handed.write(".contextrc", "startup:\n  retry_backoffs_s: [0, 0, 0, 0, 0]\n")
    with handed.session(*NO_TRANSCRIPT) as session:
        prompt_until_written(handed, session)
    assert SECTION in handed.read("CLAUDE.md")
    handed.stub.script("hm", "hm", "hm")
    handed.run("a new session", "and on", "and its end")
    assert "## Session Context (Auto-Injected)" in handed.stub.of("main")[-3].text()
    assert handed.read("CLAUDE.md") == OWN_TEXT


def test_a_prompt_that_quotes_the_acknowledgement_does_not_count_as_one(handed):
    handed.write(".contextrc", "startup:\n  retry_backoffs_s: [0, 0, 0, 0, 0]\n")
    handed.stub.script("hello", "hello")
    handed.run("what does ACK: context received mean?", "second prompt", arguments=NO_TRANSCRIPT)
    assert opened(handed) == [1, 1]
