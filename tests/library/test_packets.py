"""pyshark's packets of a message are tshark's of its bytes, with what is known of the message."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import zstandard

import rpcinspect as ri
from rpcinspect.capture.tshark import find_program
from tests.cli.runner import CAPTURES
from tests.places import recorded

pytest.importorskip("pyshark")
needs_tshark = pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")

CHAIN = CAPTURES / "basic_chain.pcap"
AGAIN = recorded("reports/concurrent/shared1.pcap")
"""Parts of requests were sent again, on a busy host."""


def told(*names: str) -> dict[int, dict[str, str]]:
    """What tshark says of each packet of `AGAIN`, by their numbers."""
    command = ["tshark", "-n", "-r", str(AGAIN), "-T", "fields", "-e", "frame.number"]
    for name in names:
        command += ["-e", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {int(row[0]): dict(zip(names, row[1:], strict=True)) for row in rows}


@pytest.fixture
def emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@needs_tshark
def test_packets_of_a_message_with_what_both_say(emptied: Path) -> None:
    """The whole file before them counts: acknowledgments, and which packet is a copy of which."""
    with ri.open(AGAIN) as run:
        call = run.call(21)
        packets = list(ri.to_pyshark(run, message=21))
    assert not list(emptied.iterdir())
    first = packets[0].torchrpc
    assert (first.type, first.function, getattr(first, "from"), first.to) == (
        *("PYTHON_CALL", "shared_rref.use", "worker0", "worker1"),
    )
    assert round(float(first.latency) * 1e9) == call.latency_ns
    numbers = [int(packet.number) for packet in packets]
    assert numbers == [345, 346, 347, 348, 349, 350, 351, 355]
    same = ("tcp.len", "tcp.payload", "tcp.analysis.rto", "tcp.analysis.retransmission")
    acknowledged = ("tcp.options.sack.dsack_le", "tcp.analysis.acks_frame")
    known = told("frame.time_epoch", *same, *acknowledged)
    for number, packet in zip(numbers, packets, strict=True):
        assert packet.sniff_timestamp == known[number]["frame.time_epoch"]
        for name in same[:3]:
            found = packet.tcp.get(name.removeprefix("tcp.").replace(".", "_")) or ""
            assert found.replace(":", "") == known[number][name]
    copies = [number for number in numbers if known[number]["tcp.analysis.retransmission"]]
    again = [int(packet.number) for packet in packets if packet.tcp.get("analysis_retransmission")]
    assert again == copies == [351, 355]
    # what docs/pyshark.md says of them
    for number, copied in ((310, 306), (353, 350), (356, 349)):
        assert known[number]["tcp.options.sack.dsack_le"]
        assert known[number]["tcp.analysis.acks_frame"] == str(copied)


@needs_tshark
def test_of_several_captures_the_right_file(tmp_path: Path, emptied: Path) -> None:
    """Also where only we can unpack it; who stops early leaves nothing."""
    packed = tmp_path / "again.pcap.zst"
    with ri.open(AGAIN) as run:
        content = run.decoding.readers[0].pread(0, 1 << 20)
    packed.write_bytes(zstandard.compress(content))
    with ri.open(CHAIN, packed) as run:
        index = run.calls("function == shared_rref.use")[0].index
        packets = ri.to_pyshark(run, message=index)
        first = next(packets)
        assert first.torchrpc.function == "shared_rref.use"
        assert int(first.number) == run.message(index).record.tp.packet == 236
        packets.close()
    assert not list(emptied.iterdir())


def refused(run: ri.Run, message: int = 0) -> str:
    with pytest.raises(ri.CaptureError) as caught:
        list(ri.to_pyshark(run, message=message))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_has_no_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ri.open(CHAIN) as run:
        with pytest.raises(IndexError):
            ri.to_pyshark(run, message=24)
        run.save(tmp_path / "run.rpclog")
        monkeypatch.setattr("rpcinspect.capture.tshark.PLACES", ())
        with monkeypatch.context() as without:
            without.setenv("PATH", str(tmp_path))
            assert "this needs tshark; install it" in refused(run)
        for name in [name for name in sys.modules if name.partition(".")[0] == "pyshark"]:
            monkeypatch.setitem(sys.modules, name, None)
        assert "can't be used without pyshark: pip install 'rpcinspect[pyshark]'" in refused(run)
    with ri.open(tmp_path / "run.rpclog") as log:
        assert refused(log) == "message 0: packets come from a file of them, and it was read from none"
