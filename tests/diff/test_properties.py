"""What holds for any two runs: a run is itself, and a diff has a mirror image."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.diff.model import Aligned, Comparison
from tests.diff.stories import Story, codes, diff, first
from tests.thorough import examples

SWAP = {"missing": "extra", "extra": "missing"}


@dataclass(frozen=True)
class Ask:
    """One call of a made-up run."""

    function: str
    argument: int
    result: int | None
    context: int | None
    callee: int
    gap: int
    takes: int


asks = st.builds(
    Ask,
    function=st.sampled_from(["app.f", "app.g"]),
    argument=st.integers(0, 3),
    result=st.one_of(st.none(), st.integers(0, 2)),
    context=st.one_of(st.none(), st.integers(0, 2)),
    callee=st.integers(1, 2),
    gap=st.integers(0, 15),
    takes=st.integers(2, 30),
)
runs = st.lists(asks, max_size=12)


def story(run: list[Ask]) -> Story:
    made, now = Story(), 0
    for ask in run:
        made.ask(
            ask.function,
            ask.argument,
            ask.result,
            callee=ask.callee,
            at=now,
            takes=ask.takes,
            context=ask.context,
        )
        now += ask.gap
    return made


def _ends(code: str, message: Aligned) -> tuple[int | None, int | None]:
    """Where it is; two pairs that have changed places are in one place as well as in the other."""
    if code == "reordered" and message.a is not None and message.b is not None:
        return min(message.a, message.b), max(message.a, message.b)
    return message.a, message.b


def lines(comparison: Comparison) -> Counter[tuple[object, ...]]:
    return Counter(
        (
            one.difference.code,
            *_ends(one.difference.code, comparison.messages[one.message]),
            one.counts,
        )
        for one in comparison.found
    )


@given(runs)
@settings(max_examples=examples(60), deadline=None)
def test_a_run_is_itself(run: list[Ask]) -> None:
    comparison = diff(story(run), story(run), strict=True)
    assert comparison.found == ()
    assert all(message.a == message.b for message in comparison.messages)


@given(runs, runs)
@settings(max_examples=examples(150), deadline=None)
def test_the_mirror_image(one: list[Ask], other: list[Ask]) -> None:
    there, back = diff(story(one), story(other)), diff(story(other), story(one))
    assert there.same == back.same
    assert lines(there) == Counter(
        {
            (SWAP.get(code, code), *((a, b) if code == "reordered" else (b, a)), counts): n
            for (code, a, b, counts), n in lines(back).items()
        }
    )
    assert (there.first is None) == (there.same or there.unrelated)
    assert there.unrelated == back.unrelated
    if there.first is not None:
        code, a, b, likely = first(there)
        mirror = first(back)
        # pairs that have changed places say the same of each other; so do equal calls in one place, of which
        # each run has one alone: either may be the first
        assert mirror[3] == likely
        assert mirror[:3] in ((SWAP.get(code, code), b, a), (SWAP.get(code, code), a, b), (code, a, b))


@given(runs, runs)
@settings(max_examples=examples(100), deadline=None)
def test_every_message_of_both_runs_stands_there_once(one: list[Ask], other: list[Ask]) -> None:
    comparison = diff(story(one), story(other))
    for side, run in (("a", one), ("b", other)):
        indexes = [getattr(message, side) for message in comparison.messages]
        expected = len(run) + sum(ask.result is not None for ask in run)
        assert sorted(index for index in indexes if index is not None) == list(range(expected))
    for place, message in enumerate(comparison.messages):
        assert message.answers is None or message.answers < place
    for found in comparison.found:
        assert found.follows is None or found.follows < found.message


@given(st.permutations(range(8)), st.integers(0, 7), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_one_call_less_is_the_one_difference(order: list[int], dropped: int, contexts: bool) -> None:
    """Each call says something else, and nothing follows from any."""
    made = [Ask("app.f", n, n, n // 4 if contexts else None, 1, 50, 10) for n in order]
    fewer = [ask for place, ask in enumerate(made) if place != dropped]
    request = 2 * dropped
    assert codes(diff(story(made), story(fewer))) == [
        ("missing", request, None),
        ("missing", request + 1, None),
    ]
