"""NaN and infinities: who made them from what, in captures whose jobs tell it, and in captures in which a
tensor's bytes were replaced."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.checks.nonfinite import FIRST_BYTES, LAYOUTS, _numbers
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, Session
from tests.places import content, recorded

NAN, INFINITY = struct.pack("<f", float("nan")), struct.pack("<f", float("-inf"))


def decoded(*paths: Path) -> tuple[list[RpcRecord], Session]:
    with Decoding([str(path) for path in paths]) as decoding:
        records = list(decoding.records())
        return records, decoding.session


def told(*paths: Path) -> list[Finding]:
    return [one for one in decoded(*paths)[1].findings if one.code == "nonfinite-tensor"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            ["nan.pcap"],
            (
                "#107 from worker2 to worker0 is the first message that carries NaN: 96 NaN of 96 "
                "elements of tensor#0. worker2 made them in the backward pass of __mp_main__.forward2 "
                "(#102), from the finite gradients in #106. 7 later messages carry such numbers, too."
            ),
        ),
        (
            ["two_a.rpclog", "two_b.rpclog"],
            (
                "#107 from worker2 to worker0 is the first message that carries NaN: 96 NaN of 96 "
                "elements of tensor#0. worker2 made them in the backward pass of __main__.forward2 "
                "(#102), from the finite gradients in #106. 7 later messages carry such numbers, too."
            ),
        ),
        (
            ["two_a.rpclog"],
            (
                "#53 from worker0 to worker1 is the first message that carries NaN: 96 NaN of 96 "
                "elements of tensor#0. Who made them is not known: nothing that worker1, worker2 sent is "
                "recorded. 5 later messages carry such numbers, too."
            ),
        ),
    ],
)
def test_the_gradient_at_step_3(names: Sequence[str], text: str) -> None:
    """worker2's forward computes sqrt(0) at step 3: its gradient is infinite, times 0 it is NaN. The log of
    worker0's host alone does not have what worker2 sent."""
    [finding] = told(*(recorded(f"reports/job/{name}") for name in names))
    assert finding.text == text


@pytest.mark.parametrize("name", ["reports/job/plain.pcap", "basic_chain.pcap", "rref_relay.pcap"])
def test_finite_jobs(name: str) -> None:
    assert told(recorded(name)) == []


def changed(tmp_path: Path, *changes: tuple[int, int, bytes]) -> Path:
    """plain.pcap with other bytes in it: (message, place in its first tensor, bytes)."""
    source = tmp_path / "plain.pcap"
    source.write_bytes(content("reports/job/plain.pcap"))
    records, session = decoded(source)
    data = bytearray(source.read_bytes())
    for index, at, new in changes:
        [record] = [one for one in records if int(session.index[one.row]) == index]
        extent = record.tp.tensors[0].extent
        assert extent is not None
        _, offset, length = extent.part(at, at + len(new)).pieces[0]
        assert length == len(new)
        data[offset : offset + length] = new
    path = tmp_path / "changed.pcap"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        # 40 answers 38, 44 answers 42; 46 is worker0's gradient for 44, 47 worker2's for 42.
        (
            [(44, 8, NAN)],
            (
                "#44 from worker2 to worker0 is the first message that carries NaN: 1 NaN of 24 elements "
                "of tensor#0. worker2 made them in __mp_main__.forward2 (#42); its arguments are finite."
            ),
        ),
        (
            [(44, 8, INFINITY)],
            (
                "#44 from worker2 to worker0 is the first message that carries infinities: 1 infinite of "
                "24 elements of tensor#0. worker2 made them in __mp_main__.forward2 (#42); its arguments "
                "are finite."
            ),
        ),
        (
            [(46, 0, INFINITY + NAN), (47, 4, NAN), (49, 0, NAN)],
            (
                "#46 from worker0 to worker2 is the first message that carries NaN: 1 NaN and 1 infinite "
                "of 24 elements of tensor#0. worker0 made them in its own backward pass, behind the "
                "result of __mp_main__.forward2 (#42). 2 later messages carry such numbers, too."
            ),
        ),
        (
            [(38, 0, NAN)],
            (
                "#38 from worker0 to worker1 is the first message that carries NaN: 1 NaN of 48 elements "
                "of tensor#0. worker0 had received none before."
            ),
        ),
        (
            [(44, 0, NAN), (49, 0, NAN), (40, 0, NAN)],
            (
                "#40 from worker1 to worker0 is the first message that carries NaN: 1 NaN of 96 elements "
                "of tensor#0. worker1 made them in _remote_module_non_scriptable._remote_forward (#38); "
                "its arguments are finite. 2 later messages carry such numbers, too. As far as the "
                "capture shows, worker2 (#44) had received none, and sent some, too."
            ),
        ),
    ],
)
def test_replaced_numbers(changes: list[tuple[int, int, bytes]], text: str, tmp_path: Path) -> None:
    [finding] = told(changed(tmp_path, *changes))
    assert finding.text == text


def test_infinities_among_arguments_are_masks(tmp_path: Path) -> None:
    assert told(changed(tmp_path, (38, 0, INFINITY), (42, 8, INFINITY))) == []


@given(
    st.sampled_from(["float64", "float32", "float16", "complex128", "complex64"]),
    st.lists(st.sampled_from([0.0, -0.0, 1.5, -2.0, float("nan"), float("inf"), float("-inf")]), max_size=40),
)
def test_numbers_are_counted_as_numpy_counts_them(dtype: str, values: list[float]) -> None:
    array = np.asarray(values, dtype)
    found = _numbers(array.tobytes(), dtype, 3)
    nan, infinite = np.isnan(array), np.isinf(array) & ~np.isnan(array)
    if not nan.any() and not infinite.any():
        assert found is None
        return
    assert found is not None
    assert (found.nan, found.infinite) == (3 * np.count_nonzero(nan), 3 * np.count_nonzero(infinite))
    assert found.elements == 3 * len(values)


def test_bfloat16() -> None:
    """The upper halves of float32."""
    array = np.asarray([1.0, float("nan"), float("-inf"), 3e38], np.float32)
    found = _numbers((array.view(np.uint32) >> 16).astype(np.uint16).tobytes(), "bfloat16", 1)
    assert found is not None
    assert (found.nan, found.infinite, found.elements) == (1, 1, 4)
    assert set(LAYOUTS) >= {"bfloat16"}
    assert FIRST_BYTES % 16 == 0  # whole elements of every type
