"""Live requests against captured ones: in any order, with other ids, and with things that are near or far."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.equality.elements import ReadExtent
from rpcinspect.equality.ids import AUTOGRAD_MESSAGE, CONTEXT, FORK, RREF, WORKER, IdMap
from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.planning.model import PlannedSession, Spare
from rpcinspect.replayer.planning.sessions import RoleAssignment
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.matching import MAX_TRIALS, NOTHING_LIKE_IT, Expected
from rpcinspect.replayer.playing.translate import LiveMessage
from rpcinspect.rpc.command import (
    Command,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    PythonRRefFetchCall,
    RRefForkRequest,
    RRefUserDelete,
)
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.questions import context_of, function_of
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.rpc.types import GloballyUniqueId, pack_id
from rpcinspect.run.exchanges import Exchange
from rpcinspect.tcp.ranges import Extent
from tests.equality.builders import record
from tests.replayer.live_calls import python_call
from tests.replayer.talks import Workers, udf
from tests.thorough import examples

LIVE, ROLE = "w1", "w0"
"""Who asks, and who is asked; their ids are 1 and 0."""
NOTHING = Workers(2).run()
STRICT = Rules(strict=True)
FLOAT = TensorMeta(dtype="float32", sizes=(1,), strides=(1,), storage=0, storage_numel=1)


@dataclass
class Side:
    """Requests of one run, with the bytes of their tensors."""

    seen: list[LiveMessage]

    def add(self, command: Command, *envelopes: RpcWithAutograd, value: float | None = None) -> LiveMessage:
        metas = [] if value is None else [FLOAT]
        storages = [] if value is None else [np.float32(value).tobytes()]
        made = LiveMessage(*record(command, *envelopes, metas=metas, storages=storages))
        self.seen.append(made)
        return made

    def calls(self) -> Iterator[Exchange]:
        for index, one in enumerate(self.seen):
            yield Exchange(
                run=NOTHING,
                index=index,
                answer=None,
                job=0,
                caller=LIVE,
                callee=ROLE,
                kind=message_type_of(one.record.rpc.command),
                context=context_of(one.record),
                wrapped=False,
                function=function_of(one.record),
                control=False,
                begin_ns=index,
                arrived_ns=index,
                answered_ns=None,
                end_ns=None,
                request=one.record,
                response=None,
            )


def expected(captured: Side, ids: IdMap | None = None, rules: Rules = STRICT) -> Expected:
    return Expected(inputs(captured, rules, ids), captured.calls(), {})


def reader(captured: Side) -> ReadExtent:
    """One reader for all captured records, as an open session has; extents are told apart as objects."""
    by_extent = {
        id(tensor.extent): one.read
        for one in captured.seen
        for tensor in one.record.tp.tensors
        if tensor.extent is not None
    }

    def read(extent: Extent) -> bytes:
        return by_extent[id(extent)](extent)

    return read


def inputs(captured: Side, rules: Rules, ids: IdMap | None) -> SessionInputs:
    """Of a session in which `ROLE` is played."""
    cast = RoleAssignment(0, (ROLE,), (LIVE,), "")
    numbers = {ROLE: 0, LIVE: 1}
    return SessionInputs(
        planned=PlannedSession(number=0, cast=cast, steps=(), arrivals=(), overlaps=()),
        calls={},
        read=reader(captured),
        rules=rules,
        worker_ids=numbers,
        ids_in_group=numbers,
        ids=ids or workers(),
    )


def workers() -> IdMap:
    """Knows the workers, whose ids are the captured ones."""
    ids = IdMap()
    for number in range(3):
        ids.carried(WORKER, number, number)
    return ids


def call(number: int) -> PythonCall:
    return PythonCall(python_call("app", "f", number).payload[1:], False)


def gradient(context: int, message: int) -> PropagateGradientsReq:
    return PropagateGradientsReq(AutogradMetadata(context, message), (0,), False)


def envelope(context: int, message: int, kind: int = MessageType.PYTHON_CALL) -> RpcWithAutograd:
    return RpcWithAutograd(
        message_type=MessageType.FORWARD_AUTOGRAD_REQ,
        autograd_metadata=AutogradMetadata(context, message),
        from_worker_id=1,
        device_map={},
        wrapped_message_type=kind,
    )


def state(ids: IdMap) -> tuple[int, int]:
    return ids.mark()


ARGUMENTS = st.lists(st.integers(0, 5), min_size=1, max_size=8)


# --- order --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8).flatmap(
        lambda its: st.tuples(st.just(its), st.permutations(its))
    )
)
def test_calls_of_one_function_are_told_by_their_arguments(drawn: tuple[list[int], Sequence[int]]) -> None:
    """In whatever order they come; of equal ones the first is taken."""
    captured, live = Side([]), Side([])
    for number in drawn[0]:
        captured.add(call(number))
    waiting = expected(captured)
    taken: list[int] = []
    for number in drawn[1]:
        match = waiting.match(LIVE, ROLE, live.add(call(number)))
        assert match is not None
        assert match.differences == ()
        same = [i for i, other in enumerate(drawn[0]) if other == number and i not in taken]
        assert match.call.index == same[0]
        taken.append(match.call.index)
    assert waiting.match(LIVE, ROLE, live.add(call(drawn[0][0]))) is None


@settings(max_examples=examples(60), deadline=None)
@given(st.permutations(range(5)), st.integers(0, 1000))
def test_calls_in_a_context_bring_their_edges_with_them(order: Sequence[int], shift: int) -> None:
    """Autograd messages are numbered as they are sent: another order gives other numbers."""
    captured, live, ids = Side([]), Side([]), workers()
    context = pack_id(0, 1)
    for number in range(5):
        captured.add(call(number), envelope(context, pack_id(1, number)))
    waiting = expected(captured, ids)
    for place, number in enumerate(order):
        match = waiting.match(
            LIVE, ROLE, live.add(call(number), envelope(context, pack_id(1, shift + place)))
        )
        assert match is not None
        assert (match.call.index, match.differences) == (number, ())
        assert ids.translate(AUTOGRAD_MESSAGE, pack_id(1, number)) == pack_id(1, shift + place)
    assert ids.refused == 0


@settings(max_examples=examples(60), deadline=None)
@given(st.permutations(range(6)), st.permutations(range(6)), st.booleans())
def test_gradients_never_cross_their_edges(
    live_numbers: Sequence[int], order: Sequence[int], same: bool
) -> None:
    """Also if all of them have the same bytes, and if the bytes are another edge's."""
    captured, live, ids = Side([]), Side([]), workers()
    context = pack_id(0, 3)
    for edge in range(6):
        captured.add(gradient(context, pack_id(1, edge)), value=0.5 if same else edge)
        assert ids.same(AUTOGRAD_MESSAGE, pack_id(1, edge), pack_id(1, live_numbers[edge]))
    waiting = expected(captured, ids)
    for edge in order:
        value = 0.5 if same else (edge + 1) % 6
        came = live.add(gradient(context, pack_id(1, live_numbers[edge])), value=value)
        match = waiting.match(LIVE, ROLE, came)
        assert match is not None
        assert match.call.index == edge
        assert [one.code for one in match.differences] == ([] if same else ["value"])
    assert ids.refused == 0


def test_a_gradient_of_another_edge_is_none_of_those() -> None:
    captured, live, ids = Side([]), Side([]), workers()
    context = pack_id(0, 3)
    captured.add(gradient(context, pack_id(1, 7)), value=1.0)
    assert ids.same(AUTOGRAD_MESSAGE, pack_id(1, 7), pack_id(1, 20))
    assert ids.same(AUTOGRAD_MESSAGE, pack_id(1, 8), pack_id(1, 21))
    waiting, before = expected(captured, ids), state(ids)
    for number in (21, 22):  # of another captured edge, and of none that is known
        came = live.add(gradient(context, pack_id(1, number)), value=1.0)
        assert waiting.match(LIVE, ROLE, came) is None
        assert state(ids) == before
        assert ids.translate_back(AUTOGRAD_MESSAGE, pack_id(1, 22)) is None
    match = waiting.match(LIVE, ROLE, live.add(gradient(context, pack_id(1, 20)), value=2.0))
    assert match is not None


def test_several_gradients_of_one_edge_are_told_by_their_bytes() -> None:
    """As with retain_graph, and two passes."""
    captured, live, ids = Side([]), Side([]), workers()
    context, edge = pack_id(0, 3), pack_id(1, 7)
    for value in (1.0, 2.0, 3.0):
        captured.add(gradient(context, edge), value=value)
    waiting = expected(captured, ids)
    found = [
        waiting.match(LIVE, ROLE, live.add(gradient(context, edge), value=value)) for value in (3.0, 1.0, 2.0)
    ]
    assert [one.call.index for one in found if one is not None] == [2, 0, 1]


def test_contexts_of_played_workers_are_told_apart() -> None:
    captured, live = Side([]), Side([])
    for counter in (1, 2):
        captured.add(call(0), envelope(pack_id(0, counter), pack_id(1, counter)))
    waiting = expected(captured)
    match = waiting.match(LIVE, ROLE, live.add(call(0), envelope(pack_id(0, 2), pack_id(1, 9))))
    assert match is not None
    assert match.call.index == 1


def test_contexts_of_live_workers_have_other_ids() -> None:
    captured, live, ids = Side([]), Side([]), workers()
    captured.add(call(0), envelope(pack_id(1, 5), pack_id(1, 1)))
    match = expected(captured, ids).match(
        LIVE, ROLE, live.add(call(0), envelope(pack_id(1, 6), pack_id(1, 2)))
    )
    assert match is not None
    assert ids.translate(CONTEXT, pack_id(1, 5)) == pack_id(1, 6)


# --- ids ----------------------------------------------------------------------------------------------------


def guid(worker: int, number: int) -> GloballyUniqueId:
    return GloballyUniqueId(worker, number)


def remote_call(made: GloballyUniqueId, function: str = "app.f") -> PythonRemoteCall:
    return PythonRemoteCall(
        tensors=(),
        ret_rref_id=made,
        ret_fork_id=made,
        serialized_py_obj=udf(function),
        is_async_execution=False,
    )


@settings(max_examples=examples(60), deadline=None)
@given(st.permutations(range(5)), st.permutations(range(5)))
def test_ids_are_learned_from_the_pair_that_was_chosen_and_from_no_other(
    order: Sequence[int], numbers: Sequence[int]
) -> None:
    captured, live, ids = Side([]), Side([]), workers()
    for n in range(5):
        captured.add(remote_call(guid(1, n), f"app.f{n % 2}"))
    remote = expected(captured, ids)
    for n in order:
        known = len(ids)
        made = guid(1, 100 + numbers[n])
        came = live.add(remote_call(made, f"app.f{n % 2}"))
        match = remote.match(LIVE, ROLE, came)
        assert match is not None
        assert len(ids) == known + 2
        first = guid(1, match.call.index)
        assert ids.translate(RREF, first) == ids.translate(FORK, first) == made
    assert ids.refused == 0


@settings(max_examples=examples(60), deadline=None)
@given(st.permutations(range(5)), st.data())
def test_a_failed_match_leaves_no_trace(order: Sequence[int], data: st.DataObject) -> None:
    """Deletes of forks of which some are known: the others never take their places."""
    captured, live, ids = Side([]), Side([]), workers()
    known = data.draw(st.sets(st.integers(0, 4)))
    for n in range(5):
        captured.add(RRefUserDelete(guid(0, n), guid(1, n)))
    for n in known:
        assert ids.same(FORK, guid(1, n), guid(1, 50 + n))
    waiting = expected(captured, ids)
    before = state(ids)
    assert waiting.match(LIVE, ROLE, live.add(PythonRRefFetchCall(1, guid(0, 0)))) is None
    assert waiting.match("w9", ROLE, live.add(RRefUserDelete(guid(0, 0), guid(1, 50)))) is None
    assert state(ids) == before
    for n in order:
        assert ids.same(RREF, guid(0, n), guid(0, n))
        match = waiting.match(LIVE, ROLE, live.add(RRefUserDelete(guid(0, n), guid(1, 50 + n))))
        assert match is not None
        assert match.call.index == n
    assert ids.refused == 0


def test_an_rref_that_is_another_one_is_a_difference_of_a_call_and_not_learned() -> None:
    captured, live, ids = Side([]), Side([]), workers()
    captured.add(remote_call(guid(1, 1)))
    assert ids.same(RREF, guid(1, 1), guid(1, 30))
    came = live.add(remote_call(guid(1, 40)))
    match = expected(captured, ids).match(LIVE, ROLE, came)
    assert match is not None
    assert [one.path for one in match.differences] == ["rref_id"]
    assert ids.translate(RREF, guid(1, 1)) == guid(1, 30)
    assert ids.translate_back(RREF, guid(1, 40)) is None


# --- near and far -------------------------------------------------------------------------------------------


def test_the_nearest_is_taken_where_none_is_equal() -> None:
    """Rounding is nearer than another value, whatever comes first."""
    captured, live = Side([]), Side([])
    values = [1.0, 2.0, 3.0]
    for value in values:
        captured.add(PythonCall(udf("app.f"), False), value=value)
    waiting = expected(captured)
    for index in (2, 0, 1):
        value = float(np.nextafter(np.float32(values[index]), np.float32(9)))
        match = waiting.match(LIVE, ROLE, live.add(PythonCall(udf("app.f"), False), value=value))
        assert match is not None
        assert match.call.index == index
        assert [one.code for one in match.differences] == ["ulp"]


def test_what_is_within_the_tolerance_is_nearer_than_what_is_not() -> None:
    captured, live = Side([]), Side([])
    for value in (1.0, 2.0):
        captured.add(PythonCall(udf("app.f"), False), value=value)
    waiting = expected(captured, rules=Rules(strict=True, rtol=0.1, atol=0.0))
    match = waiting.match(LIVE, ROLE, live.add(PythonCall(udf("app.f"), False), value=2.1))
    assert match is not None
    assert match.call.index == 1
    assert [one.tolerated for one in match.differences] == [True]


@pytest.mark.parametrize(
    ("sender", "role", "function"), [("w0", "w1", "f"), ("", ROLE, "f"), (LIVE, "w7", "f"), (LIVE, ROLE, "g")]
)
def test_other_workers_and_other_functions_are_no_match(sender: str, role: str, function: str) -> None:
    captured, live = Side([]), Side([])
    captured.add(PythonCall(udf("app.f"), False))
    came = live.add(PythonCall(udf(f"app.{function}"), False))
    assert expected(captured).match(sender, role, came) is None


def test_nothing_is_expected() -> None:
    assert expected(Side([])).match(LIVE, ROLE, Side([]).add(call(1))) is None


# --- what the plan does not expect --------------------------------------------------------------------------


def spread(
    captured: Side, planned: Sequence[int], like: Sequence[int] = (), ids: IdMap | None = None
) -> Expected:
    """Of the captured ones those that are planned, those that may be, and all others."""
    calls = list(captured.calls())
    equal = [one for one in calls if one.index not in (*planned, *like)]
    spare: dict[Spare, list[Exchange]] = {"like": [calls[n] for n in like], "equal": equal}
    its = [calls[n] for n in planned]
    return Expected(inputs(captured, STRICT, ids), its, spare)


def taken(waiting: Expected, came: LiveMessage) -> int | None:
    match = waiting.match(LIVE, ROLE, came)
    return None if match is None else match.call.index


def test_an_equal_one_is_it_whoever_caused_it_but_first_one_that_is_expected() -> None:
    captured, live = Side([]), Side([])
    for number in (4, 5, 4, 4):
        captured.add(call(number))
    waiting = spread(captured, planned=[3], like=[2])
    assert [taken(waiting, live.add(call(4))) for _ in range(4)] == [3, 2, 0, None]
    assert taken(waiting, live.add(call(5))) == 1


def test_what_is_left_out_is_never_the_nearest_but_where_it_may_be_meant() -> None:
    captured, live = Side([]), Side([])
    for number in (1, 2):
        captured.add(call(number))
    surely_left_out = spread(captured, planned=[])
    assert taken(surely_left_out, live.add(call(3))) is None
    assert "#0, #1" in surely_left_out.why_not(LIVE, ROLE, live.seen[-1])
    doubtful = spread(captured, planned=[], like=[1])
    assert taken(doubtful, live.add(call(3))) == 1
    expected_too = spread(captured, planned=[0], like=[1])
    assert taken(expected_too, live.add(call(3))) == 0


def test_an_equal_one_that_an_unlike_request_was_taken_for_before() -> None:
    """Two at once, of which the wrong one comes first: the right one is told nevertheless, once."""
    captured, live = Side([]), Side([])
    captured.add(call(4))
    waiting = spread(captured, planned=[0])
    assert [taken(waiting, live.add(call(number))) for number in (9, 4, 4, 9)] == [0, 0, None, None]
    assert "1 of its kind" in waiting.why_not(LIVE, ROLE, live.seen[-1])


def test_two_equal_requests_at_once_are_two_captured_ones() -> None:
    captured, live = Side([]), Side([])
    captured.add(call(4))
    captured.add(call(4))
    waiting = spread(captured, planned=[0])
    assert [taken(waiting, live.add(call(4))) for _ in range(3)] == [0, 1, None]
    assert waiting.why_not(LIVE, ROLE, live.seen[-1]).startswith("2 of its kind")
    assert waiting.why_not("w9", ROLE, live.seen[-1]) == NOTHING_LIKE_IT


def test_gradients_that_are_left_out_are_told_by_their_edge_and_by_nothing_else() -> None:
    captured, live, ids = Side([]), Side([]), workers()
    context = pack_id(0, 3)
    for edge in (7, 8):
        captured.add(gradient(context, pack_id(1, edge)), value=1.0)
    waiting = spread(captured, planned=[], ids=ids)
    unknown = live.add(gradient(context, pack_id(1, 21)), value=1.0)
    assert taken(waiting, unknown) is None  # whichever it is
    assert ids.same(AUTOGRAD_MESSAGE, pack_id(1, 8), pack_id(1, 21))
    match = waiting.match(LIVE, ROLE, live.add(gradient(context, pack_id(1, 21)), value=2.0))
    assert match is not None
    assert (match.call.index, [one.code for one in match.differences]) == (1, ["value"])
    assert "none is about the same id" in waiting.why_not(LIVE, ROLE, unknown)


# --- many ---------------------------------------------------------------------------------------------------

MANY = 4 * MAX_TRIALS


def commands(kind: str, ids: IdMap) -> list[Command]:
    made: list[Command] = []
    for n in range(MANY):
        if kind == "calls":
            made.append(call(n))
        elif kind == "gradients":
            assert ids.same(AUTOGRAD_MESSAGE, pack_id(1, n), pack_id(1, n))
            made.append(gradient(pack_id(0, 1), pack_id(1, n)))
        elif kind == "deletes":
            assert ids.same(FORK, guid(1, n), guid(1, n))
            made.append(RRefUserDelete(guid(0, n), guid(1, n)))
        else:
            made.append(RRefForkRequest(guid(0, n), guid(2, n)))
            assert ids.same(FORK, guid(2, n), guid(2, n))
    return made


@pytest.mark.parametrize("kind", ["calls", "gradients", "deletes", "forks"])
@pytest.mark.parametrize("order", ["as captured", "backwards", "without the first"])
def test_thousands_are_matched_in_any_order(kind: str, order: str) -> None:
    """More than are ever tried one by one, some of which never come."""
    captured, ids = Side([]), workers()
    for command in commands(kind, ids):
        captured.add(command, value=1.0 if kind == "gradients" else None)
    waiting = expected(captured, ids)
    which = list(range(MANY))
    which = {"as captured": which, "backwards": which[::-1]}.get(order, which[2 * MAX_TRIALS :])
    came = [captured.seen[n] for n in which]
    began = time.process_time()
    found = [waiting.match(LIVE, ROLE, one) for one in came]
    took = time.process_time() - began
    assert [one.call.index for one in found if one is not None] == which
    assert took < MANY / 1000, f"{took:.1f} s"


def test_an_equal_one_is_found_among_thousands_with_other_ids() -> None:
    """Its bytes differ, so that it is told by its values: they come before the order."""
    captured, live = Side([]), Side([])
    for n in range(MANY):
        captured.add(PythonCall(rref_call(n, 5000 + n), False))
    waiting = expected(captured)
    for n in (MANY - 1, MAX_TRIALS, 0):
        assert taken(waiting, live.add(PythonCall(rref_call(n, 100_000 + n), False))) == n


def rref_call(number: int, local: int) -> bytes:
    """`app.f(number, rref)` with this RRef's id, and its fork's, of the live worker."""
    return (
        b"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\n(capp\nf\n(I%d\n"
        b"cbuiltins\ngetattr\n(ctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
        b"\x8c\x11_py_rref_receivertR((I1\nI1\nI%d\nI1\nI%d\nI1\n\x8c\x06TensorttRt}t\x81."
    ) % (number, local, local)


def test_what_is_unlike_anything_costs_a_bounded_number_of_comparisons() -> None:
    captured, live = Side([]), Side([])
    for n in range(MANY):
        captured.add(call(n))
    waiting = expected(captured)
    began = time.perf_counter()
    for n in itertools.islice(itertools.count(-1, -1), 5):
        assert waiting.match(LIVE, ROLE, live.add(call(n))) is not None
    assert time.perf_counter() - began < 5.0
