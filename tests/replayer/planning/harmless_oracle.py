"""Whether what is listed as harmless calls something that it is given: a throw-away process that tries it.

In: JSON on standard input, {"bases": [...], "methods": {base: [...]}}, full names of classes. Out: JSON, name
→ what was called of the arguments, the items, the state: nothing, if all is well. Used as a script; needs
torch.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import typing
import warnings
from typing import Any

CALLED: list[str] = []


class Canary:
    """Says that it was called; is an iterable of itself, and has any attribute."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        CALLED.append("canary")
        return self

    def __iter__(self) -> Any:
        return iter([1, 2])

    def __getitem__(self, key: Any) -> Any:
        if key in (0, 1):
            return 1
        raise IndexError


def resolved(name: str) -> Any:
    module, _, rest = name.rpartition(".")
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, more = module.rpartition(".")
            rest = f"{more}.{rest}"
    for part in rest.split("."):
        found = getattr(found, part)
    return found


def subclass(name: str) -> Any:
    """A user's class of that base, by a class statement."""
    last = name.rpartition(".")[2]
    written = {"namedtuple": "base('N', 'x y')", "Generic": "base[T]", "ReprEnum": "int, base"}.get(
        last, "base"
    )
    body = {"NamedTuple": "a: object\n b: object = None", "TypedDict": "a: object", "StrEnum": "A = 'a'"}
    namespace = {"base": resolved(name), "T": typing.TypeVar("T")}
    exec(f"class Own({written}):\n {body.get(last, 'kind = 1')}", namespace)
    return namespace["Own"]


def attempt(action: Any) -> Any:
    """What it gives; whatever it raises is another matter."""
    try:
        return action()
    except Exception:
        return None


def tried(name: str) -> None:
    """Makes objects in all ways, sets state and items, and uses them as keys."""
    own, canary = subclass(name), Canary()
    values = (canary, [canary], {"a": canary}, (canary, canary), [(canary, canary)], {canary: canary}, 1)
    made = []
    for count in range(3):
        for arguments in itertools.product(values, repeat=count):
            made.append(attempt(lambda a=arguments: own(*a)))
            made.append(attempt(lambda a=arguments: own.__new__(own, *a)))
        made.append(attempt(lambda c=count: own(**dict.fromkeys("abx"[:c], canary))))
    state = {hook: {0: canary} for hook in HOOKS} | {"a": canary, "_modules": {"0": canary}}
    for one in made:
        if one is None:
            continue
        if hasattr(one, "__setstate__"):
            attempt(lambda o=one: o.__setstate__(dict(state)))
        else:
            attempt(lambda o=one: o.__dict__.update(state))
        for method in ("append", "extend", "add"):
            attempt(lambda o=one, m=method: getattr(o, m)([canary] if m == "extend" else canary))
        attempt(lambda o=one: o.__setitem__("k", canary))
        attempt(lambda o=one: o.__setitem__(canary, canary))
        attempt(lambda o=one: {o: o}[o])


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_load_state_dict_pre_hooks")


def called_with(name: str, method: str) -> None:
    """Calls a method of an object with arguments of all kinds."""
    import torch

    own, canary = subclass(name), Canary()
    weight = torch.nn.Parameter(torch.ones(2))
    values = (canary, [canary], {"weight": canary}, "weight", "linear.weight", True, weight)
    for count in range(3):
        for arguments in itertools.product(values, repeat=count):
            made = attempt(lambda: own([weight], {}) if "Optimizer" in name else own())
            if hasattr(made, "register_parameter"):
                made.register_parameter("weight", weight)
                made.linear = torch.nn.Linear(1, 1)
            attempt(lambda o=made, a=arguments: getattr(o, method)(*a))


def main() -> None:
    warnings.simplefilter("ignore")
    asked, told = json.load(sys.stdin), {}
    for name in asked["bases"]:
        if attempt(lambda n=name: resolved(n)) is None:  # in another Python
            continue
        CALLED.clear()
        tried(name)
        told[name] = len(CALLED)
    for name, methods in asked["methods"].items():
        for method in methods:
            CALLED.clear()
            called_with(name, method)
            told[f"{name}.{method}"] = len(CALLED)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
