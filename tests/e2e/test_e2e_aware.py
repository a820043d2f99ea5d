"""Sessions that know of each other: shared files, commits of others, subagents that edit."""

from __future__ import annotations

from agents import GATE, bash, edit, read, said, write
from real_client import wait_until
from stub_model import SUBAGENT_MARKER, Turn

SHARED = "parser.py was also edited"
COMMIT = "git -c user.name=a -c user.email=a@localhost commit -q --allow-empty -m "
COMMITS = "main has 1 new commit ("


def shared_by(session):
    return "by the Claude Code session %.8s, which is open." % session.id


def delegate(kind):
    """Starts a subagent of this type, which runs in the background."""
    arguments = {"description": "sub", "prompt": SUBAGENT_MARKER + " go", "subagent_type": kind}
    return Turn("", [("Agent", arguments)])


def news_of(world, session, prompt, *turns):
    """What the requests of one prompt brought."""
    before = len(world.stub.of("main"))
    world.stub.script(*turns)
    session.prompt(prompt)
    return [request.news() for request in world.stub.of("main")[before:]]


def test_two_sessions_hear_of_each_others_edits_and_commits(kit):
    with kit.session() as one:
        news_of(kit, one, "Build the parser.", edit(kit, "parser.py"), "Built.")
        with kit.session() as two:
            work_beside(kit, one, two)


def work_beside(kit, one, two):
    """The second session edits the first one's file, and commits."""
    path = kit.path("parser.py")
    found = news_of(kit, two, "Build it too.", read(path), write(path, "y = 2\n"), bash("echo a"), "Built.")
    assert "Also open in this project: the Claude Code session %.8s, which edited parser.py." % one.id in found[0]
    assert [SHARED in news for news in found] == [False, False, True, False], found
    assert shared_by(one) in found[2]
    found = news_of(kit, one, "Go on.", bash("echo b"), bash("echo c"), "Done.")
    assert [SHARED in news for news in found] == [False, True, False] and shared_by(two) in found[1]
    told = [line for session in (one, two) for line in session.notices() if "parser.py" in line]
    assert told == ["ctx: this session and the Claude Code session %.8s both edited parser.py" % one.id]
    found = news_of(kit, two, "Commit.", bash(COMMIT + "mine"), bash("git log --oneline"), "Committed.")
    assert not any("new commit" in news for news in found)
    found = news_of(kit, one, "Go on.", bash("echo d"), bash("echo e"), "Done.")
    assert [COMMITS in news for news in found] == [False, True, False], found


def test_a_killed_session_is_not_open(kit):
    with kit.session() as one:
        news_of(kit, one, "Build the parser.", edit(kit, "parser.py"), "Built.")
        one.kill()
        path = kit.path("parser.py")
        kit.stub.script(read(path), write(path, "y = 2\n"), bash("echo a"), "Built.")
        kit.run("Build it too.")
        assert sum(said(kit, SHARED)) == sum(said(kit, "Also open")) == 0
        one.end = lambda: None


def test_a_subagent_that_may_edit_is_told_which_files_bind(kit):
    kit.stub.subagent_turns = [edit(kit, "sub.py"), bash("git add -A; %s sub" % COMMIT), Turn("the subagent is done")]
    calls = [bash("sleep 0.5; echo %d" % number) for number in range(8)]
    kit.stub.script(delegate("general-purpose"), *calls, otherwise=Turn("I wait."))
    with kit.session() as session:
        session.prompt("go")
        news_of(kit, session, "And now?", bash("echo a"), bash("echo b"), "Done.")
    subagent = kit.stub.of("subagent")
    assert GATE + " before proceeding: .context/CONSTITUTION.md" in subagent[0].text()
    assert ".context/TASKS.md" not in subagent[0].text()
    assert "sub" in kit.git("log", "-1", "--format=%s") and sum(said(kit, "new commit")) == 0


def test_a_subagent_that_only_reads_is_told_nothing(kit):
    kit.stub.subagent_turns = [Turn("the subagent is done")]
    kit.stub.script(delegate("Explore"), otherwise=Turn("I wait."))
    with kit.session() as session:
        session.prompt("go")  # a quick subagent is done within this turn, another one begins a turn when it is
        wait_until(lambda: kit.stub.of("subagent"), "a request of the subagent")
    assert GATE not in kit.stub.of("subagent")[0].text()


def test_what_a_person_runs_in_the_clients_own_shell_is_no_news(kit):
    terminal = kit.terminal()
    with terminal:
        terminal.wait_shown("bypass permissions")
        kit.stub.script(bash("echo a"), "I looked.", otherwise=Turn("I saw that."))
        terminal.type("look around")
        terminal.wait_shown("I looked.")
        terminal.type("! " + COMMIT + "by-hand; echo by-hand-done")
        terminal.wait_shown("by-hand-done")
        kit.stub.script(bash("echo b"), bash("echo c"), "I looked again.")
        terminal.type("look once more")
        terminal.wait_shown("I looked again.")
    assert kit.git("log", "-1", "--format=%s") == "by-hand"
    assert sum(said(kit, "new commit")) == 0
