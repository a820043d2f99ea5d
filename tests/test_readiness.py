"""Readiness: from what a program printed and what the kernel says to a confidence. Pure functions."""
from __future__ import annotations

import random

import pytest

from helper import load_kit

kit = load_kit()


def look(**fields):
    values = {"process": None, "silent_ms": 0, "text": "", "patterns": []}
    return kit.Glance(**{**values, **fields})


@pytest.mark.parametrize(
    "silent_ms, expected", [(0, 0), (499, 0), (500, 500 / 3000), (1500, 0.5), (2400, 0.8), (60_000, 0.8)])
def test_silence_counts_from_half_a_second_up_to_its_limit(silent_ms, expected):
    assert kit.readiness(look(silent_ms=silent_ms)) == pytest.approx(expected)


@pytest.mark.parametrize("text", [
    "All done.", "Really?", "Yes!", 'He said "go."', "(see above.)", "```\ncode\n```", "some text\n\n", "list:\n\n",
    "> ", "user@host:~$ ", ">>> ", "❯ ", "In [1]\n>", "text\n  > \n",
])
def test_output_that_is_finished_ends_naturally(text):
    assert kit.readiness(look(text=text, silent_ms=200)) == 0.6


@pytest.mark.parametrize("text", [
    "", "\n\n", "one,", "one, \n", "a dash -", "a dash —", "call(", "[", "{", "the wor", "Loading...", "wait..",
    "```python\nprint(1).", "```\na\n```\n```\nb\n\n", "one,\n\n", "list:",
])
def test_output_that_goes_on_does_not_end_naturally(text):
    assert kit.readiness(look(text=text, silent_ms=499)) == 0.0


def test_a_natural_end_needs_a_short_silence():
    assert kit.readiness(look(text="Done.", silent_ms=199)) == 0.0


TTY = "/dev/pts/7"


@pytest.mark.parametrize("stat, expected", [
    ("12 (cat) S 1 12", 0.95), ("12 (cat) R 1", 0.0), ("12 (cat) D 1", 0.0), ("12 (cat) T 1", 0.0), ("12 (cat) Z 1", 0.0),
    ("12 (a) R (b) S 1", 0.95), ("12 (evil) S) R 1", 0.0), ("12 (x y) S 1", 0.95), ("", None),
])
def test_the_state_is_read_after_the_last_bracket_and_a_running_process_is_not_ready(stat, expected):
    assert kit.process_confidence(stat, "wait_woken", [TTY], TTY) == expected


@pytest.mark.parametrize("wchan", ["wait_woken", "poll_schedule_timeout", "do_select", "n_tty_read", "pipe_read",
                                   "unix_stream_read_generic", "do_epoll_wait", "ep_poll"])
def test_a_wait_for_input_is_certain_when_only_the_terminal_can_end_it(wchan):
    assert kit.process_confidence("1 (a) S", wchan, ["/dev/null", TTY], TTY) == 0.95
    assert kit.process_confidence("1 (a) S", wchan, ["/dev/tty"], TTY) == 0.95
    assert kit.process_confidence("1 (a) S", wchan, [TTY, "pipe:[1]", "pipe:[1]", "anon_inode:[eventpoll]"], TTY) == 0.95


@pytest.mark.parametrize("wchan, links", [
    ("hrtimer_nanosleep", [TTY]), ("0", [TTY]), ("", [TTY]), ("do_wait", [TTY]), ("do_select", []),
    ("do_select", ["/dev/null"]), ("wait_woken", ["/dev/pts/8"]), ("wait_woken", [TTY, "socket:[9]"]),
    ("do_epoll_wait", [TTY, "pipe:[1]"]),
])
def test_a_wait_that_something_else_may_end_says_nothing(wchan, links):
    assert kit.process_confidence("1 (a) S", wchan, links, TTY) is None


@pytest.mark.parametrize("fields, expected", [
    ({}, 0.0),
    ({"process": 0.95}, 0.95),
    ({"process": 0.95, "silent_ms": 600}, 1.0),
    ({"silent_ms": 1500}, 0.5),
    ({"silent_ms": 300, "text": "> "}, 0.6),
    ({"silent_ms": 1800, "text": "> "}, 0.7),
    ({"silent_ms": 2100, "text": "> "}, 0.8),
    ({"silent_ms": 60_000, "text": "and"}, 0.8),
    ({"silent_ms": 60_000, "text": "> "}, 0.9),
    ({"process": 0.0, "silent_ms": 60_000, "text": "> "}, 0.0),
    ({"process": 0.95, "silent_ms": 60_000, "text": "> ", "editor": True}, 0.0),
    ({"silent_ms": 300, "text": "ask me", "patterns": ["^ask me"]}, 0.9),
    ({"silent_ms": 300, "text": "ask me", "patterns": ["^ask me"], "editor": True}, 0.9),
    ({"silent_ms": 100, "text": "ask me", "patterns": ["^ask me"]}, 0.0),
    ({"silent_ms": 300, "text": "ask me\n" + "more\n" * 9, "patterns": ["^ask me"]}, 0.0),
    ({"silent_ms": 300, "text": "ask me", "patterns": ["(", "me$"]}, 0.9),
])
def test_the_strongest_evidence_wins_and_agreement_adds_a_little(fields, expected):
    assert kit.readiness(look(**fields)) == pytest.approx(expected)


def test_readiness_is_always_between_nought_and_one():
    rng = random.Random(6)
    for _ in range(2000):
        text = "".join(rng.choice("ab.,>$`\n -[❯") for _ in range(rng.randrange(30)))
        process, silent_ms = rng.choice([None, 0.0, 0.95]), rng.randrange(5000)
        seen = look(process=process, silent_ms=silent_ms, text=text, patterns=["a", "["])
        assert 0.0 <= kit.readiness(seen) <= 1.0


@pytest.mark.parametrize("raw, text", [
    ("plain", "plain"),
    ("\x1b[1;31mred\x1b[0m", "red"),
    ("ACK:\x1b[1Ccontext\x1b[2Creceived", "ACK: context  received"),
    ("one\x1b[5;1Htwo", "one\ntwo"),
    ("a\r\nb\r\r\nc\rd", "a\nb\nc\nd"),
    ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y", "xy"),
    ("\x1bP1$r0m\x1b\\z\x1b(Bq\x1b=\x1b>", "zq"),
    ("cut \x1b[12", "cut "), ("cut \x1b", "cut "), ("bell\x07\x08", "bell"),
    ("\x1b[?2004h> ", "> "),
])
def test_escape_sequences_become_the_text_a_person_sees(raw, text):
    assert kit.strip_escapes(raw) == text


def test_stripping_survives_any_bytes():
    rng = random.Random(7)
    for _ in range(2000):
        raw = "".join(rng.choice("\x1b\x1b[]P?;012hlmCH\x07\\a\r\n") for _ in range(rng.randrange(40)))
        assert "\x1b" not in kit.strip_escapes(raw)


@pytest.mark.parametrize("output, modes", [
    ("\x1b[?2004h", {"2004"}), ("\x1b[?2004h\x1b[?2004l", set()), ("\x1b[?1049h", {"1049"}),
    ("\x1b[?1049;2004h", {"1049", "2004"}), ("\x1b[?25l\x1b[?1h", set()), ("\x1b[2004h", set()),
])
def test_modes_are_on_until_they_are_switched_off(output, modes):
    assert kit.track_modes(frozenset(), output) == modes
