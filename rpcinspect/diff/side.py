"""One side of a diff: the calls of a run, and what the alignment wants to know of each.

In: an open session, perhaps one context of it. Out: calls by index, their causes, the message that each edge
and each RRef goes back to, and the contents of messages, made when they are asked for: integers that are
equal for messages that say the same up to ids, and nearly never for others. They only decide which message is
compared with which; whether the two are equal is for `equality`, which looks at every bit. Which RRefs a
message uses is told beside that: what an RRef is, in any run, follows from the message that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

from rpcinspect.equality.elements import ReadExtent
from rpcinspect.equality.structural_keys import key_of, one_module
from rpcinspect.pickles.semantic import python_udf
from rpcinspect.pickles.tree import Dict, Value
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.pickle_facts import PYTHON, SCRIPT
from rpcinspect.rpc.questions import created, fork_of, python_udf_of, rref_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import AutogradContext
from rpcinspect.session.provenance import Id


class Content(NamedTuple):
    """Holds numbers for the parts of a message, envelopes off: equal numbers mean equal parts."""

    plain: int
    """Function, arguments or value; without tensors and ids."""
    tensors: int
    """The bytes of its tensors; 0 if it has none."""
    rrefs: tuple[Id, ...]
    """The RRefs that it is about or brings, in order."""


class ContentReader:
    """The contents of the messages of one run; values of equal bytes are looked at once."""

    def __init__(self, read: ReadExtent, translate: Callable[[str], str] | None = None) -> None:
        """`translate` gives names of workers as the other run has them."""
        self._read = read
        self._translate = translate
        self._known: dict[int, tuple[object, int]] = {}
        """Of pickles and commands by id(); each is held, so that its id stays its own."""

    def of(self, record: RpcRecord) -> Content:
        """The content of a message."""
        rrefs = dict.fromkeys(fork.rref_id for fork in record.facts.forks)
        about = rref_of(record)
        if about is not None:
            rrefs[about] = None
        return Content(hash(self._command(record)), self._tensors(record), tuple(rrefs))

    def arguments(self, record: RpcRecord) -> int:
        """The arguments of a call, whatever its function; 0 where there are none."""
        command = record.rpc.command
        if type(command) in SCRIPT:
            return hash(key_of(SCRIPT[type(command)](command), self._translate))
        udf = python_udf_of(record)
        if udf is None or not (udf.args or (type(udf.kwargs) is Dict and udf.kwargs.pairs)):
            return 0
        return hash(self._keys(udf.args, udf.kwargs))

    def _command(self, record: RpcRecord) -> Hashable:
        command = record.rpc.command
        kind = type(command)
        if kind in PYTHON:
            return kind.__name__, self._once(record.facts.pickle or command, lambda: self._python(record))
        if kind in SCRIPT:
            function = getattr(command, "function", None)
            return kind.__name__, function, key_of(SCRIPT[kind](command), self._translate)
        if isinstance(command, commands.RRefBackwardReq):
            return kind.__name__, command.retain_graph
        if isinstance(command, commands.PropagateGradientsReq):
            return kind.__name__, len(command.grads), command.retain_graph
        if isinstance(command, commands.UnknownCommand):
            return kind.__name__, command.message_type, command.payload
        return kind.__name__

    def _once(self, owner: object, make: Callable[[], int]) -> int:
        known = self._known.get(id(owner))
        if known is None:
            known = self._known[id(owner)] = (owner, make())
        return known[1]

    def _python(self, record: RpcRecord) -> int:
        facts, command = record.facts, record.rpc.command
        data: bytes = command.serialized_py_obj  # type: ignore[union-attr]
        pickle = facts.pickle
        plain = not facts.forks and self._translate is None and b"__mp_main__" not in data
        if plain or pickle is None or pickle.error is not None:
            return hash(data)
        udf = python_udf(pickle.root)
        if udf is None:
            return hash(key_of(pickle.root, self._translate))
        return hash((key_of(udf.func, self._translate), self._keys(udf.args, udf.kwargs)))

    def _keys(self, args: Value, kwargs: Value) -> Hashable:
        keys: list[Hashable] = [key_of(args, self._translate)]
        for name, value in kwargs.pairs if type(kwargs) is Dict else ():
            keys.append((key_of(name, self._translate), key_of(value, self._translate)))
        return tuple(keys)

    def _tensors(self, record: RpcRecord) -> int:
        """Bytes of storages; of those that were not captured, how long they are; hashes that were kept."""
        if not record.tp.tensors:
            return 0
        found: list[Hashable] = []
        for tensor in record.tp.tensors:
            extent = tensor.extent
            if extent is None or extent.missing:
                found.append(("hole", tensor.descriptor.length))
            else:
                found.append(hash(self._read(extent)))
        return hash((record.tp.hashes, *found))


def function_label(function: str | None) -> str | None:
    """Returns the function with the canonical name of its module."""
    if function is None:
        return None
    module, dot, rest = function.partition(".")
    return f"{one_module(module)}{dot}{rest}"


class CallSignature(NamedTuple):
    """The identity of a call apart from its content; workers have their names in the second run."""

    job: int
    caller: str
    callee: str
    kind: int
    function: str | None


class MessagePlace(NamedTuple):
    """A message: the index of its request, whether it is the answer, and a position in it."""

    request: int
    is_answer: bool
    position: int = 0


JobId = tuple[int, tuple[int, int]]
"""(job, id of an RRef or a fork)."""


class DiffSide:
    """A run, or one context of it."""

    def __init__(self, opened: RunModel, context: AutogradContext | None = None) -> None:
        """`context`: only its calls, and those that follow from them."""
        self.opened = opened
        self.context = context
        self.messages = opened.messages
        self.causes = opened.causes
        exchanges = opened.exchanges
        self.orphans = exchanges.orphans if context is None else ()
        calls = exchanges.calls
        if context is not None:
            calls = _within(context, calls, opened.causes.decided().parents)
        self.calls: dict[int, Exchange] = {call.index: call for call in calls}
        """By the index of the request, in the order in which they began."""
        self.signs: dict[int, CallSignature] = {}
        """Of requests; of orphans too."""
        self._requests = {call.answer: call.index for call in calls if call.answer is not None}
        """Index of an answer → that of its request."""
        self.origins: dict[JobId, MessagePlace] = {}
        """RRef → the call that made it, else the first message that brought it."""
        self.carriers: dict[JobId, MessagePlace] = {}
        """Fork → the message that brought or made it."""
        self._names: Mapping[tuple[int, str], str] = {}
        self._contents: dict[int, Content] = {}
        self._values: dict[int, frozenset[int]] = {}
        self._content_of = ContentReader(opened.read)
        self._find_origins()

    def name(self, job: int, label: str) -> str:
        """What a worker is called in both runs."""
        return self._names.get((job, label), label)

    def recognise(
        self, names: Mapping[tuple[int, str], str], translate: Callable[[str], str] | None = None
    ) -> None:
        """Takes the names of workers that hold in both runs; everything below needs them."""
        self._names = names
        self._content_of = ContentReader(self.opened.read, translate)
        for call in self.calls.values():
            ends = self.name(call.job, call.caller), self.name(call.job, call.callee)
            self.signs[call.index] = CallSignature(call.job, *ends, call.kind, function_label(call.function))
        for orphan in self.orphans:
            ends = self.name(orphan.job, orphan.source), self.name(orphan.job, orphan.destination)
            self.signs[orphan.index] = CallSignature(orphan.job, *ends, orphan.record.rpc.message.type, None)

    def called(self, request: int) -> str | None:
        """Returns the name to show of a request's callee."""
        call = self.calls.get(request)
        if call is None:
            return None
        return function_label(call.function if call.name is None else call.name.short)

    def content(self, index: int) -> Content:
        """Returns the content of a message."""
        known = self._contents.get(index)
        if known is None:
            known = self._contents[index] = self._content_of.of(self.messages[index])
        return known

    def says(self, index: int) -> Hashable:
        """Returns the content of a message, whatever RRefs it uses."""
        return self.content(index)[:2]

    def arguments(self, index: int) -> int:
        """The arguments of a call, whatever its function."""
        return self._content_of.arguments(self.messages[index])

    def values(self, index: int) -> frozenset[int]:
        """Marks of the values in the arguments of a call. Those of all calls are made at once, since finding
        those of one means to pass all by."""
        if not self._values:
            session = self.opened.session
            rows = {one: int(session.order[one]) for one in self.calls}
            found = session.provenance.values(set(rows.values()))
            self._values = {one: found[row] for one, row in rows.items()}
        return self._values[index]

    def travelled(self, index: int) -> tuple[int, str, bytes, tuple[bytes, ...]]:
        """Returns a request's bytes on the wire, to sort requests in the same order in every process, and
        whatever workers are renamed to. What was not captured is empty."""
        record = self.messages[index]
        extents = [tensor.extent for tensor in record.tp.tensors]
        tensors = [
            b"" if extent is None or extent.missing else self.opened.read(extent) for extent in extents
        ]
        sign = self.signs[index]
        return sign.kind, sign.function or "", record.rpc.message.payload, tuple(tensors)

    def thread(self, index: int) -> Hashable:
        """What calls have in common that were sent for the same; one of which that is in doubt is alone."""
        return (index,) if index in self.causes.doubts else self.causes.parents.get(index)

    def carrier(self, call: Exchange) -> MessagePlace | None:
        """The message that brought the fork which a request of housekeeping is about."""
        fork = fork_of(call.request)
        return None if fork is None else self.carriers.get((call.job, fork))

    def forward(self, call: Exchange) -> MessagePlace | None:
        """The forward message whose edge a gradient request goes back along."""
        provenance, row = self.opened.session.provenance, call.request.row
        edge = (call.job, provenance.context[row], provenance.autograd_message[row])
        forward = self.opened.edges.get(edge)
        if forward is None:
            return None
        return MessagePlace(self._requests.get(forward, forward), forward in self._requests)

    def _find_origins(self) -> None:
        brought: list[tuple[int, Exchange, bool]] = []
        for call in self.calls.values():
            ids = created(call.request)
            if ids is not None:
                self.origins.setdefault((call.job, ids[0]), MessagePlace(call.index, False, -1))
                self.carriers.setdefault((call.job, ids[1]), MessagePlace(call.index, False, -1))
            brought.append((call.begin_ns, call, False))
            if call.response is not None and call.answered_ns is not None:
                brought.append((call.answered_ns, call, True))
        for _, call, is_answer in sorted(brought, key=lambda item: item[0]):
            record = call.response if is_answer else call.request
            for position, fork in enumerate(record.facts.forks if record is not None else ()):
                place = MessagePlace(call.index, is_answer, position)
                self.origins.setdefault((call.job, fork.rref_id), place)
                self.carriers.setdefault((call.job, fork.fork_id), place)


def _within(
    context: AutogradContext, calls: tuple[Exchange, ...], parents: Mapping[int, int]
) -> tuple[Exchange, ...]:
    """Returns the calls of one context, and calls that were sent while serving one of them."""
    kept: set[int] = set()
    for call in calls:
        if call.control or call.job != context.job:
            continue
        if call.context == context.context_id or parents.get(call.index) in kept:
            kept.add(call.index)
    return tuple(call for call in calls if call.index in kept)
