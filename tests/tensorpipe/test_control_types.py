"""The structures behind the frames: values that can be compared, kept and changed into others."""

from __future__ import annotations

import pytest
from msgspec import Struct, structs

from rpcinspect.tensorpipe import control, control_types
from rpcinspect.tensorpipe.control_types import (
    TRANSPORT_DESCRIPTOR_ID,
    TRANSPORT_DESCRIPTOR_REPLY_ID,
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

CPU = TpDevice("cpu", 0)
EVERY = (
    CPU,
    SpontaneousConnection("worker0"),
    RequestedConnection(1),
    Brochure((("uv", "uv:*"),), (("basic", ((CPU, "any"),)),)),
    BrochureAnswer(
        transport="uv",
        address="127.0.0.1:1",
        transport_registration_ids=((1, 0),),
        transport_domain_descriptor="uv:*",
        channel_registration_ids=(("basic", (1,)),),
        channel_device_descriptors=(("basic", ((CPU, "any"),)),),
        channel_for_device_pair=(((CPU, CPU), "basic"),),
    ),
    TpPayload(3),
    TpTensorDescriptor(length=3, source_device=CPU, target_device=None),
    TpDescriptor(b"", (TpPayload(3),), ()),
    LaneAdvertisement("127.0.0.1:1", 3),
    MptServerHello((LaneAdvertisement("127.0.0.1:1", 3),)),
    MptClientHello(3),
    CmaDescriptor(1, 2),
)


@pytest.mark.parametrize("value", EVERY, ids=lambda value: type(value).__name__)
def test_structures_are_values(value: object) -> None:
    assert isinstance(value, Struct)
    same = structs.replace(value)
    assert same == value
    assert hash(same) == hash(value)
    assert not hasattr(value, "__dict__")
    name = structs.fields(value)[0].name
    with pytest.raises(AttributeError):
        setattr(value, name, None)
    assert structs.replace(value, **{name: "other"}) != value


def test_no_structure_is_left_out() -> None:
    found = {
        kind
        for kind in vars(control_types).values()
        if isinstance(kind, type) and issubclass(kind, Struct) and kind is not Struct
    }
    assert found == {type(value) for value in EVERY}


def test_the_same_bytes_are_two_things() -> None:
    """Only the listener tells the hello of a lane from that of any other connection."""
    lane, other = MptClientHello(3), RequestedConnection(3)
    assert lane != other
    assert control.write_mpt_hello(lane) == control.write_first_frame(other)


def test_what_is_not_said_is_none_or_empty() -> None:
    tensor = TpTensorDescriptor(length=1, source_device=CPU, target_device=None)
    assert (tensor.metadata, tensor.channel, tensor.channel_descriptor) == (b"", None, None)
    assert TpPayload(1).metadata == b""
    assert (TRANSPORT_DESCRIPTOR_ID, TRANSPORT_DESCRIPTOR_REPLY_ID) == (0, 1)
    assert [layout.value for layout in ControlLayout] == ["1.8", "1.9"]


def test_whoever_reads_frames_gets_the_types_there_too() -> None:
    for value in EVERY:
        name = type(value).__name__
        assert getattr(control, name) is type(value)
