"""Scenario 2: a signal written from outside is in the next prompt's context, once."""

from __future__ import annotations

import datetime

HEAD = "⚠️ [ctx monitor] "
SIGNAL = "---\ngenerated_at: %s\nseverity: %s\nttl: 300\nauditor: ci\ncode: CI\n---\n%s\n"


def signal_text(body, severity="warning"):
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return SIGNAL % (now, severity, body)


def test_a_signal_from_outside_is_beside_the_next_prompt_once(kit):
    kit.stub.script("one", "two", "three")
    with kit.session() as session:
        session.prompt("first prompt")
        kit.ctx("signal", "CI failed on main.", "--action", "Look at job 17", "--global")
        session.prompt("second prompt")
        session.prompt("third prompt")
    first, second, third = kit.stub.of("main")
    assert HEAD not in first.text()
    assert (
        "second prompt" in second.news()
        and HEAD + "CI failed on main." in second.news()
        and "Look at job 17" in second.news()
    )
    assert HEAD not in third.news() and third.count(HEAD) == 1


def test_signal_files_of_the_session_arrive_as_one_block_and_are_gone_afterwards(kit):
    kit.stub.script("one", "two")
    with kit.session() as session:
        session.prompt("first prompt")
        folder = ".context/signals/sessions/%s/" % session.id
        kit.write(folder + "lint.md", signal_text("Lint is red.\n→ Run make lint"))
        kit.write(folder + "disk.md", signal_text("The disk is full.\n→ Remove build/", "critical"))
        kit.write(folder + "note.md", signal_text("A new release is out.", "info"))
        session.prompt("second prompt")
        left = kit.files(folder + "*.md")
    news = kit.stub.of("main")[1].news()
    assert HEAD + "2 issues:\n  • The disk is full. → Remove build/\n  • Lint is red. → Run make lint" in news
    assert "A new release" not in news and left == [folder + "note.md"]
    assert kit.files(folder + "*") == []


def test_a_signal_for_another_session_stays_where_it_is(kit):
    kit.stub.script("one")
    other = kit.write(".context/signals/sessions/another/ci.md", signal_text("Not for you."))
    kit.run("first prompt")
    assert "Not for you." not in kit.stub.of("main")[0].text() and other.exists()


def test_every_session_gets_a_global_signal_once(kit):
    kit.stub.script("one", "two", "three")
    kit.write(".context/signals/global/freeze.md", signal_text("Code freeze today."))
    kit.run("first prompt", "second prompt")
    kit.run("a new conversation")
    assert [HEAD + "Code freeze today." in r.news() for r in kit.stub.of("main")] == [True, False, True]
