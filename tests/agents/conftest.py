"""The kit in the real clients, against a stub model on loopback.

They run when this folder is named: `make e2e-agents`, with AGENTS="codex qwen" only
some. Each client is installed into .dev/agents at its first run; where one cannot be
had, a sentence says so. At the end it prints the table of the README.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

import clients  # noqa: E402
from real_client import isolate  # noqa: E402

MODES = ("start", "signal", "gate", "reminder", "stop", "cleanup", "calls", "handed on")
NOTES = []
TABLE = {}  # client's label -> mode -> what is in the cell


def pytest_configure(config):
    config.addinivalue_line("markers", "mode(name): the column that this test fills")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    column = item.get_closest_marker("mode")
    is_over = report.when == "call" or report.outcome != "passed"
    if column and is_over:
        told = dict(item.user_properties).get("cell", "✓")
        cell = {"passed": told, "failed": "NO"}.get(report.outcome, "–")
        (client,) = item.callspec.params.values()
        TABLE.setdefault(client.label, {})[column.args[0]] = cell


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
def need():
    """need(client) skips the test if it cannot be had. Nobody sees a network but loopback."""
    reasons = {}
    for client in [clients.CLAUDE] + clients.CLIENTS:
        if clients.WANTED and client.name not in (*clients.WANTED, "claude"):
            reasons[client.name] = "%s was not asked for" % client.label
            continue
        try:
            client.install()
            NOTES.append("agents: " + client.packages[0])
        except clients.Unavailable as reason:
            reasons[client.name] = str(reason)
            NOTES.append(str(reason))
    NOTES.append("agents: no network but loopback" if isolate() else "agents: the network could not be closed off")

    def need(client):
        if client.name in reasons:
            pytest.skip(reasons[client.name])

    return need
