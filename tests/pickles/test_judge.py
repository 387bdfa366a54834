"""The walk: every name and value of a pickle is judged, whatever hides it, however large it is."""

from __future__ import annotations

import enum
import pickle

import pytest

from rpcinspect.pickles.judge import (
    MAX_DEPTH,
    Judge,
)
from rpcinspect.pickles.python import read_python_pickle_partial
from rpcinspect.pickles.tree import Global, Value, is_deeper
from rpcinspect.pickles.verdicts import NameRuling
from tests.pickles.policies import Mine


def refused(data: bytes) -> dict[str, str]:
    judge = Judge(Mine())
    judge.python(read_python_pickle_partial(b"\x80\x04" + data + b"."))
    return {one.name: one.reason for one in judge.found.values() if not one.allowed}


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


F, C, SYSTEM, SHELL = b"cmine\nf\n", b"cmine\nC\n", b"cos\nsystem\n", b"cmine\nShell\n"
GETATTR, HELPER = b"cbuiltins\ngetattr\n", b"ctorch.distributed.rpc.api\n_rref_typeof_on_owner\n"
SPACE, PARTIAL = b"ctypes\nSimpleNamespace\n)R", b"cfunctools\npartial\n"


def partial(function: bytes) -> bytes:
    return PARTIAL + function + b"\x85R(" + function + b")}Ntb"


def space(value: bytes) -> bytes:
    return SPACE + b"}" + text("x") + value + b"sb"


ALLOWED = {
    "a function as a value": F,
    "a class as a value": C,
    "an object with state": C + b")\x81}" + text("x") + b"K\x01sb",
    "an object made by a call": C + b"K\x01\x85R",
    "a function that makes something": F + b")R",
    "a method": GETATTR + C + b")\x81" + text("run") + b"\x86R",
    "partial of a function": partial(F),
    "attributes of a namespace": space(F),
    "items": b"](" + F + C + b"e",
    "a default": b"ccollections\ndefaultdict\n" + F + b"\x85R",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_the_users_own(name: str) -> None:
    assert refused(ALLOWED[name]) == {}


HIDDEN = {
    # a name where it is a value → what must be refused, whichever name it is
    "an item of a list": b"](%se",
    "an item of a tuple": b"(%st",
    "a value of a dict": b"}" + text("a") + b"%ss",
    "a key of a dict": b"}%sNs",
    "an item of a set": b"\x8f(%s\x90",
    "an attribute": SPACE + b"}" + text("x") + b"%ssb",
    "an attribute of the user's object": C + b")\x81}" + text("x") + b"%ssb",
    "a slot of the user's object": C + b")\x81N}" + text("x") + b"%ss\x86b",
    "an argument of the user's class": C + b"(%stR",
    "an argument of NEWOBJ": C + b"(%st\x81",
    "a keyword of NEWOBJ_EX": C + b")}" + text("x") + b"%ss\x92",
    "an item of the user's object": C + b")\x81(%se",
    "a pair of the user's object": C + b")\x81(N%su",
    "the function of partial": PARTIAL + b"%s\x85R(cmine\nf\n)}Ntb",
    "the function in partial's state": PARTIAL + b"cmine\nf\n\x85R(%s)}Ntb",
    "an argument of partial": PARTIAL + b"cmine\nf\n\x85R(cmine\nf\n(%st}Ntb",
    "a keyword of partial": PARTIAL + b"cmine\nf\n\x85R(cmine\nf\n)}" + text("k") + b"%ssNtb",
    "an attribute of partial": PARTIAL + b"cmine\nf\n\x85R(cmine\nf\n)}}" + text("k") + b"%sstb",
    "a default factory": b"ccollections\ndefaultdict\n%s\x85R",
    "an argument of an exception": b"cbuiltins\nValueError\n(%stR",
    "a state of an exception": b"cbuiltins\nValueError\n)R}" + text("x") + b"%ssb",
    "an object of an array": b"ccollections\ndeque\n)R(%se",
    "an argument of a call that was dropped": F + b"(%stR0N",
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize(
    ("value", "culprit"),
    [
        (SYSTEM, "os.system"),
        (GETATTR, "builtins.getattr"),
        (HELPER, "torch.distributed.rpc.api._rref_typeof_on_owner"),
        (b"ccopyreg\n_reconstructor\n", "copyreg._reconstructor"),
        (b"coperator\nmethodcaller\n", "operator.methodcaller"),
        (b"cbuiltins\nmap\n", "builtins.map"),
        (PARTIAL, "functools.partial"),
        (SHELL, "mine.Shell"),
    ],
    ids=["system", "getattr", "a helper", "_reconstructor", "methodcaller", "map", "partial", "Shell"],
)
def test_a_name_hidden_as_a_value(name: str, value: bytes, culprit: str) -> None:
    assert culprit in refused(HIDDEN[name].replace(b"%s", value))


LOADED = {
    "a helper": (HELPER + b"N\x85R", "torch.distributed.rpc.api._rref_typeof_on_owner"),
    "what a call returned": (F + b")R)R", "mine.f(…)"),
    "a partial": (partial(F) + b")R", "functools.partial(…)"),
    "an object's method": (GETATTR + C + b")\x81" + text("run") + b"\x86R)R", "builtins.getattr(…)"),
    "a state with special names": (C + b")\x81}" + text("__class__") + C + b"sb", "mine.C"),
    "a slot with a special name": (C + b")\x81N}" + text("__class__") + C + b"s\x86b", "mine.C"),
    "a change of a class": (C + b"}" + text("run") + F + b"sb", "mine.C"),
    "an object of a foreign base": (SHELL + b")\x81", "mine.Shell"),
    "a call of a foreign base": (SHELL + text("id") + b"\x85R", "mine.Shell"),
    "a method of an attribute": (GETATTR + partial(F) + text("func") + b"\x86R", "functools.partial.func"),
    "a chain": (GETATTR + GETATTR + C + text("run") + b"\x86R" + text("x") + b"\x86R", "builtins.getattr"),
    "another name of the pickler": (
        GETATTR + b"ctorch.distributed.rpc.internal\n_InternalRPCPickler\n" + text("serialize") + b"\x86R",
        "builtins.getattr",
    ),
    "arguments that are no tuple": (C + b"]R", "mine.C"),
    "a persistent id": (b"K\x01Q", "a PersistentRef"),
    "a buffer": (b"\x97", "a Buffer"),
    "an extension": (b"\x82\x05", "copyreg extension 5"),
    "a made-up name": (text("os") + F + b")R\x93", "STACK_GLOBAL"),
    "a receiver as a value": (
        GETATTR
        + b"ctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
        + text("_script_module_receiver")
        + b"\x86R",
        "builtins.getattr",
    ),
}


@pytest.mark.parametrize("name", LOADED)
def test_what_loading_may_not_do(name: str) -> None:
    data, culprit = LOADED[name]
    assert culprit in refused(data)


def test_a_key_whose_hash_takes_for_ever() -> None:
    """Each level holds the one below twice: 2**60 parts."""
    key = b")" + b"2\x86" * 60
    assert refused(b"}" + key + b"Ns") == {"a key of a dict or set": "of too many parts to be hashed"}
    assert refused(b"\x8f(" + key + b"\x90") == {"a key of a dict or set": "of too many parts to be hashed"}
    for made in (b"cbuiltins\ntuple\n", b"cbuiltins\nfrozenset\n"):
        levels = b"".join(made + b"](h%ch%ce\x85Rq%c0" % (level, level, level + 1) for level in range(60))
        data = b")q\x000" + levels + b"}h%cNs" % 60
        assert refused(data) == {"a key of a dict or set": "of too many parts to be hashed"}


def test_keys_that_take_long_to_hash_together() -> None:
    """One key of a thousand parts, in thousands of dicts."""
    key = b"(" + b"K\x01" * 1000 + b"tq\x00"
    dicts = b"](" + b"}h\x00Ns" * 9000 + b"e"
    assert refused(key + dicts) == {"the keys of dicts and sets": "of too many parts to be hashed"}
    assert refused(key + b"](" + b"}h\x00Ns" * 9 + b"e") == {}


@pytest.mark.parametrize(("index", "good"), [(0, True), (7, True), (-1, False)])
def test_a_tensor_is_asked_for_by_its_place(index: int, good: bool) -> None:
    """A negative one would be counted from the end, and names another tensor than the tree."""
    pickler = b"ctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
    receiver = GETATTR + pickler + text("_tensor_receiver") + b"\x86R"
    number = b"J" + index.to_bytes(4, "little", signed=True)
    assert (refused(receiver + number + b"\x85R") == {}) == good


def test_a_special_method_of_an_allowed_class() -> None:
    class WithSpecial(Mine):
        def method(self, owner: Global, name: str) -> NameRuling:
            return NameRuling(True, "function")

    judge = Judge(WithSpecial())
    got = GETATTR + C + text("__init__") + b"\x86" + b"R"
    judge.python(read_python_pickle_partial(b"\x80\x04" + got + b"."))
    assert [one.name for one in judge.found.values() if not one.allowed] == ["mine.C.__init__"]


def test_a_key_that_is_hashed_before_it_is_whole() -> None:
    info = b"ctorch._C._distributed_rpc\nWorkerInfo\n)\x81"
    whole = info + text("w") + b"K\x01\x86b"
    assert refused(whole) == {}
    assert "torch._C._distributed_rpc.WorkerInfo(…)" in refused(b"}" + whole + b"Ns")


GROWN = {
    # a list, a dict or an object that is changed after it was used: the tree shows only how it ends
    "objects of an array": (
        b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\n" + text("O8") + b"\x89\x88\x87R\x89]\x94tb0h\x00(NNe",
        "numpy._core.multiarray._reconstruct",
    ),
    "the type of an array": (
        b"cnumpy\ndtype\n" + text("U5") + b"\x89\x88\x87R\x940cnumpy._core.multiarray\nscalar\nh\x00"
        b"C\x14" + bytes(20) + b"\x86R0h\x00(K\x03" + text("<") + b"NNNK\x14K\x04K\x08tb",
        "numpy._core.multiarray.scalar",
    ),
    "a WorkerInfo": (
        b"ctorch._C._distributed_rpc\nWorkerInfo\n)\x81\x94cbuiltins\nValueError\nh\x00\x85R0"
        + text("w")
        + b"K\x01\x86b",
        "torch._C._distributed_rpc.WorkerInfo",
    ),
}


@pytest.mark.parametrize("name", GROWN)
def test_what_is_changed_after_it_was_used(name: str) -> None:
    data, culprit = GROWN[name]
    assert refused(data)[culprit] == "it is given what is changed afterwards"


def test_items_that_are_hashed() -> None:
    key = b")" + b"2\x86" * 60
    for maker in (b"cbuiltins\nset\n", b"cbuiltins\nfrozenset\n"):
        assert "a key of a dict or set" in refused(maker + b"](" + key + b"e\x85R")


def test_keys_that_nothing_refers_to() -> None:
    key = b")" + b"2\x86" * 60
    assert "a key of a dict or set" in refused(b"}" + key + b"Ns0N")
    assert "a key of a dict or set" in refused(b"(" + key + b"\x910N")


def test_nesting_that_nothing_refers_to() -> None:
    slices = b"cbuiltins\nslice\n(NN" * 6000 + b"NtR" + b"tR" * 5999
    assert "a value" in refused(slices + b"0N")
    assert "a value" in refused(b"}" + b")" + b"\x85" * 6000 + b"Ns0N")


def test_what_is_shared_by_many_is_not_looked_at_for_each() -> None:
    big = b"(" + b"N" * 20_000 + b"t\x940"
    assert "a value" in refused(big + b"cbuiltins\nValueError\n\x940" + b"h\x01h\x00R0" * 20_000 + b"N")
    assert refused(big + b"}" + b"h\x00Ns" * 20_000)["a key of a dict or set"].startswith("of too many parts")


def test_an_attribute_that_hides_a_method() -> None:
    made = C + b")\x81}" + text("run") + F + b"sb"
    assert refused(GETATTR + made + text("run") + b"\x86R") == {
        "mine.C.run": "an attribute in the state of its object hides it"
    }


def test_a_state_that_brings_special_names_unseen() -> None:
    """An OrderedDict is a dict to BUILD."""
    other = b"ccollections\nOrderedDict\n)R" + text("__class__") + C + b"s"
    assert "mine.C" in refused(C + b")\x81" + other + b"b")
    assert "mine.C" in refused(C + b")\x81N" + other + b"\x86b")
    assert "mine.C" in refused(C + b")\x81}K\x01Nsb")


def test_a_partial_is_of_the_function_that_it_is_made_of() -> None:
    other = PARTIAL + F + b"\x85R(cnumpy\nfloat64\n)}Ntb"
    assert list(refused(other)) == ["functools.partial"]


def test_what_a_function_returned_is_changed_only_by_names_that_are_allowed() -> None:
    assert refused(F + b")R}b") == {"mine.f.__setstate__": "what it returns would be changed"}
    assert refused(F + b")R(Ne") == {"mine.f.extend": "what it returns would be changed"}
    assert refused(F + b")RNNs") == {"mine.f.__setitem__": "what it returns would be changed"}


def test_a_value_of_the_file_is_not_called() -> None:
    assert refused(b"cmine\nvalue\n") == {}
    assert refused(b"cmine\nvalue\n)R") == {"mine.value": "not a function or class of the file"}


def test_the_type_of_a_remote_modules_rref() -> None:
    deep = "List[" * 100 + "int" + "]" * 100
    head = b"ctorch.distributed.nn.api.remote_module\n_remote_module_receiver\n("
    head += text("w/cpu") + text("cpu") + b"\x89\x89]"
    ids = b"(" + b"K\x00" * 6
    assert refused(head + ids + text("PyObject") + b"ttR") == {}
    receiver = "torch.distributed.nn.api.remote_module._remote_module_receiver"
    assert receiver in refused(head + ids + text(deep) + b"ttR")


def test_no_number_of_nodes_ends_the_walk() -> None:
    """A hundred thousand and more empty lists stand before the name; walk_limit.rpclog, which is replayed in
    tests/replayer/test_reported_attacks.py, has a million."""
    assert "os.system" in refused(b"](" + b"]" * 110_000 + SYSTEM + b"e")


def test_nesting() -> None:
    nested = b"]" * (MAX_DEPTH + 5) + b"a" * (MAX_DEPTH + 4)
    assert list(refused(nested)) == ["a value"]
    assert refused(b"]" * 900 + b"a" * 899) == {}


def test_levels_are_counted_by_the_longest_way_down() -> None:
    shared: Value = [[[[]]]]
    circle: list[Value] = []
    circle.append(circle)
    for value, levels in (([[], [[[]]]], 4), ([shared, [[shared]]], 7), (circle, 1)):
        assert is_deeper(value, levels - 1)
        assert not is_deeper(value, levels)


class Colour(enum.Enum):
    RED = 1


def test_a_known_object_may_come_twice() -> None:
    judge = Judge(Mine())
    judge.python(read_python_pickle_partial(pickle.dumps([Colour.RED, Colour.RED], 4)))
    assert [one.name for one in judge.found.values()] == [f"{__name__}.Colour"]
