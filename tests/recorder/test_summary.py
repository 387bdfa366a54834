"""What is told at the end of a recording."""

from __future__ import annotations

from pathlib import Path

import msgspec.structs

from rpcinspect.recorder.processes import ProcessNote
from rpcinspect.recorder.record import Outcome, RecordingResult, summary
from rpcinspect.session.process_end import ProcessEnd


def note(
    name: str | None = "worker0",
    *,
    pid: int = 7,
    recorded: bool = True,
    ended: bool = True,
    messages: int = 0,
) -> ProcessNote:
    why = None if recorded else "no compiler"
    return ProcessNote(
        pid=pid,
        name=name,
        id=None if name is None else 0,
        torch="2.13.0",
        recorded=recorded,
        why=why,
        ended="clean" if ended else None,
        messages=messages,
    )


def told(*notes: ProcessNote, left: tuple[int, ...] = (), **recorded: object) -> list[str]:
    what = {"file": Path("x y.pcap"), "bytes": 1234, "packets": 5, **recorded}
    return list(summary(Outcome(0, RecordingResult(**what), notes, frozenset(left))))  # type: ignore[arg-type]


def test_a_recording_without_loss() -> None:
    assert told(note()) == [
        "recorded 5 packets, 1,234 bytes in x y.pcap",
        "  worker0 (id 0, process 7, torch 2.13.0)",
        "next: rpcinspect decode 'x y.pcap'",
    ]


def test_nothing_recorded_leads_nowhere() -> None:
    lines = told(packets=0)
    assert not any(line.startswith("next") for line in lines)
    assert told(packets=3)[-1].startswith("next: ")  # of other workers, perhaps


def test_what_must_not_be_overlooked() -> None:
    assert "WARNING: 3 packets lost: " in told(note(), dropped=3)[1]
    assert "No space left" in told(note(), ended_early="No space left on device")[1]
    assert told()[1].startswith("WARNING: no process called init_rpc")
    assert "process 7, torch 2.13.0 was not recorded: no compiler" in told(note(None, recorded=False))[1]
    assert "still runs" in told(note(ended=False), left=(7,))[1]
    assert told(note(ended=False))[1].endswith("ended without notice (killed?)")


def test_how_a_process_ended_is_told_unless_it_ended_well() -> None:
    def line(ended: ProcessEnd) -> str:
        left = msgspec.structs.replace(note(ended=False), started=3)
        recorded = RecordingResult(file=Path("x.pcap"), bytes=1, packets=5)
        return list(summary(Outcome(0, recorded, [left], frozenset(), {(7, 3): ended})))[1]

    who = "  worker0 (id 0, process 7, torch 2.13.0)"
    assert line(ProcessEnd(how="exit", status=0)) == who
    assert line(ProcessEnd(how="exit", status=3)) == f"{who}, exit status 3"
    assert line(ProcessEnd(how="unknown")) == f"{who}, ended without notice (killed?)"
    kernel = "the kernel killed 1 process of the job's memory group for lack of memory"
    assert (
        line(ProcessEnd(how="signal", signal="SIGKILL", oom_kills=1)) == f"{who}, killed by SIGKILL; {kernel}"
    )


def test_what_a_process_counted_is_told() -> None:
    line = told(note(messages=1234))[1]
    assert line == "  worker0 (id 0, process 7, torch 2.13.0), 1,234 messages"


def test_many_processes_are_counted() -> None:
    lines = told(*(note(pid=pid) for pid in range(40)))
    assert len(lines) == 19
    assert lines[-2] == "  and 24 more"
