"""Device maps: which the workers had, and which their messages needed.

In: exchanges. Out: a `DeviceMap` for each pair of workers that sent tensors. A map belongs to the caller:
requests go by it from the caller's devices to the callee's, answers and gradients by its inverse. Seen are
the maps in autograd envelopes and, in descriptors, the device that each tensor goes to. A tensor of the CPU
needs no map.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct, field

from rpcinspect.checks.devices import META, refusal_of, uncovered_devices
from rpcinspect.rpc.command import PropagateGradientsReq
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange

CPU = "cpu"
MAX_INDEXES = 1000
WorkerPair = tuple[int, str, str]
"""(job, caller, callee)."""
DevicePairs = tuple[tuple[str, str], ...]
"""(device of the caller, device of the callee)."""


class DeviceMap(Struct, frozen=True, kw_only=True):
    """The device map of one caller for one callee."""

    job: int
    caller: str
    callee: str
    seen: tuple[DevicePairs, ...]
    """The different maps in its envelopes, in the order in which they came: one, as a rule."""
    used: DevicePairs
    """How tensors went, by their descriptors; answers inverted."""
    tensors: int
    """Tensors that were sent either way, gradients among them."""
    uncovered: tuple[str, ...]
    """Devices of the caller's that messages had tensors on, and no map covers."""
    uncovered_answers: tuple[str, ...]
    """Devices of the callee's that answers or gradients had tensors on, and no map covers; also those of
    tensors that it could not send for this reason."""
    messages: tuple[int, ...]
    """Indexes of messages with such tensors."""

    @property
    def needed(self) -> DevicePairs:
        """What the map has to hold beside the CPU: what was used; a device without a partner has `?`."""
        pairs = [pair for pair in self.used if pair != (CPU, CPU)]
        pairs += [(device, "?") for device in self.uncovered]
        pairs += [("?", device) for device in self.uncovered_answers]
        return tuple(pair for pair in dict.fromkeys(pairs) if META not in pair)

    @property
    def line(self) -> str | None:
        """What to write at the caller before init_rpc; None where nothing but the CPU is used."""
        if not self.needed:
            return None
        pairs = ", ".join(f"{_written(a)}: {_written(b)}" for a, b in self.needed)
        return f"options.set_device_map({self.callee!r}, {{{pairs}}})"


def _written(device: str) -> str:
    return "..." if device == "?" else repr(device)


class _Usage(Struct):
    maps: dict[DevicePairs, None] = field(default_factory=dict)
    used: dict[tuple[str, str], None] = field(default_factory=dict)
    tensors: int = 0
    uncovered: dict[str, None] = field(default_factory=dict)
    uncovered_answers: dict[str, None] = field(default_factory=dict)
    messages: list[int] = field(default_factory=list)


def read_device_maps(calls: Sequence[Exchange]) -> tuple[DeviceMap, ...]:
    """A map for each caller and callee of a job, in the order of their first tensor or map."""
    found: dict[WorkerPair, _Usage] = defaultdict(_Usage)
    for ends, _, index, record, forth in _travelled(calls):
        _note(found[ends], index, record, forth=forth)
    for call in calls:
        refused = _refused(call)
        if refused is not None and call.answer is not None:
            ends, device, forth = refused
            seen = found[ends]
            (seen.uncovered if forth else seen.uncovered_answers).setdefault(device)
            seen.messages.append(call.answer)
    return tuple(
        DeviceMap(
            job=job,
            caller=caller,
            callee=callee,
            seen=tuple(seen.maps),
            used=tuple(seen.used),
            tensors=seen.tensors,
            uncovered=tuple(seen.uncovered),
            uncovered_answers=tuple(seen.uncovered_answers),
            messages=tuple(sorted(seen.messages)[:MAX_INDEXES]),
        )
        for (job, caller, callee), seen in found.items()
    )


def part_of(
    whole: Sequence[DeviceMap], calls: Sequence[Exchange], requests: Collection[int]
) -> tuple[DeviceMap, ...]:
    """The maps that some exchanges went by; `calls` are all."""
    used = {ends for ends, call, *_ in _travelled(calls) if call.index in requests}
    refused = [_refused(call) for call in calls if call.index in requests]
    used |= {one[0] for one in refused if one is not None}
    return tuple(one for one in whole if (one.job, one.caller, one.callee) in used)


def _travelled(calls: Sequence[Exchange]) -> Iterator[tuple[WorkerPair, Exchange, int, RpcRecord, bool]]:
    """(whose map it goes by, exchange, index, record, whether it goes from the map's caller to its callee) of
    each message that has tensors or tells a map.
    """
    owners: dict[tuple[int, int], WorkerPair] = {}
    """(job, autograd message id) → the call that the edge came with."""
    for call in calls:
        ends = (call.job, call.caller, call.callee)
        for _, record, _ in _messages(call):
            for envelope in record.rpc.envelopes:
                if isinstance(envelope, RpcWithAutograd):
                    owners[call.job, envelope.autograd_metadata.autograd_message_id] = ends
    for call in calls:
        ends = (call.job, call.caller, call.callee)
        command = call.request.rpc.command
        if isinstance(command, PropagateGradientsReq):  # gradients go by the map of the call, or its inverse
            ends = owners.get((call.job, command.autograd_metadata.autograd_message_id), ends)
        for index, record, request in _messages(call):
            if record.rpc.tensors or any(isinstance(e, RpcWithAutograd) for e in record.rpc.envelopes):
                sender = call.caller if request else call.callee
                yield ends, call, index, record, sender == ends[1]


def _refused(call: Exchange) -> tuple[WorkerPair, str, bool] | None:
    """(whose map, device, whether in a request) of a tensor that the callee says it could not send."""
    refusal = refusal_of(call.response) if call.response is not None and call.failed else None
    if refusal is None or refusal.device is None or not refusal.own:
        return None
    ends = (call.job, call.caller, call.callee)
    if refusal.request:
        ends = (call.job, call.callee, refusal.receiver or "?")
    return ends, refusal.device, refusal.request


def _messages(call: Exchange) -> Iterable[tuple[int, RpcRecord, bool]]:
    yield call.index, call.request, True
    if call.response is not None and call.answer is not None:
        yield call.answer, call.response, False


def _note(seen: _Usage, index: int, record: RpcRecord, *, forth: bool) -> None:
    """Notes one message; `forth`: it goes from the map's caller to its callee."""
    for envelope in record.rpc.envelopes:
        if (
            isinstance(envelope, RpcWithAutograd)
            and envelope.message_type == MessageType.FORWARD_AUTOGRAD_REQ
        ):
            seen.maps.setdefault(tuple(envelope.device_map.items()))
    missing = uncovered_devices(record)
    if missing:
        (seen.uncovered if forth else seen.uncovered_answers).update(dict.fromkeys(missing))
        seen.messages.append(index)
    for meta in record.rpc.tensors:
        if meta.storage is None or meta.storage >= len(record.tp.tensors):
            continue
        seen.tensors += 1
        target = record.tp.tensors[meta.storage].descriptor.target_device
        there = CPU if meta.device == CPU else None  # where a descriptor of 1.8 names no target
        if target is not None:
            there = CPU if target.type == CPU else f"{target.type}:{target.index}"
        if there is not None:
            seen.used.setdefault((meta.device, there) if forth else (there, meta.device))
