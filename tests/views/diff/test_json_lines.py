"""Comparisons as JSON Lines, against the output contract."""

from __future__ import annotations

from typing import Any

import orjson

from rpcinspect.views.diff.json_lines import diff_lines
from tests.contract import check, map_of
from tests.diff.stories import Story, diff
from tests.equality.codes import CODES

INDEX = (int, None)
PLACE = {"a": INDEX, "b": INDEX}
DIFFERENCE = {
    "code": CODES,
    "a": INDEX,
    "b": INDEX,
    "path": str,
    "a_value": lambda value: True,
    "b_value": lambda value: True,
    "type": str,
    "source": str,
    "destination": str,
    "function": (str, None),
    "request": bool,
    "control": bool,
    "counts": bool,
    "follows": (PLACE, None),
}
SIDE = {"paths": [str], "messages": int, "workers": [str], "context": INDEX}
FIRST = {**DIFFERENCE, "likely": str, "explanation": str, "worker": (str, None), "following": int}
VERDICT = {
    "kind": {"verdict"},
    "same": bool,
    "unrelated": bool,
    "first": ({**FIRST, "beside": [PLACE], "alike": [PLACE]}, None),
    "counts": map_of(int),
    "tolerated": bool,
    "different": int,
    "paired": int,
    "unknown": int,
    "a": SIDE,
    "b": SIDE,
    "notes": [str],
}


def check_contract(lines: list[dict[str, Any]]) -> None:
    """`difference` lines, then one `verdict`."""
    for line in lines[:-1]:
        check(line, {"kind": {"difference"}, **DIFFERENCE}, "difference")
    check(lines[-1], VERDICT, "verdict")
    assert (lines[-1]["first"] is None) == (lines[-1]["same"] or lines[-1]["unrelated"])
    assert not (lines[-1]["same"] and lines[-1]["unrelated"])


def lines(a: Story, b: Story) -> list[dict[str, Any]]:
    found = [orjson.loads(line) for line in diff_lines(diff(a, b)).splitlines()]
    check_contract(found)
    return found


def stories(*results: int) -> list[Story]:
    made = []
    for result in results:
        story = Story()
        story.ask("app.f", 1, result)
        story.ask("app.tell", result)
        made.append(story)
    return made


def test_nothing_but_the_verdict() -> None:
    (verdict,) = lines(*stories(1, 1))
    assert verdict["same"] is True
    assert verdict["counts"] == {}
    assert (verdict["paired"], verdict["different"]) == (4, 0)


def test_unrelated() -> None:
    a, b = Story(), Story()
    a.ask("app.f", 1)
    b.ask("app.g", 2)
    *differences, verdict = lines(a, b)
    assert (verdict["same"], verdict["unrelated"], verdict["first"]) == (False, True, None)
    assert verdict["counts"] == {"extra": 2, "missing": 2}
    assert all(line["follows"] is None for line in differences)


def test_differences_then_the_verdict() -> None:
    value, argument, verdict = lines(*stories(1, 2))
    assert (value["code"], value["a"], value["b"], value["path"]) == ("value", 1, 1, "value")
    assert (value["a_value"], value["b_value"], value["follows"]) == (1, 2, None)
    assert (argument["code"], argument["path"], argument["follows"]) == (
        "argument",
        "args[0]",
        {"a": 1, "b": 1},
    )
    assert verdict["first"]["code"] == "value"
    assert verdict["first"]["likely"] == "function"
    assert verdict["first"]["following"] == 1
    assert verdict["counts"] == {"argument": 1, "value": 1}


def test_messages_of_one_run_have_no_index_in_the_other() -> None:
    a, b = stories(1, 1)
    b.ask("app.more", 5)
    extra, answer, verdict = lines(a, b)
    assert (extra["code"], extra["a"], extra["b"], extra["b_value"]) == (
        "extra",
        None,
        4,
        "PYTHON_CALL app.more",
    )
    assert answer["follows"] == {"a": None, "b": 4}
    assert verdict["counts"] == {"extra": 2}
