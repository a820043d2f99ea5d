"""Real programs under `ctx_hooks.py wrap`, in a pseudo-terminal with a person at it.

The programs are found, or fetched into .dev/agents, before the network is closed off. A `Desk` is one run: a scratch
project with a handoff, a stub model on loopback, the wrapped program, and a person who reads output and presses keys.
"""

from __future__ import annotations

import shutil
import sys
import termios
import time

from real_client import ANSWER_S, DEV, REPO, Terminal, Unavailable, fetch, wait_until
from stub_model import Turn

LOOK_AWAY_S = 3.0  # time for a wrong detector to show it
ACK = "ACK: context received"
GOAL = "Goal: finish the parser of the small language"
HANDOFF = "# Handoff\n\n%s\n\n1. read the grammar\n2. write the tests\n" % GOAL
RAN = "ran.txt"  # what a shell command of the agent's would leave behind
CONTROLS = 'exec "$@" < "$(tty)"'  # the leader of a session that opens a terminal controls it

SMALL_AGENT = "small agent"  # one of ours
REPL = """
import sys, time
%(begin)s
print("Welcome to a small agent.")
while True:
    line = input(%(prompt)r)
    if "CONTEXT INJECTION" in line:
        time.sleep(%(think_s)s)
        print(%(answer)r)
    else:
        print("You said: " + line)
"""
POLLING_AGENT = "polling agent"  # its main thread waits for keys and for the network at once
POLLING = """
import asyncio
%(begin)s
async def main():
    print("Welcome to a polling agent.")
    while True:
        line = await asyncio.get_running_loop().run_in_executor(None, input, %(prompt)r)
        if "CONTEXT INJECTION" in line:
            await asyncio.sleep(%(think_s)s)
            print(%(answer)r)
        else:
            print("You said: " + line)
asyncio.run(main())
"""
GREETING = "Loading...\nReady. How can I help?\n"
TAUGHT = "What is next:"
PROMPTS = {"a prompt": "> ", "a greeting": GREETING, "a taught prompt": TAUGHT + " "}
ASKS = {  # before its first prompt; what was asked, and what the person answers
    "hidden input": ("import getpass\nword = getpass.getpass('Secret word ')", "Secret word", "abc"),
    "[Y/n]": ("word = input('Remove the old index? [Y/n] ')", "[Y/n]", "n"),
    "menu": ("print('Pick one\\n ❯ small\\n   large\\nUse the arrow keys')\nword = input()", "arrow keys", "s"),
    "numbered choice": ("print('Pick a model\\n 1. small\\n 2. large')\nword = input('> ')", "2. large", "2"),
    "trust": ("word = input('Do you trust the files in this folder?\\n> ')", "trust", "no"),
    "a name": ("word = input('Project name: ')", "Project name", "mine"),
}

PACKAGES = {"aider": "aider-chat", "ipython": "ipython"}  # from PyPI, where they are not installed
QUIT_KEYS = {"vim": "\x1b:q!\r", "less": "q", "top": "q"}  # the others end with ^D
PATHS = {}  # of the programs that can be had


def find_programs():
    """Fill PATHS."""
    PATHS.update(dict.fromkeys((SMALL_AGENT, POLLING_AGENT, "python3"), sys.executable))
    for name in ("aider", "ipython", "cat", "vim", "less", "top"):
        own = DEV / "agents" / PACKAGES.get(name, name)
        found = shutil.which(name) or shutil.which(name, path=str(own / "bin"))
        if not found and name in PACKAGES:
            found = fetch_package(own, name)
        if found:
            PATHS[name] = found


def fetch_package(folder, name):
    """Its path in a virtual environment of its own, or None."""
    try:
        fetch([sys.executable, "-m", "venv", str(folder)], "no virtual environment")
        fetch([str(folder / "bin/pip"), "install", "-q", PACKAGES[name]], "pip could not install it")
    except Unavailable:
        return None
    return str(folder / "bin" / name)


def command_of(name, asks, answer, think_s, prompt):
    """The command line of a program."""
    path = PATHS[name]
    if name == "aider":
        options = ["--model", "anthropic/stub-model", "--no-show-model-warnings", "--no-show-release-notes"]
        options += ["--edit-format", "diff", "--no-check-update", "--no-auto-commits", "--analytics-disable"]
        return [path, *options, *([] if asks else ["--no-gitignore"])]
    if name in (SMALL_AGENT, POLLING_AGENT):
        begin = ASKS[asks][0] + "\nopen('answer.txt', 'w').write(word)\n" if asks else ""
        form = POLLING if name == POLLING_AGENT else REPL
        code = form % {"begin": begin, "think_s": think_s, "answer": answer, "prompt": PROMPTS[prompt]}
        return [path, "-I", "-c", code]
    if name == "python3":
        return [path, "-I", "-q"]
    if name == "ipython":
        return [path, "--no-banner", "--no-confirm-exit"]
    if name in QUIT_KEYS:  # a shell runs it, because alone it is refused
        arguments = {"vim": ["-n", "-u", "NONE", "notes.txt"], "less": ["notes.txt"]}.get(name, [])
        return ["sh", "-c", 'exec "$@"', "sh", path, *arguments]
    return [path]


class Desk(Terminal):
    """A person at a terminal in which `wrap` runs a program."""

    def __init__(self, world, name, asks="", answer=ACK, think_s=0, slow_s=0, timeout_s=80, prompt="a prompt"):
        self.world, self.name, self.rows = world, name, world.recorded
        said = Turn(answer, act=lambda _: time.sleep(think_s))
        world.stub.aside = lambda request: said if GOAL in request.text() else Turn("Fine.")
        world.leave_handoff(HANDOFF)
        settings = "startup:\n  file_fallback_after_attempts: 1\n  retry_backoffs_s: [1]\n"
        if prompt == "a taught prompt":
            settings += "wrap:\n  ready_patterns: ['%s']\n" % TAUGHT
        world.write(".contextrc", settings)
        world.write("notes.txt", "".join("line %d of a person's file\n" % number for number in range(200)))
        command = command_of(name, asks, answer, think_s, prompt)
        if slow_s:
            command = ["sh", "-c", 'echo Loading; sleep %d; exec "$@"' % slow_s, "sh", *command]
        command = [sys.executable, str(REPO / "ctx_hooks.py"), "wrap", "--timeout", str(timeout_s), "--", *command]
        extra = {"ANTHROPIC_API_BASE": world.stub.url}
        super().__init__(world, ["-c", CONTROLS, "sh", *command], extra, columns=120)

    def told(self, event):
        wait_until(lambda: self.rows(event), event, lambda: "%s\n%s" % (self.rows(), self.shown()[-3000:]))

    def stays_untouched(self, is_answered):
        """A question is there, and after a while it still is."""
        rows = self.rows()
        time.sleep(LOOK_AWAY_S)
        assert self.rows() == rows and not is_answered(), (rows, self.rows())

    def quits(self):
        self.press(QUIT_KEYS.get(self.name, "\x04"))
        self.process.wait(ANSWER_S)
        assert termios.tcgetattr(self.master) == self.settings, "the person's terminal was not restored"

    def read(self, name):
        path = self.world.path(name)
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def outcome(self):
        """What happened in this run, for the table after it."""
        end = "acknowledged" if self.rows("injection:succeeded") else "not acknowledged"
        end += ", in AGENTS.md" if self.read("AGENTS.md") else ""
        return "typed %d, submitted %d, %s" % (len(self.rows("wrap:typed")), len(self.rows("wrap:submitted")), end)
