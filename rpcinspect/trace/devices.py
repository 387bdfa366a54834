"""`device-map-missing`: tensors on a device that the sender has no map for.

PyTorch refuses most of them at the sender: then no message has the tensors, but an answer may have its
words. What travels nevertheless is told by the map of its autograd envelope, by which gradients find the
way back, and by the descriptor, which names the device where each tensor is to go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.pickles.semantic import remote_exception
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding, MessageColumns
from rpcinspect.trace.groups import Groups
from rpcinspect.trace.notes import Note
from rpcinspect.trace.run import Run
from rpcinspect.trace.stage import MAX_INDEXES, Stage
from rpcinspect.trace.words import counted, numbers, several, shorten, unique
from rpcinspect.wire.tensorpipe import Layout

REFUSED = re.compile(r"device mapping is not available for destination|only supports CPU tensors by default")
"""What torch/csrc/distributed/rpc/tensorpipe_agent.cpp says of tensors that it does not send."""
MAX_DEVICE = 32


class DeviceMaps(Stage):
    """See the module's text."""

    def __init__(self, columns: MessageColumns) -> None:
        self._uncovered = Groups(columns)
        self._refused = Groups(columns)

    def feed(self, record: RpcRecord, note: Note) -> None:
        if note.failed and REFUSED.search(_error_text(record)):
            self._refused.add(note.row, "")
        if note.elsewhere:
            devices = uncovered_devices(record)
            if devices:
                self._uncovered.add(note.row, several(devices))

    def finish(self, run: Run) -> Iterable[Finding]:
        for group in self._uncovered.finish(run):
            lines = f'options.set_device_map("{group.receiver}", {{"{group.what}": …}})'
            yield Finding(
                code="device-map-missing",
                severity="error",
                text=f"{counted(len(group.indexes), 'message')} from {group.sender} to {group.receiver} "
                f"({numbers(group.indexes)}) had tensors on {group.what}, which the device map of "
                f"{group.sender} for "
                f"{group.receiver} does not cover.",
                remedy=f"On {group.sender}, before init_rpc: {lines}, with the device on {group.receiver}.",
                messages=group.indexes[:MAX_INDEXES],
                workers=unique([group.sender, group.receiver]),
            )
        for group in self._refused.finish(run):
            yield Finding(
                code="device-map-missing",
                severity="error",
                text=f"{group.sender} could not send {counted(len(group.indexes), 'answer')} to "
                f"{group.receiver} "
                f"({numbers(group.indexes)}): tensors were on devices for which there is no map.",
                remedy=f'On {group.receiver}, before init_rpc: options.set_device_map("{group.sender}", …) '
                f"with the "
                "devices of the tensors; answers and gradients go back by the same map.",
                messages=group.indexes[:MAX_INDEXES],
                workers=unique([group.sender, group.receiver]),
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
        told = target is not None or tp.layout is Layout.V1_8  # whose descriptors name no target
        if not told or any(meta.device not in known for known in maps):
            devices.append(shorten(meta.device, MAX_DEVICE))
    return unique(devices)


def _error_text(record: RpcRecord) -> str:
    command, pickle = record.rpc.command, record.facts.pickle
    if isinstance(command, ExceptionResponse):
        return command.text.decode("utf-8", "backslashreplace")
    remote = remote_exception(pickle.root) if pickle is not None else None
    return "" if remote is None else remote.message
