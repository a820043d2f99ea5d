"""End-to-end tests: the kit in the real client, against a stub model on loopback.

They run when this folder (or a file in it) is named, or with CTX_E2E=1; a plain `pytest tests` passes them over.
The client is installed into .dev/client at the first run; where it cannot be had, one line says so. A test marked
`long` runs only when it is chosen (`make e2e`), so that CI stays short.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import delivery  # noqa: E402
import real_client  # noqa: E402

CONTEXT_FILES = {
    "CONSTITUTION.md": "# Constitution\nNever push to main.\n",
    "TASKS.md": "# Tasks\n- finish the parser\n",
}
_figures = delivery.Figures()
_cells = delivery.Cells()
_notes = {}


def pytest_configure(config):
    config.addinivalue_line("markers", "e2e: runs the real client against a stub model on loopback")
    config.addinivalue_line("markers", "long: only in the whole suite, not in CI")


def pytest_ignore_collect(collection_path, config):
    return None if _wanted(config) else True


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in Path(str(item.fspath)).parents:
            item.add_marker(pytest.mark.e2e)


def pytest_collection_finish(session):
    """Programs are fetched before the first fixture closes the network off."""
    if not session.config.option.collectonly and any(i.fspath.basename == "test_e2e_wrap.py" for i in session.items):
        import wrapped

        wrapped.install_all()


def pytest_terminal_summary(terminalreporter):
    lines = sys.modules["wrapped"].table() if "wrapped" in sys.modules else []
    lines = [*lines, *_notes.values(), *_cells.lines()]
    if _figures.emitted:
        lines += _figures.lines()
    for line in lines:
        terminalreporter.write_line(line)


def _wanted(config):
    named = [Path(str(config.invocation_params.dir), argument.split("::")[0]).resolve() for argument in config.args]
    return os.environ.get("CTX_E2E") == "1" or any(path == HERE or HERE in path.parents for path in named)


@pytest.fixture(scope="session")
def program():
    """The real client; everything after this fixture sees no network but loopback."""
    try:
        found = real_client.install()
    except real_client.Unavailable as reason:
        _notes["client"] = str(reason)
        pytest.skip(str(reason))
    network = "no network but loopback" if real_client.isolate() else "the network could not be closed off"
    _notes["client"] = "e2e: Claude Code %s, %s" % (real_client.version(found), network)
    return found


@pytest.fixture
def world(program, tmp_path, request):
    """A scratch repository without the kit, with one commit."""
    it = real_client.World(tmp_path, program)
    it.git("init", "-q", "-b", "main")
    it.git("add", "-A")
    it.git("commit", "-q", "-m", "first")
    yield it
    left = it.close()
    _figures.add(request.node.name, it)
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
    return lambda line: _notes.__setitem__(line, line)
