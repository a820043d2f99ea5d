#!/usr/bin/env python3
"""ctx_hooks: hooks for Claude Code that keep a coding agent on the thread of its work.

    SessionStart -> inject        the last session's handoff arrives, with an acknowledgement
    first tool   -> gate          the agent is told once which context files to read
    every tool   -> monitor       fullness is measured; alerts become signal files; near the
                                  limit the agent is asked for a handoff until it is written
    next prompt  -> inject        pending signals reach the agent as one block
    Stop         -> stop-enforce  in auto mode the agent goes on until its phase is complete
    SessionEnd   -> cleanup       nothing is left behind

Contract of a hook mode (`ctx_hooks.py MODE`, the event as JSON on stdin): exit 0, always;
nothing or exactly one ASCII JSON object on stdout; no network, no shell, no eval; nothing is
created in a project that has no context folder; when in doubt, say nothing.

The file reads bottom-up: a section uses only what stands above it. Contents:

    Version       imports, version
    Messages      constants and every sentence that is shown to somebody
    Records       the event, the reply and the context of one hook run
    Clock         ISO 8601 and epoch seconds
    Json          JSON without the cost of the json package
    Paths         outside strings become safe file names
    Files         bounded reads, atomic writes, locks, locked JSON state
    Config        the YAML subset of .contextrc and of signal headers
    Project       where the project is, its settings, its sessions
    Recorder      the flight recorder and the error log
    Text          budgets and cleaning of text that reaches the agent
    Signals       the signal bus
    Transcript    the client's transcript, read from its end
    Measure       how full the context is
    Auditors      from a snapshot to alerts
    Gate          read your context first
    Handoff       the persistent reminder
    Phases        completion blocks and the auto workflow
    Startup       startup context with acknowledgement, retry and fallback
    Cleanup       what goes at SessionEnd and by age
    Hook          the only place that knows the client's JSON
    Modes         the dispatch table and the fail-open boundary
    Doctor        what can keep the hooks from working
    View          what people see, from data to text
    Readiness     is a program in a terminal waiting for input?
    Wrap          the startup context for agents without hooks
    Commands      what people run
    Main          argv
"""
from __future__ import annotations

# =============================================================================
# Version
# =============================================================================
# Everything imported here is built into the interpreter: `os` alone costs 16 %
# of a bare start, `json` 115 %, `re` 87 %. Heavier imports stand in the functions
# that need them, none of which is on the silent path.
import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    # Run as a plain script, this folder would be searched before the standard
    # library, and a stray json.py beside the kit would be imported. It goes to the end.
    sys.path.append(sys.path.pop(0))

import _imp
import _stat
import time

try:
    import posix as _os  # the same functions as `os`, without its 16 %
except ImportError:
    import os as _os  # Windows

VERSION = "0.1.0"
IS_POSIX = hasattr(_os, "getuid")

# =============================================================================
# Messages
# =============================================================================
# Seconds, byte counts, thresholds and all texts. Names, paths and sentences in
# this section are public interface.
STDIN_WAIT_S = 2.0
STDIN_LIMIT_BYTES = 32 * 1024 * 1024
LOCK_WAIT_S = 1.2
FILE_LIMIT_BYTES = 256 * 1024
STATE_LIMIT_BYTES = 4 * 1024 * 1024
CONFIG_LIMIT_BYTES = 64 * 1024
SIGNAL_LIMIT_BYTES = 64 * 1024
SIGNAL_COUNT_LIMIT = 2000
EVENTS_LIMIT_BYTES = 512 * 1024
ERRORS_LIMIT_BYTES = 64 * 1024
ASIDE_KEEP = 20
NAME_LIMIT = 80
PARENT_LIMIT = 64
REPLY_LIMIT_UNITS = 9_900  # the client cuts a hook's text at 10,000 UTF-16 units
GATE_CONTENT_LIMIT_UNITS = 9_000
STARTUP_LIMIT_UNITS = 9_000
ORPHAN_AGE_S = 7 * 86400
MARKER_AGE_S = 15 * 86400
COLLECT_LIMIT_S = 0.25
DEFAULT_TTL_S = 300
TTL_LIMIT_S = 30 * 86400
HALF_WRITTEN_S = 2.0
PATTERN_LIMIT_S, PATTERNS_TRIED, RECEIPTS_LIMIT_S = 0.2, 10, 1.0

DEFAULT_CONTEXT_DIR = ".context"
CONFIG_NAME = ".contextrc"
AUTO_STATE = ".caw/auto-state.json"
RUNTIME_FOLDERS = ("state", "state/aside", "signals", "signals/sessions", "signals/global")
MARKER_PREFIX = "ctx-loaded-"
SEEN_PREFIX = "ctx-seen-"
SEVERITIES = ("info", "warning", "critical")
GITIGNORE_TEXT = (
    "# runtime files of ctx_hooks; the context files beside this one are yours\n"
    "signals/\nstate/\nmonitor-state.json\nmetrics.json\nevents.jsonl\nevents.jsonl.1\n.gitignore\n"
)

SIGNAL_HEAD = "⚠️ [ctx monitor] "
SIGNAL_HEAD_MANY = "⚠️ [ctx monitor] {count} issues:"
SIGNAL_BULLET = "  • "
SIGNAL_INDENT = "    "
SIGNAL_REST = "  … {count} more will follow with the next prompt"
SIGNAL_CUT = "… (cut here; the whole text is in {path})"

CONTEXT_FILES = ("CONSTITUTION.md", "TASKS.md", "CONVENTIONS.md", "DECISIONS.md", "LEARNINGS.md", "AGENT_PLAYBOOK.md")
INDEXED_FILES = ("DECISIONS.md", "LEARNINGS.md")
INDEX_START, INDEX_END = "<!-- INDEX:START -->", "<!-- INDEX:END -->"
GATE_DIRECTIVE = "STOP. Read your context files before proceeding: {files}"
GATE_CHECKPOINT = "When you have read them, print this line, filled in: Context Loaded — Read: … Skipped: …"
GATE_CONTENT_FILE = "----- {path} -----"
GATE_CONTENT_CUT = "[cut: read the rest in {path}]"
GATE_CONTENT_LEFT_OUT = "[not shown for lack of room: read {path}]"
GATE_WAITS = "(More follows with the next tool call: the list of context files to read.)"

HEALTH_LEVELS = ((95, 85, "critical"), (85, 75, "warning"), (70, 60, "warning"))  # fires at, clears below, severity
HEALTH_SUMMARY = "Context: {percent} full{note}."
HEALTH_ACTIONS = {
    70: "Keep answers short, write open decisions into DECISIONS.md and plan a good place to stop",
    85: "Summarize current state in 5 bullets, write the handoff, then /clear and reload from DECISIONS.md",
    95: "Write the handoff now, then /clear: the next messages may not fit any more",
}
REPETITION_WINDOW = 8
REPETITION_LEVEL, REPETITION_CLEAR = 0.5, 0.3
REPETITION_SUMMARY = "Repetition in last 8 turns: {count} of {window} tool calls repeat an earlier one."
REPETITION_ACTION = "Stop and try a different approach; say what you expected and what happened instead"
AUDIT_SUMMARY = "Context files untouched for {days} days: {files}."
AUDIT_ACTION = "Check that they still match the code and update or confirm them"
AUDIT_EVERY_CALLS = 25
AUDIT_BAND_S = 60
ALERT_COOLDOWN_S = {"context-health": 900, "repetition": 600, "audit-reminder": 14400}
ALERT_TTL_S = {"context-health": 300, "repetition": 300, "audit-reminder": 3600}

DEFAULT_WINDOW, LARGE_WINDOW = 200_000, 1_000_000
TOKENS_LIMIT = 20_000_000  # a larger count is a broken row, not a conversation
CHARS_PER_TOKEN = 4
CALL_OVERHEAD_TOKENS = 60
IMAGE_TOKENS = 1_600
ESTIMATE_BASE_TOKENS = 15_000  # the client's own system prompt and tools
TOOL_WEIGHTS = {"Read": 1.1, "Write": 0.0, "Edit": 0.3, "MultiEdit": 0.3, "NotebookEdit": 0.3}
TRANSCRIPT_STEP_BYTES = 32 * 1024
TRANSCRIPT_LIMIT_BYTES = 32 * 1024 * 1024
TRANSCRIPT_NEW_LIMIT_BYTES = 4 * 1024 * 1024
TRANSCRIPT_WAIT_S, TRANSCRIPT_POLL_S = 0.15, 0.015

HANDOFF_REMINDER = (
    "Context is {percent} full ({tokens}/{window} tokens{note}). Write a handoff for the next session to {path} now, "
    "before anything else: goal, current state, decisions and why, next steps, open files.{command}"
    " This note comes with every tool result until that file is written."
)
HANDOFF_COMMAND = " {command} writes it for you."
HANDOFF_RESET_MARGIN = 10  # percent below the threshold that only a compaction or a rewind explains
CLOCK_TOLERANCE_S = 0.02

# =============================================================================
# Records
# =============================================================================
# A class of our own costs 0.2 % of every start, `typing.NamedTuple` or `dataclasses`
# more than everything else here, so the records share the interpreter's own
# SimpleNamespace; each is made in one place with all its fields:
#
#   Event     one hook event, checked: name, session (its safe name), session_id, cwd, transcript, agent_id, prompt,
#             source, reason, model, tool, tool_input, response, failed, tool_use_id, last_message, stop_active,
#             background, permission_mode; a wrong type counts as missing ("" / {} / None)
#   Signal    path, name (the file's, without .md), scope, key (scope/name), severity, generated_at, ttl_s, auditor,
#             code, body, stamp (tells two versions of a global one apart)
#   Usage     the last measured fullness: tokens, model
#   News      what the transcript has gained: text (the assistant's), answered, receipts, offset (where to go on)
#   Measure   how full the context is: tokens, window, exact, model, percent, shown (as text), note
#   Snapshot  what the auditors may look at: now, percent, shown, note, score, repeats, stale_days, stale_files,
#             active, last_emitted
#   Alert     an auditor's finding: auditor, codes (those it marks, the first is emitted), severity, summary, action
#   Stop      the decision about one stop: reason, prompt (holds the agent, or ""), message (for the person)
Event = Signal = Usage = News = Measure = Snapshot = Alert = Stop = type(sys.implementation)


class Ctx:
    """Where and when a handler runs: the project, its settings, the clock, the environment it may see."""

    __slots__ = ("root", "dir", "config", "problems", "now", "env", "tmp", "mode", "session")

    def __init__(self, root: str, directory: str, config: dict, problems: list) -> None:
        self.root, self.dir, self.config, self.problems = root, directory, config, problems
        self.now, self.env, self.tmp, self.mode, self.session = 0.0, {}, "", "", ""

    def get(self, key: str):
        """A setting: the project's value, else the default."""
        return self.config[key] if key in self.config else DEFAULTS[key]

    def path(self, *names: str) -> str:
        """A path below the context folder."""
        return "/".join((self.dir,) + names)


class Reply:
    """What a handler wants said. `after` runs once the text is really out."""

    __slots__ = ("context", "system_message", "terminal", "hold", "after")

    def __init__(self, context: str = "", system_message: str = "", terminal: str = "", hold: bool = False, after=()):
        self.context, self.system_message, self.terminal = context, system_message, terminal
        self.hold, self.after = hold, list(after)


# =============================================================================
# Clock
# =============================================================================
# Inside, time is epoch seconds; ISO 8601 with Z stands only on disk. `datetime`
# would cost 25 % of a bare start, so the calendar arithmetic is done here.


def format_iso(seconds: float, fraction: bool = False) -> str:
    """2026-02-03T10:45:00Z, with milliseconds when `fraction`."""
    whole, millis = divmod(int(seconds * 1000 + 0.5), 1000) if fraction else (int(seconds // 1), 0)
    text = "%04d-%02d-%02dT%02d:%02d:%02d" % time.gmtime(min(max(whole, 0), 253402300799))[:6]
    return text + (".%03dZ" % millis if fraction else "Z")


def parse_iso(text: object) -> float | None:
    """Epoch seconds of an ISO 8601 time (Z, offset, fraction, date alone; naive = UTC), else None."""
    if not isinstance(text, str):
        return None
    text = text.strip()
    date, clock = text[:10], text[11:]
    if len(date) != 10 or date[4] != "-" or date[7] != "-" or (len(text) > 10 and text[10] not in "Tt "):
        return None
    days = _days(date[:4], date[5:7], date[8:10])
    seconds = _clock_seconds(clock) if len(text) > 10 else 0.0
    return None if days is None or seconds is None else days * 86400 + seconds


def _days(year: str, month: str, day: str) -> int | None:
    """Days from 1970-01-01, by the civil calendar's 400-year cycle."""
    if not (_is_digits(year) and _is_digits(month) and _is_digits(day)):
        return None
    y, m, d = int(year), int(month), int(day)
    leap = y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)
    lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not (1 <= m <= 12 and 1 <= d <= lengths[m - 1]):
        return None
    before = y - 1
    return before * 365 + before // 4 - before // 100 + before // 400 + sum(lengths[: m - 1]) + d - 719163


def _clock_seconds(clock: str) -> float | None:
    """Seconds since midnight UTC of `HH:MM[:SS[.fff]]` with an optional Z or offset."""
    offset = 0
    if clock[-1:] in ("Z", "z"):
        clock = clock[:-1]
    else:
        cut = max(clock.rfind("+"), clock.rfind("-"))
        if cut >= 0:
            parts = clock[cut + 1:].replace(":", "")
            if len(parts) not in (2, 4) or not _is_digits(parts) or parts[:2] > "23" or parts[2:] > "59":
                return None
            offset = (int(parts[:2]) * 3600 + int(parts[2:] or 0) * 60) * (-1 if clock[cut] == "-" else 1)
            clock = clock[:cut]
    whole, dot, fraction = clock.replace(",", ".").partition(".")
    fields = whole.split(":")
    if len(fields) not in (2, 3) or not all(len(f) == 2 and _is_digits(f) for f in fields):
        return None
    if dot and not _is_digits(fraction[:9]):
        return None
    hours, minutes, seconds = int(fields[0]), int(fields[1]), int(fields[2]) if len(fields) == 3 else 0
    if hours > 23 or minutes > 59 or seconds > 60:
        return None
    return hours * 3600 + minutes * 60 + seconds + (float("0." + fraction[:9]) if dot else 0.0) - offset


class TimeUp(Exception):
    """What a TimeLimit raises inside its block."""


class TimeLimit:
    """`with TimeLimit(seconds)`: by the process's own alarm clock; without effect where there is none (Windows)."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        _set_alarm(self.seconds)

    def __exit__(self, *_) -> None:
        _set_alarm(0)


def _set_alarm(seconds: float) -> None:
    import _signal

    if hasattr(_signal, "setitimer"):
        _signal.signal(_signal.SIGALRM, _on_time_up)
        _signal.setitimer(_signal.ITIMER_REAL, seconds)


def _on_time_up(*_) -> None:
    raise TimeUp


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12


# =============================================================================
# Json
# =============================================================================
# The C scanner and encoder behind the json package, without the package and
# the `re` it pulls in (2.2 times a bare start). `_json` is private, so any
# surprise ends in the fallback, which is json itself.
# On 3.10 and 3.11 the scanner raises SystemError for malformed input while
# json is not imported.


class _Scanning:
    """What the C scanner wants to know; the same choices as json's own defaults, control characters allowed."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_int = int
    memo: dict = {}

    @staticmethod
    def parse_float(text: str) -> float | None:
        value = float(text)
        return value if abs(value) < 1e308 else None  # 1e999 could never be written again

    @staticmethod
    def parse_constant(name: str) -> None:
        return None  # NaN and Infinity are not JSON


def parse_json(text: str | bytes | bytearray) -> object:
    """The first JSON value in the text; ValueError when there is none."""
    if not isinstance(text, str):
        text = text.decode("utf-8", "replace")
    start = len(text) - len(text.lstrip("\ufeff \t\r\n"))
    try:
        return _scan()(text, start)[0]
    except (StopIteration, SystemError, RecursionError) as error:
        raise ValueError("not JSON") from error


def format_json(value: object) -> str:
    """One line of ASCII JSON; ValueError or TypeError for what JSON cannot hold."""
    try:
        import _json

        encode = _json.make_encoder(None, _refuse, _json.encode_basestring_ascii, None, ": ", ", ", False, False, False)
        return "".join(encode(value, 0))
    except (ImportError, AttributeError):
        import json

        return json.dumps(value, allow_nan=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _scan():
    try:
        import _json

        return _json.make_scanner(_Scanning)
    except (ImportError, AttributeError):
        import json

        own = {"parse_float": _Scanning.parse_float, "parse_constant": _Scanning.parse_constant}
        return json.JSONDecoder(strict=False, **own).raw_decode


def _refuse(value: object) -> None:
    raise TypeError("not JSON: " + type(value).__name__)


# =============================================================================
# Paths
# =============================================================================
# Every outside string that becomes part of a path goes through safe_name. The
# plain and the hashed form cannot collide: "~" is not a plain character. Names of
# devices (Windows) and of our own files beside a session's are taken.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")
_TAKEN = frozenset(
    "con prn aux nul com1 com2 com3 com4 com5 com6 com7 com8 com9 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9 "
    "global pause fallback collected aside monitor-state auto-state metrics events errors".split()
)


def safe_name(text: str) -> str:
    """A file name for any outside string: short ids stay as they are, all others get a digest; "" for ""."""
    if not text:
        return ""
    plain = len(text) <= NAME_LIMIT and _PLAIN.issuperset(text) and text[0] not in ".-" and text[-1] != "."
    if plain and text.partition(".")[0] not in _TAKEN:
        return text
    import hashlib

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    kept = "".join(c if c in _PLAIN else "_" for c in text[:40].lower()).strip("._-")
    return (kept or "x") + "~" + digest


def join_path(base: str, name: str) -> str:
    """`name` seen from `base`, with . and .. resolved as text."""
    path = name if is_absolute(name) else base + "/" + name
    parts: list = []
    for part in path.replace("\\", "/").split("/") if not IS_POSIX else path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part and part != ".":
            parts.append(part)
    return "/".join(parts) if parts and parts[0].endswith(":") and not IS_POSIX else "/" + "/".join(parts)


def is_absolute(path: str) -> bool:
    return path.startswith("/") or (not IS_POSIX and (path[1:2] == ":" or path.startswith("\\")))


def is_below(path: str, base: str) -> bool:
    """Both absolute and normal; links are the caller's business."""
    return path == base or path.startswith(base.rstrip("/") + "/")


def parent_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or "/"


def base_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def real_path(path: str) -> str:
    """All links resolved. `os.path` is loaded for it, so it stays off the silent path."""
    from os.path import realpath

    return realpath(path).replace("\\", "/") if not IS_POSIX else realpath(path)


# =============================================================================
# Files
# =============================================================================
# Reads are bounded and never block on a FIFO or a device. Writes replace the
# file atomically through a temp file of their own. A lock that cannot be had in
# time costs the write, never the hook. Locks are taken in one order: a session's
# before the shared one.
_READ_FLAGS = _os.O_RDONLY | getattr(_os, "O_NONBLOCK", 0) | getattr(_os, "O_CLOEXEC", 0) | getattr(_os, "O_BINARY", 0)
_NOFOLLOW = getattr(_os, "O_NOFOLLOW", 0)
_FOLDER_FLAGS = getattr(_os, "O_PATH", 0) | getattr(_os, "O_DIRECTORY", 0) | getattr(_os, "O_CLOEXEC", 0)
_NEW_FLAGS = _os.O_WRONLY | _os.O_CREAT | _os.O_EXCL | _NOFOLLOW | getattr(_os, "O_BINARY", 0)


def read_bytes(path: str, limit_bytes: int = FILE_LIMIT_BYTES, follow: bool = True, own: bool = False) -> bytes | None:
    """At most `limit_bytes` of a regular file, else None; with `own` only of one that belongs to this user."""
    try:
        fd = _os.open(path, _READ_FLAGS | (0 if follow else _NOFOLLOW))
    except (OSError, ValueError):
        return None
    try:
        info = _os.fstat(fd)
        if not _stat.S_ISREG(info.st_mode) or (own and IS_POSIX and info.st_uid != _os.geteuid()):
            return None
        return read_fd(fd, limit_bytes)
    except OSError:
        return None
    finally:
        _os.close(fd)


def read_fd(fd: int, limit_bytes: int) -> bytes:
    """Up to the end or the limit; a pipe gives its data in pieces."""
    parts, total, step = [], 0, 65536
    while total < limit_bytes:
        data = _os.read(fd, min(limit_bytes - total, step))
        if not data:
            break
        parts.append(data)
        total, step = total + len(data), 1 << 20
    return b"".join(parts)


def read_inside(path: str, base: str, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes | None:
    """Like read_bytes, but a path that leads out of `base`, by its name or by a link, is not read. The links on the
    way are resolved once; then every folder is opened from the one above, so that none can be swapped in."""
    if not IS_POSIX or base == "/":
        return read_bytes(path, limit_bytes) if stays_inside(path, base) else None
    fd = _open_below(path, base)
    if fd < 0:
        fd = _open_below(real_path(path), real_path(base))
    try:
        return read_fd(fd, limit_bytes) if fd >= 0 and _stat.S_ISREG(_os.fstat(fd).st_mode) else None
    except OSError:
        return None
    finally:
        if fd >= 0:
            _os.close(fd)


def _open_below(path: str, base: str) -> int:
    """A descriptor of `path`, reached from `base` without following any link, or -1."""
    if path == base or not is_below(path, base):
        return -1
    names, fd, folder = path[len(base.rstrip("/")) + 1:].split("/"), -1, -1
    try:
        folder = _os.open(base, _FOLDER_FLAGS)
        for name in names[:-1]:
            above, folder = folder, _os.open(name, _FOLDER_FLAGS | _NOFOLLOW, dir_fd=folder)
            _os.close(above)
        fd = _os.open(names[-1], _READ_FLAGS | _NOFOLLOW, dir_fd=folder)
    except (OSError, ValueError):
        pass
    if folder >= 0:
        _os.close(folder)
    return fd


def stays_inside(path: str, base: str) -> bool:
    """Below `base`, links resolved. Where there is no link on the way, a few lstats say so without `os.path`."""
    probe = path
    while is_below(probe, base) and probe != base:
        info = stat_of(probe, follow=False)
        if info is None or _stat.S_ISLNK(info.st_mode):
            return info is not None and is_below(real_path(path), real_path(base))
        probe = parent_of(probe)
    return probe == base or is_below(real_path(path), real_path(base))


def stat_of(path: str, follow: bool = True):
    """The stat result, or None for whatever reason there is none."""
    try:
        return _os.stat(path) if follow else _os.lstat(path)
    except (OSError, ValueError):
        return None


def is_missing(path: str) -> bool:
    """There is certainly nothing: an error of the disk or the network must not pass for that."""
    try:
        _os.lstat(path)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        pass
    return False


def is_dir(path: str) -> bool:
    info = stat_of(path)
    return info is not None and _stat.S_ISDIR(info.st_mode)


def is_file(path: str) -> bool:
    info = stat_of(path)
    return info is not None and _stat.S_ISREG(info.st_mode)


def is_link(path: str) -> bool:
    info = stat_of(path, follow=False)
    return info is not None and _stat.S_ISLNK(info.st_mode)


def list_dir(path: str) -> list:
    try:
        return sorted(_os.listdir(path))
    except (OSError, ValueError):
        return []


def remove_file(path: str) -> bool:
    try:
        _os.unlink(path)
    except (OSError, ValueError):
        return False
    return True


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[_os.write(fd, data):]


def is_temp_name(name: str) -> bool:
    """The temp file of a writer that was killed: `<name>.<pid>-<stamp>.tmp`."""
    stem, _, rest = name[:-4].rpartition(".")
    pid, _, stamp = rest.partition("-")
    is_ours = bool(stem and stamp) and _is_digits(pid) and not stamp.strip("0123456789abcdef")
    return name.endswith(".tmp") and is_ours


def write_bytes(path: str, data: bytes, durable: bool = False) -> bool:
    """Replace the file atomically, keeping its mode (0600 for a new one). False when that is not possible."""
    temp = "%s.%d-%x.tmp" % (path, _os.getpid(), time.time_ns() & 0xFFFFFFFF)
    try:
        fd = _os.open(temp, _NEW_FLAGS, 0o600)
    except (OSError, ValueError):
        return False
    try:
        try:
            write_all(fd, data)
            info = stat_of(path)
            if info is not None and IS_POSIX:
                _os.chmod(temp, _stat.S_IMODE(info.st_mode))
            if durable:
                _os.fsync(fd)
        finally:
            _os.close(fd)
        _os.replace(temp, path)
    except OSError:
        remove_file(temp)
        return False
    return True


def write_runtime(ctx: Ctx, path: str, data: bytes) -> bool:
    """write_bytes below the context folder; its folders and the .gitignore come with the first write."""
    if write_bytes(path, data):
        return True
    return make_runtime_dir(ctx, parent_of(path)) and write_bytes(path, data)


def make_runtime_dir(ctx: Ctx, path: str) -> bool:
    """Create a folder below the existing context folder, never that folder itself; True when it is there."""
    if not is_below(path, ctx.dir) or not is_dir(ctx.dir):
        return False
    missing = []
    while path != ctx.dir and not is_dir(path):
        missing.append(path)
        path = parent_of(path)
    for name in reversed(missing):
        try:
            _os.mkdir(name, 0o700)
        except FileExistsError:
            continue
        except OSError:
            return False
    if missing:
        _write_gitignore(ctx)
    return True


def is_own_dir(ctx: Ctx, folder: str) -> bool:
    """No link on the way from the context folder: a cloned repository could lead us into other files of the user."""
    while folder != ctx.dir:
        info = stat_of(folder, follow=False)
        if info is None or not _stat.S_ISDIR(info.st_mode):
            return False
        folder = parent_of(folder)
    return True


def _write_gitignore(ctx: Ctx) -> None:
    try:
        fd = _os.open(ctx.path(".gitignore"), _NEW_FLAGS, 0o644)
    except OSError:
        return  # there is one already, the user's or ours; or nothing can be written here
    try:
        write_all(fd, GITIGNORE_TEXT.encode())
    except OSError:
        pass
    finally:
        _os.close(fd)


class Lock:
    """`with Lock(ctx, path) as lock`: `lock.busy` means that another process kept it for the whole wait.

    Where no lock file can be made (read-only folder) or the file system has no locks, work goes on without.
    """

    __slots__ = ("ctx", "path", "fd", "busy")

    def __init__(self, ctx: Ctx, path: str) -> None:
        self.ctx, self.path, self.fd, self.busy = ctx, path, -1, False

    def __enter__(self) -> Lock:
        for _ in range(8):
            self.fd = self._open()
            if self.fd < 0:
                return self
            self.busy = not lock_fd(self.fd, LOCK_WAIT_S)
            if self.busy or not _is_unlinked(self.fd):
                return self
            self.__exit__()  # cleanup removed the file while we waited: lock its successor
        self.busy = True
        return self

    def __exit__(self, *_) -> None:
        if self.fd >= 0:
            _os.close(self.fd)
            self.fd = -1

    def _open(self) -> int:
        flags = _os.O_RDWR | _os.O_CREAT | _NOFOLLOW | getattr(_os, "O_CLOEXEC", 0)
        try:
            return _os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            if not make_runtime_dir(self.ctx, parent_of(self.path)):
                return -1
        except (OSError, ValueError):
            return -1
        try:
            return _os.open(self.path, flags, 0o600)
        except OSError:
            return -1


def _is_unlinked(fd: int) -> bool:
    try:
        return IS_POSIX and not _os.fstat(fd).st_nlink
    except OSError:
        return False


def lock_fd(fd: int, wait_s: float) -> bool:
    """Lock the file for as long as the descriptor is open; a dead process's lock is gone with it."""
    deadline = time.monotonic() + wait_s
    pause = 0.0005
    while True:
        try:
            _try_lock(fd)
            return True
        except (BlockingIOError, PermissionError):
            if time.monotonic() > deadline:
                return False
        except OSError:
            return True  # no locks on this file system: go on without
        time.sleep(pause)
        pause = min(pause * 1.5, 0.01)


def _try_lock(fd: int) -> None:
    if hasattr(_os, "lockf"):  # built in, while fcntl is a library to load
        _os.lockf(fd, _os.F_TLOCK, 0)
        return
    import msvcrt

    msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)


def load_json(path: str, follow: bool = True) -> dict | None:
    """The object in the file; {} when there is no file; None when it is corrupt or not an object."""
    data = read_bytes(path, STATE_LIMIT_BYTES, follow)
    if data is None:
        return {} if stat_of(path, follow=False) is None else None
    try:
        value = parse_json(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_json(path: str) -> dict:
    """For looking only: whatever is wrong counts as empty."""
    return load_json(path) or {}


def update_json(ctx: Ctx, path: str, change) -> bool:
    """Locked read-modify-write: `change(data)` edits in place and returns whether to write. False: not written."""
    with Lock(ctx, lock_path(ctx, path)) as lock:
        if lock.busy:
            return False
        data = load_json(path, follow=False)
        if data is None:
            set_aside(ctx, path)
            data = {}
        try:
            return bool(change(data)) and write_runtime(ctx, path, format_json(data).encode())
        except ValueError:  # nested too deeply to be written again: it must not fail every call from now on
            set_aside(ctx, path)
            return False


def lock_path(ctx: Ctx, path: str) -> str:
    name = base_name(path)
    return ctx.path("state", (name[:-5] if name.endswith(".json") else name) + ".lock")


def set_aside(ctx: Ctx, path: str) -> str:
    """Move what cannot be used out of the way, the oldest of many go; returns the new path or ""."""
    folder = ctx.path("state", "aside")
    target = "%s/%s-%d.%s" % (folder, format_iso(time.time(), True).replace(":", ""), _os.getpid(), base_name(path))
    make_runtime_dir(ctx, folder)
    try:
        _os.rename(path, target)
    except OSError:
        return ""
    for name in list_dir(folder)[:-ASIDE_KEEP] if is_own_dir(ctx, folder) else []:
        remove_file(folder + "/" + name)
    return target


# =============================================================================
# Config
# =============================================================================
# .contextrc is a small YAML subset: nested mappings by indentation, scalars,
# [inline, lists], dash lists, 'quotes', "quotes", # comments, CRLF, BOM.
#
#     gate:
#       mode: content          # directive | content | off
#       files: [TASKS.md, "NOTES.md"]
#
# A bad line is reported with line and column and skipped, never fatal.


SETTINGS = (  # key, default, kind (a word, or the tuple of choices), what it does
    ("context_dir", DEFAULT_CONTEXT_DIR, "path", "folder of the context files, below the project"),
    ("allow_outside", False, "bool", "let paths in this file name files to read outside the project"),
    ("gate.mode", "directive", ("directive", "content", "off"), "name the context files, or put their text in"),
    ("gate.files", list(CONTEXT_FILES), "paths", "context files in order of priority, seen from `context_dir`"),
    ("gate.message", "", "text", "own wording of the gate; `{files}` is filled in"),
    ("monitor.inject_min_severity", "warning", SEVERITIES, "signals below this stay on disk"),
    ("monitor.notify", "off", ("off", "bell", "desktop"), "tell the person about critical signals too"),
    ("monitor.context_window", 0, "count", "size of the context window in tokens; 0 finds out"),
    ("handoff.enabled", True, "bool", "ask for a handoff near the limit"),
    ("handoff.threshold", 80, "percent", "percent of the window from which on the handoff is asked for"),
    ("handoff.file", ".claude/ll-continue-prompt.md", "path", "where the agent writes the handoff"),
    ("handoff.cooldown_s", 0, "count", "seconds between two reminders; 0 reminds after every tool call"),
    ("handoff.command", "", "text", "a command that writes the handoff, named in the reminder"),
    ("audit.stale_days", 14, "count", "remind when no context file was touched for so many days; 0 never"),
    ("startup.enabled", True, "bool", "deliver the handoff and `startup.files` to new sessions"),
    ("startup.files", [], "paths", "more files to deliver, in order of priority"),
    ("startup.max_age_hours", 24, "count", "an older handoff is not delivered"),
    ("startup.budget_chars", 4000, "count", "room for the startup context, at most 9000"),
    ("startup.require_ack", True, "bool", "ask for an acknowledgement and retry without one"),
    ("startup.ack_patterns", [r"ACK:\s*context received"], "list", "regular expressions, any letter case"),
    ("startup.retry_backoffs_s", [1, 2, 5, 10, 30], "counts", "seconds to wait after each attempt"),
    ("startup.max_attempts", 5, "count", "attempts before giving up"),
    ("startup.file_fallback_after_attempts", 3, "count", "attempts before `startup.fallback_file` is written"),
    ("startup.fallback_file", "CLAUDE.md", "path", "gets the marked section when nothing is acknowledged"),
    ("startup.notify_on_failure", True, "bool", "say where the context is when that cannot be written either"),
    ("wrap.ready_patterns", [], "list", "regular expressions of a prompt that is ready for input"),
)
DEFAULTS = {key: default for key, default, _, _ in SETTINGS}


def parse_config(text: str) -> tuple:
    """(values by dotted key, problems) of a .contextrc; only known keys with values of their kind remain."""
    pairs, problems = parse_yaml(text)
    values: dict = {}
    kinds = {key: kind for key, _, kind, _ in SETTINGS}
    outside = any(key == "allow_outside" and _checked(value, "bool") for key, value, _, _ in pairs)
    for key, value, line, column in pairs:
        if key not in kinds:
            problems.append((line, column, "unknown setting `%s`" % key))
            continue
        checked = _checked(value, kinds[key])
        if checked is None:
            problems.append((line, column, "`%s` wants %s" % (key, _kind_words(kinds[key]))))
        elif _leaves_project(checked, kinds[key]) and not outside:
            what = "`%s` names a file outside the project; set `allow_outside: true`" % key
            problems.append((line, column, what))
        else:
            values[key] = checked
    problems.sort()
    return values, problems


def parse_yaml(text: str) -> tuple:
    """([(dotted key, value, line, column)], problems). Never raises."""
    reader = _Yaml()
    for number, raw in enumerate(text.lstrip("\ufeff").replace("\r\n", "\n").split("\n"), 1):
        reader.line(number, raw)
    reader.end_list()
    return reader.pairs, reader.problems


class _Yaml:
    """The reader's place: the open mappings as (indent, dotted prefix) and the dash list being filled."""

    def __init__(self) -> None:
        self.pairs: list = []
        self.problems: list = []
        self.open = [(-1, "")]
        self.list_key: tuple | None = None  # (dotted key, line, column, indent) of a key without a value
        self.items: list = []

    def line(self, number: int, raw: str) -> None:
        body = strip_comment(raw).rstrip()
        text = body.lstrip(" ")
        column = len(body) - len(text)
        if not text or (text in ("---", "...") and column == 0):
            return
        if text[0] == "\t":
            self.problems.append((number, column + 1, "tab in the indentation; use spaces"))
        elif text == "-" or text.startswith("- "):
            self._item(number, column, text[1:])
        else:
            self._pair(number, column, text)

    def end_list(self) -> None:
        """A key without a value was a list, or the head of a mapping."""
        if self.list_key and self.items:
            key, line, column, _ = self.list_key
            self.pairs.append((key, self.items, line, column))
        self.list_key, self.items = None, []

    def _item(self, number: int, column: int, text: str) -> None:
        if self.list_key is None or column < self.list_key[3]:
            self.problems.append((number, column + 1, "list item without a key above it"))
            return
        value, error = parse_scalar(text.strip())
        if error:
            self.problems.append((number, column + 2 + len(text) - len(text.lstrip()), error))
        else:
            self.items.append(value)

    def _pair(self, number: int, column: int, text: str) -> None:
        self.end_list()
        key, colon, rest = text.partition(":")
        key = key.strip().strip("'\"")
        if not colon or not key or (rest and rest[0] != " "):
            self.problems.append((number, column + 1, "expected `key: value`"))
            return
        while column <= self.open[-1][0]:
            self.open.pop()
        dotted = self.open[-1][1] + key
        if not rest.strip():
            self.open.append((column, dotted + "."))
            self.list_key = (dotted, number, column + 1, column)
            return
        value, error = parse_scalar(rest.strip())
        if error:
            self.problems.append((number, column + 1 + len(text) - len(rest.lstrip()), error))
        else:
            self.pairs.append((dotted, value, number, column + 1))


def strip_comment(line: str) -> str:
    """The line without its `# comment`, which starts the line or follows a blank, outside quotes."""
    index = 0 if "#" in line else len(line)
    while index < len(line):
        before = line[index - 1] if index else " "
        if line[index] == "#" and before in " \t":
            return line[:index]
        end = _quote_end(line, index) if line[index] in "'\"" and before in " [,:-\t" else -1
        index = max(end, index + 1)
    return line


def _quote_end(text: str, start: int) -> int:
    """The index after the quoted text that starts here; -1 when it is not closed."""
    quote, index = text[start], start + 1
    while index < len(text):
        if text[index] == "\\" and quote == '"' or text[index:index + 2] == "''" and quote == "'":
            index += 2
        elif text[index] == quote:
            return index + 1
        else:
            index += 1
    return -1


def parse_scalar(text: str) -> tuple:
    """(value, error) of a scalar or an inline list. Only true and false are booleans: `off` is a string."""
    if text[:1] == "[":
        return _parse_list(text)
    if text[:1] in ("'", '"'):
        return _parse_quoted(text)
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true", ""
    if lowered in ("null", "~", ""):
        return None, ""
    number = text[1:] if text[0] in "+-" else text
    if _is_digits(number):
        return int(text), ""
    whole, dot, fraction = number.partition(".")
    if dot and _is_digits(whole) and _is_digits(fraction):
        return float(text), ""
    if text[0] in "{&*!|>%@`":
        return None, "`%s` is not part of the YAML subset read here; quote the text" % text[0]
    return text, ""


def _parse_quoted(text: str) -> tuple:
    end, body = _quote_end(text, 0), text[1:-1]
    if end != len(text):
        return None, "quote is not closed" if end < 0 else "text after the closing quote"
    if text[0] == "'":
        return body.replace("''", "'"), ""
    out, rest = [], body
    while "\\" in rest:
        before, _, rest = rest.partition("\\")
        escape = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}.get(rest[:1])
        out.append(before + (escape if escape is not None else "\\" + rest[:1]))
        rest = rest[1:]
    return "".join(out) + rest, ""


def _parse_list(text: str) -> tuple:
    items, start, index = [], 1, 1
    while index < len(text):
        piece = text[start:index].strip()
        if text[index] in "'\"" and not piece:
            index = _quote_end(text, index)
            if index < 0:
                return None, "quote is not closed"
            continue
        if text[index] in ",]":
            value, error = parse_scalar(piece)
            if error:
                return None, error
            items += [value] if piece else []
            if text[index] == "]":
                return (items, "") if index + 1 == len(text) else (None, "text after the closing bracket")
            start = index + 1
        index += 1
    return None, "list is not closed"


def _checked(value, kind):
    """The value when it is of the kind, made exact; None otherwise."""
    if isinstance(kind, tuple):
        word = str(value).lower()
        return word if word in kind else None
    if kind == "bool":
        words = {"on": True, "yes": True, "off": False, "no": False}
        return value if isinstance(value, bool) else words.get(str(value).lower())
    if kind in ("count", "percent"):
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12
        return (None if not good or (kind == "percent" and not 1 <= value <= 100) else value)
    if kind in ("text", "path"):
        odd = kind == "path" and not (value and str(value).isprintable())  # paths are shown to the agent
        return None if value is None or isinstance(value, list) or odd else str(value)
    items = value if isinstance(value, list) else [value]
    inner = {"paths": "path", "list": "text", "counts": "count"}[kind]
    checked = [_checked(item, inner) for item in items]
    return None if None in checked else checked


def _kind_words(kind) -> str:
    if isinstance(kind, tuple):
        return "one of " + ", ".join(kind)
    return {
        "bool": "true or false", "count": "a number from 0", "percent": "a number from 1 to 100", "text": "a text",
        "path": "a path", "paths": "a list of paths", "list": "a list of texts", "counts": "a list of numbers from 0",
    }[kind]


def _leaves_project(value, kind) -> bool:
    if kind not in ("path", "paths"):
        return False
    names = value if isinstance(value, list) else [value]
    return any(is_absolute(n) or n.startswith("~") or ".." in n.replace("\\", "/").split("/") for n in names)


# =============================================================================
# Project
# =============================================================================
# The root is CLAUDE_PROJECT_DIR when it holds the context folder, else the
# nearest parent of the event's cwd that does. A parent's context folder and
# settings must belong to this user or to root. No root: nothing happens.


def find_project(project_dir: str, cwd: str) -> Ctx | None:
    """The project of a hook event, or None when there is none."""
    if project_dir and is_absolute(project_dir):
        ctx = open_project(join_path(project_dir, "."))
        if ctx:
            return ctx
    if not cwd or not is_absolute(cwd):
        return None
    folder = join_path(cwd, ".")
    for level in range(PARENT_LIMIT):
        ctx = open_project(folder)
        if ctx:
            here = level == 0 and not project_dir  # a person's cwd; an agent's may be anywhere
            return ctx if here or (is_trusted(ctx.dir) and is_trusted(config_path(folder))) else None
        if parent_of(folder) == folder:
            return None
        folder = parent_of(folder)
    return None


def open_project(root: str) -> Ctx | None:
    """The project at exactly this folder, with its settings read."""
    config, problems = read_config(root)
    ctx = Ctx(root, join_path(root, config.get("context_dir", DEFAULT_CONTEXT_DIR)), config, problems)
    return ctx if is_dir(ctx.dir) and not leads_out(ctx) else None


def leads_out(ctx: Ctx) -> bool:
    """The context folder is the project itself, or it or one of our folders in it is a link to somewhere else: a
    repository that somebody else wrote must not decide where we write and what we collect by age."""
    outside = ctx.get("allow_outside") is not True and not stays_inside(ctx.dir, ctx.root)
    links = [path for path in map(ctx.path, RUNTIME_FOLDERS) if is_link(path)]
    return ctx.dir == ctx.root or outside or not all(stays_inside(path, ctx.dir) for path in links)


def read_config(root: str) -> tuple:
    """(settings, problems) of the project's .contextrc; both empty when there is none."""
    data = read_bytes(config_path(root), CONFIG_LIMIT_BYTES)
    return parse_config(data.decode("utf-8", "replace")) if data else ({}, [])


def config_path(root: str) -> str:
    return root.rstrip("/") + "/" + CONFIG_NAME


def is_trusted(path: str) -> bool:
    """What is there, and the link to it if it is one, belongs to this user or to root; nothing there is fine."""
    found = [info for info in (stat_of(path), stat_of(path, follow=False)) if info is not None]
    return not IS_POSIX or all(info.st_uid in (0, _os.geteuid()) for info in found)


def session_file(ctx: Ctx, session: str) -> str:
    return ctx.path("state", session + ".json")


def signal_dir(ctx: Ctx, session: str) -> str:
    return ctx.path("signals", "sessions", session) if session else ctx.path("signals", "global")


def marker_path(ctx: Ctx, session: str, prefix: str = MARKER_PREFIX) -> str:
    return ctx.tmp.rstrip("/") + "/" + prefix + session


def is_paused(ctx: Ctx, session: str) -> bool:
    """`pause` writes {"<session>" or "*": ISO time or null} into one small file."""
    pauses = read_json(ctx.path("state", "pause.json"))
    return any(key in pauses and is_open_pause(pauses[key], ctx.now) for key in (session, "*"))


def is_open_pause(until: object, now: float) -> bool:
    """null: until `resume`. What is no time at all pauses nothing: a broken file must not silence for ever."""
    return until is None or now < (parse_iso(until) or 0)


def number(value: object, default: float = 0) -> float:
    """A JSON number, else the default."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15 else default


def _list(parent: dict, key: str) -> list:
    """The list under `key`, an empty one when it is missing or of another type."""
    return parent[key] if isinstance(parent.get(key), list) else []


def table(parent: dict, key: str) -> dict:
    """The object under `key`, put there when it is missing or of another type."""
    if not isinstance(parent.get(key), dict):
        parent[key] = {}
    return parent[key]


# =============================================================================
# Recorder
# =============================================================================
# .context/events.jsonl: one line for each thing that was said or decided, with
# the reason. The error log takes the traceback of an internal error. Both are
# bounded: at the limit the file becomes `<name>.1`.


def record(ctx: Ctx, event: str, **fields) -> None:
    """Append one line; a failure costs the line."""
    row = {"at": format_iso(ctx.now, fraction=True), "session": ctx.session, "mode": ctx.mode, "event": event}
    row.update(fields)
    _append(ctx, ctx.path("events.jsonl"), format_json(row) + "\n", EVENTS_LIMIT_BYTES)


def log_error(ctx: Ctx, text: str) -> None:
    _append(ctx, ctx.path("state", "errors.log"), text[-ERRORS_LIMIT_BYTES // 4:], ERRORS_LIMIT_BYTES)


def read_events(ctx: Ctx, limit: int) -> list:
    """The last rows of the recorder, oldest first."""
    lines: list = []
    for name in ("events.jsonl.1", "events.jsonl"):
        lines += (read_bytes(ctx.path(name), EVENTS_LIMIT_BYTES * 2) or b"").split(b"\n")
    rows = []
    for line in lines[-limit * 2 - 2:]:
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows[-limit:]


def _append(ctx: Ctx, path: str, text: str, limit_bytes: int) -> None:
    flags = _os.O_WRONLY | _os.O_APPEND | _os.O_CREAT | _NOFOLLOW | getattr(_os, "O_NONBLOCK", 0)
    for attempt in (1, 2):
        try:
            fd = _os.open(path, flags, 0o600)
            break
        except FileNotFoundError:
            if attempt == 2 or not make_runtime_dir(ctx, parent_of(path)):
                return
        except OSError:
            return
    try:
        info = _os.fstat(fd)
        if not _stat.S_ISREG(info.st_mode):
            return
        write_all(fd, text.encode("utf-8", "replace"))  # one write: lines of two processes do not mix
    except OSError:
        return
    finally:
        _os.close(fd)
    if not info.st_size:
        _write_gitignore(ctx)
    if info.st_size + len(text) > limit_bytes:
        _rotate(ctx, path, limit_bytes)


def _rotate(ctx: Ctx, path: str, limit_bytes: int) -> None:
    with Lock(ctx, lock_path(ctx, path)) as lock:
        info = stat_of(path)
        if not lock.busy and info is not None and info.st_size > limit_bytes:
            try:
                _os.replace(path, path + ".1")
            except OSError:
                pass


# =============================================================================
# Text
# =============================================================================
# What reaches the agent is counted as the client counts it (UTF-16 units), has
# no control characters and no tags that imitate the client's own markup.
_MARKUP = frozenset(
    "system system-reminder task-notification command-name command-message command-args local-command-stdout "
    "local-command-stderr local-command-caveat user-prompt-submit-hook bash-input bash-stdout bash-stderr user human "
    "assistant function_calls function_results invoke tool_use tool_result antml thinking".split()
)


TURNS = ("human:", "user:", "assistant:", "system:")
_UNSEEN = frozenset("\xad\u034f\u061c\u180e\ufeff\u200b\u200e\u200f")


def units(text: str) -> int:
    return len(text) if text.isascii() else len(text) + sum(map("\uffff".__lt__, text))


def cut_text(text: str, limit: int) -> str:
    """At most `limit` units, cut at a line or a word where one is near."""
    limit = max(limit, 0)
    if units(text) <= limit:
        return text
    while text and units(text) > limit:
        text = text[: len(text) - max(1, (units(text) - limit) // 2)]
    edge = max(text.rfind("\n"), text.rfind(" "))
    return text[:edge] if edge > len(text) * 3 // 4 else text


def clean_text(text: str) -> str:
    """Without control characters, direction overrides, lone surrogates and imitated markup."""
    if not text.isprintable() or not text.isascii():
        text = text.replace("\r\n", "\n").encode("utf-8", "replace").decode("utf-8")
        for char in filter(is_unseen, set(text)):
            text = text.replace(char, "")
    for _ in range(4):  # a removed tag may have completed another one
        stripped = _strip_tags(text) if "<" in text else text
        if stripped == text:
            return text
        text = stripped
    return text.replace("<", "‹")  # nested on purpose


def is_unseen(char: str) -> bool:
    """A control character, a direction override, or a letter that only a model sees."""
    return (char < " " and char not in "\t\n") or "\x7f" <= char < "\xa0" or char in _UNSEEN or (
        "\u2028" <= char <= "\u202e" or "\u2060" <= char <= "\u206f" or "\U000e0000" <= char <= "\U000e01ef")


def one_line(text: str, limit: int = 200) -> str:
    """For a line shown to somebody: cleaned, blanks folded, cut."""
    return cut_text(" ".join(clean_text(text).split()), limit)


def quote_turns(text: str) -> str:
    """A later line that poses as the beginning of somebody's turn is shown as a quotation."""
    first, *lines = text.split("\n")
    posing = [_plain_start(line[:40]).lower().startswith(TURNS) for line in lines]
    return "\n".join([first] + ["> " + line if poses else line for line, poses in zip(lines, posing)])


def _plain_start(text: str) -> str:
    """As somebody reads it who passes over joiners and odd blanks."""
    text = " ".join(text.split())
    return text if text.isascii() else text.encode("ascii", "ignore").decode()


def _strip_tags(text: str) -> str:
    out, pos = [], 0
    while True:
        start = text.find("<", pos)
        if start < 0:
            return "".join(out) + text[pos:]
        inner = _plain_start(text[start + 1:start + 80]).lstrip("/ ").partition(">")[0].split(None, 1)
        name = inner[0].rstrip("/").partition(":")[0] if inner else ""
        if name in _MARKUP or (name.lower() in _MARKUP and not name.istitle()):  # List<User> is code
            out.append(text[pos:start])
            pos = max(text.find(">", start, start + 300), start) + 1  # not closed nearby: the bracket alone goes
        else:
            out.append(text[pos:start + 1])
            pos = start + 1


# =============================================================================
# Signals
# =============================================================================
# A signal is a file for the agent: any process may write one.
#
#     ---
#     generated_at: 2026-02-03T10:45:00Z
#     severity: warning
#     ttl: 300
#     auditor: context-health
#     code: CTX_HEALTH_85
#     ---
#     Context: 87% full, repetition in last 8 turns.
#     → Summarize current state in 5 bullets, then /clear and reload from DECISIONS.md
#
# Delivery holds the session's lock until the text is out: a racing prompt waits
# and finds nothing, a crash before that leaves the signal where it was.


def split_header(text: str) -> tuple:
    """(header lines or None, body). The header ends at the first closing `---`; None: there is no whole header."""
    text = text.lstrip("\ufeff").replace("\r\n", "\n")
    first, _, rest = text.partition("\n")
    if first.rstrip() != "---":
        return None, text
    lines = rest.split("\n")
    for index, line in enumerate(lines):
        if line.rstrip() == "---":
            return lines[:index], "\n".join(lines[index + 1:])
    return None, text


def parse_fields(lines: list) -> dict:
    """`key: value` lines as texts, keys in lower case; other lines are passed over."""
    fields = {}
    for line in lines:
        key, colon, value = strip_comment(line).partition(":")
        value = value.strip()
        if value[:1] in ("'", '"'):
            quoted, error = parse_scalar(value)
            value = value if error else quoted
        if colon:
            fields[key.strip().lower()] = value
    return fields


def parse_signal(data: bytes, mtime: float, now: float) -> Signal:
    """Whatever is broken gets its default: ttl 300, severity warning, the file's own time."""
    header, body = split_header(data.decode("utf-8", "replace"))
    fields = parse_fields(header or [])
    stated = parse_iso(fields.get("generated_at"))
    ttl = fields.get("ttl", "")
    severity = fields.get("severity", "").lower()
    return Signal(
        severity=severity if severity in SEVERITIES else "warning",
        generated_at=min(mtime, now) if stated is None or stated > now + 1 else stated,
        ttl_s=min(int(ttl), TTL_LIMIT_S) if _is_digits(ttl) and int(ttl) > 0 else DEFAULT_TTL_S,
        auditor=one_line(fields.get("auditor", ""), 60),
        code=one_line(fields.get("code", ""), 60),
        body=quote_turns(clean_text(body).strip()) or one_line(fields.get("code", ""), 60),
        stamp="%.6f" % (mtime if stated is None else stated),
    )


def format_signal(signal: Signal) -> str:
    fields = (
        ("generated_at", format_iso(signal.generated_at)), ("severity", signal.severity), ("ttl", "%d" % signal.ttl_s),
        ("auditor", one_line(signal.auditor, 60)), ("code", one_line(signal.code, 60)),
    )
    header = "".join("%s: %s\n" % (key, value.replace("#", "")) for key, value in fields if value)
    return "---\n" + header + "---\n" + clean_text(signal.body).strip() + "\n"


def write_signal(ctx: Ctx, session: str, signal: Signal) -> str:
    """Write or replace the signal `name` of a session ("" = global); its path, or "" when that failed."""
    path = signal_dir(ctx, session) + "/" + safe_name(signal.name) + ".md"
    if is_link(parent_of(path)):
        return ""
    return path if write_runtime(ctx, path, format_signal(signal).encode("utf-8", "replace")) else ""


def read_signals(ctx: Ctx, session: str) -> list:
    """All live signals for a session (and the global ones), critical first, then oldest first.

    Expired ones are removed on the way; what cannot be read at all is set aside.
    """
    found = []
    for scope, folder in (("session", signal_dir(ctx, session) if session else ""), ("global", signal_dir(ctx, ""))):
        names = [n for n in list_dir(folder) if n.endswith(".md") and n[0] != "."] if folder else []
        if names and not stays_inside(folder, ctx.dir):
            continue
        for name in names[:SIGNAL_COUNT_LIMIT]:
            signal = _read_signal(ctx, folder + "/" + name)
            if signal is not None:
                signal.scope, signal.name, signal.key = scope, name[:-3], scope + "/" + name[:-3]
                found.append(signal)
    found.sort(key=lambda s: (-SEVERITIES.index(s.severity), s.generated_at, s.name))
    return found


def has_signals(ctx: Ctx, session: str) -> bool:
    """Cheap look without reading anything."""
    folders = (signal_dir(ctx, session), signal_dir(ctx, ""))
    return any(name.endswith(".md") for folder in folders for name in list_dir(folder))


def _read_signal(ctx: Ctx, path: str) -> Signal | None:
    info = stat_of(path, follow=False)
    if info is None or _stat.S_ISDIR(info.st_mode):
        return None
    if _stat.S_ISLNK(info.st_mode):
        data = read_inside(path, ctx.dir, SIGNAL_LIMIT_BYTES)
    else:
        data = read_bytes(path, SIGNAL_LIMIT_BYTES, follow=False)
    if data is None:
        if _stat.S_ISREG(info.st_mode):
            set_aside(ctx, path)
        return None
    mtime = info.st_mtime
    if mtime > ctx.now + 1:
        mtime = float(int(ctx.now))
        _touch(path, mtime)  # a file from the future would never expire
    signal = parse_signal(data, mtime, ctx.now)
    signal.path = path
    if ctx.now >= signal.generated_at + signal.ttl_s:
        remove_file(path)
        return None
    return None if not signal.body or _is_half_written(data, ctx.now - mtime) else signal


def _is_half_written(data: bytes, age_s: float) -> bool:
    """A header that is still open in a young file: its writer is at work."""
    young = age_s < HALF_WRITTEN_S and data.startswith(b"---")
    return young and split_header(data.decode("utf-8", "replace"))[0] is None


def _touch(path: str, mtime: float) -> None:
    try:
        _os.utime(path, times=(mtime, mtime))
    except OSError:
        pass


def severity_floor(ctx: Ctx) -> str:
    stated = ctx.env.get("CTX_INJECT_MIN_SEVERITY", "").strip().lower()
    return stated if stated in SEVERITIES else ctx.get("monitor.inject_min_severity")


def render_signals(signals: list, room: int) -> tuple:
    """(text, the signals it holds, whether the first had to be cut)."""
    if len(signals) == 1:
        text = SIGNAL_HEAD + signals[0].body
        return (text, signals, False) if units(text) <= room else (cut_text(text, room - 200), signals, True)
    lines: list = []
    left = room - units(SIGNAL_HEAD_MANY) - units(SIGNAL_REST) - 20
    shown = []
    for signal in signals:
        bullet = format_bullet(signal.body)
        if units(bullet) + 1 > left:
            break
        left -= units(bullet) + 1
        lines.append(bullet)
        shown.append(signal)
    if len(shown) < 1:
        text, shown, was_cut = render_signals(signals[:1], room - units(SIGNAL_REST) - 20)
        lines = [text]
    else:
        was_cut = False
        lines.insert(0, SIGNAL_HEAD_MANY.format(count=len(shown)) if len(shown) > 1 else SIGNAL_HEAD.rstrip())
    if len(shown) < len(signals):
        lines.append(SIGNAL_REST.format(count=len(signals) - len(shown)))
    return "\n".join(lines), shown, was_cut


def format_bullet(body: str) -> str:
    """`  • Summary → Action`, further lines indented below."""
    lines = [line.rstrip() for line in body.split("\n") if line.strip()]
    head = lines[0].strip()
    if len(lines) > 1 and lines[1].lstrip().startswith("→"):
        head += " " + lines.pop(1).strip()
    return "\n".join([SIGNAL_BULLET + head] + [SIGNAL_INDENT + line for line in lines[1:]])


def due_signals(ctx: Ctx, session: str, seen: dict) -> list:
    """What the session has not been told yet and is severe enough to tell."""
    floor = SEVERITIES.index(severity_floor(ctx))
    return [s for s in read_signals(ctx, session)
            if SEVERITIES.index(s.severity) >= floor and seen.get(s.key) != s.stamp]


def deliver_signals(ctx: Ctx, session: str, room: int) -> Reply | None:
    """The pending signals as one block. The lock is released by the reply's `after`."""
    if not has_signals(ctx, session):
        return None
    lock = Lock(ctx, lock_path(ctx, session_file(ctx, session))).__enter__()
    if lock.busy:
        lock.__exit__()
        return None
    seen = _read_seen(ctx, session)
    due = due_signals(ctx, session, seen)
    room -= units(ctx.dir)  # a cut text names its path
    if not due or room < 400:
        lock.__exit__()
        return None
    text, shown, was_cut = render_signals(due, room)
    if was_cut:
        text += "\n" + SIGNAL_CUT.format(path=_keep_whole(ctx, shown[0]))
    reply = Reply(text, after=[lambda: _after_delivery(ctx, session, shown, seen), lock.__exit__])
    _notify_person(ctx, shown, reply)
    record(ctx, "signals:delivered", names=[s.key for s in shown], codes=[s.code for s in shown],
           waiting=len(due) - len(shown))
    return reply


def _keep_whole(ctx: Ctx, signal: Signal) -> str:
    """Where the whole text of a cut signal stays: a global one stands until its TTL, a session's is copied."""
    if signal.scope == "global":
        return signal.path
    path = ctx.path("state", "aside", "%s.%s.md" % (format_iso(ctx.now).replace(":", ""), safe_name(signal.name)))
    data = read_bytes(signal.path, STATE_LIMIT_BYTES, follow=False) or signal.body.encode("utf-8", "replace")
    return path if write_runtime(ctx, path, data) else signal.path


def _notify_person(ctx: Ctx, shown: list, reply: Reply) -> None:
    critical = [s for s in shown if s.severity == "critical"]
    way = ctx.get("monitor.notify")
    if critical and way != "off":
        reply.system_message = "ctx monitor: " + one_line(critical[0].body)
        reply.terminal = "\a" if way == "bell" else "\033]9;" + reply.system_message + "\a"


def _read_seen(ctx: Ctx, session: str) -> dict:
    """{"scope/name": stamp} of what this session got and what could not be removed."""
    seen = dict(table(read_json(session_file(ctx, session)), "delivered"))
    seen.update(_read_own(marker_path(ctx, session, SEEN_PREFIX)))
    return seen


def _read_own(path: str) -> dict:
    """A JSON object in a folder where everybody may write: only a regular file of this user, looked at once open."""
    try:
        value = parse_json(read_bytes(path, STATE_LIMIT_BYTES, follow=False, own=True) or b"")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _after_delivery(ctx: Ctx, session: str, shown: list, seen: dict) -> None:
    """Remove or remember what was said. A folder that cannot be written must not repeat it at every prompt."""
    kept = {s.key: s.stamp for s in shown if s.scope == "global" or not remove_file(s.path)}
    if not kept:
        return
    path = session_file(ctx, session)
    state = load_json(path)
    if state is None:
        set_aside(ctx, path)
        state = {}
    live = {key: stamp for key, stamp in seen.items() if is_file(_signal_path(ctx, session, key))}
    state["delivered"] = dict(live, **kept)
    if not write_runtime(ctx, path, format_json(state).encode()):
        write_bytes(marker_path(ctx, session, SEEN_PREFIX), format_json(dict(seen, **kept)).encode())


def _signal_path(ctx: Ctx, session: str, key: str) -> str:
    scope, _, name = key.partition("/")
    return "%s/%s.md" % (signal_dir(ctx, session if scope == "session" else ""), base_name(name))


# =============================================================================
# Transcript
# =============================================================================
# The client's transcript: one JSON a line, written while we read. It is read
# from the end in bounded, doubling steps, so that 100 MB cost what 10 KB cost;
# lines are looked at as bytes first and parsed only when they can matter.


def lines_backward(path: str, limit_bytes: int = TRANSCRIPT_LIMIT_BYTES):
    """The file's lines as bytes, newest first, at most about `limit_bytes` of them."""
    fd = _open_regular(path)
    if fd < 0:
        return
    try:
        end = size = _os.lseek(fd, 0, 2)
        step, carry = TRANSCRIPT_STEP_BYTES, b""
        while end > 0 and size - end < limit_bytes:
            start = max(0, end - step)
            _os.lseek(fd, start, 0)
            lines = (read_fd(fd, end - start) + carry).split(b"\n")
            carry = lines[0]
            for index in range(len(lines) - 1, 0, -1):
                if lines[index]:
                    yield lines[index]
            end, step = start, min(step * 2, 4 << 20)
        if end == 0 and carry:
            yield carry
    except OSError:
        return
    finally:
        _os.close(fd)


def read_usage(path: str) -> Usage | None:
    """Fullness by the last real assistant row after the last compaction boundary."""
    for line in lines_backward(path):
        if b"compact_boundary" in line:
            row = parse_row(line)
            if row.get("subtype") == "compact_boundary" and row.get("type") == "system" and not row.get("isSidechain"):
                tokens = _count(table(row, "compactMetadata").get("postTokens"))
                return Usage(tokens=tokens, model="") if tokens else None
        if b'"usage"' in line and b'"assistant"' in line:
            usage = parse_usage(parse_row(line))
            if usage is not None:
                return usage
    return None


def parse_usage(row: dict) -> Usage | None:
    """Input + cache creation + cache read of a main-chain model answer; None for every other row."""
    message = row.get("message")
    if not is_answer(row) or not isinstance(message.get("usage"), dict):
        return None
    usage = message["usage"]
    parts = [usage.get(key, 0) for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
    tokens = sum(_count(part) for part in parts)
    if not 0 < tokens <= TOKENS_LIMIT:
        return None
    requested = row.get("requestedModel")
    model = requested if isinstance(requested, str) and "[1m]" in requested else message.get("model")
    return Usage(tokens=tokens, model=_text(model))


def is_answer(row: dict) -> bool:
    """A row written by the model in the main conversation; not a subagent's, not the client's own, not an error."""
    message = row.get("message")
    return (
        row.get("type") == "assistant" and isinstance(message, dict) and not row.get("isSidechain")
        and not row.get("isApiErrorMessage") and message.get("model") != "<synthetic>"
    )


def parse_row(line: bytes) -> dict:
    try:
        row = parse_json(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def find_message(path: str, tool_use_id: str, wait_s: float = TRANSCRIPT_WAIT_S) -> str:
    """The id of the assistant message that holds the tool call; the transcript may lag, so wait a little."""
    if not tool_use_id or not is_file(path):
        return ""
    wanted = tool_use_id.encode("utf-8", "replace")
    deadline = time.monotonic() + wait_s
    while True:
        for line in lines_backward(path, TRANSCRIPT_NEW_LIMIT_BYTES):
            if wanted in line and b'"assistant"' in line:
                row = parse_row(line)
                if is_answer(row) and tool_use_id in [b.get("id") for b in blocks(row) if b.get("type") == "tool_use"]:
                    return _text(row["message"].get("id"))
        if time.monotonic() >= deadline:
            return ""
        time.sleep(TRANSCRIPT_POLL_S)


def blocks(row: dict) -> list:
    """The content blocks of a row's message."""
    content = row.get("message", {}).get("content") if isinstance(row.get("message"), dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def text_of(row: dict) -> str:
    return "\n".join(_text(b.get("text")) for b in blocks(row) if b.get("type") == "text")


def read_news(path: str, offset: int, known_id: str = "", since: float = 0.0) -> News:
    """The complete lines since `offset`; our own injected text is a receipt, never an answer. The message
    `known_id` was written before what we wait for an answer to, and so was every row dated before `since`:
    a forked session's transcript begins with a copy of the old one."""
    news = News(text="", answered=False, receipts="", offset=offset)
    fd = _open_regular(path)
    if fd < 0:
        return news
    try:
        size = _os.lseek(fd, 0, 2)
        if size < offset:
            offset = 0  # another file under the same name
        start = max(offset, size - TRANSCRIPT_NEW_LIMIT_BYTES)
        _os.lseek(fd, start, 0)
        data = read_fd(fd, TRANSCRIPT_NEW_LIMIT_BYTES)
    except OSError:
        return news
    finally:
        _os.close(fd)
    whole = data.rfind(b"\n") + 1
    news.offset = start + whole
    pending = False
    for line in data[:whole].split(b"\n"):
        if b'"assistant"' in line:
            row = parse_row(line)
            known = known_id and is_answer(row) and row["message"].get("id") == known_id
            if is_answer(row) and not known and (parse_iso(row.get("timestamp")) or since) >= since:
                news.text += text_of(row) + "\n"
                pending = True
                news.answered = news.answered or bool(row["message"].get("stop_reason"))
        elif b"hook_additional_context" in line:
            news.receipts += receipt_of(parse_row(line)) + "\n"
        elif b'"user"' in line and pending and parse_row(line).get("type") == "user":
            news.answered = True
    return news


def receipt_of(row: dict) -> str:
    """The text that the client stored for a hook's additionalContext."""
    attachment = row.get("attachment")
    if row.get("type") != "attachment" or not isinstance(attachment, dict):
        return ""
    content = attachment.get("content")
    if attachment.get("type") != "hook_additional_context" or not isinstance(content, list):
        return ""
    return "\n".join(text for text in content if isinstance(text, str))


def read_turn(path: str) -> tuple:
    """(assistant text of the current turn, id of its last tool call), for clients that do not send the message."""
    texts, tool_id = [], ""
    for line in lines_backward(path, TRANSCRIPT_NEW_LIMIT_BYTES):
        if b'"assistant"' not in line and b'"user"' not in line:
            continue
        row = parse_row(line)
        if is_answer(row):
            texts.append(text_of(row))
            calls = [_text(b.get("id")) for b in blocks(row) if b.get("type") == "tool_use"]
            tool_id = tool_id or (calls[-1] if calls else "")
        elif row.get("type") == "user" and not row.get("isSidechain") and not row.get("isMeta"):
            if not any(b.get("type") == "tool_result" for b in blocks(row)):
                break
    return "\n".join(reversed(texts)), tool_id


def last_tool_id(path: str) -> str:
    """The id of the last tool call in the transcript's tail: it changes exactly when the agent did something."""
    for line in lines_backward(path, 1 << 20):
        if b'"tool_use"' in line and b'"assistant"' in line:
            row = parse_row(line)
            calls = [_text(b.get("id")) for b in blocks(row) if b.get("type") == "tool_use"] if is_answer(row) else []
            if calls:
                return calls[-1]
    return ""


def transcript_size(path: str) -> int:
    info = stat_of(path) if path else None
    return info.st_size if info is not None else 0


def _open_regular(path: str) -> int:
    """A descriptor of a regular file, or -1."""
    try:
        fd = _os.open(path, _READ_FLAGS)
    except (OSError, ValueError):
        return -1
    try:
        if _stat.S_ISREG(_os.fstat(fd).st_mode):
            return fd
    except OSError:
        pass  # a handle gone stale
    _os.close(fd)
    return -1


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return int(number(value)) if number(value) > 0 else 0


# =============================================================================
# Measure
# =============================================================================
# Exact from the transcript when possible, else estimated over the real response
# shapes. Percent is an integer, rounded down, never above 100.
_SMALL_MODELS = {"opus": ((4, 0), (4, 1), (4, 5), (4, 6)), "sonnet": ((4, 0), (4, 5), (4, 6)), "haiku": ((4, 5),)}


def window_of_model(model: str) -> int:
    """The window as the client decides it by the model's name; 200,000 when no name is known."""
    name = model.lower()
    if not name:
        return DEFAULT_WINDOW
    if "[1m]" in name:
        return LARGE_WINDOW
    if "claude-3" in name:
        return DEFAULT_WINDOW
    for family, versions in _SMALL_MODELS.items():
        _, found, rest = name.partition(family + "-")
        if found and _version(rest) in versions:
            return DEFAULT_WINDOW
    return LARGE_WINDOW


def _version(text: str) -> tuple:
    """(4, 5) of `4-5-20250929`, (4, 0) of `4-20250514` and of `4`."""
    major, rest = _leading_number(text)
    minor, _ = _leading_number(rest[1:]) if rest[:1] in ("-", ".") else ("", "")
    return (int(major or 0), int(minor) if 0 < len(minor) <= 2 else 0)


def _leading_number(text: str) -> tuple:
    end = 0
    while end < len(text) and end < 9 and text[end] in "0123456789":
        end += 1
    return text[:end], text[end:]


def measure_context(ctx: Ctx, state: dict, usage: Usage | None, added_tokens: int) -> Measure:
    """The current fullness from a measured usage, else the last known count plus what this call added."""
    known = _count(state.get("estimated_tokens"))
    tokens = usage.tokens if usage else (known or ESTIMATE_BASE_TOKENS) + added_tokens
    model = best_model(state, usage.model if usage else "")
    by_name = LARGE_WINDOW if model and state.get("large_model") == model else window_of_model(model)
    window = _sane_window(ctx.get("monitor.context_window")) or _statusline_window(ctx, model) or by_name
    if tokens > window and usage is not None:
        window = DEFAULT_WINDOW if tokens <= DEFAULT_WINDOW else max(LARGE_WINDOW, window)
    return make_measure(tokens, window, usage is not None, model)


def make_measure(tokens: int, window: int, exact: bool, model: str) -> Measure:
    percent = min(100, tokens * 100 // window)
    return Measure(tokens=tokens, window=window, exact=exact, model=model, percent=percent,
                   shown="%s%d%%" % ("" if exact else "~", percent), note="" if exact else "estimated")


def best_model(state: dict, measured: str) -> str:
    """The transcript's name may lack `[1m]`; SessionStart and the settings have it."""
    measured = measured or _text(state.get("measured_model"))
    for key in ("model", "settings_model"):
        hint = _text(state.get(key))
        if "[1m]" in hint.lower() and (not measured or is_same_model(hint, measured)):
            return hint
    return measured or _text(state.get("model")) or _text(state.get("settings_model"))


def is_same_model(one: str, other: str) -> bool:
    """Aliases, provider prefixes and `[1m]` aside: `sonnet[1m]`, `us.anthropic.claude-sonnet-4-5-v1:0`."""
    one, other = one.lower().replace("[1m]", ""), other.lower().replace("[1m]", "")
    return one in other or other in one


def _statusline_window(ctx: Ctx, model: str) -> int:
    """What `statusline` handed over: valid for half a day and for the same model."""
    handed = read_json(ctx.path("state", ctx.session + ".statusline"))
    age_s = ctx.now - (parse_iso(handed.get("at")) or 0)
    if not -60 < age_s < 43200 or not is_same_model(_text(handed.get("model")), model):
        return 0
    return _sane_window(handed.get("window"))


def _sane_window(value: object) -> int:
    return _count(value) if 1000 <= _count(value) <= TOKENS_LIMIT else 0


def settings_model(ctx: Ctx) -> str:
    """The model that the client's settings name: environment, then local, project, user settings."""
    if ctx.env.get("ANTHROPIC_MODEL"):
        return ctx.env["ANTHROPIC_MODEL"]
    home = ctx.env.get("CLAUDE_CONFIG_DIR") or ctx.env.get("HOME", "") + "/.claude"
    for folder, name in ((ctx.root + "/.claude", "settings.local.json"), (ctx.root + "/.claude", "settings.json"),
                         (home, "settings.json")):
        model = _text(read_json(folder + "/" + name).get("model"))
        if model:
            return model
    return ""


def estimate_tokens(tool: str, tool_input: dict, response: object) -> int:
    """What one call adds: its input, a fixed overhead, and the part of the response that the model sees."""
    text_chars = _visible_chars(tool, response)
    weight = TOOL_WEIGHTS.get(tool, 1.0)
    tokens = (_chars(tool_input, 6) + text_chars * weight) / CHARS_PER_TOKEN + CALL_OVERHEAD_TOKENS
    if isinstance(response, dict) and response.get("isImage") is True:
        tokens = IMAGE_TOKENS + CALL_OVERHEAD_TOKENS
    return int(tokens)


def _visible_chars(tool: str, response: object) -> int:
    """Characters of the response shape of a known tool, of all its strings otherwise."""
    if not isinstance(response, dict):
        return _chars(response, 6)
    if tool == "Bash":
        return _chars(response.get("stdout"), 2) + _chars(response.get("stderr"), 2)
    if tool == "Read" and response.get("type") != "image":
        return _chars(table(response, "file").get("content"), 3)
    if tool in ("Agent", "Task"):
        return _chars(response.get("content"), 4)
    if tool in ("Edit", "MultiEdit", "NotebookEdit"):
        return _chars(response.get("structuredPatch"), 4)
    return _chars(response, 6)


def _chars(value: object, depth: int) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict) and value.get("type") == "image":
        return IMAGE_TOKENS * CHARS_PER_TOKEN
    if isinstance(value, dict) and depth:
        return sum(_chars(item, depth - 1) for item in value.values())
    if isinstance(value, list) and depth:
        return sum(_chars(item, depth - 1) for item in value)
    return 4


# =============================================================================
# Auditors
# =============================================================================
# Each auditor is a pure function from a snapshot to alerts. An alert fires when
# its level is crossed upward, not again inside its band, and again after its
# cooldown while the condition lasts. .context/monitor-state.json remembers.


def audit_health(shot: Snapshot) -> tuple:
    """(alerts, active codes) of the context's fullness."""
    active = [
        (level, severity) for level, clear, severity in HEALTH_LEVELS
        if shot.percent >= level or ("CTX_HEALTH_%d" % level in shot.active and shot.percent >= clear)
    ]
    codes = ["CTX_HEALTH_%d" % level for level, _ in active]
    if not codes or not _fires(shot, "context-health", codes[0]):
        return [], codes
    level, severity = active[0]
    summary = HEALTH_SUMMARY.format(percent=shot.shown, note=shot.note)
    return [Alert(auditor="context-health", codes=codes, severity=severity, summary=summary,
                  action=HEALTH_ACTIONS[level])], codes


def audit_repetition(shot: Snapshot) -> tuple:
    code = "CTX_REPETITION"
    level = REPETITION_CLEAR if code in shot.active else REPETITION_LEVEL
    if shot.score < level:
        return [], []
    if not _fires(shot, "repetition", code):
        return [], [code]
    summary = REPETITION_SUMMARY.format(count=shot.repeats, window=REPETITION_WINDOW)
    return [Alert(auditor="repetition", codes=[code], severity="warning", summary=summary,
                  action=REPETITION_ACTION)], [code]


def audit_reminder(shot: Snapshot) -> tuple:
    code = "CTX_AUDIT_DUE"
    if not shot.stale_files:
        return [], []
    if not _fires(shot, "audit-reminder", code):
        return [], [code]
    summary = AUDIT_SUMMARY.format(days=shot.stale_days, files=", ".join(shot.stale_files))
    return [Alert(auditor="audit-reminder", codes=[code], severity="warning", summary=summary,
                  action=AUDIT_ACTION)], [code]


def _fires(shot: Snapshot, auditor: str, code: str) -> bool:
    """Newly crossed or still there after the cooldown; in both cases not within the cooldown."""
    last = shot.last_emitted.get(code)
    return last is None or not 0 <= shot.now - last < ALERT_COOLDOWN_S[auditor]


def repetition_of(recent: list) -> tuple:
    """(score 0..1, repeats) over the last calls: how many repeat an earlier one of the window."""
    window = [call for call in recent[-REPETITION_WINDOW:] if isinstance(call, str)]
    repeats = len(window) - len(set(window))
    return round(repeats / (REPETITION_WINDOW - 1), 2), repeats


def call_signature(tool: str, tool_input: dict) -> str:
    """The same for the same tool and input. The interpreter's own source hash is built in and keyed by us;
    hashlib would cost 5 % of a start."""
    try:
        data = (tool + "\0" + format_json(tool_input)).encode()
    except ValueError:
        data = tool.encode("utf-8", "replace")  # nested too deeply to tell apart
    return _imp.source_hash(0x637478, data).hex()


def is_audit_due(shot: Snapshot, state: dict) -> bool:
    """Whether an evaluation could change anything, by the session's own note of the last one: the file that
    all sessions share is not even opened on nearly every call. Inside a band, cooldowns are looked at each minute."""
    health = [shot.percent, shot.score]
    last = _list(state, "audited")
    in_band = shot.percent >= min(clear for _, clear, _ in HEALTH_LEVELS) or shot.score >= REPETITION_CLEAR
    aged = len(last) == 3 and not 0 <= shot.now - number(last[2]) < AUDIT_BAND_S
    if last[:2] == health and shot.stale_files is None and not (in_band and aged):
        return False
    state["audited"] = health + [int(shot.now)]
    return True


def run_auditors(ctx: Ctx, session: str, shot: Snapshot) -> None:
    """Evaluate, write the signals, remember."""
    emitted: list = []
    update_json(ctx, ctx.path("monitor-state.json"), lambda state: _evaluate(ctx, session, shot, state, emitted))
    for alert, target in emitted:
        signal = Signal(name=alert.auditor, severity=alert.severity, generated_at=ctx.now, auditor=alert.auditor,
                        ttl_s=ALERT_TTL_S[alert.auditor], code=alert.codes[0],
                        body=alert.summary + "\n→ " + alert.action)
        if write_signal(ctx, target, signal):
            record(ctx, "alert:emitted", code=alert.codes[0], severity=alert.severity, summary=alert.summary)


def _evaluate(ctx: Ctx, session: str, shot: Snapshot, state: dict, emitted: list) -> bool:
    active_all, last_all = table(state, "activeAlerts"), table(state, "lastEmitted")
    before = format_json(state)
    table(state, "lastHealth")[session] = {"contextPercent": shot.percent, "repetitionScore": shot.score}
    for auditor, scope in ((audit_health, session), (audit_repetition, session), (audit_reminder, "global")):
        if auditor is audit_reminder and shot.stale_files is None:
            continue  # not looked at this time
        prefix = scope + ":"
        own = [key for key in active_all if key.startswith(prefix) and _belongs(key[len(prefix):], auditor)]
        shot.active = {key[len(prefix):] for key in own}
        shot.last_emitted = {k[len(prefix):]: parse_iso(v) for k, v in last_all.items() if k.startswith(prefix)}
        alerts, codes = auditor(shot)
        for key in own:
            if key[len(prefix):] not in codes:
                del active_all[key]
                _withdraw(ctx, "" if scope == "global" else session, key[len(prefix):])
        active_all.update((prefix + code, True) for code in codes)
        for alert in alerts:
            last_all.update((prefix + code, format_iso(ctx.now)) for code in alert.codes)
            emitted.append((alert, "" if scope == "global" else session))
    return format_json(state) != before


def _belongs(code: str, auditor) -> bool:
    prefix = {"audit_health": "CTX_HEALTH_", "audit_repetition": "CTX_REPETITION", "audit_reminder": "CTX_AUDIT_DUE"}
    return code.startswith(prefix[auditor.__name__])


def _withdraw(ctx: Ctx, session: str, code: str) -> None:
    """What is no longer true need not be said: drop the pending signal of a cleared alert."""
    for name in ALERT_TTL_S:
        path = signal_dir(ctx, session) + "/" + name + ".md"
        data = read_bytes(path, SIGNAL_LIMIT_BYTES, follow=False)
        if data and parse_fields(split_header(data.decode("utf-8", "replace"))[0] or []).get("code") == code:
            remove_file(path)


def stale_files_of(ctx: Ctx) -> tuple:
    """(days since the newest change, names) when every context file is older than `audit.stale_days`."""
    limit_days = ctx.get("audit.stale_days")
    times = {name: stat_of(join_path(ctx.dir, name)) for name in ctx.get("gate.files")}
    there = {name: info.st_mtime for name, info in times.items() if info is not None}
    if not there or not limit_days:
        return 0, []
    days = int((ctx.now - max(there.values())) // 86400)
    return days, list(there) if days >= limit_days else []


# =============================================================================
# Gate
# =============================================================================
# One message at the first tool call of a session. The marker in the temp folder
# is created with O_EXCL before the output, so that parallel first calls fire
# once; what is not our own regular file there is neither trusted nor followed.
FIRED, CLAIMED, NO_MARKER = "fired", "claimed", "no marker"


def gate_files(ctx: Ctx) -> list:
    """[(name, path)] of the listed context files that exist."""
    named = [(name, join_path(ctx.dir, name)) for name in ctx.get("gate.files")]
    return [(name, path) for name, path in named if is_file(path)]


def claim_marker(ctx: Ctx, session: str) -> str:
    """FIRED when this session's gate was open before, CLAIMED for the one that opens it, NO_MARKER: cannot tell."""
    path = marker_path(ctx, session)
    try:
        fd = _os.open(path, _NEW_FLAGS, 0o600)
    except FileExistsError:
        return FIRED if has_marker(ctx, session) else NO_MARKER
    except (OSError, ValueError):
        return NO_MARKER
    try:
        write_all(fd, (format_iso(ctx.now) + "\n").encode())
    except OSError:
        pass  # an empty marker is a marker
    finally:
        _os.close(fd)
    return CLAIMED


def has_marker(ctx: Ctx, session: str) -> bool:
    info = stat_of(marker_path(ctx, session), follow=False)
    return info is not None and _stat.S_ISREG(info.st_mode) and (not IS_POSIX or info.st_uid == _os.geteuid())


def drop_marker(ctx: Ctx, session: str) -> None:
    if has_marker(ctx, session):
        remove_file(marker_path(ctx, session))


def open_gate(ctx: Ctx, event: Event, room: int) -> str:
    """The gate's text for this call, or "" when there is nothing to say."""
    if ctx.get("gate.mode") == "off" or has_marker(ctx, event.session):
        return ""
    files = gate_files(ctx)
    read = read_json(session_file(ctx, event.session)).get("files_read")
    if not files or all(name in (read if isinstance(read, list) else ()) for name, _ in files):
        return ""
    text = render_gate(ctx, event.cwd, files)
    if units(text) > room:
        return GATE_WAITS if units(GATE_WAITS) < room else ""
    claim = claim_marker(ctx, event.session)
    if claim == FIRED:
        return ""
    record(ctx, "gate:emitted", files=[name for name, _ in files], marker=claim, style=ctx.get("gate.mode"))
    return text


def render_gate(ctx: Ctx, cwd: str, files: list) -> str:
    """The whole instruction in one message: a chain of `run this and follow its output` decays link by link."""
    shown = [(name, shown_path(ctx, path, cwd)) for name, path in files]
    message = ctx.get("gate.message")
    names = ", ".join(path for _, path in shown)
    head = message.replace("{files}", names) if message else GATE_DIRECTIVE.format(files=names)
    head = cut_text(clean_text(head), GATE_CONTENT_LIMIT_UNITS - 400)
    if ctx.get("gate.mode") != "content":
        return head + "\n" + GATE_CHECKPOINT
    room = GATE_CONTENT_LIMIT_UNITS - units(head) - units(GATE_CHECKPOINT) - 2
    return "\n".join([head] + _gate_content(ctx, files, dict(shown), room) + [GATE_CHECKPOINT])


def shown_path(ctx: Ctx, path: str, cwd: str) -> str:
    """Relative to the root for a session that stands there, absolute for one that does not."""
    inside = is_below(path, ctx.root) and join_path(cwd or ctx.root, ".") == ctx.root
    return path[len(ctx.root.rstrip("/")) + 1:] if inside else path


def _gate_content(ctx: Ctx, files: list, shown: dict, room: int) -> list:
    """The files' text by priority; each one that was cut or left out is named with its path."""
    out: list = []
    room -= sum(units(GATE_CONTENT_LEFT_OUT) + units(path) for path in shown.values())
    for name, path in files:
        label = GATE_CONTENT_FILE.format(path=shown[name])
        body = _gate_body(ctx, name, path)
        used = units(label) + units(body) + 2
        if used <= room:
            out += [label, body]
        elif room > 600:
            used = room
            note = GATE_CONTENT_CUT.format(path=shown[name])
            out += [label, cut_text(body, room - units(label) - units(note) - 3), note]
        else:
            used = 0
            out.append(GATE_CONTENT_LEFT_OUT.format(path=shown[name]))
        room -= used
    return out


def _gate_body(ctx: Ctx, name: str, path: str) -> str:
    base = ctx.root if not ctx.get("allow_outside") else "/"
    data = read_inside(path, base) or b""
    text = clean_text(data.decode("utf-8", "replace"))
    start, end = text.find(INDEX_START), text.find(INDEX_END)
    if base_name(name) in INDEXED_FILES and 0 <= start < end:
        text = text[start + len(INDEX_START):end]
    return text.strip()


# =============================================================================
# Handoff
# =============================================================================
# State of one session, .context/state/<session>.json. From the crossing of the
# threshold on, every batch of tool calls carries the reminder until the handoff
# file is a non-empty regular file newer than the crossing.


def note_call(ctx: Ctx, event: Event, state: dict, measure: Measure) -> None:
    """Count one tool call: tokens, breakdown, files read, recent calls, history."""
    state.setdefault("session_start", format_iso(ctx.now))
    state["tool_calls"] = _count(state.get("tool_calls")) + 1
    state["estimated_tokens"], state["window"], state["exact"] = measure.tokens, measure.window, measure.exact
    state["measured_model"] = measure.model
    if measure.exact and measure.tokens > DEFAULT_WINDOW:
        state["large_model"] = measure.model  # proven, also for the time after a compaction
    breakdown = table(state, "breakdown")
    if event.tool in breakdown or len(breakdown) < 60:
        added = estimate_tokens(event.tool, event.tool_input, event.response)
        breakdown[event.tool] = _count(breakdown.get(event.tool)) + added
    state["recent"] = (_list(state, "recent") + [call_signature(event.tool, event.tool_input)])[-REPETITION_WINDOW:]
    history = _list(state, "history")
    if history[-1:] != [measure.percent]:
        state["history"] = (history + [measure.percent])[-40:]
    state["last_call"] = format_iso(ctx.now)
    name = read_context_file(ctx, event)
    if name and name not in _list(state, "files_read"):
        state["files_read"] = _list(state, "files_read") + [name]


def read_context_file(ctx: Ctx, event: Event) -> str:
    """The listed context file that this call read with the Read tool, or ""."""
    path = _text(event.tool_input.get("file_path")) if event.tool == "Read" and not event.failed else ""
    if not path:
        return ""
    path = join_path(event.cwd or ctx.root, path)
    for name in ctx.get("gate.files"):
        listed = join_path(ctx.dir, name)
        if path == listed or (base_name(path) == base_name(listed) and real_path(path) == real_path(listed)):
            return name
    return ""


def plan_handoff(ctx: Ctx, state: dict, measure: Measure, batch: str) -> str:
    """The reminder for this call, or "". Edits the handoff's part of the state."""
    _migrate(ctx, state)
    crossed = parse_iso(state.get("threshold_crossed_at"))
    percent, threshold = measure.percent, ctx.get("handoff.threshold")
    if not ctx.get("handoff.enabled"):
        return ""
    if crossed is not None and measure.exact and percent < threshold - HANDOFF_RESET_MARGIN:
        reset_handoff(state)
        return ""
    if crossed is None and percent < threshold:
        return ""
    if crossed is None or crossed > ctx.now + 1:  # set once; a clock that went back must not make it unreachable
        crossed = ctx.now
        state["threshold_crossed_at"], state["handoff_complete"] = format_iso(crossed, fraction=True), False
        record(ctx, "handoff:crossed", percent=percent, tokens=measure.tokens, window=measure.window)
    if state.get("handoff_complete") is True:
        return ""
    path = handoff_path(ctx)
    if is_handoff_written(path, crossed):
        state["handoff_complete"] = True
        record(ctx, "handoff:complete", path=path)
        return ""
    return _remind(ctx, state, measure, batch)


def _remind(ctx: Ctx, state: dict, measure: Measure, batch: str) -> str:
    last = parse_iso(state.get("reminded_at"))
    if (batch and batch == state.get("reminded_batch")) or (
        last is not None and 0 <= ctx.now - last < ctx.get("handoff.cooldown_s")
    ):
        return ""
    state["reminded_batch"], state["reminded_at"] = batch, format_iso(ctx.now, fraction=True)
    state["reminders"] = _count(state.get("reminders")) + 1
    command = ctx.get("handoff.command")
    record(ctx, "handoff:reminded", percent=measure.percent, exact=measure.exact, batch=batch)
    return HANDOFF_REMINDER.format(
        percent=measure.shown, tokens=format(measure.tokens, ","), window=format(measure.window, ","),
        note=", " + measure.note if measure.note else "", path=handoff_path(ctx),
        command=HANDOFF_COMMAND.format(command=one_line(command)) if command else "",
    )


def handoff_path(ctx: Ctx) -> str:
    return join_path(ctx.root, ctx.get("handoff.file"))


def is_handoff_written(path: str, crossed: float) -> bool:
    """A non-empty regular file newer than the crossing. File clocks are coarse: 20 ms are forgiven, and a time
    in whole seconds is compared by the second."""
    info = stat_of(path)
    if info is None or not _stat.S_ISREG(info.st_mode) or not info.st_size:
        return False
    if info.st_size < 64 and not (read_bytes(path, 64) or b"").strip():
        return False
    if info.st_mtime_ns % 1_000_000_000 == 0:
        return int(info.st_mtime) >= int(crossed)
    return info.st_mtime + CLOCK_TOLERANCE_S >= crossed


def reset_handoff(state: dict) -> None:
    """After a compaction nothing of the old context's measure holds."""
    for key in ("reminded_batch", "reminded_at", "reminders"):
        state.pop(key, None)
    state["threshold_crossed_at"], state["handoff_complete"] = None, False


def _migrate(ctx: Ctx, state: dict) -> None:
    if "handoff_triggered" in state:
        if state.pop("handoff_triggered") is True and not state.get("threshold_crossed_at"):
            state["threshold_crossed_at"] = format_iso(ctx.now, fraction=True)
    state.setdefault("threshold_crossed_at", None)
    state.setdefault("handoff_complete", False)


# =============================================================================
# Phases
# =============================================================================
# .caw/auto-state.json says which phase the agent is in. A phase ends with a
# completion block in the agent's last message, alone or in a code fence:
#
#     ---
#     SIGNAL: PLANNING_COMPLETE
#     PHASE: planning
#     STATUS: complete
#     TIMESTAMP: 2026-02-03T10:45:00Z
#     NEXT: execution
#     ---
#
# Any doubt lets the agent stop.
PHASES = (
    ("expansion", "Requirements: read the task and the code around it, write down what is asked, what is not, and how "
                  "it will be judged."),
    ("init", "Environment: set up .caw/ for this task, find out how the project is built and tested."),
    ("planning", "Plan: write task_plan.md with small steps that can each be checked."),
    ("execution", "Execution: carry out all steps of the plan and mark each one when it is done."),
    ("qa", "Quality: run the build, the linters and the tests, and mend what fails."),
    ("review", "Review: read the whole change as a reviewer would and list the findings."),
    ("fix", "Fix: mend the findings of the review."),
    ("check", "Check: validate the result against the requirements and the project's rules."),
    ("reflect", "Reflect: write down what was learned, in the context files where they have a place for it."),
)
PHASE_NAMES = tuple(name for name, _ in PHASES)
SKIPS = {"skip_expansion": ("expansion",), "skip_qa": ("qa",), "skip_review": ("review", "fix", "check"),
         "skip_reflect": ("reflect",)}
TRANSITIONS = {"TRANSITION_TO_QA": "qa", "TRANSITION_TO_VALIDATION": "review", "TRANSITION_TO_FIX": "fix"}
BLOCK_KEYS = frozenset(("SIGNAL", "PHASE", "STATUS", "TIMESTAMP", "NEXT"))
ERROR_KEYS = frozenset(("SIGNAL", "PHASE", "STATUS", "TIMESTAMP", "ERROR", "RECOVERABLE"))
MAX_ITERATIONS, ITERATIONS_LIMIT = 20, 50
STALE_AFTER_S = 2 * 3600
STALLS_LIMIT = 3
CLIENT_HOLD_CAP = 8
FULL_PERCENT = 95
CONTINUATION = """## Auto Mode Continuation
{lead}
- Phase: {phase} (iteration {iteration}/{max})
- About: {about}
- Task: {task}
- Expected signal: {signal}

When the phase is done, print this block with the current time:
{block}
If something went wrong, print instead:
{error}
If unable to complete, explain the blocker: what you tried and what you need."""
MACHINE_PROMPT = "<task-notification>"
TIME_PLACEHOLDER = "<current time, ISO 8601>"
LEAD_HOLD = "The phase is not complete yet: its completion block is missing."
LEAD_PROSE = "The phase is not complete yet: {signal} counts only in a whole block, with this phase and a real time."
LEAD_NEXT = "Phase {done} is complete. Go on with the next one."
LEAD_ERROR = "You reported a recoverable error: {error}. Recover from it and go on."
STOP_MESSAGES = {
    "all_phases_complete": "ctx auto: all phases complete.",
    "auto_complete_signal": "ctx auto: the agent declared the whole workflow complete.",
    "max_iterations_reached": "ctx auto: stopped, phase {phase} did not complete within {max} iterations.",
    "stale_state": "ctx auto: ended, no activity for over 2 hours.",
    "critical_error": "ctx auto: stopped by an error in phase {phase}: {error}",
    "user_cancelled": "ctx auto: cancelled.",
    "no_progress": "ctx auto: let the agent stop, no progress over 3 stops; the workflow stays in phase {phase}.",
    "hold_cap": "ctx auto: let the agent stop before the client's own limit; the workflow stays in phase {phase}.",
    "background_tasks": "ctx auto: background tasks are running; phase {phase} goes on when they are done.",
    "context_full": "ctx auto: let the agent stop, the context is nearly full; the workflow stays in phase {phase}.",
    "plan_mode": "ctx auto: plan mode, the agent may stop; the workflow stays in phase {phase}.",
    "unwritable": "ctx auto: let the agent stop, .caw/auto-state.json cannot be written.",
}


def parse_blocks(text: str) -> list:
    """The whole blocks of a message in order, each a dict with upper-case keys and a parsed `time`."""
    lines = [line.strip() for line in text.replace("\r\n", "\n").split("\n")]
    found, index = [], 0
    while index < len(lines):
        block, end = _block_at(lines, index) if lines[index] == "---" else (None, index)
        if block:
            found.append(block)
        index = end + 1
    return found


def _block_at(lines: list, start: int) -> tuple:
    """(block or None, index of its last line); the closing `---` of no block may open the next one."""
    fields: dict = {}
    for index in range(start + 1, min(start + 12, len(lines))):
        line = lines[index]
        if line == "---":
            return (_checked_block(fields), index) if _checked_block(fields) else (None, index - 1)
        key, colon, value = line.partition(":")
        key = key.strip().upper()
        if not line:
            continue
        if not colon or key in fields or key not in BLOCK_KEYS | ERROR_KEYS:
            return None, start
        fields[key] = value.strip()
    return None, start


def _checked_block(fields: dict) -> dict | None:
    is_error = fields.get("SIGNAL", "").upper() == "PHASE_ERROR"
    wanted = ERROR_KEYS if is_error else BLOCK_KEYS
    if set(fields) != wanted or parse_iso(fields["TIMESTAMP"]) is None:
        return None
    if fields["STATUS"].lower() != ("error" if is_error else "complete") or (not is_error and not fields["NEXT"]):
        return None
    if is_error and fields["RECOVERABLE"].lower() not in ("true", "false"):
        return None
    return dict(fields, SIGNAL=fields["SIGNAL"].upper(), PHASE=fields["PHASE"].lower())


def planned_phases(config: dict) -> list:
    skipped = {phase for flag, names in SKIPS.items() if config.get(flag) is True for phase in names}
    return [phase for phase in PHASE_NAMES if phase not in skipped]


def next_phase(phase: str, config: dict) -> str:
    """The phase after this one that is not skipped; `complete` after the last."""
    later = PHASE_NAMES[PHASE_NAMES.index(phase) + 1:]
    return next((name for name in planned_phases(config) if name in later), "complete")


def is_auto_active(state: dict) -> bool:
    return state.get("active") is True and state.get("phase") in PHASE_NAMES


def owns_workflow(state: dict, session_id: str) -> bool:
    """An unbound workflow belongs to the first session that asks."""
    return bool(session_id) and state.get("session_id") in (None, "", session_id)


def max_iterations_of(state: dict) -> int:
    value = state.get("max_iterations")
    value = int(value) if isinstance(value, str) and _is_digits(value) else number(value, MAX_ITERATIONS)
    return int(min(max(value, 1), ITERATIONS_LIMIT))


def last_activity(ctx: Ctx, state: dict, session: str) -> float:
    """The last stop, start or tool call of the workflow's session; a time in the future tells nothing."""
    calls = read_json(session_file(ctx, session)) if session else {}
    stated = (table(state, "signals").get("last_checked"), state.get("started_at"), calls.get("last_call"))
    return max([at for at in map(parse_iso, stated) if at is not None and at <= ctx.now + 60] + [0.0])


def is_stale(ctx: Ctx, state: dict, session: str) -> bool:
    active_at = last_activity(ctx, state, session)
    return bool(active_at) and ctx.now - active_at > STALE_AFTER_S


def end_workflow(state: dict, reason: str, now: float) -> None:
    done = reason in ("all_phases_complete", "auto_complete_signal")
    table(state, "enforcer")["last_phase"] = state.get("phase")
    state.update(active=False, phase="complete" if done else "failed", exit_reason=reason, completed_at=format_iso(now))


def decide_stop(state: dict, event: Event, ctx: Ctx, look) -> Stop:
    """Apply the message's blocks to the state, then hold or release. `look()` tells what costs to find out:
    (context percent, id of the last tool call)."""
    stale = is_stale(ctx, state, event.session)
    state["session_id"] = event.session_id
    table(state, "signals")["last_checked"] = format_iso(ctx.now)
    if stale:
        return _release(state, "stale_state", state["phase"], ctx.now)
    lead = ""
    for block in parse_blocks(event.last_message):
        phase = state["phase"]
        lead = apply_block(state, block, ctx.now) or lead
        if not is_auto_active(state):
            return _release(state, state["exit_reason"], phase)
    percent, tool_id = look()
    pause = _passing_brake(state, event, ctx, percent, tool_id)
    if pause:
        return _release(state, pause, state["phase"])
    if not lead:
        state["iteration"] = _count(state.get("iteration")) + 1
        if state["iteration"] > max_iterations_of(state):
            return _release(state, "max_iterations_reached", state["phase"], ctx.now)
    signal = state["phase"].upper() + "_COMPLETE"
    missing = LEAD_PROSE.format(signal=signal) if signal in event.last_message.upper() else LEAD_HOLD
    return Stop(reason="advanced" if lead.startswith(LEAD_NEXT[:6]) else "held", message="",
                prompt=render_continuation(state, lead or missing))


def apply_block(state: dict, block: dict, now: float) -> str:
    """Advance, end or note the error; returns the lead of the next prompt, "" for a block that does not count."""
    phase, signal = state["phase"], block["SIGNAL"]
    config = table(state, "config")
    if signal == "AUTO_COMPLETE" and block["PHASE"] in PHASE_NAMES + ("complete",):
        _note_signal(state, signal, now)
        end_workflow(state, "auto_complete_signal", now)
        return ""
    if block["PHASE"] != phase:
        return ""
    if signal == "PHASE_ERROR":
        return _apply_error(state, block, now)
    following = TRANSITIONS.get(signal, phase)
    if signal == phase.upper() + "_COMPLETE" or (signal in TRANSITIONS and following not in planned_phases(config)):
        following = next_phase(following, config)
    if following == phase:
        return ""
    _note_signal(state, signal, now)
    state.update(phase=following, iteration=0)
    if following == "complete":
        end_workflow(state, "all_phases_complete", now)
    elif _count_signal(state, signal) > max_iterations_of(state):
        end_workflow(state, "max_iterations_reached", now)  # phases that send each other round in circles
    return LEAD_NEXT.format(done=phase)


def _apply_error(state: dict, block: dict, now: float) -> str:
    recoverable = block["RECOVERABLE"].lower() == "true"
    message = one_line(block["ERROR"], 500)
    state["last_error"] = {"phase": state["phase"], "message": message, "recoverable": recoverable,
                           "timestamp": format_iso(now)}
    _note_signal(state, "PHASE_ERROR", now)
    if not recoverable:
        end_workflow(state, "critical_error", now)
        return ""
    state["iteration"] = _count(state.get("iteration")) + 1
    if state["iteration"] > max_iterations_of(state):
        end_workflow(state, "max_iterations_reached", now)
    return LEAD_ERROR.format(error=message)


def _note_signal(state: dict, signal: str, now: float) -> None:
    signals = table(state, "signals")
    signals["detected_signals"] = (_list(signals, "detected_signals") + [
        {"signal": signal, "detected_at": format_iso(now)}])[-200:]


def _count_signal(state: dict, signal: str) -> int:
    rows = _list(table(state, "signals"), "detected_signals")
    return sum(isinstance(row, dict) and row.get("signal") == signal for row in rows)


def _passing_brake(state: dict, event: Event, ctx: Ctx, percent: int, tool_id: str) -> str:
    """The name of the brake that lets this one stop pass, or "". Keeps the count of holds and stalls."""
    brake = table(state, "enforcer")
    answer = call_signature("answer", {"text": event.last_message})
    worked = bool(tool_id) and tool_id != brake.get("tool_id")
    moved = worked or answer != brake.get("answer") or state["phase"] != brake.get("phase")
    stalls = 0 if moved else _count(brake.get("stalls")) + 1
    holds = 0 if worked or not event.stop_active else _count(brake.get("holds"))
    stated = ctx.env.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", "")
    cap = int(stated) if _is_digits(stated) else CLIENT_HOLD_CAP
    brake.update(tool_id=tool_id, answer=answer, phase=state["phase"], stalls=stalls, holds=holds + 1)
    checks = (
        ("background_tasks", bool(event.background)),
        ("plan_mode", event.permission_mode == "plan"),
        ("context_full", percent >= FULL_PERCENT),
        ("no_progress", stalls >= STALLS_LIMIT),
        ("hold_cap", cap > 0 and holds + 1 >= cap),
    )
    reason = next((name for name, applies in checks if applies), "")
    if reason:
        brake.update(holds=0, stalls=0)
    return reason


def _release(state: dict, reason: str, phase: str, end_at: float = 0.0) -> Stop:
    if end_at:
        end_workflow(state, reason, end_at)
    error = table(state, "last_error").get("message", "") if reason == "critical_error" else ""
    message = STOP_MESSAGES[reason].format(phase=phase, max=max_iterations_of(state), error=error)
    return Stop(reason=reason, prompt="", message=message)


def render_continuation(state: dict, lead: str) -> str:
    phase = state["phase"]
    signal = phase.upper() + "_COMPLETE"
    following = next_phase(phase, table(state, "config"))
    task = one_line(_text(state.get("task_description")), 1500).replace("---", "—") or "(see the conversation)"
    block = render_block(("SIGNAL", signal), ("PHASE", phase), ("STATUS", "complete"), ("TIMESTAMP", TIME_PLACEHOLDER),
                         ("NEXT", "none" if following == "complete" else following))
    error = render_block(("SIGNAL", "PHASE_ERROR"), ("PHASE", phase), ("STATUS", "error"),
                         ("TIMESTAMP", TIME_PLACEHOLDER), ("ERROR", "<what happened>"), ("RECOVERABLE", "true|false"))
    return CONTINUATION.format(
        lead=lead, phase=phase, iteration=_count(state.get("iteration")), max=max_iterations_of(state),
        about=dict(PHASES)[phase], task=task, signal=signal, block=block, error=error)


def render_block(*fields: tuple) -> str:
    return "\n".join(["---"] + ["%s: %s" % field for field in fields] + ["---"])


def auto_path(ctx: Ctx) -> str:
    return ctx.root + "/" + AUTO_STATE


def enforce_stop(ctx: Ctx, event: Event) -> Reply | None:
    """Hold or release under the workflow's lock. A state that cannot be written holds nobody."""
    path = auto_path(ctx)
    if not is_auto_active(read_json(path)) or not event.session:
        return None
    if not event.last_message:
        event.last_message = _late_answer(event.transcript)
    with Lock(ctx, lock_path(ctx, path)) as lock:
        state = read_json(path)
        if lock.busy or not is_auto_active(state) or not owns_workflow(state, event.session_id):
            return None
        stop = decide_stop(state, event, ctx, lambda: (_percent_now(ctx, event), last_tool_id(event.transcript)))
        if not is_writable(path) or not write_bytes(path, format_json(state).encode() + b"\n", durable=True):
            stop = Stop(reason="unwritable", prompt="", message=STOP_MESSAGES["unwritable"])
    record(ctx, "stop:held" if stop.prompt else "stop:released", reason=stop.reason, phase=state.get("phase"),
           iteration=_count(state.get("iteration")))
    return Reply(stop.prompt, system_message=stop.message, hold=bool(stop.prompt))


def is_writable(path: str) -> bool:
    """A read-only file stays as it is, although replacing it would be possible."""
    try:
        return _os.access(path, _os.W_OK)
    except (OSError, ValueError):
        return False


def _late_answer(transcript: str) -> str:
    deadline = time.monotonic() + TRANSCRIPT_WAIT_S
    while True:
        text, _ = read_turn(transcript)
        if text or time.monotonic() > deadline:
            return text
        time.sleep(TRANSCRIPT_POLL_S)


def _percent_now(ctx: Ctx, event: Event) -> int:
    usage = read_usage(event.transcript)
    state = read_json(session_file(ctx, event.session))
    return measure_context(ctx, state, usage, 0).percent if usage or state.get("tool_calls") else 0


def is_workflow_stale(ctx: Ctx, event: Event) -> bool:
    """Looked at when the person comes back: their prompt's own tool calls would make it look alive again."""
    state = read_json(auto_path(ctx))
    return is_auto_active(state) and not event.prompt.startswith(MACHINE_PROMPT) and is_stale(ctx, state, event.session)


def cancel_workflow(ctx: Ctx, session_id: str, reason: str = "user_cancelled") -> bool:
    """End the workflow for the person; "" as session id: whoever it belongs to."""
    path = auto_path(ctx)
    with Lock(ctx, lock_path(ctx, path)) as lock:
        state = read_json(path)
        if lock.busy or not is_auto_active(state) or (session_id and not owns_workflow(state, session_id)):
            return False
        end_workflow(state, reason, ctx.now)
        done = write_bytes(path, format_json(state).encode() + b"\n", durable=True)
    if done:
        record(ctx, "auto:cancelled", reason=reason)
    return done


# =============================================================================
# Startup
# =============================================================================
# The handoff of the session before is a delivery with a state: attempts, back-
# off, acknowledgement in the agent's own words, then a marked section in the
# fallback file. The section's bytes are ours, all others are the user's.
FRAME_START = "[CONTEXT INJECTION - Please acknowledge receipt]"
FRAME_END = '[END CONTEXT - Reply "ACK: context received" to confirm]'
QUIET_START, QUIET_END = "[CONTEXT INJECTION]", "[END CONTEXT]"
DELIVERY = "(delivery {id}, attempt {attempt})"
SOURCE_HANDOFF = "Handoff of the session before, from {path} (written {time}):"
SOURCE_FILE = "From {path}:"
LEFT_OUT = "[left out for lack of room: {names}; the whole text is in the files named above]"
SECTION_START, SECTION_END = "<!-- STARTUP_CONTEXT_INJECTION -->", "<!-- END_STARTUP_CONTEXT -->"
SECTION_HEADING = "## Session Context (Auto-Injected)"
FALLBACK_NOTICE = "[System] Session context written to {file} - please review"
FAILURE_NOTICE = "Session context could not be delivered; it is in {path} - please read it"
KEY_HEADINGS = ("goal", "next", "task", "todo", "objective", "focus")
PLACEHOLDERS = frozenset(("tbd", "todo", "n/a", "none", "...", "…", "unknown", "-"))
FALLBACK_LIMIT_BYTES = 4 * 1024 * 1024
METRIC_KEYS = ("attempted", "succeededOnFirstTry", "succeededAfterRetry", "escalatedToFile", "failed",
               "averageAttemptsToSuccess", "averageTimeToSuccess")


def build_startup(ctx: Ctx, message_id: str, attempt: int) -> str:
    """The framed startup context, or "" when there is none worth sending."""
    sources = _startup_sources(ctx)
    return frame_startup(ctx, sources, message_id, attempt) if sources else ""


def frame_startup(ctx: Ctx, sources: list, message_id: str, attempt: int) -> str:
    """Shortened to its budget, with the request. It names the delivery: on a fork or a resume the client drops
    a text that stands in the conversation already."""
    start, end = (FRAME_START, FRAME_END) if ctx.get("startup.require_ack") else (QUIET_START, QUIET_END)
    head = start + "\n" + DELIVERY.format(id=message_id, attempt=attempt)
    limit = int(max(min(ctx.get("startup.budget_chars"), STARTUP_LIMIT_UNITS), 500)) - units(head + end) - 2
    return "\n".join((head, shorten_sources(sources, limit), end))


def _startup_sources(ctx: Ctx) -> list:
    """[(where it comes from, text)], the handoff first."""
    sources = []
    path = handoff_path(ctx)
    info = stat_of(path)
    if info is not None and ctx.now - info.st_mtime < ctx.get("startup.max_age_hours") * 3600:
        when = format_iso(info.st_mtime)
        sources.append((SOURCE_HANDOFF.format(path=shown_path(ctx, path, ""), time=when), _source_text(ctx, path)))
    for name in ctx.get("startup.files"):
        path = join_path(ctx.root, name)
        sources.append((SOURCE_FILE.format(path=shown_path(ctx, path, "")), _source_text(ctx, path)))
    return [(head, text) for head, text in sources if text]


def _source_text(ctx: Ctx, path: str) -> str:
    return source_text(read_inside(path, "/" if ctx.get("allow_outside") else ctx.root) or b"")


def source_text(data: bytes) -> str:
    """The file's text, "" when it is empty, binary, or a template that nobody has filled in."""
    if not data or b"\0" in data[:8192]:
        return ""
    text = clean_text(data.decode("utf-8", "replace")).strip()
    return "" if is_placeholder(text) else text


def is_placeholder(text: str) -> bool:
    """Nothing but headings and words such as TBD or [current task]."""
    for line in text.split("\n"):
        words = line.strip().lstrip("-*>0123456789.) \t").strip("_*` ")
        if words.startswith(("#", "<!--")):
            continue
        words = words.rpartition(":")[2].strip() if words[:1] != "[" else words
        if words and words.lower() not in PLACEHOLDERS and not (words[0] == "[" and words[-1] == "]"):
            return False
    return True


def split_sections(text: str) -> list:
    """[(heading, text)] by Markdown headings; what stands before the first one has no heading."""
    sections: list = [["", []]]
    fenced = False
    for line in text.split("\n"):
        fenced = fenced != line.lstrip().startswith("```")
        if line.startswith("#") and not fenced:
            sections.append([line.strip("# \t"), []])
        sections[-1][1].append(line)
    return [(heading, "\n".join(lines).strip()) for heading, lines in sections if "\n".join(lines).strip()]


def shorten_sources(sources: list, limit: int) -> str:
    """Whole sections go, from the lowest priority up; goal and next steps stay longest; what went is named."""
    parts = [
        (number_, index, heading, text) for number_, (_, body) in enumerate(sources)
        for index, (heading, text) in enumerate(split_sections(body))
    ]
    by_value = sorted(parts, key=lambda p: (not _is_key_heading(p[2]), p[0], p[1]))
    low, high = 1, len(by_value)
    while low < high:  # the largest number of sections that fits
        middle = (low + high + 1) // 2
        fits = units(_assemble(sources, by_value[:middle], by_value[middle:])) <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    text = _assemble(sources, by_value[:low], by_value[low:])
    return text if units(text) <= limit else cut_text(text, limit - 40) + "\n[cut for lack of room]"


def _is_key_heading(heading: str) -> bool:
    return any(word in heading.lower() for word in KEY_HEADINGS)


def _assemble(sources: list, parts: list, dropped: list) -> str:
    out = []
    for number_, (head, _) in enumerate(sources):
        texts = [text for source, _, _, text in sorted(parts) if source == number_]
        out += [head, ""] + (texts or ["[left out]"]) + [""]
    names = ", ".join(one_line(p[2], 60) or "introduction" for p in sorted(dropped)[:8])
    names += " and %d more" % (len(dropped) - 8) if len(dropped) > 8 else ""
    return "\n".join(out).rstrip() + ("\n" + LEFT_OUT.format(names=names) if dropped else "")


def is_acknowledged(ctx: Ctx, text: str) -> bool:
    """One of the patterns in the agent's words, and always what our request asks for; its quotation does not count."""
    text = text.replace(FRAME_END, "").replace('Reply "ACK: context received" to confirm', "")
    folded = " ".join(text.lower().split())  # the default without the cost of `re`
    if "ack: context received" in folded or "ack:context received" in folded:
        return True
    own = [pattern for pattern in ctx.get("startup.ack_patterns") if pattern not in DEFAULTS["startup.ack_patterns"]]
    return any(_matches(pattern, text) for pattern in own[:PATTERNS_TRIED])


def _matches(pattern: str, text: str) -> bool:
    import re
    import warnings

    try:
        with warnings.catch_warnings(), TimeLimit(PATTERN_LIMIT_S):  # (a+)+$ could take years
            warnings.simplefilter("ignore")  # `[[a]` is worth a line on stderr to the library
            return re.search(pattern, text[-20000:], re.IGNORECASE) is not None
    except (re.error, RuntimeError, OverflowError, MemoryError, TimeUp):  # 3.8 compiles what it cannot run
        return False


def start_delivery(ctx: Ctx, event: Event, state: dict) -> str:
    """The first attempt at SessionStart: the text to send, or ""."""
    message_id = "inj-%x" % int(ctx.now * 1000)
    text = build_startup(ctx, message_id, 1) if ctx.get("startup.enabled") else ""
    if not text:
        state.pop("startup", None)
        return ""
    asks = ctx.get("startup.require_ack")
    state["startup"] = {
        "message_id": message_id, "attempts": 1, "first_at": format_iso(ctx.now, fraction=True),
        "last_at": format_iso(ctx.now, fraction=True), "offset": transcript_size(event.transcript),
        "outcome": "pending" if asks else "delivered",
    }
    count_metrics(ctx, attempted=1)
    record(ctx, "injection:attempted", messageId=message_id, attempt=1, type="SessionStart")
    return text


def is_pending(state: dict) -> bool:
    delivery = state.get("startup")
    return isinstance(delivery, dict) and delivery.get("outcome") in ("pending", "escalated")


def follow_delivery(ctx: Ctx, event: Event, may_speak: bool) -> str:
    """Look for the acknowledgement; when it is due, the retry's or the notice's text."""
    if not is_pending(read_json(session_file(ctx, event.session))):
        return ""
    said: list = []

    def change(state: dict) -> bool:
        if is_pending(state):
            said.append(_follow(ctx, event, state["startup"], may_speak))
        return bool(said)

    update_json(ctx, session_file(ctx, event.session), change)
    return said[0] if said else ""


def _follow(ctx: Ctx, event: Event, delivery: dict, may_speak: bool) -> str:
    news = read_news(event.transcript, _count(delivery.get("offset")), _text(delivery.get("answer_to")),
                     parse_iso(delivery.get("first_at")) or 0.0)
    delivery["offset"] = news.offset
    if FRAME_START in news.receipts or QUIET_START in news.receipts:
        delivery.setdefault("receipt_at", format_iso(ctx.now))
    delivery["answered"] = delivery.get("answered") is True or news.answered or bool(event.last_message)
    if is_acknowledged(ctx, news.text + "\n" + (event.last_message or "")):
        _succeed(ctx, delivery)
        return ""
    waited_s = ctx.now - (parse_iso(delivery.get("last_at")) or 0)
    due = delivery["answered"] and not 0 <= waited_s < _backoff(ctx, delivery)
    if not may_speak or not due or delivery.get("outcome") != "pending":
        return ""
    return _retry(ctx, event, delivery)


def _backoff(ctx: Ctx, delivery: dict) -> float:
    backoffs = ctx.get("startup.retry_backoffs_s") or [0]
    return backoffs[min(_count(delivery.get("attempts")), len(backoffs)) - 1]


def _succeed(ctx: Ctx, delivery: dict) -> None:
    attempts = max(1, _count(delivery.get("attempts")))
    took_ms = int(max(0.0, ctx.now - (parse_iso(delivery.get("first_at")) or ctx.now)) * 1000)
    first = attempts == 1 and delivery.get("outcome") == "pending"
    delivery.update(outcome="acknowledged", acked_at=format_iso(ctx.now))
    key = "succeededOnFirstTry" if first else "succeededAfterRetry"
    count_metrics(ctx, success=(attempts, took_ms), **{key: 1})
    record(ctx, "injection:succeeded", messageId=delivery.get("message_id"), attempts=attempts, durationMs=took_ms)
    remove_section(ctx)


def _retry(ctx: Ctx, event: Event, delivery: dict) -> str:
    """The next rung: the text again, the fallback file with its notice, or the end."""
    attempts, message_id = _count(delivery.get("attempts")), _text(delivery.get("message_id"))
    text = build_startup(ctx, message_id, attempts + 1)
    if not text:
        delivery["outcome"] = "withdrawn"  # the handoff is gone or stale: nothing to insist on
        return ""
    if attempts >= ctx.get("startup.file_fallback_after_attempts") and not delivery.get("unwritable"):
        if write_section(ctx, text):
            delivery.update(outcome="escalated", escalated_at=format_iso(ctx.now))
            count_metrics(ctx, escalatedToFile=1)
            record(ctx, "injection:escalated", messageId=message_id, escalationType="file")
            return FALLBACK_NOTICE.format(file=ctx.get("startup.fallback_file"))
        delivery["unwritable"] = True
    if attempts >= ctx.get("startup.max_attempts"):
        return fail_delivery(ctx, delivery, "not acknowledged")
    delivery.update(attempts=attempts + 1, last_at=format_iso(ctx.now, fraction=True), answered=False,
                    answer_to=find_message(event.transcript, event.tool_use_id),
                    offset=transcript_size(event.transcript))
    record(ctx, "injection:attempted", messageId=message_id, attempt=attempts + 1, type=event.name)
    return text


def fail_delivery(ctx: Ctx, delivery: dict, reason: str) -> str:
    """Neither acknowledged nor written: counted, and one line says where the context is."""
    delivery["outcome"] = "failed"
    count_metrics(ctx, failed=1)
    record(ctx, "injection:failed", messageId=delivery.get("message_id"), attempts=_count(delivery.get("attempts")),
           reason=reason)
    if not ctx.get("startup.notify_on_failure"):
        return ""
    paths = [handoff_path(ctx)] + [join_path(ctx.root, name) for name in ctx.get("startup.files")]
    return FAILURE_NOTICE.format(path=", ".join(path for path in paths if is_file(path)))


def count_metrics(ctx: Ctx, success: tuple | None = None, **counts: int) -> None:
    """Add to .context/metrics.json; `success` = (attempts, ms) moves the averages."""

    def change(metrics: dict) -> bool:
        for key in METRIC_KEYS:
            metrics[key] = number(metrics.get(key))
        for key, added in counts.items():
            metrics[key] += added
        if success:
            total = max(1, metrics["succeededOnFirstTry"] + metrics["succeededAfterRetry"])
            for key, value in zip(METRIC_KEYS[5:], success):
                metrics[key] = round(metrics[key] + (value - metrics[key]) / total, 3)
        return True

    update_json(ctx, ctx.path("metrics.json"), change)


# --- the marked section of the fallback file


def write_section(ctx: Ctx, text: str) -> bool:
    """Put the section into the fallback file, replacing our old one. False: it cannot be written."""
    with Lock(ctx, ctx.path("state", "fallback.lock")) as lock:
        path, data = _fallback_file(ctx)
        noted = read_json(ctx.path("state", "fallback.json"))
        if lock.busy or data is None or not _drop_allowed(data, noted):
            return False  # not ours to write; where somebody edited our section, their edit wins
        bare = _without_sections(data, noted)
        newline = "\r\n" if b"\r\n" in bare else "\n"
        lead = "" if not bare else newline if bare.endswith(b"\n") else newline * 2
        text = text.replace(SECTION_START, "").replace(SECTION_END, "")
        section = "\n".join((SECTION_START, SECTION_HEADING, "", text, SECTION_END, "")).replace("\n", newline)
        note = {"file": path, "created": noted.get("created") is True or stat_of(path) is None, "lead": lead,
                "at": format_iso(ctx.now), "digest": _section_digest(section.encode()), "older": noted.get("digest")}
        # The note comes first: without it the section could not be taken out again.
        return (write_runtime(ctx, ctx.path("state", "fallback.json"), format_json(note).encode())
                and write_bytes(path, bare + (lead + section).encode(), durable=True))


def remove_section(ctx: Ctx) -> bool:
    """Take our section out again; the rest of the file is byte-identical, a file that we made goes."""
    note_path = ctx.path("state", "fallback.json")
    if not is_file(note_path):
        return False
    with Lock(ctx, ctx.path("state", "fallback.lock")) as lock:
        noted = read_json(note_path)
        path, data = _fallback_file(ctx)
        if lock.busy or data is None or not _drop_allowed(data, noted):
            return False
        bare = _without_sections(data, noted)
        if bare != data:
            made_by_us = not bare and noted.get("created") is True
            if not (remove_file(path) if made_by_us else write_bytes(path, bare, durable=True)):
                return False
        remove_file(note_path)
    record(ctx, "injection:section-removed", file=ctx.get("startup.fallback_file"))
    return True


def expire_section(ctx: Ctx) -> None:
    """At a session's start: a section older than `startup.max_age_hours` goes."""
    noted = read_json(ctx.path("state", "fallback.json"))
    at = parse_iso(noted.get("at"))
    if noted and (at is None or ctx.now - at > ctx.get("startup.max_age_hours") * 3600):
        remove_section(ctx)


def find_sections(data: bytes) -> list:
    """[(start, end)] of our sections: a start marker, our heading, and the nearest end marker, none in between."""
    found, position = [], 0
    start_mark, end_mark = SECTION_START.encode(), SECTION_END.encode()
    while True:
        end = data.find(end_mark, position)
        if end < 0:
            return found
        start = data.rfind(start_mark, position, end)
        if start >= 0 and data[start + len(start_mark):end].lstrip().startswith(SECTION_HEADING.encode()):
            after = end + len(end_mark)
            after += 2 if data[after:after + 2] == b"\r\n" else 1 if data[after:after + 1] == b"\n" else 0
            found.append((start, after))
        position = end + len(end_mark)


def _without_sections(data: bytes, noted: dict) -> bytes:
    """The user's bytes: without our sections and the line ends that were put before ours."""
    lead = noted["lead"].encode() if noted.get("lead") in ("\n", "\r\n", "\n\n", "\r\n\r\n") else b""
    for start, end in reversed(find_sections(data)):
        before = data[:start - len(lead)] if lead and data[:start].endswith(lead) else data[:start]
        if not data[end:] or before.endswith(b"\n"):  # else two lines of the user's would become one
            start = len(before)
        data = data[:start] + data[end:]
    return data


def _drop_allowed(data: bytes, noted: dict) -> bool:
    """Only sections as we wrote them may be dropped; without a note any well-formed one is an old one of ours."""
    digests = [_section_digest(data[start:end]) for start, end in find_sections(data)]
    return not digests or not noted or noted.get("digest") in digests or noted.get("older") in digests


def _section_digest(section: bytes) -> str:
    """Line ends are not an edit: git and editors change them."""
    return call_signature("section", {"text": section.decode("utf-8", "replace").replace("\r\n", "\n").strip()})


def _fallback_file(ctx: Ctx) -> tuple:
    """(real path, bytes) of the fallback file; b"" when it is not there yet, None when it may not be written."""
    path, root = real_path(join_path(ctx.root, ctx.get("startup.fallback_file"))), real_path(ctx.root)
    if not is_below(path, root) or ".git" in path[len(root):].split("/"):
        return path, None  # `allow_outside` lets files be read, never written
    info = stat_of(path)
    if info is None:
        return path, b"" if is_missing(path) else None
    if not _stat.S_ISREG(info.st_mode) or info.st_size > FALLBACK_LIMIT_BYTES or not is_writable(path):
        return path, None
    return path, read_bytes(path, FALLBACK_LIMIT_BYTES + 1)


# --- a session's start


def start_session(ctx: Ctx, event: Event) -> Reply | None:
    """SessionStart by its source: new sessions get the context, compaction re-arms, resume asks the transcript."""
    said: list = []
    path = session_file(ctx, event.session)
    resumed = event.source == "resume"
    asks = resumed and not is_file(path)
    gate_seen, owed, acked = _read_receipts(ctx, event) if asks else (False, not resumed, False)

    def change(state: dict) -> bool:
        state.setdefault("session_start", format_iso(ctx.now))
        if event.model:
            state["model"] = event.model
        if "settings_model" not in state:
            state["settings_model"] = settings_model(ctx)
        if event.source in ("compact", "clear"):
            drop_marker(ctx, event.session)
            reset_handoff(state)
            state.update(files_read=[], estimated_tokens=0)
        if acked:
            state["startup"] = {"outcome": "acknowledged", "attempts": 1, "acked_at": format_iso(ctx.now)}
        elif owed and event.source != "compact" and not is_settled(state):
            said.append(start_delivery(ctx, event, state))
        return True

    update_json(ctx, path, change)
    if gate_seen:
        claim_marker(ctx, event.session)
    return Reply(said[0]) if said and said[0] else None


def is_settled(state: dict) -> bool:
    """Resumed while our state survived: what was delivered is not delivered again."""
    return isinstance(state.get("startup"), dict)


def _read_receipts(ctx: Ctx, event: Event) -> tuple:
    """(gate text there, a delivery without acknowledgement there, acknowledgement there) in the transcript since
    its last compaction. Who resumes a session is not new to it: its own handoff is no news."""
    gate_seen = owed = acked = False
    deadline = time.monotonic() + RECEIPTS_LIMIT_S
    for line in lines_backward(event.transcript):
        if b"compact_boundary" in line and parse_row(line).get("subtype") == "compact_boundary":
            break
        if b"hook_additional_context" in line:
            receipt = receipt_of(parse_row(line))
            gate_seen = gate_seen or GATE_CHECKPOINT in receipt
            owed = owed or (FRAME_START in receipt and not acked)
        elif b'"assistant"' in line and not acked:
            row = parse_row(line)
            acked = is_answer(row) and time.monotonic() < deadline and is_acknowledged(ctx, text_of(row))
    return gate_seen, owed, acked and not owed


# =============================================================================
# Cleanup
# =============================================================================
# A session's files go at its end; what a killed session left goes by age, in a
# bounded time. Nothing of the user's is ever in these places.


def remove_session(ctx: Ctx, session: str) -> None:
    """Signals, state, markers and the keys in monitor-state.json of one session."""
    remove_tree(signal_dir(ctx, session))
    for suffix in (".json", ".statusline", ".lock"):
        remove_file(ctx.path("state", session + suffix))
    drop_marker(ctx, session)
    remove_file(marker_path(ctx, session, SEEN_PREFIX))
    forget_sessions(ctx, lambda name: name == session)


def forget_sessions(ctx: Ctx, is_gone) -> None:
    """Drop the keys of gone sessions from monitor-state.json."""
    path = ctx.path("monitor-state.json")
    if not is_file(path):
        return

    def change(state: dict) -> bool:
        before = format_json(state)
        for key in ("lastEmitted", "activeAlerts", "lastHealth"):
            sessions = {name: name.partition(":")[0] for name in table(state, key)}
            for name in [n for n, session in sessions.items() if session != "global" and is_gone(session)]:
                del state[key][name]
        return format_json(state) != before

    update_json(ctx, path, change)


def remove_tree(path: str) -> None:
    """A folder of plain files, one level deep; links are removed, not followed."""
    info = stat_of(path, follow=False)
    if info is None or not _stat.S_ISDIR(info.st_mode):
        return
    for name in list_dir(path):
        remove_file(path + "/" + name)
    try:
        _os.rmdir(path)
    except OSError:
        pass


def collect_orphans(ctx: Ctx, keep: str) -> None:
    """By age: session folders and state after 7 days, gate markers after 15; at most a quarter of a second."""
    deadline = time.monotonic() + COLLECT_LIMIT_S
    stamp = ctx.path("state", "collected")
    last = stat_of(stamp)
    if last is not None and 0 <= ctx.now - last.st_mtime < 3600:
        return
    write_runtime(ctx, stamp, b"")
    gone = set()
    ages = {ctx.path("signals", "sessions"): ORPHAN_AGE_S, ctx.path("signals", "global"): ORPHAN_AGE_S,
            ctx.path("state"): ORPHAN_AGE_S, ctx.path("state", "aside"): 4 * ORPHAN_AGE_S, ctx.tmp: MARKER_AGE_S}
    shared = [ctx.dir, parent_of(auto_path(ctx)), parent_of(join_path(ctx.root, ctx.get("startup.fallback_file")))]
    ages.update((folder, ORPHAN_AGE_S) for folder in shared)
    for folder, age_s in ages.items():
        for name in list_dir(folder) if folder in (ctx.tmp, *shared) or is_own_dir(ctx, folder) else []:
            if time.monotonic() > deadline:
                return
            if not _is_collectable(ctx, folder, name):
                continue
            if keep not in (name, name.rpartition(".")[0]) and _remove_old(folder + "/" + name, ctx.now - age_s):
                gone.add(name.rpartition(".")[0] or name)
    forget_sessions(ctx, lambda name: name in gone or not is_file(session_file(ctx, name)) and name != keep)


def _is_collectable(ctx: Ctx, folder: str, name: str) -> bool:
    """Only sessions' files and half-written ones: a pause, the note of the fallback section and locks that all
    share are needed for as long as they are there, and global signals have a time of their own."""
    if folder == ctx.tmp:
        return name.startswith((MARKER_PREFIX, SEEN_PREFIX))
    if folder not in [ctx.path("signals", "sessions"), ctx.path("state"), ctx.path("state", "aside")]:
        return is_temp_name(name)
    if folder != ctx.path("state") or is_temp_name(name):
        return True
    if name.partition(".")[0] in _TAKEN or name.endswith((".lock", ".statusline")):
        return name.partition(".")[0] not in _TAKEN
    # `context_dir` may be a folder in which a person keeps a `state` of their own
    state = read_bytes(folder + "/" + name, STATE_LIMIT_BYTES, follow=False) if name.endswith(".json") else None
    return state is not None and (b'"session_start"' in state or state.strip() in (b"", b"{}"))


def _remove_old(path: str, before: float) -> bool:
    """Remove a file or a session's folder whose newest content is older than `before`."""
    info = stat_of(path, follow=False)
    if info is None or (IS_POSIX and info.st_uid != _os.geteuid()):
        return False
    if not _stat.S_ISDIR(info.st_mode):
        return info.st_mtime < before and remove_file(path)
    times = [entry.st_mtime for entry in (stat_of(path + "/" + n, follow=False) for n in list_dir(path)) if entry]
    if max(times + [info.st_mtime]) >= before:
        return False
    remove_tree(path)
    return True


def hide_bytecode() -> None:
    """The cached bytecode beside the kit stays out of the user's `git status`."""
    folder = parent_of(__file__.replace("\\", "/")) + "/__pycache__"
    if is_dir(folder) and stat_of(folder + "/.gitignore") is None:
        write_bytes(folder + "/.gitignore", b"*\n")


# =============================================================================
# Hook
# =============================================================================
# The only place that knows the client's JSON, its stdin and its environment.
ENV_NAMES = ("CLAUDE_PROJECT_DIR", "CTX_HOOKS_DISABLE", "CTX_INJECT_MIN_SEVERITY", "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP",
             "AI_AGENT", "ANTHROPIC_MODEL", "CLAUDE_CONFIG_DIR", "HOME", "TMPDIR", "TEMP", "CLAUDE_CODE_SESSION_ID")
USUAL_EVENTS = {"inject": "UserPromptSubmit", "gate": "PreToolUse", "monitor": "PostToolUse", "stop-enforce": "Stop"}
FEEDBACK_SINCE = (2, 1, 163)  # from here on a Stop hook's additionalContext goes on without being shown as an error


class NoInput(Exception):
    """The watchdog's: nothing more came in time."""


def read_environment(names: tuple = ENV_NAMES) -> dict:
    """The variables we look at, and no others: the rest may hold secrets."""
    if IS_POSIX:
        encoding = sys.getfilesystemencoding()
        raw = {name: _os.environ.get(name.encode()) for name in names}
        return {name: value.decode(encoding, "surrogateescape") for name, value in raw.items() if value}
    return {name: _os.environ[name] for name in names if _os.environ.get(name)}


def temp_dir(env: dict) -> str:
    return env.get("TMPDIR" if IS_POSIX else "TEMP") or "/tmp"


def occupy_descriptors() -> None:
    """A closed 0, 1 or 2 becomes one that cannot be written: the next file opened would get its number, and the
    reply with it."""
    fd = 0
    while fd <= 2:
        try:
            fd = _os.open("/dev/null" if IS_POSIX else "nul", _os.O_RDONLY)
        except OSError:
            return  # a sandbox without devices
    _os.close(fd)


def read_event_data(fd: int) -> object:
    """The first complete JSON value on the descriptor, without waiting for its end; None when there is none.

    Some clients never close the pipe, so each time the text could be complete it is parsed; all failed
    tries together cost at most some times the data, so that a large event is not parsed over and over.
    """
    data, tried = bytearray(), 0
    try:
        if _os.isatty(fd):
            return None
        _start_watchdog()
        while len(data) < STDIN_LIMIT_BYTES:
            chunk = _os.read(fd, 1 << 16)
            if not chunk:
                break
            data += chunk
            if chunk.rstrip()[-1:] == b"}" and (tried <= 2 * len(data) or chunk[-1:] == b"\n"):
                value = _parse_or_none(data)
                if value is not None:
                    return value
                tried += len(data)
    except (NoInput, OSError):
        pass  # the time is up or the descriptor is closed: what came so far counts
    finally:
        _stop_watchdog()
    return _parse_or_none(data)


def _parse_or_none(data: bytes | bytearray) -> object:
    try:
        return parse_json(data)
    except ValueError:
        return None


def _start_watchdog() -> None:
    """Give up on a silent stdin after 2 s: by signal, or by a thread that ends the process (Windows)."""
    import _signal

    if hasattr(_signal, "setitimer"):
        _signal.signal(_signal.SIGALRM, _on_alarm)
        _signal.setitimer(_signal.ITIMER_REAL, STDIN_WAIT_S)
        return
    import _thread

    _WATCHED.append(True)
    _thread.start_new_thread(_exit_later, ())


_WATCHED: list = []  # Windows only: not empty while the thread may end the process


def _on_alarm(*_) -> None:
    raise NoInput


def _exit_later() -> None:
    time.sleep(STDIN_WAIT_S)
    if _WATCHED:
        _os._exit(0)


def _stop_watchdog() -> None:
    import _signal

    _WATCHED.clear()
    if hasattr(_signal, "setitimer"):
        _signal.setitimer(_signal.ITIMER_REAL, 0)


def parse_event(data: object, mode: str = "") -> Event | None:
    """The checked event; wrong types count as missing. None when it is not an event at all."""
    if not isinstance(data, dict):
        return None
    session_id = _text(data.get("session_id"))
    failed = data.get("hook_event_name") == "PostToolUseFailure"
    return Event(
        name=_text(data.get("hook_event_name")) or USUAL_EVENTS.get(mode, ""),
        session_id=session_id, session=safe_name(session_id),
        cwd=_text(data.get("cwd")), transcript=_text(data.get("transcript_path")), agent_id=data.get("agent_id"),
        prompt=_text(data.get("prompt")), source=_text(data.get("source")) or "startup",
        reason=_text(data.get("reason")), model=_model_name(data.get("model")),
        tool=_text(data.get("tool_name"))[:80] or "?",
        tool_input=data["tool_input"] if isinstance(data.get("tool_input"), dict) else {},
        response=data.get("error") if failed else data.get("tool_response"), failed=failed,
        tool_use_id=_text(data.get("tool_use_id")), last_message=_text(data.get("last_assistant_message")),
        stop_active=data.get("stop_hook_active") is True, permission_mode=_text(data.get("permission_mode")),
        background=data["background_tasks"] if isinstance(data.get("background_tasks"), list) else [],
    )


def _model_name(value: object) -> str:
    return _text(value.get("id")) if isinstance(value, dict) else _text(value)


def render_reply(event: Event, reply: Reply, env: dict) -> dict:
    """The client's JSON for a reply; {} when there is nothing to say."""
    out: dict = {}
    if reply.system_message:
        out["systemMessage"] = reply.system_message
    if reply.terminal:
        out["terminalSequence"] = reply.terminal
    if reply.hold and client_version(env) < FEEDBACK_SINCE:
        out.update(decision="block", reason=reply.context)
    elif reply.context:
        out["hookSpecificOutput"] = {"hookEventName": event.name, "additionalContext": reply.context}
    return out


def client_version(env: dict) -> tuple:
    """(2, 1, 325) of AI_AGENT=claude-code_2-1-325_…; () for other programs, which get the universal form."""
    name, _, rest = env.get("AI_AGENT", "").partition("_")
    fields = rest.partition("_")[0].split("-")
    return tuple(int(f) for f in fields) if name == "claude-code" and all(_is_digits(f) for f in fields) else ()


# =============================================================================
# Modes
# =============================================================================
# The argv word = the table's key = the function's name. A handler never prints,
# exits, reads the environment or the clock. run_guarded is the one fail-open
# boundary: whatever happens inside, the client sees silence and exit 0.


def inject(event: Event, ctx: Ctx) -> Reply | None:
    """SessionStart: the startup context. UserPromptSubmit: its retry, then the pending signals."""
    if event.name == "SessionStart":
        hide_bytecode()
        collect_orphans(ctx, event.session)
        expire_section(ctx)
        return start_session(ctx, event) if event.session else None
    reply = Reply()
    cancelled = event.prompt.strip() == "ctx cancel"
    reason = "user_cancelled" if cancelled else "stale_state" if is_workflow_stale(ctx, event) else ""
    if reason and cancel_workflow(ctx, event.session_id, reason):
        reply.system_message = STOP_MESSAGES[reason]
    reply.context = follow_delivery(ctx, event, may_speak=True) if event.session else ""
    signals = deliver_signals(ctx, event.session, REPLY_LIMIT_UNITS - units(reply.context)) if event.session else None
    if signals:
        reply.context = "\n\n".join(text for text in (reply.context, signals.context) if text)
        reply.system_message = reply.system_message or signals.system_message
        reply.terminal, reply.after = signals.terminal, signals.after
    return reply


def gate(event: Event, ctx: Ctx) -> Reply | None:
    """PreToolUse: the startup context's retry, then the context load gate. Never a permission decision."""
    if not event.session:
        return None
    retry = follow_delivery(ctx, event, may_speak=True)
    text = open_gate(ctx, event, REPLY_LIMIT_UNITS - units(retry) - 2)
    return Reply("\n\n".join(part for part in (retry, text) if part))


def monitor(event: Event, ctx: Ctx) -> Reply | None:
    """PostToolUse and PostToolUseFailure: count, measure, audit, and the handoff reminder."""
    if not event.session:
        return None
    path = session_file(ctx, event.session)
    known = read_json(path)
    if "settings_model" not in known:
        known["settings_model"] = settings_model(ctx)
    usage = read_usage(event.transcript)
    added = 0 if usage else estimate_tokens(event.tool, event.tool_input, event.response)
    measure = measure_context(ctx, known, usage, added)
    reminds = ctx.get("handoff.enabled") and known.get("handoff_complete") is not True
    above = measure.percent >= ctx.get("handoff.threshold") or known.get("threshold_crossed_at")
    batch = ""
    if reminds and above:
        batch = find_message(event.transcript, event.tool_use_id)
        usage = read_usage(event.transcript)  # the transcript may have caught up while we waited
        measure = measure_context(ctx, known, usage, added)
    said: list = []

    def change(state: dict) -> bool:
        state.setdefault("settings_model", known["settings_model"])
        exact = measure if usage else measure_context(ctx, state, usage, added)
        note_call(ctx, event, state, exact)
        shot = take_snapshot(ctx, state, exact)
        said.extend((plan_handoff(ctx, state, exact, batch), shot if is_audit_due(shot, state) else None))
        return True

    if not update_json(ctx, path, change):
        return None  # a crossing that cannot be remembered would be reminded of for ever
    if said[1]:
        run_auditors(ctx, event.session, said[1])
    return Reply(said[0])


def take_snapshot(ctx: Ctx, state: dict, measure: Measure) -> Snapshot:
    """What the auditors may look at after this call; the context files' age only now and then."""
    score, repeats = repetition_of(_list(state, "recent"))
    days, stale = stale_files_of(ctx) if state["tool_calls"] % AUDIT_EVERY_CALLS == 1 else (0, None)
    return Snapshot(
        now=ctx.now, percent=measure.percent, shown=measure.shown, stale_days=days, stale_files=stale,
        note=" (%s)" % measure.note if measure.note else "", score=score, repeats=repeats)


def stop_enforce(event: Event, ctx: Ctx) -> Reply | None:
    """Stop: look for the acknowledgement, then finish the phase or let go."""
    if not event.session:
        return None
    follow_delivery(ctx, event, may_speak=False)
    return enforce_stop(ctx, event)


def cleanup(event: Event, ctx: Ctx) -> Reply | None:
    """SessionEnd: the session's files go; a resumed session keeps them."""
    if not event.session or event.reason == "resume":
        return None
    state = read_json(session_file(ctx, event.session))
    delivery = state.get("startup")
    if isinstance(delivery, dict) and delivery.get("outcome") == "pending" and delivery.get("answered") is True:
        fail_delivery(ctx, delivery, "the session ended without an acknowledgement")
    remove_session(ctx, event.session)
    collect_orphans(ctx, event.session)
    return None


EVENTS = {"SessionStart": "inject", "UserPromptSubmit": "inject", "PreToolUse": "gate", "PostToolUse": "monitor",
          "PostToolUseFailure": "monitor", "Stop": "stop-enforce", "SessionEnd": "cleanup"}  # as in hooks.json
REGISTERED = (
    'python3 -I -S -c "import gc, sys; gc.disable(); sys.path.append(sys.argv.pop()); import ctx_hooks; '
    'ctx_hooks.main()" {mode} "$CLAUDE_PROJECT_DIR/.claude/hooks" || exit 0'
)
MODES = {"inject": inject, "gate": gate, "monitor": monitor, "stop-enforce": stop_enforce, "cleanup": cleanup}


def run_mode(mode: str, data: object, env: dict, now: float) -> tuple:
    """(the JSON text to print or "", what to do once it is out) for one event."""
    event = parse_event(data, mode)
    if event is None or event.agent_id:
        return "", []
    env["cwd"] = event.cwd  # for the error log, should it come to that
    ctx = find_project(env.get("CLAUDE_PROJECT_DIR", ""), event.cwd)
    if ctx is None:
        return "", []
    ctx.now, ctx.env, ctx.tmp, ctx.mode, ctx.session = now, env, temp_dir(env), mode, event.session
    if is_paused(ctx, event.session):
        return "", []
    reply = MODES[mode](event, ctx)
    if reply is None:
        return "", []
    out = render_reply(event, reply, env)
    return (format_json(out) if out else "", reply.after)


def run_hook(mode: str, fd: int, env: dict) -> None:
    """One event in, one reply out, whatever happens inside."""
    if env.get("CTX_HOOKS_DISABLE", "") in ("", "0"):
        run_guarded(mode, env, _run_hook, mode, fd)


def _run_hook(env: dict, mode: str, fd: int) -> None:
    text, after = run_mode(mode, read_event_data(fd), env, time.time())
    if text:
        write_all(1, text.encode("ascii"))
    for action in after:
        action()


def run_guarded(word: str, env: dict, work: object, *args) -> None:
    """The fail-open boundary, with the one broad except of this file."""
    try:
        occupy_descriptors()
        work(env, *args)
    except Exception as error:  # noqa: BLE001
        report_failure(word, error, env)


def report_failure(mode: str, error: Exception, env: dict) -> None:
    """One line on stderr, the traceback into the bounded log; a closed stdout is no failure of ours."""
    if isinstance(error, (BrokenPipeError, NoInput)) or (isinstance(error, OSError) and error.errno == 9):
        return
    import traceback

    line = "ctx_hooks: internal error in %s: %s: %s\n" % (mode, type(error).__name__, one_line(str(error)))
    write_stderr(line)
    ctx = find_project("", env.get("CLAUDE_PROJECT_DIR", "")) or find_project("", env.get("cwd", ""))
    if ctx:
        trace = "".join(traceback.format_tb(error.__traceback__))
        log_error(ctx, "%s %sTraceback:\n%s" % (format_iso(time.time()), line, trace))


def write_stderr(text: str) -> None:
    """Never `print`: without a stderr of its own it would print to stdout."""
    try:
        write_all(2, text.encode("utf-8", "replace"))
    except OSError:
        pass


# =============================================================================
# Doctor
# =============================================================================
# Looks at everything that can keep the hooks from working, and runs the
# registered command strings as the client would: through /bin/sh, a synthetic
# event each, in a scratch project, so that nothing of the real one is touched.
# A finding is (level, what was seen → what to do).
OK, WARN, FAIL = "ok", "warn", "FAIL"
SLOW_FACTOR, TRIAL_RUNS, TRIAL_LIMIT_S = 3.0, 3, 20


def client_home(env: dict) -> str:
    return env.get("CLAUDE_CONFIG_DIR") or env.get("HOME", "") + "/.claude"


def mode_of_command(command: str) -> str:
    """The mode that a command runs with this kit, "" for every other command."""
    words = command_words(command)
    runs = any(word.endswith("ctx_hooks.main()") or base_name(word) == "ctx_hooks.py" for word in words[1:])
    return next((word for word in words if word in MODES), "") if runs else ""


def command_words(command: str) -> list:
    """The words of a plain command that starts a Python, without variables before it and `|| exit 0` behind."""
    import shlex

    try:
        words = shlex.split(command)
    except ValueError:
        return []
    while words and "=" in words[0]:
        words.pop(0)
    words = words[:-3] if words[-3:] == ["||", "exit", "0"] else words
    plain = words and base_name(words[0].replace("\\", "/")).startswith("py")
    return words if plain and not {"&&", "||", ";", "|", "&"} & set(words) else []


def is_plain_command(command: str) -> bool:
    """Starts the kit and does nothing else. The settings may be somebody else's: what only resembles a command of
    ours is shown, never run."""
    words = command_words(command)
    rest = [word for word in words[1:] if word not in ("-I", "-S", "-E", "-s", "-B", "-P", "-u")]
    is_script = len(rest) == 2 and base_name(rest[0]) == "ctx_hooks.py"
    is_code = len(rest) == 4 and rest[0] == "-c" and '-c "%s" ' % rest[1] in REGISTERED
    shell = command.replace(rest[1], "") if is_code else command
    for known in ("${CLAUDE_PLUGIN_ROOT:-$CLAUDE_PROJECT_DIR/.claude/hooks}", "$CLAUDE_PROJECT_DIR", "|| exit 0"):
        shell = shell.replace(known, "")
    relative = bool(words) and "/" in words[0] and not is_absolute(words[0])
    return (is_script or is_code) and not relative and not set(shell) & set("$`;|&<>\n")


def find_registrations(scope: str, settings: dict) -> list:
    """Our hook entries in a settings file: scope, event, mode and command each."""
    hooks, found = table(settings, "hooks"), []
    for event in hooks:
        entries = [entry for group in _list(hooks, event) if isinstance(group, dict) for entry in _list(group, "hooks")]
        for command in [_text(entry.get("command")) for entry in entries if isinstance(entry, dict)]:
            mode = mode_of_command(command)
            found += [{"scope": scope, "event": event, "mode": mode, "command": command}] * bool(mode)
    return found


def diagnose(ctx: Ctx | None, root: str, env: dict) -> list:
    """All findings, in the order in which a person would look."""
    findings, registered, plugin = _check_kit_file(), [], False
    if env.get("CTX_HOOKS_DISABLE", "") not in ("", "0"):
        findings.append((WARN, "CTX_HOOKS_DISABLE is set: every hook is off → unset it"))
    if ctx and is_paused(ctx, ctx.session or "*"):
        findings.append((WARN, "the hooks are paused → ctx_hooks.py resume"))
    for scope, path in (("user", client_home(env) + "/settings.json"), ("project", root + "/.claude/settings.json"),
                        ("local", root + "/.claude/settings.local.json")):
        settings = load_json(path)
        if settings is None:
            findings.append((FAIL, "%s settings are not a JSON object → mend %s" % (scope, path)))
            continue
        if settings.get("disableAllHooks") is True:
            findings.append((FAIL, "disableAllHooks is set → remove it from %s, or no hook runs" % path))
        registered += find_registrations(scope, settings)
        plugin |= any("ctx-hooks" in name and on is True for name, on in table(settings, "enabledPlugins").items())
    if plugin:
        findings.append((WARN, "active both as a plugin and in the settings → keep one of the two")
                        if registered else (OK, "active as a plugin"))
    if registered:
        findings += _check_registrations(registered) + _run_registrations(root, registered, env)
    elif not plugin:
        findings.append((FAIL, "no hook of this kit is registered → run install.py, or paste the settings below"))
    findings += _check_project(ctx) if ctx else [
        (FAIL, "the context folder, or one in it, is a link that leads out: the hooks stay silent here → use real "
         "folders, or `allow_outside: true` for the context folder itself")
        if is_dir(root + "/" + DEFAULT_CONTEXT_DIR) else
        (WARN, "no context folder: the hooks stay silent here → mkdir .context, or python3 install.py --init")]
    return findings + _check_client_times(root, env)


def kit_digest() -> str:
    import hashlib

    return hashlib.sha256(read_bytes(__file__, STATE_LIMIT_BYTES) or b"").hexdigest()


def _check_kit_file() -> list:
    """The file against what install.py noted."""
    folder, digest = parent_of(__file__.replace("\\", "/")), kit_digest()
    noted = _text(read_json(folder + "/.ctx_hooks/record.json").get("kit"))
    findings = [(OK, "ctx_hooks %s, Python %s" % (VERSION, sys.version.split()[0])),
                (OK, "sha256 " + digest + (" (as installed)" if noted == digest else ""))]
    if noted not in ("", digest):
        findings.append((WARN, "the kit was edited since it was installed → install.py --force puts the release back"))
    return findings


def _check_registrations(registered: list) -> list:
    findings = []
    for event, mode in EVENTS.items():
        entries = [r for r in registered if r["event"] == event]
        if mode not in [r["mode"] for r in entries]:
            findings.append((FAIL, "%s does not run `%s` → run install.py again" % (event, mode)))
        if len({r["command"] for r in entries}) > 1:
            scopes = ", ".join(r["scope"] for r in entries)
            findings.append((WARN, "%s is registered more than once (%s) → keep one scope" % (event, scopes)))
    return findings


def _run_registrations(root: str, registered: list, env: dict) -> list:
    """Each distinct command with its event, in a scratch project that sees the real .claude."""
    import os
    import tempfile

    findings = [(FAIL, "%s: not tried, it does more than start the kit: %s → look at it, then run install.py again" % (
        r["event"], one_line(r["command"], 120))) for r in registered if not is_plain_command(r["command"])]
    commands = {(r["event"], r["command"]): r["mode"] for r in registered if is_plain_command(r["command"])}
    findings += _check_interpreters({command_words(command)[0] for _, command in commands})
    with tempfile.TemporaryDirectory(prefix="ctx-doctor-") as scratch:
        os.mkdir(scratch + "/.context")
        write_bytes(scratch + "/.context/TASKS.md", b"# Tasks\n")
        try:
            os.symlink(root + "/.claude", scratch + "/.claude")
        except OSError:
            return findings + [(WARN, "cannot make a scratch project for a trial run")]
        clean = {"PATH": os.environ.get("PATH", ""), "HOME": env.get("HOME", ""), "CLAUDE_PROJECT_DIR": scratch,
                 "TMPDIR": scratch}
        bare = [sys.executable, "-I", "-S", "-c", "pass"]
        floor_s = min(run_timed(bare, b"", scratch, clean)[0] for _ in range(TRIAL_RUNS))
        return findings + [_trial(*key, mode, clean, floor_s) for key, mode in commands.items()]


def _trial(event: str, command: str, mode: str, env: dict, floor_s: float) -> tuple:
    scratch = env["CLAUDE_PROJECT_DIR"]
    data = format_json({"session_id": "doctor", "cwd": scratch, "hook_event_name": event, "tool_name": "Read",
                        "tool_input": {}, "tool_response": {}, "prompt": "doctor", "source": "startup"}).encode()
    runs = [run_timed(["/bin/sh", "-c", command], data, scratch, env) for _ in range(TRIAL_RUNS)]
    took_s, (_, code, out, err) = min(run[0] for run in runs), runs[0]
    if code or err.strip():
        wrong = "%s: %s" % ("exits %d" % code if code else "complains", one_line(err.strip().split("\n")[-1]))
    elif out.strip() and not isinstance(_parse_or_none(out), dict):
        wrong = "prints something that is not JSON"
    else:
        return WARN if took_s > SLOW_FACTOR * floor_s else OK, "%s, %s: exit 0, %.0f ms, %.1f × a bare interpreter" % (
            event, mode, took_s * 1000, took_s / floor_s)
    return FAIL, "%s, %s %s → run install.py again" % (event, mode, wrong)


def run_timed(argv: list, data: bytes, cwd: str | None, env: dict | None, limit_s: float = TRIAL_LIMIT_S) -> tuple:
    """(seconds, exit code, stdout as bytes, stderr as text) of one run; one that hangs is ended with its children."""
    import subprocess

    start = time.perf_counter()
    try:
        child = subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=-1, cwd=cwd, env=env, start_new_session=True)
    except (OSError, ValueError) as error:
        return 0.0, 127, b"", str(error)
    try:
        out, err = child.communicate(data, timeout=limit_s)
    except subprocess.TimeoutExpired as late:
        out, err = late.output or b"", b"no end after %d s" % limit_s
    finally:
        if child.poll() is None:
            _os.killpg(child.pid, 9) if IS_POSIX else child.kill()
            child.wait()
    return time.perf_counter() - start, child.returncode, out, err.decode("utf-8", "replace")


def _check_interpreters(words: set) -> list:
    """Which Python each command starts, and whether it is new enough."""
    import shutil

    code = "import sys; print('Python %d.%d.%d' % sys.version_info[:3]); sys.exit(sys.version_info < (3, 8))"
    findings = []
    for path in sorted({shutil.which(word) or word for word in words}):
        _, status, out, err = run_timed([path, "-I", "-S", "-c", code], b"", "/", None)
        text = "interpreter %s: %s" % (path, out.decode("utf-8", "replace").strip() or one_line(err))
        findings.append((FAIL, text + " → install.py --python PATH, 3.8 or newer") if status else (OK, text))
    return findings


def _check_project(ctx: Ctx) -> list:
    """Settings, state that was set aside, the workflow, folders, the ignore list."""
    aside, errors, ignore = ctx.path("state", "aside"), ctx.path("state", "errors.log"), ctx.path(".gitignore")
    findings = [(WARN, CONFIG_NAME + " line %d, column %d: %s → the settings are in the README" % problem)
                for problem in ctx.problems]
    if list_dir(aside):
        findings.append((WARN, "%d unreadable files were set aside → look into %s" % (len(list_dir(aside)), aside)))
    if is_file(errors):
        findings.append((WARN, "internal errors were logged → see " + errors))
    state = load_json(auto_path(ctx))
    if state is None:
        findings.append((WARN, AUTO_STATE + " is not a JSON object → `auto start TASK --force` begins anew"))
    elif is_auto_active(state) and is_stale(ctx, state, safe_name(_text(state.get("session_id")))):
        findings.append((WARN, "the auto workflow has been idle for over 2 hours → `auto stop` ends it"))
    findings += [(FAIL, "%s cannot be written → check its owner and permissions" % folder)
                 for folder in (ctx.dir, ctx.path("state"), ctx.path("signals"))
                 if is_dir(folder) and not is_writable(folder)]
    ignored = (read_bytes(ignore) or b"").decode("utf-8", "replace").split()
    missing = [line for line in GITIGNORE_TEXT.split("\n")[1:-2] if line not in ignored]
    if ignored and missing:
        findings.append((WARN, "%s does not hide our runtime files → add: %s" % (ignore, " ".join(missing))))
    return findings or [(OK, "context folder %s" % ctx.dir)]


def client_transcripts(root: str, env: dict) -> list:
    """[(time of the last change, path)] of the transcripts that the client keeps of this project, oldest first."""
    folder = client_home(env) + "/projects/" + "".join(c if c.isascii() and c.isalnum() else "-" for c in root)
    infos = [(stat_of(folder + "/" + name), name) for name in list_dir(folder) if name.endswith(".jsonl")]
    return sorted((info.st_mtime, folder + "/" + name) for info, name in infos if info)


def _check_client_times(root: str, env: dict) -> list:
    """What the client itself measured for our hooks lately: `durationMs` in its transcripts."""
    times: dict = {}
    for _, path in client_transcripts(root, env)[-3:]:
        for line in lines_backward(path, 1 << 20):
            row = table(parse_row(line), "attachment") if b"durationMs" in line and b"ctx_hooks" in line else {}
            if number(row.get("durationMs"), -1) >= 0 and mode_of_command(_text(row.get("command"))):
                times.setdefault(_text(row.get("hookEvent")), []).append(row["durationMs"])
    return [(OK, "the client measured %s: median %d ms of %d" % (event, sorted(took)[len(took) // 2], len(took)))
            for event, took in sorted(times.items())]


def settings_snippet() -> str:
    """The registrations for somebody who only dropped the file into .claude/hooks/, ready to paste."""
    import json

    hooks = {event: [{"hooks": [{"type": "command", "command": REGISTERED.format(mode=mode),
                                 "timeout": 5 if event == "SessionEnd" else 10}]}] for event, mode in EVENTS.items()}
    return json.dumps({"hooks": hooks}, indent=2)


# =============================================================================
# View
# =============================================================================
# From data to text and nothing else. A line is made of (style, text) parts, cut
# to the width in cells, then painted: colour on a terminal only. Where the
# locale has no UTF-8, each of our glyphs becomes one ASCII character.
STYLES = {"bold": "1", "dim": "2", "bad": "31", "good": "32", "warn": "33"}
SPARKS = "▁▂▃▄▅▆▇█"
TO_ASCII = dict(zip(map(ord, SPARKS + "░✓●○·…→–—✗×"), "_.,-=+*#.+*-|~>--xx"))
METRIC_TARGETS = (("first attempt", 70), ("with retry", 95), ("acknowledged", 80), ("visible", 99))
NEXT_STEPS = (
    "1. see that the hooks are registered: ctx_hooks.py doctor (python3 install.py registers them)",
    "2. say in {dir}/TASKS.md what you work on (install.py --init makes a start)",
    "3. start the agent here; after its first tool call this page has something to show",
)
DECISIONS = {
    "alert:emitted": ("wrote the signal {code}: {summary}", "its level was crossed, or its cooldown is over"),
    "signals:delivered": ("told the agent {names}", "pending signals go out with the next prompt"),
    "gate:emitted": ("asked the agent to read {files}", "it was the first tool call since the start or a compaction"),
    "handoff:crossed": ("saw the context reach {percent}%", "from `handoff.threshold` on a handoff is wanted"),
    "handoff:reminded": ("asked for the handoff at {percent}%", "the handoff file is not newer than the crossing"),
    "handoff:complete": ("stopped asking for the handoff", "{path} was written after the crossing"),
    "stop:held": ("kept the agent going: phase {phase}, iteration {iteration}", "{reason}"),
    "stop:released": ("let the agent stop: phase {phase}, iteration {iteration}", "{reason}"),
    "auto:started": ("started the workflow in phase {phase}", "somebody ran `auto start`"),
    "auto:cancelled": ("ended the workflow", "{reason}"),
    "injection:attempted": ("sent the startup context, attempt {attempt}", "{type}, and no acknowledgement so far"),
    "injection:succeeded": ("stopped sending the startup context", "acknowledged at attempt {attempts}"),
    "injection:escalated": ("wrote the startup context into the fallback file", "no attempt was acknowledged"),
    "injection:failed": ("gave up on the startup context after attempt {attempts}", "{reason}"),
    "wrap:ready": ("found the program ready for the startup context", "confidence {confidence}"),
    "wrap:timeout": ("did not find the program ready and typed anyway", "waited {waitedMs} ms"),
    "wrap:ended": ("delivered nothing", "{reason}"),
    "injection:section-removed": ("took our section out of {file}", "it was acknowledged or is too old"),
}
DECISION_FIELDS = ("event", "session", "code", "summary", "names", "files", "file", "percent", "path", "phase",
                   "iteration", "reason", "attempt", "attempts", "type", "confidence", "waitedMs")
HELD_REASONS = {"held": "its completion block is missing", "advanced": "the phase before is complete, this one is next"}


class Look:
    """How to show it: the width in cells, whether to colour, whether more than ASCII arrives."""

    __slots__ = ("width", "colour", "unicode")

    def __init__(self, width: int, colour: bool = False, unicode: bool = True) -> None:
        self.width, self.colour, self.unicode = width, colour, unicode


def cells(text: str) -> int:
    """Width on a terminal: wide characters take two cells, combining marks none."""
    if text.isascii() or all(c < "\u0300" or "\u2010" <= c <= "\u25ff" or c == "✓" for c in text):
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(c) in ("Mn", "Me", "Cf") else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def fit_text(text: str, width: int) -> str:
    """The text, cut to the width with an ellipsis."""
    if cells(text) <= width:
        return text
    text = text[: max(0, width)]
    while text and cells(text) > width - 1:
        text = text[:-1]
    return text.rstrip() + "…" if width > 0 else ""


def format_line(look: Look, *parts: tuple) -> str:
    """One line of (style, text) parts."""
    out, left = [], look.width
    for style, text in parts:
        text = fit_text(text, left)
        left -= cells(text)
        text = text if look.unicode else text.translate(TO_ASCII)
        out.append("\033[%sm%s\033[0m" % (STYLES[style], text) if style and look.colour and text else text)
    return "".join(out).rstrip()


def wrap_lines(text: str, head: str, look: Look) -> list:
    """The text behind the head, wrapped instead of cut; further lines are indented below it."""
    import textwrap

    lines = textwrap.wrap(text, max(20, look.width - cells(head)), break_on_hyphens=False) or [""]
    heads = [head] + [" " * cells(head)] * (len(lines) - 1)
    return [format_line(look, ("", start + line)) for start, line in zip(heads, lines)]


def format_bar(percent: int, width: int) -> str:
    full = min(width, max(percent * width // 100, 1 if percent else 0))
    return "█" * full + "░" * (width - full)


def format_spark(values: list) -> str:
    """One glyph for each percent; eight steps from 0 to 100."""
    return "".join(SPARKS[min(max(value, 0), 99) * 8 // 100] for value in values)


def format_age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return "%d%s" % (seconds // size, unit)
    return "%ds" % max(0, seconds)


def format_since(iso: str | None, now: float) -> str:
    return format_age(now - (parse_iso(iso) or now))


def format_count(count: int) -> str:
    return "%dk" % (count // 1000) if count >= 1000 else "%d" % count


def plural(count: int, word: str) -> str:
    return "%d %s%s" % (count, word, "" if count == 1 else "s")


def level_style(percent: int) -> str:
    return "bad" if percent >= 85 else "warn" if percent >= 70 else "good"


def metric_rates(metrics: dict) -> list:
    """[(label, percent or None, target)]: rounded down, never above 100; None while there is nothing to count."""
    sent, first, after, escalated, failed = (_count(metrics.get(key)) for key in METRIC_KEYS[:5])
    decided = min(sent, first + after + escalated + failed)  # escalated and acknowledged late is one delivery
    pairs = ((first, decided), (first + after, decided), (first + after, sent), (decided - failed, decided))
    return [(label, min(100, part * 100 // whole) if whole else None, target)
            for (label, target), (part, whole) in zip(METRIC_TARGETS, pairs)]


def phase_line(state: dict, width: int = 1000) -> str:
    """`expansion ✓ init ✓ planning ● execution ○ …`, or `✓✓●○… planning` where that is too long."""
    planned = planned_phases(table(state, "config"))
    failed = state.get("phase") == "failed"
    phase = table(state, "enforcer").get("last_phase") if failed else state.get("phase")
    at = planned.index(phase) if phase in planned else len(planned) if phase == "complete" else 0
    mark = "●" if not failed else "✗" if phase in planned else "○"
    marks = (["✓"] * at + [mark] + ["○"] * len(planned))[:len(planned)]
    line = " ".join("%s %s" % pair for pair in zip(planned, marks))
    return line if len(line) <= width else "%s %s" % ("".join(marks), one_line(str(phase), 20))


def auto_word(state: dict) -> str:
    """`iteration 2/20`, or how the workflow ended."""
    if not is_auto_active(state):
        return "ended (%s)" % one_line(str(state.get("exit_reason")), 40)
    return "iteration %d/%d" % (_count(state.get("iteration")), max_iterations_of(state))


def render_status(data: dict, look: Look) -> str:
    """The page that `status` shows, from the object that `status --json` prints."""
    now, seen_at = parse_iso(data["at"]) or 0.0, data["hooks_seen_at"]
    seen = "hooks seen %s ago" % format_since(seen_at, now) if seen_at else "no hook ran yet"
    lines = [format_line(look, ("bold", "ctx_hooks " + data["version"]), ("dim", " · %s · %s" % (seen, data["root"])))]
    for pause in data["paused"]:
        left = "until `resume`" if not pause["until"] else "for " + format_age((parse_iso(pause["until"]) or now) - now)
        lines.append(format_line(look, ("warn", "paused: %s, %s" % (pause["session"][:8] or "every session", left))))
    for session in data["sessions"]:
        lines += [""] + render_session(session, look, now)
    if not seen_at:
        lines += [format_line(look, ("", step.format(dir=data["dir"]))) for step in NEXT_STEPS]
    if data["signals"]:
        lines += ["", format_line(look, ("bold", "signals"))]
    for signal in data["signals"]:
        text = "  %-9s%s old, %s left, %s  " % (signal["severity"], format_age(signal["age_s"]), format_age(
            signal["left_s"]), signal["session"][:8] or "every session")
        style = {"critical": "bad", "warning": "warn"}.get(signal["severity"], "dim")
        lines.append(format_line(look, (style, text), ("", signal["text"])))
    if data["auto"]:
        task = one_line(_text(data["auto"].get("task_description")))
        lines += ["", format_line(look, ("dim", "auto      "), ("", phase_line(data["auto"], look.width - 10))),
                  format_line(look, ("", "          " + auto_word(data["auto"])), ("dim", " · " + task))]
    if data["metrics"].get("attempted"):
        rates = ["%s %s (> %d%%)" % (label, "–" if rate is None else "%d%%" % rate, target)
                 for label, rate, target in metric_rates(data["metrics"])]
        lines += [""] + wrap_lines(" · ".join(rates + ["%d sent" % data["metrics"]["attempted"]]), "injection ", look)
    if data["problems"]:
        lines += ["", format_line(look, ("bad", "problems"))]
        lines += [part for text in data["problems"] for part in wrap_lines(text, "  ✗ ", look)]
    return "\n".join(lines)


def render_session(data: dict, look: Look, now: float) -> list:
    """The block of one session: a row for each mechanism."""
    context, history, handoff = data["context"], data["history"], data["handoff"]
    head = " · %s ago · %s · %s" % (
        format_since(data["seen_at"], now), plural(data["tool_calls"], "call"), data["model"] or "model unknown")
    rows = [("context", "dim", "not measured yet")] if not context else [
        ("context", level_style(context["percent"]), "%s %s, %s ago" % (
            format_bar(context["percent"], min(40, max(8, look.width - 54))),
            "{shown}  {tokens:,}/{window:,} {kind}".format(**context), format_since(context["at"], now)))]
    if len(history) > 1:
        spark = format_spark(history[-max(8, look.width - 24):])
        rows.append(("history", "", "%s  %d%% to %d%%" % (spark, history[0], history[-1])))
    if data["tools"]:
        tools = ["%s %s" % (name, format_count(count)) for name, count in data["tools"].items()]
        rows.append(("tools", "", " · ".join(tools)))
    reminders = ", %s in %s" % (plural(handoff["reminders"], "reminder"), format_since(handoff["since"], now))
    rows += [("handoff", {"asked": "bad", "written": "good"}.get(handoff["state"], "dim"), "%s%s: %s" % (
        handoff["state"], reminders if handoff["state"] == "asked" else "", handoff["file"])),
        ("gate", *_gate_row(**data["gate"])), ("startup", *_startup_row(data["startup"]))]
    return [format_line(look, ("bold", "session " + data["session"][:8]), ("dim", head))] + [
        format_line(look, ("dim", "  %-9s" % name), (style, text)) for name, style, text in rows]


def _gate_row(mode: str, fired: bool, files: list, read: list) -> tuple:
    missing = [name for name in files if name not in read]
    if mode == "off" or not files:
        return "dim", "switched off" if files else "no context files"
    return "good" if not missing else "warn" if fired else "dim", "%s%d of %d files read%s" % (
        "" if fired else "not asked yet, ", len(files) - len(missing), len(files),
        ", not: " + ", ".join(missing) if missing else "")


def _startup_row(startup: dict | None) -> tuple:
    if not startup:
        return "dim", "nothing to deliver"
    return {"acknowledged": "good", "failed": "bad"}.get(startup["outcome"], ""), "%s, %s, %s" % (
        startup["outcome"], plural(startup["attempts"], "attempt"),
        "in the transcript" if startup["receipt_at"] else "not seen in the transcript yet")


def render_statusline(data: dict, look: Look) -> str:
    """One line; a narrow one has no model, no bar and no tokens left."""
    wide, percent, parts = look.width >= 80, data["percent"], []
    if wide or percent is None:
        parts.append(("", data["model"]))
    if percent is not None:
        parts.append((level_style(percent), "%s%d%%" % (format_bar(percent, 10) + " " if wide else "", percent)))
        parts.append(("dim", format_count(data["left"]) + " left" if wide else ""))
    parts += [("good", data["phase"]), ("warn", data["pending"])]
    shown = [part for part in parts if part[1]] or [("dim", "ctx")]
    return format_line(look, *[part for pair in shown for part in (("dim", " · "), pair)][1:])


def render_decision(row: dict, look: Look, today: str) -> list:
    """A row of the recorder as sentences: when, which session, what, and the rule behind it."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(parse_iso(row.get("at")) or 0))
    values = {key: one_line(", ".join(map(str, v)) if isinstance(v, list) else str(v), 1000) for key, v in row.items()}
    others = ["%s %s" % pair for pair in values.items() if pair[0] not in ("at", "session", "mode", "event")]
    values = {**dict.fromkeys(DECISION_FIELDS, "?"), **values, "others": ", ".join(others)}
    values.update(max="the allowed", error="see `auto status`")
    why = HELD_REASONS.get(values["reason"]) or STOP_MESSAGES.get(values["reason"], "{reason}")
    values["reason"] = why.replace("ctx auto: ", "").format_map(values)
    what, rule = DECISIONS.get(values["event"], ("{event}", "{others}"))
    head = "%s  %-8s  " % (stamp[11:] if stamp.startswith(today) else stamp, values["session"][:8])
    return wrap_lines(what.format_map(values), head, look) + wrap_lines(
        rule.format_map(values), " " * len(head) + "→ ", look)


def render_replay(result: dict, index: int, look: Look) -> list:
    """One replayed event: what it was, how long it took, and what the kit said."""
    reply = result["reply"] if isinstance(result["reply"], dict) else {}
    texts = [table(reply, "hookSpecificOutput").get("additionalContext"), reply.get("reason"),
             reply.get("systemMessage"), "✗ " + result["error"] if result["error"] else ""]
    said = [line for text in texts if _text(text) for line in text.split("\n")]
    took = "%.0f ms%s" % (result["ms"], "" if said else ", silent")
    lines = [format_line(look, ("bold", "%3d  %-20s" % (index, one_line(result["event"], 20))), (
        "dim", "%-14s%s" % (result["mode"], took if result["mode"] else "not an event of this kit")))]
    return lines + [part for line in said for part in wrap_lines(line, "     ", look)]


# =============================================================================
# Readiness
# =============================================================================
# Is a program in a terminal waiting for input? Pure functions from what it
# printed and what the kernel says to a confidence; ready above READY_ABOVE. A
# guess, so never load-bearing: whoever asks has a time limit of its own.
READY_ABOVE = 0.7
READY_AGREE = 0.1  # added when several kinds of evidence agree
READY_TERMINAL, READY_PATTERN, READY_NATURAL = 0.95, 0.9, 0.6
NATURAL_AFTER_MS = 200
SILENCE_AFTER_MS, SILENCE_FULL_MS, SILENCE_MOST = 500, 3000, 0.8
PATTERN_LINES = 6  # a prompt may have a frame and hints below it
INPUT_WAITS = frozenset((
    "wait_woken", "poll_schedule_timeout", "do_select", "n_tty_read", "unix_stream_read_generic", "pipe_read",
    "do_poll", "ep_poll", "do_epoll_wait"))
CHILD_WAIT, CHILD_DEPTH = "do_wait", 8
PROMPT_ENDS = (">", "$", "❯")  # `>>>` ends with the first
OPEN_ENDS = tuple(",-–—([{")
SENTENCE_ENDS, SENTENCE_CLOSERS = (".", "!", "?", "。"), "\"')]*_`”’»"
PASTE_MODE = "2004"
EDITOR_MODES = frozenset(("47", "1047", "1049"))  # the alternate screen
_ESCAPE = r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|\[[0-?]*\Z|[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[ -/]*[0-~]|)"


class Glance:
    """What is known about a program at one moment; `process` is None where the kernel does not tell."""

    __slots__ = ("process", "silent_ms", "text", "patterns", "editor", "typing", "paste", "ended")

    def __init__(self, **fields) -> None:
        for name in self.__slots__:
            setattr(self, name, fields.get(name))


def readiness(look: Glance) -> float:
    """The strongest evidence, and a little more when another kind agrees."""
    paused = look.silent_ms >= NATURAL_AFTER_MS
    lines = [line for line in look.text.split("\n") if line.strip()][-PATTERN_LINES:]
    prompt = READY_PATTERN * (paused and any(_matches(known, line) for known in look.patterns for line in lines))
    if look.process == 0.0 or (look.editor and not prompt):
        return 0.0
    natural = READY_NATURAL * (paused and is_natural_end(look.text))
    silence = min(SILENCE_MOST, look.silent_ms / SILENCE_FULL_MS) if look.silent_ms >= SILENCE_AFTER_MS else 0.0
    scores = [score for score in (look.process, silence, natural, prompt) if score]
    best = max(scores, default=0.0)
    return min(1.0, round(best + READY_AGREE, 3)) if len(scores) > 1 else best


def is_natural_end(text: str) -> bool:
    """Does the output end like something finished: a sentence, a closed fence, a blank line, a prompt?"""
    body = text.rstrip()
    line = body.rpartition("\n")[2].strip()
    fences = sum(part.lstrip().startswith("```") for part in body.split("\n"))
    if not line or fences % 2 or line.endswith(OPEN_ENDS):
        return False
    if line.startswith("```") or text.count("\n", len(body)) >= 2 or line.endswith(PROMPT_ENDS):
        return True
    bare = line.rstrip(SENTENCE_CLOSERS)
    return bare.endswith(SENTENCE_ENDS) and not bare.endswith("..")  # "Loading..." goes on


def process_confidence(stat: str, wchan: str, links: list, tty: str) -> float | None:
    """0.0 while it works, None where a wait for the network or a child looks the same; `links`: its open files."""
    state = stat.rpartition(")")[2].strip()[:1]  # the name before it may hold blanks and brackets
    if state != "S":
        return 0.0 if state else None
    # What it waits for is not visible. A pipe whose two ends are in the same process wakes only itself.
    others = [x for x in links if x.startswith("socket:") or (x.startswith("pipe:") and links.count(x) == 1)]
    is_certain = wchan in INPUT_WAITS and not others and (tty in links or "/dev/tty" in links)
    return READY_TERMINAL if is_certain else None


def read_process(master: int, tty: str) -> float | None:
    """The confidence from /proc for the process that has the terminal; None where there is no /proc."""
    try:
        pid = _os.tcgetpgrp(master)
        for _ in range(CHILD_DEPTH):  # `sh -c agent` sleeps for its child
            wchan = _read_proc(pid, "wchan").partition(".")[0]  # poll_schedule_timeout.constprop.0
            children = _read_proc(pid, f"task/{pid}/children").split() if wchan == CHILD_WAIT else []
            if not children:
                break
            pid = int(children[-1])
        links = [_os.readlink(f"/proc/{pid}/fd/{fd}") for fd in list_dir(f"/proc/{pid}/fd")]
    except OSError:
        return None  # something closed or ended meanwhile: the next look will tell
    return process_confidence(_read_proc(pid, "stat"), wchan, links, tty)


def _read_proc(pid: int, name: str) -> str:
    return (read_bytes(f"/proc/{pid}/{name}") or b"").decode("utf-8", "replace")


def strip_escapes(text: str) -> str:
    """Terminal output as text: moves to the right are blanks, other moves and CR are line ends, the rest goes."""
    import re

    def shown(match: object) -> str:
        if match[2] == "C":
            return " " * min(int(match[1]) if match[1].isdigit() else 1, 80)
        return "\n" if match[2] and match[2] in "ABEFGHdf" else ""

    text = re.sub(r"\r*\n|\r", "\n", re.sub(_ESCAPE, shown, text))
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text)


def track_modes(modes: frozenset, output: str) -> frozenset:
    """The private terminal modes that are on after this output (2004: paste is asked for; 1049: an editor)."""
    import re

    for numbers, switch in re.findall(r"\x1b\[\?([0-9;]+)([hl])", output):
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
WRAP_POLL_S, WRAP_SETTLE_S, WRAP_TIMEOUT_S, WRAP_ACK_S = 0.2, 0.5, 30.0, 5.0
WRAP_ENTER_S = 0.3  # programs take an Enter that arrives with a paste as part of it
WRAP_BUFFER_BYTES, WRAP_READ_BYTES, WRAP_DRAIN_READS = 64 * 1024, 16 * 1024, 256
WRAP_MODE_BYTES = 32  # a mode switch may be cut by the end of a read
WRAP_LINE_BYTES = 4000 if sys.platform.startswith("linux") else 1000  # a cooked terminal drops a longer line's rest
WRAP_LINE_TAIL = 120  # of a line that is too long, the end with the request stays
WRAP_LEFT_OUT = " [… left out: the terminal takes no longer line …] "
WRAP_ENDED, WRAP_NO_ANSWER = "the program ended", "no acknowledgement"
WRAP_SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
WRAP_SIZE = b"".join(n.to_bytes(2, sys.byteorder) for n in (24, 80, 0, 0))  # where nobody has a terminal
HANGUP = 1
ECHO_RUN = 24  # letters: more than an acknowledgement has, less than our request around it
LINE_DONE = "\r\n\x03\x04\x15"  # Enter, ^C, ^D, ^U: nothing half-typed is left

# Agent -> its prompt, and how an answer of it that acknowledges may begin. "" is any other agent.
AGENTS = {
    "claude": (r"^\s*[│|]?\s*[>❯](\s|$)", r"(?m)^\s*[⏺●]\s*ACK\b"),
    "codex": (r"^\s*[$›▌>](\s|$)", r"(?m)^\s*•\s*ACK\b"),
    "gemini": (r"^\s*[│|]?\s*[>❯$*](\s|$)|Type your message", r"(?m)^\s*✦\s*ACK\b"),
    "aider": (r"^[\w ]*>{1,3}\s*$", r"(?m)^ACK\b"),
    "": ("", r"ACK:\s*context received"),
}


def run_wrap(delivery: Delivery, argv: list) -> int:
    """Run the command in a pseudo-terminal and make the delivery. Returns the command's exit code."""
    import signal
    import termios
    import tty

    occupy_descriptors()
    saved = termios.tcgetattr(0) if _os.isatty(0) else None
    run = _Run(delivery, argv, saved)

    def fit(*_: object) -> None:
        if saved:
            tty.setraw(0, termios.TCSADRAIN)  # keys typed ahead stay
        _copy_size(run.master)

    for name in WRAP_SIGNALS:
        signal.signal(getattr(signal, name), run.forward)
    for number in (signal.SIGWINCH, signal.SIGCONT):
        signal.signal(number, fit)
    try:
        fit()
        return run.pump()
    finally:
        if saved:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)


def plan_keys(text: str, paste: bool) -> bytes:
    """What to type for a text, without the Enter. Outside a paste a line end would submit half of it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ").encode("utf-8", "replace").decode()
    text = "".join(c for c in text if c == "\n" or c.isprintable()).strip()  # nothing else could be a key
    if paste:
        return b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"
    line, gap = " ".join(part.strip() for part in text.split("\n") if part.strip()).encode(), WRAP_LEFT_OUT.encode()
    if len(line) > WRAP_LINE_BYTES:
        line = line[:WRAP_LINE_BYTES - WRAP_LINE_TAIL - len(gap)] + gap + line[-WRAP_LINE_TAIL:]
    return line.decode("utf-8", "ignore").encode()


def is_typing(before: bool, keys: bytes) -> bool:
    """Has the person a half-typed line? What the terminal itself reports arrives as escape sequences."""
    import re

    shown = re.sub(_ESCAPE, "", keys.decode("utf-8", "replace"))
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
    """What to deliver, how, and whom to tell. waiting -> enter -> listening -> waiting …, or done."""

    text = ""  # framed, asks for the acknowledgement
    is_ack = staticmethod(lambda text: False)
    on_event = staticmethod(lambda name, **fields: None)
    escalate = staticmethod(lambda: "")  # writes the file; the notice to type, "" when it failed
    backoffs_s, max_attempts, fallback_after = (1, 2, 5, 10, 30), 5, 3
    ready_patterns, timeout_s, ack_s = (), WRAP_TIMEOUT_S, WRAP_ACK_S

    def __init__(self, now: float, **fields) -> None:
        for name, value in fields.items():
            setattr(self, name, value)
        self.state, self.since = "waiting" if self.text.strip() else "done", now
        self.first_at, self.ready_at, self.attempts, self.notice, self.may_escalate = 0.0, None, 0, "", True

    def step(self, now: float, look: Glance) -> bytes:
        """The keys to type now."""
        if self.state in ("waiting", "listening") and self.acknowledges(look.text):
            self._end("injection:succeeded", durationMs=int((now - self.first_at) * 1000))
        elif look.ended and self.state != "done":
            self._end("injection:failed" if self.attempts and not self.notice else "wrap:ended", reason=WRAP_ENDED)
        elif self.state == "waiting" and now >= self.since:
            return self._wait(now, look)
        elif self.state == "enter" and now - self.since >= WRAP_ENTER_S:
            self.state, self.since = "done" if self.notice else "listening", now
            return b"\r"
        elif self.state == "listening" and now - self.since >= self.ack_s:
            self._climb(now)
        return b""

    def acknowledges(self, output: str) -> bool:
        """Is there an acknowledgement in the output since the last attempt that is not our own request?"""
        said = without_echo(output, self.text) if self.attempts else ""
        return self.attempts > 0 and (self.is_ack(said) or self.is_ack(" ".join(said.split())))

    def _wait(self, now: float, look: Glance) -> bytes:
        confidence, waited_s = readiness(look), now - self.since
        is_ready = confidence > READY_ABOVE and not look.typing  # a person's half-typed line is theirs
        if not is_ready or self.ready_at is None or look.silent_ms < (now - self.ready_at) * 1000:
            self.ready_at = now if is_ready else None
        is_settled = is_ready and now - self.ready_at >= WRAP_SETTLE_S
        if not is_settled and (look.typing or waited_s < self.timeout_s):
            return b""
        name = "wrap:ready" if is_settled else "wrap:timeout"
        self.on_event(name, confidence=confidence, waitedMs=int(waited_s * 1000))
        self.state, self.since = "enter", now
        if not self.notice:
            self.attempts, self.first_at = self.attempts + 1, self.first_at or now
            self.on_event("injection:attempted", attempt=self.attempts, type="wrap")
        return plan_keys(self.notice or self.text, look.paste)

    def _climb(self, now: float) -> None:
        """No answer. The next rung: the text again after its backoff, the file with its notice, or the end."""
        waits = self.backoffs_s or (0,)
        wait_s = waits[min(self.attempts, len(waits)) - 1]
        if self.may_escalate and self.attempts >= min(self.fallback_after, self.max_attempts):
            self.may_escalate, self.notice = False, self.escalate()
        if self.notice:
            wait_s = 0
            self.on_event("injection:escalated", escalationType="file")
        elif self.attempts >= self.max_attempts:
            self._end("injection:failed", reason=WRAP_NO_ANSWER)
            return
        self.state, self.since, self.ready_at = "waiting", now + wait_s, None

    def _end(self, name: str, **fields) -> None:
        self.state = "done"
        self.on_event(name, attempts=self.attempts, **fields)


class _Run:
    """The pseudo-terminal, the program in it, the end of its output, and the keys that wait to be taken by it."""

    def __init__(self, delivery: Delivery, argv: list, saved: list | None) -> None:
        import fcntl
        import subprocess
        import termios

        self.delivery, self.is_person, self.has_input, self.typing = delivery, saved is not None, True, False
        self.output, self.modes, self.queue, self.heard_at, self.ticked_at = b"", frozenset(), b"", delivery.since, 0.0
        self.master, slave = _os.openpty()
        self.tty = _os.ttyname(slave)
        if saved:
            termios.tcsetattr(slave, termios.TCSANOW, saved)
        _copy_size(slave)
        self.process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # noqa: PLW1509
        _os.close(slave)
        _os.set_blocking(self.master, False)

    def pump(self) -> int:
        """Pass everything through until the program is gone."""
        import select

        while self.process.poll() is None:
            readers, writers = [self.master] + [0] * self._takes_keys(), [self.master] * bool(self.queue)
            ready, writable, _ = select.select(readers, writers, [], WRAP_POLL_S)
            if 0 in ready:
                self._read_keys()
            if writable:
                self._write_keys()
            if self.master in ready and not self._read_output():
                break  # it has closed the terminal
            self._tick()
        code = self.process.wait()
        for _ in range(WRAP_DRAIN_READS):
            if not self._read_output():
                break
        self.delivery.step(time.monotonic(), self._look(ended=True))
        return code if code >= 0 else 128 - code

    def forward(self, number: int, _: object = None) -> None:
        try:
            _os.killpg(self.process.pid, number)
        except OSError:
            pass  # gone already

    def _takes_keys(self) -> bool:
        """Nobody's keys come between the context and its Enter; a pipe's come after it."""
        is_held = self.delivery.state == "enter" or (
            self.delivery.state == "waiting" and not self.delivery.attempts and not self.is_person)
        return self.has_input and not is_held and len(self.queue) < WRAP_READ_BYTES

    def _read_keys(self) -> None:
        try:
            keys = _os.read(0, WRAP_READ_BYTES)
        except OSError:
            keys = b""
        self.has_input, self.queue = bool(keys), self.queue + keys
        self.typing = self.is_person and self.has_input and is_typing(self.typing, keys)

    def _write_keys(self) -> None:
        try:
            self.queue = self.queue[_os.write(self.master, self.queue):]
        except OSError:
            pass  # full for now; a terminal that is gone ends the reading

    def _read_output(self) -> bool:
        """False when there is nothing (more): Linux says EIO once the program's side is closed."""
        try:
            data = _os.read(self.master, WRAP_READ_BYTES)
        except OSError:
            return False
        self.modes = track_modes(self.modes, (self.output[-WRAP_MODE_BYTES:] + data).decode("latin-1"))
        self.output, self.heard_at = (self.output + data)[-WRAP_BUFFER_BYTES:], time.monotonic()
        try:
            write_all(1, data)
        except OSError:
            self.forward(HANGUP)  # as a terminal does that goes away
        return bool(data)

    def _tick(self) -> None:
        now, is_over = time.monotonic(), self.delivery.state == "done"
        if now - self.ticked_at < WRAP_POLL_S or (is_over and self.has_input):
            return
        self.ticked_at, look = now, self._look()
        if is_over and not self.queue and readiness(look) > READY_ABOVE:
            self.queue = b"\x04"  # ^D, at each read: a terminal's end of input does not last as a pipe's does
        keys = self.delivery.step(now, look)
        self.queue += keys
        if keys and self.delivery.state == "enter":
            self.output = b""  # an answer comes after the attempt; the echo has to stay whole

    def _look(self, ended: bool = False) -> Glance:
        return Glance(
            process=read_process(self.master, self.tty), silent_ms=(time.monotonic() - self.heard_at) * 1000,
            text=strip_escapes(self.output.decode("utf-8", "replace")), patterns=self.delivery.ready_patterns,
            editor=EDITOR_MODES & self.modes, paste=PASTE_MODE in self.modes, typing=self.typing, ended=ended)


def _copy_size(fd: int) -> None:
    """Give a terminal the size of the person's."""
    import fcntl
    import termios

    own = next((n for n in (0, 1, 2) if _os.isatty(n)), None)
    size = WRAP_SIZE if own is None else fcntl.ioctl(own, termios.TIOCGWINSZ, WRAP_SIZE)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, size)


# =============================================================================
# Commands
# =============================================================================
# What people run. Failures are `error: what` and `hint: what to do`, exit 1;
# wrong usage of a known command exits 2. Heavy imports are fine here. A command
# returns its exit code, None for 0.
VIEW_NAMES = ("NO_COLOR", "COLUMNS", "TERM", "LC_ALL", "LC_CTYPE", "LANG")
PAGE_WIDTH = 100  # of a pipe without COLUMNS
LIVE_S, UNSEEN_S = 12 * 3600, 2 * 3600  # silent hooks leave a trace once an hour
WATCH_EVERY_S, WRAPPED_WAIT_S, HANDED_AGAIN_S = 2.0, 2.0, 600
NOT_SESSIONS = ("pause.json", "fallback.json")
JSON = ("--json", {"action": "store_true", "help": "as JSON"})
SESSION = ("--session", {"default": "", "metavar": "ID", "help": "only this one; its first letters are enough"})


class CommandError(Exception):
    """A sentence for the person and what to do about it."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


def people_ctx(needed: bool = True) -> Ctx | None:
    """The project that the person stands in; without one None, or an error when it is needed."""
    try:
        cwd = _os.getcwd()
    except OSError:
        raise CommandError("the current folder does not exist any more", "cd into your project") from None
    ctx, env = find_project("", cwd.replace("\\", "/") if not IS_POSIX else cwd), read_environment()
    if ctx:
        ctx.now, ctx.env, ctx.tmp, ctx.mode = time.time(), env, temp_dir(env), "command"
        ctx.session = safe_name(env.get("CLAUDE_CODE_SESSION_ID", ""))
    elif needed and is_dir(join_path(cwd, DEFAULT_CONTEXT_DIR)):
        raise CommandError("%s is not used: it is or holds a link that leads out" % DEFAULT_CONTEXT_DIR,
                           "ls -l %s; use folders of your own in the project" % DEFAULT_CONTEXT_DIR)
    elif needed:
        raise CommandError("no %s folder here or in a parent folder" % DEFAULT_CONTEXT_DIR,
                           "mkdir %s (or python3 install.py --init), then try again" % DEFAULT_CONTEXT_DIR)
    return ctx


def command_parser(word: str, *options: tuple):
    """An argparse parser whose errors look like all others here; an option is (name, what add_argument takes)."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:
            self.exit(2, "error: %s\nhint: see `ctx_hooks.py %s --help`\n" % (message, word))

    row = next(row for row in COMMANDS if row[0] == word)
    parser = Parser(prog="ctx_hooks.py " + word, description=row[2], epilog="example: ctx_hooks.py " + row[3],
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, settings in options:
        parser.add_argument(name, **settings)
    return parser


def parse_duration(text: str) -> float:
    """Seconds of `90`, `90s`, `30m`, `2h`, `1d`."""
    scale = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:].lower())
    digits = text[:-1] if scale else text
    if not _is_digits(digits) or not int(digits):
        raise CommandError("not a duration: %s" % one_line(text, 40), "use a number with s, m, h or d, such as 30m")
    return float(int(digits) * (scale or 1))


def read_look(bar: bool = False) -> Look:
    """Width, colour and glyphs by the usual variables; a pipe gets plain text, but the client paints its bar."""
    env = read_environment(VIEW_NAMES)
    width = int(env["COLUMNS"]) if _is_digits(env.get("COLUMNS", "")) else 0
    terminal = _os.isatty(1)
    if not width:
        width = _os.get_terminal_size(1).columns if terminal else PAGE_WIDTH
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    colour = (bar or terminal) and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    return Look(max(20, width), colour, not IS_POSIX or "utf" in locale.lower())


def list_sessions(ctx: Ctx) -> list:
    """[(session, time of its last change)], newest first."""
    names = [n for n in list_dir(ctx.path("state")) if n.endswith(".json") and n not in NOT_SESSIONS]
    infos = [(name[:-5], stat_of(ctx.path("state", name))) for name in names]
    return sorted([(name, info.st_mtime) for name, info in infos if info], key=lambda pair: -pair[1])


def find_session(ctx: Ctx, text: str, known_only: bool = True) -> str:
    """The session that an id or its first letters name; without one that of the environment, or ""."""
    names = [name for name, _ in list_sessions(ctx)]
    found = [name for name in names if name.startswith(text.lower())]
    if not text or safe_name(text) in names or not (found or known_only):
        return safe_name(text) or ctx.session
    if len(found) != 1:
        raise CommandError("%s session %s here" % ("more than one" if found else "no", one_line(text, 40)),
                           "known: " + (", ".join(one_line(n, 40) for n in (found or names)[:5]) or "none yet"))
    return found[0]


def cannot_write(path: str) -> CommandError:
    return CommandError("cannot write %s" % path, "check the folder's owner and permissions, or try again")


def signal_command(args: list) -> int | None:
    """Write one signal by hand, from CI, cron, a git hook or another agent."""
    parser = command_parser(
        "signal", ("summary", {"help": "what is wrong, a fact; - reads summary and action from stdin"}),
        ("--action", {"default": "", "help": "what to do about it"}),
        ("--severity", {"choices": SEVERITIES, "default": "warning"}),
        ("--code", {"default": "", "help": "a short code for machines"}),
        ("--auditor", {"default": "external", "help": "who says it"}),
        ("--name", {"default": "", "help": "file name; the same name replaces the signal before"}),
        ("--ttl", {"type": int, "default": DEFAULT_TTL_S, "metavar": "SECONDS", "help": "how long it is worth saying"}))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--session", default="", metavar="ID", help="for this session only")
    where.add_argument("--global", dest="everyone", action="store_true", help="for every session of the project")
    given = parser.parse_args(args)
    ctx, summary = people_ctx(), given.summary
    if summary == "-":
        summary = read_fd(0, SIGNAL_LIMIT_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    if not clean_text(summary).strip():
        raise CommandError("the summary is empty", "say in one line what is wrong")
    if not 1 <= given.ttl <= TTL_LIMIT_S:
        raise CommandError("--ttl must be between 1 and %d seconds" % TTL_LIMIT_S, "leave it out for 300")
    body = summary.strip() + ("\n→ " + given.action.strip() if given.action.strip() else "")
    name = given.name or "%s-%x" % (safe_name(given.auditor), time.time_ns() // 1000)
    session = "" if given.everyone else find_session(ctx, given.session, known_only=False)
    path = write_signal(ctx, session, Signal(name=name, severity=given.severity, generated_at=ctx.now, body=body,
                                             ttl_s=given.ttl, auditor=given.auditor, code=given.code))
    if not path:
        raise cannot_write(ctx.path("signals"))
    print(path)


def auto_command(args: list) -> int | None:
    """Start, show or stop the auto workflow."""
    parser = command_parser("auto")
    actions = parser.add_subparsers(dest="action", metavar="start|status|stop", required=True)
    start = actions.add_parser("start", help="begin a workflow", description="Begin a workflow for a task.",
                               epilog='example: ctx_hooks.py auto start "Add a login page" --skip-reflect')
    start.add_argument("task", help="what is to be done")
    start.add_argument("--max-iterations", type=int, default=MAX_ITERATIONS, metavar="N", help="stops per phase, 1–50")
    for flag, names in SKIPS.items():
        start.add_argument("--" + flag.replace("_", "-"), action="store_true", help="leave out " + ", ".join(names))
    start.add_argument("--phase", choices=PHASE_NAMES, help="begin with this phase")
    start.add_argument("--session", default="", metavar="ID", help="bind to this session; else to the first that stops")
    start.add_argument("--force", action="store_true", help="replace an active workflow")
    show = actions.add_parser("status", help="show the workflow", description="Show the workflow.",
                              epilog="example: ctx_hooks.py auto status --json")
    show.add_argument("--json", action="store_true", help="the state as JSON")
    actions.add_parser("stop", help="end the workflow", description="End the workflow; the agent may stop at once.",
                       epilog="example: ctx_hooks.py auto stop")
    given = parser.parse_args(args)
    ctx = people_ctx()
    if given.action == "start":
        print(_start_workflow(ctx, given))
    elif given.action == "status":
        print(_show_workflow(ctx, given.json))
    else:
        print("cancelled" if cancel_workflow(ctx, "") else "no workflow is active")


def _start_workflow(ctx: Ctx, given) -> str:
    if not 1 <= given.max_iterations <= ITERATIONS_LIMIT:
        raise CommandError("--max-iterations must be between 1 and %d" % ITERATIONS_LIMIT, "leave it out for 20")
    if not given.task.strip():
        raise CommandError("the task is empty", "say in a sentence what is to be done")
    path, config = auto_path(ctx), {flag: getattr(given, flag) for flag in SKIPS}
    if given.phase and given.phase not in planned_phases(config):
        raise CommandError("phase %s is skipped" % given.phase, "leave out --phase or the --skip option")
    ctx.session = find_session(ctx, given.session, known_only=False)
    bound = ctx.session if given.session and ctx.session.startswith(given.session.lower()) else given.session
    state = {
        "schema_version": "2.0", "active": True, "phase": given.phase or planned_phases(config)[0], "iteration": 0,
        "max_iterations": given.max_iterations, "started_at": format_iso(ctx.now), "completed_at": None,
        "task_description": given.task, "config": config, "exit_reason": None, "last_error": None,
        "session_id": bound or ctx.env.get("CLAUDE_CODE_SESSION_ID") or None,
        "signals": {"last_checked": None, "detected_signals": []},
    }
    with Lock(ctx, lock_path(ctx, path)) as lock:
        old = load_json(path)
        if old is None and not given.force:
            raise CommandError("%s is not readable as JSON" % AUTO_STATE, "look at it, then start with --force")
        if is_auto_active(old or {}) and not given.force:
            raise CommandError("a workflow is active already", "`auto status` shows it; --force replaces it")
        try:
            _os.mkdir(parent_of(path), 0o700)
            write_bytes(parent_of(path) + "/.gitignore", b"auto-state.json\n.gitignore\n")
        except OSError:
            pass  # it is there, or the file cannot be written either
        if lock.busy or not write_bytes(path, format_json(state).encode() + b"\n"):
            raise cannot_write(AUTO_STATE)
    record(ctx, "auto:started", phase=state["phase"], bound=bool(state["session_id"]))
    binds = "" if state["session_id"] else "; it binds to the first session of this project that stops"
    return "started in phase %s%s\nto get out: ctx_hooks.py auto stop, or type `ctx cancel` in the session" % (
        state["phase"], binds)


def _show_workflow(ctx: Ctx, as_json: bool) -> str:
    state = load_json(auto_path(ctx))
    if state is None:
        raise CommandError("%s is not readable as JSON" % AUTO_STATE, "`auto start TASK --force` begins anew")
    if as_json or not state:
        return format_json(state) if as_json else "no workflow; begin one with: ctx_hooks.py auto start TASK"
    session = one_line(_text(state.get("session_id")), 40) or "not bound yet"
    error = one_line(_text(table(state, "last_error").get("message")))
    look = Look(read_look().width)
    lines = [phase_line(state, look.width), "%s, session %s" % (auto_word(state), session),
             "task: " + one_line(_text(state.get("task_description")))] + ["last error: " + error] * bool(error)
    return "\n".join(part for line in lines for part in wrap_lines(line, "", look))


def pause_command(args: list) -> int | None:
    """Silence the hooks: of one session, or of all when none is known."""
    how_long = ("--for", {"dest": "duration", "metavar": "30m", "help": "how long; without it until `resume`"})
    given = command_parser("pause", SESSION, how_long).parse_args(args)
    ctx = people_ctx()
    session = find_session(ctx, given.session, known_only=False)
    until = format_iso(ctx.now + parse_duration(given.duration)) if given.duration else None
    _edit_pauses(ctx, lambda pauses: pauses.update({session or "*": until}))
    print("paused %s until %s" % (session or "every session", until or "`resume`"))


def resume_command(args: list) -> int | None:
    """End a pause: of one session, or every pause when none is known."""
    given = command_parser("resume", SESSION).parse_args(args)
    ctx = people_ctx()
    session = find_session(ctx, given.session, known_only=False)
    keys = (session, "*")
    _edit_pauses(ctx, lambda pauses: [pauses.pop(key, None) for key in keys] if session else pauses.clear())
    print("resumed %s" % (session or "every session"))


def _edit_pauses(ctx: Ctx, edit: object) -> None:
    path = ctx.path("state", "pause.json")
    if not update_json(ctx, path, lambda pauses: edit(pauses) or True):
        raise cannot_write(path)


def session_data(ctx: Ctx, session: str, seen_at: float) -> dict:
    """What is known about one session, checked: its state file may hold anything."""
    state = read_json(session_file(ctx, session))
    context, startup = last_measure(ctx, session, state), table(state, "startup")
    tools = {one_line(name, 40): _count(tokens) for name, tokens in table(state, "breakdown").items()}
    crossed = _text(state.get("threshold_crossed_at")) or None
    written = state.get("handoff_complete") is True
    return {
        "session": session, "seen_at": format_iso(seen_at), "tool_calls": _count(state.get("tool_calls")),
        "context": context, "model": context["model"] if context else one_line(best_model(state, ""), 60),
        "history": [int(number(value)) for value in _list(state, "history")],
        "tools": dict(sorted(tools.items(), key=lambda pair: -pair[1])[:5]),
        "handoff": {
            "state": "off" if not ctx.get("handoff.enabled") else "written" if written else "asked" if crossed
            else "not due", "file": ctx.get("handoff.file"), "since": crossed,
            "reminders": _count(state.get("reminders"))},
        "gate": {"mode": ctx.get("gate.mode"), "fired": has_marker(ctx, session),
                 "files": [name for name, _ in gate_files(ctx)],
                 "read": [name for name in _list(state, "files_read") if isinstance(name, str)]},
        "startup": {"outcome": one_line(_text(startup.get("outcome")), 20) or "unknown",
                    "attempts": _count(startup.get("attempts")), "receipt_at": _text(startup.get("receipt_at")) or None,
                    "acked_at": _text(startup.get("acked_at")) or None} if startup else None,
    }


def last_measure(ctx: Ctx, session: str, state: dict) -> dict | None:
    """The newer of what the monitor measured at the last tool call and what the status line was told."""
    handed = read_json(ctx.path("state", session + ".statusline"))
    keys = ("estimated_tokens", "window", "measured_model", "last_call")
    exact = state.get("exact") is True
    if _count(handed.get("used")) and _text(handed.get("at")) >= _text(state.get("last_call")):
        state, keys, exact = handed, ("used", "window", "model", "at"), True
    tokens, window = _count(state.get(keys[0])), _count(state.get(keys[1]))
    model, at = _text(state.get(keys[2])), _text(state.get(keys[3]))
    if not tokens or not window:
        return None
    measure = make_measure(tokens, window, exact, model)
    return {"session": session, "percent": measure.percent, "shown": measure.shown, "tokens": tokens,
            "window": window, "exact": exact, "kind": "exact" if exact else "estimated", "model": one_line(model, 60),
            "at": at}


def signals_data(ctx: Ctx, only: str) -> list:
    """Every pending signal, also those that are not injected, critical first, then oldest first."""
    sessions = [only] if only else list_dir(ctx.path("signals", "sessions"))
    found = [("", s) for s in read_signals(ctx, "")]
    found += [(name, s) for name in sessions for s in read_signals(ctx, name) if s.scope == "session"]
    found.sort(key=lambda pair: (-SEVERITIES.index(pair[1].severity), pair[1].generated_at))
    return [{"scope": s.scope, "session": name, "name": s.name, "severity": s.severity, "auditor": s.auditor,
             "code": s.code, "age_s": int(max(0, ctx.now - s.generated_at)), "text": one_line(s.body, 400),
             "left_s": int(s.generated_at + s.ttl_s - ctx.now)} for name, s in found]


def status_data(ctx: Ctx, only: str) -> dict:
    """Everything that `status` shows, as one object."""
    known = list_sessions(ctx)
    shown = [pair for pair in known if (pair[0] == only if only else ctx.now - pair[1] < LIVE_S)]
    traces = [stat_of(ctx.path("monitor-state.json")), stat_of(ctx.path("state", "collected"))]
    seen_at = max([at for _, at in known] + [info.st_mtime for info in traces if info] + [0.0])
    return {
        "version": VERSION, "at": format_iso(ctx.now), "root": ctx.root, "dir": shown_path(ctx, ctx.dir, ""),
        "hooks_seen_at": format_iso(seen_at) if seen_at else None,
        "paused": [{"session": name.strip("*"), "until": until} for name, until
                   in read_json(ctx.path("state", "pause.json")).items() if is_open_pause(until, ctx.now)],
        "sessions": [session_data(ctx, *pair) for pair in shown],
        "signals": signals_data(ctx, only), "auto": read_json(auto_path(ctx)) or None,
        "metrics": {k: number(v) for k, v in read_json(ctx.path("metrics.json")).items() if k in METRIC_KEYS},
        "problems": find_problems(ctx, seen_at),
    }


def find_problems(ctx: Ctx, seen_at: float) -> list:
    """What a person should look into, one sentence each: the quick part of `doctor`, and hooks that went missing."""
    found = [text for level, text in _check_project(ctx) if level != OK]
    active_at = max(client_transcripts(ctx.root, ctx.env), default=(0.0,))[0]
    if seen_at and active_at - seen_at > UNSEEN_S and not is_paused(ctx, "*"):
        found.append("the client was active here %s ago, the hooks were last seen %s ago → `doctor` tells why" % (
            format_age(ctx.now - active_at), format_age(ctx.now - seen_at)))
    return found


def status_command(args: list) -> int | None:
    """Show sessions, signals, the workflow, metrics and problems."""
    parser = command_parser("status", SESSION)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(JSON[0], **JSON[1])
    how.add_argument("--watch", action="store_true", help="redraw every two seconds until ^C")
    given = parser.parse_args(args)

    def page() -> str:
        ctx = people_ctx()
        data = status_data(ctx, given.session and find_session(ctx, given.session))
        return format_json(data) if given.json else render_status(data, read_look())

    watch(page) if given.watch else print(page())


def watch(page: object) -> None:
    """Redraw in place until ^C."""
    if not _os.isatty(1):
        raise CommandError("--watch needs a terminal", "run it without a pipe, or use --json")
    height = 0
    try:
        while True:
            lines = page().split("\n")[: max(1, _os.get_terminal_size(1).lines - 1)]
            print(("\033[%dA\033[J" % height if height else "") + "\n".join(lines), flush=True)
            height = len(lines)
            time.sleep(WATCH_EVERY_S)
    except KeyboardInterrupt:
        print()  # the terminal shows ^C on this line


def context_command(args: list) -> int | None:
    """How full the context is, for scripts: the session in the environment, else the most recent one."""
    given = command_parser("context", JSON, SESSION).parse_args(args)
    ctx = people_ctx()
    wanted = find_session(ctx, given.session)
    names = [wanted] if wanted else [name for name, _ in list_sessions(ctx)]
    measures = (last_measure(ctx, name, read_json(session_file(ctx, name))) for name in names)
    measure = next((m for m in measures if m), None)
    if measure is None:
        raise CommandError("no session has been measured here yet", "it happens at the agent's first tool call")
    print(format_json(measure) if given.json else "{shown} {tokens}/{window} {kind} {session}".format(**measure))


def why_command(args: list) -> int | None:
    """The last decisions from the recorder, newest last."""
    count = ("count", {"nargs": "?", "type": int, "default": 10, "metavar": "N", "help": "how many, 10 without it"})
    given = command_parser("why", JSON, count).parse_args(args)
    if given.count < 1:
        raise CommandError("N must be at least 1", "leave it out for 10")
    ctx, look = people_ctx(), read_look()
    rows, today = read_events(ctx, given.count), time.strftime("%Y-%m-%d", time.localtime(ctx.now))
    lines = [line for row in rows for line in render_decision(row, look, today)]
    text = "\n".join(lines) or "nothing was said or decided here yet; silence is not recorded"
    print(format_json(rows) if given.json else text)


def statusline_command(args: list) -> int | None:
    """One line for the client's status bar, and its exact numbers for the monitor."""
    at = args.index("--") if "--" in args else len(args)
    own, wrapped = args[:at], args[at + 1:]
    if own not in ([], ["--only"]) or args[-1:] == ["--"]:  # argparse costs as much as everything else here
        parser = command_parser(
            "statusline", ("--only", {"action": "store_true", "help": "CMD's output alone, ours if it has none"}),
            ("CMD", {"nargs": "*", "help": "the status line you already have; shown above ours"}))
        parser.usage = "ctx_hooks.py statusline [--only] [-- CMD ...]"
        parser.parse_args(own)
        parser.error("CMD comes after --")
    run_guarded("statusline", read_environment(), _statusline, wrapped, bool(own))


def _statusline(env: dict, wrapped: list, only: bool) -> None:
    """Ours below the user's own, of which there is what it printed before it failed or took too long."""
    import signal

    data = read_event_data(0)
    data = data if isinstance(data, dict) else {}
    lines, theirs = [render_statusline(statusline_data(data, env), read_look(bar=True))], ""
    if wrapped:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the client cancels runs: our child goes with us
        argv = wrapped if len(wrapped) > 1 or not IS_POSIX else ["/bin/sh", "-c", wrapped[0]]
        theirs = run_timed(argv, format_json(data).encode(), None, None, WRAPPED_WAIT_S)[2].decode("utf-8", "replace")
    print("\n".join([theirs.rstrip()] * bool(theirs.strip()) + lines * (not theirs.strip() or not only)))


def statusline_data(data: dict, env: dict) -> dict:
    """What the line shows; on the way, the exact numbers are handed to the monitor."""
    window, model = table(data, "context_window"), table(data, "model")
    size, usage = _count(window.get("context_window_size")), window.get("current_usage")
    keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    used = sum(_count(usage.get(key)) for key in keys) if isinstance(usage, dict) else None
    shown = {"model": one_line(_text(model.get("display_name")) or _text(model.get("id")), 30),
             "percent": None if used is None or not size else min(100, used * 100 // size),
             "left": max(0, size - (used or 0)), "phase": "", "pending": ""}
    session_id = _text(data.get("session_id"))
    project = env.get("CLAUDE_PROJECT_DIR") or _text(table(data, "workspace").get("project_dir"))
    ctx = find_project(project, _text(data.get("cwd"))) if session_id else None
    if ctx is None or env.get("CTX_HOOKS_DISABLE", "") not in ("", "0"):
        return shown
    ctx.now, ctx.env, ctx.tmp, ctx.session = time.time(), env, temp_dir(env), safe_name(session_id)
    path = ctx.path("state", ctx.session + ".statusline")
    row = {"window": size, "used": used, "model": _text(model.get("id"))}
    old = read_json(path)
    fresh = 0 <= ctx.now - (parse_iso(old.pop("at", None)) or 0.0) < HANDED_AGAIN_S
    if size and not (fresh and old == row):  # only what is new: the client asks several times a second
        write_runtime(ctx, path, format_json(dict(row, at=format_iso(ctx.now))).encode())
    auto = read_json(auto_path(ctx))
    if is_auto_active(auto) and owns_workflow(auto, session_id):
        shown["phase"] = "%s %d/%d" % (auto["phase"], _count(auto.get("iteration")), max_iterations_of(auto))
    due = due_signals(ctx, ctx.session, _read_seen(ctx, ctx.session)) if has_signals(ctx, ctx.session) else []
    shown["pending"] = "paused" if is_paused(ctx, ctx.session) else plural(len(due), "signal") if due else ""
    return shown


def replay_command(args: list) -> int | None:
    """Run recorded events through this kit, in a scratch copy of the project's state."""
    import tempfile

    files = ("file", {"nargs": "+", "help": "hook events as JSON, one in a file or one in a line; - reads stdin"})
    given = command_parser("replay", JSON, files).parse_args(args)
    ctx, look = people_ctx(), read_look()
    events = [event for name in given.file for event in read_recorded(name)]
    with tempfile.TemporaryDirectory(prefix="ctx-replay-") as scratch:
        copy_project(ctx, real_path(scratch))
        results = [replay_event(ctx, real_path(scratch), event) for event in events]
    lines = [line for index, result in enumerate(results, 1) for line in render_replay(result, index, look)]
    print(format_json(results) if given.json else "\n".join(lines))
    return 1 if any(result["error"] for result in results) else 0


def read_recorded(name: str) -> list:
    """The events in a file: one JSON value in all, or one in each line; a list holds many."""
    import json

    data = read_fd(0, STDIN_LIMIT_BYTES) if name == "-" else read_bytes(name, STDIN_LIMIT_BYTES)
    if data is None:
        raise CommandError("cannot read %s" % name, "name a file with hook events as JSON")
    text, found = data.decode("utf-8", "replace").lstrip("\ufeff"), []
    try:
        json.loads(text)
        texts = [text]
    except (ValueError, RecursionError):
        texts = text.split("\n")
    for index, part in enumerate(texts, 1):
        try:
            value = parse_json(part) if part.strip() else []
        except ValueError:
            raise CommandError("%s: line %d is not JSON" % (name, index), "one event is one JSON object") from None
        found += value if isinstance(value, list) else [value]
    return found


def copy_project(ctx: Ctx, scratch: str) -> None:
    """What the hooks look at: context folder, settings, workflow, handoff, startup and fallback files; no pause."""
    import os
    import shutil

    if ctx.get("allow_outside"):
        raise CommandError("`allow_outside` is set, so a copy of the project is not apart from it", "replay without it")
    root = scratch + "/project"
    os.makedirs(scratch + "/tmp")
    try:
        shutil.copytree(ctx.dir, root + ctx.dir[len(ctx.root):], ignore=shutil.ignore_patterns("pause.json"))
    except shutil.Error:
        pass  # what cannot be copied, a FIFO for one, is not there
    for name in (CONFIG_NAME, AUTO_STATE, ".claude/settings.json", ".claude/settings.local.json",
                 ctx.get("handoff.file"), ctx.get("startup.fallback_file"), *ctx.get("startup.files")):
        if is_file(join_path(ctx.root, name)):
            os.makedirs(parent_of(join_path(root, name)), exist_ok=True)
            shutil.copy2(join_path(ctx.root, name), join_path(root, name))


def replay_event(ctx: Ctx, scratch: str, event: object) -> dict:
    """One event through the registered command, in a process of its own."""
    name, root = _text(event.get("hook_event_name")) if isinstance(event, dict) else "", scratch + "/project"
    result = {"event": name or "?", "mode": EVENTS.get(name, ""), "ms": 0, "reply": None, "error": ""}
    if not result["mode"]:
        return result
    moved = dict(_moved(event, ctx.root, root), transcript_path=event.get("transcript_path"))
    env = dict(ctx.env, CLAUDE_PROJECT_DIR=root, TMPDIR=scratch + "/tmp", TEMP=scratch + "/tmp", CTX_HOOKS_DISABLE="0")
    argv = [sys.executable, "-I", "-S", "-c", REGISTERED.split('"')[1], result["mode"], parent_of(real_path(__file__))]
    took_s, _, out, err = run_timed(argv, format_json(moved).encode(), root, env)
    reply = _moved(_parse_or_none(out), root, ctx.root)
    return dict(result, ms=round(took_s * 1000, 1), reply=reply, error=one_line(err, 400))


def _moved(value: object, old: str, new: str) -> object:
    """The value with one path exchanged for another in all its texts."""
    return parse_json(format_json(value).replace(format_json(old)[1:-1], format_json(new)[1:-1]))


def doctor_command(args: list) -> int | None:
    """Report a line for each thing that matters; exit 1 when something is broken."""
    given = command_parser("doctor", JSON).parse_args(args)
    ctx = people_ctx(needed=False)
    findings = diagnose(ctx, ctx.root if ctx else _os.getcwd(), read_environment())
    if given.json:
        print(format_json([{"level": level, "text": text} for level, text in findings]))
    else:
        look = read_look()
        look.width = look.width if _os.isatty(1) else 10_000  # in a pipe a finding is a line
        print("\n".join(line for level, text in findings for line in wrap_lines(text, "%-6s" % level, look)))
        if any("paste the settings" in text for _, text in findings):
            print("\n.claude/settings.json (merge it into `hooks` if there are some):\n\n" + settings_snippet())
    return 1 if any(level == FAIL for level, _ in findings) else 0


def wrap_command(args: list) -> int:
    """Run an agent without hooks in a pseudo-terminal and type the startup context when it is ready."""
    parser, cut = command_parser("wrap"), args.index("--") if "--" in args else len(args)
    parser.usage = "ctx_hooks.py wrap [--context FILE] [--agent NAME] [--timeout S] -- CMD…"
    parser.add_argument("--context", metavar="FILE", default="", help="deliver this file instead of the handoff")
    parser.add_argument("--agent", choices=[name for name in AGENTS if name], help="by default the command's name")
    parser.add_argument("--timeout", metavar="S", type=float, default=WRAP_TIMEOUT_S,
                        help="seconds to wait for the agent to be ready (30)")
    given, command = parser.parse_args(args[:cut]), args[cut + 1:]
    if not command or not 0 <= given.timeout < 86400:
        parser.error("--timeout needs a number of seconds" if command else "a command is missing after --")
    if not IS_POSIX:
        raise CommandError("wrap needs a POSIX system with pseudo-terminals", "run the agent directly")
    ctx, lost = people_ctx(), []
    delivery = _plan_wrap(ctx, given, given.agent or base_name(command[0]), lost)
    try:
        code = run_wrap(delivery, command)
    except OSError as error:
        raise CommandError("cannot run %s: %s" % (command[0], error.strerror), "check the name and PATH") from None
    if lost and ctx.get("startup.notify_on_failure"):
        write_stderr(FAILURE_NOTICE.format(path=given.context or handoff_path(ctx)) + "\n")
    return code


def _plan_wrap(ctx: Ctx, given, agent: str, lost: list) -> Delivery:
    """The text, the settings of the ladder, and what an event changes; `lost` gets the reason of a failure."""
    message_id, asks = "inj-%x" % int(ctx.now * 1000), ctx.get("startup.require_ack")
    text, (prompt, answer) = _wrap_text(ctx, given.context, message_id), AGENTS.get(agent, AGENTS[""])
    return Delivery(
        time.monotonic(), text=text, timeout_s=given.timeout,
        ready_patterns=ctx.get("wrap.ready_patterns") + ([prompt] if prompt else []),
        is_ack=lambda said: not asks or is_acknowledged(ctx, said) or _matches(answer, said),
        on_event=lambda name, **fields: _note_wrap(ctx, name, dict(fields, messageId=message_id), lost),
        escalate=lambda: FALLBACK_NOTICE.format(file=ctx.get("startup.fallback_file")) * write_section(ctx, text),
        backoffs_s=ctx.get("startup.retry_backoffs_s"), max_attempts=ctx.get("startup.max_attempts"),
        fallback_after=ctx.get("startup.file_fallback_after_attempts"))


def _wrap_text(ctx: Ctx, path: str, message_id: str) -> str:
    """The framed text of the named file, else of the handoff; "" when there is nothing to deliver."""
    if not path:
        return build_startup(ctx, message_id, 1) if ctx.get("startup.enabled") else ""
    text = source_text(read_bytes(path) or b"")
    if not text:
        raise CommandError("there is no context in %s" % one_line(path, 200), "name a text file that is filled in")
    return frame_startup(ctx, [(SOURCE_FILE.format(path=path), text)], message_id, 1)


def _note_wrap(ctx: Ctx, name: str, fields: dict, lost: list) -> None:
    """The same events and metrics as at SessionStart."""
    ctx.now = time.time()
    if name in ("injection:succeeded", "injection:failed") and not ctx.get("startup.require_ack"):
        return
    record(ctx, name, **fields)
    if name == "injection:succeeded":
        key = "succeededOnFirstTry" if fields["attempts"] == 1 else "succeededAfterRetry"
        count_metrics(ctx, success=(fields["attempts"], fields["durationMs"]), **{key: 1})
        remove_section(ctx)
    elif name == "injection:failed":
        count_metrics(ctx, failed=1)
        lost.append(fields["reason"])
    elif name == "injection:escalated" or fields.get("attempt") == 1:
        count_metrics(ctx, **{"attempted" if "attempt" in fields else "escalatedToFile": 1})


def version_text() -> str:
    return "ctx_hooks %s\nsha256 %s" % (VERSION, kit_digest())


def help_text() -> str:
    lines = ["ctx_hooks %s: hooks for Claude Code that keep an agent on the thread of its work" % VERSION, "",
             "hook modes (run by the client, the event as JSON on stdin; exit 0, nothing or one JSON object said):"]
    lines += ["  %-13s %s" % (word, (handler.__doc__ or "").strip().split("\n")[0]) for word, handler in MODES.items()]
    lines += ["", "for people (each has --help with an example):"]
    lines += ["  %-13s %s" % (word, text) for word, _, text, _ in COMMANDS]
    return "\n".join(lines + ["  %-13s %s" % ("--version", "Version and the file's sha256.")])


COMMANDS = (
    ("status", status_command, "Show sessions, signals, the workflow, metrics and problems.", "status --watch"),
    ("context", context_command, "How full the context is, for scripts.", "context --json"),
    ("why", why_command, "The last decisions, explained.", "why 20"),
    ("signal", signal_command, "Tell the agent something with its next prompt.",
     'signal "CI: 3 tests fail on main" --action "Look at the log before pushing" --severity critical'),
    ("auto", auto_command, "Start, show or stop the auto workflow.", 'auto start "Add a login page" --skip-reflect'),
    ("pause", pause_command, "Silence the hooks for a while.", "pause --for 30m"),
    ("resume", resume_command, "End a pause.", "resume"),
    ("statusline", statusline_command, "A line for the client's status bar.", "statusline -- ~/.claude/my-line.sh"),
    ("replay", replay_command, "What this kit says to recorded events, in a scratch copy.", "replay events.jsonl"),
    ("wrap", wrap_command, "Run an agent without hooks and type the startup context.", "wrap -- aider --model sonnet"),
    ("doctor", doctor_command, "Check everything that can keep the hooks from working.", "doctor"),
)


# =============================================================================
# Main
# =============================================================================


def run_command(word: str, args: list) -> int:
    command = next((row[1] for row in COMMANDS if row[0] == word), None)
    try:
        if command is None:
            # Nothing on stdout: a client that runs this as a hook would show it to the model.
            raise CommandError("unknown command: %s" % (one_line(word, 40) or "(none)"), "see `ctx_hooks.py --help`")
        code = command(args)
        if sys.stdout is not None:  # None when it was closed before the start
            sys.stdout.flush()
        return code
    except CommandError as error:
        write_stderr("error: %s\n" % error + ("hint: %s\n" % error.hint if error.hint else ""))
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `status | head -1`: the reader has seen enough
        _os._exit(0)


def main(argv: list | None = None) -> None:
    args = sys.argv[1:] if argv is None else argv
    word = args[0] if args else ""
    if word in MODES:
        try:
            run_hook(word, 0, read_environment())
        finally:
            _os._exit(0)  # nothing is buffered; skipping the interpreter's teardown saves 8 % of a start
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    if word in ("--version", "-V"):
        print(version_text())
    elif word in ("--help", "-h", "help"):
        print(help_text())
    else:
        sys.exit(run_command(word, args[1:]))


if __name__ == "__main__":
    main()
