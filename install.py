#!/usr/bin/env python3
"""Put ctx_hooks into a project's Claude Code settings, or take it out again.

    python3 install.py                    install into the project around the current folder
    python3 install.py --dry-run          show every change as a diff, write nothing
    python3 install.py --check            exit 0 if installed and current, else say what is not
    python3 install.py --uninstall        take it out; the settings get their old bytes back

What it writes, all of it (in <base> = PROJECT/.claude, or ~/.claude with --scope user):

    <base>/hooks/ctx_hooks.py             the kit, a copy of the file beside this one
    <base>/hooks/__pycache__/             its bytecode, so that no hook ever compiles it
    <base>/hooks/.gitignore               hides bytecode and record from git (not if you have one)
    <base>/hooks/.ctx_hooks/              the record that uninstall goes by
    <base>/settings.json                  our hooks (settings.local.json with --scope local)
    <base>/settings.json.bak-<UTC time>   the bytes before a change; the last three are kept
    PROJECT/.context/                     with --init only: context files, none overwritten

Nothing else is touched, no network is used, nothing is ever asked. Everything is checked
before the first write. Needs Python 3.8; this file still parses on 3.6 to be able to say so.

Contents, bottom-up: constants and messages; JSON with positions; splicing; our entries; status
line; interpreter; files and lock; layout and sources; settings files; record; planning;
checking; carrying out; command line.
"""

import sys

if sys.version_info < (3, 8):
    sys.exit("error: ctx_hooks needs Python 3.8 or newer, this is %d.%d\n"
             "hint: run install.py with a newer one, for example python3.12 install.py"
             % tuple(sys.version_info[:2]))

import argparse
import ast
import contextlib
import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections import Counter
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# =============================================================================
# Constants and messages
# =============================================================================

KIT = "ctx_hooks.py"
MODES = ("inject", "gate", "monitor", "stop-enforce", "cleanup")
STATUSLINE = "statusline"
PYTHON_MINIMUM = (3, 8)
LOCK_WAIT_S = 10
LOCK_STALE_S = 60
PROBE_WAIT_S = 20
BACKUPS_KEPT = 3
DEPTH_LIMIT = 200

# The command in hooks.json, and why it looks as it does:
# - Shell form, not exec form (`command` + `args`). The client starts both equally fast, but other
#   programs that read the same settings know only `command`: of an exec form they would start a
#   bare `python3` that waits for a program on stdin.
# - `|| exit 0`, which needs a shell. The client reads exit 2 as "deny this tool", and a missing
#   script is exactly that (`python3 gone.py` exits 2). Here a missing or broken kit, and a missing
#   or too old interpreter, end in 0 and stop nobody.
# - `-I -S`: no user site, no PYTHON* variables, no site-packages; the floor of start-up time.
# - `-c "…import ctx_hooks…"`, not the path of a script: only an imported file has its bytecode
#   cached. The folder is appended, so nothing in it can shadow the standard library.
# - `gc.disable()`: the collector would run several times while the bytecode is read, 3 % of a bare
#   start, and a process that lives for milliseconds leaves nothing worth collecting.
# - The folder is the last word and is quoted, so spaces and quotes in a path are harmless; it does
#   not depend on the cwd, which follows the agent's `cd`.
# install.py exchanges the first word and the folder, nothing else.
HOOKS_PYTHON = "python3"
HOOKS_FOLDER = '"${CLAUDE_PLUGIN_ROOT:-$CLAUDE_PROJECT_DIR/.claude/hooks}"'
PROJECT_FOLDER = '"$CLAUDE_PROJECT_DIR/.claude/hooks"'
STATUS_CODE = "import gc, sys; gc.disable(); sys.path.append(sys.argv.pop(1)); import ctx_hooks; ctx_hooks.main()"
LOAD_CODE = "import sys; sys.path.append(sys.argv.pop()); import ctx_hooks"
PROBE_CODE = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable)"

# sha256 -> version of every release before this one. With it an untouched older kit is known even
# where no record is, as in a fresh clone. `install.py --version` of a release prints what to add here.
RELEASES: Dict[str, str] = {}

IGNORE_SHARED = "# written by ctx_hooks\n/.ctx_hooks/\n/__pycache__/\n/ctx_hooks.py.kept-*\n"
IGNORE_LOCAL = IGNORE_SHARED + "/ctx_hooks.py\n/.gitignore\n"
IGNORE_ALL = "*\n"
IGNORE_CONTEXT = ("signals/\nstate/\nmonitor-state.json\nmetrics.json\n"
                  "events.jsonl\nevents.jsonl.1\n")

CONTEXT_FILES = {
    "CONSTITUTION.md": """\
# Constitution

Rules that hold in every session, whatever the task. Few, short, and meant.

- Never commit secrets, tokens or personal data.
- Never weaken or delete a test to make it pass.
- Ask before anything that cannot be undone: deleting data, rewriting history, publishing.
""",
    "TASKS.md": """\
# Tasks

What is being worked on, most important first. A finished task is deleted; git remembers it.

## Now

- [ ] (one task, with the sentence that says when it is done)

## Next

- [ ] (…)
""",
    "CONVENTIONS.md": """\
# Conventions

How things are done here, as far as the code does not already show it.

- Build: `…`
- Test: `…` (one test: `…`)
- Layout: which folder holds what, and where new code goes.
- Commits: one change each; the body says why.
""",
    "DECISIONS.md": """\
# Decisions

What was decided and why, newest first, so that it is not argued again. Change one by adding one.

## YYYY-MM-DD: (the decision in one sentence)

Because: …
Instead of: …
""",
    "LEARNINGS.md": """\
# Learnings

What cost time once and should not cost it again, newest first.

- YYYY-MM-DD: (what happened) → (what to do next time)
""",
    "AGENT_PLAYBOOK.md": """\
# Agent playbook

How an agent works in this project.

1. Start: read CONSTITUTION.md and TASKS.md; open the others when they matter.
2. Work: one task at a time; run the tests before saying that something is done.
3. Decide: write it into DECISIONS.md. Learn: write it into LEARNINGS.md.
4. End: bring TASKS.md up to date; when asked for a handoff, write where you stand, what is
   next, and what you would want to know if you knew nothing.
""",
}

HINT_JSON = ("the client ignores a settings file that is not strict JSON "
             "(no comments, no trailing commas); correct it, then run this again")
HINT_SHAPE = "the client would ignore these hooks or the whole file; correct it, then run this again"


class Refused(Exception):
    """A reason to stop, for people: what is wrong and what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


# =============================================================================
# JSON with positions
# =============================================================================
# A strict reader that remembers where each value stands: `(src, pos) -> node`, one function for
# each rule. What it refuses, the client refuses too.


class JsonError(Exception):
    """Not JSON, or not the JSON we can work with; knows its line and column."""

    def __init__(self, message: str, src: str, pos: int, hint: str = HINT_JSON) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.line = src.count("\n", 0, pos) + 1
        self.column = pos - src.rfind("\n", 0, pos)


class Node(NamedTuple):
    """A value and its place: src[start:end]. `items` are the children of an object or array."""

    value: Any
    start: int
    end: int
    items: "List[Item]"


class Item(NamedTuple):
    """A member of an object (start: of its key) or an item of an array (key: None)."""

    key: Optional[str]
    start: int
    node: Node

    @property
    def end(self) -> int:
        return self.node.end


BLANK = " \t\n\r"
_BLANKS = re.compile("[ \t\n\r]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_HALF = re.compile("[\ud800-\udfff]")  # half a surrogate pair: JSON has it, UTF-8 does not
_WORDS = {"true": True, "false": False, "null": None}


def parse_json(src: str) -> Node:
    """The one value in src. Raises JsonError."""
    node = _parse_value(src, _skip(src, 0), 0)
    rest = _skip(src, node.end)
    if rest != len(src):
        raise JsonError("expected the end of the file", src, rest)
    return node


def _skip(src: str, pos: int) -> int:
    match = _BLANKS.match(src, pos)
    return match.end() if match else pos


def _parse_value(src: str, pos: int, depth: int) -> Node:
    first = src[pos:pos + 1]
    if first == "{":
        return _parse_object(src, pos, depth)
    if first == "[":
        return _parse_array(src, pos, depth)
    if first == '"':
        return _parse_string(src, pos)
    for word, value in _WORDS.items():
        if src.startswith(word, pos):
            return Node(value, pos, pos + len(word), [])
    return _parse_number(src, pos)


def _parse_object(src: str, start: int, depth: int) -> Node:
    items: List[Item] = []
    pos = _open(src, start, depth)
    while not (src.startswith("}", pos) and not items):
        if not src.startswith('"', pos):
            raise JsonError("expected a key in double quotes", src, pos)
        key = _parse_string(src, pos)
        colon = _skip(src, key.end)
        if not src.startswith(":", colon):
            raise JsonError("expected ':' after the key", src, colon)
        items.append(Item(key.value, pos, _parse_value(src, _skip(src, colon + 1), depth + 1)))
        pos, more = _next(src, items[-1].end, "}")
        if not more:
            break
    return Node({item.key: item.node.value for item in items}, start, pos + 1, items)


def _parse_array(src: str, start: int, depth: int) -> Node:
    items: List[Item] = []
    pos = _open(src, start, depth)
    while not (src.startswith("]", pos) and not items):
        items.append(Item(None, pos, _parse_value(src, pos, depth + 1)))
        pos, more = _next(src, items[-1].end, "]")
        if not more:
            break
    return Node([item.node.value for item in items], start, pos + 1, items)


def _open(src: str, pos: int, depth: int) -> int:
    if depth > DEPTH_LIMIT:
        raise JsonError("nested too deeply", src, pos)
    return _skip(src, pos + 1)


def _next(src: str, pos: int, closing: str) -> Tuple[int, bool]:
    """After an item: the start of the next one and True, or the closing mark and False."""
    pos = _skip(src, pos)
    if src.startswith(closing, pos):
        return pos, False
    if not src.startswith(",", pos):
        raise JsonError(f"expected ',' or '{closing}'", src, pos)
    after = _skip(src, pos + 1)
    if src.startswith(closing, after):
        raise JsonError("a trailing comma is not allowed", src, pos)
    return after, True


def _parse_string(src: str, pos: int) -> Node:
    match = _STRING.match(src, pos)
    if not match:
        raise JsonError("a string that does not end or holds what JSON forbids", src, pos)
    return Node(json.loads(match.group()), pos, match.end(), [])


def _parse_number(src: str, pos: int) -> Node:
    match = _NUMBER.match(src, pos)
    if not match:
        what = "comments are not allowed" if src.startswith("/", pos) else "expected a value"
        raise JsonError(what, src, pos)
    text = match.group()
    exact = len(text) < 400 and not set(text) & set(".eE")
    return Node(int(text) if exact else float(text), pos, match.end(), [])


def is_same(a: Any, b: Any) -> bool:
    """Equal as JSON: unlike ==, true is not 1 and 1 is not 1.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    return bool(a == b)


# =============================================================================
# Splicing
# =============================================================================
# Writes a new value into an existing text and changes only what differs: indent, tabs, CRLF,
# escapes, spelling of numbers and order of keys around it stay as they are, byte for byte.

Edit = Tuple[int, int, str]


class Style(NamedTuple):
    newline: str
    unit: str
    colon: str
    comma: str
    inline: bool
    ascii: bool


class Document(NamedTuple):
    src: str
    root: Node
    style: Style


def splice(src: str, value: Any) -> str:
    """src with `value` in it, edited as little as possible; splice(src, its value) is src."""
    root = parse_json(src)
    doc = Document(src, root, detect_style(src, root))
    out, last = [], 0
    for start, end, text in sorted(_edit(doc, root, value), key=lambda edit: edit[:2]):
        out += [src[last:start], text]
        last = end
    result = "".join(out) + src[last:]
    if not is_same(parse_json(result).value, value):
        raise Refused("the edited settings would not mean what they should", "nothing was written; report this")
    return result


def detect_style(src: str, root: Node) -> Style:
    """How the text is written: line ends, indent, colons and commas, one line or many, escapes."""
    newline = re.search("\r\n|\n|\r", src)
    body = src[root.start:root.end]
    first = root.items[0] if root.items else None
    indent = _line_indent(src, first.start) if first and _starts_line(src, first.start) else None
    outer = _line_indent(src, root.start)
    unit = "  " if indent is None else indent[len(outer):] if indent.startswith(outer) else indent
    colon = ": "
    if first and first.key is not None:
        gap = src[_STRING.match(src, first.start).end():first.node.start]  # type: ignore[union-attr]
        colon = gap if not set(gap) & set("\r\n") else colon
    return Style(newline.group() if newline else "\n", unit, colon,
                 "," if colon == ":" else ", ", bool(root.items) and not set(body) & set("\r\n"),
                 src.isascii() and "\\u" in src)


def render_json(value: Any, style: Style, indent: str) -> str:
    unit, comma = (None, style.comma) if style.inline else (style.unit, ",")
    text = json.dumps(value, ensure_ascii=style.ascii, indent=unit, separators=(comma, style.colon))
    text = _HALF.sub(lambda half: f"\\u{ord(half.group()):04x}", text)
    return text.replace("\n", style.newline + indent)


def _edit(doc: Document, node: Node, new: Any) -> Iterator[Edit]:
    if is_same(node.value, new):
        return
    if isinstance(new, dict) and isinstance(node.value, dict):
        yield from _edit_object(doc, node, new)
    elif isinstance(new, list) and isinstance(node.value, list):
        yield from _edit_array(doc, node, new)
    else:
        yield node.start, node.end, render_json(new, doc.style, _line_indent(doc.src, node.start))


def _edit_object(doc: Document, node: Node, new: Dict[str, Any]) -> Iterator[Edit]:
    kept = []
    last = {item.key: item for item in node.items}  # of a repeated key the last one counts
    for index, item in enumerate(node.items):
        if item.key in new:
            kept.append(index)
            if last[item.key] is item:
                yield from _edit(doc, item.node, new[item.key])
    added = [(key, value) for key, value in new.items() if key not in last]
    yield from _edit_items(doc, node, kept, {len(node.items): added} if added else {})


def _edit_array(doc: Document, node: Node, new: List[Any]) -> Iterator[Edit]:
    pairs = align(node.value, new)
    added: Dict[int, List[Tuple[Optional[str], Any]]] = {}
    for i, j in pairs:
        yield from _edit(doc, node.items[i].node, new[j])
    paired = {j: i for i, j in pairs}
    before = len(node.items)
    for j in reversed(range(len(new))):
        before = paired.get(j, before)
        if j not in paired:
            added.setdefault(before, []).insert(0, (None, new[j]))
    yield from _edit_items(doc, node, [i for i, _j in pairs], added)


def align(old: List[Any], new: List[Any]) -> List[Tuple[int, int]]:
    """Which item of old became which of new, in order, so that as much as possible stays in place."""
    like = [[_likeness(a, b) for b in new] for a in old]
    best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in reversed(range(len(old))):
        for j in reversed(range(len(new))):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + like[i][j])
    pairs, i, j = [], 0, 0
    while i < len(old) and j < len(new):
        if like[i][j] and best[i][j] == best[i + 1][j + 1] + like[i][j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _likeness(a: Any, b: Any) -> float:
    """How many whole parts two values share; a little for being of one kind. The rest is no reason."""
    if type(a) is not type(b):
        return 0.0
    return 0.001 + sum((Counter(_parts(a)) & Counter(_parts(b))).values())


def _parts(value: Any) -> Iterator[str]:
    """The value and every object and array in it, each as text."""
    yield json.dumps(value, sort_keys=True)
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inside:
        if isinstance(part, (dict, list)):
            yield from _parts(part)


def _edit_items(doc: Document, node: Node, kept: List[int],
                added: Dict[int, List[Tuple[Optional[str], Any]]]) -> Iterator[Edit]:
    """Remove the children that are not in `kept`; add `added[i]` before what was child i."""
    items = node.items
    if not kept:
        everything = [member for index in sorted(added) for member in added[index]]
        if items or everything:
            yield node.start + 1, node.end - 1, _render_inside(doc, node, everything)
        return
    for before, after in zip([-1] + kept, kept + [len(items)]):
        if after - before > 1 and before >= 0:
            yield items[before].end, items[after - 1].end, ""
        elif after - before > 1:
            yield items[0].start, items[after].start, ""
    between = _between(doc, node, items[kept[-1]])
    indent = _line_indent(doc.src, items[kept[-1]].start)
    for index, members in added.items():
        texts = [_render_member(doc, member, indent) for member in members]
        earlier = [i for i in kept if i < index]
        if earlier:
            place = items[earlier[-1]].end
            yield place, place, "".join(between + text for text in texts)
        else:
            place = items[kept[0]].start
            yield place, place, "".join(text + between for text in texts)


def _between(doc: Document, node: Node, model: Item) -> str:
    """What stands between two children, by the example of those that are there."""
    if set(doc.src[node.start:node.items[0].start]) & set("\r\n"):
        return "," + doc.style.newline + _line_indent(doc.src, model.start)
    return doc.style.comma


def _render_inside(doc: Document, node: Node, members: List[Tuple[Optional[str], Any]]) -> str:
    if not members:
        return ""
    if doc.style.inline:
        return doc.style.comma.join(_render_member(doc, member, "") for member in members)
    outer = _line_indent(doc.src, node.start)
    indent = outer + doc.style.unit
    lines = [indent + _render_member(doc, member, indent) for member in members]
    newline = doc.style.newline
    return newline + ("," + newline).join(lines) + newline + outer


def _render_member(doc: Document, member: Tuple[Optional[str], Any], indent: str) -> str:
    key, value = member
    text = render_json(value, doc.style, indent)
    return text if key is None else json.dumps(key, ensure_ascii=False) + doc.style.colon + text


def _line_start(src: str, pos: int) -> int:
    return max(src.rfind("\n", 0, pos), src.rfind("\r", 0, pos)) + 1


def _line_indent(src: str, pos: int) -> str:
    line = src[_line_start(src, pos):pos]
    return line[:len(line) - len(line.lstrip(" \t"))]


def _starts_line(src: str, pos: int) -> bool:
    start = _line_start(src, pos)
    return start > 0 and not src[start:pos].strip(" \t")


# =============================================================================
# Our entries
# =============================================================================
# Pure functions on parsed settings. An entry is ours by what it runs: a command that does
# nothing but start the kit in one of its modes. No private key, nothing remembered.

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON = re.compile(r"(?:python|pypy|py)[0-9.]*w?(?:\.exe)?", re.IGNORECASE)
_IMPORT = re.compile(r"\bimport ctx_hooks\b")
_CALL = re.compile(r"(?<![\w.])ctx_hooks\.main\(")
_TAILS = ([], ["||", "exit", "0"], ["||", "true"], ["||", ":"])
_GENERATED = re.compile(r'(.+?) -I -S -c "import (?:gc, )?sys; (?:gc\.disable\(\); )?sys\.path\.append\(')


def split_command(text: str, escape: str = "\\") -> List[str]:
    """The words of one simple command (a harmless `|| exit 0` aside); [] if it is anything else."""
    lexer = shlex.shlex(re.sub(r"\s2>\s*/dev/null", "", text.strip()),
                        posix=True, punctuation_chars=True)
    lexer.whitespace = " \t"  # a newline ends a command, so it must not vanish here
    lexer.whitespace_split = True
    lexer.commenters = ""
    lexer.escape = escape
    try:
        words = list(lexer)
    except ValueError:  # an open quote
        return []
    end = next((i for i, word in enumerate(words) if word and not word.strip("();<>|&")), len(words))
    return words[:end] if words[end:] in _TAILS else []


def kit_arguments(words: List[str]) -> List[str]:
    """What the kit gets to see in argv when these words are run; [] if they do not run the kit."""
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in ("exec", "env")):
        words = words[1:]
    if not words or _base(words[0]) == KIT:
        return words[1:]
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-c", "-m"):
        at += 2 if words[at] in ("-X", "-W") else 1
    rest = words[at:] + ["", ""]
    if rest[0] == "-c" and _IMPORT.search(rest[1]) and _CALL.search(rest[1]):
        first = 3 if "pop(1)" in rest[1] else 2  # there the folder comes first
        return words[at + first:]
    if not _PYTHON.fullmatch(_base(words[0])):
        return []
    if rest[0] == "-m" and rest[1] == "ctx_hooks":
        return words[at + 2:]
    return words[at + 1:] if _base(rest[0]) == KIT else []


def our_arguments(command: Any) -> List[str]:
    """The kit's arguments in a command of the settings, [] if the command is not ours."""
    if not isinstance(command, str):
        return []
    # Read a second time with plain backslashes for an unquoted Windows path.
    return kit_arguments(split_command(command)) or kit_arguments(split_command(command, ""))


def mode_of(hook: Any) -> Optional[str]:
    """The mode in which a hook of the settings runs our kit; None: not ours."""
    if not isinstance(hook, dict) or hook.get("type") != "command":
        return None
    args = hook.get("args")
    if isinstance(args, list) and isinstance(hook.get("command"), str):
        arguments = kit_arguments([hook["command"]] + [str(word) for word in args])
    else:
        arguments = our_arguments(hook.get("command"))
    return arguments[0] if arguments and arguments[0] in MODES else None


def merge(settings: Dict[str, Any], wanted: Dict[str, List[Any]],
          original: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """Settings with exactly the wanted entries of ours, {event: [entry, …]}; the rest untouched.

    An entry of ours that is there already is replaced in its place. A container that holds
    nothing but ours goes with it, unless `original` has it.
    """
    hooks = settings.get("hooks", {})
    before = (original or {}).get("hooks")
    merged = {}
    for event, groups in hooks.items():
        result = _merge_groups(groups, wanted.get(event, []))
        if result or not groups or (isinstance(before, dict) and event in before):
            merged[event] = result
    for event, entries in wanted.items():
        if event not in hooks:
            merged[event] = [{"hooks": list(entries)}]
    if merged or ("hooks" in settings and (not hooks or before is not None)):
        return {**settings, "hooks": merged}  # the key keeps its place
    return {key: value for key, value in settings.items() if key != "hooks"}


def strip(settings: Dict[str, Any], original: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """Settings without any entry of ours, hooks and status line."""
    return unset_status(merge(settings, {}, original))


def has_ours(settings: Dict[str, Any]) -> bool:
    return not is_same(strip(settings, settings), settings)


def our_hooks(settings: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    for groups in settings.get("hooks", {}).values():
        for group in groups:
            yield from (hook for hook in group["hooks"] if mode_of(hook))


def registered_python(settings: Dict[str, Any]) -> str:
    """The interpreter, as shell text, that our entries name already; "" if there is none."""
    for hook in our_hooks(settings):
        match = _GENERATED.match(hook["command"])
        if match:
            return match.group(1)
    return ""


def _merge_groups(groups: List[Any], entries: List[Any]) -> List[Any]:
    missing = list(entries)
    result = []
    for group in groups:
        hooks = []
        for hook in group["hooks"]:
            mode = mode_of(hook)
            found = next((entry for entry in missing if mode_of(entry) == mode), None)
            if mode is None:
                hooks.append(hook)
            elif found is not None:
                missing.remove(found)
                hooks.append(_refresh(hook, found))
        if hooks or not group["hooks"]:
            result.append({**group, "hooks": hooks})
    return result + ([{"hooks": missing}] if missing else [])


def _refresh(hook: Dict[str, Any], entry: Dict[str, Any]) -> Dict[str, Any]:
    """The new entry in place of an older one; keys that a person added (statusMessage) stay."""
    return {**{key: value for key, value in hook.items() if key != "args"}, **entry}


def _base(word: str) -> str:
    return re.split(r"[\\/]", word)[-1]


def check_shape(src: str, root: Node) -> None:
    """Raise JsonError where the client would ignore the hooks, or where we could not be exact."""
    if not isinstance(root.value, dict):
        raise JsonError("the settings must be a JSON object", src, root.start, HINT_SHAPE)
    _refuse_repeated(src, root, ("hooks", "statusLine"))
    for item in root.items:
        if item.key == "statusLine":
            _expect(src, item.node, dict, "statusLine must be an object")
            _expect_field(src, item.node, "command", str)
        if item.key == "hooks":
            _expect(src, item.node, dict, "hooks must be an object")
            _refuse_repeated(src, item.node, tuple(item.node.value))
            for event in item.node.items:
                _check_event(src, event)


def _check_event(src: str, event: Item) -> None:
    _expect(src, event.node, list, f"hooks.{event.key} must be an array")
    for group in event.node.items:
        _expect(src, group.node, dict, f"a group in hooks.{event.key} must be an object")
        _refuse_repeated(src, group.node, ("hooks", "matcher"))
        _expect_field(src, group.node, "hooks", list)
        if "matcher" in group.node.value:
            _expect_field(src, group.node, "matcher", str)
        hooks = next(item.node for item in group.node.items if item.key == "hooks")
        for hook in hooks.items:
            _expect(src, hook.node, dict, f"a hook in hooks.{event.key} must be an object")
            _refuse_repeated(src, hook.node, ("type", "command", "args"))
            _expect_field(src, hook.node, "type", str)
            if hook.node.value["type"] == "command":
                _expect_field(src, hook.node, "command", str)


def _expect(src: str, node: Node, kind: type, message: str) -> None:
    if not isinstance(node.value, kind):
        raise JsonError(message, src, node.start, HINT_SHAPE)


def _expect_field(src: str, node: Node, key: str, kind: type) -> None:
    name = {str: "a string", list: "an array"}[kind]
    found = next((item.node for item in node.items if item.key == key), None)
    if found is None:
        raise JsonError(f'"{key}" is missing here', src, node.start, HINT_SHAPE)
    _expect(src, found, kind, f'"{key}" must be {name}')


def _refuse_repeated(src: str, node: Node, keys: Tuple[Any, ...]) -> None:
    seen = set()
    for item in node.items:
        if item.key in seen and item.key in keys:
            raise JsonError(f'the key "{item.key}" stands here a second time',
                            src, item.start, "only the last one counts; remove one")
        seen.add(item.key)


# =============================================================================
# Status line
# =============================================================================
# The user's own command becomes the last word of ours (`-- sh -c CMD`), so taking ours away needs
# no memory: the exact text is in it.


def status_command(python: str, folder: str, wrapped: Optional[str]) -> str:
    command = f'{python} -I -S -c "{STATUS_CODE}" {folder} {STATUSLINE}'
    return command if wrapped is None else f"{command} -- sh -c {shlex.quote(wrapped)}"


def is_our_status(line: Any) -> bool:
    return isinstance(line, dict) and our_arguments(line.get("command"))[:1] == [STATUSLINE]


def wrapped_status(line: Dict[str, Any]) -> Optional[str]:
    """The user's command inside our status line, None if there is none."""
    rest = our_arguments(line["command"])[1:]
    if "--" not in rest:
        return None
    words = rest[rest.index("--") + 1:]
    if words[:2] == ["sh", "-c"] and len(words) == 3:
        return words[2]
    return " ".join(map(shlex.quote, words)) or None


def set_status(settings: Dict[str, Any], python: str, folder: str) -> Dict[str, Any]:
    """Our status line, around the one that is there; its other keys (padding) stay."""
    line = settings.get("statusLine")
    wrapped = wrapped_status(line) if is_our_status(line) else (line or {}).get("command")
    command = status_command(python, folder, wrapped)
    return {**settings, "statusLine": {**(line or {"type": "command"}), "command": command}}


def unset_status(settings: Dict[str, Any]) -> Dict[str, Any]:
    line = settings.get("statusLine")
    if not is_our_status(line):
        return settings
    wrapped = wrapped_status(line)
    if wrapped is None:
        return {key: value for key, value in settings.items() if key != "statusLine"}
    return {**settings, "statusLine": {**line, "command": wrapped}}


# =============================================================================
# Interpreter
# =============================================================================
# Shared settings name `python3`, since a path of this machine means nothing on another; private
# ones name the real path. Whatever is named has been run once.


class Probe(NamedTuple):
    """What became of running an interpreter; problem is "" when it can run the kit."""

    problem: str
    version: str
    executable: str


def python_candidates(platform: str, shared: bool, running: str) -> List[str]:
    """Interpreters to try in this order, each as shell text."""
    if not shared and running:
        return [quote_path(running)]
    return ["python3", "py -3", "python"] if platform == "win32" else ["python3"]


def quote_path(path: str) -> str:
    """A path as one word for the shell. Backslashes only separate on Windows; there / does too."""
    return shlex.quote(path.replace("\\", "/") if sys.platform == "win32" else path)


def stable_path(real: str) -> str:
    """Homebrew deletes its versioned folder on upgrade; its `opt` link stays."""
    return re.sub(r"/Cellar/([^/]+)/[^/]+/", r"/opt/\1/", real)


def running_python() -> str:
    real = os.path.realpath(sys.executable) if sys.executable else ""
    stable = stable_path(real)
    return stable if os.path.exists(stable) else real


def judge_probe(code: Optional[int], output: str) -> Probe:
    """Read what `<python> -I -S -c PROBE_CODE` left behind; code None: it could not be started."""
    lines = output.strip().splitlines()
    if code == 9009 or "Microsoft Store" in output:
        return Probe("is the Microsoft Store's placeholder, not Python", "", "")
    if code is None:
        return Probe(f"does not start ({lines[0] if lines else 'not found'})", "", "")
    match = re.fullmatch(r"(\d+)\.(\d+)", lines[0]) if code == 0 and lines else None
    if not match:
        return Probe(f"fails (exit {code}{': ' + lines[-1] if lines else ''})", "", "")
    if tuple(map(int, match.groups())) < PYTHON_MINIMUM:
        return Probe(f"is Python {lines[0]}, 3.8 or newer is needed", lines[0], "")
    return Probe("", lines[0], lines[1] if len(lines) > 1 else "")


def run_python(python: str, arguments: List[str], cwd: str) -> Tuple[Optional[int], str]:
    """Exit code and output; None and the reason if it cannot be started or does not end."""
    try:
        done = subprocess.run(shlex.split(python) + ["-I", "-S", "-c"] + arguments, cwd=cwd,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=PROBE_WAIT_S)
    except (OSError, ValueError) as problem:
        return None, getattr(problem, "strerror", "") or str(problem)
    except subprocess.TimeoutExpired:
        return None, f"no answer in {PROBE_WAIT_S} s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def run_probe(python: str, cwd: str) -> Probe:
    return judge_probe(*run_python(python, [PROBE_CODE], cwd))


def choose_python(candidates: List[str], probe: Callable[[str], Probe]) -> Tuple[str, Probe]:
    """The first candidate that can run the kit. Raises Refused with every problem."""
    problems = []
    for python in candidates:
        found = probe(python)
        if not found.problem:
            return python, found
        problems.append(f"{python} {found.problem}")
    raise Refused("; ".join(problems), "name an interpreter that works with --python, for example "
                  f"--python {quote_path(running_python())}")


def is_shim(path: str, head: bytes) -> bool:
    """A version manager's launcher in front of the interpreter: a script, or kept among shims."""
    return head.startswith(b"#!") or "shims" in re.split(r"[\\/]", path)[:-1]


def shim_hint(python: str, found: Probe) -> str:
    path = shutil.which(shlex.split(python)[0])
    head = b""
    with contextlib.suppress(OSError, TypeError):  # cannot be read, or not found
        with open(path, "rb") as file:  # type: ignore[arg-type]
            head = file.read(2)
    if not path or not is_shim(path, head):
        return ""
    return (f"{python} is a version manager's shim here, about ten times slower on every tool call; "
            f"a private install (--scope local) runs {found.executable} itself")


# =============================================================================
# Files and lock
# =============================================================================
# Every write goes to a temporary file in the same folder and is renamed into place.


def read_bytes(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write_atomic(path: str, data: bytes, like: str = "", private: bool = False) -> None:
    """Mode and owner as those of `like` when that exists, else 0600 if private, else by umask."""
    handle, temporary = tempfile.mkstemp(prefix="." + os.path.basename(path) + ".",
                                         dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _copy_mode(temporary, like, private)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _copy_mode(path: str, like: str, private: bool) -> None:
    try:
        model = os.stat(like) if like else None
    except FileNotFoundError:
        model = None
    if model is None:
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(path, 0o600 if private else 0o666 & ~mask)
        return
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):  # only root may give a file away
            os.chown(path, model.st_uid, model.st_gid)
    os.chmod(path, stat.S_IMODE(model.st_mode))


def sha256(data: Optional[bytes]) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def lock(folder: str) -> Iterator[None]:
    """One installer at a time. The folder itself is locked, so nothing is left behind."""
    handle = os.open(folder, os.O_RDONLY) if fcntl else -1
    marker = os.path.join(folder, ".ctx_hooks-install.lock")
    deadline = time.monotonic() + LOCK_WAIT_S
    try:
        while not (_lock_handle(handle) if fcntl else _lock_marker(marker)):
            if time.monotonic() > deadline:
                raise Refused(f"another install.py is at work in {folder}", "run this again later")
            time.sleep(0.05)
        try:
            yield
        finally:
            if not fcntl:
                os.rmdir(marker)
    finally:
        if fcntl:
            os.close(handle)


def _lock_handle(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks; writes are atomic all the same
        pass
    return True


def _lock_marker(marker: str) -> bool:
    """Where folders cannot be locked: whoever can create this one has it, at most for a minute."""
    try:
        os.mkdir(marker)
    except FileExistsError:
        with contextlib.suppress(OSError):
            if time.time() - os.stat(marker).st_mtime > LOCK_STALE_S:
                os.rmdir(marker)
        return False
    return True


# =============================================================================
# Layout and sources
# =============================================================================
# Where things go, and what this copy of the kit consists of.


class Layout(NamedTuple):
    """The places of one install. `folder` is the hooks folder as shell text in a command."""

    project: str
    scope: str
    base: str
    settings: str
    folder: str

    @property
    def hooks(self) -> str:
        return os.path.join(self.base, "hooks")

    @property
    def kit(self) -> str:
        return os.path.join(self.hooks, KIT)

    @property
    def cache(self) -> str:
        return os.path.join(self.hooks, "__pycache__")

    @property
    def hidden(self) -> str:
        return os.path.join(self.hooks, ".ctx_hooks")

    def show(self, path: str) -> str:
        """A path for people: relative to the project, or with ~."""
        home = os.path.expanduser("~")
        for root, prefix in ((self.project, ""), (home, "~" + os.sep)):
            if path.startswith(os.path.join(root, "")):
                return prefix + path[len(os.path.join(root, "")):]
        return path


class Source(NamedTuple):
    """The kit beside this file."""

    kit: bytes
    version: str
    hooks: Dict[str, List[Any]]
    ignore: str


def config_folder() -> str:
    """The client's folder for the user's own settings."""
    return os.path.abspath(os.environ.get("CLAUDE_CONFIG_DIR")
                           or os.path.join(os.path.expanduser("~"), ".claude"))


def find_project(start: str, config: str) -> str:
    """The nearest folder with .git or .claude (the user's own .claude does not count), else start."""
    folder = start
    while True:
        claude = os.path.join(folder, ".claude")
        ours = os.path.isdir(claude) and os.path.realpath(claude) != os.path.realpath(config)
        if ours or os.path.exists(os.path.join(folder, ".git")):
            return folder
        if os.path.dirname(folder) == folder:
            return start
        folder = os.path.dirname(folder)


def plan_layout(project: str, scope: str, config: str) -> Layout:
    base = config if scope == "user" else os.path.join(project, ".claude")
    name = "settings.local.json" if scope == "local" else "settings.json"
    if scope == "project" and os.path.realpath(base) == os.path.realpath(config):
        raise Refused(f"{base} holds your own settings, not a project's",
                      "use --scope user, or name the project: python3 install.py PATH")
    folder = quote_path(os.path.join(base, "hooks")) if scope == "user" else PROJECT_FOLDER
    if _HALF.search(folder):
        raise Refused(f"{base!a} is not UTF-8 and cannot be written into settings", "use --scope project")
    return Layout(project, scope, base, os.path.join(base, name), folder)


def source_folder() -> str:
    return os.path.dirname(os.path.realpath(__file__))


def load_source() -> Source:
    """Read the kit and hooks.json beside this file. Raises Refused if they are not as they should be."""
    kit, hooks = (read_bytes(os.path.join(source_folder(), name)) for name in (KIT, "hooks.json"))
    if kit is None or hooks is None:
        missing = KIT if kit is None else "hooks.json"
        raise Refused(f"{missing} is missing beside install.py",
                      f"keep install.py, {KIT} and hooks.json in one folder")
    try:
        constants = _string_constants(kit.decode("utf-8"))
        events = json.loads(hooks.decode("utf-8"))["hooks"]
        entries = {event: [hook for group in groups for hook in group["hooks"]]
                   for event, groups in events.items()}
    except (SyntaxError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Refused(f"the kit in {source_folder()} is damaged ({problem})", "fetch it again") from problem
    return Source(kit, constants.get("VERSION", "unknown"), entries,
                  constants.get("GITIGNORE_TEXT", IGNORE_CONTEXT))


def _string_constants(program: str) -> Dict[str, str]:
    """NAME = "text" lines of a Python file, without running it."""
    found = {}
    for line in ast.parse(program).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                value = ast.literal_eval(line.value)
                if isinstance(value, str):
                    found[line.targets[0].id] = value
    return found


def wanted_entries(hooks: Dict[str, List[Any]], python: str, folder: str) -> Dict[str, List[Any]]:
    """The entries of hooks.json with this interpreter and this folder."""
    wanted: Dict[str, List[Any]] = {}
    for event, entries in hooks.items():
        for entry in entries:
            words, found, rest = entry["command"].partition(HOOKS_FOLDER)
            if not found or not words.startswith(HOOKS_PYTHON + " "):
                raise Refused(f"hooks.json: the command of {event} is not one install.py knows",
                              "fetch the kit again")
            command = python + words[len(HOOKS_PYTHON):] + folder + rest
            wanted.setdefault(event, []).append({**entry, "command": command})
    return wanted


# =============================================================================
# Settings files
# =============================================================================


class Settings(NamedTuple):
    """A settings file as it is. `src` is its text without BOM, "{}" where there is none."""

    path: str
    real: str
    data: Optional[bytes]
    src: str
    value: Dict[str, Any]

    def encode(self, src: str) -> bytes:
        bom = self.data is not None and self.data.startswith(b"\xef\xbb\xbf")
        return (b"\xef\xbb\xbf" if bom else b"") + src.encode("utf-8")


def read_settings(path: str, shown: str) -> Settings:
    """Read and check a settings file. Raises Refused with line and column."""
    data = read_bytes(path)
    try:
        src, value = parse_settings(data)
    except JsonError as problem:
        raise Refused(f"{shown}:{problem.line}:{problem.column}: {problem.message}", problem.hint) from problem
    return Settings(path, os.path.realpath(path), data, src, value)


def parse_settings(data: Optional[bytes]) -> Tuple[str, Dict[str, Any]]:
    try:
        src = (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        good = problem.object[:problem.start].decode("utf-8")
        raise JsonError("not UTF-8", good, len(good), "save the file as UTF-8") from problem
    if not src.strip(BLANK):
        src = "{}\n"
    root = parse_json(src)
    check_shape(src, root)
    return src, root.value


# =============================================================================
# Record
# =============================================================================
# What uninstall must know and cannot see: <hooks>/.ctx_hooks/record.json, hidden from git. It is
# read as somebody else's text would be: what does not fit is dropped, no name leaves its folder.


class Kept(NamedTuple):
    """One settings file: its text before us (None: no file), its checksum after, our backups."""

    original: Optional[str]
    after: str
    backups: List[Tuple[str, str]]


class Record(NamedTuple):
    """Checksums of our kit (the one before it too: an upgrade may be cut short), what was moved aside, …"""

    kit: str
    older: str
    aside: List[str]
    folders: List[str]
    settings: Dict[str, Kept]


NO_RECORD = Record("", "", [], [], {})
_SETTINGS_NAME = re.compile(r"settings(?:\.local)?\.json")
_BACKUP_NAME = re.compile(r"settings(?:\.local)?\.json\.bak-[0-9TZ-]+")
_ASIDE_NAME = re.compile(r"ctx_hooks\.py\.kept-[0-9TZ-]+")
_FOLDER_NAME = re.compile(r"\.|hooks|\.\.(?:/\.\.)*")


def parse_record(data: Optional[bytes]) -> Record:
    try:
        raw = json.loads((data or b"").decode("utf-8"))
    except ValueError:
        return NO_RECORD
    if not isinstance(raw, dict):
        return NO_RECORD
    settings = raw.get("settings")
    kept = {name: _parse_kept(value) for name, value in settings.items()
            if _SETTINGS_NAME.fullmatch(name) and _is_kept(value)
            } if isinstance(settings, dict) else {}
    return Record(str(raw.get("kit", "")), str(raw.get("older", "")),
                  _names(raw.get("aside"), _ASIDE_NAME), _names(raw.get("folders"), _FOLDER_NAME), kept)


def _is_kept(raw: Any) -> bool:
    if not isinstance(raw, dict) or "original" not in raw:
        return False
    original = raw["original"]
    return original is None or (isinstance(original, str) and not _HALF.search(original))


def _parse_kept(raw: Dict[str, Any]) -> Kept:
    backups = raw.get("backups")
    pairs = [(str(name), str(digest)) for name, digest in backups.items()
             if _BACKUP_NAME.fullmatch(name)] if isinstance(backups, dict) else []
    return Kept(raw["original"], str(raw.get("after", "")), pairs)


def _names(raw: Any, pattern: "re.Pattern[str]") -> List[str]:
    return [name for name in raw if isinstance(name, str) and pattern.fullmatch(name)
            ] if isinstance(raw, list) else []


def format_record(record: Record) -> bytes:
    settings = {name: {"original": kept.original, "after": kept.after, "backups": dict(kept.backups)}
                for name, kept in record.settings.items()}
    raw = {**record._asdict(), "settings": settings}
    return (json.dumps(raw, indent=1) + "\n").encode("ascii")


def parse_original(kept: Optional[Kept]) -> Dict[str, Any]:
    """The settings before us, {} if unknown or no longer readable."""
    try:
        return parse_settings((kept.original or "").encode("utf-8") if kept else None)[1]
    except JsonError:
        return {}


# =============================================================================
# Planning
# =============================================================================
# Looks at everything and decides everything, and writes nothing: a list of steps in the order
# in which they are safe. Install: kit before settings. Uninstall: the reverse.


class Step(NamedTuple):
    """One change on disk. kind: mkdir, write, move, remove, rmdir, load (try the kit), say."""

    kind: str
    path: str
    message: str = ""
    data: Optional[bytes] = None
    old: Optional[bytes] = None
    to: str = ""
    like: str = ""
    private: bool = False


class Job(NamedTuple):
    """All that planning goes by."""

    layout: Layout
    source: Source
    record: Record
    python: str
    force: bool
    statusline: bool
    init: bool
    stamp: str

    def show(self, path: str) -> str:
        return self.layout.show(path)


def plan_install(job: Job) -> List[Step]:
    layout = job.layout
    kit, aside = plan_kit(job)
    settings, kept = plan_merge(job)
    steps = []
    if any(step.kind != "say" for step in kit + settings):
        record = Record(sha256(job.source.kit), job.record.kit, job.record.aside + aside,
                        sorted({*job.record.folders, *missing_folders(layout)}),
                        {**job.record.settings, os.path.basename(layout.settings): kept})
        steps = plan_record(job, record)
    steps += plan_ignore(job) + kit + [Step("load", layout.hooks)] + settings
    return steps + (plan_context(job) if job.init else [])


def plan_kit(job: Job) -> Tuple[List[Step], List[str]]:
    """Steps that bring the kit up to date, and the name under which a foreign one is kept."""
    path, shown = job.layout.kit, job.show(job.layout.kit)
    old = read_bytes(path)
    if old == job.source.kit:
        return [Step("say", path, f"unchanged {shown}")], []
    steps, aside = [], []
    was = release_of(old, job)
    if old is not None and not was:
        if not job.force:
            raise Refused(f"{shown} is not an untouched release of ours: edited, or another's file",
                          "--force keeps it beside the new one, and --uninstall puts it back")
        aside = [free_name(path + ".kept-" + job.stamp)]
        steps = [Step("move", path, f"kept {shown} as {os.path.basename(aside[0])}", to=aside[0])]
        old = None
    version = job.source.version + (f", was {was}" if was else "")
    steps += [Step("write", path, f"wrote {shown} ({version})", job.source.kit, old)]
    return steps + [Step("remove", stale) for stale in bytecode(job.layout)], list(
        map(os.path.basename, aside))


def release_of(data: Optional[bytes], job: Job) -> str:
    """The version of an untouched kit of ours, "" for anything else."""
    if data is None:
        return ""
    digest = sha256(data)
    if digest == sha256(job.source.kit):
        return job.source.version
    recorded = digest in (job.record.kit, job.record.older)
    return RELEASES.get(digest, "an older release" if recorded else "")


def plan_merge(job: Job) -> Tuple[List[Step], Kept]:
    """Steps that bring the settings up to date, and what to remember of them."""
    layout = job.layout
    shown = job.show(layout.settings)
    now = read_settings(layout.settings, shown)
    known = job.record.settings.get(os.path.basename(layout.settings))
    new = now.encode(splice(now.src, merged_settings(job, now.value)))
    original = original_text(now, known)
    backups = known.backups if known else []
    if new == now.data:
        return [Step("say", layout.settings, f"unchanged {shown}")], Kept(original, sha256(new), backups)
    steps = []
    if now.data is not None:
        steps, backups = plan_backup(job, now, backups)
    verb = "wrote" if now.data is None else "merged into"
    steps.append(plan_settings_write(job, now, new, f"{verb} {shown}"))
    return steps, Kept(original, sha256(new), backups)


def merged_settings(job: Job, value: Dict[str, Any]) -> Dict[str, Any]:
    """What the settings should be."""
    known = job.record.settings.get(os.path.basename(job.layout.settings))
    wanted = wanted_entries(job.source.hooks, job.python, job.layout.folder)
    merged = merge(value, wanted, parse_original(known))
    if job.statusline or is_our_status(value.get("statusLine")):
        merged = set_status(merged, job.python, job.layout.folder)
    return merged


def original_text(now: Settings, known: Optional[Kept]) -> Optional[str]:
    """The text to go back to: what is there without us; None: no file."""
    if known and sha256(now.data) == known.after:
        return known.original
    if now.data is None:
        return None
    if not has_ours(now.value):
        return now.data.decode("utf-8")
    stripped = strip(now.value, parse_original(known))
    if not stripped and known and known.original is None:
        return None
    return now.encode(splice(now.src, stripped)).decode("utf-8")


def plan_settings_write(job: Job, now: Settings, new: bytes, message: str) -> Step:
    if now.data is not None and not os.access(now.real, os.W_OK):
        raise Refused(f"{job.show(now.path)} is read-only", "make it writable if you want it changed")
    return Step("write", now.real, message, new, now.data, like=now.real)


def plan_backup(job: Job, now: Settings, backups: List[Tuple[str, str]]
                ) -> Tuple[List[Step], List[Tuple[str, str]]]:
    """Keep the bytes that are about to change, and only the last three of ours."""
    path = free_name(f"{now.path}.bak-{job.stamp}")
    name = os.path.basename(path)
    steps = [Step("write", path, f"backed up {job.show(now.path)} as {name}", now.data, like=now.real)]
    backups = backups + [(name, sha256(now.data))]
    for old in backups[:-BACKUPS_KEPT]:
        steps += plan_backup_removal(job, old)
    return steps, backups[-BACKUPS_KEPT:]


def plan_backup_removal(job: Job, backup: Tuple[str, str]) -> List[Step]:
    path = os.path.join(job.layout.base, backup[0])
    data = None if os.path.islink(path) else read_bytes(path)
    if data is None or sha256(data) != backup[1]:
        return []
    return [Step("remove", path, f"removed {job.show(path)}", old=data)]


def free_name(path: str) -> str:
    """path, or path-2, path-3, …: a name that nothing has."""
    number, name = 1, path
    while os.path.lexists(name):
        number += 1
        name = f"{path}-{number}"
    return name


def missing_folders(layout: Layout) -> List[str]:
    """Folders that the kit needs and that are not there, relative to base."""
    missing = [] if os.path.isdir(layout.hooks) else ["hooks"]
    folder, name = layout.base, "."
    while not os.path.isdir(folder):
        missing.append(name)
        folder, name = os.path.dirname(folder), ".." if name == "." else name + "/.."
    return missing


def plan_record(job: Job, record: Record) -> List[Step]:
    """The record comes first: an install that is cut short can still be undone."""
    hidden = job.layout.hidden
    path, ignore = os.path.join(hidden, "record.json"), os.path.join(hidden, ".gitignore")
    old, data = read_bytes(path), format_record(record)
    steps = [] if old == data else [Step("write", path, data=data, old=old, private=True)]
    if read_bytes(ignore) is None:
        steps.append(Step("write", ignore, data=IGNORE_ALL.encode()))
    return steps


def plan_ignore(job: Job) -> List[Step]:
    """Bytecode and record stay out of `git status`, in a teammate's clone too."""
    path = os.path.join(job.layout.hooks, ".gitignore")
    shared = job.layout.scope != "local" or uses_kit(job, "settings.json")
    text = (IGNORE_SHARED if shared else IGNORE_LOCAL).encode()
    old = read_bytes(path)
    if old in (None, IGNORE_SHARED.encode(), IGNORE_LOCAL.encode()):
        return [] if old == text else [Step("write", path, f"wrote {job.show(path)}", text, old)]
    inner = os.path.join(job.layout.cache, ".gitignore")
    if os.path.lexists(inner):
        return []
    return [Step("mkdir", job.layout.cache), Step("write", inner, data=IGNORE_ALL.encode())]


def bytecode(layout: Layout) -> List[str]:
    """Cached bytecode of the kit, by whatever interpreter."""
    try:
        names = sorted(os.listdir(layout.cache))
    except OSError:
        return []
    return [os.path.join(layout.cache, name) for name in names
            if re.fullmatch(r"ctx_hooks\.[\w.-]+\.pyc(\.\d+)?", name)]


def uses_kit(job: Job, name: str) -> bool:
    """Whether another settings file in the same folder runs the same kit."""
    path = os.path.join(job.layout.base, name)
    if path == job.layout.settings:
        return False
    try:
        return has_ours(read_settings(path, name).value)
    except Refused:
        return b"ctx_hooks" in (read_bytes(path) or b"")


def plan_context(job: Job) -> List[Step]:
    """The context files, as far as they are not there."""
    folder = context_folder(job.layout.project)
    files = {**CONTEXT_FILES, ".gitignore": job.source.ignore}
    steps = [Step("mkdir", folder)]
    for name, text in files.items():
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            steps.append(Step("say", path, f"unchanged {job.show(path)}"))
        else:
            steps.append(Step("write", path, f"wrote {job.show(path)}", text.encode("utf-8")))
    return steps


def context_folder(project: str) -> str:
    """.context, or what .contextrc names as context_dir if that is inside the project."""
    text = (read_bytes(os.path.join(project, ".contextrc")) or b"").decode("utf-8", "replace")
    match = re.search(r"^context_dir:[ \t]*[\"']?([^\"'#\r\n]+)", text, re.MULTILINE)
    name = match.group(1).strip() if match else ""
    path = os.path.normpath(os.path.join(project, name or ".context"))
    inside = path.startswith(os.path.join(project, ""))
    return path if inside else os.path.join(project, ".context")


def plan_uninstall(job: Job) -> List[Step]:
    layout = job.layout
    name = os.path.basename(layout.settings)
    steps = plan_strip(job)
    left = {key: kept for key, kept in job.record.settings.items() if key != name}
    user = next((other for other in ("settings.json", "settings.local.json") if uses_kit(job, other)), "")
    if user:
        message = f"kept {job.show(layout.kit)} ({user} uses it)"
        steps += [Step("say", layout.kit, message)]
        if job.record != NO_RECORD:
            steps += plan_record(job, job.record._replace(settings=left))
    else:
        steps += plan_removal(job)
    context = context_folder(layout.project)
    if os.path.isdir(context) and any(step.message for step in steps):
        steps.append(Step("say", context, f"kept {job.show(context)}{os.sep} (it is yours)"))
    return steps


def plan_strip(job: Job) -> List[Step]:
    """Give the settings their old bytes back, or take out only what is ours."""
    layout = job.layout
    now = read_settings(layout.settings, job.show(layout.settings))
    known = job.record.settings.get(os.path.basename(layout.settings))
    new = stripped_bytes(now, known)
    restored = known is not None and new == (
        None if known.original is None else known.original.encode("utf-8"))
    steps = []
    if new != now.data and not restored:
        steps = plan_backup(job, now, [])[0]
    if new is None and now.data is not None:
        steps.append(Step("remove", now.real, f"removed {job.show(layout.settings)}", old=now.data))
    elif new is not None and new != now.data:
        message = f"removed our hooks from {job.show(layout.settings)}"
        steps.append(plan_settings_write(job, now, new, message))
    return steps + plan_backups_end(job, known, restored)


def stripped_bytes(now: Settings, known: Optional[Kept]) -> Optional[bytes]:
    """The settings file without us: its old bytes if nobody else changed it; None: no file."""
    if now.data is None or not has_ours(now.value):
        return now.data
    stripped = strip(now.value, parse_original(known))
    text = original_text(now, known)
    if is_same(parse_original(Kept(text, "", [])), stripped):
        return None if text is None else text.encode("utf-8")
    return now.encode(splice(now.src, strip(now.value)))  # the record does not fit


def plan_backups_end(job: Job, known: Optional[Kept], restored: bool) -> List[Step]:
    """Our backups go once the original bytes are back; until then each is named."""
    steps: List[Step] = []
    for backup in known.backups if known else []:
        path = os.path.join(job.layout.base, backup[0])
        gone = plan_backup_removal(job, backup) if restored else []
        if os.path.lexists(path):
            steps += gone or [Step("say", path, f"kept {job.show(path)}")]
    return steps


def plan_removal(job: Job) -> List[Step]:
    """Everything of ours in the hooks folder, and the folders that we made."""
    layout = job.layout
    steps = plan_kit_removal(job)
    steps += [Step("remove", path) for path in bytecode(layout)]
    for folder, texts in ((layout.cache, (IGNORE_ALL,)), (layout.hooks, (IGNORE_SHARED, IGNORE_LOCAL)),
                          (layout.hidden, (IGNORE_ALL,))):
        path = os.path.join(folder, ".gitignore")
        data = read_bytes(path)
        if data in [text.encode() for text in texts]:
            shown = f"removed {job.show(path)}" if folder == layout.hooks else ""
            steps.append(Step("remove", path, shown, old=data))
    record = os.path.join(layout.hidden, "record.json")
    if os.path.lexists(record):
        steps.append(Step("remove", record))
    steps += [Step("rmdir", folder) for folder in (layout.cache, layout.hidden)]
    order = sorted(job.record.folders, key=lambda name: (name != "hooks", len(name)))
    return steps + [Step("rmdir", os.path.normpath(os.path.join(layout.base, name))) for name in order]


def plan_kit_removal(job: Job) -> List[Step]:
    path, shown = job.layout.kit, job.show(job.layout.kit)
    data = read_bytes(path)
    steps = []
    if data is not None and os.path.realpath(path) == os.path.join(source_folder(), KIT):
        return [Step("say", path, f"kept {shown} (it lies beside this install.py)")]
    if data is not None and not release_of(data, job):
        return [Step("say", path, f"kept {shown} (edited, or another's file)")]
    if data is not None:
        steps = [Step("remove", path, f"removed {shown}", old=data)]
    aside = [os.path.join(job.layout.hooks, name) for name in job.record.aside]
    aside = [name for name in aside if os.path.lexists(name)]
    if aside:
        steps.append(Step("move", aside[0], f"restored {shown}, which was there before", to=path))
    return steps + [Step("say", name, f"kept {job.show(name)}") for name in aside[1:]]


# =============================================================================
# Checking
# =============================================================================


def deviations(job: Job, probe: Probe) -> List[str]:
    """What is not as an install would leave it, a line each."""
    layout, found = job.layout, []
    kit = read_bytes(layout.kit)
    if kit != job.source.kit:
        was = "missing" if kit is None else release_of(kit, job) or "edited, or another's file"
        found.append(f"{job.show(layout.kit)}: {was}, expected {job.source.version}")
    now = read_settings(layout.settings, job.show(layout.settings)).value
    goal = merged_settings(job, now)
    for event in sorted({**now.get("hooks", {}), **goal["hooks"]}):
        has, should = (settings.get("hooks", {}).get(event, []) for settings in (now, goal))
        if not is_same(has, should):
            ours = any(mode_of(hook) for group in has for hook in group["hooks"])
            problem = "registered differently, an older release or by hand" if ours else "not registered"
            found.append(f"{job.show(layout.settings)}: {event} {problem}")
    if not is_same(now.get("statusLine"), goal.get("statusLine")):
        found.append(f"{job.show(layout.settings)}: the status line is not the current one")
    if now.get("disableAllHooks") is True:
        found.append(f"{job.show(layout.settings)}: disableAllHooks is on, so no hook runs")
    if probe.problem:
        found.append(f"{job.python} {probe.problem}")
    return found


# =============================================================================
# Carrying out
# =============================================================================


def apply_step(step: Step, job: Job) -> None:
    if step.kind == "mkdir":
        os.makedirs(step.path, exist_ok=True)
    elif step.kind == "write":
        _refuse_changed(step, job)
        os.makedirs(os.path.dirname(step.path), exist_ok=True)
        write_atomic(step.path, step.data or b"", step.like, step.private)
    elif step.kind == "move":
        os.rename(step.path, step.to)
    elif step.kind == "remove":
        _refuse_changed(step, job)
        os.unlink(step.path)
    elif step.kind == "rmdir":
        with contextlib.suppress(OSError):  # it is not empty: somebody uses it
            os.rmdir(step.path)
    elif step.kind == "load":
        load_kit(job)


def _refuse_changed(step: Step, job: Job) -> None:
    """The client writes settings too; what came in between must not be lost."""
    if (step.kind == "write" or step.old is not None) and read_bytes(step.path) != step.old:
        raise Refused(f"{job.show(step.path)} changed in this very moment", "run this again")


def load_kit(job: Job) -> None:
    """Import the kit once as the hooks will: proves that it loads, and caches its bytecode."""
    code, output = run_python(job.python, [LOAD_CODE, job.layout.hooks], job.layout.project)
    if code != 0:
        raise Refused(f"the kit does not load with {job.python}: {(output.splitlines() or [''])[-1]}",
                      "no hook was registered; fetch the kit again or name another --python")


def format_diff(step: Step, job: Job) -> str:
    """A step as a unified diff that `patch -p1` understands."""
    shown = job.show(step.path).replace(os.sep, "/")
    old, new = ("/dev/null" if data is None else side + shown
                for side, data in (("a/", step.old), ("b/", step.data)))
    lines = difflib.unified_diff(_lines(step.old), _lines(step.data), old, new)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
                   for line in lines)


def _lines(data: Optional[bytes]) -> List[str]:
    """Lines ended by LF alone; any byte survives."""
    return re.findall("[^\n]*\n|[^\n]+", (data or b"").decode("utf-8", "surrogateescape"))


# =============================================================================
# Command line
# =============================================================================


def parse_arguments(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="install.py", description="Install ctx_hooks into a project, or take it out again.",
        epilog="example: python3 install.py ~/src/app --init")
    add = parser.add_argument
    add("project", metavar="PROJECT", nargs="?",
        help="default: the nearest parent with .claude or .git, else the current folder")
    add("--scope", choices=("project", "local", "user"), default="project",
        help="settings.json shared by the project (default), settings.local.json, or your own for all projects")
    add("--uninstall", action="store_true", help="take everything of ours out again")
    add("--dry-run", action="store_true", help="show every change as a diff, write nothing")
    add("--check", action="store_true", help="exit 0 if installed and current, else 1 and why")
    add("--print", action="store_true", help="print the settings as they would be, write nothing")
    add("--init", action="store_true", help="also create the context files that are not there")
    add("--statusline", action="store_true", help="also set the status line, around yours if you have one")
    add("--python", metavar="PATH", help="the interpreter that the hooks run")
    add("--force", action="store_true", help="replace an edited or foreign ctx_hooks.py (it is kept)")
    add("--quiet", action="store_true", help="say nothing unless it fails")
    add("--version", action="store_true", help="print version and checksum of the kit")
    options = parser.parse_args(argv)
    chosen = [name for name in ("check", "print", "dry_run") if getattr(options, name)]
    if len(chosen) > 1 or (options.check and options.uninstall):
        parser.error("--check, --print and --dry-run exclude each other, --check and --uninstall too")
    return options


def main(argv: Optional[List[str]] = None) -> int:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started with the stream closed
            setattr(sys, name, open(os.devnull, "w"))
        getattr(sys, name).reconfigure(errors="backslashreplace")
    options = parse_arguments(argv)
    try:
        return run(options)
    except Refused as problem:
        message, hint = problem.message, problem.hint
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        message, hint = f"{problem.filename or 'cannot go on'}: {problem.strerror}", ""
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    return 1


def run(options: argparse.Namespace) -> int:
    source = load_source()
    if options.version:
        print(f"ctx_hooks {source.version}\nsha256 {sha256(source.kit)}")
        return 0
    layout = plan_layout(project_folder(options), options.scope, config_folder())
    if options.check or options.dry_run or options.print:
        return look(options, layout, source)
    with lock(lock_folder(layout)):
        return work(options, layout, source)


def project_folder(options: argparse.Namespace) -> str:
    if options.project is not None:
        if not os.path.isdir(options.project):
            raise Refused(f"{options.project} is not a folder", "name the project's folder")
        return os.path.abspath(options.project)
    found = find_project(os.getcwd(), config_folder())
    if options.scope != "user" and os.path.realpath(found) == source_folder():
        raise Refused("this is the kit's own folder, not a project that uses it",
                      "run it from the project, or name that: python3 install.py PATH")
    return found


def lock_folder(layout: Layout) -> str:
    folder = os.path.dirname(layout.base)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def make_job(options: argparse.Namespace, layout: Layout, source: Source) -> Tuple[Job, Probe]:
    record = parse_record(read_bytes(os.path.join(layout.hidden, "record.json")))
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    job = Job(layout, source, record, "", options.force, options.statusline, options.init, stamp)
    if options.uninstall:
        return job, Probe("", "", "")
    python, probe = pick_python(options, layout)
    return job._replace(python=python), probe


def pick_python(options: argparse.Namespace, layout: Layout) -> Tuple[str, Probe]:
    """--python, else what is registered already and works, else the default for the scope."""
    def probe(python: str) -> Probe:
        return run_probe(python, layout.project)

    if options.python:
        return choose_python([python_text(options.python)], probe)
    registered = registered_python(read_settings(layout.settings, layout.show(layout.settings)).value)
    if registered:
        found = probe(registered)
        if options.check or not found.problem:
            return registered, found
    return choose_python(python_candidates(sys.platform, layout.scope == "project", running_python()), probe)


def python_text(given: str) -> str:
    """--python as shell text: a path becomes absolute, a name stays a name, `py -3` stays words."""
    if os.path.dirname(given) and os.path.exists(given):
        return quote_path(os.path.abspath(given))
    return given


def look(options: argparse.Namespace, layout: Layout, source: Source) -> int:
    """--check, --print, --dry-run: everything but writing."""
    job, probe = make_job(options, layout, source)
    if options.check:
        found = deviations(job, probe)
        where = layout.show(layout.settings)
        if not found and not options.quiet:
            print(f"ok: ctx_hooks {source.version} is installed and current in {where}")
        for line in found:
            print(line)
        return 1 if found else 0
    steps = plan_uninstall(job) if options.uninstall else plan_install(job)
    sys.stdout.flush()
    if options.print:
        now = read_settings(layout.settings, layout.show(layout.settings))
        data = next((step.data for step in steps if step.path == now.real and step.kind != "say"), now.data)
        sys.stdout.buffer.write((data or b"{}\n").replace(b"\xef\xbb\xbf", b"", 1))
    else:
        for step in steps:
            print_dry(step, job)
    sys.stdout.buffer.flush()
    return 0


def print_dry(step: Step, job: Job) -> None:
    if step.message:
        sys.stdout.buffer.write(f"dry run: {step.message}\n".encode("utf-8", "surrogateescape"))
    if step.kind in ("write", "remove") and not (step.private or step.path.endswith(".pyc")):
        sys.stdout.buffer.write(format_diff(step, job).encode("utf-8", "surrogateescape"))


def work(options: argparse.Namespace, layout: Layout, source: Source) -> int:
    job, probe = make_job(options, layout, source)
    steps = plan_uninstall(job) if options.uninstall else plan_install(job)
    for step in steps:
        apply_step(step, job)
        if step.message and not options.quiet:
            print(step.message, flush=True)
    if not options.quiet:
        for hint in [] if options.uninstall else install_hints(job, probe):
            print(f"hint: {hint}", file=sys.stderr, flush=True)
        print(next_uninstalled(steps, job) if options.uninstall else next_installed(job))
    return 0


def other_scopes(layout: Layout) -> Iterator[Tuple[str, str]]:
    """Scope and settings file of the other scopes in which we are registered."""
    config = config_folder()
    paths = {"project": os.path.join(layout.project, ".claude", "settings.json"),
             "local": os.path.join(layout.project, ".claude", "settings.local.json"),
             "user": os.path.join(config, "settings.json")}
    for scope, path in paths.items():
        with contextlib.suppress(Refused, OSError):
            if path != layout.settings and has_ours(read_settings(path, path).value):
                yield scope, path


def install_hints(job: Job, probe: Probe) -> Iterator[str]:
    shim = shim_hint(job.python, probe)
    if shim:
        yield shim
    for scope, path in other_scopes(job.layout):
        yield (f"{job.show(path)} registers the hooks too, so each would run twice; "
               f"remove one: --uninstall --scope {scope}")
    now = read_settings(job.layout.settings, "").value
    if now.get("disableAllHooks") is True:
        yield f"disableAllHooks is on in {job.show(job.layout.settings)}, so no hook runs"
    user = os.path.join(config_folder(), "settings.json")
    if job.statusline and user != job.layout.settings:
        with contextlib.suppress(Refused, OSError):
            if "statusLine" in read_settings(user, user).value:
                yield (f"your own status line in {job.show(user)} is covered in this project; "
                       "--scope user --statusline would keep it")


def next_installed(job: Job) -> str:
    context = context_folder(job.layout.project)
    if not os.path.isdir(context):
        return (f"next: there is no {job.show(context)}{os.sep} yet and without it the hooks stay silent; "
                "run install.py again with --init")
    kit = shlex.quote(job.show(job.layout.kit) if job.layout.scope != "user" else job.layout.kit)
    return f"next: python3 {kit} doctor"


def next_uninstalled(steps: List[Step], job: Job) -> str:
    others = [f"--scope {scope}" for scope, _path in other_scopes(job.layout)]
    if others:
        return f"next: still registered elsewhere; run install.py --uninstall {others[0]}"
    if not any(step.message for step in steps):
        return f"nothing of ours in {job.show(job.layout.base)}"
    return "next: nothing; running sessions stop using the hooks at once"


if __name__ == "__main__":
    sys.exit(main())
