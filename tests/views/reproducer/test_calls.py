"""Requests as calls of PyTorch's API, and what their answers are compared with."""

from __future__ import annotations

import pytest

from rpcinspect.rpc.command import ExceptionResponse
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.run import Run
from rpcinspect.views.reproducer.calls import Failure, answer_source, call_items, failure_of
from rpcinspect.views.reproducer.python_names import VARIABLE, Brackets, Imports, NoSourceError, flat
from rpcinspect.views.reproducer.python_source import Names, SourceWriter
from tests.replay.talks import answer_of, record_of, request_of, udf
from tests.truth import CAPTURES, workload

NAMES = Names(lambda index: f"t{index}", lambda fork: f"rref{fork.rref_id[1]}", {})


def record(name: str, index: int) -> RpcRecord:
    with Run.open([str(CAPTURES / name)]) as opened:
        return opened.messages[index]


def written(of: RpcRecord) -> str:
    return flat(Brackets("call(", call_items(of, SourceWriter(Imports((), VARIABLE)), NAMES), ")"))


def test_calls() -> None:
    assert written(record("basic_chain.pcap", 6)) == 'call(scale, args=(t0, t1), kwargs={"gain": 2.0})'
    assert written(record("basic_chain.pcap", 8)) == "call(torch.add, args=(t0, t1))"
    assert written(record("rref_relay.pcap.gz", 42)) == "call(torch.add, args=(t0, 41.0))"
    assert written(record("rref_relay.pcap.gz", 12)) == "call(use, args=(rref0, 1))"
    assert written(record("profiled_legacy.pcap", 10)) == "call(plus_one, args=(t0,))"
    assert written(request_of(udf("app.f"))) == "call(f)"


def test_answers() -> None:
    writer = SourceWriter(Imports((), VARIABLE))
    assert flat(answer_source(record("basic_chain.pcap", 7), writer, NAMES)) == "t0"
    assert flat(answer_source(record("basic_chain.pcap", 9), writer, NAMES)) == "t0"


def test_an_error_is_what_the_worker_raised() -> None:
    run = workload("pairs/error")
    (call,) = (call for call in run.calls() if "error" in call.answered)
    failure = failure_of(
        record("pairs/error.pcap.gz", call.response["index"]), SourceWriter(Imports((), VARIABLE))
    )
    assert failure == Failure("ArithmeticError", 'ArithmeticError("the norm of step 1 can\'t be had")')


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (b"The sizes must match\nException raised from x at /a/b.cpp:3", "The sizes must match"),
        (b"<Thing object at 0x7f001122>", None),
        (b"no such file /etc/x", None),
        (b"worker id: 3", None),
        (b"x" * 1000, None),
        (b"", None),
    ],
)
def test_texts_that_another_run_says_otherwise_are_not_compared(text: bytes, kept: str | None) -> None:
    failure = failure_of(record_of(ExceptionResponse(text)), SourceWriter(Imports((), VARIABLE)))
    assert failure == Failure("RuntimeError", kept)


def test_what_is_no_call() -> None:
    with pytest.raises(NoSourceError):
        written(answer_of(b"\x80\x02N."))
    with pytest.raises(NoSourceError):
        written(request_of(b"\x80\x02N."))
