"""What a name or an expression in the user's files stands for: code of these files, or an alias of something
else.

In: the bindings of parsed files. Out: for a name of a module, or of a class in it, one meaning over all
places that bind it: an alias as soon as one of them makes it one. Imports are followed among the user's own
files, and bases of classes in the order in which Python looks names up (C3). Mirrors, for what `source_names`
lists, what decorators and base classes of the standard library and of torch do. Longer than other modules:
names, classes and expressions are defined by each other.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Container, Iterable, Sequence

from msgspec.structs import replace

from rpcinspect.replayer.planning.source_bindings import Binding, Scope, words
from rpcinspect.replayer.planning.source_decorators import gives_function, objects_kept
from rpcinspect.replayer.planning.source_model import (
    FUNCTION,
    LITERAL,
    OBJECT,
    Meaning,
    OwnClass,
    ParsedFile,
    alias,
    combined,
    foreign,
)
from rpcinspect.replayer.planning.source_names import (
    BASES,
    CLASS_MAKERS,
    CLASS_WRAPPERS,
    CONSTANTS,
    HARMLESS_METHODS,
    LOOKUPS,
    METACLASSES,
    PARTIAL,
    WRAPPER_MAKERS,
    WRAPPERS,
)


class Meanings:
    """Looks up names; remembers what it found."""

    def __init__(self, file: Callable[[str], ParsedFile | None]) -> None:
        self._file = file
        """The user's file of a module."""
        self._known: dict[int, Meaning] = {}
        """By the place of a binding."""
        self._orders: dict[OwnClass, Sequence[OwnClass | str]] = {}
        self._open: set[int] = set()
        """Bindings that are being read."""
        self._cut = False
        """Whether something was left out since it is being read."""

    # --- names ----------------------------------------------------------------------------------------------

    def name(self, file: ParsedFile, name: str, line: int | None = None) -> Meaning | None:
        """A name of a module; None where nothing in its file binds it. `line`: where the file itself uses it,
        so that what comes later is not bound yet.
        """
        bindings = file.scope.names.get(name)
        if not bindings:
            return None
        meaning = self._bound(file, bindings)
        if meaning.kind != "alias":
            if not file.named:
                meaning = foreign(f"{file.module}.{name}")
            elif file.submodules(name):
                meaning = alias(f"the module {file.module}.{name}")
        certain = max((binding.top for binding in bindings if binding.certain(line)), default=-1)
        later = self._of_stars([star for star in file.scope.stars if star.top >= certain], name)
        if certain < 0 and "__getattr__" in file.scope.names:
            later.append(alias("what __getattr__ gives"))
        return combined([meaning, *later])

    def member(self, own: OwnClass, name: str) -> Meaning | None:
        """Returns an attribute of a class or of its objects, bases included; None where there is none."""
        order = self.order(own)
        found: list[Meaning] = []
        for kind in order:
            if isinstance(kind, str):
                part, sure = self._inherited(own, kind, name), True
            else:
                part = self.own_member(kind, name)
                sure = any(binding.place.sure for binding in kind.body.names.get(name, ()))
            found += [part] if part is not None else []
            if part is not None and sure:
                break
        if not found:
            return None
        for kind in self.own_order(own):
            found += [alias(f"what {by} gives") for by in LOOKUPS if by in kind.body.names]
            found += [alias(f"of a class with {by}") for by in LOOKUPS if by in kind.body.attributes]
            found += [self._meaning(kind.file, b, own) for b in kind.body.attributes.get(name, ())]
        return replace(combined(found), definitions=())  # what those get first may be an object

    def own_member(self, own: OwnClass, name: str) -> Meaning | None:
        """What the body of a class binds, or an assignment to an attribute of the class."""
        bindings = own.bindings(name)
        for binding in bindings:
            if binding.how == "import":
                return alias(binding.text)
        return self._bound(own.file, bindings) if bindings else None

    def _inherited(self, own: OwnClass, base: str, name: str) -> Meaning | None:
        """What a class of others gives; None where it has nothing of that name."""
        known = BASES.get(base)
        through = known.forwards.get(name) if known is not None else None
        if known is not None and (known.bare or (name == "__call__" and through is None)):
            return None
        if through is not None:
            runs = self.member(own, through)
            harmless = runs is not None and runs.kind == "function"
        else:
            harmless = name in HARMLESS_METHODS.get(base, ())
        return FUNCTION if harmless else alias(f"inherited from {base}")

    def order(self, own: OwnClass) -> Sequence[OwnClass | str]:
        """The classes in which attributes are looked up, those of others by full name: C3, as `__mro__`.

        Bases without attributes stand last, which keeps `Generic[T]` from mattering.
        """
        known = self._orders.get(own)
        if known is not None:
            return known
        self._orders[own] = (own, "itself")  # for whoever asks before we know
        found = self._order(own)
        if self._cut:
            del self._orders[own]
        else:
            self._orders[own] = found
        return found

    def _order(self, own: OwnClass) -> Sequence[OwnClass | str]:
        if own.bindings("__bases__"):
            return (own, "bases that are changed")
        bases = self._bases(own)
        lines = [[*self.order(base)] if isinstance(base, OwnClass) else [base] for base in bases]
        kinds = [kind for line in lines for kind in line if isinstance(kind, str)]
        bare = [kind for kind in kinds if kind in BASES and BASES[kind].bare]
        merged = _merged([[kind for kind in line if kind not in bare] for line in (*lines, bases)])
        return (own, *merged, *dict.fromkeys(bare)) if merged is not None else (own, "bases in no order")

    def _bases(self, own: OwnClass) -> list[OwnClass | str]:
        """Returns the bases as the class statement names them."""
        if own.definition is None:
            return [own.base]
        node = own.definition.node
        found: list[OwnClass | str] = []
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            plain = base.value if isinstance(base, ast.Subscript) else base  # Generic[T]
            meaning = self.expression(own.file, own.definition.place.scope, plain)
            names: tuple[OwnClass | str, ...] = meaning.classes or meaning.foreign
            if len(names) == 1 and not (plain is not base and self._has_items(names[0])):
                found.append(names[0])
            else:
                found.append(words(base))
        return found

    def own_order(self, own: OwnClass) -> list[OwnClass]:
        """The classes of the user's files among those of `order`."""
        return [kind for kind in self.order(own) if isinstance(kind, OwnClass)]

    def _has_items(self, kind: OwnClass | str) -> bool:
        """Returns whether the class itself defines `kind[…]`."""
        mine = self.own_order(kind) if isinstance(kind, OwnClass) else []
        return any(one.binds("__class_getitem__") or one.keywords for one in mine)

    # --- bindings -----------------------------------------------------------------------------------------

    def _bound(self, file: ParsedFile, bindings: Sequence[Binding]) -> Meaning:
        """What all places together make of a name. One that is being read adds nothing to itself: in
        `step = torch.jit.script(step)`, it is what was bound before."""
        others = [binding for binding in bindings if id(binding) not in self._open]
        self._cut = self._cut or len(others) < len(bindings)
        return combined([self._meaning(file, binding) for binding in others]) if others else alias("itself")

    def _meaning(self, file: ParsedFile, binding: Binding, own: OwnClass | None = None) -> Meaning:
        """`own`: the class by whose methods an attribute is set."""
        known = self._known.get(id(binding))
        if known is not None:
            return known
        if id(binding) in self._open:
            return alias("itself")
        self._open.add(id(binding))
        try:
            found = self._read(file, binding, own)
        finally:
            self._open.discard(id(binding))
        self._cut = self._cut and bool(self._open)
        if own is None and not self._cut:  # without what is being read, it is not the whole meaning
            self._known[id(binding)] = found
        return found

    def _read(self, file: ParsedFile, binding: Binding, own: OwnClass | None) -> Meaning:
        node = binding.node
        if binding.how == "def" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return self._function(file, binding, node)
        if binding.how == "class" and isinstance(node, ast.ClassDef):
            return self._class(file, binding, node)
        if binding.how == "import":
            return self.imported(binding.text)
        if binding.how == "other":
            return alias(binding.text)
        if own is not None and isinstance(node, ast.Attribute):
            of = node.value
            if isinstance(of, ast.Name) and of.id == binding.place.me:
                return self.member(own, node.attr) or alias(words(node))
        return self.expression(file, binding.place.scope, node)

    def _function(
        self, file: ParsedFile, binding: Binding, node: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> Meaning:
        for decorator in node.decorator_list:
            is_made = isinstance(decorator, ast.Call)
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            by = self.expression(file, binding.place.scope, called)
            vague = alias(f"{words(called)}, which may give what is no function")
            if by.kind == "class":
                by = vague if is_made and not self._calls_give_function(by) else self._object(by)
            elif by.kind == "value" or (by.kind == "function" and not _gives_function(by, made=is_made)):
                by = vague
            if by.kind == "alias" and not _is_one_of(by, WRAPPER_MAKERS if is_made else WRAPPERS):
                return alias(f"decorated by {by.of}")
        return Meaning("function", definitions=(node,))

    def _calls_give_function(self, by: Meaning) -> bool:
        """Whether calling an object of a class gives a function, as `_gives_function` has it."""
        mine = [kind for own in by.classes for kind in self.own_order(own)]
        places = [place for kind in mine for place in kind.bindings("__call__")]
        return bool(places) and all(gives_function(place.node, made=False, method=True) for place in places)

    def _class(self, file: ParsedFile, binding: Binding, node: ast.ClassDef) -> Meaning:
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            by = self.expression(file, binding.place.scope, called)
            if not _is_one_of(by, CLASS_WRAPPERS):
                return alias(f"decorated by {by.of or words(called)}")
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg == "metaclass":
                by = self.expression(file, binding.place.scope, keyword.value)
                if not _is_one_of(by, METACLASSES) and not self._is_own_metaclass(by):
                    return alias(f"made by the metaclass {by.of or words(keyword.value)}")
        body = binding.body
        return Meaning("class", classes=(OwnClass(body.name if body else node.name, file, binding),))

    def shared(self, own: OwnClass) -> str:
        """Why making an object of a class may give one that is there already."""
        for kind in self.order(own):
            if isinstance(kind, str):
                if kind.startswith("enum."):
                    return f"a member of {kind} would be changed"
            elif kind.binds("__new__"):
                return "its __new__ may return what is not new"
        return self.own_metaclass(own)

    def own_metaclass(self, own: OwnClass) -> str:
        """Why calling a class may give something else than an object of it: by a metaclass of the user's."""
        for kind in self.own_order(own):
            scope = kind.definition.place.scope if kind.definition is not None else None
            made_by = [k.value for k in kind.keywords if k.arg in (None, "metaclass")]
            if any(self.expression(kind.file, scope, by).classes for by in made_by):
                return "its metaclass may return what is not new"
        return ""

    def gives_anything(self, own: OwnClass) -> bool:
        """Whether the `__new__` of a class may give something else than an object of it."""
        for kind in self.own_order(own):
            for place in kind.bindings("__new__"):
                kept = objects_kept(place.node)
                if kept is None or any(_is_set_elsewhere(kind, name, place.node) for name in kept):
                    return True
        return False

    def _is_own_metaclass(self, by: Meaning) -> bool:
        order = [kind for own in by.classes for kind in self.order(own)]
        return bool(order) and all(type(kind) is OwnClass or kind in METACLASSES for kind in order)

    # --- what expressions give ------------------------------------------------------------------------------

    def imported(self, name: str) -> Meaning:
        """A module or a name of one, by full name: of the user's files, or foreign."""
        module, _, last = name.rpartition(".")
        file = self._file(module) if module else None
        found = self.name(file, last) if file is not None else None
        if found is not None:
            return found
        return foreign(name, f"the module {name}" if self._file(name) is not None else name)

    def expression(self, file: ParsedFile, scope: Scope | None, node: ast.AST) -> Meaning:
        """`scope`: where names in it are looked up; None in a function, whose own names are not followed."""
        if isinstance(node, ast.Lambda):
            return FUNCTION
        if isinstance(node, (ast.Constant, ast.JoinedStr)) or _is_arithmetic(node):
            return LITERAL
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return self._container(file, scope, node.elts)
        if isinstance(node, ast.Dict):
            return self._container(file, scope, [part for part in (*node.keys, *node.values) if part])
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            parts = node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse)
            return combined([self.expression(file, scope, part) for part in parts])
        if isinstance(node, ast.NamedExpr):
            return self.expression(file, scope, node.value)
        if scope is not None and isinstance(node, ast.Name):
            return self._looked_up(file, scope, node.id, node.lineno)
        if scope is not None and isinstance(node, ast.Attribute):
            return self._attribute(self.expression(file, scope, node.value), node)
        if scope is not None and isinstance(node, ast.Call):
            return self._call(file, scope, node)
        return alias(words(node))

    def _container(self, file: ParsedFile, scope: Scope | None, parts: Iterable[ast.AST]) -> Meaning:
        """A container is a value; of what is not the user's it is an alias."""
        for part in parts:
            meaning = self.expression(file, scope, part)
            if meaning.kind == "alias":
                return alias(meaning.of)
        return LITERAL

    def _looked_up(self, file: ParsedFile, scope: Scope, name: str, line: int) -> Meaning:
        """A plain name: the class body's around it, the module's, a builtin."""
        found: list[Meaning] = []
        if scope is not file.scope and name in scope.names:
            found.append(self._bound(file, scope.names[name]))
            if any(binding.certain(line) for binding in scope.names[name]):
                return found[0]
        of_module = self.name(file, name, line)
        found += [of_module] if of_module is not None else self._of_stars(file.scope.stars, name)
        sure = any(binding.certain(line) for binding in file.scope.names.get(name, ()))
        if hasattr(builtins, name) and not sure:
            found.append(foreign(f"builtins.{name}", name))
        return combined(found or [alias(name)])

    def _attribute(self, owner: Meaning, node: ast.Attribute) -> Meaning:
        if owner.foreign:
            return combined([self.imported(f"{name}.{node.attr}") for name in owner.foreign])
        found = [self.member(own, node.attr) for own in owner.classes]
        known = [meaning for meaning in found if meaning is not None]
        return combined(known) if known else alias(words(node))

    def _call(self, file: ParsedFile, scope: Scope, node: ast.Call) -> Meaning:
        """Returns the meaning of a call: an object of the user's, or what a listed function makes of its
        first argument."""
        called = self.expression(file, scope, node.func)
        if called.kind == "function":
            return OBJECT
        if called.kind == "class":
            return self._object(called)
        if _is_one_of(called, CONSTANTS):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            builtin = called.foreign[0].startswith("builtins.")
            return self._container(file, scope, given) if builtin else LITERAL
        if _is_one_of(called, CLASS_MAKERS) and not any(k.arg in (None, "type") for k in node.keywords):
            made = OwnClass(words(node), file, None, CLASS_MAKERS[called.foreign[0]])
            return Meaning("class", classes=(made,))
        of = self.expression(file, scope, node.args[0]) if node.args else alias("nothing")
        wraps = _is_one_of(called, WRAPPERS) or _is_one_of(called, PARTIAL)
        if isinstance(node.func, ast.Call):  # torch.no_grad()(f)
            wraps = _is_one_of(self.expression(file, scope, node.func.func), WRAPPER_MAKERS)
        # nothing else, be it in one place only: lru_cache(8) would give a decorator
        return FUNCTION if wraps and of.kind == "function" and not of.literal else alias(words(node))

    def _object(self, made: Meaning) -> Meaning:
        """An object of a class of the user's: what a call of it runs must be the user's too."""
        for own in made.classes:
            for kind in self.order(own):
                if isinstance(kind, str) and kind not in BASES:
                    return alias(f"an object of {own.name}, which inherits from {kind}")
            call = self.member(own, "__call__")
            if call is not None and call.kind == "alias":
                return alias(f"an object of {own.name}, whose __call__ is {call.of}")
        return OBJECT

    def _of_stars(self, stars: Iterable[Binding], name: str) -> list[Meaning]:
        """What `from x import *` may bind a name to. Of files of the user's it is known."""
        found = []
        for star in stars:
            file = self._file(star.text)
            if file is None or id(star) in self._open:
                found.append(alias(f"what 'from {star.text} import *' gives"))
                continue
            self._open.add(id(star))
            meaning = self.name(file, name)
            found += [meaning] if meaning is not None else self._of_stars(file.scope.stars, name)
            self._open.discard(id(star))
        return found


def _gives_function(by: Meaning, *, made: bool) -> bool:
    """Returns whether a decorator of the user's files gives back what it got, or a function that it defines.
    `made`: it stands there as a call, and what that gives is the decorator."""
    return bool(by.definitions) and all(gives_function(one, made=made) for one in by.definitions)


def _is_set_elsewhere(own: OwnClass, name: str, method: ast.AST) -> bool:
    """Returns whether an attribute of a class gets anything but None outside of one of its methods."""
    assert isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
    lines = range(method.lineno, (method.end_lineno or method.lineno) + 1)
    places = [*own.bindings(name), *own.body.attributes.get(name, ())]
    nothing = [one for one in places if isinstance(one.node, ast.Constant) and one.node.value is None]
    return any(one.line not in lines and one not in nothing for one in places)


def _merged(lines: list[list[OwnClass | str]]) -> list[OwnClass | str] | None:
    """C3: the first class of a line that stands behind no other, again and again; None where all do."""
    merged: list[OwnClass | str] = []
    lines = [line for line in lines if line]
    while lines:
        behind = [kind for line in lines for kind in line[1:]]
        first = next((line[0] for line in lines if line[0] not in behind), None)
        if first is None:
            return None
        merged.append(first)
        lines = [rest for line in lines if (rest := line[1:] if line[0] == first else line)]
    return merged


def _is_one_of(meaning: Meaning, names: Container[str]) -> bool:
    """Returns whether the meaning is a listed name of another module."""
    return bool(meaning.foreign) and all(name in names for name in meaning.foreign)


def _is_arithmetic(node: ast.AST) -> bool:
    """Whether an expression has operators and literals only."""
    if not isinstance(node, (ast.UnaryOp, ast.BinOp, ast.Compare)):
        return False
    plain = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Compare, ast.unaryop, ast.operator, ast.cmpop)
    return all(isinstance(part, plain) for part in ast.walk(node))
