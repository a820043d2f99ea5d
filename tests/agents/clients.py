"""The coding agents of the end-to-end tests: where each comes from, and how it runs without its cloud.

    python3 tests/agents/clients.py [NAME...]     installs them into .dev/agents and says which do start

One class a client: its package and version (the only place that names them), how it is configured for a stub
model, how it is started for one prompt, and what its shell tool is called. What the kit must know about a client
stands in the kit and is not repeated here.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import real_client
from real_client import Unavailable

REPO = Path(__file__).resolve().parents[2]
DEV = REPO / ".dev" / "agents"
NODE_VERSION = "24"  # installed where the machine's own is too old
INSTALL_S, START_S = 300, 60
KEY = "dummy-key-for-a-stub-model"
WANTED = os.environ.get("CTX_E2E_AGENTS", "").split()  # only these, by name; all when it is empty


class Client:
    """What they share. A subclass is one client in one way of registering hooks."""

    name = label = package = version = ""
    agent = ""  # the word of install.py --agent and of the registered command
    bin = ""  # its program in node_modules/.bin
    node_oldest = 22
    shell_tool = "run_shell_command"
    exact_window = None  # tokens; None: the client does not tell, and the kit says that it guesses
    speaks_before_a_tool = False
    has_prompt_event = has_end_event = True

    @property
    def folder(self):
        return DEV / (self.bin or self.name)

    def install(self):
        """The program, installed unless it is there; Unavailable with one sentence when it cannot be had."""
        wanted = "%s@%s" % (self.package, self.version)
        program, stamp = self.folder / "node_modules/.bin" / self.bin, self.folder / "ready"
        if not (stamp.is_file() and stamp.read_text() == wanted):
            _npm_install(self.folder, wanted, search_path(self.node_oldest))
            if not self.starts(program):
                raise Unavailable("e2e-agents: %s was installed, but does not start here" % wanted)
            stamp.write_text(wanted)
        return program

    def starts(self, program):
        try:
            done = subprocess.run([str(program), "--version"], env=dict(os.environ, PATH=search_path(self.node_oldest)), timeout=START_S,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0 and bool(re.search(r"\d+\.\d+", done.stdout))

    def prepare(self, lab):
        """Write what the client wants to find in its home folder."""

    def environment(self, lab):
        return {}

    def command(self, program, prompt):
        raise NotImplementedError

    def shell(self, command):
        """(tool, input) of a call that runs a command in the client's shell."""
        return self.shell_tool, {"command": command, "description": "scripted"}


class Claude(Client):
    name = agent = "claude"
    node_oldest = 0  # native
    label, package = "Claude Code", real_client.PACKAGE
    exact_window = 200_000
    model = "claude-opus-4-6"  # a model with the small window
    speaks_before_a_tool = True

    def install(self):
        return real_client.install()

    def prepare(self, lab):
        lab.write_home(".claude.json", {"hasCompletedOnboarding": True})

    def environment(self, lab):
        quiet = ("DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER", "IS_SANDBOX",
                 "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
        values = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": lab.stub.url, "ANTHROPIC_MODEL": self.model}
        return dict(values, CLAUDE_CODE_TMPDIR=str(lab.temp), **dict.fromkeys(quiet, "1"))

    def command(self, program, prompt):
        return [program, "-p", "--dangerously-skip-permissions", prompt]

    def shell(self, command):
        return "Bash", {"command": command, "description": "scripted"}


class Codex(Client):
    name = agent = bin = "codex"
    label, package, version = "Codex", "@openai/codex", "0.166.0"
    node_oldest = 18  # it only starts the program, which is native
    exact_window = 258_400
    model = "gpt-5.5"
    speaks_before_a_tool = True
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
        text = self.config.format(model=self.model, url=lab.stub.url, project=lab.project)
        lab.write_home(".codex/config.toml", text + trusted_hooks(lab.project / ".codex/hooks.json"))

    def environment(self, lab):
        return {"STUB_KEY": KEY}

    def command(self, program, prompt):
        return [program, "exec", prompt]

    def shell(self, command):
        return "exec_command", {"cmd": command}


class CodexCodeMode(Codex):
    """The newest models send JavaScript that calls the tools; hooks see the calls inside it."""

    name = "codex-codemode"
    label = "Codex, code mode"
    model = "gpt-6-sol"

    def shell(self, command):
        return "exec", "const r = await tools.exec_command({cmd: %s}); text(r);" % json.dumps(command)


class Gemini(Client):
    name = agent = bin = "gemini"
    label, package, version = "Gemini CLI", "@google/gemini-cli", "0.61.0"
    exact_window = 1_048_576

    def prepare(self, lab):
        quiet = {"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
        quiet["general"] = {"disableAutoUpdate": True, "enableAutoUpdate": False}
        lab.write_home(".gemini/settings.json", dict(quiet, security={"auth": {"selectedType": "gemini-api-key"}}))
        lab.write_home(".gemini/trustedFolders.json", {str(lab.project): "TRUST_FOLDER"})

    def environment(self, lab):
        return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": lab.stub.url, "GEMINI_CLI_NO_RELAUNCH": "true"}

    def command(self, program, prompt):
        return [program, "--yolo", "-m", "gemini-2.5-pro", "-p", prompt]  # without -m a router is asked first


class Qwen(Client):
    name = agent = bin = "qwen"
    label, package, version = "Qwen Code", "@qwen-code/qwen-code", "0.24.4"
    exact_window = 1_000_000
    has_end_event = False  # not for one prompt from the command line

    def prepare(self, lab):
        quiet = {"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
        quiet["general"] = {"disableAutoUpdate": True, "enableAutoUpdate": False}
        quiet["memory"] = {"enableManagedAutoMemory": False}  # an agent of its own after each session
        lab.write_home(".qwen/settings.json", dict(quiet, security={"auth": {"selectedType": "openai"}}))

    def environment(self, lab):
        return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": lab.stub.url + "/v1", "OPENAI_MODEL": "qwen3-coder-plus"}

    def command(self, program, prompt):
        return [program, "--yolo", "-p", prompt]


class Copilot(Client):
    """With hooks of its own, in .github/hooks."""

    name = agent = bin = "copilot"
    label, package, version = "Copilot CLI", "@github/copilot", "1.0.102"
    shell_tool = "bash"
    exact_window = 922_000
    speaks_before_a_tool = True

    def prepare(self, lab):
        lab.write_home(".copilot/config.json", {"trustedFolders": [str(lab.project)], "banner": "never"})
        cache = self.folder / "cache"  # it unpacks itself there, 180 MB for each new home
        cache.mkdir(exist_ok=True)
        (lab.home / ".cache").mkdir(exist_ok=True)
        if not (lab.home / ".cache/copilot").is_symlink():
            (lab.home / ".cache/copilot").symlink_to(cache)

    def environment(self, lab):
        switches = {"COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false", "COPILOT_MODEL": "gpt-5.4"}
        return dict(switches, COPILOT_PROVIDER_BASE_URL=lab.stub.url + "/v1", COPILOT_PROVIDER_API_KEY=KEY)

    def command(self, program, prompt):
        return [program, "--allow-all", "--no-color", "-p", prompt]


class CopilotOnClaude(Copilot):
    """With what was installed for Claude Code: it runs the project's .claude/settings.json too."""

    name = "copilot-claude"
    label = "Copilot CLI, Claude's settings"
    agent = "claude"


class Droid(Client):
    name = agent = bin = "droid"
    label, package, version = "droid", "droid", "0.215.0"
    has_prompt_event = False  # in its terminal only

    def prepare(self, lab):
        model = {"model": "stub-model", "id": "custom:stub-0", "index": 0, "displayName": "stub", "apiKey": KEY}
        model.update(baseUrl=lab.stub.url + "/v1", provider="generic-chat-completion-api", maxOutputTokens=8000)
        lab.write_home(".factory/settings.json", {"customModels": [model], "model": "custom:stub-0"})

    def environment(self, lab):
        service = {"FACTORY_API_BASE_URL": lab.stub.url, "FACTORY_API_URL": lab.stub.url}
        return dict(service, FACTORY_API_KEY="fk-" + KEY, FACTORY_DISABLE_AUTO_UPDATE="1")

    def command(self, program, prompt):
        return [program, "exec", "--skip-permissions-unsafe", "-m", "custom:stub-0", prompt]

    def shell(self, command):
        return "Execute", {"command": command, "riskLevel": "low", "riskLevelReason": "scripted", "timeout": 30}


CLIENTS = (Codex(), CodexCodeMode(), Gemini(), Qwen(), Copilot(), CopilotOnClaude(), Droid())


def trusted_hooks(path):
    """The lines by which Codex remembers that a person trusted the hooks of a file."""
    lines = []
    hooks = json.loads(path.read_text())["hooks"] if path.is_file() else {}
    for event, groups in hooks.items():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for at, group in enumerate(groups):
            for number, hook in enumerate(group["hooks"]):
                known = {"type": "command", "command": hook["command"], "timeout": hook["timeout"], "async": False}
                said = json.dumps({"event_name": name, "hooks": [known]}, sort_keys=True, separators=(",", ":"),
                                  ensure_ascii=False)
                lines.append('[hooks.state."%s:%s:%d:%d"]' % (path, name, at, number))
                lines.append('trusted_hash = "sha256:%s"' % hashlib.sha256(said.encode("utf-8")).hexdigest())
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------
# packages
# ---------------------------------------------------------------------------


def search_path(oldest=0):
    """PATH with a Node that is new enough in front; installed into .dev/agents when the machine has none."""
    own = shutil.which("node")
    folders = ["/usr/local/bin", "/usr/bin", "/bin"]
    if not oldest:
        return os.pathsep.join(folders)
    if own and _node_major(own) >= oldest:
        return os.pathsep.join([os.path.dirname(own)] + folders)
    system = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), "x64")
    package = "node-%s-%s" % (platform.system().lower(), system)
    folder = DEV / "node"
    program = folder / "node_modules" / package / "bin/node"
    if not program.is_file():
        _npm_install(folder, "%s@%s" % (package, NODE_VERSION), os.environ.get("PATH", ""))
    if not program.is_file():
        raise Unavailable("e2e-agents: there is no Node %d or newer" % oldest)
    return os.pathsep.join([str(program.parent)] + folders)


def _node_major(program):
    said = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, timeout=START_S).stdout
    return int((re.findall(r"\d+", said) or ["0"])[0])


def _npm_install(folder, wanted, path):
    """Package scripts are not run: the programs come inside the platform packages."""
    if not shutil.which("npm"):
        raise Unavailable("e2e-agents: %s cannot be had, there is no npm" % wanted)
    folder.mkdir(parents=True, exist_ok=True)
    path = path + os.pathsep + os.environ.get("PATH", "")
    arguments = ["npm", "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        code = subprocess.run(arguments + [wanted], env=dict(os.environ, PATH=path), stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=INSTALL_S).returncode
    except (OSError, subprocess.SubprocessError):
        code = -1
    if code:
        raise Unavailable("e2e-agents: npm could not install %s" % wanted)


def main(names):
    for client in CLIENTS:
        if client.name in names or not names:
            try:
                client.install()
                print("%-16s %s" % (client.name, client.version))
            except Unavailable as reason:
                print(reason)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
