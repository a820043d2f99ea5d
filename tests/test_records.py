"""Records: the event, the reply and the context of one hook run."""
from __future__ import annotations

import re

import pytest


def test_the_banner_names_every_field_of_an_event(kit):
    with open(kit.__file__, encoding="utf-8") as source:
        listed = re.search(r"#   Event(.*?); a wrong type", source.read(), re.S).group(1)
    for field in vars(kit.parse_event({})):
        assert re.search(r"\b%s\b" % field, listed), field


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
