"""Whether a decorator that a user's file defines gives back a function of the user's, by its returns.

In: the definition of a decorator, or of what makes one. Out: whether all that it returns is the function
that it is given, or one that it defines itself. Anything else may be what somebody's function returned, and
would be called by the name of the decorated one.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from rpcinspect.replayer.planning.source_bindings import last_word, words

Def = (ast.FunctionDef, ast.AsyncFunctionDef)
KEEPING = frozenset({"wraps", "no_grad", "enable_grad", "inference_mode"})
"""Decorators of the inner function, by the last word of their name."""


def gives_function(node: ast.AST, *, made: bool, method: bool = False) -> bool:
    """Returns whether a decorator returns a function; `made`: whether a call of it returns such a decorator.
    One function may be both: `@retry` and `@retry(times=3)`. `method`: its first argument is its object."""
    return isinstance(node, Def) and _Returns(node, 1 if method else 0).fit(made=made)


def objects_kept(node: ast.AST) -> frozenset[str] | None:
    """Returns the attributes in which a `__new__` stores objects that it returns later; None where it may
    return anything but a new object of its bases."""
    if not isinstance(node, Def) or any(last_word(by) != "staticmethod" for by in node.decorator_list):
        return None
    own = _own_statements(node)
    assigned: dict[str, list[ast.AST]] = {}
    for one in own:
        if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value is not None:
            for target in one.targets if isinstance(one, ast.Assign) else [one.target]:
                assigned.setdefault(words(target), []).append(one.value)
    stores = Counter(words(one) for one in own if isinstance(getattr(one, "ctx", None), (ast.Store, ast.Del)))
    others = {name for name, count in Counter(_bound(own)).items() if count > len(assigned.get(name, ()))}
    others |= {name for name, count in stores.items() if count > len(assigned.get(name, ()))}
    others |= {one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    values: list[ast.AST] = [one.value for one in own if isinstance(one, ast.Return) and one.value]
    kept: dict[str, ast.AST] = {}
    while values:
        value = values.pop()
        name = words(value)
        if isinstance(value, ast.Call):
            if last_word(value.func) != "__new__":
                return None
        elif name not in assigned or name in others:
            return None
        elif name not in kept:
            kept[name] = value
            values += assigned[name]
    return frozenset(value.attr for value in kept.values() if isinstance(value, ast.Attribute))


class _Returns:
    """What a function returns, and what its names are then."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef, place: int) -> None:
        """`place`: of the argument that is the decorated function."""
        own = list(_own_statements(node))
        changed = set(_bound(own))
        parameters = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
        defs = [one for one in own if isinstance(one, Def)]
        twice = {one.name for one in defs if [other.name for other in defs].count(one.name) > 1}
        self._me = node.name
        self._given = set(parameters[place : place + 1]) - changed - {one.name for one in defs}
        self._defs = {one.name: one for one in defs if one.name not in changed | twice}
        self._values = [one.value for one in own if isinstance(one, ast.Return)]

    def fit(self, *, made: bool) -> bool:
        values = [part for value in self._values for part in _choices(value)]
        if not values or not all(self._is_function(value) or self._is_decorator(value) for value in values):
            return False
        return not made or any(map(self._is_decorator, values))

    def _is_function(self, value: ast.AST | None) -> bool:
        if isinstance(value, ast.Name):
            return value.id in self._given or self._is_plain(value.id)
        if isinstance(value, ast.Call):
            by, of = value.func, value.args[0] if value.args else None
            if isinstance(by, ast.Call):  # wraps(function)(wrapper)
                return last_word(by.func) == "wraps" and self._is_function(of)
            if isinstance(by, ast.Name) and by.id in self._defs:  # decorate(function)
                return self._is_decorator(by) and self._is_function(of)
            return last_word(by) == "update_wrapper" and self._is_function(of)
        return isinstance(value, ast.Lambda)

    def _is_decorator(self, value: ast.AST | None) -> bool:
        if isinstance(value, ast.Name):
            return self._is_plain(value.id) and gives_function(self._defs[value.id], made=False)
        if isinstance(value, ast.Call) and last_word(value.func) == "partial" and value.args:
            return last_word(value.args[0]) == self._me
        return False

    def _is_plain(self, name: str) -> bool:
        """Returns whether a name is a function defined inside, unchanged by decorators."""
        by = self._defs[name].decorator_list if name in self._defs else [ast.Constant(None)]
        return all(last_word(one.func if isinstance(one, ast.Call) else one) in KEEPING for one in by)


def _choices(value: ast.AST | None) -> list[ast.AST | None]:
    return [*_choices(value.body), *_choices(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _bound(statements: Iterable[ast.AST]) -> Iterator[str]:
    """Names that anything but a definition of a function binds, in the function or one inside."""
    for one in statements:
        if isinstance(one, ast.Name) and isinstance(one.ctx, (ast.Store, ast.Del)):
            yield one.id
        elif isinstance(one, ast.alias):
            yield (one.asname or one.name).partition(".")[0]
        elif isinstance(one, Def):
            yield from (
                name for inner in ast.walk(one) if isinstance(inner, ast.Nonlocal) for name in inner.names
            )
        elif isinstance(one, (ast.Global, ast.Nonlocal)):
            yield from one.names
        else:
            yield from (name for name in (getattr(one, "name", None), getattr(one, "rest", None)) if name)


def _own_statements(node: ast.AST) -> list[ast.AST]:
    """Returns all statements of a function but those in functions and classes inside."""
    found: list[ast.AST] = []
    stack = list(ast.iter_child_nodes(node))
    while stack:
        one = stack.pop()
        found.append(one)
        if not isinstance(one, (*Def, ast.ClassDef, ast.Lambda)):
            stack += ast.iter_child_nodes(one)
    return found
