"""The Python dialect (protocols 0 to 5): bytes of a pickle -> the inert tree; nothing imported or called."""

from __future__ import annotations

from dataclasses import dataclass

from rpcinspect.errors import DecodeError
from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.rpc.pickles.tree import Call, Global, Value


@dataclass(frozen=True, slots=True)
class PythonPickle:
    """One pickle, read but not run."""

    root: Value
    """None also where `error` is set."""
    globals: tuple[Global, ...]
    """Every name that loading would import, in order of appearance, without repeats; also those not used."""
    calls: tuple[Call, ...]
    """Every call that loading would make, in that order, reachable from `root` or not."""
    protocol: int
    end: int
    """Offset after STOP; where `error` is set, of the opcode that could not be read."""
    error: DecodeError | None = None
    """Only from `read_python_pickle_partial`: what stopped the reading."""


def read_python_pickle(data: bytes, limits: Limits = DEFAULT_LIMITS) -> PythonPickle:
    """Read one pickle; bytes after STOP are left alone. Raises DecodeError (layer "pickle")."""
    raise NotImplementedError


def read_python_pickle_partial(data: bytes, limits: Limits = DEFAULT_LIMITS) -> PythonPickle:
    """As `read_python_pickle`, but damage is returned as `error`, beside all that was read before it."""
    raise NotImplementedError
