"""Doctor: the settings of every scope, the registered commands run for real, a line for each thing that is wrong."""
from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from helper import PYTHON, REPO, Project, registered_commands

OURS = registered_commands()


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    """What the real installer leaves in a project: nothing in it names the project's own path."""
    template = Project(tmp_path_factory.mktemp("installed"))
    run_installer(template)
    return template


@pytest.fixture
def installed(project, installation):
    """The project with the kit installed."""
    shutil.rmtree(project.root)
    shutil.copytree(installation.root, project.root)
    return project


def run_installer(project, *words):
    argv = [PYTHON, os.path.join(REPO, "install.py"), project.root, "--python", PYTHON, "--quiet", *words]
    subprocess.run(argv, env=project.env, check=True)


def doctor(project, *words):
    """(exit code, text) of this kit's doctor, in a fork: what matters is what is registered."""
    done = project.ask("doctor", *words)
    assert done.err == b""
    return done.rc, done.out.decode("utf-8")


def own_doctor(project, **env):
    """The same of the copy in the project, as a person runs it: the file itself matters."""
    argv = [PYTHON, project.path(".claude/hooks/ctx_hooks.py"), "doctor"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project.root,
                          env=project.environment(env), timeout=120)
    assert done.stderr == b""
    return done.returncode, done.stdout.decode("utf-8")


def lines_with(text, level):
    return [line for line in text.splitlines() if line.startswith(level)]


def test_a_fresh_install_has_nothing_to_mend(installed):
    code, text = own_doctor(installed)
    assert (code, lines_with(text, "FAIL")) == (0, []), text
    for event in OURS:
        assert any(event in line for line in text.splitlines()), text
    assert "(as installed)" in text


def test_the_trial_leaves_no_trace_in_the_project(installed):
    before = installed.tree()
    doctor(installed)
    changed = [name for name, data in installed.tree().items() if before.get(name, "new") != data]
    assert [name for name in changed if "__pycache__" not in name] == []


def test_findings_come_as_json_too(installed):
    code, text = doctor(installed, "--json")
    findings = json.loads(text)
    assert code == 0 and {"ok"} <= {finding["level"] for finding in findings}
    assert all(set(finding) == {"level", "text"} for finding in findings)


def test_a_dropped_file_gets_settings_ready_to_paste(project):
    os.makedirs(project.path(".claude/hooks"))
    shutil.copy(os.path.join(REPO, "ctx_hooks.py"), project.path(".claude/hooks"))
    code, text = own_doctor(project)
    assert code == 1 and "no hook of this kit is registered" in text
    pasted = text[text.index("{"):]
    project.write(".claude/settings.json", pasted)
    code, text = own_doctor(project, PATH=os.path.dirname(PYTHON) + os.pathsep + project.env["PATH"])
    assert (code, lines_with(text, "FAIL")) == (0, []), text


def test_the_snippet_is_hooks_json_for_a_project(kit):
    with open(os.path.join(REPO, "hooks.json"), encoding="utf-8") as source:
        text = source.read()
    wanted = text.replace("${CLAUDE_PLUGIN_ROOT:-$CLAUDE_PROJECT_DIR/.claude/hooks}", "$CLAUDE_PROJECT_DIR/.claude/hooks")
    assert json.loads(kit.settings_snippet()) == json.loads(wanted)
    assert {event: kit.mode_of_command(command) for event, command in OURS.items()} == kit.EVENTS


@pytest.mark.parametrize("spoil, said", [
    (lambda p: p.write(".claude/settings.json", "{broken"), "settings are not a JSON object"),
    (lambda p: p.write(".claude/settings.local.json", '{"disableAllHooks": true}'), "disableAllHooks"),
    (lambda p: os.remove(p.path(".claude/hooks/ctx_hooks.py")), "complains"),
    (lambda p: p.write(".claude/hooks/ctx_hooks.py", "print('noise')\ndef main(): pass\n"), "not JSON"),
])
def test_what_is_broken_fails_and_says_so(installed, spoil, said):
    spoil(installed)
    code, text = doctor(installed)
    assert code == 1
    assert any(said in line for line in lines_with(text, "FAIL")), text


def edit_settings(project, change):
    settings = project.read_json(".claude/settings.json")
    change(settings["hooks"])
    project.write(".claude/settings.json", json.dumps(settings))


def test_wrong_registrations_fail(installed):
    edit_settings(installed, lambda hooks: (hooks.pop("SessionEnd"), hooks.update(Stop=hooks["PreToolUse"])))
    code, text = doctor(installed)
    broken = "\n".join(lines_with(text, "FAIL"))
    assert code == 1 and "SessionEnd does not run `cleanup`" in broken
    assert "Stop does not run `stop-enforce`" in broken


def test_a_missing_interpreter_fails(installed):
    text = installed.read(".claude/settings.json").replace(PYTHON, "/nowhere/python3")
    installed.write(".claude/settings.json", text)
    code, text = doctor(installed)
    assert code == 1 and any("interpreter /nowhere/python3" in line for line in lines_with(text, "FAIL")), text


def test_two_scopes_are_named(installed):
    run_installer(installed, "--scope", "user")
    code, text = doctor(installed)
    assert code == 0 and any("registered more than once" in line for line in lines_with(text, "warn")), text


def enable_plugin(project):
    os.makedirs(os.path.join(project.home, ".claude"))
    with open(os.path.join(project.home, ".claude", "settings.json"), "w", encoding="utf-8") as out:
        out.write('{"enabledPlugins": {"ctx-hooks@here": true}}')


def test_a_plugin_beside_the_settings_is_named(installed):
    enable_plugin(installed)
    code, text = doctor(installed)
    assert code == 0 and any("both as a plugin" in line for line in lines_with(text, "warn")), text


def test_a_plugin_alone_needs_no_settings(project):
    enable_plugin(project)
    code, text = doctor(project)
    assert (code, lines_with(text, "FAIL")) == (0, []) and "active as a plugin" in text, text


def test_an_edited_kit_is_named(installed):
    with open(installed.path(".claude/hooks/ctx_hooks.py"), "a", encoding="utf-8") as kit_file:
        kit_file.write("# mine\n")
    code, text = own_doctor(installed)
    assert code == 0 and any("edited since" in line for line in lines_with(text, "warn")), text


TROUBLES = [
    (".contextrc", "gate:\n  mode: loud\n", "line 2, column 3: `gate.mode` wants one of directive, content, off"),
    (".context/state/aside/x", "?", "set aside"),
    (".context/state/errors.log", "?", "internal errors"),
    (".caw/auto-state.json", "[]", "auto-state.json is not a JSON object"),
    (".context/.gitignore", "mine\n", "add: signals/ state/"),
]


def test_the_projects_own_troubles_are_warnings(installed):
    for name, content, _ in TROUBLES:
        installed.write(name, content)
    code, text = doctor(installed)
    for _, _, said in TROUBLES:
        assert any(said in line for line in lines_with(text, "warn")), text
    assert code == 0


def test_a_workflow_that_nobody_works_on_is_named(project, kit):
    project.write(".caw/auto-state.json", '{"active": true, "phase": "qa", "started_at": "2020-01-01T00:00:00Z"}')
    ctx = kit.open_project(project.root)
    ctx.now = 1.8e9
    assert any("idle" in text for _, text in kit._check_project(ctx))


def test_without_a_context_folder_it_says_how_to_get_one(bare_project):
    run_installer(bare_project)
    code, text = doctor(bare_project)
    assert code == 0 and any("install.py --init" in line for line in lines_with(text, "warn")), text


def test_the_clients_own_figures_are_shown(installed):
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in installed.root)
    row = {"type": "attachment", "attachment": {"type": "hook_success", "hookEvent": "PreToolUse", "durationMs": 21,
                                                "command": OURS["PreToolUse"]}}
    path = os.path.join(installed.home, ".claude", "projects", slug, "s.jsonl")
    os.makedirs(os.path.dirname(path))
    with open(path, "w", encoding="utf-8") as out:
        out.write((json.dumps(row) + "\n") * 3 + "half a li")
    assert "the client measured PreToolUse: median 21 ms of 3" in doctor(installed)[1]


@pytest.mark.parametrize("command, mode", [
    (OURS["Stop"], "stop-enforce"),
    ("PYTHONUTF8=1 py -3 -I -S -c \"import ctx_hooks; ctx_hooks.main()\" gate /x || exit 0", "gate"),
    ("python3 .claude/hooks/ctx_hooks.py monitor", "monitor"),
    ("python3 .claude/hooks/my_ctx_hooks.py monitor", ""),
    ("echo ctx_hooks.py gate", ""),
    ("python3 ctx_hooks.py gate && rm -rf x", ""),
    ("python3 ctx_hooks.py statusline", ""),
    ("python3 'unclosed", ""),
    ("", ""),
])
def test_our_commands_are_known_by_what_they_run(kit, command, mode):
    assert kit.mode_of_command(command) == mode


def test_a_switched_off_kit_is_named(installed):
    installed.ask("pause")
    text = installed.ask("doctor", CTX_HOOKS_DISABLE="1").out.decode("utf-8")
    assert "CTX_HOOKS_DISABLE is set" in text and "the hooks are paused" in text


def test_a_plugin_that_is_switched_off_is_not_active(project, kit):
    project.write(".claude/settings.json", '{"enabledPlugins": {"ctx-hooks@m": false}}')
    found = kit.diagnose(None, project.root, {"HOME": project.home})
    assert any("no hook of this kit is registered" in text for _, text in found)
