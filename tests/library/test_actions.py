"""Comparing and replaying from a program."""

from __future__ import annotations

import pytest

import rpcinspect as ri
from tests.cli.runner import CAPTURES

CHAIN = CAPTURES / "basic_chain.pcap"


def test_runs_are_compared_open_or_by_their_paths() -> None:
    base, seed = CAPTURES / "pairs/base.pcap.gz", CAPTURES / "pairs/dropout_seed.pcap.gz"
    assert ri.compare(base, base).same
    with ri.open(base) as a:
        found = ri.compare(a, str(seed))
        assert not found.same
        assert found.counts == ri.compare(base, seed).counts
        assert a.messages[0].type  # it is still open
    assert ri.compare([CHAIN], CHAIN, ri.Rules(ignore=frozenset({"latency"}))).same


def test_nothing_is_started_for_names_that_nobody_allowed() -> None:
    report = ri.replay(CHAIN)
    assert (report.verdict, report.missing) == ("refused", ("basic_chain:scale",))
    with pytest.raises(ri.ReplayError, match="a b: not MODULE"):
        ri.replay(CHAIN, allow=["a b"])


def test_a_replay_compares_gradients() -> None:
    pytest.importorskip("torch")
    with ri.open(CHAIN) as run:
        report = ri.replay(run, path=[CAPTURES])
    assert (report.verdict, report.gradients.identical) == ("identical", 4)
    report = ri.replay(CHAIN, main=CAPTURES / "basic_chain.py", allow=["basic_chain:scale"])
    assert report.verdict == "identical"
