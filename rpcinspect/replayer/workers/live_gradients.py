"""The gradients that a live worker holds in an autograd context, and the names of their parameters.

In: a context. Out: what is shown of each leaf, as JSON and bytes. A parameter is called by the class of the
outermost module that is alive and has it, and by its name there: `Stage2.fc.weight`. Runs in live workers
only.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd

GRADIENT_BYTES = 1 << 26
"""Of the gradients that are shown at once; more are named without their bytes."""


def names_of_parameters() -> dict[int, str]:
    """Returns the names of parameters of all modules that are alive, by the ids of the parameters. Of several
    modules of one class the second is called `Stage2(2)`."""
    modules = list(_modules())
    inner = {id(child) for module in modules for child in module.modules() if child is not module}
    names: dict[int, str] = {}
    count: dict[str, int] = {}
    for module in modules:
        if id(module) in inner:
            continue
        kind = type(module).__name__
        count[kind] = count.get(kind, 0) + 1
        head = kind if count[kind] == 1 else f"{kind}({count[kind]})"
        for name, parameter in module.named_parameters():
            names.setdefault(id(parameter), f"{head}.{name}")
    return names


def _modules() -> Iterator[torch.nn.Module]:
    """Yields the modules that are alive and hold parameters, in the order in which Python knows them."""
    for thing in gc.get_objects():
        # Not `isinstance`: an object may do anything when it is asked for its class.
        if issubclass(type(thing), torch.nn.Module) and "_parameters" in vars(thing):
            yield thing


def show_gradients(context_id: int) -> tuple[dict[str, Any], bytes]:
    """What this worker's leaves have accumulated in a context: parameters of modules first, in the order of
    their modules, then others, largest shapes last; bytes in C order."""
    try:
        found = dist_autograd.get_gradients(context_id)
    except RuntimeError as error:
        return {"error": str(error).partition("\n")[0]}, b""
    names = names_of_parameters()
    shown, blobs, total = [], [], 0
    places = {leaf: place for place, leaf in enumerate(names)}
    last = len(places)
    for leaf, grad in sorted(
        found.items(), key=lambda item: (places.get(id(item[0]), last), tuple(item[0].shape))
    ):
        dense = (grad.to_dense() if grad.layout != torch.strided else grad).detach().resolve_conj()
        plain = dense.contiguous().resolve_neg().view(-1).view(torch.uint8).cpu()
        data = ctypes.string_at(plain.data_ptr(), plain.numel())  # without NumPy, which need not be there
        fits = total + len(data) <= GRADIENT_BYTES
        shown.append(
            {
                "dtype": str(grad.dtype).removeprefix("torch."),
                "shape": list(grad.shape),
                "layout": str(grad.layout).removeprefix("torch."),
                "parameter": isinstance(leaf, torch.nn.Parameter),
                "name": names.get(id(leaf)),
                "bytes": len(data) if fits else None,
            }
        )
        if fits:
            blobs.append(data)
            total += len(data)
    return {"gradients": shown}, b"".join(blobs)
