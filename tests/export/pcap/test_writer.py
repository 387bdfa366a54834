"""Captures written again decode to the same session; parts of them to just those messages; tshark agrees."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.capture.tshark import find_program
from rpcinspect.replayer.planning.facts import read_facts
from rpcinspect.run.run import RunModel
from tests.decoded import alone, decode
from tests.export.pcap.rewritten import assert_same, raw_messages, rest, rewrite, told
from tests.places import others, recorded
from tests.thorough import examples, representative, some
from tests.truth import CAPTURES

BUNDLED = sorted(
    str(path.relative_to(CAPTURES)) for path in [*CAPTURES.glob("*.pcap*"), *CAPTURES.glob("pairs/*.pcap*")]
)
LESS = {
    "chan_shmuv": "opened over shared memory: written as opened over TCP",
    "snap300": "cut packets: written as gaps",
    "stress_lossy": "lost packets",
}
"""What can't be written as it was; each has a test of its own."""


@pytest.mark.parametrize("name", some(BUNDLED, 2))
def test_bundled_captures_stay_the_same(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    rewrite([CAPTURES / name], out)
    if not decode(CAPTURES / name).messages:
        assert decode(out).messages == []  # pipes without messages are not written, workers are
        assert decode(out).of("worker") == decode(CAPTURES / name).of("worker")
        return
    assert_same([CAPTURES / name], out)


OTHERS = [
    path for path in others() if path.parent.name != "torch-suite" and path.name.split(".")[0] not in LESS
]


@pytest.mark.parametrize("path", representative(OTHERS), ids=lambda path: path.name)
def test_other_captures_stay_the_same(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    rewrite([path], out)
    if decode(path).messages:
        assert_same([path], out)


def test_several_captures_are_written_as_one_with_their_jobs(tmp_path: Path) -> None:
    paths, out = [CAPTURES / "basic_chain.pcap", CAPTURES / "rref_relay.pcap.gz"], tmp_path / "out.pcap"
    rewrite(paths, out)
    assert_same(paths, out)
    with RunModel.open([str(out)]) as opened:
        assert {worker.job for worker in opened.session.workers} == {0, 1}
        assert sorted(read_facts(opened)) == [0, 1]


def test_written_again_it_stays_what_it_is(tmp_path: Path) -> None:
    one, two = tmp_path / "one.pcap", tmp_path / "two.pcap"
    rewrite([CAPTURES / "transport_matrix_uv_mpt.pcap.gz"], one)
    rewrite([one], two)
    assert_same([one], two)


def test_a_pipe_that_was_opened_out_of_sight(tmp_path: Path) -> None:
    path, out = recorded("torch/chan_shmuv.pcap"), tmp_path / "out.pcap"
    rewrite([path], out)
    lines = [alone(line) for line in told(decode(out))]
    assert lines == [
        alone(line) for line in told(decode(path))
    ]  # what was out of sight makes causes uncertain
    assert raw_messages(out) == raw_messages(path)
    assert {pipe["visible"] for pipe in decode(out).of("pipe")} == {"full"}


@pytest.mark.parametrize("name", ["torch/snap300.pcap", "torch/stress_lossy.pcap"])
def test_lost_bytes_are_lost_again_and_nothing_else(name: str, tmp_path: Path) -> None:
    """Of a storage whose bytes are in doubt nothing is written: the message's times are those of the rest."""
    path, out = recorded(name), tmp_path / "out.pcap"
    rewrite([path], out)
    before = {_key(m): m for m in decode(path).messages}
    after = {_key(m): m for m in decode(out).messages}
    assert after.keys() == before.keys()
    assert len(before) == len(decode(path).messages)
    for key, old in before.items():
        new = after[key]
        for field in ("envelopes", "body", "control"):
            assert new[field] == old[field]
        for tensor, again in zip(old["tensors"], new["tensors"], strict=True):
            if tensor["placement"] == "certain":
                assert again == tensor
            else:
                assert again["placement"] in ("missing", "uncertain")
                assert again["sha256"] is None
        if all(tensor["placement"] == "certain" for tensor in old["tensors"]):
            assert (new["time_ns"], new["end_time_ns"]) == (old["time_ns"], old["end_time_ns"])


def _key(message: dict[str, object]) -> tuple[object, ...]:
    return message["type"], message["id"], message["src"], message["dst"], message["request"]


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_any_messages_can_be_kept(data: st.DataObject) -> None:
    """Each as it was; workers have their names although their handshakes, or who named them, are not kept."""
    name = data.draw(st.sampled_from(["pairs/base.pcap.gz", "reinit.pcap.gz", "rref_relay.pcap.gz"]))
    before = told(decode(CAPTURES / name))
    keep = data.draw(st.sets(st.integers(0, len(before) - 1), max_size=40))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.pcap"
        assert rewrite([CAPTURES / name], out, keep) == len(keep)
        after = decode(out)
        decode.cache_clear()
    fields = ("time_ns", "end_time_ns", "src", "dst", "type", "id", "envelopes", "body", "tensors")
    kept = sorted(keep)
    assert len(after.messages) == len(kept)
    for new, index in zip(after.messages, kept, strict=True):
        old = before[index]
        assert {field: new[field] for field in fields} == {field: old[field] for field in fields}
        if new["answers"] is not None:
            assert kept[new["answers"]] == old["answers"]
        else:
            assert old["answers"] is None or old["answers"] not in keep
    assert after.problems() == []
    assert rest(after)["worker"] == decode(CAPTURES / name).of("worker")


@pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("name", ["basic_chain.pcap", "reinit.pcap.gz", "dtype_zoo.pcap.gz"])
def test_tshark_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    rewrite([CAPTURES / name], out)
    assert experts(out) == []
    checked = "tcp.checksum.status == 0 || ip.checksum.status == 0"
    command = ["tshark", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    done = subprocess.run(
        [*command, "-r", str(out), "-Y", checked], check=True, capture_output=True, timeout=60, text=True
    )
    assert done.stdout == ""


@pytest.mark.skipif(find_program("tshark") is None, reason="tshark is not installed")
def test_tensors_before_their_messages_leave_connections_in_order(tmp_path: Path) -> None:
    """Under load a tensor is captured long before its descriptor; on its own connection all is in order."""
    out = tmp_path / "out.pcap"
    rewrite([recorded("torch/stress_basic.pcap.gz")], out)
    assert experts(out) == []


def experts(path: Path) -> list[str]:
    """tshark's warnings and errors."""
    done = subprocess.run(
        ["tshark", "-r", str(path), "-q", "-z", "expert,warn"],
        check=True,
        capture_output=True,
        timeout=120,
        text=True,
    )
    return [line for line in done.stdout.splitlines() if line.strip()]
