"""What findings make of the ends of processes: logs as a recorder writes them, with ends of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.run.run import open_run
from rpcinspect.session.model import Finding
from tests.logs import log_of, message
from tests.places import recorded

SECOND = 1_000_000_000
SENT = 10 * SECOND
CALL, RET = "RREF_BACKWARD_REQ", "RREF_BACKWARD_RESP"
MEMORY = "the kernel killed 1 process of the job's memory group for lack of memory"
PYSPY = "See what worker1 is doing (py-spy dump)"


def line(kind: str, **keys: Any) -> bytes:
    return json.dumps({"rpc": kind, **keys}).encode() + b"\n"


def process(name: str, **keys: Any) -> bytes:
    return line("process", name=name, **keys)


def finding(folder: Path, *records: bytes, until: int = 5 * SECOND) -> Finding:
    """Of calls of which all but the last, at `SENT`, are answered; the log goes on for so long after it."""
    usual = [
        record
        for n in range(20)
        for record in (
            message(kind=CALL, id=n, time_ns=n * 1000),
            message("worker1", "worker0", RET, id=n, time_ns=n * 1000 + 500),
        )
    ]
    span = line("span", time_ns=0, end_ns=SENT + until)
    path = folder / "x.rpclog"
    path.write_bytes(log_of(*usual, message(kind=CALL, id=99, time_ns=SENT), *records, span))
    with open_run(str(path)) as run:
        assert run.session.problems == ()
        (found,) = [one for one in run.findings if one.code == "unanswered-request"]
    return found


def broke(seconds: float, reason: str = "connection") -> bytes:
    time_ns = SENT + int(seconds * SECOND)
    return line("failed", time_ns=time_ns, src="worker0", dst="worker1", id=99, reason=reason, text="eof")


def at(seconds: float) -> int:
    return SENT + int(seconds * SECOND)


@pytest.mark.parametrize(
    ("ended", "clause", "remedy"),
    [
        (
            {"how": "signal", "signal": "SIGKILL"},
            "worker1 was killed by SIGKILL 2 s after it",
            "Find out who sent SIGKILL: the kernel for lack of memory (see dmesg), a launcher",
        ),
        (
            {"how": "signal", "signal": "SIGKILL", "oom_kills": 1, "pid": 77},
            f"worker1 was killed by SIGKILL 2 s after it; {MEMORY}",
            "Look at dmesg: it names the processes that the kernel killed, of which worker1 may be",
        ),
        (
            {"how": "signal", "signal": "SIGTERM"},
            "worker1 was killed by SIGTERM 2 s after it",
            "Find out who sent SIGTERM: a launcher such as torchrun",
        ),
        (
            {"how": "signal", "signal": "SIGSEGV"},
            "worker1 was killed by SIGSEGV 2 s after it",
            "SIGSEGV usually means a crash in native code: read the last output of worker1 wrote",
        ),
        (
            {"how": "exit", "status": 1, "error": "app.Wrong"},
            "worker1 ended by itself with exit status 1 (app.Wrong) 2 s after it",
            "Read what worker1 itself wrote",
        ),
        (
            {"how": "exit", "status": 0},
            "worker1 ended by itself with exit status 0 2 s after it",
            "Let worker1 wait for its callers: rpc.shutdown(graceful=True).",
        ),
    ],
    ids=lambda value: str(value.get("signal") or value.get("status")) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("how", ["silent", "broke"])
def test_how_it_ended_and_where_to_look(
    tmp_path: Path, ended: dict[str, Any], clause: str, remedy: str, how: str
) -> None:
    records = [broke(1.999)] if how == "broke" else []
    found = finding(tmp_path, *records, process("worker1", time_ns=at(2), **ended))
    assert found.severity == "error"
    assert found.text.endswith(f"; {clause}.")
    assert (found.remedy or "").startswith(remedy)


@pytest.mark.parametrize("ended", [{"how": "unknown"}, {"how": "running"}, None], ids=str)
def test_nothing_is_said_of_what_nobody_knows(tmp_path: Path, ended: dict[str, Any] | None) -> None:
    records = [] if ended is None else [process("worker1", **ended)]
    found = finding(tmp_path, *records)
    assert found.text.endswith(": 5 s later, when the capture ends, none has come.")
    assert (found.remedy or "").startswith(PYSPY)


@pytest.mark.parametrize(
    ("reason", "told", "ended", "is_said"),
    [
        ("connection", 1, 1.5, True),  # it closes its connections, and is gone a little later
        ("connection", 1, 3, False),
        ("timeout", 1, 0.5, True),
        ("timeout", 1, 1.5, False),  # nobody waited any more
        ("error", 1, 1.5, False),
    ],
)
def test_an_end_that_came_too_late_to_matter(
    tmp_path: Path, reason: str, told: float, ended: float, is_said: bool
) -> None:
    end = process("worker1", how="signal", signal="SIGTERM", time_ns=at(ended))
    found = finding(tmp_path, broke(told, reason), end)
    assert ("SIGTERM" in found.text) == is_said == ("SIGTERM" in (found.remedy or ""))


def test_an_end_without_a_time_is_of_use_only_where_nobody_gave_up(tmp_path: Path) -> None:
    end = process("worker1", how="exit")
    assert finding(tmp_path, end).text.endswith("none has come; worker1 ended by itself.")
    assert "by itself" not in finding(tmp_path, broke(1), end).text


def test_one_that_was_gone_before(tmp_path: Path) -> None:
    end = process("worker1", how="exit", status=0, time_ns=at(-1))
    assert finding(tmp_path, end).text.endswith("with exit status 0 1 s before it.")


def test_who_ended_first_is_who_to_look_at(tmp_path: Path) -> None:
    """What ends a job because one of its workers failed sends SIGTERM to the others."""
    ends = [
        process("worker0", how="exit", status=0, time_ns=at(3)),
        process("worker1", how="signal", signal="SIGTERM", time_ns=at(2)),
    ]
    third = line("worker", name="worker2", id=2)
    first = process("worker2", how="exit", status=1, error="ValueError", time_ns=at(1.5))
    assert (finding(tmp_path, *ends).remedy or "").startswith("Find out who sent SIGTERM")
    found = finding(tmp_path, third, *ends, first)
    assert found.remedy == "See first why worker2 ended before it (exit status 1 (ValueError))."
    later = process("worker2", how="exit", status=1, time_ns=at(2.5))
    assert (finding(tmp_path, third, *ends, later).remedy or "").startswith("Find out who sent SIGTERM")


@pytest.mark.parametrize(
    ("status", "severity", "remedy"),
    [
        (3, "error", "Read what worker0 itself wrote: it ended by itself."),
        (
            0,
            "info",
            "Let worker0 wait for its answers and leave with the others: rpc.shutdown(graceful=True).",
        ),
    ],
)
def test_a_caller_that_ended_without_its_answer(
    tmp_path: Path, status: int, severity: str, remedy: str
) -> None:
    """As of a worker that called `sys.exit(3)` after rpc_async, under torch.multiprocessing.spawn: the callee
    printed that it was done, 10 ms later; spawn sent it SIGTERM once the caller was gone.
    """
    left = process("worker0", how="exit", status=status, time_ns=at(2))
    for ends in ([left], [left, process("worker1", how="signal", signal="SIGTERM", time_ns=at(2.1))]):
        found = finding(tmp_path, *ends)
        assert found.severity == severity
        assert found.text == (
            "worker0 recorded no answer of worker1 to 1 request (RREF_BACKWARD_REQ #40): answers that come "
            f"while it ends are not recorded; worker0 ended by itself with exit status {status} 2 s after it."
        )
        assert found.remedy == remedy


@pytest.mark.parametrize(
    "ends",
    [
        [process("worker0", how="signal", signal="SIGTERM", time_ns=at(2))],
        [process("worker0", how="exit", status=1, time_ns=at(60))],
        [
            process("worker0", how="exit", status=1, time_ns=at(2)),
            process("worker1", how="exit", status=1, time_ns=at(1)),
        ],
    ],
    ids=["killed with all others", "long after", "callee first"],
)
def test_a_caller_whose_end_explains_nothing(tmp_path: Path, ends: list[bytes]) -> None:
    assert finding(tmp_path, *ends).text.startswith("worker1 never answered 1 request of worker0")


def test_a_signal_that_all_got_is_no_ones_cause(tmp_path: Path) -> None:
    """As of a job whose torchrun was sent SIGTERM, which it passed on: worker2 was the first to be gone."""
    ends = [
        process(worker, how="signal", signal="SIGTERM", time_ns=at(1 + n / 20))
        for n, worker in enumerate(("worker2", "worker0", "worker1"))
    ]
    found = finding(tmp_path, line("worker", name="worker2", id=2), *ends)
    assert (found.remedy or "").startswith(
        "Find out who sent SIGTERM, which ended worker2 before it: a launcher"
    )


def test_records_that_contradict_each_other_say_nothing(tmp_path: Path) -> None:
    ends = [process("worker1", how="exit", status=status, time_ns=at(1)) for status in (0, 1)]
    assert (finding(tmp_path, *ends).remedy or "").startswith(PYSPY)
    other_job = process("worker1", how="exit", status=0, time_ns=at(1), job=7)
    assert (finding(tmp_path, other_job).remedy or "").startswith(PYSPY)


def on_two_hosts() -> list[bytes]:
    """Where the workers listen: on two hosts, whose clocks nobody has compared."""
    return [line("worker", name=f"worker{n}", id=n, addresses=[f"10.0.0.{n + 1}:9"]) for n in range(2)]


def test_ends_on_another_host_have_no_comparable_time(tmp_path: Path) -> None:
    end = process("worker1", how="signal", signal="SIGKILL", time_ns=at(2))
    found = finding(tmp_path, *on_two_hosts(), end)
    assert found.text.endswith("none has come; worker1 was killed by SIGKILL.")
    assert "SIGKILL" not in finding(tmp_path, *on_two_hosts(), end, broke(3, "timeout")).text
    assert finding(tmp_path, *on_two_hosts(), end, broke(3)).text.endswith("; worker1 was killed by SIGKILL.")
    other = process("worker0", how="signal", signal="SIGTERM", time_ns=at(1))
    remedy = finding(tmp_path, *on_two_hosts(), end, other).remedy or ""
    assert remedy.startswith("Find out who sent SIGKILL: ")


def test_one_that_ends_soon_needs_no_longer_capture(tmp_path: Path) -> None:
    end = process("worker1", how="signal", signal="SIGKILL", time_ns=at(0.01))
    found = finding(tmp_path, end, until=SECOND // 50)
    assert found.severity == "info"
    assert "too early to expect an answer; worker1 was killed by SIGKILL 10 ms after it" in found.text
    assert (found.remedy or "").startswith("Find out who sent SIGKILL")


def test_a_call_that_the_log_does_not_hold(tmp_path: Path) -> None:
    failed = line(
        "failed", time_ns=at(1), src="worker0", dst="worker1", id=5, reason="connection", text="eof"
    )
    end = process("worker1", how="signal", signal="SIGKILL", time_ns=at(1.1))
    path = tmp_path / "x.rpclog"
    path.write_bytes(log_of(failed, end))
    with open_run(str(path)) as run:
        (found,) = [one for one in run.findings if one.code == "unanswered-request"]
    assert found.text.endswith("; worker1 was killed by SIGKILL 100 ms after that.")
    assert (found.remedy or "").startswith("Find out who sent SIGKILL")


def test_a_recording_that_does_not_hold_it_says_what_it_said() -> None:
    with open_run(str(recorded("reports/findings/killed.rpclog"))) as run:
        (found,) = [one for one in run.findings if one.code == "unanswered-request"]
        assert [worker.ended for worker in run.workers] == [None, None]
    assert found.text.endswith("when the capture ends, none has come.")
    assert "py-spy dump" in (found.remedy or "")
