"""Functions of a user that do badly in the live worker that is called, for `test_bounds.py`; each should
return 5, as the captured ones did.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from pathlib import Path

import torch

MUCH = 600_000_000
"""Bytes; what is asked of the system, and not written to."""


def well() -> int:
    return 5


def take_bytes() -> int:
    return 5 if bytes(MUCH) else 0


def take_tensor() -> int:
    return 5 if torch.empty(MUCH, dtype=torch.uint8).numel() else 0


def take_in_cpp() -> int:
    """`operator new` throws, and nobody in that thread catches what C++ throws."""
    new = ctypes.CDLL("libstdc++.so.6")._Znwm
    new.argtypes, new.restype = [ctypes.c_size_t], ctypes.c_void_p
    thread = threading.Thread(target=new, args=(MUCH,))
    thread.start()
    thread.join()
    return 5


def read_nothing() -> int:
    ctypes.string_at(0)
    return 5


def be_killed() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 5


def leave() -> int:
    os._exit(3)


def kill_the_caller() -> int:
    """Of this worker's siblings the one with the most threads, which is torch's agent that plays."""
    parent = os.getppid()
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    caller = max(map(int, children), key=lambda pid: len(os.listdir(f"/proc/{pid}/task")))
    os.kill(caller, signal.SIGKILL)
    return 5
