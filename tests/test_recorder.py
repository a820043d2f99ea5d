"""Recorder: the flight recorder and the error log."""
from __future__ import annotations

import json
import os

import pytest

from helper import NOW


@pytest.fixture
def ctx(project):
    ctx = project.ctx(NOW + 0.25)
    ctx.mode = "gate"
    return ctx


def test_one_line_says_when_who_what_and_why(kit, ctx, project):
    kit.record(ctx, "gate:emitted", files=["é\ud800\n"], reason="first call")
    assert project.read(".context/events.jsonl").count("\n") == 1
    assert json.loads(project.read(".context/events.jsonl")) == {
        "at": "2026-02-03T10:45:00.250Z", "session": "s1", "mode": "gate", "agent": "claude", "event": "gate:emitted", "files": ["é\ud800\n"],
        "reason": "first call"}


def test_the_first_line_brings_the_ignore_list(kit, ctx, project):
    kit.record(ctx, "x")
    assert project.read(".context/.gitignore") == kit.GITIGNORE_TEXT


def test_nothing_is_recorded_where_the_context_folder_has_gone(kit, ctx, project):
    os.rename(ctx.dir, ctx.dir + ".gone")
    kit.record(ctx, "x")
    kit.log_error(ctx, "x\n")
    assert not project.exists(".context")


def test_the_recorder_rotates_at_its_limit_and_stays_bounded(kit, ctx):
    for number in range(60):
        kit.record(ctx, "x", n=number, filler="f" * 40_000)
    for name in ("events.jsonl", "events.jsonl.1"):
        assert os.path.getsize(ctx.path(name)) <= kit.EVENTS_LIMIT_BYTES + 41_000
    assert [row["n"] for row in kit.read_events(ctx, 15)] == list(range(45, 60))


def test_the_error_log_is_bounded_however_long_the_error(kit, ctx):
    for _ in range(30):
        kit.log_error(ctx, "x" * 1_000_000 + "\n")
    sizes = [os.path.getsize(ctx.path("state", name)) for name in os.listdir(ctx.path("state")) if name.startswith("errors")]
    assert sum(sizes) > 0 and max(sizes) <= 2 * kit.ERRORS_LIMIT_BYTES


def test_broken_lines_are_passed_over(kit, ctx, project):
    project.write(".context/events.jsonl", b'{"n": 1}\n{"n": \n\xff\n[]\n\n{"n": 2}\n{"half')
    assert kit.read_events(ctx, 10) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "loop"])
def test_a_recorder_that_is_no_file_of_ours_is_neither_written_nor_waited_for(kit, ctx, project, kind):
    path, victim = ctx.path("events.jsonl"), project.write("victim", "v")
    mode = os.stat(victim).st_mode
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        os.mkdir(path)
    else:
        os.symlink(victim if kind == "link" else path, path)
    kit.record(ctx, "x")
    assert project.read("victim") == "v" and os.stat(victim).st_mode == mode


def test_a_pipe_with_a_reader_gets_nothing_either(kit, ctx):
    os.mkfifo(ctx.path("events.jsonl"))
    reader = os.open(ctx.path("events.jsonl"), os.O_RDONLY | os.O_NONBLOCK)
    kit.record(ctx, "x")
    assert os.read(reader, 100) == b""
    os.close(reader)


def test_lines_of_many_processes_do_not_mix(kit, ctx, project):
    children = []
    for number in range(8):
        pid = os.fork()
        if pid == 0:
            for _ in range(20):
                kit.record(ctx, "x", n=number, filler="f" * 300)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    rows = [json.loads(line) for line in project.read(".context/events.jsonl").splitlines()]
    assert sorted(row["n"] for row in rows) == sorted(list(range(8)) * 20)


def test_the_last_rows_are_found_over_a_rotation_oldest_first(kit, ctx, project):
    project.write(".context/events.jsonl.1", '{"n": 1}\n{"n": 2}\n')
    project.write(".context/events.jsonl", '{"n": 3}\n{"n": 4}\n')
    assert [row["n"] for row in kit.read_events(ctx, 3)] == [2, 3, 4]
    assert [row["n"] for row in kit.read_events(ctx, 1)] == [4]


def test_a_recorder_behind_a_link_is_not_shown(kit, ctx, project):
    os.symlink(project.write("victim", '{"n": 1}\n'), ctx.path("events.jsonl"))
    assert kit.read_events(ctx, 5) == []


def test_a_rotation_by_many_processes_at_once_loses_no_line(kit, ctx, monkeypatch):
    """Two see the limit at the same time: the second must not turn the new file over the full one."""
    monkeypatch.setattr(kit, "LOCK_WAIT_S", 20)
    path, children = ctx.path("events.jsonl"), []
    for number in range(8):
        pid = os.fork()
        if pid == 0:
            for turn in range(20):
                kit.append_line(ctx, path, "%02d-%02d\n" % (number, turn), 160 * 6 * 2 // 3)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    lines = (kit.read_bytes(path + ".1") + kit.read_bytes(path)).decode().split()
    assert sorted(lines) == ["%02d-%02d" % (number, turn) for number in range(8) for turn in range(20)]


def test_of_a_long_error_the_end_is_kept(kit, ctx, project):
    kit.log_error(ctx, "begin" + "x" * 1_000_000 + "end\n")
    text = project.read(".context/state/errors.log")
    assert text.endswith("end\n") and "begin" not in text and len(text) == kit.ERRORS_LIMIT_BYTES // 4
