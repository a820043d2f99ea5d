"""Wrap: what is a question, when a program waits, what is typed, and small programs in a pty."""
from __future__ import annotations

import os
import re
import signal
import sys
import time

import pytest

from helper import KIT, kit
from people import Desk, ask

pytest.importorskip("termios", reason="wrap needs a terminal of POSIX")

ACK, GOAL = "ACK: context received", "Goal: finish the parser"
REQUEST = b'Reply "ACK: context received" to confirm]'


@pytest.fixture
def place(world):
    """A project with a handoff that waits."""
    world.handoff("before", "# Handoff\n\n%s\n\n1. read\n2. test\n" % GOAL)
    return world


def start(place, context="", **env):
    project = kit.find_project(place.root, place.env)
    return kit.start_wrap(project, context, {**place.env, **env})


def names(place):
    return [row["event"] for row in place.events()]


def section(place):
    return kit.read_text(place.path("AGENTS.md"))


@pytest.mark.parametrize("command, hint", [
    (["claude"], "--agent claude"), (["/opt/bin/codex", "-c"], "--agent codex"), (["bash"], "wrap -- aider"),
    (["/bin/sh"], "wrap -- aider"), (["zsh", "-l"], "wrap -- aider"), (["vim", "x"], "wrap -- aider"),
    (["less", "x"], "wrap -- aider"), ([], "wrap -- aider"), (["aider"], ""), (["bash", "-c", "aider"], ""),
    (["sh", "run.sh"], ""), (["cat", "claude"], ""), (["my-claude"], "")])
def test_hooked_agents_shells_editors_and_pagers_are_refused_with_a_hint(command, hint):
    try:
        kit.refuse_program(command)
        assert not hint
    except kit.UserError as refused:
        assert hint and hint in refused.args[1]


def screen(text="Welcome.\n> ", **fields):
    """A program that printed this text, reads its terminal and has been silent for long."""
    seen = kit.Screen()
    seen.feed(text.encode())
    for name, value in {"process": "reading", "silent_s": 60.0, **fields}.items():
        assert hasattr(seen, name)
        setattr(seen, name, value)
    return seen


def test_escape_sequences_are_stripped_and_jumps_of_the_cursor_begin_lines():
    text = "\x1b]0;title\x07\x1b[1mbold\x1b[0m\x1b[2;1Hbelow\x1b[3Cright\x1b[K\r\nnext\x1b(B\x1b[?25l!"
    assert screen(text).text() == "bold\nbelow right\nnext!"
    assert len(screen("x" * 50_000).text()) == kit.WRAP_OUTPUT_BYTES


def test_a_mode_is_seen_wherever_its_sequence_is_cut():
    seen, data = screen(""), b"\x1b[?2004h"
    for cut in range(1, 9):
        seen.feed(data[:cut])
        seen.feed(data[cut:])
        assert seen.modes[b"2004"] == b"h"
        seen.feed(b"x\x1b[?25;2004l")
        assert seen.modes[b"2004"] == b"l"


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
    "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: n\n──────\ndiff> ",
    "Proceed? [Y/n] y\nDone.\nModel: x\nReady.\n> ", "Tips:\n1. ask\n2. edit\n3. run\n\nReady.\nModel: gpt\n> "]


@pytest.mark.parametrize("text", QUESTIONS + PROMPTS)
def test_a_question_is_seen_and_a_prompt_is_none(text):
    assert kit.has_question(text) == (text in QUESTIONS)


@pytest.mark.parametrize("expected, text, fields", [
    (0.95, "and,", {"silent_s": 0.3}), (1.05, "Done.", {"silent_s": 0.3}), (0.0, "Done.", {"process": "busy"}),
    (0.5, "and,", {"process": "unknown", "silent_s": 1.5}), (0.8, "and,", {"process": "unknown"}),
    (0.9, "Done.", {"process": "unknown"}), (0.6, "Done.", {"process": "unknown", "silent_s": 0.3}),
    (0.7, "Done.", {"process": "unknown", "silent_s": 0.6}), (0.9, "what now", {"process": "unknown", "silent_s": 0.3}),
    (0.0, "Tasks: 3 total", {"is_raw": True}), (1.05, "> ", {"is_raw": True}), (1.05, "what now", {"is_raw": True})])
def test_the_strongest_evidence_counts_and_a_little_more_when_several_agree(expected, text, fields):
    assert kit.readiness(screen(text, **fields), ["^WHAT now$", "(", "x"]) == pytest.approx(expected)


def test_a_paste_keeps_its_lines_and_without_one_it_is_one_line_and_no_control_character_is_typed():
    text = "one\n\n  two\x1b[201~\r\x03\x04\x7f\x9b\x00\x85 \nthree"
    assert kit.plan_keys(text, True) == b"\x1b[200~one\r\r  two[201~ \rthree\x1b[201~"
    assert kit.plan_keys(text, False) == b"one two[201~ three"


@pytest.mark.parametrize("words", ["some words\n", "ü日本語🙂\n"])
def test_a_line_too_long_for_a_terminal_keeps_its_end(words):
    keys = kit.plan_keys(words * 2000 + "the end]", False)
    assert kit.WRAP_LINE_BYTES // 3 < len(keys) <= kit.WRAP_LINE_BYTES
    assert keys.decode().endswith("the end]") and keys.decode().count(" cut ") == 1


@pytest.mark.parametrize("text, expected", [
    (ACK, True), ("● ACK: context received.\n> ", True), ("ack:  context\nreceived", True), (REQUEST.decode(), False),
    ("to confirm: " + ACK, True), ('ACK: context received" to\nconfirm]', False), ("ACK the context", False)])
def test_only_the_programs_own_words_acknowledge(text, expected):
    assert bool(re.search(kit.TOLD_ACK, text)) is expected


@pytest.mark.parametrize("keys, expected", [
    (b"\x1b[?62;c", True), (b"\x1b[12;40R", True), (b"\x1b]11;rgb:0/0/0\x1b\\", True), (b"\x1b[I", True),
    (b"h", False), (b"\x1b[200~pasted\x1b[201~", False), (b"\x1b", False), (b"\x1b[A", False)])
def test_what_the_terminal_reports_is_not_what_the_person_types(monkeypatch, keys, expected):
    terminal = kit.Terminal(None)
    monkeypatch.setattr(kit, "read_some", lambda descriptor: keys)
    terminal.read_keys()
    assert (terminal.line != "half") is expected


class Rig:
    """A typist before a program that echoes, takes Enter as a line and says `answer`."""

    def __init__(self, place, answer="Fine."):
        self.typist = kit.Typist(start(place), 30.0)
        self.now = self.heard = time.monotonic()
        self.keys, self.shown, self.answer = b"", "Welcome.\n> ", answer

    def pass_time(self, seconds, text=None, **fields):
        end = self.now + seconds
        while self.now < end and self.typist.state != "done":
            self.now += kit.WRAP_POLL_S
            seen = screen(self.shown if text is None else text, **{"silent_s": self.now - self.heard, **fields})
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


def test_it_is_typed_after_settling_and_submitted_after_its_echo(place):
    rig = Rig(place, ACK)
    assert rig.pass_time(20, text="Remove it? [Y/n] ").pass_time(0.35, silent_s=0.35).keys == b""
    assert rig.until_typed().keys.endswith(REQUEST)
    assert rig.pass_time(1).keys.endswith(REQUEST + b"\r")
    assert names(place) == ["wrap:typed", "wrap:submitted", "injection:attempted", "injection:succeeded"]
    rig.typist.close()
    assert not place.waiting() and place.metrics()["succeededOnFirstTry"] == 1


@pytest.mark.parametrize("fields", [
    {"text": "Remove it? [Y/n] "}, {"is_free": False}, {"process": "busy"}, {"is_raw": True, "text": "Tasks"}], ids=str)
def test_what_is_not_ready_gets_nothing_typed_but_a_file_and_the_person_a_line(place, fields):
    rig = Rig(place).pass_time(29, **fields)
    assert rig.keys == b"" and names(place) == [] and rig.typist.state == "waiting"
    rig.pass_time(60, **fields)
    assert rig.keys == b"" and names(place) == ["wrap:gave-up", "injection:escalated"]
    assert GOAL in section(place) and kit.SECTION_BEGIN in section(place) and "ACK" not in section(place)
    told = "\n".join(rig.typist.run.reply.notes)
    assert "not ready in time" in told and "AGENTS.md" in told and "delivered" not in told
    assert place.metrics()["escalatedToFile"] == 1 and place.waiting()
    Rig(place, ACK).pass_time(5)  # the next one succeeds, and takes the section out again
    assert section(place) == ""


@pytest.mark.parametrize("fields", [
    {"is_free": False}, {"text": "> "}, {"text": "typed by somebody else] "},
    {"more": "\nAllow this command to run?\n❯ 1. Yes\n  2. No"}], ids=str)
def test_no_enter_without_our_text_or_when_something_comes_between(place, fields):
    rig = Rig(place).until_typed()
    rig.shown += fields.pop("more", "")
    assert b"\r" not in rig.pass_time(60, **fields).keys
    rig.typist.close()
    assert rig.keys.count(REQUEST) == 1 and GOAL in section(place) and place.waiting()


@pytest.mark.parametrize("width", range(7, 90, 7))
def test_our_text_is_seen_however_it_is_wrapped(place, width):
    rig = Rig(place).until_typed()
    whole = rig.shown
    for length, is_seen in ((len(whole) - 20, False), (len(whole), True)):
        rig.shown = "\n".join(whole[i:min(i + width, length)] for i in range(0, length, width))
        assert rig.pass_time(1).keys.endswith(b"\r") is is_seen


def test_the_ladder_is_text_file_notice_text_and_last_line(place):
    rig = Rig(place).pass_time(300)
    assert rig.keys.count(GOAL.encode()) == 4
    assert rig.keys.count(b"[System] Session context written to AGENTS.md - please review") == 1
    assert b"The context of the last session is in AGENTS.md, if you need it" in rig.keys.split(b"\r")[-2]
    assert place.metrics()["attempted"] == 5 and names(place)[-2:] == ["wrap:typed", "wrap:submitted"]
    assert place.metrics()["escalatedToFile"] == place.metrics()["failed"] == 1
    rig.typist.close()
    assert place.waiting()


def test_a_late_answer_is_waited_for_and_it_is_typed_again_only_at_the_same_prompt(place):
    rig = Rig(place).pass_time(1.2, text="chat 1> ").pass_time(1)
    for fields in ({"process": "busy"}, {"text": "name> "}, {"text": "Thinking…"}):
        assert rig.pass_time(600, **fields).keys.count(REQUEST) == 1
    assert rig.pass_time(0.3, text="chat 2> ").keys.count(REQUEST) == 2
    rig.pass_time(1).pass_time(1, text=ACK + "\n> ")
    assert names(place)[-1] == "injection:succeeded" and place.metrics()["succeededAfterRetry"] == 1


def test_without_a_request_the_echo_is_the_evidence(place):
    place.settings("startup:\n  require_ack: off\n")
    keys = Rig(place).pass_time(60).keys
    assert b"ACK" not in keys and keys.count(b"\r") == 1 and names(place)[-1] == "injection:succeeded"


def test_an_acknowledgement_that_the_handoff_quotes_does_not_count(place):
    place.handoff("before", "# Handoff\n\n%s\n\nIt said ACK: context received then.\n" % GOAL)
    assert not re.search(kit.TOLD_ACK, Rig(place).until_typed().keys.decode())


def test_a_file_of_the_persons_is_typed_instead_and_nothing_when_switched_off(place):
    assert "ship it" in start(place, place.write("notes.md", "# Notes\n\nship it\n")).session.delivery.text
    with pytest.raises(kit.UserError):
        start(place, place.write("notes.md", "# Notes\n"))
    assert not start(place, CTX_HOOKS_DISABLE="1").session.delivery.text


REPL = r"""
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: print("<interrupted>"))
signal.signal(signal.SIGWINCH, lambda *_: print("<%dx%d>" % os.get_terminal_size()))
print("Welcome.")
while True:
    print("> ", end="")
    line = sys.stdin.readline()
    if "CONTEXT" in line:
        line = "print('ACK: context received')"
    exec(line)
"""
ASKS = r"""
import os
os.system("stty -echo")
print("<%d>" % len(input("Word ")), os.system("stty echo"))
print("<%s>" % input("Remove it? [Y/n] "))
print("<%s>" % input("\x1b[?1049h> "), "\x1b[?1049l")
"""


@pytest.fixture
def desk(place, request):
    def sit_down(*command):
        it = Desk(place, *command)
        request.addfinalizer(it.close)
        return it

    return sit_down


def wrapped(code):
    return KIT, "wrap", "--", sys.executable, "-I", "-S", "-u", "-c", code


@pytest.mark.skipif(not os.path.exists("/proc/self/wchan"), reason="needs Linux's /proc")
@pytest.mark.parametrize("state, code", [
    ("reading", "input()"), ("busy", "while True: pass"), ("busy", "import time; time.sleep(99)"),
    ("busy", "import socket as s; a = s.create_server(('127.0.0.1', 0)); s.create_connection(a.getsockname()).recv(1)"),
    ("busy", "import os; os.execv('/bin/sh', ['sh'])"), ("busy", "import select; select.select([0], [], [])")])
def test_the_kernel_knows_what_a_program_does(desk, state, code):
    it, seen, end = desk("-I", "-S", "-c", "print('here', flush=True)\n" + code), [], time.monotonic() + Desk.GUARD_S
    it.until(b"here")
    while seen[-3:] != [state] * 3:
        assert time.monotonic() < end, seen
        time.sleep(0.02)
        seen.append(kit.process_state(it.process.pid, False))
    assert kit.process_state(2 ** 22 + 1, False) == "unknown"


def test_a_program_gets_the_context_and_the_person_notices_nothing_else(desk, place):
    it = desk(*wrapped(REPL))
    it.until(b"> ")  # nobody here can stop us, so ^Z stops the program only for a moment
    it.press(b"\x1a", b"<80x24>", REQUEST, b"ACK: context received\r\n> ")
    while "injection:succeeded" not in names(place) and it.process.poll() is None:
        time.sleep(0.02)
    it.press(b"print(str(20 + 22) + '!')\r", b"42!\r\n> ")
    it.resize(30, 100)
    it.until(b"<100x30>")
    it.press(b"\x03", b"<interrupted>")
    it.process.send_signal(signal.SIGINT)
    it.until(b"<interrupted>")
    it.press(b"os._exit(7)\r")
    it.ends(7)
    it.until(b"\x1b[?25h", b"ctx: handoff of")
    assert place.metrics()["succeededOnFirstTry"] == 1 and not place.waiting() and section(place) == ""


def test_questions_hidden_input_screens_and_half_typed_lines_wait_for_their_person(desk, place):
    it = desk(*wrapped(ASKS + REPL))
    for asked, answer, taken in ((b"Word ", b"abc\r", b"<3>"), (b"] ", b"n\r", b"<n>"), (b"h> ", b"x\r", b"<x>")):
        it.until(asked)
        it.sees_nothing(0.7)  # a wrong detector has time to show it
        it.press(answer, taken)
    it.until(b"> ")
    it.press(b"print(1", b"print(1")
    it.sees_nothing(0.7)
    it.press(b" + 1)\r", b"2\r\n", b"ACK: context received\r\n> ")
    it.press(b"os.kill(os.getpid(), signal.SIGKILL)\r")
    it.ends(128 + 9)
    assert names(place).count("wrap:submitted") == 1


def test_a_window_that_is_closed_ends_the_program(desk, place):
    it = desk(*wrapped("import time; print('here'); time.sleep(99)"))
    it.until(b"here")
    os.close(it.slave)
    os.close(it.master)
    it.master, it.slave = os.openpty()
    assert it.process.wait(Desk.GUARD_S) == 128 + 1 and place.waiting()


def test_without_a_terminal_it_is_plain_pass_through_with_the_file(place):
    program = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.exit(5)"
    done = ask(place, "wrap", "--", sys.executable, "-c", program, stdin="words")
    assert (done.code, done.out) == (5, "WORDS")
    assert GOAL in section(place) and "it is in AGENTS.md" in done.err and place.waiting()
    place.now += 8 * 86_400
    place.session("a week later").start()
    assert not os.path.exists(place.path("AGENTS.md"))


def test_without_a_terminal_the_program_takes_the_wrappers_place(place):
    assert ask(place, "wrap", "--", sys.executable, "-c", "import os; print(os.getppid())").out == "%d\n" % os.getpid()


def test_a_program_that_is_not_there_is_an_error_with_a_hint(desk):
    it = desk(KIT, "wrap", "--", "no-such-agent")
    it.until(b"error: ", b"no-such-agent", b"hint: ")
    it.ends(1)
