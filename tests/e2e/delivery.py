"""Figures that are printed after a run: what arrived of the texts for the model, and of the handoffs.

An emission is what a hook run printed (kept by the `python3` of a `World`), not what the client noted about it, so a
text that the client dropped is seen as missing.
"""

from __future__ import annotations

from collections import Counter


class Figures:
    """Emitted and delivered texts over all scenarios."""

    def __init__(self):
        self.emitted = Counter()  # by mode
        self.delivered = Counter()
        self.lost = []  # (scenario, mode, text)

    def add(self, scenario, world):
        wanted = Counter((mode, text) for mode, reply in world.emitted() for text in texts_for_the_model(reply))
        for (mode, text), times in wanted.items():
            arrived = min(times, arrivals(world.stub, text))
            self.emitted[mode] += times
            self.delivered[mode] += arrived
            self.lost.extend([(scenario, mode, text)] * (times - arrived))

    def lines(self):
        total, there = sum(self.emitted.values()), sum(self.delivered.values())
        yield "delivery: %d of %d texts that the hooks emitted were in a request to the model" % (there, total)
        for mode in sorted(self.emitted):
            yield "  %-13s %d of %d" % (mode, self.delivered[mode], self.emitted[mode])
        for scenario, mode, text in self.lost:
            yield "  lost: %s, %s: %s" % (scenario, mode, text.replace("\n", " ")[:100])


def texts_for_the_model(reply):
    """The parts of a hook's reply that the client passes to the model; at PreCompact the whole reply is text."""
    if "invalid" in reply:
        return [reply["invalid"].strip()]
    special = reply.get("hookSpecificOutput") or {}
    reason = reply.get("reason") if reply.get("decision") == "block" else ""
    return [text.strip() for text in (special.get("additionalContext"), reason) if text and text.strip()]


def arrivals(stub, text):
    """How often a text newly arrived at the model: history is sent again with every request and counts once."""
    return sum(r.news().count(text) for r in stub.requests if r.kind in ("main", "subagent", "compact"))


class Cells:
    """Which handoffs reached the next session, for the README: a row for each way to end."""

    def __init__(self):
        self.found = {}  # (end, deed) -> {what arrived: [percents]}

    def arrived(self, end, deed, percent, what):
        self.found.setdefault((end, deed), {}).setdefault(what, []).append("%d %%" % percent)

    def lines(self):
        ends = list(dict.fromkeys(end for end, _ in self.found))
        deeds = list(dict.fromkeys(deed for _, deed in self.found))
        if ends:
            yield "| the session ended by | " + " | ".join("the agent " + deed for deed in deeds) + " |"
            yield "| --- |" + " --- |" * len(deeds)
        for end in ends:
            cells = [self.found.get((end, deed), {}) for deed in deeds]
            words = ["; ".join("%s (%s)" % (what, ", ".join(at)) for what, at in cell.items()) for cell in cells]
            yield "| %s | %s |" % (end, " | ".join(words))
