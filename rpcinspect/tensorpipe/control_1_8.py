"""What PyTorch 1.8 wrote otherwise: members of its objects <-> the structures that stand for both layouts.

In: a reader behind the head of 1.8's one `Packet` variant, which holds every object. Out: the structures of
all releases. Differences: channels are told by device type, not by device; a tensor names its channel itself;
sizes are signed; there is no descriptor-reply connection.

Mirrors `tensorpipe/core/nop_types.h` of February 2021 (PyTorch 1.8).
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcinspect.errors import DecodeError
from rpcinspect.tensorpipe.control_types import (
    BOOTSTRAP_TRANSPORT,
    TRANSPORT_DESCRIPTOR_ID,
    UNKNOWN_INDEX,
    Brochure,
    BrochureAnswer,
    DeviceDescriptors,
    TpDevice,
    TpTensorDescriptor,
)
from rpcinspect.tensorpipe.nop import (
    LAYER,
    NopReader,
    write_int,
    write_map,
    write_string,
    write_structure,
    write_text,
    write_u64s,
)

PACKETS_1_8 = (
    "SpontaneousConnection",
    "RequestedConnection",
    "Brochure",
    "BrochureAnswer",
    "MessageDescriptor",
)
"""Alternatives of `Packet`; later layouts keep the first two."""

SPONTANEOUS_CONNECTION, REQUESTED_CONNECTION, BROCHURE, BROCHURE_ANSWER, MESSAGE_DESCRIPTOR = range(5)

DEVICES_1_8 = (TpDevice("cpu", 0), TpDevice("cuda", UNKNOWN_INDEX))
"""What 1.8 tells apart, in the order of its fields and of its enum `DeviceType`."""


def read_brochure_1_8(reader: NopReader) -> Brochure:
    reader.structure(3)
    transports = _read_advertisements(reader)
    channels: list[tuple[str, DeviceDescriptors]] = []
    for device in DEVICES_1_8:
        channels += [(name, ((device, text),)) for name, text in _read_advertisements(reader)]
    return Brochure(transports, tuple(channels))


def write_brochure_1_8(value: Brochure) -> bytes:
    channels: dict[str, list[tuple[str, str]]] = {device.type: [] for device in DEVICES_1_8}
    for name, devices in value.channel_device_descriptors:
        for device, text in devices:
            channels[device.type].append((name, text))
    return write_structure(
        _write_advertisements(value.transport_domain_descriptors),
        *[_write_advertisements(pairs) for pairs in channels.values()],
    )


def read_brochure_answer_1_8(reader: NopReader) -> BrochureAnswer:
    reader.structure(6)
    transport = reader.text()
    address = reader.text()
    registration_id = reader.size()
    transport_domain_descriptor = reader.text()
    ids: list[tuple[str, tuple[int, ...]]] = []
    descriptors: list[tuple[str, DeviceDescriptors]] = []
    for device in DEVICES_1_8:
        for _ in range(reader.map()):
            name = reader.text()
            reader.structure(2)
            ids.append((name, reader.u64s()))
            descriptors.append((name, ((device, reader.text()),)))
    # The listening side sets the id only if it moves the pipe to another transport than this frame's.
    moved = transport != BOOTSTRAP_TRANSPORT
    return BrochureAnswer(
        transport=transport,
        address=address,
        transport_registration_ids=((TRANSPORT_DESCRIPTOR_ID, registration_id),) if moved else (),
        transport_domain_descriptor=transport_domain_descriptor,
        channel_registration_ids=tuple(ids),
        channel_device_descriptors=tuple(descriptors),
        channel_for_device_pair=(),
        unused_registration_id=None if moved else registration_id,
    )


def write_brochure_answer_1_8(value: BrochureAnswer) -> bytes:
    registration_id = value.unused_registration_id or 0
    for key, found in value.transport_registration_ids:
        if key == TRANSPORT_DESCRIPTOR_ID:
            registration_id = found
    selections: dict[str, list[tuple[bytes, bytes]]] = {device.type: [] for device in DEVICES_1_8}
    described = zip(value.channel_registration_ids, value.channel_device_descriptors, strict=True)
    for (name, ids), (_, ((device, text),)) in described:
        selections[device.type].append((write_text(name), write_structure(write_u64s(ids), write_text(text))))
    return write_structure(
        write_text(value.transport),
        write_text(value.address),
        write_int(registration_id),
        write_text(value.transport_domain_descriptor),
        *[write_map(pairs) for pairs in selections.values()],
    )


def read_tensor_1_8(reader: NopReader) -> TpTensorDescriptor:
    reader.structure(5)
    length = reader.size()
    metadata = reader.string()
    at = reader.offset
    device_type = reader.size()
    if device_type >= len(DEVICES_1_8):
        raise DecodeError(LAYER, f"device type {device_type}", at)
    return TpTensorDescriptor(
        length=length,
        source_device=DEVICES_1_8[device_type],
        target_device=None,
        metadata=metadata,
        channel=reader.text(),
        channel_descriptor=reader.string(),
    )


def write_tensor_1_8(tensor: TpTensorDescriptor) -> bytes:
    types = [device.type for device in DEVICES_1_8]
    return write_structure(
        write_int(tensor.length, signed=True),
        write_string(tensor.metadata),
        write_int(types.index(tensor.source_device.type)),
        write_text(tensor.channel or ""),
        write_string(tensor.channel_descriptor or b""),
    )


def _read_advertisements(reader: NopReader) -> tuple[tuple[str, str], ...]:
    """Name -> structure{domainDescriptor}."""
    return tuple([(reader.text(), _read_advertisement(reader)) for _ in range(reader.map())])


def _read_advertisement(reader: NopReader) -> str:
    reader.structure(1)
    return reader.text()


def _write_advertisements(pairs: Iterable[tuple[str, str]]) -> bytes:
    return write_map([(write_text(name), write_structure(write_text(text))) for name, text in pairs])
