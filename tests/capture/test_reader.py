"""Opening by magic, what a reader counts, and the captures of other projects."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from rpcinspect.capture import CaptureReader, Reading
from rpcinspect.capture.reader import READERS
from rpcinspect.errors import CaptureError
from rpcinspect.problems import Problem
from tests.builders import Captured, pcap_file, pcapng_file
from tests.places import foreign

PACKETS = [Captured(b"b", 20), Captured(b"a", 10), Captured(b"c", 30)]


@pytest.mark.parametrize("make", [pcap_file, pcapng_file])
@pytest.mark.parametrize(
    ("compression", "pack"), [(None, bytes), ("gzip", gzip.compress), ("zstd", zstandard.compress)]
)
def test_format_is_told_by_content(
    make: Callable[[list[Captured]], bytes],
    compression: str | None,
    pack: Callable[[bytes], bytes],
    tmp_path: Path,
) -> None:
    path = tmp_path / "capture.txt"
    data = make(PACKETS)
    path.write_bytes(pack(data))
    with CaptureReader(str(path), 2) as reader:
        assert (reader.first_time_ns, reader.last_time_ns, reader.packets) == (None, None, 0)
        (block,) = reader.blocks()
    assert block.capture == 2
    assert (reader.path, reader.format, reader.compression) == (str(path), make.__name__[:-5], compression)
    assert (reader.packets, reader.bytes) == (3, len(data))
    assert (reader.first_time_ns, reader.last_time_ns) == (10, 30)


def test_problems_name_capture_and_packet(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(gzip.compress(pcap_file(PACKETS)[:-1]))
    with CaptureReader(str(path), 4) as reader:
        list(reader.blocks())
    (problem,) = reader.problems
    assert isinstance(problem, Problem)
    assert (problem.layer, problem.location.capture, problem.location.packet) == ("capture", 4, 3)


@pytest.mark.parametrize("size", [1, 9, 12, 15])
def test_compressed_file_without_content_is_one_line(size: int, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(gzip.compress(pcap_file(PACKETS))[:size])
    with pytest.raises(CaptureError) as caught:
        CaptureReader(str(path), reading=Reading(reader="native"))
    assert "\n" not in str(caught.value)


def test_magics_do_not_hide_each_other() -> None:
    magics = [magic for magic, _, _ in READERS]
    assert len(set(magics)) == len(magics)
    assert not [(a, b) for a in magics for b in magics if a != b and a.startswith(b)]


def test_captures_of_other_projects() -> None:
    """Every one ends without any exception but CaptureError, with the number of packets of the list."""
    folder = foreign("thirdparty")
    with (folder / "INDEX.tsv").open() as index:
        expected = {row["file"]: int(row["packets"]) for row in csv.DictReader(index, delimiter="\t")}
    wrong = []
    for name, packets in expected.items():
        try:
            with CaptureReader(str(folder / name), 0, Reading(reader="native")) as reader:
                for block in reader.blocks():
                    assert len(block) > 0
                    assert (block.caplen >= 0).all()
                    assert (block.length >= block.caplen).all()
                    assert (block.offset >= block.window_offset).all()
                    assert (block.offset + block.caplen <= block.window_offset + len(block.window)).all()
        except CaptureError:
            assert "invalid-version-1" in name  # version 1.4 does not exist
            continue
        if reader.packets != packets and not reader.problems:
            wrong.append((name, reader.packets, packets))
    assert wrong == []
