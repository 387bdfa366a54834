"""What a TCPStore client may ask, by release, and how to know such a client by its first bytes.

In: the first bytes of a connection's client. Out: the `StoreGeneration`, whose operations `OPERATIONS` lists.

Mirrors the enum `QueryType` of `torch/csrc/distributed/c10d/TCPStoreBackend.hpp` (once in `TCPStore.cpp`) and
what `TCPStore.cpp` writes and reads for each of its members.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct

from rpcinspect.late_pattern import late


class StoreGeneration(Enum):
    """Releases of PyTorch that number the operations alike."""

    V1_8 = "1.8"
    V1_9 = "1.9"
    """1.9 to 2.1."""
    V2_2 = "2.2"
    """2.2 and later: a magic number comes first."""


class Operation(Struct, frozen=True):
    """One operation: its name, what follows its code, what comes back.

    Arguments: `k` a key, `v` a value of the last key, a digit that many bytes; after `*` the rest comes as
    often as a count before it says. Replies: `values` one for each key, `total` the sum under the key, `wait`
    a byte (or none if it is cancelled), `queued` a count and unless that is 0 a value, `list` a count and
    strings, a digit that many bytes; empty for no reply.
    """

    name: str
    arguments: str = ""
    reply: str = ""
    tells_value: bool = False
    """A value among the arguments is the key's from now on (or a part of it)."""


def packed_string(data: bytes) -> bytes:
    """Returns a key or a value as it is sent."""
    return len(data).to_bytes(8, "little") + data


def looks_like_store(first_client_bytes: bytes) -> StoreGeneration | None:
    """Returns the protocol generation of a client with these first bytes; None for other protocols, or too
    few bytes."""
    for opening, generation in _OPENINGS:
        if first_client_bytes.startswith(opening):
            return generation
    return StoreGeneration.V1_9 if _DYNAMIC_GROUP_1_9.match(first_client_bytes) else None


def may_become_store(first_client_bytes: bytes) -> bool:
    """Returns whether these bytes are too few to tell: `looks_like_store` may succeed with more."""
    if any(opening.startswith(first_client_bytes) for opening, _ in _OPENINGS):
        return True
    length = len(first_client_bytes)
    if length >= len(_DYNAMIC_GROUP_EXAMPLE):
        return False
    return bool(_DYNAMIC_GROUP_1_9.match(first_client_bytes + _DYNAMIC_GROUP_EXAMPLE[length:]))


_SET = Operation("set", "kv", tells_value=True)
_COMPARE_SET = Operation("compare_set", "kvv", "values")
_GET = Operation("get", "k", "values")
_ADD = Operation("add", "k8", "total")
_CHECK = Operation("check", "*k", "1")
WAIT = Operation("wait", "*k", "wait")
_GETNUMKEYS = Operation("getnumkeys", "", "8")
_DELETE_KEY = Operation("delete_key", "k", "8")
_APPEND = Operation("append", "kv", tells_value=True)
_MULTI_GET = Operation("multi_get", "*k", "values")
_MULTI_SET = Operation("multi_set", "*kv", tells_value=True)
_CANCEL_WAIT = Operation("cancel_wait", "", "1")

OPERATIONS: dict[StoreGeneration, dict[int, Operation]] = {
    StoreGeneration.V1_8: dict(enumerate((_SET, _GET, _ADD, _CHECK, WAIT, _GETNUMKEYS, _DELETE_KEY))),
    StoreGeneration.V1_9: {
        **dict(enumerate((_SET, _COMPARE_SET, _GET, _ADD, _CHECK, WAIT, _GETNUMKEYS, _DELETE_KEY))),
        # 8 is DELETE_KEY up to 1.13 (7 is sent on a connection of its own there) and APPEND in 2.0 and 2.1.
        9: _MULTI_GET,
        10: _MULTI_SET,
        11: _CANCEL_WAIT,
    },
    StoreGeneration.V2_2: dict(
        enumerate(
            (
                Operation("validate", "4"),
                _SET,
                _COMPARE_SET,
                _GET,
                _ADD,
                _CHECK,
                WAIT,
                _GETNUMKEYS,
                _DELETE_KEY,
                _APPEND,
                _MULTI_GET,
                _MULTI_SET,
                _CANCEL_WAIT,
                Operation("ping", "4", "4"),
                Operation("queue_push", "kv"),
                Operation("queue_pop", "k", "queued"),
                Operation("queue_len", "k", "8"),
                Operation("list_keys", "", "list"),
                Operation("barrier", "k8", "wait"),
            )
        )
    ),
}
"""`QueryType` of each generation."""

_INIT_KEY = packed_string(b"init/")
OPENING_2_2 = b"\x00\xce\xf7\x85\x3c"
"""What a client of 2.2 or later says first: VALIDATE with its magic number."""
_OPENINGS = (
    (OPENING_2_2, StoreGeneration.V2_2),
    (b"\x03" + _INIT_KEY, StoreGeneration.V1_9),  # ADD
    (b"\x02" + _INIT_KEY, StoreGeneration.V1_8),  # ADD
)
"""What a client sends first, except:"""

_DYNAMIC_GROUP_1_9 = late(rb"\x01[\x00-\xff]\x00{7}/rpc_prefix_", re.DOTALL)
_DYNAMIC_GROUP_EXAMPLE = b"\x01\x25" + bytes(7) + b"/rpc_prefix_"
"""COMPARE_SET of the token of a group without a fixed world size, which counts no workers."""
