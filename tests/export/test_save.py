"""Messages saved as captures of their own, as they were and redacted."""

from __future__ import annotations

from pathlib import Path

import pytest

import rpcinspect as ri
from tests.cli.runner import CHAIN


@pytest.mark.parametrize("suffix", [".pcap", ".rpclog"])
def test_what_is_saved_decodes_to_the_same_messages(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"part{suffix}"
    with ri.open(CHAIN) as run:
        part = run.filter("body == PYTHON_CALL")
        count = part.save(path)
        first = part.messages[0]
        assert count == 2 * len(part)  # each request with its answer
        with ri.open(path) as again:
            assert len(again) == count
            found = again.messages("body == PYTHON_CALL")[0]
            assert [t.sha256 for t in found.tensors] == [t.sha256 for t in first.tensors]


def test_what_is_saved_redacted_has_no_values(tmp_path: Path) -> None:
    path = tmp_path / "redacted.pcap"
    with ri.open(CHAIN) as run:
        count = run.save(path, redact=True, seed="7")
        data = run.messages("tensor.requires_grad")[0].tensors[0].tobytes()
    assert data in CHAIN.read_bytes()
    assert data not in path.read_bytes()
    with ri.open(path) as again:
        assert len(again) == count
