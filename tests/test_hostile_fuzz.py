"""Damaged events, files and settings: thousands of cases in `make test`, 100,000 in `make soak`.

Whatever comes in: exit 0, nothing or one JSON object, no traceback, no hang, nothing written where nothing
belongs, the user's files byte-identical. Each case can be had again by its seed, which a failure prints.
"""
from __future__ import annotations

import functools
import importlib.util
import json
import os
import random
import subprocess
import sys

import pytest

import helper
import hostile
from hostile import MODES, Mutator, World, run_checked, told

EVENTS = [name for name in helper.recorded_names() if not name.startswith("statusLine")]
FILES = (".contextrc", ".context/state/s1.json", ".context/monitor-state.json", ".context/metrics.json", ".caw/auto-state.json",
         ".context/state/pause.json", ".context/state/s1.statusline", ".context/state/s1.claims", ".context/signals/sessions/s1/ci.md",
         ".context/signals/global/news.md", hostile.LEDGER, ".context/handoffs/s0.md", "CLAUDE.md", "TRANSCRIPT")
MODE_EVENTS = (("inject", "UserPromptSubmit"), ("inject", "SessionStart.startup"), ("inject", "SessionStart.resume"),
               ("inject", "SessionStart.compact"), ("gate", "PreToolUse.Bash"), ("monitor", "PostToolUse.Read"),
               ("monitor", "PostToolUseFailure"), ("monitor", "PreCompact.auto"), ("stop-enforce", "Stop"), ("cleanup", "SessionEnd.other"))
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
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0  # under Wine they are not the program's own


@pytest.mark.parametrize("mode", MODES)
def test_damaged_events_are_answered_or_passed_over(fuzz_kit, world, rounds, mode):
    opened = descriptors()

    def one(number):
        rng = random.Random("%s event %d" % (mode, number))
        event = Mutator(rng).json(world.event(rng.choice(EVENTS)))
        agent = rng.choice(("claude", "claude", *fuzz_kit.DIALECTS))
        with told(mode, number, agent):
            run_checked(fuzz_kit, mode, event, world.env, clock(rng, world.now), agent)

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
        named = named_by_settings(fuzz_kit, world) + ["a project's/" + name]
        foreign = world.foreign()
        for mode, event in rng.sample(MODE_EVENTS, 3):
            with told(name, number, mode, event):
                run_checked(fuzz_kit, mode, world.event(event), world.env, world.now)
                now = world.foreign()
                changed = [path for path in {**now, **foreign} if now.get(path) != foreign.get(path) and path not in named]
                assert not [path for path in changed if not path.startswith(tuple(named))]
        restore_file(world, name)

    for number in range(rounds(45)):
        if number % WORLD_CASES == 0:
            world.reset()
        one(number)
    world.check_user_files()


def named_by_settings(kit, world):
    """What the settings as they stand let us write: the fallback file, and our files in another context folder."""
    config = kit.read_config(kit.join_path(world.project.root, kit.CONFIG_NAME))[0]
    folder = config.get("context_dir", ".context")
    return [os.path.normpath(os.path.join("a project's", path)) for path in (
        config.get("startup.fallback_file", "CLAUDE.md").replace("auto", "CLAUDE.md"), *(folder + "/" + own for own in (
            "state", "signals", "handoffs", "monitor-state.json", "metrics.json", "events.jsonl", ".gitignore")))]


def damage_file(world, name, mutator):
    if name == "TRANSCRIPT":
        rows = [json.dumps(row).encode() for row in world.rows()]
        for _ in range(mutator.rng.randrange(1, 5)):
            at = mutator.rng.randrange(len(rows))
            rows[at] = mutator.content(rows[at])
        world.project.write_transcript(rows, hostile.SESSION)
        return
    content = world.files[name]
    if name == "CLAUDE.md":  # with a section of ours in it
        content += hostile.SECTION % hostile.iso(world.now - mutator.rng.choice((5, 90 * 3600)))
    world.project.write(name, mutator.content(content.encode()))


def restore_file(world, name):
    if name == "TRANSCRIPT":
        world.project.write_transcript(world.rows(), hostile.SESSION)
    else:
        world.project.write(name, world.files[name])


def test_everything_damaged_at_once_is_survived(fuzz_kit, world, rounds):
    for number in range(rounds(40)):
        rng = random.Random("all %d" % number)
        world.reset()
        for name in FILES:
            if rng.random() < 0.7 and name not in hostile.USER_FILES:
                damage_file(world, name, Mutator(rng))
        for mode, event in rng.sample(MODE_EVENTS, 6):
            with told(number, mode, event):
                run_checked(fuzz_kit, mode, Mutator(rng).json(world.event(event)), world.env, clock(rng, world.now))
    world.check_user_files()


def test_the_same_damage_meets_the_same_answer_in_a_process(world, rounds):
    """A sample through stdin, argv, exit code and stderr; the promise is about the process, not about a function."""
    for number in range(rounds(12)):
        rng = random.Random("process %d" % number)
        damage_file(world, rng.choice([name for name in FILES if name not in hostile.USER_FILES]), Mutator(rng))
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


@pytest.fixture(scope="module")
def installer():
    path = os.path.join(helper.REPO, "install.py")
    if not os.path.exists(path):
        pytest.skip("there is no install.py")
    spec = importlib.util.spec_from_file_location("install_fuzz", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.kit.parse_command = functools.lru_cache(maxsize=None)(module.kit.parse_command)  # of few commands, thousands of times
    return module


SETTINGS = {"model": "sonnet", "permissions": {"allow": ["Bash(ls:*)"], "deny": []}, "env": {"A": "1"}, "statusLine": {"type": "command", "command": "x"},
            "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine", "timeout": 5}]}],
                      "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "python3 ctx_hooks.py gate"}]}]}}


def damaged_settings(rng):
    text = json.dumps(SETTINGS, indent=rng.choice((None, 2, "\t"))).replace("\n", rng.choice(("\n", "\r\n")))
    data = Mutator(rng).content(text.encode())
    return rng.choice((b"", b"", b"", b"\xef\xbb\xbf")) + data


def test_damaged_settings_are_refused_or_given_back_byte_for_byte(installer, rounds):
    """Merged and stripped as install.py does it; what is in them is either understood or not touched."""
    wanted = installer.kit.plan_hooks("claude", "python3", installer.kit.PLUGIN_PATH)
    taken = 0
    for number in range(rounds(400)):
        data = damaged_settings(random.Random("settings %d" % number))
        with told(number), hostile.time_guard():
            try:
                src, value = installer.parse_settings(data, list(wanted))
            except ValueError:
                continue
            taken += 1
            text = installer.Text(src)
            installer.merge(text, wanted, value)
            assert installer.has_ours(json.loads(text.src))
            installer.strip(text, value)
            bare = installer.Text(src)
            installer.strip(bare, value)
            assert json.loads(text.src) == json.loads(bare.src)
    assert taken > 20


def test_the_installer_refuses_or_installs_and_never_leaves_damaged_settings(project, rounds):
    """A sample as processes: install, uninstall, and the file has its bytes back whatever they were."""
    argv = [helper.PYTHON, os.path.join(helper.REPO, "install.py"), project.root, "--python", helper.PYTHON]
    for number in range(min(rounds(3), 120)):
        data = damaged_settings(random.Random("install %d" % number))
        path = project.write(".claude/settings.json", data)
        codes = []
        for words in ([], ["--uninstall"]):
            done = subprocess.run(argv + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=project.environment({}), cwd=project.root, timeout=60)
            codes.append(done.returncode)
            assert done.returncode in (0, 1) and b"Traceback" not in done.stderr, (number, done.stderr)
            assert done.returncode == 0 or done.stderr.startswith(b"error: ")
        with open(path, "rb") as source:
            assert source.read() == data or (codes == [0, 0] and b"ctx_hooks" in data), number
        os.unlink(path)


@pytest.mark.parametrize("name", ["parse_iso", "parse_yaml", "parse_config", "parse_blocks", "split_sections",
                                  "is_acknowledged", "clean_text", "for_terminal", "one_line", "format_bullet", "safe_name",
                                  "window_of_model", "strip_comment", "parse_printed", "hide_secrets"])
def test_parsers_take_any_text(fuzz_kit, rounds, name):
    check_parser(getattr(fuzz_kit, name), name, rounds(100))


@pytest.mark.parametrize("name", ["says_something", "strip_sections", "parse_object"])
def test_parsers_take_any_bytes(fuzz_kit, rounds, name):
    check_parser(lambda text: getattr(fuzz_kit, name)(text.encode("utf-8", "surrogateescape")), name, rounds(100))


def check_parser(parse, name, count):
    texts = [hostile.CONFIG, hostile.SIGNAL % ("2026-02-03T10:45:00Z", "warning"), hostile.BLOCK % "2026-02-03T10:45:00Z",
             "2026-02-03T10:45:00.123+02:00", "claude-opus-4-5-20250929[1m]", "<system-reminder>a</system-reminder>",
             hostile.SECTION % "2026-02-03T10:45:00Z", "BEGIN HANDOFF\nGoal\nEND HANDOFF", "API_KEY='0123456789' https://me:word@host/"]
    for number in range(count):
        rng = random.Random("%s %d" % (name, number))
        text = Mutator(rng).bytes(rng.choice(texts).encode()).decode("utf-8", "surrogateescape")
        with told(name, number), hostile.time_guard():
            parse(text if text.strip() else "x")  # no caller has less


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
