"""`make replay-table`: replays of PyTorch's own tests, and what became of every gradient.

    python bench/replay_table.py                     every capture, five times: ten minutes
    python bench/replay_table.py --runs 1 test_trainer_ps   once, and only captures with this in their names
    python bench/replay_table.py --write docs/replay.md     and puts the table there, between two marker lines
    python bench/replay_table.py --agent-only --write PAGE  only torch's agent; other columns of the page stay

In: the captures of captures/torch-suite that hold gradients, and its INDEX.tsv, which tells how many: another
program counted them. Each is replayed by `rpcinspect replay`, with the functions of those tests allowed by
the one line that its plan offers: once, which is what is timed, then with `--repeat` for the other runs; once
with each worker live in its turn (`--every-worker`); and once by torch's own agent (`--engine agent`), whose
columns come last. Out: a line for each, and for all. Exit status 1 if a gradient of a capture is not
accounted for exactly once, or if the report counts otherwise than the lines before it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marked import put

ROOT = Path(__file__).resolve().parent.parent
SUITE = ROOT / "captures" / "torch-suite"
GRADIENT = "BACKWARD_AUTOGRAD_REQ"
FLAG = "DistAutogradTest.test_multiple_backward_with_errors"
"""Its backward fails while a class attribute says so, which every worker's own program sets halfway."""
LIMIT_S = 300
CAST = ("driver-not-live", "both-played")
"""Reasons that only say who was played in that session; another session's reason tells more."""
HEAD = [
    *("test", "messages", "sessions", "gradients", "identical", "different", "missing", "skipped"),
    *("not observed", "self-call", "answers identical", "unstable", "seconds", "CPU seconds"),
]
EVERY = ["every worker: identical", "every worker: not compared"]
"""With `--every-worker`: gradients that are identical of all that were captured, and those that no session
compares."""
AGENT = ["agent: gradients", "agent: answers", "agent: unsupported"]
"""Of the captured gradients those that torch's agent had identical, of the answers that it could ask for
likewise, and how many requests it can't replay."""

Line = dict[str, Any]
Outcomes = dict[tuple[str, int, int], str | None]


@dataclass(frozen=True)
class Run:
    """One command, of one replay or of several."""

    lines: list[Line]
    seconds: float
    cpu_s: float

    @property
    def report(self) -> Line:
        return self.lines[-1]

    def outcomes(self) -> list[Outcomes]:
        """Of each replay the result of each step and of each request of a live worker, by what it is."""
        numbers = sorted({line["run"] for line in self.lines[:-1]})
        return [self._outcomes(number) for number in numbers]

    def _outcomes(self, number: int) -> Outcomes:
        lines = [line for line in self.lines[:-1] if line["run"] == number]
        return {
            (line["kind"], line["session"], line["message" if line["kind"] == "step" else "captured"]): line[
                "result"
            ]
            for line in lines
            if line["kind"] == "step" or (line["kind"] == "inbound" and line["captured"] is not None)
        }

    def gradients(self) -> Counter[str]:
        """What became of each gradient, each once, from the steps alone: the worst result of any session,
        `self-call`, `not observed`, or the reason why it was skipped."""
        results: dict[int, set[str]] = {}
        reasons: dict[int, list[str]] = {}
        for line in self.lines:
            if line["kind"] == "step" and line["type"] == GRADIENT:
                found = results.setdefault(line["message"], set())
                if line["result"] is not None:
                    found.add(line["result"])
                reasons.setdefault(line["message"], []).append((line["reason"] or "").partition(":")[0])
        return Counter(_worst(found) or _reason(reasons[message]) for message, found in results.items())


@dataclass
class Row:
    """One capture."""

    name: str
    messages: int
    gradients: int
    """As INDEX.tsv has it."""
    runs: list[Run] = field(default_factory=list)
    every: Run | None = None
    """Each worker live in its turn."""
    agent: Run | None = None
    """By torch's own agent."""
    kept: list[str] | None = None
    """The wire engine's cells of the page, where they stay."""

    def faults(self) -> Iterator[str]:
        """What does not add up."""
        for run in [*self.runs, *(run for run in (self.every, self.agent) if run is not None)]:
            counts, told = run.gradients(), run.report["gradients"]
            if counts.total() != self.gradients:
                yield f"{self.name}: {counts.total()} gradients, INDEX.tsv has {self.gradients}"
            results = ("identical", "tolerance", "different", "unanswered", "failed")
            parts = sum(told[name] for name in (*results, "skipped"))
            if parts != told["expected"]:
                yield f"{self.name}: the report expects {told['expected']} and tells what came of {parts}"
            rest = sum(run.report[name] for name in ("not_observed", "self_calls", "out_of_reach"))
            if told["expected"] + rest != self.gradients:
                yield f"{self.name}: the report accounts for {told['expected'] + rest} of {self.gradients}"
            yield from (
                f"{self.name}: {counts[name]} gradients are {name}, the report has {told[name]}"
                for name in results
                if counts[name] != told[name]
            )

    def outcomes(self) -> list[Outcomes]:
        """Of every replay."""
        return [outcomes for run in self.runs for outcomes in run.outcomes()]

    def unstable(self) -> list[tuple[str, int, int]]:
        """Outcomes that were not the same in all replays."""
        all_outcomes = self.outcomes()
        keys = dict.fromkeys(key for outcomes in all_outcomes for key in outcomes)
        return [key for key in keys if len({outcomes.get(key, "absent") for outcomes in all_outcomes}) > 1]

    def cells(self) -> list[str]:
        """The whole line."""
        return [*(self.kept or self.wire_cells()), *self.agent_cells()]

    def agent_cells(self) -> list[str]:
        if self.agent is None:
            return [""] * len(AGENT)
        told, answers = self.agent.report["gradients"], self.agent.report["responses"]
        return [
            f"{told['identical']:,} of {told['expected']:,}",
            f"{answers['identical']:,} of {answers['expected']:,}",
            f"{self.agent.report['not_replayed'].get('unsupported', 0):,}",
        ]

    def wire_cells(self) -> list[str]:
        last = self.runs[-1]
        told, counts = last.report["gradients"], last.gradients()
        known = {"identical", "tolerance", "different", "unanswered", "failed", "not observed", "self-call"}
        skipped = [f"{count} {reason}" for reason, count in counts.items() if reason not in known]
        answers = last.report["responses"]
        return [
            f"`{self.name.split('.')[1]}`",
            f"{self.messages:,}",
            str(len({line["session"] for line in last.lines if line["kind"] == "step"})),
            f"{told['expected']:,}",
            f"{told['identical']:,}",
            f"{told['different'] + told['tolerance']:,}",
            f"{told['unanswered'] + told['failed']:,}",
            ", ".join(skipped) or "0",
            f"{last.report['not_observed']:,}",
            f"{last.report['self_calls']:,}",
            f"{answers['identical']:,} of {answers['expected']:,}",
            f"{len(self.unstable()):,}",
            f"{self.runs[0].seconds:.1f}",
            f"{self.runs[0].cpu_s:.1f}",
            *self.every_cells(),
        ]

    def every_cells(self) -> list[str]:
        if self.every is None:
            return [""] * len(EVERY)
        told = self.every.report
        left = told["not_observed"] + told["self_calls"] + told["out_of_reach"] + told["gradients"]["skipped"]
        return [f"{told['gradients']['identical']:,} of {self.gradients:,}", f"{left:,}"]


def _worst(results: set[str]) -> str | None:
    order = ("failed", "unanswered", "different", "tolerance", "identical")
    return next((name for name in order if name in results), None)


def _reason(reasons: Sequence[str]) -> str:
    """Of a gradient that no session replayed."""
    if "nested-in-answer" in reasons:
        return "not observed"
    return next((reason for reason in reasons if reason not in CAST), reasons[0])


def rows(wanted: Sequence[str]) -> list[Row]:
    """The captures that hold gradients."""
    found = []
    for line in (SUITE / "INDEX.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        capture, messages, by_type = line.split("\t")
        counts = dict(pair.split("=") for pair in by_type.split())
        name = capture.removesuffix(".pcap.gz")
        if GRADIENT in counts and (not wanted or any(part in name for part in wanted)):
            found.append(Row(name, int(messages), int(counts[GRADIENT])))
    return found


def missing(capture: str) -> list[str]:
    """What a user would have to paste: all that the plan says is missing."""
    command = [sys.executable, "-m", "rpcinspect", "replay", capture, "--plan", "--format", "jsonl"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])["missing"]
    return found


def replay(name: str, repeat: int = 1, engine: str = "wire", *more: str) -> Run:
    """One capture, with more options; repeated, torch is imported once for all."""
    capture = str(SUITE / f"{name}.pcap.gz")
    allowed = [option for one in missing(capture) for option in ("--allow", one)]
    command = [sys.executable, "-m", "rpcinspect", "replay", capture, *allowed, "--format", "jsonl"]
    command += ["--repeat", str(repeat), "--engine", engine, *more]
    before, began = os.times(), time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    after, seconds = os.times(), time.monotonic() - began
    if done.returncode not in (0, 1):
        raise SystemExit(f"{name}: exit code {done.returncode}\n{done.stderr}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Run([json.loads(line) for line in done.stdout.splitlines()], seconds, cpu_s)


def total(title: str, chosen: Sequence[Row], kept: Mapping[str, list[str]]) -> list[str]:
    """The last lines of the table."""
    wire = kept[f"**{title}**"] if kept else wire_total(title, chosen)
    told = [row.agent.report for row in chosen if row.agent is not None]
    if len(told) < len(chosen):
        return [*wire, *[""] * len(AGENT)]
    gradients, answers = (
        [sum(report[part][name] for report in told) for name in ("identical", "expected")]
        for part in ("gradients", "responses")
    )
    unsupported = sum(report["not_replayed"].get("unsupported", 0) for report in told)
    return [*wire, *(f"{some:,} of {every:,}" for some, every in (gradients, answers)), f"{unsupported:,}"]


def wire_total(title: str, chosen: Sequence[Row]) -> list[str]:
    told = [row.runs[-1].report for row in chosen]
    expected = sum(report["gradients"]["expected"] for report in told)
    identical = sum(report["gradients"]["identical"] for report in told)
    kinds = [("different", "tolerance"), ("unanswered", "failed"), ("skipped",)]
    sums = [sum(report["gradients"][name] for report in told for name in names) for names in kinds]
    answers = [sum(report["responses"][name] for report in told) for name in ("identical", "expected")]
    return [
        f"**{title}**",
        f"{sum(row.messages for row in chosen):,}",
        "",
        f"{expected:,}",
        f"{identical:,} ({100 * identical / expected if expected else 0:.1f} %)",
        *(f"{number:,}" for number in sums),
        f"{sum(report['not_observed'] for report in told):,}",
        f"{sum(report['self_calls'] for report in told):,}",
        f"{answers[0]:,} of {answers[1]:,}",
        f"{sum(len(row.unstable()) for row in chosen):,}",
        "",
        "",
        *every_total(chosen),
    ]


def every_total(chosen: Sequence[Row]) -> list[str]:
    cells = [row.every_cells() for row in chosen]
    identical = sum(int(cell[0].partition(" ")[0].replace(",", "") or 0) for cell in cells)
    gradients = sum(row.gradients for row in chosen)
    left = sum(int(cell[1].replace(",", "") or 0) for cell in cells)
    return [
        f"{identical:,} of {gradients:,}",
        f"{left:,} ({100 * left / gradients if gradients else 0:.1f} %)",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="parts of the names of captures")
    parser.add_argument("--runs", type=int, default=5, help="of each capture (default: 5)")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    parser.add_argument(
        "--agent-only", action="store_true", help="keep the page's columns of the wire engine"
    )
    options = parser.parse_args()
    chosen = rows(options.names)
    kept = cells_of(options.write) if options.agent_only and options.write is not None else {}
    print(" | ".join([*HEAD, *EVERY, *AGENT]))
    for row in chosen:
        row.agent = replay(row.name, engine="agent")
        if options.agent_only:
            row.kept = kept.get(
                f"`{row.name.split('.')[1]}`", [row.name, *[""] * (len(HEAD) + len(EVERY) - 1)]
            )
            print(" | ".join([row.kept[0], *row.agent_cells(), f"{row.agent.seconds:.1f} s"]), flush=True)
            continue
        row.runs.append(replay(row.name))
        row.every = replay(row.name, 1, "wire", "--every-worker")
        if options.runs > 1:
            row.runs.append(replay(row.name, options.runs - 1))
        print(" | ".join(row.cells()), flush=True)
        for kind, session, message in row.unstable():
            results = [outcomes.get((kind, session, message)) for outcomes in row.outcomes()]
            print(f"  {kind} #{message} in session {session}: {results}", flush=True)
    head = [*HEAD, *EVERY, *AGENT]
    table = [head, ["---", *["---:"] * (len(head) - 1)], *(row.cells() for row in chosen)]
    if options.agent_only and not kept:
        return 1 if faults(chosen) else 0
    table.append(total(f"all {len(chosen)}", chosen, kept))
    others = [row for row in chosen if row.name != FLAG]
    if others and len(others) < len(chosen):
        table.append(total(f"without `{FLAG.split('.')[1]}`", others, kept))
    print("\n".join(" | ".join(cells) for cells in table[2 + len(chosen) :]))
    if options.write is not None:
        put(options.write, "replay-table", "\n".join(f"| {' | '.join(cells)} |" for cells in table))
    return 1 if faults(chosen) else 0


def faults(chosen: Sequence[Row]) -> list[str]:
    """What does not add up, told."""
    found = [fault for row in chosen for fault in row.faults()]
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return found


def cells_of(page: Path) -> dict[str, list[str]]:
    """The wire engine's cells of the table in a page, by the first of each line."""
    found = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) >= len(HEAD) + len(EVERY):
            found[cells[0]] = cells[: len(HEAD) + len(EVERY)]
    return found


if __name__ == "__main__":
    sys.exit(main())
