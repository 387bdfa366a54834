"""Messages saved as captures of their own, as they were and redacted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rpcinspect as ri
from rpcinspect.export.save import shorten_log
from tests.cli.runner import CHAIN
from tests.decoded import decode


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


def test_a_log_keeps_hashes_of_long_storages(tmp_path: Path) -> None:
    whole, short, redacted = (tmp_path / f"{name}.rpclog" for name in ("whole", "short", "redacted"))
    source = CHAIN.with_name("views_alias.pcap.gz")
    with ri.open(source) as run:
        assert run.save(whole) == shorten_log(whole, short, 1000)
    tensors = [line["tensors"] for line in decode(source).messages]
    long = [[t["sha256"] if (t["storage_nbytes"] or 0) > 1000 else None for t in its] for its in tensors]
    values = [t["sha256"] for its in tensors for t in its]
    digests = [digest for each in long for digest in each if digest is not None]
    assert digests
    said = [json.loads(line) for line in short.read_bytes().splitlines() if line.startswith(b'{"rpc":"mess')]
    assert [one.get("sha256", [None] * len(its)) for one, its in zip(said, long, strict=True)] == long
    with ri.open(short) as run:
        left = [t.sha256 for m in run.messages for t in m.tensors]
        assert left == [None if value in digests else value for value in values]
        run.save(whole)
        run.save(redacted, redact=True)
    assert whole.read_bytes() == short.read_bytes()
    assert not [digest for digest in digests if digest.encode() in redacted.read_bytes()]
