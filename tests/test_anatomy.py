"""The promises of the one file, kept by reading it: its shape, what it imports, what it never does."""
from __future__ import annotations

import ast
import builtins
import functools
import json
import os
import re
import subprocess
import sys

import pytest

from helper import KIT, REPO, TESTS, kit, read

TEXT = read(KIT)
LINES = TEXT.split("\n")
TREE = ast.parse(TEXT)
RULE = "# " + "=" * 77
# Modules of the standard library that the kit may use; a new one is a decision.
IMPORTED = """__future__ _thread argparse codecs datetime fcntl hashlib json msvcrt os pty re select shlex
shutil signal subprocess sys tempfile termios textwrap time tty urllib.parse zlib""".split()
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
    return [name for name, start in banners().items() if start <= line][-1:]


def top_level_names():
    """{name: section} of everything that a section defines."""
    found = {}
    for node in TREE.body:
        names = []
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = [node.name]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        for name in names:
            found.setdefault(name, []).extend(section_of(node.lineno) or ["(launcher)"])
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
    assert imports(TREE) <= set(IMPORTED)
    if hasattr(sys, "stdlib_module_names"):
        assert {name.partition(".")[0] for name in IMPORTED} <= set(sys.stdlib_module_names)


def test_a_hook_imports_at_the_top_only_what_every_run_needs():
    top = [alias.name for node in TREE.body if isinstance(node, ast.Import) for alias in node.names]
    assert top == AT_THE_TOP


def test_there_is_no_network():
    assert not imports(TREE) & set(NETWORK)
    assert not re.search(r"\b(?:curl|wget|https?://)\b", "\n".join(LINES[:80]))


def test_nothing_is_evaluated():
    calls = [node.func.id for node in ast.walk(TREE) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert not {"eval", "exec", "compile", "__import__"} & set(calls)


def test_hooks_start_a_process_in_two_places_only():
    """`git status`, and a check command that the person agreed to."""
    sections = set()
    for node in ast.walk(TREE):
        is_call = isinstance(node, ast.Attribute) and node.attr in ("Popen", "run", "call", "check_output", "system")
        if is_call and isinstance(node.value, ast.Name) and node.value.id in ("subprocess", "os"):
            sections |= set(section_of(node.lineno))
    assert sections - set(PEOPLES_HALF) <= {"Git", "Auto"}


def test_there_is_exactly_one_broad_except_and_it_is_the_boundary():
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
    own = {"Modes": "run", "Main": "commands"}  # tested through these
    for name in contents():
        assert os.path.exists(os.path.join(TESTS, "test_%s.py" % own.get(name, name.lower()))), name


def test_a_banner_is_followed_by_what_the_section_owns():
    for name, line in banners().items():
        assert LINES[line + 1].startswith("# "), name


def test_no_top_level_name_is_defined_twice():
    assert {name: where for name, where in top_level_names().items() if len(where) > 1} == {}


def test_a_section_uses_only_sections_below_it():
    order = contents()
    defined = {name: where[0] for name, where in top_level_names().items()}
    wrong = set()
    for name, line in used_names(TREE):
        here = (section_of(line) or ["(launcher)"])[0]
        there = defined.get(name, here)
        if here in PEOPLES_HALF or here == there or "(launcher)" in (here, there):
            continue
        if order.index(there) < order.index(here):
            wrong.add("%s uses %s of %s" % (here, name, there))
    assert wrong == set()


def test_every_name_that_is_used_exists():
    known = set(top_level_names()) | set(dir(builtins)) | set(AT_THE_TOP) | {"annotations", "__file__", "__doc__"}
    for node in ast.walk(TREE):
        if isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            known.add(node.id)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            known.add(node.name)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            known.add(node.name)
    assert sorted({name for name, _ in used_names(TREE)} - known) == []


# --- its size


def test_no_function_is_longer_than_50_lines():
    assert [node.name for node in FUNCTIONS if node.end_lineno - node.lineno >= 50] == []


def test_functions_take_few_parameters():
    crowded = [node.name for node in FUNCTIONS if len(node.args.args) + len(node.args.kwonlyargs) > 5]
    assert crowded == []  # four, and a fifth where one is self or there is no other way


def test_every_function_is_annotated():
    bare = [node.name for node in FUNCTIONS if node.returns is None]
    assert bare == []


def test_lines_end_clean():
    assert [number for number, line in enumerate(LINES, 1) if line != line.rstrip() or "\t" in line] == []


# --- what belongs together


def hooks_of(*names):
    with open(os.path.join(REPO, *names), encoding="utf-8") as file:
        return json.load(file)["hooks"]


def commands_of(hooks):
    return [
        (event, hook["command"]) for event, groups in hooks.items() for group in groups for hook in group["hooks"]
    ]


def test_modes_are_the_handlers_the_registrations_and_rows_of_the_readme():
    registered = {event: command.split('" ')[1].split()[0] for event, command in commands_of(hooks_of("hooks.json"))}
    assert registered == kit.EVENTS
    assert set(registered.values()) == set(kit.HANDLERS)
    for mode, handler in kit.HANDLERS.items():
        assert handler.__name__ == mode.replace("-", "_")
    readme = read(os.path.join(REPO, "README.md"))
    rows = {
        "inject": "a session starts",
        "gate": "first tool call",
        "monitor": "while it works",
        "stop-enforce": "it wants to stop",
    }
    for mode in set(kit.HANDLERS) - {"cleanup"}:  # at the end of a session nobody is told anything
        assert re.search(r"^\| %s \|" % rows[mode], readme, re.M), "no row for " + mode


def test_registered_commands_are_short_and_plain():
    for names in (("hooks.json",), (".claude-plugin", "hooks.json")):
        for event, command in commands_of(hooks_of(*names)):
            assert len(command) <= 100 and command.endswith(" || exit 0"), command
            assert " -c" not in command and command.startswith("sh "), command
            assert command.split(" || ")[0].endswith(" now") == (event in ("PostToolUseFailure", "PreCompact"))


def test_the_plugins_hooks_are_the_same_but_for_the_root():
    plugin = json.dumps(hooks_of(".claude-plugin", "hooks.json"))
    own = json.dumps(hooks_of("hooks.json"))
    assert plugin == own.replace("$CLAUDE_PROJECT_DIR/.claude/hooks", "${CLAUDE_PLUGIN_ROOT}") or plugin == own.replace(
        "$CLAUDE_PROJECT_DIR/.claude/hooks", "$CLAUDE_PLUGIN_ROOT"
    )


def test_time_outs():
    for event, groups in hooks_of("hooks.json").items():
        wanted = {"Stop": 150, "SessionEnd": 5}.get(event, 10)
        assert [hook["timeout"] for group in groups for hook in group["hooks"]] == [wanted]


def test_the_version_is_the_changelogs_and_the_plugins():
    readme = read(os.path.join(REPO, "README.md"))
    newest = re.search(r"\d+\.\d+\.\d+", readme.partition("## Changelog")[2]).group()
    plugin = json.loads(read(os.path.join(REPO, ".claude-plugin", "plugin.json")))
    assert kit.VERSION == newest == plugin["version"]


# --- the launcher


def launcher():
    return TEXT[: TEXT.index("\n'''\n") + 5].split("\n")


def test_the_file_is_a_shell_script_to_sh_and_a_program_to_python():
    lines = launcher()
    assert lines[:2] == ["#!/usr/bin/env python3", "''':'"]
    assert lines[-2:] == ["'''", ""]
    assert len(lines) < 90 and sum(line.lstrip().startswith("#") for line in lines) >= 8
    assert os.access(KIT, os.X_OK)


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "busybox", "zsh"])
def test_the_shell_part_is_valid(shell, tmp_path):
    script = tmp_path / "launcher.sh"
    script.write_text("\n".join(launcher()[2:-2]) + "\n")
    command = [shell, "sh", "-n"] if shell == "busybox" else [shell, "-n"]
    try:
        done = subprocess.run(command + [str(script)], stderr=subprocess.PIPE)
    except FileNotFoundError:
        pytest.skip("no %s here" % shell)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_variable_of_the_launcher_is_called_path():
    assert not re.search(r"^\s*path=", "\n".join(launcher()), re.M)  # zsh ties it to PATH


def test_every_test_that_keeps_a_promise_exists():
    known = set()
    for folder, _, names in os.walk(TESTS):
        for name in names:
            if name.startswith("test_") and name.endswith(".py"):
                known.update(re.findall(r"def (test_\w+)", read(os.path.join(folder, name))))
    rows = read(os.path.join(TESTS, "PROMISES.md")).split("\n| ")[3:]
    assert len(rows) > 20
    for row in rows:
        named = set(re.findall(r"`(test_\w+)`", row))
        assert named and named <= known, row


def test_no_pattern_is_compiled_at_every_start():
    """Bytecode does not hold compiled patterns: 43 of them cost 7 ms a start."""
    outside = [node for node in TREE.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    calls = [ast.dump(node.func) for top in outside for node in ast.walk(top) if isinstance(node, ast.Call)]
    assert not [call for call in calls if "'re'" in call and "'compile'" in call]
