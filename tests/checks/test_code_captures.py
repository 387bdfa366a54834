"""Each finding is told of captures that cause it, and not of those that nearly do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.code_captures import CAUSED, NEARLY, Case
from tests.checks.talks import of_path
from tests.contract import CODES


def test_each_code_and_severity_has_its_captures() -> None:
    assert CAUSED.keys() == {(code, severity) for code, its in CODES.items() for severity in its}
    assert NEARLY.keys() == CODES.keys()
    assert all([*CAUSED.values(), *NEARLY.values()])


def each(table: dict[str, tuple[Case, ...]]) -> list[object]:
    return [
        pytest.param(key, case, id=f"{'-'.join(key) if isinstance(key, tuple) else key} {case.label}")
        for key, cases in table.items()
        for case in cases
    ]


@pytest.mark.parametrize(("told", "case"), each(CAUSED))  # type: ignore[arg-type]
def test_what_causes_a_finding(told: tuple[str, str], case: Case, tmp_path: Path) -> None:
    _, found = of_path(str(case.path(tmp_path)))
    assert told in {(finding.code, finding.severity) for finding in found}


@pytest.mark.parametrize(("code", "case"), each(NEARLY))
def test_what_nearly_causes_it(code: str, case: Case, tmp_path: Path) -> None:
    session, found = of_path(str(case.path(tmp_path)))
    assert code not in {finding.code for finding in found}
    assert session.totals.messages > 0


@pytest.mark.parametrize("case", [c for cases in CAUSED.values() for c in cases if "made" in c.label])
def test_what_is_made_has_no_other_fault(case: Case, tmp_path: Path) -> None:
    session, found = of_path(str(case.path(tmp_path)))
    assert session.totals.problems == 0
    assert len(found) == 1
