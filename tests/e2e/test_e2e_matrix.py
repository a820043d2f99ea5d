"""In every permission mode, whatever the agent does, there is a handoff in the end and the next session has it."""

from __future__ import annotations

import pytest

from agents import Complies, Ignores, Refuses
from real_client import MODES

WAYS = {"complies": Complies, "refuses": Refuses, "ignores": Ignores}
MAY_WRITE = ("acceptEdits", "bypassPermissions")  # without a rule in the settings
TASK = "Teach the parser about quotes, please."
TEXT = "# Goal\nThe parser knows quotes.\n# Next steps\n1. escape sequences\n"
SENTENCE = "The parser knows quotes."


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
def test_there_is_a_handoff_and_the_next_session_has_it(kit, handoff_table, mode, way):
    with handoff_table.cell(mode, way) as cell:
        agent = WAYS[way](kit, TEXT, may_write=mode in MAY_WRITE)
        cell.play(kit, agent, mode, TASK)
        expected = "the agent" if mode in MAY_WRITE else "its answer"
        assert cell.by == (expected if way == "complies" else "the transcript"), (cell.by, agent.did, cell.text)
        cell.arrive(kit, mode, SENTENCE if way == "complies" else TASK)
        if mode == "plan":
            assert set(agent.asked) == {"print"}


@pytest.mark.parametrize("mode", ["default", "dontAsk"])
def test_with_the_rule_of_the_installer_the_agent_may_write_its_handoff(kit, handoff_table, mode):
    kit.install("--allow-handoff")
    with handoff_table.cell(mode + ", with --allow-handoff", "complies") as cell:
        agent = Complies(kit, TEXT)
        cell.play(kit, agent, mode, TASK)
        assert cell.by == "the agent" and cell.text == TEXT and agent.did.count("write") == 1
        cell.arrive(kit, mode, SENTENCE)
