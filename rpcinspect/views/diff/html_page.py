"""A comparison as one page of HTML, which needs nothing but itself: no script, no network, no other file.

In: a comparison, and the two runs. Out: pieces of UTF-8. Everything captured goes through the template
library's escaping; the page's own policy forbids scripts and whatever would be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rpcinspect.diff.model import Comparison
from rpcinspect.run.run import Run
from rpcinspect.views.diff.page import page_of
from rpcinspect.views.diff.rows import Row

TEMPLATES = Path(__file__).parent / "templates"


def diff_html(comparison: Comparison, runs: tuple[Run, Run]) -> Iterator[bytes]:
    """The page, piece by piece."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["row"] = lambda item: isinstance(item, Row)
    stream = environment.get_template("diff.html").stream(page=page_of(comparison, runs))
    stream.enable_buffering(64)
    for piece in stream:
        yield piece.encode("utf-8")
