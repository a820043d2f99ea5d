"""The README: short enough to read, and every block in it does what it says."""
from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

import helper

TEXT = helper._content(os.path.join(helper.REPO, "README.md")).decode("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.M | re.S)


def blocks(kind):
    return [body for language, body in BLOCKS if language == kind]


def test_it_is_under_350_lines_and_says_everything_that_is_filled_in():
    assert TEXT.count("\n") < 350 and not re.search("@[A-Z]+@", TEXT)


def test_every_block_has_a_kind_that_is_checked_here():
    assert {language for language, _ in BLOCKS} <= {"sh", "yaml", ""}


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell's commands")
def test_the_commands_run_in_the_order_in_which_they_stand(project):
    """In a fresh project, with the repository where the README says it is."""
    copy = os.path.join(project.home, "ctx_hooks")
    os.mkdir(copy)
    for name in ("ctx_hooks.py", "install.py", "hooks.json"):
        shutil.copy(os.path.join(helper.REPO, name), copy)
    lines = [line for body in blocks("sh") for line in body.split("\n") if line.strip() and "make test" not in line]
    uninstall = [line for line in lines if "--uninstall" in line]
    folder = os.path.join(project.base, "bin")
    os.mkdir(folder)
    os.symlink(helper.PYTHON, os.path.join(folder, "python3"))
    env = dict(project.env, PATH=folder + ":" + project.env["PATH"])
    assert len(uninstall) == 1
    for line in [line for line in lines if line not in uninstall] + uninstall:
        done = subprocess.run(["/bin/sh", "-c", line], cwd=project.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, (line, done.stdout.decode())
    assert not project.exists(".claude/hooks/ctx_hooks.py") and project.exists(".context/TASKS.md")


def test_the_settings_block_is_understood(kit):
    for body in blocks("yaml"):
        values, problems = kit.parse_config(body)
        assert values and problems == []


def test_the_blocks_of_the_formats_are_read_as_they_stand(kit):
    completion, signal = blocks("")
    found = kit.parse_blocks(completion)
    assert len(found) == 1 and kit.problem_of_block(found[0], "execution", 0, kit.parse_iso("2026-02-03T10:46:00Z")) == ""
    parsed = kit.parse_signal(signal.encode(), 0.0, kit.parse_iso("2026-02-03T10:46:00Z"))
    assert (parsed.severity, parsed.ttl_s, parsed.code) == ("warning", 300, "CTX_HEALTH_85") and parsed.body.startswith("Context: 87% full")


def test_links_and_pictures_lead_to_something():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert os.path.exists(os.path.join(helper.REPO, target)), target


def test_every_make_target_it_names_exists():
    with open(os.path.join(helper.REPO, "Makefile"), encoding="utf-8") as source:
        targets = set(re.findall(r"^([a-z][a-z0-9-]*):", source.read(), re.M))
    assert set(re.findall(r"`make ([a-z0-9-]+)`", TEXT)) - targets == set()
