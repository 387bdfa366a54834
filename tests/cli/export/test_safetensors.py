"""`rpcinspect export safetensors` as people type it; tests/export/test_safetensors.py: what files hold."""

from __future__ import annotations

from pathlib import Path

from tests.cli.runner import CHAIN, decode, rpcinspect


def test_it_says_how_much_is_where(tmp_path: Path) -> None:
    ran = rpcinspect("export", "safetensors", CHAIN, "-o", tmp_path / "t")
    assert (ran.code, ran.out, ran.err) == (0, f"11 tensors, 464 bytes, in {tmp_path / 't'}\n", "")
    assert (tmp_path / "t" / "index.jsonl").exists()


def test_a_filter_chooses(tmp_path: Path) -> None:
    text = "type == BACKWARD_AUTOGRAD_REQ"
    lines = decode(CHAIN, "--format", "jsonl", "-f", text).objects
    sent = sum(len(line["tensors"]) for line in lines if line["kind"] == "message")
    ran = rpcinspect("export", "safetensors", CHAIN, "-o", tmp_path, "-f", text)
    assert ran.out.startswith(f"{sent} tensors, ")
    assert 0 < sent < 11


def test_an_impossible_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for target in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none"), Path("/dev/full")):
        ran = rpcinspect("export", "safetensors", CHAIN, "-o", target)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"rpcinspect: {target}: can't be written: ")
        assert len(ran.err.splitlines()) == 1
