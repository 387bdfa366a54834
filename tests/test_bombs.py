"""Small inputs that are large once they are unpacked, and inputs that there is no room for: what was read
before is kept, a bound is told, and memory is bounded.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pytest
import zstandard

from rpcinspect.capture import Reading
from rpcinspect.capture.source import SpooledSource
from rpcinspect.files import temporary
from rpcinspect.files.temporary import Temporary
from rpcinspect.limits import Unpacking
from rpcinspect.pipeline import Decoding, Options
from rpcinspect.rpc.command import PythonCall
from rpcinspect.rpc.command_codec import to_payload
from rpcinspect.rpc.tensor import TensorMeta, to_tensor_table
from tests.builders import Captured, pcap_file
from tests.cli.runner import decode, rpcinspect
from tests.fuzz.bounds import bounded
from tests.logs import log_of
from tests.logs import message as log_message
from tests.places import recorded, workloads
from tests.tensorpipe.conversations import Network, PipeTalk, Said, packets, segments
from tests.thorough import representative

BOMB = recorded("reports/hostile/payload_bomb.rpclog.zst")
PACKS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}
TOLD = re.compile(r"the (gzip|zstd) data hold more than [\d,]+ bytes, .*; --unpack-limit sets another limit")


def measured(*arguments: object) -> tuple[subprocess.CompletedProcess[str], int]:
    """A run of the command in a process of its own, and its peak of memory in MiB."""
    program = (
        "import resource, subprocess, sys; ran = subprocess.run(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); "
        "sys.exit(ran.returncode)"
    )
    words = [sys.executable, "-m", "rpcinspect", *map(str, arguments)]
    memory = Path("/dev/shm")  # a disk may take a minute for a gigabyte
    enough = memory.is_dir() and shutil.disk_usage(memory).free > 3 << 30
    ran = subprocess.run(
        [sys.executable, "-c", program, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | ({"TMPDIR": str(memory)} if enough else {}),
    )
    return ran, int(ran.stderr.splitlines()[-1]) >> 10


def test_a_payload_of_two_gigabytes_in_61_kilobytes() -> None:
    ran, peak = measured("decode", BOMB, "--format", "jsonl")
    assert ran.returncode == 0
    assert TOLD.search(ran.stderr)
    assert peak < 150  # it was 3,854
    summary = json.loads(ran.stdout.splitlines()[-1])
    assert summary["kind"] == "summary"
    assert TOLD.search(str(summary["problem_list"]))
    assert f"{10**9:,}" in str(summary["problem_list"])


def written(path: Path, packed: bytes) -> Path:
    path.write_bytes(packed)
    return path


@pytest.mark.parametrize("how", PACKS)
def test_what_was_read_before_is_kept(how: str, tmp_path: Path) -> None:
    before = [log_message(id=n, payload=b"", storages=(bytes(n),)) for n in range(5)]
    huge = log_message(id=5, payload=bytes(3_000_000))
    path = written(tmp_path / "x", PACKS[how](log_of(*before, huge, *before)))
    limited = decode(path, "--unpack-limit", "1MB", "--format", "jsonl")
    assert limited.code == 0
    assert TOLD.search(limited.err)
    assert [line["id"] for line in limited.objects if line["kind"] == "message"] == [0, 1, 2, 3, 4]
    assert decode(path, "--unpack-limit", "1MB", "--strict").code == 3
    for limit in ("4MB", "none"):
        whole = decode(path, "--unpack-limit", limit, "--format", "jsonl")
        assert (whole.code, whole.err) == (0, "")
        assert len([line for line in whole.objects if line["kind"] == "message"]) == 11


@pytest.mark.parametrize("how", PACKS)
def test_a_ratio_counts_only_above_what_may_be_honest(how: str, tmp_path: Path) -> None:
    """Tensors of zeros, packed a thousandfold."""
    zeros = [log_message(id=n, storages=(bytes(1 << 20),)) for n in range(20)]
    path = written(tmp_path / "x", PACKS[how](log_of(*zeros)))
    size = path.stat().st_size

    def messages(unpacking: Unpacking) -> tuple[int, list[str]]:
        with Decoding([str(path)], Options(reading=Reading(unpacking=unpacking))) as decoding:
            return sum(1 for _ in decoding.records()), decoding.notices

    assert messages(Unpacking()) == (20, [])
    assert messages(Unpacking(free_bytes=30 << 20, ratio=2)) == (20, [])
    assert messages(Unpacking(free_bytes=0, ratio=(30 << 20) // size)) == (20, [])
    count, told = messages(Unpacking(free_bytes=10 << 20, ratio=2))
    assert count == 9
    assert len(told) == 1
    assert messages(Unpacking(bytes=5 << 20, ratio=None))[0] == 4


def test_a_limit_that_is_none() -> None:
    for limit in ("", "0", "-1", "lots", "1XB", "all"):
        for command in ("decode", "diff", "replay"):
            ran = rpcinspect(command, BOMB, *([BOMB] if command == "diff" else []), "--unpack-limit", limit)
            assert ran.code == 2
            assert ran.err == f"rpcinspect: --unpack-limit {limit}: a size, such as 500GB, or none\n"


@pytest.mark.parametrize("kind", ["diff", "replay"])
def test_others_that_read_captures_say_so_too(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path / "x.gz", gzip.compress(log_of(*[log_message(id=n) for n in range(100)])))
    words = (path, path) if kind == "diff" else (path, "--plan")
    ran = rpcinspect(kind, *words, "--unpack-limit", "2KB")
    assert TOLD.search(ran.err)
    assert not TOLD.search(rpcinspect(kind, *words).err)


# --- what is held ---


def large_payload() -> bytes:
    udf = b"\x80\x04ctorch.distributed.rpc.internal\nPythonUDF\ncapp\nf\n"
    return to_payload(PythonCall(udf + b"\0" + os.urandom(100_000) * 500, False))


@pytest.mark.parametrize("kind", ["pcap", "rpclog"])
def test_a_payload_is_not_copied_on_its_way(kind: str, tmp_path: Path) -> None:
    """50 MB that are no pickle: once as they came, and once more as the pickle behind their first byte."""
    network = Network()
    PipeTalk(network).send(Said(id=1, payload=large_payload()))
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_file(packets(network, segments(network, sizes=(60_000,)))))
    del network
    if kind == "rpclog":
        assert rpcinspect("export", "rpclog", path, "-o", tmp_path / "x.rpclog").code == 0
        path = tmp_path / "x.rpclog"
    ran, peak = measured("decode", path, "--format", "jsonl")
    assert ran.returncode == 0
    assert '"PYTHON_CALL"' in ran.stdout
    assert peak < 170, "less than three copies of 48 MiB beside what every run takes"


# --- temporary files ---


def udp(size: int) -> bytes:
    """A datagram that has nothing to do with RPC."""
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + size, 0, 0, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    return b"\0" * 12 + b"\x08\0" + ip + struct.pack(">HHHH", 1, 2, 8 + size, 0) + bytes(size)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Blocks of 512 bytes that each spooled source still had on the disk when it was closed."""
    found: list[int] = []
    close = SpooledSource.close

    def watched(source: SpooledSource) -> None:
        if not source._spool.closed:
            found.append(os.fstat(source._spool.fileno()).st_blocks)
        close(source)

    monkeypatch.setattr(SpooledSource, "close", watched)
    return found


def test_only_what_streams_need_stays_on_the_disk(tmp_path: Path, held: list[int]) -> None:
    """40 MB of other protocols around a conversation."""
    network = Network()
    talk = PipeTalk(network)
    for number in range(20):
        talk.send(Said(id=number, payload=b"", tensors=(bytes([number]) * 10_000,)))
    frames = packets(network, segments(network, sizes=(1400,)))
    noise = udp(60_000)
    mixed = [each for frame in frames for each in (frame, *[Captured(noise, frame.time_ns)] * 3)]
    plain, packed = tmp_path / "x.pcap", tmp_path / "x.pcap.gz"
    plain.write_bytes(pcap_file(mixed))
    assert plain.stat().st_size > 40_000_000
    packed.write_bytes(gzip.compress(plain.read_bytes(), 1))
    ran = [decode(path, "--format", "jsonl").objects[1:] for path in (plain, packed)]
    assert ran[0] == ran[1]
    assert len([line for line in ran[0] if line["kind"] == "message"]) == 20
    assert held
    assert max(held) * 512 < 4_000_000


@pytest.mark.parametrize("path", representative(workloads()), ids=lambda path: path.name)
def test_what_is_given_back_is_never_read_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte that no stream needs is zero once its packet was read, and nothing is said otherwise."""
    punched = 0
    give_back = Temporary.give_back

    def counted(file: Temporary, start: int, stop: int) -> None:
        nonlocal punched
        punched += stop - start
        give_back(file, start, stop)

    monkeypatch.setattr(Temporary, "give_back", counted)
    monkeypatch.setattr(temporary, "HOLE_BYTES", 1)
    monkeypatch.setattr("rpcinspect.capture.source.HOLE_BYTES", 1)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    plain, packed = written(tmp_path / "x", data), written(tmp_path / "x.gz", gzip.compress(data, 1))
    ran = [decode(each, "--format", "jsonl") for each in (plain, packed)]
    assert ran[0].objects[1:] == ran[1].objects[1:]
    assert punched > len(data) // 100


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 8 MiB for temporary files."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.rooted
@pytest.mark.parametrize("how", ["packed", "piped"])
def test_where_there_is_no_room_what_was_read_is_kept(how: str, tmp_path: Path, small_disk: Path) -> None:
    noise = os.urandom(1 << 20)
    data = log_of(*[log_message(id=n, storages=(noise,)) for n in range(20)])
    if how == "packed":
        path = written(tmp_path / "x.zst", zstandard.compress(data))
        ran = decode(path, "--format", "jsonl")
    else:
        ran = decode("-", "--format", "jsonl", stdin=data)
    assert ran.code == 0
    assert 4 <= len([line for line in ran.objects if line["kind"] == "message"]) < 8
    assert f"the rest is not read: no room for temporary files in {small_disk}: " in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.rooted
def test_where_there_is_no_room_for_a_copy_one_line_says_so(small_disk: Path) -> None:
    data = log_of(*[log_message(id=n, storages=(bytes(1 << 20),)) for n in range(20)])
    ran = decode("-", "--message", "0", stdin=data)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"rpcinspect: no room for temporary files in {small_disk}: ")
    assert len(ran.err.splitlines()) == 1


# --- tensors of few bytes ---


def expanded(sizes: Sequence[int], path: Path) -> Path:
    """A message with tensors of these sizes, each of one element that is there so many times."""
    table = to_tensor_table(
        tuple(
            TensorMeta(dtype="float32", sizes=(n,), strides=(0,), storage=0, storage_numel=1) for n in sizes
        )
    )
    head = {"rpc": "message", "time_ns": 1, "src": "a", "dst": "b", "type": "PYTHON_RET", "id": 1}
    head |= {"bytes": len(table) + 4, "payload": 0, "table": len(table), "storages": [4]}
    return written(path, log_of(json.dumps(head).encode() + b"\n" + table + b"\0\0\x80\x3f\n"))


def test_tensors_of_one_element_that_would_be_terabytes(tmp_path: Path) -> None:
    """2,000 tensors of 16 MB each, from 60 KB: without a bound in all, 1 MB would take days."""
    sizes = [(4 << 20) - index for index in range(2_000)]
    path = expanded(sizes, tmp_path / "x.rpclog")
    assert path.stat().st_size < 100_000
    with bounded(30, 100):
        ran = decode(path, "--unpack-limit", "1GB", "--format", "jsonl")
    assert ran.code == 0
    (line,) = [line for line in ran.objects if line["kind"] == "message"]
    hashes = [tensor["sha256"] for tensor in line["tensors"]]
    assert hashes[:59] == [sha256(b"\0\0\x80\x3f" * size).hexdigest() for size in sizes[:59]]
    assert hashes[59:] == [None] * (2_000 - 59)
    assert "1,941 times the bytes of a tensor were left out" in ran.err
    assert "--unpack-limit sets another limit" in ran.err


def test_a_tensor_that_is_listed_often_is_hashed_once(tmp_path: Path) -> None:
    """32 GB to hash, were each of them hashed."""
    path = expanded([4 << 20] * 2_000, tmp_path / "x.rpclog")
    with bounded(30, 100):
        ran = decode(path, "--unpack-limit", "1GB", "--format", "jsonl")
    (line,) = [line for line in ran.objects if line["kind"] == "message"]
    assert {tensor["sha256"] for tensor in line["tensors"]} == {
        sha256(b"\0\0\x80\x3f" * (4 << 20)).hexdigest()
    }


def test_no_more_of_them_is_written_either(tmp_path: Path) -> None:
    path = expanded([1 << 20] * 50, tmp_path / "x.rpclog")
    ran = rpcinspect("export", "safetensors", path, "--unpack-limit", "40MB", "-o", tmp_path / "out")
    assert ran.code == 0
    assert ran.out.startswith("9 tensors, 37,748,736 bytes, in ")
    assert "41 times the bytes of a tensor were left out" in ran.err
    index = [json.loads(line) for line in (tmp_path / "out" / "index.jsonl").read_text().splitlines()]
    assert [line["left_out"] for line in index if line["file"] is None] == [
        "it repeats bytes, and more was repeated before than is written"
    ] * 41


def test_tensors_that_were_captured_byte_for_byte_cost_nothing_of_it(tmp_path: Path) -> None:
    path = recorded("views_alias.pcap")
    plain = decode(path, "--format", "jsonl")
    assert decode(path, "--format", "jsonl", "--unpack-limit", "1GB").out == plain.out
