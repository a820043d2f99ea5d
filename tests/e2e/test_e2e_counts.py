"""Parallel calls and subagents; counts are exact and nothing of the main session is consumed."""

from __future__ import annotations

from stub_model import SUBAGENT_MARKER, Turn, bash

GATE = "STOP. Read your context files"
REMINDER = "BEGIN HANDOFF"


def state_now(kit, into):
    return lambda request: into.append(kit.state(kit.open[-1].id))


def agent(background):
    return (
        "Agent",
        {
            "description": "sub",
            "prompt": SUBAGENT_MARKER + " go",
            "subagent_type": "general-purpose",
            "run_in_background": background,
        },
    )


def test_parallel_calls_are_counted_exactly(kit):
    states = []
    reads = [("Read", {"file_path": str(kit.path(".context/" + name))}) for name in ("TASKS.md", "DECISIONS.md")]
    calls = reads + [("Bash", {"command": "cat README.md"})] * 5 + [("Bash", {"command": "false"})]
    kit.stub.script(Turn("eight", calls), Turn("eight", calls), Turn("done", act=state_now(kit, states)))
    kit.run("work")
    assert states[0]["tool_calls"] == 16


def test_a_subagent_hears_nothing_and_its_calls_are_not_counted(kit):
    states = []
    kit.stub.subagent_turns = [
        bash("echo 1", tokens=165_000),
        bash("echo 2", "echo 3", tokens=165_000),
        Turn("sub done"),
    ]
    kit.stub.script(
        bash("echo a", tokens=164_000),
        Turn("", [agent(False)], tokens=165_000),
        Turn("done", act=state_now(kit, states)),
    )
    kit.run("work")
    assert len(kit.stub.of("subagent")) == 3
    assert all(GATE not in r.text() and REMINDER not in r.text() for r in kit.stub.of("subagent"))
    assert GATE in kit.stub.of("main")[1].news() and REMINDER in kit.stub.of("main")[2].news()
    assert states[0]["tool_calls"] == 2


def test_a_subagents_first_call_leaves_the_gate_for_the_main_session(kit):
    forget = lambda _: [path.unlink() for path in kit.temp.glob("ctx-*")]  # noqa: E731 (as before a first call)
    kit.stub.subagent_turns = [bash("echo sub", act=forget), Turn("sub done")]
    kit.stub.script(Turn("", [agent(False)]), bash("echo main"), "done")
    kit.run("work")
    assert all(GATE not in r.text() for r in kit.stub.of("subagent"))
    assert GATE in kit.stub.of("main")[2].news()


def test_a_background_subagent_does_not_consume_a_signal(kit):
    kit.stub.subagent_turns = [bash("sleep 5; echo sub"), Turn("sub done")]  # longer than `signal` takes on a busy machine
    kit.stub.script(Turn("", [agent(True)]), "waiting", "noted")
    with kit.session() as session:
        session.prompt("work")
        kit.ctx("signal", "CI failed on main.", "--session", session.id)
        session.wait_result("the notification")
    assert all("CI failed" not in r.text() for r in kit.stub.of("subagent"))
    assert (
        "task-notification" in kit.stub.of("main")[-1].news() and "CI failed on main." in kit.stub.of("main")[-1].news()
    )
