"""Environments that hold torch and nothing else of what this one has, for tests of other interpreters."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

NEEDED = (
    "torch",
    "typing_extensions",
    "sympy",
    "mpmath",
    "networkx",
    "jinja2",
    "markupsafe",
    "fsspec",
    "filelock",
)
"""What torch imports."""


def bare(folder: Path) -> Path:
    """An environment without any package; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    return folder / "bin" / "python"


def packages(python: Path) -> Path:
    """The folder of an environment's packages."""
    scheme = {"base": str(python.parent.parent), "platbase": str(python.parent.parent)}
    return Path(sysconfig.get_path("purelib", "venv", scheme))


def with_torch(folder: Path) -> Path:
    """An environment that has the torch of this one, by links, but no msgspec and no NumPy."""
    python = bare(folder)
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        place = origin.parent if origin.name == "__init__.py" else origin
        (packages(python) / place.name).symlink_to(place)
    note = Path(str(importlib.metadata.distribution("torch").locate_file("")))
    for libraries in ("torch.libs", "torchgen", "functorch"):
        if (note / libraries).exists():
            (packages(python) / libraries).symlink_to(note / libraries)
    pretend(python, importlib.metadata.version("torch"))
    return python


def pretend(python: Path, torch: str) -> None:
    """Notes in an environment that it has this release of torch."""
    made = packages(python) / f"torch-{torch}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
