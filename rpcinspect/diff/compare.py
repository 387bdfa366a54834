"""Two runs → a `Comparison`: the steps of a diff, one after the other.

In: open sessions and rules. Out: every message of both runs in one order, what differs, and where the runs
part. Messages are compared with each other by `equality`, pair by pair; nothing of them is kept but what
differs.

Names decide which worker of one run is which of the other. What a capture has no name for, an address or a
bare id, is told apart by its id, else by who was seen first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import median_low

from msgspec import Struct

from rpcinspect.diff.align import Alignment, align_runs
from rpcinspect.diff.explain import explain, with_causes
from rpcinspect.diff.merge import merge
from rpcinspect.diff.model import Aligned, Comparison, Found, Side
from rpcinspect.diff.order import changed_places
from rpcinspect.diff.side import CallSignature, DiffSide
from rpcinspect.equality.difference import Difference, plain_text
from rpcinspect.equality.errors import reworded
from rpcinspect.equality.ids import CONTEXT, IdMap
from rpcinspect.equality.messages import compare_messages
from rpcinspect.equality.rules import Rules
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Progress
from rpcinspect.rpc.questions import GENERAL
from rpcinspect.rpc.remote_error import RemoteError, error_of
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import AutogradContext, Worker
from rpcinspect.session.words import several
from rpcinspect.session.workers import ID_LABEL

BY_DEFAULT = Rules()


def compare(
    a: RunModel | str | Sequence[str], b: RunModel | str | Sequence[str], rules: Rules = BY_DEFAULT
) -> Comparison:
    """The diff of two runs, each an open session, a capture or several of them. The package offers it as
    `rpcinspect.compare`."""
    with ExitStack() as stack:
        runs = []
        for given in (a, b):
            if not isinstance(given, RunModel):
                paths = [given] if isinstance(given, str) else given
                given = stack.enter_context(RunModel.open(paths))
            runs.append(given)
        check_messages(*runs)
        return compare_runs(runs[0], runs[1], rules)


def check_messages(*runs: RunModel) -> None:
    """Raises `CaptureError` where no run has a message: two empty runs are not known to be the same."""
    if not any(run.messages for run in runs):
        raise CaptureError("no RPC messages: there is nothing to compare")


def _unheard(done: int, of: int | None) -> None:
    """Takes progress where nobody wants to see it."""


def compare_runs(
    a: RunModel,
    b: RunModel,
    rules: Rules = BY_DEFAULT,
    *,
    contexts: tuple[AutogradContext | None, AutogradContext | None] = (None, None),
    progress: Progress = _unheard,
) -> Comparison:
    """The diff of two sessions; with `contexts`, of one autograd context of each, perhaps of one session.
    `progress` hears how many messages were compared of how many, and first what comes before that.
    """
    progress(0, None)
    runs = DiffSide(a, contexts[0]), DiffSide(b, contexts[1])
    notes = _recognise(*runs, rules)
    progress(0, None)
    alignment = align_runs(*runs)
    progress(0, None)
    messages = merge(*runs, alignment)
    comparing = _Comparing(*runs, alignment, rules)
    found = list(comparing.all(messages, progress))
    explained = found if alignment.unrelated else with_causes(messages, found)
    first = None if alignment.unrelated else explain(messages, explained, *runs)
    if comparing.reworded:
        notes.append(_reworded(comparing.reworded))
    if not rules.ignores("latency"):
        explained += latencies(*runs, alignment.pairs, messages)
    return Comparison(
        a=_side(runs[0], messages, 0),
        b=_side(runs[1], messages, 1),
        rules=rules,
        messages=tuple(messages),
        found=tuple(explained),
        first=first,
        unknown=comparing.unknown,
        notes=tuple(notes),
        unrelated=alignment.unrelated,
    )


def _recognise(a: DiffSide, b: DiffSide, rules: Rules) -> list[str]:
    """Gives workers the names that hold in both runs; notes on those that only one of them has."""
    names: tuple[dict[tuple[int, str], str], dict[tuple[int, str], str]] = ({}, {})
    notes = []
    labels_a, labels_b = _labels(a), _labels(b)
    for job in sorted(labels_a.keys() | labels_b.keys()):
        one, other = labels_a.get(job, []), labels_b.get(job, [])
        same = same_workers(one, other, rules.worker_name)
        names[0].update({(job, text): name for text, name in same.items()})
        only_a = [label.text for label in one if label.text not in same]
        only_b = [label.text for label in other if label.text not in same.values()]
        names[0].update({(job, text): rules.worker_name(text) for text in only_a})
        if len(only_a) == len(only_b) == 1:
            notes.append(f"if {only_a[0]} of a is {only_b[0]} of b, --rename {only_a[0]}={only_b[0]} says so")
        else:
            notes += [f"only a has a worker {text}" for text in only_a]
            notes += [f"only b has a worker {text}" for text in only_b]
    a.recognise(names[0], rules.worker_name if rules.renames else None)
    b.recognise(names[1])
    return notes


def _labels(run: DiffSide) -> Mapping[int, list[Label]]:
    """The workers of each job."""
    seen: dict[int, list[str]] = defaultdict(list)
    for call in run.calls.values():
        seen[call.job] += [call.caller, call.callee]
    for orphan in run.orphans:
        seen[orphan.job] += [orphan.source, orphan.destination]
    return {job: labels(its, run.opened.session.workers, job) for job, its in seen.items()}


class _Comparing:
    """Compares pair by pair, and remembers which ids are the same."""

    def __init__(self, a: DiffSide, b: DiffSide, alignment: Alignment, rules: Rules) -> None:
        self._a = a
        self._b = b
        self._rules = rules
        self._alignment = alignment
        self._ids: dict[int, IdMap] = defaultdict(IdMap)
        """Of each job: ids are unique in one only."""
        self.reworded: Counter[str] = Counter()
        """Errors whose texts differ in what is taken out before they are compared, by its kind; `errors` are
        all of them."""
        self.unknown = 0
        """Messages of which both runs lack the same bytes."""
        self._jobs = {call.index: call.job for call in a.calls.values()}
        self._jobs.update({call.answer: call.job for call in a.calls.values() if call.answer is not None})
        self._jobs.update({orphan.index: orphan.job for orphan in a.orphans})
        self._learn_contexts()

    def _learn_contexts(self) -> None:
        """The contexts of calls that are the same are the same; the first pair decides."""
        for index, partner in self._alignment.pairs.items():
            call, other = self._a.calls[index], self._b.calls[partner]
            ids = self._ids[call.job]
            if call.context is None or other.context is None:
                continue
            if ids.translate(CONTEXT, call.context) is None:
                mark = ids.mark()
                if not ids.carried(CONTEXT, call.context, other.context):
                    ids.rollback(mark)

    def all(self, messages: Sequence[Aligned], progress: Progress) -> Iterator[Found]:
        """The differences of all messages, in their order."""
        moved = self._reordered(messages)
        for place, message in enumerate(messages):
            if place % TOLD_EVERY == 0:
                progress(place, len(messages))
            if self._ignored(messages, message):
                continue
            for difference in self._one(message):
                yield self._found(place, message, difference)
            if place in moved:
                yield self._found(place, message, moved[place])

    def _ignored(self, messages: Sequence[Aligned], message: Aligned) -> bool:
        """Says whether the rules ignore a message because only one run has its call."""
        request = message if message.answers is None else messages[message.answers]
        if request.a is not None and request.b is not None:
            return False
        return ("missing" if request.b is None else "extra") in self._rules.ignore

    def _found(self, place: int, message: Aligned, difference: Difference) -> Found:
        rules = self._rules
        counts = rules.counts(difference.code) and not difference.tolerated
        return Found(
            message=place,
            difference=difference,
            counts=counts and (not message.control or rules.strict),
        )

    def _one(self, message: Aligned) -> list[Difference]:
        if message.a is None or message.b is None:
            return [self._one_sided(message)]
        one, other = self._a.messages[message.a], self._b.messages[message.b]
        ids = self._ids[self._jobs[message.a]]
        mark = ids.mark()
        found = compare_messages(one, other, self._a.opened.read, self._b.opened.read, self._rules, ids)
        if not found:
            self._reword(error_of(one), error_of(other))
            return found
        if any(difference.code == "function" for difference in found):
            ids.rollback(mark)  # another call has taken its place: their ids are not the same
        both = [difference for difference in found if difference.both]
        self.unknown += bool(both)
        return [difference for difference in found if not difference.both]

    def _reword(self, a: RemoteError | None, b: RemoteError | None) -> None:
        if a is None or b is None:
            return
        text_a = self._rules.renamed_text(a.text)
        if text_a != b.text:
            self.reworded.update(["errors", *reworded(text_a, b.text)])

    def _one_sided(self, message: Aligned) -> Difference:
        what = plain_text(f"{message.type} {message.function}" if message.function else message.type)
        alignment = self._alignment
        repeated = message.request and (
            message.a in alignment.repeated_a if message.b is None else message.b in alignment.repeated_b
        )
        if message.b is None:
            return Difference(code="repeated" if repeated else "missing", path="", a_value=what)
        return Difference(code="repeated" if repeated else "extra", path="", b_value=what)

    def _reordered(self, messages: Sequence[Aligned]) -> dict[int, Difference]:
        """Place of the first of some calls → that they have changed places."""
        found: dict[int, Difference] = {}
        groups = changed_places(self._a, self._b, self._alignment.pairs)
        places = {message.a: place for place, message in enumerate(messages)} if groups else {}
        for group in groups:
            order_b = sorted(group, key=lambda pair: self._b.calls[pair[1]].begin_ns)
            found[min(places[a] for a, _ in group)] = Difference(
                code="reordered",
                path="",
                a_value=[a for a, _ in group][:MAX_SHOWN],
                b_value=[b for _, b in order_b][:MAX_SHOWN],
                text=f"{len(group)} calls come in a different order, each with one that it never overlaps: "
                + several([f"a#{a} is b#{b}" for a, b in group]),
            )
        return found


def _reworded(counts: Counter[str]) -> str:
    """Tells which parts of error texts were not compared, and how many texts differ in them."""
    errors = counts["errors"]
    told = [f"{kind} ({count:,})" for kind, count in counts.items() if kind != "errors"]
    verb = "texts differ" if errors > 1 else "text differs"
    return f"{errors:,} error {verb} only in what is not compared: {', '.join(told)}"


TOLD_EVERY = 500
"""Messages between two words about the progress."""
MAX_SHOWN = 16
"""Calls of a group that have changed places that are named."""


def _side(run: DiffSide, messages: Sequence[Aligned], side: int) -> Side:
    indexes = [message.a if side == 0 else message.b for message in messages]
    its = _labels(run)
    return Side(
        paths=tuple(info.path for info in run.opened.session.captures),
        messages=sum(index is not None for index in indexes),
        workers=tuple(sorted({label.text for labels in its.values() for label in labels})),
        context=None if run.context is None else run.context.context_id,
    )


FACTOR = 2
LEAST_NS = 1_000_000
"""Medians that differ by less than this, or by a smaller factor, are not reported."""


def latencies(a: DiffSide, b: DiffSide, pairs: Mapping[int, int], messages: Sequence[Aligned]) -> list[Found]:
    """Returns a difference for each kind of call whose median time differs by far, at the first such call, in
    order: information, which does not count."""
    places = {message.a: place for place, message in enumerate(messages) if message.request}
    times: dict[tuple[CallSignature, str | None], list[tuple[int, int, int, int]]] = defaultdict(list)
    for index, partner in pairs.items():
        call, other = a.calls[index], b.calls[partner]
        if call.latency_ns is None or other.latency_ns is None or call.control or call.kind not in GENERAL:
            continue
        if a.signs[index] != b.signs[partner]:
            continue  # another function in its place: its time says nothing of the first one's
        # methods of all objects go through one function of torch's: who is called keeps them apart
        kind = a.signs[index], a.called(index)
        times[kind].append((index, partner, call.latency_ns, other.latency_ns))
    found: list[tuple[tuple[int, int], Found]] = []
    for rows in times.values():
        medians = median_low([row[2] for row in rows]), median_low([row[3] for row in rows])
        low, high = sorted(medians)
        if high - low >= LEAST_NS and high >= FACTOR * low:
            first = min(rows, key=lambda row: (max(row[:2]), min(row[:2])))  # the same the other way round
            difference = Difference(
                code="latency",
                path="median_ns",
                a_value=medians[0],
                b_value=medians[1],
                text=f"of {len(rows):,} calls" if len(rows) > 1 else None,
            )
            its = Found(message=places[first[0]], difference=difference, counts=False)
            found.append(((max(first[:2]), min(first[:2])), its))
    return [its for _, its in sorted(found, key=lambda pair: pair[0])]


class Label(Struct, frozen=True):
    """Label of a worker of one run and job, with what else is known of it."""

    text: str
    named: bool
    """It is the worker's name, not an address or an id that stands for it."""
    id: int | None


def labels(seen: Iterable[str], workers: Sequence[Worker], job: int) -> list[Label]:
    """The workers of a job in the order in which they were seen first."""
    ids: dict[str, set[int]] = {}
    for worker in workers:
        if worker.job == job and worker.name is not None:
            its = ids.setdefault(worker.name, set())
            if worker.id is not None:
                its.add(worker.id)
    found = []
    for text in dict.fromkeys(seen):
        known = ids.get(text)
        if known is None:
            bare = ID_LABEL.fullmatch(text)
            found.append(Label(text, False, int(bare[1]) if bare else None))
        else:
            found.append(Label(text, True, next(iter(known)) if len(known) == 1 else None))
    return found


def same_workers(a: Sequence[Label], b: Sequence[Label], rename: Callable[[str], str]) -> Mapping[str, str]:
    """Label of the first run → label of the second, for the workers that both have."""
    names_b = {label.text for label in b if label.named}
    found = {label.text: rename(label.text) for label in a if label.named and rename(label.text) in names_b}
    left_a = [label for label in a if label.text not in found]
    taken = set(found.values())
    left_b = [label for label in b if label.text not in taken]
    for by_id in (True, False):
        for one in left_a:
            for other in left_b:
                if one.text in found or other.text in taken or (one.named and other.named):
                    continue
                if not by_id or (one.id is not None and one.id == other.id):
                    found[one.text] = other.text
                    taken.add(other.text)
    return found
