"""Tells bench/faults.py what each test did: a plugin of pytest, loaded there with -p bench.faults_pytest.

In, from the environment: FAULTS_REPORT, the file that gets a line of JSON for each test; FAULTS_ORDER, where
only some tests are to run: a file of their names, in the order in which they are to run; FAULTS_PROBES,
where the package marks its blocks (bench/faults_map.py): the file of these marks. Out: the report. A test
that runs when a process ends has a line without an outcome.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings

REPORT = Path(os.environ["FAULTS_REPORT"])
ORDER = os.environ.get("FAULTS_ORDER")
PROBES = os.environ.get("FAULTS_PROBES")


def pytest_configure() -> None:
    """Has hypothesis try the same examples in each run, and keep none."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "faults", settings.default, phases=phases, derandomize=True, database=None, print_blob=False
    )
    settings.load_profile("faults")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests that are asked for, in their order."""
    if ORDER is not None:
        rank = {
            name: number for number, name in enumerate(Path(ORDER).read_text(encoding="utf-8").splitlines())
        }
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in rank])
        items[:] = sorted((item for item in items if item.nodeid in rank), key=lambda item: rank[item.nodeid])


def packed(marks: bytes) -> str:
    """A bit for each mark, compressed, as text."""
    return base64.b85encode(zlib.compress(np.packbits(np.frombuffer(marks, np.bool_)).tobytes())).decode()


class Report:
    """The tests of a process, one after the other."""

    def __init__(self) -> None:
        self.outcome = "passed"
        self.marks: mmap.mmap | None = None
        if PROBES is not None:
            with Path(PROBES).open("r+b") as file:
                self.marks = mmap.mmap(file.fileno(), 0)

    def write(self, **said: Any) -> None:
        """Appends a line."""
        with REPORT.open("a", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")


report = Report()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Notes that the test begins, how it ended, and which blocks it came through."""
    report.outcome = "passed"
    report.write(test=item.nodeid)
    if report.marks is not None:
        report.marks[:] = bytes(len(report.marks))
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        seconds = round(time.perf_counter() - began, 3)
        more = {} if report.marks is None else {"blocks": packed(report.marks[:])}
        report.write(test=item.nodeid, outcome=report.outcome, seconds=seconds, **more)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test failed if its setup, its call or its teardown did."""
    if report.failed or (report.skipped and REPORTED.outcome == "passed"):
        REPORTED.outcome = "failed" if report.failed else "skipped"


REPORTED = report
