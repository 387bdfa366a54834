"""What requests may have been sent for, by row: a column, as most of them have one certain explanation.

In: a `Verdict` of each request that was judged. Out: the same again; only of a doubtful one an object stays.
"""

from __future__ import annotations

from array import array

from msgspec import Struct

OWN, UNJUDGED, DOUBTFUL = -1, -2, -3


class Verdict(Struct, eq=False):
    """What a request may have been sent for."""

    rows: tuple[int, ...]
    """Requests, the likeliest first."""
    own: bool
    """Its sender's own program."""
    own_likely: bool = False
    unseen: bool = False
    """Or a request that was not captured."""

    @property
    def certain(self) -> bool:
        """Whether one explanation is left."""
        return len(self.rows) + self.own == 1 and not self.unseen


class Verdicts:
    """Verdicts of the requests among `count` rows."""

    def __init__(self, count: int) -> None:
        self.parent = array("q", [UNJUDGED]) * count
        """Of each row the one that it was certainly sent for, or one of the numbers above."""
        self.doubtful: dict[int, Verdict] = {}

    def __setitem__(self, row: int, verdict: Verdict) -> None:
        if verdict.certain:
            self.settle(row, verdict.rows[0] if verdict.rows else OWN)
        else:
            self.parent[row], self.doubtful[row] = DOUBTFUL, verdict

    def __getitem__(self, row: int) -> Verdict:
        """Raises `KeyError` where nothing was judged."""
        parent = self.parent[row]
        if parent >= 0:
            return Verdict((parent,), False)
        return Verdict((), True, True) if parent == OWN else self.doubtful[row]

    def settle(self, row: int, parent: int) -> None:
        """Says that a request was certainly sent for another one."""
        self.parent[row] = parent
        self.doubtful.pop(row, None)

    def copy(self, row: int, other: int) -> None:
        """Gives a request the verdict of another one, which was judged."""
        self.settle(row, self.parent[other])
        if other in self.doubtful:
            self.doubtful[row] = self.doubtful[other]

    def get(self, row: int, other: Verdict) -> Verdict:
        """The verdict of a row; `other` where it was not judged."""
        return other if self.parent[row] == UNJUDGED else self[row]
