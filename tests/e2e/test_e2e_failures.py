"""A kit that is missing, broken or switched off; the client goes on undisturbed."""

from __future__ import annotations

import json

import pytest

from stub_model import bash

GATE = "STOP. Read your context files"
KIT = ".claude/hooks/ctx_hooks.py"
SETTINGS = ".claude/settings.json"


def work_undisturbed(world, **extra):
    """Two prompts, a tool call that works and one that fails; everything must come through, and no hook complain."""
    world.stub.script(bash("echo tool-result"), bash("echo wrong >&2; false"), "the answer", "the second answer")
    with world.session(**extra) as session:
        assert session.prompt("first prompt")["result"] == "the answer"
        assert session.prompt("second prompt")["result"] == "the second answer"
    requests = world.stub.of("main")
    assert (
        "tool-result" in requests[1].news() and "wrong" in requests[2].news() and "second prompt" in requests[3].news()
    )
    assert session.process.returncode == 0 and not world.stub.ran_out
    return [
        row["attachment"]
        for row in world.transcripts()
        if row.get("type") == "attachment" and "hookEvent" in row["attachment"]
    ]


def silence_of(rows):
    return [row for row in rows if row["type"] != "hook_success" or row.get("stdout") or row.get("exitCode")]


def test_a_deleted_kit_file_disturbs_nobody(kit):
    kit.path(KIT).unlink()
    assert [row for row in work_undisturbed(kit) if row["type"] != "hook_success"] == []
    assert kit.emitted() == []


def test_a_kit_that_does_not_even_parse_disturbs_nobody(kit):
    kit.write(KIT, "def main(:\n")
    assert [row for row in work_undisturbed(kit) if row["type"] != "hook_success"] == []


def test_a_missing_interpreter_disturbs_nobody(kit):
    kit.write(SETTINGS, kit.read(SETTINGS).replace("python3 ", "python3-that-is-not-there "))
    assert [row for row in work_undisturbed(kit) if row["type"] != "hook_success"] == []


def test_a_broken_foreign_entry_leaves_ours_working(kit):
    settings = kit.json(SETTINGS)
    settings["hooks"]["Notification"] = [{"hooks": "this is not a list"}]
    settings["hooks"]["NoSuchEvent"] = 17
    kit.write(SETTINGS, json.dumps(settings))
    work_undisturbed(kit)
    assert GATE in kit.stub.of("main")[1].news()


def test_settings_that_the_client_cannot_read_switch_us_off_and_nothing_else(kit):
    kit.write(SETTINGS, kit.read(SETTINGS) + ",")
    assert work_undisturbed(kit) == []


def test_the_off_switch_silences_every_hook(kit):
    assert silence_of(work_undisturbed(kit, CTX_HOOKS_DISABLE="1")) == [] and kit.emitted() == []
    assert kit.files(".context/state/*") == [] and kit.left_behind() == []


def test_hooks_disabled_in_the_settings_do_not_run(kit):
    settings = kit.json(SETTINGS)
    settings["disableAllHooks"] = True
    kit.write(SETTINGS, json.dumps(settings))
    assert work_undisturbed(kit) == []


@pytest.mark.parametrize("name", ["state", "signals", "handoffs", "events.jsonl", "monitor-state.json", "metrics.json"])
def test_a_runtime_path_that_is_something_else_disturbs_nobody(kit, name):
    target = kit.path(".context") / name
    if target.suffix:
        target.mkdir()
    else:
        target.write_text("a file where a folder belongs\n")
    work_undisturbed(kit)
    assert kit.stub.of("main")[1].count(GATE) == 1
