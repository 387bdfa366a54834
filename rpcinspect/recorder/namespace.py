"""A network namespace of one's own, with nothing but a loopback interface: what is sent there nobody else
sees, and its packets may be captured without being root.

In: the process that calls, which must have one thread. Out: it is in the namespace, as the user that it was.
`RecordError` where the system forbids that. A module of its own: what loads numpy has several threads.
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
    errno.EPERM: "this system or container lets only root make network namespaces",
    errno.ENOSPC: "this system allows no more namespaces (sysctl user.max_user_namespaces)",
    errno.EINVAL: "this kernel lacks such namespaces, or this process has several threads",
    errno.ENOSYS: "this kernel has no namespaces",
}
NO_RIGHTS = (
    "this system gives users no rights in their namespaces "
    "(Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns)"
)


def enter_own_network() -> None:
    """Root needs a network namespace only; everybody else, and root without its rights, gets a user namespace
    too, in which only its own ids exist."""
    user, group = os.geteuid(), os.getegid()
    if user or _unshare(CLONE_NEWNET):
        number = _unshare(CLONE_NEWUSER | CLONE_NEWNET)
        if number:
            raise RecordError(f"--private-net: {FORBIDDEN.get(number, os.strerror(number))}")
        _keep_ids(user, group)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    except OSError as error:
        raise RecordError(f"--private-net: {_reason(error)}") from error


def _unshare(flags: int) -> int:
    """0, or the number of the error."""
    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() if libc.unshare(flags) else 0


def _keep_ids(user: int, group: int) -> None:
    ids = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
    try:
        for name, text in ids:
            Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
    except OSError as error:
        raise RecordError(f"--private-net: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return NO_RIGHTS if error.errno in (errno.EPERM, errno.EACCES) else error.strerror or str(error)
