"""What the model test and its oracle process say to each other: one pickle, and what happened to it."""

from __future__ import annotations

from typing import BinaryIO, TypeVar

import msgspec

Sort = str
"""`request`: torch calls what it finds; `answer`: torch raises a RemoteException and gives out all else;
digits: the type of a message of TorchScript, whose payload it is."""


class Job(msgspec.Struct, frozen=True):
    """A pickle that the gate let through, and what the plan named as allowed."""

    data: bytes
    sort: Sort
    named: tuple[str, ...]
    """`module.name`, as in the plan."""
    strict: bool
    """The user named files: what they only import, inherit or alias is not allowed by that."""


class Fault(msgspec.Struct, frozen=True):
    """Something that happened and that the plan did not name."""

    kind: str
    what: str


class Seen(msgspec.Struct, frozen=True):
    """What the oracle saw of a job."""

    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    """Python functions of libraries that ran, `module.qualname`."""
    loaded: bool = False
    """CPython's own unpickler came to the end."""


T = TypeVar("T")


def send(pipe: BinaryIO, value: object) -> None:
    """One value, with its length before it."""
    data = msgspec.msgpack.encode(value)
    pipe.write(len(data).to_bytes(4, "little") + data)
    pipe.flush()


def receive(pipe: BinaryIO, kind: type[T]) -> T | None:
    """The next value; None at the end."""
    head = pipe.read(4)
    if len(head) < 4:
        return None
    return msgspec.msgpack.decode(pipe.read(int.from_bytes(head, "little")), type=kind)
