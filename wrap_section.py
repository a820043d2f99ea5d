"""The two sections of ctx_hooks.py that belong to `wrap`: Readiness and Wrap."""
from __future__ import annotations

import sys
import time

try:
    import posix as _os
except ImportError:
    import os as _os  # Windows

# =============================================================================
# Readiness
# =============================================================================
# Is a program in a terminal waiting for input? Pure functions from what it
# printed and what the kernel says to a confidence; ready above READY_ABOVE. A
# guess, so never load-bearing: whoever asks has a time limit of its own.
READY_ABOVE = 0.7
READY_AGREE = 0.1  # added when several kinds of evidence agree
READY_TERMINAL = 0.95  # the kernel says: it sleeps until the terminal has input
READY_PATTERN = 0.9
READY_NATURAL = 0.6
NATURAL_AFTER_MS = 200
SILENCE_AFTER_MS = 500
SILENCE_FULL_MS = 3000
SILENCE_MOST = 0.8
PATTERN_LINES = 6  # a prompt may have a frame and hints below it
READ_WAITS = frozenset(("wait_woken", "n_tty_read", "unix_stream_read_generic", "pipe_read"))
POLL_WAITS = frozenset(("poll_schedule_timeout", "do_select", "do_poll", "ep_poll", "do_epoll_wait"))
CHILD_WAIT = "do_wait"
CHILD_DEPTH = 8
PROMPT_ENDS = (">", "$", "❯")  # `>>>` ends with the first
OPEN_ENDS = tuple(",-–—([{")
SENTENCE_ENDS = (".", "!", "?", "。")
CLOSERS = "\"')]*_`”’»"
PASTE_MODE = "2004"
EDITOR_MODES = frozenset(("47", "1047", "1049"))  # the alternate screen
MODE_SWITCH = r"\x1b\[\?([0-9;]+)([hl])"
MODE_TAIL = 32  # a switch may be cut by the end of a read
ESCAPE = r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\[[0-?]*\Z|[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[ -/]*[0-~]|)"
CURSOR_JUMPS = frozenset("ABEFGHdf")


class Look:
    """What is known about a program at one moment; `process` is None where the kernel does not tell."""

    __slots__ = ("process", "silent_ms", "text", "patterns", "editor", "typing", "answer", "paste", "room")

    def __init__(self, **fields) -> None:
        for name in self.__slots__:
            setattr(self, name, fields.get(name))


def readiness(look: Look) -> float:
    """The strongest evidence, and a little more when another kind agrees."""
    known_prompt = pattern_confidence(look.text, look.patterns, look.silent_ms)
    if look.process == 0.0 or (look.editor and not known_prompt):
        return 0.0
    natural = natural_confidence(look.text, look.silent_ms)
    scores = [s for s in (look.process, silence_confidence(look.silent_ms), natural, known_prompt) if s]
    best = max(scores, default=0.0)
    return min(1.0, round(best + READY_AGREE, 3)) if len(scores) > 1 else best


def silence_confidence(silent_ms: float) -> float:
    return min(SILENCE_MOST, silent_ms / SILENCE_FULL_MS) if silent_ms >= SILENCE_AFTER_MS else 0.0


def natural_confidence(text: str, silent_ms: float) -> float:
    return READY_NATURAL if silent_ms >= NATURAL_AFTER_MS and is_natural_end(text) else 0.0


def pattern_confidence(text: str, patterns: list, silent_ms: float) -> float:
    """A known prompt in the last lines. A pattern that is no regular expression never matches."""
    import re

    tail = "\n".join([line for line in text.split("\n") if line.strip()][-PATTERN_LINES:])
    for pattern in patterns if silent_ms >= NATURAL_AFTER_MS else ():
        try:
            if re.search(pattern, tail, re.MULTILINE):
                return READY_PATTERN
        except re.error:
            continue
    return 0.0


def is_natural_end(text: str) -> bool:
    """Does the output end like something finished: a sentence, a closed fence, a blank line, a prompt?"""
    body = text.rstrip()
    line = body.rpartition("\n")[2].strip()
    fences = sum(part.lstrip().startswith("```") for part in body.split("\n"))
    if not line or fences % 2 or line.endswith(OPEN_ENDS):
        return False
    if line.startswith("```") or text.count("\n", len(body)) >= 2 or line.endswith(PROMPT_ENDS):
        return True
    bare = line.rstrip(CLOSERS)
    return bare.endswith(SENTENCE_ENDS) and not bare.endswith("..")  # "Loading..." goes on


def process_confidence(state: str, wchan: str, terminal: bool) -> float | None:
    """0.0 while it works, None where a wait for the network or a child looks the same."""
    if not state:
        return None
    if state not in "SI":
        return 0.0
    return READY_TERMINAL if terminal and wchan in READ_WAITS | POLL_WAITS else None


def parse_state(stat: str) -> str:
    """The state letter of /proc/PID/stat. The name before it may hold blanks and brackets."""
    return stat.rpartition(")")[2].strip()[:1]


def is_terminal_wait(wchan: str, fd_link: str, links: list, tty: str) -> bool:
    """Can only the terminal end this wait? `fd_link` is what a read reads, `links` are all open files."""
    ends = (tty, "/dev/tty")
    if wchan in READ_WAITS:
        return fd_link in ends or (not fd_link and wchan == "n_tty_read")
    # Of a poll only the pointer is visible. A pipe whose two ends are in the same process wakes itself.
    others = [x for x in links if x.startswith("socket:") or (x.startswith("pipe:") and links.count(x) == 1)]
    return not others and any(x in ends for x in links)


def read_process(pid: int, tty: str) -> float | None:
    """The confidence from /proc for the process that has the terminal; None where there is no /proc."""
    for _ in range(CHILD_DEPTH):  # `sh -c agent` sleeps for its child
        wchan = _read_proc(pid, "wchan").partition(".")[0]  # poll_schedule_timeout.constprop.0
        children = _read_proc(pid, f"task/{pid}/children").split() if wchan == CHILD_WAIT else []
        if not children:
            break
        pid = int(children[-1])
    call = _read_proc(pid, "syscall").split()
    fd_link = _read_link(pid, str(int(call[1], 16))) if len(call) > 1 and wchan in READ_WAITS else ""
    try:
        links = [_read_link(pid, fd) for fd in _os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        links = []
    return process_confidence(parse_state(_read_proc(pid, "stat")), wchan, is_terminal_wait(wchan, fd_link, links, tty))


def _read_proc(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read(4096)
    except OSError:
        return ""


def _read_link(pid: int, fd: str) -> str:
    try:
        return _os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""


def strip_escapes(text: str) -> str:
    """Terminal output as text: moves to the right are blanks, other moves and CR are line ends, the rest goes."""
    import re

    def shown(match) -> str:
        if match[2] == "C":
            return " " * min(int(match[1]) if match[1].isdigit() else 1, 80)
        return "\n" if match[2] in CURSOR_JUMPS else ""

    text = re.sub(r"\r*\n|\r", "\n", re.sub(ESCAPE, shown, text))
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text)


def track_modes(modes: frozenset, output: str) -> frozenset:
    """The private terminal modes that are on after this output (2004: paste is asked for; 1049: an editor)."""
    import re

    for numbers, switch in re.findall(MODE_SWITCH, output):
        changed = (EDITOR_MODES | {PASTE_MODE}) & set(numbers.split(";"))
        modes = modes | changed if switch == "h" else modes - changed
    return modes


# =============================================================================
# Wrap
# =============================================================================
# `wrap -- CMD`: runs an agent without hooks in a pseudo-terminal, passes all
# through and types the startup context when it is ready. Delivery is a state
# machine over a clock that comes in; only _Run touches the terminal. What the
# program echoes of our own request is never an acknowledgement.
WRAP_POLL_S = 0.2
WRAP_IDLE_S = 1.0
WRAP_SETTLE_S = 0.5
WRAP_TIMEOUT_S = 30.0
WRAP_ACK_S = 5.0
WRAP_ENTER_S = 0.3  # programs take an Enter that arrives with a paste as part of it
WRAP_BUFFER_BYTES = 64 * 1024
WRAP_READ_BYTES = 16 * 1024
WRAP_DRAIN_READS = 256
WRAP_LINE_BYTES = 4000 if sys.platform.startswith("linux") else 1000  # a cooked terminal drops a longer line's rest
WRAP_LINE_TAIL = 120  # of a line that is too long, the end with the request stays
WRAP_LEFT_OUT = " [… left out: the terminal takes no longer line …] "
WRAP_ENDED = "the program ended"
WRAP_NO_ANSWER = "no acknowledgement"
WRAP_SIZE = (24, 80)
HANGUP = 1
ECHO_RUN = 24  # letters: more than an acknowledgement has, less than our request around it
LINE_DONE = "\r\n\x03\x04\x15"  # Enter, ^C, ^D, ^U: nothing half-typed is left
WRAP_USAGE = "usage: ctx_hooks.py wrap [--context FILE] [--agent NAME] [--timeout S] -- CMD…"
WRAP_NO_TERMINAL = "error: wrap needs a POSIX system with pseudo-terminals\nhint: run the agent directly"
WRAP_NO_COMMAND = "error: cannot run {command}: {reason}\nhint: check the name and PATH"

# Agent -> its prompt, and how an answer of it that acknowledges may begin. "" is any other agent.
AGENTS = {
    "claude": (r"^\s*[│|]?\s*[>❯](\s|$)", r"^\s*[⏺●]\s*ACK\b"),
    "codex": (r"^\s*[$›▌>](\s|$)", r"^\s*•\s*ACK\b"),
    "gemini": (r"^\s*[│|]?\s*[>❯$*](\s|$)|Type your message", r"^\s*✦\s*ACK\b"),
    "aider": (r"^[\w ]*>{1,3}\s*$", r"^ACK\b"),
    "": ("", ""),
}


class WrapPlan:
    """All that `wrap` delivers and whom it tells; the defaults deliver nothing and tell nobody."""

    text = ""  # framed, asks for the acknowledgement
    agent = ""  # a name in AGENTS; "" goes by the command's name
    is_ack = staticmethod(lambda text: False)
    on_event = staticmethod(lambda name, fields: None)
    escalate = staticmethod(lambda: None)  # writes the file; the notice to type, None when it failed
    backoffs_s = (1, 2, 5, 10, 30)
    max_attempts = 5
    fallback_after = 3
    ready_patterns = ()
    timeout_s = WRAP_TIMEOUT_S
    ack_s = WRAP_ACK_S

    def __init__(self, **fields) -> None:
        for name, value in fields.items():
            setattr(self, name, value)


def run_wrap(plan: WrapPlan, argv: list) -> int:
    """Run the command in a pseudo-terminal and deliver the plan's text. Returns the command's exit code."""
    try:
        import termios
    except ImportError:
        return _complain(WRAP_NO_TERMINAL, 1)
    if not argv:
        return _complain(WRAP_USAGE, 2)
    _fill_standard_fds()
    saved = termios.tcgetattr(0) if _os.isatty(0) else None
    try:
        run = _Run(plan, argv, saved)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        return _complain(WRAP_NO_COMMAND.format(command=argv[0], reason=error.strerror), 127 if missing else 126)
    handlers = _set_signals(run, saved)
    try:
        return run.pump()
    finally:
        _restore(handlers, saved)


def parse_wrap_args(args: list) -> tuple:
    """(options, command, problem): the words before `--` or the first one that is no option are ours."""
    options, rest = {"context": "", "agent": "", "timeout": WRAP_TIMEOUT_S}, list(args)
    while rest and rest[0].startswith("--") and rest[0] != "--":
        name, equals, value = rest.pop(0)[2:].partition("=")
        if name not in options or not (equals or rest):
            return options, [], f"unknown option --{name}" if name not in options else f"--{name} needs a value"
        options[name] = value if equals else rest.pop(0)
    try:
        options["timeout"] = float(options["timeout"])
    except ValueError:
        options["timeout"] = -1.0
    if not 0 <= options["timeout"] < 86400:
        return options, [], "--timeout needs a number of seconds"
    if options["agent"] not in AGENTS:
        return options, [], "--agent is one of " + ", ".join(name for name in AGENTS if name)
    command = rest[1:] if rest[:1] == ["--"] else rest
    return options, command, "" if command else "a command is missing"


def plan_keys(text: str, paste: bool, room: int) -> bytes:
    """What to type for a text, without the Enter. Outside a paste a line end would submit half of it."""
    text = clean_keys(text)
    if paste:
        return b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"
    data = " ".join(part.strip() for part in text.split("\n") if part.strip()).encode()
    if not room or len(data) <= room:
        return data
    gap = WRAP_LEFT_OUT.encode()
    head, tail = data[: room - WRAP_LINE_TAIL - len(gap)], data[-WRAP_LINE_TAIL:]
    return head.decode("utf-8", "ignore").encode() + gap + tail.decode("utf-8", "ignore").encode()


def clean_keys(text: str) -> str:
    """Nothing a terminal or a program could take for a key: only printable characters and line ends stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    text = text.encode("utf-8", "replace").decode()
    return "".join(c for c in text if c == "\n" or c.isprintable()).strip()


def is_typing(before: bool, keys: bytes) -> bool:
    """Has the person a half-typed line? What the terminal itself reports arrives as escape sequences."""
    import re

    shown = re.sub(ESCAPE, "", keys.decode("utf-8", "replace"))
    return shown[-1] not in LINE_DONE if shown else before


def without_echo(output: str, typed: str) -> str:
    """The output without each run of letters that stands in what we typed ourselves, however it was wrapped."""
    own = "".join(filter(str.isalnum, typed))
    runs = {own[i:i + ECHO_RUN] for i in range(len(own) - ECHO_RUN + 1)}
    spots = [i for i, c in enumerate(output) if c.isalnum()]
    letters = "".join([output[i] for i in spots])
    drop = set()
    for i in range(len(letters) - ECHO_RUN + 1):
        if letters[i:i + ECHO_RUN] in runs:
            drop.update(spots[i:i + ECHO_RUN])
    return "".join([c for i, c in enumerate(output) if i not in drop])


class Delivery:
    """waiting -> enter -> listening -> backoff -> waiting …, or done. `step` returns the keys to type now."""

    def __init__(self, plan: WrapPlan, agent: str, now: float) -> None:
        self.plan, self.ack_mark = plan, AGENTS[agent][1]
        self.state = "waiting" if plan.text.strip() else "done"
        self.since, self.first_at, self.attempts = now, 0.0, 0
        self.ready_at, self.notice, self.may_escalate = None, "", True

    def step(self, now: float, look: Look) -> bytes:
        if self.state == "done":
            return b""
        if self.acknowledges(look.answer):
            return self._succeed(now)
        return getattr(self, "_" + self.state)(now, look)

    def is_entering(self, now: float) -> bool:
        """The Enter waits for a program that takes its keys slowly, but not for one that takes none."""
        return self.state == "enter" and now - self.since < self.plan.ack_s

    def acknowledges(self, output: str) -> bool:
        """Is there an acknowledgement in the output since the first attempt that is not our own request?"""
        if not self.attempts or not self._is_ack(output):
            return False
        return self._is_ack(without_echo(output, clean_keys(self.plan.text)))

    def finish(self, now: float, look: Look) -> None:
        """The program is gone: its last words count, then the delivery is over."""
        if self.state == "done":
            return
        if self.acknowledges(look.answer):
            self._succeed(now)
        elif not self.attempts:
            self.state = "done"
            self.plan.on_event("wrap:ended", {"attempts": 0, "reason": WRAP_ENDED})
        elif not self.notice:
            self._fail(WRAP_ENDED)

    def _is_ack(self, text: str) -> bool:
        import re

        marked = self.ack_mark and re.search(self.ack_mark, text, re.MULTILINE)
        return bool(marked or self.plan.is_ack(text) or self.plan.is_ack(" ".join(text.split())))

    def _waiting(self, now: float, look: Look) -> bytes:
        confidence = readiness(look)
        ready = confidence > READY_ABOVE and not look.typing
        if not ready or self.ready_at is None or look.silent_ms < _ms(now - self.ready_at):
            self.ready_at = now if ready else None
        settled = ready and now - self.ready_at >= WRAP_SETTLE_S
        late = now - self.since >= self.plan.timeout_s and not look.typing  # a person's half-typed line is theirs
        if not settled and not late:
            return b""
        fields = {"attempt": self.attempts + 1, "confidence": confidence, "waitedMs": _ms(now - self.since)}
        self.plan.on_event("wrap:ready" if settled else "wrap:timeout", fields)
        self.state, self.since = "enter", now
        if not self.notice:
            self.attempts += 1
            self.first_at = self.first_at or now
            self.plan.on_event("injection:attempted", {"attempt": self.attempts, "type": "wrap"})
        return plan_keys(self.notice or self.plan.text, look.paste, look.room)

    def _enter(self, now: float, look: Look) -> bytes:
        if now - self.since < WRAP_ENTER_S:
            return b""
        self.state, self.since = "done" if self.notice else "listening", now
        return b"\r"

    def _listening(self, now: float, look: Look) -> bytes:
        if now - self.since < self.plan.ack_s:
            return b""
        if self.may_escalate and self.attempts >= min(self.plan.fallback_after, self.plan.max_attempts):
            self.may_escalate, self.notice = False, self.plan.escalate() or ""
        if self.notice:
            self.plan.on_event("injection:escalated", {"escalationType": "file"})
            self._wait_again(now)
        elif self.attempts >= self.plan.max_attempts:
            self._fail(WRAP_NO_ANSWER)
        else:
            self.state, self.since = "backoff", now
        return b""

    def _backoff(self, now: float, look: Look) -> bytes:
        waits = self.plan.backoffs_s or (0,)
        if now - self.since >= waits[min(self.attempts, len(waits)) - 1]:
            self._wait_again(now)
        return b""

    def _wait_again(self, now: float) -> None:
        self.state, self.since, self.ready_at = "waiting", now, None

    def _succeed(self, now: float) -> bytes:
        keys = b"\r" if self.state == "enter" else b""
        self.state = "done"
        if not self.notice:  # an escalated delivery is counted already
            fields = {"attempts": self.attempts, "durationMs": _ms(now - self.first_at)}
            self.plan.on_event("injection:succeeded", fields)
        return keys

    def _fail(self, reason: str) -> None:
        self.state = "done"
        self.plan.on_event("injection:failed", {"attempts": self.attempts, "reason": reason})


class _Screen:
    """The end of what the program printed, and the terminal modes it has switched on."""

    def __init__(self, now: float) -> None:
        self.raw, self.total, self.mark, self.at, self.modes = b"", 0, 0, now, frozenset()

    def feed(self, data: bytes, now: float) -> None:
        switched = (self.raw[-MODE_TAIL:] + data).decode("latin-1")
        self.modes = track_modes(self.modes, switched)
        self.raw, self.total, self.at = (self.raw + data)[-WRAP_BUFFER_BYTES:], self.total + len(data), now

    def text(self, mark: int = 0) -> str:
        """What was printed after `mark` bytes, as far as it is still held."""
        fresh = max(0, self.total - mark)
        return strip_escapes(self.raw[-fresh:].decode("utf-8", "replace")) if fresh else ""


class _Run:
    """The pseudo-terminal, the program in it, and the keys that wait to be taken by it."""

    def __init__(self, plan: WrapPlan, argv: list, saved: list | None) -> None:
        now = time.monotonic()
        agent = plan.agent or argv[0].rpartition("/")[2]
        agent = agent if agent in AGENTS else ""
        self.patterns = list(plan.ready_patterns) + [p for p in AGENTS[agent][:1] if p]
        self.screen, self.delivery = _Screen(now), Delivery(plan, agent, now)
        self.queue, self.typing, self.stdin, self.stdout = b"", False, True, True
        self.is_person, self.ticked = saved is not None, now
        self.master, slave = _os.openpty()
        self.tty = _os.ttyname(slave)
        try:
            self.proc = _spawn(argv, slave, saved)
        except OSError:
            _os.close(self.master)
            raise
        finally:
            _os.close(slave)
        _os.set_blocking(self.master, False)

    def pump(self) -> int:
        """Pass everything through until the program is gone."""
        import select

        while self.proc.poll() is None:
            readers = [self.master] + ([0] if self._takes_keys() else [])
            wait_s = WRAP_IDLE_S if self.delivery.state == "done" and self.stdin else WRAP_POLL_S
            ready, writable, _ = select.select(readers, [self.master] if self.queue else [], [], wait_s)
            if 0 in ready:
                self._read_keys()
            if writable:
                self._write_keys()
            if self.master in ready and not self._read_output():
                break  # it has closed the terminal
            self._tick()
        self.proc.wait()
        for _ in range(WRAP_DRAIN_READS):
            if not self._read_output():
                break
        now = time.monotonic()
        self.delivery.finish(now, self._look(now))
        return self.proc.returncode if self.proc.returncode >= 0 else 128 - self.proc.returncode

    def forward(self, number: int) -> None:
        """^C and ^\\ go to whoever has the terminal, other signals to the program."""
        import signal

        group = self._foreground() if number in (signal.SIGINT, signal.SIGQUIT) else 0
        try:
            _os.killpg(group, number) if group > 0 else self.proc.send_signal(number)  # group 0 is our own
        except OSError:
            pass  # gone already

    def _takes_keys(self) -> bool:
        """A pipe waits for the context to be typed first; nobody's keys come between it and its Enter."""
        held = self.delivery.state == "enter" or (
            not self.is_person and not self.delivery.attempts and self.delivery.state != "done")
        return self.stdin and not held and len(self.queue) < WRAP_READ_BYTES

    def _is_at_end(self) -> bool:
        return self.delivery.state == "done" and not self.stdin

    def _read_keys(self) -> None:
        try:
            keys = _os.read(0, WRAP_READ_BYTES)
        except OSError:
            keys = b""
        self.stdin = bool(keys)
        self.typing = self.is_person and self.stdin and is_typing(self.typing, keys)
        self.queue += keys

    def _write_keys(self) -> None:
        try:
            self.queue = self.queue[_os.write(self.master, self.queue):]
        except BlockingIOError:
            pass
        except OSError:
            self.queue = b""

    def _read_output(self) -> bool:
        """False when there is nothing (more): Linux says EIO once the program's side is closed."""
        try:
            data = _os.read(self.master, WRAP_READ_BYTES)
        except OSError:
            return False
        self.screen.feed(data, time.monotonic())
        if self.stdout and not _write_out(data):
            self.stdout = False
            self.forward(HANGUP)  # as a terminal does that goes away
        return bool(data)

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self.ticked < WRAP_POLL_S:
            return
        self.ticked = now
        if not self.delivery.attempts:
            self.screen.mark = self.screen.total
        if self.delivery.state != "done" and not (self.queue and self.delivery.is_entering(now)):
            self.queue += self.delivery.step(now, self._look(now))
        elif self._is_at_end() and not self.queue and readiness(self._look(now)) > READY_ABOVE:
            self.queue = b"\x04"  # ^D, at each read: a terminal's end of input does not last as a pipe's does

    def _look(self, now: float) -> Look:
        judged, screen = self.delivery.state == "waiting" or self._is_at_end(), self.screen
        return Look(
            process=read_process(self._foreground(), self.tty) if judged else None,
            silent_ms=_ms(now - screen.at),
            text=screen.text() if judged else "",
            patterns=self.patterns,
            editor=EDITOR_MODES & screen.modes,
            typing=self.typing,
            answer=screen.text(screen.mark) if self.delivery.attempts else "",
            paste=PASTE_MODE in screen.modes,
            room=WRAP_LINE_BYTES if _is_cooked(self.master) else 0,
        )

    def _foreground(self) -> int:
        try:
            return _os.tcgetpgrp(self.master)
        except OSError:
            return 0


def _spawn(argv: list, slave: int, saved: list | None):
    """Start the program with the slave side as its controlling terminal, set up like ours."""
    import fcntl
    import subprocess
    import termios

    if saved:
        termios.tcsetattr(slave, termios.TCSANOW, saved)
    _set_size(slave)

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    return subprocess.Popen(
        argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, preexec_fn=take_terminal)


def _set_size(fd: int) -> None:
    """Give a terminal the size of the person's."""
    import fcntl
    import struct
    import termios

    size = struct.pack("HHHH", *WRAP_SIZE, 0, 0)
    for own in (1, 0, 2):
        try:
            size = fcntl.ioctl(own, termios.TIOCGWINSZ, b"\0" * 8)
            break
        except OSError:
            continue
    try:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, size)
    except OSError:
        pass


def _set_signals(run: _Run, saved: list | None) -> dict:
    """Pass signals on and make the keyboard raw. Returns the handlers there were before."""
    import signal
    import termios
    import tty

    def enter(*_: object) -> None:
        if saved:
            tty.setraw(0, termios.TCSADRAIN)  # keys typed ahead stay
        _set_size(run.master)

    def forward(number: int, _: object) -> None:
        run.forward(number)

    actions = {signal.SIGWINCH: enter, signal.SIGCONT: enter}
    for name in ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
        actions[getattr(signal, name)] = forward
    handlers = {number: signal.signal(number, action) for number, action in actions.items()}
    enter()
    return handlers


def _restore(handlers: dict, saved: list | None) -> None:
    import signal
    import termios

    for number, handler in handlers.items():
        signal.signal(number, handler)
    if saved:
        try:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
        except termios.error:
            pass  # the terminal is gone


def _is_cooked(fd: int) -> bool:
    import termios

    try:
        return bool(termios.tcgetattr(fd)[3] & termios.ICANON)
    except termios.error:
        return False


def _write_out(data: bytes) -> bool:
    import select

    while data:
        try:
            data = data[_os.write(1, data):]
        except BlockingIOError:
            select.select([], [1], [], WRAP_IDLE_S)
        except OSError:
            return False
    return True


def _fill_standard_fds() -> None:
    """A closed descriptor 0 to 2 would be given to the pseudo-terminal."""
    fd = _os.open("/dev/null", _os.O_RDWR)
    while fd <= 2:
        fd = _os.open("/dev/null", _os.O_RDWR)
    _os.close(fd)


def _complain(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
