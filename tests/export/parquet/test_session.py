"""The rows of all that is no message against the lines of jsonl."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.views.questions.contexts import context_json
from tests.checks.runs import traced
from tests.decoded import decode
from tests.export.parquet.lakes import Row, rows, write_lake
from tests.thorough import some
from tests.truth import CAPTURES, workload

BUNDLED = sorted(path.name for path in CAPTURES.glob("*.pcap*"))


@pytest.mark.parametrize("name", some(BUNDLED, 2))
def test_tables_are_what_jsonl_says(name: str, tmp_path: Path) -> None:
    path = CAPTURES / name
    write_lake(tmp_path, [path])
    decoded = decode(path)
    (capture,) = rows(tmp_path, "captures")
    (line,) = decoded.of("capture")
    assert capture["number"] == line["capture"]
    assert {key: line[key] for key in capture if key in line} == {
        key: value for key, value in capture.items() if key in line
    }
    for row, line in zip(rows(tmp_path, "workers"), decoded.of("worker"), strict=True):
        assert row == {**without(line, "kind", "group"), "worker_group": line["group"]}
    for row, line in zip(rows(tmp_path, "pipes"), decoded.of("pipe"), strict=True):
        assert without(row, "job") == {
            **without(line, "kind"),
            "channels": list(line["channels"].items()),
        }
    for row, line in zip(rows(tmp_path, "findings"), decoded.of("finding"), strict=True):
        assert without(row, "first_worker") == without(line, "kind")
        assert row["first_worker"] == (line["workers"] or [None])[0]


@pytest.mark.parametrize("name", some(BUNDLED, 2))
def test_contexts_edges_and_references_are_what_jsonl_says(name: str, tmp_path: Path) -> None:
    path = CAPTURES / name
    write_lake(tmp_path, [path])
    decoded = decode(path)
    contexts, lines = rows(tmp_path, "contexts"), list(map(context_json, traced(path).graphs))
    edges = rows(tmp_path, "edges")
    for row, line in zip(contexts, lines, strict=True):
        told = line.pop("edges")
        assert row.pop("edges") == len(told)
        assert row == {key: line[key] for key in row}
        its = [edge for edge in edges if (edge["job"], edge["context_id"]) == (row["job"], row["context_id"])]
        assert sum(edge["gradient_expected"] for edge in its) == row["gradients_expected"]
        for edge, seen in zip(its, told, strict=True):
            assert edge["gradients"] == len(seen["backward"])
            assert edge == {**{key: seen[key] for key in edge if key in seen}, **own(edge)}
    for row, line in zip(rows(tmp_path, "rrefs"), decoded.of("rref"), strict=True):
        assert [row["rref_created_on"], row["rref_local_id"]] == line["rref_id"]
        assert (row["owner"], row["job"]) == (line["owner"], line["job"])
        for kind in ("forks", "deleted", "live_forks"):
            assert [list(map(int, fork.split(":"))) for fork in row[kind]] == line[kind]


def own(edge: Row) -> Row:
    return {key: edge[key] for key in ("context_id", "job", "gradient_expected", "gradients")}


def without(line: Row, *keys: str) -> Row:
    return {key: value for key, value in line.items() if key not in keys}


def test_a_filter_leaves_what_its_messages_take_part_in(tmp_path: Path) -> None:
    path = CAPTURES / "ps_race.pcap.gz"
    told = write_lake(tmp_path, [path], text="ctx == 1:0")
    (context,) = rows(tmp_path, "contexts")
    assert context["context_id"] == 1 << 48
    assert {edge["context_id"] for edge in rows(tmp_path, "edges")} == {1 << 48}
    found = rows(tmp_path, "messages")
    assert {row["context_id"] for row in found} == {1 << 48}
    assert {row["message"] for row in rows(tmp_path, "tensors")} <= {row["index"] for row in found}
    assert len(rows(tmp_path, "workers")) == len(decode(path).of("worker"))
    assert f"{len(found)} messages" in told


def test_times_of_a_context_are_whole_though_few_of_its_messages_are_shown(tmp_path: Path) -> None:
    path = CAPTURES / "basic_chain.pcap"
    write_lake(tmp_path / "all", [path])
    write_lake(tmp_path / "few", [path], text="type == BACKWARD_AUTOGRAD_REQ")
    assert rows(tmp_path / "few", "contexts") == rows(tmp_path / "all", "contexts")
    assert len(rows(tmp_path / "few", "messages")) < len(rows(tmp_path / "all", "messages"))


def test_edges_whose_gradient_never_came_are_those_of_the_job(tmp_path: Path) -> None:
    """The worker that failed printed so; no worker has printed these gradients."""
    write_lake(tmp_path, [CAPTURES / "bwd_boom.pcap.gz"])
    lost = [edge for edge in rows(tmp_path, "edges") if edge["gradient_expected"] and not edge["gradients"]]
    calls = {call.request["index"] for call in workload("bwd_boom").calls()}
    assert {edge["forward"] for edge in lost} <= calls
    assert {(edge["sender"], edge["receiver"]) for edge in lost} == {
        ("worker0", "worker2"),
        ("worker2", "worker1"),
    }
