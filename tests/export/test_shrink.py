"""`diff --shrink` of the pairs: the small capture decodes, plans, and shows the same difference first.

Which calls belong to a part of a run, for causes and for what replay needs: the least first, all of it last.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.diff.compare import compare
from rpcinspect.export.pcap.writer import write_session
from rpcinspect.export.shrink import Target, candidates, target_of
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.run.run import RunModel
from tests.cli.runner import Ran, rpcinspect
from tests.decoded import decode
from tests.pairs.expected import Check, checks
from tests.thorough import some
from tests.truth import CAPTURES, capture_of, workload

DIFFERENT = [check for check in checks() if check.first]
MOST = {
    "function": 18,
    "learning_rate": 6,
    "summation": 18,
    "device_map": 18,
    "renamed": 2,
    "dropout_seed": 50,
    "error_nested": 50,
    "dtype": 52,
    "error": 70,
}
"""Pairs whose first difference needs few messages: no more than so many, of 146 and more."""
FIELDS = ("src", "dst", "type", "id", "time_ns", "end_time_ns", "envelopes", "body", "tensors", "answers")


def shrunk(check: Check, small: Path, *options: str, back: bool = False) -> Ran:
    paths, flags = check.paths(), list(check.flags)
    if back:
        paths, flags = paths[::-1], ["=".join(reversed(flag.split("="))) for flag in flags]
    return rpcinspect("diff", *paths, *flags, "--format", "jsonl", "--shrink", small, *options)


@cache
def whole_skips(path: Path) -> set[tuple[int, str]]:
    """Those of a bundled capture."""
    return plan_skips(path)


def plan_skips(path: Path, indexes: list[int] | None = None) -> set[tuple[int, str]]:
    """(message, reason) of each skip; by the messages' indexes in the whole run."""
    ran = rpcinspect("replay", path, "--plan", "--trust-capture", "--format", "jsonl")
    steps = [o for o in ran.objects if o["kind"] == "step" and o["action"] == "skip"]
    return {
        (s["message"] if indexes is None else indexes[s["message"]], s["reason"].partition(":")[0])
        for s in steps
    }


@pytest.mark.parametrize(
    ("check", "back"),
    [
        *(pytest.param(check, False, id=f"{check}-ab") for check in DIFFERENT),
        *(pytest.param(check, True, id=f"{check}-ba") for check in some(DIFFERENT)),
    ],
)
def test_small_captures_of_the_pairs(check: Check, back: bool, tmp_path: Path) -> None:
    """Quick, each pair, and each fourth the other way round."""
    small = tmp_path / "small.pcap"
    ran = shrunk(check, small, back=back)
    first = ran.objects[-1]["first"]
    side = "a" if "of a's" in ran.err else "b"
    names = (check.b, check.a) if back else (check.a, check.b)
    whole = capture_of(f"pairs/{names[0 if side == 'a' else 1]}")

    decoded, of = decode(small), decode(whole)
    assert decoded.problems() == []
    times = {m["time_ns"]: m["index"] for m in of.messages}
    indexes = [times[m["time_ns"]] for m in decoded.messages]
    for message, index in zip(decoded.messages, indexes, strict=True):
        old = dict(of.messages[index])
        old["answers"] = indexes.index(old["answers"]) if old["answers"] in indexes else None
        assert {field: message[field] for field in FIELDS} == {field: old[field] for field in FIELDS}
    assert len(decoded.messages) < 0.65 * len(of.messages)
    if not back:
        assert len(decoded.messages) <= MOST.get(check.b, len(of.messages))
    assert first[side] in indexes
    assert decoded.of("worker") == of.of("worker")
    assert plan_skips(small, indexes) <= whole_skips(whole)
    _shows_the_same(ran, first, indexes, side)


def _shows_the_same(ran: Ran, first: dict[str, Any], indexes: list[int], side: str) -> None:
    """The command that was named names the same first difference."""
    (line,) = [line for line in ran.err.splitlines() if "the same difference: " in line]
    words = shlex.split(line.partition("the same difference: ")[2])
    assert words[:2] == ["rpcinspect", "diff"]
    again = rpcinspect(*words[1:], "--format", "jsonl").objects[-1]["first"]
    assert again["code"] == first["code"]
    assert again["path"] == first["path"]
    for one, index in ((one, again[one]) for one in ("a", "b")):
        told = index if index is None or one != side else indexes[index]
        if first["code"] == "reordered":  # any of the calls that have changed places may be told
            assert again["function"] in ("training.norm_of", "training.row_of")
        else:
            assert told == first[one]


@pytest.mark.usefixtures("nothing_left")
def test_a_part_replays_as_it_was(tmp_path: Path) -> None:
    """Of a pair whose difference is in a request: the gradients and the step before it come again too."""
    pytest.importorskip("torch")
    small = tmp_path / "small.pcap"
    paths = capture_of("pairs/base"), capture_of("pairs/dtype")
    assert rpcinspect("diff", *paths, "--shrink", small).code == 1
    ran = rpcinspect("replay", small, "--path", CAPTURES, "--format", "jsonl")
    report = ran.objects[-1]
    assert (ran.code, report["verdict"]) == (0, "identical")
    assert report["gradients"]["identical"] == report["gradients"]["expected"] > 0
    assert report["skipped"].keys() <= {"nested-in-answer"}


@pytest.mark.usefixtures("nothing_left")
def test_a_part_replays_with_the_same_difference(tmp_path: Path) -> None:
    """Of a pair whose difference is a function that does something else: with the unchanged source only its
    answer differs."""
    pytest.importorskip("torch")
    small = tmp_path / "small.pcap"
    paths = capture_of("pairs/base"), capture_of("pairs/function")
    assert rpcinspect("diff", *paths, "--shrink", small).code == 1
    ran = rpcinspect("replay", small, "--path", CAPTURES, "--format", "jsonl")
    different = [o for o in ran.objects if o.get("result") not in (None, "identical")]
    (forward,) = [m for m in decode(small).messages if m["body"].get("function") == "training.forward"]
    assert [(o["message"], o["result"]) for o in different] == [(forward["index"], "different")]


def test_same_runs_leave_nothing_to_write(tmp_path: Path) -> None:
    small = tmp_path / "small.pcap"
    ran = rpcinspect("diff", capture_of("pairs/base"), capture_of("pairs/again"), "--shrink", small)
    assert ran.code == 0
    assert not small.exists()
    assert "not written" in ran.err


def test_a_context_against_another(tmp_path: Path) -> None:
    small, base = tmp_path / "small.pcap", capture_of("pairs/base")
    options = ["--context", "0", "--context", "1", "--format", "jsonl"]
    ran = rpcinspect("diff", base, *options, "--shrink", small)
    first = ran.objects[-1]["first"]
    times = {m["time_ns"]: m["index"] for m in decode(base).messages}
    indexes = [times[m["time_ns"]] for m in decode(small).messages]
    assert len(indexes) < len(times)
    _shows_the_same(ran, first, indexes, "b")


def test_an_input_is_not_overwritten(tmp_path: Path) -> None:
    copy = tmp_path / "copy.pcap"
    copy.write_bytes((CAPTURES / "basic_chain.pcap").read_bytes())
    ran = rpcinspect("diff", CAPTURES / "param_detach.pcap", copy, "--shrink", copy)
    assert (ran.code, ran.out) == (2, "")
    assert "--shrink would overwrite it" in ran.err
    assert copy.read_bytes() == (CAPTURES / "basic_chain.pcap").read_bytes()
    both = tmp_path / "both"
    assert rpcinspect("diff", copy, copy, "--shrink", both, "-o", both).code == 2


def test_a_place_that_can_not_be_written(tmp_path: Path) -> None:
    paths = capture_of("pairs/base"), capture_of("pairs/function")
    ran = rpcinspect("diff", *paths, "--shrink", tmp_path / "none" / "small.pcap")
    assert ran.code == 2
    assert "can't be written" in ran.err


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
    with RunModel.open([str(capture_of("pairs/dropout_seed"))]) as run:
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
    with RunModel.open([str(capture_of("pairs/dropout_seed"))]) as opened:
        root = message("dropout_seed", "worker0", 11)
        least = next(iter(candidates(opened, Target("b", (root,)))))
    functions = {m["body"].get("function") for m in run.decoded.messages if m["index"] in least}
    assert wanted <= functions
    assert not functions & {"training.mean_of", "training.norm_of", "training.row_of", "training.quantile_of"}
    later = message("dropout_seed", "worker0", 14)
    assert max(least & {call.request["index"] for call in run.calls()}) < later


def test_an_answer_without_a_request_is_alone() -> None:
    with RunModel.open([str(capture_of("basic_chain"))]) as run:
        answer = next(i for i, record in enumerate(run.messages) if not record.tp.from_client)
        sets = list(candidates(run, Target("b", (answer,))))
    assert sets == [frozenset({answer}), frozenset(range(len(run)))]


def reasons(opened: RunModel, indexes: list[int]) -> dict[int, set[str | None]]:
    """Message of the whole run → why a plan skips it, None where some session does not."""
    found: dict[int, set[str | None]] = defaultdict(set)
    for session in plan(opened, PlanOptions(trust=True)).sessions:
        for step in session.steps:
            found[indexes[step.message]].add(step.code if step.action == "skip" else None)
    return found


@pytest.mark.parametrize("name", ["rref_relay", "ps_race_lock", "bwd_boom", "devmap_cpu", "pairs/base"])
def test_replays_of_parts_lack_nothing(name: str, tmp_path: Path) -> None:
    """Whichever call a part is made for: its plan skips for no reason that the whole plan has not."""
    small = tmp_path / "small.pcap"
    with RunModel.open([str(capture_of(name))]) as run:
        messages = run.messages
        whole = reasons(run, list(range(len(run))))
        calls = [call for call in run.exchanges.calls if not call.control]
        for call in calls[:: max(1, len(calls) // 12)]:
            chosen = next(iter(candidates(run, Target("b", (call.index,)))))
            with small.open("wb") as file:
                write_session(file, run.session, messages, run.read, chosen)
            with RunModel.open([str(small)]) as part:
                for index, codes in reasons(part, sorted(chosen)).items():
                    assert codes <= whole[index] | {None}
