"""What pickles say beyond their values."""

from __future__ import annotations

import pickle
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcinspect.limits import Limits
from rpcinspect.pickles.semantic import RRefForkData
from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.rpc.command import (
    PythonCall,
    PythonResp,
    RRefAck,
    ScriptCall,
    ScriptResp,
    ScriptRRefFetchRet,
    UnknownCommand,
)
from rpcinspect.rpc.pickle_facts import NO_FACTS, FactsReader, rref_forks
from tests.thorough import examples

UDF = b"ctorch.distributed.rpc.internal\nPythonUDF\n"
ERROR = b"ctorch.distributed.rpc.internal\nRemoteException\n"
FORK = RRefForkData(1, (0, 5), (2, 7), 0, "Tensor")
JIT_FORK = PickleCall(Global("torch.distributed.rpc", "rref"), (1, 0, 5, 2, 7, 0, "Tensor"))


def text(value: str) -> bytes:
    """BINUNICODE."""
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + len(data).to_bytes(4, "little") + data


def udf(function: bytes, args: bytes = b")", kwargs: bytes = b"}") -> PythonCall:
    """PythonUDF(function, args, kwargs), a named tuple."""
    return PythonCall(b"\x80\x02" + UDF + function + args + kwargs + b"\x87\x81.", False)


def fork(*numbers: int) -> bytes:
    """What _InternalRPCPickler writes for an RRef."""
    head = b"cbuiltins\ngetattr\nctorch.distributed.rpc.internal\n_InternalRPCPickler\n"
    ints = b"".join(b"L%dL\n" % number for number in numbers)
    return head + text("_py_rref_receiver") + b"\x86R((" + ints + text("Tensor") + b"ttR"


def error(message: str) -> PythonResp:
    return PythonResp(b"\x80\x02" + ERROR + text(message) + b"cbuiltins\nValueError\n\x86\x81.")


def test_a_function_of_the_user() -> None:
    facts = FactsReader().read(udf(b"cmy.module\nf.g\n"))
    assert (facts.function, facts.control, facts.failed, facts.forks) == ("my.module.f.g", False, False, ())
    assert facts.pickle is not None
    assert facts.pickle.error is None


def test_commands_without_pickles() -> None:
    for command in (RRefAck(), UnknownCommand(1, b"x"), ScriptResp(1)):
        assert FactsReader().read(command) is NO_FACTS


def test_equal_pickles_are_read_once() -> None:
    reader = FactsReader()
    assert reader.read(udf(b"ca\nb\n")) is reader.read(udf(b"ca\nb\n"))


# --- RRefs ---


def test_the_fork_in_a_remote_module() -> None:
    """A request that carries one may name nothing else by which RRefs are known."""
    ints = b"".join(b"L%dL\n" % number for number in (1, 0, 5, 2, 7, 0))
    module = b"ctorch.distributed.nn.api.remote_module\n_remote_module_receiver\n("
    node = module + text("w1") + text("cpu") + b"\x89\x89](" + ints + text("PyObject") + b"ttR"
    facts = FactsReader().read(udf(b"ca\nb\n", b"(" + node + b"t"))
    assert facts.forks == (RRefForkData(1, (0, 5), (2, 7), 0, "PyObject"),)


def test_forks_in_python_pickles() -> None:
    args = b"(" + fork(1, 0, 5, 2, 7, 0) + fork(1, 0, 5, 2, 8, 0) + fork(1, 0, 5, 2, 7, 0) + b"t"
    forks = FactsReader().read(udf(b"ca\nb\n", args)).forks
    assert set(forks) == {FORK, FORK._replace(fork_id=(2, 8))}


def test_forks_in_script_values() -> None:
    values = (1, [JIT_FORK, JIT_FORK], (JIT_FORK,))
    call = ScriptCall(args=values, schema=None, qualified_name="__torch__.f")
    for command in (call, ScriptResp(values), ScriptRRefFetchRet(values)):
        assert FactsReader().read(command).forks == (FORK,)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**900])
@pytest.mark.parametrize("place", range(6))
def test_absurd_ids_are_no_fork(number: int, place: int) -> None:
    numbers = [1, 0, 5, 2, 7, 0]
    numbers[place] = number
    assert FactsReader().read(udf(b"ca\nb\n", b"(" + fork(*numbers) + b"t")).forks == ()
    assert rref_forks(PickleCall(JIT_FORK.function, (*numbers, "Tensor"))) == ()


def test_the_walk_of_shared_and_deep_values_is_linear() -> None:
    value: object = JIT_FORK
    for _ in range(50_000):
        value = [value]
    wide = [JIT_FORK]
    for _ in range(60):
        wide = [wide, wide]  # type: ignore[list-item]
    start = time.process_time()
    assert rref_forks((value, wide)) == (FORK,)  # type: ignore[arg-type]
    assert time.process_time() - start < 3


# --- remote errors ---


def test_a_remote_error_names_its_worker() -> None:
    facts = FactsReader().read(error("On WorkerInfo(id=3, name=trainer:3):\nValueError('no')\n"))
    assert (facts.failed, facts.responder) == (True, (3, "trainer:3"))


@pytest.mark.parametrize(
    "message",
    [
        "",
        "no such text",
        "On WorkerInfo(id=, name=a):",
        "On WorkerInfo(id=²³, name=a):",
        "On WorkerInfo(id=" + "9" * 5000 + ", name=a):",
        "On WorkerInfo(id=-1, name=a):",
        " On WorkerInfo(id=1, name=a):",
    ],
)
def test_errors_that_name_nobody(message: str) -> None:
    facts = FactsReader().read(error(message))
    assert (facts.failed, facts.responder) == (True, None)


# --- the agents' own calls ---

GATHER = b"ctorch.distributed.rpc.api\n_gather_to_leader\n"
BROADCAST = b"ctorch.distributed.rpc.api\n_broadcast_to_followers\n"


def test_gathering_tells_both_ends() -> None:
    args = b"(K\1" + text("w2") + b"N(" + text("w2") + text("w0") + text("w1") + b"\x91t"
    call = PythonCall(b"\x80\x04" + UDF + GATHER + args + b"}\x87\x81.", False)
    facts = FactsReader().read(call)
    assert (facts.control, facts.sender, facts.receiver) == (True, "w2", "w0")


def test_spreading_tells_the_leader() -> None:
    args = b"(K\1}(" + text("w1") + b"N" + text("w0") + b"Nut"
    facts = FactsReader().read(udf(BROADCAST, args))
    assert (facts.control, facts.sender, facts.receiver) == (True, "w0", None)


@pytest.mark.parametrize(
    "args", [b")", b"N", b"(K\1t", b"(K\1K\2NNt", b"(K\1" + text("w") + b"N(t" + b"t", b"(K\1Nt"]
)
def test_calls_that_only_look_like_the_agents(args: bytes) -> None:
    for function in (GATHER, BROADCAST):
        facts = FactsReader().read(udf(function, args))
        assert facts.control
        assert facts.receiver is None


# --- hostile pickles ---


@given(st.binary(max_size=80))
@settings(max_examples=examples(150), deadline=None)
def test_any_bytes_have_facts(data: bytes) -> None:
    FactsReader().read(PythonCall(data, False))
    FactsReader().read(PythonResp(b"\x80\x04" + data))


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_damaged_pickles_have_facts(pick: st.DataObject) -> None:
    whole = udf(b"ca\nb\n", b"(" + fork(1, 0, 5, 2, 7, 0) + b"t").serialized_py_obj
    data = bytearray(
        whole if pick.draw(st.booleans()) else error("On WorkerInfo(id=3, name=w):").serialized_py_obj
    )
    for _ in range(pick.draw(st.integers(1, 3))):
        data[pick.draw(st.integers(0, len(data) - 1))] = pick.draw(st.integers(0, 255))
    FactsReader().read(PythonResp(bytes(data)))


def test_what_stopped_the_reading_is_kept() -> None:
    facts = FactsReader(Limits(pickle_opcodes=5)).read(PythonCall(pickle.dumps(list(range(100))), False))
    assert facts.pickle is not None
    assert facts.pickle.error is not None


def test_an_unsafe_pickle_is_told() -> None:
    facts = FactsReader().read(PythonResp(b"cposix\nsystem\n(S'true'\ntR."))
    assert any("system" in error.name for error in facts.audit.errors)
