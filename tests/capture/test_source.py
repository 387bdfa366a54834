"""Where the bytes come from: files, pipes, gzip and Zstandard, whole, cut and damaged."""

from __future__ import annotations

import gzip
import io
import os
import random
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpcinspect.capture import CaptureReader, Reading
from rpcinspect.capture.source import Source, open_source
from rpcinspect.errors import CaptureError
from rpcinspect.limits import Unpacking
from tests.builders import Captured, pcap_file
from tests.thorough import examples

NOISE = random.Random(7).randbytes(300_000) + bytes(3_000_000) + random.Random(8).randbytes(300_000)


def read_whole(source: Source) -> bytes:
    parts, position = [], 0
    while part := source.window(position, 1):
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def skippable(data: bytes) -> bytes:
    return b"\x50\x2a\x4d\x18" + len(data).to_bytes(4, "little") + data


PACKED: dict[str, tuple[str | None, Callable[[bytes], bytes]]] = {
    "plain": (None, lambda data: data),
    "gzip": ("gzip", lambda data: gzip.compress(data, 1)),
    "gzip in members": ("gzip", lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:], 1)),
    "gzip padded with zeros": ("gzip", lambda data: gzip.compress(data, 1) + bytes(512)),
    "zstd": ("zstd", lambda data: zstandard.compress(data)),
    "zstd in frames": (
        "zstd",
        lambda data: skippable(b"hello") + zstandard.compress(data[:100]) + zstandard.compress(data[100:]),
    ),
}


@pytest.mark.parametrize("how", PACKED)
@pytest.mark.parametrize("window", [1 << 22, 1 << 16])
def test_whole(how: str, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.capture.source.WINDOW", window)
    compression, pack = PACKED[how]
    path = tmp_path / "input"
    path.write_bytes(pack(NOISE))
    problems: list[str] = []
    with open_source(str(path), problems.append) as source:
        assert source.compression == compression
        assert read_whole(source) == NOISE
        assert source.read_to == len(NOISE)
        assert source.pread(299_990, 20) == NOISE[299_990:300_010]
        assert source.pread(len(NOISE) - 5, 20) == NOISE[-5:]
        assert source.window(10, 2_000_000)[:2_000_000] == NOISE[10:2_000_010]
    assert problems == []


@pytest.mark.parametrize("how", ["gzip", "zstd"])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_truncated(how: str, share: float, tmp_path: Path) -> None:
    packed = PACKED[how][1](NOISE)
    path = tmp_path / "input"
    path.write_bytes(packed[: int(len(packed) * share)])
    problems: list[str] = []
    with open_source(str(path), problems.append) as source:
        data = read_whole(source)
    assert NOISE.startswith(data)
    assert len(data) > share * 0.4 * len(NOISE) * (share > 0.5)
    assert len(problems) == 1
    assert "end too early" in problems[0]


def test_damaged_gzip_gives_all_before_the_damage(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(NOISE, 0))  # stored: the damage is where it is put
    packed[-4] ^= 1  # the length at the end
    path = tmp_path / "input"
    path.write_bytes(packed)
    problems: list[str] = []
    with open_source(str(path), problems.append) as source:
        assert read_whole(source) == NOISE
    assert len(problems) == 1
    assert "damaged" in problems[0]


def test_damaged_zstd_gives_blocks_before_the_damage(tmp_path: Path) -> None:
    packed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(NOISE))
    packed[-1] ^= 1  # the checksum at the end
    path = tmp_path / "input"
    path.write_bytes(packed)
    problems: list[str] = []
    with open_source(str(path), problems.append) as source:
        data = read_whole(source)
    assert NOISE.startswith(data)
    assert len(data) > 3_000_000
    assert len(problems) == 1
    assert "damaged" in problems[0]


def test_bytes_after_gzip(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(gzip.compress(b"content") + b"more")
    problems: list[str] = []
    with open_source(str(path), problems.append) as source:
        assert read_whole(source) == b"content"
    assert len(problems) == 1


def test_a_gzip_that_expands_a_thousandfold_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(gzip.compress(bytes(1 << 26), 9))
    with open_source(str(path), pytest.fail) as source:
        first = source.window(0, 1)
        assert len(first) == 1 << 22
        assert os.fstat(source._descriptor).st_size <= 6 << 20  # spooled no further than asked


def test_what_is_not_read_of_a_gzip_is_said(tmp_path: Path) -> None:
    path, told = tmp_path / "input", list[str]()
    path.write_bytes(gzip.compress(bytes(1 << 20), 9))
    with open_source(str(path), told.append, Unpacking(bytes=1000)) as source:
        assert read_whole(source) == bytes(1000)
        assert told == [source.ended_early]
    assert told[0].startswith("the gzip data hold more than 1,000 bytes")


@pytest.mark.parametrize("path", ["/nonexistent/capture.pcap", ".", "bad\0name"])
def test_what_cannot_be_opened(path: str) -> None:
    with pytest.raises(CaptureError) as caught:
        open_source(path, pytest.fail)
    assert "\n" not in str(caught.value)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("no /proc to count descriptors in")
    for name, data in {
        "good": pcap_file([]),
        "packed": gzip.compress(pcap_file([])),
        "bad": b"nothing known",
        "worse": gzip.compress(b"nothing known"),
        "empty": b"",
    }.items():
        (tmp_path / name).write_bytes(data)
        before = len(list(folder.iterdir()))
        try:
            with CaptureReader(str(tmp_path / name)) as reader:
                list(reader.blocks())
                reader.close()
        except CaptureError:
            pass
        assert len(list(folder.iterdir())) == before, name


@pytest.mark.parametrize("how", ["plain", "gzip", "zstd"])
def test_pipe(how: str, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    packed = PACKED[how][1](NOISE)

    def write() -> None:
        with path.open("wb") as pipe:
            pipe.write(packed)

    writer = threading.Thread(target=write)
    writer.start()
    with open_source(str(path), pytest.fail) as source:
        assert read_whole(source) == NOISE
        assert source.pread(300_000 - 3, 6) == NOISE[299_997:300_003]
    writer.join()


def test_live_pipe_gives_packets_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    data = pcap_file([Captured(b"first", 1), Captured(b"second", 2), Captured(b"third", 3)])
    second = 24 + 16 + 5
    third = second + 16 + 6
    seen = threading.Semaphore(0)

    def write() -> None:
        # each part is written only after the packets before it were seen
        with path.open("wb", buffering=0) as pipe:
            pipe.write(data[: second + 3])  # ends within the second record
            assert seen.acquire(timeout=20)
            pipe.write(data[second + 3 : third])
            assert seen.acquire(timeout=20)
            pipe.write(data[third:])

    writer = threading.Thread(target=write)
    writer.start()
    packets = []
    with CaptureReader(str(path)) as reader:
        for block in reader.blocks():
            for offset, caplen in zip(block.offset.tolist(), block.caplen.tolist(), strict=True):
                packets.append(reader.pread(offset, caplen))
                seen.release()
    writer.join()
    assert packets == [b"first", b"second", b"third"]


def test_standard_input_without_a_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    file = types.SimpleNamespace(buffer=io.BytesIO(pcap_file([Captured(b"abc", 1)])))
    monkeypatch.setattr(sys, "stdin", file)
    with CaptureReader("-") as reader:
        (block,) = reader.blocks()
        assert reader.pread(int(block.offset[0]), 3) == b"abc"


def test_standard_input_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "input"
    path.write_bytes(gzip.compress(pcap_file([Captured(b"abc", 1)])))
    with path.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", file)
        with CaptureReader("-") as reader:
            assert reader.compression == "gzip"
            assert sum(len(block) for block in reader.blocks()) == 1
        assert not file.closed  # ours was a copy of the descriptor


def test_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(gzip.compress(pcap_file([Captured(b"abc", 1)])))
    reader = CaptureReader(str(path))

    def read_until_interrupted() -> None:
        with reader:
            for _ in reader.blocks():
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_until_interrupted()
    with pytest.raises(CaptureError):
        reader.pread(0, 1)


SMALL = {
    "gzip": gzip.compress(pcap_file([Captured(b"hello " * 20, 5)] * 3), mtime=0),
    "zstd": zstandard.compress(pcap_file([Captured(b"hello " * 20, 5)] * 3)),
}


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    how=st.sampled_from(sorted(SMALL)),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    share=st.floats(0, 1),
)
def test_damage_is_a_problem_or_a_capture_error(
    how: str, changes: list[tuple[int, int]], share: float, tmp_path: Path
) -> None:
    data = bytearray(SMALL[how])
    for at, value in changes:
        if at < len(data):
            data[at] = value
    path = tmp_path / "capture"
    path.write_bytes(data[: int(share * len(data))])
    try:
        with CaptureReader(str(path), reading=Reading(reader="native")) as reader:
            for block in reader.blocks():
                assert len(block) > 0
    except CaptureError:
        pass
