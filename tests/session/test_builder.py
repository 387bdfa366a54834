"""What a session makes of records."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.problems import Location, Problem
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonRRefFetchCall,
    RemoteRet,
    RRefAck,
    RRefBackwardReq,
    RRefChildAccept,
    RRefForkRequest,
    RRefUserDelete,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    UnknownCommand,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.rpc.types import GloballyUniqueId, pack_id
from rpcinspect.rpclog.header import LoggedFailure
from rpcinspect.session.builder import MAX_SUM
from rpcinspect.session.model import NONE, Fork, Session
from rpcinspect.session.workers import resolve_workers
from rpcinspect.tensorpipe.records import Placement
from tests.session.records import Talk, entry, pipe, tp_message, tp_tensor
from tests.thorough import examples

CALL = ScriptCall(args=(1,), schema=None, qualified_name="__torch__.f")
ANSWER = ScriptResp(1)
ID = GloballyUniqueId


def partners(session: Session) -> list[int | None]:
    return [session.answers(row) for row in range(len(session.messages))]


# --- exchanges ---


def test_an_answer_belongs_to_the_request_with_its_id() -> None:
    talk = Talk()
    for number in (5, 6, 7):
        talk.say(CALL, id=number)
    for number in (7, 5):
        talk.say(ANSWER, id=number, from_client=False)
    session = talk.finish()
    assert partners(session) == [None, None, None, 2, 0]
    assert list(session.messages.partner) == [4, NONE, 3, 2, 0]


def test_answers_may_be_complete_before_their_requests() -> None:
    talk = Talk()
    talk.say(ANSWER, id=5, from_client=False, time_ns=20)
    talk.say(CALL, id=5, time_ns=10)
    session = talk.finish()
    assert partners(session) == [0, None]  # by index: the request is first in time
    assert list(session.index) == [1, 0]


def test_equal_ids_on_two_pipes_are_two_exchanges() -> None:
    talk = Talk(pipe(), pipe(1, "10.0.0.3:1"))
    talk.say(CALL, id=5)
    talk.say(CALL, id=5, pipe=1)
    talk.say(ANSWER, id=5, pipe=1, from_client=False)
    assert partners(talk.finish()) == [None, None, 1]


def test_a_repeated_id_is_answered_once() -> None:
    talk = Talk()
    for _ in range(2):
        talk.say(CALL, id=5)
    for _ in range(2):
        talk.say(ANSWER, id=5, from_client=False)
    session = talk.finish()
    assert partners(session) == [None, None, 1, None]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 5)), max_size=40))
@settings(max_examples=examples(80), deadline=None)
def test_partners_are_mutual(talks: list[tuple[int, bool, int]]) -> None:
    talk = Talk()
    for number, from_client, time_ns in talks:
        talk.say(CALL if from_client else ANSWER, id=number, from_client=from_client, time_ns=time_ns)
    session = talk.finish()
    columns = session.messages
    for row, partner in enumerate(columns.partner):
        if partner != NONE:
            assert columns.partner[partner] == row
            assert columns.from_client[partner] != columns.from_client[row]
            assert columns.id[partner] == columns.id[row]
    assert sorted(session.order.tolist()) == list(range(len(talks)))
    times = [columns.time_ns[row] for row in session.order]
    assert times == sorted(times)


def test_indexes_may_count_completions() -> None:
    talk = Talk()
    talk.say(CALL, id=1, time_ns=50)
    talk.say(CALL, id=2, time_ns=10)
    assert talk.finish(by_completion=True).order.tolist() == [0, 1]


@pytest.mark.parametrize("kind", [0, 0x3C, 0x1FF, 0x2FF, -1, 2**31 - 1, -(2**31)])
def test_types_that_nobody_knows(kind: int) -> None:
    talk = Talk()
    talk.say(UnknownCommand(kind, b"payload"), id=-(2**63))
    talk.say(UnknownCommand(kind, b""), id=2**63 - 1)
    session = talk.finish()
    assert list(session.totals.by_type.values()) == [2]


# --- sums ---


def test_missing_bytes_of_all_tensors_and_payloads_count() -> None:
    talk = Talk()
    tensors = [tp_tensor(10, missing=3), tp_tensor(7, Placement.MISSING), tp_tensor(9, Placement.UNCERTAIN)]
    payloads = [b"\x02\x01\0\0", bytes(8), b"", b""]
    talk.feed(tp_message(talk.pipes[0], payloads, tensors=tensors, missing=[0, 0, 4, 5]))
    talk.feed(tp_message(talk.pipes[0], payloads, tensors=[tp_tensor(5)]))
    session = talk.finish()
    assert session.totals.missing_bytes == 3 + 7 + 4 + 5


def test_absurd_sums_stay_numbers_of_64_bits() -> None:
    talk = Talk()
    payloads = [b"\x02\x01\0\0", bytes(8), b"", b""]
    for _ in range(3):
        talk.feed(tp_message(talk.pipes[0], payloads, tensors=[tp_tensor(2**64 - 1, Placement.MISSING)]))
    assert talk.finish().totals.missing_bytes == MAX_SUM


def test_problems_of_messages_and_of_the_capture_count() -> None:
    talk = Talk()
    talk.feed(tp_message(talk.pipes[0], [b"one payload"]))
    place = Location()
    session = talk.builder.finish(
        captures=[],
        pipes=talk.pipes,
        identities=resolve_workers(talk.pipes, [], talk.builder.evidence),
        problems=[Problem("tcp", "x", place)],
        sums=(1, 2, 3, 4),
    )
    assert session.totals.problems == 2
    assert len(session.problems) == 1
    sums = session.totals
    assert (sums.rpc_bytes, sums.tensor_bytes, sums.skipped_bytes, sums.store_bytes) == (1, 2, 3, 4)


def test_nothing_at_all() -> None:
    session = Talk().finish()
    assert session.totals.messages == 0
    assert session.contexts == session.rrefs == ()


# --- autograd ---

CONTEXT, EDGE, BACK = pack_id(0, 1), pack_id(0, 5), pack_id(1, 9)
NAMES = (
    entry("names/0", "w0"),
    entry("names/1", "w1"),
    entry("addrs/w0", "uv://10.0.0.1:4000"),
    entry("addrs/w1", "uv://10.0.0.2:5000"),
)


def gradients(edge: int, *, context: int = CONTEXT) -> PropagateGradientsReq:
    return PropagateGradientsReq(AutogradMetadata(context, edge), (), False)


def autograd_talk() -> Talk:
    """w0 calls w1 with two gradients, gets one back; both directions are propagated; the context ends."""
    talk = Talk(pipe(name="w0"), pipe(1, "10.0.0.2:900", "10.0.0.1:4000", name="w1"))
    talk.say(CALL, id=1, autograd=(CONTEXT, EDGE, 0), tensors=2)
    talk.say(ANSWER, id=1, from_client=False, autograd=(CONTEXT, BACK, 1), tensors=1)
    talk.say(gradients(BACK), id=2)
    talk.say(PropagateGradientsResp(), id=2, from_client=False)
    talk.say(gradients(EDGE), id=3, pipe=1)
    talk.say(CleanupAutogradContextReq(CONTEXT), id=4)
    talk.say(CleanupAutogradContextResp(), id=4, from_client=False)
    return talk


def test_a_context_has_its_edges_and_its_end() -> None:
    [context] = autograd_talk().finish(*NAMES).contexts
    assert (context.context_id, context.creator, context.cleanup) == (CONTEXT, "w0", (5,))
    assert context.workers == ("w0", "w1")
    first, second = context.edges
    assert (first.autograd_message_id, first.sender, first.receiver) == (EDGE, "w0", "w1")
    assert (first.forward, first.tensors_requiring_grad, first.backward) == (0, 2, (4,))
    assert (second.autograd_message_id, second.sender, second.receiver) == (BACK, "w1", "w0")
    assert (second.forward, second.tensors_requiring_grad, second.backward) == (1, 1, (2,))


def test_a_message_without_gradients_is_no_edge() -> None:
    talk = Talk(pipe(name="w0"))
    talk.say(CALL, id=1, autograd=(CONTEXT, EDGE, 0))
    [context] = talk.finish(*NAMES).contexts
    assert context.edges == ()
    assert context.workers == ("w0", "w1")


def test_contexts_are_known_by_any_message() -> None:
    talk = Talk()
    talk.say(RRefBackwardReq(ID(1, 1), pack_id(3, 3), False))
    talk.say(CleanupAutogradContextReq(pack_id(2, 2)))
    talk.say(gradients(EDGE, context=pack_id(1, 1)))
    talk.say(CALL, autograd=(-1, -1, -1))
    contexts = talk.finish().contexts
    assert [c.context_id for c in contexts] == [pack_id(1, 1), pack_id(2, 2), pack_id(3, 3), -1]
    assert contexts[0].creator == "worker:1"


def test_the_sender_of_an_envelope_is_a_witness() -> None:
    talk = Talk(pipe(name="w0"))
    talk.say(CALL, autograd=(CONTEXT, EDGE, 3))
    talk.say(ANSWER, from_client=False, autograd=(CONTEXT, BACK, 4))
    talk.say(PythonRRefFetchCall(4, ID(0, 1)))
    session = talk.finish()
    assert session.clients == ("w0",)
    assert session.servers == ("worker:4",)
    assert {w.name: w.id for w in session.workers} == {"w0": 3, None: 4}


def test_repeated_autograd_ids_cost_linear_time() -> None:
    talk = Talk()
    for _ in range(700):
        talk.say(CALL, autograd=(CONTEXT, EDGE, 0), tensors=1)
        talk.say(gradients(EDGE))
    start = time.process_time()
    [context] = talk.finish().contexts
    assert time.process_time() - start < 1.5
    assert [len(edge.backward) for edge in context.edges] == [700] + [0] * 699


# --- RRefs ---

RREF, MINE, OTHER = ID(0, 1), ID(0, 2), ID(2, 7)


def fork_in(fork: GloballyUniqueId, *, owner: int = 1, parent: int = 0) -> PickleCall:
    """An RRef inside the arguments of a TorchScript call."""
    args = (owner, RREF.created_on, RREF.local_id, fork.created_on, fork.local_id, parent, "Tensor")
    return PickleCall(Global("torch.distributed.rpc", "rref"), args)


def carry(fork: GloballyUniqueId) -> ScriptCall:
    return ScriptCall(args=(fork_in(fork),), schema=None, qualified_name="__torch__.f")


def remote() -> ScriptRemoteCall:
    return ScriptRemoteCall(
        args=(), schema=None, qualified_name="__torch__.f", ret_rref_id=RREF, ret_fork_id=MINE
    )


def rref_talk() -> Talk:
    """w0 makes an RRef on w1, gives a fork to w2; w2 tells the owner."""
    talk = Talk(
        pipe(0, "10.0.0.1:1", "10.0.0.2:5000", "w0"),
        pipe(1, "10.0.0.1:2", "10.0.0.3:6000", "w0"),
        pipe(2, "10.0.0.3:3", "10.0.0.2:5000", "w2"),
    )
    talk.say(remote(), id=1)
    talk.say(RemoteRet(RREF, MINE), id=1, from_client=False)
    talk.say(carry(OTHER), id=2, pipe=1)
    talk.say(RRefForkRequest(RREF, OTHER), id=1, pipe=2)
    talk.say(RRefAck(), id=1, pipe=2, from_client=False)
    talk.say(RRefChildAccept(OTHER), id=3, pipe=1)
    return talk


def ids(forks: Iterable[Fork]) -> list[GloballyUniqueId]:
    return [GloballyUniqueId(*fork.fork_id) for fork in forks]


def test_forks_live_until_they_are_deleted() -> None:
    talk = rref_talk()
    [rref] = talk.finish(*NAMES).rrefs
    assert (rref.rref_id, rref.owner) == (RREF.to_value(), "w1")
    assert ids(rref.forks) == ids(rref.alive) == [MINE, OTHER]
    talk.say(RRefUserDelete(RREF, OTHER), id=2, pipe=2)
    [rref] = talk.finish(*NAMES).rrefs
    assert ([fork.state for fork in rref.forks], ids(rref.alive)) == (["alive", "deleted"], [MINE])


def test_a_fork_that_was_carried_to_the_owner_is_not_alive() -> None:
    talk = rref_talk()
    home = ID(0, 9)
    talk.say(carry(home), id=5)  # on the pipe to w1, the owner
    [rref] = talk.finish(*NAMES).rrefs
    assert home in ids(rref.forks)
    assert home not in ids(rref.alive)


def test_the_owner_may_be_known_by_its_id_only() -> None:
    talk = Talk(pipe(name="w0"))
    talk.say(carry(OTHER))
    [rref] = talk.finish().rrefs
    assert rref.owner == "worker:1"
    assert ids(rref.alive) == [OTHER]


def test_a_delete_alone_makes_an_rref() -> None:
    talk = Talk()
    talk.say(RRefUserDelete(RREF, OTHER))
    [rref] = talk.finish().rrefs
    assert (rref.owner, ids(rref.forks), rref.alive) == ("10.0.0.2:5000", [OTHER], ())
    assert rref.forks[0].deleted == 0


@pytest.mark.parametrize("number", [2**62, -(2**63), 2**63 - 1])
def test_any_ids(number: int) -> None:
    talk = Talk()
    worker = max(-(1 << 15), min(number, (1 << 15) - 1))
    talk.say(RRefUserDelete(ID(worker, number), ID(worker, 0)))
    talk.say(RRefForkRequest(RREF, ID(-1, number)))
    assert len(talk.finish().rrefs) == 2


def test_many_rrefs_take_linear_time() -> None:
    talk = Talk()
    for number in range(4000):
        talk.say(RRefForkRequest(ID(0, number // 2), ID(1, number)))
    start = time.process_time()
    assert len(talk.finish().rrefs) == 2000
    assert time.process_time() - start < 3


# --- calls that ended without an answer ---


def test_failures_belong_to_the_last_request_before_them() -> None:
    talk = Talk()
    for time_ns in (10, 20, 30):
        talk.say(CALL, id=5, time_ns=time_ns)
    talk.say(ANSWER, id=5, from_client=False, time_ns=40)
    said = [
        LoggedFailure(time_ns=time_ns, src="a", dst="b", id=number, reason="timeout", text=str(time_ns))
        for time_ns, number in ((25, 5), (15, 5), (9, 5), (50, 6), (26, 5))
    ]
    session = talk.finish(failed=[(0, failure) for failure in said])
    assert {row: failure.text for row, failure in session.failures.items()} == {0: "15", 1: "25"}
    assert [failure.text for failure in session.lost_calls] == ["9", "50"]
    assert session.failures[0].type == session.messages.type[0]
