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
import json
import os
import re
import shlex
import shutil
import stat
from collections import namedtuple
from os.path import abspath, dirname, isdir, isfile, join, lexists, realpath, relpath

# =============================================================================
# Kit
# =============================================================================
# The file that is installed is also imported: it knows the agents, and it makes
# and recognises the lines in their settings.

HERE = dirname(realpath(__file__))
KIT = "ctx_hooks.py"
IS_WINDOWS = os.name == "nt"
RELEASES = {  # sha256 of older releases
    "61ad5b721e880824daadda93830f787243498e66f4915c446e72ce9a0ebf42e6": "0.3.0",
}


class Refused(Exception):
    """A reason to stop: what is wrong, and what to do about it."""


sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
try:
    import ctx_hooks as kit

    with open(join(HERE, KIT), "rb") as file:
        SOURCE = file.read().replace(b"\r\n", b"\n")
    with open(join(HERE, "hooks.json"), "rb") as file:
        HOOKS = json.load(file)["hooks"]
except (ImportError, OSError, SyntaxError, ValueError) as problem:
    sys.exit(
        "error: the files beside install.py cannot be used: %s\n"
        "hint: fetch install.py, ctx_hooks.py and hooks.json again" % problem
    )

# =============================================================================
# JSON text
# =============================================================================
# Changes the value of a JSON text and leaves every other byte as it is. What is
# put in follows the text's own line ends and indent. An item that shall go gets
# the value GONE; so all others keep their places.

BLANKS = re.compile("[ \t\n\r\ufeff]*")
GONE = object()
# the text before it; where it begins, where its value begins and ends
Item = namedtuple("Item", "key gap start at end")


def refuse_constant(name):
    raise ValueError(name + " is not JSON")


# float: no limit of digits. Numbers are only compared, never written back.
DECODER = json.JSONDecoder(parse_int=float, parse_constant=refuse_constant)


def skip_blanks(source, at):
    return BLANKS.match(source, at).end()


def list_items(source, at):
    """The items of the object or array that begins at source[at]."""
    items = []
    end = at + 1
    position = skip_blanks(source, end)
    while source[position] not in "}]":
        key = len(items)
        start = position
        gap = source[end:start]
        if source[at] == "{":
            key, position = DECODER.raw_decode(source, position)
            colon = skip_blanks(source, position)
            position = skip_blanks(source, colon + 1)
        _, end = DECODER.raw_decode(source, position)
        items.append(Item(key, gap, start, position, end))
        position = skip_blanks(source, end)
        if source[position] == ",":
            position = skip_blanks(source, position + 1)
    return items


def with_value(source, value):
    """The text, changed so that it holds this value."""
    start = skip_blanks(source, 0)
    _, end = DECODER.raw_decode(source, start)
    return source[:start] + change_text(source, start, value) + source[end:]


def change_text(source, at, new):
    """The text of the value that begins at source[at], changed to a new one."""
    old, end = DECODER.raw_decode(source, at)
    if new == old:
        return source[at:end]
    if isinstance(new, (dict, list)) and type(new) is type(old):
        return source[at] + change_items(source, at, new) + source[end - 1]
    return render(source, new, indent_at(source, at))


def change_items(source, at, new):
    """What stands between the braces of a changed object or array."""
    items = list_items(source, at)
    last = {item.key: item for item in items}
    before, after = blanks_inside(source, at, items)
    text = ""
    for item in items:
        gap = item.gap if text else before
        if last[item.key] is not item:  # of a repeated key the last one counts
            text += gap + source[item.start : item.end]
        elif new[item.key] is not GONE:
            text += gap + source[item.start : item.at]
            text += change_text(source, item.at, new[item.key])
    _, _, indent = before.rpartition("\n")
    is_array = isinstance(new, list)
    for key, value in enumerate(new) if is_array else new.items():
        if key not in last:
            text += "," + (before or " ") if text else before
            text += "" if is_array else json.dumps(key) + ": "
            text += render(source, value, indent)
    return text + after if text else ""


def blanks_inside(source, at, items):
    """What stands before the first and after the last item."""
    if items:
        end = items[-1].end
        return items[0].gap, source[end : skip_blanks(source, end)]
    line_end, unit = style_of(source)
    after = line_end + indent_at(source, at)
    return after + unit, after


def render(source, value, indent):
    """A value as it stands in this text, in a line with this indent."""
    line_end, unit = style_of(source)
    text = json.dumps(value, indent=unit)
    return text.replace("\n", line_end + indent)


def style_of(source):
    """(line end, one step of indent) of a text."""
    line_end = "\r\n" if "\r\n" in source else "\n"
    indent = re.search("\n([ \t]+)", source)
    unit = indent.group(1) if indent else "  "
    return line_end, unit


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

OUR_RULE = re.compile(r"Edit\(.*/handoffs/\*\*\)")


def parse_settings(data, events):
    """The text of some settings; ValueError if they cannot be edited safely."""
    source = (data or b"").decode()
    if not source.strip("\ufeff \t\r\n"):
        source = "{}\n"
    check_shape(decode(source), events)
    return source


def decode(source):
    """The object in a JSON text; ValueError if there is none."""
    try:
        value = DECODER.decode(source.lstrip("\ufeff"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    insist("the whole", value, dict)
    return value


def check_shape(value, events):
    """ValueError if our entries could not be put in, or not be taken out exactly."""
    for name in ("hooks", "statusLine", "permissions"):
        insist(name, value.get(name, {}), dict)
    insist("permissions.allow", rules_of(value), list)
    for event in events:
        insist(event, value.get("hooks", {}).get(event, []), list)


def insist(name, value, kind):
    if not isinstance(value, kind):
        wanted = "an object" if kind is dict else "an array"
        raise ValueError("%s must be %s" % (name, wanted))


def value_of(source):
    """The value of a text that may be broken; {} if it is."""
    try:
        return decode(source)
    except ValueError:
        return {}


def rules_of(value):
    return value.get("permissions", {}).get("allow", [])


def merge_hooks(value, wanted, before):
    """Make our hooks exactly those of `wanted`, {event: group}; {}: none."""
    missing = dict(wanted)
    for line in reversed(kit.find_lines(value)):
        _, event, index, _, position = line.place
        if event in missing:  # in its place; keys that a person added stay
            line.entry.update(missing.pop(event)["hooks"][0])
            continue
        groups = value["hooks"][event]
        entries = groups[index]["hooks"]
        entries[position] = GONE
        if is_gone(entries):
            groups[index] = GONE
    for event, group in missing.items():
        value.setdefault("hooks", {}).setdefault(event, []).append(group)
    drop_empty(value, "hooks", before)


def is_gone(children):
    return bool(children) and all(child is GONE for child in children)


def drop_empty(value, name, before):
    """Drop value[name], and lists in it, that hold nothing but what is gone."""
    outer = value.get(name, {})
    had = before.get(name, {})
    for key, inner in outer.items():
        if isinstance(inner, list) and is_gone(inner) and key not in had:
            outer[key] = GONE
    if is_gone(outer.values()) and name not in before:
        value[name] = GONE


def strip_settings(source, before):
    """The text without all that is ours: hooks, status line, rule."""
    value = value_of(source)
    if not kit.find_lines(value) and not has_our_status(value):
        return source  # a rule in it is the person's
    merge_hooks(value, {}, before)
    if has_our_status(value):
        value["statusLine"] = GONE
    rules = rules_of(value)
    had = rules_of(before)
    for index, rule in enumerate(rules):
        if OUR_RULE.fullmatch(str(rule)) and rule not in had:
            rules[index] = GONE
    drop_empty(value, "permissions", before)
    return with_value(source, value)


def has_our_status(value):
    line = kit.parse_line(value.get("statusLine", {}).get("command"))
    return bool(line) and line.mode == "statusline"


# =============================================================================
# Job
# =============================================================================


class Job:
    """One run: where it works, what was asked for, and what it will change."""

    def __init__(self, project, options, env):
        self.options = options
        self.is_user = options.scope == "user"
        self.is_local = options.scope == "local"
        self.project = project
        self.root = kit.home_folder(env) if self.is_user else project
        self.base = own_folder(env) if self.is_user else join(project, ".claude")
        hooks = join(self.base, "hooks")
        self.kit = join(hooks, KIT)
        self.kept_kit = self.kit + ".kept"
        self.attributes = join(hooks, ".gitattributes")
        self.context_dir = kit.read_settings(project, env)["context_dir"]
        self.context = join(project, self.context_dir)
        self.state = kit.project_state_folder(self.root, env)
        self.cache = kit.cache_folder(env)
        name = "install-user.json" if self.is_user else "install-project.json"
        self.record_path = join(self.state, name)
        self.record = Record(kit.read_object(self.record_path))
        self.agents = []
        self.changes = []
        self.leftovers = []  # files and folders of ours that go as they are
        self.remarks = []

    def settings(self, agent):
        """The settings file of an agent in this scope."""
        if agent == "claude":
            name = "settings.local.json" if self.is_local else "settings.json"
            return join(self.base, name)
        dialect = kit.DIALECTS[agent]
        name = dialect.user_settings if self.is_user else dialect.settings
        return join(self.root, name)

    def registered(self):
        """The settings files that run the kit of this place."""
        paths = {self.settings(agent) for agent in AGENTS}
        if not self.is_user:
            names = ("settings.json", "settings.local.json")
            paths.update(join(self.base, name) for name in names)
        return set(filter(has_lines, paths))

    def hooks_for(self, agent):
        """{event: group} for an agent's settings; shared ones hold no path of ours."""
        word = kit.kit_word(agent)
        form = kit.SHELL_LINE
        is_private = self.is_user or not word
        if is_private:
            word = shlex.quote(self.kit)
        if self.is_user and self.kit == join(self.root, kit.KIT_PLACE):
            word = '"$HOME/%s"' % kit.KIT_PLACE
        if IS_WINDOWS and (is_private or self.is_local):
            word = '"%s"' % self.kit
            form = kit.POWERSHELL_LINE
        return kit.adapt_hooks(HOOKS, agent, word, form)

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
        if is_ours and not kit.is_inside(path, self.project):
            raise Refused(
                "%s leads out of the project, to %s" % (self.show(path), real),
                "put a folder or file of the project's own in place of the link",
            )
        return real

    def read(self, path):
        return read_bytes(self.guard(path))

    def change(self, path, new, note=""):
        """Plan that a file gets this text, or these bytes; None: no file."""
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


AGENTS = list(kit.DIALECTS)
LOCAL = kit.PRIVATE_SETTINGS
CODEX = kit.DIALECTS["codex"].settings


class Record(kit.Record):
    """What --uninstall has to know and cannot see. It lies in the user's home, where
    no clone can forge it; a clone without one still loses exactly our entries."""

    settings: dict = {}  # name -> {"original": text before us or null, "after": sha256}
    kits: list = []  # sha256 of the kits that we wrote
    version: str = ""  # of the last one
    source: str = HERE  # where install.py lies, for the advice of `doctor`


def own_folder(env):
    """The user's own .claude."""
    default = join(kit.home_folder(env), ".claude")
    return abspath(env.get("CLAUDE_CONFIG_DIR") or default)


def has_lines(path):
    return bool(kit.find_lines(value_of(kit.read_text(path))))


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
        self.new = new.encode() if isinstance(new, str) else new
        self.note = note
        self.verb = "write" if self.old is None else "change"
        if new is None:
            self.verb = "remove"
            self.note = ""


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
    """The sha256 of a file's bytes; "" if there is no file."""
    return "" if data is None else kit.sha256_of(data)


def apply_change(change, job):
    if read_bytes(change.path) != change.old:
        # a client, an editor or another installer wrote it; that must not be lost
        shown = job.show(change.path)
        raise Refused(shown + " changed in this very moment", "run this again")
    if change.new is None:
        os.unlink(change.path)
        remove_empty(dirname(change.path), job)
    else:
        is_kit = change.new == SOURCE
        write_bytes(change.path, change.new, 0o755 if is_kit else None)


def remove_empty(folder, job):
    """Remove a folder and its parents, as far as they are empty."""
    while is_below(folder, realpath(job.root)):
        kit.remove_folder(folder)
        folder = dirname(folder)


def write_bytes(path, data, mode=None):
    """Replace a file as a whole. Without a mode it keeps its own, and its owner."""
    os.makedirs(dirname(path), exist_ok=True)
    draft = "%s.new-%d" % (path, os.getpid())
    try:
        with open(draft, "xb") as file:
            if mode:
                os.chmod(draft, mode)
            elif lexists(path):
                keep_mode_and_owner(path, draft)
            file.write(data)
        kit.replace_file(draft, path)
    except BaseException:
        kit.remove_file(draft)
        raise


def keep_mode_and_owner(path, draft):
    shutil.copymode(path, draft)
    info = os.stat(path)
    try:
        os.chown(draft, info.st_uid, info.st_gid)
    except (OSError, AttributeError):
        pass  # only root may; Windows has no owners


# =============================================================================
# Settings
# =============================================================================
# What the person had is kept in the record. An uninstall gives it back byte for
# byte; if somebody changed the settings since, it takes out exactly our entries.

# source is the text that is edited, before the value before us, original the text to
# go back to, or None for no file
Settings = namedtuple("Settings", "path name source before original")


def save_record(job):
    text = json.dumps(job.record.as_dict(), indent=1)
    os.makedirs(job.state, mode=0o700, exist_ok=True)  # prompts are kept there
    write_bytes(job.record_path, text.encode(), 0o600)


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
    kept = job.record.settings.get(name)
    kept = kept if isinstance(kept, dict) else {}
    original = kept.get("original")
    before = value_of(str(original))
    bare = strip_settings(source, before)
    is_untouched = original is None or kept.get("after") == digest_of(data)
    if bare == source:  # nothing of ours is in it
        original = None if data is None else data.decode()
    elif value_of(bare) != before or not is_untouched:
        original = bare  # somebody else changed them since
    return Settings(path, name, source, before, original)


def plan_settings(job, agent):
    """Bring our entries in an agent's settings up to date."""
    settings = read_settings(job, agent)
    hooks = job.hooks_for(agent)
    value = value_of(settings.source)
    merge_hooks(value, hooks, settings.before)
    if agent == "claude":
        add_status(job, value, hooks["SessionStart"]["hooks"][0])
        add_rule(job, value)
    new = with_value(settings.source, value)
    job.record.settings[settings.name] = {
        "original": settings.original,
        "after": digest_of(new.encode()),
    }
    label = kit.DIALECTS[agent].label
    job.change(settings.path, new, " (hooks of %s)" % label)


def plan_removal(job, agent):
    """Give an agent's settings their old bytes back."""
    settings = read_settings(job, agent)
    job.change(settings.path, settings.original, " (our hooks are out)")


def add_status(job, value, hook):
    """Our status line, if it is wanted and there is no other."""
    command = " statusline".join(hook["command"].rsplit(" inject", 1))
    # nobody promises that a status line gets the variable; it starts in the project
    command = command.replace("$CLAUDE_PROJECT_DIR", "${CLAUDE_PROJECT_DIR:-.}")
    is_wanted = job.options.statusline and "statusLine" not in value
    if is_wanted or has_our_status(value):
        value["statusLine"] = {"type": "command", "command": command}


def add_rule(job, value):
    """The rule that lets the agent write handoffs, if it is wanted."""
    # `/` is the folder of these settings; the user's own are for all folders
    start = "**" if job.is_user else ""
    rule = "Edit(%s/%s/handoffs/**)" % (start, job.context_dir)
    if job.options.allow_handoff and rule not in rules_of(value):
        value.setdefault("permissions", {}).setdefault("allow", []).append(rule)


# =============================================================================
# Install
# =============================================================================

ATTRIBUTES = "ctx_hooks.py text eol=lf linguist-vendored\n"
OLD_ATTRIBUTES = "ctx_hooks.py text eol=lf\n"  # of 0.3.0
TEMPLATES = {
    "TASKS.md": "# Tasks\n\n<!-- What is being worked on, the most important first. "
    "Delete what is done. -->\n",
    "DECISIONS.md": "# Decisions\n\n<!-- What was decided and why, the newest first, "
    "so that nobody argues it again. -->\n",
}


def plan_install(job):
    plan_kit(job)
    if not lexists(job.attributes) or is_our_attributes(job, OLD_ATTRIBUTES):
        job.change(job.attributes, ATTRIBUTES)
    wanted = [job.settings(agent) for agent in job.agents]
    plan_exclude(job, job.registered().union(wanted))
    for agent in job.agents:
        plan_settings(job, agent)
    if "claude" in job.agents:
        for agent in riders(job):
            plan_removal(job, agent)
    if job.options.init:
        plan_context(job)


# What may be in the kit's place. RELEASED is a kit as some release was written,
# FORMATTED this one in another layout, or a part of it, CHANGED any other kit of ours.
MISSING, CURRENT, RELEASED, FORMATTED, CHANGED, FOREIGN = range(6)


def plan_kit(job):
    """Write the kit, unless it is there. Another's file is only replaced by force."""
    old = job.read(job.kit)
    state, version = judge_kit(old, job)
    if state == FOREIGN:
        if job.read(job.kept_kit) not in (None, old) or not job.options.force:
            raise Refused(
                job.show(job.kit) + " is another's file",
                "--force keeps it as ctx_hooks.py.kept; --uninstall puts it back",
            )
        job.change(job.kept_kit, old)
    if is_newer(version) and not job.options.force:
        raise Refused(
            "%s is %s, and this is %s" % (job.show(job.kit), version, kit.VERSION),
            "fetch ctx_hooks anew; or use --force to go back",
        )
    if state == CHANGED:
        name = "%s.%s" % (KIT, digest_of(old)[:8])
        job.change(join(job.state, name), old, " (a copy of the kit that was here)")
    if state != CURRENT:
        history = describe_kit(state, version)
        job.change(job.kit, SOURCE, " (%s%s)" % (kit.VERSION, history))
    if digest_of(SOURCE) not in job.record.kits:
        job.record.kits.append(digest_of(SOURCE))
    job.record.version = kit.VERSION
    job.record.source = HERE


def judge_kit(data, job):
    """What is in the kit's place, and its version if it is a kit of ours."""
    if data is None:
        return MISSING, ""
    version = kit.kit_version(data)
    digest = digest_of(data)
    if data == SOURCE:
        return CURRENT, version
    if digest in (digest_of(SOURCE), *RELEASES, *job.record.kits):
        return RELEASED, version or "an older release"
    is_part = SOURCE.startswith(data.rstrip())
    if is_part or without_layout(data) == without_layout(SOURCE):
        return FORMATTED, version or kit.CUT
    return (CHANGED, version) if version else (FOREIGN, "")


def without_layout(data):
    """What formatters leave of a text: no blanks, quotes, commas, brackets or BOM."""
    return re.sub(rb"[\s'\"(),\\]|\xef\xbb\xbf", b"", data)


def is_changed(state, version):
    """Whether this is a kit of this release, but not as it was written."""
    return state in (FORMATTED, CHANGED) and version in (kit.VERSION, kit.CUT)


def is_newer(version):
    numbers = re.findall(r"\d+", version)
    return list(map(int, numbers)) > list(map(int, kit.VERSION.split(".")))


def describe_kit(state, version):
    """What was there before, as words behind the new version."""
    if is_changed(state, version):
        return "; " + kit.CHANGED % "it"
    return ", was " + version if version not in ("", kit.VERSION) else ""


def is_our_attributes(job, *texts):
    """Whether .gitattributes beside the kit has one of these texts, in any layout."""
    words = kit.read_text(job.attributes).split()
    return words in [text.split() for text in texts]


def plan_context(job):
    """The two files that --init makes. They say nothing until somebody writes."""
    for name, text in TEMPLATES.items():
        path = join(job.context, name)
        if not lexists(path):
            job.change(path, text)


# =============================================================================
# Uninstall
# =============================================================================
# Settings first: while they name the kit, it is there.


def plan_uninstall(job):
    for agent in job.agents:
        plan_removal(job, agent)
    gone = {job.settings(agent) for agent in job.agents}
    others = job.registered() - gone
    plan_exclude(job, others)
    if others:
        shown = ", ".join(sorted(map(job.show, others)))
        job.remarks.append("kept %s: %s uses it" % (job.show(job.kit), shown))
        return
    plan_kit_removal(job)
    if is_our_attributes(job, ATTRIBUTES, OLD_ATTRIBUTES):
        job.change(job.attributes, None)
    plan_sections(job)
    plan_state(job)
    plan_context_removal(job)


def plan_context_removal(job):
    """The context folder goes if it holds only what --init and the kit put there."""
    if not isdir(job.context):
        return
    ours = [text.encode().split() for text in (*TEMPLATES.values(), kit.GITIGNORE, "*")]
    paths = [join(job.context, name) for name in os.listdir(job.context)]
    # without blanks: a formatter may have changed them
    is_ours = all(isfile(path) and job.read(path).split() in ours for path in paths)
    if is_ours and not job.is_user:
        for path in paths:
            job.change(path, None)
    else:
        job.remarks.append("kept %s: it is yours" % job.show(job.context))


def plan_sections(job):
    """The startup context that the kit put into an instruction file."""
    for name in kit.INSTRUCTION_FILES:
        path = join(job.project, name)
        data = read_bytes(path) or b""
        bare = kit.without_section(data)
        if bare != data and not job.is_user:
            job.change(path, bare or None, " (our section is out)")


def plan_kit_removal(job):
    data = job.read(job.kit)
    kept = job.read(job.kept_kit)
    state, _ = judge_kit(data, job)
    if realpath(job.kit) == join(HERE, KIT):
        job.remarks.append("kept %s: it is beside install.py" % job.kit)
    elif data != kept and state in (CHANGED, FOREIGN):
        what = "it is another's file" if state == FOREIGN else "somebody changed it"
        job.remarks.append("kept %s: %s" % (job.kit, what))
    else:
        job.change(job.kit, kept)
        job.change(job.kept_kit, None)


def plan_state(job):
    """Our files in the home: this project's; with the last project also the cache."""
    if job.is_user or job.options.keep_state:
        job.remove(job.record_path)
        return
    folder, name = os.path.split(job.state)
    names = os.listdir(folder) if isdir(folder) else []
    if set(names) - {name, "cache"}:
        job.remove(job.state)
    else:
        job.remove(folder)
        job.remove(job.cache)


# =============================================================================
# Git
# =============================================================================
# A private file stays out of git by .git/info/exclude, so that no ignore list of
# the project changes. Git itself says where that file is.

KIT_FILES = {
    ".claude/hooks/ctx_hooks.py",
    ".claude/hooks/ctx_hooks.py.kept",
    ".claude/hooks/.gitattributes",
}


GIT_LIMIT_S = 20


def ask_git(job, *words):
    """What git prints; "" if it fails, or there is none."""
    return kit.run_git(job.project, list(words), GIT_LIMIT_S).rstrip("\n")


def private_files(job, registered):
    """The files that are for this machine only, if these settings run the kit."""
    names = {job.name(path) for path in registered}
    private = names & {CODEX, LOCAL}
    if LOCAL in names and names == private:
        private |= KIT_FILES
        private |= {job.name(join(job.context, name)) for name in TEMPLATES}
    if names and has_own_ignore(job):
        private |= {job.name(join(job.context, name)) for name in kit.RUNTIME_NAMES}
    return sorted(private)


def has_own_ignore(job):
    """Whether the context folder has a .gitignore that does not name our files."""
    path = join(job.context, ".gitignore")
    return lexists(path) and "/handoffs/" not in kit.read_text(path)


def plan_exclude(job, registered):
    """Bring our lines at the top of git's exclude list up to date."""
    told = ask_git(job, "rev-parse", "--show-prefix", "--git-path", "info/exclude")
    folder, _, place = told.rpartition("\n")
    if not place or job.is_user:
        return
    path = join(job.project, place)
    if os.path.islink(path) or os.path.islink(dirname(path)):
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
# Checks
# =============================================================================

NOT_INSTALLED = 3
NOT_CURRENT = 4
PROBE = "import sys; print(sys.executable); sys.exit(sys.version_info < (3, 8))"


def check(job):
    """Say whether it is installed, current, and runs."""
    if not job.registered():
        say("not installed: no hook of ctx_hooks in " + job.root)
        return NOT_INSTALLED
    if is_changed(*judge_kit(job.read(job.kit), job)):
        say(kit.CHANGED % job.show(job.kit))
        say("hint: `%s` puts it back" % own_call(job))
        return NOT_CURRENT
    plan_install(job)
    if job.changes:
        say("not current: install.py would change this")
        show_plan(job)
        return NOT_CURRENT
    problems = try_kit(job)
    if problems:
        say(problems[0])
        return NOT_CURRENT
    say("ok: ctx_hooks %s is installed, current, and runs" % kit.VERSION)
    return 0


def own_call(job):
    """The command that installs what this job is about."""
    words = []
    if job.project != os.getcwd():
        words.append(shlex.quote(job.project))
    if job.options.scope != "project":
        words += ["--scope", job.options.scope]
    return kit.program_call(join(HERE, "install.py"), " ".join(words)).strip()


def try_kit(job):
    """Run the installed kit, which is this release: [] or [what is wrong]."""
    words = ["py", "-3", "-I"] if IS_WINDOWS else ["sh"]
    _, out = kit.run_program([*words, job.kit, "--version"])
    if kit.VERSION in out:
        return []
    return ["the hooks do not run: they need Python 3.8; name one with --python PATH"]


def link_python(job, python):
    """Let the launcher start this interpreter: a link in the user's cache."""
    code, out = kit.run_program([python, "-I", "-S", "-c", PROBE])
    if code != 0:
        raise Refused(python + " is no Python of 3.8 or newer", "name one that is")
    link = join(job.cache, "python3")
    os.makedirs(job.cache, exist_ok=True)
    kit.remove_file(link)
    os.symlink(out.strip(), link)
    say("linked %s to %s" % (link, out.strip()))


# =============================================================================
# Command line
# =============================================================================

SMALL_BYTES = 2_000
DONE = {"write": "wrote", "change": "changed", "remove": "removed"}
FLAGS = {
    "init": "also make .context with TASKS.md and DECISIONS.md",
    "allow-handoff": "also let the agent write handoffs unasked (one rule)",
    "statusline": "also show the fullness in the status line, if you have none",
    "dry-run": "show what would change; write nothing",
    "verbose": "with --dry-run: also the text of small files",
    "check": "exit 0: installed and current, 3: not installed, 4: not current",
    "uninstall": "take out what was installed; your .context stays",
    "keep-state": "with --uninstall: leave this project's state in your home",
    "force": "replace another's ctx_hooks.py; --uninstall undoes it",
}


def say(text, file=None):
    """Names in a stranger's project may hold anything; a terminal gets none of it."""
    print(re.sub(kit.CONTROL, "?", text), file=file, flush=True)


def tell(change, job, verb):
    """What is done to a file, as a line."""
    return "%s %s%s" % (verb, job.show(change.path), change.note)


def show_plan(job):
    """A dry run: the settings' diff first, then the other files in a line each."""
    for change in sorted(job.changes, key=is_other):
        say(tell(change, job, "would " + change.verb))
        is_small = len(change.new or b"") < SMALL_BYTES
        if not is_other(change) or (job.options.verbose and is_small):
            say("\n".join(format_diff(change)))
    for path in job.leftovers:
        say("would remove " + job.show(path))


def is_other(change):
    return not change.path.endswith(".json")


def format_diff(change):
    old = (change.old or b"").decode("utf-8", "replace")
    new = (change.new or b"").decode("utf-8", "replace")
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="")
    return list(lines)[2:]  # without the names


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
    parser.add_argument("--python", metavar="PATH", help="the Python of the hooks")
    for name, text in FLAGS.items():
        parser.add_argument("--" + name, action="store_true", help=text)
    return parser.parse_args(argv)


def main(argv=None):
    if sys.stdout:  # None: it was closed
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return run(parse_arguments(argv))
    except Refused as problem:
        message, hint = problem.args
    except BrokenPipeError:
        os._exit(1)  # nobody reads what we say
    except OSError as problem:
        message = "%s: %s" % (problem.filename or "cannot go on", problem.strerror)
        hint = "correct that, then run this again: it goes on where it was"
    say("error: %s\nhint: %s" % (message, hint), sys.stderr)
    return 1


def run(options):
    job = find_job(options, dict(os.environ))
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
        say(tell(change, job, DONE[change.verb]))
    for path in job.leftovers:
        if isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
        say("removed " + job.show(path))
    remove_empty(dirname(realpath(job.kit)), job)
    job.remarks += next_steps(job)


def find_job(options, env):
    """The place of this run; Refused if it is not one to install into."""
    if not kit.home_folder(env):
        raise Refused("there is no home folder, so the hooks stay silent", "set HOME")
    own = realpath(own_folder(env))
    project = options.project or find_project(os.getcwd(), own)
    job = Job(realpath(project), options, env)
    if not isdir(job.project):
        raise Refused(job.project + " is not a folder", "name the project's folder")
    if job.is_user:
        return job
    if realpath(job.base) == own:
        raise Refused(job.base + " is your own", "use --scope user, or name a project")
    if job.project == HERE and not options.project:
        raise Refused("this is the kit's own folder", "name the project's folder")
    return job


def find_project(start, own):
    """The nearest folder with .git or .claude, but not the user's own; else start."""
    for folder in kit.upwards(start):
        claude = join(folder, ".claude")
        has_settings = isdir(claude) and realpath(claude) != own
        if has_settings or lexists(join(folder, ".git")):
            return folder
    return start


def choose_agents(job):
    """Those asked for; else Claude Code, and those whose folder is there."""
    asked = job.options.agent
    names = [name for name in AGENTS if name in asked or "all" in asked]
    if job.is_local:
        if names not in ([], ["claude"]):
            raise Refused("only Claude Code has private settings", "use --scope user")
        return ["claude"]
    if job.options.uninstall:
        return names or AGENTS
    if not names:
        names = [name for name in AGENTS if name == "claude" or is_used(job, name)]
    return leave_out(job, names)


def is_used(job, agent):
    """Whether an agent has its folder here."""
    folder, _, _ = job.name(job.settings(agent)).partition("/")
    return isdir(join(job.root, folder))


def riders(job):
    """The agents that run Claude Code's settings, too: Copilot and Grok."""
    scope = "user" if job.is_user else "project"
    return [name for name in AGENTS if scope in kit.DIALECTS[name].runs_claudes]


def leave_out(job, names):
    """Nobody is registered twice. Codex's line is not for git."""
    if "claude" in names or has_lines(job.settings("claude")):
        names = [name for name in names if name not in riders(job)]
    if "codex" in names and not job.is_user and ask_git(job, "ls-files", CODEX):
        names.remove("codex")
        job.remarks.append(
            "left out Codex: git tracks %s, and our line there would hold a path of "
            "this machine; use --scope user --agent codex" % CODEX
        )
    return names


def next_steps(job):
    """The last lines: what is still to do."""
    if job.options.uninstall:
        return [] if job.changes else ["nothing of ours is here"]
    if not job.changes:
        return ["nothing to change: ctx_hooks %s is installed" % kit.VERSION]
    steps = try_kit(job)
    for agent in job.agents:
        label = kit.DIALECTS[agent].label
        if agent != "claude":
            steps.append("next: start %s here; trust the folder and hooks" % label)
    if not isdir(job.context):
        steps.append("next: use --init; without .context the hooks stay silent")
    show = "sh %s status" % shlex.quote(job.kit)
    steps.append("next: start your agent; to see what the hooks do: " + show)
    return steps


if __name__ == "__main__":
    sys.exit(main())
