"""Temporary files: what room they leave, and what they give back."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcinspect.errors import NoRoomError, OutputError
from rpcinspect.files.temporary import Temporary, temporary_folder


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 8 MiB for temporary files."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip("mounting is not allowed here")
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_what_is_written_is_read_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Temporary() as file:
        assert file.write(b"0123456789") == 10
        assert file.write(memoryview(b"abc")) == 3
        assert file.pread(8, 100) == b"89abc"
        assert file.pread(100, 1) == b""
        assert list(tmp_path.iterdir()) == []
    assert temporary_folder() == tmp_path


@pytest.mark.rooted
def test_a_part_of_the_disk_stays_free(small_disk: Path) -> None:
    with Temporary() as file:
        with pytest.raises(NoRoomError) as caught:
            file.writelines([bytes(1 << 20)] * 100)
        state = os.statvfs(small_disk)
        assert 0 < state.f_bavail * state.f_frsize < 2 << 20
        size = os.fstat(file.fileno()).st_size
        assert size % (1 << 20) == 0  # nothing was half written
        assert size >= 6 << 20
    assert str(caught.value).startswith(f"no room for temporary files in {small_disk}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.rooted
def test_what_nobody_needs_any_more_makes_room(small_disk: Path) -> None:
    with Temporary() as file:
        for number in range(50):
            file.write(bytes([number]) * (1 << 20))
            if number > 2:
                file.give_back((number - 3) << 20, (number - 2) << 20)
        assert file.pread(49 << 20, 3) == bytes([49]) * 3
        assert file.pread(10 << 20, 3) == bytes(3)


def test_a_write_that_fails_is_no_room(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with (
            Temporary() as file,
            pytest.raises(NoRoomError, match=r"no room for .*: File too large; set TMPDIR"),
        ):
            file.write(bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_where_none_can_be_made_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(OutputError, match="none: can't make a temporary file: No such file or directory"):
        Temporary()


def test_small_ranges_and_empty_ones_are_not_given_back() -> None:
    with Temporary() as file:
        file.write(b"x" * 100_000)
        file.give_back(0, 1000)
        file.give_back(50_000, 10)
        assert file.pread(0, 100_000) == b"x" * 100_000
