"""The parts of pages, as HTML: what they say, that it stays text, and that nothing is loaded."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import unescape
from pathlib import Path

from rpcinspect.views.columns import Cell, Column, Links, Table
from rpcinspect.views.html.kit import MAX_CELL, MAX_LINKS, bars, html
from tests.browser import browser, needs_chromium
from tests.views.page.pages import HOSTILE, SCRIPT, Parsed

TEMPLATE = """{% extends "frame.html" %}
{% from "kit.html" import bars, table with context %}
{% block title %}{{ title }}{% endblock %}
{% block body %}
<body>{{ table(one, "nothing") }}{{ bars(some, "nobody") }}
{% endblock %}
"""


def page(folder: Path, **values: object) -> str:
    """What a page with a table and bars becomes."""
    (folder / "test.html").write_text(TEMPLATE)
    (folder / "test.css").write_text("body { color: red; }")
    given = {"title": "t", "one": Table((), (), ()), "some": (), **values}
    return b"".join(html(folder, "test", **given)).decode()  # type: ignore[arg-type]


def test_a_table_with_links(tmp_path: Path) -> None:
    rows: list[list[Cell]] = [["f", Links(range(MAX_LINKS + 3), "made by")], ["g", "gone"]]
    columns = [Column(title="function"), Column(title="calls", right=True)]
    parsed = Parsed(page(tmp_path, one=Table(columns, rows, ("bad", ""), 7)))
    assert parsed.links == [f"#m{index}" for index in range(MAX_LINKS)]
    for words in ("function", "made by #0 #1", "#11 and 3 more", "gone", "and 7 more, which"):
        assert words in parsed.words
    assert ("tr", "class", "bad") in parsed.attributes
    assert parsed.tags["td"] == 4


def test_a_long_cell_is_cut_in_its_middle(tmp_path: Path) -> None:
    name = "app." + "f" * 2 * MAX_CELL + ".last"
    words = Parsed(page(tmp_path, one=Table([Column(title="function")], [[name]], ("",)))).words
    assert name not in words
    assert ".last" in words
    assert max(map(len, words.split())) == MAX_CELL


@needs_chromium
def test_a_long_name_wraps_in_its_cell(tmp_path: Path) -> None:
    columns = [Column(title="function"), Column(title="count", right=True)]
    rows: list[list[Cell]] = [["f" * MAX_CELL, "1,000"]]
    text = page(tmp_path, one=Table(columns, rows, ("",))).replace("<body>", '<body data-ready="yes">')
    (tmp_path / "page.html").write_text(text)
    with browser() as one:
        tab = one.tab(1000, 600)
        tab.open(tmp_path / "page.html")
        assert tab.run("document.querySelector('table').offsetWidth") <= 1000
        assert tab.run("document.querySelector('td').offsetHeight") > 40


def test_without_rows_a_word_stands_for_the_table(tmp_path: Path) -> None:
    parsed = Parsed(page(tmp_path))
    assert parsed.words.endswith("nothing nobody")
    assert parsed.tags["table"] == 0


def test_bars_are_shares_of_the_largest(tmp_path: Path) -> None:
    some = bars([("a", 40, "40 ms", "2 calls"), ("b", 10, "10 ms", ""), ("c", 0, "0 ns", "")])
    assert [bar.share for bar in some] == [1.0, 0.25, 0.0]
    parsed = Parsed(page(tmp_path, some=some))
    assert [value for tag, name, value in parsed.attributes if (tag, name) == ("rect", "width")] == [
        "100.0",
        "25.0",
        "0.0",
    ]
    assert "a 2 calls 40 ms b 10 ms c 0 ns" in parsed.words
    assert [bar.share for bar in bars([("a", 0, "", "")])] == [0.0]


def test_text_stays_text(tmp_path: Path) -> None:
    given = page(
        tmp_path,
        title=HOSTILE,
        one=Table([Column(title=HOSTILE)], [[HOSTILE]], ("",)),
        some=bars([(HOSTILE, 1, HOSTILE, HOSTILE)]),
    )
    assert SCRIPT not in given
    assert Parsed(given).text.count(SCRIPT) == 6


def test_the_policy_allows_what_the_page_brings_alone(tmp_path: Path) -> None:
    text = page(tmp_path, script="let a = '<b>';", data=[b"<i>data</i>\n"])
    policy = re.search(r'content="(default-src[^"]*)"', text)
    assert policy is not None
    style, script = (
        text.split("<style>")[1].split("</style>")[0],
        text.split("<script>")[1].split("</script>")[0],
    )
    assert "color: red" in style
    assert text.index("<i>data</i>") < text.index("<script>")
    assert text.endswith("</script>\n</body>\n</html>\n")
    hashes = [f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in (script, style)]
    assert unescape(policy[1]).split("; ") == [
        "default-src 'none'",
        f"script-src {hashes[0]}",
        f"style-src {hashes[1]}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
