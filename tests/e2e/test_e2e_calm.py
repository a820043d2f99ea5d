"""Calm: the launcher answers calls in which nothing can happen, and nothing that matters waits for it."""

from __future__ import annotations

import time

from agents import ASKED, Agent, bash, edit, read

CALLS = 60
SIGNAL_AT, FAILING_AT, SWITCH_AT = 14, 24, 34  # in the middle of calm stretches
SENTENCE = "The working tree is on feature now"
CALM_CALLS = 8
STEP = 2_100
POINT = 141_950  # 85 % of 167,000


def first(kit, text):
    """The call with whose result a text came; the request before it holds none."""
    return [text in request.news() for request in kit.stub.of("main")].index(True)


def script(kit, acts):
    """Sixty calls that grow from 20,000 tokens past the point where a handoff is asked for."""
    turns = []
    for number in range(1, CALLS + 1):
        tokens = 20_000 + number * STEP
        if number == FAILING_AT:
            turns.append(bash("echo wrong >&2; exit 3", tokens=tokens))
        elif number % 3 == 0:
            turns.append(edit(kit, "file%d.py" % number, "x = %d\n" % number, tokens=tokens))
        elif number % 3 == 1:
            turns.append(read(kit.path("README.md"), tokens=tokens))
        else:
            turns.append(bash("echo %d" % number, tokens=tokens))
        turns[-1].act = acts.get(number)
    return turns


def test_over_sixty_calls_few_start_python_and_the_reminder_comes_in_time(kit, note):
    time.sleep(1.1)  # old shells compare whole seconds: what was changed just now ends a calm
    kit.stub.script(otherwise=Agent(kit, [*script(kit, {}), "done"]))
    session = kit.run("A long piece of work.")
    crossing = (POINT - 20_000) // STEP + 1
    assert first(kit, ASKED) in (crossing, crossing + 1)  # the transcript may lag a moment behind a call
    facts = kit.state(session.id)["facts"]
    assert facts["tool_calls"] == CALLS and facts["failed"]["command"] == "echo wrong >&2; exit 3"
    owed = CALLS - crossing + 1  # a handoff is owed: every call looks
    early, calls = kit.runs("monitor") - owed, crossing - 1
    note(
        "calm: %d of the first %d calls, up to the reminder, started Python in monitor, %d in gate"
        % (early, calls, kit.runs("gate"))
    )
    assert early <= calls // 3 and kit.runs("gate") == 1


def test_what_happens_outside_ends_the_calm_with_the_same_call(kit):
    kit.git("branch", "feature")
    acts = {
        SIGNAL_AT: lambda _: kit.signal("CI failed on main."),
        SWITCH_AT: lambda _: kit.git("switch", "-q", "feature"),
    }
    kit.stub.script(otherwise=Agent(kit, [*script(kit, acts)[:40], "done"]))
    kit.run("A long piece of work.")
    assert first(kit, "CI failed on main.") == SIGNAL_AT and first(kit, SENTENCE) == SWITCH_AT


def test_a_jump_over_the_point_is_noticed_at_the_latest_after_eight_calls(kit):
    steps = [bash("echo %d" % n, tokens=20_000) for n in range(3)]
    steps += [bash("echo %d" % n, tokens=150_000) for n in range(3, 16)]
    kit.stub.script(*steps, "done")
    kit.run("work")
    assert first(kit, ASKED) <= 4 + CALM_CALLS + 1


def test_a_failing_call_looks_even_in_a_calm_session(kit):
    kit.stub.script(*[bash("echo %d" % n, tokens=20_000) for n in range(4)], bash("exit 3"), bash("echo on"), "done")
    with kit.session() as session:
        session.prompt("work")
        before = kit.runs("monitor")
        kit.stub.script(bash("echo calm", tokens=20_000), bash("exit 4", tokens=20_000), "done")
        session.prompt("go on")
    assert kit.runs("monitor") > before


def test_without_a_context_folder_python_never_starts_and_nothing_is_created(world):
    world.install()
    before = world.files(".context/**/*"), sorted(world.home.glob(".local/**/*"))
    world.stub.script(bash("echo a"), "done")
    world.run("work")
    assert world.emitted() == [] and not (world.root / "runs").exists()
    assert (world.files(".context/**/*"), sorted(world.home.glob(".local/**/*"))) == before


def test_a_context_folder_above_the_start_folder_counts(kit):
    kit.path("deep/er").mkdir(parents=True)
    kit.write(
        "deep/.claude/settings.json",
        kit.read(".claude/settings.json").replace("$CLAUDE_PROJECT_DIR", "$CLAUDE_PROJECT_DIR/.."),
    )
    kit.stub.script(bash("echo a"), "done")
    with kit.session(folder="deep") as session:
        session.prompt("work")
    assert "STOP. Read your context files" in kit.stub.of("main")[1].news()
