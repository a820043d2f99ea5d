#!/usr/bin/env python3
"""ctx_hooks: hooks that keep a coding agent on the thread of its work. MIT licence.

    SessionStart -> inject        the last session's handoff arrives, with an acknowledgement
    first tool   -> gate          the agent is told once which context files to read
    every tool   -> monitor       fullness is measured; alerts reach the agent while it works;
                                  near the limit it is asked for a handoff until there is one
    next prompt  -> inject        pending signals reach the agent as one block
    PreCompact   -> monitor       without a handoff so far, the kit writes one itself
    Stop         -> stop-enforce  in auto mode the agent goes on until its phase is proven done
    SessionEnd   -> cleanup       nothing is left behind, and the handoff waits for the next start

Contract of a hook mode (`ctx_hooks.py MODE [AGENT]`, the event as JSON on stdin): exit 0, always;
nothing or exactly one ASCII JSON object on stdout; no network, no eval; the only process it ever
starts is a check command that the person agreed to; nothing is created in a project that has no
context folder; over after 4 seconds; when in doubt, say nothing.

The file reads bottom-up: a section uses only what stands above it. Contents:

    Version       imports, version
    Messages      limits, thresholds and every sentence that is shown to the agent or the person
    Clock         ISO 8601 and epoch seconds, the alarm clock
    Json          JSON without the cost of the json package
    Paths         outside strings become safe file names
    Files         bounded reads, atomic writes, locks, locked JSON state
    Config        the YAML subset of .contextrc and of signal headers
    Project       where the project is, its settings, whom we trust, a session's state
    Recorder      the flight recorder and the error log
    Text          budgets and cleaning of text that reaches the agent or a terminal
    Clients       the only place that knows the clients' JSON: events, replies, transcripts
    Signals       the signal bus
    Measure       how full the context is
    Auditors      from a snapshot to alerts
    Gate          read your context first
    Handoff       the ledger, the reminder, and three ways to a handoff
    Phases        completion blocks and the auto workflow
    Startup       startup context with evidence, retry and fallback
    Cleanup       what goes at SessionEnd and by age
    Modes         the dispatch table
    Hook          stdin, stdout, the deadline and the fail-open boundary
    Registration  the commands in the clients' settings
    Doctor        what can keep the hooks from working
    View          what people see, from data to text
    Screen        is a program in a terminal waiting for input?
    Wrap          the startup context for agents without hooks
    Commands      what people run
    Main          argv
"""

# =============================================================================
# Version
# =============================================================================
# Everything imported here is built into the interpreter: `os` alone costs 16 % of a bare start,
# `json` 115 %, `re` 87 %. Heavier imports stand in the functions that need them, none of which
# is on the silent path.
import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    # Run as a plain script, this folder would be searched before the standard library, and a
    # stray json.py beside the kit would be imported. It goes to the end.
    sys.path.append(sys.path.pop(0))

import _imp
import time

if "posix" in sys.builtin_module_names:  # asked first: a stray posix.py must not be found
    import posix as _os  # the same functions as `os`, without its 16 %
else:
    import nt as _os

VERSION = "0.2.0"
IS_POSIX = _os.__name__ == "posix"
Record = type(sys.implementation)  # a class of our own would cost 0.2 % of every start

# =============================================================================
# Messages
# =============================================================================
# Seconds, byte counts, thresholds, and the texts for the agent and the person. Names, paths and
# sentences in this section are public interface.
HOOK_LIMIT_S, CLEANUP_LIMIT_S = 4.0, 1.2  # the client ends a SessionEnd hook after 1.5 s
HUNG_AFTER_S = 0.2  # past the limit, the alarm has not got through
STDIN_WAIT_S = 2.0
STDIN_LIMIT_BYTES = 32 * 1024 * 1024
RESPONSE_KEPT_BYTES = 256 * 1024  # of a larger event the tool's response is not kept
LOCK_WAIT_S = 2.5  # 50 calls at once on a busy machine take two
REPLACE_WAIT_S, REMOVE_WAIT_S = 0.8, 0.2  # Windows: a reader keeps a file as it is for a moment
FILE_LIMIT_BYTES = 256 * 1024
STATE_LIMIT_BYTES = 4 * 1024 * 1024
CONFIG_LIMIT_BYTES = 64 * 1024
LIST_LIMIT = 200  # entries of a list in the settings
SIGNAL_LIMIT_BYTES = 64 * 1024
SIGNAL_COUNT_LIMIT = 4000
EVENTS_LIMIT_BYTES = 512 * 1024
ERRORS_LIMIT_BYTES = 64 * 1024
ASIDE_KEEP = 20
NAME_LIMIT = 80
PARENT_LIMIT = 64
REPLY_LIMIT = 9_900  # the client cuts a hook's text at 10,000 UTF-16 units
GATE_CONTENT_LIMIT = 9_000
STARTUP_LIMIT = 9_000
ORPHAN_AGE_S = 7 * 86400
MARKER_AGE_S = 15 * 86400
COLLECT_LIMIT_S, COLLECT_EVERY_S, COLLECT_COUNT, COLLECT_NAMES = 0.5, 3600, 200, 20_000
DEFAULT_TTL_S = 300
TTL_LIMIT_S = 30 * 86400
HALF_WRITTEN_S = 2.0
SAME_EVENT_S = 2.0  # two kits registered for one client: the second event counts for nothing
PATTERN_LIMIT_S, PATTERNS_TRIED = 0.2, 10
CLOCK_SKEW_S = 60

DEFAULT_CONTEXT_DIR = ".context"
CONFIG_NAME = ".contextrc"
AUTO_STATE = ".caw/auto-state.json"
OLD_HANDOFF = ".claude/ll-continue-prompt.md"
RUNTIME_FOLDERS = ("state", "state/aside", "signals", "signals/sessions", "signals/global",
                   "handoffs")
MARKER_PREFIX, QUIET_PREFIX, SEEN_PREFIX = "ctx-loaded-", "ctx-quiet-", "ctx-seen-"
ASKED_PREFIX = "ctx-asked-"
SEVERITIES = ("info", "warning", "critical")
GITIGNORE_TEXT = (
    "# runtime files of ctx_hooks; the context files beside this one are yours\n"
    "signals/\nstate/\nhandoffs/\nmonitor-state.json\nmetrics.json\nevents.jsonl\n"
    "events.jsonl.1\n.gitignore\n"
)
INSTRUCTION_FILES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", "QWEN.md",
                     ".github/copilot-instructions.md")

SIGNAL_HEAD = "⚠️ [ctx monitor] "
SIGNAL_HEAD_MANY = "⚠️ [ctx monitor] {count} issues:"
SIGNAL_BULLET = "  • "
SIGNAL_INDENT = "    "
SIGNAL_REST = "  … {count} more will follow"
SIGNAL_CUT = "… (cut here; the whole text is in {path})"
SIGNAL_PERSON = "ctx monitor: {text}"

CONTEXT_FILES = ("CONSTITUTION.md", "TASKS.md", "CONVENTIONS.md", "DECISIONS.md", "LEARNINGS.md",
                 "AGENT_PLAYBOOK.md")
INDEXED_FILES = ("DECISIONS.md", "LEARNINGS.md")
INDEX_START, INDEX_END = "<!-- INDEX:START -->", "<!-- INDEX:END -->"
GATE_DIRECTIVE = "STOP. Read your context files before proceeding: {files}"
GATE_STATEMENT = "The project's context files say this ({files}):"
GATE_CHECKPOINT = ("When you have read them, print this line, filled in: "
                   "Context Loaded — Read: … Skipped: …")
GATE_CONTENT_FILE = "----- {path} -----"
GATE_CONTENT_CUT = "[cut: the rest is in {path}]"
GATE_CONTENT_LEFT_OUT = "[not shown for lack of room: {paths}]"

HEALTH_LEVELS = (  # fires at, clears below, severity
    (95, 85, "critical"), (85, 75, "warning"), (70, 60, "warning"))
HEALTH_SUMMARY = "Context: {percent} of the window full{note}."
HEALTH_ACTIONS = {  # level -> without and with a handoff
    70: ("Keep answers short{decisions} and plan a good place to stop",
         "Keep answers short{decisions} and plan a good place to stop"),
    85: ("Summarize the current state in 5 bullets{write}, then suggest /clear to the person",
         "The handoff is written: finish the step you are at, then suggest /clear to the person"),
    95: ("{now}suggest /clear to the person: the next messages may not fit any more",
         "The handoff is written: suggest /clear to the person, the next messages may not fit"),
}
HEALTH_DECISIONS = ", write open decisions into {path}"
HEALTH_WRITE, HEALTH_NOW = ", write the handoff to {path}", "Write the handoff to {path} now and "
REPETITION_WINDOW = 8
REPETITION_LEVEL, REPETITION_CLEAR = 4.0, 2.0  # repeats, a failing one counts more
REPETITION_FAILED = 1.5
REPETITION_SUMMARY = "Repetition: {count} of the last {window} tool calls did the same{how}."
REPETITION_HOW = " and failed the same way"
REPETITION_ACTION = ("Stop and try a different approach; say what you expected and what happened "
                     "instead")
AUDIT_SUMMARY = "Context files untouched for {days} days: {files}."
AUDIT_ACTION = "Check that they still match the code and update or confirm them"
AUDIT_EVERY_CALLS = 25
AUDIT_BAND_S = 60

DEFAULT_WINDOW, LARGE_WINDOW = 200_000, 1_000_000
TOKENS_LIMIT = 20_000_000  # a larger count is a broken row, not a conversation
CHARS_PER_TOKEN = 4
CALL_OVERHEAD_TOKENS = 60
IMAGE_TOKENS = 1_600
ESTIMATE_BASE_TOKENS = 15_000  # the client's own system prompt and tools
TRANSCRIPT_STEP_BYTES, TRANSCRIPT_NEAR_BYTES = 32 * 1024, 1024 * 1024
TRANSCRIPT_LINE_BYTES, TRANSCRIPT_LIMIT_BYTES = 1024 * 1024, 8 * 1024 * 1024
TRANSCRIPT_NEW_LIMIT_BYTES = 4 * 1024 * 1024
TRANSCRIPT_WAIT_S, TRANSCRIPT_POLL_S = 0.15, 0.015

CONTINUATION_HEAD = "## Auto Mode Continuation"
HANDOFF_PERCENT = 80
HANDOFF_BEFORE_COMPACTION = 25_000
HANDOFF_RESET_MARGIN = 10  # percent below the threshold that only a compaction explains
HANDOFF_LIMIT_BYTES = 512 * 1024
HANDOFF_KEEP_S = 7 * 86400
HANDOFF_BEGIN, HANDOFF_END = "BEGIN HANDOFF", "END HANDOFF"
HANDOFF_FULL = "Context is {percent} full ({tokens}/{window} tokens{note})."
HANDOFF_REMINDER = (
    "{request} Put there: goal, current state, decisions and why, next steps, open files.{command} "
    "This note comes with every tool result until there is a handoff."
)
HANDOFF_WRITE = (
    "Write a handoff for the next session to {path} now, before anything else; where that is not "
    "permitted, end your answer with it, between a line BEGIN HANDOFF and a line END HANDOFF."
)
HANDOFF_PRINT = (
    "End your answer with a handoff for the next session, between a line BEGIN HANDOFF and a line "
    "END HANDOFF; it is saved from there."
)
HANDOFF_UNSAVED = (
    "End your answer with a handoff for the next session: goal, current state, decisions and why, "
    "next steps, open files. {path} cannot be written, so the person has to keep it."
)
HANDOFF_UNSAVED_PERSON = ("ctx: context {percent} full; {path} cannot be written, so keep the "
                          "handoff that the agent was asked to print")
HANDOFF_COMMAND = " {command} writes it for you."
HANDOFF_ASKED_PERSON = "ctx: context {percent} full, asked the agent for a handoff"
HANDOFF_DONE_PERSON = ("ctx: handoff written, /clear when you like; "
                       "the next session starts from it")
HANDOFF_SENT_PERSON = "ctx: handoff of {time} delivered, {lines} lines"
MECHANICAL_HEAD = (
    "# Handoff, written by ctx_hooks from the transcript\n\n"
    "The agent left none. Session {session}, {when}{branch}.\n"
)

# =============================================================================
# Clock
# =============================================================================
# Inside, time is epoch seconds; ISO 8601 with Z stands only on disk. `datetime` would cost 25 %
# of a bare start, so the calendar arithmetic is done here. One alarm clock bounds everything.


def format_iso(seconds: float, fraction: bool = False) -> str:
    """2026-02-03T10:45:00Z, with milliseconds when `fraction`."""
    whole, millis = int(seconds // 1), 0
    if fraction:
        whole, millis = divmod(int(seconds * 1000 + 0.5), 1000)
    whole = min(max(whole, 0), 32503679999)  # Windows knows no year after 3000
    text = "%04d-%02d-%02dT%02d:%02d:%02d" % time.gmtime(whole)[:6]
    return text + (".%03dZ" % millis if fraction else "Z")


def parse_iso(text: object) -> "float | None":
    """Epoch seconds of an ISO 8601 time (Z, offset, fraction, date alone; naive = UTC), or None."""
    text = text.strip() if isinstance(text, str) else ""
    date = _numbers(text[:10], "-", (4, 2, 2))
    seconds = _clock_seconds(text[11:]) if len(text) > 10 else 0.0
    if not date or seconds is None or text[10:11] not in ("", "T", "t", " "):
        return None
    year, month, day = date
    first = _day_number(year, month)
    is_day = 1 <= month <= 12 and 1 <= day <= _day_number(year, month + 1) - first
    return (first + day - 1) * 86400 + seconds if is_day else None


def _numbers(text: str, mark: str, widths: tuple) -> tuple:
    """The numbers of `10:45:00`; () when they are not of these widths."""
    parts = text.split(mark)
    is_good = tuple(map(len, parts)) == widths and all(map(is_digits, parts))
    return tuple(map(int, parts)) if is_good else ()


def _day_number(year: int, month: int) -> int:
    """Days from 1970-01-01 to the first of the month; a year that begins in March has its odd day
    at the end."""
    if month < 3:
        year, month = year - 1, month + 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (month * 153 - 457) // 5 - 719468


def _clock_seconds(clock: str) -> "float | None":
    """Seconds since midnight UTC of `HH:MM[:SS[.fff]]` with an optional Z or offset."""
    cut = max(map(clock.rfind, "+-Zz"))
    clock, zone = (clock[:cut], clock[cut:]) if cut >= 0 else (clock, "Z")
    shift = zone[1:].replace(":", "") if zone[0] in "+-" else zone[1:] + "0000"
    shift = _numbers(shift[:2] + ":" + (shift[2:] or "00"), ":", (2, 2))
    whole, dot, fraction = clock.replace(",", ".").partition(".")
    time_ = _numbers(whole if whole.count(":") == 2 else whole + ":00", ":", (2, 2, 2))
    if not shift or not time_ or (dot and not is_digits(fraction[:9])):
        return None
    if time_ > (23, 59, 60) or max(time_[1], shift[1]) > 59 or time_[2] > 60 or shift[0] > 23:
        return None
    offset = (shift[0] * 3600 + shift[1] * 60) * (-1 if zone[0] == "-" else 1)
    part = float("0." + fraction[:9]) if dot else 0.0
    return time_[0] * 3600 + time_[1] * 60 + time_[2] + part - offset


def is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12


class TimeUp(Exception):
    """What a TimeLimit raises inside its block."""


class TimeLimit:
    """`with TimeLimit(seconds)`: by the process's one alarm clock. An outer limit goes on behind an
    inner one; with `apart` the inner time does not count for it. Windows has no such clock."""

    __slots__ = ("seconds", "apart", "outer_s", "since")

    def __init__(self, seconds: float, apart: bool = False) -> None:
        self.seconds, self.apart, self.outer_s, self.since = seconds, apart, 0.0, 0.0

    def __enter__(self) -> None:
        self.since = time.monotonic()
        if self.apart and _DEADLINE:
            _DEADLINE[0] += self.seconds
        self.outer_s = _set_alarm(self.seconds)
        if 0 < self.outer_s < self.seconds and not self.apart:
            _set_alarm(self.outer_s)

    def __exit__(self, *_) -> None:
        spent_s = 0.0 if self.apart else time.monotonic() - self.since
        _set_alarm(max(self.outer_s - spent_s, 0.001) if self.outer_s else 0.0)


def _set_alarm(seconds: float) -> float:
    """Start the clock (0 stops it); what was left of the one before."""
    import _signal

    if not hasattr(_signal, "setitimer"):
        return 0.0
    if seconds:
        _signal.signal(_signal.SIGALRM, _on_time_up)
    return _signal.setitimer(_signal.ITIMER_REAL, seconds)[0]


def _on_time_up(*_) -> None:
    raise TimeUp


def start_deadline(seconds: float) -> None:
    """The whole run's limit: TimeUp is raised. Where no alarm wakes the process (on a hung file
    system, on Windows), a thread ends it in silence."""
    import _signal
    import _thread

    has_alarm = hasattr(_signal, "setitimer")
    if has_alarm:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))  # a mask is inherited
        _set_alarm(seconds)
    _DEADLINE.append(time.monotonic() + seconds + (HUNG_AFTER_S if has_alarm else 0.0))
    _thread.start_new_thread(_exit_later, ())


_DEADLINE: list = []  # when the thread ends the process


def _exit_later() -> None:
    while time.monotonic() < _DEADLINE[0]:
        time.sleep(max(_DEADLINE[0] - time.monotonic(), 0.001))
    _os._exit(0)

# =============================================================================
# Json
# =============================================================================
# The C scanner and encoder behind the json package, without the package and the `re` it pulls in
# (2.2 times a bare start). `_json` is private, so any surprise ends in the fallback, which is json
# itself. On 3.10 and 3.11 the scanner raises SystemError for malformed input while json is not
# imported.


_SCANNING = Record(  # what the C scanner wants to know: json's own defaults, control characters
    strict=False, object_hook=None, object_pairs_hook=None, parse_int=int, memo={},  # allowed
    parse_constant=lambda name: None,  # NaN and Infinity are not JSON
    parse_float=lambda text: float(text) if abs(float(text)) < 1e308 else None)  # nor is 1e999


def parse_json(text: object) -> object:
    """The first JSON value in the text or bytes; ValueError when there is none."""
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    start = len(text) - len(text.lstrip("\ufeff \t\r\n"))
    try:
        return _scan()(text, start)[0]
    except (StopIteration, SystemError, RecursionError) as error:
        raise ValueError("not JSON") from error


def parse_object(text: object) -> dict:
    """The JSON object in the text; {} when there is none."""
    try:
        value = parse_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def format_json(value: object) -> str:
    """One line of ASCII JSON; ValueError or TypeError for what JSON cannot hold."""
    try:
        import _json

        encode = _json.make_encoder(  # what it does not know it calls None for: a TypeError
            None, None, _json.encode_basestring_ascii, None, ": ", ", ", False, False, False)
        return "".join(encode(value, 0))
    except (ImportError, AttributeError):
        import json

        return json.dumps(value, allow_nan=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _scan() -> object:
    try:
        import _json

        return _json.make_scanner(_SCANNING)
    except (ImportError, AttributeError):
        import json

        return json.JSONDecoder(strict=False, parse_float=_SCANNING.parse_float,
                                parse_constant=_SCANNING.parse_constant).raw_decode


# --- what is checked once, at the edge: a record by its table of (key, default, kind); a kind is a
# type, "time", "count", "texts", another table, or a list with one for an object of records


def load_record(data: object, schema: tuple) -> Record:
    """The checked record of a JSON object: every key of the schema is an attribute of its kind, a
    wrong type counts as missing; what another version put there stays."""
    values = dict(data) if isinstance(data, dict) else {}
    for key, default, kind in schema:
        values[key] = _load_field(values.get(key), default, kind)
    return Record(**values)


def dump_record(record: Record, schema: tuple) -> dict:
    """The JSON object of a record; times are ISO 8601 there, none is null."""
    values = dict(vars(record))
    for key, _, kind in schema:
        if kind == "time":
            values[key] = format_iso(values[key], True) if values[key] else None
        elif isinstance(kind, tuple) and values[key] is not None:
            values[key] = dump_record(values[key], kind)
        elif isinstance(kind, list):
            values[key] = {name: dump_record(row, kind[0]) for name, row in values[key].items()}
    return values


def _load_field(value: object, default: object, kind: object) -> object:
    if kind == "time":
        return parse_iso(value) or 0.0
    if isinstance(kind, tuple):
        return load_record(value, kind) if isinstance(value, dict) else None
    if isinstance(kind, list):  # an object of records
        return {name: load_record(row, kind[0]) for name, row in dict_of(value).items()
                if isinstance(row, dict)}
    if kind == "count":
        return int(value) if is_count(value) else default
    if kind == "texts":
        return [text for text in list_of(value) if isinstance(text, str)]
    if kind in (list, dict):
        return value if isinstance(value, kind) else kind()
    return value if isinstance(value, kind) else default


def is_count(value: object) -> bool:
    """A number from 0 that can be counted with."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e15


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def count_of(value: object) -> int:
    return int(value) if is_count(value) else 0


def dict_of(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list:
    return value if isinstance(value, list) else []


def dig(data: object, path: str) -> object:
    """The value at `a.b.c` in objects within objects, or None."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data

# =============================================================================
# Paths
# =============================================================================
# Every outside string that becomes part of a path goes through safe_name. The plain and the hashed
# form cannot collide: "~" is not a plain character. Names of devices (Windows) and of our own
# files beside a session's are taken. Paths have forward slashes everywhere.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")
_DEVICES = frozenset(
    "con prn aux nul com1 com2 com3 com4 com5 com6 com7 com8 com9 "
    "lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9".split())
_OWN_NAMES = frozenset(
    "global pause fallback collected aside handoffs monitor-state auto-state metrics events "
    "errors".split())


def safe_name(text: str) -> str:
    """A file name for any outside string: short ids stay, others get a digest; "" for ""."""
    if not text:
        return ""
    if len(text) <= NAME_LIMIT and _PLAIN.issuperset(text) and is_plain_name(text):
        return text
    import hashlib

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    letters = "".join(c if c in _PLAIN and c != "." else "_" for c in text[:40].lower())
    kept = letters.strip("_-")  # without dots: Windows takes `aux.1~…` for a device
    return (kept or "x") + "~" + digest


def is_plain_name(text: str) -> bool:
    """Not hidden, no option, no device on Windows (`con.x` is one too), not a file of ours."""
    stem = text.partition(".")[0]
    is_ours = stem in _OWN_NAMES or stem.startswith("handoffs-")
    return text[0] not in ".-" and text[-1] != "." and stem not in _DEVICES and not is_ours


def slashed(path: str) -> str:
    return path if IS_POSIX else path.replace("\\", "/")


def join_path(base: str, name: str) -> str:
    """`name` seen from `base`, with . and .. resolved as text."""
    path = slashed(name if is_absolute(name) else base.rstrip("/") + "/" + name)
    unc = not IS_POSIX and path.startswith("//")
    parts: list = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part and part != ".":
            parts.append(part)
    if not IS_POSIX and parts and parts[0].endswith(":"):
        return "/".join(parts) if len(parts) > 1 else parts[0] + "/"
    return ("//" if unc else "/") + "/".join(parts)


def is_absolute(path: str) -> bool:
    return path.startswith("/") or (not IS_POSIX and (path[1:2] == ":" or path.startswith("\\")))


def is_below(path: str, base: str) -> bool:
    """Both absolute and normal; links are the caller's business."""
    if not IS_POSIX:
        path, base = path.lower(), base.lower()
    return path == base or path.startswith(base.rstrip("/") + "/")


def parent_of(path: str) -> str:
    """The folder above; a drive's and a share's top have none."""
    bare = path.rstrip("/")
    parent = bare.rpartition("/")[0]
    if not IS_POSIX and (bare[1:] == ":" or (bare.startswith("//") and bare.count("/") < 4)):
        return path
    return parent + "/" if parent[1:] == ":" else parent or "/"


def native_path(path: str) -> str:
    """A folder from the environment; Git Bash says `/c/Users` where Windows says `C:/Users`."""
    path = slashed(path)
    is_drive = not IS_POSIX and path[:1] == "/" and path[1:2].isalpha() and path[2:3] in ("/", "")
    return path[1] + ":/" + path[3:] if is_drive else path


def base_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def real_path(path: str) -> str:
    """All links resolved. `os.path` is loaded for it, so it stays off the silent path."""
    from os.path import realpath

    return slashed(realpath(path))

# =============================================================================
# Files
# =============================================================================
# Reads are bounded and never block on a FIFO or a device. Every write asks may_write and replaces
# the file atomically through a temp file of its own. A lock that cannot be had in time costs the
# write, never the hook. Locks are taken in one order: a session's before the shared ones.


class Ctx:
    """Where and when a handler runs: the project, its settings, the clock, what it may see of the
    environment. `owner` is the context folder's stat; `agent` the client's dialect, `length` how
    it counts a text."""

    __slots__ = ("root", "dir", "config", "problems", "owner", "now", "env", "tmp", "state_home",
                 "mode", "session", "agent", "length")

    def __init__(self, root: str, directory: str, config: dict, problems: list) -> None:
        self.root, self.dir, self.config, self.problems = root, directory, config, problems
        self.owner, self.now, self.env, self.tmp, self.state_home = None, 0.0, {}, "", ""
        self.mode, self.session, self.agent, self.length = "", "", "claude", len

    def get(self, key: str) -> object:
        """A setting: its checked value or its default."""
        return self.config[key]

    def path(self, *names: str) -> str:
        """A path below the context folder."""
        return "/".join((self.dir,) + names)


_CLOSED = sum(getattr(_os, name, 0) for name in ("O_BINARY", "O_NOINHERIT", "O_CLOEXEC"))
_NOFOLLOW, _NONBLOCK = getattr(_os, "O_NOFOLLOW", 0), getattr(_os, "O_NONBLOCK", 0)
_READ_FLAGS = _os.O_RDONLY | _NONBLOCK | _CLOSED
_WRITE_FLAGS = _os.O_WRONLY | _os.O_CREAT | _NOFOLLOW | _CLOSED
_KIND, _REGULAR, _FOLDER, _LINK = 0o170000, 0o100000, 0o040000, 0o120000
_SHARED_FILES = frozenset(("monitor-state.json", "metrics.json", ".gitignore"))
_TOP_FILES = _SHARED_FILES | {"events.jsonl", "events.jsonl.1"}
MARKER_PREFIXES = (MARKER_PREFIX, QUIET_PREFIX, SEEN_PREFIX, ASKED_PREFIX)


def may_write(ctx: Ctx, path: str) -> bool:
    """The files of the contract and no others, whatever a setting names. That none of our folders
    in the context folder is a link was seen when the project was opened."""
    if "/../" in path:
        return False
    folder, name = parent_of(path), base_name(path)
    if folder == ctx.tmp.rstrip("/") and name.startswith(MARKER_PREFIXES):
        return True  # asked first: the temp folder and the home folder can be a project's root
    if ctx.state_home and is_below(path, ctx.state_home):
        return True
    if is_below(path, ctx.dir):
        first, _, rest = path[len(ctx.dir) + 1:].partition("/")
        return first in ("state", "signals", "handoffs") if rest else first in _TOP_FILES
    inside = path[len(ctx.root.rstrip("/")) + 1:] if is_below(path, ctx.root) else ""
    is_named = inside in (AUTO_STATE, ".caw/.gitignore") or inside in INSTRUCTION_FILES
    return is_named and (folder == ctx.root or not is_link(folder))


def read_bytes(path: str, limit_bytes: int = FILE_LIMIT_BYTES, follow: bool = True,
               own: bool = False) -> "bytes | None":
    """At most `limit_bytes` of a regular file, else None; with `own` only of one of this user's."""
    return read_open(open_regular(path, follow, own), limit_bytes)


def open_regular(path: str, follow: bool = True, own: bool = False, base: str = "") -> int:
    """A descriptor of a regular file, or -1. Below `base` each step is opened from the one before
    and none is a link, so nothing can be exchanged since the name was looked at."""
    if base and not IS_POSIX:
        path, base, follow = base + "/" + path, "", False
    fd = -1
    try:
        fd = _os.open(base or path, _READ_FLAGS | (0 if follow else _NOFOLLOW))
        for part in path.split("/") if base else ():
            folder, fd = fd, _os.open(part, _READ_FLAGS | _NOFOLLOW, dir_fd=fd)
            _os.close(folder)
        info = _os.fstat(fd)
        if is_own(info) if own else is_regular(info):
            return fd
    except (OSError, ValueError):
        pass  # not there, or a handle gone stale
    if fd >= 0:
        _os.close(fd)
    return -1


def read_open(fd: int, limit_bytes: int, start: int = 0) -> "bytes | None":
    """What an opened file holds from `start` on, None when there is none; it is closed then."""
    if fd < 0:
        return None
    try:
        if start:
            _os.lseek(fd, start, 0)
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


def name_inside(path: str, base: str) -> str:
    """The path as seen from `base`, links resolved; "" when it is not below it. Where there is no
    link on the way, a few lstats say so."""
    probe = path
    while probe != base:
        info = stat_of(probe, follow=False) if is_below(probe, base) else None
        if info is None or info.st_mode & _KIND == _LINK or base_name(probe) == "..":
            path, base = real_path(path), real_path(base)
            return path[len(base):].lstrip("/") if is_below(path, base) else ""
        probe = parent_of(probe)
    return path[len(base):].lstrip("/")


def stat_of(path: str, follow: bool = True) -> object:
    """The stat result, or None for whatever reason there is none."""
    try:
        return _os.stat(path) if follow else _os.lstat(path)
    except (OSError, ValueError):
        return None


def is_missing(path: str) -> bool:
    """There is certainly nothing: an error of the disk or the network must not pass for that."""
    try:
        _os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        pass
    return False


def is_dir(path: str) -> bool:
    info = stat_of(path)
    return info is not None and info.st_mode & _KIND == _FOLDER


def is_file(path: str) -> bool:
    return is_regular(stat_of(path))


def is_regular(info: object) -> bool:
    return info is not None and info.st_mode & _KIND == _REGULAR


def is_link(path: str) -> bool:
    info = stat_of(path, follow=False)
    return info is not None and info.st_mode & _KIND == _LINK


def is_writable(path: str) -> bool:
    """A read-only file stays as it is, although replacing it would be possible."""
    try:
        return _os.access(path, _os.W_OK)
    except (OSError, ValueError):
        return False


def is_own(info: object) -> bool:
    """A regular file of this user's."""
    return is_regular(info) and (not IS_POSIX or info.st_uid == _os.geteuid())


def list_dir(path: str, limit: int = 200_000) -> list:
    """The names in a folder, sorted; of a folder beyond all bounds some."""
    try:
        return sorted(_os.listdir(path)[:limit])
    except (OSError, ValueError):
        return []


def remove_file(path: str) -> bool:
    try:
        _insist(_os.unlink, path)
    except (OSError, ValueError):
        return False
    return True


def _insist(change: object, *paths: str) -> None:
    """On Windows anybody who reads a file at this moment keeps it from being changed."""
    deadline = time.monotonic() + (REPLACE_WAIT_S if paths[1:] else REMOVE_WAIT_S)
    while True:
        try:
            change(*paths)
            return
        except PermissionError:
            if IS_POSIX or is_dir(paths[-1]) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[_os.write(fd, data):]


def is_temp_name(name: str) -> bool:
    """The temp file of a writer that was killed: `<name>.<pid>-<stamp>.tmp`."""
    stem, _, rest = name[:-4].rpartition(".")
    pid, _, stamp = rest.partition("-")
    is_ours = bool(stem and stamp) and is_digits(pid) and not stamp.strip("0123456789abcdef")
    return name.endswith(".tmp") and is_ours


def write_bytes(ctx: Ctx, path: str, data: bytes, durable: bool = False,
                expected: "bytes | None" = None) -> bool:
    """Replace the file atomically, its folders and the .gitignore come with the first write. An
    existing file keeps its mode. With `expected` only when exactly that stands there: somebody who
    saves at the same moment loses nothing."""
    if not may_write(ctx, path) or not make_folder(ctx, parent_of(path)):
        return False
    temp = "%s.%d-%x.tmp" % (path, _os.getpid(), time.time_ns() & 0xFFFFFFFF)
    try:
        _write_new(temp, data, durable)
        _give_mode(ctx, path, temp)
        if expected is not None:
            return _swap(temp, path, data, expected)
        _insist(_os.replace, temp, path)
        return True
    except (OSError, ValueError):
        remove_file(temp)
        return False


def claim_file(ctx: Ctx, path: str, data: bytes) -> "bool | None":
    """Create a file that must not be there yet: True for the one who did, False when it is there,
    None when that cannot be told. Nothing is followed."""
    try:
        if may_write(ctx, path):
            _write_new(path, data)
            return True
    except FileExistsError:
        return False
    except (OSError, ValueError):
        pass
    return None


def _write_new(path: str, data: bytes, durable: bool = False) -> None:
    fd = _os.open(path, _WRITE_FLAGS | _os.O_EXCL, 0o600)
    try:
        write_all(fd, data)
        if durable:
            _os.fsync(fd)
    finally:
        _os.close(fd)


def _give_mode(ctx: Ctx, path: str, temp: str) -> None:
    """What may hold conversation text is for its owner only, the rest keeps its mode or is as open
    as the context folder."""
    if not IS_POSIX or not is_below(path, ctx.root):
        return
    info = stat_of(path, follow=False)
    if base_name(path) in _SHARED_FILES or not is_below(path, ctx.dir):
        _os.chmod(temp, info.st_mode & 0o777 if is_regular(info) else ctx.owner.st_mode & 0o666)
    _give_owner(info if is_regular(info) and info.st_uid else ctx.owner, temp)


def _give_owner(owner: object, place: object) -> None:
    """As root, what is made (a path or a descriptor) belongs to the one whose project it is."""
    if IS_POSIX and owner.st_uid and _os.geteuid() == 0:
        try:
            _os.chown(place, owner.st_uid, owner.st_gid)
        except OSError:
            pass  # a container's root that may not


def make_private(path: str) -> None:
    """An agent writes with the mode that everything gets."""
    info = stat_of(path, follow=False)
    if IS_POSIX and is_own(info) and info.st_mode & 0o077:
        try:
            _os.chmod(path, 0o600)
        except OSError:
            pass  # a file system without modes


def _swap(temp: str, path: str, data: bytes, expected: bytes) -> bool:
    """Exchange the two files, look at what came out, and give back what is not what we knew."""
    limit, is_ours = len(expected) + len(data) + 65536, True
    if not expected and is_missing(path):
        _os.link(temp, path)  # unlike a rename it replaces nothing
    elif read_bytes(path, limit, follow=False) != expected:
        is_ours = False
    elif not _exchange(temp, path):
        _insist(_os.replace, temp, path)  # a system without it: a moment of risk remains
    else:
        is_ours = read_bytes(temp, limit, follow=False) == expected
        for _ in range(0 if is_ours else 20):
            if _exchange(temp, path) and read_bytes(temp, limit, follow=False) == data:
                break
    remove_file(temp)
    return is_ours


def _exchange(one: str, other: str) -> bool:
    """Two files change places in one step (Linux, macOS); False where that cannot be had."""
    try:
        import ctypes

        libc, here, swap = ctypes.CDLL(None, use_errno=True), -100, 2
        one, other = (name.encode("utf-8", "surrogateescape") for name in (one, other))
        if sys.platform == "darwin":
            return libc.renamex_np(one, other, swap) == 0
        return libc.renameat2(here, one, here, other, swap) == 0
    except (ImportError, AttributeError, OSError, TypeError):
        return False


def make_folder(ctx: Ctx, path: str) -> bool:
    """Create a folder that holds files of ours, never the context folder; True when it is there."""
    base = next((base for base in (ctx.dir, ctx.root) if is_below(path, base)), "/")
    missing = []
    while path != base and not is_dir(path):
        missing.append(path)
        path = parent_of(path)
    for name in reversed(missing):
        try:
            _os.mkdir(name, 0o700)
            if IS_POSIX and base != "/":
                _os.chmod(name, ctx.owner.st_mode & 0o7777)
                _give_owner(ctx.owner, name)
        except FileExistsError:
            continue
        except OSError:
            return False
    if missing and base == ctx.dir:
        write_gitignore(ctx)
    return not missing or is_dir(missing[0])


def write_gitignore(ctx: Ctx) -> None:
    """Once; the user's own is left alone, and so is ours when it is there."""
    if is_missing(ctx.path(".gitignore")):
        write_bytes(ctx, ctx.path(".gitignore"), GITIGNORE_TEXT.encode())


def append_line(ctx: Ctx, path: str, text: str, limit_bytes: int) -> None:
    """Whole lines of several processes; at the limit the file becomes `.1`. A failure costs the
    line. On POSIX one write to the end is atomic by itself, elsewhere it is locked."""
    if not may_write(ctx, path) or not make_folder(ctx, parent_of(path)):
        return
    try:
        if IS_POSIX and _append(ctx, path, text) <= limit_bytes:
            return
        with Lock(ctx, lock_path(ctx, path)) as lock:
            if not IS_POSIX:
                _append(ctx, path, text)
            if not lock.busy and _os.stat(path).st_size > limit_bytes:
                _insist(_os.replace, path, path + ".1")
    except OSError:
        pass


def _append(ctx: Ctx, path: str, text: str) -> int:
    """The size of the file now."""
    fd = _os.open(path, _WRITE_FLAGS | _os.O_APPEND | _NONBLOCK, 0o600)
    try:
        info, data = _os.fstat(fd), text.encode("utf-8", "replace")
        if not is_regular(info):
            return 0
        if not info.st_size:
            _give_owner(ctx.owner, fd)
            write_gitignore(ctx)
        if info.st_mode & 0o077 and IS_POSIX:
            _os.fchmod(fd, 0o600)  # one that came with a clone
        write_all(fd, data)
        return info.st_size + len(data)
    finally:
        _os.close(fd)


class Lock:
    """`with Lock(ctx, path) as lock`: `lock.busy` means that another process kept it for the whole
    wait. Where no lock file can be made (read-only folder) or the file system has no locks, work
    goes on without."""

    __slots__ = ("ctx", "path", "fd", "busy")

    def __init__(self, ctx: Ctx, path: str) -> None:
        self.ctx, self.path, self.fd, self.busy = ctx, path, -1, False

    def __enter__(self) -> "Lock":
        deadline, pause_s = time.monotonic() + LOCK_WAIT_S, 0.0005
        if not may_write(self.ctx, self.path) or (not IS_POSIX and is_dir(self.path)):
            return self  # asked once: on Windows every look keeps a lock file from going
        if not IS_POSIX:
            _drop_left_lock(self.path)
        while not self._try():
            if time.monotonic() > deadline:
                self.busy = True
                break
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.01)
        return self

    def __exit__(self, *_) -> None:
        if self.fd >= 0:
            _os.close(self.fd)
            self.fd = -1

    def _try(self) -> bool:
        """True: go on, with or without a lock; False: somebody has it."""
        try:
            if self.fd < 0:
                self.fd = self._open()
            if not hasattr(_os, "lockf"):
                return True  # on Windows the file itself is the lock
            _os.lockf(self.fd, _os.F_TLOCK, 0)  # built in, while fcntl is a library to load
            if _os.fstat(self.fd).st_nlink:
                return True
        except FileNotFoundError:
            return not make_folder(self.ctx, parent_of(self.path))
        except (BlockingIOError, FileExistsError, PermissionError):
            return IS_POSIX and self.fd < 0  # held, or a file that cannot be made
        except (OSError, ValueError):
            return True  # no locks on this file system
        self.__exit__()  # cleanup removed the file while we waited: lock its successor
        return False

    def _open(self) -> int:
        """On Windows a refused lock sleeps for a second in the C runtime; a file that only one can
        make and that goes with its maker does the same at once."""
        flags, owner = _os.O_RDWR | _os.O_CREAT | _NOFOLLOW | _CLOSED, self.ctx.owner
        if not IS_POSIX:
            return _os.open(self.path, flags | _os.O_EXCL | _os.O_TEMPORARY, 0o600)
        fd = _os.open(self.path, flags, owner.st_mode & 0o666)
        _give_owner(owner, fd)
        return fd


def _drop_left_lock(path: str) -> None:
    """On Windows a lock file goes with its maker; one that nobody has open was left on this disk by
    another system, such as WSL. Opened alone or not at all, and gone when closed."""
    import _winapi

    delete, alone, existing, delete_on_close = 0x10000, 0, 3, 0x4000000
    try:
        _winapi.CloseHandle(
            _winapi.CreateFile(path, delete, alone, 0, existing, delete_on_close, 0))
    except OSError:
        pass  # there is none, or somebody has it


def lock_path(ctx: Ctx, path: str) -> str:
    name = base_name(path)
    return ctx.path("state", (name[:-5] if name.endswith(".json") else name) + ".lock")


def load_json(path: str, follow: bool = True) -> "dict | None":
    """The object in the file; {} when there is no file; None when it is corrupt or unreadable."""
    return _parse_state(path, read_bytes(path, STATE_LIMIT_BYTES, follow))


def _parse_state(path: str, data: "bytes | None") -> "dict | None":
    if data is None and is_missing(path):
        return {}
    try:
        value = parse_json(data or b"")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_json(path: str) -> dict:
    """For looking only: whatever is wrong counts as empty."""
    return load_json(path) or {}


def update_json(ctx: Ctx, path: str, change, schema: tuple = ()) -> tuple:
    """Locked read-modify-write: `change(data)` edits the object, or the record of the schema, in
    place. (whether it stands on disk now, what `change` returned); (False, None): never called.
    What cannot be used is set aside and begun anew."""
    with Lock(ctx, lock_path(ctx, path)) as lock:
        if lock.busy:
            return False, None
        before = read_bytes(path, STATE_LIMIT_BYTES, follow=False)
        data = _parse_state(path, before)
        if data is None:
            info = stat_of(path, follow=False)
            if before is None and is_regular(info) and not is_own(info):
                return False, None  # another user's in a shared checkout: not ours to replace
            set_aside(ctx, path)
        state = load_record(data, schema) if schema else data or {}
        result = change(state)
        try:
            after = format_json(dump_record(state, schema) if schema else state).encode()
        except (ValueError, TypeError):  # nested too deeply: it must not fail every later call
            set_aside(ctx, path)
            return False, result
        return after == before or write_bytes(ctx, path, after), result


def set_aside(ctx: Ctx, path: str) -> str:
    """Move what cannot be used out of the way, the oldest of many go; the new path or ""."""
    if not may_write(ctx, path):
        return ""
    folder = ctx.path("state", "aside")
    stamp = format_iso(time.time(), True).replace(":", "")
    target = "%s/%s-%d.%s" % (folder, stamp, _os.getpid(), base_name(path))
    make_folder(ctx, folder)
    try:
        _insist(_os.rename, path, target)
    except OSError:
        return ""
    for name in list_dir(folder)[:-ASIDE_KEEP]:
        remove_file(folder + "/" + name)
    return target

# =============================================================================
# Config
# =============================================================================
# .contextrc is a small YAML subset: nested mappings by indentation, scalars, [inline, lists],
# dash lists, 'quotes', "quotes", # comments, CRLF, BOM. A bad line is reported with line and
# column and skipped, never fatal.
#
#     gate:
#       mode: content          # directive | content | off
#       files: [TASKS.md, "NOTES.md"]


SETTINGS = (  # key, default, kind (a word, a tuple: one of these, a list: some of these), meaning
    ("context_dir", DEFAULT_CONTEXT_DIR, "path", "folder of the context files, below the project"),
    ("allow_outside", False, "bool",
     "the user's own file only: paths named there may lead out of the project"),
    ("gate.mode", "directive", ("directive", "content", "off"),
     "name the context files, or put their text in"),
    ("gate.files", list(CONTEXT_FILES), "names",
     "context files in order of priority, seen from `context_dir`"),
    ("gate.message", "", "text", "own wording of the gate; `{files}` is filled in"),
    ("monitor.inject_min_severity", "warning", SEVERITIES, "signals below this stay on disk"),
    ("monitor.inject_at", ["prompt", "tool"], ["prompt", "tool"],
     "when signals reach the agent: with a prompt, with a tool result"),
    ("monitor.notify", "off", ("off", "bell", "desktop"),
     "how else the person learns of a critical signal"),
    ("monitor.context_window", 0, "count", "size of the context window in tokens; 0 finds out"),
    ("handoff.enabled", True, "bool", "ask for a handoff near the limit, and write one without it"),
    ("handoff.threshold", "auto", "threshold",
     "percent of the window from which on the handoff is asked for; `auto` minds the compaction"),
    ("handoff.file", ".context/handoffs/{session}.md", "path",
     "where the agent writes the handoff"),
    ("handoff.cooldown_s", 0, "count", "seconds between two reminders; 0: after every tool call"),
    ("handoff.command", "", "text", "a command that writes the handoff, named in the reminder"),
    ("audit.stale_days", 14, "count",
     "remind when no context file was touched for so many days; 0 never"),
    ("startup.enabled", True, "bool", "deliver the handoff and `startup.files` to new sessions"),
    ("startup.files", [], "paths", "more files to deliver, in order of priority"),
    ("startup.max_age_hours", 72, "count", "an older handoff is not delivered"),
    ("startup.budget_chars", 4000, "count", "room for the startup context, at most 9000"),
    ("startup.require_ack", True, "bool", "ask for an acknowledgement"),
    ("startup.ack_patterns", [r"ACK:\s*context received"], "list",
     "regular expressions, any letter case"),
    ("startup.retry_backoffs_s", [1, 2, 5, 10, 30], "counts", "seconds to wait after each attempt"),
    ("startup.max_attempts", 5, "count", "attempts before giving up"),
    ("startup.file_fallback_after_attempts", 3, "count",
     "attempts before `startup.fallback_file` is written"),
    ("startup.fallback_file", "auto", ("auto",) + INSTRUCTION_FILES,
     "gets the marked section without evidence; `auto`: the file that the client reads"),
    ("startup.notify_on_failure", True, "bool",
     "say where the context is when that cannot be written either"),
    ("auto.phases", [], "list", "the project's own phases instead of the nine"),
    ("auto.about", {}, "table", "`auto.about.<phase>`: a sentence on what the phase is about"),
    ("auto.done_when", {}, "table",
     "`auto.done_when.<phase>`: a command that must exit 0 for the phase to be complete"),
    ("auto.check_timeout_s", 120, "count", "seconds for such a command"),
    ("wrap.ready_patterns", [], "list", "regular expressions of a prompt that is ready for input"),
)
DEFAULTS = {key: default for key, default, _, _ in SETTINGS}
_KINDS = {key: kind for key, _, kind, _ in SETTINGS}
_WANTED = {  # what a kind is called in a problem
    "bool": "true or false", "count": "a number from 0", "text": "a text", "path": "a path",
    "threshold": "`auto` or a number from 1 to 100", "paths": "a list of paths",
    "names": "a list of paths", "list": "a list of texts", "table": "entries below it",
    "counts": "a list of numbers from 0", tuple: "one of ", list: "some of ",
}
_ITEMS = {"paths": "path", "names": "path", "list": "text", "counts": "count"}
_LINE_LIMIT = 8192


def parse_config(text: str, is_user: bool = False) -> tuple:
    """(values by dotted key, problems) of a .contextrc; only known keys with values of their kind
    remain. `is_user`: the user's own file, the only one that may allow paths outside."""
    pairs, problems = parse_yaml(text)
    given = {key: _checked(value, _KINDS[key]) for key, value, _, _ in pairs if (
        key in ("context_dir", "allow_outside") and _checked(value, _KINDS[key]) is not None)}
    folder = given.get("context_dir", DEFAULT_CONTEXT_DIR)
    outside = is_user and given.get("allow_outside")
    values: dict = {}
    for key, value, line, column in pairs:
        table, _, entry = key.rpartition(".")
        is_entry = _KINDS.get(table) == "table" and bool(entry)
        kind = "text" if is_entry else _KINDS.get(key)
        checked, problem = _checked(value, kind), ""
        if kind is None:
            near = near_word(key, _KINDS) if len(problems) < LIST_LIMIT else ""
            problem = "unknown setting `%s`" % key + ("; did you mean `%s`?" % near if near else "")
        elif key == "allow_outside" and not is_user:
            problem = "`allow_outside` counts only in the user's own contextrc"
        elif checked is None:
            choices = "" if isinstance(kind, str) else ", ".join(kind)
            problem = "`%s` wants %s" % (key, _WANTED[type(kind) if choices else kind] + choices)
        elif not outside and _leaves_project(checked, kind, folder):
            problem = "`%s` names a file outside the project" % key
        elif key == "handoff.file" and checked != OLD_HANDOFF and (
                checked.lower().startswith((".git/", ".claude/"))):
            problem = "`handoff.file` lies where nothing is delivered from"
        if problem:
            problems.append((line, column, problem))
        elif is_entry:
            values.setdefault(table, {})[entry] = checked
        else:
            values[key] = checked
    return values, sorted(problems)[:LIST_LIMIT]


def near_word(word: str, known: object) -> str:
    """The known word that differs in one place by at most two letters, or "". (`difflib` would cost
    every hook of a project with one mistyped setting.)"""
    for other in known:
        least, most = sorted((len(word), len(other)))
        same = end = 0
        while same < least and word[same] == other[same]:
            same += 1
        while end < least - same and word[-1 - end] == other[-1 - end]:
            end += 1
        if most - same - end <= 2 < least:
            return other
    return ""


def parse_yaml(text: str) -> tuple:
    """([(dotted key, value, line, column)], problems). Never raises."""
    pairs, problems, prefixes = [], [], [(-1, "")]  # the open mappings: indent, dotted prefix
    head, items = None, []  # the last key when it has no value, and the dash list below it
    for number, line in enumerate(text.lstrip("\ufeff").replace("\r\n", "\n").split("\n"), 1):
        body, key, rest, problem = _split_line(line)
        indent, dotted = len(body) - len(body.lstrip(" ")), key
        column = indent + 1
        if key == "-" and (head is None or column < head[2]):
            problem = "list item without a key above it"
        elif key and key != "-":
            while indent <= prefixes[-1][0]:
                prefixes.pop()
            head, items, dotted = None, [], prefixes[-1][1] + key
        value, error = parse_scalar(rest.strip())
        if problem or error:
            place = column if problem else len(body) - len(rest.lstrip()) + 1
            problems.append((number, place, problem or error))
        elif key == "-":
            if not items:
                pairs.append((head[0], items, head[1], head[2]))
            items.append(value)
        elif rest.strip():
            pairs.append((dotted, value, number, column))
        elif key:
            prefixes.append((indent, dotted + "."))
            head = (dotted, number, column)
    return pairs, problems


def _split_line(line: str) -> tuple:
    """(the line without its comment, key, text of the value, problem); the key of a list's item is
    a dash, of a line that says nothing ""."""
    if len(line) > _LINE_LIMIT:
        return "", "", "", "line is too long"
    body = strip_comment(line).rstrip()
    bare = body.lstrip(" ")
    if not bare or body in ("---", "..."):
        return body, "", "", ""
    if bare[0] == "\t":
        return body, "", "", "tab in the indentation; use spaces"
    if bare == "-" or bare.startswith("- "):
        return body, "-", bare[1:], ""
    key, colon, rest = bare.partition(":")
    key = key.strip().strip("'\"")
    is_pair = colon and key and rest[:1] in ("", " ")
    return (body, key, rest, "") if is_pair else (body, "", "", "expected `key: value`")


def strip_comment(line: str) -> str:
    """The line without its `# comment`, which starts the line or follows a blank."""
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
    """(value, error) of a scalar or an inline list. Only true and false are booleans: `off` is a
    string."""
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
    if is_digits(number):
        return int(text), ""
    whole, dot, fraction = number.partition(".")
    if dot and is_digits(whole) and is_digits(fraction):
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
    items, start = [], 1
    while True:
        end = start + len(text[start:]) - len(text[start:].lstrip())
        if text[end:end + 1] in ("'", '"'):
            end = _quote_end(text, end)
            if end < 0:
                return None, "quote is not closed"
        while end < len(text) and text[end] not in ",]":
            end += 1
        if end == len(text):
            return None, "list is not closed"
        piece = text[start:end].strip()
        value, error = parse_scalar(piece)
        if error:
            return None, error
        items += [value] if piece else []
        start = end + 1
        if text[end] == "]":
            return (items, "") if start == len(text) else (None, "text after the closing bracket")


def _checked(value: object, kind: object) -> object:
    """The value when it is of the kind, made exact; None otherwise."""
    if isinstance(kind, tuple):
        word = str(value).lower()
        return next((choice for choice in kind if choice.lower() == word), None)
    if kind == "bool":
        words = {"on": True, "yes": True, "off": False, "no": False}
        return value if isinstance(value, bool) else words.get(str(value).lower())
    if kind == "threshold":
        return value if value == "auto" or is_count(value) and 1 <= value <= 100 else None
    if kind == "count":
        return value if is_count(value) and value < 1e12 else None
    if kind in ("text", "path"):
        is_odd = kind == "path" and not (value and str(value).isprintable())  # shown to the agent
        return None if value is None or isinstance(value, list) or is_odd else str(value)
    inner = tuple(kind) if isinstance(kind, list) else _ITEMS.get(kind)
    items = value if isinstance(value, list) else [value]
    checked = [_checked(item, inner) for item in items[:LIST_LIMIT]] if inner else [None]
    if None in checked:
        return None
    return checked if kind == "counts" else list(dict.fromkeys(checked))


def _leaves_project(value: object, kind: object, folder: str) -> bool:
    """By its text alone; links are looked at when the file is."""
    if kind not in ("path", "paths", "names"):
        return False
    base = join_path("/r", folder) if kind == "names" else "/r"
    return any(is_absolute(name) or name.startswith("~")
               or not is_below(join_path(base, slashed(name)), "/r")
               for name in (value if isinstance(value, list) else [value]))

# =============================================================================
# Project
# =============================================================================
# The root is the folder that the client was started in or its nearest parent with a context
# folder; a parent's must belong to this user or to root. No root: nothing happens. Whatever the
# project's files name, read_shared decides what can reach the agent.
SESSION = (  # .context/state/<session>.json: key, default, kind
    ("session_start", 0.0, "time"), ("agent", "claude", str),
    ("estimated_tokens", 0, "count"), ("window", 0, "count"), ("exact", False, bool),
    ("model", "", str), ("measured_model", "", str), ("settings_model", "", str),
    ("settings_read", False, bool), ("compact_window", 0, "count"), ("compacts", True, bool),
    ("large_model", "", str), ("tool_calls", 0, "count"), ("last_call", 0.0, "time"),
    ("breakdown", {}, dict), ("history", [], list), ("files_read", [], "texts"),
    ("recent", [], list), ("edits", 0, "count"), ("seen_calls", [], "texts"),
    ("audited", [], list), ("looked", {}, dict), ("delivered", {}, dict),
    ("threshold_crossed_at", 0.0, "time"), ("handoff_complete", False, bool),
    ("handoff_before", [], "texts"), ("handoff_told", "", str), ("write_denied", False, bool),
    ("reminded_batch", "", str), ("reminded_at", 0.0, "time"), ("reminders", 0, "count"),
    ("client", "", str), ("transcript", "", str),
    ("compacted_at", 0.0, "time"),
    ("workflow_told", "", str),
    ("startup", None, (
        ("message_id", "", str), ("handoff", "", str), ("kind", "", str), ("attempts", 1, "count"),
        ("first_at", 0.0, "time"), ("last_at", 0.0, "time"), ("offset", 0, "count"),
        ("answer_to", "", str), ("answered", False, bool), ("receipt_at", 0.0, "time"),
        ("acked_at", 0.0, "time"), ("outcome", "pending", str),
    )),
)
_SECRETS = (".env", "id_", ".netrc", "credentials")
_SECRET_ENDS = (".pem", ".key", ".kdbx")


def find_project(start: str, cwd: str, env: dict) -> "Ctx | None":
    """The project of a hook event, or None: `start` is where the client was started, the event's
    cwd counts only where that is not told."""
    folder = start if is_absolute(start) else cwd
    if not is_absolute(folder):
        return None
    folder, below, own = join_path(folder, "."), "", _read_own(env)
    for _ in range(PARENT_LIMIT):
        ctx = open_project(folder, env, own)
        if ctx:
            is_good = not below or (is_trusted(ctx.dir) and is_trusted(config_path(folder)))
            return ctx if is_good else None
        folder, below = parent_of(folder), folder
        if folder == below:
            break
    return None


def _read_own(env: dict) -> dict:
    """The user's own settings for all projects."""
    own, _ = read_config(user_config_path(env), is_user=True)
    for key in {"gate.files", "startup.files"}.intersection(own):
        own[key] = [home_of(env) + name[1:] if name[:2] == "~/" else name for name in own[key]]
    return own


def open_project(root: str, env: dict, own: "dict | None" = None) -> "Ctx | None":
    """The project at exactly this folder, with its settings read; `own` are the user's."""
    values, problems = read_config(config_path(root))
    own = _read_own(env) if own is None else own
    config = {**DEFAULTS, **own, **values}
    ctx = Ctx(root, join_path(root, config["context_dir"]), config, problems)
    ctx.owner, ctx.env = stat_of(ctx.dir), env
    if not (ctx.owner and is_dir(ctx.dir)) or _is_private(name_inside(ctx.dir, root)) or any(
            map(is_link, map(ctx.path, RUNTIME_FOLDERS))):
        return None  # a stranger's repository must not decide where we write
    config["outside"] = ()
    if own.get("allow_outside"):  # what the user's own file names, and nothing that a project adds
        named = [join_path(ctx.dir, name) for name in own.get("gate.files", ())]
        named += [join_path(root, name) for name in own.get("startup.files", ())]
        config["outside"] = tuple(path for path in named if not is_below(path, root))
    return ctx


def read_config(path: str, is_user: bool = False) -> tuple:
    """(settings, problems) of a contextrc; both empty when there is none."""
    data = read_bytes(path, CONFIG_LIMIT_BYTES) if path else None
    return parse_config(data.decode("utf-8", "replace"), is_user) if data else ({}, [])


def config_path(root: str) -> str:
    return root.rstrip("/") + "/" + CONFIG_NAME


def home_of(env: dict) -> str:
    home, profile = env.get("HOME"), env.get("USERPROFILE")
    return native_path((home or profile if IS_POSIX else profile or home) or "")


def user_config_path(env: dict) -> str:
    base = user_folder(env, "XDG_CONFIG_HOME", "APPDATA", "/.config")
    return base + "/ctx_hooks/contextrc" if base else ""


def state_home_of(env: dict) -> str:
    """Where lies what a clone must not be able to forge; "" when the user has no such place."""
    base = user_folder(env, "XDG_STATE_HOME", "LOCALAPPDATA", "/.local/state")
    return base + "/ctx_hooks" if base else ""


def user_folder(env: dict, variable: str, windows: str, usual: str) -> str:
    """What the variable names, where that is absolute, else the usual place; "" without a home."""
    named, home = native_path(env.get(variable if IS_POSIX else windows, "")), home_of(env)
    if is_absolute(named):
        return named
    return home + usual if is_absolute(home) else ""


def is_trusted(path: str) -> bool:
    """What is there, and the link to it if it is one, belongs to this user or to root."""
    if not IS_POSIX:
        return is_missing(path) or _is_own_on_windows(path)
    found = [info for info in (stat_of(path), stat_of(path, follow=False)) if info is not None]
    return all(info.st_uid in (0, _os.geteuid()) for info in found)


def _is_own_on_windows(path: str) -> bool:
    """The owner is this user, the administrators or the system; False when that cannot be told.
    Only for a folder above the one that the client was started in."""
    import ctypes

    advapi, kernel = ctypes.WinDLL("advapi32"), ctypes.WinDLL("kernel32")
    pointer, handle = ctypes.c_void_p, ctypes.c_void_p
    kernel.GetCurrentProcess.restype = handle
    advapi.OpenProcessToken.argtypes = [handle, ctypes.c_uint32, pointer]
    advapi.GetTokenInformation.argtypes = [handle, ctypes.c_int, pointer, ctypes.c_uint32, pointer]
    advapi.GetNamedSecurityInfoW.argtypes = [
        ctypes.c_wchar_p, ctypes.c_int, ctypes.c_uint32] + [pointer] * 5
    advapi.EqualSid.argtypes = [pointer, pointer]
    advapi.IsWellKnownSid.argtypes = [pointer, ctypes.c_int]
    owner, descriptor, token = pointer(), pointer(), handle()
    if advapi.GetNamedSecurityInfoW(path, 1, 1, ctypes.byref(owner), None, None, None,
                                    ctypes.byref(descriptor)):
        return False
    if advapi.IsWellKnownSid(owner, 26) or advapi.IsWellKnownSid(owner, 22):
        return True
    if not advapi.OpenProcessToken(kernel.GetCurrentProcess(), 8, ctypes.byref(token)):
        return False
    buffer, size = ctypes.create_string_buffer(256), ctypes.c_uint32()
    if not advapi.GetTokenInformation(token, 1, buffer, len(buffer), ctypes.byref(size)):
        return False
    return bool(advapi.EqualSid(ctypes.cast(buffer, ctypes.POINTER(pointer))[0], owner))


def _is_private(name: str) -> bool:
    """Seen from the root: outside, git's, the client's or a secret, as a case-insensitive file
    system would compare it."""
    parts = [part.rstrip(". ") or part for part in name.casefold().split("/")]
    is_secret = parts[-1].startswith(_SECRETS) or parts[-1].endswith(_SECRET_ENDS)
    is_clients = ".claude" in parts and "/".join(parts) != OLD_HANDOFF
    has_alias = not IS_POSIX and any(
        ":" in part or is_digits(part.rpartition("~")[2].partition(".")[0]) for part in parts)
    return not name or ".git" in parts or is_clients or is_secret or has_alias


def read_shared(ctx: Ctx, path: str, limit_bytes: int = FILE_LIMIT_BYTES) -> "bytes | None":
    """The bytes of a file whose text may reach the agent, else None: by its name and by the one it
    has with all links resolved."""
    if path in ctx.get("outside"):
        return read_bytes(path, limit_bytes)
    name = name_inside(path, ctx.root) if is_below(path, ctx.root) else ""
    if _is_private(name) or _is_private(path[len(ctx.root):].lstrip("/")):
        return None
    return read_open(open_regular(name, base=ctx.root), limit_bytes)


def session_file(ctx: Ctx, session: str) -> str:
    return ctx.path("state", session + ".json")


def read_session(ctx: Ctx, session: str) -> Record:
    """For looking only."""
    return load_record(read_json(session_file(ctx, session)), SESSION)


def update_session(ctx: Ctx, session: str, change) -> tuple:
    """Locked: `change(state)` edits the record; (whether it stands on disk, its result)."""

    def begin(state: Record) -> object:
        state.session_start = state.session_start or ctx.now
        state.agent = ctx.agent
        return change(state)

    return update_json(ctx, session_file(ctx, session), begin, SESSION)


def signal_dir(ctx: Ctx, session: str) -> str:
    if not session:
        return ctx.path("signals", "global")
    return ctx.path("signals", "sessions", session)


def marker_path(ctx: Ctx, session: str, prefix: str = MARKER_PREFIX) -> str:
    return ctx.tmp.rstrip("/") + "/" + prefix + session


def shown_path(ctx: Ctx, path: str, cwd: str) -> str:
    """Relative to the root for a session that stands there, absolute for one that does not."""
    inside = is_below(path, ctx.root) and join_path(cwd or ctx.root, ".") == ctx.root
    return path[len(ctx.root.rstrip("/")) + 1:] if inside else path


def is_switched_off(env: dict) -> bool:
    return env.get("CTX_HOOKS_DISABLE", "") not in ("", "0")


def is_paused(ctx: Ctx, session: str) -> bool:
    """`pause` writes {"<session>" or "*": ISO time or null} into one small file."""
    pauses = read_pauses(ctx)
    return any(key in pauses and is_open_pause(pauses[key], ctx.now) for key in (session, "*"))


def read_pauses(ctx: Ctx) -> dict:
    """A file that came with a clone has another inode in it and counts for nothing."""
    pauses = read_json(ctx.path("state", "pause.json"))
    return pauses if pauses.pop("inode", 0) == ctx.owner.st_ino else {}


def is_open_pause(until: object, now: float) -> bool:
    """null: until `resume`. What is no time at all pauses nothing: a broken file must not silence
    for ever."""
    return until is None or now < (parse_iso(until) or 0)

# =============================================================================
# Recorder
# =============================================================================
# .context/events.jsonl: one line for each thing that was said or decided, with the reason. The
# error log takes the traceback of an internal error. Both are bounded.


def record(ctx: Ctx, event: str, **fields) -> None:
    """Append one line; a failure costs the line."""
    row = {"at": format_iso(ctx.now, True), "session": ctx.session, "mode": ctx.mode,
           "agent": ctx.agent, "event": event}
    row.update(fields)
    append_line(ctx, ctx.path("events.jsonl"), format_json(row) + "\n", EVENTS_LIMIT_BYTES)


def log_error(ctx: Ctx, text: str) -> None:
    path = ctx.path("state", "errors.log")
    append_line(ctx, path, text[-ERRORS_LIMIT_BYTES // 4:], ERRORS_LIMIT_BYTES)


def read_events(ctx: Ctx, limit: int) -> list:
    """The last rows of the recorder, oldest first."""
    lines: list = []
    for name in ("events.jsonl.1", "events.jsonl"):
        lines += (read_bytes(ctx.path(name), EVENTS_LIMIT_BYTES * 2, False) or b"").split(b"\n")
    rows = [row for row in map(parse_object, lines[-limit * 2 - 2:]) if row]
    return rows[-limit:]

# =============================================================================
# Text
# =============================================================================
# What reaches the agent is counted as the client counts it, has no control characters, no tags
# that imitate a client's own markup and no lines that pose as somebody's turn: clean_text. What
# reaches a terminal goes through for_terminal, what is written down through hide_secrets.
CLEANED_LIMIT = 200_000  # text is cut before it is cleaned
_MARKUP = frozenset(
    "system systemreminder systemmessage tasknotification commandname commandmessage commandargs "
    "localcommandstdout localcommandstderr localcommandcaveat userpromptsubmithook bashinput "
    "bashstdout bashstderr user human assistant functioncalls functionresults invoke tooluse "
    "toolresult antml thinking hookcontext hookprompt hookresult functioncall functionresult "
    "tooluseerror ideselection ideopenedfile newdiagnostics persistedoutput teammatemessage "
    "sessionstarthook posttoolusehook pretoolusehook stophook startofturn endofturn "
    "toolcall toolresponse developer systemwarning".split())
_MARKS = frozenset("inst availabletools toolcalls toolresults systemprompt".split())  # [INST]
_TYPES = frozenset("System User Human Assistant".split())  # in code: List<User>
_TURNS = ("human", "user", "assistant", "system", "developer")
_UNSEEN = frozenset("\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u3164\ufeff\uffa0")
_USUAL = frozenset(map(chr, range(32, 127))) | frozenset("\t\n→⚠\ufe0f•…—–·’")
_BRACKETS = dict(zip(map(ord, "＜﹤〈⟨＞﹥〉⟩［］"), "<<<<>>>>[]"))
_AROUND = " \t#*_`-+=~|.()[]{}0123456789"  # what may stand before the name of a turn
_LETTERS, _LATIN = (  # of other scripts, and two colons, and what they look like
    "аеорсухѕіјԁһкмтнвѵԝοανρτυιεκμχβζηɑᴀʙᴄᴅᴇɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏ꞉∶",
    "aeopcyxsijdhkmthbvwoanptuiekmxbzhaabcdeghijklmnoprstuvwy::")
_ALIKE = str.maketrans(_LETTERS.upper() + _LETTERS + "ΥУ", _LATIN.upper() + _LATIN + "YY")


def units(text: str) -> int:
    """Length as most clients count it: UTF-16 units."""
    return len(text) if text.isascii() else len(text) + sum(map("\uffff".__lt__, text))


def cut_text(text: str, limit: int, length: object = units) -> str:
    """The text when it fits, else its beginning, cut at a line or a word where one is near."""
    limit = max(limit, 0)
    if length(text) <= limit:
        return text
    text = text[:limit]
    while text and length(text) > limit:
        text = text[: len(text) - max(1, (length(text) - limit) // 4)]
    edge = max(text.rfind("\n"), text.rfind(" "))
    return text[:edge] if edge > len(text) * 3 // 4 else text


def clean_text(text: str) -> str:
    """Without control characters, direction overrides, lone surrogates, imitated markup and lines
    that pose as a turn. What is clean stays as it is."""
    text = text[:CLEANED_LIMIT]
    if not _USUAL.issuperset(text):
        text = for_terminal(text.replace("\r\n", "\n"))
        if not _BRACKETS.keys().isdisjoint(map(ord, set(text))):
            text = text.translate(_BRACKETS)
    for _ in range(4):  # a removed tag may have completed another one
        stripped = _strip_tags(text, "<") if "<" in text else text
        stripped = _strip_tags(stripped, "[") if "[" in stripped else stripped
        if stripped == text:
            return _quote_turns(text)
        text = stripped
    return _quote_turns(text.replace("<", "‹").replace("[", "("))  # nested on purpose


def for_terminal(text: str) -> str:
    """What people see: no control characters but line ends and tabs, no moves of the cursor."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    for char in filter(_is_unseen, set(text)):
        text = text.replace(char, "")
    return text


def one_line(text: str, limit: int = 200) -> str:
    """For a line shown to somebody: cleaned, blanks folded, cut."""
    return cut_text(" ".join(clean_text(text[:limit * 8]).split()), limit)


def _is_unseen(char: str) -> bool:
    """A control character, a direction override, or a letter that only a model sees."""
    return (char < " " and char not in "\t\n") or "\x7f" <= char < "\xa0" or char in _UNSEEN or (
        "\u2028" <= char <= "\u202e" or "\u2060" <= char <= "\u206f"
        or "\ufe00" <= char <= "\ufe0e" or "\ufff9" <= char <= "\ufffb"
        or "\U000e0000" <= char <= "\U000e01ef")


def _quote_turns(text: str) -> str:
    """A line that poses as the beginning of somebody's turn is shown as a quotation."""
    lowered = text.lower() if text.isascii() else _folded(text).lower()
    if not any(turn in lowered for turn in _TURNS):
        return text
    lines = text.split("\n")
    for index, line in enumerate(lines):
        name, colon, _ = _folded(line[:60]).partition(":")
        name = name.lstrip(_AROUND)
        if colon and name[:1] not in ("'", '"', ">") and _squashed(name) in _TURNS:
            lines[index] = "> " + line
    return "\n".join(lines)


def _folded(text: str) -> str:
    """As somebody reads it: other letter forms and accents become the usual letters, joiners are
    passed over."""
    if _USUAL.issuperset(text):  # our own signs among them: no library to load for a reply
        return text.encode("ascii", "ignore").decode()
    from unicodedata import normalize

    return normalize("NFKD", text).translate(_ALIKE).encode("ascii", "ignore").decode()


def _strip_tags(text: str, bracket: str) -> str:
    out, pos = [], 0
    while True:
        start = text.find(bracket, pos)
        if start < 0:
            return "".join(out) + text[pos:]
        end = _tag_end(text, start) if bracket == "<" else _mark_end(text, start)
        out.append(text[pos:start] if end else text[pos:start + 1])
        pos = end or start + 1


def _tag_end(text: str, start: int) -> int:
    """The end of a tag with one of the names that begins here, whatever stands between its letters;
    0: there is none. Of one that is not closed the bracket goes."""
    before, end = text[start - 1:start], max(text.find(">", start, start + 300), start) + 1
    if text.startswith("<<", start) and text.startswith(">>", end - 1):
        return end + 1 if _squashed(text[start + 2:end - 1]) == "sys" else 0
    written = text[start + 1:start + 80].partition(">")[0].partition("<")[0]
    inner = _folded(written)
    if inner.startswith("|"):
        return end  # <|im_start|>: other models' marks of a turn
    if written.partition(",")[0] in _TYPES and (before.isalnum() or before == "_"):
        return 0
    words = "".join(c if c.isalnum() or c in "-_.:" else " " for c in inner.lower()).split()
    names = words[0].split(":") if words else []
    for count in range(1, len(words) + 1):
        names.append("".join(words[:count]))
    squashed = set(map(_squashed, names))
    squashed.update([name.rstrip("0123456789s") for name in squashed])
    return 0 if _MARKUP.isdisjoint(squashed) else end


def _mark_end(text: str, start: int) -> int:
    """The same for other models' marks of a turn in square brackets; `regs[inst]` is none."""
    end = text.find("]", start, start + 40) + 1
    is_index = (text[start - 1:start].isalnum() or text[start - 1:start] == "_") and (
        text[start + 1:end - 1].islower())
    return end if end and not is_index and _squashed(text[start + 1:end - 1]) in _MARKS else 0


def _squashed(text: str) -> str:
    """Its letters and digits as somebody reads them."""
    return "".join(filter(str.isalnum, _folded(text).lower()))


def hide_secrets(text: str) -> str:
    """Keys, tokens and passwords that stand in what was said are not written down again."""
    import re

    # every repetition is bounded or begins at a word of its own: the text can be half a megabyte
    value = r"(?:\"[^\"\n]{4,}\"|'[^'\n]{4,}'|`[^`\n]{4,}`|[\"']?[^\s\"'`,;]{%d,})"
    password = r"(?:secret|passw(?:or)?d|pwd|passphrase|[_-]pass"
    about = (r"(?!(?:required|missing|wrong|invalid|correct|incorrect|empty|needed|expired|valid|"
             r"known|not|too|that|the)\b)")
    shapes = (
        (r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*KEY-----|\Z)", "[hidden]"),
        (r"(?i)\b(bearer|basic|authorization:\s*token)\s+[\w.~+/=-]{8,}", r"\1 [hidden]"),
        (r"\b(sk[-_]|rk_live_|gh[oprsu]_|github_pat_|xox[abprs]-|xapp-|AKIA|ASIA|AIza|glpat-|hf_|"
         r"npm_|SG\.|eyJ|dckr_pat_|dop_v1_|ya29\.|AGE-SECRET-KEY-)[\w.-]{8,}", "[hidden]"),
        (r"(?i)((?<![\w-])--?[\w-]{0,30}" + password + r"|token|api-?key)(?:\s+|=))" + value % 1,
         r"\1[hidden]"),
        (r"(\s(?:--user|-u)[ =][^\s:]+:)\S+", r"\1[hidden]"),
        (r"(?i)(" + password + r"|key|token)[\w-]{0,20}[\"']?\s*[=:]\s*)" + value % 6,
         r"\1[hidden]"),
        (r"(?i)(" + password + r") (?:is|was):?\s+)" + about + value % 4, r"\1[hidden]"),
        (r"(\w://[^\s:/@]*:)[^\s@/]+@", r"\1[hidden]@"),
    )
    for pattern, shown in shapes:
        text = re.sub(pattern, shown, text)
    return text

# =============================================================================
# Clients
# =============================================================================
# The only place that knows the clients' JSON: event names and fields, tool names, transcript rows,
# reply shapes, variables. Each client is a row of DIALECTS; the rest of the file speaks our words.
TOOL_KINDS = {  # what a tool does, by its name in any client
    "read": "read notebookread read_file view read_many_files",
    "edit": "write edit multiedit notebookedit write_file replace apply_patch create str_replace "
            "applypatch create_file replace_string_in_file insert_edit_into_file",
    "run": "bash powershell run_shell_command execute shell exec_command run_in_terminal",
    "poll": "bashoutput taskoutput killshell taskstop monitor schedulewakeup sleep wait "
            "wait_for browser_wait_for listagents read_bash stop_bash write_stdin wait_agent",
    "ask": "askuserquestion exitplanmode enterplanmode ask_user",
    "note": "todowrite taskcreate taskupdate tasklist taskget write_todos todo_write update_plan "
            "todoread",
    "agent": "agent task spawn_agent",
}
_KIND_OF = {name: kind for kind, names in TOOL_KINDS.items() for name in names.split()}
TOOL_WEIGHTS = {"read": 1.1, "edit": 0.3}
USAGE_KEYS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
USUAL_EVENTS = {"inject": "UserPromptSubmit", "gate": "PreToolUse", "monitor": "PostToolUse",
                "stop-enforce": "Stop", "cleanup": "SessionEnd"}
FEEDBACK_SINCE = (2, 1, 163)  # from here on additionalContext at Stop is not shown as an error
MACHINE_PROMPT = "<task-notification>"
TRANSCRIPT_LATE_S, HOOK_START_S = 0.25, 0.1  # some clients write their transcript late
ENV_NAMES = (  # the variables we look at, and no others: the rest may hold secrets
    "CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "QWEN_PROJECT_DIR", "COPILOT_PROJECT_DIR",
    "DROID_PROJECT_DIR", "COPILOT_HOME", "CTX_HOOKS_DISABLE", "CTX_INJECT_MIN_SEVERITY",
    "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", "CLAUDE_CODE_SESSION_ATTENDED", "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "DISABLE_AUTO_COMPACT",
    "CLAUDE_PLUGIN_ROOT", "CLAUDE_PID", "CLAUDE_CONFIG_DIR", "AI_AGENT", "ANTHROPIC_MODEL", "HOME",
    "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TMPDIR", "TEMP",
)
AGENT_NAMES = (  # one of these stands in the environment of a command that an agent runs
    "CLAUDECODE", "AI_AGENT", "CODEX_CI", "CODEX_THREAD_ID", "COPILOT_CLI", "GEMINI_CLI",
    "QWEN_CODE")
EVENT = (  # what we look at of an event: key, default, kind
    ("theirs", "", str), ("session_id", "", str), ("cwd", "", str), ("transcript", "", str),
    ("prompt", "", str), ("prompt_id", "", str), ("by_person", True, bool), ("source", "", str),
    ("reason", "", str), ("tool", "", str), ("tool_input", {}, dict), ("tool_use_id", "", str),
    ("response_bytes", 0, "count"), ("last_message", "", str), ("stop_active", False, bool),
    ("permission_mode", "", str), ("tasks", [], list),
)
_NAMES = {  # Claude Code's names of them -> ours
    "hook_event_name": "theirs", "transcript_path": "transcript", "tool_name": "tool",
    "tool_response": "response", "last_assistant_message": "last_message",
    "stop_hook_active": "stop_active", "background_tasks": "tasks",
}
ROW = (  # of a transcript; its kind is answer, prompt, result, boundary, receipt or usage
    ("id", "", str), ("text", "", str), ("calls", [], list), ("results", [], list),
    ("tokens", 0, "count"), ("window", 0, "count"), ("model", "", str), ("done", False, bool),
    ("receipt", "", str),  # what it says that hooks put before the model, whatever its kind
    ("at", 0.0, "time"),
)


# --- events


def parse_event(data: object, mode: str, agent: str, env: dict) -> "Record | None":
    """The checked event in our words; None when it is no event of this client that we know."""
    if not isinstance(data, dict):
        return None
    dialect = DIALECTS[agent]
    names = {**_NAMES, **dialect.names}
    data = {names.get(key, key): value for key, value in data.items()}
    data = dialect.adapt(data, env) if dialect.adapt else data
    event = load_record(data, EVENT)
    name = dialect.events.get(event.theirs) if event.theirs else USUAL_EVENTS.get(mode, "")
    if data is None or not name:
        return None
    failed, tool, model = name == "PostToolUseFailure", event.tool[:80], data.get("model")
    vars(event).update(
        name=name, theirs=event.theirs or name, session=safe_name(event.session_id),
        cwd=slashed(event.cwd), agent_id=data.get("agent_id"), source=event.source or "startup",
        by_person=event.by_person and not event.prompt.startswith(MACHINE_PROMPT),
        attended=env.get("CLAUDE_CODE_SESSION_ATTENDED") != "0" or agent != "claude",
        model=text_of(dig(model, "id") or model), tool=tool or "?", kind=tool_kind(tool),
        path=touched_path(event.tool_input), failed=failed,
        response=data.get("error" if failed else "response"),
        subagents=any(dig(task, "type") != "shell" for task in event.tasks))
    return event


def tool_kind(tool: str) -> str:
    """read, edit, run, poll, ask, note, agent, or "" for every other tool."""
    return _KIND_OF.get(tool.lower().rpartition("__")[2], "")  # mcp__browser__wait_for


def touched_path(tool_input: dict) -> str:
    """The file that a call reads or edits, as the call names it."""
    for key in ("file_path", "path", "notebook_path", "absolute_path"):
        if isinstance(tool_input.get(key), str):
            return slashed(tool_input[key])
    patch = text_of(tool_input.get("command") or tool_input.get("input") or "")
    for mark in ("*** Update File: ", "*** Add File: "):
        if mark in patch:
            return slashed(patch.partition(mark)[2].partition("\n")[0].strip())
    return ""


def project_folder(agent: str, env: dict) -> str:
    """The folder that the client was started in; "" where it does not tell."""
    variable = DIALECTS[agent].project_variable
    return native_path(env.get(variable, "")) if variable else ""


def detect_agent(agent: str, data: object) -> str:
    """The registered word, with one exception: Copilot runs a project's `.claude/settings.json`,
    and the event's shape tells it."""
    if agent != "claude" or not isinstance(data, dict):
        return agent if agent in DIALECTS else "claude"
    path = text_of(data.get("transcript_path", "/session-state/"))  # named at some events only
    is_copilot = "timestamp" in data and "permission_mode" not in data and "/session-state/" in path
    return "copilot" if is_copilot or "sessionId" in data else "claude"


# --- what of a call the model sees


def command_of(event: Record) -> str:
    """What a call does is told by its beginning."""
    command = event.tool_input.get("command") or event.tool_input.get("cmd")
    command = " ".join(map(str, command)) if isinstance(command, list) else text_of(command)
    return command[:8000]


def estimate_tokens(event: Record) -> int:
    """What one call adds: its input, an overhead, and the part of the response that is seen."""
    chars = _chars(visible_response(event), 6)
    if event.response_bytes:  # too much to be kept
        chars = 0 if event.kind == "edit" else event.response_bytes
    if dig(event.response, "isImage") is True:
        chars = IMAGE_TOKENS * CHARS_PER_TOKEN
    chars = min(chars, 400_000) * TOOL_WEIGHTS.get(event.kind, 1.0)  # clients cut a result, too
    return int((_chars(event.tool_input, 6) + chars) / CHARS_PER_TOKEN + CALL_OVERHEAD_TOKENS)


def visible_response(event: Record) -> object:
    """The part of a response that reaches the model."""
    response = event.response
    if not isinstance(response, dict):
        return response
    if event.kind == "run" and "stdout" in response:
        return [response.get("stdout"), response.get("stderr")]
    if event.kind in ("edit", "agent"):
        return response.get("structuredPatch" if event.kind == "edit" else "content")
    texts = dig(response, "file.content"), dig(response, "llmContent"), dig(
        response, "text_result_for_llm")
    return next((text for text in texts if text is not None), response)


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


# --- transcripts: one JSON a line, written while we read; read from the end in bounded steps


def lines_backward(path: str, limit_bytes: int = TRANSCRIPT_LIMIT_BYTES,
                   needles: tuple = (b"",)) -> object:
    """The file's lines as bytes, newest first, at most about `limit_bytes` of them; those without
    any of the needles may be left out, and a line beyond all bounds is."""
    fd = open_regular(path)
    if fd < 0:
        return
    try:
        end = size = _os.lseek(fd, 0, 2)
        step, parts, held = TRANSCRIPT_STEP_BYTES, [], 0
        while end > 0 and size - end < limit_bytes:
            start = max(0, end - step)
            _os.lseek(fd, start, 0)
            chunk = _os.read(fd, end - start)
            end, step = start, min(step * 2, 1 << 17)
            first, last = chunk.find(b"\n"), chunk.rfind(b"\n")
            if first < 0:  # a line longer than a step: joined once, when it is whole
                held += len(chunk)
                parts = parts + [chunk] if held < TRANSCRIPT_LINE_BYTES else []
                continue
            if held < TRANSCRIPT_LINE_BYTES:
                yield chunk[last + 1:] + b"".join(reversed(parts))
            if any(map(chunk.__contains__, needles)):
                yield from reversed(chunk[first + 1:last].split(b"\n"))
            parts, held = [chunk[:first]], first
        if end == 0 and held < TRANSCRIPT_LINE_BYTES:
            yield b"".join(reversed(parts))
    except OSError:
        return
    finally:
        _os.close(fd)


def rows_backward(ctx: Ctx, path: str, limit_bytes: int = TRANSCRIPT_LIMIT_BYTES,
                  needles: tuple = (b"",)) -> object:
    """The rows that mean something to us, newest first; a line is parsed when it has a needle."""
    for line in lines_backward(path, limit_bytes, needles):
        row = parse_line(ctx, line) if any(needle in line for needle in needles) else None
        if row is not None:
            yield row


def parse_line(ctx: Ctx, line: bytes) -> "Record | None":
    """The row of one line, None when it tells us nothing."""
    data = parse_object(line)
    row = DIALECTS[ctx.agent].parse_row(data)
    if row is not None:
        row.at = parse_iso(data.get("timestamp")) or 0.0
    return row


def wait_for_rows(ctx: Ctx, path: str) -> None:
    """Where a client writes its transcript late, its row about this very event is the sign that
    everything before it is there."""
    sign = DIALECTS[ctx.agent].late_signs.get(ctx.mode, b"")
    deadline = time.monotonic() + TRANSCRIPT_LATE_S
    while sign and time.monotonic() < deadline and is_dir(parent_of(path)):
        line = next(lines_backward(path), b"")
        at = parse_iso(parse_object(line).get("timestamp")) or 0.0
        if sign in line and at > ctx.now - HOOK_START_S:
            return
        time.sleep(TRANSCRIPT_POLL_S)


def read_usage(ctx: Ctx, path: str) -> "Record | None":
    """The last measured fullness (tokens, window or 0, model) after the last compaction. Where the
    transcript comes late it is waited for, once the numbers begin to matter."""
    dialect = DIALECTS[ctx.agent]
    usage = dialect.read_usage(path) if dialect.read_usage else _last_usage(ctx, path)
    if dialect.late_signs and (usage is None or usage.tokens * 2 >= usage.window):
        wait_for_rows(ctx, path)
        usage = _last_usage(ctx, path)
    return usage


def _last_usage(ctx: Ctx, path: str) -> "Record | None":
    """Once a session has been counted, its last count and what came since are better than reading
    megabytes at every call."""
    usage = _usage_within(ctx, path, TRANSCRIPT_NEAR_BYTES)
    if usage is None and transcript_size(path) > TRANSCRIPT_NEAR_BYTES and not (
            read_session(ctx, ctx.session).tool_calls):
        usage = _usage_within(ctx, path, TRANSCRIPT_NEW_LIMIT_BYTES)
    return usage


def _usage_within(ctx: Ctx, path: str, limit_bytes: int) -> "Record | None":
    dialect, model, window, tokens, at = DIALECTS[ctx.agent], "", 0, 0, 0.0
    for row in rows_backward(ctx, path, limit_bytes, dialect.needles):
        window, model = window or row.window, model or row.model
        if not tokens and row.tokens <= TOKENS_LIMIT:
            tokens, at = row.tokens, row.at
        if row.kind == "boundary" or (tokens and (window or not dialect.tells_window)):
            break
    return Record(tokens=tokens, window=window, model=model, at=at) if tokens else None


def find_message(ctx: Ctx, path: str, tool_use_id: str) -> str:
    """The id of the answer that holds the tool call; the transcript may lag, so wait a little.
    Where calls have no id of the model's, it is the newest answer: the next one comes after
    all calls of this one."""
    by_call = DIALECTS[ctx.agent].batch == "call"
    if not is_file(path) or (by_call and not tool_use_id):
        return ""
    needles = (tool_use_id.encode("utf-8", "replace"),) if by_call else (b"",)
    deadline = time.monotonic() + TRANSCRIPT_WAIT_S
    while True:
        for row in rows_backward(ctx, path, TRANSCRIPT_NEW_LIMIT_BYTES, needles):
            if not by_call and row.id:
                return row.id
            if row.kind == "answer" and any(call[0] == tool_use_id for call in row.calls):
                return row.id
        if time.monotonic() >= deadline:
            return ""
        time.sleep(TRANSCRIPT_POLL_S)


def read_news(ctx: Ctx, path: str, offset: int, since: float, known_id: str) -> Record:
    """What the transcript has gained since `offset`: text (the agent's), answered, receipts, offset
    (where to go on). The message `known_id` and rows dated before `since` are older than what we
    wait for: a forked session's transcript begins with a copy of the old one."""
    wait_for_rows(ctx, path)
    size, pending = transcript_size(path), False
    offset = offset if offset <= size else 0  # else it is another file under the same name
    start = max(offset, size - TRANSCRIPT_NEW_LIMIT_BYTES)
    data = read_open(open_regular(path), TRANSCRIPT_NEW_LIMIT_BYTES, start) or b""
    whole = data.rfind(b"\n") + 1
    news = Record(text="", answered=False, receipts="", offset=start + whole)
    for row in filter(None, (parse_line(ctx, line) for line in data[:whole].split(b"\n"))):
        if row.receipt:
            news.receipts += row.receipt + "\n"
        if row.kind == "answer":
            if not (known_id and row.id == known_id) and (row.at or since) >= since:
                news.text += row.text + "\n"
                pending = True
                news.answered = news.answered or row.done
        elif row.kind in ("prompt", "result") and pending:
            news.answered = True
    return news


def read_turn(ctx: Ctx, path: str, since: float = 0.0) -> str:
    """What the agent said since the person's last prompt, and not before `since`."""
    texts, newer = [], ""
    wait_for_rows(ctx, path)
    for row in rows_backward(ctx, path, TRANSCRIPT_NEW_LIMIT_BYTES):
        if row.kind == "prompt" or (row.at and row.at < since):
            break
        said = row.id + row.text
        if row.kind == "answer" and row.text and said != newer:  # some write an answer twice
            texts.append(row.text)
            newer = said
    return "\n".join(reversed(texts))


def transcript_size(path: str) -> int:
    info = stat_of(path) if path else None
    return info.st_size if is_regular(info) else 0


def _make_row(kind: str, content: object = None, **fields) -> Record:
    """A checked row: `content` are a message's blocks, what else is given stands above them. A
    prompt with results of tools in it is none."""
    text, calls, results, said = parse_content(content)
    if kind == "prompt":
        fields.setdefault("receipt", said)
        kind = "result" if results else kind
    row = load_record({"text": text, "calls": calls, "results": results, **fields}, ROW)
    row.kind = kind
    return row


def parse_content(content: object) -> tuple:
    """(text, tool calls as (id, name, input), results as (id, failed, text, whether the person
    denied it), what hooks said) of a message's blocks, as all clients write them."""
    if isinstance(content, str):
        return content, [], [], ""
    texts, calls, results, said = [], [], [], []
    for block in map(dict_of, list_of(content)):
        kind, result = block.get("type"), dict_of(block.get("functionResponse"))
        if kind == "tool_use" or "functionCall" in block:
            calls += _tool_calls([block.get("functionCall") or block])
        elif kind == "tool_result":
            text = parse_content(block.get("content"))[0]
            failed = block.get("is_error") is True
            results.append((text_of(block.get("tool_use_id")), failed, text, False))
        elif result:
            told = dict_of(result.get("response"))
            text = text_of(told.get("error") or told.get("output"))
            failed = "error" in told or ("\nExit Code: " in text and "\nExit Code: 0" not in text)
            results.append((text_of(result.get("id")), failed, text, False))
            said.append(text)  # what hooks said stands inside
        elif kind in ("text", "input_text", "output_text"):
            texts.append(text_of(block.get("text")))
        elif not kind and not block.get("thought"):
            ours, text = _split_hook_text(text_of(block.get("text")))
            said.append(ours)
            texts.append(text)
    return "\n".join(filter(None, texts)), calls, results, "\n".join(filter(None, said))


def _tool_calls(calls: object) -> list:
    """Tool calls as (id, name, input)."""
    return [(text_of(call.get("id") or call.get("toolCallId")), text_of(call.get("name")),
             dict_of(call.get("input") or call.get("args") or call.get("arguments")))
            for call in map(dict_of, list_of(calls))]


def _split_hook_text(text: str) -> tuple:
    """(what hooks said, the rest) of a piece of a prompt."""
    for tag in ("hook_context>", "qwen:user-prompt-submit-context>"):
        said, end, rest = text.partition("</" + tag)
        if end and said.startswith("<" + tag):
            return said, rest.lstrip("\n")
    return "", text


def _sum_of(usage: object, keys: tuple) -> int:
    return sum(count_of(dict_of(usage).get(key)) for key in keys)


# --- the clients' rows, and their odd events


def _claude_row(row: dict) -> "Record | None":
    """Subagents' rows, the client's own answers and API errors tell nothing."""
    kind, message = row.get("type"), dict_of(row.get("message"))
    model, wanted = message.get("model"), text_of(row.get("requestedModel"))
    if row.get("isSidechain") or row.get("isApiErrorMessage") or model == "<synthetic>":
        return None
    if kind == "assistant":
        return _make_row("answer", message.get("content"), id=message.get("id"),
                         tokens=_sum_of(message.get("usage"), USAGE_KEYS),
                         model=wanted if "[1m]" in wanted else model,
                         done=bool(message.get("stop_reason")))
    if kind == "user":
        made, denied = _make_row("prompt", message.get("content")), "toolDenialKind" in row
        made.results = [result[:3] + (denied,) for result in made.results]
        is_ours = row.get("isMeta") or row.get("isCompactSummary")
        return None if is_ours and not made.results else made
    if kind == "system" and row.get("subtype") == "compact_boundary":
        return _make_row("boundary", tokens=dig(row, "compactMetadata.postTokens"))
    attached = dict_of(row.get("attachment"))
    if kind == "attachment" and attached.get("type") == "hook_additional_context":
        text = "\n".join(map(text_of, list_of(attached.get("content"))))
        return _make_row("receipt", text=text, receipt=text)
    return None


def _codex_row(row: dict) -> "Record | None":
    kind, payload = row.get("type"), dict_of(row.get("payload"))
    if kind == "response_item":
        return _codex_item(payload)
    if kind == "compacted":
        return _make_row("boundary")
    info = dict_of(payload.get("info")) or payload
    usage = dict_of(payload.get("usage")) or dict_of(info.get("last_token_usage"))
    found = _make_row("usage", id=payload.get("response_id"),
                      tokens=usage.get("input_tokens") or usage.get("total_tokens"),
                      window=info.get("model_context_window"))
    return found if found.tokens or found.window else None


def _codex_item(item: dict) -> "Record | None":
    """What hooks say is a developer's message, and a hold a user's in a tag of its own."""
    kind, call_id, role = item.get("type"), text_of(item.get("call_id")), item.get("role")
    if kind in ("function_call", "custom_tool_call"):
        asked = parse_object(text_of(item.get("arguments"))) or {"command": item.get("input")}
        return _make_row("answer", calls=[(call_id, text_of(item.get("name")), asked)])
    text = parse_content(item.get("content") or item.get("output"))[0]
    if kind in ("function_call_output", "custom_tool_call_output"):
        failed = "exited with code " in text and "exited with code 0" not in text
        return _make_row("result", results=[(call_id, failed, text, False)])
    if role == "assistant":
        return _make_row("answer", id=item.get("id"), text=text, done=True)
    if role == "developer":
        return _make_row("receipt", receipt=text)
    if role != "user" or text.startswith(("<environment_context>", "<user_instructions>")):
        return None
    return _make_row("prompt", text=text, receipt=text if "<hook_prompt" in text[:12] else "")


def _gemini_event(data: dict, env: dict) -> "dict | None":
    """The event before an automatic compression comes before every request, so it tells nothing.
    The first prompt has our own start text in front of it."""
    if data.get("theirs") == "PreCompress" and data.get("trigger") != "manual":
        return None
    return dict(data, prompt=_split_hook_text(text_of(data.get("prompt")))[1])


def _gemini_row(row: dict) -> "Record | None":
    if row.get("type") == "gemini":
        return _make_row("answer", row.get("content"), id=row.get("id"), model=row.get("model"),
                         calls=_tool_calls(row.get("toolCalls")), done=True,
                         tokens=dig(row, "tokens.input"))
    if row.get("type") == "user":
        return _make_row("prompt", row.get("content"))
    is_boundary = "<state_snapshot>" in format_json(dig(row, "$set.messages"))
    return _make_row("boundary") if is_boundary else None


def _qwen_event(data: dict, env: dict) -> dict:
    """The prompt event comes before every request; only a person's has `submitted_prompt`."""
    by_person = "submitted_prompt" in data or data.get("theirs") != "UserPromptSubmit"
    return dict(data, by_person=by_person)


def _qwen_row(row: dict) -> "Record | None":
    kind, parts = row.get("type"), dig(row, "message.parts")
    if row.get("isSidechain"):
        return None
    if kind == "assistant":
        return _make_row("answer", parts, id=row.get("uuid"), model=row.get("model"), done=True,
                         tokens=dig(row, "usageMetadata.promptTokenCount"),
                         window=row.get("contextWindowSize"))
    if kind == "tool_result" or (kind == "user" and row.get("provenance") != "system"):
        return _make_row("prompt", parts)
    if row.get("subtype") != "chat_compression":
        return None
    return _make_row("boundary", tokens=dig(row, "systemPayload.info.newTokenCount"))


_COPILOT_EVENTS = (  # its own spelling has no event's name, but each event a field of its own
    ("response", "PostToolUse"), ("error", "PostToolUseFailure"), ("tool", "PreToolUse"),
    ("stopReason", "Stop"), ("trigger", "PreCompact"), ("source", "SessionStart"),
    ("prompt", "UserPromptSubmit"), ("reason", "SessionEnd"))


def _copilot_event(data: dict, env: dict) -> dict:
    """Both spellings; the transcript is named at some events only, but its place is known."""
    named = [name for field, name in _COPILOT_EVENTS if field in data]
    data.setdefault("theirs", named[0] if named else "?")
    home = env.get("COPILOT_HOME") or env.get("HOME", "") + "/.copilot"
    own_id = text_of(data.get("session_id"))
    if own_id and safe_name(own_id) == own_id:
        data.setdefault("transcript", home + "/session-state/" + own_id + "/events.jsonl")
    if data.get("source") == "new":
        data["source"] = "startup"
    return data


def _copilot_row(row: dict) -> "Record | None":
    kind, data = row.get("type"), dict_of(row.get("data"))
    if row.get("agentId"):
        return None
    if kind == "session.usage_record":
        usage = dict_of(data.get("usage"))
        return _make_row("usage", tokens=usage.get("inputTokens"), model=usage.get("model"),
                         window=usage.get("maxPromptTokens"))
    if kind == "assistant.message":
        return _make_row("answer", data.get("content"), id=data.get("messageId"), done=True,
                         calls=_tool_calls(data.get("toolRequests")))
    if kind == "user.message":
        return _make_row("prompt", data.get("content"))
    if kind == "tool.execution_complete":
        told, failed = dict_of(data.get("result") or data.get("error")), not data.get("success")
        text = text_of(told.get("content") or told.get("message"))
        return _make_row("result", results=[(text_of(data.get("toolCallId")), failed, text, False)])
    if kind == "hook.end":
        return _make_row("receipt", receipt=dig(data, "output.additionalContext"))
    if kind == "session.compaction_complete" and data.get("success") is True:
        return _make_row("boundary", tokens=data.get("postCompactionTokens"))
    return None


def _droid_row(row: dict) -> "Record | None":
    """Claude Code's blocks; each hook has a row of its own with what it printed."""
    message, row_id = dict_of(row.get("message")), text_of(row.get("id"))
    if row.get("type") == "compaction_state":
        return _make_row("boundary", tokens=row.get("summaryTokens"))
    if message.get("role") == "assistant":
        return _make_row("answer", message.get("content"), id=row_id, model=message.get("modelId"),
                         done=True)
    made = _make_row("prompt", message.get("content"))
    if made.kind == "prompt" and "hookResults" in message:
        printed = [text_of(dig(one, "stdout")) for one in list_of(message["hookResults"])]
        return _make_row("receipt", receipt="\n".join(
            text_of(dig(parse_object(out), "hookSpecificOutput.additionalContext"))
            for out in printed))
    is_empty = not made.text or row_id.startswith("context-")
    return None if made.kind == "prompt" and is_empty else made


def _droid_usage(path: str) -> "Record | None":
    """The numbers are in a file beside the transcript."""
    told = read_json(path[:-len(".jsonl")] + ".settings.json") if path.endswith(".jsonl") else {}
    keys = ("inputTokens", "cacheReadTokens", "cacheCreationTokens")
    tokens = _sum_of(told.get("lastCallTokenUsage"), keys)
    found = Record(tokens=tokens, window=0, model=text_of(told.get("model")), at=0.0)
    return found if 0 < tokens <= TOKENS_LIMIT else None


# --- replies


class Reply:
    """What a handler wants said: `context` to the agent, `person` to the person; `hold` keeps the
    agent going. `after` is called once the text is really out."""

    __slots__ = ("context", "person", "terminal", "hold", "after")

    def __init__(self, context: str = "", person: str = "", hold: bool = False) -> None:
        self.context, self.person, self.hold = context, person, hold
        self.terminal, self.after = "", []


def can_speak(ctx: Ctx, event_name: str) -> bool:
    """Whether text at this event reaches the agent in this client."""
    return event_name in DIALECTS[ctx.agent].speaks


def render_reply(ctx: Ctx, event: Record, reply: Reply) -> dict:
    """The client's JSON for a reply; {} when there is nothing to say."""
    dialect, out, text = DIALECTS[ctx.agent], {}, clean_text(reply.context)
    if reply.person and dialect.tells_person:
        out["systemMessage"] = for_terminal(reply.person)
    if reply.terminal and dialect.tells_person == "terminal":
        out["terminalSequence"] = reply.terminal
    if reply.hold and not _holds_by_context(dialect, event, ctx.env):
        out.update(decision="block", reason=text)
    elif text:
        if dialect.reply == "both":
            out["additionalContext"] = text
        out["hookSpecificOutput"] = {"hookEventName": event.theirs, "additionalContext": text}
    return out


def _holds_by_context(dialect: Record, event: Record, env: dict) -> bool:
    """Only a client that is known to be new enough; inherited variables name another session."""
    name, _, rest = env.get("AI_AGENT", "").partition("_")
    fields = rest.partition("_")[0].split("-")
    return (dialect.hold == "context" and name == "claude-code" and all(map(is_digits, fields))
            and tuple(map(int, fields)) >= FEEDBACK_SINCE
            and env.get("CLAUDE_CODE_SESSION_ID") == event.session_id)


def utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


# --- the table


def _dialect(**fields) -> Record:
    """A row with Claude Code's values where nothing else is said."""
    row = Record(
        events=_events(), speaks=_SPEAKING, limit=REPLY_LIMIT, length=units, reply="hso",
        hold="block", hold_cap=8, tells_person="line", names={}, adapt=None,
        parse_row=_claude_row, read_usage=None, late_signs={}, batch="call",
        needles=(b'"input_tokens"', b'"compact_boundary"'), tells_window=False, compacts_at=0,
        window=0, instruction_file="AGENTS.md", project_variable="CLAUDE_PROJECT_DIR",
        settings="", user_settings="", matchers={}, time_unit=1, end_limit_s=5)
    vars(row).update(fields)
    row.user_settings = row.user_settings or row.settings  # seen from the user's home
    return row


def _events(*missing: str, **others: str) -> dict:
    """The client's names of events -> ours."""
    names = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure",
             "PreCompact", "Stop", "SessionEnd")
    return {others.get(name, name): name for name in names if name not in missing}


_SPEAKING = frozenset(("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse",
                       "PostToolUseFailure", "Stop"))
_MUTE_BEFORE = _SPEAKING - {"PreToolUse"}  # text before a tool does not arrive
# names, adapt what fields are called, and what else it takes to read an event as Claude Code's
# speaks       our names of the events whose text reaches the model (at Stop: by holding)
# reply        "hso": hookSpecificOutput alone; "both": also at the top level
# hold         how a stop is held: "block" or, in new versions of Claude Code, "context"
# hold_cap     holds in a row that the client allows; where it has no limit, ours is the same
# batch        "call": the transcript has the event's tool_use_id; "newest": it has not
# needles      what a line with the fullness, or with a compaction, holds
# late_signs   mode -> what the transcript's newest line holds once it has caught up
# compacts_at  percent of the window where the client compacts by itself; 0: not known
# window       tokens, where every model of the client has the same
# matchers     our name of an event -> the only kind of it that is registered
# time_unit    of the `timeout` in the client's settings, per second
DIALECTS = {
    "claude": _dialect(
        label="Claude Code", hold="context", tells_person="terminal",
        matchers={"PreCompact": "auto"},  # after one by hand the client shows the whole command
        instruction_file="CLAUDE.md", settings=".claude/settings.json"),
    "codex": _dialect(  # a reply with a key that it does not know counts for nothing
        label="Codex", events=_events("PostToolUseFailure"), length=utf8_length,
        names={"turn_id": "prompt_id"}, parse_row=_codex_row, batch="newest", tells_window=True,
        compacts_at=94, project_variable="", end_limit_s=3, settings=".codex/hooks.json",
        needles=(b'"token_usage_record"', b'"token_count"', b'"task_started"', b'"compacted"')),
    "gemini": _dialect(
        label="Gemini CLI", speaks=_MUTE_BEFORE, adapt=_gemini_event, parse_row=_gemini_row,
        events=_events("PostToolUseFailure", UserPromptSubmit="BeforeAgent",
                       PreToolUse="BeforeTool", PostToolUse="AfterTool", Stop="AfterAgent",
                       PreCompact="PreCompress"),
        names={"timestamp": "prompt_id"}, batch="newest", window=1_048_576, time_unit=1000,
        matchers={"PreCompact": "manual"}, instruction_file="GEMINI.md",
        needles=(b'"tokens"', b"<state_snapshot>"),
        project_variable="GEMINI_PROJECT_DIR", settings=".gemini/settings.json"),
    "qwen": _dialect(
        label="Qwen Code", speaks=_MUTE_BEFORE, names={"tool_call_id": "tool_use_id"},
        adapt=_qwen_event, parse_row=_qwen_row, tells_window=True, compacts_at=85,
        needles=(b'"usageMetadata"', b'"chat_compression"'),
        project_variable="QWEN_PROJECT_DIR", settings=".qwen/settings.json"),
    "copilot": _dialect(
        label="Copilot CLI", reply="both", tells_person="", adapt=_copilot_event,
        names={"sessionId": "session_id", "toolName": "tool", "toolArgs": "tool_input",
               "toolResult": "response", "tool_result": "response", "timestamp": "prompt_id",
               "transcriptPath": "transcript", "hookEventName": "theirs"},
        parse_row=_copilot_row, batch="newest", tells_window=True, compacts_at=80,
        late_signs={"monitor": b'"postToolUse', "stop-enforce": b'"agentStop"'},
        needles=(b'"session.usage_record"', b'"session.compaction_complete"'),
        project_variable="COPILOT_PROJECT_DIR",
        settings=".github/hooks/ctx_hooks.json", user_settings=".copilot/hooks/ctx_hooks.json"),
    "droid": _dialect(
        label="droid", events=_events("PostToolUseFailure"), speaks=_MUTE_BEFORE,
        names={"message_id": "prompt_id"}, parse_row=_droid_row, read_usage=_droid_usage,
        batch="newest", project_variable="DROID_PROJECT_DIR",
        settings=".factory/settings.json"),
}

# =============================================================================
# Signals
# =============================================================================
# A signal is a file for the agent: any process may write one. A session claims what it is about to
# say in its own state; once the text is out the file goes. A claim that nothing followed is void
# after some seconds, so two hooks deliver once and a crash loses nothing.
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
CLAIM_S = 10
LOOK_AGAIN_S = 30  # a signal overwritten in place does not change its folder
LOOK_LIMIT_S = 1.5
LOOK_COUNT = 96  # so many are all opened in one look; of more, so many of each kind:
LOOK_OLDEST, LOOK_NEWEST, LOOK_KNOWN = 40, 16, 8
UNSAID_S = 86400  # an alert that expired unsaid waits so long for being said anew or withdrawn
FRESH_NS = 50_000_000  # within this, two changes of a folder can carry the same time
SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system: nothing new is older than this


def split_header(text: str) -> tuple:
    """(header lines or None, body). The header ends at the first closing `---`; None: there is no
    whole header."""
    text = text.lstrip("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() == "---":
        for index in range(1, len(lines)):
            if lines[index].rstrip() == "---":
                return lines[1:index], "\n".join(lines[index + 1:])
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


def parse_signal(data: bytes, mtime: float, now: float) -> Record:
    """Whatever is broken gets its default: ttl 300, severity warning, the file's own time. One that
    is being written right now has no body."""
    header, body = split_header(data.decode("utf-8", "replace"))
    is_half = header is None and data.startswith(b"---") and now - mtime < HALF_WRITTEN_S
    fields = parse_fields(header or [])
    stated = parse_iso(fields.get("generated_at"))
    ttl, severity = fields.get("ttl", ""), fields.get("severity", "").lower()
    code = fields.get("code", "")[:60]
    return Record(
        severity=severity if severity in SEVERITIES else "warning",
        generated_at=mtime if stated is None or stated > now + 1 else stated,
        ttl_s=min(int(ttl), TTL_LIMIT_S) if is_digits(ttl) and int(ttl) > 0 else DEFAULT_TTL_S,
        auditor=fields.get("auditor", "")[:60], code=code,
        body="" if is_half else body.strip() or code, is_half=is_half,
        stamp="%.6f" % (mtime if stated is None else stated),
    )


def signal_path(ctx: Ctx, session: str, name: str) -> str:
    return signal_dir(ctx, session) + "/" + safe_name(name) + ".md"


def write_signal(ctx: Ctx, session: str, signal: Record) -> str:
    """Write or replace the signal `name` of a session ("" = global); its path, or ""."""
    path = signal_path(ctx, session, signal.name)
    fields = (
        ("generated_at", format_iso(signal.generated_at)), ("severity", signal.severity),
        ("ttl", "%d" % signal.ttl_s), ("auditor", one_line(signal.auditor, 60)),
        ("code", one_line(signal.code, 60)))
    header = "".join("%s: %s\n" % (key, value.replace("#", "")) for key, value in fields if value)
    text = "---\n" + header + "---\n" + clean_text(signal.body).strip() + "\n"
    if is_link(parent_of(path)) or not write_bytes(ctx, path, text.encode("utf-8", "replace")):
        return ""
    return path


def withdraw_signals(ctx: Ctx, session: str, name: str, codes: list) -> None:
    """What is no longer true need not be said: drop the pending signal of a cleared alert."""
    path = signal_path(ctx, session, name)
    data = read_bytes(path, SIGNAL_LIMIT_BYTES, follow=False)
    if data and parse_signal(data, 0.0, 0.0).code in codes:
        remove_file(path)


# --- looking


def read_signals(ctx: Ctx, session: str) -> list:
    """All live signals for a session (and the global ones), critical first, then oldest first."""
    return _look(ctx, session, None).signals


def _look(ctx: Ctx, session: str, state: "Record | None") -> Record:
    """signals: those that were opened; files: all that are there; marks: the oldest of the new, in
    order; newest: the last of them; unopened: how many lie in between. For a session, whose state
    tells what it knows, only some of many are opened."""
    files = {}
    for scope, folder in (("session", session and signal_dir(ctx, session)),
                          ("global", signal_dir(ctx, ""))):
        if folder and not is_link(folder):
            files.update((scope + "/" + name[:-3], folder + "/" + name)
                         for name in list_dir(folder) if name.endswith(".md") and name[0] != ".")
    look, chosen = Record(signals=[], files=files, marks=[], newest=[], unopened=0), list(files)
    if state is not None and len(files) > LOOK_COUNT:
        chosen = _choose(ctx, look, state)
    deadline = time.monotonic() + LOOK_LIMIT_S
    for opened, key in enumerate(chosen, 1):
        signal = _read_signal(ctx, files[key], key.startswith("global/"))
        if signal is not None:
            signal.scope, _, signal.name = key.partition("/")
            signal.key = key
            look.signals.append(signal)
        if time.monotonic() > deadline:
            look.unopened += len(chosen) - opened
            look.marks = look.marks[:opened]
            break
    look.signals.sort(key=lambda s: (-SEVERITIES.index(s.severity), s.generated_at, s.name))
    return look


def _choose(ctx: Ctx, look: Record, state: Record) -> list:
    """The keys to open: the oldest and the newest of those that are new, and some of the others in
    turn, so that each is seen again and goes when it has expired."""
    keys, turn = list(look.files), int(ctx.now) * 997
    if len(keys) > SIGNAL_COUNT_LIMIT:
        first = turn % len(keys)
        keys = (keys[first:] + keys[:first])[:SIGNAL_COUNT_LIMIT]
    known, now_ns, new, old = text_of(state.looked.get("known")), int(ctx.now * 1e9), [], []
    known = known if known < "%020d" % now_ns else ""  # a clock was set back
    for key in keys:
        info = stat_of(look.files[key], follow=False)
        changed = _changed_ns(info) if info is not None else 0
        mark = "%020d %s" % (changed if changed < now_ns else 0, key)
        is_heard = list_of(state.delivered.get(key))[1:] == [0, changed]
        (old if is_heard or mark <= known else new).append(mark)
    new.sort()
    first = turn % max(1, len(old))
    look.marks = new[:LOOK_OLDEST]
    newest = new[len(look.marks):][-LOOK_NEWEST:]
    look.newest = list(map(_key_of, newest))
    look.unopened = len(new) - len(look.marks) - len(newest)
    again = (old[first:] + old[:first])[:LOOK_KNOWN]
    return list(map(_key_of, look.marks + newest + again))


def _changed_ns(info: object) -> int:
    return max(info.st_ctime_ns, info.st_mtime_ns)


def _key_of(mark: str) -> str:
    return mark.partition(" ")[2]


def _read_signal(ctx: Ctx, path: str, is_global: bool) -> "Record | None":
    """None for what is no live signal: an expired one is removed, what cannot be read at all is set
    aside, a link could lead to any file of the user's."""
    fd = open_regular(path, follow=False) if IS_POSIX or not is_link(path) else -1
    if fd < 0:
        if is_own(stat_of(path, follow=False)):
            set_aside(ctx, path)
        return None
    try:
        info = _os.fstat(fd) if IS_POSIX else stat_of(path, follow=False)  # there they differ
        data = _os.read(fd, SIGNAL_LIMIT_BYTES)
    except OSError:
        return None
    finally:
        _os.close(fd)
    if info is None or not info.st_nlink:  # said and removed by another process meanwhile
        return None
    mtime = info.st_mtime
    if mtime > ctx.now + 1:
        mtime = float(int(ctx.now))
        _touch(path, mtime)  # a file from the future would never expire
        info = stat_of(path, follow=False) or info
    signal = parse_signal(data, mtime, ctx.now)
    signal.path, signal.changed = path, _changed_ns(info)
    over_s = ctx.now - signal.generated_at - signal.ttl_s
    if over_s < 0:
        return signal
    is_page = data.strip() and not data.startswith(b"---")  # maybe of the user's own docs
    waits = signal.code.startswith("CTX_") and not is_global and over_s < UNSAID_S
    if not is_page and not waits:
        remove_file(path)
    return None


def _touch(path: str, mtime: float) -> None:
    try:
        _os.utime(path, times=(mtime, mtime))
    except OSError:
        pass  # another user's


def severity_floor(ctx: Ctx) -> str:
    stated = ctx.env.get("CTX_INJECT_MIN_SEVERITY", "").strip().lower()
    return stated if stated in SEVERITIES else ctx.get("monitor.inject_min_severity")


def due_signals(ctx: Ctx, signals: list, seen: dict) -> list:
    """What the session has not been told yet and is severe enough to tell; of two with the same
    code from the same source the newer."""
    severe, due = SEVERITIES[SEVERITIES.index(severity_floor(ctx)):], {}
    for signal in signals:
        claim = list_of(seen.get(signal.key)) + ["", 0, 0]
        is_held = claim[0] == signal.stamp and (not claim[1] or (
            abs(ctx.now - claim[1]) < CLAIM_S and claim[2] == signal.changed))
        if signal.severity in severe and signal.body and not is_held:
            source = _source_of(signal)
            if source not in due or due[source].generated_at <= signal.generated_at:
                due[source] = signal
    return list(due.values())


def _source_of(signal: Record) -> tuple:
    """The same for two signals of which the newer takes the older one's place."""
    return (signal.auditor or signal.key, signal.code) if signal.code else (signal.key, "")


def has_news(ctx: Ctx, session: str, looked: dict) -> bool:
    """Whether there can be anything new, from a stat of each folder; where none holds a signal, no
    state need be written to know that again."""
    is_old = not 0 <= ctx.now - count_of(looked.get("at")) < LOOK_AGAIN_S
    changed = [key for key, stamp in _folder_stamps(ctx, session).items()
               if stamp and (is_old or looked.get(key) != stamp)]
    return any(name.endswith(".md") for key in changed
               for name in list_dir(signal_dir(ctx, session if key == "session" else "")))


def _folder_stamps(ctx: Ctx, session: str) -> dict:
    folders = {"session": signal_dir(ctx, session), "global": signal_dir(ctx, "")}
    infos = {key: stat_of(folder, follow=False) for key, folder in folders.items()}
    return {key: info.st_mtime_ns if info else 0 for key, info in infos.items()}


# --- saying


def render_signals(signals: list, more: int, room: int, length: object = units) -> tuple:
    """(text, the signals it holds, whether the first had to be cut); `more` wait elsewhere."""
    room -= length(SIGNAL_REST) + 20
    left, lines = room - length(SIGNAL_HEAD_MANY), []
    for signal in signals if len(signals) > 1 else ():
        bullet = format_bullet(_said(signal, room))
        left -= length(bullet) + 1
        if left < 0:
            break
        lines.append(bullet)
    count, was_cut = len(lines), False
    if count > 1:
        text = "\n".join([SIGNAL_HEAD_MANY.format(count=count)] + lines)
    else:
        text = SIGNAL_HEAD + _said(signals[0], room)
        was_cut = length(text) > room or len(signals[0].body) > room * 2
        text = cut_text(text, room - 300, length) if was_cut else text
    shown = signals[:max(1, count)]
    waiting = len(signals) - len(shown) + more
    rest = "\n" + SIGNAL_REST.format(count=waiting) if waiting else ""
    return text + rest, shown, was_cut


def _said(signal: Record, room: int) -> str:
    """The cleaned text, more than there is room for where there is more; never nothing."""
    text = clean_text(signal.body[:room * 2]).strip()
    return text or one_line(signal.code) or one_line(signal.name) or "?"


def format_bullet(body: str) -> str:
    """`  • Summary → Action`, further lines indented below."""
    lines = [line.rstrip() for line in body.split("\n") if line.strip()]
    head = lines[0].strip()
    if len(lines) > 1 and lines[1].lstrip().startswith("→"):
        head += " " + lines.pop(1).strip()
    return "\n".join([SIGNAL_BULLET + head] + [SIGNAL_INDENT + line for line in lines[1:]])


def deliver_signals(ctx: Ctx, session: str, room: int) -> "Reply | None":
    """The pending signals as one block; what it says is claimed for this session."""
    written, found = update_session(
        ctx, session, lambda state: (claim_signals(ctx, state, session, room), state.delivered))
    reply, claims = found or (None, {})
    if reply and not written:
        keep_claims(ctx, session, claims)
    return reply


def claim_signals(ctx: Ctx, state: Record, session: str, room: int) -> "Reply | None":
    """The same under the session's lock, for one who writes its state anyway."""
    state.delivered.update(_kept_claims(ctx, session))
    known, stamps = text_of(state.looked.get("known")), _folder_stamps(ctx, session)
    look = _look(ctx, session, state)
    due = due_signals(ctx, look.signals, state.delivered)
    state.delivered = {key: claim for key, claim in state.delivered.items() if key in look.files}
    waiting = {s.key for s in due} | {s.key for s in look.signals if s.is_half}
    waiting.update(key for key, claim in state.delivered.items() if list_of(claim)[1:2] != [0])
    settled = "%020d" % (int(ctx.now * 1e9) - SETTLED_NS)
    for mark in look.marks:
        if _key_of(mark) in waiting or mark > settled:
            break
        known = mark
    is_settled = not waiting and not look.unopened and not any(
        ctx.now * 1e9 - stamp < FRESH_NS for stamp in stamps.values())
    state.looked = dict(stamps, at=int(ctx.now), known=known) if is_settled else {"known": known}
    later = [s for s in due if look.unopened and s.key in look.newest and s.severity != "critical"]
    due = [signal for signal in due if signal not in later]  # older ones come first
    if not due or room < 400 + ctx.length(ctx.dir):
        return None
    more = len(later) + look.unopened if later else 0
    text, shown, was_cut = render_signals(due, more, room - ctx.length(ctx.dir), ctx.length)
    if was_cut:
        text += "\n" + SIGNAL_CUT.format(path=_keep_whole(ctx, shown[0]))
    more, told = more + len(due) - len(shown), set(map(_source_of, shown))
    shown = [s for s in look.signals if _source_of(s) in told]  # with the older ones
    state.delivered.update((s.key, [s.stamp, int(ctx.now), s.changed])
                           for s in shown)
    record(ctx, "signals:delivered", names=[s.key for s in shown], codes=[s.code for s in shown],
           waiting=more, chars=len(text))
    return _make_reply(ctx, session, text, shown)


def _make_reply(ctx: Ctx, session: str, text: str, shown: list) -> Reply:
    """The person hears of a critical one at that moment."""
    reply = Reply(text)
    reply.after = [(finish_delivery, ctx, session, shown)]
    critical = [signal for signal in shown if signal.severity == "critical"]
    if critical:
        reply.person = SIGNAL_PERSON.format(text=one_line(critical[0].body))
        reply.terminal = {"bell": "\a", "desktop": "\033]9;%s\a" % reply.person}.get(
            ctx.get("monitor.notify"), "")
    return reply


def _keep_whole(ctx: Ctx, signal: Record) -> str:
    """Where the whole text of a cut signal stays: a global one stands until its TTL, a session's
    is copied."""
    if signal.scope == "global":
        return signal.path
    name = "%s.%s.md" % (format_iso(ctx.now).replace(":", ""), safe_name(signal.name))
    path = ctx.path("state", "aside", name)
    data = read_bytes(signal.path, STATE_LIMIT_BYTES, follow=False) or b""
    return path if write_bytes(ctx, path, data) else signal.path


def keep_claims(ctx: Ctx, session: str, claims: dict) -> None:
    """Where the state cannot be written, a marker in the temp folder keeps them: what was said must
    not be said at every call."""
    write_bytes(ctx, marker_path(ctx, session, SEEN_PREFIX), format_json(claims).encode())


def _kept_claims(ctx: Ctx, session: str) -> dict:
    path = marker_path(ctx, session, SEEN_PREFIX)
    return parse_object(read_bytes(path, STATE_LIMIT_BYTES, follow=False, own=True) or b"")


def _remove_said(signal: Record) -> bool:
    """Not what somebody put in its place meanwhile."""
    info = stat_of(signal.path, follow=False)
    return info is not None and _changed_ns(info) == signal.changed and remove_file(signal.path)


def finish_delivery(is_out: bool, ctx: Ctx, session: str, shown: list) -> None:
    """The text is out: a session's signal goes, and its claim with the next look; a global one is
    remembered for good. It is not: the claim is void."""
    kept = {s.key: [s.stamp, 0, s.changed] for s in shown if is_out
            and (s.scope == "global" or not _remove_said(s))}
    if is_out and not kept:
        return

    def change(state: Record) -> dict:
        state.delivered.update(_kept_claims(ctx, session))
        for signal in shown:
            state.delivered.pop(signal.key, None)
        state.delivered.update(kept)
        return state.delivered

    written, claims = update_session(ctx, session, change)
    if claims and not written:
        keep_claims(ctx, session, claims)

# =============================================================================
# Measure
# =============================================================================
# Exact from the transcript when possible, else estimated over the real response shapes. Percent is
# an integer, rounded down, never above 100.
#
# Measure   tokens, window, exact, model, percent, shown (as text), note
_SMALL_MODELS = {"opus": ("4-0", "4-1", "4-5", "4-6"), "sonnet": ("4-0", "4-5", "4-6"),
                 "haiku": ("4-5",)}
STATUSLINE_AGE_S = 43200
# Where Claude Code compacts by itself: seen at 167,000 of 200,000 and at 977,000 of 1,000,000.
COMPACTION_RESERVE, COMPACTION_RESERVE_LARGE, COMPACTION_OUTPUT = 33_000, 23_000, 20_000


def window_of_model(model: str) -> int:
    """The window as the client decides it by the model's name; 200,000 when no name is known."""
    name = model.lower()
    if not name or "claude-3" in name:
        return DEFAULT_WINDOW
    if "[1m]" in name:
        return LARGE_WINDOW
    for family, versions in _SMALL_MODELS.items():
        _, found, rest = name.partition(family + "-")
        numbers = "".join(c if c in "0123456789" else " " for c in rest).split() + ["", ""]
        minor = numbers[1] if 0 < len(numbers[1]) <= 2 else "0"  # not a date
        if found and rest.startswith(numbers[0]) and numbers[0] + "-" + minor in versions:
            return DEFAULT_WINDOW
    return LARGE_WINDOW


def measure_context(ctx: Ctx, state: Record, usage: "Record | None", added_tokens: int) -> Record:
    """The fullness from a measured usage, else the last known count plus what this call added."""
    known = state.estimated_tokens or ESTIMATE_BASE_TOKENS
    tokens = usage.tokens if usage else known + added_tokens
    model = best_model(state, usage.model if usage else "")
    stated = sane_window(ctx.get("monitor.context_window"))
    window = stated or _find_window(ctx, state, usage, model)
    is_exact = usage is not None and window > 0  # of an assumed window no share is exact
    window = window or DEFAULT_WINDOW
    if usage is not None and tokens > window and not stated:
        window = max(LARGE_WINDOW, window)  # proven larger than its name says
    return make_measure(tokens, window, is_exact, model)


def _find_window(ctx: Ctx, state: Record, usage: "Record | None", model: str) -> int:
    """What the client told, what its status line did, what it assumes by the model's name; 0 when
    nothing tells."""
    told = usage.window if usage else 0
    by_name = window_of_model(model) if ctx.agent == "claude" or "claude" in model else 0
    if model and by_name and state.large_model == model:
        by_name = LARGE_WINDOW
    return (sane_window(told) or _statusline_window(ctx, model) or DIALECTS[ctx.agent].window
            or by_name)


def current_usage(usage: "Record | None", state: Record) -> "Record | None":
    """Not what was counted before a compaction whose row the transcript does not have yet."""
    is_old = usage is not None and 0 < usage.at < state.compacted_at
    return None if is_old else usage


def make_measure(tokens: int, window: int, exact: bool, model: str) -> Record:
    percent = min(100, tokens * 100 // window)
    return Record(tokens=tokens, window=window, exact=exact, model=model, percent=percent,
                  shown="%s%d%%" % ("" if exact else "~", percent),
                  note="" if exact else "estimated")


def best_model(state: Record, measured: str) -> str:
    """The transcript's name may lack `[1m]`, which SessionStart has; the settings are only a hint
    where neither tells more."""
    measured = measured or state.measured_model
    hint = state.model or state.settings_model
    if "[1m]" in hint.lower() and (not measured or is_same_model(hint, measured)):
        return hint
    return measured or hint


def is_same_model(one: str, other: str) -> bool:
    """Aliases, provider prefixes and `[1m]` aside: `sonnet[1m]`, `us.anthropic.claude-…`."""
    one, other = one.lower().replace("[1m]", ""), other.lower().replace("[1m]", "")
    return bool(one and other) and (one in other or other in one)


def _statusline_window(ctx: Ctx, model: str) -> int:
    """What `statusline` handed over: valid for half a day and for the same model."""
    handed = read_json(ctx.path("state", ctx.session + ".statusline"))
    age_s = ctx.now - (parse_iso(handed.get("at")) or 0)
    is_same = not model or is_same_model(text_of(handed.get("model")), model)
    is_fresh = -CLOCK_SKEW_S < age_s < STATUSLINE_AGE_S
    return sane_window(handed.get("window")) if is_fresh and is_same else 0


def sane_window(value: object) -> int:
    return count_of(value) if 1000 <= count_of(value) <= TOKENS_LIMIT else 0


def client_home(env: dict) -> str:
    return slashed(env.get("CLAUDE_CONFIG_DIR") or home_of(env) + "/.claude")


def settings_files(root: str, env: dict) -> list:
    """[(scope, path)] of Claude Code's settings, the strongest first."""
    return [("local", root + "/.claude/settings.local.json"),
            ("project", root + "/.claude/settings.json"),
            ("user", client_home(env) + "/settings.json")]


def note_settings(ctx: Ctx, state: Record) -> None:
    """What the client's settings say about model and compaction, read once in a session."""
    if state.settings_read or ctx.agent != "claude":
        return
    found: dict = {}
    for _, path in reversed(settings_files(ctx.root, ctx.env)):
        settings = read_json(path)
        found.update((key, settings[key]) for key in (
            "model", "autoCompactWindow", "autoCompactEnabled") if key in settings)
    state.settings_read = True
    state.settings_model = ctx.env.get("ANTHROPIC_MODEL") or text_of(found.get("model"))
    stated = ctx.env.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "")
    state.compact_window = int(stated) if is_digits(stated) else count_of(
        found.get("autoCompactWindow"))
    off = ctx.env.get("DISABLE_AUTO_COMPACT", "").lower() not in ("", "0", "false")
    state.compacts = not off and found.get("autoCompactEnabled") is not False


def compaction_point(ctx: Ctx, state: Record, window: int) -> int:
    """Tokens at which the client compacts by itself; 0 where that is not known."""
    if ctx.agent != "claude":
        return window * DIALECTS[ctx.agent].compacts_at // 100
    if not state.compacts:
        return 0
    base = min(window, state.compact_window or window)
    point = base - (COMPACTION_RESERVE if base < LARGE_WINDOW else COMPACTION_RESERVE_LARGE)
    stated = ctx.env.get("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "")
    if is_digits(stated) and 1 <= int(stated) <= 100:
        point = min(point, (base - COMPACTION_OUTPUT) * int(stated) // 100)
    return max(point, 0)


def handoff_point(ctx: Ctx, state: Record, window: int) -> int:
    """Tokens from which on a handoff is wanted."""
    percent = ctx.get("handoff.threshold")
    if percent != "auto":
        return int(window * percent / 100)
    point, usual = compaction_point(ctx, state, window), window * HANDOFF_PERCENT // 100
    before = point - HANDOFF_BEFORE_COMPACTION
    return min(usual, before) if before > 0 else usual

# =============================================================================
# Auditors
# =============================================================================
# Each auditor is a pure function from a snapshot to alerts, and a row of AUDITORS. An alert fires
# when its level is crossed upward, not again inside its band, and again after its cooldown or when
# it expired unsaid, while the condition lasts. .context/monitor-state.json remembers.
#
# Snapshot   now, percent, shown, note, handoff (its path, "" when off), is_written, decisions
#            (the file's path or ""), repeats, score, failing, stale_days, stale_files (None: not
#            looked at), active (codes)
# Alert      codes (those it marks, the first is emitted), severity, summary, action
MONITOR = (("lastEmitted", {}, dict), ("activeAlerts", {}, dict), ("lastHealth", {}, dict),
           ("confirmed", {}, dict))  # context file -> when it was read while CTX_AUDIT_DUE stood


def audit_health(shot: Record) -> list:
    """How full the context is; a jump over two levels emits the higher and marks both."""
    active = [(level, severity) for level, clear, severity in HEALTH_LEVELS if shot.percent >= level
              or ("CTX_HEALTH_%d" % level in shot.active and shot.percent >= clear)]
    if not active:
        return []
    level, severity = active[0]
    plain, written = HEALTH_ACTIONS[level]
    action = (written if shot.is_written else plain).format(
        decisions=HEALTH_DECISIONS.format(path=shot.decisions) if shot.decisions else "",
        write=HEALTH_WRITE.format(path=shot.handoff) if shot.handoff else "",
        now=HEALTH_NOW.format(path=shot.handoff) if shot.handoff else "")
    return [Record(codes=["CTX_HEALTH_%d" % each for each, _ in active], severity=severity,
                   summary=HEALTH_SUMMARY.format(percent=shot.shown, note=shot.note),
                   action=action[0].upper() + action[1:])]


def audit_repetition(shot: Record) -> list:
    level = REPETITION_CLEAR if "CTX_REPETITION" in shot.active else REPETITION_LEVEL
    if shot.score < level:
        return []
    summary = REPETITION_SUMMARY.format(count=shot.repeats, window=REPETITION_WINDOW,
                                        how=REPETITION_HOW if shot.failing else "")
    return [Record(codes=["CTX_REPETITION"], severity="warning", summary=summary,
                   action=REPETITION_ACTION)]


def audit_reminder(shot: Record) -> "list | None":
    """None: the files were not looked at this time."""
    if not shot.stale_files:
        return None if shot.stale_files is None else []
    summary = AUDIT_SUMMARY.format(days=shot.stale_days, files=", ".join(shot.stale_files))
    return [Record(codes=["CTX_AUDIT_DUE"], severity="warning", summary=summary,
                   action=AUDIT_ACTION)]


AUDITORS = (  # name, function, its codes begin with, for every session?, cooldown, TTL
    ("context-health", audit_health, "CTX_HEALTH_", False, 900, 300),
    ("repetition", audit_repetition, "CTX_REPETITION", False, 600, 300),
    ("audit-reminder", audit_reminder, "CTX_AUDIT_DUE", True, 14400, 3600),
)


# --- repetition: by what a call does, and what came of it

_LOOKS = ("ls ", "cat ", "head ", "tail ", "grep ", "rg ", "find ", "sed -n ", "awk ", "wc ",
          "echo ", "pwd ", "which ", "stat ", "tree ", "ps ", "jq ", "diff ", "curl ",
          "git status ", "git diff ", "git log ", "git show ")
_CHANGING = ("edit", "write", "create", "update", "insert", "replace", "click", "type", "fill")
_DIGITS = frozenset("0123456789")


def note_repetition(state: Record, event: Record) -> None:
    """Remember [what it did, what it did in this state of things, "failed", "edit" or ""] of one
    call. A change that is new makes what comes after it new; waiting and notes are not work."""
    if event.kind in ("poll", "ask", "note") or _is_waiting(event):
        return
    about, exact = describe_call(event)
    changes, seen = _is_change(event, exact), visible_response(event)
    outcome = "%s %d" % (seen if isinstance(seen, str) else repr(seen), event.response_bytes)
    about += "\0" + _without_numbers(outcome[:1000] + outcome[-1000:])
    exact += "\0" + outcome[:4000] + outcome[-4000:]
    how = "failed" if event.failed else "edit" if event.kind == "edit" else ""
    world = "" if how == "edit" else str(state.edits)
    row = [call_signature("", exact if how == "edit" else about),
           call_signature(world, about if how == "failed" else exact), how]
    if changes and not any(row[:1] == list_of(old)[:1] for old in state.recent):
        state.edits += 1
    state.recent = (state.recent + [row])[-REPETITION_WINDOW:]


def describe_call(event: Record) -> tuple:
    """(what the call does, the same to the letter): without descriptions, comments, numbers."""
    if event.kind == "run":
        exact = _plain_command(command_of(event), event.cwd)
        return _without_numbers(exact), exact
    ignored = ("description", "timeout", "activeForm", "riskLevel", "riskLevelReason")
    rest = {key: value for key, value in event.tool_input.items() if key not in ignored}
    try:
        exact = event.tool + " " + format_json(rest)
    except (ValueError, TypeError):
        exact = event.tool  # nested too deeply to tell apart
    about = event.tool + " " + event.path if event.kind == "edit" and event.failed else exact
    return _without_numbers(about), exact


def _plain_command(command: str, cwd: str) -> str:
    """Comments and blanks are no difference, nor a `cd` to where one is, nor another way to look
    at the output."""
    lines = [strip_comment(line) for line in command[:20_000].split("\n")]
    text = " ".join(" ".join(lines).split())
    here = "cd " + cwd + " && "
    text = text[len(here):] if text.startswith(here) else text
    while text.partition("=")[0].isidentifier() and " " in text:
        text = text.partition(" ")[2]  # a variable in front
    for mark in (" || true", " | cat", " | tail", " | head", " 2>&1"):
        before, found, rest = text.rpartition(mark)
        text = before if found and not rest.strip(" -n0123456789") else text
    return text


def _without_numbers(text: str) -> str:
    return " ".join([word for word in text.split() if _DIGITS.isdisjoint(word)])


def _is_waiting(event: Record) -> bool:
    """A call that waits, or looks at what runs in the background; one that fails counts."""
    if event.failed:
        return False
    is_output = event.path.endswith(".output") and "/tasks/" in event.path
    return is_output or "wait" in event.tool or command_of(event).lstrip().startswith("sleep ")


def _is_change(event: Record, exact: str) -> bool:
    """Whether the call may have changed what a later one sees."""
    if event.failed or event.kind in ("edit", "read"):
        return event.kind == "edit" and not event.failed
    if event.kind != "run":
        return any(word in event.tool.lower() for word in _CHANGING)
    is_look = (exact + " ").startswith(_LOOKS)
    return not is_look or " -i" in exact or " > " in exact or " >> " in exact


def call_signature(head: str, text: str) -> str:
    """The interpreter's own source hash is built in; hashlib would cost 5 % of a start."""
    data = (head + "\0" + text).encode("utf-8", "replace")
    return _imp.source_hash(0x637478, data).hex()


def repetition_of(recent: list) -> tuple:
    """(score, calls that did the same, whether they failed) over the last calls: the same failure
    or edit twice, the same result three times. A failing repeat counts more."""
    keys = ["".join(row[1:]) for row in map(list_of, recent[-REPETITION_WINDOW:])
            if len(row) == 3 and all(isinstance(part, str) for part in row)]
    score, total, failing = 0.0, 0, True
    for key in dict.fromkeys(keys):
        count, failed = keys.count(key), key.endswith("failed")
        if count > (1 if failed or key.endswith("edit") else 2):
            score += (count - 1) * (REPETITION_FAILED if failed else 1.0)
            total, failing = total + count, failing and failed
    return score, total, failing and total > 0


# --- evaluation


def note_audit(state: Record, shot: Record) -> bool:
    """Whether an evaluation could change anything, by the session's own note of the last one: the
    file that all sessions share is not even opened on nearly every call. While an alert stands,
    cooldowns are looked at each minute."""
    percent, score, at, codes = (state.audited + [None] * 4)[:4]
    shot.active = {code for code in list_of(codes) if isinstance(code, str)}
    now_active = [code for _, audit, _, everywhere, _, _ in AUDITORS if not everywhere
                  for alert in audit(shot) for code in alert.codes]
    is_aged = now_active and not 0 <= shot.now - count_of(at) < AUDIT_BAND_S
    is_same = (percent, score, codes) == (shot.percent, shot.score, now_active)
    if is_same and shot.stale_files is None and not is_aged:
        return False
    state.audited = [shot.percent, shot.score, int(shot.now), now_active]
    return True


def update_monitor(ctx: Ctx, change, is_new: bool = False) -> object:
    """Locked; what `change(known)` returns, None where there is no file and none is to be made."""
    path = ctx.path("monitor-state.json")
    return update_json(ctx, path, change, MONITOR)[1] if is_new or is_file(path) else None


def run_auditors(ctx: Ctx, session: str, shot: Record) -> list:
    """Evaluate, write the signals, remember; the emitted alerts."""
    emitted = update_monitor(ctx, lambda known: _evaluate(ctx, session, shot, known), True) or []
    for name, scope, ttl_s, alert in emitted:
        signal = Record(
            name=name, severity=alert.severity, generated_at=ctx.now, auditor=name, ttl_s=ttl_s,
            code=alert.codes[0], body=alert.summary + "\n→ " + alert.action)
        if write_signal(ctx, scope, signal):
            record(ctx, "alert:emitted", code=signal.code, severity=alert.severity,
                   summary=alert.summary)
    return emitted


def _evaluate(ctx: Ctx, session: str, shot: Record, known: Record) -> list:
    """[(auditor, session or "", ttl, alert)] to emit; edits what is known."""
    emitted = []
    known.lastHealth[session] = {"contextPercent": shot.percent, "repetitionScore": shot.score}
    for name, audit, prefix, everywhere, cooldown_s, ttl_s in AUDITORS:
        scope, target = ("global:", "") if everywhere else (session + ":", session)
        shot.active = {key[len(scope):] for key in known.activeAlerts
                       if key.startswith(scope + prefix)}
        alerts = audit(shot)
        if alerts is None:
            continue
        codes = [code for alert in alerts for code in alert.codes]
        gone = shot.active.difference(codes)
        for code in gone:
            del known.activeAlerts[scope + code]
        if gone:
            withdraw_signals(ctx, target, name, gone)
        known.activeAlerts.update((scope + code, True) for code in codes)
        for alert in alerts:
            past_s = ctx.now - (parse_iso(known.lastEmitted.get(scope + alert.codes[0])) or 0.0)
            is_unsaid = past_s > ttl_s and target and is_file(signal_path(ctx, target, name))
            if is_unsaid or not -SAME_EVENT_S < past_s < cooldown_s:
                known.lastEmitted.update((scope + code, format_iso(ctx.now))
                                         for code in alert.codes)
                emitted.append((name, target, ttl_s, alert))
    return emitted


def has_unsaid(ctx: Ctx, session: str) -> bool:
    """An alert of this session that expired before it was said."""
    infos = [(stat_of(signal_path(ctx, session, name)), ttl_s)
             for name, _, _, everywhere, _, ttl_s in AUDITORS if not everywhere]
    return any(info is not None and ctx.now - info.st_mtime > ttl_s for info, ttl_s in infos)


def withdraw_alerts(ctx: Ctx, session: str, prefix: str = "CTX_HEALTH_") -> None:
    """After a compaction or /clear nothing of the old context's measure holds."""

    def change(known: Record) -> list:
        keys = [key for key in known.activeAlerts if key.startswith(session + ":" + prefix)]
        for key in keys:
            known.activeAlerts.pop(key, None)
            known.lastEmitted.pop(key, None)
        return [key.partition(":")[2] for key in keys]

    codes = update_monitor(ctx, change)
    for name, _, starts, _, _, _ in AUDITORS:
        if codes and starts == prefix:
            withdraw_signals(ctx, session, name, codes)


def find_stale_files(ctx: Ctx) -> tuple:
    """(days since the newest change, names) when every context file is older than the setting. One
    that was read while the reminder stood counts as confirmed."""
    limit_days = ctx.get("audit.stale_days")
    known = load_record(read_json(ctx.path("monitor-state.json")), MONITOR)
    there = {}
    for name in ctx.get("gate.files"):
        info = stat_of(join_path(ctx.dir, name))
        if info is not None:
            there[name] = max(info.st_mtime, parse_iso(known.confirmed.get(name)) or 0.0)
    if not there or not limit_days:
        return 0, []
    days = int((ctx.now - max(there.values())) // 86400)
    return days, list(there) if days >= limit_days else []


def confirm_file(ctx: Ctx, name: str) -> None:
    """A context file was read: while the reminder stands, that answers it."""

    def change(known: Record) -> None:
        if "global:CTX_AUDIT_DUE" in known.activeAlerts:
            known.confirmed[name] = format_iso(ctx.now)

    update_monitor(ctx, change)

# =============================================================================
# Gate
# =============================================================================
# One message at the first tool call of a session. The marker in the temp folder is created with
# O_EXCL before the output, so that parallel first calls fire once; what is not our own regular
# file there is neither trusted nor followed. A second marker tells the shell that nothing is owed
# before a tool any more.
FILLERS = frozenset(("tbd", "todo", "n/a", "none", "...", "…", "unknown", "-", "yyyy-mm-dd"))
GATE_ROOM = 1500  # with less the gate waits for the next call


def gate_files(ctx: Ctx) -> list:
    """[(name, path)] of the listed context files that say something."""
    named = [(name, join_path(ctx.dir, name)) for name in ctx.get("gate.files")]
    return [(name, path) for name, path in named if is_telling_file(ctx, path)]


def is_telling_file(ctx: Ctx, path: str) -> bool:
    return is_file(path) and says_something(read_shared(ctx, path) or b"")


def says_something(data: bytes) -> bool:
    """Something is left after headings, comments, empty list items and fillers, which is all that a
    template holds. The one test for context files and handoffs."""
    text = decode_text(data[:FILE_LIMIT_BYTES])
    if "\0" in text[:8192]:
        return False
    return any(map(_is_telling, _without_comments(text).split("\n")))


def decode_text(data: bytes) -> str:
    """UTF-8, or what some shells on Windows write; any line end."""
    is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16" if is_wide else "utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _without_comments(text: str) -> str:
    first, *rest = text.split("<!--")
    return first + "".join(part.partition("-->")[2] for part in rest)


def _is_telling(line: str) -> bool:
    words = line.strip()
    if words.startswith("#"):
        return False
    words = words.lstrip("-*+>0123456789.)| \t").strip("_*`| \t")
    if words[:1] == "[" and words[2:3] == "]":
        words = words[3:].strip()
    is_wrapped = (words[:1], words[-1:]) in (("[", "]"), ("(", ")"), ("<", ">"))
    words = words if is_wrapped else words.rpartition(": ")[2].strip("`_* ")
    bare = "".join(c for c in words if c.isalnum() or c > "\x7f")
    return not is_wrapped and words[-1:] != ":" and words.lower() not in FILLERS and (
        bare.lower() not in FILLERS and bool(bare.strip("…")))


def claim_marker(ctx: Ctx, session: str) -> "bool | None":
    """True for the one that opens this session's gate, False when it was open before, None: cannot
    tell."""
    path = marker_path(ctx, session)
    claimed = claim_file(ctx, path, (format_iso(ctx.now) + "\n").encode())
    return claimed if claimed or has_marker(ctx, session) else None


def has_marker(ctx: Ctx, session: str) -> bool:
    return is_own(stat_of(marker_path(ctx, session), follow=False))


def drop_markers(ctx: Ctx, session: str,
                 prefixes: tuple = (MARKER_PREFIX, QUIET_PREFIX, ASKED_PREFIX)) -> None:
    for prefix in prefixes:
        path = marker_path(ctx, session, prefix)
        if is_own(stat_of(path, follow=False)):
            remove_file(path)


def keep_quiet(ctx: Ctx, session: str) -> None:
    """Nothing is owed before a tool: the registered command need not start an interpreter. The
    shell knows the session by the client's variable alone."""
    if session and ctx.env.get("CLAUDE_CODE_SESSION_ID") == session:
        claim_file(ctx, marker_path(ctx, session, QUIET_PREFIX), b"")


def open_gate(ctx: Ctx, event: Record, state: Record, room: int) -> "str | None":
    """The gate's text for this call, "" when nothing is owed any more, None: later."""
    if ctx.get("gate.mode") == "off" or has_marker(ctx, event.session):
        return ""
    files = gate_files(ctx)
    if not files:
        return None
    if all(name in state.files_read for name, _ in files):
        return ""
    if room < GATE_ROOM:
        return None
    text = render_gate(ctx, event, files, room)
    claim = claim_marker(ctx, event.session)
    if claim is False:
        return ""
    record(ctx, "gate:emitted", files=[name for name, _ in files], marker=bool(claim),
           style=ctx.get("gate.mode"), chars=len(text))
    return text


def render_gate(ctx: Ctx, event: Record, files: list, room: int) -> str:
    """The whole instruction in one message: a chain of `run this and follow its output` decays link
    by link."""
    shown = {path: shown_path(ctx, path, event.cwd) for _, path in files}
    is_content, limit = ctx.get("gate.mode") == "content", min(GATE_CONTENT_LIMIT, room)
    head = ctx.get("gate.message") or (GATE_STATEMENT if is_content else GATE_DIRECTIVE)
    head = clean_text(head.replace("{files}", ", ".join(shown.values())))
    if is_content:
        head = cut_text(head, limit // 4, ctx.length)
        return "\n".join([head] + _gate_content(ctx, shown, limit - ctx.length(head) - 1))
    head = cut_text(head, limit - ctx.length(GATE_CHECKPOINT) - 1, ctx.length)
    return head + "\n" + GATE_CHECKPOINT if event.attended else head


def _gate_content(ctx: Ctx, shown: dict, room: int) -> list:
    """The files' text by priority; each one that was cut or left out is named with its path."""
    out, left_out = [], []
    names = ", ".join(shown.values())
    room -= min(room // 2, ctx.length(GATE_CONTENT_LEFT_OUT.format(paths=names)))
    for path, name in shown.items():
        label, body = GATE_CONTENT_FILE.format(path=name), gate_body(ctx, path)
        left = room - ctx.length(label) - ctx.length(body) - 2
        if left >= 0:
            out += [label, body]
            room = left
        elif room > 600:
            note = GATE_CONTENT_CUT.format(path=name)
            fits = room - ctx.length(label) - ctx.length(note) - 3
            out += [label, cut_text(body, fits, ctx.length), note]
            room = 0
        else:
            left_out.append(name)
    rest = cut_text(", ".join(left_out), 600, ctx.length)
    return out + ([GATE_CONTENT_LEFT_OUT.format(paths=rest)] if rest else [])


def gate_body(ctx: Ctx, path: str) -> str:
    """A file's text, of a long list of decisions its index."""
    text = decode_text(read_shared(ctx, path) or b"")
    start, end = text.find(INDEX_START), text.find(INDEX_END)
    if base_name(path) in INDEXED_FILES and 0 <= start < end:
        text = text[start + len(INDEX_START):end]
    return clean_text(text).strip()


def read_context_file(ctx: Ctx, event: Record) -> str:
    """The listed context file that this call read, or ""; some agents have no other way to read
    than `cat .context/TASKS.md`."""
    if event.failed or event.kind not in ("read", "run"):
        return ""
    command = command_of(event) if event.kind == "run" else ""
    shows = command.split(None, 1)[:1] in (["cat"], ["less"], ["head"], ["bat"])
    path = join_path(event.cwd or ctx.root, event.path) if event.kind == "read" else ""
    for name in ctx.get("gate.files") if shows or path else ():
        listed = join_path(ctx.dir, name)
        is_alike = base_name(path).lower() == base_name(listed).lower()
        if (shows and name in command) or path == listed or (
                is_alike and real_path(path) == real_path(listed)):
            return name
    return ""

# =============================================================================
# Handoff
# =============================================================================
# From the crossing of the threshold on, every batch of tool calls carries the reminder until there
# is a handoff: written by the agent, printed by it and saved at Stop, or made from the transcript.
# .context/state/handoffs.json is the ledger; one that came with a clone has another inode in it.
LEDGER = (
    ("inode", 0, int), ("first_event", 0.0, "time"),
    ("cleared", {}, dict),  # the client's process -> the session that it cleared last, and when
    ("handoffs", {}, [(  # by session
        ("file", "", str), ("agent", "", str), ("asked_at", 0.0, "time"),
        ("written_at", 0.0, "time"), ("by", "", str), ("delivered_to", "", str),
        ("delivered_at", 0.0, "time"), ("evidence", "", str),
    )]),
)
_ROW = LEDGER[-1][2][0]
LIVE_S, LIVE_BY_NUMBER_S = 3600, 86400  # a process known by its number alone is believed a day
CLEARED_S = 120
GIT_INDEX_LIMIT_BYTES = 64 * 1024 * 1024
_UNDELIVERED = {"delivered_to": "", "delivered_at": 0.0, "evidence": ""}
RECENT_S = 600  # a handoff that the agent wrote unasked so shortly before the crossing counts


def client_of(ctx: Ctx) -> str:
    """The client's process, where it tells: its number, and where /proc says so when it started
    and in which namespace, because numbers are used again. "" where it does not tell."""
    pid = ctx.env.get("CLAUDE_PID", "") if ctx.agent == "claude" else ""
    start = _start_of(pid) if is_digits(pid) else ""
    return "%s %s %s" % (pid, start, _pid_space()) if start else pid if is_digits(pid) else ""


def _start_of(pid: str) -> str:
    fields = (read_bytes("/proc/%s/stat" % pid, 4096) or b"").rpartition(b")")[2].split()
    return fields[19].decode("ascii", "replace") if fields[19:] else ""


def _pid_space() -> str:
    try:
        return _os.readlink("/proc/self/ns/pid")
    except (OSError, AttributeError):
        return ""


def ledger_path(ctx: Ctx) -> str:
    """In a shared checkout each user has one, readable by nobody else."""
    own = not IS_POSIX or _os.geteuid() in (0, ctx.owner.st_uid)
    return ctx.path("state", "handoffs.json" if own else "handoffs-%d.json" % _os.geteuid())


def read_ledger(ctx: Ctx) -> Record:
    return _begin_ledger(ctx, load_record(read_json(ledger_path(ctx)), LEDGER))


def update_ledger(ctx: Ctx, change) -> object:
    """Locked; what `change(ledger)` returns, None when it does not stand on the disk."""
    written, result = update_json(
        ctx, ledger_path(ctx), lambda ledger: change(_begin_ledger(ctx, ledger)), LEDGER)
    return result if written else None


def _begin_ledger(ctx: Ctx, ledger: Record) -> Record:
    if ledger.inode != ctx.owner.st_ino or not ledger.first_event:
        vars(ledger).update(inode=ctx.owner.st_ino, first_event=ctx.now, cleared={}, handoffs={})
    return ledger


def ledger_row(ledger: Record, session: str) -> Record:
    """The session's row, made when it is missing."""
    if session not in ledger.handoffs:
        ledger.handoffs[session] = load_record({}, _ROW)
    return ledger.handoffs[session]


def handoff_path(ctx: Ctx, session: str, ledger: Record) -> str:
    """The absolute path of a session's handoff; its name is cut to 8 letters while unique."""
    noted, named = ledger.handoffs.get(session), ctx.get("handoff.file")
    if noted is not None and noted.file:
        return join_path(ctx.root, noted.file)
    base = ctx.path("handoffs", "{session}.md") if named == DEFAULTS["handoff.file"] else (
        join_path(ctx.root, named))
    used = {join_path(ctx.root, row.file) for row in ledger.handoffs.values()}
    short = session if "~" in session else session[:8].rstrip("._-") or session
    names = (short, session, session + "~" + call_signature("", session)[:8])
    paths = [base.replace("{session}", name) for name in names]
    return next((path for path in paths if path not in used), paths[-1])


def fingerprint(path: str) -> str:
    """Changes with size, content or time; "" when there is nothing."""
    info = stat_of(path)
    if not is_regular(info):
        return ""
    data = read_bytes(path, HANDOFF_LIMIT_BYTES) or b""
    return "%d-%d-%s" % (info.st_size, info.st_mtime_ns, _imp.source_hash(1, data).hex())


def read_handoff(ctx: Ctx, path: str) -> str:
    """Its text, cleaned; "" when it is not there, says nothing or may not be delivered."""
    data = read_shared(ctx, path, HANDOFF_LIMIT_BYTES)
    if not data or not says_something(data):
        return ""
    return clean_text(decode_text(data)).strip()


def note_cleared(ctx: Ctx, session: str) -> None:
    """Who comes next in this client starts from this session's handoff."""

    def change(ledger: Record) -> None:
        ledger.cleared[client_of(ctx)] = [session, format_iso(ctx.now)]
        for key in list(ledger.cleared)[:-20]:
            del ledger.cleared[key]

    update_ledger(ctx, change)


def cleared_session(ctx: Ctx) -> str:
    """The session that this client cleared a moment ago, or ""."""
    row = list_of(read_ledger(ctx).cleared.get(client_of(ctx))) + ["", ""]
    is_fresh = abs(ctx.now - (parse_iso(row[1]) or 0.0)) < CLEARED_S
    return text_of(row[0]) if is_fresh else ""


# --- the reminder


def follow_handoff(ctx: Ctx, event: Record, state: Record, measure: Record, batch: str) -> tuple:
    """(the reminder for this call, a line for the person), both "" when there is nothing to ask;
    edits the handoff's part of the session's state."""
    if not ctx.get("handoff.enabled"):
        return "", ""
    point, crossed = handoff_point(ctx, state, measure.window), state.threshold_crossed_at
    margin = measure.window * HANDOFF_RESET_MARGIN // 100
    if crossed and measure.exact and measure.tokens < point - margin:
        reset_handoff(state)
        return "", ""
    if state.handoff_complete or not (crossed or measure.tokens >= point):
        return "", ""
    if not all(make_folder(ctx, folder) and is_dir(folder) and is_writable(folder)
               for folder in (ctx.path("state"), ctx.path("handoffs"))):
        return _ask_once(ctx, event, measure)
    if not crossed:
        _cross(ctx, event, state, measure)
    elif crossed > ctx.now + 1:  # a clock that went back must not make it unreachable
        state.threshold_crossed_at = ctx.now
    ledger, person = read_ledger(ctx), ""
    path = handoff_path(ctx, event.session, ledger)
    if find_written(ctx, event, state, ledger):
        return "", complete_handoff(ctx, state, path, "agent")
    if not state.handoff_told:
        state.handoff_told = "asked"
        person = HANDOFF_ASKED_PERSON.format(percent=measure.shown)
    text = _remind(ctx, event, state, path, batch)
    if text:
        text = _how_full(measure) + " " + text
        record(ctx, "handoff:reminded", percent=measure.percent, exact=measure.exact, batch=batch,
               chars=len(text))
    return text, person


def _cross(ctx: Ctx, event: Record, state: Record, measure: Record) -> None:
    def change(ledger: Record) -> tuple:
        row, path = ledger_row(ledger, event.session), handoff_path(ctx, event.session, ledger)
        before = row.written_at
        vars(row).update(_UNDELIVERED, file=shown_path(ctx, path, ""), agent=ctx.agent,
                         asked_at=ctx.now, written_at=0.0, by="")
        return path, before

    found = update_ledger(ctx, change)
    path, before = found or (handoff_path(ctx, event.session, read_ledger(ctx)), 0.0)
    if may_write(ctx, path):
        make_folder(ctx, parent_of(path))  # an agent that writes by its shell needs it
    info, old = stat_of(path), join_path(ctx.root, OLD_HANDOFF)
    since = max(before, state.session_start, state.compacted_at, ctx.now - RECENT_S)
    is_recent = info is not None and since < info.st_mtime <= ctx.now + 1
    vars(state).update(
        threshold_crossed_at=ctx.now, handoff_complete=False, handoff_told="",
        handoff_before=["" if is_recent else fingerprint(path), fingerprint(old)],
        client=client_of(ctx), transcript=event.transcript)
    record(ctx, "handoff:crossed", percent=measure.percent, tokens=measure.tokens,
           window=measure.window)


def find_written(ctx: Ctx, event: Record, state: Record, ledger: Record) -> bool:
    """Whether the handoff is there, and noted as the agent's: the session's own file, or a path
    that several may write, newer than the crossing, for the session whose call wrote it or the
    only one that waits."""
    own = handoff_path(ctx, event.session, ledger)
    for path in dict.fromkeys((own, join_path(ctx.root, OLD_HANDOFF))):
        info = stat_of(path)
        is_new = is_regular(info) and bool(info.st_size) and (
            fingerprint(path) not in state.handoff_before)
        if is_new and (path != own or "{session}" not in ctx.get("handoff.file")):
            waiting = [name for name, row in ledger.handoffs.items()
                       if row.asked_at and not row.written_at and is_live(ctx, name)]
            wrote = event.kind == "edit" and not event.failed and (
                join_path(event.cwd or ctx.root, event.path) == path)
            taken = any(join_path(ctx.root, row.file) == path and row.written_at >= info.st_mtime
                        for name, row in ledger.handoffs.items() if name != event.session)
            is_new = info.st_mtime + 1 >= state.threshold_crossed_at and not taken and (
                wrote or (waiting == [event.session] and not is_foreign(ctx, path, info)))
        if is_new and read_handoff(ctx, path):
            note_written(ctx, event.session, path, "agent")
            return True
    return False


def is_foreign(ctx: Ctx, path: str, info: object) -> bool:
    """Not a session's: from the future, as an archive can make it, or kept by git, so that a
    checkout brought it."""
    if info.st_mtime > ctx.now + CLOCK_SKEW_S:
        return True
    folder = path
    for _ in range(PARENT_LIMIT):
        folder, inner = parent_of(folder), folder
        git = git_folder(folder)
        index = read_bytes(git + "/index", GIT_INDEX_LIMIT_BYTES)
        name = path[len(folder.rstrip("/")) + 1:].encode("utf-8", "replace")
        if index is not None and (
                name + b"\0" in index or index[4:8] == b"\0\0\0\4"  # there names share beginnings
                or len(index) == GIT_INDEX_LIMIT_BYTES
                or any(other.startswith("sharedindex.") for other in list_dir(git))):
            return True
        if folder == inner:
            break
    return False


def note_written(ctx: Ctx, session: str, path: str, by: str) -> None:
    def change(ledger: Record) -> None:
        row = ledger_row(ledger, session)
        vars(row).update(_UNDELIVERED, file=shown_path(ctx, path, ""), by=by, written_at=ctx.now,
                         agent=row.agent or ctx.agent)

    update_ledger(ctx, change)
    if parent_of(path) == ctx.path("handoffs"):
        make_private(path)


def complete_handoff(ctx: Ctx, state: Record, path: str, by: str) -> str:
    """There is one: the line for the person, once."""
    is_told = state.handoff_told == "written"
    state.handoff_complete, state.handoff_told = True, "written"
    record(ctx, "handoff:complete", path=path, by=by)
    return "" if is_told else HANDOFF_DONE_PERSON


def _remind(ctx: Ctx, event: Record, state: Record, path: str, batch: str) -> str:
    """What is asked for, or "": parallel calls of one batch remind once."""
    if state.reminders and not state.write_denied:
        state.write_denied = _was_denied(ctx, event, path)
    is_spaced = abs(ctx.now - state.reminded_at) < ctx.get("handoff.cooldown_s")
    if is_spaced or (batch and batch == state.reminded_batch):
        return ""
    state.reminded_batch, state.reminded_at = batch, ctx.now
    state.reminders += 1
    prints, command = event.permission_mode == "plan" or state.write_denied, one_line(
        ctx.get("handoff.command"))
    return HANDOFF_REMINDER.format(
        request=HANDOFF_PRINT if prints else HANDOFF_WRITE.format(path=path),
        command=HANDOFF_COMMAND.format(command=command) if command else "")


def _ask_once(ctx: Ctx, event: Record, measure: Record) -> tuple:
    """Where nothing can be written, a handoff can neither be saved nor seen."""
    if claim_file(ctx, marker_path(ctx, event.session, ASKED_PREFIX), b"") is not True:
        return "", ""
    return (_how_full(measure) + " " + HANDOFF_UNSAVED.format(path=ctx.dir),
            HANDOFF_UNSAVED_PERSON.format(percent=measure.shown, path=ctx.dir))


def _how_full(measure: Record) -> str:
    return HANDOFF_FULL.format(
        percent=measure.shown, tokens=format(measure.tokens, ","),
        window=format(measure.window, ","), note=", " + measure.note if measure.note else "")


def _was_denied(ctx: Ctx, event: Record, path: str) -> bool:
    """The client refused a write of the handoff: it stands in the transcript, one event later."""
    denied = set()
    for row in rows_backward(ctx, event.transcript, 1 << 20):
        denied.update(result[0] for result in row.results if result[3:4] == (True,))
        for call, _, tool_input in row.calls:
            named = touched_path(tool_input) if call in denied else ""
            if named and join_path(event.cwd or ctx.root, named) == path:
                return True
    return False


def reset_handoff(state: Record) -> None:
    """After a compaction nothing of the old context's measure holds."""
    vars(state).update(
        reminded_batch="", reminded_at=0.0, reminders=0, threshold_crossed_at=0.0,
        handoff_complete=False, handoff_before=[], handoff_told="", write_denied=False)


# --- printed by the agent, saved at Stop


def parse_printed(text: str) -> str:
    """What stands between the lines BEGIN HANDOFF and END HANDOFF, the last time; "" without."""
    lines, found, start = text.replace("\r\n", "\n").split("\n"), "", -1
    for index, line in enumerate(lines):
        words = line.strip().strip("*_#- ").upper()  # not a quotation, not inline code
        if words == HANDOFF_BEGIN:
            start = index
        elif words == HANDOFF_END and start >= 0:
            found = "\n".join(lines[start + 1:index]).strip() or found
            start = -1
    return found


def save_printed(ctx: Ctx, event: Record, state: Record) -> str:
    """Save a handoff that the agent printed in its answer; the line for the person, or ""."""
    if not state.threshold_crossed_at or state.handoff_complete:
        return ""
    by = "agent" if find_written(ctx, event, state, read_ledger(ctx)) else ""
    if not by:
        text = parse_printed(event.last_message) or parse_printed(read_turn(ctx, event.transcript))
        if says_something(text.encode("utf-8", "replace")):
            by = write_handoff(ctx, event.session, hide_secrets(text) + "\n", "printed")
    if not by:
        return ""
    path = handoff_path(ctx, event.session, read_ledger(ctx))
    _, line = update_session(ctx, event.session, lambda state: "" if state.handoff_complete else (
        complete_handoff(ctx, state, path, by)))
    return line or ""


def write_handoff(ctx: Ctx, session: str, text: str, by: str) -> str:
    """Into the session's own file; `by`, or "" when it cannot be written."""
    path = handoff_path(ctx, session, read_ledger(ctx))
    if not may_write(ctx, path):
        path = ctx.path("handoffs", session + ".md")  # a setting named another place
    data = clean_text(text).encode("utf-8", "replace")[:HANDOFF_LIMIT_BYTES]
    if not write_bytes(ctx, path, data, durable=True):
        return ""
    note_written(ctx, session, path, by)
    return by


# --- made from the transcript


def write_mechanical(ctx: Ctx, session: str, transcript: str) -> str:
    """The kit's own handoff; "mechanical", or "" when there is nothing to make it from."""
    ledger = read_ledger(ctx)
    path, row = handoff_path(ctx, session, ledger), ledger.handoffs.get(session)
    if read_handoff(ctx, path) and not (row and (row.by == "mechanical" or row.evidence)):
        note_written(ctx, session, path, "agent")  # it stands: nothing is lost
        return "agent"
    facts = read_facts(ctx, transcript)
    if facts is None:
        return ""
    by = write_handoff(ctx, session, render_mechanical(ctx, session, facts), "mechanical")
    if by:
        record(ctx, "handoff:mechanical", chars=len(facts.said), prompts=len(facts.prompts))
    return by


def read_facts(ctx: Ctx, transcript: str) -> "Record | None":
    """What a transcript tells: the person's first and last requests, what the agent said last, the
    files it changed, its todo list, the last failing command. From the end, in bounded time."""
    facts = Record(first="", prompts=[], said="", files=[], notes=[], failure="")
    failed, deadline = {}, time.monotonic() + 0.6
    for row in rows_backward(ctx, transcript, TRANSCRIPT_NEW_LIMIT_BYTES):
        if _is_request(row):
            facts.prompts.insert(0, row.text.strip())
        failed.update((result[0], result[2]) for result in row.results if result[1])
        if row.kind == "answer" and row.text.strip() and len(facts.said) < 1500:
            facts.said = (row.text.strip() + "\n\n" + facts.said).strip()
        for call in reversed(row.calls):
            _note_fact(facts, call, failed)
        if time.monotonic() > deadline:
            break
    start = (read_bytes(transcript, FILE_LIMIT_BYTES) or b"").split(b"\n")[:400]
    rows = (parse_line(ctx, line) for line in start)
    facts.first = next((row.text.strip() for row in rows if row and _is_request(row)),
                       "".join(facts.prompts[:1]))
    return facts if facts.first or facts.said or facts.files else None


def _is_request(row: Record) -> bool:
    """A person's words, not what a client puts there for a command or a finished task."""
    return row.kind == "prompt" and bool(row.text.strip()) and not row.text.lstrip().startswith(
        ("<", "Caveat:", "[Request interrupted", CONTINUATION_HEAD))


def _note_fact(facts: Record, call: tuple, failed: dict) -> None:
    """One tool call, seen from the newest to the oldest."""
    call_id, tool, tool_input = call
    kind, path = tool_kind(tool), touched_path(tool_input)
    if kind == "edit" and path and call_id not in failed:
        if path not in facts.files and len(facts.files) < 25:
            facts.files.insert(0, path)
    elif kind == "run" and call_id in failed and not facts.failure:
        command = one_line(command_of(Record(tool_input=tool_input)), 300)
        facts.failure = "`%s`\n%s" % (command, cut_text(failed[call_id].strip(), 600))
    elif kind == "note" and len(facts.notes) < 400:
        facts.notes.insert(0, tool_input)


def _todo_list(notes: list) -> list:
    """[(text, done)] as the last calls of the client's todo tools left it."""
    todos: dict = {}
    for note in notes:
        rows, key = note.get("todos") or note.get("plan"), str(note.get("taskId"))
        if isinstance(rows, list):
            todos = {str(i): (text_of(row.get("content") or row.get("step")
                                      or row.get("description")), row.get("status"))
                     for i, row in enumerate(map(dict_of, rows))}
        elif isinstance(note.get("subject"), str) and "taskId" not in note:
            todos[str(len(todos) + 1)] = (note["subject"], "pending")
        elif key in todos and note.get("status"):
            todos[key] = (todos[key][0], note["status"])
    return [(one_line(text, 160), status in ("completed", "done"))
            for text, status in todos.values() if text and status != "deleted"][:30]


def render_mechanical(ctx: Ctx, session: str, facts: Record) -> str:
    head = (read_bytes(git_folder(ctx.root) + "/HEAD", 4096) or b"").decode("utf-8", "replace")
    branch = one_line(head.partition("refs/heads/")[2], 100)
    later = [text for text in facts.prompts if text != facts.first][-3:]
    sections = (
        ("Goal: the person's first request", cut_text(facts.first, 1500)),
        ("The person's last requests", "\n\n".join(cut_text(text, 700) for text in later)),
        ("What the agent said last", cut_text(facts.said[-3000:], 3000)),
        ("Todo list", "\n".join("- [%s] %s" % ("x" if done else " ", text)
                                for text, done in _todo_list(facts.notes))),
        ("Files changed", "\n".join("- " + shown_path(ctx, one_line(path, 300), "")
                                    for path in facts.files)),
        ("The last command that failed", facts.failure),
    )
    parts = [MECHANICAL_HEAD.format(session=session, when=format_iso(ctx.now),
                                    branch=", branch " + branch if branch else "")]
    parts += ["## %s\n\n%s\n" % (title, text) for title, text in sections if text]
    return hide_secrets("\n".join(parts))


def git_folder(root: str) -> str:
    """A worktree's .git is a file that names the folder."""
    folder = root + "/.git"
    if is_file(folder):
        stated = (read_bytes(folder, 4096) or b"").decode("utf-8", "replace").partition("gitdir:")
        folder = join_path(root, stated[2].strip())
    return folder


# --- who is still there


def is_live(ctx: Ctx, session: str) -> bool:
    """Its client still runs; where that cannot be told, it was active within the hour."""
    info = stat_of(session_file(ctx, session))
    if info is None:
        return False
    client, age_s = read_session(ctx, session).client, ctx.now - info.st_mtime
    runs = _client_runs(client)
    if runs is None:
        return age_s < LIVE_S
    return runs and (" " in client or age_s < LIVE_BY_NUMBER_S)


def is_at_work(ctx: Ctx, session: str) -> bool:
    """Its client certainly still runs, and it is not the one that we are called by: that has this
    session now."""
    client = read_session(ctx, session).client
    return client != client_of(ctx) and _client_runs(client) is True


def _client_runs(client: str) -> "bool | None":
    """None: nobody can tell, also from another container."""
    pid, start, space = (client.split() + ["", "", ""])[:3]
    if not is_digits(pid) or space != (_pid_space() if start else ""):
        return None
    return _start_of(pid) == start if start else _is_running(int(pid))


def _is_running(pid: int) -> bool:
    try:
        return _is_active_on_windows(pid) if not IS_POSIX else _os.kill(pid, 0) is None
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False


def _is_active_on_windows(pid: int) -> bool:
    """Asked by a handle: there `kill` ends the process, whatever the signal."""
    import _winapi

    query, still_active = 0x1000, 259
    handle = _winapi.OpenProcess(query, False, pid)
    try:
        return _winapi.GetExitCodeProcess(handle) == still_active
    finally:
        _winapi.CloseHandle(handle)


def make_up(ctx: Ctx) -> None:
    """Sessions that were killed after the crossing get their handoff from their transcript now."""
    if not ctx.get("handoff.enabled"):
        return
    for session, row in read_ledger(ctx).handoffs.items():
        if not row.asked_at or row.written_at or session == ctx.session:
            continue
        state = read_session(ctx, session)
        is_past = state.client == client_of(ctx) != ""  # one client has one session at a time
        if (is_past or not is_live(ctx, session)) and state.transcript:
            if write_mechanical(ctx, session, state.transcript):
                break  # one at a start is enough to stay within the deadline

# =============================================================================
# Phases
# =============================================================================
# .caw/auto-state.json says which phase the agent is in. It counts only when it was meant on this
# machine: it names this live session, or `auto start` left its token in the user's own state home.
# A phase ends with a completion block in the agent's words of this turn, and its check, if it has
# one, exits 0. Any doubt lets the agent stop.
#
#     ---
#     SIGNAL: PLANNING_COMPLETE
#     PHASE: planning
#     STATUS: complete
#     TIMESTAMP: 2026-02-03T10:45:00Z
#     NEXT: execution
#     ---
PHASES = {
    "expansion": "Requirements: read the task and the code around it, write down what is asked, "
                 "what is not, and how it will be judged.",
    "init": "Environment: set up .caw/ for this task, find out how the project is built and "
            "tested.",
    "planning": "Plan: write task_plan.md with small steps that can each be checked.",
    "execution": "Execution: carry out all steps of the plan and mark each one when it is done.",
    "qa": "Quality: run the build, the linters and the tests, and mend what fails.",
    "review": "Review: read the whole change as a reviewer would and list the findings.",
    "fix": "Fix: mend the findings of the review.",
    "check": "Check: validate the result against the requirements and the project's rules.",
    "reflect": "Reflect: write down what was learned, in the context files where they have a "
               "place for it.",
}
SKIPS = {"skip_expansion": ("expansion",), "skip_qa": ("qa",),
         "skip_review": ("review", "fix", "check"), "skip_reflect": ("reflect",)}
TRANSITIONS = {"TRANSITION_TO_QA": "qa", "TRANSITION_TO_VALIDATION": "review",
               "TRANSITION_TO_FIX": "fix"}
BLOCKS = {  # signal -> its status, and its keys beside the common ones; "": every other signal
    "PHASE_ERROR": ("error", "ERROR", "RECOVERABLE"),
    "PHASE_BLOCKED": ("blocked", "NEEDS"),
    "": ("complete", "NEXT"),
}
_COMMON_KEYS = ("SIGNAL", "PHASE", "STATUS", "TIMESTAMP")
_BLOCK_KEYS = frozenset((*_COMMON_KEYS, "ERROR", "RECOVERABLE", "NEEDS", "NEXT"))
_STEP = (("phase", "", str), ("started_at", 0.0, "time"), ("ended_at", 0.0, "time"),
         ("attempts", 0, "count"), ("rounds", 0, "count"), ("check", "", str))
WORKFLOW = (
    ("schema_version", "2.0", str), ("active", False, bool), ("phase", "", str),
    ("iteration", 0, "count"), ("max_iterations", 20, "count"), ("started_at", 0.0, "time"),
    ("completed_at", 0.0, "time"), ("task_description", "", str), ("config", {}, dict),
    ("phases", [], "texts"), ("until", "", str), ("exit_reason", "", str),
    ("session_id", "", str), ("token", "", str), ("any_prompt", False, bool),
    ("phase_started_at", 0.0, "time"), ("needs", "", str),
    ("last_error", None, (("phase", "", str), ("message", "", str), ("recoverable", True, bool),
                          ("timestamp", 0.0, "time"))),
    ("signals", None, (("last_checked", 0.0, "time"), ("detected_signals", [], list))),
    ("enforcer", None, (("tool_calls", 0, "count"), ("stalls", 0, "count"), ("holds", 0, "count"),
                        ("phase_holds", 0, "count"), ("last_phase", "", str),
                        ("stop_mark", "", str), ("stop_at", 0.0, "time"))),
    ("steps", {}, [_STEP]),
)
TRUST = (("token", "", str), ("root", "", str), ("checks", {}, dict))  # phase -> digest
MAX_ITERATIONS, ITERATIONS_LIMIT = 20, 50
STALE_AFTER_S = 2 * 3600
STALLS_LIMIT = 3
FULL_PERCENT = 95
TIME_TOLERANCE_S = 300
CHECK_TAIL, CHECK_BUFFER = 2000, 64 * 1024
SECRET_ENDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "_PASS", "_PAT", "PASSPHRASE")
SECRET_STARTS = ("ANTHROPIC_", "CLAUDE_CODE_")
BLOCK = """---
SIGNAL: {signal}
PHASE: {phase}
STATUS: complete
TIMESTAMP: <current time, ISO 8601>
NEXT: {next}
---"""
CONTINUATION = CONTINUATION_HEAD + """
{lead}
- Phase: {phase} (iteration {iteration}/{max})
- About: {about}
- Task: {task}
- Expected signal: {signal}{check}

When the phase is done, print this block with the current time:
""" + BLOCK + """
If something went wrong, print this instead; with RECOVERABLE: false the workflow ends:
---
SIGNAL: PHASE_ERROR
PHASE: {phase}
STATUS: error
TIMESTAMP: <current time, ISO 8601>
ERROR: <what happened>
RECOVERABLE: true|false
---
If you need the person to decide something, print this; you may then stop and they are asked:
---
SIGNAL: PHASE_BLOCKED
PHASE: {phase}
STATUS: blocked
TIMESTAMP: <current time, ISO 8601>
NEEDS: <what the person must decide>
---"""
CONTINUATION_SHORT = CONTINUATION_HEAD + """
{lead} Phase {phase}, iteration {iteration}/{max}.
When it is done, print the block with SIGNAL: {signal} and the current time; \
PHASE_BLOCKED if the person must decide, PHASE_ERROR if it went wrong."""
BRIEFING = """[ctx auto] A workflow is running: phase {phase} of {phases}.
- Task: {task}
- About this phase: {about}{check}
When the phase is done, print this block with the current time:
""" + BLOCK
CHECK_LINE = "\n- Verified by: `{command}` (it must exit 0)"
LEAD_HOLD = "The phase is not complete yet: its completion block is missing."
LEAD_NEAR = "The block for {signal} does not count: {problem}."
LEAD_NEXT = "Phase {done} is complete. Go on with the next one."
LEAD_ERROR = "You reported a recoverable error: {error}. Recover from it and go on."
LEAD_CHECK = ("The block is there, but its check `{command}` {result}. "
              "The end of its output:\n{tail}\n")
CANCELLED_AGENT = "[ctx auto] The person cancelled the workflow; you may stop when you like."
STOP_MESSAGES = {
    "all_phases_complete": "ctx auto: all phases complete.",
    "auto_complete_signal": "ctx auto: the agent declared the whole workflow complete.",
    "max_iterations_reached":
        "ctx auto: stopped, phase {phase} did not complete within {max} iterations.",
    "stale_state": "ctx auto: ended, no activity for over 2 hours.",
    "critical_error": "ctx auto: stopped by an error in phase {phase}: {error}",
    "user_cancelled": "ctx auto: cancelled.",
    "blocked": "ctx auto: phase {phase} waits for you: {needs}",
    "not_agreed": "ctx auto: phase {phase} has a check that nobody agreed to; see `auto status`.",
    "no_progress": "ctx auto: let the agent stop, no tool call over 3 stops; phase {phase} stays.",
    "hold_cap":
        "ctx auto: let the agent stop before the client's own limit; phase {phase} stays.",
    "subagents": "ctx auto: subagents are at work; phase {phase} goes on when they are done.",
    "context_full":
        "ctx auto: let the agent stop, the context is nearly full; phase {phase} stays.",
    "plan_mode": "ctx auto: plan mode, the agent may stop; phase {phase} stays.",
    "unwritable": "ctx auto: let the agent stop, .caw/auto-state.json cannot be written.",
}


# --- blocks


def parse_blocks(text: str) -> list:
    """Everything in the text that means to be a block, in order: {key: value} with upper-case keys,
    each key on its own line between two `---` lines."""
    found, fields = [], None
    for line in map(str.strip, text.replace("\r\n", "\n").split("\n")):
        if line == "---":
            is_whole = fields is not None and "SIGNAL" in fields
            if is_whole:
                found.append(fields)
            fields = None if is_whole else {}  # the end of no block may open the next one
        elif line and fields is not None:
            key, colon, value = line.partition(":")
            key = key.strip().upper()
            is_field = colon and key in _BLOCK_KEYS and key not in fields
            fields = dict(fields, **{key: value.strip()}) if is_field else None
    return found


def problem_of_block(fields: dict, phase: str, since: float, now: float) -> str:
    """What is wrong with a block in this phase, "" when it counts."""
    signal, at = fields["SIGNAL"].upper(), parse_iso(fields.get("TIMESTAMP"))
    status, *own = BLOCKS.get(signal, BLOCKS[""])
    for key in (*_COMMON_KEYS, *own):
        if not fields.get(key):
            return key + " is missing"
    for key in fields:
        if key not in _COMMON_KEYS and key not in own:
            return key + " does not belong there"
    if fields["STATUS"].lower() != status:
        return "STATUS must be `%s`" % status
    if fields["PHASE"].lower() not in (phase, "complete" if signal == "AUTO_COMPLETE" else phase):
        return "PHASE is `%s`, the current phase is `%s`" % (one_line(fields["PHASE"], 40), phase)
    if at is None:
        return "TIMESTAMP is no ISO 8601 time"
    if not since - TIME_TOLERANCE_S <= at <= now + TIME_TOLERANCE_S:
        return "TIMESTAMP does not lie between the phase's start and now (%s)" % format_iso(now)
    if signal == "PHASE_ERROR" and fields["RECOVERABLE"].lower() not in ("true", "false"):
        return "RECOVERABLE must be true or false"
    return ""


def judge_turn(flow: Record, text: str, now: float) -> tuple:
    """(signal or "", its block, what is wrong with one that is nearly right): at most one. The
    current phase's own counts before all others; AUTO_COMPLETE only when it stands alone."""
    own, near, good, blocks = signal_of(flow.phase), "", {}, parse_blocks(text)
    for fields in blocks:
        signal = fields["SIGNAL"].upper()
        if signal not in (own, "AUTO_COMPLETE", *BLOCKS, *TRANSITIONS):
            continue
        problem = problem_of_block(fields, flow.phase, flow.phase_started_at, now)
        if not problem:
            good[signal] = fields
        elif signal == own or fields.get("PHASE", "").lower() == flow.phase:
            near = problem
    if len(blocks) > 1:
        good.pop("AUTO_COMPLETE", None)
    if not good:
        return "", {}, near
    signal = own if own in good else list(good)[-1]
    return signal, good[signal], ""


# --- the workflow


def auto_path(ctx: Ctx) -> str:
    return ctx.root + "/" + AUTO_STATE


def read_workflow(ctx: Ctx) -> Record:
    """For looking only."""
    return _complete_flow(ctx, load_record(read_json(auto_path(ctx)), WORKFLOW))


def update_workflow(ctx: Ctx, change) -> tuple:
    """Locked; a read-only file stays as it is. (whether it stands on disk, the result)."""
    path = auto_path(ctx)
    if not is_missing(path) and not is_writable(path):
        return False, change(read_workflow(ctx))
    return update_json(ctx, path, lambda flow: change(_complete_flow(ctx, flow)), WORKFLOW)


def _complete_flow(ctx: Ctx, flow: Record) -> Record:
    """The parts that other writers leave out. Without any time of its own the file's counts."""
    for key, _, kind in WORKFLOW:
        if isinstance(kind, tuple) and key != "last_error" and getattr(flow, key) is None:
            setattr(flow, key, load_record({}, kind))
    skipped = [name for flag, names in SKIPS.items() if flow.config.get(flag) is True
               for name in names]
    flow.phases = flow.phases or [name for name in PHASES if name not in skipped]
    flow.max_iterations = min(max(flow.max_iterations, 1), ITERATIONS_LIMIT)
    if not 0 < flow.started_at <= ctx.now + CLOCK_SKEW_S:
        info = stat_of(auto_path(ctx))
        flow.started_at = info.st_mtime if info else ctx.now
    flow.phase_started_at = min(flow.phase_started_at or flow.started_at, ctx.now)
    return flow


def is_active(flow: Record) -> bool:
    return flow.active and flow.phase in flow.phases


def signal_of(phase: str) -> str:
    return phase.upper().replace("-", "_") + "_COMPLETE"


def trust_path(ctx: Ctx) -> str:
    digest = call_signature("project", real_path(ctx.root))
    return ctx.state_home + "/workflows/" + digest + ".json" if ctx.state_home else ""


def read_trust(ctx: Ctx) -> Record:
    path = trust_path(ctx)
    data = read_bytes(path, follow=False, own=True) if path else b""
    return load_record(parse_object(data or b""), TRUST)


def write_trust(ctx: Ctx, token: str, checks: dict) -> bool:
    """What this machine's user started, and the command of each phase that they agreed to; only
    `auto` writes it."""
    digests = {phase: digest_of(command) for phase, command in checks.items()}
    text, path = format_json({"token": token, "root": ctx.root, "checks": digests}), trust_path(ctx)
    return bool(path) and write_bytes(ctx, path, text.encode())


def digest_of(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_meant_here(ctx: Ctx, flow: Record, session_id: str) -> bool:
    """It names this live session, or was started by `auto` on this machine."""
    if session_id and flow.session_id == session_id:
        return True
    return bool(flow.token) and flow.token == read_trust(ctx).token


def bind_workflow(ctx: Ctx, event: Record) -> bool:
    """At a prompt, an unbound workflow takes the session; a person's prompt sets the brakes back.
    Whether it is this session's now."""
    flow = read_workflow(ctx)
    if not is_active(flow) or not event.session_id or flow.session_id not in ("", event.session_id):
        return False
    is_person = event.by_person and not event.prompt.startswith(CONTINUATION_HEAD)
    if flow.session_id and not is_person:
        return False
    may_bind = flow.session_id or flow.any_prompt or (is_person and event.attended)
    if not may_bind or not is_meant_here(ctx, flow, event.session_id):
        return False

    def change(flow: Record) -> bool:
        if flow.session_id not in ("", event.session_id):
            return False
        flow.session_id, flow.needs, flow.iteration = event.session_id, "", 0
        for step in flow.steps.values():
            step.rounds = 0
        calls = read_session(ctx, event.session).tool_calls
        vars(flow.enforcer).update(stalls=0, holds=0, tool_calls=calls)
        flow.signals.last_checked = ctx.now
        return True

    return bool(update_workflow(ctx, change)[1])


def follow_clear(ctx: Ctx, event: Record) -> None:
    """/clear has ended one session of this client and started another: the workflow goes along."""
    cleared, flow = cleared_session(ctx), read_workflow(ctx)
    if not cleared or not is_active(flow) or safe_name(flow.session_id) != cleared:
        return

    def adopt(flow: Record) -> None:
        if safe_name(flow.session_id) == cleared:
            flow.session_id = event.session_id
            vars(flow.enforcer).update(stalls=0, holds=0, tool_calls=0)

    update_workflow(ctx, adopt)


def is_stale(ctx: Ctx, flow: Record) -> bool:
    """No stop, start or tool call for hours; a time in the future tells nothing."""
    session = safe_name(flow.session_id)
    called = read_session(ctx, session).last_call if session else 0.0
    times = (flow.signals.last_checked, flow.started_at, called)
    last = max([at for at in times if at <= ctx.now + CLOCK_SKEW_S] + [0.0])
    return ctx.now - last > STALE_AFTER_S


def end_workflow(flow: Record, reason: str, now: float) -> None:
    done = reason in ("all_phases_complete", "auto_complete_signal")
    if flow.phase in flow.phases:
        flow.enforcer.last_phase = flow.phase
        _step(flow, flow.phase_started_at).ended_at = now
    flow.active, flow.phase = False, "complete" if done else "failed"
    flow.exit_reason, flow.completed_at = reason, now


def cancel_workflow(ctx: Ctx, session_id: str, reason: str = "user_cancelled") -> bool:
    """End the workflow for the person; "" as session id: whoever it belongs to."""
    flow = read_workflow(ctx)
    if not is_active(flow) or (session_id and flow.session_id not in ("", session_id)):
        return False
    if session_id and not is_meant_here(ctx, flow, session_id):
        return False
    done, _ = update_workflow(ctx, lambda flow: end_workflow(flow, reason, ctx.now))
    if done:
        record(ctx, "auto:cancelled", reason=reason)
    return done


# --- one stop


def enforce_stop(ctx: Ctx, event: Record, state: Record) -> "Reply | None":
    """Hold or release. What the agent said is judged and checked first, without a lock; a state
    that changed meanwhile or cannot be written holds nobody."""
    flow = read_workflow(ctx)
    owner, phase = flow.session_id, flow.phase
    if not is_active(flow) or not event.session_id or owner not in ("", event.session_id):
        return None
    if not owner and not (flow.any_prompt and is_meant_here(ctx, flow, "")):
        return None  # only a client without prompt events binds here, where any session may
    verdict = _judge(ctx, event, flow)
    mark = call_signature("%s %s %d" % (event.prompt_id, event.stop_active, state.tool_calls),
                          event.last_message)

    def claim(flow: Record) -> bool:
        """Of two kits registered for one client the first run has this stop."""
        enforcer = flow.enforcer
        if enforcer.stop_mark == mark and abs(ctx.now - enforcer.stop_at) < SAME_EVENT_S:
            return False
        enforcer.stop_mark, enforcer.stop_at = mark, ctx.now
        return True

    def decide(flow: Record) -> "Record | None":
        if not is_active(flow) or (flow.session_id, flow.phase) != (owner, phase):
            return None
        if not verdict.commands and not claim(flow):
            return None
        flow.session_id, flow.signals.last_checked = event.session_id, ctx.now
        stop = _decide(ctx, flow, event, verdict, state)
        stop.next, stop.iteration = flow.phase, flow.iteration
        return stop

    if verdict.commands:
        if update_workflow(ctx, claim)[1] is False:
            return None
        verdict.check = _run_checks(ctx, verdict.commands)
    written, stop = update_workflow(ctx, decide)
    if stop is None:
        return None
    if not written:
        vars(stop).update(reason="unwritable", prompt="", person=STOP_MESSAGES["unwritable"])
    checked = {"check": verdict.check.result} if verdict.check else {}
    record(ctx, "stop:held" if stop.prompt else "stop:released", reason=stop.reason, phase=phase,
           next=stop.next, iteration=stop.iteration, chars=len(stop.prompt), **checked)
    return Reply(stop.prompt, stop.person, hold=bool(stop.prompt))


def _judge(ctx: Ctx, event: Record, flow: Record) -> Record:
    """What the agent's turn says: signal, block, near; the commands that it has to prove itself
    by, and check, what came of them; the reason of a release that needs no more."""
    verdict = Record(signal="", block={}, near="", commands=[], check=None, reason="")
    if is_stale(ctx, flow):
        verdict.reason = "stale_state"
        return verdict
    judged_until = max(flow.signals.last_checked, flow.phase_started_at)
    text = read_turn(ctx, event.transcript, judged_until)
    if event.last_message not in text:
        text += "\n" + event.last_message
    signal, verdict.block, verdict.near = judge_turn(flow, text, ctx.now)
    owed = [flow.phase] if signal in (signal_of(flow.phase), *TRANSITIONS) else []
    if signal == "AUTO_COMPLETE":
        owed = flow.phases[flow.phases.index(flow.phase):]
    agreed = read_trust(ctx).checks if owed else {}
    owed += [phase for phase in agreed if phase not in flow.phases]  # the state was edited
    for phase in owed:
        command = check_of(ctx, flow, phase)
        if agreed.get(phase, "") != (digest_of(command) if command else ""):  # changed, taken away
            result = Record(command=command, ok=False, result="not agreed to", tail="")
            vars(verdict).update(commands=[], check=result, reason="not_agreed")
            return verdict
        verdict.commands += [command] if command else []
    verdict.signal = signal
    return verdict


def _decide(ctx: Ctx, flow: Record, event: Record, verdict: Record, state: Record) -> Record:
    """Apply the verdict to the workflow, then hold or release."""
    phase, lead, check = flow.phase, "", verdict.check
    if check:
        _step(flow, ctx.now).check = "%s: %s, %s" % (
            format_iso(ctx.now), check.command, check.result)
    if verdict.reason:
        if verdict.reason == "stale_state":
            end_workflow(flow, verdict.reason, ctx.now)
        return _release(flow, verdict.reason, phase)
    if check and not check.ok:
        lead = LEAD_CHECK.format(command=one_line(check.command, 300), result=check.result,
                                 tail=check.tail)
    elif verdict.signal:
        lead = _apply(flow, verdict.signal, verdict.block, ctx.now)
        if not flow.active or flow.needs:
            return _release(flow, flow.exit_reason if not flow.active else "blocked", phase)
    elif flow.needs:
        return Record(reason="blocked", prompt="", person="")  # it still waits for the person
    has_advanced = flow.phase != phase
    brake = _passing_brake(ctx, flow, event, state, has_advanced)
    if brake:
        return _release(flow, brake, flow.phase)
    if not has_advanced:
        flow.iteration += 1
        _step(flow, ctx.now).attempts = flow.iteration
        if flow.iteration > flow.max_iterations:
            end_workflow(flow, "max_iterations_reached", ctx.now)
            return _release(flow, "max_iterations_reached", phase)
    if not lead:
        lead = LEAD_NEAR.format(signal=signal_of(phase), problem=verdict.near) if (
            verdict.near) else LEAD_HOLD
    template = CONTINUATION_SHORT if flow.enforcer.phase_holds else CONTINUATION
    flow.enforcer.phase_holds += 1
    return Record(reason="advanced" if has_advanced else "held", person="",
                  prompt=_render(ctx, flow, template, lead))


def _apply(flow: Record, signal: str, block: dict, now: float) -> str:
    """Note the signal; advance, end, wait or keep the error; the lead of the next prompt."""
    phase, seen = flow.phase, flow.signals.detected_signals
    flow.signals.detected_signals = (
        seen + [{"signal": signal, "detected_at": format_iso(now)}])[-200:]
    if signal == "AUTO_COMPLETE":
        end_workflow(flow, "auto_complete_signal", now)
        return ""
    if signal == "PHASE_BLOCKED":
        flow.needs = one_line(block["NEEDS"], 500)
        return ""
    if signal == "PHASE_ERROR":
        recoverable, message = block["RECOVERABLE"].lower() == "true", one_line(block["ERROR"], 500)
        flow.last_error = Record(phase=phase, message=message, recoverable=recoverable,
                                 timestamp=now)
        if not recoverable:
            end_workflow(flow, "critical_error", now)
        return LEAD_ERROR.format(error=message)
    following = TRANSITIONS.get(signal, "")
    if following not in flow.phases:
        following = _next_phase(flow)
    if following == "complete":
        end_workflow(flow, "all_phases_complete", now)
        return ""
    _step(flow, flow.phase_started_at).ended_at = now
    flow.phase, flow.iteration, flow.phase_started_at = following, 0, now
    vars(flow.enforcer).update(phase_holds=0, stalls=0)
    step = _step(flow, now)
    step.rounds += 1
    if step.rounds > flow.max_iterations:  # phases that send each other round in circles
        end_workflow(flow, "max_iterations_reached", now)
    return LEAD_NEXT.format(done=phase)


def _passing_brake(ctx: Ctx, flow: Record, event: Record, state: Record, has_advanced: bool) -> str:
    """The name of the brake that lets this one stop pass, or ""; keeps the counts."""
    worked = state.tool_calls != flow.enforcer.tool_calls
    stalls = 0 if worked or has_advanced else flow.enforcer.stalls + 1
    holds = 1 if worked or not event.stop_active else flow.enforcer.holds + 1
    stated = ctx.env.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", "")
    cap = int(stated) if is_digits(stated) and ctx.agent == "claude" else (
        DIALECTS[ctx.agent].hold_cap)
    usage = current_usage(read_usage(ctx, event.transcript), state)
    is_known = usage is not None or state.tool_calls
    percent = measure_context(ctx, state, usage, 0).percent if is_known else 0
    brakes = (
        ("subagents", event.subagents), ("plan_mode", event.permission_mode == "plan"),
        ("context_full", percent >= FULL_PERCENT), ("no_progress", stalls >= STALLS_LIMIT),
        ("hold_cap", 0 < cap <= holds))
    reason = next((name for name, applies in brakes if applies), "")
    vars(flow.enforcer).update(tool_calls=state.tool_calls, stalls=0 if reason else stalls,
                               holds=0 if reason else holds)
    return reason


def _release(flow: Record, reason: str, phase: str) -> Record:
    error = flow.last_error.message if flow.last_error else ""
    person = STOP_MESSAGES[reason].format(phase=phase, max=flow.max_iterations, error=error,
                                          needs=flow.needs)
    return Record(reason=reason, prompt="", person=person)


def _step(flow: Record, now: float) -> Record:
    """The note of the current phase for `auto status`."""
    if flow.phase not in flow.steps:
        flow.steps[flow.phase] = load_record({"phase": flow.phase}, _STEP)
        flow.steps[flow.phase].started_at = now
    return flow.steps[flow.phase]


# --- what the agent is told


def render_briefing(ctx: Ctx, flow: Record) -> str:
    return _render(ctx, flow, BRIEFING, "")


def _render(ctx: Ctx, flow: Record, template: str, lead: str) -> str:
    phase, following, command = flow.phase, _next_phase(flow), check_of(ctx, flow, flow.phase)
    about = ctx.get("auto.about").get(phase) or PHASES.get(phase, "")
    task = one_line(flow.task_description, 1500).replace("---", "—")
    return template.format(
        lead=lead, phase=phase, phases=", ".join(flow.phases), iteration=flow.iteration,
        max=flow.max_iterations, about=one_line(about, 400) or "(see the task)",
        task=task or "(see the conversation)", signal=signal_of(phase),
        next="none" if following == "complete" else following,
        check=CHECK_LINE.format(command=one_line(command, 300)) if command else "")


def _next_phase(flow: Record) -> str:
    """The phase after this one; `complete` after the last."""
    later = flow.phases[flow.phases.index(flow.phase) + 1:]
    return later[0] if later else "complete"


# --- the check of a phase: the only process that a hook mode ever starts


def check_of(ctx: Ctx, flow: Record, phase: str) -> str:
    """The command that must exit 0 for the phase to be complete, or ""."""
    if flow.until and phase == flow.phases[-1]:
        return flow.until
    return ctx.get("auto.done_when").get(phase, "")


def _run_checks(ctx: Ctx, commands: list) -> Record:
    """Run what the person agreed to, up to the first that fails: the last one's command, ok, result
    in words, tail of the output."""
    limit_s = min(max(ctx.get("auto.check_timeout_s"), 1), 140)
    for command in commands:
        with TimeLimit(limit_s + 5, apart=True):
            code, output = run_bounded(command, ctx.root, limit_s)
        if code != 0:
            break
    result = "did not end within %d s" % limit_s if code is None else "exited %d" % code
    tail = hide_secrets(clean_text(output[-CHECK_TAIL * 2:].decode("utf-8", "replace")))
    return Record(command=command, ok=code == 0, result=result, tail=tail[-CHECK_TAIL:].strip())


def run_bounded(command: str, root: str, limit_s: float) -> tuple:
    """(exit code, None when its time was over; the end of its output), in a process group of its
    own, without secrets, a terminal or input. Whatever it started in its group ends with it; when
    the time is over, also what left the group."""
    import os
    import subprocess
    import threading

    env = {name: value for name, value in os.environ.items()
           if not name.startswith(SECRET_STARTS) and not name.upper().endswith(SECRET_ENDS)}
    env["CTX_HOOKS_CHECK"] = mark = "%d-%x" % (os.getpid(), time.time_ns())
    ours, theirs = os.pipe()
    try:
        child = subprocess.Popen(  # noqa: S602
            command, shell=True, cwd=root, env=env, stdin=subprocess.DEVNULL,
            stdout=theirs, stderr=theirs, start_new_session=IS_POSIX)
    except (OSError, ValueError) as error:
        os.close(ours)
        return 127, str(error).encode()
    finally:
        os.close(theirs)
    tail, code = bytearray(), None
    reader = threading.Thread(target=_read_tail, args=(ours, tail), daemon=True)
    reader.start()
    try:
        code = child.wait(limit_s)
        reader.join(1.5)  # nobody waits for a child of it that keeps the pipe open
    except subprocess.TimeoutExpired:
        pass
    end_group(child, mark if code is None else "")
    if IS_POSIX or not reader.is_alive():
        os.close(ours)  # on Windows it would wait for the reader, and that for what keeps the pipe
    return code, bytes(tail)


def _read_tail(fd: int, tail: bytearray) -> None:
    try:
        for data in iter(lambda: _os.read(fd, 65536), b""):
            tail.extend(data)
            del tail[:-CHECK_BUFFER]
    except OSError:
        pass  # closed, because nobody waits for more


def end_group(child: object, mark: str = "") -> None:
    """The child and what it started; with a mark in the environment also what left its group."""
    if not IS_POSIX and child.poll() is None:
        import os
        import subprocess

        # by its path: a bare name is first looked for in the current folder
        tool = os.environ.get("SYSTEMROOT", r"C:\Windows") + r"\System32\taskkill.exe"
        subprocess.run([tool, "/F", "/T", "/PID", str(child.pid)], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        child.kill()
    if IS_POSIX:
        _kill(_os.killpg, child.pid)
        for name in list_dir("/proc") if mark else ():
            if is_digits(name) and int(name) != _os.getpid() and mark.encode() in (
                    read_bytes("/proc/%s/environ" % name, FILE_LIMIT_BYTES) or b""):
                _kill(_os.kill, int(name))
    child.wait()


def _kill(kill: object, pid: int) -> None:
    try:
        kill(pid, 9)
    except OSError:
        pass  # gone already

# =============================================================================
# Startup
# =============================================================================
# The handoff of the session before is a delivery with a state. It ends with evidence: the receipt
# in the client's transcript, or the acknowledgement in the agent's own words. Without either comes
# the ladder: again after a backoff, then a marked section in the client's instruction file, then
# one line that says where it is. The section's bytes are ours, all others are the user's.
FRAME_START = "[CONTEXT INJECTION - Please acknowledge receipt]"
FRAME_END = '[END CONTEXT - Reply "ACK: context received" to confirm]'
QUIET_START, QUIET_END = "[CONTEXT INJECTION]", "[END CONTEXT]"
DELIVERY = "(delivery {id}, attempt {attempt})"
SOURCE_HANDOFF = "Handoff of {whose}, {how}, from {path} ({time}):"
SOURCE_HOW = {"mechanical": "made from its transcript because it left none",
              "printed": "as it printed it", "agent": "as it wrote it"}
SOURCE_FILE = "From {path}:"
SOURCE_OTHERS = "Other handoffs that nobody has had yet: {names}"
LEFT_OUT = "[left out for lack of room: {names}; the whole text is in the files named above]"
SECTION_START = "<!-- STARTUP_CONTEXT_INJECTION -->"
SECTION_END = "<!-- END_STARTUP_CONTEXT -->"
SECTION_HEADING = "## Session Context (Auto-Injected)"
SECTION_NOTE = "<!-- ctx_hooks: written {at}, file made {made} -->"
FALLBACK_NOTICE = "[System] Session context written to {file} - please review"
FALLBACK_PERSON = "ctx: wrote the handoff into {file}, the agent has not confirmed it"
FAILURE_NOTICE = "Session context could not be delivered; it is in {path} - please read it"
_NEGATIONS = frozenset("not no never cannot won't don't can't without reply say print output "
                       "instead refuse refused told asked".split())
KEY_HEADINGS = ("goal", "next", "task", "todo", "objective", "focus")
FALLBACK_LIMIT_BYTES = 4 * 1024 * 1024
METRICS = (
    ("attempted", 0, "count"), ("succeededOnFirstTry", 0, "count"),
    ("succeededAfterRetry", 0, "count"), ("escalatedToFile", 0, "count"), ("failed", 0, "count"),
    ("confirmedByReceipt", 0, "count"), ("averageAttemptsToSuccess", 0, float),
    ("averageTimeToSuccess", 0, float),
)
_DELIVERY = SESSION[-1][2]


# --- what to deliver


def choose_handoffs(ctx: Ctx, event: Record) -> tuple:
    """(those for this session, the best first; those that are only named): after a compaction its
    own, after /clear that of the session just cleared, whoever else had it, else the newest whose
    writer is not still at work."""
    if event.source == "compact":
        row = read_ledger(ctx).handoffs.get(event.session)
        is_new = row is not None and row.written_at > row.delivered_at
        own = _handoff_of(ctx, event.session) if is_new else None
        return ([own] if own and read_handoff(ctx, own.path) else []), []
    found = _find_handoffs(ctx, event.session)
    own = _handoff_of(ctx, cleared_session(ctx)) if event.source == "clear" else None
    if own and own.at and read_handoff(ctx, own.path):
        return [own], [one for one in found if one.key != own.key]
    busy = [one for one in found if is_at_work(ctx, one.key)]
    return [one for one in found if one not in busy], busy


def _handoff_of(ctx: Ctx, key: str) -> "Record | None":
    """The handoff that the ledger has under this key: key (whose), path, at, by."""
    row = read_ledger(ctx).handoffs.get(key)
    if row is None or not row.file:
        return None
    return Record(key=key, path=join_path(ctx.root, row.file), by=row.by, at=row.written_at)


def _find_handoffs(ctx: Ctx, session: str) -> list:
    """Those that this session may get, newest first. Known to the ledger, or newer than the first
    event that was ever seen here."""
    ledger, found = read_ledger(ctx), []
    oldest = ctx.now - ctx.get("startup.max_age_hours") * 3600
    rows = [(join_path(ctx.root, row.file), key, row) for key, row in ledger.handoffs.items()
            if row.file]
    loose = [ctx.path("handoffs", name) for name in list_dir(ctx.path("handoffs"))
             if name.endswith(".md")] + [join_path(ctx.root, OLD_HANDOFF)]
    if "{session}" not in ctx.get("handoff.file"):
        loose.append(join_path(ctx.root, ctx.get("handoff.file")))
    rows += [(path, "file:" + base_name(path), None) for path in dict.fromkeys(loose)
             if path not in [known[0] for known in rows]]
    for path, key, row in rows:
        info = stat_of(path)
        if not is_regular(info) or key == session:
            continue
        if row and not row.written_at and (not row.asked_at or is_live(ctx, key) or (
                min(info.st_mtime, info.st_ctime) + 1 < row.asked_at)):
            continue  # else it was written, and only the note of that is missing
        since = max(row.delivered_at, row.written_at) + 1 if row else ledger.first_event
        if min(info.st_mtime, info.st_ctime) > since and not is_foreign(ctx, path, info):
            at = info.st_mtime
        elif row and not _is_held(ctx, row, session) and (
                not row.evidence or row.delivered_to == key):  # or it came back to its own writer
            at = row.written_at
        else:
            continue
        if at > oldest and read_handoff(ctx, path):
            found.append(Record(key=key, path=path, by=row.by if row else "agent", at=at))
    return sorted(found, key=lambda one: -one.at)


def _is_held(ctx: Ctx, row: Record, session: str) -> bool:
    """Sent to another session that still lives and may yet have it."""
    return row.delivered_to not in ("", session) and is_live(ctx, row.delivered_to)


def startup_sources(ctx: Ctx, chosen: "Record | None", others: list, session: str = "") -> list:
    """[(where it comes from, text)], the handoff first."""
    sources = []
    if chosen:
        whose = "this session before the compaction" if chosen.key == session else (
            "the session before")
        head = SOURCE_HANDOFF.format(
            whose=whose, how=SOURCE_HOW.get(chosen.by, SOURCE_HOW["agent"]),
            path=shown_path(ctx, chosen.path, ""), time=format_iso(chosen.at))
        sources.append((head, read_handoff(ctx, chosen.path)))
    for path in _startup_files(ctx):
        sources.append((SOURCE_FILE.format(path=shown_path(ctx, path, "")),
                        read_handoff(ctx, path)))
    if others:
        names = ", ".join("%s (%s)" % (shown_path(ctx, one.path, ""), format_iso(one.at))
                          for one in others[:5])
        sources.append((SOURCE_OTHERS.format(names=names), " "))
    return [(head, text) for head, text in sources if text]


def _startup_files(ctx: Ctx) -> list:
    return [join_path(ctx.root, name) for name in ctx.get("startup.files")]


def frame_startup(ctx: Ctx, sources: list, message_id: str, attempt: int) -> str:
    """Shortened to its budget, with the request. It names the delivery: on a fork or a resume the
    client drops a text that stands in the conversation already."""
    asks = ctx.get("startup.require_ack")
    start, end = (FRAME_START, FRAME_END) if asks else (QUIET_START, QUIET_END)
    head = start + "\n" + DELIVERY.format(id=message_id, attempt=attempt)
    budget = int(max(min(ctx.get("startup.budget_chars"), STARTUP_LIMIT), 500))
    body = shorten_sources(sources, budget - ctx.length(head + end) - 2, ctx.length)
    return "\n".join((head, body, end))


def split_sections(text: str) -> list:
    """[(heading, text)] by Markdown headings; what stands before the first one has no heading."""
    sections: list = [("", [])]
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if line.startswith("#") and not fenced:
            sections.append((line.strip("# \t"), []))
        sections[-1][1].append(line)
    whole = [(heading, "\n".join(lines).strip()) for heading, lines in sections]
    return [(heading, text) for heading, text in whole if text]


def shorten_sources(sources: list, limit: int, length: object = units) -> str:
    """Whole sections go, from the lowest priority up; goal and next steps stay longest; what went
    is named."""
    parts = [(place, index, heading, text) for place, (_, body) in enumerate(sources)
             for index, (heading, text) in enumerate(split_sections(body))]
    parts.sort(key=lambda part: (not any(map(part[2].lower().count, KEY_HEADINGS)), part))
    low, high = min(1, len(parts)), len(parts)
    while low < high:  # the largest number of sections that fits
        middle = (low + high + 1) // 2
        fits = length(_assemble(sources, parts[:middle], parts[middle:])) <= limit
        low, high = (middle, high) if fits else (low, middle - 1)
    text = _assemble(sources, parts[:low], parts[low:])
    if length(text) <= limit:
        return text
    return cut_text(text, limit - 40, length) + "\n[cut for lack of room]"


def _assemble(sources: list, parts: list, dropped: list) -> str:
    out = []
    for place, (head, body) in enumerate(sources):
        texts = [part[3] for part in sorted(parts) if part[0] == place]
        out += [head, ""] + (texts or ["[left out]"] if body.strip() else []) + [""]
    text = "\n".join(out).rstrip()
    names = ", ".join(one_line(part[2], 60) or "introduction" for part in sorted(dropped)[:8])
    names += " and %d more" % (len(dropped) - 8) if len(dropped) > 8 else ""
    return text + "\n" + LEFT_OUT.format(names=names) if dropped else text


# --- evidence


def is_acknowledged(ctx: Ctx, text: str) -> bool:
    """A pattern in the agent's own words: not quoted, fenced, negated, nor our request."""
    said = own_words(text).replace(FRAME_END, "").replace(
        'Reply "ACK: context received" to confirm', "")
    folded = " ".join(said.lower().split())  # the default without the cost of `re`
    for words in ("ack: context received", "ack:context received"):
        before, found, after = folded.partition(words)
        if found and not _is_negated(before[-24:], after):
            return True
    usual = DEFAULTS["startup.ack_patterns"]
    own = [pattern for pattern in ctx.get("startup.ack_patterns") if pattern not in usual]
    return any(matches(pattern, said) for pattern in own[:PATTERNS_TRIED])


def own_words(text: str) -> str:
    """Without fences, quotations, inline code and emphasis."""
    out, fenced = [], False
    for line in text.replace("**", "").replace("__", "").split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith(">"):
            out.append(line.strip(" \t*_`"))
    return "\n".join(out)


def _is_negated(before: str, after: str) -> bool:
    """`I will not reply "ACK: …"`, `NACK: …`, somebody's quotation, a question."""
    words = [word.strip(".,") for word in before.split()]
    is_other = before[-1:].isalnum() or before.rstrip()[-1:] in ('"', "“", "'", "`", "«")
    return is_other or after.lstrip()[:1] == "?" or not _NEGATIONS.isdisjoint(words[-4:])


def matches(pattern: str, text: str) -> bool:
    """A pattern from the settings; (a+)+$ could take years, so it has a time of its own."""
    import re
    import warnings

    try:
        with warnings.catch_warnings(), TimeLimit(PATTERN_LIMIT_S):
            warnings.simplefilter("ignore")  # `[[a]` is worth a line on stderr to the library
            return re.search(pattern, text[-20000:], re.IGNORECASE) is not None
    except (re.error, RuntimeError, OverflowError, MemoryError, TimeUp):
        return False  # 3.8 compiles what it cannot run


# --- one delivery


def _start_delivery(ctx: Ctx, event: Record, state: Record) -> tuple:
    """The first attempt: (text, line for the person), both "" when there is nothing to deliver."""
    state.startup = None
    if not ctx.get("startup.enabled"):
        return "", ""
    fitting, others = choose_handoffs(ctx, event)
    chosen = next((one for one in fitting if hold_handoff(ctx, one, event)), None)
    others = [one for one in fitting if one is not chosen] + others
    sources = startup_sources(ctx, chosen, others, event.session)
    if not sources or (event.source == "compact" and not chosen):
        return "", ""
    state.startup = load_record({"message_id": "inj-%x" % int(ctx.now * 1000)}, _DELIVERY)
    state.startup.first_at, state.startup.handoff = ctx.now, chosen.key if chosen else ""
    count_metrics(ctx, attempted=1)
    text = _send(ctx, event, state.startup, sources)
    if not chosen:
        return text, ""
    lines = read_handoff(ctx, chosen.path).count("\n") + 1
    clock = time.strftime("%H:%M", time.localtime(chosen.at))
    return text, HANDOFF_SENT_PERSON.format(time=clock, lines=lines)


def _send(ctx: Ctx, event: Record, delivery: Record, sources: list) -> str:
    vars(delivery).update(last_at=ctx.now, answered=False, offset=transcript_size(event.transcript))
    text = frame_startup(ctx, sources, delivery.message_id, delivery.attempts)
    record(ctx, "injection:attempted", messageId=delivery.message_id, attempt=delivery.attempts,
           type=event.name, chars=len(text))
    return text


def hold_handoff(ctx: Ctx, chosen: Record, event: Record) -> bool:
    """It is on its way to this session, and to nobody else for the time being; False when another
    one was faster."""

    def change(ledger: Record) -> bool:
        row = ledger_row(ledger, chosen.key)
        is_others = row.delivered_to not in ("", event.session)
        just_now = is_others and abs(ctx.now - row.delivered_at) < SAME_EVENT_S
        is_taken = just_now or (not row.evidence and _is_held(ctx, row, event.session))
        if is_taken and event.source not in ("clear", "compact"):
            return False
        vars(row).update(delivered_to=event.session, delivered_at=ctx.now, evidence="",
                         file=shown_path(ctx, chosen.path, ""), by=row.by or chosen.by,
                         written_at=chosen.at)
        return True

    held = update_ledger(ctx, change)
    return not is_writable(ctx.path("state")) if held is None else held


def is_pending(state: Record) -> bool:
    return state.startup is not None and state.startup.outcome in ("pending", "escalated")


def follow_delivery(ctx: Ctx, event: Record, state: Record, may_speak: bool) -> tuple:
    """Look for evidence; when a retry is due, (its text, line for the person). Edits the state."""
    delivery = state.startup
    if not is_pending(state):
        return "", ""
    news = read_news(ctx, event.transcript, delivery.offset, delivery.first_at, delivery.answer_to)
    delivery.offset = news.offset
    delivery.answered = delivery.answered or news.answered or bool(event.last_message)
    if delivery.message_id and delivery.message_id in news.receipts:
        delivery.receipt_at = ctx.now
        succeed_delivery(ctx, delivery, "receipt")
    elif is_acknowledged(ctx, news.text + "\n" + event.last_message):
        delivery.acked_at = ctx.now
        succeed_delivery(ctx, delivery, "acknowledgement")
    waits = abs(ctx.now - delivery.last_at) < backoff_s(ctx, delivery.attempts)
    if not may_speak or not delivery.answered or waits or delivery.outcome != "pending":
        return "", ""
    return _retry(ctx, event, delivery)


def next_rung(ctx: Ctx, attempts: int, may_write: bool) -> str:
    """What comes after so many attempts without evidence: `again`, `file` or `fail`."""
    most = ctx.get("startup.max_attempts")
    if may_write and attempts >= min(ctx.get("startup.file_fallback_after_attempts"), most):
        return "file"
    return "again" if attempts < most else "fail"


def backoff_s(ctx: Ctx, attempts: int) -> float:
    backoffs = ctx.get("startup.retry_backoffs_s") or [0]
    return backoffs[min(attempts, len(backoffs)) - 1]


def succeed_delivery(ctx: Ctx, delivery: Record, evidence: str) -> None:
    """There is evidence: the handoff is used up, a section in an instruction file goes."""
    attempts = max(1, delivery.attempts)
    took_ms = int(max(0.0, ctx.now - (delivery.first_at or ctx.now)) * 1000)
    is_first = attempts == 1 and delivery.outcome == "pending"
    delivery.outcome = "delivered"
    count_metrics(ctx, (attempts, took_ms), succeededOnFirstTry=int(is_first),
                  succeededAfterRetry=int(not is_first),
                  confirmedByReceipt=int(evidence == "receipt"))
    if delivery.handoff:
        update_ledger(ctx, lambda ledger: setattr(
            ledger_row(ledger, delivery.handoff), "evidence", evidence))
    record(ctx, "injection:succeeded", messageId=delivery.message_id, attempts=attempts,
           durationMs=took_ms, evidence=evidence)
    remove_sections(ctx)


def _retry(ctx: Ctx, event: Record, delivery: Record) -> tuple:
    """The next rung: the text again, the instruction file with its notice, or the end."""
    sources = startup_sources(ctx, _handoff_of(ctx, delivery.handoff), [], event.session)
    if not sources:
        delivery.outcome = "withdrawn"  # the handoff is gone: nothing to insist on
        return "", ""
    file, body = fallback_file(ctx), shorten_sources(sources, STARTUP_LIMIT)
    if next_rung(ctx, delivery.attempts, True) == "file" and write_section(ctx, body, file):
        delivery.outcome = "escalated"
        count_metrics(ctx, escalatedToFile=1)
        record(ctx, "injection:escalated", messageId=delivery.message_id, escalationType="file",
               file=file)
        return FALLBACK_NOTICE.format(file=file), FALLBACK_PERSON.format(file=file)
    if next_rung(ctx, delivery.attempts, False) == "fail":
        return fail_delivery(ctx, delivery, "no evidence"), ""
    delivery.attempts += 1
    delivery.answer_to = find_message(ctx, event.transcript, event.tool_use_id)
    return _send(ctx, event, delivery, sources), ""


def fail_delivery(ctx: Ctx, delivery: Record, reason: str) -> str:
    """Neither evidence nor a file: counted, and one line says where the context is."""
    delivery.outcome = "failed"
    count_metrics(ctx, failed=1)
    record(ctx, "injection:failed", messageId=delivery.message_id, attempts=delivery.attempts,
           reason=reason)
    if not ctx.get("startup.notify_on_failure"):
        return ""
    chosen = _handoff_of(ctx, delivery.handoff)
    paths = ([chosen.path] if chosen else []) + _startup_files(ctx)
    return FAILURE_NOTICE.format(path=", ".join(filter(is_file, paths)))


def count_metrics(ctx: Ctx, success: tuple = (), **counts: int) -> None:
    """Add to .context/metrics.json; `success` = (attempts, ms) moves the averages."""

    def change(metrics: Record) -> None:
        for key, added in counts.items():
            setattr(metrics, key, getattr(metrics, key) + added)
        total = max(1, metrics.succeededOnFirstTry + metrics.succeededAfterRetry)
        for key, value in zip(("averageAttemptsToSuccess", "averageTimeToSuccess"), success):
            old = getattr(metrics, key)
            setattr(metrics, key, round(old + (value - old) / total, 3))

    update_json(ctx, ctx.path("metrics.json"), change, METRICS)


# --- the marked section of an instruction file


def fallback_file(ctx: Ctx) -> str:
    named = ctx.get("startup.fallback_file")
    return DIALECTS[ctx.agent].instruction_file if named == "auto" else named


def write_section(ctx: Ctx, body: str, file: str) -> bool:
    """Put the section into an instruction file, in the place of an older one of ours. False: it is
    not ours to write, or somebody wrote it at this moment."""
    path, data = join_path(ctx.root, file), _read_instructions(ctx, file)
    if data is None:
        return False
    with Lock(ctx, ctx.path("state", "fallback.lock")) as lock:
        bare = strip_sections(data)
        made = is_missing(path) or (not bare and any(one[3] for one in find_sections(data)))
        note = SECTION_NOTE.format(at=format_iso(ctx.now), made=int(made))
        body = clean_text(body.replace("<!--", "<! --"))  # no marker of ours can stand in it
        section = "\n".join(["", SECTION_START, SECTION_HEADING, note, "", body, SECTION_END, ""])
        section = section.replace("\n", "\r\n") if b"\r\n" in bare else section
        return not lock.busy and write_bytes(
            ctx, path, bare + section.encode("utf-8", "replace"), True, data)


def remove_sections(ctx: Ctx, older_than: float = float("inf")) -> list:
    """Take our sections out of every instruction file, also one that a branch switch brought back;
    the rest is byte-identical, a file that we made goes. The files' names."""
    removed = []
    for file in INSTRUCTION_FILES:
        path, data = ctx.root + "/" + file, _read_instructions(ctx, file) or b""
        sections = find_sections(data)
        if not sections or any(one[2] >= older_than for one in sections):
            continue
        bare, is_made = strip_sections(data), any(one[3] for one in sections)
        if remove_file(path) if is_made and not bare else write_bytes(ctx, path, bare, True, data):
            removed.append(file)
            record(ctx, "injection:section-removed", file=file)
    return removed


def find_sections(data: bytes) -> list:
    """[(start, end, when written, whether the file was made for it)] of our sections: a start
    marker, our heading, the nearest end marker, no other start in between. One without its note is
    as old as can be."""
    found, after = [], 0
    while True:
        end = data.find(SECTION_END.encode(), after)
        if end < 0:
            return found
        start = data.rfind(SECTION_START.encode(), after, end)
        after = end + len(SECTION_END)
        inner = data[start + len(SECTION_START):end].lstrip() if start >= 0 else b""
        if inner.startswith(SECTION_HEADING.encode()):
            note = inner.partition(b"<!-- ctx_hooks: written ")[2].partition(b"-->")[0]
            line_end = b"\r\n" if b"\r\n" in inner else b"\n"
            stop = after + len(line_end) * data.startswith(line_end, after)
            before = data[:start - len(line_end)]
            if note and data[:start].endswith(line_end) and (
                    not before or before.endswith(b"\n") or not data[stop:]):
                start = len(before)  # our own; without it two lines of the user's must not be one
            at = parse_iso(note.partition(b",")[0].decode("ascii", "replace"))
            found.append((start, stop, at or 0.0, note.rstrip().endswith(b"file made 1")))


def strip_sections(data: bytes) -> bytes:
    """The user's bytes: without our sections and the line end that was put before them."""
    for start, end, *_ in reversed(find_sections(data)):
        data = data[:start] + data[end:]
    return data


def _read_instructions(ctx: Ctx, file: str) -> "bytes | None":
    """b"" when it is not there yet, None when it may not be written: through a link, with another
    name or owner, not by this user."""
    path = ctx.root + "/" + file
    if file not in INSTRUCTION_FILES or is_link(parent_of(path)):
        return None
    info = stat_of(path, follow=False)
    if info is None:
        return b"" if is_missing(path) and is_dir(parent_of(path)) else None
    is_ours = not IS_POSIX or _os.geteuid() in (0, info.st_uid)
    if not is_regular(info) or info.st_nlink != 1 or not is_ours or not is_writable(path):
        return None
    is_large = info.st_size > FALLBACK_LIMIT_BYTES
    return None if is_large else read_bytes(path, FALLBACK_LIMIT_BYTES + 1, follow=False)


# --- a session's start


def start_session(ctx: Ctx, event: Record) -> Reply:
    """SessionStart by its source: new sessions get the context, a compaction gives the session its
    own handoff, resume and fork ask the transcript."""
    receipts = _read_receipts(ctx, event) if event.source in ("resume", "fork") else None
    _, said = update_session(ctx, event.session, lambda state: _start(ctx, event, state, receipts))
    if receipts and receipts.gate:
        claim_marker(ctx, event.session)
    return Reply(*(said or ("", "")))


def _start(ctx: Ctx, event: Record, state: Record, receipts: "Record | None") -> tuple:
    note_settings(ctx, state)
    state.model = event.model or state.model
    state.client, state.transcript = client_of(ctx), event.transcript or state.transcript
    drop_markers(ctx, event.session, (QUIET_PREFIX,))
    if event.source in ("compact", "clear"):
        drop_markers(ctx, event.session)
        reset_handoff(state)
        vars(state).update(files_read=[], estimated_tokens=0, recent=[], audited=[],
                           compacted_at=ctx.now, workflow_told="")
    if receipts and receipts.delivery and state.startup is None:
        state.startup = load_record({"outcome": "delivered"}, _DELIVERY)
    is_second = state.startup is not None and event.source != "compact"
    if is_second or event.source == "resume":
        return "", ""
    return _start_delivery(ctx, event, state)


def _read_receipts(ctx: Ctx, event: Record) -> Record:
    """(gate, delivery): whether their texts stand in the transcript since its last compaction."""
    found = Record(gate=False, delivery=False)
    for row in rows_backward(ctx, event.transcript):
        if row.kind == "boundary":
            break
        found.gate = found.gate or GATE_DIRECTIVE[:30] in row.receipt or (
            GATE_CHECKPOINT in row.receipt)
        found.delivery = found.delivery or FRAME_START in row.receipt or QUIET_START in row.receipt
    return found

# =============================================================================
# Cleanup
# =============================================================================
# A session's files go at its end; what a killed session left goes by age, in a bounded time. Only
# what carries our names and our content goes: in these places may lie what a person put there.


def remove_session(ctx: Ctx, session: str) -> None:
    """Signals, state, markers and the keys in monitor-state.json of one session."""
    _remove_signals(signal_dir(ctx, session), float("inf"))
    for suffix in (".json", ".statusline", ".lock"):
        remove_file(ctx.path("state", session + suffix))
    drop_markers(ctx, session, MARKER_PREFIXES)
    _forget_sessions(ctx, {session})


def _forget_sessions(ctx: Ctx, gone: set) -> None:
    """Drop the keys of gone sessions from monitor-state.json."""

    def change(known: Record) -> None:
        for table in (known.lastEmitted, known.activeAlerts, known.lastHealth):
            for key in [key for key in table if key.partition(":")[0] in gone - {"global"}]:
                del table[key]

    if gone and is_file(ctx.path("monitor-state.json")):
        update_json(ctx, ctx.path("monitor-state.json"), change, MONITOR)


def _remove_signals(folder: str, before: float) -> bool:
    """The signals of one session's folder, all of them older than `before`; then the folder."""
    for name in list_dir(folder) if not is_link(folder) else ():
        info = stat_of(folder + "/" + name, follow=False)
        if info is None or info.st_mtime >= before:
            return False
        if (name.endswith(".md") and is_regular(info)) or is_temp_name(name):
            remove_file(folder + "/" + name)
    try:
        _os.rmdir(folder)
    except OSError:
        return False
    return True


def collect_orphans(ctx: Ctx, keep: str) -> None:
    """By age, now and then: what sessions left after 7 days, markers after 15."""
    stamp, deadline = ctx.path("state", "collected"), time.monotonic() + COLLECT_LIMIT_S
    last, week = stat_of(stamp), ctx.now - ORPHAN_AGE_S
    if last is not None and 0 <= ctx.now - last.st_mtime < COLLECT_EVERY_S:
        return
    write_bytes(ctx, stamp, b"")
    places = (
        (ctx.path("state"), _is_state_name, _old_state, week),
        (ctx.path("signals", "sessions"), bool, lambda path, _: _remove_signals(path, week), week),
        (ctx.path("state", "aside"), bool, _old_file, ctx.now - 4 * ORPHAN_AGE_S),
        (ctx.path("signals", "global"), is_temp_name, _old_file, week),
        (ctx.dir, is_temp_name, _old_file, week),
        (parent_of(auto_path(ctx)), is_temp_name, _old_file, week),
        (ctx.root, _is_half_written, _old_file, week),
        (ctx.root + "/.github", _is_half_written, _old_file, week),
        (ctx.tmp, lambda name: name.startswith(MARKER_PREFIXES), _old_file,
         ctx.now - MARKER_AGE_S))  # last: anybody may fill it, and take all the time
    gone = set()
    for folder, is_ours, remove, before in places:
        for name in _some_names(folder, is_ours):
            session, path = name[:-5] if name.endswith(".json") else name, folder + "/" + name
            info = stat_of(path, follow=False) if session != keep else None
            if info is not None and info.st_mtime < before and remove(path, info):
                gone.add(session)
            if time.monotonic() > deadline:
                break
    _forget_sessions(ctx, gone)
    _collect_handoffs(ctx)


def _some_names(folder: str, is_ours: object) -> list:
    """Not more names than can be looked at; what is collected makes room for the next."""
    ours = []
    try:
        with _os.scandir(folder if not is_link(folder) else "") as entries:
            for entry, _ in zip(entries, range(COLLECT_NAMES)):
                ours += [entry.name] if is_ours(entry.name) else []
                if len(ours) == COLLECT_COUNT:
                    break
    except OSError:
        pass
    return ours


def _is_state_name(name: str) -> bool:
    """A session's state, its lock and hand-over, a half-written file; not a pause, the ledger:
    they are needed for as long as they are there."""
    is_sessions = name.endswith((".json", ".lock", ".statusline")) and (
        "~" in name or is_plain_name(name))
    return is_sessions or is_temp_name(name)


def _is_half_written(name: str) -> bool:
    """An instruction file that a killed writer left; all else there is the user's."""
    stem = name[:-4].rpartition(".")[0]
    return is_temp_name(name) and stem in map(base_name, INSTRUCTION_FILES)


def _old_file(path: str, info: object) -> bool:
    return is_own(info) and remove_file(path)


def _old_state(path: str, info: object) -> bool:
    """`context_dir` may be a folder in which a person keeps a `state` of their own."""
    data = read_bytes(path, STATE_LIMIT_BYTES, follow=False) if path.endswith(".json") else b""
    is_ours = data is not None and (b'"session_start"' in data or data.strip() in (b"", b"{}"))
    return is_ours and _old_file(path, info)


def _collect_handoffs(ctx: Ctx) -> None:
    """Delivered and a week old, or too old to be delivered: the file and its row go."""
    too_old = ctx.now - max(HANDOFF_KEEP_S, ctx.get("startup.max_age_hours") * 3600)

    def change(ledger: Record) -> list:
        old = [key for key, row in ledger.handoffs.items()
               if max(row.asked_at, row.written_at, row.delivered_at) < too_old]
        return [join_path(ctx.root, ledger.handoffs.pop(key).file or ".") for key in old]

    for path in (update_ledger(ctx, change) or []) if is_file(ledger_path(ctx)) else []:
        info = stat_of(path, follow=False)
        if parent_of(path) == ctx.path("handoffs") and info and info.st_mtime < too_old:
            _old_file(path, info)

# =============================================================================
# Modes
# =============================================================================
# The argv word = the table's key = the function's name. A handler gets the event and the context
# and returns a reply or None. It never prints, exits, or reads the environment. Everything said in
# one reply stays within one budget, in the order startup, gate, handoff, signals.
PERSON_JOIN = " · "


def inject(event: Record, ctx: Ctx) -> "Reply | None":
    """SessionStart: the startup context. UserPromptSubmit: its retry, then the pending signals."""
    if event.name == "SessionStart":
        return _inject_start(event, ctx)
    reply, has_flow = Reply(), is_file(auto_path(ctx))
    reason = _reason_to_end(ctx, event) if has_flow and event.by_person else ""
    if reason and cancel_workflow(ctx, event.session_id, reason):
        reply.person = STOP_MESSAGES[reason]
        reply.context = CANCELLED_AGENT if reason == "user_cancelled" else ""
    if not event.session:
        return reply
    state = _follow(ctx, event, reply, read_session(ctx, event.session))
    if has_flow and not reason and bind_workflow(ctx, event):
        _add_briefing(ctx, event, reply)
    if has_unsaid(ctx, event.session):
        measure = make_measure(state.estimated_tokens, state.window or DEFAULT_WINDOW, state.exact,
                               state.measured_model)
        _audit(ctx, _snapshot(ctx, state, measure, False))
    if "prompt" in ctx.get("monitor.inject_at"):
        _add_signals(ctx, event, reply, state.looked)
    return reply


def _reason_to_end(ctx: Ctx, event: Record) -> str:
    """A workflow's age is looked at when the person comes back: their prompt's own tool calls would
    make it look alive again."""
    if event.prompt.strip() == "ctx cancel":
        return "user_cancelled"
    flow = read_workflow(ctx)
    is_own = is_active(flow) and flow.session_id in ("", event.session_id)
    return "stale_state" if is_own and is_stale(ctx, flow) else ""


def _inject_start(event: Record, ctx: Ctx) -> "Reply | None":
    collect_orphans(ctx, event.session)
    remove_sections(ctx, ctx.now - ctx.get("startup.max_age_hours") * 3600)
    if not event.session:
        return None
    if is_missing(ledger_path(ctx)):
        update_ledger(ctx, lambda ledger: None)  # the first event that was ever seen here
    if event.source == "compact":
        compacted_at = read_session(ctx, event.session).compacted_at
        if compacted_at and abs(ctx.now - compacted_at) < SAME_EVENT_S:
            return None  # the kit is registered twice: the first run has done it
        _ensure_handoff(ctx, event)
        withdraw_alerts(ctx, event.session)
    else:
        make_up(ctx)
    if event.source == "clear":
        follow_clear(ctx, event)
    reply = start_session(ctx, event)
    _add_briefing(ctx, event, reply)
    return reply


def _ensure_handoff(ctx: Ctx, event: Record) -> None:
    """Before a compaction takes the context away there is a handoff, the kit's own if need be."""
    state = read_session(ctx, event.session)
    ledger = read_ledger(ctx)
    row = ledger.handoffs.get(event.session)
    is_there = row is not None and row.written_at > max(state.compacted_at, row.asked_at - 1, 1)
    if not ctx.get("handoff.enabled") or state.handoff_complete or is_there:
        return
    if not state.threshold_crossed_at or not find_written(ctx, event, state, ledger):
        write_mechanical(ctx, event.session, event.transcript or state.transcript)


def _add_briefing(ctx: Ctx, event: Record, reply: Reply) -> None:
    """What the agent is in, once: at the first prompt of a workflow's session, after /clear and
    after a compaction; where there is no room for it, with the next prompt."""
    flow = read_workflow(ctx) if is_file(auto_path(ctx)) else None
    if flow is None or not is_active(flow) or flow.session_id != event.session_id:
        return
    mark = "%s %s" % (format_iso(flow.started_at, True), flow.session_id)
    text = render_briefing(ctx, flow)

    def tell_once(state: Record) -> bool:
        is_new, state.workflow_told = state.workflow_told != mark, mark
        return is_new

    if ctx.length(text) <= _room(ctx, reply) and update_session(ctx, event.session, tell_once)[1]:
        _add(ctx, reply, text)
        record(ctx, "auto:briefed", phase=flow.phase, chars=len(text))


def gate(event: Record, ctx: Ctx) -> "Reply | None":
    """PreToolUse: the startup context's retry, then the context load gate. Never a permission
    decision."""
    if not event.session or not can_speak(ctx, event.name):
        return None
    reply = Reply()
    state = _follow(ctx, event, reply, read_session(ctx, event.session))
    text = open_gate(ctx, event, state, _room(ctx, reply))
    _add(ctx, reply, text or "")
    if text is not None and not is_pending(state) and ctx.agent == "claude":
        keep_quiet(ctx, event.session)
    return reply


def monitor(event: Record, ctx: Ctx) -> "Reply | None":
    """After every tool: count, measure, audit, the handoff reminder and the pending signals. Before
    a compaction it only saves, and says nothing at all."""
    if event.session and event.name == "PreCompact":
        _ensure_handoff(ctx, event)
    if not event.session or event.name == "PreCompact":
        return None
    usage = read_usage(ctx, event.transcript)
    batch = _find_batch(ctx, event, usage)
    written, seen = update_session(
        ctx, event.session, lambda state: _note_call(ctx, event, state, usage, batch))
    if seen is None:
        return None
    if not written and seen.reply.after:
        keep_claims(ctx, event.session, seen.state.delivered)
    if seen.person and (written or not is_writable(ctx.path("state"))):  # else it is said again
        seen.reply.person = PERSON_JOIN.join(filter(None, (seen.person, seen.reply.person)))
    return seen.reply


def _find_batch(ctx: Ctx, event: Record, usage: "Record | None") -> str:
    """The message that this call belongs to, when it will come to a reminder: the transcript may
    lag, so this is not done under the lock."""
    if not ctx.get("handoff.enabled") or (usage and usage.tokens < DEFAULT_WINDOW // 4):
        return ""
    state = read_session(ctx, event.session)
    measure = measure_context(ctx, state, current_usage(usage, state), 0)
    is_due = measure.tokens >= handoff_point(ctx, state, measure.window)
    if state.handoff_complete or not (is_due or state.threshold_crossed_at):
        return ""
    return find_message(ctx, event.transcript, event.tool_use_id)


def _note_call(ctx: Ctx, event: Record, state: Record, usage: "Record | None",
               batch: str) -> "Record | None":
    """Count one tool call; None when the same call was counted before."""
    if event.tool_use_id:
        mark = event.name[:12] + event.tool_use_id[-40:]
        if mark in state.seen_calls:
            return None
        state.seen_calls = (state.seen_calls + [mark])[-24:]
    note_settings(ctx, state)
    usage, added = current_usage(usage, state), estimate_tokens(event)
    measure = measure_context(ctx, state, usage, 0 if usage else added)
    state.tool_calls += 1
    vars(state).update(estimated_tokens=measure.tokens, window=measure.window, last_call=ctx.now,
                       exact=measure.exact, measured_model=usage.model if usage else
                       state.measured_model)
    if measure.exact and measure.tokens > DEFAULT_WINDOW:
        state.large_model = measure.model  # proven, also for the time after a compaction
    if event.tool in state.breakdown or len(state.breakdown) < 60:
        state.breakdown[event.tool] = count_of(state.breakdown.get(event.tool)) + added
    note_repetition(state, event)
    if state.history[-1:] != [measure.percent]:
        state.history = (state.history + [measure.percent])[-40:]
    name = read_context_file(ctx, event)
    if name:
        confirm_file(ctx, name)
        state.files_read = list(dict.fromkeys(state.files_read + [name]))
    reminder, person = follow_handoff(ctx, event, state, measure, batch)
    shot = _snapshot(ctx, state, measure, state.tool_calls % AUDIT_EVERY_CALLS == 1)
    shot = shot if note_audit(state, shot) else None
    return Record(state=state, reply=_say_after(ctx, event, state, reminder, shot), person=person)


def _say_after(ctx: Ctx, event: Record, state: Record, reminder: str,
               shot: "Record | None") -> Reply:
    """What goes with a tool's result; claimed under the same lock, so that one write keeps all."""
    reply = Reply()
    if not can_speak(ctx, "PreToolUse"):  # there the gate speaks after the first tool
        _add(ctx, reply, *follow_delivery(ctx, event, state, True))
        _add(ctx, reply, open_gate(ctx, event, state, _room(ctx, reply)) or "")
    _add(ctx, reply, reminder)
    if shot:
        _audit(ctx, shot)
    if "tool" in ctx.get("monitor.inject_at") and can_speak(ctx, event.name):
        if has_news(ctx, event.session, {} if shot else state.looked):
            _merge(ctx, reply, claim_signals(ctx, state, event.session, _room(ctx, reply)))
    return reply


def _snapshot(ctx: Ctx, state: Record, measure: Record, with_files: bool) -> Record:
    """What the auditors may look at; the context files' age only now and then."""
    score, repeats, failing = repetition_of(state.recent)
    days, stale = find_stale_files(ctx) if with_files else (0, None)
    return Record(
        now=ctx.now, percent=measure.percent, shown=measure.shown, score=score, repeats=repeats,
        note=" (%s)" % measure.note if measure.note else "", failing=failing, stale_days=days,
        stale_files=stale, handoff="", is_written=state.handoff_complete, active=set(),
        decisions="")


def _audit(ctx: Ctx, shot: Record) -> None:
    """The paths that an alert names are looked for when there can be one."""
    if shot.percent >= HEALTH_LEVELS[-1][1]:
        decisions = ctx.path("DECISIONS.md")
        shot.decisions = shown_path(ctx, decisions, "") if is_file(decisions) else ""
        if ctx.get("handoff.enabled"):
            shot.handoff = handoff_path(ctx, ctx.session, read_ledger(ctx))
    run_auditors(ctx, ctx.session, shot)


def stop_enforce(event: Record, ctx: Ctx) -> "Reply | None":
    """Stop: look for evidence, save a printed handoff, then finish the phase or let go."""
    if not event.session:
        return None
    reply, person = Reply(), ""
    state = _follow(ctx, event, reply, read_session(ctx, event.session), False)
    if state.threshold_crossed_at and not state.handoff_complete:
        person = save_printed(ctx, event, state)
    if is_file(auto_path(ctx)):
        reply = enforce_stop(ctx, event, state) or reply
    reply.person = PERSON_JOIN.join(filter(None, (person, reply.person)))
    if reply.hold and "tool" in ctx.get("monitor.inject_at"):
        _add_signals(ctx, event, reply, state.looked)
    return reply


def cleanup(event: Record, ctx: Ctx) -> "Reply | None":
    """SessionEnd: the session's files go, its handoff stays; a resumed session keeps all."""
    if not event.session or event.reason == "resume":
        return None
    if is_switched_off(ctx.env) or is_paused(ctx, event.session):
        remove_session(ctx, event.session)
        return None
    state = read_session(ctx, event.session)
    if event.reason == "clear":
        note_cleared(ctx, event.session)
    if state.threshold_crossed_at and not state.handoff_complete:
        _ensure_handoff(ctx, event)
    follow_delivery(ctx, event, state, False)
    if is_pending(state) and state.startup.outcome == "pending" and state.startup.answered:
        fail_delivery(ctx, state.startup, "the session ended without evidence")
    if state.tool_calls:
        record(ctx, "session:ended", calls=state.tool_calls, reason=event.reason)
    remove_session(ctx, event.session)
    collect_orphans(ctx, event.session)
    return None


def _follow(ctx: Ctx, event: Record, reply: Reply, state: Record,
            may_speak: bool = True) -> Record:
    """Look after the startup context that is under way: its evidence, or the retry that is due. The
    state as it is then."""
    if not is_pending(state):
        return state
    _, done = update_session(ctx, event.session, lambda state: (
        state, follow_delivery(ctx, event, state, may_speak and can_speak(ctx, event.name))))
    state, said = done or (state, ("", ""))
    _add(ctx, reply, *said)
    return state


def _room(ctx: Ctx, reply: Reply) -> int:
    used = ctx.length(reply.context)
    return DIALECTS[ctx.agent].limit - (used + 2 if used else 0)


def _add(ctx: Ctx, reply: Reply, text: str, person: str = "") -> None:
    """One more part of the reply, when it fits."""
    if text and ctx.length(text) <= _room(ctx, reply):
        reply.context = reply.context + "\n\n" + text if reply.context else text
    reply.person = PERSON_JOIN.join(filter(None, (reply.person, person)))


def _add_signals(ctx: Ctx, event: Record, reply: Reply, looked: dict) -> None:
    if has_news(ctx, event.session, looked):
        _merge(ctx, reply, deliver_signals(ctx, event.session, _room(ctx, reply)))


def _merge(ctx: Ctx, reply: Reply, signals: "Reply | None") -> None:
    if signals:
        _add(ctx, reply, signals.context, signals.person)
        reply.terminal, reply.after = signals.terminal, signals.after


MODES = {"inject": inject, "gate": gate, "monitor": monitor, "stop-enforce": stop_enforce,
         "cleanup": cleanup}

# =============================================================================
# Hook
# =============================================================================
# stdin, stdout, the environment, the deadline, and run_guarded: the one fail-open boundary.
# Whatever happens inside, the client sees silence and exit 0.
EVENT_EDGE_BYTES = 64 * 1024  # of an event too large to be kept: its end, and how an input begins


def read_environment(names: tuple = ENV_NAMES) -> dict:
    """The variables we look at, and no others."""
    if IS_POSIX:
        encoding = sys.getfilesystemencoding()
        raw = {name: _os.environ.get(name.encode()) for name in names}
        return {name: value.decode(encoding, "surrogateescape")
                for name, value in raw.items() if value}
    own = {name.upper(): value for name, value in _os.environ.items()}
    return {name: own[name] for name in names if own.get(name)}


def occupy_descriptors() -> None:
    """A closed 0, 1 or 2 becomes one that cannot be written: the next file opened would get its
    number, and the reply with it."""
    fd = 0
    while fd <= 2:
        try:
            fd = _os.open("/dev/null" if IS_POSIX else "nul", _os.O_RDONLY)
        except OSError:
            return  # a sandbox without devices
    _os.close(fd)


def read_event_data(fd: int) -> "dict | None":
    """The first complete JSON object on the descriptor, without waiting for its end; None when
    there is none.

    Some clients never close the pipe, so each time the text could be complete it is parsed; all
    failed tries together cost at most some times the data.
    """
    data, tried, is_large = bytearray(), 0, False
    try:
        if _os.isatty(fd):
            return None
        with TimeLimit(STDIN_WAIT_S):
            while len(data) < STDIN_LIMIT_BYTES:
                chunk = _os.read(fd, 1 << 16)
                if not chunk:
                    break
                data += chunk
                if len(data) > RESPONSE_KEPT_BYTES and not is_large:
                    is_large = True
                    head, start = _parse_head(data)
                    if head:
                        return _read_rest(fd, head, data, start)
                is_end = chunk[-16:].rstrip()[-1:] == b"}"
                if is_end and (tried <= 2 * len(data) or chunk[-1:] == b"\n"):
                    tried += len(data)
                    event = parse_object(data)
                    if event:
                        return event
    except (TimeUp, OSError):
        pass  # the time is up or the descriptor is closed: what came so far counts
    return parse_object(data) or None


def _parse_head(data: bytearray) -> tuple:
    """(the event up to its tool's response or {}, where that begins). An input that is too large
    itself is the large part, and its beginning is kept: the path and the command come first."""
    for key in (b'"tool_response":', b'"tool_input":'):
        start = max(data.find(b"," + key, 0, RESPONSE_KEPT_BYTES),
                    data.find(b", " + key, 0, RESPONSE_KEPT_BYTES))
        head = parse_object(bytes(data[:start]) + b"}") if start > 0 else {}
        if head.get("hook_event_name"):
            break
    else:
        return {}, 0
    if key == b'"tool_input":':
        begin = data.index(key, start) + len(key)
        text = bytes(data[begin:begin + EVENT_EDGE_BYTES])
        if parse_object(text):
            return {}, 0  # whole, so something else is large
        cut = text.find(b"\\", len(text) - 12)  # no half of an escape
        text = text[:cut].rstrip(b"\\") if cut >= 0 else text
        ends = (text + b'"}', text + b'"}]}', text + b"}", text.rstrip(b", ") + b"]}")
        head["tool_input"] = next(filter(None, map(parse_object, ends)), {})
    return head, start


def _read_rest(fd: int, head: dict, data: bytearray, start: int) -> dict:
    """A large event: what follows its head is dropped while it is read, up to the call's id at the
    end."""
    dropped = -start
    try:
        while dropped + len(data) < STDIN_LIMIT_BYTES:
            if data[-16:].rstrip()[-1:] == b"}":
                cut = max(data.rfind(b',"tool_use_id":'), data.rfind(b', "tool_use_id":'))
                tail = parse_object(b"{" + bytes(data[cut + 1:])) if cut >= 0 else {}
                if tail:  # maybe the response's own: it may say no more than which call this is
                    return {"tool_use_id": tail.get("tool_use_id"), **head,
                            "response_bytes": max(0, dropped + cut)}
            if len(data) > RESPONSE_KEPT_BYTES:
                dropped += len(data) - EVENT_EDGE_BYTES
                del data[:-EVENT_EDGE_BYTES]
            chunk = _os.read(fd, 1 << 16)
            if not chunk:
                break
            data += chunk
    except (TimeUp, OSError):
        pass
    return {**head, "response_bytes": max(0, dropped + len(data))}


def run_mode(mode: str, agent: str, data: object, env: dict, now: float) -> tuple:
    """(the JSON text to print or "", what to do once it is out) for one event."""
    agent = detect_agent(agent, data)
    event = parse_event(data, mode, agent, env)
    if event is None or event.agent_id:
        return "", []
    start = project_folder(agent, env)
    env["start"] = start or event.cwd  # for the error log, should it come to that
    ctx = find_project(start, event.cwd, env)
    if ctx is None:
        return "", []
    set_run(ctx, env, now)
    ctx.mode, ctx.session, ctx.agent = mode, event.session, agent
    ctx.length = DIALECTS[agent].length
    if is_paused(ctx, event.session) and mode != "cleanup":
        return "", []
    reply = MODES[mode](event, ctx)
    if reply is None:
        return "", []
    out = render_reply(ctx, event, reply)
    return (format_json(out) if out else "", reply.after)


def set_run(ctx: Ctx, env: dict, now: float) -> None:
    """The clock and the places of this run."""
    ctx.now, ctx.env = now, env
    ctx.tmp = native_path(env.get("TMPDIR" if IS_POSIX else "TEMP") or "/tmp")
    ctx.state_home, ctx.length = state_home_of(env), units


def _run_hook(env: dict, mode: str, agent: str) -> None:
    """One event in, one reply out, whatever happens inside."""
    text, after = run_mode(mode, agent, read_event_data(0), env, time.time())
    try:
        if text:
            write_all(1, text.encode("ascii"))
    except OSError:
        text = ""  # the reader has gone: what was claimed is free again
    for action, *args in after:
        action(bool(text), *args)


def run_guarded(word: str, env: dict, work: object, *args) -> None:
    """The fail-open boundary, with the one broad except of this file."""
    try:
        occupy_descriptors()
        work(env, *args)
    except Exception as error:  # noqa: BLE001
        report_failure(word, error, env)


def report_failure(mode: str, error: Exception, env: dict) -> None:
    """One line on stderr, the traceback into the bounded log; time that is up and a closed stdout
    are no failures of ours."""
    is_closed = isinstance(error, OSError) and error.errno in (9, 22)  # 22: so Windows says it
    if is_closed or isinstance(error, (BrokenPipeError, TimeUp)):
        return
    import traceback

    what = "%s: %s" % (type(error).__name__, one_line(str(error)))
    line = "ctx_hooks: internal error in %s: %s\n" % (mode, what)
    write_stderr(line)
    ctx = find_project("", env.get("start", ""), env)
    if ctx:
        set_run(ctx, env, time.time())
        trace = "".join(traceback.format_tb(error.__traceback__))
        log_error(ctx, "%s %sTraceback:\n%s" % (format_iso(ctx.now), line, trace))


def hook_main(args: list) -> None:
    """`MODE [AGENT]`: what the registered command calls. It never returns and always ends in 0."""
    mode = args[0] if args and args[0] in MODES else ""
    try:
        env = read_environment()
        if mode == "cleanup" or (mode and not is_switched_off(env)):
            start_deadline(CLEANUP_LIMIT_S if mode == "cleanup" else HOOK_LIMIT_S)
            run_guarded(mode, env, _run_hook, mode, args[1] if args[1:] else "claude")
    finally:
        _os._exit(0 if mode else 1)  # nothing is buffered; no teardown saves 8 % of a start


def write_stderr(text: str) -> None:
    """Never `print`: without a stderr of its own it would print to stdout."""
    try:
        write_all(2, for_terminal(text).encode("utf-8", "replace"))
    except OSError:
        pass


# ---- below this line: for people only; a hook does not load it ----

# =============================================================================
# Registration
# =============================================================================
# What a client's settings say about this kit: made here for install.py and for the text that
# `doctor` prints, and recognised here for both. hooks.json is this table for Claude Code.
REGISTRATIONS = (  # our name of the event, mode, seconds (Stop has room for a check command)
    ("SessionStart", "inject", 10), ("UserPromptSubmit", "inject", 10),
    ("PreToolUse", "gate", 10), ("PostToolUse", "monitor", 10),
    ("PostToolUseFailure", "monitor", 10), ("PreCompact", "monitor", 10),
    ("Stop", "stop-enforce", 150), ("SessionEnd", "cleanup", 5),
)
# Why the command looks as it does:
# - `: ctx_hooks MODE;` does nothing; the client's list of hooks shows the first 60 letters.
# - the test of a file (gate only): nothing is owed before a tool, so no interpreter is started.
#   Copilot runs these settings too, maybe inside a session of another client with its own marker.
# - `-I -S`: no PYTHON* variables, no site-packages. `-X utf8`: the locale is not asked.
# - the source loader of the interpreter itself loads exactly this file, up to the line that says
#   so: no import search, so nothing beside it counts; its bytecode lies in a folder of the user's
#   own (a relative one in the variable would be the project's, so it does not count). What people
#   run comes after that line and need not be loaded 100 times an hour.
# - `|| exit 0`: the client reads exit 2 as "deny", and a missing script is exactly that.
_LOAD = (
    "L.source_to_code = lambda s, d, p, *a, **k: compile("  # 3.15 adds the name
    "d.partition(b'\\n# ---- below this line: ')[0], p, 'exec', 0, 1, 2); "
    "c = L('ctx_hooks', p).get_code('ctx_hooks'); "
    "del L.source_to_code; sys.pycache_prefix = o; "
    "n = {'__name__': 'ctx_hooks', '__file__': p}; exec(c, n); n['hook_main'](sys.argv[1:])"
)
LOADER = (
    "import gc, sys; gc.disable(); "
    "from _frozen_importlib_external import SourceFileLoader as L; "
    "o = sys.pycache_prefix; sys.pycache_prefix = sys.argv.pop(); p = sys.argv.pop(); " + _LOAD
)
START = '-I -S -X utf8 -c "%s"' % LOADER
FIND_CACHE = 'c="${XDG_CACHE_HOME##[!/]*}"; '
CACHE = '"${c:-$HOME/.cache}/ctx_hooks"'
GUARD = (
    'm="${TMPDIR:-/tmp}/' + QUIET_PREFIX + '${CLAUDE_CODE_SESSION_ID##*/}$COPILOT_CLI"; '
    '[ -f "$m" ] && [ ! -L "$m" ] && [ -O "$m" ] || '
)
PLUGIN_PATH = '"${CLAUDE_PLUGIN_ROOT:-$CLAUDE_PROJECT_DIR/.claude/hooks}/ctx_hooks.py"'
COMMAND_END = " || exit 0"
# Windows without Git Bash runs PowerShell, with it sh: one line that both read alike. Python fills
# in the variable that a path begins with.
WINDOWS_LOADER = (
    "import gc, sys, nt; gc.disable(); "
    "from _frozen_importlib_external import SourceFileLoader as L; "
    "r = lambda: (lambda v, s, t: (nt.environ[v] if v[2:] else v) + s + t)"
    "(*sys.argv.pop().partition('/')); "
    "o = sys.pycache_prefix; sys.pycache_prefix = r(); p = r(); " + _LOAD
)
WINDOWS_CACHE = "LOCALAPPDATA/ctx_hooks/cache"


def kit_path(agent: str) -> str:
    """The installed file as a shell sees it; "" where the client has no variable for it."""
    variable = DIALECTS[agent].project_variable
    return '"$%s/.claude/hooks/ctx_hooks.py"' % variable if variable else ""


def format_command(mode: str, agent: str, python: str, path: str) -> str:
    """The command of one hook; `python` and `path` as they stand in a shell."""
    words = mode if agent == "claude" else mode + " " + agent
    guard = GUARD if mode == "gate" and agent == "claude" else ""
    return ": ctx_hooks %s; %s%s%s %s %s %s %s%s" % (
        words, FIND_CACHE, guard, python, START, words, path, CACHE, COMMAND_END)


def format_plugin(mode: str, agent: str, python: str, path: str) -> str:
    """The same for hooks.json, which nobody adapts to a machine: where there is no python3, or only
    the placeholder of a shop, the launcher of Windows is asked."""
    guard = GUARD if mode == "gate" else ""
    return ': ctx_hooks %s; %sset -- %s %s %s %s; %s%s "$@" || py -3 "$@"%s' % (
        mode, FIND_CACHE, START, mode, path, CACHE, guard, python, COMMAND_END)


def format_windows(mode: str, agent: str, python: str, path: str) -> str:
    """The same for Windows; `path` begins with a variable's bare name or a drive."""
    words = mode if agent == "claude" else mode + " " + agent
    return '%s -X ctx_hooks=%s -I -S -X utf8 -c "%s" %s %s %s; exit 0' % (
        python, mode, WINDOWS_LOADER, words, path, WINDOWS_CACHE)


def plan_hooks(agent: str, python: str, path: str, form: object = format_command) -> dict:
    """{event: [group]} for the settings of one client, in its own names and units of time."""
    dialect, hooks = DIALECTS[agent], {}
    for event, mode, seconds in REGISTRATIONS:
        for name in [theirs for theirs, ours in dialect.events.items() if ours == event]:
            limit_s = min(seconds, dialect.end_limit_s) if event == "SessionEnd" else seconds
            entry = {"type": "command", "command": form(mode, agent, python, path),
                     "timeout": limit_s * dialect.time_unit}
            group = {"hooks": [entry]}
            if event in dialect.matchers:
                group = {"matcher": dialect.matchers[event], "hooks": [entry]}
            hooks[name] = [group]
    return hooks


def find_registrations(settings: dict) -> list:
    """[(event, command, what it runs)] of our entries in a client's settings."""
    commands = [(event, text_of(dict_of(entry).get("command")))
                for event, groups in dict_of(settings.get("hooks")).items()
                for group in list_of(groups) for entry in list_of(dict_of(group).get("hooks"))]
    found = [(event, command, parse_command(command)) for event, command in commands]
    return [row for row in found if row[2]]


def parse_command(command: str) -> "Record | None":
    """What a registered command runs with this kit (mode, agent, python, path), None for every
    other command. `exact`: to the letter one that is made here, so it does nothing else."""
    python, words, path = parse_run(command) or ("", [], "")
    if not words or words[0] not in MODES:
        return None
    mode, agent = words[0], words[1] if words[1:] and words[1] in DIALECTS else "claude"
    return Record(mode=mode, agent=agent, python=python, path=path,
                  exact=_is_exact(command, mode, agent))


def _is_exact(command: str, mode: str, agent: str) -> bool:
    """Made here, with an interpreter and a path that are one word each to a shell, in which only
    the known variables are expanded."""
    import re

    variables = "|".join(["HOME"] + [row.project_variable or "HOME" for row in DIALECTS.values()])
    word = r"""py -3|[\w./:+~-]+|'(?:[^'\n]|'"'"')*'|"(?:\$(?:%s)\b)?[^"$`\\\n]*"|%s""" % (
        variables, re.escape(PLUGIN_PATH))
    for form in (format_command, format_windows, format_plugin):
        pattern = re.escape(form(mode, agent, "\0", "\0")).replace(re.escape("\0"), "(?:%s)" % word)
        if re.fullmatch(pattern, command):
            return True
    return False


def parse_run(command: str) -> "tuple | None":
    """(interpreter, arguments, path) of a command that runs this kit and does nothing else (a
    harmless `|| exit 0` aside): what may be replaced and removed. None for every other command."""
    if "ctx_hooks" not in command:
        return None
    if command.startswith(": ctx_hooks "):
        command = command.partition("; ")[2].replace(GUARD, "", 1).replace(FIND_CACHE, "", 1)
    if command.startswith("set -- ") and command.endswith('"$@" || py -3 "$@"' + COMMAND_END):
        words, _, python = command[7:-len(' "$@" || py -3 "$@"' + COMMAND_END)].rpartition("; ")
        command = python + " " + words
    # Read a second time with plain backslashes: an unquoted Windows path.
    return _parse_words(_simple_words(command, "\\")) or _parse_words(_simple_words(command, ""))


def _simple_words(command: str, escape: str) -> list:
    """The words of one simple command, [] when it is more than that."""
    import shlex

    lexer = shlex.shlex(command.strip(), posix=True, punctuation_chars=True)
    lexer.whitespace = " \t"  # a newline ends a command, so it must not vanish here
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", escape
    try:
        words = list(lexer)
    except ValueError:  # an open quote
        return []
    marks = [i for i, word in enumerate(words) if word and not word.strip("();<>|&")]
    end = marks[0] if marks else len(words)
    if words[end - 1:end + 2] == ["2", ">", "/dev/null"]:
        words, end = words[:end - 1] + words[end + 2:], end - 1
    harmless = ([], ["||", "exit", "0"], ["||", "true"], ["||", ":"], [";", "exit", "0"])
    return words[:end] if words[end:] in harmless else []


def _parse_words(words: list) -> "tuple | None":
    while words and (words[0] in ("exec", "env") or (
            "=" in words[0] and words[0].partition("=")[0].isidentifier())):
        words = words[1:]
    if not words or _is_kit(words[0]):
        return ("", words[1:], words[0]) if words else None
    at = 1
    while at < len(words) and words[at][:1] == "-" and words[at] not in ("-c", "-m"):
        at += 2 if words[at] in ("-X", "-W") else 1
    python = words[0] + (" -3" if words[1:2] == ["-3"] else "")
    rest = words[at:]
    if rest[:1] == ["-c"] and rest[2:]:
        return _parse_code(python, rest[1], rest[2:])
    if not base_name(words[0].replace("\\", "/")).lower().startswith("py"):
        return None
    if rest[:2] == ["-m", "ctx_hooks"]:
        return python, rest[2:], ""
    return (python, rest[1:], rest[0]) if rest and _is_kit(rest[0]) else None


def _parse_code(python: str, code: str, rest: list) -> "tuple | None":
    """`-c CODE`: the loaders of this release, whose last two words are file and cache, and of
    0.1.0, whose last word was the folder (the status line's first)."""
    if code in (LOADER, WINDOWS_LOADER):
        return python, rest[:-2], rest[-2] if rest[1:] else ""
    if code.endswith("import ctx_hooks; ctx_hooks.main()"):
        is_first = "pop(1)" in code
        return (python, rest[1:], rest[0]) if is_first else (python, rest[:-1], rest[-1])
    return None


def _is_kit(word: str) -> bool:
    return base_name(word.replace("\\", "/")) == "ctx_hooks.py"


# =============================================================================
# Doctor
# =============================================================================
# Looks at everything that can keep the hooks from working. It runs a registered command only when
# that is to the letter one of ours and the file it would load is one this kit knows by its hash;
# then with an event each, in a scratch project. A finding is (level, what it means → what to do).
OK, HINT, WARN, FAIL = "ok", "hint", "warn", "FAIL"
KNOWN_RELEASES = {"7895ab644e7735f2f52e502f8b4169a0152b112cf0c04988e33b41f3b2999c8b": "0.1.0"}
SLOW_FACTOR, TRIAL_RUNS, TRIAL_LIMIT_S = 3.0, 3, 20
SHIM_STARTED = ("PYENV_DIR", "ASDF_INSTALL_PATH")  # set by a version manager for what it starts
IGNORED_NAMES = (".claude", ".claude/*", ".claude/**", ".claude/hooks", ".claude/settings.json")
PYTHON_PROBE = "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.executable)"


def diagnose(ctx: "Ctx | None", cwd: str, env: dict) -> object:
    """All findings, in the order in which a person would look."""
    root = ctx.root if ctx else cwd
    yield from _check_kit(env)
    if is_switched_off(env):
        yield WARN, "CTX_HOOKS_DISABLE is set: every hook is off → unset it"
    if ctx and is_paused(ctx, ctx.session or "*"):
        yield WARN, "the hooks are paused → " + own_command("resume")
    registered = {agent: read_registrations(agent, root, env) for agent in DIALECTS}
    for agent, scopes in registered.items():
        yield from _check_agent(agent, scopes, env)
    local = [scope[3] for scope in registered["claude"] if scope[0] != "user"]
    if any(local) and any(scope[3] for scope in registered["copilot"]):
        yield WARN, ("Copilot CLI runs Claude Code's settings of a project too, so each event "
                     "starts the kit twice → remove " + DIALECTS["copilot"].settings)
    yield from _check_places(registered["claude"], root, cwd, env)
    yield from _try_commands(registered, root, env)
    yield from _check_codex(registered["codex"], root, env)
    if ctx:
        yield OK, "context folder " + ctx.dir
        yield from check_project(ctx)
    elif is_dir(root + "/" + DEFAULT_CONTEXT_DIR):
        yield FAIL, ("the context folder is another user's, or it or a folder in it is a link that "
                     "leads out: the hooks stay silent here → use folders of your own")
    else:
        yield WARN, "no context folder: the hooks stay silent here → mkdir " + DEFAULT_CONTEXT_DIR


def own_command(words: str) -> str:
    """A command of this kit that can be pasted from the folder that one is in."""
    if read_environment(("CTX_LAUNCHER",)):
        return "ctx " + words
    return _run_line(real_path(__file__), words)


def installer(options: str = "") -> str:
    """The same for install.py, which stays in the folder that the kit came from: the record of the
    installation names it. A record that came with a clone cannot make one up."""
    folder = parent_of(real_path(__file__))
    root, home = parent_of(parent_of(folder)), real_path(home_of(read_environment()))
    record_ = read_json(folder + "/.ctx_hooks/record.json")
    noted = slashed(text_of(record_.get("source"))) + "/install.py"
    is_theirs = not is_trusted(noted) or (root != home and is_below(real_path(noted), root))
    beside = "" if folder.endswith("/.claude/hooks") else folder + "/install.py"
    for path in ("" if is_theirs else noted, beside):
        if is_absolute(path) and is_file(path) and is_file(parent_of(path) + "/ctx_hooks.py"):
            return _run_line(path, options)
    python = "python3" if IS_POSIX else "py -3"
    return ("`%s install.py %s" % (python, options)).strip() + "` in your copy of ctx_hooks"


def _run_line(path: str, words: str) -> str:
    import shlex

    cwd = _current_folder()
    path = path[len(cwd.rstrip("/")) + 1:] if cwd and is_below(path, cwd) else path
    start = "python3 " + shlex.quote(path) if IS_POSIX else 'py -3 "%s"' % path
    return (start + " " + words).strip()


def _current_folder() -> str:
    """Its path, "" when it is gone."""
    try:
        return real_path(_os.getcwd())
    except OSError:
        return ""


# --- the file


def file_digest(path: str) -> str:
    """The sha256 of its text; a checkout with CR LF is the same release."""
    import hashlib

    data = read_bytes(path, STATE_LIMIT_BYTES) or b""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def _check_kit(env: dict) -> object:
    """The file against what install.py noted, what lies beside it, and its bytecode."""
    folder, digest = parent_of(real_path(__file__)), file_digest(__file__)
    noted = text_of(read_json(folder + "/.ctx_hooks/record.json").get("kit"))
    yield OK, "ctx_hooks %s, Python %s" % (VERSION, sys.version.split()[0])
    yield OK, "sha256 %s%s" % (digest, " (as installed)" if noted == digest else "")
    if noted not in ("", digest):
        yield WARN, ("the kit was edited since it was installed → the release comes back with "
                     + installer("--force"))
    for path in find_siblings(folder):
        yield WARN, ("an import of the kit's name would find %s; the hooks do not → remove it, if "
                     "it is not yours" % path)
    place = cache_folder(env) + (folder if IS_POSIX else "")
    while is_missing(place) and parent_of(place) != place:
        place = parent_of(place)
    if not is_dir(place) or not is_writable(place):
        yield WARN, ("no bytecode can be kept in %s, so each hook compiles the whole file, some 8 "
                     "times slower → make it a folder of yours" % (
                         place if is_dir(place) else cache_folder(env)))


def find_siblings(folder: str) -> list:
    """A package, an extension module or bytecode of the kit's name beside it."""
    beside = [name for name in list_dir(folder) if name.lower() == "ctx_hooks"
              or name.lower().endswith((".so", ".pyd", ".dll", ".pyc"))]
    names = beside + ["__pycache__/" + name for name in list_dir(folder + "/__pycache__")]
    return [folder + "/" + name for name in names
            if (base_name(name).lower() + ".").startswith("ctx_hooks.")]


def cache_folder(env: dict) -> str:
    """Where the registered command keeps its bytecode; "" when the user has no such place."""
    env = {**env, **read_environment(("XDG_CACHE_HOME",))}
    base = user_folder(env, "XDG_CACHE_HOME", "LOCALAPPDATA", "/.cache")
    return base and base + ("/ctx_hooks" if IS_POSIX else "/ctx_hooks/cache")


# --- what is registered


def read_registrations(agent: str, root: str, env: dict) -> list:
    """[(scope, path, settings or None when they are broken, [(event, command, what it runs)])]."""
    row = DIALECTS[agent]
    files = settings_files(root, env) if agent == "claude" else [
        ("project", root + "/" + row.settings), ("user", home_of(env) + "/" + row.user_settings)]
    loaded = [(scope, path, load_json(path)) for scope, path in files]
    return [(*file, find_registrations(file[2] or {})) for file in loaded]


def _check_agent(agent: str, scopes: list, env: dict) -> object:
    """Is every event of this client registered, once, and for it?"""
    row, found = DIALECTS[agent], []
    names = [scope for scope, _, _, entries in scopes if entries]
    for scope, path, settings, entries in scopes:
        found += [(event, ours.mode, ours.agent) for event, _, ours in entries]
        if settings is None:
            yield FAIL, ("%s: the %s settings are not a JSON object, so the client ignores them → "
                         "mend %s" % (row.label, scope, path))
        elif settings.get("disableAllHooks") is True:
            yield FAIL, "%s: disableAllHooks: no hook runs → remove it from %s" % (row.label, path)
    if agent == "claude" and _is_plugin(scopes, env):
        names.append("plugin")
    if not names and agent == "claude":
        yield FAIL, ("no hook of this kit is registered for Claude Code → %s, or paste the "
                     "settings below" % installer())
    modes = {event: mode for event, mode, _ in REGISTRATIONS}
    for theirs, event in row.events.items() if found else ():
        if (theirs, modes[event], agent) not in found:
            yield FAIL, "%s: %s does not run `%s` → %s" % (
                row.label, theirs, modes[event], installer("--agent " + agent))
    if len(names) > 1:
        yield WARN, ("%s: registered more than once (%s), so each event starts the kit as often → "
                     "keep one" % (row.label, ", ".join(names)))
    elif names:
        yield OK, "%s: registered (%s)" % (row.label, names[0])


def _is_plugin(scopes: list, env: dict) -> bool:
    """The client runs the kit as a plugin: switched on in its settings, or this very file is."""
    root = slashed(env.get("CLAUDE_PLUGIN_ROOT", ""))
    plugins = [dict_of(dict_of(scope[2]).get("enabledPlugins")).items() for scope in scopes]
    is_on = any("ctx-hooks" in name and on is True for rows in plugins for name, on in rows)
    return is_on or bool(root) and is_below(real_path(__file__), real_path(root))


def _check_places(scopes: list, root: str, cwd: str, env: dict) -> object:
    """Would Claude Code read these settings here, would colleagues get them, may the agent write
    its handoff?"""
    local = [path for scope, path, _, entries in scopes if scope != "user" and entries]
    here = [scope[3] for scope in read_registrations("claude", cwd, env)]
    if cwd != root and local and not any(here):
        yield WARN, ("Claude Code started in this folder does not read %s → start it in %s, or "
                     "register for all folders: %s" % (local[0], root, installer("--scope user")))
    is_shared = root + "/.claude/settings.json" in local
    for name in (".gitignore", ".git/info/exclude") if is_shared else ():
        lines = (read_bytes(root + "/" + name) or b"").decode("utf-8", "replace").split()
        for line in [line for line in lines if line.strip("/") in IGNORED_NAMES][:1]:
            yield HINT, ("git ignores the hooks (`%s` in %s), so colleagues do not get them → take "
                         "the line out, if they should" % (line, name))
    rules = [rule for scope in scopes
             for rule in list_of(dict_of(dict_of(scope[2]).get("permissions")).get("allow"))]
    if local and not any("handoffs/" in text_of(rule) for rule in rules):
        yield HINT, ("the agent has to ask you before it writes a handoff; without that the kit "
                     "saves what it prints or makes one → " + installer("--allow-handoff"))


def _check_codex(scopes: list, root: str, env: dict) -> object:
    """Codex runs no hook whose hash the person did not agree to, and none in a strange folder."""
    keys = [key for _, path, settings, entries in scopes if entries
            for key in _codex_keys(path, dict_of(dict_of(settings).get("hooks")))]
    told = (read_bytes(home_of(env) + "/.codex/config.toml") or b"").decode("utf-8", "replace")
    missing = [key for key, digest in keys if key not in told or digest not in told]
    folder = told.partition('[projects."%s"]' % root)[2].partition("\n[")[0]
    if keys and '"trusted"' not in folder:
        yield WARN, ("Codex: the folder is not trusted, so its hooks are ignored → start codex in "
                     "%s and trust it" % root)
    elif missing:
        yield WARN, ("Codex: %d of %d hooks are not trusted, so they do not run → start codex, "
                     "type /hooks and trust them" % (len(missing), len(keys)))
    elif keys:
        yield OK, "Codex: folder and hooks are trusted"


def _codex_keys(path: str, hooks: dict) -> object:
    """(place, hash) of each hook as Codex notes it when the person trusts it."""
    from json import dumps

    for event, groups in hooks.items():
        name = "".join("_" + c.lower() if c.isupper() else c for c in event).strip("_")
        for place, group in enumerate(map(dict_of, list_of(groups))):
            for index, hook in enumerate(map(dict_of, list_of(group.get("hooks")))):
                entry = {key: hook.get(key) for key in ("command", "timeout", "type")}
                known = {"event_name": name, "hooks": [dict(entry, **{"async": False})]}
                if "matcher" in group:
                    known["matcher"] = group["matcher"]
                text = dumps(known, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                yield "%s:%s:%d:%d" % (path, name, place, index), "sha256:" + digest_of(text)


# --- trial runs


def _try_commands(registered: dict, root: str, env: dict) -> object:
    """Run what is ours to the letter and loads a known file; say what is not."""
    import tempfile

    runs, known = {}, {*KNOWN_RELEASES, file_digest(__file__)}
    rows = [(agent, *row) for agent, scopes in registered.items() for scope in scopes
            for row in scope[3]]
    for agent, event, command, ours in rows:
        path, label = _loaded_file(ours, root, env), "%s, %s: " % (DIALECTS[agent].label, event)
        if not ours.exact:
            yield WARN, "%snot tried, no command of this release: %s → look at it, then %s" % (
                label, one_line(command, 80), installer())
        elif not is_file(path):
            yield FAIL, "%sthere is no %s, so nothing runs → %s" % (label, path, installer())
        elif file_digest(path) not in known:
            yield FAIL, "%snot tried, %s is no release that this kit knows → %s" % (
                label, path, installer("--force"))
        else:
            runs.setdefault((ours.python, path), []).append((agent, event, ours.mode))
    with tempfile.TemporaryDirectory(prefix="ctx-doctor-") as folder:
        for (python, path), events in runs.items():
            words, finding = _check_interpreter(python, root)
            yield finding
            if words:
                yield from _try_events(words, path, events, real_path(folder))


def _loaded_file(ours: Record, root: str, env: dict) -> str:
    """The file that a registered command would load, its variables filled in."""
    plugin = slashed(env.get("CLAUDE_PLUGIN_ROOT", "")) or root + "/.claude/hooks"
    path = ours.path.replace(PLUGIN_PATH[1:].rpartition("/")[0], plugin)
    for name in filter(None, (row.project_variable for row in DIALECTS.values())):
        path = path.replace("$" + name, root)
        path = root + path[len(name):] if path.startswith(name + "/") else path  # Windows
    return slashed(path.replace("$HOME", home_of(env)))


def find_programs(name: str) -> list:
    """The paths of a program by absolute entries of PATH only: what lies in the current folder is
    not what the client would run."""
    if "/" in name or "\\" in name:
        return [name] if is_absolute(name) and is_file(name) else []
    entries = read_environment(("PATH",)).get("PATH", "").split(":" if IS_POSIX else ";")
    paths = ["%s/%s%s" % (slashed(entry.strip('"')), name, "" if IS_POSIX else ".exe")
             for entry in entries if is_absolute(entry.strip('"'))]
    return [path for path in paths if is_file(path) and _os.access(path, _os.X_OK)]


def _check_interpreter(python: str, root: str) -> tuple:
    """(its words or [], finding): which Python a command starts, and whether it is new enough. One
    that the project brings along is not run."""
    name, *options = ["py", "-3"] if python == "py -3" else [python]
    paths = find_programs(name)
    shims = [path for path in paths if "/shims/" in path]
    if shims and read_environment(SHIM_STARTED):
        paths = shims  # what a shim started finds the real one first; the client does not
    if not paths:
        return [], (FAIL, "the interpreter %s is not there, so no hook runs → %s" % (
            python, installer("--python PATH")))
    words = [paths[0], *options]
    if is_below(real_path(paths[0]), real_path(root)) or is_below(paths[0], root):
        return [], (FAIL, "the interpreter %s lies in the project: not tried → look at it, then %s"
                    % (paths[0], installer()))
    _, code, out, err = run_timed([*words, "-I", "-S", "-c", PYTHON_PROBE], b"", "/", None)
    version, _, real = out.decode("utf-8", "replace").strip().partition(" ")
    if code or tuple(map(int, filter(is_digits, version.split(".")))) < (3, 8):
        what = "Python " + version if version else one_line(err) or "exits %d" % code
        return [], (FAIL, "the interpreter %s is no Python from 3.8 on (%s), so no hook runs → %s"
                    % (paths[0], what, installer("--python PATH")))
    if paths[0] in shims:
        return words, (WARN, "%s is a version manager's shim: every hook waits for it, some 10 "
                       "times slower → %s" % (paths[0], installer("--python " + real)))
    return words, (OK, "interpreter %s: Python %s" % (paths[0], version))


def hook_argv(python: list, mode: str, agent: str, path: str) -> list:
    """What a registered command starts, without its shell."""
    return [*python, *START.partition(" -c ")[0].split(), "-c", LOADER, mode, agent, path,
            cache_folder(read_environment())]


def scratch_env(scratch: str, root: str) -> dict:
    """The environment of a hook in a scratch project: nothing of the user's own, no secret."""
    home, tmp = scratch + "/home", scratch + "/tmp"
    env = dict(read_environment(("PATH", "SYSTEMROOT", "LOCALAPPDATA")), HOME=home,
               USERPROFILE=home, TMPDIR=tmp, TEMP=tmp)
    env.update((row.project_variable or "PWD", root) for row in DIALECTS.values())
    return env


def _try_events(python: list, path: str, events: list, scratch: str) -> object:
    """Each event in a scratch project, timed against the bare interpreter: a line for each one that
    fails, and one for each client."""
    import os

    for name in ("/.context", "/tmp", "/home"):
        os.makedirs(scratch + name, exist_ok=True)
    with open(scratch + "/.context/TASKS.md", "wb") as out:
        out.write(b"# Tasks\n\n- a trial run\n")
    env, took = scratch_env(scratch, scratch), {}
    bare = [sys.executable, "-I", "-S", "-c", "pass"]
    for agent, event, mode in events:
        data = format_json({
            "session_id": "doctor", "cwd": scratch, "hook_event_name": event, "tool_name": "Read",
            "tool_input": {}, "tool_response": {}, "prompt": "doctor", "source": "startup"})
        argv, label = hook_argv(python, mode, agent, path), DIALECTS[agent].label
        pairs = [(run_timed(bare, b"", scratch, env)[0],  # in turn: the machine may be busy
                  run_timed(argv, data.encode(), scratch, env)) for _ in range(TRIAL_RUNS)]
        wrong = _problem_of(*pairs[0][1][1:])
        if wrong:
            yield FAIL, "%s, %s fails: %s → %s" % (label, event, wrong, installer("--force"))
        else:
            took.setdefault(label, []).append(
                (min(run[0] for _, run in pairs), min(floor_s for floor_s, _ in pairs)))
    for label, times in took.items():
        yield _judge_times(label, times)


def _problem_of(code: int, out: bytes, err: str) -> str:
    if code or err.strip():
        return "exits %d" % code if code else one_line(err.strip().split("\n")[-1])
    is_reply = not out.strip() or parse_object(out)
    return "" if is_reply else "prints something that is not JSON"


def _judge_times(label: str, times: list) -> tuple:
    """One line for all events of a client; times are (seconds of a run, of a bare interpreter)."""
    ms = sorted(took_s * 1000 for took_s, _ in times)
    ratios = sorted(max(took_s / floor_s, 1.0) if floor_s else 1.0 for took_s, floor_s in times)
    text = "%s: %d events run, %.0f to %.0f ms, %.1f to %.1f × a bare interpreter" % (
        label, len(times), ms[0], ms[-1], ratios[0], ratios[-1])
    if ratios[-1] <= SLOW_FACTOR:
        return OK, text
    return WARN, text + ": too slow → try again on an idle machine, and see the warnings above"


def run_timed(argv: list, data: bytes, cwd: "str | None", env: "dict | None",
              limit_s: float = TRIAL_LIMIT_S) -> tuple:
    """(seconds, exit code, stdout as bytes, stderr as text) of one run; one that hangs is ended
    with its children. The only place where a command of people's starts a process."""
    import subprocess

    start = time.perf_counter()
    try:
        with subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=-1, cwd=cwd, env=env,
                              start_new_session=IS_POSIX) as child:
            try:
                out, err = child.communicate(data, timeout=limit_s)
            except subprocess.TimeoutExpired as late:
                out, err = late.output or b"", b"no end after %d s" % limit_s
            finally:
                if child.poll() is None:
                    end_group(child)
    except (OSError, ValueError) as error:
        return 0.0, 127, b"", str(error)
    return time.perf_counter() - start, child.returncode, out, err.decode("utf-8", "replace")


# --- the project


def check_project(ctx: Ctx) -> object:
    """Settings, state that was set aside, the workflow, folders, the ignore list, the files."""
    yield from check_settings(ctx)
    aside, errors = ctx.path("state", "aside"), ctx.path("state", "errors.log")
    kept = len(list_dir(aside))
    if kept:
        yield WARN, "unreadable files were set aside (%d) → see %s, then empty it" % (kept, aside)
    if is_file(errors):
        yield WARN, "internal errors were logged → see %s, then remove it" % errors
    yield from _check_workflow(ctx)
    for folder in (ctx.dir, ctx.path("state"), ctx.path("signals")):
        if is_dir(folder) and not is_writable(folder):
            yield FAIL, "%s cannot be written, so nothing is remembered → check its owner" % folder
    ignored = (read_bytes(ctx.path(".gitignore")) or b"").decode("utf-8", "replace").split()
    missing = [line for line in GITIGNORE_TEXT.split("\n")[1:-2] if line not in ignored]
    if ignored and missing and "*" not in ignored:
        yield WARN, "git would take up our runtime files → add to %s: %s" % (
            ctx.path(".gitignore"), " ".join(missing))
    names = silent_files(ctx) or list(ctx.get("gate.files"))[:2]
    if ctx.get("gate.mode") != "off" and not gate_files(ctx):
        yield HINT, "no context file says anything, so the gate is silent → fill in " + ", ".join(
            shown_path(ctx, join_path(ctx.dir, name), "") for name in names)


def check_settings(ctx: Ctx) -> object:
    user_file = user_config_path(ctx.env)
    for file, problems in ((CONFIG_NAME, ctx.problems),
                           (user_file, read_config(user_file, is_user=True)[1])):
        for problem in problems:
            yield WARN, "%s line %d, column %d: %s → it is ignored; what can be set: %s" % (
                file, *problem, own_command("config"))


def silent_files(ctx: Ctx) -> list:
    """The listed context files that are there and say nothing yet."""
    return [name for name in ctx.get("gate.files") if is_file(join_path(ctx.dir, name))
            and not is_telling_file(ctx, join_path(ctx.dir, name))]


def _check_workflow(ctx: Ctx) -> object:
    ways = "%s goes on with it, %s ends it" % (own_command("auto resume"), own_command("auto stop"))
    flow = read_workflow(ctx)
    if load_json(auto_path(ctx)) is None:
        yield WARN, "%s is not a JSON object, so no workflow runs → begin anew: %s" % (
            AUTO_STATE, own_command("auto start TASK --force"))
    elif is_inert(ctx, flow):
        yield WARN, "the workflow was not started on this machine, so it is inert → " + ways
    elif is_active(flow) and is_stale(ctx, flow):
        yield WARN, "the workflow has been idle for over 2 hours → " + ways


def is_inert(ctx: Ctx, flow: Record) -> bool:
    """It says that it runs, but nobody meant it on this machine: it holds no session."""
    session = safe_name(flow.session_id)
    is_known = bool(session) and is_file(session_file(ctx, session))
    return is_active(flow) and not is_known and not is_meant_here(ctx, flow, "")


def client_active_at(root: str, env: dict) -> float:
    """When Claude Code last wrote a transcript of this project; 0.0 when never."""
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in root)
    folder = client_home(env) + "/projects/" + name
    infos = [stat_of(folder + "/" + file) for file in list_dir(folder) if file.endswith(".jsonl")]
    return max([info.st_mtime for info in infos if info] + [0.0])


def settings_snippet() -> str:
    """The registrations for somebody who only dropped the file into .claude/hooks/."""
    import json

    form = (plan_hooks("claude", "python3", kit_path("claude")) if IS_POSIX else plan_hooks(
        "claude", "py -3", "CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py", format_windows))
    return json.dumps({"hooks": form}, indent=2)

# =============================================================================
# View
# =============================================================================
# From data to text. A page is a list of lines; a line is a text, or a list of (style, text) parts
# that is cut to the width. format_page is the only way to a terminal: it strips what could move a
# cursor or paint, then cuts, then paints. Without UTF-8 our glyphs become ASCII.
STYLES = {"bold": "1", "dim": "2", "bad": "31", "good": "32", "warn": "33"}
TO_ASCII = dict(zip(map(ord, "█░✓●○·…→–—✗×"), "#.+*-|~>--xx"))
PAGE_WIDTH = 100  # of a pipe without COLUMNS, and of a terminal that does not know
DECISIONS = {  # what was done → by which rule
    "alert:emitted": "wrote the signal {code}: {summary} → its level was crossed, or it is time",
    "signals:delivered": "told the agent {names} → pending signals go out with the next event",
    "gate:emitted": "asked the agent to read {files} → first tool since a start or a compaction",
    "handoff:crossed": "saw the context reach {percent}% → from here on a handoff is wanted",
    "handoff:reminded": "asked for the handoff at {percent}% → there is none since the crossing",
    "handoff:complete": "stopped asking for the handoff → {path} is there, by: {by}",
    "handoff:mechanical": "made a handoff from the transcript → the agent left none",
    "stop:held": "kept the agent going: phase {phase}, iteration {iteration} → {reason}",
    "stop:released": "let the agent stop: phase {phase} → {reason}",
    "auto:started": "started the workflow in phase {phase} → somebody ran `auto start`",
    "auto:resumed": "took up the workflow in phase {phase} → somebody ran `auto resume`",
    "auto:briefed": "told the agent its phase and task → first prompt, /clear or a compaction",
    "auto:cancelled": "ended the workflow → {reason}",
    "injection:attempted": "sent the startup context, attempt {attempt} → {type}, no evidence yet",
    "injection:succeeded": "stopped sending the startup context → {evidence} at attempt {attempts}",
    "injection:escalated": "wrote the startup context into {file} → no evidence that it arrived",
    "injection:failed": "gave up on the startup context after attempt {attempts} → {reason}",
    "injection:section-removed": "took our section out of {file} → it arrived, or is too old",
    "session:ended": "removed the session's files after {calls} calls → it ended: {reason}",
    "wrap:ready": "found the program ready for the startup context → confidence {confidence}",
    "wrap:timeout": "typed nothing → the program was not ready within {waitedMs} ms",
    "wrap:submitted": "pressed Enter → the program showed what was typed",
    "wrap:stuck": "pressed no Enter → the program did not show what was typed",
    "wrap:ended": "delivered nothing → {reason}",
}
REASONS = {"held": "its completion block is missing",
           "advanced": "the phase before is complete, this one is next"}
ATTENTION = {  # what is said to the agent: event -> mechanism
    "injection:attempted": "startup", "gate:emitted": "gate", "handoff:reminded": "handoff",
    "signals:delivered": "signals", "stop:held": "auto", "auto:briefed": "auto"}
WRITERS = {"agent": "by the agent", "printed": "as the agent printed it",
           "mechanical": "by the kit, from the transcript"}


# --- the terminal


def read_look(bar: bool = False) -> Record:
    """Width, colour and glyphs by the usual variables; a pipe gets plain text, but the client
    paints its bar."""
    env = read_environment(("NO_COLOR", "COLUMNS", "TERM", "LC_ALL", "LC_CTYPE", "LANG"))
    width, is_terminal = int(env["COLUMNS"]) if is_digits(env.get("COLUMNS", "")) else 0, False
    try:
        width = width or _os.get_terminal_size(1).columns
        is_terminal = _os.isatty(1)
    except OSError:
        pass  # on Windows NUL passes for a terminal until it is asked for its size
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    colour = (bar or is_terminal) and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
    return Record(width=max(20, width or PAGE_WIDTH), colour=colour,
                  unicode=not IS_POSIX or "utf" in locale.lower())


def show(*page: object, look: "Record | None" = None, before: str = "") -> None:
    """Print lines for a person; `before` moves the cursor."""
    if sys.stdout is not None:  # None: it was closed before the start
        sys.stdout.write(before + format_page(page, look or read_look()) + "\n")
        sys.stdout.flush()


def format_page(page: object, look: Record) -> str:
    """A text as it is, parts cut to the width; both without control characters."""
    lines = []
    for line in page:
        shown, left = "", look.width
        for style, text in [("", line)] if isinstance(line, str) else line:
            text = for_terminal(text)
            if not isinstance(line, str):
                text = fit_text(text.replace("\n", " ").replace("\t", " "), left)
                left -= cells(text)
            text = text if look.unicode else text.translate(TO_ASCII)
            is_painted = style and look.colour and text
            shown += "\033[%sm%s\033[0m" % (STYLES[style], text) if is_painted else text
        lines.append(shown.rstrip(" "))
    return "\n".join(lines)


def cells(text: str) -> int:
    """Width on a terminal: wide characters take two cells, combining marks none."""
    if all(c < "\u0300" or "\u2010" <= c <= "\u25ff" for c in text):  # our own glyphs too
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(0 if category(c) in ("Mn", "Me", "Cf", "Cc") else
               2 if east_asian_width(c) in "WF" else 1 for c in text)


def fit_text(text: str, width: int) -> str:
    if cells(text) <= width:
        return text
    text = text[: max(0, width)]
    while text and cells(text) > width - 1:
        text = text[:-1]
    return text.rstrip() + "…" if width > 0 else ""


def wrap_lines(text: str, head: str, look: Record, style: str = "") -> list:
    """The text behind the head, wrapped instead of cut; further lines are indented below it."""
    import textwrap

    room = max(20, look.width - cells(head))
    lines = textwrap.wrap(for_terminal(text), room, break_on_hyphens=False) or [""]
    heads = [head] + [" " * cells(head)] * (len(lines) - 1)
    return [[(style, start), ("", line)] for start, line in zip(heads, lines)]


# --- figures


def format_bar(percent: int, width: int) -> str:
    full = min(width, max(percent * width // 100, 1 if percent else 0))
    return "█" * full + "░" * (width - full)


def format_age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return "%d%s" % (seconds // size, unit)
    return "%ds" % max(0, seconds)


def format_ago(iso: object, now: float) -> str:
    return format_age(now - (parse_iso(iso) or now)) + " ago"


def format_clock(iso: object) -> str:
    """Local time for a person; another day than today comes with its date."""
    at = time.localtime(parse_iso(iso) or 0)
    is_today = at[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", at)


def plural(count: int, word: str) -> str:
    return "%d %s%s" % (count, word, "" if count == 1 else "s")


def level_style(percent: int) -> str:
    return "bad" if percent >= 85 else "warn" if percent >= 70 else "good"


def label_of(agent: str) -> str:
    return DIALECTS[agent].label if agent in DIALECTS else agent


# --- pages


def render_status(data: dict, look: Record) -> list:
    """The page that `status` shows, from the object that `status --json` prints."""
    now, seen_at = parse_iso(data["at"]) or 0.0, data["hooks_seen_at"]
    seen = "hooks seen " + format_ago(seen_at, now) if seen_at else "no hook ran yet"
    head = [("bold", "ctx_hooks " + data["version"]), ("dim", " · %s · %s" % (seen, data["root"]))]
    page = [head] if seen_at else [
        head, "start the agent here; whether the hooks are registered: " + data["doctor"]]
    for session, until in data["paused"].items():
        left = "until `resume`" if until is None else "until " + format_clock(until)
        whom = "every session" if session == "*" else session[:8]
        page.append([("warn", "paused: %s, %s" % (whom, left))])
    for session in data["sessions"]:
        page += [""] + render_session(session, look, now)
    page += _section("handoffs", [_handoff_line(row, now) for row in data["handoffs"]])
    page += _section("signals", [_signal_line(signal) for signal in data["signals"]])
    if data["auto"]:
        page += ["", [("dim", "auto      "), ("", phase_line(data["auto"], look.width - 10))],
                 [("", "          " + auto_word(data["auto"])),
                  ("dim", " · " + data["auto"]["task_description"])]]
    sent = "{attempted} sent, {succeededOnFirstTry} arrived at once, {failed} failed"
    rows = [("said", _attention_text(data["attention"])), ("fill in", ", ".join(data["fill_in"])),
            ("startup", sent.format(**data["metrics"]) if data["metrics"]["attempted"] else "")]
    lines = [part for head, text in rows if text for part in wrap_lines(text, "%-10s" % head, look)]
    page += [""] + lines if lines else []
    problems = [part for text in data["problems"] for part in wrap_lines(text, "  ✗ ", look)]
    return page + _section("problems", problems)


def _section(title: str, lines: list) -> list:
    return ["", [("bold", title)], *lines] if lines else []


def render_session(data: dict, look: Record, now: float) -> list:
    """The block of one session: a row for each mechanism."""
    context, handoff, startup, gate = map(data.get, ("context", "handoff", "startup", "gate"))
    head = " · ".join(("", label_of(data["agent"]), format_ago(data["seen_at"], now),
                       plural(data["tool_calls"], "call"), data["model"] or "model unknown"))
    measured, asked, arrived = "not measured yet", handoff["state"], "nothing to deliver"
    if context:
        bar = format_bar(context["percent"], min(40, max(8, look.width - 54)))
        measured = "{} {shown}  {tokens:,}/{window:,} {kind}, {}".format(
            bar, format_ago(context["at"], now), **context)
    if asked == "asked":
        age = format_age(now - (parse_iso(handoff["since"]) or now))
        asked += ", %s in %s: %s" % (plural(handoff["reminders"], "reminder"), age, handoff["file"])
    if startup:
        arrived = "%s, %s, %s" % (startup["outcome"], plural(startup["attempts"], "attempt"),
                                  startup["evidence"] or "no evidence yet")
    unread = [name for name in gate["files"] if name not in gate["read"]]
    read = "%s%d of %d files read%s" % (
        "" if gate["fired"] else "not asked yet, ", len(gate["files"]) - len(unread),
        len(gate["files"]), ", not: " + ", ".join(unread) if unread else "")
    if gate["mode"] == "off" or not gate["files"]:
        read = "switched off" if gate["mode"] == "off" else "no context file says anything"
    styles = {"asked": "bad", "written": "good", "delivered": "good", "failed": "bad"}
    return [[("bold", "session " + data["session"][:8]), ("dim", head)]] + [
        [("dim", "  %-9s" % name), (style, text)] for name, style, text in (
            ("context", level_style(context["percent"]) if context else "dim", measured),
            ("handoff", styles.get(handoff["state"], "dim"), asked),
            ("gate", "warn" if gate["fired"] and unread else "dim", read),
            ("startup", styles.get(startup["outcome"], "") if startup else "dim", arrived))]


def _handoff_line(row: dict, now: float) -> list:
    """Who wrote what when, to whom it went, with what evidence."""
    text, style = "asked for " + format_ago(row["asked_at"], now), "warn"
    if row["written_at"]:
        text, style = "written %s %s → " % (
            format_ago(row["written_at"], now), WRITERS.get(row["by"], "by " + row["by"])), "good"
        text += "waits for the next session" if not row["delivered_to"] else "to %s %s, %s" % (
            row["delivered_to"][:8], format_ago(row["delivered_at"], now),
            row["evidence"] or "no evidence yet")
    return [("dim", "  %-9s " % row["session"][:8]), (style, text),
            ("dim", " · %s · %s" % (label_of(row["agent"]), row["file"]))]


def _signal_line(signal: dict) -> list:
    style = {"critical": "bad", "warning": "warn"}.get(signal["severity"], "dim")
    return [(style, "  %-9s%s old, %s left, %s  " % (
        signal["severity"], format_age(signal["age_s"]), format_age(signal["left_s"]),
        signal["session"][:8] or "every session")), ("", signal["text"])]


def _attention_text(data: dict) -> str:
    calls = data["calls"]
    parts = ["%s %d in %.1f" % (name, row["chars"] * 100 // calls, row["messages"] * 100 / calls)
             for name, row in data["by"].items()] if calls else []
    return "characters in messages per 100 tool calls (of %d): %s" % (
        calls, " · ".join(parts)) if parts else ""


def phase_line(flow: dict, width: int = 1000) -> str:
    """`expansion ✓ init ✓ planning ● execution ○ …`, `✓✓●○… planning` where that is too long."""
    phases, is_failed = flow["phases"], flow["phase"] == "failed"
    phase = flow["last_phase" if is_failed else "phase"]
    at = len(phases) if phase == "complete" else phases.index(phase) if phase in phases else 0
    marks = (["✓"] * at + ["✗" if is_failed else "●"] + ["○"] * len(phases))[:len(phases)]
    line = " ".join("%s %s" % pair for pair in zip(phases, marks))
    return line if len(line) <= width else "%s %s" % ("".join(marks), phase[:20])


def auto_word(flow: dict) -> str:
    if flow["inert"]:
        return "inert: not started on this machine, it holds nobody"
    if not flow["active"]:
        return "ended (%s)" % flow["exit_reason"]
    if flow["needs"]:
        return "waits for you: " + flow["needs"]
    bound = "session " + flow["session_id"][:8] if flow["session_id"] else "not bound yet"
    return "iteration %d/%d, %s" % (flow["iteration"], flow["max_iterations"], bound)


def render_workflow(flow: dict, look: Record) -> list:
    """`auto status`: what happened so far, with times, attempts and checks."""
    page = [phase_line(flow, look.width), auto_word(flow), "task: " + flow["task_description"]]
    page += ["last error: " + flow["last_error"]] if flow["last_error"] else []
    page += ["%s: %s to %s, %s%s" % (
        step["phase"], format_clock(step["started_at"]),
        format_clock(step["ended_at"]) if step["ended_at"] else "now",
        plural(step["attempts"], "attempt"), "; check " + step["check"] if step["check"] else "")
        for step in flow["steps"]]
    page += ["check of {phase}: `{command}`, ".format(**check) + (
        "you agreed to it" if check["agreed"] else
        "nobody agreed to it, so it does not run → " + own_command("auto resume"))
        for check in flow["checks"]]
    return [part for line in page for part in wrap_lines(line, "", look)]


def render_statusline(data: dict, look: Record) -> list:
    """One line; a narrow one has no model, no bar and no tokens left."""
    is_wide, percent, parts = look.width >= 80, data["percent"], []
    if is_wide or percent is None:
        parts.append(("", data["model"]))
    if percent is not None:
        meter = "%s %d%% of the window" % (format_bar(percent, 10), percent)
        near = ", compaction near" if data["near"] else ""
        parts.append((level_style(percent), (meter if is_wide else "%d%%" % percent) + near))
        parts.append(("dim", "%dk left" % (data["left"] // 1000) if is_wide else ""))
    parts += [("good", data["phase"]), ("warn", data["pending"])]
    shown = [part for part in parts if part[1]] or [("dim", "ctx")]
    return [part for pair in shown for part in (("dim", " · "), pair)][1:]


def render_decision(row: dict, look: Record) -> list:
    """A row of the recorder as a sentence: when, which session, what, and the rule behind it."""
    values = {key: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
              for key, value in row.items()}
    known = ("at", "session", "mode", "agent", "event")
    values["others"] = ", ".join("%s %s" % pair for pair in values.items() if pair[0] not in known)
    reason = values.get("reason", "")
    told = REASONS.get(reason) or STOP_MESSAGES.get(reason, reason).replace("ctx auto: ", "")
    if "check" in values:
        told = ("" if reason == "held" else told.rstrip(".") + "; ") + "its check {check}"
    values["reason"] = _fill(told, values)
    text = _fill(DECISIONS.get(values.get("event"), "{event} → {others}"), values)
    head = "%s  %-8s  " % (format_clock(row.get("at")), values.get("session", "")[:8])
    return wrap_lines(text[:2000], for_terminal(head), look)


def _fill(template: str, values: dict) -> str:
    """`{name}` by its value, ? for one that is not there; what a value holds is not filled in."""
    first, *rest = template.split("{")
    parts = [piece.partition("}") for piece in rest]
    return first + "".join(values.get(name, "?") + after for name, _, after in parts)


def render_replay(result: dict, index: int, look: Record) -> list:
    """One replayed event: what it was, how long it took, and what the kit said."""
    reply = dict_of(result["reply"])
    texts = [dict_of(reply.get("hookSpecificOutput")).get("additionalContext"), reply.get("reason"),
             reply.get("systemMessage"), "✗ " + result["error"] if result["error"] else ""]
    said = [line for text in texts if text_of(text) for line in text.split("\n")]
    took = "%.0f ms%s" % (result["ms"], "" if said else ", silent")
    head = "%-14s%s" % (result["mode"], took if result["mode"] else "not an event of this kit")
    page = [[("bold", "%3d  %-20s" % (index, result["event"][:20])), ("dim", head)]]
    return page + [part for line in said for part in wrap_lines(line, "     ", look)]


# --- how a command begins: its words, its project, its failure
# The usage line is all that is known about a command's words, to the help, to the completion and
# to parse_words: [--flag], [--option VALUE], [one | or the other], WORD, [WORD], WORD…
COMMANDS = {
    "status": ("[--session ID] [--json | --watch]",
               "Show sessions, handoffs, signals, the workflow and problems."),
    "context": ("[--session ID] [--json]", "How full the context is, for scripts."),
    "why": ("[N] [--json]", "The last decisions, explained."),
    "config": ("[--json]", "Every setting, its value and where it comes from."),
    "signal": ("SUMMARY [--action TEXT] [--severity info|warning|critical] [--ttl SECONDS] "
               "[--code CODE] [--auditor NAME] [--name NAME] [--session ID | --global]",
               "Tell the agent something with its next tool result or prompt; SUMMARY - is stdin."),
    "auto": ("start|status|resume|stop [TASK] [--until CMD] [--phase PHASE] [--skip PHASE…] "
             "[--skip-expansion] [--skip-qa] [--skip-review] [--skip-reflect] [--any] "
             "[--session ID] [--max-iterations N] [--agree] [--force] [--json]",
             "Keep the agent going until a task is done: start, show, take up or stop that."),
    "pause": ("[--for 30m] [--session ID]", "Silence the hooks for a while, or until `resume`."),
    "resume": ("[--session ID]", "End a pause."),
    "statusline": ("[--only] [-- CMD…]", "A line for the client's status bar, below your own."),
    "replay": ("FILE… [--agent NAME] [--json]",
               "Run recorded hook events through the kit, in a scratch copy; FILE - is stdin."),
    "wrap": ("[--context FILE] [--agent NAME] [--timeout S] -- CMD…",
             "Run an agent that has no hooks, and type the last handoff into it."),
    "doctor": ("[--json]", "Check everything that can keep the hooks from working."),
    "completion": ("bash|zsh|fish", "Completion of these words for the launcher `ctx`."),
}
EXAMPLES = {
    "auto": 'auto start "Add a login page" --until "make test"', "wrap": "wrap -- aider",
    "signal": 'signal "CI: 3 tests fail" --action "Look at the log" --severity critical',
    "statusline": "statusline -- ~/.claude/my-line.sh", "replay": "replay events.jsonl",
    "completion": "completion bash",
}
OPTIONS = {  # those that do not explain themselves
    "--until": "it is done only when this command exits 0, which you agree to by typing it",
    "--agree": "you agree to the check commands that .contextrc names",
    "--any": "bind to the next session that prompts, also where no person types",
    "--skip": "leave this phase out; may be repeated",
    "--force": "replace a workflow that is active or unreadable",
    "--ttl": "seconds after which the signal is void (300)",
    "--code": "of signals with the same code and auditor only the newest is told",
    "--only": "your own line alone, ours only without it",
    "--context": "a text to type instead of the last handoff",
}


class CommandError(Exception):
    """A sentence for the person and what to do about it; 2 is wrong usage."""

    def __init__(self, text: str, hint: str, code: int = 1) -> None:
        super().__init__(text)
        self.hint, self.code = hint, code


def wrong_usage(word: str, text: str) -> CommandError:
    return CommandError(text, own_command(word + " --help"), 2)


def parse_usage(usage: str) -> list:
    """Groups of (name, kind of its value, is it optional), of which only one may be given; the name
    of a plain word is its kind."""
    groups = []
    pieces = usage.replace("-- CMD…", "").replace("[", "\n[").replace("]", "\n").split("\n")
    for piece in pieces:
        if piece[:1] == "[":
            parts = [part.partition(" ") for part in piece[1:].split(" | ") if part]
            groups.append([(name, kind, True) for name, _, kind in parts])
        else:
            groups += [[(name, "", False)] for name in piece.split()]
    return [group for group in groups if group]


def parse_words(word: str, args: list) -> Record:
    """What was given, by the command's usage line: its options by name ("" when missing), `words`,
    and `rest`, what stands behind --."""
    cut = args.index("--") if "--" in args else len(args)
    own, words, groups = args[:cut], [], parse_usage(COMMANDS[word][0])
    kinds = {name: kind for group in groups for name, kind, _ in group if name[:2] == "--"}
    given = {name: [] if kind.endswith("…") else "" for name, kind in kinds.items()}
    while own:
        name, equals, value = own.pop(0).partition("=")
        if name in ("--help", "-h"):
            show("usage: ctx_hooks.py %s %s" % (word, COMMANDS[word][0]), "", COMMANDS[word][1],
                 *["  %-10s %s" % (name, OPTIONS[name]) for name in kinds if name in OPTIONS], "",
                 "example: " + own_command(EXAMPLES.get(word, word)))
            raise SystemExit(0)
        if name[:2] != "--":
            words.append(name + equals + value)
            continue
        if name not in kinds:
            near = near_word(name, kinds)
            hint = ", did you mean %s?" % near if near else ""
            raise wrong_usage(word, "unknown option %s%s" % (name, hint))
        if equals and not kinds[name] or kinds[name] and not (equals or own):
            raise wrong_usage(word, name + (" takes no value" if equals else " needs a value"))
        value = value if equals else own.pop(0) if kinds[name] else "yes"
        _check_kind(word, name, kinds[name], value)
        given[name] = given[name] + [value] if isinstance(given[name], list) else value
    for names in ([name for name, _, _ in group if given.get(name)] for group in groups):
        if len(names) > 1:
            raise wrong_usage(word, "%s and %s exclude each other" % (names[0], names[1]))
    places = [group[0] for group in groups if group[0][0][:2] != "--"]
    needed = [kind for kind, _, is_optional in places if not is_optional]
    if len(words) < len(needed):
        raise wrong_usage(word, "%s is missing" % needed[len(words)])
    if len(words) > len(places) and "…" not in "".join(needed):
        raise wrong_usage(word, "one word too many: " + words[len(places)])
    for text, (kind, _, _) in zip(words, places):
        _check_kind(word, text, kind, text)
    named = {name[2:].replace("-", "_"): value for name, value in given.items()}
    return Record(words=words, rest=args[cut + 1:], **named)


def _check_kind(word: str, name: str, kind: str, value: str) -> None:
    choices = kind.split("|")
    if len(choices) > 1 and value not in choices:
        near = near_word(value, choices)
        raise wrong_usage(word, "%s: %s" % (name, (
            "did you mean %s?" % near if near else "use one of " + ", ".join(choices))))
    if kind in ("N", "S", "SECONDS") and not is_digits(value):
        raise wrong_usage(word, "%s wants a number" % name)


def people_ctx(needed: bool = True) -> "Ctx | None":
    """The project that the person stands in; without one None, or an error when it is needed."""
    env = read_environment()
    try:
        cwd = slashed(_os.getcwd())
    except OSError:
        raise CommandError("the current folder is gone", "cd into your project") from None
    ctx = find_project(cwd, cwd, env)
    if ctx:
        set_run(ctx, env, time.time())
        ctx.mode, ctx.session = "command", safe_name(env.get("CLAUDE_CODE_SESSION_ID", ""))
    elif needed and is_dir(join_path(cwd, DEFAULT_CONTEXT_DIR)):
        raise CommandError(DEFAULT_CONTEXT_DIR + " is not used: it is, or holds, a link that leads "
                           "out of the project", "ls -l " + DEFAULT_CONTEXT_DIR)
    elif needed:
        raise CommandError("no %s folder here or in a parent folder" % DEFAULT_CONTEXT_DIR,
                           "mkdir " + DEFAULT_CONTEXT_DIR)
    return ctx

# =============================================================================
# Screen
# =============================================================================
# What a person would see of a program in a terminal, and from that, from the terminal's settings
# and from what the kernel says, one judgement: is it waiting for a line of text? Doubt counts as
# no. Only Screen.feed and read_process are not pure.
SCREEN_SIZE = (24, 80)  # rows, columns, where nobody has a terminal
SCREEN_KEPT_LINES = 400  # lines that have scrolled off
SCREEN_CUT_CHARS = 64 * 1024  # of a control sequence that never ends
ALTERNATE_MODES = frozenset(("47", "1047", "1049"))
PASTE_MODE, CURSOR_MODE, KITTY_MODE = "2004", "25", "kitty"
LEFT_ON_MODES = ("1", "9", "1000", "1002", "1003", "1004", "1005", "1006", "1007", "1015", "1016",
                 PASTE_MODE, "2026", "2031")
ESCAPES = (r"\x1b\[([<-?]?)([0-9:;]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
           r"|\x1b[ -/]*([0-~])")
_TOKENS = ESCAPES + r"|([^\x00-\x1f\x7f]+)|([\x00-\x1f\x7f])"
_CUT_TOKEN = r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z"


class Screen:
    """Lines, cursor and private modes after the output so far; enough to read, not to draw."""

    def __init__(self, size: tuple = SCREEN_SIZE) -> None:
        import codecs

        self.rows, self.columns = size
        self.modes, self.gone, self.behind = {CURSOR_MODE}, [], None
        self._decode, self._rest = codecs.getincrementaldecoder("utf-8")("replace").decode, ""
        self._clear()

    def _clear(self) -> None:
        self.grid = [self._blank() for _ in range(self.rows)]
        self.y = self.x = 0  # x == columns: the next letter begins a new line
        self.saved, self.top, self.bottom = (0, 0), 0, self.rows - 1

    def _blank(self) -> list:
        return [" "] * self.columns

    def resize(self, size: tuple) -> None:
        self.rows, self.columns = max(1, size[0]), max(2, size[1])
        over = max(0, self.y + 1 - self.rows)  # the cursor's line stays
        for row in self.grid:
            row[self.columns:] = [" "] * (self.columns - len(row))
        self.grid = (self.grid[over:] + [self._blank() for _ in range(self.rows)])[:self.rows]
        self.y, self.x = self.y - over, min(self.x, self.columns)
        self.top, self.bottom, self.behind = 0, self.rows - 1, None

    def lines(self) -> list:
        return ["".join(row).rstrip() for row in self.grid]

    def before_cursor(self) -> str:
        return "".join(self.grid[self.y][:self.x])

    def is_alternate(self) -> bool:
        return not self.modes.isdisjoint(ALTERNATE_MODES)

    def feed(self, data: bytes) -> None:
        """Take output in; what is cut off at its end waits for the rest."""
        import re

        text = self._rest + self._decode(data)
        cut = re.search(_CUT_TOKEN, text[-SCREEN_CUT_CHARS:])
        end = len(text) - len(cut[0]) if cut else len(text)
        self._rest = text[end:]
        for private, numbers, final, escape, shown, control in re.findall(_TOKENS, text[:end]):
            if shown:
                self._write(shown)
            elif final:
                values = [int(n) if n.isdigit() else 0 for n in numbers[:40].split(";")]
                self._control(private, [min(n, 9999) for n in values] + [0], final)
            else:
                self._escape(escape or control)

    def _write(self, text: str) -> None:
        left = list(text)
        if not text.isascii():  # a wide character takes two places, a mark none
            left = [place for char in text for place in (char, "")[:cells(char)]]
        while left:
            room = self.columns - self.x
            part = left[:room - (left[room:room + 1] == [""])]  # a wide one is not cut in two
            if not part:
                self._escape("E")
            self.grid[self.y][self.x:self.x + len(part)] = part
            self.x += len(part)
            del left[:len(part)]

    def _escape(self, letter: str) -> None:
        """A control character, or the letter of a short escape sequence."""
        if letter in ("\r", "E"):
            self.x = 0
        if letter in ("\n", "\v", "\f", "D", "E"):
            if self.y == self.bottom:
                self._scroll(self.top, 1)
            else:
                self.y = min(self.rows - 1, self.y + 1)
        elif letter == "M":
            if self.y == self.top:
                self._scroll(self.top, -1)
            else:
                self.y = max(0, self.y - 1)
        elif letter == "\b":
            self.x = max(0, min(self.x, self.columns - 1) - 1)
        elif letter == "\t":
            self.x = min(self.columns - 1, self.x // 8 * 8 + 8)
        elif letter == "7":
            self.saved = (self.y, self.x)
        elif letter == "8":
            self.y, self.x = min(self.saved[0], self.rows - 1), min(self.saved[1], self.columns)
        elif letter == "c":
            self.modes = {CURSOR_MODE}
            self._clear()

    def _scroll(self, top: int, count: int) -> None:
        """The lines from `top` to the region's end move up by `count`, down when it is negative."""
        for _ in range(min(abs(count), self.rows)):
            line = self.grid.pop(top if count > 0 else self.bottom)
            self.grid.insert(self.bottom if count > 0 else top, self._blank())
            if count > 0 and top == 0 and not self.is_alternate():
                self.gone.append("".join(line).rstrip())
                del self.gone[:-SCREEN_KEPT_LINES]

    def _control(self, private: str, values: list, final: str) -> None:
        count = max(1, values[0])
        if private:
            self._switch(private, {str(value) for value in values[:-1]}, final)
        elif final in "ABCDEFGHdf":
            self._move(count, max(1, values[1]), final)
        elif final in "JK":
            self._erase(values[0], final)
        elif final in "LM" and self.top <= self.y <= self.bottom:
            self._scroll(self.y, count if final == "M" else -count)
        elif final in "ST":
            self._scroll(self.top, count if final == "S" else -count)
        elif final in "@PX":
            row, x = self.grid[self.y], min(self.x, self.columns - 1)
            blanks, tail = [" "] * min(count, self.columns - x), row[x:]
            kept = tail if final == "@" else tail[len(blanks):]
            row[x:] = (kept + blanks if final == "P" else blanks + kept)[:self.columns - x]
        elif final == "r" and count <= (values[1] or self.rows) <= self.rows:
            self.top, self.bottom, self.y, self.x = count - 1, (values[1] or self.rows) - 1, 0, 0
        elif final in "su":
            self._escape("7" if final == "s" else "8")

    def _switch(self, private: str, names: set, final: str) -> None:
        was = self.is_alternate()
        if final == "u" and private in "<>":  # the keyboard protocol is pushed and popped
            self.modes = self.modes | {KITTY_MODE} if private == ">" else self.modes - {KITTY_MODE}
        elif private == "?" and final in "hl":
            self.modes = self.modes | names if final == "h" else self.modes - names
        if self.is_alternate() and not was:
            self.behind = (self.grid, self.y, self.x)
            self._clear()
        elif was and not self.is_alternate():
            grid, y, x = self.behind or (self.grid, self.y, self.x)
            self._clear()
            self.grid, self.y, self.x, self.behind = grid, y, x, None

    def _move(self, n: int, column: int, final: str) -> None:
        x, y = min(self.x, self.columns - 1), self.y
        y, x = {"A": (y - n, x), "B": (y + n, x), "C": (y, x + n), "D": (y, x - n),
                "E": (y + n, 0), "F": (y - n, 0), "G": (y, n - 1), "d": (n - 1, x),
                "H": (n - 1, column - 1), "f": (n - 1, column - 1)}[final]
        self.y, self.x = min(max(0, y), self.rows - 1), min(max(0, x), self.columns - 1)

    def _erase(self, how: int, final: str) -> None:
        first, last = (self.x, self.columns) if how == 0 else (0, self.columns)
        last = min(self.x + 1, last) if how == 1 else last
        self.grid[self.y][first:last] = [" "] * (last - first)
        others = range(self.y + 1, self.rows) if how == 0 else range(self.y)
        for y in (others if how < 2 else range(self.rows)) if final == "J" else ():
            self.grid[y] = self._blank()


def format_restore(modes: set) -> bytes:
    """What switches off again what a program left on: mouse, paste, the other screen, no cursor."""
    off = [mode for mode in LEFT_ON_MODES if mode in modes]
    off += ["1049"] if not modes.isdisjoint(ALTERNATE_MODES) else []
    text = "".join("\x1b[?%sl" % mode for mode in off)
    text += "\x1b[<u" if KITTY_MODE in modes else ""
    text += "" if CURSOR_MODE in modes else "\x1b[?25h"
    return (text + "\x1b[0m").encode() if text else b""


# --- what stands on it. A glance is what is known of a program at one moment: process (its
# confidence, None where the kernel does not tell), programs (command lines that hold the terminal),
# silent_ms, gone and lines (scrolled off, on the screen), row and before (the cursor's, and its
# line up to it), raw, hidden (lines without echo), paste, alternate, typing (the person has a
# half-typed line), ended.

DIALOG_LINES = 16  # at the screen's end
SHELLS = frozenset("sh bash dash zsh fish ksh mksh ash csh tcsh nu pwsh xonsh elvish".split())
EDITORS = frozenset("vi vim nvim view ex ed nano pico emacs micro hx helix kak joe mcedit less "
                    "more most man".split())  # and pagers
_CHOSEN = r"^[\s│┃|]*[❯›▶►➤→●◉◆>*]\s*(?=\S)"
_NUMBERED = r"^[\s│┃|]*(?:[❯›▶►➤→●◉◆>*]\s*)?\d{1,2}[.)]\s+\S"
_ANSWER = (r"(?i)^[\s│┃|]*(?:[❯›▶►➤→●○◉◆>*]\s*)?(?:\d{1,2}[.)]\s+)?(?:\[.\]\s*)?(?:yes|no|allow"
           r"|deny|approve|reject|accept|decline|trust|don'?t trust|cancel|proceed|skip|abort)\b"
           r".{0,90}$")
_TO_CONFIRM = (r"(?i)\b(?:enter|return)\b.{0,14}\b(?:confirm|select|continue|choose|accept|approve|"
               r"proceed|trust|exit|retry)\b|[⏎↵]\s*(?:confirm|select)|arrow keys"
               r"|press (?:any key|enter|return)|\besc(?:ape)? to (?:cancel|go back|reject|skip)")
_AT_WORK = r"(?i)\besc(?:ape)? to (?:interrupt|stop)\b|\(esc to cancel, \d+"
_ASKED = (r"(?i)[\[(]\s*y(?:es)?\s*[/|,]\s*n(?:o)?\b|\(y\)es\b|\b(?:trust|allow|approve|permission|"
          r"proceed|authori[sz]e|grant|overwrite|confirm|are you sure|do you want|would you like)"
          r"\b[^.\n]{0,120}\?")
_SECRET = r"(?i)\b(?:password|passphrase|passcode|pin|token|secret|api.?key|code)\b.{0,60}[:?]\s*$"
_PAGED = (r"^:$|\(END\)\s*$|^--\s?More\s?--|^-- (?:INSERT|VISUAL|REPLACE|NORMAL)|\^G (?:Get )?Help"
          r"|^\s*Manual page |^lines \d+-\d+")
_SHELL_PROMPT = r"^\[?[\w.-]+@[\w.-]+\b.*[$#%]\s*$|^(?:ba|z|da|k)?sh(?:-[\d.]+)?[$#%]\s*$"
_PROMPT = r"^[\s│┃|]*[\w ./:~()\[\]-]{0,40}(?:>{1,3}|[$❯›»]|\]:)\s*$"


def find_obstacle(look: Record, own: str = "") -> str:
    """Why nothing may be typed now, or "". `own`: the letters of a text of ours that stands in the
    program's input; lines of it are not the program's."""
    kinds = [kind for kind in map(kind_of_command, look.programs) if kind]
    lines = [line for line in look.lines if line.strip() and not _is_own(line, own)]
    near = lines[-DIALOG_LINES:]
    if look.hidden or kinds or _found(_SHELL_PROMPT, [look.before]):
        return "hidden input" if look.hidden else kinds[0] if kinds else "a shell"
    if _found(_PAGED, lines[-2:]) or lines.count("~") > 2:
        return "an editor or a pager"
    if _found(_AT_WORK, near):
        return "work"
    asked = near
    if own or is_prompt(look.before):  # what was asked and answered above it does not count
        above = [line for line in look.lines[:look.row] if letters_of(line)]
        below = look.lines[look.row:]
        asked, near = ([line for line in above[-count:] + below if not _is_own(line, own)]
                       for count in (1, 2))
    is_listed = is_prompt(look.before) and _found(_NUMBERED, look.lines[look.row - 1:look.row])
    is_asked = _found(_ASKED, asked) or _found(_TO_CONFIRM, near) or _found(_SECRET, [look.before])
    return "a question" if is_asked or is_listed or _is_choice(near) else ""


def is_prompt(before: str) -> bool:
    """Does the cursor stand behind a prompt, with nothing typed yet?"""
    return _found(_PROMPT, [before])


def letters_of(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _is_own(line: str, own: str) -> bool:
    letters = letters_of(line)
    return len(letters) > 5 and letters in own


def _is_choice(lines: list) -> bool:
    """A marked line among options beside it, or two answers such as Yes and No."""
    answers = [i for i, line in enumerate(lines) if _found(_ANSWER, [line])]
    options = answers + [i for i, line in enumerate(lines) if _found(_NUMBERED, [line])]
    chosen = [i for i in options if _found(_CHOSEN, [lines[i]])]
    return any(0 < abs(i - j) <= 3 for i in chosen for j in options) or any(
        second - first <= 2 for first, second in zip(answers, answers[1:]))


def _found(pattern: str, lines: list) -> bool:
    import re

    return any(re.search(pattern, line) for line in lines)


def kind_of_command(argv: list) -> str:
    """An interactive shell (`sh -c …` and a script are none), an editor, a pager, or ""."""
    name = base_name(argv[0]).lstrip("-") if argv else ""
    words = iter(argv[1:])
    for word in words if name in SHELLS else ():
        if word in ("--rcfile", "--init-file", "-o", "+o", "-O", "+O"):
            next(words, "")
        elif word[:1] not in ("-", "+") or (word[:2] != "--" and "c" in word):
            return ""
    return "a shell" if name in SHELLS else "an editor or a pager" if name in EDITORS else ""


# --- is it waiting for a line?

READY_ABOVE = 0.7
READY_AGREE = 0.1  # added when several kinds of evidence agree
READY_TERMINAL, READY_PATTERN, READY_NATURAL = 0.95, 0.9, 0.6
NATURAL_AFTER_MS = 200
SILENCE_AFTER_MS, SILENCE_FULL_MS, SILENCE_MOST = 500, 3000, 0.8
PATTERN_LINES = 4


def readiness(look: Record, prompt: str = "", patterns: tuple = ()) -> float:
    """The strongest evidence, and a little more when another kind agrees. A known agent (one whose
    prompt is given) has to show it, or raw mode with paste, before anything else counts."""
    is_paused = look.silent_ms >= NATURAL_AFTER_MS
    last = [look.before] + [line for line in look.lines if line.strip()][-PATTERN_LINES:]
    is_shown = (prompt != "" and _found(prompt, [look.before])) or any(
        matches(pattern, line) for pattern in patterns for line in last)
    # Raw mode without paste and prompt means single keys: `top` would take each as a command.
    takes_lines = look.raw and look.paste if prompt else not look.alternate and (
        not look.raw or look.paste or is_prompt(look.before))
    if look.process == 0.0 or not (is_shown or takes_lines):
        return 0.0
    text = "\n".join([*look.lines[:look.row], look.before])
    counts = text.strip() and look.silent_ms >= SILENCE_AFTER_MS
    scores = [
        look.process if is_shown or not prompt else 0,
        READY_PATTERN if is_shown and is_paused else 0,
        READY_NATURAL if is_paused and is_natural_end(text) else 0,
        min(SILENCE_MOST, look.silent_ms / SILENCE_FULL_MS) if counts else 0]
    scores = [score for score in scores if score]
    best = max(scores, default=0.0)
    return min(1.0, round(best + READY_AGREE, 3)) if len(scores) > 1 else best


def is_natural_end(text: str) -> bool:
    """Does it end like something finished: a sentence, a closed fence, a blank line, a prompt?"""
    body = text.rstrip()
    line = body.rpartition("\n")[2].strip()
    fences = sum(part.lstrip().startswith("```") for part in body.split("\n"))
    if not line or fences % 2 or line.endswith((",", "-", "–", "—", "(", "[", "{")):
        return False
    is_blank = text.count("\n", len(body)) >= 2
    if is_blank or line.startswith("```") or line.endswith((">", "$", "❯")):
        return True
    bare = line.rstrip("\"')]*_`”’»")
    return bare.endswith((".", "!", "?", "。")) and not bare.endswith("..")  # "Loading..." goes on


# --- what the kernel says

READ_WAITS = frozenset("wait_woken n_tty_read unix_stream_read_generic pipe_read anon_pipe_read "
                       "inotify_read".split())  # the system call's first argument is the file
POLL_WAITS = frozenset("poll_schedule_timeout do_select do_poll do_sys_poll".split())
EPOLL_WAITS = frozenset("ep_poll do_epoll_wait".split())
_PROCESSES, _FILES, _THREADS = 40, 200, 60  # looked at


def judge_thread(told: tuple, links: dict, watched: dict, tty: str) -> str:
    """What one thread does: "reading" the terminal, "busy", "idle" (it waits for something else) or
    "unknown". `told`: its stat, wchan and syscall; `links`: descriptor -> file; `watched`:
    descriptor of an epoll set -> the descriptors that it waits for input of."""
    state = told[0].rpartition(")")[2].strip()[:1]  # the name before may hold blanks and brackets
    if state != "S":
        return "busy" if state in ("R", "D") else "idle" if state else "unknown"
    wait, words = told[1].partition(".")[0], told[2].split()  # do_select.constprop.0
    first = int(words[1], 16) if len(words) > 1 else None
    terminals = {fd for fd, link in links.items() if link in (tty, "/dev/tty")}
    if wait in EPOLL_WAITS:
        sets = [watched[first]] if first in watched else watched.values()
        is_reading = any(terminals.intersection(fds) for fds in sets)
        return "reading" if is_reading else "idle" if first in watched else "unknown"
    if wait in READ_WAITS and first is not None:
        return "reading" if first in terminals else "idle"
    if wait not in READ_WAITS and wait not in POLL_WAITS:
        return "unknown" if wait in ("", "0") else "idle"
    # select() names the highest descriptor; poll() has an address there, so any may be meant.
    seen = {fd: links[fd] for fd in links if first is None or first > 4096 or fd < first}
    if not terminals.intersection(seen):
        return "idle"
    # Somebody else may end the wait; a pipe with both ends in the process wakes only itself.
    others = [link for link in seen.values() if link.startswith("socket:") or (
        link.startswith("pipe:") and list(links.values()).count(link) == 1)]
    return "unknown" if others else "reading"


def merge_waits(waits: list) -> str:
    """Of a process: its main thread's comes first. Of processes: any order."""
    if waits[:1] == ["busy"] and "reading" in waits[1:]:
        return "busy"
    return next((kind for kind in ("reading", "busy", "unknown") if kind in waits),
                "idle" if waits else "unknown")


def read_process(child: int, master: int, tty: str) -> tuple:
    """(confidence or None, command lines) of what holds the terminal: the child or, behind a
    launcher such as npm or sh, its children."""
    waits, programs, todo = [], [], [child]
    try:
        group = str(_os.tcgetpgrp(master))
    except OSError:
        return None, []
    for pid in todo:
        threads = sorted(list_dir("/proc/%d/task" % pid), key=int)[:_THREADS]
        for thread in threads if len(todo) < _PROCESSES else ():
            todo += map(int, _read_proc(pid, "task/%s/children" % thread).split())
        if _read_proc(pid, "stat").rpartition(")")[2].split()[2:3] == [group]:
            waits.append(_read_wait(pid, threads, tty))
            programs.append(_read_proc(pid, "cmdline").split("\0")[:20])
    merged = merge_waits(sorted(waits, key=lambda wait: wait != "reading"))
    return {"reading": READY_TERMINAL, "unknown": None}.get(merged, 0.0), programs


def _read_wait(pid: int, threads: list, tty: str) -> str:
    links, watched = {}, {}
    for name in list_dir("/proc/%d/fd" % pid)[:_FILES]:
        try:
            links[int(name)] = _os.readlink("/proc/%d/fd/%s" % (pid, name))
        except OSError:
            continue  # closed meanwhile
        if links[int(name)].endswith("[eventpoll]"):
            rows = [row.split() for row in _read_proc(pid, "fdinfo/" + name).split("\n")]
            watched[int(name)] = [  # tfd: 5 events: 80000019, of which 1 is input
                int(row[1]) for row in rows if row[:1] == ["tfd:"] and int(row[3], 16) & 1]
    told = [tuple(_read_proc(pid, "task/%s/%s" % (thread, name))
                  for name in ("stat", "wchan", "syscall")) for thread in threads]
    return merge_waits([judge_thread(one, links, watched, tty) for one in told])


def _read_proc(pid: int, name: str) -> str:
    return (read_bytes("/proc/%d/%s" % (pid, name)) or b"").decode("utf-8", "replace")

# =============================================================================
# Wrap
# =============================================================================
# `wrap -- CMD`: runs an agent without hooks in a pseudo-terminal, passes all through and types the
# startup context when it is ready. Delivery decides, under a clock that comes in; only _Run touches
# the terminal. Enter is pressed only behind our own text, seen in the program's input.
WRAP_POLL_S, WRAP_SETTLE_S, WRAP_TIMEOUT_S, WRAP_ACK_S = 0.2, 0.5, 30.0, 5.0
WRAP_ENTER_S = 0.3  # programs take an Enter that arrives with a paste as part of it
WRAP_AGAIN_S, WRAP_ENTERS = 2.0, 3
WRAP_HOLD_S = 5.0  # the person's keys wait so long for our Enter
WRAP_READ_BYTES, WRAP_DRAIN_READS = 16 * 1024, 256
WRAP_LINE_BYTES = 4000 if sys.platform.startswith("linux") else 1000  # a cooked terminal's longest
WRAP_LINE_TAIL = 120  # of a line that is too long, the end with the request stays
WRAP_LEFT_OUT = " [… left out: the terminal takes no longer line …] "
WRAP_ENDED, WRAP_NO_ANSWER = "the program ended", "no acknowledgement"
WRAP_NOT_READY, WRAP_NO_ECHO = "not ready in time", "the typed text did not appear"
WRAP_NOT_TAKEN = "Enter did not submit it"
WRAP_IN_FILE = "ctx: the agent did not take the context ({reason}); it is now in {file}"
WRAP_NO_TERMINALS = "wrap needs a POSIX system with pseudo-terminals"
WRAP_REFUSED = "{name} is {kind}, not an agent: the context would be typed into it"
WRAP_REFUSED_HINT = "name the agent, e.g. `wrap -- aider`; a script is run by `wrap -- sh -c '…'`"
WRAP_SIGNALS = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
ECHO_RUN = 24  # letters: more than an acknowledgement has, less than our request around it
LINE_DONE = "\r\n\x03\x04\x15"  # Enter, ^C, ^D, ^U: nothing half-typed is left
SUSPEND_KEY = b"\x1a"
_PASTED = r"(?i)\[pasted (?:text|content)\b[^\]]*\]"  # what stands for a long paste
_BOX = r"^[\s│┃|]*[>❯›*!]\s*"

# Agent -> its prompt up to the cursor ("": any program's), and has it an input box that stays
AGENTS = {
    "claude": (_BOX + "$", True), "codex": (_BOX + "$", True), "gemini": (_BOX + "$", True),
    "qwen": (_BOX + "$", True), "aider": (r"^[\w -]*>{1,3}\s*$", False), "copilot": ("", False),
    "droid": ("", False), "": ("", False),
}
LAUNCHERS = frozenset("npx npm pnpm yarn bunx bun uv uvx pipx python python3 node deno env nice sh "
                      "bash zsh dash".split())


def find_agent(argv: list) -> str:
    """Which known agent a command line runs, also behind a launcher (`npx @openai/codex`)."""
    import re

    is_launcher = bool(argv) and base_name(argv[0]) in LAUNCHERS
    for word in " ".join(argv).split() if is_launcher else argv[:1]:
        name = re.sub(r"(?:@[\w.^~-]+|\.\w+)$", "", base_name(word))
        name = re.sub(r"-(?:cli|code|chat)$", "", name)
        if name and name in AGENTS:
            return name
    return ""


def plan_keys(text: str, paste: bool) -> bytes:
    """What to type for a text, without the Enter. Outside a paste a line end would submit half."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    text = text.encode("utf-8", "replace").decode()
    text = "".join(c for c in text if c == "\n" or c.isprintable()).strip()  # no other is a key
    if paste:
        return b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"
    line = " ".join(part.strip() for part in text.split("\n") if part.strip()).encode()
    if len(line) > WRAP_LINE_BYTES:
        gap = WRAP_LEFT_OUT.encode()
        kept = line[:WRAP_LINE_BYTES - WRAP_LINE_TAIL - len(gap)]
        line = kept + gap + line[-WRAP_LINE_TAIL:]
    return line.decode("utf-8", "ignore").encode()


def parse_keys(keys: bytes) -> str:
    """What a person typed; what the terminal itself reports arrives as escape sequences."""
    import re

    return re.sub(ESCAPES, "", keys.decode("utf-8", "replace"))


def is_typing(before: bool, keys: bytes) -> bool:
    """Has the person a half-typed line after these keys?"""
    typed = parse_keys(keys)
    return typed[-1] not in LINE_DONE if typed else before


def is_in_input(look: Record, typed: str, is_box: bool) -> bool:
    """Does the text that we typed stand in the program's input, with the cursor behind it?"""
    import re

    tail, lines = letters_of(typed)[-ECHO_RUN:], [*look.lines[:look.row], look.before]
    if is_box:  # from its prompt on, also when a line end came in behind the text
        starts = [i for i, line in enumerate(lines) if re.search(_BOX, line)]
        shown = "\n".join(lines[starts[-1]:]) if starts else ""
        return bool(tail) and (tail in letters_of(shown) or bool(re.search(_PASTED, shown)))
    before = look.before.strip()
    if not before or re.search(_PASTED + "$", before):
        return bool(before)
    is_last = bool(letters_of(before)) or typed.rstrip().endswith(before)
    return bool(tail) and is_last and letters_of("".join(lines[-60:])).endswith(tail)


def text_after_echo(look: Record, typed: str) -> "str | None":
    """What stands below the last place where our text stands; None when it is not to be seen."""
    import re

    lines, tail = [*look.gone, *look.lines], letters_of(typed)[-ECHO_RUN:]
    letters = [letters_of(line) for line in lines]
    end, last = "".join(letters).rfind(tail) + len(tail), -1
    if end >= len(tail):
        while end > 0:
            last += 1
            end -= len(letters[last])
    last = max([last] + [i for i, line in enumerate(lines) if re.search(_PASTED, line)])
    return "\n".join(lines[last + 1:]) if last >= 0 else None


class Delivery:
    """waiting -> typed -> listening -> waiting …; over: nothing more is typed, a late
    acknowledgement still counts; done. `told`: lines for the person."""

    def __init__(self, ctx: Ctx, now: float, context: tuple, **options) -> None:
        self.ctx, self.since, (self.chosen, self.path, self.sources) = ctx, now, context
        self.agent, self.patterns = "", tuple(ctx.get("wrap.ready_patterns"))
        self.timeout_s, self.ack_s = WRAP_TIMEOUT_S, WRAP_ACK_S
        vars(self).update(options)
        self.state, self.file = "waiting" if self.sources else "done", fallback_file(ctx)
        self.id, self.told, self.may_write = "inj-%x" % int(ctx.now * 1000), [], True
        self.attempts, self.enters, self.is_stale, self.is_escalated = 0, 0, False, False
        self.first_at = self.ready_at = self.seen_at = self.shown = None
        self.sent = self.typed = self.notice = self.prompt = self.reason = ""

    def step(self, now: float, look: Record) -> bytes:
        """The keys to type now."""
        is_open = look.ended or self.state in ("waiting", "listening", "over")
        if self.state == "done":
            return b""
        if is_open and self.attempts and self._is_acknowledged(look):
            self._succeed(now)
        elif look.ended:
            self._close()
        elif self.state != "over" and now >= self.since:
            return getattr(self, "_" + self.state)(now, look) or b""
        return b""

    def is_holding(self, now: float) -> bool:
        """Nobody's keys come between the context and its Enter."""
        return self.state == "typed" and now - self.since < WRAP_HOLD_S

    def _is_acknowledged(self, look: Record) -> bool:
        said = text_after_echo(look, self.sent)
        if said is None:  # scrolled away, or never shown: then nothing old may be taken for it
            said = "" if self.is_stale else "\n".join([*look.gone, *look.lines])
        return is_acknowledged(self.ctx, said)

    def _known(self, look: Record) -> tuple:
        """The row of the agent: named, or found behind a launcher."""
        found = (find_agent(argv) for argv in look.programs)
        return AGENTS[self.agent or next(filter(None, found), "")]

    def _is_settled(self, now: float, look: Record) -> bool:
        """Ready for a while without any output, at the prompt that it had the first time."""
        confidence = readiness(look, self._known(look)[0], self.patterns)
        is_again = self.prompt in ("", _without_digits(look.before)) or (
            look.process and not look.raw)  # it reads lines, whatever it shows
        is_ready = (confidence > READY_ABOVE and is_again and not look.typing
                    and not find_obstacle(look))
        if not is_ready or self.ready_at is None or look.silent_ms < (now - self.ready_at) * 1000:
            self.ready_at = now if is_ready else None
        return is_ready and now - self.ready_at >= WRAP_SETTLE_S

    def _waiting(self, now: float, look: Record) -> "bytes | None":
        if not self._is_settled(now, look):
            if not self.attempts and now - self.since >= self.timeout_s:
                self._give_up("wrap:timeout", now, look, WRAP_NOT_READY)
            return None
        self._note("wrap:ready", now, look)
        if not self.notice:
            self._attempt(now, look)
        keys = plan_keys(self.notice or self.sent, look.paste)
        self.typed = parse_keys(keys)
        self.state, self.since, self.seen_at, self.enters = "typed", now, None, 0
        return keys

    def _attempt(self, now: float, look: Record) -> None:
        self.attempts, self.prompt = self.attempts + 1, _without_digits(look.before)
        self.sent = frame_startup(self.ctx, self.sources, self.id, self.attempts)
        self.is_stale = is_acknowledged(self.ctx, "\n".join([*look.gone, *look.lines]))
        self._record("injection:attempted", attempt=self.attempts, type="wrap")
        if self.first_at is None:
            self.first_at = now
            count_metrics(self.ctx, attempted=1)
            if self.chosen:
                hold_handoff(self.ctx, self.chosen, Record(source="startup", session=self.id))

    def _typed(self, now: float, look: Record) -> "bytes | None":
        """Enter, once our text stands in the input and nothing else asks for it; again, never the
        text, if nothing at all has happened. It is submitted when it has left the input."""
        is_there = not look.hidden and is_in_input(look, self.typed, self._known(look)[1])
        if self.enters and not is_there and not find_obstacle(look).endswith("question"):
            self._note("wrap:submitted", now, look)
            self.state = "over" if self.notice else (
                "listening" if self.ctx.get("startup.require_ack") else "done")
            self.since, self.ready_at = now, None
            return None
        if not is_there or self.seen_at is None:
            self.seen_at = now if is_there else None
        is_due = is_there and now - self.seen_at >= WRAP_ENTER_S and (
            look.silent_ms >= NATURAL_AFTER_MS)
        if self.enters:
            is_due = (is_there and self.enters < WRAP_ENTERS and now - self.since >= WRAP_AGAIN_S
                      and not look.typing and look.lines == self.shown)
        if is_due:
            if find_obstacle(look, letters_of(self.typed)):
                return None
            self.since, self.shown, self.enters = now, look.lines, self.enters + 1
            return b"\r"
        # What was typed stays where it is; nothing comes after it once the person goes on.
        is_late = now - self.since >= self.timeout_s or (look.typing and not self.is_holding(now))
        if is_late and not find_obstacle(look):
            self._give_up("wrap:stuck", now, look, WRAP_NOT_TAKEN if self.enters else WRAP_NO_ECHO)
        return None

    def _listening(self, now: float, look: Record) -> None:
        """An answer may take its time: only a program that waits again has not acknowledged. Then
        comes the text again after its backoff, the file with its notice, or the end."""
        if not self._is_settled(now, look) or now - self.ready_at < self.ack_s:
            return
        rung = next_rung(self.ctx, self.attempts, self.may_write)
        if rung == "file":
            self.notice = FALLBACK_NOTICE.format(file=self.file) if self._write_file() else ""
            rung = rung if self.notice else next_rung(self.ctx, self.attempts, False)
        wait_s = backoff_s(self.ctx, self.attempts) if rung == "again" else 0
        self.state, self.since, self.ready_at = "waiting", now + wait_s, None
        if rung == "fail":
            self.state, self.reason = "over", WRAP_NO_ANSWER

    def _give_up(self, name: str, now: float, look: Record, reason: str) -> None:
        """Nothing is typed any more: the file, which needs nobody to be ready."""
        self._note(name, now, look)
        self.state, self.reason = "over", reason
        if self._write_file(reason=reason):
            self.told.append(WRAP_IN_FILE.format(reason=reason, file=self.file))

    def _write_file(self, **why) -> bool:
        body = shorten_sources(self.sources, STARTUP_LIMIT)
        if self.may_write and write_section(self.ctx, body, self.file):
            self.is_escalated = True
            self._record("injection:escalated", attempts=self.attempts, escalationType="file",
                         file=self.file, **why)
            count_metrics(self.ctx, escalatedToFile=1, attempted=0 if self.attempts else 1)
        self.may_write = False
        return self.is_escalated

    def _succeed(self, now: float) -> None:
        self.state = "done"
        succeed_delivery(self.ctx, Record(
            message_id=self.id, attempts=self.attempts, first_at=self.ctx.now - now + self.first_at,
            outcome="escalated" if self.is_escalated else "pending",
            handoff=self.chosen.key if self.chosen else ""), "acknowledgement")

    def _close(self) -> None:
        """The program ended. An acknowledgement could come until now, so only now it has failed."""
        is_lost = not self.is_escalated and (self.attempts > 0 or self.reason != "")
        self.state = "done"
        if is_lost and self.ctx.get("startup.require_ack"):
            count_metrics(self.ctx, failed=1)
            if self.ctx.get("startup.notify_on_failure"):
                self.told.append(FAILURE_NOTICE.format(path=self.path))
        self._record("injection:failed" if is_lost else "wrap:ended", attempts=self.attempts,
                     reason=self.reason or WRAP_ENDED)

    def _note(self, name: str, now: float, look: Record) -> None:
        """A recorder row with everything that the decision rests on."""
        kept = ("process", "silent_ms", "raw", "hidden", "paste", "alternate", "typing")
        seen = {key: getattr(look, key) for key in kept}  # not a line: the person may be typing it
        self._record(
            name, waitedMs=int((now - self.since) * 1000), attempt=self.attempts,
            enters=self.enters, confidence=readiness(look, self._known(look)[0], self.patterns),
            obstacle=find_obstacle(look), prompt=is_prompt(look.before),
            programs=[base_name(argv[0]) for argv in look.programs if argv], **seen)

    def _record(self, name: str, **fields) -> None:
        record(self.ctx, name, messageId=self.id, agent=self.agent or "other", **fields)


def _without_digits(before: str) -> str:
    """`In [1]:` and `In [2]:` are one prompt."""
    return "".join("0" if c.isdigit() else c for c in before.strip())


# --- the pseudo-terminal


def run_wrap(delivery: Delivery, argv: list) -> int:
    occupy_descriptors()
    run = _Run(delivery)
    try:
        run.start(argv)
        return run.pump()
    finally:
        run.restore()


class _Run:
    """The pseudo-terminal, the program in it, its screen, and keys that wait to be taken by it;
    `saved`: the person's terminal, None where there is none."""

    def __init__(self, delivery: Delivery) -> None:
        import signal
        import termios

        self.signal, self.termios = signal, termios  # Windows has not all of them
        self.delivery, self.screen = delivery, Screen()
        self.saved = termios.tcgetattr(0) if _os.isatty(0) else None
        self.has_input, self.typing, self.queue, self.held = True, False, b"", b""
        self.heard_at, self.ticked_at, self.read_at = delivery.since, 0.0, 0.0
        self.master, self.slave = _os.openpty()
        self.tty = _os.ttyname(self.slave)

    def start(self, argv: list) -> None:
        import fcntl
        import subprocess

        if self.saved:
            self.termios.tcsetattr(self.slave, self.termios.TCSANOW, self.saved)
        self.fit()
        self.process = subprocess.Popen(
            argv, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, self.termios.TIOCSCTTY, 0))  # noqa: PLW1509
        _os.close(self.slave)
        _os.set_blocking(self.master, False)
        for name in WRAP_SIGNALS:
            self.signal.signal(getattr(self.signal, name), self.forward)
        for number in (self.signal.SIGWINCH, self.signal.SIGCONT):
            self.signal.signal(number, self.fit)
        self.fit()  # what changed meanwhile

    def fit(self, *_: object) -> None:
        """The person's terminal raw, and its size for the program's; also after ^Z and `fg`."""
        import fcntl
        import struct
        import tty

        if self.saved:
            tty.setraw(0, self.termios.TCSADRAIN)  # keys typed ahead stay
        own = next((n for n in (0, 1, 2) if _os.isatty(n)), None)
        columns, rows = (0, 0) if own is None else _os.get_terminal_size(own)
        size = (rows, columns) if rows and columns else SCREEN_SIZE
        self.screen.resize(size)
        fcntl.ioctl(self.master, self.termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))

    def restore(self) -> None:
        """The person's terminal as it was, whatever the program left on."""
        if self.saved:
            write_all(1, format_restore(self.screen.modes))
            self.termios.tcsetattr(0, self.termios.TCSADRAIN, self.saved)

    def pump(self) -> int:
        """Pass everything through until the program is gone."""
        import select

        while self._is_alive():
            # A pipe's keys come after the delivery.
            is_free = self.saved is not None or self.delivery.state in ("over", "done")
            room = WRAP_READ_BYTES - len(self.queue + self.held)
            readers = [self.master, 0] if self.has_input and is_free and room > 0 else [self.master]
            writers = [self.master] if self.queue else []
            ready, writable, _ = select.select(readers, writers, [], WRAP_POLL_S)
            if 0 in ready:
                self._read_keys()
            if writable:
                try:
                    self.queue = self.queue[_os.write(self.master, self.queue):]
                except OSError:
                    pass  # full for now; a terminal that is gone ends the reading
            if self.master in ready and not self._read_output():
                self.process.wait()  # it has closed the terminal
            self._tick()
        for _ in range(WRAP_DRAIN_READS):
            if not self._read_output():
                break
        self._step(self._look(ended=True))
        code = self.process.returncode
        return code if code >= 0 else 128 - code

    def _is_alive(self) -> bool:
        if self.process.returncode is None:
            pid, status = _os.waitpid(self.process.pid, _os.WNOHANG | _os.WUNTRACED)
            if pid and _os.WIFSTOPPED(status):
                self._stop_too()
            elif pid:
                is_killed = _os.WIFSIGNALED(status)
                self.process.returncode = (
                    -_os.WTERMSIG(status) if is_killed else _os.WEXITSTATUS(status))
        return self.process.returncode is None

    def _stop_too(self) -> None:
        """The person's shell comes back, `fg` lets both go on; without job control we just do."""
        self.restore()
        stopped_at = time.monotonic()
        _os.kill(_os.getpid(), self.signal.SIGTSTP)
        self.fit()
        self.delivery.since += time.monotonic() - stopped_at
        self.forward(self.signal.SIGCONT)
        self.forward(self.signal.SIGWINCH)  # draw again

    def forward(self, number: int, _: object = None) -> None:
        try:
            _os.killpg(self.process.pid, number)
        except OSError:
            pass  # gone already

    def _read_keys(self) -> None:
        try:
            keys = _os.read(0, WRAP_READ_BYTES)
        except OSError:
            keys = b""
        self.has_input = bool(keys)
        if keys == SUSPEND_KEY and self.saved and self._flags() & self.termios.ISIG:
            # The kernel drops SIGTSTP for a session without a shell.
            self.forward(self.signal.SIGSTOP)
            return
        self.typing = self.saved is not None and is_typing(self.typing, keys)
        if parse_keys(keys) and self.delivery.is_holding(time.monotonic()):
            self.held += keys
        else:
            self.queue += keys

    def _read_output(self) -> bool:
        """False when there is nothing (more): Linux says EIO once the program's side is closed."""
        try:
            data = _os.read(self.master, WRAP_READ_BYTES)
        except OSError:
            return False
        self.screen.feed(data)
        self.heard_at = time.monotonic()
        try:
            write_all(1, data)
        except OSError:
            self.forward(self.signal.SIGHUP)  # as a terminal does that goes away
        return bool(data)

    def _tick(self) -> None:
        now, state = time.monotonic(), self.delivery.state
        is_idle = self.has_input and (
            state == "done" or (state == "over" and self.read_at == self.heard_at))
        if self.held and not self.delivery.is_holding(now):
            self.queue, self.held = self.queue + self.held, b""
        if now - self.ticked_at < WRAP_POLL_S or is_idle:
            return
        look = self._look()
        if state in ("done", "over") and not (self.has_input or self.queue) and (
                readiness(look) > READY_ABOVE):
            self.queue = b"\x04"  # ^D, at each read: a terminal's end of input does not last
        self.ticked_at, self.read_at = now, self.heard_at if state == "over" else 0.0
        self._step(look)

    def _step(self, look: Record) -> None:
        self.delivery.ctx.now = time.time()
        self.queue += self.delivery.step(time.monotonic(), look)

    def _flags(self) -> int:
        try:
            return self.termios.tcgetattr(self.master)[3]
        except self.termios.error:
            return self.termios.ICANON | self.termios.ECHO

    def _look(self, ended: bool = False) -> Record:
        screen, flags = self.screen, self._flags()
        is_raw = not flags & self.termios.ICANON
        process, programs = read_process(self.process.pid, self.master, self.tty)
        return Record(
            process=process, programs=programs, gone=screen.gone, lines=screen.lines(),
            silent_ms=int((time.monotonic() - self.heard_at) * 1000), row=screen.y,
            before=screen.before_cursor(), raw=is_raw, alternate=screen.is_alternate(),
            hidden=not is_raw and not flags & self.termios.ECHO, paste=PASTE_MODE in screen.modes,
            typing=self.typing, ended=ended)


# --- the command


def wrap_command(args: list) -> int:
    given = parse_words("wrap", args)
    command, kind = given.rest, kind_of_command(given.rest)
    if not command or given.agent not in AGENTS:
        raise wrong_usage("wrap", "a command is missing after --" if not command else (
            "--agent: use one of " + ", ".join(filter(None, AGENTS))))
    if not IS_POSIX or kind:
        raise CommandError(
            WRAP_REFUSED.format(name=command[0], kind=kind) if kind else WRAP_NO_TERMINALS,
            WRAP_REFUSED_HINT if kind else "run the agent directly")
    ctx, agent = people_ctx(), given.agent or find_agent(command)
    ctx.agent = agent if agent in DIALECTS else ctx.agent
    delivery = Delivery(ctx, time.monotonic(), _read_context(ctx, given.context), agent=agent,
                        timeout_s=float(given.timeout or WRAP_TIMEOUT_S))
    try:
        code = run_wrap(delivery, command)
    except OSError as error:
        raise CommandError("cannot run %s: %s" % (command[0], error.strerror),
                           "check the name and PATH") from None
    write_stderr("".join(line + "\n" for line in delivery.told))
    return code


def _read_context(ctx: Ctx, path: str) -> tuple:
    """(the handoff or None, a path, sources): of the file that the person named, else of it."""
    if path:
        data = read_bytes(path) or b""
        if not says_something(data):
            raise CommandError("there is no context in %s" % one_line(path, 200),
                               "name a text file that is filled in")
        text = clean_text(data.decode("utf-8", "replace"))
        return None, path, [(SOURCE_FILE.format(path=path), text)]
    if not ctx.get("startup.enabled"):
        return None, "", []
    update_ledger(ctx, lambda ledger: None)  # from now on a handoff is newer than the first event
    fitting, others = choose_handoffs(ctx, Record(source="startup", session=""))
    chosen, others = fitting[0] if fitting else None, fitting[1:] + others
    return chosen, chosen.path if chosen else "", startup_sources(ctx, chosen, others)

# =============================================================================
# Commands
# =============================================================================
# What people run. Failures are `error: what` and `hint: what to do`, exit 1; wrong usage of a
# known command exits 2. Heavy imports are fine here. A command returns its exit code, None for 0.
LIVE_SESSION_S, UNSEEN_S = 12 * 3600, 2 * 3600  # silent hooks leave a trace once an hour
WATCH_EVERY_S, WRAPPED_WAIT_S, HANDED_AGAIN_S = 2.0, 2.0, 600
REPLAY_FILES, REPLAY_BYTES = 5000, 64 * 1024 * 1024
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def list_sessions(ctx: Ctx) -> list:
    """[(session, time of its last change)], newest first."""
    names = [name for name in list_dir(ctx.path("state"), 20_000) if name.endswith(".json")
             and ("~" in name or is_plain_name(name)) and not name.startswith("handoffs-")]
    infos = [(name[:-5], stat_of(ctx.path("state", name))) for name in names]
    found = [(name, info.st_mtime) for name, info in infos if info]
    return sorted(found, key=lambda pair: -pair[1])


def find_session(ctx: Ctx, text: str, known_only: bool = True) -> str:
    """The session that an id or its first letters name; without one that of the environment."""
    names = [name for name, _ in list_sessions(ctx)]
    found = [name for name in names if name.startswith(text.lower())]
    if not text or safe_name(text) in names or not (found or known_only):
        return safe_name(text) or ctx.session
    if len(found) != 1:
        raise CommandError("%s session %s here" % ("more than one" if found else "no", text),
                           "known: " + (", ".join((found or names)[:5]) or "none yet"))
    return found[0]


def cannot_write(path: str) -> CommandError:
    return CommandError("cannot write %s" % path, "check its owner and permissions")


# --- looking


def status_command(args: list) -> None:
    given = parse_words("status", args)

    def read() -> dict:
        ctx = people_ctx()
        return status_data(ctx, given.session and find_session(ctx, given.session))

    if given.watch:
        watch(read)
    else:
        show(*[format_json(read())] if given.json else render_status(read(), read_look()))


def watch(read: object) -> None:
    """Redraw in place until ^C."""
    height = 0
    try:
        while True:
            look, lines = read_look(), _os.get_terminal_size(1).lines or 24
            page = render_status(read(), look)[: max(1, lines - 1)]
            show(*page, look=look, before="\033[%dA\033[J" % height if height else "")
            height = len(page)
            time.sleep(WATCH_EVERY_S)
    except OSError:
        raise CommandError("--watch needs a terminal", own_command("status")) from None
    except KeyboardInterrupt:
        show("")  # the terminal shows ^C on this line


def status_data(ctx: Ctx, only: str) -> dict:
    known = list_sessions(ctx)
    shown = [pair for pair in known
             if (pair[0] == only if only else ctx.now - pair[1] < LIVE_SESSION_S)]
    traces = [stat_of(ctx.path("monitor-state.json")), stat_of(ctx.path("state", "collected"))]
    seen_at = max([at for _, at in known] + [info.st_mtime for info in traces if info] + [0.0])
    problems = [text for level, text in check_project(ctx) if level in (WARN, FAIL)]
    active_at = client_active_at(ctx.root, ctx.env)
    if seen_at and active_at - seen_at > UNSEEN_S and not is_paused(ctx, "*"):
        problems.append("the client was active %s ago, the hooks were last seen %s ago → %s" % (
            format_age(ctx.now - active_at), format_age(ctx.now - seen_at), own_command("doctor")))
    return {
        "version": VERSION, "at": format_iso(ctx.now), "root": ctx.root,
        "doctor": own_command("doctor"), "hooks_seen_at": format_iso(seen_at) if seen_at else None,
        "paused": {name: until for name, until in read_pauses(ctx).items()
                   if is_open_pause(until, ctx.now)},
        "sessions": [session_data(ctx, *pair) for pair in shown[:20]],
        "handoffs": handoffs_data(ctx, only), "signals": signals_data(ctx, only),
        "auto": workflow_data(ctx), "attention": attention_data(ctx, known),
        "metrics": vars(load_record(read_json(ctx.path("metrics.json")), METRICS)),
        "fill_in": silent_files(ctx), "problems": problems,
    }


def session_data(ctx: Ctx, session: str, seen_at: float) -> dict:
    state = read_session(ctx, session)
    context, startup, crossed = (
        last_measure(ctx, session, state), state.startup, state.threshold_crossed_at)
    handoff = "written" if state.handoff_complete else "asked" if crossed else "not due"
    evidence = startup and ("receipt" if startup.receipt_at else
                            "acknowledgement" if startup.acked_at else "")
    return {
        "session": session, "agent": state.agent, "seen_at": format_iso(seen_at),
        "tool_calls": state.tool_calls, "context": context, "history": state.history,
        "model": context["model"] if context else best_model(state, ""), "tools": state.breakdown,
        "handoff": {
            "state": handoff if ctx.get("handoff.enabled") else "off",
            "file": shown_path(ctx, handoff_path(ctx, session, read_ledger(ctx)), ""),
            "since": format_iso(crossed), "reminders": state.reminders},
        "gate": {"mode": ctx.get("gate.mode"), "fired": has_marker(ctx, session),
                 "files": [name for name, _ in gate_files(ctx)], "read": state.files_read},
        "startup": startup and {"outcome": startup.outcome, "attempts": startup.attempts,
                                "evidence": evidence},
    }


def last_measure(ctx: Ctx, session: str, state: Record) -> "dict | None":
    """The newer of what the monitor measured and what the status line was told."""
    handed = read_json(ctx.path("state", session + ".statusline"))
    told_at = parse_iso(handed.get("at")) or 0.0
    found = (state.estimated_tokens, state.window, state.exact, state.measured_model)
    if count_of(handed.get("used")) and told_at >= state.last_call:
        found = (count_of(handed["used"]), count_of(handed.get("window")), True,
                 text_of(handed.get("model")))
    if not found[0] or not found[1]:
        return None
    measure = make_measure(*found)
    return dict(vars(measure), session=session, kind="exact" if measure.exact else "estimated",
                at=format_iso(max(told_at, state.last_call)))


def handoffs_data(ctx: Ctx, only: str) -> list:
    """The ledger, newest first."""
    rows = [dict(dump_record(row, LEDGER[-1][2][0]), session=name)
            for name, row in read_ledger(ctx).handoffs.items()
            if not only or only in (name, row.delivered_to)]
    return sorted(rows, key=lambda row: row["written_at"] or row["asked_at"] or "")[:-11:-1]


def signals_data(ctx: Ctx, only: str) -> list:
    """Every pending signal, also those that are not injected, critical first, then oldest."""
    sessions = [only] if only else list_dir(ctx.path("signals", "sessions"), 100)
    found = [("", signal) for signal in read_signals(ctx, "")]
    found += [(name, signal) for name in sessions for signal in read_signals(ctx, name)
              if signal.scope == "session"]
    found.sort(key=lambda pair: (-SEVERITIES.index(pair[1].severity), pair[1].generated_at))
    return [{"scope": s.scope, "session": name, "name": s.name, "severity": s.severity,
             "auditor": s.auditor, "code": s.code, "text": one_line(s.body, 400),
             "age_s": int(max(0, ctx.now - s.generated_at)),
             "left_s": int(s.generated_at + s.ttl_s - ctx.now)} for name, s in found[:100]]


def workflow_data(ctx: Ctx) -> "dict | None":
    if not is_file(auto_path(ctx)):
        return None
    flow, agreed = read_workflow(ctx), read_trust(ctx).checks
    checks = [(phase, check_of(ctx, flow, phase)) for phase in flow.phases]
    data = dump_record(flow, WORKFLOW)
    data.update(
        token="", inert=is_inert(ctx, flow), last_phase=flow.enforcer.last_phase,
        last_error=flow.last_error.message if flow.last_error else "",
        steps=sorted(data["steps"].values(), key=lambda step: step["started_at"] or ""),
        checks=[{"phase": phase, "command": command,
                 "agreed": agreed.get(phase) == digest_of(command)}
                for phase, command in checks if command])
    return data


def attention_data(ctx: Ctx, sessions: list) -> dict:
    """Characters and messages said to the agent, by mechanism, and the tool calls they go with."""
    by: dict = {}
    calls = sum(read_session(ctx, name).tool_calls for name, _ in sessions[:50])
    for row in read_events(ctx, 100_000):
        event = text_of(row.get("event"))
        calls += count_of(row.get("calls")) if event == "session:ended" else 0
        if event in ATTENTION:
            said = by.setdefault(ATTENTION[event], {"messages": 0, "chars": 0})
            said["messages"] += 1
            said["chars"] += count_of(row.get("chars"))
    return {"calls": calls, "by": by}


def context_command(args: list) -> None:
    """The session in the environment, else the most recent one."""
    given, ctx = parse_words("context", args), people_ctx()
    wanted = find_session(ctx, given.session)
    names = [wanted] if wanted else [name for name, _ in list_sessions(ctx)]
    measures = (last_measure(ctx, name, read_session(ctx, name)) for name in names)
    measure = next(filter(None, measures), None)
    if measure is None:
        raise CommandError("no session has been measured here yet",
                           "it happens at the agent's first tool call")
    show(format_json(measure) if given.json else
         "{shown} {tokens}/{window} {kind} {session}".format(**measure))


def why_command(args: list) -> None:
    given, ctx, look = parse_words("why", args), people_ctx(), read_look()
    rows = read_events(ctx, int(given.words[0]) if given.words else 10)
    lines = [line for row in rows for line in render_decision(row, look)]
    show(*[format_json(rows)] if given.json else lines or [
        "nothing was said or decided here yet; silence is not recorded"])


def config_command(args: list) -> None:
    given, ctx, look = parse_words("config", args), people_ctx(), read_look()
    user_file = user_config_path(ctx.env)
    own, project = read_config(user_file, is_user=True)[0], read_config(config_path(ctx.root))[0]
    rows = [{"key": key, "value": ctx.get(key), "about": about,
             "source": CONFIG_NAME if key in project else user_file if key in own else "default"}
            for key, _, _, about in SETTINGS]
    for row in rows:
        if row["value"] != severity_floor(ctx) and row["key"] == "monitor.inject_min_severity":
            row.update(value=severity_floor(ctx), source="CTX_INJECT_MIN_SEVERITY")
    lines = [[("dim" if row["source"] == "default" else "bold", row["key"]),
              ("", " = %s" % format_json(row["value"])),
              ("dim", "  (%s) %s" % (row["source"], row["about"]))] for row in rows]
    problems = [line for _, text in check_settings(ctx) for line in wrap_lines(text, "  ✗ ", look)]
    show(*[format_json(rows)] if given.json else lines + problems, look=look)


def doctor_command(args: list) -> int:
    """A line for each thing that matters; exit 1 when something is broken."""
    given, ctx, look = parse_words("doctor", args), people_ctx(needed=False), read_look()
    look.width = look.width if _os.isatty(1) else 10_000  # in a pipe a finding is a line
    found, styles = [], {OK: "good", FAIL: "bad", WARN: "warn", HINT: "dim"}
    for level, text in diagnose(ctx, slashed(_os.getcwd()), read_environment()):
        found.append({"level": level, "text": for_terminal(text)})
        if not given.json:
            show(*wrap_lines(text, "%-6s" % level, look, styles[level]), look=look)
    if given.json:
        show(format_json(found))
    elif any("paste the settings" in finding["text"] for finding in found):
        show("\n.claude/settings.json (merge it into `hooks` if there are some):\n",
             settings_snippet())
    return 1 if FAIL in [finding["level"] for finding in found] else 0


# --- doing


def signal_command(args: list) -> None:
    given, ctx = parse_words("signal", args), people_ctx()
    summary, ttl_s = given.words[0], int(given.ttl or DEFAULT_TTL_S)
    auditor = given.auditor or given.name or "external"  # two names are two sources
    action = given.action.strip()
    if summary == "-":
        summary = read_fd(0, SIGNAL_LIMIT_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    if not clean_text(summary).strip():
        raise CommandError("the summary is empty", "say in one line what is wrong")
    if not 1 <= ttl_s <= TTL_LIMIT_S:
        raise CommandError("--ttl must be between 1 and %d seconds" % TTL_LIMIT_S, "leave it out")
    session = "" if getattr(given, "global") else find_session(ctx, given.session, False)
    path = write_signal(ctx, session, Record(
        name=given.name or "%s-%x" % (safe_name(auditor), time.time_ns() // 1000),
        severity=given.severity or "warning", generated_at=ctx.now, ttl_s=ttl_s, auditor=auditor,
        code=given.code, body=summary.strip() + ("\n→ " + action if action else "")))
    if not path:
        raise cannot_write(ctx.path("signals"))
    show(path)


def pause_command(args: list) -> None:
    """Silence the hooks: of one session, or of all when none is known."""
    given, ctx = parse_words("pause", args), people_ctx()
    session, stated = find_session(ctx, given.session, False), getattr(given, "for")
    digits, until = stated.lower().rstrip("smhd"), None
    if stated and not (is_digits(digits) and int(digits) and len(stated) - len(digits) < 2):
        raise CommandError("not a duration: " + stated, "a number with s, m, h or d, such as 30m")
    if stated:
        until = format_iso(ctx.now + int(digits) * UNITS_S.get(stated[-1:].lower(), 1))
    _edit_pauses(ctx, lambda pauses: pauses.update({session or "*": until}))
    show("paused %s until %s" % (session or "every session", until or "`resume`"))


def resume_command(args: list) -> None:
    """End a pause: of one session, or every pause when none is known."""
    given, ctx = parse_words("resume", args), people_ctx()
    session = find_session(ctx, given.session, False)
    _edit_pauses(ctx, lambda pauses: [
        pauses.pop(key, None) for key in ((session, "*") if session else list(pauses))])
    show("resumed %s" % (session or "every session"))


def _edit_pauses(ctx: Ctx, change: object) -> None:
    def begin(pauses: dict) -> None:
        if pauses.get("inode") != ctx.owner.st_ino:
            pauses.clear()  # it came with a clone
        change(pauses)
        pauses["inode"] = ctx.owner.st_ino

    if not update_json(ctx, ctx.path("state", "pause.json"), begin)[0]:
        raise cannot_write(ctx.path("state", "pause.json"))


# --- the workflow


def auto_command(args: list) -> None:
    given, ctx, look = parse_words("auto", args), people_ctx(), read_look()
    action, given.shell = given.words[0], next(iter(read_environment(AGENT_NAMES)), "")
    if given.shell and (given.until or given.agree):
        raise CommandError(
            "%s agrees to run a command, which only a person can; this is an agent's shell "
            "(%s is set)" % ("--until" if given.until else "--agree", given.shell),
            "run it in a terminal of your own; with ! in the client it is the agent's shell too")
    if load_json(auto_path(ctx), follow=False) is None and not given.force:
        raise CommandError(AUTO_STATE + " is not readable as JSON",
                           "to begin anew: " + own_command("auto start TASK --force"))
    if action in ("start", "resume"):
        flow = (_plan_start if action == "start" else _plan_resume)(ctx, given)
        lines, is_new = _agree(ctx, flow, given), not is_dir(parent_of(auto_path(ctx)))
        if not update_workflow(ctx, lambda now: vars(now).update(vars(flow)))[0]:
            raise cannot_write(AUTO_STATE)
        if is_new:
            write_bytes(ctx, ctx.root + "/.caw/.gitignore", b"auto-state.json\n.gitignore\n")
        name = "auto:started" if action == "start" else "auto:resumed"
        record(ctx, name, phase=flow.phase, bound=bool(flow.session_id))
        show(*lines)
    elif action == "stop":
        show("cancelled" if cancel_workflow(ctx, "") else "no workflow is active")
    else:
        data = workflow_data(ctx)
        page = render_workflow(data, look) if data else [
            "no workflow; begin one with: " + own_command("auto start TASK")]
        show(*[format_json(data or {})] if given.json else page, look=look)


def _plan_start(ctx: Ctx, given: Record) -> Record:
    most, task = int(given.max_iterations or MAX_ITERATIONS), "".join(given.words[1:])
    if not 1 <= most <= ITERATIONS_LIMIT:
        raise CommandError("--max-iterations must be between 1 and %d" % ITERATIONS_LIMIT,
                           "leave it out for %d" % MAX_ITERATIONS)
    if not task.strip():
        raise CommandError("the task is empty", "say in a sentence what is to be done")
    if load_json(auto_path(ctx), follow=False) is None:
        set_aside(ctx, auto_path(ctx))
    old, phases = read_workflow(ctx), _plan_phases(ctx, given)
    if is_active(old) and not is_inert(ctx, old) and not given.force:
        raise CommandError("a workflow is active already",
                           "--force replaces it; to see it: " + own_command("auto status"))
    return load_record({
        "active": True, "phases": phases, "phase": given.phase or phases[0], "until": given.until,
        "max_iterations": most, "task_description": task, "any_prompt": bool(given.any),
        "config": {flag: bool(getattr(given, flag)) for flag in SKIPS}, "signals": {},
        "session_id": _bound_id(ctx, given.session) or (
            "" if given.any else ctx.env.get("CLAUDE_CODE_SESSION_ID", "")),
        "enforcer": {}, "started_at": format_iso(ctx.now, True)}, WORKFLOW)


def _plan_resume(ctx: Ctx, given: Record) -> Record:
    """It binds to the next session that prompts, also after it failed or was blocked."""
    flow = read_workflow(ctx)
    if not is_file(auto_path(ctx)) or flow.phase == "complete":
        raise CommandError("there is no workflow to take up", own_command("auto start TASK"))
    known = [phase for phase in (flow.phase, flow.enforcer.last_phase) if phase in flow.phases]
    vars(flow).update(
        active=True, phase=(known or flow.phases)[0], iteration=0, needs="", exit_reason="",
        completed_at=0.0, phase_started_at=ctx.now, session_id=_bound_id(ctx, given.session),
        any_prompt=bool(given.any) or flow.any_prompt)
    vars(flow.enforcer).update(stalls=0, holds=0, phase_holds=0)
    flow.signals.last_checked = ctx.now
    return flow


def _plan_phases(ctx: Ctx, given: Record) -> list:
    """The phases of this workflow; with --until and none named it is `execution` alone."""
    names = ctx.get("auto.phases") or list(PHASES)
    skipped = given.skip + [phase for flag, phases in SKIPS.items() if getattr(given, flag)
                            for phase in phases]
    for phase in [*given.skip, given.phase or names[0]]:
        if phase not in names:
            near = near_word(phase, names)
            raise CommandError("there is no phase " + phase, "did you mean %s?" % near if near else
                               "phases: " + ", ".join(names))
    if given.until and not (given.phase or skipped or ctx.get("auto.phases")):
        return ["execution"]
    phases = [name for name in names if name not in skipped]
    if not phases or (given.phase and given.phase in skipped):
        raise CommandError("phase %s is skipped" % (given.phase or names[0]),
                           "leave out --phase or the --skip option")
    return phases


def _bound_id(ctx: Ctx, text: str) -> str:
    """The client's own id of a session, as its events carry it."""
    name = find_session(ctx, text, False) if text else ""
    if "~" in name and name != safe_name(text):
        raise CommandError("%s is not the whole id of the session" % name, "give all of it")
    return text if name == safe_name(text) else name


def _agree(ctx: Ctx, flow: Record, given: Record) -> list:
    """The person's consent to the checks, and the four lines that say what will happen. A check
    that was not typed here or agreed to before is asked about; where no person can answer it stays
    without consent, unless --agree says so."""
    checks = {phase: check_of(ctx, flow, phase) for phase in flow.phases}
    checks = {phase: command for phase, command in checks.items() if command}
    shown = {phase: command.replace("\n", "⏎ ") for phase, command in checks.items()}
    known = [*read_trust(ctx).checks.values(), digest_of(given.until)]
    missing = [] if given.agree else [
        phase for phase, command in checks.items() if digest_of(command) not in known]
    if missing and not given.shell and _os.isatty(0) and _os.isatty(1):
        show("the project wants these commands run as checks:",
             *["  %s: %s" % (phase, shown[phase]) for phase in missing], "agree? [y/N]")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("not agreed, nothing was changed",
                               "the commands stand in " + CONFIG_NAME)
        missing = []
    flow.token = _os.urandom(16).hex()
    agreed = {phase: command for phase, command in checks.items() if phase not in missing}
    if not write_trust(ctx, flow.token, agreed):
        raise cannot_write(trust_path(ctx) or "a state home: HOME is not set")
    told = "; ".join("%s `%s`" % pair for pair in shown.items())
    if missing:
        told += ": NOT agreed: %s; to agree, run it in a terminal of your own%s" % (
            ", ".join(missing), "" if given.shell else ", or with --agree")
    elif told:
        told += ": you agreed to run exactly this"
    who = "that prompts" if flow.any_prompt else "in which a person types a prompt"
    return ["phases: %s; begins with %s" % (", ".join(flow.phases), flow.phase),
            "checks: " + (told or "none, a phase ends on the agent's word"),
            "binds:  " + ("to session " + flow.session_id if flow.session_id else
                          "to the next session of this project " + who),
            "out:    %s, or type `ctx cancel` in the session" % own_command("auto stop")]


# --- the status line


def statusline_command(args: list) -> None:
    given = parse_words("statusline", args)
    run_guarded("statusline", read_environment(), _statusline, given.rest, bool(given.only))


def _statusline(env: dict, wrapped: list, only: bool) -> None:
    """Ours below the user's own, of which there is what it printed before it failed or hung."""
    import _signal

    data, look, theirs = dict_of(read_event_data(0)), read_look(bar=True), ""
    line = render_statusline(statusline_data(data, env), look)
    if wrapped:
        _signal.signal(_signal.SIGTERM, lambda *_: sys.exit(143))  # our child goes with us
        argv = wrapped if len(wrapped) > 1 else ["/bin/sh", "-c", wrapped[0]]
        if not IS_POSIX and len(wrapped) == 1:  # cmd has quoting rules of its own
            shell = read_environment(("COMSPEC",)).get("COMSPEC", "cmd")
            argv = '"%s" /d /s /c "%s"' % (shell, wrapped[0])
        out = run_timed(argv, format_json(data).encode(), None, None, WRAPPED_WAIT_S)[2]
        theirs = out.decode("utf-8", "replace").rstrip()
    if theirs:
        write_all(1, theirs.encode() + b"\n")  # the user's own program paints as it likes
    if not theirs or not only:
        show(line, look=look)


def statusline_data(data: dict, env: dict) -> dict:
    """What the line shows; on the way, the exact numbers are handed to the monitor."""
    window, model = dict_of(data.get("context_window")), dict_of(data.get("model"))
    size, usage = count_of(window.get("context_window_size")), window.get("current_usage")
    used = sum(count_of(usage.get(key)) for key in USAGE_KEYS) if isinstance(usage, dict) else None
    shown = {"model": one_line(text_of(model.get("display_name")) or text_of(model.get("id")), 30),
             "percent": None if used is None or not size else min(100, used * 100 // size),
             "left": max(0, size - (used or 0)), "phase": "", "pending": "", "near": False}
    session_id, cwd = text_of(data.get("session_id")), slashed(text_of(data.get("cwd")))
    start = project_folder("claude", env) or slashed(
        text_of(dict_of(data.get("workspace")).get("project_dir")))
    ctx = find_project(start, cwd, env) if session_id and not is_switched_off(env) else None
    if ctx is None:
        return shown
    set_run(ctx, env, time.time())
    ctx.session = safe_name(session_id)
    _hand_over(ctx, {"window": size, "used": used, "model": text_of(model.get("id"))})
    state, flow = read_session(ctx, ctx.session), read_workflow(ctx)
    point = compaction_point(ctx, state, size)
    shown["near"] = 0 < point - HANDOFF_BEFORE_COMPACTION <= (used or 0)
    if is_active(flow) and flow.session_id == session_id:
        shown["phase"] = "%s %d/%d" % (flow.phase, flow.iteration, flow.max_iterations)
    due = due_signals(ctx, read_signals(ctx, ctx.session), state.delivered)
    shown["pending"] = "paused" if is_paused(ctx, ctx.session) else (
        plural(len(due), "signal") if due else "")
    return shown


def _hand_over(ctx: Ctx, row: dict) -> None:
    """Only what is new: the client asks several times a second."""
    path = ctx.path("state", ctx.session + ".statusline")
    old = read_json(path)
    is_fresh = 0 <= ctx.now - (parse_iso(old.pop("at", None)) or 0.0) < HANDED_AGAIN_S
    if row["window"] and not (is_fresh and old == row):
        write_bytes(ctx, path, format_json(dict(row, at=format_iso(ctx.now, True))).encode())


# --- replay


def replay_command(args: list) -> int:
    import tempfile

    given, ctx, look = parse_words("replay", args), people_ctx(), read_look()
    agent = given.agent or "claude"
    if agent not in DIALECTS:
        raise wrong_usage("replay", "--agent is one of " + ", ".join(DIALECTS))
    events = [event for name in given.words for event in read_recorded(name)]
    with tempfile.TemporaryDirectory(prefix="ctx-replay-") as folder:
        copy_project(ctx, real_path(folder))
        results = [replay_event(ctx, real_path(folder), event, agent) for event in events]
    lines = [line for index, result in enumerate(results, 1)
             for line in render_replay(result, index, look)]
    show(*[format_json(results)] if given.json else lines, look=look)
    return 1 if any(result["error"] for result in results) else 0


def read_recorded(name: str) -> list:
    """The events in a file: one JSON value in all, or one in each line; a list holds many."""
    from json import loads

    data = read_fd(0, STDIN_LIMIT_BYTES) if name == "-" else read_bytes(name, STDIN_LIMIT_BYTES)
    if data is None:
        raise CommandError("cannot read " + name, "name a file with hook events as JSON")
    text, found = data.decode("utf-8", "replace").lstrip("\ufeff"), []
    try:
        found = [loads(text)]
    except (ValueError, RecursionError):
        for number, line in enumerate(text.split("\n"), 1):
            try:
                found += [parse_json(line)] if line.strip() else []
            except ValueError:
                raise CommandError("%s: line %d is not JSON" % (name, number),
                                   "one event is one JSON object") from None
    return [event for value in found for event in (value if isinstance(value, list) else [value])]


def copy_project(ctx: Ctx, scratch: str) -> None:
    """What the hooks look at, without links and within bounds; no pause, nothing of the user's own
    settings or consent."""
    import os

    names = [CONFIG_NAME, AUTO_STATE, OLD_HANDOFF, *INSTRUCTION_FILES, *ctx.get("startup.files")]
    names += [shown_path(ctx, path, "") for _, path in settings_files(ctx.root, {})[:2]]
    for folder, folders, files in os.walk(ctx.dir):
        names += [shown_path(ctx, slashed(folder) + "/" + name, "") for name in files
                  if name != "pause.json"]
        folders[:] = folders if len(names) < REPLAY_FILES else []
    room = REPLAY_BYTES
    for name in ("/tmp", "/home", "/project" + ctx.dir[len(ctx.root):]):
        os.makedirs(scratch + name)
    for name in names[:REPLAY_FILES]:
        source, target = join_path(ctx.root, name), join_path(scratch + "/project", name)
        data = read_bytes(source, room, follow=False) if name_inside(source, ctx.root) else None
        if data is not None and is_below(target, scratch + "/project"):
            room -= len(data)
            os.makedirs(parent_of(target), exist_ok=True)
            with open(target, "wb") as out:
                out.write(data)
            os.utime(target, (stat_of(source).st_mtime, stat_of(source).st_mtime))


def replay_event(ctx: Ctx, scratch: str, event: object, agent: str) -> dict:
    """One event through the registered loader, in a process of its own, as a user who has agreed
    to nothing."""
    root, name = scratch + "/project", text_of(dict_of(event).get("hook_event_name"))
    modes = {event: mode for event, mode, _ in REGISTRATIONS}
    mode = modes.get(DIALECTS[agent].events.get(name), "")
    result = {"event": name or "?", "mode": mode, "ms": 0, "reply": None, "error": ""}
    if not mode:
        return result
    moved = dict(_moved(event, ctx.root, root), transcript_path=event.get("transcript_path"))
    env = scratch_env(scratch, root)
    argv = hook_argv([sys.executable], mode, agent, real_path(__file__))
    took_s, _, out, err = run_timed(argv, format_json(moved).encode(), root, env)
    reply = _moved(parse_object(out), root, ctx.root) if out else None
    return dict(result, ms=round(took_s * 1000, 1), reply=reply, error=one_line(err, 400))


def _moved(value: object, old: str, new: str) -> object:
    """The value with one path exchanged for another in all its texts."""
    return parse_json(format_json(value).replace(format_json(old)[1:-1], format_json(new)[1:-1]))


# --- the words themselves


def completion_command(args: list) -> None:
    """bash and zsh by one function, fish by two lines a word; all from COMMANDS."""
    shell, words = parse_words("completion", args).words[0], {}
    for word, (usage, _) in COMMANDS.items():
        names = [name for group in parse_usage(usage) for name, _, _ in group]
        words[word] = " ".join(name.replace("|", " ") for name in names if not name.isupper())
    if shell == "fish":
        for word, (_, about) in COMMANDS.items():
            show("complete -c ctx -f -n __fish_use_subcommand -a %s -d '%s'" % (
                word, about.replace("'", "")))
            show("complete -c ctx -f -n '__fish_seen_subcommand_from %s' -a '%s'" % (
                word, words[word]))
        return
    show(*["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else [],
         "_ctx_hooks() {", "  local words=", '  case "${COMP_WORDS[1]}" in',
         *["    %s) words='%s' ;;" % pair for pair in words.items()], "  esac",
         "  [ \"$COMP_CWORD\" -gt 1 ] || words='%s'" % " ".join(words),
         '  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))', "}",
         "complete -o default -F _ctx_hooks ctx")

# =============================================================================
# Main
# =============================================================================
# The first word is a mode, for clients, or a command, for people.
RUN = {
    "status": status_command, "context": context_command, "why": why_command,
    "config": config_command, "signal": signal_command, "auto": auto_command,
    "pause": pause_command, "resume": resume_command, "statusline": statusline_command,
    "replay": replay_command, "wrap": wrap_command, "doctor": doctor_command,
    "completion": completion_command,
}


def help_page() -> list:
    return ["ctx_hooks %s: hooks that keep a coding agent on the thread of its work" % VERSION, "",
            "for people; each has --help with an example:",
            *["  %-13s %s" % (word, about) for word, (_, about) in COMMANDS.items()],
            "  %-13s Version and the file's sha256." % "--version", "",
            "for clients, with an event as JSON on stdin: " + ", ".join(MODES), "",
            "usage: " + own_command("COMMAND …")]


def run_command(word: str, args: list) -> "int | None":
    if word in ("--version", "-V"):
        show("ctx_hooks " + VERSION, "sha256 " + file_digest(__file__))
    elif word in ("--help", "-h", "help"):
        show(*help_page())
    elif word in RUN:
        return RUN[word](args)
    else:
        # Nothing on stdout: a client that runs this as a hook would show it to the model.
        near = near_word(word, [*RUN, *MODES])
        raise CommandError("unknown command: " + one_line(word, 40),
                           "did you mean %s?" % near if near else own_command("--help"))
    return 0


def run_for_person(word: str, args: list) -> int:
    """The exit code; a failure is two lines, a reader that has seen enough is none."""
    try:
        if sys.stdout is not None:
            sys.stdout.reconfigure(encoding="utf-8", errors="replace")
        return run_command(word, args) or 0
    except CommandError as error:
        lines = [text.replace("\n", " ") for text in (str(error), error.hint)]
        write_stderr("error: %s\nhint: %s\n" % tuple(lines))
        return error.code
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        return end.code or 0
    except OSError as error:
        if error.errno in (9, 22, 32):  # closed, so on Windows, a pipe without a reader
            return 0
        write_stderr("error: %s\nhint: %s\n" % (error, own_command("doctor")))
        return 1


def main(argv: "list | None" = None) -> None:
    args = sys.argv[1:] if argv is None else argv
    word = args[0] if args else "--help"
    if word in MODES:
        hook_main(args)
    _os._exit(run_for_person(word, args[1:]))  # a second flush could only fail again


if __name__ == "__main__":
    main()
