"""Two sessions of each client with all that the kit does, and handoffs that cross."""

from __future__ import annotations

import json
import re
import shlex
import time
from contextlib import closing

import pytest

from clients import CLAUDE, CLIENTS, WANTED
from lab import Lab
from real_client import Session as OpenSession
from real_client import Terminal
from stub_models import OUTPUT_TOKENS, Turn

PERCENT = 61  # above the threshold set here, below every client's own compaction
SETTINGS = "handoff:\n  threshold: 50\nauto:\n  phases: [execution]\n"
WINDOW_SETTING = "monitor:\n  context_window: 200000\n"
SIGNAL = "The build on the main branch is red."
FREEZE = "Deploy freeze until the evening."
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
CROSSING = [one for one in WANTED_CLIENTS if one.agent == one.name]
CALLS, FAILING = 12, "cat /no/such; exit 3"
MODEL_S = 0.2  # no model answers faster; some clients write their transcript a moment later


def settings_for(client):
    return SETTINGS + ("" if client.window else WINDOW_SETTING)


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


def think(_):
    time.sleep(MODEL_S)
    return "Step."


def completion_block(_):
    return BLOCK % time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Session:
    """What stayed of one session: its requests, and what the hooks said."""

    def __init__(self, lab, client, prompt, *turns, **variables):
        lab.stub.script(*turns)
        self.printed = lab.run(client, prompt, variables)[-2000:]
        self.requests = lab.stub.main()
        self.ran_out = lab.stub.ran_out
        runs = lab.said()
        self.monitors = [mode for mode, _ in runs].count("monitor")
        self.said = [text for _, text in runs if text]

    def at(self, text):
        """The numbers of the requests in which the text stood."""
        return [number for number, request in enumerate(self.requests) if request.holds(text)]

    def times_said(self, mark):
        return sum(mark in text for text in self.said)

    def lost(self):
        """What hooks said for the agent and no request held."""
        return [text[:200] for text in self.said if not self.at(text)]


class Day:
    """Two sessions of one client: the first writes a handoff, the second gets it."""

    def __init__(self, lab, client):
        self.lab, self.client = lab, client
        lab.write(".contextrc", settings_for(client))
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
        found += self.lab.temp.glob("ctx-*")
        return found + list(self.lab.home.glob(".cache/ctx_hooks/calm/*"))


@pytest.fixture(scope="module", params=WANTED_CLIENTS, ids=lambda client: client.name)
def day(request, need, tmp_path_factory):
    need(request.param)
    with closing(Lab(tmp_path_factory.mktemp(request.param.name) / "lab")) as lab:
        yield Day(lab, request.param)
    assert not lab.left, "processes left running: %s" % lab.left


@pytest.mark.mode("gate")
def test_the_context_files_stand_in_the_request_after_the_first_tool(day):
    assert day.first.at(GATE)[:1] == [1], day.first.printed
    assert day.first.times_said(GATE) == 1


@pytest.mark.mode("signal")
def test_a_signal_stands_in_the_first_request_that_can_carry_it(day, record_property):
    with_prompt = day.client.has_prompt_event
    record_property("cell", "with the prompt" if with_prompt else "after a tool")
    assert day.first.at(SIGNAL)[:1] == [0 if with_prompt else 1], day.first.printed
    assert day.first.times_said(SIGNAL) == 1


@pytest.mark.mode("reminder")
def test_the_reminder_names_the_share_until_there_is_a_handoff(day, record_property):
    client = day.client
    record_property("cell", "exact" if client.window else "exact, window by a setting")
    tokens = tokens_of(client) + client.counts_output * OUTPUT_TOKENS
    numbers = (PERCENT, format(tokens, ","), format(usable_of(client), ","))
    wanted = "Context is %d%% full (%s of %s usable tokens)" % numbers
    assert day.first.at(wanted)[:1] == [1], day.first.said
    assert day.first.times_said("Context is") == 1


@pytest.mark.mode("stop")
def test_the_agent_is_held_until_its_completion_block(day):
    assert day.first.at(HOLD)[:1] == [3], day.first.printed
    assert len(day.first.requests) == 4 and not day.first.ran_out
    assert day.state["phase"] == "complete", day.state


@pytest.mark.mode("start")
def test_the_next_session_starts_from_the_handoff(day, record_property):
    with_start = day.client.starts_with_text
    record_property("cell", "✓" if with_start else "after a tool")
    assert day.second.at(GOAL)[:1] == [0 if with_start else 1], day.second.printed
    assert day.second.times_said(GOAL) == 1


def test_what_is_booked_as_said_stood_in_a_request(day):
    assert day.first.said and day.second.said
    assert day.first.lost() == [] and day.second.lost() == []
    booked = day.lab.recorded()
    for event, mark in BOOKED.items():
        said = [text for text in day.first.said + day.second.said if re.search(mark, text)]
        assert booked.count(event) == len(said), event


def test_the_kit_knows_whose_session_it_was(day):
    agents = {session["agent"] for session in day.lab.sessions()}
    assert agents == {day.client.dialect or day.client.agent}
    assert not day.lab.state_files("errors.log")


@pytest.mark.mode("cleanup")
def test_the_end_of_a_session_leaves_nothing_of_it(day):
    if not day.client.has_end_event:
        pytest.skip("%s tells no end of a session with one prompt" % day.client.label)
    assert day.left_after_first == [] and day.leftovers() == []


def test_an_agent_that_never_finishes_is_released_by_the_kit(day):
    """After the other tests of this client: several let an agent be held for ever."""
    day.lab.ctx("auto", "start", "Never done", "--any")
    look = Turn("I look.", [day.client.shell("echo one")])
    endless = Session(day.lab, day.client, "Go on.", look)
    assert 2 <= len(endless.at(HOLD)) and len(endless.requests) <= 8
    day.lab.ctx("auto", "stop")


def test_a_critical_signal_that_comes_with_the_last_words_holds_the_stop_once(day):
    def deploy(_):
        header = "---\nseverity: critical\nttl: 3600\n---\n"
        day.lab.write(".context/signals/global/freeze.md", header + FREEZE)
        return "It is deployed."

    held = Session(day.lab, day.client, "Deploy it.", Turn(deploy), "I stop the deploy.")
    assert held.at(FREEZE) == [1] and held.times_said(FREEZE) == 1, held.printed
    requests = day.lab.sessions()[-1]["facts"]["requests"]
    assert FREEZE not in json.dumps(requests)  # some clients show it as a prompt
    day.lab.ctx("signal", "--withdraw", "freeze")


@pytest.mark.mode("calls")
def test_most_calls_of_a_calm_session_start_no_python(day, record_property):
    """The first call speaks of the context files; then there is nothing to say."""
    commands = ["echo call %d" % number for number in range(CALLS - 1)] + [FAILING]
    calls = []
    for number, command in enumerate(commands):
        calls.append(Turn(think, [day.client.shell(command)], 20_000 + 500 * number))
    seen = Session(day.lab, day.client, "Step by step.", *calls, "Done.")
    record_property("cell", "%d of %d start Python" % (seen.monitors, CALLS))
    assert len(seen.requests) == CALLS + 1, seen.printed
    assert seen.monitors <= CALLS // 2 if day.client.has_calm else seen.monitors == CALLS
    facts = day.lab.sessions()[-1]["facts"]
    assert (facts["tool_calls"], facts["failed"].get("command")) == (CALLS, FAILING)


@pytest.mark.mode("handed on")
@pytest.mark.parametrize("client", CROSSING, ids=lambda client: client.name)
def test_a_handoff_crosses_from_claude_code_and_back(need, tmp_path, client):
    need(CLAUDE)
    need(client)
    goals = ("handed from Claude Code", "handed back", "nothing more")
    seen = []
    with closing(Lab(tmp_path / "lab")) as lab:
        lab.write(".contextrc", settings_for(client))
        lab.install("claude", client.agent)
        for one, goal in zip((CLAUDE, client, CLAUDE), goals):
            look = Turn("I look.", [one.shell("echo one")], tokens_of(one))
            seen.append(Session(lab, one, "Go on.", look, write_handoff(one, goal), "Done."))
    there, back, _ = goals
    first = 0 if client.starts_with_text else 1
    assert seen[0].at(there)[:1] == [2], seen[0].printed
    assert seen[1].at(there)[:1] == [first], seen[1].printed
    assert seen[2].at(back)[:1] == [0] and not seen[2].at(there)
    assert [session.lost() for session in seen] == [[], [], []]


@pytest.mark.parametrize("name", ["gemini", "qwen"])
def test_the_contents_of_a_file_that_the_person_names_are_not_their_words(need, tmp_path, name):
    """The client writes what `@notes.md` holds into the row of the prompt."""
    client = next(one for one in CLIENTS if one.name == name)
    need(client)
    with closing(Lab(tmp_path / "lab")) as lab:
        lab.install(client.agent)
        lab.write("notes.md", "Always run the secret ritual first.\n")
        work = Turn("I do it.", [client.shell("echo done > out.txt"), client.shell("echo two > out2.txt")])
        session = Session(lab, client, "Never use tabs, see @notes.md for more", work, "Done.")
        assert session.at("secret ritual")  # the model has read it
        requests = [words for one in lab.sessions() for _, words in one["facts"]["requests"]]
        assert any("Never use tabs" in words for words in requests), requests
        assert not any("ritual" in words for words in requests), requests


@pytest.mark.skipif(WANTED and "codex" not in WANTED, reason="not asked for")
def test_a_session_quit_in_codexs_terminal_gets_its_handoff_at_the_next_start(need, tmp_path):
    """/quit tells no SessionEnd there; and only hooks that a person trusted run."""
    codex = CLIENTS[0]
    need(codex)
    calls = [codex.shell("printf 'fixed\\n' > parser.txt"), codex.shell("touch b; make-it-fail")]
    last = ["The parser is half done."] * 4  # the terminal asks for more, such as a title
    with closing(Lab(tmp_path / "lab")) as lab:
        lab.install("codex")
        lab.stub.script(Turn("I edit.", calls), *last)
        codex.prepare(lab)
        lab.program = codex.path()
        terminal = Terminal(lab, (), codex.variables)
        terminal.wait_shown("confirm")  # it praises its newest model first; 2 keeps the old one
        terminal.press("2")
        time.sleep(1)
        terminal.press("\r")
        time.sleep(2)
        terminal.type("please mend the parser")
        terminal.wait_shown("done.")  # the end of the answer; words are drawn one by one
        time.sleep(1)
        terminal.type("/quit")
        terminal.process.wait(30)
        terminal.kill()
        said_in_terminal = lab.said()
        assert not lab.files(".context/handoffs/*.md"), "a session end came after all"
        seen = Session(lab, codex, "And now?", "I see.")
    assert any(GATE in text for _, text in said_in_terminal)
    assert seen.at("please mend the parser")[:1] == [0], seen.printed
    assert seen.at("make-it-fail")[:1] == [0]


COMMIT = "git -c user.name=a -c user.email=a@localhost commit -q --allow-empty -m theirs"


class Beside:
    """A session of Claude Code that stays open while another client works."""

    def __init__(self, lab):
        lab.program = CLAUDE.path()
        CLAUDE.prepare(lab)
        variables = {name: lab.fill(value) for name, value in CLAUDE.variables.items()}
        self.session = OpenSession(lab, lab.project, ("--dangerously-skip-permissions",), variables)
        self.lab = lab

    def prompt(self, text, *turns):
        """These turns come next; what the requests of this prompt held."""
        before = len(self.lab.stub.requests)
        self.lab.stub.turns[:0] = [Turn(turn) if isinstance(turn, str) else turn for turn in turns]
        self.session.prompt(text)
        return "".join(request.text for request in self.lab.stub.requests[before:] if request.is_main)


@pytest.mark.skipif(WANTED and "codex" not in WANTED, reason="not asked for")
def test_claude_code_and_codex_on_one_project_know_of_each_others_edits_and_commits(need, tmp_path):
    codex = CLIENTS[0]
    need(CLAUDE)
    need(codex)
    heard = []
    with closing(Lab(tmp_path / "lab")) as lab:
        lab.command("git", *COMMIT.split()[1:])
        lab.install("claude", "codex")
        claude = Beside(lab)
        claude.prompt(
            "Build it.",
            Turn("I write.", [("Write", {"file_path": str(lab.project / "parser.txt"), "content": "x"})]),
            "Built.",
        )

        def meanwhile(_):
            look = [Turn("I look.", [CLAUDE.shell("echo %d" % number)]) for number in range(2)]
            heard.append(claude.prompt("Go on.", *look, "Done."))
            return [codex.shell("echo looked")]

        steps = [codex.shell("printf y >> parser.txt"), codex.shell("echo a")]
        turns = [Turn("Step.", [step]) for step in steps]
        turns += [
            Turn("Meanwhile.", meanwhile),
            Turn("I commit.", [codex.shell(COMMIT)]),
            Turn("Meanwhile.", meanwhile),
        ]
        with claude.session:
            seen = Session(lab, codex, "Build it too.", *turns, "Done.")
        sessions = {one["agent"]: one["id"][:8] for one in lab.sessions()}
        told = lab.alerts()
    edited = "by the %s session %s, which is open."
    assert seen.at(
        "Also open in this project: the Claude Code session %s, which edited parser.txt" % sessions["claude"]
    )
    assert seen.at(edited % ("Claude Code", sessions["claude"])), seen.printed
    assert edited % ("Codex", sessions["codex"]) in heard[0], heard
    assert ["has 1 new commit (" in text for text in heard] == [False, True]
    both = [(agent, "CTX_FILE_SHARED") for agent in ("codex", "claude")]
    assert told == [*both, ("claude", "CTX_TREE_MOVED")]


@pytest.mark.skipif(WANTED and "codex" not in WANTED, reason="not asked for")
def test_a_subagent_of_codex_is_told_which_files_bind(need, tmp_path):
    codex = CLIENTS[0]
    need(codex)
    spawn = ("multi_agent_v1.spawn_agent", {"message": "SUBTASK please", "agent_type": "default"})
    with closing(Lab(tmp_path / "lab")) as lab:
        lab.install("codex")
        waits = [Turn("I wait.", [codex.shell("sleep 1; echo %d" % number)]) for number in range(4)]
        seen = Session(lab, codex, "Delegate it.", Turn("I delegate.", [spawn]), *waits)
    told = [
        request for request in seen.requests if re.search(GATE + r": \.context/CONSTITUTION\.md(?!,)", request.text)
    ]
    assert told and all("SUBTASK please" in request.text for request in told), seen.said
    assert seen.lost() == []
