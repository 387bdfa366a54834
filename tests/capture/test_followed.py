"""A file that grows while it is read."""

from __future__ import annotations

import re
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from rpcinspect.capture import Followed
from rpcinspect.capture.followed import FollowedSource
from rpcinspect.errors import CaptureError
from rpcinspect.pipeline import Decoding, Options
from tests import decoded
from tests.cli.runner import CHAIN
from tests.logs import convert

STEP = 3001


def test_a_window_waits_for_what_is_needed_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "grows"
    path.write_bytes(b"abc")
    over = threading.Event()
    with FollowedSource(str(path), over.is_set) as source:
        assert source.window(0, 2) == b"abc"
        later = threading.Timer(0.2, lambda: path.write_bytes(b"abcdef"))
        later.start()
        assert source.window(3, 3) == b"def"
        over.set()
        assert source.window(6, 4) == b""
        later.join()


def test_it_ends_when_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "grows"
    path.write_bytes(b"abc")
    with FollowedSource(str(path), lambda: False) as source:
        began = time.monotonic()
        assert source.end()
        assert source.window(3, 1) == b""
        assert time.monotonic() - began < 10.0


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="No such file"):
        FollowedSource(str(tmp_path / "none"), lambda: True)


@pytest.mark.parametrize("kind", ["pcap", "rpclog"])
def test_messages_are_those_of_the_whole_file(kind: str, tmp_path: Path) -> None:
    data = CHAIN.read_bytes() if kind == "pcap" else convert(CHAIN)
    whole = tmp_path / f"whole.{kind}"
    whole.write_bytes(data)
    path = tmp_path / f"grows.{kind}"
    path.write_bytes(b"")
    # packets are cut anywhere; processes append whole records to a log
    records = [found.start() + 1 for found in re.finditer(rb'\n\{"rpc":"message"', data)]
    cuts = [0, *(range(40, len(data), STEP) if kind == "pcap" else records), len(data)]
    over, met = threading.Event(), threading.Event()
    early: list[bool] = []

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            for start, stop in pairwise(cuts):
                file.write(data[start:stop])
                if start > len(data) // 2:
                    early.append(met.wait(20.0))
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    with Decoding([Followed(str(path), over.is_set)], Options(by_completion=True)) as decoding:
        count = 0
        for records in decoding.blocks():
            count += len(records)
            met.set()
        assert decoding.session.problems == ()
        assert decoding.session.captures[0].path == str(path)
    writer.join()
    assert early[0], "nothing was read before all was there"
    assert count == len(decoded.stream(CHAIN).messages) == 24
