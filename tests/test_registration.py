"""Registration: the lines in the clients' settings, as they are made and recognised."""

from __future__ import annotations

import json
import os
import random

import pytest

from helper import REPO, kit, read


def read_json(*names):
    return json.loads(read(os.path.join(REPO, *names)))


HOOKS = read_json("hooks.json")["hooks"]
OURS = {
    'sh "$CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py" monitor now || exit 0': ("monitor", "claude"),
    'sh "${CLAUDE_PLUGIN_ROOT}/ctx_hooks.py" gate || exit 0': ("gate", "claude"),
    "sh '/home/x/a b'\"'\"'c\n/ctx_hooks.py' stop-enforce codex || exit 0": ("stop-enforce", "codex"),
    'py -3 -I "C:\\x y\\ctx_hooks.py" monitor qwen now; exit 0': ("monitor", "qwen"),
    "python3 .claude/hooks/ctx_hooks.py gate": ("gate", "claude"),
    "/opt/brew/python@3.12/bin/python3 .claude/hooks/ctx_hooks.py gate": ("gate", "claude"),
    'python3 "$CLAUDE_PROJECT_DIR"/.claude/hooks/ctx_hooks.py monitor 2>/dev/null || true': ("monitor", "claude"),
    "/usr/bin/python3.12 -X utf8 -I ~/.claude/hooks/ctx_hooks.py cleanup": ("cleanup", "claude"),
    '"C:/Program Files/Python/python.exe" -I -S "C:/x y/ctx_hooks.py" inject': ("inject", "claude"),
    ".claude/hooks/ctx_hooks.py gate": ("gate", "claude"),
    "sh ~/.claude/hooks/ctx_hooks.py statusline": ("statusline", "claude"),
}
NOT_OURS = [
    "",
    "   ",
    None,
    5,
    ["sh"],
    "python3",
    "ctx_hooks.py",
    "python3 ctx_hooks.py",
    "python3 ctx_hooks.py doctor",
    "python3 my_ctx_hooks.py gate",
    "python3 ctx_hooks.pyc gate",
    "python3 ctx_hooks.py.bak gate",
    "python3 ctx_hooks.py/other.py gate",
    "python3 gate ctx_hooks.py",
    "echo ctx_hooks.py gate",
    "cat ctx_hooks.py gate",
    "python3 other.py ctx_hooks.py gate",
    "echo before; python3 ctx_hooks.py gate",
    "python3 ctx_hooks.py gate && ./mine.sh",
    "python3 ctx_hooks.py gate | tee log",
    "python3 ctx_hooks.py gate || ./mine.sh",
    "(python3 ctx_hooks.py gate)",
    "python3 ctx_hooks.py gate\nrm -rf x",
    "python3 ctx_hooks.py gate x\nrm -rf x",
    'python3 ctx_hooks.py gate \\" ; rm x \\"',
    "sh x/ctx_hooks.py gate nobody",
    "sh -c x/ctx_hooks.py gate",
    "python3 -m ctx_hooks gate",
    "python3 'open quote/ctx_hooks.py gate",
    "timeout 5 ./wrapper.sh ctx_hooks.py gate",
    "$(evil) x/ctx_hooks.py gate",
    ": ctx_hooks gate; rm -rf x",
    ": ctx_hooks gate; x || exit 0 && ./mine.sh",
]


@pytest.mark.parametrize("command", OURS, ids=[command[:60] for command in OURS])
def test_a_line_that_runs_the_kit_alone_is_ours(command):
    line = kit.parse_line(command)
    assert (line.mode, line.agent) == OURS[command]


@pytest.mark.parametrize("command", NOT_OURS, ids=[str(command)[:60] for command in NOT_OURS])
def test_what_only_resembles_or_mentions_the_kit_or_does_more_is_not_ours(command):
    assert kit.parse_line(command) is None


def test_recognition_survives_any_text_in_no_time():
    pieces = ["python3", "ctx_hooks.py", "gate", "||", "exit", "0", "-c", "-X", ": ctx_hooks gate; ", *"'\"\\|ü\0\n/ "]
    for seed in range(2000):
        rng = random.Random(seed)
        command = "".join(rng.choice(pieces) + rng.choice(["", " "]) for _ in range(rng.randrange(14)))
        line = kit.parse_line(command)
        assert line is None or " " + line.mode in command, seed
    for piece in ("a/", "'a' ", "-X ctx_hooks=", '"', ": ctx_hooks ", "sh "):
        assert kit.parse_line(piece * 20_000) is None


@pytest.mark.parametrize("agent", kit.DIALECTS)
def test_each_client_gets_short_lines_for_its_own_events_in_its_own_units(agent):
    dialect = kit.DIALECTS[agent]
    words = {line.event: " ".join(line.words) for line in kit.find_lines({"hooks": HOOKS})}
    modes = {dialect.renamed.get(name, name): words[name] for name in dialect.registered}
    limits = {"Stop": 150, "AfterAgent": 150, "SessionEnd": 3 if agent == "codex" else 5}
    for path, form in (
        (kit.kit_word(agent) or "/x/ctx_hooks.py", kit.SHELL_LINE),
        ("'/x y/it'\"'\"'s/ctx_hooks.py'", kit.SHELL_LINE),
        ('"C:\\x\\ctx_hooks.py"', kit.POWERSHELL_LINE),
    ):
        hooks = kit.adapt_hooks(HOOKS, agent, path, form)
        assert set(hooks) == set(modes)
        assert "PreCompress" not in hooks  # Gemini's comes before every request
        for event, group in hooks.items():
            entry = group["hooks"][0]
            line = kit.parse_line(entry["command"])
            assert line.agent == agent and line.path.endswith("ctx_hooks.py") and len(entry["command"]) <= 100
            assert " ".join(word for word in line.words if word != agent) == modes[event]
            assert entry["timeout"] == limits.get(event, 10) * (1000 if agent == "gemini" else 1)
            assert agent == "claude" or "matcher" not in group


def test_claude_code_gets_hooks_json_as_it_is():
    own = {event: group for event, (group,) in HOOKS.items()}
    assert own == kit.adapt_hooks(HOOKS, "claude", kit.kit_word("claude"))
    assert HOOKS["PreCompact"][0]["matcher"] == "auto"


def test_the_manifests_of_the_plugin_fit():
    plugin, market = (read_json(".claude-plugin", name) for name in ("plugin.json", "marketplace.json"))
    assert os.path.exists(os.path.join(REPO, plugin["hooks"]))
    assert [(entry["name"], entry["source"]) for entry in market["plugins"]] == [(plugin["name"], "./")]


def test_lines_are_found_whatever_else_the_settings_hold():
    command = HOOKS["PreToolUse"][0]["hooks"][0]["command"]
    for broken in (
        {},
        [],
        None,
        {"hooks": []},
        {"hooks": {"a": 5}},
        {"other": {"a": [{"hooks": [{"command": command}]}]}},
        {"hooks": {"a": [5, {}, {"hooks": 5}, {"hooks": [5, {}, {"command": ["sh"]}]}]}},
    ):
        assert kit.find_lines(broken) == []
    settings = {"hooks": {"a": [5, {"matcher": [1, 2], "hooks": [5, {"command": command}]}], "b": None}}
    (line,) = kit.find_lines(settings)
    assert (line.event, line.index, line.position, line.mode) == ("a", 1, 1, "gate")
