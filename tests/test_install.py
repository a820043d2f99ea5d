"""install.py: the text it edits, and whole runs on real folders."""
from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import os
import random
import re
import shlex
import shutil
import stat
import subprocess
import sys

import pytest

TESTS = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(TESTS)
PYTHON = os.path.realpath(sys.executable)
ROUNDS = 60 * (50 if os.environ.get("CTX_SOAK") == "1" else 1)
BOM = b"\xef\xbb\xbf"
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0

if os.name == "nt":
    pytest.skip("runs the lines of a POSIX shell", allow_module_level=True)


def load_installer():
    path = os.path.join(REPO, "install.py")
    spec = importlib.util.spec_from_file_location("ctx_install", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


inst = load_installer()
kit = inst.kit
AGENTS = [agent for agent in inst.AGENTS if agent != "claude"]


def wanted(agent):
    return kit.adapt_hooks(inst.HOOKS, agent, kit.kit_word(agent) or "/x/ctx_hooks.py")


def merged(source, agent, before, rule=""):
    """A text with our hooks in it, and with a rule."""
    value = inst.value_of(source)
    inst.merge_hooks(value, wanted(agent), before)
    if rule:
        value.setdefault("permissions", {}).setdefault("allow", []).append(rule)
    return inst.with_value(source, value)


# -----------------------------------------------------------------------------
# Random settings, seeded
# -----------------------------------------------------------------------------

TEXTS = ["", "a", "Grüße", "日本", "\U0001f600", 'say "hi"', "back\\slash", "tab\there", "x\ny", "\u2028"]
FOREIGN = ["echo ctx_hooks.py gate", "python3 my_ctx_hooks.py gate", "./lint.sh", "npx x || exit 0"]


def random_json(rng, depth=2):
    kind = rng.randrange(7 if depth else 5)
    if kind < 5:
        number = rng.randrange(-5, 10 ** rng.randrange(1, 20))
        return [None, True, number, rng.random() * 10 ** rng.randrange(-9, 9), rng.choice(TEXTS)][kind]
    if kind == 5:
        return [random_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(TEXTS) + str(i): random_json(rng, depth - 1) for i in range(rng.randrange(4))}


def random_format(rng, value):
    """A value as text, in one of the ways people and programs write JSON."""
    style = rng.choice([{"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"indent": 0}, {},
                        {"separators": (",", ":")}, {"indent": 2, "separators": (",", " : ")}])
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, **style)
    if rng.random() < 0.3:
        text = text.replace("[\n", "[", 1)
    return text.replace("\n", rng.choice(["\n", "\r\n"])) + rng.choice(["", "\n", "\n\n"])


def random_group(rng):
    hooks = [{"type": "command", "command": rng.choice(FOREIGN), "timeout": 5} for _ in range(rng.randrange(3))]
    return {**({"matcher": "Bash|Edit"} if rng.random() < 0.5 else {}), "hooks": hooks}


def random_settings(rng, agent):
    """Settings without anything of ours: other keys, foreign hooks, empty containers."""
    events = [*wanted(agent), "Notification", "PostCompact", "SubagentStop"]
    settings = {rng.choice(TEXTS) + str(i): random_json(rng) for i in range(rng.randrange(3))}
    if rng.random() < 0.8:
        names = rng.sample(events, rng.randrange(5))
        settings["hooks"] = {name: [random_group(rng) for _ in range(rng.randrange(3))] for name in names}
    if rng.random() < 0.3:
        settings["statusLine"] = {"type": "command", "command": rng.choice(TEXTS + FOREIGN), "padding": 0}
    if rng.random() < 0.3:
        settings["permissions"] = {"allow": rng.sample(["Bash(ls)", "Read"], rng.randrange(3)), "deny": []}
    return settings


def sprinkle_ours(rng, settings):
    """The same settings with lines of ours in arbitrary places, as people typed them."""
    result = json.loads(json.dumps(settings))
    for groups in result.get("hooks", {}).values():
        for group in groups:
            if rng.random() < 0.5:
                mode = rng.choice(["inject", "gate", "monitor", "stop-enforce", "cleanup"])
                old = {"type": "command", "command": "python3 .claude/hooks/ctx_hooks.py " + mode}
                group["hooks"].insert(rng.randrange(len(group["hooks"]) + 1), old)
    return result


def cases(agent="claude", ours=False):
    """(seed, settings, the same as text)"""
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        settings = random_settings(rng, agent)
        if ours:
            settings = sprinkle_ours(rng, settings)
        yield seed, settings, random_format(rng, settings)


def is_ours(hook):
    return kit.parse_line(hook["command"]) is not None


def foreign_in(settings):
    return [(event, hook) for event, groups in settings.get("hooks", {}).items()
            for group in groups for hook in group["hooks"] if not is_ours(hook)]


# -----------------------------------------------------------------------------
# JSON text and our entries
# -----------------------------------------------------------------------------

REFUSED = {
    b"{": "line 1 column 2",
    b'{"a": 1,}': "line 1",
    b'{\n  // why\n  "a": 1\n}': "line 2 column 3",
    b'{"a" 1}': "line 1 column 6",
    b'{"a": "x\ny"}': "line 1 column 9",
    b'{"b": [NaN]}': "NaN is not JSON",
    b"{} {}": "line 1 column 4",
    b"[" * 100_000: "nested too deeply",
    b"[]": "the whole must be an object",
    b"null": "the whole must be an object",
    b'{"a": "\xff"}': "can't decode byte 0xff",
    '{"a": 1}'.encode("utf-16"): "can't decode byte 0xff",
    b'{"hooks": []}': "hooks must be an object",
    b'{"hooks": null}': "hooks must be an object",
    b'{"hooks": {"Stop": {"a": 1}}}': "Stop must be an array",
    b'{"statusLine": "x"}': "statusLine must be an object",
    b'{"permissions": []}': "permissions must be an object",
    b'{"permissions": {"allow": "x"}}': "permissions.allow must be an array",
}


@pytest.mark.parametrize("data", REFUSED, ids=[repr(data[:40]) for data in REFUSED])
def test_unusable_settings_are_refused_with_the_reason(data):
    with pytest.raises(ValueError, match=REFUSED[data]):
        inst.parse_settings(data, ["Stop"])


@pytest.mark.parametrize("data", [
    None, b"", b" \r\n\t", BOM, b"{}", b'{"a": 1, "a": 2}', b'{"n": %s}' % (b"9" * 5000),
    b'{"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}}',
    b'{"hooks": {"disabled": ["x"], "enabled": true}}'])
def test_usable_settings_are_taken_and_come_back(data):
    source = inst.parse_settings(data, ["Stop"])
    before = inst.value_of(source)
    installed = merged(source, "claude", before)
    assert len(kit.find_lines(inst.value_of(installed))) == 8
    assert inst.value_of(inst.strip_settings(installed, before)) == before


GONE = inst.GONE


@pytest.mark.parametrize("source, value, expected", [
    ("{}", {"a": 1}, '{\n  "a": 1\n}'),
    ("{}", {"a": {"b": [1]}}, '{\n  "a": {\n    "b": [\n      1\n    ]\n  }\n}'),
    ('{"a":1}', {"a": 1, "b": 2}, '{"a":1, "b": 2}'),
    ('{ "a": 1 }', {"a": 1, "b": 2}, '{ "a": 1, "b": 2 }'),
    ('{\n    "a": {}\n}\n', {"a": {"b": 1}}, '{\n    "a": {\n        "b": 1\n    }\n}\n'),
    ('{"a": 1, "b": 2, "c": 3}', {"a": 1, "b": GONE, "c": 3}, '{"a": 1, "c": 3}'),
    ('{"a": 1, "b": 2}', {"a": GONE, "b": 2}, '{"b": 2}'),
    ('{"a": [\n 1\n]}', {"a": [GONE]}, '{"a": []}'),
    ('{"a": [ 1 , 2,3 ]}', {"a": [GONE, 2, 4, 5]}, '{"a": [ 2,4, 5 ]}'),
    ('{"a": 1, "a": 2}', {"a": 3}, '{"a": 1, "a": 3}'),
    ('\ufeff{"a": 1e2, "b": {"c" : true}}', {"a": 100, "b": {"c": False}}, '\ufeff{"a": 1e2, "b": {"c" : false}}'),
    ('{\r\n\t"a" : 1.50e+3,\r\n\t"b": {"c":true}\r\n}', {"a": 1500, "b": {"c": True}, "n": {"x": [1]}},
     '{\r\n\t"a" : 1.50e+3,\r\n\t"b": {"c":true},\r\n\t"n": {\r\n\t\t"x": [\r\n\t\t\t1\r\n\t\t]\r\n\t}\r\n}'),
])
def test_editing_examples(source, value, expected):
    assert inst.with_value(source, value) == expected


@pytest.mark.parametrize("agent", inst.AGENTS)
def test_merging_into_a_text_and_stripping_it_again_restores_every_byte(agent):
    for seed, settings, source in cases(agent):
        rule = "" if seed % 3 else "Edit(/.context/handoffs/**)"
        installed = merged(source, agent, settings, rule)
        assert merged(installed, agent, settings) == installed, seed
        assert inst.strip_settings(installed, settings) == source, seed


@pytest.mark.parametrize("agent", inst.AGENTS)
def test_each_hook_is_registered_exactly_once_and_foreign_ones_keep_their_order(agent):
    expected = {event: group["hooks"] for event, group in wanted(agent).items()}
    for seed, settings, source in cases(agent, ours=True):
        installed = json.loads(merged(source, agent, {}))
        ours = {event: [hook for group in groups for hook in group["hooks"] if is_ours(hook)]
                for event, groups in installed["hooks"].items()}
        assert {event: hooks for event, hooks in ours.items() if hooks} == expected, seed
        stripped = json.loads(inst.strip_settings(source, {}))
        assert foreign_in(installed) == foreign_in(stripped) == foreign_in(settings), seed
        assert kit.find_lines(stripped) == []


def test_no_line_of_the_person_changes_and_no_foreign_text_is_rewritten():
    odd = '"command" :  "./lint\\u002esh"'
    for seed, settings, _ in cases():
        source = json.dumps(settings, indent=2).replace('"command": "./lint.sh"', odd)
        lines = iter(line.rstrip(",[]{} ") for line in merged(source, "claude", {}).splitlines())
        assert all(line.rstrip(",[]{} ") in lines for line in source.splitlines()), seed  # in this order
    for seed, _settings, source in cases(ours=True):
        source = re.sub(r'"command" ?: ?"\./lint\.sh"', lambda match: odd, source)
        counts = [text.count(odd) for text in (source, merged(source, "claude", {}), inst.strip_settings(source, {}))]
        assert len(set(counts)) == 1, seed


def test_an_older_entry_is_replaced_in_its_place_and_keeps_what_a_person_added():
    old = {"type": "command", "command": "python3 x/ctx_hooks.py gate", "statusMessage": "…", "timeout": 99}
    other = {"type": "command", "command": "./mine.sh"}
    groups = [{"matcher": "Bash", "hooks": [other, old, other]}, {"hooks": [other]}]
    source = json.dumps({"hooks": {"PreToolUse": groups}})
    new = {**wanted("claude")["PreToolUse"]["hooks"][0], "statusMessage": "…"}
    installed = json.loads(merged(source, "claude", {}))
    assert installed["hooks"]["PreToolUse"] == [{"matcher": "Bash", "hooks": [other, new, other]}, {"hooks": [other]}]


# -----------------------------------------------------------------------------
# Whole runs
# -----------------------------------------------------------------------------

STAND_IN = b"#!/bin/sh\necho %s ran \"$@\"\nexit 0\n" % kit.VERSION.encode()
OLD_KIT = STAND_IN.replace(kit.VERSION.encode(), b"0.0.9")
SETTINGS = ".claude/settings.json"
KIT = ".claude/hooks/ctx_hooks.py"
ATTRIBUTES = ".claude/hooks/.gitattributes"
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
    "the same key twice": b'{"hooks": {"a": []}, "n": 1, "hooks": {}}',
    "a huge number": b'{"n": %s}\n' % (b"7" * 6000),
}


class Place:
    """A project, a home, and this process as if it were started there."""

    def __init__(self, base):
        self.base = str(base)
        self.project = os.path.join(self.base, "my 'ö\" $x project")
        self.home = os.path.join(self.base, "home")
        self.source = os.path.join(self.base, "kit")
        self.kit = STAND_IN
        for folder in (self.project, self.home, self.source):
            os.makedirs(folder)
        self.env = {"PATH": os.path.dirname(PYTHON) + ":/usr/bin:/bin", "HOME": self.home, "LC_ALL": "C.UTF-8"}

    def path(self, *names):
        return os.path.join(self.project, *names)

    def write(self, name, data, mode=None):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        if mode is not None:
            os.chmod(path, mode)
        return path

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def settings(self, name=SETTINGS):
        return inst.value_of(self.read(name).decode("utf-8-sig"))

    def commands(self, name=SETTINGS):
        return [line.entry["command"] for line in kit.find_lines(self.settings(name))]

    @contextlib.contextmanager
    def here(self, cwd=None):
        before = dict(os.environ), os.getcwd(), inst.HERE, inst.SOURCE
        os.environ.clear()
        os.environ.update(self.env)
        os.chdir(cwd or self.project)
        inst.HERE, inst.SOURCE = self.source, self.kit
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before[0])
            os.chdir(before[1])
            inst.HERE, inst.SOURCE = before[2:]

    def run(self, *words, cwd=None, code=0):
        """What install.py prints; its exit code must be `code`."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with self.here(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                done = inst.main(list(words))
            except SystemExit as end:
                done = end.code or 0
        for stream in (out, err):
            stream.flush()
        text = (out.buffer.getvalue() + err.buffer.getvalue()).decode()
        assert done == code, text
        return text

    def planned(self, *words):
        """The job of a run, with its plan made and nothing done."""
        with self.here():
            job = inst.find_job(inst.parse_arguments([self.project, *words]), dict(os.environ))
            job.record = inst.load_record(job)
            job.agents = inst.choose_agents(job)
            inst.plan_uninstall(job) if job.options.uninstall else inst.plan_install(job)
        return job

    def process(self, *words, **more):
        for name in ("install.py", "hooks.json", "ctx_hooks.py"):
            if not os.path.exists(os.path.join(self.source, name)):
                shutil.copy(os.path.join(REPO, name), self.source)
        argv = [PYTHON, os.path.join(self.source, "install.py"), *words]
        return subprocess.Popen(argv, cwd=self.project, env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, **more)

    def tree(self, root=None):
        """Everything below the project: path -> (mode, bytes or link target)."""
        found, root = {}, root or self.project
        for folder, folders, files in os.walk(root):
            if ".git" in folders:
                folders.remove(".git")
            for name in folders + files:
                path = os.path.join(folder, name)
                info = os.lstat(path)
                data = os.readlink(path) if stat.S_ISLNK(info.st_mode) else None
                if stat.S_ISREG(info.st_mode):
                    with open(path, "rb") as file:
                        data = file.read()
                found[os.path.relpath(path, root)] = (stat.S_IMODE(info.st_mode), data)
        return found

    def shell(self, command, **env):
        variables = {name + "_PROJECT_DIR": self.project for name in ("CLAUDE", "GEMINI", "QWEN", "COPILOT", "DROID")}
        variables["GROK_WORKSPACE_ROOT"] = self.project
        return subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/",
                              stderr=subprocess.PIPE, timeout=60, env={**self.env, **variables, **env})

    def git(self, *words, cwd=None):
        if not shutil.which("git"):
            pytest.skip("needs git")
        words = ["git", "-c", "core.quotePath=false", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
        return subprocess.run(words, cwd=cwd or self.project, check=True, timeout=60, stdout=subprocess.PIPE,
                              env={**self.env, "GIT_CONFIG_NOSYSTEM": "1"}).stdout.decode()

    def staged(self, cwd=None):
        """What `git add -A` would stage."""
        return [line[3:] for line in self.git("status", "--porcelain", "-uall", cwd=cwd).splitlines()]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "place")


@pytest.mark.parametrize("name", BEFORE)
def test_uninstall_gives_every_byte_back(place, name):
    if BEFORE[name] is not None:
        place.write(SETTINGS, BEFORE[name], 0o640)
    before, home = place.tree(), place.tree(place.home)
    place.run("--statusline", "--allow-handoff")
    for command in place.commands():
        assert re.fullmatch(rb"\S+ ran [a-z-]+( now)?\n", place.shell(command).stdout)
    place.run("--check", "--allow-handoff", "--statusline")
    installed = place.tree()
    assert "nothing to change" in place.run()
    assert place.tree() == installed
    place.run("--uninstall")
    assert place.tree() == before
    assert "nothing of ours" in place.run("--uninstall")
    assert place.tree() == before and not {path for path in place.tree(place.home) if "ctx_hooks" in path} | set(home)


@pytest.mark.parametrize("agent", AGENTS)
def test_other_agents_get_the_same_promises(place, agent):
    path = kit.DIALECTS[agent].settings
    for data in BEFORE.values():
        place.write(".keep", b"")
        if data is not None:
            place.write(path, data, 0o640)
        before = place.tree()
        place.run("--agent", agent)
        for command in place.commands(path):
            assert len(command) <= 100 or agent == "codex"
            said = place.shell(command).stdout.decode()
            assert re.fullmatch(r"\S+ ran [a-z-]+ %s( now)?\n" % agent, said)
        place.run("--check", "--agent", agent)
        assert SETTINGS not in place.tree()
        place.run("--uninstall")
        assert place.tree() == before
        shutil.rmtree(place.project)


def test_agents_are_chosen_by_their_folders_and_none_is_registered_twice(place):
    for folder in (".codex", ".github", ".qwen", ".factory"):
        place.write(folder + "/own", b"")
    before = place.tree()
    out = place.run()
    assert set(place.tree()) - set(before) >= {SETTINGS, ".codex/hooks.json", ".qwen/settings.json"}
    assert ".github/hooks" not in place.tree()  # Copilot runs .claude/settings.json
    assert "start droid here" in out
    place.run("--uninstall", "--agent", "codex")
    assert ".codex/hooks.json" not in place.tree() and SETTINGS in place.tree()
    place.run("--check", "--agent", "claude", "--agent", "qwen")
    assert "would write .codex/hooks.json" in place.run("--check", code=4)
    place.run("--uninstall")
    assert place.tree() == before
    place.run("--agent", "copilot")
    assert ".github/hooks/ctx_hooks.json" in place.tree()
    place.run("--agent", "all")
    assert ".github/hooks/ctx_hooks.json" not in place.tree() and ".gemini/settings.json" in place.tree()
    place.run("--uninstall")
    assert place.tree() == before
    place.run("--agent", "grok")
    assert ".grok/hooks/ctx_hooks.json" in place.tree() and SETTINGS not in place.tree()
    place.run("--agent", "claude")  # whose settings Grok runs, too
    assert ".grok/hooks/ctx_hooks.json" not in place.tree() and SETTINGS in place.tree()


@pytest.mark.parametrize("data", [b'{"a": 1,}', b"[]", b'{"hooks": {"Stop": 5}}', b"\xff"])
@pytest.mark.parametrize("words", [[], ["--uninstall"], ["--dry-run"], ["--force"]])
def test_unusable_settings_stop_everything_before_the_first_write(place, data, words):
    place.write(SETTINGS, data)
    before = place.tree()
    out = place.run(*words, code=1)
    assert re.match(r"error: \.claude/settings\.json: .*\nhint: .*\n$", out)
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
    place.kit += b"# newer\n"
    place.run("--statusline")
    place.run("--uninstall")
    assert place.read(SETTINGS) == b'{\n  "env": {\n    "A": "b"\n  }\n}\n'


def test_modes_are_kept_the_record_is_private_and_the_kit_can_be_run(place):
    place.write(SETTINGS, b'{"env": {"TOKEN": "x"}}', 0o640)
    place.write(KIT, OLD_KIT, 0o644)
    place.run("--force")
    assert place.tree()[SETTINGS][0] == 0o640
    assert place.tree()[KIT][0] & 0o111 and place.read(ATTRIBUTES) == b"ctx_hooks.py text eol=lf\n"
    copies = [mode for mode, data in place.tree(place.home).values() if data and b"TOKEN" in data]
    assert copies == [0o600]


def test_the_permission_rule_is_added_once_and_goes_only_if_it_is_ours(place):
    rule = "Edit(/.context/handoffs/**)"
    for _ in range(2):
        place.run("--allow-handoff")
        assert place.settings()["permissions"] == {"allow": [rule]}
    place.run("--uninstall")
    assert place.tree() == {}
    place.write(SETTINGS, json.dumps({"permissions": {"allow": [rule]}}))
    place.run("--allow-handoff")
    place.run("--uninstall")
    assert place.settings() == {"permissions": {"allow": [rule]}}
    place.run("--scope", "user", "--allow-handoff")
    own = place.settings(os.path.join(place.home, SETTINGS))
    assert own["permissions"]["allow"] == ["Edit(**/.context/handoffs/**)"]


def test_links_inside_the_project_are_followed(place):
    place.write("dotfiles/claude.json", b'{"a": 1}')
    os.mkdir(place.path(".claude"))
    os.symlink("../dotfiles/claude.json", place.path(SETTINGS))
    before = place.tree()
    place.run()
    assert os.path.islink(place.path(SETTINGS)) and b"ctx_hooks" in place.read("dotfiles/claude.json")
    place.run("--uninstall")
    assert place.tree() == before


@pytest.mark.parametrize("scope", ["project", "local", "user"])
def test_a_project_or_home_that_is_reached_by_a_link_is_left_as_clean(place, scope):
    link = os.path.join(place.base, "link")
    os.symlink(place.project, link)
    os.symlink(place.home, link + "-home")
    place.env["HOME"] = link + "-home"
    assert "write .claude/hooks/ctx_hooks.py" in place.run(link, "--scope", scope) or scope == "user"
    place.run(link, "--scope", scope, "--uninstall")
    assert place.tree() == {} and not [path for path in place.tree(place.home) if path.startswith(".claude")]


@pytest.mark.parametrize("name", [".claude", ".claude/hooks", KIT, SETTINGS, ".codex", ".context"])
def test_links_that_lead_out_are_refused_with_the_path(place, name):
    outside = os.path.join(place.base, "outside")
    if name.endswith((".json", ".py")):
        place.write(outside, b"")
    else:
        os.mkdir(outside)
    os.makedirs(os.path.dirname(place.path(name)), exist_ok=True)
    os.symlink(outside, place.path(name))
    before, behind = place.tree(), place.tree(outside)
    out = place.run("--init", "--force", *(["--agent", "codex"] if name == ".codex" else []), code=1)
    assert f"leads out of the project, to {outside}" in out
    assert place.tree() == before and place.tree(outside) == behind


def test_a_link_behind_which_our_old_state_would_lie_is_not_followed(place):
    upgrade_from_0_2_0(place)
    outside = os.path.join(place.base, "precious")
    place.write(outside + "/x", b"")
    os.mkdir(place.path(".context"))
    os.symlink(outside, place.path(".context", "state"))
    place.run(code=1)
    assert os.path.exists(outside + "/x")


def test_no_name_in_a_project_reaches_the_terminal_with_its_control_characters(place):
    os.symlink("/tmp/\x1b[2Jevil", place.path(".claude"))
    out = place.run(code=1)
    assert "evil" in out and "\x1b" not in out
    os.unlink(place.path(".claude"))
    place.write(SETTINGS, json.dumps({"\x1b]0;x\x07\x9b2J": 1}, ensure_ascii=False))
    place.write(SETTINGS, '{"a\x7f\x9b2J": 1}')
    assert not set("\x1b\x07\x7f\x9b") & set(place.run("--dry-run"))


def test_pipes_and_read_only_files_are_refused(place):
    os.makedirs(place.path(".claude"))
    os.mkfifo(place.path(SETTINGS))
    assert "not a regular file" in place.run(code=1)
    os.unlink(place.path(SETTINGS))
    if not IS_ROOT:  # root may write everything
        place.write(SETTINGS, b"{}", 0o400)
        assert "is read-only" in place.run(code=1)
        os.chmod(place.path(".claude"), 0o500)
        os.unlink(place.path(SETTINGS))
        assert "Permission denied" in place.run(code=1)


def test_a_foreign_or_edited_kit_is_refused_then_kept_by_force_and_put_back(place):
    place.write(KIT, b"print('mine')\n", 0o755)
    before = place.tree()
    assert "--force" in place.run(code=1) and place.tree() == before
    place.run("--force")
    assert place.read(KIT) == STAND_IN and place.read(KIT + ".kept") == b"print('mine')\n"
    place.write(KIT, STAND_IN + b"# edited\n")
    assert "edited" in place.run("--force", code=1)  # the kept one is not lost
    assert "edited" in place.run("--uninstall")
    assert place.read(KIT) == STAND_IN + b"# edited\n" and place.read(KIT + ".kept") == b"print('mine')\n"
    place.write(KIT, STAND_IN)
    place.run("--uninstall")
    assert place.tree() == before


def test_an_untouched_older_release_is_upgraded(place, monkeypatch):
    place.kit = OLD_KIT
    place.run()
    place.kit = STAND_IN
    assert "an older release" in place.run("--check", code=4)
    assert f"({kit.VERSION}, was an older release)" in place.run()
    place.run("--uninstall")
    assert place.tree() == {}
    place.write(KIT, OLD_KIT.replace(b"\n", b"\r\n"))  # in a clone without a record
    assert "edited, or another's" in place.run(code=1)
    monkeypatch.setitem(inst.RELEASES, inst.digest_of(OLD_KIT), "0.0.9")
    assert f"({kit.VERSION}, was 0.0.9)" in place.run()


def test_a_checkout_with_crlf_is_not_edited(place):
    place.run()
    place.write(KIT, STAND_IN.replace(b"\n", b"\r\n"))
    assert "nothing to change" in place.run()
    place.run("--uninstall")
    assert place.tree() == {}


def upgrade_from_0_2_0(place, is_recorded=True):
    """A project as 0.2.0 left it; returns what stood in its settings before."""
    with open(os.path.join(TESTS, "data", "release-0.2.0.json"), encoding="utf-8") as file:
        left = json.load(file)
    record = json.loads(left["record.json"])
    record["kit"] = inst.digest_of(OLD_KIT)
    place.write(SETTINGS, left["settings.json"])
    place.write(".codex/hooks.json", left["codex.json"])
    place.write(KIT, OLD_KIT)
    if is_recorded:
        place.write(".claude/hooks/.ctx_hooks/.gitignore", "*\n")
        place.write(".claude/hooks/.ctx_hooks/record.json", json.dumps(record))
    return left["before"].encode()


@pytest.mark.parametrize("is_upgraded", [True, False])
def test_a_project_of_0_2_0_is_upgraded_in_place_and_undone_to_what_was_before_it(place, is_upgraded):
    before = upgrade_from_0_2_0(place)
    place.write(".context/TASKS.md", "- a task\n")
    place.write(".context/state/x.json", "{}")
    place.write(".context/handoffs/a.md", "# a handoff\n")
    order = list(place.settings()["hooks"])
    if is_upgraded:
        assert "was an older release" in place.run()
        assert list(place.settings()["hooks"]) == order
        assert place.settings()["statusLine"]["command"] == 'echo "it\'s mine"'  # no longer around it
        assert all(len(command) <= 100 for command in place.commands())
        assert sorted(os.listdir(place.path(".claude", "hooks"))) == [".gitattributes", "ctx_hooks.py"]
        assert os.listdir(place.path(".context")) == ["TASKS.md", "handoffs"] or "state" not in os.listdir(
            place.path(".context"))
        place.run("--check")
        assert "nothing to change" in place.run()
    place.run("--uninstall")
    tree = {name: data for name, (_, data) in place.tree().items() if data is not None}
    assert tree == {SETTINGS: before, ".context/TASKS.md": b"- a task\n", ".context/handoffs/a.md": b"# a handoff\n"}


def test_a_clone_of_a_project_of_0_2_0_has_no_record_and_loses_exactly_our_entries(place):
    before = upgrade_from_0_2_0(place, is_recorded=False)
    place.run("--force")
    place.run("--uninstall")
    assert json.loads(place.read(SETTINGS)) == json.loads(before)
    assert ".codex/hooks.json" not in place.tree()


def test_a_private_install_of_0_2_0_hands_its_ignore_list_over(place):
    place.git("init", "-q")
    upgrade_from_0_2_0(place)
    shutil.rmtree(place.path(".codex"))
    os.rename(place.path(SETTINGS), place.path(".claude", "settings.local.json"))
    ignore = "# written by ctx_hooks\n/.gitignore\n/settings.local.json\n/hooks/ctx_hooks.py\n"
    place.write(".claude/.gitignore", ignore)
    place.run("--scope", "local")
    assert place.staged() == [] and ".claude/.gitignore" not in place.tree()


@pytest.mark.parametrize("own", [None, b"# Mine\r\n\r\nkeep this", b"# Mine\n"])
def test_uninstalling_takes_our_section_out_of_the_instruction_file(place, own):
    if own is not None:
        place.write("CLAUDE.md", own)
    before = place.tree()
    place.run()
    assert kit.write_section(place.path("CLAUDE.md"), "where we stood")
    assert b"where we stood" in place.read("CLAUDE.md")
    place.run("--uninstall")
    assert place.tree() == before


def test_a_clone_without_a_record_loses_our_entries_and_nothing_else(place):
    place.write(SETTINGS, '{\n  "model": "x"\n}\n')
    place.run("--agent", "claude", "--agent", "gemini")
    shutil.rmtree(place.home)
    os.mkdir(place.home)
    place.run("--uninstall")
    assert place.tree() == {".claude": place.tree()[".claude"], SETTINGS: (0o644, b'{\n  "model": "x"\n}\n')}


def test_git_sees_the_kit_and_the_settings_and_nothing_else(place, tmp_path):
    place.git("init", "-q")
    place.write(".codex/config.toml", b"")
    place.run("--statusline")
    assert place.staged() == [ATTRIBUTES, KIT, SETTINGS, ".codex/config.toml"]
    place.git("add", "-A")
    place.git("commit", "-qm", "x")
    place.git("clone", "-q", ".", str(tmp_path / "clone"))
    place.project = str(tmp_path / "clone")
    assert place.shell(place.commands()[0]).stdout.endswith(b"ran inject\n")
    place.run()
    assert place.staged() == []
    place.git("add", "-f", ".codex/hooks.json")
    assert "git tracks .codex/hooks.json" in place.run()  # a path of one machine is not for others


@pytest.mark.parametrize("below", ["", "packages/a [x] b"])
def test_git_sees_nothing_of_a_private_install(place, below):
    place.git("init", "-q")
    place.write("own.txt", b"x")
    top, place.project = place.project, place.path(below)
    os.makedirs(place.project, exist_ok=True)
    exclude = os.path.join(top, ".git", "info", "exclude")
    place.write(exclude, b"*.log")
    before = place.tree(top)
    place.run(place.project, "--scope", "local", "--init", "--statusline")
    assert place.staged(top) == ["own.txt"]
    place.run(place.project)  # shared as well: now the kit is for everybody
    names = [os.path.join(below, name) for name in (ATTRIBUTES, KIT, SETTINGS)]
    assert sorted(place.staged(top)) == sorted([*names, "own.txt"]) or below
    place.run(place.project, "--uninstall")
    assert place.staged(top) == ["own.txt"]
    place.run(place.project, "--uninstall", "--scope", "local")
    shutil.rmtree(place.path(".context"), ignore_errors=True)
    assert place.tree(top) == before and place.read(exclude) == b"*.log"


def test_a_worktree_keeps_private_files_out_of_git_too(place):
    place.git("init", "-q")
    place.git("commit", "-q", "--allow-empty", "-m", "x")
    place.git("worktree", "add", "-q", "../tree")
    place.project = os.path.join(place.base, "tree")
    place.run("--scope", "local")
    assert place.staged() == []


def test_two_scopes_share_a_kit_until_the_last_one_goes(place):
    place.run()
    place.run("--scope", "local")
    assert "settings.local.json uses it" in place.run("--uninstall")
    place.run("--check", "--scope", "local")
    place.kit += b"# newer\n"
    place.run("--scope", "local")  # the kit that the other scope wrote is known
    place.run("--uninstall", "--scope", "local")
    assert place.tree() == {}
    assert "only Claude Code has private settings" in place.run("--scope", "local", "--agent", "codex", code=1)


@pytest.mark.parametrize("variable", [None, "a \"b' ü/deep"])
def test_user_scope_runs_anywhere_and_leaves_the_project_alone(place, variable):
    config = os.path.join(place.home, variable or ".claude")
    if variable:
        place.env["CLAUDE_CONFIG_DIR"] = config
    os.makedirs(os.path.join(place.home, ".gemini"))
    place.run("--scope", "user", "--statusline")
    assert place.tree() == {}
    for path in (os.path.join(config, "settings.json"), os.path.join(place.home, ".gemini/settings.json")):
        for command in place.commands(path):
            assert "PROJECT_DIR" not in command and (variable or command.startswith('sh "$HOME/.claude/'))
            assert b" ran " in place.shell(command).stdout
    place.run("--scope", "user", "--check")
    place.run("--scope", "user", "--uninstall")
    assert [path for path, (_, data) in place.tree(place.home).items() if data] == []


def test_the_project_is_the_nearest_folder_with_git_or_claude_and_is_named(place):
    os.makedirs(place.path("app", ".claude"))
    deep = place.path("app", "src", "deep")
    os.makedirs(deep)
    assert place.run(cwd=deep).startswith("project: %s\n" % place.path("app"))
    os.mkdir(place.path("app", "src", ".git"))
    place.run(cwd=deep)
    assert os.path.exists(place.path("app", "src", SETTINGS))
    place.run(deep)
    assert os.path.exists(os.path.join(deep, SETTINGS))


def test_the_home_and_the_kits_own_folder_are_no_projects(place):
    os.makedirs(os.path.join(place.home, ".claude"))
    folder = os.path.join(place.home, "src")
    os.mkdir(folder)
    place.run(cwd=folder)
    assert os.listdir(os.path.join(place.home, ".claude")) == [] and os.path.exists(os.path.join(folder, SETTINGS))
    assert "--scope user" in place.run(place.home, code=1)
    os.mkdir(os.path.join(place.source, ".git"))
    assert "kit's own folder" in place.run(cwd=place.source, code=1)
    place.run(".", cwd=place.source)
    place.source = place.path(".claude", "hooks")  # the kit is run from where it is installed
    place.write(KIT, STAND_IN)
    place.run()
    assert "beside install.py" in place.run("--uninstall") and place.read(KIT) == STAND_IN


@pytest.mark.parametrize("words", [["--dry-run"], ["--check"], ["--dry-run", "--uninstall"], ["--help"],
                                   ["--dry-run", "--verbose", "--init", "--agent", "all"]])
@pytest.mark.parametrize("is_installed", [False, True])
def test_looking_writes_nothing(place, words, is_installed):
    if is_installed:
        place.run()
    before = place.tree(place.base)
    place.run(*words, code=0 if is_installed or words != ["--check"] else 3)
    assert place.tree(place.base) == before


def test_a_dry_run_shows_the_settings_diff_first_and_never_the_kit(place):
    place.write(SETTINGS, b'{\n  "model": "opus"\n}\n')
    lines = place.run("--dry-run", "--init", "--allow-handoff").splitlines()
    assert lines[0] == f"would change {SETTINGS} (hooks of Claude Code)" and lines[1].startswith("@@")
    assert '+      "Edit(/.context/handoffs/**)"' in lines
    assert f"would write {KIT} ({kit.VERSION})" in lines and "would write .context/TASKS.md" in lines
    assert "+# Tasks" not in lines and "+# Tasks" in place.run("--dry-run", "--init", "--verbose")
    place.kit = inst.SOURCE
    assert "def " not in place.run("--dry-run", "--verbose")


def test_check_tells_not_installed_from_not_current_by_its_exit_code(place):
    assert place.run("--check", code=3).startswith("not installed: ")
    place.run()
    assert place.run("--check") == f"ok: ctx_hooks {kit.VERSION} is installed, current, and runs\n"
    for words in (["--statusline"], ["--allow-handoff"]):
        assert f"would change {SETTINGS}" in place.run("--check", *words, code=4)
    settings = place.settings()
    del settings["hooks"]["SessionEnd"]
    place.write(SETTINGS, json.dumps(settings))
    assert f"would change {SETTINGS}" in place.run("--check", code=4)
    place.write(KIT, STAND_IN + b"#")
    assert "is edited" in place.run("--check", code=1)
    place.kit = b"exit 1\n"
    place.run("--force")
    assert "the hooks do not run" in place.run("--check", code=4)


def test_python_sets_a_link_in_the_cache_and_nothing_in_the_settings(place):
    shim = place.write(place.base + "/shim", "#!/bin/sh\nexec %s \"$@\"\n" % shlex.quote(PYTHON), 0o755)
    place.run("--python", shim)
    link = os.path.join(place.home, ".cache", "ctx_hooks", "python3")
    assert os.path.samefile(os.readlink(link), PYTHON) and PYTHON not in place.read(SETTINGS).decode()
    place.run("--python", PYTHON)
    old = place.write(place.base + "/old", "#!/bin/sh\nexit 1\n", 0o755)
    for path in (old, "no-such-python"):
        assert "is no Python of 3.8" in place.run("--python", path, code=1)
    place.run("--uninstall")
    assert not os.path.lexists(link)


def test_the_status_line_is_set_only_if_there_is_none(place):
    place.run("--statusline")
    line = place.settings()["statusLine"]["command"]
    assert place.shell(line).stdout.endswith(b"ran statusline\n")
    place.run("--uninstall")
    place.write(SETTINGS, '{"statusLine": {"type": "command", "command": "echo mine"}}')
    place.run("--statusline")
    assert place.settings()["statusLine"]["command"] == "echo mine"


def test_init_writes_two_files_that_say_nothing_yet_and_overwrites_none(place):
    assert "--init" in place.run()
    place.write(".context/TASKS.md", "mine\n")
    place.run("--init")
    assert sorted(os.listdir(place.path(".context"))) == ["DECISIONS.md", "TASKS.md"]
    assert place.read(".context/TASKS.md") == b"mine\n"
    assert not any(kit.says_something(text) for text in inst.TEMPLATES.values())
    place.run("--uninstall")
    assert sorted(place.tree()) == [".context", ".context/DECISIONS.md", ".context/TASKS.md"]  # yours
    place.write(".contextrc", "context_dir: docs/ctx\n")
    place.run("--init", "--allow-handoff")
    assert os.path.exists(place.path("docs/ctx/TASKS.md"))
    assert place.settings()["permissions"]["allow"] == ["Edit(/docs/ctx/handoffs/**)"]


def test_uninstalling_removes_this_projects_state_and_the_cache_with_the_last_one(place):
    with place.here():
        state = kit.project_state_folder(place.project, place.env)
    other = os.path.join(os.path.dirname(state), "%2Fother")
    for keep in (True, False):
        place.run()
        place.write(os.path.join(state, "session-a.json"), "{}")
        place.write(os.path.join(other, "session-b.json"), "{}")
        place.write(os.path.join(place.home, ".cache/ctx_hooks/calm/x"), "1")
        place.run("--uninstall", *(["--keep-state"] if keep else []))
        assert os.path.exists(os.path.join(state, "session-a.json")) == keep
        assert os.path.exists(other) and os.path.exists(os.path.join(place.home, ".cache/ctx_hooks"))
    place.run()
    shutil.rmtree(other)
    place.run("--uninstall")
    assert not {path for path in place.tree(place.home) if "ctx_hooks" in path}


# -----------------------------------------------------------------------------
# What goes wrong in the middle
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("kit_text", [None, b"mine = 1\n"])
@pytest.mark.parametrize("is_finished", [False, True])
def test_an_install_cut_short_anywhere_can_be_finished_or_undone(tmp_path, kit_text, is_finished):
    cut, count = 0, 1
    words = ["--force", "--statusline", "--allow-handoff"]
    while cut <= count:
        place = Place(tmp_path / str(cut))
        place.write(SETTINGS, b'{"a": 1}')
        place.write(".codex/own", b"")
        if kit_text:
            place.write(KIT, kit_text, 0o755)
        before = place.tree()
        job = place.planned(*words)
        inst.save_record(job)
        for change in job.changes[:cut]:
            inst.apply_change(change, job)
        if is_finished:
            place.run(*words)
            place.run("--check", *words)
        place.run("--uninstall")
        assert place.tree() == before, cut
        count, cut = len(job.changes), cut + 1
    assert count > 3


def test_an_uninstall_cut_short_anywhere_can_be_finished(tmp_path):
    cut, count = 0, 1
    while cut <= count:
        place = Place(tmp_path / str(cut))
        place.write(SETTINGS, b'{"a": 1}')
        place.write(KIT, b"mine = 1\n", 0o755)
        before = place.tree()
        place.run("--force")
        job = place.planned("--uninstall")
        for change in job.changes[:cut]:
            inst.apply_change(change, job)
        place.run("--uninstall")
        assert place.tree() == before, cut
        count, cut = len(job.changes), cut + 1


@pytest.mark.parametrize("words", [[], ["--uninstall"]])
def test_what_an_editor_saves_in_this_very_moment_is_not_lost(place, words):
    place.write(SETTINGS, b'{"a": 1}')
    if words:
        place.run()
    job = place.planned(*words)
    place.write(SETTINGS, b'{"a": 2}')
    with pytest.raises(inst.Refused, match="changed in this very moment"):
        for change in job.changes:
            inst.apply_change(change, job)
    assert place.read(SETTINGS) == b'{"a": 2}'


def test_two_installers_at_once_leave_one_install_that_can_be_undone(place):
    place.write(SETTINGS, b'{"a": 1}')
    before = place.tree()
    for words in ([], ["--uninstall"]):
        running = [place.process(*words) for _ in range(3)]
        said = [process.communicate(timeout=60)[0].decode() for process in running]
        assert 0 in [process.returncode for process in running], said
        assert not any("Traceback" in text for text in said), said
    with place.process("--uninstall") as process:
        process.communicate(timeout=60)
    assert place.tree() == before


def test_a_full_disk_in_the_middle_is_one_sentence_and_can_be_undone(place):
    resource = pytest.importorskip("resource")
    place.write(SETTINGS, b'{"a": 1}')
    before = place.tree()

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    process = place.process(preexec_fn=limit)
    out = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 1 and re.search(r"error: .*File too large\nhint: ", out), out
    assert place.read(SETTINGS) == b'{"a": 1}'
    with place.process("--uninstall") as process:
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert place.tree() == before


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"settings": []}', b"[" * 100_000, b'{"kits": 5}',
                                  b'{"settings": {"../x": {}, ".claude/settings.json": {"original": 5}}}',
                                  b'{"settings": {".claude/settings.json": {"original": "[]", "after": 1}}}'])
def test_a_damaged_record_is_harmless(place, data):
    place.run()
    with place.here():
        state = kit.project_state_folder(place.project, place.env)
    for path in (os.path.join(state, "install-project.json"), ".claude/hooks/.ctx_hooks/record.json"):
        place.write(path, data)
        precious = place.write(".claude/precious", b"x")
        place.run("--uninstall")
        assert os.path.exists(precious) and not os.path.exists(place.path(KIT))
        assert SETTINGS not in place.tree() or not kit.find_lines(place.settings())
        place.run()


def test_a_record_that_came_with_a_clone_cannot_smuggle_other_settings_in(place):
    upgrade_from_0_2_0(place)
    path = ".claude/hooks/.ctx_hooks/record.json"
    record = json.loads(place.read(path))
    evil = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "evil"}]}]}}
    record["settings"]["settings.json"]["original"] = json.dumps(evil)
    place.write(path, json.dumps(record))
    place.run("--uninstall")
    assert b"evil" not in place.read(SETTINGS)


def test_usage_errors_exit_2_and_failures_exit_1(place):
    place.run("--scope", "galaxy", code=2)
    place.run("--agent", "nobody", code=2)
    assert "nowhere is not a folder\nhint: " in place.run("nowhere", code=1)
    place.write(".claude", b"a file where a folder should be")
    assert re.match(r"error: .*\.claude.*\nhint: .*\n", place.run(code=1))
    del place.env["HOME"]
    assert "no home folder" in place.run(code=1)


@pytest.mark.parametrize("text", [None, "("])
def test_a_missing_or_damaged_kit_beside_the_installer_is_one_sentence(place, text):
    with place.process("--help") as process:
        process.communicate(timeout=60)
    path = os.path.join(place.source, "ctx_hooks.py")
    os.unlink(path)
    if text:
        place.write(path, text)
    shutil.copy(os.path.join(REPO, "install.py"), place.source)
    argv = [PYTHON, os.path.join(place.source, "install.py")]
    done = subprocess.run(argv, cwd=place.project, env=place.env, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and re.match(rb"error: the files beside .*\nhint: .*\n$", done.stderr)


# -----------------------------------------------------------------------------
# The files themselves
# -----------------------------------------------------------------------------


def read_source():
    with open(os.path.join(REPO, "install.py"), encoding="utf-8") as file:
        return file.read()


def test_the_installer_parses_on_python_3_6_and_says_what_it_needs():
    ast.parse(read_source(), feature_version=(3, 6))
    old = shutil.which("python3.6") or shutil.which("python3.7")
    if old and subprocess.run([old, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
        argv = [old, os.path.join(REPO, "install.py")]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == 1 and b"needs Python 3.8" in done.stderr


def test_contents_name_the_sections():
    contents = re.search(r"Contents: (.*?)\.\n", read_source(), re.DOTALL).group(1)
    banners = re.findall(r"^# ={77}\n# (.*)\n# ={77}$", read_source(), re.MULTILINE)
    assert re.split(r";\s+", contents.replace("\n", " ")) == [
        banner if banner == "JSON text" else banner.lower() for banner in banners]
