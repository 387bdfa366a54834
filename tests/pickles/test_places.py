"""Where tensors and RRefs are in a value: the path leads to them in what Python's own pickle makes."""

from __future__ import annotations

import collections
import pickle
from typing import Any, NamedTuple

import pytest

from rpcinspect.pickles.places import ValuePath, rref_places, tensor_places
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Set


class Point(NamedTuple):
    x: object
    y: object


class Holder:
    def __init__(self, inner: object) -> None:
        self.inner = inner


TENSOR = Global("torch.jit._pickle", "build_tensor_from_id")


def tensor(index: int) -> PickleCall:
    return PickleCall(TENSOR, (index,))


def rref(local: int) -> PickleCall:
    return PickleCall(Global("torch.distributed.rpc", "rref"), (1, 0, local, 0, 9, 0, "Tensor"))


def follow(value: Any, place: ValuePath) -> Any:
    for step in place:
        value = getattr(value, str(step.key)) if step.attribute else value[step.key]
    return value


@pytest.mark.parametrize(
    "value",
    [
        "{}",
        ("a", "{}"),
        ["a", ["{}", "b"]],
        {"k": {1: ("{}",)}},
        Point("a", "{}"),
        Holder({"deep": ["{}"]}),
        collections.OrderedDict(k=["{}"]),
    ],
    ids=["itself", "tuple", "list", "dict", "namedtuple", "object", "OrderedDict"],
)
def test_the_path_leads_there(value: Any) -> None:
    """The string stands for the tensor, since Python's own pickle knows no tensors of rpc."""
    tree = read_python_pickle(pickle.dumps(value, 4)).root
    places = tensor_places(_with_tensor(tree))
    assert list(places) == [5]
    assert follow(value, places[5]) == "{}"


def _with_tensor(node: Any) -> Any:
    """The tree with tensor 5 in the place of the string."""
    if node == "{}":
        return tensor(5)
    if isinstance(node, (tuple, list)):
        return type(node)(_with_tensor(child) for child in node)
    if type(node) is Dict:
        return Dict([(key, _with_tensor(child)) for key, child in node.pairs])
    if type(node) is PickleCall:
        made = PickleCall(node.function, _with_tensor(node.args), how=node.how)
        made.has_state, made.state = node.has_state, _with_tensor(node.state)
        made.pairs = [(key, _with_tensor(child)) for key, child in node.pairs]
        return made
    return node


def test_the_first_place_counts_and_sets_have_none() -> None:
    shared = tensor(0)
    assert tensor_places([shared, shared, Set([tensor(1)])]) == {0: ((False, 0),)}
    assert rref_places((rref(3), [rref(4)])) == {(0, 3): ((False, 0),), (0, 4): ((False, 1), (False, 0))}


def test_the_data_of_a_parameter_and_tagged_lists() -> None:
    parameter = PickleCall(Global("torch._utils", "_rebuild_parameter"), (tensor(2), True, None))
    tagged = PickleCall(Global("torch.jit._pickle", "restore_type_tag"), ([tensor(7)], "List[Tensor]"))
    assert tensor_places((parameter, tagged)) == {2: ((False, 0),), 7: ((False, 1), (False, 0))}


def test_a_value_that_contains_itself_ends() -> None:
    loop: list[Any] = [tensor(0)]
    loop.append(loop)
    assert tensor_places(loop) == {0: ((False, 0),)}
