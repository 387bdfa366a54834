"""One message against one other, in all its parts: envelopes, fields, values, tensors, errors.

In: two records, each with a reader of its bytes; rules; the ids that are known to be the same in both runs.
Out: every difference, in the order of the message: envelopes, body, tensors. When, on which connection and
under which number a message was sent is no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, to_json
from rpcinspect.equality.elements import ReadExtent, Tensors, same_bytes, tensors_of
from rpcinspect.equality.envelopes import compare_envelopes, compare_ids, compare_metadata, contexts_of
from rpcinspect.equality.errors import compare_errors
from rpcinspect.equality.ids import CONTEXT, FORK, RREF, WORKER, IdMap
from rpcinspect.equality.rules import Rules
from rpcinspect.equality.tensors import compare_tensors
from rpcinspect.equality.values import Matching, compare_values
from rpcinspect.pickles.semantic import python_udf
from rpcinspect.pickles.tree import Dict, Value
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.command import Command
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import error_of
from rpcinspect.session.words import counted


def compare_messages(
    a: RpcRecord,
    b: RpcRecord,
    read_a: ReadExtent,
    read_b: ReadExtent,
    rules: Rules,
    ids: IdMap | None = None,
) -> list[Difference]:
    """Every difference, see the module's text; at most about `rules.max_per_message`.

    `ids` learns what the two messages call the same thing; without it every pair of ids is accepted that
    does not contradict itself.
    """
    if a is b:
        return []
    matching = Matching(rules, IdMap() if ids is None else ids)
    comparison = _Comparison(a, b, tensors_of(a, read_a), tensors_of(b, read_b), matching)
    return _bounded(comparison.run(), rules)


def same_payload(a: RpcRecord, b: RpcRecord) -> bool:
    """Whether payload and tensor table are equal byte for byte; those that were cut off never are."""
    if a.tp.payload_missing is not None or b.tp.payload_missing is not None:
        return False
    one, other = a.rpc.message, b.rpc.message
    return (one.type, one.payload, one.tensor_table) == (other.type, other.payload, other.tensor_table)


def _bounded(found: Iterator[Difference], rules: Rules) -> list[Difference]:
    """Returns at most as many differences as the rules allow; the one that decides the verdict is always
    kept."""
    kept: list[Difference] = []
    most = 0
    for difference in found:
        if rules.ignores(difference.code):
            continue
        weight = 2 - difference.tolerated if rules.counts(difference.code) else 0
        if len(kept) < rules.max_per_message or weight > most:
            kept.append(difference)
        most = max(most, weight)
    return kept


class _Comparison(Struct, eq=False):
    """One pair of messages."""

    a: RpcRecord
    b: RpcRecord
    tensors_a: Tensors
    tensors_b: Tensors
    matching: Matching

    def run(self) -> Iterator[Difference]:
        a, b = self.a, self.b
        missing = [sum(record.tp.payload_missing or ()) for record in (a, b)]
        if any(missing):
            yield from self.field("type", type_name(a.rpc.message.type), type_name(b.rpc.message.type))
            verb = "was" if sum(missing) == 1 else "were"
            text = f"{counted(sum(missing), 'byte')} of it {verb} not captured"
            yield Difference(code="unknown", path="payload", text=text, both=all(missing))
            return
        self.matching.contexts = contexts_of(a.rpc.envelopes)
        yield from compare_envelopes(a.rpc.envelopes, b.rpc.envelopes, self.matching.rules, self.matching.ids)
        error_a, error_b = error_of(a), error_of(b)
        if error_a is not None and error_b is not None:
            yield from compare_errors(error_a, error_b, "error", self.matching.rules)
        elif error_a is not None or error_b is not None:
            shown = [None if e is None else to_json(e.text) for e in (error_a, error_b)]
            yield Difference(code="error", path="error", a_value=shown[0], b_value=shown[1])
            return
        one, other = a.rpc.command, b.rpc.command
        if type(one) is not type(other):
            names = [type_name(message_type_of(command)) for command in (one, other)]
            yield from self.field("body.type", *names)
            return
        if error_a is None:
            yield from self.body(one, other)
        yield from self.tensors()

    # Bodies: `_FIELDS` says how each field of a command is compared.

    def body(self, a: Command, b: Command) -> Iterator[Difference]:
        for name, compare in _fields_of(type(a)):
            yield from compare(self, getattr(a, name), getattr(b, name))

    def pickles(self, data_a: bytes, data_b: bytes) -> Iterator[Difference]:
        facts_a, facts_b = self.a.facts, self.b.facts
        if data_a == data_b and not facts_a.forks:
            return
        a, b = facts_a.pickle, facts_b.pickle
        if a is None or b is None or a.error is not None or b.error is not None:
            if data_a != data_b:
                yield Difference(code="unknown", path="body.pickle", text=_NOT_DECODED)
            return
        is_call = isinstance(self.a.rpc.command, (commands.PythonCall, commands.PythonRemoteCall))
        yield from (self.udf if is_call else self.result)(a.root, b.root)

    def schema(self, a: str | None, b: str | None) -> Iterator[Difference]:
        """Compares schemas as a form: what one says beside the name is the release's."""
        if self.a.rpc.command.function == self.b.rpc.command.function:  # type: ignore[union-attr]
            yield from self.field("schema", a, b, code="form")

    def gradients(self, a: Sequence[int], b: Sequence[int]) -> Iterator[Difference]:
        yield from self.field("grads", len(a), len(b))
        for i, pair in enumerate(zip(a, b, strict=False)):
            self.matching.tensor_pairs.setdefault(pair, f"grads[{i}]")

    def payload(self, a: bytes, b: bytes) -> Iterator[Difference]:
        if a != b:
            yield Difference(code="unknown", path="body.payload", text=_NOT_DECODED)

    # Values.

    def udf(self, a: Value, b: Value) -> Iterator[Difference]:
        call_a, call_b = python_udf(a), python_udf(b)
        if call_a is None or call_b is None:
            yield from self.values(a, b, "args[0]", "argument")
            return
        self.matching.joined_names = self.a.facts.control and bool(self.matching.rules.renames)
        if (self.a.facts.function or "").startswith("torch.distributed."):
            self.matching.contexts = None
        yield from self.values(call_a.func, call_b.func, "function", "function")
        yield from self.arguments(call_a.args, call_b.args)
        if type(call_a.kwargs) is Dict is type(call_b.kwargs) or call_a.kwargs != call_b.kwargs:
            yield from self.values(call_a.kwargs, call_b.kwargs, "kwargs", "argument")

    def arguments(self, a: Value, b: Value) -> Iterator[Difference]:
        """Yields at most one difference for each argument."""
        if type(a) is not type(b) or type(a) not in (tuple, list) or len(a) != len(b):
            yield from self.values(a, b, "args", "argument")
            return
        for i, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from self.values(one, other, f"args[{i}]", "argument")

    def result(self, a: Value, b: Value) -> Iterator[Difference]:
        yield from self.values(a, b, "value", "value")

    def values(self, a: Value, b: Value, path: str, code: str) -> Iterator[Difference]:
        found = compare_values(a, b, path, self.matching, code)
        if found is not None:
            yield found

    def field(self, path: str, a: Any, b: Any, *, code: str = "field") -> Iterator[Difference]:
        if a != b:
            yield Difference(code=code, path=path, a_value=to_json(a), b_value=to_json(b))

    # Tensors.

    def tensors(self) -> Iterator[Difference]:
        table_a, table_b = self.a.rpc.message.tensor_table, self.b.rpc.message.tensor_table
        pairs = self.matching.tensor_pairs
        if table_a == table_b and all(i == j for i, j in pairs) and self.same_storages():
            return
        metas_a, metas_b = self.tensors_a.metas, self.tensors_b.metas
        if table_a != table_b and not (metas_a and metas_b) and self.damaged():
            yield Difference(code="unknown", path="tensors", text="the tensor table can't be decoded")
            return
        left_a, left_b = (
            [i for i, meta in enumerate(metas) if meta.part_of is None and i not in used]
            for metas, used in ((metas_a, {i for i, _ in pairs}), (metas_b, {j for _, j in pairs}))
        )
        for pair in zip(left_a, left_b, strict=False):
            pairs.setdefault(pair, "")
        for i in left_a[len(left_b) :]:
            yield Difference(code="field", path=f"tensors[{i}]", a_value=_tensor_text(metas_a, i))
        for j in left_b[len(left_a) :]:
            yield Difference(code="field", path=f"tensors[{j}]", b_value=_tensor_text(metas_b, j))
        yield from self.tensor_pairs(sorted(pairs))

    def tensor_pairs(self, pairs: Sequence[tuple[int, int]]) -> Iterator[Difference]:
        storages_a: dict[int | None, int | None] = {None: None}
        storages_b: dict[int | None, int | None] = {None: None}
        metas_a, metas_b = self.tensors_a.metas, self.tensors_b.metas
        for i, j in pairs:
            path, b_path = f"tensors[{i}]", f"tensors[{j}]"
            if not (0 <= i < len(metas_a) and 0 <= j < len(metas_b)):
                there = [0 <= n < len(metas) for n, metas in ((i, metas_a), (j, metas_b))]
                if there[0] != there[1]:
                    other_path = None if i == j else b_path
                    yield Difference(
                        code="field", path=path, b_path=other_path, a_value=there[0], b_value=there[1]
                    )
                continue
            found = compare_tensors(self.tensors_a, i, self.tensors_b, j, path, self.matching.rules)
            one, other = metas_a[i].storage, metas_b[j].storage
            known = storages_a.setdefault(one, other) == other and storages_b.setdefault(other, one) == one
            if not known and None not in (one, other):
                text = "in one run it shares its storage with another tensor"
                found.append(Difference(code="form", path=f"{path}.storage", text=text))
            for difference in found:
                if i != j:
                    difference = replace(difference, b_path=b_path + difference.path[len(path) :])
                yield difference

    def same_storages(self) -> bool:
        """Whether all bytes of all storages were captured and are equal, and go to the same devices."""
        a, b = self.tensors_a.storages, self.tensors_b.storages
        if len(a) != len(b):
            return False
        return all(
            one.target_device == other.target_device and same_bytes(one, other)
            for one, other in zip(a, b, strict=True)
        )

    def damaged(self) -> bool:
        return any(problem.layer in _TABLE_LAYERS for problem in (*self.a.problems, *self.b.problems))


def _tensor_text(metas: Sequence[Any], index: int) -> str:
    meta = metas[index]
    return f"{meta.dtype}[{','.join(map(str, meta.sizes))}]"


_NOT_DECODED = "it can't be decoded; its bytes differ"
_TABLE_LAYERS = frozenset({"tensor", "pickle"})

_CompareCommands: TypeAlias = Callable[[_Comparison, Any, Any], Iterator[Difference]]


def _id(kind: str, path: str) -> _CompareCommands:
    return lambda self, a, b: compare_ids(self.matching.ids, kind, a, b, path, "field")


def _plain(path: str, code: str = "field") -> _CompareCommands:
    return lambda self, a, b: self.field(path, a, b, code=code)


_FIELDS: dict[str, _CompareCommands] = {
    "serialized_py_obj": _Comparison.pickles,
    "function": _plain("function", "function"),
    "schema": _Comparison.schema,
    "args": _Comparison.arguments,
    "value": _Comparison.result,
    "values": _Comparison.result,
    "is_async_execution": _plain("async"),
    "ret_rref_id": _id(RREF, "rref_id"),
    "ret_fork_id": _id(FORK, "fork_id"),
    "rref_id": _id(RREF, "rref_id"),
    "fork_id": _id(FORK, "fork_id"),
    "from_worker_id": _id(WORKER, "from_worker_id"),
    "autograd_metadata": lambda self, a, b: compare_metadata(self.matching.ids, a, b, "", "field"),
    "context_id": _id(CONTEXT, "context_id"),
    "autograd_context_id": _id(CONTEXT, "context_id"),
    "retain_graph": _plain("retain_graph"),
    "grads": _Comparison.gradients,
    "message_type": lambda self, a, b: self.field("body.type", type_name(a), type_name(b)),
    "payload": _Comparison.payload,
}
"""Fields of commands, in the order in which they are compared; those of one name mean the same in each."""


@cache
def _fields_of(command: type) -> list[tuple[str, _CompareCommands]]:
    """Returns those of a kind of command."""
    return [(name, compare) for name, compare in _FIELDS.items() if hasattr(command, name)]
