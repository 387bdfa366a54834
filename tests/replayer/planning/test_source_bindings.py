"""Every place where a name is bound; the truth is the compiler's symbol table."""

from __future__ import annotations

import ast
import symtable

import pytest

from rpcinspect.replayer.planning.source_bindings import read_bindings, words

STATEMENTS = """
def f(a=(default := 1), *, b: (noted := 2) = 3) -> (given := 4): local = 1
async def g(): ...
@(decorating := f)
class C((based := object), metaclass=(meta := type)): own = 1
import os.path, sys as system
from a.b import c, d as e
x = y = 1
p, (q, *r) = 1, (2, 3)
[s, t] = 1, 2
u: int = 1
u2: int
v += 1
for i, (j, k) in z: inner = 1
while (looped := 1): ...
with a as w1, b as (w2, w3): ...
try: ...
except ValueError as error: ...
del gone
print(walrus := 1, [(leaked := n) for n in x if (tested := n)], lambda: (hidden := 1))
match x:
    case [m1, *m2] | {"k": m1, **m2}: ...
    case C(z=m3) as m4 if (guard := 1): ...
global outermost
def h():
    global set_inside, imported, defined, looping, caught
    set_inside = 1
    import x as imported
    def defined(): ...
    for looping in x: ...
    try: ...
    except E as caught: ...
    nothing = 1
    def deeper():
        global from_deeper
        from_deeper = [1 for set_inside in x]
class G:
    global by_class
    by_class = 1
    not_by_class = 1
async def later():
    async with a as no1: ...
    async for no2 in a: ...
if x:
    if y:
        nested = 1
"""


def test_every_name_that_the_compiler_knows_to_be_bound() -> None:
    table = symtable.symtable(STATEMENTS, "job.py", "exec")

    def assigned(inner: symtable.SymbolTable) -> set[str]:
        """What a function or class binds by `global`."""
        bound = (s for s in inner.get_symbols() if s.is_assigned() or s.is_imported())
        own = {s.get_name() for s in bound if s.is_declared_global()}
        return own.union(*map(assigned, inner.get_children()))

    expected = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    expected |= assigned(table)
    expected.remove("u2")  # declared only
    found = read_bindings(ast.parse(STATEMENTS), "job", package=False).names
    assert set(found) == expected


CLASSES = """
class Net:
    kind = 1
    def run(self, x):
        self.late = x
        type(self).counted = 1
        self.__class__.shared = 2
        self.part.deep = 3
        x.other = 4
        def inner(): self.closed = 5
    def __hidden(self): self.__secret = 6
    class Inner:
        __private = 1
        def low(me): me.low_late = 7
Net.patched = 8
def patch(net):
    Net.run = net
    del Net.kind
    for Net.looped in net: ...
[0 for Net.comprehended in ()]
module.Net.far = 9
"""


def test_attributes_of_classes_and_of_their_objects() -> None:
    scope = read_bindings(ast.parse(CLASSES), "job", package=False)
    net = scope.names["Net"][0].body
    assert net is not None
    inner = net.names["Inner"][0].body
    assert inner is not None
    assert (net.name, inner.name) == ("Net", "Net.Inner")
    assert set(net.names) == {"kind", "run", "_Net__hidden", "Inner"}
    assert set(net.attributes) == {"late", "counted", "shared", "closed", "_Net__secret"}
    assert set(inner.names) == {"_Inner__private", "low"}
    assert set(inner.attributes) == {"low_late"}
    owners = {name: found[0].owner for name, found in scope.patches.items()}
    patched = ("patched", "run", "kind", "looped", "comprehended", "far")
    assert owners == {**dict.fromkeys(patched, "Net"), "deep": "part", "other": "x"}
    assert scope.classes == {"Net", "Inner"}


@pytest.mark.parametrize(
    ("text", "package", "names"),
    [
        ("import a.b.c", False, {"a": "a"}),
        ("import a.b.c as d", False, {"d": "a.b.c"}),
        ("from a import b as c", False, {"c": "a.b"}),
        ("from . import b", False, {"b": "pkg.b"}),
        ("from .b import c", False, {"c": "pkg.b.c"}),
        ("from . import b", True, {"b": "pkg.job.b"}),
        ("from ..b import c", True, {"c": "pkg.b.c"}),
        ("from ....b import c", True, {"c": "b.c"}),
    ],
)
def test_imports_by_full_name(text: str, package: bool, names: dict[str, str]) -> None:
    found = read_bindings(ast.parse(text), "pkg.job", package=package).names
    assert {name: bindings[0].text for name, bindings in found.items()} == names


def test_where_a_binding_stands() -> None:
    found = read_bindings(ast.parse("from a import *\nif x:\n  f = 1\nf = 2"), "job", package=False)
    assert [(b.top, b.line, b.place.sure) for b in found.names["f"]] == [(1, 3, False), (2, 4, True)]
    assert [(star.text, star.top) for star in found.stars] == [("a", 0)]


def test_deep_expressions() -> None:
    tree = ast.parse("x = " + "+".join(["1"] * 900))
    assert set(read_bindings(tree, "job", package=False).names) == {"x"}
    assert words(ast.parse("f(a,\n   'b')").body[0]) == "f(a, 'b')"
    assert len(words(ast.parse("+".join(["abcdefgh"] * 20)).body[0])) == 60
