"""Several jobs in one session: ids and names are unique in a job only, ports are used again."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.decoded import decode
from tests.places import content

CAPTURES = ("basic_chain.pcap", "param_detach.pcap", "devmap_cpu.pcap.gz")


def records(path: Path) -> list[bytes]:
    """The packets of a classic little-endian pcap, with their record headers."""
    data = content(path)
    out, at = [], 24
    while at + 16 <= len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        out.append(data[at : at + 16 + size])
        at += 16 + size
    return out


def shape(context: dict[str, Any]) -> tuple[Any, ...]:
    """What a context is, without indexes and job."""
    edges = [
        (e["autograd_message_id"], e["sender"], e["receiver"], len(e["backward"])) for e in context["edges"]
    ]
    return context["context_id"], context["creator"], tuple(sorted(context["workers"])), tuple(sorted(edges))


@pytest.mark.parametrize("one_file", [True, False], ids=["one file", "several files"])
def test_jobs_one_after_the_other(one_file: bool, repo: Path, tmp_path: Path) -> None:
    """Each job's workers, contexts and counts are what they are alone."""
    paths = [repo / "captures" / name for name in CAPTURES]
    alone = [decode(path) for path in paths]
    if one_file:
        head = paths[0].read_bytes()[:24]
        joined = tmp_path / "jobs.pcap"
        joined.write_bytes(head + b"".join(p for path in paths for p in records(path)))
        together = decode(joined)
    else:
        together = decode(*paths)
    assert len(together.messages) == sum(len(one.messages) for one in alone)
    assert together.summary["problems"] == 0
    contexts = sorted(shape(c) for one in alone for c in one.of("context"))
    assert sorted(shape(c) for c in together.of("context")) == contexts
    workers = sorted((w["name"], w["id"], tuple(w["addresses"])) for one in alone for w in one.of("worker"))
    assert sorted((w["name"], w["id"], tuple(w["addresses"])) for w in together.of("worker")) == workers
    assert {w["job"] for w in together.of("worker")} == set(range(len(paths)))


def test_jobs_at_the_same_time(repo: Path, tmp_path: Path) -> None:
    """Packets of two jobs between each other, as on a host that runs both."""
    first, second = (records(repo / "captures" / name) for name in CAPTURES[:2])
    ports = [
        {one["addresses"][0] for one in decode(repo / "captures" / name).of("worker")}
        for name in CAPTURES[:2]
    ]
    if ports[0] & ports[1]:
        pytest.skip("the two captures happen to use the same listeners")
    mixed = [p for pair in zip(first, second, strict=False) for p in pair]
    mixed += first[len(second) :] + second[len(first) :]
    joined = tmp_path / "mixed.pcap"
    joined.write_bytes((repo / "captures" / CAPTURES[0]).read_bytes()[:24] + b"".join(mixed))
    together = decode(joined)
    alone = [decode(repo / "captures" / name) for name in CAPTURES[:2]]
    assert len(together.messages) == sum(len(one.messages) for one in alone)
    assert together.summary["problems"] == 0


def test_processes_that_join_one_group_after_the_other(repo: Path) -> None:
    """Ids, names and the store's address stay; the groups are told apart as the workers told them."""
    told = decode(repo / "captures" / "reinit.pcap.gz")
    truth = [
        json.loads(line.partition("TRUTH ")[2])
        for line in (repo / "captures" / "reinit.truth").read_text().splitlines()
        if "TRUTH " in line
    ]
    workers = [(t["group"], t["id"], t["name"]) for t in truth if t["event"] == "worker"]
    assert [(w["group"], w["id"], w["name"]) for w in told.of("worker")] == sorted(workers)
    addresses = [address for w in told.of("worker") for address in w["addresses"]]
    assert len(set(addresses)) == len(addresses) == len(workers)
    contexts = {t["context_id"] for t in truth if t["event"] == "gradients"}
    assert {c["context_id"] for c in told.of("context")} == contexts
    assert all(len(c["edges"]) == 2 and len(c["cleanup"]) == 2 for c in told.of("context"))
    assert told.summary["problems"] == 0
