"""The site of the documentation: its reference is that of the program, every page has its place, and what is
built asks nothing of another host and has no dead link.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

from tests.browser import browser, needs_chromium
from tests.places import ROOT


def maker() -> ModuleType:
    """docs/ is no package."""
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "docs" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = maker()
RESULTS = "[...document.activeElement.shadowRoot.querySelectorAll('ol li')].map((item) => item.innerText)"
"""What the search shows; it keeps its elements to itself."""


@pytest.mark.parametrize("name", ["commands.md", "fields.md"])
def test_the_reference_is_that_of_the_program(name: str) -> None:
    committed = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert committed == MAKER.reference()[name], "make docs writes it"


def test_every_page_has_a_place_in_the_site() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r": ([\w/-]+\.md)$", config, re.MULTILINE)
    assert sorted(listed) == sorted(MAKER.pages().values()), "each needs one line of nav in mkdocs.yml"


class Page(HTMLParser):
    """What a page links to, loads, and can be linked to by."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if "id" in has:
            self.anchors.add(has["id"])
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
        elif tag in ("link", "script", "img", "iframe", "source"):
            self.loads += [has[name] for name in ("href", "src", "srcset") if has.get(name)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. The caches of Zensical and what was built before stay as they are."""
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("site")
    MAKER.stage(folder / "build" / "docs")
    shutil.copyfile(ROOT / "mkdocs.yml", folder / "mkdocs.yml")
    zensical = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(zensical, cwd=folder, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.mark.slow
def test_the_built_site_loads_nothing_from_elsewhere_and_has_no_dead_link(site: Path) -> None:
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    assert len(pages) > len(MAKER.pages())  # and 404.html
    for path, page in pages.items():
        assert [link for link in page.loads if re.match(r"(\w+:)?//", link)] == [], path
        for link in page.links + page.loads:
            name, _, anchor = link.partition("#")
            if re.match(r"\w+:", link) or path.name == "404.html":
                continue
            target = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            if target.is_dir():
                target /= "index.html"
            assert target.is_file(), f"{path.name} links to {link}"
            if anchor and target in pages:
                assert unquote(anchor) in pages[target].anchors | {"__skip"}, f"{path.name} links to {link}"
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\(\s*['\"]?(?:https?:)?//", styles) == []
    assert "@import" not in styles


@pytest.mark.slow
@needs_chromium
def test_the_search_finds_a_page_without_a_web_server(site: Path) -> None:
    with browser() as chromium:
        tab = chromium.tab()
        tab.size(1200, 800)
        tab.call("Page.navigate", url=f"file://{site}/tutorials/hang.html")
        tab.wait("document.readyState === 'complete' && !!document.querySelector('.md-search__button')")
        tab.run("document.querySelector('.md-search__button').click()")
        tab.wait("document.activeElement?.shadowRoot?.activeElement?.tagName === 'INPUT'")
        tab.call("Input.insertText", text="gradient is missing")
        tab.wait(f"({RESULTS}).some((text) => text.startsWith('A gradient is missing'))")
    assert tab.errors == []
    assert {url.partition(":")[0] for url in tab.requests} <= {"file", "data", "blob"}
