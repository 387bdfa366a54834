"""Tensors against tensors, with torch as the other opinion: differences that it does not see are seen here.

The rows of the list of known cases that these repeat are named where they are.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.equality.difference import verdict
from rpcinspect.equality.elements import Storage, Tensors
from rpcinspect.equality.rules import Rules
from rpcinspect.rpc.dtypes import DTYPES
from tests.equality.builders import STRICT, codes, compare, dense, floats, from_torch, in_memory
from tests.equality.test_elements import holed
from tests.rpc.torch_tables import import_torch
from tests.thorough import examples

LOOSE = Rules(rtol=1e-3, atol=1e-3)
DENSE = sorted(name for name, row in DTYPES.items() if row.kind != "quantized" or name == "quint8")


def assert_close(one: Any, other: Any, **more: Any) -> None:
    """torch calls these equal."""
    import_torch().testing.assert_close(one, other, **{"rtol": 0, "atol": 0, **more})


# --- what torch's own comparisons do not see ----------------------------------------------------------------


def test_nan_equals_itself() -> None:
    """torch.equal says no (row 90)."""
    torch = import_torch()
    nan = torch.tensor([1.0, math.nan])
    assert not torch.equal(nan, nan)
    assert compare(from_torch(nan), from_torch(nan.clone())) == []


def test_minus_zero() -> None:
    """torch.equal and assert_close say that −0 is 0."""
    torch = import_torch()
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.0])
    assert torch.equal(one, other)
    assert_close(one, other)
    (found,) = compare(from_torch(one), from_torch(other))
    assert (found.code, found.path) == ("zero-sign", "tensors[0].elements[1]")
    assert found.elements is not None
    assert (found.elements.max_abs, found.elements.differing) == (0.0, 1)


def test_payloads_of_nan() -> None:
    """assert_close(equal_nan=True) says that all NaNs are equal (row 91)."""
    torch = import_torch()
    one, other = (
        torch.tensor([code], dtype=torch.int32).view(torch.float32) for code in (0x7FC00000, 0x7F812345)
    )
    assert_close(one, other, equal_nan=True)
    (found,) = compare(from_torch(one), from_torch(other))
    assert (found.code, found.a_bits, found.b_bits) == ("nan-payload", "0x7fc00000", "0x7f812345")
    assert (found.a_value, found.b_value) == ("nan", "nan")


def test_the_other_part_of_a_complex_nan() -> None:
    """assert_close(equal_nan=True) takes one NaN part for both (row 93)."""
    torch = import_torch()
    one, other = torch.tensor([complex(math.nan, 1)]), torch.tensor([complex(math.nan, 2)])
    assert_close(one, other, equal_nan=True)
    (found,) = compare(from_torch(one), from_torch(other))
    assert (found.code, found.a_value, found.b_value) == ("value", ["nan", 1.0], ["nan", 2.0])
    assert found.elements is not None
    assert found.elements.max_abs == 1.0


def test_numbers_are_over_mismatches_only() -> None:
    """A matching 0/0 must not be the largest relative error (row 92)."""
    (found,) = compare(floats(0.0, 1.0, math.nan, math.inf), floats(0.0, 1.5, math.nan, math.inf))
    assert found.elements is not None
    assert (found.elements.max_rel, found.elements.max_abs, found.elements.worst) == (0.5, 0.5, 1)


def test_requires_grad() -> None:
    """assert_close does not look at it (row 97)."""
    torch = import_torch()
    one, other = torch.ones(2), torch.ones(2, requires_grad=True)
    assert_close(one, other)
    (found,) = compare(from_torch(one), from_torch(other))
    assert (found.code, found.path) == ("requires-grad", "tensors[0].requires_grad")
    assert (found.a_value, found.b_value) == (False, True)
    assert verdict([found], Rules()) == "different"


def test_strides_are_form() -> None:
    """assert_close does not look at them."""
    torch = import_torch()
    one = torch.arange(6.0).reshape(2, 3)
    other = one.T.contiguous().T
    assert_close(one, other)
    (found,) = compare(from_torch(one), from_torch(other))
    assert (found.code, found.path, found.b_value) == ("form", "tensors[0].stride", [1, 2])
    assert verdict([found], Rules()) == "identical"
    assert verdict([found], STRICT) == "different"


@pytest.mark.parametrize("lazy", ["conj", "neg"])
def test_lazy_bits_are_form(lazy: str) -> None:
    """torch.equal says no to a conj view and its resolved value; assert_close does not see the flag."""
    torch = import_torch()
    plain = torch.tensor([complex(1, 2), complex(-0.0, 3)])
    view = plain.conj() if lazy == "conj" else torch._neg_view(plain)
    resolved = view.resolve_conj().resolve_neg().clone()
    assert codes(compare(from_torch(view), from_torch(resolved))) == ["form"]
    assert "value" in codes(compare(from_torch(view), from_torch(plain)))


def test_offset_and_padding_are_form() -> None:
    torch = import_torch()
    whole = torch.arange(10.0)
    found = compare(from_torch(whole[3:6]), from_torch(whole[3:6].clone()))
    assert [difference.path for difference in found] == ["tensors[0].offset", "tensors[0].storage_nbytes"]
    assert set(codes(found)) == {"form"}


def test_meta_tensors_have_no_bytes_to_be_equal() -> None:
    """assert_close calls any two meta tensors equal (row 94); what has no bytes here is unknown."""
    one = floats(1.0)
    other = Tensors(one.metas, (Storage(None, one.storages[0].read, "missing", "cpu"),))
    (found,) = compare(one, other)
    assert (found.code, found.path) == ("unknown", "tensors[0]")
    assert (found.a_value, found.b_value) == ("captured", "missing")
    assert codes(compare(other, other)) == ["unknown"]


def test_quantized_tensors_of_another_scale() -> None:
    """assert_close compares what they stand for (row 95)."""
    torch = import_torch()
    with quiet():
        one = torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 10, torch.quint8)
        other = torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.25, 10, torch.quint8)
        moved = torch._make_per_tensor_quantized_tensor(one.int_repr(), 0.5, 11)
    assert_close(one, other, rtol=1e-5, atol=1e-5, check_dtype=False)
    found = compare(from_torch(one), from_torch(other))
    assert codes(found) == ["quantizer", "value"]
    assert (found[0].path, found[0].a_value, found[0].b_value) == ("tensors[0].quantizer.scale", 0.5, 0.25)
    assert (found[1].a_value, found[1].b_value) == (12, 14)  # its integers
    (shifted,) = compare(from_torch(one), from_torch(moved))
    assert shifted.path == "tensors[0].quantizer.zero_point"


def test_scales_per_channel() -> None:
    torch = import_torch()
    with quiet():
        plain = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        made = [
            torch.quantize_per_channel(
                plain, torch.tensor([0.5, scale]), torch.tensor([0, 1]), 0, torch.qint8
            )
            for scale in (0.5, 0.25)
        ]
    assert compare(from_torch(made[0]), from_torch(made[0])) == []
    found = compare(from_torch(made[0]), from_torch(made[1]))
    assert codes(found) == ["value", "quantizer"]
    assert found[1].path == "tensors[0].quantizer.scales.elements[1]"


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float16"])
def test_no_type_passes_through_another(name: str) -> None:
    """bfloat16 has no numpy type (row 96): its bits are compared as they are."""
    torch = import_torch()
    size = 1 if "8" in name else 2
    dtype = getattr(torch, name)
    every = torch.arange(256, dtype=torch.uint8) if size == 1 else torch.arange(-32768, 32768).to(torch.int16)
    one = every.view(dtype)
    assert compare(from_torch(one), from_torch(one.clone())) == []
    for at in (0, 77, 127, 255):
        other = every.clone()
        other[at] ^= 1
        (found,) = compare(from_torch(one), from_torch(other.view(dtype)))
        assert found.path == f"tensors[0].elements[{at}]"
        assert found.elements is not None
        assert found.elements.differing == 1


def test_other_dtypes_and_shapes_are_not_compared_further() -> None:
    one = floats(1.0, 2.0)
    assert codes(compare(one, floats(1.0, 2.0, dtype="float64"))) == ["dtype"]
    (found,) = compare(one, dense("float32", bytes(8), (2, 1)))
    assert (found.code, found.a_value, found.b_value) == ("shape", [2], [2, 1])
    found_all = compare(one, dense("int32", bytes(8), (1, 2), requires_grad=True, device="cuda:0"))
    assert codes(found_all) == ["dtype", "shape", "requires-grad", "device"]


def test_the_device_to_which_a_tensor_goes_is_compared() -> None:
    one = floats(1.0)
    other = Tensors(one.metas, (in_memory(bytes.fromhex("0000803f"), device="cuda:1"),))
    (found,) = compare(one, other)
    assert (found.code, found.path) == ("device", "tensors[0].target_device")
    assert (found.a_value, found.b_value) == ("cpu", "cuda:1")


def test_devices_may_be_ignored() -> None:
    one, other = floats(1.0), dense("float32", bytes.fromhex("0000803f"), device="cuda:0")
    assert codes(compare(one, other)) == ["device"]
    assert compare(one, other, Rules(ignore=frozenset({"device"}))) == []


@pytest.mark.parametrize("sizes", [(0,), (2, 0, 3), ()])
def test_no_elements_and_no_dimensions(sizes: tuple[int, ...]) -> None:
    data = bytes(4 * math.prod(sizes))
    assert compare(dense("float32", data, sizes), dense("float32", data, sizes)) == []


def test_holes_are_unknown_and_what_is_known_is_compared() -> None:
    one = dense("uint8", bytes(range(20)))
    other = Tensors(one.metas, (holed(bytes(10) + bytes(range(10, 20)), (10, 15)),))
    (value, unknown) = (d for d in compare(one, other) if d.code != "device")
    assert (value.code, value.path) == ("value", "tensors[0].elements[1]")
    assert value.elements is not None
    assert value.elements.differing == 9
    assert (unknown.code, unknown.path) == ("unknown", "tensors[0].elements[10]")
    assert codes(compare(other, other)) == ["unknown"]


def test_a_table_that_does_not_fit_is_unknown() -> None:
    one = dense("float32", bytes(8), (3,))
    other = dense("float32", bytes(7) + b"\1", (3,))
    assert codes(compare(one, other)) == ["unknown"]


# --- tolerance and steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@given(data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_what_is_tolerated_is_close_for_torch_too(name: str, data: st.DataObject) -> None:
    torch = import_torch()
    base = data.draw(st.floats(-1e3, 1e3))
    factor = data.draw(st.floats(0.99, 1.01)) if data.draw(st.booleans()) else 1 + 1e-6
    one, other = (torch.tensor([x], dtype=getattr(torch, name)) for x in (base, base * factor))
    rules = Rules(by_dtype=True)
    found = compare(from_torch(one), from_torch(other), rules)
    if all(difference.tolerated for difference in found):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(other, one)
    elif abs(factor - 1) < 1e-9:
        assert found == []


def test_within_steps_and_within_tolerance() -> None:
    torch = import_torch()
    one = torch.tensor([1.0, -2.0, 3.0])
    near = torch.nextafter(torch.nextafter(one, torch.tensor(9.0)), torch.tensor(9.0))
    (found,) = compare(from_torch(one), from_torch(near))
    assert found.elements is not None
    assert (found.code, found.elements.max_ulp, found.tolerated) == ("ulp", 2, False)
    assert codes(compare(from_torch(one), from_torch(near), Rules(ulp=1))) == ["value"]
    (covered,) = compare(from_torch(one), from_torch(near), Rules(rtol=1e-6))
    assert (covered.code, covered.tolerated) == ("ulp", True)
    assert verdict([covered], Rules(rtol=1e-6)) == "tolerance"


def test_nan_against_a_number_is_never_near() -> None:
    (found,) = compare(floats(math.nan, 1.0), floats(1.0, 1.0), LOOSE)
    assert (found.code, found.tolerated) == ("value", False)
    assert found.elements is not None
    assert (found.elements.max_abs, found.elements.worst) == (None, None)


# --- properties ---------------------------------------------------------------------------------------------


@given(data=st.data(), name=st.sampled_from(DENSE))
def test_any_bit_that_flips_is_found_where_it_is(data: st.DataObject, name: str) -> None:
    item = DTYPES[name].item_bytes
    raw = data.draw(st.binary(min_size=item, max_size=6 * item).filter(lambda b: len(b) % item == 0))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    other = bytearray(raw)
    other[bit // 8] ^= 1 << bit % 8
    assert compare(dense(name, raw), dense(name, raw)) == []
    (found,) = compare(dense(name, raw), dense(name, bytes(other)))
    assert found.path == f"tensors[0].elements[{bit // 8 // item}]"
    assert found.elements is not None
    assert found.elements.differing == 1
    assert found.a_bits != found.b_bits


@pytest.mark.parametrize(("name", "per_byte"), [("quint4x2", 2), ("quint2x4", 4)])
@given(raw=st.binary(min_size=1, max_size=5), data=st.data())
def test_bits_of_elements_that_share_a_byte(
    name: str, per_byte: int, raw: bytes, data: st.DataObject
) -> None:
    numel = data.draw(st.integers(per_byte * (len(raw) - 1) + 1, per_byte * len(raw)))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    other = bytearray(raw)
    other[bit // 8] ^= 1 << bit % 8
    element = bit // (8 // per_byte)
    found = compare(dense(name, raw, (numel,)), dense(name, bytes(other), (numel,)))
    paths = [difference.path for difference in found]
    assert paths == (
        [f"tensors[0].elements[{element}]"] if element < numel else []
    )  # what is behind is padding


@given(st.lists(st.floats(width=32), min_size=2, max_size=8), st.randoms())
def test_no_permutation_is_equal(values: list[float], random: Any) -> None:
    other = list(values)
    random.shuffle(other)
    raw = [np.array(some, "<f4").tobytes() for some in (values, other)]
    assert (compare(floats(*values), floats(*other)) == []) == (raw[0] == raw[1])


@given(st.lists(st.floats(width=32), min_size=1, max_size=8), st.integers(0, 7))
def test_no_flip_of_a_sign_is_equal(values: list[float], at: int) -> None:
    at %= len(values)
    raw = np.array(values, "<f4").view("<u4")
    flipped = raw.copy()
    flipped[at] ^= 0x80000000
    (found,) = compare(dense("float32", raw.tobytes()), dense("float32", flipped.tobytes()), LOOSE)
    assert found.path == f"tensors[0].elements[{at}]"


@given(
    one=st.lists(st.floats(), min_size=1, max_size=6),
    other=st.lists(st.floats(), min_size=6, max_size=6),
    rules=st.sampled_from([Rules(), LOOSE, Rules(by_dtype=True), STRICT]),
)
def test_the_mirror(one: list[float], other: list[float], rules: Rules) -> None:
    compare(floats(*one, dtype="float64"), floats(*other[: len(one)], dtype="float64"), rules)


def test_a_large_tensor_is_read_in_blocks() -> None:
    numel = 1_500_000
    one, other = np.zeros(numel, "<f8"), np.zeros(numel, "<f8")
    other[[700_000, 1_400_000]] = [1.0, -3.0]
    lengths = []
    tensors = []
    for array in (one, other):
        made = dense("float64", array.tobytes())
        storage = made.storages[0]

        def read(extent: Any, storage: Storage = storage) -> bytes:
            lengths.append(extent.length)
            return storage.read(extent)

        tensors.append(Tensors(made.metas, (Storage(storage.extent, read, target_device="cpu"),)))
    (found,) = compare(*tensors)
    assert found.elements is not None
    assert found.path == "tensors[0].elements[700000]"
    assert (found.elements.differing, found.elements.max_abs, found.elements.worst) == (2, 3.0, 1_400_000)
    assert max(lengths) <= 1 << 22


@contextmanager
def quiet() -> Iterator[None]:
    """torch warns whenever something is quantized."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- hashes that were kept in place of bytes ----------------------------------------------------------------


GONE = Storage(None, lambda extent: b"", target_device="cpu")


def by_hash(tensors: Tensors) -> Tensors:
    """The same, of which only the hashes of numpy's bytes are left."""
    hashes = [hashlib.sha256(storage.read(storage.extent)).hexdigest() for storage in tensors.storages]  # type: ignore[arg-type]
    return Tensors(tensors.metas, [GONE] * len(tensors.storages), hashes)


def test_a_hash_tells_equal_bits_and_no_more() -> None:
    whole, other = floats(1.0, -2.0, 0.0), floats(1.0, -2.0, -0.0)
    kept = by_hash(whole)
    assert compare(kept, kept, LOOSE) == compare(kept, whole, LOOSE) == []
    for one in (other, by_hash(other)):
        (found,) = compare(kept, one)
        assert (found.code, found.path) == ("value", "tensors[0]")
        assert found.a_value == f"sha256 {hashlib.sha256(np.array([1, -2, 0], '<f4')).hexdigest()[:12]}…"
        for rules in (LOOSE, Rules(ignore=frozenset({"zero-sign"}))):
            (found,) = compare(kept, one, rules)
            assert found.code == "unknown"
    (found,) = compare(kept, Tensors(whole.metas, [GONE]))
    assert found.code == "unknown"


def test_a_hash_is_of_the_elements_whatever_their_form() -> None:
    torch = import_torch()
    square = torch.arange(6.0).reshape(2, 3)
    turned = from_torch(square.t().contiguous().t())
    assert codes(compare(by_hash(from_torch(square)), turned)) == ["form"]


def test_bytes_that_are_there_are_believed_before_a_hash() -> None:
    whole, other = floats(1.0), floats(2.0)
    lying = Tensors(other.metas, other.storages, [hashlib.sha256(np.float32(1).tobytes()).hexdigest()])
    assert codes(compare(whole, lying)) == ["value"]
    assert compare(whole, lying)[0].elements is not None
