import torch
import torch.distributed.rpc as rpc
import torch.distributed.autograd as dist_autograd
from torch.distributed.rpc import RRef

def callback(*args):
    raise AssertionError("w0 is never live here")

def ask_remote():
    r = rpc.remote("w0", callback)
    return r.to_here()

def ask_op(x):
    return rpc.rpc_sync("w0", torch.add, args=(x, x))

def ask_op_grad():
    with dist_autograd.context() as c:
        x = torch.ones(2, requires_grad=True)
        y = rpc.rpc_sync("w0", torch.add, args=(x, x))
        dist_autograd.backward(c, [y.sum()])
        return dist_autograd.get_gradients(c)[x]

def ask_prof():
    with torch.autograd.profiler_legacy.profile():
        return rpc.rpc_sync("w0", callback)

def ask_sremote(x):
    return rpc.remote("w0", torch.add, args=(x, x)).to_here()

@torch.jit.script
def local(r: RRef[torch.Tensor]) -> torch.Tensor:
    return r.to_here()
