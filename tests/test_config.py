"""Config: .contextrc, a small YAML subset. The cases are files in data/config."""
from __future__ import annotations

import json
import os
import random

import pytest

from helper import data, kit, read, write


def names(kind):
    return sorted(name[:-5] for name in os.listdir(data("config", kind)) if name.endswith(".yaml"))


def settings_of(text):
    settings = kit.Settings()
    settings.read(text)
    return settings


def changed(settings):
    defaults = kit.Settings().values
    return {key: value for key, value in settings.values.items() if value != defaults.get(key)}


@pytest.mark.parametrize("name", names("valid"))
def test_a_valid_file_holds_what_it_should(name):
    settings = settings_of(kit.read_text(data("config", "valid", name + ".yaml")))
    expected = json.loads(read(data("config", "valid", name + ".json")))
    assert settings.problems == []
    assert {key: settings.values[key] for key in expected} == expected
    assert set(changed(settings)) <= set(expected)


@pytest.mark.parametrize("name", names("invalid"))
def test_a_bad_line_is_reported_with_line_and_column_and_the_rest_counts(name):
    settings = settings_of(kit.read_text(data("config", "invalid", name + ".yaml")))
    places = ["%d:%d" % problem[:2] for problem in settings.problems]
    assert places == read(data("config", "invalid", name + ".txt")).split()
    assert all(what for _, _, what in settings.problems)
    assert changed(settings) == json.loads(read(data("config", "invalid", name + ".json")))


@pytest.mark.posix("the folders of XDG")
def test_the_users_file_holds_for_all_projects_and_the_projects_own_wins(world):
    own = os.path.join(world.home, ".config", "ctx_hooks", "contextrc")
    write(own, "gate.mode: off\nhandoff.threshold: 50\n")
    world.settings("handoff.threshold: 60\n")
    settings = kit.read_settings(world.root, world.env)
    assert (settings["gate.mode"], settings["handoff.threshold"]) == ("off", "60")
    moved = dict(world.env, XDG_CONFIG_HOME=world.temp)
    assert kit.read_settings(world.root, moved)["gate.mode"] == "directive"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_settings_that_cannot_be_read_are_the_defaults(world, make):
    make(world.path(".contextrc"))
    assert kit.read_settings(world.root, world.env).values == kit.Settings().values


def test_long_lists_lines_and_files_are_bounded(world):
    text = "gate.files: [%s]\n" % ", ".join("f%d.md" % number for number in range(5000))
    assert len(settings_of(text)["gate.files"]) <= kit.LIST_LIMIT
    settings_of("gate.files:\n" + "- x.md\n" * 50_000)
    settings_of("auto.about.qa: " + "'\"# " * 500_000)
    world.settings("gate:\n  mode: off\n" + "a:\n" * 170_000)
    settings = kit.read_settings(world.root, world.env)
    assert settings["gate.mode"] == "off" and len(settings.problems) < 30_000


def test_no_text_makes_the_reader_fail(rounds):
    chance = random.Random(2)
    pieces = ["gate", "files", ":", " ", "\n", "- ", "[", "]", ",", "'", '"', "#", "\t", "handoff", "threshold"]
    pieces += ["off", "9", "\0", "é", "auto.about.", "*", "..", "/", "---", "km"]
    for _ in range(rounds(600)):
        settings = settings_of("".join(chance.choice(pieces) for _ in range(chance.randrange(40))))
        kit.handoff_point(settings, kit.Fullness())
        assert all(line > 0 and column > 0 for line, column, _ in settings.problems)


def test_what_reaches_out_of_the_text_counts_from_the_users_own_settings_alone(world):
    text = "monitor:\n  notify: desktop\nwrap:\n  ready_patterns: [(a*)*b, 'say*now']\n"
    world.settings(text)
    settings = kit.read_settings(world.root, world.env)
    assert settings["monitor.notify"] == "off" and "your own settings" in settings.problems[0][2]
    patterns = settings["wrap.ready_patterns"]
    assert kit.matches(patterns, "x (aaa)aab") is True and kit.matches(patterns, "aab") is False
    assert kit.matches(patterns, "please say it now") is True and kit.matches(patterns, "now say") is False
    write(os.path.join(kit.config_home(world.env), "ctx_hooks", "contextrc"), text)
    world.settings("")
    settings = kit.read_settings(world.root, world.env)
    assert settings["monitor.notify"] == "desktop" and settings["wrap.ready_patterns"][0] == "(a*)*b"
