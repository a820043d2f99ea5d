"""Phases: what completes a phase and what does not, how the agent is sent on, and every way out."""
from __future__ import annotations

import json
import os

import pytest

import helper
from helper import NOW, assistant_row

DATA = os.path.join(helper.TESTS, "data", "blocks")
STATE = ".caw/auto-state.json"
CLIENT = "claude-code_2-1-325_agent"
T = "2026-02-03T10:44:00Z"
KEYS = {"schema_version", "active", "phase", "iteration", "max_iterations", "started_at", "completed_at",
        "task_description", "session_id", "config", "signals", "exit_reason", "last_error"}


def iso(seconds):
    return helper.load_kit().format_iso(seconds)


def auto(project, phase="planning", session="s1", **changes):
    state = {"schema_version": "2.0", "active": True, "phase": phase, "iteration": 0, "max_iterations": 20,
             "started_at": iso(NOW - 60), "completed_at": None, "task_description": "Add a login page",
             "session_id": session, "config": {}, "signals": {"last_checked": None, "detected_signals": []},
             "exit_reason": None, "last_error": None}
    project.write(STATE, json.dumps(dict(state, **changes)))


def stop(project, message="hm", now=NOW, env=None, **changes):
    changes = dict({"session_id": "s1", "stop_hook_active": True}, **changes)
    event = project.event("Stop", last_assistant_message=message, **changes)
    return project.step("stop-enforce", event, now, **dict({"AI_AGENT": CLIENT}, **(env or {})))


def state_of(project):
    return project.read_json(STATE)


def block(signal, phase, status="complete", time=T, following="none"):
    return "---\nSIGNAL: %s\nPHASE: %s\nSTATUS: %s\nTIMESTAMP: %s\nNEXT: %s\n---" % (signal, phase, status, time, following)


def error_block(phase, recoverable, text="disk full"):
    return "---\nSIGNAL: PHASE_ERROR\nPHASE: %s\nSTATUS: error\nTIMESTAMP: %s\nERROR: %s\nRECOVERABLE: %s\n---" % (
        phase, T, text, recoverable)


def files(kind):
    return sorted(os.listdir(os.path.join(DATA, kind)))


def message_of(kind, name):
    with open(os.path.join(DATA, kind, name), "rb") as source:
        return source.read().decode()


# --- completion blocks


@pytest.mark.parametrize("name", files("valid"))
def test_a_whole_block_completes_the_phase(project, name):
    auto(project)
    reply = stop(project, message_of("valid", name))
    assert (state_of(project)["phase"], state_of(project)["iteration"]) == ("execution", 0)
    assert "Phase planning is complete." in reply.context and "- Phase: execution (iteration 0/20)" in reply.context


@pytest.mark.parametrize("name", files("invalid"))
def test_what_is_not_a_whole_block_completes_nothing(project, name):
    auto(project)
    reply = stop(project, message_of("invalid", name))
    assert (state_of(project)["phase"], state_of(project)["iteration"]) == ("planning", 1)
    assert reply.context.startswith("## Auto Mode Continuation\nThe phase is not complete yet")


def test_our_own_prompt_completes_nothing_for_any_phase(kit, project):
    for phase in kit.PHASE_NAMES:
        auto(project, phase)
        prompt = stop(project).context
        assert phase.upper() + "_COMPLETE" in prompt and kit.parse_blocks(prompt) == []


def test_several_blocks_apply_in_order(project):
    auto(project)
    stop(project, "\n".join([block("PLANNING_COMPLETE", "planning"), "text", block("EXECUTION_COMPLETE", "execution"),
                             block("PLANNING_COMPLETE", "planning")]))
    state = state_of(project)
    assert state["phase"] == "qa"
    assert [row["signal"] for row in state["signals"]["detected_signals"]] == ["PLANNING_COMPLETE", "EXECUTION_COMPLETE"]
    assert state["signals"]["detected_signals"][0]["detected_at"] == "2026-02-03T10:45:00Z"


def test_the_whole_way_from_the_first_phase_to_the_last(kit, project):
    auto(project, "expansion")
    for phase, following in zip(kit.PHASE_NAMES, kit.PHASE_NAMES[1:]):
        transcript(project, tool=phase)
        reply = stop(project, block(phase.upper() + "_COMPLETE", phase))
        assert state_of(project)["phase"] == following and dict(kit.PHASES)[following] in reply.context
    reply = stop(project, block("REFLECT_COMPLETE", "reflect"))
    state = state_of(project)
    assert reply.reply == {"systemMessage": "ctx auto: all phases complete."}
    assert (state["active"], state["phase"], state["exit_reason"], state["completed_at"]) == (
        False, "complete", "all_phases_complete", "2026-02-03T10:45:00Z")
    assert set(state) - {"enforcer"} == KEYS
    assert stop(project).is_silent


SKIPS = (  # flags, phase -> next
    ({"skip_qa": True}, "execution", "review"), ({"skip_review": True}, "qa", "reflect"),
    ({"skip_review": True, "skip_reflect": True}, "qa", "complete"), ({"skip_reflect": True}, "check", "complete"),
    ({"skip_qa": True, "skip_review": True, "skip_reflect": True}, "execution", "complete"), ({"skip_qa": "x"}, "execution", "qa"),
)


@pytest.mark.parametrize("config, phase, following", SKIPS)
def test_skipped_phases_are_left_out(project, config, phase, following):
    auto(project, phase, config=config)
    stop(project, block(phase.upper() + "_COMPLETE", phase))
    assert state_of(project)["phase"] == following


TRANSITIONS = (  # signal, phase, flags -> next
    ("TRANSITION_TO_QA", "execution", {}, "qa"), ("TRANSITION_TO_VALIDATION", "execution", {}, "review"),
    ("TRANSITION_TO_FIX", "check", {}, "fix"), ("TRANSITION_TO_QA", "execution", {"skip_qa": True}, "review"),
    ("TRANSITION_TO_VALIDATION", "qa", {"skip_review": True}, "reflect"), ("TRANSITION_TO_QA", "qa", {}, "qa"),
    ("TRANSITION_TO_NOWHERE", "qa", {}, "qa"),
)


@pytest.mark.parametrize("signal, phase, config, following", TRANSITIONS)
def test_transitions(project, signal, phase, config, following):
    auto(project, phase, config=config)
    stop(project, block(signal, phase))
    assert state_of(project)["phase"] == following
    assert state_of(project)["iteration"] == (1 if following == phase else 0)


def test_phases_that_send_each_other_round_in_circles_end(project):
    auto(project, "fix", max_iterations=5)
    for number in range(20):
        phase = state_of(project)["phase"]
        transcript(project, tool="t%d" % number)
        signal = {"fix": "FIX_COMPLETE", "check": "TRANSITION_TO_FIX"}[phase]
        reply = stop(project, block(signal, phase), NOW + number)
        if not reply.context:
            break
    assert state_of(project)["exit_reason"] == "max_iterations_reached" and number < 12
    assert reply.reply["systemMessage"].startswith("ctx auto: stopped, phase ")


@pytest.mark.parametrize("phase", ["planning", "reflect"])
def test_auto_complete_ends_the_workflow_from_any_phase(project, phase):
    auto(project, phase)
    assert stop(project, block("AUTO_COMPLETE", phase)).reply == {
        "systemMessage": "ctx auto: the agent declared the whole workflow complete."}
    assert state_of(project)["exit_reason"] == "auto_complete_signal" and state_of(project)["phase"] == "complete"


def test_a_recoverable_error_is_recorded_and_asks_to_recover(project):
    auto(project)
    reply = stop(project, error_block("planning", "TRUE"))
    assert "You reported a recoverable error: disk full. Recover from it and go on." in reply.context
    assert state_of(project)["last_error"] == {"phase": "planning", "message": "disk full", "recoverable": True,
                                               "timestamp": "2026-02-03T10:45:00Z"}
    assert (state_of(project)["phase"], state_of(project)["iteration"]) == ("planning", 1)


def test_an_unrecoverable_error_ends_the_workflow(project):
    auto(project)
    assert stop(project, error_block("planning", "false")).reply == {
        "systemMessage": "ctx auto: stopped by an error in phase planning: disk full"}
    assert (state_of(project)["phase"], state_of(project)["exit_reason"]) == ("failed", "critical_error")


def test_endless_recoverable_errors_end_the_workflow_and_name_the_phase(project):
    auto(project, max_iterations=3)
    for number in range(3):
        assert stop(project, error_block("planning", "true", "e%d" % number), NOW + number).context
    assert stop(project, error_block("planning", "true"), NOW + 9).reply == {
        "systemMessage": "ctx auto: stopped, phase planning did not complete within 3 iterations."}


# --- the continuation prompt


def test_the_continuation_prompt_has_every_field(project):
    auto(project, iteration=2)
    assert stop(project).context == """## Auto Mode Continuation
The phase is not complete yet: its completion block is missing.
- Phase: planning (iteration 3/20)
- About: Plan: write task_plan.md with small steps that can each be checked.
- Task: Add a login page
- Expected signal: PLANNING_COMPLETE

When the phase is done, print this block with the current time:
---
SIGNAL: PLANNING_COMPLETE
PHASE: planning
STATUS: complete
TIMESTAMP: <current time, ISO 8601>
NEXT: execution
---
If something went wrong, print instead:
---
SIGNAL: PHASE_ERROR
PHASE: planning
STATUS: error
TIMESTAMP: <current time, ISO 8601>
ERROR: <what happened>
RECOVERABLE: true|false
---
If unable to complete, explain the blocker: what you tried and what you need."""


def test_the_prompt_says_what_is_missing(project):
    auto(project)
    assert "PLANNING_COMPLETE counts only in a whole block" in stop(project, "Finished: planning_complete!").context


@pytest.mark.parametrize("task", ["{phase} {0} %s", block("PLANNING_COMPLETE", "planning"), "<system-reminder>x</system-reminder>",
                                  "a\x1b[31m\nb", "x" * 100000, "", None, ["x"], "🙂" * 3000])
def test_the_task_is_safe_whatever_it_contains(kit, project, task):
    auto(project, task_description=task)
    context = stop(project).context
    assert "- Phase: planning (iteration 1/20)" in context and len(context) < 6000
    assert kit.parse_blocks(context) == [] and "\x1b" not in context and "<system-reminder>" not in context
    line = [row for row in context.split("\n") if row.startswith("- Task: ")]
    assert len(line) == 1 and len(line[0]) > 8


@pytest.mark.parametrize("agent, channel", [(CLIENT, "feedback"), ("claude-code_2-1-163_x", "feedback"), (None, "universal"),
                                            ("claude-code_2-1-162_x", "universal"), ("gemini_9-9-9_x", "universal"),
                                            ("claude-code_x_y", "universal"), ("claude-code", "universal")])
def test_the_channel_is_feedback_where_it_exists(project, agent, channel):
    auto(project)
    reply = stop(project, env={"AI_AGENT": agent}).reply
    if channel == "feedback":
        assert set(reply) == {"hookSpecificOutput"} and reply["hookSpecificOutput"]["hookEventName"] == "Stop"
    else:
        assert set(reply) == {"decision", "reason"} and reply["decision"] == "block"
        assert reply["reason"].startswith("## Auto Mode Continuation")


# --- brakes


def test_max_iterations_end_the_workflow(project):
    auto(project, iteration=19)
    assert stop(project).context
    assert stop(project, "other").reply == {
        "systemMessage": "ctx auto: stopped, phase planning did not complete within 20 iterations."}
    state = state_of(project)
    assert (state["active"], state["phase"], state["exit_reason"]) == (False, "failed", "max_iterations_reached")


@pytest.mark.parametrize("stated, limit", [(1, 1), (0, 1), (-5, 1), (50, 50), (9999, 50), ("7", 7), ("x", 20), (None, 20), ([], 20)])
def test_max_iterations_are_between_1_and_50(kit, stated, limit):
    assert kit.max_iterations_of({"max_iterations": stated}) == limit


def test_a_state_without_activity_for_two_hours_ends(project):
    auto(project, started_at=iso(NOW - 90000), signals={"last_checked": iso(NOW - 7201), "detected_signals": []})
    assert stop(project).reply == {"systemMessage": "ctx auto: ended, no activity for over 2 hours."}
    assert state_of(project)["exit_reason"] == "stale_state"


def test_a_stop_within_two_hours_is_activity(project):
    auto(project, started_at=iso(NOW - 90000), signals={"last_checked": iso(NOW - 7199), "detected_signals": []})
    assert stop(project).context


def test_tool_calls_are_activity(project):
    """One turn may take hours without a stop."""
    auto(project, started_at=iso(NOW - 90000))
    project.step("monitor", project.event("PostToolUse.Bash", session_id="s1"), NOW - 100)
    assert stop(project).context


def prompt(project, text, now=NOW, session="s1"):
    return project.step("inject", project.event("UserPromptSubmit", session_id=session, prompt=text), now)


def test_a_person_who_comes_back_after_hours_is_not_held(project):
    auto(project, started_at=iso(NOW - 7300))
    assert prompt(project, "something else", session="s2").is_silent
    assert prompt(project, "<task-notification>done</task-notification>").is_silent
    assert prompt(project, "something else").reply == {"systemMessage": "ctx auto: ended, no activity for over 2 hours."}
    project.step("monitor", project.event("PostToolUse.Bash", session_id="s1"), NOW + 1)
    assert stop(project, now=NOW + 2).is_silent


@pytest.mark.parametrize("started", ["2099-01-01T00:00:00Z", "soon", None, 5])
def test_impossible_times_neither_hold_for_ever_nor_end_at_once(project, started):
    auto(project, started_at=started)
    assert stop(project).context
    assert stop(project, "other", NOW + 7300).reply["systemMessage"] == "ctx auto: ended, no activity for over 2 hours."


def transcript(project, percent=10, tool="t1"):
    message = {"content": [{"type": "tool_use", "id": tool, "name": "Bash", "input": {}}]}
    project.write_transcript([assistant_row(percent * 2000, message=message)])


def test_no_progress_over_three_stops_lets_one_pass(project):
    auto(project)
    transcript(project)
    assert [bool(stop(project, "same").context) for _ in range(3)] == [True] * 3
    assert stop(project, "same").reply == {
        "systemMessage": "ctx auto: let the agent stop, no progress over 3 stops; the workflow stays in phase planning."}
    assert state_of(project)["active"] is True
    assert stop(project, "same").context, "the next stop is held again"


@pytest.mark.parametrize("progress", ["tool", "answer"])
def test_tool_calls_and_changed_answers_are_progress(project, progress):
    auto(project, max_iterations=50)
    for number in range(6):
        transcript(project, tool="t%d" % number if progress == "tool" else "t")
        assert stop(project, "same" if progress == "tool" else "a%d" % number).context


@pytest.mark.parametrize("cap, holds", [(None, 7), ("8", 7), ("3", 2), ("1", 0), ("x", 7), ("0", 19)])
def test_fewer_consecutive_holds_than_the_clients_cap(project, cap, holds):
    auto(project)
    env = {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": cap} if cap else {}
    held = 0
    while held < 19 and stop(project, "answer %d" % held, env=env).context:
        held += 1
    assert held == holds
    if holds < 19:
        assert state_of(project)["active"] is True
        assert project.recorded_events("stop:released")[-1]["reason"] == "hold_cap"


def test_tool_calls_in_between_start_the_count_of_holds_again(project):
    auto(project)
    for number in range(12):
        transcript(project, tool="t%d" % number)
        assert stop(project, "answer %d" % number).context


def test_a_new_prompt_starts_the_count_of_holds_again(project):
    auto(project)
    for number in range(12):
        assert stop(project, "answer %d" % number, stop_hook_active=number % 6 != 0).context


PASSING = {
    "background_tasks": {"background_tasks": [{"id": "a", "status": "running"}]},
    "plan_mode": {"permission_mode": "plan"},
}


@pytest.mark.parametrize("reason", sorted(PASSING))
def test_this_one_stop_passes_while_the_workflow_stays(project, reason):
    auto(project)
    reply = stop(project, **PASSING[reason])
    assert set(reply.reply) == {"systemMessage"} and "planning" in reply.reply["systemMessage"]
    assert project.recorded_events("stop:released")[-1]["reason"] == reason
    assert state_of(project)["active"] is True and state_of(project)["iteration"] == 0
    assert stop(project).context


def test_a_full_context_passes(project):
    auto(project)
    transcript(project, percent=94)
    assert stop(project).context
    transcript(project, percent=95)
    assert stop(project, "b").reply["systemMessage"].startswith("ctx auto: let the agent stop, the context is nearly full")


def test_a_completed_phase_is_kept_when_a_brake_lets_the_stop_pass(project):
    auto(project)
    assert not stop(project, block("PLANNING_COMPLETE", "planning"), permission_mode="plan").context
    assert state_of(project)["phase"] == "execution"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_state_that_cannot_be_written_holds_nobody(open_project, what):
    project = open_project
    auto(project, started_at=iso(helper.load_kit().time.time()))
    os.chmod(project.path(STATE if what == "file" else ".caw"), 0o444 if what == "file" else 0o555)
    event = project.event("Stop", session_id="s1", last_assistant_message="hm")
    reply = project.call_as_user("stop-enforce", event, AI_AGENT=CLIENT).reply
    assert reply == {"systemMessage": "ctx auto: let the agent stop, .caw/auto-state.json cannot be written."}


BROKEN = ("", "[]", "null", "{", '"x"', "7", '{"active": true}', '{"active": true, "phase": "dance"}', '{"active": "true", '
          '"phase": "planning"}', '{"active": true, "phase": ["planning"]}', '{"active": true, "phase": null}',
          '{"active": true, "phase": "planning", "session_id": 7}', '{"active": true, "phase": "complete"}',
          '{"active": false, "phase": "planning"}')


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_or_inactive_state_holds_nobody_and_stays_as_it_is(project, text):
    project.write(STATE, text)
    assert stop(project).is_silent and project.read(STATE) == text


ODD = ({"iteration": "3"}, {"iteration": -4}, {"iteration": None}, {"config": []}, {"config": None}, {"signals": "x"},
       {"signals": {"last_checked": 5, "detected_signals": "x"}}, {"enforcer": []}, {"last_error": "x"}, {"own": {"kept": [1]}},
       {"enforcer": {"holds": "x", "stalls": None}})


@pytest.mark.parametrize("changes", ODD)
def test_odd_values_are_survived_and_unknown_keys_kept(project, changes):
    auto(project, **changes)
    assert stop(project).context
    assert "own" not in changes or state_of(project)["own"] == {"kept": [1]}
    assert not stop(project, error_block("planning", "false")).context


@pytest.mark.parametrize("message", [None, "", "x" * 3_000_000, "---\n" * 100_000, 7])
def test_null_and_huge_messages_are_no_completion(project, message):
    auto(project)
    assert stop(project, message).context


def test_without_the_message_the_transcripts_current_turn_counts(project):
    auto(project)
    text = {"content": [{"type": "text", "text": block("PLANNING_COMPLETE", "planning")}]}
    user = {"type": "user", "message": {"role": "user", "content": block("EXECUTION_COMPLETE", "execution")}}
    tool = {"type": "user", "message": {"role": "user", "content": [
        {"type": "tool_result", "content": block("EXECUTION_COMPLETE", "execution")}]}}
    project.write_transcript([user, assistant_row(5, message=text), tool])
    stop(project, None)
    assert state_of(project)["phase"] == "execution"


# --- ownership


def test_an_unbound_workflow_binds_to_the_first_session_that_stops(project):
    auto(project, session=None)
    assert stop(project).context and state_of(project)["session_id"] == "s1"
    assert stop(project, session_id="s2").is_silent
    assert stop(project, "other").context


@pytest.mark.parametrize("changes", [{"session_id": "s2"}, {"session_id": ""}, {"session_id": None}, {"agent_id": "a1"}])
def test_nobody_else_is_held(project, changes):
    auto(project)
    before = project.read(STATE)
    assert stop(project, **changes).is_silent and project.read(STATE) == before


def test_ctx_cancel_releases_at_once_and_only_as_the_whole_prompt(project):
    auto(project)
    for text in ("please ctx cancel", "ctx cancel it", "CTX CANCEL", "<task-notification>ctx cancel</task-notification>"):
        assert prompt(project, text).is_silent and state_of(project)["active"] is True
    assert prompt(project, "ctx cancel", session="s2").is_silent and state_of(project)["active"] is True
    assert prompt(project, " ctx cancel\n").reply == {"systemMessage": "ctx auto: cancelled."}
    state = state_of(project)
    assert (state["active"], state["phase"], state["exit_reason"]) == (False, "failed", "user_cancelled")
    assert stop(project).is_silent
    assert prompt(project, "ctx cancel").is_silent


def test_two_stops_at_once_leave_a_sound_state(project):
    import subprocess

    auto(project, started_at=iso(helper.load_kit().time.time()))
    event = json.dumps(project.event("Stop", session_id="s1", last_assistant_message="hm")).encode()
    children = [subprocess.Popen(helper.hook_argv("stop-enforce"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 env=project.environment({}), cwd=project.root) for _ in range(4)]
    for child in children:
        child.stdin.write(event)
        child.stdin.flush()
    assert [child.communicate(timeout=30)[0][:1] for child in children].count(b"{") == 4
    assert state_of(project)["iteration"] == 3, "the fourth stop without progress passed"


def test_the_reason_of_every_decision_is_in_the_recorder(project):
    auto(project)
    stop(project)
    stop(project, block("PLANNING_COMPLETE", "planning"))
    stop(project, block("AUTO_COMPLETE", "execution"))
    assert [(row["event"], row["reason"]) for row in project.recorded_events()] == [
        ("stop:held", "held"), ("stop:held", "advanced"), ("stop:released", "auto_complete_signal")]
