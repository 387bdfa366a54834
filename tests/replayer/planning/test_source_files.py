"""Which file a module would be imported from; the truth is what CPython's import system finds."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

from rpcinspect.replayer.planning.source_files import SearchPath

ORACLE = """
import json, sys
from importlib.machinery import PathFinder
own = sys.path[:]
def origin(name, folders):
    for part in name.split("."):  # a part alone: with its package, that would have to be imported
        spec = None if folders is None else PathFinder.find_spec(part, folders)
        folders = None if spec is None else spec.submodule_search_locations
        folders = getattr(folders, "_path", folders)  # of a folder without __init__
    return spec.origin if spec is not None and spec.has_location else None
for line in sys.stdin:
    folders, names = json.loads(line)
    print(json.dumps({name: origin(name, [*folders, *own]) for name in names}))
"""
Found = dict[str, str | None]


def imported_from(cases: list[tuple[list[Path], list[str]]]) -> list[Found]:
    """For folders in front of a Python process's path, and modules: the file of each module."""
    lines = [json.dumps([[*map(str, folders)], modules]) for folders, modules in cases]
    command = [sys.executable, "-I", "-B", "-c", ORACLE]
    told = subprocess.run(command, input="\n".join(lines), capture_output=True, check=True, text=True)
    return [json.loads(line) for line in told.stdout.splitlines()]


def place(folder: Path, *names: str) -> Path:
    """Empty files."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder.resolve()


def found(search: SearchPath, modules: list[str]) -> Found:
    files = {module: search.find(module) for module in modules}
    assert all(f.compiled == (f.path.suffix != ".py") for f in files.values() if f is not None)
    return {module: None if file is None else str(file.path) for module, file in files.items()}


FIRST = ("m.py", "m/__init__.py", "m/part.py", "m.so", "m.pyc", "m/__init__.so", "m/part/inner.py")
SECOND = [("m.py",), ("m/__init__.py", "m/part.py"), ("m/part.py",), ("m/part/inner.py",)]
MODULES = ["m", "m.part", "m.part.inner", "m.__init__", "absent"]


def test_as_python_finds_it(tmp_path: Path) -> None:
    """Whatever few of these files lie in a folder, before another folder that has the module too."""
    shapes = [shape for n in range(4) for shape in itertools.combinations(FIRST, n)]
    folders = []
    for number, (first, second) in enumerate(itertools.product(shapes, SECOND)):
        case = place(tmp_path / str(number))
        folders.append([place(case / "a", *first), place(case / "b", *second)])
    expected = imported_from([(pair, MODULES) for pair in folders])
    for pair, files in zip(folders, expected, strict=True):
        assert found(SearchPath(pair), MODULES) == files


def test_a_file_is_the_users_only_where_he_named_it(tmp_path: Path) -> None:
    own = place(tmp_path / "own", "one.py", "other.py", "space/leaf.py", "pkg/__init__.py", "pkg/leaf.py")
    later = place(tmp_path / "later", "other.py", "last.py", "space/__init__.py", "space/more.py")
    modules = ["one", "other", "last", "pkg.leaf", "space.leaf", "space.more"]
    (expected,) = imported_from([([own, later], modules)])
    whole = SearchPath([own], None, [later])
    # a package elsewhere goes before a folder without __init__, and what lies there is not the user's
    assert found(whole, modules) == {**expected, "last": None, "space.leaf": None, "space.more": None}
    single = SearchPath([own / "one.py", later])
    # `other` would be imported from the folder of one.py, which is searched but was not named
    assert found(single, modules) == {**expected, "other": None, "pkg.leaf": None}


def test_parts_of_a_namespace_elsewhere_are_not_the_users(tmp_path: Path) -> None:
    own = place(tmp_path / "own", "space/leaf.py")
    later = place(tmp_path / "own" / "site", "space/more.py", "alone.py")
    search = SearchPath([own], None, [later])
    assert search.find("space.leaf") is not None
    assert search.find("space.more") is None
    # a folder within the user's from which others' modules are imported: a virtual environment
    assert search.find("alone") is None
    assert search.find("site.alone") is None  # the standard library's name
