"""A message as fields ask it: the record, what its body says, its tensors with what the wire tells of them.

In: records, and where the bytes of tensors are. Out: objects that work out what they are asked for, once.
"""

from __future__ import annotations

from typing import Any

from rpcinspect.fields.body import Bodies, Body
from rpcinspect.fields.plain import text
from rpcinspect.rpc.callee import callee_of
from rpcinspect.rpc.command import Command, ExceptionResponse
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.decode import DecodedRpc
from rpcinspect.rpc.envelope import RpcWithAutograd, RpcWithProfilingReq, RpcWithProfilingResp
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import command_context, function_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.message import Tensor, tensors_of
from rpcinspect.run.tensors import LastRead
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tensorpipe.records import TpMessage

Pairs = tuple[tuple[int, int], ...]


class Reader:
    """Where the bytes of tensors are, and a memory of bodies."""

    def __init__(self, source: CaptureBytes, *, hashes: bool = True) -> None:
        self.source = source
        self.hashes = hashes
        self.bodies = Bodies()


class MessageValues:
    """A message as the getters of fields read it."""

    def __init__(self, record: RpcRecord, reader: Reader) -> None:
        self.record = record
        self.tp: TpMessage = record.tp
        self._reader = reader

    @property
    def rpc(self) -> DecodedRpc:
        return self.record.rpc

    @property
    def command(self) -> Command:
        return self.record.rpc.command

    @property
    def body(self) -> Body:
        """Returns the content of the command."""
        return self._reader.bodies.of(self.record)

    @property
    def type(self) -> str:
        return type_name(self.rpc.message.type)

    @property
    def body_type(self) -> str:
        return type_name(message_type_of(self.command))

    @property
    def pipe(self) -> int | None:
        """Returns the number of the pipe; None in a log, as for the two below."""
        return None if self.tp.pipe.logged else self.tp.pipe.number

    @property
    def packet(self) -> int | None:
        return None if self.tp.pipe.logged else self.tp.packet

    @property
    def first_packet(self) -> int | None:
        return None if self.tp.pipe.logged else self.tp.first_packet

    @property
    def last_packet(self) -> int | None:
        return None if self.tp.pipe.logged else self.tp.last_packet

    @property
    def flow(self) -> str | None:
        return None if self.tp.pipe.logged else str(self.tp.flow)

    @property
    def function(self) -> str | None:
        """What a call names."""
        return function_of(self.record)

    @property
    def functions(self) -> tuple[str, ...]:
        """Returns the function, and the method or class behind it where that is a helper of torch."""
        callee = callee_of(self.record) if self.record.tp.from_client else None
        both = (self.function, None if callee is None else callee.what)
        return tuple(dict.fromkeys(name for name in both if name is not None))

    @property
    def keywords(self) -> tuple[str, ...]:
        return tuple([f"{name}={value}" for name, value in (self.body.get("kwargs") or {}).items()])

    @property
    def reports_error(self) -> bool:
        """Returns whether this is an answer with a readable error."""
        return self.record.facts.failed or type(self.command) is ExceptionResponse

    @property
    def envelopes(self) -> tuple[str, ...]:
        """Returns the types of the envelopes, outermost first."""
        return tuple([type_name(envelope.message_type) for envelope in self.rpc.envelopes])

    @property
    def autograd(self) -> list[RpcWithAutograd]:
        """The autograd envelopes, outermost first."""
        return [one for one in self.rpc.envelopes if isinstance(one, RpcWithAutograd)]

    @property
    def contexts(self) -> tuple[int, ...]:
        """The command's comes first, then those of the envelopes."""
        if self.record.pattern is not None and self.record.ids:  # which are all that it has
            return self.record.ids[:1]
        own = command_context(self.command)
        found = [envelope.autograd_metadata.autograd_context_id for envelope in self.autograd]
        return tuple(found) if own is None else (own, *found)

    @property
    def edges(self) -> tuple[int, ...]:
        """The command's comes first, then those of the envelopes, innermost first."""
        if self.record.pattern is not None and self.record.ids:
            return self.record.ids[1:]
        carriers: list[Any] = [self.command, *reversed(self.autograd)]
        found = [getattr(carrier, "autograd_metadata", None) for carrier in carriers]
        return tuple([metadata.autograd_message_id for metadata in found if metadata is not None])

    @property
    def senders(self) -> tuple[int, ...]:
        """Returns the sender ids of the envelopes."""
        return tuple([envelope.from_worker_id for envelope in self.autograd])

    @property
    def sender(self) -> int | None:
        """Returns the sender id of a fetch, else of the innermost envelope."""
        own: int | None = getattr(self.command, "from_worker_id", None)
        return self.senders[-1] if own is None and self.autograd else own

    @property
    def devices(self) -> tuple[tuple[str, str], ...]:
        """The map of the innermost envelope."""
        maps = [envelope.device_map for envelope in self.autograd[-1:]]
        return tuple([(text(a), text(b)) for one in maps for a, b in one.items()])

    @property
    def device_pairs(self) -> tuple[str, ...]:
        """Returns the device pairs of all envelopes."""
        maps = [envelope.device_map for envelope in self.autograd]
        return tuple([f"{text(a)}->{text(b)}" for one in maps for a, b in one.items()])

    @property
    def profiling_ids(self) -> Pairs:
        """Returns the profiling ids of the envelopes, innermost first."""
        kinds = (RpcWithProfilingReq, RpcWithProfilingResp)
        found = [one for one in reversed(self.rpc.envelopes) if isinstance(one, kinds)]
        return tuple([one.profiling_id.to_value() for one in found])

    @property
    def events(self) -> tuple[str, ...]:
        """Returns the names of the profiler's events."""
        answers = [one for one in self.rpc.envelopes if isinstance(one, RpcWithProfilingResp)]
        return tuple([text(event.name) for answer in answers for event in answer.profiled_events])

    @property
    def problems(self) -> tuple[str, ...]:
        """Returns the reasons of the problems."""
        return tuple([text(problem.reason) for problem in self.record.problems])

    @property
    def problem_layers(self) -> tuple[str, ...]:
        return tuple([problem.layer for problem in self.record.problems])

    @property
    def tensor_count(self) -> int:
        return len(self.record.like.tensors)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        read = LastRead(self._reader.source) if self._reader.hashes else None
        return tensors_of(self.record, read)
