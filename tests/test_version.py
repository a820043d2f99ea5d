"""Version: imports, version."""
from __future__ import annotations

import hashlib
import os
import shutil
import subprocess

import pytest

import helper


def test_version_and_the_files_own_sha256_are_printed(project):
    with open(os.path.join(helper.REPO, "ctx_hooks.py"), "rb") as source:
        digest = hashlib.sha256(source.read()).hexdigest()
    result = project.command("--version")
    assert (result.rc, result.err) == (0, b"")
    assert result.out.decode() == "ctx_hooks %s\nsha256 %s\n" % (helper.load_kit().VERSION, digest)


STRAY = "open(%r, 'a').write(__name__ + '\\n')\nraise SystemExit('stray module')\n"
NAMES = ["json", "re", "os", "stat", "time", "traceback", "hashlib", "argparse", "typing", "signal", "posix", "_json", "_signal",
         "tempfile", "subprocess", "shutil", "random", "errno", "linecache", "tokenize"]


@pytest.fixture
def littered(project):
    """The kit in a folder full of modules that carry the names of the standard library's."""
    folder = project.path(".claude", "hooks")
    os.makedirs(folder)
    shutil.copy(os.path.join(helper.REPO, "ctx_hooks.py"), folder)
    for name in NAMES:
        project.write(".claude/hooks/%s.py" % name, STRAY % project.path("imported"))
    return project


def run(project, argv, event=b""):
    done = subprocess.run(argv, input=event, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=project.env, cwd=project.root,
                          timeout=30)
    assert not project.exists("imported"), project.read("imported")
    return helper.make_result(done.returncode, done.stdout, done.stderr)


def test_stray_modules_beside_the_kit_are_not_imported_by_the_registered_command(littered):
    event = helper._as_input(littered.event("PreToolUse.Bash", session_id="s1"))
    result = run(littered, helper.hook_argv("gate", littered.path(".claude", "hooks", "ctx_hooks.py")), event)
    assert result.context.startswith("STOP.")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["signal", "x"], ["nonsense"]])
def test_stray_modules_beside_the_kit_are_not_imported_by_a_plain_run(littered, words):
    result = run(littered, [helper.PYTHON, littered.path(".claude", "hooks", "ctx_hooks.py"), *words])
    assert result.rc == (1 if words == ["nonsense"] else 0)


def test_stray_modules_beside_the_kit_are_not_imported_by_a_plain_hook(littered):
    event = helper._as_input(littered.event("PreToolUse.Bash", session_id="s1"))
    result = run(littered, [helper.PYTHON, littered.path(".claude", "hooks", "ctx_hooks.py"), "gate"], event)
    assert result.context.startswith("STOP.")
