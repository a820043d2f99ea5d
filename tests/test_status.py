"""`status` and `why`: what people see on one screen."""

from __future__ import annotations

import json
import os
import re

import pytest

import helper
from people import ask, tell


def fill(session, *levels):
    """Calls that fill the context up to these tokens."""
    for number, tokens in enumerate(levels):
        session.run("make step%d" % number, tokens=tokens)


def test_a_session_is_shown_with_client_fullness_sparkline_and_what_it_read(world, session):
    page = tell(world, "status")
    assert "not measured yet" in page and "read:" not in page
    fill(session, 20_000, 60_000, 100_000)
    session.call("Read", {"file_path": world.context("TASKS.md")}, tokens=125_000)
    page = tell(world, "status")
    (line,) = [row for row in page.split("\n") if row.startswith("  s1 ")]
    assert "Claude Code" in line and "working" in line
    assert line.endswith("▁▃▅▇ ███████░░░ 74% of 167k")
    assert "calls: 4 · read: TASKS.md" in page


def test_percent_is_the_one_that_the_reminder_names(world, session):
    assert "89% full (150,000 of 167,000" in session.run("make", tokens=150_000).text
    assert "89% of 167k" in tell(world, "status")


def test_the_state_of_the_handoff_is_told(world, session):
    session.run("make", tokens=150_000)
    assert "handoff asked for" in tell(world, "status")
    session.write_handoff()
    assert "handoff written" in tell(world, "status")


def test_calls_that_the_launcher_answered_alone_are_counted(world, session):
    fill(session, 20_000)
    session.write_answer({"type": "tool_use", "id": "t9", "name": "Read", "input": {}}, tokens=90_000)
    page = tell(world, "status")
    assert "calls: 2" in page and "53% of 167k" in page
    assert session.state()["facts"]["tool_calls"] == 1  # looking changes nothing


@pytest.mark.posix("a process that has ended is not asked for on Windows")
def test_a_session_that_ended_or_was_killed_says_so(world):
    world.worked("s1")
    world.env["CLAUDE_PID"] = "99999999"
    world.session("s2").start()
    page = tell(world, "status")
    assert "s1       Claude Code ended " in page and "s2       Claude Code killed " in page


def test_a_session_that_nobody_asked_anything_yet_is_waiting(world, session):
    assert "s1       Claude Code waiting" in tell(world, "status")
    session.prompt("Add discounts.")
    session.write_prompt("Add discounts.")
    assert "s1       Claude Code working" in tell(world, "status")


def test_open_sessions_stand_above_those_that_ended(world):
    world.session("s1").start()
    world.worked("s2")
    page = tell(world, "status")
    assert page.index("  s1 ") < page.index("  s2 ")


def test_what_only_the_agent_was_told_is_counted_for_the_person(world, session):
    rows = [{"event": "alert:said", "session": name, "code": "CTX_REPETITION"} for name in ("s1", "s1", "other")]
    helper.write(world.state("events.jsonl"), "".join(json.dumps(row) + "\n" for row in rows))
    assert "           told the agent 2 × that it repeats itself\n" in tell(world, "status")


def test_a_hint_is_for_the_doctor_alone(world, session):
    for name in ("TASKS.md", "CONSTITUTION.md"):
        world.write(".context/" + name, "# Nothing yet\n")
    assert "no context file says anything" in ask(world, "doctor").out
    assert "no context file says anything" not in tell(world, "status")


# --- handoffs and signals


def test_handoffs_wait_or_tell_to_whom_they_went(world):
    world.worked("s1")
    assert re.search(r"waiting  .* s1\.md\n", tell(world, "status"))
    world.session("s2").start()
    assert re.search(r"used     .* s1\.md → s2\n", tell(world, "status"))


def test_signals_say_for_whom_they_wait_and_until_when(world, session):
    world.signal("CI is red\n→ look", severity="critical", ttl=86400)
    world.signal("mind the gap", folder="s1", name="own.md", ttl=86400)
    page = tell(world, "status")
    assert "critical CI is red → look\n           for every session, until 20" in page
    assert "warning  mind the gap\n           for session s1, until 20" in page


# --- problems and the rest of the page


def test_problems_and_the_workflow_are_on_the_page(world):
    world.settings("gate:\n  mode: sometimes\n")
    tell(world, "auto", "start", "Add discounts", "--until", "false")
    page = tell(world, "status")
    assert re.search("line 2, column 3: .*must be one of: directive, off", page)
    assert "workflow\n" in page and "Add discounts" in page
    assert "no session" in page and "ctx_hooks.py doctor" in page


def test_a_usual_page_fits_on_one_screen(world):
    world.worked("0a1b2c3d-4e5f-6789")
    for name in ("1111aaaa-0000", "2222bbbb-0000"):
        session = world.session(name)
        session.start()
        fill(session, 30_000, 150_000)
    world.signal("x" * 50, ttl=86400)
    lines = tell(world, "status").split("\n")
    assert [line for line in lines[1:] if len(line) > 80] == [] and len(lines) <= 24


@pytest.mark.posix("names that Windows does not allow")
def test_nothing_from_outside_can_paint_or_move_the_cursor(world):
    session = world.session("s1\x1b[2J")
    session.model = "evil\x1b]0;title\x07"
    session.start()
    session.run("make", tokens=30_000)
    world.signal("red \x1b[31malert\x07\x9b2J", ttl=86400)
    world.handoff("x\x1b[2J", "Goal.\n")
    for words in (["status"], ["why"], ["handoff", "list"], ["handoff"], ["status", "--json"]):
        out = tell(world, *words)
        assert not set(out) & {"\x1b", "\x07", "\x9b", "\r"}, words


def test_one_line_says_how_the_deliveries_went(world, session):
    assert "deliveries" not in tell(world, "status")
    told = {"attempted": 9, "succeededOnFirstTry": 4, "succeededAfterRetry": 1, "failed": 1}
    helper.write(world.state("metrics.json"), json.dumps(told))
    lines = tell(world, "status").split("\n")
    assert "deliveries  6: 66% at the first try, 83% in all, 16% given up" in lines
    assert json.loads(tell(world, "status", "--json"))["deliveries"]["succeededOnFirstTry"] == 4


# --- for scripts


def test_json_keeps_the_names_that_scripts_know(world, session):
    fill(session, 20_000)
    (row,) = json.loads(tell(world, "status", "--json"))["sessions"]
    assert row["session_start"].startswith("20") and row["tool_calls"] == 1
    assert row["estimated_tokens"] == 20_000 and row["breakdown"] == {"Bash": 1}
    assert row["threshold_crossed_at"] is None and row["handoff_complete"] is False
    fill(session, 150_000)
    (row,) = json.loads(tell(world, "status", "--json"))["sessions"]
    assert row["threshold_crossed_at"].startswith("20")


def test_all_shows_every_project_of_this_user_that_is_still_there(world, session, tmp_path):
    fill(session, 20_000)
    other = helper.World(tmp_path / "other")
    other.home = world.home
    other.env.update(HOME=world.home, LOCALAPPDATA=world.env.get("LOCALAPPDATA", ""))
    other.session("o1").start()
    page = tell(world, "status", "--all", cwd=str(tmp_path))
    assert world.root in page and other.root in page
    was_one = os.path.dirname(world.write("src/cart.py", ""))  # its parent is
    helper.write(os.path.join(helper.kit.project_state_folder(was_one, world.env), "root"), was_one)
    assert "  s1 " in page and "  o1 " in page
    found = json.loads(tell(world, "status", "--all", "--json", cwd=str(tmp_path)))
    assert sorted(row["project"] for row in found) == sorted([world.root, other.root])
    os.rename(other.root, other.root + " was here")
    page = tell(world, "status", "--all", cwd=str(tmp_path))
    assert world.root in page and other.root not in page


# --- why


def test_why_explains_what_was_said_and_decided(world, session):
    session.gate()
    fill(session, 150_000)
    page = tell(world, "why")
    assert "asked the agent to read .context/CONSTITUTION.md, .context/TASKS.md" in page
    assert "asked for a handoff at 89%: there was none yet" in page
    assert len(tell(world, "why", "1").strip().split("\n")) == 1
    helper.write(world.state("events.jsonl"), '{"at": "2026-02-03T10:45:00Z", "event": "old:thing"}\n')
    assert "old:thing" in tell(world, "why")  # of another version


def test_every_event_of_the_recorder_has_a_sentence(kit):
    source = helper.read(helper.KIT)
    events = set(re.findall(r'record\(\s*[\w.]+(?:\([^()]*\))?,\s*"([a-z]+:[a-z-]+)"', source))
    assert events and events <= set(kit.DECISIONS)


def test_a_file_that_two_open_sessions_edited_is_marked(world, session):
    other = world.session("other-one")
    other.env["CLAUDE_PID"] = ""
    for one, names in ((session, "src/a.py src/b.py"), (other, "src/b.py src/c.py")):
        for name in names.split():
            one.edit(name)
        one.stop()
    page = tell(world, "status")
    assert "edited: ⚠ src/b.py (also other-on), src/a.py" in page
    assert "edited: ⚠ src/b.py (also s1), src/c.py" in page
    other.end()
    page = tell(world, "status")
    assert "edited: src/a.py, src/b.py" in page and "src/c.py" not in page


def test_a_signal_that_expired_is_named_for_a_day_if_nobody_heard_it(world, session):
    world.signal("in time", ttl=30)
    session.prompt("go on")
    world.signal("too late", name="t.md", ttl=1)
    world.now += 60
    session.prompt("and on")
    page = tell(world, "status")
    assert "unheard  too late\n           expired at" in page and "in time" not in page
