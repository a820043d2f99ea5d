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
    Messages      limits, thresholds, and the longer texts for the agent and the person
    Clock         ISO 8601 and epoch seconds, the deadline
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
# Seconds, byte counts, thresholds, names, and the longer texts for the agent and the person, all
# of it public interface. A short sentence stands where it is said.
HOOK_LIMIT_S, CLEANUP_LIMIT_S = 4.0, 1.2  # the client ends a SessionEnd hook after 1.5 s
STDIN_WAIT_S, STDIN_LIMIT_BYTES = 2.0, 32 * 1024 * 1024
EVENT_KEPT_BYTES = 128 * 1024  # of a larger event the tool's response is not kept
LOCK_WAIT_S = 2.5  # 50 calls at once on a busy machine take two
LOCK_LEFT_S = 60  # Windows: an older lock file was left by a loss of power
REPLACE_WAIT_S, REMOVE_WAIT_S = 0.8, 0.2  # Windows: a reader keeps a file as it is for a moment
FILE_LIMIT_BYTES, STATE_LIMIT_BYTES = 256 * 1024, 4 * 1024 * 1024
LIST_LIMIT, LINE_LIMIT = 200, 8192  # entries of a list and letters of a line in the settings
SIGNAL_LIMIT_BYTES, SIGNAL_COUNT_LIMIT = 64 * 1024, 4000
EVENTS_LIMIT_BYTES, ERRORS_LIMIT_BYTES = 512 * 1024, 64 * 1024
ASIDE_KEEP = 20
NAME_LIMIT = 80
REPLY_LIMIT = 9_900  # the client cuts a hook's text at 10,000 UTF-16 units
GATE_CONTENT_LIMIT = STARTUP_LIMIT = 9_000
ORPHAN_AGE_S, MARKER_AGE_S = 7 * 86400, 15 * 86400
COLLECT_LIMIT_S, COLLECT_COUNT, COLLECT_EVERY_S = 0.5, 200, 3600
DEFAULT_TTL_S, TTL_LIMIT_S = 300, 30 * 86400
HALF_WRITTEN_S = 2.0
SAME_EVENT_S = 2.0  # two kits registered for one client: the second event counts for nothing
CLOCK_SKEW_S = 60

DEFAULT_CONTEXT_DIR, CONFIG_NAME = ".context", ".contextrc"
AUTO_STATE = ".caw/auto-state.json"
OLD_HANDOFF = ".claude/ll-continue-prompt.md"
RUNTIME_FOLDERS = ("state", "state/aside", "signals", "signals/sessions", "signals/global",
                   "handoffs")
MARKER_PREFIX, QUIET_PREFIX, ASKED_PREFIX = "ctx-loaded-", "ctx-quiet-", "ctx-asked-"
SEVERITIES = ("info", "warning", "critical")
GITIGNORE_TEXT = (
    "# runtime files of ctx_hooks; the context files beside this one are yours\nsignals/\nstate/\n"
    "handoffs/\nmonitor-state.json\nmetrics.json\nevents.jsonl\nevents.jsonl.1\n.gitignore\n")
INSTRUCTION_FILES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", "QWEN.md",
                     ".github/copilot-instructions.md")
CONTEXT_FILES = ("CONSTITUTION.md", "TASKS.md", "CONVENTIONS.md", "DECISIONS.md", "LEARNINGS.md",
                 "AGENT_PLAYBOOK.md")

SIGNAL_HEAD_MANY = "⚠️ [ctx monitor] {count} issues:"
SIGNAL_REST = "  … {count} more will follow"
GATE_DIRECTIVE = "STOP. Read your context files before proceeding: {files}"
GATE_STATEMENT = "The project's context files say this ({files}):"
GATE_CHECKPOINT = ("When you have read them, print this line, filled in: "
                   "Context Loaded — Read: … Skipped: …")

HEALTH_LEVELS = (  # fires at, clears below, severity
    (95, 85, "critical"), (85, 75, "warning"), (70, 60, "warning"))
HEALTH_SUMMARY = "Context: {percent} of the window full{note}."
HEALTH_ACTIONS = {  # level -> without a handoff, with one to write, with one that is written
    70: ("Keep answers short{decisions} and plan a good place to stop",) * 3,
    85: ("Summarize the current state in 5 bullets, then suggest /clear to the person",
         "Summarize the current state, write the handoff to {path}, suggest /clear to the person",
         "The handoff is written: finish the step you are at, then suggest /clear to the person"),
    95: ("Suggest /clear to the person: the next messages may not fit",
         "Write the handoff to {path} now, suggest /clear to the person: soon nothing more fits",
         "The handoff is written: suggest /clear to the person, the next messages may not fit"),
}
HEALTH_DECISIONS = ", write open decisions into "
REPETITION_WINDOW = 8
REPETITION_LEVEL, REPETITION_CLEAR, REPETITION_FAILED = 4.0, 2.0, 1.5  # a failing one counts more
REPETITION_ACTION = ("Stop and try a different approach; say what you expected and what happened "
                     "instead")
AUDIT_ACTION = "Check that they still match the code and update or confirm them"
AUDIT_EVERY_CALLS = 25

DEFAULT_WINDOW, LARGE_WINDOW = 200_000, 1_000_000
TOKENS_LIMIT = 20_000_000  # a larger count is a broken row, not a conversation
CHARS_PER_TOKEN = 4
CALL_OVERHEAD_TOKENS, IMAGE_TOKENS = 60, 1_600
ESTIMATE_BASE_TOKENS = 15_000  # the client's own system prompt and tools
TRANSCRIPT_STEP_BYTES, TRANSCRIPT_NEAR_BYTES = 32 * 1024, 1024 * 1024
TRANSCRIPT_LINE_BYTES, TRANSCRIPT_LIMIT_BYTES = 1024 * 1024, 4 * 1024 * 1024
TRANSCRIPT_WAIT_S, TRANSCRIPT_POLL_S = 0.15, 0.015

HANDOFF_PERCENT, HANDOFF_BEFORE_COMPACTION = 80, 25_000
HANDOFF_RESET_MARGIN = 10  # percent below the threshold that only a compaction explains
HANDOFF_LIMIT_BYTES, HANDOFF_KEEP_S = 512 * 1024, 7 * 86400
HANDOFF_REMINDER = (
    "{request} Put there: goal, current state, decisions and why, next steps, open files.{command} "
    "This note comes with every tool result until there is a handoff.")
HANDOFF_WRITE = (
    "Write a handoff for the next session to {path} now, before anything else; where that is not "
    "permitted, end your answer with it, between a line BEGIN HANDOFF and a line END HANDOFF.")
HANDOFF_PRINT = (
    "End your answer with a handoff for the next session, between a line BEGIN HANDOFF and a line "
    "END HANDOFF; it is saved from there.")
HANDOFF_UNSAVED = (
    "End your answer with a handoff for the next session: goal, current state, decisions and why, "
    "next steps, open files. {path} cannot be written, so the person has to keep it.")
HANDOFF_DONE_PERSON = "ctx: handoff written, /clear when you like; the next session starts from it"
MECHANICAL_HEAD = ("# Handoff, written by ctx_hooks from the transcript\n\n"
                   "The agent left none. Session {session}, {when}{branch}.\n")
CONTINUATION_HEAD = "## Auto Mode Continuation"

# =============================================================================
# Clock
# =============================================================================
# Inside, time is epoch seconds; ISO 8601 with Z stands only on disk. `datetime` would cost 25 %
# of a bare start, so the calendar arithmetic is done here. One deadline bounds everything.
_ONE_DIGIT = dict.fromkeys(map(ord, "123456789"), "0")


def format_iso(seconds: float, fraction: bool = False) -> str:
    """2026-02-03T10:45:00Z, with milliseconds when `fraction`."""
    whole, millis = divmod(int(seconds * 1000 + (0.5 if fraction else 0)), 1000)
    whole = min(max(whole, 0), 32503679999)  # Windows knows no year after 3000
    text = "%04d-%02d-%02dT%02d:%02d:%02d" % time.gmtime(whole)[:6]
    return text + (".%03dZ" % millis if fraction else "Z")


def parse_iso(text: object) -> "float | None":
    """Epoch seconds of an ISO 8601 time (Z, offset, fraction, date alone; naive = UTC), or None."""
    if not isinstance(text, str):
        return None
    text = text.strip().upper()
    text += "T00:00" if len(text) == 10 else ""
    cut = len(text) - 1 if text[-1:] == "Z" else max(text.rfind("+", 11), text.rfind("-", 11))
    text, zone = (text[:cut], text[cut:].replace(":", "")) if cut >= 0 else (text, "Z")
    text, dot, fraction = text.replace(",", ".").partition(".")
    text += ":00" if len(text) == 16 else ""
    zone = "+0000" if zone == "Z" else zone + "00" if len(zone) == 3 else zone
    shape = (text.replace(" ", "T") + zone.replace("-", "+")).translate(_ONE_DIGIT)
    is_part = fraction.isascii() and fraction.isdigit()
    if shape != "0000-00-00T00:00:00+0000" or (dot and not is_part):
        return None
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
    hour, minute, second = int(text[11:13]), int(text[14:16]), int(text[17:19])
    zone_hour, zone_minute = int(zone[1:3]), int(zone[3:])
    days = _day_number(year, month) + day - 1
    is_day = 0 < month < 13 and 0 < day and (day < 29 or days < _day_number(year, month + 1))
    is_time = hour < 24 and minute < 60 and second < 61 and zone_hour < 24 and zone_minute < 60
    if not is_day or not is_time:
        return None
    offset = (zone_hour * 60 + zone_minute) * (-1 if zone[0] == "-" else 1)
    part = float("0." + fraction[:9]) if dot else 0.0
    return days * 86400 + (hour * 60 + minute - offset) * 60 + second + part


def _day_number(year: int, month: int) -> int:
    """Days from 1970-01-01 to the first of the month; a year that begins in March has its odd day
    at the end."""
    if month < 3:
        year, month = year - 1, month + 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (month * 153 - 457) // 5 - 719468


def is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12


_DEADLINE: list = []  # the monotonic times that were set, the last one first


def set_deadline(at: float) -> None:
    """The process ends in silence at this monotonic time, whatever it hangs in; set again, the time
    moves. By a thread: no handler of a signal runs inside a call to a hung file system."""
    import _thread

    _DEADLINE.insert(0, at)
    if len(_DEADLINE) == 1:
        _thread.start_new_thread(_exit_later, ())


def _exit_later() -> None:
    while time.monotonic() < _DEADLINE[0]:
        time.sleep(max(_DEADLINE[0] - time.monotonic(), 0.001))
    _os._exit(0)


def add_time(seconds: float) -> None:
    """What comes now has a limit of its own."""
    if _DEADLINE:
        set_deadline(_DEADLINE[0] + seconds)

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


def find_object(text: object) -> "dict | None":
    """The JSON object that the text or the bytes begin with; None when there is none."""
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    try:
        value = _codec()[0](text, len(text) - len(text.lstrip("\ufeff \t\r\n")))[0]
    except (ValueError, StopIteration, SystemError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parse_object(text: object) -> dict:
    return find_object(text) or {}


def format_json(value: object) -> str:
    """One line of ASCII JSON; ValueError or TypeError for what JSON cannot hold."""
    try:
        return _codec()[1](value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _codec() -> tuple:
    """(scan a text from an index on, encode a value)."""
    try:
        library = _load_json()
        encode = library.make_encoder(  # what it does not know it calls None for: a TypeError
            None, None, library.encode_basestring_ascii, None, ": ", ", ", False, False, False)
        return library.make_scanner(_SCANNING), lambda value: "".join(encode(value, 0))
    except (ImportError, AttributeError):
        import json

        return (json.JSONDecoder(strict=False, parse_float=_SCANNING.parse_float,
                                 parse_constant=_SCANNING.parse_constant).raw_decode,
                json.JSONEncoder(allow_nan=False).encode)


def _load_json() -> object:
    """The library `_json` straight from the interpreter's own folder of libraries: to search for it
    through the whole path takes three times as long."""
    folder = sys.path[-1] if sys.flags.isolated and sys.path else ""
    if "_json" not in sys.modules and folder.endswith("/lib-dynload"):
        spec = Record(name="_json", origin=folder + "/_json" + _imp.extension_suffixes()[0])
        try:
            sys.modules["_json"] = _imp.create_dynamic(spec)
            _imp.exec_dynamic(sys.modules["_json"])
        except (ImportError, AttributeError):
            sys.modules.pop("_json", None)  # built in, or in another place
    import _json

    return _json


# --- what is checked once, at the edge: a record by its table of (key, default, kind); a kind is a
# type, "time", "count", "texts", another table, or a list with one for an object of records


def load_record(data: object, schema: tuple) -> Record:
    """The checked record of a JSON object: every key of the schema is an attribute of its kind, a
    wrong type counts as missing; what another version put there stays."""
    values = dict(data) if isinstance(data, dict) else {}
    for key, default, kind in schema:
        value = values.get(key)
        if not isinstance(kind, type) or not isinstance(value, kind):  # most are as they should be
            values[key] = _load_field(value, default, kind)
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
    """Of a value that is not simply of its type."""
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
    return kind() if kind in (list, dict) else default


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
_DEVICES = frozenset(["con", "prn", "aux", "nul"] + [
    port + digit for port in ("com", "lpt") for digit in "123456789"])
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
    environment. `owner` is the context folder's stat; `ledger` that of the handoffs once it was
    read; `agent` the client's dialect, `length` how it counts a text."""

    owner, ledger, now, env, tmp, state_home = None, None, 0.0, {}, "", ""
    mode, session, agent, length = "", "", "claude", len

    def __init__(self, root: str, directory: str, config: dict, problems: list) -> None:
        self.root, self.dir, self.config, self.problems = root, directory, config, problems

    def get(self, key: str) -> object:
        """A setting: its checked value or its default."""
        return self.config[key]

    def path(self, *names: str) -> str:
        """A path below the context folder."""
        return "/".join((self.dir,) + names)


_CLOSED = _os.O_CLOEXEC if IS_POSIX else _os.O_BINARY | _os.O_NOINHERIT
_NOFOLLOW, _NONBLOCK = (_os.O_NOFOLLOW, _os.O_NONBLOCK) if IS_POSIX else (0, 0)
_READ_FLAGS = _os.O_RDONLY | _NONBLOCK | _CLOSED
_WRITE_FLAGS = _os.O_WRONLY | _os.O_CREAT | _NOFOLLOW | _CLOSED
_LOCK_FLAGS = _os.O_RDWR | _os.O_CREAT | _NOFOLLOW | _CLOSED | (
    0 if IS_POSIX else _os.O_EXCL | _os.O_TEMPORARY)
_LOCK_END = ".lock" if IS_POSIX else ".nt.lock"  # WSL and Windows may share the disk
TEMP_END = ".ctx.tmp"  # one that is left is of a writer that was killed
_KIND, _REGULAR, _FOLDER, _LINK = 0o170000, 0o100000, 0o040000, 0o120000
_SHARED_FILES = frozenset(("monitor-state.json", "metrics.json", ".gitignore"))
_TOP_FILES = _SHARED_FILES | {"events.jsonl", "events.jsonl.1"}
MARKER_PREFIXES = (MARKER_PREFIX, QUIET_PREFIX, ASKED_PREFIX)


def may_write(ctx: Ctx, path: str) -> bool:
    """The files of the contract and no others, whatever a setting names. That none of our folders
    in the context folder is a link was seen when the project was opened."""
    if "/../" in path:
        return False
    folder, is_marker = parent_of(path), base_name(path).startswith(MARKER_PREFIXES)
    is_state = bool(ctx.state_home) and is_below(path, ctx.state_home)
    if is_state or (is_marker and folder == ctx.tmp.rstrip("/")):
        return True  # asked first: the temp folder and the home folder can be a project's root
    if is_below(path, ctx.dir):
        first, _, rest = path[len(ctx.dir) + 1:].partition("/")
        return first in ("state", "signals", "handoffs") if rest else first in _TOP_FILES
    inside = path[len(ctx.root.rstrip("/")) + 1:] if is_below(path, ctx.root) else ""
    is_named = inside in (AUTO_STATE, ".caw/.gitignore") or inside in INSTRUCTION_FILES
    return is_named and (folder == ctx.root or not is_link(folder))


def read_bytes(path: str, limit_bytes: int = FILE_LIMIT_BYTES, follow: bool = True, start: int = 0,
               base: str = "") -> "bytes | None":
    """At most `limit_bytes` of a regular file from `start` on, else None."""
    fd = open_regular(path, follow, base)
    if fd < 0:
        return None
    try:
        if start:
            _os.lseek(fd, start, 0)
        data = _os.read(fd, min(limit_bytes, 1 << 16))  # of a file, less means that it is all
        return data + read_fd(fd, limit_bytes - len(data)) if len(data) == 1 << 16 else data
    except OSError:
        return None
    finally:
        _os.close(fd)


def read_text(path: str, limit_bytes: int = FILE_LIMIT_BYTES) -> str:
    return (read_bytes(path, limit_bytes) or b"").decode("utf-8", "replace")


def open_regular(path: str, follow: bool = True, base: str = "") -> int:
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
        if is_regular(_os.fstat(fd)):
            return fd
    except (OSError, ValueError):
        pass  # not there, or a handle gone stale
    _close(fd)
    return -1


def read_fd(fd: int, limit_bytes: int) -> bytes:
    """Up to the end or the limit; a pipe gives its data in pieces."""
    data = bytearray()
    while len(data) < limit_bytes:
        piece = _os.read(fd, min(limit_bytes - len(data), 1 << 16))  # more would be mapped anew
        if not piece:
            break
        data += piece
    return bytes(data)


def name_inside(path: str, base: str) -> str:
    """The path as seen from `base`, links resolved; "" when it is not below it. Where there is no
    link on the way, a few lstats say so."""
    probe = path
    while probe != base and is_below(probe, base) and not is_link(probe) and probe[-3:] != "/..":
        probe = parent_of(probe)
    if probe != base:
        path, base = real_path(path), real_path(base)
    return path[len(base):].lstrip("/") if is_below(path, base) else ""


def stat_of(path: str, follow: bool = True) -> object:
    """The stat result, or None for whatever reason there is none."""
    try:
        return _os.stat(path, follow_symlinks=follow)
    except (OSError, ValueError):
        return None


def is_missing(path: str) -> bool:
    """There is certainly nothing: an error of the disk or the network must not pass for that."""
    try:
        _os.lstat(path)
    except (OSError, ValueError) as error:
        return isinstance(error, (FileNotFoundError, NotADirectoryError))
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
    return _os.access(path, _os.W_OK)


def is_own(info: object) -> bool:
    """A regular file of this user's."""
    return is_regular(info) and (not IS_POSIX or info.st_uid == _os.geteuid())


def list_dir(path: str, limit: int = 200_000, order: object = sorted) -> list:
    """The names in a folder, sorted or as they come; of one beyond all bounds some."""
    try:
        return order(_os.listdir(path)[:limit])
    except (OSError, ValueError):
        return []


def remove_file(path: str) -> bool:
    return insist(_os.unlink, path)


def insist(change: object, *args) -> bool:
    """Whether the system took the change. On Windows anybody who reads a file at this moment keeps
    it from being changed, so it is tried again for a while."""
    deadline = time.monotonic() + (REPLACE_WAIT_S if args[1:] else REMOVE_WAIT_S)
    while time.monotonic() < deadline:
        try:
            change(*args)
            return True
        except (OSError, ValueError) as error:
            if IS_POSIX or not isinstance(error, PermissionError) or is_dir(args[-1]):
                return False
        time.sleep(0.01)
    return False


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[_os.write(fd, data):]


def write_bytes(ctx: Ctx, path: str, data: bytes, durable: bool = False,
                expected: "bytes | None" = None) -> bool:
    """Replace the file atomically. What may hold conversation text is for its owner only, the rest
    keeps its mode or is as open as the context folder. With `expected` only when exactly that
    stands there still: what somebody saved meanwhile stays."""
    if not _make_way(ctx, path):
        return False
    temp = "%s.%d-%x%s" % (path, _os.getpid(), time.time_ns() & 0xFFFFFFFF, TEMP_END)
    if _write(temp, data, _os.O_EXCL, durable):
        info, mode = stat_of(path, follow=False), 0
        if base_name(path) in _SHARED_FILES or not is_below(path, ctx.dir):
            mode = info.st_mode & 0o777 if is_regular(info) else ctx.owner.st_mode & 0o666
        _give_rights(ctx, temp, mode, info)
        is_same = expected is None or expected == (
            b"" if is_missing(path) else read_bytes(path, len(expected) + 1, follow=False))
        if is_same and insist(_os.replace, temp, path):
            return True
    remove_file(temp)
    return False


def claim_file(ctx: Ctx, path: str, data: bytes) -> "bool | None":
    """Create a file: True for the one who did, False when it is there, None: cannot be told."""
    return _write(path, data, _os.O_EXCL) if may_write(ctx, path) else None


def _write(path: str, data: bytes, how: int, durable: bool = False) -> "bool | None":
    """Into a new file or at the end of one; False when something stands where a new one should be,
    None for any other failure. No link is followed."""
    try:
        fd = _os.open(path, _WRITE_FLAGS | how, 0o600)
        try:
            if is_regular(_os.fstat(fd)):
                write_all(fd, data)
            if durable:
                _os.fsync(fd)
        finally:
            _os.close(fd)
    except (OSError, ValueError) as error:
        return False if isinstance(error, FileExistsError) else None
    return True


def _make_way(ctx: Ctx, path: str) -> bool:
    """Whether it may be written; its folder and the ignore list, if there is none, come first."""
    ignored = ctx.path(".gitignore")
    if not may_write(ctx, path) or not make_folder(ctx, parent_of(path)):
        return False
    if path != ignored and is_below(path, ctx.dir) and is_missing(ignored):
        write_bytes(ctx, ignored, GITIGNORE_TEXT.encode())
    return True


def make_folder(ctx: Ctx, path: str) -> bool:
    """Create a folder that holds files of ours, never the context folder; True when it is there."""
    if is_dir(path):
        return True
    parent = parent_of(path)  # a drive that is not there is its own
    if path in (ctx.root, ctx.dir, parent) or not make_folder(ctx, parent):
        return False
    try:
        _os.mkdir(path, 0o700)
    except (OSError, ValueError):
        return is_dir(path)  # made by another process just now
    _give_rights(ctx, path, ctx.owner.st_mode & 0o7777)
    return True


def _give_rights(ctx: Ctx, path: str, mode: int = 0, before: object = None) -> None:
    """In the project: the mode; and what root makes belongs to the one whose file it was before,
    else to the one whose project it is."""
    if not IS_POSIX or not is_below(path, ctx.root):
        return
    if mode:
        insist(_os.chmod, path, mode)
    owner = before if is_regular(before) and before.st_uid else ctx.owner
    if owner.st_uid and _os.geteuid() == 0:
        insist(_os.lchown, path, owner.st_uid, owner.st_gid)  # a container's root may not


def make_private(path: str) -> None:
    """An agent writes with the mode that everything gets."""
    info = stat_of(path, follow=False)
    if IS_POSIX and is_own(info) and info.st_mode & 0o077:
        insist(_os.chmod, path, 0o600)


def append_line(ctx: Ctx, path: str, text: str, limit_bytes: int) -> None:
    """Whole lines of several processes; at the limit it becomes `.1`; a failure costs the line. On
    POSIX a line is whole without the lock, which is for making it `.1`: once, and no next one."""
    lock = -1
    if not _make_way(ctx, path):
        return
    if not IS_POSIX:
        lock = take_lock(ctx, path)
    make_private(path)  # it may have come with a clone
    if lock is not None and _write(path, text.encode("utf-8", "replace"),
                                   _os.O_APPEND | _NONBLOCK):
        _give_rights(ctx, path)
    if _is_over(path, limit_bytes):
        lock = take_lock(ctx, path, 0.1) if IS_POSIX else lock
        if lock is not None and _is_over(path, limit_bytes):
            insist(_os.replace, path, path + ".1")
    _close(-1 if lock is None else lock)


def _is_over(path: str, limit_bytes: int) -> bool:
    info = stat_of(path, follow=False)
    return is_regular(info) and info.st_size > limit_bytes


def take_lock(ctx: Ctx, path: str, wait_s: float = 0.0) -> "int | None":
    """The lock of a file, to be closed; None: another process kept it for the whole wait; -1: none
    can be had here (read-only, a file system without locks), go on without. On Windows, where a
    refused lock sleeps for a second, it is a file that one can make and goes with its maker."""
    path, pause_s = lock_path(ctx, path), 0.0005
    deadline = time.monotonic() + (wait_s or LOCK_WAIT_S)
    info = None if IS_POSIX else stat_of(path)  # once: every look keeps the file from going
    if info is not None and time.time() - info.st_mtime > LOCK_LEFT_S:
        remove_file(path)
    if not _make_way(ctx, path) or (info is not None and not is_regular(info)):
        return -1
    while time.monotonic() < deadline:
        fd = -1
        try:
            fd = _os.open(path, _LOCK_FLAGS, 0o600 | ctx.owner.st_mode & 0o066)
            _give_rights(ctx, path)
            if IS_POSIX:
                _os.lockf(fd, _os.F_TLOCK, 0)  # built in, while fcntl is a library to load
            if not IS_POSIX or _os.fstat(fd).st_nlink:
                return fd  # with none, cleanup removed the file: lock its successor
        except (OSError, ValueError) as error:
            is_held = isinstance(error, (BlockingIOError, FileExistsError, PermissionError))
            if not is_held or (IS_POSIX and fd < 0):
                _close(fd)
                return -1
        _close(fd)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.01)
    return None


def _close(fd: int) -> None:
    if fd >= 0:
        _os.close(fd)


def lock_path(ctx: Ctx, path: str) -> str:
    """A session's state and its claims have one."""
    stem, _, kind = base_name(path).rpartition(".")
    return ctx.path("state", (stem if kind in ("json", "claims") else base_name(path)) + _LOCK_END)


def load_json(path: str, follow: bool = True) -> "dict | None":
    """The object in the file; {} when there is no file; None when it is corrupt or unreadable."""
    data = read_bytes(path, STATE_LIMIT_BYTES, follow)
    return {} if data is None and is_missing(path) else find_object(data or b"")


def read_json(path: str) -> dict:
    """For looking only: whatever is wrong counts as empty."""
    return load_json(path) or {}


def update_json(ctx: Ctx, path: str, change, schema: tuple = ()) -> tuple:
    """Locked read-modify-write: `change(data)` edits the object, or the record of the schema, in
    place. (whether it stands on disk now, what `change` returned); (False, None): never called.
    What cannot be used is set aside and begun anew."""
    lock = take_lock(ctx, path)
    if lock is None:
        return False, None
    try:
        before = read_bytes(path, STATE_LIMIT_BYTES, follow=False)
        data = {} if before is None and is_missing(path) else find_object(before or b"")
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
        is_there = after == (before or b"{}")  # nothing need not be written down
        return is_there or write_bytes(ctx, path, after), result
    finally:
        _close(lock)


def set_aside(ctx: Ctx, path: str) -> str:
    """Move what cannot be used out of the way, the oldest of many go; the new path or ""."""
    folder, stamp = ctx.path("state", "aside"), format_iso(time.time(), True).replace(":", "")
    target = "%s/%s-%d.%s" % (folder, stamp, _os.getpid(), base_name(path))
    if not (may_write(ctx, path) and make_folder(ctx, folder) and insist(_os.rename, path, target)):
        return ""
    for name in list_dir(folder)[:-ASIDE_KEEP]:
        remove_file(folder + "/" + name)
    return target

# =============================================================================
# Config
# =============================================================================
# .contextrc is a small YAML subset: nested mappings by indentation, scalars, [inline, lists],
# dash lists, 'quotes', "quotes", # comments, CRLF, BOM. Scalars are texts, a setting's kind says
# what one means. A bad line is reported with line and column and skipped, never fatal.
#
#     gate:
#       mode: content          # directive | content | off
#       files: [TASKS.md, "NOTES.md"]
SETTINGS = (  # key, default, kind (a word, a tuple: one of these, a list: many of one), meaning
    ("context_dir", DEFAULT_CONTEXT_DIR, "path", "folder of the context files, below the project"),
    ("allow_outside", False, "bool", "the user's own file only: its paths may leave the project"),
    ("gate.mode", "directive", ("directive", "content", "off"), "name the files, or put them in"),
    ("gate.files", list(CONTEXT_FILES), ["path"], "by priority, seen from `context_dir`"),
    ("gate.message", "", "text", "own wording of the gate; `{files}` is filled in"),
    ("monitor.inject_min_severity", "warning", SEVERITIES, "signals below this stay on disk"),
    ("monitor.inject_at", ["prompt", "tool"], [("prompt", "tool")], "what signals come with"),
    ("monitor.notify", "off", ("off", "bell", "desktop"), "for the person, when one is critical"),
    ("monitor.context_window", 0, "count", "size of the context window in tokens; 0 finds out"),
    ("handoff.enabled", True, "bool", "ask for a handoff near the limit, and write one without it"),
    ("handoff.threshold", "auto", "threshold", "ask at this percent; `auto` minds the compaction"),
    ("handoff.file", ".context/handoffs/{session}.md", "path", "where the agent writes it"),
    ("handoff.cooldown_s", 0, "count", "seconds between two reminders; 0: after every tool call"),
    ("handoff.command", "", "text", "a command that writes the handoff, named in the reminder"),
    ("audit.stale_days", 14, "count", "remind of context files untouched for so long; 0 never"),
    ("startup.enabled", True, "bool", "deliver the handoff and `startup.files` to new sessions"),
    ("startup.files", [], ["path"], "more files to deliver, in order of priority"),
    ("startup.max_age_hours", 72, "count", "an older handoff is not delivered"),
    ("startup.budget_chars", 4000, "count", "room for the startup context, at most 9000"),
    ("startup.require_ack", True, "bool", "ask for an acknowledgement"),
    ("startup.retry_backoffs_s", [1, 2, 5, 10, 30], ["count"], "seconds after each attempt"),
    ("startup.max_attempts", 5, "count", "attempts before giving up"),
    ("startup.file_fallback_after_attempts", 3, "count", "attempts before the file is written"),
    ("startup.fallback_file", "auto", ("auto",) + INSTRUCTION_FILES, "`auto`: the client's own"),
    ("auto.phases", [], ["text"], "the project's own phases instead of the nine"),
    ("auto.about", {}, "table", "`auto.about.<phase>`: a sentence on what the phase is about"),
    ("auto.done_when", {}, "table", "`auto.done_when.<phase>`: a command that then must exit 0"),
    ("auto.check_timeout_s", 120, "count", "seconds for such a command"),
    ("wrap.ready_patterns", [], ["text"], "regular expressions of a prompt that waits for input"),
)
DEFAULTS = {key: default for key, default, _, _ in SETTINGS}
_KINDS = {key: kind for key, _, kind, _ in SETTINGS}
_PATHS = ("gate.files", "startup.files", "handoff.file", "context_dir")  # the first needs the last
_SWITCHES = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
_ESCAPES = (("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r"), ('\\"', '"'))


def parse_config(text: str, is_user: bool = False) -> tuple:
    """(values by dotted key, problems) of a .contextrc; only known keys with values of their kind
    remain. `is_user`: the user's own file, the only one that may allow paths outside."""
    pairs, problems = parse_yaml(text)
    values, places = {}, {}
    for key, value, *place in pairs:
        table, _, entry = key.rpartition(".")
        is_entry = bool(entry) and _KINDS.get(table) == "table"
        kind = "text" if is_entry else _KINDS.get(key)
        checked, wanted = _checked(value, kind)
        if kind is None:
            problems.append((*place, "unknown setting `%s`" % key))
        elif key == "allow_outside" and not is_user:
            problems.append((*place, "`allow_outside` counts only in the user's own contextrc"))
        elif checked is None:
            problems.append((*place, "`%s` wants %s" % (key, wanted)))
        elif is_entry:
            values.setdefault(table, {})[entry] = checked
        else:
            values[key], places[key] = checked, place
    for key in _PATHS:
        problem = key in values and _path_problem(key, values)
        if problem:
            problems.append((*places[key], problem))
            del values[key]
    return values, sorted(problems)[:LIST_LIMIT]


def _path_problem(key: str, values: dict) -> str:
    """By the text of the paths alone; links are looked at when the file is."""
    root = "/\0"  # which no path can name, so none leads out and in again
    folder = values.get("context_dir", DEFAULT_CONTEXT_DIR) if key == "gate.files" else "."
    for name in values[key] if isinstance(values[key], list) else [values[key]]:
        is_inside = name[0] != "~" and is_below(join_path(join_path(root, folder), name), root)
        if not is_inside and not values.get("allow_outside"):
            return "`%s` names a file outside the project" % key
        is_unread = name.lower().startswith((".git/", ".claude/")) and name != OLD_HANDOFF
        if is_unread and key == "handoff.file":
            return "`handoff.file` lies where nothing is delivered from"
    return ""


def _checked(value: object, kind: object) -> tuple:
    """(the value made exact, or None when it is not of the kind; what the kind wants)."""
    if isinstance(kind, list):
        items = value if isinstance(value, list) else [value]
        checked = [_checked(item, kind[0])[0] for item in items[:LIST_LIMIT]]
        exact = checked if kind == ["count"] else list(dict.fromkeys(checked))
        return None if None in checked else exact, "a list, each " + _checked(None, kind[0])[1]
    text, number = text_of(value), None
    if isinstance(kind, tuple):
        choices = {choice.lower(): choice for choice in kind}
        return choices.get(text.lower()), "one of " + ", ".join(kind)
    if is_digits(text.replace(".", "", 1)):
        number = float(text) if "." in text else int(text)
    percent = number if number and 1 <= number <= 100 else None
    return {
        "bool": (_SWITCHES.get(text.lower()), "true or false"),
        "count": (number, "a number from 0"),
        "threshold": ("auto" if text == "auto" else percent, "`auto` or a number from 1 to 100"),
        "path": (text if text and text.isprintable() else None, "a path"),  # the agent sees it
        "text": (value if isinstance(value, str) else None, "a text"),
    }.get(kind, (None, "entries below it"))


def parse_yaml(text: str) -> tuple:
    """([(dotted key, value, line, column)], problems). Never raises."""
    pairs, problems, prefixes = [], [], [(0, "")]  # the open mappings: column, dotted prefix
    head = None  # the last key when it has no value: the pair of a dash list that may come
    for number, line in enumerate(text.lstrip("\ufeff").split("\n"), 1):
        body = strip_comment(line[:LINE_LIMIT]).rstrip()
        bare = body.lstrip(" ")
        place = column = len(body) - len(bare) + 1
        if bare in ("", "---", "..."):
            continue
        try:
            if len(line) > LINE_LIMIT:
                raise ValueError("line is too long")
            key, rest = _split_line(bare)
            if key != "-":
                while column <= prefixes[-1][0]:
                    prefixes.pop()
                head, key = None, prefixes[-1][1] + key
            elif head is None or column < head[3]:
                raise ValueError("list item without a key above it")
            place = len(body) - len(rest) + 1
            value = _parse_value(rest)
        except ValueError as error:
            problems.append((number, place, str(error)))
            continue
        if key == "-":
            if not head[1]:
                pairs.append(head)
            head[1].append(value)
        elif rest:
            pairs.append((key, value, number, column))
        else:
            prefixes.append((column, key + "."))
            head = (key, [], number, column)
    return pairs, problems


def _split_line(bare: str) -> tuple:
    """(key, text of the value); the key of a list's item is a dash."""
    if bare[0] == "\t":
        raise ValueError("tab in the indentation; use spaces")
    if bare == "-" or bare.startswith("- "):
        return "-", bare[1:].strip()
    key, colon, rest = bare.partition(":")
    key = key.strip().strip("'\"")
    if not colon or not key or rest[:1] not in ("", " "):
        raise ValueError("expected `key: value`")
    return key, rest.strip()


def _parse_value(text: str) -> object:
    """A scalar or an [inline, list]; ValueError says what is wrong with it."""
    if text[:1] != "[":
        return parse_scalar(text)
    if text[-1] != "]":
        raise ValueError("the list's `]` has to end the line")
    values, rest = [], text[1:-1].strip()
    while rest:
        start = _quote_end(rest) if rest[0] in "'\"" else 0
        end = (rest + ",").index(",", start)
        values.append(parse_scalar(rest[:end].rstrip()))
        rest = rest[end + 1:].lstrip()
    return values


def parse_scalar(text: str) -> object:
    """The text, without its quotes; None for nothing."""
    if text[:1] in ("'", '"'):
        end = _quote_end(text)
        if end != len(text):
            raise ValueError("text after the closing quote" if end else "quote is not closed")
        if text[0] == "'":
            return text[1:-1].replace("''", "'")
        parts = text[1:-1].split("\\\\")
        for escape, char in _ESCAPES:
            parts = [part.replace(escape, char) for part in parts]
        return "\\".join(parts)
    if text and text[0] in "[{&*!|>%@`":
        raise ValueError("`%s` is not part of the YAML subset read here; quote the text" % text[0])
    return None if text.lower() in ("", "~", "null") else text


def strip_comment(line: str) -> str:
    """The line without its `# comment`, which starts the line or follows a blank."""
    index = 0 if "#" in line else len(line)
    while index < len(line):
        before = line[index - 1] if index else " "
        if line[index] == "#" and before in " \t":
            return line[:index]
        is_quote = line[index] in "'\"" and before in " [,:-\t"
        index += (_quote_end(line[index:]) if is_quote else 0) or 1
    return line


def _quote_end(text: str) -> int:
    """The length of the quoted text at the beginning; 0 when it is not closed."""
    rest = text[1:]
    for escape in ("\\\\", '\\"') if text[0] == '"' else ("''",):
        rest = rest.replace(escape, "  ")
    return rest.index(text[0]) + 2 if text[0] in rest else 0

# =============================================================================
# Project
# =============================================================================
# The root is the folder that the client was started in or its nearest parent with a context
# folder; a parent's must belong to this user or to root. No root: nothing happens. Whatever the
# project's files name, read_shared decides what can reach the agent.
SESSION = (  # .context/state/<session>.json: key, default, kind
    ("session_start", 0.0, "time"), ("agent", "claude", str), ("client", "", str),
    ("transcript", "", str), ("estimated_tokens", 0, "count"), ("window", 0, "count"),
    ("exact", False, bool), ("model", "", str), ("measured_model", "", str),
    ("settings_model", "", str), ("settings_read", False, bool), ("compact_window", 0, "count"),
    ("compacts", True, bool), ("compacted_at", 0.0, "time"), ("tool_calls", 0, "count"),
    ("last_call", 0.0, "time"), ("breakdown", {}, dict), ("files_read", [], "texts"),
    ("recent", [], "texts"), ("edits", 0, "count"), ("seen_calls", [], "texts"),
    ("audited", [], list), ("looked", 0.0, "time"),
    ("threshold_crossed_at", 0.0, "time"), ("handoff_complete", False, bool),
    ("handoff_before", "", str), ("reminded_batch", "", str), ("reminded_at", 0.0, "time"),
    ("write_denied", False, bool), ("workflow_told", "", str), ("startup", None, (
        ("message_id", "", str), ("handoff", "", str), ("attempts", 1, "count"),
        ("first_at", 0.0, "time"), ("last_at", 0.0, "time"), ("offset", 0, "count"),
        ("answered", False, bool), ("evidence", "", str), ("outcome", "pending", str))))
_SECRETS = (".env", "id_", ".netrc", "credentials")
_SECRET_ENDS = (".pem", ".key", ".kdbx")


def find_project(start: str, cwd: str, env: dict, now: float) -> "Ctx | None":
    """The project of a hook event, or None: its cwd counts only where `start`, the folder that the
    client was started in, is not told."""
    start = start if is_absolute(start) else cwd
    if not is_absolute(start) or len(start) > 1 << 15:  # no path is longer, on any system
        return None
    own, _ = read_config(user_config_path(env), is_user=True)
    for key in {"gate.files", "startup.files"}.intersection(own):
        own[key] = [home_of(env) + name[1:] if name[:2] == "~/" else name for name in own[key]]
    ctx, folder, below = None, join_path(start, "."), ""
    while ctx is None and folder != below:
        ctx = _open_project(folder, own)
        if ctx and below and not all(map(is_trusted, (ctx.dir, join_path(folder, CONFIG_NAME)))):
            return None
        folder, below = parent_of(folder), folder
    if ctx:
        ctx.now, ctx.env = now, env
        ctx.tmp = native_path(env.get("TMPDIR" if IS_POSIX else "TEMP") or "/tmp")
        ctx.state_home = user_folder(env, "XDG_STATE_HOME", "LOCALAPPDATA", "/.local/state")
    return ctx


def _open_project(root: str, own: dict) -> "Ctx | None":
    """The project at exactly this folder, with its settings read; `own` are the user's."""
    values, problems = read_config(join_path(root, CONFIG_NAME))
    config = {**DEFAULTS, **own, **values}
    ctx = Ctx(root, join_path(root, config["context_dir"]), config, problems)
    ctx.owner = stat_of(ctx.dir)
    if not (ctx.owner and is_dir(ctx.dir)) or _is_private(name_inside(ctx.dir, root)) or any(
            map(is_link, map(ctx.path, RUNTIME_FOLDERS))):
        return None  # a stranger's repository must not decide where we write
    named = own if own.get("allow_outside") else {}  # and nothing that a project adds
    config["outside"] = [join_path(ctx.dir, name) for name in named.get("gate.files", ())]
    config["outside"] += [join_path(root, name) for name in named.get("startup.files", ())]
    return ctx


def read_config(path: str, is_user: bool = False) -> tuple:
    """(settings, problems) of a contextrc; both empty when there is none."""
    text = read_text(path, 64 * 1024)
    return parse_config(text, is_user) if text else ({}, [])


def home_of(env: dict) -> str:
    return native_path(env.get("HOME" if IS_POSIX else "USERPROFILE") or env.get("HOME", ""))


def user_config_path(env: dict) -> str:
    folder = user_folder(env, "XDG_CONFIG_HOME", "APPDATA", "/.config")
    return folder and folder + "/contextrc"


def user_folder(env: dict, variable: str, windows: str, usual: str) -> str:
    """Ours where the variable names an absolute path, else below the home; "" without one."""
    named, home = native_path(env.get(variable if IS_POSIX else windows, "")), home_of(env)
    if not is_absolute(named):
        named = home + usual if is_absolute(home) else ""
    return named and named + "/ctx_hooks"


def is_trusted(path: str) -> bool:
    """What is there, and the link to it if it is one, belongs to this user or to root; on Windows
    to this user, the administrators or the system, and not when that cannot be told."""
    if IS_POSIX:
        found = [info for info in (stat_of(path), stat_of(path, follow=False)) if info is not None]
        return all(info.st_uid in (0, _os.geteuid()) for info in found)
    if is_missing(path):
        return True
    from ctypes import WinDLL, byref, c_uint32, c_void_p, sizeof

    api, owner, descriptor, token = WinDLL("advapi32"), c_void_p(), c_void_p(), c_void_p()
    this_process, query, token_user, administrators, system = c_void_p(-1), 8, 1, 26, 22
    user = (c_void_p * 32)()
    if api.GetNamedSecurityInfoW(path, 1, 1, byref(owner), None, None, None, byref(descriptor)):
        return False
    if api.IsWellKnownSid(owner, administrators) or api.IsWellKnownSid(owner, system):
        return True
    return bool(
        api.OpenProcessToken(this_process, query, byref(token))
        and api.GetTokenInformation(token, token_user, user, sizeof(user), byref(c_uint32()))
        and api.EqualSid(c_void_p(user[0]), owner))


def _is_private(name: str) -> bool:
    """Seen from the root: outside, git's, the client's or a secret, whatever its case."""
    parts = [part.rstrip(". ") or part for part in name.casefold().split("/")]
    is_secret = parts[-1].startswith(_SECRETS) or parts[-1].endswith(_SECRET_ENDS)
    is_clients = ".claude" in parts and "/".join(parts) != OLD_HANDOFF
    has_alias = not IS_POSIX and any(
        ":" in part or is_digits(part.rpartition("~")[2].partition(".")[0]) for part in parts)
    return not name or ".git" in parts or is_clients or is_secret or has_alias


def read_shared(ctx: Ctx, path: str, limit_bytes: int = FILE_LIMIT_BYTES) -> "bytes | None":
    """Of a file whose text may reach the agent, by its name and with all links resolved."""
    if not is_below(path, ctx.root):
        return read_bytes(path, limit_bytes) if path in ctx.get("outside") else None
    name = name_inside(path, ctx.root)
    if _is_private(name) or _is_private(path[len(ctx.root):].lstrip("/")):
        return None
    return read_bytes(name, limit_bytes, base=ctx.root)


def session_file(ctx: Ctx, session: str) -> str:
    return ctx.path("state", session + ".json")


def read_session(ctx: Ctx, session: str) -> Record:
    """For looking only."""
    return load_record(read_json(session_file(ctx, session)), SESSION)


def update_session(ctx: Ctx, session: str, change) -> tuple:
    """Locked: `change(state)` edits the record; (whether it stands on disk, its result)."""

    def begin(state: Record) -> object:
        state.session_start, state.agent = state.session_start or ctx.now, ctx.agent
        return change(state)

    return update_json(ctx, session_file(ctx, session), begin, SESSION)


def signal_dir(ctx: Ctx, session: str) -> str:
    return ctx.path("signals", "sessions", session) if session else ctx.path("signals", "global")


def marker_path(ctx: Ctx, session: str, prefix: str = MARKER_PREFIX) -> str:
    return ctx.tmp.rstrip("/") + "/" + prefix + session


def shown_path(ctx: Ctx, path: str, cwd: str) -> str:
    """Relative to the root for a session that stands there, absolute for one that does not."""
    inside = is_below(path, ctx.root) and join_path(cwd or ctx.root, ".") == ctx.root
    return path[len(ctx.root.rstrip("/")) + 1:] if inside else path


def is_switched_off(env: dict) -> bool:
    return env.get("CTX_HOOKS_DISABLE", "") not in ("", "0")


def is_paused(ctx: Ctx, session: str) -> bool:
    return not read_pauses(ctx).keys().isdisjoint((session, "*"))


def read_pauses(ctx: Ctx) -> dict:
    """Those that hold now of {"<session>" or "*": ISO time, or null: until `resume`}. What came
    with a clone has another inode and counts for nothing; what is no time pauses nothing."""
    pauses = read_json(ctx.path("state", "pause.json"))
    if pauses.pop("inode", 0) != ctx.owner.st_ino:
        return {}
    return {name: until for name, until in pauses.items()
            if until is None or ctx.now < (parse_iso(until) or 0)}

# =============================================================================
# Recorder
# =============================================================================
# .context/events.jsonl: one line for each thing that was said or decided, with the reason. The
# error log takes the traceback of an internal error. Both are bounded.


def record(ctx: Ctx, event: str, **fields) -> None:
    """Append one line; a failure costs the line."""
    row = {"at": format_iso(ctx.now, True), "session": ctx.session, "mode": ctx.mode,
           "agent": ctx.agent, "event": event, **fields}
    append_line(ctx, ctx.path("events.jsonl"), format_json(row) + "\n", EVENTS_LIMIT_BYTES)


def log_error(ctx: Ctx, text: str) -> None:
    path = ctx.path("state", "errors.log")
    append_line(ctx, path, text[-ERRORS_LIMIT_BYTES // 4:], ERRORS_LIMIT_BYTES)


def read_events(ctx: Ctx, limit: int) -> list:
    """The last rows of the recorder, oldest first."""
    texts = [read_bytes(ctx.path(name), EVENTS_LIMIT_BYTES * 2, follow=False) or b""
             for name in ("events.jsonl.1", "events.jsonl")]
    return list(filter(None, map(parse_object, b"\n".join(texts).split(b"\n"))))[-limit:]

# =============================================================================
# Text
# =============================================================================
# What reaches the agent is counted as the client counts it, has no control characters, no tags
# that imitate a client's own markup and no lines that pose as somebody's turn: clean_text. What
# reaches a terminal goes through for_terminal, what is written down through hide_secrets.
CLEANED_LIMIT = 1 << 16  # text is cut before it is cleaned; a reply holds a sixth of it
_MARKUP = frozenset(  # without the s of a plural
    "system systemreminder systemmessage systemwarning tasknotification commandname commandmessage "
    "commandarg localcommandstdout localcommandstderr localcommandcaveat userpromptsubmithook "
    "bashinput bashstdout bashstderr user human assistant developer functioncall functionresult "
    "invoke tooluse toolresult tooluseerror toolcall toolresponse antml thinking hookcontext "
    "hookprompt hookresult ideselection ideopenedfile newdiagnostic persistedoutput stophook "
    "teammatemessage sessionstarthook posttoolusehook pretoolusehook startofturn endofturn".split())
_TYPES = frozenset("System User Human Assistant".split())  # in code: List<User>
_TURNS = ("human", "user", "assistant", "system", "developer")
_UNSEEN = (  # control characters, direction overrides, and letters that only a model sees: from, to
    "\0\b \v\x1f \x7f\x9f \xad\xad \u034f\u034f \u061c\u061c \u115f\u1160 \u180e\u180e "
    "\u200b\u200b \u200e\u200f \u2028\u202e \u2060\u206f \u3164\u3164 \ufe00\ufe0e "
    "\ufeff\ufeff \uffa0\uffa0 \ufff9\ufffb \U000e0000\U000e01ef").split(" ")
_USUAL = frozenset(map(chr, range(32, 127))) | frozenset("\t\n→⚠\ufe0f•…—–·’")
_BRACKETS = dict(zip(map(ord, "＜﹤〈⟨＞﹥〉⟩"), "<<<<>>>>"))
_AROUND = " \t#*_`-+=~|.()[]{}0123456789"  # what may stand before the name of a turn
_LETTERS, _LATIN = (  # of other scripts, and two colons, and what they look like
    "аеорсухѕіјԁһкмтнвѵԝοανρτυιεκμχβζηɑᴀʙᴄᴅᴇɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏ꞉∶",
    "aeopcyxsijdhkmthbvwoanptuiekmxbzhaabcdeghijklmnoprstuvwy::")
_ALIKE = str.maketrans(_LETTERS.upper() + _LETTERS + "ΥУ", _LATIN.upper() + _LATIN + "YY")


def units(text: str) -> int:
    """Length as most clients count it: UTF-16 units, without the mark that is put before them."""
    return len(text) if text.isascii() else len(text.encode("utf-16", "surrogatepass")) // 2 - 1


def cut_text(text: str, limit: int, length: object = units) -> str:
    """The text when it fits, else its beginning, cut at a line or a word where one is near."""
    limit = max(limit, 0)
    if length(text) <= limit:
        return text
    text = text[:limit]
    while length(text) > limit:
        text = text[:-max(1, (length(text) - limit) // 4)]
    edge = max(text.rfind("\n"), text.rfind(" "))
    return text[:edge] if edge > len(text) * 3 // 4 else text


def clean_text(text: str) -> str:
    """Without control characters, direction overrides, lone surrogates, imitated markup and lines
    that pose as a turn. What is clean stays as it is."""
    text = text[:CLEANED_LIMIT]
    is_usual = _USUAL.issuperset(text)
    if not is_usual:
        text = for_terminal(text.replace("\r\n", "\n")).translate(_BRACKETS)
    start = text.rfind("<")
    while start >= 0:  # from the last one on: a removed tag may complete the one around it
        text = _strip_tag(text, start)
        start = text.rfind("<", 0, start)
    return "\n".join([  # only a sign of another script could be read as a colon
        "> " + line if (":" in line or not is_usual) and _is_turn(line) else line
        for line in text.split("\n")])


def for_terminal(text: str) -> str:
    """What people see: no control characters but line ends and tabs, no moves of the cursor."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    for char in set(text):
        if any(first <= char <= last for first, last in _UNSEEN):
            text = text.replace(char, "")
    return text


def one_line(text: str, limit: int = 200) -> str:
    """For a line shown to somebody: cleaned, blanks folded, cut."""
    return cut_text(" ".join(clean_text(text[:limit * 8]).split()), limit)


def _is_turn(line: str) -> bool:
    """It poses as the beginning of somebody's turn, and not as a quotation."""
    name, colon, _ = _folded(line[:60]).partition(":")
    name = name.lstrip(_AROUND).lower()
    is_named = "".join(filter(str.isalnum, name)) in _TURNS
    return is_named and colon != "" and name[0] not in ("'", '"', ">")


def _folded(text: str) -> str:
    """As somebody reads it: other letter forms become the usual ones, accents and joiners go."""
    if not _USUAL.issuperset(text):  # our own signs are: no library to load for a reply
        from unicodedata import normalize

        text = normalize("NFKD", text).translate(_ALIKE)
    return text.encode("ascii", "ignore").decode()


def _strip_tag(text: str, start: int) -> str:
    """Without the tag that begins here if it has one of the names, whatever stands between its
    letters, or is another model's mark of a turn. Of one that is not closed the bracket goes."""
    before, end = text[start - 1:start], text.find(">", start, start + 300)
    written = text[start + 1:start + 80].partition(">")[0].partition("<")[0]
    if written.partition(",")[0] in _TYPES and (before.isalnum() or before == "_"):
        return text
    inner = _folded(written).lower()
    words = "".join(c if c.isalnum() or c in "-_.:" else " " for c in inner).split()
    names = words[0].split(":") if words else []
    names += ["".join(words[:count]) for count in range(1, len(words) + 1)]
    stems = ["".join(filter(str.isalnum, name)).rstrip("0123456789s") for name in names]
    if _MARKUP.isdisjoint(stems) and not inner.startswith("|"):  # <|im_start|>
        return text
    return text[:start] + (" " + text[start + 1:] if end < 0 else text[end + 1:])


def hide_secrets(text: str) -> str:
    """Keys, tokens and passwords that stand in what was said are not written down again."""
    import re

    # every repetition is bounded or begins at a word of its own: the text can be half a megabyte
    value = r"(?:\"[^\"\n]{4,}\"|'[^'\n]{4,}'|`[^`\n]{4,}`|[\"']?[^\s\"'`,;]{%d,})"
    password = r"(?:secret|passw(?:or)?d|pwd|passphrase|[_-]pass"
    about = (r"(?!(?:required|missing|wrong|invalid|correct|incorrect|empty|needed|expired|valid|"
             r"known|not|too|that|the)\b)")
    shapes = (  # what may stay, and the secret
        r"(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)",
        r"(?i)(\b(?:bearer|basic|authorization:\s*token)\s+)[\w.~+/=-]{8,}",
        r"()\b(?:sk[-_]|rk_live_|gh[oprsu]_|github_pat_|xox[abprs]-|xapp-|AKIA|ASIA|AIza|glpat-|"
        r"hf_|npm_|SG\.|eyJ|dckr_pat_|dop_v1_|ya29\.|AGE-SECRET-KEY-)[\w.-]{8,}",
        r"(?i)((?<![\w-])--?[\w-]{0,30}" + password + r"|token|api-?key)(?:\s+|=))" + value % 1,
        r"(\s(?:--user|-u)[ =][^\s:]+:)\S+",
        r"(?i)(" + password + r"|key|token)[\w-]{0,20}[\"']?\s*[=:]\s*)" + value % 6,
        r"(?i)(" + password + r") (?:is|was):?\s+)" + about + value % 4,
        r"(\w://[^\s:/@]*:)[^\s@/]+(?=@)")
    for pattern in shapes:
        text = re.sub(pattern, r"\1[hidden]", text)
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
    "poll": "bashoutput taskoutput killshell taskstop monitor schedulewakeup sleep listagents "
            "read_bash stop_bash write_stdin askuserquestion ask_user exitplanmode enterplanmode",
    "note": "todowrite taskcreate taskupdate tasklist taskget write_todos todo_write update_plan "
            "todoread"}
TOOL_WEIGHTS = {"read": 1.1, "edit": 0.3}
USAGE_KEYS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
              "inputTokens", "cacheCreationTokens", "cacheReadTokens")
EVENTS = {  # our name of an event -> its mode
    "SessionStart": "inject", "UserPromptSubmit": "inject", "PreToolUse": "gate",
    "PostToolUse": "monitor", "PostToolUseFailure": "monitor", "PreCompact": "monitor",
    "Stop": "stop-enforce", "SessionEnd": "cleanup"}
HOLD_CAP = 8  # holds in a row that a client allows; where it has no limit, ours is the same
FEEDBACK_SINCE = (2, 1, 163)  # from here on additionalContext at Stop is not shown as an error
DENIAL_NEEDLE = b'"toolDenialKind"'  # in the row of a call that the person or a rule refused
TRANSCRIPT_LATE_S, HOOK_START_S = 0.25, 0.1  # some clients write their transcript late
ENV_NAMES = (  # the variables we look at, and no others: the rest may hold secrets
    "CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "QWEN_PROJECT_DIR", "COPILOT_PROJECT_DIR",
    "DROID_PROJECT_DIR", "COPILOT_HOME", "CTX_HOOKS_DISABLE", "CTX_INJECT_MIN_SEVERITY",
    "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", "CLAUDE_CODE_SESSION_ATTENDED", "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "DISABLE_AUTO_COMPACT",
    "CLAUDE_PLUGIN_ROOT", "CLAUDE_PID", "CLAUDE_CONFIG_DIR", "AI_AGENT", "ANTHROPIC_MODEL", "HOME",
    "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TMPDIR", "TEMP")
AGENT_NAMES = ("CLAUDECODE", "AI_AGENT", "CODEX_CI", "CODEX_THREAD_ID", "COPILOT_CLI", "GEMINI_CLI",
               "QWEN_CODE")  # one stands in the environment of a command that an agent runs
EVENT = (  # what we look at of an event: key, default, kind
    ("theirs", "", str), ("session_id", "", str), ("cwd", "", str), ("transcript", "", str),
    ("prompt", "", str), ("prompt_id", "", str), ("source", "", str), ("reason", "", str),
    ("tool", "", str), ("tool_input", {}, dict), ("tool_use_id", "", str),
    ("response_bytes", 0, "count"), ("last_message", "", str), ("stop_active", False, bool),
    ("permission_mode", "", str), ("background_tasks", [], list))
_NAMES = {  # Claude Code's names of them -> ours
    "hook_event_name": "theirs", "transcript_path": "transcript", "tool_name": "tool",
    "tool_response": "response", "last_assistant_message": "last_message",
    "stop_hook_active": "stop_active"}


def parse_event(data: object, mode: str, agent: str, env: dict) -> "Record | None":
    """The checked event in our words; None when it is no event of this client that we know."""
    if not isinstance(data, dict):
        return None
    dialect = DIALECTS[agent]
    names = {**_NAMES, **dialect.names}
    data = {names.get(key, key): value for key, value in data.items()}
    event = load_record(data, EVENT)
    name = dialect.events.get(event.theirs)
    if not event.theirs:  # a start is always named
        name = next(one for one, its in EVENTS.items() if its == mode and one != "SessionStart")
    is_for_nothing = dialect.matchers.get(name) == "manual" != data.get("trigger")
    if not name or is_for_nothing:
        return None
    failed, tool, model = name == "PostToolUseFailure", event.tool[:80], data.get("model")
    is_typed = not dialect.typed or dialect.typed in data
    vars(event).update(
        name=name, theirs=event.theirs or name, session=safe_name(event.session_id),
        cwd=slashed(event.cwd), agent_id=data.get("agent_id"),
        by_person=is_typed and not event.prompt.startswith("<task-notification>"),
        prompt=_persons_words(event.prompt),  # our start text may stand in front of it
        attended=env.get("CLAUDE_CODE_SESSION_ATTENDED") != "0" or agent != "claude",
        model=text_of(dig(model, "id") or model), tool=tool or "?", kind=tool_kind(tool),
        path=touched_path(event.tool_input), failed=failed,
        response=data.get("error" if failed else "response"),
        subagents=any(dig(task, "type") != "shell" for task in event.background_tasks))
    if dialect.transcripts and not event.transcript and event.session == event.session_id != "":
        variable, below_home, place = dialect.transcripts
        home = env.get(variable) or home_of(env) + below_home
        event.transcript = home + place.format(session=event.session)
    return event


def tool_kind(tool: str) -> str:
    """A key of TOOL_KINDS, or "" for every other tool."""
    name = tool.lower().rpartition("__")[2]  # mcp__browser__wait_for
    usual = "poll" if "wait" in name else ""
    return next((kind for kind, names in TOOL_KINDS.items() if name in names.split()), usual)


def touched_path(tool_input: dict) -> str:
    """The file that a call reads or edits, as the call names it."""
    named = text_of(_find(tool_input, "file_path|path|notebook_path|absolute_path"))
    patch = text_of(_find(tool_input, "command|input"))
    for mark in ("*** Update File: ", "*** Add File: "):
        named = named or patch.partition(mark)[2].partition("\n")[0].strip()
    return slashed(named)


def project_folder(agent: str, env: dict) -> str:
    """The folder that the client was started in; "" where it does not tell."""
    return native_path(env.get(DIALECTS[agent].project_variable, ""))


def detect_agent(agent: str, data: object) -> str:
    """The registered word; but Copilot runs Claude's settings, and the event's shape tells it."""
    if agent != "claude" or not isinstance(data, dict):
        return agent if agent in DIALECTS else "claude"
    path = text_of(data.get("transcript_path", "/session-state/"))  # named at some events only
    is_copilot = "timestamp" in data and "permission_mode" not in data and "/session-state/" in path
    return "copilot" if is_copilot or "sessionId" in data else "claude"


def command_of(event: Record) -> str:
    """What a call does is told by its beginning."""
    command = _find(event.tool_input, "command|cmd")
    command = " ".join(map(str, command)) if isinstance(command, list) else text_of(command)
    return command[:8000]


def estimate_tokens(event: Record) -> int:
    """What one call adds: its input, an overhead, and the part of the response that is seen."""
    text = visible_text(event)
    chars = 0 if event.kind == "edit" else event.response_bytes  # of what is too much to be kept
    if '"type": "image"' in text or '"isImage": true' in text:
        chars = IMAGE_TOKENS * CHARS_PER_TOKEN
    seen = min(chars or len(text), 400_000)  # clients cut a result, too
    chars = seen * TOOL_WEIGHTS.get(event.kind, 1.0)
    return int((len(as_text(event.tool_input)) + chars) / CHARS_PER_TOKEN + CALL_OVERHEAD_TOKENS)


def visible_text(event: Record) -> str:
    """The part of a response that reaches the model."""
    seen, parts = event.response, dict_of(event.response)
    if event.kind == "run" and "stdout" in parts and parts.get("isImage") is not True:
        return as_text(parts["stdout"]) + as_text(parts.get("stderr"))
    if event.kind == "edit" and parts:
        return as_text(parts.get("structuredPatch"))
    return as_text(_find(parts, "file.content|llmContent|text_result_for_llm|content") or seen)


def as_text(value: object) -> str:
    """A text as it is, another value as JSON; "" for one that is nested too deeply."""
    if isinstance(value, str):
        return value
    try:
        return format_json(value)
    except (ValueError, TypeError):
        return ""


# --- transcripts: one JSON a line, written while we read; read from the end in bounded steps


def lines_backward(path: str, limit_bytes: int = TRANSCRIPT_LIMIT_BYTES) -> object:
    """The lines in the last `limit_bytes` of a file, newest first; of an endless one a piece."""
    start = size = transcript_size(path)
    step, rest = TRANSCRIPT_STEP_BYTES, b""
    while start > 0 and size - start < limit_bytes:
        start, end = max(0, start - step, size - limit_bytes), start
        data = read_bytes(path, end - start, start=start) or b""
        rest, *lines = (data + rest).split(b"\n")
        yield from reversed(lines)
        step, rest = step * 2, rest if len(rest) < TRANSCRIPT_LINE_BYTES else b""
    if start == 0:
        yield rest


def rows_backward(ctx: Ctx, path: str, limit_bytes: int = TRANSCRIPT_LIMIT_BYTES,
                  needles: tuple = (b"",)) -> object:
    """The rows that mean something to us, newest first; a line is parsed when it has a needle."""
    for line in lines_backward(path, limit_bytes):
        row = parse_line(ctx, line) if any(needle in line for needle in needles) else None
        if row is not None:
            yield row


def wait_for_rows(ctx: Ctx, path: str) -> None:
    """Until a late client's row about this very event shows that all before it is there."""
    sign = DIALECTS[ctx.agent].late_signs.get(ctx.mode, b"")
    deadline = time.monotonic() + TRANSCRIPT_LATE_S
    while sign and time.monotonic() < deadline and is_dir(parent_of(path)):
        line = next(filter(None, lines_backward(path)), b"")
        at = parse_iso(parse_object(line).get("timestamp")) or 0.0
        if sign in line and at > ctx.now - HOOK_START_S:
            return
        time.sleep(TRANSCRIPT_POLL_S)


def read_usage(ctx: Ctx, path: str, has_waited: bool = False) -> "Record | None":
    """The last measured fullness (tokens, window or 0, model, at) after the last compaction, where
    it stands near the end: an estimate is better than reading megabytes at every call."""
    dialect, found = DIALECTS[ctx.agent], Record(tokens=0, window=0, model="", at=0.0)
    rows = rows_backward(ctx, path, TRANSCRIPT_NEAR_BYTES, dialect.needles)
    if dialect.usage_file:
        beside = path.replace(".jsonl", dialect.usage_file)
        rows = filter(None, [parse_line(ctx, read_text(beside))])
    for row in rows:
        found.window, found.model = found.window or row.window, found.model or row.model
        if not found.tokens and row.tokens <= TOKENS_LIMIT:
            found.tokens, found.at = row.tokens, row.at
        is_all = found.window or row.kind == "answer"  # else another row may tell the window
        if row.kind == "boundary" or (found.tokens and is_all):
            break
    is_due = not found.tokens or found.tokens * 2 >= found.window  # the numbers begin to matter
    if dialect.late_signs and is_due and not has_waited:
        wait_for_rows(ctx, path)
        return read_usage(ctx, path, has_waited=True)
    return found if found.tokens else None


def find_message(ctx: Ctx, path: str, tool_use_id: str) -> str:
    """The id of the answer that holds the tool call, or where calls have no id of the model's, of
    the newest one: the next comes after all its calls. The transcript may lag: wait a little."""
    is_newest = DIALECTS[ctx.agent].batch == "newest"
    needle = b"" if is_newest else format_json(tool_use_id).encode()
    deadline = time.monotonic() + TRANSCRIPT_WAIT_S
    while is_file(path) and (is_newest or tool_use_id):
        for row in rows_backward(ctx, path, needles=(needle,)):
            if row.id:
                return row.id
        if time.monotonic() >= deadline:
            break
        time.sleep(TRANSCRIPT_POLL_S)
    return ""


def read_news(ctx: Ctx, path: str, offset: int, since: float) -> Record:
    """What the transcript has gained since `offset`: text (the agent's), receipts, and the offset
    to go on from. A forked session's begins with a copy of the old one, dated before `since`."""
    wait_for_rows(ctx, path)
    size = transcript_size(path)
    start = max(offset if offset <= size else 0, size - TRANSCRIPT_LIMIT_BYTES)  # or another file
    data = read_bytes(path, TRANSCRIPT_LIMIT_BYTES, start=start) or b""
    whole = data.rfind(b"\n") + 1  # a row that is being written is news at the next look
    news = Record(text="", receipts="", offset=start + whole)
    for row in filter(None, [parse_line(ctx, line) for line in data[:whole].split(b"\n")]):
        news.receipts += row.receipt + "\n"
        if row.kind == "answer" and row.text and not 0 < row.at < since:
            news.text += row.text + "\n"
    return news


def read_turn(ctx: Ctx, path: str, since: float = 0.0) -> str:
    """What the agent said since the person's last prompt, and not before `since`."""
    texts, newer = [], ""
    wait_for_rows(ctx, path)
    for row in rows_backward(ctx, path):
        if row.kind == "prompt" or (row.at and row.at < since):
            break
        said = row.id + row.text
        if row.kind == "answer" and row.text and said != newer:  # some write an answer twice
            texts.append(row.text)
            newer = said
    return "\n".join(reversed(texts))


def transcript_size(path: str) -> int:
    info = stat_of(path)
    return info.st_size if is_regular(info) else 0


# --- rows. kind (answer, prompt, boundary or other), id, text, calls [(id, name, input)], results
# [(id, failed, text)], receipt (what it holds that hooks put before the model), denied (the results
# are the person's refusal), tokens, window, model, at
_ROW = (("id", "", str), ("tokens", 0, "count"), ("window", 0, "count"), ("model", "", str),
        ("asked", "", str), ("denied", "", str), ("at", 0.0, "time"))
_RESULT_TEXTS = "content|output|response.error|response.output|result.content|error.message"
_CLIENTS_OWN = ("<environment_context>", "<user_instructions>")  # Codex's, in the person's name


def parse_line(ctx: Ctx, line: bytes) -> "Record | None":
    """The row of one line by the first rule that holds; None when it tells us nothing."""
    data = parse_object(line)
    for rule in DIALECTS[ctx.agent].rows:
        conditions, _, made = rule.partition(" > ")
        if all(_holds(data, condition) for condition in conditions.split()):
            return _make_row(data, *made.split()) if made else None
    return None


def _holds(data: dict, condition: str) -> bool:
    """`path`: something is there; `path=text`: this, or in a list this somewhere."""
    path, equals, wanted = condition.partition("=")
    found = _find(data, path)
    if not equals:
        return found is not None
    return found == wanted or (isinstance(found, list) and wanted in as_text(found))


def _find(data: dict, paths: str) -> object:
    """The first value that is there and not empty, of `a.b|c`."""
    for path in paths.split("|"):
        found = dig(data, path)
        if found:
            return found
    return None


def _make_row(data: dict, kind: str, *fields: str) -> Record:
    pairs = [field.partition("=") for field in fields]
    named = {name: _find(data, path or name) for name, _, path in pairs}
    content, tokens = named.get("content"), tokens_of(named.get("tokens"))
    row = load_record({**named, "tokens": tokens, "at": data.get("timestamp")}, _ROW)
    row.kind, row.calls, row.results = kind, [], []
    row.model = row.asked if "[1m]" in row.asked else row.model
    row.receipt = "\n".join(_texts(named.get("receipt")))
    row.text = "\n".join(filter(None, map(_persons_words, _texts(content))))
    for block in _listed(content) + _listed(named.get("calls")):
        if isinstance(block, dict) and "text" not in block:
            _add_call(row, block)
    if kind == "prompt" and (row.results or row.text.startswith(_CLIENTS_OWN)):
        row.kind = "other"
    return row


def tokens_of(usage: object) -> int:
    """A number, or the sum of a usage's parts."""
    if isinstance(usage, dict):
        return sum(count_of(usage.get(key)) for key in USAGE_KEYS)
    return count_of(usage)


def _listed(value: object) -> list:
    return value if isinstance(value, list) else [value]


def _texts(content: object) -> list:
    """Of a text, or of a list of texts, of blocks, or of what droid's hooks printed."""
    texts = []
    for block in _listed(content):
        text = block if isinstance(block, str) else _find(
            block, "text|functionResponse.response.error|functionResponse.response.output")
        if dig(block, "stdout"):
            printed = parse_object(text_of(block["stdout"]))
            text = dig(printed, "hookSpecificOutput.additionalContext")
        texts.append("" if dig(block, "thought") else text_of(text))
    return list(filter(None, texts))


def _persons_words(text: str) -> str:
    """A piece of a prompt without what hooks put before it."""
    for tag in ("hook_context>", "qwen:user-prompt-submit-context>"):
        said, end, rest = text.partition("</" + tag)
        if end and said.startswith("<" + tag):
            return rest.lstrip("\n")
    return text


def _add_call(row: Record, block: dict) -> None:
    """Note a tool's call or its result, as any client writes it."""
    told = block.get("functionResponse")
    block = dict_of(told or block.get("functionCall") or block)
    call_id = text_of(_find(block, "call_id|toolCallId|tool_use_id|id"))
    is_judged = block.get("type") == "tool_result" or "success" in block
    if is_judged or told or "output" in block:
        text = "\n".join(_texts(_find(block, _RESULT_TEXTS)))
        codes = [text.partition(mark)[2][:1] for mark in ("\nExit Code: ", "exited with code ")]
        failed = block.get("success") is False if is_judged else set(codes) - {"", "0"}
        is_error = failed or _find(block, "is_error|error|response.error")
        row.results.append((call_id, bool(is_error), text))
    elif block.get("name"):
        asked = _find(block, "input|args|arguments")
        if isinstance(asked, str):
            asked = parse_object(asked) or {"command": asked}
        row.calls.append((call_id, text_of(block["name"]), dict_of(asked)))


# --- replies


class Reply:
    """What a handler wants said, to whom; `hold` keeps the agent going, `after` is called once the
    text is really out."""

    def __init__(self, context: str = "", person: str = "", hold: bool = False) -> None:
        self.context, self.person, self.hold = context, person, hold
        self.terminal, self.after = "", []


def can_speak(ctx: Ctx, event_name: str) -> bool:
    """Whether text at this event reaches the agent in this client."""
    return event_name not in DIALECTS[ctx.agent].mute


def render_reply(ctx: Ctx, event: Record, reply: Reply) -> dict:
    """The client's JSON for a reply; {} when there is nothing to say."""
    shape, out, text = DIALECTS[ctx.agent].reply, {}, clean_text(reply.context)
    told = ctx.env.get("AI_AGENT", "").partition("claude-code_")[2].partition("_")[0].split("-")
    is_new = all(map(is_digits, told)) and tuple(map(int, told)) >= FEEDBACK_SINCE
    is_own = ctx.env.get("CLAUDE_CODE_SESSION_ID") == event.session_id  # not an outer agent's
    if reply.person and shape != "flat":
        out["systemMessage"] = for_terminal(reply.person)
    if reply.terminal and shape == "full":
        out["terminalSequence"] = reply.terminal
    if reply.hold and not (shape == "full" and is_new and is_own):
        out.update(decision="block", reason=text)
    elif text:
        out["hookSpecificOutput"] = {"hookEventName": event.theirs, "additionalContext": text}
        if shape == "flat":
            out["additionalContext"] = text
    return out


# --- the table
_MUTE_BEFORE = ("PreToolUse", "PreCompact", "SessionEnd")  # text before a tool does not arrive


def _dialect(**fields) -> Record:
    """A row with the usual values where nothing else is said. Its `rows` are those of a transcript,
    "what must hold > kind, our field or field=where it stands": the first rule that holds counts,
    and one without a kind tells nothing."""
    row = Record(
        has_failures=True,  # a failing tool has an event of its own
        renamed={}, names={},  # how our events, and which fields of an event, are called otherwise
        mute=_MUTE_BEFORE[1:],  # our names of the events whose text does not reach the model
        matchers={},  # our name of an event -> the only kind of it that counts
        typed="",  # the field that only a prompt which a person typed has
        reply="usual",  # "flat": the text also at the top level, and nothing for the person;
        # "full": signs for the terminal too, and a new version's stop is held by text alone
        length=units, instruction_file="AGENTS.md", project_variable="",
        transcripts=(),  # where, if an event does not say: variable, else below the home, and there
        usage_file="",  # what holds the numbers beside the transcript, by its ending
        batch="call",  # the transcript has the event's tool_use_id; "newest": it has not
        needles=(),  # what a line with the fullness, or with a compaction, holds
        late_signs={},  # mode -> what the transcript's newest line holds once it has caught up
        compacts_at=0,  # percent of the window where the client compacts by itself; 0: not known
        window=0,  # tokens, where every model of the client has the same
        user_settings=fields["settings"],  # seen from the home, as those from the project
        time_unit=1, end_limit_s=5)  # of a `timeout` in them, per second; of SessionEnd
    vars(row).update(fields)
    row.events = {row.renamed.get(name, name): name for name in EVENTS
                  if row.has_failures or name != "PostToolUseFailure"}
    return row


DIALECTS = {
    "claude": _dialect(
        label="Claude Code", reply="full",
        matchers={"PreCompact": "auto"},  # after one by hand the client shows the whole command
        instruction_file="CLAUDE.md", settings=".claude/settings.json",
        project_variable="CLAUDE_PROJECT_DIR", needles=(b'"input_tokens"', b'"compact_boundary"'),
        rows=(
            "isSidechain|isApiErrorMessage", "message.model=<synthetic>",
            "type=assistant > answer content=message.content id=message.id tokens=message.usage"
            " model=message.model asked=requestedModel",
            "type=user isMeta|isCompactSummary > other content=message.content",
            "type=user > prompt content=message.content denied=toolDenialKind",
            "type=system subtype=compact_boundary > boundary tokens=compactMetadata.postTokens",
            "attachment.type=hook_additional_context > other receipt=attachment.content")),
    "codex": _dialect(  # a reply with a key that it does not know counts for nothing
        label="Codex", has_failures=False, names={"turn_id": "prompt_id"}, batch="newest",
        length=lambda text: len(text.encode("utf-8", "replace")), compacts_at=94, end_limit_s=3,
        settings=".codex/hooks.json",
        needles=(b'"token_usage_record"', b'"token_count"', b'"task_started"', b'"compacted"'),
        rows=(
            "payload.role=assistant > answer content=payload.content id=payload.id",
            "payload.role=developer > other receipt=payload.content",
            "payload.role=user > prompt content=payload.content",
            "type=response_item > other content=payload",
            "type=compacted > boundary",
            "payload > other id=payload.response_id"
            " tokens=payload.usage.input_tokens|payload.info.last_token_usage.input_tokens"
            "|payload.info.last_token_usage.total_tokens"
            " window=payload.model_context_window|payload.info.model_context_window")),
    "gemini": _dialect(
        label="Gemini CLI", mute=_MUTE_BEFORE, has_failures=False,
        renamed={"UserPromptSubmit": "BeforeAgent", "PreToolUse": "BeforeTool",
                 "PostToolUse": "AfterTool", "Stop": "AfterAgent", "PreCompact": "PreCompress"},
        names={"timestamp": "prompt_id"}, batch="newest", window=1_048_576, time_unit=1000,
        matchers={"PreCompact": "manual"},  # the automatic one comes before every request
        instruction_file="GEMINI.md", project_variable="GEMINI_PROJECT_DIR",
        settings=".gemini/settings.json", needles=(b'"tokens"', b"<state_snapshot>"),
        rows=(
            "type=gemini > answer content id model calls=toolCalls tokens=tokens.input",
            "type=user > prompt content receipt=content",
            "$set.messages=<state_snapshot> > boundary")),
    "qwen": _dialect(  # its prompt event comes before every request
        label="Qwen Code", mute=_MUTE_BEFORE, names={"tool_call_id": "tool_use_id"}, compacts_at=85,
        typed="submitted_prompt", needles=(b'"usageMetadata"', b'"chat_compression"'),
        project_variable="QWEN_PROJECT_DIR", settings=".qwen/settings.json",
        rows=(
            "isSidechain",
            "subtype=chat_compression > boundary tokens=systemPayload.info.newTokenCount",
            "provenance=system",
            "type=assistant > answer content=message.parts id=uuid model"
            " tokens=usageMetadata.promptTokenCount window=contextWindowSize",
            "message.role=user > prompt content=message.parts receipt=message.parts")),
    "copilot": _dialect(
        label="Copilot CLI", reply="flat",
        transcripts=("COPILOT_HOME", "/.copilot", "/session-state/{session}/events.jsonl"),
        names={"sessionId": "session_id", "hookEventName": "theirs",  # in an editor
               "tool_result": "response", "timestamp": "prompt_id"},
        batch="newest", compacts_at=80, project_variable="COPILOT_PROJECT_DIR",
        late_signs={"monitor": b'"postToolUse', "stop-enforce": b'"agentStop"'},
        needles=(b'"session.usage_record"', b'"session.compaction_complete"'),
        settings=".github/hooks/ctx_hooks.json", user_settings=".copilot/hooks/ctx_hooks.json",
        rows=(
            "agentId",
            "type=session.usage_record > other tokens=data.usage.inputTokens model=data.usage.model"
            " window=data.usage.maxPromptTokens",
            "type=assistant.message > answer content=data.content calls=data.toolRequests"
            " id=data.messageId",
            "type=user.message > prompt content=data.content",
            "type=tool.execution_complete > other content=data",
            "type=hook.end > other receipt=data.output.additionalContext",
            "type=session.compaction_complete data.success > boundary"
            " tokens=data.postCompactionTokens")),
    "droid": _dialect(
        label="droid", has_failures=False, mute=_MUTE_BEFORE,
        names={"message_id": "prompt_id"}, usage_file=".settings.json", batch="newest",
        project_variable="DROID_PROJECT_DIR", settings=".factory/settings.json",
        rows=(
            "lastCallTokenUsage > other tokens=lastCallTokenUsage model",
            "type=compaction_state > boundary tokens=summaryTokens",
            "message.role=assistant > answer content=message.content id model=message.modelId",
            "message.hookEventName > other receipt=message.hookResults",
            "message.visibility=llm_only",
            "message.role=user > prompt content=message.content"))}

# =============================================================================
# Signals
# =============================================================================
# A signal is a file for the agent: any process may write one. A session claims what it is about to
# say in a file beside its state; once the text is out the signal goes. A claim that nothing
# followed is void after some seconds, so two hooks deliver once and a crash loses nothing.
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
SETTLED_S = 2.0  # the coarsest clock of a file system: nothing new is older than this
_NO_CLAIM = (None, 0, None)


def parse_signal(data: bytes, mtime: float, now: float) -> Record:
    """Whatever is broken gets its default: ttl 300, severity warning, the file's own time, also for
    one that is still to come (`stamp` is the stated one, in microseconds). The header ends at the
    first closing `---`; one that is being written right now has no body."""
    lines = data.decode("utf-8", "replace").lstrip("\ufeff").replace("\r\n", "\n").split("\n")
    ends = (number for number, line in enumerate(lines) if number and line.rstrip() == "---")
    end = next(ends, -1) if lines[0].rstrip() == "---" else -1
    fields = dict.fromkeys(("generated_at", "severity", "ttl", "auditor", "code"), "")
    for line in lines[1:max(end, 1)]:
        key, _, value = strip_comment(line).partition(":")
        fields[key.strip().lower()] = value.strip().strip("'\"")[:60]
    stated, severity = parse_iso(fields["generated_at"]), fields["severity"].lower()
    ttl_s = int(fields["ttl"]) if is_digits(fields["ttl"]) else 0
    is_half = end < 0 and data.startswith(b"---") and now - mtime < HALF_WRITTEN_S
    return Record(
        generated_at=mtime if stated is None or stated > now + 1 else stated,
        stamp=int((mtime if stated is None else stated) * 1e6),
        severity=severity if severity in SEVERITIES else "warning",
        ttl_s=min(ttl_s or DEFAULT_TTL_S, TTL_LIMIT_S), auditor=fields["auditor"],
        code=fields["code"],
        body="" if is_half else "\n".join(lines[end + 1:]).strip() or fields["code"])


def signal_path(ctx: Ctx, session: str, name: str) -> str:
    """"" where the folder is a link, which could lead anywhere."""
    folder = signal_dir(ctx, session)
    return "" if is_link(folder) else folder + "/" + safe_name(name) + ".md"


def write_signal(ctx: Ctx, session: str, signal: Record) -> str:
    """Write or replace the signal `name` of a session ("" = global); its path, or ""."""
    path = signal_path(ctx, session, signal.name)
    auditor, code = [one_line(text, 60).replace("#", "") for text in (signal.auditor, signal.code)]
    text = "---\ngenerated_at: %s\nseverity: %s\nttl: %d\nauditor: %s\ncode: %s\n---\n%s\n" % (
        format_iso(signal.generated_at), signal.severity, signal.ttl_s, auditor, code,
        clean_text(signal.body).strip())
    return path if path and write_bytes(ctx, path, text.encode("utf-8", "replace")) else ""


def has_news(ctx: Ctx, session: str, looked: float) -> bool:
    """Whether there can be anything new since the last look, from a stat of each folder; where none
    holds a file, no state need be written to know that again."""
    is_old = not 0 <= ctx.now - looked < LOOK_AGAIN_S
    for folder in (signal_dir(ctx, session), signal_dir(ctx, "")):
        info = stat_of(folder, follow=False)
        is_new = info is not None and (is_old or info.st_mtime > looked - SETTLED_S)
        if is_new and list_dir(folder):
            return True
    return False


def read_signals(ctx: Ctx, session: str, claims: dict) -> tuple:
    """(the live signals for a session and the global ones that are not claimed, critical first,
    then oldest first; whether all were looked at). What was heard and has not changed is not even
    opened; of very many, each look begins elsewhere."""
    files, signals, deadline = [], [], time.monotonic() + LOOK_LIMIT_S
    for scope, folder in (("session/", session and signal_dir(ctx, session)),
                          ("global/", signal_dir(ctx, ""))):
        if folder and not is_link(folder):
            files += [(scope + name[:-3], folder + "/" + name) for name in list_dir(folder)
                      if name.endswith(".md") and name[0] != "."]
    turn = in_turn(files, ctx.now, SIGNAL_COUNT_LIMIT)
    while turn and time.monotonic() < deadline:
        key, path = turn.pop()
        info, (stamp, _, changed) = stat_of(path, follow=False), claims.get(key, _NO_CLAIM)
        if info is not None and info.st_mtime_ns != changed:
            signal = _read_signal(ctx, key, path, info)
            if signal is not None and signal.stamp != stamp:
                signals.append(signal)
    signals.sort(key=lambda s: (-SEVERITIES.index(s.severity), s.generated_at, s.name))
    return signals, not turn and len(files) <= SIGNAL_COUNT_LIMIT


def in_turn(items: list, now: float, limit: int) -> list:
    """So many of them; each look begins elsewhere, as time may end it before the number does, and
    the beginnings spread evenly."""
    first = int(now * 0.6180339887 % 1 * len(items))
    return (items[first:] + items[:first])[:limit]


def _read_signal(ctx: Ctx, key: str, path: str, info: object) -> "Record | None":
    """None for what is no live signal: an expired one is removed, what cannot be read at all is set
    aside, a link could lead to any file of the user's."""
    data = read_bytes(path, SIGNAL_LIMIT_BYTES, follow=False) if is_regular(info) else None
    if data is None:
        if is_own(info):
            set_aside(ctx, path)
        return None
    signal = parse_signal(data, info.st_mtime, ctx.now)
    scope, _, name = key.partition("/")
    source = (signal.auditor or key, signal.code) if signal.code else key
    vars(signal).update(key=key, name=name, source=source, path=path, stays=scope == "global",
                        changed=info.st_mtime_ns)
    if ctx.now < signal.generated_at + signal.ttl_s:
        return signal
    is_page = data.strip() and not data.startswith(b"---")  # maybe of the user's own docs
    is_alert = not signal.stays and signal.code.startswith("CTX_")  # waits for being said anew
    if not is_page and not is_alert:
        _remove_read(signal)
    return None


def _remove_read(signal: Record) -> bool:
    """Not what somebody put in its place meanwhile."""
    info = stat_of(signal.path, follow=False)
    return info is not None and info.st_mtime_ns == signal.changed and remove_file(signal.path)


def claims_path(ctx: Ctx, session: str) -> str:
    """Beside the session's state: most calls need not read what it has heard."""
    return ctx.path("state", session + ".claims")


def drop_old_claims(ctx: Ctx, claims: dict) -> dict:
    """What the session was told, or is being told: key -> [its stamp, until when that holds, the
    file's last change], whole numbers, which are read faster. What is over or broken goes."""
    for key, claim in list(claims.items()):
        is_claim = isinstance(claim, list) and len(claim) == 3 and isinstance(claim[1], int)
        if not is_claim or ctx.now >= claim[1]:
            del claims[key]
    return claims


def severity_floor(ctx: Ctx) -> str:
    stated = ctx.env.get("CTX_INJECT_MIN_SEVERITY", "").strip().lower()
    return stated if stated in SEVERITIES else ctx.get("monitor.inject_min_severity")


def due_signals(ctx: Ctx, signals: list) -> list:
    """Those that are severe enough; of two with the same code from the same source the newer."""
    severe, due = SEVERITIES[SEVERITIES.index(severity_floor(ctx)):], {}
    for signal in signals:
        other = due.get(signal.source, signal)
        if signal.severity in severe and signal.body and signal.generated_at >= other.generated_at:
            due[signal.source] = signal
    return list(due.values())


def deliver_signals(ctx: Ctx, session: str, room: int) -> "Reply | None":
    """The pending signals as one block; where what it says cannot be claimed, nothing is said."""

    def claim(claims: dict) -> tuple:
        """(the block or "", the signals that it settles, how many wait, whether nothing does)."""
        signals, is_whole = read_signals(ctx, session, drop_old_claims(ctx, claims))
        due, text, count, told = due_signals(ctx, signals), "", 0, []
        if due and room >= 400 + ctx.length(due[0].path):
            text, count = _render_signals(due, room, ctx.length)
            sources = {signal.source for signal in due[:count]}
            told = [signal for signal in signals if signal.source in sources]  # the older ones too
            claims.update((s.key, [s.stamp, int(ctx.now) + CLAIM_S, s.changed]) for s in told)
        return text, told, len(due) - count, is_whole and not due

    is_claimed, found = update_json(ctx, claims_path(ctx, session), claim)
    text, told, waiting, is_done = found or ("", [], 0, False)
    if is_done:
        update_session(ctx, session, lambda state: vars(state).update(looked=ctx.now))
    if not text or not is_claimed:
        return None
    record(ctx, "signals:delivered", names=[s.key for s in told], codes=[s.code for s in told],
           waiting=waiting, chars=len(text))
    reply = Reply(text)
    reply.after = [(_finish_delivery, ctx, session, told)]
    if told[0].severity == "critical":  # the person hears of it at that moment
        reply.person = "ctx monitor: " + one_line(told[0].body)
        reply.terminal = {"bell": "\a", "desktop": "\033]9;%s\a" % reply.person}.get(
            ctx.get("monitor.notify"), "")
    return reply


def _render_signals(due: list, room: int, length: object) -> tuple:
    """(text, how many of them it tells). The first is cut when it does not fit alone, and stays."""
    room -= length(SIGNAL_REST) + 20
    left, bodies, bullets = room - length(SIGNAL_HEAD_MANY), [], []
    for signal in due:
        bodies.append(clean_text(signal.body).strip() or one_line(signal.key))
        bullets.append(format_bullet(bodies[-1]))
        left -= length(bullets[-1]) + 1
        if left < 0:
            break
    count = len(bullets) if left >= 0 else max(1, len(bullets) - 1)
    text = "\n".join([SIGNAL_HEAD_MANY.format(count=count)] + bullets[:count])
    if count == 1:
        text = "⚠️ [ctx monitor] " + bodies[0]
    if length(text) > room:
        due[0].stays = True
        note = "\n… (cut here; the whole text is in %s)" % due[0].path
        text = cut_text(text, room - length(note), length) + note
    return text + ("\n" + SIGNAL_REST.format(count=len(due) - count) if due[count:] else ""), count


def format_bullet(body: str) -> str:
    """`  • Summary → Action`, further lines indented below."""
    head, *rest = [line.rstrip() for line in body.split("\n") if line.strip()]
    head = "  • " + head.strip()
    if rest and rest[0].lstrip().startswith("→"):
        head += " " + rest.pop(0).strip()
    return "\n    ".join([head] + rest)


def _finish_delivery(ctx: Ctx, session: str, told: list) -> None:
    """The text is out: a session's signal goes, and its claim with a later look; what stays (one
    for all sessions, one that was cut, one that cannot be removed) is remembered for its time."""
    kept = {s.key: [s.stamp, int(max(s.generated_at, s.stamp / 1e6)) + 1 + s.ttl_s, s.changed]
            for s in told if s.stays or not _remove_read(s)}
    if kept:
        update_json(ctx, claims_path(ctx, session), lambda claims: claims.update(kept))

# =============================================================================
# Measure
# =============================================================================
# Exact from the transcript when possible, else estimated over the real response shapes. Percent is
# an integer, rounded down, never above 100.
#
# Measure   tokens, window, exact, model, percent, shown (as text), note
_SMALL_MODELS = ("claude-3", "opus-4", "sonnet-4", "haiku-4")
_LARGE_MARKS = ("-4-7", "-4-8", "-4-9", "[1m]")  # in the name of one of those families
# Where Claude Code compacts by itself: seen at 167,000 of 200,000 and at 977,000 of 1,000,000.
COMPACTION_RESERVE, COMPACTION_RESERVE_LARGE, COMPACTION_OUTPUT = 33_000, 23_000, 20_000


def window_of_model(model: str) -> int:
    """The window as the client decides it by the model's name; 200,000 when no name is known."""
    name = model.lower().replace(".", "-")
    is_small = not name or any(part in name for part in _SMALL_MODELS)
    is_large = any(part in name for part in _LARGE_MARKS)
    return DEFAULT_WINDOW if is_small and not is_large else LARGE_WINDOW


def measure_context(ctx: Ctx, state: Record, usage: "Record | None", added_tokens: int) -> Record:
    """The fullness from what was measured since the last compaction, else the last known count plus
    what this call added."""
    if usage and 0 < usage.at < state.compacted_at:
        usage = None  # the compaction's own row is not in the transcript yet
    known = state.estimated_tokens or ESTIMATE_BASE_TOKENS
    tokens = usage.tokens if usage else known + added_tokens
    model = best_model(state, usage.model if usage else "")
    by_name = window_of_model(model) if ctx.agent == "claude" or "claude" in model else 0
    if by_name and model == state.measured_model:
        by_name = max(by_name, state.window)  # proven, also for the time after a compaction
    handed = read_json(ctx.path("state", ctx.session + ".statusline"))
    is_same = not model or is_same_model(text_of(handed.get("model")), model)
    stated = ctx.get("monitor.context_window")
    told = (stated, usage and usage.window, is_same and handed.get("window"),
            DIALECTS[ctx.agent].window, by_name)  # what is known best comes first
    sane = [size for size in map(count_of, told) if 1000 <= size <= TOKENS_LIMIT]
    window = sane[0] if sane else DEFAULT_WINDOW
    if usage and window != stated and tokens > window:
        window = max(LARGE_WINDOW, window)  # proven larger than its name says
    return make_measure(tokens, window, bool(usage and sane), model)  # no share of a guess is exact


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
        found.update(read_json(path))
    stated = ctx.env.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "")
    size = int(stated) if is_digits(stated) else count_of(found.get("autoCompactWindow"))
    is_off = ctx.env.get("DISABLE_AUTO_COMPACT", "").lower() not in ("", "0", "false")
    vars(state).update(
        settings_read=True, compact_window=size,
        settings_model=ctx.env.get("ANTHROPIC_MODEL") or text_of(found.get("model")),
        compacts=not is_off and found.get("autoCompactEnabled") is not False)


def compaction_point(ctx: Ctx, state: Record, window: int) -> int:
    """Tokens at which the client compacts by itself; 0 where that is not known."""
    if ctx.agent != "claude":
        return window * DIALECTS[ctx.agent].compacts_at // 100
    base = min(window, state.compact_window or window)
    point = base - (COMPACTION_RESERVE if base < LARGE_WINDOW else COMPACTION_RESERVE_LARGE)
    stated = ctx.env.get("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "")
    if is_digits(stated) and 1 <= int(stated) <= 100:
        point = min(point, (base - COMPACTION_OUTPUT) * int(stated) // 100)
    return max(point, 0) if state.compacts else 0


def handoff_point(ctx: Ctx, state: Record, window: int) -> int:
    """Tokens from which on a handoff is wanted."""
    percent = ctx.get("handoff.threshold")
    if percent != "auto":
        return int(window * percent / 100)
    usual = window * HANDOFF_PERCENT // 100
    before = compaction_point(ctx, state, window) - HANDOFF_BEFORE_COMPACTION
    return min(usual, before) if before > 0 else usual

# =============================================================================
# Auditors
# =============================================================================
# Each auditor is a pure function from a snapshot to its alert or None, and a row of AUDITORS. An
# alert fires when its level is crossed upward, not again inside its band, and again after its
# cooldown or when it expired unsaid, while the condition lasts. monitor-state.json remembers.
#
# Snapshot   now, percent, shown, note, handoff (its path, "" when off), is_written, decisions
#            (the file's path or ""), repeats, score, failing, stale_days, stale_files (None: not
#            looked at), active (codes)
# Alert      codes (those it marks, the first is emitted), severity, summary, action
MONITOR = (("lastEmitted", {}, dict), ("activeAlerts", {}, dict), ("lastHealth", {}, dict),
           ("confirmed", 0.0, "time"))  # when a context file was read while CTX_AUDIT_DUE stood


def audit_health(shot: Record) -> "Record | None":
    """How full the context is; a jump over two levels emits the higher and marks both."""
    active = [(level, severity) for level, clear, severity in HEALTH_LEVELS if shot.percent >= level
              or ("CTX_HEALTH_%d" % level in shot.active and shot.percent >= clear)]
    if not active:
        return None
    level, severity = active[0]
    action = HEALTH_ACTIONS[level][2 if shot.is_written else bool(shot.handoff)]
    return Record(
        codes=["CTX_HEALTH_%d" % each for each, _ in active], severity=severity,
        summary=HEALTH_SUMMARY.format(percent=shot.shown, note=shot.note), action=action.format(
            path=shot.handoff, decisions=shot.decisions and HEALTH_DECISIONS + shot.decisions))


def audit_repetition(shot: Record) -> "Record | None":
    if shot.score < (REPETITION_CLEAR if shot.active else REPETITION_LEVEL):
        return None
    summary = "Repetition: %d of the last %d tool calls did the same%s." % (
        shot.repeats, REPETITION_WINDOW, " and failed the same way" if shot.failing else "")
    return Record(codes=["CTX_REPETITION"], severity="warning", summary=summary,
                  action=REPETITION_ACTION)


def audit_reminder(shot: Record) -> "Record | None":
    if not shot.stale_files:
        return None
    summary = "Context files untouched for %s days: %s." % (
        shot.stale_days, ", ".join(shot.stale_files))
    return Record(codes=["CTX_AUDIT_DUE"], severity="warning", summary=summary, action=AUDIT_ACTION)


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
    """Remember "what it did, what it did in this state of things, failed or edit" of one call:
    without description, comments, numbers. A change that is new makes what comes after it new;
    waiting and notes are not work."""
    command, is_output = command_of(event), "/tasks/" in event.path and ".output" in event.path
    waits = not event.failed and (is_output or command.lstrip().startswith("sleep "))
    if waits or event.kind in ("poll", "note"):
        return
    how = "failed" if event.failed else "edit" if event.kind == "edit" else ""
    if event.kind == "run":
        asked = about = _plain_command(command, event.cwd)
        is_look = (asked + " ").startswith(_LOOKS) and " -i" not in asked and " > " not in asked
    else:
        asked = about = event.tool + " " + as_text(dict(event.tool_input, description=""))
        is_look = event.kind != "edit" and not any(word in event.tool.lower() for word in _CHANGING)
    if event.kind == "edit" and event.failed:
        about = event.tool + " " + event.path  # always another guess at the same place
    outcome = "%s %d" % (visible_text(event), event.response_bytes)
    outcome = " \0 " + outcome[:2000] + outcome[-2000:]
    exact, words = asked + outcome, () if how == "edit" else (about + outcome).split()
    about = " ".join([word for word in words if _DIGITS.isdisjoint(word)])
    what = call_signature("", exact if how == "edit" else about)
    here = what if how == "edit" else call_signature(str(state.edits), about if how else exact)
    is_new = not any(row.startswith(what) for row in state.recent)
    if is_new and not event.failed and not is_look:
        state.edits += 1
    state.recent = (state.recent + [" ".join((what, here, how))])[-REPETITION_WINDOW:]


def _plain_command(command: str, cwd: str) -> str:
    """Comments and blanks are no difference, nor a `cd` to where one is, nor another way to look
    at the output."""
    text = " ".join(" ".join(map(strip_comment, command.split("\n"))).split())
    here = "cd " + cwd + " && "
    text = text[len(here):] if text.startswith(here) else text
    for mark in (" || true", " | cat", " | tail", " | head", " 2>&1"):
        before, found, rest = text.rpartition(mark)
        text = before if found and not rest.strip(" -n0123456789") else text
    return text


def call_signature(head: str, text: str) -> str:
    """The interpreter's own source hash is built in; hashlib would cost 5 % of a start."""
    data = (head + "\0" + text).encode("utf-8", "replace")
    return _imp.source_hash(0x637478, data).hex()


def repetition_of(recent: list) -> tuple:
    """(score, calls that did the same, whether they failed) over the last calls: the same failure
    or edit twice, the same result three times. A failing repeat counts more."""
    keys = [row.partition(" ")[2] for row in recent[-REPETITION_WINDOW:]]
    score, total, failing = 0.0, 0, True
    for key in dict.fromkeys(keys):
        count, failed = keys.count(key), key.endswith("failed")
        if count > (1 if failed or key.endswith("edit") else 2):
            score += (count - 1) * (REPETITION_FAILED if failed else 1.0)
            total, failing = total + count, failing and failed
    return score, total, failing and total > 0


def run_auditors(ctx: Ctx, session: str, shot: Record) -> None:
    """Evaluate, remember, write the signals."""
    update_json(ctx, ctx.path("monitor-state.json"),
                lambda known: _evaluate(ctx, session, shot, known), MONITOR)


def _evaluate(ctx: Ctx, session: str, shot: Record, known: Record) -> None:
    known.lastHealth[session] = {"contextPercent": shot.percent, "repetitionScore": shot.score}
    for name, audit, prefix, everywhere, cooldown_s, ttl_s in AUDITORS:
        if everywhere and shot.stale_files is None:
            continue  # what is everybody's was not looked at this time
        scope, target = ("global:", "") if everywhere else (session + ":", session)
        before = [key for key in known.activeAlerts if key.startswith(scope + prefix)]
        shot.active = {key[len(scope):] for key in before}
        alert, path = audit(shot), signal_path(ctx, target, name)
        keys = [scope + code for code in alert.codes] if alert else []
        for key in set(before).difference(keys):  # what is no longer true need not be said
            del known.activeAlerts[key]
            remove_file(path)
        if alert is None:
            continue
        known.activeAlerts.update(dict.fromkeys(keys, True))
        past_s = ctx.now - (parse_iso(known.lastEmitted.get(keys[0])) or 0.0)
        is_unsaid = past_s > ttl_s and target and is_file(path)
        if is_unsaid or not -SAME_EVENT_S < past_s < cooldown_s:
            known.lastEmitted.update(dict.fromkeys(keys, format_iso(ctx.now)))
            signal = Record(
                name=name, auditor=name, severity=alert.severity, generated_at=ctx.now, ttl_s=ttl_s,
                code=alert.codes[0], body=alert.summary + "\n→ " + alert.action)
            if write_signal(ctx, target, signal):
                record(ctx, "alert:emitted", code=signal.code, severity=signal.severity,
                       summary=alert.summary)


def forget_alerts(ctx: Ctx, is_gone: object) -> None:
    """These keys go from monitor-state.json."""
    def change(known: Record) -> None:
        for table in (known.lastEmitted, known.activeAlerts, known.lastHealth):
            for key in list(filter(is_gone, table)):
                del table[key]

    if is_file(ctx.path("monitor-state.json")):
        update_json(ctx, ctx.path("monitor-state.json"), change, MONITOR)


def find_stale_files(ctx: Ctx) -> tuple:
    """(days since the newest change, names) when every context file is older than the setting. To
    have read one while the reminder stood is as good as a change."""
    known = load_record(read_json(ctx.path("monitor-state.json")), MONITOR)
    infos = [(name, stat_of(join_path(ctx.dir, name))) for name in ctx.get("gate.files")]
    newest = max([info.st_mtime for _, info in infos if info] + [known.confirmed])
    days = int((ctx.now - newest) // 86400)
    is_stale = 0 < ctx.get("audit.stale_days") <= days
    return days, [name for name, info in infos if info and is_stale]


def confirm_files(ctx: Ctx) -> None:
    """A context file was read: while the reminder stands, that answers it."""
    path = ctx.path("monitor-state.json")
    if "global:CTX_AUDIT_DUE" in load_record(read_json(path), MONITOR).activeAlerts:
        update_json(ctx, path, lambda known: vars(known).update(confirmed=ctx.now), MONITOR)

# =============================================================================
# Gate
# =============================================================================
# One message at the first tool call of a session. The marker in the temp folder is created with
# O_EXCL before the output, so that parallel first calls fire once; what is not our own regular
# file there is neither trusted nor followed. A second marker tells the shell that nothing is owed
# before a tool any more.
FILLERS = frozenset(("", "tbd", "todo", "na", "none", "unknown", "yyyymmdd"))
GATE_ROOM = 1500  # with less the gate waits for the next call


def gate_files(ctx: Ctx) -> list:
    """[(name, path)] of the listed context files that say something."""
    named = [(name, join_path(ctx.dir, name)) for name in ctx.get("gate.files")]
    return [(name, path) for name, path in named
            if is_file(path) and says_something(read_shared(ctx, path) or b"")]


def says_something(data: bytes) -> bool:
    """Something is left after headings, comments, empty list items and fillers, which is all that a
    template holds. The one test for context files and handoffs."""
    first, *rest = decode_text(data[:FILE_LIMIT_BYTES]).split("<!--")
    text = first + "".join(part.partition("-->")[2] for part in rest)
    for line in text.split("\n") if "\0" not in text[:8192] else ():
        words = line.strip().lstrip("-*+>0123456789.)| \t").strip("_*`| \t")
        if words[:1] == "[" and words[2:3] == "]":
            words = words[3:].strip()
        is_wrapped = (words[:1], words[-1:]) in (("[", "]"), ("(", ")"), ("<", ">"))
        words = words.rpartition(": ")[2]
        bare = "".join(c for c in words if c.isalnum() or c > "\x7f").strip("…").lower()
        is_head = line.lstrip().startswith("#") or words[-1:] == ":"
        if not is_head and not is_wrapped and bare not in FILLERS:
            return True
    return False


def decode_text(data: bytes) -> str:
    """UTF-8, or what some shells on Windows write; any line end."""
    is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16" if is_wide else "utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def claim_marker(ctx: Ctx, session: str) -> "bool | None":
    return claim_file(ctx, marker_path(ctx, session), (format_iso(ctx.now) + "\n").encode())


def has_marker(ctx: Ctx, session: str) -> bool:
    return is_own(stat_of(marker_path(ctx, session), follow=False))


def drop_markers(ctx: Ctx, session: str, prefixes: tuple) -> None:
    for path in [marker_path(ctx, session, prefix) for prefix in prefixes]:
        if is_own(stat_of(path, follow=False)):
            remove_file(path)


def open_gate(ctx: Ctx, event: Record, state: Record, room: int) -> "str | None":
    """The gate's text for this call, "" when nothing is owed any more, None: later."""
    if ctx.get("gate.mode") == "off" or has_marker(ctx, event.session):
        return ""
    files = gate_files(ctx)
    if files and all(name in state.files_read for name, _ in files):
        return ""
    if not files or room < GATE_ROOM:
        return None
    text = render_gate(ctx, event, [path for _, path in files], min(GATE_CONTENT_LIMIT, room))
    is_claimed = bool(claim_marker(ctx, event.session))
    if not is_claimed and has_marker(ctx, event.session):
        return ""  # a call at the same time was faster
    record(ctx, "gate:emitted", files=[name for name, _ in files], marker=is_claimed,
           style=ctx.get("gate.mode"), chars=len(text))
    return text


def render_gate(ctx: Ctx, event: Record, paths: list, limit: int) -> str:
    """The whole instruction in one message: a chain of `run this and follow its output` decays link
    by link. As content, the files' text by priority; what does not fit is named with its path."""
    is_content, spare = ctx.get("gate.mode") == "content", limit // 12  # for those names
    shown = {path: shown_path(ctx, path, event.cwd) for path in paths}
    head = ctx.get("gate.message") or (GATE_STATEMENT if is_content else GATE_DIRECTIVE)
    head = clean_text(head.replace("{files}", ", ".join(shown.values())))
    if not is_content:
        end = "\n" + GATE_CHECKPOINT if event.attended else ""
        return cut_text(head, limit - ctx.length(end), ctx.length) + end
    text, missing = cut_text(head, limit // 4, ctx.length), []
    for path, name in shown.items():
        said = clean_text(decode_text(read_shared(ctx, path) or b"")).strip()
        part, room = "\n----- %s -----\n%s" % (name, said), limit - spare - ctx.length(text)
        if ctx.length(part) > room:
            missing.append(name)
            part = cut_text(part, room, ctx.length) if room > 600 else ""  # not some words of it
        text += part
    names = cut_text(", ".join(missing), spare - 50, ctx.length)
    return text + ("\n[cut for lack of room; the rest is in: %s]" % names if missing else "")


def stands_in(ctx: Ctx, receipts: str) -> bool:
    """Whether the gate's text is among what hooks said to the agent, by how its lines begin, some
    clients' after a tag."""
    texts = (GATE_DIRECTIVE, GATE_STATEMENT, GATE_CHECKPOINT, clean_text(ctx.get("gate.message")))
    heads = [text.partition("{files}")[0].strip() for text in texts]
    receipts = "\n" + receipts.replace("<hook_context>", "\n")
    return any("\n" + head in receipts for head in heads if head)


def read_context_file(ctx: Ctx, event: Record) -> str:
    """The listed context file that this call read, or ""; some agents have no other way to read
    than `cat .context/TASKS.md`."""
    command = command_of(event) if event.kind == "run" else ""
    shows = command.split(None, 1)[:1] in (["cat"], ["less"], ["head"], ["bat"])
    path = join_path(event.cwd or ctx.root, event.path) if event.kind == "read" else ""
    for name in ctx.get("gate.files") if not event.failed else ():
        is_alike = path and base_name(path).lower() == base_name(name).lower()
        if (shows and name in command) or (
                is_alike and real_path(path) == real_path(join_path(ctx.dir, name))):
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
    ("cleared", {}, [(("session", "", str), ("at", 0.0, "time"))]),  # by the client's process
    ("handoffs", {}, [(  # by session
        ("file", "", str), ("agent", "", str), ("asked_at", 0.0, "time"),
        ("written_at", 0.0, "time"), ("by", "", str), ("delivered_to", "", str),
        ("delivered_at", 0.0, "time"), ("evidence", "", str))]))
HANDOFF_ROW = LEDGER[-1][2][0]
LIVE_S, LIVE_BY_NUMBER_S = 3600, 86400  # numbers are used again: a running one is believed a day
CLEARED_S, MECHANICAL_LIMIT_S = 120, 0.6
MECHANICAL_MARK = MECHANICAL_HEAD.partition("\n")[0]
RECENT_S = 600  # a handoff that the agent wrote unasked so shortly before the crossing counts


def ledger_path(ctx: Ctx) -> str:
    """In a shared checkout each user has one, readable by nobody else."""
    own = not IS_POSIX or _os.geteuid() in (0, ctx.owner.st_uid)
    return ctx.path("state", "handoffs.json" if own else "handoffs-%d.json" % _os.geteuid())


def read_ledger(ctx: Ctx, ledger: "Record | None" = None) -> Record:
    """What lies there, or what was just read under the lock; begun anew when it is not ours. One
    look serves the whole run: what must not be taken twice is compared under the lock."""
    if ctx.ledger is not None and ledger is None:
        return ctx.ledger
    ctx.ledger = ledger = ledger or load_record(read_json(ledger_path(ctx)), LEDGER)
    if ledger.inode != ctx.owner.st_ino or not ledger.first_event:
        vars(ledger).update(inode=ctx.owner.st_ino, first_event=ctx.now, cleared={}, handoffs={})
    return ledger


def update_ledger(ctx: Ctx, change) -> object:
    """Locked: what `change(ledger)` returns; None also when it could not be locked."""
    return update_json(
        ctx, ledger_path(ctx), lambda ledger: change(read_ledger(ctx, ledger)), LEDGER)[1]


def note_handoff(ctx: Ctx, key: str, seen: "float | None" = None, **values) -> bool:
    """Into the row of this session; False when it went to somebody else than at the time `seen`."""
    def change(ledger: Record) -> bool:
        row = ledger.handoffs.get(key) or load_record({}, HANDOFF_ROW)
        if seen not in (None, row.delivered_at):
            return False
        vars(row).update(values)
        ledger.handoffs[key] = row
        return True

    return bool(update_ledger(ctx, change))


def _read_row(ctx: Ctx, session: str) -> Record:
    return read_ledger(ctx).handoffs.get(session) or load_record({}, HANDOFF_ROW)


def handoff_path(ctx: Ctx, session: str, by_kit: bool = False) -> str:
    """The absolute path of a session's handoff; its name is cut to 8 letters while unique. The kit
    itself writes in its own folder only, and at no path for all sessions."""
    kits, named = ctx.path("handoffs", "{session}.md"), ctx.get("handoff.file")
    base = kits if named == DEFAULTS["handoff.file"] else join_path(ctx.root, named)
    is_elsewhere = by_kit and not ("{session}" in named and may_write(ctx, base))
    base = kits if is_elsewhere else base
    owners = {join_path(ctx.root, row.file): key for key, row in read_ledger(ctx).handoffs.items()}
    # of two places of a session the ledger knows one, so the other has the whole name
    short = "" if "~" in session or is_elsewhere else session[:8].rstrip("._-")
    paths = [base.replace("{session}", name)
             for name in (short or session, session, session + "~")]
    return next((path for path in paths if owners.get(path, session) == session), paths[-1])


def read_handoff(ctx: Ctx, path: str) -> str:
    """Its text, cleaned; "" when it is not there, says nothing or may not be delivered."""
    data = read_shared(ctx, path, HANDOFF_LIMIT_BYTES) or b""
    return clean_text(decode_text(data)).strip() if says_something(data) else ""


def client_of(ctx: Ctx) -> str:
    """The number of the client's process; "" where it does not tell."""
    return ctx.env.get("CLAUDE_PID", "") if ctx.agent == "claude" else ""


def note_cleared(ctx: Ctx, session: str) -> None:
    """Who comes next in this client starts from this session's handoff."""
    update_ledger(ctx, lambda ledger: setattr(ledger, "cleared", {
        **dict(list(ledger.cleared.items())[-9:]),
        client_of(ctx): Record(session=session, at=ctx.now)}))


def cleared_session(ctx: Ctx) -> str:
    """The session that this client cleared a moment ago, or ""."""
    noted = read_ledger(ctx).cleared.get(client_of(ctx))
    return noted.session if noted and abs(ctx.now - noted.at) < CLEARED_S else ""


def is_live(ctx: Ctx, session: str, unknown_s: float = LIVE_S) -> bool:
    """Its client runs, or, where that does not tell its number, it was active a while ago."""
    info, pid = stat_of(session_file(ctx, session)), read_session(ctx, session).client
    if info is None or ctx.now - info.st_mtime >= (LIVE_BY_NUMBER_S if pid else unknown_s):
        return False
    if not pid or (pid == client_of(ctx) and session != ctx.session):  # a client has one session
        return not pid
    try:
        if IS_POSIX:
            return _os.kill(int(pid), 0) is None
        import _winapi  # asked by a handle: there `kill` ends the process, whatever the signal

        query, still_active = 0x1000, 259
        handle = _winapi.OpenProcess(query, False, int(pid))
        return _winapi.GetExitCodeProcess(handle) == still_active
    except (OSError, OverflowError, ValueError) as error:
        return isinstance(error, PermissionError)


# --- the reminder


def is_handoff_due(ctx: Ctx, state: Record, measure: Record) -> bool:
    """The threshold is crossed, and there is no handoff since."""
    is_over = state.threshold_crossed_at or (
        measure.tokens >= handoff_point(ctx, state, measure.window))
    return bool(is_over) and not state.handoff_complete and ctx.get("handoff.enabled")


def follow_handoff(ctx: Ctx, event: Record, state: Record, measure: Record) -> tuple:
    """(the reminder for this call, a line for the person), each "" for none; edits the state."""
    margin = measure.window * HANDOFF_RESET_MARGIN // 100
    least = handoff_point(ctx, state, measure.window) - margin
    if state.threshold_crossed_at and measure.exact and measure.tokens < least:
        reset_handoff(state)
    if not is_handoff_due(ctx, state, measure):
        return "", ""
    text = "Context is {} full ({:,}/{:,} tokens{}). ".format(
        measure.shown, measure.tokens, measure.window, measure.note and ", " + measure.note)
    if not all(make_folder(ctx, folder) and is_writable(folder)
               for folder in (ctx.path("state"), ctx.path("handoffs"))):
        # it can neither be saved nor seen, so it is asked for once
        was_asked = claim_file(ctx, marker_path(ctx, event.session, ASKED_PREFIX), b"") is False
        return "" if was_asked else text + HANDOFF_UNSAVED.format(path=ctx.dir), ""
    path, command = handoff_path(ctx, event.session), ctx.get("handoff.command")
    if not state.threshold_crossed_at:
        _cross(ctx, event, state, path)
        record(ctx, "handoff:crossed", percent=measure.percent)
    if find_written(ctx, event, state):
        state.handoff_complete = True
        return "", HANDOFF_DONE_PERSON
    is_spaced = abs(ctx.now - state.reminded_at) < ctx.get("handoff.cooldown_s")
    if is_spaced or (event.batch and event.batch == state.reminded_batch):
        return "", ""
    state.write_denied = state.write_denied or bool(
        state.reminded_at and _was_denied(ctx, event, base_name(path)))
    can_write = event.permission_mode != "plan" and not state.write_denied
    text += HANDOFF_REMINDER.format(
        request=HANDOFF_WRITE.format(path=path) if can_write else HANDOFF_PRINT,
        command=command and " %s writes it for you." % one_line(command))
    person = "" if state.reminded_at else (
        "ctx: context %s full, asked the agent for a handoff" % measure.shown)
    state.reminded_batch, state.reminded_at = event.batch, ctx.now
    record(ctx, "handoff:reminded", percent=measure.percent, chars=len(text))
    return text, person


def reset_handoff(state: Record) -> None:
    """After a compaction nothing of the old context's measure holds."""
    vars(state).update(threshold_crossed_at=0.0, handoff_complete=False, handoff_before="",
                       reminded_batch="", reminded_at=0.0, write_denied=False)


def _cross(ctx: Ctx, event: Record, state: Record, path: str) -> None:
    """From now on a handoff is wanted, another one than what stands there."""
    row, info = _read_row(ctx, event.session), stat_of(path)
    note_handoff(ctx, event.session, file=shown_path(ctx, path, ""), agent=ctx.agent,
                 asked_at=ctx.now, written_at=0.0)
    since = max(row.written_at, state.session_start, state.compacted_at, ctx.now - RECENT_S)
    is_recent = info is not None and since < info.st_mtime <= ctx.now + 1
    state.threshold_crossed_at = ctx.now
    state.handoff_before = "" if is_recent else _fingerprint(path)


def _was_denied(ctx: Ctx, event: Record, name: str) -> bool:
    """A write of it was refused: that stands near the transcript's end, one event later."""
    denied, needles = set(), (DENIAL_NEEDLE, name.encode("utf-8", "replace"))
    for row in rows_backward(ctx, event.transcript, 1 << 16, needles):
        denied.update(result[0] for result in row.results if row.denied)
        if any(call in denied and base_name(touched_path(asked)) == name
               for call, _, asked in row.calls):
            return True
    return False


def find_written(ctx: Ctx, event: Record, state: Record) -> bool:
    """Whether the agent wrote one, noted then: in its own file, or at a path for several."""
    own = handoff_path(ctx, event.session)
    for path in dict.fromkeys((own, join_path(ctx.root, OLD_HANDOFF))):
        is_shared = path != own or "{session}" not in ctx.get("handoff.file")
        is_new = _fingerprint(path) not in ("", state.handoff_before) and (
            not is_shared or _is_ours(ctx, event, state.threshold_crossed_at, path))
        if is_new and read_handoff(ctx, path):
            _note_written(ctx, event.session, path, "agent")
            return True
    return False


def _fingerprint(path: str) -> str:
    """Changes with content or time; "" when there is nothing."""
    info, data = stat_of(path), read_bytes(path, HANDOFF_LIMIT_BYTES)
    return "%d-%s" % (info.st_mtime_ns, _imp.source_hash(1, data).hex()) if info and data else ""


def _is_ours(ctx: Ctx, event: Record, crossed: float, path: str) -> bool:
    """Newer than the crossing, and written by this call or while nobody else waits for one."""
    info = stat_of(path)
    if info is None or not crossed - 1 <= info.st_mtime <= ctx.now + CLOCK_SKEW_S:
        return False
    wrote = event.kind == "edit" and not event.failed and (
        join_path(event.cwd or ctx.root, event.path) == path)
    for session, row in read_ledger(ctx).handoffs.items():
        is_its = row.written_at >= info.st_mtime and join_path(ctx.root, row.file) == path
        waits = row.asked_at and not row.written_at and not wrote and is_live(ctx, session)
        if session != event.session and (is_its or waits):
            return False
    return True


def _note_written(ctx: Ctx, session: str, path: str, by: str) -> None:
    note_handoff(ctx, session, file=shown_path(ctx, path, ""), by=by, written_at=ctx.now,
                 agent=ctx.agent, delivered_to="", delivered_at=0.0, evidence="")
    if parent_of(path) == ctx.path("handoffs"):
        make_private(path)
    record(ctx, "handoff:mechanical" if by == "mechanical" else "handoff:complete", path=path,
           by=by)


# --- printed by the agent and saved at Stop, or made from the transcript


def parse_printed(text: str) -> str:
    """What stands between the lines BEGIN HANDOFF and END HANDOFF, the last time; "" without."""
    found, block = "", None
    for line in text.replace("\r\n", "\n").split("\n"):
        words = line.strip().strip("*_#- ").upper()  # not a quotation, not inline code
        if words == "BEGIN HANDOFF":
            block = []
        elif words == "END HANDOFF":
            found, block = "\n".join(block or ()).strip() or found, None
        elif block is not None:
            block.append(line)
    return found


def save_printed(ctx: Ctx, event: Record) -> str:
    """Save a handoff that the agent printed in its answer; the line for the person, or ""."""
    def complete(state: Record) -> str:
        is_news, state.handoff_complete = not state.handoff_complete, True
        return HANDOFF_DONE_PERSON if is_news else ""

    text = parse_printed(event.last_message) or parse_printed(read_turn(ctx, event.transcript))
    is_saved = text and _write_handoff(ctx, event.session, text + "\n", "printed")
    return (update_session(ctx, event.session, complete)[1] or "") if is_saved else ""


def _write_handoff(ctx: Ctx, session: str, text: str, by: str) -> bool:
    """False also for what says nothing once it is cleaned: it would not be delivered."""
    path = handoff_path(ctx, session, by_kit=True)
    data = clean_text(hide_secrets(text)).encode("utf-8", "replace")[:HANDOFF_LIMIT_BYTES]
    is_written = says_something(data) and write_bytes(ctx, path, data, durable=True)
    if is_written:
        _note_written(ctx, session, path, by)
    return is_written


def ensure_handoff(ctx: Ctx, event: Record) -> None:
    """Before a compaction takes the context away there is a handoff, the kit's own if need be."""
    state, row = read_session(ctx, event.session), _read_row(ctx, event.session)
    is_owed = ctx.get("handoff.enabled") and row.written_at <= state.compacted_at
    if is_owed and not (state.threshold_crossed_at and find_written(ctx, event, state)):
        write_mechanical(ctx, event.session, event.transcript or state.transcript)


def make_up(ctx: Ctx) -> None:
    """A session killed after the crossing gets its handoff now; one a start, for the deadline."""
    for session, row in read_ledger(ctx).handoffs.items():
        is_owed = row.asked_at and not row.written_at and session != ctx.session
        if is_owed and ctx.get("handoff.enabled") and not is_live(ctx, session):
            state, own = read_session(ctx, session), ctx.agent
            ctx.agent = state.agent if state.agent in DIALECTS else own  # its transcript is read
            is_made = state.transcript and write_mechanical(ctx, session, state.transcript)
            ctx.agent = own
            if is_made:
                break


def write_mechanical(ctx: Ctx, session: str, transcript: str) -> bool:
    """The kit's own, where none of the agent's lies unused; False: nothing to make it from."""
    row, path = _read_row(ctx, session), handoff_path(ctx, session, by_kit=True)
    info, text = stat_of(path), read_handoff(ctx, path)
    is_new = info and row.delivered_at + 1 < info.st_mtime <= ctx.now + CLOCK_SKEW_S
    if text and not text.startswith(MECHANICAL_MARK) and (is_new or not row.evidence):
        _note_written(ctx, session, path, "agent")
        return True
    return _write_handoff(ctx, session, render_mechanical(ctx, session, transcript), "mechanical")


def render_mechanical(ctx: Ctx, session: str, transcript: str) -> str:
    """What the end of a transcript tells, and the first request; "" when that is nothing."""
    prompts, said, failed, failure, files, notes = [], "", {}, "", {}, []
    deadline = time.monotonic() + MECHANICAL_LIMIT_S
    for row in rows_backward(ctx, transcript):  # a call comes after its result
        prompts.append(_request_of(row))
        if row.kind == "answer" and len(said) < 1500:
            said = (row.text.strip() + "\n\n" + said).strip()
        failed.update({call_id: text for call_id, is_error, text in row.results if is_error})
        for call_id, tool, tool_input in reversed(row.calls):
            kind, path = tool_kind(tool), touched_path(tool_input)
            if kind == "edit" and path and call_id not in failed:
                files[path] = True
            elif kind == "run" and call_id in failed and not failure:
                command = one_line(command_of(Record(tool_input=tool_input)), 300)
                failure = "`%s`\n%s" % (command, cut_text(failed[call_id].strip(), 600))
            elif kind == "note":
                notes.append(tool_input)
        if time.monotonic() > deadline:
            break
    start = (read_bytes(transcript, FILE_LIMIT_BYTES) or b"").split(b"\n")[:400]
    firsts = (_request_of(parse_line(ctx, line)) for line in start)
    first = next(filter(None, firsts), "") or next(filter(None, reversed(prompts)), "")
    later = [cut_text(text, 700) for text in prompts if text not in ("", first)][:3]
    names = [shown_path(ctx, one_line(path, 300), "") for path in list(files)[:25]]
    git = read_text(ctx.root + "/.git", 4096).partition("gitdir:")[2].strip()  # in a worktree
    head = read_text(join_path(ctx.root, git or ".git") + "/HEAD", 4096)
    branch = one_line(head.partition("refs/heads/")[2], 100)
    sections = (
        ("Goal: the person's first request", cut_text(first, 1500)),
        ("The person's last requests", "\n\n".join(reversed(later))),
        ("What the agent said last", said[-3000:]), ("Todo list", _render_todos(notes[::-1])),
        ("Files changed", "\n".join("- " + name for name in names)),
        ("The last command that failed", failure))
    texts = ["\n## %s\n\n%s\n" % (title, text) for title, text in sections if text]
    head = MECHANICAL_HEAD.format(session=session, when=format_iso(ctx.now),
                                  branch=branch and ", branch " + branch)
    return head + "".join(texts) if first or said or files else ""


def _request_of(row: "Record | None") -> str:
    """A person's words, not what a client puts there for a command or a finished task."""
    text = row.text.strip() if row and row.kind == "prompt" else ""
    machine = ("<", "Caveat:", "[Request interrupted", CONTINUATION_HEAD)
    return "" if text.startswith(machine) else text


def _render_todos(notes: list) -> str:
    """The list as the last calls of the client's todo tools left it."""
    todos, lines = {}, []
    for note in notes:
        rows, key = note.get("todos") or note.get("plan"), str(note.get("taskId"))
        if isinstance(rows, list):
            todos = dict(enumerate(map(dict_of, rows)))
        elif key in todos:
            todos[key] = {**todos[key], **note}
        elif note.get("subject"):  # not a call that only asks for the list
            todos[str(len(todos) + 1)] = note
    for todo in list(todos.values())[:30]:
        texts = map(todo.get, ("subject", "content", "step", "description"))
        text, status = next(filter(None, map(text_of, texts)), ""), todo.get("status")
        if text and status != "deleted":
            mark = "x" if status in ("completed", "done") else " "
            lines.append("- [%s] %s" % (mark, one_line(text, 160)))
    return "\n".join(lines)

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
    "expansion": "Requirements: write down what is asked, what is not, and how it will be judged.",
    "init": "Environment: set up .caw/ for this task, find out how to build and test.",
    "planning": "Plan: write task_plan.md with small steps that can each be checked.",
    "execution": "Execution: carry out all steps of the plan and mark each one when it is done.",
    "qa": "Quality: run the build, the linters and the tests, and mend what fails.",
    "review": "Review: read the whole change as a reviewer would and list the findings.",
    "fix": "Fix: mend the findings of the review.",
    "check": "Check: validate the result against the requirements and the project's rules.",
    "reflect": "Reflect: write down what was learned, in the context files where it has a place.",
}
SKIPS = {"skip_expansion": ("expansion",), "skip_qa": ("qa",),
         "skip_review": ("review", "fix", "check"), "skip_reflect": ("reflect",)}
TRANSITIONS = {"TRANSITION_TO_QA": "qa", "TRANSITION_TO_VALIDATION": "review",
               "TRANSITION_TO_FIX": "fix"}
_BLOCK = ("---\nSIGNAL: %s\nPHASE: {phase}\nSTATUS: %s\nTIMESTAMP: <current time, ISO 8601>\n"
          "%s\n---")
BLOCKS = {  # signal -> its block as the agent is shown it; "": every other signal's
    "PHASE_ERROR": _BLOCK % (
        "PHASE_ERROR", "error", "ERROR: <what happened>\nRECOVERABLE: true|false"),
    "PHASE_BLOCKED": _BLOCK % ("PHASE_BLOCKED", "blocked", "NEEDS: <what the person must decide>"),
    "": _BLOCK % ("{signal}", "complete", "NEXT: {next}"),
}
_BLOCK_KEYS = frozenset("SIGNAL PHASE STATUS TIMESTAMP ERROR RECOVERABLE NEEDS NEXT".split())
_SIGNALS = (("last_checked", 0.0, "time"), ("detected_signals", [], list))
MAX_ITERATIONS, ITERATIONS_LIMIT, STALLS_LIMIT, FULL_PERCENT = 20, 50, 3, 95
WORKFLOW = (
    ("schema_version", "2.0", str), ("active", False, bool), ("phase", "", str),
    ("iteration", 0, "count"), ("max_iterations", MAX_ITERATIONS, "count"), ("needs", "", str),
    ("started_at", 0.0, "time"), ("completed_at", 0.0, "time"), ("phase_started_at", 0.0, "time"),
    ("task_description", "", str), ("config", {}, dict), ("phases", [], "texts"),
    ("until", "", str), ("exit_reason", "", str), ("last_phase", "", str), ("session_id", "", str),
    ("token", "", str), ("any_prompt", False, bool), ("signals", None, _SIGNALS),
    ("last_error", {}, dict), ("last_check", {}, dict), ("stop_mark", "", str),
    # the brakes: tool calls at the last stop; stops since without one; holds in a row; ways back
    ("tool_calls", 0, "count"), ("stalls", 0, "count"), ("holds", 0, "count"),
    ("returns", 0, "count"))
FRESH = {"iteration": 0, "needs": "", "stalls": 0, "holds": 0, "returns": 0, "stop_mark": ""}
STALE_AFTER_S, TIME_TOLERANCE_S = 2 * 3600, 300
CHECKS_LIMIT_S = 140  # all of one stop together: the client waits 150, a hook takes 4, an end 5
CHECK_TAIL, CHECK_BUFFER = 2000, 64 * 1024
SECRET_ENDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "_PASS", "_PAT", "PASSPHRASE")
SECRET_STARTS = ("ANTHROPIC_", "CLAUDE_CODE_")
_STANDING = """
- Phase: {phase} (iteration {iteration}/{max})
- About: {about}
- Task: {task}
- Expected signal: {signal}{check}

When the phase is done, print this block with the current time:
""" + BLOCKS[""]
BRIEFING = "[ctx auto] A workflow is running: phase {phase} of {phases}." + _STANDING
CONTINUATION = CONTINUATION_HEAD + "\n{lead}" + _STANDING + """
If something went wrong, print this instead; with RECOVERABLE: false the workflow ends:
""" + BLOCKS["PHASE_ERROR"] + """
If you need the person to decide something, print this; you may then stop and they are asked:
""" + BLOCKS["PHASE_BLOCKED"]
CONTINUATION_SHORT = CONTINUATION_HEAD + """
{lead} Phase {phase}, iteration {iteration}/{max}.
When it is done, print the block with SIGNAL: {signal} and the current time; \
PHASE_BLOCKED if the person must decide, PHASE_ERROR if it went wrong."""
CANCELLED_AGENT = "[ctx auto] The person cancelled the workflow; you may stop when you like."
AUTO_PERSON = "ctx auto: "
ENDINGS = {  # why a workflow ends, and what the person is told
    "all_phases_complete": "all phases complete.",
    "auto_complete_signal": "the agent declared the whole workflow complete.",
    "max_iterations_reached": "stopped, phase {phase} did not complete within {max} iterations.",
    "stale_state": "ended, no activity for over 2 hours.",
    "critical_error": "stopped by an error in phase {phase}: {error}",
    "user_cancelled": "cancelled.",
}
STOP_MESSAGES = dict(  # and why one stop is allowed while it stays
    ENDINGS, blocked="phase {phase} waits for you: {needs}",
    not_agreed="phase {phase} has a check that nobody agreed to; see `auto status`.",
    checks_late="let the agent stop, no time was left for all checks; phase {phase} stays.",
    no_progress="let the agent stop, no tool call over 3 stops; phase {phase} stays.",
    hold_cap="let the agent stop before the client's own limit; phase {phase} stays.",
    subagents="subagents are at work; phase {phase} goes on when they are done.",
    context_full="let the agent stop, the context is nearly full; phase {phase} stays.",
    plan_mode="plan mode, the agent may stop; phase {phase} stays.",
    unwritable="let the agent stop, .caw/auto-state.json cannot be written.")


def parse_blocks(text: str) -> list:
    """Everything that means to be a block, in order: what stands between two `---` lines, each
    line of it a field, as {key: value} with upper-case keys. One `---` may end one and open one."""
    found, lines = [], ["", *map(str.strip, text.split("\n")), ""]
    for part in "\n\n".join(lines).split("\n---\n")[1:-1]:
        rows = [line.partition(":") for line in part.split("\n") if line]
        fields = {key.strip().upper(): value.strip() for key, _, value in rows}
        if "SIGNAL" in fields and len(fields) == len(rows) and _BLOCK_KEYS.issuperset(fields):
            found.append(fields)
    return found


def problem_of_block(fields: dict, phase: str, since: float, now: float) -> str:
    """What is wrong with a block in this phase, "" when it counts."""
    signal, at = fields["SIGNAL"].upper(), parse_iso(fields.get("TIMESTAMP"))
    wanted, = parse_blocks(BLOCKS.get(signal, BLOCKS[""]))
    missing = [key for key in wanted if not fields.get(key)]
    if missing:
        return missing[0] + " is missing"
    if signal not in (signal_of(phase), "AUTO_COMPLETE", *BLOCKS, *TRANSITIONS):
        return "SIGNAL must be `%s`" % signal_of(phase)
    if fields["STATUS"].lower() != wanted["STATUS"]:
        return "STATUS must be `%s`" % wanted["STATUS"]
    if fields["PHASE"].lower() not in (phase, "complete" if signal == "AUTO_COMPLETE" else phase):
        return "PHASE is `%s`, the current phase is `%s`" % (one_line(fields["PHASE"], 40), phase)
    if at is None or not since - TIME_TOLERANCE_S <= at <= now + TIME_TOLERANCE_S:
        return "TIMESTAMP is no ISO 8601 time from the phase's start to now, " + format_iso(now)
    if fields.get("RECOVERABLE", "true").lower() not in ("true", "false"):
        return "RECOVERABLE must be true or false"
    return ""


def judge_turn(flow: Record, text: str, now: float) -> Record:
    """The stop as far as the text tells: the one signal that counts or "", its block, and what the
    agent is told without one; a reason to let go and a check's result may come. The current phase's
    own signal comes before all others; AUTO_COMPLETE counts only when it stands alone."""
    own, good, blocks = signal_of(flow.phase), {}, parse_blocks(text)
    lead = "The phase is not complete yet: its completion block is missing."
    for fields in sorted(blocks, key=lambda fields: fields["SIGNAL"].upper() == own):  # it is last
        signal = fields["SIGNAL"].upper()
        problem = problem_of_block(fields, flow.phase, flow.phase_started_at, now)
        if not problem:
            good[signal] = fields
        elif signal == own or fields.get("PHASE", "").lower() == flow.phase:
            lead = "The block for %s does not count: %s." % (one_line(signal, 40), problem)
    if len(blocks) > 1:
        good.pop("AUTO_COMPLETE", None)
    signal = list(good)[-1] if good else ""
    return Record(signal=signal, block=good.get(signal), lead=lead, reason="", check="",
                  owner=flow.session_id, phase=flow.phase, checked=flow.phase)


def auto_path(ctx: Ctx) -> str:
    return ctx.root + "/" + AUTO_STATE


def update_workflow(ctx: Ctx, change) -> tuple:
    """Locked: (whether it stands on disk, the result)."""
    return update_json(ctx, auto_path(ctx), lambda flow: change(read_workflow(ctx, flow)), WORKFLOW)


def read_workflow(ctx: Ctx, flow: "Record | None" = None) -> Record:
    """What lies there, for looking only, or what was just read under the lock; with the parts that
    other writers leave out. Without any time of its own the file's counts."""
    flow = flow or load_record(read_json(auto_path(ctx)), WORKFLOW)
    flow.signals = flow.signals or load_record({}, _SIGNALS)
    skipped = sum((SKIPS[flag] for flag in SKIPS if flow.config.get(flag) is True), ())
    flow.phases = list(dict.fromkeys(flow.phases)) or [
        name for name in PHASES if name not in skipped]
    flow.max_iterations = min(max(flow.max_iterations, 1), ITERATIONS_LIMIT)
    if not 0 < flow.started_at <= ctx.now + CLOCK_SKEW_S:
        info = stat_of(auto_path(ctx))
        flow.started_at = info.st_mtime if info else ctx.now
    flow.phase_started_at = min(flow.phase_started_at or flow.started_at, ctx.now)
    flow.last_phase = flow.last_phase or text_of(dig(vars(flow), "enforcer.last_phase"))  # 0.1.0
    return flow


def is_active(flow: Record) -> bool:
    return flow.active and flow.phase in flow.phases


def signal_of(phase: str) -> str:
    return phase.upper().replace("-", "_") + "_COMPLETE"


def _later_phases(flow: Record) -> list:
    return flow.phases[flow.phases.index(flow.phase) + 1:]


def trust_path(ctx: Ctx) -> str:
    digest = call_signature("project", real_path(ctx.root))
    return ctx.state_home + "/workflows/" + digest + ".json" if ctx.state_home else ""


def read_trust(ctx: Ctx) -> Record:
    """What this machine's user started, and the digest of the command of each phase that they
    agreed to; only `auto` writes it."""
    path = trust_path(ctx)
    data = load_json(path, follow=False) if is_own(stat_of(path, follow=False)) else {}
    return load_record(data, (("token", "", str), ("checks", {}, dict)))


def digest_of(text: str) -> str:
    """SHA-256 in hex; of nothing it is nothing, so that no check at all compares like one."""
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text else ""


def is_meant_here(ctx: Ctx, flow: Record, session_id: str) -> bool:
    """It names this live session, or was started by `auto` on this machine."""
    is_named = session_id and flow.session_id == session_id
    return bool(is_named or flow.token and flow.token == read_trust(ctx).token)


def find_workflow(ctx: Ctx, session_id: str) -> "Record | None":
    """The running workflow that this session has or may take, if it was meant here."""
    flow = read_workflow(ctx)
    is_open = is_active(flow) and session_id and flow.session_id in ("", session_id)
    return flow if is_open and is_meant_here(ctx, flow, session_id) else None


def bind_workflow(ctx: Ctx, event: Record) -> bool:
    """At a prompt an unbound workflow takes the session, and a person's sets its brakes back; after
    /clear it goes along to this client's next session. Whether it is this session's from now on."""
    if event.name == "SessionStart":
        found, cleared = read_workflow(ctx), cleared_session(ctx)
        may_bind = cleared and is_active(found) and safe_name(found.session_id) == cleared
    else:
        found = find_workflow(ctx, event.session_id)
        is_person = event.by_person and not event.prompt.startswith(CONTINUATION_HEAD)
        may_bind = found and (is_person if found.session_id else
                              found.any_prompt or is_person and event.attended)

    def take_up(flow: Record) -> bool:
        is_same = flow.session_id == found.session_id  # else another was quicker
        if is_same:
            calls = read_session(ctx, event.session).tool_calls
            vars(flow).update(FRESH, session_id=event.session_id, tool_calls=calls)
            flow.signals.last_checked = ctx.now
        return is_same

    return bool(may_bind and update_workflow(ctx, take_up)[1])


def is_stale(ctx: Ctx, flow: Record) -> bool:
    """No stop, start or tool call for hours; a time in the future tells nothing."""
    called = read_session(ctx, safe_name(flow.session_id)).last_call
    times = (0.0, flow.signals.last_checked, flow.started_at, called)
    return ctx.now - max(at for at in times if at <= ctx.now + CLOCK_SKEW_S) > STALE_AFTER_S


def end_workflow(flow: Record, reason: str, now: float) -> None:
    done = reason in ("all_phases_complete", "auto_complete_signal")
    vars(flow).update(active=False, phase="complete" if done else "failed", last_phase=flow.phase,
                      exit_reason=reason, completed_at=now)


def cancel_workflow(ctx: Ctx, reason: str = "user_cancelled") -> bool:
    """For the person, at a prompt or by `auto stop`; False: it could not be written."""
    done = update_workflow(ctx, lambda flow: end_workflow(flow, reason, ctx.now))[0]
    if done:
        record(ctx, "auto:cancelled", reason=reason)
    return done


def enforce_stop(ctx: Ctx, event: Record, state: Record) -> "Reply | None":
    """Hold or release. What the agent said is judged and checked first, without a lock; a state
    that changed meanwhile or cannot be written holds nobody."""
    flow = find_workflow(ctx, event.session_id)
    if flow is None or not (flow.session_id or flow.any_prompt):
        return None  # only a client without prompt events binds here, where any session may
    mark = call_signature("%s %s %d" % (event.prompt_id, event.stop_active, state.tool_calls),
                          event.last_message)

    def claim(flow: Record) -> bool:
        """Of two kits registered for one client the first run has this stop, and its checks."""
        if flow.stop_mark == mark and abs(ctx.now - flow.signals.last_checked) < SAME_EVENT_S:
            return False
        flow.stop_mark, flow.signals.last_checked = mark, ctx.now
        return True

    if update_workflow(ctx, claim)[1] is False:
        return None
    text = read_turn(ctx, event.transcript, max(flow.signals.last_checked, flow.phase_started_at))
    if event.last_message not in text:
        text += "\n" + event.last_message
    stop = judge_turn(flow, text, ctx.now)
    if not stop.signal and is_stale(ctx, flow):
        stop.reason = "stale_state"
    if stop.signal not in BLOCKS:  # it says that something is complete
        _prove(ctx, flow, stop)
    written, flow = update_workflow(ctx, lambda now: _decide(ctx, now, event, stop, state))
    if flow is None:
        return None
    reason, reply = stop.reason if written else "unwritable", Reply()
    if reason in STOP_MESSAGES:
        reply.person = AUTO_PERSON + STOP_MESSAGES[reason].format(
            phase=flow.phase if flow.active else flow.last_phase, max=flow.max_iterations,
            needs=flow.needs, error=flow.last_error.get("message"))
    else:
        # all of it with the way into a phase, or the first hold of the one it began with
        is_whole = flow.iteration <= (1 if flow.phase_started_at <= flow.started_at else 0)
        template = CONTINUATION if is_whole else CONTINUATION_SHORT
        reply.hold, reply.context = True, render_phase(ctx, flow, template, stop.lead)
    record(ctx, "stop:held" if reply.hold else "stop:released", reason=reason, phase=stop.phase,
           iteration=flow.iteration, chars=len(reply.context), check=stop.check)
    return reply


def _prove(ctx: Ctx, flow: Record, stop: Record) -> None:
    """Run the check of the phase, or of all that are left, up to the first that fails, if the
    person agreed to exactly them; without the proof there is no signal but a lead or a reason."""
    phases = [flow.phase, *(_later_phases(flow) if stop.signal == "AUTO_COMPLETE" else ())]
    agreed, checks = read_trust(ctx).checks, checks_of(ctx, flow)
    if any(agreed.get(name, "") != digest_of(checks.get(name, "")) for name in phases):
        vars(stop).update(signal="", check="not agreed to", reason="not_agreed")
        return
    own_s = min(max(ctx.get("auto.check_timeout_s"), 1), CHECKS_LIMIT_S)
    end, due = time.monotonic() + CHECKS_LIMIT_S, [name for name in phases if name in checks]
    add_time(CHECKS_LIMIT_S + 5 if due else 0)
    for name in due:
        stop.checked, limit_s = name, min(own_s, round(end - time.monotonic()))
        code, output = run_bounded(checks[name], ctx.root, limit_s) if limit_s > 0 else (None, b"")
        stop.check = "did not end within %d s" % limit_s if code is None else "exited %d" % code
        if code is None and limit_s < own_s:  # nobody can tell, so nobody is held
            vars(stop).update(signal="", check="had no time left", reason="checks_late")
        elif code != 0:
            tail = hide_secrets(clean_text(output[-CHECK_TAIL * 2:].decode("utf-8", "replace")))
            stop.signal, stop.lead = "", (
                "The block is there, but its check `%s` %s. The end of its output:\n%s\n" % (
                    one_line(checks[name], 300), stop.check, tail[-CHECK_TAIL:].strip()))
        if not stop.signal:
            return


def _decide(ctx: Ctx, flow: Record, event: Record, stop: Record, state: Record) -> "Record | None":
    """Apply the signal to the workflow, then release by the first brake that applies, which sets
    the counts back, or hold. None: it changed meanwhile."""
    if not is_active(flow) or (flow.session_id, flow.phase) != (stop.owner, stop.phase):
        return None
    flow.session_id = event.session_id
    if stop.check:
        flow.last_check = {"phase": stop.checked, "result": stop.check, "at": format_iso(ctx.now)}
    if stop.signal:
        _apply(flow, stop, ctx.now)
    has_advanced, worked = flow.phase != stop.phase, state.tool_calls != flow.tool_calls
    iteration = 0 if has_advanced else flow.iteration + 1
    stalls = 0 if worked or has_advanced else flow.stalls + 1
    holds = 1 if worked or not event.stop_active else flow.holds + 1
    stated = ctx.env.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", "")
    cap = int(stated) if is_digits(stated) and ctx.agent == "claude" else HOLD_CAP
    measure = measure_context(ctx, state, read_usage(ctx, event.transcript), 0)
    brakes = (
        (stop.reason, stop.reason), ("blocked", flow.needs), ("subagents", event.subagents),
        ("plan_mode", event.permission_mode == "plan"),
        ("context_full", measure.percent >= FULL_PERCENT), ("no_progress", stalls >= STALLS_LIMIT),
        ("hold_cap", 0 < cap <= holds),
        # phases that send each other round in circles end too
        ("max_iterations_reached", max(iteration, flow.returns) > flow.max_iterations),
        ("advanced", has_advanced), ("held", True))
    stop.reason = next(name for name, applies in brakes if applies)
    vars(flow).update(tool_calls=state.tool_calls, stalls=0, holds=0)
    if stop.reason not in STOP_MESSAGES:  # it is held: whatever lets go has a message
        vars(flow).update(iteration=iteration, stalls=stalls, holds=holds)
    if stop.reason in ENDINGS:
        end_workflow(flow, stop.reason, ctx.now)
    return flow


def _apply(flow: Record, stop: Record, now: float) -> None:
    """Note the signal; advance, or keep what it says: a reason to let go, or else the next lead."""
    phase, signal, at = flow.phase, stop.signal, format_iso(now)
    row = {"signal": signal, "detected_at": at, "phase": phase, "attempts": flow.iteration + 1}
    flow.signals.detected_signals = (flow.signals.detected_signals + [row])[-200:]
    later, following = _later_phases(flow), TRANSITIONS.get(signal)
    following = following if following in flow.phases else next(iter(later), "")
    if signal == "PHASE_BLOCKED":
        flow.needs = one_line(stop.block["NEEDS"], 500)
    elif signal == "PHASE_ERROR":
        is_recoverable = stop.block["RECOVERABLE"].lower() == "true"
        message = one_line(stop.block["ERROR"], 500)
        flow.last_error = {"phase": phase, "message": message, "recoverable": is_recoverable,
                           "timestamp": at}
        stop.reason = "" if is_recoverable else "critical_error"
        stop.lead = "You reported a recoverable error: %s. Recover from it and go on." % message
    elif signal == "AUTO_COMPLETE":
        stop.reason = "auto_complete_signal"
    elif not following:
        stop.reason = "all_phases_complete"
    else:
        vars(flow).update(phase=following, iteration=0, phase_started_at=now, stalls=0,
                          returns=flow.returns + int(following not in later))
        stop.lead = "Phase %s is complete. Go on with the next one." % phase


def render_phase(ctx: Ctx, flow: Record, template: str, lead: str = "") -> str:
    phase, command = flow.phase, checks_of(ctx, flow).get(flow.phase)
    about = ctx.get("auto.about").get(phase) or PHASES.get(phase, "")
    task = one_line(flow.task_description, 1500).replace("---", "—")
    return template.format(
        lead=lead, phase=phase, phases=", ".join(flow.phases), iteration=flow.iteration,
        max=flow.max_iterations, about=one_line(about, 400) or "(see the task)",
        task=task or "(see the conversation)", signal=signal_of(phase),
        check="\n- Verified by: `%s` (it must exit 0)" % one_line(command, 300) if command else "",
        next=next(iter(_later_phases(flow)), "none"))


def checks_of(ctx: Ctx, flow: Record) -> dict:
    """phase -> the command that must exit 0 for it to be complete, for those that have one."""
    commands = dict(ctx.get("auto.done_when"))
    commands[flow.phases[-1]] = flow.until or commands.get(flow.phases[-1])
    return {phase: commands[phase] for phase in flow.phases if commands.get(phase)}


def run_bounded(command: str, root: str, limit_s: float) -> tuple:
    """(exit code, None when its time was over; the end of its output), in a process group of its
    own, which ends with it, without secrets, a terminal or input. Hooks start no other process."""
    import os
    import subprocess
    import threading

    env = {name: value for name, value in os.environ.items()
           if not name.startswith(SECRET_STARTS) and not name.upper().endswith(SECRET_ENDS)}
    try:
        tail, child = bytearray(), subprocess.Popen(  # noqa: S602
            command, shell=True, cwd=root, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=IS_POSIX)
    except (OSError, ValueError) as error:  # as when no more processes are allowed
        return 127, str(error).encode()

    def read() -> None:
        with child.stdout as pipe:
            for data in iter(lambda: pipe.read1(65536), b""):
                tail.extend(data)
                del tail[:-CHECK_BUFFER]

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        code = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        code = None
    end_group(child)
    reader.join(1.5)  # nobody waits for a child that left the group and keeps the pipe open
    return code, bytes(tail)


def end_group(child: object) -> None:
    """The child and what it started."""
    if IS_POSIX:
        try:
            _os.killpg(child.pid, 9)
        except OSError:
            pass  # gone already
    elif child.poll() is None:
        import subprocess

        # by its path: a bare name is first looked for in the current folder
        tool = _os.environ.get("SYSTEMROOT", r"C:\Windows") + r"\System32\taskkill.exe"
        subprocess.call([tool, "/F", "/T", "/PID", str(child.pid)], stdout=-3, stderr=-3)
        child.kill()
    child.wait()

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
SOURCE_FILE = "From {path}:"
SOURCE_CUT = "[cut for lack of room; the whole text is in this file]"
SECTION_START = "<!-- STARTUP_CONTEXT_INJECTION -->"
SECTION_END = "<!-- END_STARTUP_CONTEXT -->"
SECTION_HEADING = "## Session Context (Auto-Injected)"
FALLBACK_NOTICE = "[System] Session context written to {file} - please review"
FALLBACK_PERSON = "ctx: wrote the handoff into {file}, the agent has not confirmed it"
FAILURE_NOTICE = "Session context could not be delivered; it is in {path} - please read it"
_NEGATIONS = frozenset("not no never cannot won't don't can't without reply say print output "
                       "instead refuse refused told asked".split())
KEY_HEADINGS = ("goal", "next", "task", "todo", "objective", "focus", "written by ctx_hooks")
METRICS = (
    ("attempted", 0, "count"), ("succeededOnFirstTry", 0, "count"),
    ("succeededAfterRetry", 0, "count"), ("escalatedToFile", 0, "count"), ("failed", 0, "count"),
    ("confirmedByReceipt", 0, "count"), ("averageAttemptsToSuccess", 0, float),
    ("averageTimeToSuccess", 0, float))
_DELIVERY = SESSION[-1][2]
# Handoff   key (whose), path, file (as it is shown), at, by, text, seen (when it was delivered
#           last), is_busy (its writer is still at work, so it is only named)


def find_handoffs(ctx: Ctx, session: str, wanted: str = "", only: bool = False) -> list:
    """Those that this session may get, the best first: the one of the `wanted` key, whoever had it,
    then (not with `only`) by age. Known to the ledger, or newer than the first event that was ever
    seen here; one that was changed since it was noted is a new one."""
    ledger, unknown, found = read_ledger(ctx), load_record({}, HANDOFF_ROW), []
    names = [ctx.path("handoffs", name) for name in list_dir(ctx.path("handoffs"))
             if name.endswith(".md")] + [OLD_HANDOFF, ctx.get("handoff.file")]
    rows = {join_path(ctx.root, name): ("file:" + base_name(name), unknown) for name in names}
    for key, row in sorted(ledger.handoffs.items(), key=lambda item: item[1].written_at):
        rows[join_path(ctx.root, row.file)] = key, row  # at a path for all sessions the last one
    oldest = ctx.now - ctx.get("startup.max_age_hours") * 3600
    for path, (key, row) in rows.items():
        info, to = stat_of(path), row.delivered_to
        noted_at = max(row.asked_at, row.written_at, row.delivered_at, ledger.first_event - 1)
        is_new = is_regular(info) and noted_at + 1 < info.st_mtime <= ctx.now + CLOCK_SKEW_S
        at = info.st_mtime if is_new else row.written_at
        is_used = row.evidence and to not in ("", key)  # its writer's is none
        is_taken = is_used or to not in ("", session) and (
            abs(ctx.now - row.delivered_at) < SAME_EVENT_S or is_live(ctx, to))
        is_free = not only and key != session and at > oldest and (is_new or not is_taken)
        text = read_handoff(ctx, path) if at and (key == wanted or is_free) else ""
        if text:
            by = "mechanical" if text.startswith(MECHANICAL_MARK) else "agent" if is_new else row.by
            found.append(Record(
                key=key, path=path, file=shown_path(ctx, path, ""), at=at, by=by, text=text,
                seen=row.delivered_at, is_busy=key != wanted and is_live(ctx, key, 0)))
    return sorted(found, key=lambda one: (one.key != wanted, one.is_busy, -one.at))


def hold_handoff(ctx: Ctx, chosen: Record, session: str) -> bool:
    """It is on its way to this session alone, for now; False when another one was faster."""
    return note_handoff(ctx, chosen.key, chosen.seen, delivered_to=session, delivered_at=ctx.now,
                        evidence="", by=chosen.by, file=chosen.file, written_at=chosen.at)


def startup_sources(ctx: Ctx, chosen: "Record | None", found: list, session: str = "") -> list:
    """[(where it comes from, text)], the handoff first; the other ones are only named."""
    sources, others = [], [one for one in found if one is not chosen]
    if chosen:
        is_own = chosen.key == session
        sources.append(("Handoff of %s, from %s (%s):" % (
            "this session before the compaction" if is_own else "the session before",
            chosen.file, format_iso(chosen.at)), chosen.text))
    for path, text in startup_files(ctx).items():
        sources.append((SOURCE_FILE.format(path=shown_path(ctx, path, "")), text))
    if others:
        sources.append(("Other handoffs that nobody has had yet: " + ", ".join(
            "%s (%s)" % (one.file, format_iso(one.at)) for one in others[:5]), ""))
    return sources


def startup_files(ctx: Ctx) -> dict:
    """path -> text of what is delivered beside the handoff."""
    paths = [join_path(ctx.root, name) for name in ctx.get("startup.files")]
    texts = {path: read_handoff(ctx, path) for path in paths}
    return {path: text for path, text in texts.items() if text}


def send_startup(ctx: Ctx, delivery: Record, sources: list, kind: str) -> str:
    """The text of the next attempt, shortened to its budget, with the request. It names the
    delivery: on a fork or a resume the client drops a text that stands in the conversation."""
    vars(delivery).update(attempts=delivery.attempts + 1, last_at=ctx.now, answered=False)
    if delivery.attempts == 1:
        delivery.first_at = ctx.now
        count_metrics(ctx, attempted=1)
    asks = ctx.get("startup.require_ack")
    start, end = (FRAME_START, FRAME_END) if asks else (QUIET_START, QUIET_END)
    head = "%s\n(delivery %s, attempt %d)" % (start, delivery.message_id, delivery.attempts)
    budget = int(max(min(ctx.get("startup.budget_chars"), STARTUP_LIMIT), 500))
    body = shorten_sources(sources, budget - ctx.length(head + end) - 2, ctx.length)
    text = "\n".join((head, body, end))
    record(ctx, "injection:attempted", messageId=delivery.message_id, attempt=delivery.attempts,
           type=kind, chars=len(text))
    return text


def shorten_sources(sources: list, limit: int, length: object = units) -> str:
    """All that fits, source by source; of one that is cut its goal and next steps come first."""
    whole, out = "\n\n".join(filter(None, sum(sources, ()))), []
    if length(whole) <= limit:
        return whole
    room = limit - sum(length(head + SOURCE_CUT) + 5 for head, _ in sources)
    for head, text in sources:
        if text and length(text) > room:
            ranked = sorted(split_sections(text), key=lambda part: not any(
                word in part.partition("\n")[0].lower() for word in KEY_HEADINGS))
            text = (cut_text("\n\n".join(ranked), room, length) + "\n" + SOURCE_CUT).lstrip()
        room -= length(text)
        out += filter(None, (head, text))
    return cut_text("\n\n".join(out), limit, length)


def split_sections(text: str) -> list:
    """By Markdown headings; the first part may have none, a `##` keeps what is below it."""
    parts, fenced = [[]], False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        is_inner = line.startswith("###") and parts[-1] and parts[-1][0].startswith("## ")
        if line.startswith("#") and not fenced and not is_inner:
            parts.append([])
        parts[-1].append(line)
    return list(filter(None, ["\n".join(part).strip() for part in parts]))


def is_acknowledged(text: str) -> bool:
    """The words in the agent's own text, not fenced, quoted, negated, asked about or asked for."""
    said, fenced = [], False
    for line in text.replace("**", "").replace("__", "").split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith(">"):
            said.append(line.strip(" \t*_`"))
    folded = " ".join(" ".join(said).lower().split()).replace("ack:context", "ack: context")
    before, *rest = folded.split("ack: context received")
    for after in rest:
        words = before[-24:].replace(".", " ").replace(",", " ").split()
        is_other = before[-1:].isalnum() or before.rstrip()[-1:] in ('"', "“", "'", "`", "«")
        if not is_other and after.lstrip()[:1] != "?" and _NEGATIONS.isdisjoint(words[-4:]):
            return True
        before = after
    return False


def start_session(ctx: Ctx, event: Record, state: Record, receipts: str) -> tuple:
    """SessionStart by its source: the first attempt as (text, line for the person), both "" when
    there is nothing to deliver. What a resumed or forked transcript holds is not sent again; after
    a compaction the session gets its own handoff, after /clear that of the one cleared."""
    is_compact, is_anew = event.source == "compact", event.source in ("compact", "clear")
    if is_anew and abs(ctx.now - state.compacted_at) < SAME_EVENT_S:
        return "", ""  # two kits at the same moment: the other run has done it
    note_settings(ctx, state)
    vars(state).update(model=event.model or state.model, client=client_of(ctx),
                       transcript=event.transcript or state.transcript)
    drop_markers(ctx, event.session, MARKER_PREFIXES if is_anew else (QUIET_PREFIX,))
    if is_anew:
        reset_handoff(state)
        vars(state).update(files_read=[], estimated_tokens=0, recent=[], audited=[],
                           compacted_at=ctx.now, workflow_told="")
    if state.startup is None and (FRAME_START in receipts or QUIET_START in receipts):
        state.startup = load_record({"outcome": "delivered"}, _DELIVERY)
    is_second = state.startup is not None and not is_compact
    if is_second or event.source == "resume" or not ctx.get("startup.enabled"):
        return "", ""
    state.startup = None
    wanted = {"compact": event.session, "clear": cleared_session(ctx)}.get(event.source, "")
    found = find_handoffs(ctx, event.session, wanted, is_compact)
    free = [one for one in found if not one.is_busy and (one.at > one.seen or not is_compact)]
    chosen = next((one for one in free if hold_handoff(ctx, one, event.session)), None)
    sources = startup_sources(ctx, chosen, found, event.session)
    if not sources or (is_compact and not chosen):
        return "", ""
    state.startup = load_record({
        "message_id": "inj-%x" % int(ctx.now * 1000), "handoff": chosen.key if chosen else "",
        "attempts": 0, "offset": transcript_size(event.transcript)}, _DELIVERY)
    person = chosen and "ctx: handoff of %s delivered, %d lines" % (
        time.strftime("%H:%M", time.localtime(chosen.at)), chosen.text.count("\n") + 1)
    return send_startup(ctx, state.startup, sources, event.name), person or ""


def is_pending(state: Record) -> bool:
    return state.startup is not None and state.startup.outcome in ("pending", "escalated")


def follow_delivery(ctx: Ctx, event: Record, state: Record, may_speak: bool) -> tuple:
    """Look for evidence. Without any, when it is time, the next rung, as (text, line for the
    person): the text again, the instruction file with its notice, or the end. Edits the state."""
    delivery = state.startup
    if not is_pending(state):
        return "", ""
    news = read_news(ctx, event.transcript, delivery.offset, delivery.first_at)
    delivery.offset = news.offset
    delivery.answered = delivery.answered or bool(news.text or event.last_message)
    if delivery.message_id and delivery.message_id in news.receipts:
        succeed_delivery(ctx, delivery, "receipt")
    elif is_acknowledged(news.text + "\n" + event.last_message):
        succeed_delivery(ctx, delivery, "acknowledgement")
    rung, wait_s = next_rung(ctx, delivery.attempts, True)
    waits = abs(ctx.now - delivery.last_at) < wait_s
    if not may_speak or not delivery.answered or waits or delivery.outcome != "pending":
        return "", ""
    found = find_handoffs(ctx, event.session, delivery.handoff, True)
    chosen, file = found[0] if found else None, fallback_file(ctx)
    sources = startup_sources(ctx, chosen, [], event.session)
    if not sources:
        delivery.outcome = "withdrawn"  # the handoff is gone: nothing to insist on
        return "", ""
    if rung == "file" and write_section(ctx, shorten_sources(sources, STARTUP_LIMIT), file):
        settle_delivery(ctx, delivery, "escalated", escalationType="file", file=file)
        return FALLBACK_NOTICE.format(file=file), FALLBACK_PERSON.format(file=file)
    if next_rung(ctx, delivery.attempts, False)[0] == "again":
        return send_startup(ctx, delivery, sources, event.name), ""
    settle_delivery(ctx, delivery, "failed", reason="no evidence")
    paths = ", ".join([*(one.path for one in found[:1]), *startup_files(ctx)])
    return FAILURE_NOTICE.format(path=paths), ""


def next_rung(ctx: Ctx, attempts: int, may_write: bool) -> tuple:
    """(`again`, `file` or `fail` after so many attempts without evidence, in how many seconds)."""
    most, backoffs = ctx.get("startup.max_attempts"), ctx.get("startup.retry_backoffs_s") or [0]
    rung = "again" if attempts < most else "fail"
    if may_write and attempts >= min(ctx.get("startup.file_fallback_after_attempts"), most):
        rung = "file"
    return rung, backoffs[min(attempts, len(backoffs)) - 1]


def succeed_delivery(ctx: Ctx, delivery: Record, evidence: str) -> None:
    """There is evidence: the handoff is used up, a section in an instruction file goes."""
    is_first = delivery.attempts == 1 and delivery.outcome == "pending"
    took_ms = int(max(0.0, ctx.now - (delivery.first_at or ctx.now)) * 1000)
    delivery.outcome, delivery.evidence = "delivered", evidence
    count_metrics(ctx, (delivery.attempts, took_ms), confirmedByReceipt=int(evidence == "receipt"),
                  **{"succeededOnFirstTry" if is_first else "succeededAfterRetry": 1})
    if delivery.handoff:
        note_handoff(ctx, delivery.handoff, evidence=evidence)
    record(ctx, "injection:succeeded", messageId=delivery.message_id, attempts=delivery.attempts,
           durationMs=took_ms, evidence=evidence)
    remove_sections(ctx)


def settle_delivery(ctx: Ctx, delivery: Record, outcome: str, **fields) -> None:
    """Without evidence it comes to this: `escalated` or `failed`."""
    delivery.outcome = outcome
    count_metrics(ctx, **{"escalatedToFile" if outcome == "escalated" else "failed": 1})
    record(ctx, "injection:" + outcome, messageId=delivery.message_id, attempts=delivery.attempts,
           **fields)


def end_delivery(ctx: Ctx, event: Record, state: Record) -> None:
    """The session is over: without evidence, what was held for it is the next one's, at once."""
    follow_delivery(ctx, event, state, False)
    delivery = state.startup
    if delivery and delivery.outcome == "pending" and delivery.answered:
        settle_delivery(ctx, delivery, "failed", reason="the session ended without evidence")
    if delivery and delivery.handoff and not delivery.evidence:
        note_handoff(ctx, delivery.handoff, delivery.first_at, delivered_to="")


def count_metrics(ctx: Ctx, success: tuple = (), **counts: int) -> None:
    """Add to .context/metrics.json; `success` = (attempts, ms) moves the averages."""
    def change(metrics: Record) -> None:
        for key, added in counts.items():
            setattr(metrics, key, getattr(metrics, key) + added)
        total = metrics.succeededOnFirstTry + metrics.succeededAfterRetry
        for key, value in zip(("averageAttemptsToSuccess", "averageTimeToSuccess"), success):
            old = getattr(metrics, key)
            setattr(metrics, key, round(old + (value - old) / total, 3))

    update_json(ctx, ctx.path("metrics.json"), change, METRICS)


# --- the marked section of an instruction file


def fallback_file(ctx: Ctx) -> str:
    named = ctx.get("startup.fallback_file")
    return DIALECTS[ctx.agent].instruction_file if named == "auto" else named


def write_section(ctx: Ctx, body: str, file: str) -> bool:
    """In the place of an older one of ours; False: not ours to write, or changed meanwhile."""
    path, data = join_path(ctx.root, file), _read_instructions(ctx, file)
    if data is None:
        return False
    bare, _, is_made = strip_sections(data)
    made = int(is_missing(path) or (is_made and not bare))
    note = "<!-- ctx_hooks: written %s, file made %d -->" % (format_iso(ctx.now), made)
    body = clean_text(body.replace("<!--", "<! --"))  # no marker of ours can stand in it
    section = "\n".join(["", SECTION_START, SECTION_HEADING, note, "", body, SECTION_END, ""])
    section = section.replace("\n", "\r\n") if b"\r\n" in bare else section
    return write_bytes(ctx, path, bare + section.encode("utf-8", "replace"), True, data)


def remove_sections(ctx: Ctx, older_than: float = float("inf")) -> None:
    """Out of every instruction file; a file that we made goes."""
    for file in INSTRUCTION_FILES:
        path, data = ctx.root + "/" + file, _read_instructions(ctx, file) or b""
        bare, newest, is_made = strip_sections(data)
        if bare != data and newest < older_than and (
                remove_file(path) if is_made and not bare else
                write_bytes(ctx, path, bare, True, data)):
            record(ctx, "injection:section-removed", file=file)


def strip_sections(data: bytes) -> tuple:
    """(the user's bytes, when the newest of our sections was written, whether the file was made for
    one). A section is a start marker, our heading, the nearest end marker, no other start between,
    and the line ends around it; one without its note is as old as can be."""
    bare, newest, is_made = b"", 0.0, False
    while True:
        before, end, rest = data.partition(SECTION_END.encode())
        before, start, inner = before.rpartition(SECTION_START.encode())
        if not end:
            return bare + data, newest, is_made
        if not start or not inner.lstrip().startswith(SECTION_HEADING.encode()):
            bare, data = bare + before + start + inner + end, rest
            continue
        note = inner.partition(b"<!-- ctx_hooks: written ")[2].partition(b"-->")[0]
        at = parse_iso(note.partition(b",")[0].decode("ascii", "replace"))
        newest, is_made = max(newest, at or 0.0), is_made or b"file made 1" in note
        line_end = b"\r\n" if b"\r\n" in inner else b"\n"
        bare, data = bare + before, rest[len(line_end):] if rest.startswith(line_end) else rest
        kept = bare[:-len(line_end)]
        if note and bare.endswith(line_end) and (not kept or kept.endswith(b"\n") or not data):
            bare = kept  # our own; without it two lines of the user's must not become one


def _read_instructions(ctx: Ctx, file: str) -> "bytes | None":
    """b"" when it is not there yet, None when it is not ours to write."""
    path = ctx.root + "/" + file
    info = stat_of(path, follow=False)
    is_named = file in INSTRUCTION_FILES and may_write(ctx, path) and is_dir(parent_of(path))
    if is_named and is_missing(path):
        return b""
    is_ours = is_named and is_regular(info) and info.st_nlink == 1 and is_writable(path) and (
        not IS_POSIX or _os.geteuid() in (0, info.st_uid)) and info.st_size <= STATE_LIMIT_BYTES
    return read_bytes(path, STATE_LIMIT_BYTES, follow=False) if is_ours else None

# =============================================================================
# Cleanup
# =============================================================================
# A session's files go at its end; what a killed session left goes by age, in a bounded time. Only
# what carries our names and our content goes: in these places may lie what a person put there.
_STATE_ENDS = (".json", ".lock", ".statusline", ".tmp")


def remove_session(ctx: Ctx, session: str) -> None:
    """Signals, state, markers and the keys in monitor-state.json of one session."""
    _remove_signals(signal_dir(ctx, session), float("inf"))
    for suffix in (".json", ".statusline", ".claims", ".lock"):
        remove_file(ctx.path("state", session + suffix))
    drop_markers(ctx, session, MARKER_PREFIXES)
    forget_alerts(ctx, lambda key: key.partition(":")[0] == session)


def _remove_signals(folder: str, before: float) -> bool:
    """The signals of one session's folder, all of them older than `before`; then the folder."""
    for name in list_dir(folder) if not is_link(folder) else ():
        info = stat_of(folder + "/" + name, follow=False)
        if info is None or info.st_mtime >= before:
            return False
        if (name.endswith(".md") and is_regular(info)) or name.endswith(TEMP_END):
            remove_file(folder + "/" + name)
    return insist(_os.rmdir, folder)


def collect_orphans(ctx: Ctx, keep: str) -> None:
    """By age, now and then: what sessions left after 7 days, markers after 15. Of very many files
    some, each time others."""
    stamp, deadline = ctx.path("state", "collected"), time.monotonic() + COLLECT_LIMIT_S
    last, week, gone = stat_of(stamp), ctx.now - ORPHAN_AGE_S, set()
    if last is not None and 0 <= ctx.now - last.st_mtime < COLLECT_EVERY_S:
        return
    write_bytes(ctx, stamp, b"")
    places = (  # folder, which names there are ours, what removes one, the age that counts
        (ctx.path("state"), lambda name: name.endswith(_STATE_ENDS), _old_state, week),
        (ctx.path("state"), lambda name: name.endswith(".claims") and name != keep + ".claims",
         _old_claims, week),
        (ctx.path("signals", "sessions"), None, lambda path, _: _remove_signals(path, week), week),
        (ctx.path("state", "aside"), None, _old_file, ctx.now - 4 * ORPHAN_AGE_S),
        (ctx.dir, lambda name: name.endswith(TEMP_END), _old_file, week),
        (ctx.tmp, lambda name: name.startswith(MARKER_PREFIXES), _old_file,  # anybody may fill it
         ctx.now - MARKER_AGE_S))
    for folder, is_ours, remove, before in places:
        names = list(filter(is_ours, list_dir(folder, order=list)))
        for name in in_turn(names, ctx.now, COLLECT_COUNT):
            session, path = name[:-5] if name.endswith(".json") else name, folder + "/" + name
            info = stat_of(path, follow=False) if session != keep else None
            if info is not None and info.st_mtime < before and remove(path, info):
                gone.add(session)
            if time.monotonic() > deadline:
                break
    if gone:
        forget_alerts(ctx, lambda key: key.partition(":")[0] in gone - {"global"})
    _collect_handoffs(ctx)


def _old_file(path: str, info: object) -> bool:
    return is_own(info) and remove_file(path)


def _old_state(path: str, info: object) -> bool:
    """A session's state, its lock and hand-over, or a half-written file; not a pause or the ledger,
    and not what a person keeps in a folder of the same name."""
    name, data = base_name(path), b""
    if name.endswith(".json"):
        data = read_bytes(path, STATE_LIMIT_BYTES, follow=False)
    is_ours = data is not None and (b'"session_start"' in data or data.strip() in (b"", b"{}"))
    is_named = not name.endswith(".tmp") and ("~" in name or is_plain_name(name))
    return (is_ours and is_named or name.endswith(TEMP_END)) and _old_file(path, info)


def _old_claims(path: str, info: object) -> bool:
    """What a session has heard, once its state is gone: some signals hold for a month."""
    begin = read_bytes(path, 16, follow=False) or b"{}"
    is_ours = begin.startswith((b"{}", b'{"session/', b'{"global/'))
    return is_ours and is_missing(path[:-7] + ".json") and _old_file(path, info)


def _collect_handoffs(ctx: Ctx) -> None:
    """Delivered and a week old, or too old to be delivered: the file and its row go."""
    too_old = ctx.now - max(HANDOFF_KEEP_S, ctx.get("startup.max_age_hours") * 3600)

    def change(ledger: Record) -> list:
        old = [key for key, row in ledger.handoffs.items()
               if max(row.asked_at, row.written_at, row.delivered_at) < too_old]
        return [join_path(ctx.root, ledger.handoffs.pop(key).file or ".") for key in old]

    for path in update_ledger(ctx, change) or []:
        info = stat_of(path, follow=False)
        if parent_of(path) == ctx.path("handoffs") and info and info.st_mtime < too_old:
            _old_file(path, info)

# =============================================================================
# Modes
# =============================================================================
# The argv word = the table's key = the function's name. A handler gets the event and the context
# and returns a reply or None. It never prints, exits, or reads the environment. Everything said in
# one reply stays within one budget, in the order startup, gate, handoff, signals.


def inject(event: Record, ctx: Ctx) -> "Reply | None":
    """SessionStart: the startup context. UserPromptSubmit: its retry, then the pending signals."""
    if event.name == "SessionStart":
        return _inject_start(event, ctx)
    reply, reason, has_flow = Reply(), "", is_file(auto_path(ctx))
    flow = find_workflow(ctx, event.session_id) if has_flow and event.by_person else None
    if flow and event.prompt.strip() == "ctx cancel":
        reason = "user_cancelled"
    elif flow and is_stale(ctx, flow):  # the prompt's own tool calls would make it look alive
        reason = "stale_state"
    if reason and cancel_workflow(ctx, reason):
        reply.person = AUTO_PERSON + STOP_MESSAGES[reason]
        reply.context = CANCELLED_AGENT if reason == "user_cancelled" else ""
    if not event.session:
        return reply
    state = _follow(ctx, event, reply)
    if has_flow and not reason and bind_workflow(ctx, event):
        _add_briefing(ctx, event, reply)
    pending = list_dir(signal_dir(ctx, event.session)) if state.tool_calls else ()
    if any(row[0] + ".md" in pending for row in AUDITORS):  # an alert may have expired unsaid
        measure = make_measure(state.estimated_tokens, state.window or DEFAULT_WINDOW, state.exact,
                               state.measured_model)
        run_auditors(ctx, ctx.session, _snapshot(ctx, state, measure, False))
    return _add_signals(ctx, event, reply, state, "prompt")


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
        ensure_handoff(ctx, event)
        forget_alerts(ctx, lambda key: key.startswith(event.session + ":CTX_HEALTH_"))
        remove_file(signal_path(ctx, event.session, "context-health"))  # of the old context
    else:
        make_up(ctx)
    if event.source == "clear":
        bind_workflow(ctx, event)
    receipts = ""  # what hooks said in the conversation since its last compaction
    for row in rows_backward(ctx, event.transcript) if event.source in ("resume", "fork") else ():
        if row.kind == "boundary":
            break
        receipts += row.receipt + "\n"
    _, said = update_session(
        ctx, event.session, lambda state: start_session(ctx, event, state, receipts))
    if stands_in(ctx, receipts):
        claim_marker(ctx, event.session)
    reply = Reply(*(said or ("", "")))
    _add_briefing(ctx, event, reply)
    return reply


def _add_briefing(ctx: Ctx, event: Record, reply: Reply) -> None:
    """What phase the agent is in, once a workflow; where there is no room, with the next prompt."""
    flow = read_workflow(ctx)
    if not is_active(flow) or flow.session_id != event.session_id:
        return
    mark, text = format_iso(flow.started_at, True), render_phase(ctx, flow, BRIEFING)

    def tell_once(state: Record) -> bool:
        is_new, state.workflow_told = state.workflow_told != mark, mark
        return is_new

    if ctx.length(text) <= _room(ctx, reply) and update_session(ctx, event.session, tell_once)[1]:
        _add(ctx, reply, text)
        record(ctx, "auto:briefed", phase=flow.phase, chars=len(text))


def gate(event: Record, ctx: Ctx) -> "Reply | None":
    """PreToolUse: the startup context's retry, then the gate. Never a permission decision."""
    if not event.session or not can_speak(ctx, event.name):
        return None
    reply = Reply()
    if not _owes(ctx, event, reply) and ctx.agent == "claude" and (
            ctx.env.get("CLAUDE_CODE_SESSION_ID") == event.session):  # so the shell knows it
        claim_file(ctx, marker_path(ctx, event.session, QUIET_PREFIX), b"")
    return reply


def _owes(ctx: Ctx, event: Record, reply: Reply) -> bool:
    """Add the startup context's retry and the gate; whether one of them is to come later."""
    state = _follow(ctx, event, reply)
    text = open_gate(ctx, event, state, _room(ctx, reply))
    _add(ctx, reply, text or "")
    return text is None or is_pending(state)


def monitor(event: Record, ctx: Ctx) -> "Reply | None":
    """After every tool: count, measure, audit, the handoff reminder and the pending signals. Before
    a compaction it only saves, and says nothing at all."""
    if event.session and event.name == "PreCompact":
        ensure_handoff(ctx, event)
    if not event.session or event.name == "PreCompact":
        return None
    size, reply = transcript_size(event.transcript), Reply()
    usage, event.batch = read_usage(ctx, event.transcript), ""
    if not usage or usage.tokens >= DEFAULT_WINDOW // 4:
        state = read_session(ctx, event.session)
        measure = measure_context(ctx, state, usage, 0)
        if is_handoff_due(ctx, state, measure):  # not under the lock: the transcript may lag
            event.batch = find_message(ctx, event.transcript, event.tool_use_id)
            if transcript_size(event.transcript) != size:  # it has caught up meanwhile
                usage = read_usage(ctx, event.transcript) or usage
    _, seen = update_session(ctx, event.session, lambda state: _note_call(ctx, event, state, usage))
    if seen is None:
        return None
    state, reminder, person = seen
    if not can_speak(ctx, "PreToolUse"):  # there the gate speaks after the first tool
        _owes(ctx, event, reply)
    _add(ctx, reply, reminder, person)
    return _add_signals(ctx, event, reply, state, "tool")


def _note_call(ctx: Ctx, event: Record, state: Record, usage: "Record | None") -> "tuple | None":
    """(the state, the reminder, a line for the person); None for a call that was counted before."""
    if event.tool_use_id:
        mark = event.name[:12] + event.tool_use_id[-40:]
        if mark in state.seen_calls:
            return None
        state.seen_calls = (state.seen_calls + [mark])[-24:]
    note_settings(ctx, state)
    added = estimate_tokens(event)
    measure = measure_context(ctx, state, usage, added)
    vars(state).update(
        tool_calls=state.tool_calls + 1, last_call=ctx.now, client=client_of(ctx),
        transcript=event.transcript or state.transcript, exact=measure.exact,
        estimated_tokens=measure.tokens, window=measure.window,
        measured_model=usage.model if usage else state.measured_model)
    if event.tool in state.breakdown or len(state.breakdown) < 60:
        state.breakdown[event.tool] = count_of(state.breakdown.get(event.tool)) + added
    note_repetition(state, event)
    name = read_context_file(ctx, event)
    if name:
        confirm_files(ctx)
        state.files_read = list(dict.fromkeys(state.files_read + [name]))
    said = follow_handoff(ctx, event, state, measure)
    shot = _snapshot(ctx, state, measure, state.tool_calls % AUDIT_EVERY_CALLS == 1)
    minute, before = int(ctx.now // 60), state.audited  # cooldowns are looked at once a minute
    state.audited = [shot.percent, shot.score, minute]
    if before != state.audited or shot.stale_files is not None:
        run_auditors(ctx, ctx.session, shot)
    return (state, *said)


def _snapshot(ctx: Ctx, state: Record, measure: Record, with_files: bool) -> Record:
    """What the auditors may look at: files' ages now and then, paths if an alert may name them."""
    score, repeats, failing = repetition_of(state.recent)
    days, stale = find_stale_files(ctx) if with_files else (0, None)
    decisions, is_near = ctx.path("DECISIONS.md"), measure.percent >= HEALTH_LEVELS[-1][1]
    is_asked = is_near and ctx.get("handoff.enabled")
    return Record(
        now=ctx.now, percent=measure.percent, shown=measure.shown, score=score, repeats=repeats,
        note=" (%s)" % measure.note if measure.note else "", failing=failing, stale_days=days,
        stale_files=stale, is_written=state.handoff_complete, active=set(),
        handoff=handoff_path(ctx, ctx.session) if is_asked else "",
        decisions=shown_path(ctx, decisions, "") if is_near and is_file(decisions) else "")


def stop_enforce(event: Record, ctx: Ctx) -> "Reply | None":
    """Stop: look for evidence, save a printed handoff, then finish the phase or let go."""
    if not event.session:
        return None
    state, person = _follow(ctx, event, None), ""
    if state.threshold_crossed_at and not state.handoff_complete:
        person = save_printed(ctx, event)
    reply = (enforce_stop(ctx, event, state) if is_file(auto_path(ctx)) else None) or Reply()
    _add(ctx, reply, "", person)
    return _add_signals(ctx, event, reply, state, "tool") if reply.hold else reply


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
    if state.threshold_crossed_at:
        ensure_handoff(ctx, event)
    if state.startup:  # under the lock, so that of two kits one counts it
        update_session(ctx, event.session, lambda state: end_delivery(ctx, event, state))
    if state.tool_calls:
        record(ctx, "session:ended", calls=state.tool_calls, reason=event.reason)
    remove_session(ctx, event.session)
    collect_orphans(ctx, event.session)
    return None


def _follow(ctx: Ctx, event: Record, reply: "Reply | None") -> Record:
    """The startup context under way: its evidence or, into the reply, its retry. The state then."""
    state, said = read_session(ctx, event.session), ("", "")
    if is_pending(state):
        _, done = update_session(ctx, event.session, lambda state: (
            state, follow_delivery(ctx, event, state, bool(reply))))
        state, said = done or (state, said)
    if reply:
        _add(ctx, reply, *said)
    return state


def _room(ctx: Ctx, reply: Reply) -> int:
    used = ctx.length(reply.context)
    return REPLY_LIMIT - (used + 2 if used else 0)


def _add(ctx: Ctx, reply: Reply, text: str, person: str = "") -> None:
    """One more part of the reply, when it fits."""
    if text and ctx.length(text) <= _room(ctx, reply):
        reply.context = reply.context + "\n\n" + text if reply.context else text
    reply.person = " · ".join(filter(None, (reply.person, person)))


def _add_signals(ctx: Ctx, event: Record, reply: Reply, state: Record, place: str) -> Reply:
    """The pending signals, last of all, where they are wanted."""
    is_place = place in ctx.get("monitor.inject_at") and can_speak(ctx, event.name)
    if is_place and has_news(ctx, event.session, state.looked):
        signals = deliver_signals(ctx, event.session, _room(ctx, reply))
        if signals:
            _add(ctx, reply, signals.context, signals.person)
            reply.terminal, reply.after = signals.terminal, signals.after
    return reply


MODES = {"inject": inject, "gate": gate, "monitor": monitor, "stop-enforce": stop_enforce,
         "cleanup": cleanup}

# =============================================================================
# Hook
# =============================================================================
# stdin, stdout, the environment, the deadline, and run_guarded: the one fail-open boundary.
# Whatever happens inside, the client sees silence and exit 0.
EVENT_EDGE_BYTES, EVENT_TAIL_BYTES = 64 * 1024, 8192  # kept of a large event: how its input begins,
# and its end
CLOSED_ERRNOS = (9, 22, 32)  # closed, so on Windows, a pipe without a reader


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
    failed tries together cost at most some times the data. Of a large event what follows its head
    is dropped while it is read, up to the call's id at the end.
    """
    data, size, tried, head, start = bytearray(), 0, 0, None, 0
    try:
        if _os.isatty(fd):
            return None
        while size < STDIN_LIMIT_BYTES:
            chunk = _os.read(fd, 1 << 16)
            if not chunk:
                break
            data += chunk
            size += len(chunk)
            if size > EVENT_KEPT_BYTES and head is None:
                head, start = _parse_head(data)
            if head:
                del data[:-EVENT_TAIL_BYTES]
            if chunk[-16:].rstrip()[-1:] != b"}":
                continue
            if head:
                cut = max(data.rfind(b',"tool_use_id":'), data.rfind(b', "tool_use_id":'))
                told = parse_object(b"{" + data[cut + 1:]) if cut >= 0 else {}
                if told:  # maybe the response's own: it may say no more than which call this is
                    head.setdefault("tool_use_id", told.get("tool_use_id"))
                    size -= len(data) - cut
                    break
            elif tried <= 2 * size or chunk[-1:] == b"\n":
                tried += size
                event = parse_object(data)
                if event:
                    return event
    except OSError:
        pass  # the descriptor is closed: what came so far counts
    if head:
        return {**head, "response_bytes": max(0, size - start)}
    return parse_object(data) or None


def _parse_head(data: bytearray) -> tuple:
    """(the event up to its tool's response or {}, where that begins). An input that is too large
    itself is the large part, and its beginning is kept: the path and the command come first."""
    for key in (b'"tool_response":', b'"tool_input":'):
        start = max(data.find(b"," + key, 0, EVENT_KEPT_BYTES),
                    data.find(b", " + key, 0, EVENT_KEPT_BYTES))
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


def run_mode(mode: str, agent: str, data: object, env: dict, now: float) -> tuple:
    """(the JSON text to print or "", what to do once it is out) for one event."""
    agent = detect_agent(agent, data)
    event = parse_event(data, mode, agent, env)
    if event is None or event.agent_id:
        return "", []
    start = project_folder(agent, env)
    env["start"] = start or event.cwd  # for the error log, should it come to that
    ctx = find_project(start, event.cwd, env, now)
    if ctx is None:
        return "", []
    ctx.mode, ctx.session, ctx.agent = mode, event.session, agent
    ctx.length = DIALECTS[agent].length
    if is_paused(ctx, event.session) and mode != "cleanup":
        return "", []
    reply = MODES[mode](event, ctx)
    if reply is None:
        return "", []
    out = render_reply(ctx, event, reply)
    return (format_json(out) if out else "", reply.after)


def _run_hook(env: dict, mode: str, agent: str) -> None:
    """One event in, one reply out, whatever happens inside."""
    start, limit_s = time.monotonic(), CLEANUP_LIMIT_S if mode == "cleanup" else HOOK_LIMIT_S
    set_deadline(start + min(STDIN_WAIT_S, limit_s))
    data = read_event_data(0)
    set_deadline(start + limit_s)
    text, after = run_mode(mode, agent, data, env, time.time())
    try:
        if text:
            write_all(1, text.encode("ascii"))
    except OSError:
        text = ""  # the reader has gone: what was claimed is soon free again
    for action, *args in after if text else ():
        action(*args)


def run_guarded(word: str, env: dict, work: object, *args) -> None:
    """The fail-open boundary, with the one broad except of this file."""
    try:
        occupy_descriptors()
        work(env, *args)
    except Exception as error:  # noqa: BLE001
        report_failure(word, error, env)


def report_failure(mode: str, error: Exception, env: dict) -> None:
    """One line on stderr, the traceback into the bounded log; a closed stdout is no failure of
    ours."""
    if isinstance(error, OSError) and error.errno in CLOSED_ERRNOS:
        return
    import traceback

    what = "%s: %s" % (type(error).__name__, one_line(str(error)))
    line = "ctx_hooks: internal error in %s: %s\n" % (mode, what)
    write_stderr(line)
    ctx = find_project("", env.get("start", ""), env, time.time())
    if ctx:
        trace = "".join(traceback.format_tb(error.__traceback__))
        log_error(ctx, "%s %sTraceback:\n%s" % (format_iso(ctx.now), line, trace))


def hook_main(args: list) -> None:
    """`MODE [AGENT]`: what the registered command calls. It never returns and always ends in 0."""
    mode = args[0] if args and args[0] in MODES else ""
    try:
        env = read_environment()
        if mode == "cleanup" or (mode and not is_switched_off(env)):
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
TIMEOUT_S, STOP_TIMEOUT_S = 10, 150  # a stop has room for a check command
# Why the command looks as it does:
# - `: ctx_hooks MODE;` does nothing; the client's list of hooks shows the first 60 letters.
# - the test of a file (gate only): nothing is owed before a tool, so no interpreter is started.
#   Copilot runs these settings too, maybe inside a session of another client with its own marker.
# - `-I -S`: no PYTHON* variables, no site-packages. `-X utf8`: the locale is not asked.
# - the interpreter's own source loader loads exactly this file, up to the line that says so: no
#   import search, so nothing beside it counts, and what only people run is not loaded 100 times an
#   hour. Its bytecode lies in a folder of the user's own (a relative one would be the project's).
# - `|| exit 0`: the client reads exit 2 as "deny", and a missing script is exactly that.
# - the plugin's hooks.json is adapted to no machine: without a python3 that works, Windows' `py`.
# - Windows without Git Bash runs PowerShell, with it sh: one line that both read alike. Python
#   fills in the variable whose bare name a path begins with; one may also begin with a drive.
LOADER = (
    "import gc, sys; gc.disable(); from _frozen_importlib_external import SourceFileLoader as L; "
    "o = sys.pycache_prefix; sys.pycache_prefix = sys.argv.pop(); p = sys.argv.pop(); "
    "L.source_to_code = lambda s, d, p, *a, **k: compile("  # 3.15 adds the name
    "d.partition(b'\\n# ---- below this line: ')[0], p, 'exec', 0, 1, 2); "
    "c = L('ctx_hooks', p).get_code('ctx_hooks'); del L.source_to_code; sys.pycache_prefix = o; "
    "n = {'__name__': 'ctx_hooks', '__file__': p}; exec(c, n); n['hook_main'](sys.argv[1:])")
WINDOWS_LOADER = LOADER.replace("sys;", "sys, nt;", 1).replace("sys.argv.pop()", "r()").replace(
    "o = ", "r = lambda: (lambda v, s, t: (nt.environ[v] if v[2:] else v) + s + t)"
    "(*sys.argv.pop().partition('/')); o = ", 1)
FLAGS = "-I -S -X utf8"
FIND_CACHE = 'c="${XDG_CACHE_HOME##[!/]*}"; '
CACHE = '"${c:-$HOME/.cache}/ctx_hooks"'
GUARD = ('m="${TMPDIR:-/tmp}/' + QUIET_PREFIX + '${CLAUDE_CODE_SESSION_ID##*/}$COPILOT_CLI"; '
         '[ -f "$m" ] && [ ! -L "$m" ] && [ -O "$m" ] || ')
PLUGIN_PATH = '"${CLAUDE_PLUGIN_ROOT:-$CLAUDE_PROJECT_DIR/.claude/hooks}/ctx_hooks.py"'
_HEAD = ": ctx_hooks %(words)s; " + FIND_CACHE
_RUN = FLAGS + ' -c "' + LOADER + '" %(words)s %(path)s ' + CACHE
SHELL_START = _HEAD + "%(guard)s%(python)s " + _RUN + " || exit 0"
PLUGIN_START = _HEAD + "set -- " + _RUN + '; %(guard)s%(python)s "$@" || py -3 "$@" || exit 0'
WINDOWS_START = ("%(python)s -X ctx_hooks=%(mode)s " + FLAGS + ' -c "' + WINDOWS_LOADER
                 + '" %(words)s %(path)s LOCALAPPDATA/ctx_hooks/cache; exit 0')


def kit_path(agent: str, form: str = SHELL_START) -> str:
    """The installed file as it stands in a command; "" where the client has no variable for it."""
    variable = DIALECTS[agent].project_variable
    path = variable and variable + "/.claude/hooks/ctx_hooks.py"
    return '"$%s"' % path if path and form != WINDOWS_START else path


def format_command(mode: str, agent: str, python: str, path: str, form: str = SHELL_START) -> str:
    """The command of one hook; `python` and `path` as they stand in a shell."""
    words = mode if agent == "claude" else mode + " " + agent
    return form % {"mode": mode, "words": words, "guard": GUARD if words == "gate" else "",
                   "python": python, "path": path}


def plan_hooks(agent: str, python: str, path: str, form: str = SHELL_START) -> dict:
    """{event: [group]} for the settings of one client, in its own names and units of time."""
    dialect, hooks = DIALECTS[agent], {}
    limits_s = {"Stop": STOP_TIMEOUT_S, "SessionEnd": dialect.end_limit_s}
    for theirs, event in dialect.events.items():
        entry = {"type": "command",
                 "command": format_command(EVENTS[event], agent, python, path, form),
                 "timeout": limits_s.get(event, TIMEOUT_S) * dialect.time_unit}
        group = {"matcher": dialect.matchers[event]} if event in dialect.matchers else {}
        hooks[theirs] = [{**group, "hooks": [entry]}]
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
    from shlex import quote

    python, words, path = parse_run(command) or ("", [], "")
    if not words or words[0] not in MODES:
        return None
    mode, agent = words[0], words[1] if words[1:] and words[1] in DIALECTS else "claude"
    start = python if python == "py -3" else quote(python)
    made = [format_command(mode, agent, start, place, form)
            for place in (quote(path), PLUGIN_PATH, *map(kit_path, DIALECTS))
            for form in (SHELL_START, PLUGIN_START, WINDOWS_START)]
    return Record(mode=mode, agent=agent, python=python, path=path, exact=command in made)


def parse_run(command: str) -> "tuple | None":
    """(interpreter, arguments, path) of a command that runs this kit and does nothing else: one of
    ours, of 0.1.0, or a plain `python3 … ctx_hooks.py WORDS`. None for every other command."""
    import re
    import shlex

    if command.startswith(": ctx_hooks "):
        command = command.partition("; ")[2].replace(GUARD, "", 1).replace(FIND_CACHE, "", 1)
    command = re.sub(r'^set -- (.*); (.*) "\$@" \|\| py -3 "\$@"', r"\2 \1", command)
    command = re.sub(r"( 2>/dev/null)?( \|\| true| \|\| exit 0|; exit 0)?\Z", "", command)
    # one command alone, every quote closed
    plain = r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\\'"();<>|&\r\n])*"""
    words = shlex.split(command) if re.fullmatch(plain, command) else []
    at = 2 if words[1:2] == ["-3"] else 1
    python = " ".join(words[:at])
    while words[at:] and words[at][:1] == "-" and words[at] != "-c":
        at += 2 if words[at] == "-X" else 1
    name, *rest = words[at:] or [""]
    if name == "-c" and rest[2:] and rest[0] in (LOADER, WINDOWS_LOADER):
        return python, rest[1:-2], rest[-2]
    if name == "-c" and rest[1:] and rest[0].endswith("import ctx_hooks; ctx_hooks.main()"):
        is_first = "pop(1)" in rest[0]  # 0.1.0: the folder; a status line has it there
        return (python, rest[2:], rest[1]) if is_first else (python, rest[1:-1], rest[-1])
    file, program = (base_name(word.replace("\\", "/")) for word in (name, python))
    return (python, rest, name) if file == "ctx_hooks.py" and program[:2] == "py" else None

# =============================================================================
# Doctor
# =============================================================================
# Looks at everything that can keep the hooks from working. It runs a registered command only when
# that is to the letter one of ours and the file it would load is one this kit knows by its hash;
# then in a scratch project. A finding is (level, what it means → what to do).
OK, HINT, WARN, FAIL = "ok", "hint", "warn", "FAIL"
KNOWN_RELEASES = {"7895ab644e7735f2f52e502f8b4169a0152b112cf0c04988e33b41f3b2999c8b": "0.1.0"}
TRIAL_LIMIT_S = 20
PYTHON_PROBE = "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.executable)"


def diagnose(ctx: "Ctx | None", cwd: str, env: dict) -> object:
    """All findings, in the order in which a person would look."""
    root = ctx.root if ctx else cwd
    files = {agent: read_registrations(agent, root, env) for agent in DIALECTS}
    yield OK, "ctx_hooks %s, Python %s" % (VERSION, sys.version.split()[0])
    yield OK, "sha256 " + file_digest(__file__)
    for path in find_siblings(parent_of(real_path(__file__))):
        yield WARN, "an import of the kit's name would find %s → remove it if not yours" % path
    if is_switched_off(env):
        yield WARN, "CTX_HOOKS_DISABLE is set: every hook is off → unset it"
    if ctx and is_paused(ctx, ctx.session or "*"):
        yield WARN, "the hooks are paused → " + own_command("resume")
    for agent in DIALECTS:
        yield from _check_agent(agent, files[agent], env)
    yield from _check_places(files, root, cwd, env)
    yield from _check_codex(files["codex"], root, env)
    yield from _try_commands(files, root)
    if ctx:
        yield OK, "context folder " + ctx.dir
        yield from check_project(ctx)
    elif is_dir(root + "/" + DEFAULT_CONTEXT_DIR):
        yield FAIL, "the context folder is another user's or a link that leads out → use your own"
    else:
        yield WARN, "no context folder: the hooks stay silent here → mkdir " + DEFAULT_CONTEXT_DIR


def own_command(words: str, path: str = "") -> str:
    """A command of this kit, or of another script, that can be pasted from where one is."""
    import shlex

    if not path and read_environment(("CTX_LAUNCHER",)):
        return "ctx " + words
    path = path or real_path(__file__)
    try:
        cwd = real_path(_os.getcwd())
        path = path[len(cwd.rstrip("/")) + 1:] if is_below(path, cwd) else path
    except OSError:
        pass  # the folder is gone
    start = "python3 " + shlex.quote(path) if IS_POSIX else 'py -3 "%s"' % path
    return (start + " " + words).strip()


def installer(options: str = "") -> str:
    """The same for install.py, which stays in the folder that the kit came from: the record of the
    installation names it. A record that came with a clone cannot make one up."""
    folder = parent_of(real_path(__file__))
    root, home = parent_of(parent_of(folder)), real_path(home_of(read_environment()))
    place = slashed(text_of(read_json(folder + "/.ctx_hooks/record.json").get("source")))
    if not is_absolute(place) or not is_trusted(place + "/install.py") or (
            root != home and is_below(real_path(place), root)):
        place = "" if folder.endswith("/.claude/hooks") else folder
    if place and is_file(place + "/install.py") and is_file(place + "/ctx_hooks.py"):
        return own_command(options, place + "/install.py")
    return "`%s` in your copy of ctx_hooks" % own_command(options, "install.py")


def file_digest(path: str) -> str:
    """The sha256 of its text; a checkout with CR LF is the same release."""
    return digest_of(read_text(path, STATE_LIMIT_BYTES).replace("\r\n", "\n"))


def find_siblings(folder: str) -> list:
    """A package, an extension module or bytecode of the kit's name beside it."""
    import re

    names = list_dir(folder) + ["__pycache__/" + name for name in list_dir(folder + "/__pycache__")]
    shape = r"(?i)ctx_hooks(\.(.*\.)?(so|pyd|dll|pyc))?|__pycache__/ctx_hooks\..*"
    return [folder + "/" + name for name in names if re.fullmatch(shape, name)]


def read_registrations(agent: str, root: str, env: dict) -> list:
    """A record for each settings file of a client: scope, path, settings (None when they are
    broken) and entries, [(event, command, what it runs)] of ours."""
    row, found = DIALECTS[agent], []
    for scope, path in settings_files(root, env) if agent == "claude" else (
            ("project", root + "/" + row.settings),
            ("user", home_of(env) + "/" + row.user_settings)):
        settings = load_json(path)
        found.append(Record(scope=scope, path=path, settings=settings,
                            entries=find_registrations(settings or {})))
    return found


def _check_agent(agent: str, files: list, env: dict) -> object:
    """Is every event of this client registered, once, and for it?"""
    from json import dumps

    label, places = DIALECTS[agent].label, [file.scope for file in files if file.entries]
    for file in files:
        if file.settings is None:
            yield FAIL, "%s ignores %s: it is not a JSON object → mend it" % (label, file.path)
        elif file.settings.get("disableAllHooks") is True:
            yield FAIL, "%s: disableAllHooks, no hook runs → edit %s" % (label, file.path)
    plugins = [name for file in files for name, is_on in dict_of(dig(
        file.settings, "enabledPlugins")).items() if is_on is True and "ctx-hooks" in name]
    root = slashed(env.get("CLAUDE_PLUGIN_ROOT", ""))  # set where the plugin's own command runs
    if plugins or agent == "claude" and root and is_below(real_path(__file__), real_path(root)):
        places.append("plugin")
    if agent == "claude" and not places:
        python, form = ("python3", SHELL_START) if IS_POSIX else ("py -3", WINDOWS_START)
        hooks = plan_hooks(agent, python, kit_path(agent, form), form)
        yield FAIL, ("no hook of this kit is registered for Claude Code → %s, or paste the "
                     "settings below\n.claude/settings.json (merge it into `hooks` if there are "
                     "some):\n\n%s" % (installer(), dumps({"hooks": hooks}, indent=2)))
    found = [(event, ours.mode, ours.agent) for file in files for event, _, ours in file.entries]
    for theirs, event in DIALECTS[agent].events.items() if found else ():
        if (theirs, EVENTS[event], agent) not in found:
            yield FAIL, "%s: %s does not run `%s` → %s" % (
                label, theirs, EVENTS[event], installer("--agent " + agent))
    twice = ", so each event starts the kit more than once → keep one" if places[1:] else ""
    if places:
        yield WARN if twice else OK, "%s: registered (%s)%s" % (label, ", ".join(places), twice)


def _check_places(files: dict, root: str, cwd: str, env: dict) -> object:
    """Does Claude Code read its settings here, do others get them, may the agent write a handoff,
    and does Copilot, which runs them too, run the kit twice?"""
    scopes = {file.scope for file in files["claude"] if file.entries}
    if scopes and not any(file.entries for file in read_registrations("claude", cwd, env)):
        yield WARN, ("Claude Code started in this folder does not read the settings of %s → start "
                     "it there, or for all folders: %s" % (root, installer("--scope user")))
    for line in read_text(root + "/.gitignore").split() if "project" in scopes else ():
        if line.strip("/*") in (".claude", ".claude/hooks"):
            yield HINT, ("git ignores the hooks (`%s` in .gitignore) → take the line out, if "
                         "others should get them" % line)
    in_project = scopes - {"user"}
    rules = [text_of(rule) for file in files["claude"]
             for rule in list_of(dig(file.settings, "permissions.allow"))]
    if in_project and not any("handoffs/" in rule for rule in rules):
        yield HINT, ("the agent has to ask you before it writes a handoff; without that the kit "
                     "saves what it prints or makes one → " + installer("--allow-handoff"))
    for file in files["copilot"]:
        if in_project and file.entries:
            yield WARN, ("Copilot CLI runs the settings of Claude Code too, so each event starts "
                         "the kit twice → remove " + file.path)


def _check_codex(files: list, root: str, env: dict) -> object:
    """Codex runs no hook whose hash the person did not agree to, and none in a strange folder."""
    keys = [key for file in files if file.entries
            for key in _codex_keys(file.path, file.settings["hooks"])]
    told = read_text(home_of(env) + "/.codex/config.toml")
    missing = [key for key, digest in keys if key not in told or digest not in told]
    folder = told.partition('[projects."%s"]' % root)[2].partition("\n[")[0]
    if keys and '"trusted"' not in folder:
        yield WARN, "Codex: the folder is not trusted, no hook runs → start codex in " + root
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
            known = {"matcher": group["matcher"]} if "matcher" in group else {}
            for index, hook in enumerate(map(dict_of, list_of(group.get("hooks")))):
                entry = {key: hook.get(key) for key in ("command", "timeout", "type")}
                known.update(event_name=name, hooks=[{"async": False, **entry}])
                text = dumps(known, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                yield "%s:%s:%d:%d" % (path, name, place, index), "sha256:" + digest_of(text)


def _try_commands(files: dict, root: str) -> object:
    """Run what is ours to the letter, once with each interpreter and file; say what is not."""
    runs = {}
    for event, command, ours in [row for agent in files for file in files[agent]
                                 for row in file.entries]:
        path = slashed(ours.path)
        if "_PROJECT_DIR/" in path and not is_absolute(path):  # it begins with a variable
            path = root + "/.claude/hooks/ctx_hooks.py"
        if ours.exact:
            runs[ours.python, path] = None
        else:
            yield WARN, "%s, %s: not tried, not of this release: %s → look at it, then %s" % (
                DIALECTS[ours.agent].label, event, one_line(command, 80), installer())
    found = [_try_hook(python, path, root) for python, path in runs]
    yield from found
    if any(level != FAIL for level, _ in found) and not is_writable(cache_folder()):
        yield WARN, ("the hooks' bytecode cannot be kept, so they are some 10 times slower → check "
                     "the owner of " + (cache_folder() or "a home folder: HOME is not set"))


def _try_hook(python: str, path: str, root: str) -> tuple:
    """What comes of a prompt that goes through a file that we know, in a scratch project."""
    import os
    import tempfile

    if file_digest(path) not in (*KNOWN_RELEASES, file_digest(__file__)):
        what = "no release that this kit knows" if is_file(path) else "not there"
        return FAIL, "not tried, %s is %s → %s" % (path, what, installer("--force"))
    words, version, told = find_python(python, root)
    if not words:
        return FAIL, "%s, so no hook runs → %s" % (told, installer("--python PATH"))
    with tempfile.TemporaryDirectory(prefix="ctx-doctor-") as folder:
        scratch = real_path(folder)
        os.makedirs(scratch + "/.context")
        event = {"session_id": "doctor", "hook_event_name": "UserPromptSubmit", "prompt": "doctor"}
        took_s, code, _, err = min(  # of two: the first may have to compile the file
            run_hook(words, ["inject", "claude", path], event, scratch, scratch) for _ in range(2))
    if code or err.strip():
        wrong = one_line(err.strip().split("\n")[-1]) or "exits %d" % code
        return FAIL, "a hook fails with %s: %s → %s" % (words[0], wrong, installer("--force"))
    text = "interpreter %s: Python %s, a hook takes %.0f ms" % (words[0], version, took_s * 1000)
    if "/shims/" in words[0]:
        return WARN, "%s; it is a version manager's shim, some 10 times slower → %s" % (
            text, installer("--python " + told))
    return OK, text


def find_python(python: str, root: str) -> tuple:
    """(its words, version, path) of the interpreter that a command names, ([], "", why not) when it
    cannot run the kit. Only absolute entries of PATH count, as the client is started elsewhere; one
    that the project brings along is not run (a home folder is no project)."""
    name, *options = ["py", "-3"] if python == "py -3" else [slashed(python)]
    root, home = real_path(root), real_path(home_of(read_environment()))
    listed = slashed(read_environment(("PATH",)).get("PATH", "").replace('"', ""))
    folders = filter(None, listed.split(":" if IS_POSIX else ";"))
    program = name if IS_POSIX else name + ".exe"
    paths = [name] if "/" in name else [folder + "/" + program for folder in folders]
    paths = [path for path in paths if is_absolute(path) and is_file(path)
             and _os.access(path, _os.X_OK) and (root == home or not any(
                 is_below(real_path(place), root) for place in (path, parent_of(path))))]
    shims = [path for path in paths if "/shims/" in path]
    if shims and read_environment(("PYENV_DIR", "ASDF_INSTALL_PATH")):  # set by version managers
        paths = shims  # what a shim started finds the real one first; the client does not
    if not paths:
        return [], "", "there is no interpreter %s outside the project" % python
    words = [paths[0], *options]
    _, code, out, err = run_timed([*words, "-I", "-S", "-c", PYTHON_PROBE], b"", "/", None)
    version, _, path = out.decode("utf-8", "replace").strip().partition(" ")
    if code or tuple(map(int, filter(is_digits, version.split(".")))) < (3, 8):
        what = "Python " + version if version else one_line(err) or "exits %d" % code
        return [], "", "the interpreter %s is no Python from 3.8 on (%s)" % (paths[0], what)
    return words, version, path


def cache_folder() -> str:
    """Where the registered command keeps its bytecode; "" when the user has no such place."""
    env = read_environment(("HOME", "USERPROFILE", "LOCALAPPDATA", "XDG_CACHE_HOME"))
    folder = user_folder(env, "XDG_CACHE_HOME", "LOCALAPPDATA", "/.cache")
    return folder if IS_POSIX or not folder else folder + "/cache"


def run_hook(python: list, words: list, event: object, scratch: str, root: str) -> tuple:
    """One event through the registered loader, without its shell, in a scratch project: nothing of
    the user's own, no secret. `words` are mode, agent and the kit's path; as run_timed tells it."""
    home, tmp = scratch + "/home", scratch + "/tmp"
    env = dict(read_environment(("PATH", "SYSTEMROOT", "LOCALAPPDATA")), HOME=home,
               USERPROFILE=home, TMPDIR=tmp, TEMP=tmp)
    env.update((row.project_variable or "PWD", root) for row in DIALECTS.values())
    argv = [*python, *FLAGS.split(), "-c", LOADER, *words, cache_folder()]
    return run_timed(argv, format_json(event).encode(), root, env)


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


def check_project(ctx: Ctx) -> object:
    """Settings, state that was set aside, the workflow, folders, the ignore list, the files."""
    yield from check_settings(ctx)
    aside, errors = ctx.path("state", "aside"), ctx.path("state", "errors.log")
    kept = len(list_dir(aside))
    if kept:
        yield WARN, "unreadable files were set aside (%d) → see %s, then empty it" % (kept, aside)
    if is_file(errors):
        yield WARN, "internal errors were logged → see %s, then remove it" % errors
    if load_json(auto_path(ctx)) is None:
        yield WARN, "%s is not a JSON object, so no workflow runs → begin anew: %s" % (
            AUTO_STATE, own_command("auto start TASK"))
    elif is_inert(ctx, read_workflow(ctx)):
        yield WARN, ("the workflow was not started on this machine, so it is inert → %s goes on "
                     "with it, %s ends it" % (own_command("auto resume"), own_command("auto stop")))
    for folder in (ctx.dir, ctx.path("state"), ctx.path("signals")):
        if is_dir(folder) and not is_writable(folder):
            yield FAIL, "%s cannot be written, so nothing is remembered → check its owner" % folder
    ignored = read_text(ctx.path(".gitignore")).split()
    missing = [line for line in GITIGNORE_TEXT.split("\n")[1:-2] if line not in ignored]
    if ignored and missing and "*" not in ignored:
        yield WARN, "git would take up our runtime files → add to %s: %s" % (
            ctx.path(".gitignore"), " ".join(missing))
    if ctx.get("gate.mode") != "off" and not gate_files(ctx):
        paths = [join_path(ctx.dir, name) for name in ctx.get("gate.files")]
        yield HINT, "no context file says anything, so the gate is silent → fill in " + ", ".join(
            shown_path(ctx, path, "") for path in list(filter(is_file, paths)) or paths[:2])


def check_settings(ctx: Ctx) -> object:
    user_file = user_config_path(ctx.env)
    for file, problems in ((CONFIG_NAME, ctx.problems),
                           (user_file, read_config(user_file, is_user=True)[1])):
        for line, column, what in problems:
            key = what.partition("unknown setting `")[2][:-1]
            what += did_you_mean(key, DEFAULTS, "", "; did you mean `%s`?")
            yield WARN, "%s line %d, column %d: %s → it is ignored; what can be set: %s" % (
                file, line, column, what, own_command("config"))


def did_you_mean(word: str, known: object, otherwise: str, form: str = "did you mean %s?") -> str:
    """The known word that is nearly the same, in a sentence."""
    import difflib

    near = difflib.get_close_matches(word, known, 1, 0.75)
    return form % near[0] if near else otherwise


def is_inert(ctx: Ctx, flow: Record) -> bool:
    """It says that it runs, but nobody meant it on this machine: it holds no session."""
    is_known = is_file(session_file(ctx, safe_name(flow.session_id)))
    return is_active(flow) and not is_meant_here(ctx, flow, flow.session_id if is_known else "")

# =============================================================================
# View
# =============================================================================
# From data to text. A page is a list of lines: a text or a list of (style, text), and one line
# whatever it holds. format_page is the only way to a terminal: it strips what could move a cursor
# or paint, then paints. Long lines are the terminal's to wrap, so that they can be pasted.
STYLES = {"bold": "1", "dim": "2", "info": "2", HINT: "2", "bad": "31", "critical": "31",
          FAIL: "31", "good": "32", OK: "32", "warning": "33", WARN: "33"}
UNITS_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
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
REASONS = dict(STOP_MESSAGES, held="its completion block is missing",
               advanced="the phase before is complete, this one is next")


def show(*page: object, is_bar: bool = False, is_screen: bool = False) -> None:
    """Print lines for a person; a pipe gets plain text, but the client paints its bar. A screen
    takes the place of all that stands on the terminal, and does not wrap or scroll."""
    env = read_environment(("NO_COLOR", "TERM"))
    is_plain = env.get("NO_COLOR") or env.get("TERM") == "dumb"
    text = format_page(page, (is_bar or _os.isatty(1)) and not is_plain)
    if is_screen:
        rows = _os.get_terminal_size(1).lines or 24  # 0: it does not say
        lines = text.split("\n")[:max(1, rows - 1)]
        text = "\033[H\033[J\033[?7l" + "\n".join(lines) + "\033[?7h"
    if sys.stdout is not None:  # None: it was closed before the start
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # whatever the locale says
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def format_page(page: object, is_coloured: bool) -> str:
    def painted(style: str, text: str) -> str:
        text = for_terminal(text).translate({9: " ", 10: " "})
        is_painted = style and is_coloured and text
        return "\033[%sm%s\033[0m" % (STYLES[style], text) if is_painted else text

    lines = ([("", line)] if isinstance(line, str) else line for line in page)
    return "\n".join("".join(painted(*part) for part in line).rstrip(" ") for line in lines)


def format_meter(percent: int) -> tuple:
    """A bar with its style."""
    style = "bad" if percent >= 85 else WARN if percent >= 70 else "good"
    return style, "█" * (percent // 10) + "░" * (10 - percent // 10)


def format_ago(iso: object, now: float) -> str:
    age_s = max(0, now - (parse_iso(iso) or now))
    unit = next((unit for unit, size_s in UNITS_S.items() if age_s >= size_s), "s")
    return "%d%s ago" % (age_s // UNITS_S[unit], unit)


def format_clock(iso: object) -> str:
    """Local time, for a person."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(parse_iso(iso) or 0))


def render_status(data: dict) -> list:
    """The page that `status` shows, from the object that `status --json` prints."""
    now, calls = parse_iso(data["at"]) or 0.0, max(1, data["attention"]["calls"])
    page = [[("bold", "ctx_hooks " + data["version"]), ("dim", " · " + data["root"])]]
    if not data["sessions"]:
        page.append("no live session; whether the hooks are registered: " + own_command("doctor"))
    for session in data["sessions"]:
        page += ["", *_session_rows(session, now)]
    sections = {
        "paused": ["  %s, until %s" % ("every session" if name == "*" else name[:8],
                                       format_clock(until) if until else "`resume`")
                   for name, until in data["paused"].items()],
        "handoffs": [_handoff_row(row, now) for row in data["handoffs"]],
        "signals": [_row(row["severity"], "%s, until %s, %s  %s" % (
            format_ago(row["at"], now), format_clock(row["until"]),
            row["session"][:8] or "every session", row["text"]), row["severity"])
            for row in data["signals"]],
        "auto": ["  " + line for line in render_workflow(data["auto"])[:3]] if data["auto"] else [],
        "said to the agent, per 100 tool calls": [
            _row(name, "%d characters in %.1f messages" % (
                row["chars"] * 100 // calls, row["messages"] * 100 / calls))
            for name, row in data["attention"]["by"].items()],
        "problems": ["  ✗ " + text for text in data["problems"]]}
    for title, rows in sections.items():
        page += ["", [("bold", title)], *rows] if rows else []
    return page


def _row(label: str, text: str, style: str = "dim") -> list:
    return [("dim", "  %-8s " % label), (style, text)]


def _session_rows(data: dict, now: float) -> list:
    context, measured = data["context"], _row("context", "not measured yet")
    if context:
        style, bar = format_meter(context["percent"])
        measured = _row("context", "{} {shown}  {tokens:,}/{window:,} {kind}, {}".format(
            bar, format_ago(context["at"], now), **context), style)
    head = " · {agent} · {} · tool calls: {tool_calls} · {}".format(
        format_ago(data["seen_at"], now), data["model"] or "model unknown", **data)
    return [[("bold", "session " + data["session"][:8]), ("dim", head)], measured,
            _row("gate", data["gate"])]


def _handoff_row(row: dict, now: float) -> list:
    """Who wrote what when, to whom it went, with what evidence."""
    went = "waits for the next session" if not row["delivered_to"] else "to %s %s, %s" % (
        row["delivered_to"][:8], format_ago(row["delivered_at"], now),
        row["evidence"] or "no evidence yet")
    written = "written %s (%s) → %s" % (format_ago(row["written_at"], now), row["by"], went)
    text = written if row["written_at"] else "asked for " + format_ago(row["asked_at"], now)
    text = " · ".join(filter(None, (text, row["agent"], row["file"])))
    return _row(row["session"][:8], text, "good" if row["written_at"] else WARN)


def render_workflow(flow: dict) -> list:
    """What `auto` shows; the first three lines stand on the page of `status` too."""
    who = "that prompts" if flow["any_prompt"] else "in which a person types a prompt"
    state = "iteration %d/%d, %s" % (
        flow["iteration"], flow["max_iterations"], "session " + flow["session_id"][:8]
        if flow["session_id"] else "for the next session " + who)
    if flow["inert"]:
        state = "inert: not started on this machine, it holds nobody"
    elif not flow["active"]:
        state = "ended (%s)" % flow["exit_reason"]
    elif flow["needs"]:
        state = "waits for you: " + flow["needs"]
    phase = "failed in " + flow["last_phase"] if flow["phase"] == "failed" else flow["phase"]
    page = ["phase: %s, of %s" % (phase, ", ".join(flow["phases"])), state,
            "task: " + flow["task_description"]]
    if flow["last_error"]:
        page.append("last error: " + flow["last_error"])
    page += ["%s at %s, attempt %s" % (
        row.get("signal"), format_clock(row.get("detected_at")), row.get("attempts", "?"))
        for row in map(dict_of, flow["signals"]["detected_signals"][-20:])]
    page += ["check of %s: `%s`, %s" % (
        check["phase"], check["command"].replace("\n", "⏎ "),
        "you agreed to it" if check["agreed"] else "nobody agreed to it, so it does not run "
        "→ in a terminal of your own: " + own_command("auto resume"))
        for check in flow["checks"]] or ["checks: none, a phase ends on the agent's word"]
    if flow["last_check"]:
        phase, at, result = map(flow["last_check"].get, ("phase", "at", "result"))
        page.append("last check, of %s at %s: %s" % (phase, format_clock(at), result))
    if flow["active"]:
        page.append("out: %s, or type `ctx cancel` in the session" % own_command("auto stop"))
    return page


def render_statusline(data: dict) -> list:
    """One line, of which the client may cut the end: what is needed least stands there."""
    parts = [("good", data["phase"]), (WARN, data["pending"]), ("", data["model"])]
    if data["percent"] is not None:
        style, bar = format_meter(data["percent"])
        near = ", compaction near" if data["near"] else ""
        parts.insert(0, (style, "%s %d%% of the window%s" % (bar, data["percent"], near)))
    line = [shown for part in parts if part[1] for shown in (("dim", " · "), part)]
    return line[1:] or [("dim", "ctx")]


def render_decision(row: dict) -> str:
    """A row of the recorder as a sentence: when, which session, what, and the rule behind it."""
    from collections import defaultdict

    values = defaultdict(lambda: "?", {
        key: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for key, value in row.items()})
    why = REASONS.get(values["reason"], "{reason}")
    if row.get("check"):  # a block whose check fails is held as one that is missing
        why = "its check {check}" if values["reason"] == "held" else why + " (its check {check})"
    values["reason"] = why.format_map(values)
    text = DECISIONS.get(values["event"], "{event} → by another version").format_map(values)
    agent = "" if row.get("agent", "claude") == "claude" else values["agent"] + ": "
    head = "%s  %-8s  %s" % (format_clock(row.get("at")), str(row.get("session", ""))[:8], agent)
    return head + text[:2000]


def render_replay(result: dict, index: int) -> list:
    """One replayed event: what it was, how long it took, and what the kit said."""
    reply = dict_of(result["reply"])
    texts = [dig(reply, "hookSpecificOutput.additionalContext"), reply.get("reason"),
             reply.get("systemMessage"), "✗ " + result["error"] if result["error"] else ""]
    said = [line for text in texts if text_of(text) for line in text.split("\n")]
    took = "%.0f ms%s" % (result["ms"], "" if said else ", silent")
    head = "%-14s%s" % (result["mode"], took if result["mode"] else "not an event of this kit")
    return [[("bold", "%3d  %-20s" % (index, result["event"][:20])), ("dim", head)],
            *["     " + line for line in said]]


class CommandError(Exception):
    """A sentence for the person and what to do about it; without that it is wrong usage."""


def people_ctx(needed: bool = True) -> "Ctx | None":
    """The project that the person stands in; without one None, or an error when it is needed."""
    env = read_environment()
    cwd = slashed(_os.getcwd())
    ctx = find_project(cwd, cwd, env, time.time())
    if ctx:
        ctx.mode, ctx.length = "command", units
        ctx.session = safe_name(env.get("CLAUDE_CODE_SESSION_ID", ""))
    elif needed:
        raise CommandError("no %s folder here or in a parent folder, or a link in it leads out of "
                           "the project" % DEFAULT_CONTEXT_DIR, "mkdir " + DEFAULT_CONTEXT_DIR)
    return ctx

# =============================================================================
# Screen
# =============================================================================
# What a person would see of a program in a terminal, and from that, from the terminal's settings
# and from what the kernel says, one judgement: is it waiting for a line of text? Doubt counts as
# no. Only Screen and what reads /proc are not pure.
SCREEN_ROWS, SCREEN_COLUMNS = 24, 80  # where a terminal does not say
SCREEN_KEPT_LINES = 400  # lines that have scrolled off
ALTERNATE_MODES, PASTE_MODE, CURSOR_MODE = frozenset((47, 1047, 1049)), 2004, 25
KITTY_MODE = -1  # a protocol of the keyboard that is pushed and popped
LEFT_ON_MODES = ALTERNATE_MODES | {1, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 2004,
                                   2026, 2031}
ESCAPES = (r"\x1b\[([<-?]?)([0-9:;]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
           r"|(\x1b)[ -/]*([0-~])")
_CUT = r"(\x1b(?:\[[0-?]{0,999}[ -/]{0,99}|[\]PX^_][^\x07\x1b]{0,50000}\x1b?|[ -/]{0,99})?\Z)"
_TOKENS = _CUT + "|" + ESCAPES + r"|([\x00-\x1f\x7f])|([^\x00-\x1f\x7f]+)"


class Screen:
    """Lines, cursor and private modes after the output so far; enough to read what agents draw
    (moves, erasing, scrolling, the alternate screen), not to draw it."""

    def __init__(self, rows: int = 0, columns: int = 0) -> None:
        import codecs

        self._decode, self._rest = codecs.getincrementaldecoder("utf-8")("replace").decode, ""
        self.modes, self.gone, self.saved = {CURSOR_MODE}, [], (0, 0)
        # Rows of cells; the second one of a wide character is "". x == columns: a new line is next.
        self.grid, self.y, self.x = [], 0, 0
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows or SCREEN_ROWS, max(2, columns or SCREEN_COLUMNS)
        over = max(0, self.y + 1 - self.rows)  # the cursor's line stays
        kept = (self.grid[over:] + [[]] * self.rows)[:self.rows]
        self.grid = [(row + [" "] * self.columns)[:self.columns] for row in kept]
        self.y, self.x = self.y - over, min(self.x, self.columns)
        self.top, self.bottom = 0, self.rows - 1

    def lines(self) -> list:
        return ["".join(row).rstrip() for row in self.grid]

    def before_cursor(self) -> str:
        return "".join(self.grid[self.y][:self.x])

    def is_alternate(self) -> bool:
        return not self.modes.isdisjoint(ALTERNATE_MODES)

    def feed(self, data: bytes) -> None:
        """Take output in; what is cut off at its end waits for the rest."""
        import re

        text, self._rest = self._rest + self._decode(data), ""
        for self._rest, private, numbers, final, *others, shown in re.findall(_TOKENS, text):
            if shown:
                self._write(shown)
            else:
                values = [int(n[:4]) if n.isdigit() else 0 for n in numbers.split(";")]
                self._obey(private + final or "".join(others), values)

    def _write(self, text: str) -> None:
        cells = list(text)
        if not text.isascii():  # a wide character takes two cells, a mark none
            from unicodedata import category, east_asian_width

            shown = [char for char in text if category(char) not in ("Mn", "Me", "Cf", "Cc")]
            cells = [cell for char in shown
                     for cell in ((char, "") if east_asian_width(char) in "WF" else char)]
        while cells:
            room = self.columns - self.x
            part = cells[:room - (cells[room:room + 1] == [""])]  # a wide one is not cut in two
            if not part:
                self.x = 0
                self._feed_line(1)
            self.grid[self.y][self.x:self.x + len(part)] = part
            self.x, cells = self.x + len(part), cells[len(part):]

    def _obey(self, name: str, values: list) -> None:
        """A control character, ESC and a letter, or the letter that ends `ESC [ values`."""
        n, column = max(1, values[0]), max([1, *values[1:2]])
        y, x = self.y, min(self.x, self.columns - 1)
        moves = {"A": (y - n, x), "B": (y + n, x), "C": (y, x + n), "D": (y, x - n),
                 "E": (y + n, 0), "F": (y - n, 0), "G": (y, n - 1), "d": (n - 1, x),
                 **dict.fromkeys("Hf", (n - 1, column - 1)), "\x1b8": self.saved, "u": self.saved,
                 "\r": (y, 0), "\b": (y, x - 1), "\t": (y, x // 8 * 8 + 8)}
        if name in moves:
            y, x = moves[name]
            self.y, self.x = min(max(0, y), self.rows - 1), min(max(0, x), self.columns - 1)
        elif name in ("\n", "\x1bM"):
            self._feed_line(1 if name == "\n" else -1)
        elif name in ("J", "K"):  # from the cursor on, up to it, or all: of the screen, of its line
            others, start, end = {
                0: (self.grid[y + 1:], self.x, self.columns), 1: (self.grid[:y], 0, x + 1),
            }.get(values[0], (self.grid, 0, self.columns))
            for row in others if name == "J" else ():
                row[:] = " " * self.columns
            self.grid[y][start:end] = " " * (end - start)
        elif name == "X":
            self.grid[y][x:x + n] = " " * min(n, self.columns - x)
        elif name == "r":  # which lines scroll
            bottom = values[1] if values[1:] and 0 < values[1] < self.rows else self.rows
            self.top, self.bottom, self.y, self.x = min(n, bottom) - 1, bottom - 1, 0, 0
        elif name in ("\x1b7", "s"):
            self.saved = (self.y, self.x)
        elif name == "\x1bc":
            self.modes, self.grid, self.y, self.x = {CURSOR_MODE}, [], 0, 0
            self.resize(self.rows, self.columns)
        elif name in ("?h", "?l", ">u", "<u"):
            was_alternate, modes = self.is_alternate(), {KITTY_MODE} if "u" in name else set(values)
            self.modes = self.modes | modes if name in ("?h", ">u") else self.modes - modes
            if was_alternate != self.is_alternate():  # it covers the usual one, or that comes back
                here = self.grid, self.y, self.x
                self.grid, self.y, self.x = self.behind if was_alternate else ([], 0, 0)
                self.behind = here
                self.resize(self.rows, self.columns)

    def _feed_line(self, step: int) -> None:
        """To the next line or the one before; at the edge the lines move instead."""
        leaves, comes = (self.top, self.bottom) if step > 0 else (self.bottom, self.top)
        if self.y != comes:
            self.y = min(max(0, self.y + step), self.rows - 1)
            return
        line = self.grid.pop(leaves)
        self.grid.insert(comes, [" "] * self.columns)
        if step > 0 and leaves == 0 and not self.is_alternate():
            self.gone = [*self.gone[1 - SCREEN_KEPT_LINES:], "".join(line).rstrip()]


def format_restore(modes: set) -> bytes:
    """What switches off again what a program left on: mouse, paste, the other screen, no cursor."""
    text = "".join("\x1b[?%dl" % mode for mode in sorted(modes & LEFT_ON_MODES))
    text += "\x1b[<u" if KITTY_MODE in modes else ""
    text += "" if CURSOR_MODE in modes else "\x1b[?25h"
    return (text + "\x1b[0m").encode() if text else b""


# --- what stands on it. A glance is what is known of a program at one moment: process (confidence,
# None where the kernel does not tell), programs (command lines that hold the terminal), silent_ms,
# gone and lines (scrolled off, on the screen), row and before (the cursor's, its line up to it),
# raw, hidden (lines without echo), paste, alternate, typing (the person has half a line), ended.

DIALOG_LINES = 16  # at the screen's end
SHELLS = frozenset("sh bash dash zsh fish ksh mksh ash csh tcsh nu pwsh xonsh elvish".split())
EDITORS = frozenset("vi vim nvim view ex ed nano pico emacs micro hx helix kak joe mcedit less "
                    "more most man".split())  # and pagers
_INTERACTIVE = r"^(?:(?:--(?:rc|init-)file|[-+][oO])\0[^\0]*\0|--[^\0]+\0|[-+][^\0c]*\0)*\Z"
_PROMPT = r"^[\s│┃|]*[\w ./:~()\[\]-]{0,40}(?:>{1,3}|[$❯›»]|\]:)\s*$"
_MARKED = r"^[\s│┃|]*[❯›▶►➤→●○◉◆>*]\s*"
_NUMBERED = r"(?:%s|^[\s│┃|]*)\d{1,2}[.)]\s+\S" % _MARKED
_ANSWER = r"(?i)(?:%s|^[\s│┃|]*)(?:\d{1,2}[.)]\s+)?(?:\[.\]\s*)?(?:%s)\b.{0,90}$" % (
    _MARKED, "yes|no|allow|deny|approve|reject|accept|decline|trust|don'?t trust|cancel|proceed"
    "|skip|abort")
_OBSTACLES = (  # what it is, where it shows, the pattern of a line
    ("a shell", "cursor",
     r"^\[?[\w.-]+@[\w.-]+\b.*[$#%]\s*$|^(?:ba|z|da|k)?sh(?:-[\d.]+)?[$#%]\s*$"),
    ("an editor or a pager", "end",
     r"^:$|\(END\)\s*$|^--\s?More\s?--|^-- (?:INSERT|VISUAL|REPLACE|NORMAL)|\^G (?:Get )?Help"
     r"|^\s*Manual page |^lines \d+-\d+"),
    ("work", "screen", r"(?i)\besc(?:ape)? to (?:interrupt|stop)\b|\(esc to cancel, \d+"),
    ("a question", "asked",
     r"(?i)[\[(]\s*y(?:es)?\s*[/|,]\s*n(?:o)?\b|\(y\)es\b|\b(?:trust|allow|approve|permission|"
     r"proceed|authori[sz]e|grant|overwrite|confirm|are you sure|do you want|would you like)"
     r"\b[^.\n]{0,120}\?"),
    ("a question", "near",
     r"(?i)\b(?:enter|return)\b.{0,14}\b(?:confirm|select|continue|choose|accept|approve|proceed|"
     r"trust|exit|retry)\b|[⏎↵]\s*(?:confirm|select)|arrow keys|press (?:any key|enter|return)"
     r"|\besc(?:ape)? to (?:cancel|go back|reject|skip)"),
    ("a question", "cursor",
     r"(?i)\b(?:password|passphrase|passcode|pin|token|secret|api.?key|code)\b.{0,60}[:?]\s*$"),
    ("a question", "over a prompt", _NUMBERED),
)


def find_obstacle(look: Record, own: str = "") -> str:
    """Why nothing may be typed now, or "". `own`: the letters of a text of ours that stands in the
    program's input; lines of it are not the program's."""
    lines = [line if len(letters_of(line)) < 6 or letters_of(line) not in own else ""
             for line in look.lines]
    asked = near = end = [line for line in lines if line.strip()][-DIALOG_LINES:]
    is_free = find_pattern(_PROMPT, look.before)  # a prompt with nothing typed yet
    if own or is_free:  # what was asked and answered above it does not count
        above = [line for line in lines[:look.row] if letters_of(line)]
        asked, near = (above[-count:] + lines[look.row:] for count in (1, 2))
    places = {"cursor": [look.before], "end": end[-2:], "screen": end, "asked": asked, "near": near,
              "over a prompt": lines[look.row - 1:look.row] if is_free else []}
    found = ["hidden input" if look.hidden else "", *map(kind_of_command, look.programs),
             "an editor or a pager" if end.count("~") > 2 else ""]
    found += [kind for kind, place, pattern in _OBSTACLES if find_pattern(pattern, *places[place])]
    return next(filter(None, found), "a question" if _is_choice(near) else "")


def letters_of(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _is_choice(lines: list) -> bool:
    """A marked option with another one beside it, or two answers such as Yes and No."""
    answers = [i for i, line in enumerate(lines) if find_pattern(_ANSWER, line)]
    options = answers + [i for i, line in enumerate(lines) if find_pattern(_NUMBERED, line)]
    marked = [i for i in options if find_pattern(_MARKED, lines[i])]
    return any(0 < abs(i - j) <= 3 for i in marked for j in options) or any(
        second - first <= 2 for first, second in zip(answers, answers[1:]))


def find_pattern(pattern: str, *lines: str) -> object:
    """The match in the first line that has one, or None."""
    import re

    return next(filter(None, (re.search(pattern, line) for line in lines)), None)


def kind_of_command(argv: list) -> str:
    """An interactive shell (`sh -c …` and a script are none), an editor, a pager, or ""."""
    name = base_name(argv[0]).lstrip("-") if argv else ""
    options = "".join(word + "\0" for word in argv[1:])
    if name in SHELLS and find_pattern(_INTERACTIVE, options):
        return "a shell"
    return "an editor or a pager" if name in EDITORS else ""


# --- is it waiting for a line?

READY_ABOVE = 0.7
READY_AGREE = 0.1  # added when several kinds of evidence agree
READY_TERMINAL, READY_PATTERN, READY_NATURAL = 0.95, 0.9, 0.6
NATURAL_AFTER_MS, SILENCE_AFTER_MS, SILENCE_FULL_MS, SILENCE_MOST = 200, 500, 3000, 0.8
PATTERN_LINES, PATTERN_LIMIT_S = 4, 0.2


def readiness(look: Record, prompt: str = "", patterns: tuple = ()) -> float:
    """The strongest evidence, and a little more when another kind agrees. A known agent (one whose
    prompt is given) has to show it, or raw mode with paste, before anything else counts."""
    is_paused = look.silent_ms >= NATURAL_AFTER_MS
    last = [look.before] + [line for line in look.lines if line.strip()][-PATTERN_LINES:]
    is_shown = (prompt != "" and find_pattern(prompt, look.before)) or any(
        matches(pattern, line) for pattern in patterns for line in last)
    # Raw mode without paste and prompt means single keys: `top` would take each as a command.
    takes_lines = look.raw and look.paste if prompt else not look.alternate and (
        not look.raw or look.paste or find_pattern(_PROMPT, look.before))
    if look.process == 0.0 or not (is_shown or takes_lines):
        return 0.0
    text = "\n".join([*look.lines[:look.row], look.before])
    scores = [score for score, counts in (
        (look.process, look.process and (is_shown or not prompt)),
        (READY_PATTERN, is_shown and is_paused),
        (READY_NATURAL, is_paused and is_natural_end(text)),
        (min(SILENCE_MOST, look.silent_ms / SILENCE_FULL_MS),
         look.silent_ms >= SILENCE_AFTER_MS and text.strip())) if counts]
    best = max(scores, default=0.0)
    return min(1.0, round(best + READY_AGREE, 3)) if len(scores) > 1 else best


def matches(pattern: str, text: str) -> bool:
    """A pattern from the settings; (a+)+$ could take years, so it has a time of its own."""
    import re
    import signal
    import warnings

    warnings.simplefilter("ignore")  # `[[a]` is worth a line on stderr to the library
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # which raises KeyboardInterrupt
    signal.setitimer(signal.ITIMER_REAL, PATTERN_LIMIT_S)
    try:
        return re.search(pattern, text, re.IGNORECASE) is not None
    except (re.error, RuntimeError, OverflowError, MemoryError, KeyboardInterrupt):
        return False  # 3.8 compiles what it cannot run
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def is_natural_end(text: str) -> bool:
    """Does it end like something finished: a sentence, a closed fence, a blank line, a prompt?"""
    body = text.rstrip()
    line = body.rpartition("\n")[2].strip()
    fences = sum(part.lstrip().startswith("```") for part in body.split("\n"))
    if not line or fences % 2 or line[-1] in ",-–—([{":
        return False
    is_end = find_pattern(r"^```|[>$❯]$|(?<!\.)[.!?。][\"')\]*_`”’»]*$", line)  # not "Loading..."
    return is_end is not None or text.count("\n", len(body)) >= 2


# --- what the kernel says

READ_WAITS = frozenset("wait_woken n_tty_read unix_stream_read_generic pipe_read anon_pipe_read"
                       .split())  # the system call's first argument is the file
POLL_WAITS = frozenset("poll_schedule_timeout do_select do_poll do_sys_poll".split())
EPOLL_WAITS = frozenset("ep_poll do_epoll_wait".split())
THREAD_KINDS = ("reading", "busy", "unknown", "idle")  # of several the first counts
_PROCESSES = 40  # looked at


def judge_thread(process: str, thread: str, tty: str) -> str:
    """What a thread does, by the folders of it and its process below /proc: "reading" the terminal,
    "busy", "idle" (it waits for something else) or "unknown"."""
    stat, wait, call = (read_text(thread + name) for name in ("/stat", "/wchan", "/syscall"))
    state = stat.rpartition(")")[2].strip()[:1]  # the name before may hold blanks and brackets
    wait, words = wait.partition(".")[0], call.split()  # do_select.constprop.0
    if state != "S":
        return {"R": "busy", "D": "busy", "": "unknown"}.get(state, "idle")
    if wait in ("", "0") or len(words) < 2:
        return "unknown"
    if wait not in READ_WAITS | POLL_WAITS | EPOLL_WAITS:
        return "idle"
    folder, first = process + "/fd/", int(words[1], 16)
    links = {int(name): _os.readlink(folder + name) for name in list_dir(folder)}
    files = [first]
    if wait in POLL_WAITS:
        # select() names the highest descriptor; poll() has an address there, so any may be meant.
        files = [fd for fd in links if first > 4096 or fd < first]
    elif wait in EPOLL_WAITS:
        head, *rows = read_text(process + "/fdinfo/%d" % first).split("tfd:")
        if not head:
            return "unknown"
        files = [int(row.split()[0]) for row in rows if int(row.split()[2], 16) & 1]  # 1: input
    names = [links.get(fd, "") for fd in files]
    if tty not in names and "/dev/tty" not in names:
        return "idle"
    others = [name for name in names if name.startswith(("socket:", "pipe:"))]
    return "unknown" if others and wait in POLL_WAITS else "reading"  # they may end a poll as well


def read_process(child: int, tty: str) -> tuple:
    """(confidence or None, command lines) of what holds the terminal: the child or, behind a
    launcher such as npm or sh, its children."""
    kinds, programs, todo = [], [], [str(child)]
    for process in map("/proc/".__add__, todo):
        names = sorted(list_dir(process + "/task"), key=int)  # the main one first
        threads = ["%s/task/%s" % (process, name) for name in names]
        if len(todo) < _PROCESSES:
            todo += " ".join(read_text(thread + "/children") for thread in threads).split()
        fields = read_text(process + "/stat").rpartition(")")[2].split()
        if fields[3:4] != todo[:1] or fields[2] != fields[5]:
            continue  # of another session, or not in the foreground of this one
        programs.append(read_text(process + "/cmdline").rstrip("\0").split("\0")[:20])
        try:
            found = [judge_thread(process, thread, tty) for thread in threads]
        except OSError:
            found = ["unknown"]  # it has closed a file in this moment
        kinds += found[:1] if found[:1] == ["busy"] else found  # then nothing else of it counts
    kind = min(kinds, key=THREAD_KINDS.index, default="unknown")
    return {"reading": READY_TERMINAL, "unknown": None}.get(kind, 0.0), programs

# =============================================================================
# Wrap
# =============================================================================
# `wrap -- CMD`: runs an agent without hooks in a pseudo-terminal, passes all through and types the
# startup context when it is ready. Delivery decides, under a clock that comes in; only Run touches
# the terminal. Enter is pressed only behind our own text, seen in the program's input.
WRAP_POLL_S, WRAP_SETTLE_S, WRAP_TIMEOUT_S, WRAP_ACK_S = 0.2, 0.5, 30.0, 5.0
WRAP_ENTER_S = 0.3  # programs take an Enter that arrives with a paste as part of it
WRAP_AGAIN_S, WRAP_ENTERS = 2.0, 3
WRAP_HOLD_S = 5.0  # the person's keys wait so long for our Enter
WRAP_READ_BYTES, WRAP_DRAIN_READS = 16 * 1024, 256
WRAP_LINE_BYTES = 4000 if sys.platform.startswith("linux") else 1000  # a cooked terminal's longest
WRAP_IN_FILE = "ctx: the agent did not take the context ({reason}); it is now in {file}"
ECHO_RUN = 24  # letters: more than an acknowledgement has, less than our request around it
LINE_DONE = "\r\n\x03\x04\x15"  # Enter, ^C, ^D, ^U: nothing half-typed is left
_PASTED = r"\[Pasted (?:[Tt]ext|[Cc]ontent)\b[^\]]*\]"  # what stands for a long paste
_BOX = r"^[\s│┃|]*[>❯›*!]\s*"

# Agent -> its prompt up to the cursor ("": any program's), and has it an input box that stays
AGENTS = {
    **dict.fromkeys(("claude", "codex", "gemini", "qwen"), (_BOX + "$", True)),
    "aider": (r"^[\w -]*>{1,3}\s*$", False), **dict.fromkeys(("copilot", "droid", ""), ("", False)),
}
LAUNCHERS = frozenset("npx npm pnpm yarn bunx bun uv uvx pipx python python3 node deno env nice sh "
                      "bash zsh dash".split())


def find_agent(argv: list) -> str:
    """Which known agent a command line runs, also behind a launcher (`npx @openai/codex@1.2`)."""
    is_launched = not LAUNCHERS.isdisjoint(map(base_name, argv[:1]))
    words = " ".join(argv).split() if is_launched else argv[:1]
    name = r"^(\w+?)(?:-(?:cli|code|chat))?(?:@[\w.^~-]+|\.\w+)?$"
    found = (find_pattern(name, base_name(word)) for word in words)
    return next((one[1] for one in found if one and one[1] in AGENTS), "")


def plan_keys(text: str, paste: bool) -> bytes:
    """What to type for a text, without the Enter. Outside a paste a line end would submit half."""
    text = for_terminal(text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    "))
    if paste:
        return b"\x1b[200~" + text.strip().replace("\n", "\r").encode() + b"\x1b[201~"
    line = " ".join(filter(None, map(str.strip, text.split("\n")))).encode()
    if len(line) > WRAP_LINE_BYTES:  # the end with the request stays
        left_out = " [… left out: the terminal takes no longer line …] ".encode()
        line = line[:WRAP_LINE_BYTES - 200] + left_out + line[-120:]
    return line.decode("utf-8", "ignore").encode()


def parse_keys(keys: bytes) -> str:
    """What a person typed; what the terminal itself reports arrives as escape sequences."""
    import re

    return re.sub(ESCAPES, "", keys.decode("utf-8", "replace"))


def is_in_input(look: Record, typed: str, is_box: bool) -> bool:
    """Does the text that we typed stand in the program's input, with the cursor behind it?"""
    lines, before = [*look.lines[:look.row], look.before], look.before.strip()
    if is_box:  # from its prompt on, also when a line end came in behind the text
        starts = [i for i, line in enumerate(lines) if find_pattern(_BOX, line)]
        return bool(starts) and find_echo("\n".join(lines[starts[-1]:]), typed) >= 0
    is_last = before and (letters_of(before) or typed.rstrip().endswith(before))
    text = "\n".join(lines)
    end = find_echo(text, typed)
    return bool(is_last) and end >= 0 and not letters_of(text[end:])


def find_echo(text: str, typed: str) -> int:
    """Where the last end of our text is, however that is wrapped and framed, or of the mark that
    stands for it; -1: nowhere."""
    echo = r"[\W_]*".join(letters_of(typed)[-ECHO_RUN:])
    found = [find_pattern(r"(?s)\A.*" + one, text) for one in (echo, _PASTED)]
    return max((one.end() for one in found if one), default=-1)


class Delivery:
    """waiting -> typed -> waiting …; over: nothing more is typed, a late acknowledgement still
    counts; done. `told`: lines for the person; `in_file`: is the context in the instruction file,
    None until that was tried."""

    def __init__(self, ctx: Ctx, now: float, context: tuple, **options) -> None:
        self.ctx, (self.chosen, self.path, self.sources) = ctx, context
        self.agent, self.timeout_s, self.ack_s = "", WRAP_TIMEOUT_S, WRAP_ACK_S
        vars(self).update(options)
        self.state, self.file = "waiting" if self.sources else "done", fallback_file(ctx)
        self.row = Record(  # as a hook's delivery
            message_id="inj-%x" % int(ctx.now * 1000), attempts=0, first_at=0.0, outcome="pending",
            handoff=self.chosen.key if self.chosen else "")
        self.since = self.busy_at = now
        self.in_file, self.is_stale, self.enters, self.shown, self.told = None, False, 0, [], []
        self.typed, self.place, self.reason = "", "", "the program ended"

    def step(self, now: float, look: Record) -> bytes:
        """The keys to type now."""
        if self.state == "done":
            return b""
        found = filter(None, map(find_agent, look.programs))  # behind a launcher
        prompt, is_box = AGENTS[self.agent or next(found, "")]
        is_there = self.state == "typed" and is_in_input(look, self.typed, is_box)
        # A line such as `? for shortcuts` makes no question of the acknowledgement above it.
        lines = [line for line in [*look.gone, *look.lines] if line.strip()[:1] != "?"]
        vars(look).update(  # `In [1]:` and `In [2]:` are one place
            is_there=is_there, text="\n".join(lines),
            place="".join("0" if c.isdigit() else c for c in look.before.strip()),
            obstacle=find_obstacle(look, letters_of(self.typed) if is_there else ""),
            confidence=readiness(look, prompt, self.ctx.get("wrap.ready_patterns")))
        may_answer = self.row.attempts and (look.ended or self.state != "typed")
        end, unseen = find_echo(look.text, self.typed), "" if self.is_stale else look.text
        news = look.text[end:].partition("\n")[2] if end >= 0 else unseen  # not an old answer
        if may_answer and is_acknowledged(news):
            self.state = "done"
            succeed_delivery(self.ctx, self.row, "acknowledgement")
        elif look.ended:
            self._close()
        elif self.state != "over":
            return self._wait(now, look) if self.state == "waiting" else self._enter(now, look)
        return b""

    def is_holding(self, now: float) -> bool:
        """Nobody's keys come between the context and its Enter."""
        return self.state == "typed" and now - self.since < WRAP_HOLD_S

    def _wait(self, now: float, look: Record) -> bytes:
        """The next rung once it is ready: the text, again after its backoff, the file with its
        notice, or the end. An answer may take its time: only a program that waits again, where it
        did the first time and for long enough, has not acknowledged."""
        attempts, rung, needed_s = self.row.attempts, "again", WRAP_SETTLE_S
        if attempts:
            rung, wait_s = next_rung(self.ctx, attempts, self.in_file is None)
            needed_s = max(self.ack_s, wait_s)
        is_again = self.place in ("", look.place) or (
            look.process and not look.raw)  # it reads lines, whatever it shows
        if not is_again or look.confidence <= READY_ABOVE or look.obstacle or look.typing:
            self.busy_at = now
        if min(now - self.busy_at, look.silent_ms / 1000) < needed_s:
            if not attempts and now - self.since >= self.timeout_s:
                self._give_up("wrap:timeout", now, look, "not ready in time")
            return b""
        if rung == "fail":
            self.state, self.reason = "over", "no acknowledgement"
        if rung == "fail" or (rung == "file" and not self._write_file()):
            return b""  # where there can be no file, the rung after it comes next time
        self._note("wrap:ready", now, look)
        text = FALLBACK_NOTICE.format(file=self.file) if self.in_file else self._attempt(look)
        keys = plan_keys(text, look.paste)
        self.typed, self.state, self.since, self.enters = parse_keys(keys), "typed", now, 0
        return keys

    def _attempt(self, look: Record) -> str:
        self.place, self.is_stale = look.place, is_acknowledged(look.text)
        if self.chosen and not self.row.attempts:
            hold_handoff(self.ctx, self.chosen, self.row.message_id)
        return send_startup(self.ctx, self.row, self.sources, "wrap")

    def _enter(self, now: float, look: Record) -> bytes:
        """Enter, once our text stands in the input and nothing else asks for it; again, never the
        text, if nothing has happened but a line end. It is submitted when it has left the input."""
        waited_s, words = now - self.since, " ".join(look.lines).split()
        is_due = waited_s >= WRAP_ENTER_S and look.silent_ms >= NATURAL_AFTER_MS
        if self.enters:
            is_due = (self.enters < WRAP_ENTERS and waited_s >= WRAP_AGAIN_S
                      and not look.typing and words == self.shown)
        if self.enters and not look.is_there and look.obstacle != "a question":
            self._note("wrap:submitted", now, look)
            asks = self.ctx.get("startup.require_ack")
            self.state = "over" if self.in_file else "waiting" if asks else "done"
            self.since = self.busy_at = now
        elif look.is_there and is_due and not look.obstacle:
            self.since, self.shown, self.enters = now, words, self.enters + 1
            return b"\r"
        elif not look.obstacle and (
                waited_s >= self.timeout_s or (look.typing and not self.is_holding(now))):
            # What was typed stays where it is; nothing comes after it once the person goes on.
            self._give_up("wrap:stuck", now, look, "Enter did not submit it" if self.enters else
                          "the typed text did not appear")
        return b""

    def _give_up(self, name: str, now: float, look: Record, reason: str) -> None:
        """Nothing is typed any more: the file, which needs nobody to be ready."""
        self._note(name, now, look)
        self.state, self.reason = "over", reason
        if self.in_file or self._write_file(reason=reason):
            self.told.append(WRAP_IN_FILE.format(reason=reason, file=self.file))

    def _write_file(self, **why) -> bool:
        body = shorten_sources(self.sources, STARTUP_LIMIT)
        self.in_file = write_section(self.ctx, body, self.file)
        if self.in_file:
            count_metrics(self.ctx, attempted=int(not self.row.attempts))
            settle_delivery(self.ctx, self.row, "escalated", file=self.file, escalationType="file",
                            **why)
        return self.in_file

    def _close(self) -> None:
        """The program ended. An acknowledgement could come until now, so only now it has failed."""
        if not self.in_file and (self.row.attempts or self.state == "over"):
            settle_delivery(self.ctx, self.row, "failed", reason=self.reason)
            self.told.append(FAILURE_NOTICE.format(path=self.path))
        else:
            record(self.ctx, "wrap:ended", messageId=self.row.message_id, reason=self.reason)
        self.state = "done"

    def _note(self, name: str, now: float, look: Record) -> None:
        """A recorder row with what the decision rests on, and nothing that the person may type."""
        names = "confidence obstacle process silent_ms raw hidden paste alternate typing".split()
        record(self.ctx, name, messageId=self.row.message_id, attempt=self.row.attempts,
               waitedMs=int((now - self.since) * 1000), enters=self.enters,
               programs=[base_name(argv[0]) for argv in look.programs],
               **{key: getattr(look, key) for key in names})


# --- the pseudo-terminal


class Run:
    """The person's terminal, a pseudo-terminal, the program in it, its screen, and keys that wait
    to be taken by it."""

    def __init__(self, delivery: Delivery) -> None:
        import fcntl
        import signal
        import termios

        occupy_descriptors()
        self.fcntl, self.signal, self.termios = fcntl, signal, termios  # Windows has not all
        self.delivery, self.screen, self.saved = delivery, Screen(), termios.tcgetattr(0)
        self.queue, self.held, self.has_input, self.typing = b"", b"", True, False
        self.heard_at, self.looked_at, self.flags = delivery.since, 0.0, self.saved[3]

    def run(self, argv: list) -> int:
        """Pass everything through until the program is gone; its exit code."""
        try:
            self._start(argv)
            while self.process.returncode is None:
                self._pump()
            for _ in range(WRAP_DRAIN_READS):
                if not self._read_output():
                    break
            self._step()
            return self.process.returncode
        finally:
            self.restore()

    def _start(self, argv: list) -> None:
        import subprocess

        self.master, slave = _os.openpty()
        self.tty = _os.ttyname(slave)
        self.termios.tcsetattr(slave, self.termios.TCSANOW, self.saved)
        self.fit()
        self.process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: self.fcntl.ioctl(0, self.termios.TIOCSCTTY, 0))  # noqa: PLW1509
        _os.close(slave)
        _os.set_blocking(self.master, False)
        for name in "SIGTERM SIGHUP SIGINT SIGQUIT SIGUSR1 SIGUSR2".split():
            self.signal.signal(getattr(self.signal, name), self.forward)
        for number in (self.signal.SIGWINCH, self.signal.SIGCONT):
            # In the middle of output the size must not change, so this only notes it.
            self.signal.signal(number, lambda *_: setattr(self, "is_fit", False))

    def fit(self) -> None:
        """The person's terminal raw, and its size for the program's; also after ^Z and `fg`."""
        import tty

        self.is_fit = True  # first: it may change again meanwhile
        tty.setraw(0, self.termios.TCSADRAIN)  # keys typed ahead stay
        size = self.fcntl.ioctl(0, self.termios.TIOCGWINSZ, bytes(8))
        self.fcntl.ioctl(self.master, self.termios.TIOCSWINSZ, size)
        self.screen.resize(*memoryview(size).cast("H")[:2])

    def restore(self) -> None:
        """The person's terminal as it was, whatever the program left on."""
        insist(write_all, 1, format_restore(self.screen.modes))  # perhaps nobody looks any more
        self.termios.tcsetattr(0, self.termios.TCSADRAIN, self.saved)

    def _pump(self) -> None:
        """Pass on what is there now, or wait for it a moment."""
        import select

        if not self.is_fit:
            self.fit()
        may_read = self.has_input and len(self.queue + self.held) < WRAP_READ_BYTES
        ready, writable, _ = select.select([self.master, 0] if may_read else [self.master],
                                           [self.master] if self.queue else [], [], WRAP_POLL_S)
        if 0 in ready:
            self._read_keys()
        if not self.delivery.is_holding(time.monotonic()):
            self.queue, self.held = self.queue + self.held, b""
        if writable:
            try:
                self.queue = self.queue[_os.write(self.master, self.queue):]
            except OSError:
                pass  # full for now; a terminal that is gone ends the reading
        is_closed = self.master in ready and not self._read_output()
        self._follow(0 if is_closed else _os.WNOHANG | _os.WUNTRACED)
        if time.monotonic() - self.looked_at >= WRAP_POLL_S:
            self._step()

    def _follow(self, flags: int) -> None:
        """Has the program stopped or ended?"""
        pid, status = _os.waitpid(self.process.pid, flags)
        if pid and _os.WIFSTOPPED(status):
            # The person's shell comes back, `fg` lets both go on; without job control we just do.
            self.restore()
            _os.kill(_os.getpid(), self.signal.SIGTSTP)
            self.fit()
            self.forward(self.signal.SIGCONT)
            self.forward(self.signal.SIGWINCH)  # draw again
        elif pid:
            self.process.returncode = (128 + _os.WTERMSIG(status) if _os.WIFSIGNALED(status)
                                       else _os.WEXITSTATUS(status))

    def forward(self, number: int, _: object = None) -> None:
        insist(_os.killpg, self.process.pid, number)  # it may be gone already

    def _read_keys(self) -> None:
        keys = self._read(0)
        self.has_input, typed = bool(keys), parse_keys(keys)
        if keys == b"\x1a" and self.flags & self.termios.ISIG:  # ^Z
            self.forward(self.signal.SIGSTOP)  # without a shell the kernel drops SIGTSTP
        elif typed:
            self.typing = typed[-1] not in LINE_DONE
            self.held += keys
        else:  # an answer of the terminal itself, for which the program may wait, goes through
            self.queue += keys

    def _read_output(self) -> bool:
        """False when there is nothing (more)."""
        data = self._read(self.master)
        self.heard_at = time.monotonic() if data else self.heard_at
        self.screen.feed(data)
        if not insist(write_all, 1, data):
            self.forward(self.signal.SIGHUP)  # as a terminal does that goes away
        return bool(data)

    def _read(self, fd: int) -> bytes:
        try:
            return _os.read(fd, WRAP_READ_BYTES)
        except OSError:
            return b""  # Linux says EIO once the program's side is closed

    def _step(self) -> None:
        """Look, and let the delivery decide."""
        self.looked_at = now = time.monotonic()
        try:
            self.flags = self.termios.tcgetattr(self.master)[3]
        except self.termios.error:
            pass  # the program has closed it
        if self.delivery.state == "done":
            return
        screen, is_raw = self.screen, not self.flags & self.termios.ICANON
        process, programs = read_process(self.process.pid, self.tty)
        self.delivery.ctx.now = time.time()
        self.queue += self.delivery.step(now, Record(
            process=process, programs=programs, gone=screen.gone, lines=screen.lines(),
            silent_ms=int((now - self.heard_at) * 1000), row=screen.y,
            before=screen.before_cursor(), raw=is_raw, alternate=screen.is_alternate(),
            hidden=not is_raw and not self.flags & self.termios.ECHO, typing=self.typing,
            paste=PASTE_MODE in screen.modes, ended=self.process.returncode is not None))


# --- the command


def wrap_command(given: Record) -> int:
    command, kind = given.rest, kind_of_command(given.rest)
    if not command:
        raise CommandError("a command is missing after --")
    if kind:
        raise CommandError(
            "%s is %s, not an agent: the context would be typed into it" % (command[0], kind),
            "name the agent, e.g. `wrap -- aider`; a script is run by `wrap -- sh -c '…'`")
    if not IS_POSIX or not _os.isatty(0):
        raise CommandError("wrap needs a terminal, of a POSIX system", "run the agent directly")
    ctx, agent = people_ctx(), given.agent or find_agent(command)
    ctx.agent = agent if agent in DIALECTS else ctx.agent
    delivery = Delivery(ctx, time.monotonic(), _read_context(ctx, given.context), agent=agent,
                        timeout_s=float(given.timeout or WRAP_TIMEOUT_S))
    ctx.agent = agent or "other"  # for the recorder, now that the agent's file is known
    try:
        code = Run(delivery).run(command)
    except OSError as error:
        raise CommandError("cannot run %s: %s" % (command[0], error.strerror),
                           "check the name and PATH") from None
    write_stderr("".join(line + "\n" for line in delivery.told))
    return code


def _read_context(ctx: Ctx, path: str) -> tuple:
    """(the handoff or None, where the text is, sources): of the file that the person named, else of
    what a new session would get."""
    if path:
        data = read_bytes(path) or b""
        if not says_something(data):
            raise CommandError("there is no context in %s" % one_line(path, 200),
                               "name a text file that is filled in")
        return None, path, [(SOURCE_FILE.format(path=path), clean_text(decode_text(data)))]
    if not ctx.get("startup.enabled"):
        return None, "", []
    update_ledger(ctx, lambda ledger: None)  # from now on a handoff is newer than the first event
    found = find_handoffs(ctx, "")
    chosen = next((one for one in found if not one.is_busy), None)
    paths = ", ".join([*(one.path for one in found[:1]), *startup_files(ctx)])
    return chosen, paths, startup_sources(ctx, chosen, found)

# =============================================================================
# Commands
# =============================================================================
# What people run: a function each, which gets what was given by its usage line. Heavy imports are
# fine here. A command returns its exit code, None for 0; a failure is a CommandError.
WATCH_EVERY_S, WRAPPED_WAIT_S = 2.0, 2.0
REPLAY_FILES, REPLAY_BYTES = 5000, 64 * 1024 * 1024
CHECK_RIGHTS = "check its owner and permissions"


def list_sessions(ctx: Ctx) -> list:
    """[(session, time of its last change)], newest first."""
    names = [name[:-5] for name in list_dir(ctx.path("state"), 20_000)
             if name.endswith(".json") and ("~" in name or is_plain_name(name))]
    infos = [(name, stat_of(session_file(ctx, name))) for name in names]
    return sorted([(name, info.st_mtime) for name, info in infos if info], key=lambda row: -row[1])


def session_ctx(given: Record, known_only: bool = False) -> Ctx:
    """The project, with the session that an id or its first letters name, or the environment."""
    ctx, wanted = people_ctx(), safe_name(given.session)
    names = [name for name, _ in list_sessions(ctx)]
    found = [wanted] if wanted in names else [
        name for name in names if wanted and name.startswith(given.session.lower())]
    if len(found) > 1 or known_only and wanted and not found:
        raise CommandError("%s session %s here" % ("more than one" if found else "no",
                                                   given.session),
                           "known: " + (", ".join((found or names)[:5]) or "none yet"))
    ctx.session = found[0] if found else wanted or ctx.session
    return ctx


def status_command(given: Record) -> None:
    if given.watch and not _os.isatty(1):
        raise CommandError("--watch needs a terminal", own_command("status"))
    while True:
        ctx = session_ctx(given, known_only=True)
        data = status_data(ctx, ctx.session if given.session else "")
        page = [format_json(data)] if given.json else render_status(data)
        show(*page, is_screen=bool(given.watch))
        if not given.watch:
            return
        time.sleep(WATCH_EVERY_S)


def status_data(ctx: Ctx, only: str) -> dict:
    """All that `status` tells, of one session or of those that were there last."""
    known = list_sessions(ctx)
    shown = [pair for pair in known if not only or pair[0] == only]
    ledger = [dict(dump_record(row, HANDOFF_ROW), session=name)
              for name, row in read_ledger(ctx).handoffs.items()
              if not only or only in (name, row.delivered_to)]
    ledger.sort(key=lambda row: row["written_at"] or row["asked_at"] or "", reverse=True)
    places = ["", *([only] if only else list_dir(ctx.path("signals", "sessions"), 100))]
    signals = [(place, signal) for place in places for signal in read_signals(ctx, place, {})[0]
               if bool(place) != signal.stays]
    return {
        "version": VERSION, "at": format_iso(ctx.now), "root": ctx.root,
        "paused": read_pauses(ctx), "handoffs": ledger[:10],
        "sessions": [session_data(ctx, *pair) for pair in shown[:10]],
        "signals": [{
            "session": place, "severity": signal.severity, "code": signal.code,
            "text": one_line(signal.body, 400), "at": format_iso(signal.generated_at),
            "until": format_iso(signal.generated_at + signal.ttl_s)
        } for place, signal in signals[:100]],  # also those that are not injected
        "auto": workflow_data(ctx), "attention": attention_data(ctx, known),
        "problems": [text for level, text in check_project(ctx) if level != OK],
    }


def session_data(ctx: Ctx, session: str, seen_at: float) -> dict:
    """How full it is, and which context files it read; its handoffs stand in the ledger."""
    state, files = read_session(ctx, session), [name for name, _ in gate_files(ctx)]
    unread = [name for name in files if name not in state.files_read]
    gate = "%d of %d files read%s" % (len(files) - len(unread), len(files),
                                      ", not: " + ", ".join(unread) if unread else "")
    return {
        "session": session, "agent": state.agent, "seen_at": format_iso(seen_at),
        "model": best_model(state, ""), "tool_calls": state.tool_calls,
        "context": last_measure(ctx, session, state),
        "gate": "switched off" if ctx.get("gate.mode") == "off" else gate}


def last_measure(ctx: Ctx, session: str, state: Record) -> "dict | None":
    """The newer of what the monitor measured and what the status line was told."""
    handed = read_json(ctx.path("state", session + ".statusline"))
    told_at, at = parse_iso(handed.get("at")) or 0.0, state.last_call
    found = (state.estimated_tokens, state.window, state.exact, state.measured_model)
    if count_of(handed.get("used")) and told_at >= at:
        at, found = told_at, (count_of(handed["used"]), count_of(handed.get("window")), True,
                              text_of(handed.get("model")))
    if not found[0] or not found[1]:
        return None
    measure = make_measure(*found)
    return dict(vars(measure), session=session, kind=measure.note or "exact", at=format_iso(at))


def workflow_data(ctx: Ctx) -> "dict | None":
    if not read_json(auto_path(ctx)):
        return None
    flow, agreed = read_workflow(ctx), read_trust(ctx).checks
    checks = [{"phase": phase, "command": text, "agreed": agreed.get(phase) == digest_of(text)}
              for phase, text in checks_of(ctx, flow).items()]
    return dict(dump_record(flow, WORKFLOW), token="", inert=is_inert(ctx, flow), checks=checks,
                last_error=text_of(flow.last_error.get("message")))


def attention_data(ctx: Ctx, sessions: list) -> dict:
    """Characters and messages said to the agent, by mechanism, and the tool calls they go with."""
    by, calls = {}, sum(read_session(ctx, name).tool_calls for name, _ in sessions[:50])
    for row in read_events(ctx, 100_000):
        mechanism, chars = text_of(row.get("event")).partition(":")[0], count_of(row.get("chars"))
        calls += count_of(row.get("calls"))  # of a session that ended
        if chars and row.get("type") != "wrap":  # no tool calls go with that
            said = by.setdefault(mechanism, {"messages": 0, "chars": 0})
            said["messages"] += 1
            said["chars"] += chars
    return {"calls": calls, "by": by}


def context_command(given: Record) -> None:
    """The session in the environment, else the most recent one."""
    ctx = session_ctx(given, known_only=True)
    session = ctx.session or next((name for name, _ in list_sessions(ctx)), "")
    measure = last_measure(ctx, session, read_session(ctx, session))
    if measure is None:
        raise CommandError("this session has not been measured yet",
                           "it happens at the agent's first tool call")
    show(format_json(measure) if given.json else
         "{shown} {tokens}/{window} {kind} {session}".format(**measure))


def why_command(given: Record) -> None:
    rows = read_events(people_ctx(), int(given.words[0]) if given.words else 10)
    page = list(map(render_decision, rows)) or [
        "nothing was said or decided here yet; silence is not recorded"]
    show(*[format_json(rows)] if given.json else page)


def config_command(given: Record) -> None:
    ctx, rows = people_ctx(), []
    user_file = user_config_path(ctx.env)
    own = read_config(user_file, is_user=True)[0]
    project = read_config(join_path(ctx.root, CONFIG_NAME))[0]
    for key, _, _, about in SETTINGS:
        value = severity_floor(ctx) if key == "monitor.inject_min_severity" else ctx.get(key)
        source = CONFIG_NAME if key in project else user_file if key in own else "default"
        source = source if value == ctx.get(key) else "CTX_INJECT_MIN_SEVERITY"
        rows.append({"key": key, "value": value, "source": source, "about": about})
    page = [[("dim" if row["source"] == "default" else "bold", row["key"] + " "),
             ("", "= %s  (%s) %s" % (format_json(row["value"]), row["source"], row["about"]))]
            for row in rows]
    page += ["  ✗ " + text for _, text in check_settings(ctx)]
    show(*[format_json(rows)] if given.json else page)


def doctor_command(given: Record) -> int:
    """A line for each thing that matters; exit 1 when something is broken."""
    rows = diagnose(people_ctx(needed=False), slashed(_os.getcwd()), read_environment())
    found = [{"level": level, "text": text} for level, text in rows]
    page = [[(row["level"], "%-6s" % row["level"]), ("", row["text"].partition("\n")[0])]
            for row in found]
    below = [line for row in found for line in row["text"].split("\n")[1:]]  # settings to paste
    page += ["", *below] if below else []
    show(*[format_json(found)] if given.json else page)
    return 1 if FAIL in [row["level"] for row in found] else 0


def signal_command(given: Record) -> None:
    ctx, summary, ttl_s = session_ctx(given), given.words[0], int(given.ttl or DEFAULT_TTL_S)
    if summary == "-":
        summary = read_fd(0, SIGNAL_LIMIT_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    if not clean_text(summary).strip():
        raise CommandError("the summary is empty", "say in one line what is wrong")
    if not 1 <= ttl_s <= TTL_LIMIT_S:
        raise CommandError("--ttl must be between 1 and %d seconds" % TTL_LIMIT_S, "leave it out")
    action = "\n→ " + given.action.strip() if given.action.strip() else ""
    path = write_signal(ctx, "" if getattr(given, "global") else ctx.session, Record(
        name=given.name or "external-%x" % (time.time_ns() // 1000), generated_at=ctx.now,
        severity=given.severity or "warning", ttl_s=ttl_s, code=given.code,
        auditor=given.name or "external", body=summary.strip() + action))  # two names, two sources
    if not path:
        raise CommandError("cannot write " + ctx.path("signals"), CHECK_RIGHTS)
    show(path)


def pause_command(given: Record) -> None:
    """`pause` and `resume`: of one session, or of all when none is known."""
    ctx, stated, until = session_ctx(given), getattr(given, "for", ""), None
    path, is_pause = ctx.path("state", "pause.json"), given.word == "pause"
    if stated:
        number, unit_s = stated[:-1], UNITS_S.get(stated[-1].lower())
        if not (unit_s and is_digits(number) and len(number) < 9):
            raise CommandError("not a duration: " + stated,
                               "a number with s, m, h or d, such as 30m")
        until = format_iso(ctx.now + int(number) * unit_s)

    def edit(data: dict) -> None:
        pauses = read_pauses(ctx)
        data.clear()
        if is_pause:
            data.update(pauses, **{ctx.session or "*": until})
        elif ctx.session:
            data.update((name, pauses[name]) for name in pauses if name not in (ctx.session, "*"))
        data["inode"] = ctx.owner.st_ino

    if not update_json(ctx, path, edit)[0]:
        raise CommandError("cannot write " + path, CHECK_RIGHTS)
    told = "paused %s until " + (until or "`resume`") if is_pause else "resumed %s"
    show(told % (ctx.session or "every session"))


def auto_command(given: Record) -> None:
    ctx, action = session_ctx(given), given.words[0]
    shell = next(iter(read_environment(AGENT_NAMES)), "")
    if shell and (given.until or given.agree):
        raise CommandError(
            "--until and --agree are for a person; %s is set in an agent's shell" % shell,
            "run it in a terminal of your own; with ! in the client it is the agent's shell too")
    if action == "stop":
        was_active = is_active(read_workflow(ctx))
        if was_active and not cancel_workflow(ctx):
            raise CommandError("cannot write " + AUTO_STATE, CHECK_RIGHTS)
        show("cancelled" if was_active else "no workflow is active")
        return
    if action != "status":
        flow = _plan_start(ctx, given) if action == "start" else _plan_resume(ctx, given)
        if given.session:  # the client's own id, as its events carry it
            is_whole = ctx.session == safe_name(given.session)
            flow.session_id = given.session if is_whole else ctx.session
        _agree(ctx, flow, given, may_ask=not shell)
        if not is_dir(parent_of(auto_path(ctx))):
            write_bytes(ctx, ctx.root + "/.caw/.gitignore", b"auto-state.json\n.gitignore\n")
        if not update_workflow(ctx, lambda now: vars(now).update(vars(flow)))[0]:
            raise CommandError("cannot write " + AUTO_STATE, CHECK_RIGHTS)
        record(ctx, "auto:started" if action == "start" else "auto:resumed", phase=flow.phase,
               bound=bool(flow.session_id))
    data = workflow_data(ctx)
    page = render_workflow(data) if data else [
        "no workflow; begin one with: " + own_command("auto start TASK")]
    show(*[format_json(data or {})] if given.json else page)


def _plan_start(ctx: Ctx, given: Record) -> Record:
    """The phases are those that are left; with --until and none named it is `execution` alone."""
    names, old = ctx.get("auto.phases") or list(PHASES), read_workflow(ctx)
    skipped = given.skip + [name for flag in SKIPS if getattr(given, flag) for name in SKIPS[flag]]
    phases = [name for name in names if name not in skipped]
    if given.until and not (given.phase or skipped or ctx.get("auto.phases")):
        phases = ["execution"]
    first, task = given.phase or (phases or names)[0], "".join(given.words[1:])
    unknown = (set(given.skip) - set(names)) | ({first} - set(phases))
    if not task.strip():
        raise CommandError("the task is empty", "say in a sentence what is to be done")
    if unknown:
        name = min(unknown)
        raise CommandError("there is no phase " + name,
                           did_you_mean(name, phases, "phases: " + ", ".join(phases)))
    if is_active(old) and not is_inert(ctx, old) and not given.force:
        raise CommandError("a workflow is active already",
                           "--force replaces it; to see it: " + own_command("auto status"))
    return load_record({
        "active": True, "phases": phases, "phase": first, "until": given.until,
        "max_iterations": int(given.max_iterations or MAX_ITERATIONS), "task_description": task,
        "any_prompt": bool(given.any), "signals": {}, "started_at": format_iso(ctx.now, True),
        "session_id": "" if given.any else ctx.env.get("CLAUDE_CODE_SESSION_ID", ""),
    }, WORKFLOW)


def _plan_resume(ctx: Ctx, given: Record) -> Record:
    """It binds to the next session that prompts, also after it failed or was blocked."""
    flow = read_workflow(ctx)
    if not read_json(auto_path(ctx)) or flow.phase == "complete":
        raise CommandError("there is no workflow to take up", own_command("auto start TASK"))
    known = [phase for phase in (flow.phase, flow.last_phase) if phase in flow.phases]
    vars(flow).update(
        FRESH, active=True, phase=(known or flow.phases)[0], exit_reason="", completed_at=0.0,
        phase_started_at=ctx.now, session_id="", any_prompt=bool(given.any) or flow.any_prompt)
    flow.signals.last_checked = ctx.now
    return flow


def _agree(ctx: Ctx, flow: Record, given: Record, may_ask: bool) -> None:
    """The person's consent to the checks. One that was not typed here or agreed to before is asked
    about; where no person can answer it stays without consent, unless --agree says so."""
    checks = checks_of(ctx, flow)
    known = [*read_trust(ctx).checks.values(), digest_of(given.until)]
    strange = {} if given.agree else {
        phase: text for phase, text in checks.items() if digest_of(text) not in known}
    if strange and may_ask and _os.isatty(0) and _os.isatty(1):
        show("the project wants these commands run as checks:",
             *["  %s: %s" % (phase, text.replace("\n", "⏎ ")) for phase, text in strange.items()],
             "agree? [y/N]")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("not agreed, nothing was changed",
                               "the commands stand in " + CONFIG_NAME)
        strange = {}
    agreed = {phase: digest_of(text) for phase, text in checks.items() if phase not in strange}
    flow.token, path = _os.urandom(16).hex(), trust_path(ctx)
    trust = format_json({"token": flow.token, "root": ctx.root, "checks": agreed})
    if not (path and write_bytes(ctx, path, trust.encode())):
        place = path or "a state home: HOME is not set"
        raise CommandError("cannot write " + place, CHECK_RIGHTS)


def statusline_command(given: Record) -> None:
    run_guarded("statusline", read_environment(), _statusline, given.rest, bool(given.only))


def _statusline(env: dict, wrapped: list, only: bool) -> None:
    """Ours below the user's own, of which there is what it printed before it failed or hung."""
    import _signal

    set_deadline(time.monotonic() + STDIN_WAIT_S)
    data, theirs = dict_of(read_event_data(0)), b""
    add_time(HOOK_LIMIT_S)
    line = render_statusline(statusline_data(data, env))
    if wrapped:
        _signal.signal(_signal.SIGTERM, lambda *_: sys.exit(143))  # our child goes with us
        argv = wrapped if len(wrapped) > 1 else ["/bin/sh", "-c", wrapped[0]]
        if not IS_POSIX and len(wrapped) == 1:  # cmd has quoting rules of its own
            shell = read_environment(("COMSPEC",)).get("COMSPEC", "cmd")
            argv = '"%s" /d /s /c "%s"' % (shell, wrapped[0])
        theirs = run_timed(argv, format_json(data).encode(), None, None, WRAPPED_WAIT_S)[2].rstrip()
        write_all(1, theirs + b"\n" if theirs else b"")  # the user's own program paints as it likes
    if not (theirs and only):
        show(line, is_bar=True)


def statusline_data(data: dict, env: dict) -> dict:
    """What the line shows; on the way, the exact numbers are handed to the monitor."""
    window, model = dict_of(data.get("context_window")), dict_of(data.get("model"))
    size, used = count_of(window.get("context_window_size")), tokens_of(window.get("current_usage"))
    shown = {"model": one_line(text_of(model.get("display_name")) or text_of(model.get("id")), 30),
             "percent": min(100, used * 100 // size) if used and size else None,
             "near": False, "phase": "", "pending": ""}
    session_id, cwd = text_of(data.get("session_id")), slashed(text_of(data.get("cwd")))
    start = project_folder("claude", env) or slashed(text_of(dig(data, "workspace.project_dir")))
    is_on = session_id and not is_switched_off(env)
    ctx = find_project(start, cwd, env, time.time()) if is_on else None
    if ctx is None:
        return shown
    ctx.session = safe_name(session_id)
    path = ctx.path("state", ctx.session + ".statusline")
    old, name = read_json(path), text_of(model.get("id"))
    new = {"window": size, "used": used, "model": name, "at": old.get("at")}
    if size and old != new:  # the client asks several times a second
        write_bytes(ctx, path, format_json(dict(new, at=format_iso(ctx.now, True))).encode())
    state, flow = read_session(ctx, ctx.session), read_workflow(ctx)
    point = compaction_point(ctx, state, size)
    shown["near"] = 0 < point - HANDOFF_BEFORE_COMPACTION <= used
    if is_active(flow) and flow.session_id == session_id:
        shown["phase"] = "%s %d/%d" % (flow.phase, flow.iteration, flow.max_iterations)
    claims = drop_old_claims(ctx, read_json(claims_path(ctx, ctx.session)))
    due = due_signals(ctx, read_signals(ctx, ctx.session, claims)[0])
    pending = "signals: %d" % len(due) if due else ""
    shown["pending"] = "paused" if is_paused(ctx, ctx.session) else pending
    return shown


def replay_command(given: Record) -> int:
    """Each file holds an event, a list of them, or one on each line."""
    import json
    import tempfile

    ctx, agent, events = people_ctx(), given.agent or "claude", []
    for name in given.words:
        data = read_fd(0, STDIN_LIMIT_BYTES) if name == "-" else read_bytes(name, STDIN_LIMIT_BYTES)
        lines = (data or b"").decode("utf-8", "replace").lstrip("\ufeff").strip().split("\n")
        try:
            found = json.loads("\n".join(lines)) if data else None
        except (ValueError, RecursionError):
            found = list(map(parse_object, filter(str.strip, lines)))
        found = found if isinstance(found, list) else [found]
        wrong = [index for index, event in enumerate(found, 1) if not dict_of(event)]
        if wrong:
            raise CommandError("cannot read %s, event %d" % (name, wrong[0]),
                               "it has to hold events, each a JSON object")
        events += found
    with tempfile.TemporaryDirectory(prefix="ctx-replay-") as folder:
        copy_project(ctx, real_path(folder))
        results = [replay_event(ctx, real_path(folder), event, agent) for event in events]
    lines = [line for index, result in enumerate(results, 1)
             for line in render_replay(result, index)]
    show(*[format_json(results)] if given.json else lines)
    return 1 if any(result["error"] for result in results) else 0


def copy_project(ctx: Ctx, scratch: str) -> None:
    """What the hooks look at, within bounds: no links, no pause, nothing of the user's own."""
    import os

    names, room = [path for _, path in settings_files(ctx.root, {})[:2]], REPLAY_BYTES
    names += [CONFIG_NAME, AUTO_STATE, OLD_HANDOFF, *ctx.get("startup.files")]
    for folder, folders, files in os.walk(ctx.dir):
        names += [slashed(folder) + "/" + name for name in files if name != "pause.json"]
        folders[:] = folders if len(names) < REPLAY_FILES else []
    for name in ("/tmp", "/home", "/project" + ctx.dir[len(ctx.root):]):
        os.makedirs(scratch + name)
    for name in names[:REPLAY_FILES]:
        source = join_path(ctx.root, name)
        info = is_below(source, ctx.root) and name_inside(source, ctx.root) and stat_of(source)
        data = read_bytes(source, room, follow=False) if info else None
        if data is not None:
            room, target = room - len(data), scratch + "/project/" + source[len(ctx.root):]
            os.makedirs(parent_of(target), exist_ok=True)
            with open(target, "wb") as out:
                out.write(data)
            os.utime(target, (info.st_mtime, info.st_mtime))


def replay_event(ctx: Ctx, scratch: str, event: dict, agent: str) -> dict:
    """One event through the registered loader, as a user who has agreed to nothing."""
    root, name = scratch + "/project", text_of(event.get("hook_event_name"))
    mode = EVENTS.get(DIALECTS[agent].events.get(name), "")
    result = {"event": name or "?", "mode": mode, "ms": 0, "reply": None, "error": ""}
    if not mode:
        return result
    here, there = format_json(ctx.root)[1:-1], format_json(root)[1:-1]
    moved = parse_object(format_json(event).replace(here, there))
    moved["transcript_path"] = event.get("transcript_path")
    words = [mode, agent, real_path(__file__)]
    took_s, _, out, err = run_hook([sys.executable], words, moved, scratch, root)
    reply = parse_object(out.decode("utf-8", "replace").replace(there, here)) if out else None
    return dict(result, ms=round(took_s * 1000, 1), reply=reply, error=one_line(err, 400))

# =============================================================================
# Main
# =============================================================================
# The first word is a mode, for clients, or a command, for people. The usage line is all that is
# known about a command's words, to the help, to the completion and to parse_words: WORD, [WORD],
# WORD…, one|of|these as a word or VALUE, then [--flag], [--option VALUE], [--one | --or-another].


def completion_command(given: Record) -> None:
    """bash and zsh by one function, fish by a line a word; all from COMMANDS."""
    shell, words = given.words[0], {}
    for word, (usage, _, _) in COMMANDS.items():
        options, places = parse_usage(usage)
        actions = [name.replace("|", " ") for name in places if "|" in name]
        words[word] = " ".join([*actions, *options])
    if shell == "fish":
        form = "complete -c ctx -f -n '__fish_seen_subcommand_from %s' -a '%s'"
        show("complete -c ctx -f -n __fish_use_subcommand -a '%s'" % " ".join(words),
             *[form % pair for pair in words.items()])
        return
    show(*["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else [],
         "_ctx_hooks() {", "  local words=", '  case "${COMP_WORDS[1]}" in',
         *["    %s) words='%s' ;;" % pair for pair in words.items()], "  esac",
         "  [ \"$COMP_CWORD\" -gt 1 ] || words='%s'" % " ".join(words),
         '  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))', "}",
         "complete -o default -F _ctx_hooks ctx")


COMMANDS = {  # word -> its usage, its function, what it is for
    "status": ("[--session ID] [--json | --watch]", status_command,
               "Show sessions, handoffs, signals, the workflow and problems."),
    "context": ("[--session ID] [--json]", context_command, "How full the context is."),
    "why": ("[N] [--json]", why_command, "The last decisions, explained."),
    "config": ("[--json]", config_command, "Every setting, its value and where it comes from."),
    "signal": ("SUMMARY [--action TEXT] [--severity info|warning|critical] [--ttl SECONDS] "
               "[--code CODE] [--name NAME] [--session ID | --global]", signal_command,
               "Tell the agent something with its next tool result or prompt; SUMMARY - is stdin."),
    "auto": ("start|status|resume|stop [TASK] [--until CMD] [--phase PHASE] [--skip PHASE…] "
             "[--skip-expansion] [--skip-qa] [--skip-review] [--skip-reflect] [--any] "
             "[--session ID] [--max-iterations N] [--agree] [--force] [--json]", auto_command,
             "Keep the agent going until a task is done: start, show, take up or stop that."),
    "pause": ("[--for 30m] [--session ID]", pause_command,
              "Silence the hooks for a while, or until `resume`."),
    "resume": ("[--session ID]", pause_command, "End a pause."),
    "statusline": ("[--only] [-- CMD…]", statusline_command,
                   "A line for the client's status bar, below your own."),
    "replay": ("FILE… [--agent %s] [--json]" % "|".join(DIALECTS), replay_command,
               "Run recorded hook events through the kit, in a scratch copy; FILE - is stdin."),
    "wrap": ("[--context FILE] [--agent %s] [--timeout S] -- CMD…" % "|".join(filter(None, AGENTS)),
             wrap_command, "Run an agent that has no hooks, and type the last handoff into it."),
    "doctor": ("[--json]", doctor_command, "Check what can keep the hooks from working."),
    "completion": ("bash|zsh|fish", completion_command, "Completion of these words for `ctx`."),
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
    "--force": "replace a workflow that is active",
    "--only": "your own line alone, ours only without it",
    "--code": "of signals with the same code and name only the newest is told",
}


def parse_usage(usage: str) -> tuple:
    """({option: kind of its value, "" for a flag}, [kind of each word, [KIND] where it may be
    left out])."""
    words, *options = usage.partition("-- ")[0].replace(" | --", "] [--").split("[--")
    pairs = [option.partition("]")[0].partition(" ") for option in options]
    return {"--" + name: kind for name, _, kind in pairs}, words.split()


def parse_words(word: str, args: list) -> "Record | None":
    """What was given to a command: its word, the options by name ("" when missing), `words`, and
    `rest`, what stands behind --. None: help is wanted."""
    cut = args.index("--") if "--" in args else len(args)
    own, words, (kinds, places) = args[:cut], [], parse_usage(COMMANDS[word][0])
    given = {name: [] if kind.endswith("…") else "" for name, kind in kinds.items()}
    if {"--help", "-h"} & set(own):
        return None
    while own:
        name, equals, value = own.pop(0).partition("=")
        if name[:2] != "--":
            words.append(name + equals + value)
            continue
        if name not in kinds:
            raise CommandError(did_you_mean(name, kinds, "unknown option " + name))
        if kinds[name] and not (equals or own):
            raise CommandError(name + " needs a value")
        value = value if equals else own.pop(0) if kinds[name] else "yes"
        _check_kind(name, kinds[name], value)
        given[name] = given[name] + [value] if isinstance(given[name], list) else value
    if len(words) > len(places) and not "".join(places).endswith("…"):
        raise CommandError("one word too many: " + words[len(places)])
    for index, kind in enumerate(places):
        if words[index:]:
            _check_kind(words[index], kind.strip("[]"), words[index])
        elif kind[0] != "[":
            raise CommandError(kind + " is missing")
    named = {name[2:].replace("-", "_"): value for name, value in given.items()}
    return Record(word=word, words=words, rest=args[cut + 1:], **named)


def _check_kind(name: str, kind: str, value: str) -> None:
    choices = kind.split("|")
    if choices[1:] and value not in choices:
        near = did_you_mean(value, choices, "use one of " + ", ".join(choices))
        raise CommandError(name + ": " + near)
    if kind in ("N", "S", "SECONDS") and not is_digits(value):
        raise CommandError(name + " wants a number")


def run_command(word: str, args: list) -> "int | None":
    usage, run, about = COMMANDS.get(word, ("", None, ""))
    given = parse_words(word, args) if run else None
    if given:
        return run(given)
    if run:
        show("usage: ctx_hooks.py %s %s" % (word, usage), "", about,
             *["  %-10s %s" % pair for pair in OPTIONS.items() if pair[0] in usage], "",
             "example: " + own_command(EXAMPLES.get(word, word)))
    elif word in ("--help", "-h", "help"):
        show("ctx_hooks %s: hooks that keep a coding agent on the thread of its work" % VERSION, "",
             "for people; each has --help with an example:",
             *["  %-13s %s" % (name, row[2]) for name, row in COMMANDS.items()],
             "  --version     Version and the file's sha256.", "",
             "for clients, with an event as JSON on stdin: " + ", ".join(MODES), "",
             "usage: " + own_command("COMMAND …"))
    elif word in ("--version", "-V"):
        show("ctx_hooks " + VERSION, "sha256 " + file_digest(__file__))
    else:  # Nothing on stdout: a client that runs this as a hook would show it to the model.
        raise CommandError("unknown command: " + one_line(word, 40),
                           did_you_mean(word, [*COMMANDS, *MODES], own_command("--help")))
    return 0


def main() -> None:
    """A failure of a person's command is two lines, a reader that has seen enough is none."""
    word, *args = sys.argv[1:] or ["--help"]
    if word in MODES:
        hook_main(sys.argv[1:])
    code, told = 0, ()
    try:
        code = run_command(word, args) or 0
    except CommandError as error:
        code, told = (1 if error.args[1:] else 2), (*error.args, own_command(word + " --help"))
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        if error.errno not in CLOSED_ERRNOS:
            code, told = 1, (str(error), own_command("doctor"))
    if told:
        said, hint = (text.replace("\n", " ") for text in told[:2])
        write_stderr("error: %s\nhint: %s\n" % (said, hint))
    _os._exit(code)  # a second flush could only fail again


if __name__ == "__main__":
    main()
