"""A job without torch: bytes over TCP on the loopback, as many as asked for, then what else is asked for.

    python talk.py BYTES [ready FILE] [until FILE]

`ready`: makes that file once the bytes have arrived. `until`: sends them again and again until that file is
there.
"""

from __future__ import annotations

import os
import socket
import sys
import time


def send(count: int) -> int:
    got = 0
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        other, _ = server.accept()
        with other:
            while got < count:
                one.sendall(bytes(min(count - got, 10_000)))
                while got < count and other in select_ready(other):
                    got += len(other.recv(10_000))
    return got


def select_ready(other: socket.socket) -> list[socket.socket]:
    import select

    return select.select([other], [], [], 0)[0]


if __name__ == "__main__":
    amount = int(sys.argv[1])
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    sent = send(amount)
    if "ready" in options:
        open(options["ready"], "w").close()
    while "until" in options and not os.path.exists(options["until"]):
        sent += send(amount)
        time.sleep(0.01)
    print(f"sent {sent}")
