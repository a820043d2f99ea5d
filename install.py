#!/usr/bin/env python3
"""Put ctx_hooks into the settings of a project's coding agents, or take it out.

    python3 install.py                install into the project around this folder
    python3 install.py --dry-run      show what would change; write nothing
    python3 install.py --check        is it installed, current, and does it speak?
    python3 install.py --uninstall    take it out; settings get their old bytes back

What it writes (BASE is PROJECT/.claude, or ~/.claude with --scope user):

    BASE/hooks/ctx_hooks.py           the kit, a copy of the file beside this one
    BASE/hooks/.gitattributes         so that git never gives the kit CRLF
    BASE/settings.json                our hooks (settings.local.json: --scope local)
    .codex/hooks.json, .gemini/ ...   the same for other agents, see --agent
    .context/TASKS.md, DECISIONS.md   if there is no .context; not with --no-context
    .git/info/exclude                 names of files that are private to this machine
    ~/.local/state/ctx_hooks/         what --uninstall has to know
    ~/.cache/ctx_hooks/python3        with --python: a link to the interpreter

It follows no link out of the project, uses no network and asks nothing.
Everything is read and checked before the first write. A run that is cut short
can be repeated or undone.

Exit codes: 0 done, or --check: the hooks speak. 1 error. 2 usage.
--check only: 3 not installed, 4 not current, or the hooks would be silent.

Contents: kit; JSON text; our entries; job; files; settings; install; uninstall;
git; what is said; command line.
"""

import sys

if sys.version_info < (3, 8):
    sys.exit(
        "error: ctx_hooks needs Python 3.8 or newer, this is %d.%d\n"
        "hint: run install.py with a newer one, for example python3.12 install.py"
        % tuple(sys.version_info[:2])
    )

# An old Python has to parse this file before it can say so. That is why the types
# are in comments; mypy reads them there.

import argparse
import difflib
import json
import os
import re
import shlex
import stat
from os.path import dirname, isdir, islink, join, lexists, realpath, relpath
from typing import List, NamedTuple

# =============================================================================
# Kit
# =============================================================================
# The file that is installed is also imported: it knows the agents, it makes and
# recognises the lines in their settings, and it finds what keeps them from working.

HERE = dirname(realpath(__file__))
KIT = "ctx_hooks.py"


sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
try:
    import ctx_hooks as kit

    with open(join(HERE, KIT), "rb") as file:
        SOURCE = file.read().replace(b"\r\n", b"\n")
    with open(join(HERE, "hooks.json"), "rb") as file:
        HOOKS = json.load(file)["hooks"]  # type: kit.Json
except (ImportError, OSError, SyntaxError, ValueError) as problem:
    sys.exit(
        "error: the files beside install.py cannot be used: %s\n"
        "hint: fetch install.py, ctx_hooks.py and hooks.json again" % problem
    )


class Unusable(kit.UserError):
    """Settings that cannot be edited: a reason to leave out their agent."""


# =============================================================================
# JSON text
# =============================================================================
# Edits a JSON text item by item and leaves every other byte as it is. What is put
# in follows the text's own line ends and indent. Comments stay. A place is the path
# to an item, by keys and indexes: ["hooks", "Stop", 0].

BLANKS = " \t\n\r\ufeff"
NO_BLANK = re.compile("[^%s,:]" % BLANKS)
GAP_COMMA = r"(?s)\A((?:\s|//[^\n]*\n|/\*.*?\*/)*),"
Place = List["int | str"]
Item = NamedTuple(
    "Item",
    [
        ("key", object),
        ("gap", int),  # where the item before it ends
        ("start", int),
        ("at", int),  # where its value begins
        ("end", int),
        ("next", int),  # where the next item begins, or the closing bracket is
    ],
)


def refuse_constant(name):
    # type: (str) -> None
    raise ValueError(name + " is not JSON")


# float, for an int may not have too many digits. Numbers are never written back.
DECODER = json.JSONDecoder(parse_int=float, parse_constant=refuse_constant)


class JsonText:
    """A text and its twin: strict JSON in which each value is at the same offset."""

    def __init__(self, source):
        # type: (str) -> None
        self.source = source
        self.plain = kit.plain_json(source)
        self.is_one_line = ":" in source and "\n" not in source.strip()
        self.line_end = "\r\n" if "\r\n" in source else "\n"
        indent = re.search("\n([ \t]+)[^ \t\r\n]", self.plain)
        self.unit = indent.group(1) if indent else "  "

    def replace(self, start, end, text):
        # type: (int, int, str) -> None
        self.source = self.source[:start] + text + self.source[end:]
        self.plain = kit.plain_json(self.source)

    def skip_blanks(self, at):
        # type: (int) -> int
        """Where the next key, value or closing bracket is."""
        found = NO_BLANK.search(self.plain, at)
        return found.start() if found else at

    def read(self, at):
        # type: (int) -> tuple[object, int]
        """The value that begins here, and where it ends."""
        value, end = DECODER.raw_decode(self.plain, at)
        return value, end

    def value(self, place):
        # type: (Place) -> object
        """The value at a place; None if there is none."""
        return look_up(self.read(self.skip_blanks(0))[0], place)

    def rows(self, place):
        # type: (Place) -> list[object]
        """The list at a place; an empty one if there is none."""
        value = self.value(place)
        return value if isinstance(value, list) else []

    def items(self, at):
        # type: (int) -> list[Item]
        """The items of the object or array that begins here."""
        found = []  # type: list[Item]
        end = at + 1
        start = self.skip_blanks(end)
        while self.plain[start] not in "}]":
            gap = end
            key = len(found)  # type: object
            begin = start
            if self.plain[at] == "{":
                key, begin = self.read(start)
                begin = self.skip_blanks(begin)
            end = self.read(begin)[1]
            following = self.skip_blanks(end)
            found.append(Item(key, gap, start, begin, end, following))
            start = following
        return found

    def find(self, place):
        # type: (Place) -> int
        """Where the value at a place begins. Of a repeated key the last one counts."""
        at = self.skip_blanks(0)
        for key in place:
            at = {item.key: item.at for item in self.items(at)}[key]
        return at

    def put(self, place, value):
        # type: (Place, object) -> None
        """Set the value at a place; make the objects and lists around it."""
        outer, key = place[:-1], place[-1]
        if self.value(outer) is None:
            self.put(outer, wrap(key, value))
        elif self.value(place) is None:
            self.append(self.find(outer), key, value)
        elif self.value(place) != value:
            self.write(self.find(place), value)

    def write(self, at, value):
        # type: (int, object) -> None
        """Replace the value that begins here."""
        end = self.read(at)[1]
        self.replace(at, end, self.render(value, "\n" + self.indent_at(at)))

    def append(self, at, key, value):
        # type: (int, int | str, object) -> None
        """Add an item at the end of the object or array that begins here."""
        items = self.items(at)
        close = self.read(at)[1] - 1
        if not self.source[at + 1 : close].strip(BLANKS):
            self.write(at, wrap(key, value))
            return
        gap = " "
        if "\n" in self.source[at:close]:
            gap = self.line_end + self.indent_at(at) + self.unit
        name = json.dumps(key) + ": " if isinstance(key, str) else ""
        new = gap + name + self.render(value, gap)
        last = items[-1].end if items else at + 1
        after = self.source[last:close]
        comments = after.rstrip(BLANKS)  # and maybe a comma
        blanks = after[len(comments) :]
        if without_comma(comments) != comments:
            new += ","
        elif items:
            comments = "," + comments
        self.replace(last, close, comments + new + blanks)

    def remove(self, place):
        # type: (Place) -> None
        """Remove an item, and what is then empty, without even a comment."""
        outer = place[:-1]
        items = self.items(self.find(outer))
        item = {item.key: item for item in items}[place[-1]]
        before = self.source[item.gap : item.start]
        gap = close_gap(before, self.source[item.end : item.next])
        if len(items) == 1 and not gap.strip(BLANKS):
            if outer:
                self.remove(outer)
                return
            gap = ""
        self.replace(item.gap, item.next, gap)

    def render(self, value, before):
        # type: (object, str) -> str
        """The value in the style of this text: in one line, as its neighbours are,
        or in lines that are indented like the blanks before it."""
        if self.is_one_line or "\n" not in before:
            return json.dumps(value)
        text = json.dumps(value, indent=self.unit)
        return text.replace("\n", self.line_end + before.rpartition("\n")[2])

    def indent_at(self, position):
        # type: (int) -> str
        """The blanks at the beginning of the line that holds this position."""
        line = self.source[:position].rpartition("\n")[2]
        return re.sub(r"(?s)[^ \t].*", "", line)


def look_up(value, place, default=None):
    # type: (object, Place, object) -> object
    """The value at a place; the default if there is none."""
    for key in place:
        try:
            value = value[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return default
    return value


def wrap(key, value):
    # type: (int | str, object) -> object
    """The object or list that holds nothing but this item."""
    return {key: value} if isinstance(key, str) else [value]


def without_comma(gap):
    # type: (str) -> str
    return re.sub(GAP_COMMA, r"\1", gap)


def close_gap(before, after):
    # type: (str, str) -> str
    """What is left of the two gaps around a removed item: the comments."""
    rest = without_comma(after)
    if rest == after:  # it was the last one
        before = without_comma(before)
    has_comment = without_comma(before).strip(BLANKS)
    if has_comment and not re.match("[ \t]*\r?\n", rest):
        return before + rest.lstrip(BLANKS)
    return before.rstrip(BLANKS) + rest


# =============================================================================
# Our entries
# =============================================================================
# An entry is ours if its command runs the kit. That needs no mark and no record, so
# any clone can take it out.

OUR_RULE = re.compile(r"Edit\(.*/handoffs/\*\*\)")
STATUS_LINE = ["statusLine"]  # type: Place
RULES = ["permissions", "allow"]  # type: Place


def parse_settings(data, agent):
    # type: (bytes | None, str) -> tuple[str, str]
    """The text of some settings, and why they cannot be edited safely, if so."""
    dialect = kit.DIALECTS[agent]
    try:
        source = (data or b"").decode()
        if not source.strip(BLANKS):
            source = "{}\n"
        value = decode(source, dialect.takes_comments)
    except ValueError as error:
        return "", str(error)
    except RecursionError:
        return "", "nested too deeply"
    return source, find_wrong_shape(value, list(HOOKS) + list(dialect.renamed.values()))


def decode(source, takes_comments=True):
    # type: (str, bool) -> kit.Json
    """The object in a JSON text; ValueError if there is none."""
    plain = kit.plain_json(source) if takes_comments else source
    value = DECODER.decode(plain.lstrip("\ufeff"))
    if not isinstance(value, dict):
        raise ValueError("the whole must be an object")
    return value


def find_wrong_shape(value, events):
    # type: (kit.Json, list[str]) -> str
    """What in these settings has no room for our entries; "" if all has."""
    for name in ("hooks", "statusLine", "permissions"):
        if not isinstance(value.get(name, {}), dict):
            return name + " must be an object"
    lists = [["hooks", event] for event in events]  # type: list[Place]
    for place in [RULES] + lists:
        if not isinstance(look_up(value, place, []), list):
            return "%s must be an array" % place[-1]
    return ""


def merge_hooks(text, wanted):
    # type: (JsonText, dict[str, kit.Json]) -> None
    """Make our hooks exactly those of `wanted`, {event: group}; {}: none."""
    missing = dict(wanted)
    for line in reversed(kit.find_lines(text.value([]))):
        hooks = ["hooks", line.event, line.index, "hooks"]  # type: Place
        entry = hooks + [line.position]
        if line.event in missing:  # in its place; keys that a person added stay
            ours = kit.blocks_of(missing.pop(line.event)["hooks"])[0]
            for key in ours:
                text.put(entry + [key], ours[key])
        else:
            is_alone = text.value(hooks + [1]) is None
            text.remove(hooks[:-1] if is_alone else entry)
    for event, group in missing.items():
        place = ["hooks", event]  # type: Place
        text.put(place + [len(text.rows(place))], group)


def strip_settings(text):
    # type: (JsonText) -> None
    """Take out all that is ours: hooks, status line, rule."""
    has_status = has_our_status(text)
    if not has_status and not kit.find_lines(text.value([])):
        return  # a rule in it is the person's
    merge_hooks(text, {})
    if has_status:
        text.remove(STATUS_LINE)
    for index, rule in reversed(list(enumerate(text.rows(RULES)))):
        if OUR_RULE.match(str(rule)):
            text.remove(RULES + [index])


def has_our_status(text):
    # type: (JsonText) -> bool
    line = kit.parse_line(text.value(["statusLine", "command"]))
    return line is not None and line.mode == "statusline"


# =============================================================================
# Job
# =============================================================================

AGENTS = list(kit.DIALECTS)
SHARED, LOCAL = kit.CLAUDE_SETTINGS
CODEX = kit.DIALECTS["codex"].settings


class Job:
    """One run: where it works, what was asked for, and what it will change."""

    def __init__(self, project, options, env):
        # type: (str, argparse.Namespace, kit.Env) -> None
        self.options = options
        self.env = env
        self.is_user = options.scope == "user"
        self.is_local = options.scope == "local"
        self.project = project
        self.root = kit.home_folder(env) if self.is_user else project
        self.is_elsewhere = not self.is_user and project != os.getcwd()
        self.base = dirname(self.settings("claude"))
        self.kit = join(self.base, "hooks", KIT)
        self.attributes = join(self.base, "hooks", ".gitattributes")
        self.place = kit.Project(self.root, kit.read_settings(self.root, env), env)
        name = "install-user.json" if self.is_user else "install-project.json"
        self.record_path = self.place.state(name)
        self.record = kit.Installation(kit.read_object(self.record_path))
        self.agents = []  # type: list[str]
        self.left_out = []  # type: list[str] # settings that cannot be edited
        self.changes = []  # type: list[Change]
        self.leftovers = []  # type: list[tuple[str, str]] # below this folder, a file
        self.remarks = []  # type: list[str]

    def settings(self, agent):
        # type: (str) -> str
        """The settings file of an agent in this scope."""
        own, shared = kit.DIALECTS[agent].settings_paths(self.root, self.env)[:2]
        if self.is_local and agent == "claude":
            shared = join(self.root, LOCAL)
        return os.path.abspath(own if self.is_user else shared)

    def folder(self, agent):
        # type: (str) -> str
        """The folder of an agent that holds its settings in this scope."""
        dialect = kit.DIALECTS[agent]
        if self.is_user:
            return dialect.own_folder(self.env)
        return join(self.project, dialect.settings.partition("/")[0])

    def registered(self):
        # type: () -> set[str]
        """The settings files that run the kit of this place."""
        paths = {self.settings(agent) for agent in AGENTS}
        if not self.is_user:
            for name in (SHARED, LOCAL):  # Windows knows a path by two spellings
                paths.add(os.path.normpath(join(self.project, name)))
        return {path for path in paths if has_lines(path)}

    def hooks_for(self, agent):
        # type: (str) -> dict[str, kit.Json]
        """{event: group} for an agent; shared settings hold no path of a machine."""
        word = "" if self.is_user else kit.kit_word(agent)
        if kit.IS_WINDOWS and (self.is_local or not word):
            return kit.adapt_hooks(HOOKS, agent, '"%s"' % self.kit, kit.POWERSHELL_LINE)
        if self.is_user and self.kit == join(self.root, kit.KIT_PLACE):
            word = '"$HOME/%s"' % kit.KIT_PLACE
        return kit.adapt_hooks(HOOKS, agent, word or shlex.quote(self.kit))

    def name(self, path):
        # type: (str) -> str
        """A path for the record."""
        return relpath(path, self.root).replace(os.sep, "/")

    def show(self, path):
        # type: (str) -> str
        """A path for people."""
        return relpath(path, self.project) if is_below(path, self.project) else path

    def guard(self, path):
        # type: (str) -> str
        """The path, links resolved; a UserError if they lead out of the project."""
        real = realpath(path)
        is_ours = is_below(path, self.project) and not self.is_user
        if is_ours and not kit.is_inside(path, self.project):
            raise kit.UserError(
                "%s leads out of the project, to %s" % (self.show(path), real),
                "put a folder or file of the project's own in place of the link",
            )
        return real

    def read(self, path):
        # type: (str) -> bytes | None
        return read_bytes(self.guard(path))

    def change(self, path, new, note=""):
        # type: (str, str | bytes | None, str) -> None
        """Plan that a file gets this text, or these bytes; None: no file."""
        change = Change(self.guard(path), new, note)
        if change.new == change.old:
            return
        if change.old is not None and not os.access(change.path, os.W_OK):
            raise kit.UserError(
                self.show(path) + " is read-only", "make it writable first"
            )
        self.changes.append(change)

    def discard(self, folder, path):
        # type: (str, str) -> None
        """Plan to remove a file of ours below a folder, unless a link leads to it."""
        place = dirname(path)
        names = relpath(place, folder).split(os.sep)
        if lexists(path) and kit.parts_inside(place, folder) == names:
            self.leftovers.append((folder, path))


def has_lines(path):
    # type: (str) -> bool
    return bool(kit.find_lines(kit.read_client_settings(path)))


def is_below(path, folder):
    # type: (str, str) -> bool
    return path.startswith(join(folder, ""))


# =============================================================================
# Files
# =============================================================================
# A job's changes are made in their order, so that a run may be cut short.


class Change:
    """One file: its bytes now and then. None: no file."""

    def __init__(self, path, new, note):
        # type: (str, str | bytes | None, str) -> None
        self.path = path
        self.old = read_bytes(path)
        self.new = new.encode() if isinstance(new, str) else new
        self.note = note
        self.verb = "write" if self.old is None else "change"
        if new is None:
            self.verb = "remove"
            self.note = ""


def read_bytes(path):
    # type: (str) -> bytes | None
    """The whole file; None if there is none. A pipe or a device would never end."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise kit.UserError(
                path + " is not a regular file", "move it out of the way"
            )
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def apply_change(change, job):
    # type: (Change, Job) -> None
    if read_bytes(change.path) != change.old:
        # a client, an editor or another installer wrote it; that must not be lost
        shown = job.show(change.path)
        raise kit.UserError(shown + " was changed during this run", "run this again")
    if change.new is None:
        os.unlink(change.path)
        remove_empty(dirname(change.path), realpath(job.root))
    else:
        os.makedirs(dirname(change.path), exist_ok=True)
        is_kit = change.new == SOURCE
        kit.replace_content(change.path, change.new, 0o755 if is_kit else 0)


def remove_empty(folder, top):
    # type: (str, str) -> None
    """Remove a folder and its parents below `top`, as far as they are empty."""
    while is_below(folder, top):
        kit.remove_folder(folder)
        folder = dirname(folder)


def remove_empty_folders(job):
    # type: (Job) -> None
    """Folders that hooks made and nobody filled; never through a link."""
    context, cache = job.place.context, job.place.cache
    remove_empty(join(cache, "calm"), dirname(cache))
    for names in (("handoffs", "delivered"), ("signals", "sessions")):
        folder = join(context, *names)
        if not job.is_user and realpath(folder) == folder:
            remove_empty(folder, context)


# =============================================================================
# Settings
# =============================================================================
# What the person had is kept in the record. An uninstall gives it back byte for
# byte; if somebody changed the settings since, it takes out exactly our entries.

TRACKED = "git tracks %s, and our line there would hold a path of this machine" % CODEX
NOT_STRICT = (
    "the client ignores settings that are not strict JSON of the right shape; "
    "correct them, then run this again"
)


def save_record(job):
    # type: (Job) -> None
    text = json.dumps(job.record.as_dict(), indent=1)
    os.makedirs(job.place.home, mode=0o700, exist_ok=True)  # prompts are kept there
    kit.replace_content(job.record_path, text.encode(), 0o600)


def read_settings(job, agent):
    # type: (Job, str) -> tuple[str, str | None]
    """An agent's settings, checked, and the text to go back to; None: no file."""
    path = job.settings(agent)
    name = job.name(path)
    data = job.read(path)
    is_exempt = job.is_user or job.options.uninstall
    if name == CODEX and not is_exempt and ask_git(job, "ls-files", CODEX):
        raise Unusable(TRACKED, "use --scope user --agent codex")
    source, problem = parse_settings(data, agent)
    if problem:
        hint = NOT_STRICT if agent == "claude" else "correct that, then run this again"
        raise Unusable("%s: %s" % (job.show(path), problem), hint)
    bare = JsonText(source)
    strip_settings(bare)
    if bare.source == source:  # nothing of ours is in it
        return source, None if data is None else data.decode()
    kept = look_up(job.record.settings, [name])
    original = look_up(kept, ["original"])
    if look_up(kept, ["after"]) != kit.sha256_of(data or b""):
        # no record, or somebody changed them since
        is_empty = original is None and bare.value([]) == {}
        original = None if is_empty else bare.source
    return source, original if isinstance(original, str) else None


def plan_settings(job, agent):
    # type: (Job, str) -> None
    """Bring our entries in an agent's settings up to date."""
    source, original = read_settings(job, agent)
    hooks = job.hooks_for(agent)
    text = JsonText(source)
    merge_hooks(text, hooks)
    if agent == "claude":
        start = kit.blocks_of(hooks["SessionStart"]["hooks"])[0]
        add_status(job, text, str(start["command"]))
        add_rule(job, text)
    path = job.settings(agent)
    job.record.settings[job.name(path)] = {
        "original": original,
        "after": kit.sha256_of(text.source.encode()),
    }
    job.change(path, text.source, " (hooks of %s)" % kit.DIALECTS[agent].label)


def plan_removal(job, agent):
    # type: (Job, str) -> None
    """Give an agent's settings their old bytes back."""
    if names_us(job, agent):
        _, original = read_settings(job, agent)
        job.change(job.settings(agent), original, " (without our hooks)")


def names_us(job, agent):
    # type: (Job, str) -> bool
    """Whether anything in an agent's settings can be ours."""
    return b"ctx_hooks" in (job.read(job.settings(agent)) or b"")


def add_status(job, text, command):
    # type: (Job, JsonText, str) -> None
    """Our status line, if it is wanted and there is no other."""
    command = " statusline".join(command.rsplit(" inject", 1))
    # a status line may not get the variable, but it starts in the project
    command = command.replace("$CLAUDE_PROJECT_DIR", "${CLAUDE_PROJECT_DIR:-.}")
    is_wanted = job.options.statusline and text.value(STATUS_LINE) is None
    if is_wanted or has_our_status(text):
        text.put(STATUS_LINE + ["type"], "command")
        text.put(STATUS_LINE + ["command"], command)


def add_rule(job, text):
    # type: (Job, JsonText) -> None
    """The rule that lets the agent write handoffs, if it is wanted."""
    # `/` is the folder of these settings; the user's own are for all folders
    start = "**" if job.is_user else ""
    rule = "Edit(%s/%s/handoffs/**)" % (start, job.place.settings.text("context_dir"))
    rules = text.rows(RULES)
    if job.options.allow_handoff and rule not in rules:
        text.put(RULES + [len(rules)], rule)


# =============================================================================
# Install
# =============================================================================

ATTRIBUTES = "ctx_hooks.py text eol=lf linguist-vendored\n"
OUR_ATTRIBUTES = r"\s*ctx_hooks\.py text eol=lf( linguist-vendored)?\s*"
TEMPLATES = {
    "TASKS.md": "# Tasks\n\n<!-- What is being worked on, the most important first. "
    "Delete what is done. -->\n",
    "DECISIONS.md": "# Decisions\n\n<!-- What was decided and why, the newest first, "
    "so that nobody argues it again. -->\n",
}


def plan_install(job):
    # type: (Job) -> None
    plan_kit(job)
    if not lexists(job.attributes):
        job.change(job.attributes, ATTRIBUTES)
    wanted = [job.settings(agent) for agent in job.agents]
    plan_exclude(job, job.registered().union(wanted))
    for agent in job.agents:
        plan_settings(job, agent)
    if "claude" in job.agents:
        for agent in riders(job):
            plan_removal(job, agent)
    if not job.options.no_context and not job.is_user:
        plan_context(job)


# Why the file in the kit's place is not replaced, or kept as a copy.
CHANGED = "somebody changed it"
FOREIGN = "it is another's file"


def plan_kit(job):
    # type: (Job) -> None
    """Write the kit, unless it is there."""
    old = job.read(job.kit)
    problem, version = judge_kit(old, job)
    if problem == FOREIGN:
        raise kit.UserError(
            job.show(job.kit) + " is another's file", "move it away first"
        )
    is_newer = numbers_of(version) > numbers_of(kit.VERSION)
    if is_newer and not job.options.force:
        raise kit.UserError(
            "%s is %s, and this is %s" % (job.show(job.kit), version, kit.VERSION),
            "fetch ctx_hooks anew; or use --force to go back",
        )
    if problem:
        name = "%s.%s" % (KIT, kit.sha256_of(old or b"")[:8])
        job.change(job.place.state(name), old, " (a copy of the kit that was here)")
    is_known = kit.sha256_of(old or b"") in job.record.kits
    was = describe_kit(version, is_known)
    job.change(job.kit, SOURCE, " (%s%s)" % (kit.VERSION, was))
    digest = kit.sha256_of(SOURCE)
    if digest not in job.record.kits:
        job.record.kits.append(digest)
    job.record.version = kit.VERSION
    job.record.source = HERE


def judge_kit(data, job):
    # type: (bytes | None, Job) -> tuple[str, str]
    """Why the file in the kit's place is kept, and its version if it is a kit."""
    if data is None:
        return "", ""
    version = kit.kit_version(data)
    is_cut = SOURCE.startswith(data.rstrip())
    if is_cut or without_layout(data) == without_layout(SOURCE):
        return "", version or kit.CUT
    if kit.sha256_of(data) in job.record.kits:
        return "", version
    return CHANGED if version else FOREIGN, version


def without_layout(data):
    # type: (bytes) -> bytes
    """What formatters leave of a text: no blanks, quotes, commas, brackets or BOM."""
    return re.sub(b"[\\s'\"(),\\\\]|\xef\xbb\xbf", b"", data)


def numbers_of(version):
    # type: (str) -> list[int]
    return [int(digits) for digits in re.findall(r"\d+", version)]


def describe_kit(version, is_known):
    # type: (str, bool) -> str
    """What was in the kit's place, as words behind the new version. A kit that we
    wrote and nobody changed is known."""
    if is_known and version == kit.VERSION:
        return ", was an earlier build of it"
    if version in (kit.VERSION, kit.CUT):
        return "; " + kit.CHANGED % "it"
    return ", was " + version if version else ""


def has_our_attributes(job):
    # type: (Job) -> bool
    """Whether .gitattributes beside the kit is ours, in any layout."""
    return bool(re.fullmatch(OUR_ATTRIBUTES, kit.read_text(job.attributes)))


def plan_context(job):
    # type: (Job) -> None
    """A context folder, unless there is one, here or above. Its files say nothing
    until somebody writes into them."""
    if kit.find_project(job.project, job.env) is None:
        for name, text in TEMPLATES.items():
            job.change(job.place.path(name), text)


# =============================================================================
# Uninstall
# =============================================================================
# Settings first: while they name the kit, it is there. Only files that we write
# are removed, each by its name; a folder only when it is empty then.


def plan_uninstall(job):
    # type: (Job) -> None
    for agent in job.agents:
        plan_removal(job, agent)
    gone = {job.settings(agent) for agent in job.agents}
    others = job.registered().union(job.left_out) - gone
    plan_exclude(job, others)
    if others:
        shown = ", ".join(sorted(map(job.show, others)))
        job.remarks.append("kept %s: used by %s" % (job.show(job.kit), shown))
        return
    plan_kit_removal(job)
    if has_our_attributes(job):
        job.change(job.attributes, None)
    if not job.is_user:
        plan_sections(job)
        plan_runtime(job)
    plan_state(job)


def discard_all(job, top, folder, pattern):
    # type: (Job, str, str, str) -> None
    """Plan that the files below a folder go whose relative path is such a one."""
    for place, _, names in os.walk(folder):
        for path in [join(place, name) for name in names]:
            if re.fullmatch(pattern, relpath(path, folder).replace(os.sep, "/")):
                job.discard(top, path)


def plan_sections(job):
    # type: (Job) -> None
    """The startup context that the kit put into an instruction file."""
    for name in kit.INSTRUCTION_FILES:
        path = join(job.project, name)
        data = read_bytes(path) or b""
        bare = kit.without_section(data)
        if bare != data:
            job.change(path, bare or None, " (without our section)")


def plan_kit_removal(job):
    # type: (Job) -> None
    problem, _ = judge_kit(job.read(job.kit), job)
    if realpath(job.kit) == join(HERE, KIT):
        job.remarks.append("kept %s: it is beside install.py" % job.kit)
    elif problem:
        job.remarks.append("kept %s: %s" % (job.kit, problem))
    else:
        job.change(job.kit, None)


def plan_runtime(job):
    # type: (Job) -> None
    """What hooks wrote into the project, and context files that say nothing yet."""
    place, top = job.place, job.project
    for session in kit.all_sessions(place):
        marker = kit.marker_path(session.id, job.env)
        job.discard(dirname(marker), marker)
    caw = join(top, ".caw")
    discard_all(job, top, caw, kit.WORKFLOW_FILES)
    discard_all(job, top, place.context, kit.RUNTIME_FILES)
    texts = {place.path(name): text for name, text in TEMPLATES.items()}
    texts[join(caw, ".gitignore")] = kit.WORKFLOW_IGNORE
    if not any(names for _, _, names in os.walk(place.path("handoffs"))):
        texts[place.path(".gitignore")] = kit.GITIGNORE
    for path, text in texts.items():
        # without blanks: a formatter may have changed them
        if kit.read_text(path).split() == text.split():
            job.discard(top, path)


def plan_state(job):
    # type: (Job) -> None
    """Our files in the home: this project's; with the last project also the cache."""
    home, cache = job.place.home, job.place.cache
    if job.is_user or job.options.keep_state:
        job.discard(dirname(kit.state_folder(job.env)), job.record_path)
        return
    discard_all(job, dirname(kit.state_folder(job.env)), home, kit.STATE_FILES)
    others = set(kit.list_names(dirname(home)))
    if not others - {os.path.basename(home), "cache"}:
        discard_all(job, dirname(cache), cache, kit.CACHE_FILES)


# =============================================================================
# Git
# =============================================================================
# A private file stays out of git by .git/info/exclude, so that no ignore list of
# the project changes. Git itself says where that file is.

KIT_FILES = {
    ".claude/hooks/ctx_hooks.py",
    ".claude/hooks/.gitattributes",
}


GIT_LIMIT_S = 20


def ask_git(job, *words):
    # type: (Job, str) -> str
    """What git prints; "" if it fails, or there is none."""
    return kit.run_git(job.project, list(words), GIT_LIMIT_S).rstrip("\n")


def private_files(job, registered):
    # type: (Job, set[str]) -> list[str]
    """The files that are for this machine only, if these settings run the kit."""
    names = {job.name(path) for path in registered}
    private = names & {CODEX, LOCAL}
    ours = []  # type: list[str] # in the context folder
    if LOCAL in names and names == private:
        private |= KIT_FILES
        ours += TEMPLATES
    if names and has_own_ignore(job):
        ours += kit.RUNTIME_NAMES
    private.update(job.name(job.place.path(name)) for name in ours)
    return sorted(private)


def has_own_ignore(job):
    # type: (Job) -> bool
    """Whether the context folder has a .gitignore that does not name our files."""
    path = job.place.path(".gitignore")
    return lexists(path) and "/handoffs/" not in kit.read_text(path)


def plan_exclude(job, registered):
    # type: (Job, set[str]) -> None
    """Bring our lines at the top of git's exclude list up to date."""
    told = ask_git(job, "rev-parse", "--show-prefix", "--git-path", "info/exclude")
    folder, _, place = told.rpartition("\n")
    if not place or job.is_user:
        return
    path = join(job.project, place)
    if islink(path) or islink(dirname(path)):
        # it leads to a file of somebody's, and we would write into that
        job.remarks.append("left %s alone: it is a link" % job.show(path))
        return
    path = realpath(path)
    prefix = "/" + re.sub(r"[\s*?\[\\]", "?", folder)  # a pattern; ? is any letter
    head = "# private files of ctx_hooks in %s\n" % prefix
    end = "# end of ctx_hooks\n"
    old = os.fsdecode(read_bytes(path) or b"")
    new = re.sub("(?s)%s.*?%s" % (re.escape(head), end), "", old)
    lines = [prefix + name + "\n" for name in private_files(job, registered)]
    if lines:
        new = head + "".join(lines) + end + new
    if new != old:
        job.change(path, os.fsencode(new) or None, " (private files stay out of git)")


# =============================================================================
# What is said
# =============================================================================
# A first install reads like a short letter: what was written, what it means, what
# to do next, how to undo it. A later one says only what is new.

SMALL_BYTES = 2000
DONE = {"write": "wrote", "change": "changed", "remove": "removed"}
MEANING = {
    "project": "The hooks are on in %s.\n"
    "The files are for everybody: commit them, and your team gets the hooks with "
    "a pull.",
    "local": "The hooks are on for you alone, in %s; git stages nothing of this.",
    "user": "The hooks are on for you, in every project with a .context folder.\n"
    "next: mkdir .context in a project of yours",
}
GREETS = {"claude", "codex", "gemini"}  # the others show no line of a hook
NOT_SHARED = (
    "note: git ignores %s here, so your team gets nothing of this;\n"
    "      to share it, take that out of .gitignore"
)


def say(text):
    # type: (str) -> None
    kit.print_page(text.split("\n"))


def tell(change, job, verb):
    # type: (Change, Job, str) -> str
    """What is done to a file, as a line."""
    return "%s %s%s" % (verb, job.show(change.path), change.note)


def show_plan(job):
    # type: (Job) -> None
    """A dry run: the settings' diff first, then the other files in a line each."""
    for change in sorted(job.changes, key=is_other):
        say(tell(change, job, "would " + change.verb))
        is_small = len(change.new or b"") < SMALL_BYTES
        if not is_other(change) or (job.options.verbose and is_small):
            say("\n".join(format_diff(change)))
    for name in name_leftovers(job):
        say("would remove " + name)


def name_leftovers(job):
    # type: (Job) -> list[str]
    """What hooks wrote, for people; outside of the project a folder is enough."""
    names = []
    for _, path in job.leftovers:
        is_here = is_below(path, job.project)
        names.append(job.show(path) if is_here else "our files in " + dirname(path))
    return list(dict.fromkeys(names))


def is_other(change):
    # type: (Change) -> bool
    return not change.path.endswith(".json")


def format_diff(change):
    # type: (Change) -> list[str]
    old, new = [
        (data or b"").decode("utf-8", "replace").splitlines()
        for data in (change.old, change.new)
    ]
    return list(difflib.unified_diff(old, new, lineterm=""))[2:]  # without the names


def explain(job):
    # type: (Job) -> None
    """What a first install means, what to do next, how to undo it."""
    meaning = MEANING[job.options.scope]
    say("\n" + (meaning if job.is_user else meaning % job.project))
    if job.options.scope == "project":
        ignored = ask_git(job, "check-ignore", SHARED, kit.KIT_PLACE)
        if ignored:
            say(NOT_SHARED % ignored.replace("\n", ", "))
    start = start_folder(job)
    if start != os.getcwd():
        say("next: cd " + shlex.quote(start))
    if any(change.path.endswith("TASKS.md") for change in job.changes):
        say("next: write into .context/TASKS.md what is being worked on")
    explain_start(job)
    offer_others(job)
    say("to see what the hooks do: " + kit.program_call(job.kit, "status", start))
    say("to undo all of it: " + own_call(job, "--uninstall"))


def explain_start(job):
    # type: (Job) -> None
    shown = "; it shows `ctx: hooks are on`" if GREETS.issuperset(job.agents) else ""
    say("next: start %s%s" % (" or ".join(labels_of(job.agents)), shown))
    if job.agents != ["claude"]:
        say("      where it asks, trust the folder and the hooks")


def offer_others(job):
    # type: (Job) -> None
    """Name the agents that the person has, too, by their folders in the home."""
    known = set(job.agents).union(riders(job) if "claude" in job.agents else [])
    found = [name for name in AGENTS if isdir(kit.DIALECTS[name].own_folder(job.env))]
    others = [name for name in found if name not in known]
    if others and not job.is_local and not job.options.agent:
        option = " ".join("--agent " + name for name in others)
        say("for %s, too: %s" % (", ".join(labels_of(others)), own_call(job, option)))


def labels_of(agents):
    # type: (list[str]) -> list[str]
    return [kit.DIALECTS[agent].label for agent in agents]


def own_call(job, option=""):
    # type: (Job, str) -> str
    """The call of install.py that is about the same place."""
    if job.options.scope != "project":
        option = "--scope %s %s" % (job.options.scope, option)
    if job.is_elsewhere:
        option = shlex.quote(job.project) + " " + option
    return kit.program_call(join(HERE, "install.py"), option.strip(), os.getcwd())


def start_folder(job):
    # type: (Job) -> str
    """The folder in which the person starts an agent: this one, or the project."""
    current = os.getcwd()
    return current if job.is_user or is_below(current, job.project) else job.project


def report(job):
    # type: (Job) -> bool
    """Say what is wrong, as `doctor` does; True if it keeps the hooks silent."""
    here = kit.Here(start_folder(job), job.env, job.kit)
    rows = kit.diagnose(here)
    for row in rows:
        if row[0] in (kit.WARN, kit.FAIL):
            say("%s: %s\n      %s" % row)
    return any(kit.FAIL in row for row in rows)


# =============================================================================
# Command line
# =============================================================================

NOT_INSTALLED = 3
NOT_CURRENT = 4
PROBE = "import sys; print(sys.executable); sys.exit(sys.version_info < (3, 8))"
USAGE = """
project=                    its folder; default: the nearest with .git or .claude
--agent...%s|all            repeatable; default: claude, and those with a folder here
--scope=project|local|user  shared through git, yours here, or yours everywhere
--python=                   path of the Python that the hooks are to use
--no-context                make no .context with TASKS.md and DECISIONS.md
--allow-handoff             let the agent write handoffs without asking (one rule)
--statusline                show the fullness in the status line, if you have none
--dry-run                   show what would change; write nothing
--verbose                   with --dry-run: also the text of small files
--check                     exit 0: the hooks speak, 3: not installed, 4: old or silent
--uninstall                 take out what was installed; what you wrote stays
--keep-state                with --uninstall: leave this project's state in your home
--force                     replace a newer ctx_hooks.py by this one
"""


def parse_arguments(argv):
    # type: (list[str] | None) -> argparse.Namespace
    parser = argparse.ArgumentParser(
        prog="install.py",
        description="Install ctx_hooks into a project, or take it out again.",
        epilog="example: python3 install.py ~/src/app",
    )
    kit.add_arguments(parser, USAGE % "|".join(AGENTS))
    return parser.parse_args(argv)


def main(argv=None):
    # type: (list[str] | None) -> int
    hint = "correct that, then run this again: it goes on where it was"
    return kit.run_guarded(lambda: run(parse_arguments(argv)), hint)


def run(options):
    # type: (argparse.Namespace) -> int
    job = find_job(options, dict(os.environ))
    job.agents = choose_agents(job)
    if options.check:
        return check(job)
    if options.uninstall:
        plan_uninstall(job)
    else:
        plan_install(job)
    if job.is_elsewhere:
        say("project: " + job.project)
    if options.dry_run:
        rehearse(job)
    elif options.uninstall:
        remove_empty_folders(job)
        carry_out(job)
        remove_empty(dirname(job.kit), job.root)
        say_what_is_left(job)
    else:
        install(job)
    for remark in job.remarks:
        say(remark)
    return 0


def check(job):
    # type: (Job) -> int
    """Say whether it is installed and current, and whether the hooks would speak."""
    if not job.registered():
        say("not installed: no hook of ctx_hooks in " + job.root)
        return NOT_INSTALLED
    plan_install(job)
    for remark in job.remarks:
        say(remark)
    if job.changes:
        say("not current: `%s` would change this" % own_call(job))
        show_plan(job)
        return NOT_CURRENT
    if report(job):
        return NOT_CURRENT
    say("ok: ctx_hooks %s is installed, current, and speaks" % kit.VERSION)
    return 0


def rehearse(job):
    # type: (Job) -> None
    show_plan(job)
    if not job.options.uninstall and not job.registered():
        say("\nthe install would end with:")
        explain(job)
    say("nothing was written: this was a dry run")


def install(job):
    # type: (Job) -> None
    is_first = not job.registered()
    if job.options.python:
        link_python(job, job.options.python)
    if job.changes:
        save_record(job)
    carry_out(job)
    if not job.changes:
        say("nothing to change: ctx_hooks %s is installed" % kit.VERSION)
    if report(job):
        say("the hooks stay silent until that is mended")
    elif is_first:
        explain(job)
    elif job.changes and job.options.agent:
        explain_start(job)


def carry_out(job):
    # type: (Job) -> None
    for change in job.changes:
        apply_change(change, job)
        say(tell(change, job, DONE[change.verb]))
    for folder, path in job.leftovers:
        os.unlink(path)
        remove_empty(dirname(path), folder)
    for name in name_leftovers(job):
        say("removed " + name)


def say_what_is_left(job):
    # type: (Job) -> None
    if not job.changes and not job.leftovers:
        say("nothing of ctx_hooks is here")
    elif isdir(job.place.context) and not job.is_user:
        say("kept %s: what is in it is yours" % job.show(job.place.context))


def link_python(job, python):
    # type: (Job, str) -> None
    """Let the launcher start this interpreter: a link in the user's cache."""
    code, out = kit.run_program([python, "-I", "-S", "-c", PROBE])
    if code != 0:
        raise kit.UserError(python + " is not Python 3.8 or newer", "name one that is")
    link = join(job.place.cache, "python3")
    os.makedirs(job.place.cache, exist_ok=True)
    kit.remove_file(link)
    os.symlink(out.strip(), link)
    say("linked %s to %s" % (link, out.strip()))


def find_job(options, env):
    # type: (argparse.Namespace, kit.Env) -> Job
    """The place of this run; a UserError if it is not one to install into."""
    if not kit.home_folder(env):
        raise kit.UserError(kit.NO_HOME, "set HOME to the full path of your home")
    own = realpath(kit.DIALECTS["claude"].own_folder(env))
    project = realpath(options.project or find_project(os.getcwd(), own))
    if not isdir(project):
        raise kit.UserError(project + " is not a folder", "name the project's folder")
    job = Job(project, options, env)
    if job.is_user:
        return job
    if realpath(job.base) == own:
        raise kit.UserError(
            job.base + " is your own", "use --scope user, or name a project"
        )
    is_kits = project == HERE and isdir(join(HERE, ".claude-plugin"))
    if is_kits and not options.project:
        raise kit.UserError(
            "this is the kit's own folder", "run this in your project, or name that"
        )
    return job


def find_project(start, own):
    # type: (str, str) -> str
    """The nearest folder with .git or .claude, but not the user's own; else start."""
    for folder in kit.upwards(start):
        claude = join(folder, ".claude")
        has_settings = isdir(claude) and realpath(claude) != own
        if has_settings or lexists(join(folder, ".git")):
            return folder
    return start


def choose_agents(job):
    # type: (Job) -> list[str]
    """Those asked for; else Claude Code, and those whose folder is there."""
    asked = job.options.agent
    names = [name for name in AGENTS if name in asked or "all" in asked]
    if job.is_local:
        if names not in ([], ["claude"]):
            raise kit.UserError(
                "only Claude Code has private settings", "use --scope user"
            )
        names = ["claude"]
    if job.options.uninstall:
        names = [name for name in names or AGENTS if names_us(job, name)]
    elif not names:
        names = [name for name in AGENTS if name == "claude" or isdir(job.folder(name))]
    is_ridden = "claude" in names or has_lines(job.settings("claude"))
    if is_ridden and not job.options.uninstall:
        names = [name for name in names if name not in riders(job)]  # never twice
    return leave_out(job, names)


def riders(job):
    # type: (Job) -> list[str]
    """The agents that run Claude Code's settings, too: Copilot and Grok."""
    scope = "user" if job.is_user else "project"
    return [name for name in AGENTS if scope in kit.DIALECTS[name].runs_claudes]


def leave_out(job, names):
    # type: (Job, list[str]) -> list[str]
    """The names without those whose settings cannot be edited; a UserError if such a
    one was asked for, or is the only one."""
    usable = []
    for name in names:
        try:
            read_settings(job, name)
            usable.append(name)
        except Unusable as problem:
            if names == [name] or name in job.options.agent:
                raise
            label = kit.DIALECTS[name].label
            job.remarks.append("left out %s: %s" % (label, problem.args[0]))
            job.left_out.append(job.settings(name))
    return usable


if __name__ == "__main__":
    sys.exit(main())
