"""Messages are joined with what the workers wrote down: by choice where one is forced, never by a guess."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pairs.joined import Joined, Json, forced, join, joined
from tests.recorder.recording import need_own_network


def test_pairs_that_all_ways_share_are_forced() -> None:
    assert forced({1: [10], 2: [10, 11]}) == {1: 10, 2: 11}
    assert forced({1: [10, 11], 2: [10, 11]}) == {}
    assert forced({1: [10, 11], 2: [10, 11], 3: [11, 12]}) == {3: 12}
    assert forced({1: [], 2: [11]}) == {}


def message(index: int, microseconds: int, **fields: Any) -> Json:
    at = microseconds * 1000
    return {
        "index": index,
        "time_ns": at,
        "end_time_ns": at,
        "src": "a",
        "dst": "b",
        "request": True,
        "control": False,
        "answers": None,
        "tensors": [],
        "body": {"type": "PYTHON_RREF_FETCH_CALL", "rref_id": [0, 1]},
        **fields,
    }


def fetch(call: int, begin: int, end: int, serving: int | None = None) -> list[Json]:
    """The lines of one fetch, in microseconds."""
    carries = {"tensors": [], "rrefs": [[0, 1]], "forks": []}
    what = {"worker": "a", "call": call}
    begun = {"event": "call", "to": "b", "function": "to_here", "serving": serving, "label": None}
    return [
        {**what, **begun, **carries, "begin_ns": begin * 1000},
        {**what, "event": "answered", "end_ns": end * 1000},
    ]


def test_like_fetches_are_told_apart_by_their_times() -> None:
    run = Joined(Path(), [message(0, 10), message(1, 30)])
    join(run, [*fetch(1, 5, 20), *fetch(2, 8, 40)])
    assert run.parents == {0: None, 1: None}
    assert not run.unjoined


def test_like_fetches_at_one_time_are_left_out() -> None:
    run = Joined(Path(), [message(0, 10), message(1, 12)])
    join(run, [*fetch(1, 5, 40), *fetch(2, 8, 40)])
    assert run.parents == {}
    assert run.unjoined == {"to_here": 2}


@pytest.mark.rooted
def test_a_recorded_job_serves_what_its_values_say(tmp_path: Path) -> None:
    """Each call within another carries 2 x + 1 where the outer one carries x."""
    torch = pytest.importorskip("torch")
    need_own_network()
    from tests.pairs.common import numbers
    from tests.pairs.jobs import nested
    from tests.pairs.record import Wanted, record
    from tests.pairs.truth_log import sha256_of

    run = joined(record(tmp_path, Wanted("nested", "run-01", "value", 3)))
    assert run.changed is not None
    x = torch.stack([numbers(n) for n in range(2 * nested.CALLS)])
    x[nested.LABELS.index(run.changed), 1] += 1
    of_hash = {
        sha256_of(row): (depth, n)
        for depth, rows in enumerate((x, 2 * x + 1, 4 * x + 3))
        for n, row in enumerate(rows)
    }
    carries = {
        m["index"]: of_hash[m["tensors"][0]["sha256"]] for m in run.messages if m["index"] in run.parents
    }
    assert not run.unjoined
    assert sorted(carries.values()) == sorted(of_hash.values())
    for index, parent in run.parents.items():
        depth, n = carries[index]
        assert (None if parent is None else carries[parent]) == ((depth - 1, n) if depth else None)
    assert run.labels == {nested.LABELS[n]: i for i, (depth, n) in carries.items() if depth == 0}
