"""What `decode` says of pickles: the gate's judgement, with a policy that takes everybody's own code as
allowed.

In: a command's Python pickle, or the values of its JIT pickle. Out: an `Audit`:

* `errors`: loading would run code, or reach what runs code: names of processes, files, code, imports and
  loaders, chains of attributes, helpers that are passed on as values, forged state, and in JIT pickles names
  that torch itself refuses. The findings `unsafe-pickle` are made of these.
* `dangerous_call`: the function of the call is itself such a name.
* `names`: what is somebody's own or a library's. Loading imports their modules; that is how rpc works.

Works on partial readings too: what stands before a fault has been run by the time that loading fails.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from rpcinspect.pickles import semantic
from rpcinspect.pickles.judge import UNREADABLE, Judge
from rpcinspect.pickles.judge_jit import judge_jit
from rpcinspect.pickles.python import CROSSED_FRAME, PythonPickle
from rpcinspect.pickles.safe_names import HARMLESS, STANDARD_LIBRARY, has_dunder, is_dangerous
from rpcinspect.pickles.tree import Global, Value
from rpcinspect.pickles.verdicts import Named, NameRuling

TORCH = ("torch.", "torch", "__torch__")
OUT = "a process, file, code, import or loader function"
FILES = ("pathlib", "pathlib._local")


class Audit(Struct, frozen=True):
    """What loading a message's pickles would run or reach."""

    errors: tuple[Named, ...] = ()
    dangerous_call: Named | None = None
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.errors or self.dangerous_call or self.names)


NOTHING = Audit()


class Anybody:
    """The policy of an audit: a name that is not known to be dangerous is taken as the user's own."""

    keeps_getattr = True

    def standing(self, name: Global) -> NameRuling:
        if has_dunder(name.name):
            return NameRuling(False, reason="an attribute chain through a dunder", dangerous=True)
        if is_dangerous(name) and name not in HARMLESS:
            return NameRuling(False, reason=OUT, dangerous=True)
        if _is_no_rebuilder(name):
            return NameRuling(True, loading="a function that pickles have no reason to call", dangerous=True)
        return NameRuling(True)

    def method(self, owner: Global, name: str) -> NameRuling:
        if owner.module in FILES:
            return NameRuling(False, reason="a method of a path, which reaches files", dangerous=True)
        return self.standing(Global(owner.module, f"{owner.name}.{name}"))


def audit(pickle: PythonPickle) -> Audit:
    """Judges a Python pickle, also one of which only a part could be read."""
    judge = Judge(_ANYBODY)
    udf = semantic.python_udf(pickle.root)
    judge.python(pickle, request=udf is not None)
    called = None
    if udf is not None and type(udf.func) is Global:
        function = Judge(_ANYBODY)
        function.imported(udf.func)
        called = next(iter(function.found.values()))
    elif udf is not None:
        judge.values([udf.func], {id(udf.func)})
    if pickle.error is not None and pickle.error.reason != CROSSED_FRAME:
        judge.found.pop(UNREADABLE, None)  # damage has a problem of its own
    return _audit(judge.found.values(), called)


def audit_jit(value: Value) -> Audit:
    """Judges the value of a JIT pickle."""
    judge = Judge(_ANYBODY)
    judge_jit(judge, value)
    return _audit(judge.found.values(), None)


def _audit(found: Iterable[Named], called: Named | None) -> Audit:
    errors, names = [], []
    for one in found:
        if not one.allowed and one.dangerous:
            errors.append(one)
        elif not one.listed and not one.name.startswith(TORCH):
            names.append(one.name)
    danger = called if called is not None and not called.allowed else None
    return Audit(tuple(errors), danger, tuple(names)) if errors or danger or names else NOTHING


def _is_no_rebuilder(name: Global) -> bool:
    """Returns whether this is a function of the standard library or of torch whose name does not mark it as
    one that makes objects while a pickle is loaded. Classes have capital letters there, but for a few."""
    package, last = name.module.partition(".")[0], name.name.rpartition(".")[2]
    if package not in STANDARD_LIBRARY and package not in ("numpy", "rpcinspect", "torch"):
        return False
    plain = last.lstrip("_")
    if plain[:1].isupper() or plain.startswith(REBUILDING) or plain.endswith("_ctor"):
        return False
    return package not in ("datetime", "itertools", "array") and str(name) not in REBUILDERS


REBUILDING = ("rebuild", "reconstruct", "mareconstruct", "unpickle", "pyx_unpickle", "restore", "make", "new")
"""How functions begin that pickles call."""
REBUILDERS = frozenset(
    {"re._compile", *(f"builtins.{name}" for name in ("enumerate", "iter", "reversed", "zip"))}
)
"""Others that they call."""

_ANYBODY = Anybody()
