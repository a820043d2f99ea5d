"""Gate: the first tool call of a session says which context files to read, once, and never decides anything."""
from __future__ import annotations

import json
import os
import stat
import subprocess

import pytest

import helper
from helper import IS_WINDOWS, NOW

CHECKPOINT = "When you have read them, print this line, filled in: Context Loaded — Read: … Skipped: …"
MESSAGE = ("STOP. Read your context files before proceeding: .context/CONSTITUTION.md, .context/TASKS.md\n" + CHECKPOINT)


def before_tool(project, now=NOW, **changes):
    return project.step("gate", project.event("PreToolUse.Bash", **dict({"session_id": "s1"}, **changes)), now)


def marker(project, session="s1"):
    return os.path.join(project.tmp, "ctx-loaded-" + session)


def test_the_first_call_names_the_files_and_no_other_call_does(project):
    assert before_tool(project).reply == {"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "additionalContext": MESSAGE}}
    for name in ("PreToolUse.Read", "PreToolUse.Write", "PreToolUse.Agent"):
        assert project.step("gate", project.event(name, session_id="s1"), NOW).is_silent
    assert before_tool(project, session_id="s2").context == MESSAGE


def test_the_marker_is_private_and_holds_the_time(project):
    before_tool(project)
    with open(marker(project)) as source:
        assert source.read() == "2026-02-03T10:45:00Z\n"
    assert IS_WINDOWS or stat.S_IMODE(os.stat(marker(project)).st_mode) == 0o600


def test_files_come_in_their_order_of_priority_and_only_existing_ones(project):
    project.write(".context/LEARNINGS.md", "x")
    os.mkdir(project.path(".context/DECISIONS.md"))
    assert ".context/CONSTITUTION.md, .context/TASKS.md, .context/LEARNINGS.md\n" in before_tool(project).context
    project.write(".contextrc", "gate:\n  files: [LEARNINGS.md, ../README.md, TASKS.md]\n")
    project.write("README.md", "x")
    assert ": .context/LEARNINGS.md, README.md, .context/TASKS.md\n" in before_tool(project, session_id="s2").context


def test_paths_are_absolute_when_the_session_stands_elsewhere(project):
    os.mkdir(project.path("sub"))
    assert project.path(".context/TASKS.md") in before_tool(project, cwd=project.path("sub")).context


SILENT = {
    "no session id": {"session_id": None}, "empty session id": {"session_id": ""}, "session id of another type":
    {"session_id": 7}, "a subagent": {"agent_id": "a1"},
}


@pytest.mark.parametrize("case", sorted(SILENT))
def test_gate_is_silent_for(project, case):
    assert before_tool(project, **SILENT[case]).is_silent
    assert os.listdir(project.tmp) == [] and not project.exists(".context/state")


def test_gate_is_silent_where_nothing_is_initialised_and_creates_nothing(bare_project):
    before = bare_project.tree()
    assert before_tool(bare_project).is_silent
    assert bare_project.tree() == before


def test_gate_is_silent_without_any_listed_file(bare_project):
    bare_project.write(".context/OTHER.md", "x")
    assert before_tool(bare_project).is_silent and os.listdir(bare_project.tmp) == []


def read_file(project, name, tool="Read", session="s1", event="PostToolUse.Read", cwd=None):
    changes = {"session_id": session, "tool_name": tool, "tool_input": {"file_path": name}, "tool_use_id": None}
    project.step("monitor", project.event(event, **dict(changes, **({"cwd": cwd} if cwd else {}))), NOW)


def test_gate_is_silent_when_every_listed_file_was_read(project):
    read_file(project, project.path(".context/TASKS.md"))
    assert project.read_json(".context/state/s1.json")["files_read"] == ["TASKS.md"]
    read_file(project, ".context/CONSTITUTION.md")
    assert before_tool(project).is_silent


def test_gate_speaks_while_one_of_the_listed_files_is_unread(project):
    read_file(project, project.path(".context/TASKS.md"))
    assert before_tool(project).context == MESSAGE


def test_only_a_successful_read_of_a_listed_file_counts(project):
    read_file(project, project.path("TASKS.md"))
    read_file(project, project.path(".context/TASKS.md"), event="PostToolUseFailure")
    read_file(project, project.path(".context/TASKS.md"), tool="Write")
    read_file(project, "../.context/CONSTITUTION.md", cwd=project.path("sub"))
    assert project.read_json(".context/state/s1.json")["files_read"] == ["CONSTITUTION.md"]


@pytest.mark.parametrize("mode", ["off", "'off'"])
def test_gate_can_be_switched_off(project, mode):
    project.write(".contextrc", "gate:\n  mode: %s\n" % mode)
    assert before_tool(project).is_silent


def test_own_wording_gets_the_files(project):
    project.write(".contextrc", 'gate:\n  message: "This project keeps {files}; {weird} %s"\n')
    assert before_tool(project).context == (
        "This project keeps .context/CONSTITUTION.md, .context/TASKS.md; {weird} %s\n" + CHECKPOINT)


# --- the marker


@pytest.mark.parametrize("kind", ["link", "dangling link", "directory", "fifo"])
def test_what_is_not_our_file_is_not_followed_and_the_gate_speaks_every_time(project, tmp_path, kind):
    target = tmp_path / "target"
    if kind == "link":
        target.write_text("precious")
    if "link" in kind:
        os.symlink(str(target), marker(project))
    else:
        {"directory": os.mkdir, "fifo": os.mkfifo}[kind](marker(project))
    for _ in range(2):
        assert before_tool(project).context == MESSAGE
    assert target.read_text() == "precious" if kind == "link" else not target.exists()


@pytest.mark.skipif(not helper.IS_ROOT, reason="only root can give a file away")
def test_a_marker_of_somebody_else_is_not_trusted(project):
    before_tool(project)
    os.chown(marker(project), helper.NOBODY, helper.NOBODY)
    for _ in range(2):
        assert before_tool(project).context == MESSAGE


def test_without_a_usable_temp_folder_the_gate_speaks_every_time(project):
    event = project.event("PreToolUse.Bash", session_id="s1")
    for _ in range(2):
        assert project.step("gate", event, NOW, TMPDIR="/nowhere/at/all", TEMP="Q:/nowhere").context == MESSAGE


@pytest.mark.parametrize("session", ["../../evil", "a/b", "x" * 300, "Ä", "..", "a\nb"])
def test_hostile_session_ids_stay_in_the_temp_folder(project, session):
    assert before_tool(project, session_id=session).context == MESSAGE
    assert before_tool(project, session_id=session).is_silent
    assert len(os.listdir(project.tmp)) == 1 and before_tool(project, session_id=session + "x").context == MESSAGE


def test_parallel_first_calls_fire_once(project):
    event = json.dumps(project.event("PreToolUse.Bash", session_id="s1")).encode()
    children = [subprocess.Popen(helper.hook_argv("gate"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 env=project.environment({}), cwd=project.root) for _ in range(10)]
    for child in children:
        child.stdin.write(event)
        child.stdin.flush()
    outputs = [child.communicate(timeout=30)[0] for child in children]
    assert sum(bool(out) for out in outputs) == 1


def test_a_call_that_finds_the_gate_opened_in_between_is_silent(project, kit, monkeypatch):
    render = kit.render_gate

    def render_slowly(*args):
        with open(marker(project), "x"):  # another hook is faster
            return render(*args)

    monkeypatch.setattr(kit, "render_gate", render_slowly)
    assert before_tool(project).is_silent


def start(project, source):
    return project.step("inject", project.event("SessionStart." + source, session_id="s1"), NOW + 5)


@pytest.mark.parametrize("source, speaks", [("compact", True), ("clear", True), ("resume", False), ("startup", False)])
def test_compaction_and_clear_rearm_the_gate(project, source, speaks):
    read_file(project, ".context/TASKS.md")
    before_tool(project)
    start(project, source)
    assert bool(before_tool(project).context) == speaks
    assert bool(project.read_json(".context/state/s1.json")["files_read"]) != speaks


def receipt(text):
    return {"type": "attachment", "isSidechain": False, "attachment": {
        "type": "hook_additional_context", "content": [text], "hookEvent": "PreToolUse"}}


BOUNDARY = {"type": "system", "subtype": "compact_boundary"}


@pytest.mark.parametrize("rows, speaks", [([receipt(MESSAGE)], False), ([], True), ([receipt("other")], True),
                                          ([receipt(MESSAGE), BOUNDARY], True), ([BOUNDARY, receipt(MESSAGE)], False)])
def test_on_resume_the_transcripts_receipt_decides(project, rows, speaks):
    """The client ended the old process with SessionEnd `other`: state and marker are gone."""
    before_tool(project)
    project.step("cleanup", project.event("SessionEnd.other", session_id="s1"), NOW)
    project.write_transcript(rows)
    start(project, "resume")
    assert bool(before_tool(project).context) == speaks


# --- content mode


CUT = "\n[cut for lack of room; the rest is in: "


@pytest.fixture
def content(project):
    project.write(".contextrc", "gate:\n  mode: content\n")
    return project


def test_content_mode_puts_the_files_text_in(content):
    assert before_tool(content).context == (
        "The project's context files say this (.context/CONSTITUTION.md, .context/TASKS.md):\n"
        "----- .context/CONSTITUTION.md -----\n# Constitution\n\nBe exact.\n"
        "----- .context/TASKS.md -----\n# Tasks\n\n- [ ] one")


@pytest.mark.parametrize("letter", ["x", "é", "😀", "word "])
def test_content_stays_within_9000_and_names_what_was_cut_or_left_out(content, letter):
    names = helper.load_kit().CONTEXT_FILES
    for name in names:
        content.write(".context/" + name, letter * 5000)
    text = before_tool(content).context
    assert len(text.encode("utf-16-le")) // 2 <= 9000
    assert all(".context/" + name in text.split("\n", 1)[1] for name in names)
    cut = text.partition(CUT)[2].rstrip("]").split(", ")
    whole = [name for name in names if "\n----- .context/%s -----\n%s\n" % (name, (letter * 5000).strip()) in text]
    assert cut == [".context/" + name for name in names if name not in whole] and len(cut) > 1


def test_content_mode_with_many_files_comes_once(content):
    names = ["f%d.md" % number for number in range(150)]
    content.write(".contextrc", "gate:\n  mode: content\n  files: [%s]\n" % ", ".join(names))
    for name in names:
        content.write(".context/" + name, "Rule of %s." % name)
    first = before_tool(content).context
    assert len(first) <= 9000 and first.startswith("The project's context files say this")
    assert before_tool(content).is_silent


def test_content_stays_within_9000_also_when_names_take_most_of_the_room(content):
    names = ["%03d-%s.md" % (number, "name" * 20) for number in range(100)]
    content.write(".contextrc", "gate:\n  mode: content\n  files:\n    - " + "\n    - ".join(names))
    for name in names:
        content.write(".context/" + name, "A rule.")
    text = before_tool(content).context
    assert 4000 < len(text) <= 9000 and "A rule." in text and CUT in text


@pytest.mark.parametrize("size", range(7000, 8800, 200))
def test_a_file_is_left_out_where_only_some_words_of_it_would_fit(content, size):
    content.write(".context/CONSTITUTION.md", "x" * size)
    content.write(".context/TASKS.md", "word " * 2000)
    text = before_tool(content).context
    shown = text.partition("----- .context/TASKS.md -----\n")[2]
    assert len(shown) > 500 if shown else ".context/TASKS.md]" in text.partition(CUT)[2]


def test_content_takes_the_room_that_a_retry_leaves(content):
    content.write(".contextrc", "gate:\n  mode: content\nstartup:\n  budget_chars: 5000\n  files: [notes.md]\n")
    for name in ("notes.md", ".context/TASKS.md"):
        content.write(name, "# Goal\n" + "word " * 3000)
    content.step("inject", content.event("SessionStart.startup", session_id="s1"), NOW)
    content.step("stop-enforce", content.event("Stop", session_id="s1", last_assistant_message="hm"), NOW + 1)
    text = before_tool(content, NOW + 5).context
    assert text.startswith("[CONTEXT INJECTION") and len(text) < 10000
    assert CUT + ".context/TASKS.md]" in text


def test_content_mode_ends_in_a_deep_folder_too(tmp_path):
    project = helper.Project(tmp_path / ("d" * 200) / ("e" * 200))
    project.write(".contextrc", "gate:\n  mode: content\n")
    os.mkdir(project.path("sub"))
    for name in helper.load_kit().CONTEXT_FILES:
        project.write(".context/" + name, "word " * 280)
    assert len(before_tool(project, cwd=project.path("sub")).context) <= 9000


def test_content_of_a_file_that_leads_out_of_the_project_is_not_shown(content, tmp_path):
    (tmp_path / "secret").write_text("secret words")
    os.unlink(content.path(".context/TASKS.md"))
    os.symlink(str(tmp_path / "secret"), content.path(".context/TASKS.md"))
    assert "secret words" not in before_tool(content).context


def test_gate_waits_for_the_next_call_when_the_retry_takes_the_room(content):
    content.write(".contextrc", "gate:\n  mode: content\nstartup:\n  budget_chars: 9000\n  files: [notes.md]\n")
    content.write("notes.md", "# Goal\n" + "word " * 3000)
    content.write(".context/TASKS.md", "word " * 3000)
    content.step("inject", content.event("SessionStart.startup", session_id="s1"), NOW)
    content.step("stop-enforce", content.event("Stop", session_id="s1", last_assistant_message="hm"), NOW + 1)
    first = before_tool(content, NOW + 5).context
    assert first.startswith("[CONTEXT INJECTION") and len(first) < 10000
    assert before_tool(content, NOW + 5).context.startswith("The project's context files say this")


# --- files that say nothing


NOTHING = ("# Tasks\n\n- [ ] (one task, with the sentence that says when it is done)\n", "# Tasks\n\n## Now\n\n- [ ] (…)\n",
           "<!-- say here\nwhat is being done -->\n# Tasks\n", "- TODO\n- tbd\n- …\n", "- Build: `…`\n- Test: `…`\n", "", "\n",
           "## YYYY-MM-DD: (the decision in one sentence)\n", "| | |\n| --- | --- |\n", "ELF\0 words\n")


@pytest.mark.parametrize("text", NOTHING)
def test_a_file_that_says_nothing_is_not_named(project, text):
    project.write(".context/TASKS.md", text)
    assert "TASKS.md" not in before_tool(project).context
    project.write(".context/CONSTITUTION.md", text)
    assert before_tool(project, session_id="s2").is_silent


def test_there_is_no_checkpoint_line_where_nobody_watches(project):
    event = project.event("PreToolUse.Bash", session_id="s1")
    text = project.step("gate", event, NOW, CLAUDE_CODE_SESSION_ATTENDED="0").context
    assert text.startswith("STOP. ") and CHECKPOINT not in text


# --- the marker that the shell looks at


def quiet(project, session="s1"):
    return os.path.exists(os.path.join(project.tmp, "ctx-quiet-" + session))


def gate(project, session="s1", told="s1"):
    event = project.event("PreToolUse.Bash", session_id=session)
    return project.step("gate", event, NOW, CLAUDE_CODE_SESSION_ID=told)


def test_the_shell_is_told_that_nothing_is_owed_until_something_is(project):
    gate(project)
    assert quiet(project)
    project.step("inject", project.event("SessionStart.compact", session_id="s1"), NOW)
    assert not quiet(project)
    gate(project)
    assert quiet(project)
    project.step("cleanup", project.event("SessionEnd.other", session_id="s1"), NOW)
    assert not quiet(project)


def test_no_such_marker_while_a_delivery_is_under_way_or_the_shell_has_another_name(project):
    project.write(".contextrc", "startup:\n  files: [notes.md]\n")
    project.write("notes.md", "Something.\n")
    gate(project, told="other")
    assert not quiet(project) and not quiet(project, "other")
    project.step("inject", project.event("SessionStart.startup", session_id="s2"), NOW)
    gate(project, "s2", "s2")
    assert not quiet(project, "s2")
