"""Whether PyTorch, or what else is optional, is installed, without importing it; commands that install it.

Only live workers import torch, in processes of their own.
"""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import version
from importlib.util import find_spec

RELEASES = "'rpcinspect[replay]'"
DEBUGGER = "'rpcinspect[debug]'"
BROWSER = "'rpcinspect[browse]'"
AGENTS = "'rpcinspect[mcp]'"
CPU_BUILD = "torch --index-url https://download.pytorch.org/whl/cpu"


def missing_torch() -> str | None:
    """Returns what to install, in one line; None where torch can be imported."""
    if find_spec("torch") is not None:
        return None
    return (
        f"live workers need PyTorch, which is not installed here: {pip_install(RELEASES)} (several GB where "
        f"CUDA is the default); about 200 MB: {pip_install(CPU_BUILD)}"
    )


def missing_debugpy() -> str | None:
    """Returns what to install for an editor's debugger, in one line; None where it can be imported."""
    if find_spec("debugpy") is not None:
        return None
    return f"--debug-port needs debugpy, which is not installed here: {pip_install(DEBUGGER)}"


def missing_textual() -> str | None:
    """Returns what to install for full screen, in one line; None where it can be imported."""
    if find_spec("textual") is not None:
        return None
    return f"browse needs Textual, which is not installed here: {pip_install(BROWSER)}"


def missing_mcp() -> str | None:
    """Returns what to install for agents, in one line; None where it can be imported."""
    if find_spec("mcp") is None:
        return f"mcp needs the package of that name, which is not installed here: {pip_install(AGENTS)}"
    found = version("mcp")
    if found.partition(".")[0] == "1":
        return f"mcp needs release 2 of the package of that name, and {found} is here: {pip_install(AGENTS)}"
    return None


def missing_cuda() -> str | None:
    """Returns why no live worker can use a GPU, as far as that is known without importing PyTorch."""
    found = version("torch") if find_spec("torch") is not None else ""
    return f"--device cuda: PyTorch {found} is built without CUDA" if found.endswith("+cpu") else None


def pip_install(what: str) -> str:
    """Returns the shell command that installs these requirements with options."""
    return f"{shlex.quote(sys.executable)} -m pip install {what}"
