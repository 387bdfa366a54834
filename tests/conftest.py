"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from rpcinspect.errors import CaptureError

settings.register_profile("rpcinspect", deadline=None)  # how long an example takes is the machine's matter
settings.load_profile("rpcinspect")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a script; what tests start would ignore it, too, which some of them press.
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPO = Path(__file__).resolve().parent.parent
SHARED = REPO.parent / "shared"
NOT_SHARED = "the shared captures are not beside this checkout"

if not (SHARED / "captures").is_dir():

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
        """A test that opens one of them is skipped, whichever way it does."""
        try:
            return (yield)
        except (OSError, CaptureError) as error:
            if f"{SHARED}/" in str(error):
                pytest.skip(NOT_SHARED)
            raise


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """The tests themselves, many thousands, are no garbage: nobody looks through them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of captures that lies beside the checkout, where there is one."""
    if not (SHARED / "captures").is_dir():
        pytest.skip(NOT_SHARED)
    return SHARED


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return REPO
