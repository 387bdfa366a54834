"""What a call of Python leads to in a live worker: the function of the user, its name and its code.

In: a call as torch has unpickled it. Out: the method behind an RRef for torch's own helpers, names, and the
code to stop at. Runs in live workers only. Mirrors `_remote_forward` and `_local_invoke` of
torch/distributed.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from types import CodeType
from typing import Any

import torch
from torch._C import _distributed_autograd

TORCH = os.path.dirname(torch.__file__)
OURS = os.path.dirname(__file__)
FORWARDS = ("_remote_forward",)
"""Functions of torch that call `forward` of the object behind the RRef that they get first."""
METHODS = ("_local_invoke", "_local_invoke_async_execution")
"""The same for the method whose name they get second."""


def name_of(function: Any) -> str:
    """`module.qualified_name` of a function, a method or an object that is called."""
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(owner, '__module__', None) or 'builtins'}.{owner.__qualname__}"


def method_behind(udf: Any) -> Any:
    """Returns the user's function that a call leads to: for torch's own helpers, the method of the object
    behind the RRef."""
    function = udf.func
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", "")
    if name in (*FORWARDS, *METHODS) and udf.args:
        with contextlib.suppress(Exception):  # it fails when it is called
            thing = udf.args[0].local_value()
            return getattr(thing, "forward" if name in FORWARDS else udf.args[1])
    if isinstance(function, torch.nn.Module):
        return function.forward
    return function


def code_of(function: Any) -> CodeType | None:
    """Returns the code of a function of the user; None for torch's own and for what is not written in
    Python."""
    if inspect.isclass(function):
        function = function.__init__
    elif not inspect.isroutine(function):
        function = type(function).__call__
    with contextlib.suppress(ValueError):  # wrappers in a circle
        function = inspect.unwrap(function)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) and is_of_user(code) else None


def is_of_user(code: CodeType) -> bool:
    """Returns whether code has a file, which is neither torch's nor ours."""
    return not code.co_filename.startswith((TORCH, OURS, "<"))


def context_text(context_id: int) -> str:
    """`0:3`: who made a context, and its number there."""
    return f"{context_id >> 48}:{context_id & (1 << 48) - 1}"


def current_context() -> int | None:
    """Returns the autograd context of this thread."""
    try:
        return int(_distributed_autograd._current_context()._context_id())
    except RuntimeError:
        return None
