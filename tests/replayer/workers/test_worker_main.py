"""What runs in the live workers' processes, part by part, each in a process of its own."""

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
    """What a program prints as JSON; it finds `worker_main` as `w`."""
    program = f"import sys, json; sys.path.insert(0, {str(FOLDER)!r}); import worker_main as w\n{code}"
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


def test_children_of_a_process() -> None:
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        pytest.skip("this kernel does not list children")
    found = run(
        "import subprocess\nc = subprocess.Popen(['sleep', '100'])\n"
        "seen = w.own_children()\nc.kill()\nc.wait()\n"
        "print(json.dumps([seen == [c.pid], w.own_children()]))"
    )
    assert found == [True, []]


def test_the_module_itself_needs_no_torch() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import worker_main; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
