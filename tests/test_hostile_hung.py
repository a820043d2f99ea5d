"""A file system that hangs, for real: whatever lies on it, a hook is over after its deadline, in silence and with exit 0."""
from __future__ import annotations

import concurrent.futures
import contextlib
import os
import subprocess
import sys

import pytest

import helper
import hostile

EVENTS = [("inject", "SessionStart.startup"), ("inject", "UserPromptSubmit"), ("gate", "PreToolUse.Bash"),
          ("monitor", "PostToolUse.Bash"), ("stop-enforce", "Stop"), ("cleanup", "SessionEnd.other")]


@contextlib.contextmanager
def hung(folder):
    """The folder is on a file system that does not answer."""
    os.makedirs(folder, exist_ok=True)
    words = [sys.executable, "-I", os.path.join(helper.TESTS, "hung_fs.py"), folder]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if server.stdout.readline() != b"ready\n":
            pytest.skip(server.communicate()[1].decode().strip() or "no hung file system can be had")
        yield
    finally:
        server.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="speaks to Linux's FUSE")
@pytest.mark.parametrize("place", [".context", "the transcript", "the temp folder"])
def test_every_hook_on_a_hung_file_system_is_over_after_its_deadline(project, place):
    folders = {".context": project.path(".context"), "the transcript": os.path.dirname(project.transcript_path("s1")),
               "the temp folder": project.tmp}
    if place == ".context":
        os.rename(folders[place], project.path("moved"))
    with hung(folders[place]), concurrent.futures.ThreadPoolExecutor(len(EVENTS)) as pool:
        runs = [pool.submit(project.run_hook, mode, project.event(name, session_id="s1")) for mode, name in EVENTS]
        for run in runs:  # one that hung would be given up by run_hook after its own, much longer time
            hostile.check_result(run.result())
