"""Seeds of live workers' random numbers: as the user gives them, and those that are to be tried.

In: words of the command line. Out: which worker gets which seed; None where a word is no such thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

SEEDS = range(-1 << 63, 1 << 64)
"""What torch.manual_seed takes."""
MAX_TRIES = 1_000_000


class Seeds(Struct, frozen=True, kw_only=True):
    """The seeds of workers."""

    everybody: int | None = None
    """Of those that have none of their own; None: they are not seeded."""
    own: dict[str, int] = field(default_factory=dict)

    def of(self, worker: str) -> int | None:
        """Returns the seed of a worker; None: the worker is not seeded."""
        return self.own.get(worker, self.everybody)


def read_seed(word: str) -> tuple[str | None, int] | None:
    """`7` or `worker1=7`: the worker, if one is named, and its seed."""
    name, equals, number = word.rpartition("=")
    if equals and not name:
        return None
    try:
        seed = int(number, 0)
    except ValueError:
        return None
    return (name or None, seed) if seed in SEEDS else None


def read_seeds(words: Sequence[str]) -> Seeds:
    """Reads seeds; of several for the same worker the last one holds, words that are none are left out."""
    found = [one for one in map(read_seed, words) if one is not None]
    own = {name: seed for name, seed in found if name is not None}
    everybody = [seed for name, seed in found if name is None]
    return Seeds(everybody=everybody[-1] if everybody else None, own=own)


def read_range(word: str) -> range | None:
    """`0:100` or `100`: the seeds to try, the last number left out."""
    first, colon, last = word.rpartition(":")
    try:
        begin, end = int(first, 0) if colon else 0, int(last, 0)
    except ValueError:
        return None
    fits = begin < end <= begin + MAX_TRIES and begin in SEEDS and end - 1 in SEEDS
    return range(begin, end) if fits else None


def unknown(seeds: Seeds, live: Iterable[str]) -> list[str]:
    """Workers that got a seed and are live nowhere."""
    there = set(live)
    return [name for name in seeds.own if name not in there]
