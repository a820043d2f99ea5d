"""install.py: the text it edits, and whole runs on real folders."""

from __future__ import annotations

import ast
import contextlib
import importlib
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
from unittest import mock

import pytest

import helper

if helper.IS_WINDOWS:
    pytest.skip("runs the lines of a POSIX shell", allow_module_level=True)

INSTALLER = os.path.join(helper.REPO, "install.py")
PYTHON = os.path.realpath(sys.executable)
RULE = "Edit(/.context/handoffs/**)"
BOM = b"\xef\xbb\xbf"

sys.path.insert(0, helper.REPO)
inst = importlib.import_module("install")
kit = inst.kit

# --- the text: random settings, seeded

VALUES = [
    None,
    True,
    -5,
    10**19,
    1e-7,
    "",
    "Grüße 日本",
    "\U0001f600",
    'say "hi"',
    "back\\slash",
    "x\ny\t",
    "\u2028",
    [],
    {},
    [[1.5, {}], "a"],
    {"": {"ü": [None]}, "b": -0.0},
]
FOREIGN = ["echo ctx_hooks.py gate", "python3 my_ctx_hooks.py gate", "./lint.sh", "npx x || exit 0"]
OURS = ["python3 .claude/hooks/ctx_hooks.py " + mode for mode in ("inject", "gate", "monitor", "stop-enforce")]


def random_settings(seed, agent, commands):
    """Settings with hooks that run such commands and other keys; and the same as text. No event has an empty list: one
    that we put an entry into goes with it; where nobody changed the settings, the record knows their bytes."""
    rng = random.Random(seed)
    settings = {"%s ü\n%d" % (name, i): rng.choice(VALUES) for i, name in enumerate(FOREIGN[: rng.randrange(3)])}
    if rng.random() < 0.8:
        events = rng.sample([*wanted(agent), "Notification", "PostCompact", "SubagentStop"], rng.randrange(1, 5))
        settings["hooks"] = {name: [random_group(rng, commands) for _ in range(rng.randrange(1, 3))] for name in events}
    if rng.random() < 0.3:
        settings["statusLine"] = {"type": "command", "command": rng.choice(FOREIGN), "padding": 0}
    if rng.random() < 0.3:
        settings["permissions"] = {"allow": rng.sample(["Bash(ls)", "Read"], rng.randrange(3)), "deny": []}
    style = rng.choice(
        [
            {"indent": 2},
            {"indent": 4},
            {"indent": "\t"},
            {"indent": 0},
            {},
            {"separators": (",", ":")},
            {"indent": 2, "separators": (",", " : ")},
        ]
    )
    text = json.dumps(settings, ensure_ascii=rng.random() < 0.5, **style)
    if rng.random() < 0.3:
        text = text.replace("[\n", "[", 1)
    return settings, text.replace("\n", rng.choice(["\n", "\r\n"])) + rng.choice(["", "\n", "\n\n"])


def random_group(rng, commands):
    hooks = [{"type": "command", "command": rng.choice(commands), "timeout": 5} for _ in range(rng.randrange(3))]
    return {**({"matcher": "Bash|Edit"} if rng.random() < 0.5 else {}), "hooks": hooks}


def wanted(agent):
    return kit.adapt_hooks(inst.HOOKS, agent, kit.kit_word(agent) or "/x/ctx_hooks.py")


def checked(text):
    """An edited text, whose strict twin has to be what the text says."""
    assert text.plain == kit.plain_json(text.source)
    return text.source


def merged(source, agent):
    """A text with our hooks in it."""
    text = inst.JsonText(source)
    inst.merge_hooks(text, wanted(agent))
    return checked(text)


def stripped(source):
    """A text without what is ours."""
    text = inst.JsonText(source)
    inst.strip_settings(text)
    return checked(text)


def value_of(source):
    return json.loads(kit.plain_json(source.lstrip("\ufeff")))


def foreign_in(settings):
    return [
        (event, hook)
        for event, groups in settings.get("hooks", {}).items()
        for group in groups
        for hook in group["hooks"]
        if not kit.parse_line(hook["command"])
    ]


@pytest.mark.parametrize("agent", inst.AGENTS)
def test_merging_into_a_text_and_stripping_it_again_restores_every_byte(agent, rounds):
    for seed in range(rounds(60)):
        settings, source = random_settings(seed, agent, FOREIGN)
        installed = merged(source, agent)
        assert merged(installed, agent) == installed, seed
        assert stripped(installed) == source, seed


@pytest.mark.parametrize("agent", inst.AGENTS)
def test_each_hook_is_registered_once_beside_foreign_ones(agent, rounds):
    ours = {event: group["hooks"][0] for event, group in wanted(agent).items()}
    odd = '"command" :  "./lint\\u002esh"'
    for seed in range(rounds(60)):
        settings, source = random_settings(seed, agent, FOREIGN + OURS)
        source = re.sub(r'"command" ?: ?"\./lint\.sh"', lambda _: odd, source)
        installed, bare = merged(source, agent), stripped(source)
        lines = kit.find_lines(json.loads(installed))
        assert {line.event: line.entry for line in lines} == ours and len(lines) == len(ours), seed
        assert kit.find_lines(json.loads(bare)) == []
        assert foreign_in(json.loads(installed)) == foreign_in(json.loads(bare)) == foreign_in(settings), seed
        assert installed.count(odd) == bare.count(odd) == source.count(odd), seed


def test_an_older_entry_is_replaced_in_its_place():
    old = {"type": "command", "command": "python3 x/ctx_hooks.py gate", "statusMessage": "…", "timeout": 99}
    other = {"type": "command", "command": "./mine.sh"}
    groups = [{"matcher": "Bash", "hooks": [other, old, other]}, {"hooks": [other]}]
    installed = json.loads(merged(json.dumps({"hooks": {"PreToolUse": groups}}), "claude"))
    old.update(wanted("claude")["PreToolUse"]["hooks"][0])
    assert installed["hooks"]["PreToolUse"] == groups


def test_a_status_line_of_ours_keeps_what_a_person_added(place):
    place.run("--statusline")
    status = {**place.settings()["statusLine"], "padding": 2}
    place.write(
        SETTINGS, json.dumps({**place.settings(), "statusLine": {**status, "command": "sh x/ctx_hooks.py statusline"}})
    )
    place.run()
    assert place.settings()["statusLine"] == status


def edited(source, puts=(), removals=()):
    text = inst.JsonText(source)
    for place, value in puts:
        text.put(place, value)
    for place in removals:
        text.remove(place)
    return checked(text)


@pytest.mark.parametrize(
    "source, puts, expected",
    [
        ("{}", [(["a", "b", 0], 1)], '{\n  "a": {\n    "b": [\n      1\n    ]\n  }\n}'),
        ('{ "a": 1 }', [(["b"], 2)], '{ "a": 1, "b": 2 }'),
        ('{\n    "a": {}\n}\n', [(["a", "b"], 1)], '{\n    "a": {\n        "b": 1\n    }\n}\n'),
        ('{"a": 1, "a": 2}', [(["a"], 3)], '{"a": 1, "a": 3}'),
        ('{"a": 1e2}', [(["a"], 100)], '{"a": 1e2}'),
        ('{"a":[]}', [(["a", 0], {"b": [1]}), (["c", "d"], 1)], '{"a":[{"b": [1]}], "c": {"d": 1}}'),
        ('{\n "a": {"b": 1}\n}', [(["a", "c", 0], {"d": 1})], '{\n "a": {"b": 1, "c": [{"d": 1}]}\n}'),
        ('{\n  "a": [1, // of 1\n  2,]}', [(["a", 2], 3)], '{\n  "a": [1, // of 1\n  2,\n    3,]}'),
        ('{\n  "a": 1 // of a\n}', [(["b"], 2)], '{\n  "a": 1, // of a\n  "b": 2\n}'),
        ('\ufeff{"a": 1, "b": {"c" : true}}', [(["b", "c"], False)], '\ufeff{"a": 1, "b": {"c" : false}}'),
        (
            '{\r\n\t"a" : 1.50e+3,\r\n\t"b": {"c":true}\r\n}',
            [(["n", "x", 0], 1)],
            '{\r\n\t"a" : 1.50e+3,\r\n\t"b": {"c":true},\r\n\t"n": {\r\n\t\t"x": [\r\n\t\t\t1\r\n\t\t]\r\n\t}\r\n}',
        ),
    ],
)
def test_putting_a_value_into_a_text_changes_nothing_else(source, puts, expected):
    assert edited(source, puts) == expected


@pytest.mark.parametrize(
    "source, places, expected",
    [
        ('{"a": 1, "b": 2, "c": 3}', [["b"]], '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2}', [["a"]], '{ "b": 2}'),
        ('{"b": [\n 1\n], "c": 1}', [["b", 0]], '{ "c": 1}'),
        ('{"b": {"c": [1]}}', [["b", "c", 0]], "{}"),
        ('{"a": [ 1 , 2,3 ]}', [["a", 2], ["a", 0]], '{"a": [  2 ]}'),
    ],
)
def test_an_item_is_taken_out_of_a_text_with_what_is_empty_then(source, places, expected):
    assert edited(source, removals=places) == expected


# --- whole runs

STAND_IN = b"""#!/bin/sh
# ctx_hooks: hooks that keep a coding agent on track
''':'
echo %s ran "$@"
mkdir -p "$XDG_STATE_HOME/ctx_hooks/x"
: >"$XDG_STATE_HOME/ctx_hooks/x/session-doctor.json"
exit 0
'''
VERSION = "%s"
""" % ((kit.VERSION.encode(),) * 2)
OLD_KIT = STAND_IN.replace(kit.VERSION.encode(), b"0.0.9")
SETTINGS = ".claude/settings.json"
KIT = ".claude/hooks/ctx_hooks.py"
ATTRIBUTES = ".claude/hooks/.gitattributes"
MINE = {"type": "command", "command": "./mine.sh"}


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
        helper.write(os.path.join(self.source, "install.py"), "")  # to be named, never run
        self.env = {"PATH": os.path.dirname(PYTHON) + ":/usr/bin:/bin", "HOME": self.home, "LC_ALL": "C.UTF-8"}

    def path(self, *names):
        return os.path.join(self.project, *names)

    def write(self, name, data, mode=None):
        path = helper.write(self.path(name), data)
        if mode:
            os.chmod(path, mode)
        return path

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def state(self, name=""):
        return os.path.join(kit.project_state_folder(self.project, self.env), name)

    def settings(self, name=SETTINGS):
        return value_of(self.read(name).decode("utf-8-sig"))

    def commands(self, name=SETTINGS):
        return [line.entry["command"] for line in kit.find_lines(self.settings(name))]

    def run(self, *words, cwd=None, code=0):
        """What install.py prints; its exit code must be `code`."""
        said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch, mock.patch.dict(os.environ, self.env, clear=True):
            patch.chdir(cwd or self.project)
            patch.setattr(inst, "HERE", self.source)
            patch.setattr(inst, "SOURCE", self.kit)
            patch.setattr(sys, "stdout", said)
            patch.setattr(sys, "stderr", said)
            try:
                done = inst.main(list(words))
            except SystemExit as end:
                done = end.code or 0
        said.flush()
        text = said.buffer.getvalue().decode()
        assert done == code, text
        return text

    def process(self, **more):
        """install.py itself, at work."""
        return subprocess.Popen(
            [PYTHON, INSTALLER],
            cwd=self.project,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **more,
        )

    def tree(self, root=None):
        """Everything below the project but .git: path -> (mode, bytes or link target)."""
        found, root = {}, root or self.project
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name != ".git"]
            for name in folders + files:
                path = os.path.join(folder, name)
                mode = os.lstat(path).st_mode
                data = os.readlink(path) if stat.S_ISLNK(mode) else None
                if stat.S_ISREG(mode):
                    data = self.read(path)
                found[os.path.relpath(path, root)] = (stat.S_IMODE(mode), data)
        return found

    def left_in_home(self):
        return [path for path in self.tree(self.home) if "ctx_hooks" in path]

    def shell(self, command):
        """What a registered line prints, run as a client does."""
        names = [dialect.project_variable for dialect in kit.DIALECTS.values() if dialect.project_variable]
        env = {**self.env, **dict.fromkeys(names, self.project), "XDG_STATE_HOME": self.base + "/state"}
        return subprocess.run(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/", timeout=60, env=env
        ).stdout.decode()

    def git(self, *words, cwd=None):
        words = ["git", "-c", "core.quotePath=false", "-c", "user.name=x", "-c", "user.email=x@example.org", *words]
        return subprocess.run(
            words,
            cwd=cwd or self.project,
            check=True,
            timeout=60,
            stdout=subprocess.PIPE,
            env={**self.env, "GIT_CONFIG_NOSYSTEM": "1"},
        ).stdout.decode()

    def staged(self, cwd=None):
        """What `git add -A` would stage."""
        return [line[3:] for line in self.git("status", "--porcelain", "-uall", cwd=cwd).splitlines()]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "place")


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
    "no commands": b'{"hooks": {"Stop": [{"hooks": [{"type": "prompt"}]}], "disabled": ["x"], "enabled": true}}',
    "own status line": b'{"statusLine": {"type": "command", "command": "echo mine"}}',
    "permissions": b'{"permissions": {"allow": [ ]}}\n',
    "the same rule": b'{"permissions": {"allow": ["%s"]}}\n' % RULE.encode(),
    "the same key twice": b'{"hooks": {"a": []}, "n": 1, "hooks": {}}',
    "a huge number": b'{"n": %s}\n' % (b"7" * 4000),
}


COMMON = ("absent", "foreign hooks", "tabs, CRLF, BOM, no final newline")  # for all clients; the text is edited alike
CASES = [(agent, name) for agent in inst.AGENTS for name in BEFORE if name in COMMON or agent in ("claude", "gemini")]


@pytest.mark.parametrize("agent, name", CASES)
def test_uninstall_gives_every_byte_back(place, agent, name):
    path = kit.DIALECTS[agent].settings
    words = ["--agent", agent, "--statusline", "--allow-handoff"]
    if BEFORE[name] is not None:
        place.write(path, BEFORE[name], 0o640)
        place.write("CLAUDE.md", b"# Mine\r\n\r\nkeep this")
    before = place.tree()
    place.run(*words)
    assert kit.write_section(place.path("CLAUDE.md"), "where we stood")  # as the kit does when nothing else helps
    for command in place.commands(path):
        own_word = "" if agent == "claude" else " " + agent
        assert re.fullmatch(r"\S+ ran [a-z-]+%s( now)?\n" % own_word, place.shell(command))
    if agent == "claude":
        status = "mine" if name == "own status line" else "%s ran statusline" % kit.VERSION
        assert place.shell(place.settings()["statusLine"]["command"]) == status + "\n"
    installed = place.tree()
    assert (SETTINGS in installed) == (agent == "claude") and installed[KIT][0] & 0o111
    assert stat.S_IMODE(os.stat(place.state("install-project.json")).st_mode) == 0o600  # it may hold a secret
    place.run("--check", *words)
    for again in (words, words[:2]):
        assert "nothing to change" in place.run(*again)
    assert place.tree() == installed
    place.run("--uninstall")
    assert place.tree() == before
    assert "nothing of ctx_hooks" in place.run("--uninstall")
    assert place.tree() == before and place.left_in_home() == []


REFUSED = {
    b"{": "line 1 column 2",
    b'{"a": 1,}': "line 1",
    b'{\n  // why\n  "a": 1\n}': "line 2 column 3",
    b'{"a": "x\ny"}': "line 1 column 9",
    b'{"b": [NaN]}': "NaN is not JSON",
    b"[" * 100_000: "nested too deeply",
    b"[]": "the whole must be an object",
    b'{"a": "\xff"}': "can't decode byte 0xff",
    b'{"hooks": []}': "hooks must be an object",
    b'{"hooks": null}': "hooks must be an object",
    b'{"hooks": {"Stop": {"a": 1}}}': "Stop must be an array",
    b'{"statusLine": "x"}': "statusLine must be an object",
    b'{"permissions": []}': "permissions must be an object",
    b'{"permissions": {"allow": "x"}}': "allow must be an array",
}


@pytest.mark.parametrize("data", REFUSED, ids=[repr(data[:40]) for data in REFUSED])
def test_unusable_settings_stop_everything_before_the_first_write(place, data):
    place.write(SETTINGS, data)
    before = place.tree()
    for words in ([], ["--dry-run"], ["--force"]):
        out = place.run(*words, code=1)
        assert (
            re.match(r"error: \.claude/settings\.json: .*\nhint: .*not strict JSON.*\n$", out) and REFUSED[data] in out
        )
        assert place.tree() == before


COMMENTED = {
    "before and behind": '{\n  // mine\n  "theme": "dark", /* a */\n}\n',
    "no comma at the end": '{ // all of it\n  "theme": "http://x" // why, then\n  // more\n}\n',
    "hooks that have some": '{\n  "hooks": {\n    // none yet\n  },\n  "n": [1, 2,], // x\n}\n',
    "foreign hooks": '{"hooks": {"SessionStart": [ // theirs\n    {"hooks": []}, /* and\n no more */\n  ],}}\n// end',
    "CRLF": '\ufeff{\r\n\t// mine\r\n\t"theme" : /* , */ "dark" /* \u00fc */ ,\r\n\t"n": 1 // }\r\n}\r\n',
    "one line": '{ "theme": "dark", /* a, b */ }',
    "only a comment": "{ /* none */ }",
}


@pytest.mark.parametrize("source", COMMENTED.values(), ids=COMMENTED)
def test_comments_stay_through_install_and_uninstall(place, source):
    path, words = ".gemini/settings.json", ["--agent", "gemini"]
    place.write(path, source.encode())
    before = place.tree()
    out = place.run(*words)
    assert "hooks of Gemini CLI" in out and "FAIL" not in out
    installed = place.read(path).decode()
    for comment in re.findall(r"(?<!:)//[^\r\n]*|/\*[^/]*\*/", source):
        assert comment in installed
    theirs, value = value_of(source), value_of(installed)
    assert len(kit.find_lines(value)) == len(kit.DIALECTS["gemini"].registered)
    assert {**value, "hooks": 0} == {**theirs, "hooks": 0}
    assert "current, and speaks" in place.run("--check", *words)
    place.write(path, installed.replace("{", "{ // new\n", 1).encode())
    place.run("--check", *words)
    place.run("--uninstall")
    assert place.read(path).decode().split() == source.replace("{", "{ // new\n", 1).split()
    place.write(path, source.encode())
    place.run(*words)
    place.run("--uninstall")
    assert place.tree() == before


def test_what_is_added_beside_comments_has_the_indent_of_the_text():
    added = edited(COMMENTED["before and behind"], [(["hooks", "a", 0], 1)])
    theirs = '{\n  // mine\n  "theme": "dark", /* a */\n'
    assert added == theirs + '  "hooks": {\n    "a": [\n      1\n    ]\n  },\n}\n'
    added = edited(COMMENTED["hooks that have some"], [(["hooks", "a"], [])])
    assert added.startswith('{\n  "hooks": {\n    // none yet\n    "a": []\n  },\n')


def test_a_comment_that_came_between_our_entries_stays():
    mine = '{\n  "a": 1, // of a\n  "b": [1],\n  // of c\n  "c": 2 // also\n}\n'
    assert edited(mine, removals=[["b"]]) == mine.replace('  "b": [1],\n', "")
    assert edited(mine, removals=[["a"]]) == mine.replace('\n  "a": 1,', "")
    assert edited(mine, removals=[["c"]]) == mine.replace("1],", "1]").replace('"c": 2 ', "")


def test_settings_that_cannot_be_edited_leave_out_their_agent_alone(place):
    path = ".gemini/settings.json"
    place.write(path, b'{\n  "theme": dark\n}\n')
    before = place.tree()
    line = r"(?m)^left out Gemini CLI: \.gemini/settings\.json: .* line 2 column 12.*$"
    assert re.search(line, place.run())
    assert re.search(line, place.run("--check", "--agent", "all", code=4))
    assert place.commands() and place.read(path) == before[path][1]
    out = place.run("--agent", "gemini", code=1)
    assert "strict JSON" not in out and "hint: correct that, then run this again" in out
    assert "left out" not in place.run("--uninstall")
    assert place.tree() == before


def test_a_kit_stays_while_settings_that_cannot_be_edited_may_run_it(place):
    path = ".gemini/settings.json"
    place.write(path, b"{}")
    place.run()
    place.write(path, place.read(path)[:-1])
    out = place.run("--uninstall")
    assert "left out Gemini CLI" in out and "kept " + KIT in out
    assert KIT in place.tree() and SETTINGS not in place.tree()
    assert "error: " + path in place.run("--uninstall", code=1)  # no other is left


def test_agents_are_chosen_by_their_folders(place):
    for folder in (".codex", ".github", ".qwen", ".factory"):
        place.write(folder + "/own", b"")
    before = place.tree()
    assert "or droid\n      where it asks, trust the folder" in place.run()
    assert set(place.tree()) - set(before) >= {SETTINGS, ".codex/hooks.json", ".qwen/settings.json"}
    place.run("--uninstall", "--agent", "codex")
    assert ".codex/hooks.json" not in place.tree() and SETTINGS in place.tree()
    place.run("--check", "--agent", "claude", "--agent", "qwen")
    assert "would write .codex/hooks.json" in place.run("--check", code=4)
    for agent, path in (("copilot", ".github/hooks/ctx_hooks.json"), ("grok", ".grok/hooks/ctx_hooks.json")):
        assert path not in place.tree()
        place.run("--uninstall")
        assert place.tree() == before
        place.run("--agent", agent)
        assert path in place.tree() and SETTINGS not in place.tree()
        for both in ("claude", agent, "all"):
            place.run("--agent", both)  # Claude's settings, which these run, too
            assert path not in place.tree() and SETTINGS in place.tree()


@pytest.mark.parametrize("is_new_file", [False, True])
@pytest.mark.parametrize("is_upgraded", [False, True])
def test_only_our_entries_go_when_the_settings_changed_in_between(place, is_new_file, is_upgraded):
    if not is_new_file:
        place.write(SETTINGS, '{\n  "hooks": {\n    "Stop": []\n  }\n}\n')
    place.run("--allow-handoff")
    settings = place.settings()
    settings["env"] = {"A": "b"}
    settings["hooks"]["Stop"].append({"hooks": [MINE]})
    settings["permissions"]["allow"].append("Bash(ls)")
    place.write(SETTINGS, json.dumps(settings, indent=2))  # as the client writes it
    if is_upgraded:
        place.kit += b"# newer\n"
        place.run("--statusline")
    place.run("--uninstall")
    expected = {"hooks": {"Stop": [{"hooks": [MINE]}]}, "permissions": {"allow": ["Bash(ls)"]}, "env": {"A": "b"}}
    assert place.read(SETTINGS).decode() == json.dumps(expected, indent=2)
    assert not os.path.exists(place.path(".claude", "hooks"))


@pytest.mark.parametrize("before, after", [('{ "model": "x" }', b'{\n    "model": "x"\n}'), (None, None)])
def test_what_a_formatter_did_in_between_stays(place, before, after):
    if before:
        place.write(SETTINGS, before)
    place.run()
    place.write(SETTINGS, json.dumps(place.settings(), indent=4))
    place.run("--uninstall")
    _, left = place.tree().get(SETTINGS, (0, None))
    assert left == after


# --- links, and files that are something else


@pytest.mark.parametrize("scope", ["project", "local", "user"])
def test_links_inside_the_project_or_to_it_and_to_the_home_are_followed(place, scope):
    place.write("dotfiles/claude.json", b'{"a": 1}')
    os.mkdir(place.path(".claude"))
    os.symlink("../dotfiles/claude.json", place.path(SETTINGS))
    before = place.tree()
    link = os.path.join(place.base, "link")
    os.symlink(place.project, link)
    os.symlink(place.home, link + "-home")
    place.env["HOME"] = link + "-home"
    assert "wrote .claude/hooks/ctx_hooks.py" in place.run(link, "--scope", scope) or scope == "user"
    assert os.path.islink(place.path(SETTINGS)) and (b"ctx_hooks" in place.read(SETTINGS)) == (scope == "project")
    place.run(link, "--scope", scope, "--uninstall")
    assert place.tree() == before and not [path for path in place.tree(place.home) if path.startswith(".claude")]


@pytest.mark.parametrize("name", [".claude", ".claude/hooks", KIT, SETTINGS, ".codex", ".context"])
def test_links_that_lead_out_are_refused_with_the_path(place, name):
    outside = os.path.join(place.base, "outside")
    if name.endswith((".json", ".py")):
        place.write(outside, b"")
    else:
        place.write(outside + "/precious", b"")
    os.makedirs(os.path.dirname(place.path(name)), exist_ok=True)
    os.symlink(outside, place.path(name))
    before, behind = place.tree(), place.tree(outside)
    out = place.run("--force", *(["--agent", "codex"] if name == ".codex" else []), code=1)
    assert f"leads out of the project, to {outside}" in out
    assert place.tree() == before and place.tree(outside) == behind


@pytest.mark.parametrize("context_dir", [".context", "src"])
def test_no_record_that_came_with_a_clone_has_anything_removed(place, context_dir):
    """0.3.0 removed the whole project, by a link and a record of an older release."""
    place.write(".contextrc", "context_dir: %s\n" % context_dir)
    place.write(".claude/hooks/.ctx_hooks/record.json", "{}")
    place.write("lib/a.py", "x = 1\n")
    if context_dir == "src":
        place.write("src/state/b.py", "y = 1\n")
    else:
        os.makedirs(place.path(context_dir))
        os.symlink("..", place.path(context_dir, "state"))
    before = place.tree()
    place.run()
    place.run("--uninstall")
    assert before.items() <= place.tree().items()


def test_no_name_in_a_project_reaches_the_terminal_with_its_control_characters(place):
    os.symlink("/tmp/\x1b[2Jevil", place.path(".claude"))
    out = place.run(code=1)
    assert "evil" in out and "\x1b" not in out
    os.unlink(place.path(".claude"))
    place.write(SETTINGS, '{"a\x7f\x9b2J": 1}')
    assert not set("\x7f\x9b") & set(place.run("--dry-run"))


def test_a_pipe_in_the_settings_place_is_refused(place):
    os.makedirs(place.path(".claude"))
    os.mkfifo(place.path(SETTINGS))
    assert "not a regular file" in place.run(code=1)


@pytest.mark.skipif(helper.IS_ROOT, reason="root may write everything")
def test_read_only_settings_are_refused(place):
    place.write(SETTINGS, b"{}", 0o400)
    assert "is read-only" in place.run(code=1)


# --- other kits, older ones, and clones


def test_another_s_file_in_the_kits_place_stays(place):
    place.write(KIT, b"print('mine')\n", 0o755)
    before = place.tree()
    for words in ([], ["--force"]):
        assert "is another's file" in place.run(*words, code=1)
        assert place.tree() == before
    place.run("--uninstall")
    assert place.tree() == before


CHANGED = "was changed since it was installed, by a formatter?"


def test_a_kit_that_a_formatter_changed_is_put_back(place):
    place.run()
    changed = STAND_IN.replace(b"VERSION =", b"VERSION =   ")
    place.write(KIT, changed)
    printed = place.run("--check", code=4)
    assert re.match(r"not current: `.*install\.py` would change this\n", printed)
    assert "%s (%s; it %s)" % (KIT, kit.VERSION, CHANGED) in printed and place.read(KIT) == changed
    printed = place.run()
    assert CHANGED in printed and "a copy" not in printed
    assert place.read(KIT) == STAND_IN and "current" in place.run("--check")


def test_an_earlier_build_of_the_same_version_is_not_blamed_on_a_formatter(place):
    place.run()
    place.kit = STAND_IN + b"x = 1\n"
    printed = place.run()
    assert "changed %s (%s, was an earlier build of it)" % (KIT, kit.VERSION) in printed and CHANGED not in printed
    assert place.read(KIT) == place.kit


def test_a_kit_that_somebody_edited_is_replaced_and_kept_beside_it(place):
    edits = [STAND_IN + b"x = %d\n" % number for number in range(2)]
    for changed in edits:
        place.run()
        place.write(KIT, changed)
        assert CHANGED in place.run() and place.read(KIT) == STAND_IN
    kept = [place.read(os.path.join(place.home, name)) for name in helper.files_below(place.home)]
    assert set(edits) < set(kept)
    place.write(KIT, edits[0])
    assert "somebody changed it" in place.run("--uninstall") and place.read(KIT) == edits[0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace(b'"', b"'") + b"\n",
        lambda text: text[:80],  # cut short by a merge
        lambda text: b"",
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: b"\xef\xbb\xbf" + text,
    ],
    ids=["quotes", "cut", "empty", "CRLF", "BOM"],
)
def test_a_changed_kit_of_ours_is_put_back_and_taken_out(place, damage):
    place.run()
    place.write(KIT, damage(STAND_IN))
    assert "changed " + KIT in place.run() and place.read(KIT) == STAND_IN
    place.write(KIT, damage(STAND_IN))
    place.run("--uninstall")
    assert place.tree() == {}


@pytest.mark.parametrize("words", [[], ["--scope", "local"], ["--scope", "user"]])
def test_the_command_that_puts_a_kit_back_is_for_the_same_place(place, words):
    place.run(*words)
    base = os.path.join(place.home, ".claude") if "user" in words else place.path(".claude")
    path = os.path.join(base, "hooks", "ctx_hooks.py")
    helper.write(path, STAND_IN + b"\n")
    elsewhere = place.run(place.project, *words, "--check", cwd=place.base, code=4)
    command = re.search("not current: `(.*)` would", elsewhere)[1]
    assert shlex.split(command)[2:] == (words if "user" in words else [place.project, *words])


def test_a_newer_kit_is_not_replaced_by_an_older_one(place):
    newer = STAND_IN.replace(kit.VERSION.encode(), b"99.0.0")
    place.write(KIT, newer)
    assert "99.0.0" in place.run(code=1) and place.read(KIT) == newer
    place.run("--force")
    assert place.read(KIT) == STAND_IN


def test_a_file_that_only_speaks_of_the_kit_is_another_s(place):
    place.write(KIT, b"#!/bin/sh\n# a wrapper of ctx_hooks: hooks that keep a coding agent on track\n")
    assert "another's file" in place.run(code=1)


def test_an_attributes_file_of_the_person_stays(place):
    place.write(ATTRIBUTES, "ctx_hooks.py -diff\n")
    place.run()
    place.run("--uninstall")
    assert place.read(ATTRIBUTES) == b"ctx_hooks.py -diff\n"


REWRITES = {  # what other tools do to JSON, and to every text
    "sorted keys": (lambda text: json.dumps(json.loads(text), sort_keys=True, indent=4), lambda text: text),
    "one line": (lambda text: json.dumps(json.loads(text), separators=(",", ":")), lambda text: text.rstrip()),
    "CRLF": (lambda text: text.replace("\n", "\r\n"), lambda text: text.replace("\n", "\r\n")),
    "ends of lines and of the file": (
        lambda text: text.strip() + "\n\n",
        lambda text: text.replace("\n", "  \n") + "\n",
    ),
}


@pytest.mark.parametrize("tool", REWRITES)
@pytest.mark.parametrize("before", [None, '{"model": "opus", "hooks": {"Stop": [{"hooks": [%s]}]}}' % json.dumps(MINE)])
def test_whatever_other_tools_do_to_our_files_they_can_be_checked_and_taken_out(place, tool, before):
    if before:
        place.write(SETTINGS, before)
    place.run("--agent", "claude", "--agent", "gemini")
    for name in helper.files_below(place.project):
        rewrite = REWRITES[tool][0 if name.endswith(".json") else 1]
        if name != KIT:
            place.write(name, rewrite(place.read(name).decode()))
    assert place.run("--check").startswith("ok: ")
    assert place.run().startswith("nothing to change")
    place.run("--uninstall")
    assert helper.files_below(place.project) == ([SETTINGS] if before else [])
    assert not before or place.settings() == json.loads(before)


def test_an_untouched_older_release_is_upgraded_also_from_a_checkout_with_crlf(place):
    place.kit = OLD_KIT
    place.run()
    place.write(KIT, OLD_KIT.replace(b"\n", b"\r\n"))
    place.kit = STAND_IN
    assert "was 0.0.9" in place.run("--check", code=4)
    printed = place.run()
    assert f"({kit.VERSION}, was 0.0.9)" in printed and "a copy" not in printed
    place.run("--uninstall")
    assert place.tree() == {}
    place.write(KIT, OLD_KIT)  # in a clone without a record
    assert f"({kit.VERSION}, was 0.0.9)" in place.run()


def test_a_clone_without_a_record_loses_our_entries_alone(place):
    before = b'{\n  "model": "x"\n}\n'
    place.write(SETTINGS, before)
    place.run("--force", "--agent", "claude", "--agent", "gemini")
    shutil.rmtree(place.home)
    os.mkdir(place.home)
    place.run("--uninstall")
    assert place.read(SETTINGS) == before
    assert [path for path in place.tree() if path.endswith(".json")] == [SETTINGS]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"settings": []}',
        b"[" * 100_000,
        b'{"kits": 5}',
        b'{"settings": {"../x": {}, ".claude/settings.json": {"original": 5}}}',
        b'{"settings": {".claude/settings.json": {"original": "[]", "after": 1}}}',
    ],
)
def test_a_damaged_record_is_harmless(place, data):
    place.run()
    place.write(place.state("install-project.json"), data)
    precious = place.write(".claude/precious", b"x")
    place.run("--uninstall")
    assert os.path.exists(precious) and not os.path.exists(place.path(KIT))
    assert SETTINGS not in place.tree() or not kit.find_lines(place.settings())


# --- git


def test_git_sees_the_kit_and_the_settings_alone(place, tmp_path):
    place.git("init", "-q")
    place.write(".codex/config.toml", b"")
    place.run("--statusline")
    ours = [ATTRIBUTES, KIT, SETTINGS, ".codex/config.toml", ".context/DECISIONS.md", ".context/TASKS.md"]
    assert place.staged() == ours
    place.git("add", "-A")
    place.git("commit", "-qm", "x")
    place.git("clone", "-q", ".", str(tmp_path / "clone"))
    place.project = str(tmp_path / "clone")
    assert place.shell(place.commands()[0]).endswith("ran inject\n")
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
    exclude = place.write(os.path.join(top, ".git", "info", "exclude"), b"*.log")
    before = place.tree(top)
    place.run(place.project, "--scope", "local", "--statusline")
    assert place.staged(top) == ["own.txt"]
    place.run(place.project)  # shared as well: now the kit is for everybody
    shared = (ATTRIBUTES, KIT, SETTINGS, ".context/TASKS.md", ".context/DECISIONS.md")
    names = [os.path.join(below, name) for name in shared]
    assert sorted(place.staged(top)) == sorted([*names, "own.txt"]) or below
    assert "used by .claude/settings.local.json" in place.run(place.project, "--uninstall")
    assert place.staged(top) == ["own.txt"]
    place.kit += b"# newer\n"
    place.run(place.project, "--scope", "local", "--statusline")
    place.run(place.project, "--uninstall", "--scope", "local")
    assert place.tree(top) == before and place.read(exclude) == b"*.log"


def test_a_worktree_keeps_private_files_out_of_git_too(place):
    place.git("init", "-q")
    place.git("commit", "-q", "--allow-empty", "-m", "x")
    place.git("worktree", "add", "-q", "../tree")
    place.project = os.path.join(place.base, "tree")
    place.run("--scope", "local")
    assert place.staged() == []


# --- scopes and places


def test_user_scope_follows_the_variables_that_name_a_clients_folder(place):
    """`doctor` and the clients do, too."""
    codex, copilot = os.path.join(place.base, "codex"), os.path.join(place.base, "copilot")
    place.env.update(CODEX_HOME=codex, COPILOT_HOME=copilot)
    os.makedirs(codex)
    os.makedirs(os.path.join(place.home, ".gemini"))
    os.makedirs(os.path.join(place.home, ".copilot"))  # not the one that counts
    printed = place.run("--scope", "user")
    assert "next: start Claude Code or Codex or Gemini CLI" in printed
    assert place.commands(os.path.join(codex, "hooks.json"))
    assert place.run("--scope", "user", "--check").startswith("ok: ")
    place.run("--scope", "user", "--agent", "copilot", "--uninstall")
    place.run("--scope", "user", "--uninstall")
    assert helper.files_below(codex) == []
    place.run("--scope", "user", "--agent", "copilot")
    assert place.commands(os.path.join(copilot, "hooks", "ctx_hooks.json"))
    assert helper.files_below(os.path.join(place.home, ".copilot")) == []


@pytest.mark.parametrize("variable", [None, "a \"b' ü/deep"])
def test_user_scope_leaves_the_project_alone(place, variable):
    config = os.path.join(place.home, variable or ".claude")
    if variable:
        place.env["CLAUDE_CONFIG_DIR"] = config
    os.makedirs(os.path.join(place.home, ".gemini"))
    place.run("--scope", "user", "--statusline", "--allow-handoff")
    assert place.tree() == {}
    rules = place.settings(os.path.join(config, "settings.json"))["permissions"]["allow"]
    assert rules == ["Edit(**/.context/handoffs/**)"]  # for all folders
    for path in (os.path.join(config, "settings.json"), os.path.join(place.home, ".gemini/settings.json")):
        for command in place.commands(path):
            assert "PROJECT_DIR" not in command and (variable or command.startswith('sh "$HOME/.claude/'))
            assert " ran " in place.shell(command)
    place.run("--scope", "user", "--check")
    place.run("--scope", "user", "--uninstall")
    assert [path for path, (_, data) in place.tree(place.home).items() if data] == []


def test_the_project_is_the_nearest_folder_with_git_or_claude(place):
    deep = place.path("app", "src", "deep")
    os.makedirs(deep)
    os.mkdir(place.path("app", ".claude"))
    assert place.run(cwd=deep).startswith("project: %s\n" % place.path("app"))
    os.mkdir(place.path("app", "src", ".git"))
    place.run(cwd=deep)
    assert os.path.exists(place.path("app", "src", SETTINGS))
    place.run(deep)
    assert os.path.exists(os.path.join(deep, SETTINGS))


def test_the_home_is_no_project(place):
    folder = os.path.join(place.home, "src")
    os.makedirs(os.path.join(place.home, ".claude"))
    os.mkdir(folder)
    place.run(cwd=folder)
    assert os.listdir(os.path.join(place.home, ".claude")) == [] and os.path.exists(os.path.join(folder, SETTINGS))
    assert "--scope user" in place.run(place.home, code=1)


def test_the_kits_own_folder_is_no_project_unless_somebody_names_it(place):
    os.mkdir(os.path.join(place.source, ".claude-plugin"))
    assert "kit's own folder" in place.run(cwd=place.source, code=1)
    place.run(".", cwd=place.source)


def test_a_copy_of_the_kit_at_the_top_of_somebodys_repository_is_no_hindrance(place):
    place.run("--dry-run", cwd=place.source)


def test_a_kit_that_is_run_from_where_it_is_installed_stays(place):
    place.source = place.path(".claude", "hooks")
    place.write(KIT, STAND_IN)
    place.run()
    assert "beside install.py" in place.run("--uninstall") and place.read(KIT) == STAND_IN


# --- options


@pytest.mark.parametrize(
    "words",
    [
        ["--dry-run"],
        ["--check"],
        ["--dry-run", "--uninstall"],
        ["--help"],
        ["--dry-run", "--verbose", "--agent", "all"],
    ],
)
@pytest.mark.parametrize("is_installed", [False, True])
def test_looking_writes_nothing(place, words, is_installed):
    if is_installed:
        place.run()
    before = place.tree(place.base)
    place.run(*words, code=0 if is_installed or words != ["--check"] else 3)
    assert place.tree(place.base) == before


def test_a_dry_run_shows_the_settings_diff_first(place):
    place.write(SETTINGS, b'{\n  "model": "opus"\n}\n')
    lines = place.run("--dry-run", "--allow-handoff").splitlines()
    assert lines[0] == f"would change {SETTINGS} (hooks of Claude Code)" and lines[1].startswith("@@")
    assert f'+      "{RULE}"' in lines
    assert f"would write {KIT} ({kit.VERSION})" in lines and "would write .context/TASKS.md" in lines
    assert "+# Tasks" not in lines and "+# Tasks" in place.run("--dry-run", "--verbose")
    place.kit = inst.SOURCE
    assert "def " not in place.run("--dry-run", "--verbose")


def test_check_tells_not_installed_from_not_current_by_its_exit_code(place):
    assert place.run("--check", code=3).startswith("not installed: ")
    place.run()
    assert place.run("--check") == f"ok: ctx_hooks {kit.VERSION} is installed, current, and speaks\n"
    settings = place.settings()
    del settings["hooks"]["SessionEnd"]
    place.write(SETTINGS, json.dumps(settings))
    assert f"would change {SETTINGS}" in place.run("--check", code=4)
    place.write(KIT, b"exit 0\n")
    assert "is another's file" in place.run("--check", code=1)
    os.unlink(place.path(KIT))
    place.kit = STAND_IN.replace(b"exit 0", b"exit 1").replace(b"echo", b"exit 1; echo")
    assert "FAIL: the registered line fails: it did nothing" in place.run()
    assert "FAIL: the registered line fails" in place.run("--check", code=4)


def test_python_sets_a_link_in_the_cache_alone(place):
    shim = place.write(place.base + "/shim", '#!/bin/sh\nexec %s "$@"\n' % shlex.quote(PYTHON), 0o755)
    place.run("--python", shim)
    link = os.path.join(place.home, ".cache", "ctx_hooks", "python3")
    assert os.path.samefile(os.readlink(link), PYTHON) and PYTHON not in place.read(SETTINGS).decode()
    place.run("--python", PYTHON)
    old = place.write(place.base + "/old", "#!/bin/sh\nexit 1\n", 0o755)
    for path in (old, "no-such-python"):
        assert "is not Python 3.8" in place.run("--python", path, code=1)
    place.run("--uninstall")
    assert not os.path.lexists(link)


def test_a_context_folder_is_made_with_two_files_that_say_nothing_yet(place):
    assert "write into .context/TASKS.md what is being worked on" in place.run()
    assert sorted(os.listdir(place.path(".context"))) == ["DECISIONS.md", "TASKS.md"]
    assert not any(kit.says_something(text) for text in inst.TEMPLATES.values())
    place.write(".context/TASKS.md", "mine\n")
    os.unlink(place.path(".context", "DECISIONS.md"))
    assert "nothing to change" in place.run()  # what a person threw away does not come again
    assert "what is in it is yours" in place.run("--uninstall")
    assert sorted(place.tree()) == [".context", ".context/TASKS.md"]


def test_a_context_folder_that_is_there_or_unwanted_gets_no_file_of_ours(place):
    os.mkdir(place.path(".context"))
    place.run()
    assert os.listdir(place.path(".context")) == []
    os.rmdir(place.path(".context"))
    assert "FAIL: no .context folder here or above: the hooks stay silent" in place.run("--no-context", "--statusline")
    assert not os.path.exists(place.path(".context"))


def test_the_context_folder_has_the_name_that_the_settings_give_it(place):
    place.write(".contextrc", "context_dir: docs/ctx\n")
    place.run("--allow-handoff")
    assert os.path.exists(place.path("docs/ctx/TASKS.md"))
    assert place.settings()["permissions"]["allow"] == ["Edit(/docs/ctx/handoffs/**)"]
    place.run("--uninstall")
    assert not os.path.exists(place.path("docs"))  # nobody wrote into it


def test_uninstalling_the_last_project_removes_the_cache_too(place):
    other = os.path.join(os.path.dirname(place.state("")[:-1]), "%2Fother")
    for keep in (True, False):
        place.run()
        place.write(place.state("session-a.json"), "{}")
        place.write(os.path.join(other, "session-b.json"), "{}")
        place.write(os.path.join(place.home, ".cache/ctx_hooks/calm/claude-x"), "1")
        place.run("--uninstall", *(["--keep-state"] if keep else []))
        assert os.path.exists(place.state("session-a.json")) == keep
        assert os.path.exists(other) and os.path.exists(os.path.join(place.home, ".cache/ctx_hooks"))
    place.run()
    shutil.rmtree(other)
    place.run("--uninstall")
    assert place.left_in_home() == []


RUNTIME = [
    ".caw/auto-state.json",
    ".caw/.gitignore",
    ".context/signals/global/ci.md",
    ".context/signals/sessions/s1/own.md",
    ".context/monitor-state.json",
    ".context/monitor-state.json.corrupt",
]


def use(place):
    """What is left when hooks ran here."""
    for name in RUNTIME:
        place.write(name, "{}")
    place.write(".context/.gitignore", kit.GITIGNORE)
    place.write(".caw/.gitignore", kit.WORKFLOW_IGNORE)
    state = {"id": "s1", "version": kit.SESSION_VERSION}
    for name in ("root", "lock", "greeted", "events.jsonl", "metrics.json", "agreed.json", "paused"):
        place.write(place.state(name), "{}")
    place.write(place.state("session-s1.json"), json.dumps(state))
    place.env["TMPDIR"] = os.path.join(place.base, "tmp")
    return place.write(os.path.join(place.env["TMPDIR"], "ctx-loaded-s1"), "")


def test_after_some_use_nothing_of_the_hooks_is_left(place):
    place.run()
    marker = use(place)
    printed = place.run("--uninstall")
    assert "removed .context/signals/global/ci.md" in printed
    assert printed.count("removed our files in %s\n" % os.path.dirname(place.state("x"))) == 1
    assert "session-s1" not in printed  # the folder says enough
    assert place.tree() == {} and place.left_in_home() == [] and not os.path.exists(marker)


def test_folders_that_hooks_made_and_nobody_filled_go_too(place):
    place.run()
    use(place)
    os.makedirs(place.path(".context/handoffs/delivered"))  # an agent was asked, and wrote nothing
    os.makedirs(os.path.join(place.home, ".cache/ctx_hooks/calm"))
    assert "what is in it is yours" not in place.run("--uninstall")
    assert not os.path.exists(place.path(".context")) and place.left_in_home() == []


def test_what_a_plugin_s_hooks_wrote_goes_though_nothing_was_installed_here(place):
    use(place)
    place.run("--uninstall")
    assert place.tree() == {} and place.left_in_home() == []


@pytest.mark.posix("links")
def test_an_empty_folder_behind_a_link_stays(place):
    place.run()
    os.makedirs(place.base + "/elsewhere/delivered")
    os.symlink(place.base + "/elsewhere", place.path(".context/handoffs"))
    place.run("--uninstall")
    assert os.path.isdir(place.base + "/elsewhere/delivered")


def test_what_a_person_or_a_session_wrote_stays(place):
    place.run()
    use(place)
    mine = [".context/TASKS.md", ".context/handoffs/s1.md", ".caw/mine", ".caw/.gitignore", ".context/signals/a/x.md"]
    mine += [".claude/settings.json.tmp-x", ".claude/deep/settings.json.tmp-1"]
    for name in mine:
        place.write(name, "mine")
    mine.append(".context/.gitignore")
    strange = place.write(place.state("strange"), "not ours")
    place.run("--uninstall")
    assert helper.files_below(place.project) == sorted(mine) and os.path.exists(strange)


@pytest.mark.parametrize(
    "name", [".caw", ".context/signals", ".context/signals/global", ".context/signals/sessions/s1"]
)
def test_nothing_is_removed_through_a_link(place, name):
    place.run()
    use(place)
    victim = os.path.join(place.base, "victim")
    for file in ("auto-state.json", "ci.md", "own.md", "global/ci.md"):
        place.write(os.path.join(victim, file), "precious")
    shutil.rmtree(place.path(name))
    os.symlink(victim, place.path(name))
    place.run("--uninstall")
    assert len(helper.files_below(victim)) == 4


def test_the_home_s_folders_are_not_emptied_through_a_link_either(place):
    place.run()
    use(place)
    victim = os.path.join(place.base, "victim")
    folder = os.path.dirname(place.state("x"))
    os.rename(folder, victim)
    os.symlink(victim, folder)
    before = helper.files_below(victim)
    place.run("--uninstall")
    assert helper.files_below(victim) == before and len(before) > 8


def test_it_says_that_git_ignores_what_should_be_shared(place):
    place.git("init", "-q")
    place.write(".gitignore", "/.claude/\n")
    assert "note: git ignores .claude/settings.json, .claude/hooks/ctx_hooks.py here" in place.run()
    assert "git ignores" not in place.run("--scope", "local")


def test_below_the_git_root_it_says_where_the_client_has_to_be_started(place):
    place.git("init", "-q")
    below = place.path("packages", "web")
    os.makedirs(below)
    printed = place.run(cwd=below)
    assert printed.startswith("project: %s\n" % place.project)
    assert "Claude Code runs no hook if you start it here, in %s\n" % below in printed
    assert re.search("start it in .*, or: .*install.py \\.\n", printed)
    assert "nothing to change" in place.run(cwd=below) and "if you start it here" in place.run(cwd=below)
    place.run(".", cwd=below)
    assert not os.path.exists(os.path.join(below, ".context"))  # the one above is this project's, too
    assert "if you start it here" not in place.run("--check", cwd=below)


def test_a_first_install_reads_like_a_letter(place):
    letter = place.run()
    lines = letter.splitlines()
    assert lines[0] == "wrote %s (%s)" % (KIT, kit.VERSION)
    assert "commit them, and your team gets the hooks" in letter and "next: start Claude Code" in letter
    assert lines[-2] == "to see what the hooks do: %s status" % KIT and lines[-1].endswith("install.py --uninstall")


def test_a_dry_run_ends_with_the_same_letter(place):
    rehearsed = place.run("--dry-run").partition("\nthe install would end with:\n\n")[2]
    assert rehearsed == place.run().partition("\n\n")[2] + "nothing was written: this was a dry run\n"


def test_a_first_install_names_the_other_agents_that_the_person_has(place):
    os.makedirs(os.path.join(place.home, ".codex"))
    os.makedirs(os.path.join(place.home, ".grok"))  # runs Claude Code's hooks
    assert re.search(r"\nfor Codex, too: .*install\.py --agent codex\n", place.run())
    letter = place.run("--agent", "codex")
    assert "next: start Codex; it shows `ctx: hooks are on`\n      where it asks, trust" in letter


def test_of_a_client_that_shows_no_line_of_a_hook_none_is_promised(place):
    assert "next: start Qwen Code\n" in place.run("--agent", "qwen")


def test_a_second_install_says_only_what_is_new(place):
    place.run()
    assert place.run("--statusline") == "changed %s (hooks of Claude Code)\n" % SETTINGS


def test_a_folder_that_is_not_there_is_an_error(place):
    assert "is not a folder" in place.run(place.path("tpyo"), code=1)
    assert not os.path.exists(place.path("tpyo"))


def test_settings_of_5_mb_are_no_problem(place):
    place.write(SETTINGS, json.dumps({"env": {"A%d" % number: "x" * 1000 for number in range(5000)}}))
    before = place.tree()
    place.run()
    assert place.run("--check").startswith("ok: ")
    place.run("--uninstall")
    assert place.tree() == before


def test_a_usage_error_exits_2(place):
    place.run("--scope", "galaxy", code=2)
    place.run("--agent", "nobody", code=2)


def test_a_failure_exits_1(place):
    assert "only Claude Code has private settings" in place.run("--scope", "local", "--agent", "codex", code=1)
    assert "nowhere is not a folder\nhint: " in place.run("nowhere", code=1)
    place.write(".claude", b"a file where a folder should be")
    assert re.match(r"error: .*\.claude.*\nhint: .*\n", place.run(code=1))
    del place.env["HOME"]
    assert "no home folder" in place.run(code=1)


# --- what goes wrong in the middle


def run_disturbed(place, disturb, *words, code=0):
    """A run in which something happens right before each change of a file."""
    apply_change = inst.apply_change

    def disturbed(change, job):
        disturb()
        apply_change(change, job)

    with mock.patch.object(inst, "apply_change", disturbed):
        return place.run(*words, code=code)


class Killed(BaseException):
    """Nothing catches it."""


def run_and_be_killed(place, steps, *words):
    """A run that is killed after some steps; False if it had no more."""
    kill = mock.Mock(side_effect=[None] * steps + [Killed])
    with contextlib.suppress(Killed):
        run_disturbed(place, kill, *words)
    return kill.call_count > steps


@pytest.mark.parametrize("is_finished", [False, True])
def test_runs_killed_anywhere_can_be_finished_or_undone(tmp_path, is_finished):
    words = ["--statusline", "--allow-handoff"]
    steps, was_killed = 0, True
    while was_killed:
        place = Place(tmp_path / str(steps))
        place.write(SETTINGS, b'{"hooks": {}}')  # only the record knows that this was there
        place.write(".codex/own", b"")
        before = place.tree()
        was_killed = run_and_be_killed(place, steps, *words)
        if is_finished:
            place.run(*words)
            place.run("--check", *words)
        run_and_be_killed(place, steps, "--uninstall")
        place.run("--uninstall")
        assert place.tree() == before, steps
        steps += 1
    assert steps > 3


@pytest.mark.parametrize("words", [[], ["--uninstall"]])
def test_what_an_editor_saves_in_this_very_moment_is_not_lost(place, words):
    place.write(SETTINGS, b'{"a": 1}')
    if words:
        place.run()
    said = run_disturbed(place, lambda: place.write(SETTINGS, b'{"a": 2}'), *words, code=1)
    assert "was changed during this run" in said and place.read(SETTINGS) == b'{"a": 2}'


def test_two_installers_at_once_leave_one_install_that_can_be_undone(place):
    place.write(SETTINGS, b'{"a": 1}')
    before = place.tree()
    running = [place.process() for _ in range(3)]
    said = [process.communicate(timeout=60)[0].decode() for process in running]
    assert 0 in [process.returncode for process in running], said
    assert not any("Traceback" in text for text in said), said
    place.run("--uninstall")
    assert place.tree() == before


def test_what_a_full_disk_interrupted_can_be_undone(place):
    resource = pytest.importorskip("resource")
    place.write(SETTINGS, b'{"a": 1}')
    before = place.tree()
    process = place.process(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)))
    out = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 1 and re.search(r"error: .*File too large\nhint: ", out), out
    assert place.read(SETTINGS) == b'{"a": 1}'
    place.run("--uninstall")
    assert place.tree() == before


@pytest.mark.parametrize("text", [None, "("])
def test_a_missing_or_damaged_kit_beside_the_installer_is_one_sentence(place, text):
    installer = shutil.copy(INSTALLER, place.source)
    if text:
        place.write(os.path.join(place.source, "ctx_hooks.py"), text)
    done = subprocess.run([PYTHON, installer], cwd=place.project, env=place.env, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and re.match(rb"error: the files beside .*\nhint: .*\n$", done.stderr)


def test_the_installer_has_nothing_that_python_2_7_cannot_parse():
    source = helper.read(INSTALLER)
    assert source.isascii()
    for node in ast.walk(ast.parse(source, feature_version=(3, 6))):
        assert not isinstance(node, (ast.AnnAssign, ast.JoinedStr, ast.Nonlocal, ast.AsyncFunctionDef)), node.lineno
        assert not getattr(node, "annotation", None) and not getattr(node, "returns", None), node.lineno
        assert not (isinstance(node, ast.Raise) and node.cause), node.lineno
        assert not (isinstance(node, ast.arguments) and node.kwonlyargs), node.lineno
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            assert not any(isinstance(item, ast.Starred) for item in node.elts), node.lineno
        if isinstance(node, ast.Call):  # *words may only be the last one
            assert not any(isinstance(item, ast.Starred) for item in node.args[:-1]), node.lineno
            assert not (isinstance(node.func, ast.Name) and node.func.id == "print"), node.lineno
    assert not re.search(r"""(?<!["'])\brb["']|\d_\d|\*\w+,\s*\)""", source)


def test_the_installer_says_to_an_old_python_what_it_needs():
    old = shutil.which("python3.6") or shutil.which("python3.7")
    if old and subprocess.run([old, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
        done = subprocess.run([old, INSTALLER], stderr=subprocess.PIPE)
        assert done.returncode == 1 and done.stderr.startswith(b"error: ctx_hooks needs Python 3.8")


def test_uninstall_leaves_alone_what_is_not_ours_around_our_lines(place):
    place.git("init", "-q")
    outside = place.write(os.path.join(place.base, "rules.md"), b"# Rules")
    os.symlink(outside, place.path("CLAUDE.md"))
    exclude = place.write(os.path.join(place.path(".git"), "info", "exclude"), b"*.log\n")
    place.run("--scope", "local")
    listed = place.read(exclude).replace(b"# end of ctx_hooks\n", b"")  # somebody took our last line out
    place.write(exclude, listed)
    place.run("--scope", "local", "--uninstall")
    assert b"*.log\n" in place.read(exclude) and place.read(outside) == b"# Rules"


# --- a stranger's repository


def test_an_exclude_list_that_is_a_link_is_left_alone(place):
    place.git("init", "-q")
    victim = place.write(os.path.join(place.base, "bashrc"), b"# mine\n")
    exclude = place.path(".git", "info", "exclude")
    os.unlink(exclude)
    os.symlink(victim, exclude)
    assert "it is a link" in place.run("--scope", "local")
    assert place.read(victim) == b"# mine\n"


def test_a_private_install_hides_no_source_file(place):
    place.git("init", "-q")
    place.write(".contextrc", b"context_dir: src\n")
    place.write("src/a.py", b"x")
    place.run("--scope", "local")
    assert sorted(place.staged(place.project)) == [".contextrc", "src/a.py"]


def test_runtime_files_stay_out_of_git_beside_an_ignore_list_of_the_projects_own(place):
    place.git("init", "-q")
    place.write(".context/.gitignore", b"*.log\n")
    place.run()
    place.write(".context/handoffs/s1.md", b"private")
    place.write(".context/monitor-state.json", b"{}")
    assert not [name for name in place.staged(place.project) if "handoffs" in name or "monitor" in name]
