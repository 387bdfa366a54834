"""Words for what has no name."""

from __future__ import annotations

from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.pickles.verdicts import title


def test_titles() -> None:
    system = Global("os", "system")
    assert title(system) == "os.system"
    assert title(PickleCall(system, ())) == "os.system(…)"
    assert title(PickleCall(PickleCall(system, ()), ())) == "a call"
    assert title("os.system") == "a str"
