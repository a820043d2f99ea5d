"""The promises of the one file, kept by reading it: its shape, what it imports, what it never does."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import sys

from helper import KIT, REPO, TESTS, kit, read

TEXT = read(KIT)
LINES = TEXT.split("\n")
TREE = ast.parse(TEXT)
RULE = "# " + "=" * 77
# Modules of the standard library that the kit may use; a new one is a decision.
IMPORTED = """__future__ argparse collections collections.abc datetime faulthandler fcntl hashlib io json msvcrt os os.path re select shlex
shutil signal subprocess sys tempfile termios time traceback tty typing zlib""".split()
AT_THE_TOP = ["json", "os", "re", "sys", "time"]
NETWORK = """socket ssl http urllib ftplib smtplib imaplib poplib asyncio xmlrpc socketserver telnetlib
webbrowser requests""".split()
PEOPLES_HALF = ("Registration", "Doctor", "Status", "Wrap", "Commands", "Main")
FUNCTIONS = [node for node in ast.walk(TREE) if isinstance(node, ast.FunctionDef)]


@functools.lru_cache(maxsize=None)
def banners():
    """{section: its first line}, in their order."""
    return {
        LINES[index][2:]: index + 1
        for index in range(1, len(LINES) - 1)
        if LINES[index - 1] == LINES[index + 1] == RULE
    }


def contents():
    """The sections that the docstring lists, in their order."""
    listing = kit.__doc__.partition("in this list.")[2]
    return re.findall(r"^    (\w+) {2,}\S", listing, re.M)


@functools.lru_cache(maxsize=None)
def section_of(line):
    return ["(launcher)", *(name for name, start in banners().items() if start <= line)][-1]


def top_level_names():
    """{name: section} of everything that a section defines."""
    found = {}
    for node in TREE.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = section_of(node.lineno)
        elif isinstance(node, ast.Assign):
            names = [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            found.update(dict.fromkeys(names, section_of(node.lineno)))
    return found


def used_names(node):
    """The names that code looks up, annotations aside."""
    found = []
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                found += used_names(child)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        found.append((node.id, node.lineno))
    return found


def imports(tree):
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


# --- what it uses


def test_only_known_modules_of_the_standard_library_are_imported():
    assert imports(TREE) == set(IMPORTED)
    if hasattr(sys, "stdlib_module_names"):
        assert {name.partition(".")[0] for name in IMPORTED} <= set(sys.stdlib_module_names)
    top = [alias.name for node in TREE.body if isinstance(node, ast.Import) for alias in node.names]
    assert top == AT_THE_TOP  # what every run needs


def test_there_is_no_network():
    assert not imports(TREE) & set(NETWORK)
    assert not re.search(r"\b(?:curl|wget|https?://)\b", "\n".join(LINES[:80]))


def test_hooks_start_a_process_in_two_places_only():
    """git, and a check command that the person agreed to."""
    sections = set()
    for node in ast.walk(TREE):
        is_call = isinstance(node, ast.Attribute) and node.attr in ("Popen", "run", "call", "check_output", "system")
        if is_call and isinstance(node.value, ast.Name) and node.value.id in ("subprocess", "os"):
            sections.add(section_of(node.lineno))
    assert sections - set(PEOPLES_HALF) <= {"Git", "Auto"}


def test_the_one_broad_except_is_the_boundary():
    broad = []
    for node in ast.walk(TREE):
        if isinstance(node, ast.ExceptHandler):
            names = [name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)] if node.type else [""]
            if set(names) & {"", "Exception", "BaseException"}:
                broad.append(node.lineno)
    boundary = [node for node in FUNCTIONS if node.name == "guarded_hook"][0]
    assert len(broad) == 1 and boundary.lineno < broad[0] < boundary.end_lineno


# --- its order


def test_contents_banners_and_test_files_carry_the_same_names():
    assert list(banners()) == contents()
    own = {"Records": "session", "Modes": "run", "Main": "commands"}  # tested through these
    for name in contents():
        assert os.path.exists(os.path.join(TESTS, "test_%s.py" % own.get(name, name.lower()))), name


def test_a_section_uses_only_sections_below_it():
    order = ["(launcher)", *contents()]
    defined = top_level_names()
    wrong = set()
    for name, line in used_names(TREE):
        here, there = section_of(line), defined.get(name)
        if not there or here in PEOPLES_HALF or there in ("(launcher)", "Records"):
            continue
        if order.index(there) < order.index(here):
            wrong.add("%s uses %s of %s" % (here, name, there))
    assert wrong == set()


def test_functions_are_short_annotated_and_take_few_parameters():
    for node in FUNCTIONS:
        assert node.end_lineno - node.lineno < 50 and node.returns, node.name
        assert len(node.args.args) + len(node.args.kwonlyargs) <= 5, node.name


# --- what belongs together


def hooks_of(*names):
    """[(event, its registered entry)] of a hooks.json."""
    hooks = json.loads(read(os.path.join(REPO, *names)))["hooks"]
    return [(event, entry) for event, groups in hooks.items() for group in groups for entry in group["hooks"]]


def test_modes_are_the_handlers_the_registrations_and_rows_of_the_readme():
    registered = {event: entry["command"].split('" ')[1].split()[0] for event, entry in hooks_of("hooks.json")}
    assert registered == kit.EVENTS
    assert set(registered.values()) == set(kit.HANDLERS)
    for mode, handler in kit.HANDLERS.items():
        assert handler.__name__ == mode.replace("-", "_")
    readme = read(os.path.join(REPO, "README.md"))
    rows = {
        "inject": "a session starts",
        "gate": "first tool call",
        "monitor": "while it works",
        "stop-enforce": "it stops in a workflow",
    }
    for mode in set(kit.HANDLERS) - {"cleanup"}:  # at the end of a session nobody is told anything
        assert re.search(r"^\| %s \|" % rows[mode], readme, re.M), "no row for " + mode


NOW = ("SubagentStart", "PostToolUseFailure", "PreCompact")  # these must be looked at


def test_registered_commands_are_short_plain_and_the_same_for_the_plugin():
    own = hooks_of("hooks.json")
    for event, entry in own:
        command = entry["command"]
        assert len(command) <= 100 and command.startswith("sh ") and command.endswith(" || exit 0"), command
        assert " -c" not in command and "\n" not in command, command
        assert command.split(" || ")[0].endswith(" now") == (event in NOW)
        assert entry["timeout"] == {"Stop": 150, "SessionEnd": 5}.get(event, 10)
    moved = json.dumps(own).replace("$CLAUDE_PROJECT_DIR/.claude/hooks", "${CLAUDE_PLUGIN_ROOT}")
    assert json.dumps(hooks_of(".claude-plugin", "hooks.json")) == moved


def test_the_version_is_the_changelogs_and_the_plugins():
    readme = read(os.path.join(REPO, "README.md"))
    newest = re.search(r"\d+\.\d+\.\d+", readme.partition("## Changelog")[2]).group()
    plugin = json.loads(read(os.path.join(REPO, ".claude-plugin", "plugin.json")))
    assert kit.VERSION == newest == plugin["version"]


def test_the_file_is_a_shell_script_to_sh_and_a_program_to_python():
    head, launcher = re.match(
        r'(?s)(#!/usr/bin/env python3\n(?:# .*?\n)+)(""":";.*?\nexit 127\n":"""\n)', TEXT
    ).groups()
    lines = launcher.split("\n")
    assert len(lines) < 95 and sum(line.lstrip().startswith("#") for line in lines) >= 8
    assert not [line for line in lines if line.lstrip().startswith("path=")]  # zsh ties it to PATH
    for mark in ("fmt: off", "ruff: noqa", "flake8: noqa", "pylint: skip-file", "isort: skip_file"):
        assert "\n# %s\n" % mark in head
    assert os.access(KIT, os.X_OK)


def test_the_launcher_keeps_the_event_away_from_everything_but_python():
    launcher = TEXT.partition('\n":"""\n')[0].partition('\n"""')[2]
    assert launcher.startswith(':"; exec 3<&0 </dev/null # ')  # all in the first line, nothing before it
    assert launcher.count("<&3") == 1 and "`" not in launcher and "$(" not in launcher
    assert "\\" not in launcher  # ruff would make it a raw string
    assert not re.search(r"`(?:sh|bash|python3?|py|cat)\b[^`\n]*`", TEXT)  # nor below, where a lost quote may reach


def promises():
    """[(what the README says, the tests that keep it)] of PROMISES.md."""
    found = re.findall(r"^\| (.+) \| (`test_.+) \|$", read(os.path.join(TESTS, "PROMISES.md")), re.M)
    assert len(found) > 100
    return [(quotation, re.findall(r"`(\w+)`", tests)) for quotation, tests in found]


def test_every_promise_is_quoted_from_the_readme():
    readme = " ".join(read(os.path.join(REPO, "README.md")).split())
    assert [quotation for quotation, _ in promises() if quotation not in readme] == []


def test_every_test_that_keeps_a_promise_exists():
    known = set()
    for folder, _, names in os.walk(TESTS):
        for name in names:
            if name.startswith("test_") and name.endswith(".py"):
                known.update(re.findall(r"def (test_\w+)", read(os.path.join(folder, name))))
    assert [name for _, tests in promises() for name in tests if name not in known] == []
