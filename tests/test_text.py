"""Text: budgets and cleaning of what reaches the agent."""
from __future__ import annotations

import random

import pytest


@pytest.mark.parametrize("text, count", [("", 0), ("abc", 3), ("é→", 2), ("\U0001f600", 2), ("⚠️", 2), ("\ud800", 1)])
def test_length_is_counted_in_utf16_units(kit, text, count):
    assert kit.units(text) == count


@pytest.mark.parametrize("limit", [-100, -1, 0, 1, 5, 11, 12, 100])
def test_a_cut_text_fits_and_is_a_beginning(kit, limit):
    for text in ("hello world, this is long", "\U0001f600" * 20, "a" * 50, "line\n" * 20, ""):
        cut = kit.cut_text(text, limit)
        assert text.startswith(cut)
        assert kit.units(cut) <= max(limit, 0)


def test_a_text_that_fits_is_not_touched(kit):
    assert kit.cut_text("a b c ", 6) == "a b c "


def test_a_cut_prefers_the_end_of_a_word(kit):
    assert kit.cut_text("one two three four", 15) == "one two three"


def test_control_characters_and_invisible_text_are_dropped(kit):
    hidden = "".join(chr(c) for c in [0, 7, 8, 27, 127, 0x85, 0x9B, 0x61C, 0xFEFF, 0x200B, 0x200E, 0x202E, 0x2066, 0xE0041])
    assert kit.clean_text("a" + hidden + "b\tc\nd") == "ab\tc\nd"
    assert kit.clean_text("\x1b[31mred\x1b[0m\r\nnext\rtext") == "[31mred[0m\nnexttext"


def test_ordinary_text_in_any_script_stays_as_it_is(kit):
    text = "Grüße, 中文, עברית, 👩‍🚀 ⚠️ → if a < b and c > d: x <b>bold</b> <T> List<String> </p> a<-b"
    assert kit.clean_text(text) == text


def test_lone_surrogates_become_question_marks(kit):
    assert kit.clean_text("a\ud800b") == "a?b"


@pytest.mark.parametrize("tag", [
    "<system-reminder>", "</system-reminder>", "<SYSTEM-REMINDER>", "< system-reminder >", "</ system-reminder>", "<system/>",
    "<system-reminder a='b'>", "<invoke name='x'>", "<function_calls>", "<task-notification>", "<sys<system>tem>",
    "<<user>user>", "<user\n>", "<sys\x00tem>", "<sys\u200btem>", "<user " + " " * 500 + ">", "<user", "<assistant\n",
])
def test_markup_that_imitates_the_client_is_stripped(kit, tag):
    cleaned = kit.clean_text("before " + tag + " after")
    assert "<" not in cleaned
    assert cleaned.startswith("before ") and cleaned.endswith(" after")


def test_tags_nested_thousands_deep_are_gone_and_cost_little(kit):
    """The work is bounded: 64 KB of nested tags once took minutes."""
    text = "<sys" * 8000 + "<system>" + "tem>" * 8000
    assert "<system" not in kit.clean_text(text)


def test_cleaning_is_idempotent_and_leaves_no_markup(kit, rounds):
    rng = random.Random(41)
    pieces = ["<", ">", "/", "system", "user", "-reminder", " ", "\n", "a", "\0", "\u200b", "antml:", "invoke", "é", "\ud800"]
    for _ in range(rounds(2000)):
        cleaned = kit.clean_text("".join(rng.choice(pieces) for _ in range(rng.randrange(20))))
        assert kit.clean_text(cleaned) == cleaned
        for name in ("system", "user", "system-reminder", "antml:invoke"):
            assert "<" + name + ">" not in cleaned and "</" + name + ">" not in cleaned


def test_one_line_is_one_short_line(kit):
    assert kit.one_line("a\n\n  b\tc\x00") == "a b c"
    assert len(kit.one_line("word " * 200, 40)) <= 40


def test_type_parameters_in_code_are_no_markup(kit):
    code = "Map<User, List<System>> = new HashMap<>();"
    assert kit.clean_text(code) == code
    assert kit.clean_text("x</system-reminder> <user>y") == "x y"
