"""`rpcinspect export html`, `perfetto` and `otlp`: files of a whole run."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from pathlib import Path

import pytest

from tests.cli.runner import CHAIN, HIDDEN, rpcinspect

WRITTEN = ("html", "otlp", "perfetto")
"""Formats of a run in memory."""


def unpacked(text: str) -> str:
    """What is written, the data of a page as its script unpacks it."""
    packed = re.compile(r"(?<=>)[A-Za-z0-9+/]{40,}=*(?=</script>)")
    return packed.sub(lambda data: gzip.decompress(b64decode(data[0])).decode(), text)


@pytest.mark.parametrize("form", WRITTEN)
def test_standard_input_and_a_file_give_the_same(form: str, tmp_path: Path) -> None:
    whole = rpcinspect("export", form, CHAIN)
    assert (whole.code, whole.err) == (0, "")
    unnamed = unpacked(whole.out).replace(str(CHAIN), "standard input").replace(CHAIN.name, "standard input")
    if form == "html":  # its commands read standard input
        unnamed = unnamed.replace('"captures":"standard input"', '"captures":"-"')
    assert unpacked(rpcinspect("export", form, "-", stdin=CHAIN.read_bytes()).out) == unnamed
    assert rpcinspect("export", form, CHAIN, "-o", tmp_path / "out").out == ""
    assert (tmp_path / "out").read_text() == whole.out


@pytest.mark.parametrize("form", WRITTEN)
def test_an_empty_run_is_written_and_explained(form: str) -> None:
    ran = rpcinspect("export", form, HIDDEN)
    assert ran.code == 0
    assert ran.out
    assert "No RPC messages" in ran.err


def test_a_filter_chooses() -> None:
    def slices(*options: str) -> int:
        events = json.loads(rpcinspect("export", "perfetto", CHAIN, *options).out)["traceEvents"]
        return sum(event["ph"] == "X" for event in events)

    assert 0 < slices("-f", "type == BACKWARD_AUTOGRAD_REQ") < slices() == 24
    assert slices("-f", "index < 0") == 0
