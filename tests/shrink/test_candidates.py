"""Which calls belong to a part of a run: causes, and what replay needs; the least first, all of it last."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from rpcinspect.diff.compare import compare
from rpcinspect.replay.planning.plan import PlanOptions, plan
from rpcinspect.run.run import Run
from rpcinspect.shrink.candidates import Target, candidates, target_of
from rpcinspect.writing.file import write_session
from tests.truth import capture_of, workload


def target(a: str, b: str) -> Target | None:
    return target_of(compare(str(capture_of(f"pairs/{a}")), str(capture_of(f"pairs/{b}"))))


def message(run: str, caller: str, number: int) -> int:
    """The request of a call, as its caller counted."""
    calls = workload(f"pairs/{run}").calls()
    call = next(c for c in calls if (c.event["worker"], c.event["call"]) == (caller, number))
    return int(call.request["index"])


@pytest.mark.parametrize(
    ("a", "b", "side", "caller", "number"),
    [
        ("base", "function", "b", "worker0", 2),
        ("base", "error_nested", "b", "worker1", 1),
        ("base", "call_added", "b", "worker0", 20),
        ("base", "call_dropped", "a", "worker0", 17),  # b lacks it: a has it
    ],
)
def test_the_exchange_where_the_runs_part(a: str, b: str, side: str, caller: str, number: int) -> None:
    found = target(a, b)
    assert found is not None
    assert found.side == side
    assert found.indexes == (message(b if side == "b" else a, caller, number),)


def test_same_runs_have_none() -> None:
    assert target("base", "again") is None


def test_sets_are_closed_and_end_with_the_whole_run() -> None:
    with Run.open([str(capture_of("pairs/dropout_seed"))]) as run:
        exchanges = run.exchanges
        calls, causes = exchanges.by_index(), run.causes.decided()
        root = message("dropout_seed", "worker0", 11)
        sets = list(candidates(run, Target("b", (root,))))
    assert sets[-1] == frozenset(range(len(run)))
    for chosen in sets[:-1]:
        assert root in chosen
        for index in chosen & calls.keys():
            assert calls[index].answer in chosen | {None}
            assert causes.parents.get(index, index) in chosen
            assert {i for i, parent in causes.parents.items() if parent == index} <= chosen


def test_a_forward_call_needs_the_weight_and_the_step_before_but_no_report() -> None:
    """Of what the job prints, in order: who made the weight and the optimizer, and the iteration before."""
    run = workload("pairs/dropout_seed")
    wanted = {"training.make_weight", "training.forward", "training.linear"}
    with Run.open([str(capture_of("pairs/dropout_seed"))]) as opened:
        root = message("dropout_seed", "worker0", 11)
        least = next(iter(candidates(opened, Target("b", (root,)))))
    functions = {m["body"].get("function") for m in run.decoded.messages if m["index"] in least}
    assert wanted <= functions
    assert not functions & {"training.mean_of", "training.norm_of", "training.row_of", "training.quantile_of"}
    later = message("dropout_seed", "worker0", 14)
    assert max(least & {call.request["index"] for call in run.calls()}) < later


def test_an_answer_without_a_request_is_alone() -> None:
    with Run.open([str(capture_of("basic_chain"))]) as run:
        answer = next(i for i, record in enumerate(run.messages) if not record.tp.from_client)
        sets = list(candidates(run, Target("b", (answer,))))
    assert sets == [frozenset({answer}), frozenset(range(len(run)))]


def reasons(opened: Run, indexes: list[int]) -> dict[int, set[str | None]]:
    """Message of the whole run → why a plan skips it, None where some session does not."""
    found: dict[int, set[str | None]] = defaultdict(set)
    for session in plan(opened.session, opened.messages, PlanOptions(trust=True)).sessions:
        for step in session.steps:
            found[indexes[step.message]].add(step.code if step.action == "skip" else None)
    return found


@pytest.mark.parametrize("name", ["rref_relay", "ps_race_lock", "bwd_boom", "devmap_cpu", "pairs/base"])
def test_replays_of_parts_lack_nothing(name: str, tmp_path: Path) -> None:
    """Whichever call a part is made for: its plan skips for no reason that the whole plan has not."""
    small = tmp_path / "small.pcap"
    with Run.open([str(capture_of(name))]) as run:
        messages = run.messages
        whole = reasons(run, list(range(len(run))))
        calls = [call for call in run.exchanges.calls if not call.control]
        for call in calls[:: max(1, len(calls) // 12)]:
            chosen = next(iter(candidates(run, Target("b", (call.index,)))))
            with small.open("wb") as file:
                write_session(file, run.session, messages, run.read, chosen)
            with Run.open([str(small)]) as part:
                for index, codes in reasons(part, sorted(chosen)).items():
                    assert codes <= whole[index] | {None}
