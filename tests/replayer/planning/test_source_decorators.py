"""Decorators give functions and `__new__` gives objects, or nobody can tell: held against Python itself."""

from __future__ import annotations

import ast
import functools
from typing import Any

import pytest

from rpcinspect.replayer.planning.source_decorators import gives_function, objects_kept

GIVE = {
    "@deco": """
def deco(f): return f
---
def deco(f):
    def wrapper(*a): return f(*a)
    return wrapper
---
def deco(f):
    @functools.wraps(f)
    def wrapper(*a): return f(*a)
    return wrapper
---
def deco(f):
    def wrapper(*a): return f(*a)
    return functools.wraps(f)(wrapper)
---
def deco(f):
    def wrapper(*a): return f(*a)
    return functools.update_wrapper(wrapper, f)
---
def deco(f): return lambda *a: f(*a)
---
def deco(f):
    if len(seen) > 9: return f
    seen.append(f)
    return f
---
def deco(f=None, *, n=1):
    def outer(g):
        return lambda *a: g(*a)
    return outer if f is None else outer(f)
""",
    "@deco(3)": """
def deco(n):
    def outer(f):
        def wrapper(*a): return f(*a)
        return wrapper
    return outer
---
def deco(n=1, f=None):
    if f is None: return functools.partial(deco, n)
    return lambda *a: f(*a)
""",
}
"""What stands before the function → decorators."""
GIVE_ANYTHING = {
    "@deco": """
def deco(f): return f()
---
def deco(f): seen.append(f)
---
def deco(f):
    f = f()
    return f
---
def deco(f):
    wrapper = f()
    return wrapper
---
def deco(f):
    def wrapper(): ...
    wrapper = f()
    return wrapper
---
def deco(f):
    def wrapper(): ...
    from os import getcwd as wrapper
    return wrapper
---
def deco(f):
    def wrapper(): ...
    for wrapper in [f()]: pass
    return wrapper
---
def deco(f):
    @once
    def wrapper(): return f()
    return wrapper
---
def deco(f):
    def wrapper(): ...
    def change():
        nonlocal wrapper
        wrapper = f()
    change()
    return wrapper
---
def deco(f):
    def wrapper(): ...
    with open('/dev/null') as wrapper: pass
    return wrapper
---
def deco(f, g=print): return g
---
def deco(f):
    def keep(g): return g
    return keep(f())
""",
    "@deco(3)": """
def deco(n):
    return lambda f: f()
---
def deco(n):
    def outer(f): return f()
    return outer
---
def deco(n): return n
""",
}


def cases(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(by, one.strip()) for by, text in table.items() for one in text.split("---\n")]


def definition(source: str) -> ast.AST:
    return ast.parse(source).body[0]


def decorated(source: str, by: str) -> Any:
    """What Python itself makes of it."""

    def once(f: Any) -> Any:
        return f()

    names: dict[str, Any] = {"functools": functools, "seen": [], "once": once}
    exec(f"{source}\n{by}\ndef made(*a): return made_here\nmade_here = object()\n", names)
    return names


@pytest.mark.parametrize(("by", "source"), cases(GIVE))
def test_decorators_that_give_a_function(by: str, source: str) -> None:
    assert gives_function(definition(source), made="(" in by)
    names = decorated(source, by)
    assert names["made"]() is names["made_here"]


@pytest.mark.parametrize(("by", "source"), cases(GIVE_ANYTHING))
def test_decorators_that_may_give_anything(by: str, source: str) -> None:
    assert not gives_function(definition(source), made="(" in by)


NEW = """
def __new__(cls): return super().__new__(cls)
---
def __new__(cls, *a): return tuple.__new__(cls, a)
---
def __new__(cls):
    made = object.__new__(cls)
    made.x = 1
    return made
---
def __new__(cls):
    if cls._one is None:
        cls._one = super().__new__(cls)
    return cls._one
"""
NEW_GIVES_ANYTHING = """
def __new__(cls):
    for one in cls.made:
        return one
---
def __new__(cls):
    made = super().__new__(cls)
    for made in cls.made: pass
    return made
---
def __new__(cls, made=None):
    if made is None: made = super().__new__(cls)
    return made
---
@maybe
def __new__(cls): return super().__new__(cls)
---
def __new__(cls, kind): return {'shell': getoutput}[kind]
---
def __new__(cls, kind):
    made = KINDS[kind]
    cls._one = made
    return cls._one
---
def __new__(cls, made): return made
---
def __new__(cls): return make()
---
__new__ = make
"""


@pytest.mark.parametrize(("is_new", "source"), [*cases({"yes": NEW}), *cases({"no": NEW_GIVES_ANYTHING})])
def test_what_new_gives(is_new: str, source: str) -> None:
    assert (objects_kept(definition(source)) is not None) is (is_new == "yes")
