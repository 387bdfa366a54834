"""On which devices captured tensors are put in a replay, and the device maps between its workers.

In: what the user asks for (`--device`, `--map`), the devices and device maps of a capture. Out: a device for
each captured one, a map for each pair of workers, and the requests whose arguments name a device: user code
may do anything with such a name, so the plan notes it and the replay keeps it.

With `--device cpu` everything is on the CPU. On CUDA a captured device keeps its number; tensors of a capture
without CUDA go to cuda:0, and where a capture has CUDA, what was on the CPU stays there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from rpcinspect.pickles.semantic import device
from rpcinspect.pickles.tree import Value, children, walk
from rpcinspect.rpc.envelope import RpcWithAutograd
from rpcinspect.rpc.pickle_facts import SCRIPT
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import DeviceMapping
from rpcinspect.run.exchanges import Exchange

DeviceMaps: TypeAlias = Mapping[str, Mapping[str, DeviceMapping]]
"""Caller → callee → own device → its device."""

DEVICE = re.compile(r"cpu|cuda:\d{1,2}", re.ASCII)


class Devices(Struct, frozen=True):
    """What the user asks for."""

    kind: Literal["cpu", "cuda"] = "cpu"
    given: DeviceMapping = field(default_factory=dict)
    """Captured device → device of the replay."""


class DevicePlacement(Struct, frozen=True):
    """Captured device → device of the replay."""

    devices: Devices
    captured: frozenset[str]
    """The devices of captured tensors and device maps."""

    @classmethod
    def of(cls, devices: Devices, calls: Iterable[Exchange]) -> DevicePlacement:
        """The placement for the tensors and device maps of these calls."""
        found = set()
        for call in calls:
            for record in (call.request, call.response):
                if record is not None:
                    found |= {plain(meta.device) for meta in record.rpc.tensors}
        for devices_of in agreed_maps(calls).values():
            found |= {plain(name) for pair in devices_of.items() for name in pair}
        return cls(devices, frozenset(found))

    def __call__(self, captured: str) -> str:
        """The device of the replay for a captured one."""
        captured = plain(captured)
        if captured in self.devices.given:
            return self.devices.given[captured]
        if self.devices.kind == "cpu":
            return "cpu"
        if captured == "cpu":
            return "cpu" if any(name != "cpu" for name in self.captured) else "cuda:0"
        return captured

    @property
    def used(self) -> frozenset[str]:
        """Every device of the replay that has tensors."""
        return frozenset(map(self, self.captured or {"cpu"}))

    @property
    def moves(self) -> bool:
        """Whether any tensor is on another device than in the capture."""
        return any(self(name) != name for name in self.captured)

    def maps(self, names: Iterable[str], calls: Iterable[Exchange]) -> DeviceMaps:
        """The captured maps, moved, and for each pair of workers every CUDA device to itself beside them."""
        workers = list(names)
        found: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
        for (_, caller, callee), devices_of in agreed_maps(calls).items():
            moved = {self(own): self(other) for own, other in devices_of.items()}
            if moved and len(set(moved.values())) == len(moved):  # torch takes no map to one device twice
                found[caller][callee] = moved
        cuda = sorted(name for name in self.used if name != "cpu")
        for caller in workers if cuda else ():
            for callee in workers:
                one = found[caller].setdefault(callee, {})
                for name in cuda:
                    if name not in one and name not in one.values():
                        one[name] = name
        return found


def plain(name: str) -> str:
    """The full name of a device: `cuda:0` for `cuda`, `cpu` for `cpu:0`."""
    kind, _, index = name.partition(":")
    return "cpu" if kind == "cpu" else f"{kind}:{index or 0}"


def named_devices(calls: Iterable[Exchange]) -> dict[str, list[int]]:
    """CUDA devices in the arguments of requests → the indexes of these requests."""
    found: dict[str, list[int]] = defaultdict(list)
    for call in calls:
        if b"cuda" in call.request.rpc.message.payload and not call.control:
            for name in dict.fromkeys(_named(call.request)):
                found[name].append(call.index)
    return dict(found)


def _named(record: RpcRecord) -> Iterator[str]:
    command, pickle = record.rpc.command, record.facts.pickle
    stack: list[Value] = [] if pickle is None else [pickle.root]
    if type(command) in SCRIPT:
        stack.append(SCRIPT[type(command)](command))
    for node in walk(stack, lambda node: () if device(node) is not None else children(node)):
        name = node if type(node) is str else device(node)
        if name is not None and _CUDA.fullmatch(name):
            yield plain(name)


_CUDA = re.compile(r"cuda(:\d{1,2})?", re.ASCII)


def agreed_maps(calls: Iterable[Exchange]) -> dict[tuple[int, str, str], DeviceMapping]:
    """(job, caller, callee) → the map that the caller's autograd envelopes carry for that callee.

    A caller has one map per callee for its whole life, so the first one that is seen is the one.
    """
    found: dict[tuple[int, str, str], DeviceMapping] = {}
    for call in calls:
        for envelope in call.request.rpc.envelopes:
            if isinstance(envelope, RpcWithAutograd):
                found.setdefault((call.job, call.caller, call.callee), envelope.device_map)
    return found
