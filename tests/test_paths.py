"""Paths: outside strings become safe file names."""
from __future__ import annotations

import os
import posixpath
import random

import pytest

from helper import IS_WINDOWS

on_posix = pytest.mark.skipif(IS_WINDOWS, reason="of these paths Windows thinks otherwise: test_windows")
UUID = "0f3a2b7c-5d1e-4c1b-9a75-3f0f7c1d2e4b"
HOSTILE = [
    "a", "A", "aA", "Aa", UUID, UUID.upper(), "..", ".", "../../etc/passwd", "..\\..\\x", "/etc/passwd", "a/b", "a_b",
    "a\0b", "\0", "a" * 10240, "a" * 10241, "a" * 80, "a" * 81, " ", "a ", " a", "a.", ".a", "-rf", "--help", "~", "~root",
    "a~b", "é", "e\u0301", "É", "中文", "\U0001f600", "\ud800", "\udfff", "\udc80", "\n", "a\nb", "a\r", "con", "CON",
    "con.txt", "nul", "com1", "lpt9", "aux.json", "$(id)", "`id`", "a;b", "*", "?", "a:b", "|", "<x>", '"', "'", "%00",
    "%2e%2e", "x~" + "0" * 24, "\u202e", "\ufb01", "fi", "K", "\u212a", "\u0131", "i", "global", "pause", "monitor-state",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_string_becomes_one_short_plain_component(kit, text):
    name = kit.safe_name(text)
    assert name and len(name) <= kit.NAME_LIMIT
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-~")
    assert name not in (".", "..") and name[0] not in ".-~" and name[-1] != "."
    assert os.path.normpath(os.path.join("base", name)) == os.path.join("base", name)


def test_distinct_strings_stay_distinct(kit):
    assert len({kit.safe_name(text) for text in HOSTILE}) == len(HOSTILE)


def test_distinct_random_strings_stay_distinct(kit, rounds):
    rng, seen = random.Random(31), {}
    for _ in range(rounds(5000)):
        text = "".join(rng.choice("aAbB.-_~/\0é\ud800 01") for _ in range(rng.randrange(1, 6)))
        assert seen.setdefault(kit.safe_name(text), text) == text


def test_names_are_stable_and_ordinary_ids_stay_readable(kit):
    assert kit.safe_name(UUID) == UUID
    assert kit.safe_name("context-health") == "context-health"
    assert kit.safe_name("a" * kit.NAME_LIMIT) == "a" * kit.NAME_LIMIT
    assert kit.safe_name("../../etc/passwd").startswith("etc_passwd~")
    assert kit.safe_name("") == ""


def test_a_safe_name_is_not_changed_again_unless_it_was_hashed(kit):
    for text in HOSTILE:
        name = kit.safe_name(text)
        if "~" not in name:
            assert kit.safe_name(name) == name == text


@pytest.mark.parametrize("name", ["global", "pause", "fallback", "monitor-state", "auto-state", "metrics", "events.jsonl",
                                  "errors.log"])
def test_a_session_cannot_take_the_name_of_a_file_of_our_own(kit, name):
    """Their state and lock files stand in one folder, and `global:` is a prefix in monitor-state.json."""
    assert kit.safe_name(name) != name


@pytest.mark.parametrize("base, name, joined", [
    ("/p", "a", "/p/a"), ("/p", "./a/../b", "/p/b"), ("/p", "../x", "/x"), ("/p", "../../..", "/"), ("/p", "/abs", "/abs"),
    ("/", "a", "/a"), ("/p/", "", "/p"), ("/p", ".", "/p"), ("/p", "a//b/", "/p/a/b"), ("/p", " ", "/p/ "),
    pytest.param("/p", "a\\b", "/p/a\\b", marks=on_posix), pytest.param("/p", "//x", "/x", marks=on_posix),
])
def test_paths_are_joined_as_text(kit, base, name, joined):
    assert kit.join_path(base, name) == joined


@pytest.mark.parametrize("path, base, below", [
    ("/p/a", "/p", True), ("/p", "/p", True), ("/pa", "/p", False), ("/", "/p", False), ("/x", "/", True), ("/p/a", "/p/", True),
])
def test_below_means_the_folder_itself_or_inside(kit, path, base, below):
    assert kit.is_below(path, base) is below


def test_parents_end_at_the_root(kit):
    assert [kit.parent_of(path) for path in ("/a/b", "/a/b/", "/a", "/")] == ["/a", "/a", "/", "/"]
    assert [kit.base_name(path) for path in ("/a/b", "/a/b/", "a")] == ["b", "b", "a"]


def test_a_joined_path_never_leaves_the_root(kit, rounds):
    rng = random.Random(32)
    for _ in range(rounds(2000)):
        name = "/".join(rng.choice(["..", ".", "", "a", "b c", "..."]) for _ in range(rng.randrange(9)))
        if IS_WINDOWS and name.startswith("//"):
            continue  # a server's name begins so
        joined = kit.join_path("/p/q", name)
        assert joined == posixpath.normpath(posixpath.join("/p/q", name)).replace("//", "/")


def test_links_are_resolved(kit, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert kit.real_path(str(tmp_path / "link" / "x")) == os.path.realpath(str(tmp_path / "real" / "x"))
