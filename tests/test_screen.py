"""Screen: what stands on a terminal, and whether the program behind it waits for a line."""
from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helper import IS_WINDOWS, load_kit

kit = load_kit()
SCREENS = Path(__file__).resolve().parent / "data" / "wrap" / "screens"
TTY = "/dev/pts/7"
GUARD_S = 30
WITH_PATTERNS = pytest.mark.skipif(IS_WINDOWS, reason="only wrap matches patterns, which needs a terminal of POSIX")


def look(**fields):
    """A glance; only what a test is about has to be named."""
    values = {"process": None, "programs": [], "silent_ms": 0, "gone": [], "lines": [], "row": 0, "before": "", "raw": False,
              "hidden": False, "paste": False, "alternate": False, "typing": False, "ended": False}
    text = fields.pop("text", None)
    if text is not None:  # printed by a program that prints line after line
        fields["lines"] = text.split("\n")
        fields["row"], fields["before"] = len(fields["lines"]) - 1, fields["lines"][-1]
    return kit.Record(**{**values, **fields})


def shown(raw, size=(6, 20)):
    screen = kit.Screen(*size)
    screen.feed(raw.encode() if isinstance(raw, str) else raw)
    return screen


# --- the model of the screen ---------------------------------------------------------------------


def test_what_a_program_left_on_is_switched_off_and_nothing_else():
    assert kit.format_restore({25, 7, 12, 1034}) == b""
    left = shown("\x1b[?1049h\x1b[?25l\x1b[?1003h\x1b[?1006h\x1b[?2004h\x1b[>1u")
    left.feed(kit.format_restore(left.modes))
    assert left.modes == {25}


@pytest.mark.parametrize("raw, lines, cursor", [
    ("plain", ["plain"], (0, 5)),
    ("a\r\nb\nc\rd", ["a", "b", "dc"], (2, 1)),
    ("\x1b[1;31mred\x1b[0m", ["red"], (0, 3)),
    ("ACK:\x1b[1Ccontext", ["ACK: context"], (0, 12)),
    ("one\x1b[3;2Htwo", ["one", "", " two"], (2, 4)),
    ("abc\x1b[2D\x1b[K", ["a"], (0, 1)),
    ("abc\x1b[2D\x1b[1Kx", [" xc"], (0, 2)),
    ("abc\x1b[2D\x1b[1K", ["  c"], (0, 1)),
    ("a\r\nb\r\nc\x1b[2A\x1b[J", ["a"], (0, 1)),
    ("a\r\nb\x1b[1J", [], (1, 1)),
    ("a\r\nb\x1b[2J\x1b[Hc", ["c"], (0, 1)),
    ("abcdef\x1b[4G!", ["abc!ef"], (0, 4)),
    ("abcd\x1b[2G\x1b[2X", ["a  d"], (0, 1)), ("ab\x1b[9X", ["ab"], (0, 2)), ("abcd\x1b[2G\x1b[99X", ["a"], (0, 1)),
    ("ab\x1b[scd\x1b[uX", ["abXd"], (0, 3)), ("a\x1b[2;3fb\x1b[Ec\x1b[2Fd", ["d", "  b", "c"], (0, 1)),
    ("ab\x1b7cd\x1b8X", ["abXd"], (0, 3)),
    ("1\t2", ["1       2"], (0, 9)),
    ("ab\b\bX", ["Xb"], (0, 1)),
    ("x" * 25, ["x" * 20, "x" * 5], (1, 5)),
    ("x" * 20, ["x" * 20], (0, 20)),
    ("日本x", ["日本x"], (0, 5)), ("x" * 19 + "日", ["x" * 19, "日"], (1, 2)),
    ("e\u0301\u200d!", ["e!"], (0, 2)),
    ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\y\x1bP1$r0m\x1b\\z\x1b(Bq\x1b=", ["xyzq"], (0, 4)),
    ("\x1b[9999;9999Hx", ["", "", "", "", "", " " * 19 + "x"], (5, 20)),
    ("a\x1bc", [], (0, 0)),
    ("bell\x07", ["bell"], (0, 4)),
])
def test_output_becomes_the_lines_that_a_person_sees(raw, lines, cursor):
    screen = shown(raw)
    assert screen.lines() == lines + [""] * (6 - len(lines))
    assert (screen.y, screen.x) == cursor


@pytest.mark.parametrize("text, width", [("abc", 3), ("█░·…→✓●○", 8), ("日本", 4), ("e\u0301", 1), ("⚠️", 1), ("", 0)])
def test_wide_characters_take_two_cells_and_marks_none(text, width):
    assert shown(text).x == width


def test_lines_scroll_off_and_are_kept_for_a_while():
    screen = shown("".join("line %d\r\n" % n for n in range(1000)))
    assert screen.lines()[:5] == ["line %d" % n for n in range(995, 1000)]
    assert screen.gone[-1] == "line 994" and len(screen.gone) == kit.SCREEN_KEPT_LINES


def test_a_scroll_region_leaves_the_lines_around_it():
    screen = shown("top\x1b[6;1Hlast\x1b[2;5r\x1b[5;1Ha\nb\r\nc\x1b[r")
    assert screen.lines() == ["top", "", "a", " b", "c", "last"]
    assert shown("1\r\n2\r\n3\x1b[1;1H\x1bM").lines()[:3] == ["", "1", "2"]


def test_the_other_screen_covers_the_usual_one_and_gives_it_back():
    screen = shown("mine\x1b[?1049h\x1b[2J\x1b[Heditor")
    assert screen.is_alternate() and screen.lines()[0] == "editor"
    screen.feed(b"\x1b[?1049l")
    assert not screen.is_alternate() and screen.lines()[0] == "mine" and not screen.gone


def test_another_window_size_keeps_the_line_of_the_cursor():
    screen = shown("1\r\n2\r\n3\r\n4")
    screen.resize(2, 10)
    assert screen.lines() == ["3", "4"] and screen.before_cursor() == "4"
    screen.resize(4, 40)
    screen.feed(b"x" * 30)
    assert screen.lines() == ["3", "4" + "x" * 30, "", ""]


PIECES = ["\x1b[", "?1049", "h", "l", "2J", "K", "A", "H", ";", "7", "12", "\x1b", "]0;t", "\x07", "日", "é", "text ", "\r", "\n",
          "\t", "\b", "M", "r", "L", "S", "T", "@", "P", "m", "\x1b7", "\x1b8", "9999"]


def test_any_output_leaves_a_whole_screen_however_it_is_cut(rounds):
    rng = random.Random(6)
    for _ in range(rounds(300)):
        raw = "".join(rng.choice(PIECES) for _ in range(rng.randrange(60))).encode() + bytes(rng.randrange(256) for _ in range(3))
        at_once, pieces = kit.Screen(5, 9), kit.Screen(5, 9)
        at_once.feed(raw)
        for i in range(len(raw)):
            pieces.feed(raw[i:i + 1])
        assert at_once.lines() == pieces.lines() and at_once.modes == pieces.modes
        assert (at_once.y, at_once.x) == (pieces.y, pieces.x)
        assert len(at_once.grid) == 5 and all(len(row) <= 9 for row in at_once.grid)


def test_a_control_sequence_that_never_ends_is_not_kept_for_ever():
    screen = shown("\x1b]0;")
    for _ in range(20):
        screen.feed(b"x" * 16_384)
        assert len(screen._rest) <= 50_002
    assert screen.lines()[0] == "x" * 20
    screen.feed(b"\x1b[2J\x1b[Hback")
    assert screen.lines()[0] == "back"


@pytest.mark.parametrize("raw, modes", [
    ("\x1b[?2004h", {25, 2004}), ("\x1b[?2004h\x1b[?2004l", {25}), ("\x1b[?25l\x1b[?1000;1006h", {1000, 1006}),
    ("\x1b[>1u", {25, kit.KITTY_MODE}), ("\x1b[>1u\x1b[<u", {25}),
    ("\x1b[?2004h\x1bc", {25}), ("\x1b[2004h", {25}), ("\x1b[?u", {25}),
])
def test_modes_are_on_until_they_are_switched_off(raw, modes):
    assert shown(raw).modes == modes


# --- what stands on it ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(SCREENS.glob("*.txt")), ids=lambda path: path.stem)
def test_the_screens_of_real_agents_are_read_rightly(path):
    head, _, text = path.read_text(encoding="utf-8").partition("\n")
    facts = json.loads(head)
    seen = look(process=0.95, silent_ms=900, lines=text.split("\n"), raw=True, **{
        name: facts[name] for name in ("row", "before", "paste", "alternate")})
    assert kit.find_obstacle(seen) == facts["obstacle"]
    prompt = kit.AGENTS[facts["agent"]][0]
    is_ready = kit.readiness(seen, prompt) > kit.READY_ABOVE and not kit.find_obstacle(seen)
    assert is_ready == facts["ready"]


@pytest.mark.parametrize("text", [
    "Overwrite notes.txt? [y/N] ", "Proceed (y/n)? ", "Add it? (Y)es/(N)o [Yes]: ", "Do you trust this folder?\n> ",
    "Allow it to run?\n", "? Pick one (Use arrow keys)\n❯ red\n  blue", "❯ 1. Yes\n  2. No", "> No, exit\n  Yes, I trust it",
    "  Yes\n  No", "● 1. Allow once\n  2. Deny", "Press any key to go on", "Press Enter to continue…", "Enter to confirm · Esc to cancel",
    "[sudo] password for user: ", "Enter passphrase for key '/home/user/.ssh/id': ", "Your API key: ", "Verification code: ",
    "Which one?\n1. red\n2. blue\n3. green\n> ", "❯ 1. red\n   a colour\n   of old\n  2. blue",
    "Are you sure you want to continue connecting (yes/no/[fingerprint])? ", "Apply this change?\n │ ● 1. Yes │\n │   2. No  │",
])
def test_a_question_is_seen(text):
    assert kit.find_obstacle(look(text=text)) == "a question"


@pytest.mark.parametrize("text", [
    "> ", "Tips:\n1. Ask questions\n2. Be specific\n\n> ", "What can I do for you?\n> ", "In [1]: ", ">>> ", "",
    "Add it? (Y)es/(N)o [Yes]: y\nAider v0.86\nModel: a\n> ", "- yes\n> ", "/approvals - what may run without approval\n› ",
    "To allow more, see the settings.\n> ", "1. read the grammar\n2. write the tests\nTwo steps.\n> ",
    "Overwrite it? [y/N] no\nWelcome.\n> ", "Allow it?\n❯ 1. Yes\n  2. No\n1\nWelcome.\n> ",
    "~\n~\n> ",
])
def test_what_is_no_question_is_let_be(text):
    assert kit.find_obstacle(look(text=text)) == ""


def test_what_we_typed_ourselves_is_no_question():
    own = "The agent asked: do you want to go on? [Y/n] and then: are you sure (yes/no)?"
    typed = look(text="> " + own)
    assert kit.find_obstacle(typed) == "a question"
    assert kit.find_obstacle(typed, kit.letters_of(own)) == ""
    asked = look(text="> " + own + "\nAllow this command to run?\n❯ 1. Yes\n  2. No")
    assert kit.find_obstacle(asked, kit.letters_of(own)) == "a question"


@pytest.mark.parametrize("fields, obstacle", [
    ({"text": "Password", "hidden": True}, "hidden input"),
    ({"text": "text\n~\n~\n~\n-- INSERT --"}, "an editor or a pager"), ({"text": "line\n:"}, "an editor or a pager"),
    ({"text": "line\n(END)"}, "an editor or a pager"), ({"text": "page\n--More--(12%)"}, "an editor or a pager"),
    ({"text": "text\n^G Help  ^O Write Out\n^X Exit"}, "an editor or a pager"),
    ({"text": "> ", "programs": [["sh", "-c", "agent"], ["/usr/bin/vim", "a.txt"]]}, "an editor or a pager"),
    ({"text": "> ", "programs": [["less"]]}, "an editor or a pager"), ({"text": "$ ", "programs": [["-bash"]]}, "a shell"),
    ({"text": "user@host:~/src$ "}, "a shell"), ({"text": "[user@host ~]# "}, "a shell"), ({"text": "bash-5.2$ "}, "a shell"),
    ({"text": "• Working (3s • esc to interrupt)\n› "}, "work"), ({"text": "Thinking... (esc to cancel, 12s)\n > "}, "work"),
    ({"text": "> ", "programs": [["sh", "-c", "agent"], ["agent"]]}, ""),
])
def test_hidden_input_editors_pagers_shells_and_work_are_obstacles(fields, obstacle):
    assert kit.find_obstacle(look(**fields)) == obstacle


@pytest.mark.parametrize("command, kind", [
    ("bash", "a shell"), ("/bin/zsh -l", "a shell"), ("bash --norc -i", "a shell"), ("bash --rcfile mine", "a shell"), ("bash --rcfile 'my own' -i", "a shell"),
    ("sh -o posix", "a shell"), ("-bash", "a shell"), ("sh -s", "a shell"),
    ("sh -c true", ""), ("bash -lc agent", ""), ("bash run.sh", ""), ("bash +x run.sh", ""), ("fish -c agent", ""),
    ("vim", "an editor or a pager"), ("/usr/bin/less notes", "an editor or a pager"), ("nano -w x", "an editor or a pager"),
    ("man ls", "an editor or a pager"), ("aider", ""), ("codex bash", ""), ("", ""),
])
def test_an_interactive_shell_an_editor_and_a_pager_are_known(command, kind):
    assert kit.kind_of_command(shlex.split(command)) == kind


# --- is it waiting for a line? -------------------------------------------------------------------


@pytest.mark.parametrize("silent_ms, expected", [(0, 0), (499, 0), (500, 500 / 3000), (1500, 0.5), (2400, 0.8), (60_000, 0.8)])
def test_silence_counts_from_half_a_second_up_to_its_limit(silent_ms, expected):
    assert kit.readiness(look(text="and", silent_ms=silent_ms)) == pytest.approx(expected)


def test_silence_of_a_program_that_has_said_nothing_counts_for_nothing():
    assert kit.readiness(look(silent_ms=60_000)) == 0


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


@pytest.mark.parametrize("fields, expected", [
    ({}, 0.0),
    ({"process": 0.95}, 0.95),
    ({"process": 0.95, "silent_ms": 600, "text": "and"}, 1.0),
    ({"silent_ms": 300, "text": "> "}, 0.6),
    ({"silent_ms": 1800, "text": "> "}, 0.7),
    ({"silent_ms": 2100, "text": "> "}, 0.8),
    ({"silent_ms": 60_000, "text": "> "}, 0.9),
    ({"process": 0.0, "silent_ms": 60_000, "text": "> "}, 0.0),
    ({"process": 0.95, "silent_ms": 60_000, "text": "> ", "alternate": True, "raw": True}, 0.0),
    ({"process": 0.95, "silent_ms": 60_000, "text": "Tasks: 1 total", "raw": True}, 0.0),
    ({"process": 0.95, "silent_ms": 60_000, "text": "Tasks: 1 total", "raw": True, "paste": True}, 1.0),
    ({"process": 0.95, "silent_ms": 60_000, "text": ">>> ", "raw": True}, 1.0),
])
def test_the_strongest_evidence_wins_and_agreement_adds_a_little(fields, expected):
    assert kit.readiness(look(**fields)) == pytest.approx(expected)


@WITH_PATTERNS
@pytest.mark.parametrize("fields, expected", [
    ({"silent_ms": 300, "text": "ask me"}, 0.9),
    ({"silent_ms": 300, "text": "ask me", "alternate": True}, 0.9),
    ({"silent_ms": 100, "text": "ask me"}, 0.0),
    ({"silent_ms": 300, "text": "ask me\n" + "more\n" * 9}, 0.0),
])
def test_a_pattern_of_the_settings_is_a_prompt(fields, expected):
    assert kit.readiness(look(**fields), "", ("(", "^ask me")) == expected


CLAUDE = kit.AGENTS["claude"][0]


@pytest.mark.parametrize("fields, expected", [
    ({"text": "Loading", "silent_ms": 60_000}, 0.0),
    ({"text": "Loading", "silent_ms": 60_000, "process": 0.95}, 0.0),
    ({"text": "Loading", "silent_ms": 60_000, "raw": True}, 0.0),
    ({"text": "Loading", "silent_ms": 900, "raw": True, "paste": True, "process": 0.95}, 0.3),
    ({"text": "Loading", "silent_ms": 60_000, "raw": True, "paste": True}, 0.8),
    ({"text": "❯ ", "silent_ms": 300, "raw": True, "paste": True}, 1.0),
    ({"text": "❯ half-typed", "silent_ms": 300, "process": 0.95}, 0.0),
])
def test_a_known_agent_has_to_show_its_prompt_or_raw_mode_with_paste(fields, expected):
    assert kit.readiness(look(**fields), CLAUDE) == pytest.approx(expected)


@WITH_PATTERNS
def test_readiness_is_always_between_nought_and_one(rounds):
    rng = random.Random(6)
    for _ in range(rounds(1000)):
        text = "".join(rng.choice("ab.,>$`\n -[❯") for _ in range(rng.randrange(30)))
        flags = {name: rng.random() < 0.5 for name in ("raw", "paste", "alternate")}
        seen = look(process=rng.choice([None, 0.0, 0.95]), silent_ms=rng.randrange(5000), text=text, **flags)
        assert 0.0 <= kit.readiness(seen, rng.choice(["", CLAUDE]), ("a", "[")) <= 1.0


# --- what the kernel says ------------------------------------------------------------------------


@pytest.fixture
def judge(tmp_path):
    """Judges a thread of a process whose folder below /proc looks as the test says."""
    if IS_WINDOWS:
        pytest.skip("Windows has no /proc and makes no such links")

    def make(stat="1 (a) S 1", wchan="wait_woken", syscall="0 0x0 0x1", links=None, watched=None):
        shutil.rmtree(tmp_path)
        for name in ("task/1", "fd", "fdinfo"):
            (tmp_path / name).mkdir(parents=True)
        for name, text in (("stat", stat), ("wchan", wchan), ("syscall", syscall)):
            (tmp_path / "task/1" / name).write_text(text)
        for fd, link in (links or {0: TTY, 1: TTY}).items():
            (tmp_path / "fd" / str(fd)).symlink_to(link)
        for fd, others in (watched or {}).items():
            rows = ["tfd: %8d events: 80000019 data: 0" % other for other in others] + ["tfd: 9 events: 4 data: 0"]
            (tmp_path / "fdinfo" / str(fd)).write_text("\n".join(["pos:\t0", "flags:\t02", *rows, ""]))
        return kit.judge_thread(str(tmp_path), str(tmp_path / "task/1"), TTY)

    return make


@pytest.mark.parametrize("stat, expected", [
    ("12 (cat) S 1 12", "reading"), ("12 (cat) R 1", "busy"), ("12 (cat) D 1", "busy"), ("12 (cat) T 1", "idle"),
    ("12 (cat) Z 1", "idle"), ("12 (a) R (b) S 1", "reading"), ("12 (evil) S) R 1", "busy"), ("12 (x y) S 1", "reading"), ("", "unknown"),
])
def test_the_state_is_read_after_the_last_bracket_and_a_running_process_is_busy(judge, stat, expected):
    assert judge(stat) == expected


@pytest.mark.parametrize("wchan", ["wait_woken", "n_tty_read", "pipe_read", "anon_pipe_read", "unix_stream_read_generic"])
def test_a_read_is_of_the_file_that_the_system_call_names(judge, wchan):
    links = {0: TTY, 3: "socket:[9]", 4: "/dev/tty"}
    assert judge(wchan=wchan, syscall="0 0x0 0x7f", links=links) == "reading"
    assert judge(wchan=wchan, syscall="0 0x4 0x7f", links=links) == "reading"
    assert judge(wchan=wchan, syscall="0 0x3 0x7f", links=links) == "idle"


@pytest.mark.parametrize("wchan", ["poll_schedule_timeout.constprop.0", "do_select", "do_poll"])
def test_of_a_poll_only_a_terminal_alone_is_certain(judge, wchan):
    call = "7 0x7fde623faeb0 0x1"
    assert judge(wchan=wchan, syscall=call, links={0: TTY, 2: "/dev/null"}) == "reading"
    assert judge(wchan=wchan, syscall=call, links={0: TTY, 3: "socket:[9]"}) == "unknown"
    assert judge(wchan=wchan, syscall=call, links={0: TTY, 3: "pipe:[1]"}) == "unknown"
    assert judge(wchan=wchan, syscall=call, links={0: "/dev/pts/8", 3: "pipe:[1]"}) == "idle"
    assert judge(wchan=wchan, syscall="") == "unknown"


def test_select_names_how_far_it_looks(judge):
    links = {0: TTY, 3: "socket:[9]"}
    assert judge(wchan="do_select", syscall="270 0x1 0x7f", links=links) == "reading"
    assert judge(wchan="do_select", syscall="270 0x4 0x7f", links=links) == "unknown"
    assert judge(wchan="do_select", syscall="270 0x0 0x7f", links=links) == "idle"  # a sleep
    assert judge(wchan="do_poll", syscall="7 0x7fde623faeb0 0x1", links=links) == "unknown"


def test_an_epoll_set_is_looked_into(judge):
    links, watched = {0: TTY, 3: "anon_inode:[eventpoll]", 4: "socket:[1]", 5: "anon_inode:[eventpoll]"}, {3: [0, 4], 5: [4]}
    assert judge(wchan="do_epoll_wait", syscall="232 0x3 0x7f", links=links, watched=watched) == "reading"
    assert judge(wchan="ep_poll", syscall="232 0x5 0x7f", links=links, watched=watched) == "idle"
    assert judge(wchan="ep_poll", syscall="", links=links, watched=watched) == "unknown"
    assert judge(wchan="ep_poll", syscall="232 0x9 0x7f", links=links, watched=watched) == "unknown"


@pytest.mark.parametrize("wchan, expected", [
    ("hrtimer_nanosleep", "idle"), ("do_wait", "idle"), ("futex_wait_queue", "idle"), ("0", "unknown"), ("", "unknown")])
def test_a_wait_for_something_else_is_idle_and_a_hidden_one_unknown(judge, wchan, expected):
    assert judge(wchan=wchan) == expected


LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/wchan"), reason="needs Linux's /proc")
READERS = {
    "read": "import sys; sys.stdin.read(1)",
    "select": "import select; select.select([0], [], [])",
    "epoll beside a socket": "import select, socket; s, t = socket.socketpair(); e = select.epoll(); e.register(0, 1); "
                             "e.register(s, 1); e.poll()",
    "a thread": "import sys, threading; t = threading.Thread(target=sys.stdin.read, args=(1,)); t.start(); t.join()",
    "behind a launcher": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read(1)'])",
}
OTHERS = {
    "sleep": "import time; time.sleep(600)",
    "epoll without the terminal": "import select, socket; s, t = socket.socketpair(); e = select.epoll(); e.register(s, 1); e.poll()",
    "a socket": "import socket; s, t = socket.socketpair(); s.recv(1)",
    "work": "while True: pass",
    "work beside a thread that reads": "import sys, threading; threading.Thread(target=sys.stdin.read, args=(1,), daemon=True).start()\n"
                                       "while True: pass",
}


class OwnTerminal:
    """A real program with a terminal of its own, as `wrap` starts one."""

    def __init__(self, script):
        self.master, slave = os.openpty()
        self.tty = os.ttyname(slave)
        code = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); print('up', flush=True)\n" + script
        self.process = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True)
        os.close(slave)
        assert os.read(self.master, 99).startswith(b"up")  # and what the program said since

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, 9)
        self.process.wait()
        os.close(self.master)

    def until(self, wanted):
        """A program needs a moment to get into its wait."""
        end = time.monotonic() + GUARD_S
        while True:
            found = kit.read_process(self.process.pid, self.tty)
            if found[0] == wanted or time.monotonic() > end:
                return found
            time.sleep(0.02)


@LINUX
@pytest.mark.parametrize("script", READERS.values(), ids=READERS)
def test_a_program_that_reads_its_terminal_is_told_by_the_kernel(script):
    with OwnTerminal(script) as own:
        confidence, programs = own.until(0.95)
        assert confidence == 0.95 and programs[0][:2] == [sys.executable, "-S"]


@LINUX
@pytest.mark.parametrize("script", OTHERS.values(), ids=OTHERS)
def test_a_program_that_does_something_else_is_told_too(script):
    with OwnTerminal(script) as own:
        assert own.until(0.0)[0] == 0.0


@LINUX
def test_a_shell_that_holds_the_terminal_is_known_by_its_command_line():
    with OwnTerminal("import os; os.execvp('sh', ['sh'])") as own:
        _, programs = own.until(0.95)
        assert programs == [["sh"]] and kit.find_obstacle(look(text="> ", programs=programs)) == "a shell"


@LINUX
def test_a_shell_in_a_terminal_that_the_program_made_itself_does_not_hold_ours():
    script = "import os, pty, sys\npid, _ = pty.fork()\nif not pid:\n    os.execvp('sh', ['sh'])\nsys.stdin.read(1)"
    with OwnTerminal(script) as own:
        end = time.monotonic() + GUARD_S
        names = ["", ""]
        while len(names) != 1 and time.monotonic() < end:  # until the child has left, it is one of ours
            confidence, programs = own.until(0.95)
            names = [argv[0] for argv in programs]
        assert confidence == 0.95 and names == [sys.executable]


def test_a_process_that_is_gone_tells_nothing():
    assert kit.read_process(2 ** 22, TTY) == (None, [])
