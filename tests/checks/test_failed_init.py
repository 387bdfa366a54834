"""Who met and found no way to each other: by what the jobs printed, and made-up visits."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec.structs import replace

from rpcinspect.checks.failed_init import MAX_ATTEMPTS
from rpcinspect.checks.wire_facts import WireFacts
from rpcinspect.session.model import Finding
from rpcinspect.store.visits import Visit
from rpcinspect.tcp.refusals import Refusal
from tests.checks.talks import SECOND, findings, of_path
from tests.places import recorded
from tests.replayer.talks import Workers
from tests.session.records import Talk

STORE, HOST = "10.0.0.9:29500", "10.0.0.1"
BOTH = frozenset({(HOST, HOST), (HOST, "10.0.0.2"), ("10.0.0.2", HOST)})


def truth(name: str) -> list[dict[str, Any]]:
    lines = recorded(f"reports/failures/{name}.truth").read_text().splitlines()
    return [json.loads(line.removeprefix("TRUTH ")) for line in lines]


def of_recording(name: str) -> list[Finding]:
    return [f for f in of_path(str(recorded(name)))[1] if f.code == "failed-init"]


def visit(rank: int | None, begin_ns: int = 0, ended_ns: int | None = SECOND, **more: Any) -> Visit:
    given: dict[str, Any] = {
        "client": f"{HOST}:{1000 + (rank or 0)}",
        "server": STORE,
        "root": "",
        "group": 0,
    }
    return Visit(**given | {"begin_ns": begin_ns, "ended_ns": ended_ns} | {"rank": rank} | more)


def refusal(server: str, count: int = 1, at: int = SECOND // 2, **more: Any) -> Refusal:
    given: dict[str, Any] = {"host": HOST, "server": server, "count": count, "silent": False}
    return Refusal(**given | {"first_ns": at, "last_ns": at} | more)


def told(
    *visits: Visit, refusals: tuple[Refusal, ...] = (), talk: Talk | None = None, **facts: Any
) -> list[str]:
    wire = WireFacts(visits=visits, refusals=refusals, talking=BOTH, **facts)
    found = findings(talk or Workers(3), wire, until=10 * SECOND)
    return [finding.text for finding in found if finding.code == "failed-init"]


# --- recorded jobs ------------------------------------------------------------------------------------------


def test_two_restarts_after_an_attempt_that_was_good() -> None:
    first, second = of_recording("reports/findings/elastic.pcap")
    assert first.text.startswith("Ranks 0, 1, 2 met at the store 127.0.0.1:38885 9.93 s into the capture")
    assert (
        "4 connections to 127.0.0.1:44743 (Gloo of worker1 of an earlier attempt) were refused" in first.text
    )
    assert "15.7 s into the capture" in second.text
    assert "12 connections were refused" in second.text
    assert first.remedy is not None
    assert "a store of its own" in first.remedy
    assert first.workers == ("worker:0", "worker:2", "worker:1")


def test_one_who_comes_again_while_the_others_talk() -> None:
    (failed,) = [event for event in truth("again") if event["event"] == "init failed"]
    swapped = int(re.findall(r"]:(\d+)", failed["error"])[0])  # as Gloo prints it: in network order
    port = int.from_bytes(swapped.to_bytes(2, "little"), "big")
    (finding,) = of_recording("reports/failures/again.pcap")
    assert finding.text.startswith(f"Rank {failed['worker'][-1]} came to the store")
    assert f" to 127.0.0.1:{port} (Gloo of worker0) were refused" in finding.text
    assert finding.remedy is not None
    assert "takes nobody who comes later" in finding.remedy


def test_a_store_that_is_not_there() -> None:
    (port,) = {re.findall(r"127\.0\.0\.1, (\d+)", event["error"])[0] for event in truth("nobody")}
    (finding,) = of_recording("reports/failures/nobody.pcap")
    assert f"to 127.0.0.1:{port} were refused" in finding.text
    assert finding.severity == "error"


def test_a_map_that_names_nobody() -> None:
    lines = recorded("devmap_cpu_refused.truth").read_text().splitlines()
    events = [json.loads(line.removeprefix("TRUTH ")) for line in lines]
    ranks = sorted(event["worker"][-1] for event in events if event.get("when") == "init")
    (finding,) = of_recording("devmap_cpu_refused.pcap")
    assert finding.text.startswith(f"Ranks {', '.join(ranks)} met at the store")
    assert finding.text.endswith("all left before an RPC agent was there.")


# --- made-up visits -----------------------------------------------------------------------------------------


def test_who_may_go_on_after_the_capture_has_not_failed() -> None:
    assert told(visit(0, ended_ns=None), visit(1, ended_ns=None)) == []
    hanging = visit(1, ended_ns=None, read={"10.0.0.2:7": "rank 0"})
    assert len(told(hanging, refusals=(refusal("10.0.0.2:7"),))) == 1
    assert told(hanging, refusals=(refusal("10.0.0.2:7", at=10 * SECOND),)) == []


def test_what_could_not_be_read_proves_nothing() -> None:
    assert told(visit(0, whole=False)) == []
    assert told(visit(0, succeeded=True)) == []
    assert told(visit(None)) == []  # who sets nothing looks on only


def test_agents_to_which_nobody_connected() -> None:
    zero = visit(0, name="w7", address=f"uv://{HOST}:5", read={"10.0.0.2:6": "w8"})
    one = visit(1, name="w8", address="uv://10.0.0.2:6", read={f"{HOST}:5": "w7"})
    (text,) = told(zero, one)
    assert text.startswith("w7, w8 met at the store")
    assert text.endswith(f"agents listened at {HOST}:5, 10.0.0.2:6, and nobody connected.")
    # pipes may be where nothing was captured, lost, or come about and not be known for what they are
    far = replace(one, address="uv://10.0.0.3:6")
    assert told(replace(zero, read={"10.0.0.3:6": "w8"}), far) == []
    assert told(zero, one, damaged=frozenset({"a flow"})) == []
    assert len(told(zero, one, reached=frozenset({f"{HOST}:5"}))) == 1
    assert told(zero, one, reached=frozenset({f"{HOST}:5", "10.0.0.2:6"})) == []
    assert told(replace(zero, address="shm://x"), replace(one, address="shm://y")) == []


def test_a_name_that_is_there_twice() -> None:
    """The three of a job of torch 2.13, each of which died of `RPC worker name trainer is not unique`."""
    three = [visit(rank, name=name) for rank, name in enumerate(("ps", "trainer", "trainer"))]
    (text,) = told(*three)
    assert text.startswith("ps, trainer met at the store")
    assert text.endswith("but opened no pipe: rank 1, rank 2 have one name, trainer.")
    (text,) = told(three[0], three[1], replace(three[1], client=f"{HOST}:7"))
    assert text.endswith("all left before an RPC agent was there.")


def test_who_never_came() -> None:
    """Of three processes of torch 2.13 the last one died before init_rpc: rank 1 waited for rank 0, which has
    the store and waited for three connections."""
    (text,) = told(visit(1, awaited={0: None}))
    assert text.endswith("it waited for the address of rank 0, which never came.")
    read = {f"{HOST}:5": "rank 0"}
    (text,) = told(visit(0, awaited={1: None, 2: None}), visit(1, awaited={0: None, 2: None}, read=read))
    assert text.endswith("they waited for the address of rank 2, which never came.")
    (text,) = told(visit(0, awaited={1: None}), visit(1, awaited={0: None}))
    assert text.endswith("all left before an RPC agent was there.")


def test_a_worker_alone_needs_no_pipe() -> None:
    assert told(visit(0, name="w7", address=f"uv://{HOST}:5", read={f"{HOST}:5": "w7"})) == []


def test_a_process_may_have_two_connections_to_the_store() -> None:
    agent = visit(0, client=f"{HOST}:7", name="w0", address=f"uv://{HOST}:5")
    assert told(visit(0), agent) == []
    assert len(told(visit(0), replace(agent, rank=1))) == 1


def test_many_attempts_are_told_together() -> None:
    attempts = [visit(rank, begin_ns=n * 2 * SECOND) for n in range(10) for rank in (0, 1)]
    attempts = [replace(one, ended_ns=one.begin_ns + SECOND) for one in attempts]
    texts = told(*attempts)
    assert len(texts) == MAX_ATTEMPTS + 1
    assert texts[-1].startswith("6 more times processes met at the store")


def test_an_agent_that_is_gone() -> None:
    there = visit(2, name="w2", address="uv://10.0.1.2:5000", succeeded=True)
    (text,) = told(there, refusals=(refusal("10.0.1.2:5000", at=5 * SECOND),))
    assert text == (
        f"1 connection of {HOST} to 10.0.1.2:5000 (w2) was refused, 5 s into the capture, and no later one "
        "came about."
    )
    (text,) = told(there, refusals=(refusal("10.0.1.2:5000", at=5 * SECOND, silent=True),))
    assert "got no answer" in text


def test_a_store_that_one_host_does_not_reach() -> None:
    def texts(**more: Any) -> list[str]:
        return told(visit(0, succeeded=True), refusals=(refusal(STORE, **more),), stores=(STORE,))

    assert len(texts(count=3)) == 1
    assert texts(count=1) == []
    assert texts(count=3, at=9 * SECOND) == []  # it may try again


def test_other_addresses_are_other_peoples() -> None:
    assert told(visit(0, succeeded=True), refusals=(refusal("10.0.0.8:443", count=9),)) == []
