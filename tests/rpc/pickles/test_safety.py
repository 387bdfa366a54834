"""What the audit tells: the known ways to run code from a pickle; of honest traffic it tells nothing."""

from __future__ import annotations

import collections
import datetime
import decimal
import os
import pathlib
import pickle
import subprocess
import uuid
from typing import Any

import pytest

from rpcinspect.rpc.pickles.python import read_python_pickle, read_python_pickle_partial
from rpcinspect.rpc.pickles.safety import Suspicion, audit, is_plain
from rpcinspect.rpc.pickles.tree import Global

from . import vectors


class Evil:
    """Pickles as a call of anything."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


class Mine:
    pass


def told(data: bytes) -> list[tuple[str, str]]:
    return [(s.severity, s.name) for s in audit(read_python_pickle_partial(data))]


def udf(func: Any, *args: Any) -> bytes:
    """A PythonUDF without torch."""
    head = b"\x80\x04\x8c\x1etorch.distributed.rpc.internal\x8c\tPythonUDF\x93"
    parts = b"".join(pickle.dumps(part, 3)[2:-1] for part in (func, args, {}))
    return head + parts + b"\x87\x81."


@pytest.mark.parametrize("name", vectors.PYTHON)
def test_honest_messages(name: str) -> None:
    assert told(vectors.PYTHON[name]) == []


def test_the_function_of_the_call_itself_is_never_told() -> None:
    assert told(udf(os.system, "id")) == []
    assert told(udf(Mine)) == []


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc),
        decimal.Decimal(1),
        uuid.UUID(int=1),
        pathlib.PurePosixPath("/a"),
        collections.OrderedDict(a={1, 2}),
        collections.deque([1]),
        collections.defaultdict(list),
        ValueError("x"),
        [1j, b"x", bytearray(b"y"), frozenset([1]), range(3), slice(1)],
    ],
    ids=lambda v: type(v).__name__,
)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_plain_data(value: Any, protocol: int) -> None:
    assert told(pickle.dumps(value, protocol)) == []


def test_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    for protocol in range(6):
        assert told(pickle.dumps([numpy.arange(3), numpy.float32(1), numpy.dtype("i4")], protocol)) == []


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (pickle.dumps(Evil(os.system, "id"), 4), f"{os.system.__module__}.system"),
        (pickle.dumps(Evil(os.system, "id"), 0), f"{os.system.__module__}.system"),
        (pickle.dumps(Evil(subprocess.check_output, "id"), 4), "subprocess.check_output"),
        (pickle.dumps(Evil(eval, "1"), 4), "builtins.eval"),
        (pickle.dumps(Evil(eval, "1"), 2), "__builtin__.eval"),
        (pickle.dumps(Evil(open, "/etc/passwd"), 4), "io.open"),
        (pickle.dumps(Evil(pickle.loads, b"N."), 4), "_pickle.loads"),
        (pickle.dumps(Evil(getattr, Mine, "x"), 4), "builtins.getattr"),
        (b"(ios\nsystem\n.", "os.system"),
        (b"(cos\nsystem\nVid\no.", "os.system"),
        (b"cos\nsystem\n.", "os.system"),
        (b"cmine\nf\n)R.", "mine.f"),
        (b"\x80\x04\x8c\x04mine\x8c\x11f.__globals__.get\x93.", "mine.f.__globals__.get"),
        (b"\x80\x04\x8c\x04mine\x8c\x09os.system\x93.", "mine.os.system"),
        (b"ctorch\nload\n.", "torch.load"),
        (b"ctorch.storage\n_load_from_bytes\nC\x00\x85R.", "torch.storage._load_from_bytes"),
        (b"csys\npath\n(Vevil\ne.", "sys.path"),
        (b"cmine\nconfig\n}(Va\nVb\nub.", "mine.config"),
        (b"Vos\ncmine\nf\n)R\x93.", "STACK_GLOBAL"),
        (b"\x80\x02\x82\x05.", "copyreg extension 5"),
        (b"\x82\x05)R.", "a Extension"),
        (b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00NM\x01\x01.", "FRAME"),
        (b"cfunctools\npartial\ncmine\nf\n\x85R)R.", "functools.partial(…)"),
        (b"ctorch._tensor\n_rebuild_from_type_v2\n(cmine\nf\nNNNtR.", "torch._tensor._rebuild_from_type_v2"),
        (b"ccopyreg\n_reconstructor\n(cmine\nC\ncmine\nB\nNtR.", "copyreg._reconstructor"),
        (b"c_codecs\nencode\n(Vx\nVmine\ntR.", "_codecs.encode"),
        (b"ctypes\nSimpleNamespace\n}(Vappend\ncmine\nf\nu\x85R(Vx\ne.", "types.SimpleNamespace"),
        (b"cmine\nC\n)\x81}(V__setstate__\ncmine\nf\nub}b.", "mine.C(…)"),
    ],
)
def test_errors(data: bytes, name: str) -> None:
    errors = [told_name for severity, told_name in told(data) if severity == "error"]
    assert name in errors


def test_script_modules_are_loaders() -> None:
    data = vectors.CALL.replace(b"\x8c\x10_tensor_receiver", b"\x8c\x17_script_module_receiver")
    data = data[:2] + data[11:]  # without the frame, whose length is wrong now
    assert told(data) == [
        ("error", "torch.distributed.rpc.internal._InternalRPCPickler._script_module_receiver")
    ]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (pickle.dumps(Mine(), 4), f"{__name__}.Mine"),
        (pickle.dumps(Mine, 4), f"{__name__}.Mine"),
        (b"cmine\nCls.method\n.", "mine.Cls.method"),
    ],
)
def test_warnings(data: bytes, name: str) -> None:
    assert told(data) == [("warning", name)]


def test_a_function_as_argument_is_a_warning_also_beside_itself_as_the_call() -> None:
    assert told(udf(Mine, test_warnings)) == [("warning", f"{__name__}.test_warnings")]


def test_the_function_of_the_call_is_told_when_loading_calls_it() -> None:
    assert ("error", f"{os.system.__module__}.system") in told(udf(os.system, Evil(os.system, "id")))


def test_bound_methods() -> None:
    assert told(udf(Mine().__init__)) != []  # a dunder
    assert told(udf(collections.OrderedDict().keys)) == []
    assert told(pickle.dumps(collections.OrderedDict().keys, 4)) == [
        ("warning", "collections.OrderedDict(…).keys")
    ]


def test_a_fault_does_not_hide_what_stands_before_it() -> None:
    data = b"cos\nsystem\n(Vid\ntR\xff"
    assert ("error", "os.system") in told(data)


def test_each_thing_is_told_once_and_errors_first() -> None:
    data = b"(cmine\nf\ncmine\nf\ncos\nsystem\ncos\nsystem\nt."
    assert audit(read_python_pickle(data)) == [
        Suspicion("error", "os.system", "a process, file, code, import or loader function"),
        Suspicion("warning", "mine.f", "neither plain data nor one of torch's own"),
    ]


def test_plain_names_are_exact() -> None:
    assert is_plain(Global("builtins", "set"))
    assert is_plain(Global("torch", "float32"))
    assert not is_plain(Global("builtins", "set.__class__"))
    assert not is_plain(Global("Builtins", "set"))
    assert not is_plain(Global("torch", "load"))


SGD = b"ctorch.distributed.optim.functional_sgd\n_FunctionalSGD\n"


@pytest.mark.parametrize(
    ("data", "severity"),
    [
        (b"\x80\x02" + SGD + b".", None),
        (b"\x80\x02" + SGD + b")\x81.", "warning"),
        (b"\x80\x02" + SGD + b")R.", "error"),
        (b"\x80\x02ctorch.optim.sgd\nSGD\n.", None),
        (b"\x80\x02capp.optim\nSGD\n.", "warning"),
    ],
    ids=["named", "an object of it", "called", "an eager one", "the user's"],
)
def test_optimizers_may_be_named_but_not_made(data: bytes, severity: str | None) -> None:
    """DistributedOptimizer names the class that the owner is to make."""
    assert [found for found, _ in told(data)] == ([] if severity is None else [severity])
