"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("rpcinspect", deadline=None)  # how long an example takes is the machine's matter
settings.load_profile("rpcinspect")

REPO = Path(__file__).resolve().parent.parent
SHARED = REPO.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of captures that lies beside the checkout, where there is one."""
    if not (SHARED / "captures").is_dir():
        pytest.skip("the shared captures are not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def repo() -> Path:
    """The root of the checkout."""
    return REPO
