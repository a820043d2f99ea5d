"""Words: which of the person's words are kept, where there is no room for all."""

from __future__ import annotations

import pytest

import bench_words
from helper import kit, read

CHATTER = ["We looked at the pictures of chapter %s for a while. " % ("x" * number) for number in range(200)]
RULE = "Never store amounts as floats."


def weight(sentence):
    return kit.weigh(kit.read_scale(), sentence)


def choose(texts, room=2_000, **more):
    return kit.choose_words(texts, room, **more)


# --- weights


@pytest.mark.parametrize("language, sentence", bench_words.corpus("binding.txt"))
def test_a_sentence_that_binds_is_known_in_eleven_languages(language, sentence):
    assert weight(sentence) >= kit.BINDING


def test_small_talk_does_not_bind():
    small = [sentence.replace("{n}", "the bridge") for _, sentence in bench_words.corpus("talk.txt")]
    assert [sentence for sentence in small if weight(sentence) >= kit.BINDING] == []


@pytest.mark.parametrize(
    "sentence", ["I don't know.", "No worries, thanks!", "I can't wait!", "Nicht schlecht!", "No."]
)
def test_what_only_sounds_like_a_rule_does_not_bind(sentence):
    assert weight(sentence) < kit.BINDING


@pytest.mark.parametrize(
    "sentence", ["Prices are in cents.", "We call it sum.", "It runs on port 8443.", "Please use src/app.py."]
)
def test_a_name_a_number_and_a_wish_weigh_more_than_the_rest(sentence):
    assert weight(sentence) >= 1 > weight("It grew late, so everybody left.")


@pytest.mark.parametrize(
    "sentence",
    ["He must be so happy tonight.", "Oh, I really love that!", "Sie muss heute Abend zu Hause sein, sehr schade."],
)
def test_words_of_a_chat_count_against_a_rule(sentence):
    assert weight(sentence) < kit.BINDING


def test_a_sentence_weighs_all_that_it_holds():
    assert weight("Only Ann may merge, never anybody else.") > weight("Only Ann may merge.") >= kit.BINDING


def test_a_pasted_log_and_fenced_code_do_not_bind():
    text = "Look:\n2026-03-01 10:00:00 ERROR it must never do that\n```\n# never do that\n```\nNever do that.\n"
    weighed = kit.weigh_sentences(kit.read_scale(), text)
    assert [sentence for sentence, heavy in weighed if heavy >= kit.BINDING] == ["Never do that.\n"]


@pytest.mark.parametrize(
    "text", ["Rules:\n- tabs in Makefiles\n- two reviewers\n", "Change of plan. The port comes from the file."]
)
def test_what_a_line_announces_weighs_as_much(text):
    weights = [heavy for _, heavy in kit.weigh_sentences(kit.read_scale(), text)]
    assert min(weights) >= 2


# --- sentences


@pytest.mark.parametrize(
    "text, count",
    [
        ("One. Two! Three? Four", 4),
        ("Use v1.2 of it, e.g. the one by J. Smith etc. and go on.", 1),
        ("1. First\n2. Second\n", 2),
        ("“Never.” Then this.", 2),
        ("没有。有！好？", 3),
        ("だめです。「はい。」と言う。", 3),
        ("", 0),
        ("no end and no stop " * 200, 5),
        ("x" * 100_000, 125),
    ],
)
def test_a_text_is_split_into_its_sentences_to_the_letter(text, count):
    sentences = kit.split_sentences(text)
    assert "".join(sentences) == text and len(sentences) == count


# --- the choice


def test_what_fits_stays_as_it_is():
    texts = ["One.  Two.\n\nThree", "", "é 😀"]
    assert choose(texts) == texts


def test_small_talk_gives_way_to_rules_with_a_mark():
    texts = ["Add discounts.", *CHATTER[:100], "Hm. %s And so on." % RULE, *CHATTER[100:], "Go on."]
    kept = choose(texts)
    assert kept[0] == "Add discounts." and kept[-1].endswith("Go on.")
    assert RULE in kept[101] and "[…]" in "".join(kept)
    assert sum(map(len, kept)) <= 2_000 < sum(map(len, texts))


def test_the_first_and_the_last_three_stay_whole_up_to_a_fifth_of_the_room():
    whole = "We looked at it. " * 10 + "So."
    long = "We looked at the %d pictures. "
    texts = [whole, *CHATTER, whole + "1", "".join(long % number for number in range(100)), whole + "3"]
    kept = choose(texts)
    assert kept[0] == whole and kept[-3].endswith(whole + "1") and kept[-1].endswith(whole + "3")
    assert len(kept[-2]) < 2_000


RULES = ["Never touch file %d of the vendor folder." % number for number in range(100)]


def test_the_newest_rules_stay():
    kept = "\n".join(choose(["Hi.", *RULES, "a", "b", "c"], 2_500))
    assert RULES[99] in kept and RULES[12] not in kept


def test_what_is_said_in_rare_words_outlives_what_comes_again_and_again():
    rare, common = "Tomasz herds walruses.", ["We looked at it %s." % ("x" * number) for number in range(1, 30)]
    scale = kit.read_scale()
    assert kit.weigh(scale, rare) == kit.weigh(scale, common[0])
    assert rare in kit.choose_words(["Hello.", rare, *common], 200)[1]


def test_a_correction_in_common_words_outlives_a_rare_rule():
    rule, correction = "Never touch walrus exporters.", "Scratch that, we looked at the pictures."
    assert "Scratch" in "".join(kit.choose_words(["", rule, *CHATTER, correction, *CHATTER], 60))


def test_a_correction_outlives_what_it_corrects():
    texts = ["Hi.", *RULES[:50], "Actually, file 12 may be changed.", *RULES[50:], "a", "b", "c"]
    kept = "\n".join(choose(texts, 2_500))
    assert "Actually, file 12 may be changed." in kept and RULES[12] not in kept


def test_one_text_full_of_rules_does_not_push_out_the_others():
    pasted = "".join("You must check point %d.\n" % number for number in range(5_000))
    kept = choose(["Hi.", RULE, *CHATTER[:9], pasted, "a", "b", "c"])
    assert RULE in kept[1]


def test_what_was_chosen_can_be_chosen_from_again():
    texts = ["Add discounts.", *CHATTER, RULE, *CHATTER, "a", "b", "c"]
    for room in (8_000, 4_000, 1_000):
        texts = list(filter(None, choose(texts, room)))
    assert texts.count("[…] " + RULE) == 1 and "[…] […]" not in "\n".join(texts)


def test_what_was_said_in_many_requests_is_kept_once():
    texts = ["Hi.", *["Thanks for that, go on. Number %d was red." % number for number in range(99)], "a", "b", "c"]
    kept = "\n".join(choose(texts))
    assert kept.count("Thanks for that, go on.") == 1 and kept.count(" was red.") > 20


def test_nothing_is_said_twice():
    quoted = "## Rules\n\n- NEVER store\n  amounts as `floats`!\n"
    texts = ["Thanks. %s Ask me first!" % RULE, "Ask me first!", "Keep the API unchanged."]
    kept = choose(texts, least=1, quoted=quoted)
    assert [text for text in kept if text] == ["[…] Ask me first!", "Keep the API unchanged."]


@pytest.mark.parametrize(
    "text",
    ["x" * 2_000_000, "word " * 20_000, "数" * 100_000, "😀" * 100_000, "مرحبا " * 20_000, ". " * 50_000]
    + ["```\n" * 20_000, "| a | b |\n" * 10_000, "never " * 20_000, "\n" * 100_000, "\0\x1b\ud800" * 9_999],
    ids=lambda text: text[:9].encode("unicode_escape").decode(),
)
def test_whatever_comes_is_cut_to_the_room(text):
    kept = choose(["first", text, "last"])
    assert kept[0] == "first" and kept[-1] in ("last", "[…] last") and len(kept[1]) <= 2_000


# --- the shares that make bench ARGS=--words prints


@pytest.mark.parametrize("size_kb, in_file, delivered", [(10, 98, 95), (40, 98, 95), (100, 98, 90)])
def test_what_binds_is_kept_and_delivered(size_kb, in_file, delivered):
    row = bench_words.measure(size_kb)
    assert row["file"] >= in_file and row["delivered"] >= delivered
    assert row["small_delivered"] < row["small_file"] or size_kb == 10


def test_the_tables_hold_no_entry_twice():
    lines = [line for table in kit.WEIGHTS.values() for line in table.split("\n") if line[:1] != "#"]
    entries = [entry.replace("_", " ").strip() for entry in ",".join(lines).split(",")]
    entries = list(filter(None, entries))
    assert len(entries) == len(set(entries))


def test_each_entry_of_the_tables_is_found_as_a_person_writes_it():
    entries = [entry for entry, weight in kit.read_scale().items() if weight]
    assert len(entries) > 9000
    for entry in entries:
        text = entry.replace("| ^ ", ", ").replace("' ", "'").strip()
        written = text[2:] if text[0] == "^" else "x " + text
        assert entry in kit.plain_clauses(written + "a" * written.endswith("'")), entry


def test_the_corpus_is_ours_and_in_eleven_languages():
    languages = {language for language, _ in bench_words.corpus("binding.txt")}
    assert languages == set("en de fr es pt it nl pl ru zh ja ko".split())
    assert "{n}" in read(bench_words.data("words", "talk.txt"))
