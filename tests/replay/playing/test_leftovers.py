"""What a session leaves in live workers: contexts and forks that were not dropped, each once."""

from __future__ import annotations

from typing import Any

from rpcinspect.equality.ids import CONTEXT, FORK, RREF, WORKER, IdMap
from rpcinspect.replay.playing.leftovers import Leftovers
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    Command,
    PythonRemoteCall,
    RRefForkRequest,
    RRefUserDelete,
)
from rpcinspect.rpc.command_codec import from_message
from rpcinspect.rpc.types import GloballyUniqueId, pack_id
from tests.replay.talks import Workers, udf

LIVE = {"w0": 32767, "w1": 5}
"""Captured as 0 and 1."""


def ids() -> IdMap:
    found = IdMap()
    found.same(WORKER, 0, 32767)
    found.same(WORKER, 1, 5)
    for n in range(4):
        found.same(CONTEXT, pack_id(0, n), pack_id(32767, n))
        found.same(CONTEXT, pack_id(1, n), pack_id(5, n + 9))
        for kind in (RREF, FORK):
            found.same(kind, GloballyUniqueId(0, n), GloballyUniqueId(32767, n))
    return found


def remote(n: int) -> Command:
    return PythonRemoteCall(
        serialized_py_obj=udf("app.f"),
        ret_rref_id=GloballyUniqueId(0, n),
        ret_fork_id=GloballyUniqueId(0, n + 1),
        is_async_execution=False,
        tensors=(),
    )


def left(workers: Workers) -> list[tuple[str, str, Any]]:
    """After w0 has sent everything that it sent in the capture."""
    leftovers = Leftovers(ids(), LIVE)
    for call in workers.calls():
        leftovers.sent("w0", "w1", call.request)
    found = [
        (role, to, from_message(message.type, message.payload)) for role, to, message in leftovers.releases()
    ]
    assert list(leftovers.releases()) == []
    return found


def test_contexts_that_were_not_cleaned_up() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, context=(pack_id(0, 0), 1))
    workers.call(0, 1, 20, 30, context=(pack_id(0, 0), 2))
    workers.call(0, 1, 40, 50, context=(pack_id(0, 1), 3))
    workers.call(0, 1, 60, 70, context=(pack_id(1, 0), 4))  # w1 cleans up its own
    workers.call(0, 1, 80, 90, CleanupAutogradContextReq(pack_id(0, 1)))
    assert left(workers) == [("w0", "w1", CleanupAutogradContextReq(pack_id(32767, 0)))]


def test_forks_that_were_not_deleted() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, remote(0))
    workers.call(0, 1, 20, 30, remote(2))
    workers.call(0, 1, 40, 50, RRefUserDelete(GloballyUniqueId(0, 0), GloballyUniqueId(0, 1)))
    found = left(workers)
    assert found == [
        ("w0", "w1", RRefUserDelete(GloballyUniqueId(32767, 2), GloballyUniqueId(32767, 3))),
    ]


def test_a_fork_that_the_owner_was_asked_for() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, RRefForkRequest(GloballyUniqueId(0, 1), GloballyUniqueId(0, 2)))
    assert [command for _, _, command in left(workers)] == [
        RRefUserDelete(GloballyUniqueId(32767, 1), GloballyUniqueId(32767, 2))
    ]
