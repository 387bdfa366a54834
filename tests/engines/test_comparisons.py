"""Comparisons that are handed down: whatever an engine would keep is still there."""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any

import pytest

import rpcinspect as ri
from rpcinspect.engines.comparisons import FIELDS, OPERATORS, as_filter
from rpcinspect.fields.table import BY_NAME
from tests.places import CAPTURES

pytest.importorskip("pyarrow")

PATHS = [CAPTURES / name for name in ("bwd_boom.pcap.gz",)]
COMPARES = {"==": operator.eq, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


@pytest.mark.parametrize("table", FIELDS)
def test_no_row_is_lost(table: str) -> None:
    tried = 0
    for path in PATHS:
        rows = [row for batch in ri.record_batches(path, table) for row in batch.to_pylist()]
        key = "index" if table == "messages" else "request"
        for column in FIELDS[table]:
            values = sorted({row[column] for row in rows} - {None})
            for value in values[len(values) // 2 :][:1]:
                for kind in ("EqualTo", "GreaterThan", "LessThanOrEqual"):
                    words = OPERATORS[kind]
                    asked = as_filter(table, kind, SimpleNamespace(attribute=(column,), value=value))
                    if asked is None:
                        assert words not in BY_NAME[FIELDS[table][column]].kind.operators
                        continue
                    tried += 1
                    kept = {
                        row[key]
                        for batch in ri.record_batches(path, table, asked, columns=[key])
                        for row in batch.to_pylist()
                    }
                    wanted = {
                        row[key]
                        for row in rows
                        if row[column] is not None and COMPARES[words](row[column], value)
                    }
                    assert wanted <= kept, asked
    assert tried > 10


def comparison(column: tuple[str, ...], value: Any) -> Any:
    return SimpleNamespace(attribute=column, value=value)


def test_what_no_filter_says_is_left_to_the_engine() -> None:
    assert as_filter("calls", "GreaterThan", comparison(("latency_ns",), 5)) == "latency > 5ns"
    text = 'say "hi" \\ or not\n'
    asked = as_filter("calls", "EqualTo", comparison(("function",), text))
    assert asked == 'fn == "say \\"hi\\" \\\\ or not\n"'
    for table, kind, column, value in (
        ("calls", "StringContains", ("function",), "a"),
        ("calls", "EqualTo", ("result",), "a"),
        ("calls", "EqualTo", ("function", "inner"), "a"),
        ("messages", "EqualTo", ("type",), "no such type"),
        ("calls", "EqualTo", ("latency_ns",), 1.5),
        ("calls", "EqualTo", ("function",), "a" * 20_000),
        ("findings", "EqualTo", ("code",), "a"),
    ):
        assert as_filter(table, kind, comparison(column, value)) is None
    assert as_filter("calls", "Not", SimpleNamespace(child=None)) is None
