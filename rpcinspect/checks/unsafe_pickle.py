"""`unsafe-pickle` and `dangerous-call`: messages that would run more than the job's own code when loaded.

What is unsafe is decided by `pickles.audit`; here it is collected by name and reason.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rpcinspect.checks.check import MAX_INDEXES, Check
from rpcinspect.checks.evidence import CaptureEvidence
from rpcinspect.rpc.message import MessageType, type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import NONE, Finding, Session
from rpcinspect.session.provenance import MessageKind
from rpcinspect.session.words import counted, numbers, several, unique

BUILTINS = "builtins."
"""Nobody imports a module for these, and those that run code are errors."""
MAX_NAMES = 12
"""Names that one finding tells."""
CONFUSED = (MessageType.PYTHON_RREF_FETCH_CALL, MessageType.SCRIPT_RREF_FETCH_RET)
"""A request of Python's dialect that an answer of TorchScript's came to."""


class UnsafePickles(Check):
    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        """(code, name) → reasons."""
        self._rows: dict[tuple[str, str], array[int]] = defaultdict(lambda: array("q"))
        self._names: dict[str, None] = {}
        self._naming: array[int] = array("q")
        """Rows of the messages that hold names of the user's own."""

    def feed(self, record: RpcRecord, kind: MessageKind) -> bool:
        audit = record.facts.audit
        if not audit:
            return False
        for error in audit.errors:
            self._note("unsafe-pickle", error.name, error.reason, record.row)
        if audit.dangerous_call is not None:
            self._note("dangerous-call", audit.dangerous_call.name, audit.dangerous_call.reason, record.row)
        own = [name for name in audit.names if not name.startswith(BUILTINS)]
        if own:
            self._names.update(dict.fromkeys(own))
            self._naming.append(record.row)
        return True

    def _note(self, code: str, name: str, reason: str, row: int) -> None:
        self._reasons[code, name].setdefault(reason)
        rows = self._rows[code, name]
        if not rows or rows[-1] != row:
            rows.append(row)

    def _note_confused(self, session: Session) -> None:
        """Notes answers of TorchScript that came to requests of Python's dialect."""
        kind_of, (asked, answered) = session.provenance.kind_of, CONFUSED
        for row in np.flatnonzero(session.provenance.of_kinds(lambda kind: kind.type == answered)).tolist():
            partner = session.messages.partner[row]
            if partner != NONE and kind_of(partner).type == asked:
                reason = f"it answers {type_name(asked)}, whose sender loads the text in it as a pickle"
                self._note("unsafe-pickle", type_name(answered), reason, row)

    def finish(self, evidence: CaptureEvidence) -> Iterable[Finding]:
        self._note_confused(evidence.session)
        for (code, name), rows in sorted(self._rows.items()):
            indexes, workers = _where(evidence, rows)
            if not indexes:
                continue
            place = f"{counted(len(indexes), 'message')} to {several(workers)} ({numbers(indexes)})"
            verb = "holds" if len(indexes) == 1 else "hold"
            if code == "dangerous-call":
                verb = "calls" if len(indexes) == 1 else "call"
                text = f"{place} {verb} {name}: {'; '.join(self._reasons[code, name])}."
                remedy = "Find out who sent it: loading it runs what its arguments say. It was not run here."
            else:
                text = f"{place} {verb} a pickle with {name}: {'; '.join(self._reasons[code, name])}."
                remedy = "Find out who sent it, and do not replay it. It was not loaded here."
            yield Finding(
                code=code,
                severity="error",
                text=text,
                remedy=remedy,
                messages=indexes[:MAX_INDEXES],
                workers=workers,
            )
        yield from self._own(evidence)

    def _own(self, evidence: CaptureEvidence) -> Iterator[Finding]:
        indexes, workers = _where(evidence, self._naming)
        if not indexes:
            return
        names = sorted(self._names)
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        yield Finding(
            code="unsafe-pickle",
            severity="info",
            text=f"{counted(len(indexes), 'message')} to {several(workers)} ({numbers(indexes)}) "
            f"{'carries' if len(indexes) == 1 else 'carry'} classes or functions of the job's own: "
            f"{', '.join(names[:MAX_NAMES])}{more}. Loading them imports their modules.",
            remedy=_found_by(names),
            messages=indexes[:MAX_INDEXES],
            workers=workers,
        )


def _found_by(names: Sequence[str]) -> str:
    """How a replay finds and allows them."""
    of_script = [name.partition(".")[0] in ("__main__", "__mp_main__") for name in names]
    if all(of_script):
        way = "give the job's script as --main, which allows what it defines"
    elif any(of_script):
        way = "--main names the script that the job ran, --path where modules lie; both allow what is there"
    else:
        way = "--path says where they lie, and allows what they define"
    return f"Nothing to fix. A replay loads them only where you allow it: {way}."


def _where(evidence: CaptureEvidence, rows: Sequence[int]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Indexes of messages, without the agents' own calls, and the workers that got them."""
    session = evidence.session
    control = np.frombuffer(session.messages.control, dtype=np.int8)
    indexes = session.indexes([row for row in rows if not control[row]])
    return indexes, unique(session.destination(int(session.order[index])) for index in indexes)
