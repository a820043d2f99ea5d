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


def value_of(settings, name, like):
    """A setting's value as something of the same type as `like`."""
    if isinstance(like, list):
        return [float(word) if like and isinstance(like[0], float) else word for word in settings.words(name)]
    if isinstance(like, bool):
        return settings.is_on(name)
    return settings.number(name) if isinstance(like, (int, float)) else settings.text(name)


def holds(settings, expected):
    """Whether the settings are these, and the defaults else."""
    found = {name: value_of(settings, name, value) for name, value in expected.items()}
    return found == expected and set(settings.values) <= set(expected)


@pytest.mark.parametrize("name", names("valid"))
def test_a_valid_file_holds_what_it_should(name):
    settings = settings_of(kit.read_text(data("config", "valid", name + ".yaml")))
    expected = json.loads(read(data("config", "valid", name + ".json")))
    assert settings.problems == []
    assert holds(settings, expected)


@pytest.mark.parametrize("name", names("invalid"))
def test_a_bad_line_is_reported_with_line_and_column(name):
    settings = settings_of(kit.read_text(data("config", "invalid", name + ".yaml")))
    places = ["%d:%d" % problem[:2] for problem in settings.problems]
    assert places == read(data("config", "invalid", name + ".txt")).split()
    assert all(what for _, _, what in settings.problems)
    assert holds(settings, json.loads(read(data("config", "invalid", name + ".json"))))


@pytest.mark.posix("the folders of XDG")
def test_the_projects_settings_win_over_the_users(world):
    own = os.path.join(world.home, ".config", "ctx_hooks", "contextrc")
    write(own, "gate.mode: off\nhandoff.threshold: 50\n")
    world.settings("handoff.threshold: 60\n")
    settings = kit.read_settings(world.root, world.env)
    assert (settings.text("gate.mode"), settings.text("handoff.threshold")) == ("off", "60")
    moved = dict(world.env, XDG_CONFIG_HOME=world.temp)
    assert kit.read_settings(world.root, moved).text("gate.mode") == "directive"


def test_of_a_long_file_only_the_beginning_is_read(world):
    """Sixteen nested ones of 64 KB took two seconds at every hook."""
    world.settings("gate:\n  mode: off\n" + "a:\n" * 170_000)
    settings = kit.read_settings(world.root, world.env)
    assert settings.text("gate.mode") == "off" and len(settings.problems) < 6_000


def test_no_text_makes_the_reader_fail(rounds):
    chance = random.Random(2)
    pieces = ["gate", "files", ":", " ", "\n", "- ", "[", "]", ",", "'", '"', "#", "\t", "handoff", "threshold"]
    pieces += ["off", "9", "\0", "é", "auto.about.", "*", "..", "/", "---", "km"]
    for _ in range(rounds(600)):
        settings = settings_of("".join(chance.choice(pieces) for _ in range(chance.randrange(40))))
        kit.handoff_point(settings, kit.Fullness())
        assert all(line > 0 and column > 0 for line, column, _ in settings.problems)


def test_a_pattern_that_is_none_or_would_fit_every_line_is_dropped(world):
    text = "wrap:\n  ready_patterns: [ask, '%s']\n"
    world.settings(text % "*: *")
    path = write(kit.settings_path(world.env), text % "a(")
    for _ in range(2):  # the project's, then the user's own
        settings = kit.read_settings(world.root, world.env)
        assert settings.words("wrap.ready_patterns") == ["ask"]
        assert any("wrap.ready_patterns: " in what for _, _, what in settings.problems)
        world.settings("")
    os.unlink(path)


def test_what_reaches_out_of_the_text_counts_from_the_users_own_settings_alone(world):
    text = "monitor:\n  notify: desktop\nwrap:\n  ready_patterns: [(a*)*b, 'say*now']\n"
    world.settings(text)
    settings = kit.read_settings(world.root, world.env)
    assert settings.text("monitor.notify") == "off" and "your own settings" in settings.problems[0][2]
    patterns = settings.words("wrap.ready_patterns")
    assert kit.is_prompt("x (aaa)aab", patterns) and not kit.is_prompt("aab", patterns)
    assert kit.is_prompt("please say it now", patterns) and not kit.is_prompt("now say", patterns)
    write(kit.settings_path(world.env), text)
    world.settings("")
    settings = kit.read_settings(world.root, world.env)
    assert settings.text("monitor.notify") == "desktop" and settings.words("wrap.ready_patterns")[0] == "(a*)*b"
