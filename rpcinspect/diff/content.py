"""What a message says, as a small number: to find which messages of two runs belong together.

In: records. Out: integers that are equal for messages that say the same up to ids, and nearly never for
others. They only decide which message is compared with which; whether the two are equal is for `equality`,
which looks at every bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from rpcinspect.equality.elements import Read
from rpcinspect.equality.keys import key_of, one_module
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.pickle_facts import PYTHON, SCRIPT
from rpcinspect.rpc.pickles.semantic import python_udf
from rpcinspect.rpc.pickles.tree import Dict, Value
from rpcinspect.rpc.record import RpcRecord

RRefLabel = Callable[[tuple[int, int]], Hashable]
"""What an RRef is in any run: the call that made it."""


class Contents:
    """The contents of the messages of one run; values of equal bytes are looked at once."""

    def __init__(self, read: Read, label: RRefLabel, translate: Callable[[str], str] | None = None) -> None:
        """`translate` gives names of workers as the other run has them."""
        self._read = read
        self._label = label
        self._translate = translate
        self._known: dict[int, tuple[object, int]] = {}
        """Of pickles and commands by id(); each is held, so that its id stays its own."""

    def of(self, record: RpcRecord) -> int:
        """The content of a message without its envelopes."""
        labels = tuple(self._label(fork.rref_id) for fork in record.facts.forks)
        return hash((self._command(record), labels, self._tensors(record)))

    def _command(self, record: RpcRecord) -> Hashable:
        command = record.rpc.command
        kind = type(command)
        if kind in PYTHON:
            return kind.__name__, self._once(record.facts.pickle or command, lambda: self._python(record))
        if kind in SCRIPT:
            function = getattr(command, "function", None)
            return kind.__name__, function, key_of(SCRIPT[kind](command), self._translate)
        if isinstance(command, (commands.PythonRRefFetchCall, commands.ScriptRRefFetchCall)):
            return kind.__name__, self._label(command.rref_id.to_value())
        if isinstance(command, commands.RRefBackwardReq):
            return kind.__name__, self._label(command.rref_id.to_value()), command.retain_graph
        if isinstance(command, (commands.RRefForkRequest, commands.RRefUserDelete)):
            return kind.__name__, self._label(command.rref_id.to_value())
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
        parts: list[Value] = [pickle.root] if udf is None else [udf.func, udf.args]
        keys: list[Hashable] = [key_of(part, self._translate) for part in parts]
        if udf is not None and type(udf.kwargs) is Dict:
            keys += [
                (key_of(key, self._translate), key_of(value, self._translate))
                for key, value in udf.kwargs.pairs
            ]
        return hash(tuple(keys))

    def _tensors(self, record: RpcRecord) -> Hashable:
        """Bytes of storages; what was not captured is like nothing else."""
        if not record.tp.tensors:
            return 0
        found: list[Hashable] = []
        for tensor in record.tp.tensors:
            extent = tensor.extent
            if extent is None or extent.missing:
                found.append(("hole", tensor.descriptor.length))
            else:
                found.append(hash(self._read(extent)))
        return tuple(found)


def function_label(function: str | None) -> str | None:
    """A function by the one name of modules that have two."""
    if function is None:
        return None
    module, dot, rest = function.partition(".")
    return f"{one_module(module)}{dot}{rest}"


def as_multiset(values: Sequence[Hashable]) -> Hashable:
    """The values, whatever their order."""
    counts: dict[Hashable, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return frozenset(counts.items())
