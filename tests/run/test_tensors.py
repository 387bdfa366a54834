"""Tensors of messages: which bytes are theirs, what is missing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rpcinspect.run.tensors import NO_STORAGE, LastRead, bytes_of, hash_of, place_of, storage_of
from rpcinspect.tensorpipe.records import Placement
from tests.places import recorded
from tests.views.opened import CAPTURES, opened


def test_bytes_are_those_of_the_file() -> None:
    data = (CAPTURES / "basic_chain.pcap").read_bytes()
    with opened(Path("basic_chain.pcap")) as capture:
        record = capture.messages[6]
        for meta in record.rpc.tensors:
            storage = storage_of(record, meta)
            assert storage is not None
            assert storage.extent is not None
            ((number, offset, length),) = storage.extent.pieces
            assert number == 0
            expected = data[offset : offset + length]
            assert bytes_of(record, meta, LastRead(capture.bytes)) == expected
            assert hash_of(record, meta, LastRead(capture.bytes)) == hashlib.sha256(expected).hexdigest()
            place = place_of(record, meta)
            assert (place.storage_nbytes, place.missing_bytes) == (length, 0)
            assert (place.placement, place.target_device) == (Placement.CERTAIN, "cpu")


def test_views_share_a_storage() -> None:
    with opened(Path("views_alias.pcap.gz")) as capture:
        record = capture.messages[24]  # 'shared pair'
        first, second = record.rpc.tensors
        assert storage_of(record, first) is storage_of(record, second)
        assert hash_of(record, first, LastRead(capture.bytes)) != hash_of(
            record, second, LastRead(capture.bytes)
        )


def test_bytes_that_never_were_on_the_wire() -> None:
    with opened(Path("transport_matrix_uv_only.pcap.gz")) as capture:
        record = capture.messages[6]
        meta = record.rpc.tensors[0]
        place = place_of(record, meta)
        assert (place.storage_nbytes, place.missing_bytes) == (16_000, 16_000)
        assert place.placement is Placement.MISSING
        assert bytes_of(record, meta, LastRead(capture.bytes)) is None
        assert hash_of(record, meta, LastRead(capture.bytes)) is None


def test_a_sparse_tensor_is_as_certain_as_its_parts() -> None:
    with opened(recorded("torch/sparse.pcap")) as capture:
        record = capture.messages[4]
        sparse = record.rpc.tensors[0]
        assert sparse.layout == "sparse_coo"
        assert storage_of(record, sparse) is None
        place = place_of(record, sparse)
        assert (place.storage_nbytes, place.missing_bytes, place.placement) == (None, 0, Placement.CERTAIN)
        assert hash_of(record, sparse, LastRead(capture.bytes)) is None
        assert all(
            hash_of(record, record.rpc.tensors[part], LastRead(capture.bytes)) for _, part in sparse.parts
        )


@pytest.mark.parametrize("cut", [1, 40])
def test_cut_packets_leave_bytes_missing(cut: int) -> None:
    with opened(recorded("torch/snap300.pcap")) as capture:
        missing = 0
        for record in capture.records:
            for meta in record.rpc.tensors:
                place = place_of(record, meta)
                missing += place.missing_bytes
                if place.missing_bytes:
                    assert bytes_of(record, meta, LastRead(capture.bytes)) is None
                    assert hash_of(record, meta, LastRead(capture.bytes)) is None
        assert missing > cut
        assert NO_STORAGE.missing_bytes == 0
