"""Values of every plain type, as CPython, numpy and torch pickle them: what a gate has to let through.

Nothing here is captured: the objects are made and pickled in this process, and never loaded again.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import functools
import io
import ipaddress
import operator
import pathlib
import pickle
import types
import uuid
import warnings
from collections.abc import Iterator
from typing import Any

PROTOCOLS = (2, 3, 4, 5)
"""torch writes 4, or 5 with Python 3.14; those before 2 are of Python 2."""


def standard() -> dict[str, Any]:
    """Of the standard library."""
    ordered = collections.OrderedDict(a=1, b=[2])
    default = collections.defaultdict(list, {"x": [1]})
    failure = ValueError("bad", 3)
    failure.detail = "more"  # type: ignore[attr-defined]
    cyclic: list[Any] = [1]
    cyclic.append(cyclic)
    return {
        "none": None,
        "numbers": [True, False, 0, -1, 255, 65536, 1 << 40, -(1 << 70), 1.5, float("inf"), 2 + 3j],
        "texts": ["", "x", "é", "\ud800", "a\nb", b"", b"raw\x00", bytearray(b"more")],
        "containers": [(), (1,), (1, 2, 3, 4), [], {}, {"a": {"b": (1,)}}, {1, 2}, set(), frozenset({3})],
        "cyclic": cyclic,
        "shared": [ordered, ordered],
        "range": [range(3), range(0, 10, 2), slice(1, None, 2), slice(None), ..., NotImplemented],
        "types": [int, str, list, dict, KeyError, type(None), object],
        "OrderedDict": ordered,
        "defaultdict": [default, collections.defaultdict(), collections.defaultdict(int)],
        "deque": [collections.deque([1, 2]), collections.deque([1, 2], maxlen=5), collections.deque()],
        "Counter": collections.Counter("abca"),
        "ChainMap": collections.ChainMap({"a": 1}, {"b": 2}),
        "UserDict": collections.UserDict(a=1),
        "UserList": collections.UserList([1, 2]),
        "UserString": collections.UserString("abc"),
        "dates": [
            datetime.date(2024, 1, 2),
            datetime.datetime(2024, 1, 2, 3, 4, 5, 6),
            datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc),
            datetime.time(1, 2, 3),
            datetime.time(1, 2, 3, fold=1),
            datetime.timedelta(days=1, seconds=2, microseconds=3),
            datetime.timezone(datetime.timedelta(hours=2), "here"),
        ],
        "Decimal": [decimal.Decimal("1.25"), decimal.Decimal("NaN"), decimal.Decimal("-0")],
        "Fraction": fractions.Fraction(3, 4),
        "addresses": [ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("::1")],
        "networks": [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8::/32")],
        "paths": [pathlib.PosixPath("/tmp/x"), pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("c:/x")],
        "SimpleNamespace": types.SimpleNamespace(rate=0.1, names=["a"], inner=types.SimpleNamespace(x=1)),
        "UUID": [uuid.UUID(int=5), uuid.UUID("12345678123456781234567812345678")],
        "partial of plain": functools.partial(int, base=2),
        "exceptions": [
            KeyError("x"),
            ValueError(),
            failure,
            OSError(2, "No such file", "x"),
            UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
            StopIteration(3),
            ImportError("no"),
        ],
    }


def arrays() -> dict[str, Any]:
    """Of numpy."""
    import numpy as np

    fields = np.dtype([("a", "<i4"), ("b", "<f8"), ("c", "u1")])
    return {
        "dtypes": [
            np.dtype(code)
            for code in ("f8", "<i2", ">i4", "?", "S5", "U3", "M8[ns]", "m8[s]", "c16", "O", "V4")
        ],
        "fields": [fields, np.dtype("f8", align=True), np.dtype(np.int64), np.dtype({"a": ("f4", 4)})],
        "arrays": [
            np.arange(6).astype(dtype).reshape(2, 3)
            for dtype in ("f4", "f8", "i1", "u2", "i8", "c8", "f2", "?")
        ],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(3, dtype=">i4"),
        "strided": np.arange(10)[::2],
        "empty": [np.zeros((0,)), np.zeros((3, 0)), np.array(5.0)],
        "texts": [np.array(["a", "bcd"]), np.array([b"x", b"yz"])],
        "times": np.array(["2024-01-02", "2024-01-03"], dtype="M8[D]"),
        "objects": np.array([1, "x", None, [2]], dtype=object),
        "structured": np.zeros(2, dtype=fields),
        "scalars": [
            np.float32(1.5),
            np.int64(3),
            np.bool_(True),
            np.complex64(1j),
            np.str_("x"),
            np.bytes_(b"y"),
        ],
        "time": [np.datetime64("2024-01-02"), np.timedelta64(5, "s")],
        "types": [np.dtype, np.float32, np.int64],
    }


def tensors() -> dict[str, Any]:
    """Of torch: what its rpc pickler is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layouts and dtypes that torch wants to be rid of
        return _tensors()


def _tensors() -> dict[str, Any]:
    import torch
    from torch._C._distributed_rpc import WorkerInfo
    from torch.distributed.rpc.internal import PythonUDF, RemoteException

    tagged = torch.nn.Parameter(torch.ones(2))
    tagged.tag = "x"  # type: ignore[attr-defined]
    return {
        "tensor": torch.ones(2, 3),
        "tensors": [torch.ones(2), {"x": torch.zeros(1, dtype=torch.int64)}],
        "grad": torch.ones(2, requires_grad=True),
        "sparse": torch.ones(2, 2).to_sparse(),
        "csr": torch.ones(2, 2).to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
        "complex": torch.ones(2, dtype=torch.complex64),
        "Parameter": torch.nn.Parameter(torch.ones(2)),
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "tagged": tagged,
        "Buffer": torch.nn.Buffer(torch.ones(2)) if hasattr(torch.nn, "Buffer") else None,
        "dtypes": [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.quint8],
        "layouts": [torch.strided, torch.sparse_coo, torch.sparse_csr],
        "schemes": [torch.per_tensor_affine, torch.per_channel_affine],
        "device": [torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")],
        "Size": torch.ones(2, 3).shape,
        "RemoteException": RemoteException("boom", KeyError),
        "PythonUDF": PythonUDF(len, (), {}).args,
        "WorkerInfo": WorkerInfo("w1", 1),
        "state": torch.nn.Linear(2, 3).state_dict(),
        "optimizer": torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1).state_dict(),
        "classes": [torch.optim.SGD, torch.optim.Adam, torch.nn.Parameter, torch.Tensor],
    }


def beyond() -> dict[str, Any]:
    """Honest, and refused: too seldom to be worth a rule that reads them."""
    import numpy as np
    import torch

    return {
        "a record with objects": np.dtype([("x", "O")]),
        "a record with arrays": np.dtype([("x", "<f8", (2,))]),
        "an array of such": np.zeros(2, np.dtype([("x", "<f8", (2,))])),
        "the type of arrays": np.ndarray,  # called with bytes, it makes objects of them
        "a dtype with metadata": np.dtype("f8", metadata={"x": 1}),
        "a masked array": np.ma.array([1, 2], mask=[0, 1]),
        "a record array": np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        "a memory format": torch.channels_last,  # by the first module that has imported torch
    }


def requests(job: Any) -> dict[str, Any]:
    """Calls of what a user's file defines, as PythonUDF has them; `job`: the module of `src`."""
    server, net = job.Server(), job.Net()
    args = (job.Color.RED, job.Pair(1, [2]), job.Record(1, "x"), job.Words([1]), job.Table(a=1))
    return {
        "function": (job.step, (1, "x"), {"gain": 2.0}),
        "objects": (job.twice, args, {}),
        "states": (job.step, (server, job.Plain(), job.Stateful(), net), {}),
        "decorated": (job.without_grad, (), {}),
        "alias of its own": (job.own_alias, (), {}),
        "bound method": (server.run, (1,), {}),
        "class method": (job.Server.make, (), {}),
        "static method": (job.Server.static, (1,), {}),
        "module": (net, (1,), {}),
        "object that can be called": (server, (1,), {}),
        "partial": (functools.partial(job.step, 1, x=2), (), {}),
        "class": (job.Plain, (), {}),
        "function as an argument": (job.step, (job.twice, functools.partial(job.twice, 1)), {}),
        "operator": (job.step, (operator.add, operator.getitem), {}),
    }


def request(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The pickle of a call, as torch writes it."""
    from torch.distributed.rpc.internal import PythonUDF

    return by_torch(PythonUDF(function, args, kwargs))


def pickles() -> Iterator[tuple[str, bytes]]:
    """Name → a pickle of it, by each that writes pickles, at each protocol that it writes."""
    for group in (standard, arrays):
        for name, value in group().items():
            for protocol in PROTOCOLS:
                for who, dump in (("C", pickle.dumps), ("Python", _by_python)):
                    try:
                        data = dump(value, protocol)
                    except (TypeError, pickle.PicklingError, AssertionError):
                        continue  # not at this protocol; arrays trip an assertion of the Python one
                    yield f"{name} at {protocol}, by {who}", data
    for name, value in {**standard(), **arrays(), **tensors()}.items():
        yield f"{name}, by torch", by_torch(value)


def by_torch(value: Any) -> bytes:
    """As torch's rpc writes it; its tensors travel beside it."""
    from torch.distributed.rpc.internal import serialize

    return bytes(serialize(value)[0])


def _by_python(value: Any, protocol: int) -> bytes:
    out = io.BytesIO()
    pickle._Pickler(out, protocol).dump(value)  # type: ignore[attr-defined]
    return out.getvalue()
