"""Which stages read which captures, and that what they tell before the end is what they tell then."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding
from rpcinspect.sources.log import LogSource
from rpcinspect.sources.packets import PacketSource
from tests.logs import convert

BASIC = Path(__file__).resolve().parents[2] / "captures" / "basic_chain.pcap"


def test_the_front_is_that_of_the_captures(tmp_path: Path) -> None:
    log = tmp_path / "a.rpclog"
    log.write_bytes(convert(BASIC))
    with Decoding([str(BASIC)]) as packets, Decoding([str(log)]) as records:
        assert type(packets._source) is PacketSource
        assert type(records._source) is LogSource
        assert packets.unread_link_types == records.unread_link_types == []


def test_a_log_and_packets_are_not_one_session(tmp_path: Path) -> None:
    log = tmp_path / "a.rpclog"
    log.write_bytes(convert(BASIC))
    for paths in ((BASIC, log), (log, BASIC)):
        with pytest.raises(CaptureError, match=r"a\.rpclog is a log and .*basic_chain\.pcap is none"):
            Decoding([str(path) for path in paths])


def test_ends_are_known_at_the_end_only() -> None:
    with Decoding([str(BASIC)]) as decoding:
        for what in ("ends", "wire_facts", "session"):
            with pytest.raises(RuntimeError):
                getattr(decoding, what)
        list(decoding.records())
        assert decoding.ends == decoding.wire_facts.ends
