"""What messages need and bring, as columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.rpc.command import ExceptionResponse, PythonCall, RRefAck, RRefUserDelete
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.session.provenance import (
    LEAST_BYTES,
    MAX_MARKS,
    MAX_NAME,
    SAMPLE,
    Event,
    Provenance,
    What,
    mark_of,
    marks_of,
    tensor_mark,
)
from rpcinspect.tcp.ranges import CaptureBytes, Extent
from tests.replayer.planning.pickled import name, request, rref, tensor
from tests.replayer.talks import Workers
from tests.session.records import Talk


def mark(data: bytes, lost: tuple[tuple[int, int], ...] = ()) -> int | None:
    source = CaptureBytes(lambda capture, offset, length: data[offset : offset + length])
    return tensor_mark(Extent(len(data), ((0, 0, len(data)),), lost), source)


def fed(*commands: PythonCall | RRefUserDelete | RRefAck) -> Provenance:
    talk = Talk()
    for n, command in enumerate(commands):
        talk.say(command, id=n, from_client=not isinstance(command, RRefAck))
    return talk.finish().provenance


def call(*args: object) -> PythonCall:
    return PythonCall(request(name("app", "f"), *args), False)


def test_rrefs_that_messages_bring_and_give_back() -> None:
    gone = RRefUserDelete(GloballyUniqueId(0, 7), GloballyUniqueId(0, 8))
    provenance = fed(call([rref(7, fork=8)], 5), gone)
    assert list(provenance.events()) == [
        Event(What.BROUGHT, 0, (0, 7), (0, 8), 0),
        Event(What.DELETED, 1, (0, 7), (0, 8), -1),
    ]


def test_kinds_repeat() -> None:
    provenance = fed(call(1), call(2), RRefUserDelete(GloballyUniqueId(0, 1), GloballyUniqueId(0, 2)))
    assert [kind.type for kind in provenance.kinds] == [MessageType.PYTHON_CALL, MessageType.RREF_USER_DELETE]
    assert list(provenance.kind) == [0, 0, 1]
    assert provenance.kind_of(0).function == "app.f"


def test_a_call_and_its_answer() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, "app.f", context=(7, 1), grads=(1, 0))
    request, answer = (workers.builder.provenance.kind_of(record.row) for record in workers.records)
    assert (request.type, request.envelopes) == (
        MessageType.PYTHON_CALL,
        (MessageType.FORWARD_AUTOGRAD_REQ,),
    )
    assert (request.autograd, request.grads, request.what) == (True, True, "app.f")
    assert (request.builtin, request.failed, request.elsewhere, request.whole) == (False, False, False, True)
    assert (answer.envelopes, answer.autograd, answer.grads, answer.what) == ((), False, False, "PYTHON_RET")


def test_operators_and_errors() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, "aten::add", ExceptionResponse(b"boom"))
    request, answer = (workers.builder.provenance.kind_of(record.row) for record in workers.records)
    assert (request.builtin, request.what, request.failed) == (True, "aten::add", False)
    assert (answer.failed, answer.what) == (True, "EXCEPTION")


def test_names_that_are_told_are_bounded() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10, f"app.{'f' * 5000}")
    assert len(workers.builder.provenance.kind_of(0).what) == MAX_NAME


def test_values_of_arguments() -> None:
    provenance = fed(call(1, "two", {"key": 3.5}, [b"4", None, True]), call(3.5))
    values = provenance.values([0, 1])
    assert values[0] == {mark_of(1), mark_of("two"), mark_of(3.5), mark_of(b"4")}
    assert values[1] == {mark_of(3.5)}


def test_names_rrefs_and_tensors_are_no_values() -> None:
    provenance = fed(call(name("app", "g"), rref(7), tensor(0)))
    assert provenance.values([0]) == {0: frozenset()}


def test_so_many_values_are_kept() -> None:
    assert len(marks_of([list(range(3 * MAX_MARKS))])) == MAX_MARKS


@given(st.integers() | st.floats(allow_nan=False) | st.text() | st.binary())
def test_equal_values_have_equal_marks(value: int | float | str | bytes) -> None:
    assert mark_of(value) == mark_of(type(value)(value))  # type: ignore[arg-type]


@given(st.integers())
def test_a_number_and_its_text_differ(value: int) -> None:
    assert mark_of(value) != mark_of(str(value))


@given(st.binary(min_size=LEAST_BYTES, max_size=3 * SAMPLE))
def test_equal_bytes_have_equal_marks(data: bytes) -> None:
    assert mark(data) == mark(bytes(bytearray(data)))
    assert (mark(data) is None) == (len(set(data)) == 1)


def test_bytes_that_tell_nothing_have_no_mark() -> None:
    assert mark(b"\1\2\3") is None
    assert mark(b"\1" * 100) is None
    assert mark(bytes(range(100)), ((4, 5),)) is None


def test_other_bytes_and_another_length_differ() -> None:
    assert len({mark(bytes(range(n, n + 20))) for n in range(20)}) == 20
    assert mark(bytes(range(20))) != mark(bytes(range(21)))


@pytest.mark.parametrize("count", [1, MAX_MARKS + 1])
def test_tensors_whose_bytes_are_not_all_known(count: int) -> None:
    """Those of a made-up message are not in its capture."""
    source = CaptureBytes(lambda capture, offset, length: bytes(range(length)))
    provenance = Provenance(source)
    talk = Talk()
    records = [
        talk.say(PythonCall(request(name("app", "f")), False), id=n, tensors=n and count) for n in range(2)
    ]
    for record in records:
        provenance.feed([record])
    assert provenance.opaque([0, 1]) == ([1] if count > MAX_MARKS else [])
    assert provenance.tensors([0, 1]) == {0: frozenset(), 1: frozenset()}
