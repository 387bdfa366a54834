"""An index that is damaged, cut, or of other captures is not used, with one line that says so; one that was
made wrong on purpose ends in one line, too."""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from rpcinspect.errors import CaptureError
from rpcinspect.limits import DEFAULT_LIMITS
from rpcinspect.pipeline import Decoding, make_index
from rpcinspect.sources import index_file
from rpcinspect.sources.index import IndexSource
from rpcinspect.sources.index_file import FORMAT, HEAD, NAME, IndexFile, Preface, open_index, stamp_of
from rpcinspect.sources.message_codec import from_json, to_json
from tests.cli.runner import CHAIN, rpcinspect

AGAIN = "`rpcinspect browse --index {}` makes it again"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy2(CHAIN, tmp_path / "a.pcap"))


@pytest.fixture
def place(path: Path) -> Path:
    return make_index([str(path)])


def opened(path: Path, place: Path | None = None) -> IndexFile | str | None:
    found = open_index(place or Path(f"{path}.rpcidx"), [str(path)], DEFAULT_LIMITS)
    if isinstance(found, IndexFile):
        found.close()
    return found


def not_used(path: Path, why: str) -> None:
    """The packets are read, and one line on standard error says why."""
    plain = rpcinspect("decode", CHAIN, "--format", "jsonl")
    found = rpcinspect("decode", path, "--format", "jsonl")
    assert found.out == plain.out.replace(str(CHAIN), str(path))
    assert found.err == f"rpcinspect: {path}.rpcidx: {why}, not used; {AGAIN.format(path)}\n"
    assert found.code == 0


def test_a_cut_index(path: Path, place: Path) -> None:
    data = place.read_bytes()
    for size in range(len(data)):
        os.truncate(place, size) if size == 0 else place.write_bytes(data[:size])
        found = opened(path)
        assert isinstance(found, str)
        assert "damaged" in found
    not_used(path, "damaged (it was cut, or is longer than it was written)")


def test_a_longer_index(path: Path, place: Path) -> None:
    place.write_bytes(place.read_bytes() + b"\0")
    not_used(path, "damaged (it was cut, or is longer than it was written)")


def test_every_byte_counts(path: Path, place: Path) -> None:
    """Whichever byte is another one, the index is not used."""
    data = place.read_bytes()
    chance = random.Random(1)
    for at in range(len(data)):
        other = bytearray(data)
        other[at] ^= 1 << chance.randrange(8)
        place.write_bytes(other)
        assert isinstance(opened(path), str), at


def test_a_capture_that_has_changed(path: Path, place: Path) -> None:
    with path.open("ab") as file:
        file.write(CHAIN.read_bytes()[24:])
    assert rpcinspect("findings", path).err == (
        f"rpcinspect: {place}: made for another version of a.pcap, not used; {AGAIN.format(path)}\n"
    )


def test_a_capture_that_was_touched(path: Path, place: Path) -> None:
    os.utime(path, ns=(0, 0))
    not_used(path, "made for another version of a.pcap")


def test_another_capture_of_the_same_size_and_time(path: Path, place: Path) -> None:
    state, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    found = opened(path)
    assert isinstance(found, str)
    assert "made for another version of a.pcap" in found


def test_a_capture_that_has_another_name(path: Path, place: Path) -> None:
    state = path.stat()
    path.rename(path.with_name("b.pcap"))
    place.rename(place.with_name("b.pcap.rpcidx"))
    assert path.with_name("b.pcap").stat().st_mtime_ns == state.st_mtime_ns
    assert isinstance(opened(path.with_name("b.pcap")), IndexFile)


def test_the_index_of_another_capture(path: Path, place: Path) -> None:
    other = Path(shutil.copy2(CHAIN.with_name("param_detach.pcap"), path.with_name("b.pcap")))
    shutil.copy2(make_index([str(other)]), place)
    not_used(path, "made for another version of a.pcap")


def test_the_index_of_more_captures(path: Path) -> None:
    other = Path(shutil.copy2(CHAIN, path.with_name("b.pcap")))
    assert make_index([str(path), str(other)]) == Path(f"{path}.rpcidx")
    not_used(path, "made for other captures")


def test_other_code(path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "code_version", lambda: "0.0.9")
    not_used(path, "made by another version of rpcinspect")


def test_a_preface_that_says_other_things(path: Path, place: Path) -> None:
    data = b'{"code":"99"}'
    place.write_bytes(HEAD.pack(NAME + FORMAT, len(data), zlib.crc32(data)) + data)
    not_used(path, "made by another version of rpcinspect")


def test_what_is_no_file_is_not_waited_for(path: Path) -> None:
    os.mkfifo(f"{path}.rpcidx")
    assert rpcinspect("findings", path).err == ""
    found = opened(path)
    assert isinstance(found, str)
    assert found.endswith("not a file, not used")


def test_an_index_is_no_capture(place: Path) -> None:
    found = rpcinspect("decode", place)
    assert found.code == 3
    assert "an index that rpcinspect has written beside its capture" in found.err


def test_stamps_see_both_ends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(3 << 20))
    stamp = stamp_of(str(path))
    for at in (0, (1 << 20) - 1, 2 << 20, (3 << 20) - 1):
        data = bytearray(3 << 20)
        data[at] = 1
        path.write_bytes(data)
        assert stamp_of(str(path)).digest != stamp.digest
    with pytest.raises(CaptureError, match="No such file"):
        stamp_of(str(tmp_path / "y"))


# --- made wrong on purpose: every checksum is right ---


class Parts:
    """An index, taken apart."""

    def __init__(self, place: Path) -> None:
        data = place.read_bytes()
        _, length, _ = HEAD.unpack_from(data)
        self.preface = from_json(data[HEAD.size : HEAD.size + length], Preface)
        at = HEAD.size + length
        self.facts = zstandard.decompress(data[at : at + self.preface.facts.packed])
        at += self.preface.facts.packed
        table = data[at : at + self.preface.table.packed]
        at += len(table)
        self.blocks: list[tuple[int, bytes]] = []
        for count, packed, _, _ in struct.iter_unpack("<IIII", table):
            self.blocks.append((count, zstandard.decompress(data[at : at + packed])))
            at += packed

    def write(self, place: Path) -> None:
        pack = zstandard.ZstdCompressor().compress
        facts, blocks = pack(self.facts), [pack(data) for _, data in self.blocks]
        table = b"".join(
            struct.pack("<IIII", count, len(packed), len(data), zlib.crc32(packed))
            for (count, data), packed in zip(self.blocks, blocks, strict=True)
        )
        said = self.preface
        parts = [
            part.__class__(len(packed), size, zlib.crc32(packed))
            for part, packed, size in (
                (said.facts, facts, len(self.facts)),
                (said.table, table, len(table)),
            )
        ]
        fields = {name: getattr(said, name) for name in Preface.__struct_fields__}
        preface = to_json(
            Preface(**fields | {"facts": parts[0], "table": parts[1], "blocks": len(b"".join(blocks))})
        )
        head = HEAD.pack(NAME + FORMAT, len(preface), zlib.crc32(preface))
        place.write_bytes(head + preface + facts + table + b"".join(blocks))


def test_taken_apart_and_put_together_it_is_good(path: Path, place: Path) -> None:
    Parts(place).write(place)
    assert isinstance(opened(path), IndexFile)


def _bomb(parts: Parts) -> None:
    parts.blocks[0] = (24, bytes(1 << 26))


def _large_facts(parts: Parts) -> None:
    parts.facts = parts.facts.replace(b"{", b"{" + b" " * (1 << 26), 1)


def _many(parts: Parts) -> None:
    parts.blocks[0] = (1 << 20, parts.blocks[0][1])


def _none(parts: Parts) -> None:
    parts.blocks.append((0, b""))


def _no_facts(parts: Parts) -> None:
    parts.facts = b"[" * 100_000


def _other_pipes(parts: Parts) -> None:
    parts.facts = parts.facts.replace(b'"number": 0', b'"number": 7', 1)


def _no_clocks(parts: Parts) -> None:
    parts.facts = parts.facts.replace(b'"clocks": [null]', b'"clocks": []')


def _large_number(parts: Parts) -> None:
    parts.facts = re.sub(rb'"first_ns": [0-9]+', b'"first_ns": 1' + b"0" * 30, parts.facts, count=1)


def _layer(parts: Parts) -> None:
    """What a terminal would obey."""
    problem = b'{"layer": "\\u001b]0;x\\u0007", "reason": "", "location": {}}'
    parts.facts = parts.facts.replace(b'"problems": []', b'"problems": [' + problem + b"]")


SPOILT = (_bomb, _large_facts, _many, _none, _no_facts, _other_pipes, _no_clocks, _large_number, _layer)


@pytest.mark.parametrize("spoil", SPOILT)
def test_wrong_on_purpose_is_not_used(spoil: Callable[[Parts], None], path: Path, place: Path) -> None:
    parts = Parts(place)
    before = parts.facts, list(parts.blocks)
    spoil(parts)
    assert (parts.facts, parts.blocks) != before
    parts.write(place)
    found = opened(path)
    assert isinstance(found, str)
    assert "damaged" in found


def _other_block(parts: Parts) -> None:
    parts.blocks[0] = (24, b"\xc0" * 100)


def _fewer(parts: Parts) -> None:
    parts.blocks[0] = (23, parts.blocks[0][1])


def _outside(parts: Parts) -> None:
    """A pipe that is not there."""
    data = parts.blocks[0][1]
    parts.blocks[0] = (24, data.replace(b'"number": 0', b'"number": 9'))


@pytest.mark.parametrize("spoil", [_other_block, _fewer, _outside])
def test_wrong_messages_end_in_one_line(spoil: Callable[[Parts], None], path: Path, place: Path) -> None:
    parts = Parts(place)
    spoil(parts)
    parts.write(place)
    found = rpcinspect("decode", path, "--format", "jsonl")
    assert found.code == 3
    assert found.err.startswith(f"rpcinspect: {place}: it is damaged, remove it: ")
    assert found.err.count("\n") == 1


def test_random_blocks_end_in_messages_or_one_error(path: Path, place: Path) -> None:
    """Blocks with other bytes in them make other messages, whose reading is as safe as that of a capture."""
    whole = Parts(place)
    count, data = whole.blocks[0]
    chance, good = random.Random(2), 0
    for _ in range(150):
        other = bytearray(data)
        for _ in range(chance.randrange(1, 6)):
            other[chance.randrange(len(other))] = chance.randrange(256)
        whole.blocks[0] = (count, bytes(other))
        whole.write(place)
        with Decoding([str(path)]) as decoding:
            assert isinstance(decoding._source, IndexSource)
            try:
                good += len(list(decoding.records())) == 24
            except CaptureError as error:
                assert "it is damaged, remove it" in str(error)  # noqa: PT017
    assert 0 < good < 150
