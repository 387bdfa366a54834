"""The page as HTML: well formed, self-contained, complete, and not to be taken over by what was captured."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from rpcinspect.diff.compare import compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.equality.rules import Rules
from rpcinspect.rpc.command import PythonResp
from rpcinspect.run.run import RunModel
from rpcinspect.views.diff.page import diff_html
from tests.diff.stories import Story
from tests.pairs.expected import Check, checks
from tests.thorough import some

VOID = {"meta", "link", "br", "hr", "img", "input"}
SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"{SCRIPT}\"'&<b>\u202e\x1b]0;x\x07"


class Parsed(HTMLParser):
    """A page, read strictly: every element is closed, in order; ids come once, links lead somewhere."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, dict[str, str]]] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.codes: Counter[str] = Counter()
        """Of lines of rows; what is told to be left out too."""
        self.feed(page)
        self.close()
        assert not self.open
        assert len(self.ids) == len(set(self.ids))
        for tag, name, value in self.attributes:
            if name == "href":
                assert value[0] == "#", (tag, value)
                assert value[1:] in self.ids, value

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs)
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in given.items()]
        if "id" in given:
            self.ids.append(given["id"])
        if tag not in VOID:
            self.open.append((tag, given))

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        inside = [given.get("id") for _, given in self.open]
        if "rows" not in inside or not self.open:
            return
        tag, given = self.open[-1]
        if tag == "b" and given.get("class") == "code":
            self.codes[data] += 1
        elif "data-left-out" in given:
            for count, code in (part.split(" ") for part in data.split(", ")):
                self.codes[code] += int(count.replace(",", ""))


def page_of(comparison: Comparison, runs: tuple[RunModel, RunModel]) -> str:
    return b"".join(diff_html(comparison, runs)).decode("utf-8")


def told(a: Story, b: Story) -> tuple[Comparison, str]:
    runs = a.opened(), b.opened()
    comparison = compare_runs(*runs)  # type: ignore[arg-type]
    return comparison, page_of(comparison, runs)


def check_page(page: str, comparison: Comparison) -> Parsed:
    """What holds of every page."""
    assert page.startswith("<!DOCTYPE html>\n<html")
    parsed = Parsed(page)
    assert parsed.codes == comparison.counts
    assert not parsed.tags.keys() & {"script", "link", "img", "iframe", "object", "form", "base"}
    for tag, name, value in parsed.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "srcset", "action", "style", "xlink:href"), (tag, name)
        assert not re.match(r"\s*(?:[a-z]+:|//)", value, re.I) or (tag, name) == ("meta", "content"), value
    css = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in css
    assert "@import" not in css
    assert all(character == "\n" or character.isprintable() for character in page)
    return parsed


@pytest.mark.parametrize("check", some(checks(), 3), ids=str)
def test_pairs(check: Check) -> None:
    rules = Rules(strict="--strict" in check.flags)
    a, b = (RunModel.open([str(path)]) for path in check.paths())
    with a, b:
        comparison = compare_runs(a, b, rules)
        parsed = check_page(page_of(comparison, (a, b)), comparison)
    text = "".join(parsed.text)
    for found in comparison.found:
        message = comparison.messages[found.message]
        assert f"m{found.message}" in parsed.ids
        assert message.type in text
        assert found.difference.path in text or found.difference.code == "latency"
    head = text[text.index("rpcinspect diff") : text.index("The two runs")]
    assert ("The same" in head) == comparison.same
    assert ("First difference: " in head) != comparison.same


def test_nothing_to_show() -> None:
    comparison, page = told(Story(), Story())
    check_page(page, comparison)
    assert "Neither run has a message." in page


def test_captured_text_is_text() -> None:
    raw = HOSTILE.encode()
    answer = b"\x80\x02X" + len(raw).to_bytes(4, "little") + raw + b"."  # PROTO 2, BINUNICODE, STOP
    a, b = Story(), Story()
    for made in (a, b):
        made.ask(f"app.{HOSTILE}", 1, PythonResp(answer) if made is a else 2)
    b.ask(f"app.{HOSTILE}", 3)
    comparison, page = told(a, b)
    assert any(SCRIPT in str(found.difference.a_value) for found in comparison.found)
    parsed = check_page(page, comparison)
    assert SCRIPT not in page
    assert "".join(parsed.text).count(SCRIPT) > 4
    assert "script" not in parsed.tags
    assert "\\u202e" in page
    assert "\\x1b" in page


def test_names_of_workers_and_all_that_is_said_of_them_are_text() -> None:
    a, b = Story(), Story()
    a.ask("app.f", 1, 1)
    b.ask("app.f", 1, 2)
    comparison, _ = told(a, b)
    assert comparison.first is not None
    comparison = replace(
        comparison,
        a=replace(comparison.a, paths=(HOSTILE,), workers=(HOSTILE,)),
        messages=tuple(replace(one, source=HOSTILE, destination=HOSTILE) for one in comparison.messages),
        found=tuple(
            replace(one, difference=replace(one.difference, path=HOSTILE, text=HOSTILE, a_value=HOSTILE))
            for one in comparison.found
        ),
        first=replace(comparison.first, text=HOSTILE, worker=HOSTILE, function=HOSTILE),
        notes=(HOSTILE,),
    )
    page = page_of(comparison, (a.opened(), b.opened()))
    parsed = check_page(page, comparison)
    assert SCRIPT not in page
    assert "".join(parsed.text).count(SCRIPT) > 8


def test_more_than_there_is_room_for() -> None:
    a, b = Story(), Story()
    for made, first in ((a, 0), (b, 10_000)):
        for n in range(2000):
            made.ask("app.tell", first + n)
    comparison, page = told(a, b)
    assert comparison.different == 2000
    parsed = Parsed(page)
    assert parsed.codes["argument"] == 1000
    assert "1,000 messages in which something differs have no row here: 1,000 argument." in page
    assert len(page) < 3_000_000


def test_its_policy_forbids_scripts_and_loading() -> None:
    _, page = told(Story(), Story())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    style = re.search(r"<style>(.*?)</style>", page, re.S)
    assert policy is not None
    assert style is not None
    digest = b64encode(sha256(style[1].encode()).digest()).decode()
    assert unescape(policy[1]).split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]
    assert "script-src" not in policy[1]
