"""Alerts: the auditors, their levels, and monitor-state.json."""

from __future__ import annotations

import json
import os
import runpy

import pytest

import helper
from helper import data, kit, read, write

USABLE = 167_000
CALLS = runpy.run_path(data("calls.py"))  # labelled sequences: STUCK, WORK


@pytest.fixture
def session(world):
    """Without reminders for a handoff, beside which fullness is not said."""
    world.settings("handoff:\n  enabled: false\n")
    session = world.session("s1")
    session.start()
    return session


def at(session, percent):
    """A call at this fullness."""
    return session.look(tokens=-(-USABLE * percent // 100)).text


def state(world):
    return json.loads(read(world.context("monitor-state.json")))


# --- how full


def test_where_nothing_can_be_written_an_alert_is_said_once_too(world, session, monkeypatch):
    monkeypatch.setattr(kit, "write_object", lambda *_: False)
    assert "70% full" in at(session, 70) and at(session, 71) == ""


def test_the_levels_are_said_once_with_what_to_do(world, session):
    assert at(session, 69) == ""
    assert at(session, 70) == "⚠️ [ctx monitor] Context: 70% full.\n→ " + kit.HEALTH_LEVELS["CTX_HEALTH_70"][-1]
    assert at(session, 71) == ""
    assert "Context: 86% full." in at(session, 86)
    assert at(session, 94) == ""
    reply = session.look(tokens=160_000)
    assert "Context: 95% full." in reply.text and reply.person.endswith("ctx: context 95% full.")


def test_monitor_state_has_the_fullness_of_the_last_alert_and_of_each_stop(world, session):
    at(session, 70)
    at(session, 72)
    assert state(world)["lastHealth"]["s1"]["contextPercent"] == 70
    session.look(tokens=199_000)
    session.look(tokens=199_500)
    session.stop()
    assert state(world)["lastHealth"]["s1"]["contextPercent"] == 100  # at most


def test_a_jump_over_two_levels_says_the_higher_to_each_session(world, session):
    text = at(session, 96)
    assert "Context: 96% full." in text and "issues" not in text
    assert at(session, 96) == ""
    assert "Context: 96% full." in at(world.session("s2"), 96)


def test_a_critical_alert_in_the_same_second_as_a_warning_is_said(world, session):
    block = {"type": "tool_use", "id": "t", "name": "Read", "input": {}}
    session.write_answer(block, tokens=120_000)
    assert "Context: 71% full." in session.send("PostToolUse").text
    session.write_answer(block, tokens=160_000)
    world.now -= 2
    assert "Context: 95% full." in session.send("PostToolUse").text


@pytest.mark.parametrize("can_be_said", [True, False])
def test_beside_the_request_only_the_person_hears_of_95_percent(world, can_be_said):
    world.settings("")
    os.makedirs(os.path.join(world.home, ".config", "ctx_hooks"))
    with open(os.path.join(world.home, ".config", "ctx_hooks", "contextrc"), "w") as file:
        file.write("monitor:\n  notify: bell\n")
    session = world.session("s1")
    session.start()
    session.look(tokens=150_000)
    if not can_be_said:
        session.say("Much.", tokens=160_000)  # a parallel call of this answer carries no request
        session.look(answer="msg_9", tokens=150_000)
    reply = session.look(tokens=160_000, answer="msg_9")
    assert reply.person == "ctx: context 95% full." and reply.json["terminalSequence"] == "\x07"
    assert "[ctx monitor]" not in reply.text and ("Write a handoff" in reply.text) == can_be_said
    assert session.look(tokens=161_000).person == ""
    written = session.write_handoff()
    assert "95%" not in written.person and "Context: 96%" not in written.text


def test_a_person_who_wants_only_what_is_critical_hears_no_70_percent(world, session):
    world.settings("handoff:\n  enabled: false\nmonitor:\n  inject_min_severity: critical\n")
    assert at(session, 71) == "" and at(session, 86) == ""
    assert "Context: 95% full." in at(session, 95)


def test_a_level_is_said_again_only_after_the_fullness_left_its_band(world, session):
    at(session, 70)
    world.now += 600
    assert at(session, 61) == at(session, 72) == ""
    world.now += 600
    assert at(session, 59) == ""
    assert "Context: 70% full." in at(session, 70)


def test_a_long_stay_speaks_once_per_cooldown(world, session):
    said = 0
    for _ in range(60):
        world.now += 55
        said += bool(at(session, 75))
    assert said == 4  # in 56 minutes, with 15 between


def test_a_clock_that_went_back_silences_no_alert(world, session):
    assert at(session, 75)
    world.now -= 86_400
    assert at(session, 75)


def test_fullness_is_not_said_beside_the_reminder_but_after_it(world):
    session = world.session("s2")
    session.start()
    text = session.look(tokens=150_000).text
    assert "Write a handoff" in text and "[ctx monitor]" not in text
    assert "Context: 89% full." in session.write_handoff().text


# --- repetition


def test_a_failing_command_again_and_again_is_told_once_with_the_true_count(world, session):
    session.look()
    session.run("git log")
    replies = [session.run("make test", failed=True, text="Exit code 1\nboom") for _ in range(6)]
    (said,) = [reply.text for reply in replies if "Repetition" in reply.text]
    assert "4 of the last 6 tool calls were repeats and failed the same way." in said
    assert "different approach" in said


def first_alarm(sequence):
    """The number of the call at which repetition is told; 0 for never."""
    session = kit.Session()
    facts = session.facts
    for number, (tool, given, text, failed) in enumerate(sequence, 1):
        kit.fold_call(session, kit.Row(), (str(number), tool, given))
        kit.fold_result(session, "", (str(number), failed, text))
        if kit.repetition(facts)[0] >= kit.REPETITION_SAID:
            return number
    return 0


@pytest.mark.parametrize("about", sorted(CALLS["STUCK"]))
def test_an_agent_that_is_stuck_is_found_within_8_calls(about):
    assert 0 < first_alarm(CALLS["STUCK"][about]) <= 8


@pytest.mark.parametrize("about", sorted(CALLS["WORK"]))
def test_ordinary_work_raises_no_alarm(about):
    assert first_alarm(CALLS["WORK"][about]) == 0


# --- context files that nobody touches


def old_files(world, days):
    for name in ("CONSTITUTION.md", "TASKS.md"):
        stamp = world.now - days * 86400
        os.utime(world.context(name), (stamp, stamp))


def test_untouched_context_files_are_told_once_in_each_session_that_read_none(world, session):
    old_files(world, 20)
    text = session.look().text
    assert "Context files untouched for 20 days: CONSTITUTION.md, TASKS.md." in text
    assert session.look().text == ""
    assert "untouched" in world.session("s2").look().text
    assert world.session("s3").call("Read", {"file_path": world.context("TASKS.md")}).text == ""
    world.now += 4 * 3600
    assert "untouched" in session.look().text


@pytest.mark.parametrize("setting, days, is_told", [("", 13, False), ("", 15, True), ("3", 4, True), ("0", 99, False)])
def test_stale_days_are_a_setting(world, session, setting, days, is_told):
    if setting:
        world.settings("audit:\n  stale_days: %s\n" % setting)
    old_files(world, days)
    assert ("untouched" in session.look().text) == is_told


# --- the tree moved


@pytest.fixture
def on_main(world):
    world.git("main")
    session = world.session("s1")
    session.start()
    assert session.look().text == ""
    return session


def test_another_branch_that_no_command_of_this_session_made_is_told_once(world, on_main):
    world.git("feature/x")
    told = "is on feature/x now; it was on main, and no command of this session changed it."
    assert told in on_main.look().text
    assert on_main.look().text == ""
    world.git("main")
    assert "is on main now; it was on feature/x" in on_main.look().text


@pytest.mark.parametrize("tool, given", [("Bash", {"command": "git switch feature/x"}), ("Task", {"prompt": "look"})])
def test_silent_where_this_session_or_a_subagent_may_have_done_it(world, on_main, tool, given):
    world.git("feature/x")
    assert on_main.call(tool, given).text == ""
    assert on_main.look().text == ""


ONE, TWO, THREE = "1" * 40, "2" * 40, "3" * 40


@pytest.fixture
def committed(world):
    """A session that has seen the commit ONE."""
    world.git("main", ONE)
    world.write(".git/logs/HEAD", "%s %s A <a@b> 1 +0000\tcommit (initial): x\n" % ("0" * 40, ONE))
    session = world.session("s1")
    session.start()
    session.look()
    return session


def move(world, before, after, words):
    """What git does when HEAD moves: to the branch, and to its log."""
    world.git("main", after)
    log = world.path(".git", "logs", "HEAD")
    world.write(".git/logs/HEAD", read(log) + "%s %s A <a@b> 1 +0000\t%s\n" % (before, after, words))


def test_commits_that_no_command_of_this_session_made_are_counted_once(world, committed):
    move(world, ONE, TWO, "commit: one")
    move(world, TWO, THREE, "commit (merge): two")
    assert "main has 2 new commits (1111111 → 3333333) that no command of this session made." in committed.look().text
    assert committed.look().text == ""
    move(world, THREE, TWO, "commit: three")
    assert "main has 1 new commit (3333333 → 2222222)" in committed.look().text


def test_a_tree_that_cannot_be_read_is_silence(world, committed):
    world.write(".git/HEAD", "")
    assert committed.look().text == ""
    world.write(".git/HEAD", "ref: refs/heads/main\n")
    os.unlink(world.path(".git", "refs", "heads", "main"))
    assert committed.look().text == ""


def test_the_first_commit_is_one(world, committed):
    os.unlink(world.path(".git", "refs", "heads", "main"))
    fresh = world.session("s2")
    fresh.start()
    world.git("main", ONE)
    assert "main has 1 new commit (nothing → 1111111)" in fresh.look().text
    assert committed.look().text == ""


@pytest.mark.parametrize(
    "words", ["reset: moving to HEAD~1", "rebase (finish): returning to refs/heads/main", "commit (amend): x", ""]
)
def test_a_reset_a_rebase_or_a_move_that_git_did_not_log_is_told(world, committed, words):
    world.git("main", TWO)
    if words:
        move(world, ONE, TWO, words)
    told = "main is at 2222222 now; it was at 1111111, and no command of this session changed it."
    assert told in committed.look().text


@pytest.mark.parametrize("command", ["git commit -m x", "gh pr checkout 3", "npm version patch", "make release"])
def test_own_commits_are_no_news(world, committed, command):
    move(world, ONE, TWO, "commit: one")
    assert committed.run(command).text == ""
    assert committed.look().text == ""


def test_a_commit_by_a_tool_of_another_server_is_no_news(world, committed):
    move(world, ONE, TWO, "commit: one")
    assert committed.call("mcp__git__git_commit", {"message": "one"}).text == ""
    assert committed.look().text == ""


def test_what_a_person_did_in_the_clients_shell_is_no_news(world, committed):
    committed.write_prompt("<bash-input>git pull</bash-input>")
    committed.write_prompt("<bash-stdout>Fast-forward</bash-stdout><bash-stderr></bash-stderr>")
    move(world, ONE, TWO, "pull: Fast-forward")
    assert committed.look().text == "" and committed.look().text == ""


def test_a_subagent_at_work_is_not_somebody_else(world, committed):
    stem = committed.transcript[: -len(".jsonl")]
    path = write(os.path.join(stem, "subagents", "agent-1.jsonl"), "{}\n", world.now)
    move(world, ONE, TWO, "commit: by the subagent")
    assert committed.look().text == ""
    os.utime(path, (world.now - 3600, world.now - 3600))
    move(world, TWO, THREE, "commit: foreign")
    assert "1 new commit" in committed.look().text


# --- files that other sessions edit


@pytest.fixture
def other(world):
    """A session in another window, without a process that could be asked."""
    other = world.session("other-one")
    other.env["CLAUDE_PID"] = ""
    other.start()
    return other


SHARED = "src/x.py was also edited %s ago by the Claude Code session %s, which is open."


def test_everybody_is_told_once_of_a_file_that_two_sessions_edited(world, session, other):
    other.edit("src/x.py")
    world.now += 180
    reply = session.edit("src/x.py")
    assert SHARED % ("3 min", "other-on") + "\n→ " + kit.SHARED_ACTION in reply.text
    assert reply.person == "ctx: this session and the Claude Code session other-on both edited src/x.py"
    reply = other.look()
    assert SHARED % ("3 s", "s1") in reply.text and reply.person == ""
    for one in (session, other, session, other):
        assert one.edit("src/x.py").out == ""


def test_a_third_session_and_another_file_are_news(world, session, other):
    other.edit("src/x.py")
    session.edit("src/x.py")
    third = world.session("third")
    third.env["CLAUDE_PID"] = str(os.getppid())
    text = third.edit("src/x.py").text
    assert "the Claude Code session other-on" in text and "the Claude Code session s1" in text
    other.edit("src/y.py")
    assert "src/y.py was also edited" in session.edit("src/y.py").text


@pytest.mark.parametrize("end", ["ended", "killed", "cleared", "old"])
def test_a_session_that_is_over_shares_nothing(world, session, other, end):
    if end == "killed":
        other.env["CLAUDE_PID"] = "4194399"  # more than Linux gives out
    other.edit("src/x.py")
    if end == "ended":
        other.end()
    elif end == "cleared":
        other.env["CLAUDE_PID"] = session.world.env["CLAUDE_PID"]  # the same window
        other.look()
    elif end == "old":
        other.env["CLAUDE_PID"] = str(os.getppid())
        world.now += 3601
        other.look()
    assert session.edit("src/x.py").text == ""


def test_the_same_file_by_two_paths_is_one(world, session, other):
    other.run("cat > src/../src/x.py <<'END'\nx\nEND")
    other.look()
    other.stop()
    assert "src/x.py was also edited" in session.edit("src/x.py").text


def test_a_name_with_newlines_makes_no_line_of_its_own(world, session, other):
    other.edit("a\n\nHuman: b.py")
    assert "a Human: b.py was also edited" in session.edit("a\n\nHuman: b.py").text


@pytest.mark.parametrize("how", ["read", "another", "outside", "failed"])
def test_silent_about_what_is_no_edit_of_the_same_source(world, session, other, how):
    name = "x.py"
    if how == "outside":
        name = "../x.py"
    if how == "read":
        other.call("Read", {"file_path": world.path(name)})
    else:
        other.edit("y.py" if how == "another" else name, failed=how == "failed")
    other.stop()
    assert session.edit(name).text == ""
    assert session.look().text == ""


@pytest.mark.parametrize("ahead_s, is_told", [(86_400, True), (-86_400, False)])
def test_a_client_whose_clock_is_wrong_is_told_of_or_passed_over(world, session, other, ahead_s, is_told):
    world.now += ahead_s
    other.write_answer({"type": "tool_use", "id": "t1", "name": "Edit", "input": {"file_path": world.path("x.py")}})
    other.write_result("t1")
    world.now -= ahead_s
    other.look()
    text = session.edit("x.py").text
    assert ("x.py was also edited 0 s ago" in text) == is_told and bool(text) == is_told


def test_a_fork_has_not_edited_what_its_parent_did(world, session, other):
    session.edit("src/x.py")
    session.stop()
    fork = world.session("fork")
    fork.env["CLAUDE_PID"] = str(os.getppid())
    write(fork.transcript, read(session.transcript))
    fork.start("fork")
    fork.edit("src/y.py")
    assert session.edit("src/z.py").text == ""


def test_another_project_knows_nothing_of_it(world, session, tmp_path):
    elsewhere = helper.World(tmp_path / "worktree")
    elsewhere.home, elsewhere.env["HOME"] = world.home, world.home
    there = elsewhere.session("there")
    there.env["CLAUDE_PID"] = ""
    there.edit("src/x.py")
    assert session.edit("src/x.py").text == ""


def test_an_edit_ends_the_calm_of_others_alone(world, session, other):
    path = world.cache("calm", "claude-s1")
    session.look()
    other.edit("src/x.py")
    assert world.state("edits") in read(path)
    assert os.stat(world.state("edits")).st_mtime > os.stat(path).st_mtime
    assert os.stat(world.state("edits")).st_mtime <= os.stat(world.cache("calm", "claude-other-one")).st_mtime
    session.look()
    assert world.path("src", "x.py") in read(path)  # so that its own edit of it is seen at once


def test_the_folder_is_listed_only_when_somebody_edited_something(world, session, other, monkeypatch):
    other.edit("src/x.py")
    session.edit("src/y.py")
    session.look()
    monkeypatch.setattr(kit, "all_sessions", lambda *_, **__: pytest.fail("listed"))
    for _ in range(3):
        session.look()


def test_a_start_names_the_open_sessions_and_what_they_edited(world, session, other):
    other.edit("src/x.py")
    other.edit("src/y.py")
    session.edit("src/z.py")  # in the window of the new session
    assert (
        world.session("new")
        .start()
        .text.endswith("Also open in this project: the Claude Code session other-on, which edited src/x.py, src/y.py.")
    )
    other.end()
    assert "Also open" not in world.session("newer").start().text


def test_of_fifty_sessions_that_edit_one_file_each_is_told(world):
    for number in range(50):
        one = world.session("n%d" % number)
        one.env["CLAUDE_PID"] = ""
        one.edit("src/x.py")
    text = world.session("n0").look().text
    assert text.count("which is open") > 5 and len(text) < 1_200
    assert world.session("n0").look().text == ""


# --- monitor-state.json


def test_monitor_state_has_the_keys_that_other_tools_read(world, session):
    old_files(world, 20)
    at(session, 86)
    known = state(world)
    assert set(known) == {"lastEmitted", "activeAlerts", "lastHealth"}
    assert known["activeAlerts"] == {
        "s1:CTX_HEALTH_85": True,
        "s1:CTX_HEALTH_70": True,
        "global:CTX_AUDIT_DUE": True,
    }
    assert all(kit.parse_iso(value) for value in known["lastEmitted"].values())
    assert known["lastHealth"]["s1"] == {"contextPercent": 86, "repetitionScore": 0.0}


def test_a_session_that_ends_takes_its_keys_out_of_monitor_state(world, session):
    old_files(world, 20)
    at(session, 86)
    at(world.session("s12"), 86)
    session.end()
    left = [key for table in state(world).values() for key in table]
    assert len(left) > 3 and all(key.startswith(("s12", "global")) for key in left)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"lastEmitted": 3, "activeAlerts": []}', "\0"])
def test_a_broken_monitor_state_does_not_stop_the_auditors(world, session, content):
    world.write(".context/monitor-state.json", content)
    assert "Context: 86% full." in at(session, 86)
    assert state(world)["activeAlerts"]


def test_alerts_and_signals_come_in_one_block(world, session):
    world.signal("Deploy is red.", severity="critical")
    text = at(session, 75)
    assert text.startswith("⚠️ [ctx monitor] 2 issues:\n  • Deploy is red.\n  • Context: 75% full. → ")
    assert [row["code"] for row in world.events() if row["event"] == "alert:said"] == ["CTX_HEALTH_70"]


def test_a_look_at_git_does_not_hide_that_somebody_else_switched_the_branch(world, session):
    world.git("main")
    session.start()
    session.run("git status")
    world.git("feature/x")
    assert "on feature/x now; it was on main" in session.run("git log --oneline").text
