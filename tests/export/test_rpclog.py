"""Captures as logs: what both decode to is the same, but for packets."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpcinspect.export.pcap.pipes import Numbered
from rpcinspect.export.rpclog import write_log
from rpcinspect.pipeline import Decoding
from tests.decoded import Decoded, decode
from tests.logs import blocks_of, convert, without_packets
from tests.places import recordings, workloads
from tests.thorough import examples, representative

ROOT = Path(__file__).resolve().parent.parent.parent
BUNDLED = workloads()
HUGE = 500_000
"""Bytes of captures that are left out."""


def logged(capture: Path, folder: Path) -> tuple[Path, Decoded]:
    path = folder / "a.rpclog"
    path.write_bytes(convert(capture))
    return path, decode.__wrapped__(path)


def check_same(capture: Path, folder: Path) -> None:
    before = decode(capture)
    _, after = logged(capture, folder)
    told, expected = without_packets(after), without_packets(before)
    for line, other in zip(told["message"], expected["message"], strict=True):
        if not other["parent_certain"]:  # a log does not say what its capture lacked
            line["parents"], line["parent_certain"] = other["parents"], False
    assert told == expected
    assert after.of("pipe") == after.summary["problem_list"] == []
    assert all(line["pipe"] is line["location"] is None for line in after.messages)
    assert {line["reader"] for line in after.of("capture")} == {"log"}


@pytest.mark.parametrize("capture", representative(BUNDLED), ids=lambda path: path.name)
def test_bundled_captures(capture: Path, tmp_path: Path) -> None:
    check_same(capture, tmp_path)


@pytest.mark.parametrize("folder", ["torch", "torch-suite", "versions"])
def test_other_captures(folder: str, tmp_path: Path) -> None:
    for capture in representative(recordings(folder)):
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
    with Decoding([str(ROOT / "captures/basic_chain.pcap")]) as decoding:
        records = list(decoding.records())
        records[0].tp.payloads = records[0].tp.payloads[:3]
        kind, *others = records[1].tp.payloads
        records[1].tp.payloads = (kind[:3], *others)
        records[1].tp.payload_missing = (1, 0, 0, 0)
        kept = [Numbered(number, record) for number, record in enumerate(records)]
        output = io.BytesIO()
        left = write_log(
            output, decoding.session, kept, lambda e: e.read(decoding.bytes), decoding.wire_facts
        )
    assert left == 2
    path = tmp_path / "a.rpclog"
    path.write_bytes(output.getvalue())
    assert len(decode(path).messages) == len(records) - 2


def test_the_text_form_says_the_same(tmp_path: Path) -> None:
    path, before = logged(ROOT / "captures/dtype_zoo.pcap.gz", tmp_path)
    data, text = path.read_bytes(), tmp_path / "text.rpclog"
    records, _, _ = blocks_of(path)
    lines = ['{"rpclog":1}']
    for record in records:
        start, length = record.rest - len(record.payload) - len(record.table), record.header.get("bytes", 0)
        said = base64.b64encode(data[start : start + length]).decode()
        lines.append(json.dumps(record.header | ({"base64": said} if said else {})))
    text.write_text("\n".join(lines) + "\n")
    assert without_packets(decode.__wrapped__(text)) == without_packets(before)


CHAIN = convert(ROOT / "captures/basic_chain.pcap")


@given(
    st.lists(
        st.tuples(st.integers(13, len(CHAIN) - 1), st.integers(0, 40), st.binary(max_size=8)),
        min_size=1,
        max_size=4,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
def test_a_damaged_log_is_decoded_to_its_end(tmp_path: Path, cuts: list[tuple[int, int, bytes]]) -> None:
    data = bytearray(CHAIN)
    for at, length, new in cuts:
        data[at : at + length] = new
    path = tmp_path / "a.rpclog"
    path.write_bytes(data)
    found = decode.__wrapped__(path)
    assert found.problems() or len(found.messages) <= 24
