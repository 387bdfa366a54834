"""`rpcinspect export pcapng` as people type it; tests/export/wireshark: what tshark shows of it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.export.test_wireshark import LOG
from tests.cli.runner import CHAIN, rpcinspect


def test_the_same_messages_with_comments(tmp_path: Path) -> None:
    output = tmp_path / "run.pcapng"
    ran = rpcinspect("export", "pcapng", CHAIN, "-o", output)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "rpcinspect: 585 packets, 24 messages in comments\n"
    assert rpcinspect("diff", CHAIN, output).code == 0
    assert b"basic_chain.scale, answered by #7" in output.read_bytes()


def test_a_filter_leaves_all_packets(tmp_path: Path) -> None:
    output = tmp_path / "run.pcapng"
    ran = rpcinspect("export", "pcapng", "-", "-o", output, "-f", "error", stdin=CHAIN.read_bytes())
    assert (ran.code, ran.err) == (0, "rpcinspect: 585 packets, no messages in comments\n")
    assert rpcinspect("diff", CHAIN, output).code == 0


def test_a_log_has_no_packets(tmp_path: Path) -> None:
    output = tmp_path / "run.pcapng"
    ran = rpcinspect("export", "pcapng", LOG, "-o", output)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"rpcinspect: {LOG}: a log holds messages without their packets\n"
    assert not output.exists()
