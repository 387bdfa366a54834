"""The C++ Pickler's dialect of pickle: bytes of a JIT pickle -> the inert tree of `tree`.

Mirrors torch/csrc/jit/serialization/unpickler.cpp. Envelopes, argument lists, RRef ids and tensor lists
travel in this dialect: protocol 2 and a small set of opcodes. Its BINUNICODE carries any C++ string, a whole
Python pickle for instance, so Python's own readers refuse it. Strings that are not UTF-8 stay `bytes` here.

May assume nothing about its bytes. Raises DecodeError and LimitExceeded (layer "pickle") only.
"""

from __future__ import annotations

import struct
from itertools import repeat

from msgspec import Struct

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles import opcodes as ops
from rpcinspect.pickles.tree import Dict, Global, PersistentRef, PickleCall, Value


class Forms(Struct, frozen=True):
    """Encoding of a value and of its parts; never the value itself.

    What follows from the value alone (width of an integer, repeated strings and globals, memo numbers) is not
    in here, so a changed value is written as upstream would write it.
    """

    op: int = 0
    """The opcode that made the value, where the value leaves a choice; GET: a reference to an earlier one;
    0: the writer's default."""
    put: bool = False
    """The value was memoised once written; upstream does so for values with more than one owner."""
    parts: tuple[Forms | None, ...] = ()
    """Of a tuple or list: its items; of a Dict: key, value, key, value…; of a PickleCall: function, args and,
    if it has one, state; of a PersistentRef: its id. None or absent: the writer's default."""


def read_jit(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Value:
    """The value of a JIT pickle, which must fill `data`. Raises DecodeError.

    One long loop on purpose, with numbers instead of names and in order of frequency: several such pickles
    come with every message, a call per opcode doubles their cost and named opcodes add a sixth.
    """
    if data[:2] != b"\x80\x02":
        raise DecodeError(
            "pickle", f"a JIT pickle starts with 80 02, not {data[:2].hex(' ') or 'nothing'}", 0
        )
    stack: list[Value] = []
    marks: list[int] = []
    memo: dict[int, Value] = {}
    push, pop, mark, unmark = stack.append, stack.pop, marks.append, marks.pop
    max_string = limits.pickle_string_bytes
    max_stack = limits.pickle_stack
    pos = 2
    try:
        for _ in repeat(None, limits.pickle_opcodes):
            op = data[pos]
            if op == 0x4B:  # BININT1
                push(data[pos + 1])
                pos += 2
            elif op == 0x71:  # BINPUT
                memo[data[pos + 1]] = stack[-1]
                pos += 2
            elif op == 0x28:  # MARK
                if len(stack) + len(marks) > max_stack:
                    raise LimitExceeded("pickle", "pickle_stack", max_stack, len(stack) + len(marks), pos)
                mark(len(stack))
                pos += 1
            elif op == 0x58:  # BINUNICODE
                start = pos + 5
                end = start + _U32(data, pos + 1)[0]
                if end - start > max_string:
                    raise LimitExceeded("pickle", "pickle_string_bytes", max_string, end - start, pos)
                raw = data[start:end]
                try:
                    push(raw.decode())
                except UnicodeDecodeError:
                    push(raw)
                pos = end
            elif op == 0x68:  # BINGET
                push(memo[data[pos + 1]])
                pos += 2
            elif op == 0x74:  # TUPLE
                start = unmark()
                items = stack[start:]
                del stack[start:]
                push(tuple(items))
                pos += 1
            elif op == 0x63:  # GLOBAL
                end = data.index(10, data.index(10, pos) + 1) + 1
                push(_GLOBALS.get(data[pos:end]) or _global(data[pos:end]))
                pos = end
            elif op == 0x52:  # REDUCE
                args = pop()
                push(PickleCall(pop(), args, None, "reduce", False, None, [], []))
                pos += 1
            elif op == 0x8A:  # LONG1
                end = pos + 2 + data[pos + 1]
                push(int.from_bytes(data[pos + 2 : end], "little", signed=True))
                pos = end
            elif op == 0x86:  # TUPLE2
                second = pop()
                push((pop(), second))
                pos += 1
            elif op == 0x4D:  # BININT2
                push(data[pos + 1] | data[pos + 2] << 8)
                pos += 3
            elif op == 0x4A:  # BININT
                push(_I32(data, pos + 1)[0])
                pos += 5
            elif op == 0x89:  # NEWFALSE
                push(False)
                pos += 1
            elif op == 0x88:  # NEWTRUE
                push(True)
                pos += 1
            elif op == 0x5D:  # EMPTY_LIST
                push([])
                pos += 1
            elif op == 0x65:  # APPENDS
                start = unmark()
                items = stack[start:]
                del stack[start:]
                _list(stack[-1]).extend(items)
                pos += 1
            elif op == 0x7D:  # EMPTY_DICT
                push(Dict([]))
                pos += 1
            elif op == 0x75:  # SETITEMS
                start = unmark()
                items = stack[start:]
                del stack[start:]
                target = stack[-1]
                if type(target) is not Dict or len(items) & 1:
                    raise ValueError("pairs for something that is not a dict, or a key without a value")
                target.pairs.extend(zip(items[::2], items[1::2], strict=True))
                pos += 1
            elif op == 0x2E:  # STOP
                pos += 1
                break
            elif op == 0x51:  # BINPERSID
                push(PersistentRef(pop()))
                pos += 1
            elif op == 0x29:  # EMPTY_TUPLE
                push(())
                pos += 1
            elif op == 0x85:  # TUPLE1
                push((pop(),))
                pos += 1
            elif op == 0x87:  # TUPLE3
                third, second = pop(), pop()
                push((pop(), second, third))
                pos += 1
            elif op == 0x4E:  # NONE
                push(None)
                pos += 1
            elif op == 0x47:  # BINFLOAT
                push(_F64(data, pos + 1)[0])
                pos += 9
            else:
                pos = _rare(op, data, pos, stack, marks, memo)
                if len(memo) > limits.pickle_memo:
                    raise LimitExceeded("pickle", "pickle_memo", limits.pickle_memo, len(memo), pos)
        else:
            raise LimitExceeded(
                "pickle", "pickle_opcodes", limits.pickle_opcodes, limits.pickle_opcodes + 1, pos
            )
    except (IndexError, KeyError, ValueError, struct.error) as fault:
        raise DecodeError("pickle", _explain(fault, data, pos), pos) from None
    if pos != len(data):
        raise DecodeError("pickle", f"{len(data) - pos} bytes follow STOP", pos)
    if len(stack) != 1 or marks:
        raise DecodeError("pickle", f"{len(stack)} values and {len(marks)} marks are left at STOP", pos)
    return stack[0]


def _rare(
    op: int, data: bytes, pos: int, stack: list[Value], marks: list[int], memo: dict[int, Value]
) -> int:
    """Runs one opcode that small pickles lack; returns the position behind it."""
    if op == ops.LONG_BINPUT:
        memo[_U32(data, pos + 1)[0]] = stack[-1]
        return pos + 5
    if op == ops.LONG_BINGET:
        stack.append(memo[_U32(data, pos + 1)[0]])
        return pos + 5
    if op == ops.BINUNICODE8:
        start = pos + 9
        end = start + _U64(data, pos + 1)[0]
        stack.append(_text(data[start:end]))
        return int(end)
    if op == ops.NEWOBJ:
        args = stack.pop()
        stack.append(PickleCall(stack.pop(), args, how="newobj"))
    elif op == ops.BUILD:
        state = stack.pop()
        target = stack[-1]
        if type(target) is not PickleCall:
            raise ValueError("state for something that is not an object")
        target.has_state = True
        target.state = state
    elif op == ops.APPEND:
        item = stack.pop()
        _list(stack[-1]).append(item)
    elif op in (ops.LIST, ops.DICT):
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        if op == ops.DICT and len(items) & 1:
            raise ValueError("a key without a value")
        stack.append(items if op == ops.LIST else Dict(list(zip(items[::2], items[1::2], strict=True))))
    else:
        raise ValueError(f"opcode 0x{op:02x} is not one of the C++ Pickler's")
    return pos + 1


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _global(opcode: bytes) -> Global:
    module, name = opcode[1:-1].decode().split("\n")
    return Global(module, name)


def _list(target: Value) -> list[Value]:
    if type(target) is not list:
        raise ValueError("items for something that is not a list")
    return target


def _explain(fault: Exception, data: bytes, pos: int) -> str:
    """Returns words for a Python exception about damage: a read past the end, a missing memo entry, too few
    values."""
    if isinstance(fault, KeyError):
        return f"memo entry {fault.args[0]} was never written"
    if pos >= len(data) or isinstance(fault, struct.error):
        return "the pickle ends before STOP"
    if isinstance(fault, IndexError):
        return f"opcode 0x{data[pos]:02x} lacks operands"
    if isinstance(fault, UnicodeDecodeError):
        return "a global's name is not UTF-8"
    if "subsection not found" in str(fault):
        return "the pickle ends inside a global's name"
    return str(fault)


def read_forms(data: bytes) -> Forms:
    """What `write_jit` needs to write these bytes again: the walk of `read_jit`, which must accept them, over
    forms instead of values."""
    stack: list[Forms] = []
    marks: list[int] = []
    for pos, _ in ops.opcode_places(data, len(data) - 1):
        op = data[pos]
        if op in _MADE:
            stack.append(_MADE[op])
        elif op in (ops.BINPUT, ops.LONG_BINPUT):
            top = stack[-1]
            if top is not _NAME:
                stack[-1] = Forms(top.op, True, top.parts)
        elif op == ops.MARK:
            marks.append(len(stack))
        elif op in _TAKES:
            count = _TAKES[op]
            parts = tuple(stack[-count:])
            del stack[-count:]
            stack.append(Forms(op, False, parts))
        elif op in (ops.TUPLE, ops.LIST, ops.DICT):
            start = marks.pop()
            parts = tuple(stack[start:])
            del stack[start:]
            stack.append(Forms(op, False, parts))
        elif op == ops.BUILD:
            state = stack.pop()
            stack[-1] = Forms(ops.BUILD, stack[-1].put, (*stack[-1].parts, state))
        elif op in (ops.APPENDS, ops.SETITEMS, ops.APPEND):
            start = len(stack) - 1 if op == ops.APPEND else marks.pop()
            parts = tuple(stack[start:])
            del stack[start:]
            stack[-1] = Forms(op, stack[-1].put, stack[-1].parts + parts)
    return stack[0]


_U32 = struct.Struct("<I").unpack_from
_U64 = struct.Struct("<Q").unpack_from
_I32 = struct.Struct("<i").unpack_from
_F64 = struct.Struct(">d").unpack_from  # the one big-endian number in a pickle

_LEAF = Forms()
_NAME = Forms(put=True)
"""Strings and globals: the writer memoises them by value, as upstream does."""
_MADE = {
    **dict.fromkeys(ops.ATOMS, _LEAF),
    **dict.fromkeys((ops.BINUNICODE, ops.BINUNICODE8, ops.GLOBAL), _NAME),
    **dict.fromkeys((ops.BINGET, ops.LONG_BINGET), Forms(ops.BINGET)),
    **{op: Forms(op) for op in (ops.EMPTY_TUPLE, ops.EMPTY_LIST, ops.EMPTY_DICT)},
}
"""Opcodes that take nothing from the stack, and the form of what they push."""

_TAKES = {ops.REDUCE: 2, ops.NEWOBJ: 2, ops.BINPERSID: 1, ops.TUPLE1: 1, ops.TUPLE2: 2, ops.TUPLE3: 3}
"""Opcodes that take a fixed number of values from the stack."""

_GLOBALS = {
    f"c{module}\n{name}\n".encode(): Global(module, name)
    for module, names in {
        "torch.jit._pickle": (
            "build_tensor_from_id restore_type_tag "
            "build_tensorlist build_intlist build_doublelist build_boollist"
        ),
        "torch._utils": "_rebuild_tensor_v2 _rebuild_qtensor _rebuild_sparse_tensor",
        "torch": "FloatStorage DoubleStorage LongStorage IntStorage BoolStorage HalfStorage device",
        "torch.distributed.rpc": "rref",
        "collections": "OrderedDict",
    }.items()
    for name in names.split()
}
"""The usual names, made once."""
