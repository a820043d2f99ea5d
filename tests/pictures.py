"""The README's pictures, from the real client in a terminal: `make pictures`.

Claude Code runs in a pseudo-terminal against a stub model on loopback, with the kit installed by install.py.
What stands on its screen then is drawn as SVG: a start with a handoff, the reminder, and `status`. Needs the
package pyte, a terminal emulator, and the client that `make e2e` installs.
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
    "black": "#1e2127", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "yellow": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#d7dae0", "default": FOREGROUND,
}
HANDOFF = """\
# Handoff

Goal: finish the checkout page.
Rule of the person: prices are integers, in cents.
State: the cart works, the address form is half done.
Next: validate the postcode, then payment.
"""


def screen_lines(raw: bytes) -> list:
    """What stands on a terminal after these bytes: lists of cells, without the empty lines at the end."""
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(raw)
    rows = [[screen.buffer[row][column] for column in range(COLUMNS)] for row in range(ROWS)]
    while rows and not "".join(cell.data for cell in rows[-1]).strip():
        rows.pop()
    return rows


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


def render_svg(rows: list) -> str:
    body = "\n".join(render_line(row, number) for number, row in enumerate(rows))
    size = 'width="%d" height="%d"' % (32 + COLUMNS * WIDTH, 44 + len(rows) * HEIGHT)
    font = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14"'
    card = '<rect width="100%%" height="100%%" rx="8" fill="%s"/>' % BACKGROUND
    return '<svg xmlns="http://www.w3.org/2000/svg" %s %s>\n%s\n%s\n</svg>\n' % (size, font, card, body)


def save(name: str, raw: bytes, *shown: str) -> None:
    """Draw what stands there now; it has to show what the picture is for."""
    lines = screen_lines(raw)
    text = "\n".join("".join(cell.data for cell in row) for row in lines)
    for words in shown:
        assert words in text, "%s.svg does not show %r:\n%s" % (name, words, text)
    (TARGET / (name + ".svg")).write_text(render_svg(lines), encoding="utf-8")
    print("%s.svg: %d lines" % (name, len(lines)))


def settle(terminal: object) -> None:
    """Wait until the screen stands still."""
    size = -1
    while size != len(terminal.raw):
        size = len(terminal.raw)
        time.sleep(1.0)


def play(world: real_client.World) -> None:
    words = real_client.permissions("bypassPermissions")
    with real_client.Terminal(world, words, {}, ROWS, COLUMNS) as terminal:
        terminal.wait_shown(real_client.READY)
        world.stub.script(Turn("The address form is half done. Next I validate the postcode.", tokens=24_000))
        terminal.type("Where were we?")
        terminal.wait_shown("validate the postcode")
        settle(terminal)
        save("start", bytes(terminal.raw), "ctx: handoff of", "delivered, 6 lines")
        path = str(world.project / ".context/handoffs" / (world.newest_id() + ".md"))
        world.stub.script(
            Turn(tools=[("Bash", {"command": "echo all 14 tests pass"})], tokens=144_000),
            Turn(tools=[("Write", {"file_path": path, "content": HANDOFF})], tokens=146_000),
            Turn("The postcode is validated. The handoff is written.", tokens=147_000),
        )
        terminal.type("Validate the postcode")
        terminal.wait_shown("handoff is written")
        settle(terminal)
        save("reminder", bytes(terminal.raw), "asked the agent for a handoff", "ctx: handoff written")
        world.ctx("signal", "CI: 3 tests fail on main → look at the log")
        save("status", run_in_terminal(world, "status"), "Claude Code", "handoff written", "CI: 3 tests fail")


def run_in_terminal(world: real_client.World, *words: str) -> bytes:
    """What a command prints on a terminal, the command line above it."""
    shell = copy.copy(world)
    shell.program = world.bin / "python3"
    terminal = real_client.Terminal(shell, [".claude/hooks/ctx_hooks.py", *words], {}, ROWS, COLUMNS)
    terminal.process.wait(30)
    terminal.kill()
    return b"$ .claude/hooks/ctx_hooks.py %s\r\n" % " ".join(words).encode() + bytes(terminal.raw)


def main() -> None:
    program = real_client.install()
    real_client.isolate()  # after the installation: from here on there is no network
    with tempfile.TemporaryDirectory(prefix="ctx-", dir="/tmp") as base:  # short: it stands in the pictures
        world = real_client.World(Path(base, "shop"), program)
        try:
            world.install("--init")
            world.write(".context/TASKS.md", "# Tasks\n\n- Checkout page: address form, then payment\n")
            world.leave_handoff(HANDOFF)
            play(world)
        finally:
            world.close()


if __name__ == "__main__":
    main()
