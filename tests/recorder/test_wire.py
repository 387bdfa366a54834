"""The wire as a mechanism: what can't begin says why, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.errors import OutputError, RecordError
from rpcinspect.recorder.record import record
from rpcinspect.recorder.wire import WireMechanism
from tests.recorder.recording import need_own_network


def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    need_own_network()
    with pytest.raises(OutputError, match=r"x\.pcap: can't be written: No such file or directory"):
        record(
            ["touch", str(tmp_path / "ran")], WireMechanism(tmp_path / "none" / "x.pcap", private_net=True)
        )
    assert list(tmp_path.iterdir()) == []


def test_an_interface_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no such interface"):
        record(["touch", str(tmp_path / "ran")], WireMechanism(tmp_path / "x.pcap", interface="no-such"))
    assert list(tmp_path.iterdir()) == []


def test_what_has_not_begun_can_be_closed_and_once_more(tmp_path: Path) -> None:
    wire = WireMechanism(tmp_path / "x.pcap")
    assert (wire.via, wire.settings()) == ("wire", {})
    wire.close()
    wire.close()
