"""Signals: the format with its broken variants, and what reaches the agent, once, at the right moment."""
from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
import time

import pytest

import helper
from helper import IS_WINDOWS, NOW

DATA = os.path.join(helper.TESTS, "data", "signals")
SESSION = ".context/signals/sessions/s1/"
GLOBAL = ".context/signals/global/"
HEAD = "⚠️ [ctx monitor] "

with open(os.path.join(DATA, "expected.json"), encoding="utf-8") as source:
    EXPECTED = json.load(source)


def signal_text(body, **fields):
    header = "".join("%s: %s\n" % field for field in fields.items())
    return "---\n%s---\n%s\n" % (header, body)


def put(project, name, body, age_s=10.0, folder=SESSION, **fields):
    return project.write(folder + name + ".md", signal_text(body, **fields), mtime=NOW - age_s)


def prompt(project, now=NOW, session="s1", **env):
    return project.step("inject", project.event("UserPromptSubmit", session_id=session), now, **env)


def test_every_data_file_has_its_expected_values():
    assert sorted(name[:-3] for name in os.listdir(DATA) if name.endswith(".md")) == sorted(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_signal_file_is_read_as_expected(kit, name):
    with open(os.path.join(DATA, name + ".md"), "rb") as source:
        found = kit.parse_signal(source.read(), NOW - 10, NOW)
    wanted = dict({"code": "", "auditor": ""}, **EXPECTED[name])
    got = {"severity": found.severity, "ttl_s": found.ttl_s, "age_s": NOW - found.generated_at,
           "body": kit.clean_text(found.body), "code": found.code, "auditor": found.auditor}
    assert got == wanted


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_signal_has_an_end(project, name):
    """Said once or not, it is gone when its time is over, and nothing of it was executed."""
    with open(os.path.join(DATA, name + ".md"), "rb") as source:
        project.write(SESSION + name + ".md", source.read(), mtime=NOW - 10)
    body = EXPECTED[name]["body"]
    assert prompt(project).context == (HEAD + body if body else "")
    assert prompt(project).is_silent
    assert prompt(project, NOW + 31 * 86400).is_silent
    assert os.listdir(project.path(SESSION)) == []
    assert not project.exists("pwned")


def test_what_was_written_is_what_is_read(kit, project, rounds):
    letters = "ab \n→:#'\"-<>é😀\t|$`\\"
    choice = random.Random(3)
    for _ in range(rounds(100)):
        body = "x" + "".join(choice.choice(letters) for _ in range(choice.randrange(60)))
        made = kit.Record(name="n", severity=choice.choice(kit.SEVERITIES), generated_at=NOW - 5, ttl_s=77,
                          auditor="a b", code="A:1", body=body)
        path = kit.write_signal(project.ctx(NOW), "s1", made)
        with open(path, "rb") as source:
            read = kit.parse_signal(source.read(), NOW, NOW)
        assert (read.severity, read.generated_at, read.ttl_s, read.auditor, read.code) == (
            made.severity, NOW - 5, 77, "a b", "A:1")
        assert read.body == kit.clean_text(body).strip()


def test_a_code_that_looks_like_a_comment_is_not_cut_off(kit, project):
    made = kit.Record(name="n", severity="warning", generated_at=NOW, ttl_s=77, auditor="ci #2", code="BUILD #41", body="x")
    with open(kit.write_signal(project.ctx(NOW), "s1", made), "rb") as source:
        read = kit.parse_signal(source.read(), NOW, NOW)
    assert (read.auditor, read.code) == ("ci 2", "BUILD 41")


def test_no_signal_is_written_through_a_link(kit, project, tmp_path):
    (tmp_path / "theirs").mkdir()
    os.makedirs(project.path(".context/signals/sessions"))
    os.symlink(str(tmp_path / "theirs"), project.path(".context/signals/sessions/s1"))
    made = kit.Record(name="n", severity="warning", generated_at=NOW, ttl_s=77, auditor="a", code="", body="x")
    assert kit.write_signal(project.ctx(NOW), "s1", made) == "" and os.listdir(str(tmp_path / "theirs")) == []


def test_no_bytes_make_the_reader_fail(kit, rounds):
    choice = random.Random(4)
    pieces = [b"---\n", b"---", b"\n", b"ttl: ", b"5", b"severity:", b"generated_at: 2026-13-45T99:99:99Z", b"\xff", b"\0",
              b"\xef\xbb\xbf", b"\r\n", b"'", b'"', b"#", b":", b"critical", "→".encode(), b"<system>", b"<"]
    for _ in range(rounds(500)):
        data = b"".join(choice.choice(pieces) for _ in range(choice.randrange(20)))
        found = kit.parse_signal(data, NOW - 1, NOW)
        assert found.severity in kit.SEVERITIES and 0 < found.ttl_s <= kit.TTL_LIMIT_S and found.generated_at <= NOW + 1


def test_tags_nested_to_no_end_lose_their_brackets(kit):
    """Removing a tag may complete another one; removing 8,000 nested ones one by one would hold the prompt up."""
    cleaned = kit.clean_text("<system" * 8000 + ">" * 8000 + " end")
    assert "<" not in cleaned and cleaned.endswith(" end")


# --- the block


def test_one_signal_is_the_head_and_its_body(project):
    put(project, "a", "Fact.\n→ Do it", severity="warning")
    assert prompt(project).reply == {"hookSpecificOutput": {
        "hookEventName": "UserPromptSubmit", "additionalContext": "⚠️ [ctx monitor] Fact.\n→ Do it"}}


def test_several_signals_are_one_list_critical_first_then_oldest_first(project):
    put(project, "young", "Young.\n→ Act young", age_s=5)
    put(project, "old", "Old.\n\n→ Act old\nmore about it\n  and more", age_s=50)
    put(project, "bad", "Bad.", age_s=1, severity="critical")
    put(project, "everyone", "For all → now", age_s=30, folder=GLOBAL)
    assert prompt(project).context == (
        "⚠️ [ctx monitor] 4 issues:\n  • Bad.\n  • Old. → Act old\n    more about it\n      and more\n"
        "  • For all → now\n  • Young. → Act young")


def test_delivered_signals_are_removed_and_not_said_again(project):
    put(project, "a", "A")
    assert prompt(project).context and not project.exists(SESSION + "a.md")
    assert prompt(project).is_silent


def test_expired_signal_is_not_injected_but_removed(project):
    put(project, "a", "A", age_s=300)
    put(project, "b", "B", age_s=299)
    assert prompt(project).context == HEAD + "B"
    assert os.listdir(project.path(SESSION)) == []


def test_signals_of_another_session_stay_where_they_are(project):
    path = project.write(".context/signals/sessions/s2/a.md", "For s2", mtime=NOW)
    assert prompt(project).is_silent and os.path.exists(path)


def test_a_machine_made_prompt_delivers_signals_too(project):
    put(project, "a", "A")
    event = project.event("UserPromptSubmit.task-notification", session_id="s1")
    assert project.step("inject", event, NOW).context == HEAD + "A"


FLOORS = (  # environment, .contextrc, what is said of info, warning, critical
    (None, None, "CW"), (None, "info", "CWI"), (None, "critical", "C"), ("critical", "info", "C"),
    ("INFO ", "critical", "CWI"), ("loud", "critical", "C"), ("", None, "CW"),
)


@pytest.mark.parametrize("stated, configured, said", FLOORS)
def test_severity_floor_by_environment_over_settings(project, stated, configured, said):
    if configured:
        project.write(".contextrc", "monitor:\n  inject_min_severity: %s\n" % configured)
    for name, letter in (("info", "I"), ("warning", "W"), ("critical", "C")):
        put(project, name, letter, severity=name)
    context = prompt(project, CTX_INJECT_MIN_SEVERITY=stated).context
    assert [letter for letter in "CWI" if ("• " + letter in context or context == HEAD + letter)] == list(said)
    left = {"I": "info.md", "W": "warning.md", "C": "critical.md"}
    assert sorted(os.listdir(project.path(SESSION))) == sorted(left[x] for x in set("IWC") - set(said))


# --- global signals


def test_global_signal_reaches_each_session_once_until_its_ttl(project):
    put(project, "news", "News", folder=GLOBAL, ttl=600)
    for session in ("s1", "s2"):
        assert prompt(project, session=session).context == HEAD + "News"
        assert prompt(project, session=session).is_silent
    assert project.exists(GLOBAL + "news.md")
    assert prompt(project, NOW + 600, session="s3").is_silent
    assert not project.exists(GLOBAL + "news.md")


@pytest.mark.parametrize("fields", [{}, {"generated_at": "2026-02-03T10:44:55Z"}])
def test_rewritten_global_signal_is_said_again(project, fields):
    put(project, "news", "Old", folder=GLOBAL, age_s=10, generated_at="2026-02-03T10:44:50Z")
    assert prompt(project).context == HEAD + "Old"
    put(project, "news", "New", folder=GLOBAL, age_s=5, **fields)
    assert prompt(project).context == HEAD + "New"
    assert prompt(project).is_silent


def test_global_signal_from_a_clock_ahead_is_said_once_and_ends(project):
    """Its file time lies in the future: it counts from there."""
    put(project, "news", "News", folder=GLOBAL, age_s=-5000)
    assert prompt(project).context == HEAD + "News"
    assert prompt(project, NOW + 3).is_silent
    assert prompt(project, NOW + 3, session="s2").context == HEAD + "News"
    assert prompt(project, NOW + 5301, session="s3").is_silent
    assert not project.exists(GLOBAL + "news.md")


def test_global_signal_that_states_a_time_to_come_is_said_once(project):
    """It counts from its file's time until the stated one has come, and from that on."""
    put(project, "news", "News", folder=GLOBAL, ttl=3600, generated_at="2026-02-03T10:55:00Z")
    assert prompt(project).context == HEAD + "News"
    assert [prompt(project, NOW + after_s).context for after_s in (700, 3700, 4100)] == [""] * 3


def test_a_signal_on_a_disk_whose_clock_is_behind_counts_from_the_time_it_states(project):
    """A server's clock, or a tool that gives files a time of their own: what was stated just now is no day old."""
    for folder in (SESSION, GLOBAL):
        put(project, "ci", "CI is red", folder=folder, age_s=86400, generated_at="2026-02-03T10:44:30Z")
        assert prompt(project).context == HEAD + "CI is red" and prompt(project).is_silent


def test_notes_of_what_was_said_are_forgotten_when_its_time_is_over(project):
    for number in range(5):
        path = put(project, "n%d" % number, "News", folder=GLOBAL)
        prompt(project)
        os.unlink(path)
    put(project, "last", "News", folder=GLOBAL, age_s=-400)
    prompt(project, NOW + 400)
    assert list(project.read_json(".context/state/s1.claims")) == ["global/last"]


# --- one budget


def test_a_thousand_signals_arrive_completely_over_several_prompts(kit, project, monkeypatch):
    monkeypatch.setattr(kit, "LOOK_LIMIT_S", 60)  # so that a slow machine looks at all of them
    for number in range(1000):
        put(project, "n%04d" % number, "Signal %04d.\n→ Look at it" % number, ttl=9999)
    seen, prompts = [], 0
    while True:
        context = prompt(project).context
        if not context:
            break
        prompts += 1
        lines = context.split("\n")
        said = [line[11:15] for line in lines if line.startswith("  • ")]
        assert len(context) < 10000 and lines[0] == "⚠️ [ctx monitor] %d issues:" % len(said)
        seen += said
        left = 1000 - len(seen)
        assert (lines[-1] == "  … %d more will follow" % left) == bool(left)
    assert seen == ["%04d" % number for number in range(1000)] and prompts > 1


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("folder", [SESSION, GLOBAL])
def test_a_body_of_50_kilobytes_is_cut_and_its_whole_text_kept(project, folder, others):
    body = "😀 word " * 7000
    put(project, "big", body, folder=folder, severity="critical")
    for number in range(others):
        put(project, "n%d" % number, "Small", ttl=9999)
    context = prompt(project).context
    assert len(context.encode("utf-16-le")) // 2 < 10000
    path = context.split("the whole text is in ")[1].split(")")[0]
    with open(path, encoding="utf-8") as source:
        assert body.strip() in source.read()
    rest = prompt(project).context
    assert rest.count("Small") == others and "😀" not in rest


def test_a_cut_text_stays_within_the_budget_in_a_deep_folder(tmp_path):
    project = helper.Project(tmp_path / ("d" * 200) / ("e" * 200))
    put(project, "big", "word " * 9000)
    put(project, "small", "Small", age_s=1)
    assert 5000 < len(prompt(project).context) < 10000


def test_signals_wait_when_startup_context_takes_the_room(project):
    """One reply, one budget: the retry comes first, then as many signals as fit."""
    project.write(".contextrc", "startup:\n  budget_chars: 9000\n  files: [notes.md]\n")
    project.write("notes.md", "# Goal\n" + "word " * 3000, mtime=NOW - 60)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    project.step("stop-enforce", project.event("Stop", session_id="s1", last_assistant_message="hm"), NOW + 1)
    for number in range(30):
        put(project, "n%02d" % number, "Signal %d. " % number + "x" * 50, ttl=999)
    context = prompt(project, NOW + 5).context
    assert context.startswith("[CONTEXT INJECTION") and HEAD in context and "more will follow" in context
    assert len(context) < 10000


# --- what else may lie there


def test_what_is_not_a_signal_file_is_skipped(project, tmp_path):
    outside = tmp_path / "secret.md"
    outside.write_text("secret")
    put(project, "ok", "OK")
    folder = project.path(SESSION)
    project.write(SESSION + "half.md.1-2.tmp", "half")
    project.write(SESSION + ".hidden.md", "hidden")
    os.mkdir(os.path.join(folder, "dir.md"))
    os.mkfifo(os.path.join(folder, "fifo.md"))
    os.symlink(str(tmp_path / "nowhere.md"), os.path.join(folder, "dangling.md"))
    os.symlink(str(outside), os.path.join(folder, "escaping.md"))
    assert prompt(project).context == HEAD + "OK"
    assert prompt(project).is_silent and outside.exists()


def test_a_session_folder_that_leads_out_of_the_context_folder_is_not_read(project, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.md").write_text("secret")
    os.makedirs(project.path(".context/signals/sessions"))
    os.symlink(str(tmp_path / "x"), project.path(".context/signals/sessions/s1"))
    assert prompt(project).is_silent and (tmp_path / "x" / "a.md").exists()


def test_a_signal_that_is_being_written_is_left_to_its_writer(project):
    project.write(SESSION + "a.md", "---\nseverity: critical\n", mtime=NOW - 1)
    assert prompt(project).is_silent
    put(project, "a", "Whole", age_s=0.5)
    assert prompt(project).context == HEAD + "Whole"


@pytest.mark.parametrize("name", ["../../../../evil", "a/b", "..", ".", "a\0b", "x" * 300, "Ä ö", "CON", "-rf"])
def test_hostile_names_stay_in_their_folder(kit, project, name):
    signal_ = kit.Record(name=name, severity="warning", generated_at=NOW, ttl_s=9, auditor=name, code=name, body="B")
    path = kit.write_signal(project.ctx(NOW), "s1", signal_)
    assert os.path.dirname(os.path.realpath(path)) == os.path.realpath(project.path(SESSION))
    assert prompt(project).context == HEAD + "B"


def test_the_person_is_told_about_critical_signals_only(project):
    project.write(".contextrc", "monitor:\n  notify: bell\n")
    put(project, "a", "A")
    assert set(prompt(project).reply) == {"hookSpecificOutput"}
    put(project, "b", "Burning\x1b]0;x\x07 house", severity="critical")
    reply = prompt(project).reply
    assert reply["systemMessage"] == "ctx monitor: Burning]0;x house" and reply["terminalSequence"] == "\a"
    project.write(".contextrc", "monitor:\n  notify: desktop\n")
    put(project, "b", "Burning", severity="critical", age_s=2)
    assert prompt(project).reply["terminalSequence"] == "\033]9;ctx monitor: Burning\a"
    project.write(".contextrc", "monitor:\n  notify: off\n")
    put(project, "b", "Burning", severity="critical", age_s=1)
    assert set(prompt(project).reply) == {"hookSpecificOutput", "systemMessage"}, "one line to the person, always"


# --- bodies that are nothing once they are clean


@pytest.mark.parametrize("body", ["<system>", "\u200b\u200b", "</system-reminder>\n<user>", "\x07"])
@pytest.mark.parametrize("others", [0, 1])
def test_a_body_that_is_nothing_once_it_is_clean_is_said_by_its_name(project, body, others):
    """It must neither fail the prompt nor stay."""
    put(project, "odd", body)
    for number in range(others):
        put(project, "n%d" % number, "Fine", age_s=1)
    context = prompt(project).context
    assert "odd" in context and ("Fine" in context) == bool(others)
    assert prompt(project).is_silent


def test_text_behind_thousands_of_unseen_letters_is_not_lost(project):
    put(project, "a", "\u200b" * 19_900 + "Important")
    assert prompt(project).context == HEAD + "Important"


# --- one issue


def test_the_same_code_from_the_same_source_is_one_issue_with_the_newer_text(project):
    put(project, "a", "Old text", age_s=50, auditor="ci", code="RED")
    put(project, "b", "New text", age_s=5, auditor="ci", code="RED")
    put(project, "c", "Other source", age_s=5, auditor="cron", code="RED")
    put(project, "d", "No code", age_s=5, auditor="ci")
    put(project, "e", "No code", age_s=5, auditor="ci")
    context = prompt(project).context
    assert "New text" in context and "Old text" not in context and "4 issues" in context and context.count("No code") == 2
    assert os.listdir(project.path(SESSION)) == [], "the older one is settled too"


# --- many


def test_one_critical_signal_among_2000_others_is_said_first(kit, project, monkeypatch):
    monkeypatch.setattr(kit, "LOOK_LIMIT_S", 60)
    for number in range(2000):
        put(project, "a%04d" % number, "Nothing", severity="info", ttl=9999)
    put(project, "z", "Burning", severity="critical", age_s=1)
    assert prompt(project).context == HEAD + "Burning"
    assert len(os.listdir(project.path(SESSION))) == 2000


def test_what_replaces_a_signal_while_it_is_said_is_not_lost(kit, project):
    put(project, "ci", "3 tests fail", ttl=99_999)
    text, after = kit.run_mode("inject", "claude", project.event("UserPromptSubmit", session_id="s1"), project.environment({}), NOW)
    project.write(SESSION + "ci.md", "---\nseverity: critical\nttl: 99999\n---\nmain is broken\n")
    for action, *args in after:
        action(*args)
    assert "3 tests fail" in text and "main is broken" in prompt(project, NOW + 60).context


def test_many_heard_signals_are_not_opened_again_and_go_when_they_expire(kit, project, monkeypatch):
    for number in range(60):
        put(project, "n%02d" % number, "N%02d" % number, ttl=3600, folder=GLOBAL)
    assert prompt(project).context.count("N") == 60
    opened, really = [], kit.open_regular
    monkeypatch.setattr(kit, "open_regular", lambda path, *how, **named: opened.append(path) or really(path, *how, **named))
    assert prompt(project, NOW + 300).is_silent
    assert [path for path in opened if path.endswith(".md")] == []
    assert prompt(project, NOW + 4000).is_silent and os.listdir(project.path(GLOBAL)) == []


def test_of_more_signals_than_can_be_looked_at_each_look_begins_elsewhere(kit, project, monkeypatch):
    """Nothing waits for ever behind what sorts before it."""
    monkeypatch.setattr(kit, "SIGNAL_COUNT_LIMIT", 20)
    for number in range(60):
        put(project, "n%02d" % number, "N%02d" % number, ttl=99_999)
    said = []
    for number in range(200):
        said += re.findall(r"N\d\d", prompt(project, NOW + number).context)
    assert sorted(said) == ["N%02d" % number for number in range(60)]


@pytest.mark.skipif(IS_WINDOWS, reason="Windows allows 1,024 links to one file")
def test_100_000_signals_cost_no_more_than_the_deadline(project):
    folder = project.path(SESSION)
    os.makedirs(folder)
    first = os.path.join(folder, "n000000.md")
    with open(first, "w") as out:
        out.write(signal_text("Signal", severity="info", ttl=99_999))
    for number in range(1, 100_000):
        os.link(first, os.path.join(folder, "n%06d.md" % number)) if number % 60_000 else project.write(
            SESSION + "x%06d.md" % number, signal_text("Signal", severity="info", ttl=99_999))
        if number % 60_000 == 0:
            first = os.path.join(folder, "x%06d.md" % number)
    result = project.run_hook("inject", project.event("UserPromptSubmit", session_id="s1"))
    assert result.is_silent


# --- with the next tool result


def after_tool(project, now=NOW, **changes):
    event = project.event("PostToolUse.Bash", session_id="s1", tool_input={"command": "c%r" % now}, **changes)
    return project.step("monitor", event, now)


@pytest.fixture
def fresh(project):
    """Context files that are not stale, so that nothing but the test's signals is said."""
    for name in ("CONSTITUTION.md", "TASKS.md"):
        os.utime(project.path(".context", name), (NOW, NOW))
    return project


def test_a_working_agent_hears_of_a_signal_with_its_next_tool_result(fresh):
    assert after_tool(fresh, tool_use_id="t1").is_silent
    put(fresh, "a", "Fact.")
    assert after_tool(fresh, NOW + 1, tool_use_id="t2").context == HEAD + "Fact."
    assert after_tool(fresh, NOW + 2, tool_use_id="t3").is_silent and prompt(fresh, NOW + 3).is_silent


@pytest.mark.parametrize("places, at_tool, at_prompt", [("[prompt]", False, True), ("[tool]", True, False), ("[]", False, False)])
def test_where_signals_are_said_is_a_setting(fresh, places, at_tool, at_prompt):
    fresh.write(".contextrc", "monitor:\n  inject_at: %s\n" % places)
    put(fresh, "a", "Fact.")
    assert bool(after_tool(fresh, tool_use_id="t1").context) is at_tool
    put(fresh, "a", "Fact.", age_s=1)
    assert bool(prompt(fresh, NOW + 60).context) is at_prompt


def test_a_silent_call_knows_from_a_stat_that_there_is_nothing(kit, fresh, monkeypatch):
    put(fresh, "a", "Later", severity="info", ttl=9999)
    os.utime(fresh.path(SESSION), (NOW - 5, NOW - 5))
    after_tool(fresh, tool_use_id="t1")
    monkeypatch.setattr(kit, "read_signals", None)
    assert after_tool(fresh, NOW + 1, tool_use_id="t2").is_silent
    monkeypatch.undo()
    put(fresh, "b", "Now")
    assert after_tool(fresh, NOW + 2, tool_use_id="t3").context == HEAD + "Now"


def test_a_signal_overwritten_in_place_is_found_after_a_while(kit, fresh):
    path = put(fresh, "a", "Later", severity="info", ttl=9999)
    os.utime(fresh.path(SESSION), (NOW - 5, NOW - 5))
    after_tool(fresh, tool_use_id="t1")
    with open(path, "w") as out:
        out.write(signal_text("Now"))
    os.utime(path, (NOW, NOW))
    os.utime(fresh.path(SESSION), (NOW - 5, NOW - 5))
    assert after_tool(fresh, NOW + kit.LOOK_AGAIN_S, tool_use_id="t2").context == HEAD + "Now"


def test_a_signal_written_while_others_are_claimed_is_not_overlooked(fresh):
    """Two changes of a folder can carry the same time; a folder that changed a moment ago is looked at again."""
    put(fresh, "a", "Later", severity="info", ttl=9999)
    os.utime(fresh.path(SESSION), (NOW, NOW))
    assert after_tool(fresh, NOW, tool_use_id="t1").is_silent
    put(fresh, "b", "Now", age_s=0)
    os.utime(fresh.path(SESSION), (NOW, NOW))
    assert after_tool(fresh, NOW + 0.01, tool_use_id="t2").context == HEAD + "Now"


def test_a_claim_that_nothing_followed_is_void_after_some_seconds(kit, project):
    put(project, "a", "Important", ttl=9999)
    event = project.event("UserPromptSubmit", session_id="s1")
    text, after = kit.run_mode("inject", "claude", event, project.environment({}), NOW)
    assert "Important" in text and after, "claimed, and the process dies here"
    assert prompt(project, NOW + 1).is_silent
    assert prompt(project, NOW + kit.CLAIM_S).context == HEAD + "Important"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no mode bits")
def test_an_unreadable_signal_is_set_aside(open_project):
    project = open_project
    path = project.write(SESSION + "a.md", signal_text("A"))
    project.call_as_user("inject", project.event("UserPromptSubmit", session_id="other"))
    os.chmod(path, 0)
    assert project.call_as_user("inject", project.event("UserPromptSubmit", session_id="s1")).is_silent
    aside = os.listdir(project.path(".context/state/aside"))
    assert not os.path.exists(path) and len(aside) == 1 and aside[0].endswith(".a.md")


def test_an_expired_alert_of_the_session_waits_for_being_said_anew(kit, project):
    put(project, "context-health", "Full", age_s=400, code="CTX_HEALTH_85", auditor="context-health")
    put(project, "audit-reminder", "Stale", age_s=400, code="CTX_AUDIT_DUE", folder=GLOBAL)
    assert kit.read_signals(project.ctx(NOW), "s1", {}) == ([], True)
    assert project.exists(SESSION + "context-health.md") and not project.exists(GLOBAL + "audit-reminder.md")


# --- processes


def start(project, mode, event, **env):
    child = subprocess.Popen(helper.hook_argv(mode), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=project.environment(env), cwd=project.root)
    child.stdin.write(json.dumps(event).encode())
    child.stdin.flush()
    return child


def test_racing_prompts_deliver_each_signal_once(project):
    for number in range(20):
        project.write(SESSION + "n%02d.md" % number, signal_text("Signal %02d" % number))
        project.write(GLOBAL + "g%02d.md" % number, signal_text("Global %02d" % number))
    event = project.event("UserPromptSubmit", session_id="s1")
    children = [start(project, "inject", event) for _ in range(6)]
    outputs = [child.communicate(timeout=30)[0].decode() for child in children]
    said = "".join(json.loads(out)["hookSpecificOutput"]["additionalContext"] for out in outputs if out)
    assert [said.count("Signal %02d" % n) for n in range(20)] == [1] * 20
    assert [said.count("Global %02d" % n) for n in range(20)] == [1] * 20


CRASH = """
import os, sys
sys.path.insert(0, sys.argv[1])
import ctx_hooks
def die(fd, data):
    os.kill(os.getpid(), 9)
ctx_hooks.write_all, real = die, ctx_hooks.write_all
ctx_hooks.record = lambda *a, **k: None
ctx_hooks.hook_main(["inject"])
"""


def test_a_crash_between_claim_and_print_loses_nothing(project):
    project.write(SESSION + "a.md", signal_text("Important"))
    event = project.event("UserPromptSubmit", session_id="s1")
    done = subprocess.run([sys.executable, "-c", CRASH, helper.REPO], input=json.dumps(event).encode(),
                          env=project.environment({}), stdout=subprocess.PIPE, timeout=30)
    assert (done.returncode, done.stdout) == (9 if IS_WINDOWS else -9, b"")
    assert project.run_hook("inject", event).context == HEAD + "Important"


def test_a_closed_stdout_loses_nothing(kit, project):
    project.write(SESSION + "a.md", signal_text("Important"))
    event = project.event("UserPromptSubmit", session_id="s1")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(helper.hook_argv("inject"), input=json.dumps(event).encode(), stdout=writer,
                          stderr=subprocess.PIPE, env=project.environment({}), timeout=30)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert prompt(project, time.time() + kit.CLAIM_S).context == HEAD + "Important"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no mode bits")
def test_where_nothing_can_be_remembered_nothing_is_said_until_it_can(open_project):
    """Else it would come with every prompt and every tool result."""
    project = open_project
    project.write(SESSION + "a.md", signal_text("Mine"))
    event = project.event("UserPromptSubmit", session_id="s1")
    os.chmod(project.path(".context"), 0o555)
    for mode, name in (("inject", "UserPromptSubmit"), ("monitor", "PostToolUse.Bash")):
        assert "Mine" not in project.call_as_user(mode, project.event(name, session_id="s1")).context
    os.chmod(project.path(".context"), 0o755)
    assert project.call_as_user("inject", event).context == HEAD + "Mine"


def test_on_a_slow_disk_every_signal_is_looked_at_in_the_end(kit, project, monkeypatch):
    for number in range(20):
        put(project, "n%02d" % number, "Text", severity="info")
    ctx, clock, seen = project.ctx(NOW), itertools.count(), set()
    monkeypatch.setattr(kit.time, "monotonic", lambda: next(clock) * kit.LOOK_LIMIT_S / 5)
    for _ in range(40):
        ctx.now += 1
        signals, is_whole = kit.read_signals(ctx, "s1", {})
        assert len(signals) < 6 and not is_whole
        seen.update(signal.name for signal in signals)
    assert len(seen) == 20


def test_what_could_not_be_claimed_is_not_recorded_as_said(kit, project, monkeypatch):
    put(project, "a", "Mine")
    really = kit.write_bytes
    monkeypatch.setattr(kit, "write_bytes", lambda ctx, path, *rest: not path.endswith("/s1.claims") and really(ctx, path, *rest))
    assert prompt(project).is_silent and not project.exists(".context/events.jsonl")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no mode bits")
def test_what_cannot_be_removed_is_said_once(open_project):
    project = open_project
    project.write(SESSION + "a.md", signal_text("Mine"))
    project.call_as_user("inject", project.event("UserPromptSubmit", session_id="other"))
    os.chmod(project.path(SESSION), 0o555)
    event = project.event("UserPromptSubmit", session_id="s1")
    assert [project.call_as_user("inject", event).context for _ in range(2)] == [HEAD + "Mine", ""]


def test_two_files_with_one_code_and_no_source_are_two_issues(project):
    for name, body in (("a", "main fails"), ("b", "the release branch fails")):
        project.write(".context/signals/global/%s.md" % name, "---\nseverity: warning\nttl: 3600\ncode: CI\n---\n" + body, mtime=NOW - 5)
    text = project.step("inject", project.event("UserPromptSubmit", session_id="s1"), NOW).context
    assert "main fails" in text and "the release branch fails" in text


def test_two_signals_that_the_command_was_given_different_names_for_are_both_said(project):
    for name in ("main", "release"):
        assert project.ask("signal", "%s fails" % name, "--code", "CI", "--name", name, "--global").rc == 0
    for _ in range(2):
        assert project.ask("signal", "without a name", "--code", "CI", "--global").rc == 0
    text = project.call("inject", project.event("UserPromptSubmit", session_id="s1")).context
    assert "main fails" in text and "release fails" in text and text.count("without a name") == 1


def test_a_look_that_finds_no_signal_writes_nothing(project):
    """Folders stay behind when their signals are gone; every prompt passes by them."""
    for folder in (".context/signals/global", ".context/signals/sessions/s1"):
        os.makedirs(project.path(folder))
    project.step("monitor", project.event("PostToolUse.Bash", session_id="s1"), NOW)
    before = project.tree()
    for mode, name in (("inject", "UserPromptSubmit"), ("stop-enforce", "Stop")):
        assert project.step(mode, project.event(name, session_id="s1"), NOW + 100).is_silent
    assert project.tree() == before


def test_a_call_that_looks_at_nothing_does_not_read_what_was_heard(kit, fresh, monkeypatch):
    """However many signals a session has heard, a call between two looks costs the same."""
    put(fresh, "news", "News", folder=GLOBAL, ttl=9999)
    os.utime(fresh.path(GLOBAL), (NOW - 5, NOW - 5))
    assert after_tool(fresh, tool_use_id="t1").context == HEAD + "News" and after_tool(fresh, NOW + 1, tool_use_id="t2").is_silent
    opened, really = [], kit.open_regular
    monkeypatch.setattr(kit, "open_regular", lambda path, *how, **named: opened.append(path) or really(path, *how, **named))
    assert after_tool(fresh, NOW + 2, tool_use_id="t3").is_silent
    assert opened and not [path for path in opened if path.endswith(".claims")]


@pytest.mark.parametrize("claims", ["{", "[]", '{"session/a": 5}', '{"session/a": [1, 2]}', '{"session/a": [1, "x", 1]}',
                                    '{"session/a": [1, 9e99, 1]}', '{"session/a": [null, null, null]}', '{"session/a": [1, true, 1]}'])
def test_broken_claims_count_for_nothing(project, claims):
    put(project, "a", "Said")
    project.write(".context/state/s1.claims", claims)
    assert prompt(project).context == HEAD + "Said" and prompt(project).is_silent


def test_a_look_that_finds_nothing_to_say_leaves_no_claims(project):
    project.write(SESSION + "a.md", signal_text("Quiet", severity="info"))
    assert prompt(project).is_silent and not project.exists(".context/state/s1.claims")


def test_a_file_whose_time_is_the_epoch_counts_by_the_time_it_states(project):
    project.write(SESSION + "a.md", signal_text("Said", generated_at="2026-02-03T10:44:55Z"), mtime=0)
    assert prompt(project).context == HEAD + "Said" and prompt(project).is_silent
