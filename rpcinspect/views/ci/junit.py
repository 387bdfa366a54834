"""Results of tests as JUnit XML, the form that Jenkins, GitLab and the reporters of GitHub read.

In: a suite. Out: bytes of XML, which obey what the schemas of these readers have in common. All text is one
line of printable characters, or several: so no control character, which XML has no place for, is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from rpcinspect.fields.phrases import counted, printable, shorten
from rpcinspect.views.ci.suite import CaseOutcome, CaseResult, SuiteResult, told_apart

MAX_LINES = 200
MAX_LINE = 500
"""Characters, also of a message."""
KINDS: dict[CaseOutcome, str] = {"failure": "different", "error": "broken", "skipped": "skipped"}
"""Types of what did not pass."""


def junit_xml(suite: SuiteResult) -> bytes:
    """Returns a document with one suite."""
    cases = told_apart(suite.cases)
    outcomes = Counter(case.outcome for case in cases)
    totals = {
        "tests": str(len(cases)),
        "failures": str(outcomes["failure"]),
        "errors": str(outcomes["error"]),
        "time": _seconds(suite.seconds),
    }
    root = Element("testsuites", {"name": "rpcinspect", **totals})
    name = _line(suite.group)
    made = SubElement(root, "testsuite", {"name": name, **totals, "skipped": str(outcomes["skipped"])})
    if suite.properties:
        properties = SubElement(made, "properties")
        for key, value in suite.properties.items():
            SubElement(properties, "property", {"name": key, "value": _line(value)})
    for case in cases:
        _add(made, name, case)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, "unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _add(suite: Element, group: str, case: CaseResult) -> None:
    """A `time` is there always: some readers want a number."""
    made = SubElement(
        suite,
        "testcase",
        {"name": _line(case.name), "classname": group, "time": _seconds(case.seconds)},
    )
    text = _text(case.lines)
    if case.outcome != "passed":
        told = SubElement(made, case.outcome, {"type": KINDS[case.outcome], "message": _line(case.message)})
        told.text = text if case.outcome != "skipped" else None
    elif text:
        SubElement(made, "system-out").text = text


def _seconds(value: float | None) -> str:
    return f"{max(value or 0.0, 0.0):.3f}"


def _line(text: str) -> str:
    return printable(shorten(text, MAX_LINE))


def _text(lines: Sequence[str]) -> str:
    more = len(lines) - MAX_LINES
    told = [f"and {counted(more, 'more line')}"] if more > 0 else []
    return "\n".join([*map(_line, lines[:MAX_LINES]), *told])
