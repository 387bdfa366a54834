"""Stand-ins: as long as what they stand for, equal for equal, other for other, without a way back."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.export.redaction.pseudonyms import Pseudonyms

NAMES = ["a", "b10", "b2", "ps", "trainer-1", "trainer-10", "worker0", "ü", "Z"]
WORDS = Pseudonyms(b"key", NAMES)


@given(st.binary(max_size=100))
def test_words_are_as_long_as_what_they_stand_for(data: bytes) -> None:
    made = WORDS.word(data)
    assert len(made) == len(data)
    assert made == Pseudonyms(b"key", NAMES).word(data)
    for other in (WORDS.text, WORDS.dotted, WORDS.noise, WORDS.filler, WORDS.type_tag):
        assert len(other(data)) == len(data)


def test_names_keep_their_order() -> None:
    """The leader of a group is the one with the smallest name."""
    made = [WORDS.word(name.encode()) for name in sorted(NAMES, key=str.encode)]
    assert made == sorted(made)
    assert len(set(made)) == len(NAMES)
    many = [f"worker{n}" for n in range(500)]
    words = Pseudonyms(b"k", many)
    made = [words.word(name.encode()) for name in sorted(many)]
    assert made == sorted(made)
    assert len(set(made)) == 500


def test_short_words_are_one_to_one() -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"
    plain = Pseudonyms(b"key")
    for words in (list(letters), [a + b for a in letters for b in letters]):
        made = [plain.word(word.encode()).decode() for word in words]
        assert sorted(made) == sorted(words)
        assert all(new[0].isdigit() == old[0].isdigit() for new, old in zip(made, words, strict=True))


def test_a_hundred_thousand_words_are_all_others() -> None:
    assert len({WORDS.word(b"word%d" % n) for n in range(100_000)}) > 99_990


@pytest.mark.parametrize(("low", "high"), [(2, 255), (256, 65535), (-128, -2), (2, 3), (7, 7)])
def test_integers_are_one_to_one(low: int, high: int) -> None:
    made = [WORDS.integer(value, low, high) for value in range(low, high + 1)]
    assert sorted(made) == list(range(low, high + 1))


@given(st.integers(-(1 << 200), 1 << 200))
def test_integers_stay_in_range(value: int) -> None:
    low, high = (2, (1 << 200)) if value > 0 else (-(1 << 200), -2)
    made = WORDS.integer(value, low, high)
    assert low <= made <= high or value in (0, 1, -1)
    assert (value in (0, 1, -1)) == (made == value) or high - low < 4 or made != value


@given(st.floats())
def test_floats_keep_sign_and_scale(value: float) -> None:
    made = WORDS.float64(value)
    if value != value:
        assert made != made
        return
    assert math.copysign(1, made) == math.copysign(1, value)
    if value not in (0.0, 1.0, -1.0) and math.isfinite(value):
        assert math.frexp(made)[1] == math.frexp(value)[1] or abs(value) < 1e-300
        assert made != value


ERROR = b"""On WorkerInfo(id=2, name=worker0):
KeyError('no such weight: encoder.7')
Traceback (most recent call last):
  File "/srvs/acme/jobs/train.py", line 28, in broken
    raise KeyError("no such weight")
  File "/usr/lib/python3.11/site-packages/torch/distributed/rpc/internal.py", line 209, in _run_function
RuntimeError: RPCErr:1:RPC ran for more than set timeout (200 ms) and will now be marked with an error
frame #3: acme::kernel(float) + 0x9d (0x7f36 in /srvs/acme/lib.so)
at 10.1.2.3:29500 pid=4711 [fe80::1]:80 0x7ffe port 99
"""


def test_texts_keep_what_torch_and_python_put_around_them() -> None:
    made = WORDS.text(ERROR)
    assert len(made) == len(ERROR)
    lines = made.split(b"\n")
    assert lines[0] == b"On WorkerInfo(id=2, name=%b):" % WORDS.word(b"worker0")
    assert lines[1].startswith(b"KeyError('")
    assert lines[2] == b"Traceback (most recent call last):"
    assert b", line 28, in " in lines[3]
    assert b"/lib/python3.11/site-packages/torch/distributed" in lines[5]
    assert lines[6] == ERROR.split(b"\n")[6]
    assert lines[7] == b"frame #3: " + b"x" * (len(lines[7]) - 10)
    assert b"00.0.0.0:00000" in lines[8]
    for secret in (b"acme", b"weight", b"encoder", b"broken", b"train", b"4711", b"29500", b"7ffe", b"fe80"):
        assert secret not in made


def test_what_quotes_a_text_quotes_its_stand_in() -> None:
    line = b"ValueError('bad batch 17')"
    inside = WORDS.text(b"RuntimeError: worker said\\n" + line + b" and left")
    assert WORDS.text(line) in inside


def test_dotted_names_part_by_part() -> None:
    assert WORDS.dotted(b"__main__.f.<locals>.g").split(b".")[::2] == [b"__main__", b"<locals>"]
    assert WORDS.dotted(b"a.b") == WORDS.word(b"a") + b"." + WORDS.word(b"b")
    assert WORDS.type_tag(b"Dict[str, List[Tensor]]") == b"Dict[str, List[Tensor]]"
    assert b"Secret" not in WORDS.type_tag(b"List[__torch__.pkg.Secret]")


PIECES = [
    *(b" from ", b"\\", b"[", b"frame #1: ", b"0x", b"1.", b"a", b"("),
    *(b"On WorkerInfo(id=1, name=", b"GloballyUniqueId("),
]


@pytest.mark.parametrize("piece", PIECES)
def test_hostile_texts_take_no_more_time_than_long_ones(piece: bytes) -> None:
    """A second at most for what would take minutes if the time were to grow with the square."""
    text = piece * (100_000 // len(piece))
    begin = time.process_time()
    assert len(WORDS.text(text)) == len(text)
    assert time.process_time() - begin < 10
