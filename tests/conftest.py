"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings

from rpcinspect.cli.collector import EVERY
from rpcinspect.replayer.workers.parent_process import ParentProcess
from rpcinspect.unexpected import DEBUG
from tests.forks import popen
from tests.places import ROOT
from tests.thorough import PROFILE, PROFILES

os.environ[DEBUG] = "1"  # an exception that no stage expected fails a test, and is no problem of its capture
for name, count in PROFILES.items():
    # How long an example takes is the matter of the machine.
    settings.register_profile(name, max_examples=count, deadline=None)
settings.load_profile(PROFILE)

ParentProcess.start_process = staticmethod(popen)
"""Their parent is a fork: importing torch anew would take hundreds of tests three seconds each."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a script; what tests start would ignore it, too, which some of them press.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ("tests.looks", "tests.reports")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """The tests themselves, many thousands, are no garbage: nobody looks through them again and again."""
    gc.disable()
    try:
        import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(EVERY)  # as in a command
        gc.enable()


def import_share(config: pytest.Config) -> None:
    """Begins with another part of the tests in each process: in a fresh checkout a module is compiled once,
    not by all processes at the same time; each finds what the others have compiled."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or config.option.file_or_dir:
        return
    first, step = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in sorted(ROOT.glob("tests/**/test_*.py"))[first::step]:
        with suppress(Exception, pytest.skip.Exception):  # collecting imports it again, and tells
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return ROOT
