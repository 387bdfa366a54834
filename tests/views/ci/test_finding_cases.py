"""Findings as tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.checks.findings import CODES
from rpcinspect.problems import Location, Problem
from rpcinspect.run.run import RunModel
from rpcinspect.views.ci.finding_cases import WITHOUT_MESSAGES, findings_suite
from rpcinspect.views.ci.suite import SuiteResult
from tests import contract
from tests.views.opened import CAPTURES


def suite_of(path: Path) -> SuiteResult:
    with RunModel.open([str(path)]) as run:
        return findings_suite(run)


def outcomes(suite: SuiteResult) -> dict[str, str]:
    return {case.name: case.outcome for case in suite.cases}


def test_there_is_a_case_for_each_code_of_the_contract() -> None:
    assert set(CODES) == set(contract.CODES)
    assert len(CODES) == len(contract.CODES)
    for name in ("basic_chain.pcap", "bwd_boom.pcap.gz"):
        assert [case.name for case in suite_of(CAPTURES / name).cases] == [*CODES]


def test_errors_fail_and_others_do_not() -> None:
    suite = suite_of(CAPTURES / "bwd_boom.pcap.gz")
    bad = {"error-response", "missing-gradient"}
    assert outcomes(suite) == {code: "failure" if code in bad else "passed" for code in CODES}
    (case,) = (case for case in suite.cases if case.name == "error-response")
    assert case.message.startswith("worker1 failed first")
    assert case.lines[1].strip().startswith("Fix worker1 first")
    assert [(one.level, one.title) for one in suite.annotations] == [
        ("error", "error-response: " + suite.about),
        ("error", "missing-gradient: " + suite.about),
    ]


def test_warnings_are_told_and_marked() -> None:
    suite = suite_of(CAPTURES / "param_detach.pcap")
    assert set(outcomes(suite).values()) == {"passed"}
    (case,) = (case for case in suite.cases if case.name == "detached-parameter")
    assert case.lines[0].startswith("warning: detached-parameter")
    assert "warning" in {one.level for one in suite.annotations}


def test_without_messages_nothing_is_said_of_messages() -> None:
    suite = suite_of(CAPTURES / "transport_matrix_default.pcap")
    found = outcomes(suite)
    assert found["invisible-transport"] == "failure"
    assert {code for code, outcome in found.items() if outcome == "skipped"} == set(CODES) - WITHOUT_MESSAGES


def test_a_check_that_failed_itself_is_an_error() -> None:
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as run:
        problem = Problem("finding", "rpcinspect itself failed: KeyError", Location())
        run.session = replace(run.session, problems=(problem,))
        case = findings_suite(run).cases[-1]
    assert (case.name, case.outcome) == ("all checks ran", "error")
    assert "KeyError" in case.message


@pytest.mark.parametrize("name", ["basic_chain.pcap"])
def test_nothing_found_marks_nothing(name: str) -> None:
    assert suite_of(CAPTURES / name).annotations == ()
