"""D04: every kind of tensor that can travel, there and back; one fails on the way back, one is never sent."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import torch
import torch.distributed.rpc as rpc

import common

WORLD = 2

BYTE_SIZED = [
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "bits8",
]


def echo(name: str, x: torch.Tensor) -> tuple[str, torch.Tensor]:
    return name, x


def echo_many(name: str, xs: list[torch.Tensor]) -> list[torch.Tensor]:
    return xs


def as_bits(kind: str, words: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of exactly these bit patterns."""
    return torch.frombuffer(bytearray(struct.pack(f"<{len(words)}{kind}", *words)), dtype=dtype).clone()


def numbers() -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    for name, low in [("int8", -128), ("int16", -300), ("int32", -70000), ("int64", -(2**40))]:
        yield name, lambda name=name, low=low: torch.tensor([low, -1, 0, 1, 100], dtype=getattr(torch, name))
    for name, high in [("uint8", 255), ("uint16", 65535), ("uint32", 2**32 - 1), ("uint64", 2**64 - 1)]:
        yield name, lambda name=name, high=high: torch.tensor([0, 1, high], dtype=getattr(torch, name))
    for name in ("float16", "bfloat16", "float32", "float64"):
        yield name, lambda name=name: torch.tensor([[1.5, -2.25], [0.1, 300.0]], dtype=getattr(torch, name))
    for name in ("complex32", "complex64", "complex128"):
        yield name, lambda name=name: torch.tensor([1 + 2j, -3.5 - 4j]).to(getattr(torch, name))
    yield "bool", lambda: torch.tensor([True, False, True])
    for name in BYTE_SIZED:
        if hasattr(torch, name):
            yield (
                name,
                lambda name=name: torch.tensor([0, 1, 0x38, 0x80, 0xFE], dtype=torch.uint8).view(
                    getattr(torch, name)
                ),
            )
    yield "bits16", lambda: torch.tensor([0, -1, 12345], dtype=torch.int16).view(torch.bits16)


def special_bits() -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    floats = [0x80000000, 0x00000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FC00123, 0xFFC0BEEF, 0x00000001]
    yield "specials float32", lambda: as_bits("I", floats, torch.float32)
    yield (
        "specials float64",
        lambda: as_bits("Q", [1 << 63, 0x7FF8000000000123, 0xFFF0000000000000, 1], torch.float64),
    )
    yield "specials bfloat16", lambda: as_bits("H", [0x8000, 0x7FC1, 0xFF80, 0x0001], torch.bfloat16)
    yield (
        "specials complex64",
        lambda: as_bits("I", [0x80000000, 0x7FC00001, 0x7F800000, 0x80000000], torch.complex64),
    )


def forms() -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    yield "scalar", lambda: torch.tensor(42.0)
    yield "empty", lambda: torch.empty(0)
    yield "zero sized", lambda: torch.empty(2, 0, 3)
    yield "conj", lambda: torch.tensor([1 + 2j, 3 - 4j]).conj()
    yield "neg", lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    yield "channels last", lambda: torch.randn(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    yield "requires grad", lambda: torch.tensor([1.0, 2.0], requires_grad=True)
    yield "parameter", lambda: torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    yield "quint8", lambda: torch.quantize_per_tensor(torch.tensor([-1.0, 0.0, 1.0]), 0.1, 10, torch.quint8)
    yield "qint8", lambda: torch.quantize_per_tensor(torch.tensor([-1.0, 0.0, 1.0]), 0.05, 0, torch.qint8)
    yield "qint32", lambda: torch.quantize_per_tensor(torch.tensor([-1.0, 0.0, 1.0]), 0.001, 5, torch.qint32)
    scales, zeros = torch.tensor([0.1, 0.25], dtype=torch.float64), torch.tensor([3, -4])
    yield (
        "qint8 per channel",
        lambda: torch.quantize_per_channel(torch.ones(2, 3), scales, zeros, 0, torch.qint8),
    )


def sparse() -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    twice = torch.tensor([[0, 1, 1], [2, 0, 0]])
    yield "coo", lambda: torch.sparse_coo_tensor(twice, torch.tensor([3.0, 4.0, 5.0]), (2, 3))
    yield (
        "coo coalesced",
        lambda: torch.sparse_coo_tensor(twice, torch.tensor([3.0, 4.0, 5.0]), (2, 3)).coalesce(),
    )
    yield "coo hybrid", lambda: torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 2), (3, 2))
    yield "csr", lambda: torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse_csr()
    yield "meta", lambda: torch.empty(3, device="meta")


def run(rank: int) -> None:
    with common.worker(rank, WORLD):
        if rank == 0:
            drive()


def drive() -> None:
    cases = answered = 0
    for group in (numbers, special_bits, forms, sparse):
        for name, build in group():
            cases += 1
            try:
                rpc.rpc_sync("worker1", echo, args=(name, build()))
            except Exception as error:
                common.truth("case", name=name, answered=False, error=common.error_of(error))
            else:
                answered += 1
                common.truth("case", name=name, answered=True)
    rpc.rpc_sync(
        "worker1",
        echo_many,
        args=("mixed", [torch.ones(2, dtype=torch.int16), torch.ones(3, dtype=torch.float64)]),
    )
    # the meta tensor is never sent; the CSR one arrives, but the answer with it fails
    common.expect(WORLD, PYTHON_CALL=cases, PYTHON_RET=answered + 1, EXCEPTION=1)


if __name__ == "__main__":
    common.launch(WORLD)
