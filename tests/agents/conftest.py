"""The kit in the real clients, against a stub model on loopback.

They run when this folder is named: `make e2e-agents`, with AGENTS="codex qwen" only
some. Each client is installed into .dev/agents at its first run; where one cannot be
had, a sentence says so. At the end stands the table of the README.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import clients  # noqa: E402
import lab  # noqa: E402

MODES = ("start", "signal", "gate", "reminder", "stop", "cleanup", "calls", "handed on")
NOTES = []
TABLE = {}  # client's label -> mode -> what stands in the cell


def pytest_ignore_collect(collection_path, config):
    folder = Path(str(config.invocation_params.dir))
    named = [Path(folder, word.split("::")[0]).resolve() for word in config.args]
    is_named = any(path == HERE or HERE in path.parents for path in named)
    return None if is_named else True


def pytest_configure(config):
    config.addinivalue_line("markers", "mode(name): the column that this test fills")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    column, callspec = item.get_closest_marker("mode"), getattr(item, "callspec", None)
    is_over = report.when == "call" or report.outcome != "passed"
    if column and callspec and is_over:
        told = dict(item.user_properties).get("cell", "✓")
        cell = {"passed": told, "failed": "NO"}.get(report.outcome, "–")
        (client,) = callspec.params.values()
        row = TABLE.setdefault(client.label, {})
        row[column.args[0]] = "NO" if row.get(column.args[0]) == "NO" else cell


def pytest_terminal_summary(terminalreporter):
    for note in NOTES:
        terminalreporter.write_line(note)
    if TABLE:
        terminalreporter.write_line("| client | %s |" % " | ".join(MODES))
        terminalreporter.write_line("| --- |%s" % (" --- |" * len(MODES)))
    for label, row in TABLE.items():
        cells = [row.get(mode, "–") for mode in MODES]
        terminalreporter.write_line("| %s | %s |" % (label, " | ".join(cells)))


@pytest.fixture(scope="session")
def installed():
    """name -> why a client cannot be had, "" if it is there.

    After this nobody sees a network but loopback.
    """
    found = {}
    for client in (clients.Claude(),) + clients.CLIENTS:
        found[client.name] = "not asked for"
        if not clients.WANTED or client.name in clients.WANTED:
            try:
                client.install()
                found[client.name] = ""
                NOTES.append("agents: %s %s" % (client.name, client.version()))
            except clients.Unavailable as reason:
                found[client.name] = str(reason)
                NOTES.append(str(reason))
    closed = lab.isolate()
    told = (
        "no network but loopback" if closed else "the network could not be closed off"
    )
    NOTES.insert(0, "agents: " + told)
    return found
