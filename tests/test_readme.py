"""The README: short, and every block in it does what it says."""
from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

import helper
from people import person_env

TEXT = helper.read(os.path.join(helper.REPO, "README.md"))
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.M | re.S)
MAKEFILE = os.path.join(helper.REPO, "Makefile")


def blocks(kind):
    return [body for language, body in BLOCKS if language == kind]


def test_it_is_under_250_lines_and_2500_words():
    assert TEXT.count("\n") < 250 and len(TEXT.split()) < 2500


def test_every_figure_is_filled_in():
    """@BENCH@, @E2E@ and @AGENTS@ stand for what make bench, e2e and e2e-agents measure."""
    assert re.findall("@[A-Z0-9]+@", TEXT) == []


def test_every_block_has_a_kind_that_is_checked_here():
    assert {language for language, _ in BLOCKS} == {"sh", "", "yaml", "signal"}


@pytest.mark.posix("lines for a POSIX shell")
def test_the_commands_run_in_their_order_in_a_fresh_project(bare_world):
    """The repository lies where the README says that it is; uninstalling comes last."""
    copy = os.path.join(bare_world.home, "ctx_hooks")
    os.mkdir(copy)
    for name in ("ctx_hooks.py", "install.py", "hooks.json"):
        shutil.copy(os.path.join(helper.REPO, name), copy)
    lines = [line for body in blocks("sh") for line in body.split("\n") if line]
    lines.sort(key=lambda line: "--uninstall" in line)
    for line in lines:
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=bare_world.root,
            env=person_env(bare_world),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, (line, done.stdout.decode())
    left = helper.files_below(bare_world.root)
    assert ".claude/hooks/ctx_hooks.py" not in left and ".context/TASKS.md" in left


def test_the_settings_are_understood(kit):
    for body in blocks("yaml"):
        settings = kit.Settings()
        settings.read(body)
        assert settings.problems == []


def test_the_signal_is_read_as_it_stands(kit):
    (body,) = blocks("signal")
    signal = kit.parse_signal(body, kit.parse_iso("2026-02-03T10:46:00Z"))
    assert (signal.severity, signal.ttl_s, signal.code) == ("warning", 300, "CTX_HEALTH_85")
    assert signal.body.startswith("Context: 87% full")


def test_every_setting_is_named(kit):
    table = TEXT.partition("## Settings")[2].partition("\n## ")[0]
    named = [name.replace("<phase>", "*") for name in re.findall(r"`([a-z_]+(?:\.[a-z_.<>]+)?)`", table)]
    assert set(kit.SETTINGS) - set(named) == set()


def test_every_command_is_named(kit):
    table = TEXT.partition("## Commands")[2].partition("\n## ")[0]
    assert all("`" + name in table for name in kit.COMMANDS)


def test_every_option_of_the_installer_that_it_names_exists():
    source = helper.read(os.path.join(helper.REPO, "install.py"))
    named = set(re.findall(r"install\.py (--[a-z-]+)", TEXT)) | set(re.findall(r"^\| `(--[a-z-]+)", TEXT, re.M))
    assert named and all('"%s"' % name[2:] in source or '"%s"' % name in source for name in named)


def test_every_client_has_its_row(kit):
    table = TEXT.partition("## Clients")[2].partition("\n## ")[0]
    assert all(dialect.label in table for dialect in kit.DIALECTS.values())


def test_the_changelog_names_this_version(kit):
    assert "**%s**" % kit.VERSION in TEXT.partition("## Changelog")[2]


def test_pictures_and_links_lead_to_something():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert os.path.exists(os.path.join(helper.REPO, target)), target


@pytest.mark.skipif(not os.path.exists(MAKEFILE), reason="only in the repository")
def test_every_make_target_that_it_names_exists():
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", helper.read(MAKEFILE), re.M))
    assert set(re.findall(r"`make ([a-z0-9-]+)", TEXT)) <= targets
