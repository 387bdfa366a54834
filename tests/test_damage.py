"""Captures that were started late, stopped early or lost packets: nothing is wrong, what is there comes out.

The truth of a damaged copy is the intact capture, and which bytes a copy has is told by its packets alone
(tests/damage.py). Of captures that were damaged when they were made, a scan of their bytes tells which
messages are whole, and the workload's script what its tensors hold.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import pytest

from rpcinspect.pipeline import Decoding, Options
from tests.builders import ACK, FIN, SYN, Captured, packet, pcap_file
from tests.carriers import Carriers, Packet, packets_of
from tests.damage import (
    DAMAGES,
    HEAD_CUTS,
    LOSSES,
    OTHER_CUTS,
    Damage,
    Original,
    Verdict,
    keep_bursts,
    keep_head_cut,
    keep_random,
    key_of,
    pooled,
)
from tests.decoded import decode
from tests.places import recorded

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "damage.md"
LOSSY, CUT = recorded("torch/stress_lossy.pcap"), recorded("torch/snap300.pcap")

QUICK = (
    "basic_chain",
    "ctx_crowd",
    "dtype_zoo",
    "ps_race",
    "rref_relay",
    "transport_matrix_uv_basic",
    "transport_matrix_uv_mpt",
    "transport_matrix_uv_only",
    "views_alias",
    *("torch/chan_mpt", "torch/chan_shmuv", "torch/hosts4", "torch/kitchen", "torch/rref"),
    "versions/torch-1.8.1",
)
LARGE = ("torch/stress_basic",)
"""Only their heads are cut here."""
SEEDS = 3


@lru_cache(maxsize=32)
def original(name: str) -> Original:
    return Original(recorded(f"{name}.pcap"))


# --- the harness sees what it is to see ---


@pytest.fixture(scope="module")
def chain() -> Original:
    return original("basic_chain")


def test_the_intact_copy_is_whole(chain: Original) -> None:
    verdict = chain.judge([True] * len(chain))
    assert verdict.faults == []
    assert verdict.counts == {"message out": 24, "tensor right": 11}


def test_nothing_is_left_of_nothing(chain: Original) -> None:
    verdict = chain.judge([False] * len(chain))
    assert verdict.faults == []
    assert verdict.counts == {"message cut": 24}


def test_changed_bytes_are_seen(chain: Original) -> None:
    """Every packet that carries a message or a tensor, one after the other, with its last byte changed."""
    intact = [True] * len(chain)
    of_messages = {group[0] for truth in chain.messages.values() for group in truth.needs}
    of_tensors = {
        group[0]
        for truth in chain.messages.values()
        for tensor in truth.tensors
        if tensor is not None
        for group in tensor.needs
    }
    for number in sorted(of_messages)[::7] + sorted(of_tensors):
        whole = chain.packets[number]
        last = whole.at + whole.length - 1
        record = bytearray(whole.record)
        record[last] ^= 0xFF
        copy = [*chain.packets]
        copy[number] = Packet(bytes(record), 0, None)
        data = chain.header + b"".join(one.record for one in copy)
        assert chain.judge_file(data, intact).faults, f"packet {number + 1}"


def test_a_dropped_packet_that_is_thought_to_be_there_is_seen(chain: Original) -> None:
    intact, seen = [True] * len(chain), 0
    for needed in sorted({group[0] for truth in chain.messages.values() for group in truth.needs})[1::7]:
        keep = [at != needed for at in range(len(chain))]
        verdict = chain.judge(keep)
        assert verdict.faults == []
        if verdict.counts["message partial"] + verdict.counts["message cut"]:
            assert chain.judge_file(chain.copy(keep), intact).faults
            seen += 1
    assert seen > 5


def test_which_packets_carry_which_bytes(tmp_path: Path) -> None:
    """A byte is there as long as one of its copies is; a SYN begins the ports' next connection."""

    def one(sequence: int, payload: bytes = b"", flags: int = ACK) -> Captured:
        return Captured(packet(payload, sequence=sequence & 0xFFFFFFFF, flags=flags))

    path = tmp_path / "x.pcap"
    path.write_bytes(
        pcap_file(
            [
                one(-4, flags=SYN),  # 0: the first byte is number -3, two before the wrap of three
                one(-3, b"abcdef"),  # 1: [0, 6)
                one(3, b"ghij"),  # 2: [6, 10)
                one(1, b"efghi"),  # 3: [4, 9) again
                one(7, flags=FIN | ACK),  # 4
                one(900, flags=SYN),  # 5
                one(901, b"xyz"),  # 6: [0, 3) of the next connection
            ]
        )
    )
    _, packets = packets_of(path)
    flow = "10.0.0.1:5000>10.0.0.2:6000"
    assert [(p.stream, p.start, p.payload) for p in packets if p.stream] == [
        ((flow, 0), 0, b"abcdef"),
        ((flow, 0), 6, b"ghij"),
        ((flow, 0), 4, b"efghi"),
        ((flow, 1), 0, b"xyz"),
    ]
    carriers = Carriers(packets)
    assert carriers.needs((flow, 0), 0, 4) == [(1,)]
    assert carriers.needs((flow, 0), 2, 10) == [(1,), (1, 3), (2, 3), (2,)]
    assert carriers.needs((flow, 0), 5, 5) == []
    assert carriers.needs((flow, 1), 0, 3) == [(6,)]
    with pytest.raises(AssertionError):
        carriers.needs((flow, 0), 9, 12)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.3])
def test_as_many_packets_are_lost_as_is_said(share: float) -> None:
    for keep in (keep_random(200_000, share, 1), keep_bursts(200_000, share, 1)):
        assert len(keep) == 200_000
        assert 1 - sum(keep) / 200_000 == pytest.approx(share, rel=0.15)
    bursts = "".join("x" if kept else "-" for kept in keep_bursts(200_000, share, 1))
    runs = [len(run) for run in re.findall("-+", bursts)]
    assert sum(runs) / len(runs) == pytest.approx(20, rel=0.15)
    assert keep_random(100, share, 2) == keep_random(100, share, 2) != keep_random(100, share, 3)
    assert keep_head_cut(10, share) == [at >= int(10 * share) for at in range(10)]


# --- the intact captures, damaged ---


@pytest.mark.parametrize("name", QUICK)
def test_cuts(name: str) -> None:
    faults = pooled(damage.verdicts(original(name), 1) for damage in (*HEAD_CUTS, *OTHER_CUTS)).faults
    assert faults == []


@pytest.mark.parametrize("damage", LOSSES, ids=lambda damage: damage.name)
@pytest.mark.parametrize("name", QUICK)
def test_losses(name: str, damage: Damage) -> None:
    assert damage.verdicts(original(name), SEEDS).faults == []


@pytest.mark.parametrize("name", ["basic_chain", "ps_race", "torch/chan_mpt"])
def test_messages_that_come_at_once_are_right_too(name: str) -> None:
    """What `--stream` shows: fewer tensors have a certain place, but none has a wrong one."""
    whole = original(name)
    for damage in DAMAGES:
        for seed in range(SEEDS if damage.drawn else 1):
            keep = damage.keep(len(whole), seed)
            verdict = whole.judge(keep, f"{damage.name}, seed {seed}", Options(by_completion=True))
            assert verdict.faults == []


@pytest.mark.slow
def test_late_starts_leave_nearly_every_tensor_certain() -> None:
    """Every later message comes out; of all their tensors, pooled, 98 % have a certain place."""
    wholes = [original(name) for name in (*QUICK, *LARGE)]
    total = pooled(damage.verdicts(w, 1) for w in wholes if w.channels == {"basic"} for damage in HEAD_CUTS)
    assert total.faults == []
    assert total.counts["message out"] > 500
    assert total.counts["tensor wrong"] == 0
    shown = ("tensor right", "tensor uncertain", "tensor missing")
    assert total.share("tensor right", *shown, "tensor cut") >= 98, total.counts
    print(f"\nhead cuts: {total.share('tensor right', *shown):.2f} % certain")


def test_a_second_copy_stands_in_for_the_first(chain: Original) -> None:
    """Every packet twice; then of each pair only one is kept."""
    records = [one.record for one in chain.packets]
    intact = [True] * len(chain)
    doubled = chain.header + b"".join(record for record in records for _ in range(2))
    assert chain.judge_file(doubled, intact).counts == {"message out": 24, "tensor right": 11}
    late = records[:40] + records[60:200] + records[40:60] + records[200:]
    assert chain.judge_file(chain.header + b"".join(late), intact).faults == []


# --- captures that were damaged when they were made ---


def whole_messages(path: Path) -> Iterator[tuple[str, int]]:
    """(flow, id) of every message of which all bytes are there, found by the lengths of its frames alone.

    A descriptor's frame, then frames of 4 and 8 bytes (type and id) and two more, of which the last begins as
    every pickle does.
    """
    _, packets = packets_of(path)
    by_stream: dict[tuple[str, int], list[Packet]] = defaultdict(list)
    for its_packet in packets:
        if its_packet.stream is not None:
            by_stream[its_packet.stream].append(its_packet)
    for (flow, _), its in by_stream.items():
        data, end = bytearray(), None
        ordered: list[Packet | None] = [*sorted(its, key=lambda p: p.start), None]
        for one in ordered:
            if one is None or (end is not None and one.start > end):
                yield from ((flow, number) for number in _whole_in(bytes(data)))
                data, end = bytearray(), None
            if one is not None and (end is None or one.end > end):
                data += one.payload[0 if end is None else end - one.start :]
                end = one.end


def _whole_in(data: bytes) -> Iterator[int]:
    for match in re.finditer(rb"\x04\0{7}....\x08\0{7}(?=(.{8}))", data, re.DOTALL):
        at, number = match.end() + 8, int.from_bytes(match[1], "little")
        for start in (b"", b"\x80"):
            size = int.from_bytes(data[at : at + 8], "little")
            if at + 8 + size > len(data) or len(data) < at + 8 or not data.startswith(start, at + 8):
                break
            at += 8 + size
        else:
            begin = match.start()
            announced = (
                int.from_bytes(data[begin - back - 8 : begin - back], "little") == back
                for back in range(20, min(begin - 8, 4096) + 1)
            )
            if any(announced):
                yield number


@pytest.mark.parametrize(("path", "whole"), [(CUT, 11), (LOSSY, 238)], ids=["cut", "lossy"])
def test_what_is_whole_comes_out(path: Path, whole: int) -> None:
    expected = set(whole_messages(path))
    assert len(expected) == whole
    with Decoding([str(path)]) as decoding:
        found = {key_of(record) for record in decoding.records() if record.tp.payload_missing is None}
    assert expected - found == set()


def test_the_scan_finds_what_is_known_to_be_there(chain: Original) -> None:
    path = recorded("basic_chain.pcap")
    assert set(whole_messages(path)) == set(chain.messages)


def test_no_tensor_of_a_lossy_capture_is_wrong() -> None:
    """Each call of stress.py sends its own number in every element, and as its first argument.

    15 of the tensors with elements have a certain place and all bytes: of the 16 lanes every one lost some.
    """
    certain = 0
    for message in decode(LOSSY).messages:
        text = (message["body"].get("args") or [message["body"].get("value")])[0]
        number = re.match(r"\(?(\d+)", text or "")
        for tensor in message["tensors"]:
            if tensor["sha256"] is not None and number is not None:
                data = struct.pack("<f", int(number[1])) * tensor["shape"][0]
                assert tensor["sha256"] == sha256(data).hexdigest()
                certain += tensor["shape"][0] > 0
    assert certain >= 15


# --- the command ---


def test_the_command_writes_its_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- damage: begin -->\nold\n<!-- damage: end -->\nafter\n")
    arguments = ["--seeds", "1", "--jobs", "1", "--write", str(page), "captures/basic_chain.pcap"]
    done = subprocess.run(
        [sys.executable, "bench/damage.py", *arguments],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.startswith("before\n<!-- damage: begin -->\n\n### Channel `basic`\n")
    assert text.endswith("|\n\n<!-- damage: end -->\nafter\n")
    assert "old" not in text
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    assert rows[1:] == [f"| {damage.name}" for damage in DAMAGES]


def test_the_page_holds_every_row_and_nothing_wrong() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- damage: begin -->\n")
    tables, _, _ = rest.partition("<!-- damage: end -->")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in tables.splitlines()
        if line.startswith("|")
    ]
    columns, rows = rows[0], [row for row in rows if row[0] in {damage.name for damage in DAMAGES}]
    assert len(rows) % len(DAMAGES) == 0
    assert rows
    for row in rows:
        fields = list(zip(columns, row, strict=True))
        assert [value for name, value in fields if name in ("lost", "wrong")] == ["0", "0", "0"], row


@pytest.mark.slow
def test_the_whole_matrix(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> None:
    """Every capture, 100 seeds; prints what share was recovered. Many minutes: only with `-m slow`."""
    if "slow" not in (request.config.option.markexpr or ""):
        pytest.skip("takes many minutes: pytest -m slow tests/test_damage.py, or make damage")
    done = subprocess.run(
        [sys.executable, "bench/damage.py"],
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=7200,
        cwd=ROOT,
    )
    with capfd.disabled():
        print(f"\n{done.stdout}")
    assert done.returncode == 0, done.stderr[-4000:]


def test_shares() -> None:
    verdict = Verdict()
    assert verdict.share("a", "a", "b") == 100
    verdict.counts.update(a=3, b=1)
    assert verdict.share("a", "a", "b") == 75
