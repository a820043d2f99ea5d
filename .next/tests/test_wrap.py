"""Wrap: what is a question, when a program waits, what is typed, and small programs in a pty."""
from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

fcntl = pytest.importorskip("fcntl", reason="wrap needs a terminal of POSIX")
termios = pytest.importorskip("termios", reason="wrap needs a terminal of POSIX")

TESTS = os.path.dirname(os.path.abspath(__file__))
KIT = os.path.join(os.path.dirname(TESTS), "ctx_hooks.py")
GUARD_S = 30
ACK = "ACK: context received"
GOAL = "Goal: finish the parser"
IS_LINUX = os.path.exists("/proc/self/wchan")
needs_linux = pytest.mark.skipif(not IS_LINUX, reason="needs Linux's /proc")


def load_kit():
    spec = importlib.util.spec_from_file_location("ctx_hooks_of_wrap", KIT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kit = load_kit()


class Place:
    """A project with a handoff that waits, and a home of its own."""

    def __init__(self, root):
        self.home, self.root = os.path.join(root, "home"), os.path.join(root, "project")
        os.makedirs(os.path.join(self.root, ".context", "handoffs"))
        os.makedirs(self.home)
        self.write(".context/handoffs/before.md", "# Handoff\n\n%s\n\n1. read\n2. test\n" % GOAL)
        self.env = {"HOME": self.home, "PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"}

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        path = os.path.join(self.root, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()

    def project(self):
        return kit.find_project(self.root, self.env)

    def rows(self):
        return kit.read_events(self.project())

    def names(self):
        return [row["event"] for row in self.rows()]

    def metrics(self):
        return kit.read_object(self.project().state("metrics.json"))

    def waits(self):
        """Is the handoff where the next session finds it?"""
        return os.path.exists(os.path.join(self.root, ".context/handoffs/before.md"))


@pytest.fixture
def place(tmp_path):
    return Place(str(tmp_path))


# --- what is refused ---------------------------------------------------------


@pytest.mark.parametrize("command", [
    ["claude"], ["/opt/bin/claude", "-c"], ["npx", "-y", "@anthropic-ai/claude-code@latest"],
    ["npm", "exec", "claude"], ["claude.cmd"]])
def test_a_program_with_hooks_is_refused_with_the_line_that_installs_them(command):
    with pytest.raises(kit.UserError) as refused:
        kit.refuse_program(command)
    assert "hooks" in refused.value.what
    assert "install.py --agent claude" in refused.value.hint


@pytest.mark.parametrize("command", [
    ["bash"], ["/bin/sh"], ["zsh", "-l"], ["bash", "--login"], ["vim", "x"], ["nano"], ["less", "x"], ["man", "ls"], []])
def test_a_shell_an_editor_and_a_pager_are_refused_with_a_hint(command):
    with pytest.raises(kit.UserError) as refused:
        kit.refuse_program(command)
    assert "wrap -- aider" in refused.value.hint


@pytest.mark.parametrize("command", [
    ["aider"], ["bash", "-c", "aider"], ["sh", "run.sh"], ["bash", "-lc", "aider"], ["python3", "-m", "aider"],
    ["cat", "claude"], ["uvx", "aider-chat"], ["my-claude"]])
def test_other_programs_and_scripts_are_run(command):
    kit.refuse_program(command)


# --- what the program shows --------------------------------------------------


def test_escape_sequences_are_stripped_and_jumps_of_the_cursor_begin_lines():
    text = "\x1b]0;title\x07\x1b[1mbold\x1b[0m\x1b[2;1Hbelow\x1b[3Cright\x1b[K\r\nnext\x1b(B\x1b[?25l!"
    assert kit.strip_escapes(text) == "bold\nbelow right\nnext!"


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_mode_is_seen_wherever_its_sequence_is_cut(cut):
    output, data = kit.Output(), b"\x1b[?2004h"
    output.feed(data[:cut])
    output.feed(data[cut:])
    assert output.is_on("2004") and output.undo_modes() == b"\x1b[?2004l"
    output.feed(b"x\x1b[?2004l")
    assert not output.is_on("2004") and output.undo_modes() == b""


def test_what_a_killed_program_left_switched_is_switched_back():
    output = kit.Output()
    output.feed(b"\x1b[?1049h\x1b[?25l\x1b[?1000;1006h")
    undone = output.undo_modes()
    for part in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?1006l"):
        assert part in undone


def test_only_the_last_characters_are_kept():
    output = kit.Output()
    for _ in range(50):
        output.feed(b"x" * 1000)
    assert len(output.text()) == kit.WRAP_OUTPUT_CHARS


# --- questions ---------------------------------------------------------------

QUESTIONS = [
    "Remove it? [Y/n] ", "Continue (yes/no)? ", "Add it to .gitignore? (Y)es/(N)o [Yes]: ", "Password: ",
    "[sudo] password for user: ", "Enter passphrase for key 'id': ", "API key: ", "Your name: ", "Which model?",
    "Do you trust the files in this folder?\n❯ 1. Yes\n  2. No", "Allow this command to run?\n> ",
    "Pick one\n 1. red\n 2. blue\n> ", "Pick\n1) red\n2) blue\n#? ", "Use the arrow keys\n❯ small\n  large",
    "Press Enter to continue", "Do it\n❯ Yes\n  No", "( ) one\n(x) two\n", "user@host:~$ ", "# ", "50%", "(END)",
    "--More--", "Do you really want to exit ([y]/n)? ", "Overwrite notes.txt? ", "Esc to cancel",
    "Password> ", "Proceed? [Y/n]\n> ", "Run it? (Y)es/(N)o [Yes]: n", "Delete it?\n[ ] yes\n[x] no\n> "]
PROMPTS = [
    "", "> ", ">>> ", "Welcome.\n> ", "aider> ", "ask> ", "In [1]: ", "You: ", "❯ ", "│ > │", "( O)> ",
    "Hello! How can I help you?\n> ", "Remove it? [Y/n] y\n> ",
    "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: n\n──────\ndiff> ", "Proceed? [Y/n] y\nDone.\nModel: x\nReady.\n> ",
    "Tips:\n1. ask\n2. edit\n3. run\n\nReady when you are.\nModel: gpt\n> "]


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_question_is_seen(text):
    assert kit.has_question(text)


@pytest.mark.parametrize("text", PROMPTS)
def test_a_prompt_is_no_question(text):
    assert not kit.has_question(text)


# --- readiness ---------------------------------------------------------------


def glance(text="Welcome.\n> ", **fields):
    """A program that printed this text, reads its terminal and has been silent for long."""
    seen = kit.Glance({"process": "reading", "silent_ms": 60_000, "text": text})
    for name, value in fields.items():
        assert hasattr(seen, name)
        setattr(seen, name, value)
    return seen


@pytest.mark.parametrize("expected, text, fields", [
    (0.95, "and,", {"silent_ms": 0}),
    (1.0, "Done.", {"silent_ms": 0, "process": "reading", "silent_ms": 300}),
    (0.0, "Done.", {"process": "busy"}),
    (0.0, "Done.", {"process": "idle"}),
    (0.5, "and,", {"process": "unknown", "silent_ms": 1500}),
    (0.8, "and,", {"process": "unknown", "silent_ms": 60_000}),
    (0.9, "Done.", {"process": "unknown", "silent_ms": 60_000}),
    (0.6, "Done.", {"process": "unknown", "silent_ms": 300}),
    (0.7, "Done.", {"process": "unknown", "silent_ms": 600}),
    (0.0, "Done.", {"process": "unknown", "silent_ms": 100}),
    (0.0, "Tasks: 3 total", {"is_raw": True}),
    (1.0, "Tasks: 3 total", {"is_raw": True, "takes_paste": True}),
    (1.0, "> ", {"is_raw": True}),
])
def test_the_strongest_evidence_counts_and_a_little_more_when_several_agree(expected, text, fields):
    assert kit.readiness(glance(text, **fields), []) == pytest.approx(expected)


def test_a_ready_pattern_of_the_settings_makes_a_prompt():
    seen = glance("Tasks: 3 total\nwhat now", process="unknown", silent_ms=0, is_raw=True)
    assert kit.readiness(seen, ["^WHAT now$"]) == pytest.approx(0.9)
    assert kit.readiness(seen, ["(", "nothing"]) == 0.0


def test_a_pattern_that_would_take_years_is_stopped():
    assert not kit.matches(r"(a+)+$", "a" * 60 + "b")


@pytest.mark.parametrize("fields", [
    {"is_hidden": True}, {"is_alternate": True}, {"is_typing": True}, {"text": "Remove it? [Y/n] "}], ids=str)
def test_nothing_is_typed_into_what_is_no_free_line(fields):
    assert not kit.may_type(glance(**fields))


# --- the text and its way back -----------------------------------------------

TYPED = "%s\n%s" % (GOAL, '[END CONTEXT - Reply "ACK: context received" to confirm]')


def test_a_paste_is_bracketed_and_keeps_its_lines():
    assert kit.plan_keys("one\n\n  two\n", True) == b"\x1b[200~one\r\r  two\x1b[201~"


def test_without_paste_it_is_one_line():
    assert kit.plan_keys("one\n\n  two \nthree\n", False) == b"one two three"


@pytest.mark.parametrize("takes_paste", [True, False])
def test_no_control_character_of_the_text_is_typed(takes_paste):
    keys = kit.plan_keys("a\x1b[201~\rb\x03c\x04\x7f\x9b31m\tz\x00\x85", takes_paste)
    keys = keys[6:-6] if takes_paste else keys
    assert re.fullmatch(rb"[ -~]*", keys)


def test_a_line_too_long_for_a_terminal_keeps_its_end():
    keys = kit.plan_keys("ü words\n" * 2000 + TYPED, False)
    assert len(keys) <= kit.WRAP_LINE_BYTES
    assert keys.decode().endswith("to confirm]") and " cut " in keys.decode()


@pytest.mark.parametrize("width", range(7, 90, 7))
def test_our_text_is_seen_however_it_is_wrapped(width):
    text = "> " + TYPED.replace("\n", " ")
    shown = "\n".join(text[i:i + width] for i in range(0, len(text), width))
    assert kit.after_echo(shown, TYPED).strip("]\n") == ""
    assert kit.after_echo(shown[:-20], TYPED) is None
    assert kit.after_echo(shown + "\nProceed? [Y/n] ", TYPED).endswith("Proceed? [Y/n] ")


def test_a_mark_that_stands_for_a_long_paste_is_our_text():
    assert kit.after_echo("> [Pasted text #1 +12 lines]", TYPED) == ""


@pytest.mark.parametrize("text, expected", [
    (ACK, True), ("● ACK: context received.\n> ", True), ("ack:  context\nreceived", True), (TYPED, False),
    ("You said: " + TYPED.replace("\n", " "), False), (TYPED + "\n" + ACK, True), ("to confirm: " + ACK, True),
    ('ACK: context received" to\nconfirm]', False), ("ACK the context", False)])
def test_only_the_programs_own_words_acknowledge(text, expected):
    assert kit.has_acknowledged(glance(text)) is expected


def test_a_half_echoed_request_is_no_acknowledgement_while_output_comes():
    assert not kit.has_acknowledged(glance("confirm with ACK: context received", silent_ms=0))
    assert kit.has_acknowledged(glance(ACK + "\n" + "and a long answer " * 9, silent_ms=0))


@pytest.mark.parametrize("keys, expected", [
    (b"\x1b[?62;c", True), (b"\x1b[12;40R", True), (b"\x1b[A", True), (b"\x1b]11;rgb:0/0/0\x1b\\", True),
    (b"h", False), (b"\x1b[200~pasted\x1b[201~", False), (b"\x1b", False)])
def test_what_the_terminal_reports_is_not_what_the_person_types(keys, expected):
    assert kit.is_report(keys) is expected


# --- the typist, under a clock of our own ------------------------------------


class Rig:
    """A typist before a program that echoes, takes Enter as a line and says `answer`."""

    def __init__(self, place, answer="Fine.", timeout_s=30.0):
        self.run = kit.start_wrap(place.project(), "", place.env)
        self.typist = kit.Typist(self.run, timeout_s)
        self.now = self.heard = self.typist.since
        self.keys, self.shown, self.answer = b"", "Welcome.\n> ", answer

    def pass_time(self, seconds, **fields):
        end = self.now + seconds
        while self.now < end and self.typist.state != "done":
            self.now += kit.WRAP_POLL_S
            seen = glance(self.shown, silent_ms=int((self.now - self.heard) * 1000 + 1))
            for name, value in fields.items():
                setattr(seen, name, value)
            keys = self.typist.step(seen, self.now)
            if keys:
                self.keys += keys
                self.heard = self.now
                self.shown = "\n%s\n> " % self.answer if keys == b"\r" else keys.decode()
        return self

    def until_typed(self):
        while not self.keys:
            self.pass_time(0.1)
        return self

    def count(self):
        return self.keys.count(b"[CONTEXT INJECTION")


def test_it_is_typed_after_settling_and_submitted_after_its_echo(place):
    rig = Rig(place, ACK)
    assert rig.pass_time(0.35).keys == b""
    assert rig.until_typed().keys.endswith(b"to confirm]")
    assert rig.pass_time(1).keys.endswith(b"to confirm]\r")
    rig.pass_time(5)
    assert place.names() == ["wrap:typed", "wrap:submitted", "injection:attempted", "injection:succeeded"]
    assert place.metrics()["succeededOnFirstTry"] == 1
    rig.typist.close("")
    assert not place.waits()


@pytest.mark.parametrize("fields", [
    {"text": "Remove it? [Y/n] "}, {"is_hidden": True}, {"is_typing": True}, {"is_alternate": True},
    {"process": "busy"}, {"process": "idle"}, {"is_raw": True, "text": "Tasks: 3"}], ids=str)
def test_what_is_not_ready_gets_nothing_typed_but_a_file_and_the_person_a_line(place, fields):
    rig = Rig(place).pass_time(29, **fields)
    assert rig.keys == b"" and place.names() == [] and rig.typist.state == "waiting"
    rig.pass_time(60, **fields)
    assert rig.keys == b"" and place.names() == ["injection:escalated"]
    section = place.read("AGENTS.md")
    assert GOAL in section and kit.SECTION_BEGIN in section and "ACK" not in section
    assert "not ready in time" in rig.typist.notes[0] and "AGENTS.md" in rig.typist.notes[0]
    assert place.metrics()["escalatedToFile"] == 1 and place.waits()


def test_an_obstacle_that_goes_away_in_time_is_waited_for(place):
    rig = Rig(place, ACK).pass_time(20, text="Remove it? [Y/n] ")
    assert rig.keys == b""
    assert rig.pass_time(5).count() == 1


@pytest.mark.parametrize("fields", [{"is_hidden": True}, {"is_alternate": True}], ids=str)
def test_no_enter_is_pressed_when_something_comes_between(place, fields):
    rig = Rig(place).until_typed()
    assert rig.count() == 1
    assert b"\r" not in rig.pass_time(20, **fields).keys
    assert rig.pass_time(2).keys.endswith(b"to confirm]\r")


def test_no_enter_is_pressed_for_a_question_behind_our_text(place):
    rig = Rig(place).until_typed()
    rig.shown += "\nAllow this command to run?\n❯ 1. Yes\n  2. No"
    assert b"\r" not in rig.pass_time(60).keys
    assert "did not appear" in rig.typist.notes[0] and GOAL in place.read("AGENTS.md")


def test_without_an_echo_there_is_no_enter_and_the_file_gets_it(place):
    rig = Rig(place).until_typed()
    assert b"\r" not in rig.pass_time(60, text="> ").keys and rig.count() == 1
    assert GOAL in place.read("AGENTS.md")


def test_the_persons_line_behind_our_text_is_not_submitted(place):
    rig = Rig(place).until_typed()
    assert b"\r" not in rig.pass_time(60, is_typing=True).keys


def test_the_ladder_is_text_file_notice_text_and_last_line(place):
    rig = Rig(place).pass_time(300)
    assert rig.count() == 4
    assert rig.keys.count(b"[System] Session context written to AGENTS.md - please review\r") == 1
    assert rig.keys.endswith(b"The context of the last session is in AGENTS.md, if you need it\r")
    assert [row["attempt"] for row in place.rows() if row["event"] == "injection:attempted"] == [1, 2, 3, 4, 5]
    assert "injection:failed" in place.names()
    assert place.metrics()["escalatedToFile"] == place.metrics()["failed"] == 1
    rig.typist.close("")
    assert place.waits()


def test_where_the_file_is_a_link_the_attempts_end_all_the_same(place):
    os.symlink("elsewhere.md", os.path.join(place.root, "AGENTS.md"))
    rig = Rig(place).pass_time(900)
    assert rig.typist.state == "done" and 5 <= rig.count() <= 6
    assert not os.path.exists(os.path.join(place.root, "elsewhere.md"))


def test_a_late_answer_is_waited_for(place):
    rig = Rig(place, "…")
    rig.pass_time(1.2)
    assert rig.count() == 1 and rig.pass_time(600, process="idle").count() == 1
    rig.shown = ACK + "\n> "
    rig.pass_time(1)
    assert place.names()[-1] == "injection:succeeded"


def test_in_raw_mode_it_is_typed_again_only_at_the_same_prompt(place):
    rig = Rig(place).pass_time(1.2, is_raw=True)
    assert rig.pass_time(600, is_raw=True, text="name> ").count() == 1
    assert rig.pass_time(10, is_raw=True, text="> ").count() == 2


def test_a_second_success_takes_the_section_out_again(place):
    Rig(place, timeout_s=1.0).pass_time(5, process="busy")
    assert GOAL in place.read("AGENTS.md")
    Rig(place, ACK).pass_time(5)
    assert place.read("AGENTS.md") == ""


@pytest.mark.parametrize("value", ["false", "off"])
def test_without_a_request_the_echo_is_the_evidence(place, value):
    place.write(".contextrc", "startup:\n  require_ack: %s\n" % value)
    rig = Rig(place).pass_time(60)
    assert b"ACK" not in rig.keys and rig.keys.count(b"\r") == 1
    assert place.names()[-1] == "injection:succeeded"


def test_an_acknowledgement_that_the_handoff_quotes_does_not_count(place):
    place.write(".context/handoffs/before.md", "# Handoff\n\n%s\n\nIt said ACK: context received then.\n" % GOAL)
    rig = Rig(place).until_typed()
    assert not kit.has_acknowledged(glance(rig.keys.decode()))


def test_a_file_of_the_persons_is_typed_instead_and_an_empty_one_is_an_error(place):
    place.write("notes.md", "# Notes\n\nship it\n")
    path = os.path.join(place.root, "notes.md")
    run = kit.start_wrap(place.project(), path, place.env)
    assert "ship it" in run.session.delivery.text and GOAL not in run.session.delivery.text
    place.write("notes.md", "# Notes\n")
    with pytest.raises(kit.UserError):
        kit.start_wrap(place.project(), path, place.env)


def test_switched_off_there_is_nothing_to_type(place):
    run = kit.start_wrap(place.project(), "", dict(place.env, CTX_HOOKS_DISABLE="1"))
    assert not run.session.delivery.text


# --- what the kernel says ----------------------------------------------------

STATES = {
    "reading": "input()",
    "busy": "while True: pass",
    "idle": "import time; time.sleep(99)",
}


def in_pty(code, until):
    """Run a program in a terminal of its own; until(state) has to become true."""
    import pty

    pid, master = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", code])
    try:
        end = time.monotonic() + GUARD_S
        while not until(kit.process_state(pid, False)):
            assert time.monotonic() < end, kit.process_state(pid, False)
            time.sleep(0.02)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(master)


@needs_linux
@pytest.mark.parametrize("state", STATES)
def test_the_kernel_knows_what_a_program_does(state):
    seen = []
    in_pty(STATES[state], lambda found: seen.append(found) or seen[-3:] == [state] * 3)


@needs_linux
def test_a_program_behind_a_script_is_seen_and_a_shell_is_none():
    inner = "%s -I -S -c 'input()'; exit 3" % sys.executable
    in_pty("import os; os.execv('/bin/sh', ['sh', '-c', %r])" % inner, lambda state: state == "reading")
    in_pty("import os; os.execv('/bin/sh', ['sh'])", lambda state: state == "busy")


@needs_linux
def test_a_program_that_waits_for_the_network_does_not_wait_for_a_line():
    code = "import socket; a, b = socket.socketpair(); a.settimeout(99); a.recv(1)"
    in_pty(code, lambda state: state == "idle")


def test_without_proc_nothing_is_known():
    assert kit.process_state(2 ** 22 + 1, False) == "unknown"


# --- small programs in a pseudo-terminal -------------------------------------

REPL = r"""
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"<interrupted>\n"))
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"<resized>\n"))
print("Welcome.")
while True:
    sys.stdout.write("> ")
    sys.stdout.flush()
    line = sys.stdin.readline().strip()
    if "CONTEXT" in line:
        print("ACK: context received")
    elif line == "size":
        print("<%dx%d>" % os.get_terminal_size())
    elif line.startswith("exit"):
        sys.stdout.write("\x1b[?1000h\x1b[?25l")
        sys.stdout.flush()
        os._exit(int(line[4:]))
    elif line == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        print("<said %s>" % line)
"""


class Desk:
    """A person at a terminal, in which `wrap` runs a small program."""

    def __init__(self, place, code, options=()):
        self.place, self.raw, self.seen = place, b"", 0
        self.master, self.slave = os.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(self.slave)
        program = [sys.executable, "-I", "-S", "-u", "-c", code]
        self.process = subprocess.Popen(
            [sys.executable, KIT, "wrap", *options, "--", *program], cwd=place.root, env=place.env,
            stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.raw += data

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.master, keys)

    def until(self, words):
        """Wait for words behind those that were waited for before."""
        end = time.monotonic() + GUARD_S
        while words not in self.raw[self.seen:]:
            assert time.monotonic() < end, (words, self.raw)
            time.sleep(0.01)
        self.seen = self.raw.index(words, self.seen) + len(words)

    def ends(self, code):
        assert self.process.wait(GUARD_S) == code
        assert termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(GUARD_S)
        os.close(self.slave)
        self.reader.join(GUARD_S)
        os.close(self.master)


@pytest.fixture
def desk(place):
    desks = []

    def start(code, *options):
        desks.append(Desk(place, code, options))
        return desks[-1]

    yield start
    for one in desks:
        one.close()


def test_a_program_gets_the_context_and_the_person_notices_nothing_else(desk, place):
    it = desk(REPL)
    it.until(b"> ")
    it.press(b"\x1a")  # it stops; nobody here can stop us, so it goes on at once
    it.until(b"<resized>")
    it.until(b"to confirm]")
    it.until(b"ACK: context received\r\n> ")
    while "injection:succeeded" not in place.names() and it.process.poll() is None:
        time.sleep(0.02)
    it.press(b"hello\r")
    it.until(b"<said hello>\r\n> ")
    it.press(b"size\r")
    it.until(b"<80x24>")
    it.resize(30, 100)
    it.until(b"<resized>")
    it.press(b"size\r")
    it.until(b"<100x30>")
    it.press(b"\x03")
    it.until(b"<interrupted>")
    it.process.send_signal(signal.SIGINT)
    it.until(b"<interrupted>")
    it.press(b"exit 7\r")
    it.ends(7)
    it.until(b"\x1b[?1000l")
    it.until(b"\x1b[?25h")
    it.until(b"ctx: handoff of")
    assert place.metrics()["succeededOnFirstTry"] == 1 and not place.waits()
    assert place.read("AGENTS.md") == ""


def test_questions_hidden_input_and_a_half_typed_line_wait_for_their_person(desk, place):
    asks = "import getpass; print('<%d>' % len(getpass.getpass('Word ')))\nprint('<%s>' % input('Remove it? [Y/n] '))\n"
    it = desk(asks + REPL)
    for asked, answer, taken in ((b"Word ", b"abc\r", b"<3>"), (b"[Y/n] ", b"n\r", b"<n>")):
        it.until(asked)
        time.sleep(0.8 if b"Y" in asked else 0)  # a wrong detector has time to show it
        it.press(answer)
        it.until(taken)
    it.until(b"> ")
    it.press(b"half")
    time.sleep(0.8)
    assert b"CONTEXT" not in it.raw
    it.press(b" done\r")
    it.until(b"<said half done>")
    it.until(b"ACK: context received\r\n> ")
    it.press(b"die\r")
    it.ends(128 + 9)
    assert [row["event"] for row in place.rows()].count("wrap:submitted") == 1


def test_a_window_that_is_closed_ends_the_program(place):
    master, slave = os.openpty()
    code = "import time; print('here', flush=True); time.sleep(%d)" % (2 * GUARD_S)
    process = subprocess.Popen(
        [sys.executable, KIT, "wrap", "--", sys.executable, "-c", code], cwd=place.root, env=place.env, stdin=slave,
        stdout=slave, stderr=slave, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    assert os.read(master, 4) == b"here"
    os.close(master)
    assert process.wait(GUARD_S) == 128 + 1
    assert place.waits()


@pytest.mark.parametrize("code", [0, 5])
def test_without_a_terminal_it_is_plain_pass_through_with_the_file(place, code):
    program = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.exit(%d)" % code
    done = subprocess.run(
        [sys.executable, KIT, "wrap", "--", sys.executable, "-c", program], cwd=place.root, env=place.env,
        input=b"words", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=GUARD_S)
    assert (done.returncode, done.stdout) == (code, b"WORDS")
    assert GOAL in place.read("AGENTS.md") and b"it is in AGENTS.md" in done.stderr


def test_a_program_that_is_not_there_is_an_error_with_a_hint(place):
    done = subprocess.run([sys.executable, KIT, "wrap", "--", "no-such-agent"], cwd=place.root, env=place.env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=GUARD_S)
    assert done.returncode == 1 and done.stderr.startswith(b"error: ") and b"hint: " in done.stderr
    assert place.read("AGENTS.md") == ""
