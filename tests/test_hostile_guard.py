"""The shell test in front of the gate: it may save an interpreter, never speak, fail or be talked into silence."""
from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

import helper

SESSION = "0f3a2b7c-5d1e-4c1b-9a75-3f0f7c1d2e4b"
MARKER = "ctx-quiet-"
FOREIGN_ID = 1234
SHELLS = {"dash": ["dash"], "bash": ["bash"], "bash as sh": ["bash", "--posix"], "busybox": ["busybox", "sh"],
          "zsh": ["zsh", "-f"], "zsh as sh": ["zsh", "--emulate", "sh", "-f"]}
ODD_IDS = ["", "$(touch planted)", "`touch planted`", "; touch planted", "../..", "/../../own", "a" * 300, "a" * 5000,
           "a\nb", "a b", 'a"b', "a'b", "a\\nb", "*", "-n", "!", "(", "ünï"]
ODD_FOLDERS = ["a b", "it's", 'a"b', "$(touch planted)", "`touch planted`", "*", "-n", "!", "(", "a\nb"]


@pytest.fixture(params=SHELLS)
def shell(request):
    words = SHELLS[request.param]
    if not shutil.which(words[0]):
        pytest.skip("there is no %s" % words[0])
    return [shutil.which(words[0]), *words[1:], "-c"]


@pytest.fixture
def ask(shell, tmp_path):
    """ask(temp folder, session id) -> whether an interpreter was started; all else is an error."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text("#!/bin/sh\nprintf started\n")
    (programs / "python3").chmod(0o755)
    here = tmp_path / "here"
    here.mkdir()

    def run(folder=None, session=SESSION, **more):
        env = dict({"PATH": "%s:/usr/bin:/bin" % programs, "CLAUDE_PROJECT_DIR": "/nowhere", "HOME": str(tmp_path)}, **more)
        if folder is not None:
            env["TMPDIR"] = str(folder)
        if session is not None:
            env["CLAUDE_CODE_SESSION_ID"] = session
        kit, said = helper.load_kit(), set()
        installed = kit.format_command("gate", "claude", "python3", kit.kit_path("claude"))
        for command in (helper.registered_commands()["PreToolUse"], installed):  # the plugin's, and install.py's
            done = subprocess.run([*shell, command], env=env, cwd=str(here), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30)
            assert (done.returncode, done.stderr) == (0, b"")
            said.add(done.stdout)
        assert said in ({b""}, {b"started"})
        assert not list(tmp_path.rglob("planted"))
        return said == {b"started"}
    return run


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def test_a_marker_of_ours_saves_the_interpreter(ask, folder):
    assert ask(folder)
    (folder / (MARKER + SESSION)).touch()
    assert not ask(folder)
    assert ask(folder, "another-session")


def test_without_a_temp_folder_in_the_environment_it_is_slash_tmp(ask):
    assert ask(None) and ask("")


@pytest.mark.parametrize("name", ODD_FOLDERS)
def test_a_temp_folder_with_any_name_is_only_a_name(ask, tmp_path, name):
    (tmp_path / name).mkdir()
    assert ask(tmp_path / name)
    (tmp_path / name / (MARKER + SESSION)).touch()
    assert not ask(tmp_path / name)


def test_a_temp_folder_that_is_not_there_or_no_folder_starts_the_interpreter(ask, tmp_path):
    (tmp_path / "file").touch()
    assert ask(tmp_path / "missing") and ask(tmp_path / "file")


def test_a_link_is_not_believed(ask, folder):
    (folder / "own").touch()
    (folder / (MARKER + SESSION)).symlink_to(folder / "own")
    assert ask(folder)
    (folder / "own").unlink()
    assert ask(folder)


def test_what_is_no_regular_file_is_not_believed(ask, folder):
    (folder / (MARKER + SESSION)).mkdir()
    assert ask(folder)
    (folder / (MARKER + SESSION)).rmdir()
    os.mkfifo(str(folder / (MARKER + SESSION)))
    assert ask(folder)


@pytest.mark.skipif(not helper.IS_ROOT, reason="only root can give a file away")
def test_another_users_file_is_not_believed(ask, folder):
    (folder / (MARKER + SESSION)).touch()
    os.chown(str(folder / (MARKER + SESSION)), FOREIGN_ID, FOREIGN_ID)
    assert ask(folder)


@pytest.mark.parametrize("session", [None, *ODD_IDS])
def test_an_odd_session_id_starts_the_interpreter(ask, folder, session):
    (folder / (MARKER + SESSION)).touch()
    assert ask(folder, session)


@pytest.mark.parametrize("session", ["x/../own", "/../own"])
def test_an_id_cannot_lead_to_another_file(ask, folder, session):
    (folder / "own").touch()
    (folder / (MARKER + session.partition("/")[0])).mkdir()
    assert ask(folder, session)


def test_an_agent_that_inherited_the_id_is_not_silenced(ask, folder):
    """Copilot runs a project's `.claude/settings.json`; started inside a session it has that session's variables."""
    (folder / (MARKER + SESSION)).touch()
    assert ask(folder, COPILOT_CLI="1")


# -----------------------------------------------------------------------------
# with the kit behind it
# -----------------------------------------------------------------------------


@pytest.fixture
def send(project, tmp_path):
    """send(recorded event) -> (text, how many interpreters it took), through the registered command."""
    programs, log = tmp_path / "bin", tmp_path / "started"
    programs.mkdir()
    (programs / "python3").write_text("#!/bin/sh\necho >> '%s'\nexec '%s' \"$@\"\n" % (log, helper.PYTHON))
    (programs / "python3").chmod(0o755)

    def run(name, session=SESSION, **changes):
        event = project.event(name, session_id=session, **changes)
        env = project.environment({"PATH": "%s:/usr/bin:/bin" % programs, "CLAUDE_CODE_SESSION_ID": session,
                                   "CLAUDE_PLUGIN_ROOT": helper.REPO})
        log.write_text("")
        done = subprocess.run(["/bin/sh", "-c", helper.registered_commands()[event["hook_event_name"]]], env=env,
                              input=json.dumps(event).encode("utf-8"), cwd=project.root, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=30)
        assert (done.returncode, done.stderr) == (0, b"")
        return helper.make_result(0, done.stdout, b"").context, len(log.read_text().splitlines())
    return run


def test_after_the_gate_has_spoken_no_call_starts_an_interpreter(send):
    text, started = send("PreToolUse.Bash")
    assert "STOP. Read your context files" in text and started == 1
    assert send("PreToolUse.Bash") == ("", 0)
    assert send("PreToolUse.Read") == ("", 0)


@pytest.mark.parametrize("name", ["SessionStart.compact", "SessionStart.clear"])
def test_compaction_and_clear_bring_the_interpreter_back(send, name):
    send("PreToolUse.Bash")
    send(name)
    assert "STOP. Read your context files" in send("PreToolUse.Bash")[0]
    assert send("PreToolUse.Bash") == ("", 0)


def test_the_end_of_a_session_takes_its_markers_along(send, project):
    send("PreToolUse.Bash")
    send("SessionEnd.other")
    assert os.listdir(project.tmp) == []


def test_a_session_whose_id_is_no_file_name_is_never_silenced(send):
    assert send("PreToolUse.Bash", session="../../x")[1] == 1
    assert send("PreToolUse.Bash", session="../../x")[1] == 1


def test_without_a_context_dir_nothing_is_owed_and_nothing_created(send, project):
    shutil.rmtree(project.path(".context"))
    assert send("PreToolUse.Bash")[0] == ""
    assert os.listdir(project.root) == [] and os.listdir(project.tmp) == []


# -----------------------------------------------------------------------------
# the loader in the registered command
# -----------------------------------------------------------------------------


def test_what_is_imported_after_the_kit_is_compiled_as_ever(tmp_path):
    """The command compiles a part of one file in its own way; modules that come later have nothing of it."""
    beside = tmp_path / "later.py"
    beside.write_text('"""Its text."""\nassert __doc__\nTAIL = 1\n# ---- below this line: \nEND = 1\n')
    kit = tmp_path / "ctx_hooks.py"
    kit.write_text("import sys\ndef hook_main(args):\n    sys.path.append(%r)\n    import later\n"
                   "    print(later.__doc__, later.END)\nmain = hook_main\n" % str(tmp_path))
    argv = helper.hook_argv("monitor", str(kit))
    argv[-1] = str(tmp_path / "cache")
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("Its text. 1\n", "")
