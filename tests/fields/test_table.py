"""The table of fields: each has one source, an example that is a filter, and a name that can be written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rpcinspect.fields.field import Field
from rpcinspect.fields.table import ALIASES, BY_NAME, FIELDS
from rpcinspect.filter.grammar import parse
from rpcinspect.filter.selection import Filter
from tests.export.parquet.lakes import rows
from tests.truth import CAPTURES


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_field(field: Field) -> None:
    assert field.streams or field.late
    assert field in [leaf.field for leaf in Filter(parse(field.example), "").leaves]
    assert parse(field.name)


def test_names_are_unique() -> None:
    assert len({field.name for field in FIELDS}) == len(FIELDS)
    assert not set(ALIASES) & {field.name for field in FIELDS}
    assert BY_NAME["function"] is BY_NAME["fn"]


ADDED = """
import sys
from rpcinspect.fields import field, kinds, table

rank = field.OfTensor("rank", kinds.NUMBER, "sizes", "== 2", lambda t: len(t.meta.sizes))
table.TENSOR += (rank,)
table.FIELDS += (rank,)
table.BY_NAME[rank.name] = rank

from rpcinspect.cli import app

app()
"""


def run(*arguments: object) -> str:
    """What the program prints that has one field more."""
    command = [sys.executable, "-c", ADDED, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_field_that_is_added_in_one_place_is_everywhere(tmp_path: Path) -> None:
    """In `--fields`, in lines of JSON, in filters, in tables; the docs are held to the table elsewhere."""
    assert "tensor.rank" in run("decode", "--fields")
    lines = run("decode", CAPTURES / "basic_chain.pcap", "--format", "jsonl", "-f", "tensor.rank == 2")
    messages = [line for line in map(json.loads, lines.splitlines()) if line["kind"] == "message"]
    ranks = [[tensor["rank"] for tensor in message["tensors"]] for message in messages]
    assert ranks
    assert all(2 in its for its in ranks)
    run("export", "parquet", CAPTURES / "basic_chain.pcap", "-o", tmp_path)
    found = rows(tmp_path, "tensors")
    assert [row["rank"] for row in found] == [len(row["shape"]) for row in found]
