"""Git: branch and commit by files, what is changed by `git status`."""
from __future__ import annotations

import functools
import os
import shutil
import subprocess

import pytest

from helper import IS_WINDOWS, kit, write

ONE, TWO = "a" * 40, "b" * 40
of_posix = pytest.mark.skipif(IS_WINDOWS, reason="its programs are scripts of a shell")


def test_branch_and_short_commit(world):
    assert kit.read_head(world.root) == ("", "") and kit.head_file(world.root) == ""
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


@pytest.mark.parametrize("head", [b"", b"ref: refs/heads/.invalid\n", b"nonsense", b"\0\xff", b"ref: ", b"ref: refs/heads/\x1b[2J\nx", b"f" * 9999])
def test_odd_heads_are_no_error(world, head):
    world.write(".git/HEAD", head)
    branch, commit = kit.read_head(world.root)
    assert "\x1b" not in branch and "\n" not in branch and len(branch) <= 100


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_a_handoff_has_gits_own_lines_and_asking_for_them_runs_nothing_of_the_project(world):
    assert kit.changed_files(world.root) == []
    hook = world.write("evil.sh", "#!/bin/sh\ntouch pwned\n")
    os.chmod(hook, 0o755)
    for command in (["init", "-q"], ["config", "core.fsmonitor", hook]):
        subprocess.run(["git", *command], cwd=world.root, check=True, env=world.env)
    for number in range(40):
        world.write("f%02d.py" % number, "x")
    lines = kit.changed_files(world.root)
    assert "?? f00.py" in lines and len(lines) == kit.CHANGED_LIMIT
    world.worked("s1")
    assert "## Uncommitted changes (git status)\n\n    ?? " in world.read_handoff("s1")
    assert not os.path.exists(world.path("pwned")) and not os.path.exists(world.path(".git", "index"))


@of_posix
def test_a_git_that_hangs_or_is_missing_costs_its_own_lines_only(world, monkeypatch):
    world.git()
    monkeypatch.setattr(kit, "GIT_LIMIT_S", 0.1)
    slow = world.write("slow", "#!/bin/sh\nsleep 60\n")
    os.chmod(slow, 0o755)
    for program in (slow, world.path("no such program"), ""):
        monkeypatch.setattr(kit, "find_git", lambda program=program: program)
        assert kit.changed_files(world.root) == []


TRAP = """\
[core]
	repositoryformatversion = 0
	bare = false
	worktree = ..
[filter "x"]
	clean = "touch %s; cat"
"""


@of_posix
def test_a_tracked_folder_that_looks_like_a_repository_runs_nothing(world):
    """Git takes such a folder as the repository if a client is started in it."""
    sign = os.path.join(world.home, "it ran")
    run = functools.partial(subprocess.run, cwd=world.root, check=True, capture_output=True)
    run(["git", "init", "-q"])
    world.write("trap/.gitattributes", "*.txt filter=x\n")
    run(["git", "init", "-q", "--bare", "trap/sub"])
    run(["git", "-C", "trap", "--git-dir=sub", "--work-tree=.", "add", "-f", ".gitattributes"])
    world.write("trap/sub/config", TRAP % ("'%s'" % sign))
    world.write("trap/a.txt", "x")
    run(["git", "-C", "trap", "--git-dir=sub", "--work-tree=.", "-c", "filter.x.clean=cat", "add", "a.txt"])
    world.write("trap/a.txt", "y", age_s=100)  # as long as before: git has to look inside
    inside = world.path("trap", "sub")
    subprocess.run(["git", "status"], cwd=inside, capture_output=True)
    assert os.path.exists(sign)  # the trap works
    os.unlink(sign)
    kit.changed_files(inside)
    kit.run_git(inside, ["ls-files"], 5)
    assert not os.path.exists(sign)


@of_posix
def test_no_monitor_that_a_repository_names_is_run(world):
    sign = os.path.join(world.home, "it ran")
    subprocess.run(["git", "init", "-q"], cwd=world.root, check=True)
    hook = world.write("hook", "#!/bin/sh\ntouch '%s'\n" % sign)
    os.chmod(hook, 0o755)
    subprocess.run(["git", "config", "core.fsmonitor", hook], cwd=world.root, check=True)
    assert kit.run_git(world.root, ["status"], 5)
    assert kit.run_git(world.root, ["ls-files", "-o"], 5)
    assert not os.path.exists(sign)
