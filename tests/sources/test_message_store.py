"""Messages in a store come back by row and in order, before and after their block was written."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import zstandard
from msgspec.structs import replace

from rpcinspect.errors import DecodeError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.sources import message_store
from rpcinspect.sources.message_store import MessageStore, unpacked
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tensorpipe.records import Placement, TpMessage, TpTensor
from tests.places import content
from tests.sources.test_message_codec import told


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TpMessage]]:
    path = tmp_path_factory.mktemp("store") / "a.pcap"
    path.write_bytes(content("torch/stress_basic.pcap"))
    with Decoding([str(path)], Options(audit=False)) as decoding:
        yield [record.tp for record in decoding.records()]


def test_rows_come_back_while_more_are_added(messages: list[TpMessage]) -> None:
    with MessageStore() as store:
        for start in range(0, len(messages), 100):
            some = messages[start : start + 100]
            store.extend(some)
            assert len(store) == start + len(some)
            for row in (0, start // 2, len(store) - 1):
                assert told(store[row]) == told(messages[row])
        assert [told(tp) for tp in store] == [told(tp) for tp in messages]
        assert len(store.places) == 3
        for row in (-1, len(messages)):
            with pytest.raises(IndexError):
                store[row]


def test_large_messages_end_their_block(messages: list[TpMessage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_store, "BLOCK_BYTES", 2000)
    with MessageStore() as store:
        store.extend(messages[:100])
        assert len(store.places) > 10
        assert [told(tp) for tp in store] == [told(tp) for tp in messages[:100]]


def test_tensors_of_many_pieces_end_their_block(messages: list[TpMessage]) -> None:
    tp = next(tp for tp in messages if any(tensor.extent and tensor.extent.pieces for tensor in tp.tensors))
    pieces = tuple((0, 100 * number, 10) for number in range(20_000))
    large = TpTensor(tp.descriptor.tensors[0], Placement.CERTAIN, Extent(200_000, pieces))
    with MessageStore() as store:
        store.extend([replace(tp, tensors=[large]) for _ in range(40)])
        store.flush()
        assert len(store.places) == 10


def test_memory_does_not_grow_with_messages(messages: list[TpMessage]) -> None:
    """Beside the blocks at hand there are a few numbers for each."""
    with MessageStore() as store:
        for _ in range(4):
            store.extend(messages)
        assert store[len(store) - 1000].payloads
        before = len(gc.get_objects())
        for _ in range(20):
            store.extend(messages)
        assert store.bytes < 100 * len(store)
        assert len(gc.get_objects()) - before < len(messages)


def test_blocks_at_hand_are_bounded(messages: list[TpMessage], monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore() as store:
        store.extend(messages)
        store.flush()
        first, second, third = (place.size for place in store.places)
        monkeypatch.setattr(message_store, "KEPT_BYTES", first + second)
        for row, kept in ((0, [0]), (600, [0, 1]), (0, [1, 0]), (1100, [0, 2]), (600, [2, 1])):
            assert told(store[row]) == told(messages[row])
            assert list(store._kept) == kept
        assert third <= first


def test_an_empty_store() -> None:
    with MessageStore() as store:
        store.extend([])
        assert len(store) == 0
        assert list(store) == []


def test_packed_bytes_are_never_more_than_announced() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 26))
    by = zstandard.ZstdDecompressor()
    assert unpacked(zstandard.ZstdCompressor().compress(b"abc"), 3, by) == b"abc"
    for data, size in ((bomb, 10), (b"", 0), (b"abc", 3), (bomb[:-5], 1 << 26), (bomb + b"x", 1 << 26)):
        with pytest.raises(DecodeError, match="packed bytes"):
            unpacked(data, size, by)
