"""Filters for hypothesis, and what they mean: a second evaluation that knows nothing of the package's own."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st

from rpcinspect.fields.field import Field
from rpcinspect.fields.kinds import CONTEXT, DURATION, FLAG, NUMBER, PAIR, SHAPE, SIZE, TEXT, TYPE, Kind
from rpcinspect.fields.table import BY_NAME, FIELDS
from rpcinspect.filter.expression import And, Compare, Expression, Not, Or, Present
from rpcinspect.rpc.message import TYPE_NAMES

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ANY: dict[Kind, st.SearchStrategy[Any]] = {
    TEXT: st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    TYPE: st.sampled_from(sorted(TYPE_NAMES.values())) | st.integers(0, 0xFFF).map(lambda n: f"0x{n:03x}"),
    NUMBER: INT64,
    SIZE: INT64,
    DURATION: INT64,
    CONTEXT: INT64,
    PAIR: st.tuples(INT64, INT64),
    FLAG: st.booleans(),
    SHAPE: st.lists(st.none() | st.integers(0, 1 << 62), max_size=4).map(tuple),
}
PATTERNS = st.sampled_from(
    ["", "a", "^worker", "[0-9]+$", "(?i)forward", r"\d\d", 'q"', r"\\", " and ", "tensor#0"]
)


def comparisons(seen: dict[str, list[Any]] | None = None) -> st.SearchStrategy[Expression]:
    """A comparison of any field: with any value, or with those that messages have."""

    def of(field: Field) -> st.SearchStrategy[Expression]:
        value = ANY[field.kind]
        if seen is not None and seen.get(field.name):
            value = st.sampled_from(seen[field.name])
        choices: list[st.SearchStrategy[Expression]] = [st.just(Present(field))]
        plain = sorted(field.kind.operators - {"in", "~"})
        choices.append(st.builds(Compare, st.just(field), st.sampled_from(plain), value))
        several = st.lists(value, min_size=1, max_size=3).map(tuple)
        choices.append(st.builds(Compare, st.just(field), st.just("in"), several))
        if "~" in field.kind.operators:
            choices.append(st.builds(Compare, st.just(field), st.just("~"), PATTERNS))
        return st.one_of(choices)

    names = [field.name for field in FIELDS] if seen is None else sorted(seen)
    return st.sampled_from(names).flatmap(lambda name: of(BY_NAME[name]))


def expressions(seen: dict[str, list[Any]] | None = None) -> st.SearchStrategy[Expression]:
    """Comparisons, joined."""

    def joined(items: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        some = st.lists(items, min_size=2, max_size=3).map(tuple)
        return st.one_of(st.builds(Not, items), st.builds(And, some), st.builds(Or, some))

    return st.recursive(comparisons(seen), joined, max_leaves=8)


def means(expression: Expression, message: dict[str, list[Any]]) -> bool:
    """Whether a message, as jsonl tells its fields, matches."""
    if isinstance(expression, Not):
        return not means(expression.item, message)
    if isinstance(expression, And):
        return all(means(item, message) for item in expression.items)
    if isinstance(expression, Or):
        return any(means(item, message) for item in expression.items)
    its = message[expression.field.name]
    if isinstance(expression, Present):
        return True in its if expression.field.kind is FLAG else its != []
    return any(_holds(item, expression) for item in its)


def _holds(item: Any, compare: Compare) -> bool:
    value = compare.value
    if compare.operator == "~":
        return re.search(value, item) is not None
    if compare.operator == "in":
        return any(_equal(item, one, compare) for one in value)
    if compare.operator in ("==", "!="):
        return _equal(item, value, compare) == (compare.operator == "==")
    return bool(
        {"<": item < value, "<=": item <= value, ">": item > value, ">=": item >= value}[compare.operator]
    )


def _equal(item: Any, value: Any, compare: Compare) -> bool:
    if compare.field.kind is SHAPE:
        return len(item) == len(value) and all(b is None or a == b for a, b in zip(item, value, strict=True))
    return bool(item == value)
