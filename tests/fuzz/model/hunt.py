"""The model test itself: generated pickles through the gate, and those that it lets through into the oracle.

`python -m tests.fuzz.model.hunt --pickles 100000 --seed 1` tells each new kind of fault with the smallest
pickle that shows it, and at the end how many passed; the exit code is 1 where there is any fault. `make fuzz`
runs it after the other targets.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.pickles.python import read_python_pickle_partial
from tests.fuzz.model import programs, script_values, scripts
from tests.fuzz.model.assembly import shown
from tests.fuzz.model.client import BATCH, Oracle
from tests.fuzz.model.jobs import Fault, Job
from tests.fuzz.model.programs import Program
from tests.fuzz.model.shrink import shrink
from tests.fuzz.model.verdicts import DECISIONS, strict, verdict
from tests.fuzz.model.writing import Draw

BOUNDED = frozenset({"time", "memory"})
"""Kinds that are the matter of a live worker's bounds."""
CRASHES = 12
"""So many are made small; all that follow are likely the same."""
SCRIPTS = 5
"""One in so many messages is of TorchScript."""


class Found(Struct, frozen=True):
    """A pickle that the gate lets through and that does more than the plan says."""

    kind: str
    fault: Fault
    job: Job
    decision: str

    def __str__(self) -> str:
        given = f"given to: {self.job.sort}, allowed: {self.decision}"
        return f"{self.kind}\n{self.fault.what}\n{given}\n{shown(self.job.data)}"


class Tally(Struct):
    """What a run came to."""

    made: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    loaded: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    found: dict[str, Found] = field(default_factory=dict)
    bounded: Counter[str] = field(default_factory=Counter)
    """Faults of `BOUNDED`."""

    def share(self) -> float:
        """How many of all the gate let through."""
        return sum(self.passed.values()) / max(1, sum(self.made.values()))

    def __str__(self) -> str:
        lines = [
            f"  {origin}: {made:,}, {self.passed[origin] / made:.0%} passed, "
            f"{self.loaded[origin] / max(1, self.passed[origin]):.0%} of these loaded"
            for origin, made in sorted(self.made.items())
        ]
        lines.append(f"{self.share():.0%} passed; out of bounds: {dict(self.bounded) or 'none'}")
        lines.append(f"{len(self.found)} kinds of faults")
        return "\n".join(lines)


def hunt(
    oracle: Oracle,
    draw: Draw,
    count: int,
    *,
    schemas: Sequence[str],
    seconds: float = float("inf"),
    tell: Callable[[Found], None] | None = None,
) -> Tally:
    """As many programs, or as many seconds; one find of each kind is made small and told. `schemas` are those
    of the operators that may be called."""
    tally, end = Tally(), time.monotonic() + seconds
    operators = passing_operators(draw, schemas)
    waiting: list[tuple[Program, str, Job]] = []
    for number in range(count):
        if time.monotonic() > end:
            break
        program = scripts.generate(draw, operators) if number % SCRIPTS == 0 else programs.generate(draw)
        decision = draw.choice(tuple(DECISIONS))
        tally.made[program.origin] += 1
        job = Job(program.data, program.sort, (), strict(decision))
        try:
            passes, names = verdict(program.data, program.sort, decision)
        except Exception as error:
            _raised(tally, job, decision, error, tell)
            continue
        if passes:
            tally.passed[program.origin] += 1
            waiting.append((program, decision, replace(job, named=names)))
        if len(waiting) == BATCH:
            _look(tally, oracle, waiting, tell)
            waiting = []
    _look(tally, oracle, waiting, tell)
    return tally


def _raised(
    tally: Tally, job: Job, decision: str, error: Exception, tell: Callable[[Found], None] | None
) -> None:
    """A gate that does not come to a judgement."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error} in {place.name}"
    found = Found(f"raised: {type(error).__name__} in {place.name}", Fault("raised", what), job, decision)
    if found.kind in tally.found:
        return

    def still(data: bytes) -> bool:
        try:
            verdict(data, job.sort, decision)
        except Exception as other:
            return traceback.extract_tb(other.__traceback__)[-1].name == place.name
        return False

    found = replace(found, job=replace(job, data=shrink(job.data, still)))
    tally.found[found.kind] = found
    if tell is not None:
        tell(found)


def passing_operators(draw: Draw, schemas: Sequence[str]) -> tuple[str, ...]:
    """Those schemas whose operators the gate lets through with some arguments."""
    return tuple(
        schema
        for schema in schemas
        if any(verdict(scripts.operator(draw, schema), script_values.CALL, "nothing")[0] for _ in range(3))
    )


def _look(
    tally: Tally,
    oracle: Oracle,
    waiting: list[tuple[Program, str, Job]],
    tell: Callable[[Found], None] | None,
) -> None:
    for (program, decision, job), seen in zip(
        waiting, oracle.examine([job for _, _, job in waiting]), strict=True
    ):
        tally.loaded[program.origin] += seen.loaded
        tally.notes.update(seen.notes)
        for fault in seen.faults:
            if fault.kind in BOUNDED:
                tally.bounded[fault.kind] += 1
                continue
            found = _smallest(tally, oracle, Found(kind_of(fault), fault, job, decision))
            if found is not None and found.kind not in tally.found:
                tally.found[found.kind] = found
                if tell is not None:
                    tell(found)


def _smallest(tally: Tally, oracle: Oracle, found: Found) -> Found | None:
    """The find made small, where it is a new one."""
    crash = found.fault.kind == "crash"
    if found.kind in tally.found or (crash and sum(k.startswith("crash") for k in tally.found) >= CRASHES):
        return None
    if found.kind not in kinds(oracle, found.job, found.decision):
        return replace(found, kind=f"only behind others: {found.kind}")

    def still(data: bytes) -> bool:
        return found.kind in kinds(oracle, replace(found.job, data=data), found.decision)

    data = shrink(found.job.data, still)
    kind = f"{found.kind} by {' '.join(_makers(found.job.sort, data))}" if crash else found.kind
    return replace(found, kind=kind, job=replace(found.job, data=data))


def kinds(oracle: Oracle, job: Job, decision: str) -> set[str]:
    """The faults of a pickle in a process of its own, if the gate lets it through."""
    passes, names = verdict(job.data, job.sort, decision)
    if not passes:
        return set()
    return {kind_of(fault) for fault in oracle.alone(replace(job, named=names)).faults}


def _makers(sort: str, data: bytes) -> list[str]:
    """What of numpy or torch is in a pickle, or the operator: by these, crashes are told from each other."""
    if sort.isdigit():
        return [found.decode() for found in re.findall(rb"aten::[\w.]+", data)]
    names = read_python_pickle_partial(data).globals
    return sorted(str(name) for name in names if name.module.startswith(("numpy", "torch._", "torch.nn")))


def kind_of(fault: Fault) -> str:
    """Faults that are alike are one kind."""
    what = fault.what
    if fault.kind == "system":
        what = " ".join(re.split(r"[ (',]+", what)[:2])
    what = re.sub(r"0x[0-9a-f]+|\d+", "N", what)
    if fault.kind == "called":
        what = re.sub(r" by .*, (\w+)$", r", \1", what)
        what = re.sub(r"\(.*", "", what)
    return f"{fault.kind}: {what}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pickles", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a folder for what is found")
    asked = parser.parse_args()

    def tell(found: Found) -> None:
        print(f"FAULT {found}", flush=True)
        if asked.out is not None:
            name = re.sub(r"\W+", "-", found.kind)[:80]
            (asked.out / f"{name}.bin").write_bytes(found.job.data)
            (asked.out / f"{name}.txt").write_text(str(found), errors="replace")

    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with Oracle() as oracle:
        draw = random.Random(asked.seed)
        tally = hunt(oracle, draw, asked.pickles, schemas=scripts.schemas(), seconds=asked.seconds, tell=tell)
    took, total = time.monotonic() - begin, sum(tally.made.values())
    print(f"seed {asked.seed}: {total:,} pickles in {took:.0f} s, {total / took:.0f} a second\n{tally}")
    if asked.out is not None:
        notes = (f"{times} {name}" for name, times in tally.notes.most_common())
        (asked.out / "ran.log").write_text("\n".join(notes))
    return 1 if tally.found else 0


if __name__ == "__main__":
    sys.exit(main())
