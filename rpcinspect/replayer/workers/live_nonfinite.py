"""Where NaN and Inf come from in a live worker.

In: tensors, values that hold them, functions that run and autograd graphs. Out: whether one is not finite;
the line that makes the first one; for graphs, hooks that tell the first operation whose gradient is not
finite although all that it got was. Runs in live workers
only; hooks change no gradient.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_leaves

from rpcinspect.replayer.workers.called_functions import is_of_user

TRACEBACK = "traceback_"
"""Where torch's anomaly mode keeps the traceback of the forward, and who has been given a hook."""
HOOKED = "rpcinspect"

TellBroken: TypeAlias = Callable[[str, Sequence[str], Sequence[Any], Sequence[Any]], None]
"""Called with the operation, the forward's traceback, the gradients that it got and those that it made."""


def tensors_in(value: object) -> list[torch.Tensor]:
    """Returns the tensors in tuples, lists and dicts, and those that an object has as attributes."""
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif not isinstance(leaf, torch.nn.Module):
            found += [one for one in getattr(leaf, "__dict__", {}).values() if isinstance(one, torch.Tensor)]
    return found


def nonfinite(tensors: Iterable[object]) -> str | None:
    """Returns `NaN` or `Inf`, whichever the first tensor that is not finite holds; None: all are finite."""
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        try:
            with torch.no_grad():
                values = tensor.coalesce().values() if tensor.layout == torch.sparse_coo else tensor
                if not bool(torch.isfinite(values).all()):
                    return "NaN" if bool(torch.isnan(values).any()) else "Inf"
        except (RuntimeError, NotImplementedError):  # a dtype or layout for which torch can't tell
            continue
    return None


def watch_graph(tensors: Iterable[torch.Tensor], found: TellBroken) -> None:
    """Gives each operation behind the tensors a hook, once, that calls `found`."""
    left = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    while left:
        node = left.pop()
        if node.metadata.get(HOOKED):
            continue
        node.metadata[HOOKED] = True
        node.register_hook(_hook(node.name(), node.metadata.get(TRACEBACK, ()), found))
        left += [following for following, _ in node.next_functions if following is not None]


def _hook(name: str, traceback: Sequence[str], found: TellBroken) -> Callable[[Any, Any], None]:
    """Returns a hook that does not know its operation: the two would keep each other for ever."""

    def hook(made: Sequence[Any], got: Sequence[Any]) -> None:
        if nonfinite(made) is not None and nonfinite(got) is None:
            found(name, traceback, got, made)

    return hook


class LineWatch:
    """Watches the user's functions in this thread, line by line, for the first variable that holds NaN, or
    the first result that holds that or Inf: masks are made of it. Use it in a `with` statement."""

    def __init__(self, found: Callable[[FrameType, int, str], Any]) -> None:
        """`found` is called once, before the line behind it runs, with the line that made the value and with
        what it is; it may return who traces the function from then on."""
        self._found = found
        self._over = False

    def __enter__(self) -> None:
        sys.settrace(self._begins)

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _begins(self, frame: FrameType, event: str, argument: object) -> Any:
        if self._over or not is_of_user(frame.f_code):
            return None
        known = {name: id(value) for name, value in frame.f_locals.items()}
        line = frame.f_lineno

        def goes_on(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal line
            if self._over:
                return None
            further = None
            for name, value in frame.f_locals.items():
                if isinstance(value, torch.Tensor) and known.get(name) != id(value):
                    known[name] = id(value)
                    further = further or self._look(frame, line, [value], f"{{}} in {name}", ("NaN",))
            if event == "return":
                further = further or self._look(frame, line, tensors_in(argument), "{} as its result")
            line = frame.f_lineno
            return goes_on if further is None else further(frame, event, argument)

        return goes_on

    def _look(
        self,
        frame: FrameType,
        line: int,
        values: list[torch.Tensor],
        words: str,
        counts: Sequence[str] = ("NaN", "Inf"),
    ) -> Any:
        what = None if self._over else nonfinite(values)
        if what not in counts:
            return None
        self._over = True
        return self._found(frame, line, words.format(what))


def lines_of_user(traceback: Sequence[str]) -> Iterator[str]:
    """Yields the frames of a traceback that are neither torch's nor ours, innermost last."""
    for frame in traceback:
        if "/torch/" not in frame and "/rpcinspect/replayer/workers/" not in frame:
            yield frame.rstrip("\n")
