"""Fixtures for every test; the work is done in helper.py."""
from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import pytest
from _pytest.runner import runtestprotocol

import helper
from helper import IS_WINDOWS, TESTS, Project, load_kit

collect_ignore = ["e2e", "agents"] if IS_WINDOWS else []  # the clients that they start run elsewhere
FOREIGN = ("CLAUDE", "CTX_", "PYTHONPATH", "PYTEST_ADDOPTS")
KEPT = ("CTX_SOAK", "CTX_E2E", "CTX_FOREIGN_FOLDER", "CTX_GIT_BASH")  # switches of the tests themselves

# `nohup` and a job in the background ignore signals, and what a process ignores its children ignore too: a command
# that a test interrupts would never end. A handler that does nothing is not inherited.
for _number in (getattr(signal, _name, None) for _name in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM")):
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


@pytest.fixture(autouse=True)
def clean_environment():
    """In-process code sees a fresh machine too, also when pytest was started by hand."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(FOREIGN) and not name.startswith(KEPT):
                patch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def changed_by_test(request):
    """What a test patches is patched in this process only: its calls are forks of this one."""
    helper.changed_by_test = "monkeypatch" in request.fixturenames


def pytest_make_parametrize_id(val):
    """pytest puts it into the environment, and Windows takes no variable of any length."""
    return repr(val[:20]) + "..." if isinstance(val, (str, bytes)) and len(val) > 1000 else None


# What a test needs and Windows does not have is a skip with its reason, in one place: a call of a function that
# the system lacks, a program of POSIX, and links where nobody may make them. What the kit itself calls is not excused.
MISSING = re.compile(r"module '(os|signal|socket|time)' has no attribute '(\w+)'")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    outcome = yield
    reason = _lacking(outcome.excinfo) if IS_WINDOWS and outcome.excinfo else ""
    if reason:
        outcome.force_exception(pytest.skip.Exception(reason, _use_item_location=True))


def _lacking(excinfo) -> str:
    """Why this exception only says that the test cannot run on Windows, "" when it says something else."""
    error, frames = excinfo[1], []
    step = error.__traceback__
    while step:
        frames.append(step.tb_frame)
        step = step.tb_next
    missing = MISSING.match(str(error)) if isinstance(error, AttributeError) else None
    if missing and frames[-1].f_code.co_filename.startswith(TESTS):
        return "Windows has no %s.%s" % missing.groups()
    return ""


# A second run for what may not be our doing: now and then Wine cannot start a process and says so, which Windows
# never does; and in the gate a real client, whose moments are its own, has another try. Both are told at the end.
WINE_FAULT = "[WinError 1359]"
repeated: list = []


def pytest_runtest_protocol(item, nextitem):
    is_client = os.environ.get("CI") == "true" and item.nodeid.startswith(("e2e/", "agents/"))
    if not IS_WINDOWS and not is_client:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed and (is_client or WINE_FAULT in str(report.longrepr)) for report in reports):
        repeated.append(item.name)
        item._initrequest()  # its fixtures anew
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter):
    if repeated:
        terminalreporter.write_line("%s: run twice: %s" % ("windows" if IS_WINDOWS else "e2e", ", ".join(repeated)))


@pytest.fixture(autouse=IS_WINDOWS)
def posix_program_or_skip(monkeypatch):
    """Asked before it is started: on a drive that is the machine's own root Wine finds it, and its handle is none."""
    execute = subprocess.Popen._execute_child

    def execute_child(self, args, *more):
        program = args if isinstance(args, str) else os.fspath(args[0])
        if program.startswith(("/bin/", "/usr/")) or program.split()[:1] == ["sh"]:
            pytest.skip("Windows has no %s" % program.split()[0])
        return execute(self, args, *more)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", execute_child)


@pytest.fixture(autouse=IS_WINDOWS)
def links_or_skip(monkeypatch):
    """Windows lets few people make links, and Wine says that it did when it did not."""
    make_link = os.symlink

    def symlink(target, path, *args, **kwargs):
        try:
            make_link(target, path, *args, **kwargs)
        except OSError:
            pass
        callers = (sys._getframe(1), sys._getframe(2))  # the second when pathlib stands between
        if not os.path.lexists(path) and any(frame.f_code.co_filename.startswith(TESTS) for frame in callers):
            pytest.skip("symbolic links cannot be made here")

    monkeypatch.setattr(os, "symlink", symlink)
    if hasattr(pathlib, "_NormalAccessor"):  # until 3.10 pathlib keeps the function itself
        monkeypatch.setattr(pathlib._NormalAccessor, "symlink", staticmethod(symlink))


@pytest.fixture
def project(tmp_path):
    """A project with two context files, a space and a quote in its path, a private HOME and TMPDIR."""
    return Project(tmp_path)


@pytest.fixture
def open_project():
    """A project in a folder that an ordinary user can reach, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o755)
        yield Project(base)
        for where, folders, _ in os.walk(base):
            for name in folders:
                os.chmod(os.path.join(where, name), 0o755)


@pytest.fixture
def bare_project(tmp_path):
    """The same without a context dir: everything has to stay silent and nothing may be created."""
    return Project(tmp_path, context=False)


@pytest.fixture
def run_hook(project):
    """run_hook(mode, event, **env) -> Result(rc, out, err, reply), as a process."""
    return project.run_hook


@pytest.fixture
def call(project):
    """call(mode, event, **env) -> Result, the same main() without starting an interpreter."""
    return project.call


@pytest.fixture(params=["in-process", "subprocess"])
def hook(request, project):
    """Both ways in turn: a test that uses it runs twice and has to hold for each."""
    return project.call if request.param == "in-process" else project.run_hook


@pytest.fixture(scope="session")
def kit():
    """The module itself, for its functions."""
    return load_kit()


@pytest.fixture(scope="session")
def rounds():
    """Length of a seeded loop: rounds(200) is 200, 50 times that under `make soak`, a quarter under Wine, where all is slow."""
    return lambda usual: usual * 50 if os.environ.get("CTX_SOAK") == "1" else usual // (4 if IS_WINDOWS else 1) or 1
