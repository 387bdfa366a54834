"""The rows of messages and tensors against the lines of jsonl, column by column."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.export.parquet.messages import MAX_INT64, _cells
from rpcinspect.fields.field import Field
from rpcinspect.fields.kinds import SIZE
from tests.checks.runs import traced
from tests.decoded import Decoded, Json, decode
from tests.export.parquet.lakes import rows, write_lake
from tests.filter.from_json import FROM_JSON
from tests.places import recorded
from tests.thorough import some
from tests.truth import CAPTURES

BUNDLED = sorted(path.name for path in CAPTURES.glob("*.pcap*"))
OTHERS = (
    "torch/kitchen.pcap",
    "torch/sparse.pcap",
    "torch/snap300.pcap",
    "torch/stress_lossy.pcap.gz",
    "torch/chan_shm.pcap",
    "torch/prof2_legacy.pcap",
)

SAME = {
    "index": "index",
    "time_ns": "time_ns",
    "pipe": "pipe",
    "src": "src",
    "dst": "dst",
    "type": "type",
    "id": "id",
    "request": "request",
    "answers": "answers",
    "control": "control",
    "body_type": "body",
    "function": "fn",
    "async": "async",
    "value": "value",
    "failed": "error",
    "error_type": "error.type",
    "error_node_id": "error.node_id",
    "error_text": "error.text",
    "context_id": "ctx",
    "autograd_message_id": "autograd_message_id",
    "retain_graph": "retain_graph",
    "tensors": "tensors",
    "location_capture": "capture",
    "location_packet": "packet",
    "location_first_packet": "first_packet",
    "location_last_packet": "last_packet",
    "location_flow": "flow",
}
"""Column → field of a filter, with one value at most."""
LISTS = {"args": "arg", "envelopes": "envelope", "problems": "problem"}
PAIRS = {"rref": "rref_id", "fork": "fork_id", "profiling": "profiling_id"}


def expected(message: Json, decoded: Decoded) -> Json:
    """A row as jsonl tells it, but for what needs more than the lines."""

    def told(field: str) -> list[Any]:
        return FROM_JSON[field](message, decoded)

    row: Json = {}
    for column, field in SAME.items():
        row[column] = next(iter(told(field)), None)
    for column, field in LISTS.items():
        row[column] = told(field)
    for column, field in PAIRS.items():
        row[f"{column}_created_on"], row[f"{column}_local_id"] = next(iter(told(field)), (None, None))
    body = message["body"]
    answer = decoded.answer(message) if message["request"] else None
    maps = [e["device_map"] for e in message["envelopes"] if "device_map" in e]
    workers = [e["from_worker_id"] for e in (*message["envelopes"], body) if "from_worker_id" in e]
    return row | {
        "end_time_ns": message["end_time_ns"],
        "answered_by": None if answer is None else answer["index"],
        "latency_ns": None if answer is None else answer["end_time_ns"] - message["time_ns"],
        "kwargs": list(body.get("kwargs", {}).items()),
        "device_map": [pair for devices in maps for pair in devices.items()],
        "from_worker_id": next(iter(workers), None),
        "grads": body.get("grads", []),
        "findings": told("finding"),
        "location_offset": message["location"]["offset"],
    }


def assert_as_in_json(path: Path, folder: Path) -> None:
    write_lake(folder, [path])
    decoded = decode(path)
    found = {row["index"]: row for row in rows(folder, "messages")}
    assert sorted(found) == [message["index"] for message in decoded.messages]
    timings = traced(path).latency.timings
    sizes = {timing.call.index: timing.call.request_bytes for timing in timings}
    sizes |= {
        timing.call.answer: timing.call.answer_bytes for timing in timings if timing.call.answer is not None
    }
    for message in decoded.messages:
        row = found[message["index"]]
        size = row.pop("nbytes")
        assert size == sizes.get(message["index"], size)  # none for an answer to what was not captured
        assert row.pop("time").timestamp() == pytest.approx(message["time_ns"] / 1e9, abs=1e-6)
        storages = {t["storage"]: t["storage_nbytes"] for t in message["tensors"] if t["storage"] is not None}
        assert row.pop("storage_nbytes") >= sum(filter(None, storages.values()))
        assert (row.pop("missing_bytes") > 0) >= any(t["missing_bytes"] for t in message["tensors"])
        assert row.pop("job") is not None
        row["findings"].sort()
        assert row == expected(message, decoded)


def assert_tensors_as_in_json(path: Path, folder: Path) -> None:
    write_lake(folder, [path])
    found = {(row.pop("message"), row.pop("tensor")): row for row in rows(folder, "tensors")}
    told = {
        (message["index"], number): tensor
        for message in decode(path).messages
        for number, tensor in enumerate(message["tensors"])
    }
    assert set(found) == set(told)
    for place, line in told.items():
        row = found[place]
        parts = {(place[0], index): (place[1], name) for name, index in line["parts"].items()}
        for part, (whole, name) in parts.items():
            assert (found[part]["part_of"], found[part]["part"]) == (whole, name)
        assert row.pop("numel") == math.prod(line["shape"])
        assert row.pop("nbytes") >= 0
        del row["part_of"], row["part"]
        quantizer = line["quantizer"] or dict.fromkeys(("scheme", "scale", "zero_point", "axis"))
        assert row == {
            **{f"quantizer_{name}": value for name, value in quantizer.items()},
            "storage_offset": line["offset"],
            **{name: line[name] for name in row if name in line},
        }


@pytest.mark.parametrize("name", some(BUNDLED, 2))
def test_columns_are_what_jsonl_says(name: str, tmp_path: Path) -> None:
    assert_as_in_json(CAPTURES / name, tmp_path)


@pytest.mark.parametrize("name", some(BUNDLED, 2))
def test_columns_of_tensors_are_what_jsonl_says(name: str, tmp_path: Path) -> None:
    assert_tensors_as_in_json(CAPTURES / name, tmp_path)


@pytest.mark.parametrize("name", OTHERS)
def test_damaged_and_exotic_captures_give_the_same(name: str, tmp_path: Path) -> None:
    assert_as_in_json(recorded(name), tmp_path / "a")
    assert_tensors_as_in_json(recorded(name), tmp_path / "b")


def test_sizes_add_up(tmp_path: Path) -> None:
    """Against the summary, which counts frames and tensors elsewhere."""
    for name in ("basic_chain.pcap", "views_alias.pcap.gz", "ps_race.pcap.gz"):
        folder = tmp_path / name
        write_lake(folder, [CAPTURES / name])
        found = rows(folder, "messages")
        told = decode(CAPTURES / name).summary["bytes"]
        assert sum(row["storage_nbytes"] for row in found) == told["tensors"]
        assert 0 < sum(row["nbytes"] - row["storage_nbytes"] for row in found) <= told["rpc"]


def test_elements_have_the_bytes_that_torch_counts(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    write_lake(tmp_path, [CAPTURES / "dtype_zoo.pcap.gz"])
    seen = 0
    for row in rows(tmp_path, "tensors"):
        dtype = getattr(torch, row["dtype"], None)
        if row["layout"] == "strided" and row["quantizer_scheme"] is None and isinstance(dtype, torch.dtype):
            assert row["nbytes"] == row["numel"] * dtype.itemsize
            seen += 1
    assert seen > 20


def test_hashes_can_be_left_out(tmp_path: Path) -> None:
    write_lake(tmp_path, [CAPTURES / "basic_chain.pcap"], hashes=False)
    assert {row["sha256"] for row in rows(tmp_path, "tensors")} == {None}


@pytest.mark.parametrize(("length", "cell"), [(0, 0), (MAX_INT64, MAX_INT64), (1 << 200, MAX_INT64)])
def test_absurd_lengths_are_cut_off(length: int, cell: int) -> None:
    assert _cells(Field("nbytes", SIZE, ""), (length,)) == (cell,)
