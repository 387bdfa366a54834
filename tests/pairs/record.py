"""Record jobs afresh: runs that are the same, and runs with one call changed.

In: a folder, kinds, how many runs of each. Out: KIND/run-01, KIND/run-02, … and KIND/change-HOW-SEED, each
with capture.pcap (or capture.rpclog), truth-WORKER.jsonl and run.json, which says what was run. Runs that are
there already are kept. Needs root: each run has a network of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.pairs.jobs import KINDS

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 120
TRIES = 3
CHANGES = ("value", "argument", "function", "drop")
SAVED = "run.json"


class RecordError(Exception):
    """A run could not be recorded; the text says why."""


@dataclass(frozen=True)
class Wanted:
    """One run of a job."""

    kind: str
    name: str
    change: str = "none"
    seed: int = 1


def wanted(kinds: Sequence[str], runs: int, changed: int) -> Iterator[Wanted]:
    """Runs of each kind in turn, so that there is something of all of them early."""
    for number in range(1, runs + 1):
        for kind in kinds:
            yield Wanted(kind, f"run-{number:02}")
        if number <= changed:
            for kind in kinds:
                for change in CHANGES:
                    yield Wanted(kind, f"change-{change}-{number}", change, number)


def record(folder: Path, run: Wanted, via: str = "wire") -> Path:
    """Record one run, unless it is there: where it is."""
    target = folder / run.kind / run.name
    if (target / SAVED).exists():
        return target
    why = ""
    for _ in range(TRIES):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        code, said = _run(target, run, via)
        why = said
        if code == 0 and "WARNING" not in said:
            (target / SAVED).write_text(
                json.dumps({"kind": run.kind, "change": run.change, "seed": run.seed, "via": via}) + "\n"
            )
            return target
    raise RecordError(f"{run.kind}/{run.name}: {why[-2000:]}")


def _run(target: Path, run: Wanted, via: str) -> tuple[int, str]:
    """Exit code and what our program said."""
    name = "capture.pcap" if via == "wire" else "capture.rpclog"
    network = ["--private-net"] if via == "wire" else []
    recorder = [
        sys.executable,
        "-m",
        "rpcinspect",
        "record",
        "-o",
        str(target / name),
        "--via",
        via,
        *network,
    ]
    job = [sys.executable, "-W", "ignore", "-m", "tests.pairs.launch", run.kind, str(target)]
    process = subprocess.Popen(
        [*recorder, "--", *job, "--change", run.change, "--seed", str(run.seed)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=SECONDS)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return 1, f"it took longer than {SECONDS} s\n{said}"
    return process.returncode, said


def record_all(
    folder: Path, kinds: Sequence[str] = KINDS, runs: int = 10, changed: int = 1, via: str = "wire"
) -> None:
    """Record what is wanted and not there yet."""
    for run in wanted(kinds, runs, changed):
        if not (folder / run.kind / run.name / SAVED).exists():
            print(f"recording {run.kind}/{run.name}", file=sys.stderr, flush=True)
            record(folder, run, via)
