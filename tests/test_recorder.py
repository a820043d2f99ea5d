"""Recorder: what was said and why, errors, metrics; all bounded."""

from __future__ import annotations

import os

import pytest

from helper import kit, read, write


@pytest.fixture
def project(world, session):
    return kit.find_project(world.root, world.env)


def test_one_row_says_when_who_what_and_why(world, session):
    world.signal("two\nlines \u2028 é", "s1", "ci.md", severity="critical")
    session.prompt("hello")
    (row,) = world.events()
    assert row["event"] == "signal:delivered" and row["session"] == "s1"
    assert kit.parse_iso(row["at"]) == world.now - 2  # the prompt's row and the receipt are later
    assert (row["severity"], row["body"]) == ("critical", "two\nlines  é")


@pytest.fixture
def told(world):
    """A session to which each kind of thing was said."""
    world.handoff("old", "Goal: x")
    session = world.session("s1")
    session.env["ANTHROPIC_API_KEY"] = "very-secret-value"
    session.start()
    session.gate()
    session.look(tokens=150_000)
    session.write_handoff()
    return session


def test_each_thing_that_is_said_leaves_a_row(world, told):
    events = [row["event"] for row in world.events()]
    for event in ("injection:attempted", "gate:said", "handoff:crossed", "handoff:asked", "handoff:written"):
        assert event in events


def test_a_silent_run_leaves_no_row(world, told):
    rows = world.events()
    told.look()
    assert world.events() == rows


def test_no_secret_of_the_environment_is_written_down(world, told):
    for name in os.listdir(world.state()):
        assert "very-secret-value" not in read(world.state(name))


def test_the_bounded_log_keeps_the_newer_rows(tmp_path):
    path = str(tmp_path / "log")
    for number in range(500):
        kit.append_line(path, "row %d %s" % (number, "x" * 80), 10_000)
        assert os.path.getsize(path) <= 10_200
    lines = read(path).splitlines()
    assert lines[-1].startswith("row 499 ") and all(line.startswith("row ") for line in lines)


def run_at(world, project, now):
    return kit.Run(kit.Event(), project, world.env, now)


def test_broken_rows_are_passed_over(world, project):
    write(world.state("events.jsonl"), b'{"event": "a"}\n{"eve\n\xff\n[]\n{"event": "b"}\n')
    assert [row["event"] for row in kit.read_events(project)] == ["a", "b"]


@pytest.mark.parametrize("content", ['{"attempted": "x"}', "{", '{"averageTimeToSuccess": null, "failed": -1.5}'])
def test_broken_metrics_are_mended(world, project, content):
    write(world.state("metrics.json"), content)
    kit.count_metric(run_at(world, project, 12.0), "attempted")
    assert world.metrics()["attempted"] == 1


def test_averages_are_over_what_succeeded(world, project):
    run = run_at(world, project, 12.0)
    run.session.delivery = kit.Delivery({"attempts": 1, "first_at": 10.0})
    kit.count_success(run)
    kit.count_metric(run, "failed")
    run.session.delivery = kit.Delivery({"attempts": 4, "first_at": 99.0})
    kit.count_success(run)
    metrics = world.metrics()
    assert (metrics["succeededOnFirstTry"], metrics["succeededAfterRetry"], metrics["failed"]) == (1, 1, 1)
    assert (metrics["averageAttemptsToSuccess"], metrics["averageTimeToSuccess"]) == (2.5, 1.0)
