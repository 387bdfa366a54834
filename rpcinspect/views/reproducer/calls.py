"""Requests as the PyTorch calls that made them: `rpc.rpc_sync("worker1", scale, args=(x, y))`.

In: a message, with names for its tensors and RRefs. Out: a call's function and arguments as source; what an
answer is compared with. All raise `NoSourceError`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from rpcinspect.rpc.command import (
    ExceptionResponse,
    PythonCall,
    PythonRemoteCall,
    ScriptCall,
    ScriptRemoteCall,
)
from rpcinspect.rpc.pickles import semantic
from rpcinspect.rpc.pickles.shapes_jit import SCRIPT_PREFIX
from rpcinspect.rpc.pickles.tree import Dict, Global, Value
from rpcinspect.rpc.questions import result_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import origin
from rpcinspect.views.reproducer.layout import Brackets, Item, Source, brackets
from rpcinspect.views.reproducer.operators import enumerated, given, python_name
from rpcinspect.views.reproducer.python_names import NoSourceError, quoted
from rpcinspect.views.reproducer.python_source import Names, SourceWriter


class Failure(Struct, frozen=True):
    """What an error is compared with: its type, and what it says if that is the same in every run."""

    type: str
    text: str | None


def call_items(record: RpcRecord, writer: SourceWriter, names: Names) -> tuple[Item, ...]:
    """The function of a call, `args=…` and `kwargs=…`: what stands in the brackets behind the callee."""
    command = record.rpc.command
    if isinstance(command, (ScriptCall, ScriptRemoteCall)):
        return tuple(_script(command, writer, names))
    if isinstance(command, (PythonCall, PythonRemoteCall)):
        return tuple(_python(record, writer, names))
    raise NoSourceError("it is no call of a function")


def answer_source(record: RpcRecord, writer: SourceWriter, names: Names) -> Source:
    """The value of an answer."""
    return writer.write(result_of(record), names)


def failure_of(record: RpcRecord, writer: SourceWriter) -> Failure:
    """The error in an answer."""
    command = record.rpc.command
    if isinstance(command, ExceptionResponse):
        text = command.text.decode("utf-8", "backslashreplace")
        return Failure("RuntimeError", _stable(origin(text).cause))
    pickle = record.facts.pickle
    error = semantic.remote_exception(pickle.root) if pickle is not None else None
    if error is None or error.exception_type is None:
        raise NoSourceError("an error whose type its pickle does not name")
    text = error.message
    return Failure(writer.name(error.exception_type), _stable(origin(text).cause))


def _python(record: RpcRecord, writer: SourceWriter, names: Names) -> list[Item]:
    pickle = record.facts.pickle
    udf = semantic.python_udf(pickle.root) if pickle is not None else None
    if udf is None or type(udf.args) not in (tuple, list):
        raise NoSourceError("it is no call of a function")
    items = [Item("", writer.write(udf.func, names))]
    if udf.args:
        items.append(Item("args=", writer.write(tuple(udf.args), names)))
    if type(udf.kwargs) is Dict and udf.kwargs.pairs:
        items.append(Item("kwargs=", writer.write(udf.kwargs, names)))
    return items


def _script(command: ScriptCall | ScriptRemoteCall, writer: SourceWriter, names: Names) -> list[Item]:
    if command.schema is None:
        module, _, name = command.qualified_name.removeprefix(SCRIPT_PREFIX).rpartition(".")
        items = [Item("", writer.name(Global(module, name)))]
        return items + _arguments([writer.write(value, names) for value in command.args])
    function = python_name(command.function)
    if function is None:
        raise NoSourceError("an operator whose name is no name")
    positional, keywords = given(command.schema, command.args)

    def source(pair: tuple[object, Value]) -> Source:
        said = enumerated(pair[0], pair[1])  # type: ignore[arg-type]
        return said if said is not None else writer.write(pair[1], names)

    items = [Item("", function), *_arguments([source(pair) for pair in positional])]
    if keywords:
        pairs = tuple(Item(f"{quoted(pair[0].name)}: ", source(pair)) for pair in keywords)
        items.append(Item("kwargs=", Brackets("{", pairs, "}")))
    return items


def _arguments(sources: Sequence[Source]) -> list[Item]:
    return [Item("args=", brackets("(", list(sources), ")", single_comma=True))] if sources else []


def _stable(cause: str) -> str | None:
    """What an error says, unless another run says something else: addresses, paths, ids."""
    if not cause or len(cause) > MAX_CAUSE or UNSTABLE.search(cause) or not cause.isprintable():
        return None
    return cause


MAX_CAUSE = 300
UNSTABLE = re.compile(r"0x[0-9a-fA-F]{4}|[/\\]|:\d+\b|\bid[ =:]")
