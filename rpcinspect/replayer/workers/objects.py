"""Makes and fills objects in a live worker: those that the user gives for RRefs which the capture lacks.

In: calls of our own played worker, each of one function of this module, with names of RRefs and words of the
command line. Out: an object that the worker keeps until a remote call takes it under its captured id, or new
values in an object that an RRef has. Every function returns the error as text, since an exception would have
to be read out of a pickle, and prints its traceback; an exit too, which
would end the worker. Runs in live workers only.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""torch marks words of its errors for a terminal."""
MAX_TOLD = 300
"""Characters of an error."""
objects: dict[str, Any] = {}
"""RRef, such as `0:2` → the object that was made for it."""

MakingResult = tuple[str | None, str | None]
"""(error, qualified name of the TorchScript function that returns the object)."""


def make(rref: str, source: str, type_text: str) -> MakingResult:
    """Makes an object as `--provide` says, and keeps it. Of one that TorchScript uses, returns the function
    by which its RRef gets the type that the capture shows."""
    try:
        objects[rref] = made_by(source)
        return None, None if type_text == "PyObject" else script_taker(type_text)
    except BaseException:
        return _told(), None


def take(rref: str) -> Any:
    """Returns the object, which becomes the value of the RRef that the remote call makes."""
    return objects[rref]


def load_file(rref: list[Any], path: str) -> MakingResult:
    """Puts the contents of a file into the object of an RRef; `rref` as torch lists its fork data."""
    import torch

    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
    except BaseException:
        return f"torch.load can't read it with weights_only=True: {_told()}", None
    try:
        fill(value_of(rref), values)
    except BaseException:
        return _told(), None
    return None, None


def load_value(rref: list[Any], value: Any) -> MakingResult:
    """Puts a tensor into the parameter that an RRef refers to. What is computed from others is left as it is:
    backward passes need what it was computed from."""
    try:
        import torch

        target = value_of(rref)
        if isinstance(target, torch.Tensor) and target.is_leaf and target.requires_grad:
            fill(target, value)
        else:
            print(f"RRef {rref[1]}:{rref[2]} is not a parameter: its value stays", file=sys.stderr)
    except BaseException:
        return _told(), None
    return None, None


def made_by(source: str) -> Any:
    """Returns what `RREF.attribute`, `module:function` or `module:function(1, 'text')` stands for. A function
    that needs an argument and gets none gets the objects that were made before it."""
    part = re.fullmatch(r"(\d+:\d+)\.(.+)", source)
    if part is not None:
        found = objects[part[1]]
        for name in part[2].split("."):
            found = getattr(found, name)
        return found
    module, _, call = source.partition(":")
    name, bracket, _ = call.partition("(")
    function: Any = importlib.import_module(module)
    for attribute in name.split("."):
        function = getattr(function, attribute)
    if bracket:
        node = ast.parse(f"f{call[len(name) :]}", mode="eval").body
        assert isinstance(node, ast.Call)
        args = [ast.literal_eval(one) for one in node.args]
        return function(*args, **{one.arg: ast.literal_eval(one.value) for one in node.keywords if one.arg})
    return function(objects) if needs_argument(function) else function()


def needs_argument(function: Callable[..., Any]) -> bool:
    """Returns whether a function can't be called without an argument."""
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(one.default is one.empty and one.kind in plain for one in given)


def fill(target: Any, values: Any) -> None:
    """Puts values into a module, an optimizer or a tensor. Raises `ValueError` where they do not fit."""
    import torch

    if isinstance(target, torch.Tensor):
        if not isinstance(values, torch.Tensor) or _form(values) != _form(target):
            raise ValueError(f"{_named(values)} does not fit into {_named(target)}")
        with torch.no_grad():
            target.copy_(values)
    elif hasattr(target, "load_state_dict"):
        target.load_state_dict(values)
    else:
        raise ValueError(f"{_named(target)} has no load_state_dict")


def value_of(rref: list[Any]) -> Any:
    """Returns the object of an RRef that this worker owns."""
    from torch._C._distributed_rpc import PyRRef

    return PyRRef._deserialize(tuple(rref)).local_value()


@cache
def script_taker(type_text: str) -> str:
    """Returns the qualified name of a TorchScript function that takes the name of an RRef and returns its
    object as this type; an RRef of any other type is refused by torch when it is used."""
    import torch

    kind: Any = torch.Tensor
    if type_text != "Tensor":
        module, _, name = type_text.removeprefix("__torch__.").rpartition(".")
        # the text is the capture's: importing what it names would run code that nobody allowed
        if module not in sys.modules or name not in vars(sys.modules[module]):
            raise ValueError(
                f"no module that was imported for you defines {type_text}, its type in the capture"
            )
        kind = vars(sys.modules[module])[name]

    def held(name: str) -> Any:
        return objects[name]

    # torch.jit wants classes: those of this module are text
    held.__annotations__ = {"name": str, "return": kind}
    held = torch.jit.ignore(held)

    def take_typed(name: str) -> Any:
        return held(name)

    take_typed.__annotations__ = {"name": str, "return": kind}
    function = torch.jit.script(take_typed)
    _keep.append(function)
    return str(function.qualified_name)


_keep: list[Any] = []


def _form(tensor: Any) -> tuple[Any, ...]:
    """Returns what must be the same of two tensors before one's values go into the other."""
    return tensor.shape, tensor.dtype, tensor.layout


def _named(value: Any) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return type(value).__name__ + ("" if shape is None else f"{list(shape)} of {dtype}")


def _told() -> str:
    """Prints the current exception without the frames of this module; returns it in a line."""
    kind, error, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__ and trace.tb_next is not None:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)
    text = COLOUR.sub("", traceback.format_exception_only(kind, error)[-1])
    return " ".join(text.split())[:MAX_TOLD]
