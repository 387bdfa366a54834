"""Every place of a source file where a name of the module, or of a class in it, is bound.

In: the syntax tree of a file. Out: for the module and for each class, name → bindings in the order of the
text: definitions, assignments with their values, imports with what they name, and in words whatever else
binds a name (loops, `with`, `except`, patterns, `del`, `global`, …). Assignments to attributes are told of
a class by its methods, and of the file with the word before the attribute. Nothing is judged here.

Assumes that the file binds by statements and `:=`. What `setattr`, `globals()`, `vars()`, `exec`,
`sys.modules` or another file binds is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct, field

BindingKind = Literal["def", "class", "assign", "import", "other"]
MAX_WORDS = 60


class Binding(Struct, frozen=True):
    """A place where a name is bound."""

    how: BindingKind
    place: Place
    node: ast.AST
    """The definition, the value of an assignment, or the statement."""
    text: str = ""
    """Of an import what it names, in full; of `other` what binds it, in words."""
    line: int = 0
    top: int = 0
    """Which statement of the module it is in."""
    body: Scope | None = None
    """Of a class."""
    owner: str = ""
    """Of an assignment to an attribute, the last word before that."""

    def certain(self, line: int | None) -> bool:
        """Returns whether the binding always runs, and before this line does; None: before the end of the
        file."""
        end: int = getattr(self.node, "end_lineno", None) or self.line
        return self.place.sure and (line is None or end < line)


class Scope(Struct):
    """The body of a module or of a class."""

    name: str = ""
    """Of a class, with the classes around it: `Outer.Inner`."""
    names: Bindings = field(default_factory=dict)
    attributes: Bindings = field(default_factory=dict)
    """Of a class: what its methods assign to attributes of their object or class."""
    patches: Bindings = field(default_factory=dict)
    """Of a module: what is assigned to attributes of anything else, which may be one of its classes."""
    classes: set[str] = field(default_factory=set)
    """Of a module: what its classes are called, wherever in the file."""
    stars: list[Binding] = field(default_factory=list)
    """Of a module: its `from x import *`."""


Bindings: TypeAlias = "dict[str, list[Binding]]"


def read_bindings(tree: ast.Module, module: str, *, package: bool) -> Scope:
    """Returns all bindings of a file. `module`: the name that relative imports are relative to."""
    scope = Scope()
    reader = _BindingReader(scope, module if package else module.rpartition(".")[0])
    for number, statement in enumerate(tree.body):
        reader.top = number
        reader.read(statement, Place(scope, sure=True))
    return scope


def read_rebuilders(tree: ast.Module) -> frozenset[str]:
    """Returns the functions that a reducer of the file returns first in a tuple, so that pickles of its
    objects call them. Reducers are called `__reduce__` or `__reduce_ex__`, or are arguments of
    `copyreg.pickle` and of functions whose name has "reducer" in it, as torch's `_register_reducer`."""
    names = {"__reduce__", "__reduce_ex__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            by = last_word(node.func)
            if by == "pickle" or "reducer" in by:
                names.update(map(last_word, node.args))
    reducers = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    returned = (node for reducer in reducers for node in ast.walk(reducer) if isinstance(node, ast.Return))
    values = (node.value.elts for node in returned if isinstance(node.value, ast.Tuple))
    return frozenset(last_word(value[0]) for value in values if value) - {""}


def last_word(node: ast.AST) -> str:
    """Returns the last part of a dotted name; empty for any other expression."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def words(node: ast.AST) -> str:
    """Returns an expression as written, on one line, shortened."""
    try:
        text = " ".join(ast.unparse(node).split())
    except RecursionError:
        text = "an expression"
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 1]}…"


class Place(Struct, frozen=True):
    """Where a statement stands."""

    scope: Scope | None
    """Whose names it binds, and where names in its expressions are looked up; None in a function, whose names
    nobody outside can use."""
    sure: bool = False
    """Whether it is a statement of the module's or the class's own body, so that it always runs."""
    class_: Scope | None = None
    """The class around it, to which names that begin with `__` are private."""
    me: str = ""
    """In a method, its name for its object or class."""
    globals: set[str] = field(default_factory=set)
    """What `global` says of the function's or the class's names."""


class _BindingReader:
    """Walks the statements and expressions of a file."""

    def __init__(self, module: Scope, package: str) -> None:
        self._module = module
        self._package = package
        self.top = 0

    def read(self, node: ast.AST, place: Place) -> None:
        """Binds what a statement, or an expression in it, binds."""
        if isinstance(node, ast.expr) and not _binds(node):
            return
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            self._function(node, place)
        elif isinstance(node, ast.ClassDef):
            self._class(node, place)
        elif isinstance(node, ast.Import):
            self._import(node, place)
        elif isinstance(node, ast.ImportFrom):
            self._import_from(node, place)
        elif isinstance(node, ast.Global):
            place.globals.update(_mangled(name, place) for name in node.names)
        elif isinstance(node, ast.Assign):
            self.read(node.value, place)
            for target in node.targets:
                self._target(target, node.value, place)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            if isinstance(node, ast.AnnAssign):
                self.read(node.annotation, place)
                self._declared(node, place)
            if node.value is not None:  # a declaration alone binds nothing
                self.read(node.value, place)
                self._target(node.target, node.value, place)
        elif type(node).__name__ == "TypeAlias":  # Python 3.12: an object that can't be called
            self._bind(node.name.id, "assign", ast.Constant(None), place)  # type: ignore[attr-defined]
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            self._comprehension(node, place)
        else:
            self._other(node, place)

    def _all(self, nodes: Iterable[ast.AST], place: Place) -> None:
        for node in nodes:
            self.read(node, place)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, place: Place) -> None:
        self.read(node.args, place)  # defaults and annotations
        me, body = place.me, [node.body] if isinstance(node, ast.Lambda) else node.body
        if not isinstance(node, ast.Lambda):
            self._all((*node.decorator_list, *([node.returns] if node.returns is not None else ())), place)
            self._bind(node.name, "def", node, place)
            parameters = [*node.args.posonlyargs, *node.args.args]
            if place.scope is not None and place.scope is place.class_ and parameters:
                me = parameters[0].arg
        self._all(body, Place(None, class_=place.class_, me=me))

    def _class(self, node: ast.ClassDef, place: Place) -> None:
        self._all((*node.decorator_list, *node.bases, *(k.value for k in node.keywords)), place)
        around = place.scope if place.scope is not None else self._module
        inner = Scope(f"{around.name}.{node.name}" if around.name else node.name)
        self._module.classes.add(node.name)
        self._bind(node.name, "class", node, place, body=inner)
        self._all(node.body, Place(inner, sure=True, class_=inner))

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, place: Place
    ) -> None:
        """Its variables are its own; `:=` in it binds outside."""
        for generator in node.generators:
            self._target(generator.target, None, Place(None, class_=place.class_, me=place.me))
            self._all((generator.iter, *generator.ifs), place)
        self._all((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,), place)

    def _import(self, node: ast.Import, place: Place) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            self._bind(alias.asname or first, "import", node, place, alias.name if alias.asname else first)

    def _import_from(self, node: ast.ImportFrom, place: Place) -> None:
        package = self._package.split(".") if self._package else []
        around = package[: max(len(package) - node.level + 1, 0)] if node.level else []
        module = ".".join([*around, *([node.module] if node.module else [])])
        for alias in node.names:
            if alias.name == "*":
                self._module.stars.append(Binding("import", place, node, module, node.lineno, self.top))
            else:
                name = f"{module}.{alias.name}"
                self._bind(alias.asname or alias.name, "import", node, place, name)

    def _other(self, node: ast.AST, place: Place) -> None:
        """Compound statements, handlers, patterns and expressions: whatever in them is a target."""
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            self._target(node, None, place)
            return
        for name in (getattr(node, "name", None), getattr(node, "rest", None)):
            if isinstance(name, str):  # of an exception, or of a pattern
                self._bind(name, "other", node, place)
        inner = Place(place.scope, False, place.class_, place.me, place.globals)
        self._all(ast.iter_child_nodes(node), inner)

    # --- targets --------------------------------------------------------------------------------------------

    def _target(self, target: ast.AST, value: ast.AST | None, place: Place) -> None:
        """Binds the names in a target of an assignment; `value` None: it gets what the text does not show, or
        is deleted."""
        how: BindingKind = "other" if value is None else "assign"
        if isinstance(target, ast.Name):
            self._bind(target.id, how, value or target, place)
        elif isinstance(target, ast.Attribute):
            self.read(target.value, place)
            self._attribute(target, how, value or target, place)
        elif isinstance(target, (ast.Tuple, ast.List, ast.Starred)):
            for part, of in _parts(target, value):
                self._target(part, of, place)
        else:  # an item: it binds no name
            self._all(ast.iter_child_nodes(target), place)

    def _declared(self, node: ast.AnnAssign, place: Place) -> None:
        """`name: type` in a class, with or without a default: objects may have such an attribute, as those of
        dataclasses do.
        """
        of_class = "ClassVar" in ast.unparse(node.annotation)
        if isinstance(node.target, ast.Name) and place.scope not in (None, self._module) and not of_class:
            assert place.scope is not None
            self._add(place.scope.attributes, _mangled(node.target.id, place), "other", node, place)

    def _bind(
        self,
        name: str,
        how: BindingKind,
        node: ast.AST,
        place: Place,
        text: str = "",
        body: Scope | None = None,
    ) -> None:
        name = _mangled(name, place)
        if name in place.globals:
            self._add(self._module.names, name, "other", node, place)
        elif place.scope is not None:
            self._add(place.scope.names, name, how, node, place, text=text, body=body)

    def _attribute(self, target: ast.Attribute, how: BindingKind, value: ast.AST, place: Place) -> None:
        """`Class.name = …` anywhere, whatever is in the place of `Class`, and `self.name = …` in a method."""
        table, me = self._module.patches, place.me
        own = (me, f"{me}.__class__", f"type({me})", "__class__")
        """How a method writes its object, or its class."""
        if me and place.class_ is not None and ast.unparse(target.value) in own:
            table = place.class_.attributes
        self._add(table, _mangled(target.attr, place), how, value, place, owner=last_word(target.value))

    def _add(
        self,
        table: Bindings,
        name: str,
        how: BindingKind,
        node: ast.AST,
        place: Place,
        *,
        text: str = "",
        body: Scope | None = None,
        owner: str = "",
    ) -> None:
        line = getattr(node, "lineno", 0)
        text = text if how != "other" else f"changed in line {line}"
        made = Binding(how, place, node, text, line, self.top, body, owner)
        table.setdefault(name, []).append(made)


def _binds(node: ast.expr) -> bool:
    """Whether walking an expression could find a target: most are long data, some too deep to walk."""
    if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
        return True
    return any(isinstance(part, (ast.NamedExpr, ast.comprehension)) for part in ast.walk(node))


def _parts(target: ast.AST, value: ast.AST | None) -> list[tuple[ast.expr, ast.expr | None]]:
    """Returns the parts of a target with their parts of the value; with None where the text does not show
    them."""
    parts = [part for part in ast.iter_child_nodes(target) if isinstance(part, ast.expr)]
    values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
    if len(parts) != len(values) or any(isinstance(part, ast.Starred) for part in (*parts, *values)):
        return [(part, None) for part in parts]
    return list(zip(parts, values, strict=True))


def _mangled(name: str, place: Place) -> str:
    """A name as the compiler spells it, which mangles private ones of a class."""
    if place.class_ is None or not name.startswith("__") or name.endswith("__") or "." in name:
        return name
    owner = place.class_.name.rpartition(".")[2].lstrip("_")
    return f"_{owner}{name}" if owner else name
