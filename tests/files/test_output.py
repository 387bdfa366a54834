"""Outputs that appear whole, and those that grow."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from rpcinspect.errors import OutputError
from rpcinspect.files.output import Growing, Output, open_growing
from rpcinspect.files.place import OutputPlace, find_place

KILLED = """
import os, signal, sys
from pathlib import Path
from rpcinspect.files.output import Output
output = Output(Path(sys.argv[1]), private=True)
output.file.write(b"half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(value: int) -> Iterator[None]:
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


def write(path: Path, data: bytes, *, private: bool = True) -> None:
    output = Output(path, private=private)
    output.file.write(data)
    output.put()
    output.drop()


def test_it_is_there_when_all_of_it_is(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for data in (b"first", b"2nd"):
        before = path.read_bytes() if path.exists() else None
        output = Output(path, private=True)
        output.file.write(data)
        assert (path.read_bytes() if path.exists() else None) == before
        output.put()
        output.put()  # as after an interruption
        output.drop()
        assert path.read_bytes() == data
        assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("old", [None, b"old"])
def test_what_is_dropped_leaves_what_was_there(old: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "out"
    if old is not None:
        path.write_bytes(old)
    output = Output(path, private=True)
    output.file.write(b"half")
    output.drop()
    output.drop()
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([] if old is None else [old])


def test_recorded_traffic_is_ours_alone_and_an_earlier_file_keeps_its_mode(tmp_path: Path) -> None:
    with umask(0o022):
        write(tmp_path / "traffic", b"x", private=True)
        write(tmp_path / "report", b"x", private=False)
        assert (mode(tmp_path / "traffic"), mode(tmp_path / "report")) == (0o600, 0o644)
        (tmp_path / "report").chmod(0o600)
        (tmp_path / "traffic").chmod(0o640)
        write(tmp_path / "traffic", b"y", private=True)
        write(tmp_path / "report", b"y", private=False)
        assert (mode(tmp_path / "traffic"), mode(tmp_path / "report")) == (0o640, 0o600)


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for there in (False, True):
        if there:
            (tmp_path / "runs" / "7").write_bytes(b"old")
        else:
            (tmp_path / "latest").symlink_to("runs/7")
        write(tmp_path / "latest", b"new")
        assert (tmp_path / "latest").is_symlink()
        assert (tmp_path / "runs" / "7").read_bytes() == b"new"
        (tmp_path / "runs" / "7").unlink()


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(path.read_bytes)
        write(path, b"through the pipe")
        assert read.result(20) == b"through the pipe"
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_stays_one() -> None:
    write(Path("/dev/null"), b"gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_that_takes_nothing() -> None:
    output = Output(Path("/dev/full"), private=True)
    with pytest.raises(OSError, match="No space left"):
        output.file.write(b"x")
    output.drop()


def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        output = Output(path, private=True)
        assert output.file.write(bytes(10_000)) == 8192
        with pytest.raises(OSError, match="File too large"):
            output.file.write(b"x")
        output.drop()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]


def test_a_kill_leaves_what_was_there_and_the_next_run_tidies_up(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    write(path, b"new")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"new"]


def test_two_who_write_the_same(tmp_path: Path) -> None:
    first, second = (Output(tmp_path / "out", private=True) for _ in range(2))
    first.file.write(b"first")
    second.file.write(b"second")
    second.put()
    first.put()
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"first"]


def test_a_place_that_became_a_folder(tmp_path: Path) -> None:
    output = Output(tmp_path / "out", private=True)
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError, match="can't be written: Is a directory"):
        output.put()
    output.drop()
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_what_grows_can_be_read_meanwhile_and_keeps_what_it_held_until_then(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"earlier and longer")
    with Growing(path, private=True) as file:
        assert path.read_bytes() == b"earlier and longer"
        file.write(b"line\n")
        assert path.read_bytes() == b"line\n"
        file.write(b"line\n")
    assert path.read_bytes() == b"line\nline\n"


def test_a_growing_file_that_another_worker_makes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of one job append to one recording: each looks first, one makes it."""
    path = tmp_path / "x.rpclog"

    def found(wanted: Path) -> OutputPlace:
        place = find_place(wanted)
        if place.there is None:
            wanted.write_bytes(b"of the other")
        return place

    monkeypatch.setattr("rpcinspect.files.output.find_place", found)
    os.close(open_growing(path, append=True))
    assert path.read_bytes() == b"of the other"


def test_nothing_is_left_of_a_growing_file_that_never_began(tmp_path: Path) -> None:
    with Growing(tmp_path / "out", private=True) as file:
        file.forget()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").write_bytes(b"old")
    with Growing(tmp_path / "out", private=True) as file:
        file.forget()
    assert (tmp_path / "out").read_bytes() == b"old"


@pytest.mark.parametrize("append", [False, True])
def test_the_file_of_a_recording(append: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.rpclog"
    with umask(0):
        os.close(open_growing(path, append=append))
    assert mode(path) == 0o600
    path.write_bytes(b"old")
    os.close(open_growing(path, append=append))
    assert path.read_bytes() == (b"old" if append else b"")


@pytest.mark.parametrize("name", [".", "no/such/folder", "nul\0"])
def test_a_recording_that_can_not_be_written_is_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't be written: "):
        open_growing(tmp_path / name)


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_file_that_no_other_can_replace(tmp_path: Path) -> None:
    """As where a container has a single file of its host mounted."""
    path, host = tmp_path / "out", tmp_path / "host"
    for each in (path, host):
        each.write_bytes(b"old")
    if subprocess.run(["mount", "--bind", str(host), str(path)], check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        output = Output(path, private=True)
        with pytest.raises(
            OutputError, match="busy: it can't be replaced as a file; write into it with the shell's >"
        ):
            output.put()
        output.drop()
        assert host.read_bytes() == b"old"
    finally:
        subprocess.run(["umount", str(path)], check=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["host", "out"]


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_folder_that_takes_no_new_files() -> None:
    with tempfile.TemporaryDirectory() as name:  # that of pytest is for its owner only
        path = Path(name, "out")
        path.write_bytes(b"old")
        path.parent.chmod(0o755)
        path.chmod(0o666)
        process = os.fork()
        if process == 0:
            code = 1
            try:
                os.setuid(65_534)
                with pytest.raises(OutputError, match="Permission denied: it can't be replaced as a file"):
                    Output(path, private=True)
                with pytest.raises(OutputError, match=r"can't be written: Permission denied$"):
                    Output(path.with_name("new"), private=True)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(process, 0)[1] == 0
