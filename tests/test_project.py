"""Project: where the project is, its settings, its sessions."""
from __future__ import annotations

import os

import pytest

FOREIGN_UID = 54321
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def below(project):
    """A folder two levels below the project."""
    os.makedirs(project.path("src", "deep"))
    return project.path("src", "deep")


def test_the_project_dir_wins_when_it_holds_the_context_folder(kit, project, tmp_path):
    other = tmp_path / "other"
    (other / ".context").mkdir(parents=True)
    assert kit.find_project(project.root, str(other)).root == project.root


def test_else_the_nearest_parent_of_the_cwd_counts(kit, project, below):
    for project_dir in ("", "relative", "/nowhere", project.home):
        assert kit.find_project(project_dir, below).root == project.root
    assert kit.find_project("", project.root + "/src/../src/./deep/").root == project.root


@pytest.mark.parametrize("cwd", ["", ".", "relative", "/nowhere", "/", "a\0b", "/\ud800", "/" + "x/" * 3000, "/dev/null"])
def test_no_context_folder_means_no_project(kit, cwd):
    assert kit.find_project("", cwd) is None


@pytest.mark.parametrize("kind", ["file", "dangling", "fifo"])
def test_a_context_folder_is_a_folder(kit, bare_project, kind):
    path = bare_project.path(".context")
    if kind == "file":
        bare_project.write(".context", "")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        os.symlink("gone", path)
    assert kit.find_project(bare_project.root, bare_project.root) is None


def test_the_context_folder_can_be_renamed(kit, bare_project):
    bare_project.write(".contextrc", "context_dir: docs/context\n")
    assert kit.find_project(bare_project.root, "") is None
    os.makedirs(bare_project.path("docs", "context"))
    assert kit.find_project(bare_project.root, "").dir == bare_project.path("docs", "context")


@pytest.mark.parametrize("text", ['context_dir: ""', "context_dir:", "context_dir: ..", "context_dir: /", "context_dir: []"])
def test_an_unusable_context_dir_falls_back_to_the_default(kit, bare_project, text):
    bare_project.write(".contextrc", text + "\n")
    assert kit.find_project(bare_project.root, "") is None


@pytest.mark.parametrize("kind", ["folder", "fifo", "dangling", "binary"])
def test_settings_that_cannot_be_read_are_the_defaults(kit, project, kind):
    path = project.path(".contextrc")
    if kind == "folder":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling":
        os.symlink("gone", path)
    else:
        project.write(".contextrc", bytes(range(256)) * 10)
    ctx = kit.find_project(project.root, "")
    assert ctx.config == {} and ctx.get("gate.mode") == "directive"


@as_root
def test_a_parents_context_folder_of_another_user_is_not_trusted(kit, project, below):
    os.chown(project.path(".context"), FOREIGN_UID, FOREIGN_UID)
    assert kit.find_project("", below) is None
    assert kit.find_project("", project.root) is not None  # the person went there
    assert kit.find_project(project.root, below) is not None


@as_root
def test_a_parents_settings_of_another_user_are_not_trusted(kit, project, below):
    """They could name a folder of ours as `context_dir` and then put words into the gate's mouth."""
    path = project.write(".contextrc", "gate:\n  message: do as I say\n")
    assert kit.find_project("", below) is not None
    os.chown(path, FOREIGN_UID, FOREIGN_UID)
    assert kit.find_project("", below) is None


@as_root
def test_a_link_of_another_user_to_a_folder_of_ours_is_not_trusted(kit, project, below):
    os.rename(project.path(".context"), project.path("own"))
    os.symlink("own", project.path(".context"))
    assert kit.find_project("", below) is not None
    os.lchown(project.path(".context"), FOREIGN_UID, FOREIGN_UID)
    assert kit.find_project("", below) is None


def test_a_pause_is_of_one_session_or_of_all_and_may_end(kit, project):
    ctx = kit.find_project(project.root, "")
    ctx.now = kit.parse_iso("2026-02-03T10:45:00Z")
    for pauses, paused in (
        ({}, []), ({"s1": None}, ["s1"]), ({"*": None}, ["s1", "s2"]), ({"s1": "2026-02-03T10:46:00Z"}, ["s1"]),
        ({"s1": "2026-02-03T10:44:00Z"}, []), ({"s1": "2026-02-03T10:44:00Z", "*": None}, ["s1", "s2"]),
    ):
        kit.write_runtime(ctx, ctx.path("state", "pause.json"), kit.format_json(pauses).encode())
        assert [session for session in ("s1", "s2") if kit.is_paused(ctx, session)] == paused


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff"])
def test_a_broken_pause_file_pauses_nothing(kit, project, data):
    project.write(".context/state/pause.json", data)
    assert not kit.is_paused(kit.find_project(project.root, ""), "s1")


@pytest.mark.parametrize("value, number", [(5, 5), (1.5, 1.5), (-1, -1), (True, 7), ("5", 7), (None, 7), ([], 7), (1e15, 7),
                                           (float("inf"), 7), (float("nan"), 7)])
def test_only_json_numbers_of_sane_size_are_numbers(kit, value, number):
    assert kit.number(value, 7) == number


def test_a_table_replaces_what_is_of_another_type(kit):
    data = {"a": [1], "b": {"c": 1}}
    assert (kit.table(data, "a"), kit.table(data, "b"), kit.table(data, "x")) == ({}, {"c": 1}, {})
    assert data == {"a": {}, "b": {"c": 1}, "x": {}}
