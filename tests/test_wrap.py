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
    return kit.start_wrap(kit.Here(place.root, {**place.env, **env}), context)


def names(place):
    return [row["event"] for row in place.events()]


def section(place):
    return kit.read_text(place.path("AGENTS.md"))


@pytest.mark.parametrize(
    "command, hint",
    [
        (["claude"], "--agent claude"),
        (["/opt/bin/codex", "-c"], "--agent codex"),
        (["bash"], "wrap -- aider"),
        (["/bin/sh"], "wrap -- aider"),
        (["zsh", "-l"], "wrap -- aider"),
        (["vim", "x"], "wrap -- aider"),
        (["less", "x"], "wrap -- aider"),
        ([], "wrap -- aider"),
        (["aider"], ""),
        (["bash", "-c", "aider"], ""),
        (["sh", "run.sh"], ""),
        (["cat", "claude"], ""),
        (["my-claude"], ""),
    ],
)
def test_hooked_agents_shells_editors_and_pagers_are_refused_with_a_hint(command, hint):
    try:
        kit.refuse_program(kit.Here("/", {}), command)
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


def test_escape_sequences_are_stripped():
    text = "\x1b]0;title\x07\x1b[1mbold\x1b[0m\x1b[K\r\nnext\x1b(B\x1b[?25l!"
    assert screen(text).text() == "bold\nnext!"


def test_a_jump_of_the_cursor_begins_a_line():
    assert screen("above\x1b[2;1Hbelow\x1b[3Cright").text() == "above\nbelow right"


def test_of_a_long_output_the_end_is_kept():
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
    "Remove it? [Y/n] ",
    "Continue (yes/no)? ",
    "Add it to .gitignore? (Y)es/(N)o [Yes]: ",
    "Password: ",
    "[sudo] password for user: ",
    "Enter passphrase for key 'id': ",
    "API key: ",
    "Your name: ",
    "Which model?",
    "Do you trust the files in this folder?\n❯ 1. Yes\n  2. No",
    "Allow this command to run?\n> ",
    "Pick one\n 1. red\n 2. blue\n> ",
    "Pick\n1) red\n2) blue\n#? ",
    "Use the arrow keys\n❯ small\n  large",
    "Press Enter to continue",
    "Do it\n❯ Yes\n  No",
    "( ) one\n(x) two\n",
    "user@host:~$ ",
    "# ",
    "50%",
    "(END)",
    "--More--",
    "Do you really want to exit ([y]/n)? ",
    "Overwrite notes.txt? ",
    "Esc to cancel",
    "Password> ",
    "Proceed? [Y/n]\n> ",
    "Run it? (Y)es/(N)o [Yes]: n",
    "Delete it?\n[ ] yes\n[x] no\n> ",
]
PROMPTS = [
    "",
    "> ",
    ">>> ",
    "Welcome.\n> ",
    "aider> ",
    "ask> ",
    "In [1]: ",
    "You: ",
    "❯ ",
    "│ > │",
    "( O)> ",
    "Loading...\nReady. How can I help?",
    "Hello! How can I help you today?\n",
    "How may we assist you?",
    "Loading...\nReady.",
    "Hello! How can I help you?\n> ",
    "Remove it? [Y/n] y\n> ",
    "Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: n\n──────\ndiff> ",
    "Proceed? [Y/n] y\nDone.\nModel: x\nReady.\n> ",
    "Tips:\n1. ask\n2. edit\n3. run\n\nReady.\nModel: gpt\n> ",
]


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_question_is_seen(text):
    assert kit.has_question(text, [kit.PROMPT])


@pytest.mark.parametrize("text", PROMPTS)
def test_a_prompt_is_no_question(text):
    assert not kit.has_question(text, [kit.PROMPT])


@pytest.mark.parametrize("ending", [":", "?", "$", "#", "%", " %", ":  "])
def test_a_taught_prompt_is_one_whatever_it_ends_with(ending):
    taught = [kit.PROMPT, "^What is next"]
    assert not kit.has_question("Welcome.\nWhat is next" + ending, taught)
    assert kit.has_question("Welcome.\nWhat was next" + ending, taught)


ONLY_AN_ENDING = ("Your name: ", "Which model?", "user@host:~$ ", "# ", "50%", "Overwrite notes.txt? ")
SCREENS_AND_ANSWERS = ("(END)", "Run it? (Y)es/(N)o [Yes]: n")  # a screen's mode and a half line hold the keys back


@pytest.mark.parametrize("text", [t for t in QUESTIONS if t not in ONLY_AN_ENDING + SCREENS_AND_ANSWERS])
def test_no_pattern_makes_a_prompt_of_a_question_that_one_can_know(text):
    assert kit.has_question(text, [kit.PROMPT, ""])


@pytest.mark.parametrize(
    "expected, text, fields",
    [
        (0.95, "and,", {"silent_s": 0.3}),
        (1.05, "Done.", {"silent_s": 0.3}),
        (0.0, "Done.", {"process": "busy"}),
        (0.5, "and,", {"process": "unknown", "silent_s": 1.5}),
        (0.8, "and,", {"process": "unknown"}),
        (0.9, "Done.", {"process": "unknown"}),
        (0.6, "Done.", {"process": "unknown", "silent_s": 0.3}),
        (0.7, "Done.", {"process": "unknown", "silent_s": 0.6}),
        (0.9, "what now", {"process": "unknown", "silent_s": 0.3}),
        (0.0, "Tasks: 3 total", {"is_raw": True}),
        (1.05, "> ", {"is_raw": True}),
        (1.05, "what now", {"is_raw": True}),
        (0.0, "Tasks: 3 total", {"process": "polling"}),
        (0.0, "Done.", {"process": "polling"}),
        (1.0, "> ", {"process": "polling", "silent_s": 0.5}),
        (1.0, "Ready. How can I help?", {"process": "polling"}),
        (1.0, "what now", {"process": "polling"}),
    ],
)
def test_evidence_that_agrees_counts_a_little_more_than_the_strongest(expected, text, fields):
    assert kit.readiness(screen(text, **fields), [kit.PROMPT, "^WHAT now$", "x"]) == pytest.approx(expected)


def test_no_control_character_of_a_text_is_typed():
    text = "one\n\n  two\x1b[201~\r\x03\x04\x7f\x9b\x00\x85 \nthree"
    assert kit.plan_keys(text, True) == b"\x1b[200~one\r\r  two[201~ \rthree\x1b[201~"
    assert kit.plan_keys(text, False) == b"one two[201~ three"


@pytest.mark.parametrize("words", ["some words\n", "ü日本語🙂\n"])
def test_a_line_too_long_for_a_terminal_keeps_its_end(words):
    keys = kit.plan_keys(words * 2000 + "the end]", False)
    assert kit.WRAP_LINE_BYTES // 3 < len(keys) <= kit.WRAP_LINE_BYTES
    assert keys.decode().endswith("the end]") and keys.decode().count(" cut ") == 1


ECHO = REQUEST.decode()


@pytest.mark.parametrize(
    "text, expected",
    [
        (ACK, True),
        ("● ACK: context received.\n> ", True),
        ("ack:  context\nreceived", True),
        ("**ACK:** context received", True),
        (ECHO + "\nACK: context received\n> ", True),
        (ECHO, False),
        (ECHO.upper(), False),
        (ECHO.replace('"', '\\"'), False),
        (ECHO.replace('"', ""), False),
        ('│ Reply │\n│ "ACK: context │\n│ received"            │\n│            to │\n│ confirm] │', False),
        ("You said: " + ECHO + "\nYou said: " + ECHO, False),
        (ECHO[:28], False),
        ("to confirm: " + ACK, True),
        ("ACK the context", False),
    ],
)
def test_only_the_programs_own_words_acknowledge(text, expected):
    assert bool(re.search(kit.TOLD_ACK, kit.letters_of(text))) is expected


@pytest.mark.parametrize(
    "keys, expected",
    [
        (b"\x1b[?62;c", True),
        (b"\x1b[12;40R", True),
        (b"\x1b]11;rgb:0/0/0\x1b\\", True),
        (b"\x1b[I", True),
        (b"h", False),
        (b"\x1b[200~pasted\x1b[201~", False),
        (b"\x1b", False),
        (b"\x1b[A", False),
    ],
)
def test_what_the_terminal_reports_is_not_what_the_person_types(monkeypatch, keys, expected):
    terminal = kit.Terminal(None)
    monkeypatch.setattr(kit, "read_some", lambda descriptor: keys)
    terminal.read_keys()
    assert (terminal.line != "half") is expected


UNHEARD = "ctx: no sign that the context arrived: %s"
NEXT = "; the next session gets it"


class Rig:
    """A typist before a program that echoes, takes Enter as a line and says `answer`."""

    def __init__(self, place, answer="Fine.", context=""):
        self.typist = kit.Typist(start(place, context), 30.0)
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

    def last_line(self):
        """What the person reads when the program has ended."""
        read_end, write_end = os.pipe()
        keep = os.dup(2)
        os.dup2(write_end, 2)
        try:
            self.typist.close()
        finally:
            os.dup2(keep, 2)
            os.close(keep)
            os.close(write_end)
        with os.fdopen(read_end) as file:
            lines = file.read().splitlines()
        assert len(lines) == 1
        return lines[0]

    def until_typed(self):
        while not self.keys:
            self.pass_time(0.1)
        return self


def test_what_is_typed_is_submitted_after_its_echo(place):
    rig = Rig(place, ACK)
    assert rig.pass_time(20, text="Remove it? [Y/n] ").pass_time(0.35, silent_s=0.35).keys == b""
    assert rig.until_typed().keys.endswith(REQUEST)
    assert rig.pass_time(1).keys.endswith(REQUEST + b"\r")
    assert names(place) == ["wrap:typed", "wrap:submitted", "injection:attempted", "injection:succeeded"]
    assert re.fullmatch(r"ctx: handoff of \d\d:\d\d delivered, 6 lines", rig.last_line())
    assert not place.waiting() and place.metrics()["succeededOnFirstTry"] == 1


@pytest.mark.parametrize(
    "fields",
    [{"text": "Remove it? [Y/n] "}, {"is_free": False}, {"process": "busy"}, {"is_raw": True, "text": "Tasks"}],
    ids=str,
)
def test_what_is_not_ready_gets_a_file_instead(place, fields):
    rig = Rig(place).pass_time(29, **fields)
    assert rig.keys == b"" and names(place) == [] and rig.typist.state == "waiting"
    rig.pass_time(60, **fields)
    assert rig.keys == b"" and names(place) == ["wrap:gave-up", "injection:escalated"]
    assert GOAL in section(place) and kit.SECTION_BEGIN in section(place) and "ACK" not in section(place)
    assert rig.last_line() == UNHEARD % "the program was not ready in time" + "; it is in AGENTS.md" + NEXT
    assert place.metrics()["escalatedToFile"] == 1 and place.waiting()
    Rig(place, ACK).pass_time(5)  # the next one succeeds, and takes the section out again
    assert section(place) == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"is_free": False},
        {"text": "> "},
        {"text": "typed by somebody else] "},
        {"more": "\nAllow this command to run?\n❯ 1. Yes\n  2. No"},
    ],
    ids=str,
)
def test_no_enter_without_our_text_or_when_something_comes_between(place, fields):
    rig = Rig(place).until_typed()
    rig.shown += fields.pop("more", "")
    assert b"\r" not in rig.pass_time(60, **fields).keys
    assert rig.last_line() == UNHEARD % "the program was not ready in time" + "; it is in AGENTS.md" + NEXT
    assert rig.keys.count(REQUEST) == 1 and GOAL in section(place) and place.waiting()


@pytest.mark.parametrize("width", range(7, 90, 7))
def test_our_text_is_seen_however_it_is_wrapped(place, width):
    rig = Rig(place).until_typed()
    whole = rig.shown
    for length, is_seen in ((len(whole) - 20, False), (len(whole), True)):
        rig.shown = "\n".join(whole[i : min(i + width, length)] for i in range(0, length, width))
        assert rig.pass_time(1).keys.endswith(b"\r") is is_seen


def test_the_ladder_is_text_file_notice_text_and_last_line(place):
    rig = Rig(place).pass_time(300)
    assert rig.keys.count(GOAL.encode()) == 4
    assert rig.keys.count(b"[System] Session context written to AGENTS.md - please review") == 1
    assert b"The context of the last session is in AGENTS.md, if you need it" in rig.keys.split(b"\r")[-2]
    assert place.metrics()["attempted"] == 5 and names(place)[-2:] == ["wrap:typed", "wrap:submitted"]
    assert place.metrics()["escalatedToFile"] == place.metrics()["failed"] == 1
    assert rig.last_line() == UNHEARD % "the program did not acknowledge it" + "; it is in AGENTS.md" + NEXT
    assert place.waiting()


def test_an_acknowledgement_after_the_last_line_counts(place):
    rig = Rig(place).pass_time(300)
    keys = rig.keys
    rig.pass_time(600, text="Hm.\n> ").pass_time(1, text="\n%s\n> " % ACK)
    assert rig.keys == keys and rig.typist.state == "done"
    assert (place.metrics()["failed"], place.metrics()["succeededAfterRetry"]) == (0, 1)
    assert rig.last_line().startswith("ctx: handoff of") and section(place) == "" and not place.waiting()


def test_a_program_that_ends_before_it_is_ready_costs_nothing(place):
    rig = Rig(place)
    assert rig.last_line() == UNHEARD % "the program ended first" + NEXT
    assert place.waiting() and section(place) == ""


def test_a_session_that_gets_the_handoff_later_takes_the_section_away(place):
    Rig(place).pass_time(60, process="busy")
    assert GOAL in section(place)
    session = place.session("claude")
    assert GOAL in session.start().text
    session.prompt("go on")
    assert section(place) == ""


def test_it_is_typed_again_only_at_the_same_prompt(place):
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
    typed = Rig(place).until_typed().keys.decode()
    assert not re.search(kit.TOLD_ACK, kit.letters_of(typed))


def test_a_file_of_the_persons_is_typed_instead(place):
    assert "ship it" in start(place, place.write("notes.md", "# Notes\n\nship it\n")).session.delivery.text
    with pytest.raises(kit.UserError):
        start(place, place.write("notes.md", "# Notes\n"))


def test_nothing_is_typed_when_the_hooks_are_switched_off(place):
    assert not start(place, CTX_HOOKS_DISABLE="1").session.delivery.text


def test_of_a_file_of_the_persons_they_read_no_word_about_a_handoff(place):
    notes = place.write("notes.md", "# Notes\n\nship it\n")
    assert Rig(place, ACK, notes).pass_time(5).last_line() == "ctx: the context was delivered"
    unheard = Rig(place, "Fine.", notes).pass_time(5)
    assert unheard.last_line() == UNHEARD % "the program did not acknowledge it"
    assert place.waiting() == ["before.md"]


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


POLLING = {  # main threads that poll in line mode
    "asyncio": """
import asyncio
async def main():
    while True:
        answer(await asyncio.get_running_loop().run_in_executor(None, input))
""",
    "select": """
import select, sys
async def main():
    while True:
        select.select([0], [], [])
        answer(sys.stdin.readline())
""",
}
ANSWERS = """
def answer(line):
    if "CONTEXT INJECTION" in line:
        print("ACK: context received")
    if line.strip() == "bye":
        raise SystemExit(3)
    begin()
def begin():
    print("%s", end="", flush=True)
begin()
"""


@pytest.fixture
def desk(place, request):
    def sit_down(*command):
        it = Desk(place, *command)
        request.addfinalizer(it.close)
        return it

    return sit_down


def wrapped(code, *options):
    return KIT, "wrap", *options, "--", sys.executable, "-I", "-S", "-u", "-c", code


def wait_for(place, event, it):
    """Until the recorder has this row."""
    end = time.monotonic() + Desk.GUARD_S
    while event not in names(place):
        assert time.monotonic() < end and it.process.poll() is None, (names(place), it.raw)
        it.read_some(0.02)


@pytest.mark.skipif(not os.path.exists("/proc/self/wchan"), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    "state, code",
    [
        ("reading", "input()"),
        ("busy", "while True: pass"),
        ("busy", "import signal; signal.pause()"),
        (
            "busy",
            "import socket as s; a = s.create_server(('127.0.0.1', 0)); s.create_connection(a.getsockname()).recv(1)",
        ),
        ("busy", "import os; os.execv('/bin/sh', ['sh'])"),
        ("polling", "import select; select.select([0], [], [])"),
        ("polling", POLLING["asyncio"] + "answer = print\nasyncio.run(main())"),
    ],
)
def test_the_kernel_knows_what_a_program_does(desk, state, code):
    it, seen, end = desk("-I", "-S", "-c", "print('here', flush=True)\n" + code), [], time.monotonic() + Desk.GUARD_S
    it.until(b"here")
    while seen[-3:] != [state] * 3:
        assert time.monotonic() < end, seen
        time.sleep(0.02)
        seen.append(kit.process_state(it.process.pid, False))
    assert kit.process_state(2**22 + 1, False) == "unknown"


def test_a_program_gets_the_context_and_nothing_else(desk, place):
    it = desk(*wrapped(REPL))
    it.until(b"> ", REQUEST, b"ACK: context received\r\n> ")
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
    it.until(b"ctx: handoff of")
    assert place.metrics()["succeededOnFirstTry"] == 1 and not place.waiting() and section(place) == ""


@pytest.mark.parametrize(
    "way, prompt",
    [
        ("select", "> "),
        ("asyncio", "> "),
        ("asyncio", "Ready. How can I help?\\n"),
        ("asyncio", "What is next: "),
        ("select", "me% "),
    ],
)
def test_an_agent_that_polls_in_line_mode_gets_the_context_at_its_prompt(desk, place, way, prompt):
    place.settings("wrap:\n  ready_patterns: ['What is next:', 'me%']\n")
    it = desk(*wrapped(ANSWERS % prompt + POLLING[way] + "import asyncio\nasyncio.run(main())"))
    it.until(REQUEST, b"ACK: context received")
    wait_for(place, "injection:succeeded", it)
    it.press(b"bye\r", b"ctx: handoff of")
    it.ends(3)
    assert place.metrics()["succeededOnFirstTry"] == 1 and not place.waiting()


def test_an_agent_that_polls_without_a_prompt_gets_nothing_typed(desk, place):
    it = desk(*wrapped("print('Thinking.')\nimport select\nselect.select([], [], [], 99)", "--timeout", "4"))
    wait_for(place, "wrap:gave-up", it)
    it.process.send_signal(signal.SIGTERM)
    it.until(b"not ready in time; it is in AGENTS.md; the next session gets it\r\n")
    assert "wrap:typed" not in names(place)


def test_an_acknowledgement_is_seen_in_a_program_that_never_stops_printing(desk, place):
    it = desk(
        *wrapped(
            "print(input('> ')[:9], 'ACK: context received')\nimport time\nwhile True: print('more', end=' '); time.sleep(0.01)"
        )
    )
    it.until(REQUEST)
    wait_for(place, "injection:succeeded", it)
    it.process.send_signal(signal.SIGTERM)
    it.until(b"ctx: handoff of")
    assert not place.waiting()


def test_a_program_that_never_stops_printing_gets_nothing_typed(desk, place):
    it = desk(*wrapped("while True: print('> ')", "--timeout", "1"))
    wait_for(place, "wrap:gave-up", it)
    it.process.send_signal(signal.SIGTERM)
    it.until(b"not ready in time; it is in AGENTS.md")
    assert "wrap:typed" not in names(place) and GOAL in section(place)


def test_a_program_that_dies_while_we_type_leaves_the_handoff(desk, place):
    dies = "import os, tty; tty.setcbreak(0); print('> ', end='', flush=True); os.read(0, 1); os._exit(5)"
    it = desk(*wrapped(dies))
    it.until(b"> ", b"no sign that the context arrived: the program ended first; the next session gets it\r\n")
    it.ends(5)
    assert place.waiting() and names(place) == ["wrap:typed"]


def test_our_own_text_printed_back_is_no_acknowledgement(desk, place):
    it = desk(*wrapped("while True: print('You said:', input('> '))"))
    it.until(REQUEST, b"You said: ", REQUEST, b"> ")
    it.sees_nothing(0.7)
    it.press(b"\x04", b"no sign that the context arrived: the program did not acknowledge it")
    assert "injection:succeeded" not in names(place) and place.waiting()


def test_behind_another_prompt_than_the_first_nothing_is_typed(desk, place):
    place.settings("startup:\n  retry_backoffs_s: [0]\n")
    it = desk(*wrapped("input('first> ')\nwhile True: print(input('second> '))"))
    it.until(b"first> ", REQUEST, b"second> ")
    it.sees_nothing(kit.WRAP_ANSWER_S + 1)
    it.press(b"\x04", b"the program did not acknowledge it; the next session gets it\r\n")


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


def test_ctrl_c_ends_a_program_that_has_closed_its_terminal(desk):
    it = desk(*wrapped("import os, time; print('here'); os.closerange(0, 3); time.sleep(99)"))
    it.until(b"here")
    it.read_some(0.5)
    os.write(it.master, b"\x03")
    it.ends(128 + 2)


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
    assert GOAL in section(place) and "AGENTS.md" in done.err and place.waiting()
    place.now += 8 * 86_400
    place.session("a week later").start()
    assert not os.path.exists(place.path("AGENTS.md"))


def test_without_a_terminal_the_program_takes_the_wrappers_place(place):
    assert ask(place, "wrap", "--", sys.executable, "-c", "import os; print(os.getppid())").out == "%d\n" % os.getpid()


def test_a_program_that_is_not_there_is_an_error_with_a_hint(desk):
    it = desk(KIT, "wrap", "--", "no-such-agent")
    it.until(b"error: cannot start no-such-agent\r\nhint: ")
    it.ends(1)
    assert b"ctx:" not in it.raw
