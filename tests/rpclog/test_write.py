"""Every record that is written is read as the same."""

from __future__ import annotations

import json
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.rpclog import write
from rpcinspect.rpclog.header import (
    LoggedEnd,
    LoggedFailure,
    LoggedLoss,
    LoggedMessage,
    LoggedProcess,
    LoggedStorage,
    LoggedWorker,
    Reason,
    read_header,
)
from rpcinspect.tensorpipe.control_types import TpDevice
from rpcinspect.tensorpipe.records import Placement

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SIZE = st.integers(0, 1 << 40)
NAME = st.text(min_size=1, max_size=20)
JOB = st.one_of(INT64, st.text(max_size=5))
DEVICE = st.builds(TpDevice, st.sampled_from(["cpu", "cuda", "a:b", ""]), st.integers(-1, 99))


def storages() -> st.SearchStrategy[LoggedStorage]:
    def made(length: int, gone: bool, cut: int, placement: Placement, a: TpDevice, b: TpDevice | None) -> Any:
        missing: tuple[tuple[int, int], ...] = ()
        if length and gone:
            missing = ((0, length),)
        elif 0 < cut < length:
            missing, placement = ((0, cut),), Placement.CERTAIN
        elif length:
            placement = Placement.CERTAIN
        return LoggedStorage(length=length, missing=missing, placement=placement, source=a, target=b)

    small = st.integers(0, 1000)
    return st.builds(
        made, small, st.booleans(), small, st.sampled_from(Placement), DEVICE, st.none() | DEVICE
    )


MESSAGES = st.builds(
    LoggedMessage,
    time_ns=st.integers(0, 5),
    end_ns=st.integers(5, 9),
    src=NAME,
    dst=NAME,
    type=st.sampled_from([0x102, 0x203, 7, -1]),
    id=INT64,
    request=st.booleans(),
    job=JOB,
    way=INT64,
    side=st.sampled_from([None, "src", "dst"]),
    payload=SIZE,
    table=SIZE,
    payload_missing=SIZE,
    table_missing=SIZE,
    storages=st.lists(storages(), max_size=3).map(tuple),
    after_loss=st.booleans(),
)


def again(line: bytes) -> object:
    assert line.startswith(b'{"rpc":')
    assert line.endswith(b"}\n")
    return read_header(json.loads(line))


@given(MESSAGES)
def test_messages(said: LoggedMessage) -> None:
    assert again(write.message_line(said)) == said


ADDRESSES = st.lists(st.text(max_size=5), max_size=3).map(tuple)


@given(
    st.builds(
        LoggedWorker,
        name=st.none() | NAME,
        id=st.none() | INT64,
        group=SIZE,
        job=JOB,
        addresses=ADDRESSES,
        elsewhere=ADDRESSES,
    )
)
def test_workers(said: LoggedWorker) -> None:
    assert again(write.worker_line(said)) == said


@given(
    st.builds(
        LoggedProcess,
        name=NAME,
        id=st.none() | INT64,
        job=JOB,
        pid=st.none() | SIZE,
        how=st.sampled_from(["exit", "signal", "running", "unknown"]),
        status=st.none() | st.integers(0, 255),
        signal=st.none() | st.sampled_from(["SIGKILL", "SIG37", "SIGRTMIN+3"]),
        error=st.none() | st.text(max_size=20),
        time_ns=st.none() | INT64,
        oom_kills=SIZE,
    )
)
def test_ends_of_processes(said: LoggedProcess) -> None:
    assert again(write.process_line(said)) == said


def test_ends_and_losses() -> None:
    end = LoggedEnd(src="a", dst="b", job="j", way=2, by="dst", how="reset", time_ns=-5)
    assert again(write.end_line(end)) == end
    loss = LoggedLoss(src="a", dst="b", job=1, way=0, request=False)
    assert again(write.loss_line(loss)) == loss
    assert json.loads(write.span_line(1, 2)) == {"rpc": "span", "time_ns": 1, "end_ns": 2}


FAILURES = st.builds(
    LoggedFailure,
    time_ns=INT64,
    src=NAME,
    dst=NAME,
    id=INT64,
    reason=st.sampled_from(get_args(Reason)),
    text=st.text(max_size=50),
    type=st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
    job=JOB,
    way=INT64,
)


@given(FAILURES)
def test_calls_without_an_answer(said: LoggedFailure) -> None:
    assert read_header(json.loads(write.failure_line(said))) == said
