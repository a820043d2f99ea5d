"""As a plugin: installed with the client's own command from a local folder, its hooks and commands work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stub_model import bash

REPO = Path(__file__).resolve().parents[2]
SHIPPED = (".claude-plugin", "hooks.json", "ctx_hooks.py", "install.py", "README.md", "LICENSE")
GATE = "STOP. Read your context files"


@pytest.fixture
def folder(world):
    """The repository as somebody has cloned it, beside the project."""
    target = world.root / "a clone"
    target.mkdir()
    for name in SHIPPED:
        source = REPO / name
        shutil.copytree(source, target / name) if source.is_dir() else shutil.copy(source, target / name)
    return target


@pytest.fixture
def plugin(world, folder):
    world.command(world.program, "plugin", "marketplace", "add", folder)
    world.command(world.program, "plugin", "install", "ctx-hooks@ctx-hooks")
    return world


def test_the_repository_is_a_valid_plugin_and_a_valid_marketplace(world, folder):
    said = world.command(world.program, "plugin", "validate", "--strict", folder).stdout
    assert "Validation passed" in said
    (folder / ".claude-plugin/marketplace.json").unlink()
    said = world.command(world.program, "plugin", "validate", "--strict", folder).stdout
    assert "Validation passed" in said and "plugin manifest" in said


def test_an_installed_plugin_runs_its_hooks_and_writes_nothing_into_dot_claude(plugin):
    plugin.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    plugin.stub.script(bash("echo a"), "done")
    plugin.run("work")
    assert GATE in plugin.stub.of("main")[1].news()
    assert plugin.files(".claude/**/*") == []


def test_the_commands_of_the_plugin_reach_the_model(plugin):
    plugin.stub.script("created", "shown", "checked", "paused", "back")
    plugin.run("/ctx-hooks:init", "/ctx-hooks:status", "/ctx-hooks:doctor", "/ctx-hooks:pause", "/ctx-hooks:pause resume")
    assert plugin.read(".context/TASKS.md").startswith("# Tasks") and plugin.files(".claude/**/*") == []
    requests = [request.news() for request in plugin.stub.of("main")]
    expected = ("wrote .context/TASKS.md", "ctx_hooks ", "registered (plugin)", "\npaused ", "\nresumed ")
    for text, words in zip(requests, expected):
        assert words in text, text[-2000:]
    assert "ctx-hooks:pause:" not in requests[0]  # the agent is not offered to switch its own hooks off


def test_a_removed_plugin_leaves_no_hook_behind(plugin):
    plugin.command(plugin.program, "plugin", "uninstall", "ctx-hooks@ctx-hooks")
    plugin.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    plugin.stub.script(bash("echo a"), "done")
    plugin.run("work")
    assert all(GATE not in request.text() for request in plugin.stub.of("main")) and plugin.emitted() == []
