"""Doctor: the settings of every client, the registered commands run for real, a line for each thing that is wrong."""
from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from helper import IS_WINDOWS, KIT, NOW, PYTHON, REPO, load_kit, slashed
from test_windows import PASS_ON, make_program

PLAIN = slashed(PYTHON)  # as the installer writes it


def register(project, agent="claude", file=".claude/settings.json", python=PLAIN, path=None, **more):
    """What the installer writes, by the same table."""
    kit = load_kit()
    path = path or kit.kit_path(agent) or "'%s'" % project.path(".claude/hooks/ctx_hooks.py").replace("'", "'\"'\"'")
    project.write(file, json.dumps({"hooks": kit.plan_hooks(agent, python, path), **more}))


@pytest.fixture
def installed(project):
    """The project with the kit beside its registrations."""
    os.makedirs(project.path(".claude/hooks"))
    shutil.copy(KIT, project.path(".claude/hooks/ctx_hooks.py"))
    register(project)
    return project


def doctor(project, *words, **env):
    """(exit code, text) of this kit's doctor, in a fork: what matters is what is registered."""
    done = project.ask("doctor", *words, LC_ALL="C.UTF-8", **env)
    assert done.err == b""
    return done.rc, done.out.decode("utf-8")


def own_doctor(project, **env):
    """The same of the copy in the project, as a person runs it: the file itself matters."""
    argv = [PYTHON, project.path(".claude/hooks/ctx_hooks.py"), "doctor"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=project.root,
                          env=project.environment(env), timeout=120)
    assert done.stderr == b""
    return done.returncode, done.stdout.decode("utf-8").replace("\r\n", "\n")


def lines_with(text, level):
    return [line for line in text.splitlines() if line.startswith(level + " ")]


def said(text, level, part):
    return any(part in line for line in lines_with(text, level))


def quick(project, **env):
    """The findings without any trial run: what is registered is looked at, and nothing started."""
    kit = load_kit()
    environment = project.environment(env)
    ctx = project.ctx(1.8e9) if os.path.isdir(project.path(".context")) else None
    files = {agent: kit.read_registrations(agent, project.root, environment) for agent in kit.DIALECTS}
    found = [finding for agent in files for finding in kit._check_agent(agent, files[agent], environment)]
    found += kit._check_places(files, project.root, project.root, environment)
    found += kit._check_codex(files["codex"], project.root, environment)
    return "\n".join("%-6s%s" % finding for finding in found + list(kit.check_project(ctx) if ctx else []))


# --- what is registered runs


def test_a_fresh_install_has_nothing_to_mend(installed):
    code, text = own_doctor(installed, LC_ALL="C.UTF-8")
    assert (code, lines_with(text, "FAIL"), lines_with(text, "warn")) == (0, [], []), text
    assert re.search(r"ok +interpreter .*: Python 3[.0-9]+, a hook takes [0-9]+ ms\n", text), text
    assert said(text, "ok", "Claude Code: registered (project)") and said(text, "hint", "--allow-handoff")


def test_a_hook_that_fails_is_told_with_what_it_says_last(installed, kit, monkeypatch):
    monkeypatch.setattr(kit, "run_hook", lambda *_: (0.01, 1, b"", "Traceback\nKeyError: 'hook_main'\n"))
    found = kit._try_hook(PLAIN, KIT, installed.root)
    assert found[0] == "FAIL" and "a hook fails with %s: KeyError: 'hook_main' → " % PLAIN in found[1]


def test_bytecode_that_cannot_be_kept_is_named(installed):
    """Every hook would compile the file anew."""
    cache = installed.write("../blocked", "")
    _, text = doctor(installed, XDG_CACHE_HOME=cache, LOCALAPPDATA=cache)
    assert said(text, "warn", "check the owner of " + slashed(cache)), text


def test_bytecode_is_no_matter_where_no_hook_could_run(installed):
    register(installed, python="/nowhere/python3")
    _, text = doctor(installed, XDG_CACHE_HOME=installed.path("../new"), LOCALAPPDATA=installed.path("../new"))
    assert said(text, "FAIL", "there is no interpreter /nowhere/python3") and "cannot be kept" not in text, text


def test_the_trial_leaves_no_trace_in_the_project(installed):
    before = installed.tree()
    doctor(installed)
    after = installed.tree()
    assert [name for name in after if before.get(name, "new") != after[name] and ".cache" not in name and "home/AppData" not in name] == []


def test_findings_come_as_json_too(installed):
    code, text = doctor(installed, "--json")
    findings = json.loads(text)
    assert code == 0 and {"ok"} <= {finding["level"] for finding in findings}, text
    assert all(set(finding) == {"level", "text"} for finding in findings)


def test_every_finding_that_is_not_fine_says_what_to_do(installed):
    installed.write(".contextrc", "bogus: 1\nallow_outside: true\n")
    installed.write(".claude/settings.local.json", '{"disableAllHooks": true}')
    _, text = doctor(installed)
    bad = lines_with(text, "warn") + lines_with(text, "FAIL") + lines_with(text, "hint")
    assert len(bad) > 3 and all(" → " in line for line in bad), bad
    assert any("allow_outside" in line and "it is ignored" in line for line in bad)


def test_a_dropped_file_gets_settings_ready_to_paste(project):
    os.makedirs(project.path(".claude/hooks"))
    shutil.copy(KIT, project.path(".claude/hooks"))
    code, text = own_doctor(project)
    assert code == 1 and "no hook of this kit is registered" in text
    project.write(".claude/settings.json", text[text.index("{"):])
    make_program(project.write("../bin/x", "")[:-1] + "py", PASS_ON)  # what the snippet names on Windows
    code, text = own_doctor(project, PATH=os.pathsep.join([os.path.dirname(PYTHON), project.base + "/bin", project.env["PATH"]]))
    assert (code, lines_with(text, "FAIL")) == (0, []), text


def test_the_snippet_has_the_events_of_hooks_json_for_a_project(kit):
    with open(os.path.join(REPO, "hooks.json"), encoding="utf-8") as source:
        wanted = json.load(source)["hooks"]
    (level, text), = kit._check_agent("claude", [], {})
    hooks = json.loads(text.partition("\n\n")[2])["hooks"]
    ours = ("python3", kit.kit_path("claude"))
    if IS_WINDOWS:
        ours = ("py -3", "CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py", kit.WINDOWS_START)
    assert level == "FAIL" and set(hooks) == set(wanted) and hooks == kit.plan_hooks("claude", *ours)


# --- what is not run


def plant(project, text: str) -> str:
    """Something in place of the kit that leaves a mark when anybody runs it."""
    mark = os.path.join(project.base, "ran")
    project.write(".claude/hooks/ctx_hooks.py", text % mark)
    return mark


def test_a_file_that_this_kit_does_not_know_is_not_run(installed):
    mark = plant(installed, "open(%r, 'w')\ndef hook_main(args): pass\n")
    code, text = doctor(installed)
    assert code == 1 and said(text, "FAIL", "is no release that this kit knows") and not os.path.exists(mark)


@pytest.mark.parametrize("command", [
    "%s; touch '%%s'", "touch '%%s'; %s", "%s && touch '%%s'", "touch '%%s' & %s"])
def test_a_command_that_does_more_is_not_run(installed, kit, command):
    mark = os.path.join(installed.base, "ran")
    ours = kit.format_command("gate", "claude", PYTHON, kit.kit_path("claude"))
    strange = {"PreToolUse": [{"hooks": [{"type": "command", "command": (command % ours.replace("%", "%%")) % mark}]}]}
    installed.write(".claude/settings.json", json.dumps({"hooks": strange}))
    code, text = doctor(installed)
    assert code == 1 and not os.path.exists(mark)


def test_a_command_of_an_older_release_is_named_and_not_run(installed):
    old = '"%s" -I -S "$CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py" gate || exit 0' % PYTHON
    installed.write(".claude/settings.json", json.dumps({"hooks": {"PreToolUse": [{"hooks": [{"command": old}]}]}}))
    code, text = doctor(installed)
    assert code == 1 and said(text, "warn", "PreToolUse: not tried, not of this release"), text


def test_a_known_older_release_and_a_checkout_with_crlf_are_known(kit, tmp_path):
    path = tmp_path / "ctx_hooks.py"
    with open(KIT, "rb") as source:
        path.write_bytes(source.read().replace(b"\n", b"\r\n"))
    assert kit.file_digest(str(path)) == kit.file_digest(KIT)
    assert all(len(digest) == 64 for digest in kit.KNOWN_RELEASES)


# --- the interpreter


SYSTEM = os.path.join(os.environ["SYSTEMROOT"], "System32") if IS_WINDOWS else "/usr/bin:/bin"


def programs(project, **codes) -> str:
    """A folder of small programs, as an entry of PATH."""
    folder = os.path.join(project.base, "bin")
    os.makedirs(folder, exist_ok=True)
    for name, code in codes.items():
        make_program(os.path.join(folder, name), code)
    return folder


def test_an_interpreter_that_the_project_brings_along_is_not_run(installed):
    sprung = os.path.join(installed.base, "sprung")
    os.mkdir(installed.path("bin"))
    path = make_program(installed.path("bin/python3"), "open(%r, 'w').close()" % sprung)
    register(installed, python="'%s'" % path.replace("'", "'\"'\"'"))
    code, text = doctor(installed)
    assert code == 1 and not os.path.exists(sprung), text


@pytest.mark.parametrize("python, why", [
    ("/nowhere/python3", "there is no interpreter"), ("no-such-python", "there is no interpreter"), ("./bin/python3", "there is no interpreter"),
    ("python3", "is no Python from 3.8 on (Python 2.7.18)"), ("broken", "is no Python from 3.8 on (no life in it)")])
def test_an_interpreter_that_will_not_do_fails(installed, python, why):
    folder = programs(installed, python3="print('2.7.18 /usr/bin/python2')", broken="import sys; sys.exit('no life in it')")
    register(installed, python=python)
    code, text = doctor(installed, PATH=folder + os.pathsep + SYSTEM)
    assert code == 1 and said(text, "FAIL", why), text


def folder_of_python3(project):
    """The real one; Windows has none of that name."""
    return programs(project, python3=PASS_ON) if IS_WINDOWS else os.path.dirname(PYTHON)


def test_what_lies_in_the_current_folder_is_never_the_interpreter(installed, kit):
    """Relative entries of PATH are passed over: a client is not started in the project's folder by chance."""
    mark = os.path.join(installed.base, "ran")
    os.mkdir(installed.path("bin"))
    for place in ("bin/python3", "python3", "../python3"):
        make_program(installed.path(place), "open(%r, 'w').close()" % mark)
    for python, level, part in (("python3", "ok", "interpreter "), ("../python3", "FAIL", "there is no interpreter ../python3 outside the project")):
        register(installed, python=python)
        _, text = doctor(installed, PATH=os.pathsep.join(["", ".", "bin", "..", folder_of_python3(installed)]))
        assert said(text, level, part) and not os.path.exists(mark), text


@pytest.mark.parametrize("named, real", [("bin/python3", "../real/python3"), ("../real/python3", "bin/python3")])
def test_an_interpreter_behind_a_link_into_or_out_of_the_project_is_not_run(installed, named, real):
    sprung = os.path.join(installed.base, "sprung")
    for folder in ("bin", "../real"):
        os.mkdir(installed.path(folder))
    make_program(installed.path(real), "open(%r, 'w').close()" % sprung)
    named = os.path.normpath(installed.path(named))
    os.symlink(os.path.normpath(installed.path(real)), named)
    register(installed, python=shlex.quote(named))
    code, text = doctor(installed)
    assert code == 1 and said(text, "FAIL", "there is no interpreter") and not os.path.exists(sprung), text


def test_an_interpreter_of_the_project_is_known_also_by_another_name_of_the_folder(installed, kit):
    """Its folder may hold a pyvenv.cfg, which says where the standard library is."""
    os.mkdir(installed.path("bin"))
    os.symlink(PYTHON, installed.path("bin/python3"))
    other = installed.base + "/other"
    os.symlink(installed.root, other)
    assert kit.find_python(other + "/bin/python3", installed.root)[0] == []
    assert kit.find_python(installed.path("bin/python3"), other)[0] == []


@pytest.mark.parametrize("started, first", [({}, True), ({"PYENV_DIR": "/x"}, False), ({}, False)])
def test_a_version_managers_shim_is_seen_also_when_started_through_it(installed, started, first):
    """pyenv puts the real interpreter's folder in front of PATH for what a shim starts; the client has no such folder."""
    shims = os.path.join(installed.base, "shims")
    os.makedirs(shims)
    make_program(os.path.join(shims, "python3"), PASS_ON)
    register(installed, python="python3")
    entries = [shims, folder_of_python3(installed)] if first else [folder_of_python3(installed), shims]
    _, text = doctor(installed, PATH=os.pathsep.join(entries), **started)
    assert said(text, "warn", "is a version manager's shim") == (first or bool(started)), text


# --- wrong registrations


@pytest.mark.parametrize("spoil, level, part", [
    (lambda p: p.write(".claude/settings.json", "{broken"), "FAIL", "settings.json: it is not a JSON object"),
    (lambda p: p.write(".claude/settings.local.json", '{"disableAllHooks": true}'), "FAIL", "disableAllHooks"),
    (lambda p: p.write(".claude/settings.json", "{}"), "FAIL", "no hook of this kit is registered for Claude Code"),
    (lambda p: register(p, file=".claude/settings.local.json"), "warn", "registered (local, project), so each event starts the kit more than once"),
    (lambda p: register(p, enabledPlugins={"ctx-hooks@here": True}), "warn", "registered (project, plugin), so each event starts the kit more than once"),
    (lambda p: p.write(".claude/settings.json", '{"enabledPlugins": {"ctx-hooks@m": true}}'), "ok", "registered (plugin)"),
    (lambda p: p.write(".claude/settings.json", '{"enabledPlugins": {"ctx-hooks@m": false}}'), "FAIL", "no hook of this kit"),
    (lambda p: register(p, "codex"), "FAIL", "Claude Code: SessionStart does not run `inject`"),
    (lambda p: register(p, permissions={"allow": ["Edit(/.context/handoffs/**)"]}), "ok", "Claude Code: registered"),
    (lambda p: p.write(".gitignore", "node_modules\n/.claude/\n"), "hint", "git ignores the hooks (`/.claude/` in .gitignore)"),
    (lambda p: register(p, "copilot", ".github/hooks/ctx_hooks.json"), "warn", "so each event starts the kit twice → remove "),
])
def test_registrations_are_judged(installed, spoil, level, part):
    spoil(installed)
    assert said(quick(installed), level, part), quick(installed)


def test_an_event_that_is_missing_or_runs_the_wrong_mode_is_named(installed):
    settings = installed.read_json(".claude/settings.json")
    del settings["hooks"]["SessionEnd"]
    settings["hooks"]["Stop"] = settings["hooks"]["PreToolUse"]
    installed.write(".claude/settings.json", json.dumps(settings))
    text = quick(installed)
    assert said(text, "FAIL", "SessionEnd does not run `cleanup`") and said(text, "FAIL", "Stop does not run `stop-enforce`")


def test_a_file_that_is_missing_fails(installed):
    os.remove(installed.path(".claude/hooks/ctx_hooks.py"))
    code, text = doctor(installed)
    assert code == 1 and said(text, "FAIL", "not tried, %s is not there" % installed.path(".claude/hooks/ctx_hooks.py")), text


def test_an_allowed_handoff_is_not_hinted_at(installed):
    assert "--allow-handoff" in quick(installed)
    register(installed, permissions={"allow": ["Edit(/.context/handoffs/**)"]})
    assert "--allow-handoff" not in quick(installed)


def test_private_hooks_that_git_ignores_are_as_they_should_be(installed):
    os.rename(installed.path(".claude/settings.json"), installed.path(".claude/settings.local.json"))
    installed.write(".gitignore", ".claude/\n")
    assert said(quick(installed), "ok", "registered (local)") and "git ignores" not in quick(installed)


def test_copilots_own_registration_beside_the_projects_settings_runs_twice(installed):
    register(installed, "copilot", installed.home + "/" + load_kit().DIALECTS["copilot"].user_settings)
    assert said(quick(installed), "warn", "so each event starts the kit twice → remove " + slashed(installed.home)), quick(installed)


def test_copilot_beside_the_users_own_settings_runs_once(installed):
    installed.write(".claude/settings.json", "{}")
    register(installed, file=installed.home + "/.claude/settings.json")
    register(installed, "copilot", ".github/hooks/ctx_hooks.json")
    assert said(quick(installed), "ok", "Copilot CLI: registered") and "twice" not in quick(installed)


def test_doctor_knows_that_it_runs_as_a_plugin(bare_project):
    """The client sets the variable for the plugin's own commands; --plugin-dir is in no settings."""
    assert said(quick(bare_project, CLAUDE_PLUGIN_ROOT=REPO), "ok", "Claude Code: registered (plugin)")
    assert said(quick(bare_project, CLAUDE_PLUGIN_ROOT=bare_project.tmp), "FAIL", "no hook of this kit")


def test_a_file_of_another_place_is_named_by_its_own_path(installed):
    other = installed.base + "/MY_PROJECT_DIR/ctx_hooks.py"
    register(installed, path=shlex.quote(other))
    code, text = doctor(installed)
    assert code == 1 and said(text, "FAIL", "not tried, %s is not there" % slashed(other)), text


def test_a_package_of_a_monorepo_is_told_where_the_client_would_read(installed):
    installed.write("packages/a/x", "")
    done = installed.ask("doctor", cwd=installed.path("packages/a"), LC_ALL="C.UTF-8")
    text = done.out.decode()
    assert said(text, "warn", "Claude Code started in this folder does not read") and said(text, "warn", "--scope user"), text
    register(installed, file="packages/a/.claude/settings.json")
    done = installed.ask("doctor", cwd=installed.path("packages/a"), LC_ALL="C.UTF-8")
    assert "does not read" not in done.out.decode()


def test_every_agent_is_checked_and_tried(installed, kit):
    for agent, row in kit.DIALECTS.items():
        register(installed, agent, row.settings)
    code, text = doctor(installed)
    assert code == 0 and text.count("a hook takes") == 1, text  # the same interpreter and file for all
    for row in kit.DIALECTS.values():
        assert said(text, "ok", "%s: registered (project)" % row.label), text


# --- Codex


def codex_config(project, trusted=True, hooks=True, key="{path}:{event}:0:0") -> None:
    """config.toml as Codex writes it when the person trusts the folder and the hooks."""
    path = project.path(".codex/hooks.json")
    text = '[projects."%s"]\ntrust_level = "%s"\n' % (project.root, "trusted" if trusted else "untrusted")
    for event, groups in project.read_json(".codex/hooks.json")["hooks"].items() if hooks else ():
        name = "".join("_" + c.lower() if c.isupper() else c for c in event).lstrip("_")
        hook = groups[0]["hooks"][0]
        known = {"event_name": name, "hooks": [{"async": False, "command": hook["command"], "timeout": hook["timeout"], "type": "command"}]}
        if "matcher" in groups[0]:
            known["matcher"] = groups[0]["matcher"]
        digest = hashlib.sha256(json.dumps(known, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
        text += '\n[hooks.state."%s"]\ntrusted_hash = "sha256:%s"\n' % (key.format(path=path, event=name), digest)
    os.makedirs(os.path.join(project.home, ".codex"), exist_ok=True)
    with open(os.path.join(project.home, ".codex", "config.toml"), "w", encoding="utf-8") as out:
        out.write(text)


@pytest.mark.parametrize("config, level, part", [
    ({}, "ok", "folder and hooks are trusted"), ({"trusted": False}, "warn", "the folder is not trusted"),
    ({"hooks": False}, "warn", "7 of 7 hooks are not trusted"), ({"key": "{path}:{event}:1:0"}, "warn", "7 of 7 hooks are not trusted")])
def test_codex_trust_is_known_by_its_hash(installed, config, level, part):
    register(installed, "codex", ".codex/hooks.json")
    codex_config(installed, **config)
    assert said(quick(installed), level, part), quick(installed)


def test_another_folders_trust_is_not_this_ones(installed):
    register(installed, "codex", ".codex/hooks.json")
    codex_config(installed, trusted=False)
    with open(os.path.join(installed.home, ".codex", "config.toml"), "a") as out:
        out.write('\n[projects."/other"]\ntrust_level = "trusted"\n')
    assert said(quick(installed), "warn", "the folder is not trusted")


def test_a_changed_command_is_not_trusted_any_more(installed):
    register(installed, "codex", ".codex/hooks.json")
    codex_config(installed)
    settings = installed.read_json(".codex/hooks.json")
    settings["hooks"]["Stop"][0]["hooks"][0]["timeout"] = 151
    installed.write(".codex/hooks.json", json.dumps(settings))
    assert said(quick(installed), "warn", "1 of 7 hooks are not trusted")


# --- the kit's own file


@pytest.mark.skipif(IS_WINDOWS, reason="a POSIX shell, its folders and its names")
def test_the_installer_that_is_advised_is_the_one_that_was_used(installed, kit, monkeypatch):
    """It can be pasted. A record that came with a clone names nothing below the project, and nothing of another user's."""
    monkeypatch.setattr(kit, "__file__", installed.path(".claude/hooks/ctx_hooks.py"))
    monkeypatch.chdir("/")

    def note(path):
        installed.write(".claude/hooks/.ctx_hooks/record.json", json.dumps({"source": path}))

    note(REPO)
    assert kit.installer("--force") == "python3 %s/install.py --force" % REPO[1:]
    monkeypatch.setattr(kit, "home_of", lambda env: installed.root)
    for name in ("install.py", "ctx_hooks.py"):
        installed.write("copy/" + name, "")
    note(installed.path("copy"))
    assert kit.installer().endswith("/copy/install.py'"), "the kit of all projects lies below the home folder, and so may its origin"
    monkeypatch.undo()
    monkeypatch.setattr(kit, "__file__", installed.path(".claude/hooks/ctx_hooks.py"))
    monkeypatch.chdir("/")
    for name in ("install.py", "ctx_hooks.py"):
        installed.write("sub/" + name, "evil")
        installed.write("../home/only/ctx_hooks.py", "")
    installed.write(".claude/hooks/install.py", "evil")
    for bad in (installed.path("sub"), "sub", "/nowhere", REPO + "/tests", installed.home + "/only", REPO + ";touch y", 5, "", ".",
                installed.home + "/../a project's/sub"):
        note(bad)
        assert "in your copy of ctx_hooks" in kit.installer("--force"), bad


@pytest.mark.skipif(IS_WINDOWS, reason="a folder that somebody stands in cannot go there")
def test_from_a_folder_that_is_gone_a_command_names_the_whole_path(kit, tmp_path, monkeypatch):
    """Seen from nowhere, no shorter path could be pasted."""
    monkeypatch.chdir(tmp_path)
    os.rmdir(tmp_path)
    assert kit.own_command("doctor") == "python3 %s doctor" % shlex.quote(KIT)


@pytest.mark.parametrize("name", ["ctx_hooks/__init__.py", "ctx_hooks.cpython-311-x86_64-linux-gnu.so", "ctx_hooks.pyd", "ctx_hooks.pyc",
                                  "__pycache__/ctx_hooks.cpython-311.pyc"])
def test_what_an_import_of_its_name_would_find_is_named(installed, kit, monkeypatch, name):
    installed.write(".claude/hooks/" + name, "")
    monkeypatch.setattr(kit, "__file__", installed.path(".claude/hooks/ctx_hooks.py"))
    found = "\n".join("%-6s%s" % finding for finding in kit.diagnose(None, installed.home, {}))
    assert said(found, "warn", "an import of the kit's name would find")


@pytest.mark.skipif(IS_WINDOWS, reason="a POSIX shell, its folders and its names")
def test_a_relative_cache_or_state_home_does_not_count(installed, kit, monkeypatch):
    """As the specification of these variables says: else bytecode would land below the current folder."""
    monkeypatch.setattr(kit, "read_environment", lambda names: {"HOME": installed.home, "XDG_CACHE_HOME": "relative"})
    assert kit.cache_folder() == installed.home + "/.cache/ctx_hooks"

    def state_home(**env):
        return kit.find_project(installed.root, "", env, NOW).state_home

    assert state_home(HOME="/h", XDG_STATE_HOME="x/y") == "/h/.local/state/ctx_hooks"
    assert kit.user_config_path({"HOME": "/h", "XDG_CONFIG_HOME": "."}) == "/h/.config/ctx_hooks/contextrc"
    assert state_home(XDG_STATE_HOME="x") == state_home(HOME="rel") == ""


# --- the project


TROUBLES = [
    (".contextrc", "gate:\n  mode: loud\n", "line 2, column 3: `gate.mode` wants one of directive, content, off"),
    (".contextrc", "allow_outside: true\n", "`allow_outside` counts only in the user's own contextrc → it is ignored"),
    (".context/state/aside/x", "?", "unreadable files were set aside (1)"),
    (".context/state/errors.log", "?", "internal errors were logged"),
    (".caw/auto-state.json", "[]", "auto-state.json is not a JSON object"),
    (".caw/auto-state.json", '{"active": true, "phase": "qa", "session_id": "theirs"}', "so it is inert"),
    (".context/.gitignore", "mine\n", "signals/ state/ handoffs/"),
]


@pytest.mark.parametrize("name, content, part", TROUBLES)
def test_the_projects_own_troubles_are_warnings(project, name, content, part):
    project.write(name, content)
    assert said(quick(project), "warn", part), quick(project)


def test_a_folder_that_git_ignores_altogether_is_fine(project):
    project.write(".context/.gitignore", "*\n")
    assert "runtime files" not in quick(project)


def test_a_workflow_of_a_session_that_was_never_here_is_inert(project):
    project.write(".caw/auto-state.json", '{"active": true, "phase": "qa", "session_id": "elsewhere"}')
    assert said(quick(project), "warn", "was not started on this machine")


def test_context_files_that_say_nothing_are_hinted_at(project):
    for name in ("TASKS.md", "CONSTITUTION.md"):
        project.write(".context/" + name, "# Title\n\n- TBD\n")
    assert said(quick(project), "hint", "fill in .context/CONSTITUTION.md, .context/TASKS.md")


def test_without_a_context_folder_it_says_how_to_get_one(bare_project):
    _, text = doctor(bare_project)
    assert said(text, "warn", "mkdir .context")
    os.symlink(bare_project.home, bare_project.path(".context"))
    assert said(doctor(bare_project)[1], "FAIL", "a link that leads out")


def test_a_switched_off_kit_is_named(project):
    project.ask("pause")
    _, text = doctor(project, CTX_HOOKS_DISABLE="1")
    assert said(text, "warn", "CTX_HOOKS_DISABLE is set") and said(text, "warn", "the hooks are paused")


def test_a_hung_program_is_ended_with_its_children(kit, tmp_path):
    last_s = 15 if IS_WINDOWS else 100  # Wine's taskkill ends no tree, so there the child has to end by itself
    code = ("import subprocess, sys; print('early', flush=True); "
            "subprocess.call([sys.executable, '-c', 'import time; time.sleep(%d)'])" % last_s)
    took_s, code, out, err = kit.run_timed([PYTHON, "-I", "-S", "-c", code], b"", str(tmp_path), None, 5 if IS_WINDOWS else 1)
    assert (code, out.split()) == ((1, []) if IS_WINDOWS else (-9, [b"early"])) and "no end after" in err and took_s < 30


@pytest.mark.parametrize("word, meant", [("gate.moed", "gate.mode"), ("handof.threshold", "handoff.threshold"), ("startup.filse", "startup.files")])
def test_a_mistyped_setting_is_told_with_the_one_that_was_meant(kit, project, word, meant):
    project.write(".contextrc", word + ": 1\nnonsense: 1\n")
    told = [text for _, text in kit.check_settings(project.ctx(NOW))]
    assert "line 1, column 1: unknown setting `%s`; did you mean `%s`?" % (word, meant) in told[0] and "did you mean" not in told[1]


@pytest.mark.parametrize("word, meant", [
    ("statsu", "status"), ("stats", "status"), ("status", "status"), ("doctr", "doctor"), ("dcotor", "doctor"), ("xstatus", "status"),
    ("st", ""), ("", ""), ("wrap2", "wrap"), ("warp", "wrap"), ("wrqp", "wrap"), ("pasue", "pause"), ("banana", ""), ("statuslines", "")])
def test_a_mistyped_word_is_one_that_is_nearly_the_same(kit, word, meant):
    assert kit.did_you_mean(word, ["status", "doctor", "wrap", "pause"], "", "%s") == meant
