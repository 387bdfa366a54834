"""TensorPipe messages → RPC records: the record that every later stage and view works with.

In: a `TpMessage` with its payloads. Out: an `RpcRecord`: the message decoded, with every problem located. A
payload of which bytes are missing is not decoded, since its pickles end nowhere; what came before the first
missing byte is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.render import render
from rpcinspect.problems import Location, Problem
from rpcinspect.rpc.command import (
    PropagateGradientsReq,
    PythonRemoteCall,
    PythonRRefFetchRet,
    UnknownCommand,
)
from rpcinspect.rpc.decode import DecodedRpc, RpcDecoder, reencode
from rpcinspect.rpc.message import NO_TENSORS, RpcMessage, from_payloads
from rpcinspect.rpc.patterns import Ids, Pattern, Patterns
from rpcinspect.rpc.pickle_facts import NO_FACTS, FactsReader, PickleFacts
from rpcinspect.tensorpipe.control import write_descriptor
from rpcinspect.tensorpipe.records import MessageOrigin, TpMessage
from rpcinspect.unexpected import unexpected

TABLE_PAYLOAD = 3
T = TypeVar("T")


class RpcRecord(Struct, eq=False, gc=False):
    """An RPC message: how it travelled (`tp`) and what it contains (`rpc`).

    Of a message that a pattern fits, `rpc` is made only where somebody asks for it; who wants what all
    messages of the pattern have in common asks `like`.
    """

    row: int
    """Counts messages in the order in which they became complete."""
    tp: TpMessage
    _rpc: DecodedRpc | None
    """None only where there is a pattern, and nobody has asked."""
    facts: PickleFacts
    problems: tuple[Problem, ...]
    pattern: Pattern | None = None
    ids: Ids = ()
    """Those of the message, where there is a pattern."""

    @property
    def rpc(self) -> DecodedRpc:
        """The message decoded."""
        if self._rpc is None:
            assert self.pattern is not None
            self._rpc = self.pattern.with_ids(self.tp, self.ids)
        return self._rpc

    @rpc.setter
    def rpc(self, rpc: DecodedRpc) -> None:
        self._rpc, self.pattern = rpc, None

    @property
    def like(self) -> DecodedRpc:
        """Returns this message, or one that differs only in ids of contexts and autograd messages."""
        return self.rpc if self.pattern is None else self.pattern.rpc

    def told(self, tell: Callable[[RpcRecord], T]) -> T:
        """Returns what a view makes of the record; where that fails, what it makes of the undecoded bytes."""
        try:
            return tell(self)
        except Exception as error:
            self.give_up(error, "view")
        return tell(self)

    def give_up(self, error: Exception, layer: str) -> None:
        """Replaces the decoded content by the bytes, and adds a problem, after an unexpected exception."""
        problem = unexpected(error, layer, self.location)
        self.rpc, self.facts, self.problems = _undecoded(self.tp), NO_FACTS, (*self.problems, problem)

    @property
    def location(self) -> Location:
        """Returns the place of the first byte of the descriptor; in a log, of the record; empty for a live
        message."""
        tp = self.tp
        if tp.pipe.origin is MessageOrigin.LIVE:
            return Location()
        if tp.pipe.origin is MessageOrigin.LOG:
            return Location(capture=tp.capture, offset=tp.offset)
        return Location(capture=tp.capture, packet=tp.packet, flow=str(tp.flow), offset=tp.offset)


class RecordDecoder:
    """The stage: one record for each message; remembers byte patterns that repeat."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._decoder = RpcDecoder(limits)
        self._facts = FactsReader(limits)
        self._patterns = Patterns()
        self._rows = 0

    def decode(self, tp: TpMessage) -> RpcRecord:
        """The record of the next message; damage becomes problems."""
        return self.feed((tp,))[0]

    def again(self, row: int, tp: TpMessage) -> RpcRecord:
        """The record of the message of that row, which may have been decoded before."""
        self._rows = row
        return self.decode(tp)

    def feed(self, messages: Sequence[TpMessage]) -> list[RpcRecord]:
        """Decodes messages; returns a record of each, in their order."""
        first = self._rows
        self._rows += len(messages)
        find = self._patterns.find
        records = []
        for row, tp in enumerate(messages, first):
            try:
                known = find(tp)
                if known is None:
                    record = self._decode(row, tp)
                else:
                    pattern, ids = known
                    record = RpcRecord(row, tp, None, pattern.facts, (), pattern, ids)
            except Exception as error:
                record = RpcRecord(row, tp, _undecoded(tp), NO_FACTS, ())
                record.give_up(error, "rpc")
            records.append(record)
        return records

    def _decode(self, row: int, tp: TpMessage) -> RpcRecord:
        """The record of a message that no pattern fits."""
        if tp.payload_missing is not None:
            return self._decode_cut(row, tp)
        try:
            message = from_payloads(tp.payloads)
        except DecodeError as error:
            return self._decode_foreign(row, tp, error.layer, str(error))
        rpc = self._decoder.decode(message)
        facts = self._facts.read(rpc.command)
        problems = rpc.problems
        pickle = facts.pickle
        if pickle is not None and pickle.error is not None:
            problems = (*problems, (pickle.error.layer, str(pickle.error)))
        storages = len(tp.tensors)
        for index, meta in enumerate(rpc.tensors):
            if meta.storage is not None and meta.storage >= storages:
                reason = f"tensor {index} uses storage {meta.storage}, the message has {storages}"
                problems = (*problems, ("tensor", reason))
        if not rpc.problems:
            problems = (*problems, *_wrong_references(rpc, facts))
        if not problems:
            self._patterns.learn(tp, rpc, facts)
            return RpcRecord(row, tp, rpc, facts, ())
        return self._with_problems(row, tp, rpc, facts, problems)

    def _decode_cut(self, row: int, tp: TpMessage) -> RpcRecord:
        missing = tp.payload_missing
        assert missing is not None
        if [len(p) for p in tp.payloads[:2]] != [4, 8]:
            return self._decode_foreign(row, tp, "tensorpipe", f"{sum(missing):,} bytes were not captured")
        kind, identifier = (int.from_bytes(p, "little", signed=True) for p in tp.payloads[:2])
        payload = tp.payloads[2] if len(tp.payloads) > 2 else b""
        table = tp.payloads[TABLE_PAYLOAD] if len(tp.payloads) > TABLE_PAYLOAD else b""
        message = RpcMessage(kind, identifier, payload, table)
        problems = [("tensorpipe", f"{sum(missing):,} bytes of the message's payloads were not captured")]
        if len(missing) > TABLE_PAYLOAD and not sum(missing[:TABLE_PAYLOAD]):
            whole = self._decoder.decode(RpcMessage(kind, identifier, payload, NO_TENSORS))
            rpc = DecodedRpc(message, whole.envelopes, whole.command, (), whole.problems)
        elif len(missing) > TABLE_PAYLOAD and not missing[TABLE_PAYLOAD]:
            tensors = self._decoder.decode(RpcMessage(0, identifier, b"", table)).tensors
            rpc = DecodedRpc(message, (), UnknownCommand(kind, payload), tensors, ())
        else:
            rpc = DecodedRpc(message, (), UnknownCommand(kind, payload), (), ())
        facts = self._facts.read(rpc.command)
        return self._with_problems(row, tp, rpc, facts, [*problems, *rpc.problems])

    def _decode_foreign(self, row: int, tp: TpMessage, layer: str, reason: str) -> RpcRecord:
        """The record of what no agent of torch has sent: payloads of other sizes."""
        return self._with_problems(row, tp, _undecoded(tp), NO_FACTS, [(layer, reason)])

    @staticmethod
    def _with_problems(
        row: int, tp: TpMessage, rpc: DecodedRpc, facts: PickleFacts, problems: Sequence[tuple[str, str]]
    ) -> RpcRecord:
        record = RpcRecord(row, tp, rpc, facts, ())
        record.problems = tuple(Problem(layer, reason, record.location) for layer, reason in problems)
        return record


def _undecoded(tp: TpMessage) -> DecodedRpc:
    """Returns a message as bytes; with type and id where it is one of torch's."""
    try:
        message = from_payloads(tp.payloads)
    except DecodeError:
        message = RpcMessage(0, 0, b"".join(tp.payloads), b"")
    return DecodedRpc(message, (), UnknownCommand(message.type, message.payload), ())


def _wrong_references(rpc: DecodedRpc, facts: PickleFacts) -> Iterator[tuple[str, str]]:
    """Problems of a message whose table was read: values that refer to a tensor which it does not have."""
    command = rpc.command
    listed = LISTS.get(type(command))
    indexes = facts.tensors if listed is None else (*facts.tensors, *listed(command))
    if indexes:
        count = sum([meta.part_of is None for meta in rpc.tensors])
        for index in sorted({min(indexes), max(indexes)}):
            if not 0 <= index < count:
                yield "tensor", f"a value refers to tensor {render(index)}, the message has {count}"


LISTS: dict[type, Callable[[Any], tuple[int, ...]]] = {
    PropagateGradientsReq: lambda command: command.grads,
    PythonRemoteCall: lambda command: command.tensors,
    PythonRRefFetchRet: lambda command: command.tensors,
}
"""Commands with a list of tensors beside their values."""


def round_trips(record: RpcRecord) -> bool:
    """Whether descriptor and payloads come out byte for byte when they are encoded again."""
    tp = record.tp
    try:
        descriptor = write_descriptor(tp.descriptor, tp.layout)
        payloads = reencode(record.rpc)
    except (DecodeError, ValueError):
        return False
    return descriptor == tp.descriptor_body and payloads == tp.payloads
