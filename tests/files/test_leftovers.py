"""What is beside an output while it is written: who holds it, and who removes it."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rpcinspect.files.place import host, is_at, new_file, new_folder, sweep, sync, sync_folder, take_place

WRITER = """
import sys
from pathlib import Path
from rpcinspect.files.place import new_file, new_folder
place = Path(sys.argv[1])
held = [new_file(place, 0o600), new_folder(place.parent, place.name)]
print("ready", flush=True)
sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_name_says_what_it_is_for_and_nobody_else_may_look(tmp_path: Path) -> None:
    path, descriptor = new_file(tmp_path / "run.pcap", 0o600)
    folder, lock = new_folder(tmp_path, "tables")
    assert re.fullmatch(rf"\.run\.pcap\.{host()}-[0-9a-f]{{16}}\.part", path.name)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert is_at(path, descriptor)
    assert not is_at(tmp_path / "run.pcap", descriptor)
    os.close(descriptor)
    os.close(lock)


def test_long_names_and_names_that_are_no_text(tmp_path: Path) -> None:
    for name in ("x" * 255, "ü" * 127, os.fsdecode(b"\xff" * 255)):
        path, descriptor = new_file(tmp_path / name, 0o600)
        os.close(descriptor)
        sweep(tmp_path, name)
        assert not path.exists()


def test_what_a_killed_writer_left_is_removed_by_the_next_and_what_is_held_stays(tmp_path: Path) -> None:
    place = tmp_path / "run.pcap"
    other, others = new_file(tmp_path / "other.pcap", 0o600)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        sweep(tmp_path, place.name)
        assert len(names(tmp_path)) == 3
        writer.send_signal(signal.SIGKILL)
        writer.wait(20)
        assert len(names(tmp_path)) == 3
    path, descriptor = new_file(place, 0o600)
    assert names(tmp_path) == sorted([path.name, other.name])
    os.close(descriptor)
    os.close(others)


def test_only_what_is_ours_by_name_is_removed(tmp_path: Path) -> None:
    strange = [".run.pcap.part", ".run.pcap.ffffffff-0123456789abcdef.part", ".run.pcapX.part", "run.pcap"]
    for name in strange:
        (tmp_path / name).write_bytes(b"")
    link = tmp_path / f".run.pcap.{host()}-0123456789abcdef.part"
    (tmp_path / "target").write_bytes(b"mine")
    link.symlink_to("target")
    sweep(tmp_path, "run.pcap")
    assert names(tmp_path) == sorted([*strange, link.name, "target"])


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_belongs_to_somebody_else_is_left(tmp_path: Path) -> None:
    path, descriptor = new_file(tmp_path / "run.pcap", 0o600)
    os.close(descriptor)
    os.chown(path, 65_534, -1)
    sweep(tmp_path, "run.pcap")
    assert path.exists()


def test_mode_and_owner_stay_those_of_the_file_that_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.write_bytes(b"old")
    place.chmod(0o4644)
    path, descriptor = new_file(place, 0o600)
    os.write(descriptor, b"new")
    take_place(path, place, place.stat())
    os.close(descriptor)
    assert place.read_bytes() == b"new"
    assert stat.S_IMODE(place.stat().st_mode) == 0o644
    assert names(tmp_path) == ["out"]


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_owner_and_group_stay_where_we_may_set_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "out"
    place.write_bytes(b"old")
    place.chmod(0o640)
    os.chown(place, 1234, 2345)
    path, descriptor = new_file(place, 0o600)
    take_place(path, place, place.stat())
    os.close(descriptor)
    found = place.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 2345, 0o640)

    def refuse(*arguments: int) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "fchown", refuse)
    path, descriptor = new_file(place, 0o600)
    take_place(path, place, found)
    os.close(descriptor)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600  # what one group could read is not another's


def test_file_systems_that_can_not_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    sync(write)  # EINVAL
    os.close(read)
    os.close(write)
    sync_folder(tmp_path / "none")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        sync(0)
