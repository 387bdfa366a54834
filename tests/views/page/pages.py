"""Pages of whole runs, read back: what stands in them as HTML, and the data that their script unpacks."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rpcinspect.filter.matches import Shown
from rpcinspect.run.run import RunModel
from rpcinspect.tcp.ranges import CaptureBytes
from rpcinspect.views.page.html_page import trace_html
from tests.diff.stories import Story
from tests.truth import capture_of

VOID = {"meta", "br", "hr", "img", "input", "link"}
SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"{SCRIPT}\"'&<img src=x onerror=alert(1)>\u202e\u2028\x1b]0;x\x07"


class Parsed(HTMLParser):
    """A page, read strictly: every element is closed, in order; ids come once."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.feed(page)
        self.close()
        assert not self.open
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs)
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in given.items()]
        if "id" in given:
            self.ids.append(given["id"])
        if "href" in given:
            self.links.append(given["href"])
        if tag == "script":
            self.scripts.append((given, ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            given, text = self.scripts[-1]
            self.scripts[-1] = given, text + data
        elif "style" not in self.open:
            self.text += data

    @property
    def words(self) -> str:
        """Text, with each white space as one blank."""
        return " ".join(self.text.split())


@dataclass
class PageData:
    """What the script unpacks."""

    data: dict[str, Any]
    messages: list[dict[str, Any]]
    contexts: list[list[dict[str, Any]]]

    @classmethod
    def of(cls, page: Parsed) -> PageData:
        found: dict[str, list[Any]] = {"data": [], "messages": [], "contexts": []}
        for given, text in page.scripts:
            if "data-of" not in given:
                continue
            assert given["type"] == "text/plain"
            assert re.fullmatch("[A-Za-z0-9+/]*=*", text)
            value = json.loads(gzip.decompress(b64decode(text)))
            if given["data-of"] == "data":
                found["data"].append(value)
            else:
                assert len(value) == int(given["data-count"])
                found[given["data-of"]] += value
        (data,) = found["data"]
        return cls(data, found["messages"], found["contexts"])

    def column(self, name: str) -> list[int]:
        return self.data["columns"].get(name, [])  # type: ignore[no-any-return]

    def sums(self, name: str) -> list[int]:
        """A column of differences."""
        total, out = 0, []
        for value in self.column(name):
            total += value
            out.append(total)
        return out


def page_text(run: RunModel, shown: Shown | None = None) -> str:
    return b"".join(trace_html(run, shown)).decode("utf-8")


def with_run(name: str | Path, act: Callable[[RunModel], Any]) -> Any:
    """What `act` makes of a bundled capture, while its bytes can be read."""
    path = name if isinstance(name, Path) else capture_of(name)
    with RunModel.open([str(path)]) as opened:
        ends = opened.ends
        return act(RunModel(opened.session, opened.messages, ends=ends, source=opened.bytes))


def story_run(story: Story) -> RunModel:
    """Of a run that a test makes up; all tensors are zeros."""
    session, messages = story.heard()
    return RunModel(session, messages, source=CaptureBytes(lambda capture, offset, length: bytes(length)))
