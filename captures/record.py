"""Record the workloads again: each in a network namespace of its own, from a neutral path.

    python captures/record.py                  all of them, into the folder of this file
    python captures/record.py basic_chain …    these
    python captures/record.py --times 10 --into DIR pairs/base   ten runs of one: pairs/base-1 to pairs/base-10
    python captures/record.py --setup          make the environment in the neutral path first

In: the workload scripts beside this file, an interpreter with torch under the neutral path (tracebacks carry
paths, and so do captures). Out: NAME.pcap or NAME.pcap.gz, NAME.truth, and NAME.*.log where workers keep logs.
Needs root (network namespaces), iproute2 and tcpdump. A recording during which the kernel dropped packets is
thrown away and made again.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

HERE = Path(__file__).resolve().parent
HOME = Path("/opt/demo")
SYSTEM_PYTHON = Path("/usr/bin/python3")
TRIES = 3
SECONDS = 150
SETTLE_SECONDS = 1.5
"""tcpdump hands packets on at least once a second; it is stopped after that."""

WORKLOADS: dict[str, tuple[str, tuple[str, ...]]] = {
    "basic_chain": ("basic_chain.py", ()),
    "profiled_legacy": ("profiled_legacy.py", ()),
    "param_detach": ("param_detach.py", ()),
    "dtype_zoo": ("dtype_zoo.py", ()),
    "views_alias": ("views_alias.py", ()),
    "ctx_crowd": ("ctx_crowd.py", ()),
    "rref_relay": ("rref_relay.py", ()),
    "bwd_boom": ("bwd_boom.py", ()),
    "ps_race": ("ps_race.py", ()),
    "ps_race_lock": ("ps_race.py", ("lock",)),
    "devmap_cpu": ("devmap_cpu.py", ()),
    "devmap_cpu_refused": ("devmap_cpu.py", ("refused",)),
    "devmap_cpu_refused_cuda": ("devmap_cpu.py", ("refused_cuda",)),
    "transport_matrix_uv_basic": ("transport_matrix.py", ("uv_basic",)),
    "transport_matrix_uv_mpt": ("transport_matrix.py", ("uv_mpt",)),
    "transport_matrix_uv_only": ("transport_matrix.py", ("uv_only",)),
    "transport_matrix_default": ("transport_matrix.py", ("default",)),
    "reinit": ("reinit.py", ()),
    "draws": ("draws.py", ()),
    "faults/leaks": ("faults.py", ("leaks",)),
    "faults/tidy": ("faults.py", ("tidy",)),
    "faults/unused_result": ("faults.py", ("unused_result",)),
    "faults/used_result": ("faults.py", ("used_result",)),
    "faults/second_pass": ("faults.py", ("second_pass",)),
    "faults/split": ("faults.py", ("split",)),
    "faults/dies": ("faults.py", ("dies",)),
    "faults/unfit": ("faults.py", ("unfit",)),
    "faults/fit": ("faults.py", ("fit",)),
    "costs/one_by_one": ("costs.py", ("one_by_one",)),
    "costs/at_once": ("costs.py", ("at_once",)),
    "costs/in_turn": ("costs.py", ("in_turn",)),
    "costs/first_late": ("costs.py", ("first_late",)),
    "logs/killed": ("killed.py", ()),
    "redaction/vault": ("vault.py", ()),
    "pairs/base": ("training.py", ()),
    "pairs/again": ("training.py", ("again",)),
    "pairs/function": ("training.py", ("function",)),
    "pairs/learning_rate": ("training.py", ("learning_rate",)),
    "pairs/dropout_seed": ("training.py", ("dropout_seed",)),
    "pairs/dtype": ("training.py", ("dtype",)),
    "pairs/summation": ("training.py", ("summation",)),
    "pairs/order_async": ("training.py", ("order_async",)),
    "pairs/order_async_alike": ("training.py", ("order_async_alike",)),
    "pairs/order_sync": ("training.py", ("order_sync",)),
    "pairs/order_sync_alike": ("training.py", ("order_sync_alike",)),
    "pairs/call_dropped": ("training.py", ("call_dropped",)),
    "pairs/call_dropped_alike": ("training.py", ("call_dropped_alike",)),
    "pairs/call_added": ("training.py", ("call_added",)),
    "pairs/call_repeated": ("training.py", ("call_repeated",)),
    "pairs/extra_iteration": ("training.py", ("extra_iteration",)),
    "pairs/renamed": ("training.py", ("renamed",)),
    "pairs/device_map": ("training.py", ("device_map",)),
    "pairs/error": ("training.py", ("error",)),
    "pairs/error_nested": ("training.py", ("error_nested",)),
}
"""Capture → script and its arguments."""

SHARED = (HERE / "common.py", HERE / "describe.py")
"""Modules that every script imports."""

PLAIN = ("basic_chain", "param_detach", "profiled_legacy", "transport_matrix_default")
"""Captures that are kept as they are; the others are gzipped."""


class RecordError(Exception):
    """The recording could not be made; the text says why."""


# --- the stage: a namespace, a sniffer, a neutral folder ---------------------------------------------------


@contextlib.contextmanager
def namespace(mtu: int | None = None) -> Iterator[str]:
    """A fresh network namespace with its loopback up; it is gone afterwards, whatever happened.

    With an MTU, packets are as they would be on a wire: the kernel joins none of them.
    """
    name = f"rpcinspect-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        if mtu is not None:
            wire = ["mtu", str(mtu), "gso_max_segs", "1"]
            subprocess.run(["ip", "-n", name, "link", "set", "lo", *wire], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


@contextlib.contextmanager
def sniffer(space: str, file: Path, buffer_kib: int) -> Iterator[list[int]]:
    """tcpdump on the namespace's loopback; the yielded list gets packets captured and dropped, at the end."""
    command = ["ip", "netns", "exec", space, "tcpdump", "-i", "lo", "-s", "0", "-B", str(buffer_kib), "-U"]
    counts: list[int] = []
    with tempfile.TemporaryFile("w+") as log:
        # -Z root: else tcpdump gives up the right to write into a folder that only root may write to
        process = subprocess.Popen(
            [*command, "-Z", "root", "-w", str(file), "tcp"], stderr=log, start_new_session=True
        )
        try:
            _wait_for(lambda: "listening on" in _read(log), process)
            yield counts
            time.sleep(SETTLE_SECONDS)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        report = _read(log)
    captured = re.search(r"(\d+) packets? captured", report)
    dropped = re.search(r"(\d+) packets? dropped by kernel", report)
    if captured is None or dropped is None:
        raise RecordError(f"tcpdump did not report its counts: {report.strip()}")
    counts += [int(captured[1]), int(dropped[1])]


def _read(log: IO[str]) -> str:
    log.seek(0)
    return log.read()


def _wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 10
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            raise RecordError("tcpdump did not start")
        time.sleep(0.05)


@contextlib.contextmanager
def stage(home: Path, scripts: Sequence[Path]) -> Iterator[Path]:
    """The scripts, copied to a folder under the neutral path."""
    folder = home / "jobs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        for script in scripts:
            shutil.copy(script, folder / script.name)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_script(
    space: str, python: Path, script: Path, arguments: Sequence[str], errors: Path, seconds: float
) -> str:
    """What the script printed. Only its own process group is stopped when it takes too long."""
    # a host name of its own too: the store and the tracebacks could carry this machine's
    command = [
        "ip",
        "netns",
        "exec",
        space,
        "unshare",
        "--uts",
        "sh",
        "-c",
        'hostname demo && exec "$@"',
        "sh",
    ]
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "HOME": str(script.parent),
    }
    with errors.open("wb") as log:
        process = subprocess.Popen(
            [*command, str(python), str(script), *arguments],
            cwd=script.parent,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise RecordError(f"{script.name} took longer than {seconds:.0f} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode != 0:
        tail = errors.read_text(errors="replace").splitlines()[-15:]
        raise RecordError("\n".join([f"{script.name} ended with {process.returncode}", *tail]))
    return output.decode()


def record(
    python: Path,
    script: Path,
    arguments: Sequence[str],
    capture: Path,
    *,
    buffer_kib: int = 65536,
    seconds: float = SECONDS,
    mtu: int | None = None,
) -> tuple[str, int]:
    """Run a script (in its neutral place) under a sniffer: its output, and how many packets came."""
    for _ in range(TRIES):
        with namespace(mtu) as space, sniffer(space, capture, buffer_kib) as counts:
            output = run_script(space, python, script, arguments, capture.with_suffix(".stderr"), seconds)
        packets, dropped = counts
        if not dropped:
            return output, packets
        print(f"{capture.name}: the kernel dropped {dropped} packets, once more", file=sys.stderr)
    raise RecordError(f"{capture.name}: packets were dropped in each of {TRIES} tries")


# --- what must not be in a capture -------------------------------------------------------------------------


def forbidden() -> list[bytes]:
    """Traces of the machine that records: homes, this checkout, the host's name."""
    words = {b"/root/", b"/home/", os.fsencode(HERE.parent) + b"/", os.fsencode(Path.home()) + b"/"}
    host = socket.gethostname().encode()
    if len(host) > 4:  # a shorter one occurs by chance
        words.add(host)
    return sorted(words - {b"//"})


def check_neutral(name: str, content: bytes) -> None:
    for word in forbidden():
        at = content.find(word)
        if at >= 0:
            raise RecordError(f"{name} holds {word!r} at {at}: {content[max(0, at - 40) : at + 60]!r}")


# --- command line ------------------------------------------------------------------------------------------


def need_root() -> None:
    if os.geteuid() != 0:
        raise RecordError("recording needs root: it makes a network namespace and sniffs in it")
    for tool in ("ip", "tcpdump", "unshare"):
        if shutil.which(tool) is None:
            raise RecordError(
                f"recording needs `{tool}` (Debian: apt-get install iproute2 tcpdump util-linux)"
            )


def need_python(python: Path) -> None:
    if not python.exists():
        raise RecordError(f"{python} is missing; --setup makes it")
    base = subprocess.run(
        [str(python), "-c", "import sys, torch; print(sys.base_prefix)"],
        capture_output=True,
        text=True,
        check=False,
    )
    if base.returncode != 0:
        raise RecordError(f"{python} can't import torch: {base.stderr.strip()}")
    check_neutral(f"the path of the standard library of {python}", base.stdout.strip().encode() + b"/")


def set_up(home: Path) -> None:
    """An environment from the system's own Python, whose standard library lies in a neutral place too."""
    subprocess.run([str(SYSTEM_PYTHON), "-m", "venv", "--clear", str(home)], check=True)
    subprocess.run([str(home / "bin/pip"), "install", "--quiet", "torch==2.13.0", "numpy"], check=True)


def terminated(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends like Ctrl-C: the namespace and the processes are cleared away."""
    raise KeyboardInterrupt


def record_workload(workload: str, name: str, python: Path, folder: Path, into: Path) -> None:
    script, arguments = WORKLOADS[workload]
    raw = folder / f"{Path(name).name}.pcap"
    output, packets = record(python, folder / script, arguments, raw)
    content = raw.read_bytes()
    check_neutral(f"{name}.pcap", content)
    check_neutral(f"{name}.truth", output.encode())
    (into / name).parent.mkdir(parents=True, exist_ok=True)
    if name in PLAIN:
        (into / f"{name}.pcap").write_bytes(content)
    else:
        (into / f"{name}.pcap.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    (into / f"{name}.truth").write_text(output)
    for log in sorted(folder.glob("*.log")):
        check_neutral(log.name, log.read_bytes())
        shutil.move(log, into / f"{name}.{log.name}")
    print(
        f"{name}: {packets} packets, {len(content)} bytes, {output.count('TRUTH ')} lines of truth",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKLOADS)}; none: all")
    parser.add_argument("--home", type=Path, default=HOME, help="the neutral path (default: %(default)s)")
    parser.add_argument("--python", type=Path, help="the interpreter (default: HOME/bin/python)")
    parser.add_argument(
        "--into", type=Path, default=HERE, help="folder for the captures (default: that of this file)"
    )
    parser.add_argument("--times", type=int, default=1, help="runs of each (default: %(default)s)")
    parser.add_argument("--setup", action="store_true", help="first make the environment in HOME")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in WORKLOADS]
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}")
    if options.times > 1 and options.into.resolve() == HERE:
        parser.error("several runs of a workload need a folder of their own: --into")
    python = options.python or options.home / "bin/python"
    signal.signal(signal.SIGTERM, terminated)
    try:
        need_root()
        if options.setup:
            set_up(options.home)
        need_python(python)
        scripts = {HERE / script for script, _ in WORKLOADS.values()}
        with stage(options.home, [*scripts, *SHARED]) as folder:
            for workload in options.names or WORKLOADS:
                for run in range(1, options.times + 1):
                    name = workload if options.times == 1 else f"{workload}-{run}"
                    record_workload(workload, name, python, folder, options.into)
    except RecordError as error:
        print(f"record.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("record.py: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
