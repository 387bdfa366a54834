"""Which operators of aten a captured SCRIPT_CALL may run in a live worker, and with which arguments.

In: the schema text of the call, and its arguments as they are in the pickle. Out: a `Named`, with why.

torch looks up the operator by this text alone: it must be, byte for byte, what torch prints of one that it
has. So what stands before the parenthesis is what runs. Nothing there looks at the arguments: with too few of
them the operator reads below its stack, and a number that is no element type is an index into a table (both
were seen to end the live worker by signal 11). So `judge_operator` holds them against the schema.

`operator_table` lists what passes. Mirrors matchOperator in torch/csrc/distributed/rpc/script_call.cpp and
FunctionSchema in aten/src/ATen/core/function_schema_inl.h.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct

from rpcinspect.pickles.tree import Global, PickleCall, Value
from rpcinspect.pickles.verdicts import Named
from rpcinspect.replayer.planning.operator_table import PASSES, REFUSED

MAX_SCHEMA = 2000
"""Characters; the longest of torch 2.13 has 605. torch's own parser recurses with the depth of the text."""
MAX_SIZE = (1 << 31) - 1
"""Of a number that is a size, an index, a stride of a window. Within this, products of two of them can't
overflow; beyond it, kernels of torch were seen to step outside of their tensors (max_pool1d)."""


class Parameter(Struct, frozen=True):
    """An argument in the text of a schema."""

    kind: str
    """`Tensor`, `int[]?`, …"""
    name: str
    default: str | None = None
    keyword_only: bool = False


class Schema(Struct, frozen=True):
    """An operator's schema, parsed from its text."""

    name: str
    """`aten::add.Tensor`, with the overload where it has one."""
    parameters: tuple[Parameter, ...] | None
    """None: any number of arguments of any kind."""


def judge_operator(schema: str, args: tuple[Value, ...]) -> Named:
    """Judges a call by its name, `aten::add.Tensor`, and its arguments. `allow` of a refusal is empty where
    torch would refuse the call too, or misread its arguments: no option lets that run."""
    read = read_schema(schema)
    if read is None:
        return Named(schema[:40], False, "not the schema of an operator", dangerous=True)
    if not read.name.startswith(ATEN):
        return Named(read.name, False, "an operator outside of aten", dangerous=True)
    group = _GROUP.get(read.name)
    fault = _fault(read, args, listed=group is not None)
    if fault:
        return Named(read.name, False, fault, dangerous=True)
    if group is not None and group not in FREE and _is_vast(read, args):
        reason = "a size or an index beyond 32 bits, with which sizes overflow"
        return Named(read.name, False, reason, read.name, dangerous=True)
    if group is not None:
        return Named(read.name, True)
    return Named(read.name, False, why_refused(read.name), read.name, dangerous=True)


def why_refused(name: str) -> str:
    """Why an operator of aten that is not in the table needs `--allow`."""
    base, _, overload = name.removeprefix(ATEN).partition(".")
    for reason, names in _REFUSED.items():
        if base in names or f"{base}.{overload}" in names:
            return reason
    if "backward" in base:
        return "a step of a backward pass, which trusts what its forward pass saved"
    if base.startswith("_"):
        return "internal to torch, where the caller has checked what it is given"
    if base.endswith("_") or overload.endswith("out"):
        return "an operator that writes into its arguments"
    return "not one of the operators that are known only to compute"


@lru_cache(maxsize=256)
def read_schema(text: str) -> Schema | None:
    """The name and the kinds of the arguments; None for what torch can't have printed."""
    head = _HEAD.match(text) if len(text) <= MAX_SCHEMA and text.isascii() and text.isprintable() else None
    if head is None:
        return None
    arguments: list[str] = []
    start, depth = head.end(), 0
    for token in _TOKEN.finditer(text, start):
        sign = token[0]
        if sign in (",", ")") and depth == 0:
            arguments.append(text[start : token.start()].strip(" "))
            start = token.end()
        if sign in ("(", "["):
            depth += 1
        elif sign in (")", "]"):
            depth -= 1
        if depth > MAX_DEPTH:
            return None
        if depth < 0:
            break
    if depth != -1 or not _RETURNS.fullmatch(text, start):
        return None
    if arguments == [""]:
        arguments = []
    if "..." in arguments:
        return Schema(head[1], None)
    parameters: list[Parameter] = []
    for place, argument in enumerate(arguments):
        named = _ARGUMENT.fullmatch(argument)
        if named is not None:
            kind = _ALIAS.sub("", named[1])
            parameters.append(Parameter(kind, named[2], named[3], "*" in arguments[:place]))
        elif argument != "*":
            return None
    return Schema(head[1], tuple(parameters))


def _fault(schema: Schema, args: tuple[Value, ...], *, listed: bool) -> str:
    """What is wrong with the arguments; empty if nothing is. Kinds that we do not know are looked over where
    the operator is not one of the table."""
    if schema.parameters is None:
        return "an operator of any number of arguments, which trusts one of them to say how many"
    if len(args) != len(schema.parameters):
        return f"{len(args)} arguments for an operator of {len(schema.parameters)}"
    for number, (one, value) in enumerate(zip(schema.parameters, args, strict=True), 1):
        if not fits(one.kind, value) and (listed or is_known(one.kind)):
            return f"argument {number} is not a {one.kind}"
    return ""


def _is_vast(schema: Schema, args: tuple[Value, ...]) -> bool:
    """Whether a number that is no value of an element is larger than torch can always reckon with."""
    numbers: list[Value] = []
    for one, value in zip(schema.parameters or (), args, strict=True):
        if _SUFFIX.sub("", one.kind) in ("int", "SymInt"):
            numbers += value.args[0] if type(value) is PickleCall else [value]
    return any(abs(number) > MAX_SIZE for number in numbers if number is not None)


def is_known(kind: str) -> bool:
    """Returns whether `fits` knows the possible arguments of this kind."""
    return _SUFFIX.sub("", kind) in KINDS


def fits(kind: str, value: Value) -> bool:
    """Whether a value is an argument of this kind, as torch writes those."""
    if kind.endswith("?"):
        return value is None or fits(kind[:-1], value)
    listed = _LIST.fullmatch(kind)
    if listed is None:
        return kind in KINDS and KINDS[kind](value)
    kind = listed[1]
    maker = _MAKERS.get(kind)
    args = _arguments(value, Global(_PICKLE, maker or "restore_type_tag"))
    if args is None or len(args) != (1 if maker else 2) or type(args[0]) is not list:
        return False
    return (maker is not None or type(args[1]) is str) and all(fits(kind, item) for item in args[0])


def _arguments(value: Value, function: Global) -> tuple[Value, ...] | None:
    """Returns the arguments of a call of `function` that does nothing beside."""
    if type(value) is not PickleCall or value.function != function or type(value.args) is not tuple:
        return None
    return value.args if value.how == "reduce" and not value.is_changed else None


def _is_tensor(value: Value) -> bool:
    args = _arguments(value, Global(_PICKLE, "build_tensor_from_id"))
    return args is not None and len(args) == 1 and _is_int(args[0])


def _is_int(value: Value) -> bool:
    return type(value) is int and -1 << 63 <= value < 1 << 63


def _is_complex(value: Value) -> bool:
    args = _arguments(value, Global("builtins", "complex"))
    return args is not None and [type(part) for part in args] == [float, float]


def _is_scalar(value: Value) -> bool:
    return _is_int(value) or type(value) in (float, bool) or _is_complex(value)


def _is_device(value: Value) -> bool:
    args = _arguments(value, Global("torch", "device"))
    text = args[0] if args is not None and len(args) == 1 else None
    return type(text) is str and DEVICE.fullmatch(text) is not None


def of_type(*types: type) -> Callable[[Value], bool]:
    """Returns a test for values of exactly these types."""
    return lambda value: type(value) in types


def _below(end: int) -> Callable[[Value], bool]:
    """Returns a test for numbers of a C++ enum, which torch converts unchecked."""
    return lambda value: type(value) is int and 0 <= value < end


KINDS: dict[str, Callable[[Value], bool]] = {
    "Tensor": _is_tensor,
    "int": _is_int,
    "SymInt": _is_int,
    "float": of_type(float),
    "complex": _is_complex,
    "bool": of_type(bool),
    "str": of_type(str),
    "Scalar": _is_scalar,
    "ScalarType": _below(46),
    "Layout": _below(3),
    "MemoryFormat": _below(4),
    "Device": _is_device,
    "Generator": of_type(),
}
"""What may be an argument of an operator of the table: by kind. Element types are those of 2.13; with others
an operator was seen to divide by their size, 0. Layouts are strided, COO and CSR; behind them is that of
oneDNN, in which creation was seen to write outside of its block. A generator can't be sent; None can, as
`Generator?`."""

ATEN = "aten::"
FREE = frozenset({"distributed autograd, read"})
"""Groups whose numbers are ids."""
_PICKLE = "torch.jit._pickle"
MAX_DEPTH = 4
_HEAD = re.compile(r"([a-z_]\w*::[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)\(", re.ASCII)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][(),]')
_ARGUMENT = re.compile(r'([^"=]+) ([A-Za-z_]\w*)(?:=("(?:[^"\\]|\\.)*"|[^"]+))?', re.ASCII)
_ALIAS = re.compile(r"(?<=[\w\]])\([a-z|]+!?(?: -> [a-z*|]+)?\)")
"""`(a!)` of `Tensor(a!)[]`: what it shares memory with."""
_RETURNS = re.compile(r" -> [\w.|, ()\[\]!?*>-]+", re.ASCII)
_LIST = re.compile(r"(.+)\[\d*\]")
_SUFFIX = re.compile(r"(\?|\[\d*\])+$")
_MAKERS = {
    "Tensor": "build_tensorlist",
    "int": "build_intlist",
    "SymInt": "build_intlist",
    "float": "build_doublelist",
    "bool": "build_boollist",
}
"""What makes a list of this kind; a list of any other has its type beside it, as text."""
DEVICE = re.compile(r"cpu|cuda(:\d{1,2})?", re.ASCII)
"""What workers have, as torch writes it."""
_GROUP = {ATEN + name: group for group, names in PASSES.items() for name in names.split()}
_REFUSED = {reason: frozenset(names.split()) for reason, names in REFUSED.items()}
