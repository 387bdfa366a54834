"""A partition of a lake: complete or not there at all, beside those of other captures."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from rpcinspect.errors import CaptureError, OutputError
from rpcinspect.export.parquet.lake import Lake, partition_name
from rpcinspect.export.parquet.schema import TABLES
from rpcinspect.pipeline import Decoding
from rpcinspect.tcp.clocks import ClockOffset
from tests.cli.runner import rpcinspect
from tests.export.parquet.lakes import files, part, rows, write_lake
from tests.truth import CAPTURES

CHAIN = CAPTURES / "basic_chain.pcap"
RACE = CAPTURES / "ps_race.pcap.gz"


def fed(lake: Lake, path: Path, records: int | None = None) -> None:
    """Begins a lake and gives it the records of a capture, or so many of them."""
    with Decoding([str(path)]) as decoding:
        taken = list(decoding.records())
        lake.begin(decoding.session, None, decoding.bytes)
        for record in taken[:records]:
            lake.feed(record)


def test_each_table_has_one_file_in_each_partition(tmp_path: Path) -> None:
    for path in (CHAIN, RACE):
        write_lake(tmp_path, [path])
    found = {
        f"{table}/capture={name}/part-0.parquet" for table in TABLES for name in ("basic_chain", "ps_race")
    }
    assert {name for name in files(tmp_path) if name.endswith("parquet")} == found
    assert not [name for name in files(tmp_path) if name.startswith(".")]
    everything = pq.read_table(tmp_path / "messages")
    assert set(everything.column("capture").to_pylist()) == {"basic_chain", "ps_race"}


def test_a_repeated_run_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    write_lake(tmp_path, [CHAIN])
    first, other = rows(tmp_path, "messages"), files(tmp_path)
    write_lake(tmp_path, [CHAIN], text="request")
    assert len(rows(tmp_path, "messages")) < len(first)
    write_lake(tmp_path, [CHAIN])
    assert rows(tmp_path, "messages") == first
    assert files(tmp_path) == other


def test_a_partition_of_another_capture_is_not_replaced_unless_it_is_named(tmp_path: Path) -> None:
    """Wherever the files lie; the same capture may have been moved, or have grown."""
    lake, other = tmp_path / "lake", tmp_path / "host-b" / CHAIN.name
    other.parent.mkdir()
    other.write_bytes((CAPTURES / "param_detach.pcap").read_bytes())
    write_lake(lake, [CHAIN])
    before = rows(lake, "messages")
    with pytest.raises(
        OutputError, match=r"another capture of 2\d+-.* is there, .*chain\.pcap: .*--partition"
    ):
        write_lake(lake, [other])
    assert rows(lake, "messages") == before
    other.write_bytes(CHAIN.read_bytes()[:-1000])
    write_lake(lake, [other])
    write_lake(lake, [CHAIN])
    other.write_bytes((CAPTURES / "param_detach.pcap").read_bytes())
    write_lake(lake, [other], name="basic_chain")
    write_lake(lake, [other])
    assert len(rows(lake, "messages")) == 22


def interrupted(lake: Path, path: Path, records: int | None) -> None:
    """A run into which Ctrl-C comes, after so many records or when all are written."""
    with Lake(lake, "ps_race") as it:
        fed(it, path, records)
        if records is None:
            it.finish()
        assert any(name.startswith(".rpcinspect.") for name in files(lake))
        raise KeyboardInterrupt


def test_nothing_is_left_of_a_run_that_ends_early(tmp_path: Path) -> None:
    lake = tmp_path / "deep" / "lake"
    with pytest.raises(KeyboardInterrupt):
        interrupted(lake, CHAIN, None)
    assert not lake.exists()
    write_lake(lake, [RACE])
    before = {name: (lake / name).stat().st_mtime_ns for name in files(lake)}
    for records in (5, None):
        with pytest.raises(KeyboardInterrupt):
            interrupted(lake, CHAIN, records)
        assert {name: (lake / name).stat().st_mtime_ns for name in files(lake)} == before


def test_files_appear_only_when_all_are_complete(tmp_path: Path) -> None:
    with Lake(tmp_path, "a") as lake:
        fed(lake, CHAIN)
        assert not list(tmp_path.glob("*/capture=*"))
        lake.finish()
        assert not list(tmp_path.glob("*/capture=*"))
        assert lake.publish() == sum(part(tmp_path, table).stat().st_size for table in TABLES)
    assert len(rows(tmp_path, "messages")) == 24


def test_a_capture_that_changes_between_the_passes_is_told_of(tmp_path: Path) -> None:
    with Lake(tmp_path, "a") as lake:
        fed(lake, CHAIN, 5)
        with pytest.raises(CaptureError, match="changed while it was read"):
            lake.finish()
    with Lake(tmp_path, "a") as lake:
        fed(lake, CHAIN)
        with Decoding([str(CHAIN)]) as decoding:
            one_more = next(decoding.records())
        with pytest.raises(CaptureError, match="changed while it was read"):
            lake.feed(one_more)
    assert files(tmp_path) == []


def test_a_disk_that_fills_up_leaves_what_was_there(tmp_path: Path) -> None:
    write_lake(tmp_path, [CHAIN])
    before = files(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(OutputError, match=rf"{tmp_path}: can't be written: File too large$"):
            write_lake(tmp_path, [CHAIN])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(tmp_path) == before
    assert len(rows(tmp_path, "messages")) == 24


def test_where_nothing_can_be_written_one_line_says_so(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("mine")
    with pytest.raises(OutputError, match="can't be written: "):
        write_lake(taken, [CHAIN])
    assert taken.read_text() == "mine"
    lake = tmp_path / "lake"
    (lake / "messages").mkdir(parents=True)
    (lake / "messages" / "capture=basic_chain").write_text("mine")
    with pytest.raises(OutputError, match="can't be written: "):
        write_lake(lake, [CHAIN])
    assert not list(lake.glob(".*"))


@pytest.mark.parametrize("name", ["a b", "ü=+%", "../up", "..", "a/b\\c\n", "007", "x" * 200])
def test_any_name_is_one_folder_and_comes_back(name: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write_lake(lake, [CHAIN], name=name)
    (folder,) = (lake / "messages").iterdir()
    assert folder.name.startswith("capture=")
    assert os.listdir(tmp_path) == ["lake"]
    assert {path.parent.parent for path in lake.rglob("*.parquet")} == {lake / table for table in TABLES}


def test_several_files_are_one_partition_and_keep_their_numbers(tmp_path: Path) -> None:
    write_lake(tmp_path, [CHAIN, RACE])
    assert part(tmp_path, "messages").parent.name == "capture=basic_chain_and_1_more"
    assert [row["path"] for row in rows(tmp_path, "captures")] == [str(CHAIN), str(RACE)]
    assert {row["location_capture"] for row in rows(tmp_path, "messages")} == {0, 1}


def test_sessions_are_called_as_their_first_file() -> None:
    assert partition_name(["x/run.pcap"]) == "run"
    assert partition_name(["x/run.1.pcapng.gz"]) == "run.1"
    assert partition_name(["run.cap.zst", "b", "c"]) == "run_and_2_more"
    assert partition_name([".pcap"]) == ".pcap"


def test_the_filter_and_the_captures_are_in_the_files(tmp_path: Path) -> None:
    write_lake(tmp_path, [CHAIN], text="request and not control")
    metadata = pq.read_schema(part(tmp_path, "edges")).metadata
    assert metadata[b"rpcinspect.filter"] == b"request and not control"
    (first, *_) = rows(tmp_path, "captures")
    assert json.loads(metadata[b"rpcinspect.captures"]) == [[str(CHAIN), first["first_time_ns"]]]


def test_a_capture_whose_clock_was_set_right_is_known_by_its_own_clock(tmp_path: Path) -> None:
    write_lake(tmp_path, [CHAIN])
    with Decoding([str(CHAIN)]) as decoding:
        list(decoding.records())
        session = decoding.session
    (capture,) = session.captures
    assert capture.first_time_ns is not None
    clock = ClockOffset(offset_ns=5_000_000, uncertainty_ns=10, connections=1)
    moved = replace(capture, first_time_ns=capture.first_time_ns - 5_000_000, clock=clock)
    session = replace(session, captures=(moved,))
    assert Lake(tmp_path, "basic_chain").others(session) == []
    session = replace(session, captures=(replace(moved, clock=None),))
    assert Lake(tmp_path, "basic_chain").others(session) == [[str(CHAIN), capture.first_time_ns]]


def test_what_was_written_is_skipped_while_nothing_has_changed(tmp_path: Path) -> None:
    path, lake = tmp_path / "run.pcap", tmp_path / "lake"
    path.write_bytes(CHAIN.read_bytes())

    def written(*options: str) -> bool:
        done = rpcinspect("export", "parquet", path, "-o", lake, "--skip-written", *options)
        assert done.code == 0
        return "has it already" not in done.err + done.out

    assert written()
    assert not written()
    assert written("-f", "tensors > 0")
    assert not written("-f", "tensors > 0")
    assert written("-f", "tensors > 0", "--no-hash")
    assert written()
    os.utime(path, (1, 1))
    assert written()
    assert not written()
    part(lake, "findings").unlink()
    assert written()
    path.unlink()
    done = rpcinspect("export", "parquet", path, "-o", lake, "--skip-written")
    assert done.code == 3
