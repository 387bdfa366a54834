"""TensorPipe's control structures: real frames of three releases; every structure written and read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import Limits
from rpcinspect.tensorpipe.control import (
    DESCRIPTOR_SIGNATURE,
    SIGNATURE_OFFSET,
    frame,
    looks_like_descriptor,
    read_brochure,
    read_brochure_answer,
    read_cma_descriptor,
    read_descriptor,
    read_first_frame,
    read_mpt_hello,
    write_brochure,
    write_brochure_answer,
    write_descriptor,
    write_first_frame,
    write_mpt_hello,
)
from rpcinspect.tensorpipe.control_types import (
    UNKNOWN_INDEX,
    Brochure,
    BrochureAnswer,
    CmaDescriptor,
    ControlLayout,
    LaneAdvertisement,
    MptClientHello,
    MptServerHello,
    RequestedConnection,
    SpontaneousConnection,
    TpDescriptor,
    TpDevice,
    TpPayload,
    TpTensorDescriptor,
)
from tests.tensorpipe.conversations import write_cma_descriptor
from tests.thorough import examples

CPU, CUDA_0, CUDA_1 = TpDevice("cpu", 0), TpDevice("cuda", 0), TpDevice("cuda", 1)
ANY_CUDA = TpDevice("cuda", UNKNOWN_INDEX)

VECTORS = json.loads((Path(__file__).parent / "vectors_tensorpipe.json").read_text())
"""Frame bodies from captures of these releases; the boot id in two of them is blanked."""


def vector(release: str, what: str) -> bytes:
    (found,) = [v["hex"] for v in VECTORS if (v["release"], v["what"]) == (release, what)]
    return bytes.fromhex(found)


READERS: dict[str, tuple[Callable[..., Any], Callable[..., bytes]]] = {
    "spontaneous": (read_first_frame, write_first_frame),
    "requested": (read_first_frame, write_first_frame),
    "brochure": (read_brochure, write_brochure),
    "brochure, all transports and channels": (read_brochure, write_brochure),
    "answer": (read_brochure_answer, write_brochure_answer),
    "answer, other transport": (read_brochure_answer, write_brochure_answer),
    "descriptor": (read_descriptor, write_descriptor),
    "descriptor with tensors": (read_descriptor, write_descriptor),
    "mpt server hello": (read_mpt_hello, write_mpt_hello),
    "cma descriptor": (read_cma_descriptor, write_cma_descriptor),
}


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: f"{case['release']} {case['what']}")
def test_real_frames_come_out_as_they_went_in(case: dict[str, str]) -> None:
    body = bytes.fromhex(case["hex"])
    read, write = READERS[case["what"]]
    value = read(body)
    if isinstance(value, tuple):
        layout = ControlLayout.V1_8 if case["release"] == "1.8.1" else ControlLayout.V1_9
        assert value[1] is layout
        assert write(*value) == body
    else:
        assert write(value) == body
    for cut in range(len(body)):
        with pytest.raises(DecodeError):
            read(body[:cut])
    with pytest.raises(DecodeError):
        read(body + b"\x00")


@pytest.mark.parametrize("release", ["1.8.1", "1.13.1", "2.14.1"])
def test_hellos(release: str) -> None:
    assert read_first_frame(vector(release, "spontaneous")) == SpontaneousConnection("worker0")
    registration_id = 0 if release == "1.8.1" else 1  # later releases register the reply connection first
    assert read_first_frame(vector(release, "requested")) == RequestedConnection(registration_id)


def test_brochures() -> None:
    basic = ("basic", ((CPU, "any"),))
    expected = Brochure((("uv", "uv:*"),), (basic,))
    for release, layout in (
        ("1.8.1", ControlLayout.V1_8),
        ("1.13.1", ControlLayout.V1_9),
        ("2.14.1", ControlLayout.V1_9),
    ):
        assert read_brochure(vector(release, "brochure")) == (expected, layout)
    full, _ = read_brochure(vector("2.13.0", "brochure, all transports and channels"))
    assert [name for name, _ in full.transport_domain_descriptors] == ["uv", "shm"]
    assert [name for name, _ in full.channel_device_descriptors] == ["basic", "mpt_uv", "cma"]
    assert full.channel_device_descriptors[1] == ("mpt_uv", ((CPU, "16" + ":uv:*" * 16),))


@pytest.mark.parametrize(("release", "port"), [("1.13.1", 39161), ("2.14.1", 35117)])
def test_answers(release: str, port: int) -> None:
    assert read_brochure_answer(vector(release, "answer"))[0] == BrochureAnswer(
        transport="uv",
        address=f"127.0.0.1:{port}",
        transport_registration_ids=((1, 0),),  # only the reply connection
        transport_domain_descriptor="uv:*",
        channel_registration_ids=(("basic", (1,)),),
        channel_device_descriptors=(("basic", ((CPU, "any"),)),),
        channel_for_device_pair=(((CPU, CPU), "basic"),),
    )


def test_answer_of_1_8() -> None:
    answer, _ = read_brochure_answer(vector("1.8.1", "answer"))
    assert answer == BrochureAnswer(
        transport="uv",
        address="127.0.0.1:42255",
        transport_registration_ids=(),  # the 0 on the wire is not an id: the channel has that one
        transport_domain_descriptor="uv:*",
        channel_registration_ids=(("basic", (0,)),),
        channel_device_descriptors=(("basic", ((CPU, "any"),)),),
        channel_for_device_pair=(),
        unused_registration_id=0,
    )


def test_answer_of_1_8_that_moves_the_pipe() -> None:
    body = bytes.fromhex(
        "b803 b906"  # BrochureAnswer, 6 members
        "bd03 73686d"  # transport "shm"
        "bd02 3161"  # address "1a"
        "05"  # transportRegistrationId 5
        "bd00"  # transport's domain descriptor
        "bb01 bd03 636d61 b902 bc00 bd01 78"  # CPU channels {"cma": no ids, "x"}
        "bb01 bd0a 637564615f6261736963"  # CUDA channels {"cuda_basic":
        "b902 bc08 0600000000000000 bd01 79"  # [6], "y"}
    )
    answer, layout = read_brochure_answer(body)
    assert answer.transport_registration_ids == ((0, 5),)
    assert answer.unused_registration_id is None
    assert answer.channel_registration_ids == (("cma", ()), ("cuda_basic", (6,)))
    assert answer.channel_device_descriptors == (("cma", ((CPU, "x"),)), ("cuda_basic", ((ANY_CUDA, "y"),)))
    assert write_brochure_answer(answer, layout) == body


def test_answer_with_another_transport() -> None:
    answer, _ = read_brochure_answer(vector("2.13.0", "answer, other transport"))
    assert answer.transport == "shm"
    assert answer.transport_registration_ids == ((1, 1), (0, 0))  # in the order of the wire
    assert answer.channel_registration_ids == (("cma", (2, 3)),)


def test_device_pairs_are_listening_side_first() -> None:
    body = bytes.fromhex(
        "b907 bd00 bd00 bb00 bd00 bb00 bb00"  # six members without content
        "bb01 ba02"  # one pair
        "b902 bd03 637075 00"  # the listening side's device cpu:0
        "b902 bd04 63756461 01"  # the connecting side's device cuda:1
        "bd0a 637564615f6261736963"  # "cuda_basic"
    )
    answer, layout = read_brochure_answer(body)
    assert answer.channel_for_device_pair == (((CPU, CUDA_1), "cuda_basic"),)
    assert write_brochure_answer(answer, layout) == body


@pytest.mark.parametrize("release", ["1.13.1", "2.14.1"])
def test_descriptors(release: str) -> None:
    tensor = TpTensorDescriptor(length=48, source_device=CPU, target_device=CPU)
    assert read_descriptor(vector(release, "descriptor with tensors"))[0] == TpDescriptor(
        metadata=b"",
        payloads=(TpPayload(4), TpPayload(8), TpPayload(270), TpPayload(239)),
        tensors=(tensor, tensor),
    )


def test_descriptor_of_1_8() -> None:
    tensor = TpTensorDescriptor(
        length=48, source_device=CPU, target_device=None, channel="basic", channel_descriptor=b""
    )
    assert read_descriptor(vector("1.8.1", "descriptor with tensors"))[0] == TpDescriptor(
        metadata=b"",
        payloads=(TpPayload(4), TpPayload(8), TpPayload(270), TpPayload(239)),
        tensors=(tensor, tensor),
    )


def test_one_changed_field_is_one_changed_place() -> None:
    body = vector("2.14.1", "descriptor with tensors")
    value, layout = read_descriptor(body)
    tensors = (value.tensors[0], structs.replace(value.tensors[1], length=49))
    changed = write_descriptor(structs.replace(value, tensors=tensors), layout)
    assert len(changed) == len(body)
    assert [(a, b) for a, b in zip(body, changed, strict=True) if a != b] == [(48, 49)]


def test_descriptor_without_target_and_with_cuda() -> None:
    body = bytes.fromhex(
        "b903 bd01 6d"  # metadata "m"
        "ba01 b902 00 bd02 7031"  # one payload: no bytes, metadata "p1"
        "ba02"
        "b904 8200000100 b902 bd04 63756461 01"  # 65,536 bytes, from cuda:1
        "be bd01 74"  # target unset, metadata "t"
        "b904 00 b902 bd03 637075 00 b902 bd04 63756461 00 bd00"  # no bytes, cpu:0 -> cuda:0
    )
    value, layout = read_descriptor(body)
    assert value == TpDescriptor(
        b"m",
        (TpPayload(0, b"p1"),),
        (
            TpTensorDescriptor(length=65536, source_device=CUDA_1, target_device=None, metadata=b"t"),
            TpTensorDescriptor(length=0, source_device=CPU, target_device=CUDA_0),
        ),
    )
    assert write_descriptor(value, layout) == body


def test_mpt_hellos() -> None:
    hello = read_mpt_hello(vector("2.13.0", "mpt server hello"))
    assert isinstance(hello, MptServerHello)
    assert hello.lane_advertisements[0] == LaneAdvertisement("127.0.0.1:37015", 0)
    assert [lane.registration_id for lane in hello.lane_advertisements] == list(range(16))
    # A lane's hello is the same bytes as a requested connection's.
    body = bytes.fromhex("b801 b901 0f")
    assert read_mpt_hello(body) == MptClientHello(15)
    assert read_first_frame(body) == RequestedConnection(15)
    assert write_mpt_hello(MptClientHello(300)) == bytes.fromhex("b801 b901 812c01")


def test_cma_descriptor() -> None:
    # structure of 2: u32 pid, u64 pointer (which fits 64 bits only)
    assert read_cma_descriptor(vector("2.13.0", "cma descriptor")) == CmaDescriptor(11144, 0x7FA350009980)
    with pytest.raises(DecodeError):
        read_cma_descriptor(bytes.fromhex("b902 ff 00"))  # a negative pid


def test_frame() -> None:
    assert frame(b"") == bytes(8)
    assert frame(vector("2.14.1", "spontaneous"))[:8] == bytes([13, 0, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("release", "layout"), [("1.8.1", ControlLayout.V1_8), ("2.14.1", ControlLayout.V1_9)]
)
def test_signature(release: str, layout: ControlLayout) -> None:
    body = vector(release, "descriptor")
    assert len(DESCRIPTOR_SIGNATURE) == 18
    assert frame(body).find(DESCRIPTOR_SIGNATURE) == SIGNATURE_OFFSET[layout]
    assert looks_like_descriptor(body) is layout
    for other in ("spontaneous", "brochure", "answer"):
        assert looks_like_descriptor(vector(release, other)) is None
    assert looks_like_descriptor(b"\x00\x00" + DESCRIPTOR_SIGNATURE) is None
    assert looks_like_descriptor(body[:17]) is None


@pytest.mark.parametrize(
    ("read", "body", "reason"),
    [
        (read_first_frame, "b802 b901 00", "alternative 2 of a variant of 2"),
        (read_first_frame, "b8ff be", "alternative -1"),
        (read_first_frame, "b800 b902 bd00 00", "2 members instead of 1"),
        (read_first_frame, "b801 b901 ff", "-1 where a size or an id"),
        (read_brochure, "b804 b903 bd00 ba00 ba00", "a MessageDescriptor where a Brochure is expected"),
        (read_descriptor, "b802 b903 bb00 bb00 bb00", "a Brochure where a MessageDescriptor is expected"),
        (read_descriptor, "b904 bd00 ba00 ba00", "4 members instead of 3"),
        (read_descriptor, "b804 b903 bd00 ba00 ba01 b905 00 bd00 02 bd00 bd00", "device type 2"),
        (read_brochure_answer, "b907 bd00 bd00 bb00 bd00 bb01 bd00 bc0100", "8 bytes each in 1 bytes"),
        (
            read_brochure_answer,
            "b907 bd00 bd00 bb00 bd00 bb00 bb00 bb01 ba01 b902 bd00 00 bd00",
            "a pair of 1 devices",
        ),
    ],
)
def test_what_contradicts_the_format(read: Callable[[bytes], Any], body: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason) as caught:
        read(bytes.fromhex(body))
    assert caught.value.layer == "tensorpipe"


def test_limits_reach_the_readers() -> None:
    with pytest.raises(LimitExceeded, match="nop_items = 3"):
        read_descriptor(vector("2.14.1", "descriptor"), Limits(nop_items=3))


texts = st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
ids = st.integers(0, (1 << 64) - 1) | st.integers(0, 300)
sizes = st.integers(0, (1 << 63) - 1) | st.integers(0, 300)
devices = st.builds(TpDevice, texts, st.integers(-(1 << 31), (1 << 31) - 1))


def tuples(items: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=most).map(tuple)


channel_devices = tuples(st.tuples(texts, tuples(st.tuples(devices, texts))))
brochures = st.builds(Brochure, tuples(st.tuples(texts, texts)), channel_devices)
answers = st.builds(
    BrochureAnswer,
    transport=texts,
    address=texts,
    transport_registration_ids=tuples(st.tuples(ids, ids)),
    transport_domain_descriptor=texts,
    channel_registration_ids=tuples(st.tuples(texts, tuples(ids))),
    channel_device_descriptors=channel_devices,
    channel_for_device_pair=tuples(st.tuples(st.tuples(devices, devices), texts)),
)
payloads = tuples(st.builds(TpPayload, sizes, st.binary(max_size=8)), 5)
tensors = st.builds(
    TpTensorDescriptor,
    length=sizes,
    source_device=devices,
    target_device=devices | st.none(),
    metadata=st.binary(max_size=8),
)
descriptors = st.builds(TpDescriptor, st.binary(max_size=8), payloads, tuples(tensors))
old_devices = st.sampled_from((CPU, ANY_CUDA))
old_tensors = st.builds(
    TpTensorDescriptor,
    length=sizes,
    source_device=old_devices,
    target_device=st.none(),
    metadata=st.binary(max_size=8),
    channel=texts,
    channel_descriptor=st.binary(max_size=8),
)
old_descriptors = st.builds(TpDescriptor, st.binary(max_size=8), payloads, tuples(old_tensors))


@settings(max_examples=examples(60))
@given(brochures, answers, descriptors)
def test_what_is_written_is_read(
    brochure: Brochure, answer: BrochureAnswer, descriptor: TpDescriptor
) -> None:
    layout = ControlLayout.V1_9
    assert read_brochure(write_brochure(brochure, layout)) == (brochure, layout)
    assert read_brochure_answer(write_brochure_answer(answer, layout)) == (answer, layout)
    assert read_descriptor(write_descriptor(descriptor, layout)) == (descriptor, layout)


@settings(max_examples=examples(60))
@given(
    tuples(st.tuples(texts, texts)),
    tuples(st.tuples(texts, texts, tuples(ids))),
    tuples(st.tuples(texts, texts, tuples(ids))),
    ids,
    st.booleans(),
    old_descriptors,
)
def test_what_is_written_as_1_8_is_read(
    transports: tuple[tuple[str, str], ...],
    cpu: tuple[tuple[str, str, tuple[int, ...]], ...],
    cuda: tuple[tuple[str, str, tuple[int, ...]], ...],
    registration_id: int,
    moved: bool,
    descriptor: TpDescriptor,
) -> None:
    layout = ControlLayout.V1_8
    channels = [(*c, CPU) for c in cpu] + [(*c, ANY_CUDA) for c in cuda]
    channel_device_descriptors = tuple((name, ((device, text),)) for name, text, _, device in channels)
    brochure = Brochure(transports, channel_device_descriptors)
    answer = BrochureAnswer(
        transport="shm" if moved else "uv",
        address="",
        transport_registration_ids=((0, registration_id),) if moved else (),
        transport_domain_descriptor="",
        channel_registration_ids=tuple((name, ids) for name, _, ids, _ in channels),
        channel_device_descriptors=channel_device_descriptors,
        channel_for_device_pair=(),
        unused_registration_id=None if moved else registration_id,
    )
    assert read_brochure(write_brochure(brochure, layout)) == (brochure, layout)
    assert read_brochure_answer(write_brochure_answer(answer, layout)) == (answer, layout)
    assert read_descriptor(write_descriptor(descriptor, layout)) == (descriptor, layout)


@given(texts, ids, st.lists(st.builds(LaneAdvertisement, texts, ids), max_size=4))
def test_small_structures_that_are_written_are_read(
    text: str, number: int, lanes: list[LaneAdvertisement]
) -> None:
    for first in (SpontaneousConnection(text), RequestedConnection(number)):
        assert read_first_frame(write_first_frame(first)) == first
    for hello in (MptServerHello(tuple(lanes)), MptClientHello(number)):
        assert read_mpt_hello(write_mpt_hello(hello)) == hello
    assert read_cma_descriptor(write_cma_descriptor(CmaDescriptor(7, number))) == CmaDescriptor(7, number)


ALL_READERS = (
    read_first_frame,
    read_brochure,
    read_brochure_answer,
    read_descriptor,
    read_mpt_hello,
    read_cma_descriptor,
)


@settings(max_examples=examples(200))
@given(st.sampled_from(VECTORS), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_hostile_bytes(case: dict[str, str], flips: list[tuple[int, int]]) -> None:
    """A real frame with some bytes changed: a value or a DecodeError, from every reader."""
    body = bytearray.fromhex(case["hex"])
    for place, byte in flips:
        body[place % len(body)] = byte
    for read in ALL_READERS:
        try:
            read(bytes(body))
        except DecodeError:
            continue
