"""What filters pick of real captures, against predicates over the lines of jsonl."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.filter.expression import And, Compare, Expression, Not, Or
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter, Selection, StreamSelection
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.run.run import RunModel
from tests.decoded import decode, stream
from tests.filter.expressions import expressions, means
from tests.filter.from_json import picked, values
from tests.places import FOREIGN, WITHOUT_SHARED
from tests.thorough import examples
from tests.truth import CAPTURES

CHAIN = CAPTURES / "basic_chain.pcap"
NAMES = (
    "basic_chain.pcap",
    "bwd_boom.pcap.gz",
    "rref_relay.pcap.gz",
    "profiled_legacy.pcap",
    "dtype_zoo.pcap.gz",
)


@cache
def told(name: str) -> list[dict[str, list[Any]]]:
    return values(CAPTURES / name)


@cache
def opened(name: str) -> RunModel:
    return RunModel.open([str(CAPTURES / name)])


@cache
def seen(name: str) -> dict[str, list[Any]]:
    """Some values of each field."""
    found: dict[str, dict[Any, None]] = defaultdict(dict)
    for message in told(name):
        for field, its in message.items():
            found[field].update(dict.fromkeys(its))
    return {field: list(its)[:20] for field, its in found.items()}


def choose(expression: Expression, name: str) -> list[int]:
    """Indexes of what is picked; the captures stay open for the next one."""
    session = opened(name)
    selection = Selection(Filter(expression, ""), session.bytes)
    for row in range(len(session)):
        selection.feed(session.messages[int(session.session.index[row])])
    return [
        int(session.session.index[row])
        for row in selection.finish(session.session).of(list(range(len(session))))
    ]


CASES = st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), expressions(seen(name))))


@given(CASES)
@settings(max_examples=examples(150), deadline=None)
def test_a_filter_picks_what_a_predicate_over_jsonl_picks(case: tuple[str, Expression]) -> None:
    name, expression = case
    expected = [index for index, message in enumerate(told(name)) if means(expression, message)]
    assert sorted(choose(expression, name)) == expected


@given(
    st.sampled_from(NAMES).flatmap(
        lambda n: st.tuples(st.just(n), expressions(seen(n)), expressions(seen(n)))
    )
)
@settings(max_examples=examples(100), deadline=None)
def test_de_morgan(case: tuple[str, Expression, Expression]) -> None:
    name, a, b = case
    assert choose(Not(And((a, b))), name) == choose(Or((Not(a), Not(b))), name)
    assert choose(Not(Or((a, b))), name) == choose(And((Not(a), Not(b))), name)
    assert choose(Not(Not(a)), name) == choose(a, name)


def test_the_filter_of_the_issue() -> None:
    text = (
        'type == FORWARD_AUTOGRAD_REQ and src == worker0 and ctx == 0 and fn ~ "scale" and '
        "tensor.nbytes > 0.01KB and latency > 500us"
    )
    assert picked(text, CHAIN) == [6]


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
def test_what_a_message_lacks_makes_every_comparison_false(operator: str) -> None:
    lacking = [m["index"] for m in decode(CHAIN).messages if not m["tensors"]]
    assert lacking
    assert not set(picked(f"tensor.dim {operator} 1", CHAIN)) & set(lacking)
    assert set(lacking) <= set(picked(f"not tensor.dim {operator} 1", CHAIN))
    assert picked("not tensor.dim", CHAIN) == lacking


def test_one_of_several_values_is_enough() -> None:
    assert picked("index == 6 and tensor.shape == [4] and tensor.shape == [3,4]", CHAIN) == [6]
    assert picked("index == 6 and tensor.shape != [4] and tensor.shape != [3,4]", CHAIN) == [6]
    assert picked("index == 6 and not tensor.shape == [4]", CHAIN) == []


def test_what_is_decided_already_is_not_kept_waiting() -> None:
    expression = parse("type == FORWARD_AUTOGRAD_REQ and latency > 0ns")
    with Decoding([str(CHAIN)]) as decoding:
        selection = Selection(Filter(expression, ""), decoding.bytes)
        may = [selection.feed(record) for record in decoding.records()]
        shown = selection.finish(decoding.session)
    assert may.count(True) == shown.count == 2


def test_filters_know_what_they_ask_for() -> None:
    chosen = Filter(parse("finding and not (answered or finding) and control"), "")
    assert chosen.late == ("finding", "answered")


@pytest.mark.parametrize(
    "text", ["src == worker0", "latency > 600us", "control", "tensors > 0", "time > 10ms", "answers < 10"]
)
@pytest.mark.parametrize("name", ["basic_chain.pcap", "bwd_boom.pcap.gz"])
def test_messages_that_are_shown_as_they_come(text: str, name: str) -> None:
    """Of answers everything is known by then; of requests all but what answers them."""
    path = CAPTURES / name
    with Decoding([str(path)], Options(by_completion=True)) as decoding:
        selection = StreamSelection(Filter(parse(text), text), decoding)
        got = [record.row for record in decoding.records() if selection.feed(record)]
        shown = selection.finish(decoding.session)
    assert shown.of(list(range(len(shown.rows)))) == got
    lines = stream(path).messages
    start = lines[0]["time_ns"]

    def latency(m: dict[str, Any]) -> int | None:
        return None if m["answers"] is None else m["end_time_ns"] - lines[m["answers"]]["time_ns"]

    meaning = {
        "src == worker0": lambda m: m["src"] == "worker0",
        "latency > 600us": lambda m: (latency(m) or 0) > 600_000,
        "control": lambda m: m["control"],
        "tensors > 0": lambda m: bool(m["tensors"]),
        "time > 10ms": lambda m: m["time_ns"] - start > 10_000_000,
        "answers < 10": lambda m: m["answers"] is not None and m["answers"] < 10,
    }
    assert got == [m["index"] for m in lines if meaning[text](m)]


def test_comparisons_are_numbered_as_they_are_listed() -> None:
    """A tree with the same comparison twice asks for both."""
    expression = parse("(request or control) and not (request and control)")
    assert isinstance(expression, And)
    expected = [m["index"] for m in decode(CHAIN).messages if m["request"] != m["control"]]
    assert sorted(choose(expression, "basic_chain.pcap")) == expected
    assert not any(isinstance(item, Compare) for item in expression.items)


def test_paths_of_several_captures() -> None:
    paths: list[Path] = [CHAIN, CAPTURES / "rref_relay.pcap.gz"]
    assert picked("capture == 1", *paths) == [
        m["index"] for m in decode(*paths).messages if m["location"]["capture"] == 1
    ]


def hints(name: str, text: str) -> tuple[str, ...]:
    with Decoding([str(CAPTURES / name)]) as decoding:
        selection = Selection(Filter(parse(text), text), decoding.bytes)
        for record in decoding.records():
            selection.feed(record)
        return selection.finish(decoding.session).hints


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("src == trainr", ["no message has src == trainr: workers are worker0, worker1"]),
        ("from in {a, b} and request", ["no message has src in {a, b}: workers are worker0, worker1"]),
        ("call == basic_chain.scal", ["no message has call == basic_chain.scal: calls are of "]),
        ("src == worker0 and tensor.nbytes > 1GB", []),
        ("finding == lost-edge", []),
        ("src == worker0", []),
        ("src == nobody or dst == worker0", []),
    ],
)
def test_a_value_that_nothing_has_is_told_with_those_that_there_are(text: str, told: list[str]) -> None:
    found = hints("basic_chain.pcap", text)
    assert len(found) == len(told)
    assert all(line.startswith(start) for line, start in zip(found, told, strict=True))


def test_functions_behind_helpers_are_found_by_their_names() -> None:
    """In each of its 5 steps the job calls `forward` of a RemoteModule, and a function `forward2`."""
    if WITHOUT_SHARED:
        pytest.skip("the job's recording is not here")
    path = FOREIGN / "reports/job/plain.pcap"
    assert len(picked('fn ~ "forward"', path)) == 10
    assert len(picked("fn == forward", path)) == len(picked('call ~ "[.]forward$"', path)) == 5
