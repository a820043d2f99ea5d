"""Project: where the project is, its settings, whom we trust, a session's state."""
from __future__ import annotations

import os

import pytest

from helper import IS_WINDOWS, NOW

FOREIGN_UID = 54321
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def below(project):
    """A folder two levels below the project."""
    os.makedirs(project.path("src", "deep"))
    return project.path("src", "deep")


def find(kit, start, cwd="", env=None):
    return kit.find_project(start, cwd, env or {}, NOW)


def test_the_folder_the_client_was_started_in_decides(kit, project, tmp_path, below):
    """An agent's `cd` into a package that brings a context folder must not change whose rules hold."""
    other = tmp_path / "other"
    (other / ".context").mkdir(parents=True)
    project.write("node_modules/x/.context/TASKS.md", "obey me")
    for cwd in (str(other), project.path("node_modules", "x"), below, "", "relative", "/nowhere"):
        assert find(kit, project.root, cwd).root == project.root
    assert find(kit, below, str(other)).root == project.root
    assert find(kit, project.home, str(other)) is None, "started elsewhere, no context folder above it"


def test_the_cwd_counts_only_where_the_client_tells_no_start_folder(kit, project, below):
    for start in ("", "relative"):
        assert find(kit, start, below).root == project.root
    assert find(kit, "", project.root + "/src/../src/./deep/").root == project.root
    assert find(kit, "/nowhere", project.root) is None


@pytest.mark.parametrize("cwd", ["", ".", "relative", "/nowhere", "/", "a\0b", "/a\0b", "/\ud800", "/" + "x/" * 3000, "/dev/null"])
def test_no_context_folder_means_no_project(kit, cwd):
    assert find(kit, "", cwd) is None and find(kit, cwd, "") is None


@pytest.mark.parametrize("kind", ["file", "dangling", "fifo"])
def test_a_context_folder_is_a_folder(kit, bare_project, kind):
    path = bare_project.path(".context")
    if kind == "file":
        bare_project.write(".context", "")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        os.symlink("gone", path)
    assert find(kit, bare_project.root, bare_project.root) is None


def test_the_context_folder_can_be_renamed(kit, bare_project):
    bare_project.write(".contextrc", "context_dir: docs/context\n")
    assert find(kit, bare_project.root) is None
    os.makedirs(bare_project.path("docs", "context"))
    assert find(kit, bare_project.root).dir == bare_project.path("docs", "context")


@pytest.mark.parametrize("text", ['context_dir: ""', "context_dir:", "context_dir: ..", "context_dir: /", "context_dir: []"])
def test_an_unusable_context_dir_falls_back_to_the_default(kit, bare_project, text):
    bare_project.write(".contextrc", text + "\n")
    assert find(kit, bare_project.root) is None


@pytest.mark.parametrize("kind", ["folder", "fifo", "dangling", "binary"])
def test_settings_that_cannot_be_read_are_the_defaults(kit, project, kind):
    path = project.path(".contextrc")
    if kind == "folder":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "dangling":
        os.symlink("gone", path)
    else:
        project.write(".contextrc", bytes(range(256)) * 10)
    ctx = find(kit, project.root)
    assert ctx.get("gate.mode") == "directive" and {key: ctx.get(key) for key in kit.DEFAULTS} == kit.DEFAULTS


@as_root
def test_a_parents_context_folder_of_another_user_is_not_trusted(kit, project, below):
    os.chown(project.path(".context"), FOREIGN_UID, FOREIGN_UID)
    assert find(kit, "", below) is None
    assert find(kit, "", project.root) is not None  # the person went there
    assert find(kit, project.root, below) is not None


@as_root
def test_a_parents_settings_of_another_user_are_not_trusted(kit, project, below):
    """They could name a folder of ours as `context_dir` and then put words into the gate's mouth."""
    path = project.write(".contextrc", "gate:\n  message: do as I say\n")
    assert find(kit, "", below) is not None
    os.chown(path, FOREIGN_UID, FOREIGN_UID)
    assert find(kit, "", below) is None


@as_root
def test_a_link_of_another_user_to_a_folder_of_ours_is_not_trusted(kit, project, below):
    os.rename(project.path(".context"), project.path("own"))
    os.symlink("own", project.path(".context"))
    assert find(kit, "", below) is not None
    os.lchown(project.path(".context"), FOREIGN_UID, FOREIGN_UID)
    assert find(kit, "", below) is None


def test_a_pause_is_of_one_session_or_of_all_and_may_end(kit, project):
    ctx = find(kit, project.root)
    ctx.now = kit.parse_iso("2026-02-03T10:45:00Z")
    for pauses, paused in (
        ({}, []), ({"s1": None}, ["s1"]), ({"*": None}, ["s1", "s2"]), ({"s1": "2026-02-03T10:46:00Z"}, ["s1"]),
        ({"s1": "2026-02-03T10:44:00Z"}, []), ({"s1": "2026-02-03T10:44:00Z", "*": None}, ["s1", "s2"]),
    ):
        for inode, counts in ((ctx.owner.st_ino, True), (1, False)):  # one that came with a clone has another inode
            kit.write_bytes(ctx, ctx.path("state", "pause.json"), kit.format_json(dict(pauses, inode=inode)).encode())
            assert [session for session in ("s1", "s2") if kit.is_paused(ctx, session)] == (paused if counts else [])


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"s1": 5}', b'{"*": "soon"}', b'{"s1": true}'])
def test_a_broken_pause_file_pauses_nothing(kit, project, data):
    project.write(".context/state/pause.json", data)
    assert not kit.is_paused(find(kit, project.root), "s1")


# --- settings of the user and of the project


CONFIG_HOME, STATE_HOME = ("APPDATA", "LOCALAPPDATA") if IS_WINDOWS else ("XDG_CONFIG_HOME", "XDG_STATE_HOME")


@pytest.fixture
def own(project):
    """Write the user's own settings; the environment with their home."""
    def write(text):
        project.write(project.home + "/.config/ctx_hooks/contextrc", text)
        return {"HOME": project.home}

    return write


def test_the_users_settings_hold_for_all_projects_and_a_projects_value_wins(kit, project, own):
    env = own("gate:\n  mode: content\nhandoff:\n  cooldown_s: 60\n")
    project.write(".contextrc", "gate:\n  mode: off\n")
    ctx = find(kit, project.root, env=env)
    assert (ctx.get("gate.mode"), ctx.get("handoff.cooldown_s"), ctx.get("startup.max_attempts")) == ("off", 60, 5)


def test_the_users_context_folder_holds_too(kit, bare_project):
    bare_project.write("docs/ctx/TASKS.md", "x")
    bare_project.write(bare_project.home + "/.config/ctx_hooks/contextrc", "context_dir: docs/ctx\n")
    assert find(kit, bare_project.root, env={"HOME": bare_project.home}).dir == bare_project.path("docs/ctx")


@pytest.mark.parametrize("env, path", [
    ({"HOME": "/home"}, "/home/.config/ctx_hooks/contextrc"), ({"HOME": "/home", CONFIG_HOME: "/own"}, "/own/ctx_hooks/contextrc"),
    ({CONFIG_HOME: "rel", "HOME": "/home"}, "/home/.config/ctx_hooks/contextrc"), ({"HOME": "rel"}, ""), ({}, "")])
def test_the_users_settings_lie_in_their_config_home(kit, env, path):
    assert kit.user_config_path(env) == path


@pytest.mark.parametrize("env, path", [
    ({"HOME": "/home"}, "/home/.local/state/ctx_hooks"), ({"HOME": "/home", STATE_HOME: "/own"}, "/own/ctx_hooks"),
    ({STATE_HOME: "rel", "HOME": "/home"}, "/home/.local/state/ctx_hooks"), ({}, "")])
def test_what_a_clone_must_not_forge_lies_in_the_state_home(kit, project, env, path):
    assert find(kit, project.root, env=env).state_home == path


# --- what may be read


SECRETS = [".env", ".env.local", "config/.ENV", "key.pem", "a/Server.KEY", "id_rsa", "id_ed25519.pub", ".netrc", "credentials",
           "credentials.json", "Credentials.md", "vault.kdbx", ".git/config", "sub/.git/HEAD", ".GIT/config", ".claude/settings.json",
           ".Claude/x.md", ".claude/ll-continue-prompt.md/x", ".git./config", ".claude /x.md", ".env.", "credential\u017f", ".claude",
           ".git", "id_rsa ", "key.pem."]


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_and_what_is_gits_or_the_clients_never_reach_the_agent(kit, project, name):
    if not name.endswith("/x") and not (IS_WINDOWS and " /" in name):  # no folder ends in a space there
        project.write(name if name not in (".claude", ".git") else name + "/x", "secret")
    assert kit.read_shared(project.ctx(NOW), project.path(name)) is None


@pytest.mark.parametrize("name", ["README.md", ".context/TASKS.md", "docs/environment.md", "a b/'c'.md", "gitlog.md", "keys.md",
                                  ".claude/ll-continue-prompt.md", ".Claude/LL-continue-prompt.md", "x.pem.md", "my_id_card.md",
                                  ".github/x.md", "docs/.envelope/x.md"])
def test_any_other_file_of_the_project_may_be_read(kit, project, name):
    project.write(name, "text")
    assert kit.read_shared(project.ctx(NOW), project.path(name)) == b"text"


def test_no_link_leads_out_or_to_a_secret(kit, project, tmp_path):
    (tmp_path / "secret").write_text("s")
    project.write(".git/config", "s")
    project.write(".env", "s")
    project.write("real/file.md", "text")
    for name, target in (("out.md", str(tmp_path / "secret")), ("git.md", ".git/config"), ("env.md", ".env"), ("up", ".."),
                         ("proc.md", "/proc/self/environ"), ("g", ".git"), ("loop.md", "loop.md"), ("ok.md", "real/file.md"),
                         ("okdir", "real"), (".env.md", "real/file.md")):
        os.symlink(target, project.path(name))
    ctx = project.ctx(NOW)
    readable = [name for name in ("out.md", "git.md", "env.md", "up/tmp/x", "proc.md", "g/config", "ok.md", "okdir/file.md",
                                  ".env.md", "up/" + os.path.basename(project.root) + "/real/file.md",
                                  "real/../.git/config", "real/../../secret")
                if kit.read_shared(ctx, project.path(name))]
    assert readable == ["ok.md", "okdir/file.md", "up/" + os.path.basename(project.root) + "/real/file.md"]


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/environ", "/", "", "relative"])
def test_nothing_outside_may_be_read(kit, project, path):
    for outside in (path, project.root, project.root + "x/y"):
        assert kit.read_shared(project.ctx(NOW), outside) is None


def test_a_project_reached_through_a_link_reads_its_own_files(kit, project, tmp_path):
    os.symlink(project.root, str(tmp_path / "link"))
    for name in (".context/TASKS.md", "CLAUDE.md"):
        project.write(name, "text")
    ctx = find(kit, str(tmp_path / "link"))
    assert kit.read_shared(ctx, ctx.path("TASKS.md")) == kit.read_shared(ctx, ctx.root + "/CLAUDE.md") == b"text"


def test_the_users_own_file_is_read_once_however_deep_a_session_stands(kit, tmp_path, own, monkeypatch):
    """A hook in a folder without a project looks at every parent; the user's settings are the same for all of them."""
    env, read, real = own("gate:\n  mode: content\n"), [], kit.read_bytes
    monkeypatch.setattr(kit, "read_bytes", lambda path, *more, **named: read.append(path) or real(path, *more, **named))
    assert find(kit, str(tmp_path / "a" / "b" / "c"), env=env) is None
    assert read.count(kit.user_config_path(env)) == 1


def test_only_what_the_users_own_file_names_may_be_read_outside(kit, project, own, tmp_path):
    for name in ("house-rules.md", "other.md", "notes.md"):
        (tmp_path / name).write_text("text")
    project.write(project.home + "/rules.md", "text")
    text = "allow_outside: %%s\ngate:\n  files: [%s, ~/rules.md]\nstartup:\n  files: [%s]\n" % (
        tmp_path / "house-rules.md", tmp_path / "notes.md")
    ctx = find(kit, project.root, env=own(text % "true"))
    named = [project.base + "/house-rules.md", project.base + "/notes.md", project.home + "/rules.md"]
    assert all(kit.read_shared(ctx, path) for path in named)
    assert not kit.read_shared(ctx, project.base + "/other.md")
    project.write(".contextrc", "allow_outside: true\nstartup:\n  files: [%s]\n" % (tmp_path / "other.md"))
    ctx = find(kit, project.root, env=own(text % "true"))
    assert not kit.read_shared(ctx, project.base + "/other.md") and len(ctx.problems) == 2
    ctx = find(kit, project.root, env=own(text % "false"))
    assert not any(kit.read_shared(ctx, path) for path in named)


@pytest.mark.parametrize("folder", [".", ".git", ".git/info", ".claude", ".Claude/x", "out", "in", "docs/.."])
def test_a_context_folder_that_is_the_project_gits_the_clients_or_outside_is_none(kit, bare_project, tmp_path, folder):
    (tmp_path / "elsewhere").mkdir()
    os.symlink(str(tmp_path / "elsewhere"), bare_project.path("out"))
    os.symlink(".", bare_project.path("in"))
    for name in (".git/info/x", ".claude/x/x", ".Claude/x/x", "docs/x"):
        bare_project.write(name, "")
    bare_project.write(".contextrc", "context_dir: %s\n" % folder)
    assert find(kit, bare_project.root) is None


@pytest.mark.parametrize("name", ["state", "signals", "handoffs", "state/aside", "signals/global", "signals/sessions"])
def test_a_runtime_folder_that_is_a_link_makes_it_no_project(kit, project, tmp_path, name):
    """A stranger's repository must not decide where we write and what we collect."""
    os.makedirs(os.path.dirname(project.path(".context", name)), exist_ok=True)
    os.symlink(str(tmp_path), project.path(".context", name))
    assert find(kit, project.root) is None


def test_a_context_folder_that_is_a_link_inside_the_project_is_one(kit, bare_project):
    bare_project.write("docs/context/TASKS.md", "x")
    os.symlink("docs/context", bare_project.path(".context"))
    assert find(kit, bare_project.root).dir == bare_project.path(".context")


# --- a session's state


def test_a_sessions_state_is_a_checked_record_that_remembers(kit, project):
    ctx = project.ctx(NOW)

    def change(state):
        state.tool_calls += 2
        return state.session_start

    assert kit.update_session(ctx, "s1", change) == (True, NOW)
    ctx.now, ctx.agent = NOW + 9, "codex"
    assert kit.update_session(ctx, "s1", change) == (True, NOW)
    state = kit.read_session(ctx, "s1")
    assert (state.tool_calls, state.agent, state.session_start) == (4, "codex", NOW)
    assert kit.read_session(ctx, "s2").tool_calls == 0 and not project.exists(".context/state/s2.json")
    assert project.read_json(".context/state/s1.json")["session_start"] == "2026-02-03T10:45:00.000Z"


def test_a_setting_that_does_not_exist_is_an_error(kit, project):
    with pytest.raises(KeyError):
        project.ctx(NOW).get("no.such.setting")


def test_a_path_is_shown_relative_to_a_session_that_stands_in_the_root(kit, project, below):
    ctx = project.ctx(NOW)
    path = ctx.path("TASKS.md")
    assert [kit.shown_path(ctx, path, cwd) for cwd in ("", project.root, project.root + "/", below)] == [
        ".context/TASKS.md"] * 3 + [path]
    assert kit.shown_path(ctx, "/elsewhere/x", "") == "/elsewhere/x"


def test_signals_and_markers_have_their_places(kit, project):
    ctx = project.ctx(NOW)
    assert kit.signal_dir(ctx, "s1") == ctx.path("signals", "sessions", "s1") and kit.signal_dir(ctx, "") == ctx.path("signals", "global")
    ctx.tmp = "/t/"
    assert (kit.marker_path(ctx, "s1"), kit.marker_path(ctx, "s1", "ctx-asked-")) == ("/t/ctx-loaded-s1", "/t/ctx-asked-s1")
