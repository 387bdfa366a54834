"""Three jobs one after the other at one store port, in a network with few ports: a and b, the same two with
their ranks swapped, x and y. Each worker says who it is and which call it ran.

    unshare -n sh -c 'ip link set lo up
        sysctl -q -w net.ipv4.ip_local_port_range="40000 40023"
        rpcinspect record --via wire -o three_jobs.pcap -- python three_jobs.py'
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

STORE = 29500
JOBS = (("a", "b"), ("b", "a"), ("x", "y"))


def who(job, number):
    import torch.distributed.rpc as rpc

    me = rpc.get_worker_info()
    tell(event="ran", job=job, worker=me.name, id=me.id, number=number, time_ns=time.time_ns())
    return me.name


def tell(**event):
    sys.stdout.write("TRUTH " + json.dumps(event) + "\n")
    sys.stdout.flush()


def listening_port():
    """Where this process listens, besides the store."""
    own = set()
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(fd))
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}
    (port,) = ports - {STORE}
    return port


def worker(job, rank):
    import torch.distributed.rpc as rpc

    names = JOBS[job]
    options = rpc.TensorPipeRpcBackendOptions(_transports=["uv"], _channels=["basic"])
    rpc.init_rpc(names[rank], rank=rank, world_size=2, rpc_backend_options=options)
    tell(event="worker", job=job, worker=names[rank], id=rank, port=listening_port())
    for number in range(3):
        rpc.rpc_sync(names[1 - rank], who, args=(job, number))
    rpc.shutdown()


if len(sys.argv) > 1:
    worker(int(sys.argv[1]), int(sys.argv[2]))
elif __name__ == "__main__":
    for job in range(len(JOBS)):
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(STORE)}
        command = [sys.executable, __file__, str(job)]
        both = [subprocess.Popen([*command, str(rank)], env=environment) for rank in (0, 1)]
        for one in both:
            one.wait()
