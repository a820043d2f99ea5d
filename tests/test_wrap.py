"""Wrap: pure functions, a delivery under a clock of our own, and real programs in a pty."""
from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from helper import load_kit

fcntl = pytest.importorskip("fcntl", reason="wrap needs a terminal of POSIX")
termios = pytest.importorskip("termios", reason="wrap needs a terminal of POSIX")
kit = load_kit()
DATA = Path(__file__).resolve().parent / "data" / "wrap"
PROGRAM = [sys.executable, "-S", str(DATA / "program.py")]
GUARD_S = 60
ACK = "ACK: context received"
GOAL = "- goal: ship it\n- next: tests"
NOTICE = "[System] Session context written to CLAUDE.md - please review"
LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/wchan"), reason="needs Linux's /proc")


def look(text="", **fields):
    """A glance at a program that printed this text, is silent and reads its terminal."""
    lines = text.split("\n")
    values = {"process": 0.95, "programs": [], "silent_ms": 60_000, "gone": [], "lines": lines, "row": len(lines) - 1,
              "before": lines[-1], "raw": False, "hidden": False, "paste": False, "alternate": False, "typing": False, "ended": False}
    return kit.Record(**{**values, **fields})


def settings(**startup):
    return "startup:\n" + "".join("  %s: %s\n" % pair for pair in startup.items())


# --- what is typed -------------------------------------------------------------------------------


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
    typed = kit.plan_keys("[CONTEXT]\n" + "ü words\n" * 2000 + kit.FRAME_END, False)
    assert len(typed) <= kit.WRAP_LINE_BYTES
    assert typed.decode().startswith("[CONTEXT] ü words") and "left out" in typed.decode()
    assert typed.decode().endswith(kit.FRAME_END)


@pytest.mark.parametrize("keys, typed", [
    (b"h", "h"), (b"ello\r", "ello\r"), (b"\x03", "\x03"), (b"\x1b[?62;c", ""), (b"\x1b[12;40R", ""), (b"\x1b[I", ""), (b"\x1b[A", ""),
    (b"\x1b]11;rgb:0000/0000/0000\x1b\\", ""), (b"\x1b[200~pasted\x1b[201~", "pasted"),
])
def test_what_the_person_types_is_told_from_what_the_terminal_reports(keys, typed):
    assert kit.parse_keys(keys) == typed


@pytest.mark.parametrize("command, agent", [
    ("claude", "claude"), ("/opt/bin/codex --yolo", "codex"), ("npx @google/gemini-cli", "gemini"), ("npx -y @openai/codex@latest", "codex"),
    ("uvx --from aider-chat aider", "aider"), ("python3 -m aider", "aider"), ("node /x/gemini.js", "gemini"), ("sh -c 'exec codex'", ""),
    ("sh -c exec_codex", ""), ("cat codex", ""), ("npm exec claude-code", "claude"), ("", ""), ("my-agent claude", ""),
])
def test_the_agent_is_found_behind_a_launcher(command, agent):
    assert kit.find_agent(command.split()) == agent


def test_the_agent_is_found_inside_a_shells_command():
    assert kit.find_agent(["sh", "-c", "cd src && exec codex --yolo"]) == "codex"


# --- our own text on the screen ------------------------------------------------------------------

TYPED = '[CONTEXT INJECTION] one two three four [END CONTEXT - Reply "ACK: context received" to confirm]'


def wrapped(text, width):
    return "\n".join(text[i:i + width] for i in range(0, len(text), width))


@pytest.mark.parametrize("width", range(7, 90, 3))
def test_our_text_is_seen_in_the_input_however_it_is_wrapped(width):
    assert kit.is_in_input(look(wrapped("> " + TYPED, width)), TYPED, False)


@pytest.mark.parametrize("text", [
    "> " + TYPED + "\n", "> " + TYPED + "\nYou said: " + TYPED + "\n> ", "> ", "", "> " + TYPED[:-30], "> " + TYPED + " and more"])
def test_our_text_is_not_in_the_input_when_it_was_taken_or_is_not_whole(text):
    assert not kit.is_in_input(look(text), TYPED, False)


@pytest.mark.parametrize("text, expected", [
    ("❯ [Pasted text #1 +12 lines]", True), ("› [Pasted Content 1234 chars]", True), (" > [Pasted Text: 7 lines]", True),
    ("❯ " + TYPED, True), ("❯ [CONTEXT INJECTION] one\n  two three four\n  " + TYPED[-60:] + "\n  ", True),
    ("❯ [Pasted text #1 +12 lines]\n● Fine.\n────\n❯ ", False), ("❯ " + TYPED + "\n● Fine.\n────\n❯ ", False), ("no prompt", False),
])
def test_an_input_box_holds_our_text_from_its_prompt_on(text, expected):
    assert kit.is_in_input(look(text), TYPED, True) is expected


def after_echo(text):
    end = kit.find_echo(text, TYPED)
    return text[end:] if end >= 0 else None


@pytest.mark.parametrize("width", range(5, 90, 3))
def test_the_answer_stands_behind_our_text_however_it_is_wrapped(width):
    echo = wrapped("> " + TYPED, width)
    assert after_echo(echo).strip("]\n") == ""
    assert after_echo(ACK + "\n" + echo + "\nmine").strip("]\n") == "mine"


def test_the_answer_stands_behind_a_pasted_mark_too_and_an_unseen_text_has_none():
    assert after_echo("old\n❯ [Pasted text #1 +12 lines]\n● new") == "\n● new"
    assert after_echo("● something else") is None
    assert after_echo("> " + TYPED + "\n● first\n● new") == "]\n● first\n● new"
    assert after_echo("> " + TYPED + "\n● first\n> [Pasted text #2]\n● new") == "\n● new"
    assert after_echo("> [Pasted text #1]\n● first\n> " + TYPED + "\n● new") == "]\n● new"


def test_a_pasted_mark_that_stands_in_our_own_text_is_not_its_end():
    typed = "[CONTEXT INJECTION] one two, see [Pasted text #1] [END CONTEXT]"
    assert kit.find_echo("> " + typed, typed) == len("> " + typed) - 1
    assert kit.is_in_input(look("> " + typed), typed, False)


# --- the delivery, under a clock of our own ------------------------------------------------------


class Rig:
    """A delivery with a clock. `run` steps through the time in front of a program that shows what the test says; the
    default one echoes, takes an Enter as a line and says `answer`."""

    def __init__(self, project, answer="Fine.", **options):
        self.ctx = open_ctx(project)
        self.now, self.keys, self.answer, self.screen, self.since = 0.0, b"", answer, "Welcome.\n> ", 0.0
        self.began = self.ctx.now
        self.delivery = kit.Delivery(self.ctx, 0.0, (None, "notes.md", [("From notes.md:", GOAL)]), **options)

    def run(self, seconds, **fields):
        """Time passes; fields of the glance may be fixed."""
        end = self.now + seconds
        while self.now < end:
            self.now = round(self.now + 0.1, 3)
            self.ctx.now = self.began + self.now
            seen = look(**{"text": self.screen, "silent_ms": int((self.now - self.since) * 1000), **fields})
            keys = self.delivery.step(self.now, seen)
            if keys:
                self.keys, self.since = self.keys + keys, self.now
                self.take(keys)
        return self

    def take(self, keys):
        self.screen += keys.decode() if keys != b"\r" else "\n" + self.answer + "\n> "

    def rows(self):
        path = Path(self.ctx.path("events.jsonl"))
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def names(self):
        return [row["event"] for row in self.rows()]

    def metrics(self):
        return json.loads(Path(self.ctx.path("metrics.json")).read_text(encoding="utf-8"))


def open_ctx(project):
    env = {"HOME": project.home, "TMPDIR": project.tmp}
    ctx = kit.find_project(project.root, project.root, env, time.time())
    ctx.length = kit.units
    return ctx


def typed_once(rig):
    return rig.keys.count(b"[CONTEXT INJECTION")


def test_nothing_is_typed_before_the_program_has_settled_and_enter_comes_after_the_echo(project):
    rig = Rig(project)
    assert rig.run(0.4).keys == b""
    assert rig.run(0.3).keys.endswith(b"to confirm]")
    assert rig.run(1).keys.endswith(b"to confirm]\r")
    assert rig.names() == ["wrap:ready", "injection:attempted", "wrap:submitted"]


def test_output_while_it_settles_starts_the_settling_again(project):
    rig = Rig(project)
    for _ in range(10):
        rig.since = rig.now  # it says something
        rig.run(0.3)
    assert rig.keys == b""


def test_a_program_that_is_not_ready_in_time_gets_nothing_typed_but_a_file_and_the_person_a_line(project):
    rig = Rig(project, timeout_s=30).run(29.8, process=0.0)
    assert rig.names() == [] and not rig.delivery.told
    assert rig.run(600, process=0.0).run(60).keys == b""
    assert rig.names() == ["wrap:timeout", "injection:escalated"]
    assert "goal: ship it" in project.read("CLAUDE.md") and "ACK" not in project.read("CLAUDE.md")
    assert rig.delivery.told == [kit.WRAP_IN_FILE.format(reason="not ready in time", file="CLAUDE.md")]
    metrics = rig.metrics()
    assert (metrics["attempted"], metrics["escalatedToFile"], metrics["failed"]) == (1, 1, 0)


def test_a_recorder_row_holds_all_observations_and_no_line_of_the_person(project):
    rig = Rig(project, timeout_s=1).run(3, typing=True, text="Welcome.\n> my secret plan")
    row = rig.rows()[0]
    assert {"confidence", "process", "silent_ms", "obstacle", "raw", "hidden", "paste", "alternate", "typing", "programs", "waitedMs",
            "attempt", "enters"} <= set(row)
    assert "secret plan" not in json.dumps(rig.rows())


@pytest.mark.parametrize("fields", [
    {"text": "Do you trust this folder?\n❯ 1. Yes\n  2. No"}, {"text": "Remove it? [Y/n] "}, {"hidden": True}, {"typing": True},
    {"text": "Password: "}, {"programs": [["vim", "a"]]}, {"text": "user@host:~$ "}, {"raw": True, "text": "Tasks: 3"},
], ids=str)
def test_nothing_is_typed_while_something_else_is_asked_or_shown(project, fields):
    rig = Rig(project, timeout_s=600).run(60, **fields)
    assert rig.keys == b"" and rig.names() == []
    assert typed_once(rig.run(5)) == 1


@pytest.mark.parametrize("fields", [
    {"text": "Allow it to run?\n❯ 1. Yes\n  2. No"}, {"hidden": True}, {"text": "Who are you? password: "}], ids=str)
def test_no_enter_is_pressed_when_something_is_asked_after_the_text_was_typed(project, fields):
    rig = Rig(project).run(0.7)
    assert rig.keys and not rig.keys.endswith(b"\r")
    assert not rig.run(20, **fields).keys.endswith(b"\r")
    assert rig.run(2).keys.endswith(b"to confirm]\r")  # it is gone, and the text still stands in the input


def test_a_prompt_that_counts_is_the_same_place_again(project):
    rig, rig_count = Rig(project), iter(range(2, 99))
    rig.screen = "Welcome.\nIn [1]: "
    rig.take = lambda keys: setattr(rig, "screen", rig.screen + (
        keys.decode() if keys != b"\r" else "\nFine.\nIn [%d]: " % next(rig_count)))
    rig.run(60, raw=True, process=None)
    assert typed_once(rig) == 3 and "injection:escalated" in rig.names()


def test_without_an_echo_there_is_no_enter_and_the_file_gets_it(project):
    rig = Rig(project, timeout_s=30)
    rig.take = lambda keys: None
    assert not rig.run(200).keys.endswith(b"\r") and typed_once(rig) == 1
    assert rig.names()[-2:] == ["wrap:stuck", "injection:escalated"]
    assert "the typed text did not appear" in rig.delivery.told[0]


def test_enter_is_pressed_again_and_not_the_text_when_nothing_happened(project):
    rig = Rig(project)
    whole, rig.take = rig.take, lambda keys: whole(keys) if rig.keys.count(b"\r") != 1 else None
    rig.run(6)
    assert typed_once(rig) == 1 and rig.keys.count(b"\r") == 2
    assert [row["enters"] for row in rig.rows() if row["event"] == "wrap:submitted"] == [2]


def test_an_enter_that_was_taken_as_a_line_end_is_repeated(project):
    """Gemini does so for a while after a paste, the longer the busier the machine is."""
    rig = Rig(project, agent="gemini")
    rig.screen = " > "
    rig.take = lambda keys: setattr(rig, "screen", rig.screen + "\n   ") if rig.keys.count(b"\r") == 1 else Rig.take(rig, keys)
    rig.run(6)
    assert typed_once(rig) == 1 and rig.keys.count(b"\r") == 2 and "wrap:submitted" in rig.names()


def test_enter_is_not_pressed_for_ever_and_never_once_something_has_happened(project):
    rig = Rig(project)
    rig.take = lambda keys: None if keys == b"\r" else Rig.take(rig, keys)
    assert rig.run(100).keys.count(b"\r") == kit.WRAP_ENTERS and typed_once(rig) == 1
    assert "Enter did not submit it" in rig.delivery.told[0]


def until_typed(rig, end=b"]"):
    while not rig.keys.endswith(end):
        rig.run(0.1)
    return rig


def test_enter_is_not_pressed_again_while_the_person_types(project):
    rig = Rig(project)
    rig.take = lambda keys: None if keys == b"\r" else Rig.take(rig, keys)
    assert until_typed(rig, b"\r").run(20, typing=True).keys.count(b"\r") == 1


def test_no_enter_is_pressed_while_a_question_stands_below_our_text(project):
    rig = Rig(project, agent="codex")
    rig.screen = "› "
    shown = until_typed(rig).screen
    rig.run(10, text=shown + "\nAllow this command to run?\n❯ 1. Yes\n  2. No", row=0, before=shown)
    assert b"\r" not in rig.keys


def test_a_question_after_our_enter_is_not_taken_for_the_answer(project):
    rig = Rig(project)
    rig.take = lambda keys: Rig.take(rig, keys) if keys != b"\r" else setattr(
        rig, "screen", "Allow this command to run?\n❯ 1. Yes\n  2. No")
    assert "wrap:submitted" not in rig.run(10).names()


def test_nothing_is_typed_again_at_another_prompt(project):
    rig = Rig(project).run(3)
    rig.screen = "Fine.\nname> "
    assert typed_once(rig.run(300, process=None)) == 1


def test_a_waiting_mark_after_enter_is_something_that_happened(project):
    rig = Rig(project, agent="codex")
    rig.screen = "› "
    rig.take = lambda keys: setattr(rig, "screen", (
        rig.screen + keys.decode() if keys != b"\r" else "Waiting for startup\n" + rig.screen))
    assert rig.run(20).keys.count(b"\r") == 1


def test_an_acknowledgement_ends_the_delivery(project):
    rig = Rig(project, answer="● " + ACK).run(4)
    keys = rig.keys
    assert rig.run(300).keys == keys
    assert rig.names()[-1] == "injection:succeeded" and rig.rows()[-1]["evidence"] == "acknowledgement"
    assert rig.metrics()["succeededOnFirstTry"] == 1 and rig.rows()[-1]["durationMs"] > 0


def test_a_line_of_help_below_an_acknowledgement_makes_no_question_of_it(project):
    rig = Rig(project, answer="✦ " + ACK + "\n\n" + " " * 60 + "? for shortcuts\n────").run(4)
    assert rig.names()[-1] == "injection:succeeded"


@pytest.mark.parametrize("answer", ["Fine.", 'You said Reply "ACK: context received" to confirm', "I will not say ACK: context received"])
def test_what_is_no_acknowledgement_does_not_end_it(project, answer):
    assert "injection:succeeded" not in Rig(project, answer=answer).run(20).names()


def test_an_old_acknowledgement_on_the_screen_counts_for_nothing(project):
    rig = Rig(project)
    rig.screen = "● " + ACK + "\n> "
    assert "injection:succeeded" not in rig.run(20).names()
    rig.screen = "● " + ACK + "\nother\n> "  # our own text is not to be seen any more
    assert "injection:succeeded" not in rig.run(20).names()


def test_an_acknowledgement_with_which_the_program_ends_counts(project):
    rig = until_typed(Rig(project, answer=ACK), b"\r")
    rig.delivery.step(rig.now + 0.1, look(rig.screen, ended=True))
    assert rig.names()[-1] == "injection:succeeded"


def test_an_answer_may_take_its_time(project):
    rig = Rig(project, answer=ACK).run(2)
    screen, rig.screen = rig.screen, rig.screen.rpartition(ACK)[0]
    rig.run(120, process=None)  # nobody knows what it waits for, and its prompt is not there
    assert typed_once(rig) == 1
    rig.screen = screen
    assert rig.run(1).names()[-1] == "injection:succeeded"


def test_retries_name_their_number_and_the_third_failure_writes_the_file(project):
    project.write(".contextrc", settings(retry_backoffs_s="[1, 2, 5]"))
    rig = Rig(project).run(300)
    text = rig.keys.decode()
    assert [n for n in range(1, 9) if "attempt %d)" % n in text] == [1, 2, 3]
    assert text.endswith(NOTICE + "\r") and text.count(NOTICE) == 1
    assert [row["attempt"] for row in rig.rows() if row["event"] == "injection:attempted"] == [1, 2, 3]
    assert rig.names().count("injection:escalated") == 1 and "goal: ship it" in project.read("CLAUDE.md")
    rig.delivery.step(rig.now + 1, look(rig.screen, ended=True))
    assert rig.names()[-1] == "wrap:ended" and rig.metrics()["failed"] == 0, "it is in the file"


def test_a_retry_waits_for_its_backoff(project):
    project.write(".contextrc", settings(retry_backoffs_s="[50]"))
    rig = Rig(project).run(50)
    assert rig.names().count("injection:attempted") == 1
    assert rig.run(20).names().count("injection:attempted") == 2


def test_a_late_acknowledgement_counts_and_the_section_goes_again(project):
    project.write("CLAUDE.md", "mine\n")
    project.write(".contextrc", settings(file_fallback_after_attempts=1))
    rig = Rig(project).run(60)
    assert "goal: ship it" in project.read("CLAUDE.md") and rig.delivery.state == "over"
    rig.screen += "\n● " + ACK + "\n> "
    assert "injection:succeeded" in rig.run(1).names()
    assert project.read("CLAUDE.md") == "mine\n" and rig.metrics()["succeededAfterRetry"] == 1


def test_where_the_file_cannot_be_written_the_attempts_go_on_to_their_limit_and_the_end_is_a_failure(project):
    project.write(".contextrc", settings(retry_backoffs_s="[0]"))
    os.mkdir(project.path("CLAUDE.md"))
    rig = Rig(project).run(600)
    assert rig.names().count("injection:attempted") == 5 and "injection:failed" not in rig.names()
    rig.delivery.step(rig.now, look(ended=True))
    assert rig.rows()[-1]["event"] == "injection:failed" and rig.rows()[-1]["reason"] == "no acknowledgement"
    assert rig.metrics()["failed"] == 1 and "notes.md" in rig.delivery.told[0]


@pytest.mark.parametrize("agent, file", [
    ("claude", "CLAUDE.md"), ("codex", "AGENTS.md"), ("gemini", "GEMINI.md"), ("aider", "CLAUDE.md"), ("", "CLAUDE.md")])
def test_the_file_is_the_one_that_the_agent_reads(project, agent, file):
    rig = Rig(project)
    rig.ctx.agent = agent if agent in kit.DIALECTS else rig.ctx.agent
    rig.delivery = kit.Delivery(rig.ctx, 0.0, (None, "notes.md", [("From notes.md:", GOAL)]), agent=agent, timeout_s=1)
    rig.run(3, process=0.0)
    assert "goal: ship it" in project.read(file)


def test_without_a_request_one_delivery_is_all(project):
    project.write(".contextrc", settings(require_ack="false"))
    rig = Rig(project).run(60)
    rig.delivery.step(rig.now, look(ended=True))
    assert rig.names() == ["wrap:ready", "injection:attempted", "wrap:submitted"] and b"ACK" not in rig.keys


def test_no_context_means_no_delivery(project):
    rig = Rig(project)
    rig.delivery = kit.Delivery(rig.ctx, 0.0, (None, "", []))
    assert rig.run(60).names() == [] and rig.keys == b""


def test_a_program_that_ends_early_is_said_to_have_ended(project):
    rig = Rig(project)
    rig.delivery.step(1.0, look(ended=True))
    assert rig.names() == ["wrap:ended"] and not rig.delivery.told


def test_a_program_that_ends_without_an_answer_has_not_acknowledged(project):
    rig = Rig(project).run(3)
    rig.delivery.step(4.0, look(rig.screen, ended=True))
    assert rig.rows()[-1]["event"] == "injection:failed" and rig.rows()[-1]["reason"] == "the program ended"


# --- the command ---------------------------------------------------------------------------------


def ask(project, *args, keys=b"", after="", **env):
    """The command with a terminal as its input; `keys` are typed once the recorder has the event `after`."""
    primary, secondary = os.openpty()
    command = [sys.executable, "-I", kit.__file__, "wrap", *args]
    started = subprocess.Popen(command, cwd=project.root, env={**project.env, **env}, stdin=secondary, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    try:
        deadline = time.monotonic() + GUARD_S
        while keys and after not in [row["event"] for row in read_lines(Path(project.path(".context/events.jsonl")))]:
            assert time.monotonic() < deadline and started.poll() is None, after
            time.sleep(0.02)
        os.write(primary, keys)
        out, err = started.communicate(timeout=GUARD_S)
    finally:
        os.close(primary)
        os.close(secondary)
    return subprocess.CompletedProcess(command, started.returncode, out, err)


def test_without_a_terminal_it_is_refused_with_a_hint(project):
    done = subprocess.run([sys.executable, "-I", kit.__file__, "wrap", "--", "true"], cwd=project.root, env=project.env,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=GUARD_S, check=False)
    assert done.returncode == 1 and b"error: wrap needs a terminal" in done.stderr and b"hint: " in done.stderr


@pytest.mark.parametrize("args, word", [
    ([], "command is missing"), (["--"], "command is missing"), (["--timeout", "x", "--", "c"], "--timeout"),
    (["--timeout", "-1", "--", "c"], "--timeout"), (["--colour", "--", "c"], "--colour"), (["--context"], "--context"),
    (["--agent", "hal", "--", "c"], "--agent"),
])
def test_a_wrong_option_is_named(project, args, word):
    result = ask(project, *args)
    assert result.returncode and word in result.stderr.decode() and b"hint: " in result.stderr and not result.stdout


@pytest.mark.parametrize("command", ["bash", "zsh -l", "/bin/sh", "vim notes", "less notes"])
def test_a_shell_an_editor_and_a_pager_are_refused_with_a_hint(project, command):
    result = ask(project, "--", *command.split())
    assert result.returncode == 1 and b"not an agent" in result.stderr and b"sh -c" in result.stderr
    assert not project.exists(".context/events.jsonl")


def test_a_shells_command_is_run(project):
    assert ask(project, "--", "sh", "-c", "exit 7").returncode == 7


@pytest.mark.parametrize("command, reason", [("no-such-command-here", "No such file"), ("./plain", "denied")])
def test_a_command_that_cannot_run_is_an_error_with_a_hint(project, command, reason):
    project.write("plain", "x")
    result = ask(project, "--", command)
    said = result.stderr.decode()
    assert result.returncode == 1 and f"error: cannot run {command}: " in said and reason in said and "hint: " in said


def test_a_command_that_cannot_run_leaves_the_terminal_as_it_was(project):
    """It was left raw and without echo: a mistyped name took the person's shell along."""
    primary, secondary = os.openpty()
    before = termios.tcgetattr(secondary)
    try:
        done = subprocess.run([sys.executable, "-I", kit.__file__, "wrap", "--", "no-such-command-here"], cwd=project.root,
                              env=project.env, stdin=secondary, stdout=secondary, stderr=subprocess.PIPE, timeout=GUARD_S, check=False)
        assert done.returncode == 1 and b"error: cannot run" in done.stderr
        assert termios.tcgetattr(secondary) == before
    finally:
        os.close(primary)
        os.close(secondary)


@pytest.mark.parametrize("content", [None, b"", b"TBD", b"# Goal\n"], ids=["missing", "empty", "placeholder", "heading"])
def test_a_context_file_without_a_context_is_an_error(project, content):
    if content is not None:
        project.write("notes.md", content)
    result = ask(project, "--context", "notes.md", "--", "true")
    assert result.returncode == 1 and b"no context in notes.md" in result.stderr


def test_the_command_delivers_the_handoff_once_and_counts_it(project, tmp_path):
    assert ask(project, "--", "true").returncode == 0  # the kit has been here before the handoff
    project.write(".context/handoffs/before.md", "# Goal\n\nship it\n")
    project.write("CLAUDE.md", "mine\n")
    received = tmp_path / "received.jsonl"
    result = ask(project, "--", *PROGRAM, "acknowledging", keys=b"exit\r", after="injection:succeeded", RECEIVED=str(received))
    assert result.returncode == 3 and result.stderr == b"" and b"Welcome." in result.stdout
    assert "ship it" in read_lines(received)[0] and read_lines(received)[0].endswith("to confirm]")
    metrics = project.read_json(".context/metrics.json")
    assert (metrics["attempted"], metrics["succeededOnFirstTry"], metrics["failed"]) == (1, 1, 0)
    assert project.read("CLAUDE.md") == "mine\n"
    rows = read_lines(Path(project.path(".context/events.jsonl")))
    assert {row["agent"] for row in rows if "messageId" in row} == {"other"}, "its success was booked as Claude's"
    again = ask(project, "--", *PROGRAM, "leave", "0", RECEIVED=str(tmp_path / "again.jsonl"))
    assert again.returncode == 0 and not read_lines(tmp_path / "again.jsonl"), "it was delivered twice"


def test_a_program_that_is_not_ready_leaves_the_person_one_line(project):
    project.write("notes.md", "# Goal\n\nship it\n")
    result = ask(project, "--context", "notes.md", "--timeout", "0", "--", "sh", "-c", "sleep 1; exit 4")
    assert result.returncode == 4 and "ship it" in project.read("CLAUDE.md")
    assert result.stderr.decode().splitlines() == [kit.WRAP_IN_FILE.format(reason="not ready in time", file="CLAUDE.md")]


def test_what_could_not_be_delivered_is_named_also_without_a_handoff(project):
    """The line said `it is in  - please read it`: only a handoff's path was known."""
    project.write("NOTES.md", "# Goal\n\nship it\n")
    project.write(".contextrc", settings(files="[NOTES.md, gone.md]"))
    os.mkdir(project.path("CLAUDE.md"))
    result = ask(project, "--timeout", "0", "--", "sh", "-c", "sleep 1; exit 4")
    assert result.returncode == 4
    assert result.stderr.decode().splitlines() == [kit.FAILURE_NOTICE.format(path=project.path("NOTES.md"))]


def test_the_files_that_are_named_are_those_that_would_have_been_delivered(project):
    project.write("NOTES.md", "# Goal\n\nship it\n")
    project.write(".env", "TOKEN=1\n")
    project.write("empty.md", "")
    project.write(".contextrc", settings(files="[.env, empty.md, NOTES.md]"))
    assert kit._read_context(open_ctx(project), "")[1] == project.path("NOTES.md")


def test_a_handoff_that_is_only_named_is_named_to_the_person_too(project):
    """Its session still runs, so it is no one else's yet; the line said `it is in  - please read it`."""
    project.write(".context/handoffs/s1.md", "# Goal\n\nship it\n")
    ctx = open_ctx(project)
    kit.note_handoff(ctx, "s1", file=".context/handoffs/s1.md", written_at=ctx.now, by="agent")
    kit.update_session(ctx, "s1", lambda state: setattr(state, "client", str(os.getpid())))
    chosen, paths, sources = kit._read_context(open_ctx(project), "")
    assert chosen is None and len(sources) == 1 and paths == project.path(".context/handoffs/s1.md")


# --- real programs in a real terminal ------------------------------------------------------------


class Terminal:
    """A person's terminal with the wrapped program in it. Everything waits for a fact, with a guard."""

    def __init__(self, project, command, size=(24, 80), **plan):
        self.project, self.output = project, b""
        startup = {"retry_backoffs_s": "[0]", "max_attempts": 1, "file_fallback_after_attempts": 1, **plan.pop("startup", {})}
        project.write(".contextrc", settings(**startup))
        self.log, self.plan = Path(project.base) / "received.jsonl", Path(project.base) / "plan.json"
        self.plan.write_text(json.dumps({"text": GOAL, "timeout_s": 60, "ack_s": 0.5, **plan}))
        self.master, self.slave = os.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            driver(self.plan, command), stdin=self.slave, stdout=self.slave, stderr=self.slave, cwd=project.root,
            env=environment(project, self.log), start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
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
            assert time.monotonic() < deadline, f"no {what}; rows {self.rows()}; output {self.output[-2000:]!r}"
            time.sleep(0.02)

    def shows(self, text):
        self.until(lambda: text.encode() in self.output, f"{text!r} on the screen")

    def told(self, name):
        self.until(lambda: name in self.names(), f"event {name}")

    def rows(self):
        return read_lines(Path(self.project.path(".context/events.jsonl")))

    def names(self):
        return [row["event"] for row in self.rows()]

    def received(self):
        return read_lines(self.log)

    def contexts(self):
        return [text for text in self.received() if "[CONTEXT INJECTION" in text]

    def ends(self):
        code = self.process.wait(GUARD_S)
        assert termios.tcgetattr(self.slave) == self.before, "the terminal was not restored"
        return code


def driver(plan, command):
    return [sys.executable, "-S", str(DATA / "driver.py"), str(plan), *command]


def environment(project, log):
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")}
    return {**kept, "HOME": project.home, "TMPDIR": project.tmp, "TERM": "xterm", "RECEIVED": str(log), "PYTHONUTF8": "1"}


def read_lines(path):
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith(("]", '"', "}"))]


@pytest.fixture
def terminal(project):
    opened = []

    def begin(command, **plan):
        opened.append(Terminal(project, command, **plan))
        return opened[-1]

    yield begin
    for one in opened:
        one.__exit__()


def test_a_repl_gets_the_context_as_one_line_and_acknowledges(terminal):
    it = terminal([*PROGRAM, "acknowledging"])
    it.told("injection:succeeded")
    it.send(b"hello\rexit\r")
    assert it.ends() == 3
    assert len(it.contexts()) == 1 and it.received()[1:] == ["hello", "exit"]
    assert it.names() == ["wrap:ready", "injection:attempted", "wrap:submitted", "injection:succeeded"]


def test_the_terminals_own_answers_do_not_wait_for_our_enter(terminal):
    """The person's keys do. A program that asks where its cursor is gives up after 2 s, and takes a late answer for keys."""
    it = terminal([*PROGRAM, "locating"])
    it.shows("\x1b[6n")
    it.send(b"\x1b[1;3R")
    assert it.ends() == 0
    assert it.received() == ["\x1b[1;3R"] and it.names()[-1] == "injection:succeeded"


def test_a_second_attempt_says_so(terminal):
    it = terminal([*PROGRAM, "acknowledging", "2"], startup={"max_attempts": 3, "file_fallback_after_attempts": 3})
    it.told("injection:succeeded")
    it.send(b"exit\r")
    assert it.ends() == 3
    assert ["attempt 1)" in it.contexts()[0], "attempt 2)" in it.contexts()[1]] == [True, True]
    assert it.rows()[-1]["attempts"] == 2


def test_a_program_that_never_answers_is_told_about_the_file(terminal, project):
    it = terminal([*PROGRAM, "mute"])
    assert it.ends() == 0
    assert it.received()[1:] == [NOTICE] and len(it.contexts()) == 1
    assert "goal: ship it" in project.read("CLAUDE.md")


@pytest.mark.parametrize("question", ["Overwrite it? [y/N] ", "Allow it to run?\n❯ 1. Yes\n  2. No\n", "Your password: "])
def test_a_question_waits_for_its_person(terminal, question):
    it = terminal([*PROGRAM, "asking", question])
    it.shows(question.split("\n")[0])
    assert not stays_silent(it) and not it.received()
    it.send(b"no\r")
    it.told("injection:succeeded")
    it.send(b"exit\r")
    assert it.ends() == 3
    assert it.received()[0] == "no" and len(it.contexts()) == 1


def test_hidden_input_gets_nothing(terminal):
    it = terminal([*PROGRAM, "secret"])
    it.shows("Who are you")
    assert not stays_silent(it) and not it.received()
    it.send(b"open sesame\r")
    it.told("injection:succeeded")
    it.send(b"exit\r")
    assert it.ends() == 3
    assert it.received()[0] == "open sesame"


def test_single_keys_are_never_typed_into_a_screen_that_takes_them_as_commands(terminal, project):
    it = terminal([*PROGRAM, "single_keys"], timeout_s=2)
    it.told("wrap:timeout")
    it.send(b"q")
    assert it.ends() == 0
    assert it.received() == ["q"] and "goal: ship it" in project.read("CLAUDE.md")
    it.shows("ctx: the agent did not take the context (not ready in time); it is now in CLAUDE.md")


def test_an_editor_is_not_ready_until_it_is_left(terminal):
    it = terminal([*PROGRAM, "editor"], timeout_s=600, ack_s=60)
    it.shows("some text.")
    assert not stays_silent(it)
    it.send(b":q\r")
    it.until(it.contexts, "delivery")
    it.send(b"exit\r")
    assert it.ends() == 0
    assert it.received()[0] == ":q"


def stays_silent(it):
    """Rows within a few polls: enough for a detector that is wrong to show it."""
    time.sleep(2)
    return it.rows()


def test_a_box_gets_a_paste_and_then_enter(terminal):
    it = terminal([*PROGRAM, "box", "plain"])
    it.told("injection:succeeded")
    assert it.contexts()[0].count("\r") > 3
    it.send(b"exit")
    it.shows("exit")
    it.send(b"\r")
    assert it.ends() == 0


def test_an_enter_that_did_nothing_is_repeated_and_the_text_is_not(terminal):
    it = terminal([*PROGRAM, "box", "deaf"])
    it.told("injection:succeeded")
    assert len(it.contexts()) == 1
    assert [row["enters"] for row in it.rows() if row["event"] == "wrap:submitted"] == [2]


def test_a_text_that_is_not_shown_is_not_submitted(terminal, project):
    it = terminal([*PROGRAM, "box", "blind"], timeout_s=2)
    it.told("injection:escalated")
    assert not it.received() and "goal: ship it" in project.read("CLAUDE.md")


def test_a_question_that_comes_after_our_text_is_not_answered_by_our_enter(terminal):
    it = terminal([*PROGRAM, "box", "asks"], timeout_s=30)
    it.shows("Allow this command to run?")
    time.sleep(2)  # time for an Enter that is wrong
    assert not it.received()
    it.send(b"\r")
    it.until(lambda: it.received() == ["answered"], "the person's own answer")


def test_an_answer_that_takes_its_time_is_waited_for(terminal):
    it = terminal([*PROGRAM, "box", "slow"])
    it.told("injection:succeeded")
    assert len(it.contexts()) == 1 and it.rows()[-1]["attempts"] == 1


def test_a_late_acknowledgement_counts_after_the_file_was_written(terminal, project):
    it = terminal([*PROGRAM, "box", "late"])
    it.told("injection:succeeded")
    assert "injection:escalated" in it.names()
    it.until(lambda: not project.exists("CLAUDE.md"), "the section's end")


@LINUX
def test_a_program_that_works_behind_its_prompt_is_not_ready_and_a_shell_does_not_hide_it(terminal, tmp_path):
    done = tmp_path / "done"
    it = terminal(["sh", "-c", '"$@"; exit $?', "sh", *PROGRAM, "busy", str(done)], ack_s=60)
    it.shows("Done.")
    assert not stays_silent(it)
    done.touch()
    it.until(it.contexts, "delivery")
    it.send(b"exit\r")
    assert it.ends() == 0


def test_a_program_that_prints_for_ever_is_not_ready(terminal, project):
    it = terminal([*PROGRAM, "endless"], timeout_s=1)
    it.told("wrap:timeout")
    it.send(b"exit\r")
    assert it.ends() == 0
    assert not it.contexts() and "goal: ship it" in project.read("CLAUDE.md")


def test_a_half_typed_line_waits_for_its_person(terminal):
    it = terminal([*PROGRAM, "acknowledging"])
    it.send(b"hel")
    assert not stays_silent(it)
    it.send(b"lo\r")
    it.told("injection:succeeded")
    it.send(b"exit\r")
    assert it.ends() == 3
    assert it.received()[0] == "hello" and it.received()[-1] == "exit" and len(it.contexts()) == 1


def test_keys_that_come_while_we_type_wait_for_our_enter(terminal):
    it = terminal([*PROGRAM, "acknowledging"], ack_s=60)
    it.told("injection:attempted")
    it.send(b"mine\r")
    it.until(lambda: "mine" in it.received(), "the person's line")
    assert it.contexts()[0].endswith("to confirm]")
    it.send(b"exit\r")
    assert it.ends() == 3


def test_a_python_repl_echoes_without_acknowledging(terminal):
    it = terminal([sys.executable, "-q", "-i", "-S"], size=(24, 40))
    it.told("injection:escalated")
    it.shows("SyntaxError")
    it.send(b"\x03")
    it.shows("KeyboardInterrupt")
    it.send(b"import os; os._exit(7)\r")
    assert it.ends() == 7
    assert "injection:succeeded" not in it.names()


def test_a_long_context_reaches_a_cooked_program_with_its_request(terminal):
    it = terminal([*PROGRAM, "acknowledging"], text=GOAL.replace("goal", "goal " * 1600), startup={"budget_chars": 9000})
    it.told("injection:succeeded")
    it.send(b"exit\r")
    assert it.ends() == 3
    assert "left out" in it.received()[0] and it.received()[0].endswith("to confirm]")


@pytest.mark.parametrize("program, code", [(["leave", "42"], 42), (["die", "15"], 143)])
def test_the_exit_code_is_the_programs(terminal, program, code):
    it = terminal([*PROGRAM, *program])
    assert it.ends() == code
    assert it.names() == ["wrap:ended"]


@pytest.mark.parametrize("number, code", [("9", 137), ("15", 143)])
def test_a_killed_program_leaves_the_terminal_as_it_was(terminal, number, code):
    it = terminal([*PROGRAM, "messy", number], text="")
    assert it.ends() == code
    it.shows("\x1b[0m")
    screen = kit.Screen(24, 80)
    screen.feed(it.output)
    assert screen.modes == {kit.CURSOR_MODE}


@pytest.mark.parametrize("how", ["by itself", "by the key"])
def test_a_stopped_program_stops_us_and_goes_on_with_us(terminal, how):
    it = terminal([*PROGRAM, "quitting" if how == "by itself" else "acknowledging"], text="")
    it.shows("> ")
    if how == "by the key":
        it.send(b"\x1a")
        assert it.process.poll() is None
        it.send(b"hello\r")  # in a session without a shell to come back to, both just go on
        it.until(lambda: it.received() == ["hello"], "the line")
    else:
        it.shows("back")
    it.send(b"exit\r")
    assert it.ends() in (0, 3)


def test_the_persons_shell_gets_its_terminal_back_while_the_program_is_stopped(terminal, project):
    """A shell with job control starts us, ^Z brings it back, and `fg` lets all go on."""
    plan = Path(project.base) / "plan.json"
    it = terminal(["true"])
    it.ends()
    line = " ".join("'%s'" % word.replace("'", "'\\''") for word in driver(plan, [*PROGRAM, "acknowledging"]))
    plan.write_text(json.dumps({"text": ""}))
    shell = OwnShell(project, it.log)
    try:
        shell.send(line + "\n")
        shell.shows("Welcome.")
        shell.send("\x1a")
        shell.shows("Stopped")
        shell.send("echo here-$((1+1)); fg\n")
        shell.shows("here-2")
        shell.send("hello\n")
        it.until(lambda: it.received() == ["hello"], "the line after fg")
    finally:
        shell.close()


class OwnShell:
    """An interactive bash in a terminal of its own."""

    def __init__(self, project, log):
        self.output = b""
        self.master, slave = os.openpty()
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"], stdin=slave, stdout=slave, stderr=slave, cwd=project.root,
            env=environment(project, log), start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            try:
                self.output += os.read(self.master, 65536)
            except OSError:
                return

    def send(self, keys):
        os.write(self.master, keys.encode())

    def shows(self, text):
        end = time.monotonic() + GUARD_S
        while text.encode() not in self.output:
            assert time.monotonic() < end, "never shown: %r in %r" % (text, self.output[-1500:])
            time.sleep(0.02)

    def close(self):
        self.process.kill()
        self.process.wait()


def test_the_program_has_a_real_terminal_of_its_own(terminal):
    it = terminal([*PROGRAM, "terminal"])
    it.shows("terminals [True, True, True] owner True")
    assert it.ends() == 0


def test_the_window_size_and_its_changes_reach_the_program(terminal):
    it = terminal([*PROGRAM, "size"], size=(31, 97), text="")
    it.shows("size 31x97")
    it.resize(50, 120)
    it.shows("size 50x120")
    it.send(b"\r")
    assert it.ends() == 0


def test_a_window_that_changes_while_the_program_draws_disturbs_nothing(terminal):
    """The size came in the middle of an erased screen, and the wrapper died of it."""
    it = terminal([*PROGRAM, "drawing", "20000"], size=(50, 120), text="")
    while it.process.poll() is None:
        it.resize(5, 120)
        it.resize(50, 120)
        time.sleep(0.0005)
    assert it.ends() == 5


def test_signals_and_the_interrupt_key_reach_the_program(terminal):
    it = terminal([*PROGRAM, "signals"], text="")
    it.shows("armed")
    it.send(b"\x03")
    it.shows("got SIGINT")
    it.process.send_signal(signal.SIGUSR1)
    it.shows("got SIGUSR1")
    it.process.send_signal(signal.SIGTERM)
    it.shows("got SIGTERM")
    assert it.ends() == 9


def test_keys_and_output_pass_through_unchanged(terminal):
    it = terminal([*PROGRAM, "mirror"], text="")
    it.shows("go")
    it.send(bytes(range(256)))
    assert it.ends() == 0
    it.until(lambda: it.output.startswith(b"go" + bytes(range(256))), "every byte")


def test_a_closed_output_hangs_the_program_up(project):
    plan = Path(project.base) / "plan.json"
    plan.write_text(json.dumps({"text": ""}))
    env = environment(project, Path(project.base) / "received.jsonl")
    primary, secondary = os.openpty()
    process = subprocess.Popen(driver(plan, [*PROGRAM, "endless"]), stdin=secondary, stdout=subprocess.PIPE, env=env, cwd=project.root)
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(GUARD_S) == 128 + signal.SIGHUP
    os.close(primary)
    os.close(secondary)


def test_a_background_process_that_keeps_the_terminal_does_not_keep_us(terminal):
    it = terminal(["sh", "-c", "trap '' HUP; sleep 20 & echo started; exit 2"])
    assert it.ends() == 2
    it.shows("started")
