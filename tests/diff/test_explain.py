"""Where runs part and what follows from it."""

from __future__ import annotations

import pytest

import rpcinspect
from rpcinspect.rpc.command import PythonResp
from tests.diff.stories import FAILURE, Story, call, codes, diff, first
from tests.truth import CAPTURES


def chain(middle: int = 2, argument: int = 1, extra: bool = False) -> Story:
    """w0 asks w1, which asks w2; w0 tells w1 what came of it."""
    story = Story()
    story.ask("app.outer", argument, middle, at=0, takes=60)
    story.ask("app.inner", argument, middle, caller=1, callee=2, at=20)
    if extra:
        story.ask("app.more", 4, caller=1, callee=2, at=40)
    story.ask("app.tell", middle, 0, at=100)
    return story


def test_a_different_answer_to_equal_arguments_is_the_place() -> None:
    comparison = diff(chain(), chain(middle=3))
    assert first(comparison) == ("value", 2, 2, "function")
    assert comparison.first is not None
    assert (comparison.first.worker, comparison.first.function) == ("w2", "app.inner")
    assert comparison.first.following == 2
    assert comparison.first.beside == ()
    follows = {
        comparison.messages[one.message].a: (
            None if one.follows is None else comparison.messages[one.follows].a
        )
        for one in comparison.found
    }
    assert follows == {2: None, 3: 2, 4: 3}


def test_a_gradient_that_differs_is_of_a_backward_pass() -> None:
    """The job was mended in `compress` on worker2, whose backward made NaN; no message type changed."""
    demo = CAPTURES / "demo"
    comparison = rpcinspect.compare(demo / "nan.pcap.gz", demo / "fixed.pcap.gz")
    assert comparison.first is not None
    assert (comparison.first.worker, comparison.first.likely) == ("worker2", "function")
    assert "its backward pass changed" in comparison.first.text


def test_a_different_argument_is_the_place_only_where_nothing_different_came_before() -> None:
    comparison = diff(chain(), chain(argument=5))
    assert first(comparison) == ("argument", 0, 0, "other-inputs")
    assert comparison.first is not None
    assert comparison.first.worker == "w0"


def test_a_call_more_is_the_place() -> None:
    comparison = diff(chain(), chain(middle=3, extra=True))
    assert codes(comparison)[0] == ("value", 2, 2)
    comparison = diff(chain(), chain(extra=True))
    assert first(comparison) == ("extra", None, 3, "missing-call")
    assert first(diff(chain(extra=True), chain())) == ("missing", 3, None, "missing-call")


def test_an_error_in_place_of_an_answer() -> None:
    a, b = Story(), Story()
    a.ask("app.f", 1, 2)
    b.ask("app.f", 1, PythonResp(FAILURE))
    assert first(diff(a, b)) == ("error", 1, 1, "error")


def test_equal_calls_of_one_run_with_other_answers() -> None:
    a, b = Story(), Story()
    for story, last in ((a, 8), (b, 9)):
        story.ask("app.f", 1, 7)
        story.ask("app.f", 1, last)
    comparison = diff(a, b)
    assert first(comparison) == ("value", 3, 3, "not-deterministic")
    assert comparison.first is not None
    assert "#0 and #2" in comparison.first.text


def test_a_context_more_is_another_length() -> None:
    a, b = Story(), Story()
    for story, count in ((a, 2), (b, 3)):
        for n in range(count):
            story.iteration(n)
    comparison = diff(a, b)
    assert first(comparison)[0] == "extra"
    assert first(comparison)[3] == "other-length"


def test_another_function_in_its_place() -> None:
    a, b = Story(), Story()
    a.ask("app.f", 1)
    b.ask("app.g", 1)
    assert first(diff(a, b)) == ("function", 0, 0, "other-call")


def test_places_beside_each_other() -> None:
    a, b = Story(), Story()
    for story, results in ((a, (1, 2)), (b, (3, 4))):
        story.ask("app.f", 1, results[0], caller=0, callee=0)
        story.ask("app.f", 1, results[1], caller=1, callee=1)
    comparison = diff(a, b)
    assert comparison.first is not None
    assert [comparison.messages[place].a for place in comparison.first.beside] == [3]
    assert comparison.first.following == 0


@pytest.mark.parametrize("strict", [False, True])
def test_another_order(strict: bool) -> None:
    a, b = Story(), Story()
    for story, order in ((a, (1, 2)), (b, (2, 1))):
        for argument in order:
            story.ask(f"app.f{argument}", argument)
    comparison = diff(a, b, strict=strict)
    assert comparison.same is not strict
    assert [code for code, _, _ in codes(comparison)] == ["reordered"]
    if strict:
        assert first(comparison)[3] == "other-order"


def test_a_worker_that_the_other_run_lacks() -> None:
    a, b = Story(), Story()
    for story, callee in ((a, 1), (b, 2)):
        story.call(0, callee, 0, 10, call("app.f", 1))
    comparison = diff(a, b)
    assert first(comparison)[3] == "other-worker"
    assert comparison.notes == ("if w1 of a is w2 of b, --rename w1=w2 says so",)
    assert diff(a, b, renames={"w1": "w2"}).same


def test_what_differs_in_the_same_way() -> None:
    a, b = Story(), Story()
    for story, results in ((a, (1, 2, 1)), (b, (3, 4, 3))):
        for n, result in enumerate(results):
            story.ask("app.f", 1, result, caller=n, callee=n)
    comparison = diff(a, b)
    assert comparison.first is not None
    assert len(comparison.first.beside) == 2
    assert comparison.first.alike == comparison.first.beside[1:]
