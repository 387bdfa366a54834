"""The front of logs: what they tell before the end is what they tell then, and packets never load it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.decoded import alone, decode, stream
from tests.logs import convert, without_packets

BASIC = Path(__file__).resolve().parents[2] / "captures" / "basic_chain.pcap"

PROGRAM = """
import sys
from rpcinspect.pipeline import Decoding
with Decoding([sys.argv[1]]) as decoding:
    print(len(list(decoding.records())))
print(sorted({"rpcinspect.sources.log", "rpcinspect.rpclog", "rpcinspect.workerlog"} & set(sys.modules)))
"""


def test_logs_as_they_come(tmp_path: Path) -> None:
    log = tmp_path / "a.rpclog"
    log.write_bytes(convert(BASIC))
    found, expected = without_packets(stream(log)), without_packets(decode(log))
    assert found.pop("message") == [alone(line) for line in expected.pop("message")]
    assert found == expected
    assert all(line["pipe"] is line["location"] is None for line in stream(log).messages)


def test_packets_do_not_load_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(BASIC)], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"
