"""`unsafe-pickle`: pickles that would do more than make data when loaded.

What is suspicious is decided by `rpc.pickles.safety`; here it is collected by name and reason.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from rpcinspect.rpc.message import MessageType
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Finding
from rpcinspect.trace.notes import Note
from rpcinspect.trace.run import Run
from rpcinspect.trace.stage import MAX_INDEXES, Stage
from rpcinspect.trace.words import counted, numbers, several, unique


class UnsafePickles(Stage):
    """See the module's text."""

    KINDS = (
        MessageType.PYTHON_CALL,
        MessageType.PYTHON_REMOTE_CALL,
        MessageType.PYTHON_RET,
        MessageType.PYTHON_RREF_FETCH_RET,
    )

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        """(severity, name) → reasons."""
        self._rows: dict[tuple[str, str], array[int]] = defaultdict(lambda: array("q"))

    def feed(self, record: RpcRecord, note: Note) -> None:
        for suspicion in record.facts.suspicions:
            key = (suspicion.severity, suspicion.name)
            self._reasons[key].setdefault(suspicion.reason)
            rows = self._rows[key]
            if not rows or rows[-1] != record.row:
                rows.append(record.row)

    def indifferent(self, record: RpcRecord, note: Note) -> bool:
        return not record.facts.suspicions

    def finish(self, run: Run) -> Iterable[Finding]:
        session = run.session
        control = np.frombuffer(session.messages.control, dtype=np.int8)
        for (severity, name), rows in sorted(self._rows.items()):
            indexes = session.indexes([row for row in rows if not control[row]])
            if not indexes:
                continue
            workers = unique(session.destination(int(session.order[index])) for index in indexes)
            holds = "holds" if len(indexes) == 1 else "hold"
            yield Finding(
                code="unsafe-pickle",
                severity=severity,
                text=f"{counted(len(indexes), 'message')} to {several(workers)} ({numbers(indexes)}) {holds} "
                f"{name} in a pickle: {'; '.join(self._reasons[severity, name])}.",
                remedy="Nothing was loaded here. Do not replay the message unless you trust the capture.",
                messages=indexes[:MAX_INDEXES],
                workers=workers,
            )
