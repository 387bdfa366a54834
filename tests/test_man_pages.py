"""The man pages as `man` shows them, against the help of each command."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT

if shutil.which("groff") is None:
    pytest.skip("groff is not installed", allow_module_level=True)

MAN = runpy.run_path(str(ROOT / "docs" / "man.py"))
COMMANDS = list(MAN["commands"]())
WIDE = "1000"
HOSTILE = (
    ".so /etc/passwd",
    "'br",
    r"\fBbold\fP \n(.g \\ \" \&",
    '-f \'call ~ "forward"\' --all ^ `x` a.b "" \t|',
    "→ é … ≥ 4-byte 🙂",
    '.TH "x" "y',
    "..",
    "\\",
)


def shown(page: str) -> str:
    """The page on a terminal that is wide enough for each line. No warning of groff's is let pass."""
    groff = ["groff", "-ww", "-man", "-Tutf8", f"-rLL={WIDE}n", "-P-cbou"]
    done = subprocess.run(groff, input=page.encode("ascii"), capture_output=True, check=True)
    assert done.stderr.decode() == ""
    return done.stdout.decode()


def words(text: str) -> list[str]:
    return text.split()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name → the page as it is shown."""
    written = MAN["write_pages"](tmp_path_factory.mktemp("man"))
    return {path.name: shown(path.read_text()) for path in written}


@pytest.mark.parametrize(("context", "command"), COMMANDS, ids=[c.command_path for c, _ in COMMANDS])
def test_a_page_says_what_the_help_says(context: Any, command: Any, pages: dict[str, str]) -> None:
    page = pages[f"{context.command_path.replace(' ', '-')}.1"]
    context.terminal_width = context.max_content_width = int(WIDE)
    help_lines = [line.strip() for line in command.get_help(context).splitlines() if line.strip()]
    assert len(help_lines) > 5
    page_words = " ".join(words(page))
    for line in help_lines:
        if line.endswith(":"):
            title = line.removesuffix(":").upper()
            assert re.search(rf"^({title}|EXIT STATUS)$", page, re.MULTILINE), line
        else:
            assert " ".join(words(line.removeprefix("Usage: "))) in page_words
    assert [page.count(f"\n{title}\n") for title in ("NAME", "SYNOPSIS", "DESCRIPTION")] == [1, 1, 1]


def test_pages_refer_to_pages_that_are_there(pages: dict[str, str]) -> None:
    named = {f"{name}.1" for page in pages.values() for name in re.findall(r"(rpcinspect[a-z-]*)\(1\)", page)}
    assert named == set(pages)


def test_whatever_a_text_holds_is_shown_as_it_is() -> None:
    page = MAN["Page"]("name", "brief")
    for text in HOSTILE:
        page.write_text(text)
        page.write_dl([(text, text)])
        page.write(text)
    lines = [" ".join(words(line)) for line in shown("\n".join(page.lines)).splitlines()]
    for text in HOSTILE:
        expected = " ".join(words(text))
        assert "\n".join(lines).count(expected) >= 4, text


def test_the_folder_has_nothing_else(tmp_path: Path) -> None:
    assert sorted(MAN["write_pages"](tmp_path / "new")) == sorted((tmp_path / "new").iterdir())
