"""Registration: the commands in the clients' settings, as the kit makes and recognises them."""
from __future__ import annotations

import json
import os
import random

import pytest

from helper import REPO, load_kit

kit = load_kit()
OLD = 'python3 -I -S -c "import gc, sys; gc.disable(); sys.path.append(sys.argv.pop()); import ctx_hooks; ctx_hooks.main()"'
OURS = {
    OLD + ' gate "$CLAUDE_PROJECT_DIR/.claude/hooks" || exit 0': "gate",
    OLD + " stop-enforce '/home/x/a b'\"'\"'c/.claude/hooks' || exit 0": "stop-enforce",
    "'/opt/py thon/bin/anything'" + OLD[7:] + ' inject "$X"': "inject",
    "py -3" + OLD[7:] + ' inject "$X" || exit 0': "inject",
    "python3 .claude/hooks/ctx_hooks.py gate": "gate",
    'python3 "$CLAUDE_PROJECT_DIR"/.claude/hooks/ctx_hooks.py monitor 2>/dev/null || true': "monitor",
    "/usr/bin/python3.12 -X utf8 -I ~/.claude/hooks/ctx_hooks.py cleanup": "cleanup",
    '"C:/Program Files/Python/python.exe" -I -S "C:/x y/ctx_hooks.py" inject': "inject",
}
NOT_OURS = [
    "", "   ", "python3", "python3 -c", "ctx_hooks.py", "python3 ctx_hooks.py", "python3 ctx_hooks.py doctor",
    "python3 my_ctx_hooks.py gate", "python3 ctx_hooks.pyc gate", "python3 ctx_hooks.py.bak gate",
    "python3 ctx_hooks.py/other.py gate", "python3 gate ctx_hooks.py", "echo ctx_hooks.py gate",
    "echo " + OLD + " gate x", "cat ctx_hooks.py gate", "python3 other.py ctx_hooks.py gate",
    "echo before; python3 ctx_hooks.py gate", "python3 ctx_hooks.py gate && ./mine.sh",
    "python3 ctx_hooks.py gate | tee log", "python3 ctx_hooks.py gate || ./mine.sh", "(python3 ctx_hooks.py gate)",
    "python3 ctx_hooks.py gate\nrm -rf x", "python3 ctx_hooks.py gate x\nrm -rf x", 'python3 ctx_hooks.py gate \\" ; rm x \\"',
    'python3 -c "import my_ctx_hooks; my_ctx_hooks.main()" gate x',
    'python3 -c "import ctx_hooks" gate x', 'python3 -c "print(\'import ctx_hooks\')" gate',
    "FOO=1 python3 ctx_hooks.py gate", "python3 -m ctx_hooks gate", ".claude/hooks/ctx_hooks.py gate",
    "python3 'open quote ctx_hooks.py gate", "timeout 5 ./wrapper.sh ctx_hooks.py gate",
]


@pytest.mark.parametrize("command", OURS)
def test_what_runs_the_kit_and_nothing_else_is_ours_but_not_to_the_letter(command):
    found = kit.parse_command(command)
    assert (found.mode, found.agent, found.exact) == (OURS[command], "claude", False)


@pytest.mark.parametrize("command", NOT_OURS)
def test_what_only_resembles_or_mentions_the_kit_is_not_ours(command):
    assert kit.parse_command(command) is None


def test_recognition_survives_any_text():
    pieces = ["python3", "ctx_hooks.py", "gate", "||", "exit", "0", "-c", "-X", "env", ": ctx_hooks gate; ", *"'\"\\|ü\0\n "]
    for seed in range(1200):
        rng = random.Random(seed)
        command = "".join(rng.choice(pieces) + rng.choice(["", " "]) for _ in range(rng.randrange(12)))
        found = kit.parse_command(command)
        assert found is None or found.mode in kit.MODES, seed


@pytest.mark.parametrize("agent", kit.DIALECTS)
@pytest.mark.parametrize("python", ["python3", "py -3", "'/a b/python3'"])
def test_every_command_that_is_made_is_known_to_the_letter(agent, python):
    for path in ("'/x y/it'\"'\"'s/ctx_hooks.py'", kit.kit_path(agent) or "/x/ctx_hooks.py"):
        for event, groups in kit.plan_hooks(agent, python, path).items():
            found = kit.parse_command(groups[0]["hooks"][0]["command"])
            assert (found.agent, found.python, found.exact) == (agent, python.strip("'"), True), event
            assert found.path == path.replace("'\"'\"'", "\0").strip("'\"").replace("\0", "'")


@pytest.mark.parametrize("agent", kit.DIALECTS)
def test_the_form_for_windows_is_known_to_the_letter(agent):
    path = (kit.DIALECTS[agent].project_variable or "C:") + "/.claude/hooks/ctx_hooks.py"
    for event, groups in kit.plan_hooks(agent, "py -3", path, kit.WINDOWS_START).items():
        command = groups[0]["hooks"][0]["command"]
        found = kit.parse_command(command)
        assert (found.agent, found.python, found.path, found.exact) == (agent, "py -3", path, True), event
        assert not set(command) & set("$`&|") and command.count('"') == 2  # nothing that sh and PowerShell read differently


@pytest.mark.parametrize("change", [
    lambda c: c.replace(" || exit 0", "; rm -rf x || exit 0"), lambda c: c.replace("python3", "python3 -i"),
    lambda c: c.replace("python3", "$(evil)"), lambda c: c.replace("gc.disable()", "gc.enable()"),
    lambda c: c.replace("python3", "'a'$(evil)'b'"), lambda c: c.replace("gate;", "gate$(evil);"), lambda c: c + " #", lambda c: " " + c,
    lambda c: c.replace("$CLAUDE_PROJECT_DIR", "$(evil)"), lambda c: c.replace("$CLAUDE_PROJECT_DIR", "$EVIL")])
def test_a_command_that_was_touched_is_not_ours_to_the_letter(change):
    command = change(kit.format_command("gate", "claude", "python3", kit.kit_path("claude")))
    found = kit.parse_command(command)
    assert found is None or not found.exact


def test_registrations_are_found_whatever_else_the_settings_hold():
    command = kit.format_command("gate", "claude", "python3", kit.kit_path("claude"))
    for broken in ({}, {"hooks": []}, {"hooks": {"a": 5}}, {"hooks": {"a": [5, {}, {"hooks": 5}, {"hooks": [5, {}]}]}},
                   {"hooks": {"a": [{"hooks": [{"command": ["ctx_hooks"]}, {"command": "echo ctx_hooks.py gate"}]}]}}):
        assert kit.find_registrations(broken) == []
    settings = {"hooks": {"a": [5, {"hooks": [5, {"command": command}]}], "b": None}}
    assert [(event, text, ours.mode) for event, text, ours in kit.find_registrations(settings)] == [("a", command, "gate")]


def test_hooks_json_is_what_the_kit_makes_for_claude_code():
    with open(os.path.join(REPO, "hooks.json"), encoding="utf-8") as source:
        text = source.read()
    hooks = {"hooks": kit.plan_hooks("claude", "python3", kit.PLUGIN_PATH, kit.PLUGIN_START)}
    assert text == json.dumps(hooks, indent=2, ensure_ascii=False) + "\n"
    modes = {event: kit.parse_command(groups[0]["hooks"][0]["command"]).mode for event, groups in hooks["hooks"].items()}
    assert modes == {"SessionStart": "inject", "UserPromptSubmit": "inject", "PreToolUse": "gate", "PostToolUse": "monitor",
                     "PostToolUseFailure": "monitor", "PreCompact": "monitor", "Stop": "stop-enforce", "SessionEnd": "cleanup"}


def test_each_client_gets_its_own_events_units_and_limits():
    for agent, row in kit.DIALECTS.items():
        hooks = kit.plan_hooks(agent, "python3", "x")
        assert set(hooks) == set(row.events), agent
        for event, groups in hooks.items():
            seconds = groups[0]["hooks"][0]["timeout"] / row.time_unit
            assert 0 < seconds <= (row.end_limit_s if row.events[event] == "SessionEnd" else 150), (agent, event)
