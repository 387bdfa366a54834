"""rpcinspect: decode, replay and diff captured `torch.distributed.rpc` traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Comparison", "OpenSession", "Rules", "__version__", "compare", "open", "recording"]

if TYPE_CHECKING:
    from rpcinspect.diff.compare import compare
    from rpcinspect.diff.model import Comparison
    from rpcinspect.equality.rules import Rules
    from rpcinspect.opened import OpenSession
    from rpcinspect.opened import open_session as open
    from rpcinspect.recorder.in_process import recording


def __getattr__(name: str) -> object:
    """Loads what is asked for: the command line must not pay for the programmer's interface."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("open", "OpenSession"):
        from rpcinspect import opened

        return opened.open_session if name == "open" else opened.OpenSession
    if name == "recording":
        from rpcinspect.recorder.in_process import recording

        return recording
    from rpcinspect.diff.compare import compare
    from rpcinspect.diff.model import Comparison
    from rpcinspect.equality.rules import Rules

    return {"compare": compare, "Comparison": Comparison, "Rules": Rules}[name]
