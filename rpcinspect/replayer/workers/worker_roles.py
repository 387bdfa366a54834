"""What a process becomes that was forked for live workers: the store of a group, a live worker, torch's agent
in the place of a played one, or one that only looks for GPUs.

In: a command of our process, and the socket to it. Out: a report once the process is ready, then answers,
until the socket closes. torch and all that the capture names is imported by then.

Mirrors `init_rpc` of torch/distributed/rpc/__init__.py.
"""

from __future__ import annotations

import datetime
import os
import pdb
import random
import socket
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch._C import _distributed_autograd
from torch.distributed.rpc import api, backend_registry

from rpcinspect.replayer.workers.bounds import LATER_THREADS, bound_memory
from rpcinspect.replayer.workers.worker_imports import about, print_error

RENDEZVOUS_SCHEME = "rpcinspect"
LIBUV_LISTENS = (2, 13)
"""The first release that is known to serve a store by libuv on an open port; 2.6 can't."""


# --- the store ----------------------------------------------------------------------------------------------


def serve_store(control: Any, command: dict[str, Any]) -> None:
    """A TCPStore on a port of the loopback, until the socket closes."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        port = listener.getsockname()[1]
        store = dist.TCPStore(
            "127.0.0.1",
            port,
            None,
            True,
            datetime.timedelta(seconds=command["timeout_s"]),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
            # Earlier stores of that kind take no port that is open already, and know no other loopback.
            **({"use_libuv": False} if torch.__version__ < LIBUV_LISTENS else {}),
        )
        control.send({"ready": True, "port": port, "memory": bound_memory(command["memory"], LATER_THREADS)})
        while control.receive() is not None:
            pass
        del store


# --- a live worker ------------------------------------------------------------------------------------------


def work(control: Any, command: dict[str, Any]) -> None:
    """Joins the group under the name and the id of a captured worker, then shows gradients when asked."""
    if command["seed"] is not None:
        torch.manual_seed(command["seed"])
        random.seed(command["seed"])
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(command["seed"] % (1 << 32))
    debugger, files = None, list[socket.socket]()
    if command["debug"] is None:  # it only tries seeds
        sys.breakpointhook = pdb.set_trace = lambda *_, **__: None
    else:
        from rpcinspect.replayer.workers.live_debugger import begin

        debugger, files = begin(control, command)
    join_group(control, command, LATER_THREADS, files)
    while (message := control.receive()) is not None:
        if message[0]["do"] == "message" and debugger is not None:
            control.send(debugger.announced(*message))
        elif message[0]["do"] == "gradients":
            from rpcinspect.replayer.workers.live_gradients import show_gradients

            answer, blob = show_gradients(message[0]["context_id"])
            control.send(answer, blob)
        elif message[0]["do"] == "context":
            control.send({"there": has_context(message[0]["context_id"])})
        elif message[0]["do"] == "leave":
            rpc.shutdown()
            control.send({"left": True})


def join_group(
    control: Any, command: dict[str, Any], threads: int, files: Sequence[socket.socket] = ()
) -> None:
    """Joins the group, and reports to our process that it is ready, or why not. Limits its memory from then
    on, with room for so many threads. `files` go along with the report."""
    torch.set_num_threads(command["threads"])
    try:
        init_rpc(command)
    except Exception as error:  # of torch's own, and of the user's modules that changed it
        print_error(error)
        control.send({"failed": f"init_rpc: {type(error).__name__}: {error}"})
        os._exit(1)
    ready = {"ready": True, "memory": bound_memory(command["memory"], threads)}
    control.send(ready, files=[file.fileno() for file in files])
    for file in files:
        file.close()


def init_rpc(command: dict[str, Any]) -> None:
    """Calls `init_rpc` as the user would, but dynamic, over TCP only, and without torch's rule that rank 0
    hosts the store."""
    timeout = datetime.timedelta(seconds=command["rpc_timeout_s"])

    def rendezvous(url: str, **_: Any) -> Any:
        store = dist.TCPStore("127.0.0.1", command["port"], None, False, timeout, wait_for_workers=False)
        yield store, command["id"], -1

    dist.register_rendezvous_handler(RENDEZVOUS_SCHEME, rendezvous)
    if any(command["all_maps"].values()):
        tell_device_maps(command["all_maps"])
    maps = {
        name: {torch.device(own): torch.device(other) for own, other in device_map.items()}
        for name, device_map in command["device_maps"].items()
    }
    rpc.init_rpc(
        command["name"],
        rank=command["id"],
        world_size=None,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            init_method=f"{RENDEZVOUS_SCHEME}://127.0.0.1:{command['port']}",
            rpc_timeout=command["rpc_timeout_s"],
            device_maps=maps,
            _transports=["uv"],
            _channels=["basic", "cuda_basic"] if command["cuda"] and torch.version.cuda else ["basic"],
            **({"num_worker_threads": threads} if (threads := command.get("worker_threads")) else {}),
        ),
    )


def tell_device_maps(all_maps: dict[str, dict[str, dict[str, str]]]) -> None:
    """Sends each member its own devices and reverse maps, for a worker that joins. torch's own function sends
    all members those of the worker that joins; answers with tensors on a GPU would find no map then."""
    from torch.distributed.rpc._utils import _update_group_membership

    def device_maps_of(name: str) -> tuple[list[Any], dict[str, dict[Any, Any]]]:
        reverse = {
            caller: {torch.device(there): torch.device(own) for own, there in by_callee[name].items()}
            for caller, by_callee in all_maps.items()
            if name in by_callee
        }
        used = {torch.device(own) for one in all_maps.get(name, {}).values() for own in one}
        used |= {own for one in reverse.values() for own in one}
        return sorted((one for one in used if one.type != "cpu"), key=lambda one: one.index), reverse

    def tell(agent: Any) -> None:
        me = agent.get_worker_info()
        for info in agent.get_worker_infos():
            devices, reverse = device_maps_of(info.name)
            api.rpc_sync(info.name, _update_group_membership, args=(me, devices, reverse, True))

    backend_registry._set_devices_and_reverse_device_map = tell


def tell_devices(control: Any, command: dict[str, Any]) -> None:
    """Reports the GPUs that torch finds; runs in a process of its own, since a process that has used CUDA
    can't fork."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = [torch.cuda.get_device_name(number) for number in range(count)]
    found = about(command.get("missing") or {})
    control.send({"ready": True, **found, "cuda": torch.version.cuda, "gpus": names})


def play(control: Any, command: dict[str, Any]) -> None:
    """torch's own agent in the place of a captured worker."""
    from rpcinspect.replayer.agent.main import play

    play(control, command, join_group)


def has_context(context_id: int) -> bool:
    """Whether this worker takes part in an autograd context that was not cleaned up."""
    try:
        _distributed_autograd._retrieve_context(context_id)
    except RuntimeError:
        return False
    return True


ROLES = {"store": serve_store, "worker": work, "agent": play, "devices": tell_devices}
