"""The queue of the recorder without torch: whatever is pushed, from whichever threads and processes, is in
the log once, byte for byte, also when a process is killed while it writes. The log is read here by what the
page on its format says, not by our reader."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.recorder.agent import read_queue, recover
from rpcinspect.recorder.library import BUILD

pytestmark = pytest.mark.slow

KIB, MIB = 1 << 10, 1 << 20
FIRST = b'{"rpclog":1}\n'
SIZES = (1 * MIB, 200, 100 * KIB, 0x12345, 3 * MIB + 1, 30, 64 * KIB)
"""Some go into the log past the page cache."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        pytest.skip("no compiler")
    program = tmp_path_factory.mktemp("queue") / "queue_driver"
    native = BUILD.parent
    sources = [Path(__file__).with_name("queue_driver.cpp"), native / "queue.cpp"]
    options = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{native}"]
    subprocess.run([compiler, *options, *map(str, sources), "-o", str(program)], check=True)
    return program


@pytest.fixture(params=["disk", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A log on a disk, or in memory, where nothing can be written past the page cache."""
    folder = tmp_path if request.param == "disk" else Path("/dev/shm") / f"rpcinspect-test-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    yield folder / "x.rpclog"
    shutil.rmtree(folder)


def start(
    driver: Path,
    log: Path,
    name: str,
    *,
    threads: int = 1,
    records: int = 1,
    ring: int = 16 * MIB,
    limit: int = 0,
    sizes: tuple[int, ...] = SIZES,
) -> subprocess.Popen[bytes]:
    numbers = map(str, (threads, records, ring, limit, *sizes))
    queue = log.parent / f"{name}.queue"
    with (log.parent / f"{name}.out").open("wb") as out:
        return subprocess.Popen(
            [str(driver), str(log), str(queue), name, *numbers], stdout=out, stderr=subprocess.PIPE
        )


def taken(log: Path, name: str) -> list[str]:
    """The records of which a process said that they were taken."""
    return (log.parent / f"{name}.out").read_text().split()


def read(log: Path) -> list[str]:
    """The records of the log, each of which is whole, in their order."""
    data = log.read_bytes()
    found: list[str] = []
    at = 0
    while at < len(data):
        line = data[at : data.index(b"\n", at) + 1]
        at += len(line)
        if line in (b"\n", FIRST):
            continue
        header = json.loads(line)
        what, size = header["what"], header["bytes"]
        body = data[at : at + size]
        text = what.encode() + b"\n"
        assert body == (text * (size // len(text) + 1))[:size], what
        assert data[at + size : at + size + 1] == b"\n"
        at += size + 1
        found.append(what)
    return found


def test_threads_and_processes_write_one_log(driver: Path, log: Path) -> None:
    """Also what takes more than half of the ring."""
    names = ("one", "two")
    sizes = (*SIZES, 9 * MIB)
    running = [start(driver, log, name, threads=3, records=40, sizes=sizes) for name in names]
    assert [process.communicate()[1] for process in running] == [b"", b""]
    found = read(log)
    assert max(Counter(found).values()) == 1
    for name in names:
        assert sorted(taken(log, name)) == sorted(w for w in found if w.startswith(name))
        for thread in range(3):
            wanted = [f"{name}/{thread}/{number}" for number in range(40)]
            assert [what for what in found if what.startswith(f"{name}/{thread}/")] == wanted


def test_what_a_killed_process_had_pushed_is_there_once(driver: Path, log: Path) -> None:
    """Killed anywhere, while another one goes on writing; of each thread one more record may be there than it
    could tell of."""
    draw = random.Random(7)
    other = start(driver, log, "other", records=400)
    for number in range(12):
        name = f"killed{number}"
        process = start(driver, log, name, threads=2, records=100_000)
        time.sleep(draw.uniform(0.02, 0.25))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert other.communicate()[1] == b""
    told: set[str] = set(taken(log, "other"))
    assert len(told) == 400
    for path in sorted(log.parent.glob("killed*.queue")):
        queue = read_queue(path)
        if queue is not None:  # else it was killed before its first record
            recover(queue, path, log)
            told.update(taken(log, path.stem))
    found = read(log)
    assert max(Counter(found).values()) == 1
    assert told <= set(found)
    assert len(set(found) - told) <= 12 * 2


def test_a_file_that_takes_no_more_ends_with_a_whole_record(driver: Path, log: Path) -> None:
    limit = 10 * MIB + 777
    _, told = start(driver, log, "one", records=60, limit=limit).communicate()
    assert told.endswith(b"File too large")
    found = read(log)
    assert found == [f"one/0/{number}" for number in range(len(found))]
    assert limit - max(SIZES) - 200 <= log.stat().st_size <= limit
    queue = read_queue(log.parent / "one.queue")
    assert queue is not None
    assert queue.messages == len(found)
    assert len(taken(log, "one")) > len(found)
    assert queue.dropped == 0
