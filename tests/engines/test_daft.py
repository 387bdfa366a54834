"""Daft reads captures: the page's question, what can't be read, and no more columns than it needs."""

from __future__ import annotations

import pytest

from tests.engines.pages import PATHS, answer, printed, program

pytest.importorskip("pyarrow")


def test_the_page_and_the_same_from_duckdb() -> None:
    assert printed("daft", program("Daft")) == answer()
    assert printed("duckdb", program("DuckDB")) == answer()


MORE = f"""{PATHS}
import daft
from rpcinspect.engines import daft as engine

asked = []
batches = engine.record_batches
def heard(*what, columns, **how):
    asked.append(columns)
    return batches(*what, columns=columns, **how)
engine.record_batches = heard
told = engine.read_rpc(paths, "captures").select("problem").to_pydict()["problem"]
print([one and one.partition(":")[0] for one in told])
print(engine.read_rpc(paths, "calls").count_rows())
slow = engine.read_rpc(paths, "calls").where(daft.col("latency_ns") > 3_000_000).select("function")
print(slow.count_rows(), {{tuple(sorted(one)) for one in asked if one}})
"""


def test_what_cannot_be_read_is_a_row_and_columns_are_handed_down() -> None:
    told, count, slow = printed("daft", MORE).splitlines()
    assert told == "[None, 'README.md', None]"
    assert int(count) == 2 * 12
    assert slow.startswith("2 ")
    assert "('problem',)" in slow
    assert "'result'" not in slow
