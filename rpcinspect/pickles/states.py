"""What the states of objects in a pickle set: names of attributes, in the order of nothing.

In: the state that BUILD gives to an object, as the reader has it. Out: which names it would set, and why no
pickling writes it so. Mirrors `load_build` of CPython's unpickler, and what `__setstate__` methods do with
dicts: `self.__dict__.update(state)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rpcinspect.pickles.safe_names import is_special
from rpcinspect.pickles.shapes import attributes
from rpcinspect.pickles.tree import SCALARS, Dict, Global, PickleCall, Value, children, walk


class States:
    """Looks through the states of one message, each once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, bool], set[str]] = {}
        self._wrong: dict[tuple[int, bool], str] = {}

    def hides(self, call: PickleCall, name: str, *, deep: bool = False) -> bool:
        """Whether the state of an object sets an attribute in place of a method, or hooks that methods of
        `nn.Module` call. `deep`: its class has a `__setstate__`, which may set what stands anywhere in it.
        """
        names = self._names(call.state, deep=deep)
        return name in names or HOOKS in names

    def wrong(self, state: Value, *, own: bool) -> str:
        """Returns what is wrong with an object's state, "" if nothing. A class without `__setstate__` gets
        attributes and slots by plain names; another mapping could bring special names unseen. With a
        `__setstate__` (`own`) all but special names passes."""
        key = (id(state), own)
        if key not in self._wrong:
            self._wrong[key] = self._why_wrong(state, own=own)
        return self._wrong[key]

    def _why_wrong(self, state: Value, *, own: bool) -> str:
        if own:
            plain = type(state) is not PickleCall or state.function == ORDERED
            pairs = state.pairs if type(state) in (Dict, PickleCall) else ()
            plain = plain and all(type(key) in SCALARS for key, _ in pairs)
            special = SPECIAL in self._names(state, deep=True)
            return "" if plain and not special else "a state with special names"
        parts = state if type(state) is tuple and len(state) == 2 else (state,)
        return "" if all(map(attributes, parts)) else "a state that sets other things than attributes"

    def _names(self, state: Value, *, deep: bool) -> set[str]:
        """What may become the name of an attribute, `HOOKS` and `SPECIAL` among them."""
        known = self._known.get((id(state), deep))
        if known is None:
            known = self._known[id(state), deep] = set()
            for pairs in _mappings(state, deep=deep):
                for key, value in pairs:
                    if type(key) is str:
                        known.add(key)
                        known.update({HOOKS} if key.endswith(CALLED) and not _is_empty(value) else ())
                        known.update({SPECIAL} if is_special(key) else ())
        return known


def _is_empty(value: Value) -> bool:
    if type(value) is PickleCall and value.function == ORDERED:
        return value.args == () and not value.pairs
    return value is None or (type(value) is Dict and not value.pairs)


def _mappings(state: Value, *, deep: bool) -> Iterable[Sequence[tuple[Value, Value]]]:
    """The pairs of the dicts that a state is or holds: in a tuple, or at any depth; there also lists and
    tuples of two, of which `dict.update` takes lists."""
    shallow = state if type(state) is tuple else ()
    for node in walk([state], children if deep else lambda node: shallow if node is state else ()):
        if type(node) is Dict or (deep and type(node) is PickleCall):
            yield node.pairs
        elif deep and type(node) in (tuple, list) and len(node) == 2:
            yield (tuple(node),)


CALLED = ("_hooks", "_call_impl", "_slow_forward")
"""How attributes of `nn.Module` end that its methods call."""
HOOKS, SPECIAL = "hooks that are called", "a special name"
"""No names of attributes: that there is one."""
ORDERED = Global("collections", "OrderedDict")
