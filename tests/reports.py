"""What a process of xdist tells of each test: that it passed, once, or what went wrong.

A plugin of pytest, which tests/conftest.py loads. In: the reports of a test's setup, call and teardown. Out:
those that anybody shows. Telling all, with a line before and behind them, takes two processes as long as a
test of two milliseconds, of which there are thousands. Who asks for more (`-v`, `--durations`) is told all.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol


def is_told_all(config: pytest.Config) -> bool:
    """Whether somebody shows more than whether a test passed, or nobody has to be told."""
    asked = config.getoption("verbose") > 0 or config.getoption("durations") is not None
    return asked or config.getoption("xmlpath", None) is not None or not hasattr(config, "workerinput")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test as pytest does, within whatever others do around it."""
    if is_told_all(item.config):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
