"""Handoffs beyond the matrix: permission modes, compaction, several sessions, what must not be in one."""

from __future__ import annotations

import os
import re
import time

import pytest

from agents import ASKED, FULL, WAITS, Agent, bash, edit, read
from real_client import wait_until
from stub_model import Turn

OWN = "# Goal\nThe parser knows quotes.\n# Next steps\n1. escape sequences\n"
PRINTED = "I may not write here.\n\nBEGIN HANDOFF\n%sEND HANDOFF\n" % OWN
HEAD = "Handoff of the session before this one"
AFTER_COMPACTION = "Your own handoff from before the compaction"
PINS = "Keep these words of the person verbatim in the summary"
GATE = "STOP. Read your context files"
TASK = "Rename the lexer. Never touch the tests."
SECRETS = ("sk-ant-api03-abcdefghijklmnop0123456789", "ghp_abcdefghijklmnop0123456789", "hunter2secret")


def start(kit, prompt="go on", **options):
    """The first request of a new session."""
    before = len(kit.stub.of("main"))
    kit.stub.script(otherwise=Turn("Let us go on."))
    kit.run(prompt, **options)
    return kit.stub.of("main")[before].news()


def said(kit, text):
    return [request.news().count(text) for request in kit.stub.of("main")]


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
def test_the_agent_writes_its_handoff_in_every_mode_that_lets_it(kit, mode):
    if mode == "default":
        kit.install("--allow-handoff")
    kit.stub.script(otherwise=Agent(kit, [bash("echo one", tokens=FULL), WAITS, bash("echo two"), "done"], OWN))
    session = kit.run(TASK, mode=mode)
    assert kit.handoffs()[session.id + ".md"].startswith(OWN) and sum(said(kit, ASKED)) == 1
    assert "The parser knows quotes." in start(kit, mode=mode)


def test_in_plan_mode_the_agent_prints_it_and_the_next_session_gets_it(kit):
    steps = [read(kit.path("README.md"), tokens=FULL) for _ in range(9)] + [Turn("A plan.", tokens=FULL)]
    kit.stub.script(otherwise=lambda request: Turn(PRINTED, tokens=FULL) if ASKED in request.news() else steps.pop(0))
    session = kit.run(TASK, mode="plan")
    assert kit.handoffs() == {session.id + ".md": OWN}
    assert any("handoff written" in line for line in session.notices())
    assert "The parser knows quotes." in start(kit, mode="plan")


def test_an_agent_that_may_not_write_in_default_mode_leaves_one_anyway(kit):
    """Nobody allowed the path: the call is refused, the agent ignores the way by printing, and the kit makes one."""
    steps = [bash("echo a > a.txt", tokens=FULL), bash("echo b > b.txt", tokens=FULL), WAITS]
    kit.stub.script(otherwise=Agent(kit, steps + [Turn("It was refused.", tokens=FULL)], OWN))
    session = kit.run(TASK, mode="default", arguments=("--allowedTools", "Bash"))
    text = kit.handoffs()[session.id + ".md"]
    assert "made by ctx_hooks" in text and TASK in text


# ---------------------------------------------------------------------------
# compaction
# ---------------------------------------------------------------------------


def test_an_automatic_compaction_is_told_the_persons_words_and_the_session_gets_its_own_handoff_once(kit):
    kit.stub.script(
        edit(kit, "lexer.py", "x = 1\n", tokens=20_000),
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
    assert TASK in start(kit)


def test_a_compaction_by_hand_shows_nothing_and_brings_the_same_handoff(kit):
    kit.stub.script(edit(kit, "lexer.py", "x = 1\n"), "done", bash("echo c"), "done again")
    session = kit.run(TASK, "/compact", "work on")
    (request,) = kit.stub.of("compact")
    assert PINS not in request.text()
    last = kit.stub.of("main")[2].text()
    assert last.count(AFTER_COMPACTION) == 1 and TASK in last and "lexer.py" in last and PINS not in last
    assert said(kit, GATE) == [0, 1, 0, 1] and len(session.notices()) == 1


def test_the_agents_own_handoff_survives_a_compaction_and_is_not_asked_for_again(kit):
    steps = [edit(kit, "lexer.py", "x = 1\n", tokens=FULL), WAITS, Turn("done", tokens=FULL)]
    more = [edit(kit, "tokens.py", "y = 2\n", tokens=30_000), bash("echo d", tokens=31_000), "done again"]
    kit.stub.script(otherwise=Agent(kit, steps + more, OWN))
    session = kit.run(TASK, "/compact", "Now the tokens.")
    assert sum(said(kit, ASKED)) == 1
    text = kit.handoffs()[session.id + ".md"]
    assert text.startswith(OWN) and "tokens.py" in text and text.count("## Since this handoff") == 1
    assert "tokens.py" in start(kit)


# ---------------------------------------------------------------------------
# several sessions
# ---------------------------------------------------------------------------


def test_a_session_that_only_answers_a_question_gives_the_handoff_back(kit):
    kit.leave_handoff(OWN)
    assert "The parser knows quotes." in start(kit, "what is six times seven?")
    assert list(kit.handoffs()) == ["earlier.md"] and kit.delivered() == []
    assert "The parser knows quotes." in start(kit, "go on")


def test_the_thread_does_not_break_over_three_sessions(kit):
    kit.leave_handoff(OWN)
    kit.stub.script(edit(kit, "one.py", "x = 1\n"), "done")
    first = kit.run("First step.")
    assert "earlier.md" in kit.handoffs()[first.id + ".md"]
    kit.stub.script(edit(kit, "two.py", "x = 1\n"), "done")
    second = kit.run("Second step.")
    third = start(kit)
    assert "Second step." in third and "one.py" not in third.replace("?? one.py", "")
    assert "began with the handoff %s.md" % first.id in third and list(kit.handoffs()) == [second.id + ".md"]


def test_of_two_sessions_side_by_side_neither_gets_the_other_ones_open_work(kit):
    opened = {}

    def beside(request):
        """While the first agent works, a second session starts, and ends."""
        opened["second"] = kit.session()
        opened["second"].prompt("Second task.")
        opened["second"].end()

    kit.stub.script(edit(kit, "one.py", "x = 1\n"))
    kit.stub.script(bash("echo b", act=beside))
    kit.stub.script(edit(kit, "two.py", "x = 1\n"), "second done", bash("echo c"), "first done")
    kit.run("First task.")
    texts = [request.text() for request in kit.stub.of("main")]
    second = next(text for text in texts if "Second task." in text)
    assert HEAD not in second
    names = kit.handoffs()
    assert len(names) == 2 and {"First task." in text for text in names.values()} == {True, False}
    news = start(kit)
    assert "First task." in news and "Also waiting in the same folder: %s.md" % opened["second"].id in news


def test_a_resumed_or_forked_session_is_not_told_again(kit):
    kit.leave_handoff(OWN)
    kit.stub.script(edit(kit, "one.py", "x = 1\n"), "done")
    first = kit.run("First step.")
    kit.stub.script(bash("echo b"), "done", "forked")
    again = kit.run("And on.", arguments=("--resume", first.id))
    kit.run("Another way.", arguments=("--resume", first.id, "--fork-session"))
    assert again.id == first.id
    assert said(kit, "The parser knows quotes.") == [1, 0, 0, 0, 0] and sum(said(kit, GATE)) == 1


def test_after_clear_the_handoff_is_that_of_the_session_just_cleared(kit):
    kit.stub.script(edit(kit, "one.py", "x = 1\n"), "one", edit(kit, "two.py", "x = 1\n"), "two", "three")
    with kit.session() as session:
        session.prompt("First task.")
        kit.run("Second task, elsewhere.")
        session.prompt("/clear")
        session.prompt("What now?")
    start_of_third = kit.stub.of("main")[-1].news()
    assert HEAD in start_of_third and "First task." in start_of_third and "> Second task" not in start_of_third


# ---------------------------------------------------------------------------
# what must not be
# ---------------------------------------------------------------------------


def test_no_secret_of_the_session_is_in_what_the_kit_writes_down(kit):
    key, token, password = SECRETS
    kit.stub.script(
        edit(kit, "one.py", "x = 1\n"),
        bash("curl -H 'Authorization: Bearer %s' https://127.0.0.1:9/ ; false" % token),
        Turn("I used the password=%s as told." % password),
    )
    kit.run("Deploy with the key %s now." % key)
    written = "".join(kit.handoffs().values())
    news = start(kit)
    assert "[hidden]" in news and "Deploy with the key" in news
    assert not [secret for secret in SECRETS if secret in written or secret in news]


def test_a_command_with_its_words_and_words_typed_while_the_agent_works_are_requests(kit):
    kit.write(".claude/commands/implement.md", "Implement this carefully: $ARGUMENTS\n")
    waits = bash("touch waits; sleep 1", tokens=2000)
    kit.stub.script(edit(kit, "one.py", "x = 1\n"), "done", waits, bash("echo on"), otherwise=Turn("done, too"))
    with kit.session() as session:
        session.prompt("/implement the lexer, never touch the tests")
        session.send("Now the parser.")
        wait_until(kit.path("waits").exists, "the call that is under way")
        session.send("Only tabs, please.")
        session.wait_result()
    (text,) = kit.handoffs().values()
    words = ["> /implement the lexer, never touch the tests", "> Now the parser.", "> Only tabs, please."]
    assert [line for line in text.split("\n") if line.startswith("> ")] == words


def test_a_large_window_is_asked_for_a_handoff_at_400_000_tokens(kit):
    kit.stub.model = "claude-opus-5-5"
    steps = [bash("echo %d" % n, tokens=398_000 + n * 1000) for n in range(4)] + [WAITS, "done"]
    kit.stub.script(otherwise=Agent(kit, steps, OWN, tokens=405_000))
    kit.run(TASK)
    assert sum(said(kit, ASKED)) >= 1 and "of 977,000 usable tokens" in "".join(r.news() for r in kit.stub.of("main"))


def test_a_long_session_in_many_words_still_arrives_whole_enough(kit):
    """More than the client passes on: it would show the model a preview and a path instead."""
    chatter = ["Look at part %d: %s" % (n, "日本👍👍👍" * 500) for n in range(4)]
    turns = [turn for n in range(6) for turn in (edit(kit, "part%d.py" % n, "x = 1\n"), "Part %d is done. %s" % (n, "😀" * 900))]
    kit.stub.script(*turns)
    kit.run("Build it all. Never push to main.", *chatter, "Last: escape sequences.")
    news = start(kit)
    assert "Never push to main." in news and "> Last: escape sequences." in news and "part5.py" in news
    assert "Part 5 is done." in news and "Output too large" not in news and "saved to" not in news


def test_what_is_no_handoff_is_passed_over_and_a_huge_one_is_cut(kit):
    kit.leave_handoff(OWN + "filler\n" * 700_000, "huge.md")
    time.sleep(0.02)  # the others are newer
    kit.leave_handoff("# Goal\n\nTODO\n\n# State\n<!-- nothing yet -->\n", "template.md")
    kit.path(".context/handoffs/binary.md").write_bytes(b"# Goal\n\0\1\2" * 50)
    kit.path(".context/handoffs/link.md").symlink_to("/etc/passwd")
    news = start(kit)
    assert "The parser knows quotes." in news and len(news) < 30_000
    assert not [word for word in ("template.md", "binary.md", "link.md", "root:") if word in news]


def test_a_session_that_only_looked_around_leaves_none(kit):
    kit.stub.script(bash("ls"), bash("git status"), read(kit.path("README.md")), "It is a scratch repository.")
    kit.run("What is this?")
    assert kit.handoffs() == {} and HEAD not in start(kit)


def test_a_context_folder_that_takes_no_handoff_disturbs_nobody(kit):
    kit.leave_handoff(OWN)
    folders = [kit.path(".context/handoffs"), kit.path(".context")]
    for folder in folders:
        folder.chmod(0o555)
    is_root = os.getuid() == 0
    kit.stub.script(edit(kit, "one.py", "x = 1\n"), "done")
    session = kit.run("First step.")
    assert "The parser knows quotes." in kit.stub.of("main")[0].news() and session.notices() == []
    if not is_root:  # root writes everywhere
        assert list(kit.handoffs()) == ["earlier.md"] and "The parser knows quotes." in start(kit)
    for folder in reversed(folders):
        folder.chmod(0o755)


def test_nobody_is_asked_to_acknowledge_where_a_receipt_proves_it(kit):
    kit.leave_handoff(OWN)
    session = kit.run("Hello.", "And on.")
    assert not any(re.search("ACK|acknowledge|Context Loaded", request.text()) for request in kit.stub.of("main"))
    assert [row["evidence"] for row in kit.recorded("injection:succeeded")] == ["receipt"], session.id


def test_where_it_is_switched_off_no_handoff_is_asked_for_or_made(kit):
    kit.write(".contextrc", "handoff:\n  enabled: false\n")
    kit.stub.script(
        edit(kit, "one.py", "x = 1\n", tokens=FULL), bash("echo b", tokens=FULL), Turn("done", tokens=190_000), "on"
    )
    kit.run(TASK, "go on")
    assert sum(said(kit, ASKED)) == 0 and kit.handoffs() == {}
    assert PINS not in "".join(request.text() for request in kit.stub.of("compact"))
