"""What hatchling asks while it builds a wheel or sdist: a README without dead links, and the man pages.

In: the checkout, or what an sdist unpacks to. Out: README.md for a package index, which shows it alone;
a page for each command in share/man/man1 of a wheel.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https:)[^)]*\)\n\n?", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\((?!https:)([^)]*)\)")


def for_an_index(readme: str) -> str:
    """Returns the text without pictures of ours, and with the names of files in place of links to them."""
    parts = CODE.split(readme)
    parts[::2] = [LINK.sub(_in_words, PICTURE.sub("", text)) for text in parts[::2]]
    return "".join(parts)


def _in_words(link: re.Match[str]) -> str:
    said, file = link.groups()
    return said if said == file else f"{said} ({file})"


class Readme(MetadataHookInterface):
    """Makes the long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Adds it to the metadata of the project."""
        text = for_an_index(Path(self.root, "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class ManPages(BuildHookInterface[Any]):
    """Adds the man pages to a wheel; an editable install, whose commands may change, has none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Writes the pages where they lie until the wheel is made."""
        self.folder = TemporaryDirectory()
        if version != "editable":
            sys.path.insert(0, self.root)
            write_pages = runpy.run_path(str(Path(self.root, "docs", "man.py")))["write_pages"]
            for page in write_pages(Path(self.folder.name)):
                build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes them from there."""
        self.folder.cleanup()
