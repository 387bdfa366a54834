"""Logs written as packets: the messages stay, and get pipes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.export.pcap.places import endpoint, placed
from rpcinspect.export.pcap.writer import write_session
from rpcinspect.run.run import RunModel
from rpcinspect.tcp.segment import Endpoint
from tests.decoded import decode
from tests.logs import convert, log_of, message, without_packets

CAPTURES = Path(__file__).resolve().parents[3] / "captures"


def as_packets(log: Path) -> Path:
    path = log.with_suffix(".pcap")
    with RunModel.open([str(log)]) as opened, path.open("wb") as output:
        write_session(output, opened.session, opened.messages, opened.read)
    return path


@pytest.mark.parametrize(
    "name", ["basic_chain.pcap", "rref_relay.pcap.gz", "reinit.pcap.gz", "dtype_zoo.pcap.gz"]
)
def test_there_and_back(name: str, tmp_path: Path) -> None:
    log = tmp_path / "a.rpclog"
    log.write_bytes(convert(CAPTURES / name))
    again = decode(as_packets(log))
    before, after = without_packets(decode(CAPTURES / name)), without_packets(again)
    for kind in ("message", "rref", "context"):
        assert after[kind] == before[kind]
    assert {pipe["visible"] for pipe in again.of("pipe")} == {"full"}


def test_workers_without_addresses(tmp_path: Path) -> None:
    log = tmp_path / "a.rpclog"
    log.write_bytes(log_of(message("b", "a", id=1), message("a", "b", storages=(b"1234",), id=2)))
    found = decode(as_packets(log))
    assert {(m["src"], m["dst"], m["id"]) for m in found.messages} == {("a", "b", 2), ("b", "a", 1)}


def test_sessions_of_packets_stay_as_they_are() -> None:
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        assert placed(opened.session) is opened.session


def test_a_worker_may_have_published_anything() -> None:
    """A store's value may be a megabyte of digits, which Python reads as no number."""
    output = io.BytesIO()
    with RunModel.open([str(CAPTURES / "basic_chain.pcap")]) as opened:
        said = (f"10.0.0.1:{'9' * 5000}", "host:\u00b2")
        workers = tuple([replace(worker, addresses=said) for worker in opened.session.workers])
        write_session(output, replace(opened.session, workers=workers), opened.messages, opened.read)
    assert output.getvalue()


def test_addresses() -> None:
    assert endpoint("127.0.0.1:80") == Endpoint("127.0.0.1", 80)
    assert endpoint("[fd00::2]:80") == Endpoint("fd00::2", 80)
    hostile = ("127.0.0.1:0000809999", f"127.0.0.1:{'9' * 5000}")
    for none in (
        "host:80",
        "127.0.0.1",
        "127.0.0.1:0",
        "127.0.0.1:99999",
        "shm://1a",
        "127.0.0.1:x",
        *hostile,
    ):
        assert endpoint(none) is None
