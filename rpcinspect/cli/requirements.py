"""Whether PyTorch, or what else is optional, is installed, without importing it; commands that install it.

Only live workers import torch, in processes of their own.

In: nothing but the Python that runs. Out: a line that says what to install; releases of what is there.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec

from rpcinspect.errors import DOCTOR

RELEASES = "'rpcinspect[replay]'"
AGENTS = "'rpcinspect[mcp]'"
EXTRAS: Mapping[str, tuple[str, str]] = {
    "browse": ("textual", "browse, record --browse"),
    "daft": ("daft", "many captures as a table of Daft"),
    "debug": ("debugpy", "replay --debug-port"),
    "mcp": ("mcp", "rpcinspect mcp, for coding agents"),
    "parquet": ("pyarrow", "export parquet, to_arrow"),
    "pyshark": ("pyshark", "to_pyshark, --reader pyshark"),
    "pytest": ("pytest", "recordings in tests"),
    "ray": ("ray", "many captures as a table of Ray Data"),
    "replay": ("torch", "replay, reproduce, record"),
    "spark": ("pyspark", "many captures as a table of Spark"),
}
"""Extra of ours → the package that it brings, and what needs that."""
CPU_BUILD = "torch --index-url https://download.pytorch.org/whl/cpu"


def missing_torch() -> str | None:
    """Returns what to install, in one line; None where torch can be imported."""
    if find_spec("torch") is not None:
        return None
    return (
        f"live workers need PyTorch, which is not installed here: {pip_install(RELEASES)} (several GB where "
        f"CUDA is the default); about 200 MB: {pip_install(CPU_BUILD)}; {DOCTOR}"
    )


def missing_extra(extra: str, told: str) -> str | None:
    """Returns what to install where an extra's package can't be imported, in one line; `told`: who needs
    what."""
    if find_spec(EXTRAS[extra][0]) is not None:
        return None
    install = pip_install(f"'rpcinspect[{extra}]'")
    return f"{told}, which is not installed here: {install}; {DOCTOR}"


def missing_for_browse(reads_stdin: bool) -> Iterator[str]:
    """Yields what full screen lacks here, each in one line."""
    from rpcinspect.browse.full_screen import missing_terminal

    yield from filter(None, (missing_extra("browse", "browse needs Textual"), missing_terminal(reads_stdin)))


def missing_mcp() -> str | None:
    """Returns what to install for agents, in one line; None where it can be imported."""
    missing = missing_extra("mcp", "mcp needs the package of that name")
    if missing is None and version("mcp").partition(".")[0] == "1":
        told = f"mcp needs release 2 of the package of that name, and {version('mcp')} is here"
        return f"{told}: {pip_install(AGENTS)}; {DOCTOR}"
    return missing


def missing_cuda() -> str | None:
    """Returns why no live worker can use a GPU, as far as that is known without importing PyTorch."""
    found = version("torch") if find_spec("torch") is not None else ""
    return f"--device cuda: PyTorch {found} is built without CUDA" if found.endswith("+cpu") else None


def release(package: str) -> str | None:
    """Returns the release of a package that can be imported; None where it can't."""
    if find_spec(package) is None:
        return None
    try:
        return version(package)
    except ImportError:  # a folder of that name, which no package has brought
        return "of an unknown release"


def pip_install(what: str) -> str:
    """Returns the shell command that installs these requirements with options."""
    return f"{shlex.quote(sys.executable)} -m pip install {what}"
