"""Handoff: from the crossing of the threshold on, every batch of calls asks for it, until it is really there."""
from __future__ import annotations

import os

import pytest

from helper import NOW, assistant_row

FILE = ".claude/ll-continue-prompt.md"
STATE = ".context/state/s1.json"


@pytest.fixture(autouse=True)
def no_audit(project):
    project.write(".contextrc", "audit:\n  stale_days: 0\n")


def after_tool(project, percent, now=NOW, message_id=None, tool_use_id="", rows=None, name="PostToolUse.Bash"):
    message = {"id": message_id or "m%f" % now}
    if tool_use_id:
        message["content"] = [{"type": "tool_use", "id": tool_use_id, "name": "Bash", "input": {}}]
    project.write_transcript((rows or []) + [assistant_row(percent * 2000, message=message)])
    event = project.event(name, session_id="s1", tool_use_id=tool_use_id, tool_input={"command": "c%f" % now})
    return project.step("monitor", event, now)


def reminds(project, *args, **kwargs):
    return "Write a handoff" in after_tool(project, *args, **kwargs).context


def settings(project, text):
    project.write(".contextrc", "audit:\n  stale_days: 0\n" + text)


def test_the_reminder_says_how_full_where_to_and_what(project):
    reply = after_tool(project, 85).reply
    assert reply == {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": (
        "Context is 85% full (170,000/200,000 tokens). Write a handoff for the next session to " + project.path(FILE) +
        " now, before anything else: goal, current state, decisions and why, next steps, open files."
        " This note comes with every tool result until that file is written.")}}


def test_an_estimated_reminder_says_so(project):
    project.write(STATE, '{"estimated_tokens": 170000}')
    event = project.event("PostToolUseFailure", session_id="s1")
    reply = project.step("monitor", event, NOW).reply["hookSpecificOutput"]
    assert reply["hookEventName"] == "PostToolUseFailure"
    assert "~85% full (170," in reply["additionalContext"] and "tokens, estimated)" in reply["additionalContext"]


def test_below_the_threshold_it_is_silent_and_from_then_on_every_call_reminds(project):
    assert after_tool(project, 79).is_silent
    assert [reminds(project, percent, NOW + number) for number, percent in enumerate((80, 80, 81, 75, 96))] == [True] * 5
    state = project.read_json(STATE)
    assert state["threshold_crossed_at"] == "2026-02-03T10:45:00.000Z", "set once"
    assert state["handoff_complete"] is False


def test_threshold_file_and_command_are_settings(project):
    settings(project, 'handoff:\n  threshold: 50\n  file: notes/next.md\n  command: "/handoff"\n')
    context = after_tool(project, 50).context
    assert " to %s now" % project.path("notes/next.md") in context and "/handoff writes it for you." in context
    settings(project, "handoff:\n  enabled: false\n")
    assert after_tool(project, 99).is_silent


def test_a_new_non_empty_file_ends_the_reminders(project):
    after_tool(project, 85)
    project.write(FILE, "# Goal\n", mtime=NOW + 3)
    assert after_tool(project, 85, NOW + 4).is_silent
    assert project.read_json(STATE)["handoff_complete"] is True
    os.unlink(project.path(FILE))
    assert after_tool(project, 99, NOW + 5).is_silent, "once written, it is not asked for again"


CLOCK = (  # the crossing's fraction, the file's time against the crossing's whole second -> counts
    (0.500, 0.500, True), (0.500, 0.481, True), (0.500, 0.479, False), (0.500, 0.9, True), (0.500, -0.6, False),
    (0.900, 0.0, True),  # a file system with whole seconds: the same second counts
    (0.900, -1.0, False), (0.900, 1.0, True), (0.0, -0.01, True), (0.0, -0.03, False),
)


@pytest.mark.parametrize("fraction, file_time, counts", CLOCK)
def test_file_clocks_are_coarse(project, fraction, file_time, counts):
    after_tool(project, 85, NOW + fraction)
    path = project.write(FILE, "# Goal\n")
    nanoseconds = int(NOW) * 10 ** 9 + round(file_time * 1000) * 10 ** 6
    os.utime(path, ns=(nanoseconds, nanoseconds))
    assert reminds(project, 85, NOW + 5) != counts


@pytest.mark.parametrize("kind", ["stale", "empty", "blank", "directory", "fifo", "dangling link", "missing"])
def test_what_is_no_new_handoff_does_not_count(project, kind):
    if kind == "stale":
        project.write(FILE, "# Goal of the session before\n", mtime=NOW - 60)
    after_tool(project, 85)
    os.makedirs(project.path(".claude"), exist_ok=True)
    if kind in ("empty", "blank"):
        project.write(FILE, "" if kind == "empty" else " \n\n", mtime=NOW + 1)
    elif kind == "directory":
        os.mkdir(project.path(FILE))
    elif kind == "fifo":
        os.mkfifo(project.path(FILE))
    elif kind == "dangling link":
        os.symlink("nowhere", project.path(FILE))
    assert reminds(project, 85, NOW + 2)


def test_parallel_calls_of_one_batch_remind_once(project):
    assert reminds(project, 85, NOW, message_id="m1", tool_use_id="t1")
    assert not reminds(project, 85, NOW + 0.1, message_id="m1", tool_use_id="t2")
    assert reminds(project, 85, NOW + 1, message_id="m2", tool_use_id="t3")


def test_without_a_known_batch_every_call_reminds(project):
    project.write(STATE, '{"estimated_tokens": 170000}')
    event = project.event("PostToolUse.Bash", session_id="s1", tool_use_id="t1")
    assert [bool(project.step("monitor", event, NOW + n).context) for n in range(3)] == [True] * 3


def test_a_cooldown_spaces_reminders_for_those_who_want_that(project):
    settings(project, "handoff:\n  cooldown_s: 60\n")
    assert [reminds(project, 85, NOW + seconds) for seconds in (0, 59, 60, 61, 120)] == [True, False, True, False, True]


# --- reset


def start(project, source, now):
    project.step("inject", project.event("SessionStart." + source, session_id="s1"), now)


@pytest.mark.parametrize("source", ["compact", "clear"])
def test_compaction_and_clear_reset_it_all(project, source):
    after_tool(project, 85)
    project.write(FILE, "# Goal\n", mtime=NOW + 1)
    after_tool(project, 85, NOW + 2)
    start(project, source, NOW + 3)
    state = project.read_json(STATE)
    assert (state["threshold_crossed_at"], state["handoff_complete"]) == (None, False)
    assert reminds(project, 85, NOW + 10), "the next crossing asks for a new one"


def test_a_boundary_that_only_the_transcript_shows_resets_too(project):
    after_tool(project, 85)
    project.write(FILE, "# Goal\n", mtime=NOW + 1)
    after_tool(project, 85, NOW + 2)
    assert after_tool(project, 10, NOW + 3).is_silent
    assert reminds(project, 85, NOW + 10)


def test_a_small_dip_below_the_threshold_resets_nothing(project):
    after_tool(project, 85)
    project.write(FILE, "# Goal\n", mtime=NOW + 1)
    after_tool(project, 85, NOW + 2)
    after_tool(project, 75, NOW + 3)
    assert after_tool(project, 85, NOW + 4).is_silent


# --- old and odd states


@pytest.mark.parametrize("old, crossed", [(True, True), (False, False), ("yes", False), (None, False)])
def test_old_state_files_are_migrated(project, old, crossed):
    import json

    project.write(STATE, json.dumps({"handoff_triggered": old, "tool_calls": 7}))
    assert reminds(project, 75) == crossed
    state = project.read_json(STATE)
    assert "handoff_triggered" not in state and state["tool_calls"] == 8
    assert bool(state["threshold_crossed_at"]) == crossed


def test_a_clock_that_went_back_does_not_make_the_handoff_unreachable(project):
    after_tool(project, 85, NOW + 3600)
    assert reminds(project, 85, NOW)
    project.write(FILE, "# Goal\n", mtime=NOW + 1)
    assert after_tool(project, 85, NOW + 2).is_silent


def test_a_finished_handoff_stays_finished_when_the_clock_goes_back(project):
    after_tool(project, 85, NOW + 3600)
    project.write(FILE, "# Goal\n", mtime=NOW + 3601)
    after_tool(project, 85, NOW + 3602)
    assert after_tool(project, 85, NOW).is_silent


@pytest.mark.parametrize("broken", ['{"threshold_crossed_at": "yesterday"}', '{"threshold_crossed_at": 5}',
                                    '{"reminded_at": 7, "reminders": "x"}', '{"handoff_complete": "yes"}', "[1]"])
def test_broken_state_reminds_and_ends_like_any_other(project, broken):
    project.write(STATE, broken)
    assert reminds(project, 85)
    project.write(FILE, "# Goal\n", mtime=NOW + 1)
    assert after_tool(project, 85, NOW + 2).is_silent


def test_a_state_that_cannot_be_written_does_not_nag_for_ever(open_project):
    """Without a crossing that can be remembered no handoff would ever be newer than it."""
    project = open_project
    project.write_transcript([assistant_row(170_000)])
    event = project.event("PostToolUse.Bash", session_id="s1")
    os.chmod(project.path(".context"), 0o555)
    assert project.call_as_user("monitor", event).is_silent


def test_what_happened_is_in_the_recorder(project):
    after_tool(project, 85)
    project.write(FILE, "# Goal\n", mtime=NOW + 1)
    after_tool(project, 85, NOW + 2)
    rows = project.recorded_events()
    assert [row["event"] for row in rows if row["event"].startswith("handoff")] == [
        "handoff:crossed", "handoff:reminded", "handoff:complete"]
    assert [row["percent"] for row in rows if row["event"] == "handoff:crossed"] == [85]
