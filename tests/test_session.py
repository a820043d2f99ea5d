"""Session: what is kept of a session, in the user's home."""

from __future__ import annotations

import json
import os
import random

import pytest

from helper import kit, read, write

OF_ANOTHER = b'{"version": %d, "id": "%s", "briefed": true}'


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\0" * 50, b"[]", b"null", OF_ANOTHER % (2, b"s1"), OF_ANOTHER % (3, b"other")]
)
def test_a_state_that_cannot_be_used_is_begun_anew(world, session, content):
    write(world.state("session-s1.json"), content)
    session.run("ls")
    assert session.state()["facts"]["tool_calls"] == 1 and not session.state()["briefed"]


def test_values_of_another_type_count_as_absent(world, session):
    session.run("ls")
    state = dict(session.state(), said=3, offset="x", delivery=[], seen_at=None, briefed="yes", facts=7)
    write(world.state("session-s1.json"), json.dumps(state))
    session.run("ls src")
    assert session.state()["said"] == {} and session.state()["briefed"] is False


def test_a_resumed_session_has_its_state(world, session):
    world.signal("Deploy is red.", ttl=99_999)
    assert "Deploy" in session.prompt("hello").text
    session.edit("src/a.py")
    session.end()
    session.start("resume")
    assert session.prompt("more").text == ""
    assert session.state()["facts"]["tool_calls"] == 1


@pytest.mark.parametrize("record", [kit.Session, kit.Facts, kit.Delivery])
def test_every_field_reads_back_as_it_was_written(record):
    fresh = record()
    again = record(json.loads(json.dumps(fresh.as_dict())))
    assert again.as_dict() == fresh.as_dict()
    for name, default in record.defaults.items():
        assert name in record.__annotations__ and type(getattr(fresh, name)) is type(default)


@pytest.mark.parametrize("record", [kit.Session, kit.Facts, kit.Delivery])
def test_two_records_share_no_list(record):
    fresh, other = record(), record()
    for name, default in record.defaults.items():
        is_shared = getattr(fresh, name) is getattr(other, name)
        assert not (is_shared and isinstance(default, (list, dict)))


def test_no_order_of_events_breaks_a_promise(world, rounds):
    """A thousand odd days: no error, one JSON object, exit 0, everything readable."""
    chance = random.Random(11)
    steps = [
        lambda s: s.start(chance.choice(["startup", "clear", "compact", "resume", "fork"])),
        lambda s: s.prompt(chance.choice(["Do it.", "<task-notification>x</task-notification>", "ctx cancel"])),
        lambda s: s.run(chance.choice(["ls", "make", "git switch x"]), failed=chance.random() < 0.3),
        lambda s: s.edit("src/%d.py" % chance.randrange(3), tokens=chance.randrange(4, 199_000)),
        lambda s: s.write_handoff("Goal %d." % chance.randrange(3)),
        lambda s: s.say("Hm.", tokens=chance.randrange(4, 199_000)),
        lambda s: s.stop(),
        lambda s: s.compact(),
        lambda s: s.gate(),
        lambda s: s.end(chance.choice(["other", "clear", "resume"])),
        lambda s: world.signal("Issue %d." % chance.randrange(5), chance.choice(["global", "s1"]), severity="critical"),
    ]
    for _ in range(rounds(300)):
        session = world.session(chance.choice(["s1", "s2", "s3"]))
        session.leaves_receipts = chance.random() < 0.7
        chance.choice(steps)(session)
        world.now += chance.choice([0, 1, 30, 700, 90_000, -500])
    for name in os.listdir(world.state()):
        if name.endswith(".json"):
            assert json.loads(read(world.state(name)))
    assert not os.path.exists(world.state("errors.log"))
