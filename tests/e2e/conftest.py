"""End-to-end tests: the kit in the real client, against a stub model on loopback.

They run when this folder (or a file in it) is named. The client is installed into .dev/client at the first run; where
it cannot be had, one line says so. What is marked `long` runs only in the whole suite (`make e2e`).
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import delivery
import real_client
import wrapped

CONTEXT_FILES = {
    "CONSTITUTION.md": "# Constitution\nNever push to main.\n",
    "TASKS.md": "# Tasks\n- finish the parser\n",
}
_figures = Counter()  # texts for the model: emitted, lost
_cells = delivery.Cells()
_notes = []


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only in the whole suite, not in CI")


def pytest_collection_finish(session):
    """Programs are fetched before the first fixture closes the network off."""
    if not session.config.option.collectonly and any(i.fspath.basename == "test_e2e_wrap.py" for i in session.items):
        wrapped.find_programs()


def pytest_terminal_summary(terminalreporter):
    lines = list(_notes)
    if _cells.found:
        lines += _cells.lines()
    if _figures["emitted"]:
        there = _figures["emitted"] - _figures["lost"]
        lines.append("delivery: %d of %d texts of the hooks stood in a request" % (there, _figures["emitted"]))
    for line in lines:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def program():
    """The real client; everything after this fixture sees no network but loopback."""
    try:
        found = real_client.install()
    except real_client.Unavailable as reason:
        pytest.skip(str(reason))
    network = "no network but loopback" if real_client.isolate() else "the network could not be closed off"
    _notes.append("e2e: Claude Code %s, %s" % (real_client.version(found), network))
    return found


@pytest.fixture
def world(program, tmp_path):
    """A scratch repository without the kit, with one commit; afterwards, what holds for every test."""
    it = real_client.World(tmp_path, program)
    it.git("init", "-q", "-b", "main")
    it.git("add", "-A")
    it.git("commit", "-q", "-m", "first")
    yield it
    left = it.close()
    lost = delivery.lost(it)
    _figures.update(emitted=len(delivery.emitted(it)), lost=len(lost))
    assert not lost, "these texts did not reach the model: %s" % lost
    assert not it.errors(), it.errors()
    assert not left, "processes left running: %s" % left


@pytest.fixture
def kit(world):
    """A scratch repository with context files and the kit installed as a person does it."""
    for name, text in CONTEXT_FILES.items():
        world.write(".context/" + name, text)
    world.install()
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "the kit")
    return world


@pytest.fixture
def cell_table():
    """The table of handoffs that is printed after the run."""
    return _cells


@pytest.fixture
def note():
    """Prints a line after the run."""
    return _notes.append
