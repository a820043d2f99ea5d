"""The request for a handoff: however large the calls are, wherever the client compacts, whatever was written before."""

from __future__ import annotations

import json

import pytest

from agents import ASKED, OWN, PATH, Agent, bash, read, said, write

UPDATE = "Bring it up to date: "
LARGE = "claude-opus-5"  # a model with a window of 1,000,000
POINT = 141_950  # 85 % of 167,000
DEFAULT = "default"  # the permission mode of somebody who changed nothing
EDITS = "acceptEdits"  # in print mode nobody is there to allow a write


def asked_at(kit, text=ASKED):
    """The requests to the model that newly brought the request for a handoff."""
    return [number for number, times in enumerate(said(kit, text)) if times]


def after_crossing(tokens, point=POINT):
    """The requests that bring the result of the call which crossed the point, and of the next: the transcript may lag a
    moment behind a call."""
    crossing = next(number for number, count in enumerate(tokens) if count >= point)
    return crossing + 1, crossing + 2


def growing(*tokens):
    return [bash("echo %d" % count, tokens=count) for count in tokens]


def lines_for_the_person(session):
    return [line for line in session.notices() if line.startswith("ctx:")]


def reads(kit, *tokens, lines):
    """Reads of files that have as many tokens as the stub says."""
    steps = []
    for number, count in enumerate(tokens):
        kit.write("big%d.txt" % number, "one line of a long file\n" * lines)
        steps.append(read(kit.path("big%d.txt" % number), tokens=count))
    return steps


@pytest.mark.parametrize("step, lines", [(8_000, 1_100), (24_000, 3_300), (40_000, 5_500)])
def test_big_reads_do_not_pass_the_point_in_silence(kit, step, lines):
    tokens = [*range(30_000, 156_000, step), 160_000]  # one call more, for a late transcript
    kit.stub.script(*reads(kit, *tokens, lines=lines), "done")
    kit.run("Read all of it.", mode=DEFAULT)
    assert asked_at(kit)[0] in after_crossing(tokens)


@pytest.mark.parametrize("way", ["/autocompact", "user", "project", "local", "config dir", "environment"])
def test_the_request_comes_in_time_whatever_told_the_client_to_compact_early(kit, way):
    """It compacts at some 166,000 tokens then: it counts what the last call brought, too."""
    options = {}
    kit.stub.model = LARGE
    told = json.dumps({"autoCompactWindow": 200_000})
    prompts = ["Read all of it."]
    if way == "/autocompact":
        prompts.insert(0, "/autocompact 200k")
    elif way == "environment":
        options["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = "200k"
    elif way == "user":
        (kit.home / ".claude/settings.json").write_text(told)
    elif way == "config dir":
        (kit.home / "other").mkdir()
        (kit.home / "other/settings.json").write_text(told)
        options["CLAUDE_CONFIG_DIR"] = str(kit.home / "other")
    else:
        name = ".claude/settings.json" if way == "project" else ".claude/settings.local.json"
        settings = kit.json(name) if kit.path(name).exists() else {}
        kit.write(name, json.dumps(dict(settings, autoCompactWindow=200_000)))
    tokens = list(range(112_000, 156_000, 6_000))
    kit.stub.script(*reads(kit, *tokens, lines=850), "done")
    kit.run(*prompts, mode=DEFAULT, **options)
    assert asked_at(kit)[0] in after_crossing(tokens)


def test_a_limit_that_only_an_option_told_the_client_is_learnt_from_its_compaction(kit, note):
    kit.stub.model = LARGE
    tokens = [*range(130_000, 163_000, 6_000), 30_000]
    kit.stub.script(*reads(kit, *tokens, lines=850), "done")
    session = kit.run("Read all of it.", arguments=("--autocompact", "200k"), mode=DEFAULT)
    (meta,) = [row["compactMetadata"] for row in kit.transcripts() if row.get("subtype") == "compact_boundary"]
    note("--autocompact 200k: the client compacted at %d" % meta["preTokens"])
    assert meta["trigger"] == "auto" and kit.state(session.id)["limit"] == meta["preTokens"]
    tokens = list(range(112_000, 156_000, 6_000))
    before = len(kit.stub.of("main"))
    kit.stub.script(*reads(kit, *tokens, lines=850), "done")
    kit.run("Read it again.", arguments=("--autocompact", "200k"), mode=DEFAULT)
    assert asked_at(kit)[0] - before in after_crossing(tokens)


def test_where_the_client_does_not_compact_percent_is_of_the_window(kit):
    settings = dict(kit.json(".claude/settings.json"), autoCompactEnabled=False)
    kit.write(".claude/settings.json", json.dumps(settings))
    tokens = (150_000, 169_000, 171_000, 172_000, 173_000)
    kit.stub.script(*growing(*tokens), "done")
    kit.run("Work on.", mode=DEFAULT)
    first = asked_at(kit)[0]
    assert first in after_crossing(tokens, 170_000) and "of 200,000 usable" in kit.stub.of("main")[first].news()
    assert not kit.stub.of("compact")


@pytest.mark.parametrize("mode", [DEFAULT, EDITS])
def test_an_earlier_handoff_is_brought_up_to_date(kit, mode):
    if mode == DEFAULT:
        kit.install("--allow-handoff")
    late = OWN + "Decided since: tabs.\n"

    def write_early(_):
        return write(kit.path(".context/handoffs/%s.md" % kit.newest_id()), OWN, tokens=63_000)

    def update(request):
        if UPDATE not in request.news():  # the transcript may lag a moment behind a call
            steps.insert(0, update)
            return bash("echo looking", tokens=143_000)
        return write(PATH.search(request.news()).group(), late, tokens=144_000)

    steps = [bash("echo one", tokens=20_000), write_early, update, bash("echo three", tokens=145_000), "done"]
    agent = Agent(steps)
    steps = agent.steps
    kit.stub.script(otherwise=agent)
    session = kit.run("Rename the lexer.", mode=mode)
    assert kit.handoffs()[session.id + ".md"].startswith(late) and len(asked_at(kit, UPDATE)) == 1
    assert asked_at(kit) == []
    assert [line for line in lines_for_the_person(session) if "handoff written" in line]


def test_a_handoff_that_a_skill_puts_elsewhere_counts(kit):
    steps = [bash("echo one", tokens=143_000), write(kit.path("HANDOFF.md"), OWN, tokens=144_000)]
    kit.stub.script(otherwise=Agent([*steps, bash("echo two", tokens=145_000), "done"]))
    session = kit.run("Rename the lexer.", mode=EDITS)
    assert len(asked_at(kit)) == 1 and "copied by ctx_hooks from HANDOFF.md" in kit.handoffs()[session.id + ".md"]


def test_while_the_request_runs_the_person_still_hears_of_95_percent(kit):
    kit.stub.script(*growing(143_000, 150_000, 160_000, 161_000, 162_000), "done")
    session = kit.run("Work on.", mode=DEFAULT)
    lines = lines_for_the_person(session)
    assert [line for line in lines if "95%" in line] == ["ctx: context 95% full."]
    asked = len(asked_at(kit))  # of five calls; to two the transcript may have been late
    assert asked >= 3 and not any(said(kit, "[ctx monitor]"))
