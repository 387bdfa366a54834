"""One tensor against one other: kind, form, and elements by their bits.

In: the tensors of two messages and a number in each. Out: differences, their paths under the one given.
Tensors of another dtype, shape or layout are not compared further. Elements of which a byte was not captured
on either side are `unknown`, never equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, Json, to_json
from rpcinspect.equality.element_stats import Tally
from rpcinspect.equality.elements import Storage, Tensors, same_bytes
from rpcinspect.equality.rules import Rules
from rpcinspect.equality.sparse import compare_coalesced
from rpcinspect.errors import DecodeError
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import TensorMeta


def compare_tensors(a: Tensors, i: int, b: Tensors, j: int, path: str, rules: Rules) -> list[Difference]:
    """Tensor `i` of the one message against tensor `j` of the other."""
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
    storage_a, storage_b = a.storage(meta_a), b.storage(meta_b)
    if storage_a is None or storage_b is None or storage_a.extent is None or storage_b.extent is None:
        states = _state(storage_a), _state(storage_b)
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


def _plain(value: object) -> Json:
    return list(value) if isinstance(value, tuple) else to_json(value)


_NAMES = {"sizes": "shape", "strides": "stride", "storage_offset": "offset"}
"""Fields of `TensorMeta` → what paths call them, where that is something else."""
