"""`make golden`: what every view says of every capture, compared with the hashes that were kept of it.

    python bench/golden.py                             everything: some minutes on two cores
    python bench/golden.py --write                     and keeps the hashes of now, in bench/golden.txt
    python bench/golden.py --capture '*ps_race*' --view 'contexts*'           only these
    python bench/golden.py --against HEAD~1            what differs from that commit, and how
    python bench/golden.py --against HEAD --diff-dir DIR   and leaves all texts there
    python bench/golden.py --show --capture '*/draws*' --view '*--check'    the texts that are hashed

In: the bundled captures and those in ../shared/captures where they are (if not, only the bundled are compared
and that is said). Out: the outputs that differ; exit status 1 if there is any. tests/golden does the work.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.golden import kept as golden  # noqa: E402  (it lies below the folder named above, as what follows)
from tests.golden.asked import DEAR, LISTING, OF_DEAR, SHARED, Subject, captures, subjects  # noqa: E402
from tests.golden.kept import Comparison, KeptError, Outputs  # noqa: E402
from tests.golden.running import Answer, answer, prepare  # noqa: E402
from tests.places import WITHOUT_SHARED  # noqa: E402

KEPT = ROOT / "bench" / "golden.txt"
MAX_NAMED = 60
"""Lines that name outputs; of more, only how many captures each question differs for."""
MAX_SHOWN = 20
"""Differences that `--against` shows."""
MAX_LINE = 240
"""Characters of a line of theirs."""
Asked = tuple[str, str]
"""A subject's name and a question."""
Answers = dict[str, dict[str, Answer]]


def main() -> int:
    options = arguments()
    chosen = Chosen(options.capture, options.view)
    found = [subject for subject in subjects() if chosen.capture(subject.name)]
    if WITHOUT_SHARED:
        print(f"{SHARED} is not there: only the bundled captures are compared", file=sys.stderr)
    started = time.monotonic()
    texts = options.show or options.against is not None
    answers = run(found, chosen.view, options.jobs, package=ROOT, text=texts)
    if options.show:
        print("\n".join(f"=== {n}: {q}\n{a.text}" for n, qs in answers.items() for q, a in qs.items()))
        return 0
    now = hashes(answers)
    if options.against is None:
        kept, where = kept_now(options), str(KEPT.relative_to(ROOT))
    else:
        before = at_commit(options.against, found, chosen, options.jobs)
        kept, where = hashes(before), options.against
    compared = golden.compare(comparable(kept, chosen), now)
    print("\n".join(lines(compared, kept, now)))
    if options.against is not None:
        show(compared.differing(), before, answers, options)
    if options.write:
        KEPT.write_text(golden.written(golden.replaced(kept, now, compared.gone)), encoding="utf-8")
    for name, reason in DEAR.items():
        if captures().get(name) in now:
            print(f"{captures()[name]}: asked only {', '.join(OF_DEAR)}: {reason}")
    count, took = len(compared.differing()), time.monotonic() - started
    print(f"{count:,} outputs differ from {where}, {compared.same:,} do not ({took:.0f} s)")
    return 1 if count and not options.write else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--capture", action="append", metavar="GLOB", help="only these inputs")
    parser.add_argument("--view", action="append", metavar="GLOB", help="only these questions")
    parser.add_argument("--write", action="store_true", help="keep the outputs of now")
    parser.add_argument(
        "--against", metavar="COMMIT", help="compare with that commit, and show how they differ"
    )
    parser.add_argument("--diff-dir", type=Path, metavar="DIR", help="with --against: keep whole texts there")
    parser.add_argument("--lines", type=int, default=40, help="with --against: so many of each (default: 40)")
    parser.add_argument("--show", action="store_true", help="show the texts themselves")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    options = parser.parse_args()
    if options.write and options.against:
        parser.error("--write keeps the outputs of this checkout: no --against with it")
    return options


class Chosen:
    """What `--capture` and `--view` ask for."""

    def __init__(self, captures: list[str] | None, views: list[str] | None) -> None:
        self._captures, self._views = captures or ["*"], views or ["*"]

    def capture(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self._captures)

    def view(self, question: str) -> bool:
        return any(fnmatch.fnmatchcase(question, pattern) for pattern in self._views)


# --- running ------------------------------------------------------------------------------------------------


def run(
    found: list[Subject], wanted: Callable[[str], bool], jobs: int, *, package: Path, text: bool = False
) -> Answers:
    """The answers of all; each process has imported the package once and forks for each."""
    answers: Answers = {}
    work = sorted(found, key=lambda subject: -subject.size())  # no process is left alone with a large one
    spawn = get_context("spawn")  # such a process has nothing of ours imported yet
    with ProcessPoolExecutor(jobs, spawn, prepare, (ROOT, package)) as pool:
        tasks = [pool.submit(answered, subject, wanted, text) for subject in work]
        for at, task in enumerate(as_completed(tasks), 1):
            name, questions = task.result()
            answers[name] = questions
            print(f"\r{at} of {len(work)} inputs", end="", file=sys.stderr)
    print(file=sys.stderr)
    return dict(sorted(answers.items()))


def answered(subject: Subject, wanted: Callable[[str], bool], text: bool) -> tuple[str, dict[str, Answer]]:
    """All answers of one subject."""
    answers: dict[str, Answer] = {}
    listing = ""
    if subject.listed:
        listed = answer(subject.command(LISTING), text=True)
        listing = listed.text.partition("--- stdout\n")[2].partition("\n--- stderr")[0]
        if wanted(LISTING):
            answers[LISTING] = listed if text else Answer(listed.code, listed.digest)
    for question in subject.questions(listing):
        if wanted(question):
            answers[question] = answer(subject.command(question), text=text)
    return subject.name, answers


def at_commit(commit: str, found: list[Subject], chosen: Chosen, jobs: int) -> Answers:
    """The answers of the package as a commit has it, to the questions of now."""
    with tempfile.TemporaryDirectory(prefix="rpcinspect-golden-") as folder:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", commit, "rpcinspect"], stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        return run(found, chosen.view, jobs, package=Path(folder), text=True)


# --- comparing ----------------------------------------------------------------------------------------------


def hashes(answers: Answers) -> Outputs:
    """What is kept of answers; all of them must have come to an end."""
    ended = [f"{n}: {q}: {a.text}" for n, qs in answers.items() for q, a in qs.items() if a.code < 0]
    if ended:
        raise SystemExit("".join(["golden.py: these did not come to an end:\n", *ended]))
    return {
        name: {q: (a.code, a.digest) for q, a in questions.items()} for name, questions in answers.items()
    }


def kept_now(options: argparse.Namespace) -> Outputs:
    """What is kept; nothing, if that is no longer to be read and will be written."""
    try:
        return golden.load(KEPT)
    except KeptError as error:
        if options.write and options.capture is options.view is None:
            return {}
        raise SystemExit(f"golden.py: {error}") from None


def comparable(kept: Outputs, chosen: Chosen) -> Outputs:
    """What is kept of those that are asked now."""
    return {
        name: {question: entry for question, entry in questions.items() if chosen.view(question)}
        for name, questions in kept.items()
        if chosen.capture(name) and not (WITHOUT_SHARED and SHARED in name)
    }


def lines(found: Comparison, kept: Outputs, now: Outputs) -> list[str]:
    """Which outputs differ, or, if they are many, how many of each question."""
    named = golden.told(found, kept, now)
    if len(named) <= MAX_NAMED:
        return named
    counts = Counter(question for _, question in found.differing())
    return [
        *(f"{count:6,} inputs: {question}" for question, count in counts.most_common(MAX_NAMED)),
        *(["and other questions"] if len(counts) > MAX_NAMED else []),
        "(--capture and --view name them)",
    ]


# --- showing ------------------------------------------------------------------------------------------------


def show(asked: list[Asked], before: Answers, after: Answers, options: argparse.Namespace) -> None:
    """Prints how outputs differ, and leaves them and their differences in `--diff-dir`."""
    for at, (name, question) in enumerate(of_each_question(asked)):
        if at >= MAX_SHOWN and options.diff_dir is None:
            break
        nothing = Answer(0, "")
        old, new = (answers.get(name, {}).get(question, nothing).text for answers in (before, after))
        difference = unified(old, new)
        if options.diff_dir is not None:
            keep(options.diff_dir, f"{name}: {question}", before=old, after=new, diff="\n".join(difference))
        if at < MAX_SHOWN:
            print(f"\n{name}: {question}")
            print("\n".join(line[:MAX_LINE] for line in difference[: options.lines]))
            if len(difference) > options.lines:
                print(f"… and {len(difference) - options.lines:,} lines")
    if len(asked) > MAX_SHOWN:
        print(f"\nand {len(asked) - MAX_SHOWN:,} outputs more: --capture, --view, or --diff-dir for all")


def of_each_question(asked: list[Asked]) -> list[Asked]:
    """The first of each question, then the second, and so on: what is shown first is of many kinds."""
    before = Counter[str]()
    places = []
    for name, question in asked:
        places.append((before[question], name, question))
        before[question] += 1
    return [(name, question) for _, name, question in sorted(places)]


def unified(before: str, after: str) -> list[str]:
    """How two texts differ, by git, whose time is linear; a long line of JSON is taken apart first."""
    with tempfile.TemporaryDirectory(prefix="rpcinspect-golden-") as folder:
        for name, text in (("before", before), ("after", after)):
            apart = [piece for line in text.splitlines() for piece in pieces(line)]
            Path(folder, name).write_text("\n".join(apart) + "\n", encoding="utf-8")
        command = ["git", "diff", "--no-index", "--no-color", "--no-ext-diff", "-U2", "before", "after"]
        shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return shown.stdout.splitlines()[4:]  # all but the names


def pieces(line: str) -> list[str]:
    """An object of more than a line as its members."""
    if len(line) < 120 or line[0] not in "{[":
        return [line]
    try:
        return json.dumps(json.loads(line), indent=1, ensure_ascii=False).splitlines()
    except ValueError:
        return [line]


def keep(folder: Path, name: str, **texts: str) -> None:
    """Leaves the texts in a folder of the output's own."""
    place = folder / "".join(c if c.isalnum() or c in "-.=" else "_" for c in name)[:200]
    place.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (place / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
