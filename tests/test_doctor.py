"""`doctor`: what can keep the hooks from working, and what to do about it."""
from __future__ import annotations

import hashlib
import json
import os
import re
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


def examine(world, **more):
    """{text of a row: its level}, of the project's own kit."""
    answer = ask(world, "doctor", kit=kit_of(world), **more)
    rows = re.findall(r"^  (ok|hint|warn|FAIL) +(.*)$", answer.out, re.M)
    assert answer.err == "" and answer.code == (1 if "FAIL" in dict(rows) else 0), answer
    return answer.out


def change_settings(world, **values):
    path = world.path(".claude", "settings.json")
    settings = json.loads(helper.read(path))
    settings.update(values)
    helper.write(path, json.dumps(settings))
    return settings


@pytest.mark.posix("the line is for a POSIX shell")
def test_all_is_well_after_an_installation(installed):
    page = examine(installed)
    assert "FAIL" not in page and "warn" not in page
    assert re.search(r"ok +Claude Code is registered in .*settings\.json", page)
    assert re.search(r"ok +the registered line runs, in \d+ ms, with /.*python3", page)


def test_it_leaves_nothing_behind(installed):
    examine(installed)
    before = helper.files_below(installed.home), helper.files_below(installed.root)
    examine(installed)
    assert (helper.files_below(installed.home), helper.files_below(installed.root)) == before
    assert os.listdir(installed.temp) == []


def test_without_a_registration_it_names_the_installer(world):
    answer = ask(world, "doctor")
    assert answer.code == 1 and "FAIL     no client runs this kit here" in answer.out
    assert os.path.join(helper.REPO, "install.py") in answer.out


def test_a_registration_that_lacks_an_event_is_named(installed):
    settings = change_settings(installed)
    del settings["hooks"]["PreCompact"]
    change_settings(installed, hooks=settings["hooks"])
    assert re.search("FAIL +.*settings.json lacks hooks of ours", examine(installed))


@pytest.mark.parametrize("key", ["disableAllHooks", "allowManagedHooksOnly"])
def test_settings_that_silence_hooks_are_named(installed, key):
    change_settings(installed, **{key: True})
    assert "no hook of yours runs: " + key in examine(installed)


@pytest.mark.posix("a path of POSIX")
def test_managed_settings_that_silence_hooks_are_named(installed):
    """They lie in a folder of the system; a copy of the kit looks elsewhere for them."""
    managed = helper.write(os.path.join(installed.home, "managed.json"), '{"allowManagedHooksOnly": true}')
    source = helper.read(helper.KIT).replace("/etc/claude-code/managed-settings.json", managed)
    helper.write(kit_of(installed), source)
    page = examine(installed)
    assert "no hook of yours runs: allowManagedHooksOnly\n           see " + managed in page


def test_a_kit_registered_shared_and_privately_is_a_warning(installed):
    install(installed, "--scope", "local")
    page = examine(installed)
    assert "warn     registered twice" in page and "--scope local --uninstall" in page


def test_a_checkout_with_crlf_is_named(installed):
    content = helper.read(helper.KIT).replace("\n", "\r\n")
    helper.write(kit_of(installed), content)
    answer = ask(installed, "doctor")
    assert answer.code == 1 and "has CRLF line ends" in answer.out


def test_a_file_that_is_not_this_one_is_never_run(installed):
    helper.write(kit_of(installed), '#!/bin/sh\ntouch "$HOME/was-run"\n')
    answer = ask(installed, "doctor")
    assert answer.code == 1 and re.search(r"FAIL +not tried, it is missing or another version: .*ctx_h", answer.out)
    assert not os.path.exists(os.path.join(installed.home, "was-run"))


def test_a_kit_that_is_gone_is_named(installed):
    os.unlink(kit_of(installed))
    answer = ask(installed, "doctor")
    assert answer.code == 1 and "not tried, it is missing" in answer.out


def test_an_interpreter_that_cannot_run_is_named(installed):
    fake = helper.write(os.path.join(installed.home, "python3"), "#!/bin/sh\necho broken >&2; exit 1\n")
    os.chmod(fake, 0o755)
    os.makedirs(installed.cache(), exist_ok=True)
    os.symlink(fake, installed.cache("python3"))
    kit = helper.write(os.path.join(installed.home, "run"), 'exec "%s" "%s" "$@"\n' % (sys.executable, kit_of(installed)))
    answer = ask(installed, "doctor", kit=kit)
    assert answer.code == 1 and "the registered line fails: broken" in answer.out


def test_without_a_context_folder_it_says_how_to_begin(bare_world):
    install(bare_world)
    page = examine(bare_world)
    assert "no .context folder here or above" in page and "install.py --init" in page


def test_bad_settings_come_with_line_and_column(installed):
    installed.settings("gate:\n  files: [TASKS.md]\nhandof:\n  threshold: 80\n")
    assert re.search(r"line 3, column 1: unknown setting.*handof\n.*see .*\.contextrc", examine(installed))


def test_context_files_that_say_nothing_are_a_hint(installed):
    for name in ("CONSTITUTION.md", "TASKS.md"):
        installed.write(".context/" + name, "# Heading\n")
    assert "hint     no context file says anything" in examine(installed)


@pytest.mark.posix("the line is for a POSIX shell")
def test_switched_off_hooks_are_named(installed):
    page = examine(installed, env={"CTX_HOOKS_DISABLE": "1"})
    assert "all hooks are off, by `pause` or by CTX_HOOKS_DISABLE" in page and "the registered line runs" in page


# --- Codex


def codex_hash(event, entry):
    kept = {"event_name": event, "hooks": [dict(entry, **{"async": False})]}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_codex_wants_the_folder_and_each_hook_trusted(world):
    install(world, "--agent", "codex")
    config = os.path.join(world.home, ".codex", "config.toml")
    untrusted = "warn     Codex does not trust this folder and all its hooks yet"
    assert untrusted in examine(world)
    trust = '[projects."%s"]\ntrust_level = "trusted"\n' % world.root
    helper.write(config, trust)
    assert untrusted in examine(world)
    path = world.path(".codex", "hooks.json")
    hooks = json.loads(helper.read(path))["hooks"]
    for event, groups in hooks.items():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        mark = codex_hash(name, groups[0]["hooks"][0])
        trust += '[hooks.state."%s:%s:0:0"]\ntrusted_hash = "%s"\n' % (path, name, mark)
    helper.write(config, trust)
    assert "ok       Codex trusts the folder and the hooks" in examine(world)
