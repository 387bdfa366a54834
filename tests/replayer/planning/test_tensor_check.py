"""What torch can rebuild and what would end its process, each with torch as the judge."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.peers.loop import Loop
from rpcinspect.replayer.peers.membership import PREFIX
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.planning.tensor_check import TensorChecker
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.replayer.workers.workers import Workers
from rpcinspect.rpc.message import RpcMessage
from rpcinspect.rpc.tensor import Quantizer, TensorMeta, to_tensor_table
from rpcinspect.run.run import open_run
from tests.places import recorded
from tests.replayer.live_calls import SECONDS, python_call, value_of

Case = tuple[bytes, tuple[bytes, ...]]


def longs(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def plain(data: int = 16, **changes: object) -> Case:
    """Four floats, but for the changes, in a storage of so many bytes."""
    fields = {"dtype": "float32", "sizes": (4,), "strides": (1,), "storage": 0, "storage_numel": 4}
    return to_tensor_table([TensorMeta(**(fields | changes))]), (bytes(data),)  # type: ignore[arg-type]


def sparse(
    indices: bytes = longs(0, 1),
    dtype: str = "int64",
    index_sizes: tuple[int, ...] = (1, 2),
    value_sizes: tuple[int, ...] = (2,),
    sizes: tuple[int, ...] = (5,),
    **flags: bool,
) -> Case:
    """A COO tensor of two values, but for the changes. `flags`: of its indices."""

    def part(kind: str, shape: tuple[int, ...], storage: int, **flags: bool) -> TensorMeta:
        strides = (shape[-1], 1) if len(shape) == 2 else (1,) * len(shape)
        return TensorMeta(
            dtype=kind, sizes=shape, strides=strides, storage=storage, storage_numel=2, part_of=0, **flags
        )

    whole = TensorMeta(
        dtype="float32",
        sizes=sizes,
        strides=(),
        layout="sparse_coo",
        parts=(("indices", 1), ("values", 2)),
    )
    table = to_tensor_table([whole, part(dtype, index_sizes, 0, **flags), part("float32", value_sizes, 1)])
    return table, (indices, bytes(8))


def channels(axis: int = 0, scales: int = 2, scheme: str = "per_channel_affine") -> Case:
    """A quantized 2 x 2 matrix."""
    whole = TensorMeta(
        dtype="qint8",
        sizes=(2, 2),
        strides=(2, 1),
        storage=0,
        storage_numel=4,
        quantizer=Quantizer(scheme=scheme, axis=axis),
        parts=(("scales", 1), ("zero_points", 2)),
    )
    parts = [
        TensorMeta(dtype=kind, sizes=(n,), strides=(1,), storage=i, storage_numel=n, part_of=0)
        for i, kind, n in ((1, "float64", scales), (2, "int64", 2))
    ]
    return to_tensor_table([whole, *parts]), (bytes(4), bytes(8 * scales), bytes(16))


def compressed(
    crow: tuple[int, ...] = (0, 1, 2), col: tuple[int, ...] = (2, 0), dense: tuple[int, ...] = ()
) -> Case:
    """A CSR tensor of 2 x 3."""
    whole = TensorMeta(
        dtype="float32",
        sizes=(2, 3, *dense),
        strides=(),
        layout="sparse_csr",
        parts=(("crow_indices", 1), ("col_indices", 2), ("values", 3)),
    )
    values = (len(col), *dense)
    count = len(col) * (dense[0] if dense else 1)
    parts = [
        TensorMeta(dtype=kind, sizes=sizes, strides=strides, storage=i, storage_numel=n, part_of=0)
        for i, kind, sizes, strides, n in (
            (0, "int64", (len(crow),), (1,), len(crow)),
            (1, "int64", (len(col),), (1,), len(col)),
            (2, "float32", values, (dense[0], 1) if dense else (1,), count),
        )
    ]
    return to_tensor_table([whole, *parts]), (longs(*crow), longs(*col), bytes(4 * count))


def quantized(dtype: str, scheme: str) -> Case:
    return plain(dtype=dtype, quantizer=Quantizer(scheme=scheme, scale=1.0, zero_point=0))


GOOD: dict[str, Case] = {
    "floats": plain(),
    "requires grad": plain(requires_grad=True),
    "expanded": plain(data=4, sizes=(3, 4), strides=(0, 0), storage_numel=1),
    "empty": plain(data=0, sizes=(0, 9), strides=(9, 1), storage_numel=0),
    "empty view": plain(sizes=(0,), storage_offset=4),
    "of a GPU": plain(device="cuda:1"),
    "negated": plain(neg=True),
    "conjugated": plain(dtype="complex64", sizes=(2,), storage_numel=2, conj=True),
    "bools": plain(data=4, dtype="bool"),
    "compressed rows": compressed(),
    "columns out of order": compressed((0, 2, 2), (1, 0)),
    "an empty row and a dense dimension": compressed((0, 0, 2), (0, 1), dense=(3,)),
    "quantized": quantized("qint8", "per_tensor_affine"),
    "per channel": channels(),
    "sparse": sparse(),
    "hybrid sparse": sparse(index_sizes=(1, 1), value_sizes=(1, 2), sizes=(5, 2)),
}

SAID = "more elements than its storage is said to have"

BAD: dict[str, tuple[Case, str]] = {
    "garbage": ((b"garbage", ()), "its tensor table"),
    "nothing": ((b"", ()), "its tensor table"),
    "no list": ((b"\x80\x02K\x01.", ()), "expected a call, found int"),
    "other hooks": ((plain()[0].replace(b"OrderedDict", b"UnknownDict"), (bytes(16),)), "is not written as"),
    "no storage": ((plain()[0], ()), "storage 0 needs 16 bytes and is not there"),
    "another storage": (plain(storage=5), "storage 5 needs 16 bytes and is not there"),
    "short storage": (plain(data=15), "storage 0 needs 16 bytes and has 15"),
    "long tensor": (plain(data=20, sizes=(5,)), SAID),
    "outside and empty": (plain(data=0, sizes=(0,), storage_offset=5, storage_numel=0), SAID),
    "packed": (plain(data=2, dtype="quint4x2", sizes=(3,), storage_numel=2), SAID),
    "absurd size": (plain(sizes=(1 << 40,)), SAID),
    "absurd offset": (plain(storage_offset=1 << 40), SAID),
    "a storage of fewer": (plain(storage_numel=3), SAID),
    "a storage of less than nothing": (plain(sizes=(0,), storage_numel=-1), SAID),
    "absurd size beside a zero": (
        plain(sizes=(1 << 62, 1 << 62, 0), strides=(0, 0, 0)),
        "more elements than any job has",
    ),
    "absurd stride": (plain(strides=(1 << 62,)), "more elements than any job has"),
    "absurd count": (plain(sizes=(1 << 32, 1 << 32), strides=(0, 0)), "more elements than any job has"),
    "vast": (plain(sizes=((1 << 47) + 1,), strides=(0,)), "more elements than any job has"),
    "unknown device": (plain(device="foo"), "the device 'foo'"),
    "no device": (plain(device=""), "the device ''"),
    "grad of ints": (plain(dtype="int32", requires_grad=True), "int32 can't require grad"),
    "conjugated floats": (plain(conj=True), "float32 can't be conjugated"),
    "quantized floats": (quantized("float32", "per_tensor_affine"), "float32 can't be quantized"),
    "unknown scheme": (quantized("qint8", "foo"), "the quantization scheme 'foo'"),
    "symmetric": (quantized("qint8", "per_tensor_symmetric"), "the quantization scheme"),
    "one scale": (channels(scales=1), "the scales are not one per channel"),
    "no such axis": (channels(axis=7), "axis 7 of 2"),
    "without a quantizer": (plain(data=4, dtype="qint8"), "qint8 without a quantizer"),
    "float indices": (sparse(dtype="float32"), "no matrix of int64"),
    "flat indices": (sparse(index_sizes=(2,)), "no matrix of int64"),
    "negated indices": (sparse(neg=True), "not as they are stored"),
    "indices that require grad": (sparse(requires_grad=True), "not as they are stored"),
    "more dimensions": (sparse(sizes=(5, 5, 5)), "do not fit"),
    "fewer values": (sparse(value_sizes=(1,)), "do not fit"),
    "index too large": (sparse(longs(0, 5)), "indices outside of it"),
    "negative index": (sparse(longs(0, -1)), "indices outside of it"),
    "column too large": (compressed((0, 1, 2), (0, 3)), "indices outside of it"),
    "negative column": (compressed((0, 1, 2), (-1, 1)), "indices outside of it"),
    "rows overlap": (compressed((0, 2, 1), (0, 1)), "the rows of a sparse tensor overlap"),
    "rows have gaps": (compressed((1, 1, 2), (0, 1)), "the rows of a sparse tensor overlap"),
    "rows missing": (compressed((0, 2), (0, 1)), "do not fit"),
}

HARMLESS_AT_FIRST = {
    "negated indices",
    "without a quantizer",
    "short storage",
    "no such axis",
    "index too large",
    "negative index",
    "column too large",
    "negative column",
    "rows have gaps",
    "rows missing",
    "rows overlap",
    "vast",
}
"""torch takes these, or may, and goes wrong when the tensor is used."""


@pytest.mark.parametrize("name", GOOD)
def test_good_tensors_pass(name: str) -> None:
    checker = TensorChecker()
    for _ in range(2):
        checker.check(*GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_bad_tensors_are_refused(name: str) -> None:
    (table, storages), reason = BAD[name]
    with pytest.raises(ReplayError) as caught:
        TensorChecker().check(table, storages)
    assert reason in str(caught.value)


def test_torch_takes_the_good_ones(group: LiveGroup) -> None:
    worker = group.start("w", 0)
    call = python_call("math", "hypot", 3.0, 4.0)
    with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store, Loop() as loop:
        peer = Peer(loop, "x", 1)
        peer.addresses["w"] = store.get("addrs/w").decode()
        for name, (table, storages) in GOOD.items():
            message = RpcMessage(call.type, 0, call.payload, table)
            assert value_of(peer.call("w", message, storages, timeout_s=SECONDS)) == 5.0, name
    assert worker.child.wait() is None


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BAD.keys() - HARMLESS_AT_FIRST))
def test_torch_would_not_survive_the_bad_ones(
    workers: Workers, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason for this module; a release that survives more makes it stricter than need be."""
    monkeypatch.setattr(TensorChecker, "check", lambda *_, **__: None)
    (table, storages), _ = BAD[name]
    call = python_call("math", "hypot", 3.0, 4.0)
    with LiveGroup(workers) as group:
        worker = group.start("w", 0)
        with StoreClient("127.0.0.1", group.port, prefix=PREFIX) as store, Loop() as loop:
            peer = Peer(loop, "x", 1)
            peer.addresses["w"] = store.get("addrs/w").decode()
            with pytest.raises(ReplayError):
                peer.call("w", RpcMessage(call.type, 0, call.payload, table), storages, timeout_s=SECONDS)
        ended = worker.child.wait(SECONDS)
        assert ended is not None
        assert ended.signal == "SIGABRT"


@pytest.mark.parametrize(
    "name", ["basic_chain.pcap", "dtype_zoo.pcap.gz", "views_alias.pcap.gz", "rref_relay.pcap.gz"]
)
def test_everything_captured_passes(repo: Path, name: str) -> None:
    every_message_passes(repo / "captures" / name)


@pytest.mark.parametrize("name", ["kitchen", "sparse", "script", "rref", "nested", "devmap"])
def test_everything_shared_passes(name: str) -> None:
    every_message_passes(recorded(f"torch/{name}.pcap"))


def every_message_passes(path: Path) -> None:
    checker = TensorChecker()
    with open_run(str(path)) as opened:
        for record in opened.messages:
            storages = [opened.read(t.extent) if t.extent is not None else b"" for t in record.tp.tensors]
            checker.check(record.rpc.message.tensor_table, storages)
