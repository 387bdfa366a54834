"""What messages say, as numbers: equal for equal content, whatever the ids."""

from __future__ import annotations

from rpcinspect.diff.content import Contents, as_multiset, function_label
from rpcinspect.rpc.command import PythonRRefFetchCall, ScriptCall, UnknownCommand
from rpcinspect.rpc.types import GloballyUniqueId
from tests.diff.stories import answer, call
from tests.replay.talks import record_of
from tests.session.records import pipe, tp_message, tp_tensor


def contents(label=lambda rref: None) -> Contents:  # type: ignore[no-untyped-def]
    return Contents(lambda extent: bytes(extent.length), label)


def of(command, found: Contents | None = None) -> int:  # type: ignore[no-untyped-def]
    record = record_of(command)
    record.tp = tp_message(pipe(), [b""])
    return (found or contents()).of(record)


def test_arguments_functions_and_kinds_tell_apart() -> None:
    told = [of(call("app.f", 1)), of(call("app.f", 2)), of(call("app.g", 1)), of(answer(1))]
    assert len(set(told)) == 4
    assert of(call("app.f", 1)) == told[0]


def test_the_main_module_has_one_name() -> None:
    assert of(call("__main__.f", 1)) == of(call("__main__.f", 1))
    assert function_label("__mp_main__.f") == function_label("__main__.f") == "__main__.f"
    assert function_label("aten::add.Tensor") == "aten::add.Tensor"
    assert function_label(None) is None


def test_operators() -> None:
    def operator(value: int) -> ScriptCall:
        return ScriptCall(args=(value,), schema="aten::x(int a) -> int", qualified_name="torch.ops.aten.x")

    assert of(operator(1)) == of(operator(1)) != of(operator(2))


def test_an_rref_is_what_it_was_made_by() -> None:
    fetch = PythonRRefFetchCall(0, GloballyUniqueId(0, 3)), PythonRRefFetchCall(0, GloballyUniqueId(0, 8))
    same = contents(lambda rref: "made by x")
    assert of(fetch[0], same) == of(fetch[1], same)
    other = contents(lambda rref: f"made by {rref}")
    assert of(fetch[0], other) != of(fetch[1], other)


def test_unknown_bytes_count() -> None:
    assert of(UnknownCommand(5, b"x")) != of(UnknownCommand(5, b"y"))


def test_tensors_count_and_holes_are_like_nothing_else() -> None:
    told = []
    for tensors in ([tp_tensor(4)], [tp_tensor(8)], [tp_tensor(4, missing=2)], []):
        record = record_of(call("app.f", 1))
        record.tp = tp_message(pipe(), [b""], tensors=tensors)
        told.append(contents().of(record))
    assert len(set(told)) == 4


def test_a_multiset_has_no_order() -> None:
    assert as_multiset(["x", "y", "x"]) == as_multiset(["y", "x", "x"]) != as_multiset(["x", "y"])
