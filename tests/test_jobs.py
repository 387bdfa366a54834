"""Several jobs in one session: ids and names are unique in a job only, ports are used again."""

from __future__ import annotations

import json
import struct
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.decoded import Decoded, decode
from tests.export.pcap.rewritten import assert_same, rewrite
from tests.places import content, recorded

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


# --- jobs one after the other whose addresses, stores and names are used again ---


STORE = 29500
THREE = [
    json.loads(line.removeprefix("TRUTH "))
    for line in recorded("reports/names/three_jobs.truth").read_text().splitlines()
]


def without_store(path: Path, out: Path, jobs: set[int]) -> Path:
    """The capture without what was said to the stores of these jobs."""
    first = [min(e["time_ns"] for e in THREE if e["event"] == "ran" and e["job"] == job) for job in range(3)]
    kept = [content(path)[:24]]
    for packet in records(path):
        seconds, nanos = struct.unpack_from("<II", packet)
        job = min(bisect_left(first, seconds * 10**9 + nanos), 2)
        ports = struct.unpack_from(">HH", packet, 16 + 14 + 20)
        if STORE not in ports or job not in jobs:
            kept.append(packet)
    out.write_bytes(b"".join(kept))
    return out


def calls(told: Decoded) -> list[tuple[int, int, str, str]]:
    """(job, number, caller, callee) of each call of `who`."""
    found = [m for m in told.messages if m["body"].get("function", "").endswith(".who") and m["request"]]
    return sorted((*map(int, m["body"]["args"]), m["src"], m["dst"]) for m in found)


def ran(*jobs: int) -> list[tuple[int, int, str, str]]:
    """The same, as the workers told it."""
    names = {(e["job"], e["id"]): e["worker"] for e in THREE if e["event"] == "worker"}
    return sorted(
        (e["job"], e["number"], names[e["job"], 1 - e["id"]], e["worker"])
        for e in THREE
        if e["event"] == "ran" and e["job"] in jobs
    )


def test_three_jobs_at_one_store() -> None:
    """The second has the names of the first with the ranks swapped; the third listens where the first did."""
    told = decode(recorded("reports/names/three_jobs.pcap"))
    assert calls(told) == ran(0, 1, 2)
    workers = [(w["job"], w["name"], w["id"], w["addresses"]) for w in told.of("worker")]
    assert sorted(workers) == sorted(
        (e["job"], e["worker"], e["id"], [f"127.0.0.1:{e['port']}"]) for e in THREE if e["event"] == "worker"
    )
    ports = [address for *_, addresses in workers for address in addresses]
    assert len(set(ports)) < len(ports)  # or the capture says nothing of what it is for


@pytest.mark.parametrize("hidden", [{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}], ids=str)
def test_three_jobs_without_the_stores_of_some(hidden: set[int], tmp_path: Path) -> None:
    """Where a job's store is missing, clients are known by their pipes, and servers by their address."""
    told = decode(without_store(recorded("reports/names/three_jobs.pcap"), tmp_path / "part.pcap", hidden))
    at = {(e["job"], e["worker"]): f"127.0.0.1:{e['port']}" for e in THREE if e["event"] == "worker"}
    seen, shown = ran(*({0, 1, 2} - hidden)), calls(told)
    assert [call for call in shown if call[0] not in hidden] == seen
    for call in (call for call in shown if call[0] in hidden):
        job, number, caller, callee = call
        right = [one for one in ran(*hidden) if one[:3] == (job, number, caller)]
        assert len(right) == 1
        assert callee in (right[0][3], at[job, right[0][3]])
    for worker in told.of("worker"):
        for address in worker["addresses"]:
            if worker["name"] is not None:
                assert address in [at.get((job, worker["name"])) for job in range(3)]


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("full", {"worker0 worker1", "worker1 worker0", "alpha beta", "beta alpha"}),
        ("late", {"worker0 worker1", "worker1 worker0", "alpha beta", "beta alpha"}),
        ("nostore", {"worker0 worker1", "worker1 worker0", "alpha 127.0.0.1:34875", "beta alpha"}),
    ],
)
def test_two_jobs_at_one_listener(name: str, ends: set[str]) -> None:
    """worker1 of the first job says its name and its id in an error, alpha and beta in their handshakes."""
    told = decode(recorded(f"reports/names/two_jobs_{name}.pcap"))
    assert {f"{p['client']} {p['server']}" for p in told.of("pipe")} == ends
    for letter, job in (("a", 0), ("b", 1)):
        truth = json.loads(content(f"reports/names/job_{letter}.truth.json"))
        at = {f"127.0.0.1:{port}": w["name"] for w in truth["workers"] for port in w["ports"]}
        at["127.0.0.1:34875"] = "worker1" if letter == "a" else "beta"  # its port was put in place of beta's
        requests = [
            m for m in told.messages if m["request"] and truth["begin_ns"] < m["time_ns"] < truth["end_ns"]
        ]
        runs = [event["worker"] for event in truth["events"] if event["ev"] == "ran"]
        assert sorted(str(at.get(m["dst"], m["dst"])) for m in requests) == sorted(runs)
        ids = {w["name"]: w["id"] for w in truth["workers"]}
        workers = [w for w in told.of("worker") if w["job"] == job]
        assert workers
        for worker in workers:
            assert worker["id"] is None or ids[worker["name"]] == worker["id"]
            assert worker["name"] in (None, *ids)
            assert all(at[address] == (worker["name"] or at[address]) for address in worker["addresses"])


# --- groups without a fixed size, with equal names ---


GUESTS = [
    json.loads(line.removeprefix("TRUTH "))
    for line in recorded("reports/names/guests.truth").read_text().splitlines()
]
STORES = (48865, 54235)
ORDER = ("first", "beside", "second")
"""In which they begin."""


def test_a_guest_that_comes_back_with_another_id() -> None:
    told = decode(recorded("reports/names/guests.pcap"))
    ids: dict[tuple[int, str], set[int]] = defaultdict(set)
    for line in GUESTS:
        if line["event"] == "worker":
            ids[ORDER.index(line["job"]), line["worker"]].add(line["id"])
    workers = {(w["job"], w["name"]): w for w in told.of("worker")}
    assert workers.keys() == ids.keys()
    for key, worker in workers.items():
        assert worker["id"] == (next(iter(ids[key])) if len(ids[key]) == 1 else None)
        assert len(worker["addresses"]) == len(ids[key])
    edges = {
        (ORDER.index(line["job"]), line["context_id"]): set(line["recv"])
        for line in GUESTS
        if line["event"] == "edges"
    }
    contexts = {(c["job"], c["context_id"]): c for c in told.of("context")}
    assert contexts.keys() == edges.keys()
    for key, context in contexts.items():
        got = {e["autograd_message_id"] for e in context["edges"] if e["receiver"] == context["creator"]}
        assert got == edges[key]
        assert all(edge["backward"] for edge in context["edges"])
    assert told.of("finding") == []  # every pass came to its end, as the workers printed


@pytest.mark.parametrize("late", [0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.7])
@pytest.mark.parametrize("hidden", [(), STORES[:1], STORES], ids=["stores", "one store", "no store"])
def test_nothing_is_told_of_groups_of_which_parts_are_hidden(
    late: float, hidden: tuple[int, ...], tmp_path: Path
) -> None:
    packets = records(recorded("reports/names/guests.pcap"))
    times = [struct.unpack_from("<II", packet) for packet in packets]
    begin = times[0][0]
    whole = [1e6 * (seconds - begin) + micros for seconds, micros in times]
    since = whole[0] + late * (whole[-1] - whole[0])
    path = tmp_path / "part.pcap"
    kept = [
        packet
        for packet, time in zip(packets, whole, strict=True)
        if time >= since and not set(struct.unpack_from(">HH", packet, 16 + 14 + 20)) & set(hidden)
    ]
    path.write_bytes(content("reports/names/guests.pcap")[:24] + b"".join(kept))
    told = decode(path)
    assert len(told.messages) > 50
    assert {f["code"] for f in told.of("finding")} <= {"capture-gap"}


def test_they_are_the_same_once_written_again(tmp_path: Path) -> None:
    for name in ("two_jobs_full", "two_jobs_late", "two_jobs_nostore", "three_jobs"):
        path, out = recorded(f"reports/names/{name}.pcap"), tmp_path / f"{name}.pcap"
        rewrite([path], out)
        assert_same([path], out)
