"""Hook: stdin, environment, the client's JSON. Every mode survives every input, as a process and in-process."""
from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

import helper
from helper import NOW

MODES = ["inject", "gate", "monitor", "stop-enforce", "cleanup"]
EVENT_OF = {"inject": "UserPromptSubmit", "gate": "PreToolUse.Bash", "monitor": "PostToolUse.Bash", "stop-enforce": "Stop",
            "cleanup": "SessionEnd.other"}
GATE = "STOP. Read your context files"

# Nothing in these is an event, so nothing may be said or written.
NOISE = {
    "empty": b"", "blank": b" \n\t ", "half": b'{"session_id": "s1", "cwd": "/', "list": b'[{"session_id": "s1"}]', "number": b"5",
    "string": b'"text"', "null": b"null", "text": b"hello", "binary": bytes(range(256)) * 20, "bom-alone": b"\xef\xbb\xbf",
    "utf16": '{"session_id": "s1"}'.encode("utf-16"), "deep-list": b"[" * 100_000, "deep-object": b'{"a":' * 100_000,
    "deep-closed": b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "empty-object": b"{}",
    "wrong-types": b'{"session_id": 5, "cwd": [], "hook_event_name": {}, "tool_input": "x", "prompt": null, "agent_id": null}',
}


def start(project, mode, **streams):
    return subprocess.Popen(helper.hook_argv(mode), env=project.env, cwd=project.root, **streams)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("noise", list(NOISE))
def test_noise_on_stdin_is_met_with_silence(project, mode, noise):
    before = project.tree()
    assert project.call(mode, NOISE[noise]).is_silent
    assert project.tree() == before


@pytest.mark.parametrize("mode, noise", [(mode, noise) for mode, noise in zip(MODES * 4, NOISE)])
def test_noise_on_stdin_of_a_process_is_met_with_silence(project, mode, noise):
    before = project.tree()
    assert project.run_hook(mode, NOISE[noise]).is_silent
    assert project.tree() == before


@pytest.mark.parametrize("change", [
    lambda text: b"\xef\xbb\xbf" + text, lambda text: b"\r\n\t " + text + b"\n\n", lambda text: text + b"trailing \xff",
    lambda text: text[:-1] + b', "extra": {"a": [1, 2, {"b": null}]}}', lambda text: text[:-1] + b', "bad": "\xff\xfe\x80"}',
    lambda text: text[:-1] + b', "lone": "\\ud800 \\udfff"}', lambda text: text[:-1] + b', "raw": "a\x01\nb"}',
    lambda text: text[:-1] + b', "n": NaN, "i": 1e999, "big": 123456789012345678901234567890}',
    lambda text: text[:-1] + b', "deep": ' + b"[" * 500 + b"]" * 500 + b"}",
], ids=["bom", "blanks", "tail", "unknown-field", "invalid-utf8", "lone-surrogates", "control", "numbers", "nested"])
def test_an_odd_but_readable_event_is_read(project, hook, change):
    text = json.dumps(project.event("PreToolUse.Bash", session_id="s1")).encode()
    assert hook("gate", change(text)).context.startswith(GATE)


@pytest.mark.parametrize("field", ["session_id", "cwd", "hook_event_name", "transcript_path", "tool_name", "tool_input",
                                   "tool_response", "tool_use_id", "prompt", "source", "reason", "model", "agent_id",
                                   "permission_mode", "last_assistant_message", "stop_hook_active", "background_tasks"])
def test_a_field_of_any_type_in_any_mode_is_no_error(project, field):
    for mode in MODES:
        for value in (5, True, "\ud800\0/..", [[1]], {"a": {"b": []}}):
            event = project.event(EVENT_OF[mode], session_id="s1")
            event[field] = value
            result = project.call(mode, event)
            assert (result.rc, result.err) == (0, b""), (mode, field, value)
            assert result.out == b"" or result.reply, (mode, field, value)


@pytest.mark.parametrize("field", ["session_id", "cwd", "hook_event_name", "tool_name", "tool_input", "transcript_path"])
def test_a_missing_field_in_any_mode_is_no_error(project, field):
    for mode in MODES:
        result = project.call(mode, project.event(EVENT_OF[mode], **{"session_id": "s1", field: None}))
        assert (result.rc, result.err) == (0, b""), (mode, field)


def test_without_the_events_name_the_modes_own_event_is_answered(project, hook):
    result = hook("gate", project.event("PreToolUse.Bash", session_id="s1", hook_event_name=None))
    assert result.reply["hookSpecificOutput"]["hookEventName"] == "PreToolUse"


@pytest.mark.parametrize("command", ["cat .context/TASKS.md", "cat .context/TASKS.md "])
def test_a_large_input_is_not_cut_within_an_escape(project, command):
    event = project.event("PostToolUse.Bash", session_id="s1", tool_input={"command": command + "\n" * 300_000})
    assert project.call("monitor", event).rc == 0
    assert project.read_json(".context/state/s1.json")["files_read"] == ["TASKS.md"]


def test_what_is_large_beside_a_small_input_and_response_counts_for_nothing(project):
    event = project.event("PostToolUse.Read", session_id="s1")
    response = event.pop("tool_response")
    event.update(tool_input={"file_path": project.path(".context/TASKS.md")}, padding="x" * 600_000, tool_response=response)
    assert project.call("monitor", event).rc == 0
    state = project.read_json(".context/state/s1.json")
    assert state["files_read"] == ["TASKS.md"] and state["estimated_tokens"] < 20_000, "the model does not see the padding"


def test_a_large_event_is_read_whole(project, hook):
    project.write_transcript([helper.assistant_row(1000)])
    event = project.event("PostToolUse.Bash", session_id="s1")
    event["tool_response"] = {"stdout": "} \\\"\n{" * 2_000_000, "stderr": ""}
    assert hook("monitor", event).is_silent
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 1


LONG = "} \\\"\n{ü" * 900_000
LARGE_INPUTS = {
    "a file": ({"file_path": "/x/a.md", "content": LONG}, {"file_path": "/x/a.md"}),
    "a command": ({"command": LONG, "description": "y"}, {}),
    "edits": ({"file_path": "/x/a.md", "edits": [{"old_string": "a", "new_string": LONG}]}, {"file_path": "/x/a.md"}),
    "numbers": ({"file_path": "/x/a.md", "rows": [1] * 400_000}, {"file_path": "/x/a.md"}),
    "the path last": ({"content": LONG, "file_path": "/x/a.md"}, {}),
}


@pytest.mark.parametrize("ends", [{"tool_use_id": "t1"}, {}], ids=["", "no id"])
def test_a_large_response_cannot_say_whose_event_it_is(kit, monkeypatch, ends):
    """An object within it may look like the event's own end, where a read happens to stop."""
    forged = {"a": 1, "tool_use_id": "zz", "session_id": "victim", "hook_event_name": "PreCompact", "transcript_path": "/x"}
    event = {"session_id": "s1", "hook_event_name": "PostToolUse", "tool_response": {"x": "y" * 400_000, "meta": forged, "z": 1}, **ends}
    text = json.dumps(event).encode()
    end = text.index(b'"z"')
    value, _ = fed(kit, monkeypatch, [text[:end - 2], text[end - 2:]])
    assert (value["session_id"], value["hook_event_name"], value.get("transcript_path")) == ("s1", "PostToolUse", None)


@pytest.mark.parametrize("response", ["short", LONG], ids=["", "and a large response"])
@pytest.mark.parametrize("name", LARGE_INPUTS)
def test_of_a_large_input_the_beginning_is_kept_and_the_call_counts(kit, monkeypatch, name, response):
    """Parsing all of it would cost four interpreters; nobody needs more than the path and the command's beginning."""
    given, kept = LARGE_INPUTS[name]
    event = {"session_id": "s1", "hook_event_name": "PostToolUse", "tool_name": "Write", "tool_input": given,
             "tool_response": {"x": response}, "tool_use_id": "t1", "duration_ms": 7}
    text = json.dumps(event, ensure_ascii=False).encode()
    value, parsed = fed(kit, monkeypatch, [text[at:at + 65536] for at in range(0, len(text), 65536)])
    assert (value["session_id"], value["tool_use_id"]) == ("s1", "t1")
    assert {key: value["tool_input"].get(key) for key in kept} == kept and "tool_response" not in value
    assert all(isinstance(part, str) and LONG.startswith(part[:1000]) for key, part in value["tool_input"].items()
               if key in ("content", "command"))
    assert sum(parsed) < 1_500_000 and value["response_bytes"] > 500_000


def test_an_event_beyond_the_limit_is_no_event(project, kit):
    event = json.dumps(project.event("PreToolUse.Bash", session_id="s1", filler="x" * kit.STDIN_LIMIT_BYTES))
    assert project.call("gate", event.encode()).is_silent


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_pipe_that_is_never_closed_is_read_as_soon_as_the_event_is_complete(project, end):
    """In pieces, some of which end where an object could; the answer comes while the pipe is still open."""
    text = json.dumps(project.event("PreToolUse.Bash", session_id="s1", filler={"a": [{"b": "}"}] * 40})).encode()
    process = start(project, "gate", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    cuts = [0] + [at + 1 for at, char in enumerate(text) if char == ord("}")][:6] + [len(text)]
    try:
        for begin, stop in zip(cuts, cuts[1:]):
            process.stdin.write(text[begin:stop])
            process.stdin.flush()
        process.stdin.write(end)
        process.stdin.flush()
        assert json.loads(process.stdout.read().decode())["hookSpecificOutput"]["additionalContext"].startswith(GATE)
        assert process.wait(helper.RUN_TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass


def fed(kit, monkeypatch, chunks):
    """read_event_data on a pipe that delivers exactly these pieces and then stays open: asking for more fails the test."""
    pieces = iter(chunks)
    parsed = []
    real = kit.find_object
    monkeypatch.setattr(kit, "find_object", lambda data: parsed.append(len(data)) or real(data))
    reader, writer = os.pipe()

    class System:
        def __getattr__(self, name):
            return getattr(os, name)

        def read(self, fd, size):
            return next(pieces)

    monkeypatch.setattr(kit, "_os", System())
    try:
        return kit.read_event_data(reader), parsed
    finally:
        os.close(reader)
        os.close(writer)


def test_pieces_that_only_look_complete_do_not_delay_the_real_end(kit, monkeypatch):
    """Without a line end after it: nothing but the brace says that the event is complete."""
    text = b'{"a": "' + b"x" * 65_000 + b"}" + b"y" * 40_000 + b'"}'
    at = text.index(b"}") + 1
    value, parsed = fed(kit, monkeypatch, [text[:at], text[at:]])
    assert len(value["a"]) == 105_001 and len(parsed) == 2


def test_an_event_full_of_braces_is_not_parsed_over_and_over(kit, monkeypatch):
    piece = b"}" * 4096
    value, parsed = fed(kit, monkeypatch, [b'{"a": "', *[piece] * 1000, b'"}\n'])
    assert len(value["a"]) == 4_096_000
    assert sum(parsed) < 8 * 4_096_000


def test_a_silent_pipe_is_given_up(project):
    """Both ways at once: nothing at all, and half an event. Neither pipe is ever closed by the writer."""
    silent = [start(project, mode, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for mode in ("gate", "inject")]
    try:
        silent[1].stdin.write(b'{"session_id": "s1"')
        silent[1].stdin.flush()
        for process in silent:
            assert (process.stdout.read(), process.stderr.read(), process.wait(helper.RUN_TIMEOUT_S)) == (b"", b"", 0)
    finally:
        for process in silent:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass


def test_a_terminal_on_stdin_is_no_input(project):
    master, slave = os.openpty()
    try:
        for mode in MODES:
            done = subprocess.run(helper.hook_argv(mode), stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=project.env, cwd=project.root, timeout=helper.RUN_TIMEOUT_S)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    finally:
        os.close(master)
        os.close(slave)


def run_with_closed(project, mode, event, closed, **streams):
    """A process that starts without some of its three descriptors."""
    program = "import os, sys\nfor fd in %r: os.close(fd)\nos.execv(sys.argv[1], sys.argv[1:])" % (closed,)
    argv = [helper.PYTHON, "-I", "-S", "-c", program, *helper.hook_argv(mode)]
    return subprocess.run(argv, input=json.dumps(event).encode(), env=project.env, cwd=project.root,
                          timeout=helper.RUN_TIMEOUT_S, **streams)


@pytest.mark.skipif(helper.IS_WINDOWS, reason=helper.NO_EXEC)
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_descriptors_are_survived(project, closed):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    for mode in MODES:
        done = run_with_closed(project, mode, project.event(EVENT_OF[mode], session_id="s%d" % len(closed)), closed, **streams)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == b"" or closed == (2,)


@pytest.mark.skipif(helper.IS_WINDOWS, reason=helper.NO_EXEC)
def test_a_reply_never_ends_up_in_a_file_that_took_the_place_of_a_closed_stdout(project):
    """A lock file opened while 1 is free gets number 1. The signal was not said, so it stays."""
    project.command("signal", "look here", "--session", "s1", "--name", "n")
    done = run_with_closed(project, "inject", project.event("UserPromptSubmit", session_id="s1"), (1,), stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
    for path, content in project.tree().items():
        assert not isinstance(content, bytes) or b"hookSpecificOutput" not in content, path
    assert "look here" in project.step("inject", project.event("UserPromptSubmit", session_id="s1"), time.time() + 11).context


def test_a_reader_that_has_gone_is_survived_and_the_signal_stays(project):
    project.command("signal", "look here", "--session", "s1", "--name", "n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(helper.hook_argv("inject"), input=json.dumps(project.event("UserPromptSubmit", session_id="s1")).encode(),
                          stdout=writer, stderr=subprocess.PIPE, env=project.env, cwd=project.root, timeout=helper.RUN_TIMEOUT_S)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert project.exists(".context/signals/sessions/s1/n.md")


def test_a_full_device_on_stdout_is_survived_in_silence(project):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(helper.hook_argv("gate"), input=json.dumps(project.event("PreToolUse.Bash", session_id="s1")).encode(),
                              stdout=full, stderr=subprocess.PIPE, env=project.env, cwd=project.root, timeout=helper.RUN_TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(helper.IS_WINDOWS, reason="Windows does not delete a folder that somebody stands in")
def test_a_deleted_cwd_is_survived(project, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    program = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.argv[1], sys.argv[1:])"
    argv = [helper.PYTHON, "-I", "-S", "-c", program, *helper.hook_argv("gate")]
    event = json.dumps(project.event("PreToolUse.Bash", session_id="s1", cwd=str(gone)))
    done = subprocess.run(argv, input=event.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=project.env, cwd=str(gone),
                          timeout=helper.RUN_TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, b"")
    assert project.path(".context", "TASKS.md") in json.loads(done.stdout.decode())["hookSpecificOutput"]["additionalContext"]


@pytest.mark.skipif(helper.IS_WINDOWS, reason="paths are Unicode on Windows")
def test_a_project_path_that_is_not_utf8_works(tmp_path):
    project = helper.Project(os.fsdecode(os.fsencode(str(tmp_path)) + b"/na\xefve \xe2\x82\xac"))
    result = project.run_hook("gate", project.event("PreToolUse.Bash", session_id="s1", cwd="/"))
    assert GATE in result.context and result.out.isascii()


def test_only_named_variables_are_read(kit, monkeypatch):
    posix = pytest.importorskip("posix", reason="the raw environment of POSIX; test_windows has its own")
    monkeypatch.setattr(posix, "environ", {b"SECRET_TOKEN": b"x", b"HOME": b"/h\xff", b"TMPDIR": b""})
    assert kit.read_environment() == {"HOME": "/h\udcff"}


@pytest.mark.skipif(helper.IS_WINDOWS, reason="TMPDIR is no variable of Windows; test_windows has its own")
def test_the_temp_folder_is_the_environments_as_it_stands(project):
    assert (project.ctx(NOW, TMPDIR="/x/").tmp, project.ctx(NOW, TMPDIR=None).tmp) == ("/x/", "/tmp")


@pytest.mark.parametrize("agent, session, form", [
    ("claude-code_2-1-325_agent", "s1", "context"), ("claude-code_2-1-163_x", "s1", "context"), ("claude-code_2-1-162_x", "s1", "block"),
    ("claude-code_2-1-325_x", "other", "block"), ("", "s1", "block"), ("claude-code", "s1", "block"), ("codex_9-9-9", "s1", "block")])
def test_a_hold_is_feedback_only_where_the_client_is_known_to_take_it(kit, project, agent, session, form):
    """An inherited variable names another session."""
    env = {"AI_AGENT": agent, "CLAUDE_CODE_SESSION_ID": session}
    ctx, event = project.ctx(NOW), kit.parse_event({"hook_event_name": "Stop", "session_id": "s1"}, "stop-enforce", "claude", env)
    ctx.env = env
    reply = kit.render_reply(ctx, event, kit.Reply("go on", hold=True))
    assert reply == ({"decision": "block", "reason": "go on"} if form == "block" else {
        "hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "go on"}})


def test_a_reply_is_rendered_in_the_clients_form(kit, project):
    ctx, event = project.ctx(NOW), kit.parse_event({"hook_event_name": "PostToolUse"}, "monitor", "claude", {})
    assert kit.render_reply(ctx, event, kit.Reply()) == {}
    reply = kit.Reply(person="m")
    reply.terminal = "\a"
    assert kit.render_reply(ctx, event, reply) == {"systemMessage": "m", "terminalSequence": "\a"}


def test_events_of_the_client_are_understood(kit, project):
    known = set(kit.DIALECTS["claude"].events)
    for name in helper.recorded_names():
        if not name.startswith("statusLine"):
            event = kit.parse_event(project.event(name, session_id="s1"), "monitor", "claude", {})
            theirs = name.split(".")[0]
            assert (event is None) if theirs not in known else (event.name, event.session) == (theirs, "s1")
    failure = kit.parse_event(project.event("PostToolUseFailure"), "monitor", "claude", {})
    assert failure.failed and isinstance(failure.response, str)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no alarm signal")
def test_a_blocked_alarm_does_not_take_the_time_limit_away(project):
    """A mask is inherited; the pipe is never closed and the object never complete."""
    import signal

    child = subprocess.Popen(helper.hook_argv("gate"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=project.env, cwd=project.root,
                             preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]))
    child.stdin.write(b'{"session_id":')
    child.stdin.flush()
    assert child.wait(helper.RUN_TIMEOUT_S) == 0 and child.stdout.read() == b""
    child.stdin.close()
    child.stdout.close()
