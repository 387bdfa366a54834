"""Headers read strictly: each key with values of every wrong kind, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from rpcinspect.errors import DecodeError
from rpcinspect.rpc.message import MessageType
from rpcinspect.rpclog.header import (
    MAX_TEXT,
    LoggedFailure,
    LoggedMessage,
    LoggedProcess,
    LoggedStorage,
    LoggedWorker,
    read_header,
)
from rpcinspect.tensorpipe.control_types import TpDevice
from rpcinspect.tensorpipe.records import Placement

LEAST = {"rpc": "message", "time_ns": 1, "src": "a", "dst": "b", "type": "PYTHON_CALL", "id": 0, "bytes": 0}


def read(**keys: Any) -> LoggedMessage:
    found = read_header(LEAST | keys)
    assert isinstance(found, LoggedMessage)
    return found


def test_the_least_that_a_message_says() -> None:
    said = read()
    assert (said.type, said.request, said.job, said.way, said.end_ns) == (0x102, True, 0, 0, 1)
    assert read(type="PYTHON_RET").request is False
    assert read(type=0x2FF).request is False
    assert read(type=7).request is True
    assert read(type=7, request=False).request is False
    assert read(job="train").job == "train"
    assert read(what="ever") == said


@pytest.mark.parametrize("kind", MessageType)
def test_types_by_name_and_by_number(kind: MessageType) -> None:
    assert read(type=kind.name) == read(type=int(kind))


@pytest.mark.parametrize("key", ["time_ns", "src", "dst", "type", "id"])
def test_what_must_be_there(key: str) -> None:
    with pytest.raises(DecodeError, match=key):
        read_header({name: value for name, value in LEAST.items() if name != key})


WRONG: dict[str, list[Any]] = {
    "time_ns": [None, "1", 1.5, True, 1 << 63],
    "end_ns": ["1", [], -(1 << 64)],
    "src": [None, "", 1, ["a"], "x" * 5000],
    "dst": [None, "", {}, "x" * 5000],
    "type": [None, "NO_SUCH_TYPE", 1.0, 1 << 31, True, []],
    "id": [None, "0", 1 << 63],
    "request": [1, "true", None],
    "job": [1.5, [], None, 1 << 63, "x" * 5000],
    "way": [None, "1"],
    "side": ["both", 1],
    "bytes": [1, -1, None],
    "payload": [-1, "1", 1],
    "table": [-1, {}],
    "payload_missing": [-1, None],
    "storages": [{}, "x", [None], [-1], [1.0], [True], ["1"], [[]], [{}], [{"length": 1 << 64}], [3]],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in WRONG for value in WRONG[key]])
def test_what_can_not_be(key: str, value: Any) -> None:
    with pytest.raises(DecodeError):
        read(**{key: value})


def storage(**keys: Any) -> LoggedStorage:
    said = {"length": 10} | keys
    missing = said.get("missing", [])
    (found,) = read(bytes=10 - sum(b - a for a, b in missing), storages=[said]).storages
    return found


def test_storages() -> None:
    assert storage() == read(bytes=10, storages=[10]).storages[0] == LoggedStorage(length=10)
    assert storage(source="cuda:1", target="cpu") == LoggedStorage(
        length=10, source=TpDevice("cuda", 1), target=TpDevice("cpu", 0)
    )
    assert storage(missing=[[0, 10]]).placement is Placement.MISSING
    assert storage(missing=[[0, 10]], placement="certain").placement is Placement.CERTAIN
    assert storage(missing=[[0, 10]], placement="uncertain").placement is Placement.UNCERTAIN
    assert storage(missing=[[0, 1], [4, 6]]).present == 7
    assert read(storages=[0]).storages[0].missing == ()


@pytest.mark.parametrize(
    "keys",
    [
        {"missing": [[1, 1]]},
        {"missing": [[5, 11]]},
        {"missing": [[-1, 3]]},
        {"missing": [[4, 6], [5, 7]]},
        {"missing": [[4, 6], [0, 1]]},
        {"placement": "missing"},
        {"placement": "lost"},
        {"placement": ["certain"]},
        {"placement": {}},
        {"placement": None},
        {"placement": "\udc80"},
        {"source": "\ud800"},
        {"source": 7},
        {"target": []},
        {"length": 1 << 60, "missing": [[1, 1 << 60]]},
    ],
)
def test_storages_that_can_not_be(keys: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        storage(**keys)


@pytest.mark.parametrize("missing", [[1], [[1]], [[1, 2, 3]], ["ab"], [[1, 2.0]], [{}], 7])
def test_ranges_that_are_none(missing: Any) -> None:
    with pytest.raises(DecodeError):
        read(bytes=9, storages=[{"length": 10, "missing": missing}])


def test_half_a_character() -> None:
    """Bytes of a name that are no UTF-8 are names; other halves are none, and none is a key."""
    assert read(src="\udc80").src == "\udc80"
    for wrong in (
        {"src": "\ud800"},
        {"job": "\udfff"},
        {"\udc80": 1},
        {"side": "\udc80"},
        {"type": "\udc80"},
    ):
        with pytest.raises(DecodeError):
            read(**wrong)
    with pytest.raises(DecodeError):
        storage(**{"\ud800": 1})


def test_other_kinds() -> None:
    assert read_header({"rpc": "something"}) is None
    assert read_header({"rpc": "worker", "name": "a", "id": 3}) == LoggedWorker(name="a", id=3)
    for wrong in ({"name": 1}, {"id": "1"}, {"group": -1}, {"addresses": "x"}, {"addresses": [1]}):
        with pytest.raises(DecodeError):
            read_header({"rpc": "worker"} | wrong)
    end = {"rpc": "closed", "src": "a", "dst": "b", "by": "src", "time_ns": 1}
    assert read_header(end) is not None
    for wrong in ({"by": "me"}, {"how": "burnt"}, {"time_ns": None}, {"src": ""}):
        with pytest.raises(DecodeError):
            read_header(end | wrong)
    with pytest.raises(DecodeError):
        read_header({"rpc": "lost", "src": "a"})
    process = {"rpc": "process", "name": "a", "how": "unknown"}
    assert read_header(process) == LoggedProcess(name="a", how="unknown")
    for wrong in ({"how": "burnt"}, {"signal": "kill"}, {"signal": "SIG\x1b"}, {"status": "1"}, {"pid": -1}):
        with pytest.raises(DecodeError):
            read_header(process | wrong)


FAILED = {"rpc": "failed", "time_ns": 1, "src": "a", "dst": "b", "id": 7, "reason": "timeout"}


def test_calls_without_an_answer() -> None:
    least = LoggedFailure(time_ns=1, src="a", dst="b", id=7, reason="timeout")
    assert read_header(FAILED) == least
    said = read_header(FAILED | {"type": "PYTHON_CALL", "job": 2, "way": 3, "text": "x" * 20_000, "more": 1})
    assert said == LoggedFailure(
        time_ns=1, src="a", dst="b", id=7, reason="timeout", text="x" * MAX_TEXT, type=0x102, job=2, way=3
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reason", None),
        ("reason", "late"),
        ("text", 1),
        ("id", "7"),
        ("src", ""),
        ("type", "X"),
        ("time_ns", None),
    ],
)
def test_calls_that_can_not_be(key: str, value: Any) -> None:
    with pytest.raises(DecodeError, match=key):
        read_header(FAILED | {key: value})


def test_hashes_in_place_of_bytes() -> None:
    digest = "0123456789abcdef" * 4
    assert read(sha256=[None, digest]).sha256 == (None, digest)
    for wrong in (["x"], [digest.upper()], [digest[1:]], digest, [digest + "\n"], [1]):
        with pytest.raises(DecodeError, match="sha256"):
            read(sha256=wrong)
