"""Fixtures for every test; the work is done in helper.py."""

from __future__ import annotations

import os
import time

import pytest

import helper

FOREIGN = ("CLAUDE", "CTX_", "PYTHONPATH", "XDG_", "AI_AGENT")
KEPT = ("CTX_SOAK", "CTX_E2E", "CTX_GIT_BASH", "CTX_FORMATTERS", "CTX_BATS")  # switches of the tests themselves


END = time.monotonic() + float(os.environ.get("CTX_TEST_TIME_S", "inf"))


def pytest_runtest_setup() -> None:
    if time.monotonic() > END:
        pytest.skip("no time left")


def skip_without_links(*paths: str, **_: object) -> None:
    if any(str(path).endswith("current") for path in paths):
        raise OSError("pytest's own link, which it can do without")
    pytest.skip("links and named pipes are not for everybody on Windows")


if helper.IS_WINDOWS:
    os.symlink = os.mkfifo = skip_without_links


def pytest_collection_modifyitems(items: list) -> None:
    for item in items:
        mark = item.get_closest_marker("posix")
        if mark and helper.IS_WINDOWS:
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.fixture(autouse=True)
def clean_environment():
    """In-process code sees a fresh machine too, also when pytest was started by hand."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(FOREIGN) and not name.startswith(KEPT):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def kit():
    """The module itself, for its functions."""
    return helper.kit


@pytest.fixture
def world(tmp_path):
    return helper.World(tmp_path)


@pytest.fixture
def bare_world(tmp_path):
    """Without a context folder: everything has to stay silent."""
    return helper.World(tmp_path, context=False)


@pytest.fixture
def session(world):
    """A session that has started; nothing was left for it."""
    session = world.session("s1")
    session.start()
    return session


@pytest.fixture(scope="session")
def rounds():
    """The length of a seeded loop; 50 times that under `make soak`."""
    return lambda usual: usual * 50 if os.environ.get("CTX_SOAK") == "1" else usual
