"""A session's whole life, and what each step of it brings into the requests to the model."""

from __future__ import annotations

from agents import ASKED, FULL, NEAR, OWN, WAITS, Agent, bash, edit, first_request
from stub_model import Turn

GATE = "STOP. Read your context files before proceeding: .context/CONSTITUTION.md, .context/TASKS.md"
SIGNAL = "⚠️ [ctx monitor] "


def test_a_whole_life_from_the_waiting_handoff_to_the_next_start(kit):
    kit.leave_handoff("# Goal\nA parser for quotes, begun yesterday.\n")
    steps = [
        bash("echo one", tokens=NEAR),
        bash("echo two", tokens=NEAR, act=lambda _: kit.signal("CI failed on main.\n→ Look at job 17")),
        edit(kit, "parser.py", tokens=NEAR),
        WAITS,
        edit(kit, "escapes.py", tokens=FULL),
        Turn("The parser is built.", tokens=FULL),
        Turn("Pushed nothing.", tokens=FULL),
    ]
    kit.stub.script(otherwise=Agent(steps))
    with kit.session() as session:
        session.prompt("Build the parser. Never push to main.")
        kit.signal("The build is broken.", "two", "sessions/" + session.id)
        session.prompt("What about pushing?")
    news = [request.news() for request in kit.stub.of("main")]
    assert "A parser for quotes, begun yesterday." in news[0] and "STOP." not in news[0]
    assert [GATE in text for text in news].index(True) == 1 and "".join(news).count("STOP.") == 1
    assert [SIGNAL + "CI failed on main." in text for text in news].index(True) == 2
    assert SIGNAL + "The build is broken." in news[-1]
    assert "".join(news).count(ASKED) == 1
    assert "Context is 89% full (150,000 of 167,000 usable tokens)" in "".join(news)
    assert kit.left_behind() == [] and kit.delivered() == ["earlier.md"]
    assert [row["evidence"] for row in kit.recorded("injection:succeeded")] == ["receipt"]
    assert kit.git("status", "--porcelain", "-uall").split() == ["??", "escapes.py", "??", "parser.py"]
    text = kit.handoffs()[session.id + ".md"]
    assert text.startswith(OWN) and "## Since this handoff (added by ctx_hooks)" in text
    assert "escapes.py" in text and "What about pushing?" in text
    assert [line[:20] for line in session.notices()] == ["ctx: context 89% ful", "ctx: handoff written"]
    start = first_request(kit).news()
    assert "The parser knows quotes." in start and "escapes.py" in start and "What about pushing?" in start
    assert "began with the handoff .context/handoffs/delivered/earlier.md" in start and "ACK" not in start
