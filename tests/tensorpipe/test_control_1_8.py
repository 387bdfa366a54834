"""What 1.8 wrote otherwise, from literal bytes. Frames of a real 1.8 are in test_tensorpipe.py."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.errors import DecodeError
from rpcinspect.tensorpipe.control_1_8 import (
    BROCHURE,
    BROCHURE_ANSWER,
    DEVICES_1_8,
    MESSAGE_DESCRIPTOR,
    PACKETS_1_8,
    REQUESTED_CONNECTION,
    SPONTANEOUS_CONNECTION,
    read_brochure_1_8,
    read_brochure_answer_1_8,
    read_tensor_1_8,
    write_brochure_1_8,
    write_brochure_answer_1_8,
    write_tensor_1_8,
)
from rpcinspect.tensorpipe.control_types import (
    TRANSPORT_DESCRIPTOR_ID,
    Brochure,
    BrochureAnswer,
    TpDevice,
    TpTensorDescriptor,
)
from rpcinspect.tensorpipe.nop import NopReader
from tests.thorough import examples

CPU, CUDA = DEVICES_1_8


def text(value: str) -> bytes:
    """STRING, length, bytes."""
    return b"\xbd" + bytes([len(value)]) + value.encode()


# a structure of three maps: transports, channels of cpu, channels of cuda
BROCHURE_BYTES = (
    b"\xb9\x03\xbb\x01" + text("uv") + b"\xb9\x01" + text("uv:*")
    + b"\xbb\x02" + text("basic") + b"\xb9\x01" + text("any")
    + text("cma") + b"\xb9\x01" + text("linux:1")
    + b"\xbb\x01" + text("cuda_ipc") + b"\xb9\x01" + text("gpu")
)  # fmt: skip

ANSWER_BYTES = (
    b"\xb9\x06" + text("shm") + text("1a2b") + b"\x07"  # the id of the connection to move to
    + text("shm:*")
    + b"\xbb\x01" + text("cma") + b"\xb9\x02" + b"\xbc\x10" + (8).to_bytes(8, "little")
    + (9).to_bytes(8, "little") + text("linux:1")
    + b"\xbb\x00"
)  # fmt: skip

TENSOR_BYTES = (
    b"\xb9\x05" + b"\x0c"  # 12 bytes
    + text("") + b"\x01"  # on cuda
    + text("cuda_basic") + text("x\x01y")
)  # fmt: skip


def test_alternatives_of_the_packet() -> None:
    codes = (SPONTANEOUS_CONNECTION, REQUESTED_CONNECTION, BROCHURE, BROCHURE_ANSWER, MESSAGE_DESCRIPTOR)
    assert [PACKETS_1_8[code] for code in codes] == list(PACKETS_1_8)
    assert PACKETS_1_8[:2] == ("SpontaneousConnection", "RequestedConnection")


def test_a_brochure_tells_channels_by_device_type() -> None:
    reader = NopReader(BROCHURE_BYTES)
    brochure = read_brochure_1_8(reader)
    reader.finish()
    assert brochure == Brochure(
        (("uv", "uv:*"),),
        (("basic", ((CPU, "any"),)), ("cma", ((CPU, "linux:1"),)), ("cuda_ipc", ((CUDA, "gpu"),))),
    )
    assert write_brochure_1_8(brochure) == BROCHURE_BYTES


def test_a_channel_for_both_devices_is_told_twice() -> None:
    both = Brochure((), (("xth", ((CPU, "a"), (CUDA, "b"))),))
    body = write_brochure_1_8(both)
    assert body.count(text("xth")) == 2
    assert read_brochure_1_8(NopReader(body)) == Brochure(
        (), (("xth", ((CPU, "a"),)), ("xth", ((CUDA, "b"),)))
    )


def test_an_answer_that_moves_the_pipe() -> None:
    reader = NopReader(ANSWER_BYTES)
    answer = read_brochure_answer_1_8(reader)
    reader.finish()
    assert answer == BrochureAnswer(
        transport="shm",
        address="1a2b",
        transport_registration_ids=((TRANSPORT_DESCRIPTOR_ID, 7),),
        transport_domain_descriptor="shm:*",
        channel_registration_ids=(("cma", (8, 9)),),
        channel_device_descriptors=(("cma", ((CPU, "linux:1"),)),),
        channel_for_device_pair=(),
    )
    assert write_brochure_answer_1_8(answer) == ANSWER_BYTES


@pytest.mark.parametrize("number", [0, 7])
def test_an_answer_that_stays_has_a_number_that_means_nothing(number: int) -> None:
    body = ANSWER_BYTES.replace(text("shm"), text("uv"), 1).replace(b"\x07", bytes([number]), 1)
    answer = read_brochure_answer_1_8(NopReader(body))
    assert (answer.transport_registration_ids, answer.unused_registration_id) == ((), number)
    assert write_brochure_answer_1_8(answer) == body


def test_a_tensor_names_its_channel() -> None:
    reader = NopReader(TENSOR_BYTES)
    tensor = read_tensor_1_8(reader)
    reader.finish()
    assert tensor == TpTensorDescriptor(
        length=12,
        source_device=CUDA,
        target_device=None,
        channel="cuda_basic",
        channel_descriptor=b"x\x01y",
    )
    assert write_tensor_1_8(tensor) == TENSOR_BYTES


def test_sizes_are_signed() -> None:
    """128 takes one byte unsigned and two signed."""
    tensor = TpTensorDescriptor(
        length=128, source_device=CPU, target_device=None, channel="", channel_descriptor=b""
    )
    assert write_tensor_1_8(tensor)[2:5] == b"\x85\x80\x00"
    assert read_tensor_1_8(NopReader(write_tensor_1_8(tensor))) == tensor


def test_devices_of_later_releases_lose_their_number() -> None:
    tensor = TpTensorDescriptor(
        length=1, source_device=TpDevice("cuda", 3), target_device=None, channel="", channel_descriptor=b""
    )
    assert read_tensor_1_8(NopReader(write_tensor_1_8(tensor))).source_device == CUDA


READERS = [
    (BROCHURE_BYTES, read_brochure_1_8),
    (ANSWER_BYTES, read_brochure_answer_1_8),
    (TENSOR_BYTES, read_tensor_1_8),
]


@pytest.mark.parametrize(("body", "read"), READERS)
def test_cut_at_every_length(body: bytes, read: object) -> None:
    assert callable(read)
    for size in range(len(body)):
        with pytest.raises(DecodeError):
            read(NopReader(body[:size]))


@pytest.mark.parametrize("device", [2, 100])
def test_a_device_that_1_8_does_not_know(device: int) -> None:
    with pytest.raises(DecodeError, match=f"device type {device}"):
        read_tensor_1_8(NopReader(TENSOR_BYTES.replace(b"\x01", bytes([device]), 1)))


@given(st.sampled_from(READERS), st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3))
@settings(max_examples=examples(200))
def test_hostile_bytes(case: tuple[bytes, object], flips: list[tuple[int, int]]) -> None:
    body, read = bytearray(case[0]), case[1]
    assert callable(read)
    for at, byte in flips:
        body[at % len(body)] = byte
    with contextlib.suppress(DecodeError):
        read(NopReader(bytes(body)))
