"""The coding agents of these tests, and how each runs without its cloud.

    python3 tests/agents/clients.py [NAME...]

installs them into .dev/agents and says which do start. VERSIONS is the only place that
names versions; with AGENTS_LATEST=1 the newest ones are taken, and it is said where they
are others. What the kit must know about a client stands in the kit.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = {
    "@anthropic-ai/claude-code": "2.1.326",
    "@openai/codex": "0.169.0",
    "@google/gemini-cli": "0.61.0",
    "@qwen-code/qwen-code": "0.24.4",
    "@github/copilot": "1.0.102",
    "@factory/cli": "0.225.1",
    "@factory/cli-linux-x64": "0.225.2",
    "@xai-official/grok": "1.0.41",
}
NODE_VERSION = "24"  # installed where the machine's own is too old

REPO = Path(__file__).resolve().parents[2]
DEV = Path(os.environ.get("CTX_E2E_DEV") or REPO / ".dev") / "agents"
INSTALL_S, START_S = 300, 60
KEY = "dummy-key-for-a-stub-model"
WANTED = os.environ.get("AGENTS", "").split()  # only these, by name; all if it is empty
LATEST = bool(os.environ.get("AGENTS_LATEST"))
QUIET = {
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
}


class Unavailable(Exception):
    """The client cannot be had; the message is the one line to show."""


class Client:
    """What they share. A subclass is one client in one way of registering hooks."""

    name = ""
    label = ""
    agent = ""  # the word of install.py --agent
    dialect = ""  # the kit's name of the client, where that is another word
    packages = ()
    program = ""  # in node_modules/.bin
    node_oldest = 22
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
        return DEV / ("latest" if LATEST else ".") / self.program

    def version(self):
        """What is installed, and where that is another one than we name."""
        package = self.folder / "node_modules" / self.packages[0] / "package.json"
        found = json.loads(package.read_text())["version"]
        known = VERSIONS[self.packages[0]]
        return found if found == known else "%s, not %s" % (found, known)

    def install(self):
        """Install the program unless it is there; Unavailable if it cannot be had."""
        versions = dict.fromkeys(VERSIONS, "latest") if LATEST else VERSIONS
        wanted = ["%s@%s" % (name, versions[name]) for name in self.packages]
        stamp = self.folder / "ready"
        if not stamp.is_file() or stamp.read_text() != " ".join(wanted):
            npm_install(self.folder, wanted, search_path(self.node_oldest))
            self.unpack()
            if not self.starts():
                raise Unavailable("agents: %s does not start here" % wanted[0])
            stamp.write_text(" ".join(wanted))
        return self.path()

    def path(self):
        return self.folder / "node_modules/.bin" / self.program

    def unpack(self):
        """What the package's own script would do after npm."""

    def starts(self):
        words = [str(self.path()), "--version"]
        env = dict(
            os.environ, PATH=search_path(self.node_oldest), HOME=str(self.folder)
        )
        try:
            done = subprocess.run(
                words,
                env=env,
                timeout=START_S,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0 and bool(re.search(r"\d+\.\d+", done.stdout))

    def prepare(self, lab):
        """Write what the client wants to find in its home folder."""

    def environment(self, lab):
        return {}

    def command(self, prompt):
        raise NotImplementedError

    def shell(self, command):
        """(tool, input) of a call that runs a command in the client's shell."""
        return self.shell_tool, {"command": command, "description": "scripted"}


class Claude(Client):
    name = agent = "claude"
    label = "Claude Code"
    packages = ("@anthropic-ai/claude-code",)
    program = "claude"
    node_oldest = 0  # native
    window = 200_000
    compacts_at = 83.5
    shell_tool = "Bash"

    def path(self):
        """The package's own script would link this to node_modules/.bin."""
        found = sorted(
            self.folder.glob("node_modules/@anthropic-ai/claude-code-*/claude")
        )
        return found[0] if found else self.folder / "claude"

    def prepare(self, lab):
        lab.write_home(".claude.json", {"hasCompletedOnboarding": True})

    def environment(self, lab):
        switches = (
            "DISABLE_TELEMETRY",
            "DISABLE_ERROR_REPORTING",
            "DISABLE_AUTOUPDATER",
            "IS_SANDBOX",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        )
        return {
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": lab.stub.url,
            "ANTHROPIC_MODEL": "claude-opus-4-6",  # with the small window
            "CLAUDE_CODE_TMPDIR": str(lab.temp),
            **dict.fromkeys(switches, "1"),
        }

    def command(self, prompt):
        return [self.path(), "-p", "--dangerously-skip-permissions", prompt]


class Codex(Client):
    name = agent = "codex"
    label = "Codex"
    packages = ("@openai/codex",)
    program = "codex"
    node_oldest = 18  # it only starts the program, which is native
    has_calm = False
    window = 258_400
    compacts_at = 94
    model = "gpt-5.5"
    config = """model = "{model}"
model_provider = "stub"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
env_key = "STUB_KEY"
wire_api = "responses"
supports_websockets = false
[projects."{project}"]
trust_level = "trusted"
"""

    def prepare(self, lab):
        """The folder is trusted, and so is each hook, as a person does it in /hooks."""
        text = self.config.format(
            model=self.model, url=lab.stub.url, project=lab.project
        )
        hooks = lab.project / ".codex/hooks.json"
        lab.write_home(".codex/config.toml", text + trusted_hooks(hooks))

    def environment(self, lab):
        return {"STUB_KEY": KEY}

    def command(self, prompt):
        return [self.path(), "exec", prompt]

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
    name = agent = "gemini"
    label = "Gemini CLI"
    packages = ("@google/gemini-cli",)
    program = "gemini"
    window = 1_048_576

    def prepare(self, lab):
        auth = {"auth": {"selectedType": "gemini-api-key"}}
        lab.write_home(".gemini/settings.json", dict(QUIET, security=auth))
        trusted = {str(lab.project): "TRUST_FOLDER"}
        lab.write_home(".gemini/trustedFolders.json", trusted)

    def environment(self, lab):
        return {
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": lab.stub.url,
            "GEMINI_CLI_NO_RELAUNCH": "true",
        }

    def command(self, prompt):  # without -m a router is asked first
        return [self.path(), "--yolo", "-m", "gemini-2.5-pro", "-p", prompt]


class Qwen(Client):
    name = agent = "qwen"
    label = "Qwen Code"
    packages = ("@qwen-code/qwen-code",)
    program = "qwen"
    window = 1_000_000
    compacts_at = 85
    has_end_event = False  # not for one prompt from the command line

    def prepare(self, lab):
        memory = {"enableManagedAutoMemory": False}  # an agent after each session
        auth = {"auth": {"selectedType": "openai"}}
        lab.write_home(".qwen/settings.json", dict(QUIET, memory=memory, security=auth))

    def environment(self, lab):
        return {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": lab.stub.url + "/v1",
            "OPENAI_MODEL": "qwen3-coder-plus",
        }

    def command(self, prompt):
        return [self.path(), "--yolo", "-p", prompt]


class Copilot(Client):
    """With hooks of its own, in .github/hooks."""

    name = agent = "copilot"
    label = "Copilot CLI"
    packages = ("@github/copilot",)
    program = "copilot"
    has_calm = False
    shell_tool = "bash"
    window = 922_000
    compacts_at = 80

    def prepare(self, lab):
        config = {"trustedFolders": [str(lab.project)], "banner": "never"}
        lab.write_home(".copilot/config.json", config)
        cache = self.folder / "cache"  # it unpacks itself there, 180 MB for each home
        cache.mkdir(exist_ok=True)
        (lab.home / ".cache").mkdir(exist_ok=True)
        if not (lab.home / ".cache/copilot").is_symlink():
            (lab.home / ".cache/copilot").symlink_to(cache)

    def environment(self, lab):
        return {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_MODEL": "gpt-5.4",
            "COPILOT_PROVIDER_BASE_URL": lab.stub.url + "/v1",
            "COPILOT_PROVIDER_API_KEY": KEY,
        }

    def command(self, prompt):
        return [self.path(), "--allow-all", "--no-color", "-p", prompt]


class CopilotOnClaude(Copilot):
    """With what was installed for Claude Code: it runs .claude/settings.json too."""

    name = "copilot-claude"
    label = "Copilot CLI, Claude's settings"
    agent = "claude"
    dialect = "copilot"


class Droid(Client):
    name = agent = "droid"
    label = "droid"
    packages = ("@factory/cli", "@factory/cli-linux-x64")
    program = "droid"
    has_prompt_event = False  # in its terminal only

    def prepare(self, lab):
        model = {
            "model": "stub-model",
            "id": "custom:stub-0",
            "index": 0,
            "displayName": "stub",
            "apiKey": KEY,
            "baseUrl": lab.stub.url + "/v1",
            "provider": "generic-chat-completion-api",
            "maxOutputTokens": 8000,
        }
        settings = {"customModels": [model], "model": "custom:stub-0"}
        lab.write_home(".factory/settings.json", settings)

    def environment(self, lab):
        return {
            "FACTORY_API_BASE_URL": lab.stub.url,
            "FACTORY_API_URL": lab.stub.url,
            "FACTORY_API_KEY": "fk-" + KEY,
            "FACTORY_DISABLE_AUTO_UPDATE": "1",
        }

    def command(self, prompt):
        skip = "--skip-permissions-unsafe"
        return [self.path(), "exec", skip, "-m", "custom:stub-0", prompt]

    def shell(self, command):
        given = {"command": command, "riskLevel": "low", "timeout": 30}
        return "Execute", dict(given, riskLevelReason="scripted")


class Grok(Client):
    """With hooks of its own, in .grok/hooks."""

    name = agent = "grok"
    label = "Grok Build"
    packages = ("@xai-official/grok",)
    program = "grok"
    node_oldest = 0  # native
    compacts_at = 85
    shell_tool = "run_terminal_command"
    counts_output = True
    starts_with_text = has_prompt_event = False
    config = """[cli]
auto_update = false
[models]
default = "stub"
[model.stub]
model = "stub-model"
base_url = "{url}/v1"
name = "stub"
env_key = "STUB_KEY"
api_backend = "chat_completions"
context_window = 200000
"""

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
        node = shutil.which("node", path=search_path(18))
        subprocess.run([node, "-e", script, packed, self.path()], check=True)
        self.path().chmod(0o755)

    def prepare(self, lab):
        lab.write_home(".grok/config.toml", self.config.format(url=lab.stub.url))

    def environment(self, lab):
        return {
            "STUB_KEY": KEY,
            "XAI_API_KEY": KEY,
            "GROK_DISABLE_AUTOUPDATER": "1",
            "GROK_TELEMETRY_ENABLED": "0",
            "GROK_FEEDBACK_ENABLED": "0",
        }

    def command(self, prompt):
        return [self.path(), "--trust", "--always-approve", "-p", prompt]


class GrokOnClaude(Grok):
    """With what was installed for Claude Code: it runs .claude/settings.json too."""

    name = "grok-claude"
    label = "Grok Build, Claude's settings"
    has_calm = False
    agent = "claude"
    dialect = "grok"


CLIENTS = (
    Codex(),
    CodexCodeMode(),
    Gemini(),
    Qwen(),
    Copilot(),
    CopilotOnClaude(),
    Droid(),
    Grok(),
    GrokOnClaude(),
)


def trusted_hooks(path):
    """The lines by which Codex remembers that a person trusted the hooks of a file."""
    hooks = json.loads(path.read_text())["hooks"] if path.is_file() else {}
    lines = []
    for event, groups in hooks.items():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for place, group in enumerate(groups):
            for number, hook in enumerate(group["hooks"]):
                key = "%s:%s:%d:%d" % (path, name, place, number)
                lines.append('[hooks.state."%s"]' % key)
                lines.append('trusted_hash = "sha256:%s"' % hash_of_hook(name, hook))
    return "\n".join(lines) + "\n"


def hash_of_hook(event_name, hook):
    known = {key: hook[key] for key in ("type", "command", "timeout")}
    told = {"event_name": event_name, "hooks": [dict(known, **{"async": False})]}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


# --- packages


def search_path(node_oldest=0):
    """PATH with a Node that is new enough in front, installed if there is none."""
    folders = ["/usr/local/bin", "/usr/bin", "/bin"]
    if not node_oldest:
        return os.pathsep.join(folders)
    own = shutil.which("node")
    if own and node_major(own) >= node_oldest:
        return os.pathsep.join([os.path.dirname(own)] + folders)
    machine = platform.machine().lower()
    processor = "arm64" if machine in ("arm64", "aarch64") else "x64"
    package = "node-%s-%s" % (platform.system().lower(), processor)
    program = DEV / "node/node_modules" / package / "bin/node"
    if not program.is_file():
        wanted = "%s@%s" % (package, NODE_VERSION)
        npm_install(DEV / "node", [wanted], os.environ.get("PATH", ""))
    if not program.is_file():
        raise Unavailable("agents: there is no Node %d or newer" % node_oldest)
    return os.pathsep.join([str(program.parent)] + folders)


def node_major(program):
    done = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True)
    return int((re.findall(r"\d+", done.stdout) or ["0"])[0])


def npm_install(folder, wanted, path):
    """Package scripts are not run: the programs come inside the platform packages."""
    if not shutil.which("npm"):
        raise Unavailable("agents: %s cannot be had, there is no npm" % wanted[0])
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    words = ["npm", "install", "--prefix", str(folder)] + options + wanted
    env = dict(os.environ, PATH=path + os.pathsep + os.environ.get("PATH", ""))
    try:
        done = subprocess.run(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=INSTALL_S,
        )
    except (OSError, subprocess.SubprocessError):
        raise Unavailable("agents: npm could not install %s" % wanted[0]) from None
    if done.returncode:
        raise Unavailable("agents: npm could not install %s" % wanted[0])


def main(names):
    for client in (Claude(),) + CLIENTS:
        if names and client.name not in names:
            continue
        try:
            client.install()
            print("%-16s %s" % (client.name, client.version()))
        except Unavailable as reason:
            print(reason)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
