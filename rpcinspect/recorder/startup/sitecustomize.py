"""Runs at the start of every Python process of a recorded command: puts a hook in place that acts once
`torch.distributed.rpc` has been imported, and hands over to the user's own `sitecustomize`.

In: the environment variable RPCINSPECT_RECORD, JSON: `via`, `notes` and what that way of recording needs; its
module `rpcinspect_<via>` in this folder has `install(rpc, settings, notes)`. Out: nothing, if no RPC is used:
no module is imported, each import costs one comparison of strings.

Never stands in the way of the job: what goes wrong here becomes a note that says so.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

VARIABLE = "RPCINSPECT_RECORD"
TARGET = "torch.distributed.rpc"
HERE = os.path.dirname(os.path.abspath(__file__))


class Hook:
    """A finder that finds nothing by itself: lets the others find the target, and acts once it is loaded."""

    def __init__(self, settings: str) -> None:
        self.settings = settings

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != TARGET:
            return None
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    self._act_behind(spec.loader)
                return spec
        return None

    def _act_behind(self, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            install(module, self.settings)

        loader.exec_module = exec_module


def install(rpc: ModuleType, settings_text: str) -> None:
    """Hands the freshly imported package to the way of recording that was chosen."""
    import json

    settings = json.loads(settings_text)
    notes = sibling("rpcinspect_notes").Notes(settings["notes"])
    try:
        sibling("rpcinspect_" + settings["via"]).install(rpc, settings, notes)
    except Exception as error:
        notes.unrecorded(f"{type(error).__name__}: {error}")


def sibling(name: str) -> Any:
    """A module of this folder, which is not on the path any more."""
    import importlib.util

    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, name + ".py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def begin() -> None:
    """Puts the hook in place, where there is something to record."""
    settings = os.environ.get(VARIABLE)
    if not settings:
        return
    if TARGET in sys.modules:  # by a .pth file
        install(sys.modules[TARGET], settings)
    else:
        sys.meta_path.insert(0, Hook(settings))


def hand_over() -> None:
    """Runs the user's own `sitecustomize` as if this one were not there; what it raises is its own."""
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - the next one on the path
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)  # who imports us must find something


if __name__ == "sitecustomize":
    begin()
    hand_over()
