"""docs/parquet.md against the program: its columns are those of the tables, and its queries, as they stand
there, run by DuckDB over all bundled captures, give the answers that stand below them, which are what jsonl's
lines say.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from rpcinspect.export.parquet.schema import TABLES
from rpcinspect.views.questions.contexts import context_json
from tests.checks.runs import traced
from tests.decoded import Decoded, decode
from tests.export.parquet.lakes import write_lake
from tests.truth import CAPTURES, workload

PAGE = CAPTURES.parent / "docs" / "parquet.md"
PATHS = {path.name.partition(".")[0]: path for path in sorted(CAPTURES.glob("*.pcap*"))}

QUERY = re.compile(r"^### ([^\n]+\?)\n.*?^```sql\n(.*?)^```\n\n(.*?)\n\n", re.MULTILINE | re.DOTALL)
TABLE = re.compile(
    r"^### (\w+)\n\n\| column \| type \| what it is \|\n\|---\|---\|---\|\n(.*?)\n\n", re.M | re.S
)

WORDS = {
    pa.int64(): "int64",
    pa.int32(): "int32",
    pa.bool_(): "bool",
    pa.float64(): "double",
    pa.string(): "text",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.list_(pa.string()): "list of text",
    pa.list_(pa.int64()): "list of int64",
    pa.map_(pa.string(), pa.string()): "map",
}

Row = tuple[Any, ...]


@cache
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def queries() -> dict[str, tuple[str, str]]:
    """Question → the query, and the answer as it stands below."""
    return {title: (query, answer) for title, query, answer in QUERY.findall(page())}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """The views of the page over all bundled captures."""
    folder = tmp_path_factory.mktemp("fleet")
    for path in PATHS.values():
        write_lake(folder / "lake", [path])
    (views,) = (
        block for block in re.findall(r"^```sql\n(.*?)^```", page(), re.M | re.S) if "CREATE" in block
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with duckdb.connect() as connection:
            connection.execute(views)
            yield connection


def answer(lake: duckdb.DuckDBPyConnection, words: str, *, whole: bool = False) -> list[Row]:
    """Rows of the query whose title has these words; `whole`: without its limit."""
    (query,) = (query for title, (query, _) in queries().items() if words in title)
    return lake.execute(re.sub(r"LIMIT \d+", "", query) if whole else query).fetchall()


def as_markdown(lake: duckdb.DuckDBPyConnection, query: str) -> str:
    """The answer as a table of the page."""
    done = lake.execute(query)
    names = [column[0] for column in done.description or ()]
    rows = [names, ["---"] * len(names), *done.fetchall()]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def test_the_columns_of_the_page_are_those_of_the_tables() -> None:
    found = {}
    for table, block in TABLE.findall(page()):
        cells = [[cell.strip(" `") for cell in line.split("|")] for line in block.splitlines()]
        found[table] = [(row[1], row[2]) for row in cells]
    assert found == {
        table: [(field.name, WORDS[field.type]) for field in schema] for table, schema in TABLES.items()
    }


@pytest.mark.parametrize("title", queries())
def test_answers_are_those_of_the_page(title: str, lake: duckdb.DuckDBPyConnection) -> None:
    query, told = queries()[title]
    assert as_markdown(lake, query) == told


def test_every_question_is_held_against_jsonl() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    asked = re.findall(r'answer\(lake, "([^"]+)"', source)
    assert all(sum(words in title for words in asked) == 1 for title in queries())
    assert len(queries()) == len(asked) >= 6


def test_every_view_has_the_rows_of_every_capture(lake: duckdb.DuckDBPyConnection) -> None:
    for view, kind in {"messages": "message", "contexts": "context", "findings": "finding"}.items():
        counts = dict(lake.execute(f"SELECT capture, count(*) FROM {view} GROUP BY capture").fetchall())
        told = {name: len(decode(path).of(kind)) for name, path in PATHS.items()}
        assert counts == {name: count for name, count in told.items() if count}
    assert lake.execute("SELECT count(*) FROM captures").fetchall() == [(len(PATHS),)]
    for view in TABLES:
        assert lake.execute(f"SELECT typeof(capture) FROM {view} LIMIT 1").fetchall() == [("VARCHAR",)]


def test_slow_functions_have_the_times_of_their_exchanges(lake: duckdb.DuckDBPyConnection) -> None:
    totals = defaultdict(list)
    for name, path in PATHS.items():
        decoded = decode(path)
        for request in decoded.messages:
            reply = decoded.answer(request) if request["request"] and not request["control"] else None
            if reply is not None and request["body"].get("function"):
                end = max(request["end_time_ns"], reply["end_time_ns"])
                totals[name, request["body"]["function"]].append(end - request["time_ns"])
    expected = set()
    for (name, function), its in totals.items():
        its.sort()
        p50, p99 = (its[-(-len(its) * share // 100) - 1] / 1e6 for share in (50, 99))
        expected.add((name, function, len(its), p50, p99))
    assert set(answer(lake, "functions are slow", whole=True)) == expected


def test_gradients_that_never_came(lake: duckdb.DuckDBPyConnection) -> None:
    expected = []
    for name, path in PATHS.items():
        decoded = decode(path)
        for context in decoded.of("context"):
            passes = [
                message["time_ns"]
                for message in decoded.messages
                if message["body"]["type"] in ("BACKWARD_AUTOGRAD_REQ", "RREF_BACKWARD_REQ")
                and message["body"]["context_id"] == context["context_id"]
            ]
            for edge in context["edges"]:
                forward = decoded.messages[edge["forward"]]
                if not edge["backward"] and passes and forward["time_ns"] < min(passes):
                    call = forward if forward["answers"] is None else decoded.messages[forward["answers"]]
                    what = call["body"].get("function") or forward["body"]["type"]
                    expected.append((name, edge["sender"], edge["receiver"], edge["forward"], what))
    found = answer(lake, "never came")
    assert found == sorted(expected)
    called = {call.request["index"]: call.event["function"] for call in workload("bwd_boom").calls()}
    assert [(row[3], row[4].rpartition(".")[2]) for row in found if row[0] == "bwd_boom"] == [
        (index, called[index].rpartition(".")[2]) for index in (8, 9)
    ]


def test_who_fails_first(lake: duckdb.DuckDBPyConnection) -> None:
    errors: Counter[str] = Counter()
    captures = defaultdict(set)
    for name, path in PATHS.items():
        for finding in decode(path).of("finding"):
            if finding["code"] == "error-response":
                errors[finding["workers"][0]] += 1
                captures[finding["workers"][0]].add(name)
    found = answer(lake, "fails first")
    assert found == sorted(
        ((worker, count, len(captures[worker])) for worker, count in errors.items()),
        key=lambda row: (-row[1], row[0]),
    )
    assert sum(row[1] for row in found) > 2


def test_bytes_between_workers(lake: duckdb.DuckDBPyConnection) -> None:
    counts: Counter[Row] = Counter()
    tensors: Counter[Row] = Counter()
    for name, path in PATHS.items():
        for message in decode(path).messages:
            if not message["control"]:
                key = (name, message["src"], message["dst"])
                counts[key] += 1
                storages = {
                    tensor["storage"]: tensor["storage_nbytes"]
                    for tensor in message["tensors"]
                    if tensor["storage"] is not None
                }
                tensors[key] += sum(storages.values())
    found = answer(lake, "send to each other", whole=True)
    assert {row[:3]: row[3] for row in found} == counts
    assert {row[:3]: row[5] for row in found} == tensors
    assert all(row[4] > row[5] for row in found)


def test_times_of_backward_passes(lake: duckdb.DuckDBPyConnection) -> None:
    expected = set()
    for name, path in PATHS.items():
        for line in map(context_json, traced(path).graphs):
            if line["backward_ns"] is not None:
                took = (line["end_ns"] - line["backward_ns"]) / 1e6
                counts = (line["gradients_came"], line["gradients_expected"])
                expected.add((name, line["creator"], line["context_id"], took, *counts))
    assert set(answer(lake, "backward passes take longest", whole=True)) == expected


def test_gradients_after_their_forward_messages(lake: duckdb.DuckDBPyConnection) -> None:
    expected = set()
    for name, path in PATHS.items():
        messages = decode(path).messages
        for edge in (edge for context in decode(path).of("context") for edge in context["edges"]):
            forward = messages[edge["forward"]]
            function = forward["body"].get("function")
            for index in edge["backward"] if function else ():
                wait = (messages[index]["time_ns"] - forward["end_time_ns"]) / 1e6
                expected.add((name, forward["index"], function, index, wait))
    found = answer(lake, "after its forward message", whole=True)
    assert set(found) == expected
    assert len(found) == len(expected) >= 20


def test_tensors_that_are_sent_again(lake: duckdb.DuckDBPyConnection) -> None:
    def sent(name: str, decoded: Decoded) -> Iterator[Row]:
        for message in decoded.messages:
            for tensor in message["tensors"]:
                if tensor["sha256"] is not None and 0 not in tensor["shape"]:
                    yield name, message["src"], message["dst"], tensor["sha256"]

    times = Counter(row for name, path in PATHS.items() for row in sent(name, decode(path)))
    expected = Counter((*key[:3], count) for key, count in times.items() if count > 2)
    assert Counter(row[:4] for row in answer(lake, "again and again", whole=True)) == expected
