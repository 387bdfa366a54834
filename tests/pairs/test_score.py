"""Statements are scored by the truth: certain ones must be right, others must leave it possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pairs.joined import Joined, Json
from tests.pairs.score import Score, only_bringers, score_changed, score_parents
from tests.pairs.test_joined import message


def scored(parent: int | None, **said: Any) -> Score:
    """The score of a single request that served `parent`."""
    score = Score("kind")
    score_parents(score, Joined(Path(), [message(0, 10, **said)], parents={0: parent}))
    return score


@pytest.mark.parametrize(
    ("parent", "said", "certain"),
    [(7, [7], True), (7, [6, 7], False), (7, [7], False), (None, [], True), (None, [6, 7], False)],
)
def test_what_may_be_said(parent: int | None, said: list[int], certain: bool) -> None:
    assert scored(parent, parents=said, parent_certain=certain).broken() == []


@pytest.mark.parametrize(
    ("parent", "said", "certain", "broken"),
    [
        (7, [6], True, "certain and wrong"),
        (7, [], True, "certain and wrong"),
        (None, [7], True, "certain and wrong"),
        (7, [6], False, "right one left out"),
        (7, [], False, "right one left out"),
    ],
)
def test_what_must_not_be_said(parent: int | None, said: list[int], certain: bool, broken: str) -> None:
    assert scored(parent, parents=said, parent_certain=certain).broken() == [f"1 {broken}"]


def brings(index: int, microseconds: int, **fields: Any) -> Json:
    """A request of the RRef's maker that hands it to the worker that fetches."""
    body = {"type": "PYTHON_CALL", "args": ["RRef(0:1 fork 0:5 owner 1)"], "kwargs": {}}
    return message(index, microseconds, src="maker", dst="a", body=body, **fields)


def test_a_fetch_of_the_only_bringer_must_be_certain() -> None:
    messages = [brings(0, 5), message(1, 10, parents=[0], parent_certain=False)]
    run = Joined(Path(), messages, parents={1: 0})
    assert list(only_bringers(run)) == [(1, 0)]
    score = Score("kind")
    score_parents(score, run)
    assert score.broken() == ["1 fetches of one bringer not certain"]


def test_two_bringers_leave_a_choice() -> None:
    assert list(only_bringers(Joined(Path(), [brings(0, 5), brings(1, 6), message(2, 10)]))) == []


def test_an_answered_bringer_has_not_brought_it() -> None:
    answer = message(1, 7, request=False, answers=0, src="a", dst="maker", body={"type": "PYTHON_RET"})
    assert list(only_bringers(Joined(Path(), [brings(0, 5), answer, message(2, 10)]))) == []


def changed(first: Json, change: str = "value") -> Score:
    """The score of naming `first`; the call `x` is #0 in both runs, #1 is the same in both."""
    sent = {"tensors": [{"sha256": "y"}], "body": {"type": "PYTHON_CALL", "function": "f"}}
    runs = [
        Joined(
            Path(name),
            [message(0, 1, **{**sent, "tensors": [{"sha256": name}]}), message(1, 2, **sent)],
            labels={"x": 0},
            changed="x",
        )
        for name in ("a", "b")
    ]
    score = Score("kind")
    score_changed(score, change, *runs, [{"first": first}])
    return score


def test_the_changed_call_is_named() -> None:
    score = changed({"code": "value", "a": 0, "b": 0})
    assert (score.counts["changed, right"], score.broken()) == (1, [])


def test_an_equal_call_must_not_be_named() -> None:
    assert changed({"code": "missing", "a": 1, "b": None}).broken() == ["1 equal called different"]


def test_another_code_is_not_right() -> None:
    score = changed({"code": "argument", "a": 0, "b": 0})
    assert (score.counts["changed, right"], score.broken()) == (0, [])
