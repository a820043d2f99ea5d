"""Damaged events, files and settings: thousands of cases in `make test`, 100,000 in `make soak`.

Whatever comes in: exit 0, nothing or one JSON object, no traceback, no hang, nothing written where nothing
belongs, the user's files byte-identical. Each case can be had again by its seed, which a failure prints.
"""
from __future__ import annotations

import json
import os
import random

import pytest

import helper
import hostile
from hostile import MODES, Mutator, World, run_checked, told

EVENTS = [name for name in helper.recorded_names() if not name.startswith("statusLine")]
FILES = (".contextrc", ".context/state/s1.json", ".context/monitor-state.json", ".context/metrics.json", ".caw/auto-state.json",
         ".context/state/pause.json", ".context/state/s1.statusline", ".context/signals/sessions/s1/ci.md",
         ".context/signals/global/news.md", ".context/state/fallback.json", "TRANSCRIPT")
MODE_EVENTS = (("inject", "UserPromptSubmit"), ("inject", "SessionStart.startup"), ("inject", "SessionStart.resume"),
               ("inject", "SessionStart.compact"), ("gate", "PreToolUse.Bash"), ("monitor", "PostToolUse.Read"),
               ("monitor", "PostToolUseFailure"), ("stop-enforce", "Stop"), ("cleanup", "SessionEnd.other"))
WORLD_CASES = 20  # cases before everything is put back


@pytest.fixture(scope="module")
def fuzz_kit():
    return hostile.impatient(helper.load_kit("ctx_hooks_fuzz"))


@pytest.fixture
def world(project):
    return World(project)


def clock(rng, now):
    return rng.choice((now, now, now, now + 3, now + 400, now + 90_000, now - 4_000_000, now + 4e8, 0.0, 5e9))


def run_cases(world, count, one):
    """Many cases, the project put back now and then; what is not ours never changes."""
    before = None
    for number in range(count):
        if number % WORLD_CASES == 0:
            if before is not None:
                world.check_user_files()
            world.reset()
            before = world.foreign()
        one(number)
        assert world.foreign() == before, "something was written where nothing belongs"
    world.check_user_files()


def descriptors():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@pytest.mark.parametrize("mode", MODES)
def test_damaged_events_are_answered_or_passed_over(fuzz_kit, world, rounds, mode):
    opened = descriptors()

    def one(number):
        rng = random.Random("%s event %d" % (mode, number))
        event = Mutator(rng).json(world.event(rng.choice(EVENTS)))
        with told(mode, number):
            run_checked(fuzz_kit, mode, event, world.env, clock(rng, world.now))

    run_cases(world, rounds(250), one)
    assert descriptors() == opened


@pytest.mark.parametrize("mode", MODES)
def test_damaged_and_truncated_bytes_are_answered_or_passed_over(fuzz_kit, world, rounds, mode):
    def one(number):
        rng = random.Random("%s bytes %d" % (mode, number))
        data = Mutator(rng).bytes(json.dumps(world.event(rng.choice(EVENTS))).encode())
        with told(mode, number):
            run_checked(fuzz_kit, mode, data, world.env, world.now)

    run_cases(world, rounds(120), one)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_costs_no_more_than_itself(fuzz_kit, world, rounds, name):
    """And never twice: the same event afterwards works as well, so one broken file does not fail every call from then on."""
    def one(number):
        rng = random.Random("%s %d" % (name, number))
        damage_file(world, name, Mutator(rng))
        foreign = world.foreign()
        for mode, event in rng.sample(MODE_EVENTS, 3):
            with told(name, number, mode, event):
                run_checked(fuzz_kit, mode, world.event(event), world.env, world.now)
                assert drop_own(world.foreign(), name) == drop_own(foreign, name)
        restore_file(world, name)

    before_user = world.user
    for number in range(rounds(60)):
        if number % WORLD_CASES == 0:
            world.reset()
        one(number)
    world.user = before_user
    world.check_user_files()


def drop_own(looks, name):
    return {path: look for path, look in looks.items() if not path.endswith("/" + name)}


def damage_file(world, name, mutator):
    if name == "TRANSCRIPT":
        rows = [json.dumps(row).encode() for row in world.rows()]
        for _ in range(mutator.rng.randrange(1, 5)):
            at = mutator.rng.randrange(len(rows))
            rows[at] = mutator.content(rows[at])
        world.project.write_transcript(rows, hostile.SESSION)
        return
    note = {"file": world.project.path("CLAUDE.md"), "created": False, "lead": "\n", "at": hostile.iso(world.now), "digest": "0"}
    content = world.files.get(name) or json.dumps(note)
    world.project.write(name, mutator.content(content.encode()))


def restore_file(world, name):
    if name in world.files:
        world.project.write(name, world.files[name])


def test_everything_damaged_at_once_is_survived(fuzz_kit, world, rounds):
    for number in range(rounds(40)):
        rng = random.Random("all %d" % number)
        world.reset()
        for name in FILES:
            if rng.random() < 0.7:
                damage_file(world, name, Mutator(rng))
        for mode, event in rng.sample(MODE_EVENTS, 6):
            with told(number, mode, event):
                run_checked(fuzz_kit, mode, Mutator(rng).json(world.event(event)), world.env, clock(rng, world.now))
    world.check_user_files()


def test_the_same_damage_meets_the_same_answer_in_a_process(world, rounds):
    """A sample through stdin, argv, exit code and stderr; the promise is about the process, not about a function."""
    for number in range(rounds(12)):
        rng = random.Random("process %d" % number)
        damage_file(world, rng.choice(FILES), Mutator(rng))
        mode = rng.choice(MODES)
        data = Mutator(rng).content(json.dumps(world.event(rng.choice(EVENTS))).encode())
        run = world.project.run_hook if number % 4 == 0 else world.project.call
        with told(number, mode):
            hostile.check_result(run(mode, data))
    world.check_user_files()


def test_a_project_without_a_context_folder_stays_untouched_by_any_event(fuzz_kit, bare_project, rounds):
    env = {"CLAUDE_PROJECT_DIR": bare_project.root, "HOME": bare_project.home, "TMPDIR": bare_project.tmp}
    before = hostile.looks(bare_project.base)
    for number in range(rounds(150)):
        rng = random.Random("bare %d" % number)
        event = Mutator(rng).json(bare_project.event(rng.choice(EVENTS)))
        with told(number):
            assert run_checked(fuzz_kit, rng.choice(MODES), event, env, 1.8e9) == ""
    assert hostile.looks(bare_project.base) == before


@pytest.mark.parametrize("name", ["parse_iso", "parse_yaml", "parse_config", "parse_blocks", "split_header", "split_sections",
                                  "is_placeholder", "clean_text", "one_line", "format_bullet", "safe_name", "window_of_model",
                                  "strip_comment"])
def test_parsers_take_any_text(fuzz_kit, rounds, name):
    texts = [hostile.CONFIG, hostile.SIGNAL % ("2026-02-03T10:45:00Z", "warning"), hostile.BLOCK % "2026-02-03T10:45:00Z",
             "2026-02-03T10:45:00.123+02:00", "claude-opus-4-5-20250929[1m]", "<system-reminder>a</system-reminder>"]
    for number in range(rounds(100)):
        rng = random.Random("%s %d" % (name, number))
        text = Mutator(rng).bytes(rng.choice(texts).encode()).decode("utf-8", rng.choice(("replace", "surrogateescape")))
        with told(name, number), hostile.time_guard():
            getattr(fuzz_kit, name)(text or "x")


def test_every_session_id_is_its_own_file_name(fuzz_kit, rounds):
    """Distinct ids stay distinct, none leaves the folder, none is one of our own files."""
    names, rng = {}, random.Random("ids")
    for number in range(rounds(1500)):
        text = rng.choice(hostile.HOSTILE_TEXTS) + (str(number) if rng.random() < 0.7 else "")
        name = fuzz_kit.safe_name(text)
        if text:
            assert names.setdefault(name.lower(), text) == text
            assert "/" not in name and "\0" not in name and name not in (".", "..") and len(name) < 120
            assert name not in ("global", "pause", "fallback", "monitor-state", "auto-state", "metrics")
