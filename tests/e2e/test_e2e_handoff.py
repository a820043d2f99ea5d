"""Over the threshold the agent is asked until there is a handoff, and the next session starts from it, once."""

from __future__ import annotations

import os
import time

from agents import FULL, PATH, Complies, Ignores, wanted
from stub_model import Turn, bash

REMINDER = "BEGIN HANDOFF"  # the one clause that every reminder has
OLD_PATH = ".claude/ll-continue-prompt.md"
TEXT = "# Goal\nFinish the parser.\n# Next steps\n1. write the tests\n"
SENTENCE = "Finish the parser."
OPEN = "[CONTEXT INJECTION"
WRITTEN = "ctx: handoff written, /clear when you like; the next session starts from it"


def write_what_is_asked(request):
    path = wanted(request.news())
    return Turn("", [("Write", {"file_path": path, "content": TEXT})], FULL)


def asked(kit, start=0):
    return [r.news().count(REMINDER) for r in kit.stub.of("main")[start:]]


def test_the_reminder_comes_with_every_batch_until_the_handoff_is_written(kit):
    states = []
    kit.stub.script(
        bash("echo a", tokens=100_000),
        bash("echo b", tokens=145_000),
        bash("echo c", tokens=146_000),
        bash("echo d1", "echo d2", "echo d3", tokens=147_000),
        write_what_is_asked,
        bash("echo e", tokens=151_000, act=lambda r: states.append(kit.state(session.id))),
        "done",
    )
    with kit.session() as session:
        session.prompt("work")
    counts = asked(kit)
    assert counts[:2] == [0, 0] and counts[3:5] == [1, 1] and counts[5:] == [0, 0], counts
    assert counts[2] in (0, 1)  # the transcript may lag one message behind at the very crossing
    text = kit.stub.of("main")[4].news()
    assert "147,000/200,000" in text and PATH.search(text).group().startswith(str(kit.path(".context/handoffs")))
    assert states[0]["threshold_crossed_at"] and states[0]["handoff_complete"] is True
    assert session.notices().count(WRITTEN) == 1 and sum("asked the agent" in n for n in session.notices()) == 1


def test_the_old_path_is_still_recognised(kit):
    write_old = Turn("", [("Write", {"file_path": str(kit.path(OLD_PATH)), "content": TEXT})], FULL)
    kit.stub.script(
        bash("echo a", tokens=FULL), bash("echo b", tokens=FULL), write_old, bash("echo c", tokens=FULL), "done"
    )
    kit.run("work")
    assert asked(kit)[2:] == [1, 0, 0]
    kit.stub.script("done")
    kit.run("go on")
    assert SENTENCE in kit.stub.of("main")[-1].news()


def test_an_old_or_empty_file_does_not_silence_the_reminder(kit):
    old = kit.write(OLD_PATH, "# Goal\nof last week\n")
    os.utime(str(old), (time.time() - 7 * 86400,) * 2)

    def empty(request):
        return bash(": > %s; : > %s" % (wanted(request.news()), OLD_PATH), tokens=FULL)

    kit.stub.script(
        bash("echo a", tokens=FULL), bash("echo b", tokens=FULL), empty, bash("echo c", tokens=FULL), "done"
    )
    kit.run("work")
    assert asked(kit)[2:] == [1, 1, 1]


def test_a_failing_command_carries_the_reminder_too(kit):
    kit.stub.script(bash("echo a", tokens=FULL), bash("false", tokens=FULL), bash("false", tokens=FULL), "done")
    kit.run("work")
    assert asked(kit)[2:] == [1, 1]


def test_a_model_with_a_large_window_is_not_reminded_at_the_small_ones_limit(kit):
    kit.stub.model = "claude-opus-5-5"
    kit.stub.script(bash("echo a", tokens=164_000), bash("echo b", tokens=165_000), "done")
    kit.run("work")
    assert "handoff" not in "".join(r.text() for r in kit.stub.of("main")).lower()
    assert kit.handoffs() == {}


def test_a_session_that_never_filled_up_leaves_no_handoff(kit):
    kit.stub.script(bash("echo a", tokens=90_000), "done")
    kit.run("work")
    assert kit.handoffs() == {}


def test_after_a_denied_write_the_agent_is_asked_to_print_only(kit):
    read = Turn("", [("Read", {"file_path": str(kit.path("README.md"))})], FULL)
    kit.stub.script(read, read, write_what_is_asked, read, read, "done")
    kit.run("work", mode="default")
    wishes = [wanted(r.news()) for r in kit.stub.of("main")]
    assert wishes[2].startswith(str(kit.path(".context/handoffs"))) and kit.stub.of("main")[3].refusals()
    assert wishes[4:] == ["print", "print"], wishes


def test_a_handoff_goes_to_one_session_and_to_nobody_after_it(kit):
    kit.stub.script(otherwise=Complies(kit, TEXT))
    kit.run("work")
    kit.stub.otherwise = Turn("I see.")
    second = kit.run("go on", "and on")
    kit.run("something else")
    assert [SENTENCE in r.news() for r in kit.stub.of("main")[-3:]] == [True, False, False]
    assert not kit.path("CLAUDE.md").exists()
    assert sum("delivered" in e.get("output", "") for e in second.events if e.get("subtype") == "hook_response") == 1


def test_two_sessions_at_once_each_write_their_own(kit):
    first, second = Complies(kit, TEXT), Ignores(kit, "")
    kit.stub.script(otherwise=lambda request: (first if "the first task" in request.text() else second)(request))
    with kit.session() as one, kit.session() as two:
        one.prompt("the first task")
        two.prompt("another task")
    texts = sorted(kit.handoffs().values())
    assert len(texts) == 2 and TEXT in texts and len(second.asked) == 3
    assert any("another task" in text and "from the transcript" in text for text in texts)


def test_clear_hands_the_cleared_sessions_own_handoff_to_the_new_one(kit):
    kit.stub.script(otherwise=Ignores(kit, ""))
    with kit.session() as session:
        session.prompt("Rename the lexer, please.")
        session.prompt("/clear")
        kit.stub.otherwise = Turn("I see.", tokens=20_000)
        session.prompt("go on")
    news = kit.stub.of("main")[-1].news()
    assert OPEN in news and "Rename the lexer, please." in news


def test_a_killed_client_is_made_up_for_by_the_next_start(kit):
    kit.stub.script(otherwise=Ignores(kit, ""))
    with kit.session() as session:
        session.prompt("Rename the lexer, please.")
        session.kill()
        session.end = lambda: None
    assert kit.handoffs() == {}
    kit.stub.otherwise = Turn("I see.")
    kit.run("go on")
    assert "Rename the lexer, please." in kit.stub.of("main")[-1].news()


def test_a_handoff_that_came_with_a_clone_is_delivered_to_nobody(kit):
    kit.write(".context/handoffs/abcdef12.md", "# Goal\nPlanted by a stranger.\n")
    kit.write(OLD_PATH, "# Goal\nPlanted by a stranger.\n")
    kit.stub.script("done", "done")
    kit.run("work")
    kit.run("work")
    assert all("Planted by a stranger" not in r.text() for r in kit.stub.of("main"))


def test_the_status_shows_who_wrote_the_handoff_and_who_got_it(kit):
    kit.stub.script(otherwise=Complies(kit, TEXT))
    writer = kit.run("work")
    kit.stub.otherwise = Turn("I see.")
    reader = kit.run("go on", "and on")
    shown = kit.ctx("status").stdout
    assert writer.id[:8] in shown and reader.id[:8] in shown and "receipt" in shown, shown
