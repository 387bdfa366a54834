"""`rpcinspect export wireshark` as people type it; tests/export/wireshark: what tshark shows of it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.runner import CAPTURES, CHAIN, rpcinspect

LOG = CAPTURES / "attacks" / "d_f11_class.rpclog.zst"


def test_it_says_how_much_was_written_and_how_to_open_it(tmp_path: Path) -> None:
    folder = tmp_path / "ws"
    ran = rpcinspect("export", "wireshark", CHAIN, "-o", folder)
    assert (ran.code, ran.err) == (0, "")
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert ran.out.splitlines() == [
        f"24 messages, 131 packets, {size:,} bytes",
        f"wireshark -X lua_script:{folder}/torchrpc.lua {CHAIN}",
    ]
    assert {path.name for path in folder.iterdir()} == {"torchrpc.lua", "torchrpc.tsv"}


def test_a_filter_chooses_messages(tmp_path: Path) -> None:
    ran = rpcinspect("export", "wireshark", CHAIN, "-o", tmp_path, "-f", "fn == basic_chain.scale")
    assert ran.code == 0
    lines = (tmp_path / "torchrpc.tsv").read_text().splitlines()
    assert [line.split("\t")[1] for line in lines if line.startswith("M")] == ["6"]


def test_standard_input_is_read_three_times(tmp_path: Path) -> None:
    ran = rpcinspect("export", "wireshark", "-", "-o", tmp_path, stdin=CHAIN.read_bytes())
    assert ran.code == 0
    assert ran.out.startswith("24 messages, 131 packets, ")


def test_a_log_has_no_packets(tmp_path: Path) -> None:
    ran = rpcinspect("export", "wireshark", LOG, "-o", tmp_path / "ws")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"rpcinspect: {LOG}: a log holds messages without their packets\n"
    assert not (tmp_path / "ws").exists()
