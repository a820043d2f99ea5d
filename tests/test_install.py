"""install.py: the JSON it reads, the text it edits, the entries it knows, and whole runs on real folders."""
from __future__ import annotations

import ast
import contextlib
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

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = os.path.realpath(sys.executable)
ROUNDS = 400 * (50 if os.environ.get("CTX_SOAK") == "1" else 1)
BOM = b"\xef\xbb\xbf"
POSIX = os.name == "posix"


def load_installer():
    spec = importlib.util.spec_from_file_location("ctx_install", os.path.join(REPO, "install.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


inst = load_installer()


def repo_file(name):
    with open(os.path.join(REPO, name), encoding="utf-8") as file:
        return file.read()


HOOKS = json.loads(repo_file("hooks.json"))["hooks"]
ENTRIES = {event: [hook for group in groups for hook in group["hooks"]] for event, groups in HOOKS.items()}
WANTED = inst.wanted_entries(ENTRIES, "python3", inst.PROJECT_FOLDER)


# -----------------------------------------------------------------------------
# Random material, seeded
# -----------------------------------------------------------------------------

TEXTS = ["", "a", "Grüße", "日本", "\U0001f600", 'say "hi"', "back\\slash", "tab\there", "line\nbreak", "\u2028", "/x/"]
FOREIGN = ["echo ctx_hooks.py gate", "python3 my_ctx_hooks.py gate", "./lint.sh", "npx x || exit 0", "true"]
EVENTS = [*HOOKS, "Notification", "PreCompact", "SubagentStop"]


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
                old = {"type": "command", "command": f"python3 .claude/hooks/ctx_hooks.py {rng.choice(inst.MODES)}"}
                group["hooks"].insert(rng.randrange(len(group["hooks"]) + 1), old)
    return result


# -----------------------------------------------------------------------------
# JSON with positions
# -----------------------------------------------------------------------------


def strict_loads(text):
    def refuse(name):
        raise ValueError(name)
    return json.loads(text, parse_constant=refuse)


def test_parser_reads_what_the_standard_library_reads():
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        value = random_json(rng)
        assert inst.is_same(inst.parse_json(random_format(rng, value)).value, value), seed


def test_parser_accepts_and_refuses_damaged_text_like_the_standard_library():
    accepted = 0
    for seed in range(ROUNDS * 3):
        rng = random.Random(seed)
        text = list(random_format(rng, random_json(rng)))
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(text) + 1)
            text[at:at + rng.randrange(2)] = rng.choice(["", "//", *',]}{"0e \\\x01'])
        text = "".join(text)
        try:
            expected = strict_loads(text)
        except ValueError:
            with pytest.raises(inst.JsonError):
                inst.parse_json(text)
        else:
            accepted += 1
            assert inst.is_same(inst.parse_json(text).value, expected), seed
    assert accepted > ROUNDS / 10


def test_nodes_stand_where_they_say():
    src = '\n{"a": [1, {"b": "ü"}],\r\n "c" :null}'

    def check(node):
        assert inst.is_same(json.loads(src[node.start:node.end]), node.value)
        for item in node.items:
            assert item.key is None or src[item.start] == '"'
            check(item.node)
    check(inst.parse_json(src))


def test_deep_nesting_is_refused_and_not_a_crash():
    with pytest.raises(inst.JsonError, match="nested too deeply"):
        inst.parse_json("[" * 100_000)


def test_very_long_numbers_are_read():
    assert inst.parse_json("9" * 10_000).value == float("inf")


REFUSED = {
    b"{": "1:2: expected a key in double quotes",
    b'{"a": 1,}': "1:8: a trailing comma is not allowed",
    b'{"a": [1, ]}': "1:9: a trailing comma is not allowed",
    b'{\n  // why\n  "a": 1\n}': "2:3: expected a key in double quotes",
    b'{\n  "a": /* why */ 1\n}': "2:8: comments are not allowed",
    b'{"a" 1}': "1:6: expected ':' after the key",
    b'{"a": 1 "b": 2}': "1:9: expected ',' or '}'",
    b'{"a": "x\ny"}': "1:7: a string that does not end or holds what JSON forbids",
    b'{"a": NaN}': "1:7: expected a value",
    b'{"a": 01}': "1:8: expected ',' or '}'",
    b"{} {}": "1:4: expected the end of the file",
    b"[]": "1:1: the settings must be a JSON object",
    b"null": "1:1: the settings must be a JSON object",
    BOM + b'{"a":\r\n  "\xff"}': "2:4: not UTF-8",
    '{"a": 1}'.encode("utf-16"): "1:1: not UTF-8",
    b'{"hooks": []}': "1:11: hooks must be an object",
    b'{"hooks": {\n  "Stop": {}}}': "2:11: hooks.Stop must be an array",
    b'{"hooks": {"Stop": ["x"]}}': "1:21: a group in hooks.Stop must be an object",
    b'{"hooks": {"Stop": [{"matcher": ""}]}}': '1:21: "hooks" is missing here',
    b'{"hooks": {"Stop": [{"hooks": {}}]}}': '1:31: "hooks" must be an array',
    b'{"hooks": {"Stop": [{"matcher": 1, "hooks": []}]}}': '1:33: "matcher" must be a string',
    b'{"hooks": {"Stop": [{"hooks": [1]}]}}': "1:32: a hook in hooks.Stop must be an object",
    b'{"hooks": {"Stop": [{"hooks": [{"command": "x"}]}]}}': '1:32: "type" is missing here',
    b'{"hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}}': '1:32: "command" is missing here',
    b'{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": 5}]}]}}': '1:63: "command" must be a string',
    b'{"hooks": {}, "hooks": {}}': '1:15: the key "hooks" stands here a second time',
    b'{"hooks": {"Stop": [], "Stop": []}}': '1:24: the key "Stop" stands here a second time',
    b'{"statusLine": "x"}': "1:16: statusLine must be an object",
}


@pytest.mark.parametrize("data", REFUSED, ids=list(REFUSED.values()))
def test_unusable_settings_are_refused_with_line_and_column(data):
    with pytest.raises(inst.JsonError) as caught:
        inst.parse_settings(data)
    assert f"{caught.value.line}:{caught.value.column}: {caught.value.message}" == REFUSED[data]
    assert caught.value.hint


@pytest.mark.parametrize("data", [None, b"", b" \r\n\t", BOM, b"{}", b'{"a": 1, "a": 2}', b'{"hooks": {}}',
                                  b'{"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}}'])
def test_usable_settings_are_taken(data):
    inst.parse_settings(data)


# -----------------------------------------------------------------------------
# Splicing
# -----------------------------------------------------------------------------


def test_splicing_a_texts_own_value_changes_no_byte():
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        value = random_json(rng)
        text = random_format(rng, value)
        assert inst.splice(text, value) == text, seed


def test_splicing_any_value_into_any_text_holds_that_value():
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        old, new = random_settings(rng), random_settings(rng)
        for key in set(old) & set(new):
            if rng.random() < 0.5:
                new[key] = old[key]
        text = inst.splice(random_format(rng, old), new)
        assert inst.is_same(json.loads(text), new), seed


def test_splicing_keeps_every_line_that_does_not_change():
    src = '{\r\n\t"a" : 1.50e+3,\r\n\t"\\u00fc": [ 1,2,\t3 ],\r\n\t"b": {"c":true}\r\n}'
    value = json.loads(src)
    value["new"] = {"x": [1]}
    assert inst.splice(src, value) == src[:-3] + ',\r\n\t"new" : {\r\n\t\t"x" : [\r\n\t\t\t1\r\n\t\t]\r\n\t}\r\n}'


@pytest.mark.parametrize("src, value, expected", [
    ("{}", {"a": 1}, '{\n  "a": 1\n}'),
    ('{"a":1}', {"a": 1, "b": [2, 3]}, '{"a":1,"b":[2,3]}'),
    ('{"a": 1}', {"a": 1, "b": {}}, '{"a": 1, "b": {}}'),
    ('{\n    "a": {}\n}\n', {"a": {"b": 1}}, '{\n    "a": {\n        "b": 1\n    }\n}\n'),
    ('{"a": 1, "b": 2, "c": 3}', {"a": 1, "c": 3}, '{"a": 1, "c": 3}'),
    ('{"a": 1, "b": 2, "c": 3}', {"c": 3}, '{"c": 3}'),
    ("[1, 2, 3, 4]", [1, 3, 5], "[1, 3, 5]"),
    ("[1, 2]", [0, 1, 2], "[0, 1, 2]"),
    ("[\n 1,\n 2\n]", [], "[]"),
    ('{"a": "\\ud800"}', {"a": "\ud800", "b": "\ud800"}, '{"a": "\\ud800", "b": "\\ud800"}'),
    ('{"a": 1, "a": 2}', {"a": 2, "b": 3}, '{"a": 1, "a": 2, "b": 3}'),
    ('{"a": 1}', {"a": True}, '{"a": true}'),
])
def test_splicing_examples(src, value, expected):
    assert inst.splice(src, value) == expected


def test_merging_into_a_text_and_stripping_it_again_restores_every_byte():
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        settings = random_settings(rng)
        text = random_format(rng, settings)
        merged = inst.splice(text, inst.merge(settings, WANTED))
        if rng.random() < 0.5:
            merged = inst.splice(merged, inst.set_status(json.loads(merged), "python3", inst.PROJECT_FOLDER))
        assert inst.splice(merged, inst.strip(json.loads(merged), settings)) == text, seed


def test_no_line_of_the_users_changes_when_hooks_are_merged():
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        settings = random_settings(rng)
        text = json.dumps(settings, indent=2)
        merged = inst.splice(text, inst.merge(settings, WANTED))
        lines = iter(line.rstrip(",[]{} ") for line in merged.splitlines())
        assert all(line.rstrip(",[]{} ") in lines for line in text.splitlines()), seed  # in this order


def test_the_text_of_foreign_hooks_is_never_rewritten():
    odd = '"command" :  "./lint\\u002esh"'
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        settings = sprinkle_ours(rng, random_settings(rng))
        text = random_format(rng, settings)
        text = re.sub(r'"command" ?: ?"\./lint\.sh"', lambda match: odd, text)
        merged = inst.splice(text, inst.merge(settings, WANTED))
        assert merged.count(odd) == text.count(odd), seed
        assert inst.splice(text, inst.strip(settings)).count(odd) == text.count(odd), seed


def test_aligning_pairs_a_group_with_what_is_left_of_it():
    ours, theirs = {"command": "ours"}, {"command": "theirs"}
    old = [{"hooks": [ours]}, {"hooks": [ours, theirs], "matcher": "x"}, {"hooks": [ours]}, 5]
    assert inst.align(old, [{"hooks": [theirs], "matcher": "x"}, 5, 6]) == [(1, 0), (3, 1)]
    assert inst.align([], [1]) == inst.align([1], []) == []


# -----------------------------------------------------------------------------
# Our entries
# -----------------------------------------------------------------------------

IMPORT = 'python3 -I -S -c "import sys; sys.path.append(sys.argv.pop()); import ctx_hooks; ctx_hooks.main()"'
OURS = {
    IMPORT + ' gate "$CLAUDE_PROJECT_DIR/.claude/hooks" || exit 0': "gate",
    IMPORT + " stop-enforce '/home/x/a b'\"'\"'c/.claude/hooks' || exit 0": "stop-enforce",
    "'/opt/py thon/bin/anything'" + IMPORT[7:] + ' inject "$X"': "inject",
    "py -3" + IMPORT[7:] + ' inject "$X" || exit 0': "inject",
    "python3 .claude/hooks/ctx_hooks.py gate": "gate",
    'python3 "$CLAUDE_PROJECT_DIR"/.claude/hooks/ctx_hooks.py monitor 2>/dev/null || true': "monitor",
    "PYTHONUTF8=1 /usr/bin/python3.12 -X utf8 -I ~/.claude/hooks/ctx_hooks.py cleanup": "cleanup",
    "exec env A=b pypy3 ctx_hooks.py cleanup || :": "cleanup",
    ".claude/hooks/ctx_hooks.py gate": "gate",
    "python3 -m ctx_hooks gate": "gate",
    'C:\\Python312\\python.exe C:\\Users\\x\\.claude\\hooks\\ctx_hooks.py gate': "gate",
    '"C:/Program Files/Python/python.exe" -I -S "C:/x y/ctx_hooks.py" inject': "inject",
}
NOT_OURS = [
    "", "   ", "python3", "python3 -c", "ctx_hooks.py", "python3 ctx_hooks.py", "python3 ctx_hooks.py doctor",
    "python3 my_ctx_hooks.py gate", "python3 ctx_hooks.pyc gate", "python3 ctx_hooks.py.bak gate",
    "python3 ctx_hooks.py/other.py gate", "python3 gate ctx_hooks.py", "echo ctx_hooks.py gate",
    "echo " + IMPORT + " gate x", "cat ctx_hooks.py gate", "python3 other.py ctx_hooks.py gate",
    "echo before; python3 ctx_hooks.py gate", "python3 ctx_hooks.py gate && ./mine.sh",
    "python3 ctx_hooks.py gate | tee log",
    "python3 ctx_hooks.py gate || ./mine.sh", "(python3 ctx_hooks.py gate)", "python3 ctx_hooks.py gate\nrm -rf x",
    'python3 -c "import my_ctx_hooks; my_ctx_hooks.main()" gate x', 'python3 -c "import ctx_hooks" gate x',
    'python3 -c "print(\'import ctx_hooks\')" gate', "python3 'open quote ctx_hooks.py gate",
    "timeout 5 ./wrapper.sh ctx_hooks.py gate",
]


@pytest.mark.parametrize("command", OURS)
def test_what_runs_the_kit_and_nothing_else_is_ours(command):
    assert inst.mode_of({"type": "command", "command": command}) == OURS[command]


@pytest.mark.parametrize("command", NOT_OURS)
def test_what_only_resembles_or_mentions_the_kit_is_not_ours(command):
    assert inst.mode_of({"type": "command", "command": command}) is None
    assert not inst.is_our_status({"type": "command", "command": command})


def test_an_exec_form_entry_is_recognised():
    words = ["-I", "/p/ctx_hooks.py", "gate"]
    assert inst.mode_of({"type": "command", "command": "python3", "args": words}) == "gate"
    assert inst.mode_of({"type": "command", "command": "echo", "args": words}) is None


@pytest.mark.parametrize("hook", [None, 5, {}, {"type": "prompt", "command": "python3 ctx_hooks.py gate"},
                                  {"type": "command", "command": None}])
def test_ill_typed_hooks_are_not_ours(hook):
    assert inst.mode_of(hook) is None


def test_recognition_survives_any_text():
    pieces = ["python3", "ctx_hooks.py", "gate", "||", "exit", "0", "-c", "-X", "env", *"'\"\\|ü\0\n "]
    for seed in range(ROUNDS * 3):
        rng = random.Random(seed)
        command = "".join(rng.choice(pieces) + rng.choice(["", " "]) for _ in range(rng.randrange(12)))
        assert inst.mode_of({"type": "command", "command": command}) in (None, *inst.MODES)


def test_every_generated_command_is_recognised_and_gives_its_interpreter_back():
    for python in ("python3", "py -3", "'/a b/python3'"):
        wanted = inst.wanted_entries(ENTRIES, python, "'/x y/hooks'")
        merged = inst.merge({}, wanted)
        assert len(list(inst.our_hooks(merged))) == sum(map(len, ENTRIES.values()))
        assert inst.registered_python(merged) == python


def test_merging_twice_is_merging_once():
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        settings = sprinkle_ours(rng, random_settings(rng))
        once = inst.merge(settings, WANTED)
        assert inst.is_same(inst.merge(once, WANTED), once), seed


def test_merging_registers_each_entry_exactly_once():
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        merged = inst.merge(sprinkle_ours(rng, random_settings(rng)), WANTED)
        for event in {*merged["hooks"], *WANTED}:
            ours = [hook for group in merged["hooks"][event] for hook in group["hooks"] if inst.mode_of(hook)]
            assert inst.is_same(ours, WANTED.get(event, [])), seed


def without_empty(settings):
    """Settings with the empty containers left out that strip may drop."""
    hooks = {event: groups for event, groups in settings.get("hooks", {}).items() if groups}
    return {key: hooks if key == "hooks" else value for key, value in settings.items() if key != "hooks" or hooks}


def test_stripping_what_was_merged_is_the_original():
    for seed in range(ROUNDS):
        settings = random_settings(random.Random(seed))
        merged = inst.merge(settings, WANTED)
        assert inst.is_same(inst.strip(merged, settings), settings), seed
        assert inst.is_same(without_empty(inst.strip(merged)), without_empty(settings)), seed
        assert list(inst.strip(merged, settings)) == list(settings)  # the order of keys


def test_foreign_hooks_and_their_order_survive_merge_and_strip():
    def foreign(settings):
        return [(event, index, hook) for event, groups in settings.get("hooks", {}).items()
                for index, group in enumerate(g for g in groups if any(not inst.mode_of(h) for h in g["hooks"]))
                for hook in group["hooks"] if not inst.mode_of(hook)]
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        settings = sprinkle_ours(rng, random_settings(rng))
        assert foreign(inst.merge(settings, WANTED)) == foreign(settings), seed
        assert foreign(inst.strip(settings)) == foreign(settings), seed
        assert not inst.has_ours(inst.strip(settings))


def test_merge_and_strip_leave_their_argument_alone():
    for seed in range(ROUNDS // 4):
        rng = random.Random(seed)
        settings = sprinkle_ours(rng, random_settings(rng))
        before = json.dumps(settings)
        inst.strip(inst.set_status(inst.merge(settings, WANTED), "python3", "x"), settings)
        assert json.dumps(settings) == before


def test_an_older_entry_is_replaced_in_its_place_and_keeps_what_a_person_added():
    old = {"type": "command", "command": "python3 x/ctx_hooks.py gate", "args": [], "statusMessage": "…", "timeout": 99}
    old = {key: value for key, value in old.items() if key != "args"}
    other = {"type": "command", "command": "./mine.sh"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [other, old, other]}, {"hooks": [other]}]}}
    groups = inst.merge(settings, WANTED)["hooks"]["PreToolUse"]
    assert len(groups) == 2 and groups[1] == {"hooks": [other]}
    assert groups[0] == {"matcher": "Bash", "hooks": [other, {**WANTED["PreToolUse"][0], "statusMessage": "…"}, other]}


def test_entries_of_events_that_are_no_longer_used_go():
    settings = {"hooks": {"PreCompact": [{"hooks": [{"type": "command", "command": "python3 ctx_hooks.py cleanup"}]}]}}
    assert "PreCompact" not in inst.merge(settings, WANTED)["hooks"]


# -----------------------------------------------------------------------------
# Status line
# -----------------------------------------------------------------------------


def test_status_line_wraps_and_gives_back_the_exact_command():
    for command in [*TEXTS, *FOREIGN, "a -- b", "sh -c 'x'", "it's \"q\" $HOME `x` \\ \n end"]:
        settings = {"a": 1, "statusLine": {"type": "command", "command": command, "padding": 2}, "b": 2}
        once = inst.set_status(settings, "python3", inst.PROJECT_FOLDER)
        assert inst.is_our_status(once["statusLine"])
        assert once["statusLine"]["padding"] == 2
        assert inst.is_same(inst.set_status(once, "python3", inst.PROJECT_FOLDER), once)
        assert inst.is_same(inst.unset_status(once), settings)


def test_status_line_without_one_before_goes_without_a_trace():
    once = inst.set_status({"a": 1}, "python3", inst.PROJECT_FOLDER)
    assert inst.unset_status(once) == {"a": 1}


def test_a_foreign_status_line_is_left_alone():
    settings = {"statusLine": {"type": "command", "command": "python3 my_ctx_hooks.py statusline"}}
    assert inst.strip(settings) == settings


# -----------------------------------------------------------------------------
# Interpreter
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("code, output, problem", [
    (0, "3.8\n/usr/bin/python3\n", ""),
    (0, "3.12\r\nC:\\Python312\\python.exe\r\n", ""),
    (0, "3.7\n/usr/bin/python3\n", "is Python 3.7, 3.8 or newer is needed"),
    (0, "2.7\n/usr/bin/python\n", "is Python 2.7, 3.8 or newer is needed"),
    (None, "No such file or directory", "does not start (No such file or directory)"),
    (127, "pyenv: python3: command not found\n", "fails (exit 127: pyenv: python3: command not found)"),
    (9009, "", "is the Microsoft Store's placeholder, not Python"),
    (1, "Python was not found; run without arguments to install from the Microsoft Store, or disable …",
     "is the Microsoft Store's placeholder, not Python"),
    (0, "", "fails (exit 0)"),
    (0, "hello\n", "fails (exit 0: hello)"),
])
def test_what_an_interpreter_answers_is_judged(code, output, problem):
    assert inst.judge_probe(code, output).problem == problem


def test_shared_settings_name_python3_and_private_ones_the_real_path():
    assert inst.python_candidates("linux", True, "/opt/a b/python3") == ["python3"]
    assert inst.python_candidates("linux", False, "/opt/a b/python3") == ["'/opt/a b/python3'"]
    assert inst.python_candidates("linux", False, "") == ["python3"]
    assert inst.python_candidates("win32", True, "x") == ["python3", "py -3", "python"]


def test_the_first_interpreter_that_works_is_chosen():
    answers = {"python3": (9009, ""), "py -3": (0, "3.11\nC:/py.exe"), "python": (0, "3.12\nC:/p.exe")}
    python, probe = inst.choose_python(list(answers), lambda name: inst.judge_probe(*answers[name]))
    assert (python, probe.version) == ("py -3", "3.11")
    with pytest.raises(inst.Refused) as caught:
        inst.choose_python(["python3", "python"], lambda name: inst.judge_probe(9009, ""))
    assert caught.value.message.count("Store") == 2


def test_real_interpreters_are_probed():
    assert inst.run_probe(inst.quote_path(PYTHON), "/") == ("", "%d.%d" % sys.version_info[:2], PYTHON) or not POSIX
    assert "does not start" in inst.run_probe("/nowhere/python3", ".").problem
    assert "does not start" in inst.run_probe("'open", ".").problem


@pytest.mark.parametrize("path, head, shim", [
    ("/home/x/.pyenv/shims/python3", b"#!", True), ("/home/x/.local/share/mise/shims/python3", b"\x7fE", True),
    ("C:\\Users\\x\\.pyenv\\pyenv-win\\shims\\python.bat", b"@e", True), ("/usr/local/bin/python3", b"#!", True),
    ("/usr/bin/python3", b"\x7fE", False), ("/opt/shims", b"\x7fE", False),
])
def test_shims_are_recognised(path, head, shim):
    assert inst.is_shim(path, head) is shim


def test_homebrew_paths_survive_an_upgrade():
    assert inst.stable_path("/opt/homebrew/Cellar/python@3.12/3.12.1/bin/python3.12") \
        == "/opt/homebrew/opt/python@3.12/bin/python3.12"
    assert inst.stable_path("/usr/bin/python3.12") == "/usr/bin/python3.12"


# -----------------------------------------------------------------------------
# Whole runs
# -----------------------------------------------------------------------------

STAND_IN = '''"""Says what it was asked."""
import sys
VERSION = "0.1.0"
GITIGNORE_TEXT = ("# runtime\\n" "state/\\n")
def main():
    if "--" in sys.argv:
        import subprocess
        subprocess.run(sys.argv[sys.argv.index("--") + 1:])
    print("ran " + sys.argv[1])
'''


class Place:
    """A copy of the kit, a project, a home, and a PATH on which python3 is the interpreter under test."""

    def __init__(self, base):
        self.base = str(base)
        os.makedirs(self.base, exist_ok=True)
        self.source = os.path.join(self.base, "kit")
        self.project = os.path.join(self.base, "my 'ö\" project")
        self.home = os.path.join(self.base, "home")
        self.bin = os.path.join(self.base, "bin")
        for folder in (self.source, self.project, self.home, self.bin):
            os.mkdir(folder)
        os.symlink(PYTHON, os.path.join(self.bin, "python3"))
        for name in ("install.py", "hooks.json"):
            shutil.copy(os.path.join(REPO, name), self.source)
        self.set_kit(STAND_IN)
        self.env = {"PATH": os.pathsep.join([self.bin, "/usr/bin", "/bin"]), "HOME": self.home, "LC_ALL": "C"}

    def set_kit(self, text):
        with open(os.path.join(self.source, "ctx_hooks.py"), "w", encoding="utf-8") as file:
            file.write(text)

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

    def popen(self, *words, cwd=None):
        return subprocess.Popen([PYTHON, os.path.join(self.source, "install.py"), *words], cwd=cwd or self.project,
                                env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *words, cwd=None, code=0):
        """stdout and stderr of install.py's main(), as if started from this place; its exit code must be `code`."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        before = dict(os.environ), os.getcwd(), inst.__file__
        os.environ.clear()
        os.environ.update(self.env)
        os.chdir(cwd or self.project)
        inst.__file__ = os.path.join(self.source, "install.py")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                done = inst.main(list(words))
        except SystemExit as end:
            done = end.code or 0
        finally:
            os.environ.clear()
            os.environ.update(before[0])
            os.chdir(before[1])
            inst.__file__ = before[2]
        out, err = (stream.flush() or stream.buffer.getvalue().decode("utf-8") for stream in (out, err))
        assert done == code, out + err
        return out, err

    def process(self, *words):
        """The same as a process of its own."""
        process = self.popen(*words)
        out, err = (stream.decode("utf-8") for stream in process.communicate(timeout=60))
        assert process.returncode == 0, out + err
        return out, err

    def tree(self, root=None):
        """Everything below the project: path -> (mode, bytes or link target)."""
        found = {}
        root = root or self.project
        for folder, folders, files in os.walk(root):
            for name in folders + files:
                path = os.path.join(folder, name)
                info = os.lstat(path)
                data = os.readlink(path) if os.path.islink(path) else None
                if stat.S_ISREG(info.st_mode):
                    with open(path, "rb") as file:
                        data = file.read()
                found[os.path.relpath(path, root)] = (stat.S_IMODE(info.st_mode), data)
        return found

    def commands(self, name=".claude/settings.json"):
        settings = json.loads(self.read(name).decode("utf-8-sig"))
        return [hook["command"] for groups in settings["hooks"].values() for group in groups
                for hook in group["hooks"] if inst.mode_of(hook)]

    def shell(self, command, **env):
        return subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, cwd="/", timeout=60,
                              env={**self.env, "CLAUDE_PROJECT_DIR": self.project, **env})


@pytest.fixture
def place(tmp_path):
    if not POSIX:
        pytest.skip("needs a POSIX shell and symlinks")
    return Place(tmp_path)


SETTINGS = ".claude/settings.json"
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
}


@pytest.mark.parametrize("name", BEFORE)
def test_uninstall_leaves_the_tree_as_it_was(place, name):
    if BEFORE[name] is not None:
        place.write(SETTINGS, BEFORE[name], 0o640)
    before = place.tree()
    out, _ = place.run("--statusline")
    assert out.splitlines()[-1].startswith("next: ")
    for command in place.commands():
        assert re.fullmatch(rb"ran [a-z-]+\n", place.shell(command).stdout)
    place.run("--check")
    installed = place.tree()
    out, _ = place.run()
    assert place.tree() == installed and "unchanged .claude/settings.json" in out
    out, _ = place.run("--uninstall")
    assert place.tree() == before
    assert place.run("--uninstall")[0] == "nothing of ours in .claude\n"
    assert place.tree() == before


@pytest.mark.parametrize("data", [b'{"a": 1,}', b"[]", b'{"hooks": {"Stop": 5}}', b"\xff"])
@pytest.mark.parametrize("words", [[], ["--uninstall"], ["--check"], ["--dry-run"], ["--force"]])
def test_unusable_settings_stop_everything_before_the_first_write(place, data, words):
    place.write(SETTINGS, data)
    before = place.tree()
    out, err = place.run(*words, code=1)
    assert re.match(r"error: \.claude/settings\.json:1:\d+: .*\nhint: .*\n$", err) and not out
    assert place.tree() == before


def test_only_our_entries_go_when_the_settings_changed_in_between(place):
    place.write(SETTINGS, '{\n  "hooks": {\n    "Stop": []\n  }\n}\n')
    place.run()
    settings = json.loads(place.read(SETTINGS))
    settings["env"] = {"A": "b"}
    settings["hooks"]["Stop"].append({"hooks": [MINE]})
    place.write(SETTINGS, json.dumps(settings, indent=2))  # as the client writes it
    out, _ = place.run("--uninstall")
    expected = {"hooks": {"Stop": [{"hooks": [MINE]}]}, "env": {"A": "b"}}
    assert place.read(SETTINGS).decode() == json.dumps(expected, indent=2)
    assert out.count("kept .claude/settings.json.bak-") == 1 and "backed up" in out
    names = sorted(os.listdir(place.path(".claude")))
    assert names[0] == "settings.json" and [name[:18] for name in names[1:]] == ["settings.json.bak-"] * 2


def test_a_change_between_two_installs_is_not_undone(place):
    place.run()
    settings = {**json.loads(place.read(SETTINGS)), "env": {"A": "b"}}
    place.write(SETTINGS, json.dumps(settings, indent=2) + "\n")
    place.set_kit(STAND_IN + "# newer\n")
    place.run("--statusline")
    place.run("--uninstall")
    assert place.read(SETTINGS) == b'{\n  "env": {\n    "A": "b"\n  }\n}\n'


def test_backups_are_made_only_for_changes_and_three_are_kept(place):
    place.write(SETTINGS, b'{"a": 1}')
    theirs = place.write(".claude/settings.json.bak-20200101T000000Z", b"theirs")
    for number in range(5):
        place.write(SETTINGS, json.dumps({"a": number}))
        place.run()
        place.run()
    backups = [name for name in os.listdir(place.path(".claude")) if ".bak-" in name]
    contents = sorted(place.read(".claude/" + name) for name in backups)
    assert contents == [b"theirs", b'{"a": 2}', b'{"a": 3}', b'{"a": 4}']
    edited = next(name for name in backups if place.read(".claude/" + name) == b'{"a": 3}')
    place.write(".claude/" + edited, b"a person's notes")
    place.run("--uninstall")
    assert place.read(SETTINGS) == b'{"a": 4}'
    left = [name for name in os.listdir(place.path(".claude")) if ".bak-" in name]
    assert sorted(left) == sorted([os.path.basename(theirs), edited])


def test_modes_are_kept_and_secrets_stay_private(place):
    place.write(SETTINGS, b'{"env": {"TOKEN": "x"}}', 0o600)
    place.run()
    tree = place.tree()
    copies = [name for name, (_mode, data) in tree.items() if data and b"TOKEN" in data]
    assert len(copies) == 3
    assert {tree[name][0] for name in copies} == {0o600}


def test_symlinked_settings_are_followed(place):
    target = place.write("dotfiles/claude.json", b'{"a": 1}')
    os.mkdir(place.path(".claude"))
    os.symlink("../dotfiles/claude.json", place.path(SETTINGS))
    before = place.tree()
    place.run()
    assert os.path.islink(place.path(SETTINGS)) and b"ctx_hooks" in place.read("dotfiles/claude.json")
    assert os.listdir(os.path.dirname(target)) == ["claude.json"]
    place.run("--uninstall")
    assert place.tree() == before


def test_read_only_settings_are_refused(place):
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    place.write(SETTINGS, b"{}", 0o400)
    _, err = place.run(code=1)
    assert "is read-only" in err


def test_a_foreign_kit_is_refused_then_kept_by_force_and_restored(place):
    place.write(".claude/hooks/ctx_hooks.py", b"print('mine')\n", 0o755)
    before = place.tree()
    _, err = place.run(code=1)
    assert "--force" in err and place.tree() == before
    out, _ = place.run("--force")
    assert "kept .claude/hooks/ctx_hooks.py as ctx_hooks.py.kept-" in out
    assert place.read(".claude/hooks/ctx_hooks.py").decode() == STAND_IN
    out, _ = place.run("--uninstall")
    assert "restored .claude/hooks/ctx_hooks.py" in out
    assert place.tree() == before


def test_an_edited_kit_is_never_lost(place):
    place.write(".claude/hooks/ctx_hooks.py", b"first = 1\n")
    place.run("--force")
    place.write(".claude/hooks/ctx_hooks.py", STAND_IN + "second = 2\n")
    place.run(code=1)
    place.run("--force")
    place.write(".claude/hooks/ctx_hooks.py", STAND_IN + "third = 3\n")
    out, _ = place.run("--uninstall")
    assert "kept .claude/hooks/ctx_hooks.py (edited" in out
    hooks = place.path(".claude", "hooks")
    texts = "".join(sorted(place.read(".claude/hooks/" + name).decode() for name in os.listdir(hooks)))
    assert all(text in texts for text in ("first = 1", "second = 2", "third = 3"))


def test_an_untouched_older_release_is_upgraded(place):
    place.run()
    place.set_kit(STAND_IN.replace("0.1.0", "0.2.0"))
    assert "older release" in place.run("--check", code=1)[0]
    out, _ = place.run()
    assert "wrote .claude/hooks/ctx_hooks.py (0.2.0, was an older release)" in out
    assert b"0.2.0" in place.shell(f"'{PYTHON}' -I -S -c 'import sys; sys.path.append(sys.argv[1]); import ctx_hooks; "
                                   "print(ctx_hooks.VERSION)' \"$CLAUDE_PROJECT_DIR/.claude/hooks\"").stdout
    place.run("--uninstall")
    assert place.tree() == {}


def test_a_known_release_is_upgraded_in_a_clone_without_a_record(place, monkeypatch):
    place.run()
    shutil.rmtree(place.path(".claude", "hooks", ".ctx_hooks"))
    place.set_kit(STAND_IN.replace("0.1.0", "0.2.0"))
    assert "not an untouched release" in place.run(code=1)[1]
    monkeypatch.setitem(inst.RELEASES, inst.sha256(STAND_IN.encode()), "0.1.0")
    assert "(0.2.0, was 0.1.0)" in place.run()[0]


def test_a_clone_without_a_record_can_be_uninstalled(place):
    place.write(SETTINGS, '{\n  "model": "x"\n}\n')
    place.run()
    shutil.rmtree(place.path(".claude", "hooks", ".ctx_hooks"))
    place.run("--uninstall")
    assert place.read(SETTINGS) == b'{\n  "model": "x"\n}\n'
    assert not os.path.exists(place.path(".claude", "hooks", "ctx_hooks.py"))


def test_a_kit_that_does_not_load_is_not_registered(place):
    place.write(SETTINGS, b"{}")
    place.set_kit("raise RuntimeError('broken')\n")
    _, err = place.run(code=1)
    assert err.startswith("error: the kit does not load with python3: RuntimeError: broken\nhint: ")
    assert place.read(SETTINGS) == b"{}"
    place.run("--uninstall")
    assert set(place.tree()) == {".claude", SETTINGS}


@pytest.mark.parametrize("broken", [None, b"", b"syntax error", b"import sys\nsys.exit(2)\n", b"raise SystemExit(2)"])
def test_a_missing_or_broken_kit_denies_nothing(place, broken):
    place.run()
    os.unlink(place.path(".claude", "hooks", "ctx_hooks.py"))
    if broken is not None:
        place.write(".claude/hooks/ctx_hooks.py", broken)
    for command in place.commands():
        done = place.shell(command)
        assert (done.returncode, done.stdout) == (0, b"")


def test_a_missing_interpreter_denies_nothing(place):
    place.run()
    for command in place.commands():
        assert place.shell(command, PATH="/nowhere").returncode == 0


def test_nothing_in_the_hooks_folder_can_shadow_the_standard_library(place):
    place.run()
    for name in ("sys", "json", "os", "re", "subprocess"):
        place.write(f".claude/hooks/{name}.py", "raise SystemExit('shadowed')")
    assert {place.shell(command).returncode for command in place.commands()} == {0}
    assert all(place.shell(command).stdout.startswith(b"ran ") for command in place.commands())


def git(place, *words):
    if not shutil.which("git"):
        pytest.skip("needs git")
    env = {**place.env, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", "-c", "core.quotePath=false", *words], cwd=place.project, env=env, check=True,
                          stdout=subprocess.PIPE, timeout=60).stdout.decode()


def untracked(place):
    return [line[3:] for line in git(place, "status", "--porcelain", "-uall").splitlines()]


def test_git_sees_the_kit_and_the_settings_and_nothing_else(place):
    git(place, "init", "-q")
    place.run()
    place.shell(place.commands()[0])
    assert os.listdir(place.path(".claude", "hooks", "__pycache__"))
    assert untracked(place) == [".claude/hooks/.gitignore", ".claude/hooks/ctx_hooks.py", SETTINGS]


def test_git_sees_nothing_of_bytecode_in_a_teammates_clone(place, tmp_path):
    git(place, "init", "-q")
    place.run()
    git(place, "add", "-A")
    git(place, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")
    git(place, "clone", "-q", ".", str(tmp_path / "clone"))
    place.project = str(tmp_path / "clone")
    assert place.shell(place.commands()[0]).stdout == b"ran inject\n"
    assert os.listdir(place.path(".claude", "hooks", "__pycache__"))
    assert untracked(place) == []
    place.run()
    assert untracked(place) == []


def test_git_sees_no_bytecode_beside_a_users_own_gitignore(place):
    git(place, "init", "-q")
    place.write(".claude/hooks/.gitignore", "*.log\n")
    before = place.tree()
    place.run()
    assert untracked(place) == [".claude/hooks/.gitignore", ".claude/hooks/ctx_hooks.py", SETTINGS]
    place.run("--uninstall")
    assert {name: entry for name, entry in place.tree().items() if not name.startswith(".git")} \
        == {name: entry for name, entry in before.items() if not name.startswith(".git")}


def test_git_sees_only_the_settings_of_a_local_install(place):
    git(place, "init", "-q")
    place.run("--scope", "local")
    assert untracked(place) == [".claude/settings.local.json"]
    place.run()
    assert untracked(place) == [".claude/hooks/.gitignore", ".claude/hooks/ctx_hooks.py", SETTINGS,
                                ".claude/settings.local.json"]


def test_two_scopes_share_a_kit_until_the_last_one_goes(place):
    place.run()
    _, err = place.run("--scope", "local")
    assert "each would run twice" in err
    out, _ = place.run("--uninstall")
    assert "kept .claude/hooks/ctx_hooks.py (settings.local.json uses it)" in out
    assert "--uninstall --scope local" in out.splitlines()[-1]
    place.run("--check", "--scope", "local")
    place.run("--uninstall", "--scope", "local")
    assert place.tree() == {}


@pytest.mark.parametrize("variable", [None, "a \"b' ü/deep"])
def test_user_scope_registers_an_absolute_path_that_runs_anywhere(place, variable):
    config = os.path.join(place.home, variable or ".claude")
    if variable:
        place.env["CLAUDE_CONFIG_DIR"] = config
    place.run("--scope", "user")
    assert place.tree() == {}
    with open(os.path.join(config, "settings.json"), encoding="utf-8") as file:
        settings = json.load(file)
    for hook in inst.our_hooks(settings):
        assert "CLAUDE_PROJECT_DIR" not in hook["command"] and inst.quote_path(PYTHON) in hook["command"]
        assert place.shell(hook["command"], PATH="/nowhere").stdout.startswith(b"ran ")
    place.run("--scope", "user", "--check")
    place.run("--scope", "user", "--uninstall")
    assert place.tree(place.home) == {}


def test_the_project_is_the_nearest_folder_with_git_or_claude(place):
    os.makedirs(place.path("app", ".claude"))
    os.makedirs(place.path("app", "src", "deep"))
    place.run(cwd=place.path("app", "src", "deep"))
    assert os.path.exists(place.path("app", SETTINGS))
    os.mkdir(place.path("app", "src", ".git"))
    place.run(cwd=place.path("app", "src", "deep"))
    assert os.path.exists(place.path("app", "src", SETTINGS))
    place.run(place.path("app", "src", "deep"))
    assert os.path.exists(place.path("app", "src", "deep", SETTINGS))


def test_the_users_own_claude_folder_does_not_make_the_home_a_project(place):
    os.makedirs(os.path.join(place.home, ".claude"))
    folder = os.path.join(place.home, "src")
    os.mkdir(folder)
    place.run(cwd=folder)
    assert os.listdir(os.path.join(place.home, ".claude")) == []
    assert os.path.exists(os.path.join(folder, SETTINGS))
    _, err = place.run(place.home, code=1)
    assert "your own settings" in err and "--scope user" in err


def test_the_kits_own_folder_is_not_taken_for_a_project_unless_named(place):
    os.mkdir(os.path.join(place.source, ".git"))
    assert "kit's own folder" in place.run(cwd=place.source, code=1)[1]
    place.run(".", cwd=place.source)


def test_a_kit_beside_the_installer_is_not_deleted(place):
    hooks = place.path(".claude", "hooks")
    shutil.copytree(place.source, hooks)
    before = place.tree()
    place.source = hooks
    place.run()
    assert place.shell(place.commands()[0]).stdout == b"ran inject\n"
    assert "beside this install.py" in place.run("--uninstall")[0]
    assert place.tree() == before


@pytest.mark.parametrize("words", [["--dry-run"], ["--print"], ["--check"], ["--dry-run", "--uninstall"],
                                   ["--print", "--uninstall"], ["--version"], ["--help"]])
@pytest.mark.parametrize("installed", [False, True])
def test_looking_writes_nothing(place, words, installed):
    if installed:
        place.run("--quiet")
    before = place.tree()
    place.run(*words, code=0 if installed or words != ["--check"] else 1)
    assert place.tree() == before


@pytest.mark.parametrize("name", BEFORE)
def test_a_dry_run_is_a_patch_that_does_what_the_run_does(place, name):
    if not shutil.which("patch"):
        pytest.skip("needs patch")
    if BEFORE[name] is not None:
        place.write(SETTINGS, BEFORE[name])
    place.write("own.txt", b"")
    out, _ = place.run("--dry-run", "--init")
    copy = place.project + " copy"
    shutil.copytree(place.project, copy)
    subprocess.run(["patch", "--binary", "-s", "-p1"], input=out.encode(), cwd=copy, check=True, timeout=60)
    place.run("--init")

    def content(root):
        return {re.sub("bak-.*", "bak", path): data for path, (_mode, data) in place.tree(root).items()
                if data and not path.endswith((".pyc", "record.json"))}
    assert content(copy) == content(place.project)


def test_print_gives_the_merged_settings(place):
    place.write(SETTINGS, BOM + '{\n  "ü": 1\n}\n'.encode())
    out, _ = place.run("--print")
    assert json.loads(out)["ü"] == 1
    place.run("--quiet")
    assert place.read(SETTINGS).decode("utf-8-sig") == out
    assert place.run("--print", "--uninstall")[0] == '{\n  "ü": 1\n}\n'


def test_check_names_each_deviation(place):
    out, _ = place.run("--check", code=1)
    assert ".claude/hooks/ctx_hooks.py: missing, expected 0.1.0" in out
    assert sum("not registered" in line for line in out.splitlines()) == len(ENTRIES)
    place.run()
    settings = json.loads(place.read(SETTINGS))
    settings["hooks"]["Stop"][0]["hooks"][0]["command"] = "python3 .claude/hooks/ctx_hooks.py stop-enforce"
    del settings["hooks"]["SessionEnd"]
    settings["disableAllHooks"] = True
    place.write(SETTINGS, json.dumps(settings))
    place.write(".claude/hooks/ctx_hooks.py", STAND_IN + "#")
    out, _ = place.run("--check", "--statusline", code=1)
    assert out.splitlines() == [
        ".claude/hooks/ctx_hooks.py: edited, or another's file, expected 0.1.0",
        ".claude/settings.json: SessionEnd not registered",
        ".claude/settings.json: Stop registered differently, an older release or by hand",
        ".claude/settings.json: the status line is not the current one",
        ".claude/settings.json: disableAllHooks is on, so no hook runs",
    ]


def test_check_accepts_the_interpreter_that_is_registered_and_tries_it(place):
    os.symlink(PYTHON, os.path.join(place.bin, "another"))
    place.run("--python", os.path.join(place.bin, "another"))
    assert all(command.startswith(os.path.join(place.bin, "another") + " -I") for command in place.commands())
    place.run("--check")
    place.run()  # keeps it
    place.run("--check")
    os.unlink(os.path.join(place.bin, "another"))
    assert "another does not start" in place.run("--check", code=1)[0]
    place.run()
    assert all(command.startswith("python3 -I") for command in place.commands())


def fake_python(place, name, body):
    path = os.path.join(place.bin, name)
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\n" + body)
    os.chmod(path, 0o755)


def test_an_interpreter_that_is_too_old_or_missing_is_refused(place):
    fake_python(place, "python3", "echo 3.6; echo /usr/bin/python3\n")
    _, err = place.run(code=1)
    assert err.startswith("error: python3 is Python 3.6, 3.8 or newer is needed\nhint: ")
    _, err = place.run("--python", "no-such-python", code=1)
    assert "no-such-python does not start" in err
    assert place.tree() == {}


def test_a_shim_gets_a_hint(place):
    fake_python(place, "python3", f'exec {inst.quote_path(PYTHON)} "$@"\n')
    _, err = place.run()
    assert err.startswith("hint: python3 is a version manager's shim") and PYTHON in err


def test_status_line_runs_the_users_own_inside(place):
    command = "printf '%s|' \"it's\" \"$HOME\"; echo \"mine\""
    place.write(SETTINGS, json.dumps({"statusLine": {"type": "command", "command": command}}))
    place.run("--statusline")
    line = json.loads(place.read(SETTINGS))["statusLine"]["command"]
    assert place.shell(line).stdout.decode() == f"it's|{place.home}|mine\nran statusline\n"


def test_a_covered_status_line_is_mentioned(place):
    os.mkdir(os.path.join(place.home, ".claude"))
    with open(os.path.join(place.home, ".claude", "settings.json"), "w", encoding="utf-8") as file:
        json.dump({"statusLine": {"type": "command", "command": "x"}}, file)
    assert "your own status line in ~/.claude/settings.json is covered" in place.run("--statusline")[1]


def test_init_creates_what_is_missing_and_overwrites_nothing(place):
    out, _ = place.run()
    assert "--init" in out.splitlines()[-1]
    place.write(".context/TASKS.md", "mine\n")
    place.run("--init")
    names = sorted(os.listdir(place.path(".context")))
    assert names == sorted([".gitignore", *inst.CONTEXT_FILES])
    assert place.read(".context/TASKS.md") == b"mine\n"
    assert place.read(".context/.gitignore") == b"# runtime\nstate/\n"
    before = place.tree()
    out, _ = place.run("--init")
    assert place.tree() == before
    assert "kept .context/ (it is yours)" in place.run("--uninstall")[0]
    assert {name.split(os.sep)[0] for name in place.tree()} == {".context"}


@pytest.mark.parametrize("line, folder", [("context_dir: docs/ctx # ours", "docs/ctx"), ("context_dir: 'a b'", "a b"),
                                          ("context_dir: ../out", ".context"), ("context_dir:", ".context")])
def test_init_respects_the_configured_folder_inside_the_project(place, line, folder):
    place.write(".contextrc", "gate:\n  context_dir: no\n" + line + "\n")
    place.run("--init")
    assert os.path.exists(place.path(folder, "TASKS.md"))


def test_context_files_are_short_and_each_has_a_heading():
    for text in inst.CONTEXT_FILES.values():
        assert text.startswith("# ") and text.endswith("\n") and len(text.splitlines()) <= 20


def planned(place, *words):
    """The steps of a run from this place, and the job they belong to."""
    options = inst.parse_arguments([place.project, *words])
    source = inst.Source(STAND_IN.encode(), "0.1.0", ENTRIES, "")
    layout = inst.plan_layout(place.project, options.scope, os.path.join(place.home, ".claude"))
    job, _ = inst.make_job(options, layout, source)
    return (inst.plan_uninstall(job) if options.uninstall else inst.plan_install(job)), job


@pytest.mark.parametrize("kit", [None, b"mine = 1\n"])
def test_an_install_cut_short_anywhere_can_be_finished_or_undone(tmp_path, kit):
    count = 1
    for finish in (False, True):
        cut = 0
        while cut < count:
            place = Place(str(tmp_path / f"{finish}-{cut}"))
            place.write(SETTINGS, b'{"a": 1}')
            if kit:
                place.write(".claude/hooks/ctx_hooks.py", kit)
            before = place.tree()
            steps, job = planned(place, "--force", "--statusline")
            for step in steps[:cut]:
                inst.apply_step(step, job)
            if finish:
                place.run("--force", "--statusline")
                place.run("--check", "--statusline")
            place.run("--uninstall")
            assert place.tree() == before, steps[:cut]
            count, cut = len(steps) + 1, cut + 1
    assert count > 6


def test_an_uninstall_cut_short_anywhere_can_be_finished(tmp_path):
    cut, count = 0, 1
    while cut < count:
        place = Place(str(tmp_path / str(cut)))
        place.write(SETTINGS, b'{"a": 1}')
        place.write(".claude/hooks/ctx_hooks.py", b"mine = 1\n")
        before = place.tree()
        place.run("--force")
        steps, job = planned(place, "--uninstall")
        for step in steps[:cut]:
            inst.apply_step(step, job)
        place.run("--uninstall")
        assert place.tree() == before, steps[:cut]
        count, cut = len(steps) + 1, cut + 1


def test_an_upgrade_cut_short_before_the_kit_is_no_foreign_kit(place):
    place.run()
    record = json.loads(place.read(".claude/hooks/.ctx_hooks/record.json"))
    place.set_kit(STAND_IN + "# newer\n")
    newer = inst.sha256((STAND_IN + "# newer\n").encode())
    place.write(".claude/hooks/.ctx_hooks/record.json", json.dumps({**record, "older": record["kit"], "kit": newer}))
    place.run()
    assert place.read(".claude/hooks/ctx_hooks.py").endswith(b"# newer\n")


def test_installers_at_the_same_time_do_not_disturb_each_other(place):
    place.write(SETTINGS, b'{"a": 1}')
    before = place.tree()
    words = [[], ["--statusline"], [], ["--uninstall"], ["--init"], ["--uninstall"], []]
    processes = [place.popen(*more) for more in words]
    results = [(process.communicate(timeout=60), process.returncode) for process in processes]
    assert [code for _output, code in results] == [0] * len(words), results
    place.run()
    place.run("--check")
    shutil.rmtree(place.path(".context"))
    place.run("--uninstall")
    assert place.tree() == before


def test_the_marker_lock_is_exclusive_and_not_eternal(tmp_path):
    marker = str(tmp_path / "lock")
    assert inst._lock_marker(marker)
    assert not inst._lock_marker(marker)
    old = os.stat(marker).st_mtime - 2 * inst.LOCK_STALE_S
    os.utime(marker, (old, old))
    assert not inst._lock_marker(marker)  # this one clears it away
    assert inst._lock_marker(marker)


def test_settings_that_change_in_between_are_not_overwritten(tmp_path):
    path = tmp_path / "settings.json"
    path.write_bytes(b"new")
    layout = inst.Layout(str(tmp_path), "project", str(tmp_path), str(path), "x")
    job = inst.Job(layout, None, inst.NO_RECORD, "", False, False, False, "")
    for step in (inst.Step("write", str(path), data=b"ours", old=b"old"), inst.Step("remove", str(path), old=b"old"),
                 inst.Step("write", str(path), data=b"ours")):
        with pytest.raises(inst.Refused, match="changed in this very moment"):
            inst.apply_step(step, job)
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["settings.json"]


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b'{"settings": []}', b'{"aside": "x"}',
                                  b'{"kit": 5, "folders": [5, "..", "../../x", "/etc"], "aside": ["../x"]}',
                                  b'{"settings": {"../x": {}, "settings.json": {"original": 5, "backups": {}}}}',
                                  b'{"settings": {"settings.json": {"original": "{}", "backups": {"../x": 1}}}}'])
def test_a_damaged_or_hostile_record_is_harmless(place, data):
    place.run()
    precious = place.write(".claude/precious", b"x")
    place.write(".claude/hooks/.ctx_hooks/record.json", data)
    place.run("--check")
    place.run("--uninstall")
    assert os.path.exists(precious) and not inst.has_ours(json.loads(place.read(SETTINGS)))


def test_a_record_cannot_smuggle_other_settings_in(place):
    place.write(SETTINGS, b'{"a": 1}')
    place.run()
    record = json.loads(place.read(".claude/hooks/.ctx_hooks/record.json"))
    evil = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "evil"}]}]}}
    record["settings"]["settings.json"]["original"] = json.dumps(evil)
    place.write(".claude/hooks/.ctx_hooks/record.json", json.dumps(record))
    place.run("--uninstall")
    assert place.read(SETTINGS) == b'{"a": 1}'


def test_records_survive_their_own_format():
    kept = inst.Kept("\ufeff{}\r\nü", "abc", [("settings.json.bak-20260101T000000Z-2", "d")])
    aside = ["ctx_hooks.py.kept-20260101T000000Z"]
    record = inst.Record("k", "o", aside, [".", "../..", "hooks"], {"settings.local.json": kept})
    assert inst.parse_record(inst.format_record(record)) == record


def test_usage_errors_exit_2_and_failures_exit_1(place):
    place.run("--scope", "galaxy", code=2)
    place.run("--check", "--print", code=2)
    place.run("--check", "--uninstall", code=2)
    assert place.run("nowhere", code=1)[1] == "error: nowhere is not a folder\nhint: name the project's folder\n"
    os.unlink(os.path.join(place.source, "hooks.json"))
    assert place.run(code=1)[1].startswith("error: hooks.json is missing beside install.py\nhint: ")


def test_an_unwritable_place_is_one_sentence(place):
    place.write(".claude", b"a file where a folder should be")
    _, err = place.run(code=1)
    assert re.fullmatch(r"error: .*\.claude.*: .*\n", err)


def test_a_process_of_its_own_does_the_same(place):
    place.write(SETTINGS, BEFORE["tabs, CRLF, BOM, no final newline"])
    before = place.tree()
    assert place.process("--dry-run")[0].count("dry run: ") == 4
    place.process("--init", "--statusline")
    assert "ok: ctx_hooks 0.1.0" in place.process("--check")[0]
    shutil.rmtree(place.path(".context"))
    assert place.process("--uninstall", "--quiet") == ("", "")
    assert place.tree() == before


def test_version_names_the_checksum(place):
    assert place.run("--version")[0] == f"ctx_hooks 0.1.0\nsha256 {inst.sha256(STAND_IN.encode())}\n"


# -----------------------------------------------------------------------------
# The file itself
# -----------------------------------------------------------------------------


def test_installer_parses_on_python_3_6():
    ast.parse(repo_file("install.py"), feature_version=(3, 6))
    old = shutil.which("python3.6") or shutil.which("python3.7")
    if old:
        done = subprocess.run([old, os.path.join(REPO, "install.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if b"pyenv" not in done.stderr:  # a shim without a version behind it
            assert done.returncode == 1 and b"needs Python 3.8" in done.stderr


def test_installer_imports_only_the_standard_library():
    names = set(re.findall(r"^\s*(?:import|from) (\w+)", repo_file("install.py"), re.MULTILINE))
    assert names - {"ctx_hooks"} <= {"sys", "argparse", "ast", "contextlib", "difflib", "hashlib", "json", "os", "re",
                                     "shlex", "shutil", "stat", "subprocess", "tempfile", "time", "typing", "fcntl",
                                     "collections"}


def test_contents_list_names_the_sections():
    text = repo_file("install.py")
    contents = re.search(r"Contents, bottom-up: (.*?)\.\n", text, re.DOTALL).group(1)
    banners = re.findall(r"^# ={77}\n# (.*)\n# ={77}$", text, re.MULTILINE)
    assert [part.lower() for part in re.split(r";\s+", contents.replace("\n", " "))] == [b.lower() for b in banners]


def test_hooks_json_maps_the_events_to_their_modes():
    modes = {event: [inst.mode_of(hook) for hook in hooks] for event, hooks in ENTRIES.items()}
    assert modes == {"SessionStart": ["inject"], "UserPromptSubmit": ["inject"], "PreToolUse": ["gate"],
                     "PostToolUse": ["monitor"], "PostToolUseFailure": ["monitor"], "Stop": ["stop-enforce"],
                     "SessionEnd": ["cleanup"]}
    assert all(0 < hook["timeout"] <= 10 for hooks in ENTRIES.values() for hook in hooks)
    inst.parse_settings(repo_file("hooks.json").encode())


def test_plugin_manifest_points_at_hooks_json_and_has_the_kits_version():
    manifest = json.loads(repo_file(".claude-plugin/plugin.json"))
    assert manifest["hooks"] == "./hooks.json"
    if os.path.exists(os.path.join(REPO, "ctx_hooks.py")):
        assert f'VERSION = "{manifest["version"]}"' in repo_file("ctx_hooks.py")


def test_constants_are_read_without_running_the_kit():
    program = 'A = "x"\nB = ("y"\n  "z")\nC = 5\nD = f()\nraise SystemExit\n'
    assert inst._string_constants(program) == {"A": "x", "B": "yz"}
