"""`make bench`, second half: how fast captured messages are replayed, beside the time the job took then.

In: a bundled capture, and bench/data/small-3000.pcap, made by make.py where it is missing and can be
made. Out: for each a line without and one with a recording: messages that passed (requests and answers, both
ways), seconds of the conversation alone as a median of several rounds, messages per second, the recorded
job's own seconds, the time of all rounds with the start of torch and the workers, and how many pairs of
request and answer came out identical.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.outcome import ReplayOutcome, SessionOutcome
from rpcinspect.replayer.replayer import ReplayOptions, replay
from rpcinspect.replayer.workers.workers import WorkerOptions
from rpcinspect.run.run import open_run

HERE = Path(__file__).resolve().parent
CAPTURES = HERE.parent / "captures"
ITERATIONS = 300
"""Of bench/small_job.py, ten messages each."""


@dataclass(frozen=True)
class Case:
    """A capture and the program that its functions come from."""

    pcap: Path
    script: Path
    rounds: int


CASES = (
    Case(CAPTURES / "ctx_crowd.pcap.gz", CAPTURES / "ctx_crowd.py", 5),
    Case(HERE / "data" / "small-3000.pcap", HERE / "small_job.py", 3),
)


def run(case: Case, record: Path | None) -> ReplayOutcome:
    """Replays the capture, some rounds against fresh workers that are forked from one parent."""
    workers = WorkerOptions(path=(str(CAPTURES), str(HERE)), main=str(case.script))
    with open_run(str(case.pcap)) as opened:
        made = plan(opened.session, opened.messages, PlanOptions(trust=True))  # the capture is ours
        return replay(opened, made, ReplayOptions(workers=workers, repeat=case.rounds, record=record))


def passed(sessions: tuple[SessionOutcome, ...]) -> tuple[int, int]:
    """Requests of a round that were answered, in both directions, and those of them that are identical."""
    results = [
        outcome.result for session in sessions for outcome in session.steps if outcome.step.action == "send"
    ]
    results += [inbound.result for session in sessions for inbound in session.inbound]
    answered = [result for result in results if result in ("identical", "tolerance", "different")]
    return len(answered), answered.count("identical")


def show(case: Case, record: Path | None) -> None:
    outcome = run(case, record)
    for sessions in outcome.runs:
        for session in sessions:
            if session.failure is not None:
                raise SystemExit(f"bench: {case.pcap.name}: {session.failure}")
    seconds = sorted(sum(session.wall_s for session in sessions) for sessions in outcome.runs)
    answered, identical = passed(outcome.runs[-1])
    middle = statistics.median(seconds)
    name = case.pcap.name + (" --record" if record else "")
    print(
        f"  {name:28} {2 * answered:6,} messages  {middle:7.3f} s ({seconds[0]:.3f} to {seconds[-1]:.3f})"
        f"  {2 * answered / middle:6,.0f}/s  then {outcome.captured_wall_s:7.3f} s"
        f"  in all {outcome.wall_s:6.1f} s  {identical:,} of {answered:,} identical",
        flush=True,
    )


def main() -> int:
    large = CASES[-1].pcap
    if not large.exists():
        print(f"making the capture of {10 * ITERATIONS:,} messages", flush=True)
        command = [sys.executable, str(HERE / "make.py"), "small", "--iterations", str(ITERATIONS)]
        subprocess.run([*command, "--name", large.stem], check=False)
    print("replay, median of the rounds:", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if not case.pcap.exists():
                print(f"  {case.pcap.name} is not there: left out")
                continue
            try:
                show(case, None)
                show(case, Path(folder) / "record.pcap")
            except ReplayError as error:
                print(f"bench: {error}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
