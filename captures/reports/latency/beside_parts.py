"""What the workers of beside.py run: each says how long it slept, and for what."""

import json
import threading
import time

import torch.distributed.rpc as rpc


def say(**told):
    print(json.dumps({"worker": rpc.get_worker_info().name, **told}), flush=True)


def rest(ms, what):
    time.sleep(ms / 1000)
    say(ms=ms, what=what)


def slow(x, ms):
    rest(ms, "slow")
    return x + 1


def eight(x):
    return slow(x, 8)


def far(x, ms):
    rest(5, "far, before w2")
    y = rpc.rpc_sync("w2", slow, (x, ms))
    rest(5, "far, after w2")
    return y


def use(rref, before, after):
    rest(before, "use, beside w1")
    x = rref.to_here()
    rest(after, "use, with the value")
    return x + 1


def forgetting(x, own, asked):
    rpc.rpc_async("w2", slow, (x, asked))
    rest(own, "forgetting, beside w2")
    return x


def threaded(x, ms):
    thread = threading.Thread(target=lambda: rpc.rpc_sync("w2", slow, (x, ms)))
    rest(5, "threaded, before")
    thread.start()
    thread.join()
    rest(5, "threaded, after")
    return x


def chained(x, before, own, after):
    def then(future):
        rest(own, "chained, callback")
        return rpc.rpc_sync("w2", slow, (future.wait(), after))

    return rpc.rpc_async("w2", slow, (x, before)).then(then).wait()
