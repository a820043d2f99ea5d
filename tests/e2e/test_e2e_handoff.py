"""Handoffs beyond the matrix: permission modes, compaction, several sessions, what counts as a request."""

from __future__ import annotations

import json

import pytest

from agents import ASKED, FULL, GATE, OWN, WAITS, Agent, bash, edit, first_request, read, said
from real_client import wait_until
from stub_model import Turn

PRINTED = "I may not write here.\n\nBEGIN HANDOFF\n%sEND HANDOFF\n" % OWN
KNOWS = "The parser knows quotes."  # in OWN
HEAD = "Handoff of the session before this one"
AFTER_COMPACTION = "Your own handoff from before the compaction"
PINS = "Keep these words of the person verbatim in the summary"
TASK = "Rename the lexer. Never touch the tests."


@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
def test_the_agent_writes_its_handoff_in_every_mode_that_lets_it(kit, mode):
    if mode == "default":
        kit.install("--allow-handoff")
    kit.stub.script(otherwise=Agent([bash("echo one", tokens=FULL), WAITS, bash("echo two"), "done"]))
    session = kit.run(TASK, mode=mode)
    assert kit.handoffs()[session.id + ".md"].startswith(OWN) and sum(said(kit, ASKED)) == 1
    assert KNOWS in first_request(kit, mode=mode).news()


def test_what_the_agent_prints_in_plan_mode_reaches_the_next_session(kit):
    steps = [read(kit.path("README.md"), tokens=FULL) for _ in range(9)] + [Turn("A plan.", tokens=FULL)]
    kit.stub.script(otherwise=lambda request: Turn(PRINTED, tokens=FULL) if ASKED in request.news() else steps.pop(0))
    session = kit.run(TASK, mode="plan")
    text = kit.handoffs()[session.id + ".md"]
    assert text.startswith(OWN) and "Never touch the tests." in text
    assert any("handoff written" in line for line in session.notices())
    assert KNOWS in first_request(kit, mode="plan").news()


def test_an_agent_that_may_not_write_in_default_mode_leaves_one_anyway(kit):
    """Nobody allowed the path: the call is refused, the agent ignores the way by printing, and the kit makes one."""
    steps = [bash("echo a > a.txt", tokens=FULL), bash("echo b > b.txt", tokens=FULL), WAITS]
    kit.stub.script(otherwise=Agent(steps + [Turn("It was refused.", tokens=FULL)]))
    session = kit.run(TASK, mode="default", arguments=("--allowedTools", "Bash"))
    text = kit.handoffs()[session.id + ".md"]
    assert "made by ctx_hooks" in text and TASK in text


def test_an_automatic_compaction_is_told_the_persons_words(kit):
    kit.stub.script(
        edit(kit, "lexer.py", tokens=20_000),
        bash("echo b", tokens=190_000),
        bash("echo c", tokens=30_000),
        bash("echo d", tokens=31_000),
        "done",
    )
    session = kit.run(TASK)
    (request,) = kit.stub.of("compact")
    instructions = request.news().partition("Additional Instructions:")[2]
    assert PINS in instructions and "> " + TASK in instructions
    assert sum(said(kit, AFTER_COMPACTION)) == 1 and sum(said(kit, HEAD)) == 0
    assert said(kit, GATE) == [0, 1, 0, 1, 0]
    assert sum("delivered" in line for line in session.notices()) == 1
    assert list(kit.handoffs()) == [session.id + ".md"] and kit.delivered() == []


def test_the_thread_does_not_break_over_three_sessions_and_a_question_between_them(kit):
    kit.leave_handoff(OWN)
    assert KNOWS in first_request(kit, "what is six times seven?").news()
    assert list(kit.handoffs()) == ["earlier.md"] and kit.delivered() == []
    kit.stub.script(edit(kit, "one.py"), "done")
    first = kit.run("First step.")
    kit.stub.script(edit(kit, "two.py"), "done")
    second = kit.run("Second step.")
    third = first_request(kit).news()
    assert "Second step." in third and "one.py" not in third.replace("?? one.py", "")
    assert "began with the handoff .context/handoffs/delivered/%s.md" % first.id in third and list(kit.handoffs()) == [
        second.id + ".md"
    ]


def test_of_two_sessions_side_by_side_neither_gets_the_other_ones_open_work_also_after_clear(kit):
    # While the first agent works, a second session starts, and ends.
    kit.stub.script(edit(kit, "one.py"), bash("echo b", act=lambda _: kit.run("Second task.")))
    kit.stub.script(edit(kit, "two.py"), "second done", bash("echo c"), "first done", "go on")
    with kit.session() as session:
        session.prompt("First task.")
        session.prompt("/clear")
        session.prompt("What now?")
    texts = [request.text() for request in kit.stub.of("main")]
    assert HEAD not in next(text for text in texts if "Second task." in text)
    assert HEAD in texts[-1] and "> First task." in texts[-1] and "> Second task" not in texts[-1]
    assert sum("> Second task." in text for text in kit.handoffs().values()) == 1


def test_a_resumed_or_forked_session_is_not_told_again(kit):
    kit.leave_handoff(OWN)
    kit.stub.script(edit(kit, "one.py"), "done")
    first = kit.run("First step.")
    kit.stub.script(bash("echo b"), "done", "forked")
    again = kit.run("And on.", arguments=("--resume", first.id))
    kit.run("Another way.", arguments=("--resume", first.id, "--fork-session"))
    assert again.id == first.id
    assert said(kit, KNOWS) == [1, 0, 0, 0, 0] and sum(said(kit, GATE)) == 1


def test_a_command_with_its_words_and_words_typed_while_the_agent_works_are_requests(kit):
    kit.write(".claude/commands/implement.md", "Implement this carefully: $ARGUMENTS\n")
    waits = bash("touch waits; sleep 1", tokens=2000)
    kit.stub.script(edit(kit, "one.py"), "done", waits, bash("echo on"), otherwise=Turn("done, too"))
    with kit.session() as session:
        session.prompt("/implement the lexer, never touch the tests")
        session.send("Now the parser.")
        wait_until(kit.path("waits").exists, "the call that is under way")
        session.send("Only tabs, please.")
        session.wait_result()
    (text,) = kit.handoffs().values()
    words = ["> /implement the lexer, never touch the tests", "> Now the parser.", "> Only tabs, please."]
    requests, _, _ = text.partition("## What the agent said last")  # that is quoted, too
    assert [line for line in requests.split("\n") if line.startswith("> ")] == words


def test_a_huge_handoff_in_many_alphabets_does_not_arrive_as_the_clients_preview(kit):
    kit.leave_handoff(OWN + "日本👍👍👍\n" * 100_000)
    news = first_request(kit).news()
    assert KNOWS in news and "👍" in news and len(news) < 30_000
    assert "Output too large" not in news and "saved to" not in news


RULES, UNHEARD = "Rules of the project: never push to main.", "# Goal\nA parser that nobody heard of.\n"
ID = "0a1b2c3d-0000-4000-8000-000000000000"


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md", "CLAUDE.local.md"])
def test_a_handoff_that_was_not_heard_is_in_a_file_that_the_client_reads(kit, name):
    kit.write(name, RULES + "\n")
    kit.leave_handoff(UNHEARD)
    kit.run("hello")  # gets it, does no work, gives it back
    state = kit.ours("session-*.json")[0]
    delivery = {"state": "sent", "source": "startup", "handoff": "earlier.md", "head": "not in any transcript"}
    delivery.update(text=UNHEARD, attempts=3, answer="an earlier one")
    unheard = json.dumps({"version": kit.state(state.stem[8:])["version"], "id": ID, "delivery": delivery})
    state.with_name("session-%s.json" % ID).write_text(unheard)
    begun = len(kit.stub.requests)
    with kit.session(("--session-id", ID)) as session:
        session.prompt("Go on.")
        notice = "[System] Session context written to %s - please review" % name
        assert notice in "".join(request.news() for request in kit.stub.requests[begun:])
        assert sorted(set(kit.files("*.md")) - {"README.md"}) == [name]
        begun = len(kit.stub.requests)
        kit.run("What are the rules?")
    text = "".join(request.text() for request in kit.stub.requests[begun:] if request.kind == "main")
    assert RULES in text and UNHEARD.strip() in text
    assert kit.read(name) == RULES + "\n" and list(kit.handoffs()) == ["earlier.md"]
