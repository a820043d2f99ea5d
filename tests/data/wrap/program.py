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


def locating() -> None:
    """Asks the terminal where its cursor is before it draws what was typed, and gives up after 2 s."""
    tty.setraw(0)
    say("\x1b[?2004h> ")
    text = os.read(0, 65536)
    say("\x1b[6n")
    received(os.read(0, 100).decode() if select.select([0], [], [], 2)[0] else "no answer")
    say(text.decode()[6:-6].replace("\r", "\r\n"))
    while os.read(0, 100) != b"\r":
        pass
    say("\r\n%s\r\n" % ACK)


def editor() -> None:
    """Holds the alternate screen, quiet and reading, until a line came; then it is a REPL."""
    say("\x1b[?1049h\x1b[2J\x1b[Hsome text.\r\n~\r\n> ")
    received(sys.stdin.readline().rstrip("\n"))
    say("\x1b[?1049l")
    mute()


def asking(question: str) -> None:
    """Asks first; what is answered is received; then it is a REPL that acknowledges."""
    say(question)
    received(sys.stdin.readline().rstrip("\n"))
    acknowledging()


def secret() -> None:
    """Reads a line without echo; then it is a REPL that acknowledges."""
    say("Who are you\n\n> ")
    saved = termios.tcgetattr(0)
    silent = [*saved[:3], saved[3] & ~termios.ECHO, *saved[4:]]
    termios.tcsetattr(0, termios.TCSADRAIN, silent)
    received(sys.stdin.readline().rstrip("\n"))
    termios.tcsetattr(0, termios.TCSADRAIN, saved)
    acknowledging()


def box(behaviour: str) -> None:
    """A raw-mode program with a prompt, that draws what it is given and is told by an Enter to take it.

    plain: acknowledges. deaf: the first Enter does nothing. blind: draws nothing. asks: when it has drawn the text, it
    asks something. late: acknowledges only after two texts. slow: the answer takes a while, without a word.
    """
    saved = termios.tcgetattr(0)
    tty.setraw(0)
    say("\x1b[?2004h\r\n> ")
    text, count, enters, asked = "", 0, 0, False
    while True:
        keys = os.read(0, 4096).decode("utf-8", "replace")
        if keys == "\r" and asked:
            received("answered")
            asked = False
            say("\x1b[2K\r> " + text[-40:])
        elif keys == "\r":
            enters += 1
            if behaviour == "deaf" and enters == 1:
                continue
            received(text)
            count += text.startswith("[CONTEXT")
            if text in ("exit", "[System] Session context written to CLAUDE.md - please review") and behaviour != "late":
                break
            say("\r\n")
            if behaviour == "slow":
                time.sleep(8)
            is_ack = behaviour != "late" or text.startswith("[System]")
            say((ACK if is_ack and count else "Hm.") + "\r\n> ")
            text = ""
        else:
            text += keys.replace("\x1b[200~", "").replace("\x1b[201~", "")
            if behaviour != "blind":
                say(keys.replace("\x1b[200~", "").replace("\x1b[201~", "").replace("\r", "\r\n  "))
            if behaviour == "asks" and not asked and text.endswith("confirm]"):
                asked = True
                say("\r\nAllow this command to run?\r\n\x1b[7m> 1. Yes\x1b[0m\r\n  2. No\r\n")
    termios.tcsetattr(0, termios.TCSADRAIN, saved)


def single_keys() -> None:
    """Like `top`: raw, a screen full of figures, every key is a command."""
    tty.setraw(0)
    say("\x1b[H\x1b[2JTasks: 3 total\r\n 1 init\r\n 2 top\r\n")
    while True:
        key = os.read(0, 1).decode("latin-1")
        received(key)
        if key == "q":
            return


def quitting() -> None:
    """Stops itself as an editor does on ^Z, and says when it goes on."""
    say("here\n> ")
    os.kill(0, signal.SIGSTOP)
    say("back\n> ")
    mute()


def messy(number: str) -> None:
    """Switches everything on and is killed."""
    tty.setraw(0)
    say("\x1b[?1049h\x1b[?25l\x1b[?1003h\x1b[?1006h\x1b[?2004h\x1b[>1u\x1b[?1hbusy")
    os.kill(os.getpid(), int(number))


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


def drawing(times: str) -> None:
    """Draws and erases all over the screen."""
    for _ in range(int(times)):
        sys.stdout.write("\x1b[H\x1bM\x1b[3;1H\x1b[Jtext\n\x1b[40;1H\n\x1b[1J")
    sys.exit(5)


def signals() -> None:
    """Shows each signal it gets; SIGTERM ends it with 9."""
    def show(number: int, _: object) -> None:
        os.write(1, f"got {signal.Signals(number).name}\n".encode())  # it may come in the middle of `say`
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


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
