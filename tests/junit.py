"""JUnit XML as readers take it: validated, then as cases."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from lxml import etree

SCHEMA = Path(__file__).with_name("views") / "ci" / "junit.xsd"


class Case(NamedTuple):
    """A test, as a reader shows it."""

    name: str
    outcome: str
    message: str
    text: str


@cache
def schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(str(SCHEMA)))


def cases_of(data: bytes) -> dict[str, Case]:
    """Every case of a document by its name; the totals are those of the cases."""
    schema().assertValid(etree.fromstring(data))
    root = ElementTree.fromstring(data)
    (suite,) = root
    found = [_case(element) for element in suite.iter("testcase")]
    outcomes = Counter(case.outcome for case in found)
    for element in (root, suite):
        assert int(element.attrib["tests"]) == len(found)
        assert int(element.attrib["failures"]) == outcomes["failure"]
        assert int(element.attrib["errors"]) == outcomes["error"]
    assert int(suite.attrib["skipped"]) == outcomes["skipped"]
    return {case.name: case for case in found}


def _case(element: ElementTree.Element) -> Case:
    told = next(iter(element), None)
    outcome = "passed" if told is None or told.tag == "system-out" else told.tag
    message, text = ("", "") if told is None else (told.get("message", ""), told.text or "")
    return Case(element.attrib["name"], outcome, message, text)
