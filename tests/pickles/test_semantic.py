"""What nodes mean: vectors of the wire, and things that only look alike."""

from __future__ import annotations

import pytest

from rpcinspect.pickles import semantic
from rpcinspect.pickles.jit import read_jit
from rpcinspect.pickles.python import read_python_pickle
from rpcinspect.pickles.semantic import RRefForkData
from rpcinspect.pickles.tree import Dict, Global, PickleCall, Value, children

from . import vectors

RECEIVER = PickleCall(
    Global("builtins", "getattr"),
    (Global("torch.distributed.rpc.internal", "_InternalRPCPickler"), "_tensor_receiver"),
)


def test_a_python_call() -> None:
    udf = semantic.python_udf(read_python_pickle(vectors.CALL).root)
    assert udf is not None
    assert udf.func == Global("__mp_main__", "fwd")
    rref, tensor = udf.args
    assert semantic.rref_fork(rref) == RRefForkData(1, (0, 0), (0, 2), 0, "PyObject")
    assert semantic.tensor_index(tensor) == 0
    assert type(udf.kwargs) is Dict


def test_a_remote_exception() -> None:
    failure = semantic.remote_exception(read_python_pickle(vectors.FAILURE).root)
    assert failure == ("On WorkerInfo(id=1, name=worker", Global("builtins", "ValueError"))


def test_jit_tensors_rrefs_and_tags() -> None:
    assert semantic.tensor_index(read_jit(vectors.BACKWARD)[0]) == 0
    rref = read_jit(vectors.SCRIPT_RREF)[0]
    assert semantic.rref_fork(rref) == RRefForkData(0, (0, 0), (1, 0), 1, "Tensor")
    assert semantic.untag(read_jit(vectors.SCRIPT_CALL)[3]) == [1, 2]
    assert semantic.untag(read_jit(vectors.PROFILING)[1]) == [1, False, False]
    assert semantic.untag(5) == 5
    deep = PickleCall(Global("torch.jit._pickle", "restore_type_tag"), ([1], "List[" * 99 + "int" + "]" * 99))
    assert semantic.untag(deep) is deep  # torch's parser would not come back from it


def test_device_maps() -> None:
    assert semantic.device_map(read_jit(vectors.FORWARD_AUTOGRAD)[4]) == {"cpu": "cpu"}
    # PyTorch 1.8 wrote indices of CUDA devices, tagged Dict[int, int]
    assert semantic.device_map(Dict([(0, 1)])) == {"cuda:0": "cuda:1"}
    assert semantic.device_map(Dict([(0, "cpu")])) is None
    assert semantic.device_map([("cpu", "cpu")]) is None


def test_devices() -> None:
    assert semantic.device(PickleCall(Global("torch", "device"), ("cuda:1",))) == "cuda:1"
    assert semantic.device(PickleCall(Global("torch", "device"), ("cuda", 1))) == "cuda:1"
    assert semantic.device(PickleCall(Global("torch", "device"), (1,))) is None


def test_worker_info() -> None:
    cls = Global("torch._C._distributed_rpc", "WorkerInfo")
    node = PickleCall(cls, (), how="newobj", has_state=True, state=("worker1", 1))
    assert semantic.worker_info(node) == ("worker1", 1)
    assert semantic.worker_info(PickleCall(cls, (), how="newobj")) is None


def test_a_script_module() -> None:
    receiver = PickleCall(RECEIVER.function, (RECEIVER.args[0], "_script_module_receiver"))
    assert semantic.script_module(PickleCall(receiver, (b"PK\x03\x04",))) == b"PK\x03\x04"
    assert semantic.script_module(PickleCall(receiver, ("PK",))) is None


def test_numbers_that_can_not_be_shown() -> None:
    """Python makes no text of an integer of more than 4,300 digits."""
    worker = Global("torch._C._distributed_rpc", "WorkerInfo")
    for number in (1 << 63, -(1 << 100_000)):
        assert semantic.worker_info(PickleCall(worker, (), has_state=True, state=("w", number))) is None
        assert semantic.device(PickleCall(Global("torch", "device"), ("cuda", number))) is None
        assert semantic.device_map(Dict([(number, 0)])) is None


@pytest.mark.parametrize(
    "node",
    [
        None,
        0,
        (0,),
        Global("torch.jit._pickle", "build_tensor_from_id"),
        PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), ()),
        PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), (True,)),
        PickleCall(Global("torch.jit._pickle", "build_tensor_from_id"), 5),
        PickleCall(RECEIVER, ("0",)),
        PickleCall(RECEIVER, (-1,)),
        PickleCall(RECEIVER, (1 << 31,)),
        PickleCall(RECEIVER, (-(1 << 100_000),)),
        PickleCall(PickleCall(RECEIVER.function, (RECEIVER.args[0], [])), (0,)),
        PickleCall(PickleCall(RECEIVER.function, (Global("os", "path"), "_tensor_receiver")), (0,)),
        PickleCall(PickleCall(PickleCall(None, ()), ()), (0,)),
    ],
)
def test_look_alikes(node: object) -> None:
    assert semantic.tensor_index(node) is None
    assert semantic.rref_fork(node) is None
    assert semantic.python_udf(node) is None
    assert semantic.remote_exception(node) is None
    assert semantic.worker_info(node) is None
    assert semantic.script_module(node) is None
    assert semantic.device(node) is None


# --- RemoteModules ------------------------------------------------------------------------------------------

REMOTE_MODULE = Global("torch.distributed.nn.api.remote_module", "_remote_module_receiver")
RREF = (1, 0, 4, 0, 5, 0, "PyObject")


def test_the_rref_in_a_pickled_remote_module() -> None:
    node = PickleCall(REMOTE_MODULE, ("w1", "cpu", False, False, [], RREF))
    found = semantic.remote_module(node)
    assert found is not None
    assert found.attributes == ("w1", "cpu", False, False, [])
    assert found.rref == semantic.brought_fork(node) == RRefForkData(1, (0, 4), (0, 5), 0, "PyObject")
    assert semantic.rref_fork(node) is None
    assert RREF not in list(semantic.beside_fork(node))
    assert list(semantic.beside_fork(node))[:2] == ["w1", "cpu"]


@pytest.mark.parametrize(
    "node",
    [
        PickleCall(REMOTE_MODULE, ()),
        PickleCall(REMOTE_MODULE, ("w1", RREF[:-1])),
        PickleCall(REMOTE_MODULE, ("w1", (1 << 63, *RREF[1:]))),
        PickleCall(REMOTE_MODULE, [RREF]),
        PickleCall(Global("torch.distributed.nn.api.remote_module", "_create_module"), (RREF,)),
        RREF,
    ],
)
def test_what_is_no_remote_module(node: Value) -> None:
    assert semantic.remote_module(node) is None
    assert semantic.brought_fork(node) is None
    assert list(semantic.beside_fork(node)) == list(children(node))
