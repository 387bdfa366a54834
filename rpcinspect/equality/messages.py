"""One message against one other, in all its parts: envelopes, fields, values, tensors, errors.

In: two records, each with a reader of its bytes; rules; the ids that are known to be the same in both runs.
Out: every difference, in the order of the message: envelopes, body, tensors. When, on which connection and
under which number a message was sent is no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from rpcinspect.equality.difference import Difference, to_json
from rpcinspect.equality.elements import Read, Tensors, tensors_of
from rpcinspect.equality.envelopes import compare_envelopes, contexts_of, other_id
from rpcinspect.equality.errors import compare_errors
from rpcinspect.equality.ids import AUTOGRAD_MESSAGE, CONTEXT, FORK, RREF, IdMap
from rpcinspect.equality.rules import Rules
from rpcinspect.equality.tensors import WHOLE_BYTES, compare_tensors
from rpcinspect.equality.values import Matching, compare_values
from rpcinspect.rpc import command as commands
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.message import type_name
from rpcinspect.rpc.pickles.semantic import python_udf
from rpcinspect.rpc.pickles.tree import Dict, Value
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.remote_error import error_of


def compare_messages(
    a: RpcRecord,
    b: RpcRecord,
    read_a: Read,
    read_b: Read,
    rules: Rules,
    ids: IdMap | None = None,
) -> list[Difference]:
    """Every difference, see the module's text; at most about `rules.max_per_message`.

    `ids` learns what the two messages call the same thing; without it every pair of ids is accepted that
    does not contradict itself.
    """
    if a is b:
        return []
    comparison = _Comparison(
        a, b, tensors_of(a, read_a), tensors_of(b, read_b), rules, IdMap() if ids is None else ids
    )
    return _bounded(comparison.run(), rules)


def same_payload(a: RpcRecord, b: RpcRecord) -> bool:
    """Whether payload and tensor table are equal byte for byte; those that were cut off never are."""
    if a.tp.payload_missing is not None or b.tp.payload_missing is not None:
        return False
    one, other = a.rpc.message, b.rpc.message
    return (one.type, one.payload, one.tensor_table) == (other.type, other.payload, other.tensor_table)


def _bounded(found: Iterator[Difference], rules: Rules) -> list[Difference]:
    """Not more than the rules say; but what decides the verdict is always among them."""
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


class _Comparison:
    """One pair of messages."""

    def __init__(
        self, a: RpcRecord, b: RpcRecord, tensors_a: Tensors, tensors_b: Tensors, rules: Rules, ids: IdMap
    ) -> None:
        self.a = a
        self.b = b
        self.tensors_a = tensors_a
        self.tensors_b = tensors_b
        self.rules = rules
        self.ids = ids
        self.matching = Matching(rules, ids)

    def run(self) -> Iterator[Difference]:
        a, b = self.a, self.b
        missing = [sum(record.tp.payload_missing or ()) for record in (a, b)]
        if any(missing):
            yield from self.field("type", type_name(a.rpc.message.type), type_name(b.rpc.message.type))
            text = f"{sum(missing):,} bytes of it were not captured"
            yield Difference(code="unknown", path="payload", text=text, both=all(missing))
            return
        self.matching.contexts = contexts_of(a.rpc.envelopes)
        yield from compare_envelopes(a.rpc.envelopes, b.rpc.envelopes, self.rules, self.ids)
        error_a, error_b = error_of(a), error_of(b)
        if error_a is not None and error_b is not None:
            yield from compare_errors(error_a, error_b, "error", self.rules)
        elif error_a is not None or error_b is not None:
            shown = [None if e is None else to_json(e.text) for e in (error_a, error_b)]
            yield Difference(code="error", path="error", a_value=shown[0], b_value=shown[1])
            return
        one, other = a.rpc.command, b.rpc.command
        if type(one) is not type(other):
            names = [type_name(message_type_of(command)) for command in (one, other)]
            yield from self.field("body.type", *names)
            return
        body = _BODIES.get(type(one))
        if body is not None and error_a is None:
            yield from body(self, one, other)
        yield from self.tensors()

    # Bodies.

    def python_call(self, a: commands.PythonCall, b: commands.PythonCall) -> Iterator[Difference]:
        yield from self.pickles(a.serialized_py_obj, b.serialized_py_obj, self.udf)
        yield from self.field("async", a.is_async_execution, b.is_async_execution)

    def python_remote_call(
        self, a: commands.PythonRemoteCall, b: commands.PythonRemoteCall
    ) -> Iterator[Difference]:
        yield from self.pickles(a.serialized_py_obj, b.serialized_py_obj, self.udf)
        yield from self.field("async", a.is_async_execution, b.is_async_execution)
        yield from self.returned_to(a, b)

    def script_call(self, a: commands.ScriptCall, b: commands.ScriptCall) -> Iterator[Difference]:
        yield from self.field("function", a.function, b.function, code="function")
        if a.function == b.function:  # what the schema says beside the name is the release's
            yield from self.field("schema", a.schema, b.schema, code="form")
        yield from self.arguments(a.args, b.args)
        yield from self.field("async", a.is_async_execution, b.is_async_execution)

    def script_remote_call(
        self, a: commands.ScriptRemoteCall, b: commands.ScriptRemoteCall
    ) -> Iterator[Difference]:
        yield from self.script_call(a, b)  # type: ignore[arg-type]  # they have the same fields
        yield from self.returned_to(a, b)

    def returned_to(self, a: Any, b: Any) -> Iterator[Difference]:
        if not self.ids.unique(RREF, a.ret_rref_id, b.ret_rref_id):
            yield other_id("field", "rref_id", a.ret_rref_id, b.ret_rref_id)
        if not self.ids.unique(FORK, a.ret_fork_id, b.ret_fork_id):
            yield other_id("field", "fork_id", a.ret_fork_id, b.ret_fork_id)

    def python_result(
        self, a: commands.PythonResp | commands.PythonRRefFetchRet, b: Any
    ) -> Iterator[Difference]:
        yield from self.pickles(a.serialized_py_obj, b.serialized_py_obj, self.result)

    def script_result(self, a: commands.ScriptResp, b: commands.ScriptResp) -> Iterator[Difference]:
        yield from self.result(a.value, b.value)

    def script_fetched(
        self, a: commands.ScriptRRefFetchRet, b: commands.ScriptRRefFetchRet
    ) -> Iterator[Difference]:
        yield from self.result(a.values, b.values)

    def fetch(
        self, a: commands.ScriptRRefFetchCall | commands.PythonRRefFetchCall, b: Any
    ) -> Iterator[Difference]:
        if not self.ids.unique(RREF, a.rref_id, b.rref_id):
            yield other_id("field", "rref_id", a.rref_id, b.rref_id)
        if not self.ids.worker(a.from_worker_id, b.from_worker_id):
            yield other_id("field", "from_worker_id", a.from_worker_id, b.from_worker_id)

    def fork(self, a: Any, b: Any) -> Iterator[Difference]:
        if not self.ids.unique(RREF, a.rref_id, b.rref_id):
            yield other_id("field", "rref_id", a.rref_id, b.rref_id)
        yield from self.child(a, b)

    def child(self, a: Any, b: Any) -> Iterator[Difference]:
        if not self.ids.unique(FORK, a.fork_id, b.fork_id):
            yield other_id("field", "fork_id", a.fork_id, b.fork_id)

    def gradients(
        self, a: commands.PropagateGradientsReq, b: commands.PropagateGradientsReq
    ) -> Iterator[Difference]:
        one, other = a.autograd_metadata, b.autograd_metadata
        contexts = one.autograd_context_id, other.autograd_context_id
        message_ids = one.autograd_message_id, other.autograd_message_id
        if not self.ids.packed(CONTEXT, *contexts):
            yield other_id("field", "context_id", *contexts)
        if not self.ids.packed(AUTOGRAD_MESSAGE, *message_ids):
            yield other_id("field", "autograd_message_id", *message_ids)
        yield from self.field("retain_graph", a.retain_graph, b.retain_graph)
        yield from self.field("grads", len(a.grads), len(b.grads))
        for i, pair in enumerate(zip(a.grads, b.grads, strict=False)):
            self.matching.tensor_pairs.setdefault(pair, f"grads[{i}]")

    def cleanup(
        self, a: commands.CleanupAutogradContextReq, b: commands.CleanupAutogradContextReq
    ) -> Iterator[Difference]:
        if not self.ids.packed(CONTEXT, a.context_id, b.context_id):
            yield other_id("field", "context_id", a.context_id, b.context_id)

    def rref_backward(self, a: commands.RRefBackwardReq, b: commands.RRefBackwardReq) -> Iterator[Difference]:
        if not self.ids.unique(RREF, a.rref_id, b.rref_id):
            yield other_id("field", "rref_id", a.rref_id, b.rref_id)
        if not self.ids.packed(CONTEXT, a.autograd_context_id, b.autograd_context_id):
            yield other_id("field", "context_id", a.autograd_context_id, b.autograd_context_id)
        yield from self.field("retain_graph", a.retain_graph, b.retain_graph)

    def unread(self, a: commands.UnknownCommand, b: commands.UnknownCommand) -> Iterator[Difference]:
        yield from self.field("body.type", type_name(a.message_type), type_name(b.message_type))
        if a.payload != b.payload:
            yield Difference(
                code="unknown", path="body.payload", text="it can't be decoded; its bytes differ"
            )

    # Values.

    def pickles(
        self, data_a: bytes, data_b: bytes, compare: Callable[[Value, Value], Iterator[Difference]]
    ) -> Iterator[Difference]:
        facts_a, facts_b = self.a.facts, self.b.facts
        if data_a == data_b and not facts_a.forks:
            return
        a, b = facts_a.pickle, facts_b.pickle
        if a is None or b is None or a.error is not None or b.error is not None:
            if data_a != data_b:
                yield Difference(code="unknown", path="body.pickle", text=_NOT_DECODED)
            return
        yield from compare(a.root, b.root)

    def udf(self, a: Value, b: Value) -> Iterator[Difference]:
        call_a, call_b = python_udf(a), python_udf(b)
        if call_a is None or call_b is None:
            yield from self.values(a, b, "args[0]", "argument")
            return
        self.matching.joined_names = self.a.facts.control and bool(self.rules.renames)
        if (self.a.facts.function or "").startswith("torch.distributed."):
            self.matching.contexts = None
        yield from self.values(call_a.func, call_b.func, "function", "function")
        yield from self.arguments(call_a.args, call_b.args)
        if type(call_a.kwargs) is Dict is type(call_b.kwargs) or call_a.kwargs != call_b.kwargs:
            yield from self.values(call_a.kwargs, call_b.kwargs, "kwargs", "argument")

    def arguments(self, a: Value, b: Value) -> Iterator[Difference]:
        """One difference for each argument."""
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
            found = compare_tensors(self.tensors_a, i, self.tensors_b, j, path, self.rules)
            one, other = metas_a[i].storage, metas_b[j].storage
            known = storages_a.setdefault(one, other) == other and storages_b.setdefault(other, one) == one
            if not known and None not in (one, other):
                text = "in one of the two, it shares its storage with another tensor"
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
        for one, other in zip(a, b, strict=True):
            extent, partner = one.extent, other.extent
            if extent is None or partner is None or extent.missing or partner.missing:
                return False
            if one.device != other.device or not extent.length == partner.length <= WHOLE_BYTES:
                return False
            if one.read(extent) != other.read(partner):
                return False
        return True

    def damaged(self) -> bool:
        return any(problem.layer in _TABLE_LAYERS for problem in (*self.a.problems, *self.b.problems))


def _tensor_text(metas: Sequence[Any], index: int) -> str:
    meta = metas[index]
    return f"{meta.dtype}[{','.join(map(str, meta.sizes))}]"


_NOT_DECODED = "it can't be decoded; its bytes differ"
_TABLE_LAYERS = frozenset({"tensor", "pickle"})

_BODIES: dict[type, Callable[[_Comparison, Any, Any], Iterator[Difference]]] = {
    commands.PythonCall: _Comparison.python_call,
    commands.PythonRemoteCall: _Comparison.python_remote_call,
    commands.ScriptCall: _Comparison.script_call,
    commands.ScriptRemoteCall: _Comparison.script_remote_call,
    commands.PythonResp: _Comparison.python_result,
    commands.PythonRRefFetchRet: _Comparison.python_result,
    commands.ScriptResp: _Comparison.script_result,
    commands.ScriptRRefFetchRet: _Comparison.script_fetched,
    commands.ScriptRRefFetchCall: _Comparison.fetch,
    commands.PythonRRefFetchCall: _Comparison.fetch,
    commands.RemoteRet: _Comparison.fork,
    commands.RRefUserDelete: _Comparison.fork,
    commands.RRefForkRequest: _Comparison.fork,
    commands.RRefChildAccept: _Comparison.child,
    commands.PropagateGradientsReq: _Comparison.gradients,
    commands.CleanupAutogradContextReq: _Comparison.cleanup,
    commands.RRefBackwardReq: _Comparison.rref_backward,
    commands.UnknownCommand: _Comparison.unread,
}
"""How the bodies of each command are compared; acknowledgements have none."""
