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
    assert kit.read_head(world.root) == ("", "")
    world.git("feature/x", ONE)
    assert kit.read_head(world.root) == ("feature/x", "a" * 10)
    assert kit.read_head(world.path("deep", "inside")) == ("feature/x", "a" * 10)
    assert kit.git_folder(world.root) == world.path(".git")


def test_a_branch_without_a_commit_has_none(world):
    world.write(".git/HEAD", "ref: refs/heads/main\n")
    assert kit.read_head(world.root) == ("main", "")


def test_a_branch_may_be_packed(world):
    world.write(".git/HEAD", "ref: refs/heads/main\n")
    world.write(".git/packed-refs", "# pack-refs\n%s refs/heads/main2\n%s refs/heads/main\n" % (TWO, ONE))
    assert kit.read_head(world.root) == ("main", "a" * 10)


def test_a_detached_head_is_a_commit(world):
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
    assert kit.git_folder(world.root) == main + "/worktrees/w"


@pytest.mark.parametrize(
    "head",
    [b"", b"ref: refs/heads/.invalid\n", b"nonsense", b"\0\xff", b"ref: ", b"ref: refs/heads/\x1b[2J\nx", b"f" * 9999],
)
def test_odd_heads_are_no_error(world, head):
    world.write(".git/HEAD", head)
    branch, commit = kit.read_head(world.root)
    assert "\x1b" not in branch and "\n" not in branch and len(branch) <= 100


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_only_commits_count_as_moves_of_head(world):
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]

    def git(*words):
        subprocess.run(["git", *who, *words], cwd=world.root, check=True, env=world.env, capture_output=True)
        return kit.read_head(world.root)[1]

    git("init", "-q", "-b", "main")
    commits = [git("commit", "-q", "--allow-empty", "-m", "number %d" % number) for number in range(3)]
    assert kit.count_commits(world.root, commits[0]) == 2
    assert kit.count_commits(world.root, "") == 3
    assert git("reset", "-q", "--hard", "HEAD~1") == commits[1]
    assert kit.count_commits(world.root, commits[2]) == 0
    git("commit", "-q", "--allow-empty", "--amend", "-m", "amended")
    assert kit.count_commits(world.root, commits[1]) == 0
    assert kit.count_commits(world.root, "f" * 10) == 0
    os.unlink(world.path(".git", "logs", "HEAD"))
    assert kit.count_commits(world.root, commits[0]) == 0


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_a_handoff_has_gits_own_lines(world):
    assert kit.changed_files(world.root) == []
    subprocess.run(["git", "init", "-q"], cwd=world.root, check=True, env=world.env)
    for number in range(40):
        world.write("f%02d.py" % number, "x")
    assert len(kit.changed_files(world.root)) == kit.CHANGED_LIMIT
    world.worked("s1")
    assert "## Uncommitted changes (git status)\n\n    ?? " in world.read_handoff("s1")


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_asking_git_runs_nothing_of_the_project(world):
    hook = world.write("evil.sh", "#!/bin/sh\ntouch pwned\n")
    os.chmod(hook, 0o755)
    for command in (["init", "-q"], ["config", "core.fsmonitor", hook]):
        subprocess.run(["git", *command], cwd=world.root, check=True, env=world.env)
    assert "?? evil.sh" in kit.changed_files(world.root)
    assert "evil.sh" in kit.run_git(world.root, ["ls-files", "-o"], 5)
    assert not os.path.exists(world.path("pwned")) and not os.path.exists(world.path(".git", "index"))


@of_posix
def test_our_own_files_are_no_uncommitted_changes(world):
    subprocess.run(["git", "init", "-q"], cwd=world.root, check=True, env=world.env)
    world.write(".caw/auto-state.json", "{}")
    world.write(".claude/hooks/ctx_hooks.py", "x")
    world.handoff("s0", "Goal: x")
    world.write("src/cart.py", "x")
    assert kit.changed_files(world.root) == ["?? src/"]
    subprocess.run(["git", "add", ".context/TASKS.md"], cwd=world.root, check=True, env=world.env)
    assert kit.changed_files(world.root) == [
        "A  .context/TASKS.md",
        "?? .context/CONSTITUTION.md",
        "?? src/",
    ]


@of_posix
def test_a_git_that_hangs_or_is_missing_costs_its_own_lines_only(world, monkeypatch):
    world.git()
    monkeypatch.setattr(kit, "GIT_LIMIT_S", 0.1)
    slow = world.write("slow", "#!/bin/sh\nsleep 60\n")
    os.chmod(slow, 0o755)
    for program in (slow, world.path("no such program"), ""):
        monkeypatch.setattr(kit, "find_git", lambda program=program: program)
        assert kit.changed_files(world.root) == []


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
@pytest.mark.parametrize(
    "commands, is_asked",
    [
        (["add .context/TASKS.md"], False),
        (["add -f .context"], True),
        (["add .context/TASKS.md", "update-index --index-version 4"], True),
        (["add .context/TASKS.md", "update-index --split-index"], True),
        (["init -q part", "-C part commit -q --allow-empty -m x", "add part"], True),
    ],
)
def test_git_is_asked_what_it_tracks_where_its_index_may_name_something_of_ours(world, commands, is_asked):
    who = ["-c", "user.name=x", "-c", "user.email=x@x"]
    for command in ["init -q", *commands]:
        subprocess.run(["git", *who, *command.split()], cwd=world.root, check=True, capture_output=True)
        if command == "init -q":
            assert not kit.may_track(world.root)
            world.write(".context/signals/Global/x.md", "x")
    assert kit.may_track(world.root) == is_asked


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


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
@pytest.mark.parametrize("shape", ["whole", "HEAD is a link", "objects lie elsewhere"])
def test_no_folder_of_a_clone_is_taken_for_a_repository_even_by_an_old_git(world, monkeypatch, shape):
    run = functools.partial(subprocess.run, cwd=world.root, check=True, capture_output=True)
    run(["git", "init", "-q"])
    run(["git", "init", "-q", "--bare", "trap"])
    inside = world.path("trap")
    if shape == "HEAD is a link":
        os.unlink(os.path.join(inside, "HEAD"))
        os.symlink("refs/heads/x", os.path.join(inside, "HEAD"))
    elif shape == "objects lie elsewhere":
        run(["git", "init", "-q", "--bare", "common"])
        os.rename(os.path.join(inside, "objects"), os.path.join(inside, "o"))
        world.write("trap/commondir", "../common\n")
    monkeypatch.setattr(kit, "SAFE_GIT", [])
    assert subprocess.run(["git", "rev-parse"], cwd=inside).returncode == 0  # git does take it
    assert kit.run_git(inside, ["rev-parse", "--git-dir"], 5) == ""


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
@pytest.mark.parametrize("name", ["x", "a=b"])
def test_no_filter_that_a_repositorys_own_settings_name_is_run(world, name):
    run = functools.partial(subprocess.run, cwd=world.root, check=True, capture_output=True)
    run(["git", "init", "-q"])
    world.write(".git/info/attributes", "*.txt filter=x\n")
    world.write("a.txt", "x")
    run(["git", "add", "a.txt"])
    world.write("a.txt", "y", age_s=100)  # as long as before: git has to look inside
    sign = os.path.join(world.home, "it ran")
    run(["git", "config", "filter.%s.clean" % name, "touch '%s'; cat" % sign])
    run(["git", "config", "filter.x.clean", "touch '%s'; cat" % sign])
    run(["git", "status"])
    assert os.path.exists(sign)  # the trap works
    os.unlink(sign)
    world.write("a.txt", "z", age_s=200)
    assert "AM a.txt" in kit.changed_files(world.root)
    assert not os.path.exists(sign)


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_a_git_that_cannot_name_the_filters_is_not_asked_what_changed(world, monkeypatch):
    """One before 2.26 knows no --show-scope, and a slow one is ended: then `git status` would run them."""
    subprocess.run(["git", "init", "-q"], cwd=world.root, check=True)
    world.write("a.txt", "x")
    assert kit.changed_files(world.root) == ["?? a.txt"]
    monkeypatch.setattr(kit, "FILTER_WORDS", ["config", "--no-such-option"])
    assert kit.changed_files(world.root) == []


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_objects_that_a_clone_left_out_are_not_fetched(world):
    """With blobless clones git status would use the network, by a program that .git/config names."""
    origin = os.path.join(world.home, "origin")
    git = functools.partial(subprocess.run, cwd=world.root, check=True, capture_output=True)
    git(["git", "init", "-q", origin])
    write(os.path.join(origin, "a.txt"), "line\n" * 300)
    there = ["git", "-C", origin, "-c", "user.name=a", "-c", "user.email=a@b"]
    git([*there, "add", "-A"])
    git([*there, "commit", "-qm", "x"])
    git([*there, "config", "uploadpack.allowFilter", "true"])
    clone = world.path("clone")
    git(["git", "clone", "-q", "--no-local", "--filter=blob:none", "--no-checkout", "file://" + origin, clone])
    git(["git", "-C", clone, "read-tree", "HEAD"])
    git(["git", "-C", clone, "rm", "-q", "--cached", "a.txt"])
    world.write("clone/c.txt", "line\n" * 299 + "other\n")
    git(["git", "-C", clone, "add", "c.txt"])
    sign = os.path.join(world.home, "it ran")
    git(["git", "-C", clone, "config", "remote.origin.uploadpack", "touch '%s'; git-upload-pack" % sign])
    assert kit.changed_files(clone) == ["D  a.txt", "A  c.txt"]
    assert kit.run_git(clone, ["cat-file", "-p", "HEAD:a.txt"], 5) == ""
    assert not os.path.exists(sign)
    git(["git", "-C", clone, "status"])
    assert os.path.exists(sign)  # the trap works


@pytest.mark.skipif(not shutil.which("git"), reason="no git here")
def test_git_is_asked_of_the_project_whatever_repository_the_environment_names(world, monkeypatch):
    other = os.path.join(world.home, "other")
    for folder in (world.root, other):
        subprocess.run(["git", "init", "-q", folder], check=True)
    write(os.path.join(other, "theirs.txt"), "x")
    world.write("ours.txt", "x")
    monkeypatch.setenv("GIT_DIR", os.path.join(other, ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", other)
    assert "?? ours.txt" in kit.changed_files(world.root)
