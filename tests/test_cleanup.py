"""Cleanup: nothing of a session is left behind, nothing else is touched, and what a kill left goes by age."""
from __future__ import annotations

import json
import os

import pytest

import helper
from helper import NOW, assistant_row

DAY = 86400


def live(project, session="s1", now=NOW):
    """A session with everything: startup delivery, gate marker, state, signals, alerts, status line."""
    project.write(".claude/ll-continue-prompt.md", "# Goal\nx", mtime=now - 60)
    project.step("inject", project.event("SessionStart.startup", session_id=session), now)
    project.step("gate", project.event("PreToolUse.Bash", session_id=session), now)
    project.write_transcript([assistant_row(180_000)], session)
    project.step("monitor", project.event("PostToolUse.Bash", session_id=session), now)
    project.write(".context/state/%s.statusline" % session, "{}")
    project.write(".context/state/%s.claims" % session, "{}")
    project.write(".context/signals/sessions/%s/note.md" % session, "hello")


def end(project, session="s1", reason="other", now=NOW + 10):
    return project.step("cleanup", project.event("SessionEnd.other", session_id=session, reason=reason), now)


def traces(project, session):
    """Every path and every JSON key of our files that still speaks of the session."""
    found = [path for path in project.tree() if session in os.path.basename(path) and "/.claude/" not in path]
    state = project.read_json(".context/monitor-state.json") if project.exists(".context/monitor-state.json") else {}
    return found + [key for table in state.values() for key in table or () if key.partition(":")[0] == session]


def age(project, path, days):
    full = path if os.path.isabs(path) else project.path(path)
    os.utime(full, (NOW - days * DAY, NOW - days * DAY), follow_symlinks=os.utime not in os.supports_follow_symlinks)


@pytest.mark.parametrize("reason", ["other", "clear", "prompt_input_exit", "logout", None])
def test_the_end_of_a_session_leaves_nothing_of_it(project, reason):
    live(project)
    live(project, "s2")
    assert traces(project, "s1")
    before = set(traces(project, "s2"))
    assert end(project, reason=reason).is_silent
    assert traces(project, "s1") == [] and set(traces(project, "s2")) == before


@pytest.mark.parametrize("how", ["switched off", "paused"])
def test_a_session_is_cleaned_up_also_while_the_hooks_are_silent(project, how):
    live(project)
    if how == "paused":
        project.write(".context/state/pause.json", '{"*": null, "inode": %d}' % os.stat(project.path(".context")).st_ino)
    env = {"CTX_HOOKS_DISABLE": "1"} if how == "switched off" else {}
    assert project.call("cleanup", project.event("SessionEnd.other", session_id="s1"), **env).is_silent
    assert traces(project, "s1") == []


def test_a_session_that_is_resumed_keeps_everything(project):
    live(project)
    before = project.tree()
    end(project, reason="resume")
    assert project.tree() == before


def test_what_belongs_to_the_user_or_to_all_stays(project):
    live(project)
    project.write(".context/metrics.json", "{}")
    project.write(".context/signals/global/a.md", "for all")
    kept = [".context/CONSTITUTION.md", ".context/TASKS.md", ".context/signals/global/a.md", ".context/metrics.json",
            ".context/events.jsonl", ".claude/ll-continue-prompt.md", ".context/.gitignore"]
    before = {name: project.read(name) for name in kept if name != ".context/events.jsonl"}
    end(project)
    assert {name: project.read(name) for name in before} == before and project.exists(".context/events.jsonl")


def test_cleanup_of_nothing_is_silent_and_creates_nothing(bare_project):
    before = bare_project.tree()
    assert end(bare_project).is_silent and bare_project.tree() == before


@pytest.mark.parametrize("changes", [{"session_id": None}, {"session_id": ""}, {"agent_id": "a"}])
def test_only_a_session_can_end(project, changes):
    live(project)
    before = project.tree()
    project.step("cleanup", project.event("SessionEnd.other", **dict({"session_id": "s1"}, **changes)), NOW)
    assert project.tree() == before


@pytest.mark.parametrize("session", ["../../..", "..", "/", "a/../../b", "*"])
def test_a_hostile_session_id_removes_nothing(project, session):
    live(project)
    project.write("precious.json", "x")
    before = {k: v for k, v in project.tree().items() if "state/collected" not in k}
    end(project, session)
    assert {k: v for k, v in project.tree().items() if "state/collected" not in k} == before


def test_a_links_target_is_not_removed(project, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "a.md").write_text("x")
    os.makedirs(project.path(".context/signals/sessions"))
    os.symlink(str(tmp_path / "theirs"), project.path(".context/signals/sessions/s1"))
    os.symlink(str(tmp_path / "theirs" / "a.md"), os.path.join(project.tmp, "ctx-loaded-s1"))
    end(project)
    assert (tmp_path / "theirs" / "a.md").exists()


def test_a_link_among_a_sessions_signals_is_left_alone(project):
    os.makedirs(project.path(".context/signals/sessions/s1"))
    os.symlink("../../../TASKS.md", project.path(".context/signals/sessions/s1/a.md"))
    end(project)
    assert project.exists(".context/signals/sessions/s1/a.md")


# --- by age


def orphans(project):
    """Files of a session that was killed: path -> days after which it goes."""
    return {
        project.write(".context/state/dead.json", "{}"): 7, project.write(".context/state/dead.lock", ""): 7,
        project.write(".context/state/dead.statusline", "{}"): 7, project.write(".context/state/dead.claims", "{}"): 7,
        project.write(".context/state/empty.json", ""): 7,
        project.write(".context/state/dead.json.1-2.ctx.tmp", "{}"): 7,
        project.write(".context/state/metrics.json.1-2.ctx.tmp", "{}"): 7,
        project.write(".context/signals/sessions/dead/a.md", "x"): 7,
        project.write(".context/state/aside/x.json", "{"): 28,
        project.write(os.path.join(project.tmp, "ctx-loaded-dead"), ""): 15,
        project.write(os.path.join(project.tmp, "ctx-asked-dead"), "{}"): 15,
    }


@pytest.mark.parametrize("mode, event", [("inject", "SessionStart.startup"), ("cleanup", "SessionEnd.other")])
@pytest.mark.parametrize("days", [6, 8, 16, 29])
def test_what_a_killed_session_left_goes_by_age(project, mode, event, days):
    paths = orphans(project)
    for path in list(paths) + [project.path(".context/signals/sessions/dead")]:
        age(project, path, days)
    keys = {"lastEmitted": {"dead:X": "2026-01-01T00:00:00Z", "global:Y": "2026-01-01T00:00:00Z"},
            "activeAlerts": {"dead:X": True}, "lastHealth": {"dead": {}, "s1": {}}}
    project.write(".context/monitor-state.json", json.dumps(keys))
    project.step(mode, project.event(event, session_id="s1"), NOW)
    assert {path for path in paths if os.path.exists(path)} == {path for path, limit in paths.items() if days < limit}
    left = project.read_json(".context/monitor-state.json")
    assert list(left["lastEmitted"]) == (["dead:X", "global:Y"] if days == 6 else ["global:Y"])
    assert os.path.exists(project.path(".context/signals/sessions/dead")) == (days == 6)


def test_a_session_that_is_taken_up_after_weeks_still_has_its_state(project):
    state = {"session_start": "2026-01-01T00:00:00Z", "tool_calls": 5}
    age(project, project.write(".context/state/s1.json", json.dumps(state)), 30)
    project.step("inject", project.event("SessionStart.resume", session_id="s1"), NOW)
    assert project.read_json(".context/state/s1.json")["tool_calls"] == 5


def test_what_a_session_has_heard_goes_only_with_its_state(project):
    """A signal may hold for a month: as long as the session is there it is not told again."""
    for session, days in (("s1", 30), ("active", 0), ("dead", 30)):
        state = project.write(".context/state/%s.json" % session, json.dumps({"session_start": "2026-01-01T00:00:00Z"}))
        age(project, state, days)
        age(project, project.write(".context/state/%s.claims" % session, '{"global/news": [1, 9999999999, 1]}'), 30)
    project.step("inject", project.event("SessionStart.resume", session_id="s1"), NOW)
    left = [name for name in os.listdir(project.path(".context/state")) if name.endswith(".claims")]
    assert sorted(left) == ["active.claims", "s1.claims"]


def test_a_session_that_is_taken_up_has_heard_what_it_has_also_without_a_state(project):
    """A prompt that only spoke leaves none."""
    path = project.write(".context/state/s1.claims", '{"global/news": [1, 9999999999, 1]}')
    age(project, path, 30)
    project.step("inject", project.event("SessionStart.resume", session_id="s1"), NOW)
    assert os.path.exists(path)


def test_what_is_only_called_like_the_claims_of_a_session_stays(project):
    path = project.write(".context/state/insurance.claims", "case 1: the roof\n")
    age(project, path, 30)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    assert os.path.exists(path)


OWN, OTHERS = ".context/handoffs/s0.md", ".claude/ll-continue-prompt.md"
HANDOFFS = (  # file, days since it was delivered and since it was changed, setting -> is it still known, is it still there
    (OWN, 6, 6, "", True, True), (OWN, 8, 8, "", False, False), (OWN, 8, 1, "", False, True), (OTHERS, 8, 8, "", False, True),
    (OWN, 8, 8, "startup:\n  max_age_hours: 720\n", True, True),
)


@pytest.mark.parametrize("name, days, file_days, setting, is_known, is_there", HANDOFFS)
def test_a_handoff_goes_a_week_after_its_delivery_unless_it_was_changed_or_is_the_users(
        kit, project, name, days, file_days, setting, is_known, is_there):
    project.write(".contextrc", setting)
    age(project, project.write(name, "# Goal\n\nShip it.\n"), file_days)
    at = kit.format_iso(NOW - days * DAY)
    row = {"file": name, "written_at": at, "delivered_at": at, "delivered_to": "s9", "evidence": "receipt"}
    project.write(".context/state/handoffs.json", json.dumps({
        "inode": os.stat(project.path(".context")).st_ino, "first_event": "2026-01-01T00:00:00Z", "handoffs": {"s0": row}}))
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    known = project.read_json(".context/state/handoffs.json")["handoffs"]
    assert (("s0" in known), project.exists(name)) == (is_known, is_there)


def test_collecting_a_folder_called_global_leaves_the_alerts_for_all(project):
    project.write(".context/monitor-state.json", '{"activeAlerts": {"global:CTX_AUDIT_DUE": true}}')
    for path in (project.write(".context/signals/sessions/global/a.md", "x"), ".context/signals/sessions/global"):
        age(project, path, 30)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    assert not project.exists(".context/signals/sessions/global")
    assert project.read_json(".context/monitor-state.json")["activeAlerts"] == {"global:CTX_AUDIT_DUE": True}


def test_the_collection_stops_when_its_time_is_up(project, kit, monkeypatch):
    monkeypatch.setattr(kit, "COLLECT_LIMIT_S", -1)
    for number in range(9):
        age(project, project.write(".context/state/dead%d.json" % number, "{}"), 30)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    assert len([name for name in os.listdir(project.path(".context/state")) if name.startswith("dead")]) >= 8


def test_what_is_needed_for_as_long_as_it_is_there_is_never_collected(project):
    kept = [".context/state/pause.json", ".context/state/fallback.json", ".context/state/fallback.lock",
            ".context/state/monitor-state.lock", ".context/state/errors.log", ".context/state/errors.log.1",
            ".context/signals/global/a.md"]
    for name in kept:
        project.write(name, "---\nttl: 2592000\n---\nx\n" if name.endswith(".md") else "{}")
        age(project, name, 29)
    other = project.write(os.path.join(project.tmp, "somebody-elses"), "x")
    age(project, other, 99)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    assert [name for name in kept if not project.exists(name)] == [] and os.path.exists(other)


def test_a_pause_without_an_end_lasts(project):
    project.write(".context/state/pause.json", '{"s9": null, "inode": %d}' % os.stat(project.path(".context")).st_ino)
    age(project, ".context/state/pause.json", 20)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    assert project.step("gate", project.event("PreToolUse.Bash", session_id="s9"), NOW).is_silent


def test_a_live_session_is_not_collected_by_its_old_folder(project):
    project.write(".context/signals/sessions/old/new.md", "x", mtime=NOW - DAY)
    age(project, ".context/signals/sessions/old", 30)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    assert project.exists(".context/signals/sessions/old/new.md")


@pytest.mark.skipif(not helper.IS_ROOT, reason="only root can give a file away")
def test_markers_of_other_users_stay(project):
    path = project.write(os.path.join(project.tmp, "ctx-loaded-other"), "")
    age(project, path, 99)
    os.chown(path, 65534, 65534)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    assert os.path.exists(path)


def test_the_collection_runs_at_most_once_an_hour(project):
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    os.utime(project.path(".context/state/collected"), (NOW, NOW))
    path = project.write(".context/state/dead.json", "{}")
    age(project, path, 30)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW + 3599)
    assert os.path.exists(path)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW + 3600)
    assert not os.path.exists(path)


def test_collecting_one_session_does_not_forget_another_whose_name_it_begins_with(project):
    alerts = {"a:CTX_HEALTH_70": True, "a.b:CTX_HEALTH_70": True}
    project.write(".context/monitor-state.json", json.dumps({"activeAlerts": alerts}))
    for session in ("a", "a.b"):
        project.write(".context/state/%s.json" % session, json.dumps({"session_start": "2026-01-01T00:00:00Z"}))
    age(project, ".context/state/a.b.json", 20)
    age(project, ".context/state/a.json", 0)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    assert not project.exists(".context/state/a.b.json") and project.exists(".context/state/a.json")
    assert list(project.read_json(".context/monitor-state.json")["activeAlerts"]) == ["a:CTX_HEALTH_70"]


def test_what_is_ours_is_found_behind_many_names_of_others(project):
    for number in range(700):
        project.write(os.path.join(project.tmp, "other-%03d" % number), "")
    marker = project.write(os.path.join(project.tmp, "ctx-loaded-old"), "")
    age(project, marker, 30)
    project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW)
    assert not os.path.exists(marker)


def test_of_more_orphans_than_one_collection_looks_at_all_go_in_the_end(project, kit, monkeypatch):
    monkeypatch.setattr(kit, "COLLECT_COUNT", 5)
    for number in range(20):
        age(project, project.write(".context/state/dead%02d.json" % number, "{}"), 30)
    looks, left = 0, 20
    while left and looks < 60:
        looks += 1
        project.write(".context/state/collected", "", mtime=1.0)
        project.step("inject", project.event("SessionStart.startup", session_id="s1"), NOW + looks)
        before, left = left, len([name for name in os.listdir(project.path(".context/state")) if name.startswith("dead")])
        assert before - left <= 5
    assert left == 0
