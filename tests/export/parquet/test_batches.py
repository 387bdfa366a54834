"""Tables in memory have the rows that files of the lake have."""

from __future__ import annotations

from pathlib import Path

import pytest

import rpcinspect as ri
from tests.cli.runner import CAPTURES, rpcinspect

RELAY = CAPTURES / "rref_relay.pcap.gz"


def test_tables_are_those_of_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from rpcinspect.export.parquet.schema import TABLES

    rpcinspect("export", "parquet", RELAY, "-o", tmp_path, "--partition", "x", "-f", "tensors > 0")
    with ri.open(RELAY) as run:
        part = run.filter("tensors > 0")
        for name in TABLES:
            kept = pq.ParquetFile(tmp_path / name / "capture=x" / "part-0.parquet").read()
            order = [(key, "ascending") for key in ("index", "message", "tensor") if key in kept.column_names]
            kept = kept.sort_by(order) if order else kept  # files have messages as they became complete
            assert part.to_arrow(name).to_pylist() == kept.to_pylist()
        with pytest.raises(KeyError):
            run.to_arrow("nothing")
