"""The fixtures of the fast tests are what the client in use really sends."""

from __future__ import annotations

import json

import pytest

import record


def test_recorded_events_have_the_shape_of_the_fixtures_and_no_path_of_this_machine(world):
    if not record.EVENTS.is_dir():
        pytest.skip("no fixtures in tests/data/events")
    recorded = record.play(world)
    assert record.compare(recorded) == {}
    text = json.dumps(recorded)
    assert str(world.root) not in text and world.root.name not in text
    assert {"SessionStart.startup", "Stop.active", "PreToolUse.in-subagent", "PostToolUseFailure", "statusLine"} <= set(
        recorded
    )
