"""Spark reads captures: the page's question, what can't be read, and comparisons that are handed down."""

from __future__ import annotations

import shutil
from ast import literal_eval

import pytest

from tests.engines.pages import PATHS, answer, printed, program

pytestmark = pytest.mark.slow

MORE = f"""{PATHS}
print([row.problem and row.problem.partition(":")[0] for row in read_rpc(spark, paths, "captures").collect()])
print(read_rpc(spark, paths, "calls").where("latency_ns > 3000000").count())
"""


def test_the_page_what_cannot_be_read_and_comparisons() -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    code = program("Spark").replace("spark.stop()\n", f"{MORE}spark.stop()\n")
    found, told, count = printed("pyspark", code).splitlines(keepends=True)
    assert found == answer()
    assert sorted(literal_eval(told), key=str) == [None, None, "README.md"]
    assert int(count) == 2
