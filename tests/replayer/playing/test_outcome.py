"""The results of steps: one meaning everywhere, in the code, in the documents and in the schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference
from rpcinspect.replayer.playing.outcome import (
    AFTER_A_GAP,
    EVENTS,
    RANDOM,
    ROUNDING,
    STATE,
    WAITS,
    InboundOutcome,
    Result,
    StepOutcome,
    with_reasons,
)
from tests.replayer.outcomes import ONE_ULP
from tests.replayer.scripted import planned_of
from tests.replayer.talks import Workers


def test_the_documents_explain_every_result(repo: Path) -> None:
    text = (repo / "docs" / "replay.md").read_text(encoding="utf-8")
    table = text.partition("| result | meaning |")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)) == (
        "identical",
        "tolerance",
        "different",
        "unanswered",
        "failed",
    )
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)) == set(get_args(Result))


assert ONE_ULP.elements is not None
DROPPED = replace(
    ONE_ULP,
    code="value",
    a_value=0.0,
    b_value=1.5,
    elements=replace(ONE_ULP.elements, kinds=(("value", 3),), differing=3, beyond=3, max_rel=9.0, mask=True),
)
assert DROPPED.elements is not None
OTHER = replace(DROPPED, a_value=1.0, b_value=1.5, elements=replace(DROPPED.elements, mask=False))
TEXT = Difference(code="value", path="value", a_value="a", b_value="b")
MORE_EVENTS = Difference(code="profile-events", path="envelopes[0].events")
NO_MODULE = Difference(
    code="error",
    path="error",
    a_value=None,
    b_value="On WorkerInfo(id=1, name=w1):\nModuleNotFoundError: No module named 'app'\n\n"
    "Default RPC pickler does not serialize\n            function code.",
)
HINT = "; --path FOLDER lets live workers find a module"
NO_MEMORY = Difference(
    code="error",
    path="error",
    a_value=None,
    b_value="RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate "
    "memory",
)
NATIVE = Difference(
    code="error", path="error", a_value=None, b_value="Error on Node 1: Could not find send function"
)
FLIPPED_AND_ROUNDED = replace(
    ONE_ULP, elements=replace(ONE_ULP.elements, kinds=(("zero-sign", 1), ("ulp", 2)), differing=3)
)


def told(
    workers: Workers,
    steps: Mapping[str, Mapping[str, Any]],
    inbound: Sequence[InboundOutcome] = (),
    roles: Sequence[str] = ("w0",),
) -> tuple[dict[str | None, str | None], list[str | None]]:
    """Texts by function, of steps that are given as `function: fields`, and those of inbound requests."""
    planned, calls = planned_of(workers, roles)
    outcomes = []
    for step in planned.steps:
        fields = {"result": "identical"} | dict(steps.get(calls[step.message].function or "", {}))
        outcomes.append(StepOutcome(step=step, **fields))
    made, heard = with_reasons(outcomes, inbound, calls)
    assert [one.step for one in made] == list(planned.steps)
    assert [one.result for one in made] == [one.result for one in outcomes]
    assert [one.captured for one in heard] == [one.captured for one in inbound]
    return {calls[one.step.message].function: one.text for one in made}, [one.text for one in heard]


def different(*differences: Difference, **more: Any) -> dict[str, Any]:
    return {"result": "different", "differences": differences, **more}


def line(count: int = 3) -> Workers:
    """w0 calls f, g, h of w1, one after the other."""
    workers = Workers(4)
    for n in range(count):
        workers.call(0, 1, 100 * n, 100 * n + 50, f"app.{'fgh'[n]}")
    return workers


@pytest.mark.parametrize("code", ["missing-bytes", "older-rref"])
def test_what_follows_a_request_whose_bytes_were_not_captured(code: str) -> None:
    """Only w1 lacks it: what w2 answers otherwise is a difference."""
    workers = line(2)
    workers.call(0, 2, 200, 250, "app.h")
    planned, calls = planned_of(workers, ("w0",))
    first, *others = planned.steps
    gone = StepOutcome(step=replace(first, action="skip", code=code), result=None)
    steps = [gone, *(StepOutcome(step=one, **different(TEXT)) for one in others)]
    made, _ = with_reasons(steps, (), calls)
    found = [(one.result, one.text == AFTER_A_GAP) for one in made]
    parts = [(None, True)] if code == "missing-bytes" else [("different", False)]
    assert found == [(None, False), *parts, ("different", False)]


@pytest.mark.parametrize(
    ("differences", "reason"),
    [
        ((ONE_ULP,), ROUNDING),
        ((FLIPPED_AND_ROUNDED,), ROUNDING),
        ((DROPPED,), RANDOM),
        ((replace(DROPPED, a_value=1.5, b_value=0.0),), RANDOM),
        ((OTHER,), STATE),
        ((TEXT,), STATE),
        ((MORE_EVENTS,), EVENTS),
        ((MORE_EVENTS, TEXT), STATE),
        ((TEXT, ONE_ULP), STATE),
        ((NO_MODULE,), f"it failed here: ModuleNotFoundError: No module named 'app'{HINT}"),
        ((NATIVE,), "it failed here: Error on Node 1: Could not find send function"),
        ((NO_MEMORY,), f"it failed here: {NO_MEMORY.b_value}; --memory SIZE lets live workers take more"),
        ((replace(NO_MODULE, a_value="ValueError: x"),), STATE),
        ((), STATE),
    ],
)
def test_the_first_difference_is_guessed_at(differences: tuple[Difference, ...], reason: str) -> None:
    texts, _ = told(line(), {"app.g": different(*differences)})
    assert texts == {"app.f": None, "app.g": reason, "app.h": None}


def test_what_comes_after_may_follow_from_the_first() -> None:
    texts, _ = told(line(), {"app.f": different(DROPPED), "app.h": different(OTHER)})
    assert texts == {"app.f": RANDOM, "app.g": None, "app.h": "may follow from #0"}


def test_a_request_that_never_came_may_follow_from_a_difference_before_it() -> None:
    workers = line(2)
    workers.call(1, 0, 110, 120, "app.asked")
    never = {"result": "unanswered", "text": "w1 never sent it"}
    texts, _ = told(workers, {"app.f": different(OTHER), "app.asked": never})
    assert texts["app.asked"] == "w1 never sent it; it may follow from #0"
    texts, _ = told(workers, {"app.asked": never})
    assert texts["app.asked"] == "w1 never sent it"


def test_other_workers_have_differences_of_their_own() -> None:
    workers = Workers(4)
    workers.call(0, 1, 0, 50, "app.f")
    workers.call(2, 3, 100, 150, "app.g")
    texts, _ = told(workers, {"app.f": different(DROPPED), "app.g": different(ONE_ULP)}, roles=("w0", "w2"))
    assert texts == {"app.f": RANDOM, "app.g": ROUNDING}


@pytest.mark.parametrize("talk", [True, False])
def test_a_difference_reaches_another_live_worker_only_by_what_they_send_to_each_other(talk: bool) -> None:
    """Not through played ones, in one context or not: these send what was captured."""
    workers = Workers(4)
    workers.call(0, 1, 0, 50, "app.f", context=(0, 1))
    if talk:
        workers.call(1, 3, 10, 20, "app.nested", context=(0, 1))
    workers.call(2, 3, 100, 150, "app.g", context=(0, 1))
    steps = {"app.f": different(DROPPED), "app.g": different(DROPPED)}
    texts, _ = told(workers, steps, roles=("w0", "w2"))
    assert (texts["app.f"], texts["app.g"]) == (RANDOM, "may follow from #0" if talk else RANDOM)


def test_an_answer_counts_from_its_end_and_a_request_from_its_beginning() -> None:
    """w1's request, sent while it served, differs first; the answer afterwards."""
    workers = Workers(2)
    workers.call(0, 1, 0, 100, "app.f")
    workers.call(1, 0, 10, 20, "app.g")
    inbound = InboundOutcome(
        captured=1, type="PYTHON_CALL", sender="w1", role="w0", result="different", differences=(ONE_ULP,)
    )
    texts, heard = told(workers, {"app.f": different(OTHER), "app.g": different(ONE_ULP)}, [inbound])
    assert heard == [ROUNDING]
    assert texts == {"app.f": "may follow from #1", "app.g": ROUNDING}


def test_what_has_a_text_keeps_it() -> None:
    texts, _ = told(line(), {"app.f": different(TEXT, text="as it is")})
    assert texts["app.f"] == "as it is"


def test_an_answer_that_did_not_come_may_wait_for_something_outside() -> None:
    silence = {"result": "unanswered", "text": "no answer within 5.0 s"}
    texts, _ = told(line(), {"app.g": silence})
    assert texts["app.g"] == f"no answer within 5.0 s; {WAITS}"
    texts, _ = told(line(), {"app.f": different(OTHER), "app.g": silence})
    assert texts["app.g"] == "no answer within 5.0 s; it may follow from #0"


def test_a_request_that_did_not_come_has_no_reason_of_its_own() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 100, "app.f")
    workers.call(1, 0, 10, 20, "app.g")
    texts, _ = told(workers, {"app.g": {"result": "unanswered", "text": "w1 never sent it"}})
    assert texts["app.g"] == "w1 never sent it"


def test_requests_that_nobody_captured_have_the_texts_that_they_had() -> None:
    inbound = InboundOutcome(
        captured=None,
        type="PYTHON_CALL",
        sender="w1",
        role="w0",
        result="different",
        text="no request like it",
    )
    _, heard = told(line(), {"app.f": different(OTHER)}, [inbound])
    assert heard == ["no request like it"]


def test_an_answer_that_the_capture_has_not_can_differ_too() -> None:
    """It has no moment in the capture; it says so itself."""
    workers = line(2)
    workers.call(0, 1, 500, None, "app.k")
    texts, _ = told(workers, {"app.k": different(TEXT, text="in the capture it was never answered")})
    assert texts["app.k"] == "in the capture it was never answered"
