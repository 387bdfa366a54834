"""What every workload shares: start the workers, record calls, print the truth.

A workload is a module with `WORLD` (number of workers) and `run(rank, *arguments)`; with `RECORD_CALLS` False
its calls are left alone. Run as a script it starts one process per worker, waits for them for a finite time
and prints what they printed, worker by worker. Functions so travel under the module's name, as in a user's
program, not as `__main__`.

The truth is a JSON object per line behind the word TRUTH, written by the workers while they work. Nothing
here reads a capture. README.md describes the fields.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.rpc import internal as rpc_internal

from describe import (
    Describer,
    current_context,
    described,
    error_of,
    function_name,
    raw_bytes,
    truth,
)

SECONDS = 90
"""A workload that takes longer than this is stopped."""

RPC_SECONDS = 30
"""Timeout of each call, and of a graceful shutdown."""

WORLD_NAME = "worker{}"

_lock = threading.Lock()
_calls = 0


# --- recording calls ------------------------------------------------------------------------------------


def next_call() -> int:
    """The number that this worker's next call will have."""
    with _lock:
        return _calls


def _record_caller(kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def recorded(to: Any, func: Any, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        global _calls
        with _lock:
            call, _calls = _calls, _calls + 1
        describer = Describer()
        name = to if isinstance(to, str) else getattr(to, "name", to)
        truth(
            "call",
            call=call,
            kind=kind,
            to=name,
            function=function_name(func),
            context_id=current_context(),
            args=[describer.value(item) for item in args or ()],
            kwargs={key: describer.value(item) for key, item in (kwargs or {}).items()},
            tensors=describer.tensors,
        )
        try:
            result = original(to, func, args, kwargs, *rest, **options)
        except Exception as error:
            truth("answer", call=call, error=error_of(error))
            raise
        if kind == "rpc_async":
            result.add_done_callback(functools.partial(_record_future, call))
        else:
            truth("answer", call=call, **described("value", result))
        return result

    return recorded


def _record_future(call: int, future: Any) -> None:
    try:
        value = future.value()
    except Exception as error:
        truth("answer", call=call, error=error_of(error))
    else:
        truth("answer", call=call, **described("value", value))


def _record_callee(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def recorded(python_udf: Any) -> Any:
        name = function_name(python_udf.func)
        if name.startswith("torch.distributed.rpc."):  # the agent's own calls at start and end
            truth("control", function=name)
            return original(python_udf)
        describer = Describer()
        truth(
            "run",
            function=name,
            context_id=current_context(),
            args=[describer.value(item) for item in python_udf.args],
            kwargs={key: describer.value(item) for key, item in python_udf.kwargs.items()},
            tensors=describer.tensors,
        )
        result = original(python_udf)
        if isinstance(result, rpc_internal.RemoteException):
            kind = result.exception_type
            truth(
                "ran",
                function=name,
                error={"type": f"{kind.__module__}.{kind.__qualname__}", "text": result.msg},
            )
        else:
            truth("ran", function=name, **described("value", result))
        return result

    return recorded


def install_recorders() -> None:
    """Before init_rpc: the agent fetches `_run_function` once, and workloads call through `rpc.`."""
    rpc_internal._run_function = _record_callee(rpc_internal._run_function)
    for kind in ("rpc_sync", "rpc_async", "remote"):
        setattr(rpc, kind, _record_caller(kind, getattr(rpc, kind)))


# --- distributed autograd -------------------------------------------------------------------------------


def edges(context_id: int, note: str | None = None) -> None:
    """This worker's ends of the edges: the autograd message ids of its send and receive functions."""
    context = dist_autograd._retrieve_context(context_id)
    truth(
        "edges",
        note=note,
        context_id=context_id,
        send=sorted(context._send_functions()),
        recv=sorted(context._recv_functions()),
        known_workers=sorted(context._known_worker_ids()),
    )


@contextlib.contextmanager
def context(note: str | None = None) -> Iterator[int]:
    with dist_autograd.context() as context_id:
        truth("context", context_id=context_id, note=note)
        try:
            yield context_id
        finally:
            edges(context_id, note="at exit")
    truth("context-exit", context_id=context_id)


def backward(context_id: int, roots: list[torch.Tensor], retain_graph: bool = False) -> None:
    describer = Describer()
    described_roots = [describer.value(root) for root in roots]
    truth(
        "backward",
        context_id=context_id,
        retain_graph=retain_graph,
        roots=described_roots,
        tensors=describer.tensors,
    )
    try:
        dist_autograd.backward(context_id, roots, retain_graph)
    except Exception as error:
        truth("backward-error", context_id=context_id, error=error_of(error))
        raise
    truth("backward-done", context_id=context_id)


def gradients(context_id: int, **named: torch.Tensor) -> dict[str, torch.Tensor | None]:
    """Print this worker's accumulated gradients of the named leaves (null: none arrived)."""
    found = dist_autograd.get_gradients(context_id)
    grads = {name: found.get(leaf) for name, leaf in named.items()}
    describer = Describer()
    named_grads = {name: None if grad is None else describer.value(grad) for name, grad in grads.items()}
    truth("gradients", context_id=context_id, count=len(found), grads=named_grads, tensors=describer.tensors)
    return grads


def same_as_local(name: str, remote: torch.Tensor, local: torch.Tensor) -> None:
    """Compare with the same maths done in this process, bit for bit."""
    truth("local", name=name, equal=raw_bytes(remote) == raw_bytes(local), **described("local", local))


def expect(world: int, **counts: int) -> None:
    """Messages by outermost type, counted by the author from what the script does; the agent's own are added.

    Those are a barrier over all workers at the start and one at the end: for each follower one call to the
    leader and one back.
    """
    own = 4 * (world - 1)
    for name in ("PYTHON_CALL", "PYTHON_RET"):
        counts[name] = counts.get(name, 0) + own
    truth("expect", by_type=dict(sorted(counts.items())))


# --- workers --------------------------------------------------------------------------------------------


def backend_options(
    transports: Sequence[str] = ("uv",),
    channels: Sequence[str] = ("basic",),
    threads: int = 4,
    maps: dict[str, Any] | None = None,
) -> rpc.TensorPipeRpcBackendOptions:
    """Default: everything over TCP. An empty list means PyTorch's own choice."""
    return rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=threads,
        rpc_timeout=RPC_SECONDS,
        _transports=list(transports) or None,
        _channels=list(channels) or None,
        device_maps=maps,
    )


@contextlib.contextmanager
def worker(
    rank: int,
    world: int,
    options: rpc.TensorPipeRpcBackendOptions | None = None,
    *,
    group: int = 0,
    name: str | None = None,
) -> Iterator[str]:
    """Join the group, print who this is, leave gracefully; `group`: which one of this process."""
    options = options or backend_options()
    name = name or WORLD_NAME.format(rank)
    rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options)
    info = rpc.get_worker_info()
    truth("worker", name=info.name, id=info.id, world_size=world, torch=torch.__version__, group=group)
    yield name
    rpc.shutdown(timeout=RPC_SECONDS)
    truth("shutdown", name=name)


def work(module: str, rank: int, arguments: list[str]) -> None:
    """Entry of one worker process."""
    torch.manual_seed(1000 + rank)
    torch.set_num_threads(1)
    target = importlib.import_module(module)
    if getattr(target, "RECORD_CALLS", True):
        install_recorders()
    target.run(rank, *arguments)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def surroundings(port: int) -> dict[str, str]:
    """What the environment of each worker says: the first one's port, and the loopback for everything."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TP_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def truth_of(name: str, output: Iterable[str]) -> Iterator[str]:
    """A worker's lines of truth, which say whose they are."""
    for line in output:
        if line.startswith("TRUTH "):
            yield f'TRUTH {{"worker": "{name}", ' + line.removeprefix("TRUTH {")


def launch(world: int, seconds: float = SECONDS, *, names: Sequence[str] = ()) -> None:
    """Entry of the script: start the workers, wait, print what each printed; exit 1 if one failed."""
    names = names or [WORLD_NAME.format(rank) for rank in range(world)]
    script = Path(sys.argv[0]).resolve()
    environment = os.environ | surroundings(free_port())
    with contextlib.ExitStack() as stack:
        outputs, workers = [], []
        for rank in range(world):
            output = stack.enter_context(tempfile.TemporaryFile("w+"))
            code = f"import common; common.work({script.stem!r}, {rank}, {sys.argv[1:]!r})"
            workers.append(
                subprocess.Popen(
                    [sys.executable, "-c", code], cwd=script.parent, env=environment, stdout=output
                )
            )
            outputs.append(output)
        failed = _wait(workers, seconds)
        for name, output in zip(names, outputs, strict=True):
            output.seek(0)
            sys.stdout.writelines(truth_of(name, output))
    sys.stdout.flush()
    sys.exit(1 if failed else 0)


def _wait(workers: list[subprocess.Popen[bytes]], seconds: float) -> bool:
    """Whether a worker failed; all have ended, by themselves or by our hand, when this returns."""
    end = time.monotonic() + seconds
    try:
        while any(process.poll() is None for process in workers) and time.monotonic() < end:
            if any(process.returncode not in (None, 0) for process in workers):
                end = min(end, time.monotonic() + RPC_SECONDS)  # the others may still time out by themselves
            time.sleep(0.05)
    finally:
        for process in workers:
            if process.poll() is None:
                process.kill()
            process.wait()
    return any(process.returncode != 0 for process in workers)
