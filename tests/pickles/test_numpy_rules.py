"""numpy's own pickles pass, and no state that was forged: numpy takes sizes and flags on trust."""

from __future__ import annotations

import pickle

import pytest

from tests.pickles.test_shapes import DUCK, call, refused, text


def test_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    kinds = ["f4", ">f8", "U5", "S3", "?", "c8", "M8[ns]", "m8[s]", "O", "V8", "i4,f8", "(2,)i4"]
    values = [numpy.dtype(kind) for kind in kinds]
    values += [numpy.dtype([("a", "i4"), ("b", "f8")], align=True)]
    values += [numpy.arange(6).reshape(2, 3), numpy.array(5), numpy.array(["a", None], object), numpy.ones(0)]
    values += [numpy.asfortranarray(numpy.ones((2, 2))), numpy.array([(1, 2.0)], "i4,f8")]
    values += [numpy.float32(1), numpy.bool_(True), numpy.str_("x"), numpy.datetime64("2020"), numpy.float16]
    for value in values:
        for protocol in range(6):
            if isinstance(value, numpy.dtype) and value.subdtype is not None:
                continue  # an array in an element: not taken
            assert refused(pickle.dumps(value, protocol)) == {}, (value, protocol)


def dtype(code: str, state: bytes) -> bytes:
    return call("numpy", "dtype", text(code) + b"\x89\x88\x87", state + b"b")


def state(version: int, order: str, size: int, alignment: int, flags: int, middle: bytes = b"NNN") -> bytes:
    """What BUILD gets, with the three fields of records in the middle."""
    numbers = b"".join(b"J" + n.to_bytes(4, "little", signed=True) for n in (size, alignment, flags))
    return b"(K" + bytes([version]) + text(order) + middle + numbers + b"t"


@pytest.mark.parametrize(
    ("code", "forged"),
    [
        ("i4", state(3, "<", -1, -1, 63)),  # numbers taken for pointers to objects
        ("O8", state(3, "|", -1, -1, 0)),  # objects that are taken from bytes
        ("i4", state(3, "<", 400, -1, 0)),  # elements larger than their memory
        ("U5", state(3, "<", 20_000, 4, 8)),
        ("S3", state(3, "|", 300, 1, 0)),
        ("V8", state(3, "|", 8, 1, 63)),
        ("V8", state(3, "|", 80, 1, 0)),
        ("i4", state(5, "<", -1, -1, 0)),
        ("i4", state(3, "?", -1, -1, 0)),
        ("V4", state(3, "|", 4, 1, 0, b"N" + text("a") + b"\x85}" + text("a") + DUCK + b"K\x00\x86s")),
        ("V4", state(3, "|", 4, 1, 0, b"N](e\x85}")),  # names that can't be hashed
        ("i4", b"}"),
        ("i4", b"N"),
    ],
)
def test_forged_states_of_dtype(code: str, forged: bytes) -> None:
    assert "numpy.dtype" in refused(dtype(code, forged))


@pytest.mark.parametrize(("second", "good"), [(4, True), (2, False), (5, False)])
def test_fields_of_records_lie_side_by_side(second: int, good: bool) -> None:
    number = dtype("i4", state(3, "<", -1, -1, 0))[2:-1]  # without PROTO and STOP
    fields = b"}" + b"".join(
        text(name) + number + b"K" + bytes([at]) + b"\x86s" for name, at in (("a", 0), ("b", second))
    )
    record = dtype("V8", state(3, "|", 8, 1, 16, b"N" + text("a") + text("b") + b"\x86" + fields))
    assert (refused(record) == {}) == good


def test_sizes_that_would_take_for_ever_to_multiply() -> None:
    number = b"\x8b" + (1 << 21).to_bytes(4, "little") + b"\x01" * (1 << 21)
    shape = number + b"\x94" + b"h\x000" + b"(" + b"h\x00" * 64 + b"t"
    data = (
        b"\x80\x04cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01" + shape
    )
    data += b"cnumpy\ndtype\n" + text("i4") + b"\x89\x88\x87R\x89C\x00tb."
    assert "numpy._core.multiarray._reconstruct" in refused(data)


@pytest.mark.parametrize("letter", [b"C\x010", b"X\x01\x00\x00\x000", b"C\x02bb"])
def test_an_array_of_another_letter(letter: bytes) -> None:
    """numpy gives what it does not know to a parser of Python."""
    data = b"\x80\x04cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + letter + b"\x87R."
    assert "numpy._core.multiarray._reconstruct" in refused(data)


def test_forged_arrays() -> None:
    numpy = pytest.importorskip("numpy")
    honest = pickle.dumps(numpy.arange(4, dtype="i4"), 4)
    assert refused(honest) == {}
    module = "numpy._core.multiarray" if b"numpy._core" in honest else "numpy.core.multiarray"
    longer = honest.replace(b"K\x04\x85", b"K\x09\x85")
    assert longer != honest
    assert refused(longer) == {f"{module}._reconstruct": "a state forged for it"}
    objects = pickle.dumps(numpy.array([None] * 4, object), 4)
    assert refused(objects) == {}
    raw = objects.replace(b"](NNNNe", b"C\x20" + bytes(32))
    if raw == objects:
        raw = objects.replace(b"]\x94(NNNNe", b"C\x20" + bytes(32))
    assert raw != objects
    assert f"{module}._reconstruct" in refused(raw)
