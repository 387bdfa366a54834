"""What nodes of the inert tree mean to torch.distributed.rpc: tensors, RRefs, type tags, device maps, calls.

Every function takes any value, of both dialects, and answers None for what is something else.
"""

from __future__ import annotations

from typing import NamedTuple

from rpcinspect.rpc.pickles.tree import Global, Value


class RRefForkData(NamedTuple):
    """An RRef as it travels; ids are (created on worker, local id)."""

    owner_id: int
    rref_id: tuple[int, int]
    fork_id: tuple[int, int]
    parent: int
    type_str: str


class PythonUdf(NamedTuple):
    func: Value
    """A Global for a plain function, a Call for a bound method or any other callable object."""
    args: Value
    kwargs: Value


class RemoteException(NamedTuple):
    message: str
    exception_type: Global | None


class WorkerInfo(NamedTuple):
    name: str
    id: int


def tensor_index(node: Value) -> int | None:
    """Index into the message's tensor list of a reference to a tensor."""
    raise NotImplementedError


def rref_fork(node: Value) -> RRefForkData | None:
    """The RRef that a node stands for."""
    raise NotImplementedError


def untag(node: Value) -> Value:
    """JIT: the plain list or Dict inside restore_type_tag or build_*list; any other value as it is."""
    raise NotImplementedError


def device_map(node: Value) -> dict[str, str] | None:
    """Source device -> target device; the integers of PyTorch 1.8 are CUDA device indices."""
    raise NotImplementedError


def device(node: Value) -> str | None:
    """The string of a torch.device."""
    raise NotImplementedError


def python_udf(root: Value) -> PythonUdf | None:
    """The call in a PythonUDF."""
    raise NotImplementedError


def remote_exception(root: Value) -> RemoteException | None:
    """The failure in a RemoteException."""
    raise NotImplementedError


def worker_info(node: Value) -> WorkerInfo | None:
    """Name and id in a WorkerInfo."""
    raise NotImplementedError
