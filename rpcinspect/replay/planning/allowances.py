"""`--allow`: what the user names, one by one.

In: texts of the command line. Out: an `Allowance` each, that covers names spelt exactly so: `MODULE` all
names of a module and of its submodules that have no dot, `MODULE:NAME` one name, `MODULE:CLASS.METHOD` one
method, `aten::NAME` one operator with all its overloads, `aten::NAME.OVERLOAD` one overload.
"""

from __future__ import annotations

import re
import sys

from msgspec import Struct

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
    """The argument of `--allow` for a name; empty where it can't be written so, and for what lies in the
    standard library, torch or numpy, but for what jobs call of these: most of the rest can run code.
    """
    text = f"{module}:{name}"
    return text if _is_offered(module, name) and Allowance.parse(text) else ""


def _is_offered(module: str, name: str) -> bool:
    package = module.partition(".")[0]
    if package in ("torch", "numpy"):
        return module == package or any(module == one or module.startswith(f"{one}.") for one in CALLED)
    if package in sys.stdlib_module_names and package != "__main__":
        return package in PLAIN or f"{module}.{name}" in CALLED
    return True


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PLAIN = _words("bisect cmath heapq itertools math random statistics time")
"""Modules of the standard library without anything that runs code, or reaches files and the system."""
CALLED = _words(
    "builtins.abs builtins.all builtins.any builtins.divmod builtins.id builtins.len builtins.max "
    "builtins.min builtins.pow builtins.print builtins.repr builtins.reversed builtins.round "
    "builtins.sorted builtins.sum "
    "torch._C._VariableFunctions torch._C._fft torch._C._linalg torch._C._nn torch._C._special "
    "torch._tensor torch.autograd torch.distributed.autograd torch.distributed.nn "
    "torch.distributed.optim torch.distributed.pipeline torch.distributed.rpc torch.distributions "
    "torch.fft torch.functional torch.linalg torch.nn torch.optim torch.random torch.special "
    "torch.testing._internal.dist_utils torch.testing._internal.distributed "
    "numpy.fft numpy.linalg numpy.random"
)
"""Names, and parts of torch and numpy, that a job may call by RPC, and whose line may be offered."""


_OPERATOR = re.compile(r"\w+(\.\w+)?", re.ASCII)
