"""Make the bench capture: 30,000 small messages between two workers, recorded in a network namespace.

    python bench/make_small.py                  bench/data/small.pcap and small.truth, in about a minute
    python bench/make_small.py --iterations N   10 messages each

In: bench/small_job.py, and captures/record.py for the recording. Needs what that needs: root, iproute2,
tcpdump and an interpreter with torch (its --setup makes one).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
sys.path.insert(0, str(HERE.parent / "captures"))

import record  # noqa: E402  (it lies in the folder named above)

BUFFER_KIB = 262144
"""So much that tcpdump loses nothing while it competes with the workers for the cores."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1, help="of all numbers (default: %(default)s)")
    parser.add_argument(
        "--home", type=Path, default=record.HOME, help="the neutral path (default: %(default)s)"
    )
    parser.add_argument("--python", type=Path, help="the interpreter (default: HOME/bin/python)")
    parser.add_argument("--name", default="small", help="of the capture (default: %(default)s)")
    options = parser.parse_args()
    python = options.python or options.home / "bin/python"
    signal.signal(signal.SIGTERM, record.terminated)
    try:
        record.need_root()
        record.need_python(python)
        DATA.mkdir(exist_ok=True)
        with record.stage(options.home, [HERE / "small_job.py", *record.SHARED]) as folder:
            raw = folder / f"{options.name}.pcap"
            output, packets = record.record(
                python,
                folder / "small_job.py",
                [str(options.iterations), str(options.seed)],
                raw,
                buffer_kib=BUFFER_KIB,
                seconds=330,
            )
            shutil.move(raw, DATA / raw.name)
        (DATA / f"{options.name}.truth").write_text(output)
    except record.RecordError as error:
        print(f"make_small.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("make_small.py: interrupted", file=sys.stderr)
        return 130
    print(f"{DATA / raw.name}: {packets} packets, {10 * options.iterations} messages and the agent's own")
    return 0


if __name__ == "__main__":
    sys.exit(main())
