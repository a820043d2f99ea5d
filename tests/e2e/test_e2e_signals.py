"""A signal reaches the agent once: beside the next prompt, or while it works with a tool result."""

from __future__ import annotations

import datetime

from agents import FULL, complete
from stub_model import Turn, bash

HEAD = "⚠️ [ctx monitor] "
SIGNAL = "---\ngenerated_at: %s\nseverity: %s\nttl: 300\nauditor: ci\ncode: CI_%s\n---\n%s\n"


def signal_text(body, severity="warning"):
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return SIGNAL % (now, severity, abs(hash(body)), body)


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


# ---------------------------------------------------------------------------
# while the agent works
# ---------------------------------------------------------------------------


def told(kit, text):
    return [r.news().count(text) for r in kit.stub.of("main")]


def test_a_stuck_agent_hears_of_it_in_the_same_turn(kit):
    kit.stub.script(*[bash("make parser", tokens=FULL) for _ in range(9)], "I give up.")
    kit.run("build the parser")
    full, stuck = told(kit, "Context: 75%"), told(kit, "Repetition: ")
    assert len(full) == 10 and sum(full) == sum(stuck) == 1, (full, stuck)
    assert 0 < full.index(1) <= 3 and 0 < stuck.index(1) <= 8, (full, stuck)


def test_ordinary_work_is_not_called_repetition(kit):
    kit.stub.script(
        *[
            turn
            for n in range(4)
            for turn in (bash("false"), bash("echo %d >> notes.txt" % n), edit(kit, "README.md", "line %d\n" % n))
        ],
        "done",
    )
    kit.run("test, edit, test")
    assert sum(told(kit, "Repetition: ")) == 0


def edit(kit, name, text):
    return Turn("", [("Write", {"file_path": str(kit.path("new-" + name)), "content": text})])


def test_a_signal_written_while_the_agent_works_comes_with_a_tool_result_once(kit):
    write = lambda _: kit.ctx("signal", "CI failed on main.", "--global")  # noqa: E731
    kit.stub.script(bash("echo a"), bash("echo b", act=write), bash("echo c"), "done", "noted")
    kit.run("work", "next prompt")
    assert told(kit, HEAD + "CI failed on main.") == [0, 0, 1, 0, 0]


def test_signals_wait_for_the_prompt_where_the_settings_say_so(kit):
    kit.write(".contextrc", "monitor:\n  inject_at: [prompt]\n")
    write = lambda _: kit.ctx("signal", "CI failed on main.", "--global")  # noqa: E731
    kit.stub.script(bash("echo a", act=write), bash("echo b"), "done", "noted")
    kit.run("work", "next prompt")
    assert told(kit, HEAD + "CI failed on main.") == [0, 0, 0, 1]


def test_a_critical_signal_in_a_workflow_reaches_the_agent_and_the_person_at_once(kit):
    kit.ctx("auto", "start", "Add a parser", "--until", "true", "--any")
    write = lambda _: kit.ctx("signal", "The disk is full.", "--severity", "critical", "--global")  # noqa: E731
    kit.stub.script(bash("echo a"), bash("echo b", act=write), bash("echo c"), complete("execution"))
    session = kit.run("go")
    assert told(kit, HEAD + "The disk is full.")[:4] == [0, 0, 1, 0]
    assert sum("The disk is full." in line for line in session.notices()) == 1


def test_a_signal_written_during_the_last_answer_comes_with_the_continuation(kit):
    kit.ctx("auto", "start", "Add a parser", "--until", "true", "--any")
    write = lambda _: kit.ctx("signal", "CI failed on main.", "--global")  # noqa: E731
    kit.stub.script(Turn("I had a look.", act=write), complete("execution"))
    kit.run("go")
    assert told(kit, "CI failed on main.") == [0, 1] and "## Auto Mode Continuation" in kit.stub.of("main")[1].news()


def test_a_compaction_withdraws_what_was_said_about_fullness(kit):
    kit.write(".contextrc", "monitor:\n  inject_at: [prompt]\n")
    kit.stub.script(bash("echo a", tokens=FULL), bash("echo b", tokens=FULL), "done", "noted", bash("echo c"), "end")
    kit.run("work", "/compact", "go on", "and on")
    assert sum(told(kit, "Context: 75%")) == 0 and len(kit.stub.of("compact")) == 1


def test_two_kits_on_one_machine_say_everything_once(kit):
    kit.install("--scope", "user")
    kit.write(".context/signals/global/freeze.md", signal_text("Code freeze today."))
    kit.stub.script(bash("echo a", tokens=FULL), bash("echo b", tokens=FULL), "done", "noted")
    kit.run("work", "next prompt")
    assert sum(told(kit, HEAD + "Code freeze today.")) == 1 and sum(told(kit, "STOP. Read your context files")) == 1
    assert max(told(kit, "BEGIN HANDOFF")) == 1
