"""What a live worker does with its messages beside running them: it stops, looks for NaN, calls hooks.

In: what the user asks for, as `LiveGroup` tells it, and a socket to our process. Out: a `LiveDebugger` that
is installed before `init_rpc`: torch looks `deserialize` and `_run_function` up when it begins. What a
message is, and whether it stops, our process says: it knows the capture. Calls of Python are seen in the
thread that runs them; all else, which only torch's C++ sees, our process announces before it is sent.

Runs in live workers only. Mirrors `_run_function` of torch/distributed/rpc/internal.py.
"""

from __future__ import annotations

import bdb
import contextlib
import ctypes
import functools
import hashlib
import os
import pdb
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.distributed.rpc import internal

from rpcinspect.replayer.agent.tensors import build
from rpcinspect.replayer.workers.called_functions import (
    OURS,
    code_of,
    context_text,
    current_context,
    method_behind,
    name_of,
)
from rpcinspect.replayer.workers.editor_link import Editor
from rpcinspect.replayer.workers.live_errors import as_without_us, watch_backward
from rpcinspect.replayer.workers.live_hooks import Hooks, ReceivedMessage
from rpcinspect.replayer.workers.live_nonfinite import (
    LineWatch,
    lines_of_user,
    nonfinite,
    tensors_in,
    watch_graph,
)
from rpcinspect.replayer.workers.remote_pdb import CannotDebugError, DebugLink, RemotePdb
from rpcinspect.replayer.workers.worker_protocol import ControlSocket, Object, parts_of

AGENTS = (
    *(f"torch.distributed.rpc.{name}" for name in ("api", "backend_registry", "_utils")),
    "rpcinspect.replayer.",
)
"""Modules whose functions agents call at each other, at start and at the end; and ours."""
OF_PROGRAMS = ("_rref_typeof_on_owner",)
"""Functions there that programs have called, by `rref.rpc_sync()` and the like."""


PASSES = ("BACKWARD_AUTOGRAD_REQ", "RREF_BACKWARD_REQ")
SHOWN_FRAMES = 3
"""Of the user's, of a forward."""


class _KnownCall(internal.PythonUDF):  # type: ignore[misc]
    """The call of a Python function with the message that brought it."""

    message: ReceivedMessage


class LiveDebugger:
    """Stops, looks and hooks of one live worker."""

    def __init__(self, worker: str, options: Object, link: DebugLink) -> None:
        """Raises `CannotDebugError` for a hook that can't be called, and for a port that can't be used."""
        self._worker = worker
        self._link = link
        self._numbers: str | None = options["nonfinite"]
        """`stop` at NaN and Inf, `say` them, or None."""
        self._at_errors: bool = options["errors"]
        self._ask: bool = options["ask"]
        """Whether our process wants to hear of each call."""
        self._hooks = Hooks(options["hooks"], link)
        self._editor = None if options["port"] is None else Editor(worker, options["port"], link)
        self._last: ReceivedMessage | None = None

    def install(self) -> None:
        """Takes the place of torch's functions. To be called before `init_rpc`."""
        deserialize, run = internal.deserialize, internal._run_function

        def received(data: bytes, tensors: Sequence[torch.Tensor]) -> object:
            value = deserialize(data, tensors)
            asks = self._ask and isinstance(value, internal.PythonUDF) and not _is_agents(value.func)
            return self._received(value, data, tensors) if asks else value

        def called(udf: Any) -> object:
            if isinstance(udf, _KnownCall):
                call = functools.partial(self._call, udf.message, udf.func)
            elif bdb.Breakpoint.bplist and isinstance(udf, internal.PythonUDF):
                call = functools.partial(self._traced, "breakpoint", udf.func)
            else:
                return run(udf)
            call = functools.partial(call, *udf.args, **udf.kwargs)
            return as_without_us(call, lambda function: run(internal.PythonUDF(function, (), {})))

        internal.deserialize, internal._run_function = received, called
        watch_backward(self._backward)
        sys.breakpointhook = self._breakpoint
        pdb.set_trace = self._breakpoint
        if self._numbers is not None and not torch.is_anomaly_enabled():
            torch.autograd.set_detect_anomaly(True, check_nan=False)

    # --- calls of Python ------------------------------------------------------------------------------------

    def _received(self, udf: Any, data: bytes, tensors: Sequence[torch.Tensor]) -> _KnownCall:
        """The call with what our process knows of its message."""
        names = [name_of(udf.func)]
        target = method_behind(udf)
        if target is not None and name_of(target) not in names:
            names.append(name_of(target))
        holds = self._numbers is not None and nonfinite(tensors) == "NaN"  # masks are made of Inf
        told = self._link.ask(
            {"say": "got", "digest": digest_of(data, tensors), "names": names, "nonfinite": holds}
        )
        call = _KnownCall(udf.func, udf.args, udf.kwargs)
        call.message = ReceivedMessage(
            worker=self._worker,
            function=names[-1],
            args=udf.args,
            kwargs=udf.kwargs,
            tensors=list(tensors),
            **told,
        )
        return call

    def _call(
        self, message: ReceivedMessage, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Calls the function of a message."""
        message.context_id = current_context()
        self._last = message
        self._hooks.call(message)
        try:
            result = self._run(message, function, args, kwargs)
            self._look_at_result(message, result)
        except Exception as error:
            self._look_at_error(error, message.label, f"at {message.label}", f" in {message.text}", message)
            raise
        finally:
            if message.debugger is not None:
                message.debugger.release()
            # Nothing lives longer for our sake.
            message.args, message.kwargs, message.tensors, message.debugger = (), {}, [], None
        return result

    def _backward(self, operation: str, call: Callable[[], Any]) -> Any:
        """Calls `backward` of a custom operation."""
        last = self._pass()
        place = "backward" if last is None else last.label
        try:
            return self._traced(place, call)
        except Exception as error:
            after = "" if last is None else f", after {last.label}: {last.text}"
            self._look_at_error(error, place, f"in the backward of {operation}", after, last)
            raise

    def _look_at_error(
        self, error: Exception, place: str, where: str, when: str, message: ReceivedMessage | None
    ) -> None:
        """Holds where an exception was raised, if that is asked for."""
        if self._at_errors and error.__traceback__ is not None:
            head = f"{self._worker} holds {where}: {type(error).__name__}{when}"
            names = {} if message is None else _names(message)
            self._look(place, head, {**names, "error": error}, trace=error.__traceback__)

    def _pass(self) -> ReceivedMessage | None:
        """Returns the message behind the backward pass that runs, as far as it is known: those between two
        live workers are not announced, and a pass of the user's own has none."""
        return self._last if self._last is not None and self._last.type in PASSES else None

    def _run(self, message: ReceivedMessage, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if not message.stops:
            if self._numbers == "stop" and not bdb.Breakpoint.bplist and nonfinite(message.tensors) is None:
                with LineWatch(functools.partial(self._line_broke, message)):
                    return function(*args, **kwargs)
            return self._traced(message.label, function, *args, **kwargs)
        head, names = f"{self._worker} holds at {message.label}: {message.text}", _names(message)
        if self._editor is not None:
            with self._editor.holding(head, message.message) as debugpy:
                debugpy.breakpoint()
                return function(*args, **kwargs)  # step into your function here
        code = code_of(method_behind(internal.PythonUDF(function, args, kwargs)))
        if code is not None:
            call = functools.partial(function, *args, **kwargs)
            key = message.message
            return self._debugger(message.label).call(call, code, head=head, names=names, key=key)
        names |= {"function": function, "args": args, "kwargs": kwargs}  # there is no line to stop at
        self._look(message.label, head, names, key=message.message)
        return function(*args, **kwargs)

    def _traced(self, place: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function so that the user's own breakpoints stop, if there are any."""
        if not bdb.Breakpoint.bplist:
            return function(*args, **kwargs)
        call, head = functools.partial(function, *args, **kwargs), f"{self._worker} holds in {place}"
        return self._debugger(place).call(call, None, head=head, names={})

    def _look_at_result(self, message: ReceivedMessage, result: Any) -> None:
        """Looks at what a function has returned; what goes wrong in that is not the function's error."""
        if self._numbers is None:
            return
        try:
            self._returned(message, result)
        except Exception:
            traceback.print_exc()

    def _returned(self, message: ReceivedMessage, result: Any) -> None:
        if isinstance(result, torch.futures.Future):
            result.add_done_callback(lambda future: self._look_at_result(message, _value(future)))
            return
        tensors = tensors_in(result)
        watch_graph(tensors, functools.partial(self._gradient_broke, message))
        what = nonfinite(tensors)
        if what is None or message.broken:
            return
        head = f"{self._worker} returns {what} from {message.label}: {message.text}"
        if self._found(head) and nonfinite(message.tensors) is None:
            names = {**_names(message), "args": message.args, "kwargs": message.kwargs, "result": result}
            self._look(message.label, head, names)

    def _line_broke(self, message: ReceivedMessage, frame: FrameType, line: int, what: str) -> Any:
        """A line of the user's has made the first value that is not finite; runs in its thread. Returns who
        traces the function from now on."""
        message.broken = True
        place = f"{os.path.basename(frame.f_code.co_filename)}:{line} in {frame.f_code.co_name}"
        head = f"{self._worker} makes {what}, {place}, in {message.label}: {message.text}"
        if not self._found(head):
            return None
        if self._editor is not None:
            self._look(message.label, head, {**_names(message), "names": dict(frame.f_locals)})
            return None
        message.debugger = debugger = self._debugger(message.label)
        debugger.stop_here_and_now(head, frame, _names(message))
        return debugger.trace_dispatch  # the frame is traced already

    def _gradient_broke(
        self,
        message: ReceivedMessage,
        operation: str,
        forward: Sequence[str],
        received: Sequence[Any],
        gradients: Sequence[Any],
    ) -> None:
        """An operation that got finite gradients makes one that is not; runs in its thread."""
        what = nonfinite(gradients)
        last = self._pass()
        if last is not None and last.context_id != message.context_id:
            last = None
        place = "backward" if last is None else last.label
        where = list(lines_of_user(forward))
        context = "" if message.context_id is None else f" (context {context_text(message.context_id)})"
        where_now = f"in {'a pass' if last is None else place}{context}; forward, in {message.label}:"
        head = f"{self._worker} makes {what} in the backward of {operation}, {where_now}"
        head = "\n".join([head, *where[-SHOWN_FRAMES:]])
        if self._found(head):
            names = {**_names(last or message), "operation": operation, "forward": "\n".join(where)}
            names |= {"received": received, "gradients": gradients}
            self._look(place, head, names)

    def _found(self, text: str) -> bool:
        """Tells our process of NaN or Inf. Returns whether to stop there."""
        return self._link.ask({"say": "found", "text": text})["stops"] and self._numbers == "stop"

    # --- other messages -------------------------------------------------------------------------------------

    def announced(self, what: Object, blob: bytes) -> Object:
        """A message that torch's C++ takes is about to be sent; runs in the main thread. Returns the reply,
        after which it is sent."""
        rows = what.get("tensors", ())
        tensors = build(rows, parts_of(what, blob)[1]) if rows else []
        message = ReceivedMessage(worker=self._worker, tensors=tensors, **what["about"])
        self._last = message
        self._hooks.call(message)
        if message.stops:
            names = _names(message)
            if message.type == "BACKWARD_AUTOGRAD_REQ":
                names["gradients"] = message.tensors
            head = f"{self._worker} holds before {message.label}: {what['why'] or ''}{message.text}"
            self._look(message.label, head, names, key=message.message)
        return {"announced": True}

    # --- the dialogue ------------------------------------------------------------------------------------

    def _breakpoint(self, *args: object, **kwargs: object) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(OURS) and frame.f_back is not None:
            frame = frame.f_back
        where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        last = self._last
        head = f"{self._worker} holds at breakpoint(), {where}"
        names = {"context_id": current_context()} if last is None else _names(last)
        self._debugger(where).stop_here_and_now(head, frame, names)

    def _debugger(self, place: str) -> RemotePdb:
        return RemotePdb(self._link, f"{self._worker} {place}")

    def _look(
        self,
        place: str,
        head: str,
        names: dict[str, object],
        *,
        trace: TracebackType | None = None,
        key: int | None = None,
    ) -> None:
        """Holds where no line of the user's is about to run, in the editor or on the terminal."""
        if self._editor is None:
            self._debugger(place).look(head, names, trace=trace, key=key)
            return
        with self._editor.holding(head, key) as debugpy:
            debugpy.breakpoint()
            del debugpy  # a line to stop at


def begin(control: ControlSocket, command: Object) -> tuple[LiveDebugger | None, list[socket.socket]]:
    """Installs what the user asks for in this worker; returns it with the other end of its socket, which goes
    to our process."""
    options = command["debug"]
    if options is None:
        return None, []
    if options["anomaly"]:
        torch.autograd.set_detect_anomaly(True)
    ours, theirs = type(control).pair()
    try:
        debugger = LiveDebugger(command["name"], options, DebugLink(ours))
    except CannotDebugError as error:
        control.send({"failed": str(error)})
        os._exit(1)
    debugger.install()
    return debugger, [theirs.sock]


def digest_of(data: bytes, tensors: Iterable[torch.Tensor]) -> str:
    """Returns what a call is recognised by: its pickle and the bytes of its plain tensors."""
    digest = hashlib.sha256(data)
    for tensor in tensors:
        if tensor.layout == torch.strided and not tensor.is_quantized:
            storage = tensor.untyped_storage().cpu()
            digest.update(ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b"")
    return digest.hexdigest()


def _is_agents(function: Any) -> bool:
    """Returns whether agents call a function at each other, of which no program knows."""
    module, name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    return str(module).startswith(AGENTS) and name not in OF_PROGRAMS


def _names(message: ReceivedMessage) -> dict[str, object]:
    """Returns what the prompt knows beside the function's own names."""
    return {"message": message, "context_id": message.context_id, "tensors": message.tensors}


def _value(future: Any) -> object:
    """Returns the value of a future that is done; None for an error."""
    with contextlib.suppress(Exception):
        return future.value()
    return None
