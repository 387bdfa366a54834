"""A long capture out of a short one: its packets so many times over, each time as another job.

    python bench/multiply.py bench/data/small.pcap 33 bench/data/million.pcap       33 × 30,000 messages

In: a pcap of 127.0.0.1. Out: a pcap in which copy k is of 127.k.0.1, k times as late. The bytes of the
messages are the same: it measures what so many messages cost, and says nothing of what they mean.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

HEADER, RECORD = 24, 16


def main() -> int:
    source, times, target = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    data = source.read_bytes()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    places, at = [], HEADER
    while at + RECORD <= len(data):
        seconds, _, length = struct.unpack_from(f"{order}III", data, at)
        places.append((at, seconds))
        at += RECORD + length
    span = places[-1][1] - places[0][1] + 2
    address = bytes((127, 0, 0, 1))
    with target.open("wb") as output:
        output.write(data[:HEADER])
        for copy in range(times):
            block = bytearray(data[HEADER:at])
            other = bytes((127, 1 + copy // 250, copy % 250, 1)) if copy else address
            for place, seconds in places:
                struct.pack_into(f"{order}I", block, place - HEADER, seconds + copy * span)
                start = block.find(address + address, place - HEADER + RECORD, place - HEADER + RECORD + 60)
                if start >= 0:
                    block[start : start + 8] = other + other
            output.write(block)
    return 0


if __name__ == "__main__":
    sys.exit(main())
