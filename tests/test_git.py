"""Git: branch and commit by files, what is changed by `git status`."""
from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from helper import kit, write

ONE, TWO = "a" * 40, "b" * 40
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="no git here")


def test_branch_and_short_commit(world):
    world.git("feature/x", ONE)
    assert kit.read_head(world.root) == ("feature/x", "a" * 10)
    assert kit.read_head(world.path("deep", "inside")) == ("feature/x", "a" * 10)
    assert kit.head_file(world.root) == world.path(".git", "HEAD")


def test_a_branch_may_be_packed_or_without_a_commit_and_a_detached_head_is_a_commit(world):
    world.write(".git/HEAD", "ref: refs/heads/main\n")
    assert kit.read_head(world.root) == ("main", "")
    world.write(".git/packed-refs", "# pack-refs\n%s refs/heads/main2\n%s refs/heads/main\n" % (TWO, ONE))
    assert kit.read_head(world.root) == ("main", "a" * 10)
    world.write(".git/HEAD", TWO + "\n")
    assert kit.read_head(world.root) == ("commit " + "b" * 10, "b" * 10)


@pytest.mark.posix("paths of POSIX")
def test_a_worktree(world, tmp_path):
    main = str(tmp_path / "main" / ".git")
    write(main + "/worktrees/w/HEAD", "ref: refs/heads/topic\n")
    write(main + "/worktrees/w/commondir", "../..\n")
    write(main + "/refs/heads/topic", ONE + "\n")
    world.write(".git", "gitdir: %s/worktrees/w\n" % main)
    assert kit.read_head(world.root) == ("topic", "a" * 10)
    assert kit.head_file(world.root) == main + "/worktrees/w/HEAD"


@pytest.mark.parametrize("head", [b"", b"nonsense", b"\0\xff", b"ref: ", b"ref: refs/heads/\x1b[2J\nx", b"f" * 9999])
def test_odd_heads_are_no_error(world, head):
    world.write(".git/HEAD", head)
    branch, commit = kit.read_head(world.root)
    assert "\x1b" not in branch and "\n" not in branch and len(branch) <= 100


def test_without_git_nothing_is_said(world):
    assert kit.read_head(world.root) == ("", "")
    assert kit.changed_files(world.root) == [] and kit.head_file(world.root) == ""


def repository(world):
    env = dict(world.env, GIT_CONFIG_GLOBAL="/dev/null")
    subprocess.run(["git", "init", "-q"], cwd=world.root, check=True, env=env)


@needs_git
def test_changed_files_are_gits_own_lines(world):
    repository(world)
    for number in range(40):
        world.write("f%02d.py" % number, "x")
    lines = kit.changed_files(world.root)
    assert "?? f00.py" in lines and len(lines) == kit.CHANGED_LIMIT


@needs_git
def test_asking_git_changes_nothing_and_runs_nothing_of_the_project(world):
    repository(world)
    world.write("a.py", "x")
    hook = world.write("evil.sh", "#!/bin/sh\ntouch pwned\n")
    os.chmod(hook, 0o755)
    subprocess.run(["git", "config", "core.fsmonitor", hook], cwd=world.root, check=True, env=world.env)
    index = world.path(".git", "index")
    assert kit.changed_files(world.root)
    assert not os.path.exists(world.path("pwned")) and not os.path.exists(index)


def test_a_git_that_hangs_or_is_missing_costs_its_own_lines_only(world, monkeypatch):
    world.git()
    monkeypatch.setattr(kit, "GIT_LIMIT_S", 0.1)
    monkeypatch.setattr(kit, "GIT_STATUS", ("sleep", "60"))
    assert kit.changed_files(world.root) == []
    monkeypatch.setattr(kit, "GIT_STATUS", ("no-such-program",))
    assert kit.changed_files(world.root) == []
