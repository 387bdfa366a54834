"""The page of a whole run as HTML: well formed, complete, self-contained, and not to be taken over by what
was captured. What a browser makes of it is in test_trace_browser.py."""

from __future__ import annotations

import gzip
import json
import math
import re
import struct
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rpcinspect.filter.matches import Shown
from rpcinspect.rpc.command import ExceptionResponse, PythonResp
from rpcinspect.run.participation import Participation
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Worker
from rpcinspect.views.jsonl.message import MessageRenderer
from rpcinspect.views.message_facts import facts_of
from rpcinspect.views.page import html_page
from rpcinspect.views.page.html_page import (
    ASKED,
    CHUNK_BYTES,
    KEYS,
    SCRIPTS,
    TEMPLATES,
    chunks,
    cut,
    exact,
    packed_json,
)
from rpcinspect.views.questions.contexts import graph_json
from tests.checks.code_captures import CAUSED
from tests.diff.stories import Story
from tests.truth import CAPTURES, Workload
from tests.views.page.pages import HOSTILE, SCRIPT, PageData, Parsed, page_text, story_run, with_run

NAMES = sorted(path.name.partition(".")[0] for path in CAPTURES.glob("*.pcap*"))
IDS = {key.decode() for key in KEYS.split(b"|")}


def check_page(page: str) -> tuple[Parsed, PageData]:
    """What holds of every page."""
    assert page.startswith("<!DOCTYPE html>\n<html")
    parsed = Parsed(page)
    data = PageData.of(parsed)
    assert not parsed.tags.keys() & {"link", "img", "iframe", "object", "form", "base", "embed", "video"}
    for tag, name, value in parsed.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "srcset", "action", "style", "xlink:href", "formaction"), (tag, name)
        assert not re.match(r"\s*(?:[a-z]+:|//)", value, re.I) or (tag, name) == ("meta", "content"), value
    for link in parsed.links:
        if re.fullmatch(r"#m\d+", link):
            assert int(link[2:]) in range(10**6)
        elif not link.startswith("#q="):
            assert link[1:] in parsed.ids, link
    assert all(character == "\n" or character.isprintable() for character in page)
    style = page[page.index("<style>") + 7 : page.index("</style>")]
    assert not re.search(r"url\(|@import|expression", style)
    own = [text for given, text in parsed.scripts if not given]
    assert len(own) == 1
    policies = [value for tag, name, value in parsed.attributes if (tag, name) == ("meta", "content")]
    assert policies[0] == (
        f"default-src 'none'; script-src {hash_of(own[0])}; style-src {hash_of(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    no_lost_digits(data.data)
    no_lost_digits(data.messages)
    no_lost_digits(data.contexts)
    return parsed, data


def hash_of(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def no_lost_digits(value: Any, key: str | None = None) -> None:
    """Ids are strings, whatever their size; no number is beyond what JavaScript holds exactly."""
    if isinstance(value, dict):
        for name, inner in value.items():
            no_lost_digits(inner, name)
    elif isinstance(value, list):
        for inner in value:
            no_lost_digits(inner)
    elif isinstance(value, int) and not isinstance(value, bool):
        assert key not in IDS, key
        assert abs(value) < 1 << 53


@pytest.mark.parametrize("name", NAMES)
def test_bundled_captures(name: str) -> None:
    with_run(name, check_against_run)


def check_against_run(run: RunModel) -> None:
    parsed, data = check_page(page_text(run))
    source = run.source
    assert source is not None
    renderer = MessageRenderer(source)
    assert data.data["count"] == len(run.messages) == len(data.messages)
    assert data.sums("index") == [*range(len(run.messages))]
    for record, said in zip(run.messages, data.messages, strict=True):
        values = said.pop("values", None)
        assert (values is None) == (not said["tensors"])
        if values is not None:
            facts = dict(facts_of(record, lambda extent: extent.read(source)))
            shown = [facts.get(f"tensors[{number}].elements", "") for number in range(len(values))]
            assert len(facts) > 190 or values == shown
        asked = said.pop("asked")
        assert asked.keys() == {*ASKED}
        assert [*map(int, asked["id"])] == [record.rpc.message.id]
        norms = said.pop("norms", None)
        assert (norms is None) == (not said["tensors"])
        assert len(norms or ()) == len(said["tensors"])
        assert said == as_strings(json.loads(cut(b"{" + renderer.tail(record))))
    assert len(data.contexts) == len(run.graphs) == len(data.data["contexts"])
    for graph, said, row in zip(run.graphs, data.contexts, data.data["contexts"], strict=True):
        assert said == as_strings(json.loads(orjson.dumps([*graph_json(graph, run.critical_path(graph))])))
        assert row["context_id"] == str(graph.context_id) == said[0]["context_id"]
        assert (row["edges"], row["missing"]) == (len(graph.edges), len(graph.missing))
    for finding, told in zip(run.session.findings, data.data["findings"], strict=True):
        assert (told["code"], told["messages"]) == (finding.code, list(finding.messages))
        assert finding.code in parsed.words
        assert " ".join(finding.text.split())[:80] in parsed.words
    for worker in run.session.workers:
        assert worker.name is None or worker.name in parsed.words


def test_captured_text_is_text_or_packed() -> None:
    raw = HOSTILE.encode("utf-8")
    answer = b"\x80\x02X" + len(raw).to_bytes(4, "little") + raw + b"."  # PROTO 2, BINUNICODE, STOP
    story = Story()
    story.ask(f"app.{HOSTILE}", 1, PythonResp(answer))
    story.ask(f"app.{HOSTILE}", 1, ExceptionResponse(raw))
    run = story_run(story)
    session = run.session
    hostile = replace(
        session,
        clients=tuple(HOSTILE for _ in session.clients),
        servers=tuple(f"{HOSTILE}2" for _ in session.servers),
        workers=(Worker(name=HOSTILE, id=0, group=0, addresses=(HOSTILE,)),),
        captures=tuple(replace(capture, path=f"/a/{HOSTILE}") for capture in session.captures),
        findings=tuple(
            replace(finding, text=HOSTILE, remedy=HOSTILE, workers=(HOSTILE,)) for finding in session.findings
        ),
    )
    page = page_text(RunModel(hostile, run.messages, source=run.source))
    parsed, data = check_page(page)
    assert SCRIPT not in page
    assert "<img" not in page
    assert parsed.words.count(SCRIPT) >= 3
    assert any(SCRIPT in text for text in data.data["texts"])
    assert any(SCRIPT in str(said["body"]) for said in data.messages)
    assert SCRIPT in data.data["functions"][0]


def test_only_what_a_filter_picked() -> None:
    def check(run: RunModel) -> None:
        graph = run.graphs[0]
        index = graph.edges[0].forward
        rows = bytearray(len(run.messages))
        for one in (index, index + 1):
            rows[int(run.session.order[one])] = 1
        shown = Shown("fn ~ <b>", bytes(rows), Participation(frozenset({(graph.job, graph.context_id)})))
        parsed, data = check_page(page_text(run, shown))
        assert data.sums("index") == [index, index + 1]
        assert len(data.messages) == 2
        assert [one["context_id"] for one in data.data["contexts"]] == [str(graph.context_id)]
        assert "Only the messages that match fn ~ <b>" in parsed.words
        assert "2 of 118" in parsed.words
        assert len(data.data["findings"]) < len(run.session.findings)

    with_run("ps_race", check)


def test_an_empty_run(tmp_path: Path) -> None:
    for case in CAUSED["no-rpc", "error"]:
        with RunModel.open([str(case.path(tmp_path))]) as run:
            parsed, data = check_page(page_text(run))
        assert (data.data["count"], data.messages, data.contexts) == (0, [], [])
        assert "No RPC messages" in parsed.words


def test_the_script_makes_text_and_asks_for_nothing() -> None:
    names = {path.name for path in TEMPLATES.glob("*.js")}
    assert names == set(SCRIPTS)
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|\bFunction\(|\bfetch\(|import\(|"
    )
    forbidden += r"XMLHttpRequest|WebSocket|localStorage|sessionStorage|setTimeout\(['\"]|</script|<!--"
    for name in SCRIPTS:
        text = (TEMPLATES / name).read_text(encoding="utf-8")
        assert not re.search(forbidden, text), name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        assert text.isprintable() or all(c == "\n" or c.isprintable() for c in text), name


def test_norms_are_those_of_the_bytes_that_workers_printed() -> None:
    """Of float32 tensors that lie as a whole in what a worker printed of them."""
    told = {}
    for one in Workload("dtype_zoo").of("call"):
        for tensor in one["tensors"]:
            data = bytes.fromhex(tensor.get("head_hex", ""))
            if tensor["dtype"] == "float32" and 0 < len(data) == 4 * math.prod(tensor["shape"]):
                told[tensor["sha256"]] = [value for (value,) in struct.iter_unpack("<f", data)]
    _, data_of = check_page(with_run("dtype_zoo", page_text))
    found = 0
    for said in data_of.messages:
        for tensor, norm in zip(said["tensors"], said.get("norms", ()), strict=True):
            values = told.get(tensor["sha256"])
            if values is None:
                continue
            found += 1
            finite = [value for value in values if math.isfinite(value)]
            assert norm["norm"] == pytest.approx(math.hypot(*finite), rel=1e-5)
            assert norm["nan"] == sum(map(math.isnan, values))
            assert norm["infinite"] == sum(map(math.isinf, values))
    assert found > 10


ID_NAMES = [key.decode() for key in KEYS.split(b"|")]
NASTY = [f'"{name}":12345678901234567890' for name in ID_NAMES]
NASTY += [
    '\\"context_id":5',
    "[12345678901234567890]",
    ",1234567890123456789,",
    "\\",
    '"',
    "</script>",
    "\u2028",
]

texts = st.text(max_size=20) | st.sampled_from(NASTY)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts | st.sampled_from(ID_NAMES), inner, max_size=4)
    ),
    max_leaves=20,
)


def as_strings(value: Any, key: str | None = None) -> Any:
    """The same by walking through it: numbers of ids, and of 16 digits and more, as strings."""
    if isinstance(value, dict):
        return {name: as_strings(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_strings(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if key in ID_NAMES or abs(value) >= 10**15 else value
    return value


@given(values)
def test_long_numbers_and_ids_become_strings(value: Any) -> None:
    assert json.loads(exact(orjson.dumps([value]))) == as_strings([value])


@pytest.mark.parametrize(
    "number", [1.5e300, 12345678901234567.5, 1e-9, 0.1, 0.10000000149011612, -1.9364916731037085]
)
def test_fractions_stay_numbers(number: float) -> None:
    found = json.loads(exact(orjson.dumps({"a": number, "s": "x", "long": 1 << 60})))
    assert found.pop("long") == str(1 << 60)
    assert found in ({"a": number, "s": "x"}, {"a": str(number), "s": "x"})
    assert float(found["a"]) == number


@given(values)
def test_packed_text_is_letters_and_digits(value: Any) -> None:
    text = packed_json({"value": value}).decode()
    assert re.fullmatch("[A-Za-z0-9+/]*=*", text)
    assert json.loads(gzip.decompress(b64decode(text)))["value"] == as_strings(value)


def test_the_same_data_gives_the_same_page() -> None:
    assert packed_json([1, 2]) == packed_json([1, 2])


def test_long_payloads_are_cut() -> None:
    for digits, left in ((10, 10), (1024, 1024), (5000, 1024)):
        json_text = orjson.dumps({"body": {"payload_hex": "a0" * (digits // 2)}, "text": "b" * 5000})
        found = json.loads(cut(json_text))
        assert found["body"]["payload_hex"] == "a0" * (left // 2)
        assert len(found["text"]) == 5000


def test_chunks_hold_everything_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_page, "CHUNK_BYTES", 100)
    objects = [orjson.dumps({"n": n, "text": "x" * (n % 70)}) for n in range(200)]
    found: list[Any] = []
    sizes = []
    for count, text in chunks(iter(objects)):
        part = json.loads(gzip.decompress(b64decode(text)))
        assert len(part) == count
        sizes.append(count)
        found += part
    assert [one["n"] for one in found] == [*range(200)]
    assert len(sizes) > 50
    assert [*chunks(iter(()))] == []
    assert CHUNK_BYTES > 10_000
