"""Python's garbage collector: off while modules are loaded, on for everything after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CAPTURE = ROOT / "captures" / "basic_chain.pcap"

PROGRAM = """
import gc, json, sys
from rpcinspect.cli import messages as decode
found = {}
run = decode._json
def look(*arguments):
    found.update(on=gc.isenabled(), kept=gc.get_freeze_count())
    return run(*arguments)
decode._json = look
import atexit
atexit.register(lambda: print(json.dumps(found), file=sys.stderr))
from rpcinspect.__main__ import main
main()
"""


def test_a_command_runs_with_it_and_without_what_modules_made() -> None:
    command = [sys.executable, "-c", PROGRAM, "decode", "--format", "jsonl", str(CAPTURE)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    found = json.loads(done.stderr)
    assert found["on"]
    assert found["kept"] > 10_000


def test_programs_that_use_us_keep_their_own_way() -> None:
    use = "import rpcinspect.cli.collector as collector; collector.imports_are_over()"
    ask = "import gc; print(gc.isenabled(), gc.get_freeze_count())"
    assert told(f"{use}; {ask}") == told(ask)


def told(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout
