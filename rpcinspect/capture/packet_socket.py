"""Packets of an interface from the kernel: an AF_PACKET socket with a ring of memory that the kernel fills.

In: the name of an interface. Out: blocks of packets, as records of a pcap of nanoseconds, whole: a packet of
the loopback may be longer than any that a network carries. What finds no room in the ring is lost, and
counted. Needs CAP_NET_RAW in the network namespace; the ring needs no further right, unlike a large socket
buffer.

    block   version u32, offset u32, status u32, packets u32, first packet u32, …
    packet  next u32, s u32, ns u32, captured u32, length u32, status u32, data u16, network header u16, …,
            at 48: sockaddr_ll: family u16, protocol u16 (big endian), interface i32, ARP type u16,
            packet type u8, length of the address u8, address 8

Names are those of linux/if_packet.h, struct tpacket3_hdr.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct
from typing import TypeAlias

from rpcinspect.errors import CaptureError

ANY = "any"
"""All interfaces at once, as tcpdump calls them."""

ETH_P_ALL = 0x0003
SOL_PACKET = 263
PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 5, 6, 10
TPACKET_V3 = 2
SO_ATTACH_FILTER = 26
SIOCGIFFLAGS, SIOCGIFHWADDR = 0x8913, 0x8927
IFF_UP = 0x1
ARPHRD_ETHER, ARPHRD_LOOPBACK = 1, 772
PACKET_OUTGOING = 4

BLOCK_BYTES = 1 << 20
"""No packet may be longer: the largest that Linux makes on a loopback have 512 KiB."""
RING_BYTES = 1 << 27
FRAME_BYTES = 1 << 11
"""Unused in this version of the ring, and checked nevertheless."""
RETIRE_MS = 50
"""A block that is not full is handed over after this."""

BLOCK = struct.Struct("=IIIII")
STATUS_AT, TP_STATUS_USER = 8, 1
PACKET = struct.Struct("=IIIIIIHH")
ADDRESS_AT = 48
ADDRESS = struct.Struct("=H2siHBB8s")
RECORD = struct.Struct("<IIII")
"""Of a pcap: seconds, nanoseconds, length of what is there, length as it was."""

LINK_ETHERNET, LINK_LINUX_SLL = 1, 113

# Classic BPF. Offsets from SKF_NET_OFF count from the network header, whatever is before it.
_LD_B, _LD_H, _JEQ, _RET = 0x30, 0x28, 0x15, 0x06
_NET, _ABOUT = 0xFFF00000, 0xFFFFF000
_PROTOCOL, _PACKET_TYPE, _HARDWARE = _ABOUT, _ABOUT + 4, _ABOUT + 28
_WHOLE = 0xFFFFFFFF
TCP_ONLY = (
    (_LD_H, 0, 0, _HARDWARE),
    (_JEQ, 0, 2, ARPHRD_LOOPBACK),  # which shows each packet twice, once on its way out
    (_LD_B, 0, 0, _PACKET_TYPE),
    (_JEQ, 13, 0, PACKET_OUTGOING),
    (_LD_H, 0, 0, _PROTOCOL),
    (_JEQ, 10, 0, 0x8100),  # VLAN: TCP may be behind the tag
    (_JEQ, 0, 2, 0x0800),  # IPv4
    (_LD_B, 0, 0, _NET + 9),
    (_JEQ, 7, 8, 6),  # TCP: fragments too
    (_JEQ, 0, 7, 0x86DD),  # IPv6
    (_LD_B, 0, 0, _NET + 6),
    (_JEQ, 4, 0, 6),
    (_JEQ, 3, 0, 0),  # extension headers: TCP may be behind them
    (_JEQ, 2, 0, 43),
    (_JEQ, 1, 0, 44),
    (_JEQ, 0, 1, 60),
    (_RET, 0, 0, _WHOLE),
    (_RET, 0, 0, 0),
)
EVERYTHING = (
    (_LD_H, 0, 0, _HARDWARE),
    (_JEQ, 0, 2, ARPHRD_LOOPBACK),
    (_LD_B, 0, 0, _PACKET_TYPE),
    (_JEQ, 1, 0, PACKET_OUTGOING),
    (_RET, 0, 0, _WHOLE),
    (_RET, 0, 0, 0),
)
"""TCP may be in tunnels, too, whose packets are not."""
NOTHING = ((_RET, 0, 0, 0),)


Packet: TypeAlias = tuple[bytes, memoryview]
"""The header of the record, with what is put before the data of interfaces that have no Ethernet header; the
data, in memory that the kernel takes back after its block."""


def open_socket(interface: str) -> socket.socket:
    """A socket that may see the packets of an interface. Nothing is received before it has a `Ring`.

    Raises `OSError` where this process can have no such socket, a `PermissionError` where it lacks the right,
    and `CaptureError` where the interface can't be captured.
    """
    if not hasattr(socket, "AF_PACKET"):
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    ethernet = interface != ANY and _has_ethernet_headers(interface)
    kind = socket.SOCK_RAW if ethernet else socket.SOCK_DGRAM
    sock = socket.socket(socket.AF_PACKET, kind, socket.htons(ETH_P_ALL) if interface == ANY else 0)
    try:
        sock.setsockopt(SOL_PACKET, PACKET_VERSION, TPACKET_V3)
        _attach(sock, NOTHING)
        if interface != ANY:
            sock.bind((interface, ETH_P_ALL))
    except OSError as error:
        sock.close()
        raise CaptureError(f"{interface}: can't be captured: {error.strerror or error}") from error
    return sock


def _has_ethernet_headers(interface: str) -> bool:
    """Returns whether packets of an interface that exists and is up have Ethernet headers."""
    there = ", ".join([*(name for _, name in socket.if_nameindex()), ANY])
    missing = f"no such interface; this machine has {there}"
    name = interface.encode()
    if not 0 < len(name) < 16:
        raise CaptureError(f"{interface}: {missing}")
    request = struct.pack("16s24x", name)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            flags = struct.unpack_from("=H", fcntl.ioctl(sock, SIOCGIFFLAGS, request), 16)[0]
            kind = struct.unpack_from("=H", fcntl.ioctl(sock, SIOCGIFHWADDR, request), 16)[0]
        except OSError as error:
            why = missing if error.errno == errno.ENODEV else error.strerror
            raise CaptureError(f"{interface}: {why}") from error
    if not flags & IFF_UP:
        raise CaptureError(f"{interface}: is down")
    return kind in (ARPHRD_ETHER, ARPHRD_LOOPBACK)


def _attach(sock: socket.socket, program: tuple[tuple[int, int, int, int], ...]) -> None:
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    memory = ctypes.create_string_buffer(code, len(code))
    sock.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(memory))
    )


class Ring:
    """The ring of a socket, read block by block."""

    def __init__(self, sock: socket.socket, *, tcp_only: bool = True) -> None:
        """Begins to receive packets. Raises `CaptureError` where the kernel has no such ring."""
        self._sock = sock
        try:
            self._map = mmap.mmap(sock.fileno(), _make_ring(sock))
            _attach(sock, TCP_ONLY if tcp_only else EVERYTHING)
        except OSError as error:
            raise CaptureError(f"the kernel refuses a ring for packets: {error.strerror or error}") from error
        self._view = memoryview(self._map)
        self._block = 0
        self._cooked = sock.type & ~socket.SOCK_NONBLOCK == socket.SOCK_DGRAM
        self.link_type = LINK_LINUX_SLL if self._cooked else LINK_ETHERNET
        self.blocks = len(self._map) // BLOCK_BYTES
        self._dropped = 0

    def fileno(self) -> int:
        """Readable once a block is ready."""
        return self._sock.fileno()

    def take(self) -> list[Packet]:
        """The packets of the next block; none if none is ready. `release` gives it back to the kernel."""
        start = self._block * BLOCK_BYTES
        _, _, status, count, first = BLOCK.unpack_from(self._view, start)
        return self._packets(start + first, count) if status & TP_STATUS_USER else []

    def release(self) -> None:
        """Gives the block that was read last back to the kernel."""
        struct.pack_into("=I", self._view, self._block * BLOCK_BYTES + STATUS_AT, 0)
        self._block = (self._block + 1) % self.blocks

    def _packets(self, at: int, count: int) -> list[Packet]:
        packets: list[Packet] = []
        view, unpack = self._view, PACKET.unpack_from
        for _ in range(count):
            following, seconds, nanoseconds, captured, length, _, data_at, network_at = unpack(view, at)
            start = at + (network_at if self._cooked else data_at)
            header = self._cooked_header(at) if self._cooked else b""
            lengths = captured + len(header), length + len(header)
            record = RECORD.pack(seconds, nanoseconds, *lengths) + header
            packets.append((record, view[start : start + captured]))
            at += following
        return packets

    def _cooked_header(self, at: int) -> bytes:
        """Returns the header of LINKTYPE_LINUX_SLL."""
        _, protocol, _, kind, packet_type, size, address = ADDRESS.unpack_from(self._view, at + ADDRESS_AT)
        return struct.pack(">HHH8s2s", packet_type, kind, size, address, protocol)

    def dropped(self) -> int:
        """Returns how many packets found no room so far."""
        counts = self._sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 12)
        self._dropped += struct.unpack("=III", counts)[1]  # the kernel begins again at 0
        return self._dropped

    def check(self) -> None:
        """Raises what the kernel has against the socket, such as that its interface is down."""
        number = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))

    def refuse_more(self) -> None:
        """Stops receiving; what is in the ring stays there."""
        _attach(self._sock, NOTHING)

    def close(self) -> None:
        """Releases the memory of the ring and closes the socket."""
        self._view.release()
        self._map.close()
        self._sock.close()


def _make_ring(sock: socket.socket) -> int:
    """Makes a ring as large as the system has memory for, up to a bound; returns its bytes."""
    size = RING_BYTES
    while True:
        request = struct.pack(
            "=7I", BLOCK_BYTES, size // BLOCK_BYTES, FRAME_BYTES, size // FRAME_BYTES, RETIRE_MS, 0, 0
        )
        try:
            sock.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        except OSError as error:
            size //= 2
            if error.errno != errno.ENOMEM or size < 4 * BLOCK_BYTES:
                raise
        else:
            return size
