"""The file of notes: what is kept, what of it is believed, what happens where it can't be written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.browse.notes_file import MAX_FILE, MAX_NOTE, NotePlace, NotesFile
from tests.places import CAPTURES

HERE = NotePlace(offset=667, type=273, packet=399, flow="127.0.0.1:60850>127.0.0.1:33617")
THERE = NotePlace(offset=12, type=0)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return Path(shutil.copy(CAPTURES / "basic_chain.pcap", tmp_path / "run.pcap"))


def kept(capture: Path, **other: Any) -> dict[str, Any]:
    """What a file says that was written for a capture as it is, but for what is given."""
    found = capture.stat()
    version = {"size": found.st_size, "mtime_ns": found.st_mtime_ns}
    return {
        "format": 1,
        "capture": version,
        "notes": [{"place": {"offset": 1, "type": 0}, "note": "x"}],
        **other,
    }


def test_notes_are_there_again_and_go_with_the_last(capture: Path) -> None:
    file = NotesFile(capture)
    file.change(HERE, "NaN begins here\n\x1b[31m")
    file.change(THERE, "")
    assert NotesFile(capture).notes == {HERE: "NaN begins here\n\x1b[31m", THERE: ""}
    assert oct(file.path.stat().st_mode)[-3:] == "600"
    file.change(HERE, None)
    file.change(THERE, None)
    assert not file.path.exists()
    assert os.listdir(capture.parent) == ["run.pcap"]


def test_two_browsers_keep_what_each_of_them_notes(capture: Path) -> None:
    one, other = NotesFile(capture), NotesFile(capture)
    one.change(HERE, "of one")
    other.change(THERE, "of the other")
    assert NotesFile(capture).notes == {HERE: "of one", THERE: "of the other"} == other.notes
    one.change(HERE, None)
    assert NotesFile(capture).notes == {THERE: "of the other"} == one.notes


def test_a_capture_that_has_changed_is_another_one(capture: Path) -> None:
    NotesFile(capture).change(HERE, "")
    assert not NotesFile(capture).is_of_another
    with capture.open("ab") as file:
        file.write(b"more")
    assert NotesFile(capture).is_of_another
    assert NotesFile(capture).notes == {HERE: ""}


def test_a_note_of_the_longest_kind_is_kept(capture: Path) -> None:
    NotesFile(capture).change(HERE, "\u202e" * MAX_NOTE)
    assert NotesFile(capture).notes == {HERE: "\u202e" * MAX_NOTE}


HOSTILE: dict[str, bytes | dict[str, Any]] = {
    "no JSON": b"\x00\xff\x1b[2J",
    "deep": b"[" * 1_000_000,
    "deep where a note is expected": b'{"format":1,"capture":' + b'{"a":' * 500_000,
    "of another format": {"format": 2},
    "a number for a text": {"notes": [{"place": {"offset": 1, "type": 0}, "note": 7}]},
    "a text for a number": {"notes": [{"place": {"offset": "1", "type": 0}, "note": ""}]},
    "a list for an object": {"notes": [["place", "note"]]},
    "a member that nobody knows": {"program": "rm -rf /"},
    "a note beyond the limit": {"notes": [{"place": {"offset": 1, "type": 0}, "note": "x" * (MAX_NOTE + 1)}]},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_told_and_left_alone(capture: Path, what: str) -> None:
    content = HOSTILE[what]
    data = content if isinstance(content, bytes) else json.dumps(kept(capture, **content)).encode()
    path = capture.with_name("run.pcap.rpcnotes")
    path.write_bytes(data)
    file = NotesFile(capture)
    assert "neither read nor written over" in file.why
    file.change(HERE, "kept in memory")
    assert file.notes == {HERE: "kept in memory"}
    assert path.read_bytes() == data


def test_what_the_hostile_files_differ_from_is_read(capture: Path) -> None:
    capture.with_name("run.pcap.rpcnotes").write_text(json.dumps(kept(capture)))
    file = NotesFile(capture)
    assert (file.why, file.is_of_another) == ("", False)
    assert file.notes == {NotePlace(offset=1, type=0): "x"}


@pytest.mark.parametrize("kind", ["gigabyte", "pipe", "folder", "loop"])
def test_what_is_no_small_file_is_not_waited_for(capture: Path, kind: str) -> None:
    path = capture.with_name("run.pcap.rpcnotes")
    if kind == "gigabyte":
        with path.open("wb") as file:
            file.truncate(1 << 30)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path)
    notes = NotesFile(capture)
    assert "neither read nor written over" in notes.why
    assert kind != "gigabyte" or f"{MAX_FILE:,}" in notes.why


def test_where_nothing_can_be_written_notes_are_kept_in_memory(tmp_path: Path) -> None:
    """No name is left beside this capture, which stops root too."""
    capture = Path(shutil.copy(CAPTURES / "basic_chain.pcap", tmp_path / ("x" * 250 + ".pcap")))
    file = NotesFile(capture)
    file.change(HERE, "in memory")
    assert file.why
    assert file.notes == {HERE: "in memory"}
    assert os.listdir(tmp_path) == [capture.name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_told(capture: Path) -> None:
    capture.parent.chmod(0o500)
    try:
        file = NotesFile(capture)
        assert file.why == ""
        file.change(HERE, "in memory")
        assert "until the end of this program only" in file.why
        assert file.notes == {HERE: "in memory"}
    finally:
        capture.parent.chmod(0o700)


def test_a_capture_that_is_gone_is_told(capture: Path) -> None:
    file = NotesFile(capture)
    capture.unlink()
    file.change(HERE, "in memory")
    assert "until the end of this program only" in file.why
    assert os.listdir(capture.parent) == []
