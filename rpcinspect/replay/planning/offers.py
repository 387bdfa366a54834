"""For which names a refusal offers the line that would allow them: nobody reads twice what he pastes.

In: a module and a name, as a capture has them. Out: whether the line is offered. Any name may still be typed.
Of torch, numpy and the standard library only what jobs call by RPC is offered, and of a module of torch only
what its source defines itself: most modules also hold others, by which all of Python can be reached. Nothing
is imported.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

from rpcinspect.replay.planning.operator_table import PASSES
from rpcinspect.rpc.pickles.known import HARMLESS, STANDARD_LIBRARY, has_dunder, is_dangerous
from rpcinspect.rpc.pickles.tree import Global


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
        return offered and (owners or [last])[0] in _defined(module) - {
            "ParameterDict"
        }  # keys set attributes
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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPERATIONS = _words(
    "torch torch._C._VariableFunctions torch._C._fft torch._C._linalg torch._C._nn torch._C._special"
)
"""Modules whose names are operators."""
OPERATORS = frozenset(one.partition(".")[0] for names in PASSES.values() for one in names.split())
"""Operators that may run without `--allow`."""
MODULES = _words(
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
TOOLS = _words(
    "Cython IPython _pytest attr cffi click cloudpickle coverage cupy dask dill fire fsspec functorch invoke "
    "jinja2 joblib mpmath networkx numba numexpr pandas pexpect pip pkg_resources psutil ptyprocess pygments "
    "pytest ray rpcinspect scipy setuptools sh six sklearn sympy tensorflow torchgen triton typer wheel yaml"
)
"""Packages of others that evaluate texts, run programs or load files. Never meant to be complete."""
