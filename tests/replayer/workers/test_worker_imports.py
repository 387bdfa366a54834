"""What live workers import, part by part, each in a process of its own: what is found, and what is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rpcinspect.replayer.workers import workers
from tests import forks

FOLDER = Path(workers.__file__).parent


def run(code: str, *arguments: str) -> object:
    """What a program prints as JSON; it finds `worker_imports` as `w`."""
    program = f"import sys, json; sys.path.insert(0, {str(FOLDER)!r}); import worker_imports as w\n{code}"
    done = forks.run([sys.executable, "-B", "-c", program, *arguments], timeout=60, check=True)
    return json.loads(done.stdout)


def test_a_script_of_any_name_becomes_main(tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text(
        "import sys\nWHO = __name__\nARGS = sys.argv\nclass Model: pass\n"
        "if __name__ == '__main__': raise SystemExit(1)\n",
        encoding="utf-8",
    )
    found = run(
        "w.load({'imports': [], 'main': sys.argv[1], 'names': [], "
        "'files': {}, 'debug': False}, lambda name: None)\n"
        "import __main__ as m, __mp_main__\n"
        "print(json.dumps([m is __mp_main__, m.WHO, m.ARGS, m.Model.__module__]))",
        str(script),
    )
    assert found == [True, "__mp_main__", [str(script)], "__mp_main__"]
    assert os.listdir(tmp_path) == ["train"]


def test_modules_come_from_the_files_that_were_read(tmp_path: Path) -> None:
    for folder in ("own", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("import sys\nsys.modules['odd'] = object()\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "own" / "mine.py")
    found = run(
        "import json\nfolder = sys.argv[1]\nsys.path.insert(0, folder + '/own')\nimport mine\n"
        "def said(name, file):\n"
        "    try: return w.check_files({name: folder + file})\n"
        "    except ImportError as error: return str(error).replace(folder, '')\n"
        "print(json.dumps([said('mine', '/own/mine.py'), said('mine', '/link.py'), said('absent', '/x.py'),"
        " said('mine', '/other/mine.py'), said('odd', '/own/odd.py')]))",
        str(tmp_path),
    )
    assert found == [
        *(None, None, None),
        "mine is imported from /own/mine.py, not from /other/mine.py, which --path names",
        "odd is imported from elsewhere, not from /own/odd.py, which --path names",
    ]


NAMES = """
def make_table():
    return Table()

class Table:
    def rows(self): ...
"""


def test_names_that_are_there_and_those_that_are_not(tmp_path: Path) -> None:
    """Methods of what a function returns are unknown until it is called: a job may make its RRefs by one."""
    (tmp_path / "app.py").write_text(NAMES, encoding="utf-8")
    names = ["app.make_table", "app.make_table.rows", "app.Table.rows", "app.Table.gone", "app.gone", "no.f"]
    found = run(
        "sys.path.insert(0, sys.argv[1])\n"
        "print(json.dumps([w.find_name(name, {}, has_main=False) for name in json.loads(sys.argv[2])]))",
        str(tmp_path),
        json.dumps(names),
    )
    gone = "no module no is found; --path FOLDER lets live workers find modules"
    assert found == [None, None, None, "app.Table has no gone", "app has no gone", gone]


ERRORS = {
    "of two lines": ("ValueError('one\\ntwo')", "ValueError: one"),
    "without a text": ("ValueError()", "ValueError"),
    "whose text can't be made": (
        "type('Bad', (Exception,), {'__str__': lambda self: 1 / 0})()",
        "Bad: its text can't be made",
    ),
    "of five million characters": ("ValueError('z' * 5_000_000)", "ValueError: " + "z" * 1000),
}


@pytest.mark.parametrize(("error", "told"), ERRORS.values(), ids=ERRORS)
def test_the_first_line_of_an_error(error: str, told: str) -> None:
    assert run(f"print(json.dumps(w.first_line({error})))") == told


def test_errors_go_to_the_file_of_standard_error() -> None:
    """A module may have put something else in the place of `sys.stderr`, or nothing."""
    code = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import worker_imports as w\n"
        "sys.stdout = sys.stderr = None\nw.print_error(ValueError('from \\udc80 a module'))"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "ValueError: from \\udc80 a module\n")


def test_files_that_a_module_has_closed() -> None:
    """A socket that took the number 2 would be written to by whoever prints an error."""
    assert run(
        "import os\nos.close(0)\nos.close(2)\nw.keep_standard_files()\n"
        "print(json.dumps(os.open('/', os.O_RDONLY) > 2))"
    )
