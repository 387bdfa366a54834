"""What the wire stage hands on."""

from __future__ import annotations

import pytest

from rpcinspect.tcp.ranges import Extent
from rpcinspect.tcp.segment import Endpoint, Flow
from rpcinspect.tensorpipe.control_types import ControlLayout, TpDevice, TpTensorDescriptor
from rpcinspect.tensorpipe.records import Pipe, Placement, TpTensor, Visibility

CPU = TpDevice("cpu", 0)


def test_a_pipe_knows_its_ends() -> None:
    pipe = Pipe(3, Flow(Endpoint("10.0.0.1", 1000), Endpoint("fd00::2", 2000)))
    assert (str(pipe.client), str(pipe.server)) == ("10.0.0.1:1000", "[fd00::2]:2000")
    assert (pipe.layout, pipe.visible, pipe.client_name) == (ControlLayout.V1_9, Visibility.FULL, None)


def test_pipes_do_not_share_what_they_collect() -> None:
    flow = Flow(Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2))
    one, other = Pipe(0, flow), Pipe(1, flow)
    one.invisible_channels.add("cma")
    assert other.invisible_channels == set()


@pytest.mark.parametrize(
    ("placement", "extent", "missing"),
    [
        (Placement.CERTAIN, Extent(10, ((0, 5, 10),)), 0),
        (Placement.CERTAIN, Extent(10, ((0, 5, 4),), ((4, 10),)), 6),
        (Placement.CERTAIN, Extent(10, (), ((0, 3), (3, 10))), 10),
        (Placement.MISSING, None, 10),
        (Placement.UNCERTAIN, None, 0),
    ],
)
def test_missing_bytes_of_a_tensor(placement: Placement, extent: Extent | None, missing: int) -> None:
    descriptor = TpTensorDescriptor(length=10, source_device=CPU, target_device=CPU)
    assert TpTensor(descriptor, placement, extent).missing_bytes == missing
