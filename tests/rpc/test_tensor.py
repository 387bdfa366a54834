from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rpcinspect.errors import DecodeError
from rpcinspect.pickles.jit_write import write_jit
from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall, Value
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import (
    Quantizer,
    TensorMeta,
    read_tensor_table,
    storage_lengths,
    to_tensor_table,
)
from tests.rpc.torch_tables import import_torch, torch_table
from tests.thorough import examples

# one float32 tensor of shape [3] that requires grad, from a captured message
ONE = (
    bytes.fromhex("80 02")  # PROTO 2
    + b"ctorch.jit._pickle\nbuild_tensorlist\n" + bytes.fromhex("71 00")  # GLOBAL, BINPUT 0
    + bytes.fromhex("28 5d 28")  # MARK EMPTY_LIST MARK
    + b"ctorch._utils\n_rebuild_tensor_v2\n" + bytes.fromhex("71 01 28")  # GLOBAL, MARK
    + bytes.fromhex("28 58 07 00 00 00") + b"storage" + bytes.fromhex("71 02")
    + b"ctorch\nFloatStorage\n" + bytes.fromhex("71 03")
    + bytes.fromhex("58 01 00 00 00") + b"0" + bytes.fromhex("71 04")  # index of the storage
    + bytes.fromhex("58 03 00 00 00") + b"cpu" + bytes.fromhex("71 05")
    + bytes.fromhex("4b 03 74 51 71 06")  # 3 elements, TUPLE, BINPERSID, BINPUT 6
    + bytes.fromhex("4b 00  28 4b 03 74  28 4b 01 74  88")  # offset 0, sizes (3,), strides (1,), True
    + b"ccollections\nOrderedDict\n" + bytes.fromhex("71 07 29 52")  # no hooks
    + bytes.fromhex("74 52 71 08  65 74 52 2e")  # TUPLE REDUCE BINPUT 8, APPENDS TUPLE REDUCE STOP
)  # fmt: skip
EMPTY = b"\x80\x02ctorch.jit._pickle\nbuild_tensorlist\nq\x00(](etR."

FLOAT3 = TensorMeta(dtype="float32", sizes=(3,), strides=(1,), requires_grad=True, storage=0, storage_numel=3)


def test_literal_table() -> None:
    assert read_tensor_table(ONE) == (FLOAT3,)
    assert to_tensor_table([FLOAT3]) == ONE


def test_no_tensors() -> None:
    assert read_tensor_table(EMPTY) == ()
    assert to_tensor_table([]) == EMPTY


@pytest.mark.parametrize("length", range(len(ONE)))
def test_cut_table(length: int) -> None:
    with pytest.raises(DecodeError):
        read_tensor_table(ONE[:length])


def _views(torch: Any) -> list[Any]:
    x = torch.arange(12.0).reshape(3, 4)
    c = torch.tensor([1 + 2j, 3 - 4j])
    return [
        x,
        x.t(),
        x[1:, 2],
        x[0, 0],
        x.sum().expand(5, 2),
        torch.zeros(2, 0, 3),
        torch.ones(2, requires_grad=True),
        c.conj(),
        # torch writes one dtype for each storage, so a view of another dtype must not share it
        c.clone().conj().imag,
        torch.ones(3)._neg_view(),
    ]


def _dtypes(torch: Any) -> list[Any]:
    return [torch.zeros(16, dtype=torch.uint8).view(getattr(torch, name)) for name in DTYPES]


def _sparse(torch: Any) -> list[Any]:
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    hybrid = torch.sparse_coo_tensor([[0, 1]], torch.ones(2, 3), (2, 3), requires_grad=True)
    return [dense, dense.to_sparse(), hybrid, dense.to_sparse_csr(), dense.clone()]


def _quantized(torch: Any) -> list[Any]:
    x = torch.arange(10.0).reshape(2, 5)
    scales, zeros = torch.tensor([0.5, 1.0]), torch.tensor([0, 1])
    return [
        torch.quantize_per_tensor(x, 0.5, 3, torch.quint8),
        torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8),
        torch.quantize_per_channel(x, scales, zeros.float(), 0, torch.quint4x2),
        x,
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [_views, _dtypes, _sparse, _quantized])
def test_tables_as_torch_writes_them(make: Callable[[Any], list[Any]]) -> None:
    torch = import_torch()
    tensors = make(torch)
    table, storages = torch_table(tensors)
    metas = read_tensor_table(table)
    for tensor, meta in zip(tensors, metas, strict=False):
        assert meta.part_of is None
        assert meta.dtype == str(tensor.dtype).removeprefix("torch.")
        assert meta.sizes == tuple(tensor.shape)
        assert meta.layout == str(tensor.layout).removeprefix("torch.")
        assert meta.requires_grad == tensor.requires_grad
        assert (meta.conj, meta.neg) == (tensor.is_conj(), tensor.is_neg())
        if meta.layout == "strided":
            assert meta.strides == tensor.stride()
            assert meta.storage_offset == tensor.storage_offset()
            assert meta.storage is not None
            assert len(storages[meta.storage]) == tensor.untyped_storage().nbytes()
    assert to_tensor_table(metas) == table
    assert to_tensor_table(metas, table) == table


@pytest.mark.filterwarnings("ignore")
def test_parts_follow_behind_the_list() -> None:
    torch = import_torch()
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    q = torch.quantize_per_channel(x, torch.tensor([0.5, 1.0]), torch.tensor([0, 1]), 1, torch.qint8)
    metas = read_tensor_table(torch_table([x.to_sparse(), q, x])[0])
    assert [meta.part_of for meta in metas] == [None, None, None, 0, 0, 1, 1]
    coo, per_channel = metas[0], metas[1]
    assert coo.parts == (("indices", 3), ("values", 4))
    assert (coo.storage, coo.strides, coo.dtype) == (None, (), "float32")
    assert (metas[3].dtype, metas[3].sizes) == ("int64", (2, 3))
    assert per_channel.parts == (("scales", 5), ("zero_points", 6))
    assert per_channel.quantizer == Quantizer(scheme="per_channel_affine", axis=1)
    # storages are numbered as they come on the wire, not as the tensors are
    assert [metas[i].storage for i in (3, 4, 1, 5, 6, 2)] == [0, 1, 2, 3, 4, 5]


def test_a_tensor_that_comes_twice() -> None:
    torch = import_torch()
    x, coo = torch.ones(2), torch.ones(2).to_sparse()
    table, _ = torch_table([x, coo, x, coo, x.detach()])
    metas = read_tensor_table(table)
    assert [meta.part_of for meta in metas] == [None] * 5 + [1, 1]
    assert metas[0] == metas[2] == metas[4]
    assert metas[1] == metas[3]
    assert to_tensor_table(metas, table) == table
    assert read_tensor_table(to_tensor_table(metas)) == metas
    # two tensors that look alike are two
    table, _ = torch_table([x, x.detach()])
    assert to_tensor_table(read_tensor_table(table)) == table


@pytest.mark.filterwarnings("ignore")
def test_per_tensor_quantizer() -> None:
    torch = import_torch()
    q = torch.quantize_per_tensor(torch.ones(2), 0.25, 3, torch.quint8)
    (meta,) = read_tensor_table(torch_table([q])[0])
    assert meta.quantizer == Quantizer(scheme="per_tensor_affine", scale=0.25, zero_point=3)
    assert meta.parts == ()


def _strided(storage: tuple[Value, ...], *more: Value) -> PickleCall:
    hooks = PickleCall(Global("collections", "OrderedDict"), ())
    args = (PersistentRef(storage), 0, (3,), (1,), True, hooks, *more)
    return PickleCall(Global("torch._utils", "_rebuild_tensor_v2"), args)


def _table(*tensors: Value) -> bytes:
    return write_jit(PickleCall(Global("torch.jit._pickle", "build_tensorlist"), (list(tensors),)))


STORAGE = ("storage", Global("torch", "FloatStorage"), "0", "cpu", 3)


def _tagged(bits: Dict, tag: str) -> PickleCall:
    return PickleCall(Global("torch.jit._pickle", "restore_type_tag"), (bits, tag))


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (_strided((*STORAGE, None)), FLOAT3),
        (_strided(STORAGE, Dict([("neg", True)])), structs.replace(FLOAT3, neg=True)),
        (_strided(STORAGE, _tagged(Dict(), "Dict[str, bool]")), FLOAT3),
        (
            _strided(STORAGE, _tagged(Dict([(0, True), (1, False)]), "Dict[int, bool]")),
            structs.replace(FLOAT3, conj=True),
        ),
    ],
    ids=["six element id", "untagged bits", "no bits", "int keys"],
)
def test_what_other_releases_write(tensor: PickleCall, expected: TensorMeta) -> None:
    table = _table(tensor)
    metas = read_tensor_table(table)
    assert metas == (expected,)
    if b"Dict[int" not in table:
        assert to_tensor_table(metas, table) == table


@pytest.mark.parametrize(
    "tensor",
    [
        None,
        _strided(()),
        _strided(("storage", Global("torch", "NoStorage"), "0", "cpu", 3)),
        _strided(("storage", Global("evil", "FloatStorage"), "0", "cpu", 3)),
        _strided(("storage", Global("torch", "FloatStorage"), "-1", "cpu", 3)),
        _strided(("storage", Global("torch", "FloatStorage"), "\u00b2", "cpu", 3)),
        _strided(("storage", Global("torch", "FloatStorage"), "0", 1, 3)),
        _strided(STORAGE, Dict([("odd", True)])),
        _strided(STORAGE, 1),
        PickleCall(Global("os", "system"), ("true",)),
        PickleCall(
            Global("torch._utils", "_rebuild_tensor_v2"),
            (PersistentRef(STORAGE), 0, (3,), (1, 1), True, None),
        ),
        PickleCall(
            Global("torch._utils", "_rebuild_tensor_v2"), (PersistentRef(STORAGE), 0, (-3,), (1,), True, None)
        ),
        PickleCall(
            Global("torch._utils", "_rebuild_tensor_v2"), (PersistentRef(STORAGE), -1, (3,), (1,), True, None)
        ),
        PickleCall(
            Global("torch._utils", "_rebuild_tensor_v2"),
            (PersistentRef(STORAGE), 0, (1,) * 65, (1,) * 65, True, None),
        ),
        PickleCall(Global("torch._utils", "_rebuild_sparse_tensor"), (9, (2,), False)),
        PickleCall(
            Global("torch._utils", "_rebuild_sparse_tensor"), (1, (2,), False, _strided(STORAGE), None, None)
        ),
        PickleCall(
            Global("torch._utils", "_rebuild_qtensor"),
            (PersistentRef(STORAGE), 0, (3,), (1,), (), True, None),
        ),
    ],
    ids=lambda value: None,
)
def test_what_is_no_tensor(tensor: Value) -> None:
    with pytest.raises(DecodeError) as caught:
        read_tensor_table(_table(tensor))
    assert caught.value.layer in ("tensor", "rpc")


@pytest.mark.parametrize(
    "value", [None, [], 1, PickleCall(Global("torch.jit._pickle", "build_intlist"), ([],))], ids=str
)
def test_what_is_no_table(value: Value) -> None:
    with pytest.raises(DecodeError):
        read_tensor_table(write_jit(value))


def test_one_field_changes_one_thing() -> None:
    metas = read_tensor_table(ONE)
    changed = to_tensor_table([structs.replace(metas[0], requires_grad=False)], ONE)
    assert [(i, a, b) for i, (a, b) in enumerate(zip(ONE, changed, strict=True)) if a != b] == [
        (ONE.index(b"\x88"), 0x88, 0x89)
    ]
    wide = to_tensor_table([structs.replace(metas[0], storage_offset=70000)], ONE)
    assert wide == ONE.replace(b"\x4b\x00\x28\x4b\x03\x74", b"\x4a\x70\x11\x01\x00\x28\x4b\x03\x74")


small = st.integers(0, 300)


@st.composite
def _metas(draw: st.DrawFn) -> list[TensorMeta]:
    metas = []
    for _ in range(draw(st.integers(0, 4))):
        sizes = tuple(draw(st.lists(small, max_size=4)))
        strides = tuple(draw(st.lists(small, min_size=len(sizes), max_size=len(sizes))))
        metas.append(
            TensorMeta(
                dtype=draw(st.sampled_from(sorted(DTYPES))),
                sizes=sizes,
                strides=strides,
                storage_offset=draw(st.integers(0, 1 << 62)),
                device=draw(st.sampled_from(["cpu", "cuda:0", "cuda:1"])),
                requires_grad=draw(st.booleans()),
                conj=draw(st.booleans()),
                neg=draw(st.booleans()),
                storage=draw(small),
                storage_numel=draw(small),
            )
        )
    return metas


@given(_metas())
def test_what_is_written_is_read_back(metas: list[TensorMeta]) -> None:
    table = to_tensor_table(metas)
    read = read_tensor_table(table)
    assert list(read) == metas
    assert to_tensor_table(read, table) == table


@settings(max_examples=examples(300))
@given(st.data())
def test_hostile_tables_raise_decode_errors_only(data: st.DataObject) -> None:
    table = bytearray(ONE)
    for _ in range(data.draw(st.integers(1, 4))):
        table[data.draw(st.integers(0, len(table) - 1))] = data.draw(st.integers(0, 255))
    try:
        metas = read_tensor_table(bytes(table))
    except DecodeError:
        return
    assert all(isinstance(meta, TensorMeta) for meta in metas)


# --- lengths of storages ---


def _shared(torch: Any) -> list[Any]:
    x = torch.arange(12, dtype=torch.int16)
    return [x[2:], torch.ones(3, dtype=torch.float64), x.reshape(3, 4).t(), torch.zeros(0), x]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [_views, _dtypes, _sparse, _quantized, _shared])
def test_lengths_of_the_storages_that_torch_writes(make: Callable[[Any], list[Any]]) -> None:
    table, storages = torch_table(make(import_torch()))
    assert storage_lengths(table) == tuple(len(storage) for storage in storages)


def _storage(index: int, numel: int = 3, *, kind: str = "FloatStorage", device: str = "cpu") -> PickleCall:
    return _strided(("storage", Global("torch", kind), str(index), device, numel))


@pytest.mark.parametrize(
    ("tensors", "lengths"),
    [
        ([_storage(1), _storage(0, 5)], (20, 12)),
        ([_storage(0), _storage(0)], (12,)),
        ([_storage(1)], None),
        ([_storage(0), _storage(2)], None),
        ([_storage(0), _storage(0, 4)], None),
        ([_storage(0), _storage(0, kind="IntStorage")], (12,)),
        ([_storage(0), _storage(0, kind="DoubleStorage")], None),
        ([_storage(0, device="cuda:0")], None),
        ([_storage(0), _storage(1, device="meta")], None),
        ([_storage(0, -1)], None),
        ([_storage(0, 0)], (0,)),
        ([], ()),
    ],
    ids=lambda value: None,
)
def test_what_lengths_a_table_can_tell(tensors: list[PickleCall], lengths: tuple[int, ...] | None) -> None:
    assert storage_lengths(_table(*tensors)) == lengths


@pytest.mark.parametrize("length", range(len(ONE)))
def test_a_damaged_table_tells_no_lengths(length: int) -> None:
    assert storage_lengths(ONE[:length]) is None
