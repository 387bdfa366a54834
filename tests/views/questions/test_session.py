"""Tables of a session: a row for each thing, and a column that is added in one place is everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rpcinspect.views.columns import Cell, Table, table
from rpcinspect.views.questions.session import CAPTURE, PIPE, pipes_of
from tests.checks.runs import workload_trace
from tests.export.parquet.lakes import rows
from tests.truth import CAPTURES

RELAY = CAPTURES / "rref_relay.pcap.gz"


def column(one: Table, title: str) -> list[Cell]:
    at = [column.title for column in one.columns].index(title)
    return [row[at] for row in one.rows]


def test_captures_and_pipes() -> None:
    session = workload_trace("basic_chain").session
    assert column(table(CAPTURE, session.captures), "packets") == [f"{session.captures[0].packets:,}"]
    ends = zip(session.clients, session.servers, strict=True)
    pipes = table(PIPE, pipes_of(session))
    assert column(pipes, "client → server") == [f"{client} → {server}" for client, server in ends]
    assert set(column(pipes, "visible")) == {"full"}
    assert set(column(pipes, "why not all of it")) == {""}


ADDED = """
import sys
from importlib.util import find_spec, module_from_spec

place = '    *_forks("forks", "forks"),'
column = '    Column("holders", "int64", lambda rref: len({f.holder for f in rref.forks}), "holders"),'

spec = find_spec("rpcinspect.views.questions.session")
source = spec.loader.get_source(spec.name)
assert place in source
module = sys.modules[spec.name] = module_from_spec(spec)
exec(compile(source.replace(place, column + chr(10) + place), spec.origin, "exec"), vars(module))

from rpcinspect.cli import app

app()
"""


def run(*arguments: object) -> str:
    """What the program prints that has one column more."""
    command = [sys.executable, "-c", ADDED, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_column_that_is_added_in_one_place_is_everywhere(tmp_path: Path) -> None:
    """In text, on the page, in both kinds of JSON, in Parquet."""
    rrefs = workload_trace("rref_relay").rrefs
    holders = [len({fork.holder for fork in rref.forks}) for rref in rrefs]
    head, *lines = run("rrefs", RELAY).splitlines()
    at = head.index("holders")
    assert [int(line[at : at + 7]) for line in lines[: len(rrefs)]] == holders
    assert '<th scope="col">holders</th>' in run("export", "html", RELAY)
    for command in ("decode", "rrefs"):
        told = map(json.loads, run(command, RELAY, "--format", "jsonl").splitlines())
        assert [line["holders"] for line in told if line["kind"] == "rref"] == holders
    run("export", "parquet", RELAY, "-o", tmp_path)
    assert [row["holders"] for row in rows(tmp_path, "rrefs")] == holders
