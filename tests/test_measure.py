"""Measure: how full the context is, exact where possible, estimated otherwise, of the right window."""
from __future__ import annotations

import json
import os

import pytest

import helper
from helper import NOW, assistant_row

SMALL, LARGE = 200_000, 1_000_000
WINDOWS = {  # CLIENT: measured by model id
    "claude-opus-5-5": LARGE, "claude-sonnet-5": LARGE, "claude-haiku-5-1": LARGE, "claude-opus-4-7": LARGE,
    "claude-fable-1": LARGE, "claude-mythos-preview": LARGE, "claude-sonnet-4-5[1m]": LARGE, "sonnet[1m]": LARGE,
    "claude-sonnet-4-5-20250929[1M]": LARGE, "some-new-model": LARGE, "gpt-x": LARGE,
    "claude-opus-4-5": SMALL, "claude-opus-4-5-20251101": SMALL, "claude-opus-4-6": SMALL, "claude-sonnet-4": SMALL,
    "claude-sonnet-4-20250514": SMALL, "claude-sonnet-4-5": SMALL, "claude-sonnet-4-5-20250929": SMALL,
    "claude-sonnet-4-6": SMALL, "claude-haiku-4-5": SMALL, "claude-haiku-4-5-20251001": SMALL,
    "claude-3-7-sonnet-20250219": SMALL, "claude-3-5-haiku-20241022": SMALL, "claude-3-opus": SMALL,
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": SMALL, "anthropic.claude-opus-4-6-v1": SMALL,
    "global.anthropic.claude-haiku-4-5-20251001-v1:0": SMALL, "claude-sonnet-4@20250514": SMALL,
    "claude-opus-4-5@20251101": SMALL, "eu.anthropic.claude-3-5-sonnet-20241022-v2:0": SMALL,
    "us.anthropic.claude-opus-5-v1:0": LARGE, "CLAUDE-OPUS-4-5": SMALL, "": SMALL,
    "anthropic/claude-opus-4.7": LARGE, "claude-sonnet-4.5": SMALL,  # as gateways spell them
}


@pytest.mark.parametrize("model", sorted(WINDOWS))
def test_window_by_the_models_name_is_the_clients(kit, model):
    assert kit.window_of_model(model) == WINDOWS[model]


def measure(kit, project, tokens=None, model="claude-sonnet-4-5", state=None, added=0, told=0):
    usage = kit.Record(tokens=tokens, model=model, window=told, at=0.0) if tokens else None
    return kit.measure_context(project.ctx(NOW), kit.load_record(state or {}, kit.SESSION), usage, added)


def test_window_in_order_of_what_is_known_best(kit, project):
    assert measure(kit, project, 100).window == SMALL
    statusline = {"at": "2026-02-03T10:44:00Z", "window": 500_000, "model": "claude-sonnet-4-5"}
    project.write(".context/state/s1.statusline", json.dumps(statusline))
    assert measure(kit, project, 100).window == 500_000
    assert measure(kit, project, 100, model="claude-opus-4-5").window == SMALL, "another model's number"
    project.write(".contextrc", "monitor:\n  context_window: 300000\n")
    assert measure(kit, project, 100).window == 300_000


@pytest.mark.parametrize("handed", [
    {"window": 7}, {"window": "500000"}, {"window": 10 ** 12}, {"window": 500_000, "model": ""}])
def test_absurd_numbers_of_the_status_line_are_discarded(kit, project, handed):
    project.write(".context/state/s1.statusline", json.dumps(dict({"model": "claude-sonnet-4-5"}, **handed)))
    assert measure(kit, project, 100).window == SMALL


@pytest.mark.parametrize("stated", [0, 7, 999_999_999_999])
def test_absurd_configured_window_is_discarded(kit, project, stated):
    project.write(".contextrc", "monitor:\n  context_window: %d\n" % stated)
    assert measure(kit, project, 100).window == SMALL


def test_window_is_raised_by_evidence_and_nothing_above_100_percent_is_shown(kit, project):
    assert measure(kit, project, 200_000).percent == 100
    found = measure(kit, project, 200_001)
    assert (found.window, found.percent, found.shown) == (LARGE, 20, "20%")
    assert measure(kit, project, 1_500_000).percent == 100
    assert measure(kit, project, 2_100_000, told=2_000_000).window == 2_000_000, "never lowered"


def test_an_estimate_proves_no_window(kit, project):
    """Only a measured value does: an estimate adds up, and a wrong sum must not un-arm the handoff."""
    found = measure(kit, project, state={"estimated_tokens": 250_000, "measured_model": "claude-sonnet-4-5"}, added=10)
    assert (found.window, found.percent) == (SMALL, 100)


def test_an_estimate_proves_no_window_for_later_either(project):
    project.write(".context/state/s1.json", '{"estimated_tokens": 250000, "measured_model": "claude-sonnet-4-5"}')
    after_tool(project)
    project.write_transcript([assistant_row(170_000)])
    after_tool(project, NOW + 1)
    assert state_of(project)["window"] == SMALL


@pytest.mark.parametrize("tokens", [140_000, 151_000, 201_000, 900_000])
def test_a_configured_window_that_is_exceeded_stays_what_it_is(kit, project, tokens):
    """The person knows why; raising it would un-arm the handoff just when it is due."""
    project.write(".contextrc", "monitor:\n  context_window: 150000\n")
    found = measure(kit, project, tokens)
    assert (found.window, found.percent) == (150_000, min(100, tokens * 100 // 150_000))
    ctx, state = project.ctx(NOW), kit.load_record({}, kit.SESSION)
    assert kit.handoff_point(ctx, state, found.window) <= tokens


def test_a_window_that_the_transcript_tells_counts(kit, project):
    assert measure(kit, project, 100, model="gpt-x", told=258_000).window == 258_000
    assert measure(kit, project, 100, told=7).window == SMALL, "absurd"


def test_evidence_is_remembered_over_a_compaction(project):
    project.write_transcript([assistant_row(250_000)])
    after_tool(project)
    project.step("inject", project.event("SessionStart.compact", session_id="s1", model=None), NOW + 1)
    project.write_transcript([assistant_row(170_000)])
    after_tool(project, NOW + 2)
    assert state_of(project)["window"] == LARGE
    project.write_transcript([assistant_row(170_000, message={"model": "claude-opus-4-5"})])
    after_tool(project, NOW + 3)
    assert state_of(project)["window"] == SMALL, "of that model only"


def test_usage_without_a_time_of_its_own_is_not_older_than_a_compaction(project):
    project.step("inject", project.event("SessionStart.compact", session_id="s1"), NOW)
    project.write_transcript([assistant_row(30_000, timestamp=None)])
    after_tool(project, NOW + 1)
    assert (state_of(project)["estimated_tokens"], state_of(project)["exact"]) == (30_000, True)


def test_of_another_clients_model_no_window_is_assumed_by_its_name(kit, project):
    ctx, state = project.ctx(NOW), kit.load_record({"window": LARGE, "measured_model": "gpt-x"}, kit.SESSION)
    ctx.agent = "copilot"
    found = kit.measure_context(ctx, state, kit.Record(tokens=100, model="gpt-x", window=0, at=0.0), 0)
    assert (found.window, found.exact) == (SMALL, False)


HINTS = (  # state, measured name -> window
    ({"model": "claude-sonnet-4-5[1m]"}, "claude-sonnet-4-5-20250929", LARGE),
    ({"settings_model": "sonnet[1m]"}, "claude-sonnet-4-5-20250929", LARGE),
    ({"settings_model": "us.anthropic.claude-sonnet-4-5-20250929-v1:0[1m]"}, "claude-sonnet-4-5-20250929", LARGE),
    ({"settings_model": "opus[1m]"}, "claude-sonnet-4-5", SMALL),
    ({"settings_model": "claude-opus-5"}, "claude-sonnet-4-5", SMALL),
    ({"model": 7, "settings_model": ["x[1m]"]}, "claude-sonnet-4-5", SMALL),
    ({"model": "claude-sonnet-4-5", "settings_model": "sonnet[1m]"}, "claude-sonnet-4-5", SMALL),  # started with another model
    ({"model": "claude-sonnet-4-5[1m]"}, "claude-opus-4-5", SMALL),  # switched in the session
    ({"model": "claude-opus-4-5", "settings_model": ""}, "claude-opus-5-5", LARGE),  # switched the other way
    ({"model": "claude-sonnet-4-5[1m]", "measured_model": "claude-haiku-4-5"}, "", SMALL),  # the last measured one counts
    ({"model": "claude-sonnet-4-5[1m]"}, "", LARGE), ({"settings_model": "sonnet[1m]"}, "", LARGE), ({}, "", SMALL),
)


@pytest.mark.parametrize("state, name, window", HINTS)
def test_one_million_may_stand_only_in_the_settings_or_at_the_sessions_start(kit, project, state, name, window):
    assert measure(kit, project, 100, model=name, state=state).window == window


def test_without_a_measure_the_last_known_model_decides(kit, project):
    """A 1M session whose transcript cannot be read for a moment must not look overfull."""
    state = {"estimated_tokens": 300_000, "measured_model": "claude-opus-5-5"}
    assert measure(kit, project, state=state, added=10).percent == 30


def test_percent_is_rounded_down_and_an_estimate_says_so(kit, project):
    exact = measure(kit, project, 159_999)
    assert (exact.percent, exact.shown, exact.note) == (79, "79%", "")
    guess = measure(kit, project, state={"estimated_tokens": 159_000}, added=999)
    assert (guess.percent, guess.shown, guess.note) == (79, "~79%", "estimated")


def noted(kit, project, **env):
    state = kit.load_record({}, kit.SESSION)
    kit.note_settings(project.ctx(NOW, **env), state)
    return state


def test_the_settings_model_is_found_in_the_clients_order(kit, project):
    assert noted(kit, project).settings_model == ""
    for folder, name in ((project.home + "/.claude/settings.json", "user"), (".claude/settings.json", "project"),
                         (".claude/settings.local.json", "local")):
        project.write(folder, json.dumps({"model": name}))
        assert noted(kit, project).settings_model == name
    assert noted(kit, project, ANTHROPIC_MODEL="environment").settings_model == "environment"
    assert noted(kit, project, CLAUDE_CONFIG_DIR=project.path("none")).settings_model == "local"


def test_settings_that_are_a_link_among_somebodys_dotfiles_are_read(kit, project):
    target = project.write(project.home + "/dotfiles/claude.json", '{"model": "linked"}')
    os.makedirs(project.home + "/.claude", exist_ok=True)
    os.symlink(target, project.home + "/.claude/settings.json")
    assert noted(kit, project).settings_model == "linked"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model": 5, "autoCompactWindow": "x", "autoCompactEnabled": 0}'])
def test_broken_settings_of_the_client_say_nothing(kit, project, text):
    project.write(".claude/settings.json", text)
    state = noted(kit, project)
    assert (state.settings_model, state.compact_window, state.compacts, state.settings_read) == ("", 0, True, True)


def test_the_settings_are_read_once_in_a_session(kit, project):
    state = noted(kit, project)
    project.write(".claude/settings.json", '{"model": "late"}')
    kit.note_settings(project.ctx(NOW), state)
    assert state.settings_model == ""


# --- where the client compacts, and where the handoff is asked for


POINTS = (  # window, the client's settings, environment, the project's threshold -> compaction, handoff
    (SMALL, {}, {}, None, 167_000, 142_000),
    (LARGE, {}, {}, None, 977_000, 800_000),
    (SMALL, {"autoCompactEnabled": False}, {}, None, 0, 160_000),
    (SMALL, {}, {"DISABLE_AUTO_COMPACT": "1"}, None, 0, 160_000),
    (SMALL, {}, {"DISABLE_AUTO_COMPACT": "false"}, None, 167_000, 142_000),
    (LARGE, {"autoCompactWindow": 300_000}, {}, None, 267_000, 242_000),
    (LARGE, {"autoCompactWindow": 300_000}, {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "400000"}, None, 367_000, 342_000),
    (SMALL, {"autoCompactWindow": 900_000}, {}, None, 167_000, 142_000),
    (SMALL, {}, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "50"}, None, 90_000, 65_000),
    (SMALL, {}, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "99"}, None, 167_000, 142_000),
    (SMALL, {}, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "much"}, None, 167_000, 142_000),
    (SMALL, {}, {"CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "0"}, None, 167_000, 142_000),
    (40_000, {}, {}, None, 7_000, 32_000), (20_000, {}, {}, None, 0, 16_000),
    (SMALL, {}, {}, 70, 167_000, 140_000), (SMALL, {}, {}, 95, 167_000, 190_000), (SMALL, {}, {}, 12.5, 167_000, 25_000),
)


@pytest.mark.parametrize("window, settings, env, threshold, compaction, handoff", POINTS)
def test_the_handoff_is_asked_for_before_the_client_compacts(kit, project, window, settings, env, threshold, compaction, handoff):
    project.write(".claude/settings.json", json.dumps(settings))
    if threshold:
        project.write(".contextrc", "handoff:\n  threshold: %s\n" % threshold)
    state, ctx = noted(kit, project, **env), project.ctx(NOW, **env)
    assert (kit.compaction_point(ctx, state, window), kit.handoff_point(ctx, state, window)) == (compaction, handoff)


@pytest.mark.parametrize("agent, point", [("codex", 188_000), ("qwen", 170_000), ("copilot", 160_000), ("droid", 0)])
def test_other_clients_compact_where_their_row_says(kit, project, agent, point):
    ctx = project.ctx(NOW)
    ctx.agent = agent
    assert kit.compaction_point(ctx, kit.load_record({}, kit.SESSION), SMALL) == point


# --- estimates


def estimate(kit, name, **changes):
    return kit.estimate_tokens(kit.parse_event(dict(helper.recorded(name), **changes), "monitor", "claude", {}))


RESPONSES = [name for name in helper.recorded_names() if name.startswith("PostToolUse") and "in-sub" not in name]


@pytest.mark.parametrize("name", RESPONSES)
def test_a_small_recorded_response_is_a_small_estimate(kit, name):
    assert 60 <= estimate(kit, name) < 400


LARGE_RESPONSES = {  # 40,000 characters that the model sees: about 10,000 tokens
    "PostToolUse.Bash": {"tool_response": {"stdout": "x" * 40000, "stderr": "", "isImage": False}},
    "PostToolUse.Read": {"tool_response": {"type": "text", "file": {"filePath": "/f", "content": "x" * 40000}}},
    "PostToolUse.Write": {"tool_input": {"file_path": "/f", "content": "x" * 40000},
                          "tool_response": {"content": "x" * 40000, "originalFile": "x" * 40000}},
    "PostToolUse.Agent.sync": {"tool_response": {"content": [{"type": "text", "text": "x" * 40000}], "prompt": "x" * 9999}},
    "PostToolUseFailure": {"error": "x" * 40000},
}


@pytest.mark.parametrize("name", sorted(LARGE_RESPONSES))
def test_an_estimate_follows_what_the_model_sees(kit, name):
    assert 9_000 < estimate(kit, name, **LARGE_RESPONSES[name]) < 12_000


IMAGES = (
    {"tool_name": "Read", "tool_response": {"type": "image", "file": {"base64": "x" * 400000, "type": "image/png"}}},
    {"tool_name": "Bash", "tool_response": {"stdout": "x" * 400000, "isImage": True}},
    {"tool_name": "mcp__shot", "tool_response": [{"type": "image", "source": {"data": "x" * 400000}}]},
    {"tool_name": "mcp__shot", "tool_response": {"content": [{"type": "image", "data": "x" * 400000}]}},
)


@pytest.mark.parametrize("changes", IMAGES)
def test_an_image_costs_what_an_image_costs(kit, changes):
    assert 1_500 < estimate(kit, "PostToolUse.Bash", **changes) < 2_500


@pytest.mark.parametrize("response", [None, 1, True, [], {}, "x", [None, [1, {"a": 2}]], {"file": 5}, {"stdout": 7}, 1e308])
@pytest.mark.parametrize("tool", ["Bash", "Read", "Agent", "Edit", "?", "mcp__x"])
def test_no_response_makes_the_estimate_fail(kit, tool, response):
    assert 0 < estimate(kit, "PostToolUse.Bash", tool_name=tool, tool_input={}, tool_response=response) < 2000


# --- the mode


def after_tool(project, now=NOW, name="PostToolUse.Bash", **changes):
    after_tool.calls = getattr(after_tool, "calls", 0) + 1
    changes.setdefault("tool_use_id", "t%d" % after_tool.calls)
    return project.step("monitor", project.event(name, session_id="s1", **changes), now)


def state_of(project):
    return project.read_json(".context/state/s1.json")


def test_state_has_its_public_keys_and_counts_failures_too(project):
    after_tool(project)
    after_tool(project, name="PostToolUseFailure")
    state = state_of(project)
    assert state["tool_calls"] == 2 and list(state["breakdown"]) == ["Bash"] and state["breakdown"]["Bash"] > 100
    assert state["session_start"] == "2026-02-03T10:45:00.000Z"
    assert (state["threshold_crossed_at"], state["handoff_complete"]) == (None, False)
    assert state["estimated_tokens"] == 15_000 + state["breakdown"]["Bash"]


def test_measured_usage_replaces_the_estimate(project):
    after_tool(project)
    project.write_transcript([assistant_row(40_000)])
    after_tool(project)
    assert state_of(project)["estimated_tokens"] == 40_000 and state_of(project)["exact"] is True


def test_two_sessions_have_their_own_counters(project):
    after_tool(project)
    project.step("monitor", project.event("PostToolUse.Bash", session_id="s2"), NOW)
    assert state_of(project)["tool_calls"] == 1 and project.read_json(".context/state/s2.json")["tool_calls"] == 1


def test_a_subagents_call_is_not_counted(project):
    assert project.step("monitor", project.event("PostToolUse.in-subagent", session_id="s1"), NOW).is_silent
    assert not project.exists(".context/state")


@pytest.mark.parametrize("broken", ["", "[]", "null", "{", '{"tool_calls": "x", "breakdown": [], "recent": 5, "history": {}}',
                                    '{"tool_calls": 1e999, "other": 1e999, "files_read": 3, "estimated_tokens": -5}', b"\xff\0"])
def test_a_broken_state_file_is_mended_and_not_lost(project, broken):
    project.write(".context/state/s1.json", broken)
    for _ in range(2):
        assert after_tool(project).is_silent
    state = state_of(project)
    assert state["tool_calls"] == 2 and isinstance(state["breakdown"], dict)
    if broken in ("[]", "{", b"\xff\0"):
        assert len(project.tree("a project's/.context/state/aside")) == 1


@pytest.mark.parametrize("kind", ["directory", "fifo", "dangling link", "link"])
def test_a_state_file_that_is_something_else_is_set_aside(project, tmp_path, kind):
    (tmp_path / "theirs").write_text('{"theirs": 1}')
    os.makedirs(project.path(".context/state"))
    path = project.path(".context/state/s1.json")
    {"directory": os.mkdir, "fifo": os.mkfifo, "dangling link": lambda p: os.symlink("nowhere", p),
     "link": lambda p: os.symlink(str(tmp_path / "theirs"), p)}[kind](path)
    for _ in range(2):
        after_tool(project)
    assert state_of(project)["tool_calls"] == 2 and not os.path.islink(path)
    assert (tmp_path / "theirs").read_text() == '{"theirs": 1}'


def test_a_tool_response_of_12_megabytes_is_counted(project):
    event = project.event("PostToolUse.Bash", session_id="s1", tool_response={"stdout": "x" * (12 << 20)})
    assert project.call("monitor", event).rc == 0
    assert state_of(project)["estimated_tokens"] == 15_000 + state_of(project)["breakdown"]["Bash"]
    assert 100_000 < state_of(project)["estimated_tokens"] < 130_000, "the client cuts what one tool may return"


def test_the_same_call_arriving_twice_counts_once(project):
    """The kit registered in two scopes, or as a plugin and in the project."""
    for _ in range(2):
        after_tool(project, tool_use_id="t")
        after_tool(project, tool_use_id="t", name="PostToolUseFailure")
    assert state_of(project)["tool_calls"] == 2
    after_tool(project, tool_use_id="other")
    assert state_of(project)["tool_calls"] == 3


def test_counts_are_exact_under_24_parallel_calls(project):
    import subprocess

    events = [json.dumps(project.event("PostToolUse.Bash", session_id="s1", tool_use_id="t%d" % n, tool_input={
        "command": "echo " + "abcdefghijklmnopqrstuvwx"[n]})).encode() for n in range(24)]
    children = []
    for number, event in enumerate(events):  # in files: on a busy machine one would wait for it longer than the hook does
        with open(project.write("event%d" % number, event), "rb") as stdin:
            children.append(subprocess.Popen(helper.hook_argv("monitor"), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                             env=project.environment({}), cwd=project.root))
    outputs = [(child.stdout.read(), child.stderr.read()) for child in children]
    for child in children:
        child.wait(timeout=30)
        child.stdout.close()
        child.stderr.close()
    assert [child.returncode for child in children] == [0] * 24 and outputs == [(b"", b"")] * 24
    state = state_of(project)
    assert state["tool_calls"] == 24 and state["estimated_tokens"] == 15_000 + state["breakdown"]["Bash"]


def test_a_line_of_200_megabytes_costs_no_more_than_the_deadline(project):
    """Sparse, so that the disk does not fill: what is not read costs nothing."""
    path = project.write_transcript([assistant_row(50_000)])
    with open(path, "r+b") as out:
        out.seek(200 << 20)
        out.write(b'x"}\n')
    result = project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="s1"))
    assert (result.rc, result.err) == (0, b"") and state_of(project)["tool_calls"] == 1
    assert state_of(project)["exact"] is False
