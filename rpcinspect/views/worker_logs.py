"""What workers' own logs tell, in words and as JSON.

In: `WorkerLogs`. Out: rows of the table, lines for the summary, objects of kind `log` and `worker_log`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from rpcinspect.session.model import LogEvent, LogFile, WorkerLogs
from rpcinspect.views.contract.message import text
from rpcinspect.views.phrases import counted, duration, path_label, printable, shorten

Json: TypeAlias = dict[str, Any]
MAX_SAID = 300
"""Characters of a line that are shown."""
BAD = frozenset({"error", "fatal"})


def said(event: LogEvent) -> str:
    """What a line says."""
    return shorten(printable(event.text), MAX_SAID)


def is_bad(event: LogEvent) -> bool:
    """Whether it tells of something that went wrong."""
    return event.lost or event.severity in BAD or event.what in ("raised", "crashed", "timed-out")


def file_lines(logs: WorkerLogs) -> Iterator[tuple[str, bool]]:
    """A line for each log, then what is strange about it; and whether it is that."""
    for file in logs.files:
        who = f" of {printable(', '.join(file.workers[:4]))}" if file.workers else ""
        count = counted(file.lines, "line")
        yield f"{path_label(file.path)}: log{who}, {count}, {file.rpc_lines:,} of RPC{_times(file)}", False
        for note in file.notes:
            yield f"  {printable(note)}", True


def _times(file: LogFile) -> str:
    if file.zone_s is None:
        return ""
    hours, minutes = divmod(abs(file.zone_s) // 60, 60)
    told = f", times in UTC{'-' if file.zone_s < 0 else '+'}{hours:02}:{minutes:02}"
    if file.uncertainty_ns is not None:
        within = duration(file.uncertainty_ns)
        told += f" (within {within} of what {counted(file.matched, 'line')} {_verb(file.matched)} of)"
    return told


def _verb(count: int) -> str:
    return "speaks" if count == 1 else "speak"


def file_json(file: LogFile) -> Json:
    """A `worker_log` line."""
    return {
        "kind": "worker_log",
        "path": text(file.path),
        "workers": [text(name) for name in file.workers],
        "lines": file.lines,
        "rpc_lines": file.rpc_lines,
        "zone_s": file.zone_s,
        "matched": file.matched,
        "uncertainty_ns": file.uncertainty_ns,
        "notes": [text(note) for note in file.notes],
    }


def event_json(event: LogEvent) -> Json:
    """A `log` line."""
    return {
        "kind": "log",
        "file": event.file,
        "line": event.line,
        "time_ns": event.time_ns,
        "placed": event.placed,
        "worker": None if event.worker is None else text(event.worker),
        "peer": None if event.peer is None else text(event.peer),
        "what": event.what,
        "lost": event.lost,
        "severity": event.severity,
        "message": event.message,
        "type": event.type,
        "text": text(event.text),
    }
