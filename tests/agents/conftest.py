"""The kit in the real clients of other makers, against a stub model on loopback.

They run when this folder (or a file in it) is named: `make e2e-agents`, or with AGENTS="codex qwen" only some.
Each client is installed into .dev/agents at its first run; where one cannot be had, a sentence says so.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import clients  # noqa: E402
import real_client  # noqa: E402

MODES = ("start", "prompt", "gate", "reminder", "stop", "brake", "cleanup", "booked")
_notes, _table = [], {}  # client's label -> mode -> mark


def pytest_ignore_collect(collection_path, config):
    named = [Path(str(config.invocation_params.dir), word.split("::")[0]).resolve() for word in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True


def pytest_configure(config):
    config.addinivalue_line("markers", "mode(name): the column of the table that this test fills")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    column, callspec = item.get_closest_marker("mode"), getattr(item, "callspec", None)
    if column and callspec and (report.when == "call" or report.outcome != "passed"):
        mark = {"passed": dict(item.user_properties).get("cell", "yes"), "failed": "NO"}.get(report.outcome, "–")
        row, name = _table.setdefault(callspec.params["day"].label, {}), column.args[0]
        row[name] = mark if row.get(name) != "NO" else "NO"


def pytest_terminal_summary(terminalreporter):
    for note in _notes:
        terminalreporter.write_line(note)
    if _table:
        terminalreporter.write_line("| client | %s |" % " | ".join(MODES))
        terminalreporter.write_line("|---|%s" % ("---|" * len(MODES)))
    for label, row in _table.items():
        terminalreporter.write_line("| %s | %s |" % (label, " | ".join(row.get(mode, "") for mode in MODES)))


@pytest.fixture(scope="session")
def installed():
    """name -> why the client cannot be had, "" when it is there. After this nobody sees a network but loopback."""
    found = {}
    for client in clients.CLIENTS + (clients.Claude(),):
        if clients.WANTED and client.name not in clients.WANTED:
            found[client.name] = "not asked for"
            continue
        try:
            client.install()
            found[client.name] = ""
        except real_client.Unavailable as reason:
            found[client.name] = str(reason)
            _notes.append(str(reason))
    closed = real_client.isolate()
    _notes.insert(0, "e2e-agents: %s" % ("no network but loopback" if closed else "the network could not be closed off"))
    return found
