"""Comparisons of columns as filters of ours, so that rows which an engine would drop are not made.

In: a table, and a comparison as an engine has it: its kind, `attribute`, `value`. Out: a filter that picks at
least the rows for which the comparison is true; the engine asks again. None where no filter is sure to.
"""

from __future__ import annotations

from rpcinspect.errors import FilterError
from rpcinspect.fields.table import BY_NAME, MESSAGE
from rpcinspect.filter.grammar import parse

OPERATORS = {
    "EqualTo": "==",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
"""Spark's names."""
OF_MESSAGES = {
    name: one.name
    for one in MESSAGE
    if one.test is not None and len(one.columns) == 1
    for name, cells in one.columns.items()
    if cells in ("text", "int32", "int64")
}
OF_MESSAGES |= {"latency_ns": "latency", "function": "fn"}
OF_CALLS = {
    "request": "index",
    "caller": "src",
    "callee": "dst",
    "function": "fn",
    "time_ns": "time_ns",
    "latency_ns": "latency",
}
FIELDS = {"messages": OF_MESSAGES, "calls": OF_CALLS}
"""Table → its columns, and the fields of filters that have the same values, or more than them."""


def as_filter(table: str, kind: str, comparison: object) -> str | None:
    """Returns the filter."""
    operator, fields = OPERATORS.get(kind), FIELDS.get(table, {})
    path: tuple[str, ...] = getattr(comparison, "attribute", ())
    value = getattr(comparison, "value", None)
    name = fields.get(path[0]) if len(path) == 1 else None
    if operator is None or name is None or type(value) not in (str, int):
        return None
    field = BY_NAME[name]
    try:
        text = f"{name} {operator} {field.kind.write(value)}"
        parse(text)
    except (FilterError, ValueError, TypeError):
        return None  # a value that the field never has, which is for the engine to say
    return text
