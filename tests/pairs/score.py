"""What `diff` and `decode` say of recorded runs, against what their workers wrote down.

In: joined runs of one kind. Out: a `Score`; `broken` lists what must never be. Three questions:

same     runs without a change are told to be the same, in both directions
changed  the first difference of a run with a change is the call that was changed
parents  requests are said to serve the request that they served, where that is said to be certain; and what
         was served is among the candidates where it is not
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.pairs.jobs import TELLING
from tests.pairs.joined import FETCHES, Joined, Json, brought, command

CODES = {
    "value": {"value"},
    "argument": {"argument"},
    "function": {"function"},
    "drop": {"missing"},
}
"""What the first difference may be called, for each change."""
OTHER_CODES = {"proxies": {"argument"}, "remote_module": {"missing", "extra"}}
"""What another function may be called too: where the method's name is an argument of the call, and where the
other call has another form altogether.
"""


SHARE = 0.8
"""Of nested requests that carry what tells them apart: so many are to be certain."""


@dataclass
class Score:
    """The counts of one kind of job."""

    kind: str
    runs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    """A line for each statement that is wrong or missing, to be looked at."""

    def note(self, what: str, text: str | None = None) -> None:
        self.counts[what] += 1
        if text is not None:
            self.told.append(f"{self.kind}: {what}: {text}")

    def broken(self) -> list[str]:
        """What must not be."""
        counts = self.counts
        found = [
            f"{counts[what]} {what}"
            for what in ("not the same", "equal called different", "certain and wrong", "right one left out")
            if counts[what]
        ]
        if counts["fetch of one bringer, certain"] < counts["fetch of one bringer"]:
            missed = counts["fetch of one bringer"] - counts["fetch of one bringer, certain"]
            found.append(f"{missed} fetches of one bringer not certain")
        caused, certain = (
            sum(counts[f"{what}{end}"] for what in ("nested", "fetch")) for end in ("", ", certain")
        )
        if self.kind in TELLING and certain < SHARE * caused:
            found.append(f"only {certain} of {caused} nested requests certain")
        return found


def score(
    kind: str, runs: Sequence[Joined], changed: Sequence[tuple[str, Joined]], workers: int = 2
) -> Score:
    """All three questions; comparisons run `workers` at a time."""
    found = Score(kind, len(runs))
    with ThreadPoolExecutor(workers) as pool:
        pairs = list(itertools.permutations(runs, 2))
        for (a, b), lines in zip(pairs, pool.map(_diff, pairs), strict=True):
            _score_same(found, a, b, lines)
        for change, run in changed:
            there, back = pool.map(_diff, [(runs[0], run), (run, runs[0])])
            score_changed(found, change, runs[0], run, there)
            score_changed(found, change, runs[0], run, _swapped(back))
    for run in runs:
        score_parents(found, run)
    return found


def _diff(pair: tuple[Joined, Joined]) -> list[Json]:
    a, b = pair
    profiled = any(envelope.get("events") for message in a.messages for envelope in message["envelopes"])
    # torch's legacy profiler now and then counts an operator of one request for another that runs at once
    ignored = ["--ignore", "profile-events"] if profiled else []
    return command("diff", "--format", "jsonl", *ignored, a.capture, b.capture)


def _swapped(lines: Sequence[Json]) -> list[Json]:
    """The verdict as if the runs had been given the other way round."""
    first = lines[-1].get("first")
    if not first:
        return list(lines)
    codes = {"missing": "extra", "extra": "missing"}
    code = codes.get(first["code"], first["code"])
    return [{**lines[-1], "first": {**first, "code": code, "a": first["b"], "b": first["a"]}}]


def _pair_name(a: Joined, b: Joined) -> str:
    return f"{a.folder.name} {b.folder.name}"


# --- same and changed ---------------------------------------------------------------------------------------


def _score_same(found: Score, a: Joined, b: Joined, lines: Sequence[Json]) -> None:
    found.counts["pairs"] += 1
    if lines[-1]["same"]:
        found.note("same")
    else:
        found.note("not the same", f"{_pair_name(a, b)}: {lines[-1]['counts']}")


def score_changed(found: Score, change: str, base: Joined, run: Joined, lines: Sequence[Json]) -> None:
    """Whether the first difference is the call that was changed, and called what it is."""
    assert run.changed is not None
    first = lines[-1].get("first") or {}
    expected = (base.labels.get(run.changed), run.labels.get(run.changed))
    found.counts["changed"] += 1
    if expected[0] is None or (expected[1] is None) != (change == "drop"):
        found.note("changed, call not joined", _pair_name(base, run))
        return
    named = (first.get("a"), first.get("b"))
    codes = CODES[change] | (OTHER_CODES.get(found.kind, set()) if change == "function" else set())
    code = first.get("code")
    if code in codes and named == _ends(code, expected):
        found.note(f"{change} right")
        found.note("changed, right")
        return
    text = f"{_pair_name(base, run)}: {first.get('code')} {named} {first.get('type')}, not {expected}"
    found.note("changed, wrong", text)
    if _is_equal(first, change, base, run):
        found.note("equal called different", text)


def _ends(code: str, calls: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    """The messages of a difference that is about these."""
    return (None if code == "extra" else calls[0]), (None if code == "missing" else calls[1])


def _is_equal(first: Json, change: str, base: Joined, run: Joined) -> bool:
    """Whether what is named is the same in both runs, by what it carries."""
    if str(first.get("type")).startswith(("RREF_", "CLEANUP")):
        return change != "drop"  # the other changes leave as many of them
    a, b = first.get("a"), first.get("b")
    if a is not None and not _twin(base.messages[a], run.messages):
        return False
    if b is not None and not _twin(run.messages[b], base.messages):
        return False
    return a is not None or b is not None


def _twin(message: Json, others: Iterable[Json]) -> bool:
    """Whether a call with tensors, all of which are other in each call, is in the other run too."""
    content = _content(message)
    return bool(message["request"] and message["tensors"]) and any(_content(o) == content for o in others)


def _content(message: Json) -> tuple[Any, ...]:
    body = message["body"]
    args = re.sub(r"\((\d+), ?(\d+)\)", "()", f"{body.get('args')} {body.get('kwargs')}")
    tensors = tuple(tensor["sha256"] for tensor in message["tensors"])
    return message["src"], message["dst"], body["type"], body.get("function"), args, tensors


# --- parents ------------------------------------------------------------------------------------------------


def score_parents(found: Score, run: Joined) -> None:
    """What is said of each request whose cause is known."""
    found.counts["unjoined"] += sum(run.unjoined.values())
    bringers = dict(only_bringers(run))
    for index, parent in sorted(run.parents.items()):
        message = run.messages[index]
        own, fetch = parent is None, message["body"]["type"] in FETCHES
        what = "own" if own else "fetch" if fetch else "nested"
        found.counts[what] += 1
        if bringers.get(index) is not None and not own:
            found.counts["fetch of one bringer"] += 1
        if "parents" not in message:
            found.counts["not told"] += 1
            continue
        said, certain = message["parents"], message["parent_certain"]
        text = f"{run.folder.name} #{index} serves {parent}, said: {said}"
        if certain and said == ([] if own else [parent]):
            found.counts[f"{what}, certain"] += 1
            if bringers.get(index) is not None and not own:
                found.counts["fetch of one bringer, certain"] += 1
        elif certain:
            found.note("certain and wrong", text)
        elif not own and parent not in said:
            found.note("right one left out", text)
        elif bringers.get(index) is not None and not own:
            found.told.append(f"{found.kind}: fetch of one bringer, uncertain: {text}")


def only_bringers(run: Joined) -> Iterator[tuple[int, int]]:
    """Fetches of an RRef that one open request has brought and nothing else could have: with that request.

    Nothing else: the worker didn't make the RRef, and no other message that it got by then holds it.
    """
    answers = {m["answers"]: m for m in run.messages if m["answers"] is not None}
    holding: dict[tuple[str, tuple[int, int]], list[Json]] = {}
    for message in run.messages:
        for rref in brought(message):
            holding.setdefault((message["dst"], rref), []).append(message)
    makers: dict[tuple[int, int], str] = {
        tuple(m["body"]["rref_id"]): m["src"]
        for m in run.messages
        if m["body"]["type"].endswith("REMOTE_CALL")
    }
    for fetch in run.messages:
        if fetch["body"]["type"] not in FETCHES:
            continue
        rref = tuple(fetch["body"]["rref_id"])
        came = [m for m in holding.get((fetch["src"], rref), []) if m["end_time_ns"] <= fetch["time_ns"]]
        if makers.get(rref) == fetch["src"] or len(came) != 1 or not came[0]["request"]:
            continue
        answer = answers.get(came[0]["index"])
        if answer is None or answer["end_time_ns"] >= fetch["time_ns"]:
            yield fetch["index"], came[0]["index"]


# --- the table ----------------------------------------------------------------------------------------------

COLUMNS: dict[str, Callable[[Score], str]] = {
    "kind": lambda s: s.kind,
    "runs": lambda s: str(s.runs),
    "same": lambda s: _of(s, "same", "pairs"),
    "changed": lambda s: _of(s, "changed, right", "changed"),
    "nested": lambda s: _of(s, "nested, certain", "nested"),
    "fetch": lambda s: _of(s, "fetch, certain", "fetch"),
    "one bringer": lambda s: _of(s, "fetch of one bringer, certain", "fetch of one bringer"),
    "own": lambda s: _of(s, "own, certain", "own"),
    "wrong": lambda s: str(s.counts["certain and wrong"]),
    "left out": lambda s: str(s.counts["right one left out"]),
    "not told": lambda s: str(s.counts["not told"]),
    "unjoined": lambda s: str(s.counts["unjoined"]),
}


def _of(score: Score, some: str, of: str) -> str:
    return f"{score.counts[some]}/{score.counts[of]}" if score.counts[of] else "–"


def table(scores: Sequence[Score]) -> str:
    """A row for each kind: right or certain, of how many."""
    total = Score("all", sum(score.runs for score in scores))
    for one in scores:
        total.counts += one.counts
    rows = [list(COLUMNS), *([column(one) for column in COLUMNS.values()] for one in (*scores, total))]
    widths = [max(len(row[n]) for row in rows) for n in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def runs_in(folder: Path) -> list[Path]:
    """The recorded runs of a kind that are complete."""
    return sorted(path.parent for path in folder.glob("*/run.json"))
