"""The worst of several verdicts, and the message that is named of a replay."""

from __future__ import annotations

import pytest

from rpcinspect.replayer.matrix import ORDER, CombinationResult, Environment, run_matrix, worst_verdict
from rpcinspect.replayer.options import ReplayOptions


def fails() -> str:
    raise AssertionError("made too early")


def test_the_worst_counts() -> None:
    results = [
        CombinationResult(environment="one", interpreter=None, threads=1, verdict=verdict)
        for verdict in ("identical", "different", "tolerance")
    ]
    assert worst_verdict(results) == "different"
    assert worst_verdict(results[::2]) == "tolerance"
    assert worst_verdict([]) == "nothing-to-replay"
    assert ORDER.index("failed") > ORDER.index("different")


def test_an_environment_is_made_when_its_turn_comes() -> None:
    """Those before it are shown then, however long it takes."""
    absent = Environment(name="absent", make=lambda: "/nowhere/python")
    late = Environment(name="late", make=fails)
    results = run_matrix([absent, late], [1, 4], ReplayOptions(), lambda options, name: pytest.fail(name))
    first, second = next(results), next(results)
    assert [one.threads for one in (first, second)] == [1, 4]
    assert first.error == second.error == "/nowhere/python: there is no such program"
    with pytest.raises(AssertionError, match="made too early"):
        next(results)
