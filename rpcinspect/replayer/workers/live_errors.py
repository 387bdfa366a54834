"""Exceptions of the user's functions in a live worker: how they reach torch, and those of backward passes.

In: the call of a function, which has functions of ours around it. Out: its result or its exception, as torch
would have got it without them; and each call of a custom operation's `backward`, which torch's C++ makes.
Runs in live workers only. Mirrors `BackwardCFunction` of torch/autograd/function.py.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from torch.autograd.function import BackwardCFunction

from rpcinspect.replayer.workers.called_functions import OURS

APPLIES = ("apply", "apply_boxed")
"""Methods by which C++ calls `backward`; earlier releases have the first only."""

_raise = ctypes.pythonapi["PyErr_SetObject"]
"""Raises an exception without a frame of its own, which would stand in the traceback."""
_raise.argtypes = [ctypes.py_object, ctypes.py_object]
_raise.restype = None


def as_without_us(call: Callable[[], Any], run: Callable[[Callable[[], Any]], Any]) -> Any:
    """Calls a function, and has `run` take its result or exception from another one, in whose traceback
    nothing of ours stands: torch sends the traceback to the caller."""
    try:
        result = call()
    except Exception as error:
        raised, trace = error, error.__traceback__
    else:
        return run(lambda: result)
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS):
        trace = trace.tb_next
    raised.__traceback__ = trace
    try:
        return run(functools.partial(_raise, type(raised), raised))
    finally:
        raised.__traceback__ = None
        del raised, trace  # they hold the frames that hold them


def watch_backward(call: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Has `call` make each call of a custom operation's `backward`; it gets the name of the operation."""
    for name in APPLIES:
        apply = getattr(BackwardCFunction, name, None)
        if apply is not None:
            setattr(BackwardCFunction, name, _through(call, apply))


def _through(call: Callable[[str, Callable[[], Any]], Any], apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def applied(node: Any, *gradients: Any) -> Any:
        return call(type(node).__name__, functools.partial(apply, node, *gradients))

    return applied
