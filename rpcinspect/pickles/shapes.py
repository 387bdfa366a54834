"""What a type's own pickling writes, and nothing else: the rule for each call that loading a pickle may make.

In: a `PickleCall` of the inert tree whose function is a key of `RULES`. Out: what is wrong with its
arguments, state, items or pairs as a text, "" where they are what CPython 3.10–3.14, numpy 1.24–2.x and torch
2.2–2.15 write. Only forms are checked here; values inside are judged by `judge`, which walks them, but for
the arguments that a rule says to have judged itself (`settled`).

A rule must hold whatever else the pickle does later: lists may grow after a call that was given them. Longer
than other modules, by the table of rules at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from rpcinspect.pickles import numpy_nodes, semantic
from rpcinspect.pickles.numpy_nodes import ARGS, bytes_of, ints, is_raw, latin1
from rpcinspect.pickles.safe_names import EXCEPTIONS, GENERATED, VALUES, is_special
from rpcinspect.pickles.semantic import GETATTR, PICKLER, is_fork
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Set, Value

ShapeCheck = Callable[[PickleCall], str]
STATE = "a state that its own pickling never writes"


class Rule(Struct, frozen=True):
    """What one callable may be called with while a pickle is loaded."""

    args: ShapeCheck
    """What is wrong with the arguments."""
    how: tuple[str, ...] = ("reduce",)
    """The opcodes by which its own pickling calls it; INST and OBJ are those of Python 2."""
    state: ShapeCheck | None = None
    """What is wrong with a state; None: it never has one."""
    needs_state: bool = False
    items: bool = False
    """Whether APPENDS or ADDITEMS may follow."""
    pairs: bool = False
    """Whether SETITEMS may follow."""
    settled: frozenset[int] = frozenset()
    """The arguments that the rule has judged whole: names in them are no values."""

    def wrong(self, call: PickleCall) -> str:
        """What is not as the type's own pickling writes it."""
        if call.how not in self.how or call.kwargs is not None:
            return "not called as its own pickling calls it"
        reason = self.args(call)
        if reason:
            return reason
        if call.has_state:
            return STATE if self.state is None else self.state(call)
        if self.needs_state:
            return "without the state that makes it whole"
        if call.items and not self.items:
            return "adding items to it would call a method"
        if call.pairs and not self.pairs:
            return "setting items of it would call a method"
        return ""


# --- forms of single values ---------------------------------------------------------------------------------

_ONE = Callable[[Value], bool]
MAX_BITS = 16_384
"""Of integers: 4,300 digits are the most that CPython reads."""


def _is(*types: type) -> _ONE:
    return lambda value: type(value) in types and (type(value) is not int or value.bit_length() <= MAX_BITS)


def _any(value: Value) -> bool:
    return True


def _sequence(value: Value) -> bool:
    """Written out, so that nothing but the sequence itself is asked for its items."""
    return type(value) in (tuple, list) or (type(value) is Set)


def _empty_ordered_dict(value: Value) -> bool:
    return (
        type(value) is PickleCall
        and value.function == Global("collections", "OrderedDict")
        and value.args == ()
        and not value.is_changed
    )


def _tagged(value: Value) -> bool:
    """Attributes of a Parameter, which are set by name: none that torch gives a meaning."""
    return attributes(value) and not (
        type(value) is Dict and any(key.startswith("_") or key in _OF_TENSORS for key, _ in value.pairs)
    )


_OF_TENSORS = frozenset(
    {"data", "grad", "grad_dtype", "imag", "names", "real", "requires_grad", "retain_grad"}
)


def _tensor(value: Value) -> bool:
    index = semantic.tensor_index(value)
    return index is not None and index >= 0


def _args(*forms: tuple[_ONE, ...]) -> ShapeCheck:
    """Checks that arguments are of one of these forms."""

    def check(call: PickleCall) -> str:
        args = call.args
        for form in forms:
            if len(args) == len(form) and all(one(arg) for one, arg in zip(form, args, strict=True)):
                return ""
        return ARGS

    return check


def _all(one: _ONE) -> ShapeCheck:
    def check(call: PickleCall) -> str:
        return "" if all(map(one, call.args)) else ARGS

    return check


# --- states -------------------------------------------------------------------------------------------------


def attributes(value: Value) -> bool:
    """Whether a state sets attributes by plain names: none that Python itself looks up."""
    if value is None:
        return True
    return type(value) is Dict and all(type(key) is str and not is_special(key) for key, _ in value.pairs)


def _attributes(call: PickleCall) -> str:
    return "" if attributes(call.state) else "a state that sets other things than attributes"


def _fields(**fields: _ONE) -> ShapeCheck:
    """Checks that a state is a dict with these keys at most."""

    def check(call: PickleCall) -> str:
        if type(call.state) is Dict and all(
            type(key) is str and key in fields and fields[key](value) for key, value in call.state.pairs
        ):
            return ""
        return STATE

    return check


def _exception_state(call: PickleCall) -> str:
    """Checks for plain attributes; in some exceptions C trusts certain ones when it makes the text."""
    pairs = call.state.pairs if type(call.state) is Dict else None
    if pairs is None:
        return STATE
    for key, value in pairs:
        notes = key == "__notes__" and type(value) is list and all(type(note) is str for note in value)
        if type(key) is not str or key in _MEMBERS or (is_special(key) and not notes):
            return "a state that sets other things than attributes"
    return ""


_MEMBERS = frozenset(
    {"args", "filename", "filename2", "errno", "strerror", "winerror", "characters_written"}
    | {"start", "end", "object", "reason", "encoding"}
    | {"lineno", "offset", "text", "print_file_and_line", "end_lineno", "end_offset"}
)
"""Members of BaseException, OSError, UnicodeError and SyntaxError."""


def _unicode_error(raw: type) -> ShapeCheck:
    """(encoding, object, start, end, reason); start and end are taken on trust when the text is made."""

    def check(call: PickleCall) -> str:
        args = call.args
        if len(args) == 5 and [type(args[0]), type(args[4])] == [str, str]:
            text: Value = bytes_of(args[1]) if raw is bytes else args[1]
            if (
                isinstance(text, (bytes, str))
                and type(text) is raw
                and type(args[2]) is int
                and type(args[3]) is int
            ):
                return "" if 0 <= args[2] < args[3] <= len(text) else "places outside of its text"
        return ARGS

    return check


def _bindable(value: Value) -> bool:
    """What `functools.partial` may call: somebody's own function or class by its name, a method, a number's
    type.
    """
    if type(value) is PickleCall:
        return type(value.function) is Global and value.function == GETATTR
    return type(value) is Global and (value in _NUMBERS or value not in VALUES)


_NUMBERS = frozenset(Global("builtins", name) for name in ("bool", "float", "int"))


def _partial_state(call: PickleCall) -> str:
    state = call.state
    if (
        type(state) is tuple
        and len(state) == 4
        and (state[0] is call.args[0] or state[0] == call.args[0])  # it is this one that would be called
        and type(state[1]) is tuple
        and (state[2] is None or (type(state[2]) is Dict and all(type(k) is str for k, _ in state[2].pairs)))
        and attributes(state[3])
    ):
        return ""
    return STATE


# --- standard library ---------------------------------------------------------------------------------------


def _date(size: int) -> _ONE:
    """The packed bytes of a date, or of a date with a time, with fields in their ranges."""

    def check(value: Value) -> bool:
        raw = bytes_of(value)
        if raw is None or len(raw) != size:
            return False
        year, month, day = raw[0] << 8 | raw[1], raw[2] & 0x7F, raw[3]
        real = 1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31
        return real and (size == 4 or _clock(raw[4:]))

    return check


def _clock(value: Value) -> bool:
    """The packed bytes of a time."""
    raw = bytes_of(value)
    if raw is None or len(raw) != 6:
        return False
    micros = raw[3] << 16 | raw[4] << 8 | raw[5]
    return raw[0] & 0x7F < 24 and raw[1] < 60 and raw[2] < 60 and micros < 1_000_000


def _decimal(value: Value) -> bool:
    return type(value) is str and len(value) <= 10_000


def _ratio(value: Value) -> bool:
    """Whether a text is a ratio without an exponent, which `Fraction` would write out."""
    return type(value) is str and re.fullmatch(r"-?\d{1,4300}(/\d{1,4300})?", value, re.ASCII) is not None


def _singleton(value: Value) -> bool:
    return value is None or value in (Global("builtins", "NotImplemented"), Global("builtins", "Ellipsis"))


def _reconstructor(call: PickleCall) -> str:
    """`copyreg._reconstructor(cls, base, state)` of protocols 0 and 1: `base.__new__(cls, state)`."""
    if len(call.args) != 3 or type(call.args[0]) is not Global:
        return ARGS
    base, state = call.args[1:]
    kinds = _BASES.get(base) if type(base) is Global else None
    if kinds is None or type(state) not in kinds:
        return "with a base that its own pickling never writes"
    return ""


_BASES: dict[Global, tuple[type, ...]] = {
    Global("builtins", "object"): (type(None),),
    Global("builtins", "int"): (int,),
    Global("builtins", "float"): (float,),
    Global("builtins", "str"): (str,),
    Global("builtins", "bytes"): (bytes,),
    Global("builtins", "list"): (list,),
    Global("builtins", "tuple"): (tuple,),
    Global("builtins", "dict"): (Dict,),
    Global("builtins", "set"): (list, Set),
}


# --- torch --------------------------------------------------------------------------------------------------


def _subclass(call: PickleCall) -> str:
    """`_rebuild_from_type_v2(function, type, args, state)` of a subclass of Tensor: it calls the first
    argument. The storage inside comes by a loader of its own, which somebody must have allowed.
    """
    args = call.args
    if len(args) == 4 and args[0] == REBUILD and type(args[1]) is Global and type(args[2]) is tuple:
        storage = args[2][0] if args[2] else None
        if type(storage) is PickleCall and storage.function == STORAGE and attributes(args[3]):
            return ""
    return f"it would call {args[0] if args and type(args[0]) is Global else 'its first argument'}"


REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
STORAGE = Global("torch.storage", "_load_from_bytes")


def _remote_module(call: PickleCall) -> str:
    """on, device, is_device_map_set, is_scriptable, generated_methods, module_rref: as
    `_remote_module_reducer`.
    """
    args = call.args
    if len(args) == 6 and [type(arg) for arg in args[:4]] == [str, str, bool, bool]:
        methods, rref = args[4:]
        fork = PickleCall(PickleCall(GETATTR, (PICKLER, "_py_rref_receiver")), (rref,))
        generated = type(methods) in (list, tuple) and all(type(one) is Global for one in methods)
        if generated and GENERATED.issuperset(methods) and is_fork(fork):
            return ""
    return ARGS


def _worker_state(call: PickleCall) -> str:
    return "" if semantic.worker_info(call) is not None else "a state forged for it"


_NUMBER = _is(int, float, bool)
_NO_ARGS = _args(())
_ONE_INT, _ONE_TEXT = _args((_is(int),)), _args((_is(str),))
_NEWOBJ = ("newobj",)
_EXCEPTION = Rule(_all(_any), state=_exception_state)
_GROUP = Rule(_args((_is(str), _is(list, tuple))), state=_exception_state)
_DATA = _fields(data=_is(Dict, list))
_UUID = _fields(int=_is(int), is_safe=_is(int, type(None)))
_RECONSTRUCTED = Rule(
    numpy_nodes.reconstruct_args, state=numpy_nodes.array_state, needs_state=True, settled=frozenset({0})
)

_BY_MODULE: dict[str, dict[str, Rule]] = {
    "builtins": {
        "UnicodeDecodeError": Rule(_unicode_error(bytes), state=_exception_state),
        "UnicodeEncodeError": Rule(_unicode_error(str), state=_exception_state),
        "BaseExceptionGroup ExceptionGroup": _GROUP,
        "object": Rule(_NO_ARGS, _NEWOBJ),
        "type": Rule(_args((_singleton,)), settled=frozenset({0})),
        "complex": Rule(_args((_NUMBER, _NUMBER)), ("reduce", "newobj")),
        "bytearray": Rule(_args((), (is_raw,), (_is(str), latin1)), items=True),
        "bytes": Rule(_NO_ARGS),
        "set frozenset list tuple": Rule(_args((), (_sequence,)), items=True),
        "slice": Rule(_args((_any, _any, _any))),
        "range": Rule(_args((_is(int), _is(int), _is(int)))),
    },
    "_codecs": {"encode": Rule(_args((_is(str), latin1)))},
    "copyreg": {
        "_reconstructor": Rule(
            _reconstructor, state=_attributes, items=True, pairs=True, settled=frozenset({0, 1})
        )
    },
    "collections": {
        "OrderedDict": Rule(_NO_ARGS, state=_attributes, pairs=True),
        "defaultdict": Rule(_args((), (_any,)), state=_attributes, pairs=True),
        "deque": Rule(
            _args((), (_sequence,), (_sequence, _is(int, type(None)))), state=_attributes, items=True
        ),
        "Counter": Rule(_args((), (_is(Dict),)), state=_attributes),
        "ChainMap": Rule(_NO_ARGS, _NEWOBJ, state=_fields(maps=_is(list))),
        "UserDict UserList": Rule(_NO_ARGS, _NEWOBJ, state=_DATA),
        "UserString": Rule(_args((), (_is(str),)), _NEWOBJ, state=_fields(data=_is(str))),
    },
    "datetime": {
        "date": Rule(_args((_date(4),))),
        "datetime": Rule(_args((_date(10),), (_date(10), _any))),
        "time": Rule(_args((_clock,), (_clock, _any))),
        "timedelta": Rule(_args((_is(int), _is(int), _is(int)))),
        "timezone": Rule(_args((_is(PickleCall),), (_is(PickleCall), _is(str)))),
    },
    "decimal": {"Decimal": Rule(_args((_decimal,)))},
    "fractions": {"Fraction": Rule(_args((_ratio,), (_is(int), _is(int))))},
    "logging": {"getLogger": Rule(_args((_is(str),), ()))},
    "functools": {"partial": Rule(_args((_bindable,)), state=_partial_state, needs_state=True)},
    "ipaddress": {
        "IPv4Address IPv6Address": Rule(_args((_is(int, str),))),
        "IPv4Network IPv6Network": Rule(_ONE_TEXT),
    },
    "pathlib pathlib._local": {
        "PurePath PurePosixPath PureWindowsPath Path PosixPath WindowsPath": Rule(_all(_is(str)))
    },
    "types": {"SimpleNamespace": Rule(_NO_ARGS, state=_attributes)},
    "argparse": {"Namespace": Rule(_NO_ARGS, _NEWOBJ, state=_attributes)},
    "uuid": {
        "UUID": Rule(_NO_ARGS, _NEWOBJ, state=_UUID, needs_state=True),
        "SafeUUID": Rule(_args((_is(int, type(None)),))),
    },
    "http": {"HTTPStatus": Rule(_ONE_INT)},
    "signal": {"Signals": Rule(_ONE_INT)},
    "socket": {"AddressFamily SocketKind": Rule(_ONE_INT)},
    "numpy": {"dtype": Rule(numpy_nodes.dtype_args, state=numpy_nodes.dtype_state)},
    "numpy.core.multiarray numpy._core.multiarray": {
        "_reconstruct": _RECONSTRUCTED,
        "scalar": Rule(numpy_nodes.scalar_args),
    },
    "numpy.core.numeric numpy._core.numeric": {"_frombuffer": Rule(numpy_nodes.frombuffer_args)},
    "torch": {"device": Rule(_args((_is(str),), (_is(str), _is(int)))), "Size": Rule(_args((ints,)))},
    "torch.serialization": {"_get_layout": Rule(_ONE_TEXT)},
    "torch._utils": {
        "_rebuild_parameter": Rule(_args((_tensor, _is(bool), _empty_ordered_dict))),
        "_rebuild_parameter_with_state": Rule(_args((_tensor, _is(bool), _empty_ordered_dict, _tagged))),
    },
    "torch._tensor": {"_rebuild_from_type_v2": Rule(_subclass, settled=frozenset({0}))},
    "torch.distributed.rpc.internal": {
        "PythonUDF": Rule(_args((_any, _sequence, _is(Dict))), _NEWOBJ),
        "RemoteException": Rule(_args((_is(str), _any)), _NEWOBJ),
    },
    "torch._C._distributed_rpc": {
        "WorkerInfo": Rule(_NO_ARGS, _NEWOBJ, state=_worker_state, needs_state=True)
    },
    "torch.distributed.nn.api.remote_module": {
        "_remote_module_receiver": Rule(_remote_module, settled=frozenset({4}))
    },
}
_NO_PLAIN_EXCEPTIONS = frozenset(
    {Global("json.decoder", "JSONDecodeError"), Global("builtins", "UnicodeTranslateError")}
)
"""The first's `__init__` calls methods of what it is given; the second takes places in a text on trust."""

RULES: dict[Global, Rule] = dict.fromkeys(EXCEPTIONS - _NO_PLAIN_EXCEPTIONS, _EXCEPTION) | {
    Global(module, name): rule
    for modules, rules in _BY_MODULE.items()
    for module in modules.split()
    for names, rule in rules.items()
    for name in names.split()
}
"""By what a pickle names. `getattr` and rpc's receivers have rules of their own in `judge`."""
