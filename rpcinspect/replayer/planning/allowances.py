"""`--allow`: what the user names, one by one; and for which names a refusal offers the line that would allow
them, since nobody reads twice what he pastes.

In: texts of the command line. Out: an `Allowance` each, that covers names spelt exactly so: `MODULE` all
names of a module and of its submodules that have no dot, `MODULE:NAME` one name, `MODULE:CLASS.METHOD` one
method, `aten::NAME` one operator with all its overloads, `aten::NAME.OVERLOAD` one overload.

Any name may be typed. Of torch, numpy and the standard library only what jobs call by RPC is offered, and of
a module of torch only what its source defines itself: most modules also hold others, by which all of Python
can be reached. Nothing is imported.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

from msgspec import Struct

from rpcinspect.pickles.safe_names import HARMLESS, STANDARD_LIBRARY, has_dunder, is_dangerous, words_of
from rpcinspect.pickles.tree import Global
from rpcinspect.replayer.planning.operator_table import PASSES

ATEN = "aten::"
BY_MAIN = "--main"
"""What lets names of the job's script pass, in place of an `--allow` for each."""


class Allowance(Struct, frozen=True):
    """The value of an `--allow`: a module with submodules, one name of a module, or a torch operator."""

    module: str
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> Allowance | None:
        """Parses a value of `--allow`; None if it is invalid."""
        if text.startswith(ATEN):
            name = text.removeprefix(ATEN)
            return cls(ATEN, name) if _OPERATOR.fullmatch(name) else None
        module, colon, name = text.partition(":")
        words = [*module.split("."), *(name.split(".") if colon else ())]
        return cls(module, name if colon else None) if all(w.isidentifier() for w in words) else None

    def covers(self, module: str, name: str) -> bool:
        """Returns whether a name is allowed. A name with dots must be spelt exactly."""
        if self.name is not None:
            return (self.module, self.name) == (module, name)
        return "." not in name and (module == self.module or module.startswith(f"{self.module}."))

    def covers_operator(self, name: str) -> bool:
        """Returns whether an operator, `add.Tensor`, is allowed, by that name or without its overload."""
        return self.module == ATEN and self.name in (name, name.partition(".")[0])


def hint(module: str, name: str) -> str:
    """The argument of `--allow` for a name; empty where it can't be written so, and where it might run more
    than a function of a job, see `is_offered`.
    """
    text = f"{module}:{name}"
    return text if is_offered(module, name) and Allowance.parse(text) else ""


_OPERATOR = re.compile(r"\w+(\.\w+)?", re.ASCII)


def is_offered(module: str, name: str) -> bool:
    """Whether a refusal offers `--allow` for a name of a module; `Class.method` is a name, too."""
    *owners, last = name.split(".")
    whole = Global(module, name)
    if is_dangerous(whole) or has_dunder(name.removesuffix(".__call__")):
        return whole in HARMLESS
    if not all(owner.lstrip("_")[:1].isupper() for owner in owners):
        return False  # it goes through a module or an object, which hold what the name does not tell
    package = module.partition(".")[0]
    if package == "torch":
        if module in OPERATIONS and not owners and last in OPERATORS:
            return True
        modules = any(module == one or module.startswith(f"{one}.") for one in MODULES)
        offered = modules and not last.startswith("register_")  # hooks for the whole process
        defined = _defined(module) - {"ParameterDict"}  # its keys set attributes
        return offered and (owners or [last])[0] in defined
    if package == "numpy" or package in STANDARD_LIBRARY:
        return f"{module}.{name}" in CALLED
    return package not in TOOLS


@cache
def _defined(module: str) -> frozenset[str]:
    """The functions and classes that a module of torch defines by itself; none where torch is not there."""
    places = [Path(folder, *module.split(".")) for folder in sys.path if folder]
    files = [path for place in places for path in (place.with_suffix(".py"), place / "__init__.py")]
    source = next((path for path in files if path.is_file()), None)
    if source is None or not all(part.isidentifier() for part in module.split(".")):
        return frozenset()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(one.name for one in ast.parse(source.read_bytes()).body if isinstance(one, kinds))


OPERATIONS = words_of(
    "torch torch._C._VariableFunctions torch._C._fft torch._C._linalg torch._C._nn torch._C._special"
)
"""Modules whose names are operators."""
OPERATORS = frozenset(one.partition(".")[0] for names in PASSES.values() for one in names.split())
"""Operators that may run without `--allow`."""
MODULES = words_of(
    "torch.distributed.autograd torch.distributed.optim torch.distributions torch.functional "
    "torch.nn.functional torch.nn.modules torch.optim torch.random torch.testing._internal.dist_utils "
    "torch.testing._internal.distributed.nn.api torch.testing._internal.distributed.rpc.dist_autograd_test "
    "torch.testing._internal.distributed.rpc.dist_optimizer_test "
    "torch.testing._internal.distributed.rpc.rpc_test"
)
"""Modules of torch, with their submodules, whose functions jobs call by RPC."""
CALLED = frozenset(
    f"{module}.{name}"
    for module, names in {
        "builtins": "abs all any divmod id len max min pow print repr reversed round sorted sum",
        "math": "ceil cos exp fabs floor fsum gcd hypot log log10 log2 pow prod sin sqrt tan tanh",
        "numpy": "abs add arange argmax argmin array asarray concatenate divide dot exp linspace log matmul "
        "max mean min multiply ones sqrt stack std subtract sum var zeros",
        "random": "choice gauss randint random randrange sample seed uniform",
        "time": "monotonic perf_counter sleep strftime time time_ns",
    }.items()
    for name in names.split()
)
"""Of numpy and the standard library."""
TOOLS = words_of(
    "Cython IPython _pydev_bundle _pydevd_bundle _pytest attr cffi click cloudpickle coverage cupy dask "
    "debugpy dill fire fsspec functorch invoke ipdb jinja2 joblib mpmath networkx numba numexpr pandas "
    "pexpect pip pkg_resources psutil ptyprocess pudb pydevd pygments pytest ray rpcinspect rpdb scipy "
    "setuptools sh six sklearn sympy tensorflow torchgen triton typer wheel yaml"
)
"""Packages of others that evaluate texts, run programs, load files or open ports for a debugger. Never meant
to be complete."""
