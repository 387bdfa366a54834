"""What captured messages would make a live process import and call, and whether the user agreed to it.

In: messages that are to reach a live worker: requests that are sent, and answers that are given in a captured
worker's place. Out: every name with whether it is allowed. A name is allowed if it is torch's own by an exact
list, if `--allow` names it, or if a file that the user named by `--main` or `--path` defines it. What only
loading makes known (attribute chains, names made up by the pickle, extension codes) is refused, since no list
can name it.

This stops gadgets. It does not make the functions harmless that were allowed: those are called, with
arguments that the capture chose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from rpcinspect.replay.planning.gate_names import FILE_OPERATORS, is_function, is_internal
from rpcinspect.replay.planning.model import GlobalUse
from rpcinspect.replay.planning.sources import Sources
from rpcinspect.rpc.command import (
    PythonCall,
    PythonRemoteCall,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchRet,
)
from rpcinspect.rpc.pickles import semantic
from rpcinspect.rpc.pickles.python import PythonPickle
from rpcinspect.rpc.pickles.safety import is_plain
from rpcinspect.rpc.pickles.safety_names import COLLECTORS
from rpcinspect.rpc.pickles.tree import Call, Global, Value, children
from rpcinspect.rpc.record import RpcRecord

MAX_NODES = 1_000_000
SCRIPT_PREFIX = "__torch__."


class Allowance(Struct, frozen=True):
    """One `--allow MODULE[:NAME]`: a module with its submodules, or one name of a module."""

    module: str
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> Allowance | None:
        """From the command line; None if it is no such thing."""
        module, colon, name = text.partition(":")
        words = [*module.split("."), *(name.split(".") if colon else ())]
        return cls(module, name if colon else None) if all(w.isidentifier() for w in words) else None

    def covers(self, module: str, name: str) -> bool:
        """Whether it allows a name. One with dots is an attribute chain: it must be spelt exactly."""
        if self.name is not None:
            return (self.module, self.name) == (module, name)
        return "." not in name and (module == self.module or module.startswith(f"{self.module}."))


class Named(Struct, frozen=True):
    """One thing that a message would make a live process import or call."""

    name: str
    """`module.name`; as captured, so escape it before showing it."""
    allowed: bool
    reason: str
    """Why it is refused; empty where it is allowed."""


class Gate:
    """The user's decision; asks each record once."""

    def __init__(self, allow: Sequence[Allowance] = (), sources: Sources | None = None) -> None:
        self._allow = tuple(allow)
        self._sources = sources or Sources()

    def inspect(self, record: RpcRecord) -> tuple[Named, ...]:
        """Every name in a message's pickles, each once; refused ones as soon as one use of it is refused."""
        found: dict[str, Named] = {}
        for named in self._named(record):
            known = found.get(named.name)
            if known is None or (known.allowed and not named.allowed):
                found[named.name] = named
        return tuple(found.values())

    def _named(self, record: RpcRecord) -> Iterator[Named]:
        command = record.rpc.command
        if isinstance(command, (ScriptCall, ScriptRemoteCall)):
            yield self._script_function(command)
            yield from self._script_values(command.args)
        elif isinstance(command, ScriptResp):
            yield from self._script_values(command.value)
        elif isinstance(command, ScriptRRefFetchRet):
            yield from self._script_values(command.values)
        if record.facts.pickle is not None:
            calls = isinstance(command, (PythonCall, PythonRemoteCall))
            yield from self._python(record.facts.pickle, calls=calls)

    def _allowed(self, module: str, name: str) -> bool:
        """Whether the user agreed to a name."""
        return any(a.covers(module, name) for a in self._allow) or self._sources.defines(module, name)

    # --- TorchScript: runs no Python, but functions and classes that the live process has compiled ----------

    def _script_function(self, command: ScriptCall | ScriptRemoteCall) -> Named:
        if command.schema is None:
            return self._script_name(command.qualified_name)
        base = command.function.partition(".")[0]
        if base in FILE_OPERATORS:
            return Named(base, False, "an operator that reads or writes a file of the caller's choice")
        if not base.startswith("aten::"):
            return Named(base, False, "an operator that is not one of aten")
        return Named(base, True, "")

    def _script_name(self, qualified: str) -> Named:
        module, _, name = qualified.removeprefix(SCRIPT_PREFIX).rpartition(".")
        if qualified.startswith(SCRIPT_PREFIX) and (is_function(module, name) or self._allowed(module, name)):
            return Named(qualified, True, "")
        return Named(qualified, False, f"TorchScript that nobody allowed{_hint(module, name)}")

    def _script_values(self, value: Value) -> Iterator[Named]:
        """Classes that values are of; everything else in a JIT pickle is read by C++ and runs nothing."""
        for node in _walk(value):
            if type(node) is Global and str(node).startswith(SCRIPT_PREFIX):
                yield self._script_name(str(node))

    # --- Python: loading imports every name and makes every call --------------------------------------------

    def _python(self, pickle: PythonPickle, *, calls: bool) -> Iterator[Named]:
        """`calls`: the live process then calls what it finds, so that it must be a PythonUDF that we
        understand.
        """
        if pickle.error is not None:
            yield Named("a pickle that can't be read", False, str(pickle.error))
        for code in pickle.extensions:
            yield Named(
                f"copyreg extension {code}", False, "a table of the live process says what it imports"
            )
        for name in pickle.globals:
            yield self._name(name)
        udf = semantic.python_udf(pickle.root)
        own = udf.func if udf is not None else None
        for made in pickle.calls:
            yield from self._call(made, called=made is own)
        yield from _passed_on(pickle)
        if udf is not None:
            yield from self._function(udf.func)
        elif calls and pickle.error is None:
            yield Named(_title(pickle.root), False, "a request that is no PythonUDF")

    def _name(self, name: Global) -> Named:
        text = str(name)
        if is_internal(name.module, name.name) or name in JUDGED_BY_CALL:
            return Named(text, True, "")
        if self._allowed(name.module, name.name):
            return Named(text, True, "")
        if "." in name.name:
            return Named(text, False, f"an attribute chain{_hint(name.module, name.name)}")
        return Named(text, False, f"nobody allowed it{_hint(name.module, name.name)}")

    def _function(self, function: Value) -> Iterator[Named]:
        """What the request itself runs: plain data is not enough for that."""
        if type(function) is Global:
            if not is_function(function.module, function.name) and not self._allowed(
                function.module, function.name
            ):
                yield Named(str(function), False, f"nobody allowed it{_hint(function.module, function.name)}")
        elif type(function) is Call and function.function == PARTIAL and type(function.args) is tuple:
            yield from self._function(function.args[0] if function.args else None)
        elif type(function) is Call and function.function in GETATTR:
            return  # judged with all calls
        elif type(function) is not Call or not self._users(function.function):
            yield Named(_title(function), False, "what only loading makes known would be called")

    def _call(self, made: Call, *, called: bool) -> Iterator[Named]:
        """What a call that loading makes comes to, beyond the names in it."""
        function, reason = made.function, ""
        if made.how == "stack_global":
            yield Named("STACK_GLOBAL", False, "a name that the pickle makes up while it is loaded")
            return
        if made.how == "change":
            yield Named(_title(function), False, "what the pickle did not make itself would be changed")
            return
        if type(function) is not Global:
            if semantic.receiver(function) not in semantic.RECEIVERS:
                yield Named(_title(function), False, "what only loading makes known would be called")
            return
        if function in GETATTR:
            yield from self._attribute(made, called=called)
            return
        first = made.args[0] if type(made.args) is tuple and made.args else None
        if function in CALLS_FIRST:
            reason = "" if self._names_data(first) else f"it would call {_title(first)}"
        elif function in RECONSTRUCTORS:
            base = made.args[1] if type(made.args) is tuple and len(made.args) == 3 else None
            reason = "" if self._names_data(base) else f"it would call {_title(base)}"
        elif function == ENCODE:
            plain = type(made.args) is tuple and made.args[1:] == ("latin1",)
            reason = "" if plain else "it would import a codec"
        elif is_plain(function) and made.items and function.name not in COLLECTORS:
            reason = "adding items to it would call a method"
        if reason:
            yield Named(str(function), False, reason)

    def _attribute(self, made: Call, *, called: bool) -> Iterator[Named]:
        """`getattr`: rpc's own receivers, and a method of the user's class as the function of the call."""
        receiver = semantic.receiver(made)
        if receiver == "_script_module_receiver":
            if not self._allowed("torch.jit", "load"):
                yield Named("torch.jit.load", False, f"a TorchScript archive{_hint('torch.jit', 'load')}")
            else:
                yield Named("torch.jit.load", True, "")
            return
        if receiver is not None:
            return
        target, name = made.args if type(made.args) is tuple and len(made.args) == 2 else (None, None)
        owner = target if type(target) is Global else target.function if type(target) is Call else None
        if type(owner) is not Global or type(name) is not str or not called:
            yield Named("builtins.getattr", False, "an attribute chain")
            return
        chain = f"{owner.name}.{name}"
        known = self._allowed(owner.module, chain)
        wide = self._allowed(owner.module, owner.name) and "." not in owner.name and not name.startswith("_")
        if known or (wide and "." not in name):
            yield Named(f"{owner.module}.{chain}", True, "")
        else:
            hint = _hint(owner.module, chain)
            yield Named(f"{owner.module}.{chain}", False, f"a method of what nobody allowed{hint}")

    def _names_data(self, node: Value) -> bool:
        return type(node) is Global and (is_plain(node) or self._users(node))

    def _users(self, node: Value) -> bool:
        return type(node) is Global and self._allowed(node.module, node.name)


def global_uses(named: Mapping[str, Mapping[int, Named]]) -> tuple[GlobalUse, ...]:
    """Name → message → what was said of it there, as one line for each name, refused ones first."""
    found = []
    for name, messages in named.items():
        bad = next((one for _, one in sorted(messages.items()) if not one.allowed), None)
        reason = "" if bad is None else bad.reason
        found.append(GlobalUse(name, bad is None, tuple(sorted(messages)), reason))
    return tuple(sorted(found, key=lambda use: (use.allowed, use.name)))


def _passed_on(pickle: PythonPickle) -> Iterator[Named]:
    """Names that are harmless only because their calls are judged, where they are a value instead: whoever
    gets them may call them.
    """
    values = [pickle.root]
    for made in pickle.calls:
        values += [node for node in children(made) if node is not made.function]
    for value in values:
        for node in _walk(value, functions=False):
            if type(node) is Global and node in JUDGED_BY_CALL:
                yield Named(str(node), False, "it would be passed on to be called")


def _walk(value: Value, *, functions: bool = True) -> Iterator[Value]:
    """Every node below a value. `functions`: also the functions of calls."""
    seen: set[int] = set()
    stack = [value]
    while stack and len(seen) < MAX_NODES:
        node = stack.pop()
        if isinstance(node, (str, bytes, int, float, bool)) or node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        skipped = node.function if type(node) is Call and not functions else None
        stack.extend(child for child in children(node) if child is not skipped or skipped is None)


def _hint(module: str, name: str) -> str:
    return f" (--allow {module}:{name})" if Allowance.parse(f"{module}:{name}") else ""


def _title(node: Value) -> str:
    if type(node) is Global:
        return str(node)
    if type(node) is Call and type(node.function) is Global:
        return f"{node.function}(…)"
    return f"a {type(node).__name__}"


GETATTR = (Global("builtins", "getattr"), Global("__builtin__", "getattr"))
ENCODE = Global("_codecs", "encode")
RECONSTRUCTORS = (Global("copyreg", "_reconstructor"), Global("copy_reg", "_reconstructor"))
PARTIAL = Global("functools", "partial")
CALLS_FIRST = (Global("torch._tensor", "_rebuild_from_type_v2"),)
"""They call their first argument."""
JUDGED_BY_CALL = (*GETATTR, ENCODE, *RECONSTRUCTORS, *CALLS_FIRST)
"""Harmless to import; what counts is what they are called with."""
