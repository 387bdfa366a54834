"""The faults of `make faults` can be put in: the text of each is in one place of the package."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tests.places import ROOT

sys.path.append(str(ROOT / "bench"))

from faults_list import LIST, broken, faults, found

EVERY = faults(LIST.read_text(encoding="utf-8"))
FAULT = """About.

# the offset is lost
moved.py
  if at:
-     at += 4
+     at += 2
tests: tests/a.py
"""
SOURCE = """\
def read(at):
    if at:
        at += 4
    return at
"""


def test_each_can_be_put_in() -> None:
    gone = [fault.name for fault in EVERY if found(fault, ROOT / "rpcinspect") is None]
    assert gone == [], "these texts are gone, or in several places: write them again in bench/faults.txt"


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(fault.name for fault in EVERY).items() if count > 1] == []


def test_a_fault_is_found_at_any_indentation(tmp_path: Path) -> None:
    (fault,) = faults(FAULT)
    assert (fault.name, fault.module, fault.tests) == ("the offset is lost", "moved.py", ("tests/a.py",))
    (tmp_path / "elsewhere.py").write_text(SOURCE)
    place = found(fault, tmp_path)
    assert place == (tmp_path / "elsewhere.py", 1, 4)
    assert broken(SOURCE, fault, *place[1:]) == (SOURCE.replace("+= 4", "+= 2"), 3)
    (tmp_path / "twice.py").write_text(SOURCE)
    assert found(fault, tmp_path) is None
