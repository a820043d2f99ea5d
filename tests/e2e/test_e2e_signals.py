"""A signal reaches the agent once: beside the next prompt, or with a tool result while it works."""

from __future__ import annotations

import time

from agents import GATE, bash, delegate, said
from real_client import REPO, Terminal, permissions, wait_until
from stub_model import Turn

HEAD = "⚠️ [ctx monitor] "
CI = "CI failed on main."
DISK = "The disk is full."


def test_a_sessions_signals_arrive_as_one_block(kit):
    kit.stub.script("one", "two", "three", "four")
    with kit.session() as session:
        session.prompt("first prompt")
        mine = "sessions/" + session.id
        kit.signal("Lint is red.\n→ Run make lint", "lint", mine)
        kit.signal("The disk is full.\n→ Remove build/", "disk", mine, severity="critical")
        kit.signal("A new release is out.", "note", mine, severity="info")
        kit.signal("Not for you.", "other", "sessions/another")
        session.prompt("second prompt")
        left = kit.files(".context/signals/%s/*.md" % mine)
        kit.signal("Code freeze today.")
        session.prompt("third prompt")
    kit.run("a new conversation")
    news = kit.stub.of("main")[1].news()
    assert HEAD + "2 issues:\n  • The disk is full. → Remove build/\n  • Lint is red. → Run make lint" in news
    assert "A new release" not in news and [path[-7:] for path in left] == ["note.md"]
    assert said(kit, HEAD) == [0, 1, 1, 1] and said(kit, HEAD + "Code freeze today.") == [0, 0, 1, 1]
    assert sum(said(kit, "Not for you.")) == 0
    assert [line for line in session.notices() if "disk" in line] == ["ctx: The disk is full. → Remove build/"]


def test_a_signal_comes_with_the_result_of_the_call_that_caused_it(kit):
    """As a linter would write it, in the middle of a calm session."""
    draft = ".context/signals/global/lint"
    writes = "mkdir -p .context/signals/global; echo %s > %s.draft; mv %s.draft %s.md" % (CI, draft, draft, draft)
    parallel = bash(*["echo %d" % n for n in range(6)], act=lambda _: kit.signal(DISK, "disk"))
    kit.stub.script(*[bash("echo %d" % n) for n in range(4)], bash(writes), parallel, "done", "noted")
    kit.run("work", "next prompt")
    assert said(kit, HEAD + CI) == [0, 0, 0, 0, 0, 1, 0, 0]
    assert said(kit, HEAD + DISK) == [0, 0, 0, 0, 0, 0, 1, 0] and sum(said(kit, GATE)) == 1


def test_a_subagent_neither_hears_nor_consumes_what_is_meant_for_the_agent(kit):
    kit.stub.subagent_turns = [bash("sleep 0.2", act=lambda _: kit.signal(CI)), Turn("the subagent is done")]
    kit.stub.script(delegate(), "I wait.", bash("echo a"), "done")
    with kit.session() as session:
        session.prompt("go")
        session.wait_result()  # after the subagent's notification
    assert sum(said(kit, HEAD + CI)) == 1
    assert HEAD not in "".join(request.text() for request in kit.stub.of("subagent"))


def test_a_stuck_agent_hears_of_it_in_the_same_turn(kit):
    kit.stub.script(*[bash("make parser") for _ in range(8)], "I give up.")
    kit.run("build the parser")
    found = said(kit, "Repetition: ")
    # An outcome is seen one call later, and the client may write its row a moment late.
    assert sum(found) == 1 and found.index(1) <= 7, found


def test_a_critical_signal_that_comes_with_the_last_words_holds_the_stop_once(kit):
    """The client goes on without an error; the person sees one line."""
    freeze = Turn("It is done.", act=lambda _: kit.signal("Deploy freeze.\n→ Stop the deploy", severity="critical"))
    kit.stub.script(freeze, "I stop the deploy.", "next")
    with kit.terminal("default") as terminal:
        terminal.wait_shown("for shortcuts")
        terminal.type("Deploy it.")
        terminal.wait_shown("I stop the deploy.")
        terminal.wait_shown("ctx: Deploy freeze.")
        shown = len(terminal.raw)
        terminal.type("And now?")
        terminal.wait_shown("next", since=shown)
    assert said(kit, HEAD + "Deploy freeze.\n→ Stop the deploy") == [0, 1, 0]
    assert "error" not in terminal.shown().lower()
    assert terminal.shown(shown).count("Deploy freeze.") == 0


def test_a_signal_wakes_an_idle_session_that_asked_for_it(world):
    """Permissions are on, nobody types. What comes while the agent works is not said twice."""
    world.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    noise = bash("sleep 3", act=lambda _: world.signal(DISK, "disk"))
    world.stub.script("hello", "woken soon", Turn("I look at CI."), noise, "it worked", otherwise=Turn("woken in vain"))
    arguments = (*permissions("default"), "--plugin-dir", str(REPO))
    with Terminal(world, arguments, {}) as terminal:
        terminal.wait_shown("for shortcuts")
        terminal.type("hello there")
        terminal.wait_shown("ctx: hooks are on")
        world.signal("Before it was asked for.", "before", severity="info")
        terminal.type("/ctx-hooks:wake")
        terminal.wait_shown("woken soon")
        wait_until(lambda: world.state(world.newest_id())["stopped_at"], "the end of the turn")
        time.sleep(1.5)  # the monitor has looked at what is there
        assert len(world.stub.of("main")) == 2
        world.signal(CI)
        terminal.wait_shown("I look at CI.")
        assert "a signal waits; it comes with this message · signals for this session" in terminal.shown()
        terminal.type("work now")
        terminal.wait_shown("it worked")
        time.sleep(4)  # a monitor that spoke now would start a turn
    assert said(world, HEAD + CI) == [0, 0, 1, 0, 0] and said(world, HEAD + DISK) == [0, 0, 0, 0, 1]
    rows = [row["attachment"] for row in world.transcripts() if "attachment" in row]
    receipts = [row["content"] for row in rows if row["type"] == "hook_additional_context"]
    assert [HEAD + CI] in receipts
