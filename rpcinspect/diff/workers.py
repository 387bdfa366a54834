"""Which worker of one run is which of the other.

In: the labels of both runs' workers. Out: one name for each, the second run's where both have the worker.
Names decide. What a capture has no name for, an address or a bare id, is told apart by its id, else by who
was seen first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from rpcinspect.session.model import Worker
from rpcinspect.session.workers import ID_LABEL


class Label(Struct, frozen=True):
    """What a worker of one run and job is called, and what else is known of it."""

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
