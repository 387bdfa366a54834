"""`device-map-missing`: tensors on a device that the sender has no map for.

PyTorch refuses most of them at the sender: then no message has the tensors, but an answer may have its
words. What travels nevertheless is told by the map of its autograd envelope, by which gradients find the
way back, and by the descriptor, which names the device where each tensor is to go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.checks.check import MAX_INDEXES, Check, MessageGroups, finding_of
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.late_pattern import late
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import error_of, origin
from rpcinspect.session.model import Finding
from rpcinspect.session.provenance import MessageKind
from rpcinspect.session.words import counted, numbers, several, shorten, unique
from rpcinspect.tensorpipe.control_types import ControlLayout

REFUSED = late(r"device mapping is not available for destination|only supports CPU tensors by default")
"""What torch/csrc/distributed/rpc/tensorpipe_agent.cpp says of tensors that it does not send."""
REFUSED_WAY = late(r"(Request|Response) device mapping is not available for destination ([^\s,]{1,200})")
REFUSED_DEVICE = late(r"(?:found tensor on device: |for device )([a-z]{1,20}(?::\d{1,4})?)")
"""What was to be sent to whom, and where its tensor was, in the same words."""
META = "meta"
"""The device without memory: TensorPipe moves nothing from it, and no device map may name it."""
MAX_DEVICE = 32


class DeviceRefusal(Struct, frozen=True):
    """Tensors that an answer's sender, or a worker that the answer quotes, could not send."""

    node: int | None
    """Id of that worker; None: the one that answers."""
    own: bool
    """The one that answers is that worker."""
    request: bool
    """It was a request; else the answer itself."""
    receiver: str | None
    """To whom it was to go; None where the text does not say so."""
    device: str | None
    """Of the tensor; None where the text does not say so."""


class UncoveredDevices(Check):
    def __init__(self) -> None:
        self._uncovered = MessageGroups()
        self._refused: dict[DeviceRefusal, list[int]] = defaultdict(list)
        """Rows of the answers that say so."""

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        if kind.failed:
            refusal = refusal_of(record)
            if refusal is not None:
                self._refused[refusal].append(record.row)
        if kind.elsewhere:
            devices = uncovered_devices(record)
            if devices:
                self._uncovered.add(record.row, several(devices))
        return kind.failed or kind.elsewhere

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        for group in self._uncovered.finish(evidence):
            line = f'options.set_device_map("{group.receiver}", {{"{group.what}": …}})'
            yield finding_of(
                group,
                "device-map-missing",
                "error",
                f"{counted(len(group.indexes), 'message')} {group.way} ({numbers(group.indexes)}) had "
                f"tensors on {group.what}, which the device map of {group.sender} for {group.receiver} does "
                "not cover.",
                f"On {group.sender}, before init_rpc: {line}, with the device on {group.receiver}.",
            )
        found: dict[tuple[int, str, str, DeviceRefusal], list[int]] = defaultdict(list)
        for refusal, rows in self._refused.items():
            for row in rows:
                job = evidence.session.job(row)
                sender = (
                    evidence.session.source(row)
                    if refusal.node is None
                    else evidence.session.by_id(refusal.node, job)
                )
                receiver = refusal.receiver or evidence.session.destination(row)
                found[job, sender, receiver, replace(refusal, node=None, receiver=None, own=True)].append(row)
        for (_, sender, receiver, refusal), rows in found.items():
            yield _refused(sender, receiver, refusal, evidence.session.indexes(rows))


def _refused(sender: str, receiver: str, refusal: DeviceRefusal, indexes: tuple[int, ...]) -> Finding:
    device = refusal.device or "a device"
    pair = f'"{device}": …' if refusal.device else "…"
    owner, other, what = sender, receiver, "a request"
    if not refusal.request:  # answers go back by the caller's map
        owner, other, what = receiver, sender, "an answer"
        pair = f'…: "{device}"' if refusal.device else "…"
    remedy = f'On {owner}, before init_rpc: options.set_device_map("{other}", {{{pair}}}).'
    if refusal.device == META:
        remedy = f"On {sender}, move the tensors to the CPU: no device map may name that device."
    return Finding(
        code="device-map-missing",
        severity="error",
        text=f"{sender} could not send {what} to {receiver} ({numbers(indexes)}): it had tensors on "
        f"{device}, which the device map of {owner} for {other} does not cover.",
        remedy=remedy,
        messages=indexes[:MAX_INDEXES],
        workers=unique([sender, receiver]),
    )


def refusal_of(record: RpcRecord) -> DeviceRefusal | None:
    """Returns what a failed answer says of tensors that could not be sent; None for other errors.

    Of an answer that could not be sent, only its own sender says so without naming another worker.
    """
    error = error_of(record)
    text = "" if error is None else error.text
    if not REFUSED.search(text):
        return None
    way, device, nodes = REFUSED_WAY.search(text), REFUSED_DEVICE.search(text), origin(text).nodes
    request = way is not None and way[1] == "Request"
    if nodes and not request:
        return None
    return DeviceRefusal(
        node=nodes[-1] if nodes else None,
        own=len(nodes) < 2,
        request=request,
        receiver=None if way is None else way[2],
        device=None if device is None else device[1],
    )


def uncovered_devices(record: RpcRecord) -> tuple[str, ...]:
    """Devices of a message that no map covers."""
    tp = record.tp
    maps = [
        envelope.device_map
        for envelope in record.rpc.envelopes
        if type(envelope) is RpcWithAutograd and envelope.message_type == MessageType.FORWARD_AUTOGRAD_REQ
    ]
    devices = []
    for meta in record.rpc.tensors:
        if meta.device == "cpu" or meta.storage is None or meta.storage >= len(tp.tensors):
            continue
        target = tp.tensors[meta.storage].descriptor.target_device
        told = target is not None or tp.layout is ControlLayout.V1_8  # whose descriptors name no target
        if not told or any(meta.device not in known for known in maps):
            devices.append(shorten(meta.device, MAX_DEVICE))
    return unique(devices)
