#!/usr/bin/env python3
"""Put ctx_hooks into the settings of a project's coding agents, or take it out.

    python3 install.py                install into the project around this folder
    python3 install.py --dry-run      show what would change; write nothing
    python3 install.py --check        is it installed, current, and does it run?
    python3 install.py --uninstall    take it out; settings get their old bytes back

What it writes (BASE is PROJECT/.claude, or ~/.claude with --scope user):

    BASE/hooks/ctx_hooks.py           the kit, a copy of the file beside this one
    BASE/hooks/.gitattributes         so that git never gives the kit CRLF
    BASE/settings.json                our hooks (settings.local.json: --scope local)
    .codex/hooks.json, .gemini/ …     the same for other agents, see --agent
    .git/info/exclude                 names of files that are private to this machine
    .context/TASKS.md, DECISIONS.md   with --init, if they are not there
    ~/.local/state/ctx_hooks/         what --uninstall has to know
    ~/.cache/ctx_hooks/python3        with --python: a link to the interpreter

It follows no link out of the project, uses no network and asks nothing.
Everything is read and checked before the first write. A run that is cut short
can be repeated or undone.

Exit codes: 0 done, or --check: installed and current. 1 error. 2 usage.
--check only: 3 not installed, 4 installed but not current or not running.

Contents: kit; JSON text; our entries; job; files; settings; install; uninstall;
git; checks; command line.
"""

import sys

if sys.version_info < (3, 8):
    sys.exit(
        "error: ctx_hooks needs Python 3.8 or newer, this is %d.%d\n"
        "hint: run install.py with a newer one, for example python3.12 install.py"
        % tuple(sys.version_info[:2])
    )

import argparse
import difflib
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections import namedtuple
from os.path import abspath, dirname, isdir, join, lexists, realpath, relpath

# =============================================================================
# Kit
# =============================================================================
# The file that is installed is also imported: it knows the agents, and it makes
# and recognises the lines in their settings.

HERE = dirname(realpath(__file__))
KIT = "ctx_hooks.py"
IS_WINDOWS = os.name == "nt"
RELEASES = {  # sha256 of older releases
    "9159bd4a88abd33627c7241853ebb886cddea6d92802f6a8c6eae8f6d07185db": "0.2.0",
}


class Refused(Exception):
    """A reason to stop: what is wrong, and what to do about it."""


def load_kit():
    """The kit beside this file, as a module. No bytecode is written."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("ctx_hooks", join(HERE, KIT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def read_beside(name):
    with open(join(HERE, name), "rb") as file:
        return file.read().replace(b"\r\n", b"\n")


try:
    kit = load_kit()
    SOURCE = read_beside(KIT)
    HOOKS = json.loads(read_beside("hooks.json").decode("utf-8"))["hooks"]
except (OSError, SyntaxError, ValueError) as problem:
    sys.exit(
        "error: the files beside install.py cannot be used: %s\n"
        "hint: fetch install.py, ctx_hooks.py and hooks.json again" % problem
    )

# =============================================================================
# JSON text
# =============================================================================
# Edits a JSON text and leaves every other byte as it is. What is put in follows
# the text's own line ends and indent. A path is a list of keys and indexes.

BLANKS = re.compile("[ \t\n\r]*")
Item = namedtuple("Item", "key start at end")  # where key and value begin and end


def refuse_constant(name):
    raise ValueError(name + " is not JSON")


# float: no limit of digits. Numbers are only compared, never written back.
DECODER = json.JSONDecoder(parse_int=float, parse_constant=refuse_constant)


def skip_blanks(source, at):
    return BLANKS.match(source, at).end()


def list_items(source, at):
    """The items of the object or array that begins at source[at]."""
    items = []
    position = skip_blanks(source, at + 1)
    while source[position] not in "}]":
        key, start = len(items), position
        if source[at] == "{":
            key, position = DECODER.raw_decode(source, position)
            colon = skip_blanks(source, position)
            position = skip_blanks(source, colon + 1)
        _, end = DECODER.raw_decode(source, position)
        items.append(Item(key, start, position, end))
        position = skip_blanks(source, end)
        if source[position] == ",":
            position = skip_blanks(source, position + 1)
    return items


def find_item(source, path):
    """The Item at a path, or None. Of a repeated key the last one counts."""
    start = skip_blanks(source, 0)
    _, end = DECODER.raw_decode(source, start)
    found = Item(None, start, start, end)
    for step in path:
        items = list_items(source, found.at)
        same = [item for item in items if item.key == step]
        if not same:
            return None
        found = same[-1]
    return found


def get_value(source, path):
    """The value at a path, or None."""
    item = find_item(source, path)
    if item is None:
        return None
    value, _ = DECODER.raw_decode(source, item.at)
    return value


def set_value(source, path, value):
    """The text with a value replaced, or appended to its container."""
    item = find_item(source, path)
    if item is None:
        return append_value(source, path, value)
    text = render(source, value, indent_at(source, item.start))
    return source[: item.at] + text + source[item.end :]


def append_value(source, path, value):
    """The text with a value appended to its container, which is made if need be."""
    *outer_path, key = path
    is_index = isinstance(key, int)
    outer = find_item(source, outer_path)
    if outer is None:
        return append_value(source, outer_path, [value] if is_index else {key: value})
    name = "" if is_index else json.dumps(key) + ": "
    line_end, unit = style_of(source)
    items = list_items(source, outer.at)
    if items:
        start = end = items[-1].end
        indent = indent_at(source, items[-1].start)
        is_spread = "\n" in source[outer.at : items[0].start]
        before, after = ("," + line_end + indent if is_spread else ", "), ""
    else:
        start, end = outer.at + 1, outer.end - 1
        after = line_end + indent_at(source, outer.at)
        before = after + unit
        indent = indent_at(source, outer.at) + unit
    text = before + name + render(source, value, indent) + after
    return source[:start] + text + source[end:]


def remove_value(source, path):
    """The text without a value."""
    item = find_item(source, path)
    outer = find_item(source, path[:-1])
    items = list_items(source, outer.at)
    index = items.index(item)
    start, end = item.start, item.end
    if len(items) == 1:
        start, end = outer.at + 1, outer.end - 1
    elif index == 0:
        end = items[1].start
    else:
        start = items[index - 1].end
    return source[:start] + source[end:]


def render(source, value, indent):
    """A value as it stands in this text, in a line with this indent."""
    line_end, unit = style_of(source)
    text = json.dumps(value, indent=unit or None)
    return text.replace("\n", line_end + indent)


def style_of(source):
    """(line end, one step of indent) of a text; ("", "") if it is one line."""
    is_filled = bool(list_items(source, skip_blanks(source, 0)))
    if is_filled and "\n" not in source.strip():
        return "", ""
    indent = re.search("\n([ \t]+)", source)
    line_end = "\r\n" if "\r\n" in source else "\n"
    return line_end, indent.group(1) if indent else "  "


def indent_at(source, position):
    """The blanks at the beginning of the line that holds this position."""
    _, _, line = source[:position].rpartition("\n")
    return re.match("[ \t]*", line).group()


# =============================================================================
# Our entries
# =============================================================================
# An entry is ours by what it runs, never by a private key or by memory: so any
# clone can take it out. `before` is the value of the settings before us; what it
# has is never removed.

RULES = ["permissions", "allow"]
STATUS = ["statusLine", "command"]
OUR_RULE = re.compile(r"Edit\(.*/handoffs/\*\*\)")


def parse_settings(data, events):
    """The text of some settings; ValueError if they cannot be edited safely."""
    source = (data or b"").decode("utf-8-sig")
    if not source.strip(" \t\r\n"):
        source = "{}\n"
    try:
        value = json.loads(source, parse_int=float, parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    check_shape(value, events)
    return source


def check_shape(value, events):
    """ValueError if our entries could not be put in, or not be taken out exactly."""
    insist("the whole", value, dict)
    for name in ("hooks", "statusLine", "permissions"):
        insist(name, value.get(name, {}), dict)
    insist("permissions.allow", look_up(value, RULES) or [], list)
    for event in events:
        groups = look_up(value, ["hooks", event]) or []
        insist(event, groups, list)
        for group in groups:
            insist("a group of " + event, group, dict)
            insist("the hooks in " + event, group.get("hooks"), list)


def insist(name, value, kind):
    if not isinstance(value, kind):
        wanted = "an object" if kind is dict else "an array"
        raise ValueError("%s must be %s" % (name, wanted))


def look_up(value, path):
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def merge_hooks(source, wanted, before):
    """The text with exactly our hooks of `wanted`, {event: group}; {}: none."""
    missing = dict(wanted)
    for line in reversed(kit.find_lines(get_value(source, []))):
        group = missing.pop(line.place[1], None)
        if group:
            source = update_entry(source, line.place, group["hooks"][0])
        else:
            source = remove_entry(source, line.place, before)
    for event, group in missing.items():
        source = append_item(source, ["hooks", event], group)
    return source


def append_item(source, path, value):
    count = len(get_value(source, path) or [])
    return append_value(source, path + [count], value)


def update_entry(source, place, entry):
    """In its place. Keys that a person added, such as statusMessage, stay."""
    for key, value in entry.items():
        if get_value(source, place + [key]) != value:
            source = set_value(source, place + [key], value)
    return source


def remove_entry(source, place, before):
    """A group that holds nothing else goes with it."""
    is_alone = len(get_value(source, place[:-1])) == 1
    return take_out(source, place[:-2] if is_alone else place, before)


def take_out(source, path, before):
    """The text without a value, and without the containers that it leaves empty."""
    source = remove_value(source, path)
    outer = path[:-1]
    while outer and not get_value(source, outer) and look_up(before, outer) is None:
        source = remove_value(source, outer)
        outer = outer[:-1]
    return source


def strip_settings(source, before):
    """The text without all that is ours: hooks, status line, rule."""
    source = merge_hooks(source, {}, before)
    source = remove_status(source)
    had = look_up(before, RULES) or []
    for rule in get_value(source, RULES) or []:
        if OUR_RULE.fullmatch(str(rule)) and rule not in had:
            index = get_value(source, RULES).index(rule)
            source = take_out(source, [*RULES, index], before)
    return source


def is_our_status(command):
    line = kit.parse_line(command)
    return bool(line) and line.mode == "statusline"


def remove_status(source):
    """The text without our status line. 0.2.0 could wrap the person's: that stays."""
    command = get_value(source, STATUS)
    if not is_our_status(command):
        return source
    _, _, wrapped = command.partition(" statusline -- sh -c ")
    if wrapped:
        return set_value(source, STATUS, shlex.split(wrapped)[0])
    return remove_value(source, ["statusLine"])


# =============================================================================
# Job
# =============================================================================


class Job:
    """One run: where it works, what was asked for, and what it will change."""

    def __init__(self, project, options, env):
        home = kit.home_folder(env)
        own = abspath(env.get("CLAUDE_CONFIG_DIR") or join(home, ".claude"))
        self.options = options
        self.is_user = options.scope == "user"
        self.is_local = options.scope == "local"
        self.project = project
        self.root = home if self.is_user else project
        self.own_base = own
        self.base = own if self.is_user else join(project, ".claude")
        self.kit = join(self.base, "hooks", KIT)
        self.attributes = join(self.base, "hooks", ".gitattributes")
        self.old_record = join(self.base, "hooks", ".ctx_hooks", "record.json")
        self.context = join(project, kit.read_settings(project, env)["context_dir"])
        self.state = kit.project_state_folder(self.root, env)
        self.cache = join(kit.cache_home(env), "ctx_hooks")
        self.record_path = join(self.state, "install-%s.json" % options.scope)
        self.record = {}
        self.agents = []
        self.changes = []
        self.leftovers = []  # files and folders of ours that go as they are
        self.remarks = []

    def settings(self, agent):
        """The settings file of an agent in this scope."""
        dialect = kit.DIALECTS[agent]
        if agent == "claude":
            name = "settings.local.json" if self.is_local else "settings.json"
            return join(self.base, name)
        if self.is_user:
            return join(self.root, dialect.user_settings)
        return join(self.root, dialect.settings)

    def registered(self):
        """[(path, agent)]: the settings files that run the kit of this place."""
        files = {self.settings(agent): agent for agent in AGENTS}
        if not self.is_user:
            files[join(self.base, "settings.json")] = "claude"
            files[join(self.base, "settings.local.json")] = "claude"
        return [pair for pair in sorted(files.items()) if has_lines(pair[0])]

    def kit_word(self, agent):
        """The kit as a word for the shell, by a variable wherever there is one."""
        if kit.kit_word(agent) and not self.is_user:
            return kit.kit_word(agent)
        is_usual = self.kit == join(self.root, kit.KIT_PLACE)
        if self.is_user and is_usual:
            return '"$HOME/%s"' % kit.KIT_PLACE
        return shlex.quote(self.kit)

    def hooks_for(self, agent):
        """{event: group} for an agent's settings."""
        is_private = self.options.scope != "project" or agent == "codex"
        if IS_WINDOWS and is_private:
            path = '"%s"' % self.kit
            return kit.adapt_hooks(HOOKS, agent, path, kit.POWERSHELL_LINE)
        return kit.adapt_hooks(HOOKS, agent, self.kit_word(agent))

    def name(self, path):
        """A path for the record."""
        return relpath(path, self.root).replace(os.sep, "/")

    def show(self, path):
        """A path for people."""
        return relpath(path, self.project) if is_below(path, self.project) else path

    def guard(self, path):
        """The path, links resolved; Refused if they lead out of the project."""
        real = realpath(path)
        is_ours = is_below(path, self.project) and not self.is_user
        if is_ours and not is_below(real, realpath(self.project)):
            raise Refused(
                "%s leads out of the project, to %s" % (self.show(path), real),
                "put a folder or file of the project's own in place of the link",
            )
        return real

    def read(self, path):
        return read_bytes(self.guard(path))

    def change(self, path, new, note=""):
        """Plan that a file gets these bytes; None: no file."""
        change = Change(self.guard(path), new, note)
        if change.new == change.old:
            return
        if change.old is not None and not os.access(change.path, os.W_OK):
            raise Refused(self.show(path) + " is read-only", "make it writable first")
        self.changes.append(change)

    def remove(self, path):
        """Plan that a file or folder of ours goes, with all that is in it."""
        if lexists(path):
            self.leftovers.append(self.guard(path))


def our_agents():
    """The agents that have settings of their own; Grok runs Claude Code's."""
    shared = kit.DIALECTS["claude"].settings
    others = [name for name, row in kit.DIALECTS.items() if row.settings != shared]
    return ["claude", *others]


AGENTS = our_agents()


def has_lines(path):
    return bool(kit.find_lines(kit.read_object(path)))


def is_below(path, folder):
    return path.startswith(join(folder, ""))


# =============================================================================
# Files
# =============================================================================
# A job's changes are made in their order, which is safe to cut short.


class Change:
    """One file: its bytes now and then. None: no file."""

    def __init__(self, path, new, note):
        self.path = path
        self.old = read_bytes(path)
        self.new = new
        self.note = note
        self.verb = "write" if self.old is None else "change"
        if new is None:
            self.verb = "remove"


def read_bytes(path):
    """The whole file; None if there is none. A pipe or a device would never end."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refused(path + " is not a regular file", "move it out of the way")
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def digest_of(data):
    """The sha256 of a text; CRLF counts as LF. "" if there is no file."""
    if data is None:
        return ""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def apply_change(change, job):
    if read_bytes(change.path) != change.old:
        # a client, an editor or another installer wrote it; that must not be lost
        shown = job.show(change.path)
        raise Refused(shown + " changed in this very moment", "run this again")
    if change.new is not None:
        write_bytes(change.path, change.new, 0o777 if change.path == job.kit else 0o666)
        return
    os.unlink(change.path)
    folder = dirname(change.path)
    while is_below(folder, job.root):
        kit.remove_folder(folder)  # if it is empty
        folder = dirname(folder)


def write_bytes(path, data, mode):
    """Replace a file as a whole. One that is there keeps its mode and owner."""
    os.makedirs(dirname(path), exist_ok=True)
    draft = "%s.new-%d" % (path, os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(draft, flags, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if lexists(path) and mode != 0o777:
            keep_mode_and_owner(path, draft)
        kit.replace_file(draft, path)
    except BaseException:
        kit.remove_file(draft)
        raise


def keep_mode_and_owner(path, draft):
    info = os.stat(path)
    os.chmod(draft, stat.S_IMODE(info.st_mode))
    try:
        os.chown(draft, info.st_uid, info.st_gid)
    except (OSError, AttributeError):
        pass  # only root may; Windows has no owners


# =============================================================================
# Settings
# =============================================================================
# The record is what --uninstall has to know and cannot see: of each settings
# file the text before us (null: no file) and the sha256 of what we wrote. It
# lies in the user's home, where no clone can forge it.
#
#     {"settings": {".claude/settings.json": {"original": "{}", "after": "…"}},
#      "kits": [sha256 of the kits that we wrote], "source": where install.py lies}

Settings = namedtuple("Settings", "path name data source kept before")


def load_record(job):
    """The record, or that of 0.2.0, which lies in the project."""
    record = {"settings": {}, "kits": [], "source": HERE}
    record.update(kit.read_object(job.record_path))
    old = kit.read_object(job.old_record)
    record["kits"] += [old.get("kit"), old.get("older")]
    for name, row in (look_up(old, ["settings"]) or {}).items():
        if isinstance(row, dict):
            record["settings"].setdefault(job.name(join(job.base, name)), row)
    return record


def save_record(job):
    text = json.dumps(job.record, indent=1) + "\n"
    write_bytes(job.record_path, text.encode("ascii"), 0o600)


def read_settings(job, agent):
    """An agent's settings, checked, with what the record knows of them."""
    path = job.settings(agent)
    name = job.name(path)
    data = job.read(path)
    events = [*HOOKS, *kit.DIALECTS[agent].renamed.values()]
    try:
        source = parse_settings(data, events)
    except ValueError as problem:
        raise Refused(
            "%s: %s" % (job.show(path), problem),
            "the client ignores settings that are not strict JSON of the right "
            "shape; correct them, then run this again",
        ) from None
    kept = job.record["settings"].get(name, {})
    before = kit.parse_object(str(kept.get("original")).lstrip("\ufeff"))
    return Settings(path, name, data, source, kept, before)


def encode(settings, source):
    bom = b"\xef\xbb\xbf"
    is_marked = (settings.data or b"").startswith(bom)
    return (bom if is_marked else b"") + source.encode("utf-8")


def original_of(settings):
    """The bytes to go back to; None: no file.

    The recorded ones, if nobody else changed the settings since. Otherwise what
    is there now, without us.
    """
    bare = strip_settings(settings.source, settings.before)
    if bare == settings.source:
        return settings.data
    original = settings.kept.get("original")
    is_same = get_value(bare, []) == settings.before
    if is_same and original is None:
        return None
    if is_same and settings.kept.get("after") == digest_of(settings.data):
        return original.encode("utf-8")
    return encode(settings, bare)


def plan_settings(job, agent):
    """Bring our entries in an agent's settings up to date."""
    settings = read_settings(job, agent)
    original = original_of(settings)
    source = merge_hooks(settings.source, job.hooks_for(agent), settings.before)
    if agent == "claude":
        source = with_status(job, source)
        source = with_rule(job, source)
    new = encode(settings, source)
    if original is not None:
        original = original.decode("utf-8")
    kept = {"original": original, "after": digest_of(new)}
    job.record["settings"][settings.name] = kept
    job.change(settings.path, new, " (hooks of %s)" % kit.DIALECTS[agent].label)


def plan_removal(job, agent):
    """Give an agent's settings their old bytes back."""
    settings = read_settings(job, agent)
    job.record["settings"].pop(settings.name, None)
    job.change(settings.path, original_of(settings), " (our hooks are out)")


def with_status(job, source):
    """The text with our status line, if it is wanted and there is no other."""
    word = '"${CLAUDE_PROJECT_DIR:-.}/%s"' % kit.KIT_PLACE
    if job.is_user:
        word = job.kit_word("claude")
    command = "sh %s statusline || exit 0" % word
    status = get_value(source, STATUS)
    is_ours = is_our_status(status)
    if is_ours and status != command:
        source = remove_status(source)
    if (is_ours or job.options.statusline) and not get_value(source, ["statusLine"]):
        line = {"type": "command", "command": command}
        source = set_value(source, ["statusLine"], line)
    return source


def with_rule(job, source):
    """The text with the rule that lets the agent write handoffs, if it is wanted."""
    folder = relpath(job.context, job.project).replace(os.sep, "/")
    # `/` is the folder of these settings; the user's own are for all folders
    rule = "Edit(%s/%s/handoffs/**)" % ("**" if job.is_user else "", folder)
    rules = get_value(source, RULES) or []
    if rule in rules or not job.options.allow_handoff:
        return source
    return append_item(source, RULES, rule)


# =============================================================================
# Install
# =============================================================================

ATTRIBUTES = b"ctx_hooks.py text eol=lf\n"
OLD_FILES = ("state", "metrics.json", "events.jsonl", "events.jsonl.1")
TEMPLATES = {
    "TASKS.md": b"# Tasks\n\n<!-- What is being worked on, the most important first. "
    b"Delete what is done. -->\n",
    "DECISIONS.md": b"# Decisions\n\n<!-- What was decided and why, the newest first, "
    b"so that nobody argues it again. -->\n",
}


def plan_install(job):
    plan_kit(job)
    job.change(job.attributes, ATTRIBUTES + others_attributes(job))
    wanted = [(job.settings(agent), agent) for agent in job.agents]
    plan_exclude(job, job.registered() + wanted)
    for agent in job.agents:
        plan_settings(job, agent)
    if "claude" in job.agents and not job.is_user:
        plan_removal(job, "copilot")  # it runs Claude Code's settings
    if job.options.init:
        plan_context(job)
    plan_old_release(job)


def plan_kit(job):
    old = job.read(job.kit)
    version = release_of(old, job)
    kept = job.kit + ".kept"
    if old is not None and not version:
        if lexists(kept) or not job.options.force:
            raise Refused(
                job.show(job.kit) + " is edited, or another's file",
                "--force keeps it as ctx_hooks.py.kept; --uninstall puts it back",
            )
        job.change(kept, old)
    if version != kit.VERSION:
        was = ", was " + version if version else ""
        job.change(job.kit, SOURCE, " (%s%s)" % (kit.VERSION, was))
        job.record["kits"].append(digest_of(SOURCE))


def release_of(data, job):
    """The version of an untouched kit of ours; "" for anything else."""
    digest = digest_of(data)
    if digest == digest_of(SOURCE):
        return kit.VERSION
    older = "an older release" if digest in job.record["kits"] else ""
    return RELEASES.get(digest, older)


def others_attributes(job):
    """What .gitattributes holds beside our line, which is its first."""
    data = job.read(job.attributes) or b""
    return data[len(ATTRIBUTES) :] if data.startswith(ATTRIBUTES) else data


def plan_context(job):
    """The two files that --init makes. They say nothing until somebody writes."""
    files = dict(TEMPLATES)
    if job.is_local:
        files[".gitignore"] = b"*\n"
    for name, data in files.items():
        path = join(job.context, name)
        if not lexists(path):
            job.change(path, data)


def plan_old_release(job):
    """What 0.2.0 left and this version does not use."""
    if not lexists(job.old_record):
        return
    job.remove(dirname(job.old_record))
    if job.is_user:
        return
    ignore = join(job.base, ".gitignore")  # it hid a private install
    if (job.read(ignore) or b"").startswith(b"# written by ctx_hooks\n"):
        job.change(ignore, None)
    for name in OLD_FILES:
        job.remove(join(job.context, name))


# =============================================================================
# Uninstall
# =============================================================================
# Settings first: while they name the kit, it is there.


def plan_uninstall(job):
    for agent in job.agents:
        plan_removal(job, agent)
    gone = [job.settings(agent) for agent in job.agents]
    others = [pair for pair in job.registered() if pair[0] not in gone]
    plan_exclude(job, others)
    if others:
        job.remarks.append("kept %s: %s uses it" % (job.show(job.kit), others[0][0]))
        return
    if not job.is_user:
        plan_sections(job)
        plan_untouched(job)
    plan_kit_removal(job)
    job.change(job.attributes, others_attributes(job) or None)
    plan_old_release(job)
    plan_state(job)


def plan_sections(job):
    """The startup context that the kit put into an instruction file."""
    for name in sorted({row.instruction_file for row in kit.DIALECTS.values()}):
        path = join(job.project, name)
        data = read_bytes(path)
        if data:
            bare = kit.without_section(data)
            job.change(path, bare or None, " (our section is out)")


def plan_untouched(job):
    """What --init made and nobody changed goes; all else in .context is yours."""
    files = dict(TEMPLATES)
    files[".gitignore"] = kit.GITIGNORE.encode("ascii")
    for name, data in files.items():
        path = join(job.context, name)
        if read_bytes(path) == data:
            job.change(path, None)


def plan_kit_removal(job):
    data = job.read(job.kit)
    kept = job.kit + ".kept"
    if realpath(job.kit) == join(HERE, KIT):
        job.remarks.append("kept %s: it is beside install.py" % job.kit)
    elif data is not None and not release_of(data, job):
        job.remarks.append("kept %s: edited, or another's file" % job.kit)
    else:
        job.change(job.kit, read_bytes(kept))
        job.change(kept, None)


def plan_state(job):
    """Our files in the home: this project's; with the last project also the cache."""
    if job.is_user or job.options.keep_state:
        job.remove(job.record_path)
        return
    folder, name = os.path.split(job.state)
    names = set(os.listdir(folder)) if isdir(folder) else set()
    if names - {name, "cache"}:
        job.remove(job.state)
    else:
        job.remove(folder)
        job.remove(job.cache)


# =============================================================================
# Git
# =============================================================================
# A private file stays out of git by .git/info/exclude, so that no ignore list of
# the project changes. Git itself says where that file is.

CODEX = kit.DIALECTS["codex"].settings
LOCAL = ".claude/settings.local.json"
KIT_FILES = [kit.KIT_PLACE, kit.KIT_PLACE + ".kept", ".claude/hooks/.gitattributes"]


def ask_git(job, *words):
    """What git prints; "" if it fails, or there is none."""
    code, out = run_program(["git", "-C", job.project, *words])
    return "" if code else out.rstrip("\n")


def private_files(job, registered):
    """The files that are for this machine only, if these settings run the kit."""
    names = {job.name(path) for path, _ in registered}
    private = sorted(names & {CODEX, LOCAL})
    if LOCAL in names and not names - {CODEX, LOCAL}:
        private += KIT_FILES
    return private


def plan_exclude(job, registered):
    """Bring our lines at the top of git's exclude list up to date."""
    place = ask_git(job, "rev-parse", "--git-path", "info/exclude")
    if not place or job.is_user:
        return
    path = realpath(join(job.project, place))
    prefix = ask_git(job, "rev-parse", "--show-prefix")
    prefix = "/" + re.sub(r"[\s*?\[\\]", "?", prefix)  # a pattern; ? is any letter
    head = "# private files of ctx_hooks in " + prefix
    known = [prefix + name for name in (CODEX, LOCAL, *KIT_FILES)]
    wanted = [prefix + name for name in private_files(job, registered)]
    old = os.fsdecode(read_bytes(path) or b"")
    lines = without_block(old.splitlines(keepends=True), head, known)
    if wanted:
        lines.insert(0, "\n".join([head, *wanted, ""]))
    job.change(path, os.fsencode("".join(lines)))


def without_block(lines, head, known):
    """The lines without our heading, and without ours that follow it."""
    kept, is_ours = [], False
    for line in lines:
        bare = line.rstrip("\r\n")
        is_ours = bare == head or (is_ours and bare in known)
        if not is_ours:
            kept.append(line)
    return kept


# =============================================================================
# Checks
# =============================================================================

NOT_INSTALLED, NOT_CURRENT = 3, 4
PROBE = "import sys; print(sys.executable); sys.exit(sys.version_info < (3, 8))"


def check(job):
    """Say where it is installed, whether it is current, and whether it runs."""
    registered = job.registered()
    if not registered:
        say("not installed: no hook of ctx_hooks in " + job.root)
        return NOT_INSTALLED
    for path, agent in registered:
        say("%s: hooks in %s" % (kit.DIALECTS[agent].label, job.show(path)))
    plan_install(job)
    wrong = ["would " + tell(change, job) for change in job.changes]
    wrong += try_kit(job)
    if wrong:
        say("\n".join(wrong))
        return NOT_CURRENT
    say("ok: ctx_hooks %s is installed, current, and runs" % kit.VERSION)
    return 0


def try_kit(job):
    """Run the installed kit, if it is this release: [] or [what is wrong]."""
    if digest_of(read_bytes(job.kit)) != digest_of(SOURCE):
        return [job.show(job.kit) + " is not this release"]
    words = ["py", "-3", "-I"] if IS_WINDOWS else ["sh"]
    _, out = run_program([*words, job.kit, "--version"])
    if kit.VERSION in out:
        return []
    return ["the hooks do not run: they need Python 3.8; name one with --python PATH"]


def run_program(words):
    """(exit code, what it printed)"""
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            words, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return 127, ""
    return done.returncode, os.fsdecode(done.stdout)


def link_python(job, python):
    """Let the launcher start this interpreter: a link in the user's cache."""
    code, out = run_program([python, "-I", "-S", "-c", PROBE])
    if code != 0:
        raise Refused(python + " is no Python of 3.8 or newer", "name one that is")
    link = join(job.cache, "python3")
    draft = "%s.%d" % (link, os.getpid())
    os.makedirs(job.cache, exist_ok=True)
    os.symlink(out.strip(), draft)
    os.replace(draft, link)
    say("linked %s to %s" % (link, out.strip()))


# =============================================================================
# Command line
# =============================================================================

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SMALL_BYTES = 2_000
FLAGS = {
    "init": "also make .context with TASKS.md and DECISIONS.md",
    "allow-handoff": "also let the agent write handoffs unasked (one rule)",
    "statusline": "also show the fullness in the status line, if you have none",
    "dry-run": "show what would change; write nothing",
    "verbose": "with --dry-run: also the text of small files",
    "check": "exit 0: installed and current, 3: not installed, 4: not current",
    "uninstall": "take out what was installed; your .context stays",
    "keep-state": "with --uninstall: leave this project's state in your home",
    "force": "replace an edited or foreign ctx_hooks.py; --uninstall undoes it",
}


def say(text, stream=None):
    """Names in a stranger's project may hold anything; a terminal gets none of it."""
    print(CONTROL.sub("?", text), file=stream or sys.stdout, flush=True)


def tell(change, job):
    note = "" if change.new is None else change.note
    return "%s %s%s" % (change.verb, job.show(change.path), note)


def show_plan(job):
    """A dry run: the settings' diff first, then the other files in a line each."""
    settings = [change for change in job.changes if change.path.endswith(".json")]
    for change in settings:
        say("\n".join(format_diff(change, job.show(change.path))))
    for change in job.changes:
        say("would " + tell(change, job))
        is_small = len(change.new or b"") < SMALL_BYTES
        if job.options.verbose and is_small and change not in settings:
            say((change.new or b"").decode("utf-8", "replace"))
    for path in job.leftovers:
        say("would remove " + job.show(path))


def format_diff(change, shown):
    old, new = change.old or b"", change.new or b""
    lines = [data.decode("utf-8").splitlines() for data in (old, new)]
    return difflib.unified_diff(*lines, shown, shown, lineterm="")


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog="install.py",
        description="Install ctx_hooks into a project, or take it out again.",
        epilog="example: python3 install.py ~/src/app --init",
    )
    parser.add_argument(
        "project",
        metavar="PROJECT",
        nargs="?",
        help="its folder; default: the nearest parent with .git or .claude",
    )
    parser.add_argument(
        "--agent",
        action="append",
        choices=[*kit.DIALECTS, "all"],
        default=[],
        help="may be repeated; default: claude, and those whose folder is there",
    )
    parser.add_argument(
        "--scope",
        choices=["project", "local", "user"],
        default="project",
        help="project: shared through git (default); local: yours, in this project; "
        "user: yours, in all projects",
    )
    parser.add_argument("--python", metavar="PATH", help="the Python that runs the hooks")
    for name, text in FLAGS.items():
        parser.add_argument("--" + name, action="store_true", help=text)
    return parser.parse_args(argv)


def main(argv=None):
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return run(parse_arguments(argv))
    except Refused as problem:
        message, hint = problem.args
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        message = "%s: %s" % (problem.filename or "cannot go on", problem.strerror)
        hint = "correct that, then run this again: it goes on where it was"
    say("error: %s\nhint: %s" % (message, hint), sys.stderr)
    return 1


def run(options):
    job = find_job(options, dict(os.environ))
    job.record = load_record(job)
    job.agents = choose_agents(job)
    if options.check:
        return check(job)
    if options.uninstall:
        plan_uninstall(job)
    else:
        plan_install(job)
    if options.dry_run:
        show_plan(job)
    else:
        carry_out(job)
    for remark in job.remarks:
        say(remark)
    return 0


def carry_out(job):
    """Make the changes. The record comes first, so that any part can be undone."""
    if job.project != os.getcwd():
        say("project: " + job.project)
    if job.options.python:
        link_python(job, job.options.python)
    if job.changes and not job.options.uninstall:
        save_record(job)
    for change in job.changes:
        apply_change(change, job)
        say("done: " + tell(change, job))
    for path in job.leftovers:
        shutil.rmtree(path) if isdir(path) else os.unlink(path)
        say("done: remove " + job.show(path))
    if lexists(job.record_path):
        save_record(job)
    job.remarks += next_steps(job)


def find_job(options, env):
    """The place of this run; Refused if it is not one to install into."""
    if not kit.home_folder(env):
        raise Refused("there is no home folder, so the hooks stay silent", "set HOME")
    here = os.getcwd()
    job = Job(here, options, env)
    job = Job(abspath(options.project or find_project(here, job.own_base)), options, env)
    if not isdir(job.project):
        raise Refused(job.project + " is not a folder", "name the project's folder")
    hint = "name the project: python3 install.py PATH"
    if job.is_user:
        return job
    if realpath(job.base) == realpath(job.own_base):
        raise Refused(job.base + " is your own", hint + ", or use --scope user")
    if realpath(job.project) == HERE and not options.project:
        raise Refused("this is the kit's own folder", hint)
    return job


def find_project(start, own_base):
    """The nearest folder with .git or .claude, but not the user's own; else start."""
    folder = start
    while folder != dirname(folder):
        claude = join(folder, ".claude")
        is_own = realpath(claude) == realpath(own_base)
        if lexists(join(folder, ".git")) or (isdir(claude) and not is_own):
            return folder
        folder = dirname(folder)
    return start


def choose_agents(job):
    """Those asked for; else Claude Code, and those whose folder is there."""
    asked = {"claude" if name == "grok" else name for name in job.options.agent}
    if job.is_local:
        if asked - {"claude", "all"}:
            raise Refused("only Claude Code has private settings", "use --scope user")
        return ["claude"]
    if "all" in asked or (job.options.uninstall and not asked):
        asked = set(AGENTS)
    if not asked:
        asked = {agent for agent in AGENTS if agent == "claude" or is_used(job, agent)}
    if job.options.scope == "project" and not job.options.uninstall:
        leave_out(job, asked)
    return sorted(asked)


def is_used(job, agent):
    """Whether an agent has its folder here."""
    folder, _, _ = job.name(job.settings(agent)).partition("/")
    return isdir(join(job.root, folder))


def leave_out(job, asked):
    """Copilot runs Claude Code's settings. Codex's line is not for git."""
    if "claude" in asked or has_lines(job.settings("claude")):
        asked.discard("copilot")
    if "codex" in asked and ask_git(job, "ls-files", CODEX):
        asked.remove("codex")
        job.remarks.append(
            "left out Codex: git tracks %s, and our line there would hold a path of "
            "this machine; use --scope user --agent codex" % CODEX
        )


def next_steps(job):
    """The last lines: what is still to do."""
    if job.options.uninstall:
        return [] if job.changes else ["nothing of ours is here"]
    steps = try_kit(job)
    if not job.changes:
        steps.append("nothing to change: ctx_hooks %s is installed" % kit.VERSION)
    for agent in job.agents:
        if agent != "claude":
            label = kit.DIALECTS[agent].label
            steps.append("next: start %s here and trust folder and hooks" % label)
    if not isdir(job.context) and not job.is_user:
        steps.append("next: use --init; without .context the hooks stay silent")
    path = shlex.quote(job.kit)
    steps.append("next: start your agent. What the hooks do: sh %s status" % path)
    return steps


if __name__ == "__main__":
    sys.exit(main())
