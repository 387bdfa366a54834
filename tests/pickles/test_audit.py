"""What the audit tells: the known ways to run code from a pickle; of honest traffic it tells nothing."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import operator
import os
import pathlib
import pickle
import subprocess
import textwrap
import uuid
from typing import Any

import pytest

from rpcinspect.pickles.audit import OUT, Audit, audit
from rpcinspect.pickles.python import read_python_pickle, read_python_pickle_partial
from rpcinspect.pickles.verdicts import Named

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
    """What is said, and of which name: errors, a dangerous call, names."""
    found = audit(read_python_pickle_partial(data))
    call = [] if found.dangerous_call is None else [("call", found.dangerous_call.name)]
    return [("error", one.name) for one in found.errors] + call + [("name", name) for name in found.names]


def udf(func: Any, *args: Any) -> bytes:
    """A PythonUDF without torch."""
    head = b"\x80\x04\x8c\x1etorch.distributed.rpc.internal\x8c\tPythonUDF\x93"
    parts = b"".join(pickle.dumps(part, 3)[2:-1] for part in (func, args, {}))
    return head + parts + b"\x87\x81."


@pytest.mark.parametrize("name", vectors.PYTHON)
def test_honest_messages(name: str) -> None:
    assert told(vectors.PYTHON[name]) == []


def test_the_function_of_the_call_is_told_only_if_it_is_dangerous() -> None:
    assert told(udf(os.system, "id")) == [("call", f"{os.system.__module__}.system")]
    assert told(udf(exec, "1")) == [("call", "builtins.exec")]
    assert told(udf(pickle.loads, b"N.")) == [("call", "_pickle.loads")]
    assert told(udf(Mine)) == []
    assert told(udf(operator.add, 1, 2)) == []


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
        (pickle.dumps(Evil(textwrap.dedent, "x"), 4), "textwrap.dedent"),
        (pickle.dumps(Evil(eval, "1"), 4), "builtins.eval"),
        (pickle.dumps(Evil(eval, "1"), 2), "builtins.eval"),
        (pickle.dumps(Evil(open, "/etc/passwd"), 4), f"{open.__module__}.open"),
        (pickle.dumps(Evil(pickle.loads, b"N."), 4), "_pickle.loads"),
        (pickle.dumps([getattr], 4), "builtins.getattr"),
        (pickle.dumps(Evil(getattr, Mine().__init__, "x"), 4), "builtins.getattr"),
        (b"(ios\nsystem\n.", "os.system"),
        (b"(cos\nsystem\nVid\no.", "os.system"),
        (b"cos\nsystem\n.", "os.system"),
        (b"\x80\x04\x8c\x04mine\x8c\x11f.__globals__.get\x93.", "mine.f.__globals__.get"),
        (b"\x80\x04\x8c\x04mine\x8c\x09os.system\x93.", "mine.os.system"),
        (b"ctorch\nload\n.", "torch.load"),
        (b"ctorch.storage\n_load_from_bytes\nC\x00\x85R.", "torch.storage._load_from_bytes"),
        (b"csys\npath\n(Vevil\ne.", "sys.path"),
        (b"cmine\nconfig\n}(Va\nVb\nub.", "mine.config"),
        (b"Vos\ncmine\nf\n)R\x93.", "STACK_GLOBAL"),
        (b"\x80\x02\x82\x05.", "copyreg extension 5"),
        (b"\x82\x05)R.", "a Extension"),
        (b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00NM\x01\x01.", "a pickle that can't be read"),
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
    assert told(data) == [("error", "torch.jit.load")]


class Colour(enum.Enum):
    RED = 1


class Private:
    def _hidden(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Mine(), "Mine"),
        (Mine, "Mine"),
        (Colour.RED, "Colour"),
        (Private()._hidden, "Private"),
        (test_numpy, "test_numpy"),
    ],
    ids=["an object", "a class", "an enum", "a bound private method", "a function"],
)
def test_the_users_own_code_is_named_and_no_error(value: object, name: str) -> None:
    """`pickle.dumps` writes it; what loading imports is the user's own module."""
    for protocol in (2, 4, 5):
        kinds = dict.fromkeys(kind for kind, _ in told(udf(Mine, value)))
        assert list(kinds) == ["name"]
        names = [told_name for _, told_name in told(pickle.dumps(value, protocol))]
        assert f"{__name__}.{name}" in names


def test_operators_of_arithmetic_are_plain() -> None:
    assert told(pickle.dumps([operator.add, operator.getitem, operator.mul], 4)) == []
    assert told(pickle.dumps(operator.attrgetter("x"), 4)) == [
        ("error", "operator.attrgetter"),
    ]


def test_the_function_of_the_call_is_told_when_loading_calls_it() -> None:
    system = f"{os.system.__module__}.system"
    assert told(udf(os.system, Evil(os.system, "id"))) == [("error", system), ("call", system)]


def test_bound_methods() -> None:
    assert told(udf(collections.OrderedDict().keys)) == [("name", "collections.OrderedDict.keys")]
    path = pathlib.PurePosixPath
    assert told(udf(path("/a").with_suffix)) == [("error", f"{path.__module__}.PurePosixPath.with_suffix")]
    dunder = told(udf(Mine().__init__))
    assert dunder == [("error", f"{__name__}.Mine.__init__"), ("name", f"{__name__}.Mine")]


def test_names_of_python_2_mean_what_is_loaded() -> None:
    """Also where PROTO comes late, or twice."""
    names = b"ccommands\ngetoutput\n"
    assert told(names + b".") == [("error", "subprocess.getoutput")]
    assert told(b"\x80\x04\x80\x02" + names + b".") == [("error", "subprocess.getoutput")]
    assert told(names + b"0\x80\x04N.") == [("error", "subprocess.getoutput")]
    both = [("error", "commands.getoutput"), ("error", "subprocess.getoutput")]
    assert told(b"\x80\x04" + names + b"0\x80\x02" + names + b".") == both
    assert told(b"\x80\x03" + names + b".") == [("error", "commands.getoutput")]


def test_a_fault_does_not_hide_what_stands_before_it() -> None:
    data = b"cos\nsystem\n(Vid\ntR\xff"
    assert ("error", "os.system") in told(data)


def test_each_thing_is_told_once() -> None:
    data = b"(cmine\nf\ncmine\nf\ncos\nsystem\ncos\nsystem\nt."
    found = audit(read_python_pickle(data))
    assert found == Audit((Named("os.system", False, OUT, dangerous=True),), None, ("mine.f",))


SGD = b"ctorch.distributed.optim.functional_sgd\n_FunctionalSGD\n"


@pytest.mark.parametrize("data", [SGD + b".", SGD + b")\x81.", b"ctorch.optim.sgd\nSGD\n."])
def test_torchs_own_classes_are_nothing_to_worry_about(data: bytes) -> None:
    assert told(b"\x80\x02" + data) == []


def test_rebuilders_that_cython_makes() -> None:
    """numpy.random.default_rng(0), as numpy 2 pickles its SeedSequence."""
    rebuilder = b"cnumpy.random.bit_generator\n__pyx_unpickle_SeedSequence\n"
    kind = b"cnumpy.random.bit_generator\nSeedSequence\n"
    found = told(b"\x80\x02" + rebuilder + kind + b"J\xfe)\x14\x0cN\x87R.")
    assert [what for what, _ in found if what != "name"] == []


def test_what_tells_of_a_process_only() -> None:
    assert told(udf(os.getenv, "CUDA_VISIBLE_DEVICES")) == []
