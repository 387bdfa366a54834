"""`make pairs`: record the jobs afresh and score what the program says of them.

    python -m tests.pairs                         ten runs of each, and one with each change
    python -m tests.pairs --runs 3 nested proxies     of these kinds
    python -m tests.pairs --folder DIR            keep the recordings there, and use those that are there
    python -m tests.pairs --folder DIR --no-record    only score them

Exit code 1 if something is said that must not be; --verbose lists it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.pairs.jobs import KINDS
from tests.pairs.joined import joined
from tests.pairs.record import SAVED, RecordError, record_all
from tests.pairs.score import Score, runs_in, score, table


def score_kind(kind: str, folder: Path, runs: int, progress: bool = True) -> Score | None:
    """The score of what is recorded of a kind; None if there is nothing to compare."""
    plain, changed = [], []
    for path in runs_in(folder / kind):
        said = json.loads((path / SAVED).read_text())
        if said["change"] != "none":
            changed.append((said["change"], joined(path)))
        elif len(plain) < runs:
            plain.append(joined(path))
    if not plain:
        return None
    if progress:
        print(f"scoring {kind}", file=sys.stderr, flush=True)
    return score(kind, plain, changed)


def run(folder: Path, options: argparse.Namespace) -> int:
    if options.record:
        record_all(folder, options.kinds or KINDS, options.runs, options.changed, options.via)
    found = [score_kind(kind, folder, options.runs) for kind in options.kinds or KINDS]
    scores = [one for one in found if one is not None]
    print(table(scores))
    for one in scores:
        if options.verbose:
            print(*one.told, sep="\n")
        if one.broken():
            print(f"BROKEN {one.kind}: {'; '.join(one.broken())}")
    return 1 if not scores or any(one.broken() for one in scores) else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; none: all")
    parser.add_argument("--runs", type=int, default=10, help="runs of each kind (default: %(default)s)")
    parser.add_argument("--changed", type=int, default=1, help="runs of each change (default: %(default)s)")
    parser.add_argument("--via", choices=("wire", "agent"), default="wire", help="how they are recorded")
    parser.add_argument("--folder", type=Path, help="for the recordings (default: one that is removed)")
    parser.add_argument("--no-record", dest="record", action="store_false", help="score what is there")
    parser.add_argument("--verbose", action="store_true", help="list what is wrong")
    options = parser.parse_args()
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"no such kind: {', '.join(unknown)}")
    try:
        if options.folder is not None:
            return run(options.folder.resolve(), options)
        with tempfile.TemporaryDirectory() as folder:
            return run(Path(folder), options)
    except RecordError as error:
        print(f"the runs could not be recorded: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
