"""Records: the event, the reply and the context of one hook run."""
from __future__ import annotations

import pytest


def test_an_event_has_every_field_and_no_others(kit):
    event = kit.Event(name="Stop")
    assert event.name == "Stop"
    assert all(getattr(event, field) is None for field in kit.Event.__slots__ if field != "name")
    with pytest.raises(AttributeError):
        event.surprise = 1


def test_a_setting_is_the_projects_value_else_the_default(kit):
    ctx = kit.Ctx("/p", "/p/.context", {"gate.mode": "off"}, [])
    assert (ctx.get("gate.mode"), ctx.get("handoff.threshold")) == ("off", 80)
    with pytest.raises(KeyError):
        ctx.get("no.such.setting")


def test_paths_stand_below_the_context_folder(kit):
    assert kit.Ctx("/p", "/p/.context", {}, []).path("state", "x.json") == "/p/.context/state/x.json"


def test_two_replies_do_not_share_what_comes_after(kit):
    first, second = kit.Reply(), kit.Reply()
    first.after.append(1)
    assert second.after == []
