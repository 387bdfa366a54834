"""Where the captures of tests lie; no other module knows.

Those that this project recorded lie below captures/: `recorded("reports/names/two_jobs_late.pcap")` is the
path of one, of its truth or of its script, compressed or not; `content` is its bytes, unpacked. Those that
others recorded lie in ../shared/captures, which few have: a test that looks at one (`foreign`) is skipped
where they are not there (tests/looks.py). WITHOUT_SHARED=1 in the environment makes it seem so.
"""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import zstandard

ROOT = Path(__file__).resolve().parent.parent
CAPTURES = ROOT / "captures"
OTHER_JOBS = ("torch", "torch-suite", "versions")
RECORDINGS = ("attacks", "demo", "reports", *OTHER_JOBS)
"""Folders of captures that captures/record.py did not make."""

SHARED = ROOT.parent / "shared"
FOREIGN = SHARED / "captures"
EXAMPLES = ("rnn_basic.pcap.gz", "rnn_default_shm.pcap")
"""PyTorch's RNN example, in the folder `examples` there."""
WITHOUT_SHARED = bool(os.environ.get("WITHOUT_SHARED")) or not FOREIGN.is_dir()
LOOKED = "rpcinspect.tests.foreign"
"""The audit event of who asks for a capture of others."""


def recorded(name: str) -> Path:
    """The file or folder of this name below captures/, or the one that it was compressed to."""
    for suffix in ("", ".gz", ".zst"):
        path = CAPTURES / f"{name}{suffix}"
        if path.exists():
            return path
    raise FileNotFoundError(CAPTURES / name)


def content(name: str | Path) -> bytes:
    """What a file there, or one of this path, holds: unpacked, also where the name does not tell."""
    path = recorded(str(name))
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(data).read()
    return data


def recordings(*folders: str, like: str = "*.pcap*") -> list[Path]:
    """The captures of these folders."""
    return [path for folder in folders for path in sorted((CAPTURES / folder).glob(like))]


def others() -> list[Path]:
    """For parameters: captures of other jobs, the same ones where those of others are not there."""
    return [*recordings(*OTHER_JOBS), *(FOREIGN / "examples" / name for name in EXAMPLES)]


def workloads() -> list[Path]:
    """The captures that captures/record.py made."""
    found = sorted(path for path in CAPTURES.rglob("*.pcap*") if path.is_file())
    return [path for path in found if path.relative_to(CAPTURES).parts[0] not in RECORDINGS]


def foreign(name: str) -> Path:
    """A capture of others, such as "thirdparty/x.pcap"; a test that asks is skipped where there are none."""
    path = FOREIGN / name
    sys.audit(LOOKED, str(path))
    return path


def all_foreign(folder: str) -> list[Path]:
    """The captures of others, none where they are not there: for what goes on without them."""
    return [] if WITHOUT_SHARED else sorted((FOREIGN / folder).glob("*.pcap*"))
