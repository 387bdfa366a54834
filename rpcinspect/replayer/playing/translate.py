"""Captured messages as they must be sent now: with the ids that live workers gave to the same things; and
live messages as records, so that they are compared and matched as captured ones are.

In: a captured record and what was learned of ids so far (captured → live). Out: a message. Most ids stay as
they are in a fresh group with the captured names and ids; those that live workers make can be others: of
autograd messages, contexts, RRefs, forks, profilings. A message without such an id is the captured one, byte
for byte; in any other only these ids change. Python pickles are changed opcode by opcode, never loaded.

Not found: ids that user code passes as plain integers; only the context of an optimizer's step is known.

`LiveRecords`: a message and its storages, as a peer hands them on → an `RpcRecord` of live origin and a
reader of its bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.equality.elements import ReadExtent
from rpcinspect.equality.ids import AUTOGRAD_MESSAGE, CONTEXT, FORK, NO_ID, PROFILING, RREF, WORKER, IdMap
from rpcinspect.errors import DecodeError, ReplayError
from rpcinspect.pickles.opcodes import NumberedPickle, number_integers, rewrite
from rpcinspect.pickles.semantic import RRefForkData, beside_fork, python_udf, rref_fork, worker_info
from rpcinspect.pickles.tree import PickleCall, Value, children, walk
from rpcinspect.replayer.peers.pipe_end import cpu_descriptor
from rpcinspect.replayer.planning.selection import optimizer_context
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    Command,
    PropagateGradientsReq,
    PythonRemoteCall,
    PythonRRefFetchCall,
    RemoteRet,
    RRefBackwardReq,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
    ScriptCall,
    ScriptRemoteCall,
    ScriptRRefFetchCall,
)
from rpcinspect.rpc.command_codec import from_message, to_payload
from rpcinspect.rpc.envelope import AutogradMetadata, Envelope, RpcWithAutograd, peel, wrap
from rpcinspect.rpc.message import RpcMessage, type_name
from rpcinspect.rpc.pickle_facts import PYTHON, SCRIPT, rref_forks
from rpcinspect.rpc.questions import created
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.rpc.types import LOCAL_ID_BITS, GloballyUniqueId, pack_id, unpack_id
from rpcinspect.tcp.ranges import Extent
from rpcinspect.tensorpipe.records import TpMessage

HIGHEST_LOCAL_ID = (1 << LOCAL_ID_BITS) - 1

T = TypeVar("T", bound=int | GloballyUniqueId)

KindAndId: TypeAlias = tuple[str, int | GloballyUniqueId]
"""Kind and id, as an `IdMap` keeps them."""


def translate(
    record: RpcRecord, ids: IdMap, live_workers: Collection[int] = (), sender: int | None = None
) -> RpcMessage:
    """Returns the captured message with live ids; the very same object if none of its ids has changed.

    `live_workers`: ids of workers that make RRefs of their own, which are known once they have told of them;
    `sender`: who gets its gradients, where that is not the captured sender.

    Raises `ReplayError` where an id that is not known belongs to something else in the live run, and where
    the message can't be written with other ids.
    """
    message, live = record.rpc.message, _Live(ids, live_workers, sender)
    if sender is None and all(live.of(kind, captured) == captured for kind, captured in ids_of(record)):
        return message
    try:
        return replace(message, payload=_payload(record, live))
    except DecodeError as error:
        what = type_name(message.type)
        raise ReplayError(f"{what}: its ids can't be replaced by those of live workers: {error}") from error


def learn_sent(record: RpcRecord, ids: IdMap) -> None:
    """Notes that a captured message was sent as `translate` gave it: what it names is the same thing now."""
    live = _Live(ids)
    for kind, captured in ids_of(record):
        ids.same(kind, captured, live.of(kind, captured))


def learn_own_fork(record: RpcRecord, ids: IdMap, number: int) -> None:
    """Gives other ids to the object that a live worker made by a call to itself, which it now gets from
    outside; to be called before anything is sent.

    A worker that makes a remote object at itself has it before it asks, and the object's id is also the
    fork's. The live worker has heard of nothing yet: it gets the request as from anybody else, with a fork of
    another id. Nor is the object's own id left: the live worker may give that out, too. `number`: how many
    such calls there were before, since both ids are taken from the end of the counter.
    """
    made = created(record)
    if made is not None and made[0] == made[1]:
        own = GloballyUniqueId(*made[1])
        worker = cast("int | None", ids.translate(WORKER, own.created_on))
        for kind, place in ((RREF, 0), (FORK, 1)):
            last = HIGHEST_LOCAL_ID - 2 * number - place
            ids.same(kind, own, GloballyUniqueId(own.created_on if worker is None else worker, last))


def learn_own_edge(record: RpcRecord, ids: IdMap) -> None:
    """Gives another id to the edge of a call that a live worker made to itself, and that it now gets from
    outside: it may give the captured id out for an answer. To be called before anything is sent."""
    for envelope in record.rpc.envelopes:
        if isinstance(envelope, RpcWithAutograd):
            captured = envelope.autograd_metadata.autograd_message_id
            worker, number = unpack_id(captured)
            ids.same(AUTOGRAD_MESSAGE, captured, pack_id(worker, HIGHEST_LOCAL_ID - number))


def ids_of(record: RpcRecord) -> list[KindAndId]:
    """Every id in a message, of each kind once, in the order of the message; also of the workers in ids."""
    found: dict[KindAndId, None] = {}
    for kind, value in chain(_ids_of_envelopes(record.rpc.envelopes), _ids_of_command(record)):
        if value == NO_ID:
            continue
        worker = _creator(kind, value)
        if worker is not None and worker != NO_ID:
            found[WORKER, worker] = None
        found[kind, value] = None
    return list(found)


def _ids_of_envelopes(envelopes: Sequence[Envelope]) -> Iterator[KindAndId]:
    for envelope in envelopes:
        if isinstance(envelope, RpcWithAutograd):
            yield CONTEXT, envelope.autograd_metadata.autograd_context_id
            yield AUTOGRAD_MESSAGE, envelope.autograd_metadata.autograd_message_id
            yield WORKER, envelope.from_worker_id
        else:
            yield PROFILING, envelope.profiling_id


def _ids_of_command(record: RpcRecord) -> Iterator[KindAndId]:
    command, pickle = record.rpc.command, record.facts.pickle
    if isinstance(command, PropagateGradientsReq):
        yield CONTEXT, command.autograd_metadata.autograd_context_id
        yield AUTOGRAD_MESSAGE, command.autograd_metadata.autograd_message_id
    for name, kind in FIELDS.get(type(command), ()):
        yield kind, getattr(command, name)
    for fork in record.facts.forks:
        yield WORKER, fork.owner_id
        yield RREF, GloballyUniqueId(*fork.rref_id)
        yield FORK, GloballyUniqueId(*fork.fork_id)
        yield WORKER, fork.parent
    for call in pickle.calls if pickle is not None else ():
        info = worker_info(call)
        if info is not None:
            yield WORKER, info.id
    context = optimizer_context(record)
    if context is not None:
        yield CONTEXT, context


def _creator(kind: str, value: int | GloballyUniqueId) -> int | None:
    """The worker that made an id."""
    if isinstance(value, GloballyUniqueId):
        return value.created_on
    return unpack_id(value)[0] if kind in PACKED else None


class _Live:
    """Looks up captured ids in the live run."""

    def __init__(self, ids: IdMap, live_workers: Collection[int] = (), sender: int | None = None) -> None:
        self._ids = ids
        self._live_workers = live_workers
        self._sender = sender

    def of(self, kind: str, captured: T) -> T:
        """The partner; without one, the same number of the same worker, unless that is something else's."""
        partner = self._ids.translate(kind, captured)
        if partner is not None:
            return cast("T", partner)
        if captured == NO_ID:
            return captured
        unchanged: int | GloballyUniqueId = captured
        if isinstance(captured, GloballyUniqueId):
            unchanged = replace(captured, created_on=self.of(WORKER, captured.created_on))
        elif kind in PACKED:
            worker, counter = unpack_id(captured)
            unchanged = pack_id(self.of(WORKER, worker), counter)
        if (
            kind == RREF
            and isinstance(unchanged, GloballyUniqueId)
            and unchanged.created_on in self._live_workers
        ):
            raise ReplayError(
                f"the {kind} {_text(kind, captured)} of the capture was made by a worker that is live here, "
                "and it was never sent"
            )
        other = self._ids.translate_back(kind, unchanged)
        if other is not None:
            raise ReplayError(
                f"the {kind} {_text(kind, captured)} of the capture is not known to the live workers, "
                f"and what has this id there is {_text(kind, other)} of the capture"
            )
        return cast("T", unchanged)

    def metadata(self, captured: AutogradMetadata) -> AutogradMetadata:
        return AutogradMetadata(
            self.of(CONTEXT, captured.autograd_context_id),
            self.of(AUTOGRAD_MESSAGE, captured.autograd_message_id),
        )

    def envelope(self, captured: Envelope) -> Envelope:
        if not isinstance(captured, RpcWithAutograd):
            return replace(captured, profiling_id=self.of(PROFILING, captured.profiling_id))
        return replace(
            captured,
            autograd_metadata=self.metadata(captured.autograd_metadata),
            from_worker_id=self.of(WORKER, captured.from_worker_id) if self._sender is None else self._sender,
        )

    def fork(self, captured: RRefForkData) -> tuple[int, int, int, int, int, int]:
        """The numbers of an RRef, in the order in which they travel."""
        rref = self.of(RREF, GloballyUniqueId(*captured.rref_id))
        fork = self.of(FORK, GloballyUniqueId(*captured.fork_id))
        owner, parent = self.of(WORKER, captured.owner_id), self.of(WORKER, captured.parent)
        return owner, *rref.to_value(), *fork.to_value(), parent


def _payload(record: RpcRecord, live: _Live) -> bytes:
    """The payload of the message with live ids, written in the way in which it was written."""
    message = record.rpc.message
    envelopes, inner, payload = peel(message.type, message.payload)
    if wrap(envelopes, payload, message.payload) != message.payload:
        raise DecodeError("rpc", NOT_TORCHS)
    if any(live.of(kind, captured) != captured for kind, captured in _ids_of_command(record)):
        payload = _payload_of_command(record, inner, payload, live)
    return wrap([live.envelope(envelope) for envelope in envelopes], payload, message.payload)


def _payload_of_command(record: RpcRecord, kind: int, payload: bytes, live: _Live) -> bytes:
    """The payload inside the envelopes with live ids."""
    command = record.rpc.command
    if type(command) in SCRIPT:  # its tree is changed in place, and the captured one must stay
        command = from_message(kind, payload)
    if to_payload(command, payload) != payload:
        raise DecodeError("rpc", NOT_TORCHS)
    return to_payload(_command(record, command, live), payload)


def _command(record: RpcRecord, command: Any, live: _Live) -> Command:
    """The command with live ids; RRefs among its JIT values are changed in place."""
    changes: dict[str, Any] = {
        name: live.of(kind, getattr(command, name)) for name, kind in FIELDS.get(type(command), ())
    }
    if isinstance(command, PropagateGradientsReq):
        changes["autograd_metadata"] = live.metadata(command.autograd_metadata)
    elif type(command) in PYTHON:
        changes["serialized_py_obj"] = _python_pickle(record, command.serialized_py_obj, live)
    elif type(command) in SCRIPT:
        _change_forks(SCRIPT[type(command)](command), live)
        context = optimizer_context(record)
        if isinstance(command, ScriptCall) and context is not None:
            changes["args"] = (command.args[0], live.of(CONTEXT, context))
    return cast("Command", replace(command, **changes))


def _change_forks(value: Value, live: _Live) -> None:
    for node in walk([value], lambda node: () if rref_fork(node) is not None else children(node)):
        fork = rref_fork(node)
        if fork is not None and type(node) is PickleCall:
            node.args = (*live.fork(fork), fork.type_str)


def _python_pickle(record: RpcRecord, data: bytes, live: _Live) -> bytes:
    facts, context = record.facts, optimizer_context(record)
    if facts.pickle is None or facts.pickle.error is not None:
        return data
    if not facts.forks and context is None and not any(map(worker_info, facts.pickle.calls)):
        return data
    numbered = number_integers(data)
    changes = _Changes(numbered)
    for fork in rref_forks(numbered.pickle.calls) if facts.forks else ():
        numbers = (fork.owner_id, *fork.rref_id, *fork.fork_id, fork.parent)
        owner, rref_on, rref_local, fork_on, fork_local, parent = map(changes.captured, numbers)
        captured = RRefForkData(owner, (rref_on, rref_local), (fork_on, fork_local), parent, fork.type_str)
        if captured in facts.forks:  # otherwise its numbers are too large for an RRef's
            for number, value in zip(numbers, live.fork(captured), strict=True):
                changes.put(number, value)
    for call in numbered.pickle.calls:
        info = worker_info(call)
        if info is not None:
            changes.put(info.id, live.of(WORKER, changes.captured(info.id)))
    udf = python_udf(numbered.pickle.root)
    if context is not None and udf is not None:
        changes.put(udf.args[1], live.of(CONTEXT, context))
    changes.check(context is not None)
    return rewrite(numbered, changes.made)


class _Changes:
    """Collects the new values of a pickle's integers."""

    def __init__(self, numbered: NumberedPickle) -> None:
        self._numbered = numbered
        self.made: dict[int, int] = {}

    def captured(self, number: int) -> int:
        return self._numbered.integers[number]

    def put(self, number: int, value: int) -> None:
        """One integer may be part of several things, if it stays the same for all of them."""
        if self.made.setdefault(number, value) != value:
            raise DecodeError(
                "pickle", "one integer is part of several ids", self._numbered.places[number][0]
            )

    def check(self, context: bool) -> None:
        """Raises DecodeError if an integer that changes is part of anything but ids: by the memo, one opcode
        may also be a size that the gate has judged as it was. `context`: the request's second argument is an
        id."""
        pickle = self._numbered.pickle
        changed = {number for number, value in self.made.items() if self._numbered.integers[number] != value}
        udf = python_udf(pickle.root) if context else None

        def inner(node: Value) -> Iterable[Value]:
            if udf is not None and node is pickle.root:
                return [udf.func, *udf.args[:1], *udf.args[2:], udf.kwargs]
            return () if worker_info(node) is not None else beside_fork(node)

        for node in walk([pickle.root, *pickle.calls] if changed else [], inner):
            if type(node) is int and node in changed:
                raise DecodeError("pickle", "an integer is part of an id and of something else")


def _text(kind: str, value: Any) -> str:
    if isinstance(value, GloballyUniqueId):
        return f"{value.created_on}:{value.local_id}"
    return "{}:{}".format(*unpack_id(value)) if kind in PACKED else str(value)


NOT_TORCHS = "it is not written as torch writes messages"

PACKED = frozenset({CONTEXT, AUTOGRAD_MESSAGE})
"""Kinds of ids that hold their creator in the upper bits of one number."""

FIELDS: dict[type, tuple[tuple[str, str], ...]] = {
    ScriptRemoteCall: (("ret_rref_id", RREF), ("ret_fork_id", FORK)),
    PythonRemoteCall: (("ret_rref_id", RREF), ("ret_fork_id", FORK)),
    ScriptRRefFetchCall: (("from_worker_id", WORKER), ("rref_id", RREF)),
    PythonRRefFetchCall: (("from_worker_id", WORKER), ("rref_id", RREF)),
    RemoteRet: (("rref_id", RREF), ("fork_id", FORK)),
    RRefUserDelete: (("rref_id", RREF), ("fork_id", FORK)),
    RRefForkRequest: (("rref_id", RREF), ("fork_id", FORK)),
    RRefChildAccept: (("fork_id", FORK),),
    CleanupAutogradContextReq: (("context_id", CONTEXT),),
    RRefBackwardReq: (("rref_id", RREF), ("autograd_context_id", CONTEXT)),
}
"""Commands → their fields that hold ids. Gradients carry an `AutogradMetadata`."""


class LiveMessage(Struct, frozen=True):
    """A message of a live worker, decoded."""

    record: RpcRecord
    read: ReadExtent
    """Of the bytes of its tensors."""


class LiveRecords:
    """Decodes live messages; remembers byte patterns that repeat."""

    def __init__(self) -> None:
        self._decoder = RecordDecoder()

    def decode(self, message: RpcMessage, tensors: Sequence[bytes]) -> LiveMessage:
        """The record of a message; damage becomes its problems."""
        payloads = message.to_payloads()
        tp = TpMessage.live(cpu_descriptor(payloads, tensors), payloads)

        def read(extent: Extent) -> bytes:
            return b"".join([tensors[number][at : at + length] for number, at, length in extent.pieces])

        return LiveMessage(self._decoder.decode(tp), read)
