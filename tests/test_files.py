"""Files: bounded reads, atomic writes, locks, locked JSON state."""
from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading

import pytest

import helper


@pytest.fixture
def ctx(kit, project):
    ctx = kit.open_project(project.root)
    ctx.now, ctx.tmp, ctx.mode, ctx.session = 1770115500.0, project.tmp, "test", "s1"
    return ctx


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
    assert kit.read_inside(path, str(tmp_path)) is None


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


def test_a_link_out_of_the_folder_is_not_read_a_link_inside_is(kit, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "in" / "file").write_text("f")
    (tmp_path / "in" / "out").symlink_to("../secret")
    (tmp_path / "in" / "own").symlink_to("file")
    (tmp_path / "in" / "up").symlink_to("..")
    base = str(tmp_path / "in")
    assert kit.read_inside(base + "/own", base) == b"f"
    assert kit.read_inside(base + "/out", base) is None
    assert kit.read_inside(base + "/up/secret", base) is None
    assert kit.read_bytes(base + "/own", follow=False) is None


def test_a_write_replaces_the_file_and_leaves_nothing_else(kit, tmp_path):
    path = str(tmp_path / "x")
    for data in (b"one", b"", b"three" * 100_000):
        assert kit.write_bytes(path, data)
        assert kit.read_bytes(path, 1 << 20) == data
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_new_file_is_private_and_an_existing_mode_is_kept(kit, tmp_path, durable):
    path = str(tmp_path / "x")
    assert kit.write_bytes(path, b"1", durable)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    os.chmod(path, 0o664)
    assert kit.write_bytes(path, b"2", durable)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o664


def test_a_write_that_cannot_be_is_false_and_leaves_nothing(kit, tmp_path):
    (tmp_path / "folder").mkdir()
    assert not kit.write_bytes(str(tmp_path / "folder"), b"x")
    assert not kit.write_bytes(str(tmp_path / "gone" / "x"), b"x")
    assert not kit.write_bytes(str(tmp_path / "a\0b"), b"x")
    assert sorted(os.listdir(tmp_path)) == ["folder"]


def test_a_link_is_replaced_not_written_through(kit, tmp_path):
    (tmp_path / "victim").write_text("v")
    (tmp_path / "x").symlink_to("victim")
    assert kit.write_bytes(str(tmp_path / "x"), b"new")
    assert (tmp_path / "victim").read_text() == "v" and not (tmp_path / "x").is_symlink()


def test_the_first_runtime_write_brings_its_folders_and_the_ignore_list(kit, ctx, project):
    assert kit.write_runtime(ctx, ctx.path("state", "a", "b.json"), b"{}")
    assert project.read(".context/.gitignore") == kit.GITIGNORE_TEXT
    assert stat.S_IMODE(os.stat(ctx.path("state")).st_mode) == 0o700


def test_a_users_own_ignore_list_is_left_alone(kit, ctx, project):
    project.write(".context/.gitignore", "mine\n")
    assert kit.write_runtime(ctx, ctx.path("state", "x"), b"{}")
    assert project.read(".context/.gitignore") == "mine\n"


def test_runtime_folders_are_made_only_below_an_existing_context_folder(kit, ctx, project):
    assert not kit.make_runtime_dir(ctx, project.path("elsewhere"))
    assert not kit.make_runtime_dir(ctx, ctx.dir + "x/state")
    os.rename(ctx.dir, ctx.dir + ".gone")
    assert not kit.write_runtime(ctx, ctx.path("state", "x"), b"{}")
    assert not project.exists(".context") and not project.exists("elsewhere")


def test_a_folder_that_another_process_just_made_is_as_good_as_our_own(kit, ctx):
    """Two first writers race: the one that comes second must not lose its write or its lock."""
    os.mkdir(ctx.path("state"))
    assert kit.make_runtime_dir(ctx, ctx.path("state"))


def test_an_update_reads_changes_and_writes(kit, ctx, project):
    path = ctx.path("state", "x.json")
    for _ in range(3):
        assert kit.update_json(ctx, path, lambda data: data.update(n=data.get("n", 0) + 1) or True)
    assert json.loads(project.read(".context/state/x.json")) == {"n": 3}
    assert not kit.update_json(ctx, path, lambda data: data.clear() or False)
    assert kit.read_json(path) == {"n": 3}


CORRUPT = {"empty": b"", "half": b'{"n": 1', "text": b"hello", "list": b"[1]", "number": b"5", "null": b"null", "binary": b"\0\xff",
           "deep": b'{"a":' * 100_000, "huge": b'{"a": "' + b"x" * (4 << 20) + b'"}'}


@pytest.mark.parametrize("kind", list(CORRUPT) + ["fifo", "folder", "dangling", "loop"])
def test_corrupt_state_is_set_aside_and_replaced_by_defaults(kit, ctx, project, kind):
    path = project.write(".context/state/x.json", CORRUPT.get(kind, b""))
    if kind not in CORRUPT:
        os.unlink(path)
        make_odd(path, kind)
    assert kit.load_json(path) is None and kit.read_json(path) == {}
    assert kit.update_json(ctx, path, lambda data: data.update(n=1) or True)
    assert kit.read_json(path) == {"n": 1}
    aside = os.listdir(ctx.path("state", "aside"))
    assert len(aside) == 1 and aside[0].endswith(".x.json")
    if kind in CORRUPT:
        assert kit.read_bytes(ctx.path("state", "aside", aside[0]), 8 << 20) == CORRUPT[kind]


def test_state_with_a_number_that_cannot_be_written_does_not_stop_later_writes(kit, ctx, project):
    path = project.write(".context/state/x.json", '{"n": 1, "odd": 1e999, "nan": NaN}')
    assert kit.update_json(ctx, path, lambda data: data.update(n=2) or True)
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


def test_setting_aside_removes_nothing_behind_a_link(kit, ctx, project):
    for number in range(kit.ASIDE_KEEP + 5):
        project.write("keys/%02d" % number, "mine")
    os.makedirs(ctx.path("state"))
    os.symlink(project.path("keys"), ctx.path("state", "aside"))
    kit.set_aside(ctx, project.write(".context/state/x.json", "broken"))
    assert len(os.listdir(project.path("keys"))) >= kit.ASIDE_KEEP + 5


HOLDER = "import os, sys, time; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.lockf(fd, os.F_LOCK, 0); print('held', flush=True); time.sleep(30)"


@pytest.fixture
def holder(ctx, project):
    """Another process that holds the lock of state/x.json."""
    os.makedirs(ctx.path("state"))
    process = subprocess.Popen([helper.PYTHON, "-c", HOLDER, ctx.path("state", "x.lock")], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_held_lock_costs_the_write_and_nothing_else(kit, ctx, holder, monkeypatch):
    monkeypatch.setattr(kit, "LOCK_WAIT_S", 0.05)
    called = []
    assert not kit.update_json(ctx, ctx.path("state", "x.json"), lambda data: called.append(1) or True)
    assert called == [] and not os.path.exists(ctx.path("state", "x.json"))


def test_a_dead_holder_holds_nothing(kit, ctx, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert kit.update_json(ctx, ctx.path("state", "x.json"), lambda data: data.update(n=1) or True)


@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "dangling", "device"])
def test_a_lock_file_that_is_none_does_not_block(kit, ctx, kind):
    os.makedirs(ctx.path("state"))
    make_odd(ctx.path("state", "x.lock"), kind)
    assert kit.update_json(ctx, ctx.path("state", "x.json"), lambda data: data.update(n=1) or True)


def test_a_lock_file_that_is_removed_again_and_again_ends_in_busy(kit, ctx, monkeypatch):
    def lock_and_lose(fd, wait_s):
        os.unlink(ctx.path("state", "x.lock"))
        return True

    monkeypatch.setattr(kit, "lock_fd", lock_and_lose)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with kit.Lock(ctx, ctx.path("state", "x.lock")) as lock:
        assert lock.busy
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


def test_updates_of_many_processes_are_all_counted(kit, ctx, project):
    """On a fresh project, so that making the folders races too."""
    children = []
    for _ in range(12):
        pid = os.fork()
        if pid == 0:
            done = [kit.update_json(ctx, ctx.path("state", "n.json"), lambda data: data.update(n=data.get("n", 0) + 1) or True)
                    for _ in range(10)]
            os._exit(0 if all(done) else 1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 12
    assert kit.read_json(ctx.path("state", "n.json")) == {"n": 120}
    assert sorted(os.listdir(ctx.path("state"))) == ["n.json", "n.lock"]
