"""What each type's own pickling writes passes, at every protocol; forged arguments and states do not.

The honest side is CPython, numpy and torch themselves: real objects, pickled.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import decimal
import fractions
import functools
import http
import ipaddress
import logging
import pathlib
import pickle
import types
import uuid
from typing import Any

import pytest

from rpcinspect.pickles.judge import Judge
from rpcinspect.pickles.python import read_python_pickle_partial
from rpcinspect.pickles.shapes import RULES
from rpcinspect.pickles.tree import Global
from rpcinspect.pickles.verdicts import NameRuling


class Nobody:
    """A policy that allows nothing."""

    keeps_getattr = False

    def standing(self, name: Global) -> NameRuling:
        return NameRuling(False, reason="nobody")

    def method(self, owner: Global, name: str) -> NameRuling:
        return NameRuling(False, reason="nobody")


def refused(data: bytes) -> dict[str, str]:
    judge = Judge(Nobody())
    judge.python(read_python_pickle_partial(data))
    return {one.name: one.reason for one in judge.found.values() if not one.allowed}


PLAIN: list[Any] = [
    object(),
    1j,
    bytearray(b"\x00\xff"),
    b"",
    {1, "a"},
    frozenset([(1, 2)]),
    slice(1, None, 2),
    range(3),
    [NotImplemented, ..., type(None), type(NotImplemented), type(...)],
    [int, dict, ValueError],
    collections.OrderedDict(a=1),
    collections.defaultdict(list, {1: [2]}),
    collections.defaultdict(None, {1: [2]}),
    collections.deque([1, 2], 3),
    collections.Counter("aab"),
    collections.ChainMap({"a": 1}),
    collections.UserDict(a=1),
    collections.UserList([1]),
    collections.UserString("x"),
    datetime.date(2020, 2, 29),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.timezone.utc),
    datetime.time(1, 2, 3, fold=1),
    datetime.timedelta(-1, 5),
    datetime.timezone(datetime.timedelta(hours=1), "x"),
    decimal.Decimal("1E+400"),
    fractions.Fraction(-1, 3),
    functools.partial(int, "1", base=2),
    ipaddress.ip_address("1.2.3.4"),
    logging.getLogger("train"),
    ipaddress.ip_network("::/64"),
    pathlib.PurePosixPath("/a/b"),
    types.SimpleNamespace(a=[1]),
    argparse.Namespace(lr=0.1),
    uuid.UUID(int=5),
    uuid.UUID(int=3, is_safe=uuid.SafeUUID.safe),
    http.HTTPStatus.OK,
    KeyError("x"),
    OSError(2, "x", "f"),
    ImportError("x", name="y"),
    UnicodeDecodeError("utf8", b"x", 0, 1, "r"),
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_data(value: Any) -> None:
    for protocol in range(2, 6):  # older ones make objects by `_reconstructor`, which rpc never wrote
        assert refused(pickle.dumps(value, protocol)) == {}


def test_an_attribute_of_an_ordered_dict() -> None:
    """As of a state_dict."""
    state = collections.OrderedDict(weight=1)
    state._metadata = collections.OrderedDict()  # type: ignore[attr-defined]
    assert refused(pickle.dumps(state, 4)) == {}


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    for value in (torch.device("cuda", 1), torch.float32, torch.Size([2, 3])):
        for protocol in range(2, 6):
            assert refused(pickle.dumps(value, protocol)) == {}


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def call(module: str, name: str, args: bytes, rest: bytes = b"", opcode: bytes = b"R") -> bytes:
    """A call with these arguments, then state or items."""
    return b"\x80\x04c" + f"{module}\n{name}\n".encode() + args + opcode + rest + b"."


SPECIAL = b"}" + text("__class__") + b"Nsb"
OUTSIDE = b"(" + text("utf8") + b"C\x01xJ\x00\x00\x00\x80K\x01" + text("r") + b"t"
MEMBER = b"}" + text("start") + b"J\xff\xff\xff\xffsb"
DUCK = b"ctypes\nSimpleNamespace\n)R"

FORGED: dict[str, bytes] = {
    "bytes of a size": call("builtins", "bytes", b"J\xff\xff\xff\x7f\x85"),
    "bytes by a codec": call("builtins", "bytes", text("x") + text("mine") + b"\x86"),
    "bytearray by a codec": call("builtins", "bytearray", text("x") + text("mine") + b"\x86"),
    "str by a codec": call("builtins", "str", b"C\x01x" + text("mine") + b"\x86"),
    "encode by a codec": call("_codecs", "encode", text("x") + text("mine") + b"\x86"),
    "a list of what has items of its own": call("builtins", "list", DUCK + b"\x85"),
    "a dict of what has keys of its own": call("builtins", "dict", DUCK + b"\x85"),
    "an OrderedDict of it": call("collections", "OrderedDict", DUCK + b"\x85"),
    "a new type": call("builtins", "type", text("T") + b")}\x87"),
    "the type of something": call("builtins", "type", DUCK + b"\x85"),
    "a fraction with an exponent": call("fractions", "Fraction", text("1e999999999") + b"\x85"),
    "a month of 13": call("datetime", "date", b"C\x04\x07\xe4\x0d\x01\x85"),
    "an hour of 99": call("datetime", "time", b"C\x06\x63\x00\x00\x00\x00\x00\x85"),
    "partial of nothing called": call("functools", "partial", b"cbuiltins\nint\n\x85"),
    "partial with other state": call("functools", "partial", b"cbuiltins\nint\n\x85", b"}b"),
    "a namespace with special names": call(
        "types", "SimpleNamespace", b")", b"}" + text("__class__") + b"Nsb"
    ),
    "an OrderedDict with special names": call(
        "collections", "OrderedDict", b")", b"}" + text("__reduce_ex__") + b"Nsb"
    ),
    "an exception with special names": call(
        "builtins", "ValueError", b")", b"}" + text("__class__") + b"Nsb"
    ),
    "items of a namespace": call("types", "SimpleNamespace", b")", b"(Ne"),
    "pairs of a deque": call("collections", "deque", b")", b"(NNu"),
    "a date that is made anew": call("datetime", "date", b"C\x04\x07\xe4\x01\x01\x85", opcode=b"\x81"),
    "WorkerInfo without state": call("torch._C._distributed_rpc", "WorkerInfo", b")", opcode=b"\x81"),
    "WorkerInfo of other things": call(
        "torch._C._distributed_rpc", "WorkerInfo", b")", b"K\x01K\x02\x86b", opcode=b"\x81"
    ),
    "a Parameter of a duck": call(
        "torch._utils", "_rebuild_parameter", DUCK + b"\x88ccollections\nOrderedDict\n)R\x87"
    ),
    "an error at a place outside of its text": call("builtins", "UnicodeDecodeError", OUTSIDE),
    "a member of an error": call("builtins", "UnicodeError", b")", MEMBER),
    "a text that is not decoded": call("json.decoder", "JSONDecodeError", DUCK + DUCK + b"K\x00\x87"),
    "a layout that is no text": call("torch.serialization", "_get_layout", DUCK + b"\x85"),
    "a device that is no text": call("torch", "device", DUCK + b"\x85"),
    "a size of a duck": call("torch", "Size", DUCK + b"\x85"),
    "a call of a rebuild's own": call(
        "torch._tensor", "_rebuild_from_type_v2", b"(cbuiltins\nint\ncbuiltins\nint\n)Nt"
    ),
    "a base that is none": call("copyreg", "_reconstructor", b"cmine\nC\ncmine\nB\nN\x87"),
    "arguments that only loading shows": b"\x80\x04cbuiltins\nset\ncbuiltins\nlist\n)RR.",
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_calls(name: str) -> None:
    found = refused(FORGED[name])
    assert found, FORGED[name]
    module, function, *_ = FORGED[name][3:].decode("latin-1").split("\n")
    whole = f"{module}.{function}"
    assert whole in found or f"{whole}(…)" in found


def test_each_rule_is_tried() -> None:
    """Every name that has a rule is in an honest pickle of ours or in a capture's vectors, but for these."""
    untried = {
        str(name)
        for name in RULES
        if name.module.startswith(("torch", "numpy", "socket", "signal", "pathlib", "uuid"))
    }
    tried = {str(name) for value in PLAIN for p in range(6) for name in read(pickle.dumps(value, p))}
    exceptions = {str(name) for name in RULES if RULES[name] is RULES[Global("builtins", "KeyError")]}
    assert {str(name) for name in RULES} - tried - untried - exceptions <= {
        "copyreg._reconstructor",
        "builtins.BaseExceptionGroup",
        "builtins.ExceptionGroup",
        "builtins.UnicodeEncodeError",
        "builtins.list",
        "builtins.tuple",
        "ipaddress.IPv4Network",
        "ipaddress.IPv6Address",
    }


def read(data: bytes) -> tuple[Global, ...]:
    return read_python_pickle_partial(data).globals
