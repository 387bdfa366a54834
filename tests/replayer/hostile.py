"""The other side of a pipe, spoken by hand: blocking sockets, bytes chosen by the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rpcinspect.replayer.peers.loopback import parse_address
from rpcinspect.rpc.message import NO_TENSORS, RpcMessage
from rpcinspect.tensorpipe.control import frame, read_brochure_answer
from rpcinspect.tensorpipe.nop import write_array, write_int, write_string, write_structure

SECONDS = 10.0

HELLO = frame(bytes.fromhex("b800 b901 bd05") + b"mouse")
"""SpontaneousConnection of a worker named `mouse`."""
CPU = bytes.fromhex("b902 bd03") + b"cpu" + b"\x00"
BROCHURE = frame(
    bytes.fromhex("b902 bb01 bd02")
    + b"uv"
    + bytes.fromhex("bd04")
    + b"uv:*"
    + bytes.fromhex("bb01 bd05")
    + b"basic"
    + bytes.fromhex("bb01")
    + CPU
    + bytes.fromhex("bd03")
    + b"any"
)


def requested(registration_id: int) -> bytes:
    """RequestedConnection, framed."""
    return frame(bytes.fromhex("b801 b901") + write_int(registration_id))


def descriptor(payloads: Sequence[int], tensors: Sequence[int] = (), device: bytes = CPU) -> bytes:
    """A framed message descriptor that announces these lengths."""
    return frame(
        write_structure(
            write_string(b""),
            write_array([write_structure(write_int(length), write_string(b"")) for length in payloads]),
            write_array([write_structure(write_int(n), device, device, write_string(b"")) for n in tensors]),
        )
    )


def message(kind: int, number: int, payload: bytes = b"", tensors: Sequence[int] = ()) -> bytes:
    """Descriptor and payloads of a message; its tensors are only announced."""
    payloads = RpcMessage(kind, number, payload, NO_TENSORS).to_payloads()
    return descriptor([len(part) for part in payloads], tensors) + b"".join(
        [frame(part) for part in payloads]
    )


def connect(url: str) -> socket.socket:
    """A blocking socket to a listener."""
    address = parse_address(url)
    return socket.create_connection((address.host, address.port), SECONDS)


def receive(sock: socket.socket, length: int) -> bytes:
    """Exactly so many bytes."""
    found = b""
    while len(found) < length:
        part = sock.recv(length - len(found))
        assert part, f"closed after {len(found)} of {length} bytes"
        found += part
    return found


def receive_frame(sock: socket.socket) -> bytes:
    """The body of the next frame."""
    return receive(sock, int.from_bytes(receive(sock, 8), "little"))


class Client:
    """A client that has shaken hands with a peer's listener: three connections."""

    def __init__(self, url: str, answer: bytes) -> None:
        found, _ = read_brochure_answer(answer)
        self.answer = found
        ids = [dict(found.transport_registration_ids)[1], dict(found.channel_registration_ids)["basic"][0]]
        self.reply, self.channel = connect(url), connect(url)
        for sock, registration_id in zip((self.reply, self.channel), ids, strict=True):
            sock.sendall(requested(registration_id))


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
    """Runs `work` beside the test; what it raises is raised at the end."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    yield
    thread.join(SECONDS)
    assert not thread.is_alive()
    if errors:
        raise errors[0]
