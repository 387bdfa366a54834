"""Not one of the D workloads: everywhere in a message stands something that nobody else should read.

Every secret holds the mark `Zq7SECRET`, in letters, in codes of letters, or as a number that is in the truth;
names have it where Python lets them. What `decode --redact` writes of the capture must hold none of it.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
import time
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.autograd import profiler_legacy
from torch.autograd.profiler import record_function

import common

WORLD = 2
RECORD_CALLS = False
NAMES = ("Zq7SECRET-trainer", "Zq7SECRET-server")
MARK = "Zq7SECRET"
CODES = list(b"Zq7SECRET codes of letters")
NUMBER = int.from_bytes(b"Zq7SECRETnumber!", "little")
SMALL_NUMBER = 1_234_567_891
FLOAT = struct.unpack("<d", b"Zq7SECR?")[0]
SCALE = 0.0123456789012345


class Zq7SECRETError(Exception):
    pass


class Zq7SECRETThing:
    def __init__(self, value: Any) -> None:
        self.Zq7SECRET_attribute = value


@torch.jit.script
class Zq7SECRETClass:
    def __init__(self, value: int) -> None:
        self.Zq7SECRET_field = value


@torch.jit.script
def Zq7SECRET_script(x: torch.Tensor, words: dict[str, int]) -> torch.Tensor:
    return x + float(words["Zq7SECRET key"])


@torch.jit.script
def Zq7SECRET_broken_script(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("Zq7SECRET text of a script")


@torch.jit.script
def Zq7SECRET_make(value: int) -> Zq7SECRETClass:
    return Zq7SECRETClass(value)


def Zq7SECRET_echo(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def Zq7SECRET_grow(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def Zq7SECRET_raise(text: str) -> None:
    raise Zq7SECRETError(text)


def Zq7SECRET_ranges(x: torch.Tensor) -> torch.Tensor:
    with record_function("Zq7SECRET range"):
        return x + 1


def Zq7SECRET_nested(to: str) -> None:
    rpc.rpc_sync(to, Zq7SECRET_raise, args=("Zq7SECRET, nested",))


def size_of(rref: Any) -> str:
    return type(rref).__name__


def run(rank: int) -> None:
    with common.worker(rank, WORLD, name=NAMES[rank]):
        if rank == 0:
            drive(NAMES[1])


def drive(to: str) -> None:
    call = Zq7SECRET_echo
    rpc.rpc_sync(to, call, args=("Zq7SECRET word", "Zq7SECRET with\nlines and ünicode ключ 秘密"))
    rpc.rpc_sync(to, call, args=({"Zq7SECRET key": {"Zq7SECRET inner": ["Zq7SECRET item"]}},))
    rpc.rpc_sync(to, call, kwargs={"Zq7SECRET_keyword": ("Zq7SECRET", {"Zq7SECRET member"}, frozenset([MARK]))})
    rpc.rpc_sync(to, call, args=(b"Zq7SECRET bytes", bytearray(b"Zq7SECRET array"), MARK.encode("utf-16")))
    rpc.rpc_sync(to, call, args=(pickle.dumps({"Zq7SECRET key": Zq7SECRETThing(MARK)}), pickle.dumps(MARK, 0)))
    rpc.rpc_sync(to, call, args=(NUMBER, SMALL_NUMBER, -NUMBER, FLOAT, complex(FLOAT, FLOAT)))
    rpc.rpc_sync(to, call, args=(Zq7SECRETThing(OrderedDict([(MARK, 1)])), Zq7SECRETError(MARK)))
    rpc.rpc_sync(to, call, args=(np.array(CODES), np.array(CODES, dtype=np.float32), np.array([MARK])))
    rpc.rpc_sync(to, call, args=(sys.stdout.__class__, io.BytesIO, "torch.Zq7SECRET", "cpu Zq7SECRET"))
    for dtype in (torch.uint8, torch.int16, torch.int64, torch.float32, torch.float64, torch.bfloat16):
        rpc.rpc_sync(to, call, args=(torch.tensor(CODES, dtype=dtype),))
    rpc.rpc_sync(to, call, args=(torch.tensor([[0, 1], [0, 0]], dtype=torch.bool),))
    whole = torch.tensor(CODES * 2, dtype=torch.float32)
    rpc.rpc_sync(to, call, args=(whole[:4], whole[::2], torch.nn.Parameter(whole)))
    indices = torch.tensor([sorted(set(CODES))])
    sparse = torch.sparse_coo_tensor(indices, torch.ones(indices.shape[1]), (200,)).coalesce()
    rpc.rpc_sync(to, call, args=(sparse, torch.quantize_per_tensor(whole / 200, SCALE, 3, torch.qint8)))
    attempt(to, Zq7SECRET_raise, "Zq7SECRET text of an error")
    attempt(to, Zq7SECRET_nested, to)
    attempt(to, Zq7SECRET_broken_script, torch.ones(2))
    attempt(to, torch.add, torch.ones(2), torch.ones(3))
    rpc.rpc_sync(to, Zq7SECRET_script, args=(torch.ones(2), {"Zq7SECRET key": 77777}))
    made = rpc.remote(to, Zq7SECRET_make, args=(SMALL_NUMBER,))
    rpc.rpc_sync(to, size_of, args=(made,))
    held = rpc.remote(to, call, args=("Zq7SECRET held",))
    held.to_here()
    with profiler_legacy.profile():
        rpc.rpc_sync(to, Zq7SECRET_ranges, args=(torch.ones(2),))
    with dist_autograd.context() as context_id:
        x = torch.tensor([float(code) for code in CODES], requires_grad=True)
        y = rpc.rpc_sync(to, Zq7SECRET_grow, args=(x,))
        dist_autograd.backward(context_id, [(y * y).sum()])
    del made, held
    time.sleep(0.2)
    common.truth("secrets", mark=MARK, codes=CODES, numbers=[NUMBER, SMALL_NUMBER], floats=[FLOAT, SCALE])


def attempt(to: str, function: Any, *args: Any) -> None:
    try:
        rpc.rpc_sync(to, function, args=args)
    except Exception as error:
        common.truth("failed", error=common.error_of(error))


if __name__ == "__main__":
    common.launch(WORLD, names=NAMES)
