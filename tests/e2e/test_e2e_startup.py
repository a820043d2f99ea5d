"""Scenario 4: the handoff arrives as startup context; acknowledged, retried, or written into CLAUDE.md."""

from __future__ import annotations

import pytest

OPEN = "[CONTEXT INJECTION - Please acknowledge receipt]"
CLOSE = '[END CONTEXT - Reply "ACK: context received" to confirm]'
NOTICE = "[System] Session context written to CLAUDE.md - please review"
SECTION = "<!-- STARTUP_CONTEXT_INJECTION -->"
ACK = "ACK: context received. Going on."
GOAL = "Teach the parser about quotes."
OWN_TEXT = "# Our rules\n\nUse tabs.\n"


@pytest.fixture
def handed(kit):
    kit.write(".claude/ll-continue-prompt.md", "# Goal\n%s\n\n# Next steps\n1. tests\n" % GOAL)
    return kit


def prompt_until_written(kit, session):
    """Prompts, answered without an acknowledgement, until CLAUDE.md has the section; the number of prompts."""
    for number in range(1, 9):
        kit.stub.script("I see.")
        session.prompt("prompt %d" % number)
        if SECTION in kit.read("CLAUDE.md"):
            return number
    raise AssertionError("CLAUDE.md was never written; metrics: %s" % kit.read(".context/metrics.json"))


def test_an_acknowledged_handoff_is_delivered_once_and_counted_as_first_try(handed):
    handed.stub.script(ACK, "done", "done")
    handed.run("first prompt", "second prompt", "third prompt")
    first, second, third = handed.stub.of("main")
    assert OPEN in first.news() and GOAL in first.news() and CLOSE in first.news() and first.count(OPEN) == 1
    assert OPEN not in second.news() and OPEN not in third.news()
    metrics = handed.json(".context/metrics.json")
    assert (metrics["attempted"], metrics["succeededOnFirstTry"], metrics["succeededAfterRetry"]) == (1, 1, 0)
    assert not handed.path("CLAUDE.md").exists()


def test_an_acknowledgement_after_a_retry_is_counted_as_such(handed):
    handed.write(".contextrc", "startup:\n  retry_backoffs_s: [0, 0, 0, 0, 0]\n")
    handed.stub.script("hello", ACK, "done")
    handed.run("first prompt", "second prompt", "third prompt")
    assert [r.news().count(OPEN) for r in handed.stub.of("main")] == [1, 1, 0]
    metrics = handed.json(".context/metrics.json")
    assert (metrics["attempted"], metrics["succeededOnFirstTry"], metrics["succeededAfterRetry"]) == (1, 0, 1)


def test_without_acknowledgement_the_context_goes_into_the_file_until_a_late_one(handed):
    handed.write("CLAUDE.md", OWN_TEXT)
    handed.write(".contextrc", "startup:\n  retry_backoffs_s: [0, 0, 0, 0, 0]\n")
    with handed.session() as session:
        prompt_until_written(handed, session)
        written = handed.read("CLAUDE.md")
        handed.stub.script("hm", "hm", ACK, "done")
        for text in ("go on", "and on", "please confirm", "the end"):
            session.prompt(text)
    requests = handed.stub.of("main")
    assert sum(r.news().count(OPEN) for r in requests) == 3
    assert sum(r.news().count(NOTICE) for r in requests) == 1
    assert "## Session Context (Auto-Injected)" in written and GOAL in written and OWN_TEXT in written
    assert handed.read("CLAUDE.md") == OWN_TEXT
    assert handed.json(".context/metrics.json")["escalatedToFile"] == 1


def test_the_section_in_the_file_reaches_the_next_session_and_goes_when_that_one_acknowledges(handed):
    handed.write("CLAUDE.md", OWN_TEXT)
    handed.write(".contextrc", "startup:\n  retry_backoffs_s: [0, 0, 0, 0, 0]\n")
    with handed.session() as session:
        prompt_until_written(handed, session)
        handed.stub.script("hm")
        session.prompt("the last one")
    assert SECTION in handed.read("CLAUDE.md")
    handed.stub.script(ACK, "done")
    handed.run("a new session", "and its end")
    fresh = handed.stub.of("main")[-2]
    assert "## Session Context (Auto-Injected)" in fresh.text() and OPEN in fresh.news()
    assert handed.read("CLAUDE.md") == OWN_TEXT


def test_a_prompt_that_quotes_the_acknowledgement_does_not_count_as_one(handed):
    handed.write(".contextrc", "startup:\n  retry_backoffs_s: [0, 0, 0, 0, 0]\n")
    handed.stub.script("hello", "hello")
    handed.run("what does ACK: context received mean?", "second prompt")
    assert [r.news().count(OPEN) for r in handed.stub.of("main")] == [1, 1]
