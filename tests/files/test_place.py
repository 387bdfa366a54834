"""Where an output goes: links, what is no file, and what somebody else has put there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rpcinspect.errors import OutputError
from rpcinspect.files.place import find_place, writing

STRANGER = 65_534


def test_a_new_place_and_a_file_are_taken_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    new, file = find_place(tmp_path / "new"), find_place(tmp_path / "file")
    assert new.whole
    assert new.there is None
    assert file.whole
    assert file.there is not None
    assert file.path == tmp_path / "file"


def test_links_are_followed_to_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "folder").symlink_to("below")
    (tmp_path / "first").symlink_to("folder/second")
    (tmp_path / "below" / "second").symlink_to("../file")
    assert find_place(tmp_path / "first").path == tmp_path / "file"
    (tmp_path / "file").write_bytes(b"")
    assert find_place(tmp_path / "first").there is not None


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OutputError, match="can't be written: Too many levels of symbolic links"):
        find_place(tmp_path / "a")


def test_what_is_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        assert not find_place(path).whole


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_an_open_file_stands_for_itself(name: str, tmp_path: Path) -> None:
    """Whatever is behind it, such as the file of a shell's `>`: another one in its place would be no use."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    with (tmp_path / "file").open("wb") as file:
        file.write(b"before, ")
        file.flush()
        place = find_place(Path(name.format(file.fileno())))
        assert not place.whole
        descriptor = place.open(0o600)
        os.write(descriptor, b"behind")
        os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"before, behind"


@pytest.mark.parametrize("name", [".", "..", "/dev/fd/999"])
def test_places_that_are_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't be written: "):
        find_place(tmp_path / name)


def test_a_name_with_a_zero_byte(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="can't be written: embedded null byte"):
        find_place(tmp_path / "a\0b")


def test_a_file_that_may_not_be_written_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *arguments, **others: False)  # root may write everything
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OutputError, match="can't be written: Permission denied"):
        find_place(tmp_path / "file")


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o1775])
def test_what_a_stranger_has_put_into_a_shared_folder(kind: str, mode: int, tmp_path: Path) -> None:
    common, path = tmp_path / "common", tmp_path / "common" / "run.pcap"
    common.mkdir()
    if kind == "link":
        path.symlink_to(tmp_path / "passwd")
    elif kind == "file":
        path.write_bytes(b"")
    else:
        os.mkfifo(path)
    os.chown(path, STRANGER, -1, follow_symlinks=False)
    common.chmod(mode)
    with pytest.raises(OutputError, match=f"belongs to user {STRANGER}, in a folder that others may write"):
        find_place(path)
    os.chown(common, STRANGER, -1)  # as in his own folder
    assert find_place(path).path in (path, tmp_path / "passwd")


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_folder_of_a_group_is_shared_by_those_who_trust_each_other(tmp_path: Path) -> None:
    path = tmp_path / "run.pcap"
    path.write_bytes(b"")
    os.chown(path, STRANGER, -1)
    tmp_path.chmod(0o775)
    assert find_place(path).whole


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        (None, OSError(errno.ENOSPC, "No space"), "standard output: can't be written: No space"),
        (Path("a"), OSError("odd"), "a: can't be written: odd"),
    ],
)
def test_failed_writes_say_where(path: Path | None, error: OSError, said: str) -> None:
    with pytest.raises(OutputError) as caught, writing(path):
        raise error
    assert str(caught.value) == said
    assert caught.value.__cause__ is error


def test_other_errors_are_not_touched() -> None:
    with pytest.raises(ValueError, match="mine"), writing(None):
        raise ValueError("mine")
