"""What live workers import before they begin: torch, the user's modules, and those of names in messages.

In: names and files from the command line and from a plan. Out: which of the names are not there, and why; of
an import that fails, a report for our process, whatever the module has done to its process: exited, replaced
`sys.stderr`, closed files. Runs in live workers, and in the process that they are forked from.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.machinery
import os
import pdb
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO, TypeAlias, TypeVar

PACKAGE = Path(__file__).resolve().parents[2]
MADE_BY = {"_remote_module_non_scriptable": "torch.distributed.nn.api.remote_module"}
"""Modules without a file → what makes them when it is imported."""
MAIN_NAMES = ("__main__", "__mp_main__")
MAX_LINE = 1_000
"""Characters of an error's first line."""
TORCH = "torch.distributed.rpc"
Begin: TypeAlias = Callable[[str], None]
"""Called with the name of each import."""
T = TypeVar("T")


def told_if_fails(control: Any, imports: Callable[[Begin], T]) -> T | None:
    """Imports something; tells our process of each import. None: one has failed, and it was told why."""
    module = ""

    def begin(name: str) -> None:
        nonlocal module
        module = name
        control.send({"importing": name})

    try:
        return imports(begin)
    except BaseException as error:  # a module may raise anything, SystemExit too
        control.send(failed_import(module, error))
        return None


def import_torch(begin: Begin) -> bool:
    """Imports torch. Raises whatever that does."""
    begin(TORCH)
    with no_garbage():
        importlib.import_module("torch.distributed.autograd")
        importlib.import_module(TORCH)
    if importlib.import_module("torch.cuda").is_initialized():
        raise RuntimeError("torch has initialised CUDA when it was imported, and can't be forked then")
    return True


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """For imports of torch's own modules: nobody looks for garbage in what they make, now or in a worker,
    which would have pages of its own then."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def shadowed(path: Sequence[str], imported: Iterable[str]) -> list[str]:
    """Returns the names of imported modules of which folders that come first have another one."""
    names = []
    for name in imported:
        taken = getattr(sys.modules.get(name), "__spec__", None)
        if "." not in name and taken is not None and taken.has_location:
            found = importlib.machinery.PathFinder.find_spec(name, path)
            origin = None if found is None else found.origin  # a folder that is no package has none
            if origin is not None and os.path.realpath(origin) != os.path.realpath(taken.origin):
                names.append(name)
    return names


def load_and_tell(options: dict[str, Any], control: Any) -> dict[str, str] | None:
    """What `load` does, and `told_if_fails`."""
    missing = told_if_fails(control, functools.partial(load, options))
    if missing is not None:
        keep_standard_files()
    return missing


def load(options: dict[str, Any], begin: Begin) -> dict[str, str]:
    """Imports what messages name of torch, then the user's modules; returns which of the names in messages
    are not there, and why."""
    if options["debug"]:
        import rpcinspect.replayer.workers.live_debugger  # noqa: F401
    sys.breakpointhook = pdb.set_trace = refuse_breakpoint
    sys.argv = [options["main"] or "rpcinspect"]
    sys.dont_write_bytecode = True  # nothing may be left beside the user's files
    names = sorted(set(options["names"]))
    has_main = options["main"] is not None
    with no_garbage():
        missing = find_names((name for name in names if is_torchs(name)), begin, has_main=has_main)
    for name in options["imports"]:
        begin(name)
        importlib.import_module(name)
    if has_main:
        from rpcinspect.replayer.workers.live_worker import load_main

        begin(Path(options["main"]).stem)
        load_main(options["main"])
    missing |= find_names((name for name in names if not is_torchs(name)), begin, has_main=has_main)
    begin("")
    check_files(options["files"])
    return missing


def is_torchs(name: str) -> bool:
    """Whether a name in messages is one of torch's own, if it is anything."""
    return name.startswith("torch.")


def find_names(names: Iterable[str], begin: Begin, *, has_main: bool) -> dict[str, str]:
    """Imports the modules of names in messages; returns which can't be found there, and why."""
    missing = {}
    failed: dict[str, str] = {}
    begun = ""
    for name in names:
        if (module := name.rpartition(".")[0]) != begun:
            begin(begun := module)
        why = find_name(name, failed, has_main=has_main)
        if why is not None:
            missing[name] = why
    return missing


def about(missing: dict[str, str]) -> dict[str, Any]:
    """What our process is told of a process that has imported everything."""
    import torch

    return {"torch": str(torch.__version__), "missing": missing}


class ImportBreakpointError(Exception):
    """A module that is imported asks for a debugger."""


def refuse_breakpoint(*_: object, **__: object) -> None:
    """Takes the place of `breakpoint()` while modules are imported: all workers are copies of this process,
    which nobody can hold. Modules that have taken `set_trace` from pdb then call the debugger by it later."""
    if sys.breakpointhook is not refuse_breakpoint:
        sys.breakpointhook()
        return
    frame = sys._getframe(1)
    where = f"breakpoint() in {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    raise ImportBreakpointError(f"{where} is for functions that messages call, not for the import")


def check_files(files: dict[str, str]) -> None:
    """Raises `ImportError` where a module is not the source file that was read when its names were judged:
    because Python had imported one of that name before, or for what modules do to `sys.path` and
    `sys.modules`."""
    for name, file in files.items():
        if name in sys.modules:
            origin = getattr(getattr(sys.modules[name], "__spec__", None), "origin", None) or "elsewhere"
            if os.path.realpath(origin) != os.path.realpath(file):
                raise ImportError(f"{name} is imported from {origin}, not from {file}, which --path names")


def find_name(name: str, failed: dict[str, str], *, has_main: bool) -> str | None:
    """Imports the module of something that messages name, and looks for it there. Returns why it can't be
    found; None: it is there. `failed`: modules that could not be imported, to which more are added."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None  # an operator, or what only loading shows
    if parts[0] in MAIN_NAMES and not has_main:
        return "it is in the job's script, which --main FILE names"
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        if module in failed:
            return failed[module]
        try:
            found: Any = importlib.import_module(MADE_BY.get(module, module))
        except ModuleNotFoundError as error:
            if error.name is not None and f"{module}.".startswith(f"{error.name}."):
                continue  # the name of a class or a function, or nothing of it is there
            failed[module] = f"importing {module} fails: {error}"
        except ImportBreakpointError as error:
            failed[module] = str(error)
        except Exception as error:  # whatever its top level does
            print_error(error)
            failed[module] = f"importing {module} fails: {first_line(error)}"
        else:
            found = sys.modules.get(module, found)
            for number, part in enumerate(parts[count:], count):
                if not isinstance(found, (type, ModuleType)):
                    return None  # a method of what a function returns: known once it is called
                if not hasattr(found, part):
                    return f"{'.'.join(parts[:number])} has no {part}"
                found = getattr(found, part)
            return None
        return failed[module]
    return f"no module {parts[0]} is found; --path FOLDER lets live workers find modules"


def first_line(error: BaseException) -> str:
    """Returns the type of an error, and the first line of its text."""
    try:
        text = str(error)
    except Exception:  # the user's class makes the text
        text = "its text can't be made"
    first = next(iter(text.splitlines()), "")[:MAX_LINE]
    return type(error).__name__ + (f": {first}" if first else "")


def failed_import(module: str, error: BaseException) -> dict[str, Any]:
    """The report of an import that failed; a script that exits writes why to standard error itself."""
    why = str(error) if isinstance(error, ImportBreakpointError) else first_line(error)
    failed: dict[str, Any] = {"failed": why, "importing": module}
    if isinstance(error, SystemExit):
        if error.code is not None and not isinstance(error.code, int):
            with standard_error() as file:
                print(error.code, file=file)
        failed["exit"] = int(error.code) if isinstance(error.code, int) else int(error.code is not None)
    elif not isinstance(error, ImportBreakpointError):
        trace = error.__traceback__
        not_theirs = ("<frozen", importlib.__file__, str(PACKAGE))
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(not_theirs):
            trace = trace.tb_next
        if trace is not None:
            print_error(error.with_traceback(trace))
    return failed


def print_error(error: BaseException) -> None:
    """Prints an error with its traceback to standard error."""
    with standard_error() as file:
        traceback.print_exception(error, file=file)


def standard_error() -> TextIO:
    """Opens standard error as this process was given it; a module may have replaced `sys.stderr`."""
    flush()
    return open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def flush() -> None:
    """Writes out what standard output and errors still hold."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user's modules may have replaced it
            stream.flush()


def keep_standard_files() -> None:
    """Opens those of the files 0 to 2 again that a module has closed: whatever had their numbers otherwise
    would be written to."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
