"""A person at a terminal beside the agent: runs the kit's commands as real processes."""

from __future__ import annotations

import contextlib
import os
import select
import struct
import subprocess
import sys
from collections import namedtuple

import pytest

import helper

AGENT_VARIABLES = ("CLAUDECODE", "AI_AGENT", "CLAUDE_PID", "CLAUDE_PROJECT_DIR")
Answer = namedtuple("Answer", "code out err")


def person_env(world: helper.World, **more: str) -> dict:
    env = {name: world.env[name] for name in world.env if name not in AGENT_VARIABLES}
    return world.with_bytecode(dict(env, **more))


def ask(world: helper.World, *words: str, kit: str = helper.KIT, **more: object) -> Answer:
    """Run a command in the project, as `sh ctx_hooks.py WORDS`."""
    env = person_env(world, **more.pop("env", {}))
    start = [sys.executable, "-I"] if helper.IS_WINDOWS else ["sh"]
    done = subprocess.run(
        [*start, kit, *words],
        input=more.pop("stdin", "").encode(),
        cwd=more.pop("cwd", world.root),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    out, err = (said.decode().replace(os.linesep, "\n") for said in (done.stdout, done.stderr))
    return Answer(done.returncode, out, err)


def tell(world: helper.World, *words: str, **more: object) -> str:
    """Run a command that has to succeed; what it printed."""
    answer = ask(world, *words, **more)
    assert answer.code == 0 and answer.err == "", answer
    return answer.out


def in_terminal(world: helper.World, *words: str, typed: bytes = b"", code: int = 0, **env: str) -> str:
    """The same in a terminal; what is on the screen."""
    pty = pytest.importorskip("pty", reason="a terminal of POSIX")
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(world.root)
        os.execve(sys.executable, [sys.executable, helper.KIT, *words], person_env(world, **env))
    os.write(master, typed)
    screen = b""
    with contextlib.suppress(OSError):  # so Linux says that the program has ended
        while piece := os.read(master, 65536):
            screen += piece
    os.close(master)
    assert os.waitpid(pid, 0)[1] == code << 8, screen
    return screen.decode()


class Desk:
    """A person at a terminal, in which a Python program runs."""

    GUARD_S = 30.0

    def __init__(self, world: helper.World, *command: str) -> None:
        import fcntl
        import termios

        self.raw, self.seen = b"", 0
        self.master, self.slave = os.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=world.root,
            env=person_env(world),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, rows: int, columns: int) -> None:
        import fcntl
        import termios

        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes, *answers: bytes) -> None:
        os.write(self.master, keys)
        self.until(*answers)

    def until(self, *answers: bytes) -> None:
        """Wait for words, each behind those that were waited for before."""
        for words in answers:
            while words not in self.raw[self.seen :]:
                assert select.select([self.master], [], [], self.GUARD_S)[0], (words, self.raw)
                self.raw += os.read(self.master, 65536)
            self.seen = self.raw.index(words, self.seen) + len(words)

    def read_some(self, seconds: float) -> None:
        """What comes within this time."""
        if select.select([self.master], [], [], seconds)[0]:
            self.raw += os.read(self.master, 65536)

    def sees_nothing(self, seconds: float) -> None:
        """Nothing comes behind the words that were waited for."""
        is_more = select.select([self.master], [], [], seconds)[0]
        assert not is_more and not self.raw[self.seen :].strip(), (self.raw, is_more and os.read(self.master, 65536))

    def ends(self, code: int) -> None:
        """The program ends with this exit code, and the terminal is as it was."""
        import termios

        assert self.process.wait(self.GUARD_S) == code
        assert termios.tcgetattr(self.slave) == self.before

    def close(self) -> None:
        self.process.kill()
        self.process.wait(self.GUARD_S)
        os.close(self.master)
        os.close(self.slave)


def install(world: helper.World, *words: str) -> str:
    """Install the kit into the project; gives the path of its copy there."""
    done = subprocess.run(
        [sys.executable, os.path.join(helper.REPO, "install.py"), world.root, *words],
        cwd=world.root,
        env=person_env(world),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout.decode()
    return world.path(".claude", "hooks", "ctx_hooks.py")
