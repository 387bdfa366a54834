"""Gradient requests read by their ids alone are what the general reading gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.command import Command, PropagateGradientsReq
from rpcinspect.rpc.command_codec import from_message, to_payload
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.gradients import GradientRequests
from rpcinspect.rpc.message import MessageType

KIND = MessageType.BACKWARD_AUTOGRAD_REQ

CAPTURED = bytes.fromhex(
    "8002 28"  # PROTO 2, MARK
    "63 746f7263682e6a69742e5f7069636b6c65 0a 6275696c645f74656e736f725f66726f6d5f6964 0a 7100"  # GLOBAL
    "28 4b00 74 52 7101"  # tensor 0
    "4b00"  # context 0
    "8a08 0000000000000100"  # message 1:0
    "89 74 2e"  # retain_graph False, TUPLE, STOP
)

ids = st.integers(0, 300) | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-70000, 1 << 33)
requests = st.builds(
    PropagateGradientsReq,
    st.builds(AutogradMetadata, ids, ids),
    st.lists(st.integers(0, 300), max_size=4).map(tuple),
    st.booleans(),
)


def outcome(payload: bytes, reader: GradientRequests | None) -> Command | str:
    """The command, or why there is none."""
    try:
        return from_message(KIND, payload) if reader is None else reader.read(payload)
    except DecodeError as error:
        return str(error)


def test_a_captured_request() -> None:
    reader = GradientRequests()
    expected = PropagateGradientsReq(AutogradMetadata(0, 1 << 48), (0,), False)
    assert reader.read(CAPTURED) == expected
    assert reader.read(CAPTURED) == expected  # now from its head


@given(st.lists(requests, min_size=2, max_size=8))
@settings(max_examples=150, deadline=None)
def test_it_equals_the_general_reading(commands: list[PropagateGradientsReq]) -> None:
    reader = GradientRequests()
    for command in commands * 2:
        payload = to_payload(command)
        assert reader.read(payload) == command == from_message(KIND, payload)


@given(st.integers(0, len(CAPTURED) - 1), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_damage_is_told_as_the_general_reading_tells_it(at: int, value: int) -> None:
    reader = GradientRequests()
    reader.read(CAPTURED)
    damaged = CAPTURED[:at] + bytes([value]) + CAPTURED[at + 1 :]
    assert outcome(damaged, reader) == outcome(damaged, None)


@pytest.mark.parametrize("size", range(len(CAPTURED)))
def test_cut_payloads(size: int) -> None:
    reader = GradientRequests()
    reader.read(CAPTURED)
    assert outcome(CAPTURED[:size], reader) == outcome(CAPTURED[:size], None)


def test_the_memory_of_heads_is_bounded() -> None:
    reader = GradientRequests()
    for count in range(200):
        command = PropagateGradientsReq(AutogradMetadata(1, 2), tuple(range(count)), True)
        assert reader.read(to_payload(command)) == command
    assert len(reader._heads) <= 64
