"""A signal reaches the agent once: beside the next prompt, or with a tool result while it works."""

from __future__ import annotations

from agents import NEAR, bash, edit, read
from stub_model import SUBAGENT_MARKER, Turn

HEAD = "⚠️ [ctx monitor] "
CI = "CI failed on main."


def told(kit, text):
    return [request.news().count(text) for request in kit.stub.of("main")]


def test_signals_of_a_session_arrive_as_one_block_and_are_gone_afterwards(kit):
    kit.stub.script("one", "two", "three")
    with kit.session() as session:
        session.prompt("first prompt")
        mine = "sessions/" + session.id
        kit.signal("Lint is red.\n→ Run make lint", "lint", mine)
        kit.signal("The disk is full.\n→ Remove build/", "disk", mine, severity="critical")
        kit.signal("A new release is out.", "note", mine, severity="info")
        session.prompt("second prompt")
        left = kit.files(".context/signals/%s/*.md" % mine)
        session.prompt("third prompt")
    news = kit.stub.of("main")[1].news()
    assert HEAD + "2 issues:\n  • The disk is full. → Remove build/\n  • Lint is red. → Run make lint" in news
    assert "A new release" not in news and [path[-7:] for path in left] == ["note.md"]
    assert told(kit, HEAD) == [0, 1, 0] and kit.left_behind() == []
    assert [line for line in session.notices() if "disk" in line] == ["ctx: The disk is full. → Remove build/"]


def test_every_session_hears_a_global_signal_once(kit):
    kit.stub.script(bash("echo a"), "one", "two", "three")
    kit.signal("Code freeze today.")
    kit.signal("Not for you.", "other", "sessions/another")
    kit.run("first prompt", "second prompt")
    kit.run("a new conversation")
    assert told(kit, HEAD + "Code freeze today.") == [1, 0, 0, 1] and sum(told(kit, "Not for you.")) == 0


def test_a_signal_that_the_agents_own_command_causes_comes_with_that_calls_result(kit):
    """As a linter would write it, in the middle of a calm session."""
    draft = ".context/signals/global/lint"
    writes = "mkdir -p .context/signals/global; echo %s > %s.draft; mv %s.draft %s.md" % (CI, draft, draft, draft)
    kit.stub.script(*[bash("echo %d" % n) for n in range(4)], bash(writes), bash("echo after"), "done", "noted")
    kit.run("work", "next prompt")
    assert told(kit, HEAD + CI) == [0, 0, 0, 0, 0, 1, 0, 0]


def test_parallel_calls_hear_of_it_once(kit):
    kit.stub.script(bash("echo a"), bash(*["echo %d" % n for n in range(6)], act=lambda _: kit.signal(CI)), "done")
    kit.run("work")
    assert told(kit, HEAD + CI) == [0, 0, 1] and sum(told(kit, "STOP. Read")) == 1


def test_a_subagent_neither_hears_nor_consumes_what_is_meant_for_the_agent(kit):
    agent = ("Agent", {"description": "sub", "prompt": SUBAGENT_MARKER + " go", "subagent_type": "general-purpose"})
    kit.stub.subagent_turns = [bash("sleep 0.2", act=lambda _: kit.signal(CI)), Turn("the subagent is done")]
    kit.stub.script(Turn("", [agent]), "I wait.", bash("echo a"), "done")
    with kit.session() as session:
        session.prompt("go")
        session.wait_result("the notification")
    assert sum(told(kit, HEAD + CI)) == 1
    assert HEAD not in "".join(request.text() for request in kit.stub.of("subagent"))


def test_a_stuck_agent_hears_of_it_in_the_same_turn(kit):
    kit.stub.script(*[bash("make parser") for _ in range(8)], "I give up.")
    kit.run("build the parser")
    found = told(kit, "Repetition: ")
    # An outcome is seen one call later, and the client may write its row a moment late.
    assert sum(found) == 1 and found.index(1) <= 7, found


def test_ordinary_work_is_not_called_repetition(kit):
    rounds = [(bash("false"), edit(kit, "new%d.txt" % n, "x"), read(kit.path("README.md"))) for n in range(4)]
    kit.stub.script(*[turn for turns in rounds for turn in turns], "done")
    kit.run("test, edit, test")
    assert sum(told(kit, "Repetition: ")) == 0


def test_fullness_is_said_once_and_not_beside_the_reminder(kit):
    kit.stub.script(*[bash("echo %d" % n, tokens=NEAR) for n in range(3)], Turn("done", tokens=NEAR))
    kit.run("work")
    assert sum(told(kit, "Context: 83% full.")) == 1


def test_a_branch_switch_from_outside_is_told_and_the_agents_own_is_not(kit):
    kit.git("branch", "feature")
    own = [bash("git switch -q main"), bash("echo e"), bash("git switch -q feature"), bash("echo f")]
    kit.stub.script(bash("echo a"), bash("echo b"), bash("echo c"), bash("echo d"), *own, "done")
    kit.stub.turns[2].act = lambda _: kit.git("switch", "-q", "feature")
    kit.run("work")
    sentence = "The working tree is on feature now; it was on main, and no command of this session changed it."
    assert sum(told(kit, sentence)) == 1 and sum(told(kit, "The working tree is on")) == 1
