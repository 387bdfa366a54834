import torch
import torch.distributed.rpc as rpc
def callback(*a): return 5
def ask():
    r = rpc.remote("w0", callback)
    try: return str(r.to_here(3))[:50]
    except Exception as e: return repr(e)
def ask2():
    return str(rpc.rpc_sync("w0", callback))
def f(*a): return 5
def ident(x): return x
def ident1(a, b): return a
def add(a, b): return a + b
def askadd():
    return str(rpc.rpc_sync("w0", torch.add, (torch.ones(2), 1)))
def askremote():
    r = rpc.remote("w0", torch.add, (torch.ones(2), 1))
    try: return str(r.to_here(3))[:50]
    except Exception as e: return repr(e)
def show(*a): return str([(x.tolist() if x.layout==torch.strided and x.numel()<100 else str(x)) for x in a])[:400]
def ptrs(*a): return str([(x.data_ptr()-a[0].data_ptr(), x.untyped_storage().nbytes()) for x in a])
def dense(*a): return str([x.to_dense().sum() for x in a])
def deq(*a): return str([x.dequantize().sum() for x in a])
def coal(*a): return str([x.coalesce() for x in a])
