"""A policy for tests of the judge, in place of the user's files and options."""

from __future__ import annotations

from rpcinspect.pickles.tree import Global
from rpcinspect.pickles.verdicts import NameRuling


class Mine:
    """A policy that allows what is defined in `mine`, a class C and a function f."""

    keeps_getattr = False

    def standing(self, name: Global) -> NameRuling:
        if name == Global("mine", "C"):
            return NameRuling(True, "class")
        if name == Global("mine", "f"):
            return NameRuling(True, "function")
        if name == Global("mine", "value"):
            return NameRuling(True, "value")
        if name == Global("mine", "Shell"):
            reason = "it inherits from subprocess.Popen"
            return NameRuling(True, "class", constructing=reason, restoring=reason, items=reason)
        return NameRuling(False, reason="nobody")

    def method(self, owner: Global, name: str) -> NameRuling:
        return NameRuling(owner == Global("mine", "C") and name == "run", reason="nobody")
