"""What edges, RRefs and forks are known from."""

from __future__ import annotations

from rpcinspect.replayer.planning.facts import Carrier, edge_of, read_facts, rrefs_in
from rpcinspect.rpc.command import (
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RRefAck,
    RRefForkRequest,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.types import GloballyUniqueId
from tests.replayer.planning.test_sessions import remote
from tests.replayer.talks import NONE, Workers, record_of


def test_edges_are_those_of_tensors_that_require_grad() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, context=(5, 1), grads=(1, 1))
    workers.call(0, 1, 30, 40, context=(5, 2), grads=(0, 0))
    workers.call(
        0, 1, 50, 60, PropagateGradientsReq(AutogradMetadata(5, 1001), (), False), PropagateGradientsResp()
    )
    facts = read_facts(workers.run())[0]
    assert facts.edges == {
        (5, 1): Carrier(0, False, "w0", "w1"),
        (5, 1001): Carrier(0, True, "w1", "w0"),
    }
    assert dict(facts.gradients) == {(5, 1001): [4]}


def test_rrefs_are_made_by_remote_calls() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 20, *remote(7))
    fetch = PythonRRefFetchCall(1, GloballyUniqueId(0, 7))
    workers.call(2, 1, 30, 40, fetch, PythonRRefFetchRet(tensors=(), serialized_py_obj=NONE))
    workers.call(2, 1, 50, 60, RRefForkRequest(GloballyUniqueId(0, 7), GloballyUniqueId(0, 9)), RRefAck())
    facts = read_facts(workers.run())[0]
    assert facts.makers == {(0, 7): Carrier(0, False, "w0", "w1")}
    assert facts.owners == {(0, 7): "w1"}
    assert facts.forks == {(0, 7): Carrier(0, False, "w0", "w1"), (0, 9): Carrier(4, False, "w2", "w1")}


def test_what_a_message_uses() -> None:
    fetch = record_of(PythonRRefFetchCall(1, GloballyUniqueId(0, 7)))
    assert rrefs_in(fetch) == [(0, 7)]
    assert edge_of(fetch) is None
    assert rrefs_in(record_of(remote(7)[0])) == []
