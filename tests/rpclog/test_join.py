"""Several logs as one session: what counts once, what belongs together, where bytes lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from tests.logs import log_of, message

CALL, RET = "CLEANUP_AUTOGRAD_CONTEXT_REQ", "CLEANUP_AUTOGRAD_CONTEXT_RESP"


def call(**keys: Any) -> bytes:
    return message(kind=CALL, payload=b"\x80\x02K\x00.", **keys)


def ret(**keys: Any) -> bytes:
    return message("worker1", "worker0", RET, **keys)


def read(folder: Path, *logs: Sequence[bytes]) -> tuple[Session, list[RpcRecord], list[bytes]]:
    """The session, its records in the order of time, and the bytes of their storages."""
    paths = []
    for number, records in enumerate(logs):
        paths.append(folder / f"{number}.rpclog")
        paths[-1].write_bytes(log_of(*records))
    with Decoding([str(path) for path in paths]) as decoding:
        records = list(decoding.records())
        session = decoding.session
        ordered = [records[row] for row in session.order.tolist()]
        extents = [t.extent for record in ordered for t in record.tp.tensors if t.extent is not None]
        return session, ordered, [extent.read(decoding.bytes) for extent in extents]


def partners(session: Session) -> list[tuple[int, int | None]]:
    return [(index, session.answers(int(row))) for index, row in enumerate(session.order)]


def test_requests_and_answers(tmp_path: Path) -> None:
    session, _, _ = read(
        tmp_path,
        [
            call(id=1, time_ns=1),
            call(id=1, time_ns=2, job=7),
            call(id=1, time_ns=3, way=4),
            call(src="worker2", id=1, time_ns=4),
            ret(id=1, way=4, time_ns=5),
            ret(id=1, job=7, time_ns=6),
            ret(id=1, time_ns=7),
            ret(id=2, time_ns=8),
        ],
    )
    assert [answers for _, answers in partners(session)] == [None] * 4 + [2, 1, 0, None]
    assert session.jobs == (0, 1, 0, 0)
    assert session.logged


def test_what_both_sides_have_logged_counts_once(tmp_path: Path) -> None:
    both = [call(id=1, time_ns=1), ret(id=1, time_ns=4)]
    later = [call(id=1, time_ns=2), ret(id=1, time_ns=3)]
    session, records, _ = read(tmp_path, both, later)
    assert [record.tp.first_ns for record in records] == [1, 4]
    assert session.totals.problems == 0
    session, records, _ = read(tmp_path, both, later, [*both, call(id=2, time_ns=9)])
    assert [record.tp.first_ns for record in records] == [1, 4, 9]


def test_equal_messages_of_one_log_are_two(tmp_path: Path) -> None:
    twice = [call(id=1, time_ns=1), call(id=1, time_ns=2)]
    assert len(read(tmp_path, twice)[1]) == 2
    assert len(read(tmp_path, twice, twice)[1]) == 2
    assert len(read(tmp_path, twice, [call(id=1, time_ns=3)] * 3)[1]) == 3


def test_a_worker_that_logs_both_sides_of_itself(tmp_path: Path) -> None:
    own = [call(dst="worker0", id=1, side=side, time_ns=n) for n, side in enumerate(["src", "dst"])]
    assert len(read(tmp_path, own)[1]) == 1
    assert len(read(tmp_path, [call(dst="worker0", id=1)] * 2)[1]) == 2


def test_messages_that_differ_are_two(tmp_path: Path) -> None:
    others = [
        call(id=2),
        call(id=1, job=1),
        call(id=1, way=1),
        call(id=1, src="worker9"),
        message(kind=CALL, payload=b"\x80\x02K\x01.", id=1),
    ]
    for other in others:
        assert len(read(tmp_path, [call(id=1)], [other])[1]) == 2


def test_tensors_are_places_in_the_log(tmp_path: Path) -> None:
    storages: list[Any] = [
        3,
        0,
        {"length": 4, "missing": [[0, 4]]},
        {"length": 6, "missing": [[1, 2], [4, 5]]},
        {"length": 2, "missing": [[0, 2]], "placement": "uncertain"},
    ]
    record = message(kind=RET, storages=(b"abcdefg",), storages_=None)
    record = record.replace(b'"storages": [7]', b'"storages": ' + repr(storages).replace("'", '"').encode())
    _, (found,), data = read(tmp_path, [record])
    assert [t.placement.value for t in found.tp.tensors] == ["certain"] * 2 + [
        "missing",
        "certain",
        "uncertain",
    ]
    assert data == [b"abc", b"", b"d\0ef\0g"]
    assert [t.missing_bytes for t in found.tp.tensors] == [0, 0, 4, 2, 0]


def test_a_record_that_can_not_be_is_told(tmp_path: Path) -> None:
    session, records, _ = read(tmp_path, [call(id=1), call(id="x"), message(kind="NOTHING"), call(id=2)])
    assert len(records) == 2
    first, second = session.problems
    assert (first.layer, first.location.offset is None) == ("capture", False)
    assert first.reason == "the record is invalid: Expected `int`, got `str` - at `$.id`"
    assert "type is neither" in second.reason
    assert [f.code for f in session.findings] == []  # answers may be in what is damaged


def test_lost_parts_of_a_message(tmp_path: Path) -> None:
    _, (found,), _ = read(tmp_path, [message(kind=CALL, payload=b"\x80", payload_missing=4, id=3)])
    assert found.tp.payload_missing == (0, 0, 4, 0)
    assert found.rpc.message.id == 3
    assert "4 bytes" in found.problems[0].reason
    assert found.problems[0].location.flow is None


def test_a_message_without_a_table_has_no_tensors(tmp_path: Path) -> None:
    _, (found,), _ = read(tmp_path, [message(kind=RET)])
    assert found.problems == ()
    assert found.rpc.tensors == ()
