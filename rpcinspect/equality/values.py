"""Two captured values, arguments or results, by their structure and the bits of their numbers.

In: two inert trees of either pickle dialect. Out: the first path at which they differ, or nothing; the pairs
of tensors that stand at the same place are handed on, for their bytes lie elsewhere. Equality is Python's
where that has one: the order of dicts and sets does not count, that of an OrderedDict does. It is stricter
for types (1, 1.0 and True are three things) and for floats, which are compared by their bits: a NaN equals
the same NaN, −0 is not 0. What ids and names of workers are in the other run, `Matching` knows.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, plain_text, to_json
from rpcinspect.equality.element_stats import compare_codes
from rpcinspect.equality.errors import same_main
from rpcinspect.equality.ids import CONTEXT, FORK, RREF, WORKER, IdMap
from rpcinspect.equality.rules import Rules
from rpcinspect.equality.structural_keys import by_key, key_of, match, one_module
from rpcinspect.pickles import numpy_nodes, semantic
from rpcinspect.pickles.semantic import RRefForkData
from rpcinspect.pickles.tree import Buffer, Dict, Extension, Global, PersistentRef, PickleCall, Set, Value
from rpcinspect.rpc.dtypes import DTYPES
from rpcinspect.rpc.types import LOCAL_ID_BITS, GloballyUniqueId

MAX_PAIRS = 2_000_000
"""Nodes of one pair of values that are followed; honest ones have far fewer."""

ValuePair: TypeAlias = tuple[Value, Value, str]
"""Two values at the same place, and its path."""


class Matching(Struct):
    """Mapping that makes values of two runs equal, with what a comparison finds on its way."""

    rules: Rules
    ids: IdMap
    tensor_pairs: dict[tuple[int, int], str] = field(default_factory=dict)
    """Numbers of tensors that stand at the same place → the first such place."""
    contexts: frozenset[int] | None = frozenset()
    """Ids of contexts that may stand among the values as plain integers; None: any context that is known.
    Those of worker 0 are as small as other numbers, so they are looked for in these only."""

    joined_names: bool = False
    """Texts may be the names of all workers, sorted and joined, as the agents' own calls have them."""

    def same_joined(self, a: str, b: str) -> bool:
        """Whether two texts are the same but for renamed workers inside of them, wherever sorting puts
        these."""
        for old, new in self.rules.renames.items():
            if a.count(old) != b.count(new):
                return False
            a, b = a.replace(old, ""), b.replace(new, "")
        return a == b

    def same_context(self, a: int, b: int) -> bool:
        """Whether two integers are the ids of one context."""
        if self.contexts is not None and a not in self.contexts and a >> LOCAL_ID_BITS == 0:
            return False
        return self.ids.translate(CONTEXT, a) == b


def compare_values(
    a: Value, b: Value, path: str, matching: Matching, code: str = "value"
) -> Difference | None:
    """The first place at which two values differ; `code` is that of differences which have none of their
    own."""
    return _Walk(matching, code).run(a, b, path)


class _Walk(Struct, eq=False):
    """One comparison: depth first, in the order of the first value, without recursion."""

    matching: Matching
    code: str
    stack: list[ValuePair] = field(default_factory=list)
    met: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of nodes that are being compared or were; cycles end here."""
    kept: list[Value] = field(default_factory=list)
    """What was made on the way, so that no identity in `met` is used again."""
    covered: Difference | None = None
    """The first difference that the tolerance covers."""

    def run(self, a: Value, b: Value, path: str) -> Difference | None:
        self.stack.append((a, b, path))
        for _ in range(MAX_PAIRS):
            if not self.stack:
                return self.covered
            found = self.step(*self.stack.pop())
            if found is not None:
                if not found.tolerated:
                    return found
                self.covered = self.covered or found
        return Difference(code="unknown", path=path, text=f"more than {MAX_PAIRS:,} values")

    def step(self, a: Value, b: Value, path: str) -> Difference | None:
        kind = type(a)
        if kind is not type(b):
            a, b = _plain(a), _plain(b)
            kind = type(a)
            if kind is not type(b):
                return self.differ(a, b, path)
        atom = _ATOMS.get(kind)
        if atom is not None:
            return atom(self, a, b, path)
        node = _NODES.get(kind)
        if node is None:
            return self.differ(a, b, path)
        pair = id(a), id(b)
        if pair in self.met:
            return None
        self.met.add(pair)
        return node(self, a, b, path)

    def differ(self, a: Value, b: Value, path: str, text: str | None = None) -> Difference:
        shown_a, shown_b = to_json(a), to_json(b)
        if type(a) is not type(b) or (shown_a == shown_b and text is None):
            text = text or " and ".join(sorted((_kind(a), _kind(b))))
        return Difference(code=self.code, path=path, a_value=shown_a, b_value=shown_b, text=text)

    def push(self, steps: Sequence[ValuePair]) -> None:
        self.stack.extend(reversed(steps))

    # Atoms.

    def exact(self, a: Value, b: Value, path: str) -> Difference | None:
        return None if a == b else self.differ(a, b, path)

    def int(self, a: int, b: int, path: str) -> Difference | None:
        if a == b or self.matching.same_context(a, b):
            return None
        return self.differ(a, b, path)

    def float(self, a: float, b: float, path: str) -> Difference | None:
        raw_a, raw_b = struct.pack("<d", a), struct.pack("<d", b)
        if raw_a == raw_b:
            return None
        found = self.numbers("float64", raw_a, raw_b, path)
        return None if found is None else replace(found, path=path, elements=None)

    def numbers(self, dtype: str, raw_a: bytes, raw_b: bytes, path: str) -> Difference | None:
        """What is no matter of sign or payload only gets the code of the others."""
        a, b = (np.frombuffer(raw, f"<u{DTYPES[dtype].item_bytes}")[:, None] for raw in (raw_a, raw_b))
        for found in compare_codes(dtype, a, b, path, self.matching.rules):
            return found if found.code in ("zero-sign", "nan-payload") else replace(found, code=self.code)
        return None

    def text(self, a: str, b: str, path: str) -> Difference | None:
        if a == b:
            return None
        rules = self.matching.rules
        worker, slash, device = a.partition("/")  # worker1/cpu is a device of another worker
        renamed = rules.worker_name(worker) + slash
        if renamed + device == b or (self.matching.joined_names and self.matching.same_joined(a, b)):
            return None
        if rules.ignores("device") and b.startswith(renamed if slash else ""):
            other = b[len(renamed) :] if slash else b
            if _DEVICE.fullmatch(device if slash else a) and _DEVICE.fullmatch(other):
                return None
        return self.differ(a, b, path)

    def name(self, a: Global, b: Global, path: str) -> Difference | None:
        if a == b or (one_module(a.module), a.name) == (one_module(b.module), b.name):
            return None
        return self.differ(a, b, path)

    # Containers.

    def sequence(self, a: Sequence[Value], b: Sequence[Value], path: str) -> Difference | None:
        if len(a) != len(b):
            return self.differ(a, b, path, "a different number of items")
        self.push([(x, y, f"{path}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True))])
        return None

    def dict(self, a: Dict, b: Dict, path: str) -> Difference | None:
        return self.pairs(a.pairs, b.pairs, path)

    def pairs(
        self, a: Sequence[tuple[Value, Value]], b: Sequence[tuple[Value, Value]], path: str
    ) -> Difference | None:
        """As a dict does: the last value of a key counts, wherever it stands."""
        translate = self.matching.rules.worker_name
        dict_a = by_key(a, lambda pair: pair[0], translate)
        dict_b = by_key(b, lambda pair: pair[0])
        shared, only_a, only_b = match(dict_a, dict_b)
        if only_a or only_b:
            first = min((*only_a, *only_b), key=repr)  # whichever way round they are compared
            here = dict_a[first] if first in dict_a else dict_b[first]
            value_a, value_b = (here[1], None) if first in dict_a else (None, here[1])
            place = f"{path}{_subscript(here[0])}"
            return self.differ(value_a, value_b, place, "a key that only one run has")
        self.push([(dict_a[k][1], dict_b[k][1], f"{path}{_subscript(dict_a[k][0])}") for k in shared])
        return None

    def set(self, a: Set, b: Set, path: str) -> Difference | None:
        translate = self.matching.rules.worker_name
        set_a = by_key(a.items, lambda item: item, translate)
        set_b = by_key(b.items, lambda item: item)
        shared, only_a, only_b = match(set_a, set_b)
        if a.frozen != b.frozen or len(only_a) != len(only_b):
            return self.differ(a, b, path)
        if only_a:
            return self.differ(set_a[only_a[0]], set_b[only_b[0]], path, "of a set")
        self.push([(set_a[key], set_b[key], path) for key in shared])
        return None

    # Nodes.

    def persistent(self, a: PersistentRef, b: PersistentRef, path: str) -> Difference | None:
        self.push([(a.id, b.id, path)])
        return None

    def call(self, a: PickleCall, b: PickleCall, path: str) -> Difference | None:
        for meaning, compare in _MEANINGS:
            means_a, means_b = meaning(a), meaning(b)
            if means_a is not None and means_b is not None:
                return compare(self, means_a, means_b, path)
            if means_a is not None or means_b is not None:
                return self.differ(a, b, path)
        plain_a, plain_b = _plain(a), _plain(b)
        if plain_a is not a or plain_b is not b:
            self.kept += [plain_a, plain_b]
            self.push([(plain_a, plain_b, path)])
            return None
        if (a.how in _HOW) != (b.how in _HOW) or a.has_state != b.has_state:
            return self.differ(a, b, path)
        inner = f"{path}.{_ctor(a.function)}"
        steps: list[ValuePair] = [(a.function, b.function, path), (a.args, b.args, inner)]
        if a.kwargs is not None or b.kwargs is not None:
            steps.append((a.kwargs, b.kwargs, inner))
        if a.has_state:
            steps.append((a.state, b.state, path))
        if a.items or b.items:
            steps.append((a.items, b.items, path))
        if a.pairs or b.pairs:
            if a.function == b.function == _ORDERED_DICT and not self.same_order(a, b):
                return self.differ(a, b, path, "the keys, or their order")
            self.kept += [Dict(a.pairs), Dict(b.pairs)]
            steps.append((*self.kept[-2:], path))
        self.push(steps)
        return None

    def same_order(self, a: PickleCall, b: PickleCall) -> bool:
        translate = self.matching.rules.worker_name
        return [key_of(key, translate) for key, _ in a.pairs] == [key_of(key) for key, _ in b.pairs]

    # What calls mean to rpc.

    def tensor(self, a: Value, b: Value, path: str) -> Difference | None:
        self.matching.tensor_pairs.setdefault((a, b), path)
        return None

    def rref(self, a: RRefForkData, b: RRefForkData, path: str) -> Difference | None:
        ids = self.matching.ids
        same = (
            ids.carried(WORKER, a.owner_id, b.owner_id)
            and ids.carried(WORKER, a.parent, b.parent)
            and ids.carried(RREF, GloballyUniqueId(*a.rref_id), GloballyUniqueId(*b.rref_id))
            and ids.carried(FORK, GloballyUniqueId(*a.fork_id), GloballyUniqueId(*b.fork_id))
            and same_main(a.type_str) == same_main(b.type_str)
        )
        if same:
            return None
        return self.differ(a.text, b.text, path, "a different RRef than before in the other run")

    def remote_module(
        self, a: semantic.PickledRemoteModule, b: semantic.PickledRemoteModule, path: str
    ) -> Difference | None:
        found = self.rref(a.rref, b.rref, f"{path}.module_rref")
        if found is None:
            self.kept += [a.attributes, b.attributes]
            self.push([(a.attributes, b.attributes, f"{path}.RemoteModule")])
        return found

    def worker(self, a: semantic.WorkerInfo, b: semantic.WorkerInfo, path: str) -> Difference | None:
        matching = self.matching
        if matching.rules.worker_name(a.name) == b.name and matching.ids.carried(WORKER, a.id, b.id):
            return None
        return self.differ(f"{a.name} ({a.id})", f"{b.name} ({b.id})", path)

    def device(self, a: str, b: str, path: str) -> Difference | None:
        if a == b or self.matching.rules.ignores("device"):
            return None
        return self.differ(a, b, path)

    def array(self, a: numpy_nodes.Array, b: numpy_nodes.Array, path: str) -> Difference | None:
        if a.fortran != b.fortran:
            return self.differ(a.fortran, b.fortran, f"{path}.fortran_order")
        code_a, code_b = numpy_nodes.dtype(a.dtype), numpy_nodes.dtype(b.dtype)
        name = _NUMPY.get(code_a) if code_a is not None and code_a == code_b else None
        data_a, data_b = (bytes(x.data) if type(x.data) is bytearray else x.data for x in (a, b))
        plain = type(data_a) is bytes is type(data_b) and len(data_a) == len(data_b)
        if name is None or not plain or a.shape != b.shape or len(data_a) % DTYPES[name].item_bytes:
            self.kept += [data_a, data_b]
            steps = [(a.shape, b.shape, f"{path}.shape"), (a.dtype, b.dtype, f"{path}.dtype")]
            self.push([*steps, (data_a, data_b, f"{path}.data")])
            return None
        return self.numbers(name, data_a, data_b, path)

    def scalar(self, a: tuple[str, Value], b: tuple[str, Value], path: str) -> Difference | None:
        if a[0] != b[0]:
            return self.differ(a[0], b[0], f"{path}.dtype")
        self.push([(a[1], b[1], path)])
        return None


def _plain(value: Value) -> Value:
    """What stands for the same in both dialects and in all protocols."""
    return numpy_nodes.raw_bytes(semantic.untag(value))


def _subscript(key: Value) -> str:
    return f"[{to_json(key)!r}]"


def _ctor(function: Value) -> str:
    return plain_text(function.name) if type(function) is Global else "<call>"


def _kind(value: Value) -> str:
    if type(value) is PickleCall and type(value.function) is Global:
        return plain_text(str(value.function))
    return "None" if value is None else type(value).__name__.lower()


_DEVICE = re.compile(r"(?:cpu|cuda|xpu|mps|hpu|npu|mtia|privateuseone|meta)(?::\d{1,5})?", re.ASCII)
"""A device as text."""

_HOW = ("reduce", "newobj", "newobj_ex", "inst", "obj")
_ORDERED_DICT = Global("collections", "OrderedDict")

_NUMPY = {
    **{f"<f{size}": f"float{8 * size}" for size in (2, 4, 8)},
    **{f"<i{size}": f"int{8 * size}" for size in (2, 4, 8)},
    **{f"<u{size}": f"uint{8 * size}" for size in (2, 4, 8)},
    "|i1": "int8",
    "|u1": "uint8",
    "|b1": "bool",
}
"""numpy's dtypes that are torch's too."""

_CompareValues: TypeAlias = Callable[[_Walk, Any, Any, str], Difference | None]

_ATOMS: dict[type, _CompareValues] = {
    type(None): _Walk.exact,
    bool: _Walk.exact,
    bytes: _Walk.exact,
    bytearray: _Walk.exact,
    int: _Walk.int,
    float: _Walk.float,
    str: _Walk.text,
    Global: _Walk.name,
}

_NODES: dict[type, _CompareValues] = {
    tuple: _Walk.sequence,
    list: _Walk.sequence,
    Dict: _Walk.dict,
    Set: _Walk.set,
    PickleCall: _Walk.call,
    PersistentRef: _Walk.persistent,
    Extension: lambda walk, a, b, path: walk.exact(a.code, b.code, path),
    Buffer: lambda walk, a, b, path: walk.exact(a.index, b.index, path),
}

_MEANINGS: tuple[tuple[Callable[[Any], Any], _CompareValues], ...] = (
    (semantic.tensor_index, _Walk.tensor),
    (semantic.rref_fork, _Walk.rref),
    (semantic.remote_module, _Walk.remote_module),
    (semantic.worker_info, _Walk.worker),
    (semantic.device, _Walk.device),
    (semantic.script_module, _Walk.exact),
    (numpy_nodes.array, _Walk.array),
    (numpy_nodes.scalar, _Walk.scalar),
)
"""What a call may mean, by functions that tell; and how two such things are compared."""
