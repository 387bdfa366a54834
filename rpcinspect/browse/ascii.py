"""What is drawn, for terminals that show ASCII only: every other character as one that looks like it.

In: text that goes to the terminal; escape sequences of ours are ASCII. Out: the same, as wide.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping

from rich.cells import get_character_cell_size

UNKNOWN = "?"
LOOK_ALIKE = {
    "→▶▸▷›»❯": ">",
    "←◀◂◁‹«": "<",
    "↑▲△▴": "^",
    "↓▼▽▾": "v",
    "⇄↔": "=",
    "…⋮": "~",
    "·•∙": ".",
    "●◉■◆★": "*",
    "○□": "o",
    "✓✔": "+",
    "✗✘×❌": "x",
    "µμ": "u",
    "┄┈╌": ".",
    "–—−─━═▔▀⎺": "-",
    "▁▂▃▄⎽": "_",
    "│┃┆┊║▏▎▍▌▐▕╎": "|",
    "█▇▆▅▉▊▋▓▒░": "#",
    "‘’": "'",
    "“”": '"',
}


class AsciiTable(dict[int, str]):
    """For `str.translate`: made for characters as they come."""

    def __missing__(self, code: int) -> str:
        found = self[code] = chr(code) if code < 0x80 else _ascii(chr(code))
        return found


def _ascii(character: str) -> str:
    """Returns as many characters of ASCII as a character takes cells."""
    cells = get_character_cell_size(character)
    if 0x2500 <= ord(character) <= 0x257F:
        return "+"
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return plain if len(plain) == cells and plain.isprintable() else UNKNOWN * cells


TABLE = AsciiTable({ord(one): plain for those, plain in LOOK_ALIKE.items() for one in those})


def as_ascii(text: str) -> str:
    """Returns text for a terminal that shows ASCII only."""
    return text if text.isascii() else text.translate(TABLE)


def shows_ascii_only(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether the locale says so; where none is set, terminals of today show the rest, too."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if environment.get(name):
            return "utf" not in environment[name].lower().replace("-", "")
    return False
