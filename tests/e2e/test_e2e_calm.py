"""Calm: the launcher answers calls in which nothing can happen, and nothing that matters waits for it."""

from __future__ import annotations

import time

from agents import ASKED, GATE, Agent, bash, edit, read, said

CALLS = 64
SIGNAL_AT, FAILING_AT, SWITCH_AT = 14, 24, 34  # in the middle of calm stretches
STEP = 2_100
POINT = 141_950  # 85 % of 167,000
MODEL_S = 0.2  # no model answers faster; the client writes its transcript every 0.1 s or so


def first(kit, text):
    """The call with whose result a text came; the request before it holds none."""
    return [bool(times) for times in said(kit, text)].index(True)


def calls_of(kit):
    """Calls that grow from 20,000 tokens past the point where a handoff is asked for."""
    calls = {}
    for number in range(1, CALLS + 1):
        tokens = 20_000 + number * STEP
        kinds = (
            edit(kit, "file%d.py" % number, tokens=tokens),
            read(kit.path("README.md"), tokens=tokens),
            bash("echo %d" % number, tokens=tokens),
        )
        calls[number] = kinds[number % 3]
    calls[FAILING_AT] = bash("echo wrong >&2; exit 3", tokens=20_000 + FAILING_AT * STEP)
    return calls


def test_over_sixty_calls_few_start_python(kit, note):
    kit.git("branch", "feature")
    time.sleep(1.1)  # old shells compare whole seconds: what was changed just now ends a calm
    calls = calls_of(kit)
    calls[SIGNAL_AT].act = lambda _: kit.signal("CI failed on main.")
    calls[SWITCH_AT].act = lambda _: kit.git("switch", "-q", "feature")
    for number in (2, SIGNAL_AT + 1, SWITCH_AT + 1):
        calls[number].act = lambda _: time.sleep(1.1)
    agent = Agent([*calls.values(), "done"])

    def model(request):
        time.sleep(MODEL_S)
        return agent(request)

    kit.stub.script(otherwise=model)
    session = kit.run("A long piece of work.")
    assert first(kit, "CI failed on main.") == SIGNAL_AT
    assert first(kit, "The working tree is on feature now") == SWITCH_AT
    crossing = (POINT - 20_000) // STEP + 1
    assert first(kit, ASKED) in range(crossing, crossing + 3)  # the transcript may lag a moment behind a call
    facts = kit.state(session.id)["facts"]
    assert facts["tool_calls"] == CALLS and facts["failed"]["command"] == "echo wrong >&2; exit 3"
    owed = CALLS - crossing + 1  # a handoff is owed: every call looks
    early, before = kit.runs("monitor") - owed, crossing - 1
    note("calm: %d of the first %d calls, up to the reminder, started Python in monitor" % (early, before))
    assert early <= before // 2 and kit.runs("gate") == 1


def test_a_context_folder_above_the_start_folder_counts_whatever_the_path(kit):
    odd = kit.root / 'it\'s a "project" $HOME é'
    kit.project.rename(odd)
    kit.project = odd
    settings = kit.read(".claude/settings.json")
    kit.write("deep/.claude/settings.json", settings.replace("$CLAUDE_PROJECT_DIR", "$CLAUDE_PROJECT_DIR/.."))
    kit.stub.script(bash("echo a"), "done")
    kit.run("work", folder="deep")
    assert said(kit, GATE) == [0, 1]
