"""What is not in a recording: other hosts' logs, one direction, bytes of tensors; and what would bring it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.replayer.planning.recording_gaps import RecordingGaps, read_gaps
from rpcinspect.run.run import RunModel
from rpcinspect.tcp.segment import Endpoint, Flow
from tests.places import recorded
from tests.replayer.one_way import one_way


def lacks(*paths: Path) -> RecordingGaps:
    with RunModel.open([str(path) for path in paths]) as run:
        return read_gaps(run.session, run.exchanges.calls)


def test_logs_of_some_hosts_and_of_all() -> None:
    a, b = recorded("reports/job/two_a.rpclog"), recorded("reports/job/two_b.rpclog")
    assert lacks(a).unheard == {0: ("worker1", "worker2")}
    assert lacks(a).notes[0].startswith("Nothing that worker1, worker2 sent is recorded")
    assert lacks(b).unheard == {0: ("worker0",)}
    assert lacks(a, b) == RecordingGaps({}, frozenset(), ())


@pytest.mark.parametrize("name", ["reports/replay/nested.pcap", "reports/replay/nested.rpclog"])
def test_a_whole_recording_lacks_nothing(name: str) -> None:
    assert lacks(recorded(name)) == RecordingGaps({}, frozenset(), ())


def test_only_what_one_end_sent(tmp_path: Path) -> None:
    path = one_way("reports/replay/nested.pcap", [33485, 33717, 34255], tmp_path / "requests.pcap")
    found = lacks(path)
    assert len(found.one_way) == 21
    assert found.notes[0].startswith("No answer of client to mid, client to store, ")
    assert "Capture both directions" in found.notes[0]


def test_a_request_that_hangs_in_a_whole_capture_lacks_nothing() -> None:
    assert lacks(recorded("torch/script_hang.pcap")).one_way == frozenset()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("torch/chan_uvcma.pcap", '(cma). Run the job with TensorPipeRpcBackendOptions(_transports=["uv"], '),
        ("torch/snap300.pcap", "were not captured. Capture whole packets"),
    ],
)
def test_bytes_of_tensors(name: str, advice: str) -> None:
    (note,) = lacks(recorded(name)).notes
    assert advice in note


@pytest.mark.parametrize(("host", "told"), [("client", True), (None, False)])
def test_packets_of_one_host_of_three(host: str | None, told: bool) -> None:
    """As if each worker of a capture were on a host of its own: of one host only its own packets are seen."""
    at = {"client": "10.0.0.1", "mid": "10.0.0.2", "store": "10.0.0.3"}
    with RunModel.open([str(recorded("reports/replay/nested.pcap"))]) as run:
        session = run.session
        pipes = []
        for pipe, client, server in zip(session.pipes, session.clients, session.servers, strict=True):
            if host in (client, server, None):
                ends = (Endpoint(at[client], pipe.client.port), Endpoint(at[server], pipe.server.port))
                pipes.append(replace(pipe, flow=Flow(*ends)))
        workers = tuple(replace(one, addresses=()) for one in session.workers)
        notes = read_gaps(replace(session, pipes=tuple(pipes), workers=workers), run.exchanges.calls).notes
    expected = "All captured messages are from or to 10.0.0.1: those between 10.0.0.2, 10.0.0.3 are not in"
    assert [note.startswith(expected) for note in notes] == [True] * told
