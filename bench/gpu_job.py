"""Three workers whose tensors are on a GPU, for bench/gpu_check.sh: calls, nested and asynchronous ones,
remote objects, backward passes, device maps.

    gpu_job.py cuda|cpu PORT RANK MAPS

worker0 calls worker1, which calls worker2 and keeps its tensors where they are. worker0 has two maps to
compare: `cuda:0` to itself (or to cuda:1, where there are two GPUs), and, in a group of its own, `cpu` to
cuda:0, which is no identity on a machine with a single GPU. The module initialises CUDA when it is imported,
as users' modules do: a process that has done so can't be forked. All arithmetic is exact, so that a CPU gives
the same bits. Prints a line of JSON for each tensor that it sends or gets back: SHA-256 of the bytes, device.
"""

from __future__ import annotations

import hashlib
import json
import sys

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

SECONDS = 60
WORKERS = 3
ONE = torch.ones((), device="cuda" if torch.cuda.is_available() else "cpu")
"""On the GPU where there is one, from the import of this module on."""


def scale(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Runs on worker1, where its tensors are."""
    return x * weight + ONE.to(x.device)


def relayed(x: torch.Tensor) -> torch.Tensor:
    """Runs on worker1, which has worker2 compute."""
    return rpc.rpc_sync("worker2", torch.mul, args=(x, 2)) + ONE.to(x.device)


@rpc.functions.async_execution
def later(x: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Runs on worker1, whose thread does not wait for worker2."""
    return rpc.rpc_async("worker2", torch.add, args=(x, 3))


def added(kept: rpc.RRef[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Runs on worker1, which has kept a tensor."""
    return kept.local_value() + x


def big(count: int, device: str) -> torch.Tensor:
    """More than one chunk of cuda_basic, which are 1 MiB."""
    return torch.arange(count, dtype=torch.float32, device=device) % 251


def told(what: str, tensor: torch.Tensor) -> torch.Tensor:
    raw = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    line = {"what": what, "sha256": hashlib.sha256(raw).hexdigest(), "device": str(tensor.device)}
    print(json.dumps(line), flush=True)
    return tensor


def drive(here: str) -> None:
    """What worker0 does; `here`: where its tensors are."""
    x = told("x", torch.tensor([1.0, -2.0, 0.5], device=here)).requires_grad_()
    weight = told("weight", torch.tensor([4.0, 8.0, -16.0], device=here)).requires_grad_()
    with dist_autograd.context() as context_id:
        y = told("y", rpc.rpc_sync("worker1", scale, args=(x, weight)))
        z = told("z", rpc.rpc_sync("worker1", torch.mul, args=(y, y)))
        nested = told("nested", rpc.rpc_sync("worker1", relayed, args=(z,)))
        after = told("after", rpc.rpc_async("worker1", later, args=(nested,)).wait())
        kept = rpc.remote("worker1", scale, args=(x, weight))
        both = told("both", rpc.rpc_sync("worker1", added, args=(kept, after)))
        dist_autograd.backward(context_id, [both.sum()])
        gradients = dist_autograd.get_gradients(context_id)
        told("grad x", gradients[x])
        told("grad weight", gradients[weight])
    large = told("large", big(700_000, here))
    told("large back", rpc.rpc_sync("worker1", torch.add, args=(large, 1)))
    told("fetched", rpc.remote("worker1", relayed, args=(x.detach(),)).to_here())


def main() -> None:
    device, port, rank, maps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://127.0.0.1:{port}",
        rpc_timeout=SECONDS,
        _transports=["uv"],
        _channels=["cuda_basic", "basic"] if device == "cuda" else ["basic"],
    )
    if rank == 0:
        options.set_device_map("worker1", maps)
    elif rank == 1:
        options.set_device_map("worker2", {other: other for other in maps.values()})
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=WORKERS, rpc_backend_options=options)
    if rank == 0:
        drive(next(iter(maps)))
    rpc.shutdown()


if __name__ == "__main__":
    main()
