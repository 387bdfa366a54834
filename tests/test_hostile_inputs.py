"""Captures that were made to cost much: time and memory stay bounded, what was refused is told with its
place, and the next message is decoded.

tests/test_limits.py has the bounds one by one; here they meet whole inputs. Each input is small or packs
well, and would take gigabytes or hours if something of it were believed.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rpcinspect.diff.compare import compare_runs
from rpcinspect.equality.rules import Rules
from rpcinspect.errors import CaptureError, FilterError
from rpcinspect.filter.grammar import parse
from rpcinspect.pipeline import Decoding
from rpcinspect.replayer.planning.plan import plan
from rpcinspect.rpc.command import PythonCall
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.run import RunModel
from rpcinspect.tensorpipe.control import frame
from rpcinspect.tensorpipe.nop import write_array, write_int, write_string, write_structure, write_text
from rpcinspect.views.jsonl.lines import JsonLines
from rpcinspect.views.text.detail import detail
from rpcinspect.views.text.table import MessageTable
from tests.builders import SYN, Captured, packet, pcap_file
from tests.cli.runner import decode
from tests.decoded import parse as parse_lines
from tests.fuzz.bounds import bounded
from tests.logs import log_of
from tests.logs import message as log_message
from tests.places import recorded
from tests.tensorpipe.conversations import NO_TENSORS, Network, PipeTalk, Said, hello, packets, segments
from tests.thorough import THOROUGH

SECONDS = 20.0
"""Of the processor, for what takes less than two on an idle machine: what is not bounded takes hours."""
MARK = Said(id=99, payload=b"mark")
CPU = write_structure(write_text("cpu"), write_int(0))


def write(path: Path, network: Network) -> Path:
    path.write_bytes(pcap_file(packets(network, segments(network, sizes=(60_000,)))))
    return path


def read(path: Path) -> tuple[list[RpcRecord], list[dict[str, Any]]]:
    """Every view that shows messages is made, too."""
    with (
        tempfile.TemporaryFile() as spool,
        tempfile.TemporaryFile() as other,
        Decoding([str(path)]) as decoding,
    ):
        lines, table = JsonLines(spool, decoding.bytes), MessageTable(other, show_all=True)
        records = []
        for record in decoding.records():
            records.append(record)
            lines.feed([record])
            table.feed([record])
        for record in records:
            for part in detail(record, decoding.session, decoding.bytes):
                assert len(str(part)) < 200_000
        return records, list(parse_lines(b"".join(lines.finish(decoding.session))))


def ids(records: list[RpcRecord]) -> set[int]:
    return {record.rpc.message.id for record in records}


def problems(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the capture and of its messages."""
    found = list(lines[-1]["problem_list"])
    return found + [p for line in lines if line["kind"] == "message" for p in line["problems"]]


# --- lengths ---


def descriptor(payloads: tuple[int, ...], tensors: tuple[int, ...] = (), tag: bytes = b"") -> bytes:
    lengths = [write_structure(write_int(n), write_string(b"")) for n in payloads]
    announced = [write_structure(write_int(n), CPU, CPU, write_string(b"")) for n in tensors]
    return frame(write_structure(write_string(tag), write_array(lengths), write_array(announced)))


def frames_of(number: int) -> bytes:
    kind, identifier = (0x102).to_bytes(4, "little"), number.to_bytes(8, "little")
    return frame(kind) + frame(identifier) + frame(b"") + frame(NO_TENSORS)


LONG = (1 << 25, 1 << 27, 1 << 31, 10**10, 1 << 60, (1 << 64) - 1)


@pytest.mark.parametrize("what", ["frame", "payload", "tensor"])
def test_lengths_that_nobody_can_send(what: str, tmp_path: Path) -> None:
    network = Network()
    talk = PipeTalk(network)
    for number, length in enumerate(LONG):
        if what == "frame":
            data = length.to_bytes(8, "little")
        elif what == "payload":
            data = descriptor((4, 8, length, 0))
        else:
            data = descriptor((4, 8, 0, len(NO_TENSORS)), (length,)) + frames_of(50 + number)
        network.write(talk.descriptor, data)
        talk.send(Said(id=number, tensors=(b"abc",)))
    talk.send(MARK)
    with bounded(SECONDS, 60):
        records, lines = read(write(tmp_path / "x.pcap", network))
    assert ids(records) >= {*range(len(LONG)), 99}
    if what == "tensor":
        tensors = [t for line in lines if line["kind"] == "message" for t in line["tensors"]]
        assert {tensor["placement"] for tensor in tensors} <= {"uncertain", "missing"}
    else:
        told = [p for p in problems(lines) if p["layer"] == "tensorpipe"]
        assert len(told) >= len(LONG)
        assert all(p["packet"] is not None and p["offset"] is not None for p in told)


def test_a_million_empty_frames(tmp_path: Path) -> None:
    network = Network()
    talk = PipeTalk(network)
    talk.send(Said(id=1, tensors=(b"x",)))
    network.write(talk.descriptor, bytes(8_000_000))
    network.write(talk.extra[0], bytes(8_000_000))
    talk.send(MARK)
    with bounded(SECONDS, 100):
        records, lines = read(write(tmp_path / "x.pcap", network))
    assert ids(records) == {1, 99}
    assert len(problems(lines)) < 10


@pytest.mark.slow
def test_descriptors_of_very_many_payloads_are_not_kept(tmp_path: Path) -> None:
    """2 MB each, all different: what was remembered of them once took 14 times as much, for ever."""
    network = Network()
    talk = PipeTalk(network)
    body = descriptor((0,) * 100_000, tag=b"00")
    for number in range(4):
        network.write(talk.descriptor, body.replace(b"00", b"%02d" % number, 1) + bytes(800_000))
    talk.send(MARK)
    path = write(tmp_path / "x.pcap", network)
    del network, talk
    with bounded(SECONDS * 2, 90):
        records, _ = read(path)
    assert 99 in ids(records)


# --- pickles ---

UDF = b"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\ncapp\nf\n"


def udf(argument: bytes) -> bytes:
    """A request for app.f with one argument, as opcodes."""
    return UDF + argument + b"\x85}\x87\x81."


MANY = 1 if THOROUGH else 5
"""What costs a processor seconds is smaller by this: what is not bounded takes hours all the same."""
LAUGHS = b"](K\x01e" + b"".join(b"q%c](%se" % (n, b"h%c" % n * 10) for n in range(60))
PICKLES = {
    "ten references to ten references, 60 times": LAUGHS,
    "lists in lists": b"](" * (300_000 // MANY) + b"e" * (300_000 // MANY),
    "tuples in tuples": b"K\x01" + b"\x85" * (300_000 // MANY),
    "a list in itself": b"]q\0(h\0h\0h\0e",
    "a dict in itself": b"}q\0(h\0h\0u",
    "a call on itself": b"capp\ng\n)Rq\0h\0b",
    "a million dicts": b"(" + b"}" * (1_000_000 // MANY) + b"t",
    "a million marks": b"(" * 1_000_000,
    "an integer of two million bytes": b"\x8b" + (2_000_000).to_bytes(4, "little") + b"\x7f" * 2_000_000,
    "an integer of a million digits": b"L" + b"9" * 1_000_000 + b"L\n",
    "a text of 2^32 - 1": b"X\xff\xff\xff\xffabc",
    "a text of 2^63": b"\x8d" + (1 << 63).to_bytes(8, "little"),
    "a text of two million": b"X" + (2_000_000).to_bytes(4, "little") + b"a" * 2_000_000,
    "fifty thousand calls": b"(" + b"cos\nsystem\n(tR" * (50_000 // MANY) + b"t",
    "fifty thousand names": b"(" + b"".join(b"cm%d\nn%d\n" % (n, n) for n in range(50_000 // MANY)) + b"t",
    "a memo of a billion": b"K\x01r\xff\xff\xff\x3f",
}


@pytest.fixture(scope="module")
def pickles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    network = Network()
    talk = PipeTalk(network)
    for number, argument in enumerate(PICKLES.values()):
        talk.send(Said(id=number, payload=to_payload(PythonCall(udf(argument), False))))
    talk.send(MARK)
    return write(tmp_path_factory.mktemp("pickles") / "x.pcap", network)


@pytest.mark.slow
def test_pickles_are_read_within_bounds(pickles: Path) -> None:
    with bounded(SECONDS * 2, 600):  # each twice: as facts, and shown
        records, lines = read(pickles)
    assert ids(records) == {*range(len(PICKLES)), 99}
    for line in lines:
        if line["kind"] == "message":
            assert len(json.dumps(line["body"])) < 100_000


@pytest.mark.slow
def test_what_is_made_of_such_pickles_ends(pickles: Path) -> None:
    """Comparing and planning."""
    with bounded(SECONDS * 3, 1200), RunModel.open([str(pickles)]) as opened:
        comparison = compare_runs(opened, opened, Rules())
        made = plan(opened)
    assert {found.difference.code for found in comparison.found} <= {"unknown", "value", "argument"}
    assert len(made.sessions) <= 2


def test_large_messages_are_not_kept_for_their_short_text(tmp_path: Path) -> None:
    """60 MB of payloads, all different, of which the views show a line each. A process that begins with this
    test takes 59 MB more while it reads them."""
    network = Network()
    talk = PipeTalk(network)
    for number in range(60):
        text = b"%07d" % number * 143_000
        talk.send(
            Said(
                id=number, payload=to_payload(PythonCall(udf(b"X\x28\x46\x0f\x00" + text[:1_001_000]), False))
            )
        )
    path = write(tmp_path / "x.pcap", network)
    del network, talk

    def each() -> Iterator[int]:
        with (
            tempfile.TemporaryFile() as spool,
            tempfile.TemporaryFile() as other,
            Decoding([str(path)]) as it,
        ):
            lines, table = JsonLines(spool, it.bytes), MessageTable(other, show_all=True)
            for record in it.records():
                lines.feed([record])
                table.feed([record])
                yield record.rpc.message.id

    with bounded(SECONDS, 70):
        assert sum(1 for _ in each()) == 60


# --- connections ---


def test_connections_cost_what_they_must(tmp_path: Path) -> None:
    """A scan of ports: two and a half KB each, and none of it is a message."""
    count = 10_000
    syns = [
        Captured(packet(b"", f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:5000", "10.9.9.9:80", flags=SYN))
        for n in range(count)
    ]
    network = Network()
    talk = PipeTalk(network)
    talk.send(MARK)
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_file([*syns, *packets(network, segments(network))]))
    del syns
    with bounded(SECONDS, count * 4096 >> 20):
        records, _ = read(path)
    assert ids(records) == {99}


def test_very_many_pipes(tmp_path: Path) -> None:
    network = Network()
    for number in range(2_000):
        network.write(network.connect(f"10.1.{number >> 8}.{number & 255}", "10.0.0.2:5000"), hello("w"))
    talk = PipeTalk(network)
    talk.send(MARK)
    with bounded(SECONDS, 60):
        records, _ = read(write(tmp_path / "x.pcap", network))
    assert ids(records) == {99}


# --- files ---


@pytest.mark.parametrize(
    "packed", [gzip.compress, lambda data: zstandard.compress(data)], ids=["gzip", "zstd"]
)
def test_bombs(packed: Any, tmp_path: Path) -> None:
    """400 MB of zeros in 400 KB: refused where it is no capture, read to its damage where it begins so."""
    chunk = packed(bytes(1 << 24))
    path = tmp_path / "x.gz"
    path.write_bytes(chunk * 24)
    with bounded(SECONDS, 60), pytest.raises(CaptureError):
        read(path)
    network = Network()
    PipeTalk(network).send(MARK)
    good = pcap_file(packets(network, segments(network)))
    path.write_bytes(packed(good + b"\xff" * 16) + chunk * 24)
    with bounded(SECONDS, 60):
        records, lines = read(path)
    assert ids(records) == {99}
    assert "can't be" in str(problems(lines))


LOGS = {
    "deep": b'{"rpc":"message","x":' + b"[" * 400_000 + b"\n",
    "a long number": b'{"rpc":"message","time_ns":' + b"9" * 900_000 + b"}\n",
    "many storages": b'{"rpc":"message","storages":[' + b"1," * 400_000 + b"1]}\n",
    "bytes of an exabyte": (
        b'{"rpc":"message","time_ns":1,"src":"a","dst":"b","type":"PYTHON_RET","id":1,"bytes":%d}\n'
        % (1 << 60)
    ),
    "a payload of an exabyte": b'{"rpc":"message","bytes":%d,"payload":%d}\n' % (1 << 61, 1 << 60),
    "a line without an end": b'{"rpc":"message","x":"' + b"x" * 3_000_000 + b"\n",
}


@pytest.mark.parametrize("name", LOGS)
def test_log_records_that_announce_too_much(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.rpclog"
    path.write_bytes(log_of(LOGS[name], log_message(payload=b"mark", id=99)))
    with bounded(SECONDS, 150):
        records, lines = read(path)
    assert ids(records) == {99}
    assert len(problems(lines)) >= 1


# --- filters ---

FILTERS = {
    "a hundred thousand terms": " or ".join(["id == 1"] * 100_000),
    "as many as fit": " or ".join(["id == 1"] * 900),
    "nested": "not (" * 2_000 + "error" + ")" * 2_000,
    "nots": "not " * 2_000 + "error",
    "a large number": f"id == {'9' * 5_000}",
    "a large power": "bytes > 1e999999999",
    "a large shape": f"shape == [{','.join('9' * 50 for _ in range(100))}]",
    "a large repetition": 'function ~ "(((a{1000}){1000}){1000})"',
    "a pattern that others hang on": 'function ~ "(a+)+$"',
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_are_read_or_refused_soon(name: str) -> None:
    with bounded(SECONDS, 60), suppress(FilterError):
        parse(FILTERS[name])


def test_the_report_of_a_bomb_is_short(tmp_path: Path) -> None:
    """Texts of problems quote no more of a file than a line."""
    path = tmp_path / "x.rpclog"
    path.write_bytes(log_of(*LOGS.values()))
    _, lines = read(path)
    output = io.StringIO()
    for problem in problems(lines):
        print(problem["reason"], file=output)
    assert max(map(len, output.getvalue().splitlines())) < 400


# --- recordings that were made to break us ---


@pytest.mark.parametrize(
    ("name", "messages", "wrong"),
    [
        ("negative_index.pcap", 1, {0: "a reference to tensor -7"}),
        ("negative_index.rpclog", 1, {0: "a reference to tensor -9223372036854775808"}),
        (
            "index_minus_one.rpclog",
            8,
            {
                2: "0x43 is not one of the C++ Pickler's",
                4: "tensor -1, the message has 1",
                5: "tensor -1, the message has 1",
                6: "0x43 is not one of the C++ Pickler's",
                7: "a reference to tensor -1",
            },
        ),
    ],
)
def test_tensors_by_indexes_that_none_can_have(name: str, messages: int, wrong: dict[int, str]) -> None:
    path = recorded(f"reports/hostile/{name}")
    done = decode(path, "--format", "jsonl")
    assert (done.code, done.err) == (0, "")
    found = [line for line in done.objects if line["kind"] == "message"]
    assert len(found) == messages
    for line in found:
        told = [problem["reason"] for problem in line["problems"]]
        assert len(told) == (line["index"] in wrong)
        assert all(wrong[line["index"]] in reason for reason in told)
        if told:
            assert "tensor#" not in json.dumps(line["body"])
    table = decode(path)
    assert table.code == 0
    for text in wrong.values():
        assert text in table.out


def test_a_list_as_placement() -> None:
    done = decode(recorded("reports/hostile/placement_list.rpclog"), "--format", "jsonl")
    assert done.code == 0
    (problem,) = done.objects[-1]["problem_list"]
    assert problem["layer"] == "capture"
    assert problem["reason"].endswith("Expected `str`, got `array` - at `$.storages[0].placement`")
    assert problem["location"]["offset"] is not None


def test_a_chain_of_calls_that_nobody_answers() -> None:
    """Each of 1,250 workers waits for the next; each finding is a sentence, not the chain."""
    with bounded(SECONDS, 60):
        done = decode(recorded("reports/hostile/chain_1250.rpclog"), "--format", "jsonl")
    assert done.code == 0
    found = [line for line in done.objects if line["kind"] == "finding"]
    assert {finding["code"] for finding in found} == {"unanswered-request"}
    assert len([line for line in done.objects if line["kind"] == "message"]) == 1250
    assert len(found) == 1250
    assert max(len(finding["text"]) for finding in found) < 400
    assert max(len(finding["workers"]) for finding in found) < 20
