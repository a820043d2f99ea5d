"""Wrap: pure functions, a delivery under a clock of our own, and real programs in a pty."""
import importlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

fcntl = pytest.importorskip("fcntl", reason="Windows has no pseudo-terminals")
termios = pytest.importorskip("termios")

ROOT = Path(__file__).resolve().parent.parent
MODULE = "ctx_hooks"
sys.path.append(str(ROOT))
kit = importlib.import_module(MODULE)

DATA = ROOT / "tests" / "data" / "wrap"
PROGRAM = [sys.executable, str(DATA / "program.py")]
GUARD_S = 90
ACK = "ACK: context received"
TEXT = (
    "[CONTEXT INJECTION - Please acknowledge receipt]\nFrom the session before:\n\n"
    "- goal: ship it\n- next: tests\n"
    f'[END CONTEXT - Reply "{ACK}" to confirm]'
)
ONE_LINE = " ".join(line for line in TEXT.split("\n") if line)
NOTICE = "[System] Session context written to CLAUDE.md - please review"


def look(**fields):
    values = {"process": None, "silent_ms": 0, "text": "", "patterns": []}
    return kit.Glance(**{**values, **fields})


def is_ack(text):
    return bool(re.search(r"ACK:\s*context received", text, re.IGNORECASE))


# --- what is typed -----------------------------------------------------------


def test_a_paste_is_bracketed_and_keeps_its_lines():
    assert kit.plan_keys("one\r\n\n  two\n", True) == b"\x1b[200~one\r\r  two\x1b[201~"


def test_without_paste_the_lines_are_joined():
    assert kit.plan_keys("one\n\n  two \nthree\n", False) == b"one two three"


@pytest.mark.parametrize("paste", [True, False])
def test_no_control_character_of_the_text_is_typed(paste):
    hostile = "a\x1b[201~\rb\x03c\x04\x7f\x9b31m\u2028\ud800\tz\x00\x85"
    typed = kit.plan_keys(hostile, paste)
    typed = typed[6:-6] if paste else typed
    assert all(c == 13 and paste or c >= 32 and c != 127 for c in typed)
    assert typed.decode().replace("\r", " ") == "a[201~ bc31m?    z"


def test_a_line_too_long_for_a_cooked_terminal_keeps_its_end():
    long = "[CONTEXT]\n" + "ü words\n" * 2000 + TEXT.rsplit("\n", 1)[1]
    typed = kit.plan_keys(long, False)
    assert len(typed) <= kit.WRAP_LINE_BYTES
    assert typed.decode().startswith("[CONTEXT] ü words") and "left out" in typed.decode()
    assert typed.decode().endswith(f'[END CONTEXT - Reply "{ACK}" to confirm]')


@pytest.mark.parametrize("before, keys, expected", [
    (False, b"h", True), (True, b"ello\r", False), (True, b"\x03", False), (True, b"\x15", False),
    (False, b"\x1b[?62;c", False), (False, b"\x1b[12;40R", False), (True, b"\x1b[I", True), (False, b"\x1b[A", False),
    (False, b"\x1b]11;rgb:0000/0000/0000\x1b\\", False), (False, b"\x1b[200~pasted\x1b[201~", True),
])
def test_a_half_typed_line_is_told_from_what_the_terminal_reports(before, keys, expected):
    assert kit.is_typing(before, keys) is expected


# --- our own echo ------------------------------------------------------------


def answers(output, text=TEXT):
    return is_ack(kit.without_echo(output, text))


def wrapped(text, width, edge=""):
    return "\n".join(edge + text[i:i + width] + edge for i in range(0, len(text), width))


@pytest.mark.parametrize("width", range(5, 90, 3))
@pytest.mark.parametrize("edge", ["", "│ ", "> "])
def test_our_own_request_is_no_acknowledgement_however_it_is_wrapped(width, edge):
    echo = wrapped(ONE_LINE, width, edge)
    assert not answers(echo)
    assert answers(echo + "\n" + ACK)
    assert answers(f"{echo}\n● {ACK}. Going on.\n{echo}")


def test_a_part_of_our_request_is_no_acknowledgement():
    assert not answers('<ACK: context received" to confirm]')
    assert not answers(f'CONTEXT - Reply "{ACK}')


def test_a_context_that_talks_about_acknowledgement_does_not_acknowledge_itself():
    text = TEXT.replace("- goal", f"- the agent wrote {ACK} yesterday\n{ACK}\n- goal")
    assert not answers(text, text)
    assert answers(text + f"\n\n{ACK}\n", text)


def test_output_that_is_not_ours_is_left_as_it_is():
    assert kit.without_echo("Something else.\n", TEXT) == "Something else.\n"
    assert kit.without_echo("", TEXT) == "" and kit.without_echo(ACK, "") == ACK


# --- the delivery, under a clock of our own ----------------------------------


class Rig:
    """A delivery with a clock: `run` steps through the time while the program behaves as the look says."""

    def __init__(self, **fields):
        self.events, self.keys, self.now, self.escalations = [], b"", 0.0, 0
        fields = {"text": TEXT, "is_ack": is_ack, "on_event": self.note, "escalate": self.escalate, **fields}
        self.notice = fields.pop("notice", NOTICE)
        self.delivery = kit.Delivery(0.0, **fields)

    def note(self, name, **fields):
        self.events.append((name, fields))

    def escalate(self):
        self.escalations += 1
        return self.notice

    def run(self, seconds, **fields):
        fields = {"process": 0.95, "silent_ms": 60_000, **fields}
        end = self.now + seconds
        while self.now < end:
            self.now = round(self.now + 0.1, 3)
            self.keys += self.delivery.step(self.now, look(**fields))
        return self

    def names(self):
        return [name for name, _ in self.events]


def test_nothing_is_typed_before_the_program_has_settled():
    rig = Rig()
    assert rig.run(0.5).keys == b""
    assert rig.run(0.3).keys == ONE_LINE.encode()
    assert rig.run(0.5).keys == ONE_LINE.encode() + b"\r"
    assert rig.names() == ["wrap:ready", "injection:attempted"]


def test_output_while_it_settles_starts_the_settling_again():
    rig = Rig()
    for _ in range(10):
        rig.run(0.4).run(0.1, silent_ms=0)
    assert rig.keys == b""


def test_a_program_that_is_never_ready_gets_its_context_at_the_time_limit():
    rig = Rig(timeout_s=30)
    assert rig.run(29.8, process=0.0).keys == b""
    assert rig.run(1, process=0.0).keys == ONE_LINE.encode() + b"\r"
    assert rig.names() == ["wrap:timeout", "injection:attempted"]
    assert rig.events[0][1] == {"confidence": 0.0, "waitedMs": 30000}


def test_a_half_typed_line_of_the_person_is_never_submitted():
    rig = Rig(timeout_s=1)
    assert rig.run(120, typing=True).keys == b""
    assert rig.run(1).keys.startswith(b"[CONTEXT")


def test_an_acknowledgement_ends_the_delivery():
    rig = Rig().run(3).run(1, text=ONE_LINE + "\n" + ACK)
    typed = rig.keys
    assert rig.run(300).keys == typed
    assert rig.names() == ["wrap:ready", "injection:attempted", "injection:succeeded"]
    assert rig.events[-1][1]["attempts"] == 1 and rig.events[-1][1]["durationMs"] > 0


def test_an_acknowledgement_broken_by_the_window_counts():
    rig = Rig().run(3).run(1, text=ONE_LINE + "\n● ACK:\n  context\n  received")
    assert rig.names()[-1] == "injection:succeeded"


def test_our_echo_does_not_end_the_delivery():
    rig = Rig().run(4, text=wrapped(ONE_LINE, 33))
    assert rig.names() == ["wrap:ready", "injection:attempted"]


def test_an_acknowledgement_before_anything_was_typed_counts_for_nothing():
    assert Rig().run(0.3, text=ACK).names() == []


def test_retries_keep_to_the_backoffs_and_the_third_failure_writes_the_file():
    rig = Rig(backoffs_s=[1, 2, 5]).run(300)
    assert rig.names() == ["wrap:ready", "injection:attempted"] * 3 + ["injection:escalated", "wrap:ready"]
    assert rig.keys.decode() == (ONE_LINE + "\r") * 3 + NOTICE + "\r"
    assert rig.events[-2][1] == {"escalationType": "file"} and rig.escalations == 1


def test_a_retry_waits_for_its_backoff():
    rig = Rig(backoffs_s=[50], ack_s=5).run(50)
    assert rig.names().count("injection:attempted") == 1
    assert rig.run(20).names().count("injection:attempted") == 2


def test_where_the_file_cannot_be_written_the_attempts_go_on_to_their_limit():
    rig = Rig(notice="", max_attempts=5).run(600)
    assert rig.names().count("injection:attempted") == 5 and rig.escalations == 1
    assert rig.events[-1] == ("injection:failed", {"attempts": 5, "reason": kit.WRAP_NO_ANSWER})


def test_fewer_attempts_than_the_fallback_needs_still_reach_the_file():
    rig = Rig(max_attempts=1).run(60)
    assert rig.names() == ["wrap:ready", "injection:attempted", "injection:escalated", "wrap:ready"]


def test_no_context_means_no_delivery():
    assert Rig(text=" \n").run(60).events == []


def test_a_program_that_ends_early_is_said_to_have_ended():
    rig = Rig()
    rig.delivery.step(1.0, look(ended=True))
    assert rig.names() == ["wrap:ended"]
    rig = Rig().run(2)
    rig.delivery.step(3.0, look(text=ONE_LINE, ended=True))
    assert rig.events[-1] == ("injection:failed", {"attempts": 1, "reason": kit.WRAP_ENDED})


def test_every_agent_in_the_table_has_a_prompt_it_recognises():
    prompts = {"claude": "╭──╮\n│ > │\n╰──╯\n  ? for shortcuts", "codex": "$ ", "gemini": "> Type your message",
               "aider": ">>> "}
    assert set(prompts) == set(kit.AGENTS) - {""}
    for agent, prompt in prompts.items():
        assert kit.readiness(look(text=prompt, silent_ms=300, patterns=[kit.AGENTS[agent][0]])) > 0.7


@pytest.mark.parametrize("agent, answer", [
    ("claude", "● ACK, context is here"), ("codex", "• ACK."), ("gemini", "✦ ACK"), ("aider", "ACK\n"), ("", ACK)])
def test_an_agent_may_acknowledge_in_its_own_form(agent, answer):
    delivery = kit.Delivery(0.0, text=TEXT, is_ack=lambda said: bool(re.search(kit.AGENTS[agent][1], said)))
    delivery.attempts = 1
    assert delivery.acknowledges(answer) and not delivery.acknowledges("I see no ACK here")
    assert not any(delivery.acknowledges(wrapped(ONE_LINE, width)) for width in range(8, 80))


# --- the command -------------------------------------------------------------


@pytest.mark.parametrize("args, word", [
    ([], "command is missing"), (["--"], "command is missing"), (["--timeout", "x", "--", "c"], "--timeout"),
    (["--timeout", "nan", "--", "c"], "--timeout"), (["--timeout", "-1", "--", "c"], "--timeout"),
    (["--colour", "--", "c"], "--colour"), (["--context"], "--context"), (["--agent", "hal", "--", "c"], "--agent"),
])
def test_a_wrong_option_is_named(project, args, word):
    result = project.ask("wrap", *args)
    assert result.rc == 2 and word in result.err.decode() and b"hint: " in result.err and not result.out


@pytest.mark.parametrize("command, reason", [("no-such-command-here", "No such file"), ("./plain", "denied")])
def test_a_command_that_cannot_run_is_an_error_with_a_hint(project, command, reason):
    project.write("plain", "x")
    result = project.ask("wrap", "--", command)
    assert result.rc == 1 and f"error: cannot run {command}: " in result.err.decode() and reason in result.err.decode()
    assert b"hint: " in result.err


@pytest.mark.parametrize("content", [None, b"", b"TBD", bytes(range(256)) * 9], ids=["missing", "empty", "placeholder", "binary"])
def test_a_context_file_without_a_context_is_an_error(project, content):
    if content is not None:
        project.write("notes.md", content)
    result = project.ask("wrap", "--context", "notes.md", "--", "true")
    assert result.rc == 1 and b"no context in notes.md" in result.err


def test_the_command_delivers_the_handoff_and_counts_it(project, tmp_path):
    project.write(".claude/ll-continue-prompt.md", "# Goal\n\nship it\n")
    project.write("CLAUDE.md", "mine\n")
    received = tmp_path / "received.jsonl"
    result = project.ask("wrap", "--", *PROGRAM, "acknowledging", RECEIVED=str(received))
    assert result.rc == 0 and result.err == b"" and b"Welcome." in result.out
    assert "ship it" in read_lines(received)[0] and read_lines(received)[0].endswith("to confirm]")
    names = [row["event"] for row in project.recorded_events()]
    assert names == ["wrap:ready", "injection:attempted", "injection:succeeded"]
    metrics = project.read_json(".context/metrics.json")
    assert (metrics["attempted"], metrics["succeededOnFirstTry"], metrics["failed"]) == (1, 1, 0)
    assert project.read("CLAUDE.md") == "mine\n"


def test_a_program_that_ends_without_an_answer_is_counted_and_the_person_told_where_the_context_is(project):
    notes = project.write("notes.md", "# Goal\n\nship it\n")
    command = ["sh", "-c", "read line; exit 4"]
    result = project.ask("wrap", "--context", notes, "--timeout", "0", "--", *command)
    assert result.rc == 4 and notes in result.err.decode()
    assert project.read_json(".context/metrics.json")["failed"] == 1
    assert project.recorded_events("injection:failed")[0]["reason"] == kit.WRAP_ENDED
    assert project.recorded_events("wrap:timeout")


def test_without_a_request_one_delivery_is_all(project, tmp_path):
    project.write(".contextrc", "startup:\n  require_ack: false\n")
    notes = project.write("notes.md", "# Goal\n\nship it\n")
    received = tmp_path / "received.jsonl"
    result = project.ask("wrap", "--context", notes, "--", *PROGRAM, "copy", RECEIVED=str(received))
    assert result.rc == 0 and result.err == b""
    assert [row["event"] for row in project.recorded_events()] == ["wrap:ready", "injection:attempted"]
    assert len(read_lines(received)) == 1 and "ACK" not in read_lines(received)[0]


# --- real programs in a real terminal ----------------------------------------


class Terminal:
    """A person's terminal with the wrapped program in it. Everything waits for a fact, with a guard."""

    def __init__(self, folder, command, size=(24, 80), **plan):
        self.folder, self.output = folder, b""
        defaults = {"text": TEXT, "timeout_s": 60, "ack_s": 0.5, "backoffs_s": [0], "notice": NOTICE}
        (folder / "plan.json").write_text(json.dumps({**defaults, **plan}))
        self.master, self.slave = os.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            driver(folder, command), stdin=self.slave, stdout=self.slave, stderr=self.slave, env=environment(folder),
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.slave)
        self.reader.join(GUARD_S)
        os.close(self.master)

    def _read(self):
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.output += data

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, keys):
        os.write(self.master, keys)

    def until(self, fact, what):
        deadline = time.monotonic() + GUARD_S
        while not fact():
            assert time.monotonic() < deadline, f"no {what}; events {self.events()}; output {self.output[-2000:]!r}"
            time.sleep(0.02)

    def shows(self, text):
        self.until(lambda: text.encode() in self.output, f"{text!r} on the screen")

    def told(self, name):
        self.until(lambda: name in [event for event, _ in self.events()], f"event {name}")

    def events(self):
        return read_lines(self.folder / "events.jsonl")

    def names(self):
        return [event for event, _ in self.events()]

    def received(self):
        return read_lines(self.folder / "received.jsonl")

    def ends(self):
        code = self.process.wait(GUARD_S)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal was not restored"
        return code


def driver(folder, command):
    files = [str(folder / "plan.json"), str(folder / "events.jsonl")]
    return [sys.executable, str(DATA / "driver.py"), MODULE, *files, *command]


def environment(folder):
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")}
    return {**kept, "HOME": str(folder), "TERM": "xterm", "RECEIVED": str(folder / "received.jsonl"), "PYTHONUTF8": "1"}


def read_lines(path):
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith(("]", '"'))]


def test_a_repl_gets_the_context_as_one_line_and_acknowledges(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["acknowledging"]) as terminal:
        terminal.told("injection:succeeded")
        terminal.send(b"hello\rexit\r")
        assert terminal.ends() == 3
        assert terminal.received() == [ONE_LINE, "hello", "exit"]
        assert terminal.names() == ["wrap:ready", "injection:attempted", "injection:succeeded"]


def test_a_repl_that_acknowledges_late_gets_a_retry(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["acknowledging", "2"]) as terminal:
        terminal.told("injection:succeeded")
        terminal.send(b"exit\r")
        assert terminal.ends() == 3
        assert terminal.received() == [ONE_LINE, ONE_LINE, "exit"]
        assert terminal.events()[-1][1]["attempts"] == 2


def test_a_program_that_never_answers_is_told_about_the_file(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["mute"], max_attempts=1) as terminal:
        assert terminal.ends() == 0
        assert terminal.received() == [ONE_LINE, NOTICE]
        assert "injection:escalated" in terminal.names() and "injection:succeeded" not in terminal.names()


def test_a_program_that_never_reads_does_not_stop_the_ladder(tmp_path):
    text = TEXT.replace("goal", "word " * 1500)
    plan = {"text": text, "max_attempts": 1, "notice": "", "timeout_s": 0.5}
    with Terminal(tmp_path, PROGRAM + ["deaf", "3600"], **plan) as terminal:
        terminal.told("injection:failed")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ends() == 128 + signal.SIGTERM


def test_a_program_that_prints_for_ever_gets_the_context_at_the_time_limit(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["endless"], timeout_s=1, ack_s=60) as terminal:
        terminal.until(lambda: ONE_LINE in terminal.received(), "delivery")
        terminal.send(b"exit\r")
        assert terminal.ends() == 0
        assert terminal.names()[:2] == ["wrap:timeout", "injection:attempted"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_program_that_works_behind_its_prompt_is_not_ready_and_a_shell_does_not_hide_it(tmp_path):
    done, shell = tmp_path / "done", ["sh", "-c", '"$@"; exit $?', "sh"]
    plan = {"ready_patterns": ["> $"], "timeout_s": 1.5, "ack_s": 60}
    with Terminal(tmp_path, shell + PROGRAM + ["busy", str(done)], **plan) as terminal:
        terminal.told("wrap:timeout")
        done.touch()
        terminal.until(lambda: ONE_LINE in terminal.received(), "delivery")
        terminal.send(b"exit\r")
        assert terminal.ends() == 0
        assert "wrap:ready" not in terminal.names()


def test_a_program_that_asked_for_paste_gets_one_and_then_enter(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["pasting"]) as terminal:
        assert terminal.ends() == 0
        assert terminal.received() == ["\x1b[200~" + TEXT.replace("\n", "\r") + "\x1b[201~\r"]
        assert terminal.names()[-1] == "injection:succeeded"


def test_an_editor_is_not_ready_until_it_is_left(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["editor"], timeout_s=600, ack_s=60) as terminal:
        terminal.shows("some text.")
        assert not stays_silent(terminal)
        terminal.send(b":q\r")
        terminal.until(lambda: ONE_LINE in terminal.received(), "delivery")
        terminal.send(b"exit\r")
        assert terminal.ends() == 0
        assert terminal.received()[0] == ":q"


def stays_silent(terminal):
    """Events within a few polls: enough for a detector that is wrong to show it."""
    time.sleep(1)
    return terminal.events()


def test_a_half_typed_line_waits_for_its_person(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["acknowledging"], timeout_s=0) as terminal:
        terminal.send(b"hel")
        assert not stays_silent(terminal)
        terminal.send(b"lo\r")
        terminal.told("injection:succeeded")
        terminal.send(b"exit\r")
        assert terminal.ends() == 3
        assert terminal.received() == ["hello", ONE_LINE, "exit"]


def test_a_python_repl_echoes_without_acknowledging(tmp_path):
    with Terminal(tmp_path, [sys.executable, "-q", "-i", "-S"], size=(24, 40), max_attempts=1, notice="") as terminal:
        terminal.told("injection:failed")
        terminal.send(b"\x03")
        terminal.shows("KeyboardInterrupt")
        terminal.send(b"import os; os._exit(7)\r")
        assert terminal.ends() == 7
        assert "injection:succeeded" not in terminal.names()


def test_bash_echoes_without_acknowledging(tmp_path):
    with Terminal(tmp_path, ["bash", "--norc"], size=(24, 133), max_attempts=1, notice="") as terminal:
        terminal.told("injection:failed")
        terminal.shows("command not found")
        terminal.send(b"exit 5\r")
        assert terminal.ends() == 5
        assert terminal.names() == ["wrap:ready", "injection:attempted", "injection:failed"]


def test_a_long_context_reaches_a_cooked_program_with_its_request(tmp_path):
    text = TEXT.replace("goal", "goal " * 1600)
    with Terminal(tmp_path, PROGRAM + ["acknowledging"], text=text) as terminal:
        terminal.told("injection:succeeded")
        terminal.send(b"exit\r")
        assert terminal.ends() == 3
        assert "left out" in terminal.received()[0] and terminal.received()[0].endswith("to confirm]")


@pytest.mark.parametrize(
    "program, code", [(["leave", "42"], 42), (["die", "15"], 143)])
def test_the_exit_code_is_the_programs(tmp_path, program, code):
    with Terminal(tmp_path, PROGRAM + program) as terminal:
        assert terminal.ends() == code
        assert terminal.names() == ["wrap:ended"]


def test_the_program_has_a_real_terminal_of_its_own(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["terminal"]) as terminal:
        terminal.shows("terminals [True, True, True] owner True")
        assert terminal.ends() == 0


def test_the_window_size_and_its_changes_reach_the_program(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["size"], size=(31, 97), text="") as terminal:
        terminal.shows("size 31x97")
        terminal.resize(50, 120)
        terminal.shows("size 50x120")
        terminal.send(b"\r")
        assert terminal.ends() == 0


def test_signals_and_the_interrupt_key_reach_the_program(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["signals"], text="") as terminal:
        terminal.shows("armed")
        terminal.send(b"\x03")
        terminal.shows("got SIGINT")
        terminal.process.send_signal(signal.SIGUSR1)
        terminal.shows("got SIGUSR1")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.shows("got SIGTERM")
        assert terminal.ends() == 9


def test_keys_and_output_pass_through_unchanged(tmp_path):
    with Terminal(tmp_path, PROGRAM + ["mirror"], text="") as terminal:
        terminal.shows("go")
        terminal.send(bytes(range(256)))
        assert terminal.ends() == 0
        terminal.until(lambda: terminal.output == b"go" + bytes(range(256)), "every byte")


def piped(folder, command, keys, **plan):
    defaults = {"text": TEXT, "timeout_s": 60, "ack_s": 0.5, "backoffs_s": [0], "notice": "", "max_attempts": 1}
    (folder / "plan.json").write_text(json.dumps({**defaults, **plan}))
    return subprocess.run(
        driver(folder, command), input=keys, capture_output=True, env=environment(folder), timeout=GUARD_S,
        start_new_session=True, check=False)


def test_without_any_terminal_the_context_comes_first_and_the_end_of_input_last(tmp_path):
    result = piped(tmp_path, PROGRAM + ["copy"], b"hello")
    assert result.returncode == 0 and b"end of input" in result.stdout and result.stderr == b""
    assert read_lines(tmp_path / "received.jsonl") == [ONE_LINE, "hello"]


def test_without_a_context_pipes_pass_straight_through(tmp_path):
    result = piped(tmp_path, ["cat"], b"one\ntwo\n", text="")
    assert result.returncode == 0 and result.stdout.replace(b"\r", b"").count(b"one\n") == 2


def test_without_a_terminal_the_exit_code_and_all_output_arrive(tmp_path):
    script = "import sys; sys.stdout.write('x' * 300000); sys.exit(6)"
    result = piped(tmp_path, [sys.executable, "-c", script], b"")
    assert result.returncode == 6 and result.stdout.count(b"x") == 300000


def test_closed_standard_streams_are_no_obstacle(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"text": TEXT, "timeout_s": 0}))
    command = driver(tmp_path, PROGRAM + ["acknowledging"])
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    done = subprocess.run(shell + command, env=environment(tmp_path), timeout=GUARD_S, check=False)
    assert done.returncode in (0, 128 + signal.SIGHUP)


def test_a_closed_output_hangs_the_program_up(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    command = driver(tmp_path, PROGRAM + ["endless"])
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment(tmp_path))
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(GUARD_S) == 128 + signal.SIGHUP


def test_a_background_process_that_keeps_the_terminal_does_not_keep_us(tmp_path):
    with Terminal(tmp_path, ["sh", "-c", "trap '' HUP; sleep 20 & echo started; exit 2"]) as terminal:
        assert terminal.ends() == 2
        terminal.shows("started")
