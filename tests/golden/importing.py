"""Imports everything that commands of rpcinspect load, so that forks of this process need not.

In: nothing but `sys.path`. Out: the modules, and the parser of the options, which is made once.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

import typer.main

OTHERS = (
    *("rpcinspect.recorder", "rpcinspect.replayer.workers", "rpcinspect.replayer.agent"),
    *("rpcinspect.engines", "rpcinspect.agents.server"),
)
"""Not imported before a command does: for processes with torch, of packages that may be missing, or slow."""


def import_commands() -> None:
    """Imports the package but for what `__main__` and processes with torch are."""
    package = importlib.import_module("rpcinspect")
    for module in pkgutil.walk_packages(package.__path__, "rpcinspect."):
        if not module.name.startswith(OTHERS) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    # The options are made into a parser once, not in each fork: a fifth of the time of a small capture.
    typer.main.get_command = functools.cache(typer.main.get_command)
    commands: Any = typer.main.get_command(importlib.import_module("rpcinspect.cli").app)
    for name in commands.list_commands(None):
        commands.get_command(None, name)
