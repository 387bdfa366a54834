"""What every page of HTML is made of: tables, links, bars, the frame around the page, its policy.

In: plain data, whose text is printable and not escaped, and the folder of a page's own template and style.
Out: pieces of UTF-8. Everything captured goes through the template library's escaping. A page needs nothing
but itself: its policy allows its one style and its one script, told by their hashes, and forbids everything
else, loading above all.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct

from rpcinspect.fields.phrases import printable, shorten, shorten_middle

TEMPLATES = Path(__file__).parent / "templates"
MAX_LINKS = 12
"""Messages that a cell names."""
MAX_TEXT = 2000
"""Characters of a paragraph."""
MAX_CELL = 300
"""Characters of a cell, which is cut in its middle."""


class Link(Struct, frozen=True):
    """A place on the page; only its text where the page has no such place."""

    text: str
    anchor: str | None = None


class Bar(Struct, frozen=True):
    """An amount beside others: its words, and its share of the largest."""

    name: str
    words: str
    share: float
    remark: str = ""


def bars(amounts: Sequence[tuple[str, float, str, str]]) -> tuple[Bar, ...]:
    """Makes bars of (name, amount, its words, remark)."""
    most = max((amount for _, amount, _, _ in amounts), default=0) or 1
    return tuple(Bar(name, words, amount / most, remark) for name, amount, words, remark in amounts)


def html(
    folder: Path, name: str, *, script: str = "", data: Iterable[bytes] = (), **values: Any
) -> Iterator[bytes]:
    """Writes the page that `name`.html in a folder makes of values, with `name`.css as its style; what the
    script unpacks comes as elements of `data` in front of it.
    """
    loader = FileSystemLoader([folder, TEMPLATES])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["plain"] = lambda text: shorten(printable(text), MAX_TEXT)
    environment.filters["cut"] = lambda text: shorten_middle(text, MAX_CELL)
    environment.globals["max_links"] = MAX_LINKS
    style = file_text(TEMPLATES / "kit.css") + file_text(folder / f"{name}.css")
    stream = environment.get_template(f"{name}.html").stream(
        style=style, policy=_policy(style, script), **values
    )
    stream.enable_buffering(64)
    for piece in stream:
        yield piece.encode("utf-8")
    yield from data
    if script:
        yield b"<script>%b</script>\n" % script.encode("utf-8")
    yield b"</body>\n</html>\n"


@cache
def file_text(path: Path) -> str:
    """Reads a file of ours."""
    return path.read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    scripts = f"script-src {_hash(script)}; " if script else ""
    return f"default-src 'none'; {scripts}style-src {_hash(style)}; base-uri 'none'; form-action 'none'"


def _hash(source: str) -> str:
    return f"'sha256-{b64encode(sha256(source.encode('utf-8')).digest()).decode()}'"
