"""What a message says, as small numbers: to find which messages of two runs belong together.

In: records. Out: integers that are equal for messages that say the same up to ids, and nearly never for
others. They only decide which message is compared with which; whether the two are equal is for `equality`,
which looks at every bit. Which RRefs a message uses is told beside that: what an RRef is, in any run, follows
from the message that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from rpcinspect.equality.elements import Read
from rpcinspect.equality.structural_keys import key_of, one_module
from rpcinspect.pickles.semantic import python_udf
from rpcinspect.pickles.tree import Dict, Value
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.pickle_facts import PYTHON, SCRIPT
from rpcinspect.rpc.questions import rref_of
from rpcinspect.rpc.record import RpcRecord

Id = tuple[int, int]


class Content(NamedTuple):
    """Holds numbers for the parts of a message, envelopes off: equal numbers mean equal parts."""

    plain: int
    """Function, arguments or value; without tensors and ids."""
    tensors: int
    """The bytes of its tensors; 0 if it has none."""
    rrefs: tuple[Id, ...]
    """The RRefs that it is about or brings, in order."""


class Contents:
    """The contents of the messages of one run; values of equal bytes are looked at once."""

    def __init__(self, read: Read, translate: Callable[[str], str] | None = None) -> None:
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
        pickle = record.facts.pickle
        udf = None if pickle is None else python_udf(pickle.root)
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
        """Bytes of storages; of those that were not captured, how long they are."""
        if not record.tp.tensors:
            return 0
        found: list[Hashable] = []
        for tensor in record.tp.tensors:
            extent = tensor.extent
            if extent is None or extent.missing:
                found.append(("hole", tensor.descriptor.length))
            else:
                found.append(hash(self._read(extent)))
        return hash(tuple(found))


def function_label(function: str | None) -> str | None:
    """A function by the one name of modules that have two."""
    if function is None:
        return None
    module, dot, rest = function.partition(".")
    return f"{one_module(module)}{dot}{rest}"
