"""`--redact` at the command line, and of whole files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.errors import CaptureError
from rpcinspect.export.save import key_of, redact_file
from tests.cli.runner import CAPTURES, CHAIN, rpcinspect
from tests.decoded import decode
from tests.export.redaction.redacting import skeleton

VAULT = CAPTURES / "redaction/vault.pcap.gz"


def test_a_pcap_and_a_log(tmp_path: Path) -> None:
    pcap, log = tmp_path / "a.pcap", tmp_path / "a.rpclog"
    ran = rpcinspect("decode", VAULT, "-w", pcap, "--redact", "--redact-seed", "s")
    assert ran.code == 0
    assert f"82 messages, redacted, in {pcap}" in ran.out
    ran = rpcinspect("export", "rpclog", VAULT, "-o", log, "--redact", "--redact-seed", "s")
    assert "82 messages, redacted, as a log" in ran.err
    for path in (pcap, log):
        assert b"Zq7" not in path.read_bytes()
    assert rpcinspect("diff", pcap, log).code == 0
    assert rpcinspect("diff", VAULT, log).code == 1


def test_seeds(tmp_path: Path) -> None:
    def made(name: str, *options: str) -> bytes:
        path = tmp_path / name
        assert rpcinspect("decode", CHAIN, "-w", path, "--redact", *options).code == 0
        return path.read_bytes()

    assert made("a", "--redact-seed", "s") == made("b", "--redact-seed", "s")
    assert made("c") != made("d")
    assert key_of("s") == key_of("s")
    assert key_of(None) != key_of(None)


def test_part_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    ran = rpcinspect("decode", VAULT, "-f", "error", "-w", path, "--redact")
    assert ran.code == 0
    assert b"Zq7" not in path.read_bytes()
    assert {m["type"] for m in decode.__wrapped__(path).messages} >= {"EXCEPTION", "PYTHON_CALL"}


@pytest.mark.parametrize("kind", ["pcap", "log"])
def test_whole_files(kind: str, tmp_path: Path) -> None:
    source = VAULT
    if kind == "log":
        source = tmp_path / "plain.rpclog"
        rpcinspect("export", "rpclog", VAULT, "-o", source)
    target = source if kind == "log" else tmp_path / "out"
    assert redact_file(source, target, "s") == 82
    assert b"Zq7" not in target.read_bytes()
    assert skeleton(decode.__wrapped__(target)) == skeleton(decode(VAULT))
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name]


def test_what_can_not_be_read_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "none"
    source.write_bytes(b"no capture at all")
    with pytest.raises(CaptureError):
        redact_file(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["none"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--redact"], "a capture that is written"),
        (["--redact-seed", "s"], "is for --redact"),
        (["--redact", "-w", "x", "--format", "jsonl"], "is not redacted"),
    ],
)
def test_mistakes(options: list[str], word: str) -> None:
    ran = rpcinspect("decode", CHAIN, *options)
    assert ran.code == 2
    assert word in ran.err
