"""The Python dialect (protocols 0 to 5): bytes of a pickle -> the inert tree; nothing is imported or called.

Mirrors the Unpickler of CPython's Modules/_pickle.c, as a reading of the program instead of a run: where it
would import, a `Global` is made, where it would call, a `PickleCall`. It accepts at least what CPython
accepts, so that a pickle can't hide its second half from this reader by a trick in its first.

May assume nothing about its bytes. Raises DecodeError and LimitExceeded (layer "pickle") only.
"""

from __future__ import annotations

import struct
from functools import cached_property
from itertools import repeat

from msgspec import Struct, field

from rpcinspect.errors import DecodeError, LimitExceeded
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.pickles.python_ops import OPCODES
from rpcinspect.pickles.python_state import NO_FRAME, Order, State, build, extend, set_items, stack_global
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value, is_deeper

MAX_DEPTH = 5_000
"""Levels of nesting. CPython pickles some 1,000 by default, and frees some kinds by recursion in C."""


class PythonPickle(Struct, frozen=True, dict=True):
    """A pickle, read but not run."""

    root: Value
    """None also where `error` is set."""
    globals: tuple[Global, ...]
    """Every name that loading would import, in order of appearance, without repeats; also those not used."""
    calls: tuple[PickleCall, ...]
    """Every call that loading would make, in that order, reachable from `root` or not."""
    protocol: int
    """What PROTO says; 0 without one, so for protocol 1 too."""
    end: int
    """Offset after STOP; where `error` is set, of the opcode that could not be read."""
    error: DecodeError | None = None
    """Only from `read_python_pickle_partial`: what stopped the reading."""
    extensions: tuple[int, ...] = field(default=())
    """Every copyreg extension code that loading would look up and import."""
    order: Order = field(default_factory=Order)
    """When what had been made was changed."""
    left: int = 0
    """Values and marks that STOP leaves on the stack below the root: none in what any pickler writes."""

    @cached_property
    def is_deep(self) -> bool:
        """Whether anything that loading makes is nested more than `MAX_DEPTH` levels deep."""
        if self.end <= MAX_DEPTH:  # each level takes a byte
            return False
        return is_deeper([self.root, *self.calls, *self.order.changed()], MAX_DEPTH)


def read_python_pickle(data: bytes, limits: Limits = DEFAULT_LIMITS) -> PythonPickle:
    """Read one pickle; bytes after STOP are left alone. Raises DecodeError (layer "pickle")."""
    found = read_python_pickle_partial(data, limits)
    if found.error is not None:
        raise found.error
    return found


def read_python_pickle_partial(data: bytes, limits: Limits = DEFAULT_LIMITS) -> PythonPickle:
    """Reads as `read_python_pickle`, but returns damage as `error`, beside all that was read before it."""
    state = State(data, limits)
    root: Value = None
    fault: DecodeError | None = None
    try:
        root = _run(state)
    except DecodeError as damage:
        fault = damage
    except (IndexError, KeyError, ValueError, struct.error) as damage:
        fault = DecodeError("pickle", _explain(damage, data, state.pos), state.pos)
    return PythonPickle(
        root,
        tuple(state.globals),
        tuple(state.calls),
        state.protocol,
        state.pos,
        fault,
        tuple(state.extensions),
        state.order,
        len(state.stack) + len(state.marks),
    )


def _run(state: State) -> Value:
    """Follow opcodes to STOP and return what it finds on the stack.

    One long loop for what protocols 2 to 5 write today, with numbers and in order of frequency, because a
    call per opcode doubles the time; everything else is in `python_ops`.
    """
    data, limits = state.data, state.limits
    stack, marks, memo = state.stack, state.marks, state.memo
    push, pop, called, names = stack.append, stack.pop, state.calls.append, state.names
    max_stack, max_string, max_memo = limits.pickle_stack, limits.pickle_string_bytes, limits.pickle_memo
    pos = 0
    frame_end = NO_FRAME
    try:
        for _ in repeat(None, limits.pickle_opcodes):
            if pos >= frame_end:
                # CPython drops what is left of a frame when an opcode crosses its end, and reads on elsewhere
                if pos > frame_end:
                    raise DecodeError("pickle", CROSSED_FRAME, frame_end)
                frame_end = state.frame_end = NO_FRAME
            op = data[pos]
            if op == 0x94:  # MEMOIZE
                index = len(memo)
                if index >= max_memo:
                    raise LimitExceeded("pickle", "pickle_memo", max_memo, index + 1, pos)
                memo[index] = stack[-1]
                pos += 1
            elif op == 0x8C:  # SHORT_BINUNICODE
                end = pos + 2 + data[pos + 1]
                push(data[pos + 2 : end].decode("utf-8", "surrogatepass"))
                pos = end
            elif op == 0x68:  # BINGET
                push(memo[data[pos + 1]])
                pos += 2
            elif op == 0x4B:  # BININT1
                push(data[pos + 1])
                pos += 2
            elif op == 0x93:  # STACK_GLOBAL
                name, module = pop(), pop()
                if type(name) is str and type(module) is str and (module, name) in names:
                    push(names[module, name])
                else:
                    push(stack_global(state, module, name))
                pos += 1
            elif op == 0x52:  # REDUCE
                args = pop()
                call = PickleCall(pop(), args, None, "reduce", False, None, [], [])
                called(call)
                push(call)
                pos += 1
            elif op == 0x85:  # TUPLE1
                push((pop(),))
                pos += 1
            elif op == 0x86:  # TUPLE2
                second = pop()
                push((pop(), second))
                pos += 1
            elif op == 0x87:  # TUPLE3
                third, second = pop(), pop()
                push((pop(), second, third))
                pos += 1
            elif op == 0x28:  # MARK
                if len(stack) + len(marks) > max_stack:
                    raise LimitExceeded("pickle", "pickle_stack", max_stack, len(stack) + len(marks), pos)
                marks.append(len(stack))
                pos += 1
            elif op == 0x7D:  # EMPTY_DICT
                push(Dict([]))
                pos += 1
            elif op == 0x5D:  # EMPTY_LIST
                push([])
                pos += 1
            elif op == 0x71:  # BINPUT
                memo[data[pos + 1]] = stack[-1]
                pos += 2
            elif op == 0x58:  # BINUNICODE
                start = pos + 5
                end = start + _U32(data, pos + 1)[0]
                if end - start > max_string:
                    raise LimitExceeded("pickle", "pickle_string_bytes", max_string, end - start, pos)
                push(data[start:end].decode("utf-8", "surrogatepass"))
                pos = end
            elif op == 0x74:  # TUPLE
                start = marks.pop()
                items = stack[start:]
                del stack[start:]
                push(tuple(items))
                pos += 1
            elif op == 0x65:  # APPENDS
                start = marks.pop()
                items = stack[start:]
                del stack[start:]
                stack[-1] = extend(state, stack[-1], items)
                pos += 1
            elif op == 0x75:  # SETITEMS
                start = marks.pop()
                items = stack[start:]
                del stack[start:]
                stack[-1] = set_items(state, stack[-1], items)
                pos += 1
            elif op == 0x4E:  # NONE
                push(None)
                pos += 1
            elif op == 0x81:  # NEWOBJ
                args = pop()
                call = PickleCall(pop(), args, None, "newobj", False, None, [], [])
                called(call)
                push(call)
                pos += 1
            elif op == 0x62:  # BUILD
                value = pop()
                stack[-1] = build(state, stack[-1], value)
                pos += 1
            elif op == 0x89 or op == 0x88:  # NEWFALSE, NEWTRUE
                push(op == 0x88)
                pos += 1
            elif op == 0x47:  # BINFLOAT
                push(_F64(data, pos + 1)[0])
                pos += 9
            elif op == 0x29:  # EMPTY_TUPLE
                push(())
                pos += 1
            elif op == 0x4D:  # BININT2
                push(data[pos + 1] | data[pos + 2] << 8)
                pos += 3
            elif op == 0x2E:  # STOP
                root = pop()
                pos += 1
                return root
            else:
                state.pos = pos + 1
                OPCODES[op](state)
                pos = state.pos
                frame_end = state.frame_end
        raise LimitExceeded("pickle", "pickle_opcodes", limits.pickle_opcodes, limits.pickle_opcodes + 1, pos)
    finally:
        state.pos = pos


def _explain(fault: Exception, data: bytes, pos: int) -> str:
    """Returns words for a Python exception about damage: a read past the end, a missing memo entry, too few
    values."""
    if pos >= len(data) or isinstance(fault, struct.error):
        return "the pickle ends before STOP"
    if isinstance(fault, KeyError):
        if data[pos] not in OPCODES and data[pos] not in b"hjg":
            return f"no opcode 0x{data[pos]:02x} exists"
        return f"memo entry {fault.args[0]} was never written"
    if isinstance(fault, IndexError):
        return f"opcode 0x{data[pos]:02x} lacks operands"
    return f"opcode 0x{data[pos]:02x}: {fault}"


CROSSED_FRAME = "an opcode crosses the end of its frame"
_U32 = struct.Struct("<I").unpack_from
_F64 = struct.Struct(">d").unpack_from  # the one big-endian number in a pickle
