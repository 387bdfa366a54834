"""The rare opcodes, one by one, against what the standard library makes of the same bytes."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path

import pytest

from rpcinspect.errors import DecodeError
from rpcinspect.pickles import python
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.python_ops import OPCODES
from rpcinspect.pickles.tree import Extension, PersistentRef

from .plain import plain


def test_every_opcode_of_the_standard_library_is_read() -> None:
    loop = Path(python.__file__).read_text()
    for op in pickletools.opcodes:
        code = ord(op.code)
        in_loop = f"0x{code:02X}" in loop
        assert in_loop != (code in OPCODES), op.name
    assert set(OPCODES) <= {ord(op.code) for op in pickletools.opcodes}


SAME_AS_PYTHON = [
    b"I01\n.",
    b"I00\n.",
    b"I1\n.",
    b"I-42\n.",
    b"I0x1f\n.",
    b"I0\n.",
    b"L12L\n.",
    b"L12\n.",
    b"L-99999999999999999999L\n.",
    b"F1.5\n.",
    b"Fnan\n.",
    b"F-inf\n.",
    b"S'abc'\n.",
    b'S"a\'b"\n.',
    b"S'\\x41\\102\\n\\\\\\''\n.",
    b"S'\\q'\n.",
    b"S'a\\\\nb'\n.",
    b"Va\\u20acb\n.",
    b"V\\U0001f600\n.",
    b"U\x03abc.",
    b"T\x03\x00\x00\x00abc.",
    b"C\x02\xff\xfe.",
    b"B\x02\x00\x00\x00\xff\xfe.",
    b"\x8e\x02\x00\x00\x00\x00\x00\x00\x00\xff\xfe.",
    b"\x8d\x02\x00\x00\x00\x00\x00\x00\x00\xc3\xa4.",
    b"\x96\x01\x00\x00\x00\x00\x00\x00\x00x.",
    b"\x8a\x00.",
    b"\x8a\x02\xff\x7f.",
    b"\x8b\x02\x00\x00\x00\xff\xff.",
    b"(I1\nI2\nl.",
    b"(I1\nI2\nd.",
    b"(I1\nI2\nt.",
    b"(lp0\nI5\na.",
    b"(dp7\nI5\nI6\ns.",
    b"I1\n2\x86.",
    b"I1\nI2\n0.",
    b"I1\n(I2\nI3\n1.",
    b"I1\n(0.",
    b"I1\np5\ng5\n\x86.",
    b"I1\np0012\ng12\n\x86.",
    b"Nr\x00\x01\x00\x00j\x00\x01\x00\x00\x86.",
    b"\x8f(I1\nI2\n\x90.",
    b"(I1\n\x91.",
    b"J\xff\xff\xff\xff.",
    b"X\x03\x00\x00\x00\xed\xa0\x80.",
    b"\x80\x02K\x01\x80\x04\x85.",
]


@pytest.mark.parametrize("data", SAME_AS_PYTHON, ids=lambda d: repr(d)[2:30])
@pytest.mark.filterwarnings("ignore:invalid escape")
def test_same_as_python(data: bytes) -> None:
    expected = pickle.loads(data)
    found = plain(read_python_pickle(data).root)
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    "data", [b"I1\x00zz\n.", b"I010\n.", b"L5\x00zL\n.", b"F1.5\x00z\n.", b"Np1\x00z\ng1\x00\n."]
)
def test_c_numbers(data: bytes) -> None:
    """CPython's C functions stop at a zero byte, and INT knows octal."""
    assert read_python_pickle(data).root == pickle.loads(data)


@pytest.mark.parametrize(
    "data",
    [
        b"Ixyz\n.",
        b"Fxyz\n.",
        b"S'abc\n.",
        b"Sabc\n.",
        b"V\\u12\n.",
        b"pxx\n.",
        b"Np-1\n.",
        b"(o.",
        b"Ncx\n.",
        b"0.",
        b"2.",
    ],
)
def test_refused_as_python_does(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError, pickle.UnpicklingError, EOFError)):
        pickle.loads(data)
    with pytest.raises(DecodeError):
        read_python_pickle(data)


def test_python_2_strings_that_are_no_text_stay_bytes() -> None:
    assert read_python_pickle(b"U\x02\xff\xfe.").root == b"\xff\xfe"
    assert read_python_pickle(b"S'\\xff'\n.").root == b"\xff"


def test_old_classes() -> None:
    for data in (b"(I1\nim\nC\n.", b"(cm\nC\nI1\no."):
        assert plain(read_python_pickle(data).root) == ("call", "m.C", (1,))


def test_persistent_ids_and_extensions() -> None:
    found = read_python_pickle(b"(Pabc\nI7\nQ\x82\x05\x83\x00\x01\x84\x00\x00\x01\x00t.")
    first, second, *extensions = found.root
    assert (type(first), first.id, second.id) == (PersistentRef, "abc", 7)
    assert [type(e) for e in extensions] == [Extension] * 3
    assert found.extensions == (5, 256, 65536)


def test_a_name_made_at_run_time() -> None:
    found = read_python_pickle(b"Vos\ncm\nf\n)R\x93.")
    assert found.root.how == "stack_global"
    assert found.calls[-1] is found.root


def test_a_second_state_is_a_change() -> None:
    found = read_python_pickle(b"cm\nC\n)\x81}b}b.")
    assert found.root.how == "change"
    assert found.root.function.how == "newobj"
