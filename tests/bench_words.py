"""How much of what the person said is kept: talk of 10 to 200 KB, sentences that bind scattered in it.

Each session says all sentences of tests/data/words/binding.txt once, in random order, among small talk in
several languages, pasted logs and code; then it ends and a new one starts. Counted is how many of them are
word for word in the handoff's file, and in the text that the new session gets; and how much of the small talk.
"""

from __future__ import annotations

import collections
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from helper import World, data, kit, read

SIZES_KB = (10, 40, 100, 200)
BINDING_SHARE = 0.05  # of the talk, at most all that the corpus has
SEED = 51
LOG = "2026-03-%02d 10:%02d:07 ERROR worker: must retry, connection %d not allowed\n"


def corpus(name: str) -> list:
    """[(language, sentence)] of a file of the corpus."""
    lines = read(data("words", name)).splitlines()
    return [tuple(line.split("\t")) for line in lines if line and not line.startswith("#")]


def talk(size: int, chance: random.Random, binding: list) -> list:
    """The prompts of a session: `size` characters, with the binding sentences somewhere in them."""
    things = [thing.strip() for thing in read(data("words", "things.txt")).split(",")]
    small = [sentence for _, sentence in corpus("talk.txt")]
    prompts, used = [], sum(map(len, binding))
    while used < size:
        said = [chance.choice(small).replace("{n}", chance.choice(things)) for _ in range(chance.randrange(1, 7))]
        prompts.append(said)
        used += sum(map(len, said)) + len(said)
        if chance.random() < 0.02:
            lines = [LOG % (number % 28, number % 60, number) for number in range(chance.randrange(5, 15))]
            prompts.append(["Here is the log:\n" + "".join(lines)])
            used += sum(map(len, lines))
    for sentence in binding:
        prompt = chance.choice(prompts)
        prompt.insert(chance.randrange(len(prompt) + 1), sentence)
    return [" ".join(prompt) for prompt in prompts]


def keep(prompts: list, base: str) -> tuple:
    """(the handoff's file, the text that the next session gets) of a session with these prompts."""
    world = World(base)
    session = world.session("talk")
    session.start()
    for prompt in prompts:
        session.write_prompt(prompt)
        session.say("Done.")
    session.edit("src/a.py")
    session.end()
    file = world.read_handoff("talk")
    return file, world.session("next").start().text


def plain(text: str) -> str:
    return " ".join(text.replace("\n> ", " ").split())


def share(sentences: list, text: str) -> float:
    """How many of the sentences are in the text, word for word, in percent; said twice, it counts twice."""
    text = plain(text)
    said = collections.Counter(map(plain, sentences))
    kept = sum(min(text.count(sentence), count) for sentence, count in said.items())
    return 100.0 * kept / max(1, len(sentences))


def measure(size_kb: int, seed: int = SEED, name: str = "binding.txt") -> dict:
    """The shares for one size."""
    chance = random.Random(seed)
    binding = [sentence for _, sentence in corpus(name)]
    chance.shuffle(binding)
    room = size_kb * 1000 * BINDING_SHARE
    while sum(map(len, binding)) > room:
        binding.pop()
    prompts = talk(size_kb * 1000, chance, binding)
    small = [words for prompt in prompts for words in kit.split_sentences(prompt)]
    small = [words for words in small if not any(bound in words for bound in binding)]
    with tempfile.TemporaryDirectory(prefix="ctx-hooks-words-") as base:
        file, text = keep(prompts, base)
    return {
        "size": size_kb,
        "binding": len(binding),
        "file": share(binding, file),
        "delivered": share(binding, text),
        "small_file": share(small, file),
        "small_delivered": share(small, text),
        "chars": len(text),
        "missing": [sentence for sentence in binding if plain(sentence) not in plain(text)],
    }


def report() -> None:
    print("| talk | sentences that bind | in the file | delivered | small talk in the file | delivered |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for size_kb in SIZES_KB:
        row = measure(size_kb)
        shares = [row[name] for name in ("file", "delivered", "small_file", "small_delivered")]
        print("| %d KB | %d | %s |" % (size_kb, row["binding"], " | ".join("%.0f %%" % share for share in shares)))


if __name__ == "__main__":
    report()
