"""Make a capture for the benchmark, recorded in a network namespace.

    python bench/make.py small                  bench/data/small.pcap and small.truth, in about a minute
    python bench/make.py small --iterations N   10 messages each
    python bench/make.py big                    776 MB in messages of 64 MB
    python bench/make.py wire                   a sixth of that traffic at MTU 1500: 700,000 packets per GB
    python bench/make.py cut                    small without a fifth at each end, 0.5 % of its packets lost

In: bench/small_job.py or big_job.py, and captures/record.py for the recording. Needs what that needs: root,
iproute2, tcpdump and an interpreter with torch (its --setup makes one). `cut` needs small.pcap alone.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
sys.path.insert(0, str(HERE.parent / "captures"))

import record  # noqa: E402  (it lies in the folder named above)

BUFFER_KIB = 524288
"""So much that tcpdump loses nothing while it competes with the workers for the cores."""
CUT, LOST = 0.2, 0.005
"""Of `cut`: what is missing at each end, and of the rest."""


@dataclass(frozen=True)
class Case:
    """What is recorded."""

    job: str
    iterations: int
    mtu: int | None = None
    """None: that of the loopback, 65,536."""


CASES = {
    "small": Case("small_job.py", 3000),
    "big": Case("big_job.py", 6),
    "wire": Case("big_job.py", 1, mtu=1500),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=[*CASES, "cut"])
    parser.add_argument("--iterations", type=int, help="of the job (default: as the case has it)")
    parser.add_argument("--seed", type=int, default=1, help="of all numbers (default: %(default)s)")
    parser.add_argument(
        "--home", type=Path, default=record.HOME, help="the neutral path (default: %(default)s)"
    )
    parser.add_argument("--python", type=Path, help="the interpreter (default: HOME/bin/python)")
    parser.add_argument("--name", help="of the capture (default: that of the case)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, record.terminated)
    name = options.name or options.case
    DATA.mkdir(exist_ok=True)
    try:
        if options.case == "cut":
            packets = cut(DATA / "small.pcap", DATA / f"{name}.pcap", options.seed)
        else:
            packets = record_case(CASES[options.case], name, options)
    except (record.RecordError, OSError) as error:
        print(f"make.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("make.py: interrupted", file=sys.stderr)
        return 130
    print(f"{DATA / name}.pcap: {packets} packets")
    return 0


def record_case(case: Case, name: str, options: argparse.Namespace) -> int:
    """Records a case; the number of packets."""
    python = options.python or options.home / "bin/python"
    record.need_root()
    record.need_python(python)
    with record.stage(options.home, [HERE / case.job, *record.SHARED]) as folder:
        raw = folder / f"{name}.pcap"
        output, packets = record.record(
            python,
            folder / case.job,
            [str(options.iterations or case.iterations), str(options.seed)],
            raw,
            buffer_kib=BUFFER_KIB,
            seconds=330,
            mtu=case.mtu,
        )
        shutil.move(raw, DATA / raw.name)
    (DATA / f"{name}.truth").write_text(output)
    return packets


def cut(whole: Path, part: Path, seed: int) -> int:
    """Leaves packets of a capture out; the number of those that are left."""
    data = whole.read_bytes()
    records, at = [], 24
    while at < len(data):
        length = 16 + struct.unpack_from("<I", data, at + 8)[0]
        records.append(data[at : at + length])
        at += length
    draw = random.Random(seed).random
    first = int(len(records) * CUT)
    kept = [one for one in records[first : len(records) - first] if draw() >= LOST]
    part.write_bytes(data[:24] + b"".join(kept))
    return len(kept)


if __name__ == "__main__":
    sys.exit(main())
