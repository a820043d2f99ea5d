"""The coding agents of these tests, and how each runs without its cloud.

A subclass is one client in one way of registering hooks; it is only data where it can be.
In its files and variables @URL@ is for the stub model, @PROJECT@ for the project. They
are installed into .dev/agents; `packages` is the only place that names their versions.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess

import real_client
from real_client import REPO, Unavailable

NODE_OLDEST, NODE = 22, "24"  # the second is installed where the machine's own is too old
DEV = REPO / ".dev/agents"
LIMIT_S = 300
KEY = "dummy-key-for-a-stub-model"
WANTED = os.environ.get("AGENTS", "").split()  # only these, by name; all if it is empty
QUIET = {
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
}


class Client:
    name = ""
    label = ""
    agent = ""  # the word of install.py --agent
    dialect = ""  # the kit's name of the client, where that is another word
    packages = ()
    program = ""  # in node_modules/.bin
    words = ()  # of its command line, before the prompt
    variables = {}
    files = {}  # what it wants to find in its home folder
    shell_tool = "run_shell_command"
    window = 0  # tokens; 0: the client does not tell it
    compacts_at = 100  # percent of the window that the kit calls 100 %
    has_calm = True  # the launcher knows the session, by a variable of the client's
    counts_output = False  # its number of tokens holds the answer, too
    starts_with_text = True  # its SessionStart can speak
    has_prompt_event = True
    has_end_event = True

    @property
    def folder(self):
        return DEV / self.program

    def path(self):
        return self.folder / "node_modules/.bin" / self.program

    def install(self):
        """Install the program unless it is there; Unavailable if it cannot be had."""
        stamp, wanted = self.folder / "ready", " ".join(self.packages)
        search_path()
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        npm_install(self.folder, *self.packages)
        self.unpack()
        env = dict(os.environ, PATH=search_path(), HOME=str(self.folder))
        run([self.path(), "--version"], "%s does not start here" % wanted, env=env)
        stamp.write_text(wanted)

    def unpack(self):
        """What the package's own script would do after npm."""

    def prepare(self, lab):
        for name, content in self.files.items():
            lab.write_home(name, content)

    def shell(self, command):
        """(tool, input) of a call that runs a command in the client's shell."""
        return self.shell_tool, {"command": command, "description": "scripted"}


class Claude(Client):
    """The one of the other end-to-end tests."""

    name = agent = "claude"
    label = "Claude Code"
    packages = ("@anthropic-ai/claude-code",)
    words = ("-p", "--dangerously-skip-permissions")
    window = 200_000
    compacts_at = 83.5
    shell_tool = "Bash"
    files = {".claude.json": {"hasCompletedOnboarding": True}}
    variables = {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": "@URL@",
        "ANTHROPIC_MODEL": "claude-opus-4-6",  # with the small window
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }

    def install(self):
        real_client.install()
        search_path()

    def path(self):
        return real_client.locate()


class Codex(Client):
    name = agent = program = "codex"
    label = "Codex"
    packages = ("@openai/codex@0.169.0",)
    words = ("exec",)
    has_calm = False
    window = 258_400
    compacts_at = 94
    variables = {"STUB_KEY": KEY}
    model = "gpt-5.5"
    config = """model = "{model}"
model_provider = "stub"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.stub]
name = "stub"
base_url = "@URL@/v1"
env_key = "STUB_KEY"
wire_api = "responses"
supports_websockets = false
[projects."@PROJECT@"]
trust_level = "trusted"
"""

    def prepare(self, lab):
        """The folder is trusted, and so is each hook, as a person does it in /hooks."""
        trusted = trusted_hooks(lab.project / ".codex/hooks.json")
        lab.write_home(".codex/config.toml", self.config.format(model=self.model) + trusted)

    def shell(self, command):
        return "exec_command", {"cmd": command}


class CodexCodeMode(Codex):
    """The newest models send JavaScript that calls the tools."""

    name = "codex-codemode"
    label = "Codex, code mode"
    model = "gpt-6-sol"

    def shell(self, command):
        words = json.dumps(command)
        return "exec", "const r = await tools.exec_command({cmd: %s}); text(r);" % words


class Gemini(Client):
    name = agent = program = "gemini"
    label = "Gemini CLI"
    packages = ("@google/gemini-cli@0.61.0",)
    words = ("--yolo", "-m", "gemini-2.5-pro", "-p")  # without -m a router is asked first
    compacts_at = 50
    window = 1_048_576
    variables = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": "@URL@", "GEMINI_CLI_NO_RELAUNCH": "true"}
    files = {
        ".gemini/settings.json": dict(QUIET, security={"auth": {"selectedType": "gemini-api-key"}}),
        ".gemini/trustedFolders.json": {"@PROJECT@": "TRUST_FOLDER"},
    }


class Qwen(Client):
    name = agent = program = "qwen"
    label = "Qwen Code"
    packages = ("@qwen-code/qwen-code@0.24.4",)
    words = ("--yolo", "-p")
    window = 1_000_000
    compacts_at = 85
    has_end_event = False  # not for one prompt from the command line
    variables = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "@URL@/v1", "OPENAI_MODEL": "qwen3-coder-plus"}
    memory = {"enableManagedAutoMemory": False}  # an agent after each session
    files = {".qwen/settings.json": dict(QUIET, memory=memory, security={"auth": {"selectedType": "openai"}})}


class Copilot(Client):
    """With hooks of its own, in .github/hooks."""

    name = agent = program = "copilot"
    label = "Copilot CLI"
    packages = ("@github/copilot@1.0.102",)
    words = ("--allow-all", "--no-color", "-p")
    has_calm = False
    shell_tool = "bash"
    window = 922_000
    compacts_at = 80
    files = {".copilot/config.json": {"trustedFolders": ["@PROJECT@"], "banner": "never"}}
    variables = {
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_MODEL": "gpt-5.4",
        "COPILOT_PROVIDER_BASE_URL": "@URL@/v1",
        "COPILOT_PROVIDER_API_KEY": KEY,
    }

    def prepare(self, lab):
        super().prepare(lab)
        cache = self.folder / "cache"  # it unpacks itself there, 180 MB for each home
        cache.mkdir(exist_ok=True)
        if not (lab.home / ".cache/copilot").is_symlink():
            (lab.home / ".cache/copilot").symlink_to(cache)


class CopilotOnClaude(Copilot):
    """With what was installed for Claude Code: it runs .claude/settings.json too."""

    name = "copilot-claude"
    label = "Copilot CLI, Claude's settings"
    agent = "claude"
    dialect = "copilot"


class Droid(Client):
    name = agent = program = "droid"
    label = "droid"
    packages = ("@factory/cli@0.225.1", "@factory/cli-linux-x64@0.225.2")
    words = ("exec", "--skip-permissions-unsafe", "-m", "custom:stub-0")
    has_prompt_event = False  # in its terminal only
    model = {
        "model": "stub-model",
        "id": "custom:stub-0",
        "index": 0,
        "displayName": "stub",
        "apiKey": KEY,
        "baseUrl": "@URL@/v1",
        "provider": "generic-chat-completion-api",
        "maxOutputTokens": 8000,
    }
    files = {".factory/settings.json": {"customModels": [model], "model": "custom:stub-0"}}
    variables = {
        "FACTORY_API_BASE_URL": "@URL@",
        "FACTORY_API_URL": "@URL@",
        "FACTORY_API_KEY": "fk-" + KEY,
        "FACTORY_DISABLE_AUTO_UPDATE": "1",
    }

    def shell(self, command):
        given = {"command": command, "riskLevel": "low", "timeout": 30}
        return "Execute", dict(given, riskLevelReason="scripted")


class Grok(Client):
    """With hooks of its own, in .grok/hooks."""

    name = agent = program = "grok"
    label = "Grok Build"
    packages = ("@xai-official/grok@1.0.41",)
    words = ("--trust", "--always-approve", "-p")
    compacts_at = 85
    shell_tool = "run_terminal_command"
    counts_output = True
    starts_with_text = has_prompt_event = False
    variables = {
        "STUB_KEY": KEY,
        "XAI_API_KEY": KEY,
        "GROK_DISABLE_AUTOUPDATER": "1",
        "GROK_TELEMETRY_ENABLED": "0",
        "GROK_FEEDBACK_ENABLED": "0",
    }
    config = """[cli]
auto_update = false
[models]
default = "stub"
[model.stub]
model = "stub-model"
base_url = "@URL@/v1"
name = "stub"
env_key = "STUB_KEY"
api_backend = "chat_completions"
context_window = 200000
"""
    files = {".grok/config.toml": config}

    def path(self):
        return self.folder / "grok"

    def unpack(self):
        """The program comes packed, and Python cannot unpack brotli."""
        script = (
            "const fs = require('fs'), zlib = require('zlib');"
            "const [from, to] = process.argv.slice(1);"
            "fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync(from)));"
        )
        (packed,) = self.folder.glob("node_modules/@xai-official/grok-*/bin/grok.br")
        node = shutil.which("node", path=search_path())
        run([node, "-e", script, packed, self.path()], "Grok's program cannot be unpacked")
        self.path().chmod(0o755)


class GrokOnClaude(Grok):
    """With what was installed for Claude Code: it runs .claude/settings.json too."""

    name = "grok-claude"
    label = "Grok Build, Claude's settings"
    has_calm = False
    agent = "claude"
    dialect = "grok"


CLAUDE = Claude()
KINDS = (Codex, CodexCodeMode, Gemini, Qwen, Copilot, CopilotOnClaude, Droid, Grok, GrokOnClaude)
CLIENTS = [kind() for kind in KINDS]


def trusted_hooks(path):
    """The lines by which Codex remembers that a person trusted the hooks of a file."""
    hooks = json.loads(path.read_text())["hooks"] if path.is_file() else {}
    lines = []
    for event, groups in hooks.items():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for place, group in enumerate(groups):
            for number, hook in enumerate(group["hooks"]):
                lines.append('[hooks.state."%s:%s:%d:%d"]' % (path, name, place, number))
                lines.append('trusted_hash = "sha256:%s"' % hash_of_hook(name, hook))
    return "\n".join(lines) + "\n"


def hash_of_hook(event_name, hook):
    known = {key: hook[key] for key in ("type", "command", "timeout")}
    told = {"event_name": event_name, "hooks": [dict(known, **{"async": False})]}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


# --- packages


@functools.lru_cache(maxsize=None)
def search_path():
    """PATH with a Node that is new enough in front, installed if there is none."""
    own = shutil.which("node")
    if own and node_major(own) >= NODE_OLDEST:
        folder = os.path.dirname(own)
    else:
        processor = {"arm64": "arm64", "aarch64": "arm64"}.get(platform.machine(), "x64")
        package = "node-%s-%s" % (platform.system().lower(), processor)
        folder = DEV / "node/node_modules" / package / "bin"
        if not folder.is_dir():
            npm_install(DEV / "node", "%s@%s" % (package, NODE))
    return "%s:/usr/local/bin:/usr/bin:/bin" % folder


def node_major(program):
    done = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True)
    return int((re.findall(r"\d+", done.stdout) or ["0"])[0])


def npm_install(folder, *packages):
    """Package scripts are not run: the programs come inside the platform packages."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    words = ["npm", "install", "--prefix", folder, *options, *packages]
    run(words, "npm could not install %s" % packages[0])


def run(words, failure, env=None):
    try:
        subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        raise Unavailable("agents: " + failure) from None
