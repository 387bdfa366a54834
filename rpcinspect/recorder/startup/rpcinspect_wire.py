"""Recording the wire: makes torch send everything over plain TCP, where a sniffer sees it.

In: the freshly imported `torch.distributed.rpc`. Out: it, with two of its functions wrapped: whatever options
a job makes, their transport is `uv` and their channel `basic` (and for CUDA tensors `cuda_basic`, which moves
them through `basic`); and a process that has started RPC leaves a note. Mirrors
torch/distributed/rpc/options.py, the same from 1.13 to 2.14.
"""

from __future__ import annotations

import functools
from typing import Any

TRANSPORTS = ["uv"]
CHANNELS = ["cuda_basic", "basic"]


def install(rpc: Any, settings: Any, notes: Any) -> None:
    """Wraps both."""
    if rpc.is_available():
        force(rpc.TensorPipeRpcBackendOptions)
        notes.follow(rpc, lambda agent: None if isinstance(agent, rpc.TensorPipeAgent) else other(agent))


def other(agent: Any) -> str:
    """Returns why an agent that is not torch's own can't be recorded."""
    return f"its agent is a {type(agent).__name__}, not a TensorPipeAgent"


def force(options: Any) -> None:
    """Options of every process, made by the job or by torch itself, get our transport and channels."""
    made = options.__init__
    known = list(CHANNELS)

    @functools.wraps(made)
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:  # noqa: N807
        keywords["_transports"] = list(TRANSPORTS)
        try:
            made(self, *args, **{**keywords, "_channels": list(known)})
        except RuntimeError as error:
            if len(known) == 1 or "cuda_basic" not in str(error):
                raise
            known.remove("cuda_basic")  # this torch was built without CUDA
            made(self, *args, **{**keywords, "_channels": list(known)})

    options.__init__ = __init__
