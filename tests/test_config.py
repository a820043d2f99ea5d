"""Config: the YAML subset. The cases are files: data/config/valid/*.yaml with what they hold, invalid/*.yaml with
the exact messages."""
from __future__ import annotations

import json
import os
import random

import pytest

import helper

DATA = os.path.join(helper.TESTS, "data", "config")


def cases(kind: str) -> list:
    return sorted(name[:-5] for name in os.listdir(os.path.join(DATA, kind)) if name.endswith(".yaml"))


def read(kind: str, name: str) -> str:
    with open(os.path.join(DATA, kind, name), "rb") as source:
        return source.read().decode("utf-8", "replace")


@pytest.mark.parametrize("name", cases("valid"))
def test_valid_file_holds_what_it_should(kit, name):
    pairs, problems = kit.parse_yaml(read("valid", name + ".yaml"))
    assert ["line %d, column %d: %s" % problem for problem in problems] == []
    found, wanted = {key: value for key, value, _, _ in pairs}, json.loads(read("valid", name + ".json"))
    assert found == wanted
    assert {key: type(value) for key, value in found.items()} == {key: type(value) for key, value in wanted.items()}


@pytest.mark.parametrize("name", cases("invalid"))
def test_invalid_file_is_reported_with_line_and_column(kit, name):
    problems = kit.parse_config(read("invalid", name + ".yaml"))[1]
    if name != "beyond-the-subset":
        assert ["line %d, column %d: %s" % problem for problem in problems] == read("invalid", name + ".txt").split("\n")[:-1]
    else:  # its keys are unknown as well; the values are what it is about
        assert ["line %d, column %d: %s" % problem for problem in kit.parse_yaml(read("invalid", name + ".yaml"))[1]] == \
            read("invalid", name + ".txt").split("\n")[:-1]


def test_a_bad_line_costs_that_line_only(kit):
    values, problems = kit.parse_config('gate:\n  mode: "open\n  files: [A.md]\nnonsense\nhandoff:\n  threshold: 70\n')
    assert values == {"gate.files": ["A.md"], "handoff.threshold": 70}
    assert len(problems) == 2


def test_an_ill_typed_value_leaves_the_default(kit, project):
    project.write(".contextrc", "handoff:\n  threshold: high\ngate:\n  mode: content\n")
    ctx = kit.find_project(project.root, "", {}, 0.0)
    assert (ctx.get("handoff.threshold"), ctx.get("gate.mode")) == ("auto", "content")
    assert ctx.problems == [(2, 3, "`handoff.threshold` wants `auto` or a number from 1 to 100")]


@pytest.mark.parametrize("text", ["startup.files: [../x.md]", "gate.files: [/etc/passwd]", "gate.files: [~/x]", "handoff.file: /h.md"])
def test_only_the_users_own_file_may_let_paths_leave_the_project(kit, text):
    """A repository that sets allow_outside for itself could send any file to the model."""
    for outside in ("", "allow_outside: true\n", "allow_outside: yes\n"):
        values, problems = kit.parse_config(outside + text)
        assert values == {} and len(problems) == 1 + bool(outside)
    assert kit.parse_config(text, is_user=True)[0] == {}
    assert kit.parse_config(text + "\nallow_outside: no\n", is_user=True)[0] == {"allow_outside": False}
    assert len(kit.parse_config("allow_outside: true\n" + text, is_user=True)[0]) == 2


@pytest.mark.parametrize("name, inside", [
    ("TASKS.md", True), ("../README.md", True), ("../docs/a b.md", True), ("sub/../TASKS.md", True), ("..", True),
    ("../../README.md", False), ("/README.md", False), ("~/README.md", False), ("../../.context/TASKS.md", False)])
@pytest.mark.parametrize("folder", ["", "context_dir: docs\n"])
def test_files_of_the_gate_are_seen_from_the_context_folder_and_lie_anywhere_in_the_project(kit, name, inside, folder):
    values, problems = kit.parse_config(folder + "gate:\n  files: [%s]\n" % name)
    assert ("gate.files" in values) is inside and bool(problems) is not inside


def test_a_deeper_context_folder_lets_names_go_further_up(kit):
    text = "gate.files: [../../README.md]\n"
    assert "gate.files" in kit.parse_config(text + "context_dir: docs/context\n")[0]
    assert "gate.files" not in kit.parse_config(text)[0]


def test_lists_are_deduplicated_and_bounded_numbers_keep_their_places(kit):
    many = "gate.files:\n" + "".join("  - f%d.md\n" % (number // 2) for number in range(8000))
    files = kit.parse_config(many)[0]["gate.files"]
    assert files == ["f%d.md" % number for number in range(kit.LIST_LIMIT // 2)]
    assert kit.parse_config("startup.retry_backoffs_s: [1, 1, 5]")[0] == {"startup.retry_backoffs_s": [1, 1, 5]}


def test_8000_mistyped_settings_are_read_in_bounds(kit):
    values, problems = kit.parse_config("".join("gate.mod%d: off\n" % number for number in range(8000)) + "gate.mode: off\n")
    assert values == {"gate.mode": "off"} and len(problems) == kit.LIST_LIMIT
    assert problems[0] == (1, 1, "unknown setting `gate.mod0`")


def test_tables_take_any_entry_below_them(kit):
    text = "auto:\n  about:\n    plan: write it down\n    x-y: 5\n  done_when:\n    build: \"make test # all\"\n"
    assert kit.parse_config(text) == ({"auto.about": {"plan": "write it down", "x-y": "5"},
                                       "auto.done_when": {"build": "make test # all"}}, [])


@pytest.mark.parametrize("word, value", [("on", True), ("Yes", True), ("TRUE", True), ("off", False), ("no", False)])
def test_switches_take_the_words_people_write(kit, word, value):
    assert kit.parse_config("handoff.enabled: %s" % word)[0] == {"handoff.enabled": value}


def test_every_setting_can_be_written_as_its_default(kit):
    for key, default, kind, about in kit.SETTINGS:
        assert about
        if kind != "table":
            values, problems = kit.parse_config("%s: %s\n" % (key, json.dumps(default, ensure_ascii=False)), is_user=True)
            assert (values, problems) == ({key: default}, []), key


def test_reading_settings_never_raises(kit, rounds):
    rng = random.Random(51)
    pieces = ["gate", ":", " ", "  ", "\n", "\r\n", "- ", "[", "]", ",", "'", '"', "\\", "#", "\t", "a", "1", "true", "{",
              "mode", "files", "---", "\ufeff", "\0", "é", "\ud800", "~", "null", "..", "/"]
    for _ in range(rounds(3000)):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(40)))
        values, problems = kit.parse_config(text)
        lines = text.count("\n") + 1
        assert set(values) <= set(kit.DEFAULTS)
        assert all(1 <= line <= lines and column >= 1 and what for line, column, what in problems), text


def test_quoted_text_comes_back_as_it_was(kit, rounds):
    rng = random.Random(52)
    for _ in range(rounds(2000)):
        text = "".join(rng.choice("ab '\"\\#:,[]-{é→") for _ in range(rng.randrange(10)))
        single = "'" + text.replace("'", "''") + "'"
        double = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for quoted in (single, double):
            source = "k: %s # c\nl: [%s, x, %s] # c\nm:\n  - %s # c\n" % ((quoted,) * 4)
            pairs, problems = kit.parse_yaml(source)
            assert not problems, source
            assert [value for _, value, _, _ in pairs] == [text, [text, "x", text], [text]]


def test_a_settings_file_of_any_size_is_read_in_bounds(kit, project):
    project.write(".contextrc", "gate:\n  mode: off\n" + "# filler\n" * 100_000)
    assert kit.find_project(project.root, "", {}, 0.0).get("gate.mode") == "off"
    for text in ("a:\n" + "".join(" " * n + "k:\n" for n in range(1, 340)), "- " * 30_000, "'" * 60_000, "[" * 60_000, "x: " + '"\\' * 30_000):
        assert kit.parse_config(text)[0] == {}


@pytest.mark.parametrize("name, good", [(".claude/ll-continue-prompt.md", True), (".claude/x.md", False), (".git/x", False),
                                        ("notes/next.md", True), (".Claude/x.md", False)])
def test_a_handoff_that_could_never_be_delivered_is_refused(kit, name, good):
    values, problems = kit.parse_config("handoff:\n  file: %s\n" % name)
    assert ("handoff.file" in values) == good and bool(problems) != good
    others = {"startup.files": [name, "a.md"]}  # here it costs itself alone, when it is read
    assert kit.parse_config("startup.files: [%s, a.md]\n" % name) == (others, [])


def test_a_folder_that_is_refused_does_not_say_what_lies_outside(kit):
    text = 'context_dir: a\ncontext_dir: "a/b/c/d\\tx"\ngate:\n  files: ["../../../../x.md"]\n'
    values, problems = kit.parse_config(text)
    assert "gate.files" not in values and any("outside the project" in said for _, _, said in problems)


def test_also_where_paths_may_lead_outside_a_handoff_lies_where_it_can_be_delivered_from(kit):
    assert kit.parse_config("allow_outside: true\nhandoff.file: .git/x\n", is_user=True)[0] == {"allow_outside": True}


@pytest.mark.parametrize("setting", ["context_dir: ../r", "startup.files: [../r/x.md]", "handoff.file: ../r/x.md", "gate.files: [../../r/x.md]"])
def test_a_path_that_leads_out_does_not_come_in_again_by_a_guessed_name(kit, setting):
    values, problems = kit.parse_config(setting + "\n")
    assert not values and "outside the project" in problems[0][2]


def test_a_line_beyond_all_bounds_is_not_taken_apart(kit):
    values, problems = kit.parse_config("gate.files: [%s]\ngate.mode: off\n" % ("a, " * 20_000))
    assert values == {"gate.mode": "off"} and problems == [(1, 1, "line is too long")]


@pytest.mark.parametrize("text", ["true", "False", "1.10", "007", "-5", "off", "1e5"])
def test_a_text_stays_as_it_is_spelled_whatever_else_it_could_mean(kit, text):
    """`done_when: {qa: true}` is the command `true`, not `True`; a file 1.10 is not the file 1.1."""
    values = kit.parse_config("auto.done_when.qa: %s\ngate.files: [%s]\nauto.phases:\n  - %s\n" % (text, text, text))[0]
    assert values == {"auto.done_when": {"qa": text}, "gate.files": [text], "auto.phases": [text]}
