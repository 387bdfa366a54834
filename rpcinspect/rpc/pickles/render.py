"""The inert tree as text, as a person would write the value in Python."""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.limits import DEFAULT_LIMITS, Limits
from rpcinspect.rpc.pickles.tree import Value


def render(
    value: Value,
    tensors: Sequence[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    *,
    max_chars: int = 4000,
) -> str:
    """One line of printable text; never raises. `tensors[i]` is shown for a reference to tensor i."""
    raise NotImplementedError


def render_args(
    root: Value,
    tensors: Sequence[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    *,
    max_chars: int = 4000,
) -> tuple[str, list[str], dict[str, str]] | None:
    """(function, positional arguments, keyword arguments) of a PythonUDF; None if `root` is none."""
    raise NotImplementedError
