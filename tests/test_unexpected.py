"""Faults put into the stages one by one: the rest of the capture is shown, and the fault is told."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rpcinspect import exit_codes
from rpcinspect.capture import reader as reader_module
from rpcinspect.capture.pcap import read_pcap
from rpcinspect.checks.check import Check
from rpcinspect.checks.findings import Findings
from rpcinspect.errors import CaptureError, DecodeError
from rpcinspect.export import safetensors
from rpcinspect.export.parquet import messages
from rpcinspect.fields.phrases import Phrases
from rpcinspect.filter.selection import Selection
from rpcinspect.pickles.jit import read_jit
from rpcinspect.problems import Location
from rpcinspect.rpc.record import RecordDecoder, RpcRecord
from rpcinspect.rpclog import join
from rpcinspect.session import builder, workers
from rpcinspect.tcp.connections import Tcp
from rpcinspect.tcp.segment import Segmenter
from rpcinspect.tensorpipe.handshakes import PipeHandler
from rpcinspect.tensorpipe.pipe import PipeState
from rpcinspect.unexpected import DEBUG, MAX_TEXT, fault, unexpected
from rpcinspect.views import message_facts
from rpcinspect.views.jsonl import message as message_line
from rpcinspect.views.page import columns
from rpcinspect.views.text import detail
from tests.cli.runner import CAPTURES, CHAIN, decode, rpcinspect
from tests.decoded import LATE, Decoded, Json, alone, parse
from tests.export.parquet import lakes

STALE = CAPTURES / "ps_race.pcap.gz"
TEXT = "a fault that was put here"
AT = 9
"""The row of the message that something is wrong with."""


class Oops(Exception):
    """What no stage expects."""


@pytest.fixture(autouse=True)
def as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEBUG)


def oops(*_: object, **__: object) -> Any:
    raise Oops(TEXT)


def read(*arguments: object) -> Decoded:
    done = decode(*arguments, "--format", "jsonl")
    assert done.code == exit_codes.OK, done.err
    return Decoded(parse(done.out.encode()))


def told(problems: list[Json]) -> Json:
    """The one problem that tells of the fault."""
    (problem,) = [problem for problem in problems if "rpcinspect itself failed" in problem["reason"]]
    assert f"Oops: {TEXT}" in problem["reason"]
    assert f"{DEBUG}=1" in problem["reason"]
    assert problem["reason"].isprintable()
    return problem


def without(message: Json) -> Json:
    others = ("index", "answers", "problems", "pipe", *LATE)
    return {key: value for key, value in message.items() if key not in others}


def failing(function: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    """The function, which fails for some arguments."""

    def instead(*arguments: Any, **named: Any) -> Any:
        return oops() if when(*arguments, **named) else function(*arguments, **named)

    return instead


# --- one message ---


Change = Callable[[pytest.MonkeyPatch], None]


def in_decoding(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordDecoder, "_decode", failing(RecordDecoder._decode, lambda _, row, tp: row == AT))


def in_the_session(patch: pytest.MonkeyPatch) -> None:
    note = builder.SessionBuilder._note_whole
    patch.setattr(builder.SessionBuilder, "_note_whole", failing(note, lambda _, record: record.row == AT))


def in_the_view(patch: pytest.MonkeyPatch) -> None:
    tail = message_line.MessageRenderer._tail
    patch.setattr(
        message_line.MessageRenderer,
        "_tail",
        failing(tail, lambda _, record: record.row == AT and not record.problems),
    )


@pytest.mark.parametrize(
    ("change", "layer"),
    [(in_decoding, "rpc"), (in_the_session, "session"), (in_the_view, "view")],
    ids=["decoding", "session", "view"],
)
@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["", "stream"])
def test_one_message(
    change: Change, layer: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(CHAIN, *options)
    change(monkeypatch)
    found = read(CHAIN, *options)
    assert len(found.messages) == len(whole.messages)
    damaged = [(a, b) for a, b in zip(whole.messages, found.messages, strict=True) if a != b]
    ((before, after),) = damaged
    problem = told(after["problems"])
    assert (problem["layer"], problem["packet"]) == (layer, before["location"]["packet"])
    assert "payload_hex" in after["body"]
    assert [before[key] for key in ("time_ns", "src", "dst", "type", "id", "answers", "location")] == [
        after[key] for key in ("time_ns", "src", "dst", "type", "id", "answers", "location")
    ]
    assert found.summary["problems"] == whole.summary["problems"] + 1
    table = decode(CHAIN)
    assert table.code == exit_codes.OK
    assert len(table.out.splitlines()) > len(whole.messages) - 8  # its table leaves out the agents' own
    monkeypatch.setenv(DEBUG, "1")
    with pytest.raises(Oops):
        decode(CHAIN, *options, "--format", "jsonl")


def test_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = decode(CHAIN, "--all").out.splitlines()
    phrase = Phrases._phrase
    monkeypatch.setattr(
        Phrases, "_phrase", failing(phrase, lambda _, record: record.row == AT and not record.problems)
    )
    found = decode(CHAIN, "--all").out.splitlines()
    differing = [b for a, b in zip(whole, found, strict=False) if a != b]
    assert TEXT in differing[0]
    assert "1 decoding problem" in differing[1]


@pytest.mark.parametrize("part", ["_head", "_envelopes", "_body", "_tensors", "_bytes"])
def test_a_part_of_a_message_in_full(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = decode(CHAIN, "--message", AT).out

    def stopped(*_: object) -> Iterator[Any]:
        yield oops()

    monkeypatch.setattr(detail, part, stopped)
    found = decode(CHAIN, "--message", AT)
    assert found.code == exit_codes.OK
    lines = found.out.splitlines()
    told([{"reason": line} for line in lines])
    assert set(lines) - set(whole.splitlines()) == {line for line in lines if TEXT in line}


def here(*arguments: Any) -> bool:
    """Whether it is about the message that something is wrong with, and nobody has told of it."""
    return any(isinstance(one, RpcRecord) and one.row == AT and not one.problems for one in arguments)


def test_a_row_of_a_table_in_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages.MessageRows, "message", failing(messages.MessageRows.message, here))
    assert rpcinspect("export", "parquet", CHAIN, "-o", tmp_path).code == exit_codes.OK
    rows = lakes.rows(tmp_path, "messages")
    assert len(rows) == 24
    told([{"reason": reason} for row in rows for reason in row["problems"]])


def test_a_row_and_the_details_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns._Columns, "_row", failing(columns._Columns._row, here))
    monkeypatch.setattr(message_facts, "_first_values", oops)
    whole, page = tmp_path / "whole.html", tmp_path / "page.html"
    for path in (whole, page):
        assert rpcinspect("export", "html", CHAIN, "-o", path).code == exit_codes.OK
    assert b"itself failed" not in page.read_bytes()  # what is told of messages is packed
    assert page.stat().st_size == pytest.approx(whole.stat().st_size, rel=0.05)


def test_a_tensor_that_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = safetensors.TensorWriter
    monkeypatch.setattr(writer, "_data", failing(writer._data, here))
    assert rpcinspect("export", "safetensors", CHAIN, "-o", tmp_path).code == exit_codes.OK
    lines = parse((tmp_path / safetensors.INDEX).read_bytes())
    left_out = [line for line in lines if line.get("left_out")]
    assert 0 < len(left_out) < len(lines)
    for line in left_out:
        told([{"reason": line["left_out"]}])


def test_a_field_that_a_filter_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Selection._state
    monkeypatch.setattr(
        Selection, "_state", failing(state, lambda _, record: record.row == AT and not record.problems)
    )
    found = read(CHAIN, "--filter", "id >= 0")
    assert len(found.messages) == 24
    told([problem for message in found.messages for problem in message["problems"]])


# --- findings ---


METHODS = [
    pytest.param(stage, method, id=f"{stage.__name__}-{method}")
    for stage in sorted(Check.__subclasses__(), key=lambda stage: stage.__name__)
    for method in ("feed", "exchange", "finish")
    if method in vars(stage)
]


@pytest.fixture(scope="module")
def stale() -> Decoded:
    """Of a capture with findings of several families."""
    return read(STALE)


@pytest.mark.parametrize(("stage", "method"), METHODS)
def test_a_family_of_findings(
    stage: type[Check], method: str, stale: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, method, oops)
    found = read(STALE)
    assert found.messages == stale.messages
    before, after = stale.of("finding"), found.of("finding")
    assert [finding for finding in after if finding not in before] == []
    lost = {finding["code"] for finding in before if finding not in after}
    assert len(lost) <= 1
    problems = found.summary["problem_list"]
    if method == "finish" or problems:
        assert told(problems)["layer"] == "finding"
        assert found.summary["problems"] == stale.summary["problems"] + 1
    else:
        assert not lost  # nothing of this capture concerns it


# --- streams, blocks, files ---


def lost_messages(whole: Decoded, found: Decoded) -> list[Json]:
    rest = [without(message) for message in found.messages]
    return [message for message in whole.messages if without(message) not in rest]


def test_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of other pipes are there, and nobody is said not to have answered."""
    whole = read(CHAIN)
    flows = {message["location"]["flow"] for message in whole.messages if message["pipe"] == 0}
    real = PipeHandler.advance
    monkeypatch.setattr(
        PipeHandler, "advance", failing(real, lambda self, done: str(self.connection.flow) in flows)
    )
    found = read(CHAIN)
    problem = told(found.summary["problem_list"])
    assert problem["layer"] == "tensorpipe"
    assert problem["location"]["flow"] in flows
    assert {message["pipe"] for message in lost_messages(whole, found)} == {0}
    assert not [finding for finding in found.of("finding") if finding["code"] == "unanswered-request"]


@pytest.mark.parametrize("method", ["finish", "finish_messages"])
def test_the_end_of_a_pipe(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(CHAIN)
    real = getattr(PipeState, method)
    monkeypatch.setattr(PipeState, method, failing(real, lambda self, *_: self.pipe.number == 0))
    found = read(CHAIN)
    assert told(found.summary["problem_list"])["layer"] == "tensorpipe"
    assert lost_messages(whole, found) == []  # they were complete before


@pytest.mark.parametrize("what", ["_segmenter", "tcp"])
def test_one_block_of_packets(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two captures, each of which is a block, the first can't be read."""
    other = CAPTURES / "dtype_zoo.pcap.gz"
    whole = read(other)
    if what == "tcp":
        monkeypatch.setattr(Tcp, "feed", failing(Tcp.feed, lambda _, block: block.capture == 0))
    else:
        monkeypatch.setattr(Segmenter, "feed", failing(Segmenter.feed, lambda _, block: block.capture == 0))
    found = read(CHAIN, other)
    problem = told(found.summary["problem_list"])
    assert (problem["layer"], problem["location"]["capture"], problem["packet"]) == ("tcp", 0, 1)
    assert len(found.messages) == len(whole.messages)


def test_one_stream_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(CHAIN)
    flow = whole.messages[0]["location"]["flow"]
    monkeypatch.setattr(
        Tcp, "_take", failing(Tcp._take, lambda self, block, stream, rows: str(stream.flow) == flow)
    )
    found = read(CHAIN)
    problem = told(found.summary["problem_list"])
    assert (problem["layer"], problem["location"]["flow"]) == ("tcp", flow)
    assert found.messages


def test_the_reading_of_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before is kept, and so are other files."""

    def stops(source: Any, index: int, report: Any) -> Iterator[Any]:
        yield from read_pcap(source, index, report)
        oops()

    readers = tuple((magic, name, stops) for magic, name, _ in reader_module.READERS)
    whole = read(CHAIN)
    monkeypatch.setattr(reader_module, "READERS", readers)
    found = read(CHAIN)
    assert [alone(line) for line in found.messages] == [alone(line) for line in whole.messages]
    problem = told(found.summary["problem_list"])
    assert (problem["layer"], problem["location"]["capture"]) == ("capture", 0)


def test_one_record_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "a.rpclog"
    log.write_bytes(rpcinspect("export", "rpclog", CHAIN).out.encode("utf-8", "surrogateescape"))
    assert rpcinspect("export", "rpclog", CHAIN, "-o", log).code == exit_codes.OK
    whole = read(log)
    one = whole.messages[AT]

    def is_it(header: Json) -> bool:
        return (header.get("time_ns"), header.get("id")) == (one["time_ns"], one["id"])

    monkeypatch.setattr(join, "read_header", failing(join.read_header, is_it))
    found = read(log)
    assert [message["time_ns"] for message in lost_messages(whole, found)] == [one["time_ns"]]
    problem = told(found.summary["problem_list"])
    assert problem["layer"] == "capture"
    assert problem["offset"] is not None


# --- what holds over the whole run ---


@pytest.mark.parametrize(
    ("where", "part", "lost"),
    [(builder, "read_rrefs", "rref"), (builder, "read_contexts", "context")],
    ids=["rrefs", "contexts"],
)
def test_a_part_of_the_session(where: object, part: str, lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(CHAIN)
    monkeypatch.setattr(where, part, oops)
    found = read(CHAIN)
    assert [alone(line) for line in found.messages] == [alone(line) for line in whole.messages]
    assert told(found.summary["problem_list"])["layer"] == "session"
    for kind in ("worker", "pipe", "context", "rref"):
        assert found.of(kind) == ([] if kind == lost else whole.of(kind))


@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["", "stream"])
def test_who_is_who(options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(CHAIN, *options)
    monkeypatch.setattr(
        workers, "_call_job", failing(workers._call_job, lambda number, job, pipes, *_: len(pipes) > 0)
    )
    found = read(CHAIN, *options)
    assert told(found.summary["problem_list"])["layer"] == "session"
    assert [message["body"] for message in found.messages] == [message["body"] for message in whole.messages]


# --- the last guard ---


def test_what_no_stage_catches_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Findings, "__init__", oops)
    done = decode(CHAIN)
    assert (done.code, done.out) == (exit_codes.FAULT, "")
    (line,) = done.err.splitlines()
    assert line.startswith("rpcinspect: rpcinspect itself failed: Oops: ")
    monkeypatch.setenv(DEBUG, "1")
    with pytest.raises(Oops):
        decode(CHAIN)


# --- the problem itself ---


def caught(error: Exception) -> Exception:
    try:
        raise error
    except Exception as again:
        return again


def test_errors_of_our_own_pass() -> None:
    for error in (CaptureError("gone"), OSError(28, "full")):
        with pytest.raises(type(error)):
            unexpected(caught(error), "view", Location())
    problem = unexpected(caught(DecodeError("pickle", "odd", 3)), "view", Location(packet=7))
    assert (problem.layer, problem.location) == ("view", Location(packet=7))
    assert "DecodeError: odd (at byte 3)" in problem.reason


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("one\ntwo"), "ValueError: one;"),
        (KeyError("x" * 10_000), "KeyError: 'xxx"),
        (ValueError(10**10_000), "ValueError, whose text can't be shown (ValueError)"),
        (RecursionError(), "RecursionError: "),
    ],
)
def test_the_text_is_a_short_line(error: Exception, text: str) -> None:
    line = fault(caught(error))
    assert text in line
    assert "\n" not in line
    assert len(line) < MAX_TEXT + 150


def test_the_place_is_in_this_package() -> None:
    with pytest.raises(DecodeError) as raised:
        read_jit(pickle.dumps(1))
    assert "(pickles/jit.py, line " in fault(raised.value)
    assert "line" not in fault(caught(ValueError()))
