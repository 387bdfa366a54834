"""What `rpcinspect doctor` looks at: one probe for each thing that a command may need.

A probe asks what the commands themselves ask: the same socket, the same namespace, the same search for a
compiler. So it can't judge otherwise than they do. Nothing is built, installed or sent.

In: this machine. Out: a `MachineFact` of each thing, with what it is needed for, and what helps where it is
missing.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from rpcinspect import __version__
from rpcinspect.browse.ascii import shows_ascii_only
from rpcinspect.browse.full_screen import missing_terminal
from rpcinspect.capture.live import NO_RIGHT
from rpcinspect.capture.packet_socket import ANY, open_socket
from rpcinspect.capture.tshark import INSTALL, find_program
from rpcinspect.cli.requirements import EXTRAS, pip_install, release
from rpcinspect.errors import DOCTOR, CaptureError, RpcInspectError
from rpcinspect.fields.phrases import amount
from rpcinspect.files.temporary import Temporary, temporary_folder
from rpcinspect.recorder.agent import QUEUE_ROOM, SHARED_MEMORY
from rpcinspect.recorder.launcher import CommandProcess
from rpcinspect.recorder.wire import WireMechanism
from rpcinspect.replayer.workers.interpreters import release_of

FactState = Literal["ok", "missing", "none", "unknown"]
"""`none`: it is not here, and nothing is the worse for it; `unknown`: nobody answered."""
ASK_S = 5.0
"""For a program that is asked for its release."""
PTRACE_SCOPES = {
    "0": "any process of yours",
    "1": "children only",
    "2": "with CAP_SYS_PTRACE only",
    "3": "nobody",
}
"""What /proc/sys/kernel/yama/ptrace_scope means: who may read the memory of another process."""


class MachineFact(Struct, frozen=True, kw_only=True):
    """One thing that a command may need."""

    name: str
    state: FactState
    found: str
    needed_for: str
    remedy: str | None = None
    """What to do where it is missing, or how to do without."""


def without_pointer(line: str) -> str:
    """Returns a line without the words that lead here."""
    return line.removesuffix(f"; {DOCTOR}")


def python() -> Iterator[MachineFact]:
    """Returns what this program is, and what runs it."""
    found = f"{__version__}, Python {platform.python_version()} ({sys.executable})"
    yield MachineFact(name="rpcinspect", state="ok", found=found, needed_for="everything")


def kernel() -> Iterator[MachineFact]:
    """Looks at the system; what record learns of the end of workers depends on its release."""
    fact = partial(MachineFact, name="system", needed_for="record")
    system = f"{platform.system()} {platform.release()}"
    if sys.platform != "linux":
        remedy = "record the job on a Linux host; everything else works here"
        yield fact(state="missing", found=system, remedy=remedy)
        return
    old = release_of(platform.release()) < (6, 15)
    told = "; before 6.15, how a worker ended is not known of every process" if old else ""
    yield fact(state="ok", found=f"{system}{told}")


def packets() -> Iterator[MachineFact]:
    """Looks for the right to capture, by the socket that record and --live open, and for Wireshark's program
    for those who have none."""
    fact = partial(MachineFact, name="packet capture", needed_for="record --via wire, decode --live")
    try:
        open_socket(ANY).close()
    except PermissionError:
        yield fact(state="missing", found="not allowed: this process lacks CAP_NET_RAW", remedy=RIGHTS)
    except (OSError, CaptureError) as error:
        yield fact(state="missing", found=str(error))
    else:
        yield fact(state="ok", found=f"allowed (user id {os.geteuid()})")
    program, needed = find_program("dumpcap"), "decode --live for users without that right, --capture-filter"
    fact = partial(MachineFact, name="dumpcap", needed_for=needed)
    if program is None:
        yield fact(state="missing", found="not found", remedy=without_pointer(INSTALL))
    elif told_by([program, "-L", "-i", socket.if_nameindex()[0][1]]):
        yield fact(state="ok", found=program)
    else:
        yield fact(state="missing", found=f"{program} may not capture", remedy=without_pointer(NO_RIGHT))


RIGHTS = (
    "run this as root, or: sudo setcap cap_net_raw+ep $(readlink -f "
    f"{sys.executable}); record --private-net may need neither"
)


def namespace() -> Iterator[MachineFact]:
    """Looks for a network of its own, entered in a process that ends at once, as record does it."""
    fact = partial(MachineFact, name="network namespace", needed_for="record --private-net")
    try:
        stage = WireMechanism(Path(), private_net=True).stage
        with CommandProcess([sys.executable], os.environ, stage) as process:
            for descriptor in process.descriptors:
                os.close(descriptor)
    except RpcInspectError as error:
        found = without_pointer(str(error)).removeprefix("--private-net: ")
        yield fact(state="missing", found=found, remedy="record --via agent needs no namespace")
    else:
        yield fact(state="ok", found="can be made")


def tshark() -> Iterator[MachineFact]:
    """Looks for tshark, and whether it runs plugins of Lua."""
    needed = "captures that only Wireshark reads, --reader tshark"
    fact = partial(MachineFact, name="tshark", needed_for=needed)
    program = find_program("tshark")
    lines = [] if program is None else told_by([program, "--version"])
    if not lines:
        found = "not found" if program is None else f"{program} does not run"
        yield fact(state="missing", found=found, remedy=without_pointer(INSTALL))
        return
    lua = "with Lua" if "with Lua" in " ".join(lines) else "without Lua, so that it runs no plugin"
    yield fact(state="ok", found=f"{lines[0].partition(' (Git')[0].rstrip('.')}, {lua}")


def transports() -> Iterator[MachineFact]:
    """Looks for what torch's own transports need, which decides what a capture of packets can hold."""
    devices = sorted(path.name for path in Path("/sys/class/infiniband").glob("*"))
    yield MachineFact(
        name="RDMA",
        state="ok" if devices else "none",
        found=", ".join(devices) or "no device",
        needed_for="torch's transport ibv, which only record --via agent sees",
    )
    needed = "torch's transport shm, queues of record --via agent"
    fact = partial(MachineFact, name="shared memory", needed_for=needed)
    try:
        room = os.statvfs(SHARED_MEMORY)
    except OSError as error:
        yield fact(state="missing", found=f"{SHARED_MEMORY}: {error.strerror}")
    else:
        free = room.f_bavail * room.f_frsize
        few = f", less than {amount(QUEUE_ROOM)}: queues go to the temporary folder"
        told = "" if free >= QUEUE_ROOM else few
        yield fact(state="ok", found=f"{amount(free)} free in {SHARED_MEMORY}{told}")
    fact = partial(MachineFact, name="memory of others", needed_for="torch's channel cma")
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
    except OSError:
        yield fact(state="ok", found="no ptrace_scope: any process of yours")
    else:
        yield fact(state="ok", found=f"ptrace_scope {scope}: {PTRACE_SCOPES.get(scope, 'not known')}")


def extras() -> Iterator[MachineFact]:
    """Looks for packages that come with extras of ours; torch has a probe of its own."""
    for extra, (package, needed) in EXTRAS.items():
        if package == "torch":
            continue
        fact = partial(MachineFact, name=package, needed_for=needed)
        found = release(package)
        if found is None:
            yield fact(state="missing", found="not installed", remedy=pip_install(f"'rpcinspect[{extra}]'"))
        else:
            yield fact(state="ok", found=found)


def terminal() -> Iterator[MachineFact]:
    """Looks at what the terminal shows."""
    fact = partial(MachineFact, name="terminal", needed_for="browse")
    missing = missing_terminal(False)
    if missing is not None:
        found, _, remedy = missing.partition(": ")
        yield fact(state="missing", found=found, remedy=remedy)
        return
    from rich.console import Console

    colors = Console().color_system or "no"
    signs = "ASCII only, by the locale" if shows_ascii_only() else "Unicode"
    yield fact(state="ok", found=f"{colors} colors, {signs}")


def temporary() -> Iterator[MachineFact]:
    """Looks for room for what can't be read twice."""
    needed = "compressed captures, standard input, tshark"
    fact = partial(MachineFact, name="temporary files", needed_for=needed)
    try:
        folder = temporary_folder()
        with Temporary():
            free = shutil.disk_usage(folder).free
    except (RpcInspectError, OSError) as error:
        yield fact(state="missing", found=str(error))
    else:
        yield fact(state="ok", found=f"{amount(free)} free in {folder}")


def told_by(command: list[str]) -> list[str]:
    """Returns the lines that a program writes; none where it is not there, fails, or does not answer."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ASK_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]


ABOUT: tuple[Callable[[], Iterator[MachineFact]], ...] = (python, kernel)
PROBES: tuple[Callable[[], Iterator[MachineFact]], ...] = (
    packets,
    namespace,
    transports,
    tshark,
    extras,
    terminal,
    temporary,
)
