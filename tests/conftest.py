"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from rpcinspect.cli.collector import EVERY
from rpcinspect.replayer.workers.workers import Workers
from rpcinspect.unexpected import DEBUG
from tests.forks import popen
from tests.places import ROOT

os.environ[DEBUG] = "1"  # an exception that no stage expected fails a test, and is no problem of its capture
settings.register_profile("rpcinspect", deadline=None)  # how long an example takes is the machine's matter
settings.load_profile("rpcinspect")

Workers.start_process = staticmethod(popen)
"""Their parent is a fork: importing torch anew would take hundreds of tests three seconds each."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a script; what tests start would ignore it, too, which some of them press.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ("tests.looks",)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """The tests themselves, many thousands, are no garbage: nobody looks through them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(EVERY)  # as in a command
        gc.enable()


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return ROOT
