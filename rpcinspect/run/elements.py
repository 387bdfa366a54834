"""Elements of a tensor where they are asked for, and what all of them come to: in bounded memory.

In: the tensors of one message with a reader of their bytes. Out: a few elements as Python numbers, without
reading the others; statistics and a histogram, made block by block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rpcinspect.equality.elements import ElementBlock, Storage, Tensors
from rpcinspect.equality.floats import FLOATS, Codes
from rpcinspect.errors import DecodeError
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.tensor_values import check_within, element_runs, first_values, run_of
from rpcinspect.tcp.ranges import Extent


class Statistics(Struct, frozen=True):
    """What the elements of a tensor come to; of complex ones by their absolute values."""

    count: int
    nan: int
    infinite: int
    zero: int
    minimum: float | None
    """Of the finite elements, as all below; None if there are none."""
    maximum: float | None
    mean: float | None
    norm: float | None
    """The 2-norm."""


class Bins(Struct, frozen=True):
    """How many finite elements lie in ranges of equal width, from the least to the greatest element."""

    edges: tuple[float, ...]
    """One more than there are ranges; each range ends before the next begins, the last one with its edge."""
    counts: tuple[int, ...]
    single: bool = False
    """Each range is one number, at which it begins: of few different integers, or of equal elements."""


def elements_of(tensors: Tensors, meta: TensorMeta, start: int, count: int) -> list[object | None]:
    """Returns elements by their numbers in row-major order, as `first_values` has them; None for those whose
    bytes were not captured. Raises `DecodeError` where the table and the storage contradict each other."""
    storage = tensors.storage(meta)
    if storage is None or storage.extent is None:
        return [None] * min(count, max(0, math.prod(meta.sizes) - start))
    check_within(meta, storage.nbytes)
    found: list[object | None] = []
    for begin, length in element_runs(meta, start, count):
        found += _run(storage, storage.extent, meta, begin, length)
    return found


def _run(
    storage: Storage, extent: Extent, meta: TensorMeta, begin: int, length: int
) -> Sequence[object | None]:
    """Elements that lie behind each other."""
    run, low, high, before = run_of(meta, begin, length)
    piece = extent.part(low, high)
    if not piece.missing:
        return first_values(run, storage.read(piece), before + length)[before:]
    if length == 1:
        return [None]
    return [value for at in range(begin, begin + length) for value in _run(storage, extent, meta, at, 1)]


def statistics_of(tensors: Tensors, meta: TensorMeta) -> Statistics:
    """What all elements come to; only where all of their bytes are there. Raises as `Tensors.blocks`."""
    count = nan = infinite = zero = 0
    finite = 0
    total = norm = 0.0
    low, high = math.inf, -math.inf
    for numbers in _numbers(tensors, meta):
        usable = numbers[np.isfinite(numbers)]
        count += len(numbers)
        nan += int(np.isnan(numbers).sum())
        infinite += int(np.isinf(numbers).sum())
        zero += int((numbers == 0).sum())
        if len(usable):
            finite += len(usable)
            low, high = min(low, float(usable.min())), max(high, float(usable.max()))
            with np.errstate(over="ignore"):
                total += float(usable.sum())
                norm = math.hypot(norm, float(np.linalg.norm(usable)))
    some = finite > 0
    return Statistics(
        count=count,
        nan=nan,
        infinite=infinite,
        zero=zero,
        minimum=low if some else None,
        maximum=high if some else None,
        mean=total / finite if some else None,
        norm=norm if some else None,
    )


class Norm(Struct, frozen=True):
    """The Euclidean norm of the finite elements of a tensor; None where none is."""

    count: int
    nan: int
    infinite: int
    norm: float | None


def norm_of(dtype: str, blocks: Iterable[ElementBlock]) -> Norm:
    """What `statistics_of` says of these, in a third of the time. Raises `DecodeError` where bytes are not
    there."""
    count = nan = infinite = 0
    norm = 0.0
    for numbers in _floats(dtype, blocks):
        count += len(numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            square = float(numbers.dot(numbers))
        if not math.isfinite(square):  # an element is not, or is so large that its square is not
            nan += int(np.isnan(numbers).sum())
            infinite += int(np.isinf(numbers).sum())
            usable = numbers[np.isfinite(numbers)]
            with np.errstate(over="ignore"):
                square = float(usable.dot(usable))
        norm = math.hypot(norm, math.sqrt(square))
    return Norm(count, nan, infinite, norm if count > nan + infinite else None)


def bins_of(tensors: Tensors, meta: TensorMeta, told: Statistics, bins: int) -> Bins | None:
    """Returns a histogram of the elements, whose statistics are known; None where none is finite. Where all
    are the same there is one range."""
    if told.minimum is None or told.maximum is None:
        return None
    low, high = told.minimum, told.maximum
    if not math.isfinite(high - low):
        return None
    whole = DTYPES[meta.dtype].kind not in ("float", "complex") and high - low < bins
    count = int(high - low) + 1 if whole else bins if high > low else 1
    edges = np.linspace(low, high + 1 if whole else high, count + 1)
    counts = np.zeros(count, np.int64)
    for numbers in _numbers(tensors, meta):
        counts += np.histogram(numbers[np.isfinite(numbers)], edges)[0]
    return Bins(tuple(edges.tolist()), tuple(counts.tolist()), whole or high == low)


def _numbers(tensors: Tensors, meta: TensorMeta) -> Iterator[NDArray[np.float64]]:
    return _floats(meta.dtype, tensors.blocks(meta))


def _floats(dtype: str, blocks: Iterable[ElementBlock]) -> Iterator[NDArray[np.float64]]:
    for block in blocks:
        if block.unknown is not None:
            raise DecodeError("tensor", "bytes of the tensor were not captured")
        yield _as_floats(dtype, block.codes)


def _as_floats(dtype: str, codes: Codes) -> NDArray[np.float64]:
    """Elements as floats, from their raw bits; complex ones by their absolute values."""
    row, layout = DTYPES[dtype], FLOATS.get(dtype)
    if layout is not None:
        values = layout.values(codes)
        if row.kind == "complex":
            with np.errstate(over="ignore"):
                size: NDArray[np.float64] = np.hypot(values[:, 0], values[:, 1])
            return size
        flat: NDArray[np.float64] = values.ravel()
        return flat
    if row.kind == "bool":
        flags: NDArray[np.float64] = (codes[:, 0] != 0).astype(np.float64)
        return flags
    signed = row.kind == "int" or dtype in ("qint8", "qint32")
    plain = np.ascontiguousarray(codes[:, 0])
    numbers: NDArray[np.float64] = (plain.view(f"<i{plain.itemsize}") if signed else plain).astype(np.float64)
    return numbers
