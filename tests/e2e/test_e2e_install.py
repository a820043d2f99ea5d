"""Installed with one command; after uninstalling, the next run has no trace of us."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from stub_model import bash

REPO = Path(__file__).resolve().parents[2]
GATE = "STOP. Read your context files"


def tree(world):
    return {
        str(p.relative_to(world.project)): p.read_bytes()
        for p in world.project.rglob("*")
        if p.is_file() and ".git" not in p.parts
    }


def hook_rows(world):
    return [row for row in world.transcripts() if row.get("type") == "attachment" and "hookEvent" in row["attachment"]]


def test_after_uninstalling_the_next_run_has_no_trace_of_us(kit):
    kit.stub.script(bash("echo a"), "done")
    kit.run("work")
    assert GATE in kit.stub.of("main")[1].news() and hook_rows(kit)
    kit.install("--uninstall")
    before, said = len(hook_rows(kit)), len(kit.emitted())
    kit.stub.script(bash("echo b"), "done")
    kit.run("work")
    assert all(GATE not in r.text() for r in kit.stub.of("main")[2:])
    assert len(hook_rows(kit)) == before and len(kit.emitted()) == said
    assert kit.files(".claude/**/*") == [] and kit.left_behind() == []
    assert kit.read(".context/TASKS.md").startswith("# Tasks")


def test_the_users_own_hooks_and_settings_survive_install_use_and_uninstall(world):
    own = {
        "hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "echo own-hook-says-hello"}]}]},
        "env": {"A": "b"},
    }
    world.write(".claude/settings.json", json.dumps(own, indent=4) + "\n")
    world.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    before = tree(world)
    world.install()
    world.stub.script(bash("echo a"), "done")
    world.run("work")
    assert "own-hook-says-hello" in world.stub.of("main")[0].news() and GATE in world.stub.of("main")[1].news()
    world.install("--uninstall")
    after = tree(world)
    assert {name: after.get(name) for name in before} == before
    assert [name for name in after if name not in before and not name.startswith(".context/")] == []


def test_the_rule_for_handoffs_goes_with_the_uninstall(kit):
    before = kit.read(".claude/settings.json")
    kit.install("--allow-handoff")
    assert "Edit(/.context/handoffs/**)" in kit.json(".claude/settings.json")["permissions"]["allow"]
    kit.install("--uninstall")
    assert "Edit(/.context" not in "".join(kit.read(n) for n in kit.files(".claude/settings*.json")) and before


def test_git_status_shows_only_what_the_user_would_commit(kit):
    kit.stub.script(bash("echo a", tokens=150_000), bash("echo b", tokens=150_000), "done", "noted")
    kit.run("work", "next")
    assert kit.handoffs()
    shown = kit.command("git", "status", "--porcelain", "-uall").stdout.split("\n")
    names = {line[3:] for line in shown if line and not line[3:].startswith(".context/")}
    assert names == {".claude/hooks/ctx_hooks.py", ".claude/settings.json", "README.md"}
    context = sorted(line[3:] for line in shown if line[3:].startswith(".context/"))
    assert context == [".context/CONSTITUTION.md", ".context/DECISIONS.md", ".context/TASKS.md"]


def test_a_project_path_with_spaces_and_quotes_works(kit):
    odd = kit.root / 'it\'s a "project" $HOME é'
    kit.project.rename(odd)
    kit.project = odd
    kit.stub.script(bash("echo a"), "done")
    kit.run("work")
    assert GATE in kit.stub.of("main")[1].news()


def test_the_repository_is_a_valid_plugin(world):
    plugin = world.path("plugin")
    for name in (".claude-plugin", "hooks.json", "ctx_hooks.py", "README.md", "LICENSE"):
        source, target = REPO / name, plugin / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    done = subprocess.run([str(world.program), "plugin", "validate", "--strict", str(plugin)], env=world.environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")
