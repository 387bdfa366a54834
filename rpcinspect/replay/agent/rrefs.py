"""Remote references of a played worker, as torch's own agent has them.

In: commands to make one, to hand one on, to fetch one. Out: its ids, which torch counts; its value, unpickled
by nobody. A handle is kept until the process ends: torch would tell the owner of its end, and nobody of the
answer to that.

Runs in a played worker's process only, as part of `agent/main.py`. Mirrors `remote` of
torch/distributed/rpc/api.py.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch._C import _distributed_rpc as rpc_c

from rpcinspect.replay.agent.tensors import operands, value

Command = dict[str, Any]
NO_TIMEOUT = 0.0


class RemoteRefs:
    """The handles, by the ids that torch gave them."""

    def __init__(self) -> None:
        self.handles: dict[tuple[int, int], Any] = {}

    def make(self, command: Command, pickle: bytes, tensors: Sequence[torch.Tensor]) -> tuple[Any, Command]:
        """Asks a worker for a remote object. The future of its confirmation, and the ids of RRef and fork."""
        to, kind = rpc.get_worker_info(command["to"]), command["kind"]
        data: Any = pickle
        if kind == "python":
            handle = rpc_c._invoke_remote_python_udf(to, data, list(tensors), NO_TIMEOUT, command["async"])
        else:
            args = [value(one, tensors, self.handles) for one in command["args"]]
            if kind == "builtin":
                schema = torch._C.parse_schema(command["function"])
                by_place, by_name = operands(schema, args)
                handle = rpc_c._invoke_remote_builtin(to, schema.name, NO_TIMEOUT, *by_place, **by_name)
            else:
                name: Any = to.name
                handle = rpc_c._invoke_remote_torchscript(
                    name, command["function"], NO_TIMEOUT, command["async"], *args
                )
        rref, fork = ids_of(str(handle))
        self.handles[rref] = handle
        return handle._get_future(), {"rref": rref, "fork": fork}

    def adopt(self, fork: Sequence[Any]) -> None:
        """An answer has brought an RRef; torch tells its owner or its parent of that."""
        self.handles[fork[1], fork[2]] = rpc_c.PyRRef._deserialize(tuple(fork))

    def fork(self, rref: Sequence[int]) -> Command:
        """The ids of one more fork, which is about to be handed on in a pickle."""
        _, rref_on, rref_local, fork_on, fork_local, *_ = self.handles[rref[0], rref[1]]._serialize()
        return {"rref": (rref_on, rref_local), "fork": (fork_on, fork_local)}

    def fetch(self, rref: Sequence[int], thread: Any, then: Callable[[Any, Exception | None], None]) -> None:
        """Asks the owner for the value; `then` gets it, or the error. Nobody waits for that here."""
        handle = self.handles[rref[0], rref[1]]

        def ask() -> None:
            try:
                found, error = handle.to_here(NO_TIMEOUT), None
            except Exception as raised:
                found, error = None, raised
            then(found, error)

        if thread is None:
            threading.Thread(target=ask, daemon=True).start()
        else:
            thread.begin(ask)


def ids_of(shown: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """RRef and fork in `UserRRef(RRefId = GloballyUniqueId(created_on=0, local_id=4), ForkId = …)`: torch
    tells them nowhere else without making another fork."""
    numbers = [(int(on), int(local)) for on, local in _ID.findall(shown)]
    if len(numbers) != 2:
        raise RuntimeError(f"the ids of an RRef in {shown!r}")
    return numbers[0], numbers[1]


_ID = re.compile(r"created_on=(\d+), local_id=(\d+)")
