"""Forms that vectors share: how numpy, torch and CPython write things, and what vectors are given to."""

from __future__ import annotations

from tests.fuzz.model.assembly import (
    EMPTY_DICT,
    EMPTY_TUPLE,
    FALSE,
    NONE,
    SETITEM,
    TRUE,
    build,
    call,
    list_of,
    name,
    number,
    partial,
    program,
    raw,
    text,
    tuple_of,
    udf,
)

Vector = tuple[bytes, str, str]
TYPEOF = "torch.distributed.rpc.api:_rref_typeof_on_owner"
STEP = "torch.distributed.optim.optimizer:_local_optimizer_step"
NEW = "torch.distributed.optim.optimizer:_new_local_optimizer"
FROM_TYPE = "torch._tensor:_rebuild_from_type_v2"
GETATTR = "builtins:getattr"
SPACE = "types:SimpleNamespace"
ORDERED = "collections:OrderedDict"
MODULE = "torch.distributed.nn.api.remote_module"
LATER = partial(TYPEOF, text("x"))
"""What torch calls by rpc, behind partial: harmless to hear of, and no more harmless than that to call."""
HOOKS = call(ORDERED)


def answer(value: bytes, decision: str = "nothing", protocol: int = 4) -> Vector:
    """As an answer."""
    return program(value, protocol), "answer", decision


def argument(value: bytes, decision: str = "names") -> Vector:
    """As the argument of a call that is allowed."""
    return udf("job:step", value), "request", decision


def function(value: bytes | str, decision: str = "names", *args: bytes, protocol: int = 4) -> Vector:
    """As the function of a request."""
    return udf(value, *args, protocol=protocol), "request", decision


def dtype(code: str, *state: bytes) -> bytes:
    """numpy.dtype, as numpy makes it, and its state."""
    made = call("numpy:dtype", text(code), FALSE, TRUE)
    return build(made, tuple_of(*state)) if state else made


def usual(code: str, order: str = "<", *, flags: int = 0, size: int = -1) -> bytes:
    """With the state that numpy writes."""
    return dtype(code, number(3), text(order), NONE, NONE, NONE, number(size), number(size), number(flags))


def array(shape: int, of: bytes, data: bytes) -> bytes:
    """numpy.ndarray, as numpy writes it."""
    made = call("numpy._core.multiarray:_reconstruct", name("numpy:ndarray"), tuple_of(number(0)), raw(b"b"))
    return build(made, tuple_of(number(1), tuple_of(number(shape)), of, FALSE, data))


def rebuilt(which: str, *args: bytes) -> bytes:
    """One of torch's reconstructors."""
    return call(f"torch._utils:{which}", *args)


def later(function: str, *args: bytes) -> bytes:
    """partial, as CPython writes it."""
    return build(partial(function), tuple_of(name(function), tuple_of(*args), EMPTY_DICT, NONE))


def grown(container: bytes, given: bytes, growth: bytes) -> bytes:
    """A list or a dict that `given` takes from memo 1, and that gets something when that was made."""
    return tuple_of(container + b"q\x01", given, b"h\x01" + growth)


def shared_hash() -> bytes:
    """A tuple of a tuple twice, of a tuple twice, … 40 levels deep, made by calls, as a key."""
    levels = (
        call("builtins:tuple", list_of(b"h" + bytes([n]), b"h" + bytes([n]))) + b"q" + bytes([n + 1]) + b"0"
        for n in range(40)
    )
    return EMPTY_TUPLE + b"q\x000" + b"".join(levels) + EMPTY_DICT + b"h\x28" + NONE + SETITEM


OBJECTS = usual("O8", "|", flags=0)
"""Object pointers that the array does not know to be such."""
AS = b"A" * 32
