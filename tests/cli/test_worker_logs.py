"""`--worker-log` at the command line."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from rpcinspect.cli.guard import UsageMistake
from rpcinspect.cli.worker_logs import read_worker_logs, read_zone
from tests.cli.runner import CAPTURES, CHAIN, rpcinspect

KILLED = CAPTURES / "logs/killed.pcap.gz"
LOGS = [CAPTURES / f"logs/killed.worker{n}.log" for n in range(3)]


def given(*paths: object) -> list[str]:
    return [part for path in paths for part in ("--worker-log", str(path))]


def test_the_table_has_lines_of_logs_between_messages() -> None:
    ran = rpcinspect("decode", KILLED, *given(*LOGS))
    assert ran.code == 0
    lines = ran.out.splitlines()
    died = next(n for n, line in enumerate(lines) if "killed.die()" in line)
    lost = next(n for n, line in enumerate(lines) if "reading incoming response from worker1" in line)
    told = next(n for n, line in enumerate(lines) if "EOF" in line and "PYTHON_RET" in line)
    assert died < lost < told
    assert "log of worker2, " in ran.out
    assert "times in UTC-05:00" in ran.out


def test_json() -> None:
    ran = rpcinspect("decode", KILLED, *given(*LOGS), "--format", "jsonl")
    kinds = [line["kind"] for line in ran.objects]
    assert kinds.count("worker_log") == 3
    assert kinds[-1] == "summary"
    assert [line["worker"] for line in ran.objects if line["kind"] == "log" and line["what"] == "raised"] == [
        "worker2",
        "worker2",
    ]
    whole = rpcinspect("decode", KILLED, *given(*LOGS), "--format", "json")
    assert '"worker_logs": [' in whole.out
    plain = rpcinspect("decode", KILLED, "--format", "json")
    assert "worker_logs" not in plain.out


def test_closings() -> None:
    ran = rpcinspect("disconnects", KILLED, *given(LOGS[0]))
    assert "log of" in ran.out
    assert ran.out.splitlines()[-1].startswith("worker1 left first, with 2 requests to it unanswered")
    ran = rpcinspect("disconnects", KILLED, *given(LOGS[0]), "--format", "jsonl")
    assert ran.objects[-1]["first_by_logs"] == ran.objects[-1]["first"] == "worker1"


def test_logs_alone_tell_where_the_network_shows_nothing(tmp_path: Path) -> None:
    """Messages through shared memory: no end of a connection, no request in flight."""
    capture = CAPTURES / "transport_matrix_default.pcap"
    log = tmp_path / "w0.log"
    log.write_text(
        "[W tensorpipe_agent.cpp:939] RPC agent for worker0 encountered error when reading incoming response "
        "from worker1: eof (this error originated at tensorpipe/transport/shm/connection_impl.cc:259)\n"
    )
    ran = rpcinspect("disconnects", capture, *given(log))
    assert "by their logs worker1 was gone first: worker0 says so" in ran.out


def test_names_and_compressed_logs(tmp_path: Path) -> None:
    packed = tmp_path / "w.log.gz"
    packed.write_bytes(gzip.compress(b"RuntimeError: RPCErr:1:late\n"))
    [log] = read_worker_logs([f"worker1={packed}"])
    assert [line.statement.worker for line in log.lines] == ["worker1"]
    odd = tmp_path / "a=b"
    odd.write_bytes(b"\xff\xfe RPCErr:1:late")
    assert read_worker_logs([str(odd)])[0].path == str(odd)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("UTC", 0), ("+05:30", 19800), ("-0800", -28800), ("Z", 0)],
)
def test_zones(text: str, seconds: int) -> None:
    assert read_zone(text) == seconds


@pytest.mark.parametrize("text", ["5", "+15:00", ""])
def test_what_is_no_zone(text: str) -> None:
    with pytest.raises(UsageMistake, match="write a time zone as UTC"):
        read_zone(text)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--log-zone", "UTC"], "is for --worker-log"),
        ([*given(LOGS[0]), "--log-zone", "CET"], "write a time zone as"),
        ([*given(LOGS[0]), "--calls"], "--worker-log is for"),
        ([*given(LOGS[0]), "--message", "1"], "--worker-log is for"),
        ([*given(LOGS[0]), "--stream"], "read to its end"),
    ],
)
def test_mistakes(options: list[str], word: str) -> None:
    ran = rpcinspect("decode", CHAIN, *options)
    assert ran.code == 2
    assert word in ran.err


def test_a_log_that_is_not_there() -> None:
    ran = rpcinspect("decode", CHAIN, *given("no/such.log"))
    assert ran.code == 3
    assert "no/such.log: can't be read" in ran.err


@pytest.mark.parametrize("named", ["own.log", "worker0=own.log"])
def test_a_log_is_not_written_over(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(LOGS[0], "own.log")
    ran = rpcinspect("decode", KILLED, "--worker-log", named, "-o", "own.log")
    assert (ran.code, ran.err) == (2, "rpcinspect: own.log: is an input, --output would overwrite it\n")
    assert Path("own.log").read_bytes() == LOGS[0].read_bytes()
