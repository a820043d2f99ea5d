"""What arrived of the texts for the model, and a table of the handoffs that arrived.

An emission is what a hook run printed (kept by the `python3` of a `World`), not what the client noted about it, so a
text that the client dropped is seen as missing.
"""

from __future__ import annotations

from collections import Counter


def emitted(world):
    """The texts for the model that hooks printed; at PreCompact the whole reply is one."""
    replies = [reply for _, reply in world.emitted()]
    texts = [r if isinstance(r, str) else r.get("hookSpecificOutput", {}).get("additionalContext", "") for r in replies]
    return [text.strip() for text in texts if text.strip()]


def lost(world):
    """Those that stood in no request. History is sent again with every request, so only news count."""
    news = [request.news() for request in world.stub.requests if request.kind != "side"]
    wanted = Counter(emitted(world))
    return [text for text, times in wanted.items() if sum(new.count(text) for new in news) < times]


class Cells:
    """Which handoffs reached the next session, for the README: a row for each way to end."""

    def __init__(self):
        self.found = {}  # (end, deed) -> {what arrived: [percents]}

    def arrived(self, end, deed, percent, what):
        self.found.setdefault((end, deed), {}).setdefault(what, []).append("%d %%" % percent)

    def lines(self):
        ends = list(dict.fromkeys(end for end, _ in self.found))
        deeds = list(dict.fromkeys(deed for _, deed in self.found))
        yield "| the session ended by | " + " | ".join("the agent " + deed for deed in deeds) + " |"
        yield "| --- |" + " --- |" * len(deeds)
        for end in ends:
            cells = [self.found.get((end, deed), {}) for deed in deeds]
            words = ["; ".join("%s (%s)" % (what, ", ".join(at)) for what, at in cell.items()) for cell in cells]
            yield "| %s | %s |" % (end, " | ".join(words))
