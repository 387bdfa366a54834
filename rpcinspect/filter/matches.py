"""Which messages a view shows, where it does not show all of them, and what these take part in."""

from __future__ import annotations

from collections import Counter
from itertools import compress

from msgspec import Struct, field

from rpcinspect.fields.phrases import printable
from rpcinspect.rpc.message import type_name
from rpcinspect.run.participation import Participation
from rpcinspect.session.model import AutogradContext, Finding, RRef, Session


class Shown(Struct, frozen=True):
    """The messages that a filter matches."""

    text: str
    """The filter, as the user wrote it."""
    rows: bytes
    """Of each row 1 or 0."""
    touched: Participation = field(default_factory=Participation)
    """What the messages take part in."""
    hints: tuple[str, ...] = ()
    """Where there are none: what values there are, of a field that never has the one asked for."""

    @property
    def count(self) -> int:
        """How many messages there are to show."""
        return self.rows.count(1)

    def of(self, order: list[int]) -> list[int]:
        """The rows of an order that are shown, in that order."""
        rows = self.rows
        return [row for row in order if rows[row]]

    def by_type(self, session: Session) -> dict[str, int]:
        """How many of each type there are, in the order of the session's."""
        counts = Counter(compress(session.messages.type, self.rows))
        names = {type_name(kind): count for kind, count in counts.items()}
        return {name: names[name] for name in session.totals.by_type if name in names}

    def words(self, some: int, of: int, noun: str) -> str:
        """Returns the line that says how many of a view's items are shown."""
        those = "that match" if noun in ("message", "call", "request") else "with messages that match"
        nouns = noun if of == 1 else f"{noun}s"
        return f"shown: {some:,} of {of:,} {nouns}, those {those} {printable(self.text)}"

    def contexts(self, session: Session) -> tuple[AutogradContext, ...]:
        """Returns the contexts that a shown message takes part in."""
        return tuple(c for c in session.contexts if (c.job, c.context_id) in self.touched.contexts)

    def rrefs(self, session: Session) -> tuple[RRef, ...]:
        """Returns the RRefs that a shown message takes part in."""
        return tuple(r for r in session.rrefs if (r.job, r.rref_id) in self.touched.rrefs)

    def findings(self, session: Session) -> tuple[Finding, ...]:
        """Returns the findings that name a shown message, or no message at all: those are about the capture
        itself."""
        return tuple(finding for finding in session.findings if self._about(session, finding))

    def _about(self, session: Session, finding: Finding) -> bool:
        rows = (int(session.order[index]) for index in finding.messages)
        return not finding.messages or any(self.rows[row] for row in rows)
