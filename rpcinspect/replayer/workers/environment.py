"""The environment of live workers: a list of its own, so that what a replay comes to does not depend
on the shell that it is started from, but for what the user sets for torch.

In: our environment. Out: the whole environment of a worker.
"""

from __future__ import annotations

import os
import sys

USERS = ("PYTORCH_", "CUBLAS_", "CUDA_")
"""How variables of our environment begin that decide how torch computes, and where."""
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "USER", "LOGNAME")
"""Of our environment, beside `USERS`; nothing else reaches a worker."""


def worker_environment(threads: int, *, cuda: bool = False) -> dict[str, str]:
    """The whole environment of live workers."""
    begins = (*USERS, "NVIDIA_") if cuda else USERS
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.startswith(begins)}
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return kept | {
        "TP_SOCKET_IFNAME": loopback,
        "GLOO_SOCKET_IFNAME": loopback,
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # it starts its threads when it is imported, before the fork
        **({} if cuda else {"CUDA_VISIBLE_DEVICES": ""}),
    }
