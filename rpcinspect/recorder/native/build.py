"""The C++ agent, built for the torch of the interpreter that runs this, and kept in the user's cache.

In: nothing but an interpreter (from 3.8 on) with torch. Out: the path of a library; `BuildError` says in one
line why there is none. Run as a script it prints that as JSON: {"library", "torch"} or {"why"}; with `--look`
it builds nothing, and prints what there is (`look`). Built once for each torch release, Python and state of
the sources; who wants it at the same time waits for one build. What compiles is the compiler alone: no ninja,
no setuptools.

What is in the cache is loaded into jobs: it is used only if nobody else could have put it there.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import hashlib
import importlib.util
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, Callable, Iterator  # noqa: UP035 - runs in Python 3.8

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = ("agent.cpp", "queue.cpp")
HEADERS = ("queue.h",)
NAME = "rpcinspect_agent_native"
LIBRARY = NAME + ".so"
OPTIONS = ("-O2", "-fPIC", "-w", "-shared")
DEFINES = ("USE_TENSORPIPE", "USE_C10D", "USE_DISTRIBUTED", "USE_RPC")
MAX_LINKS = 40
SECONDS = 900
"""A build takes one minute of an idle processor, most of it for torch's headers."""


class BuildError(Exception):
    """Raised where there is no agent; the text says why, in one line."""


def library(tell: Callable[[str], None]) -> str:
    """Returns the path of the library, built if it is not there yet; calls `tell` with torch's version."""
    torch = torch_folder()
    folder = cache_folder(torch)
    path = os.path.join(folder, LIBRARY)
    if os.path.exists(path):
        refuse_a_strangers(path)
        return path
    with locked(folder):
        if not os.path.exists(path):
            tell(torch_version(torch).get("__version__", "of an unknown release"))
            build(torch, folder, path)
    return path


def torch_folder() -> str:
    """Where torch is; it is not imported, which takes seconds."""
    if sys.platform != "linux":
        raise BuildError(f"the agent is for Linux, not {sys.platform}")
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"{sys.executable} has no torch")
    return next(iter(spec.submodule_search_locations))


def torch_version(torch: str) -> dict[str, Any]:
    """Returns the strings in torch/version.py."""
    said: dict[str, Any] = {}
    try:
        with open(os.path.join(torch, "version.py"), encoding="utf-8") as file:
            for match in re.finditer(r"^(\w+)\s*(?::[^=]*)?=\s*'([^']*)'", file.read(), re.MULTILINE):
                said[match[1]] = match[2]
    except OSError as error:
        raise BuildError(f"{torch} has no version.py: {error.strerror}") from error
    return said


def cache_folder(torch: str) -> str:
    """Makes the folder of the library, which is ours alone."""
    cache, folder = cache_path(torch)
    try:
        os.makedirs(cache, mode=0o700, exist_ok=True)
        refuse_a_strangers(cache)
        for each in (os.path.dirname(folder), folder):
            with contextlib.suppress(FileExistsError):
                os.mkdir(each, 0o700)
            refuse_a_strangers(each)  # before its mode is set: what is in it may be anybody's
            if os.stat(each).st_uid == os.geteuid() and os.path.isdir(each):
                os.chmod(each, 0o700)  # those of earlier versions could be looked into
    except OSError as error:
        raise BuildError(f"{folder}: can't be made: {error.strerror}") from error
    return folder


def cache_path(torch: str) -> tuple[str, str]:
    """Returns the user's cache, and the folder there, named by all that the library depends on."""
    version = torch_version(torch)
    key = (sorted(version.items()), torch, os.uname().machine, OPTIONS, DEFINES)
    digest = hashlib.sha256(repr(key).encode())
    for name in (*SOURCES, *HEADERS):
        with open(os.path.join(HERE, name), "rb") as file:
            digest.update(file.read())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    tag = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    name = f"agent-{version.get('__version__', 'unknown')}-{tag}-{digest.hexdigest()[:16]}"
    return cache, os.path.join(cache, "rpcinspect", name)


def refuse_a_strangers(path: str) -> None:
    """`BuildError` if somebody else might have put there what would be loaded."""
    reason = why_not(path)
    if reason:
        raise BuildError(
            f"the folder is not safe to load from: {reason}; set XDG_CACHE_HOME to another folder"
        )


def why_not(path: str) -> str | None:
    """Returns why a path can't be trusted; None where only we and root could have put the file there.

    Every part of the path, and of those that links lead to, must belong to us or to root, and be writable by
    nobody else; a folder with the sticky bit may be, since others can't touch our files there. A group of
    which nobody else is a member is ours.
    """
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
        return "other users may write to it"
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


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Holds a lock, one process at a time; the kernel unlocks for one that dies."""
    try:
        file = open(os.path.join(folder, "lock"), "a")  # noqa: SIM115
    except OSError as error:
        raise BuildError(f"{folder}: can't be written: {error.strerror}") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(torch: str, folder: str, path: str) -> None:
    """Compiles the library, tries to load it, and puts it into its place."""
    compiler = needed_compiler(torch)
    check_torch()
    for name in os.listdir(folder):  # of builds that were killed: nobody else builds now
        if name.startswith("build-"):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    log = os.path.join(folder, "build.log")
    work = tempfile.mkdtemp(prefix="build-", dir=folder)
    try:
        made = os.path.join(work, LIBRARY)
        sources = [os.path.join(HERE, name) for name in SOURCES]
        compile_to(made, compiler + flags(torch) + sources + libraries(torch), log)
        load(made)
        os.chmod(made, 0o700)
        os.replace(made, path)
    except OSError as error:
        raise BuildError(f"{folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def needed_compiler(torch: str) -> list[str]:
    """Returns the compiler's command, where the headers are there, too."""
    compiler = find_compiler()
    torchs = os.path.join(torch, "include", "torch", "csrc", "distributed", "rpc", "tensorpipe_agent.h")
    pythons = os.path.join(sysconfig.get_paths()["include"], "Python.h")  # some systems have it in a package
    for header, what in ((torchs, "torch"), (pythons, "Python")):
        if not os.path.exists(header):
            raise BuildError(f"the headers of {what} are missing: {header}")
    return compiler


def find_compiler() -> list[str]:
    """Returns the compiler's command: CXX if set, as for any build."""
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["g++", "c++", "clang++"]:
        words = name.split()
        if words and shutil.which(words[0]):
            return words
    if wanted:
        raise BuildError(f"CXX is {wanted}, and there is no such compiler")
    raise BuildError("there is no C++ compiler (Debian: apt-get install g++)")


def check_torch() -> None:
    """Whether this torch can do RPC at all; here it is imported."""
    try:
        import torch
        import torch.distributed.rpc as rpc
    except ImportError as error:
        raise BuildError(f"torch can't be imported: {first_line(str(error))}") from error
    if not rpc.is_available() or not hasattr(torch._C._distributed_rpc, "TensorPipeAgent"):
        raise BuildError(f"torch {torch.__version__} was built without RPC")


def flags(torch: str) -> list[str]:
    """Returns the flags that torch compiles extensions with: C++ standard and ABI."""
    include = os.path.join(torch, "include")
    with open(os.path.join(torch, "utils", "cpp_extension.py"), encoding="utf-8") as file:
        standards = re.findall(r"-std=(c\+\+\d\d)", file.read())
    import torch as imported

    abi = int(imported._C._GLIBCXX_USE_CXX11_ABI)
    return [
        f"-std={max(standards, default='c++17')}",
        *OPTIONS,
        *(f"-D{name}" for name in DEFINES),
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        f"-DTORCH_EXTENSION_NAME={NAME}",
        *("-isystem", include, "-isystem", os.path.join(include, "torch", "csrc", "api", "include")),
        *("-isystem", sysconfig.get_paths()["include"]),
    ]


def libraries(torch: str) -> list[str]:
    """Found again by what has imported torch: they are loaded then."""
    folder = os.path.join(torch, "lib")
    return [f"-L{folder}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", "-pthread"]


def compile_to(path: str, command: list[str], log: str) -> None:
    """Runs one command, with error messages in English."""
    command = [*command, "-o", path]
    with open(log, "w", encoding="utf-8") as output:
        output.write(" ".join(command) + "\n")
        output.flush()
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C"},
                timeout=SECONDS,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            raise BuildError(f"its build failed: {first_error(log)} (all of it: {log})") from error
        except subprocess.TimeoutExpired as error:
            raise BuildError(f"its build took longer than {SECONDS} s (log: {log})") from error
        except OSError as error:
            raise BuildError(f"{command[0]}: can't be run: {error.strerror}") from error


def first_error(log: str) -> str:
    """Returns the most telling line of a compiler's output."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()[1:]
    for word in (" error: ", "fatal error", "undefined reference", "rror"):
        for line in lines:
            if word in line:
                return line.strip()[:300]
    return lines[-1].strip()[:300] if lines else "the compiler printed nothing"


def load(path: str) -> None:
    """Tries to; `BuildError` if something that it names is not in this torch."""
    import torch  # noqa: F401 - its libraries must be there first

    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except ImportError as error:
        raise BuildError(f"it was built, but can't be loaded: {first_line(str(error))}") from error


def first_line(text: str) -> str:
    """What fits into a line."""
    return (text.strip().splitlines() or [""])[0][:300]


def look() -> Iterator[dict[str, Any]]:
    """Yields what there is for the agent, each part as soon as it is known, since importing torch takes its
    time: the library or the compiler that would build it; that torch has RPC; its GPUs. Nothing is built."""
    torch = torch_folder()
    path = os.path.join(cache_path(torch)[1], LIBRARY)
    try:
        if os.path.exists(path):
            refuse_a_strangers(path)
            yield {"library": path}
        else:
            yield {"compiler": " ".join(needed_compiler(torch))}
    except BuildError as error:
        yield {"lacks": str(error)}
    check_torch()
    import torch as imported

    yield {"rpc": True}
    gpus = [imported.cuda.get_device_name(at) for at in range(imported.cuda.device_count())]
    yield {"cuda": imported.version.cuda or getattr(imported.version, "hip", None), "gpus": gpus}


def main() -> None:
    """Runs in a process of another interpreter; prints JSON, a line each, `building` before a compilation."""
    try:
        for found in look() if sys.argv[1:] == ["--look"] else ():
            print(json.dumps(found), flush=True)
        if sys.argv[1:]:
            return
        path = library(lambda torch: print(json.dumps({"building": torch}), flush=True))
        told = {"library": path, "torch": torch_version(torch_folder()).get("__version__")}
    except BuildError as error:
        told = {"why": str(error)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
