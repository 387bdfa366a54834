"""Whole replays against live workers: every captured job gives the same bits again, in both directions.
What is not the same is told.

The counts are what the jobs do: `expect` of their truth where it says how many messages there are, otherwise
counted in their scripts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rpcinspect.equality.rules import Rules
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.planning.gate import Allowance, ExecutionPolicy
from rpcinspect.replayer.planning.model import GlobalUse, Plan
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.replayer.playing.outcome import ReplayOutcome
from rpcinspect.replayer.playing.report import Report, report
from rpcinspect.replayer.replayer import replay
from rpcinspect.replayer.requirements import with_modules
from rpcinspect.replayer.workers.workers import WorkerOptions, Workers
from rpcinspect.run.run import RunModel
from tests.cli.runner import rpcinspect
from tests.places import recorded
from tests.test_signals import lost_in_del, lost_in_weakref
from tests.torch_values import need_the_same_rounding
from tests.truth import CAPTURES, Workload, capture_of, workload

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("nothing_left")


def replayed(
    path: Path,
    gate: ExecutionPolicy | None = None,
    options: ReplayOptions | None = None,
    *,
    workers: Workers | None = None,
    roles: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, steps: None,
    trust: bool = False,
) -> tuple[ReplayOutcome, Report]:
    """A capture's replay and what it came to."""
    options = options or ReplayOptions()
    with RunModel.open([str(path)]) as opened:
        gate = gate or ExecutionPolicy((), Sources(None, [CAPTURES]))
        how = PlanOptions(roles=tuple(roles), engine=options.engine, trust=trust)
        made = plan(opened, how, gate)
        outcome = replay(opened, made, options, workers=workers, progress=progress)
    return outcome, report(outcome)


def not_alike(outcome: ReplayOutcome, accepted: Sequence[str]) -> list[object]:
    """Everything that is not as captured, and failures."""
    sessions = [session for run in outcome.runs for session in run]
    found: list[object] = [session.failure for session in sessions if session.failure is not None]
    for session in sessions:
        found += [one for one in session.steps if one.result not in (None, *accepted)]
        found += [one for one in session.inbound if one.result not in (None, *accepted)]
    return found


@dataclass(frozen=True)
class Job:
    """A capture, and how many messages of it a replay must find identical."""

    name: str
    answers: int
    """To what played workers send."""
    asked: int
    """Requests of live workers, gradients included."""
    gradients: int
    """In both directions."""
    not_observed: int = 0
    """Gradients between live workers."""
    script: str | None = None
    """The job's script, where it is not called as the capture."""
    roles: tuple[str, ...] = ("worker0",)
    left: frozenset[str] = field(default_factory=frozenset)
    """Reasons for skips, beside the agents' own calls."""
    rounds: bool = False
    """Whether it computes what other CPUs round otherwise, such as a sine: there it may be `ROUNDED`."""

    def __str__(self) -> str:
        return self.name

    def check(self, outcome: ReplayOutcome, made: Report) -> None:
        """Everything that can be replayed came back identical, and it is as much as there is."""
        accepted = ("identical", "tolerance") if self.rounds else ("identical",)
        assert not_alike(outcome, accepted) == []
        assert made.verdict in accepted
        assert made.roles == self.roles
        assert (made.responses.expected, made.responses.alike) == (self.answers, self.answers)
        assert (made.gradients.expected, made.gradients.alike) == (self.gradients, self.gradients)
        assert (made.sent, made.answered, made.failed, made.unanswered) == (self.answers, self.asked, 0, 0)
        assert made.not_observed == self.not_observed
        assert set(made.not_replayed) == {"control"} | self.left
        assert made.unexpected == 0


ROUNDED = Rules(rtol=3e-7, atol=0.0, strict=True)
"""Two units in the last place of a float32; what is identical is told as such all the same."""
NESTED = frozenset({"nested-in-answer"})
TRAINERS = ("worker1", "worker2", "worker3")

BUNDLED = [
    Job("basic_chain", answers=5, asked=3, gradients=4),
    Job("profiled_legacy", answers=12, asked=3, gradients=4),
    Job("param_detach", answers=5, asked=2, gradients=3),
    Job("dtype_zoo", answers=45, asked=0, gradients=0),
    Job("views_alias", answers=14, asked=0, gradients=0),
    Job("ctx_crowd", answers=34, asked=10, gradients=10),
    Job("rref_relay", answers=16, asked=11, gradients=1, left=NESTED),
    Job("bwd_boom", answers=3, asked=1, gradients=1, not_observed=1, left=NESTED),
    Job("ps_race", answers=34, asked=13, gradients=6, roles=TRAINERS),
    Job("ps_race_lock", answers=84, asked=27, gradients=12, roles=TRAINERS),
    Job("devmap_cpu", answers=12, asked=6, gradients=8),
    Job("reinit", answers=9, asked=6, gradients=6),
]
"""D01 to D10, and a group that is made three times. `ps_race`: one parameter server and its trainers."""


@pytest.mark.parametrize("job", BUNDLED, ids=str)
def test_a_bundled_job(job: Job, workers: Workers) -> None:
    outcome, made = replayed(capture_of(job.name), workers=workers)
    job.check(outcome, made)
    check_counts(workload(job.name), made)


@pytest.mark.parametrize("lose", [lost_in_weakref, lost_in_del])
def test_an_interruption_that_python_can_not_raise(lose: Callable[[], None], workers: Workers) -> None:
    def progress(done: int, _: int) -> None:
        if done == 2:
            lose()

    often = ReplayOptions(repeat=100)
    outcome, _ = replayed(capture_of("basic_chain"), options=often, workers=workers, progress=progress)
    assert outcome.interrupted
    assert 1 <= len(outcome.runs) < 20


def check_counts(told: Workload, made: Report) -> None:
    """As many requests and gradients as the author of the script counted over the whole run."""
    for event in told.of("expect"):
        counted = event["by_type"]
        gradients = made.gradients.expected + made.not_observed
        assert gradients == counted.get("BACKWARD_AUTOGRAD_REQ", 0)
        requests = sum(n for kind, n in counted.items() if kind.endswith(("_REQ", "_CALL", "_REQUEST")))
        requests += sum(counted.get(kind, 0) for kind in ("RREF_USER_DELETE", "RREF_CHILD_ACCEPT"))
        assert made.sent + made.answered + sum(made.not_replayed.values()) == requests


# --- captures of other people's jobs ------------------------------------------------------------------------


TORCH = [
    Job("rref", answers=23, asked=13, gradients=7, left=NESTED),
    Job("nested", answers=6, asked=3, gradients=2, not_observed=2, left=NESTED),
    Job("script", answers=10, asked=0, gradients=0),
    Job("prof2_legacy", answers=9, asked=3, gradients=2, script="prof2", rounds=True),
    Job("chan_mpt", answers=6, asked=2, gradients=2, script="chan"),
    Job("devmap", answers=4, asked=2, gradients=2),
    Job("kitchen", answers=38, asked=0, gradients=0, rounds=True),
    Job("sparse", answers=5, asked=0, gradients=0),
    Job("dyn", answers=1, asked=0, gradients=0, roles=("worker1",)),
]
FEWER = ("prof2_legacy", "devmap", "kitchen", "sparse", "dyn")
"""Much of what these show, others show too."""


@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=[pytest.mark.slow] * (job.name in FEWER), id=job.name) for job in TORCH]
)
def test_a_job_whose_functions_are_in_its_main_script(job: Job) -> None:
    """torch.multiprocessing makes `__mp_main__.f` of a script's function."""
    script = recorded(f"torch/scripts/{job.script or job.name}.py")
    gate = ExecutionPolicy((), Sources(script, []))
    options = ReplayOptions(workers=WorkerOptions(main=str(script)), rules=ROUNDED)
    job.check(*replayed(recorded(f"torch/{job.name}.pcap"), gate, options))


@pytest.mark.parametrize("version", ["1.13.1", "2.1.2", "2.14.1"])
def test_captures_of_other_releases(version: str) -> None:
    """As on the command line: the same job under the oldest release that writes what ours reads, and a newer
    one."""
    capture, script = recorded(f"versions/torch-{version}.pcap"), recorded("versions/simple.py")
    options = ("--main", script, "--rtol", "3e-7", "--atol", "0", "--quiet-workers")
    ran = rpcinspect("replay", capture, *options)
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"\ngradients +9 +9\n", ran.out)
    assert re.search(r"\nanswers +15 +\d+", ran.out)


# --- two situations of users --------------------------------------------------------------------------------


@pytest.mark.slow
def test_everybody_calls_everybody() -> None:
    """As torch tests its optimizers: four workers that all train with the parameters of all. Each is live
    once, against the other three played."""
    need_the_same_rounding()
    capture = "DistOptimizerTest.test_dist_optim_none_grads.pcap.gz"
    gate = ExecutionPolicy(
        (Allowance("torch.testing._internal"), Allowance("torch.distributed.rpc.rref_proxy", "_local_invoke"))
    )
    outcome, made = replayed(recorded(f"torch-suite/{capture}"), gate)
    assert not_alike(outcome, ("identical",)) == []
    casts = [session.planned.cast for session in outcome.runs[0]]
    assert [cast.live for cast in casts] == [("worker0",), ("worker1",), ("worker2",), ("worker3",)]
    assert all(len(cast.roles) == 3 for cast in casts)
    assert (made.verdict, made.gradients.expected, made.gradients.identical) == ("identical", 64, 64)
    assert made.responses.identical == made.responses.expected
    assert set(made.not_replayed) == {"control"}


def test_what_is_imported_before_anything_is_sent() -> None:
    """The modules of TorchScript too, which no pickle names; of what is refused, nothing."""
    names = ("app.f", "__torch__.script.module.f", "torch.optim.sgd.SGD")
    uses = [GlobalUse(name, True, (0,), "") for name in names]
    refused = GlobalUse("os.system", False, (1,), "you haven't allowed it")
    made = Plan(sessions=(), globals=(*uses, refused), ambiguities=(), notes=(), left_out=0, trusted=False)
    options = with_modules(WorkerOptions(names=("user.g",)), made)
    assert options.names == (
        "user.g",
        "app.f",
        "script.module.f",
        "torch.optim.sgd.SGD",
        "torch._dynamo.disable",
    )


# --- what is not the same -----------------------------------------------------------------------------------


def test_other_random_numbers(workers: Workers) -> None:
    """The captured worker1 seeded the mask of the second iteration otherwise than its program does now."""
    told = workload("pairs/dropout_seed")
    (site,) = (event for event in told.of("site", switch="dropout_seed") if event["changed"])
    (call,) = (
        c for c in told.calls() if (c.event["worker"], c.event["call"]) == (site["worker"], site["call"])
    )
    outcome, made = replayed(capture_of("pairs/dropout_seed"), workers=workers)
    assert made.verdict == "different"
    (session,) = outcome.runs[0]
    (step,) = (one for one in session.steps if one.step.message == call.request["index"])
    assert step.result == "different"
    assert "probably dropout with another seed" in (step.text or "")
    assert step.differences[0].code == "value"


DROPOUT = """
import torch

def scale(x, weight, gain=1.0):
    return torch.nn.functional.dropout(x * weight * gain, 0.5)
"""


def test_random_numbers_come_again_with_the_same_seed(tmp_path: Path) -> None:
    """The recording of a replay is a capture; the second one knows with which seed it was made."""
    (tmp_path / "basic_chain.py").write_text(DROPOUT, encoding="utf-8")
    first = tmp_path / "first.pcap"
    options = ("--path", tmp_path, "--format", "jsonl")
    ran = rpcinspect("replay", capture_of("basic_chain"), *options, "--seed", "7", "--record", first)
    assert (ran.code, ran.objects[-1]["verdict"]) == (1, "different")
    same = rpcinspect("replay", first, *options, "--seed", "7")
    assert (same.code, same.objects[-1]["verdict"]) == (0, "identical")
    other = rpcinspect("replay", first, *options, "--seed", "8")
    assert (other.code, other.objects[-1]["verdict"]) == (1, "different")
    answer, *_ = (line for line in other.objects if line.get("result") == "different")
    assert answer["action"] == "send"
    assert "probably dropout with another seed" in answer["text"]
    made = other.objects[-1]
    assert made["gradients"] == made["gradients"] | {"expected": 4, "identical": 3, "different": 1}
