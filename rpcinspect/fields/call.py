"""What one message says of a call: whom it calls with what, or what came back, in full and in short.

In: a record. Out: of a request `type`, `function`, `args`, `kwargs`, of an answer `result`, `error`; of both
`short`, the same as a line for people has it, without what such a line takes from elsewhere: the name of who
is called, the autograd context. So messages of a pattern say the same. Arguments are those of whoever is
called, of a method behind torch's proxies its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.fields.body import body_of, tensor_texts
from rpcinspect.fields.plain import Json, text
from rpcinspect.pickles.render import render, render_given
from rpcinspect.pickles.tree import Dict, Value
from rpcinspect.rpc.callee import callee_of, passed_to
from rpcinspect.rpc.command import (
    PropagateGradientsReq,
    PythonRRefFetchCall,
    RemoteRet,
    RRefBackwardReq,
    ScriptRRefFetchCall,
)
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.questions import (
    CALLS,
    HOUSEKEEPING,
    fork_of,
    function_of,
    python_udf_of,
    result_of,
    rref_of,
)
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta

MAX_ARGUMENT = 80
"""Characters of one in a line for people."""
MAX_ARGUMENTS = 12
"""Of a call that a line for people shows."""


def request_json(record: RpcRecord) -> Json:
    """Returns the content of a request."""
    kind = message_type_of(record.like.command)
    function = function_of(record)
    args: list[str] | None = None
    kwargs: dict[str, str] | None = None
    short = ""
    if kind in CALLS:
        passed = passed_to(record)
        if passed is None:
            short = "(?)"
        else:
            args, kwargs = render_given(*passed, tensor_texts(record))
            short = f"{_object(record)}({', '.join(_in_short(record.like.tensors, passed))})"
    else:
        short = _of_no_call(record)
    return {
        "type": type_name(kind),
        "function": None if function is None else text(function),
        "args": args,
        "kwargs": kwargs,
        "short": _with_problem(record, short),
    }


def answer_json(record: RpcRecord) -> Json:
    """Returns the content of an answer."""
    body = body_of(record)
    command = record.like.command
    result = short = body.get("value")
    if isinstance(command, RemoteRet):
        result = short = _rref(command.rref_id.to_value())
    elif result is not None:
        tensors = short_tensors(record.like.tensors)
        short = render(result_of(record), tensors, max_chars=MAX_ARGUMENT, short=True)
    return {"result": result, "error": body.get("error"), "short": _with_problem(record, short or "")}


def short_tensors(tensors: Sequence[TensorMeta]) -> list[str]:
    """How tensors are called in a line for people: `tensor[8,16]`."""
    return [f"tensor[{','.join(map(str, meta.sizes))}]" for meta in tensors]


def _object(record: RpcRecord) -> str:
    """What is called, where that is an object that travels with the call; empty where it has a name."""
    udf = python_udf_of(record)
    if udf is None or callee_of(record) is not None:
        return ""
    return render(udf.func, short_tensors(record.like.tensors), max_chars=MAX_ARGUMENT, short=True)


def _in_short(tensors: Sequence[TensorMeta], passed: tuple[Value, Value]) -> list[str]:
    names = short_tensors(tensors)

    def say(value: Value) -> str:
        return render(value, names, max_chars=MAX_ARGUMENT, short=True)

    args = [*passed[0]] if type(passed[0]) in (tuple, list) else [passed[0]]
    pairs = passed[1].pairs if type(passed[1]) is Dict else []
    said = [say(value) for value in args[:MAX_ARGUMENTS]]
    said += [f"{_key(key)}={say(value)}" for key, value in pairs[: MAX_ARGUMENTS - len(said)]]
    more = len(args) + len(pairs) - len(said)
    return [*said, f"… ({more:,} more)"] if more else said


def _key(key: Value) -> str:
    plain = type(key) is str and key.isidentifier() and key.isprintable()
    return str(key) if plain else render(key, max_chars=MAX_ARGUMENT)


def _of_no_call(record: RpcRecord) -> str:
    """A gradient's tensors; `RRef(0:2).to_here()`; else the type, and what it is about."""
    command = record.like.command
    rref, fork = rref_of(record), fork_of(record)
    if isinstance(command, PropagateGradientsReq):
        names = short_tensors(record.like.tensors)
        return ", ".join(names[i] if 0 <= i < len(names) else "?" for i in command.grads[:MAX_ARGUMENTS])
    if isinstance(command, (PythonRRefFetchCall, ScriptRRefFetchCall)) and rref is not None:
        return f"{_rref(rref)}.to_here()"
    if isinstance(command, RRefBackwardReq) and rref is not None:
        return f"{_rref(rref)}.backward()"
    kind = message_type_of(command)
    words = [type_name(kind)]
    if kind in HOUSEKEEPING:
        words += [_rref(rref)] if rref is not None else []
        words += ["fork {}:{}".format(*fork)] if fork is not None else []
    return " ".join(words)


def _with_problem(record: RpcRecord, short: str) -> str:
    return f"{short} ! {record.problems[0].reason}".lstrip() if record.problems else short


def _rref(identifier: tuple[int, int]) -> str:
    return "RRef({}:{})".format(*identifier)
