"""The table of handoffs: for each permission mode and each kind of agent, who wrote it and whether it arrived."""

from __future__ import annotations

import contextlib

MECHANICAL = "written by ctx_hooks from the transcript"
ORIGINS = {
    "the agent": "written by the agent",
    "its answer": "printed by the agent, saved at its stop",
    "the transcript": "made from the transcript",
}
COLUMNS = ("complies", "refuses", "ignores")


class Table:
    """What the tests of the matrix found out, as it is printed for the README."""

    def __init__(self):
        self.cells = {}

    @contextlib.contextmanager
    def cell(self, mode, way):
        it = self.cells[mode, way] = Cell()
        yield it
        it.held = True

    def lines(self):
        modes = list(dict.fromkeys(mode for mode, _ in self.cells))
        yield "| permission mode | the agent complies | refuses | ignores |"
        yield "| --- | --- | --- | --- |"
        for mode in modes:
            words = [str(self.cells.get((mode, way), "")) for way in COLUMNS]
            yield "| %s |" % " | ".join([mode] + words)


class Cell:
    """One session that fills up, its end, and the session after it."""

    def __init__(self):
        self.by = ""  # one of ORIGINS
        self.text = ""
        self.held = False  # everything that the test asked for was so

    def __str__(self):
        if not self.held:
            return "FAILED (%s)" % (self.by or "no handoff")
        return ORIGINS[self.by]

    def play(self, world, agent, mode, task):
        world.stub.script(otherwise=agent)
        world.run(task, mode=mode)
        assert agent.asked, "the agent was never asked for a handoff"
        found = world.handoffs()
        assert len(found) == 1, found
        self.text = next(iter(found.values()))
        self.by = "the transcript" if MECHANICAL in self.text else "its answer" if "print" in agent.did else "the agent"

    def arrive(self, world, mode, sentence):
        """Start the next session; a sentence of the handoff must be in its first request."""
        before = len(world.stub.of("main"))
        world.stub.otherwise = None
        world.stub.script("ACK: context received.")
        world.run("go on", mode=mode)
        assert sentence in self.text
        assert sentence in world.stub.of("main")[before].news(), world.stub.of("main")[before].news()[-4000:]
