"""Calls of made-up conversations with values and RRefs of worker 0, in milliseconds."""

from __future__ import annotations

from typing import Any

from rpcinspect.rpc.command import (
    PythonCall,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RRefAck,
    RRefUserDelete,
)
from rpcinspect.rpc.types import GloballyUniqueId
from tests.replayer.planning.pickled import name, request
from tests.replayer.talks import NONE, Workers

MS = 1_000_000


def ask(
    workers: Workers, way: tuple[int, int], times: tuple[int, int | None], function: str, *args: Any
) -> None:
    """A call of `app.FUNCTION`."""
    call = PythonCall(request(name("app", function), *args), False)
    end = None if times[1] is None else times[1] * MS
    workers.call(*way, times[0] * MS, end, call)


def fetch(workers: Workers, caller: int, times: tuple[int, int | None], local: int) -> None:
    """A fetch of an RRef of worker 0."""
    call, answer = PythonRRefFetchCall(0, GloballyUniqueId(0, local)), PythonRRefFetchRet((), NONE)
    workers.call(caller, 0, times[0] * MS, None if times[1] is None else times[1] * MS, call, answer)


def delete(workers: Workers, caller: int, time: int, local: int, fork: int) -> None:
    """A fork of an RRef of worker 0 is given back."""
    gone = RRefUserDelete(GloballyUniqueId(0, local), GloballyUniqueId(0, fork))
    workers.call(caller, 0, time * MS, (time + 1) * MS, gone, RRefAck())
