"""`make bench`: how long the start takes, and how long 30,000 small messages, beside tshark on the same file.

In: bench/data/small.pcap and two more recordings of its job, one with other numbers, made by make_small.py
where they are missing and can be made. Out: a table of medians over a few runs in turns, with the peak memory
of each program. A diff must not take more than 2.5 times as long as decoding both captures.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PCAP = HERE / "data" / "small.pcap"
AGAIN = HERE / "data" / "small-again.pcap"
OTHER = HERE / "data" / "small-other.pcap"
RECORDINGS: dict[Path, list[str]] = {PCAP: [], AGAIN: [], OTHER: ["--seed", "2"]}
"""Captures → options of make_small.py."""
SMALL = HERE.parent / "captures" / "basic_chain.pcap"
RPCINSPECT = [sys.executable, "-m", "rpcinspect"]
RUNS = 5

START: dict[str, list[str]] = {
    "import numpy, typer, rich": [sys.executable, "-c", "import numpy, typer, rich, rich.console"],
    "rpcinspect --help": [*RPCINSPECT, "--help"],
    "decode a capture of 24 messages": [*RPCINSPECT, "decode", str(SMALL)],
}

LARGE: dict[str, list[str]] = {
    "decode --format jsonl": [*RPCINSPECT, "decode", "--format", "jsonl", str(PCAP)],
    "decode": [*RPCINSPECT, "decode", str(PCAP)],
    "diff with another recording": [*RPCINSPECT, "diff", str(PCAP), str(AGAIN)],
    "diff, all numbers are others": [*RPCINSPECT, "diff", str(PCAP), str(OTHER)],
    "tshark -q -z conv,tcp": ["tshark", "-q", "-z", "conv,tcp", "-r", str(PCAP)],
}


def once(command: list[str]) -> tuple[float, float]:
    """Seconds by the wall clock and peak memory in MB of one run, output thrown away."""
    before = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - before
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and command[-1] != str(OTHER):  # which is different, and says so
        raise SystemExit(f"bench: {' '.join(command)} ended with {process.returncode}")
    return seconds, usage.ru_maxrss / 1024


def measure(commands: dict[str, list[str]]) -> None:
    """Runs the commands in turns, so that a busy moment of the machine hits all of them."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(RUNS + 1):
        for name, command in commands.items():
            result = once(command)
            if turn:  # the first turn only warms the caches
                found[name].append(result)
    for name, results in found.items():
        seconds = sorted(seconds for seconds, _ in results)
        memory = max(memory for _, memory in results)
        print(
            f"  {name:34} {statistics.median(seconds):7.3f} s  "
            f"({seconds[0]:.3f} to {seconds[-1]:.3f})  {memory:6.0f} MB"
        )


def main() -> int:
    print(f"start, median of {RUNS}:", flush=True)
    measure(START)
    for path, options in RECORDINGS.items():
        if path.exists():
            continue
        print(f"making {path.name}, 30,000 messages", flush=True)
        make = [sys.executable, str(HERE / "make_small.py"), "--name", path.stem, *options]
        if subprocess.run(make, check=False).returncode:
            print("bench: without that capture there is nothing more to measure")
            return 1
    commands = dict(LARGE)
    if shutil.which("tshark") is None:
        print("tshark is not installed: left out")
        del commands["tshark -q -z conv,tcp"]
    print(f"{PCAP.stat().st_size / 1e6:.0f} MB, 30,000 small messages, median of {RUNS}:", flush=True)
    measure(commands)
    return 0


if __name__ == "__main__":
    sys.exit(main())
