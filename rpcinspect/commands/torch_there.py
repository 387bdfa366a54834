"""Whether PyTorch is installed, without importing it; what to install where it is not.

Only live workers import torch, in processes of their own.
"""

from __future__ import annotations

from importlib.util import find_spec

WHAT_TO_INSTALL = (
    "live workers need PyTorch, which is not installed: pip install 'rpcinspect[replay]' (several GB where "
    "CUDA is the default); about 200 MB: pip install torch --index-url https://download.pytorch.org/whl/cpu"
)


def missing_torch() -> str | None:
    """What to install, in one line; None where torch can be imported."""
    return WHAT_TO_INSTALL if find_spec("torch") is None else None
