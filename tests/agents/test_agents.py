"""Two sessions of each client with everything the kit does in them, and a handoff that changes clients."""

from __future__ import annotations

import json
import re
import shlex
import time

import pytest

from clients import CLIENTS, WANTED, Claude, Codex
from lab import Lab
from stub_models import Turn

PERCENT = 61  # above the threshold set here, below every client's own compaction
SETTINGS = "handoff:\n  threshold: 50\nauto:\n  phases: [execution]\n"
WINDOW_UNKNOWN = 200_000
SIGNAL = "The build on the main branch is red."
GATE = "STOP. Read your context files before proceeding"
HOLD = "## Auto Mode Continuation"
GOAL = "finish the parser for quotes"
BLOCK = "---\nSIGNAL: EXECUTION_COMPLETE\nPHASE: execution\nSTATUS: complete\nTIMESTAMP: %s\nNEXT: none\n---"
BOOKED = {  # the recorder's word -> how the text begins that it stands for
    "gate:emitted": GATE, "handoff:reminded": "Context is", "signals:delivered": "[ctx monitor]",
    "injection:attempted": "[CONTEXT INJECTION", "stop:held": HOLD,
}
OUTER = {  # what an agent finds that was started from inside another one
    "AI_AGENT": "claude-code_2-1-325_agent", "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "the-outer-session",
    "CLAUDE_PROJECT_DIR": "/the/outer/project", "CLAUDE_CODE_SESSION_ATTENDED": "0",
}
WANTED_CLIENTS = [client for client in CLIENTS if not WANTED or client.name in WANTED]


def tokens_of(client):
    return (client.exact_window or WINDOW_UNKNOWN) * PERCENT // 100 + 1


def write_handoff(client, goal):
    """A turn that writes the handoff where the reminder in the request says, and does not know it otherwise."""

    def tools(request):
        path = re.search(r"handoff for the next session to (\S+) now", request.text)
        text = "# Handoff\n\n## Goal\n%s\n\n## Next\n- run the tests\n" % goal
        command = "printf %%s %s > %s" % (shlex.quote(text), shlex.quote(path.group(1))) if path else "echo no path"
        return [client.shell(command)]

    return Turn("I write the handoff.", tools, tokens_of(client) + 10)


def completion_block(_):
    return "All done.\n\n" + BLOCK % time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Day:
    """Two sessions of one client in one project: the first writes a handoff, the second starts from it."""

    def __init__(self, lab, client):
        self.lab, self.client = lab, client
        lab.write(".contextrc", SETTINGS + ("" if client.exact_window else "monitor:\n  context_window: 200000\n"))
        lab.install(client.agent)
        lab.ctx("signal", SIGNAL, "--global", "--ttl", "3600")
        lab.ctx("auto", "start", "Build the parser", "--any")
        tokens = tokens_of(client)
        self.first = self.session(
            "Please build it.",
            Turn("I look around.", [client.shell("echo one")], tokens),
            write_handoff(client, GOAL),
            Turn("I stop here.", tokens=tokens + 20),
            Turn(completion_block, tokens=tokens + 30),
        )
        self.left_after_first = self.leftovers()
        self.state = json.loads((lab.project / ".caw/auto-state.json").read_text())
        self.second = self.session("And now?", "ACK: context received.")

    def session(self, prompt, *turns):
        self.lab.stub.script(*turns)
        printed = self.lab.run(self.client, prompt, **OUTER)
        return Session(self.lab, printed)

    def leftovers(self):
        found = self.lab.files(".context/state/*.json") + self.lab.files(".context/signals/sessions/*/*")
        found += [path.name for path in self.lab.temp.glob("ctx-*")]
        return [name for name in found if not name.endswith("handoffs.json")]


class Session:
    """What stayed of one session: the requests of its main loop, and what the hooks said."""

    def __init__(self, lab, printed):
        self.requests, self.said, self.printed = lab.stub.main(), lab.said(), printed
        self.ran_out = lab.stub.ran_out

    def at(self, text):
        """The numbers of the requests in which the text stood."""
        return [number for number, request in enumerate(self.requests) if request.holds(text)]

    def lost(self):
        """What hooks said for the agent and no request held."""
        return [(mode, text[:200]) for mode, text in self.said if not self.at(text)]


@pytest.fixture(scope="module", params=WANTED_CLIENTS, ids=lambda client: client.name)
def day(request, installed, tmp_path_factory):
    client = request.param
    if installed[client.name]:
        pytest.skip(installed[client.name])
    lab = Lab(tmp_path_factory.mktemp(client.name) / "lab")
    yield Day(lab, client)
    lab.close()
    assert not lab.left, "processes left running: %s" % lab.left


@pytest.mark.mode("gate")
def test_the_list_of_context_files_stands_in_the_request_after_the_first_tool(day, record_property):
    record_property("cell", "before a tool" if day.client.speaks_before_a_tool else "after a tool")
    assert day.first.at(GATE)[:1] == [1], day.first.printed[-2000:]
    assert [mode for mode, text in day.first.said if GATE in text] == ["gate" if day.client.speaks_before_a_tool else "monitor"]


@pytest.mark.mode("prompt")
def test_a_signal_stands_in_the_first_request_that_can_carry_it(day, record_property):
    record_property("cell", "with the prompt" if day.client.has_prompt_event else "after a tool")
    assert day.first.at(SIGNAL)[:1] == [0 if day.client.has_prompt_event else 1], day.first.printed[-2000:]
    assert not day.second.at(SIGNAL) or day.second.requests[0].text.count(SIGNAL) == 1


@pytest.mark.mode("reminder")
def test_the_reminder_names_the_exact_share_of_the_window_until_there_is_a_handoff(day, record_property):
    record_property("cell", "exact" if day.client.exact_window else "exact, window by a setting")
    window = day.client.exact_window or WINDOW_UNKNOWN
    wanted = "Context is %d%% full (%s/%s tokens)" % (PERCENT, format(tokens_of(day.client), ","), format(window, ","))
    assert day.first.at(wanted)[:1] == [1], [text for mode, text in day.first.said if mode == "monitor"]
    assert sum("Context is" in text for _, text in day.first.said) == 1
    (written,) = day.lab.files(".context/handoffs/*.md")
    assert GOAL in (day.lab.project / written).read_text()


@pytest.mark.mode("stop")
def test_the_agent_is_held_and_its_completion_block_releases_it(day):
    assert day.first.at(HOLD)[:1] == [3], day.first.printed[-2000:]
    assert len(day.first.requests) == 4 and not day.first.ran_out
    assert (day.state["phase"], day.state["active"]) == ("complete", False)


@pytest.mark.mode("start")
def test_the_next_session_starts_from_the_handoff(day):
    assert day.second.at(GOAL)[:1] == [0], day.second.printed[-2000:]
    assert sum(GOAL in text for _, text in day.second.said) == 1


@pytest.mark.mode("booked")
def test_everything_that_a_hook_said_stood_in_a_request(day):
    assert day.first.said and day.second.said
    assert day.first.lost() == [] and day.second.lost() == []


@pytest.mark.mode("booked")
def test_nothing_is_booked_that_did_not_arrive(day):
    """What the recorder calls said was in a request, as often as it was said; and under the client's own name."""
    said = [row for row in day.lab.recorded() if row["event"] in BOOKED]
    assert {row["agent"] for row in said} == {day.client.bin}
    sessions = list(dict.fromkeys(row["session"] for row in said))
    for session, seen in zip(sessions, (day.first, day.second)):
        for event, mark in BOOKED.items():
            booked = [row for row in said if row["event"] == event and row["session"] == session]
            assert len(booked) == sum(mark in text for _, text in seen.said if seen.at(text)), (event, booked)


@pytest.mark.mode("cleanup")
def test_the_end_of_a_session_leaves_nothing_of_it(day):
    if not day.client.has_end_event:
        pytest.skip("%s tells no end of a session with one prompt; its files go by age" % day.client.label)
    assert day.left_after_first == [] and day.leftovers() == []


@pytest.mark.mode("brake")
def test_an_agent_that_never_finishes_is_released_by_the_kit(day):
    """After the other tests of this client: several of them let a held agent go on for ever."""
    day.lab.ctx("auto", "start", "Never done", "--any")
    endless = day.session("Go on.", Turn("I look.", [day.client.shell("echo one")]))
    assert 2 <= len(endless.at(HOLD)) and len(endless.requests) <= 8
    day.lab.ctx("auto", "stop")


def test_a_handoff_written_in_claude_code_is_read_in_codex_and_back(installed, tmp_path):
    claude, codex = Claude(), Codex()
    for client in (claude, codex):
        if installed[client.name]:
            pytest.skip("%s: %s" % (client.label, installed[client.name]))
    lab = Lab(tmp_path / "lab")
    lab.write(".contextrc", SETTINGS)
    lab.install("claude", "codex")
    there, back, last = "handed from Claude Code", "handed back from Codex", "nothing more"
    seen = []
    for client, goal in ((claude, there), (codex, back), (claude, last)):
        lab.stub.script(Turn("I look.", [client.shell("echo one")], tokens_of(client)), write_handoff(client, goal), "Done.")
        printed = lab.run(client, "Go on.")
        seen.append(Session(lab, printed))
    assert seen[0].at(there) == [2] and not seen[0].at(back)
    assert seen[1].at(there)[:1] == [0] and [s.lost() for s in seen] == [[], [], []]
    assert seen[2].at(back)[:1] == [0] and not seen[2].at(there)
    lab.close()
    assert not lab.left
