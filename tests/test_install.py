"""install.py: the text it edits, the entries it knows, and whole runs on real folders."""
from __future__ import annotations

import ast
import contextlib
import functools
import importlib.util
import io
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys

import pytest

from helper import windows_environment
from test_windows import PASS_ON, make_program

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = os.path.realpath(sys.executable)
ROUNDS = 150 * (50 if os.environ.get("CTX_SOAK") == "1" else 1)
BOM = b"\xef\xbb\xbf"
POSIX = os.name == "posix"


def load_installer():
    spec = importlib.util.spec_from_file_location("ctx_install", os.path.join(REPO, "install.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


inst = load_installer()
kit = inst.kit

# What has the same answer each time is asked once, or most of the time would go there: whose a command is, and which
# Python the one under test is. test_registration.py and test_real_interpreters_are_probed ask anew.
kit.parse_command = functools.lru_cache(maxsize=None)(kit.parse_command)
run_timed, known_answers = kit.run_timed, {}


def run_once(argv, *more):
    if argv[-1] != kit.PYTHON_PROBE or os.path.realpath(argv[0]) != PYTHON:
        return run_timed(argv, *more)
    return known_answers.get(tuple(argv[1:])) or known_answers.setdefault(tuple(argv[1:]), run_timed(argv, *more))


kit.run_timed = run_once


def repo_file(name):
    with open(os.path.join(REPO, name), encoding="utf-8") as file:
        return file.read()


PATH = kit.kit_path("claude")
WANTED = kit.plan_hooks("claude", "python3", PATH)


# -----------------------------------------------------------------------------
# Random material, seeded
# -----------------------------------------------------------------------------

TEXTS = ["", "a", "Grüße", "日本", "\U0001f600", 'say "hi"', "back\\slash", "tab\there", "line\nbreak", "\u2028", "/x/"]
FOREIGN = ["echo ctx_hooks.py gate", "python3 my_ctx_hooks.py gate", "./lint.sh", "npx x || exit 0", "true"]
EVENTS = [*WANTED, "Notification", "PostCompact", "SubagentStop"]


def random_json(rng, depth=3):
    kind = rng.randrange(8 if depth else 6)
    if kind < 6:
        return [None, True, rng.randrange(-5, 10**rng.randrange(1, 20)), rng.random() * 10**rng.randrange(-9, 9),
                rng.choice(TEXTS), False][kind]
    if kind == 6:
        return [random_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(TEXTS) + str(i): random_json(rng, depth - 1) for i in range(rng.randrange(4))}


def random_format(rng, value):
    """value as text in one of the ways people and programs write JSON."""
    style = rng.choice([{"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"indent": 1}, {"indent": 0}, {},
                        {"separators": (",", ":")}, {"indent": 2, "separators": (",", " : ")}])
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, **style)
    if rng.random() < 0.3:
        text = text.replace("[\n", "[", 1)
    return text.replace("\n", rng.choice(["\n", "\r\n"])) + rng.choice(["", "\n", "\n\n"])


def random_settings(rng):
    """Settings without anything of ours: other keys, foreign hooks, empty containers."""
    settings = {rng.choice(TEXTS) + str(i): random_json(rng, 2) for i in range(rng.randrange(3))}
    if rng.random() < 0.8:
        settings["hooks"] = {event: [random_group(rng) for _ in range(rng.randrange(3))]
                             for event in rng.sample(EVENTS, rng.randrange(5))}
    if rng.random() < 0.3:
        settings["statusLine"] = {"type": "command", "command": rng.choice(TEXTS + FOREIGN), "padding": 0}
    if rng.random() < 0.3:
        settings["permissions"] = {"allow": rng.sample(["Bash(ls)", "Read"], rng.randrange(3)), "deny": []}
    settings.update({"z" + str(i): random_json(rng, 1) for i in range(rng.randrange(2))})
    return settings


def random_group(rng):
    hooks = [{"type": "command", "command": rng.choice(FOREIGN), **({"timeout": 5} if rng.random() < 0.5 else {})}
             for _ in range(rng.randrange(3))]
    return {**({"matcher": "Bash|Edit"} if rng.random() < 0.5 else {}), "hooks": hooks}


def sprinkle_ours(rng, settings):
    """The same settings with entries of older releases in arbitrary places."""
    result = json.loads(json.dumps(settings))
    for groups in result.get("hooks", {}).values():
        for group in groups:
            if rng.random() < 0.5:
                old = {"type": "command", "command": f"python3 .claude/hooks/ctx_hooks.py {rng.choice(list(kit.MODES))}"}
                group["hooks"].insert(rng.randrange(len(group["hooks"]) + 1), old)
    return result


def cases(count=ROUNDS, ours=False):
    """(seed, settings, the same as text), the settings with older entries of ours or without."""
    for seed in range(count):
        rng = random.Random(seed)
        settings = sprinkle_ours(rng, random_settings(rng)) if ours else random_settings(rng)
        yield seed, settings, random_format(rng, settings)


def edited(src, change, *words):
    text = inst.Text(src)
    change(text, *words)
    return text.src


def merged(src, had=None):
    return edited(src, inst.merge, WANTED, had or {})


def with_status(src):
    return edited(src, inst.set_status, "python3", PATH)


def ours_in(settings):
    return {event: [hook for group in groups for hook in group["hooks"] if inst.mode_of(hook)]
            for event, groups in settings.get("hooks", {}).items()}


def foreign_in(settings):
    return [(event, index, hook) for event, groups in settings.get("hooks", {}).items()
            for index, group in enumerate(g for g in groups if any(not inst.mode_of(h) for h in g["hooks"]))
            for hook in group["hooks"] if not inst.mode_of(hook)]


# -----------------------------------------------------------------------------
# JSON text
# -----------------------------------------------------------------------------


def test_items_stand_where_they_say():
    for seed, settings, src in cases(ROUNDS // 4):
        def check(at, value, src=src, seed=seed):
            items = inst.items_of(src, at)
            keys = list(value) if isinstance(value, dict) else [None] * len(value)
            assert [item.key for item in items] == keys, seed
            for item, inner in zip(items, value.values() if isinstance(value, dict) else value):
                assert json.loads(src[item.at:item.end]) == inner
                if isinstance(inner, (dict, list)):
                    check(item.at, inner)
        check(inst.skip(src, 0), settings)


REFUSED = {
    b"{": "line 1 column 2",
    b'{"a": 1,}': "line 1",
    b'{\n  // why\n  "a": 1\n}': "line 2 column 3",
    b'{"a" 1}': "line 1 column 6",
    b'{"a": "x\ny"}': "line 1 column 9",
    b'{"a": "NaN", "b": [NaN]}': "NaN is not JSON",
    b"{} {}": "line 1 column 4",
    b"[" * 100_000: "nested too deeply",
    b"[]": "the whole must be an object",
    b"null": "the whole must be an object",
    b'{"a": "\xff"}': "can't decode byte 0xff",
    '{"a": 1}'.encode("utf-16"): "can't decode byte 0xff",
    b'{"hooks": []}': "hooks must be an object",
    b'{"hooks": null}': "hooks must be an object",
    b'{"hooks": {"Stop": {}}}': "Stop must be an array",
    b'{"hooks": {"Stop": ["x"]}}': "a group of Stop must be an object",
    b'{"hooks": {"Stop": [{"matcher": ""}]}}': "the hooks in Stop must be an array",
    b'{"statusLine": "x"}': "statusLine must be an object",
    b'{"statusLine": {}}': "statusLine.command must be a string",
    b'{"permissions": []}': "permissions must be an object",
    b'{"permissions": {"allow": "x"}}': "permissions.allow must be an array",
}


@pytest.mark.parametrize("data", REFUSED, ids=[repr(data[:50]) for data in REFUSED])
def test_unusable_settings_are_refused_with_the_reason(data):
    with pytest.raises(ValueError, match=REFUSED[data]):
        inst.parse_settings(data, ["Stop"])


@pytest.mark.parametrize("data", [
    None, b"", b" \r\n\t", BOM, b"{}", b'{"a": 1, "a": 2}', b'{"hooks": {}}',
    b'{"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}}', b'{"hooks": {"disabled": ["x"], "enabled": true}}'])
def test_usable_settings_are_taken(data):
    inst.parse_settings(data, ["Stop"])


def test_only_the_events_we_use_have_to_be_well_formed():
    data = b'{"hooks": {"disabled": ["x"], "enabled": true}}'
    assert inst.parse_settings(data, ["Stop"])[1]["hooks"]["enabled"] is True
    src = merged(data.decode())
    assert json.loads(src)["hooks"]["disabled"] == ["x"] and inst.has_ours(json.loads(src))
    assert edited(src, inst.strip, json.loads(data)) == data.decode()


@pytest.mark.parametrize("src, path, value, expected", [
    ("{}", ["a"], 1, '{\n  "a": 1\n}'),
    ("{}", ["a", "b", 0], 1, '{\n  "a": {\n    "b": [\n      1\n    ]\n  }\n}'),
    ('{"a":1}', ["b"], [2, 3], '{"a":1, "b": [2, 3]}'),
    ('{"a": 1}', ["b"], {}, '{"a": 1, "b": {}}'),
    ('{\n    "a": {}\n}\n', ["a", "b"], 1, '{\n    "a": {\n        "b": 1\n    }\n}\n'),
    ('{"a": 1, "b": 2, "c": 3}', ["b"], None, '{"a": 1, "c": 3}'),
    ('{"a": 1, "b": 2}', ["a"], None, '{"b": 2}'),
    ('{"a": [\n 1\n]}', ["a", 0], None, '{"a": []}'),
    ('{"a": "\\ud800"}', ["b"], "\ud800", '{"a": "\\ud800", "b": "\\ud800"}'),
    ('{"a": 1, "a": 2}', ["a"], 3, '{"a": 1, "a": 3}'),
    ('{\r\n\t"a" : 1.50e+3,\r\n\t"b": {"c":true}\r\n}', ["n"], {"x": [1]},
     '{\r\n\t"a" : 1.50e+3,\r\n\t"b": {"c":true},\r\n\t"n": {\r\n\t\t"x": [\r\n\t\t\t1\r\n\t\t]\r\n\t}\r\n}'),
])
def test_editing_examples(src, path, value, expected):
    assert (edited(src, inst.Text.remove, path) if value is None else edited(src, inst.Text.set, path, value)) == expected


def test_merging_into_a_text_and_stripping_it_again_restores_every_byte():
    for seed, settings, src in cases():
        text = inst.Text(src)
        inst.merge(text, WANTED, {})
        if seed % 2:
            text = inst.Text(with_status(text.src))
        if seed % 3 == 0:
            text.set(["permissions", "allow", len(text.get(["permissions", "allow"]) or [])], "Edit(x)")
        again = inst.Text(text.src)
        inst.merge(again, WANTED, {})
        assert again.src == text.src, seed  # merging twice is merging once
        assert edited(text.src, inst.strip, settings, "Edit(x)") == src, seed


def test_merging_registers_each_entry_exactly_once_and_keeps_foreign_ones_in_order():
    for seed, settings, src in cases(ours=True):
        result = json.loads(merged(src))
        expected = {event: [hook for group in groups for hook in group["hooks"]] for event, groups in WANTED.items()}
        assert {event: hooks for event, hooks in ours_in(result).items() if hooks} == expected, seed
        stripped = json.loads(edited(src, inst.strip, {}))
        assert foreign_in(result) == foreign_in(stripped) == foreign_in(settings), seed
        assert not inst.has_ours(stripped)


def test_no_line_of_the_users_changes_when_hooks_are_merged():
    for seed, settings, _ in cases():
        src = json.dumps(settings, indent=2)
        lines = iter(line.rstrip(",[]{} ") for line in merged(src).splitlines())
        assert all(line.rstrip(",[]{} ") in lines for line in src.splitlines()), seed  # in this order


def test_the_text_of_foreign_hooks_is_never_rewritten():
    odd = '"command" :  "./lint\\u002esh"'
    for seed, _settings, src in cases(ours=True):
        src = re.sub(r'"command" ?: ?"\./lint\.sh"', lambda match: odd, src)
        assert merged(src).count(odd) == edited(src, inst.strip, {}).count(odd) == src.count(odd), seed


def test_an_older_entry_is_replaced_in_its_place_and_keeps_what_a_person_added():
    old = {"type": "command", "command": "python3 x/ctx_hooks.py gate", "statusMessage": "…", "timeout": 99}
    other = {"type": "command", "command": "./mine.sh"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [other, old, other]}, {"hooks": [other]}]}}
    groups = json.loads(merged(json.dumps(settings)))["hooks"]["PreToolUse"]
    new = {**WANTED["PreToolUse"][0]["hooks"][0], "statusMessage": "…"}
    assert groups == [{"matcher": "Bash", "hooks": [other, new, other]}, {"hooks": [other]}]


def test_entries_of_events_that_are_no_longer_used_go():
    settings = {"hooks": {"PostCompact": [{"hooks": [{"type": "command", "command": "python3 ctx_hooks.py cleanup"}]}]}}
    assert "PostCompact" not in json.loads(merged(json.dumps(settings)))["hooks"]


# -----------------------------------------------------------------------------
# Our entries
# -----------------------------------------------------------------------------

OLD = 'python3 -I -S -c "import gc, sys; gc.disable(); sys.path.append(sys.argv.pop()); import ctx_hooks; ctx_hooks.main()"'


@pytest.mark.parametrize("hook", [
    None, 5, {}, {"type": "command", "command": None}, {"type": "command", "command": "python3 ctx_hooks.py gate && ./mine.sh"},
    {"type": "prompt", "command": "python3 ctx_hooks.py gate"}])
def test_what_is_no_command_or_does_more_is_not_ours(hook):
    assert inst.mode_of(hook) == "" and not inst.status_words(hook)


def test_status_line_wraps_and_gives_back_the_exact_command():
    for command in [*TEXTS, *FOREIGN, "a -- b", "sh -c 'x'", "x 2>/dev/null", "it's \"q\" $HOME `x` \\ \n end"]:
        src = json.dumps({"a": 1, "statusLine": {"type": "command", "command": command, "padding": 2}, "b": 2})
        once = with_status(src)
        line = json.loads(once)["statusLine"]
        assert inst.status_words(line) and line["padding"] == 2
        assert with_status(once) == once
        assert edited(once, inst.strip, {}) == src
    assert edited(with_status('{"a": 1}'), inst.strip, {}) == '{"a": 1}'
    foreign = '{"statusLine": {"type": "command", "command": "python3 my_ctx_hooks.py statusline"}}'
    assert edited(foreign, inst.strip, {}) == foreign


def test_the_status_line_of_the_first_release_is_taken_over():
    code = OLD.replace("pop()", "pop(1)")
    line = {"type": "command", "command": code + ' "$CLAUDE_PROJECT_DIR/.claude/hooks" statusline -- sh -c \'echo "mine"\''}
    assert inst.wrapped_status(line) == 'echo "mine"'
    src = with_status(json.dumps({"statusLine": line}))
    assert json.loads(edited(src, inst.strip, {}))["statusLine"]["command"] == 'echo "mine"'


# -----------------------------------------------------------------------------
# Whole runs
# -----------------------------------------------------------------------------

STAND_IN = '''"""Says what it was asked."""
import sys
def hook_main(args):
    print("ran " + args[0])
# ---- below this line: what a hook does not load ----
def main():
    if "--" in sys.argv:
        import subprocess
        subprocess.run(sys.argv[sys.argv.index("--") + 1:])
    hook_main(sys.argv[1:])
'''
OLD_KIT = STAND_IN.replace("Says", "Said")


class Place:
    """A project, a home, and a PATH on which python3 is the interpreter under test."""

    def __init__(self, base):
        self.base = str(base)
        self.source, self.project, self.home, self.bin = (
            os.path.join(self.base, name) for name in ("kit", "my 'ö\" project" if POSIX else "my 'ö project", "home", "bin"))
        for folder in (self.source, self.project, self.home, self.bin):
            os.makedirs(folder)
        if POSIX:
            os.symlink(PYTHON, os.path.join(self.bin, "python3"))
        else:
            make_program(os.path.join(self.bin, "python3"), PASS_ON)
        for name in ("install.py", "ctx_hooks.py"):
            shutil.copy(os.path.join(REPO, name), self.source)
        self.kit = STAND_IN  # what runs in this process install
        self.env = {"PATH": os.pathsep.join([self.bin, "/usr/bin", "/bin"]), "HOME": self.home, "LC_ALL": "C"}
        if not POSIX:
            self.env.update(windows_environment(self.home, self.base))

    def path(self, *names):
        return os.path.join(self.project, *names)

    def write(self, name, data, mode=None):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode("utf-8"))
        if mode is not None:
            os.chmod(path, mode)
        return path

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def settings(self, name=".claude/settings.json"):
        return json.loads(self.read(name).decode("utf-8-sig"))

    def popen(self, *words, cwd=None):
        return subprocess.Popen([PYTHON, os.path.join(self.source, "install.py"), *words], cwd=cwd or self.project,
                                env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @contextlib.contextmanager
    def here(self, cwd=None):
        """This process as if started from this place, with this kit beside install.py."""
        before = dict(os.environ), os.getcwd(), inst.HERE, inst.SOURCE
        os.environ.clear()
        os.environ.update(self.env)
        os.chdir(cwd or self.project)
        inst.HERE, inst.SOURCE = self.source, self.kit.encode()
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before[0])
            os.chdir(before[1])
            inst.HERE, inst.SOURCE = before[2:]

    def run(self, *words, cwd=None, code=0):
        """stdout and stderr of install.py's main(); its exit code must be `code`."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with self.here(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                done = inst.main(list(words))
            except SystemExit as end:
                done = end.code or 0
        out, err = (stream.flush() or stream.buffer.getvalue().decode("utf-8") for stream in (out, err))
        assert done == code, out + err
        return (out, err) if POSIX else tuple(text.replace("\r\n", "\n").replace("\\", "/") for text in (out, err))

    def tree(self, root=None):
        """Everything below the project: path -> (mode, bytes or link target)."""
        found = {}
        root = root or self.project
        for folder, folders, files in os.walk(root):
            if ".git" in folders:
                folders.remove(".git")
            for name in folders + files:
                path = os.path.join(folder, name)
                info = os.lstat(path)
                data = os.readlink(path) if os.path.islink(path) else None
                if stat.S_ISREG(info.st_mode):
                    with open(path, "rb") as file:
                        data = file.read()
                found[os.path.relpath(path, root).replace(os.sep, "/")] = (stat.S_IMODE(info.st_mode), data)
        return found

    def commands(self, name=".claude/settings.json"):
        return [command for _event, command, _ours in kit.find_registrations(self.settings(name))]

    def shell(self, command, **env):
        if not POSIX:
            pytest.skip("the registered line in a POSIX shell; test_windows has Git Bash")
        variables = ("CLAUDE", "GEMINI", "QWEN", "COPILOT", "DROID")
        return subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, cwd="/", timeout=60,
                              env={**self.env, **{f"{v}_PROJECT_DIR": self.project for v in variables}, **env})

    def git(self, *words):
        if not shutil.which("git"):
            pytest.skip("needs git")
        return subprocess.run(["git", "-c", "core.quotePath=false", *words], cwd=self.project, check=True,
                              env={**self.env, "GIT_CONFIG_NOSYSTEM": "1"}, stdout=subprocess.PIPE, timeout=60).stdout.decode()

    def untracked(self):
        return [line[3:] for line in self.git("status", "--porcelain", "-uall").splitlines()]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "place")


SETTINGS = ".claude/settings.json"
KIT = ".claude/hooks/ctx_hooks.py"
RECORD = ".claude/hooks/.ctx_hooks/record.json"
MINE = {"type": "command", "command": "./mine.sh"}
BEFORE = {
    "absent": None,
    "empty": b"",
    "blank": b"\n \n",
    "BOM only": BOM,
    "braces": b"{}",
    "braces apart": b"{\n\n}\n",
    "one line": b'{"model":"x","hooks":{"Stop":[]}}',
    "tabs, CRLF, BOM, no final newline": BOM + b'{\r\n\t"model": "\xc3\xbc",\r\n\t"hooks": {\r\n\t}\r\n}',
    "foreign hooks": json.dumps({"hooks": {"Stop": [{"hooks": [MINE]}], "Other": []}, "n": 1e5}, indent=4).encode(),
    "odd spelling": b'{ "n" : 1.0E+2 ,"u":"\\u00fc\\/" , "hooks" : { "PreToolUse" : [ { "hooks" : [ ] } ] } }\n\n',
    "permissions": b'{"permissions": {"allow": [ ]}}\n',
}


@pytest.mark.parametrize("name", BEFORE)
def test_uninstall_leaves_the_tree_as_it_was(place, name):
    if BEFORE[name] is not None:
        place.write(SETTINGS, BEFORE[name], 0o640)
    before = place.tree()
    out, _ = place.run("--statusline", "--allow-handoff")
    assert out.splitlines()[-1].startswith("next: ")
    for command in place.commands():
        assert re.fullmatch(rb"ran [a-z-]+\n", place.shell(command).stdout)
    place.run("--check", "--allow-handoff")
    installed = place.tree()
    out, _ = place.run()
    assert place.tree() == installed and "unchanged .claude/settings.json" in out
    place.run("--uninstall")
    assert place.tree() == before
    assert place.run("--uninstall")[0] == "nothing of ours in .claude\n"
    assert place.tree() == before


@pytest.mark.parametrize("scope", ["project", "local", "user"])
def test_a_process_on_any_system_installs_checks_and_leaves_the_tree_as_it_was(tmp_path, scope):
    project, home = tmp_path / "it's a project", tmp_path / "home"
    for folder in (project, home):
        (folder / ".claude").mkdir(parents=True)
        (folder / ".claude" / "settings.json").write_bytes(BEFORE["tabs, CRLF, BOM, no final newline"])
    env = {**os.environ, "HOME": str(home), "USERPROFILE": str(home)}
    env.pop("CLAUDE_CONFIG_DIR", None)

    def content():
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and ".cache" not in path.parts}

    def run(*words):
        done = subprocess.run([PYTHON, os.path.join(REPO, "install.py"), str(project), "--scope", scope, *words], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        assert done.returncode == 0, done.stdout.decode("utf-8", "replace")
    before = content()
    run("--python", PYTHON, "--statusline", "--allow-handoff")
    run("--check", "--python", PYTHON)
    settings = (home if scope == "user" else project) / ".claude" / ("settings.local.json" if scope == "local" else "settings.json")
    found = kit.find_registrations(json.loads(settings.read_text(encoding="utf-8-sig")))
    assert [ours.mode for _event, _command, ours in found] == [m for ms in map(list, ours_in({"hooks": WANTED}).values())
                                                              for m in map(inst.mode_of, ms)]
    assert all((" || " in command) == (POSIX or scope == "project") for _event, command, _ours in found)
    run("--uninstall")
    assert content() == before


@pytest.mark.parametrize("agent", [agent for agent in kit.DIALECTS if agent != "claude"])
@pytest.mark.parametrize("name", ["absent", "tabs, CRLF, BOM, no final newline", "odd spelling"])
def test_other_agents_get_the_same_promises(place, agent, name):
    settings = kit.DIALECTS[agent].settings
    if BEFORE[name] is not None:
        place.write(settings, BEFORE[name], 0o640)
    before = place.tree()
    place.run("--agent", agent)
    for command in place.commands(settings):
        assert f" {agent};" in command and place.shell(command).stdout.startswith(b"ran ")
    place.run("--check", "--agent", agent)
    installed = place.tree()
    assert SETTINGS not in installed
    place.run("--agent", agent)
    assert place.tree() == installed
    place.run("--uninstall")
    assert place.tree() == before


def test_agents_are_chosen_by_their_folders_and_none_is_registered_twice(place):
    for folder in (".codex", ".github", ".qwen", ".factory"):
        os.mkdir(place.path(folder))
    before = place.tree()
    _, err = place.run()
    assert set(place.tree()) - set(before) >= {SETTINGS, ".codex/hooks.json", ".qwen/settings.json"}
    assert ".github/hooks" not in place.tree()  # Copilot runs .claude/settings.json
    assert "droid: start it here and trust the folder" in err
    assert "codex: start it here, trust the folder" in err and kit.slashed(place.project) in place.read(".codex/hooks.json").decode().replace("\\", "").replace("'\"'\"'", "'")
    out, _ = place.run("--uninstall", "--agent", "codex")
    assert "took" not in out and ".codex/hooks.json" not in place.tree() and SETTINGS in place.tree()
    place.run("--check", "--agent", "claude", "--agent", "qwen")
    assert place.run("--check", code=1)[0] == "would write .codex/hooks.json\n"
    place.run("--uninstall")
    assert place.tree() == before
    place.run("--agent", "copilot")
    assert ".github/hooks/ctx_hooks.json" in place.tree()
    place.run("--agent", "all")
    assert ".github/hooks/ctx_hooks.json" not in place.tree() and ".gemini/settings.json" in place.tree()
    place.run("--uninstall")
    assert place.tree() == before


@pytest.mark.parametrize("data", [b'{"a": 1,}', b"[]", b'{"hooks": {"Stop": 5}}', b"\xff"])
@pytest.mark.parametrize("words", [[], ["--uninstall"], ["--check"], ["--dry-run"], ["--force"]])
def test_unusable_settings_stop_everything_before_the_first_write(place, data, words):
    place.write(SETTINGS, data)
    before = place.tree()
    out, err = place.run(*words, code=1)
    assert re.match(r"error: \.claude/settings\.json: .*\nhint: .*\n$", err) and not out
    assert place.tree() == before


def test_only_our_entries_go_when_the_settings_changed_in_between(place):
    place.write(SETTINGS, '{\n  "hooks": {\n    "Stop": []\n  }\n}\n')
    place.run("--allow-handoff")
    settings = place.settings()
    settings["env"] = {"A": "b"}
    settings["hooks"]["Stop"].append({"hooks": [MINE]})
    settings["permissions"]["allow"].append("Bash(ls)")
    place.write(SETTINGS, json.dumps(settings, indent=2))  # as the client writes it
    place.run("--uninstall")
    expected = {"hooks": {"Stop": [{"hooks": [MINE]}]}, "permissions": {"allow": ["Bash(ls)"]}, "env": {"A": "b"}}
    assert place.read(SETTINGS).decode() == json.dumps(expected, indent=2)
    assert not os.path.exists(place.path(".claude", "hooks"))


def test_an_install_without_the_option_remembers_the_rule_that_an_earlier_one_added(place):
    place.write(SETTINGS, '{"model": "x"}')
    place.run("--allow-handoff")
    settings = place.settings()
    del settings["hooks"]["Stop"]
    place.write(SETTINGS, json.dumps(settings))
    place.run()
    place.run("--uninstall")
    assert place.settings() == {"model": "x"}


@pytest.mark.parametrize("before, after", [('{ "model": "x" }', '{\n    "model": "x"\n}'), (None, None)])
def test_what_a_formatter_did_in_between_stays_and_a_file_of_ours_goes(place, before, after):
    if before:
        place.write(SETTINGS, before)
    place.run()
    place.write(SETTINGS, json.dumps(place.settings(), indent=4))
    place.run("--uninstall")
    assert (place.read(SETTINGS).decode() if after else place.tree().get(SETTINGS)) == after


def test_a_change_between_two_installs_is_not_undone(place):
    place.run()
    place.write(SETTINGS, json.dumps({**place.settings(), "env": {"A": "b"}}, indent=2) + "\n")
    place.kit += "# newer\n"
    place.run("--statusline")
    place.run("--uninstall")
    assert place.read(SETTINGS) == b'{\n  "env": {\n    "A": "b"\n  }\n}\n'


@pytest.mark.skipif(not POSIX, reason="Windows has no mode bits")
def test_modes_are_kept_and_secrets_stay_private(place):
    place.write(SETTINGS, b'{"env": {"TOKEN": "x"}}', 0o600)
    place.run()
    copies = {name: mode for name, (mode, data) in place.tree().items() if data and b"TOKEN" in data}
    assert len(copies) == 2 and set(copies.values()) == {0o600}


def test_the_permission_rule_is_added_once_shown_and_taken_out_only_if_it_is_ours(place):
    rule = "Edit(/.context/handoffs/**)"
    assert rule in place.run("--dry-run", "--allow-handoff")[0]
    place.run("--allow-handoff")
    place.run("--allow-handoff")
    assert place.settings()["permissions"] == {"allow": [rule]}
    place.run("--uninstall")
    assert place.tree() == {}
    place.write(SETTINGS, json.dumps({"permissions": {"allow": [rule]}}))
    place.run("--allow-handoff")
    place.run("--uninstall")
    assert place.settings() == {"permissions": {"allow": [rule]}}
    place.run("--scope", "user", "--allow-handoff")
    with open(os.path.join(place.home, SETTINGS), encoding="utf-8") as file:
        assert json.load(file)["permissions"]["allow"] == ["Edit(**/.context/handoffs/**)"]


def test_links_inside_the_project_are_followed(place):
    place.write("dotfiles/claude.json", b'{"a": 1}')
    os.mkdir(place.path(".claude"))
    os.symlink("../dotfiles/claude.json", place.path(SETTINGS))
    before = place.tree()
    place.run()
    assert os.path.islink(place.path(SETTINGS)) and b"ctx_hooks" in place.read("dotfiles/claude.json")
    assert os.listdir(place.path("dotfiles")) == ["claude.json"]
    place.run("--uninstall")
    assert place.tree() == before


@pytest.mark.parametrize("name", [".claude", ".claude/hooks", KIT, ".claude/hooks/.ctx_hooks", SETTINGS,
                                  ".codex", ".context", ".claude/.gitignore"])
def test_links_that_lead_out_are_refused_with_the_path(place, name):
    outside = os.path.join(place.base, "outside")
    if name.endswith((".json", ".py", "ignore")):
        with open(outside, "w", encoding="utf-8") as file:
            file.write(inst.IGNORE_LOCAL if name.endswith("ignore") else "")
    else:
        os.mkdir(outside)
    os.makedirs(os.path.dirname(place.path(name)), exist_ok=True)
    os.symlink(outside, place.path(name))
    before, behind = place.tree(), place.tree(outside)
    words = ["--scope", "local"] if "ignore" in name else ["--agent", "codex"] if name == ".codex" else []
    _, err = place.run("--init", "--force", *words, code=1)
    assert f"leads out of the project, to {outside}" in err
    assert place.tree() == before and place.tree(outside) == behind


@pytest.mark.skipif(not POSIX, reason="Windows has no such names of files")
def test_no_name_in_a_project_reaches_the_terminal_with_its_control_characters(place):
    place.run()
    place.write(".claude/hooks/ctx_hooks.\x1b]0;evil\x07.so", b"")
    assert "\x1b" not in place.run("--check", code=1)[0] + place.run()[1]
    shutil.rmtree(place.path(".claude"))
    os.symlink("/tmp/\x1b[2Jevil", place.path(".claude"))
    err = place.run(code=1)[1]
    assert "evil" in err and "\x1b" not in err


def test_read_only_settings_and_pipes_are_refused(place):
    os.makedirs(place.path(".claude"))
    os.mkfifo(place.path(SETTINGS))
    assert "not a regular file" in place.run(code=1)[1]
    os.unlink(place.path(SETTINGS))
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    place.write(SETTINGS, b"{}", 0o400)
    assert "is read-only" in place.run(code=1)[1]


def test_a_foreign_kit_is_refused_then_kept_by_force_and_restored(place):
    place.write(KIT, b"print('mine')\n", 0o755)
    before = place.tree()
    assert "--force" in place.run(code=1)[1] and place.tree() == before
    assert "kept .claude/hooks/ctx_hooks.py as .claude/hooks/.ctx_hooks/ctx_hooks.py.kept-" in place.run("--force")[0]
    assert place.read(KIT).decode() == STAND_IN
    assert "restored" in place.run("--uninstall")[0]
    assert place.tree() == before


def test_an_edited_kit_is_never_lost(place):
    place.write(KIT, b"first = 1\n")
    place.run("--force")
    place.write(KIT, STAND_IN + "second = 2\n")
    place.run(code=1)
    place.run("--force")
    place.write(KIT, STAND_IN + "third = 3\n")
    assert "kept .claude/hooks/ctx_hooks.py (edited" in place.run("--uninstall")[0]
    texts = b"".join(data for _mode, data in place.tree().values() if data).decode()
    assert all(text in texts for text in ("first = 1", "second = 2", "third = 3"))


def test_an_untouched_older_release_is_upgraded(place):
    place.kit = OLD_KIT
    place.run()
    place.kit = STAND_IN
    assert "older release" in place.run("--check", code=1)[0]
    assert f"wrote {KIT} ({kit.VERSION}, was an older release)" in place.run()[0]
    place.run("--uninstall")
    assert place.tree() == {}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_known_release_is_upgraded_in_a_clone_without_a_record(place, monkeypatch, line_end):
    place.write(KIT, OLD_KIT.replace("\n", line_end))
    assert "not an untouched release" in place.run(code=1)[1]
    monkeypatch.setitem(kit.KNOWN_RELEASES, inst.digest_of(OLD_KIT), "0.0.9")
    assert f"({kit.VERSION}, was 0.0.9)" in place.run()[0]


def test_a_checkout_with_crlf_is_not_edited(place):
    place.run()
    place.write(KIT, STAND_IN.replace("\n", "\r\n"))
    place.run("--check")
    assert f"unchanged {KIT}" in place.run()[0]
    place.run("--uninstall")
    assert place.tree() == {}


def first_release(place):
    """What 0.1.0 left behind, as it was recorded."""
    code = OLD + ' %s "$CLAUDE_PROJECT_DIR/.claude/hooks" || exit 0'
    hooks = {event: [{"hooks": [{"type": "command", "command": code % mode, "timeout": 10}]}] for event, mode in (
        ("SessionStart", "inject"), ("UserPromptSubmit", "inject"), ("PreToolUse", "gate"), ("PostToolUse", "monitor"),
        ("PostToolUseFailure", "monitor"), ("Stop", "stop-enforce"), ("SessionEnd", "cleanup"))}
    text = json.dumps({"a": 1, "hooks": hooks}, indent=2)
    place.write(SETTINGS, text)
    place.write(KIT, OLD_KIT)
    place.write(".claude/hooks/__pycache__/ctx_hooks.cpython-311.pyc", b"x")
    place.write(".claude/hooks/.gitignore", "# written by ctx_hooks\n/.ctx_hooks/\n/__pycache__/\n/ctx_hooks.py.kept-*\n")
    place.write(SETTINGS + ".bak-20260203T104500Z", '{"a": 1}')
    place.write(".claude/hooks/.ctx_hooks/.gitignore", "*\n")
    place.write(RECORD, json.dumps({
        "kit": inst.digest_of(OLD_KIT), "older": "", "aside": [], "folders": ["hooks"], "settings": {"settings.json": {
            "original": '{"a": 1}', "after": inst.digest_of(text), "backups": {}}}}))


@pytest.mark.parametrize("upgrade", [True, False])
def test_what_the_first_release_left_is_cleaned_away(place, upgrade):
    first_release(place)
    if upgrade:
        out, _ = place.run()
        assert "removed .claude/hooks/__pycache__/ctx_hooks.cpython-311.pyc" in out
        assert {name for name in place.tree() if "pycache" in name} == set()
        assert all(command.startswith(": ctx_hooks ") for command in place.commands())
        place.run("--check")
    place.run("--uninstall")
    assert {name: data for name, (_mode, data) in place.tree().items()} == {".claude": None, SETTINGS: b'{"a": 1}'}


def test_a_backup_of_other_settings_than_those_that_come_back_stays_and_is_named(place):
    first_release(place)
    place.write(SETTINGS + ".bak-20260203T104501Z", '{"b": 2}')
    place.run()
    out, _ = place.run("--uninstall")
    assert f"kept {SETTINGS}.bak-20260203T104501Z" in out and place.read(SETTINGS + ".bak-20260203T104501Z") == b'{"b": 2}'


@pytest.mark.parametrize("own", [None, b"# Mine\r\n\r\nkeep this", b"# Mine\n"])
def test_uninstalling_takes_our_section_out_of_the_instruction_file(place, own):
    place.write(".context/TASKS.md", "- a task\n")
    if own is not None:
        place.write("CLAUDE.md", own)
    before = place.tree()
    place.run()
    ctx = kit.find_project(kit.slashed(place.project), "", place.env, 1_770_115_500.0)
    assert kit.write_section(ctx, "where we stood", "CLAUDE.md") and b"where we stood" in place.read("CLAUDE.md")
    verb = "remove" if own is None else "take our section out of"
    assert f"would {verb} CLAUDE.md" in place.run("--uninstall", "--dry-run")[0]
    place.run("--uninstall")
    after = {name: entry for name, entry in place.tree().items() if not name.startswith(".context/")}
    assert after == {name: entry for name, entry in before.items() if not name.startswith(".context/")}


def test_a_clone_without_a_record_can_be_uninstalled(place):
    place.write(SETTINGS, '{\n  "model": "x"\n}\n')
    place.run()
    shutil.rmtree(place.path(".claude", "hooks", ".ctx_hooks"))
    place.run("--uninstall")
    assert place.read(SETTINGS) == b'{\n  "model": "x"\n}\n'
    assert KIT not in place.tree()


@pytest.mark.parametrize("broken", [None, b"", b"syntax error", b"import sys\nsys.exit(2)\n", b"raise SystemExit(2)"])
@pytest.mark.skipif(not POSIX, reason="the registered line in a POSIX shell; test_windows has Git Bash")
def test_a_missing_or_broken_kit_and_a_missing_interpreter_deny_nothing(place, broken):
    place.run()
    os.unlink(place.path(KIT))
    if broken is not None:
        place.write(KIT, broken)
    for command in place.commands():
        done = place.shell(command)
        assert (done.returncode, done.stdout) == (0, b"")
        assert place.shell(command, PATH="/nowhere").returncode == 0


def test_nothing_beside_the_kit_is_run_and_what_could_be_imported_is_named(place):
    place.run()
    for name in ("sys.py", "json.py", "os.py", "ctx_hooks/__init__.py", "ctx_hooks.cpython-311-x86_64-linux-gnu.so",
                 "ctx_hooks.pyc", "__pycache__/ctx_hooks.cpython-38.pyc", "other.so"):
        place.write(".claude/hooks/" + name, "raise SystemExit('shadowed')")
    assert all(place.shell(command).stdout.startswith(b"ran ") for command in place.commands())
    named = ["ctx_hooks", "ctx_hooks.cpython-311-x86_64-linux-gnu.so", "ctx_hooks.pyc"]
    out, _ = place.run("--check", code=1)
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "would remove .claude/hooks/__pycache__/ctx_hooks.cpython-38.pyc", *(
            ".claude/hooks/" + name for name in ["__pycache__/ctx_hooks.cpython-38.pyc", *named])]
    out, err = place.run()
    assert "removed .claude/hooks/__pycache__/ctx_hooks.cpython-38.pyc" in out
    assert [line.split(":")[1] for line in err.splitlines()] == [" .claude/hooks/" + name for name in named]
    assert os.path.exists(place.path(".claude", "hooks", "ctx_hooks"))


def test_git_sees_the_kit_and_the_settings_and_nothing_else(place, tmp_path):
    place.git("init", "-q")
    place.write(SETTINGS, b'{"a": 1}')
    place.run("--statusline")
    place.shell(place.commands()[0])
    assert place.untracked() == [KIT, SETTINGS]
    place.git("add", "-A")
    place.git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")
    place.git("clone", "-q", ".", str(tmp_path / "clone"))
    place.project = str(tmp_path / "clone")
    assert place.shell(place.commands()[0]).stdout == b"ran inject\n"
    place.run()
    assert place.untracked() == []


def test_git_sees_nothing_of_a_private_install(place):
    place.git("init", "-q")
    place.write("own.txt", b"x")
    for words in ([], ["--init"]):
        before = place.tree()
        place.run("--scope", "local", *words)
        place.run("--scope", "local", "--statusline")
        place.shell(place.commands(".claude/settings.local.json")[0])
        assert place.untracked() == ["own.txt"]
        place.run("--uninstall", "--scope", "local")
        assert place.untracked() == ["own.txt"]
        assert words or place.tree() == before
    shutil.rmtree(place.path(".context"))
    place.run("--scope", "local")
    place.run()  # shared as well: now the kit is for everybody
    assert place.untracked() == [KIT, SETTINGS, "own.txt"]
    place.run("--uninstall")
    assert place.untracked() == ["own.txt"]
    place.run("--uninstall", "--scope", "local")
    assert place.tree() == before or not words
    place.write(".claude/.gitignore", "*.log\n")
    assert ".claude/.gitignore is your own: add /settings.local.json" in place.run("--scope", "local")[1]
    assert place.read(".claude/.gitignore") == b"*.log\n"
    assert "only Claude Code has private settings" in place.run("--scope", "local", "--agent", "codex", code=1)[1]


def test_two_scopes_share_a_kit_until_the_last_one_goes(place):
    place.run()
    assert "would run twice" in place.run("--scope", "local")[1]
    out, _ = place.run("--uninstall")
    assert f"kept {KIT} (.claude/settings.local.json uses it)" in out
    assert "--uninstall --scope local" in out.splitlines()[-1]
    place.run("--check", "--scope", "local")
    place.run("--uninstall", "--scope", "local")
    assert place.tree() == {}


@pytest.mark.parametrize("variable", [None, "a \"b' ü/deep" if POSIX else "a b' ü/deep"])
def test_user_scope_registers_an_absolute_path_that_runs_anywhere(place, variable):
    config = os.path.join(place.home, variable or ".claude")
    if variable:
        place.env["CLAUDE_CONFIG_DIR"] = config
    place.run("--scope", "user")
    assert place.tree() == {}
    for command in place.commands(os.path.join(config, "settings.json")):
        assert "CLAUDE_PROJECT_DIR" not in command and inst.quote_path(PYTHON) in command
        assert place.shell(command, PATH="/nowhere", XDG_CACHE_HOME=place.base).stdout.startswith(b"ran ")
    place.run("--scope", "user", "--check")
    place.run("--scope", "user", "--uninstall")
    assert place.tree(place.home) == {}


@pytest.mark.skipif(not POSIX, reason="its interpreter is a link")
def test_an_interpreter_below_the_home_folder_is_taken_also_from_there(place):
    own = os.path.join(place.home, "versions", "python3")
    os.mkdir(os.path.dirname(own))
    os.symlink(PYTHON, own)
    place.run("--scope", "user", "--python", own, cwd=place.home)
    assert all(own in command for command in place.commands(os.path.join(place.home, SETTINGS)))
    project = place.path(".venv")
    os.symlink(PYTHON, project)
    assert "there is no interpreter" in place.run("--python", project, code=1)[1]


def test_the_project_is_the_nearest_folder_with_git_or_claude_and_is_named(place):
    os.makedirs(place.path("app", ".claude"))
    deep = place.path("app", "src", "deep")
    os.makedirs(deep)
    assert place.run(cwd=deep)[0].startswith("project: %s\nwrote " % place.path("app").replace(os.sep, "/"))
    os.mkdir(place.path("app", "src", ".git"))
    place.run(cwd=deep)
    assert os.path.exists(place.path("app", "src", SETTINGS))
    place.run(deep)
    assert os.path.exists(os.path.join(deep, SETTINGS))
    assert not place.run(cwd=deep)[0].startswith("project: ")


@pytest.mark.skipif(not POSIX, reason="pasted into a POSIX shell")
def test_the_next_line_works_in_the_folder_one_is_in(place):
    for folder in ("", "sub/deep", place.base):
        cwd = place.path(folder)
        os.makedirs(cwd, exist_ok=True)
        for words in ([], ["--init"]):
            last = place.run(place.project, *words, cwd=cwd)[0].splitlines()[-1]
            command = re.sub(r" {3}\(.*", "", last[len("next: "):])
            done = subprocess.run(["/bin/sh", "-c", command], cwd=cwd, env=place.env, timeout=60, stdout=subprocess.PIPE)
            assert done.returncode == 0, command
            shutil.rmtree(place.path(".context"), ignore_errors=True)


def test_the_users_own_claude_folder_does_not_make_the_home_a_project(place):
    os.makedirs(os.path.join(place.home, ".claude"))
    folder = os.path.join(place.home, "src")
    os.mkdir(folder)
    place.run(cwd=folder)
    assert os.listdir(os.path.join(place.home, ".claude")) == []
    assert os.path.exists(os.path.join(folder, SETTINGS))
    _, err = place.run(place.home, code=1)
    assert "your own settings" in err and "--scope user" in err


def test_the_kits_own_folder_is_no_project_unless_named_and_keeps_its_kit(place):
    os.mkdir(os.path.join(place.source, ".git"))
    assert "kit's own folder" in place.run(cwd=place.source, code=1)[1]
    place.run(".", cwd=place.source)
    place.source = place.path(".claude", "hooks")
    place.write(KIT, STAND_IN)
    before = place.tree()
    place.run()
    assert place.shell(place.commands()[0]).stdout == b"ran inject\n"
    assert "beside this install.py" in place.run("--uninstall")[0]
    assert place.tree() == before


@pytest.mark.parametrize("words", [["--dry-run"], ["--check"], ["--dry-run", "--uninstall"], ["--help"],
                                   ["--dry-run", "--launcher", "--init", "--agent", "all"]])
@pytest.mark.parametrize("installed", [False, True])
def test_looking_writes_nothing(place, words, installed):
    if installed:
        place.run()
    before = place.tree(place.base)
    place.run(*words, code=0 if installed or words != ["--check"] else 1)
    assert place.tree(place.base) == before


@pytest.mark.parametrize("name", BEFORE)
def test_a_verbose_dry_run_is_a_patch_that_does_what_the_run_does(place, name):
    if not shutil.which("patch"):
        pytest.skip("needs patch")
    if BEFORE[name] is not None:
        place.write(SETTINGS, BEFORE[name])
    place.write("own.txt", b"")
    out, _ = place.run("--dry-run", "--verbose", "--init", "--agent", "all")
    copy = place.project + " copy"
    shutil.copytree(place.project, copy)
    subprocess.run(["patch", "--binary", "-s", "-p1"], input=out.encode(), cwd=copy, check=True, timeout=60)
    place.run("--init", "--agent", "all")

    def content(root):
        return {re.sub("bak-.*", "bak", path): data for path, (_mode, data) in place.tree(root).items()
                if data and not path.endswith((RECORD, ".ctx_hooks/.gitignore"))}
    assert content(copy) == content(place.project)


def test_a_dry_run_is_short_and_sums_up_what_the_settings_gain_and_lose(place):
    place.write(SETTINGS, b'{"model": "opus", "permissions": {"deny": ["Read(./.env)"]}}')
    assert "def main" not in place.run("--dry-run")[0]
    lines = place.run("--dry-run", "--allow-handoff")[0].splitlines()
    assert lines[0].startswith(f"would write {KIT}") and lines[1] == f"would merge into {SETTINGS}"
    assert lines[2].startswith("  + hooks: SessionStart inject, UserPromptSubmit inject, PreToolUse gate, ")
    assert '  + "Edit(/.context/handoffs/**)"' in lines and len(lines) < 9
    place.run("--allow-handoff")
    lines = place.run("--dry-run", "--uninstall")[0].splitlines()
    assert lines[1].startswith("  - hooks: SessionStart inject, ") and '  - "Edit(/.context/handoffs/**)"' in lines


def test_a_dry_run_shows_no_control_character_of_a_strangers_settings(place):
    place.run()
    settings = place.settings()
    settings["hooks"]["\x1b]0;pwn\x07Evil\x9b2J"] = settings["hooks"].pop("Stop")
    place.write(SETTINGS, json.dumps(settings))
    assert not set("\x1b\x07\x9b") & set(place.run("--dry-run")[0])


def test_a_dry_run_names_lines_and_checksum(place):
    lines = place.run("--dry-run")[0].splitlines()
    assert lines[0] == f"would write {KIT} ({kit.VERSION}), {STAND_IN.count(chr(10))} lines, sha256 {inst.digest_of(STAND_IN)}"


def test_check_names_what_an_install_would_change(place):
    assert place.run("--check", code=1)[0] == f"would write {KIT} ({kit.VERSION})\nwould write {SETTINGS}\n"
    place.run()
    assert place.run("--check")[0].startswith(f"ok: ctx_hooks {kit.VERSION} is installed and current for claude in ")
    for words in (["--statusline"], ["--allow-handoff"]):
        assert f"would merge into {SETTINGS}\n" in place.run("--check", *words, code=1)[0]
    settings = place.settings()
    del settings["hooks"]["SessionEnd"]
    place.write(SETTINGS, json.dumps(settings))
    assert f"would merge into {SETTINGS}\n" in place.run("--check", code=1)[0]
    place.write(KIT, STAND_IN + "#")
    assert f"{KIT} is not an untouched release" in place.run("--check", code=1)[1]


def test_check_accepts_the_interpreter_that_is_registered_and_tries_it(place):
    another = os.path.join(place.bin, "another")
    os.symlink(PYTHON, another)
    place.run("--python", another)
    assert all(another in command for command in place.commands())
    place.run("--check")
    place.run()  # keeps it
    place.run("--check")
    os.unlink(another)
    assert f"would merge into {SETTINGS}" in place.run("--check", code=1)[0]
    place.run()
    assert all("; python3 -I" in command or "|| python3 -I" in command for command in place.commands())


def fake_python(folder, name, body):
    path = os.path.join(folder, name)
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + body)
    os.chmod(path, 0o755)
    return path


@pytest.mark.skipif(not POSIX, reason="its interpreters are scripts for a POSIX shell")
def test_an_interpreter_that_is_too_old_or_missing_is_refused(place):
    fake_python(place.bin, "python3", "echo 3.6\n")
    assert re.match(r"error: the interpreter .*/python3 is no Python from 3.8 on \(Python 3.6\)\nhint: ", place.run(code=1)[1])
    assert "there is no interpreter no-such-python" in place.run("--python", "no-such-python", code=1)[1]
    assert place.tree() == {}


@pytest.mark.parametrize("where", ["cwd", "relative entry", "absolute entry", "registered"])
def test_an_interpreter_of_the_project_is_never_run(place, where):
    ran = os.path.join(place.base, "ran")
    evil = fake_python(place.project, "python3", f"touch '{ran}'; exec '{PYTHON}' \"$@\"\n")
    if where == "registered":
        place.write(SETTINGS, json.dumps({"hooks": kit.plan_hooks("claude", inst.quote_path(evil), PATH)}))
        place.write("$CLAUDE_PROJECT_DIR/python3", b"")
    else:
        entry = {"cwd": "", "relative entry": ".", "absolute entry": place.project}[where]
        place.env["PATH"] = os.pathsep.join([entry, place.env["PATH"]])
    place.run("--check", code=1)
    place.run()
    assert not os.path.exists(ran)


def test_status_line_runs_the_users_own_inside(place):
    command = "printf '%s|' \"it's\" \"$HOME\"; echo \"mine\""
    place.write(SETTINGS, json.dumps({"statusLine": {"type": "command", "command": command}}))
    place.run("--statusline")
    assert place.shell(place.settings()["statusLine"]["command"]).stdout.decode() == f"it's|{place.home}|mine\nran statusline\n"


@pytest.mark.skipif(not POSIX, reason="compares names with the separator of POSIX")
def test_init_creates_what_is_missing_and_overwrites_nothing(place):
    out, _ = place.run()
    assert "--init" in out.splitlines()[-1]
    place.write(".context/TASKS.md", "mine\n")
    place.run("--only-init")
    assert sorted(os.listdir(place.path(".context"))) == sorted([".gitignore", *kit.CONTEXT_FILES])
    assert place.read(".context/TASKS.md") == b"mine\n"
    assert place.read(".context/.gitignore").decode() == kit.GITIGNORE_TEXT
    before = place.tree()
    place.run("--init")
    assert place.tree() == before
    assert "kept .context/ (it is yours)" in place.run("--uninstall")[0]
    assert {name.split(os.sep)[0] for name in place.tree()} == {".context"}
    place.run("--only-init")
    assert {name.split(os.sep)[0] for name in place.tree()} == {".context"}


@pytest.mark.parametrize("line, folder", [("context_dir: docs/ctx # ours", "docs/ctx"), ("context_dir: 'a b'", "a b"),
                                          ("context_dir: ../out", ".context"), ("context_dir:", ".context")])
def test_init_respects_the_configured_folder_inside_the_project(place, line, folder):
    place.write(".contextrc", "gate:\n  context_dir: no\n" + line + "\n")
    place.run("--init", "--allow-handoff")
    assert os.path.exists(place.path(folder, "TASKS.md"))
    assert place.settings()["permissions"]["allow"] == [f"Edit(/{folder}/handoffs/**)"]


@pytest.mark.parametrize("files, lines", [
    ({}, []),
    ({"Makefile": "build test:\ntest: x\n\ttrue\ncheck:\nlint := 1\n.PHONY: all\n"}, ["- Test: `make test`"]),
    ({"package.json": '{"scripts": {"build": "rm -rf /", "test": "x", "evil`": "y"}}', "yarn.lock": "x"},
     ["- Build: `yarn run build`", "- Test: `yarn run test`"]),
    ({"package.json": '{"scripts": 5}'}, []), ({"package.json": "[1"}, []), ({"package.json": "null"}, []),
    ({"pyproject.toml": "[build-system]\n[tool.pytest.ini_options]\n[tool.ruff]\n"},
     ["- Build: `python3 -m build`", "- Test: `python3 -m pytest`", "- Lint: `python3 -m ruff check`"]),
    ({"pyproject.toml": "[tool.pytest.ini_options]\n", "uv.lock": "x", "Makefile": "all:\n"},
     ["- Build: `make all`", "- Test: `uv run pytest`"]),
    ({"Cargo.toml": "[package]"}, ["- Build: `cargo build`", "- Test: `cargo test`"]),
    ({"go.mod": "module x"}, ["- Build: `go build ./...`", "- Test: `go test ./...`"]),
])
def test_init_fills_in_the_commands_that_it_can_see(place, files, lines):
    for name, text in files.items():
        place.write(name, text)
    place.run("--only-init")
    found = place.read(".context/CONVENTIONS.md").decode()
    assert [line for line in found.splitlines() if line.startswith(("- Build", "- Test", "- Lint"))] == lines
    assert lines or found == inst.TEMPLATES["CONVENTIONS.md"]


def test_templates_are_short_and_say_nothing_until_somebody_writes():
    assert list(inst.TEMPLATES) == list(kit.CONTEXT_FILES)
    for text in inst.TEMPLATES.values():
        assert text.startswith("# ") and text.endswith("\n") and len(text.splitlines()) <= 12
        left = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
        assert [line for line in left.splitlines() if line and not re.fullmatch(r"#.*|- (\[ \] )?\(.*\)", line)] == []
        assert not kit.says_something(text.encode())


def planned(place, *words):
    """The steps of a run from this place, and the job they belong to."""
    options = inst.parse_arguments([place.project, *words])
    layout = inst.Layout(place.project, options.scope)
    agents = inst.choose_agents(options, layout)
    python = "" if options.uninstall else inst.pick_python(options, layout, agents)
    job = inst.Job(layout, inst.read_record(layout), options, agents, python)
    return inst.plan(job), job


on_posix = pytest.mark.skipif(not POSIX, reason="needs a POSIX shell and symlinks")


@on_posix
@pytest.mark.parametrize("kit_text", [None, b"mine = 1\n"])
def test_an_install_cut_short_anywhere_can_be_finished_or_undone(tmp_path, kit_text):
    count = 1
    for finish in (False, True):
        cut = 0
        while cut < count:
            place = Place(tmp_path / f"{finish}-{cut}")
            place.write(SETTINGS, b'{"a": 1}')
            os.mkdir(place.path(".codex"))
            if kit_text:
                place.write(KIT, kit_text)
            before = place.tree()
            with place.here():
                steps, job = planned(place, "--force", "--statusline", "--allow-handoff")
                for step in steps[:cut]:
                    inst.apply_step(step, job)
            if finish:
                place.run("--force", "--statusline", "--allow-handoff")
                place.run("--check", "--statusline", "--allow-handoff")
            place.run("--uninstall")
            assert place.tree() == before, steps[:cut]
            count, cut = len(steps) + 1, cut + 1
    assert count > 4


@on_posix
def test_an_uninstall_cut_short_anywhere_can_be_finished(tmp_path):
    cut, count = 0, 1
    while cut < count:
        place = Place(tmp_path / str(cut))
        place.write(SETTINGS, b'{"a": 1}')
        place.write(KIT, b"mine = 1\n")
        before = place.tree()
        place.run("--force")
        with place.here():
            steps, job = planned(place, "--uninstall")
            for step in steps[:cut]:
                inst.apply_step(step, job)
        place.run("--uninstall")
        assert place.tree() == before, steps[:cut]
        count, cut = len(steps) + 1, cut + 1


def test_an_upgrade_cut_short_before_the_kit_is_no_foreign_kit(place):
    place.run()
    record = json.loads(place.read(RECORD))
    place.kit += "# newer\n"
    place.write(RECORD, json.dumps({**record, "older": record["kit"], "kit": inst.digest_of(place.kit)}))
    place.run()
    assert place.read(KIT).endswith(b"# newer\n")


def test_a_replace_that_is_refused_for_a_moment_is_tried_again(tmp_path, monkeypatch):
    real, refusals = os.replace, [PermissionError(13, "used by another process")] * 3

    def busy(*words):
        if refusals:
            raise refusals.pop()
        return real(*words)
    monkeypatch.setattr(os, "replace", busy)
    monkeypatch.setattr(kit, "IS_POSIX", False)  # it happens on Windows only
    inst.write_atomic(str(tmp_path / "a"), b"x")
    assert (tmp_path / "a").read_bytes() == b"x" and not refusals


def test_a_dollar_in_a_path_stays_in_the_form_for_windows(place, monkeypatch):
    """Only the variable of a client loses it, since Python fills that in."""
    place.env["CLAUDE_CONFIG_DIR"] = os.path.join(place.home, "a$b")
    monkeypatch.setattr(inst, "IS_WINDOWS", True)
    with place.here():
        paths = [(scope, layout.kit.replace("\\", "/"), kit.parse_command(group["hooks"][0]["command"]))
                 for scope in ("user", "local") for layout in [inst.Layout(place.project, scope)]
                 for group, in layout.plan_hooks("claude", "py -3").values()]
    assert {ours.path for scope, path, ours in paths if scope == "local"} == {"CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py"}
    assert [ours.path for scope, path, ours in paths if scope == "user"] == [path for scope, path, _ in paths if scope == "user"]
    assert all(ours.exact for _, _, ours in paths)


def test_quiet_says_nothing_and_version_names_the_kit(place):
    assert place.run("--quiet") == ("", "") and place.run("--check", "--quiet")[0] == ""
    assert place.run("--uninstall", "--quiet") == ("", "")
    assert re.fullmatch(rf"ctx_hooks {kit.VERSION}\nsha256 [0-9a-f]{{64}}\n", place.run("--version")[0])


def test_settings_that_change_in_between_are_not_overwritten(place):
    path = place.write("settings.json", b"new")
    with place.here():
        _, job = planned(place)
        for step in (inst.Step("write", path, data=b"ours", old=b"old"), inst.Step("remove", path, old=b"old"),
                     inst.Step("write", path, data=b"ours")):
            with pytest.raises(inst.Refused, match="changed in this very moment"):
                inst.apply_step(step, job)
    assert place.read("settings.json") == b"new" and os.listdir(place.project) == ["settings.json"]


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b'{"settings": []}', b"[" * 100_000,
                                  b'{"kit": 5, "folders": [5, "..", "../../x", "/etc"]}',
                                  b'{"settings": {"../x": {}, "settings.json": {"original": 5, "backups": {}}}}',
                                  b'{"settings": {"settings.json": {"original": "\\ud800", "after": 1}}}'])
def test_a_damaged_or_hostile_record_is_harmless(place, data):
    place.run()
    precious = place.write(".claude/precious", b"x")
    place.write(RECORD, data)
    place.run("--check")
    place.run("--uninstall")
    assert os.path.exists(precious) and (SETTINGS not in place.tree() or not inst.has_ours(place.settings()))


def test_a_record_cannot_smuggle_other_settings_in(place):
    place.write(SETTINGS, b'{"a": 1}')
    place.run()
    record = json.loads(place.read(RECORD))
    evil = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "evil"}]}]}}
    record["settings"]["settings.json"]["original"] = json.dumps(evil)
    place.write(RECORD, json.dumps(record))
    place.run("--uninstall")
    assert json.loads(place.read(SETTINGS)) in ({"a": 1}, {"a": 1, "hooks": {}}, {"a": 1, "hooks": {"Stop": []}})


def test_records_survive_their_own_format(place):
    kept = inst.Kept("\ufeff{}\r\nü", "abc", "Edit(x)")
    record = inst.Record("k", "o", [".", "hooks", "../.codex"], {"../.codex/hooks.json": kept})
    with place.here():
        layout = inst.Layout(place.project, "project")
        place.write(RECORD, inst.plan_record(layout, record)[0].data)
        assert inst.read_record(layout) == record


def test_usage_errors_exit_2_and_failures_exit_1(place):
    place.run("--scope", "galaxy", code=2)
    place.run("--agent", "nobody", code=2)
    place.run("--check", "--dry-run", code=2)
    place.run("--check", "--uninstall", code=2)
    assert place.run("nowhere", code=1)[1].endswith("nowhere is not a folder\nhint: name the project's folder\n")
    place.write(".claude", b"a file where a folder should be")
    assert re.fullmatch(r"error: .*\.claude.*: .*\nhint: .*\n", place.run(code=1)[1])


@pytest.mark.parametrize("kit_text", [None, "("])
def test_a_missing_or_damaged_kit_beside_the_installer_is_one_sentence(place, kit_text):
    path = os.path.join(place.source, "ctx_hooks.py")
    os.unlink(path)
    if kit_text:
        with open(path, "w", encoding="utf-8") as file:
            file.write(kit_text)
    process = place.popen()
    assert re.match(rb"error: ctx_hooks.py beside install.py cannot be used: .*\nhint: ", process.communicate(timeout=60)[1])
    assert process.returncode == 1


@pytest.mark.skipif(not POSIX, reason="compares what is said byte for byte; the separators differ")
def test_a_process_of_its_own_does_the_same_and_leaves_the_kits_folder_alone(place):
    place.write(SETTINGS, BEFORE["tabs, CRLF, BOM, no final newline"])
    before, source = place.tree(), place.tree(place.source)

    def process(*words):
        started = place.popen(*words)
        out, err = (stream.decode("utf-8") for stream in started.communicate(timeout=60))
        assert started.returncode == 0, out + err
        return out, err
    assert process("--dry-run")[0].count("would ") == 2
    process("--init", "--statusline")
    assert f"ok: ctx_hooks {kit.VERSION}" in process("--check")[0]
    shutil.rmtree(place.path(".context"))
    process("--uninstall")
    assert place.tree() == before and place.tree(place.source) == source


# -----------------------------------------------------------------------------
# Launcher
# -----------------------------------------------------------------------------


@pytest.mark.skipif(not POSIX, reason="the launcher is for a POSIX shell")
def test_the_launcher_finds_the_projects_kit_then_the_users_and_runs_no_strangers(place):
    folder = os.path.join(place.home, "own bin")
    before = place.tree(place.home)
    _, err = place.run("--init", f"--launcher={folder}")
    assert f"{folder} is not on your PATH yet" in err
    deep = place.path("a", "b")
    os.makedirs(deep)

    def ctx(cwd):
        return subprocess.run([os.path.join(folder, "ctx"), "status"], cwd=cwd, env=place.env, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert ctx(deep).stdout == b"ran status\n"
    place.write(KIT, STAND_IN.replace("\n", "\r\n"))
    assert ctx(deep).stdout == b"ran status\n"
    place.write(KIT, "print('a stranger')\n")
    assert (ctx(deep).returncode, ctx(deep).stdout) == (1, b"")
    assert b"is no release that ctx knows" in ctx(deep).stderr and b"there is no ctx_hooks" in ctx(place.base).stderr
    place.run("--scope", "user")
    assert ctx(deep).stdout == ctx(place.base).stdout == b"ran status\n"
    place.run("--scope", "user", "--uninstall", f"--launcher={folder}")
    shutil.rmtree(os.path.join(place.home, ".cache"))
    os.rmdir(folder)
    assert place.tree(place.home) == before


def test_another_program_of_that_name_is_left_alone(place):
    folder = os.path.join(place.home, ".local", "bin")
    os.makedirs(folder)
    fake_python(folder, "ctx", "echo mine\n")
    before = place.tree(place.base)
    assert "is another program" in place.run("--launcher", code=1)[1]
    assert "--launcher=DIR" in place.run(f"--launcher={folder}", code=1)[1]
    os.mkdir(os.path.join(folder, ".git"))
    assert "is a project" in place.run("--launcher", folder, code=1)[1]
    os.rmdir(os.path.join(folder, ".git"))
    assert place.tree(place.base) == before


# -----------------------------------------------------------------------------
# The files themselves
# -----------------------------------------------------------------------------


def test_installer_parses_on_python_3_6():
    ast.parse(repo_file("install.py"), feature_version=(3, 6))
    old = shutil.which("python3.6") or shutil.which("python3.7")
    if old:
        done = subprocess.run([old, os.path.join(REPO, "install.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if b"pyenv" not in done.stderr:  # a shim without a version behind it
            assert done.returncode == 1 and b"needs Python 3.8" in done.stderr


def test_installer_imports_only_the_standard_library():
    names = set(re.findall(r"^(?:import|from) (\w+)", repo_file("install.py"), re.MULTILINE))
    assert names <= {"sys", "argparse", "contextlib", "difflib", "hashlib", "json", "os", "re", "shlex", "stat",
                     "subprocess", "tempfile", "time", "types", "collections"}


def test_installer_is_short_and_narrow():
    lines = repo_file("install.py").splitlines()
    assert len(lines) <= 1200 and max(map(len, lines)) <= 100


def test_contents_list_names_the_sections():
    text = repo_file("install.py")
    contents = re.search(r"Contents, bottom-up: (.*?)\.\n", text, re.DOTALL).group(1)
    banners = re.findall(r"^# ={77}\n# (.*)\n# ={77}$", text, re.MULTILINE)
    assert [part.lower() for part in re.split(r";\s+", contents.replace("\n", " "))] == [b.lower() for b in banners]


def test_plugin_manifests_agree_with_the_kit_and_with_the_files():
    plugin = json.loads(repo_file(".claude-plugin/plugin.json"))
    market = json.loads(repo_file(".claude-plugin/marketplace.json"))
    assert plugin["version"] == kit.VERSION and plugin["hooks"] == "./hooks.json"
    assert [(entry["name"], entry["source"]) for entry in market["plugins"]] == [(plugin["name"], "./")]
    folder = os.path.normpath(os.path.join(REPO, plugin["commands"]))
    assert sorted(os.listdir(folder)) == ["doctor.md", "init.md", "pause.md", "status.md"]
