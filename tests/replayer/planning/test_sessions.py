"""Who is played with whom."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.planning.sessions import (
    PlanError,
    RoleAssignment,
    changes_state,
    default_casts,
    named_casts,
    worker_ids,
    workers_of,
)
from rpcinspect.rpc.command import Command, PythonRemoteCall, RemoteRet
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.run import RunModel, open_run
from tests.cli.runner import CHAIN, rpcinspect
from tests.places import recorded
from tests.replayer.talks import Workers, udf
from tests.session.records import entry
from tests.truth import CAPTURES, workload

ALL = {0: ("w0", "w1", "w2", "w3")}


def remote(number: int) -> tuple[Command, Command]:
    """A remote call of a Python function, and its answer."""
    identifier = GloballyUniqueId(0, number)
    made = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=udf("app.make"),
        ret_rref_id=identifier,
        ret_fork_id=identifier,
        is_async_execution=False,
    )
    return made, RemoteRet(identifier, identifier)


def casts(workers: Workers) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    calls = workers.calls()
    return [(cast.roles, cast.live) for cast in default_casts(ALL, calls, workers.causes())]


def test_one_session_for_each_worker_that_starts_something() -> None:
    workers = Workers(4)
    workers.call(0, 1, 10, 20)
    workers.call(2, 3, 30, 40)
    assert casts(workers) == [(("w0",), ("w1", "w2", "w3")), (("w2",), ("w0", "w1", "w3"))]


def test_callers_of_one_worker_are_apart_unless_its_state_changes() -> None:
    workers = Workers(4)
    workers.call(0, 1, 10, 20)
    workers.call(2, 1, 30, 40)
    assert len(casts(workers)) == 2
    workers.call(2, 1, 50, 60, *remote(1))
    assert casts(workers) == [(("w0", "w2"), ("w1", "w3"))]


def test_the_state_may_be_reached_through_others() -> None:
    workers = Workers(4)
    workers.call(0, 3, 10, 40)
    workers.call(3, 1, 20, 30, *remote(1))  # nested
    workers.call(2, 1, 50, 60)
    assert casts(workers) == [(("w0", "w2"), ("w1", "w3"))]


def test_where_everybody_calls_everybody_each_is_live_once() -> None:
    workers = Workers(4)
    for caller in range(3):
        for callee in range(3):
            if caller != callee:
                time = 100 * caller + 10 * callee
                workers.call(caller, callee, time, time + 5, *remote(time))
    assert [live for _, live in casts(workers)] == [("w0",), ("w1",), ("w2",)]
    assert all(len(roles) == 3 for roles, _ in casts(workers))


@pytest.mark.parametrize(
    ("function", "changes"),
    [
        ("app.f", False),
        ("aten::add", False),
        ("torch.distributed.optim.optimizer._local_optimizer_step", True),
    ],
)
def test_what_is_known_to_change_state(function: str, changes: bool) -> None:
    workers = Workers(2)
    workers.call(0, 1, 10, 20, function)
    assert changes_state(workers.calls()[0]) is changes


@pytest.mark.parametrize(
    ("roles", "live", "expected"),
    [
        (["w1"], [], (("w1",), ("w0", "w2", "w3"))),
        (["w2", "w0"], [], (("w2", "w0"), ("w1", "w3"))),
        ([], ["w3"], (("w0", "w1", "w2"), ("w3",))),
    ],
)
def test_named(roles: Sequence[str], live: Sequence[str], expected: object) -> None:
    (cast,) = named_casts(ALL, roles, live)
    assert (cast.roles, cast.live) == expected


@pytest.mark.parametrize(
    ("roles", "live", "told"),
    [
        (["nobody"], [], "no worker is called nobody: the capture has w0, w1, w2, w3"),
        (["w0", "w1", "w2", "w3"], [], "no worker is left to run live"),
        ([], ["w0", "w1", "w2", "w3"], "no worker is left to be played"),
    ],
)
def test_mistakes(roles: Sequence[str], live: Sequence[str], told: str) -> None:
    with pytest.raises(PlanError, match=re.escape(told)):
        named_casts(ALL, roles, live)


def of_capture(path: Path) -> list[RoleAssignment]:
    with open_run(str(path)) as opened:
        return default_casts(workers_of(opened.session), opened.exchanges.calls, opened.causes.decided())


@pytest.mark.parametrize("name", ["ps_race", "ps_race_lock"])
def test_trainers_of_one_parameter_server_are_played_together(name: str) -> None:
    (cast,) = of_capture(CAPTURES / f"{name}.pcap.gz")
    assert (cast.roles, cast.live) == (("worker1", "worker2", "worker3"), ("worker0",))


@pytest.mark.parametrize(
    ("name", "count", "live"),
    [
        ("DistAutogradTest.test_backward_simple", 4, 3),
        ("DistAutogradTest.test_async_dist_autograd", 3, 3),  # worker0 serves only
        ("DistAutogradTest.test_trainer_ps", 4, 1),
        ("DistOptimizerTest.test_dist_optim_none_grads", 4, 1),
        ("JitDistAutogradTest.test_dist_backward", 1, 3),
    ],
)
def test_torchs_own_tests(name: str, count: int, live: int) -> None:
    found = of_capture(recorded(f"torch-suite/{name}.pcap.gz"))
    assert [len(cast.live) for cast in found] == [live] * count
    for cast in found:
        assert {*cast.roles, *cast.live} == {"worker0", "worker1", "worker2", "worker3"}


CAST = RoleAssignment(0, ("w0",), ("w1", "w2"), "a test")


def test_workers_without_an_id_get_free_ones() -> None:
    workers = Workers(3)
    workers.call(0, 1, 0, 10)
    session, _ = workers.heard()
    ids = worker_ids(session, CAST, workers.calls())
    assert set(ids) == {"w0", "w1", "w2"}
    assert sorted(ids.values()) == [0, 1, 2]


def test_ids_are_learned_from_the_envelopes_of_requests_and_answers() -> None:
    workers = Workers(3)
    workers.call(1, 2, 0, 10, context=(1 << 48, 1), grads=(1, 1))
    session, _ = workers.heard()
    assert worker_ids(session, CAST, workers.calls()) == {"w0": 0, "w1": 1, "w2": 2}


def test_the_store_tells_ids() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10)
    session = workers.finish(entry("names/5", "w0"), entry("names/3", "w1"))
    calls = RunModel(session, workers.records).exchanges.calls
    assert worker_ids(session, RoleAssignment(0, ("w0",), ("w1",), ""), calls) == {"w0": 5, "w1": 3}


def test_free_ids_are_none_of_the_captured_ones() -> None:
    workers = Workers(3)
    workers.call(0, 1, 0, 10)
    session = workers.finish(entry("names/0", "w2"))
    calls = RunModel(session, workers.records).exchanges.calls
    ids = worker_ids(session, CAST, calls)
    assert ids["w2"] == 0
    assert sorted(ids.values()) == [0, 1, 2]


def test_two_workers_with_one_id_can_not_be_played() -> None:
    """They would be one worker for the live ones."""
    workers = Workers(3)
    workers.call(0, 1, 0, 10)
    session = workers.finish(entry("names/4", "w0"), entry("names/7", "w1"))
    twins = replace(session, workers=tuple(replace(worker, id=4) for worker in session.workers))
    with pytest.raises(ReplayError, match=r"have the same id 4: w0, w1"):
        worker_ids(twins, RoleAssignment(0, ("w0",), ("w1",), ""), workers.calls())


def test_other_jobs_tell_nothing() -> None:
    workers = Workers(2)
    workers.call(0, 1, 0, 10)
    session = workers.finish(entry("names/5", "w0"), entry("names/3", "w1"))
    ids = worker_ids(session, RoleAssignment(1, ("w0",), ("w1",), ""), ())
    assert ids == {"w0": 0, "w1": 1}


def test_a_static_group_is_played_as_a_dynamic_one(tmp_path: Path) -> None:
    """The job's workers joined with a world size. The recording of the replay is a capture in which members
    tell each other of a new one, and is played again itself."""
    pytest.importorskip("torch")
    assert {event["world_size"] for event in workload("basic_chain").of("worker")} == {2}
    first = tmp_path / "first.pcap"
    ran = rpcinspect("replay", CHAIN, "--path", CAPTURES, "--record", first)
    assert ran.code == 0
    assert (
        "note: the captured group had a world_size, the live one has none; this changes no result" in ran.out
    )
    decoded = rpcinspect("decode", first, "--all").out
    assert "_update_group_membership" in decoded
    assert "_gather_to_leader" not in decoded
    again = rpcinspect("replay", first, "--path", CAPTURES, "--format", "jsonl").objects[-1]
    assert (again["verdict"], again["groups"]) == ("identical", {"captured": ["dynamic"], "live": "dynamic"})


def test_a_plan_tells_it_too() -> None:
    (*_, made) = rpcinspect("replay", CHAIN, "--plan", "--format", "jsonl").objects
    assert made["groups"] == {"captured": ["static"], "live": "dynamic"}
