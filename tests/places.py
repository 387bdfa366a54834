"""Where the captures of tests lie; no other module knows.

`recorded("reports/names/two_jobs_late.pcap")` is the path of a capture, of its truth or of its script below
captures/, compressed or not; `content` is its bytes, unpacked.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import zstandard

ROOT = Path(__file__).resolve().parent.parent
CAPTURES = ROOT / "captures"
RECORDINGS = ("reports",)
"""Folders of captures that captures/record.py did not make."""


def recorded(name: str) -> Path:
    """The file or folder of this name below captures/, or the one that it was compressed to."""
    for suffix in ("", ".gz", ".zst"):
        path = CAPTURES / f"{name}{suffix}"
        if path.exists():
            return path
    raise FileNotFoundError(CAPTURES / name)


def content(name: str) -> bytes:
    """What that file holds, unpacked, whether or not the name says that it is packed."""
    path = recorded(name)
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(data).read()
    return data


def workloads() -> list[Path]:
    """The captures that captures/record.py made, in the order of their names."""
    found = sorted(path for path in CAPTURES.rglob("*.pcap*") if path.is_file())
    return [path for path in found if path.relative_to(CAPTURES).parts[0] not in RECORDINGS]
