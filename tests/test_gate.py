"""Gate: once a session, the context files to read."""

from __future__ import annotations

import os
import stat

import pytest

from helper import write

SAID = "STOP. Read your context files before proceeding: "
BOTH = ".context/CONSTITUTION.md, .context/TASKS.md"


def test_only_the_first_call_names_the_files_until_a_compaction(world, session):
    reply = session.gate()
    assert reply.text == SAID + BOTH
    assert set(reply.json) == {"hookSpecificOutput"}  # never a permission decision
    assert set(reply.json["hookSpecificOutput"]) == {"hookEventName", "additionalContext"}
    assert session.gate().out == ""
    assert world.session("s2").gate().text  # each session is told
    session.compact()
    session.start("compact")
    assert session.gate().text == SAID + BOTH


def test_a_compaction_whose_row_comes_after_its_event_is_one(world, session):
    session.gate()
    session.start("compact")
    assert session.gate().text.startswith("STOP.")
    world.now += 0.3
    session.write_boundary()
    assert session.gate().text == ""


@pytest.mark.posix("modes of files")
def test_the_marker_is_private(world, session):
    session.gate()
    marker = os.path.join(world.temp, "ctx-loaded-s1")
    assert stat.S_IMODE(os.stat(marker).st_mode) == 0o600


def test_the_marker_is_removed_when_the_session_ends(world, session):
    session.gate()
    session.end()
    assert not os.path.exists(os.path.join(world.temp, "ctx-loaded-s1"))


@pytest.mark.posix("TMPDIR")
def test_if_the_marker_cannot_be_made_it_speaks_every_time(world, session):
    session.env["TMPDIR"] = os.path.join(world.temp, "none")
    assert session.gate().text and session.gate().text


def test_files_that_say_something_come_in_their_order_of_priority(world, session):
    world.write(".context/AGENT_PLAYBOOK.md", "Play.")
    world.write(".context/CONVENTIONS.md", "Tabs.")
    world.write(".context/TASKS.md", "# Tasks\n\n- TODO\n- [ ]\n")
    names = [name.rpartition("/")[2] for name in session.gate().text[len(SAID) :].split(", ")]
    assert names == ["CONSTITUTION.md", "CONVENTIONS.md", "AGENT_PLAYBOOK.md"]


def test_a_file_that_was_read_is_not_named(world, session):
    session.call("Read", {"file_path": world.context("TASKS.md")})
    assert session.gate().text == SAID + ".context/CONSTITUTION.md"
    other = world.session("s2")
    other.call("Read", {"file_path": world.context("TASKS.md")})
    other.run("cat .context/CONSTITUTION.md")
    assert other.gate().out == ""


def test_silent_when_there_is_nothing_to_read(world, session):
    for name in ("TASKS.md", "CONSTITUTION.md"):
        os.unlink(world.context(name))
    assert session.gate().out == ""


CHECKPOINT = "\nWhen you have read them, say so in one line: Context Loaded — Read: … Skipped: …"
SETTINGS = {
    "mode: off": "",
    "checkpoint: true": SAID + BOTH + CHECKPOINT,
    "files: [docs/RULES.md, TASKS.md]": SAID + ".context/docs/RULES.md, .context/TASKS.md",
    "files: [.env, TASKS.md]": SAID + ".context/TASKS.md",  # never a secret
}


@pytest.mark.parametrize("line", SETTINGS)
def test_settings_decide_what_is_said(world, session, line):
    world.settings("gate:\n  %s\n" % line)
    world.write(".context/docs/RULES.md", "Tabs.")
    world.write(".context/.env", "KEY=1")
    assert session.gate().text == SETTINGS[line]


def test_a_file_outside_is_not_named(world, session, tmp_path):
    os.unlink(world.context("TASKS.md"))
    os.symlink(write(str(tmp_path / "x.md"), "private"), world.context("TASKS.md"))
    assert session.gate().text == SAID + ".context/CONSTITUTION.md"


def test_names_are_such_that_an_agent_elsewhere_finds_them(world):
    world.write("packages/shop/x.py", "")
    session = world.session("s1")
    session.env["CLAUDE_PROJECT_DIR"] = session.extra["cwd"] = world.path("packages", "shop")
    names = session.gate().text[len(SAID) :].split(", ")
    assert names == [world.context("CONSTITUTION.md"), world.context("TASKS.md")]


# --- subagents


def delegate(session, kind="general-purpose", name="a1", **more):
    return session.send("SubagentStart", agent_id=name, agent_type=kind, **more)


def test_a_subagent_that_may_edit_is_told_once_which_files_bind(world, session):
    world.write(".context/CONVENTIONS.md", "Tabs.")
    session.gate()
    reply = delegate(session)
    assert reply.text == SAID + ".context/CONSTITUTION.md, .context/CONVENTIONS.md"
    assert reply.json["hookSpecificOutput"]["hookEventName"] == "SubagentStart"
    assert delegate(session).out == ""  # it goes on
    assert delegate(session, name="a2").text == reply.text


def test_only_files_that_say_something_are_named_to_a_subagent(world, session):
    assert delegate(session).text == SAID + ".context/CONSTITUTION.md"
    os.unlink(world.context("CONSTITUTION.md"))
    assert delegate(session, name="a2").out == ""


@pytest.mark.parametrize("kind", ["Explore", "Plan", "code-reviewer", "feature-dev:code-explorer", "claude-code-guide"])
def test_a_subagent_that_only_reads_is_told_nothing(world, session, kind):
    assert delegate(session, kind).out == ""


@pytest.mark.parametrize("kind", ["", "general-purpose", "worker", "default", "spreadsheet-writer", "implementer"])
def test_others_are_told(world, session, kind):
    assert delegate(session, kind).text


@pytest.mark.parametrize(
    "line, text",
    [("subagent_files: []", ""), ("subagent_files: [TASKS.md]", SAID + ".context/TASKS.md"), ("mode: off", "")],
)
def test_settings_decide_what_a_subagent_is_told(world, session, line, text):
    world.settings("gate:\n  %s\n" % line)
    assert delegate(session).text == text


def test_what_starts_a_subagent_changes_nothing_of_its_session(world, session):
    session.look()
    before = session.state()
    delegate(session, transcript_path=write(os.path.join(world.temp, "another.jsonl"), "{}\n"))
    after = session.state()
    assert (after["transcript"], after["facts"]) == (before["transcript"], before["facts"])
    assert session.gate().text == SAID + BOTH  # its own one shot is not used up
