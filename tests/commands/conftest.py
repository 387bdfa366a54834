"""Fixtures of the tests of commands."""

from tests.replay.conftest import nothing_left

__all__ = ["nothing_left"]
