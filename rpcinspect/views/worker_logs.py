"""What workers' own logs tell, in words and as JSON.

In: `WorkerLogs`. Out: rows of the table, lines for the summary, objects of kind `log` and `worker_log`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rpcinspect.fields.phrases import counted, duration, path_label, printable, shorten
from rpcinspect.fields.plain import Picked
from rpcinspect.session.model import LogEvent, LogFile, WorkerLogs

MAX_SAID = 300
"""Characters of a line that are shown."""
BAD = frozenset({"error", "fatal"})


def said(event: LogEvent) -> str:
    """Returns the text of a line, cut short."""
    return shorten(printable(event.text), MAX_SAID)


def is_bad(event: LogEvent) -> bool:
    """Returns whether the line reports that something went wrong."""
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


file_json = Picked("path workers lines rpc_lines zone_s matched uncertainty_ns notes", "worker_log")
event_json = Picked("file line time_ns placed worker peer what lost severity message type text", "log")
