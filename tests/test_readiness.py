"""Readiness: from what a program printed and what the kernel says to a confidence. Pure functions."""
from __future__ import annotations

import random

import pytest

from helper import load_kit

kit = load_kit()


def look(**fields):
    values = {"process": None, "silent_ms": 0, "text": "", "patterns": [], "answer": "", "room": 0}
    return kit.Glance(**{**values, **fields})


@pytest.mark.parametrize(
    "silent_ms, expected", [(0, 0), (499, 0), (500, 500 / 3000), (1500, 0.5), (2400, 0.8), (60_000, 0.8)])
def test_silence_counts_from_half_a_second_up_to_its_limit(silent_ms, expected):
    assert kit.silence_confidence(silent_ms) == pytest.approx(expected)


@pytest.mark.parametrize("text", [
    "All done.", "Really?", "Yes!", 'He said "go."', "(see above.)", "```\ncode\n```", "some text\n\n", "list:\n\n",
    "> ", "user@host:~$ ", ">>> ", "❯ ", "In [1]\n>", "text\n  > \n",
])
def test_output_that_is_finished_ends_naturally(text):
    assert kit.natural_confidence(text, 200) == 0.6


@pytest.mark.parametrize("text", [
    "", "\n\n", "one,", "one, \n", "a dash -", "a dash —", "call(", "[", "{", "the wor", "Loading...", "wait..",
    "```python\nprint(1).", "```\na\n```\n```\nb\n\n", "one,\n\n", "list:",
])
def test_output_that_goes_on_does_not_end_naturally(text):
    assert kit.natural_confidence(text, 10_000) == 0.0


def test_a_natural_end_needs_a_short_silence():
    assert kit.natural_confidence("Done.", 199) == 0.0


@pytest.mark.parametrize("state, wchan, terminal, expected", [
    ("R", "0", False, 0.0), ("R", "n_tty_read", True, 0.0), ("D", "wait_woken", True, 0.0), ("T", "", False, 0.0),
    ("Z", "", False, 0.0),
    ("S", "wait_woken", True, 0.95), ("S", "n_tty_read", True, 0.95), ("S", "poll_schedule_timeout", True, 0.95),
    ("S", "do_select", True, 0.95), ("S", "do_epoll_wait", True, 0.95), ("S", "ep_poll", True, 0.95),
    ("S", "unix_stream_read_generic", True, 0.95), ("S", "pipe_read", True, 0.95),
    ("S", "do_epoll_wait", False, None), ("S", "hrtimer_nanosleep", True, None), ("S", "0", True, None),
    ("", "", False, None),
])
def test_the_state_of_the_process_becomes_a_confidence(state, wchan, terminal, expected):
    assert kit.process_confidence(state, wchan, terminal) == expected


@pytest.mark.parametrize("stat, state", [
    ("12 (cat) S 1 12", "S"), ("12 (a) R (b) R 1", "R"), ("12 (evil) Z) S 1", "S"), ("12 (x y) D 1", "D"), ("", ""),
])
def test_the_state_is_read_after_the_last_bracket(stat, state):
    assert kit.parse_state(stat) == state


@pytest.mark.parametrize("wchan, fd_link, links, expected", [
    ("wait_woken", "/dev/pts/7", [], True), ("wait_woken", "/dev/tty", [], True),
    ("wait_woken", "socket:[9]", ["/dev/pts/7"], False), ("wait_woken", "/dev/pts/8", [], False),
    ("wait_woken", "", ["/dev/pts/7"], False), ("n_tty_read", "", [], True), ("pipe_read", "pipe:[1]", [], False),
    ("do_select", "", ["/dev/pts/7"], True), ("do_select", "", ["/dev/null"], False),
    ("do_epoll_wait", "", ["/dev/pts/7", "pipe:[1]", "pipe:[1]", "anon_inode:[eventpoll]"], True),
    ("do_epoll_wait", "", ["/dev/pts/7", "pipe:[1]"], False),
    ("do_epoll_wait", "", ["/dev/pts/7", "socket:[1]"], False),
])
def test_only_a_wait_that_nothing_but_the_terminal_can_end_is_certain(wchan, fd_link, links, expected):
    assert kit.is_terminal_wait(wchan, fd_link, links, "/dev/pts/7") is expected


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


def test_a_mode_switch_that_is_cut_in_two_is_seen():
    screen = kit._Screen(0.0)
    for part in (b"text \x1b[?20", b"04h", b"\x1b[?1049h and \x1b[?104", b"9l"):
        screen.feed(part, 1.0)
    assert screen.modes == {"2004"}


def test_the_buffer_of_output_is_bounded_and_keeps_the_end():
    screen = kit._Screen(0.0)
    for number in range(3000):
        screen.feed(b"%099d\n" % number, 1.0)
    assert len(screen.raw) == kit.WRAP_BUFFER_BYTES
    assert screen.text().endswith("2999\n")
    assert screen.text(screen.total - 5) == "2999\n"
    assert screen.text(screen.total) == ""


