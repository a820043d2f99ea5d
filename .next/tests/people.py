"""A person at a terminal beside the agent: runs the kit's commands as real processes."""
from __future__ import annotations

import os
import re
import subprocess
import sys

import helper

AGENT_VARIABLES = ("CLAUDECODE", "AI_AGENT", "CLAUDE_PID", "CLAUDE_PROJECT_DIR")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Answer:
    def __init__(self, done: subprocess.CompletedProcess) -> None:
        self.code = done.returncode
        self.out = done.stdout.decode()
        self.err = done.stderr.decode()

    def __repr__(self) -> str:
        return "Answer(%d, %r, %r)" % (self.code, self.out, self.err)


def person_env(world: helper.World, **more: str) -> dict:
    env = {name: world.env[name] for name in world.env if name not in AGENT_VARIABLES}
    return world.with_bytecode(dict(env, **more))


def ask(world: helper.World, *words: str, kit: str = helper.KIT, **more: object) -> Answer:
    """Run a command in the project, as `sh ctx_hooks.py WORDS`."""
    env = person_env(world, **more.pop("env", {}))
    done = subprocess.run(
        ["sh", kit, *words],
        input=str(more.pop("stdin", "")).encode(),
        cwd=more.pop("cwd", world.root),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    return Answer(done)


def tell(world: helper.World, *words: str, **more: object) -> str:
    """Run a command that has to succeed; what it printed."""
    answer = ask(world, *words, **more)
    assert answer.code == 0 and answer.err == "", answer
    return answer.out


def in_terminal(world: helper.World, *words: str, typed: bytes = b"", **env: str) -> str:
    """The same in a terminal; what stands on the screen."""
    import pty

    pid, master = pty.fork()
    if pid == 0:
        os.chdir(world.root)
        os.execve(sys.executable, [sys.executable, helper.KIT, *words], person_env(world, **env))
    os.write(master, typed)
    screen = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            piece = b""
        if not piece:
            break
        screen += piece
    os.close(master)
    assert os.waitpid(pid, 0)[1] == 0, screen
    return screen.decode()


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
