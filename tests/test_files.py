"""Files: bounded reads, atomic writes, locks, locked JSON state."""
from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
import time

import pytest

import helper
from helper import NOW

FOREIGN_UID = 54321
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def ctx(project):
    return project.ctx(NOW)


@pytest.fixture
def state(ctx):
    """The folder of the runtime files."""
    os.makedirs(ctx.path("state"))
    return ctx.path("state")


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# --- what may be written


def test_the_files_of_the_contract_may_be_written(kit, project, ctx):
    below_context = ["state/s1.json", "state/aside/x", "signals/global/a.md", "signals/sessions/s1/a.md", "handoffs/s1.md",
                     "monitor-state.json", "metrics.json", "events.jsonl", "events.jsonl.1", ".gitignore"]
    below_root = [".caw/auto-state.json", ".caw/.gitignore", "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md",
                  "QWEN.md", ".github/copilot-instructions.md"]
    others = [project.tmp + "/ctx-loaded-s1", project.tmp + "/ctx-quiet-s1", project.tmp + "/ctx-asked-s1",
              ctx.state_home + "/consent.json"]
    for path in [ctx.path(name) for name in below_context] + [project.path(name) for name in below_root] + others:
        assert kit.may_write(ctx, path), path


NEVER = [".contextrc", "README.md", ".claude/settings.json", ".claude/settings.local.json", ".git/config", "src/CLAUDE.md",
         ".context", ".context/TASKS.md", ".context/CLAUDE.md", ".context/state", ".context/signals", ".context/handoffs",
         ".context/state/../TASKS.md", ".context/handoffs/../../.git/config", ".context/x/state/y", ".contextx/state/y",
         ".caw/other.json", ".caw", "claude.md", "CLAUDE.md/x", "", ".github/workflows/x.yml", "state/x"]


@pytest.mark.parametrize("name", NEVER)
def test_nothing_else_in_a_project_may_be_written(kit, project, ctx, name):
    path = project.path(name) if name else project.root
    assert not kit.may_write(ctx, path)
    before = project.tree()
    assert not kit.write_bytes(ctx, path, b"x") and kit.claim_file(ctx, path, b"x") is None
    kit.append_line(ctx, path, "x\n", 100)
    assert not kit.update_json(ctx, path, lambda data: data.update(x=1))[0]
    after = project.tree()
    after.pop("a project's/.context/.gitignore", None)  # the lock of a refused update brings it
    assert {name: data for name, data in after.items() if not name.startswith("a project's/.context/state")} == before


def test_nothing_outside_the_project_may_be_written(kit, project, ctx, tmp_path):
    for path in ("/etc/passwd", str(tmp_path / "x"), project.home + "/.bashrc", project.tmp + "/other", project.root + "x",
                 project.tmp + "/ctx-loaded-s1/x", project.home + "/.local/state/ctx_hooksx", "/", "", "relative",
                 project.tmp + "/../ctx-loaded-s1", project.home + "/.local/state/ctx_hooks/../../x"):
        assert not kit.may_write(ctx, path), path


def test_without_a_home_nothing_is_written_into_a_state_home(kit, project):
    assert not kit.may_write(project.ctx(NOW, HOME=None), "/ctx_hooks/x")


@pytest.mark.parametrize("which", ["tmp", "home"])
def test_a_project_in_the_temp_or_home_folder_has_its_markers_and_consents(kit, project, which):
    """Somebody works in /tmp or in their home folder itself: what lies there lies below the project too."""
    ctx = project.ctx(NOW)
    ctx.tmp, ctx.state_home = ctx.root, ctx.root + "/.local/state/ctx_hooks"
    path = {"tmp": ctx.root + "/ctx-loaded-s1", "home": ctx.state_home + "/x.json"}[which]
    assert kit.may_write(ctx, path) and not kit.may_write(ctx, ctx.root + "/.local/state/x")


@pytest.mark.parametrize("folder, name", [(".caw", "auto-state.json"), (".github", "copilot-instructions.md")])
def test_a_folder_that_is_a_link_is_not_written_through(kit, project, ctx, tmp_path, folder, name):
    (tmp_path / "elsewhere").mkdir()
    os.symlink(str(tmp_path / "elsewhere"), project.path(folder))
    assert not kit.write_bytes(ctx, project.path(folder, name), b"x")
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_project_that_is_reached_through_a_link_is_written(kit, project, tmp_path):
    os.symlink(project.root, str(tmp_path / "link"))
    ctx = kit.find_project(str(tmp_path / "link"), "", {}, 0.0)
    assert kit.may_write(ctx, ctx.root + "/CLAUDE.md") and kit.may_write(ctx, ctx.path("state", "x"))


# --- reading


def make_odd(path: str, kind: str) -> None:
    """Everything that is not a regular file with text in it."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    elif kind == "socket":
        import socket

        here = os.getcwd()
        os.chdir(os.path.dirname(path))  # the name of a socket is short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.basename(path))
        os.chdir(here)
    else:
        os.symlink({"loop": path, "dangling": path + ".gone", "device": "/dev/zero"}[kind], path)


ODD = ["fifo", "folder", "socket", "loop", "dangling", "device"]


@pytest.mark.parametrize("kind", ODD)
def test_what_is_not_a_regular_file_is_not_read_and_does_not_block(kit, tmp_path, kind):
    path = str(tmp_path / "x")
    make_odd(path, kind)
    assert kit.read_bytes(path) is None


HOSTILE = ["", "gone/x", "a\0b", "\ud800", "x" * 5000]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_path_is_nothing(kit, tmp_path, name):
    path = str(tmp_path / "none") + "/" + name
    assert kit.read_bytes(path) is None
    assert kit.list_dir(path) == [] and not kit.is_dir(path) and not kit.is_file(path) and not kit.remove_file(path)


def test_devices_are_not_read(kit):
    assert kit.read_bytes("/dev/zero") is None and kit.read_bytes("/dev/null") is None


def test_reads_are_bounded(kit, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"a" * 3_000_000)
    for limit in (0, 1, 65535, 65536, 65537, 1 << 20, 2_999_999, 3_000_000, 4_000_000):
        assert len(kit.read_bytes(str(path), limit)) == min(limit, 3_000_000)


def test_a_pipe_is_read_to_its_end_though_it_comes_in_pieces(kit):
    reader, writer = os.pipe()

    def feed():
        for piece in (b"one ", b"two ", b"three"):
            os.write(writer, piece)
            threading.Event().wait(0.02)
        os.close(writer)

    thread = threading.Thread(target=feed)
    thread.start()
    assert kit.read_fd(reader, 1000) == b"one two three"
    thread.join()
    os.close(reader)


def test_a_link_is_not_read_where_links_are_not_followed(kit, tmp_path):
    (tmp_path / "file").write_text("f")
    (tmp_path / "link").symlink_to("file")
    assert kit.read_bytes(str(tmp_path / "link")) == b"f"
    assert kit.read_bytes(str(tmp_path / "link"), follow=False) is None


@as_root
def test_another_users_file_is_not_ones_own(kit, tmp_path):
    path = tmp_path / "x"
    path.write_text("x")
    assert kit.is_own(kit.stat_of(str(path)))
    os.chown(str(path), FOREIGN_UID, FOREIGN_UID)
    assert not kit.is_own(kit.stat_of(str(path)))


def test_a_name_inside_a_folder_is_told_with_links_resolved(kit, tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (tmp_path / "in" / "file").write_text("f")
    for name, target in (("out", "../secret"), ("own", "deep/../file"), ("up", ".."), ("loop", "loop"), ("gone", "nowhere"),
                         ("same", ".")):
        (tmp_path / "in" / name).symlink_to(target)
    base = str(tmp_path / "in")
    inside = {"file": "file", "deep": "deep", "own": "file", "same/file": "file", "same/same/own": "file", "missing": "missing",
              "gone": "nowhere", "out": "", "up": "", "up/secret": "", "up/in/file": "file", "../secret": ""}
    for name, wanted in inside.items():
        assert kit.name_inside(base + "/" + name, base) == wanted, name
    assert kit.name_inside(base, base) == "" and kit.name_inside("/etc/passwd", "/") == "etc/passwd"
    assert kit.name_inside(base + "x", base) == ""
    os.symlink(base, str(tmp_path / "project"))
    assert kit.name_inside(str(tmp_path / "project" / "own"), str(tmp_path / "project")) == "file"


@pytest.mark.parametrize("name, missing", [("x", True), ("file/x", True), ("file", False), ("dangling", False), ("a\0b", False),
                                           pytest.param("x" * 5000, False, marks=pytest.mark.skipif(
                                               helper.IS_WINDOWS, reason="Windows says that there is no such name"))])
def test_missing_means_certainly_not_there(kit, tmp_path, name, missing):
    """An error of the disk must not pass for "there is no file": what cannot be told is not overwritten."""
    (tmp_path / "file").write_text("f")
    (tmp_path / "dangling").symlink_to("gone")
    assert kit.is_missing(str(tmp_path / name)) is missing


def test_of_a_folder_beyond_all_bounds_some_names_are_listed(kit, tmp_path):
    for number in range(30):
        (tmp_path / ("%02d" % number)).write_text("")
    assert len(kit.list_dir(str(tmp_path), 10)) == 10
    assert kit.list_dir(str(tmp_path)) == ["%02d" % number for number in range(30)]


# --- writing


def test_a_write_replaces_the_file_and_leaves_nothing_else(kit, ctx, state):
    path = state + "/x"
    for data in (b"one", b"", b"three" * 100_000):
        assert kit.write_bytes(ctx, path, data)
        assert kit.read_bytes(path, 1 << 20) == data
    assert os.listdir(state) == ["x"]


@pytest.mark.skipif(helper.IS_WINDOWS, reason="Windows has no mode bits")
@pytest.mark.parametrize("durable", [False, True])
def test_what_may_hold_conversation_text_is_for_its_owner_only(kit, ctx, project, durable):
    os.chmod(ctx.dir, 0o775)
    ctx.owner = os.stat(ctx.dir)
    for name in ("state/s1.json", "signals/global/a.md", "handoffs/s1.md", "state/handoffs.json"):
        assert kit.write_bytes(ctx, ctx.path(name), b"1", durable) and mode_of(ctx.path(name)) == 0o600
        os.chmod(ctx.path(name), 0o644)  # as a clone would bring it
        assert kit.write_bytes(ctx, ctx.path(name), b"2", durable) and mode_of(ctx.path(name)) == 0o600
    project.write(".context/events.jsonl", "{}\n")
    os.chmod(ctx.path("events.jsonl"), 0o644)
    kit.append_line(ctx, ctx.path("events.jsonl"), "{}\n", 1000)
    assert mode_of(ctx.path("events.jsonl")) == 0o600


@pytest.mark.skipif(helper.IS_WINDOWS, reason="Windows has no mode bits")
@pytest.mark.parametrize("folder_mode, file_mode", [(0o755, 0o644), (0o775, 0o664), (0o700, 0o600), (0o2775, 0o664)])
def test_other_files_and_folders_are_as_open_as_the_context_folder(kit, ctx, project, folder_mode, file_mode):
    os.chmod(ctx.dir, folder_mode)
    ctx.owner = os.stat(ctx.dir)
    for path in (ctx.path("monitor-state.json"), project.path(".caw/auto-state.json"), project.path("CLAUDE.md")):
        assert kit.write_bytes(ctx, path, b"1") and mode_of(path) == file_mode
    assert kit.write_bytes(ctx, ctx.path("state", "x"), b"1")
    assert mode_of(ctx.path("state")) == folder_mode and mode_of(ctx.path(".gitignore")) == file_mode


@pytest.mark.skipif(helper.IS_WINDOWS, reason="Windows has no mode bits")
def test_an_existing_mode_is_kept(kit, ctx, project):
    path = project.write("CLAUDE.md", "mine")
    os.chmod(path, 0o640)
    assert kit.write_bytes(ctx, path, b"new") and mode_of(path) == 0o640


@as_root
def test_what_root_writes_belongs_to_the_one_whose_project_it_is(kit, project):
    """A session run with other rights never locks the user out."""
    for name in (".context", ".context/TASKS.md", ""):
        os.chown(project.path(name), FOREIGN_UID, FOREIGN_UID)
    ctx = project.ctx(NOW)
    kit.update_json(ctx, ctx.path("state", "x.json"), lambda data: data.update(n=1))
    kit.update_json(ctx, ctx.path("state", "x.json"), lambda data: data.update(n=2))
    kit.append_line(ctx, ctx.path("events.jsonl"), "{}\n", 1000)
    kit.write_bytes(ctx, project.path(".caw/auto-state.json"), b"{}")
    for where, folders, files in os.walk(project.root):
        for name in folders + files:
            if name != "CONSTITUTION.md":
                assert os.lstat(os.path.join(where, name)).st_uid == FOREIGN_UID, name
    assert kit.write_bytes(ctx, project.tmp + "/ctx-asked-s1", b"{}")
    assert os.stat(project.tmp + "/ctx-asked-s1").st_uid == 0, "a marker is only read by its own user"


def test_a_write_that_cannot_be_is_false_and_leaves_nothing(kit, ctx, state):
    os.mkdir(state + "/folder")
    assert not kit.write_bytes(ctx, state + "/folder", b"x")
    assert not kit.write_bytes(ctx, state + "/folder/../../x", b"x")
    assert not kit.write_bytes(ctx, state + "/a\0b", b"x")
    assert not kit.write_bytes(ctx, state + "/" + "x" * 300, b"x")
    assert os.listdir(state) == ["folder"]


def test_a_link_is_replaced_not_written_through(kit, ctx, state, project):
    victim = project.write("victim", "v")
    os.chmod(victim, 0o666)
    for path in (state + "/x", project.path("CLAUDE.md")):
        os.symlink(victim, path)
        assert kit.write_bytes(ctx, path, b"new")
        assert project.read("victim") == "v" and not os.path.islink(path) and mode_of(path) != 0o666


def test_the_first_runtime_write_brings_its_folders_and_the_ignore_list(kit, ctx, project):
    assert kit.write_bytes(ctx, ctx.path("state", "a", "b.json"), b"{}")
    assert project.read(".context/.gitignore") == kit.GITIGNORE_TEXT


def test_the_first_lock_brings_the_ignore_list_too(kit, ctx, project):
    assert kit.update_json(ctx, project.path(".caw/auto-state.json"), lambda data: data.update(n=1))[0]
    assert project.read(".context/.gitignore") == kit.GITIGNORE_TEXT and project.exists(".context/state")


def test_a_users_own_ignore_list_is_left_alone(kit, ctx, project):
    project.write(".context/.gitignore", "mine\n")
    assert kit.write_bytes(ctx, ctx.path("state", "x"), b"{}")
    kit.append_line(ctx, ctx.path("events.jsonl"), "{}\n", 1000)
    assert project.read(".context/.gitignore") == "mine\n"


def test_the_context_folder_itself_is_never_made(kit, ctx, project):
    os.rename(ctx.dir, ctx.dir + ".gone")
    assert not kit.write_bytes(ctx, ctx.path("state", "x"), b"{}")
    assert not kit.make_folder(ctx, ctx.path("state"))
    kit.append_line(ctx, ctx.path("events.jsonl"), "x\n", 100)
    kit.update_json(ctx, ctx.path("state", "x.json"), lambda data: data.update(x=1))
    assert not project.exists(".context")


def test_a_drive_that_is_not_there_is_not_looked_for_for_ever(kit, ctx, monkeypatch):
    monkeypatch.setattr(kit, "IS_POSIX", False)
    assert kit.make_folder(ctx, "Q:/state/ctx_hooks") is False


def test_a_folder_that_another_process_just_made_is_as_good_as_our_own(kit, ctx):
    """Two first writers race: the one that comes second must not lose its write or its lock."""
    os.mkdir(ctx.path("state"))
    assert kit.make_folder(ctx, ctx.path("state"))


@pytest.mark.parametrize("name, ours", [
    ("x.json.123-4f.ctx.tmp", True), ("x.tmp", False), ("x.1-2.tmp", False), ("my.notes.tmp", False), ("x.ctx.tmp.md", False), ("", False)])
def test_a_temp_file_of_ours_is_known_by_its_name(kit, name, ours):
    assert name.endswith(kit.TEMP_END) is ours


# --- a replace that knows what it replaces


def test_a_write_that_expects_something_else_is_not_made(kit, ctx, project):
    path = project.write("CLAUDE.md", "theirs")
    assert not kit.write_bytes(ctx, path, b"ours", expected=b"old")
    assert not kit.write_bytes(ctx, path, b"ours", expected=b"")
    assert project.read("CLAUDE.md") == "theirs" and sorted(os.listdir(project.root)) == [".context", "CLAUDE.md"]
    assert kit.write_bytes(ctx, path, b"ours", expected=b"theirs") and project.read("CLAUDE.md") == "ours"
    os.unlink(path)
    assert not kit.write_bytes(ctx, path, b"ours", expected=b"theirs") and not project.exists("CLAUDE.md")
    assert kit.write_bytes(ctx, path, b"ours", expected=b"") and project.read("CLAUDE.md") == "ours"
    assert sorted(os.listdir(project.root)) == [".context", "CLAUDE.md"]


@pytest.mark.parametrize("step", ["_write", "_give_rights"])
def test_what_somebody_saves_between_our_look_and_our_write_stays(kit, ctx, project, monkeypatch, step):
    """While our text is being written beside it, an editor saves: the file is looked at again right before it is replaced."""
    path, real = project.write("CLAUDE.md", "old"), getattr(kit, step)

    def save_and_go_on(*args):
        project.write("new", "saved by the person")
        os.replace(project.path("new"), path)
        return real(*args)

    monkeypatch.setattr(kit, step, save_and_go_on)
    assert not kit.write_bytes(ctx, path, b"ours", expected=b"old")
    assert project.read("CLAUDE.md") == "saved by the person"
    assert sorted(os.listdir(project.root)) == [".context", "CLAUDE.md"]


# --- a file that somebody reads


@pytest.mark.parametrize("call, name", [("unlink", "remove_file"), ("replace", "write_bytes"), ("rename", "set_aside")])
def test_what_a_reader_keeps_from_being_changed_on_windows_is_tried_again(kit, ctx, state, project, monkeypatch, call, name):
    """There an open file cannot be removed, replaced or moved for a moment: a delivered signal would be said twice."""
    path = project.write(".context/state/x.md", "x")
    project.write(".context/.gitignore", "")
    real, refused = getattr(os, call), []

    def refuse_twice(*paths):
        if len(refused) < 2:
            refused.append(paths)
            raise PermissionError(13, "somebody reads it")
        real(*paths)

    monkeypatch.setattr(kit._os, call, refuse_twice)
    change = {"remove_file": lambda: kit.remove_file(path), "write_bytes": lambda: kit.write_bytes(ctx, path, b"y"),
              "set_aside": lambda: kit.set_aside(ctx, path)}[name]
    if not helper.IS_WINDOWS:
        assert not change() and len(refused) == 1, "elsewhere it is a refusal for good"
        refused.clear()
        monkeypatch.setattr(kit, "IS_POSIX", False)
    assert change() and len(refused) == 2
    assert os.path.exists(path) is (name == "write_bytes")


# --- updates


def test_an_update_reads_changes_and_writes(kit, ctx, project):
    path = ctx.path("state", "x.json")
    for _ in range(3):
        assert kit.update_json(ctx, path, lambda data: data.update(n=data.get("n", 0) + 1) or "told") == (True, "told")
    assert json.loads(project.read(".context/state/x.json")) == {"n": 3}


def test_an_update_that_changes_nothing_writes_nothing(kit, ctx, project):
    path = ctx.path("state", "x.json")
    kit.update_json(ctx, path, lambda data: data.update(n=1))
    before = os.stat(path)
    assert kit.update_json(ctx, path, lambda data: "seen") == (True, "seen")
    assert os.stat(path).st_ino == before.st_ino


def test_an_update_by_a_schema_edits_a_checked_record(kit, ctx, project):
    path = project.write(".context/state/x.json", '{"n": "x", "at": "2026-02-03T10:45:00Z", "other": 1}')
    schema = (("n", 5, "count"), ("at", 0.0, "time"))

    def change(record):
        record.n += 1
        return record.at

    assert kit.update_json(ctx, path, change, schema) == (True, NOW)
    assert kit.read_json(path) == {"n": 6, "at": "2026-02-03T10:45:00.000Z", "other": 1}


@pytest.mark.parametrize("value", [float("inf"), {1}, "deep"])
def test_state_that_cannot_be_written_is_set_aside_and_the_next_update_works(kit, ctx, project, value):
    """A file that fails every later call for ever would silence the kit."""
    path = project.write(".context/state/x.json", '{"n": 1}')
    if value == "deep":
        value = []
        for _ in range(100_000):
            value = [value]
    assert kit.update_json(ctx, path, lambda data: data.update(bad=value) or "told") == (False, "told")
    while isinstance(value, list) and value:
        value = value.pop()
    assert not os.path.exists(path) and len(os.listdir(ctx.path("state", "aside"))) == 1
    assert kit.update_json(ctx, path, lambda data: data.update(n=2)) == (True, None)


@as_root
def test_another_users_state_in_a_shared_checkout_is_not_replaced(kit, open_project):
    path = open_project.write(".context/state/x.json", '{"theirs": 1}')
    os.chmod(open_project.base, 0o755)

    def as_nobody(kit_):
        os.setgid(helper.NOBODY)
        os.setuid(helper.NOBODY)
        ctx = open_project.ctx(NOW)
        return kit_.update_json(ctx, path, lambda data: data.update(ours=1))

    for folder in (".context", ".context/state"):
        os.chmod(open_project.path(folder), 0o777)
    os.chmod(path, 0o600)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, repr(as_nobody(kit)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    assert os.read(reader, 100) == b"(False, None)"
    os.close(reader)
    assert open_project.read(".context/state/x.json") == '{"theirs": 1}'


CORRUPT = {"empty": b"", "half": b'{"n": 1', "text": b"hello", "list": b"[1]", "number": b"5", "null": b"null", "binary": b"\0\xff",
           "deep": b'{"a":' * 100_000, "huge": b'{"a": "' + b"x" * (4 << 20) + b'"}'}


@pytest.mark.parametrize("kind", list(CORRUPT) + ["fifo", "folder", "dangling", "loop"])
def test_corrupt_state_is_set_aside_and_replaced_by_defaults(kit, ctx, project, kind):
    path = project.write(".context/state/x.json", CORRUPT.get(kind, b""))
    if kind not in CORRUPT:
        os.unlink(path)
        make_odd(path, kind)
    assert kit.load_json(path) is None and kit.read_json(path) == {}
    assert kit.update_json(ctx, path, lambda data: data.update(n=1))[0]
    assert kit.read_json(path) == {"n": 1}
    aside = os.listdir(ctx.path("state", "aside"))
    assert len(aside) == 1 and aside[0].endswith(".x.json")
    if kind in CORRUPT:
        assert kit.read_bytes(ctx.path("state", "aside", aside[0]), 8 << 20) == CORRUPT[kind]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no user numbers")
def test_corrupt_state_of_another_user_that_can_be_read_is_replaced_too(kit, ctx, project, monkeypatch):
    """As root in a user's project nothing is one's own: what is broken must not fail every later call."""
    path = project.write(".context/state/x.json", "{")
    assert (kit.load_json(path), kit.load_json(path + ".missing")) == (None, {}), "one is broken, the other is not there"
    monkeypatch.setattr(kit, "is_own", lambda info: False)
    assert kit.update_json(ctx, path, lambda data: data.update(n=1))[0] and kit.read_json(path) == {"n": 1}


def test_state_with_a_number_that_cannot_be_written_does_not_stop_later_writes(kit, ctx, project):
    path = project.write(".context/state/x.json", '{"n": 1, "odd": 1e999, "nan": NaN}')
    assert kit.update_json(ctx, path, lambda data: data.update(n=2))[0]
    assert kit.read_json(path) == {"n": 2, "odd": None, "nan": None}


def test_of_many_files_set_aside_the_newest_stay(kit, ctx, project):
    for number in range(kit.ASIDE_KEEP + 5):
        name = ["z.json", "a.json"][number >= kit.ASIDE_KEEP]
        path = project.write(".context/state/" + name, "broken %d" % number)
        target = kit.set_aside(ctx, path)
        os.rename(target, target.replace("Z-", "Z-%03d-" % number))  # the same millisecond would not tell them apart
    kept = [project.read(".context/state/aside/" + name) for name in os.listdir(ctx.path("state", "aside"))]
    assert "broken %d" % (kit.ASIDE_KEEP + 4) in kept
    assert len(kept) <= kit.ASIDE_KEEP + 1


HOLDER = """
import os, sys, time
path = sys.argv[1]
if os.name == "nt":
    os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_TEMPORARY)
else:
    os.lockf(os.open(path, os.O_RDWR | os.O_CREAT), os.F_LOCK, 0)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(kit, ctx, project):
    """Another process that holds the lock of state/x.json."""
    os.makedirs(ctx.path("state"))
    process = subprocess.Popen([helper.PYTHON, "-c", HOLDER, kit.lock_path(ctx, "x.json")], stdout=subprocess.PIPE)
    assert process.stdout.readline().strip() == b"held"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_held_lock_costs_the_write_and_nothing_else(kit, ctx, holder, monkeypatch):
    monkeypatch.setattr(kit, "LOCK_WAIT_S", 0.05)
    called = []
    assert kit.update_json(ctx, ctx.path("state", "x.json"), lambda data: called.append(1)) == (False, None)
    assert called == [] and not os.path.exists(ctx.path("state", "x.json"))


@pytest.mark.skipif(helper.IS_WINDOWS, reason="lines are whole only under the lock there")
def test_a_line_does_not_wait_for_a_lock_that_somebody_keeps(kit, ctx, holder):
    """A hook of another session that was stopped (^Z) with it: four rows at 2.5 s each, and the deadline took the reply."""
    path, start = ctx.path("state", "x.json"), time.monotonic()
    for number in range(4):
        kit.append_line(ctx, path, "%d\n" % number, 4)
    assert kit.read_text(path) == "0\n1\n2\n3\n", "nor is it turned over by one who has no lock"
    assert time.monotonic() - start < 2


def test_a_dead_holder_holds_nothing(kit, ctx, holder):
    holder.kill()
    holder.wait()
    assert kit.update_json(ctx, ctx.path("state", "x.json"), lambda data: data.update(n=1)) == (True, None)


@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "dangling", "device"])
def test_a_lock_file_that_is_none_does_not_block(kit, ctx, kind):
    os.makedirs(ctx.path("state"))
    make_odd(kit.lock_path(ctx, "x.json"), kind)
    assert kit.update_json(ctx, ctx.path("state", "x.json"), lambda data: data.update(n=1)) == (True, None)


@pytest.mark.skipif(helper.IS_WINDOWS, reason="there the file itself is the lock and goes with its maker")
def test_a_lock_file_that_is_removed_again_and_again_ends_in_busy(kit, ctx, monkeypatch):
    real = kit._os.lockf

    def lock_and_lose(fd, *how):
        real(fd, *how)
        os.unlink(ctx.path("state", "x.lock"))

    monkeypatch.setattr(kit._os, "lockf", lock_and_lose)
    monkeypatch.setattr(kit, "LOCK_WAIT_S", 0.05)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert kit.take_lock(ctx, "x.json") is None
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


def test_updates_of_many_processes_are_all_counted(kit, ctx, project, monkeypatch):
    """On a fresh project, so that making the folders races too; with time enough for a busy machine."""
    monkeypatch.setattr(kit, "LOCK_WAIT_S", 20)
    children = []
    for _ in range(12):
        pid = os.fork()
        if pid == 0:
            done = [kit.update_json(ctx, ctx.path("state", "n.json"), lambda data: data.update(n=data.get("n", 0) + 1))
                    for _ in range(10)]
            os._exit(0 if done == [(True, None)] * 10 else 1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 12
    assert kit.read_json(ctx.path("state", "n.json")) == {"n": 120}
    assert sorted(os.listdir(ctx.path("state"))) == ["n.json", "n.lock"]
