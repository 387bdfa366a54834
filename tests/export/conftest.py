"""Fixtures of the tests of parts of runs."""

from tests.replayer.conftest import nothing_left

__all__ = ["nothing_left"]
