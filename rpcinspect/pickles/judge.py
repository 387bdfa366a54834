"""What loading a pickle would come to: one recursive judgement of every name, call and value in it.

In: a pickle as `python` reads it, and a `Policy` that knows what is somebody's own. Out: `Named`,
one for each name that the pickle would load and for each thing in it that nothing can name, allowed or
refused.

The rules (those of the dialect of torch's C++ are in `judge_jit`):

1. Every name that loading would import is listed, used or not.
2. A name is a value wherever it stands, but for the function slot of its own call. As a value it passes only
   if `safe_names.VALUES` has it, or the policy.
3. Every call that loading would make is judged, reachable or not: a literal tuple of arguments, a function
   that `shapes.RULES` or the policy has, and arguments, state, items and pairs of the form that the rule
   knows.
4. Values inside of arguments, states, items and pairs are judged as values.
5. What is none of these is refused: names made up while loading, changes of what the pickle did not make,
   extension codes, persistent ids, buffers, results that are called.

Each node is visited once and none is left out, so no limit ends the walk; what the reader could not read to
its end is refused as a whole. `replayer.planning.gate` and `audit` are the two policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from rpcinspect.pickles import effort, semantic
from rpcinspect.pickles.numpy_nodes import NDARRAY
from rpcinspect.pickles.python import MAX_DEPTH, PythonPickle
from rpcinspect.pickles.safe_names import ADDRESSES, GENERATED, HELPERS, VALUES, has_dunder
from rpcinspect.pickles.semantic import GETATTR, PICKLER, is_fork
from rpcinspect.pickles.shapes import REBUILD, RULES
from rpcinspect.pickles.states import States
from rpcinspect.pickles.tree import SCALARS, Dict, Global, PickleCall, Set, Value, children, walk
from rpcinspect.pickles.verdicts import Named, NameRuling, Policy, title

UNREADABLE = "a pickle that can't be read"
MAX_NAME = 1_000
"""Characters of a name and its module; judging one takes time for each."""
LONG = f"a name of more than {MAX_NAME:,} characters"


class Judge:
    """Judges the pickles of one message; `found` has the judgements so far."""

    def __init__(self, policy: Policy) -> None:
        self._keeps_getattr = policy.keeps_getattr
        self.standing_of = cache(policy.standing)
        self._method_of = cache(policy.method)
        self.found: dict[str, Named] = {}
        self.states = States()
        self.effort = effort.Effort()
        self._given: set[int] | None = None
        self._without_functions: set[int] = set()

    def say(self, named: Named) -> None:
        """Keeps a judgement. A refusal outweighs other judgements of the same name."""
        known = self.found.get(named.name)
        if known is None or (known.allowed and not named.allowed):
            self.found[named.name] = named

    def refuse(self, name: str, reason: str, allow: str = "", *, dangerous: bool = True) -> None:
        """Keeps a refusal of `name`; `allow` is the argument of `--allow` that would let it pass."""
        self.say(Named(name, False, reason, allow, dangerous))

    def python(self, pickle: PythonPickle, *, request: bool = False) -> None:
        """Judge a pickle as it is loaded, and its value as it is given to somebody.

        `request`: the pickle's root is a PythonUDF, whose function as such is judged by the caller, who
        knows what may be called by rpc.
        """
        if pickle.error is not None:
            self.refuse(UNREADABLE, str(pickle.error))
        for code in pickle.extensions:
            self.refuse(f"copyreg extension {code}", "a table of the live process says what it imports")
        if any(len(name.module) + len(name.name) > MAX_NAME for name in pickle.globals):
            self.refuse("a name", LONG)
            return  # nobody can allow it, whatever else is in it
        called = pickle.root.args[0] if request else None
        for name in pickle.globals:
            if type(called) is not Global or name != called:
                self.imported(name)
        if pickle.is_deep:
            self.refuse("a value", f"nested more than {MAX_DEPTH:,} levels deep")
            return  # nobody can allow it, whatever else is in it
        stack: list[Value] = [] if request else [pickle.root]
        for number, call in enumerate(pickle.calls):
            self.effort.call(call)
            if self.effort.is_too_much(len(pickle.calls), pickle.end):
                self.refuse("a value", "shared by too many calls to be judged")
                break
            made = self._made(call)
            if type(call.function) is Global and call.function in RULES:
                self._in_order(pickle, number)
            stack += call.args[1:] if request and call is pickle.root else made
        for keyed in pickle.order.hashing():
            self._keys(keyed.items if type(keyed) is Set else [key for key, _ in keyed.pairs])
        if self.effort.hashes_too_much(len(pickle.calls), pickle.end):
            self.refuse("the keys of dicts and sets", "of too many parts to be hashed")
        self.values(stack, {id(call) for call in pickle.calls})

    def values(self, stack: list[Value], seen: set[int]) -> None:
        """Judge values and everything in them; `seen`: ids of the calls that are judged already."""
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind in SCALARS:
                if kind is str and node in ADDRESSES:
                    self.refuse(node, "its user takes its content for an address")
                continue
            if kind is Global:
                self._value(node)
                continue
            if kind is PickleCall and semantic.receiver(node) is not None:
                self.refuse(title(GETATTR), "a receiver of rpc would be passed on to be called")
            if id(node) in seen:
                continue
            seen.add(id(node))
            if kind is tuple or kind is list:
                stack += node
            elif kind is Dict:
                stack += children(node)
            elif kind is Set:
                stack += node.items
            elif (
                kind is PickleCall
            ):  # every call of a pickle is in its list of calls, so that none comes here
                self.refuse("a call", "it is not among the calls of its pickle")
            else:
                self.refuse(f"a {kind.__name__}", "what only the live process can supply")

    def imported(self, name: Global) -> None:
        """Judges a name that loading imports, whatever becomes of it."""
        if name in VALUES or name in RULES or name in HELPERS or name in _BY_RULE:
            self.say(Named(str(name), True, listed=True))
        else:
            self._standing(name, self.standing_of(name))

    def _standing(self, name: Global, standing: NameRuling) -> None:
        self.say(Named(str(name), standing.allowed, standing.reason, standing.allow, standing.dangerous))

    def _value(self, name: Global) -> None:
        """Judges a name where anybody may get hold of it."""
        if name in VALUES:
            return
        if name in RULES or name in HELPERS or name in _BY_RULE:
            reason = "it would be passed on to be called"
            self.refuse(title(name), reason, dangerous=name not in GENERATED)
            return
        standing = self.standing_of(name)
        self._standing(name, standing)
        if standing.allowed and standing.constructing:
            self.refuse(title(name), standing.constructing, standing.allow, dangerous=False)

    def _made(self, call: PickleCall) -> Iterable[Value]:
        """Judge a call that loading makes; returns the values in it that are still to be judged."""
        function = call.function
        if call.how == "stack_global":
            self.refuse("STACK_GLOBAL", "a name that the pickle makes up while it is loaded")
            return children(call)
        if call.how == "change":
            self.refuse(title(function), "what the pickle did not make itself would be changed")
            return children(call)
        if type(call.args) is not tuple:
            self.refuse(title(function), "it would be called with arguments that only loading shows")
            return children(call)
        self._keys([key for key, _ in call.pairs])
        self._keys(call.items)
        if type(function) is not Global:
            return self._received(call)
        if function == GETATTR:
            return self._attribute(call)
        rule = RULES.get(function)
        if rule is not None:
            reason = rule.wrong(call)
            if reason:
                self.refuse(title(function), reason)
            if function in HASHING:
                for arg in call.args:
                    items = arg if type(arg) in (list, tuple) else arg.items if type(arg) is Set else ()
                    if not self.effort.again(items):
                        self._keys(items)
            return self._settled(call, rule.settled)
        if function in HELPERS:
            self.refuse(title(function), "it would be called while the pickle is loaded")
            return list(children(call))[1:]
        self._own(function, call)
        values = list(children(call))[1:]
        if self._keeps_getattr and type(call.state) is Dict:
            kept = Dict([pair for pair in call.state.pairs if pair[1] != GETATTR])
            values = [kept if value is call.state else value for value in values]
        return values

    def _in_order(self, pickle: PythonPickle, number: int) -> None:
        """Refuse a call whose parts were changed once it had them: its rule has seen only how they end."""
        call, order = pickle.calls[number], pickle.order
        given, state = effort.parts(call.args), effort.parts(call.state)
        self.effort.call(call, len(given) + len(state))
        late = any(order.after_call(part, number) for part in given)
        late = late or any(order.after_state(part, call) for part in state)
        if call.function in AT_ONCE and not order.at_once(call, number):
            late = True  # something ran while it was not whole
        if call.function in TRUSTING and not late:
            lists = (part for part in (*given, *state) if type(part) in (list, Dict))
            late = any(id(part) in self._own_parts(pickle) for part in lists)
        if late:
            self.refuse(title(call.function), "it is given what is changed afterwards")

    def _own_parts(self, pickle: PythonPickle) -> set[int]:
        """What calls of somebody's own code get hold of, which may empty a list that others trust."""
        if self._given is None:

            def is_known(node: Value) -> bool:
                return type(node) is PickleCall and type(node.function) is Global and node.function in RULES

            own = (call for call in pickle.calls if type(call.function) is Global and not is_known(call))
            given = (part for call in own for part in children(call))
            found = walk(given, lambda node: () if is_known(node) else children(node))
            self._given = set(map(id, found))
        return self._given

    def _settled(self, call: PickleCall, settled: frozenset[int]) -> list[Value]:
        """The values in a call but for its function and the arguments that its rule has judged."""
        rest = list(children(call))[2:]
        if call.function == _RECONSTRUCTOR and call.args:
            self._restored(call)
        return rest + [arg for place, arg in enumerate(call.args) if place not in settled]

    def _restored(self, call: PickleCall) -> None:
        """`copyreg._reconstructor`: makes an object of the class that it is given."""
        cls = call.args[0]
        if type(cls) is Global:
            standing = self.standing_of(cls)
            if not standing.allowed or standing.kind == "function" or standing.restoring:
                reason = standing.reason or standing.restoring or "not a class"
                self.refuse(title(cls), reason, standing.allow, dangerous=standing.dangerous)

    def _own(self, function: Global, call: PickleCall) -> None:
        """A call of what the policy knows: somebody's class, or a function that makes an object."""
        standing = self.standing_of(function)
        self._standing(function, standing)
        if not standing.allowed:
            return
        if standing.loading or (standing.kind == "function" and self._has_function(call)):
            reason = standing.loading or "it is given a function, or what one returned"
            self.refuse(title(function), reason, dangerous=standing.dangerous)  # what it gives, nobody knows
            return
        if call.how in ("newobj", "newobj_ex"):
            reason = standing.restoring
        elif standing.kind == "value":
            reason = "not a function or class of the file"
        elif standing.kind != "class" and call.is_changed:
            self._changed_result(function, call)
            return
        else:
            reason = standing.constructing
        own = call.has_state and self._method_of(function, "__setstate__").allowed
        if call.has_state:
            reason = reason or standing.restoring or self.states.wrong(call.state, own=own)
            reason = reason or _set_slots(standing, call.state)
        reason = reason or (call.items and standing.items) or (call.pairs and standing.pairs) or ""
        if standing.changing and ((call.has_state and not own) or call.items or call.pairs):
            self.refuse(
                f"{function}.__setstate__",
                standing.changing,
                f"{standing.allow}.__setstate__",
                dangerous=False,
            )
            return
        if reason:
            self.refuse(title(function), reason, standing.allow, dangerous=False)

    def _has_function(self, call: PickleCall) -> bool:
        """Whether what rebuilds an object is given a function of the user's, or what one returned: it may
        give these to each other."""
        stack = list(children(call))[1:]
        while stack:
            node = stack.pop()
            if type(node) in SCALARS or id(node) in self._without_functions:
                continue
            name = node.function if type(node) is PickleCall else node
            if type(name) is Global and name not in RULES and self.standing_of(name).kind == "function":
                return True
            self._without_functions.add(id(node))
            stack += children(node)
        return False

    def _changed_result(self, function: Global, call: PickleCall) -> None:
        """What a function returned is given a state or items: of whatever class it is, so that these must be
        allowed by name."""
        uses = [("__setstate__", call.has_state), ("extend", call.items), ("__setitem__", call.pairs)]
        for name in (name for name, used in uses if used):
            standing = self._method_of(function, name)
            if not standing.allowed:
                whole = Global(function.module, f"{function.name}.{name}")
                reason = "what it returns would be changed"
                self.refuse(str(whole), reason, standing.allow, dangerous=False)

    def _received(self, call: PickleCall) -> Iterable[Value]:
        """A call of what another call returned: only rpc's receivers of tensors, RRefs and archives are."""
        receiver = semantic.receiver(call.function)
        plain = not call.is_changed and call.how == "reduce"
        if receiver == "_tensor_receiver":
            good = semantic.tensor_index(call) is not None
        elif receiver == "_py_rref_receiver":
            good = is_fork(call)
        elif receiver == "_script_module_receiver":
            good = True
            loader = self.standing_of(ARCHIVE)
            reason = "" if loader.allowed else "a TorchScript archive would be loaded"
            self.say(Named(str(ARCHIVE), loader.allowed, reason, loader.allow, dangerous=True))
        else:
            self.refuse(title(call.function), "something that only loading shows would be called")
            return children(call)
        if not (good and plain):
            self.refuse(title(GETATTR), f"{receiver} with what torch never writes")
        return () if good else list(children(call))[1:]

    def _attribute(self, call: PickleCall) -> Iterable[Value]:
        """`getattr`: rpc's own receivers, and methods of a class, or of an object that the pickle makes."""
        if semantic.receiver(call) is not None:
            if call.is_changed:
                self.refuse(title(GETATTR), "what the pickle did not make itself would be changed")
            return ()
        target, name = call.args if len(call.args) == 2 else (None, None)
        owner = target.function if type(target) is PickleCall else target
        if type(owner) is not Global or owner in _BY_RULE or type(name) is not str or call.how != "reduce":
            self.refuse(title(GETATTR), "an attribute chain")
            return list(children(call))[1:]
        if len(name) > MAX_NAME:
            self.refuse(title(GETATTR), LONG)
            return ()
        standing = self._method_of(owner, name)
        self._standing(Global(owner.module, f"{owner.name}.{name}"), standing)
        if standing.allowed and standing.kind != "any" and has_dunder(name):
            reason = "a special method, with what the capture chooses"
            self.refuse(f"{owner}.{name}", reason, standing.allow, dangerous=False)
        own = self._method_of(owner, "__setstate__").allowed
        if type(target) is PickleCall and self.states.hides(target, name, deep=own):
            self.refuse(f"{owner}.{name}", "an attribute in the state of its object hides it")
        if call.is_changed:
            self.refuse(title(GETATTR), "what the pickle did not make itself would be changed")
        return () if type(target) is Global else (target,)

    def _keys(self, keys: Sequence[Value]) -> None:
        """Refuse keys that take too long to hash, or too much of the stack, or may be hashed half made."""
        if self.effort.keys(keys):
            self.refuse("a key of a dict or set", "of too many parts to be hashed")
        for key in keys:
            if type(key) is PickleCall and type(key.function) is Global:
                rule = RULES.get(key.function)
                if rule is not None and rule.needs_state:
                    self.refuse(title(key), "a key that may be hashed before it is whole")


def _set_slots(standing: NameRuling, state: Value) -> str:
    """Why not: the second dict of a state is set by `setattr`, which asks the class."""
    slots = state[1] if type(state) is tuple and len(state) == 2 else None
    for name, _ in slots.pairs if type(slots) is Dict else ():
        if type(name) is not str:
            continue
        if len(name) > MAX_NAME:
            return LONG
        if name in standing.bound:
            return f"a state that sets {name}, which the body of the class defines"
    return ""


HASHING = frozenset(
    {Global("builtins", "set"), Global("builtins", "frozenset"), Global("copyreg", "_reconstructor")}
)
"""What hashes the items of its arguments."""
AT_ONCE = frozenset({Global("torch._C._distributed_rpc", "WorkerInfo")})
"""What holds memory that was never written until it has its state."""
TRUSTING = frozenset({REBUILD, NDARRAY, Global("numpy", "dtype")})
"""What trusts that a list or dict stays as it was checked."""
_BY_RULE = GENERATED | {GETATTR, PICKLER, REBUILD, NDARRAY}
"""Names that may be loaded, and are no values: `Judge` knows where each may stand."""
_RECONSTRUCTOR = Global("copyreg", "_reconstructor")
ARCHIVE = Global("torch.jit", "load")
"""What `_script_module_receiver` calls."""
