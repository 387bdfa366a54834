"""`--allow`: what the user names, one by one.

In: texts of the command line. Out: an `Allowance` each, that covers names spelt exactly so: `MODULE` all
names of a module and of its submodules that have no dot, `MODULE:NAME` one name, `MODULE:CLASS.METHOD` one
method, `aten::NAME` one operator with all its overloads, `aten::NAME.OVERLOAD` one overload.
"""

from __future__ import annotations

import re

from msgspec import Struct

from rpcinspect.replay.planning.offers import is_offered

OPERATORS = "aten::"
BY_MAIN = "--main"
"""What lets names of the job's script pass, in place of an `--allow` for each."""


class Allowance(Struct, frozen=True):
    """One `--allow`: a module with its submodules, one name of a module, or an operator of torch."""

    module: str
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> Allowance | None:
        """From the command line; None if it is no such thing."""
        if text.startswith(OPERATORS):
            name = text.removeprefix(OPERATORS)
            return cls(OPERATORS, name) if _OPERATOR.fullmatch(name) else None
        module, colon, name = text.partition(":")
        words = [*module.split("."), *(name.split(".") if colon else ())]
        return cls(module, name if colon else None) if all(w.isidentifier() for w in words) else None

    def covers(self, module: str, name: str) -> bool:
        """Whether it allows a name. One with dots must be spelt exactly."""
        if self.name is not None:
            return (self.module, self.name) == (module, name)
        return "." not in name and (module == self.module or module.startswith(f"{self.module}."))

    def covers_operator(self, name: str) -> bool:
        """Whether it allows an operator, `add.Tensor`, by that name or without its overload."""
        return self.module == OPERATORS and self.name in (name, name.partition(".")[0])


def hint(module: str, name: str) -> str:
    """The argument of `--allow` for a name; empty where it can't be written so, and where it might run more
    than a function of a job, see `offers`.
    """
    text = f"{module}:{name}"
    return text if is_offered(module, name) and Allowance.parse(text) else ""


_OPERATOR = re.compile(r"\w+(\.\w+)?", re.ASCII)
