"""Json: the C scanner and encoder without the json package, the fallback, and records by their schema."""
from __future__ import annotations

import json
import random
import subprocess

import pytest

import helper

DEEP = 100_000


def random_value(rng, depth=0):
    """Any JSON value, with the strings that break naive code."""
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind < 3:
        return rng.choice([None, True, False, 0, -1, 2**53, 10**30, 0.1, -1.5e-7, 1e300])
    if kind < 6:
        letters = ["a", '"', "\\", "\n", "\0", "\x1f", "é", "→", "\U0001f600", "\ud800", "\u2028", "/", "{"]
        return "".join(rng.choice(letters) for _ in range(rng.randrange(8)))
    if kind < 7:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {str(random_value(rng, 9)): random_value(rng, depth + 1) for _ in range(rng.randrange(5))}


def parsed(kit, text):
    """A value of any kind, through the one reader of objects; None for what is no JSON."""
    found = kit.find_object('{"value": %s}' % text)
    return found and found["value"]


def test_what_was_written_reads_back_and_is_what_json_writes(kit, rounds):
    rng = random.Random(21)
    for _ in range(rounds(1500)):
        value = random_value(rng)
        text = kit.format_json(value)
        assert text.isascii() and "\n" not in text
        assert parsed(kit, text) == value == json.loads(text)
        assert text == json.dumps(value)


def test_broken_json_is_no_object_and_raises_nothing(kit, rounds):
    rng = random.Random(22)
    for _ in range(rounds(1500)):
        text = list(kit.format_json(random_value(rng)) or "0")
        for _ in range(rng.randrange(1, 4)):
            text[rng.randrange(len(text))] = rng.choice(['"', "\\", "{", "}", "[", "]", ",", ":", "e", "-", "u", "\0", ""])
        parsed(kit, "".join(text))


@pytest.mark.parametrize("text", ["", " ", "\ufeff", "{", "[1,", '{"a"', '{"a":}', "nul", "'a'", "<x>", '"\\ud8', "-",
                                  "[" * DEEP, '{"a":' * DEEP, "[" * DEEP + "]" * DEEP, b"\xff\xfe{", b""])
def test_what_is_no_json_is_no_object(kit, text):
    assert kit.find_object(text) is None


def test_byte_order_marks_blanks_and_a_tail_are_passed_over(kit):
    assert kit.find_object(b'\xef\xbb\xbf \r\n\t{"a": 1} trailing') == {"a": 1}


def test_bytes_that_are_not_utf8_become_replacement_characters(kit):
    assert kit.find_object(b'{"a": "\xff\xfe"}') == {"a": "\ufffd\ufffd"}


def test_raw_control_characters_and_lone_surrogates_survive(kit):
    assert parsed(kit, '"a\nb\\ud83d\0"') == "a\nb\ud83d\0"


def test_numbers_that_json_does_not_have_become_null(kit):
    assert parsed(kit, '[NaN, Infinity, -Infinity, 1e999, -1e999, 1e5]') == [None] * 5 + [1e5]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", object(), {(1, 2): 3}])
def test_what_json_cannot_hold_is_refused(kit, value):
    with pytest.raises((TypeError, ValueError)):
        kit.format_json({"a": value})


def test_nesting_that_was_parsed_never_breaks_the_encoder_in_an_unexpected_way(kit):
    for depth in [*range(900, 1001), 5000]:
        value = kit.find_object('{"a":' * depth + "1" + "}" * depth)
        try:
            kit.format_json(value)
        except ValueError:
            pass


# What a run with nothing but the kit sees; `json` is not imported there, which is when the scanner of 3.10 and 3.11
# raises SystemError for malformed input.
PROBE = """
import sys
sys.path.append(%r)
%s
import ctx_hooks as kit
out = [kit.find_object('{"a": [1, "\\\\u00e9\\n", NaN, 1e999]} x'), kit.format_json({"k": ["\\u00e9\\ud800", None, 1.5]})]
for text in ("", "{", '{"a"', '{"a":1,}', "[1", '"\\\\ud8', "[" * 100000, "nul", '{"a" 1}'):
    out.append(kit.find_object(text) or "refused")
for value in (float("inf"), {1}):
    try:
        kit.format_json(value)
    except (TypeError, ValueError):
        out.append("refused")
print(out)
"""


def probe(before: str = "") -> str:
    done = subprocess.run([helper.PYTHON, "-I", "-S", "-B", "-X", "utf8", "-c", PROBE % (helper.REPO, before)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=30)
    return done.stdout.decode().replace("\r\n", "\n")


EXPECTED = repr([{"a": [1, "é\n", None, None]}, r'{"k": ["\u00e9\ud800", null, 1.5]}'] + ["refused"] * 11) + "\n"


def test_malformed_input_is_a_value_error_while_json_is_not_imported():
    assert probe().encode("ascii", "backslashreplace").decode() == EXPECTED.encode("ascii", "backslashreplace").decode()


@pytest.mark.parametrize("missing", ["sys.modules['_json'] = None", "import _json; del _json.make_scanner, _json.make_encoder"])
def test_without_the_c_module_the_json_package_does_the_same(missing):
    assert probe(missing) == EXPECTED


# --- records


SCHEMA = (
    ("name", "none", str), ("at", 0.0, "time"), ("count", 7, "count"), ("flag", True, bool), ("names", [], "texts"),
    ("rows", [], list), ("table", {}, dict), ("inner", None, (("text", "t", str), ("n", 1, "count"))),
    ("each", {}, [(("text", "t", str), ("at", 0.0, "time"))]),
)
DEFAULTS = {"name": "none", "at": 0.0, "count": 7, "flag": True, "names": [], "rows": [], "table": {}, "inner": None,
            "each": {}}


@pytest.mark.parametrize("data", [{}, None, [], "x", 5, dict.fromkeys(DEFAULTS, object)])
def test_a_record_has_every_key_of_its_schema(kit, data):
    assert vars(kit.load_record(data, SCHEMA)) == DEFAULTS


WRONG = {  # per kind, what counts as missing
    "name": [None, 1, True, [], {}], "at": [None, 5, "yesterday", [], True], "count": [None, "5", -1, True, [], 1e15, 1e308],
    "flag": [None, 0, 1, "true", []], "names": [None, "abc", {}, 5], "rows": [None, {}, "abc"], "table": [None, [], "x"],
    "inner": [None, [], 5, "x"], "each": [None, [], 5, "x"],
}


@pytest.mark.parametrize("key", sorted(WRONG))
def test_a_wrong_type_counts_as_missing(kit, key):
    for value in WRONG[key]:
        assert vars(kit.load_record({key: value}, SCHEMA)) == DEFAULTS, value


def test_of_lists_and_tables_the_entries_of_the_right_kind_stay(kit):
    found = kit.load_record({"names": ["a", 1, None, "b"], "count": 3.9, "each": {"a": {"text": "x"}, "b": 5, "c": {}}}, SCHEMA)
    assert (found.names, found.count) == (["a", "b"], 3)
    assert {name: row.text for name, row in found.each.items()} == {"a": "x", "c": "t"}


def test_two_records_share_no_list_or_table(kit):
    first, second = kit.load_record({}, SCHEMA), kit.load_record({}, SCHEMA)
    first.names.append("x"), first.table.update(x=1), first.rows.append(1), first.each.update(x=1)
    assert vars(second) == DEFAULTS


def test_what_another_version_put_there_stays(kit):
    data = {"name": "n", "other": {"deep": [1]}, "": 1, "__class__": 2, "__dict__": 3, "self": 4}
    dumped = kit.dump_record(kit.load_record(data, SCHEMA), SCHEMA)
    assert {key: dumped[key] for key in data} == data


def test_a_record_reads_back_as_it_was_written(kit, rounds):
    rng = random.Random(23)
    for _ in range(rounds(300)):
        data = {key: rng.choice([random_value(rng), "2026-02-03T10:45:00.250Z", {"text": "x", "at": "2026-02-03T10:45Z"},
                                 {"a": {"text": "x", "at": None}}]) for key in rng.sample(sorted(DEFAULTS), 5)}
        once = kit.dump_record(kit.load_record(data, SCHEMA), SCHEMA)
        again = kit.dump_record(kit.load_record(json.loads(kit.format_json(once)), SCHEMA), SCHEMA)
        assert again == once


def test_times_are_iso_on_disk_to_the_millisecond_and_none_is_null(kit):
    record = kit.load_record({"at": "2026-02-03T12:45:00.2504+02:00", "inner": {}}, SCHEMA)
    assert record.at == pytest.approx(1770115500.2504)
    dumped = kit.dump_record(record, SCHEMA)
    assert dumped["at"] == "2026-02-03T10:45:00.250Z" and dumped["inner"] == {"text": "t", "n": 1}
    assert kit.dump_record(kit.load_record({}, SCHEMA), SCHEMA)["at"] is None


@pytest.mark.parametrize("table", ["SESSION", "MONITOR"])
def test_every_default_of_a_schema_is_of_its_own_kind(kit, table):
    schema = getattr(kit, table)
    record = kit.load_record({}, schema)
    for key, default, _ in schema:
        assert getattr(record, key) == default, key
    assert kit.load_record(kit.dump_record(record, schema), schema) == record


@pytest.mark.parametrize("value, count", [(5, 5), (1.5, 1), (0, 0), (-1, 0), (True, 0), ("5", 0), (None, 0), ([], 0),
                                          (1e15, 0), (float("inf"), 0), (float("nan"), 0)])
def test_only_json_numbers_of_sane_size_are_counts(kit, value, count):
    assert kit.count_of(value) == count


def test_values_of_another_type_are_empty(kit):
    assert [kit.text_of(5), kit.dict_of([1]), kit.list_of({1: 2}), kit.text_of("a")] == ["", {}, [], "a"]
    assert [kit.parse_object(text) for text in (b"[1]", b"", b"{", b'{"a": 1}')] == [{}, {}, {}, {"a": 1}]
