"""Gate: once a session, the context files to read."""
from __future__ import annotations

import os
import stat

import pytest

from helper import write

SAID = "STOP. Read your context files before proceeding: "


def marker(world, name="s1"):
    return os.path.join(world.temp, "ctx-loaded-" + name)


def test_the_first_call_names_the_files_and_no_other_call_does(world, session):
    reply = session.gate()
    assert reply.text == SAID + ".context/CONSTITUTION.md, .context/TASKS.md"
    assert set(reply.json) == {"hookSpecificOutput"}  # never a permission decision
    assert set(reply.json["hookSpecificOutput"]) == {"hookEventName", "additionalContext"}
    assert session.gate().out == ""
    assert world.session("s2").gate().text  # each session is told


@pytest.mark.posix("modes of files")
def test_the_marker_is_private(world, session):
    session.gate()
    assert stat.S_IMODE(os.stat(marker(world)).st_mode) == 0o600


def test_files_come_in_their_order_of_priority(world, session):
    world.write(".context/AGENT_PLAYBOOK.md", "Play.")
    world.write(".context/CONVENTIONS.md", "Tabs.")
    names = [name.rpartition("/")[2] for name in session.gate().text[len(SAID) :].split(", ")]
    assert names == ["CONSTITUTION.md", "TASKS.md", "CONVENTIONS.md", "AGENT_PLAYBOOK.md"]


@pytest.mark.parametrize("text", ["", "# Tasks\n", "<!-- none yet -->\n", "# Tasks\n\n- TODO\n- [ ]\n"])
def test_a_file_that_says_nothing_is_not_named(world, session, text):
    world.write(".context/TASKS.md", text)
    assert session.gate().text == SAID + ".context/CONSTITUTION.md"


def test_a_file_that_was_read_is_not_named_and_silent_when_all_were(world, session):
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


def test_it_can_be_switched_off(world, session):
    world.settings("gate:\n  mode: off\n")
    assert session.gate().out == ""


def test_other_files_can_be_named(world, session):
    world.settings("gate:\n  files: [docs/RULES.md, TASKS.md]\n")
    world.write(".context/docs/RULES.md", "Tabs.")
    assert session.gate().text == SAID + ".context/docs/RULES.md, .context/TASKS.md"


def test_the_checkpoint_line_comes_only_where_it_is_wanted(world, session):
    world.settings("gate:\n  checkpoint: true\n")
    assert session.gate().text.endswith(
        "\nWhen you have read them, say so in one line: Context Loaded — Read: … Skipped: …"
    )


def test_names_are_such_that_an_agent_elsewhere_finds_them(world):
    world.write("packages/shop/x.py", "")
    session = world.session("s1")
    session.env["CLAUDE_PROJECT_DIR"] = session.extra["cwd"] = world.path("packages", "shop")
    names = session.gate().text[len(SAID) :].split(", ")
    assert names == [world.context("CONSTITUTION.md"), world.context("TASKS.md")]


def test_a_file_outside_or_a_secret_is_not_named(world, session, tmp_path):
    os.unlink(world.context("TASKS.md"))
    os.symlink(write(str(tmp_path / "x.md"), "private"), world.context("TASKS.md"))
    world.write(".context/.env", "KEY=1")
    world.settings("gate:\n  files: [TASKS.md, .env, CONSTITUTION.md]\n")
    assert session.gate().text == SAID + ".context/CONSTITUTION.md"


def test_after_a_compaction_it_speaks_again(world, session):
    session.gate()
    session.compact()
    session.start("compact")
    assert session.gate().text.startswith(SAID)


@pytest.mark.posix("TMPDIR")
def test_if_the_marker_cannot_be_made_it_speaks_every_time(world, session):
    session.env["TMPDIR"] = os.path.join(world.temp, "none")
    assert session.gate().text and session.gate().text


def test_a_hostile_session_id_stays_in_the_temp_folder(world):
    session = world.session("../../x")
    session.leaves_receipts = False
    assert session.gate().text
    assert os.listdir(world.temp) == ["ctx-loaded-%2E.%2F..%2Fx"]


def test_the_end_of_a_session_takes_its_marker_along(world, session):
    session.gate()
    session.end()
    assert not os.path.exists(marker(world))
