"""NaN and Inf in captured messages, as torch finds them in the same tensors."""

from __future__ import annotations

from typing import Any

import pytest

from rpcinspect.equality.nonfinite import broken_by, nonfinite
from rpcinspect.run.run import open_run
from rpcinspect.tcp.ranges import Extent
from tests.places import recorded

torch = pytest.importorskip("torch")


def real(tensor: Any) -> Any:
    """Floats that torch can ask for NaN; a pair of float4 in a byte can't be one."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return torch.zeros(1) if "float4" in str(tensor.dtype) else tensor.double()


@pytest.mark.filterwarnings("ignore::UserWarning")  # of types that torch finds experimental or old
@pytest.mark.parametrize("name", ["reports/job/nan.pcap", "dtype_zoo.pcap"])
def test_as_torch_finds_them(name: str) -> None:
    seen = set()
    with open_run(str(recorded(name))) as run:
        for index, record in enumerate(run.messages):
            if not record.rpc.tensors or any(meta.layout != "strided" for meta in record.rpc.tensors):
                continue
            tensors = [one.torch() for one in run.message(index).tensors]
            floats = [real(one) for one in tensors if one.is_floating_point() or one.is_complex()]
            expected = None
            if any(bool(one.isinf().any()) for one in floats):
                expected = "Inf"
            if any(bool(one.isnan().any()) for one in floats):
                expected = "NaN"
            found = nonfinite(record, run.read)
            assert found == expected, index
            seen.add(found)
    assert seen >= {None, "NaN"}


NAN, INFINITE = (b"\x00\x00\xc0\x7f", b"\x00\x00\xc0\xff"), b"\x00\x00\x80\x7f"
"""float32."""


def test_infinities_count_in_gradients_and_answers() -> None:
    found = set()
    with open_run(str(recorded("reports/job/nan.pcap"))) as run:

        def read(extent: Extent) -> bytes:
            """Infinities instead of NaN."""
            return run.read(extent).replace(NAN[0], INFINITE).replace(NAN[1], INFINITE)

        for call in run.calls.values():
            for record in (call.request, call.response):
                if record is not None and broken_by(record, run.read) == "NaN":
                    kind = call.type if record is call.request else "answer"
                    found.add((kind, broken_by(record, read)))
    assert found == {
        ("FORWARD_AUTOGRAD_REQ", None),
        ("BACKWARD_AUTOGRAD_REQ", "Inf"),
        ("answer", "Inf"),
    }


def test_what_was_not_captured_counts_as_finite() -> None:
    with open_run(str(recorded("torch/snap300.pcap"))) as run:
        assert {nonfinite(record, run.read) for record in run.messages} == {None}
