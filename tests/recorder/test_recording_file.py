"""The file of a recording: it grows, and nobody else may read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rpcinspect.errors import RecordError
from rpcinspect.recorder.recording_file import begin_recording


def test_a_new_file_is_ours_alone_and_grows(tmp_path: Path) -> None:
    path = tmp_path / "run.pcap"
    descriptor = begin_recording(path)
    os.write(descriptor, b"one")
    assert path.read_bytes() == b"one"
    os.close(descriptor)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_the_file_held_goes_or_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "run.rpclog"
    path.write_bytes(b"old")
    os.close(begin_recording(path, append=True))
    assert path.read_bytes() == b"old"
    os.close(begin_recording(path))
    assert path.read_bytes() == b""


@pytest.mark.parametrize("name", [".", "no/such/folder", "nul\0"])
def test_what_can_not_be_written_is_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="can't be written: "):
        begin_recording(tmp_path / name)
