"""`make damage`: what is left of captures that were started late, stopped early, or lost packets.

    python bench/damage.py                       every capture, 100 seeds: some minutes on two cores
    python bench/damage.py --quick               the workloads of captures/, 3 seeds
    python bench/damage.py --seeds 10 x.pcap     only these captures, which must be intact
    python bench/damage.py --write docs/damage.md    and puts the tables there, between two marker lines

In: intact captures, by default those that tests/damage.py names. Out: tables of what
became of their messages and tensors; each fault as a line on the standard error; exit status 1 if there is
any. tests/damage.py does the work.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from functools import lru_cache
from multiprocessing import Pool
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from marked import put  # noqa: E402  (beside this file)

from tests.damage import DAMAGES, Original, Verdict, intact_captures  # noqa: E402  (the folder named above)

MAX_FAULTS = 50
Task = tuple[Path, int, int]
"""A capture, the row of its damage, and how many seeds."""

COLUMNS = {
    "damage": "",
    "copies": "",
    "messages": "",
    "out": "message out",
    "lost": "message lost",
    "wrong": "message wrong",
    "rebuilt": "message rebuilt",
    "partial": "message partial",
    "cut": "message cut",
    "tensors": "",
    "certain": "tensor right",
    "uncertain": "tensor uncertain",
    "missing": "tensor missing",
    "wrong ": "tensor wrong",
    "cut ": "tensor cut",
    "certain, of those there": "",
    "of all": "",
}
KINDS = {"basic": "Channel `basic`", "mpt_uv": "Channel `mpt_uv`", "": "Captures without tensor bytes"}
"""What an `Original` uses → the title of its table."""


@lru_cache(maxsize=2)
def original(path: Path) -> Original:
    return Original(path)


def work(task: Task) -> tuple[str, int, int, Verdict]:
    """(kind, row, copies, verdict) of a task."""
    path, row, seeds = task
    its = original(path)
    copies = seeds if DAMAGES[row].drawn else 1
    if not its.messages:
        return "none", row, 0, Verdict()
    return "".join(sorted(its.channels)), row, copies, DAMAGES[row].verdicts(its, seeds)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captures", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, help="copies for each row that is drawn (default: 100)")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    options = parser.parse_args()
    paths = options.captures or intact_captures()
    if options.quick and not options.captures:
        paths = [path for path in paths if path.parent == ROOT / "captures"]
    seeds = options.seeds or (3 if options.quick else 100)
    # Largest first, so that no process is left alone with a large one; a capture's rows follow each other.
    paths = sorted(paths, key=lambda path: -path.stat().st_size)
    tasks = [(path, row, seeds) for path in paths for row in range(len(DAMAGES))]
    results: dict[tuple[str, int], tuple[int, Verdict]] = {}
    sources: dict[str, int] = defaultdict(int)
    started = time.monotonic()
    try:
        with Pool(options.jobs) as pool:
            for at, (kind, row, copies, verdict) in enumerate(pool.imap_unordered(work, tasks), 1):
                before, total = results.setdefault((kind, row), (0, Verdict()))
                total += verdict
                results[kind, row] = before + copies, total
                sources[kind] += row == 0
                print(f"\r{at} of {len(tasks)}, {time.monotonic() - started:.0f} s", end="", file=sys.stderr)
    except AssertionError as error:  # of `Original`
        raise SystemExit(f"damage.py: not an intact capture: {error}") from None
    print(file=sys.stderr)
    text = page(results, sources, seeds)
    print(text)
    if options.write is not None:
        put(options.write, "damage", text)
    faults = [fault for _, verdict in results.values() for fault in verdict.faults]
    for fault in faults[:MAX_FAULTS]:
        print(fault, file=sys.stderr)
    if len(faults) > MAX_FAULTS:
        print(f"and {len(faults) - MAX_FAULTS} more", file=sys.stderr)
    return 1 if faults else 0


def page(results: dict[tuple[str, int], tuple[int, Verdict]], sources: dict[str, int], seeds: int) -> str:
    """The tables as Markdown."""
    lines = []
    for kind, title in KINDS.items():
        if sources[kind]:
            lines += [f"### {title}", "", f"{sources[kind]} captures; {seeds} seeds for what is drawn.", ""]
            lines += ["| " + " | ".join(name.strip() for name in COLUMNS) + " |"]
            lines += ["|---|" + "---:|" * (len(COLUMNS) - 1)]
            lines += [
                "| " + " | ".join(cells(row, *results[kind, row])) + " |" for row in range(len(DAMAGES))
            ]
            lines += [""]
    return "\n".join(lines).rstrip("\n")


def cells(row: int, copies: int, verdict: Verdict) -> list[str]:
    """One row: counts, then what part of the tensors is certain."""
    there = ("tensor right", "tensor uncertain", "tensor missing", "tensor wrong")
    counts = verdict.counts
    shown = {name: f"{counts[source]:,}" for name, source in COLUMNS.items()}
    shown["damage"], shown["copies"] = DAMAGES[row].name, f"{copies:,}"
    shown["messages"] = f"{counts['message out'] + counts['message lost']:,}"
    shown["tensors"] = f"{sum(counts[name] for name in there):,}"
    shown["certain, of those there"] = f"{verdict.share('tensor right', *there):.2f} %"
    shown["of all"] = f"{verdict.share('tensor right', *there, 'tensor cut'):.2f} %"
    return list(shown.values())


if __name__ == "__main__":
    sys.exit(main())
