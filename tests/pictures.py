"""The README's pictures, from the real client in a terminal: `make pictures`.

Claude Code runs in a pseudo-terminal against a stub model on loopback, in its default permission mode, with the kit
installed by install.py. What its screen shows is drawn as SVG: one loop (a handoff is asked for and written, /clear,
the next session starts from it), and `status`. Needs the package pyte, a terminal emulator, and the client that
`make e2e` installs.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / ".github"
sys.path.insert(0, str(HERE / "e2e"))

import pyte  # noqa: E402

import real_client  # noqa: E402
from stub_model import Turn  # noqa: E402

ROWS, COLUMNS = 40, 100
WIDTH, HEIGHT = 8.4, 18  # of one character
BACKGROUND, FOREGROUND = "#1e2127", "#d7dae0"
NAMED = {
    "black": "#1e2127",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "yellow": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#d7dae0",
    "default": FOREGROUND,
}
HANDOFF = """\
# Handoff

Goal: finish the checkout page.
The person's rules: prices are integers, in cents.
State: cart and address form work; the postcode is checked.
Next: the payment step.
"""


def screen_lines(raw: bytes) -> list:
    """What a terminal shows after these bytes: lists of cells, without the empty lines at the end."""
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(raw)
    rows = [[screen.buffer[row][column] for column in range(COLUMNS)] for row in range(ROWS)]
    while rows and not text_of(rows[-1]).strip():
        rows.pop()
    return rows


def text_of(row: list) -> str:
    return "".join(cell.data for cell in row)


def crop(rows: list, first: str, last: str) -> list:
    """The lines from the one that shows `first` to the one that shows `last`; an assertion if there are none."""
    texts = [text_of(row) for row in rows]
    begin = [number for number, text in enumerate(texts) if first in text]
    end = [number for number, text in enumerate(texts) if last in text]
    assert begin and end, "the screen lacks %r or %r:\n%s" % (first, last, "\n".join(texts))
    return rows[begin[0] : end[-1] + 1]


def colour_of(cell: object) -> str:
    if cell.fg in NAMED:
        return NAMED[cell.fg]
    return "#" + cell.fg if len(cell.fg) == 6 else FOREGROUND


def render_line(row: list, number: int) -> str:
    """One line, a piece for each run of the same colour."""
    pieces, column = [], 0
    while column < len(row):
        colour, start = colour_of(row[column]), column
        while column < len(row) and colour_of(row[column]) == colour:
            column += 1
        text = "".join(cell.data for cell in row[start:column]).rstrip()
        if text:
            place = 'x="%.1f" y="%d"' % (16 + start * WIDTH, 30 + number * HEIGHT)
            length = 'textLength="%.1f"' % (len(text) * WIDTH)
            words = (place, length, colour, escape(text))
            pieces.append('<text %s %s fill="%s" xml:space="preserve">%s</text>' % words)
    return "\n".join(pieces)


def render_rule(number: int) -> str:
    """A line between two screens."""
    y = 25 + number * HEIGHT
    return '<path d="M16 %d H%d" stroke="#5c6370" stroke-dasharray="4 4"/>' % (y, 16 + COLUMNS * WIDTH)


def render_svg(rows: list, title: str) -> str:
    body = "\n".join(render_line(row, number) if row else render_rule(number) for number, row in enumerate(rows))
    width, height = 32 + COLUMNS * WIDTH, 44 + len(rows) * HEIGHT
    size = 'width="%d" height="%d" viewBox="0 0 %d %d"' % (width, height, width, height)
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" role="img"'
    card = '<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" stroke="#5c6370"/>'
    card %= (width - 1, height - 1, BACKGROUND)
    svg = '<svg xmlns="http://www.w3.org/2000/svg" %s %s>\n<title>%s</title>\n%s\n%s\n</svg>\n'
    return svg % (size, font, escape(title), card, body)


def save(name: str, title: str, rows: list, *shown: str) -> None:
    """Draw these lines; they have to show what the picture is for, and no path of this machine."""
    text = "\n".join(map(text_of, rows))
    for words in shown:
        assert words in text, "%s.svg does not show %r:\n%s" % (name, words, text)
    assert "/tmp" not in text and str(HERE) not in text, text
    (TARGET / (name + ".svg")).write_text(render_svg(rows, title), encoding="utf-8")
    print("%s.svg: %d lines\n%s" % (name, len(rows), text))


def settle(terminal: object) -> list:
    """The screen, once nothing moves on it any more."""
    size = -1
    while size != len(terminal.raw):
        size = len(terminal.raw)
        time.sleep(1.0)
    return screen_lines(bytes(terminal.raw))


def agent(world: real_client.World) -> object:
    """A model that works until the kit asks for a handoff, writes it, and goes on from it in the next session."""

    def answer(request: object) -> Turn:
        news = request.news()
        if "Handoff of the session before" in request.text():
            return Turn("Next is the payment step. Prices stay integers, in cents.", tokens=24_000)
        if "Write a handoff" in news:
            path = world.project / ".context/handoffs" / (world.newest_id() + ".md")
            return Turn(tools=[("Write", {"file_path": str(path), "content": HANDOFF})], tokens=146_000)
        if "Do you want" in news or "handoffs/" in news:
            return Turn("The postcode is checked, and the tests pass.", tokens=147_000)
        return Turn(tools=[("Bash", {"command": "echo 14 passed"})], tokens=144_000)

    return answer


def play(world: real_client.World) -> None:
    """A session that fills up, the /clear, and what the next one begins with."""
    with real_client.Terminal(world, real_client.permissions("default"), {}, ROWS, COLUMNS) as terminal:
        terminal.wait_shown("? for shortcuts")
        world.stub.script(Turn(tools=[("Bash", {"command": "echo 14 passed"})], tokens=140_000), otherwise=agent(world))
        terminal.type("Check the postcode")
        terminal.wait_shown("Do you want to create")
        terminal.answer("1", "the tests pass")
        before = crop(settle(terminal), "Check the postcode", "the tests pass")
        terminal.type("/clear")
        settle(terminal)
        terminal.type("Go on")
        terminal.wait_shown("Next is the payment step")
        after = crop(settle(terminal), "SessionStart:clear", "Next is the payment step")
        title = "Asked for a handoff at 86 %, written, /clear, and the next session has it"
        save("loop", title, before + [[]] + after, "asked the agent for a handoff", "handoff written", "delivered")
        world.ctx("signal", "CI: 3 tests fail on main → look at the log")
        rows = run_in_terminal(world, "status")
        save("status", "What the command status shows", rows, "Claude Code", "handoff", "CI: 3 tests fail")


def run_in_terminal(world: real_client.World, *words: str) -> list:
    """What a command prints on a terminal, with the command line above it."""
    shell = copy.copy(world)
    shell.program = world.bin / "python3"
    terminal = real_client.Terminal(shell, [".claude/hooks/ctx_hooks.py", *words], {}, ROWS, COLUMNS)
    terminal.process.wait(30)
    terminal.kill()
    line = b"$ .claude/hooks/ctx_hooks.py %s\r\n" % " ".join(words).encode()
    return screen_lines(line + bytes(terminal.raw).replace(str(world.root).encode(), b"~"))


def main() -> None:
    program = real_client.install()
    real_client.isolate()  # after the installation: from here on there is no network
    with tempfile.TemporaryDirectory(prefix="ctx-") as base:
        world = real_client.World(Path(base, "shop"), program)
        try:
            print(world.install("--agent", "claude"))
            world.write(".context/TASKS.md", "# Tasks\n\n- Checkout page: address form, then payment\n")
            play(world)
        finally:
            world.close()


if __name__ == "__main__":
    main()
