"""Modules that bind a few names in every way there is, to each other, to their own and to what is foreign.

`job` imports `helper`, both of the user's, and both import `foreign`, whose names are the same. Functions of
the user's return literals: what they return is his.
"""

from __future__ import annotations

from hypothesis import strategies as st

FOREIGN = """
def a(*args): return 1
def b(*args): return a
def deco(function): return a
class C:
    def a(self): ...
    def b(self): ...
    def c(self): ...
class D(C):
    def d(self): ...
def meta(name, bases, body): return a
class Context:
    def __enter__(self): return a
    def __exit__(self, *error): return True
def __getattr__(name): return a
"""
FUNCTIONS, CLASSES, METHODS = "ab", "CD", "abcd"

leaf = st.sampled_from(
    [
        *(
            "1",
            "'x'",
            "None",
            "lambda: 1",
            "a",
            "b",
            "C",
            "D",
            "C.a",
            "D.b",
            "foreign.a",
            "foreign.C",
            "eval",
        ),
        *("foreign.C.a", "helper.a", "helper.C", "C().a", "helper.absent", "helper"),
    ]
)
expression = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("[{0[0]}, {0[1]}]".format),
        st.tuples(inner, inner).map("({0[0]} if C else {0[1]})".format),
        st.tuples(inner, inner).map("({0[0]} or {0[1]})".format),
        inner.map("(x := {})".format),
        inner.map("{}()".format),
        inner.map("functools.partial({})".format),
        inner.map("functools.lru_cache({})".format),
        inner.map("functools.lru_cache(None)({})".format),
        inner.map("staticmethod({})".format),
    ),
    max_leaves=3,
)
function_name = st.sampled_from(FUNCTIONS)
class_name = st.sampled_from(CLASSES)
any_name = st.sampled_from(FUNCTIONS + CLASSES)
decorator = st.sampled_from(
    ["functools.lru_cache", "foreign.deco", "a", "b", "helper.a", "staticmethod", "property", "foreign.a()"]
)
base = st.sampled_from(
    [
        "C",
        "D",
        "foreign.C",
        "foreign.D",
        "helper.C",
        "helper.D",
        "dict",
        "enum.Enum",
        "abc.ABC",
        "Generic[T]",
        "Exception",
    ]
)


def indented(block: list[str], by: str = " ") -> str:
    return "\n".join(by + line for statement in block or ["pass"] for line in statement.split("\n"))


@st.composite
def functions(draw: st.DrawFn, names: str = FUNCTIONS) -> str:
    lines = [f"@{one}" for one in draw(st.lists(decorator, max_size=1))]
    name = draw(st.sampled_from(names))
    body = draw(
        st.sampled_from(
            [
                "return 1",
                "self.a = foreign.a; self.b = self.c",
                "global a; a = foreign.a",
                "C.a = foreign.a",
            ]
        )
    )
    return "\n".join([*lines, f"def {name}(self=None, *args):\n {body}"])


@st.composite
def classes(draw: st.DrawFn) -> str:
    lines = [
        f"@{one}" for one in draw(st.lists(decorator, max_size=1 if draw(st.integers(0, 4)) == 0 else 0))
    ]
    bases = draw(st.lists(base, max_size=2, unique=True))
    meta = draw(st.sampled_from([*[[]] * 5, ["metaclass=foreign.meta"], ["metaclass=abc.ABCMeta"]]))
    member = st.one_of(
        functions(METHODS),
        functions(METHODS),
        st.tuples(st.sampled_from(METHODS), expression).map(" = ".join),
        st.tuples(st.sampled_from(METHODS), expression).map("if C:\n {0[0]} = {0[1]}".format),
        st.sampled_from(METHODS).map("from foreign import a as {}".format),
        st.sampled_from(METHODS).map("if not C:\n def {}(self): ...".format),
        st.just("def __getattribute__(self, name): return foreign.a"),
        st.just("class C:\n def a(self): ...\n b = foreign.b"),
    )
    body = draw(st.lists(member, max_size=3))
    return "\n".join([*lines, f"class {draw(class_name)}({', '.join(bases + meta)}):\n{indented(body)}"])


simple = st.one_of(
    functions(),
    functions(),
    classes(),
    classes(),
    st.tuples(any_name, expression).map(" = ".join),
    st.tuples(any_name, any_name, expression, expression).map("{0[0]}, {0[1]} = {0[2]}, {0[3]}".format),
    any_name.map("{} += foreign.a".format),
    any_name.map("del {}".format),
    any_name.map("for {} in [foreign.a]: ...".format),
    any_name.map("with foreign.Context() as {}: ...".format),
    any_name.map("match foreign.a:\n case {}: ...".format),
    any_name.map("from foreign import a as {}".format),
    any_name.map("from helper import {}".format),
    st.sampled_from(["from foreign import *", "from helper import *", "import helper as a", "a()", "b()"]),
    st.tuples(class_name, st.sampled_from(METHODS), expression).map("{0[0]}.{0[1]} = {0[2]}".format),
    class_name.map("{}.__bases__ = (foreign.C,)".format),
    st.sampled_from(
        ["def patch(k): k.a = foreign.a\npatch(C)", "for k in (C, D): k.b = foreign.b", "k = D\nk.b = a"]
    ),
    st.just("def __getattr__(name): return foreign.a"),
)
statement = st.one_of(
    simple,
    simple,
    simple,
    st.lists(simple, max_size=2).map(lambda block: f"if foreign:\n{indented(block)}"),
    st.lists(simple, max_size=2).map(lambda block: f"if not foreign:\n{indented(block)}"),
    st.lists(simple, max_size=2).map(lambda block: f"try:\n{indented(block)}\nexcept Exception: ..."),
)
PRELUDE = "import abc, enum, functools, foreign\nfrom typing import Generic, TypeVar\nT = TypeVar('T')\n"
START = (
    "def a(*x): return 1\ndef b(*x): return 2\nclass C:\n def a(self): ...\nclass D(C):\n def b(self): ...\n"
)
ASKED = [*"abCDx", *(f"{owner}.{name}" for owner in ("C", "D", "C.C") for name in METHODS)]


def modules() -> st.SearchStrategy[tuple[str, str]]:
    """Sources of `helper` and `job`."""
    return st.tuples(
        st.lists(statement, max_size=2).map(
            lambda some: "\n".join([PRELUDE + "helper = None\n" + START, *some])
        ),
        st.lists(statement, min_size=1, max_size=4).map(
            lambda some: "\n".join([PRELUDE + "import helper\n" + START, *some])
        ),
    )
