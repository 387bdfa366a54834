"""Who failed first, with what, and whom it reached: by the truth of bundled captures, and of made-up ones."""

from __future__ import annotations

import json
import pickle

import pytest
from msgspec.structs import replace

from rpcinspect.checks import errors
from rpcinspect.checks.findings import Findings
from rpcinspect.rpc.command import (
    ExceptionResponse,
    PythonCall,
    PythonRemoteCall,
    PythonResp,
    PythonRRefFetchCall,
    PythonRRefFetchRet,
    RemoteRet,
)
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.session.model import CaptureInfo, Finding, Session
from rpcinspect.tcp.clocks import ClockOffset
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.tensorpipe.records import MessageOrigin
from tests.checks.talks import NOTHING, SECOND, codes, findings, no_bytes, of_capture, of_path, remote
from tests.places import content, recorded
from tests.replayer.talks import Workers, udf
from tests.session.records import Talk, pipe
from tests.truth import workload


def boom(text: str) -> ExceptionResponse:
    return ExceptionResponse(text.encode())


def told(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "error-response"]


def test_a_cascade_as_its_workers_tell_it() -> None:
    (cascade,) = workload("bwd_boom").of("cascade")
    (raised,) = workload("bwd_boom").of("raise")
    session, found = of_capture("bwd_boom")
    [finding] = told(found)
    assert finding.severity == "error"
    assert finding.workers == tuple(cascade["path"])
    assert finding.text.startswith(
        f"{cascade['root']} failed first in BACKWARD_AUTOGRAD_REQ: {raised['text']}"
    )
    senders = [session.source(int(session.order[index])) for index in finding.messages]
    assert senders == cascade["path"][:-1]


def test_every_worker_that_died_of_a_race() -> None:
    died = {event["trainer"] for event in workload("ps_race").of("died")}
    found = told(of_capture("ps_race")[1])
    [finding] = found
    assert died == set(finding.workers[1:])
    assert finding.workers[0] == "worker0"
    assert f", {len(died)} times (only numbers differ): one of the variables" in finding.text
    assert told(of_capture("ps_race_lock")[1]) == []


def test_an_error_inside_of_another_one() -> None:
    """worker2's error, which worker1 lets through."""
    [finding] = told(of_capture("pairs/error_nested")[1])
    assert finding.workers == ("worker2", "worker1", "worker0")
    assert "worker2 failed first in training.linear: ArithmeticError(" in finding.text
    assert len(finding.messages) == 2


def test_an_error_that_an_rref_keeps_is_its_functions() -> None:
    """By what the workers wrote down: `boom` raised on worker1 inside of remote(), to_here() passed it on."""
    truth = json.loads(content("reports/findings/errs_remote.truth.json"))
    (raised,) = [event for event in truth["events"] if event["ev"] == "ran" and event["error"]]
    [finding] = told(of_path(str(recorded("reports/findings/errs_remote.pcap")))[1])
    assert finding.text == (
        f"{raised['worker']} failed first in {raised['function']}: KeyError('first cause'); "
        "the error reached worker0."
    )
    assert finding.remedy is not None
    assert finding.remedy.endswith("rpcinspect decode FILE --message 10")


@pytest.mark.parametrize("captured", [True, False])
def test_an_rref_is_fetched_twice_and_failed_once(captured: bool) -> None:
    rref, fork = GloballyUniqueId(0, 7), GloballyUniqueId(0, 8)
    workers = Workers(2)
    error = remote("On WorkerInfo(id=1, name=w1):\nKeyError('k')\n")
    kept = PythonRRefFetchRet((), error.serialized_py_obj)
    if captured:
        made = PythonRemoteCall(
            tensors=(),
            serialized_py_obj=udf("app.boom"),
            ret_rref_id=rref,
            ret_fork_id=fork,
            is_async_execution=False,
        )
        workers.call(0, 1, 10, 30, made, RemoteRet(rref, fork))
    for begin in (20, 40):
        workers.call(0, 1, begin, begin + 5, PythonRRefFetchCall(1, rref), kept)
    [finding] = told(findings(workers))
    where = "app.boom" if captured else "the function of RRef 0:7"
    assert finding.text == f"w1 failed first in {where}: KeyError('k'); the error reached w0."
    assert len(finding.messages) == 2


def test_two_errors_that_have_nothing_to_do_with_each_other() -> None:
    workers = Workers(3)
    workers.call(0, 1, 10, 90, "app.f", boom("first"))
    workers.call(
        1, 2, 20, 40, "app.g", boom("second")
    )  # arrives in between, but the answer does not quote it
    first, second = told(findings(workers))
    assert (first.workers, second.workers) == (("w2", "w1"), ("w1", "w0"))


def test_an_error_that_came_before_the_request_explains_nothing() -> None:
    workers = Workers(3)
    workers.call(1, 2, 10, 20, "app.g", boom("the same words"))
    workers.call(0, 1, 30, 90, "app.f", boom("the same words"))
    assert len(told(findings(workers))) == 2


QUOTED = r"'KeyError: \'On WorkerInfo(id=2, name=w2):\nKeyError(\\\'k\\\')\nTraceback"


@pytest.mark.parametrize(("words", "new"), [("gave up; before that: ", True), ("", False)])
def test_an_older_error_is_quoted_or_passed_on(words: str, new: bool) -> None:
    """As torch writes it. Words of its own make it another error; without them it is that which arrived."""
    workers = Workers(3)
    workers.call(1, 2, 10, 20, "app.bad", remote("On WorkerInfo(id=2, name=w2):\nKeyError('k')\nTraceback"))
    text = QUOTED.replace("KeyError: ", f"{words}KeyError: ", 1)
    workers.call(0, 1, 30, 40, "app.later", remote(f"On WorkerInfo(id=1, name=w1):\nValueError({text}')\n"))
    found = told(findings(workers))
    assert found[0].text.startswith("w2 failed first in app.bad: KeyError('k')")
    if not new:
        [_] = found
        assert found[0].workers == ("w2", "w1", "w0")
        return
    assert found[1].text.startswith("w1 failed first in app.later: ValueError('gave up; before that: ")
    assert found[1].workers == ("w1", "w0")


@pytest.mark.parametrize(
    ("asked", "first", "second"),
    [
        (32, "w2 failed first in app.bad", "w3 failed after w2 in app.bad"),
        (
            25,
            "w2 failed in app.bad (whether before w3 is not known)",
            "w3 failed in app.bad (whether before w2 is not known)",
        ),
    ],
)
def test_an_error_that_quotes_those_of_two_workers(asked: int, first: str, second: str) -> None:
    """worker1 got two errors while it served a request, and passes both on as torch writes them; worker3 was
    asked after the first had come, or before. Neither error came to the other one's worker."""
    workers = Workers(4)
    texts = [f"On WorkerInfo(id={n}, name=w{n}):\nKeyError('of w{n}')\nTraceback" for n in (2, 3)]
    workers.call(1, 2, 20, 30, "app.bad", remote(texts[0]))
    workers.call(1, 3, asked, 50, "app.bad", remote(texts[1]))
    both = f"On WorkerInfo(id=1, name=w1):\nRuntimeError('both failed: {' / '.join(texts)}')\n"
    workers.call(0, 1, 10, 60, "app.f", remote(both))
    found = told(findings(workers))
    assert [finding.workers for finding in found] == [("w2", "w1", "w0"), ("w3", "w1", "w0")]
    assert [finding.text.partition(": KeyError(")[0] for finding in found] == [first, second]
    assert [len(finding.messages) for finding in found] == [2, 2]
    assert [(finding.remedy or "").partition(": ")[0] for finding in found] == ["Fix w2, w3", "Fix w3, w2"]


def two_failures() -> Workers:
    """w2 asks w4 for what fails, and w3 asks w5 after that."""
    workers = Workers(6)
    texts = {n: f"On WorkerInfo(id={n}, name=w{n}):\nKeyError('of w{n}')\nTraceback" for n in (4, 5)}
    passed = {n: f"On WorkerInfo(id={n}, name=w{n}):\nOSError('{texts[n + 2]}')\n" for n in (2, 3)}
    workers.call(2, 4, 22, 40, "app.bad", remote(texts[4]))
    workers.call(3, 5, 45, 55, "app.bad", remote(texts[5]))
    workers.call(1, 2, 20, 60, "app.relay", remote(passed[2]))
    workers.call(1, 3, 21, 62, "app.relay", remote(passed[3]))
    both = f"On WorkerInfo(id=1, name=w1):\nRuntimeError('both failed: {' / '.join(passed.values())}')\n"
    workers.call(0, 1, 10, 70, "app.f", remote(both))
    return workers


def order_told(workers: Workers, session: Session) -> list[str]:
    stage = Findings(workers.builder.provenance, CaptureBytes(no_bytes))
    stage.feed(workers.records)
    found = told(list(stage.finish(session, NOTHING)))
    return [one.text.partition(" failed ")[2].partition("in app.bad")[0].strip() for one in found]


@pytest.mark.parametrize(("hosts", "order"), [("11", ["first", "after w4"]), ("23", ["", ""])])
def test_clocks_of_hosts_that_nobody_compared_tell_no_order(hosts: str, order: list[str]) -> None:
    workers = two_failures()
    session = workers.finish()
    for one in session.pipes:
        one.origin = MessageOrigin.LOG
    of = {"w2": hosts[0], "w3": hosts[1]}
    there = (replace(one, addresses=(f"10.0.0.{of.get(one.label, 1)}:99",)) for one in session.workers)
    assert order_told(workers, replace(session, workers=tuple(there))) == order


@pytest.mark.parametrize(("doubt_ns", "order"), [(4, ["first", "after w4"]), (6, ["", ""])])
def test_the_order_is_as_sure_as_the_clocks(doubt_ns: int, order: list[str]) -> None:
    """The first error comes 5 ns before the second request, which another sniffer has captured."""
    workers = two_failures()
    session = workers.finish()
    clock = ClockOffset(offset_ns=10**6, uncertainty_ns=doubt_ns, connections=1)
    first = CaptureInfo(
        capture=0, path="", format="", packets=9, bytes=9, first_time_ns=0, last_time_ns=99, reader="pcap"
    )
    for row, number in enumerate(session.messages.pipe):
        session.messages.capture[row] = session.clients[number] == "w3"
    captures = (first, replace(first, capture=1, clock=clock))
    assert order_told(workers, replace(session, captures=captures)) == order


@pytest.mark.parametrize("captured", [(), (2,), (3,)])
def test_which_was_first_is_not_known_where_only_a_text_names_both(captured: tuple[int, ...]) -> None:
    """w1 asks w2 and w3 and raises what both say, of which other hosts' captures would tell."""
    workers = Workers(4)
    texts = {n: f"On WorkerInfo(id={n}, name=w{n}):\nKeyError('of w{n}')\nTraceback" for n in (2, 3)}
    for n in captured:
        workers.call(1, n, 20, 30, "app.bad", remote(texts[n]))
    both = f"On WorkerInfo(id=1, name=w1):\n{RuntimeError('; '.join(texts.values()))!r}\n"
    workers.call(0, 1, 10, 70, "app.f", remote(both))
    (found,) = told(findings(workers))
    place, other = ("w2", "w3") if captured == (2,) else ("w3", "w2")
    text, remedy = ((one or "").replace("worker:", "w") for one in (found.text, found.remedy))
    assert text.startswith(f"{place} failed")
    assert f"(whether before {other} is not known)" in text
    assert remedy.startswith(f"Fix {place}, {other}: ")


def test_what_a_worker_asked_others_may_not_be_captured() -> None:
    """As where only its callers' host has a sniffer: what w1 and w2 send each other passes none."""
    talk = Talk(
        pipe(0, "10.0.0.1:1000", "10.0.0.2:5000", name="w0"),
        pipe(1, "10.0.0.1:1001", "10.0.0.3:5000", name="w0"),
    )
    for number, callee in enumerate(("w1", "w2")):
        talk.builder.evidence.name(number, False, callee)
        talk.say(PythonCall(udf("app.f"), False), pipe=number, id=number, time_ns=10 + number)
    failed = remote("On WorkerInfo(id=1, name=w1):\nKeyError('k')\n")
    talk.say(failed, pipe=0, id=0, from_client=False, time_ns=30)
    (finding,) = told(findings(talk))
    assert finding.text.startswith("w1 failed first in app.f, as far as the capture shows: KeyError(")


def test_the_text_alone_tells_what_was_not_captured() -> None:
    workers = Workers(2)
    inner = 'On WorkerInfo(id=7, name=w7):\\nKeyError("k")\\nTraceback'
    text = f"On WorkerInfo(id=1, name=w1):\nRuntimeError('{inner}')\nTraceback (most recent call last):\n"
    workers.call(0, 1, 10, 20, "app.f", remote(text))
    [finding] = told(findings(workers))
    assert finding.workers == ("worker:7", "w1", "w0")
    assert finding.text.startswith(
        'worker:7 failed first, as the text of the error of w1 in app.f says: KeyError("k"); '
    )


def test_the_same_error_many_times_is_one_finding() -> None:
    workers = Workers(2)
    for n in range(5):
        workers.call(
            0, 1, 10 * n, 10 * n + 5, "app.f", remote("On WorkerInfo(id=1, name=w1):\nKeyError('k')\n")
        )
    [finding] = told(findings(workers))
    assert "5 times: KeyError('k')" in finding.text
    assert finding.messages == (1, 3, 5, 7, 9)


def test_errors_that_differ_by_words_are_several() -> None:
    workers = Workers(2)
    for n, word in enumerate(("one", "two", "two")):
        text = f"On WorkerInfo(id=1, name=w1):\nKeyError('{word} of {n} at 0x{n:x}f')\n"
        workers.call(0, 1, 10 * n, 10 * n + 5, f"app.f{n}", remote(text))
    first, second = told(findings(workers))
    assert "in app.f0: KeyError('one of 0 at 0x0f')" in first.text
    assert "in app.f1, app.f2, 2 times (only numbers differ): KeyError('two of 1 at 0x1f')" in second.text


def test_a_type_of_the_users_own_is_named() -> None:
    workers = Workers(2)
    answer = remote("On WorkerInfo(id=1, name=w1):\nMine()\n", b"app\nMine")
    workers.call(0, 1, 10, 20, "app.f", answer)
    [finding] = told(findings(workers))
    assert "Mine() (app.Mine)" in finding.text


def test_an_answer_that_talks_of_errors_is_none() -> None:
    workers = Workers(2)
    workers.call(
        0, 1, 10, 20, "app.f", PythonResp(pickle.dumps("On WorkerInfo(id=1, name=w1):\nKeyError('k')"))
    )
    assert codes(findings(workers, until=SECOND)) == []


def test_texts_are_bounded(monkeypatch: object) -> None:
    workers = Workers(2)
    for n in range(3):
        workers.call(0, 1, 10 * n, 10 * n + 5, "app.f", boom(f"{n}: {'x' * 50_000}"))
    [finding] = told(findings(workers))
    assert len(finding.text) < 2 * errors.MAX_SHOWN
