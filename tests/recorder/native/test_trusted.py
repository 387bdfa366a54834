"""What may be loaded: nobody else could have put it there."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from rpcinspect.recorder.native import trusted
from rpcinspect.recorder.native.trusted import parts, why_not

STRANGER = 65_534


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A file two folders below one that is ours."""
    path = tmp_path / "cache" / "agent" / "lib.so"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    for each in (path, path.parent, path.parent.parent):
        each.chmod(0o700)
    return path


def test_every_part_is_looked_at(library: Path, tmp_path: Path) -> None:
    """Links and what they lead to, too."""
    (tmp_path / "short").symlink_to("cache/../cache")
    (tmp_path / "far").symlink_to(tmp_path / "short" / "agent")
    seen = [part for part, _ in parts(str(tmp_path / "far" / "lib.so"))]
    wanted = [tmp_path / "far", tmp_path / "short", tmp_path / "cache", library.parent, library]
    places = [seen.index(str(each)) for each in wanted]
    assert places == sorted(places)
    assert seen[0] == "/"


def test_what_is_ours_alone_is_trusted(library: Path) -> None:
    assert why_not(str(library)) is None
    assert why_not(str(library.parent)) is None


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o777, 0o702])
def test_what_others_may_write_to_is_not(which: int, mode: int, library: Path) -> None:
    changed = [library, *library.parents][which]
    changed.chmod(mode)
    assert why_not(str(library)) == f"{changed}: others may write to it"


def test_a_folder_with_the_sticky_bit_keeps_ours_safe_and_a_file_does_not(library: Path) -> None:
    library.parent.chmod(0o1777)
    assert why_not(str(library)) is None
    library.chmod(0o1777)
    assert why_not(str(library)) == f"{library}: others may write to it"


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_belongs_to_somebody_else_is_not(which: int, library: Path) -> None:
    changed = [library, *library.parents][which]
    os.chown(changed, STRANGER, -1)
    assert why_not(str(library)) == f"{changed}: belongs to user {STRANGER}, neither to you nor to root"


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_link_that_somebody_else_has_made_is_not(library: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(library.parent)
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    assert why_not(str(link / "lib.so")) == f"{link}: belongs to user {STRANGER}, neither to you nor to root"


@pytest.mark.rooted
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_group_is_others_unless_it_is_ours_alone(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library.parent.chmod(0o770)
    assert why_not(str(library)) is None  # root's own
    os.chown(library.parent, -1, 1)
    assert why_not(str(library)) == f"{library.parent}: others may write to it"
    monkeypatch.setattr(trusted, "is_ours", lambda group: group == 1)
    assert why_not(str(library)) is None


def test_a_group_of_a_user_s_own() -> None:
    us = pwd.getpwuid(os.geteuid())
    assert trusted.is_ours(0)
    assert not trusted.is_ours(1)
    assert not trusted.is_ours(4_000_000_000)
    assert trusted.is_ours(us.pw_gid) or us.pw_gid


def test_what_is_not_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    assert why_not(str(tmp_path / "none")) == f"{tmp_path / 'none'}: No such file or directory"
    assert why_not(str(tmp_path / "a" / "b")) == f"{tmp_path / 'a' / 'b'}: too many links"
