"""The stage that finds what calls cost: both findings from one look at each message."""

from __future__ import annotations

from rpcinspect.rpc.command import PythonResp
from tests.checks.talks import codes, findings, of_capture
from tests.replayer.talks import NONE, Workers

MS = 1_000_000


def test_calls_in_rounds_are_told_of_once() -> None:
    """Their answers hold nothing, too."""
    workers = Workers(3)
    for number in range(20):
        workers.call(0, 1 + number % 2, number * 11 * MS, (number * 11 + 10) * MS, answer=PythonResp(NONE))
    assert codes(findings(workers)) == [("sequential-awaits", "info")]


def test_of_each_caller_and_function() -> None:
    workers = Workers(3)
    for number in range(40):
        function = "app.f" if number < 20 else "app.g"
        workers.call(0, 1, number * 11 * MS, (number * 11 + 10) * MS, function, PythonResp(NONE))
    found = findings(workers)
    assert codes(found) == [("empty-results", "info")] * 2
    assert ["app.f" in found[0].text, "app.g" in found[1].text] == [True, True]


def test_a_job_with_all_of_it() -> None:
    _, found = of_capture("costs/one_by_one")
    assert {finding.code for finding in found} == {"startup-skew", "sequential-awaits", "empty-results"}
    assert of_capture("costs/at_once")[1] == []
