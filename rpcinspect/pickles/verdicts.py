"""What is said of a name in a pickle, and who is asked for names that no list of ours has."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from rpcinspect.pickles.tree import Global, PickleCall, Value

NameKind: TypeAlias = Literal["class", "function", "value", "any"]


class Named(Struct, frozen=True):
    """A name that loading a message would import, call or trust."""

    name: str
    """`module.name`, or words for what has no name; as captured, so escape it before showing it."""
    allowed: bool
    reason: str = ""
    """Why it is refused; empty where it is allowed."""
    allow: str = ""
    """The argument of `--allow` that would let it pass; empty where none would."""
    dangerous: bool = False
    """It would run code, or reach what does: never somebody's own harmless class."""
    listed: bool = False
    """It is in a list of ours: torch's own or plain data."""


class NameRuling(Struct, frozen=True):
    """What a policy allows for a name that is in no list of ours."""

    allowed: bool
    kind: NameKind = "any"
    reason: str = ""
    allow: str = ""
    dangerous: bool = False
    constructing: str = ""
    """Of a class: why making an object by calling it is refused."""
    restoring: str = ""
    """Of a class: why NEWOBJ and BUILD are."""
    items: str = ""
    """Of a class: why APPENDS and ADDITEMS are."""
    pairs: str = ""
    """Of a class: why SETITEMS is."""
    changing: str = ""
    """Of a class: why BUILD and items are, unless it defines `__setstate__`: what they would change may be no
    new object."""
    calling: str = ""
    """Of a class: why calling an object of it is."""
    bound: frozenset[str] = frozenset()
    """Of a class: names that its body binds, which setting an attribute of an object may run."""
    loading: str = ""
    """Of a function: why REDUCE is; of a class too, if a call of it may give something else than an object of
    it."""


class Policy(Protocol):
    """Who is asked for what no list of ours has."""

    keeps_getattr: bool
    """Whether an object of somebody's own class may have `getattr` as an attribute, as nodes of graphs do."""

    def standing(self, name: Global) -> NameRuling:
        """What a name may be used for."""

    def method(self, owner: Global, name: str) -> NameRuling:
        """Whether a method of a class may be taken from it, or from an object of it."""


def title(node: Value) -> str:
    """A name for a node."""
    if type(node) is Global:
        return str(node)
    if type(node) is PickleCall:
        return f"{node.function}(…)" if type(node.function) is Global else "a call"
    return f"a {type(node).__name__}"
