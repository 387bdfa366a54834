"""`make bench`, second half: how long a replay takes, beside the job that was captured.

    python bench/replay.py                ten jobs, then the conversation alone
    python bench/replay.py ctx_crowd …    these jobs

In: bundled captures with their programs, and bench/data/small-3000.pcap, made by make.py where it is missing
and can be made. Out: for each job a line: seconds of the job's own processes, started together here and now,
and of `rpcinspect replay`, the start of Python and torch included in both, by the clock and by the
processors; the ratio of each turn's two times, of which the median counts. Then for the longest one the
messages alone, without a recording and with one. Exit code 1: the median of the ratios is above `TARGET`, or
a replay was not identical.
"""

from __future__ import annotations

import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.options import ReplayOptions
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.replayer.playing.outcome import ReplayOutcome, SessionOutcome
from rpcinspect.replayer.replayer import replay
from rpcinspect.replayer.workers.workers import WorkerOptions
from rpcinspect.run.run import open_run

HERE = Path(__file__).resolve().parent
CAPTURES = HERE.parent / "captures"
TARGET = 1.2
"""Times the job: what a replay may take, in the median of the jobs."""
TURNS = 3
ROUNDS = 3
ITERATIONS = 300
"""Of bench/small_job.py, ten messages each."""
SECONDS = 120


@dataclass(frozen=True)
class Job:
    """A capture, the program that was captured, and how many processes it has."""

    pcap: Path
    script: Path
    world: int
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the capture."""
        return self.pcap.name.partition(".")[0]


SMALL = Job(HERE / "data" / "small-3000.pcap", HERE / "small_job.py", 2, (str(ITERATIONS), "1"))
JOBS = (
    Job(CAPTURES / "basic_chain.pcap", CAPTURES / "basic_chain.py", 2),
    Job(CAPTURES / "param_detach.pcap", CAPTURES / "param_detach.py", 2),
    Job(CAPTURES / "profiled_legacy.pcap", CAPTURES / "profiled_legacy.py", 2),
    Job(CAPTURES / "dtype_zoo.pcap.gz", CAPTURES / "dtype_zoo.py", 2),
    Job(CAPTURES / "views_alias.pcap.gz", CAPTURES / "views_alias.py", 2),
    Job(CAPTURES / "ctx_crowd.pcap.gz", CAPTURES / "ctx_crowd.py", 3),
    Job(CAPTURES / "rref_relay.pcap.gz", CAPTURES / "rref_relay.py", 3),
    Job(CAPTURES / "ps_race_lock.pcap.gz", CAPTURES / "ps_race.py", 4, ("lock",)),
    Job(CAPTURES / "pairs" / "base.pcap.gz", CAPTURES / "training.py", 3),
    SMALL,
)


# --- the whole of it ----------------------------------------------------------------------------------------


def run_job(job: Job) -> None:
    """Starts the job's processes, without its launcher, which imports torch first, and waits for them."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    told |= {"TP_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    told |= {"PYTHONPATH": os.pathsep.join([str(job.script.parent), str(CAPTURES)])}
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import common; common.work({job.script.stem!r}, {rank}, {[*job.arguments]!r})",
            ],
            env=os.environ | told,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(job.world)
    ]
    try:
        codes = [process.wait(SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        raise SystemExit(f"bench: {job.name}: the job ended with {codes}")


def run_replay(job: Job) -> None:
    """Runs the command as its users would."""
    folders = dict.fromkeys([job.script.parent, CAPTURES])
    words = ["replay", str(job.pcap), *(word for one in folders for word in ("--path", str(one)))]
    words += ["--main", str(job.script), "--quiet-workers"]
    done = subprocess.run(
        [sys.executable, "-m", "rpcinspect", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"bench: {job.name}: {done.stderr}{done.stdout}")


def processor_s() -> float:
    """Of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ratio(job: Job) -> float:
    """Runs the job and its replay in turns, prints a line, returns the median of the ratios."""
    turns = []
    for _ in range(TURNS):
        moments = [(time.monotonic(), processor_s())]
        for run in (run_job, run_replay):
            run(job)
            moments.append((time.monotonic(), processor_s()))
        turns.append([b - a for one, two in pairwise(moments) for a, b in zip(one, two, strict=True)])
    job_s, job_cpu_s, replay_s, replay_cpu_s = (
        statistics.median(column) for column in zip(*turns, strict=True)
    )
    ratios = sorted(turn[2] / turn[0] for turn in turns)
    middle = statistics.median(ratios)
    print(
        f"  {job.name:16} {job.world} processes {job_s:6.2f} s ({job_cpu_s:5.2f} s of processors)"
        f"  replay {replay_s:6.2f} s ({replay_cpu_s:5.2f})"
        f"  {middle:5.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        flush=True,
    )
    return middle


# --- the messages alone -------------------------------------------------------------------------------------


def play(job: Job, record: Path | None) -> ReplayOutcome:
    """Replays the capture, some rounds against fresh workers that are forked from one parent."""
    workers = WorkerOptions(path=(str(CAPTURES), str(HERE)), main=str(job.script))
    with open_run(str(job.pcap)) as opened:
        made = plan(opened, PlanOptions(trust=True))  # the capture is ours
        return replay(opened, made, ReplayOptions(workers=workers, repeat=ROUNDS, record=record))


def passed(sessions: tuple[SessionOutcome, ...]) -> tuple[int, int]:
    """Requests of a round that were answered, in both directions, and those of them that are identical."""
    results = [
        outcome.result for session in sessions for outcome in session.steps if outcome.step.action == "send"
    ]
    results += [inbound.result for session in sessions for inbound in session.inbound]
    answered = [result for result in results if result in ("identical", "tolerance", "different")]
    return len(answered), answered.count("identical")


def show_messages(job: Job, record: Path | None) -> None:
    """Prints how long the messages took."""
    outcome = play(job, record)
    for sessions in outcome.runs:
        for session in sessions:
            if session.failure is not None:
                raise SystemExit(f"bench: {job.pcap.name}: {session.failure}")
    seconds = sorted(sum(session.wall_s for session in sessions) for sessions in outcome.runs)
    answered, identical = passed(outcome.runs[-1])
    middle = statistics.median(seconds)
    print(
        f"  {job.name + (' --record' if record else ''):25} {2 * answered:6,} messages"
        f"  {middle:7.3f} s ({seconds[0]:.3f} to {seconds[-1]:.3f}), {2 * answered / middle:,.0f}/s,"
        f" then {outcome.captured_wall_s:.3f} s; {identical:,} of {answered:,} identical",
        flush=True,
    )


def make_small() -> None:
    if not SMALL.pcap.exists():
        print(f"making the capture of {10 * ITERATIONS:,} messages", flush=True)
        command = [sys.executable, str(HERE / "make.py"), "small", "--iterations", str(ITERATIONS)]
        subprocess.run([*command, "--name", SMALL.name], check=False)


def main(names: Sequence[str]) -> int:
    make_small()
    there = [job for job in JOBS if job.pcap.exists() and (not names or job.name in names)]
    print(f"replay beside the job, {TURNS} turns:", flush=True)
    middle = statistics.median([ratio(job) for job in there])
    print(f"  median of {len(there)} jobs: {middle:.2f} times the job; target {TARGET}")
    if SMALL in there:
        print(f"its messages alone, median of {ROUNDS} rounds:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                show_messages(SMALL, None)
                show_messages(SMALL, Path(folder) / "record.pcap")
            except ReplayError as error:
                print(f"bench: {error}")
                return 1
    return int(middle > TARGET)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
