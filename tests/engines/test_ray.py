"""Ray Data reads captures: the page's question, and what can't be read."""

from __future__ import annotations

from ast import literal_eval

import pytest

from tests.engines.pages import PATHS, answer, printed, program

pytestmark = pytest.mark.slow

MORE = f"""{PATHS}
print([row["problem"] and row["problem"].partition(":")[0] for row in read_rpc(paths, "captures").take_all()])
print(read_rpc(paths, "calls", "latency > 3ms").count())
"""


def test_the_page_and_what_cannot_be_read() -> None:
    code = program("Ray Data").replace("ray.shutdown()\n", f"{MORE}ray.shutdown()\n")
    told, count, found = printed("ray", code).splitlines(keepends=True)
    assert sorted(literal_eval(told), key=str) == [None, None, "README.md"]
    assert int(count) == 2
    assert found == answer()
