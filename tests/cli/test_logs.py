"""Logs at the command line: made of captures, read by every command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.cli.runner import rpcinspect
from tests.logs import blocks_of

CAPTURES = Path(__file__).resolve().parent.parent.parent / "captures"
BASIC = str(CAPTURES / "basic_chain.pcap")


def run(*arguments: str) -> tuple[int, str, str]:
    ran = rpcinspect(*arguments)
    return ran.code, ran.out, ran.err


def made(folder: Path, *arguments: str) -> str:
    log = folder / "a.rpclog"
    code, _, said = run("export", "rpclog", BASIC, "-o", str(log), *arguments)
    assert code == 0
    assert "as a log" in said
    return str(log)


def test_a_log_is_read_by_every_command(tmp_path: Path) -> None:
    log = made(tmp_path)
    code, shown, _ = run("decode", log)
    assert code == 0
    assert "24 messages in" in shown
    assert "(rpclog, 29 records, " in shown
    assert "basic_chain.scale" in shown
    assert run("diff", BASIC, log)[0] == 0
    code, plan, _ = run("replay", "--plan", log)
    assert code == 0
    assert run("replay", "--plan", BASIC)[1].replace(BASIC, log) == plan


def test_views(tmp_path: Path) -> None:
    log = made(tmp_path)
    code, shown, _ = run("decode", log, "--message", "8")
    assert code == 0
    assert "record 1" in shown
    assert "packet" not in shown
    assert "bytes of descriptor" not in shown
    assert run("decode", log, "--roundtrip")[1].startswith("24 of 24 messages came out byte for byte")
    for question in ("contexts", "latency", "rrefs", "disconnects", "devices"):
        code, told, _ = run(question, log)
        assert (code, told) == (0, run(question, BASIC)[1]), question
    for form in ("html", "perfetto"):
        assert run("export", form, log, "-o", str(tmp_path / form))[0] == 0
    assert run("decode", log, "--format", "json")[0] == 0


def test_filters(tmp_path: Path) -> None:
    log = made(tmp_path, "-f", "type == BACKWARD_AUTOGRAD_REQ")
    code, lines, _ = run("decode", log, "--format", "jsonl")
    kinds = [json.loads(line).get("type") for line in lines.splitlines() if '"kind":"message"' in line]
    assert sorted(set(kinds)) == ["BACKWARD_AUTOGRAD_REQ", "BACKWARD_AUTOGRAD_RESP"]
    assert code == 0
    assert "no messages match" in run("decode", log, "-f", "pipe == 0 or packet > 0 or flow ~ '.'")[1]
    assert "4 messages match" in run("decode", log, "-f", "request")[1]


def test_a_log_saved_as_packets(tmp_path: Path) -> None:
    pcap = str(tmp_path / "b.pcap")
    assert run("decode", made(tmp_path), "-w", pcap)[0] == 0
    assert run("diff", BASIC, pcap)[0] == 0


def test_compressed_and_in_a_pipe(tmp_path: Path) -> None:
    log = Path(made(tmp_path))
    packed = tmp_path / "a.rpclog.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    code, shown, _ = run("decode", str(packed))
    assert code == 0
    assert "24 messages in" in shown


def test_mistakes(tmp_path: Path) -> None:
    log = made(tmp_path)
    code, _, said = run("decode", log, BASIC)
    assert code == 3
    assert "is a log and" in said
    code, _, said = run("export", "rpclog", log, "-o", log)
    assert code == 2
    assert "would overwrite it" in said
    newer = tmp_path / "newer"
    newer.write_bytes(b'{"rpclog":9}\n')
    code, _, said = run("decode", str(newer))
    assert code == 3
    assert said.count("\n") == 1
    assert "version 9 of the log format is newer" in said
    (tmp_path / "empty").write_bytes(b'{"rpclog":1}\n')
    code, shown, _ = run("decode", str(tmp_path / "empty"))
    assert code == 0
    assert "No RPC messages: the log holds none" in shown


def test_a_call_that_timed_out(tmp_path: Path) -> None:
    """Every view tells it of the request, and a log of the log keeps it."""
    log = Path(made(tmp_path))
    data, records = log.read_bytes(), blocks_of(log)[0]
    asked = next(r for r in records if r.header.get("type") == "FORWARD_AUTOGRAD_REQ").header
    number = next(n for n, record in enumerate(records) if _answers(record.header, asked))
    start, end = records[number].offset, records[number + 1].offset
    failed: dict[str, Any] = {"rpc": "failed", "reason": "timeout", "text": "late"}
    failed |= {key: asked[key] for key in ("src", "dst", "type", "id", "job")}
    failed["time_ns"] = asked["time_ns"] + 500_000_000
    log.write_bytes(data[:start] + json.dumps(failed).encode() + b"\n" + data[end:])
    again = tmp_path / "again.rpclog"
    assert run("export", "rpclog", str(log), "-o", str(again))[0] == 0
    for path in (str(log), str(again)):
        objects = [json.loads(line) for line in run("decode", path, "--format", "jsonl")[1].splitlines()]
        [said] = [line for line in objects if "failure" in line]
        assert (said["id"], said["request"]) == (asked["id"], True)
        assert said["failure"] == {"reason": "timeout", "time_ns": failed["time_ns"], "text": "late"}
        assert objects[-1]["problems"] == 0
        [finding] = [line for line in objects if line.get("code") == "unanswered-request"]
        assert finding["messages"] == [said["index"]]
        assert "timed out 500 ms after it (late)" in finding["text"]
        told = run("decode", path, "--message", str(said["index"]))[1]
        assert "given up: its caller timed out 500 ms after it began: late" in told
        assert "given up" in run("latency", path)[1].splitlines()[0]
        spans = [json.loads(line) for line in run("latency", path, "--format", "jsonl")[1].splitlines()]
        [one] = [span for span in spans if span.get("gave_up")]
        assert (one["request"], one["gave_up"], one["gave_up_ns"]) == (said["index"], "timeout", 500_000_000)


def _answers(said: dict[str, Any], asked: dict[str, Any]) -> bool:
    return (said.get("id"), said.get("src"), said.get("request")) == (asked["id"], asked["dst"], False)
