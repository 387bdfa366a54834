"""Plays a captured conversation again, over real TCP connections between the same addresses and ports.

Run as a program in a network namespace of its own, where every port is free:

    python -m tests.capture.replay CAPTURE -- COMMAND…

starts the command, waits until it captures (a packet socket is open), plays, interrupts the command as Ctrl-C
would, and ends with its exit code. With `--leave`, nobody reads what the command prints after its first line;
printed is then how many packet sockets are left a while after it has ended.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from rpcinspect.capture import CaptureReader
from rpcinspect.tcp.segment import SYN, Endpoint, Flow, Segmenter

PATIENCE_S = 20.0


def sent(path: str) -> list[tuple[Flow, bytes, bool]]:
    """Flow, payload and whether it opens a connection, in the order of capture; copies are left out."""
    segmenter = Segmenter()
    events: list[tuple[Flow, bytes, bool]] = []
    seen: set[tuple[int, int]] = set()
    with CaptureReader(path) as reader:
        for block in reader.blocks():
            rows = segmenter.feed(block)
            for row in range(len(rows)):
                flow, flags = segmenter.flows[rows.flow[row]], int(rows.flags[row])
                length = int(rows.length[row])
                key = int(rows.flow[row]), int(rows.sequence[row])
                if key in seen or not (length or flags & SYN):
                    continue
                seen.add(key)
                if flags & 0x12 == SYN or length:
                    payload = reader.pread(int(rows.offset[row]), length)
                    events.append((flow, payload, bool(flags & SYN)))
    return events


class Player:
    """The sockets of both sides of every connection."""

    def __init__(self) -> None:
        self._listeners: dict[Endpoint, socket.socket] = {}
        self._ends: dict[Flow, tuple[socket.socket, socket.socket]] = {}
        """Who sends and who receives in this direction."""

    def listen(self, server: Endpoint) -> None:
        """Accepts connections there."""
        if server not in self._listeners:
            self._listeners[server] = socket.create_server((server.host, server.port), backlog=64)
            self._listeners[server].settimeout(PATIENCE_S)

    def open(self, flow: Flow) -> None:
        """A new connection."""
        client = socket.socket()
        client.settimeout(PATIENCE_S)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.bind((flow.source.host, flow.source.port))
        client.connect((flow.destination.host, flow.destination.port))
        server, _ = self._listeners[flow.destination].accept()
        server.settimeout(PATIENCE_S)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ends[flow] = client, server
        self._ends[flow.reversed] = server, client

    def send(self, flow: Flow, payload: bytes) -> None:
        """Sends it, and waits until it has arrived."""
        if flow not in self._ends:
            return  # nobody listened when it was captured
        sender, receiver = self._ends[flow]
        sender.sendall(payload)
        left = len(payload)
        while left:
            piece = receiver.recv(left)
            if not piece:
                raise EOFError(f"{flow} ended early")
            left -= len(piece)

    def close(self) -> None:
        """Closes everything."""
        for sender, _ in self._ends.values():
            sender.close()
        for listener in self._listeners.values():
            listener.close()


def play(path: str) -> None:
    """The whole conversation."""
    events = sent(path)
    answered = {flow.reversed for flow, payload, _ in events if payload} | {f for f, p, _ in events if p}
    player = Player()
    try:
        for flow, payload, opens in events:
            if opens and flow in answered:
                player.listen(flow.destination)
                player.open(flow)
            if payload:
                player.send(flow, payload)
    finally:
        player.close()


def packet_sockets() -> list[str]:
    """Inodes of those that capture in this namespace."""
    return [line.split()[-1] for line in Path("/proc/net/packet").read_text().splitlines()[1:]]


def wait_for(sockets: int) -> int:
    """Waits until there are so many, and for half a second the same ones (some are opened only to see what
    can be captured); gives how many there are in the end.
    """
    deadline = time.monotonic() + PATIENCE_S
    now, since = packet_sockets(), time.monotonic()
    while time.monotonic() < deadline and not (len(now) == sockets and time.monotonic() > since + 0.5):
        time.sleep(0.05)
        before, now = now, packet_sockets()
        if now != before:
            since = time.monotonic()
    return len(now)


def main(arguments: list[str]) -> int:
    leave = arguments[0] == "--leave"
    path, _, *command = arguments[leave:]
    process = subprocess.Popen(command, stdout=subprocess.PIPE if leave else None)
    timer = threading.Timer(2 * PATIENCE_S, process.kill)
    timer.start()
    try:
        if wait_for(1) != 1:
            raise TimeoutError("nothing captures")
        play(path)
        if leave:
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.close()
            play(path)  # something to print, which nobody reads
            process.wait(PATIENCE_S)
            print(wait_for(0))
            return 0
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        return process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
        timer.cancel()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
