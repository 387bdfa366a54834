"""The channels of TensorPipe: how each lays tensors on its connections; which move bytes outside the network.

Mirrors `tensorpipe/channel/{basic,mpt,cuda_basic}/channel_impl.cc`.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

MPT = "mpt_uv"
"""Its one requested connection only tells the addresses of its lanes, which are connections of their own."""
MPT_LANES = 16
CUDA_CHUNK_BYTES = 1 << 20


class ChannelKind(Struct, frozen=True):
    """How a channel that a capture can show lays tensors on its connections."""

    lanes: int
    split: Callable[[int], list[tuple[int, int]]]
    """Bytes of a tensor → (lane, bytes) of each frame, in order."""


def split_basic(length: int) -> list[tuple[int, int]]:
    """Returns one frame, on the only lane."""
    return [(0, length)]


def _split_mpt(length: int) -> list[tuple[int, int]]:
    edges = [length * i // MPT_LANES for i in range(MPT_LANES + 1)]
    return [(i, edges[i + 1] - edges[i]) for i in range(MPT_LANES)]


def _split_cuda_basic(length: int) -> list[tuple[int, int]]:
    full, rest = divmod(length, CUDA_CHUNK_BYTES)
    return [(0, CUDA_CHUNK_BYTES)] * full + ([(0, rest)] if rest else [])


CHANNELS: dict[str, ChannelKind] = {
    "basic": ChannelKind(1, split_basic),
    MPT: ChannelKind(MPT_LANES, _split_mpt),
    "cuda_basic": ChannelKind(1, _split_cuda_basic),
}

INVISIBLE: dict[str, str] = {
    "cma": "tensor bytes are read from the other process's memory (cma, process_vm_readv)",
    "shm": "tensor bytes are moved through shared memory",
    "xth": "tensor bytes are copied between threads of one process (xth)",
    "mpt_shm": "tensor bytes are moved through shared memory (mpt_shm)",
    "cuda_ipc": "tensor bytes are copied between GPUs of one host (cuda_ipc)",
    "cuda_xth": "tensor bytes are copied inside one process (cuda_xth)",
    "cuda_gdr": "tensor bytes are moved by RDMA from GPU memory (cuda_gdr)",
    "mpt_ibv": "tensor bytes are moved by RDMA (mpt_ibv)",
}
