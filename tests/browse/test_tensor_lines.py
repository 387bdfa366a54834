"""A tensor as lines: elements at their indexes, against torch."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.browse.tensor_lines import ElementLines, TensorLines, Worked, element_words, is_nonfinite
from rpcinspect.browse.tensor_view import work_out
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.run.message import tensors_of
from rpcinspect.run.tensors import LastRead
from tests.browse.messages import call
from tests.places import recorded
from tests.views.opened import opened

VALUE = re.compile(r"[! ]*\[([\d,]*)\] +(.*)")


def shown(values: ElementLines) -> dict[tuple[int, ...], str]:
    """Index → the element that is shown there."""
    found = {}
    for at in range(values.count):
        match = VALUE.fullmatch(values.line(at).text)
        assert match is not None
        *before, last = [int(part) for part in match[1].split(",") if part] or [0]
        for step, text in enumerate(match[2].split()):
            index = (*before, last + step)
            assert index not in found
            found[index] = text
    return found


@pytest.mark.filterwarnings("ignore:ComplexHalf support", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("width", [30, 80, 200])
def test_values_stand_at_their_indexes(width: int) -> None:
    types = set()
    with opened(Path("views_alias.pcap.gz")) as capture, opened(Path("dtype_zoo.pcap.gz")) as zoo:
        for one in (capture, zoo):
            for record in one.messages:
                for tensor in tensors_of(record, LastRead(one.bytes)):
                    if tensor.meta.storage is None or tensor.dtype == "float4_e2m1fn_x2":
                        continue
                    found = shown(ElementLines(tensor, width))
                    made = tensor.torch()
                    made = made.int_repr() if made.is_quantized else made.resolve_conj().resolve_neg()
                    assert len(found) == made.numel()
                    if tensor.dtype.startswith("bits"):
                        continue
                    flat = iter(made.reshape(-1).tolist())
                    for index in sorted(found):
                        assert found[index] == element_words(next(flat))
                    types.add(tensor.dtype)
    assert len(types) > 15


@given(
    sizes=st.lists(st.integers(0, 5), max_size=4).map(tuple),
    width=st.integers(1, 120),
)
def test_each_element_stands_once(sizes: tuple[int, ...], width: int) -> None:
    numel = math.prod(sizes)
    strides = tuple(math.prod(sizes[at + 1 :]) for at in range(len(sizes)))
    meta = TensorMeta(dtype="int16", sizes=sizes, strides=strides, storage=0, storage_numel=numel)
    data = b"".join(at.to_bytes(2, "little") for at in range(numel))
    record, source = call(metas=[meta], storages=[data])
    values = ElementLines(tensors_of(record, LastRead(source))[0], width)
    found = shown(values)
    assert sorted(map(int, found.values())) == list(range(numel))
    for index, text in found.items():
        assert int(text) == sum(i * s for i, s in zip(index, strides or (1,), strict=True))


def lines_of(lines: TensorLines) -> list[str]:
    return [lines.line(at, 100).text for at in range(len(lines))]


def test_what_is_not_finite_is_marked() -> None:
    marked = 0
    with opened(recorded("reports/job/nan.pcap")) as capture:
        for record in capture.messages:
            for tensor in tensors_of(record, LastRead(capture.bytes)):
                values = ElementLines(tensor, 80)
                lines = [values.line(at) for at in range(values.count)]
                assert sum(line.text.count("NaN") for line in lines) == tensor.statistics().nan
                assert all((line.mark == "!") == ("NaN" in line.text or "Inf" in line.text) for line in lines)
                marked += any(line.mark for line in lines)
    assert marked


def test_what_was_not_captured_is_a_question_mark() -> None:
    seen = 0
    with opened(recorded("torch/snap300.pcap")) as capture:
        for record in capture.messages:
            tensors = tensors_of(record, LastRead(capture.bytes))
            for number, tensor in enumerate(tensors):
                if not tensor.missing_bytes or tensor.meta.storage is None:
                    continue
                (worked,) = work_out(tensors[number])
                told = lines_of(TensorLines(record, tensors, number, worked, 100))
                assert any("bytes of it not captured" in line for line in told)
                assert any(line.startswith("statistics can't be told: ") for line in told)
                asked = tensor.elements(0, math.prod(tensor.shape))
                assert sum(line.count("?") for line in told if line.lstrip().startswith("[")) == asked.count(
                    None
                )
                seen += 1
    assert seen


def test_parts_of_a_sparse_tensor_have_values() -> None:
    with opened(Path("dtype_zoo.pcap.gz")) as capture:
        record = capture.messages[86]
        tensors = tensors_of(record, LastRead(capture.bytes))
        (worked,) = work_out(tensors[0])
        told = lines_of(TensorLines(record, tensors, 0, worked, 100))
    assert "indices, tensor#1[2,3] int64: 6 elements" in told
    assert "values, tensor#2[3] float32: 3 elements" in told
    assert told[-1].split() == ["[0]", "3", "4", "5"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "?"),
        (True, "True"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Inf"),
        (complex(1, float("inf")), "1+Infj"),
        ((0.5, -6.0), "0.5/-6"),
    ],
)
def test_words(value: object, words: str) -> None:
    assert element_words(value) == words
    assert is_nonfinite(value) == ("NaN" in words or "Inf" in words)


def test_a_tensor_that_repeats_four_bytes_a_trillion_times() -> None:
    meta = TensorMeta(dtype="float32", sizes=(1 << 40,), strides=(0,), storage=0, storage_numel=1)
    record, source = call(metas=[meta], storages=[b"\0\0\x80\x3f"])
    tensors = tensors_of(record, LastRead(source))
    (worked,) = work_out(tensors[0])
    assert worked.note.startswith("can't be told: ")
    lines = TensorLines(record, tensors, 0, Worked(), 80)
    assert len(lines) > 1 << 37
    assert lines.line(len(lines) - 1, 80).text.endswith("1")
