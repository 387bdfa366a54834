"""What a way of recording must offer: those that there are do."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.recorder.mechanism import Mechanism
from rpcinspect.recorder.wire import Wire


def test_the_wire_is_a_mechanism(tmp_path: Path) -> None:
    mechanism: Mechanism = Wire(tmp_path / "x.pcap")
    mechanism.prepare()
    assert mechanism.via == "wire"
    mechanism.close()
    mechanism.close()
