"""Several files that appear together."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rpcinspect.errors import OutputError
from rpcinspect.files.output import OutputFolder


def fill(output: OutputFolder, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        with output.new(name) as file:
            file.write(data)


def found(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_they_are_there_when_all_are(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    output = OutputFolder(folder, private=True)
    files = {"index": b"12", "part/1": b"one", "part/2": b"two"}
    fill(output, files)
    assert not [name for name in found(folder) if not name.startswith(".")]
    assert output.put(mark="index") == 8
    assert found(folder) == files
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in files} == {0o600}


def test_what_is_obsolete_goes_and_others_stay(tmp_path: Path) -> None:
    for name in ("1", "2", "3", "mine"):
        (tmp_path / name).write_bytes(b"old")
    (tmp_path / "1").chmod(0o644)
    output = OutputFolder(tmp_path, private=True)
    fill(output, {"1": b"new"})
    output.put(obsolete=["1", "2", "3"])
    assert found(tmp_path) == {"1": b"new", "mine": b"old"}
    assert stat.S_IMODE((tmp_path / "1").stat().st_mode) == 0o644


def test_the_mark_goes_first_and_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("index", "1"):
        (tmp_path / name).write_bytes(b"old")
    output = OutputFolder(tmp_path, private=True)
    fill(output, {"index": b"new", "1": b"new"})
    replace, seen = os.replace, []

    def watched(source: Path, target: Path) -> None:
        seen.append((target.name, (tmp_path / "index").exists()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    output.put(mark="index")
    assert seen == [("1", False), ("index", False)]


def test_nothing_is_left_of_what_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "1").write_bytes(b"old")
    for folder in (tmp_path / "new", tmp_path / "there"):
        output = OutputFolder(folder, private=True)
        fill(output, {"1": b"new"})
        output.drop()
        output.drop()
    assert not (tmp_path / "new").exists()
    assert found(tmp_path) == {"there/1": b"old"}


def test_a_link_at_the_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "1").symlink_to("../outside")
    output = OutputFolder(tmp_path / "folder", private=True)
    fill(output, {"1": b"new"})
    output.put()
    assert (tmp_path / "outside").read_bytes() == b"mine"
    assert not (tmp_path / "folder" / "1").is_symlink()


@pytest.mark.parametrize("name", ["file", "file/below", "a\0b", "/proc/none"])
def test_folders_that_can_not_be(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="can't be written: "):
        OutputFolder(tmp_path / name, private=True)


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("link", [False, True])
def test_a_folder_that_a_stranger_has_put_into_a_shared_one(link: bool, tmp_path: Path) -> None:
    """He could replace there what we write, such as a dissector that Wireshark is to run."""
    common, place = tmp_path / "common", tmp_path / "common" / "run.ws"
    common.mkdir()
    if link:
        (tmp_path / "ours").mkdir()
        place.symlink_to(tmp_path / "ours")
    else:
        place.mkdir()
    os.chown(place, 65_534, -1, follow_symlinks=False)
    common.chmod(0o1777)
    with pytest.raises(OutputError, match="belongs to user 65534, in a folder that others may write to"):
        OutputFolder(place, private=True)
    assert not found(tmp_path)
    os.chown(place, 0, -1, follow_symlinks=False)
    OutputFolder(place, private=True).drop()


def test_what_stands_in_the_way_is_told_and_all_else_stays(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"old")
    (tmp_path / "2").mkdir()
    output = OutputFolder(tmp_path, private=True)
    fill(output, {"2": b"new"})
    with pytest.raises(OutputError, match=f"{tmp_path}: can't be written: Is a directory"):
        output.put()
    output.drop()
    assert found(tmp_path) == {"1": b"old"}
