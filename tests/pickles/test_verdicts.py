"""Words for what has no name."""

from __future__ import annotations

from rpcinspect.pickles.tree import Call, Global
from rpcinspect.pickles.verdicts import title


def test_titles() -> None:
    system = Global("os", "system")
    assert title(system) == "os.system"
    assert title(Call(system, ())) == "os.system(…)"
    assert title(Call(Call(system, ()), ())) == "a Call"
    assert title("os.system") == "a str"
