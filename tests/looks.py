"""Which tests look at captures of others or start processes, so that they are skipped where that can't be.

A plugin of pytest, which tests/conftest.py loads. By an audit hook it sees whatever opens, lists or hands to
another program what lies in ../shared, so that no test can forget to ask. It sees no `stat`: only
tests/places.py may look whether something is there. LOOKED_AT=FILE in the environment collects the names of
the tests that looked, for a second run of theirs with WITHOUT_SHARED=1 (.ci/run). With WITHOUT_CHILDREN=1
each test is skipped where it would start a process (make test-fast): nobody has to mark it.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.places import LOOKED, SHARED, WITHOUT_SHARED

NOT_THERE = "captures of others are not beside this checkout"
STARTS = "it would start a process"
STARTING = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system")
WITHOUT_CHILDREN = bool(os.environ.get("WITHOUT_CHILDREN"))
EVENTS = ("open", "os.listdir", "os.scandir", "subprocess.Popen", LOOKED)
HEARD = frozenset({*EVENTS, *STARTING})
"""The first question about each event: `id` is one, too, and some tests call it ten million times."""
BELOW = (f"{SHARED}/", f"{SHARED.resolve()}/", f"../{SHARED.name}/")
LOOKED_AT = os.path.abspath(os.environ["LOOKED_AT"]) if "LOOKED_AT" in os.environ else None


class Looks:
    """Whether a test runs, and whether it has looked."""

    def __init__(self) -> None:
        self.running = False
        self.looked = False
        self.skipped: str | None = None
        """Why it can't go on."""

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        """Skips the test at the place where it looks in vain, or starts what it may not."""
        if not self.running:
            return
        if WITHOUT_CHILDREN and event in STARTING:
            self.skip(STARTS)
        if event not in EVENTS:
            return
        said = repr(arguments[:3])  # of Popen the program, its arguments and its folder, not the environment
        if any(folder in said for folder in BELOW):
            self.looked = True
            if WITHOUT_SHARED:
                self.skip(NOT_THERE)

    def skip(self, reason: str) -> NoReturn:
        """Skips the test, now or where it fails for that."""
        self.skipped = reason
        pytest.skip(reason)


looks = Looks()


def audit(event: str, arguments: tuple[object, ...], heard: frozenset[str] = HEARD) -> None:
    """A hook, which can't be taken out again."""
    if event in heard:
        looks.hear(event, arguments)


if WITHOUT_SHARED or WITHOUT_CHILDREN or LOOKED_AT is not None:  # nobody else wants to know
    sys.addaudithook(audit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Notes which test looked."""
    looks.running, looks.looked, looks.skipped = True, False, None
    try:
        return (yield)
    finally:
        looks.running = False
        if looks.skipped is not None:
            with warnings.catch_warnings():  # of files that the test had opened for the process
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect(1)
        if looks.looked and LOOKED_AT is not None:
            with Path(LOOKED_AT).open("a", encoding="utf-8") as file:
                file.write(item.nodeid + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skips a test, too, that fails since that happened in a thread of it, or something caught the skip."""
    try:
        return (yield)
    except (Exception, pytest.fail.Exception):
        if looks.skipped is not None:
            pytest.skip(looks.skipped)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Passes over what pytest says of such a thread after the test."""
    try:
        return (yield)
    except pytest.PytestUnhandledThreadExceptionWarning:
        if looks.skipped is None:
            raise
