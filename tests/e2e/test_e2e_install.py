"""Installed as people do it, as a plugin, broken, switched off, and taken out again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agents import FULL, NEAR, bash, edit
from stub_model import Turn

REPO = Path(__file__).resolve().parents[2]
SHIPPED = (".claude-plugin", "hooks.json", "ctx_hooks.py", "install.py", "README.md", "LICENSE")
GATE = "STOP. Read your context files"
KIT = ".claude/hooks/ctx_hooks.py"
SETTINGS = ".claude/settings.json"


def said(world, text):
    return [request.news().count(text) for request in world.stub.of("main")]


def tree(world):
    files = [path for path in world.project.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(world.project)): path.read_bytes() for path in files}


# ---------------------------------------------------------------------------
# install and uninstall
# ---------------------------------------------------------------------------


def test_the_users_own_hooks_and_settings_survive_install_use_and_uninstall(world):
    says_hello = {"type": "command", "command": "echo own-hook-says-hello"}
    own = {"hooks": {"UserPromptSubmit": [{"hooks": [says_hello]}]}, "env": {"A": "b"}}
    world.write(SETTINGS, json.dumps(own, indent=4) + "\n")
    world.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    before = tree(world)
    world.install()
    world.stub.script(bash("echo a"), bash("echo b"), "done", bash("echo c"), "done")
    world.run("work")
    assert "own-hook-says-hello" in world.stub.of("main")[0].news() and said(world, GATE) == [0, 1, 0]
    world.install("--uninstall")
    ran = len(world.emitted())
    world.run("work")
    assert sum(said(world, GATE)) == 1 and len(world.emitted()) == ran
    after = tree(world)
    assert {name: after.get(name) for name in before} == before
    assert [name for name in after if name not in before and not name.startswith(".context/")] == []
    assert not list(world.home.glob(".local/state/ctx_hooks/*/session-*")) and world.left_behind() == []


def test_git_sees_only_what_a_person_would_commit(kit):
    kit.stub.script(edit(kit, "one.py", "x = 1\n", tokens=FULL), bash("echo b", tokens=FULL), "done", "noted")
    kit.run("work", "next")
    assert kit.handoffs() and kit.git("status", "--porcelain", "-uall") == "?? one.py"


def test_a_project_path_with_spaces_and_quotes_works(kit):
    odd = kit.root / 'it\'s a "project" $HOME é'
    kit.project.rename(odd)
    kit.project = odd
    kit.stub.script(bash("echo a"), "done")
    kit.run("work")
    assert said(kit, GATE) == [0, 1]


# ---------------------------------------------------------------------------
# one kit speaks
# ---------------------------------------------------------------------------


@pytest.fixture
def clone(world):
    """The repository as somebody has cloned it, beside the project."""
    target = world.root / "a clone"
    target.mkdir()
    for name in filter(lambda name: (REPO / name).exists(), SHIPPED):
        source = REPO / name
        shutil.copytree(source, target / name) if source.is_dir() else shutil.copy(source, target / name)
    return target


@pytest.fixture
def plugin(world, clone):
    """Installed with the client's own commands."""
    world.command(world.program, "plugin", "marketplace", "add", clone)
    world.command(world.program, "plugin", "install", "ctx-hooks@ctx-hooks")
    world.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    return world


def work_with_signal(world):
    world.leave_handoff("# Goal\nThe parser knows quotes.\n")
    world.signal("Code freeze today.")
    turns = [bash("echo %d" % n, tokens=NEAR) for n in range(3)] + [
        bash("echo x", tokens=FULL),
        bash("echo y", tokens=FULL),
    ]
    world.stub.script(*turns, Turn("done", tokens=FULL))
    session = world.run("work")
    for text in ("Code freeze today.", GATE, "The parser knows quotes.", "Context: 83% full"):
        assert sum(said(world, text)) == 1, (text, said(world, text))
    assert max(said(world, "Write a handoff for the next session")) == 1
    return session


def test_a_plugin_alone_does_everything_and_writes_nothing_into_dot_claude(plugin):
    work_with_signal(plugin)
    assert plugin.files(".claude/**/*") == []


def test_a_plugin_beside_the_projects_own_kit_stays_silent(plugin):
    plugin.install()
    session = work_with_signal(plugin)
    assert sum("asked the agent" in line for line in session.notices()) == 1


def test_a_kit_of_the_user_beside_the_projects_own_stays_silent(kit):
    kit.install("--scope", "user", "--force")
    work_with_signal(kit)


def test_the_repository_is_a_valid_plugin_and_its_commands_reach_the_model(plugin, clone):
    said_of_it = plugin.command(plugin.program, "plugin", "validate", "--strict", clone).stdout
    assert "Validation passed" in said_of_it
    plugin.stub.script(otherwise=Turn("shown"))
    plugin.run("/ctx-hooks:status", "/ctx-hooks:doctor")
    assert all("ctx_hooks" in request.news() for request in plugin.stub.of("main"))


# ---------------------------------------------------------------------------
# broken or switched off: the client goes on undisturbed
# ---------------------------------------------------------------------------


def work_undisturbed(world, **extra):
    """Two prompts, a call that works and one that fails; everything must come through, and no hook complain."""
    world.stub.script(bash("echo tool-result"), bash("echo wrong >&2; false"), "the answer", "the second answer")
    with world.session(**extra) as session:
        assert session.prompt("first prompt")["result"] == "the answer"
        assert session.prompt("second prompt")["result"] == "the second answer"
    news = [request.news() for request in world.stub.of("main")]
    assert "tool-result" in news[1] and "wrong" in news[2] and "second prompt" in news[3]
    assert session.process.returncode == 0 and not world.stub.ran_out
    hooks = [row["attachment"] for row in world.transcripts() if "hookEvent" in row.get("attachment", {})]
    complaints = [
        row for row in hooks if row["type"] not in ("hook_success", "hook_additional_context", "hook_system_message")
    ]
    assert complaints == []


def break_python(kit):
    (kit.cache / "python3").unlink()
    (kit.cache / "python3").write_text("#!/bin/sh\nexit 2\n")
    (kit.cache / "python3").chmod(0o755)


BROKEN = {
    "the kit's file is gone": lambda kit: kit.path(KIT).unlink(),
    "a folder in its place": lambda kit: (kit.path(KIT).unlink(), kit.path(KIT).mkdir()),
    "half a file": lambda kit: kit.write(KIT, kit.read(KIT)[:20_000]),
    "a merge conflict in it": lambda kit: kit.write(
        KIT, kit.read(KIT).replace("import json", "<<<<<<< HEAD\nimport json")
    ),
    "CRLF": lambda kit: kit.path(KIT).write_bytes(kit.path(KIT).read_bytes().replace(b"\n", b"\r\n")),
    "an interpreter that fails": break_python,
    "settings that the client cannot read": lambda kit: kit.write(SETTINGS, kit.read(SETTINGS) + ","),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_kit_disturbs_nobody(kit, how):
    BROKEN[how](kit)
    work_undisturbed(kit)
    assert kit.emitted() == []
    (kit.root / "errors").unlink(missing_ok=True)  # Python's own complaint about a broken file


@pytest.mark.parametrize("name", ["signals", "handoffs", "monitor-state.json"])
def test_a_runtime_path_that_is_something_else_disturbs_nobody(kit, name):
    target = kit.path(".context") / name
    target.mkdir() if target.suffix else target.write_text("a file where a folder belongs\n")
    work_undisturbed(kit)
    assert sum(said(kit, GATE)) == 1


def test_switched_off_nothing_is_said_or_left(kit):
    work_undisturbed(kit, CTX_HOOKS_DISABLE="1")
    kit.ctx("pause")
    work_undisturbed(kit)
    assert kit.emitted() == [] and kit.left_behind() == []
    kit.ctx("resume")
    kit.stub.script(bash("echo a"), "done")
    kit.run("work")
    assert sum(said(kit, GATE)) == 1


def test_a_context_folder_made_in_the_middle_of_a_session_counts_from_then_on(world):
    world.install()
    world.stub.script(edit(world, "one.py", "x = 1\n"), bash("mkdir .context"), edit(world, "two.py", "x = 1\n"), "done")
    session = world.run("Never push to main.", "And now?")
    text = world.handoffs()[session.id + ".md"]
    assert "> Never push to main." in text and "one.py" in text and "two.py" in text and "And now?" in text


def test_a_context_folder_that_goes_away_in_the_middle_is_no_error(kit):
    kit.stub.script(bash("echo a"), bash("rm -r .context"), edit(kit, "two.py", "x = 1\n"), "done")
    kit.run("work", "next")
    assert not kit.path(".context").exists()


def test_state_of_version_0_2_goes_and_its_waiting_handoff_is_delivered(kit):
    name = "0f0f0f0f-1111-2222-3333-444444444444.md"
    kit.leave_handoff("# Goal\nThe parser knows quotes.\n", name)
    row = {"file": ".context/handoffs/" + name, "at": "2026-01-01T10:00:00Z"}
    kit.write(".context/state/handoffs.json", json.dumps({"version": 1, "handoffs": {name[:-3]: row}}))
    kit.write(".context/state/session-x.json", "{}")
    kit.write(".context/metrics.json", "{}")
    kit.write(".context/events.jsonl", "{}\n")
    kit.stub.script("hello")
    kit.run("work")
    assert sum(said(kit, "The parser knows quotes.")) == 1
    assert kit.files(".context/state/*") == [] and kit.files(".context/*.json*") == []
