"""Files: reading, atomic writing, names, times."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys

import pytest

from helper import IS_WINDOWS, KIT, kit, read, write

# --- reading


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_regular_file_reads_as_empty(tmp_path, make):
    path = str(tmp_path / "odd")
    make(path)
    assert kit.read_bytes(path) == b"" and kit.read_text(path) == "" and kit.read_object(path) == {}


@pytest.mark.parametrize("path", ["", "/none/at/all", "a\0b", "x" * 5000, "/dev/full/x", "\ud800"])
def test_a_hostile_path_is_nothing(path):
    assert kit.read_bytes(path) == b"" and kit.modified_at(path) == 0.0 and kit.size_of(path) == 0
    kit.remove_file(path)
    kit.remove_folder(path)


def test_reads_are_bounded(tmp_path):
    path = write(str(tmp_path / "f"), b"0123456789")
    assert kit.read_bytes(path, 4) == b"0123" and kit.read_bytes(path, 4, start=8) == b"89"


def test_a_text_is_read_without_bom_or_carriage_returns(tmp_path):
    path = str(tmp_path / "f")
    assert kit.read_text(write(path, b"\xef\xbb\xbfa\r\nb\xff")) == "a\nb\ufffd"
    assert kit.read_text(write(path, "für\r\n".encode("utf-16"))) == "für\n"


NO_OBJECTS = ["", "{", "[1]", "3", "null", '"x"', "{}x", "[" * 99_999, b"\xff", b"\xfe\xff{}"]


@pytest.mark.parametrize("text", NO_OBJECTS, ids=range(len(NO_OBJECTS)))
def test_what_is_no_json_object_is_an_empty_one(text):
    assert kit.parse_object(text) == {}


def test_a_state_that_cannot_be_used_is_renamed(tmp_path):
    path = str(tmp_path / "s.json")
    for content in ("{broken", "\0" * 50, "[1]"):
        assert kit.load_state(write(path, content)) == {}
        assert read(path + ".corrupt") == content and not os.path.exists(path)
    assert kit.load_state(write(path, "{}")) == {} and os.path.exists(path)


# --- writing


def test_a_write_leaves_nothing_but_the_new_file(tmp_path):
    path = str(tmp_path / "deep" / "er" / "f")
    assert kit.write_atomically(path, "one") and kit.write_atomically(path, "twö")
    assert read(path) == "twö" and os.listdir(os.path.dirname(path)) == ["f"]
    assert IS_WINDOWS or stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


@pytest.mark.posix("the modes of files")
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    path = write(str(tmp_path / "f"), "one")
    os.chmod(path, 0o640)
    assert kit.write_atomically(path, "two") and stat.S_IMODE(os.stat(path).st_mode) == 0o640


@pytest.mark.parametrize("is_draft", [False, True])
def test_a_link_in_the_place_of_a_file_or_its_draft_is_not_written_through(tmp_path, is_draft):
    target, path = write(str(tmp_path / "target"), "mine"), str(tmp_path / "f")
    os.symlink(target, "%s.tmp-%d" % (path, os.getpid()) if is_draft else path)
    assert kit.write_atomically(path, "new") != is_draft
    assert read(target) == "mine" and not os.path.islink(path)


@pytest.mark.parametrize("where", ["folder", "file/below", "nul\0", "x" * 300])
def test_a_write_that_cannot_be_leaves_nothing(tmp_path, where):
    write(str(tmp_path / "folder" / "f"), "x")
    write(str(tmp_path / "file"), "x")
    assert not kit.write_atomically(str(tmp_path / where), "new")
    assert sorted(os.listdir(str(tmp_path))) == ["file", "folder"]


@pytest.mark.posix("a file that is being replaced cannot be read on Windows")
def test_readers_never_see_half_a_file(tmp_path):
    path = write(str(tmp_path / "f"), "a" * 100_000)
    code = (
        "import sys; from importlib.machinery import SourceFileLoader as L;"
        "kit = L('kit', sys.argv[1]).load_module();"
        "[kit.write_atomically(sys.argv[2], 'ab'[n % 2] * 100000) for n in range(300)]"
    )
    writer = subprocess.Popen([sys.executable, "-W", "ignore", "-B", "-c", code, KIT, path])
    seen = set()
    while writer.poll() is None:
        seen.add(read(path))
    assert writer.returncode == 0 and seen <= {"a" * 100_000, "b" * 100_000}


def test_files_are_listed_newest_first_without_links_and_folders(tmp_path):
    for number, name in enumerate(("a.md", "b.md", "c.txt")):
        write(str(tmp_path / name), "x", 1000.0 + number)
    os.mkdir(str(tmp_path / "d.md"))
    os.symlink("a.md", str(tmp_path / "l.md"))
    assert [os.path.basename(path) for path, _ in kit.list_files(str(tmp_path), kit.MARKDOWN)] == ["b.md", "a.md"]


# --- names


def test_distinct_strings_become_distinct_short_plain_names(rounds):
    chance = random.Random(9)
    strings = {"", ".", "..", "../x", "a\0b", "~", "-rf", "ä", "\ud800", "$(x)", "CON", "x" * 999}
    strings |= {"x" * 500 + str(number) for number in range(50)}
    letters = "aA.%-_/ \\é\n2F0"
    for _ in range(rounds(3000)):
        strings.add("".join(chance.choice(letters) for _ in range(chance.randrange(1, 6))))
    names = {kit.safe_name(text) for text in strings}
    assert len(names) == len(strings)
    for name in names:
        assert len(name) <= 120 and not name.startswith(".")
        assert all(letter.isalnum() and letter.isascii() or letter in "._-%" for letter in name)
    ordinary = "dd18d00f-6f8a-4014-8cbe-3e108545d8bd"
    assert kit.safe_name(ordinary) == ordinary


@pytest.mark.parametrize(
    "path, is_inside", [("f", True), ("", True), ("x/../f", True), ("..", False), ("out", False), ("../folder2", False)]
)
def test_inside_means_with_links_resolved(tmp_path, path, is_inside):
    folder = str(tmp_path / "folder")
    os.mkdir(folder)
    os.symlink(str(tmp_path), os.path.join(folder, "out"))
    assert kit.is_inside(os.path.join(folder, path), folder) == is_inside


# --- times

ONE_TIME = [
    "2026-02-03T10:45:00Z",
    "2026-02-03T10:45:00.123Z",
    "2026-02-03 10:45:00",
    "2026-02-03T10:45Z",
    "2026-02-03t10:45:00z",
    "2026-02-03T12:45:00+02:00",
    "2026-02-03T12:45:00+0200",
    "2026-02-03T05:15:00,5-0530",
    " 2026-02-03T10:45:00Z ",
]
NO_TIMES = ["", "now", "2026-02-03", "2026-13-01T00:00:00Z", "2026-02-30T10:00:00Z", None, 7, "x" * 9999]


@pytest.mark.parametrize("text", ONE_TIME)
def test_every_common_form_of_a_time_is_understood(text):
    assert kit.parse_iso(text) == 1_770_115_500.0


@pytest.mark.parametrize("text", NO_TIMES, ids=range(len(NO_TIMES)))
def test_what_is_no_time_is_zero(text):
    assert kit.parse_iso(text) == 0.0


def test_times_of_clients_and_ours_can_be_compared_as_texts():
    moments = ["2026-02-03T10:45:00Z", "2026-02-03T10:45:00.0624Z", "2026-02-03T10:45:00.5Z", "2026-02-03T10:45:01Z"]
    ours = [kit.format_iso(1_770_115_500.0 + after) for after in (0.0, 0.0625, 0.5, 1.0)]
    assert [kit.exact_iso(moment) for moment in moments] == ours == sorted(ours)
    assert [kit.exact_iso(text) for text in ("", "soon", "2026-02-03")] == ["", "", ""]


def test_an_age_in_words():
    ages = {-5: "0 s", 59: "59 s", 60: "1 min", 3599: "59 min", 3600: "1 h", 86_399: "23 h", 172_800: "2 days"}
    assert {seconds: kit.format_age(seconds) for seconds in ages} == ages
