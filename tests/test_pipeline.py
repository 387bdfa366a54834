"""The whole path from capture files to a session, on conversations that this file makes up."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpcinspect.capture import CaptureReader, PacketBlock, skim
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.views.jsonl.lines import JsonLines
from rpcinspect.views.stream import JsonStream
from tests.builders import Captured, pcap_file, pcapng_file
from tests.decoded import pieces
from tests.tensorpipe.conversations import (
    Network,
    PipeTalk,
    Said,
    Write,
    message_frames,
    packets,
    segments,
)
from tests.thorough import examples
from tests.truth import CAPTURES


def conversation() -> Network:
    network = Network()
    for number, name in enumerate(("worker0", "worker1")):
        pipe = PipeTalk(network, name=name, client=f"10.0.0.{number + 3}", first_id=2 * number)
        for message in range(3):
            payload = to_payload(PythonCall(pickle.dumps(("args", message)), False))
            pipe.send(Said(id=message, payload=payload, tensors=(b"abcd",)))
            answer = to_payload(PythonResp(pickle.dumps(message)))
            pipe.send(Said(type=0x203, id=message, payload=answer), from_client=False)
    return network


def capture(tmp_path: Path, network: Network, name: str = "x.pcap", **how: Any) -> Path:
    path = tmp_path / name
    rows = segments(network, **how)
    write = pcapng_file if name.endswith("ng") else pcap_file
    path.write_bytes(write(packets(network, rows)))
    return path


def decoded(*paths: Path, options: Options | None = None) -> list[dict[str, Any]]:
    """Every line of the JSON of a decoding."""
    with tempfile.TemporaryFile() as spool, Decoding([str(path) for path in paths], options) as decoding:
        view = JsonLines(spool, decoding.bytes)
        for record in decoding.records():
            view.feed([record])
        text = b"".join(view.finish(decoding.session)).decode()
    return [json.loads(line) for line in text.splitlines()]


def streamed(path: Path) -> list[dict[str, Any]]:
    with Decoding([str(path)], Options(by_completion=True)) as decoding:
        view = JsonStream(decoding, hashes=True)
        lines = [view.line(record) for record in decoding.records()]
        lines.append(view.rest(decoding.session))
    return [json.loads(line) for line in b"".join(lines).decode().splitlines()]


def messages(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == "message"]


@pytest.mark.parametrize("name", ["x.pcap", "x.pcapng"])
def test_names_answers_and_order(tmp_path: Path, name: str) -> None:
    lines = decoded(capture(tmp_path, conversation(), name))
    found = messages(lines)
    assert len(found) == 12
    assert [line["index"] for line in found] == list(range(12))
    assert [line["time_ns"] for line in found] == sorted(line["time_ns"] for line in found)
    assert {line["src"] for line in found if line["request"]} == {"worker0", "worker1"}
    assert [line["answers"] for line in found if not line["request"]] == [0, 2, 4, 6, 8, 10]


def test_the_session_is_known_only_at_the_end(tmp_path: Path) -> None:
    with Decoding([str(capture(tmp_path, conversation()))]) as decoding:
        with pytest.raises(RuntimeError):
            _ = decoding.session
        assert len(list(decoding.records())) == 12
        assert decoding.session.totals.messages == 12
        assert decoding.session.problems == ()


def test_two_captures_of_one_conversation_fill_each_other(tmp_path: Path) -> None:
    network = conversation()
    rows = segments(network, sizes=(40,))
    whole = packets(network, rows)
    paths = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    paths[0].write_bytes(pcap_file([p for at, p in enumerate(whole) if at % 3 or not rows[at].payload]))
    paths[1].write_bytes(pcap_file([p for at, p in enumerate(whole) if at % 3 != 1 or not rows[at].payload]))
    lines = decoded(*paths)
    assert len(messages(lines)) == 12
    assert lines[-1]["bytes"]["missing"] == 0
    assert all(not line["problems"] for line in messages(lines))


def test_bytes_are_read_in_another_thread_while_it_is_decoded(tmp_path: Path) -> None:
    path = capture(tmp_path, conversation())
    data = path.read_bytes()
    wrong: list[int] = []
    with Decoding([str(path)]) as decoding:
        source, done = decoding.bytes_beside(), threading.Event()

        def read() -> None:
            while not done.is_set():
                wrong.extend(
                    at for at in range(0, len(data) - 16, 61) if source.read(0, at, 16) != data[at : at + 16]
                )

        thread = threading.Thread(target=read)
        thread.start()
        records = list(decoding.records())
        done.set()
        thread.join()
    assert records
    assert not wrong


def test_stopping_keeps_what_was_read(tmp_path: Path) -> None:
    path = capture(tmp_path, conversation())
    with Decoding([str(path)]) as decoding:
        decoding.stop()
        assert list(decoding.records()) == []
        assert decoding.session.totals.messages == 0


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"no capture at all, only text"])
def test_what_is_no_capture_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    with pytest.raises(CaptureError):
        Decoding([str(path)])
    with pytest.raises(CaptureError):
        Decoding([str(tmp_path / "missing.pcap")])


def test_streaming_says_the_same_of_every_message(tmp_path: Path) -> None:
    path = capture(tmp_path, conversation())
    at_once = {(m["src"], m["id"], m["type"]): m["tensors"] for m in messages(decoded(path))}
    piecewise = {(m["src"], m["id"], m["type"]): m["tensors"] for m in messages(streamed(path))}
    assert at_once == piecewise


# --- hostile bytes ---


def small() -> Network:
    network = Network()
    pipe = PipeTalk(network)
    pipe.send(Said(id=1, payload=to_payload(PythonCall(pickle.dumps("x"), False)), tensors=(b"abcd",)))
    pipe.send(Said(type=0x203, id=1, payload=to_payload(PythonResp(pickle.dumps(1)))), from_client=False)
    return network


CONTENT = pcap_file(packets(small(), segments(small(), sizes=(200,))))


@given(st.lists(st.tuples(st.integers(24, len(CONTENT) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_changed_bytes_of_a_file_raise_nothing_else(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    content = bytearray(CONTENT)
    for at, value in changes:
        content[at] = value
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    try:
        decoded(path)
        streamed(path)
    except CaptureError:
        pass


@pytest.mark.parametrize("size", range(0, len(CONTENT), 37))
def test_a_file_that_was_cut(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(CONTENT[:size])
    try:
        decoded(path)
    except CaptureError:
        assert size < 24


def absurd_tensors(length: int) -> Network:
    network = Network()
    pipe = PipeTalk(network)
    for number in range(3):
        frames = message_frames(Said(id=number, tensors=(b"\xaa" * 201,)))
        changed = frames.replace(b"\xb9\x04\x80\xc9", b"\xb9\x04\x83" + length.to_bytes(8, "little"))
        body = int.from_bytes(changed[:8], "little") + 7
        network.write(pipe.descriptor, body.to_bytes(8, "little") + changed[8:])
    return network


@pytest.mark.parametrize("length", [2**31, 2**62, 2**63, 2**64 - 1])
def test_absurd_tensor_lengths_can_be_shown(tmp_path: Path, length: int) -> None:
    lines = decoded(capture(tmp_path, absurd_tensors(length)))
    assert len(messages(lines)) == 3


FOREIGN = [
    (),
    (b"",),
    (b"a" * 40, b"b" * 90, b"cccc"),
    (b"abcd", b"x" * 20, b"", b"cccc"),
    (b"", b"", b"cc"),
    (b"abcd", b"x" * 8, b"cccc", b"", b""),
]


@pytest.mark.parametrize("payloads", FOREIGN)
@pytest.mark.parametrize("cut", [0, 1, 3])
def test_messages_of_other_agents(tmp_path: Path, payloads: tuple[bytes, ...], cut: int) -> None:
    network = Network()
    pipe = PipeTalk(network)
    pipe.send(Said(id=1))
    pipe.send(Said(payloads=payloads))
    pipe.send(Said(id=2))
    if cut:
        del network.writes[-1]
        last = network.writes[-1]
        network.writes[-1] = Write(last.connection, last.from_client, last.data[:-cut])
    lines = decoded(capture(tmp_path, network))
    assert len(messages(lines)) <= 3
    assert messages(lines)[0]["id"] == 1


TEXTS = [
    "worker:²",
    "worker:" + "9" * 3000,
    "worker:" + "9" * 30,
    "worker:7",
    "10.0.0.9:5000",
    "[::1]:²",
    "²:²",
    "",
    "\udcff",
    "a\0b\n\x1b[31m",
]


@pytest.mark.parametrize("name", TEXTS)
def test_any_name_of_a_worker(tmp_path: Path, name: str) -> None:
    network = Network()
    pipe = PipeTalk(network, name=name)
    pipe.send(Said(id=1))
    path = capture(tmp_path, network)
    assert len(messages(decoded(path))) == 1
    assert len(messages(streamed(path))) == 1


def remote_error(text: str) -> bytes:
    """A pickled RemoteException, as torch pickles the named tuple."""
    body = b"\x80\x02ctorch.distributed.rpc.internal\nRemoteException\n"
    message = text.encode("utf-8", "surrogatepass")
    body += b"X" + len(message).to_bytes(4, "little") + message + b"cbuiltins\nValueError\n\x86\x81."
    return body


@pytest.mark.parametrize("worker", ["1", "²", "9" * 30, "9" * 5000, "-1"])
def test_any_id_in_a_remote_error(tmp_path: Path, worker: str) -> None:
    network = Network()
    pipe = PipeTalk(network)
    pipe.send(Said(id=1))
    error = to_payload(PythonResp(remote_error(f"On WorkerInfo(id={worker}, name=w9):\nboom")))
    pipe.send(Said(type=0x203, id=1, payload=error), from_client=False)
    lines = decoded(capture(tmp_path, network))
    workers = [line for line in lines if line["kind"] == "worker"]
    assert ("w9" in {line["name"] for line in workers}) == (worker == "1")


@pytest.mark.parametrize("number", [0, 2**63, -(2**63) - 1, 2**64, 2**200])
def test_any_number_in_an_rref(tmp_path: Path, number: int) -> None:
    """The pickle of an RRef's fork is a call of the receiver of _InternalRPCPickler."""
    digits = str(number).encode()

    def integer() -> bytes:
        return b"L" + digits + b"L\n"

    head = b"\x80\x02cbuiltins\ngetattr\nctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
    head += b"X\x11\0\0\0_py_rref_receiver\x86R"
    fork = b"(" + integer() * 6 + b"X\3\0\0\0int" + b"t"
    body = head + b"(" + fork + b"tR."
    network = Network()
    pipe = PipeTalk(network)
    pipe.send(Said(id=1, payload=to_payload(PythonCall(body, False))))
    lines = decoded(capture(tmp_path, network))
    assert len(messages(lines)) == 1
    rrefs = [line for line in lines if line["kind"] == "rref"]
    assert len(rrefs) == (number == 0)


# --- time ---


def test_many_small_pipes_are_streamed_in_linear_time(tmp_path: Path) -> None:
    network = Network()
    for number in range(400):
        pipe = PipeTalk(
            network, name=f"w{number}", client=f"10.1.{number >> 8}.{number & 255}", first_id=2 * number
        )
        pipe.send(Said(id=number))
    path = capture(tmp_path, network)
    start = time.process_time()
    assert len(messages(streamed(path))) == 400
    assert time.process_time() - start < 18


def heard(*paths: Path | str) -> list[tuple[int, int | None]]:
    """What is said of the progress."""
    told: list[tuple[int, int | None]] = []
    options = Options(progress=lambda *said: told.append(said))
    with Decoding([str(path) for path in paths], options) as decoding:
        assert all(record is not None for record in decoding.records())
    return told


def test_progress_counts_the_bytes_of_files_as_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpcinspect.capture.source.WINDOW", 1000)
    plain = capture(tmp_path, conversation())
    packed = tmp_path / "x.pcap.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for paths in ((plain,), (packed,), (plain, packed), (packed, plain, packed)):
        *before, last = heard(*paths)
        of = sum(path.stat().st_size for path in paths)
        of += sum(path.stat().st_size for path in paths[1:])  # they are looked through before
        assert {size for _, size in before} == {of}
        counts = [done for done, _ in before]
        assert counts == sorted(counts)
        assert counts[-1] == of - 1
        assert last == (1, 1)  # it is over


def test_nobody_knows_how_much_comes_through_a_pipe(tmp_path: Path) -> None:
    data = capture(tmp_path, conversation()).read_bytes()
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    *before, last = heard(f"/dev/fd/{reading}")
    os.close(reading)
    assert before[-1] == (len(data), None)
    assert last == (1, 1)


@pytest.mark.parametrize("name", ["bwd_boom.pcap.gz", "rref_relay.pcap.gz"])
def test_how_many_are_taken_at_once_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = decoded(CAPTURES / name)
    for most in (1, 3):
        monkeypatch.setattr("rpcinspect.pipeline.BLOCK_MESSAGES", most)
        with Decoding([str(CAPTURES / name)]) as decoding:
            assert max(map(len, decoding.blocks())) == most
        assert decoded(CAPTURES / name) == whole


def test_long_messages_are_taken_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpcinspect.pipeline.BLOCK_BYTES", 1)
    with Decoding([str(capture(tmp_path, conversation()))]) as decoding:
        assert [len(block) for block in decoding.blocks()] == [1] * 12


def captured(reader: CaptureReader) -> Iterator[Captured]:
    """The packets of a capture."""
    for block in reader.blocks():
        assert isinstance(block, PacketBlock)
        for offset, caplen, time_ns in zip(block.offset, block.caplen, block.time_ns, strict=True):
            yield Captured(reader.pread(int(offset), int(caplen)), int(time_ns))


@pytest.mark.parametrize(
    "name", ["basic_chain", "param_detach", "profiled_legacy", "transport_matrix_default"]
)
@pytest.mark.parametrize("pcapng", [False, True])
def test_packets_that_are_not_read_to_their_end_at_first(
    name: str, pcapng: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of tensors of megabytes: the same comes out."""
    path = CAPTURES / f"{name}.pcap"
    if pcapng:
        path = tmp_path / "copy.pcapng"
        with CaptureReader(str(CAPTURES / f"{name}.pcap")) as reader:
            path.write_bytes(pcapng_file(captured(reader)))
    whole = list(pieces(path))
    monkeypatch.setattr("rpcinspect.capture.source.WINDOW", 4096)
    monkeypatch.setattr(skim, "LARGE_PACKET", 1)
    monkeypatch.setattr(skim, "HEAD", 80)
    monkeypatch.setattr(skim, "SKIMMED_PACKETS", 7)
    with CaptureReader(str(path)) as reader:
        assert any(isinstance(block, PacketBlock) and block.heads for block in reader.blocks())
    assert b"".join(pieces(path)) == b"".join(whole)
