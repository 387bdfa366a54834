"""rpcinspect: decode, replay and diff captured `torch.distributed.rpc` traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Comparison", "Rules", "Run", "__version__", "compare", "open", "recording"]

if TYPE_CHECKING:
    from rpcinspect.diff.compare import compare
    from rpcinspect.diff.model import Comparison
    from rpcinspect.equality.rules import Rules
    from rpcinspect.recorder.in_process import recording
    from rpcinspect.run.run import Run
    from rpcinspect.run.run import open_run as open


def __getattr__(name: str) -> object:
    """Loads what is asked for: the command line must not pay for the programmer's interface."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("open", "Run"):
        from rpcinspect.run.run import Run, open_run

        return open_run if name == "open" else Run
    if name == "recording":
        from rpcinspect.recorder.in_process import recording

        return recording
    from rpcinspect.diff.compare import compare
    from rpcinspect.diff.model import Comparison
    from rpcinspect.equality.rules import Rules

    return {"compare": compare, "Comparison": Comparison, "Rules": Rules}[name]
