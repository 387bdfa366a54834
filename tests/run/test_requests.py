"""What is known of one worker's requests, and where some may be missing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rpcinspect.problems import Location, Problem
from rpcinspect.rpc.command import PythonResp
from rpcinspect.rpc.message import MessageType
from rpcinspect.run.causes import explain
from rpcinspect.run.requests import LOSSES, MAX_OPEN, Requests, Serving
from rpcinspect.session.model import CaptureInfo, Finding
from rpcinspect.session.uncaptured import NEVER
from rpcinspect.tcp.clocks import ClockOffset
from rpcinspect.tcp.segment import Flow
from rpcinspect.tensorpipe.records import MessageOrigin, Visibility
from tests.decoded import decode
from tests.places import recorded
from tests.replayer.talks import NONE, Workers
from tests.session.records import Talk, pipe
from tests.thorough import examples


def served() -> Workers:
    workers = Workers(2)
    workers.call(0, 1, 10, 60, "app.a", context=(5, 1))
    workers.call(0, 1, 12, None, "aten::add")
    workers.call(1, 0, 20, 30, "app.b")
    return workers


def test_what_workers_sent_and_served() -> None:
    requests = Requests(served().run().session)
    first, second, third = (int(requests.session.order[n]) for n in range(3))
    assert requests.workers[0, "w0"].sent == [first, second]
    assert requests.workers[0, "w1"].received == [first, second]
    assert requests.workers[0, "w1"].sent == [third]
    assert (requests.session.source(third), requests.session.destination(third)) == ("w1", "w0")
    assert (requests.answered(first), requests.answered(second)) == (59, NEVER)
    assert (requests.over(first), requests.over(second)) == (60, NEVER)
    assert (requests.context(first), requests.context(third)) == (5, None)
    assert requests.code((first, second, third)) == [first, third]
    assert requests.of_types((MessageType.FORWARD_AUTOGRAD_REQ,), (first, second)) == []
    assert requests.of_types((MessageType.PYTHON_CALL,), (first, second)) == [first]


def test_of_a_whole_capture_nothing_is_missing() -> None:
    requests = Requests(served().run().session)
    assert requests.unseen_until((0, "w1")) < 0


def test_an_answer_to_nothing_says_that_a_request_is_missing() -> None:
    workers = served()
    workers.say(PythonResp(NONE), pipe=1, id=99, from_client=False, time_ns=15)
    run = workers.run()
    requests = Requests(run.session)
    assert requests.unseen_until((0, "w1")) == 15


@pytest.mark.parametrize("code", sorted(LOSSES))
def test_where_something_was_lost_all_may_be(code: str) -> None:
    session = served().run().session
    session = replace(session, findings=(Finding(code=code, severity="warning", text=""),))
    requests = Requests(session)
    assert requests.unseen_until((0, "w1")) == NEVER


@pytest.mark.parametrize(("reader", "layer"), [("log", "capture"), ("log", "rpc"), ("tshark", "capture")])
def test_of_a_log_that_is_cut_or_damaged_all_may_be_missing(reader: str, layer: str) -> None:
    """Workers append to one log, each when it comes to it: in one that was cut at its middle, three calls
    stood without the request for which they were sent. A network's capture is cut at a moment.
    """
    session = served().run().session
    capture = CaptureInfo(
        capture=0, path="x", format="", packets=9, bytes=9, first_time_ns=0, last_time_ns=9, reader=reader
    )
    problem = Problem(layer, "the log ends within a header line", Location(capture=0, offset=5))
    session = replace(session, captures=(capture,), problems=(problem,))
    missing = Requests(session).unseen_until((0, "w1")) == NEVER
    assert missing == (reader == "log" and layer == "capture")


@pytest.mark.parametrize(("hosts", "all_may_be"), [("11", False), ("12", True)])
def test_times_of_hosts_whose_clocks_nobody_compared_tell_nothing(hosts: str, all_may_be: bool) -> None:
    """Each worker's log has the times of its own host, and of what it serves the callers' logs tell."""
    session = served().run().session
    for one in session.pipes:
        one.origin = MessageOrigin.LOG
    named = {worker.name: worker for worker in session.workers}
    workers = tuple(replace(named[f"w{n}"], addresses=(f"10.0.0.{hosts[n]}:99",)) for n in range(2))
    requests = Requests(replace(session, workers=workers))
    assert (requests.unseen_until((0, "w1")) == NEVER) == all_may_be


def test_a_worker_that_serves_nothing_has_one_clock() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 60, "app.a")
    session = workers.run().session
    for one in session.pipes:
        one.origin = MessageOrigin.LOG
    named = (replace(one, addresses=(f"10.0.0.{one.name}:99",)) for one in session.workers)
    assert Requests(replace(session, workers=tuple(named))).unseen_until((0, "w0")) < 0


@pytest.mark.parametrize("visible", [Visibility.HANDSHAKE_ONLY, Visibility.NO_HANDSHAKE])
def test_a_pipe_that_is_not_seen_from_its_beginning(visible: Visibility) -> None:
    workers = served()
    workers.pipes[1].visible = visible
    causes = workers.run().causes
    assert causes.of(2) == ((0,), False)
    assert causes.of(0) == ((), True)


def test_a_pipe_on_which_nothing_was_seen_counts_too() -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 60, "app.a")
    workers.pipes[2].visible = Visibility.NO_HANDSHAKE  # from w1 to w0
    assert workers.run().causes.of(0) == ((), False)


def test_a_pipe_of_nobody_may_be_a_named_workers() -> None:
    """Where the store was not captured, what a worker is asked and what it asks are not known as one's."""
    talk = Talk(pipe(0, "10.0.0.1:1000", "10.0.0.2:5000"), pipe(1, "10.0.0.2:1001", "10.0.0.3:5000", "w1"))
    session = talk.finish()
    assert Requests(session).unseen_until((0, "w1")) == NEVER


# --- what a worker has open, against looking at every request each time ---

REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(2, 9),
        st.booleans(),
        st.sampled_from([None, 1, 2]),
        st.sampled_from(["app.f", "aten::add"]),
    ),
    min_size=1,
    max_size=12,
)
Drawn = list[tuple[int, int, bool, int | None, str]]


def received(drawn: Drawn) -> tuple[Requests, list[int]]:
    """Requests of w0 to w1, some of them in a context."""
    workers = Workers(2)
    for n, (begin, length, answered, context, function) in enumerate(drawn):
        inside = None if context is None else (context, n)
        workers.call(0, 1, begin, begin + length if answered else None, function, context=inside)
    requests = Requests(workers.run().session)
    return requests, requests.workers[0, "w1"].received


@given(REQUESTS)
@settings(max_examples=examples(40), deadline=None)
def test_what_is_open(drawn: Drawn) -> None:
    requests, rows = received(drawn)
    serving = Serving(requests, rows)
    for now in range(0, 45, 3):
        serving.at(now)
        there = [
            row
            for row in sorted(requests.code(rows), key=requests.arrived.__getitem__)
            if requests.arrived[row] <= now <= requests.answered(row)
        ]
        assert bool(serving) == bool(there)
        assert [row for row in there if row in serving] == there
        assert sorted(serving.latest(None)) == sorted(there)
        for context in (1, 2):
            inside = [row for row in there if requests.context(row) == context]
            assert sorted(serving.latest(context)) == sorted(inside)
            first = serving.first_in(context)
            assert (first is None) == (not inside)
            assert first is None or requests.arrived[first] == requests.arrived[inside[0]]


def test_so_many_are_looked_at() -> None:
    requests, rows = received([(n, 0, False, None, "app.f") for n in range(2 * MAX_OPEN)])
    serving = Serving(requests, rows)
    serving.at(10_000)
    assert serving.latest(None) == sorted(rows, key=requests.arrived.__getitem__)[MAX_OPEN:]


FORGET = "reports/hosts/forget"
"""Functions that answer before their calls are answered, captured on each of four hosts."""


@pytest.mark.parametrize(("hosts", "own"), [("0123", 12), ("3210", 1), ("1032", 1), ("2031", 9)])
def test_what_was_captured_as_it_arrived_was_sent_before(hosts: str, own: int) -> None:
    """A call comes to the other host's sniffer when its function has long answered: 20 of 42 were told to be
    certainly of none, when the last host's capture was named first. `own` of 14 are certain, where the
    driver's own host has captured them, or all that it serves."""
    calls = {
        (m["src"], m["body"]["function"], m["dst"], m["body"]["args"][1]): m
        for m in decode(*(recorded(f"{FORGET}.host{host}.pcap") for host in hosts)).messages
        if m["request"] and not m["control"]
    }
    told = [json.loads(line) for line in recorded(f"{FORGET}.truth").read_text().splitlines()]
    served = {(call[1], call[3]): message["index"] for call, message in calls.items()}
    certain = 0
    for line in told:
        call = calls.pop((line["worker"], f"forget.{line['sent']}", line["to"], str(line["key"])))
        if line["serving"] is None:
            assert call["parents"] == [] or not call["parent_certain"]
            certain += call["parent_certain"]
        else:
            assert served[f"forget.{line['serving']}", str(line["key"])] in call["parents"]
    assert (certain, calls) == (own, {})


@pytest.mark.parametrize(("uncertainty_ns", "open_then"), [(5, False), (6, True), (500, True)])
def test_between_sniffers_times_are_as_sure_as_their_clocks(uncertainty_ns: int, open_then: bool) -> None:
    """w1 sends 6 ns before the last byte of a request arrives, by two clocks."""
    workers = Workers(2)
    workers.call(0, 1, 25, 60, "app.a")
    workers.call(1, 0, 20, 30, "app.b")
    session = workers.run().session
    clock = ClockOffset(offset_ns=100_000, uncertainty_ns=uncertainty_ns, connections=1)
    first = CaptureInfo(
        capture=0, path="", format="", packets=9, bytes=9, first_time_ns=0, last_time_ns=9, reader="pcap"
    )
    session = replace(session, captures=(first, replace(first, capture=1, clock=clock)))
    for row, pipe_number in enumerate(session.messages.pipe):
        session.messages.capture[row] = session.pipes[pipe_number].client.host == "10.0.0.1"
    requests = Requests(session)
    (sent,), (received,) = requests.workers[0, "w1"].sent, requests.workers[0, "w1"].received
    serving = Serving(requests, requests.workers[0, "w1"].received)
    serving.at(requests.begin[sent])
    assert (received in serving) == open_then


@pytest.mark.parametrize(
    ("reader", "hosts", "open_then"),
    [("log", "ab", False), ("pcap", "ab", True), ("pcap", "aa", False)],
)
def test_what_another_host_sent_may_have_been_on_its_way(reader: str, hosts: str, open_then: bool) -> None:
    """w1 answers, and what it sent before that comes later: the ways of two connections differ. Nobody knows
    at which of two hosts the sniffer was."""
    workers = Workers(2)
    workers.call(0, 1, 10, 30, "app.a")
    workers.call(1, 0, 40, 60, "app.b")
    session = workers.run().session
    for one in session.pipes:
        one.flow = Flow(replace(one.client, host=hosts[0]), replace(one.server, host=hosts[1]))
    capture = CaptureInfo(
        capture=0, path="", format="", packets=9, bytes=9, first_time_ns=0, last_time_ns=9, reader=reader
    )
    (sent,) = (row for row in range(len(session.messages)) if session.messages.time_ns[row] == 40)
    doubts = explain(replace(session, captures=(capture,))).doubts
    assert (int(session.index[sent]) in doubts) == open_then
