"""What the callee's profiler is asked for and what it answers: the legacy profiler's config and events.

In and out: the values of JIT pickles. What does not have the right shape raises `DecodeError("rpc", …)`.
Mirrors torch/csrc/profiler/orchestration/observer.h (ProfilerConfig) and
torch/csrc/autograd/profiler_legacy.h (LegacyEvent).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import astuple

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.pickles.semantic import untag
from rpcinspect.pickles.tree import Global, PickleCall, Value
from rpcinspect.rpc.types import as_bool, as_int, describe

MAX_DIMENSIONS = 64
MAX_SHAPES = 1 << 12
"""Per event: an operator has few inputs. A pickle can name one long list many times, at a few bytes each."""
MAX_SHAPES_IN_ALL = 1 << 20
"""Per answer."""


class ProfilerConfig(Struct, frozen=True):
    """What the caller's profiler records."""

    state: int
    """0 disabled, 1 CPU, 2 CUDA, 3 NVTX, 4 ITT, …"""
    report_input_shapes: bool
    profile_memory: bool

    @classmethod
    def from_value(cls, value: Value) -> ProfilerConfig:
        """Reads the pickled list. Raises DecodeError."""
        state, shapes, memory = items(untag(value), 3, "profiler config")
        return cls(
            as_int(state, "profiler state"),
            as_bool(shapes, "report_input_shapes"),
            as_bool(memory, "profile_memory"),
        )

    def to_value(self) -> Value:
        """The list as torch pickles it."""
        return tagged([self.state, self.report_input_shapes, self.profile_memory], "List[Any]")


class LegacyEvent(Struct, frozen=True, kw_only=True):
    """An event of the callee's profiler; fields in the order on the wire."""

    kind: int
    """0 mark, 1 push range, 2 pop range, 3 memory allocation."""
    name: str | bytes
    """Bytes where it is not UTF-8."""
    thread_id: int
    handle: float
    """Of the record function; pairs push and pop. A float on the wire."""
    node_id: int
    cpu_memory: int
    """Bytes allocated (freed: negative)."""
    cpu_ns: int
    """Since the epoch; in 1.8 of the monotonic clock."""
    cuda_recorded: bool
    cuda_memory: int
    cuda_device: int
    cuda_us: int | float
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def from_value(cls, value: Value) -> LegacyEvent:
        """Reads the pickled list of 12. Raises DecodeError."""
        fields = dict(zip(cls.__struct_fields__, items(untag(value), 12, "profiled event"), strict=True))
        if type(fields["name"]) not in (str, bytes) or not all(
            type(fields[name]) in (float, int) for name in ("handle", "cuda_us")
        ):
            raise DecodeError("rpc", "a profiled event whose name or number has the wrong type")
        shapes = untag(fields["shapes"])
        if type(shapes) is not list or len(shapes) > MAX_SHAPES:
            raise DecodeError("rpc", f"the shapes of a profiled event are not a list of at most {MAX_SHAPES}")
        for name, what in _INTEGERS.items():
            as_int(fields[name], what)
        as_bool(fields["cuda_recorded"], "cuda recorded")
        fields["shapes"] = tuple(_shape(untag(shape)) for shape in shapes)
        return cls(**fields)

    def to_value(self) -> Value:
        """The list of 12 as torch pickles it."""
        shapes = [
            PickleCall(Global("torch.jit._pickle", "build_intlist"), (list(shape),)) for shape in self.shapes
        ]
        return tagged([*astuple(self)[:-1], tagged(shapes, "List[List[int]]")], "List[Any]")


_INTEGERS = {
    "kind": "event kind",
    "thread_id": "thread id",
    "node_id": "node id",
    "cpu_memory": "cpu memory",
    "cpu_ns": "cpu time",
    "cuda_memory": "cuda memory",
    "cuda_device": "cuda device",
}
"""Fields that are integers, and what they are called where they are none."""


def items(value: Value, count: int, what: str) -> Sequence[Value]:
    """A tuple or list of exactly `count` values."""
    if type(value) in (tuple, list) and len(value) == count:
        return cast("Sequence[Value]", value)
    raise DecodeError("rpc", f"{what}: expected {count} values, found {describe(value)}")


def tagged(value: Value, tag: str) -> PickleCall:
    """Wraps a value in its TorchScript type, as the JIT pickles lists and dicts."""
    return PickleCall(Global("torch.jit._pickle", "restore_type_tag"), (value, tag))


def _shape(value: Value) -> tuple[int, ...]:
    if type(value) is not list or len(value) > MAX_DIMENSIONS:
        raise DecodeError(
            "rpc", f"shape: expected a list of at most {MAX_DIMENSIONS}, found {describe(value)}"
        )
    return tuple(as_int(size, "size") for size in value)


def events_from_values(values: Sequence[Value]) -> tuple[LegacyEvent, ...]:
    """Reads the events of one answer; lists that the pickle repeats are read once."""
    seen: dict[int, LegacyEvent] = {}
    events = []
    shapes = 0
    for value in values:
        event = seen.get(id(value))
        if event is None:
            event = seen[id(value)] = LegacyEvent.from_value(value)
            shapes += len(event.shapes)
            if shapes > MAX_SHAPES_IN_ALL:
                raise LimitExceeded("rpc", "MAX_SHAPES_IN_ALL", MAX_SHAPES_IN_ALL, shapes)
        events.append(event)
    return tuple(events)
