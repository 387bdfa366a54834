"""`rpcinspect export parquet` as people type it: what it says, what it refuses, and what it leaves behind."""

from __future__ import annotations

import signal
import site
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.runner import CAPTURES, CHAIN, HIDDEN, Ran, decode, rpcinspect
from tests.export.parquet.lakes import files, rows
from tests.forks import command

ROOT = CAPTURES.parent


def parquet(folder: Path, *arguments: object, stdin: bytes = b"") -> Ran:
    return rpcinspect("export", "parquet", "-o", folder, *arguments, stdin=stdin)


def test_it_says_how_much_is_where(tmp_path: Path) -> None:
    ran = parquet(tmp_path / "lake", CHAIN)
    size = sum(path.stat().st_size for path in (tmp_path / "lake").rglob("*.parquet"))
    place = tmp_path / "lake" / "*" / "capture=basic_chain"
    assert ran.out == f"24 messages, 11 tensors, 12 calls, 4 edges, no findings in {place}, {size:,} bytes\n"
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("options", [(), ("-f", "error")], ids=["", "error"])
def test_calls_are_those_of_jsonl(options: tuple[str, ...], tmp_path: Path) -> None:
    boom = CAPTURES / "bwd_boom.pcap.gz"
    parquet(tmp_path, boom, *options)
    told = decode(boom, "--calls", "--format", "jsonl", *options).objects
    lines = [line for line in told if line["kind"] == "call"]
    found = rows(tmp_path, "calls")
    assert len(found) == len(lines) == (2 if options else 16)
    for row, line in zip(found, lines, strict=True):
        for name in row.keys() & line.keys() - {"kwargs"}:
            assert row[name] == line[name], name
        error = line["error"] or {"type": None, "node_id": None, "text": None}
        assert [row[f"error_{name}"] for name in error] == [*error.values()]
        assert row["kwargs"] == (None if line["kwargs"] is None else [*line["kwargs"].items()])


def test_a_filter_a_name_and_no_hashes(tmp_path: Path) -> None:
    ran = parquet(tmp_path, CHAIN, "-f", "not control", "--partition", "host a", "--no-hash")
    assert ran.code == 0
    assert "16 messages" in ran.out
    assert pq.read_table(tmp_path / "edges").column("capture").to_pylist() == ["host a"] * 4
    assert {row["sha256"] for row in rows(tmp_path, "tensors")} == {None}


def test_standard_input_needs_a_name_and_gives_the_same(tmp_path: Path) -> None:
    ran = parquet(tmp_path / "b", "-", stdin=CHAIN.read_bytes())
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "rpcinspect: standard input has no name: give one with --partition\n"
    assert parquet(tmp_path / "b", "-", "--partition", "x", stdin=CHAIN.read_bytes()).code == 0
    parquet(tmp_path / "a", CHAIN)
    assert rows(tmp_path / "a", "messages") == rows(tmp_path / "b", "messages")
    assert [row["path"] for row in rows(tmp_path / "b", "captures")] == ["-"]


def test_a_capture_without_messages_gives_empty_tables(tmp_path: Path) -> None:
    ran = parquet(tmp_path, HIDDEN)
    assert ran.code == 0
    assert "No RPC messages" in ran.err
    assert rows(tmp_path, "messages") == []
    assert len(rows(tmp_path, "findings")) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((CHAIN,), "Missing option '-o' / '--output'"),
        (("-o", "-", CHAIN), "written into a folder"),
        (("-o", "LAKE", "--partition", "", CHAIN), "1 to 200"),
        (("-o", "LAKE", "--partition", "ü" * 34, CHAIN), "1 to 200"),
    ],
)
def test_mistakes(arguments: tuple[object, ...], said: str, tmp_path: Path) -> None:
    words = (tmp_path / "lake" if argument == "LAKE" else argument for argument in arguments)
    ran = rpcinspect("export", "parquet", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert files(tmp_path) == []


def test_an_unreadable_capture_leaves_no_folder(tmp_path: Path) -> None:
    ran = parquet(tmp_path / "lake", ROOT / "README.md")
    assert (ran.code, ran.out) == (3, "")
    assert files(tmp_path) == []


def test_another_capture_of_that_name_is_told_of(tmp_path: Path) -> None:
    copy = tmp_path / CHAIN.name
    copy.write_bytes((CAPTURES / "param_detach.pcap").read_bytes())
    assert parquet(tmp_path / "lake", CHAIN).code == 0
    ran = parquet(tmp_path / "lake", copy)
    assert (ran.code, ran.out) == (2, "")
    assert "--partition basic_chain" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert parquet(tmp_path / "lake", copy, "--partition", "host-b").code == 0


def test_what_to_install_is_said_where_pyarrow_is_missing(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for installed in map(Path, site.getsitepackages()):
        for entry in installed.iterdir():
            if not entry.name.startswith(("pyarrow", "torch", "_")) and not entry.name.endswith(".pth"):
                (packages / entry.name).symlink_to(entry)
    arguments = ["rpcinspect", "export", "parquet", str(CHAIN), "-o", str(tmp_path / "lake")]
    code = f"import sys; sys.path += {[str(ROOT), str(packages)]!r}; sys.argv = {arguments!r}\n"
    code += "from rpcinspect.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    install = f"{sys.executable} -m pip install 'rpcinspect[parquet]'"
    assert line.endswith(f"not installed here: {install}; rpcinspect doctor shows what works here")
    assert not (tmp_path / "lake").exists()


def test_control_c_leaves_all_or_nothing(tmp_path: Path) -> None:
    """Pressed as soon as something is written; a fast machine may be through by then."""
    lake = tmp_path / "lake"
    arguments = ("export", "parquet", "-o", lake, CAPTURES / "dtype_zoo.pcap.gz")
    with command(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not lake.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
    if out:
        assert process.returncode in (0, 130)
        assert len(list(lake.rglob("*.parquet"))) == 9
        assert not list(lake.glob(".*"))
    else:
        assert process.returncode == 130
        assert not list(lake.rglob("*.parquet")) or len(list(lake.rglob("*.parquet"))) == 9
        assert not list(lake.glob(".*"))
