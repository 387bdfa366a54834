"""Calls that are awaited one after the other: which could have been made at once, and which could not."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Sequence

import pytest

from rpcinspect.rpc.command import Command, PythonCall, PythonResp
from rpcinspect.session.model import Finding
from tests.checks.talks import findings, of_capture, of_path
from tests.places import content, recorded
from tests.replayer.talks import NONE, Workers, udf
from tests.truth import workload

MS = 1_000_000
TOOK = 20


def told(found: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "sequential-awaits"]


def call(argument: object = None, function: str = "app.f") -> PythonCall:
    head, _, _ = udf(function).partition(b")}")
    return PythonCall(head + pickle.dumps(argument, 2)[2:-1] + b"\x85}\x87\x81.", False)


def answer(value: object) -> PythonResp:
    return PythonResp(pickle.dumps(value, 2))


def rounds(
    request: Callable[[int, int], Command] = lambda turn, callee: call(),
    response: Callable[[int, int], Command] = lambda turn, callee: answer([turn, 0.5]),
    *,
    times: int = 3,
    callees: Sequence[int] = (1, 2),
    pause: int = 1,
    meanwhile: Callable[[Workers, int], None] = lambda workers, at: None,
) -> list[Finding]:
    """w0 calls these in turn, so many times; each call takes 20 ms."""
    workers = Workers(4)
    at = 0
    for turn in range(times):
        for callee in callees:
            begin = at * MS
            workers.call(0, callee, begin, begin + TOOK * MS, request(turn, callee), response(turn, callee))
            meanwhile(workers, begin)
            at += TOOK + pause
    return told(findings(workers))


def test_the_bundled_job() -> None:
    """What it waited by its own clock, and what the same calls take at once."""
    took = {
        name: next(
            event["seconds"]
            for event in workload(f"costs/{name}").of("timed")
            if event["function"] == "measure"
        )
        for name in ("one_by_one", "at_once")
    }
    session, found = of_capture("costs/one_by_one")
    [finding] = told(found)
    assert finding.severity == "info"
    assert finding.workers == ("worker0", "worker1", "worker2")
    assert "8 calls of costs.measure" in finding.text
    assert "in 4 rounds" in finding.text
    waited, saved = (float(ms) / 1e3 for ms in re.findall(r"(\d+) ms", finding.text))
    assert 0.8 * took["one_by_one"] < waited <= took["one_by_one"]
    assert saved == pytest.approx(took["one_by_one"] - took["at_once"], rel=0.25)
    assert all(session.messages.from_client[int(session.order[index])] for index in finding.messages)


@pytest.mark.parametrize("name", ["costs/at_once", "costs/in_turn"])
def test_jobs_that_wait_for_no_longer_than_they_must(name: str) -> None:
    assert told(of_capture(name)[1]) == []


@pytest.mark.parametrize(("name", "waits"), [("steady", False), ("now_and_then", False), ("waits", True)])
def test_a_caller_with_a_pace_of_its_own_does_not_wait(name: str, waits: bool) -> None:
    """The job prints for how long it waited, and what the same calls take at once."""
    took = {
        line["how"]: line for line in map(json.loads, content("reports/findings/paced.truth").splitlines())
    }
    assert (took[name]["waited_ms"] > 0) == waits
    found = told(of_path(str(recorded(f"reports/findings/paced_{name}.rpclog")))[1])
    assert len(found) == waits
    if waits:
        assert "36 calls of paced_parts.measure to w1, w2, w3" in found[0].text
        saved = float(re.findall(r"saves about (\d+) ms", found[0].text)[0])
        assert saved == pytest.approx(took[name]["took_ms"] - took["at once"]["took_ms"], rel=0.25)


def test_what_may_be_chance_is_not_told() -> None:
    """One pause, that is a fifth of the call before it, says nothing."""
    assert rounds(times=1, pause=4) == []
    assert rounds(times=1, callees=(1, 2, 3), pause=4) == []
    assert rounds(times=4, pause=4) != []


def test_the_same_question_to_several_workers() -> None:
    [finding] = rounds()
    assert "w0 made 6 calls of app.f to w1, w2 one after the other" in finding.text
    assert (
        "120 ms in 3 rounds. If w0 waits for each, and they may run at the same time, that saves about 60 ms "
        "(48 % of the run)." in finding.text
    )


def test_answers_that_hold_nothing_need_no_equal_arguments() -> None:
    assert rounds(lambda turn, callee: call(turn * 10 + callee), lambda turn, callee: PythonResp(NONE))


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        (lambda turn, callee: call(turn * 10 + callee), lambda turn, callee: answer([turn])),
        (lambda turn, callee: call(), lambda turn, callee: answer(f"w{3 - callee}")),
        (lambda turn, callee: call(), lambda turn, callee: answer(callee == 2)),
        (lambda turn, callee: call(), lambda turn, callee: answer([turn] if callee == 2 else None)),
        (lambda turn, callee: call(function=f"app.f{callee}"), lambda turn, callee: answer([turn])),
        (
            lambda turn, callee: call(function="torch.distributed.optim.x.step"),
            lambda turn, callee: answer([1]),
        ),
    ],
    ids=["other arguments", "whom to ask next", "true or false", "found or not", "functions", "torch's own"],
)
def test_calls_that_may_need_each_other(
    asks: Callable[[int, int], Command], says: Callable[[int, int], Command]
) -> None:
    assert rounds(asks, says) == []


def test_one_worker_asked_again_and_again() -> None:
    """Its state may be what the order is for."""
    assert rounds(callees=(1,), times=6) == []


def test_a_caller_that_works_in_between() -> None:
    assert rounds(pause=TOOK) == []


def test_a_callee_that_sends_something_meanwhile() -> None:
    def nested(workers: Workers, begin: int) -> None:
        for callee in (1, 2):
            workers.call(callee, 3, begin + 5 * MS, begin + 6 * MS)

    assert rounds(meanwhile=nested) == []


def test_short_calls_are_not_worth_it() -> None:
    assert rounds(times=1, callees=(1, 2, 3)) != []
    workers = Workers(3)
    for number, callee in enumerate((1, 2)):
        workers.call(0, callee, number * 9 * MS, (number * 9 + 8) * MS, call(), answer([1]))
    assert told(findings(workers)) == []
