"""Whether what lies at a path can be loaded: nobody but us and root could have put it there.

In: a path. Out: nothing, or a reason in one line. Every part of the path, and of those that links lead to,
must belong to us or to root, and be writable by nobody else; a folder with the sticky bit may be, since
others can't touch our files there. A group of which nobody else is a member is ours. For Python 3.8 and no
package.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from typing import Iterator  # noqa: UP035 - runs in Python 3.8

MAX_LINKS = 40


def why_not(path: str) -> str | None:
    """None where it can be trusted."""
    try:
        for part, state in parts(os.path.abspath(path)):
            reason = _reason(state)
            if reason:
                return f"{part}: {reason}"
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def parts(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every folder, link and file that is passed on the way to a path, from the root on."""
    at, rest, links = "/", [part for part in path.split("/") if part][::-1], 0
    yield at, os.lstat(at)
    while rest:
        name = rest.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        state = os.lstat(os.path.join(at, name))
        yield os.path.join(at, name), state
        if not stat.S_ISLNK(state.st_mode):
            at = os.path.join(at, name)
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(0, "too many links")
        target = os.readlink(os.path.join(at, name))
        if target.startswith("/"):
            at = "/"
        rest += [part for part in target.split("/") if part not in ("", ".")][::-1]


def _reason(state: os.stat_result) -> str:
    if state.st_uid not in (0, os.geteuid()):
        return f"belongs to user {state.st_uid}, neither to you nor to root"
    if stat.S_ISLNK(state.st_mode):  # has no rights of its own
        return ""
    others = state.st_mode & stat.S_IWOTH or (state.st_mode & stat.S_IWGRP and not is_ours(state.st_gid))
    if others and not (stat.S_ISDIR(state.st_mode) and state.st_mode & stat.S_ISVTX):
        return "others may write to it"
    return ""


def is_ours(group: int) -> bool:
    """Whether a group has no member but us: many systems give each user such a group."""
    if group == 0:
        return True
    try:
        us = pwd.getpwuid(os.geteuid())
        members = grp.getgrgid(group).gr_mem
    except KeyError:
        return False
    return group == us.pw_gid and set(members) <= {us.pw_name} and grp.getgrgid(group).gr_name == us.pw_name
