"""The tensor table: the pickle that says of what kind the tensors of a message are, and which storage each
uses.

In: payload 3 of a message, whole. Out: one `TensorMeta` per tensor; the bytes themselves travel elsewhere
(`tensor_values` reads them). `to_tensor_table` is the way back.

Numbering: index i of the result is what `build_tensor_from_id(i)` and `_tensor_receiver(i)` mean, so the
tensors of the list come first, in wire order. The tensors that only make up another one (indices and values
of a sparse tensor, scales and zero points of a tensor quantized per channel) follow behind all of those, in
wire order.

Mirrors torch/csrc/jit/serialization/pickler.cpp (pushTensor and below) and torch/_utils.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.jit import read_forms, read_jit
from rpcinspect.pickles.jit_write import write_jit
from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall, Value
from rpcinspect.rpc.dtypes import DTYPES, STORAGE_CLASSES
from rpcinspect.rpc.types import as_bool, as_int, describe

MAX_DIMENSIONS = 64
"""As in torch, which keeps sets of dimensions in 64 bits."""


class Quantizer(Struct, frozen=True, kw_only=True):
    """How the integers of a quantized tensor stand for numbers."""

    scheme: str
    """`per_tensor_affine`, `per_channel_affine`, `per_channel_affine_float_qparams`, …"""
    scale: float | None = None
    """None per channel: then the tensor's parts `scales` and `zero_points` hold them."""
    zero_point: int | None = None
    axis: int | None = None
    """The dimension of the channels, None per tensor."""


class TensorMeta(Struct, frozen=True, kw_only=True):
    """An entry of the tensor table. Sizes, strides and offset count elements."""

    dtype: str
    """As torch prints it without `torch.`: `float32`, `qint8`; a key of `DTYPES`."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """As long as `sizes`; empty for sparse layouts."""
    storage_offset: int = 0
    layout: str = "strided"
    """`strided`, `sparse_coo` or `sparse_csr`."""
    device: str = "cpu"
    """The sender's device; where the bytes go is in the descriptor of the message."""
    requires_grad: bool = False
    conj: bool = False
    neg: bool = False
    storage: int | None = None
    """Index of the TensorPipe tensor that holds the bytes, None for sparse layouts. Tensors may share one."""
    storage_numel: int = 0
    """Elements of the storage, as written."""
    quantizer: Quantizer | None = None
    parts: tuple[tuple[str, int], ...] = ()
    """Name and index of the tensors that this one is made of: `indices` and `values`, `scales` and
    `zero_points`."""
    part_of: int | None = None
    """Index of the tensor that this one is a part of."""


def read_tensor_table(data: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[TensorMeta, ...]:
    """Every tensor of a table, see the module's text for the numbering.

    Raises DecodeError: layer "pickle" where the pickle itself is damaged, "tensor" where it says something
    else.
    """
    return _Table().read(read_jit(data, limits))


def storage_lengths(table: bytes) -> tuple[int, ...] | None:
    """Returns the bytes of each storage in a table, in the order of their indexes, as on the wire.

    None if the table is damaged, leaves out an index, or speaks of storages that can't be or are not on the
    CPU.
    """
    try:
        metas = read_tensor_table(table)
    except DecodeError:
        return None
    lengths: dict[int, int] = {}
    for meta in metas:
        if meta.storage is None:
            continue
        size = meta.storage_numel * DTYPES[meta.dtype].item_bytes
        if size < 0 or meta.device != "cpu" or lengths.setdefault(meta.storage, size) != size:
            return None
    if sorted(lengths) != list(range(len(lengths))):
        return None
    return tuple(lengths[index] for index in range(len(lengths)))


def to_tensor_table(metas: Sequence[TensorMeta], like: bytes | None = None) -> bytes:
    """Returns `metas` as a table: as torch writes it, or in the forms of `like`, a readable table."""
    table = _Table()
    if like is not None:
        table.read(read_jit(like))
    writer = _TableWriter(metas, table.nodes)
    top: list[PickleCall] = []
    nodes: dict[TensorMeta, PickleCall] = {}
    for i, meta in enumerate(metas):
        if meta.part_of is not None:
            continue
        # The forms tell a tensor that was given twice from two that look alike. Without forms those
        # whose parts are the same are one tensor, all others are not.
        node = nodes.get(meta) if like is not None or meta.parts else None
        if node is None:
            node = nodes[meta] = writer.tensor(i)
        top.append(node)
    value = PickleCall(Global("torch.jit._pickle", "build_tensorlist"), (top,))
    return write_jit(value, None if like is None else read_forms(like))


class _Table:
    """One reading of a table: the top-level tensors first, then the parts that turned up on the way."""

    def __init__(self) -> None:
        self.nodes: list[PickleCall] = []
        """By which the pickle makes each tensor, numbered as the metas are."""
        self.parts: list[TensorMeta] = []
        self.top = 0

    def read(self, value: Value) -> tuple[TensorMeta, ...]:
        items = _reduce_args(value, "tensor list")
        if value.function != _BUILD_TENSORLIST or len(items) != 1 or type(items[0]) is not list:
            raise DecodeError("tensor", "the table is not a tensor list")
        self.nodes, self.top = list(items[0]), len(items[0])
        seen: dict[int, TensorMeta] = {}
        metas = []
        for index, item in enumerate(items[0]):
            known = seen.get(id(item))  # a tensor that comes twice is written once
            meta = seen[id(item)] = known or self._tensor(item, index)
            metas.append(meta)
        return (*metas, *self.parts)

    def _tensor(self, node: Value, index: int) -> TensorMeta:
        args = _reduce_args(node, f"tensor {index}")
        if node.function == _REBUILD_TENSOR:
            return _strided(args, None)
        if node.function == _REBUILD_QTENSOR:
            return self._quantized(args, index)
        if node.function == _REBUILD_SPARSE:
            return self._sparse(args, index)
        raise DecodeError("tensor", f"tensor {index} is rebuilt by an unknown function")

    def _quantized(self, args: tuple[Value, ...], index: int) -> TensorMeta:
        """Reads (STORAGE, offset, sizes, strides, (scheme, …), requires_grad, hooks [, math bits])."""
        if len(args) < 7 or type(args[4]) is not tuple or not args[4] or type(args[4][0]) is not Global:
            raise DecodeError("tensor", f"tensor {index}: no quantizer where one was expected")
        scheme, *rest = args[4]
        parts: tuple[tuple[str, int], ...] = ()
        if len(rest) == 2 and type(rest[0]) in (float, int):
            quantizer = Quantizer(
                scheme=scheme.name, scale=float(rest[0]), zero_point=as_int(rest[1], "zero point")
            )
        elif len(rest) == 3:
            axis = as_int(rest[2], "quantized axis")
            parts = self._add_parts((("scales", rest[0]), ("zero_points", rest[1])), index)
            quantizer = Quantizer(scheme=scheme.name, axis=axis)
        else:
            raise DecodeError("tensor", f"tensor {index}: a quantizer of {len(rest)} values")
        return _strided((*args[:4], *args[5:]), quantizer, parts)

    def _sparse(self, args: tuple[Value, ...], index: int) -> TensorMeta:
        """Reads (layout, sizes, requires_grad, index tensors…, values, hooks)."""
        names = _SPARSE_PARTS.get(args[0]) if args and type(args[0]) is int else None
        if names is None or len(args) not in (3 + len(names[1]), 4 + len(names[1])):
            raise DecodeError("tensor", f"tensor {index}: not the arguments of a sparse tensor")
        layout, part_names = names
        parts = self._add_parts(tuple(zip(part_names, args[3:], strict=False)), index)
        values = self.parts[-1]
        return TensorMeta(
            dtype=values.dtype,
            sizes=_dimensions(args[1], "sizes"),
            strides=(),
            layout=layout,
            device=values.device,
            requires_grad=as_bool(args[2], "requires_grad"),
            parts=parts,
        )

    def _add_parts(self, parts: Sequence[tuple[str, Value]], index: int) -> tuple[tuple[str, int], ...]:
        """Read tensors that `index` is made of; they get the next numbers behind the list."""
        numbers = []
        for name, node in parts:
            args = _reduce_args(node, f"{name} of tensor {index}")
            if node.function != _REBUILD_TENSOR:
                raise DecodeError("tensor", f"{name} of tensor {index} is not a plain tensor")
            numbers.append((name, self.top + len(self.parts)))
            self.parts.append(replace(_strided(args, None), part_of=index))
            self.nodes.append(node)
        return tuple(numbers)


def _strided(
    args: tuple[Value, ...], quantizer: Quantizer | None, parts: tuple[tuple[str, int], ...] = ()
) -> TensorMeta:
    """Reads (STORAGE, offset, sizes, strides, requires_grad, hooks [, math bits])."""
    if len(args) not in (6, 7):
        raise DecodeError("tensor", f"a tensor is rebuilt from {len(args)} arguments, expected 6 or 7")
    dtype, storage, device, numel = _storage(args[0])
    sizes, strides = _dimensions(args[2], "sizes"), _dimensions(args[3], "strides")
    if len(sizes) != len(strides):
        raise DecodeError("tensor", f"{len(sizes)} sizes and {len(strides)} strides")
    offset = as_int(args[1], "storage offset")
    if offset < 0:
        raise DecodeError("tensor", "a negative storage offset")
    conj, neg = _math_bits(args[6]) if len(args) == 7 else (False, False)
    return TensorMeta(
        dtype=dtype,
        sizes=sizes,
        strides=strides,
        storage_offset=offset,
        device=device,
        requires_grad=as_bool(args[4], "requires_grad"),
        conj=conj,
        neg=neg,
        storage=storage,
        storage_numel=numel,
        quantizer=quantizer,
        parts=parts,
    )


def _storage(ref: Value) -> tuple[str, int, str, int]:
    """(dtype, index, device, elements) of ("storage", torch.FloatStorage, "0", "cpu", 3 [, None])."""
    key = ref.id if type(ref) is PersistentRef else None
    if type(key) is not tuple or len(key) not in (5, 6) or key[0] != "storage":
        raise DecodeError("tensor", "a tensor without a storage")
    _, cls, index, device, numel = key[:5]
    if type(cls) is not Global or cls.module != "torch":
        raise DecodeError("tensor", "the class of a storage is not torch's")
    dtype = STORAGE_CLASSES.get(cls.name)
    if dtype is None:
        raise DecodeError("tensor", f"the storage class {cls.name[:40]!a} is not known")
    if type(index) is not str or not index.isascii() or not index.isdigit() or len(index) > 9:
        raise DecodeError("tensor", "the index of a storage is not a number")
    if type(device) is not str:
        raise DecodeError("tensor", "the device of a storage is not a text")
    return dtype.name, int(index), device, as_int(numel, "storage elements")


def _math_bits(node: Value) -> tuple[bool, bool]:
    """(conj, neg) of restore_type_tag({"conj": True}, "Dict[str, bool]"); keys may be 0 and 1
    instead."""
    if type(node) is PickleCall and node.function == _RESTORE_TYPE_TAG:
        args = _reduce_args(node, "math bits")
        if len(args) != 2 or type(args[1]) is not str:
            raise DecodeError("tensor", "math bits without a type")
        node = args[0]
    if type(node) is not Dict:
        raise DecodeError("tensor", f"math bits: expected a dict, found {describe(node)}")
    found = {"conj": False, "neg": False}
    for key, value in node.pairs:
        name = _MATH_BIT_NAMES.get(key) if type(key) in (str, int) else None
        if name is None:
            raise DecodeError("tensor", "an unknown math bit")
        found[name] = as_bool(value, name)
    return found["conj"], found["neg"]


def _dimensions(value: Value, what: str) -> tuple[int, ...]:
    """A tuple of sizes or strides, each from 0 up."""
    if type(value) is not tuple or len(value) > MAX_DIMENSIONS:
        raise DecodeError(
            "tensor", f"{what}: expected a tuple of at most {MAX_DIMENSIONS}, found {describe(value)}"
        )
    for item in value:
        if as_int(item, what) < 0:
            raise DecodeError("tensor", f"{what}: a negative number")
    return value


def _reduce_args(node: Value, what: str) -> tuple[Value, ...]:
    """The arguments of a call by REDUCE."""
    if type(node) is PickleCall and type(node.args) is tuple:
        return node.args
    raise DecodeError("tensor", f"{what}: expected a call, found {describe(node)}")


class _TableWriter(Struct, eq=False):
    """The tree of a table; storages that tensors share become one node, which the pickle then refers to."""

    metas: Sequence[TensorMeta]
    like: Sequence[PickleCall]
    """Calls that were read: the n-th tensor is written with what some releases do differently in the n-th."""
    storages: dict[tuple[Value, ...], PersistentRef] = field(default_factory=dict)

    def tensor(self, index: int) -> PickleCall:
        meta = self.metas[index]
        parts = {name: self.tensor(part) for name, part in meta.parts if self.metas[part].part_of == index}
        if len(parts) != len(meta.parts):
            raise ValueError(f"tensor {index}: its parts are not marked as its parts")
        hooks = PickleCall(Global("collections", "OrderedDict"), ())
        if meta.layout != "strided":
            args = (_LAYOUT_CODES[meta.layout], meta.sizes, meta.requires_grad, *parts.values(), hooks)
            return PickleCall(_REBUILD_SPARSE, args)
        like: tuple[Value, ...] = self.like[index].args if index < len(self.like) else ()
        storage = self._storage(meta, like)
        math_bits = self._math_bits(meta, like)
        place = (storage, meta.storage_offset, meta.sizes, meta.strides)
        if meta.quantizer is None:
            return PickleCall(_REBUILD_TENSOR, (*place, meta.requires_grad, hooks, *math_bits))
        scheme = Global("torch", meta.quantizer.scheme)
        if meta.quantizer.axis is None:
            quantizer: tuple[Value, ...] = (scheme, meta.quantizer.scale, meta.quantizer.zero_point)
        else:
            quantizer = (scheme, *parts.values(), meta.quantizer.axis)
        return PickleCall(_REBUILD_QTENSOR, (*place, quantizer, meta.requires_grad, hooks, *math_bits))

    def _storage(self, meta: TensorMeta, like: tuple[Value, ...]) -> PersistentRef:
        """Older releases write a sixth element into the id, None."""
        cls = Global("torch", DTYPES[meta.dtype].storage_class)
        key: tuple[Value, ...] = ("storage", cls, str(meta.storage), meta.device, meta.storage_numel)
        if like and type(like[0]) is PersistentRef and len(like[0].id) == 6:
            key += (None,)
        return self.storages.setdefault(key, PersistentRef(key))

    def _math_bits(self, meta: TensorMeta, like: tuple[Value, ...]) -> tuple[Value, ...]:
        """The dict of the bits that are set; some releases write it without any, or without the tag."""
        names = [name for name, is_set in (("conj", meta.conj), ("neg", meta.neg)) if is_set]
        written = like[-1] if len(like) == (7 if meta.quantizer is None else 8) else None
        if type(written) is PickleCall and written.function != _RESTORE_TYPE_TAG:
            written = None  # hooks, of a tensor that was quantized and is none any more
        if not names and written is None:
            return ()
        tag = None if type(written) is Dict else written.args[1] if written else "Dict[str, bool]"
        int_keys = tag is not None and tag.startswith("Dict[int")
        bits = Dict([(_MATH_BIT_CODES[name] if int_keys else name, True) for name in names])
        return (bits,) if tag is None else (PickleCall(_RESTORE_TYPE_TAG, (bits, tag)),)


_BUILD_TENSORLIST = Global("torch.jit._pickle", "build_tensorlist")
_RESTORE_TYPE_TAG = Global("torch.jit._pickle", "restore_type_tag")
_REBUILD_TENSOR = Global("torch._utils", "_rebuild_tensor_v2")
_REBUILD_QTENSOR = Global("torch._utils", "_rebuild_qtensor")
_REBUILD_SPARSE = Global("torch._utils", "_rebuild_sparse_tensor")

_MATH_BIT_NAMES: dict[Value, str] = {"conj": "conj", "neg": "neg", 0: "conj", 1: "neg"}
_MATH_BIT_CODES = {"conj": 0, "neg": 1}

_SPARSE_PARTS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("sparse_coo", ("indices", "values")),
    2: ("sparse_csr", ("crow_indices", "col_indices", "values")),
}
"""c10::Layout → torch's name without `torch.`, and the tensors in the order of the arguments. torch can't
write its other sparse layouts."""
_LAYOUT_CODES = {name: code for code, (name, _) in _SPARSE_PARTS.items()}
