"""Tables keep their columns and types, whatever a capture holds; lengths that can't be are cut off."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rpcinspect.export.parquet.schema import TABLES, VERSION
from tests.export.parquet.lakes import part, write_lake
from tests.truth import CAPTURES

RESERVED = "all and any as asc by case cross desc distinct else end except from full group having in inner "
RESERVED += "intersect into is join left like limit natural not null offset on or order outer right select "
RESERVED += "table then to union unique using values when where with user references default check"


def test_every_capture_gives_the_same_columns(tmp_path: Path) -> None:
    """Also one in which there is nothing but a handshake."""
    for name in ("dtype_zoo.pcap.gz", "devmap_cpu_refused.pcap.gz"):
        write_lake(tmp_path / name, [CAPTURES / name])
        for table, schema in TABLES.items():
            found = pq.read_schema(part(tmp_path / name, table))
            assert found.remove_metadata() == schema
            assert found.metadata[b"rpcinspect.schema"] == VERSION.encode()
            assert found.metadata[b"rpcinspect.table"] == table.encode()


def test_names_need_no_quotes_in_sql_and_none_is_that_of_the_partition() -> None:
    for schema in TABLES.values():
        assert all(name.isidentifier() and name == name.lower() for name in schema.names)
        assert not {"capture", *RESERVED.split()} & set(schema.names)


def test_types_are_such_that_spark_reads_them() -> None:
    """It knows no unsigned integers, and no nanoseconds without being told to."""
    for schema in TABLES.values():
        for field in schema:
            assert not pa.types.is_unsigned_integer(field.type)
            assert not pa.types.is_timestamp(field.type) or field.type.unit == "us"


def test_ids_keep_all_their_bits() -> None:
    assert all(pa.types.is_int64(TABLES["edges"].field(name).type) for name in ("context_id", "forward"))
    for value in (-1, (1 << 63) - 1, -(1 << 63), (0x7FFF << 48) + 3):
        assert pa.array([value], TABLES["messages"].field("context_id").type).to_pylist() == [value]
