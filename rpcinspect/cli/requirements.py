"""Whether PyTorch, or what else is optional, is installed, without importing it; commands that install it.

Only live workers import torch, in processes of their own.

In: nothing but the Python that runs. Out: a line that says what to install; releases of what is there.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec

from rpcinspect.errors import DOCTOR

RELEASES = "'rpcinspect[replay]'"
DEBUGGER = "'rpcinspect[debug]'"
BROWSER = "'rpcinspect[browse]'"
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


def missing_debugpy() -> str | None:
    """Returns what to install for an editor's debugger, in one line; None where it can be imported."""
    if find_spec("debugpy") is not None:
        return None
    return f"--debug-port needs debugpy, which is not installed here: {pip_install(DEBUGGER)}; {DOCTOR}"


def missing_textual() -> str | None:
    """Returns what to install for full screen, in one line; None where it can be imported."""
    if find_spec("textual") is not None:
        return None
    return f"browse needs Textual, which is not installed here: {pip_install(BROWSER)}; {DOCTOR}"


def missing_mcp() -> str | None:
    """Returns what to install for agents, in one line; None where it can be imported."""
    if find_spec("mcp") is None:
        what = "mcp needs the package of that name, which is not installed here"
        return f"{what}: {pip_install(AGENTS)}; {DOCTOR}"
    found = version("mcp")
    if found.partition(".")[0] == "1":
        what = f"mcp needs release 2 of the package of that name, and {found} is here"
        return f"{what}: {pip_install(AGENTS)}; {DOCTOR}"
    return None


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
