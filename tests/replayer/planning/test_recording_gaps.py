"""What is not in a recording: other hosts' logs, one direction, bytes of tensors; and what would bring it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.replayer.planning.recording_gaps import RecordingGaps, read_gaps
from rpcinspect.run.run import RunModel
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
    assert lacks(a, b) == RecordingGaps()


@pytest.mark.parametrize("name", ["reports/replay/nested.pcap", "reports/replay/nested.rpclog"])
def test_a_whole_recording_lacks_nothing(name: str) -> None:
    assert lacks(recorded(name)) == RecordingGaps()


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
