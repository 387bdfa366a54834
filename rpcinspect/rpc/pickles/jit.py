"""The C++ Pickler's dialect (protocol 2): bytes of a JIT pickle -> the inert tree, see `tree`."""

from __future__ import annotations

from dataclasses import dataclass

from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.rpc.pickles.tree import Value


@dataclass(frozen=True, slots=True)
class Forms:
    """How one value was written, with the forms of its parts; never what the value was.

    `Forms()` means: as upstream writes such a value when nothing else refers to it.
    """

    op: int = 0
    """Opcode byte that made the value; 0: the writer's default."""
    put: bool = False
    """The value was memoised after it was written (upstream does so where a value has more than one owner)."""
    parts: tuple[Forms, ...] = ()
    """Of a tuple or list: its items; of a Dict: key, value, key, value…; of a Call: function, args, state."""


def read_jit(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Value:
    """The value of a JIT pickle; strings that are not UTF-8 stay bytes. Raises DecodeError (layer "pickle")."""
    raise NotImplementedError


def read_jit_forms(data: bytes, limits: Limits = DEFAULT_LIMITS) -> tuple[Value, Forms]:
    """As `read_jit`, with what `write_jit` needs to write the same bytes again."""
    raise NotImplementedError
