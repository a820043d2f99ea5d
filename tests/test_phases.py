"""Phases: what completes a phase and what does not, how the agent is sent on, and every way out."""
from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import types

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
             "started_at": iso(NOW - 60), "phase_started_at": iso(NOW - 60), "completed_at": None, "task_description": "Add a login page",
             "session_id": session, "config": {}, "signals": {"last_checked": None, "detected_signals": []},
             "exit_reason": None, "last_error": None}
    project.write(STATE, json.dumps(dict(state, **changes)))


LATER = itertools.count(1)  # the same stop within two seconds counts once, so each comes a little later


def stop(project, message="hm", now=None, env=None, works=False, **changes):
    """One stop; `works`: the agent has used a tool since the last one."""
    now = NOW + 3 * next(LATER) % 3000 if now is None else now
    changes = dict({"session_id": "s1", "stop_hook_active": True}, **changes)
    if works:
        project.step("monitor", project.event("PostToolUse.Bash", session_id="s1", tool_use_id="t%d" % next(LATER)), now)
    if isinstance(message, str):
        message = message.replace(T, iso(now))
    event = project.event("Stop", last_assistant_message=message, **changes)
    own = {"AI_AGENT": CLIENT, "CLAUDE_CODE_SESSION_ID": "s1"}
    return project.step("stop-enforce", event, now, **dict(own, **(env or {})))


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
    assert reply.context.startswith(("## Auto Mode Continuation\nThe phase is not complete yet",
                                     "## Auto Mode Continuation\nThe block for "))


def test_our_own_prompt_completes_nothing_for_any_phase(kit, project):
    for phase in list(kit.PHASES):
        auto(project, phase)
        text = stop(project).context
        flow = kit.read_workflow(project.ctx(NOW))
        assert phase.upper() + "_COMPLETE" in text and kit.judge_turn(flow, text, NOW).signal == ""


def test_one_stop_completes_one_phase_and_a_list_of_all_blocks_ends_nothing(kit, project):
    auto(project)
    everything = [block(kit.signal_of(phase), phase) for phase in kit.PHASES] + [block("AUTO_COMPLETE", "planning")]
    stop(project, "\n".join(everything))
    state = state_of(project)
    assert (state["phase"], state["active"]) == ("execution", True)
    assert [row["signal"] for row in state["signals"]["detected_signals"]] == ["PLANNING_COMPLETE"]


def test_blocks_that_share_their_lines_are_a_list_too(project):
    auto(project)
    shared = block("AUTO_COMPLETE", "planning") + block("PLANNING_COMPLETE", "planning")[3:]
    stop(project, shared)
    assert (state_of(project)["phase"], state_of(project)["active"]) == ("execution", True)


NEAR = (  # block -> what the answer names
    (block("PLANNING_COMPLETE", "planning", status="done"), "STATUS must be `complete`"),
    (block("PLANNING_COMPLETE", "execution"), "PHASE is `execution`, the current phase is `planning`"),
    (block("PLANNING_COMPLETE", "planning", time="now"), "TIMESTAMP is no ISO 8601 time"),
    (block("PLANNING_COMPLETE", "planning", time="2026-02-03T09:00:00Z"), "TIMESTAMP is no ISO 8601 time from the phase's start to now"),
    (block("PLANNING_COMPLETE", "planning", time="2026-02-05T09:00:00Z"), "TIMESTAMP is no ISO 8601 time from the phase's start to now"),
    (block("PLANNING_COMPLETE", "planning", following=""), "NEXT is missing"),
    (block("PLAN_COMPLETE", "planning"), "The block for PLAN_COMPLETE does not count: SIGNAL must be `PLANNING_COMPLETE`."),
    (block("PHASE_BLOCKED", "planning"), "The block for PHASE_BLOCKED does not count: NEEDS is missing."),
    (block("PLANNING_COMPLETE", "planning", status="done") + "\n" + block("STEP_COMPLETE", "planning"),
     "The block for PLANNING_COMPLETE does not count: STATUS must be `complete`."),
)


@pytest.mark.parametrize("text, problem", NEAR)
def test_a_block_that_is_nearly_right_is_told_what_is_wrong(project, text, problem):
    auto(project)
    reply = stop(project, text)
    assert state_of(project)["phase"] == "planning" and problem in reply.context


def test_a_block_without_a_time_does_not_count_in_a_phase_that_began_long_ago_either(kit):
    fields, = kit.parse_blocks(block("PLANNING_COMPLETE", "planning", time="now"))
    assert kit.problem_of_block(fields, "planning", 1.0, NOW).startswith("TIMESTAMP is no ISO 8601 time")


def test_a_block_followed_by_one_more_tool_call_is_found(project):
    auto(project)
    said = {"id": "m1", "content": [{"type": "text", "text": block("PLANNING_COMPLETE", "planning")}]}
    user = {"type": "user", "timestamp": iso(NOW - 50), "message": {"role": "user", "content": "go"}}
    project.write_transcript([user, assistant_row(5, timestamp=iso(NOW - 40), message=said),
                              assistant_row(5, timestamp=iso(NOW - 30), message={"id": "m2"})])
    stop(project, "all done", now=NOW)
    assert state_of(project)["phase"] == "execution"


def test_the_whole_way_from_the_first_phase_to_the_last(kit, project):
    auto(project, "expansion")
    for phase, following in zip(list(kit.PHASES), list(kit.PHASES)[1:]):
        reply = stop(project, block(phase.upper() + "_COMPLETE", phase), works=True)
        assert state_of(project)["phase"] == following and kit.PHASES[following] in reply.context
    reply = stop(project, block("REFLECT_COMPLETE", "reflect"))
    state = state_of(project)
    assert reply.reply == {"systemMessage": "ctx auto: all phases complete."}
    assert (state["active"], state["phase"], state["exit_reason"]) == (False, "complete", "all_phases_complete")
    assert state["completed_at"].startswith("2026-02-03T") and set(state) >= KEYS
    assert {row["attempts"] for row in state["signals"]["detected_signals"]} == {1}
    assert [row["signal"] for row in state["signals"]["detected_signals"]] == [kit.signal_of(phase) for phase in kit.PHASES]
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
    number = 0
    while number < 20:
        number += 1
        phase = state_of(project)["phase"]
        signal = {"fix": "FIX_COMPLETE", "check": "TRANSITION_TO_FIX"}[phase]
        reply = stop(project, block(signal, phase), works=True)
        if not reply.context:
            break
    assert state_of(project)["exit_reason"] == "max_iterations_reached" and number < 14
    assert reply.reply["systemMessage"].startswith("ctx auto: stopped, phase ")


def test_a_long_circle_ends_too(project):
    phases = ["qa"] + ["p%d" % number for number in range(14)]
    auto(project, "qa", phases=phases, max_iterations=20)
    for _ in range(400):
        phase = state_of(project)["phase"]
        if phase not in phases:
            break
        signal = "TRANSITION_TO_QA" if phase == phases[-1] else phase.upper() + "_COMPLETE"
        stop(project, block(signal, phase), works=True)
    assert state_of(project)["exit_reason"] == "max_iterations_reached"


@pytest.mark.parametrize("phase", ["planning", "reflect"])
def test_auto_complete_ends_the_workflow_from_any_phase(project, phase):
    auto(project, phase)
    assert stop(project, block("AUTO_COMPLETE", phase)).reply == {
        "systemMessage": "ctx auto: the agent declared the whole workflow complete."}
    assert state_of(project)["exit_reason"] == "auto_complete_signal" and state_of(project)["phase"] == "complete"


def test_auto_complete_counts_only_when_it_stands_alone(project):
    auto(project)
    stop(project, block("AUTO_COMPLETE", "planning") + "\n" + block("REVIEW_COMPLETE", "review"))
    assert (state_of(project)["phase"], state_of(project)["active"]) == ("planning", True)


def test_a_message_that_the_transcript_has_too_was_said_once(project):
    auto(project)
    text = block("AUTO_COMPLETE", "planning").replace(T, iso(NOW))
    project.write_transcript([assistant_row(5, timestamp=iso(NOW), message={"content": [{"type": "text", "text": text}]})])
    stop(project, text, NOW)
    assert state_of(project)["phase"] == "complete"


def test_a_recoverable_error_is_recorded_and_asks_to_recover(project):
    auto(project)
    reply = stop(project, error_block("planning", "TRUE"))
    assert "You reported a recoverable error: disk full. Recover from it and go on." in reply.context
    assert state_of(project)["last_error"] == {"phase": "planning", "message": "disk full", "recoverable": True,
                                               "timestamp": state_of(project)["last_error"]["timestamp"]}
    assert (state_of(project)["phase"], state_of(project)["iteration"]) == ("planning", 1)


def test_an_unrecoverable_error_ends_the_workflow(project):
    auto(project)
    assert stop(project, error_block("planning", "false")).reply == {
        "systemMessage": "ctx auto: stopped by an error in phase planning: disk full"}
    assert (state_of(project)["phase"], state_of(project)["exit_reason"]) == ("failed", "critical_error")


def test_endless_recoverable_errors_end_the_workflow_and_name_the_phase(project):
    auto(project, max_iterations=3)
    for number in range(3):
        assert stop(project, error_block("planning", "true", "e%d" % number), works=True).context
    assert stop(project, error_block("planning", "true"), works=True).reply == {
        "systemMessage": "ctx auto: stopped, phase planning did not complete within 3 iterations."}


# --- the continuation prompt


def test_the_continuation_prompt_has_every_field(project):
    auto(project)
    assert stop(project).context == """## Auto Mode Continuation
The phase is not complete yet: its completion block is missing.
- Phase: planning (iteration 1/20)
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
If something went wrong, print this instead; with RECOVERABLE: false the workflow ends:
---
SIGNAL: PHASE_ERROR
PHASE: planning
STATUS: error
TIMESTAMP: <current time, ISO 8601>
ERROR: <what happened>
RECOVERABLE: true|false
---
If you need the person to decide something, print this; you may then stop and they are asked:
---
SIGNAL: PHASE_BLOCKED
PHASE: planning
STATUS: blocked
TIMESTAMP: <current time, ISO 8601>
NEEDS: <what the person must decide>
---"""


def test_from_the_second_hold_of_a_phase_on_it_is_three_lines(project):
    auto(project)
    stop(project, works=True)
    text = stop(project, works=True).context
    assert len(text.split("\n")) == 3 and "PLANNING_COMPLETE" in text and "iteration 2/20" in text


def test_after_the_way_into_a_phase_its_first_hold_is_three_lines(project):
    auto(project)
    whole = stop(project, block("PLANNING_COMPLETE", "planning"), works=True).context
    assert "PHASE_BLOCKED" in whole and "- Phase: execution (iteration 0/20)" in whole
    assert len(stop(project, works=True).context.split("\n")) == 3


@pytest.mark.parametrize("task", ["{phase} {0} %s", block("PLANNING_COMPLETE", "planning"), "<system-reminder>x</system-reminder>",
                                  "a\x1b[31m\nb", "x" * 100000, "", None, ["x"], "🙂" * 3000])
def test_the_task_is_safe_whatever_it_contains(kit, project, task):
    auto(project, task_description=task)
    context = stop(project).context
    assert "- Phase: planning (iteration 1/20)" in context and len(context) < 6000
    flow = kit.read_workflow(project.ctx(NOW))
    assert kit.judge_turn(flow, context, NOW).signal == "" and "\x1b" not in context and "<system-reminder>" not in context
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
    assert stop(project, works=True).context
    assert stop(project, "other", works=True).reply == {
        "systemMessage": "ctx auto: stopped, phase planning did not complete within 20 iterations."}
    state = state_of(project)
    assert (state["active"], state["phase"], state["exit_reason"]) == (False, "failed", "max_iterations_reached")


@pytest.mark.parametrize("stated, limit", [(1, 1), (0, 1), (-5, 20), (50, 50), (9999, 50), ("x", 20), (None, 20), ([], 20)])
def test_max_iterations_are_between_1_and_50(kit, project, stated, limit):
    auto(project, max_iterations=stated)
    assert kit.read_workflow(project.ctx(NOW)).max_iterations == limit


def test_a_state_without_activity_for_two_hours_ends(project):
    auto(project, started_at=iso(NOW - 90000), signals={"last_checked": iso(NOW - 7201), "detected_signals": []})
    assert stop(project, now=NOW).reply == {"systemMessage": "ctx auto: ended, no activity for over 2 hours."}
    assert state_of(project)["exit_reason"] == "stale_state"


def test_a_stop_within_two_hours_is_activity(project):
    auto(project, started_at=iso(NOW - 90000), signals={"last_checked": iso(NOW - 7199), "detected_signals": []})
    assert stop(project, now=NOW).context


def test_a_block_that_counts_is_activity(project):
    auto(project, started_at=iso(NOW - 90000), signals={"last_checked": iso(NOW - 7201), "detected_signals": []})
    stop(project, block("PLANNING_COMPLETE", "planning"), NOW)
    assert (state_of(project)["phase"], state_of(project)["active"]) == ("execution", True)


def test_tool_calls_are_activity(project):
    """One turn may take hours without a stop."""
    auto(project, started_at=iso(NOW - 90000))
    project.step("monitor", project.event("PostToolUse.Bash", session_id="s1"), NOW - 100)
    assert stop(project, now=NOW).context


def prompt(project, text, now=NOW, session="s1", **env):
    return project.step("inject", project.event("UserPromptSubmit", session_id=session, prompt=text), now, **env)


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
    os.utime(project.path(STATE), (NOW - 5, NOW - 5))
    assert stop(project, now=NOW).context
    ended = stop(project, "other", NOW + 7300).reply["systemMessage"]
    assert ended == "ctx auto: ended, no activity for over 2 hours."


def test_a_phase_that_began_in_the_future_can_still_be_completed(project):
    auto(project, phase_started_at=iso(NOW + 9 * 3600))
    stop(project, block("PLANNING_COMPLETE", "planning"))
    assert state_of(project)["phase"] == "execution"


def test_a_stop_in_the_future_is_no_activity(project):
    auto(project, started_at=iso(NOW - 7300), signals={"last_checked": "2099-01-01T00:00:00Z", "detected_signals": []})
    assert stop(project, now=NOW).reply["systemMessage"] == "ctx auto: ended, no activity for over 2 hours."


def transcript(project, percent=10):
    project.write_transcript([assistant_row(percent * 2000)])


def test_the_third_stop_without_a_tool_call_passes_other_words_are_no_progress(project):
    auto(project)
    assert [bool(stop(project, "words %d" % n).context) for n in range(2)] == [True] * 2
    assert stop(project, "more words").reply == {
        "systemMessage": "ctx auto: let the agent stop, no tool call over 3 stops; phase planning stays."}
    assert state_of(project)["active"] is True
    assert stop(project, "again").context, "the next stop is held again"


def test_a_completed_phase_is_progress(project):
    auto(project)
    assert stop(project, block("PLANNING_COMPLETE", "planning")).context
    assert [bool(stop(project).context) for _ in range(3)] == [True, True, False]


def test_tool_calls_are_progress(project):
    auto(project, max_iterations=50)
    for _ in range(9):
        assert stop(project, "same", works=True).context


@pytest.mark.parametrize("cap, holds", [("2", 1), ("1", 0)])
def test_fewer_consecutive_holds_than_the_clients_cap(project, cap, holds):
    auto(project)
    env = {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": cap}
    held = 0
    while held < 19 and stop(project, "answer %d" % held, env=env).context:
        held += 1
    assert held == holds and state_of(project)["active"] is True
    assert project.recorded_events("stop:released")[-1]["reason"] == "hold_cap"


def test_a_cap_of_zero_is_none(project):
    auto(project)
    assert stop(project, env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "0"}).context


def test_a_persons_prompt_sets_iteration_and_brakes_back(project):
    auto(project, iteration=15)
    assert [bool(stop(project, "words %d" % n).context) for n in range(2)] == [True] * 2
    prompt(project, "go on, please", NOW + 3100)
    assert state_of(project)["iteration"] == 0
    assert [bool(stop(project, "words %d" % n, NOW + 3110 + 3 * n).context) for n in range(2)] == [True] * 2


@pytest.mark.parametrize("by_any", [False, True])
def test_a_finished_task_that_comes_as_a_prompt_sets_no_brake_back(project, by_any):
    auto(project, iteration=15, any_prompt=by_any)
    prompt(project, "<task-notification>x</task-notification>")
    assert state_of(project)["iteration"] == 15


def test_a_hold_that_comes_back_as_a_prompt_is_not_a_persons(kit, project):
    auto(project)
    text = stop(project, "words").context
    prompt(project, text, NOW + 3100)
    assert state_of(project)["iteration"] == 1


def test_the_same_stop_from_two_kits_counts_once(project):
    auto(project)
    assert stop(project, "same", now=NOW).context
    assert stop(project, "same", now=NOW + 0.5).is_silent
    assert state_of(project)["iteration"] == 1


PASSING = {
    "subagents": {"background_tasks": [{"id": "a", "type": "subagent", "status": "running"}]},
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


def test_a_server_in_the_background_changes_nothing(project):
    auto(project)
    assert stop(project, background_tasks=[{"id": "b", "type": "shell", "status": "running"}]).context


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


@pytest.mark.skipif(helper.IS_WINDOWS, reason="a folder is never read-only on Windows")
def test_a_state_that_cannot_be_written_holds_nobody(open_project):
    project = open_project
    auto(project, started_at=iso(helper.load_kit().time.time()))
    os.chmod(project.path(".caw"), 0o555)
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
       {"signals": {"last_checked": 5, "detected_signals": "x"}}, {"last_error": "x"}, {"own": {"kept": [1]}},
       {"holds": "x", "stalls": None})


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


def meant(project, phase="planning", commands=(), **changes):
    """A workflow that `auto start` began in a shell: a token in the state and in the user's own state home."""
    auto(project, phase, session="", token="t0ken", **changes)
    checks = commands if isinstance(commands, dict) else dict(zip([phase], commands))
    kit, ctx = helper.load_kit(), project.ctx(NOW)
    digests = {name: kit.digest_of(command) for name, command in checks.items()}
    assert kit.write_bytes(ctx, kit.trust_path(ctx), json.dumps({"token": "t0ken", "checks": digests}).encode())


def test_a_workflow_started_in_a_shell_binds_at_the_first_prompt_that_a_person_types(project):
    meant(project)
    assert stop(project).is_silent and state_of(project)["session_id"] == ""
    assert prompt(project, "<task-notification>x</task-notification>").is_silent
    assert prompt(project, "one line", session="s9", CLAUDE_CODE_SESSION_ATTENDED="0").is_silent
    text = prompt(project, "begin").context
    assert text.startswith("[ctx auto] A workflow is running: phase planning of ") and "Add a login page" in text
    assert "SIGNAL: PLANNING_COMPLETE" in text and state_of(project)["session_id"] == "s1"
    assert prompt(project, "go on").is_silent, "told once"
    assert stop(project, session_id="s2").is_silent
    assert stop(project).context


def test_of_two_sessions_that_prompt_at_once_one_has_the_workflow(kit, project, monkeypatch):
    meant(project)

    def is_meant_here(*args):  # while the first looks, the second binds
        project.write(STATE, json.dumps(dict(state_of(project), session_id="s2")))
        return True

    monkeypatch.setattr(kit, "is_meant_here", is_meant_here)
    assert prompt(project, "begin").is_silent and state_of(project)["session_id"] == "s2"


def test_with_any_every_prompt_binds(project):
    meant(project, any_prompt=True)
    assert prompt(project, "x", session="s9", CLAUDE_CODE_SESSION_ATTENDED="0").context
    assert state_of(project)["session_id"] == "s9"


@pytest.mark.parametrize("planted", [{"token": ""}, {"token": "guess"}, {"token": "t0ken", "session_id": "other"}])
def test_a_state_that_came_with_a_clone_is_inert(project, planted):
    if planted.get("session_id"):
        meant(project)
    auto(project, **dict({"session": ""}, **{("session" if k == "session_id" else k): v for k, v in planted.items()}))
    before = project.read(STATE)
    for words in ("hello", "ctx cancel"):
        assert prompt(project, words).is_silent and stop(project).is_silent
    assert project.read(STATE) == before


def test_clear_hands_the_workflow_to_the_new_session_and_tells_it(project):
    auto(project)
    project.step("cleanup", project.event("SessionEnd.clear", session_id="s1"), NOW)
    reply = project.step("inject", project.event("SessionStart.clear", session_id="s2"), NOW + 1)
    assert "[ctx auto] A workflow is running: phase planning" in reply.context
    assert state_of(project)["session_id"] == "s2"
    assert stop(project, session_id="s2", env={"CLAUDE_CODE_SESSION_ID": "s2"}).context


@pytest.mark.parametrize("source", ["clear", "compact"])
def test_two_kits_at_one_clear_or_compaction_tell_the_phase_once(kit, project, source):
    auto(project)
    project.step("cleanup", project.event("SessionEnd.clear", session_id="s1"), NOW)
    event, said = project.event("SessionStart." + source, session_id="s2" if source == "clear" else "s1"), []
    look = kit.read_session
    with pytest.MonkeyPatch.context() as patch:
        def see_too_early(ctx, session):  # the other run has not written anything yet
            state = look(ctx, session)
            patch.setattr(kit, "read_session", look)
            said.append(project.step("inject", event, NOW + 1).context)
            return state

        patch.setattr(kit, "read_session", see_too_early)
        said.append(project.step("inject", event, NOW + 1.1).context)
    said.append(project.step("inject", event, NOW + 1.5).context)
    assert len(said) == 3 and sum("phase planning of" in text for text in said) == 1


def test_a_phase_that_is_named_twice_is_gone_through_once(project):
    auto(project, "plan", phases=["plan", "build", "plan"])
    assert stop(project, block("PLAN_COMPLETE", "plan")).context
    stop(project, block("BUILD_COMPLETE", "build"))
    assert state_of(project)["exit_reason"] == "all_phases_complete"


def test_another_clients_clear_does_not_take_the_workflow_along(project):
    auto(project)
    project.step("cleanup", project.event("SessionEnd.clear", session_id="s1"), NOW, CLAUDE_PID="11")
    project.step("cleanup", project.event("SessionEnd.clear", session_id="s5"), NOW, CLAUDE_PID="22")
    reply = project.step("inject", project.event("SessionStart.clear", session_id="s6"), NOW + 1, CLAUDE_PID="22")
    assert reply.is_silent and state_of(project)["session_id"] == "s1"


def test_a_second_start_of_the_same_session_does_not_brief_again(project):
    auto(project)
    event = project.event("SessionStart.startup", session_id="s1")
    assert "[ctx auto]" in project.step("inject", event, NOW).context
    assert project.step("inject", event, NOW + 1).is_silent


def test_after_a_compaction_the_agent_is_told_again(project):
    auto(project)
    reply = project.step("inject", project.event("SessionStart.compact", session_id="s1"), NOW)
    assert "[ctx auto] A workflow is running" in reply.context


def test_a_blocked_phase_waits_for_the_person(project):
    auto(project)
    text = "---\nSIGNAL: PHASE_BLOCKED\nPHASE: planning\nSTATUS: blocked\nTIMESTAMP: %s\nNEEDS: which database?\n---" % T
    reply = stop(project, text)
    assert reply.reply == {"systemMessage": "ctx auto: phase planning waits for you: which database?"}
    state = state_of(project)
    assert (state["active"], state["phase"], state["needs"]) == (True, "planning", "which database?")
    assert stop(project, "a task ended", NOW + 3100).reply == reply.reply, "it still waits"
    prompt(project, "the usual one", NOW + 3200)
    assert state_of(project)["needs"] == "" and stop(project, "hm", NOW + 3210).context


def test_a_block_of_an_earlier_turn_does_not_count_again_where_the_transcript_comes_late(project):
    auto(project)
    text = "---\nSIGNAL: PHASE_BLOCKED\nPHASE: planning\nSTATUS: blocked\nTIMESTAMP: %s\nNEEDS: which?\n---" % iso(NOW)
    said = {"id": "m1", "content": [{"type": "text", "text": text}]}
    project.write_transcript([{"type": "user", "timestamp": iso(NOW - 50), "message": {"role": "user", "content": "go"}},
                              assistant_row(5, timestamp=iso(NOW), message=said)])
    stop(project, text, NOW + 0.05)
    prompt(project, "both", NOW + 0.1)
    assert stop(project, "I see", NOW + 0.2).context and state_of(project)["needs"] == ""


# --- verified completion


BUILT, FALSE = ("if not exist built exit 1", "exit 1") if helper.IS_WINDOWS else ("test -f built", "false")
TALKS = "echo start; seq 1 2000; echo API_KEY=abcdef123456; echo the-end; exit 3"
LEAVES = "sleep 1000 & echo started"
if helper.IS_WINDOWS:
    TALKS = "echo start&(for /L %i in (1,1,2000) do @echo %i)&echo API_KEY=abcdef123456&echo the-end&exit 3"
    LEAVES = 'start /b "" "%s" -c "import time; time.sleep(100)"&echo started' % helper.PYTHON


def verified(project, command, agreed=True, **changes):
    meant(project, "execution", [command] if agreed else [], until=command, phases=["execution"], **changes)
    prompt(project, "begin", NOW - 1)


def done(project, now=None):
    return stop(project, block("EXECUTION_COMPLETE", "execution"), now, works=True)


def test_a_phase_with_a_check_is_complete_when_the_command_exits_0(project):
    verified(project, BUILT)
    reply = done(project)
    assert "its check `%s` exited 1" % BUILT in reply.context and state_of(project)["active"] is True
    project.write("built", "")
    assert done(project).reply == {"systemMessage": "ctx auto: all phases complete."}
    assert [row["check"] for row in project.recorded_events("stop:released")] == ["exited 0"]


def test_of_two_kits_registered_at_once_one_runs_the_check(project):
    verified(project, "echo x>> ran")
    said = block("EXECUTION_COMPLETE", "execution")
    replies = [stop(project, said, now) for now in (NOW + 3000, NOW + 3000.5)]
    assert [bool(reply.reply) for reply in replies] == [True, False] and project.read("ran").count("x") == 1


@pytest.mark.skipif(helper.IS_WINDOWS, reason="sed edits the state")
def test_a_state_that_a_check_changes_is_left_as_it_is(project):
    verified(project, "sed -i 's/\"s1\"/\"s2\"/' " + STATE)
    assert done(project).is_silent
    assert (state_of(project)["session_id"], state_of(project)["active"]) == ("s2", True)


@pytest.mark.parametrize("stated, limit_s", [(0, 1), (7, 7), (9999, 140)])
def test_a_check_has_at_least_a_second_and_no_more_than_the_client_waits(kit, project, monkeypatch, stated, limit_s):
    limits = []
    monkeypatch.setattr(kit, "run_bounded", lambda command, root, limit_s: limits.append(limit_s) or (0, b""))
    verified(project, "true")
    project.write(".contextrc", "auto:\n  check_timeout_s: %d\n" % stated)
    done(project)
    assert limits == [limit_s]


def test_a_failing_check_sends_its_last_output_along_without_secrets(project):
    verified(project, TALKS)
    text = done(project).context
    assert "exited 3" in text and "the-end" in text and "\n1\n" not in text
    assert "=abcdef" not in text.partition("output:")[2].partition("- Phase")[0] and len(text) < 5000


def test_a_check_that_nobody_agreed_to_is_not_run(project):
    verified(project, "touch ran", agreed=False)
    reply = done(project)
    assert reply.reply == {
        "systemMessage": "ctx auto: phase execution has a check that nobody agreed to; see `auto status`."}
    assert not project.exists("ran") and state_of(project)["phase"] == "execution"


def test_a_check_that_was_changed_after_consent_is_not_run(project):
    verified(project, "true")
    state = state_of(project)
    project.write(STATE, json.dumps(dict(state, until="touch ran")))
    assert not done(project).context and not project.exists("ran")


def test_a_check_that_was_taken_away_proves_nothing(project):
    verified(project, FALSE)
    project.write(STATE, json.dumps(dict(state_of(project), until="")))
    assert "nobody agreed to" in done(project).reply["systemMessage"] and state_of(project)["phase"] == "execution"


def test_a_check_gets_no_secrets_no_terminal_and_no_input(project):
    verified(project, "set > seen" if helper.IS_WINDOWS else "env > seen; cat; tty >> seen; true")
    secrets = {"ANTHROPIC_API_KEY": "s3cret", "GH_TOKEN": "s3cret", "DB_PASSWORD": "s3cret", "MY_SECRET": "s3cret"}
    event = project.event("Stop", session_id="s1", last_assistant_message=block(
        "EXECUTION_COMPLETE", "execution", time=iso(time.time())))
    flow = state_of(project)
    project.write(STATE, json.dumps(dict(flow, started_at=iso(time.time() - 9), phase_started_at=iso(time.time() - 9))))
    reply = project.run_hook("stop-enforce", event, **secrets)
    assert "all phases complete" in reply.reply["systemMessage"]
    assert "HOME=" in project.read("seen").upper() and "s3cret" not in project.read("seen")
    assert helper.IS_WINDOWS or "not a tty" in project.read("seen")


def test_of_a_check_that_cannot_be_started_the_agent_is_told(project):
    verified(project, "make\0test")
    reply = done(project)
    assert "exited 127. The end of its output:\nembedded null" in reply.context and state_of(project)["active"] is True


@pytest.mark.parametrize("signal", ["TRANSITION_TO_QA", "AUTO_COMPLETE"])
def test_no_other_block_gets_around_the_check(project, signal):
    verified(project, FALSE)
    reply = stop(project, block(signal, "execution"), works=True)
    assert "its check `%s` exited 1" % FALSE in reply.context and state_of(project)["active"] is True


def test_auto_complete_owes_the_checks_of_all_later_phases(project):
    project.write(".contextrc", "auto:\n  done_when:\n    build: %s\n" % BUILT)
    meant(project, "plan", {"build": BUILT}, phases=["plan", "build", "ship"])
    prompt(project, "begin", NOW - 1)
    assert "its check `%s` exited 1" % BUILT in stop(project, block("AUTO_COMPLETE", "plan"), works=True).context
    assert state_of(project)["last_check"]["phase"] == "build", "whose check it was, not where the agent is"
    project.write(".contextrc", "auto:\n  done_when:\n    build: %s\n    ship: echo shipped\n" % BUILT)
    meant(project, "plan", {"build": BUILT, "ship": "echo shipped"}, phases=["plan", "build", "ship"])
    prompt(project, "begin", NOW - 1)
    text = stop(project, block("AUTO_COMPLETE", "plan"), works=True).context
    assert "its check `%s` exited 1" % BUILT in text, "a later one that passes makes up for nothing"
    project.write("built", "")
    assert "whole workflow complete" in stop(project, block("AUTO_COMPLETE", "plan"), works=True).reply["systemMessage"]


@pytest.mark.parametrize("late", ["not begun", "cut short"])
def test_all_checks_of_one_stop_share_the_time_that_the_client_waits(kit, project, monkeypatch, late):
    """AUTO_COMPLETE owes the checks of several phases: what cannot be checked in time is a doubt, and holds nobody."""
    limits, took = [], [80, 50 if late == "cut short" else 60]
    clock = types.SimpleNamespace(**dict(vars(time), monotonic=lambda: sum(took[:len(limits)])))

    def run(command, root, limit_s):
        limits.append(limit_s)
        return (None if late == "cut short" and len(limits) == 2 else 0), b""

    monkeypatch.setattr(kit, "time", clock)
    monkeypatch.setattr(kit, "run_bounded", run)
    checks = {"build": "make", "test": "make test", "ship": "make dist"}
    project.write(".contextrc", "auto:\n  done_when:\n" + "".join("    %s: %s\n" % pair for pair in checks.items()))
    meant(project, "build", checks, phases=list(checks))
    prompt(project, "begin", NOW - 1)
    reply = stop(project, block("AUTO_COMPLETE", "build"), works=True)
    assert limits == [120, 60]
    assert reply.reply == {"systemMessage": "ctx auto: let the agent stop, no time was left for all checks; phase build stays."}
    assert (state_of(project)["active"], state_of(project)["phase"]) == (True, "build")
    row = project.recorded_events("stop:released")[-1]
    assert (row["reason"], row["check"]) == ("checks_late", "had no time left")
    shown = project.ask("why", "1", COLUMNS="300").out.decode()
    assert "no time was left for all checks; phase build stays." in shown


def test_the_registered_time_of_a_stop_has_room_for_all_its_checks(kit):
    assert kit.HOOK_LIMIT_S + kit.CHECKS_LIMIT_S + 5 < kit.STOP_TIMEOUT_S


HARD = {
    "hangs": "sleep 1000", "forks": "sleep 1000 & sleep 1000 & wait", "floods": "yes", "ignores signals": "trap '' TERM INT HUP; sleep 1000",
}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("what", sorted(HARD))
def test_a_check_that_does_not_end_is_ended_with_its_children(kit, project, monkeypatch, what):
    monkeypatch.setenv("THIS_TEST", project.root)
    code, output = kit.run_bounded(HARD[what], project.root, 0.5)
    assert code is None and len(output) <= kit.CHECK_BUFFER
    mark = b"THIS_TEST=" + project.root.encode()
    left, deadline = [None], time.monotonic() + 5
    while left and time.monotonic() < deadline:  # a killed process takes a moment to go
        left = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()
                and mark in (kit.read_bytes("/proc/%s/environ" % name) or b"")]
    assert left == []


def test_a_check_that_leaves_a_child_behind_does_not_keep_us_waiting(kit, project):
    started = time.monotonic()
    code, output = kit.run_bounded(LEAVES, project.root, 60)
    assert (code, output.split()) == (0, [b"started"]) and time.monotonic() - started < 30


def test_a_missing_check_command_fails_like_any_other(kit, project):
    code, output = kit.run_bounded("no-such-command-here", project.root, 20)
    assert output and (code not in (0, None) if helper.IS_WINDOWS else code == 127)


# --- the project's own phases


def test_phases_can_be_the_projects_own(project):
    project.write(".contextrc", "auto:\n  about:\n    build: Make it compile.\n")
    auto(project, "plan", phases=["plan", "build", "ship-it"])
    text = stop(project, block("PLAN_COMPLETE", "plan")).context
    assert "- Phase: build" in text and "Make it compile." in text
    assert "Expected signal: SHIP_IT_COMPLETE" in stop(project, block("BUILD_COMPLETE", "build"), works=True).context
    assert stop(project, block("SHIP_IT_COMPLETE", "ship-it")).reply == {"systemMessage": "ctx auto: all phases complete."}


@pytest.mark.parametrize("changes", [{"session_id": "s2"}, {"session_id": ""}, {"session_id": None}, {"agent_id": "a1"}])
def test_nobody_else_is_held(project, changes):
    auto(project)
    before = project.read(STATE)
    assert stop(project, **changes).is_silent and project.read(STATE) == before


def test_ctx_cancel_releases_at_once_and_only_as_the_whole_prompt(project):
    auto(project)
    prompt(project, "begin")
    for text in ("please ctx cancel", "ctx cancel it", "CTX CANCEL", "<task-notification>ctx cancel</task-notification>"):
        assert prompt(project, text).is_silent and state_of(project)["active"] is True
    assert prompt(project, "ctx cancel", session="s2").is_silent and state_of(project)["active"] is True
    reply = prompt(project, " ctx cancel\n")
    assert reply.reply["systemMessage"] == "ctx auto: cancelled." and "cancelled the workflow" in reply.context
    state = state_of(project)
    assert (state["active"], state["phase"], state["exit_reason"]) == (False, "failed", "user_cancelled")
    assert stop(project).is_silent
    assert prompt(project, "ctx cancel").is_silent


def test_ten_stops_at_once_are_one_decision(project):
    auto(project, started_at=iso(time.time()), phase_started_at=iso(time.time()))
    event = json.dumps(project.event("Stop", session_id="s1", last_assistant_message="hm")).encode()
    children = [subprocess.Popen(helper.hook_argv("stop-enforce"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 env=project.environment({}), cwd=project.root) for _ in range(10)]
    for child in children:
        child.stdin.write(event)
        child.stdin.flush()
    said = [child.communicate(timeout=30)[0][:1] for child in children]
    assert 1 <= state_of(project)["iteration"] <= said.count(b"{") < 10, "the same stop within two seconds counts once"


def test_the_reason_of_every_decision_is_in_the_recorder(project):
    auto(project)
    stop(project)
    stop(project, block("PLANNING_COMPLETE", "planning"))
    stop(project, block("AUTO_COMPLETE", "execution"))
    assert [(row["event"], row["reason"]) for row in project.recorded_events()] == [
        ("stop:held", "held"), ("stop:held", "advanced"), ("stop:released", "auto_complete_signal")]
