"""That looking at the tensors of many messages together finds what looking at each message finds."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from rpcinspect.checks.nonfinite_search import NonfiniteSearch
from rpcinspect.pipeline import Decoding
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.tcp.ranges import CaptureBytes
from tests.places import CAPTURES


@pytest.mark.parametrize("name", ["reports/job/nan.pcap.gz", "ps_race.pcap.gz", "param_detach.pcap"])
@pytest.mark.parametrize("broken", [0, 1], ids=["as captured", "with NaN in some"])
def test_together_and_one_by_one_find_the_same(name: str, broken: int) -> None:
    with Decoding([str(CAPTURES / name)]) as decoding:
        read = decoding.bytes.read

        def damaged(capture: int, offset: int, length: int) -> bytes:
            data = read(capture, offset, length)
            words = np.frombuffer(data[: length - length % 4], np.uint32).copy()
            if broken and offset % 5 == 0:
                words[-1:] = 0x7FC0_0000
            return words.tobytes() + data[length - length % 4 :]

        source = CaptureBytes(damaged)
        together, alone = NonfiniteSearch(source), NonfiniteSearch(source)
        patterns = 0
        for record in decoding.records():
            kind = message_type_of(record.like.command)
            patterns += record.pattern is not None and bool(record.tp.tensors)
            together.feed(record, kind)
            alone.feed(replace(record, _rpc=record.like, pattern=None), kind)
        together.settle()
        assert patterns
        assert alone.found or not broken
        assert together.found == alone.found
        assert together.masks == alone.masks
        assert together.unread == alone.unread
        assert together.longer == alone.longer
