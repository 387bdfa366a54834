"""Comparisons as tests: which cases fail, and what they say of where the runs part."""

from __future__ import annotations

from rpcinspect.diff.compare import compare_runs
from rpcinspect.equality.rules import Rules
from rpcinspect.views.ci.diff_cases import diff_suite
from rpcinspect.views.ci.suite import SuiteResult
from tests.diff.stories import Story


def suite_of(a: Story, b: Story) -> SuiteResult:
    runs = a.opened(), b.opened()
    return diff_suite(compare_runs(*runs, Rules()), runs)


def story(result: int, *, more: int = 0, name: str = "app.f", beside: int = 0) -> Story:
    """`result` of the first call goes on as an argument of later ones, to the same worker."""
    made = Story(4)
    made.ask(name, 1, result)
    for n in range(more):
        made.ask("app.tell", 1000 * result + n)
    made.ask("app.other", 7, beside, caller=3, callee=2)
    return made


def test_the_same() -> None:
    suite = suite_of(story(1, more=2), story(1, more=2))
    assert [(case.name, case.outcome) for case in suite.cases] == [
        ("verdict", "passed"),
        ("w0 → w1 PYTHON_CALL app.f", "passed"),
        ("w1 → w0 PYTHON_RET app.f", "passed"),
        ("w0 → w1 PYTHON_CALL app.tell", "passed"),
        ("w1 → w0 PYTHON_RET app.tell", "passed"),
        ("w3 → w2 PYTHON_CALL app.other", "passed"),
        ("w2 → w3 PYTHON_RET app.other", "passed"),
    ]
    assert suite.annotations == ()


def test_the_place_where_runs_part_and_what_follows() -> None:
    suite = suite_of(story(1, more=30, beside=5), story(2, more=30, beside=9))
    bad = {case.name: case for case in suite.cases if case.bad}
    assert [*bad] == [
        "verdict",
        "w1 → w0 PYTHON_RET app.f",
        "w0 → w1 PYTHON_CALL app.tell",
        "w2 → w3 PYTHON_RET app.other",
    ]
    assert bad["verdict"].message == "different: 32 of 64 messages"
    assert bad["w1 → w0 PYTHON_RET app.f"].message.startswith("the runs part here: likely function: ")
    told = bad["w0 → w1 PYTHON_CALL app.tell"]
    assert told.message == "30 messages, the first follows from #1"
    assert told.lines[0] == "#2  argument  args[0]  1000 → 2000, follows #1"
    assert told.lines[-1] == "and 10 more"
    assert "do not follow from the first" in bad["w2 → w3 PYTHON_RET app.other"].message
    first, other = suite.annotations
    assert first.title == "rpcinspect diff: first difference"
    assert first.lines[:2] == ("#1, w1 → w0, PYTHON_RET answers #0 app.f", "value  1 → 2")
    assert first.lines[2].startswith("likely function: ")
    assert other.title == "rpcinspect diff: independent difference"
    assert "app.other" in other.lines[0]


def test_unrelated_runs() -> None:
    b = Story()
    b.ask("lib.g", 5, 6)
    suite = suite_of(story(1), b)
    assert {case.outcome for case in suite.cases} == {"failure"}
    (mark,) = suite.annotations
    assert mark.lines == ("unrelated: the two runs share no similar call",)


def test_names_are_those_of_an_earlier_run() -> None:
    before, now = suite_of(story(1), story(1)), suite_of(story(1, more=1), story(2, more=1))
    assert {case.name for case in before.cases} < {case.name for case in now.cases}
    assert before.group == now.group
