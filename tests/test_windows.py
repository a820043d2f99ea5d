"""Windows: what it does differently, each as a test. Those that need it run under `make test-windows`, the others everywhere."""
from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile

import pytest

import helper
from helper import IS_WINDOWS, PYTHON, REPO, RUN_TIMEOUT_S, native, slashed

on_windows = pytest.mark.skipif(not IS_WINDOWS, reason="about Windows itself")
on_posix = pytest.mark.skipif(IS_WINDOWS, reason="about a POSIX shell")
KIT = os.path.join(REPO, "ctx_hooks.py")
INSTALLER = os.path.join(REPO, "install.py")
CROWD = 20
SLOW_S = 120
DEVICES = {"con", "prn", "aux", "nul", *("com%d" % n for n in range(10)), *("lpt%d" % n for n in range(10))}


@pytest.fixture
def paths(kit, monkeypatch):
    """The functions on paths as they are on Windows; they are pure, so they can be asked anywhere."""
    monkeypatch.setattr(kit, "IS_POSIX", False)
    return kit


def start(project, argv, **streams) -> subprocess.Popen:
    return subprocess.Popen(argv, cwd=project.root, env=project.environment({}), **streams)


def run_together(project, jobs) -> list:
    """(argv, event) each as a process, all at once; their results in the same order."""
    results = [None] * len(jobs)

    def run(number, argv, event):
        data = json.dumps(event).encode()
        results[number] = helper.run_process(argv, data, project.environment({}), project.root)

    threads = [threading.Thread(target=run, args=(number, *job)) for number, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def run_installer(project, *words: str, **env):
    return helper.run_process([PYTHON, "-I", INSTALLER, *words], b"", project.environment(env), project.root, SLOW_S)


def run_doctor(project, **env):
    """It starts every hook, each more than once."""
    return helper.run_process([PYTHON, KIT, "doctor"], b"", project.environment(env), project.root, SLOW_S)


def make_program(path: str, code: str) -> str:
    """A program that runs this Python code: an executable script, on Windows a real .exe (pip's launcher with a zip)."""
    if not IS_WINDOWS:
        with open(path, "w", encoding="utf-8") as out:
            out.write("#!%s -I\n%s\n" % (PYTHON, code))
        os.chmod(path, 0o755)
        return path
    distlib = pytest.importorskip("distlib", reason="the launcher that becomes an .exe is not here")
    with open(os.path.join(os.path.dirname(distlib.__file__), "t64.exe"), "rb") as source:
        launcher = source.read()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("__main__.py", code)
    with open(path + ".exe", "wb") as out:
        out.write(launcher + b"#!" + PYTHON.encode() + b"\r\n" + archive.getvalue())
    return path + ".exe"


PASS_ON = "import subprocess, sys; sys.exit(subprocess.call([%r] + [word for word in sys.argv[1:] if word != '-3']))" % PYTHON


# --- locks


def test_calls_of_many_monitors_at_once_are_all_counted(project):
    project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="s0"))  # the bytecode is there then, as usual
    events = [project.event("PostToolUse.Bash", session_id="s1", tool_use_id="toolu_%d" % n) for n in range(CROWD)]
    results = run_together(project, [(helper.hook_argv("monitor"), event) for event in events])
    assert {(result.rc, result.err) for result in results} == {(0, b"")}
    assert project.read_json(".context/state/s1.json")["tool_calls"] == CROWD


def test_rows_of_many_recorders_at_once_are_all_there(project):
    project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="warm"))
    events = [project.event("PreToolUse.Bash", session_id="s%d" % n) for n in range(CROWD)]
    results = run_together(project, [(helper.hook_argv("gate"), event) for event in events])
    assert all("Read your context files" in result.context for result in results)
    assert b"\r" not in project.read(".context/events.jsonl").encode()
    assert sorted(row["session"] for row in project.recorded_events()) == sorted("s%d" % n for n in range(CROWD))


HOLD = """
import sys
sys.path.insert(0, %r)
import helper
project = helper.Project(%r)
kit, ctx = helper.load_kit(), project.ctx(helper.NOW)
print("busy" if kit.take_lock(ctx, "s1.json") is None else "held", flush=True)
sys.stdin.read()
"""


def test_the_lock_of_a_killed_process_is_free_at_once(project):
    holder = start(project, [PYTHON, "-c", HOLD % (helper.TESTS, project.base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline().strip() == b"held"
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    assert project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="s1")).is_silent
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 1


def test_a_folder_in_the_place_of_a_lock_keeps_nobody(project, kit):
    os.makedirs(kit.lock_path(project.ctx(helper.NOW), "s1.json"))
    assert project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="s1")).is_silent
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 1


def test_a_lock_file_that_another_system_left_keeps_nobody(project):
    """On the disk that WSL and Windows share: POSIX lets the file lie, and there it is only a file."""
    project.write(".context/state/s1.lock", "")
    assert project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="s1")).is_silent
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 1


def test_a_lock_file_that_a_loss_of_power_left_keeps_nobody(project, kit):
    path = project.write(kit.lock_path(project.ctx(helper.NOW), "s1.json"), "")
    os.utime(path, (time.time() - 90,) * 2)
    assert project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="s1")).is_silent
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 1


# --- a file that somebody reads cannot be replaced on Windows


def hold_while_it_is_replaced(path: str, folder: str, process: subprocess.Popen) -> None:
    """Keep the file open until the process has come as far as replacing it (its new content lies beside it then), and for
    a fifth of a second more, which is much less than the writer is patient."""
    before, wanted_at = set(os.listdir(folder)), 0.0
    with open(path, "rb"):
        while process.poll() is None and not (wanted_at and time.monotonic() > wanted_at + 0.2):
            time.sleep(0.001)
            if not wanted_at and [name for name in set(os.listdir(folder)) - before if os.path.basename(path) in name]:
                wanted_at = time.monotonic()


def test_a_reader_of_the_state_does_not_cost_the_write(project):
    project.run_hook("monitor", project.event("PostToolUse.Bash", session_id="s1", tool_use_id="toolu_1"))
    event = project.event("PostToolUse.Bash", session_id="s1", tool_use_id="toolu_2")
    process = start(project, helper.hook_argv("monitor"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process.stdin.write(json.dumps(event).encode())
    process.stdin.close()
    hold_while_it_is_replaced(project.path(".context/state/s1.json"), project.path(".context/state"), process)
    assert process.wait(RUN_TIMEOUT_S) == 0
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 2


def test_a_reader_of_the_settings_does_not_keep_the_installer_from_registering(project):
    project.write(".claude/settings.json", '{"model": "x"}\n')
    process = start(project, [PYTHON, "-I", INSTALLER, "--python", PYTHON], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    hold_while_it_is_replaced(project.path(".claude/settings.json"), project.path(".claude"), process)
    assert process.wait(RUN_TIMEOUT_S) == 0
    assert "monitor" in project.read(".claude/settings.json")


def test_a_reader_of_a_signal_keeps_it_from_nobody(project):
    name = ".context/signals/sessions/s1/ci.md"
    project.write(name, "The build is red.\n")
    with open(project.path(name), "rb"):
        first = project.run_hook("inject", project.event("UserPromptSubmit", session_id="s1", prompt_id="p1"))
    second = project.run_hook("inject", project.event("UserPromptSubmit", session_id="s1", prompt_id="p2"))
    assert [("The build is red." in result.context) for result in (first, second)].count(True) == 1


# --- the interpreter


@on_posix
@pytest.mark.parametrize("python3", ["missing", "the Store's placeholder"])
def test_the_plugin_finds_an_interpreter_that_is_not_called_python3(project, tmp_path, python3):
    folder = tmp_path / "bin"
    folder.mkdir()
    make_program(str(folder / "py"), PASS_ON)
    if python3 != "missing":
        make_program(str(folder / "python3"), "import sys; sys.exit(49)")
    command = helper.registered_commands()["PreToolUse"]
    env = project.environment({"PATH": str(folder), "CLAUDE_PLUGIN_ROOT": REPO})
    result = helper.run_process(["/bin/sh", "-c", command], json.dumps(project.event("PreToolUse.Bash")).encode(), env, project.root)
    assert result.rc == 0 and "Read your context files" in result.context


@on_windows
def test_the_installer_and_doctor_agree_on_the_launcher(project, tmp_path):
    """`py -3` is two words, and the only Python on many machines."""
    make_program(str(tmp_path / "py"), PASS_ON)
    env = {"PATH": native(str(tmp_path)) + os.pathsep + os.environ["SYSTEMROOT"] + r"\system32"}
    done = run_installer(project, "--scope", "project", **env)
    assert done.rc == 0, done.err.decode()
    assert "py -3 " in project.read(".claude/settings.json")
    checked = run_installer(project, "--check", **env)
    assert checked.rc == 0, checked.out.decode() + checked.err.decode()
    doctor = run_doctor(project, **env).out.decode()
    assert "py.exe: Python 3" in doctor, doctor


@on_windows
def test_the_users_own_settings_are_those_in_the_profile(project):
    """HOME is a variable of Git Bash, often in a spelling that is no Windows path."""
    env = {"HOME": "/c/nowhere"}
    done = run_installer(project, "--scope", "user", "--python", PYTHON, **env)
    assert done.rc == 0, done.err.decode()
    with open(project.home + "/.claude/settings.json", encoding="utf-8") as source:
        assert "monitor" in source.read()
    assert "user" in next(line for line in run_doctor(project, **env).out.decode().splitlines() if "registered" in line)


@pytest.mark.parametrize("words", [["install.py", "--check"], ["install.py"], ["doctor"]])
@pytest.mark.parametrize("entry", ["", "."])
def test_a_program_in_the_current_folder_is_never_taken_for_the_interpreter(project, tmp_path, words, entry):
    """Windows looks there first, others do for an empty entry in PATH. Only absolute entries count."""
    shutil.copy(os.path.join(REPO, "hooks.json"), project.write(".claude/settings.json", ""))
    shutil.copy(KIT, project.write(".claude/hooks/ctx_hooks.py", ""))
    sprung = slashed(str(tmp_path / "sprung"))
    for name in ("python3", "py", "python"):
        make_program(project.path(name), "open(%r, 'w').close()" % sprung)
    path = entry + os.pathsep + (os.environ["SYSTEMROOT"] + r"\system32" if IS_WINDOWS else "/nonexistent")
    if words[0] == "install.py":
        run_installer(project, *words[1:], PATH=path)
    else:
        project.command(*words, PATH=path)
    assert not os.path.exists(sprung)


@pytest.fixture
def in_git_bash(project):
    """run(line, event) -> Result: a line as the client has Git Bash run it, with the kit as a plugin."""
    usual = os.path.join(os.environ.get("PROGRAMFILES", ""), "Git", "usr", "bin", "bash.exe")
    bash = os.environ.get("CTX_GIT_BASH") or usual
    if not os.path.exists(bash):
        pytest.skip("Git Bash is not here")

    def run(line, event):
        path = os.path.dirname(bash) + os.pathsep + os.environ["SYSTEMROOT"] + r"\system32"
        env = project.environment({"PATH": path, "HOME": None, "TMPDIR": None, "CLAUDE_PLUGIN_ROOT": native(REPO)})
        with open(project.base + "/event", "wb") as out:
            out.write(json.dumps(event).encode())
        with open(project.base + "/event", "rb") as stdin, open(project.base + "/said", "w+b") as said:
            done = subprocess.run([bash, "-c", line], stdin=stdin, stdout=said, stderr=subprocess.DEVNULL, env=env,
                                  cwd=project.root, timeout=SLOW_S)
            said.seek(0)
            return helper.make_result(done.returncode, said.read(), b"")

    return run


# Wine starts no native program from a fork of Git Bash; a function of the program's name that takes the shell's place
# leaves everything else to bash: the words, the variables, its rewriting of paths, stdin.
@on_windows
@pytest.mark.parametrize("program", ["python3() { ", "py() { shift; ", "python3() { return 49; }  # the Store's placeholder\npy() { shift; "],
                         ids=["python3", "py", "py, and a placeholder"])
def test_git_bash_runs_the_line_of_the_plugin(project, in_git_bash, program):
    line = program + "exec '%s' \"$@\"; }\n" % slashed(PYTHON) + helper.registered_commands()["PreToolUse"]
    result = in_git_bash(line, project.event("PreToolUse.Bash", session_id="s1"))
    assert result.rc == 0 and "Read your context files" in result.context
    assert in_git_bash(line, project.event("PreToolUse.Bash", session_id="s1")).is_silent


@on_windows
def test_git_bash_without_any_python_is_silent(project, in_git_bash):
    assert in_git_bash(helper.registered_commands()["PostToolUse"], project.event("PostToolUse.Bash", session_id="s1")).is_silent


@on_windows
def test_git_bash_runs_the_line_for_every_shell_of_windows(project, kit, in_git_bash):
    line = kit.format_command("gate", "claude", slashed(PYTHON), "CLAUDE_PLUGIN_ROOT/ctx_hooks.py", kit.WINDOWS_START)
    result = in_git_bash("f() { exec \"$@\"; }\nf " + line, project.event("PreToolUse.Bash", session_id="s1"))
    assert result.rc == 0 and "Read your context files" in result.context


# --- a checkout with other line ends


def test_line_ends_of_a_checkout_are_not_an_edit(project):
    assert run_installer(project, "--python", PYTHON).rc == 0
    for name in (".claude/hooks/ctx_hooks.py", ".claude/settings.json"):
        project.write(name, project.read(name).replace("\n", "\r\n"))
    checked = run_installer(project, "--check")
    assert checked.rc == 0, checked.out.decode() + checked.err.decode()
    again = run_installer(project, "--python", PYTHON)
    assert again.rc == 0 and not [name for name in os.listdir(project.path(".claude/hooks")) if "kept" in name]


def test_the_repository_asks_git_for_plain_line_ends():
    with open(os.path.join(REPO, ".gitattributes"), encoding="utf-8") as source:
        rules = [line.split() for line in source if line.strip() and not line.startswith("#")]
    assert ["*", "text=auto", "eol=lf"] in rules


# --- streams


@pytest.mark.parametrize("words", [["status"], ["doctor"], ["--help"], ["context"]])
def test_a_reader_that_has_gone_is_no_error(project, words):
    process = start(project, [PYTHON, KIT, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    process.wait(RUN_TIMEOUT_S)
    assert b"Traceback" not in said and b"Exception ignored" not in said


@pytest.mark.parametrize("mode, event", [("gate", "PreToolUse.Bash"), ("inject", "UserPromptSubmit")])
def test_a_client_that_has_gone_is_no_error(project, mode, event):
    process = start(project, helper.hook_argv(mode), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    process.stdin.write(json.dumps(project.event(event)).encode())
    process.stdin.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(RUN_TIMEOUT_S), said) == (0, b"")


@pytest.mark.parametrize("words", [["status"], ["doctor"], ["--help"], ["context"]])
def test_output_into_nothing_is_no_error(project, words):
    """The null device is a terminal on Windows, one without a size."""
    with open(os.devnull, "r+b", buffering=0) as null:
        process = start(project, [PYTHON, KIT, *words], stdin=null, stdout=null, stderr=subprocess.PIPE)
        said = process.communicate(timeout=RUN_TIMEOUT_S)[1]
    assert b"Traceback" not in said


def test_bytes_of_an_event_arrive_as_they_are(project):
    """A C runtime in text mode would drop \\r and end at ^Z."""
    prompt = "one\r\ntwo\x1athree é"
    event = dict(project.event("UserPromptSubmit", session_id="s1"), prompt=prompt)
    data = json.dumps(event, ensure_ascii=False).replace("\\u001a", "\x1a").encode() + b"\r\n"
    project.write(".context/signals/sessions/s1/ci.md", "The build is red.\n")
    result = helper.run_process(helper.hook_argv("inject"), data.replace(b"\x1a", b"\\u001a"), project.environment({}), project.root)
    assert result.rc == 0 and "The build is red." in result.context and b"\r" not in result.out


# --- what lies around


@pytest.mark.parametrize("name", ["posix.py", "nt.py", "os.py", "json.py", "time.py", "msvcrt.py"])
def test_a_stray_module_beside_the_kit_is_not_run(project, tmp_path, name):
    shutil.copy(KIT, str(tmp_path / "ctx_hooks.py"))
    sprung = slashed(str(tmp_path / "sprung"))
    (tmp_path / name).write_text("open(%r, 'w').close()\n" % sprung, encoding="utf-8")
    result = helper.run_process([PYTHON, str(tmp_path / "ctx_hooks.py"), "--version"], b"", project.environment({}), str(tmp_path))
    assert result.rc == 0 and not os.path.exists(sprung)


@on_windows
def test_a_context_folder_of_another_user_above_the_project_is_not_obeyed(project):
    """The runner made the folder: only root on its side can give one away."""
    foreign = os.environ.get("CTX_FOREIGN_FOLDER")
    if not foreign:
        pytest.skip("nobody made a folder of another user's")
    inner = os.path.join(foreign, "work", "project")
    result = helper.run_process(helper.hook_argv("gate"), json.dumps(dict(project.event("PreToolUse.Bash"), cwd=inner)).encode(),
                                project.environment({"CLAUDE_PROJECT_DIR": inner}), inner)
    assert result.is_silent


# --- the environment


@on_windows
def test_names_of_variables_count_in_any_case_and_only_ours_are_read(kit, monkeypatch):
    import nt

    monkeypatch.setattr(nt, "environ", {"Secret_Token": "x", "UserProfile": r"C:\Users\é", "temp": "C:\\t", "HOME": ""})
    assert kit.read_environment() == {"USERPROFILE": r"C:\Users\é", "TEMP": "C:\\t"}


@on_windows
def test_the_temp_folder_is_that_of_windows_and_never_the_one_of_git_bash(project):
    assert project.ctx(helper.NOW, TMPDIR="/tmp", TEMP=r"C:\Users\x\Temp").tmp == "C:/Users/x/Temp"
    assert project.ctx(helper.NOW, TEMP="/c/Users/x/Temp").tmp == "c:/Users/x/Temp"


# --- times


@pytest.mark.parametrize("text", ["2999-06-01T00:00:00Z", "3000-12-31T23:59:59Z", "3001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_time_that_the_c_runtime_does_not_know_is_still_a_time(kit, text):
    """Its calendar ends with the year 3000; whatever stands for the time then has to be far ahead and readable."""
    shown = kit.format_iso(kit.parse_iso(text))
    assert kit.parse_iso(shown) > kit.parse_iso("2999-01-01T00:00:00Z") and len(shown) == len(text)


def test_a_signal_from_the_year_9999_is_delivered_and_listed(project):
    text = "---\ngenerated_at: 9999-12-31T23:59:59Z\nseverity: warning\nttl: 300\n---\nThe build is red.\n"
    project.write(".context/signals/sessions/s1/ci.md", text)
    assert project.command("status").rc == 0
    assert "The build is red." in project.run_hook("inject", project.event("UserPromptSubmit", session_id="s1")).context


# --- names and paths


@pytest.mark.parametrize("name", ["con", "con.x", "aux.1", "nul.json", "com1", "lpt9.md", "CON", "x.", "x ", "a:b"])
def test_a_session_called_like_a_device_has_a_file_of_its_own(project, kit, name):
    """Everything before the first dot makes the device: reading aux.1.json waits for a modem for ever."""
    assert kit.safe_name(name).partition(".")[0].lower() not in DEVICES and kit.safe_name(name) != name
    event = project.event("PostToolUse.Bash", session_id=name)
    assert project.run_hook("monitor", event).is_silent
    assert project.read_json(".context/state/%s.json" % kit.safe_name(name))["tool_calls"] == 1


@pytest.mark.parametrize("base, name, joined", [
    ("C:/proj", ".context", "C:/proj/.context"),
    ("C:\\proj", "sub\\..\\x", "C:/proj/x"),
    ("C:/", ".context", "C:/.context"),
    ("//server/share/proj", ".context", "//server/share/proj/.context"),
    ("\\\\server\\share", "a", "//server/share/a"),
    ("C:/proj", "D:/other", "D:/other"),
    ("C:/proj", "D:\\other", "D:/other"),
    ("C:/proj", "//server/share/x", "//server/share/x"),
])
def test_paths_of_windows_are_joined(paths, base, name, joined):
    assert paths.join_path(base, name) == joined


@pytest.mark.parametrize("path, base, is_below", [
    ("C:/proj/x", "C:/proj", True), ("c:/PROJ/x", "C:/proj", True), ("D:/proj/x", "C:/proj", False),
    ("C:/project", "C:/proj", False), ("//server/share/a", "//server/share", True), ("C:/x", "C:/", True),
])
def test_a_path_of_windows_is_below_another(paths, path, base, is_below):
    assert paths.is_below(path, base) is is_below


@pytest.mark.parametrize("path, parent", [("C:/a/b", "C:/a"), ("C:/a", "C:/"), ("C:/", "C:/"), ("//server/share/a", "//server/share")])
def test_the_parent_of_a_path_of_windows(paths, path, parent):
    assert paths.parent_of(path) == parent


@on_windows
def test_the_spelling_of_a_path_does_not_matter(project):
    """The client's drive letter and the agent's capital letters are not those of the disk."""
    event = project.event("PostToolUse.Read", session_id="s1")
    event["tool_input"]["file_path"] = native(project.path(".context/TASKS.md")).swapcase()
    project.run_hook("monitor", event, CLAUDE_PROJECT_DIR=native(project.root).swapcase())
    assert [name.lower() for name in project.read_json(".context/state/s1.json")["files_read"]] == ["tasks.md"]


@on_windows
def test_a_project_on_another_drive_is_a_project(project):
    """The kit and the project need not share a drive, and there is no relative path between two."""
    root = os.path.join(os.environ["SYSTEMROOT"], "Temp", "ctx-hooks-%d" % os.getpid())
    assert os.path.splitdrive(root)[0].lower() != os.path.splitdrive(REPO)[0].lower()
    os.makedirs(os.path.join(root, ".context"))
    try:
        with open(os.path.join(root, ".context", "TASKS.md"), "w", encoding="utf-8") as out:
            out.write("# Tasks\n\n- [ ] one\n")
        env = {"CLAUDE_PROJECT_DIR": root}
        event = dict(project.event("PreToolUse.Bash"), cwd=root)
        assert "TASKS.md" in project.run_hook("gate", event, cwd=root, **env).context
        for words in (["status"], ["doctor"], ["why"], ["config"], ["context"], ["nonsense"]):
            assert b"Traceback" not in project.command(*words, cwd=root, **env).err
    finally:
        shutil.rmtree(root)


# --- commands


@on_windows
def test_replay_takes_windows_paths(project):
    event = project.event("PostToolUse.Read", session_id="s1")
    event["tool_input"]["file_path"] = native(project.path(".context/TASKS.md"))
    project.write("events/one.json", json.dumps(event))
    shown = project.command("replay", r"events\one.json")
    assert (shown.rc, shown.err) == (0, b""), shown.err.decode()
    assert not project.exists(".context/state/s1.json")


@on_windows
def test_a_status_line_of_ones_own_may_be_one_word(project):
    event = json.dumps({"session_id": "s1", "model": {"display_name": "Sonnet"}, "workspace": {"project_dir": project.root}})
    shown = project.command("statusline", "--", "echo mine", stdin=event.encode())
    assert shown.out.decode().startswith("mine\n"), shown


@on_windows
@pytest.mark.parametrize("words", [["doctor"], ["status"], ["auto", "start"], ["nonsense"], ["--help"]])
def test_a_command_that_a_text_names_can_be_pasted_into_cmd(bare_project, tmp_path, words):
    """cmd knows no single quotes, and python.org's installer no python3."""
    folder = tmp_path / "my tools"
    folder.mkdir()
    shutil.copy(KIT, str(folder))
    env = bare_project.environment({})
    result = helper.run_process([PYTHON, str(folder / "ctx_hooks.py"), *words], b"", env, bare_project.root)
    said = (result.out + result.err).decode().splitlines()
    lines = [line for line in said if ("ctx_hooks.py" in line or "install.py" in line) and '"command":' not in line]
    assert not [line for line in lines if "'" in line.replace("a project's", "") or "python3 " in line]
    assert all('"' in line for line in lines if "my tools" in line)


# --- the installer's lock


def test_a_killed_installer_keeps_nobody_waiting(project):
    """Whatever a killed one left behind: the next one installs."""
    process = start(project, [PYTHON, "-I", INSTALLER, "--python", PYTHON], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = project.path(".claude")
    while process.poll() is None and not os.path.isdir(folder):
        time.sleep(0.001)
    process.kill()
    process.wait()
    done = run_installer(project, "--python", PYTHON)
    assert done.rc == 0, done.err.decode()
    assert run_installer(project, "--check").rc == 0


# --- the machine that runs these tests


@on_windows
def test_the_c_runtime_is_microsofts_own():
    """Wine's own answers a refused lock at once and hides what a real Windows does."""
    import ctypes

    kernel = ctypes.WinDLL("kernel32")
    kernel.GetModuleHandleW.restype = ctypes.c_void_p
    kernel.GetModuleFileNameW.argtypes = [ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_uint]
    name = ctypes.create_unicode_buffer(500)
    kernel.GetModuleFileNameW(kernel.GetModuleHandleW("ucrtbase.dll"), name, 500)
    if not hasattr(ctypes.WinDLL("ntdll"), "wine_get_version"):
        pytest.skip("not under Wine")
    assert os.path.dirname(name.value).lower() == os.path.dirname(sys.executable).lower()
