"""The process that workers of these tests are forks of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.recorder.agents import Parent


@pytest.fixture(scope="session")
def parent() -> Iterator[Parent]:
    """Importing torch takes seconds: once for all."""
    pytest.importorskip("torch")
    found = Parent()
    yield found
    found.close()
