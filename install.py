#!/usr/bin/env python3
"""Put ctx_hooks into the settings of a project's coding agents, or take it out again.

    python3 install.py                    install into the project around the current folder
    python3 install.py --dry-run          say what would change; write nothing
    python3 install.py --check            exit 0 if installed and current, else say what is not
    python3 install.py --uninstall        take it out; the settings get their old bytes back

What it writes, all of it (in <base> = PROJECT/.claude, or ~/.claude with --scope user):

    <base>/hooks/ctx_hooks.py             the kit, a copy of the file beside this one
    <base>/hooks/.ctx_hooks/              unseen by git: the record for uninstall
    <base>/settings.json                  our hooks (settings.local.json with --scope local)
    .codex/, .gemini/, .qwen/, …          the same in other agents' settings, see --agent
    <base>/.gitignore                     --scope local only: hides all this and itself from git
    PROJECT/.context/                     --init only: context files, none overwritten
    ~/.local/bin/ctx                      --launcher only

Nothing else is touched, no link that leads out of the project is followed, no network is used,
nothing is ever asked. Everything is checked before the first write. Needs Python 3.8; this file
still parses on 3.6 to be able to say so.

Contents, bottom-up: constants and messages; the kit; JSON text; our entries; files and layout;
settings and record; planning; launcher; command line.
"""

import sys

if sys.version_info < (3, 8):
    sys.exit("error: ctx_hooks needs Python 3.8 or newer, this is %d.%d\n"
             "hint: run install.py with a newer one, for example python3.12 install.py"
             % tuple(sys.version_info[:2]))

import argparse
import contextlib
import difflib
import hashlib
import json
import os
import re
import shlex
import stat
import tempfile
import time
from collections import namedtuple
from types import ModuleType

# =============================================================================
# Constants and messages
# =============================================================================

join, dirname, basename, exists = os.path.join, os.path.dirname, os.path.basename, os.path.exists
realpath, lexists, isdir, isfile = os.path.realpath, os.path.lexists, os.path.isdir, os.path.isfile
KIT = "ctx_hooks.py"
IS_WINDOWS = os.name == "nt"
BOM = b"\xef\xbb\xbf"

IGNORE_ALL = "*\n"
IGNORE_LOCAL = "# written by ctx_hooks\n/.gitignore\n/settings.local.json\n"
IGNORE_LOCAL_KIT = IGNORE_LOCAL + "/hooks/ctx_hooks.py\n"
OLD_IGNORES = [b"# written by ctx_hooks\n/.ctx_hooks/\n/__pycache__/\n/ctx_hooks.py.kept-*\n" + more
               for more in (b"", b"/ctx_hooks.py\n/.gitignore\n")]  # of 0.1.0, beside the kit

STILL_TO_DO = dict.fromkeys(("gemini", "qwen", "copilot", "droid"),
                            "start it here and trust the folder")
STILL_TO_DO["codex"] = (
    "start it here, trust the folder, then \"Trust all and continue\" (later: /hooks); "
    ".codex/hooks.json holds a path of this machine, so it is not for git")

COMMAND_WORDS = {"build": "Build", "all": "Build", "test": "Test", "check": "Test", "lint": "Lint"}
# Until somebody writes something into them these files say nothing, and the gate, which knows
# headings, comments and (…) for what they are, does not ask an agent to read them.
TEMPLATES = {name: "# %s\n\n<!-- %s -->\n\n- %s\n" % texts for name, texts in {
    "CONSTITUTION.md": (
        "Constitution", "Rules that hold in every session, whatever the task. For example: never "
        "commit secrets;\nnever weaken a test to make it pass; ask before what cannot be undone.",
        "(a rule)"),
    "TASKS.md": (
        "Tasks", "What is being worked on, most important first. A finished task is deleted.",
        "[ ] (one task, with the sentence that says when it is done)"),
    "CONVENTIONS.md": (
        "Conventions", "How things are done here, as far as the code does not already show it.",
        "(which folder holds what, where new code goes, what a commit looks like)"),
    "DECISIONS.md": (
        "Decisions", "What was decided and why, newest first, so that it is not argued again.",
        "(date: what was decided; because …; instead of …)"),
    "LEARNINGS.md": (
        "Learnings", "What cost time once and should not cost it again, newest first.",
        "(date: what happened → what to do next time)"),
    "AGENT_PLAYBOOK.md": (
        "Agent playbook", "How an agent works in this project. For example: one task of TASKS.md "
        "at a time;\nthe tests run before something is called done.", "(a rule)"),
}.items()}

HINT_JSON = ("the client ignores settings that are not strict JSON (no comments, no trailing "
             "commas) of the right shape; correct it, then run this again")


class Refused(Exception):
    """A reason to stop, for people: (what is wrong, what to do about it)."""


# =============================================================================
# The kit
# =============================================================================
# What is copied is what is loaded here: exactly the file beside this one, no import search, no
# bytecode. It makes and recognises the commands, and knows the agents.


def load_kit(folder: str) -> tuple:
    """(module, its text as bytes) of the kit in this folder."""
    path, module = join(folder, KIT), ModuleType("ctx_hooks")
    try:
        with open(path, "rb") as file:
            data = file.read().replace(b"\r\n", b"\n")
        module.__file__ = path
        exec(compile(data, path, "exec"), module.__dict__)  # noqa: S102 - see above
    except (OSError, SyntaxError, ValueError) as problem:
        sys.exit("error: %s beside install.py cannot be used: %s\nhint: fetch both again and keep "
                 "them in one folder" % (KIT, problem))
    return module, data


HERE = dirname(realpath(__file__))
kit, SOURCE = load_kit(HERE)


def digest_of(data: "bytes | str | None") -> str:
    """sha256 of the text: a checkout with CRLF is not an edit. "" where there is no file."""
    data = data.encode() if isinstance(data, str) else data
    return "" if data is None else hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


LOCAL_DIGESTS = ("", digest_of(IGNORE_LOCAL), digest_of(IGNORE_LOCAL_KIT))


# =============================================================================
# JSON text
# =============================================================================
# Edits a JSON text and leaves every other byte as it is; what is put in has its line ends, indent
# and escapes. The standard decoder says where a value ends and what is wrong.

_BLANKS = re.compile("[ \t\n\r]*")
Item = namedtuple("Item", "key start at end")  # key or None, its start, its value's place
DECODER = json.JSONDecoder()


def skip(src: str, pos: int) -> int:
    return _BLANKS.match(src, pos).end()


def items_of(src: str, at: int) -> list:
    """The items of the object or array at src[at], in a text that is known to be JSON."""
    items, pos = [], skip(src, at + 1)
    while src[pos] not in "}]":
        key, start = None, pos
        if src[at] == "{":
            key, pos = DECODER.raw_decode(src, pos)
            pos = skip(src, skip(src, pos) + 1)
        items.append(Item(key, start, pos, DECODER.raw_decode(src, pos)[1]))
        pos = skip(src, items[-1].end)
        pos = skip(src, pos + 1) if src[pos] == "," else pos
    return items


class Text:
    """A JSON text that is edited in place. A path is a list of keys and indexes."""

    def __init__(self, src: str) -> None:
        self.src, root = src, skip(src, 0)
        items = items_of(src, root)
        newline = re.search("\r\n|\n|\r", src)
        self.newline = newline.group() if newline else "\n"
        self.inline = bool(items) and not self._has_lines(root, items[-1].end)
        self.unit = "  "
        if items and self._has_lines(root, items[0].start):
            self.unit = self._indent(items[0].start)[len(self._indent(root)):]
        self.ascii = src.isascii() and "\\u" in src

    def find(self, path: list) -> "Item | None":
        at = skip(self.src, 0)
        item = Item(None, at, at, DECODER.raw_decode(self.src, at)[1])
        for step in path:
            items = items_of(self.src, item.at)
            same = [it for i, it in enumerate(items) if step == (i if it.key is None else it.key)]
            if not same:
                return None
            item = same[-1]  # of a repeated key the last one counts
        return item

    def get(self, path: list) -> object:
        item = self.find(path)
        return DECODER.raw_decode(self.src, item.at)[0] if item else None

    def set(self, path: list, value: object) -> None:
        """Replace a value, or append it to its container, which is made if it is not there."""
        found = self.find(path)
        if found:
            self._put(found.at, found.end, self._render(value, self._indent(found.start)))
            return
        if not self.find(path[:-1]):
            self.set(path[:-1], [] if isinstance(path[-1], int) else {})
        outer = self.find(path[:-1])
        items = items_of(self.src, outer.at)
        key = "" if isinstance(path[-1], int) else json.dumps(path[-1]) + ": "
        if items:
            indent, end = self._indent(items[-1].start), items[-1].end
            lines = self._has_lines(outer.at, items[0].start)
            between = "," + self.newline + indent if lines else ", "
            self._put(end, end, between + key + self._render(value, indent))
        else:
            around = "" if self.inline else self.newline + self._indent(outer.at)
            indent = "" if self.inline else around + self.unit
            text = key + self._render(value, indent.lstrip("\r\n"))
            self._put(outer.at + 1, outer.end - 1, indent + text + around)

    def remove(self, path: list) -> None:
        item, outer = self.find(path), self.find(path[:-1])
        items = items_of(self.src, outer.at)
        index = items.index(item)
        if len(items) == 1:
            self._put(outer.at + 1, outer.end - 1, "")
        elif index:
            self._put(items[index - 1].end, item.end, "")
        else:
            self._put(item.start, items[1].start, "")

    def _put(self, start: int, end: int, text: str) -> None:
        self.src = self.src[:start] + text + self.src[end:]

    def _render(self, value: object, indent: str) -> str:
        unit = None if self.inline else self.unit
        text = json.dumps(value, ensure_ascii=self.ascii, indent=unit)
        return text.replace("\n", self.newline + indent)

    def _has_lines(self, start: int, end: int) -> bool:
        return bool(set(self.src[start:end]) & set("\r\n"))

    def _indent(self, pos: int) -> str:
        """The blanks at the start of the line that holds pos."""
        line = re.split("[\r\n]", self.src[:pos])[-1]
        return line[:len(line) - len(line.lstrip(" \t"))]


# =============================================================================
# Our entries
# =============================================================================
# An entry is ours by what it runs: the kit in one of its modes and nothing else, as the kit itself
# recognises it. No private key, nothing remembered. A status line that the user has becomes a part
# of ours (`-- sh -c CMD`), so that taking ours away gives back its exact text.

# The registered loader, for people's commands: a hook loads only a part of the file, so the
# bytecode of the whole has a folder of its own.
LOADER = (
    "import sys; from _frozen_importlib_external import SourceFileLoader as L; "
    "sys.pycache_prefix = sys.argv.pop() + '/people'; p = sys.argv.pop(); "
    "c = L('ctx_hooks', p).get_code('ctx_hooks'); sys.pycache_prefix = None; "
    "n = {'__name__': 'ctx_hooks', '__file__': p}; exec(c, n); n['main']()")
KINDS = {dict: "an object", list: "an array", str: "a string"}


def check_shape(value: object, events: list) -> None:
    """Raise ValueError where our entries could not be put in, or taken out exactly."""
    own, hooks = kit.dict_of(value), kit.dict_of(kit.dict_of(value).get("hooks"))
    parts = [("the whole", value, dict)]
    parts += [(name, own.get(name, {}), dict) for name in ("hooks", "statusLine", "permissions")]
    parts += [("permissions.allow", kit.dict_of(own.get("permissions")).get("allow", []), list)]
    parts += [("statusLine.command", line.get("command"), str)
              for line in [own.get("statusLine")] if isinstance(line, dict)]
    for event in events:
        parts.append((event, hooks.get(event, []), list))
        for group in kit.list_of(hooks.get(event)):
            parts += [("a group of " + event, group, dict),
                      ("the hooks in " + event, kit.dict_of(group).get("hooks"), list)]
    for name, found, kind in parts:
        if not isinstance(found, kind):
            raise ValueError("%s must be %s" % (name, KINDS[kind]))


def mode_of(hook: object) -> str:
    """The mode in which a hook of the settings runs our kit; "": not ours."""
    ours = kit.parse_command(kit.text_of(kit.dict_of(hook).get("command")))
    return ours.mode if ours and hook.get("type") == "command" else ""


def has_ours(value: dict) -> bool:
    return bool(kit.find_registrations(value) or status_words(value.get("statusLine")))


def merge(text: Text, wanted: dict, had: dict) -> None:
    """Bring our hooks in the settings to exactly `wanted`, {event: [group]}; the rest untouched.

    An entry that is there is brought up to date in its place. A container that holds nothing but
    ours goes with it, unless `had`, the settings before us, has it.
    """
    missing = {(event, mode_of(groups[0]["hooks"][0])): groups[0]
               for event, groups in wanted.items()}
    found = [(event, index, kit.list_of(kit.dict_of(group).get("hooks")))
             for event, groups in kit.dict_of(text.get(["hooks"])).items()
             for index, group in enumerate(kit.list_of(groups))]
    for event, index, hooks in reversed(found):  # so that indexes stay valid
        path, gone = ["hooks", event, index], []
        for place in reversed(range(len(hooks))):
            mode = mode_of(hooks[place])
            if (event, mode) in missing:  # keys that a person added (statusMessage) stay
                entry = {**hooks[place], **missing.pop((event, mode))["hooks"][0]}
                if entry != hooks[place]:
                    text.set(path + ["hooks", place], entry)
            elif mode:
                gone.append(place)
        if gone and len(gone) == len(hooks):
            take_out(text, path, had)
        else:
            for place in gone:
                text.remove(path + ["hooks", place])
    for (event, _), group in missing.items():
        text.set(["hooks", event, len(text.get(["hooks", event]) or [])], group)


def take_out(text: Text, path: list, had: dict) -> None:
    """Remove a value, and the containers that held nothing else, unless `had` has them."""
    text.remove(path)
    for end in range(len(path) - 1, 0, -1):
        before = had
        for key in path[:end]:
            before = kit.dict_of(before).get(key)
        if text.get(path[:end]) or before is not None:
            return
        text.remove(path[:end])


def strip(text: Text, had: dict, rule: str = "") -> None:
    """Take out all that is ours: hooks, status line, the permission rule if we added it."""
    merge(text, {}, had)
    line = text.get(["statusLine"])
    if status_words(line):
        wrapped = wrapped_status(line)
        if wrapped is None:
            text.remove(["statusLine"])
        else:
            text.set(["statusLine", "command"], wrapped)
    rules = text.get(["permissions", "allow"]) if rule else None
    if isinstance(rules, list) and rule in rules:
        take_out(text, ["permissions", "allow", rules.index(rule)], had)


def status_words(line: object) -> list:
    """What our status line runs, [] if the line is not ours."""
    command = kit.text_of(kit.dict_of(line).get("command"))
    run = kit.parse_run(command.replace(LOADER, kit.LOADER))
    return run[1] if run and run[1][:1] == ["statusline"] else []


def wrapped_status(line: dict) -> "str | None":
    """The user's command inside our status line, None if there is none."""
    words = status_words(line)
    words = words[words.index("--") + 1:] if "--" in words else []
    if words[:2] == ["sh", "-c"] and len(words) == 3:
        return words[2]
    return " ".join(map(shlex.quote, words)) or None


def set_status(text: Text, python: str, path: str) -> None:
    """Our status line, around the one that is there; its other keys (padding) stay."""
    line = text.get(["statusLine"])
    wrapped = wrapped_status(line) if status_words(line) else (line or {}).get("command")
    words = "" if wrapped is None else " -- sh -c " + shlex.quote(wrapped)
    command = ': ctx_hooks statusline; %s%s -I -S -X utf8 -c "%s" statusline%s %s %s || exit 0' % (
        kit.FIND_CACHE, python, LOADER, words, path, kit.CACHE)
    if IS_WINDOWS:  # there may be no sh; slower, as the file is compiled each time
        command = "%s -I -S -X utf8 %s statusline%s" % (python, path, words)
    if line is None:
        text.set(["statusLine"], {"type": "command", "command": command})
    elif line["command"] != command:
        text.set(["statusLine", "command"], command)


# =============================================================================
# Files and layout
# =============================================================================
# Every write goes to a temporary file in the same folder and is renamed into place. Nothing is
# written through a link that leads out of the project.


def quote_path(path: str) -> str:
    """A path as one word for the shell. On Windows / separates too, and \\ would be eaten."""
    return shlex.quote(path.replace("\\", "/") if IS_WINDOWS else path)


def running_python() -> str:
    """Homebrew deletes its versioned folder on upgrade; its `opt` link stays."""
    real = realpath(sys.executable) if sys.executable else ""
    stable = re.sub(r"/Cellar/([^/]+)/[^/]+/", r"/opt/\1/", real)
    return stable if exists(stable) else real


def read_bytes(path: str) -> "bytes | None":
    """None: there is no file. A pipe or a device would never end, so it is refused."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refused(path + " is not a regular file", "move it out of the way")
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def is_below(path: str, folder: str) -> bool:
    return os.path.normcase(path).startswith(join(os.path.normcase(folder), ""))


def write_atomic(path: str, data: bytes, mode: int = 0o666) -> None:
    """A file that is there keeps its mode and owner; a new one gets `mode` by umask."""
    handle, temporary = tempfile.mkstemp(prefix="." + basename(path) + ".", dir=dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        mode &= ~mask
        if exists(path):
            model = os.stat(path)
            mode = stat.S_IMODE(model.st_mode)
            with contextlib.suppress(OSError, AttributeError):  # only root may; not on Windows
                os.chown(temporary, model.st_uid, model.st_gid)
        os.chmod(temporary, mode)
        kit.insist(os.replace, temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class Layout:
    """The places of one install: `base` is PROJECT/.claude or the client's own folder, `root` what
    the other agents' files are relative to, the project or the home folder."""

    def __init__(self, project: str, scope: str) -> None:
        self.project, self.scope, own = project, scope, config_folder()
        self.base = own if scope == "user" else join(project, ".claude")
        self.root = os.path.expanduser("~") if scope == "user" else project
        self.scopes = ("user",) if scope == "user" else ("project", "local")  # of one kit
        self.hooks = join(self.base, "hooks")
        self.kit = join(self.hooks, KIT)
        self.hidden = join(self.hooks, ".ctx_hooks")
        self.ignore = join(self.base, ".gitignore")
        values = kit.read_config(join(project, kit.CONFIG_NAME))[0]
        self.context = join(project, values.get("context_dir", kit.DEFAULT_CONTEXT_DIR))
        if scope != "user" and realpath(self.base) == realpath(own):
            raise Refused(self.base + " holds your own settings, not a project's",
                          "use --scope user, or name the project: python3 install.py PATH")

    def settings(self, agent: str) -> str:
        if agent == "claude":
            name = "settings.local.json" if self.scope == "local" else "settings.json"
            return join(self.base, name)
        row = kit.DIALECTS[agent]
        name = row.user_settings if self.scope == "user" else row.settings
        return join(self.root, *name.split("/"))

    def command_path(self, agent: str, form: str = kit.SHELL_START) -> str:
        """The kit as it stands in a command: by the client's variable where it sets one."""
        return (self.scope != "user" and kit.kit_path(agent, form)) or quote_path(self.kit)

    def plan_hooks(self, agent: str, python: str) -> dict:
        """What is shared has to run on every system (on Windows in Git Bash), what is private on
        this one, where PowerShell may be all there is."""
        is_here = IS_WINDOWS and self.scope != "project"
        form = kit.WINDOWS_START if is_here else kit.SHELL_START
        return kit.plan_hooks(agent, python, self.command_path(agent, form), form)

    def name(self, path: str) -> str:
        """A path for the record, relative to base."""
        return os.path.relpath(path, self.base).replace(os.sep, "/")

    def show(self, path: str) -> str:
        """A path for people: relative to the project, or with ~."""
        for folder, prefix in ((self.project, ""), (os.path.expanduser("~"), "~" + os.sep)):
            if is_below(path, folder):
                return prefix + path[len(join(folder, "")):]
        return path

    def guard(self, path: str) -> str:
        """The path, links resolved. Raises Refused if it leads out of the project."""
        real = realpath(path)
        if self.scope != "user" and not is_below(real, realpath(self.project)):
            raise Refused("%s leads out of the project, to %s" % (self.show(path), real),
                          "put a folder or file of the project's own in place of the link")
        return real


def config_folder() -> str:
    """The client's folder for the user's own settings."""
    return os.path.abspath(kit.client_home(dict(os.environ)))


def find_project(start: str) -> str:
    """The nearest folder with .git or .claude (the user's own does not count), else start."""
    folder, own = start, realpath(config_folder())
    while not exists(join(folder, ".git")) and not (
            isdir(join(folder, ".claude")) and realpath(join(folder, ".claude")) != own):
        if dirname(folder) == folder:
            return start
        folder = dirname(folder)
    return folder


# =============================================================================
# Settings and record
# =============================================================================
# The record is what uninstall must know and cannot see. It is read as somebody else's text would
# be: what does not fit is dropped, no name leaves its folder. Names are relative to `base`.

Settings = namedtuple("Settings", "path real data src value")  # src: without BOM, "{}" if none
# kit, older: checksums of our kit and the one before it (an upgrade may be cut short); folders:
# those that we made; settings: {name: Kept}; source: where install.py lies, for `doctor`'s advice
Record = namedtuple("Record", "kit older folders settings source", defaults=("",))
# original: the text before us, None if no file; after: checksum of what we wrote; rule: the
# permission rule that we added
Kept = namedtuple("Kept", "original after rule", defaults=(None, "", ""))


def parse_settings(data: "bytes | None", events: list) -> tuple:
    """(text, value) of settings in which these events can be registered. Raises ValueError."""
    def refuse(name: str) -> None:
        raise ValueError(name + " is not JSON")

    src = (data or b"").decode("utf-8-sig")
    src = src if src.strip(" \t\r\n") else "{}\n"
    try:
        value = json.loads(src, parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    check_shape(value, events)
    return src, value


def read_settings(layout: Layout, agent: str) -> Settings:
    """Read and check the settings of an agent. Raises Refused; what is no JSON has its line and
    column in the message."""
    path = layout.settings(agent)
    real, data = layout.guard(path), read_bytes(path)
    try:
        src, value = parse_settings(data, list(kit.DIALECTS[agent].events))
    except ValueError as problem:
        raise Refused("%s: %s" % (layout.show(path), problem), HINT_JSON) from None
    return Settings(path, real, data, src, value)


def encode(now: Settings, src: str) -> bytes:
    return (BOM if (now.data or b"").startswith(BOM) else b"") + src.encode("utf-8")


def registrations(layout: Layout, scopes: tuple = ("project", "local", "user")) -> list:
    """[(scope, settings file)] that run our kit, by any agent."""
    env = dict(os.environ)
    return [(file.scope, os.path.normpath(file.path)) for agent in kit.DIALECTS
            for file in kit.read_registrations(agent, layout.project, env)
            if file.entries and file.scope in scopes]


def is_registered(layout: Layout, agent: str) -> bool:
    return layout.settings(agent) in [path for _, path in registrations(layout)]


def read_record(layout: Layout) -> Record:
    raw, settings = kit.read_json(join(layout.hidden, "record.json")), {}
    for name, row in kit.dict_of(raw.get("settings")).items():
        text = kit.dict_of(row).get("original", 0)
        if text is None or isinstance(text, str):
            settings[name] = Kept(text, *(kit.text_of(row.get(key)) for key in ("after", "rule")))
    folders = [name for name in kit.list_of(raw.get("folders")) if isinstance(name, str)]
    return Record(kit.text_of(raw.get("kit")), kit.text_of(raw.get("older")), folders, settings)


def settings_before(kept: Kept) -> dict:
    """The settings before us, {} if there were none or they are no longer readable."""
    try:
        return parse_settings((kept.original or "").encode("utf-8"), [])[1]
    except ValueError:
        return {}


def text_before(now: Settings, known: Kept) -> "str | None":
    """The text to go back to: the recorded one if nobody else changed the settings since, else
    what is there without us. None: no file."""
    if now.data is None or not (has_ours(now.value) or known.rule):
        return None if now.data is None else now.data.decode("utf-8")
    text, had = Text(now.src), settings_before(known)
    strip(text, had, known.rule)
    same = json.dumps(text.get([]), sort_keys=True) == json.dumps(had, sort_keys=True)
    if known.after and same and (digest_of(now.data) == known.after or known.original is None):
        return known.original
    return encode(now, text.src).decode("utf-8")


# =============================================================================
# Planning
# =============================================================================
# Looks at everything and decides everything, and writes nothing: a list of steps in the order
# in which they are safe. Install: kit before settings. Uninstall: the reverse.

# One change on disk, told as `verb path note`. kind: write, edit (of a file of the user's), move,
# remove, rmdir, say.
Step = namedtuple("Step", "kind path verb note data old to mode",
                  defaults=("", "", None, None, "", 0o666))
Job = namedtuple("Job", "layout record options agents python")  # python: shell text


def plan_install(job: Job) -> list:
    layout, settings, kept = job.layout, [], dict(job.record.settings)
    for agent in job.agents:
        steps, kept[layout.name(layout.settings(agent))] = plan_settings(job, agent)
        settings += steps
    if layout.scope != "user" and "claude" in job.agents and is_registered(layout, "copilot"):
        settings += plan_settings(job, "copilot", True)[0]  # it runs .claude/settings.json too
    steps, folders = plan_leftovers(layout) + plan_kit(job), set(job.record.folders)
    if any(step.kind != "say" for step in steps + settings):
        for folder in [layout.hooks] + [dirname(layout.settings(a)) for a in job.agents]:
            while not isdir(folder):
                folders.add(layout.name(folder))
                folder = dirname(folder)
        record = Record(digest_of(SOURCE), job.record.kit, sorted(folders), kept, HERE)
        steps = plan_record(layout, record) + steps
    users = {path for _, path in registrations(layout, layout.scopes)}
    users |= {layout.settings(agent) for agent in job.agents}
    steps += plan_ignore(layout, users) + settings
    return steps + (plan_context(layout) if job.options.init else [])


def plan_kit(job: Job) -> list:
    path, old = job.layout.kit, read_bytes(job.layout.kit)
    if digest_of(old) == digest_of(SOURCE):
        return [Step("say", path, "unchanged")]
    steps, was = [], release_of(old, job.record)
    if old is not None and not was:
        if not job.options.force:
            raise Refused(job.layout.show(path) + " is not an untouched release of ours: edited, "
                          "or another's file", "--force sets it aside, --uninstall puts it back")
        stamp = time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + str(time.time_ns())
        to = join(job.layout.hidden, "%s.kept-%s" % (KIT, stamp))
        steps, old = [Step("move", path, "keep", " as " + job.layout.show(to), to=to)], None
    version = " (%s%s)" % (kit.VERSION, ", was " + was if was else "")
    return steps + [Step("write", path, "write", version, SOURCE, old)]


def release_of(data: "bytes | None", record: Record) -> str:
    """The version of an untouched kit of ours, "" for anything else."""
    known = dict.fromkeys((record.kit, record.older), "an older release")
    known = {**known, **kit.KNOWN_RELEASES, digest_of(SOURCE): kit.VERSION, "": ""}
    return known.get(digest_of(data), "")


def siblings(layout: Layout) -> list:
    """What an ordinary import of the kit's name would find in place of, or before, its file."""
    return sorted(map(os.path.normpath, kit.find_siblings(layout.hooks)))


def plan_file(path: str, data: "bytes | None", note: str = "", **fields) -> list:
    """The step that gives a file these bytes, or with None removes it; [] where it is so."""
    old = read_bytes(path)
    if data is None and old is not None:
        return [Step("remove", path, "remove", old=old)]
    return [] if data == old else [Step("write", path, "write", note, data, old, **fields)]


def plan_leftovers(layout: Layout) -> list:
    """The bytecode and the ignore list that 0.1.0 left beside the kit."""
    cache, ignore = join(layout.hooks, "__pycache__"), join(layout.hooks, ".gitignore")
    steps = [Step("remove", path, "remove") for path in siblings(layout)
             if is_below(path, cache) and re.search(r"\.pyc(\.\d+)?$", path)]
    steps += [Step("rmdir", cache)] if steps else []
    is_ours = (read_bytes(ignore) or b"").replace(b"\r", b"") in OLD_IGNORES
    return steps + (plan_file(ignore, None) if is_ours else [])


def plan_backups(job: Job) -> list:
    """Settings that older releases kept: those that are back now go, of others it is said."""
    before = [kept.original for kept in job.record.settings.values()]
    paths = [join(folder, name) for folder in filter(isdir, (job.layout.base, job.layout.hidden))
             for name in sorted(os.listdir(folder)) if re.search(r"\.json\.bak-[0-9TZ-]+$", name)]
    return [Step("remove", path, "remove") if read_bytes(path).decode("utf-8", "replace") in before
            else Step("say", path, "keep") for path in filter(isfile, paths)]


def plan_settings(job: Job, agent: str, remove: bool = False) -> tuple:
    """(steps that bring our entries in an agent's settings up to date, or give the settings their
    old bytes back; what to remember of them)."""
    now = read_settings(job.layout, agent)
    known = job.record.settings.get(job.layout.name(now.path), Kept())
    before = text_before(now, known)
    src, rule = (before, "") if remove else merged_text(job, agent, now, settings_before(known))
    new = None if src is None else src.encode("utf-8") if remove else encode(now, src)
    kept, steps = Kept(before, digest_of(new), rule or known.rule), []
    if new is None and now.data is not None:
        steps.append(Step("remove", now.real, "remove", old=now.data))
    elif new != now.data:
        verb = "write" if now.data is None else "merge into"
        verb = "take our hooks out of" if remove else verb
        steps.append(Step("edit", now.real, verb, "", new, now.data))
    elif not remove:
        steps.append(Step("say", now.path, "unchanged"))
    return steps, kept


def merged_text(job: Job, agent: str, now: Settings, had: dict) -> tuple:
    """(the settings as they should be, the permission rule if it was added)."""
    text, rule = Text(now.src), ""
    merge(text, job.layout.plan_hooks(agent, job.python), had)
    if agent == "claude" and (job.options.statusline or status_words(now.value.get("statusLine"))):
        path = quote_path(job.layout.kit) if IS_WINDOWS else job.layout.command_path(agent)
        set_status(text, job.python, path)
    if agent == "claude" and job.options.allow_handoff:
        folder = os.path.relpath(job.layout.context, job.layout.project).replace(os.sep, "/")
        # `/` is the folder whose settings these are, so the user's own need another form
        rule = "Edit(%s/%s/handoffs/**)" % ("**" if job.layout.scope == "user" else "", folder)
        rules = text.get(["permissions", "allow"]) or []
        if rule in rules:
            return text.src, ""
        text.set(["permissions", "allow", len(rules)], rule)
    return text.src, rule


def plan_record(layout: Layout, record: Record) -> list:
    """The record comes first: an install that is cut short can still be undone."""
    settings = {name: kept._asdict() for name, kept in record.settings.items()}
    data = json.dumps(dict(record._asdict(), settings=settings), indent=1).encode() + b"\n"
    steps = plan_file(join(layout.hidden, "record.json"), data, mode=0o600)
    return [step._replace(verb="") for step in steps]


def plan_ignore(layout: Layout, users: set) -> list:
    """A private install stays out of git by an ignore list of its own, which hides itself. `users`
    are the settings files that will run the kit."""
    private = {path for path in users if path.endswith(".local.json")}
    text = (IGNORE_LOCAL_KIT if private == users else IGNORE_LOCAL).encode() if private else None
    ours = layout.scope != "user" and digest_of(read_bytes(layout.ignore)) in LOCAL_DIGESTS
    return plan_file(layout.ignore, text) if ours else []


def plan_uninstall(job: Job) -> list:
    layout, steps = job.layout, []
    gone = [agent for agent in job.agents if agent == "claude" or is_registered(layout, agent)]
    for agent in gone:
        steps += plan_settings(job, agent, True)[0]
    paths = [layout.settings(agent) for agent in gone]
    others = [path for _, path in registrations(layout, layout.scopes) if path not in paths]
    if others:
        steps += [Step("say", layout.kit, "keep", " (%s uses it)" % layout.show(others[0]))]
        left = {name: kept for name, kept in job.record.settings.items()
                if name not in map(layout.name, paths)}
        steps += plan_record(layout, job.record._replace(settings=left)) if left else []
    else:
        steps += plan_sections(layout) + plan_kit_removal(job)
        steps += plan_leftovers(layout) + plan_backups(job)
        path = join(layout.hidden, "record.json")
        steps += [Step("remove", path)] if lexists(path) else []
    steps += plan_ignore(layout, set(others))
    made = [os.path.normpath(join(layout.base, name)) for name in job.record.folders]
    steps += [Step("rmdir", path) for path in [layout.hidden] + sorted(made, key=len)[::-1]
              if is_below(path, layout.project) or layout.scope == "user"]
    if isdir(layout.context) and any(step.verb for step in steps):
        steps.append(Step("say", layout.context, "keep", os.sep + " (it is yours)"))
    return steps


def plan_kit_removal(job: Job) -> list:
    layout, data, aside = job.layout, read_bytes(job.layout.kit), []
    if data is not None and realpath(layout.kit) == join(HERE, KIT):
        return [Step("say", layout.kit, "keep", " (it lies beside this install.py)")]
    if data is not None and not release_of(data, job.record):
        return [Step("say", layout.kit, "keep", " (edited, or another's file)")]
    steps = plan_file(layout.kit, None)
    for folder in filter(isdir, (layout.hooks, layout.hidden)):  # 0.1.0 kept it beside the kit
        aside += [join(folder, name) for name in sorted(os.listdir(folder))
                  if re.fullmatch(r"ctx_hooks\.py\.kept-[0-9TZ-]+", name)]
    if aside:
        steps.append(Step("move", aside[0], "restore", " as " + KIT, to=layout.kit))
    return steps + [Step("say", path, "keep") for path in aside[1:]]


def plan_sections(layout: Layout) -> list:
    """The startup context that the kit put into an instruction file goes with it."""
    steps = []
    for name in kit.INSTRUCTION_FILES if layout.scope != "user" else ():
        path = join(layout.project, *name.split("/"))
        data = read_bytes(path) or b""
        bare, _, is_made = kit.strip_sections(data)
        if not bare and is_made:
            steps.append(Step("remove", path, "remove", old=data))
        elif bare != data:
            verb = "take our section out of"
            steps.append(Step("edit", path, verb, "", bare, data))
    return steps


def plan_context(layout: Layout) -> list:
    """The context files, as far as they are not there."""
    ignore = IGNORE_ALL if layout.scope == "local" else kit.GITIGNORE_TEXT
    files = dict({name: TEMPLATES[name] for name in kit.CONTEXT_FILES}, **{".gitignore": ignore})
    lines = "".join("- %s: `%s`\n" % pair for pair in seen_commands(layout.project).items())
    files["CONVENTIONS.md"] = files["CONVENTIONS.md"].replace("\n- (", "\n" + lines + "- (", 1)
    paths = [(join(layout.context, name), files[name].encode()) for name in files]
    return [Step("say", path, "unchanged") if lexists(path)
            else Step("write", path, "write", "", data) for path, data in paths]


def seen_commands(project: str) -> dict:
    """{Build, Test, Lint: command}, as far as the project's own files tell."""
    def text(name: str) -> str:
        return kit.read_text(join(project, name))

    targets = re.findall(r"^([a-z]+)[ \t]*:(?!=)", text("Makefile"), re.MULTILINE)
    try:
        scripts = dict(json.loads(text("package.json") or "{}").get("scripts") or {})
    except (ValueError, AttributeError, TypeError, RecursionError):
        scripts = {}
    locks = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun"}
    node = next((locks[name] for name in locks if text(name)), "npm") + " run "
    python, run = text("pyproject.toml"), "uv run " if text("uv.lock") else "python3 -m "
    signs = [(word in words, label, prefix + word) for words, prefix in (
        (targets, "make "), (scripts, node)) for word, label in COMMAND_WORDS.items()]
    rust, go = text("Cargo.toml"), text("go.mod")
    signs += [("[build-system]" in python, "Build", "python3 -m build"),
              ("pytest" in python, "Test", run + "pytest"),
              ("[tool.ruff" in python, "Lint", run + "ruff check"),
              (rust, "Build", "cargo build"), (rust, "Test", "cargo test"),
              (go, "Build", "go build ./..."), (go, "Test", "go test ./...")]
    found = {label: command for sign, label, command in reversed(signs) if sign}
    return {label: found[label] for label in ("Build", "Test", "Lint") if label in found}


# =============================================================================
# Launcher
# =============================================================================
# `ctx` in a folder of the user's own. It runs a project's kit only if it is a release known by its
# checksum: a project is not the user, and may have brought a ctx_hooks.py of its own.

LAUNCHER_FOLDER = join("~", ".local", "bin")
LAUNCHER_MARK = '"""ctx: ctx_hooks from any folder of a project. Written by install.py."""'
LAUNCHER = '''\
#!/usr/bin/env python3
%s
import hashlib
import os
import subprocess
import sys

KNOWN = %s  # sha256 of the releases
LOADER = %r
NAME = os.path.join("hooks", "ctx_hooks.py")


def is_known(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read().replace(b"\\r\\n", b"\\n")).hexdigest() in KNOWN


folder, found = os.path.join(os.getcwd(), "."), []
while folder != os.path.dirname(folder):
    folder = os.path.dirname(folder)
    found.append(os.path.join(folder, ".claude", NAME))
found = [path for path in found if os.path.isfile(path)]
own = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
path = next(filter(is_known, found), os.path.join(own, NAME))
if not os.path.isfile(path):
    sys.exit("error: %%s\\nhint: python3 install.py --init installs it, with --launcher it renews "
             "ctx" %% (found[0] + " is no release that ctx knows, so it is not run" if found
                      else "there is no ctx_hooks in this folder or above"))
cache = os.environ.get("XDG_CACHE_HOME", "")
argv = [sys.executable, "-I", "-S", "-X", "utf8", "-c", LOADER, *sys.argv[1:], path, os.path.join(
        cache if os.path.isabs(cache) else os.path.expanduser("~/.cache"), "ctx_hooks")]
env = dict(os.environ, CTX_LAUNCHER="1")
if os.name == "nt":
    sys.exit(subprocess.call(argv, env=env))
os.execve(argv[0], argv, env)
'''


def plan_launcher(folder: str, remove: bool) -> list:
    known, steps = sorted([*kit.KNOWN_RELEASES, digest_of(SOURCE)]), []
    if exists(join(folder, ".git")) or isdir(join(folder, ".claude")):
        raise Refused(folder + " is a project, no folder for programs", "write --launcher=DIR")
    files = {"ctx": LAUNCHER % (LAUNCHER_MARK, json.dumps(known), LOADER)}
    if IS_WINDOWS:
        files["ctx.cmd"] = '@rem %s\n@"%s" "%%~dp0ctx" %%*\n' % (LAUNCHER_MARK, running_python())
    for name, text in files.items():
        path = join(folder, name)
        if lexists(path) and LAUNCHER_MARK.encode() not in (read_bytes(path) or b""):
            raise Refused(path + " is another program of that name",
                          "name another folder: --launcher=DIR")
        steps += plan_file(path, None if remove else text.encode(), mode=0o777)
    return steps


# =============================================================================
# Command line
# =============================================================================

PAST = {"write": "wrote", "merge into": "merged into", "remove": "removed", "keep": "kept",
        "restore": "restored", "take our hooks out of": "took our hooks out of",
        "take our section out of": "took our section out of", "unchanged": "unchanged"}
SIBLING = "%s: an import of ctx_hooks would find this; remove it if it is not yours"


def say(text: str, error: bool = False) -> None:
    """Names in a stranger's project may hold anything; the terminal gets none of it."""
    print(kit.for_terminal(text), file=sys.stderr if error else sys.stdout, flush=True)


def check(job: Job) -> int:
    """Current is what an install would not change."""
    found = [tell(step, job, "would ") for step in plan(job) if step.verb not in ("", "unchanged")]
    found += [SIBLING % job.layout.show(path) for path in siblings(job.layout)]
    if found or not job.options.quiet:
        say("\n".join(found) or "ok: ctx_hooks %s is installed and current for %s in %s" % (
            kit.VERSION, ", ".join(job.agents), job.layout.project))
    return 1 if found else 0


def tell(step: Step, job: Job, will: str = "") -> str:
    verb = step.verb if step.verb == "unchanged" else will + step.verb if will else PAST[step.verb]
    return "%s %s%s" % (verb, job.layout.show(step.path), step.note)


def apply_step(step: Step, job: Job) -> None:
    writes, layout = step.kind in ("write", "edit"), job.layout
    if (writes or step.old is not None) and read_bytes(step.path) != step.old:
        # the client writes settings too; what came in between must not be lost
        raise Refused(layout.show(step.path) + " changed in this very moment", "run this again")
    if writes or step.kind == "move":
        folder = dirname(step.to or step.path)
        os.makedirs(folder, exist_ok=True)
        if folder == layout.hidden and not exists(join(folder, ".gitignore")):
            write_atomic(join(folder, ".gitignore"), IGNORE_ALL.encode())
    if writes:
        write_atomic(step.path, step.data, step.mode)
    elif step.kind == "move":
        os.rename(step.path, step.to)
    elif step.kind == "remove":
        os.unlink(step.path)
    elif step.kind == "rmdir":
        with contextlib.suppress(OSError):  # it is not empty: somebody uses it
            if step.path == layout.hidden and os.listdir(step.path) == [".gitignore"]:
                os.unlink(join(step.path, ".gitignore"))
            os.rmdir(step.path)


def format_step(step: Step, job: Job) -> str:
    """What a dry run says of a step: a line, and of settings what they gain and lose, or with
    --verbose the whole change."""
    if not step.verb:
        return ""
    text = tell(step, job, "would ")
    if step.kind == "write":
        text += ", {:,} lines, sha256 {}".format(step.data.count(b"\n"), digest_of(step.data))
    if job.options.verbose:
        return "\n".join([text] + format_diff(step, job.layout.show(step.path)))
    is_json = step.kind == "edit" and step.path.endswith(".json")
    return "\n".join([text] + (settings_news(step) if is_json else []))


def format_diff(step: Step, shown: str) -> list:
    """The change of a text as lines that `patch -p1` understands."""
    names = ["/dev/null" if data is None else side + shown.replace(os.sep, "/")
             for side, data in (("a/", step.old), ("b/", step.data))]
    texts = [re.findall("[^\n]*\n|[^\n]+", (data or b"").decode("utf-8", "surrogateescape"))
             for data in (step.old, step.data)]
    lines = [line if line[-1] == "\n" else line + "\n\\ No newline at end of file\n"
             for line in difflib.unified_diff(*texts, *names)]
    return "".join(lines).split("\n")[:-1]


def settings_news(step: Step) -> list:
    """Which events run which mode from now on or no longer, and every other line that changes."""
    old, new = (json.loads((data or b"").decode("utf-8-sig").strip() or "{}")
                for data in (step.old, step.data))
    news = []
    for sign, have, other in (("+", new, old), ("-", old, new)):
        known = [row[:2] for row in kit.find_registrations(other)]
        hooks = ["%s %s" % (event, ours.mode) for event, command, ours
                 in kit.find_registrations(have) if (event, command) not in known]
        lines, elsewhere = (json.dumps(dict(value, hooks=None), indent=1).splitlines()
                            for value in (have, other))
        hooks = ["hooks: " + ", ".join(hooks)] if hooks else []
        news += ["  %s %s" % (sign, line.strip()) for line in hooks + lines
                 if line not in elsewhere and re.search(r"\w", line)]
    return news


def parse_arguments(argv: "list | None") -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="install.py", description="Install ctx_hooks into a project, or take it out again.",
        epilog="example: python3 install.py ~/src/app --init")
    add = parser.add_argument
    add("project", metavar="PROJECT", nargs="?",
        help="its folder; default: the nearest parent with .claude or .git, else the current one")
    add("--scope", choices=("project", "local", "user"), default="project",
        help="project: settings shared through git (default); local: yours for this project; user: "
        "yours for all projects")
    add("--agent", action="append", choices=(*kit.DIALECTS, "all"), help="the client to "
        "register with, may be repeated; default: claude, those whose folder (.codex and so on) is "
        "there, and those registered already")
    add("--launcher", metavar="DIR", nargs="?", const=LAUNCHER_FOLDER,
        help="also put the short command `ctx` into DIR (~/.local/bin); with --uninstall: out")
    add("--python", metavar="PATH", help="the Python that runs the hooks; default: python3, "
        "in settings of your own the one that runs this")
    for name, text in (
            ("uninstall", "take out what was installed; your .context stays"),
            ("dry-run", "say what would change; write nothing"),
            ("verbose", "with --dry-run: every change as a diff"),
            ("check", "exit 0 if installed and current, else 1 and why"),
            ("init", "also create .context with the context files that are not there"),
            ("only-init", "create the context files and nothing else"),
            ("statusline", "also show the fullness in the status line, below your own"),
            ("allow-handoff", "also let the agent write handoffs unasked (one permission rule)"),
            ("force", "replace an edited or foreign ctx_hooks.py; --uninstall puts it back"),
            ("quiet", "say nothing unless it fails"),
            ("version", "print version and checksum of the kit")):
        add("--" + name, action="store_true", help=text)
    options = parser.parse_args(argv)
    if options.check and (options.dry_run or options.uninstall):
        parser.error("--check goes neither with --dry-run nor with --uninstall")
    if options.launcher:
        options.launcher = os.path.abspath(os.path.expanduser(options.launcher))
    return options


def main(argv: "list | None" = None) -> int:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started with the stream closed
            setattr(sys, name, open(os.devnull, "w"))
        getattr(sys, name).reconfigure(errors="backslashreplace")
    options = parse_arguments(argv)
    try:
        return run(options)
    except Refused as problem:
        message, hint = problem.args
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        message = "%s: %s" % (problem.filename or "cannot go on", problem.strerror)
        hint = "mend that, then run this again"
    say("error: %s\nhint: %s" % (message, hint), True)
    return 1


def run(options: argparse.Namespace) -> int:
    if options.version:
        say("ctx_hooks %s\nsha256 %s" % (kit.VERSION, digest_of(SOURCE)))
        return 0
    project = os.path.abspath(options.project or find_project(os.getcwd()))
    if not isdir(project):
        raise Refused(project + " is not a folder", "name the project's folder")
    if not options.project and options.scope != "user" and realpath(project) == HERE:
        raise Refused("this is the kit's own folder, not a project that uses it",
                      "run it from the project, or name that: python3 install.py PATH")
    layout = Layout(project, options.scope)
    layout.guard(layout.hidden)
    agents = choose_agents(options, layout)
    python = "" if options.uninstall or options.only_init else pick_python(options, layout, agents)
    job = Job(layout, read_record(layout), options, agents, python)
    return check(job) if options.check else work(job)


def choose_agents(options: argparse.Namespace, layout: Layout) -> list:
    """Those asked for; else Claude Code, those whose folder is there, those registered already."""
    asked, names = set(options.agent or ()), list(kit.DIALECTS)
    if layout.scope == "local":
        if asked - {"claude", "all"}:
            raise Refused("only Claude Code has private settings in a project",
                          "use --scope user for the others")
        return ["claude"]
    if asked and "all" not in asked:
        names = [name for name in names if name in asked]
    elif not asked and not options.uninstall:
        files = {name: layout.settings(name)[len(layout.root) + 1:] for name in names}
        names = [name for name in names if name == "claude" or is_registered(layout, name)
                 or isdir(join(layout.root, files[name].split(os.sep)[0]))]
    if layout.scope == "project" and not options.uninstall and "copilot" in names and (
            "claude" in names or is_registered(layout, "claude")):
        names.remove("copilot")  # it runs what stands in .claude/settings.json
    return names


def pick_python(options: argparse.Namespace, layout: Layout, agents: list) -> str:
    """The first that can run the kit, as shell text: --python, else what is registered already,
    else `python3` in shared settings, since a path of this machine means nothing on another, and
    in private ones the real path. Raises Refused with all reasons."""
    names = [ours.python for agent in agents for _, _, ours in
             kit.find_registrations(read_settings(layout, agent).value) if ours.python][:1]
    own, problems = [running_python()] if layout.scope != "project" else [], []
    if IS_WINDOWS and own and not re.fullmatch(r"[\w:./~+-]+", own[0].replace("\\", "/")):
        own = []  # no shell but sh takes a quoted first word for a command
    names += own or (["py -3", "python", "python3"] if IS_WINDOWS else ["python3"])
    if options.python:
        is_path = dirname(options.python) and exists(options.python)
        names = [os.path.abspath(options.python) if is_path else options.python]
    os.environ["PYTHON_MANAGER_AUTOMATIC_INSTALL"] = "false"  # `py` installs nothing
    for python in dict.fromkeys(names):
        words, _, problem = kit.find_python(kit.slashed(python), kit.slashed(layout.project))
        if words:
            return python if python == "py -3" else quote_path(python)
        problems.append(problem)
    raise Refused("; ".join(problems), "name an interpreter that works, for example --python "
                  + quote_path(running_python()))


def plan(job: Job) -> list:
    options, layout = job.options, job.layout
    steps = (plan_context(layout) if options.only_init else plan_uninstall(job)
             if options.uninstall else plan_install(job))
    for step in steps:
        layout.guard(step.path)
        layout.guard(step.to or step.path)
        if step.kind == "edit" and step.old is not None and not os.access(step.path, os.W_OK):
            raise Refused(layout.show(step.path) + " is read-only", "make it writable first")
    return steps + (plan_launcher(options.launcher, options.uninstall) if options.launcher else [])


def work(job: Job) -> int:
    """Carry out the steps, or with --dry-run say what they are."""
    options, steps = job.options, plan(job)
    if job.layout.project != os.getcwd() and options.scope != "user" and not options.quiet:
        say("project: " + job.layout.project)
    for step in steps:
        if not options.dry_run:
            apply_step(step, job)
        text = format_step(step, job) if options.dry_run else tell(step, job) if step.verb else ""
        if text and options.verbose and not sys.stdout.isatty():  # a patch has its own bytes
            sys.stdout.buffer.write((text + "\n").encode("utf-8", "surrogateescape"))
        elif text and not options.quiet:
            say(text)
    if options.dry_run or options.quiet:
        return 0
    for hint in [] if options.uninstall or options.only_init else install_hints(job):
        say("hint: " + hint, True)
    if options.init and any(step.verb == "write" and dirname(step.path) == job.layout.context
                            for step in steps):
        say("hint: what you write into %s%s the agent is told to read; say there what is so in "
            "this project" % (job.layout.show(job.layout.context), os.sep), True)
    say(next_line(steps, job))
    return 0


def is_on_path(folder: str) -> bool:
    path = os.environ.get("PATH", "").split(os.pathsep)
    return folder in map(os.path.abspath, filter(None, path))


def install_hints(job: Job) -> list:
    layout, options = job.layout, job.options
    hints = [SIBLING % layout.show(path) for path in siblings(layout)]
    hints += ["the hooks stand in --scope %s too and would run twice; take one out: install.py "
              "--uninstall --scope %s" % (scope, scope) for scope, path in registrations(layout)
              if scope != layout.scope and "claude" in job.agents
              and dirname(path) in (layout.base, config_folder())]
    if IS_WINDOWS and layout.scope == "project":
        hints.append("shared hooks need Git Bash on Windows; without it use --scope local")
    if layout.scope == "local" and digest_of(read_bytes(layout.ignore)) not in LOCAL_DIGESTS:
        hints.append("%s is your own: add /settings.local.json and /hooks/ctx_hooks.py to it, or "
                     "git would see them" % layout.show(layout.ignore))
    if options.launcher and not is_on_path(options.launcher):
        hints.append("%s is not on your PATH yet, so `ctx` is not found" % options.launcher)
    return hints + [agent + ": " + STILL_TO_DO[agent] for agent in job.agents
                    if agent in STILL_TO_DO]


def next_line(steps: list, job: Job) -> str:
    """What to do next: a command that works as it stands in the folder where this was run."""
    layout, here, python, options = job.layout, os.getcwd(), job.python, job.options
    scopes = [scope for scope, _ in registrations(layout) if scope != layout.scope]
    inside = is_below(join(here, ""), layout.project)
    if options.uninstall and scopes:
        return "next: still registered elsewhere; run install.py --uninstall --scope " + scopes[0]
    if options.uninstall and not any(step.verb for step in steps):
        return "nothing of ours in " + layout.show(layout.base)
    if options.uninstall:
        has_launcher = not options.launcher and exists(os.path.expanduser(LAUNCHER_FOLDER + "/ctx"))
        return "next: nothing; running sessions stop using the hooks at once" + (
            "; the command ctx stays, --uninstall --launcher removes it" if has_launcher else "")
    if options.only_init:
        return "next: say in %s what you work on" % layout.show(join(layout.context, "TASKS.md"))
    if not isdir(layout.context):
        return "next: %s %s --init%s%s   (without %s%s the hooks stay silent)" % (
            python, quote_path(join(HERE, "install.py")),
            "" if layout.scope == "project" else " --scope " + layout.scope,
            "" if inside else " " + quote_path(layout.project), layout.show(layout.context), os.sep)
    path = os.path.relpath(layout.kit, here if inside else layout.project)
    path = quote_path(layout.kit if layout.scope == "user" else path)
    go = "" if inside else "cd %s && " % quote_path(layout.project)
    if options.launcher and is_on_path(options.launcher):
        return "next: %sctx doctor" % go
    return "next: %s%s %s doctor" % (go, python, path)


if __name__ == "__main__":
    sys.exit(main())
