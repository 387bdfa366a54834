"""Fixtures of the tests of commands."""

from tests.replayer.conftest import group, nothing_left, workers

__all__ = ["group", "nothing_left", "workers"]
