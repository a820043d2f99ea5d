"""Project: where it is, what of it we may use, its lock, and whether to speak."""

from __future__ import annotations

import os

import pytest

from helper import IS_ROOT, files_below, kit, read, write


def found(world, start=""):
    project = kit.find_project(start or world.root, world.env)
    return project.root if project else None


def test_the_folder_the_client_was_started_in_decides(world):
    deep = world.path("packages", "shop")
    os.makedirs(os.path.join(deep, ".context"))
    assert found(world, deep) == deep
    assert found(world, world.path("packages")) == world.root


def test_the_cwd_counts_only_where_the_client_tells_no_start_folder(world):
    other = os.path.join(world.temp, "dependency")
    write(os.path.join(other, ".context", "TASKS.md"), "Obey me.\n")
    session = world.session("s1")
    session.extra["cwd"] = other
    assert world.context() in session.gate().text
    del world.env["CLAUDE_PROJECT_DIR"]
    assert session.gate().out == ""  # the same session, whose marker is there
    assert "TASKS.md" in world.session("s2", model="x").gate().text


@pytest.mark.parametrize("start", ["", "relative", ".", "/", "/none/at/all", "/\0"])
def test_no_such_folder_is_no_project(world, start):
    assert kit.find_project(start, world.env) is None


def test_the_context_folder_can_be_renamed(bare_world):
    bare_world.write(".context", "a file")
    assert found(bare_world) is None
    bare_world.settings("context_dir: docs/context\n")
    assert found(bare_world) is None
    bare_world.write("docs/context/TASKS.md", "- x\n")
    assert found(bare_world) == bare_world.root
    assert bare_world.session("s1").gate().text.endswith("docs/context/TASKS.md")


@pytest.mark.parametrize(
    "name", [".", ".git", ".claude", ".git/context", "sub/.git/x", ".GIT", "sub/.claude", "link", '""', "/tmp", ".."]
)
def test_a_context_folder_that_is_not_for_us_is_none(bare_world, tmp_path, name):
    world = bare_world
    for folder in (".git/context", ".claude", "sub/.git/x", "sub/.claude", ".GIT"):
        os.makedirs(world.path(folder), exist_ok=True)
    os.symlink(str(tmp_path), world.path("link"))
    world.settings("context_dir: %s\n" % name)
    assert found(world) is None


@pytest.mark.parametrize("name", ["signals", "signals/global", "signals/sessions", "handoffs", "handoffs/delivered"])
def test_a_runtime_folder_that_is_a_link_makes_the_project_not_ours(world, tmp_path, name):
    target = str(tmp_path / "target")
    os.makedirs(target)
    os.makedirs(os.path.dirname(world.context(name)), exist_ok=True)
    os.symlink(target, world.context(name))
    session = world.session("s1")
    session.leaves_receipts = False
    assert session.start().out == session.gate().out == session.edit("a.py").out == ""
    session.end()
    assert files_below(target) == []


def test_a_project_that_is_reached_through_a_link_is_one(world, tmp_path):
    link = str(tmp_path / "link")
    os.symlink(world.root, link)
    assert found(world, link) == link
    world.session("direct").start()
    world.env["CLAUDE_PROJECT_DIR"] = link
    assert world.session("s1").gate().text
    assert len(os.listdir(os.path.dirname(world.state()))) == 1


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a folder away")
def test_a_parents_context_folder_of_another_user_is_not_trusted(world):
    os.makedirs(world.path("sub"))
    os.chown(world.context(), 12345, 12345)
    assert found(world, world.path("sub")) is None
    assert found(world) == world.root  # started there, one means it


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a link away")
def test_a_parents_context_folder_behind_somebody_elses_link_is_not_trusted(world):
    """It may lead to a folder of root's in which everybody may write, such as /tmp/.X11-unix."""
    os.makedirs(world.path("sub"))
    os.rename(world.context(), world.path("for everybody"))
    os.symlink("for everybody", world.context())
    assert found(world, world.path("sub")) == world.root
    os.lchown(world.context(), 12345, 12345)
    assert found(world, world.path("sub")) is None


# --- where our own files are


@pytest.mark.posix("the folders of XDG")
def test_our_state_in_the_users_home_is_theirs_alone(world, session):
    folder = world.state()
    assert folder.startswith(os.path.join(world.home, ".local", "state", "ctx_hooks") + os.sep)
    assert os.path.basename(folder).endswith("the%20person%27s%20project")
    assert os.stat(folder).st_mode & 0o077 == 0
    moved = kit.project_state_folder(world.root, dict(world.env, XDG_STATE_HOME=world.temp))
    assert moved.startswith(os.path.join(world.temp, "ctx_hooks"))


def test_the_gitignore_names_only_our_files(world, session):
    lines = read(world.context(".gitignore")).splitlines()
    names = [line for line in lines if not line.startswith("#")]
    assert {"/signals/", "/handoffs/", "/monitor-state.json"} <= set(names)
    assert not [line for line in names if line.endswith(".md") or line in ("*", "/")]


def test_a_persons_own_gitignore_is_left_alone(world):
    world.write(".context/.gitignore", "mine\n")
    world.session("s2").start()
    assert read(world.context(".gitignore")) == "mine\n"


def test_what_may_reach_the_agent(world):
    project = kit.find_project(world.root, world.env)
    for name in ("docs/a.md", ".context/TASKS.md", "environment.md", ".claude/ll-continue-prompt.md"):
        assert kit.may_be_delivered(project, world.path(name)), name
    secrets = ["a/.ENV.local", "server.KEY", "id_ed25519.pub", ".netrc", "credentials.json"]
    private = [".claude/settings.json", ".GIT/config", "sub/.git/config", "../outside.md"]
    for name in secrets + private:
        assert not kit.may_be_delivered(project, world.path(name)), name


def test_no_link_leads_out_or_to_a_secret(world, tmp_path):
    world.write(".env", "KEY=1")
    world.write("docs/fine.md", "x")
    os.symlink(str(tmp_path), world.path("out"))
    os.symlink(world.path(".env"), world.path("notes.md"))
    os.symlink(world.path("docs", "fine.md"), world.path("inside.md"))
    project = kit.find_project(world.root, world.env)
    may = [kit.may_be_delivered(project, world.path(name)) for name in ("out/x.md", "notes.md", "inside.md")]
    assert may == [False, False, True]


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a file to somebody else")
def test_somebody_elses_settings_in_a_parent_do_not_count(world):
    below = world.path("packages", "web")
    os.makedirs(below)
    world.settings("context_dir: other\n")
    os.makedirs(world.path("other"))
    assert kit.find_project(below, world.env).context == world.path("other")
    os.chown(world.path(".contextrc"), 12345, 12345)
    assert kit.find_project(below, world.env).context == world.path(".context")
