"""Programs that behave in one way each, for the tests of `wrap`: program.py NAME [ARGUMENT].

What a program reads goes to the file $RECEIVED, one JSON string a line.
"""
import json
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty

ACK = "ACK: context received"


def received(text: str) -> None:
    with open(os.environ["RECEIVED"], "a", encoding="utf-8") as log:
        log.write(json.dumps(text) + "\n")


def lines():
    for line in sys.stdin:
        received(line.rstrip("\n"))
        yield line


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def acknowledging(wanted: str = "1") -> None:
    """A REPL that acknowledges the wanted-th request."""
    say("Welcome.\n> ")
    count = 0
    for line in lines():
        count += "[END CONTEXT" in line
        say(ACK + "\n> " if count == int(wanted) else "You said something.\n> ")
        if line.startswith("exit"):
            sys.exit(3)


def mute() -> None:
    """Reads and never answers; a notice ends it."""
    say("> ")
    for line in lines():
        if line.startswith(("[System]", "exit")):
            return


def deaf(seconds: str) -> None:
    """Never reads, in raw mode, so that the terminal's buffer fills up."""
    tty.setraw(0)
    say("> ")
    time.sleep(float(seconds))


def endless() -> None:
    """Prints for ever, but for a line that says exit."""
    number = 0
    while True:
        number += 1
        say(f"line {number}, and\n")
        if select.select([0], [], [], 0.02)[0]:
            line = sys.stdin.readline()
            received(line.rstrip("\n"))
            if "exit" in line:
                return


def busy(path: str) -> None:
    """Works without a pause behind a finished prompt until the file is there, then reads a line."""
    say("Done.\n\n> ")
    while not os.path.exists(path):
        pass
    mute()


def pasting() -> None:
    """A raw-mode program that asked for bracketed paste and acknowledges what an Enter submits."""
    saved = termios.tcgetattr(0)
    tty.setraw(0)
    say("\x1b[?2004l\x1b[?20")  # the switch arrives in two pieces
    time.sleep(0.1)
    say("04h\x1b[1;32m>\x1b[0m ")
    data = b""
    while not data.endswith(b"\x1b[201~\r"):
        data += os.read(0, 4096)
    received(data.decode())
    say("\x1b[2K\r\n\x1b[32mACK:\x1b[1Ccontext\x1b[1Creceived\x1b[0m\r\n\x1b[?2004l")
    termios.tcsetattr(0, termios.TCSADRAIN, saved)


def editor() -> None:
    """Holds the alternate screen, quiet and reading, until two keys came; then it is a REPL."""
    say("\x1b[?1049h\x1b[2J\x1b[Hsome text.\r\n~\r\n> ")
    received(sys.stdin.readline().rstrip("\n"))
    say("\x1b[?1049l")
    mute()


def size() -> None:
    """Shows the window's size now and after each change; a key ends it."""
    def show(*_: object) -> None:
        columns, rows = shutil.get_terminal_size()
        say(f"size {rows}x{columns}\n")

    os.environ.pop("COLUMNS", None)
    os.environ.pop("LINES", None)
    signal.signal(signal.SIGWINCH, show)
    show()
    sys.stdin.readline()


def signals() -> None:
    """Shows each signal it gets; SIGTERM ends it with 9."""
    def show(number: int, _: object) -> None:
        say(f"got {signal.Signals(number).name}\n")
        if number == signal.SIGTERM:
            sys.exit(9)

    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, show)
    say("armed\n")
    while True:
        signal.pause()


def mirror() -> None:
    """Gives 256 bytes back as they came."""
    tty.setraw(0)
    say("go")
    data = b""
    while len(data) < 256:
        data += os.read(0, 999)
    os.write(1, data)


def leave(code: str) -> None:
    sys.exit(int(code))


def die(number: str) -> None:
    os.kill(os.getpid(), int(number))
    time.sleep(60)


def terminal() -> None:
    """Says which of its streams are terminals, and whether it has a controlling one."""
    owner = os.tcgetpgrp(os.open("/dev/tty", os.O_RDWR)) == os.getpgrp()
    say(f"terminals {[os.isatty(fd) for fd in range(3)]} owner {owner}\n")


def copy() -> None:
    """cat, with a word at the end of the input."""
    for _ in lines():
        pass
    say("end of input\n")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
