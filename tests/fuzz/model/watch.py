"""Seeing what runs: names that unpicklers import, Python code that runs, what the system is asked for.

The property, of one job: (1) every name that is really imported, as it is after `_compat_pickle`, is one that
the plan named; (2) nothing of `canary` runs, nor of `job` beyond what was named; a function that torch calls
by rpc is called by nobody but torch, and no value reaches it; `getattr`, codecs and reconstructors are used
for what they are there for; (3) no file, process, import, socket, nor any other thing that Python tells its
audit hooks of. `reach` looks at values, `places` at what must stay as it is.
"""

from __future__ import annotations

import codecs
import copyreg
import sys
import types
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch.distributed.rpc import internal

from tests.fuzz.model.jobs import Fault, Job
from tests.fuzz.model.permissions import CANARY, USERS, called_by_rpc, permitted

RECEIVERS = ("_tensor_receiver", "_py_rref_receiver")
ARCHIVES = "_script_module_receiver"
TOLD = """
    os. subprocess. socket. shutil. ctypes. pty. ftplib. http. urllib. smtplib. sqlite3. tempfile. webbrowser.
    winreg. mmap. fcntl. resource. syslog. glob. pathlib. marshal. code. function. cpython.run builtins.input
    builtins.breakpoint sys.settrace sys.addaudithook sys.unraisablehook gc. exec compile open import
"""
TELL = tuple(TOLD.split())
"""How events of Python's audit hooks begin that must not come. Not `sys.setprofile`: Python takes our hook
out by itself where it has no stack left for it, and the next phase puts it in again."""
OLD_MODULES = frozenset({"__builtin__", "exceptions", "copy_reg"})
"""Of Python 2, whose names a plan may have under the old name."""
RECONSTRUCTOR = copyreg._reconstructor.__code__  # type: ignore[attr-defined]
FROM_TYPE = torch._tensor._rebuild_from_type_v2.__code__
SENDING = frozenset(function.__code__ for function in (rpc.rpc_sync, rpc.rpc_async, rpc.remote))
TENSOR_RECEIVER = internal._InternalRPCPickler._tensor_receiver.__func__  # type: ignore[attr-defined]


class Stop(BaseException):
    """A fault was seen: whatever runs ends here."""


class Watch:
    """Of one job."""

    def __init__(self, job: Job, call_sites: frozenset[types.CodeType]) -> None:
        self.named = frozenset(job.named)
        self.permitted = permitted(self.named, job.strict)
        self.called_by_rpc = called_by_rpc(self.named)
        self.faults: list[Fault] = []
        self.notes: set[str] = set()
        self._call_sites = call_sites

    def fault(self, kind: str, what: str) -> Stop:
        """To be raised."""
        if not self.faults:  # where one was seen, the hooks are being taken out
            self.faults.append(Fault(kind, what[:300]))
        return Stop()

    # --- names ---

    def find(self, module: str, name: str, really: Callable[[str, str], Any]) -> Any:
        """`find_class`: the object, if the plan named it."""
        before, after = f"{module}.{name}", ".".join(mapped(module, name))
        if before not in self.named and after not in self.named:
            raise self.fault("import", before if before == after else f"{before} or {after}")
        found = really(module, name)
        if before != after and found is not getattr(sys.modules.get(module), name, None):
            if after not in self.named and module not in OLD_MODULES:
                raise self.fault("mapped", f"{before} is {after}")
        elif before not in self.named:
            raise self.fault("mapped", f"{before} is not {after}")
        if found is getattr:
            return self.getattr
        return self.encode if found is codecs.encode else found

    def nested(self, module: str, name: str) -> None:
        """What the untouched unpickler looks up, and any that we did not make."""
        if f"{module}.{name}" not in self.named and ".".join(mapped(module, name)) not in self.named:
            raise self.fault("import", f"{module}.{name}, by another unpickler")

    def getattr(self, *args: Any) -> Any:
        """In place of Python's."""
        owner, name = (*args, None, None)[:2]
        if owner is internal._InternalRPCPickler:
            good = name in RECEIVERS or (name == ARCHIVES and "torch.jit.load" in self.named)
        else:
            cls = owner if isinstance(owner, type) else type(owner)
            good = f"{cls.__module__}.{cls.__qualname__}.{name}" in self.named
        if not good:
            raise self.fault("getattr", f"{said(owner)}, {name!r}")
        return getattr(*args)

    def encode(self, *args: Any) -> Any:
        """In place of Python's."""
        if args[1:] != ("latin1",):
            raise self.fault("codec", repr(args[1:]))
        return codecs.encode(*args)

    # --- code ---

    def code(self, frame: types.FrameType, phase: str) -> None:
        """A Python function begins."""
        code = frame.f_code
        if code.co_filename in (CANARY, USERS):
            if code not in self.permitted:
                raise self.fault("called", f"{Path(code.co_filename).stem}.{code.co_qualname}")
        elif code in self.called_by_rpc:
            self._by_rpc(code, frame.f_back.f_code if frame.f_back is not None else None, phase)
        elif code in SENDING and phase == "load":
            raise self.fault("called", f"torch.distributed.rpc.api.{code.co_name}, {phase}")
        elif code is RECONSTRUCTOR:
            base = frame.f_locals["base"]
            if not isinstance(base, type):
                raise self.fault("called", f"copyreg._reconstructor(…, {said(base)})")
        elif code is FROM_TYPE:
            self._reconstructs(frame.f_locals["func"])
        else:
            self.notes.add(f"{frame.f_globals.get('__name__')}.{code.co_qualname}")

    def _by_rpc(self, code: types.CodeType, by: types.CodeType | None, phase: str) -> None:
        """A function that torch calls by rpc: as the request's function, or by another one that names it."""
        if by in self._call_sites and phase == "call":
            return
        if by is None or by not in self.called_by_rpc or by is code or code.co_name not in by.co_names:
            raise self.fault("called", f"{self.called_by_rpc[code]} by {by and by.co_qualname}, {phase}")

    def _reconstructs(self, function: Any) -> None:
        """The function of `_rebuild_from_type_v2`."""
        ours = getattr(function, "__code__", None) in self.permitted
        of_torch = (
            isinstance(function, types.FunctionType) and function.__module__ == "torch._utils"
        ) or getattr(function, "__func__", None) is TENSOR_RECEIVER
        if not (isinstance(function, type) or ours or of_torch):
            raise self.fault("called", f"torch._tensor._rebuild_from_type_v2({said(function)})")


class Watching:
    """The hooks of this process, which can't be taken out again: they look at the job that is at work."""

    def __init__(self, call_sites: frozenset[types.CodeType], quiet: frozenset[str]) -> None:
        """`call_sites`: where a request's function is called; `quiet`: files of the oracle itself."""
        self._phase = ""
        self._call_sites = call_sites
        self._quiet_files = quiet
        self.current: Any = None
        sys.addaudithook(self._audit)

    def begin(self, job: Job) -> Watch:
        """A new job is at work, and not watched yet."""
        self.current = Watch(job, self._call_sites)
        return self.current  # type: ignore[no-any-return]

    def resume(self, phase: str) -> None:
        """From here on: `load`, `call`, `use`."""
        self._phase = ""
        sys.setprofile(self._profile)
        self._phase = phase

    def pause(self) -> None:
        """What runs now is the oracle's own."""
        self._phase = ""
        sys.setprofile(None)

    def _profile(self, frame: types.FrameType, event: str, arg: object) -> None:
        if event == "call" and self._phase and frame.f_code.co_filename not in self._quiet_files:
            self.current.code(frame, self._phase)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        phase = self._phase
        if not phase or not event.startswith((*TELL, "pickle.find_class")):
            return
        self._phase = ""  # what is done here is not watched
        try:
            if event == "pickle.find_class":
                self.current.nested(*args)
            elif event != "import" or args[0] not in sys.modules:
                raise self.current.fault("system", f"{event} {str(args)[:200]}")
        finally:
            self._phase = phase


def mapped(module: str, name: str) -> tuple[str, str]:
    """As protocols below 3 are read."""
    found = NAME_MAPPING.get((module, name))
    return found if found is not None else (IMPORT_MAPPING.get(module, module), name)


def said(value: Any) -> str:
    """A name for a value, without asking it anything."""
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return f"{value.__module__}.{value.__qualname__}"
    return f"a {type(value).__name__}"
