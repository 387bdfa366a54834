"""`make bench`: how long the start takes, and how long captures, beside other programs on the same file.

    python bench/run.py                   all cases that are recorded or can be
    python bench/run.py small wire        these
    python bench/run.py --json FILE       the numbers for programs, too

In: bench/data/NAME.pcap, made by make.py where they are missing and can be made. Out: a table of medians over
a few runs, all commands of a case in turns on the same file, which lies in the page cache; the processor time
and the peak memory of each; then each target, and whether it holds. The exit code is 1 if one does not.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rpcinspect.cli.cores import usable_cores

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
BASIC = HERE.parent / "captures" / "basic_chain.pcap"
RPCINSPECT = [sys.executable, "-m", "rpcinspect"]
DECODE = [*RPCINSPECT, "decode"]
JSONL = [*DECODE, "--format", "jsonl"]
CONV = ["tshark", "-q", "-z", "conv,tcp", "-r"]
FIELDS = ["tshark", "-T", "fields", "-e", "tcp.stream", "-e", "tcp.seq", "-e", "tcp.len", "-r"]
CORES = usable_cores()
MOST_MB = 250
"""At the peak of any decoding."""
MOST_BYTES_A_MESSAGE = 400
"""By which the peak grows from `small` to `small-4`."""
MORE_MESSAGES = 90_000
"""Of small-4 than of small."""
IMPORTS = "import numpy, typer"
BARE = f"import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; {IMPORTS}"
"""Without numpy's threads, which spin: with them, half of the processor time of such a start is theirs."""
VIEWS = ("latency", "contexts", "export html", "export parquet")
BOTH = "decode --format jsonl, both"
DPKT = """
import sys, dpkt
for _, data in dpkt.pcap.Reader(open(sys.argv[1], "rb")):
    ip = dpkt.ethernet.Ethernet(data).data
    tcp = ip.data
    tcp.seq, len(tcp.data)
"""
PYSHARK = """
import sys, pyshark
with pyshark.FileCapture(sys.argv[1], keep_packets=False) as packets:
    for count, packet in enumerate(packets):
        packet.tcp.seq
        if count == 3000:
            break
"""
OTHERS = {
    "tcpdump -w /dev/null": ["tcpdump", "-w", "/dev/null", "-r"],
    "tcpflow": ["tcpflow", "-o", "{folder}", "-r"],
    "tshark -q -z conv,tcp": CONV,
    "tshark -T fields": FIELDS,
    "dpkt, headers only": [sys.executable, "-c", DPKT],
    "pyshark, 3,000 packets": [sys.executable, "-c", PYSHARK],
}
"""Programs that read captures, each with the file as its last argument."""


@dataclass(frozen=True)
class Case:
    """One capture, what is run on it and what is compared."""

    make: dict[str, list[str]]
    """Name of a capture → options of make.py, in the order in which they are needed."""
    ours: dict[str, list[str]]
    others: tuple[str, ...] = ()
    targets: tuple[tuple[str, str, float], ...] = ()
    """(ours, theirs, ours is to take at most so many times theirs)."""
    growth: tuple[str, str] | None = None
    """(the command on small, the command on small-4)."""


@dataclass
class Figures:
    """What runs of one command took."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    memory: float = 0.0
    """MB at the peak of the largest run."""


def on(name: str) -> str:
    """The path of a capture."""
    return str(DATA / f"{name}.pcap")


CASES = {
    "start": Case(
        {},
        {
            IMPORTS: [sys.executable, "-c", BARE],
            "rpcinspect --help": [*RPCINSPECT, "--help"],
            "decode of 24 messages": [*DECODE, str(BASIC)],
            "decode --format jsonl of 24": [*JSONL, str(BASIC)],
        },
        (),
        (("decode of 24 messages", IMPORTS, 1.3), ("decode --format jsonl of 24", IMPORTS, 1.3)),
    ),
    "views": Case(
        {"small": ["small"], "small-again": ["small"]},
        {
            "decode --format jsonl": [*JSONL, on("small")],
            "latency": [*RPCINSPECT, "latency", on("small")],
            "contexts": [*RPCINSPECT, "contexts", on("small")],
            "export html": [*RPCINSPECT, "export", "html", on("small"), "-o", "{folder}/page.html"],
            "export parquet": [*RPCINSPECT, "export", "parquet", on("small"), "-o", "{folder}"],
            BOTH: [
                "sh",
                "-c",
                f"{shlex.join([*JSONL, on('small')])}; {shlex.join([*JSONL, on('small-again')])}",
            ],
            "diff with another recording": [*RPCINSPECT, "diff", on("small"), on("small-again")],
        },
        (),
        (
            *((view, "decode --format jsonl", 1.5) for view in VIEWS),
            ("diff with another recording", BOTH, 1.5),
        ),
    ),
    "small": Case(
        {"small": ["small"], "small-again": ["small"], "small-other": ["small", "--seed", "2"]},
        {
            "decode --format jsonl": [*JSONL, on("small")],
            "decode": [*DECODE, on("small")],
            "diff with another recording": [*RPCINSPECT, "diff", on("small"), on("small-again")],
            "diff, all numbers are others": [*RPCINSPECT, "diff", on("small"), on("small-other")],
        },
        tuple(OTHERS),
        (("decode --format jsonl", "tshark -q -z conv,tcp", 0.35),),
    ),
    "four times small": Case(
        {"small": ["small"], "small-4": ["small", "--iterations", "12000"]},
        {
            "decode --format jsonl, small": [*JSONL, on("small")],
            "decode --format jsonl": [*JSONL, on("small-4")],
        },
        (),
        (("decode --format jsonl", "decode --format jsonl, small", 4.4),),
        ("decode --format jsonl, small", "decode --format jsonl"),
    ),
    "big": Case(
        {"big": ["big"]},
        {
            "decode": [*DECODE, on("big")],
            "decode --format jsonl --no-hash": [*JSONL, "--no-hash", on("big")],
            "decode --format jsonl": [*JSONL, on("big")],
            "decode --format jsonl --jobs 1": [*JSONL, "--jobs", "1", on("big")],
        },
        ("tcpdump -w /dev/null", "tcpflow"),
        (
            ("decode", "tcpflow", 1.0),
            ("decode --format jsonl --no-hash", "tcpflow", 1.0),
            ("decode --format jsonl --jobs 1", "tcpflow", 2.5),
            *([("decode --format jsonl", "decode --format jsonl --jobs 1", 0.7)] if CORES > 1 else []),
        ),
    ),
    "wire": Case(
        {"wire": ["wire"]},
        {"decode --format jsonl": [*JSONL, on("wire")]},
        ("tcpdump -w /dev/null", "tcpflow", "tshark -q -z conv,tcp"),
        (("decode --format jsonl", "tshark -q -z conv,tcp", 0.5),),
    ),
    "cut": Case(
        {"small": ["small"], "cut": ["cut"]},
        {"decode --format jsonl": [*JSONL, on("cut")]},
        ("tcpdump -w /dev/null", "tcpflow", "tshark -q -z conv,tcp"),
    ),
}


def once(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float, float]:
    """Seconds by the wall clock and of processors, and peak memory in MB of one run; output thrown away."""
    before = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - before
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and "diff" not in command:  # which may find that they differ, and says so
        raise SystemExit(f"bench: {' '.join(command)} ended with {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure(commands: dict[str, list[str]], runs: int, compiled: str) -> dict[str, Figures]:
    """Runs the commands in turns, so that a busy moment of the machine hits all of them."""
    # as an installed package runs: with its modules compiled
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    found = {name: Figures() for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            with tempfile.TemporaryDirectory() as folder:
                filled = [word.replace("{folder}", folder) for word in command]
                wall, cpu, memory = once(filled, environment)
            if turn:  # the first turn only warms the caches
                found[name].wall.append(wall)
                found[name].cpu.append(cpu)
                found[name].memory = max(found[name].memory, memory)
    return found


def there(name: str) -> bool:
    """Whether a program of `OTHERS` is installed."""
    command = OTHERS[name]
    if command[0] == sys.executable:
        return importlib.util.find_spec(name.partition(",")[0]) is not None
    return shutil.which(command[0]) is not None


def made(case: Case) -> bool:
    """Whether the captures of a case are there, or could be made."""
    for name, options in case.make.items():
        if Path(on(name)).exists():
            continue
        print(f"making {name}.pcap", flush=True)
        make = [sys.executable, str(HERE / "make.py"), *options, "--name", name]
        if subprocess.run(make, check=False).returncode:
            print("  it can't be made here: left out")
            return False
    return True


def show(name: str, case: Case, found: dict[str, Figures]) -> list[dict[str, object]]:
    """Prints the table of a case; the same for programs."""
    lines: list[dict[str, object]] = []
    for what, figures in found.items():
        wall, cpu = statistics.median(figures.wall), statistics.median(figures.cpu)
        span = f"({min(figures.wall):.2f} to {max(figures.wall):.2f})"
        print(f"  {what:34} {wall:8.3f} s {span:18} {cpu:8.3f} s of cores {figures.memory:6.0f} MB")
        lines.append(
            {"case": name, "command": what, "wall_s": wall, "cpu_s": cpu, "memory_mb": figures.memory}
        )
    for ours, theirs, most in case.targets:
        if ours in found and theirs in found:
            wall, cpu = (
                statistics.median(a / b for a, b in zip(mine, its, strict=True))  # each of one turn
                for mine, its in (
                    (found[ours].wall, found[theirs].wall),
                    (found[ours].cpu, found[theirs].cpu),
                )
            )
            told = f"{ours}: {wall:.2f} × {theirs} ({cpu:.2f} × in cores' time), at most {most}"
            lines.append(
                _target(told, wall <= most, case=name, command=ours, of=theirs, wall=wall, most=most)
            )
    decoded = [figures.memory for what, figures in found.items() if what.startswith("decode")]
    if decoded and case.make:
        told = f"{max(decoded):.0f} MB at the peak, at most {MOST_MB}"
        lines.append(_target(told, max(decoded) <= MOST_MB, case=name, memory_mb=max(decoded), most=MOST_MB))
    if case.growth is not None:
        small, large = (found[what].memory for what in case.growth)
        each = (large - small) * (1 << 20) / MORE_MESSAGES
        told = f"{each:.0f} bytes for each message more, at most {MOST_BYTES_A_MESSAGE}"
        lines.append(
            _target(told, each <= MOST_BYTES_A_MESSAGE, case=name, bytes=each, most=MOST_BYTES_A_MESSAGE)
        )
    sys.stdout.flush()
    return lines


def _target(told: str, holds: bool, **numbers: object) -> dict[str, object]:
    print(f"    {'holds ' if holds else 'MISSED'} {told}")
    return {**numbers, "holds": holds}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--runs", type=int, default=5, help="of each command (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    options = parser.parse_args()
    lines: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as compiled:
        for name in options.cases or CASES:
            case = CASES[name]
            if not made(case):
                continue
            commands = dict(case.ours)
            path = on(list(case.make)[-1] if name != "small" else "small") if case.make else ""
            for other in case.others:
                if there(other):
                    commands[other] = [*OTHERS[other], path]
                else:
                    print(f"{other.partition(',')[0]} is not installed: left out")
            print(f"{name}, median of {options.runs}:", flush=True)
            lines += show(name, case, measure(commands, options.runs, compiled))
    if options.json is not None:
        options.json.write_text(json.dumps(lines, indent=1) + "\n")
    return 0 if all(line.get("holds", True) for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
