"""What loading a pickle would import and call beyond plain data: the material of the finding `unsafe-pickle`.

A list of bad names is never complete, so what is *not* reported is listed instead, by exact name, in
`safety_names`. Everything else is reported: as an error where loading itself would do something with it, as a
warning where it is only named. The one list of bad names, `DANGEROUS`, only turns warnings into errors.

* error: a call (REDUCE, INST, OBJ) of anything not listed, so of a user's Enum or exception class too; a name
  from `DANGEROUS`; `getattr` other than for rpc's receivers of tensors and RRefs; a name through a dunder; a
  change to an imported object; a name to import that is only made up at run time; a copyreg extension; a
  frame that ends inside an opcode.
* warning: any other name. An object of a class that is not listed is in here (NEWOBJ runs its `__new__` and
  perhaps its `__setstate__`, as with every object of user code), and so are a function that is passed as an
  argument and a bound method of an object in the pickle. Calling such a method while loading is an error.
* nothing: the function of the call itself, also as a method of an object in the call; plain data; torch's own
  reconstructors, but not those that load an archive; the class of one of torch's optimizers, only named.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from rpcinspect.rpc.pickles import semantic
from rpcinspect.rpc.pickles.python import CROSSED_FRAME, PythonPickle
from rpcinspect.rpc.pickles.safety_names import COLLECTORS, DANGEROUS, OPTIMIZERS, PLAIN
from rpcinspect.rpc.pickles.tree import Call, Global, Value

Severity = Literal["error", "warning"]


class Suspicion(Struct, frozen=True):
    severity: Severity
    name: str
    """What would be imported or called, `module.name`; as captured, so escape it before showing it."""
    reason: str


def audit(pickle: PythonPickle) -> list[Suspicion]:
    """Suspicions, errors first and else in order of appearance, one for each name and reason.

    Works on partial readings too: what stands before a fault has been run by the time that loading fails.
    """
    udf = semantic.python_udf(pickle.root)
    own = udf.func if udf is not None else None
    named = _own_name(own)
    found: dict[tuple[str, str], Suspicion] = {}
    if pickle.error is not None and pickle.error.reason == CROSSED_FRAME:
        _add(found, "error", "FRAME", "ends inside an opcode, after which loaders differ in what they run")
    for code in pickle.extensions:
        _add(found, "error", f"copyreg extension {code}", "imports what a table of the receiver says")
    for name in pickle.globals:
        verdict = _judge_name(name) if name not in (own, named) else None
        if verdict is not None:
            _add(found, verdict[0], str(name), verdict[1])
    for made in pickle.calls:
        if made is not own or not (_is_method(made) or named is not None):
            _judge_call(found, made)
    errors = [s for s in found.values() if s.severity == "error"]
    told = {s.name for s in errors}
    return errors + [s for s in found.values() if s.severity == "warning" and s.name not in told]


def is_plain(name: Global) -> bool:
    """Whether importing and calling this name is known to make plain data only."""
    return name.name in PLAIN.get(name.module, ())


def is_optimizer(name: Global) -> bool:
    """Whether this is a class of torch's optimizers, which may be named but not made by a pickle."""
    return name.name in OPTIMIZERS.get(name.module, ())


def _own_name(own: Value) -> Global | None:
    """The class in `getattr(class, name)`: so is a class method pickled that is the function of a call."""
    if type(own) is not Call or own.function not in _GETATTR or type(own.args) is not tuple:
        return None
    if len(own.args) != 2 or type(own.args[0]) is not Global or type(own.args[1]) is not str:
        return None
    verdict = _judge_name(own.args[0])
    if own.args[1].startswith("__") or (verdict is not None and verdict[0] == "error"):
        return None
    return own.args[0]


def _judge_name(name: Global) -> tuple[Severity, str] | None:
    """Severity and reason of naming something, None for nothing to tell."""
    if is_plain(name) or name in _JUDGED_BY_CALL or is_optimizer(name):
        return None
    parts = name.name.split(".")
    if any(part.startswith("__") and part.endswith("__") for part in parts):
        return "error", "an attribute chain through a dunder"
    if _dangerous(name, parts):
        return "error", "a process, file, code, import or loader function"
    return "warning", "neither plain data nor one of torch's own"


def _judge_call(found: _Found, made: Call) -> None:
    function = made.function
    if made.how == "stack_global":
        _add(found, "error", "STACK_GLOBAL", "imports a name that is made up at run time")
    elif made.how == "change":
        _add(found, "error", _title(function), "changes what the pickle did not make, or had made already")
    elif type(function) is not Global:
        if semantic.receiver(function) not in _RECEIVERS and not _script_receiver(function):
            _add(found, "error", _title(function), "calls what only loading makes known")
    elif function in _GETATTR:
        if _script_receiver(made):
            _add(found, "error", f"{made.args[0]}.{made.args[1]}", "loads a TorchScript archive")
        elif _is_method(made):
            title = f"{_title(made.args[0])}.{made.args[1]}"
            _add(found, "warning", title, "a method of an object in the pickle")
        elif semantic.receiver(made) not in _RECEIVERS:
            _add(found, "error", str(function), "an attribute chain by getattr")
    elif function in _CALLS_FIRST:
        inner = made.args[0] if type(made.args) is tuple and made.args else None
        if type(inner) is not Global or not is_plain(inner):
            _add(found, "error", str(function), f"calls {_title(inner)}")
    elif function == _ENCODE:
        if type(made.args) is not tuple or made.args[1:] != ("latin1",):
            _add(found, "error", str(function), "imports a codec")
    elif function == _RECONSTRUCTOR:
        base = made.args[1] if type(made.args) is tuple and len(made.args) == 3 else None
        if type(base) is not Global or not is_plain(base):
            _add(found, "error", str(function), f"calls {_title(base)}")
    elif is_plain(function):
        if made.items and function.name not in COLLECTORS:
            _add(found, "error", str(function), "calls a method by adding items")
    elif made.how not in ("newobj", "newobj_ex"):
        _add(found, "error", str(function), "calls what is neither plain data nor one of torch's own")
    elif is_optimizer(function):
        _add(found, "warning", str(function), "an object of it is in the pickle")


def _is_method(node: Call) -> bool:
    """`getattr(object, name)` where the object is one that the pickle makes: so are bound methods pickled."""
    if node.function not in _GETATTR or type(node.args) is not tuple or len(node.args) != 2:
        return False
    target, name = node.args
    if type(target) is not Call or type(target.function) is not Global or type(name) is not str:
        return False
    return (target.how == "newobj" or is_plain(target.function)) and not name.startswith("_")


def _script_receiver(node: Value) -> bool:
    return semantic.receiver(node) == "_script_module_receiver"


def _dangerous(name: Global, parts: list[str]) -> bool:
    """Whether the name or a module around it is in DANGEROUS, or a dotted name runs through such a module."""
    words = str(name).split(".")
    prefixes = {".".join(words[:n]) for n in range(1, min(len(words), 8) + 1)}
    return not DANGEROUS.isdisjoint(prefixes) or not DANGEROUS.isdisjoint(parts[:-1])


def _title(node: Value) -> str:
    if type(node) is Global:
        return str(node)
    if type(node) is Call and type(node.function) is Global:
        return f"{node.function}(…)"
    return f"a {type(node).__name__}"


def _add(found: _Found, severity: Severity, name: str, reason: str) -> None:
    found.setdefault((name, reason), Suspicion(severity, name, reason))


_Found: TypeAlias = "dict[tuple[str, str], Suspicion]"

_GETATTR = (Global("builtins", "getattr"), Global("__builtin__", "getattr"))
_RECEIVERS = ("_tensor_receiver", "_py_rref_receiver")
_ENCODE = Global("_codecs", "encode")
_RECONSTRUCTOR = Global("copyreg", "_reconstructor")
_CALLS_FIRST = (Global("torch._tensor", "_rebuild_from_type_v2"),)
"""They call their first argument."""
_JUDGED_BY_CALL = (*_GETATTR, _ENCODE, _RECONSTRUCTOR, *_CALLS_FIRST)
"""Harmless to name; what counts is what they are called with."""
