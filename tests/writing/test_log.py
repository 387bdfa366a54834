"""Captures as logs: what both decode to is the same, but for packets."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.pipeline import Decoding
from rpcinspect.writing.log import write_log
from tests.decoded import Decoded, decode
from tests.logs import convert, without_packets

ROOT = Path(__file__).resolve().parent.parent.parent
BUNDLED = sorted(ROOT.joinpath("captures").rglob("*.pcap*"))
HUGE = 600_000
"""Bytes of shared captures that are left out."""


def logged(capture: Path, folder: Path) -> tuple[Path, Decoded]:
    path = folder / "a.rpclog"
    path.write_bytes(convert(capture))
    return path, decode.__wrapped__(path)


def check_same(capture: Path, folder: Path) -> None:
    before = decode(capture)
    _, after = logged(capture, folder)
    assert without_packets(after) == without_packets(before)
    assert after.of("pipe") == after.summary["problem_list"] == []
    assert all(line["pipe"] is line["location"] is None for line in after.messages)
    assert {line["reader"] for line in after.of("capture")} == {"log"}


@pytest.mark.parametrize("capture", BUNDLED, ids=lambda path: path.name)
def test_bundled_captures(capture: Path, tmp_path: Path) -> None:
    check_same(capture, tmp_path)


@pytest.mark.parametrize("folder", ["examples", "torch", "torch-suite", "versions"])
def test_shared_captures(folder: str, shared: Path, tmp_path: Path) -> None:
    captures = sorted((shared / "captures" / folder).rglob("*.pcap*"))
    assert captures
    for capture in captures:
        if capture.stat().st_size <= HUGE:
            check_same(capture, tmp_path)


def test_a_log_of_a_log_is_the_same_log(tmp_path: Path) -> None:
    for name in ("reinit.pcap.gz", "basic_chain.pcap", "faults/dies.pcap.gz"):
        path, _ = logged(ROOT / "captures" / name, tmp_path)
        assert convert(path) == path.read_bytes()


def test_two_jobs_and_two_pipes_between_the_same_workers(tmp_path: Path) -> None:
    """A log of two runs: ids are unique in one job only."""
    one, two = (ROOT / "captures" / name for name in ("basic_chain.pcap", "param_detach.pcap"))
    before = decode(one, two)
    path = tmp_path / "a.rpclog"
    path.write_bytes(convert(one, two))
    after = decode.__wrapped__(path)
    assert {worker["job"] for worker in after.of("worker")} == {0, 1}
    assert without_packets(after) == without_packets(before)


def test_what_is_not_of_torchs_form_is_counted(tmp_path: Path) -> None:
    import io

    with Decoding([str(ROOT / "captures/basic_chain.pcap")]) as decoding:
        records = list(decoding.records())
        records[0].tp.payloads = records[0].tp.payloads[:3]
        records[1].tp.payload_missing = (1, 0, 0, 0)
        from rpcinspect.writing.pipes import Numbered

        kept = [Numbered(number, record) for number, record in enumerate(records)]
        output = io.BytesIO()
        left = write_log(
            output, decoding.session, kept, lambda e: e.read(decoding.bytes), decoding.wire_facts
        )
    assert left == 2
    path = tmp_path / "a.rpclog"
    path.write_bytes(output.getvalue())
    assert len(decode(path).messages) == len(records) - 2
