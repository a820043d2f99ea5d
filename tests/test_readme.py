"""The README: every block in it does what it says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess

import pytest

import helper
from people import person_env, tell

TEXT = helper.read(os.path.join(helper.REPO, "README.md"))
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.M | re.S)


def blocks(kind):
    return [body for language, body in BLOCKS if language == kind]


def section(title):
    return TEXT.partition("## " + title)[2].partition("\n## ")[0]


def test_every_figure_is_there():
    assert re.findall("@[A-Z0-9]+@", TEXT) == []  # where figures of make bench, e2e and e2e-agents belong


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
    assert helper.files_below(bare_world.root) == []
    left = [
        name
        for name in helper.files_below(bare_world.home)
        if not name.startswith(("ctx_hooks", ".cache/ctx_hooks/bytecode"))
    ]
    assert left == []


def test_the_sizes_that_it_names_are_about_those_of_the_file():
    source = helper.read(helper.KIT)
    launcher = re.search(r'(?s)\n""":".*?\n":"""\n', source).group()
    for named, size in (
        (r"some (\d+) KB", len(source.encode()) / 1000),
        (r"some (\d+) lines of shell", launcher.count("\n")),
    ):
        assert float(re.search(named, TEXT)[1]) == pytest.approx(size, rel=0.1)


def command(start):
    """The words of the command in the README that begins so."""
    (line,) = re.findall(r"^\.claude/hooks/ctx_hooks\.py (%s.*)$" % start, TEXT, re.M)
    return shlex.split(line)


def test_a_block_of_output_is_what_the_agent_gets_of_a_signal(world, session):
    tell(world, *command('signal "CI: 3'))
    assert session.look().text + "\n" == blocks("")[1]


@pytest.mark.posix("its check is for a POSIX shell")
def test_blocks_of_output_are_what_agent_and_person_get_of_a_check(world, session):
    _, _, to_agent, to_person = blocks("")
    tell(world, *command("auto start"))
    session.prompt("Go.")
    session.say("Done.")
    fails = session.stop()
    world.write("login.html", "")
    session.say("Done.")
    told = [fails.person, re.sub(r"\d+ \w+$", "14 min", session.stop().person)]
    assert (fails.text + "\n", told) == (to_agent, to_person.splitlines())


def test_the_lines_to_a_person_are_those_that_they_see(kit, session):
    shown = section("What you and the agent see")
    full = session.look(tokens=142_000).person
    assert full.startswith("ctx: context 85% full, asked") and "`%s`" % full in shown
    assert "`%s`" % session.look(tokens=159_000).person in shown
    assert "`%s`" % kit.WRITTEN in shown and "`%s`" % kit.WHOLE_DELIVERED % ("14:02", 44) in shown


def test_the_settings_and_the_signal_are_understood(kit, tmp_path):
    for body in blocks("yaml"):
        settings = kit.Settings()
        settings.read(body)
        assert settings.problems == []
    (body,) = blocks("signal")
    signal = kit.read_signal(helper.write(str(tmp_path / "s.md"), body), kit.parse_iso("2026-02-03T10:46:00Z"))
    assert (signal.severity, signal.ttl_s, signal.code) == ("warning", 300, "CTX_HEALTH_85")
    assert signal.body.startswith("Context: 87% full")


def test_every_setting_command_and_client_is_named(kit):
    named = re.findall(r"`([a-z_]+(?:\.[a-z_.<>]+)?)`", section("Settings"))
    assert set(kit.SETTINGS) - {name.replace("<phase>", "*") for name in named} == set()
    assert [name for name in kit.COMMANDS if "`" + name not in section("Commands")] == []
    labels = [dialect.label for dialect in kit.DIALECTS.values()]
    assert [label for label in labels if label not in section("Clients")] == []


def test_every_option_file_and_target_that_it_names_exists():
    source = helper.read(os.path.join(helper.REPO, "install.py"))
    options = re.findall(r"install\.py --([a-z-]+)", TEXT) + re.findall(r"^\| `--([a-z-]+)", TEXT, re.M)
    assert options and all("\n--%s" % name in source for name in options)
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert os.path.exists(os.path.join(helper.REPO, target)), target
    makefile = os.path.join(helper.REPO, "Makefile")
    if os.path.exists(makefile):  # only in the repository
        targets = re.findall(r"^([a-z][a-z0-9-]*):", helper.read(makefile), re.M)
        assert set(re.findall(r"`make ([a-z0-9-]+)", TEXT)) <= set(targets)
