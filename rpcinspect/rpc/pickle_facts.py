"""What a command's pickles say beyond their values: the function, RRef forks, a remote error, what is unsafe,
and which tensors they refer to.

In: a command. Out: `PickleFacts`, made by one symbolic reading; equal Python pickles are read once. This is
also where `pickles.audit` is applied, to pickles of both dialects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from rpcinspect.errors import DecodeError
from rpcinspect.late_pattern import late
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.audit import NOTHING, Audit, audit, audit_jit
from rpcinspect.pickles.jit import read_jit
from rpcinspect.pickles.python import PythonPickle, read_python_pickle_partial
from rpcinspect.pickles.semantic import (
    RRefForkData,
    brought_fork,
    python_udf,
    remote_exception,
    rref_fork,
    tensor_reference,
)
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Set, Value, children
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.cache import TREE_WEIGHT, BoundedCache
from rpcinspect.rpc.command import Command, UnknownCommand
from rpcinspect.rpc.command_codec import parameter_indexes
from rpcinspect.rpc.envelope import ENVELOPES, split_wrapped

CACHE_BYTES = 1 << 22

WORKER_INFO = late(r"On WorkerInfo\(id=(\d{1,9}), name=([^)]*)\):", re.ASCII)
"""How `_run_function` in torch/distributed/rpc/internal.py begins the text of a remote error."""


class PickleFacts(Struct):
    """Facts that one command's pickles hold; all are empty for a command without pickles.

    Not frozen: `audit` is made when it is asked for first.
    """

    function: str | None = None
    """`module.qualname` of the PythonUDF's function."""
    forks: tuple[RRefForkData, ...] = ()
    failed: bool = False
    """The answer is a pickled RemoteException."""
    responder: tuple[int, str] | None = None
    """(id, name) of the worker on which it was raised."""
    control: bool = False
    """The function is the agent's own."""
    sender: str | None = None
    receiver: str | None = None
    """Names that the agent's own call tells of who sends and who receives it."""
    parameters: frozenset[int] = frozenset()
    """Indexes of the tensors that are the data of an nn.Parameter."""
    tensors: tuple[int, ...] = ()
    """The lowest and the highest index that a value gives as that of a tensor; empty where none does."""
    pickle: PythonPickle | None = None
    """The Python pickle itself; its `error` says what stopped the reading."""
    audited: Audit | None = NOTHING
    """None: nobody has asked yet what the pickle would run."""

    @property
    def audit(self) -> Audit:
        """What loading would run: judged once, and only for whoever asks, since a replay judges by itself."""
        if self.audited is None:
            assert self.pickle is not None
            self.audited = audit(self.pickle)
        return self.audited


NO_FACTS = PickleFacts()


class FactsReader:
    """Reads the facts of commands; remembers those of Python pickles."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._known: BoundedCache[bytes, PickleFacts] = BoundedCache(CACHE_BYTES)

    def read(self, command: Command) -> PickleFacts:
        """Returns the facts; never raises: where a pickle can't be read, `pickle.error` has the reason."""
        kind = type(command)
        if kind in PYTHON:
            data: bytes = command.serialized_py_obj  # type: ignore[union-attr]
            facts = self._known.get(data)
            if facts is None:
                facts = _facts(read_python_pickle_partial(data, self._limits))
                self._known.put(data, facts, TREE_WEIGHT * len(data))
            return facts
        values = SCRIPT.get(kind)
        if values is not None:
            value = values(command)
            calls = list(calls_in(value))
            forks, tensors, found = _forks(calls), _ends(calls), audit_jit(value)
            if forks or tensors or found:
                return PickleFacts(forks=forks, tensors=tensors, audited=found)
            return NO_FACTS
        if kind is UnknownCommand:
            found = self._unread(command)  # type: ignore[arg-type]
            return PickleFacts(audited=found) if found else NO_FACTS
        return NO_FACTS

    def _unread(self, command: UnknownCommand) -> Audit:
        """Returns the audit of the JIT pickle in a payload of another form than its type should have: alone,
        or behind what an envelope wraps."""
        payload = command.payload
        try:
            if command.message_type in ENVELOPES:
                _, payload = split_wrapped(payload)
            return audit_jit(read_jit(payload, self._limits))
        except DecodeError:
            return NOTHING  # what stopped the reading is a problem of the message


def rref_forks(value: Value) -> tuple[RRefForkData, ...]:
    """Every RRef fork in a tree, each once, in the order of the walk."""
    return _forks(calls_in(value))


def calls_in(value: Value) -> Iterator[PickleCall]:
    """Every call in a tree, each once; not those that an RRef's fork is written with.

    `tree.walk` would do, but takes half as long again for the values of every TorchScript message.
    """
    seen: set[int] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, (str, bytes, int, float, bool)) or node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if type(node) is PickleCall:
            yield node
            if rref_fork(node) is not None:
                continue
        stack.extend(reversed(list(children(node))))


def _forks(calls: Iterable[PickleCall]) -> tuple[RRefForkData, ...]:
    return tuple(dict.fromkeys(fork for call in calls if (fork := brought_fork(call)) is not None))


def _ends(calls: Iterable[PickleCall]) -> tuple[int, ...]:
    """Returns the lowest and the highest index in references to tensors, as `PickleFacts.tensors`."""
    found = {index for call in calls if (index := tensor_reference(call)) is not None}
    return (min(found), max(found)) if found else ()


def _facts(pickle: PythonPickle) -> PickleFacts:
    udf = python_udf(pickle.root)
    function = str(udf.func) if udf is not None and isinstance(udf.func, Global) else None
    failure = remote_exception(pickle.root)
    responder = None
    if failure is not None:
        match = WORKER_INFO.match(failure.message)
        if match is not None:
            responder = (int(match[1]), match[2])
    sender, receiver = _told_names(function, udf.args) if udf is not None else (None, None)
    names = {(g.module, g.name) for g in pickle.globals}
    receives = any(name in RREF_NAMES for _, name in names)
    return PickleFacts(
        function=function,
        forks=rref_forks(pickle.calls) if receives else (),
        failed=failure is not None,
        responder=responder,
        control=function in CONTROL_FUNCTIONS,
        sender=sender,
        receiver=receiver,
        parameters=parameter_indexes(pickle),
        tensors=_ends(pickle.calls) if receives else (),
        pickle=pickle,
        audited=None,
    )


def _told_names(function: str | None, args: Value) -> tuple[str | None, str | None]:
    """(sender, receiver) of the agents' calls that gather at the leader or spread from it.

    The leader has the smallest name.
    """
    if not isinstance(args, tuple):
        return None, None
    if function == GATHER and len(args) >= 4 and isinstance(args[1], str):
        return args[1], _smallest(args[3])
    if function == BROADCAST and len(args) >= 2 and isinstance(args[1], Dict):
        return _smallest([key for key, _ in args[1].pairs]), None
    return None, None


def _smallest(names: Value) -> str | None:
    plain = names.items if isinstance(names, Set) else names
    if not isinstance(plain, (list, tuple)) or not plain or not all(isinstance(n, str) for n in plain):
        return None
    smallest: str = min(plain)
    return smallest


PYTHON: frozenset[type] = frozenset(
    {commands.PythonCall, commands.PythonResp, commands.PythonRemoteCall, commands.PythonRRefFetchRet}
)
"""Commands that carry a Python pickle."""

SCRIPT: dict[type, Callable[[Any], Value]] = {
    commands.ScriptCall: lambda command: command.args,
    commands.ScriptRemoteCall: lambda command: command.args,
    commands.ScriptResp: lambda command: command.value,
    commands.ScriptRRefFetchRet: lambda command: command.values,
}
"""Commands that carry JIT values, and those values."""

RREF_NAMES = frozenset({"_InternalRPCPickler", "_remote_module_receiver", "rref"})
"""Without one of these globals a pickle can hold no RRef and no tensor."""

GATHER = "torch.distributed.rpc.api._gather_to_leader"
BROADCAST = "torch.distributed.rpc.api._broadcast_to_followers"

CONTROL_FUNCTIONS = frozenset(
    {
        GATHER,
        BROADCAST,
        "torch.distributed.rpc._utils._update_group_membership",
        "torch.distributed.rpc.backend_registry._get_device_infos",
    }
)
"""Calls that the agents make for themselves when a group starts, changes or ends."""
