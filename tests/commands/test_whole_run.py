"""A run in memory: what is asked of it agrees with what a decoding without it says."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.commands.filtering import read_filter
from rpcinspect.commands.whole_run import read_run
from rpcinspect.pipeline import Decoding

CAPTURE = str(Path(__file__).resolve().parents[2] / "captures" / "basic_chain.pcap")


def test_messages_come_in_the_order_of_time() -> None:
    with Decoding((CAPTURE,)) as decoding:
        run, shown = read_run(decoding)
    assert shown is None
    assert [int(run.session.index[message.row]) for message in run.messages] == list(range(len(run.messages)))
    assert len(run.messages) == run.session.totals.messages > 0


def test_a_filter_picks_messages_and_leaves_the_run_whole() -> None:
    with Decoding((CAPTURE,)) as decoding:
        run, shown = read_run(decoding, read_filter("type == BACKWARD_AUTOGRAD_REQ"))
    assert shown is not None
    picked = [m for m in run.messages if shown.rows[m.row]]
    assert shown.count == len(picked) == run.session.totals.by_type["BACKWARD_AUTOGRAD_REQ"] > 0
    assert len(run.messages) > shown.count
    assert run.graphs
