"""Two sessions of each client with all that the kit does, and handoffs that cross."""

from __future__ import annotations

import json
import re
import shlex
import time

import pytest

from clients import CLIENTS, WANTED, Claude, Codex
from lab import Lab, Terminal
from stub_models import OUTPUT_TOKENS, Turn

PERCENT = 61  # above the threshold set here, below every client's own compaction
SETTINGS = "handoff:\n  threshold: 50\nauto:\n  phases: [execution]\n"
WINDOW_SETTING = "monitor:\n  context_window: 200000\n"
SIGNAL = "The build on the main branch is red."
GATE = "STOP. Read your context files before proceeding"
HOLD = "## Auto Mode Continuation"
GOAL = "finish the parser for quotes"
BLOCK = """All done.

---
SIGNAL: EXECUTION_COMPLETE
PHASE: execution
STATUS: complete
TIMESTAMP: %s
NEXT: none
---"""
BOOKED = {  # the recorder's word -> what the text holds that it stands for
    "gate:said": re.escape(GATE),
    "handoff:asked": "Context is",
    "signal:delivered": re.escape(SIGNAL),
    "injection:attempted": "Handoff of the session before|Context for this session",
    "auto:held": HOLD,
}
OUTER = {  # what an agent finds that was started from inside another one
    "AI_AGENT": "claude-code_2-1-326_agent",
    "CLAUDECODE": "1",
    "CLAUDE_CODE_SESSION_ID": "the-outer-session",
    "CLAUDE_PROJECT_DIR": "/the/outer/project",
    "GROK_SESSION_ID": "the-outer-session-of-grok",
}
WANTED_CLIENTS = [one for one in CLIENTS if not WANTED or one.name in WANTED]


def usable_of(client):
    return int((client.window or 200_000) * client.compacts_at) // 100


def tokens_of(client):
    return usable_of(client) * PERCENT // 100 + 1


def write_handoff(client, goal):
    """A turn that writes the handoff where the reminder in the request says."""

    def tools(request):
        path = re.search(r"handoff for the next session to (\S+) now", request.text)
        text = "# Handoff\n\n## Goal\n%s\n\n## Next\n- run the tests\n" % goal
        words = (shlex.quote(text), shlex.quote(path.group(1)) if path else "no-path")
        return [client.shell("printf %%s %s > %s" % words)]

    return Turn("I write the handoff.", tools, tokens_of(client) + 10)


def completion_block(_):
    return BLOCK % time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Session:
    """What stayed of one session: its requests, and what the hooks said."""

    def __init__(self, lab, client, prompt, *turns, **env):
        lab.stub.script(*turns)
        self.printed = lab.run(client, prompt, **env)
        self.requests = lab.stub.main()
        self.monitors = lab.started("monitor")
        self.said = lab.said()
        self.ran_out = lab.stub.ran_out

    def at(self, text):
        """The numbers of the requests in which the text stood."""
        numbers = range(len(self.requests))
        return [number for number in numbers if self.requests[number].holds(text)]

    def lost(self):
        """What hooks said for the agent and no request held."""
        return [(mode, text[:200]) for mode, text in self.said if not self.at(text)]


class Day:
    """Two sessions of one client: the first writes a handoff, the second gets it."""

    def __init__(self, lab, client):
        self.lab, self.client = lab, client
        self.label = client.label
        lab.write(".contextrc", SETTINGS + ("" if client.window else WINDOW_SETTING))
        lab.install(client.agent)
        lab.ctx("signal", SIGNAL, "--ttl", "3600")
        lab.ctx("auto", "start", "Build the parser", "--any")
        tokens = tokens_of(client)
        self.first = Session(
            lab,
            client,
            "Please build it.",
            Turn("I look around.", [client.shell("echo one")], tokens),
            write_handoff(client, GOAL),
            Turn("I stop here.", tokens=tokens + 20),
            Turn(completion_block, tokens=tokens + 30),
            **OUTER,
        )
        self.left_after_first = self.leftovers()
        self.state = json.loads((lab.project / ".caw/auto-state.json").read_text())
        look = Turn("I look.", [client.shell("echo two")])
        self.second = Session(lab, client, "And now?", look, "I see.", **OUTER)

    def leftovers(self):
        found = self.lab.files(".context/signals/sessions/*/*")
        found += [path.name for path in self.lab.temp.glob("ctx-*")]
        calm = self.lab.home / ".cache/ctx_hooks/calm"
        return found + [path.name for path in calm.glob("*")]


@pytest.fixture(scope="module")
def days(installed, tmp_path_factory):
    """days(client) -> its Day; each is lived once."""
    known = {}

    def day(client):
        if installed[client.name]:
            pytest.skip(installed[client.name])
        if client.name not in known:
            lab = Lab(tmp_path_factory.mktemp(client.name) / "lab")
            known[client.name] = Day(lab, client)
        return known[client.name]

    yield day
    for one in known.values():
        one.lab.close()
        assert not one.lab.left, "processes left running: %s" % one.lab.left


for_each_client = pytest.mark.parametrize(
    "client", WANTED_CLIENTS, ids=lambda client: client.name
)


@pytest.mark.mode("gate")
@for_each_client
def test_the_context_files_stand_in_the_request_after_the_first_tool(days, client):
    day = days(client)
    assert day.first.at(GATE)[:1] == [1], day.first.printed[-2000:]
    assert sum(GATE in text for _, text in day.first.said) == 1


@pytest.mark.mode("signal")
@for_each_client
def test_a_signal_stands_in_the_first_request_that_can_carry_it(
    days, client, record_property
):
    day = days(client)
    with_prompt = client.has_prompt_event
    record_property("cell", "with the prompt" if with_prompt else "after a tool")
    first = 0 if with_prompt else 1
    assert day.first.at(SIGNAL)[:1] == [first], day.first.printed[-2000:]
    assert sum(SIGNAL in text for _, text in day.first.said) == 1


@pytest.mark.mode("reminder")
@for_each_client
def test_the_reminder_names_the_share_until_there_is_a_handoff(
    days, client, record_property
):
    day = days(client)
    told = "exact" if client.window else "exact, window by a setting"
    record_property("cell", told)
    tokens = tokens_of(client) + client.counts_output * OUTPUT_TOKENS
    numbers = (PERCENT, format(tokens, ","), format(usable_of(client), ","))
    wanted = "Context is %d%% full (%s of %s usable tokens)" % numbers
    spoken = [text for mode, text in day.first.said if mode == "monitor"]
    assert day.first.at(wanted)[:1] == [1], spoken
    assert sum("Context is" in text for _, text in day.first.said) == 1


@pytest.mark.mode("stop")
@for_each_client
def test_the_agent_is_held_and_its_completion_block_releases_it(days, client):
    day = days(client)
    assert day.first.at(HOLD)[:1] == [3], day.first.printed[-2000:]
    assert len(day.first.requests) == 4 and not day.first.ran_out
    assert day.state["phase"] == "complete", day.state


@pytest.mark.mode("start")
@for_each_client
def test_the_next_session_starts_from_the_handoff(days, client, record_property):
    day = days(client)
    record_property("cell", "✓" if client.starts_with_text else "after a tool")
    first = 0 if client.starts_with_text else 1
    assert day.second.at(GOAL)[:1] == [first], day.second.printed[-2000:]
    assert sum(GOAL in text for _, text in day.second.said) == 1


@for_each_client
def test_everything_that_a_hook_said_stood_in_a_request(days, client):
    day = days(client)
    assert day.first.said and day.second.said
    assert day.first.lost() == [] and day.second.lost() == []


@for_each_client
def test_nothing_is_booked_that_did_not_arrive(days, client):
    day = days(client)
    booked = [row["event"] for row in day.lab.recorded()]
    for event, mark in BOOKED.items():
        texts = []
        for session in (day.first, day.second):
            texts += [text for _, text in session.said if session.at(text)]
        said = [text for text in texts if re.search(mark, text)]
        assert booked.count(event) == len(said), event


@for_each_client
def test_the_kit_knows_whose_session_it_was(days, client):
    day = days(client)
    rows = [json.loads(path.read_text()) for path in day.lab.state_files("session-*")]
    assert {row["agent"] for row in rows} == {client.dialect or client.agent}
    assert not day.lab.state_files("errors.log")


@pytest.mark.mode("cleanup")
@for_each_client
def test_the_end_of_a_session_leaves_nothing_of_it(days, client):
    day = days(client)
    if not client.has_end_event:
        pytest.skip("%s tells no end of a session with one prompt" % client.label)
    assert day.left_after_first == [] and day.leftovers() == []


@for_each_client
def test_an_agent_that_never_finishes_is_released_by_the_kit(days, client):
    """After the other tests of this client: several let an agent be held for ever."""
    day = days(client)
    day.lab.ctx("auto", "start", "Never done", "--any")
    look = Turn("I look.", [client.shell("echo one")])
    endless = Session(day.lab, client, "Go on.", look)
    assert 2 <= len(endless.at(HOLD)) and len(endless.requests) <= 8
    day.lab.ctx("auto", "stop")


CALLS, FAILING = 12, "cat /no/such; exit 3"


@pytest.mark.mode("calls")
@for_each_client
def test_most_calls_of_a_calm_session_start_no_python(days, client, record_property):
    """The first call speaks of the context files; then there is nothing to say."""
    day = days(client)
    calls = []
    for number in range(CALLS):
        is_last = number == CALLS - 1
        command = client.shell(FAILING if is_last else "echo call %d" % number)
        calls.append(Turn("Step.", [command], 20_000 + 500 * number))
    seen = Session(day.lab, client, "Step by step.", *calls, "Done.")
    record_property("cell", "%d of %d start Python" % (seen.monitors, CALLS))
    assert len(seen.requests) == CALLS + 1, seen.printed[-2000:]
    assert seen.monitors <= CALLS // 2 if client.has_calm else seen.monitors == CALLS
    facts = day.lab.newest_session()["facts"]
    assert (facts["tool_calls"], facts["failed"].get("command")) == (CALLS, FAILING)


# --- handoffs that cross

CROSSING = [one for one in WANTED_CLIENTS if one.agent == one.name]


@pytest.fixture(scope="module")
def crossings(installed, tmp_path_factory):
    """crossings(client): Claude Code, the client, Claude Code again, in one project."""
    known = {}

    def cross(client):
        claude = Claude()
        for one in (claude, client):
            if installed[one.name]:
                pytest.skip("%s: %s" % (one.label, installed[one.name]))
        if client.name not in known:
            lab = Lab(tmp_path_factory.mktemp("cross-" + client.name) / "lab")
            known[client.name] = lab
            lab.write(".contextrc", SETTINGS + WINDOW_SETTING * (not client.window))
            lab.install("claude", client.agent)
        return known[client.name]

    yield cross
    for lab in known.values():
        lab.close()


@pytest.mark.mode("handed on")
@pytest.mark.parametrize("client", CROSSING, ids=lambda client: client.name)
def test_a_handoff_crosses_from_claude_code_and_back(crossings, client):
    lab = crossings(client)
    goals = ("handed from Claude Code", "handed back", "nothing more")
    seen = []
    for one, goal in zip((Claude(), client, Claude()), goals):
        look = Turn("I look.", [one.shell("echo one")], tokens_of(one))
        turns = (look, write_handoff(one, goal), "Done.")
        seen.append(Session(lab, one, "Go on.", *turns))
    there, back, _ = goals
    first = 0 if client.starts_with_text else 1
    assert seen[0].at(there)[:1] == [2], seen[0].printed[-2000:]
    assert seen[1].at(there)[:1] == [first], seen[1].printed[-2000:]
    assert seen[2].at(back)[:1] == [0] and not seen[2].at(there)
    assert [session.lost() for session in seen] == [[], [], []]


# --- Codex's terminal


@pytest.mark.skipif(WANTED and "codex" not in WANTED, reason="not asked for")
def test_a_session_quit_in_codexs_terminal_gets_its_handoff_at_the_next_start(
    installed, tmp_path
):
    """/quit tells no SessionEnd there; and only hooks that a person trusted run."""
    codex = Codex()
    if installed["codex"]:
        pytest.skip(installed["codex"])
    lab = Lab(tmp_path / "lab")
    lab.install("codex")
    commands = ("printf 'fixed\\n' > parser.txt", "touch b; make-it-fail")
    last = [
        "The parser is half done."
    ] * 4  # the terminal asks for more, such as a title
    calls = [codex.shell(command) for command in commands]
    lab.stub.script(Turn("I edit.", calls), *last)
    terminal = Terminal(lab, codex)
    try:
        terminal.wait("Use existing model", 40)  # it praises its newest one first
        terminal.type("2")
        terminal.wait("Ask Codex to do anything", 40)
        terminal.type("please mend the parser")
        terminal.wait("The parser is half done.", 40)
        time.sleep(1)
        terminal.type("/quit")
        terminal.wait_for_end()
        said_in_terminal = lab.said()
        assert not lab.files(".context/handoffs/*.md"), "a session end came after all"
        seen = Session(lab, codex, "And now?", "I see.")
    finally:
        terminal.close()
        lab.close()
    assert any(GATE in text for _, text in said_in_terminal)
    assert seen.at("please mend the parser")[:1] == [0], seen.printed[-2000:]
    assert seen.at("make-it-fail")[:1] == [0]
