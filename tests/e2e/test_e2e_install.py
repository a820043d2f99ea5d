"""Installed as people do it, as a plugin, broken, and taken out again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time

import pytest

from agents import ASKED, FULL, GATE, NEAR, OWN, bash, edit, read, said
from real_client import REPO, wait_until
from stub_model import Turn

SHIPPED = (".claude-plugin", "hooks.json", "ctx_hooks.py", "install.py", "README.md", "LICENSE")
KIT = ".claude/hooks/ctx_hooks.py"
SETTINGS = ".claude/settings.json"
QUIET = ("hook_success", "hook_additional_context", "hook_system_message")  # the other kinds of rows are complaints


def tree(world):
    files = [path for path in world.project.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(world.project)): path.read_bytes() for path in files}


def test_the_users_own_hooks_and_settings_survive_install_use_and_uninstall(world):
    says_hello = {"type": "command", "command": "echo own-hook-says-hello"}
    own = {"hooks": {"UserPromptSubmit": [{"hooks": [says_hello]}]}, "env": {"A": "b"}}
    world.write(SETTINGS, json.dumps(own, indent=4) + "\n")
    world.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    before = tree(world)
    world.install()
    world.stub.script(bash("echo a"), bash("echo b"), "done", bash("echo c"), "done")
    world.run("work")
    assert "own-hook-says-hello" in world.stub.of("main")[0].news() and said(world, GATE) == [0, 1, 0]
    world.install("--uninstall")
    ran = len(world.emitted())
    world.run("work")
    assert sum(said(world, GATE)) == 1 and len(world.emitted()) == ran
    after = tree(world)
    assert {name: after.get(name) for name in before} == before
    assert [name for name in after if name not in before and not name.startswith(".context/")] == []
    assert not world.ours("session-*") and world.left_behind() == []


# ---------------------------------------------------------------------------
# one kit speaks
# ---------------------------------------------------------------------------


@pytest.fixture
def plugin(world):
    """The repository as somebody has cloned it beside the project, installed with the client's own commands."""
    clone = world.root / "a clone"
    clone.mkdir()
    for name in SHIPPED:
        source = REPO / name
        shutil.copytree(source, clone / name) if source.is_dir() else shutil.copy(source, clone / name)
    assert "Validation passed" in world.command(world.program, "plugin", "validate", "--strict", clone)
    world.command(world.program, "plugin", "marketplace", "add", clone)
    world.command(world.program, "plugin", "install", "ctx-hooks@ctx-hooks")
    world.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    return world


def assert_everything_is_said_once(world):
    world.leave_handoff(OWN)
    world.signal("Code freeze today.")
    calls = [bash("echo %d" % n, tokens=NEAR) for n in range(3)]
    calls += [bash("echo %s" % word, tokens=FULL) for word in ("x", "y", "z")]
    world.stub.script(*calls, Turn("done", tokens=FULL))
    session = world.run("work")
    for text in ("Code freeze today.", GATE, "The parser knows quotes.", "Context: 83% full"):
        assert sum(said(world, text)) == 1, (text, said(world, text))
    assert max(said(world, ASKED)) == 1
    assert sum("asked the agent" in line for line in session.notices()) == 1


def test_a_plugin_alone_does_everything(plugin):
    assert_everything_is_said_once(plugin)
    assert plugin.files(".claude/**/*") == []
    before = len(plugin.stub.of("main"))
    plugin.stub.script(otherwise=Turn("shown"))
    plugin.run("/ctx-hooks:status", "/ctx-hooks:doctor")
    asked = plugin.stub.of("main")[before:]
    assert len(asked) == 2 and all("ctx_hooks" in request.news() for request in asked)


def test_the_first_minute_with_the_plugin_in_a_terminal_that_asks_for_permissions(plugin):
    """Start, init, status, doctor, signal, why, pause and resume, with permissions on; then out with it."""
    shutil.rmtree(str(plugin.path(".context")))
    plugin.stub.script(otherwise=Turn("so it is"))
    with plugin.terminal("default") as terminal:
        terminal.wait_shown("for shortcuts")
        assert "hooks are on" not in terminal.shown()
        for count, words in enumerate(PLUGIN_WORDS, 1):
            terminal.type("/ctx-hooks:" + words)
            wait_until(lambda least=count: len(plugin.stub.of("main")) >= least, words, terminal.shown)
            time.sleep(1)  # the answer is drawn, the next line is no queued one
        terminal.wait_shown("ctx: hooks are on; /ctx-hooks:status shows more")
    shown = terminal.shown()
    assert "permission check failed" not in shown and "Do you want to" not in shown
    told = "\n".join(request.news() for request in plugin.stub.of("main"))
    for words in ("registered line runs", "for every session, until", "by `pause`", "the hooks are on"):
        assert words in told, words
    assert "FAIL" not in told.replace("FAIL     all hooks are silent here", "")
    plugin.command(plugin.program, "plugin", "uninstall", "ctx-hooks@ctx-hooks")
    before = len(plugin.emitted())
    plugin.run("work")
    assert len(plugin.emitted()) == before


PLUGIN_WORDS = (
    "init",
    "status",
    "doctor",
    'signal "CI is red" --ttl 2h',
    "why 3",
    "pause --for 30m",
    "status",
    "resume",
)


def test_in_a_monorepo_it_says_where_to_start(world):
    world.path("packages/web").mkdir(parents=True)
    assert "runs no hook if you start it here" in world.install(folder="packages/web")
    world.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    world.stub.script(otherwise=Turn("done"))
    world.run("work", folder="packages/web")
    assert world.emitted() == []
    world.install(".", folder="packages/web")
    world.stub.script(bash("echo a"), "done")
    world.run("work", folder="packages/web")
    assert sum(said(world, GATE)) == 1 and not world.path("packages/web/.context").exists()


def test_a_teammate_s_fresh_clone_speaks_at_once(world):
    world.install()
    world.write(".context/TASKS.md", "# Tasks\n- finish the parser\n")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "the hooks")
    world.project.rename(world.root / "the first one's")
    shutil.rmtree(str(world.home / ".local"))
    world.command_in(world.root, "git", "clone", "-q", world.root / "the first one's", world.project)
    world.stub.script(bash("echo a"), "done")
    world.run("work")
    assert sum(said(world, GATE)) == 1
    assert any("ctx: hooks are on; " in str(reply) for _, reply in world.emitted())
    assert world.git("status", "--porcelain") == ""


def test_a_plugin_and_a_kit_of_the_user_beside_the_projects_own_stay_silent(plugin):
    plugin.install()
    plugin.install("--scope", "user")
    assert_everything_is_said_once(plugin)


# ---------------------------------------------------------------------------
# broken, or without a context folder: the client goes on undisturbed
# ---------------------------------------------------------------------------


def complaints(world):
    """What the client noted about hooks that went wrong."""
    hooks = [row["attachment"] for row in world.transcripts() if "hookEvent" in row.get("attachment", {})]
    return [row for row in hooks if row["type"] not in QUIET]


def break_python(kit):
    (kit.cache / "python3").unlink()
    (kit.cache / "python3").write_text("#!/bin/sh\nexit 2\n")
    (kit.cache / "python3").chmod(0o755)


BROKEN = {
    "the kit's file is gone": lambda kit: kit.path(KIT).unlink(),
    "half a file": lambda kit: kit.write(KIT, kit.read(KIT)[:20_000]),
    "an interpreter that fails": break_python,
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_kit_disturbs_nobody(kit, how):
    """Two prompts, a call that works and one that fails; everything comes through, and no hook complains."""
    BROKEN[how](kit)
    kit.stub.script(bash("echo tool-result"), bash("echo wrong >&2; false"), "the answer", "the second answer")
    with kit.session() as session:
        assert session.prompt("first prompt")["result"] == "the answer"
        assert session.prompt("second prompt")["result"] == "the second answer"
    news = [request.news() for request in kit.stub.of("main")]
    assert "tool-result" in news[1] and "wrong" in news[2] and "second prompt" in news[3]
    assert session.process.returncode == 0 and kit.emitted() == [] and complaints(kit) == []
    (kit.root / "errors").unlink(missing_ok=True)  # Python's own complaint about a broken file


def test_a_formatted_kit_runs_nothing_that_a_tool_printed(kit):
    """Without the lines that keep formatters away."""
    tools = [path.parent / "bin" for path in (REPO / ".dev").glob("formatters-*/ready")]
    if not tools:
        pytest.skip("no formatter is here; `make test` fetches them")
    head, _, rest = kit.read(KIT).partition('\n"""')
    kit.write(KIT, re.sub("\n# .*", "\n#", head) + '\n"""' + rest)
    for words in (["black", "-q"], ["ruff", "format", "-q"], ["ruff", "check", "-q", "--fix", "--exit-zero"]):
        subprocess.run([tools[0] / words[0], *words[1:], kit.path(KIT)], check=True)
    pwned = kit.root / "pwned"
    kit.write("notes.txt", "x $(touch '%s') `touch '%s'`; touch '%s'\n" % (pwned, pwned, pwned))
    kit.stub.script(read(kit.path("notes.txt")), bash("cat notes.txt"), "done")
    kit.run("work $(touch '%s')" % pwned, mode="default")
    assert not pwned.exists()
    assert sum(said(kit, GATE)) == 1 and complaints(kit) == []


def test_files_where_folders_belong_disturb_nobody(kit):
    kit.write(".context/signals", "a file\n")
    kit.write(".context/handoffs", "a file\n")
    kit.path(".context/monitor-state.json").mkdir()
    kit.stub.script(edit(kit, "one.py"), "done")
    kit.run("work")
    assert sum(said(kit, GATE)) == 1 and complaints(kit) == []


def test_a_context_folder_counts_from_the_moment_it_is_there_until_it_goes(world):
    world.install("--no-context")
    home = sorted(world.home.glob(".local/**/*"))
    world.stub.script(edit(world, "one.py"), "done")
    world.stub.script(bash("mkdir .context"), edit(world, "two.py"), "done", "and on")
    with world.session() as session:
        session.prompt("Never push to main.")
        assert world.emitted() == [] and not world.runs("monitor") and not world.path(".context").exists()
        assert sorted(world.home.glob(".local/**/*")) == home
        session.prompt("Go on.")
        session.prompt("And now?")
    text = world.handoffs()[session.id + ".md"]
    assert "> Never push to main." in text and "one.py" in text and "two.py" in text and "And now?" in text
    world.stub.script(bash("rm -r .context"), edit(world, "three.py"), "done")
    world.run("Away with it.")
    assert not world.path(".context").exists()
