"""The pictures of the documentation: all are used, can be made again, are small, and load nothing."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from tests.browse.test_pictures import SCREENS

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
MAX_BYTES = 200_000


def test_every_picture_is_shown_and_can_be_made_again() -> None:
    there = {path.name for path in PICTURES.iterdir() if path.suffix in (".png", ".svg")}
    names = ("views.md", "browse.md", "../README.md")
    pages = [(PICTURES.parent / name).read_text(encoding="utf-8") for name in names]
    assert set(re.findall(r"\((?:docs/)?pictures/([^)]+)\)", "".join(pages))) == there
    made = runpy.run_path(str(PICTURES / "make.py"))["PICTURES"]
    browsed = {"browse-diff", *(f"browse-{screen.name}" for screen in SCREENS)}
    assert {Path(name).stem for name in there} == {*made, *browsed}


def test_pictures_are_small_and_need_nothing_else() -> None:
    for path in PICTURES.glob("*.png"):
        assert path.stat().st_size < MAX_BYTES, path
        assert path.read_bytes().startswith(b"\x89PNG\r\n")
    for path in PICTURES.glob("*.svg"):
        assert path.stat().st_size < MAX_BYTES, path
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"url\(\s*['\"]?(?!#)|@import|<image|<script|href=", text), path
