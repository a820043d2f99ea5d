"""`doctor`: what can keep the hooks from working, and what to do about it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

import helper
from people import ask, install


@pytest.fixture
def installed(world):
    install(world)
    return world


def kit_of(world):
    return world.path(".claude", "hooks", "ctx_hooks.py")


def examine(world, code=0, **more):
    """The page of the project's own kit, unless another one is named."""
    answer = ask(world, "doctor", **dict({"kit": kit_of(world)}, **more))
    assert answer.err == "" and answer.code == code == int("  FAIL " in answer.out), answer
    return answer.out


def change_settings(world, **values):
    path = world.path(".claude", "settings.json")
    settings = dict(json.loads(helper.read(path)), **values)
    helper.write(path, json.dumps(settings))


@pytest.mark.posix("the line is for a POSIX shell")
def test_all_is_well_after_an_installation(installed):
    page = examine(installed)
    assert "warn" not in page
    assert re.search(r"ok +Claude Code is registered in .*settings\.json", page)
    assert re.search(r"ok +the registered line runs, in \d+ ms, with /.*python3", page)
    before = helper.files_below(installed.home), helper.files_below(installed.root)
    page = examine(installed, code=1, env={"CTX_HOOKS_DISABLE": "1"})
    assert "FAIL     all hooks are silent here, by CTX_HOOKS_DISABLE" in page and "the registered line runs" in page
    assert (helper.files_below(installed.home), helper.files_below(installed.root)) == before
    assert os.listdir(installed.temp) == []


def test_without_a_registration_it_names_the_installer(world):
    page = examine(world, code=1, kit=helper.KIT)
    assert "FAIL     no client runs this kit here" in page and os.path.join(helper.REPO, "install.py") in page


def test_settings_that_silence_hooks_or_lack_an_event_are_named(installed):
    change_settings(installed, disableAllHooks=True, allowManagedHooksOnly=True)
    page = examine(installed, code=1)
    assert all("no hook of yours runs: " + key in page for key in ("disableAllHooks", "allowManagedHooksOnly"))
    hooks = json.loads(helper.read(installed.path(".claude", "settings.json")))["hooks"]
    del hooks["PreCompact"]
    change_settings(installed, hooks=hooks)
    assert re.search("FAIL +.*settings.json lacks some of our hooks", examine(installed, code=1))


@pytest.mark.posix("a path of POSIX")
def test_managed_settings_that_silence_hooks_are_named(installed):
    """They lie in a folder of the system; a copy of the kit looks elsewhere for them."""
    managed = helper.write(os.path.join(installed.home, "managed.json"), '{"allowManagedHooksOnly": true}')
    source = helper.read(helper.KIT).replace("/etc/claude-code/managed-settings.json", managed)
    helper.write(kit_of(installed), source)
    page = examine(installed, code=1)
    assert "no hook of yours runs: allowManagedHooksOnly\n           see " + managed in page


def test_a_kit_registered_shared_and_privately_is_a_warning(installed):
    install(installed, "--scope", "local")
    page = examine(installed)
    assert "warn     registered twice" in page and "--scope local --uninstall" in page


@pytest.mark.parametrize(
    "content, problem",
    [
        (helper.read(helper.KIT).replace("\n", "\r\n"), "has CRLF line ends"),
        ('#!/bin/sh\ntouch "$HOME/was-run"\n', "not tried, it is missing or another version: "),
        (None, "not tried, it is missing or another version: "),
    ],
    ids=["CRLF", "another file", "none"],
)
def test_a_file_that_is_not_this_one_is_never_run(installed, content, problem):
    os.unlink(kit_of(installed))
    if content:
        helper.write(kit_of(installed), content)
    assert re.search("FAIL +.*" + problem, examine(installed, code=1, kit=helper.KIT))
    assert not os.path.exists(os.path.join(installed.home, "was-run"))


@pytest.mark.posix("the line is for a POSIX shell")
@pytest.mark.parametrize("asks", ["the changed kit itself", "another one"])
def test_a_kit_that_a_formatter_changed_is_named_with_what_puts_it_back(installed, asks):
    helper.write(kit_of(installed), helper.read(helper.KIT).replace("'", '"', 1))
    is_itself = asks != "another one"
    page = examine(installed, code=0 if is_itself else 1, kit=kit_of(installed) if is_itself else helper.KIT)
    found = (
        r"(\S+) +.*ctx_hooks\.py was changed since it was installed, by a formatter\?\n +`.*install\.py` puts it back"
    )
    assert re.search(found, page)[1] == ("warn" if is_itself else "FAIL")
    assert ("the registered line runs" in page) == is_itself


@pytest.mark.parametrize("scope", ["local", "user"])
def test_the_command_that_puts_it_back_has_the_scope_of_its_settings(world, scope):
    install(world, "--scope", scope)
    kit = kit_of(world) if scope == "local" else os.path.join(world.home, ".claude", "hooks", "ctx_hooks.py")
    helper.write(kit, helper.read(helper.KIT) + "\n")
    assert re.search(r"`.*install\.py --scope %s` puts it back" % scope, examine(world, kit=kit))


def test_another_release_that_came_by_git_is_no_changed_kit(installed):
    text = helper.read(helper.KIT).replace('VERSION = "', 'VERSION = "9.', 1)
    helper.write(kit_of(installed), text)
    assert "by a formatter" not in examine(installed)


def test_an_interpreter_that_cannot_run_is_named(installed):
    fake = helper.write(os.path.join(installed.home, "python3"), "#!/bin/sh\necho broken >&2; exit 1\n")
    os.chmod(fake, 0o755)
    os.makedirs(installed.cache(), exist_ok=True)
    os.symlink(fake, installed.cache("python3"))
    command = 'exec "%s" "%s" "$@"\n' % (sys.executable, kit_of(installed))
    kit = helper.write(os.path.join(installed.home, "run"), command)
    assert "the registered line fails: broken" in examine(installed, code=1, kit=kit)


def test_without_a_context_folder_it_says_how_to_begin(bare_world):
    install(bare_world, "--no-context")
    page = examine(bare_world, code=1)
    assert re.search(r"FAIL     no .context folder here or above: .*\n +.*install\.py\n", page)


def test_bad_settings_come_with_line_and_column(installed):
    installed.settings("gate:\n  files: [TASKS.md]\nhandof:\n  threshold: 80\n")
    assert re.search(r"line 4, column 3: handof.threshold: unknown setting\n.*see .*\.contextrc", examine(installed))


def test_context_files_that_say_nothing_come_with_a_hint(installed):
    installed.settings("gate:\n  files: [TASKS.md]\n")
    installed.write(".context/TASKS.md", "# Heading\n")
    assert "hint     no context file says anything" in examine(installed)


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_an_ignore_list_of_the_projects_own_that_lets_git_take_our_files_is_named(installed):
    """It may have come with the clone, where nobody ran install.py, or win over git's exclude list."""
    subprocess.run(["git", "init", "-q"], cwd=installed.root, check=True)
    git = "warn     git would stage handoffs"
    assert git not in examine(installed)
    installed.write(".context/.gitignore", "*.log\n")
    assert git in examine(installed)
    install(installed)  # it names them in git's exclude list
    assert git not in examine(installed)
    installed.write(".context/.gitignore", "!/handoffs/\n")
    assert git in examine(installed)


def test_settings_with_comments_count_where_their_client_takes_them(world):
    install(world, "--agent", "gemini", "--agent", "claude")
    for folder in (".gemini", ".claude"):
        path = world.path(folder, "settings.json")
        helper.write(path, helper.read(path).replace("{", "{ // mine", 1).replace("// mine", "// mine\n", 1))
    page = examine(world, code=0)
    assert "Gemini CLI is registered" in page and "Claude Code is registered" not in page


def test_codex_wants_a_trusted_folder(world):
    install(world, "--agent", "codex")
    hint = "hint     Codex runs no hook before you trust this folder and the hooks"
    assert hint in examine(world)
    trust = '[projects."%s"]\ntrust_level = "trusted"\n' % world.root
    helper.write(os.path.join(world.home, ".codex", "config.toml"), trust)
    page = examine(world)
    assert "ok       Codex trusts this folder" in page and hint not in page


def test_a_start_folder_below_the_settings_is_named_with_where_to_start(installed):
    below = os.path.dirname(installed.write("packages/web/package.json", "{}"))
    page = examine(installed, cwd=below)
    assert re.search(
        "warn     Claude Code runs no hook if you start it here, in .*web\n +start it in .*project, or: ", page
    )
    install(installed, "--scope", "user")
    assert "if you start it here" not in examine(installed, cwd=below)


@pytest.mark.posix("a file in the place of a folder")
def test_a_state_folder_that_cannot_be_written_is_a_failure(installed):
    helper.write(os.path.join(installed.home, "a file"), "")
    page = examine(installed, code=1, env={"XDG_STATE_HOME": os.path.join(installed.home, "a file")})
    assert "so the hooks stay silent\n           check its owner and permissions" in page
    assert "FAIL     there is no home folder" in examine(installed, code=1, env={"HOME": "not/absolute"})


@pytest.mark.posix("the line is for a POSIX shell")
@pytest.mark.parametrize("before", ["touch %s\n/bin/", "`touch %s`/bin/", "touch %s /bin/"])
def test_nothing_is_run_that_a_clone_put_before_the_line(installed, before):
    ran = os.path.join(installed.home, "ran")
    text = helper.read(installed.path(".claude", "settings.json"))
    text = text.replace('"sh ', json.dumps(before % ran)[:-1] + "sh ")
    change_settings(installed, **json.loads(text))
    ask(installed, "doctor", kit=kit_of(installed))
    assert not os.path.exists(ran)
