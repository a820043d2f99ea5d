"""Fixtures for every test; the work is done in helper.py."""
from __future__ import annotations

import os
import tempfile

import pytest

from helper import Project, load_kit

FOREIGN = ("CLAUDE", "CTX_", "PYTHONPATH", "PYTEST_ADDOPTS")
KEPT = ("CTX_SOAK", "CTX_E2E")  # switches of the tests themselves


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """In-process code sees a fresh machine too, also when pytest was started by hand."""
    for name in list(os.environ):
        if name.startswith(FOREIGN) and not name.startswith(KEPT):
            monkeypatch.delenv(name)


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
    """Length of a seeded loop: rounds(200) is 200, and 50 times that under `make soak`."""
    return lambda usual: usual * (50 if os.environ.get("CTX_SOAK") == "1" else 1)
