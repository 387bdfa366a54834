"""What a finished recording holds."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.commands.recorded import look_into
from tests.commands.runner import CHAIN
from tests.truth import capture_of


def test_messages_and_workers_are_found() -> None:
    held = look_into(CHAIN)
    assert held is not None
    assert (held.messages, held.complete, held.why_none) == (24, True, None)
    assert held.workers == {"worker0", "worker1"}


def test_a_file_without_messages_says_why(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(CHAIN.read_bytes()[:24])
    held = look_into(path)
    assert held is not None
    assert held.messages == 0
    assert "the capture holds no packets" in str(held.why_none)


def test_a_large_file_is_not_read_to_its_end() -> None:
    held = look_into(capture_of("dtype_zoo"), seconds=-1)
    assert held is not None
    assert not held.complete
    assert held.why_none is None


def test_what_is_no_capture_any_more(tmp_path: Path) -> None:
    assert look_into(tmp_path / "none") is None
