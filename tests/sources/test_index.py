"""Every command says the same of a capture with and without its index: what was read without one is the truth
here, since an index holds nothing else than that."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rpcinspect.capture import Live, Reading
from rpcinspect.errors import OutputError
from rpcinspect.limits import Limits
from rpcinspect.pipeline import Decoding, Options, make_index
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.sources.index import IndexSource
from rpcinspect.sources.message_store import MessageStore
from rpcinspect.sources.source import index_beside
from tests.builders import pcap_file
from tests.cli.runner import CHAIN, Ran, rpcinspect
from tests.growing import fragments, headless_pipes, holes, views_of_a_storage
from tests.logs import convert, log_of, message
from tests.places import content
from tests.tensorpipe.conversations import Network, PipeTalk, Said, packets, segments

COMMANDS = (
    ("decode", "--format", "jsonl"),
    ("decode", "--message", "3"),
    ("findings",),
    ("disconnects",),
    ("latency",),
)
RECORDED = (
    "basic_chain.pcap",
    "bwd_boom.pcap",
    "dtype_zoo.pcap",
    "reinit.pcap",
    "transport_matrix_default.pcap",
    "transport_matrix_uv_mpt.pcap",
    "reports/ends/ends.rpclog",
    "torch/dyn.pcap",
    "torch/kitchen.pcap",
    "torch/snap300.pcap",
    "versions/torch-1.8.1.pcap",
)


def saying(*paths: Path) -> list[Ran]:
    return [rpcinspect(command, *paths, *options) for command, *options in COMMANDS]


def uses_index(*paths: Path, options: Options | None = None) -> bool:
    with Decoding([str(path) for path in paths], options) as decoding:
        return isinstance(decoding._source, IndexSource)


def same_with_index(*paths: Path) -> None:
    without = saying(*paths)
    make_index([str(path) for path in paths])
    assert uses_index(*paths)
    assert saying(*paths) == without


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str, tmp_path: Path) -> None:
    path = tmp_path / Path(name).name
    path.write_bytes(content(name))
    same_with_index(path)


@pytest.mark.parametrize("make", [holes, headless_pipes, views_of_a_storage, fragments])
def test_damaged_and_late(make: Callable[[int], bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(make(12))
    same_with_index(path)


def test_two_captures_with_other_clocks(tmp_path: Path) -> None:
    """Each has some packets that the other lacks; the second is an hour late."""
    network = Network()
    talk = PipeTalk(network)
    for number in range(20):
        talk.send(Said(id=number, payload=b"p" * 100, tensors=(b"abcd" * 50,)))
    rows = segments(network, sizes=(60,))
    every = packets(network, rows)
    late = [one.__class__(one.data, time_ns=one.time_ns + 3600 * 10**9) for one in every]
    paths = tmp_path / "a.pcap", tmp_path / "b.pcap"
    paths[0].write_bytes(pcap_file([one for at, one in enumerate(every) if at % 5 or not rows[at].payload]))
    paths[1].write_bytes(pcap_file([one for at, one in enumerate(late) if at % 7 or not rows[at].payload]))
    same_with_index(*paths)
    assert (tmp_path / "a.pcap.rpcidx").exists()
    assert not uses_index(paths[1])


def test_a_log(tmp_path: Path) -> None:
    path = tmp_path / "a.rpclog"
    path.write_bytes(convert(CHAIN))
    same_with_index(path)


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    network = Network()
    talk = PipeTalk(network, name=b"w\xff\x80".decode(errors="surrogateescape"))
    talk.send(Said(payload=b"x"))
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_file(packets(network, segments(network))))
    same_with_index(path)


def capture(tmp_path: Path) -> Path:
    return Path(shutil.copy2(CHAIN, tmp_path / "a.pcap"))


def test_packets_are_not_read_again(tmp_path: Path) -> None:
    """What lies between head and tail may be anything: an index tells of it, and only tensors are read."""
    path = tmp_path / "a.pcap"
    path.write_bytes(content("torch/stress_basic.pcap"))
    make_index([str(path)])
    with Decoding([str(path)]) as decoding:
        wanted = [record.tp.payloads for record in decoding.records()]
    state = path.stat()
    with path.open("r+b") as file:
        file.seek(1 << 21)
        file.write(bytes(1 << 21))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with Decoding([str(path)]) as decoding:
        assert [record.tp.payloads for record in decoding.records()] == wanted


def test_a_message_without_those_before(tmp_path: Path) -> None:
    path = capture(tmp_path)

    def told(record: RpcRecord | None) -> object:
        assert record is not None
        return record.row, record.rpc.message, record.rpc.tensors, record.location

    with Decoding([str(path)]) as decoding:
        records = list(decoding.records())
    make_index([str(path)])
    with Decoding([str(path)]) as decoding:
        for row in (23, 0, 7):
            assert told(decoding.record(row)) == told(records[row])
        assert decoding.record(24) is None


def test_what_a_pipe_was_at_each_message(tmp_path: Path) -> None:
    """A pipe of which more becomes known later is, at each message, what it was when that was read."""
    network = Network()
    talk = PipeTalk(network, opened_in_sight=False)
    for number in range(6):  # the first tensor, which tells the channel, lies behind the first window
        talk.send(Said(id=number, payload=b"p" * (1 << 20)))
    talk.send(Said(id=6, tensors=(b"abcd",)))
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_file(packets(network, segments(network, sizes=(50_000,)))))

    def states() -> list[object]:
        with Decoding([str(path)]) as decoding:
            found: list[object] = []
            for record in decoding.records():
                pipe = record.tp.pipe
                found.append((pipe.visible, pipe.reason, pipe.channels, set(pipe.invisible_channels)))
            found += [(pipe.visible, pipe.reason, pipe.channels) for pipe in decoding.session.pipes]
            return found

    without = states()
    assert len({str(one) for one in without[:7]}) > 1
    make_index([str(path)])
    assert states() == without


@pytest.mark.parametrize(
    "options",
    [
        Options(by_completion=True),
        Options(index=False),
        Options(reading=Reading(reader="tshark")),
        Options(reading=Reading(preferences=("tcp.desegment_tcp_streams:TRUE",))),
        Options(limits=Limits(payload_bytes=1 << 20)),
    ],
)
def test_other_options_read_the_packets(options: Options, tmp_path: Path) -> None:
    path = capture(tmp_path)
    make_index([str(path)])
    assert not uses_index(path, options=options)
    with Decoding([str(path)], options) as decoding:
        assert len(list(decoding.records())) == 24
        assert decoding.notices == []


def test_where_an_index_lies() -> None:
    assert index_beside(["a/b.pcap"]) == index_beside(["a/b.pcap", "c.pcap"]) == Path("a/b.pcap.rpcidx")
    assert index_beside(["-"]) is index_beside(["a.pcap", Live("lo")]) is index_beside([]) is None


@pytest.mark.parametrize(
    ("name", "reading", "why"),
    [
        ("a.pcap.gz", Reading(), "no index is made of a compressed capture: unpack it first"),
        (
            "a.pcap",
            Reading(reader="tshark"),
            "no index is made of what tshark reads: convert it to pcap first",
        ),
    ],
)
def test_captures_without_an_index(name: str, reading: Reading, why: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content("bwd_boom.pcap") if name == "a.pcap" else _packed())
    with pytest.raises(OutputError, match=f"{name}: {why}"):
        make_index([str(path)], Options(reading=reading))
    assert list(tmp_path.iterdir()) == [path]


def test_a_log_with_tensors_as_text_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a.rpclog"
    record = message(storages=(b"abcd",)).splitlines()[0]
    said = json.loads(record) | {"base64": base64.b64encode(b"abcd").decode()}
    path.write_bytes(log_of(json.dumps(said).encode() + b"\n"))
    with Decoding([str(path)]) as decoding:
        assert [len(found.tp.tensors) for found in decoding.records()] == [1]
    with pytest.raises(OutputError, match="no index is made of logs that hold tensors as base64"):
        make_index([str(path)])


def test_a_log_of_absurd_lengths(tmp_path: Path) -> None:
    """What was announced and never written may be longer than 64 bits can say."""
    most = (1 << 63) - 1
    path = tmp_path / "a.rpclog"
    storage = {"length": most, "missing": [[0, most]]}
    absurd = message(payload=b"p", payload_missing=most - 1, table_missing=most, storages=())
    said = json.loads(message(payload=b"p").splitlines()[0]) | {"storages": [storage], "id": 1}
    path.write_bytes(log_of(absurd, json.dumps(said).encode() + b"\np\n"))
    with Decoding([str(path)]) as decoding:
        assert len(list(decoding.records())) == 2
    same_with_index(path)


def _packed() -> bytes:
    return (CHAIN.parent / "bwd_boom.pcap.gz").read_bytes()


def test_a_capture_that_grows_meanwhile_has_none(tmp_path: Path) -> None:
    path = capture(tmp_path)
    with Decoding([str(path)]) as decoding, MessageStore() as store:
        for records in decoding.blocks():
            store.extend([record.tp for record in records])
        with path.open("ab") as file:
            file.write(b"more")
        with pytest.raises(OutputError, match="it has changed since it was read"):
            decoding.write_index(store)


def test_a_reading_that_was_ended_has_none(tmp_path: Path) -> None:
    path = capture(tmp_path)
    with Decoding([str(path)]) as decoding, MessageStore() as store:
        decoding.stop()
        list(decoding.records())
        with pytest.raises(OutputError, match="not read to its end"):
            decoding.write_index(store)


def test_the_store_of_a_decoding_makes_the_same_index(tmp_path: Path) -> None:
    path = capture(tmp_path)
    place = make_index([str(path)])
    wanted = place.read_bytes()
    with Decoding([str(path)], Options(index=False)) as decoding, MessageStore() as store:
        for records in decoding.blocks():
            store.extend([record.tp for record in records])
        assert decoding.write_index(store) == place
    assert place.read_bytes() == wanted
