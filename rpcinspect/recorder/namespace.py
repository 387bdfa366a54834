"""A network namespace of one's own, with nothing but a loopback interface: what is sent there nobody else
sees, and its packets may be captured without being root.

In: the process that calls, which must have one thread. Out: it is in the namespace, as the user that it was.
`RecordError` where the system forbids that.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from pathlib import Path

from rpcinspect.errors import RecordError

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

FORBIDDEN = {
    errno.EPERM: "this system does not let users make namespaces",
    errno.ENOSPC: "this system allows no more namespaces (sysctl user.max_user_namespaces)",
    errno.EINVAL: "this kernel has no such namespaces",
    errno.ENOSYS: "this kernel has no namespaces",
}
NO_RIGHTS = (
    "this system gives users no rights in their namespaces "
    "(Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns)"
)
OTHERWISE = "run rpcinspect as root"


def enter_own_network() -> None:
    """Who is not root gets a user namespace too, in which only its own id exists."""
    user, group = os.geteuid(), os.getegid()
    flags = CLONE_NEWNET if user == 0 else CLONE_NEWUSER | CLONE_NEWNET
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        number = ctypes.get_errno()
        raise RecordError(_line(FORBIDDEN.get(number, os.strerror(number))))
    try:
        if user:
            _keep_ids(user, group)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    except OSError as error:
        told = NO_RIGHTS if error.errno in (errno.EPERM, errno.EACCES) else error.strerror
        raise RecordError(_line(str(told))) from error


def _keep_ids(user: int, group: int) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text, encoding="ascii")


def _line(reason: str) -> str:
    return f"--private-net: {reason}; {OTHERWISE}"
