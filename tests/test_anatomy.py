"""The promises of the one file, kept by reading it: its shape, what it imports, what it never does."""
from __future__ import annotations

import ast
import json
import os
import re
import subprocess

import pytest

import helper
from test_hook import EVENT_OF, MODES

SOURCE = os.path.join(helper.REPO, "ctx_hooks.py")
README = os.path.join(helper.REPO, "README.md")
TEXT = helper._content(SOURCE).decode("utf-8")
TREE = ast.parse(TEXT)
LINES = TEXT.split("\n")
RULE = "# " + "=" * 77
NETWORK = {"socket", "ssl", "http", "urllib", "ftplib", "smtplib", "imaplib", "poplib", "asyncio", "xmlrpc", "socketserver",
           "telnetlib", "nntplib", "webbrowser", "requests"}
# Modules of the standard library that the kit may use; a new one is a decision, so it is written down here.
IMPORTED = {"_imp", "_json", "_signal", "_thread", "_winapi", "argparse", "codecs", "collections", "ctypes", "difflib", "hashlib", "json", "nt", "os",
            "os.path", "errno", "fcntl", "posix", "re", "select", "shlex", "shutil", "signal", "struct", "subprocess", "sys",
            "tempfile", "termios", "textwrap", "threading", "time", "traceback", "tty", "unicodedata", "warnings"}
PEOPLE_ONLY = "# ---- below this line: for people only; a hook does not load it ----"
LINE_LIMIT, WIDTH_LIMIT = 6400, 100


def banners() -> list:
    """[(name, first line)] of the sections, in order."""
    return [(LINES[index][2:], index + 1) for index in range(1, len(LINES) - 1)
            if LINES[index - 1] == RULE and LINES[index + 1] == RULE]


def functions(tree=TREE) -> list:
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def body_lines(node) -> int:
    """Lines of a function with its signature, without its docstring."""
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(getattr(first, "value", None), ast.Constant) and isinstance(first.value.value, str):
        lines -= first.end_lineno - first.lineno + 1
    return lines


def imports(tree=TREE) -> set:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def test_only_known_modules_of_the_standard_library_are_imported():
    assert imports() - IMPORTED == set()
    assert not {name.split(".")[0] for name in imports()} & NETWORK


def owner_of(wanted) -> dict:
    """What `wanted(node)` names -> the functions that hold it (`Class.method` for methods)."""
    found: dict = {}
    for top in TREE.body:
        inner = [top] if isinstance(top, ast.FunctionDef) else [
            node for node in getattr(top, "body", []) if isinstance(node, ast.FunctionDef)]
        for function in inner:
            name = function.name if function is top else top.name + "." + function.name
            for node in ast.walk(function):
                what = wanted(node)
                if what:
                    found.setdefault(what, set()).add(name)
    return found


def os_call(node) -> str:
    is_os = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("_os", "os")
    return node.attr if is_os else ""


def test_nothing_is_evaluated_and_one_shell_runs_what_the_person_agreed_to():
    for node in ast.walk(TREE):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            owner = getattr(getattr(node.func, "value", None), "id", "")
            assert not (isinstance(node.func, ast.Name) and name in ("eval", "exec", "compile", "__import__")), node.lineno
            assert name not in ("system", "popen", "spawnl", "spawnv", "getoutput"), node.lineno
            assert not (owner == "pickle" or name == "import_module"), node.lineno
    shells = owner_of(lambda node: "shell" if isinstance(node, ast.keyword) and node.arg == "shell" else "")
    assert shells == {"shell": {"run_bounded"}}


def test_every_write_to_the_disk_stands_in_the_functions_that_ask_may_write():
    """A file is made, replaced, renamed, linked, removed or changed nowhere else."""
    calls = owner_of(os_call)
    writes = {name: calls.get(name, set()) for name in (
        "open", "replace", "rename", "link", "mkdir", "rmdir", "unlink", "chmod", "lchown", "chown", "utime", "truncate", "symlink")}
    assert writes == {
        "open": {"take_lock", "_write", "occupy_descriptors", "open_regular"},
        "replace": {"write_bytes", "append_line"}, "rename": {"set_aside"}, "link": set(), "mkdir": {"make_folder"}, "rmdir": {"_remove_signals"},
        "unlink": {"remove_file"}, "chmod": {"_give_rights", "make_private"}, "lchown": {"_give_rights"}, "chown": set(),
        "utime": {"copy_project"}, "truncate": set(), "symlink": set()}
    asks = owner_of(lambda node: getattr(getattr(node, "func", None), "id", "") if isinstance(node, ast.Call) else "")
    assert asks["may_write"] >= {"_make_way", "claim_file", "set_aside"}
    assert asks["_make_way"] == {"write_bytes", "append_line", "take_lock"}


def test_what_reaches_the_agent_or_a_terminal_goes_through_one_function_each():
    calls = owner_of(lambda node: getattr(getattr(node, "func", None), "id", "") if isinstance(node, ast.Call) else "")
    assert calls["read_shared"] == {"render_gate", "gate_files", "read_handoff"}, "what a setting names is read nowhere else"
    assert "render_reply" in calls["clean_text"] and calls["render_reply"] == {"run_mode"}
    assert "print" not in calls and "write_stderr" in calls["for_terminal"]
    streams = owner_of(lambda node: "stdout" if isinstance(node, ast.Attribute) and node.attr == "stdout"
                       and getattr(node.value, "id", "") == "sys" else "")
    assert streams["stdout"] <= {"show", "main"}, "everything for people is painted in one place"
    outputs = {"_run_hook", "write_stderr", "show", "_statusline", "_write"}
    uses = owner_of(lambda node: node.id if isinstance(node, ast.Name) else "")
    assert {name for name in uses["write_all"] if not name.startswith("Run.")} <= outputs


def test_processes_are_started_in_three_places_and_by_hooks_in_one():
    imports_ = owner_of(lambda node: "subprocess" if isinstance(node, ast.Import) and node.names[0].name == "subprocess" else "")
    assert imports_["subprocess"] == {"run_bounded", "end_group", "run_timed", "Run._start"}
    half = TEXT.partition(PEOPLE_ONLY)[0]
    assert half.count("import subprocess") == 2, "the check of a phase, and its end"


def test_the_hooks_half_stands_alone():
    """The registered command loads the file up to that line and no further."""
    assert TEXT.count(PEOPLE_ONLY) == 1
    half, names = ast.parse(TEXT.partition(PEOPLE_ONLY)[0]), set(dir(__builtins__)) | set(dir(__import__("builtins")))
    names |= {"__file__", "__name__"}
    for node in ast.walk(half):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    used = {node.id for node in ast.walk(half) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert used - names == set() and "hook_main" in names


def test_no_top_level_name_is_defined_twice():
    seen: dict = {}
    for node in TREE.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            assert node.name not in seen, "%s: lines %d and %d" % (node.name, seen[node.name], node.lineno)
            seen[node.name] = node.lineno


def test_an_underscore_is_used_in_its_section_only():
    defined, starts = sections_of_names(), [line for _, line in banners()]
    abroad = []
    for node in TREE.body:
        section = sum(start <= node.lineno for start in starts)
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and name.id.startswith("_") and defined.get(name.id, section) != section:
                abroad.append("line %d: %s" % (name.lineno, name.id))
    assert [text for text in abroad if not text.endswith(": _os")] == []


def is_broad(handler) -> bool:
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return handler.type is None or any(getattr(name, "id", "") in ("Exception", "BaseException") for name in names)


def test_there_is_exactly_one_broad_except_and_it_is_the_boundary():
    owners = [function.name for function in functions() for node in ast.walk(function)
              if isinstance(node, ast.ExceptHandler) and is_broad(node)]
    assert owners == ["run_guarded"]
    assert len([node for node in ast.walk(TREE) if isinstance(node, ast.ExceptHandler) and is_broad(node)]) == 1


def test_contents_banners_and_test_files_carry_the_same_names():
    names = [name for name, _ in banners()]
    contents = re.findall(r"^    ([A-Z][a-z]+) {2,}\S", ast.get_docstring(TREE, clean=False).split("Contents:")[1], re.M)
    assert contents == names
    missing = [name for name in names if not os.path.exists(os.path.join(helper.TESTS, "test_%s.py" % name.lower()))]
    assert missing == []


def test_a_banner_is_followed_by_what_the_section_owns():
    for name, line in banners():
        assert re.fullmatch(r"[A-Z][a-z]+", name)
        if name != "Main":
            assert LINES[line + 1].startswith("# "), name


def sections_of_names() -> dict:
    """top-level name -> index of its section."""
    starts = [line for _, line in banners()]
    found = {}
    for node in TREE.body:
        section = sum(start <= node.lineno for start in starts)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = section
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found.update((name.id, section) for name in ast.walk(target) if isinstance(name, ast.Name))
    return found


def own_names(node) -> set:
    """Parameters and variables of a function or a comprehension."""
    stored = {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
    return stored | {argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)}


def test_a_section_uses_only_what_stands_above_it():
    defined, starts = sections_of_names(), [line for _, line in banners()]
    late = []
    for node in TREE.body:
        section = sum(start <= node.lineno for start in starts)
        own = own_names(node)
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and defined.get(name.id, 0) > section and name.id not in own:
                late.append("line %d: %s" % (name.lineno, name.id))
    assert late == []


def test_every_name_that_is_used_exists():
    import builtins

    defined = set(sections_of_names()) | set(dir(builtins)) | {"__file__", "__name__"}
    for node in ast.walk(TREE):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            defined |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) or isinstance(node, ast.arg):
            defined.add(getattr(node, "id", getattr(node, "arg", "")))
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            defined.add(node.name)
    used = {node.id for node in ast.walk(TREE) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert used - defined == set()


def test_functions_are_short():
    lengths = sorted(body_lines(node) for node in functions())
    over = ["%s: %d" % (node.name, body_lines(node)) for node in functions() if body_lines(node) > 60]
    assert over == []
    assert lengths[len(lengths) // 2] <= 12
    assert sum(length <= 25 for length in lengths) / len(lengths) >= 0.85


def test_functions_take_few_parameters():
    for node in functions():
        arguments = [a.arg for a in node.args.args + node.args.kwonlyargs if a.arg not in ("self", "cls")]
        assert len(arguments) <= 5, node.name


def test_every_function_is_annotated():
    for node in functions():
        named = [a for a in node.args.args + node.args.kwonlyargs if a.arg not in ("self", "cls")]
        called = {call.func.id for call in ast.walk(node) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}
        free = called | {"change", "is_gone", "given", "parser"}  # functions, and what argparse makes
        bare = [a.arg for a in named if a.annotation is None and a.arg not in free]
        assert bare == [], node.name


def test_the_file_stays_within_its_lines_and_columns():
    wide = [number for number, line in enumerate(LINES, 1) if len(line) > WIDTH_LIMIT]
    assert len(LINES) <= LINE_LIMIT and wide == []


def test_lines_end_clean():
    for number, line in enumerate(LINES, 1):
        assert line == line.rstrip() and "\t" not in line, number
    assert TEXT.endswith("\n") and not TEXT.endswith("\n\n") and "\r" not in TEXT
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", TEXT)


def test_modes_are_the_registrations():
    kit, found = helper.load_kit(), set()
    for event, command in helper.registered_commands().items():
        ours = kit.parse_command(command)
        found.add(ours.mode)
        assert ours.exact and command.endswith("|| exit 0") and ours.agent == "claude", event
    assert found == set(kit.MODES) == set(MODES)


def test_hooks_json_is_made_from_the_table():
    kit = helper.load_kit()
    with open(os.path.join(helper.REPO, "hooks.json"), encoding="utf-8") as source:
        assert json.load(source) == {"hooks": kit.plan_hooks("claude", "python3", kit.PLUGIN_PATH, kit.PLUGIN_START)}


def readme() -> str:
    return helper._content(README).decode("utf-8")


def table_rows(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.startswith("|"))


def test_every_mode_and_every_setting_has_a_row_in_the_readme():
    rows, kit = table_rows(readme()), helper.load_kit()
    assert [mode for mode in kit.MODES if "`%s`" % mode not in rows] == []
    assert [row[0] for row in kit.SETTINGS if "`%s`" % row[0] not in rows] == []


def test_the_readme_names_no_setting_that_does_not_exist():
    kit = helper.load_kit()
    groups = "|".join(sorted({key.split(".")[0] for key in kit.DEFAULTS if "." in key}))
    named = set(re.findall(r"^\| `((?:%s)\.[a-z_]+)`" % groups, readme(), re.M))
    assert named - set(kit.DEFAULTS) == set()


def test_the_readme_says_how_long_the_file_is():
    """Within a twentieth, so that not every line needs an edit there."""
    assert not re.search("@[A-Z]+@", readme())
    said = int(re.search(r"some ([0-9],[0-9]00) lines", readme()).group(1).replace(",", ""))
    assert abs(said - len(LINES)) < len(LINES) / 20


def test_the_changelog_begins_with_the_version():
    versions = re.findall(r"^### (\d+\.\d+\.\d+)", readme(), re.M)
    assert versions[:1] == [helper.load_kit().VERSION]


def test_the_plugin_carries_the_same_version():
    path = os.path.join(helper.REPO, ".claude-plugin", "plugin.json")
    assert json.loads(helper._content(path))["version"] == helper.load_kit().VERSION


# What the interpreter loads by itself is measured in the same run, so only our own imports count.
REPORT = """
import %s as system, sys
before = set(sys.modules)
really_exit = system._exit
def leave(code):
    system.write(2, " ".join(sorted(set(sys.modules) - before)).encode())
    really_exit(code)
system._exit = leave
""" % os.name
START = {"gc", "_json"} | ({"_winapi"} if helper.IS_WINDOWS else set())


def loaded(project, mode: str, event: dict) -> set:
    argv = helper.hook_argv(mode)
    argv[argv.index("-c") + 1] = REPORT + argv[argv.index("-c") + 1]
    done = subprocess.run(argv, input=json.dumps(event).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=project.env,
                          cwd=project.root, timeout=helper.RUN_TIMEOUT_S)
    assert done.stdout == b"", done.stdout
    return set(done.stderr.decode().split())


@pytest.mark.parametrize("mode", MODES)
def test_the_silent_path_imports_almost_nothing(project, mode):
    project.write_transcript([helper.assistant_row(1000)])
    event = project.event(EVENT_OF[mode], session_id="s1")
    for _ in range(2):
        if mode == "gate":
            project.call("gate", event)
        assert loaded(project, mode, event) <= START


def test_a_project_without_a_context_folder_costs_even_less(bare_project):
    for mode in MODES:
        assert loaded(bare_project, mode, bare_project.event(EVENT_OF[mode])) <= START
