"""Pickles that would run something are told, once for each name; what torch itself names is not."""

from __future__ import annotations

import pickle
import re

import pytest

from rpcinspect.checks.check import MAX_INDEXES
from rpcinspect.rpc.command import PythonCall
from tests.checks.talks import findings, of_capture
from tests.replayer.talks import Workers
from tests.truth import workload

UNSAFE = PythonCall(b"cposix\nsystem\n(S'true'\ntR.", False)


def test_pickles_that_would_run_something() -> None:
    workers = Workers(2)
    for n in range(3):
        workers.call(0, 1, 20 * n, 20 * n + 5, UNSAFE)
        workers.call(0, 1, 20 * n + 10, 20 * n + 15, PythonCall(pickle.dumps(1), False))
    [finding] = findings(workers, until=100)
    assert (finding.code, finding.severity) == ("unsafe-pickle", "error")
    assert finding.text.startswith("3 messages to w1 (#0, #4, #8) hold a pickle with posix.system: ")
    assert finding.messages == (0, 4, 8)
    assert finding.workers == ("w1",)


def test_an_argument_that_does_something_and_the_same_as_the_call() -> None:
    (truth,) = workload("faults/unfit").of("fault", code="unsafe-pickle")
    (request,) = [m for m in workload("faults/unfit").requests() if m["body"]["function"] == "faults.take"]
    [finding] = [f for f in of_capture("faults/unfit")[1] if f.code == "unsafe-pickle"]
    assert (finding.severity, finding.workers) == ("error", (truth["callee"],))
    assert finding.messages == (request["index"],)
    assert truth["name"] in finding.text
    assert [f for f in of_capture("faults/fit")[1] if f.code == "unsafe-pickle"] == []


@pytest.mark.parametrize(
    ("modules", "options"),
    [
        (("app",), ["--path"]),
        (("__main__", "__mp_main__"), ["--main"]),
        (("__mp_main__", "app"), ["--main", "--path"]),
    ],
)
def test_what_lets_a_replay_find_the_jobs_own_classes(modules: tuple[str, ...], options: list[str]) -> None:
    """The script that was run is in no folder's modules."""
    workers = Workers(2)
    for n, module in enumerate(modules):
        workers.call(0, 1, 10 * n, 10 * n + 5, PythonCall(b"c%s\nNet\n." % module.encode(), False))
    [finding] = findings(workers, until=100)
    assert (finding.code, finding.severity) == ("unsafe-pickle", "info")
    assert finding.remedy is not None
    assert re.findall(r"--[a-z]+", finding.remedy) == options


def test_builtins_are_not_of_the_jobs_own() -> None:
    workers = Workers(2)
    for n, name in enumerate(("builtins\nlen", "app\nstep")):
        module = b"c%s\n." % name.encode()
        workers.call(0, 1, 10 * n, 10 * n + 5, PythonCall(module, False))
    own = [finding for finding in findings(workers, until=100) if finding.severity == "info"]
    assert [finding.messages for finding in own] == [(2,)]
    assert "job's own: app.step." in own[0].text


def test_lists_of_messages_are_bounded() -> None:
    workers = Workers(2)
    for n in range(MAX_INDEXES + 50):
        workers.call(0, 1, 2 * n, 2 * n + 1, UNSAFE)
    [finding, *_] = [f for f in findings(workers, until=9999) if f.code == "unsafe-pickle"]
    assert finding.messages == tuple(range(0, 2 * MAX_INDEXES, 2))


@pytest.mark.parametrize("name", ["ps_race", "ps_race_lock", "pairs/base"])
def test_distributed_optimizers_are_nothing_to_worry_about(name: str) -> None:
    assert [f.text for f in of_capture(name)[1] if f.code == "unsafe-pickle"] == []
