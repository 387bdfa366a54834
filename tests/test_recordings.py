"""Decode over the recordings of other jobs, against their scripts, their truth and their index."""

from __future__ import annotations

import csv
import json
import random
import re
import struct
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.record import round_trips
from tests.decoded import decode
from tests.places import foreign, others, recorded, recordings
from tests.thorough import representative
from tests.torch_values import described, digest, tensors_of

Json = dict[str, Any]

SUITE = [path.name for path in recordings("torch-suite")]

# name → workers, messages, TRUTH tensors, those of them that are on the wire. From the scripts beside the
# captures and the table of check results in facts/wire-format.md (section 12), counted by another decoder.
TORCH = {
    "agctx": (2, 22, 0, 0),
    "chan_default": (2, 0, 5, 0),  # shared memory
    "chan_legacystore": (2, 24, 5, 5),
    "chan_mpt": (2, 24, 5, 5),
    "chan_shm": (2, 0, 5, 0),  # shared memory
    "chan_shmuv": (2, 24, 5, 5),
    "chan_uvcma": (2, 24, 5, 1),  # tensors by cma; the empty one needs no bytes
    "devmap": (2, 20, 2, 2),
    "dyn": (2, 12, 1, 1),
    "hosts4": (2, 12, 3, 3),
    "kitchen": (2, 84, 30, 30),
    "nested": (3, 56, 4, 4),
    "prof": (2, 52, 2, 2),
    "prof2_legacy": (2, 32, 3, 3),
    "rref": (3, 102, 7, 7),
    "script": (2, 28, 6, 6),
    "script_hang": (2, 26, 6, 6),
    "snap300": (2, 12, 3, 0),  # packets cut at 300 bytes
    "sparse": (2, 18, 4, 4),
    "stress_basic": (3, 1456, 0, 0),
    "stress_mpt_uv": (3, 1456, 0, 0),
    "two": (2, 0, 2, 0),  # shared memory
}
VERSIONS = ("1.8.1", "1.13.1", "2.1.2", "2.14.1")
INVISIBLE = ("chan_default", "chan_shm", "two")
LOSSY = "stress_lossy"
CUT = "snap300"

CLOSED_INSIDE_A_MESSAGE = (
    "DistAutogradTest.test_backward_node_failure.pcap.gz",
    "DistAutogradTest.test_multiple_backward_with_errors.pcap.gz",
)
"""A worker dies while its peers write to it: their last messages were never sent whole."""


def torch_capture(name: str) -> Path:
    return recorded(f"torch/{name}.pcap")


def intact() -> list[Path]:
    """Every capture that has all bytes of its messages."""
    return [path for path in others() if LOSSY not in path.name and CUT not in path.name]


# --- PyTorch's own suite ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def index() -> dict[str, Json]:
    with (recorded("torch-suite/INDEX.tsv")).open(newline="") as file:
        return {row["capture"]: row for row in csv.DictReader(file, delimiter="\t")}


def test_the_suite_has_51_captures(index: dict[str, Json]) -> None:
    assert sorted(index) == SUITE
    assert len(index) == 51


@pytest.mark.parametrize("name", SUITE)
def test_suite_counts_by_type(index: dict[str, Json], name: str) -> None:
    summary = decode(recorded(f"torch-suite/{name}")).summary
    told = {kind: int(n) for kind, _, n in (pair.partition("=") for pair in index[name]["by_type"].split())}
    assert summary["by_type"] == told
    assert summary["messages"] == int(index[name]["messages"])


@pytest.mark.parametrize("name", SUITE)
def test_suite_has_no_problem(name: str) -> None:
    result = decode(recorded(f"torch-suite/{name}"))
    problems = result.problems()
    assert result.summary["problems"] == len(problems)
    if name in CLOSED_INSIDE_A_MESSAGE:
        assert problems
        assert all("closed inside a message" in problem["reason"] for problem in problems)
        assert all(message["problems"] == [] for message in result.messages)
    else:
        assert problems == []
        requests = [m["index"] for m in result.messages if m["request"]]
        assert sorted(m["answers"] for m in result.messages if not m["request"]) == requests


@pytest.mark.parametrize("name", SUITE)
def test_suite_workers(name: str) -> None:
    """The suite starts 4 workers, its remote modules 2; each speaks at least in the barriers."""
    result = decode(recorded(f"torch-suite/{name}"))
    world = 2 if name.startswith("RemoteModuleTest") else 4
    expected = [(f"worker{rank}", rank, 0) for rank in range(world)]
    assert [(w["name"], w["id"], w["group"]) for w in result.of("worker")] == expected
    assert {m["src"] for m in result.messages} == {name for name, _, _ in expected}


# --- captures with a truth ----------------------------------------------------------------------------------


def test_every_torch_capture_has_a_row() -> None:
    assert {path.name.split(".")[0] for path in recordings("torch")} == {*TORCH, LOSSY}


@pytest.mark.parametrize("name", TORCH)
def test_workers_and_message_counts(name: str) -> None:
    workers, messages, _, _ = TORCH[name]
    result = decode(torch_capture(name))
    expected = [(f"worker{rank}", rank) for rank in range(workers)]
    assert [(w["name"], w["id"]) for w in result.of("worker")] == expected
    assert len(result.messages) == messages
    if messages:
        assert {m["src"] for m in result.messages} == {name for name, _ in expected}
    codes = {finding["code"] for finding in result.of("finding")}
    assert ("invisible-transport" in codes) == (name in (*INVISIBLE, "chan_uvcma"))
    if name != CUT:
        assert result.problems() == []


@pytest.mark.parametrize("name", [name for name in TORCH if not name.startswith("stress")])
def test_truth_tensors(name: str) -> None:
    """Each is found with dtype, shape, first values and sum; sparse ones as `dense`."""
    _, _, count, on_the_wire = TORCH[name]
    truth = [
        tensor
        for line in (recorded(f"torch/{name}.truth")).read_text().splitlines()
        for tensor in printed_tensors(json.loads(line.removeprefix("TRUTH ")))
    ]
    assert len(truth) == count
    seen = tensors_of(torch_capture(name))
    check_hashes(seen)
    available = [described(t) for message in seen for t in message.tensors if t is not None]
    assert sum(any(same(t, tensor) for t in available) for tensor in truth) == on_the_wire


def printed_tensors(value: Any) -> Iterator[Json]:
    """What `tinfo` printed, wherever it lies in a line."""
    if isinstance(value, dict):
        if "shape" in value and "dtype" in value:
            yield value
        else:
            for item in value.values():
                yield from printed_tensors(item)


def same(found: Json, printed: Json) -> bool:
    """Equal in everything; sums of many floats may differ in the order of adding."""
    rest = {key: value for key, value in printed.items() if key != "sum"}
    if any(found.get(key) != value for key, value in rest.items()):
        return False
    total = printed.get("sum")
    return bool(found.get("sum") == (None if total is None else pytest.approx(total, rel=1e-12)))


def check_hashes(seen: list[Any]) -> None:
    """torch, laying the same bytes out by the fields of the line, gets the same elements."""
    for message in seen:
        for tensor, shown in zip(message.tensors, message.line["tensors"], strict=True):
            if tensor is None:
                assert shown["sha256"] is None
            elif shown["layout"] == "strided":
                assert shown["sha256"] == digest(tensor)


@pytest.mark.parametrize("version", VERSIONS)
def test_other_releases(version: str) -> None:
    """One job under four releases: the gradient, the error and the profile that worker0 printed."""
    path = recorded(f"versions/torch-{version}.pcap")
    gradient, error, profile = recorded(f"versions/torch-{version}.truth").read_text().splitlines()
    seen = tensors_of(path)
    lines = [message.line for message in seen]
    assert len(lines) == 50
    assert decode(path).problems() == []
    assert [(w["name"], w["id"]) for w in decode(path).of("worker")] == [("worker0", 0), ("worker1", 1)]

    values = json.loads(gradient[gradient.index("[") : gradient.index("]") + 1])
    brought = [
        tensor
        for message in seen
        if message.line["type"] == "BACKWARD_AUTOGRAD_REQ" and message.line["dst"] == "worker0"
        for tensor in message.tensors
    ]
    assert any(list(t.shape) == [3, 4] and t.flatten().tolist() == values for t in brought)

    (failed,) = [line["body"]["error"] for line in lines if line["body"].get("error")]
    assert f"<class '{failed['type'].removeprefix('builtins.')}'>" == error
    assert failed["node_id"] == 1

    names = re.findall(r"#remote_op: ([\w:]+)'", profile)
    events = [e for line in lines for env in line["envelopes"] for e in env.get("events", [])]
    pushed = [event["name"] for event in events if event["kind"] == "push"]
    deduplicated = [name for i, name in enumerate(pushed) if i == 0 or pushed[i - 1] != name]
    assert names == deduplicated[: len(names)]
    assert names
    check_hashes(seen)


# --- stress -------------------------------------------------------------------------------------------------


def stress_calls() -> Iterator[tuple[int, int, int, list[int]]]:
    """(rank, k, destination, sizes of its tensors) of every call: what scripts/stress.py draws."""
    for rank in range(3):
        for seed in range(4):
            rnd = random.Random(seed)
            for i in range(60):
                count = rnd.randrange(4)
                sizes = [rnd.choice([0, 1, 3, 17, 500, 3000]) for _ in range(count)]
                yield rank, rank * 100000 + seed * 1000 + i, rnd.randrange(3), sizes


@pytest.mark.parametrize("name", ["stress_basic", "stress_mpt_uv"])
def test_every_tensor_is_in_its_message(name: str) -> None:
    """Each call sends its own number in every element; tensors of one size may not be exchanged."""
    result = decode(torch_capture(name))
    own = [m for m in result.messages if not m["control"]]
    calls = {int(m["body"]["args"][0]): m for m in own if m["request"]}
    answers = {m["answers"]: m for m in own if not m["request"]}
    expected = list(stress_calls())
    assert len(calls) == len(answers) == len(expected) == 720
    tensors = 0
    for rank, k, destination, sizes in expected:
        call = calls[k]
        answer = answers[call["index"]]
        assert (call["src"], call["dst"]) == (f"worker{rank}", f"worker{destination}")
        assert call["body"]["function"].endswith("echo")
        texts = [f"tensor#{i}[{size}] float32" for i, size in enumerate(sizes)]
        assert call["body"]["args"][1:] == texts
        assert answer["body"]["value"] == f"({k}, [{', '.join(texts)}])"
        digests = [sha256(struct.pack("<f", k) * size).hexdigest() for size in sizes]
        for message in (call, answer):
            assert [t["sha256"] for t in message["tensors"]] == digests
            assert all(t["placement"] == "certain" for t in message["tensors"])
            tensors += len(digests)
    assert tensors == 2058


def test_lost_packets_mislead_nobody() -> None:
    """stress_lossy: tensors that are said to be certain hold the number of their call."""
    result = decode(torch_capture(LOSSY))
    right = 0
    for message in result.messages:
        text = (message["body"].get("args") or [message["body"].get("value")])[0]
        found = re.match(r"\(?(\d+)", text or "")
        if message["control"] or found is None:
            continue
        for tensor in message["tensors"]:
            if tensor["sha256"] is not None:
                data = struct.pack("<f", int(found[1])) * tensor["shape"][0]
                assert tensor["sha256"] == sha256(data).hexdigest()
                right += 1
    assert right > 0
    assert "capture-gap" in {finding["code"] for finding in result.of("finding")}


def test_snaplen() -> None:
    """12 messages are named, 11 of them whole; the twelfth and the tensors lack bytes and say so."""
    result = decode(torch_capture(CUT))
    assert len(result.messages) == 12
    assert len([m for m in result.messages if not m["problems"]]) == 11
    (finding,) = [f for f in result.of("finding") if f["code"] == "truncated-packets"]
    (cut,) = [m["index"] for m in result.messages if m["problems"]]
    assert cut in finding["messages"]
    assert all(t["sha256"] is None for m in result.messages for t in m["tensors"])
    assert result.summary["bytes"]["missing"] > 0


# --- examples -----------------------------------------------------------------------------------------------


def test_rnn_example() -> None:
    result = decode(foreign("examples/rnn_basic.pcap.gz"))
    assert result.problems() == []
    assert [(w["name"], w["id"]) for w in result.of("worker")] == [("ps", 0), ("trainer", 1)]
    assert {m["src"] for m in result.messages} == {"ps", "trainer"}
    assert all(t["sha256"] or t["parts"] for m in result.messages for t in m["tensors"])
    assert all(rref["owner"] in ("ps", "trainer") for rref in result.of("rref"))


def test_rnn_example_over_shared_memory() -> None:
    result = decode(foreign("examples/rnn_default_shm.pcap"))
    assert result.messages == []
    assert result.problems() == []
    assert {w["name"] for w in result.of("worker")} == {"ps", "trainer"}
    (finding,) = result.of("finding")
    assert (finding["code"], finding["severity"]) == ("invisible-transport", "error")
    assert {pipe["visible"] for pipe in result.of("pipe")} == {"handshake-only"}


# --- round trip ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", representative(intact()), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_roundtrip(path: Path) -> None:
    """Every message of an intact capture comes out byte for byte; quick, of each fourth of torch's tests."""
    different = []
    with Decoding([str(path)]) as decoding:
        for record in decoding.records():
            assert record.tp.payload_missing is None
            if not round_trips(record):
                different.append(record.location)
    assert different == []


def test_roundtrip_of_what_is_left_of_cut_captures() -> None:
    for name in (CUT, LOSSY):
        kinds = Counter[str]()
        with Decoding([str(torch_capture(name))]) as decoding:
            for record in decoding.records():
                if record.tp.payload_missing is not None:
                    kinds["cut"] += 1
                else:
                    kinds["same" if round_trips(record) else "different"] += 1
        assert kinds["same"] > 0
        assert kinds["cut"] > 0
        assert kinds["different"] == 0
