"""Which messages a view shows, where it does not show all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    """What a filter has picked of a session."""

    text: str
    """The filter, as the user wrote it."""
    rows: bytes
    """Of each row 1 or 0."""

    @property
    def count(self) -> int:
        """How many messages there are to show."""
        return self.rows.count(1)

    def of(self, order: list[int]) -> list[int]:
        """The rows of an order that are shown, in that order."""
        rows = self.rows
        return [row for row in order if rows[row]]
