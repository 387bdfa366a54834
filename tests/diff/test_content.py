"""What messages say, as numbers: equal for equal content, whatever the ids."""

from __future__ import annotations

from rpcinspect.diff.side import Content, ContentReader, function_label
from rpcinspect.rpc.command import PythonRRefFetchCall, ScriptCall, UnknownCommand
from rpcinspect.rpc.types import GloballyUniqueId
from tests.diff.stories import answer, call
from tests.replayer.talks import record_of
from tests.session.records import pipe, tp_message, tp_tensor


def contents() -> ContentReader:
    return ContentReader(lambda extent: bytes(extent.length))


def of(command, found: ContentReader | None = None) -> Content:  # type: ignore[no-untyped-def]
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


def test_rrefs_are_told_beside_what_is_said() -> None:
    fetch = PythonRRefFetchCall(0, GloballyUniqueId(0, 3)), PythonRRefFetchCall(0, GloballyUniqueId(0, 8))
    one, other = map(of, fetch)
    assert one[:2] == other[:2]
    assert (one.rrefs, other.rrefs) == (((0, 3),), ((0, 8),))


def test_arguments_without_their_function() -> None:
    told = []
    for command in (call("app.f", 1), call("app.g", 1), call("app.f", 2)):
        told.append(contents().arguments(record_of(command)))
    assert told[0] == told[1] != told[2]


def test_unknown_bytes_count() -> None:
    assert of(UnknownCommand(5, b"x")) != of(UnknownCommand(5, b"y"))


def test_tensors_count_and_holes_are_like_nothing_else() -> None:
    told = []
    for tensors in ([tp_tensor(4)], [tp_tensor(8)], [tp_tensor(4, missing=2)], []):
        record = record_of(call("app.f", 1))
        record.tp = tp_message(pipe(), [b""], tensors=tensors)
        told.append(contents().of(record))
    assert len(set(told)) == 4
