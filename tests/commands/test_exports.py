"""`decode --format perfetto`: files of a whole run, and what can't be asked for with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from rpcinspect.cli.decode import DecodeFormat
from rpcinspect.commands.decode_request import EXPORTS
from tests.commands.runner import CHAIN, HIDDEN, decode

REFUSED = [
    (("--message", "1"), "--message"),
    (("--stream",), "--stream"),
    (("--roundtrip",), "--roundtrip"),
    (("--tensors", "somewhere"), "--tensors"),
    (("-w", "part.pcap"), "-w"),
    (("--graph", "0"), "--graph"),
    (("--latency",), "--latency"),
    (("--all",), "--all"),
]
WRITTEN = ("html", "perfetto")
"""Formats of a run in memory."""
HASHED = {"parquet"}
"""Formats that have hashes of tensors, which can be left out."""


def test_every_format_of_a_whole_run_is_written() -> None:
    assert set(WRITTEN) <= set(EXPORTS) <= set(get_args(DecodeFormat))


@pytest.mark.parametrize("form", EXPORTS)
@pytest.mark.parametrize(("options", "named"), REFUSED, ids=lambda value: str(value))
def test_what_makes_no_sense_is_refused(
    form: str, options: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    ran = decode(CHAIN, "--format", form, "-o", tmp_path / "out", *options)
    assert (ran.code, ran.out) == (2, "")
    assert named in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", sorted(set(EXPORTS) - HASHED))
def test_there_are_no_hashes_to_leave_out(form: str, tmp_path: Path) -> None:
    ran = decode(CHAIN, "--format", form, "-o", tmp_path / "out", "--no-hash")
    assert (ran.code, ran.out) == (2, "")
    assert "--no-hash" in ran.err


@pytest.mark.parametrize("form", EXPORTS)
def test_a_live_capture_is_no_whole_run(form: str, tmp_path: Path) -> None:
    ran = decode("--live", "lo", "--format", form, "-o", tmp_path / "out")
    assert ran.code == 2
    assert "--live can't be read twice" in ran.err


@pytest.mark.parametrize("form", WRITTEN)
def test_standard_input_and_a_file_give_the_same(form: str, tmp_path: Path) -> None:
    whole = decode(CHAIN, "--format", form)
    assert (whole.code, whole.err) == (0, "")
    unnamed = whole.out.replace(str(CHAIN), "standard input").replace(CHAIN.name, "standard input")
    assert decode("-", "--format", form, stdin=CHAIN.read_bytes()).out == unnamed
    assert decode(CHAIN, "--format", form, "-o", tmp_path / "out").out == ""
    assert (tmp_path / "out").read_text() == whole.out


@pytest.mark.parametrize("form", WRITTEN)
def test_an_empty_run_is_written_and_explained(form: str) -> None:
    ran = decode(HIDDEN, "--format", form)
    assert ran.code == 0
    assert ran.out
    assert "No RPC messages" in ran.err
    assert decode(HIDDEN, "--format", form, "--check").code == 1


def test_a_filter_chooses() -> None:
    def slices(*options: str) -> int:
        events = json.loads(decode(CHAIN, "--format", "perfetto", *options).out)["traceEvents"]
        return sum(event["ph"] == "X" for event in events)

    assert 0 < slices("-f", "type == BACKWARD_AUTOGRAD_REQ") < slices() == 24
    assert slices("-f", "index < 0") == 0
