"""TensorPipe's control structures: bodies of uv frames <-> the structures of `control_types.py`.

In: the body of one frame whose place in its connection says what it must be (first frame, brochure, ...).
Out: a structure, and for objects that changed with PyTorch 1.9 the `ControlLayout` that they were written in.
May assume nothing about the bytes; readers raise `DecodeError` (layer `tensorpipe`) or `LimitExceeded` only.

Mirrors the `NOP_STRUCTURE` declarations of the upstream files that `control_types.py` names. What 1.8
wrote otherwise is in `control_1_8.py`.
"""

from __future__ import annotations

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.tensorpipe.control_1_8 import (
    BROCHURE,
    BROCHURE_ANSWER,
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
    Brochure,
    BrochureAnswer,
    CmaDescriptor,
    ControlLayout,
    DeviceDescriptors,
    FirstFrame,
    LaneAdvertisement,
    MptClientHello,
    MptHello,
    MptServerHello,
    RequestedConnection,
    SpontaneousConnection,
    TpDescriptor,
    TpDevice,
    TpPayload,
    TpTensorDescriptor,
)
from rpcinspect.tensorpipe.nop import (
    LAYER,
    NopReader,
    write_array,
    write_int,
    write_map,
    write_string,
    write_structure,
    write_text,
    write_u64s,
    write_variant,
)

DESCRIPTOR_SIGNATURE = bytes.fromhex("b903 bd00 ba04 b90204bd00 b90208bd00 b902")
"""How every descriptor of torch's agent begins: no metadata, four payloads, of 4, 8, ... bytes."""

SIGNATURE_OFFSET = {ControlLayout.V1_8: 10, ControlLayout.V1_9: 8}
"""Bytes from the start of the frame (its length included) to the signature."""


def frame(body: bytes) -> bytes:
    """The body with its u64 length before it."""
    return len(body).to_bytes(8, "little") + body


def looks_like_descriptor(body: bytes) -> ControlLayout | None:
    """The layout whose descriptors of torch's agent begin like this, if any."""
    if body.startswith(DESCRIPTOR_SIGNATURE):
        return ControlLayout.V1_9
    if body.startswith(_DESCRIPTOR_HEAD_1_8):
        return ControlLayout.V1_8
    return None


def read_first_frame(body: bytes, limits: Limits = DEFAULT_LIMITS) -> FirstFrame:
    """Reads the connecting side's first frame, with which all connections but mpt's lanes begin."""
    reader = NopReader(body, limits=limits)
    index = _alternative(reader, 2)
    reader.structure(1)
    value: FirstFrame
    if index == SPONTANEOUS_CONNECTION:
        value = SpontaneousConnection(reader.text())
    else:
        value = RequestedConnection(reader.size())
    reader.finish()
    return value


def write_first_frame(value: FirstFrame) -> bytes:
    match value:
        case SpontaneousConnection(name):
            return write_variant(SPONTANEOUS_CONNECTION, write_structure(write_text(name)))
        case RequestedConnection(registration_id):
            return write_variant(REQUESTED_CONNECTION, write_structure(write_int(registration_id)))


def read_brochure(body: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[Brochure, ControlLayout]:
    """Second frame from the connecting side of a connection that began with a `SpontaneousConnection`."""
    reader = NopReader(body, limits=limits)
    layout = _enter(reader, BROCHURE)
    value = read_brochure_1_8(reader) if layout is ControlLayout.V1_8 else _read_brochure(reader)
    reader.finish()
    return value, layout


def write_brochure(value: Brochure, layout: ControlLayout) -> bytes:
    if layout is ControlLayout.V1_8:
        return write_variant(BROCHURE, write_brochure_1_8(value))
    transports = [(write_text(name), write_text(text)) for name, text in value.transport_domain_descriptors]
    return write_structure(write_map(transports), _write_channel_devices(value.channel_device_descriptors))


def read_brochure_answer(
    body: bytes, limits: Limits = DEFAULT_LIMITS
) -> tuple[BrochureAnswer, ControlLayout]:
    """Reads the listening side's first frame on a connection that began with a `SpontaneousConnection`."""
    reader = NopReader(body, limits=limits)
    layout = _enter(reader, BROCHURE_ANSWER)
    answer = (
        read_brochure_answer_1_8(reader) if layout is ControlLayout.V1_8 else _read_brochure_answer(reader)
    )
    reader.finish()
    return answer, layout


def write_brochure_answer(value: BrochureAnswer, layout: ControlLayout) -> bytes:
    if layout is ControlLayout.V1_8:
        return write_variant(BROCHURE_ANSWER, write_brochure_answer_1_8(value))
    return write_structure(
        write_text(value.transport),
        write_text(value.address),
        write_map([(write_int(k), write_int(v)) for k, v in value.transport_registration_ids]),
        write_text(value.transport_domain_descriptor),
        write_map([(write_text(k), write_u64s(v)) for k, v in value.channel_registration_ids]),
        _write_channel_devices(value.channel_device_descriptors),
        write_map(
            [
                (write_array([_write_device(ours), _write_device(theirs)]), write_text(channel))
                for (ours, theirs), channel in value.channel_for_device_pair
            ]
        ),
    )


def read_descriptor(body: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[TpDescriptor, ControlLayout]:
    """What comes before every message on the connection that carries messages."""
    reader = NopReader(body, limits=limits)
    layout = _enter(reader, MESSAGE_DESCRIPTOR)
    read_tensor = read_tensor_1_8 if layout is ControlLayout.V1_8 else _read_tensor
    reader.structure(3)
    metadata = reader.string()
    payloads = tuple([_read_payload(reader) for _ in range(reader.array())])
    tensors = tuple([read_tensor(reader) for _ in range(reader.array())])
    reader.finish()
    return TpDescriptor(metadata, payloads, tensors), layout


def write_descriptor(value: TpDescriptor, layout: ControlLayout) -> bytes:
    signed = layout is ControlLayout.V1_8
    write_tensor = write_tensor_1_8 if layout is ControlLayout.V1_8 else _write_tensor
    body = write_structure(
        write_string(value.metadata),
        write_array(
            [
                write_structure(write_int(payload.length, signed=signed), write_string(payload.metadata))
                for payload in value.payloads
            ]
        ),
        write_array([write_tensor(tensor) for tensor in value.tensors]),
    )
    return write_variant(MESSAGE_DESCRIPTOR, body) if layout is ControlLayout.V1_8 else body


def read_mpt_hello(body: bytes) -> MptHello:
    """Reads the first frame of mpt's control connection (listening side) or of a lane (connecting side)."""
    reader = NopReader(body)
    index = _alternative(reader, 2)
    reader.structure(1)
    value: MptHello
    if index == _MPT_SERVER_HELLO:
        value = MptServerHello(tuple([_read_lane(reader) for _ in range(reader.array())]))
    else:
        value = MptClientHello(reader.size())
    reader.finish()
    return value


def write_mpt_hello(value: MptHello) -> bytes:
    match value:
        case MptServerHello(lanes):
            written = [
                write_structure(write_text(lane.address), write_int(lane.registration_id)) for lane in lanes
            ]
            return write_variant(_MPT_SERVER_HELLO, write_structure(write_array(written)))
        case MptClientHello(registration_id):
            return write_variant(_MPT_CLIENT_HELLO, write_structure(write_int(registration_id)))


def read_cma_descriptor(body: bytes) -> CmaDescriptor:
    """A frame on cma's first connection; in 1.8 the `channel_descriptor` of a tensor."""
    reader = NopReader(body)
    reader.structure(2)
    value = CmaDescriptor(reader.size(), reader.size())
    reader.finish()
    return value


def _alternative(reader: NopReader, count: int) -> int:
    """The head of a variant with so many alternatives, one of which must be there."""
    at = reader.offset
    index = reader.variant()
    if not 0 <= index < count:
        raise DecodeError(LAYER, f"alternative {index} of a variant of {count}", at)
    return index


def _enter(reader: NopReader, wanted: int) -> ControlLayout:
    """Tell the layout by the first byte; in 1.8's, step into the variant, which must hold what is wanted."""
    if not reader.at_variant():
        return ControlLayout.V1_9
    at = reader.offset
    index = _alternative(reader, len(PACKETS_1_8))
    if index != wanted:
        raise DecodeError(LAYER, f"a {PACKETS_1_8[index]} where a {PACKETS_1_8[wanted]} is expected", at)
    return ControlLayout.V1_8


def _read_device(reader: NopReader) -> TpDevice:
    if reader.skip(_WRITTEN_CPU):  # nearly always; most of a descriptor is devices
        return _CPU
    reader.structure(2)
    return TpDevice(reader.text(), reader.integer())


def _write_device(device: TpDevice) -> bytes:
    return write_structure(write_text(device.type), write_int(device.index, signed=True))


def _read_brochure(reader: NopReader) -> Brochure:
    reader.structure(2)
    transports = tuple([(reader.text(), reader.text()) for _ in range(reader.map())])
    return Brochure(transports, _read_channel_devices(reader))


def _read_channel_devices(reader: NopReader) -> tuple[tuple[str, DeviceDescriptors], ...]:
    return tuple(
        [
            (
                reader.text(),
                tuple([(_read_device(reader), reader.text()) for _ in range(reader.map())]),
            )
            for _ in range(reader.map())
        ]
    )


def _write_channel_devices(channels: tuple[tuple[str, DeviceDescriptors], ...]) -> bytes:
    return write_map(
        [
            (
                write_text(name),
                write_map([(_write_device(device), write_text(text)) for device, text in devices]),
            )
            for name, devices in channels
        ]
    )


def _read_lane(reader: NopReader) -> LaneAdvertisement:
    reader.structure(2)
    return LaneAdvertisement(reader.text(), reader.size())


def _read_brochure_answer(reader: NopReader) -> BrochureAnswer:
    reader.structure(7)
    return BrochureAnswer(
        transport=reader.text(),
        address=reader.text(),
        transport_registration_ids=tuple([(reader.size(), reader.size()) for _ in range(reader.map())]),
        transport_domain_descriptor=reader.text(),
        channel_registration_ids=tuple([(reader.text(), reader.u64s()) for _ in range(reader.map())]),
        channel_device_descriptors=_read_channel_devices(reader),
        channel_for_device_pair=tuple(
            [(_read_device_pair(reader), reader.text()) for _ in range(reader.map())]
        ),
    )


def _read_device_pair(reader: NopReader) -> tuple[TpDevice, TpDevice]:
    at = reader.offset
    if (count := reader.array()) != 2:
        raise DecodeError(LAYER, f"a pair of {count} devices", at)
    return _read_device(reader), _read_device(reader)


def _read_payload(reader: NopReader) -> TpPayload:
    reader.structure(2)
    return TpPayload(reader.size(), reader.string())


def _read_tensor(reader: NopReader) -> TpTensorDescriptor:
    reader.structure(4)
    return TpTensorDescriptor(
        length=reader.size(),
        source_device=_read_device(reader),
        target_device=None if reader.nil() else _read_device(reader),
        metadata=reader.string(),
    )


def _write_tensor(tensor: TpTensorDescriptor) -> bytes:
    target = tensor.target_device
    return write_structure(
        write_int(tensor.length),
        _write_device(tensor.source_device),
        b"\xbe" if target is None else _write_device(target),
        write_string(tensor.metadata),
    )


_MPT_SERVER_HELLO, _MPT_CLIENT_HELLO = 0, 1
"""Alternatives of mpt's own `Packet`."""

_CPU = TpDevice("cpu", 0)
_WRITTEN_CPU = _write_device(_CPU)

_DESCRIPTOR_HEAD_1_8 = bytes((0xB8, MESSAGE_DESCRIPTOR)) + DESCRIPTOR_SIGNATURE
