"""Sparse COO tensors whose indices or values differ as they travelled: are they the same once coalesced?

In: two tensors and the differences of their parts. Out: `form` if only the order of entries, or the way in
which several entries make up one, differs; else the differences, named after the part in which they are.
Sparse tensors are held in memory whole. Values are summed in their own type, in the order of the entries, as
torch does; of types that numpy can't add, entries are only put in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from rpcinspect.equality.difference import Difference
from rpcinspect.equality.element_stats import compare_codes
from rpcinspect.equality.elements import Tensors
from rpcinspect.equality.rules import Rules
from rpcinspect.errors import DecodeError
from rpcinspect.rpc.tensor import TensorMeta


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
        """One entry for each index; `self` must be ordered. None: values of this type can't be added."""
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
        """By bits, in this order."""
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
        text = "the entries come in another order"
        return [*beside, _form(f"{path}.indices", entries_a, entries_b, text)]
    sum_a, sum_b = ordered_a.coalesced(), ordered_b.coalesced()
    if sum_a is None or sum_b is None:
        return list(raw)
    text = "coalesced, they have the same indices"
    if not np.array_equal(sum_a.indices, sum_b.indices):
        return [*beside, _other_indices(f"{path}.coalesced.indices", sum_a, sum_b)]
    codes_a, codes_b = (entries.values.reshape(-1, entries.parts) for entries in (sum_a, sum_b))
    found = compare_codes(sum_a.dtype, codes_a, codes_b, f"{path}.coalesced.values", rules)
    return [*beside, *found, _form(f"{path}.indices", entries_a, entries_b, text)]


def _entries(tensors: Tensors, meta: TensorMeta) -> _Entries | None:
    """None where bytes are missing, or the parts are not those of a sparse tensor."""
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
    text = f"{len(set_a ^ set_b):,} indices are in one of the two only"
    return Difference(
        code="value",
        path=path,
        a_value=None if first_a is None else list(first_a),
        b_value=None if first_b is None else list(first_b),
        text=text,
    )


def _form(path: str, a: _Entries, b: _Entries, text: str) -> Difference:
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
