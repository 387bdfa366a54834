"""Captured messages with other ids: against the decoder, the comparison of messages, and live workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rpcinspect.equality.ids import AUTOGRAD_MESSAGE, CONTEXT, FORK, RREF, WORKER, IdMap
from rpcinspect.equality.messages import compare_messages, same_payload
from rpcinspect.errors import ReplayError
from rpcinspect.pickles.opcodes import integer
from rpcinspect.pickles.semantic import RRefForkData, python_udf, rref_fork
from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.replayer.peers.loop import Loop, RequestArrived, ResponseArrived
from rpcinspect.replayer.peers.membership import PREFIX, Membership
from rpcinspect.replayer.peers.peer import Peer
from rpcinspect.replayer.peers.store_client import StoreClient
from rpcinspect.replayer.playing.translate import (
    PACKED,
    LiveRecords,
    ids_of,
    learn_own_fork,
    learn_sent,
    translate,
)
from rpcinspect.replayer.workers.live_group import LiveGroup
from rpcinspect.rpc.command import (
    Command,
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    RRefForkRequest,
    ScriptCall,
    UnknownCommand,
)
from rpcinspect.rpc.envelope import AutogradMetadata, RpcWithAutograd
from rpcinspect.rpc.message import NO_TENSORS, MessageType, RpcMessage
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from rpcinspect.rpc.types import GloballyUniqueId, pack_id, unpack_id
from rpcinspect.run.run import RunModel, open_run
from rpcinspect.tcp.ranges import Extent
from tests.equality.builders import STRICT, from_parts, record
from tests.equality.mirrors import mirrored_ids
from tests.places import recorded, recordings
from tests.replayer.captured import captured
from tests.replayer.live_calls import SECONDS, members, python_call, value_of
from tests.replayer.talks import udf
from tests.session.records import tp_message
from tests.thorough import examples
from tests.truth import CAPTURES

ROOT = Path(__file__).resolve().parents[3]
ALL = [path for path in recordings(".", "torch") if "stress" not in path.name]

Move = Callable[[str, int | GloballyUniqueId], int | GloballyUniqueId]


def moved(workers: int, counters: int) -> Move:
    """Ids of a run with other workers, whose counters stand elsewhere."""

    def move(kind: str, value: int | GloballyUniqueId) -> int | GloballyUniqueId:
        if isinstance(value, GloballyUniqueId):
            return GloballyUniqueId(value.created_on + workers, value.local_id + counters)
        if kind in PACKED:
            worker, counter = unpack_id(value)
            return pack_id(worker + workers, counter + counters)
        assert kind == WORKER
        return value + workers

    return move


def id_map(messages: list[RpcRecord], move: Move) -> IdMap:
    """Knows every id of the messages."""
    ids = IdMap()
    for message in messages:
        for kind, value in ids_of(message):
            assert ids.same(kind, value, move(kind, value))
    return ids


def record_of(original: RpcRecord, message: RpcMessage) -> RpcRecord:
    """What the decoder says of another message in the place of a captured one."""
    tp = original.tp
    made = tp_message(tp.pipe, message.to_payloads(), from_client=tp.from_client, tensors=tp.tensors)
    return RecordDecoder().decode(made)


@pytest.fixture(scope="module", params=ALL, ids=lambda path: path.name.partition(".")[0])
def capture(request: pytest.FixtureRequest) -> Iterator[tuple[RunModel, list[RpcRecord]]]:
    """A capture and those of its messages that are whole."""
    with open_run(str(request.param)) as session:
        yield session, [m for m in session.messages if m.tp.payload_missing is None]


def test_without_other_ids_a_message_is_sent_as_captured(
    capture: tuple[RunModel, list[RpcRecord]],
) -> None:
    _, messages = capture
    same = id_map(messages, lambda kind, value: value)
    for message in messages:
        assert translate(message, IdMap()) is message.rpc.message
        assert translate(message, same) is message.rpc.message


SHIFTS = [(0, 1), (3, 0), (5, 300), (300, 70_000), (1, 1 << 40)]
"""Of worker ids and of counters: the last ones need other opcodes."""


@pytest.mark.parametrize(("workers", "counters"), SHIFTS)
def test_these_ids_change_and_nothing_else(
    capture: tuple[RunModel, list[RpcRecord]], workers: int, counters: int
) -> None:
    session, messages = capture
    move = moved(workers, counters)
    ids = id_map(messages, move)
    back = mirrored_ids(ids)
    for message in messages:
        sent = record_of(message, translate(message, ids))
        assert [p.reason for p in sent.problems] == [p.reason for p in message.problems]
        assert ids_of(sent) == [(kind, move(kind, value)) for kind, value in ids_of(message)]
        same = record_of(message, message.rpc.message)  # differs where bytes of tensors were not captured
        unknown = compare_messages(message, same, session.read, session.read, STRICT)
        assert compare_messages(message, sent, session.read, session.read, STRICT, ids) == unknown
        assert translate(sent, back) == message.rpc.message
    assert ids.refused == 0
    assert len(ids) == len(back)


# --- what the captures do not hold --------------------------------------------------------------------------


def rref_node(rref: tuple[int, int], fork: tuple[int, int]) -> PickleCall:
    return PickleCall(Global("torch.distributed.rpc", "rref"), (1, *rref, *fork, 0, "Tensor"))


def test_rrefs_among_the_arguments_of_a_script_call() -> None:
    one, other = rref_node((1, 0), (0, 300)), rref_node((1, 1), (0, 301))
    call = ScriptCall(args=([one, other], one, 300), schema=None, qualified_name="__torch__.f")
    request, _ = record(call)
    ids = IdMap()
    ids.carried(RREF, GloballyUniqueId(1, 0), GloballyUniqueId(1, 7))
    sent = translate(request, ids)
    args = record_of(request, sent).rpc.command.args  # type: ignore[union-attr]
    assert args[0][0] is args[1]
    assert args[2] == 300
    found = [rref_fork(node) for node in args[0]]
    assert found == [
        RRefForkData(1, (1, 7), (0, 300), 0, "Tensor"),
        RRefForkData(1, (1, 1), (0, 301), 0, "Tensor"),
    ]
    assert len(sent.payload) == len(request.rpc.message.payload)
    assert translate(record_of(request, sent), mirrored_ids(ids)) == request.rpc.message


@pytest.mark.parametrize(
    ("module", "expected"), [("torch.distributed.optim.optimizer", 5), ("mine.optimizer", pack_id(1, 0))]
)
def test_the_context_of_an_optimizers_step(module: str, expected: int) -> None:
    context = pack_id(1, 0)
    request, _ = from_parts(python_call(module, "_local_optimizer_step", context, context).to_payloads())
    ids = IdMap()
    ids.same(CONTEXT, context, 5)
    pickle = record_of(request, translate(request, ids)).facts.pickle
    assert pickle is not None
    udf = python_udf(pickle.root)
    assert udf is not None
    assert udf.args == (context, expected)


def gradients(message_id: int) -> RpcRecord:
    return record(PropagateGradientsReq(AutogradMetadata(0, message_id), (), False))[0]


def test_a_number_that_another_thing_has_is_not_sent() -> None:
    ids = IdMap()
    ids.carried(AUTOGRAD_MESSAGE, pack_id(1, 0), pack_id(1, 1))
    assert translate(gradients(pack_id(1, 0)), ids).payload == gradients(pack_id(1, 1)).rpc.message.payload
    with pytest.raises(ReplayError, match=r"autograd-message 1:1 .* is not known .* is 1:0 of the"):
        translate(gradients(pack_id(1, 1)), ids)
    ids.carried(AUTOGRAD_MESSAGE, pack_id(1, 1), pack_id(1, 0))
    assert translate(gradients(pack_id(1, 1)), ids).payload == gradients(pack_id(1, 0)).rpc.message.payload


def test_what_was_sent_is_known_when_it_comes_back() -> None:
    ids = IdMap()
    ids.carried(AUTOGRAD_MESSAGE, pack_id(1, 0), pack_id(1, 1))
    for message in (gradients(pack_id(0, 3)), gradients(pack_id(1, 0))):
        assert translate(message, ids) is not None
        learn_sent(message, ids)
    assert ids.refused == 0
    assert not ids.carried(AUTOGRAD_MESSAGE, pack_id(0, 4), pack_id(0, 3))
    assert not ids.carried(AUTOGRAD_MESSAGE, pack_id(0, 3), pack_id(0, 4))
    assert ids.carried(AUTOGRAD_MESSAGE, pack_id(0, 4), pack_id(0, 4))
    assert ids.translate(AUTOGRAD_MESSAGE, pack_id(1, 0)) == pack_id(1, 1)
    assert (ids.translate(WORKER, 0), ids.translate(CONTEXT, 0)) == (0, 0)


def test_no_id_stays_no_id() -> None:
    ids = IdMap()
    ids.carried(WORKER, 0, 3)
    envelope = RpcWithAutograd(
        message_type=int(MessageType.FORWARD_AUTOGRAD_REQ),
        autograd_metadata=AutogradMetadata(-1, -1),
        from_worker_id=0,
        device_map={},
        wrapped_message_type=int(MessageType.PYTHON_CALL),
    )
    request, _ = record(PythonCall(b"\x80\x04N.", False), envelope)
    assert ids_of(request) == [(WORKER, 0)]
    (sent,) = record_of(request, translate(request, ids)).rpc.envelopes
    assert sent == replace(envelope, from_worker_id=3)


def test_the_rref_in_a_remote_module() -> None:
    """Its numbers are a plain tuple there; the opcode of nothing else is changed."""
    name = "RemoteModuleTest.test_send_remote_module_with_a_new_attribute_not_pickled_over_the_wire"
    with RunModel.open([str(recorded(f"torch-suite/{name}.pcap"))]) as opened:
        request = opened.messages[7]
    (fork,) = request.facts.forks
    assert (fork.rref_id, fork.fork_id, fork.owner_id) == ((0, 0), (0, 2), 1)
    ids = IdMap()
    assert ids.same(FORK, GloballyUniqueId(*fork.fork_id), GloballyUniqueId(0, 40))
    sent = record_of(request, translate(request, ids))
    assert sent.facts.forks == (fork._replace(fork_id=(0, 40)),)
    pickles = [str(one.facts.pickle.root) for one in (request, sent) if one.facts.pickle is not None]
    assert (
        pickles[0].replace("(1, 0, 0, 0, 2, 0, 'PyObject')", "(1, 0, 0, 0, 40, 0, 'PyObject')") == pickles[1]
    )


RREF_OF_ONE_NUMBER = (
    b"\x80\x04cbuiltins\ngetattr\n(ctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
    b"\x8c\x11_py_rref_receivertR(K\x0122222\x8c\x06Tensort\x85R."
)
"""(1, 1, 1, 1, 1, 1, "Tensor") by DUP: CPython never writes that."""
ID_AND_SIZE = (
    b"\x80\x04K\x01\x94"
    + RREF_OF_ONE_NUMBER[2:].replace(b"(K\x0122222", b"(K\x01K\x01h\x00K\x02K\x02K\x01")[:-1]
    + b"\x86."
)
"""A number that is the RRef's local id, by the memo, and an item beside it."""


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (PythonResp(RREF_OF_ONE_NUMBER), "one integer is part of several ids"),
        (PythonResp(ID_AND_SIZE), "an integer is part of an id and of something else"),
        (
            UnknownCommand(int(MessageType.CLEANUP_AUTOGRAD_CONTEXT_REQ), b"\x80\x02\x8a\x01\x05."),
            "not written as",
        ),
    ],
)
def test_what_nobody_but_torch_writes_is_not_changed(command: Command, reason: str) -> None:
    message, _ = record(command)
    assert translate(message, IdMap()) is message.rpc.message
    ids = IdMap()
    ids.same(RREF, GloballyUniqueId(1, 1), GloballyUniqueId(1, 4))
    ids.same(CONTEXT, 5, 6)
    with pytest.raises(ReplayError, match=f"its ids can't be replaced by those of live workers: .*{reason}"):
        translate(message, ids)


# --- a live worker's RRef -----------------------------------------------------------------------------------


@pytest.fixture
def joined(group: LiveGroup) -> Iterator[tuple[Peer, Loop, Membership]]:
    """A played worker0 beside a live worker1."""
    group.start("worker1", 1)
    with (
        StoreClient("127.0.0.1", group.port, prefix=PREFIX, timeout_s=SECONDS) as store,
        Loop() as loop,
    ):
        peer = Peer(loop, "worker0", 0)
        with members(store, [peer]) as membership:
            yield peer, loop, membership


def call_rref(function: str, fork: RRefForkData, *args: int) -> RpcRecord:
    """`rref.local_value().function(*args)`, as `rref.rpc_sync()` would ask the owner for it."""
    integers = (fork.owner_id, *fork.rref_id, *fork.fork_id, fork.parent)
    numbers = (
        b"".join(map(integer, integers)) + b"\x8c" + bytes([len(fork.type_str)]) + fork.type_str.encode()
    )
    pickle = (
        b"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\n"
        b"(ctorch.distributed.rpc.rref_proxy\n_local_invoke\n"
        b"(cbuiltins\ngetattr\n(ctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
        b"\x8c\x11_py_rref_receivertR(" + numbers + b"t\x85R"
        b"\x8c"
        + bytes([len(function)])
        + function.encode()
        + b"("
        + b"".join(map(integer, args))
        + b"t}t}t\x81."
    )
    return record(PythonCall(pickle, False))[0]


def test_an_rref_of_a_live_worker_that_has_another_id_than_captured(
    joined: tuple[Peer, Loop, Membership],
) -> None:
    """Both ids exist in the live worker: the captured one would quietly be the wrong object."""
    peer, loop, membership = joined

    def ask(message: RpcMessage) -> ResponseArrived:
        number = peer.send("worker1", message, timeout_s=SECONDS)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for event in loop.wait(0.5):
                if isinstance(event, ResponseArrived) and event.message.id == number:
                    return event
                if isinstance(event, RequestArrived) and not membership.handle(event):
                    assert event.message.type == MessageType.RREF_CHILD_ACCEPT
                    peer.answer(event, RpcMessage(int(MessageType.RREF_ACK), 0, b"", NO_TENSORS))
        raise AssertionError("no answer")

    make = python_call("torch.distributed.rpc", "RRef", [])
    captured, read = from_parts(ask(make).message.to_payloads())
    live, _ = from_parts(ask(make).message.to_payloads())
    (then,), (now,) = captured.facts.forks, live.facts.forks
    assert then.rref_id != now.rref_id
    ids = IdMap()
    assert compare_messages(captured, live, read, read, STRICT, ids) == []

    # three forks that the played worker0 makes for the owner
    for local, value in enumerate((5, 6, 7)):
        request = call_rref("append", then._replace(fork_id=(0, local), parent=0), value)
        sent = translate(request, ids)
        learn_sent(request, ids)
        (passed,) = record_of(request, sent).facts.forks
        assert passed == now._replace(fork_id=(0, local), parent=0)
        assert value_of(ask(sent)) is None
    assert ids.refused == 0
    length = call_rref("__len__", then._replace(fork_id=(0, 3), parent=0))
    assert value_of(ask(translate(length, ids))) == 3
    untouched = call_rref("__len__", then._replace(fork_id=(0, 4), parent=0))
    assert value_of(ask(untouched.rpc.message)) == 0


def test_a_remote_object_that_a_worker_made_at_itself_gets_other_ids() -> None:
    """The owner has a reference of that id of its own, and may give it to something else."""
    one, two = GloballyUniqueId(1, 5), GloballyUniqueId(1, 6)
    top = (1 << 48) - 1
    others = GloballyUniqueId(1, top - 10), GloballyUniqueId(1, top - 11)
    for fork, (live_rref, live) in ((one, others), (two, (None, None))):
        command = PythonRemoteCall(
            tensors=(),
            serialized_py_obj=udf("app.f"),
            ret_rref_id=one,
            ret_fork_id=fork,
            is_async_execution=False,
        )
        ids = IdMap()
        learn_own_fork(record(command)[0], ids, 5)
        assert ids.translate(FORK, fork) == live
        assert ids.translate(RREF, one) == live_rref


def test_an_rref_that_a_live_worker_has_not_told_of() -> None:
    """Its number may be something else's there: a call that made it may have failed."""
    request, _ = record(RRefForkRequest(GloballyUniqueId(1, 5), GloballyUniqueId(0, 6)))
    assert translate(request, IdMap(), [0]) is request.rpc.message
    with pytest.raises(ReplayError, match="made by a worker that is live here"):
        translate(request, IdMap(), [1])
    ids = IdMap()
    ids.same(RREF, GloballyUniqueId(1, 5), GloballyUniqueId(1, 7))
    translate(request, ids, [1])


@pytest.mark.parametrize("name", ["basic_chain", "profiled_legacy", "rref_relay", "ps_race"])
def test_a_captured_message_that_arrives_is_the_captured_one(name: str) -> None:
    path = min(CAPTURES.glob(f"{name}.pcap*"))
    live = LiveRecords()
    with captured(str(path)) as messages:
        assert messages
        for one in messages:
            extents = [id(tensor.extent) for tensor in one.record.tp.tensors]
            storages = dict(zip(extents, one.tensors, strict=True))

            def read(extent: Extent, storages: dict[int, bytes] = storages) -> bytes:
                return storages[id(extent)]

            came = live.decode(one.message, one.tensors)
            assert same_payload(one.record, came.record)
            assert type(came.record.rpc.command) is type(one.record.rpc.command)
            assert came.record.rpc.envelopes == one.record.rpc.envelopes
            assert came.record.problems == ()
            assert [came.read(t.extent) for t in came.record.tp.tensors if t.extent] == list(one.tensors)
            assert compare_messages(one.record, came.record, read, came.read, STRICT, IdMap()) == []


def test_parts_of_a_storage_can_be_read() -> None:
    table = to_tensor_table(
        [
            TensorMeta(dtype="uint8", sizes=(n,), strides=(1,), storage=i, storage_numel=n)
            for i, n in ((0, 3), (1, 5))
        ]
    )
    message = RpcMessage(int(MessageType.PYTHON_CALL), 7, b"\0" + udf("app.f"), table)
    came = LiveRecords().decode(message, [b"abc", b"defgh"])
    assert isinstance(came.record.rpc.command, PythonCall)
    assert came.read(Extent(4, ((1, 1, 2), (0, 0, 2)))) == b"efab"
    assert came.read(Extent(0, ())) == b""


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from([int(kind) for kind in MessageType] + [0, 9999]),
    st.one_of(st.binary(max_size=60), st.just(b"\0" + udf("app.f"))),
    st.one_of(st.binary(max_size=60), st.just(NO_TENSORS)),
    st.lists(st.binary(max_size=8), max_size=2),
)
def test_damage_becomes_problems(kind: int, payload: bytes, table: bytes, tensors: list[bytes]) -> None:
    """Whatever comes can be decoded, and compared with itself and with what it is not."""
    live = LiveRecords()
    came = live.decode(RpcMessage(kind, 1, payload, table), tensors)
    again = live.decode(RpcMessage(kind, 2, payload, table), tensors)
    good = live.decode(RpcMessage(int(MessageType.PYTHON_CALL), 1, b"\0" + udf("app.f"), NO_TENSORS), [])
    for problem in came.record.problems:
        assert problem.reason
    compare_messages(came.record, again.record, came.read, again.read, STRICT)
    compare_messages(good.record, came.record, good.read, came.read, STRICT)
    compare_messages(came.record, good.record, came.read, good.read, STRICT)
