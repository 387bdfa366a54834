"""The programmer's way in: `rpcinspect.open`."""

from __future__ import annotations

from pathlib import Path

import pytest

import rpcinspect
from rpcinspect.errors import CaptureError
from tests.decoded import decode


def test_messages_come_in_the_order_of_time_with_their_bytes(repo: Path) -> None:
    path = repo / "captures" / "basic_chain.pcap"
    told = decode(path).messages
    with rpcinspect.open(str(path)) as opened:
        assert len(opened) == len(told)
        assert [r.rpc.message.id for r in opened.messages()] == [m["id"] for m in told]
        for index, line in enumerate(told):
            record = opened.message(index)
            assert opened.session.index[record.row] == index
            for tensor, its in zip(record.tp.tensors, record.tp.descriptor.tensors, strict=True):
                assert tensor.extent is not None
                assert len(opened.read(tensor.extent)) == its.length
            assert line["location"]["packet"] == record.location.packet


def test_several_captures_are_one_session(repo: Path) -> None:
    paths = [str(repo / "captures" / name) for name in ("basic_chain.pcap", "param_detach.pcap")]
    with rpcinspect.open(*paths) as opened:
        assert [c.path for c in opened.session.captures] == paths


def test_what_is_no_capture_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"no capture")
    with pytest.raises(CaptureError, match="not a pcap"):
        rpcinspect.open(str(path))


def test_the_public_names_are_there() -> None:
    assert all(hasattr(rpcinspect, name) for name in rpcinspect.__all__)
    with pytest.raises(AttributeError):
        rpcinspect.nothing  # noqa: B018
