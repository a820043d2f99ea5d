"""The launch line: made to the letter, recognised to the letter, and loading exactly the file."""
from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

import helper

PYTHONS = ("python3", "/usr/bin/python3.12", "'/opt/my python/bin/python3'", "py -3")
PATHS = ('"$CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py"', "/home/u/p/.claude/hooks/ctx_hooks.py",
         "'/home/it'\"'\"'s mine/ctx_hooks.py'")


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("path", PATHS)
def test_what_is_made_is_recognised_to_the_letter(kit, python, path):
    for agent in kit.DIALECTS:
        for mode in kit.MODES:
            for form in (kit.SHELL_START, kit.WINDOWS_START):
                command = kit.format_command(mode, agent, python, path, form)
                ours = kit.parse_command(command)
                assert ours and (ours.mode, ours.agent, ours.exact) == (mode, agent, True), command
                assert not kit.parse_command(command + " ; touch x") or not kit.parse_command(command + " ; touch x").exact


EXACT = ": ctx_hooks monitor; python3 "
ODD = (  # commands that run the kit and something else, or only look like it
    EXACT + "$(touch x) ", "echo ctx_hooks.py gate", "cat ctx_hooks.py gate", "python3 other.py ctx_hooks.py gate",
    "python3 ctx_hooks.py gate && ./mine.sh", "python3 ctx_hooks.py gate; rm -rf x", "python3 ctx_hooks.py dance", "", "ctx_hooks",
    "python3 -c 'import ctx_hooks; ctx_hooks.main()' gate\nrm x", "sh -c 'python3 ctx_hooks.py gate'",
)


@pytest.mark.parametrize("command", ODD)
def test_nothing_else_is_ours(kit, command):
    assert kit.parse_command(command) is None


OLD = ('python3 -I -S -c "import gc, sys; gc.disable(); sys.path.append(sys.argv.pop()); import ctx_hooks; ctx_hooks.main()" '
       'gate "$CLAUDE_PROJECT_DIR/.claude/hooks" || exit 0')


@pytest.mark.parametrize("command", [OLD, "python3 .claude/hooks/ctx_hooks.py gate", "python3 -I /x/ctx_hooks.py gate || exit 0"])
def test_a_release_before_and_a_plain_start_are_ours_but_not_exact(kit, command):
    ours = kit.parse_command(command)
    assert (ours.mode, ours.agent, ours.exact) == ("gate", "claude", False)


@pytest.mark.parametrize("path", ['"$(touch x)/ctx_hooks.py"', '"`x`/ctx_hooks.py"', "$HOME/*/ctx_hooks.py", "a b/ctx_hooks.py"])
def test_a_path_that_a_shell_would_change_is_not_exact(kit, path):
    ours = kit.parse_command(kit.format_command("gate", "claude", "python3", path))
    assert ours is None or not ours.exact


def test_every_client_gets_its_own_names_and_units(kit):
    gemini = kit.plan_hooks("gemini", "python3", kit.kit_path("gemini"))
    assert gemini["AfterTool"][0]["hooks"][0]["timeout"] == 10_000 and "PostToolUse" not in gemini
    codex = kit.plan_hooks("codex", "python3", "/p/ctx_hooks.py")
    assert codex["SessionEnd"][0]["hooks"][0]["timeout"] == 3
    claude = kit.plan_hooks("claude", "python3", kit.PLUGIN_PATH)
    assert claude["PreCompact"][0]["matcher"] == "auto" and claude["Stop"][0]["hooks"][0]["timeout"] > 140
    for agent in kit.DIALECTS:
        assert set(kit.plan_hooks(agent, "python3", "x")) == set(kit.DIALECTS[agent].events), agent


def test_registrations_are_found_whatever_else_is_there(kit):
    settings = {"hooks": {"Stop": [{"hooks": [{"command": OLD}, {"command": "mine"}, 7, {"command": 5}]}, "x"], "Odd": "y", "No": None}}
    assert [(event, ours.mode) for event, _, ours in kit.find_registrations(settings)] == [("Stop", "gate")]
    for odd in ({}, {"hooks": []}, {"hooks": {"Stop": {}}}, {"hooks": {"Stop": [None]}}):
        assert kit.find_registrations(odd) == []


def test_a_planted_package_or_bytecode_beside_the_kit_changes_nothing(project, kit):
    """Exactly the file is loaded that a person can read."""
    folder = project.path(".claude/hooks")
    os.makedirs(folder + "/ctx_hooks")
    evil = "import os; os.system('touch %s')\n" % os.path.join(project.tmp, "evil")
    for name in ("ctx_hooks/__init__.py", "json.py", "posix.py", "gc.py", "_signal.py"):
        project.write(".claude/hooks/" + name, evil)
    project.write(".claude/hooks/ctx_hooks.py", helper._content(helper.KIT))
    project.write(".claude/hooks/__pycache__/ctx_hooks.cpython-311.pyc", b"evil")
    command = kit.format_command("gate", "claude", helper.PYTHON, kit.kit_path("claude"))
    done = subprocess.run(["/bin/sh", "-c", command], input=json.dumps(project.event("PreToolUse.Bash", session_id="s1")).encode(),
                          env=project.env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert b"STOP. Read your context files" in done.stdout and (done.returncode, done.stderr) == (0, b"")
    assert not os.path.exists(os.path.join(project.tmp, "evil"))
    cached = os.path.join(project.home, ".cache", "ctx_hooks")
    assert [name for _, _, names in os.walk(cached) for name in names if name.endswith(".pyc")], "bytecode is the user's own"


@pytest.mark.skipif(helper.IS_WINDOWS, reason="a POSIX shell, its folders and its names")
@pytest.mark.parametrize("form", ["SHELL_START", "PLUGIN_START"])
@pytest.mark.parametrize("cache, kept", [("relative", "home/.cache/ctx_hooks"), ("../x", "home/.cache/ctx_hooks"), ("", "home/.cache/ctx_hooks"),
                                         ("/own cache", "own cache/ctx_hooks")])
def test_bytecode_never_lands_below_the_current_folder(project, kit, form, cache, kept):
    project.write(".claude/hooks/ctx_hooks.py", helper._content(helper.KIT))
    command = kit.format_command("monitor", "claude", helper.PYTHON, kit.kit_path("claude"), getattr(kit, form))
    env = project.environment({"XDG_CACHE_HOME": project.base + cache if cache[:1] == "/" else cache})
    before = {name for name in project.tree() if not name.startswith(("home/", "own cache"))}
    for shell in (["/bin/sh"], ["bash"], ["busybox", "sh"], ["zsh", "-f"]):
        if shutil.which(shell[0]):
            done = subprocess.run([*shell, "-c", command], input=b"{}", env=env, cwd=project.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    names = set(project.tree())
    assert {name for name in names if not name.startswith(("home/", "own cache"))} == before
    assert any(name.startswith(kept) and name.endswith(".pyc") for name in names)


@pytest.mark.parametrize("given", ["name", "fullname=name"])
def test_a_newer_loader_that_hands_over_more_words_is_served(project, given):
    """Python 3.15 tells `source_to_code` the module's name; a TypeError there would silence every hook."""
    newer = ("from _frozen_importlib_external import SourceFileLoader as L\n"
             "L.get_code = lambda self, name: self.source_to_code(self.get_data(self.path), self.path, %s)\n" % given)
    argv = helper.hook_argv("gate")
    argv[argv.index("-c") + 1] = newer + argv[argv.index("-c") + 1]
    done = helper.run_process(argv, json.dumps(project.event("PreToolUse.Bash", session_id="s1")).encode(), project.env, project.root)
    assert "STOP. Read your context files" in done.context and done.err == b""
