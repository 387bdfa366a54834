"""Which byte stands where: against the capture file, and by what must hold for any message."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.browse.message_bytes import BLOCK_BYTES, ByteListing, MessageBytes, MessagePart
from rpcinspect.tcp.ranges import Extent
from rpcinspect.views.message_parts import COMMAND, DESCRIPTOR, ID, TABLE, TYPE
from tests.browse.messages import call
from tests.places import content, recorded
from tests.views.opened import opened


@st.composite
def parts(draw: st.DrawFn) -> list[MessagePart]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        length = draw(st.integers(0, 90))
        edges = sorted(draw(st.lists(st.integers(0, length), max_size=6, unique=True)))
        missing = tuple(zip(edges[::2], edges[1::2], strict=False))
        found.append(
            MessagePart(f"part {number}", "", length, storage=number, extent=Extent(length, (), missing))
        )
    return found


@given(parts=parts(), per_line=st.integers(1, 20))
def test_every_byte_stands_in_one_line(parts: list[MessagePart], per_line: int) -> None:
    listing = ByteListing(parts, per_line)
    seen: dict[tuple[int, int], int] = {}
    titles = []
    for number in range(listing.count):
        span = listing.line(number)
        assert span.line == number
        if span.kind == "title":
            titles.append(span.part)
        for at in range(span.start, span.end):
            assert (span.part, at) not in seen
            seen[span.part, at] = number
        if span.kind == "bytes":
            assert 0 < span.end - span.start <= per_line
            assert span.start % per_line == 0
        if span.kind == "hole":
            gone = [at for low, high in parts[span.part].holes for at in range(low, high)]
            assert set(range(span.start, span.end)) <= set(gone)
    assert titles == list(range(len(parts)))
    assert set(seen) == {(number, at) for number, part in enumerate(parts) for at in range(part.length)}
    assert all(listing.line_of(*byte) == line for byte, line in seen.items())


def test_a_long_hole_is_one_line() -> None:
    hole = MessagePart(
        "storage 0", "", 1 << 40, storage=0, extent=Extent(1 << 40, (), ((20, (1 << 40) - 5),))
    )
    kinds = [ByteListing([hole], 16).line(number).kind for number in range(5)]
    assert kinds == ["title", "bytes", "bytes", "hole", "bytes"]
    assert ByteListing([hole], 16).count == 5


@pytest.mark.parametrize("name", ["basic_chain.pcap", "views_alias.pcap.gz", "torch/snap300.pcap"])
def test_bytes_of_storages_are_those_of_the_file(name: str) -> None:
    data = content(name)
    seen = holes = 0
    with opened(recorded(name)) as capture:
        for record in capture.records:
            message = MessageBytes(record, capture.bytes, capture.session)
            for number in range(message.storages, len(message.parts)):
                part = message.parts[number]
                if part.extent is None:
                    continue
                read = message.read(number, 0, part.length)
                assert len(read) == part.length
                missing = message.missing(number, 0, part.length)
                for at in range(part.length):
                    offset = part.offset(at)
                    if any(low <= at < high for low, high in missing):
                        assert offset is None
                        holes += 1
                    else:
                        assert offset is not None
                        assert data[offset] == read[at]
                        seen += 1
    assert seen > 100
    assert (holes > 0) == ("snap300" in name)


def test_of_a_large_storage_only_blocks_are_read() -> None:
    reads = []
    record, source = call(storages=[bytes(1 << 26)])
    inner = source._pread
    source._pread = lambda *piece: reads.append(piece) or inner(*piece)
    message = MessageBytes(record, source)
    last = len(message.parts) - 1
    assert message.read(last, (1 << 25) - 3, (1 << 25) + 5) == bytes(8)
    assert message.read(last, (1 << 25) - 16, 1 << 25) == bytes(16)
    assert reads == [(0, (1 << 25) - BLOCK_BYTES, BLOCK_BYTES), (0, 1 << 25, BLOCK_BYTES)]


def test_parts_by_name() -> None:
    with opened(Path("basic_chain.pcap")) as capture:
        message = MessageBytes(capture.messages[6], capture.bytes, capture.session)
        for name in (DESCRIPTOR, TYPE, ID, COMMAND, TABLE):
            (found,) = message.of("nothing of that name", name)
            assert message.parts[found.part].name == name
            assert (found.start, found.end) == (0, message.parts[found.part].length)
        assert message.of("nothing of that name") == ()
        first = message.parts[message.storages]
        assert (first.name, first.length) == ("storage 0", 48)
        assert first.about.endswith(" of basic_chain.pcap")


def test_what_is_not_placed_says_why() -> None:
    with opened(recorded("transport_matrix_uv_only.pcap")) as capture:
        lacks = {
            part.lack
            for record in capture.records
            for part in MessageBytes(record, capture.bytes).parts
            if part.storage is not None and part.extent is None
        }
    assert lacks <= {"not captured", "captured, but which bytes of the capture they are is not certain"}
