"""Handoff: from the crossing on every batch of calls asks for it, and in the end there always is one."""
from __future__ import annotations

import json
import os

import pytest

import helper
from helper import NOW, assistant_row

OWN = ".context/handoffs/s1.md"
OLD = ".claude/ll-continue-prompt.md"
STATE = ".context/state/s1.json"
LEDGER = ".context/state/handoffs.json"
TEXT = "# Goal\n\nShip the login page.\n"


@pytest.fixture(autouse=True)
def quiet(project):
    settings(project)


def settings(project, text=""):
    """No reminder about old files, no alerts: only the handoff speaks."""
    project.write(".contextrc", "audit:\n  stale_days: 0\nmonitor:\n  inject_at: [prompt]\n" + text)


def after_tool(project, percent, now=NOW, tool_use_id="", session="s1", name="PostToolUse.Bash", rows=(), **changes):
    message = {"id": changes.pop("message_id", "m%f" % now)}
    if tool_use_id:
        message["content"] = [{"type": "tool_use", "id": tool_use_id, "name": "Bash", "input": {}}]
    project.write_transcript([*rows, assistant_row(percent * 2000, message=message)], session)
    changes.setdefault("tool_input", {"command": "c%f" % now})
    event = project.event(name, session_id=session, tool_use_id=tool_use_id, **changes)
    return project.step("monitor", event, now)


def reminds(project, *args, **kwargs):
    return "a handoff for the next session" in after_tool(project, *args, **kwargs).context


def row_of(project, session="s1"):
    return project.read_json(LEDGER)["handoffs"][session]


# --- the reminder


def test_the_reminder_says_how_full_where_to_and_what(project):
    reply = after_tool(project, 85).reply
    assert reply == {
        "systemMessage": "ctx: context 85% full, asked the agent for a handoff",
        "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": (
            "Context is 85% full (170,000/200,000 tokens). Write a handoff for the next session to " + project.path(OWN) +
            " now, before anything else; where that is not permitted, end your answer with it, between a line BEGIN HANDOFF"
            " and a line END HANDOFF. Put there: goal, current state, decisions and why, next steps, open files."
            " This note comes with every tool result until there is a handoff.")}}


def test_an_estimated_reminder_says_so(project):
    project.write(STATE, '{"estimated_tokens": 170000}')
    event = project.event("PostToolUseFailure", session_id="s1")
    reply = project.step("monitor", event, NOW).reply["hookSpecificOutput"]
    assert reply["hookEventName"] == "PostToolUseFailure"
    assert "~85% full (170," in reply["additionalContext"] and "tokens, estimated)" in reply["additionalContext"]


def test_below_the_threshold_it_is_silent_and_from_then_on_every_batch_reminds(project):
    assert after_tool(project, 70).is_silent
    assert [reminds(project, percent, NOW + number) for number, percent in enumerate((71, 80, 81, 75, 96))] == [True] * 5
    state = project.read_json(STATE)
    assert state["threshold_crossed_at"] == "2026-02-03T10:45:00.000Z", "set once"
    assert state["handoff_complete"] is False


def test_the_person_is_told_once_that_it_was_asked_for(project):
    said = [(after_tool(project, 85, NOW + n).reply or {}).get("systemMessage") for n in range(3)]
    assert said == ["ctx: context 85% full, asked the agent for a handoff", None, None]


POINTS = (  # window, settings and environment -> tokens
    (200_000, {}, {}, 142_000), (1_000_000, {}, {}, 800_000), (200_000, {"autoCompactEnabled": False}, {}, 160_000),
    (200_000, {}, {"DISABLE_AUTO_COMPACT": "1"}, 160_000), (1_000_000, {"autoCompactWindow": 400_000}, {}, 342_000),
    (1_000_000, {}, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "200000"}, 142_000),
    (200_000, {}, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "50"}, 65_000), (20_000, {}, {}, 16_000),
)


@pytest.mark.parametrize("window, stated, env, tokens", POINTS)
def test_the_threshold_minds_where_the_client_compacts(kit, project, window, stated, env, tokens):
    project.write(".claude/settings.json", json.dumps(stated))
    ctx, state = project.ctx(NOW, **env), kit.load_record({}, kit.SESSION)
    kit.note_settings(ctx, state)
    assert kit.handoff_point(ctx, state, window) == tokens


def test_threshold_file_and_command_are_settings(project):
    settings(project, 'handoff:\n  threshold: 50\n  file: notes/next.md\n  command: "/handoff"\n')
    context = after_tool(project, 50).context
    assert " to %s now" % project.path("notes/next.md") in context and "/handoff writes it for you." in context
    settings(project, "handoff:\n  enabled: false\n")
    assert after_tool(project, 99).is_silent


def test_it_lies_in_the_context_folder_whatever_that_is_called(project):
    project.write("docs/notes/TASKS.md", "# Tasks\n\n- one\n")
    settings(project, "context_dir: docs/notes\n")
    assert " to %s now" % project.path("docs/notes/handoffs/s1.md") in after_tool(project, 85).context


def test_parallel_calls_of_one_batch_remind_once(project):
    assert reminds(project, 85, NOW, message_id="m1", tool_use_id="t1")
    assert not reminds(project, 85, NOW + 0.1, message_id="m1", tool_use_id="t2")
    assert reminds(project, 85, NOW + 1, message_id="m2", tool_use_id="t3")


def test_without_a_known_batch_every_call_reminds_and_the_same_call_twice_once(project):
    project.write(STATE, '{"estimated_tokens": 170000}')
    events = [project.event("PostToolUse.Bash", session_id="s1", tool_use_id="t%d" % n) for n in (1, 2, 2, 3)]
    assert [bool(project.step("monitor", event, NOW + n).context) for n, event in enumerate(events)] == [
        True, True, False, True]


def test_a_transcript_that_has_not_grown_is_measured_once(kit, project, monkeypatch):
    measured, real = [], kit.read_usage
    monkeypatch.setattr(kit, "read_usage", lambda *given: measured.append(1) or real(*given))
    assert reminds(project, 85, tool_use_id="t1") and len(measured) == 1


def test_a_cooldown_spaces_reminders_for_those_who_want_that(project):
    settings(project, "handoff:\n  cooldown_s: 60\n")
    assert [reminds(project, 85, NOW + seconds) for seconds in (0, 59, 60, 61, 120)] == [True, False, True, False, True]


def test_a_process_that_began_earlier_and_comes_later_minds_the_cooldown_too(project):
    settings(project, "handoff:\n  cooldown_s: 60\n")
    assert [reminds(project, 85, NOW + seconds) for seconds in (1, 0.5)] == [True, False]


def test_in_plan_mode_it_asks_for_a_printed_one_alone(project):
    context = after_tool(project, 85, permission_mode="plan").context
    assert "End your answer with a handoff for the next session" in context and project.path(OWN) not in context


# --- (1) the agent writes it


def test_a_session_whose_write_was_denied_is_asked_to_print(project):
    assert project.path(OWN) in after_tool(project, 85).context
    call = assistant_row(170_000, message={"id": "m9", "content": [
        {"type": "tool_use", "id": "w1", "name": "Write", "input": {"file_path": project.path(OWN), "content": "x"}}]})
    denied = {"type": "user", "toolDenialKind": "permission-rule", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "w1", "is_error": True, "content": "denied"}]}}
    context = after_tool(project, 85, NOW + 1, rows=[call, denied]).context
    assert "End your answer with a handoff" in context and project.path(OWN) not in context


def test_the_sessions_own_file_ends_the_reminders_and_the_person_is_told(project):
    after_tool(project, 85)
    project.write(OWN, TEXT)
    assert after_tool(project, 85, NOW + 4).reply == {
        "systemMessage": "ctx: handoff written, /clear when you like; the next session starts from it"}
    assert project.read_json(STATE)["handoff_complete"] is True
    row = row_of(project)
    assert (row["by"], row["file"], row["agent"]) == ("agent", OWN, "claude") and row["written_at"] and row["asked_at"]
    os.unlink(project.path(OWN))
    assert after_tool(project, 99, NOW + 5).is_silent, "once written, it is not asked for again"


@pytest.mark.parametrize("off_s", [-3600, -60, 0, 60, 3600])
def test_clocks_that_are_off_do_not_matter(project, off_s):
    project.write(OWN, "# Goal\n\nof an earlier time\n", mtime=NOW - 5)
    after_tool(project, 85)
    assert reminds(project, 85, NOW + 1), "what stood there at the crossing is no new handoff"
    project.write(OWN, TEXT, mtime=NOW + off_s)
    assert not reminds(project, 85, NOW + 2)


@pytest.mark.parametrize("kind", ["empty", "blank", "template", "binary", "directory", "fifo", "dangling link", "missing"])
def test_what_says_nothing_does_not_count(project, kind):
    after_tool(project, 85)
    os.makedirs(project.path(".context/handoffs"), exist_ok=True)
    content = {"empty": "", "blank": " \n\n", "template": "# Goal\n\n- TBD\n\n# Next\n\n(one step …)\n", "binary": b"\0\1\2" * 99}
    if kind in content:
        project.write(OWN, content[kind])
    elif kind == "directory":
        os.mkdir(project.path(OWN))
    elif kind == "fifo":
        os.mkfifo(project.path(OWN))
    elif kind == "dangling link":
        os.symlink("nowhere", project.path(OWN))
    assert reminds(project, 85, NOW + 2)


def wrote(project, path, now=NOW + 2, session="s1"):
    return after_tool(project, 85, now, session=session, name="PostToolUse.Write", tool_input={"file_path": path})


def test_the_path_of_earlier_tools_counts_for_the_session_that_wrote_it(project):
    after_tool(project, 85)
    after_tool(project, 85, session="s2")
    project.write(OLD, TEXT, mtime=NOW + 1)
    assert reminds(project, 85, NOW + 2), "two sessions wait, and nobody knows who wrote it"
    assert not wrote(project, project.path(OLD), NOW + 3).context
    assert reminds(project, 85, NOW + 4, session="s2"), "one session's handoff never completes another's"


def test_the_path_of_earlier_tools_counts_for_the_only_one_that_waits(project):
    after_tool(project, 85)
    project.write(OLD, TEXT, mtime=NOW + 1)
    assert not reminds(project, 85, NOW + 2)


def test_a_failed_write_of_that_path_is_nobodys_handoff(project):
    for session in ("s1", "s2"):
        after_tool(project, 85, session=session)
    project.write(OLD, TEXT, mtime=NOW + 1)
    failed = {"name": "PostToolUseFailure", "tool_name": "Write", "tool_input": {"file_path": project.path(OLD)}}
    assert reminds(project, 85, NOW + 2, **failed)


def test_at_that_path_only_what_is_newer_than_the_crossing_counts(project):
    after_tool(project, 85)
    project.write(OLD, TEXT, mtime=NOW - 60)  # a checkout or a copy brought it
    assert reminds(project, 85, NOW + 2)


def test_two_sessions_with_the_same_first_letters_have_two_files(project):
    for session in ("abcdefgh-1", "abcdefgh-2"):
        after_tool(project, 85, session=session)
    files = [row["file"] for row in project.read_json(LEDGER)["handoffs"].values()]
    assert files == [".context/handoffs/abcdefgh.md", ".context/handoffs/abcdefgh-2.md"]


# --- (2) printed and saved at Stop


def stop(project, message, now=NOW + 5, session="s1"):
    return project.step("stop-enforce", project.event("Stop", session_id=session, last_assistant_message=message), now)


@pytest.mark.parametrize("form", ["%s\n%s\n%s", "**%s**\n\n%s\n**%s**", "```\n%s\n%s\n%s\n```", "Here:\r\n%s\r\n%s\r\n%s\r\nBye",
                                  "%s\n%s\n%s\nSo between\nBEGIN HANDOFF\nEND HANDOFF\nstands all."])
def test_a_printed_handoff_is_saved_at_stop(project, form):
    after_tool(project, 85)
    reply = stop(project, form % ("BEGIN HANDOFF", TEXT, "END HANDOFF"))
    assert reply.reply == {"systemMessage": "ctx: handoff written, /clear when you like; the next session starts from it"}
    assert "Ship the login page." in project.read(OWN) and row_of(project)["by"] == "printed"
    assert helper.IS_WINDOWS or os.stat(project.path(OWN)).st_mode & 0o777 == 0o600
    assert stop(project, "BEGIN HANDOFF\nother\nEND HANDOFF", NOW + 6).is_silent


@pytest.mark.parametrize("message", ["", "BEGIN HANDOFF\nnot closed", "END HANDOFF\nx\nBEGIN HANDOFF", "no handoff here",
                                     "> BEGIN HANDOFF\n> goal, current state\n> END HANDOFF\nI will not do that.",
                                     "BEGIN HANDOFF\n# Goal\n\nTBD\nEND HANDOFF"])
def test_nothing_else_is_saved(project, message):
    after_tool(project, 85)
    assert stop(project, message).is_silent and not project.exists(OWN)


def test_what_is_printed_goes_into_our_own_folder_whatever_file_a_project_names(project):
    settings(project, "handoff:\n  file: src/main.py\n")
    after_tool(project, 85)
    stop(project, "BEGIN HANDOFF\n%s\nEND HANDOFF" % TEXT)
    assert "Ship the login page." in project.read(OWN) and not project.exists("src/main.py")


def test_what_two_sessions_print_stays_apart_when_a_setting_names_another_file(project):
    settings(project, "handoff:\n  file: notes/next.md\n")
    for session, now in (("abcdefgh-1", NOW), ("abcdefgh-2", NOW + 60)):
        after_tool(project, 85, now, session=session)
        stop(project, "BEGIN HANDOFF\nThis is of %s.\nEND HANDOFF" % session, now + 1, session)
        after_tool(project, 10, now + 2, session=session)
        after_tool(project, 85, now + 3, session=session)  # asked again: the ledger names notes/next.md
    texts = [project.read(".context/handoffs/" + name) for name in sorted(os.listdir(project.path(".context/handoffs")))]
    assert texts == ["This is of abcdefgh-1.\n", "This is of abcdefgh-2.\n"]


def test_without_a_crossing_nothing_is_saved(project):
    after_tool(project, 10)
    assert stop(project, "BEGIN HANDOFF\n%s\nEND HANDOFF" % TEXT).is_silent and not project.exists(OWN)


def test_a_handoff_of_5_mb_is_cut_not_lost(project):
    after_tool(project, 85)
    stop(project, "BEGIN HANDOFF\n# Goal\n\n%s\nEND HANDOFF" % ("word " * 1_000_000))
    assert 1000 < len(project.read(OWN)) <= 512 * 1024


# --- (3) made from the transcript


def working_session(project, session="s1"):
    def row(kind, content, **more):
        return dict({"type": kind, "message": {"role": kind, "content": content}}, **more)

    def call(number, name, tool_input):
        return assistant_row(170_000, message={"id": "m%d" % number, "content": [
            {"type": "tool_use", "id": "t%d" % number, "name": name, "input": tool_input}]})

    def result(number, text, is_error=False):
        return row("user", [{"type": "tool_result", "tool_use_id": "t%d" % number, "is_error": is_error, "content": text}])

    rows = [row("user", "Add a login page with tests."), row("user", "Begin with the form."), row("user", "No cookies."),
            call(10, "Bash", {"command": "make lint"}), result(10, "Exit code 1", True), row("user", "Keep it small."),
            call(1, "TaskCreate", {"subject": "Write the form"}), result(1, "ok"),
            call(2, "TaskCreate", {"subject": "Write the tests"}), result(2, "ok"),
            call(3, "TaskUpdate", {"taskId": "1", "status": "completed"}), result(3, "ok"),
            call(8, "TaskList", {}), result(8, "ok"),
            call(6, "TaskCreate", {"subject": "Write the manual"}), result(6, "ok"),
            call(7, "TaskUpdate", {"taskId": "3", "status": "deleted"}), result(7, "ok"),
            call(4, "Write", {"file_path": project.path("src/login.py"), "content": "x"}), result(4, "ok"),
            call(5, "Bash", {"command": "make test API_TOKEN=abcdef123456"}), result(5, "Exit code 2\n1 test fails", True),
            row("user", "And use the old session table."),
            row("user", "<task-notification>x</task-notification>"),
            assistant_row(170_000, message={"id": "m9", "content": [{"type": "text", "text": "The form is there; the test of "
                                                                     "the redirect fails."}]})]
    return project.write_transcript(rows, session)


def test_the_mechanical_handoff_tells_what_somebody_needs_to_go_on(project):
    after_tool(project, 85)
    project.write(".git/HEAD", "ref: refs/heads/login\n")
    transcript = working_session(project)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1", transcript_path=transcript), NOW + 9)
    text = project.read(OWN)
    for part in ("written by ctx_hooks from the transcript", "branch login", "Add a login page with tests.",
                 "And use the old session table.", "the test of the redirect fails.", "- [x] Write the form",
                 "- [ ] Write the tests", "- src/login.py", "`make test API_TOKEN=[hidden]`", "1 test fails"):
        assert part in text, part
    requests = text.partition("## The person's last requests\n\n")[2].partition("\n\n##")[0]
    assert requests == "No cookies.\n\nKeep it small.\n\nAnd use the old session table."
    assert "Write the manual" not in text, "it was deleted"
    assert "make lint" not in text, "another one failed later"
    assert project.recorded_events("handoff:mechanical") and not project.recorded_events("handoff:complete")
    assert "abcdef123456" not in text and "task-notification" not in text and row_of(project)["by"] == "mechanical"


def test_of_what_the_agent_said_the_mechanical_handoff_has_the_end(kit, project):
    rows = [assistant_row(9, message={"id": "m%d" % n, "content": [{"type": "text", "text": "Step %d. %s" % (n, "word " * 60)}]})
            for n in range(40)]
    text = kit.render_mechanical(project.ctx(NOW), "s1", project.write_transcript(rows))
    said = text.partition("## What the agent said last")[2]
    assert "Step 39." in said and "Step 30." not in said and len(said) < 2000


def test_a_handoff_that_was_delivered_is_used_up_before_the_next_compaction(project):
    after_tool(project, 85)
    project.write(OWN, TEXT)
    after_tool(project, 85, NOW + 2)
    project.step("inject", project.event("SessionStart.compact", session_id="s1"), NOW + 3)
    ledger = project.read_json(LEDGER)
    ledger["handoffs"]["s1"]["evidence"] = "receipt"
    project.write(LEDGER, json.dumps(ledger))
    working_session(project)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1"), NOW + 900)
    assert "Add a login page with tests." in project.read(OWN) and row_of(project)["by"] == "mechanical"


def test_the_transcript_that_was_named_at_the_start_serves_where_the_compaction_names_none(project):
    working_session(project)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1", transcript_path=None), NOW + 9)
    assert "Add a login page with tests." in project.read(OWN)


def test_before_a_compaction_nothing_at_all_is_said(project):
    after_tool(project, 85)
    working_session(project)
    assert project.step("monitor", project.event("PreCompact.auto", session_id="s1"), NOW + 9).is_silent
    assert project.exists(OWN)


def test_a_handoff_that_is_there_is_not_replaced_by_a_mechanical_one(project):
    after_tool(project, 85)
    project.write(OWN, TEXT)
    working_session(project)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1"), NOW + 9)
    project.step("cleanup", project.event("SessionEnd.other", session_id="s1"), NOW + 10)
    assert project.read(OWN) == TEXT and row_of(project)["by"] == "agent"


@pytest.mark.parametrize("when", ["before any crossing", "before the crossing"])
def test_what_the_agent_wrote_unasked_is_not_replaced_by_a_mechanical_one(project, when):
    after_tool(project, 50)
    project.write(OWN, TEXT)
    if when == "before the crossing":
        after_tool(project, 85, NOW + 1)
    working_session(project)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1"), NOW + 9)
    assert project.read(OWN) == TEXT and row_of(project)["by"] == "agent"


@pytest.mark.parametrize("before", ["mechanical", "delivered"])
def test_what_the_agent_wrote_over_a_used_one_is_not_replaced_either(project, before):
    after_tool(project, 85)
    if before == "delivered":
        project.write(OWN, "# Goal\n\nAn earlier one.\n", mtime=NOW + 1)
        after_tool(project, 85, NOW + 2)
    working_session(project)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1"), NOW + 3)
    project.step("inject", project.event("SessionStart.compact", session_id="s1"), NOW + 6)
    ledger = project.read_json(LEDGER)
    ledger["handoffs"]["s1"]["evidence"] = "receipt" if before == "delivered" else ""
    project.write(LEDGER, json.dumps(ledger))
    project.write(OWN, TEXT, mtime=NOW + 60)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1"), NOW + 900)
    assert project.read(OWN) == TEXT and row_of(project)["by"] == "agent"
    context = project.step("inject", project.event("SessionStart.compact", session_id="s1"), NOW + 903).context
    assert "Ship the login page." in context


def test_at_a_path_for_all_sessions_anothers_handoff_is_not_taken_for_ones_own(project):
    settings(project, "handoff:\n  file: HANDOFF.md\n")
    after_tool(project, 85, session="s2")
    project.write("HANDOFF.md", TEXT, mtime=NOW + 1)
    wrote(project, project.path("HANDOFF.md"), session="s2")
    after_tool(project, 50)
    working_session(project)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1"), NOW + 9)
    assert project.read("HANDOFF.md") == TEXT and row_of(project, "s2")["by"] == "agent"
    assert row_of(project)["by"] == "mechanical" and "Add a login page with tests." in project.read(OWN)


@pytest.mark.parametrize("file", ["HANDOFF.md", ".context/handoffs/all.md"])
def test_at_a_path_for_all_sessions_one_that_waits_does_not_take_anothers_handoff_either(project, file):
    settings(project, "handoff:\n  file: %s\n" % file)
    for session in ("s1", "s2"):
        after_tool(project, 85, session=session)
    project.write(file, TEXT, mtime=NOW + 1)
    wrote(project, project.path(file), session="s2")
    working_session(project)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1"), NOW + 9)
    assert project.read(file) == TEXT and row_of(project, "s2")["by"] == "agent"
    assert row_of(project)["by"] == "mechanical" and "Add a login page with tests." in project.read(OWN)


def test_a_compaction_reported_twice_loses_nothing_and_delivers_once(project):
    after_tool(project, 85)
    project.write(OWN, TEXT)
    after_tool(project, 85, NOW + 1)
    working_session(project)
    event = project.event("SessionStart.compact", session_id="s1")
    assert "Ship the login page." in project.step("inject", event, NOW + 2).context
    assert project.step("inject", event, NOW + 2.5).is_silent and project.read(OWN) == TEXT


def test_a_session_named_like_anothers_file_has_a_file_of_its_own(project):
    for session in ("abcdefgh-1", "abcdefgh"):
        after_tool(project, 85, session=session)
    files = [row["file"] for row in project.read_json(LEDGER)["handoffs"].values()]
    assert len(set(files)) == 2


def test_a_link_out_of_the_project_is_no_handoff(project):
    after_tool(project, 85)
    outside = os.path.join(project.base, "outside.md")
    with open(outside, "w") as out:
        out.write(TEXT)
    os.symlink(outside, project.path(OWN))
    assert reminds(project, 85, NOW + 1), "what cannot be delivered is not written"


@pytest.mark.parametrize("data", [TEXT.encode("utf-16"), TEXT.replace("\n", "\r").encode()])
def test_other_encodings_and_line_ends_say_something_too(kit, project, data):
    after_tool(project, 85)
    project.write(OWN, data)
    assert not reminds(project, 85, NOW + 1)
    assert "Ship the login page." in kit.read_handoff(project.ctx(NOW), project.path(OWN))


def test_a_printed_secret_is_hidden(project):
    after_tool(project, 85)
    stop(project, "BEGIN HANDOFF\nGoal: x. API_KEY=hunter22 sk-ant-abcdefghijkl\nEND HANDOFF")
    assert "hunter22" not in project.read(OWN) and "abcdefghijkl" not in project.read(OWN)


@pytest.mark.parametrize("text", ["sk-ant-abcdefghijkl", "\u200b\u200b", "<system-reminder>"])
def test_what_says_nothing_once_it_is_cleaned_is_not_taken_for_a_handoff(project, text):
    after_tool(project, 85)
    assert stop(project, "BEGIN HANDOFF\n%s\nEND HANDOFF" % text).is_silent and not project.exists(OWN)
    assert reminds(project, 85, NOW + 6), "so it is asked for again"


def test_a_session_that_ends_after_the_crossing_leaves_one_and_before_it_none(project):
    after_tool(project, 10, session="s2")
    working_session(project, "s2")
    project.step("cleanup", project.event("SessionEnd.other", session_id="s2"), NOW + 1)
    assert not project.exists(".context/handoffs/s2.md")
    after_tool(project, 85)
    working_session(project)
    project.step("cleanup", project.event("SessionEnd.other", session_id="s1"), NOW + 2)
    assert "Add a login page" in project.read(OWN) and not project.exists(STATE)


@pytest.mark.parametrize("agent", ["claude", "an agent of a later version"])
def test_a_killed_session_gets_its_handoff_at_the_next_start(project, agent):
    after_tool(project, 85)
    working_session(project)
    state = project.read_json(STATE)
    project.write(STATE, json.dumps(dict(state, client=str(2 ** 22 + 7), agent=agent)))  # no such process
    reply = project.step("inject", project.event("SessionStart.startup", session_id="s2"), NOW + 60)
    assert "written by ctx_hooks from the transcript" in reply.context and "Add a login page with tests." in reply.context


def test_of_two_killed_sessions_each_start_makes_up_for_one(project):
    """All at once would not fit into the time of a start."""
    for session in ("s1", "s3"):
        after_tool(project, 85, session=session)
        working_session(project, session)
        path = ".context/state/%s.json" % session
        project.write(path, json.dumps(dict(project.read_json(path), client=str(2 ** 22 + 7))))
    for made in (1, 2):
        project.step("inject", project.event("SessionStart.startup", session_id="s%d" % (made + 4)), NOW + 60 * made)
        assert sum(bool(row_of(project, session)["by"]) for session in ("s1", "s3")) == made


def test_a_killed_sessions_transcript_is_read_as_its_own_client_wrote_it(project):
    after_tool(project, 85)
    working_session(project)
    project.write(STATE, json.dumps(dict(project.read_json(STATE), client=str(2 ** 22 + 7))))
    project.env.pop("CLAUDE_PROJECT_DIR", None)
    event = {"hook_event_name": "SessionStart", "session_id": "c1", "cwd": project.root, "source": "startup"}
    reply = project.step("inject", event, NOW + 60, agent="codex")
    assert "Add a login page with tests." in reply.context and row_of(project)["agent"] == "claude"


def test_a_session_whose_end_was_cut_off_by_clear_gets_its_handoff_too(project):
    own = {"CLAUDE_PID": str(os.getpid())}
    project.write_transcript([assistant_row(170_000)])
    project.step("monitor", project.event("PostToolUse.Bash", session_id="s1"), NOW, **own)
    working_session(project)
    reply = project.step("inject", project.event("SessionStart.clear", session_id="s2"), NOW + 5, **own)
    assert "Add a login page with tests." in reply.context


def test_a_session_that_comes_back_is_not_taken_for_a_killed_one(project):
    own = {"CLAUDE_PID": str(os.getpid())}
    project.write_transcript([assistant_row(170_000)])
    project.step("monitor", project.event("PostToolUse.Bash", session_id="s1"), NOW, **own)
    working_session(project)
    project.step("inject", project.event("SessionStart.resume", session_id="s1"), NOW + 5, **own)
    assert not project.exists(OWN)


def test_handoffs_switched_off_means_no_mechanical_one_either(project):
    settings(project, "handoff:\n  enabled: false\n")
    after_tool(project, 85)
    working_session(project)
    project.step("monitor", project.event("PreCompact.auto", session_id="s1"), NOW + 1)
    project.step("cleanup", project.event("SessionEnd.other", session_id="s1"), NOW + 2)
    assert not project.exists(OWN)


@pytest.mark.parametrize("name", ["main", "hook-receipts"])
def test_recorded_transcripts_make_a_readable_one(kit, project, name):
    path = project.write_transcript(helper.transcript_rows(name))
    text = kit.render_mechanical(project.ctx(NOW), "s1", path)
    assert "## Goal" in text and "## What the agent said last" in text
    assert kit.says_something(text.encode()) and len(text) < 9000


@pytest.mark.parametrize("rows", [[], [b"\xff\xfe"], ["{"], [{"type": "user"}], [{"type": "user", "message": {"content": 7}}]])
def test_a_transcript_that_tells_nothing_makes_none(kit, project, rows):
    assert kit.write_mechanical(project.ctx(NOW), "s1", project.write_transcript(rows)) is False


def test_a_giant_transcript_is_read_from_its_ends(kit, project):
    path = working_session(project)
    tail = helper._content(path)
    with open(path, "wb") as out:
        out.write(tail.split(b"\n", 1)[0] + b"\n")
        for _ in range(100):
            out.write(json.dumps({"type": "progress", "data": "x" * (1 << 20)}).encode() + b"\n")
        out.write(tail)
    text = kit.render_mechanical(project.ctx(NOW), "s1", path)
    assert "## Goal: the person's first request\n\nAdd a login page with tests.\n" in text
    assert "## Files changed\n\n- src/login.py\n" in text


def test_a_transcript_of_very_many_rows_is_read_for_a_bounded_time(kit, project, monkeypatch):
    early = assistant_row(9, message={"id": "m", "content": [
        {"type": "tool_use", "id": "t", "name": "TaskCreate", "input": {"subject": "An early step"}}]})
    rows = [{"type": "user", "message": {"role": "user", "content": "Request %d." % n}} for n in range(40)]
    path, clock = project.write_transcript([early, *rows]), iter(range(1000))
    monkeypatch.setattr(kit.time, "monotonic", lambda: next(clock) / 10)
    text = kit.render_mechanical(project.ctx(NOW), "s1", path)
    assert "Request 0." in text and "Request 39." in text and "An early step" not in text


# --- reset, odd states


@pytest.mark.parametrize("source", ["compact", "clear"])
def test_compaction_and_clear_reset_it_all(project, source):
    after_tool(project, 85)
    project.write(OWN, TEXT)
    after_tool(project, 85, NOW + 2)
    project.step("inject", project.event("SessionStart." + source, session_id="s1"), NOW + 3)
    state = project.read_json(STATE)
    assert (state["threshold_crossed_at"], state["handoff_complete"]) == (None, False)
    assert reminds(project, 85, NOW + 10), "the next crossing asks for a new one"


def test_a_boundary_that_only_the_transcript_shows_resets_too_and_a_small_dip_does_not(project):
    after_tool(project, 85)
    project.write(OWN, TEXT, mtime=NOW + 1)
    after_tool(project, 85, NOW + 2)
    after_tool(project, 66, NOW + 3)
    assert after_tool(project, 85, NOW + 4).is_silent
    assert after_tool(project, 10, NOW + 5).is_silent
    assert reminds(project, 85, NOW + 10)


def test_an_estimate_that_falls_ends_no_crossing(project):
    after_tool(project, 85)
    os.unlink(project.transcript_path("s1"))
    project.write(STATE, json.dumps(dict(project.read_json(STATE), estimated_tokens=20_000)))
    event = project.event("PostToolUse.Bash", session_id="s1")
    assert "a handoff for the next session" in project.step("monitor", event, NOW + 1).context


def test_a_clock_that_went_back_changes_nothing(project):
    after_tool(project, 85, NOW + 3600)
    assert reminds(project, 85, NOW)
    project.write(OWN, TEXT)
    assert not reminds(project, 85, NOW + 2)
    assert after_tool(project, 85, NOW - 3600).is_silent


@pytest.mark.parametrize("broken", ['{"threshold_crossed_at": "yesterday"}', '{"threshold_crossed_at": 5}',
                                    '{"reminded_at": 7, "reminders": "x"}', '{"handoff_complete": "yes"}', "[1]"])
def test_broken_state_reminds_and_ends_like_any_other(project, broken):
    project.write(STATE, broken)
    assert reminds(project, 85)
    project.write(OWN, TEXT)
    assert not reminds(project, 85, NOW + 2)


@pytest.mark.parametrize("broken", ["", "[]", "{", '{"handoffs": 7}', '{"inode": 1, "handoffs": {"s1": {"written_at": 5}}}'])
def test_a_broken_ledger_is_begun_anew(project, broken):
    project.write(LEDGER, broken)
    assert reminds(project, 85)
    assert project.read_json(LEDGER)["handoffs"]["s1"]["file"] == OWN


def test_where_nothing_can_be_written_the_reminder_still_comes(open_project):
    project = open_project
    project.write_transcript([assistant_row(170_000)])
    event = project.event("PostToolUse.Bash", session_id="s1")
    os.chmod(project.path(".context"), 0o555)
    assert "a handoff for the next session" in project.call_as_user("monitor", event).context


@pytest.mark.skipif(os.name == "nt", reason="Windows has no mode bits")
def test_where_nothing_can_be_written_it_is_asked_for_once(open_project):
    """It can neither be written nor saved when it is printed: one request."""
    project = open_project
    project.write_transcript([assistant_row(170_000)])
    os.chmod(project.path(".context"), 0o555)
    replies = [project.call_as_user("monitor", project.event("PostToolUse.Bash", session_id="s1", tool_use_id="t%d" % number)).reply
               for number in range(3)]
    assert "cannot be written, so the person has to keep it" in replies[0]["hookSpecificOutput"]["additionalContext"]
    assert all("handoff" not in json.dumps(reply or {}) for reply in replies[1:])


@pytest.mark.parametrize("age_s, counts", [(5, True), (590, True), (700, False)])
def test_a_handoff_written_just_before_the_crossing_counts(project, age_s, counts):
    after_tool(project, 50, NOW - 1000)
    project.write(OWN, TEXT, mtime=NOW - age_s)
    assert reminds(project, 85, NOW) is not counts
    assert project.read_json(STATE)["handoff_complete"] is counts


def test_a_handoff_written_before_the_compaction_does_not_count_after_it(project):
    after_tool(project, 50, NOW - 100)
    project.write(OWN, TEXT, mtime=NOW - 50)
    project.step("inject", project.event("SessionStart.compact", session_id="s1"), NOW - 20)
    assert reminds(project, 85, NOW)


def test_a_handoff_edited_before_the_compaction_does_not_count_after_it_either(project):
    after_tool(project, 85)
    for at in (1, 10):
        project.write(OWN, TEXT + str(at), mtime=NOW + at)
        after_tool(project, 85, NOW + 2)
    project.step("inject", project.event("SessionStart.compact", session_id="s1"), NOW + 20)
    assert reminds(project, 85, NOW + 30)


@pytest.mark.skipif(helper.IS_WINDOWS, reason="Windows has no user numbers")
def test_in_a_shared_checkout_each_user_has_a_ledger(kit, project, monkeypatch):
    ctx = project.ctx(NOW)
    own = kit.ledger_path(ctx)
    monkeypatch.setattr(kit._os, "geteuid", lambda: os.stat(project.root).st_uid + 4242)
    assert kit.ledger_path(ctx) != own == project.path(LEDGER)


@pytest.mark.parametrize("client, later_s, is_gone", [("", 60, False), ("", 3700, True), (str(os.getpid()), 3700, False),
                                                      (str(os.getpid()), 87000, True), (str(2 ** 22 + 7), 60, True)],
                         ids=["untold", "untold and silent", "alive", "silent for a day", "dead"])  # a pid is another in each worker
def test_a_session_is_gone_with_its_client_or_after_a_time_of_silence(project, client, later_s, is_gone):
    """A number that runs may be another process by now, after a container was killed: it is believed for a day."""
    after_tool(project, 85)
    working_session(project)
    project.write(STATE, json.dumps(dict(project.read_json(STATE), client=client)))
    os.utime(project.path(STATE), (NOW, NOW))
    reply = project.step("inject", project.event("SessionStart.startup", session_id="s2"), NOW + later_s)
    assert ("Add a login page with tests." in reply.context) is is_gone


def test_a_large_number_of_a_folder_is_kept(kit):
    """NTFS and some network file systems have numbers of 64 bits; one that is not kept would empty the ledger."""
    assert kit.load_record({"inode": 2 ** 63 + 5}, kit.LEDGER).inode == 2 ** 63 + 5


@pytest.mark.parametrize("name", ["state", "handoffs"])
def test_a_file_in_a_folders_place_is_asked_about_once(project, name):
    project.write(".context/" + name, "")
    asked = [bool(after_tool(project, 85, NOW + number).context) for number in range(4)]
    assert asked == [True, False, False, False]
