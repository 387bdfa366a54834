"""One tensor against one other: kind, form, and elements by their bits.

In: the tensors of two messages and a number in each. Out: differences, their paths under the one given.
Tensors of another dtype, shape or layout are not compared further. Elements of which a byte was not captured
on either side are `unknown`, never equal.

Sparse COO tensors whose parts differ as they travelled are compared coalesced: what differs only in the order
of entries, or in how several entries make up one, is a `form`. They are held in memory whole. Values are
summed in their own type, in the order of the entries, as torch does; of types that numpy can't add, entries
are only put in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, JsonValue, to_json
from rpcinspect.equality.element_stats import Tally, compare_codes
from rpcinspect.equality.elements import Storage, Tensors, same_bytes
from rpcinspect.equality.rules import Rules
from rpcinspect.errors import DecodeError
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import TensorMeta


def compare_tensors(a: Tensors, i: int, b: Tensors, j: int, path: str, rules: Rules) -> list[Difference]:
    """Returns the differences between tensor `i` of one message and tensor `j` of the other."""
    meta_a, meta_b = a.metas[i], b.metas[j]
    found = list(_kind(meta_a, meta_b, path))
    comparable = not found
    found += _fields("requires-grad", path, meta_a, meta_b, "requires_grad")
    found += _fields("device", path, meta_a, meta_b, "device")
    found += _fields("device", path, a.storage(meta_a), b.storage(meta_b), "target_device")
    if comparable:
        found += _fields(
            "quantizer",
            f"{path}.quantizer",
            *(meta_a.quantizer, meta_b.quantizer),
            *("scheme", "scale", "zero_point", "axis"),
        )
        found += _form(meta_a, meta_b, path)
        found += _contents(a, meta_a, b, meta_b, path, rules)
    return [difference for difference in found if not rules.ignores(difference.code)]


def compare_elements(
    a: Tensors, meta_a: TensorMeta, b: Tensors, meta_b: TensorMeta, path: str, rules: Rules
) -> list[Difference]:
    """The elements of two strided tensors of one dtype and shape."""
    numel = math.prod(meta_a.sizes)
    if not numel:
        return []
    if a.kept_hash(meta_a) is not None or b.kept_hash(meta_b) is not None:
        return list(_by_hash(a, meta_a, b, meta_b, path, rules))
    storage_a, storage_b = a.storage(meta_a), b.storage(meta_b)
    if storage_a is None or storage_b is None or storage_a.extent is None or storage_b.extent is None:
        states = _state(storage_a), _state(storage_b)
        text = "bytes of its element were not captured"
        if numel > 1:
            text = f"all {numel:,} elements have bytes that were not captured"
        both = not any(s is not None and s.extent is not None for s in (storage_a, storage_b))
        return [
            Difference(code="unknown", path=path, a_value=states[0], b_value=states[1], text=text, both=both)
        ]
    form_a = meta_a.strides, meta_a.storage_offset, meta_a.conj, meta_a.neg
    form_b = meta_b.strides, meta_b.storage_offset, meta_b.conj, meta_b.neg
    if form_a == form_b and same_bytes(storage_a, storage_b):
        return []
    tally = Tally(meta_a.dtype, numel, rules)
    try:
        for block_a, block_b in zip(a.blocks(meta_a), b.blocks(meta_b), strict=True):
            tally.add(block_a, block_b)
    except DecodeError as error:
        text = f"the tensor can't be read: {error}"
        both = meta_a == meta_b and storage_a.nbytes == storage_b.nbytes
        return [*tally.differences(path), Difference(code="unknown", path=path, text=text, both=both)]
    return tally.differences(path)


def _by_hash(
    a: Tensors, meta_a: TensorMeta, b: Tensors, meta_b: TensorMeta, path: str, rules: Rules
) -> Iterator[Difference]:
    """Elements of which one message, or both, have a hash in place of the bytes: equal hashes, equal bits."""
    try:
        hashes = a.sha256(meta_a), b.sha256(meta_b)
    except DecodeError as error:
        yield Difference(code="unknown", path=path, text=f"the tensor can't be read: {error}")
        return
    if hashes[0] == hashes[1]:
        return
    told = [None if one is None else f"sha256 {one[:SHOWN_DIGITS]}…" for one in hashes]
    code, text = "value", "only a hash was kept, which can't tell how far apart the elements are"
    if None in hashes:
        code, text = "unknown", "of one run only a hash was kept, of the other nothing"
    elif rules.tolerance(meta_a.dtype) is not None or rules.ignore & _WITHIN_ELEMENTS:
        code, text = (
            "unknown",
            "only a hash was kept, which can't tell whether the rules allow the difference",
        )
    yield Difference(code=code, path=path, a_value=told[0], b_value=told[1], text=text)


def _kind(a: TensorMeta, b: TensorMeta, path: str) -> Iterator[Difference]:
    """What makes elements incomparable."""
    yield from _fields("dtype", path, a, b, "dtype")
    yield from _fields("field", path, a, b, "layout")
    yield from _fields("shape", path, a, b, "sizes")
    if (a.quantizer is None) != (b.quantizer is None):
        yield Difference(
            code="quantizer",
            path=f"{path}.quantizer",
            a_value=None if a.quantizer is None else to_json(a.quantizer.scheme),
            b_value=None if b.quantizer is None else to_json(b.quantizer.scheme),
        )


def _form(meta_a: TensorMeta, meta_b: TensorMeta, path: str) -> Iterator[Difference]:
    """How the elements lie in their storage, and in how much of it."""
    yield from _fields("form", path, meta_a, meta_b, "strides", "storage_offset", "conj", "neg")
    sizes = [meta.storage_numel * DTYPES[meta.dtype].item_bytes for meta in (meta_a, meta_b)]
    if sizes[0] != sizes[1]:
        yield Difference(code="form", path=f"{path}.storage_nbytes", a_value=sizes[0], b_value=sizes[1])


def _contents(
    a: Tensors, meta_a: TensorMeta, b: Tensors, meta_b: TensorMeta, path: str, rules: Rules
) -> list[Difference]:
    if meta_a.layout == "strided":
        found = compare_elements(a, meta_a, b, meta_b, path, rules)
        for difference in _parts(a, meta_a, b, meta_b, f"{path}.quantizer", rules):
            form = difference.code in ("form", "unknown")
            found.append(difference if form else replace(difference, code="quantizer"))
        return found
    raw = list(_parts(a, meta_a, b, meta_b, path, rules))
    if meta_a.layout != "sparse_coo" or all(difference.code == "form" for difference in raw):
        return raw
    return compare_coalesced(a, meta_a, b, meta_b, path, rules, raw)


def _parts(
    a: Tensors, meta_a: TensorMeta, b: Tensors, meta_b: TensorMeta, path: str, rules: Rules
) -> Iterator[Difference]:
    """The tensors that a tensor is made of, by name."""
    others = dict(meta_b.parts)
    for name, part in meta_a.parts:
        other = others.pop(name, None)
        if other is None or part >= len(a.metas) or other >= len(b.metas):
            yield Difference(code="field", path=f"{path}.{name}", a_value=True, b_value=False)
        elif a.metas[part].layout == b.metas[other].layout == "strided":  # parts of parts do not exist
            yield from compare_tensors(a, part, b, other, f"{path}.{name}", rules)
    for name in others:
        yield Difference(code="field", path=f"{path}.{name}", a_value=False, b_value=True)


def _state(storage: Storage | None) -> str:
    if storage is None:
        return "missing"
    return storage.why if storage.extent is None else "captured"


def _fields(code: str, path: str, a: object, b: object, *names: str) -> Iterator[Difference]:
    """The fields in which two things differ, if there are two; floats by their bits, through their exact
    text."""
    for name in names if a is not None and b is not None else ():
        one, other = getattr(a, name), getattr(b, name)
        if repr(one) != repr(other):
            place = f"{path}.{_NAMES.get(name, name)}"
            yield Difference(code=code, path=place, a_value=_plain(one), b_value=_plain(other))


def _plain(value: object) -> JsonValue:
    return list(value) if isinstance(value, tuple) else to_json(value)


SHOWN_DIGITS = 12
"""Of a hash."""
_WITHIN_ELEMENTS = frozenset({"zero-sign", "nan-payload"})
"""What `Rules.ignore` may leave out of elements whose bits differ."""
_NAMES = {"sizes": "shape", "strides": "stride", "storage_offset": "offset"}
"""Fields of `TensorMeta` → what paths call them, where that is something else."""


class _Entries(Struct, frozen=True):
    """The entries of a tensor."""

    indices: npt.NDArray[np.int64]
    """Shape (sparse dimensions, entries)."""
    values: npt.NDArray[Any]
    """Raw bits, shape (entries, parts of all elements of an entry)."""
    dtype: str
    parts: int
    """Of one element."""

    def ordered(self) -> _Entries:
        """Entries in the order of their indices; those of one index stay in the order they had."""
        order = np.lexsort(self.indices[::-1]) if len(self.indices) else np.arange(len(self.values))
        return _Entries(self.indices[:, order], self.values[order], self.dtype, self.parts)

    def coalesced(self) -> _Entries | None:
        """Returns an entry per index; `self` must be ordered. None: values of this type can't be added."""
        count = self.indices.shape[1]
        new = np.ones(count, np.bool_)
        if count > 1:
            new[1:] = (self.indices[:, 1:] != self.indices[:, :-1]).any(axis=0)
        if new.all():
            return self
        native = _NATIVE.get(self.dtype)
        if native is None:
            return None
        numbers = np.ascontiguousarray(self.values).view(native)
        sums = numbers[new].copy()
        with np.errstate(all="ignore"):
            np.add.at(sums, (np.cumsum(new) - 1)[~new], numbers[~new])
        return _Entries(self.indices[:, new], sums.view(self.values.dtype), self.dtype, self.parts)

    def equals(self, other: _Entries) -> bool:
        """Compares by bits, in this order."""
        return np.array_equal(self.indices, other.indices) and np.array_equal(self.values, other.values)


def compare_coalesced(
    a: Tensors,
    meta_a: TensorMeta,
    b: Tensors,
    meta_b: TensorMeta,
    path: str,
    rules: Rules,
    raw: Sequence[Difference],
) -> list[Difference]:
    """`raw`, the differences of indices and values as they travelled, or what takes its place."""
    beside = [difference for difference in raw if difference.code in _BESIDE]
    if any(difference.code not in _CONTENTS | _BESIDE for difference in raw):
        return list(raw)
    try:
        entries_a, entries_b = _entries(a, meta_a), _entries(b, meta_b)
    except DecodeError:
        return list(raw)
    if entries_a is None or entries_b is None:
        return list(raw)
    if np.array_equal(entries_a.indices, entries_b.indices):
        return list(raw)
    ordered_a, ordered_b = entries_a.ordered(), entries_b.ordered()
    if ordered_a.equals(ordered_b):
        text = "the entries come in a different order"
        return [*beside, _entry_counts(f"{path}.indices", entries_a, entries_b, text)]
    sum_a, sum_b = ordered_a.coalesced(), ordered_b.coalesced()
    if sum_a is None or sum_b is None:
        return list(raw)
    text = "coalesced, they have the same indices"
    if not np.array_equal(sum_a.indices, sum_b.indices):
        return [*beside, _other_indices(f"{path}.coalesced.indices", sum_a, sum_b)]
    codes_a, codes_b = (entries.values.reshape(-1, entries.parts) for entries in (sum_a, sum_b))
    found = compare_codes(sum_a.dtype, codes_a, codes_b, f"{path}.coalesced.values", rules)
    return [*beside, *found, _entry_counts(f"{path}.indices", entries_a, entries_b, text)]


def _entries(tensors: Tensors, meta: TensorMeta) -> _Entries | None:
    """Returns the entries; None where bytes are missing, or the parts are not those of a sparse tensor."""
    parts = dict(meta.parts)
    metas = [tensors.metas[parts[name]] for name in ("indices", "values") if name in parts]
    if len(metas) != 2 or len(metas[0].sizes) != 2 or not metas[1].sizes or metas[0].dtype != "int64":
        return None
    if metas[0].sizes[1] != metas[1].sizes[0]:
        return None
    codes = []
    for part in metas:
        storage = tensors.storage(part)
        if math.prod(part.sizes) == 0:
            codes.append(np.zeros((0, 1), "<u8"))
            continue
        if storage is None or storage.extent is None or storage.extent.missing:
            return None
        codes.append(np.concatenate([block.codes for block in tensors.blocks(part)]))
    indices = codes[0].view("<i8").reshape(metas[0].sizes)
    count = metas[1].sizes[0]
    values = codes[1].reshape(count, codes[1].size // count if count else 0)
    return _Entries(indices, values, metas[1].dtype, codes[1].shape[1])


def _other_indices(path: str, a: _Entries, b: _Entries) -> Difference:
    """The first index that only one of them has."""
    rows_a, rows_b = (list(map(tuple, entries.indices.T.tolist())) for entries in (a, b))
    set_a, set_b = set(rows_a), set(rows_b)
    first_a = next((row for row in rows_a if row not in set_b), None)
    first_b = next((row for row in rows_b if row not in set_a), None)
    count = len(set_a ^ set_b)
    text = f"{count:,} {'index is' if count == 1 else 'indices are'} in one of the two only"
    return Difference(
        code="value",
        path=path,
        a_value=None if first_a is None else list(first_a),
        b_value=None if first_b is None else list(first_b),
        text=text,
    )


def _entry_counts(path: str, a: _Entries, b: _Entries, text: str) -> Difference:
    counts = a.indices.shape[1], b.indices.shape[1]
    return Difference(code="form", path=path, a_value=counts[0], b_value=counts[1], text=text)


_CONTENTS = frozenset({"value", "zero-sign", "nan-payload", "ulp", "shape", "form"})
"""Differences of parts that may vanish once entries are in order; a `shape` is another number of entries."""
_BESIDE = frozenset({"device", "requires-grad"})
"""Those that are told whatever the order."""

_NATIVE = {
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
    "uint8": "<u1",
    "int8": "<i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
}
"""Types that numpy adds as torch does."""
