"""What a fresh interpreter imports on the way to the help and to a decoded capture: nothing it can spare."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CAPTURE = ROOT / "captures" / "basic_chain.pcap"

PROGRAM = """
import sys
before = set(sys.modules)  # what the environment's own start-up hooks have loaded
from rpcinspect.cli import main
try:
    main()
finally:
    after = sorted(set(sys.modules) - before)
    import json
    sys.stdout.flush()
    print(json.dumps(after), file=sys.stderr)
"""

HEAVY = {"torch", "pyshark", "lxml", "asyncio", "safetensors", "multiprocessing", "ssl", "sqlite3"}
HEAVY |= {"hypothesis", "pytest", "_pytest", "unittest", "zstandard", "termcolor", "jinja2", "lark", "re2"}
HEAVY |= {"pyarrow", "pandas", "duckdb"}

DECODE = {
    "table": ("decode", str(CAPTURE)),
    "jsonl": ("decode", "--format", "jsonl", str(CAPTURE)),
    "message": ("decode", "--message", "6", str(CAPTURE)),
    "roundtrip": ("decode", "--roundtrip", str(CAPTURE)),
    "tensors": ("export", "safetensors", "-o", "DIR", str(CAPTURE)),
    "latency": ("latency", str(CAPTURE)),
    "graph": ("graph", str(CAPTURE)),
}


def imported(*arguments: str) -> frozenset[str]:
    """Names of all modules that the command has loaded by its end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return frozenset(json.loads(done.stderr.splitlines()[-1]))


def top(names: frozenset[str]) -> set[str]:
    """Their top-level packages."""
    return {name.partition(".")[0] for name in names}


def requirements_of(*names: str) -> set[str]:
    """These distributions and all that they require, normalised."""
    found: set[str] = set()
    queue = list(names)
    while queue:
        name = re.sub(r"[-_.]+", "-", queue.pop()).lower()
        if name in found:
            continue
        try:
            wanted = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another platform
            continue
        found.add(name)
        for line in wanted:
            requirement = re.match(r"[A-Za-z0-9._-]+", line)
            if requirement is not None and "extra ==" not in line:
                queue.append(requirement[0])
    return found


@pytest.mark.parametrize("way", DECODE)
def test_decode_imports_its_packages_and_theirs_and_nothing_heavy(way: str, tmp_path: Path) -> None:
    modules = imported(*(str(tmp_path) if a == "DIR" else a for a in DECODE[way]))
    assert not top(modules) & HEAVY
    if way in ("table", "jsonl"):
        assert not modules & {"numpy.ma", "rpcinspect.capture.log", "rich.console"}
    if way == "jsonl":  # which needs no tables
        assert "rich" not in top(modules)
    allowed = requirements_of("msgspec", "numpy", "orjson", "rich", "sortedcontainers", "typer", "rpcinspect")
    allowed.add("typing-extensions")  # msgspec takes it where it is there
    owners = metadata.packages_distributions()
    for package in top(modules):
        if package in sys.stdlib_module_names or package not in owners:
            continue
        distributions = {re.sub(r"[-_.]+", "-", name).lower() for name in owners[package]}
        assert distributions & allowed, f"{package} is imported"


def test_compressed_captures_cost_their_library_alone(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "basic_chain.pcap.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(CAPTURE.read_bytes()))
    assert top(imported("decode", str(path))) & HEAVY == {"zstandard"}


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("decode", "--help")], ids=" ".join)
def test_help_imports_no_decoder(arguments: tuple[str, ...]) -> None:
    names = imported(*arguments)
    assert not top(names) & (HEAVY | {"numpy", "orjson", "sortedcontainers"})
    ours = {name for name in names if name.startswith("rpcinspect")}
    assert {name for name in ours if not name.startswith("rpcinspect.cli.")} == {
        "rpcinspect",
        "rpcinspect.cli",
        "rpcinspect.errors",
        "rpcinspect.exit_codes",
        "rpcinspect.unexpected",
    }
