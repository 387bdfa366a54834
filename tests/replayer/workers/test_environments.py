"""Environments that are made: by venv and pip, from a wheel of this test's; told before, used again."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from rpcinspect.errors import ReplayError
from rpcinspect.replayer.workers.environments import environments_folder, made
from rpcinspect.replayer.workers.interpreters import examine

RECORD = "torch/__init__.py,,\ntorch-9.9.dist-info/METADATA,,\ntorch-9.9.dist-info/WHEEL,,\n"


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of a user whose pip finds one wheel, torch 9.9."""
    with zipfile.ZipFile(tmp_path / "torch-9.9-py3-none-any.whl", "w") as wheel:
        wheel.writestr("torch/__init__.py", "__version__ = '9.9'\n")
        note = "torch-9.9.dist-info"
        wheel.writestr(f"{note}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{note}/WHEEL", tag)
        wheel.writestr(f"{note}/RECORD", RECORD + f"{note}/RECORD,,\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path / "cache"


def test_made_once(offline: Path) -> None:
    told: list[str] = []
    python = made("torch==9.9", told.append)
    assert python.startswith(str(offline / "rpcinspect" / "environments" / "torch-9.9-cpython-3."))
    assert told[0].startswith("making an environment with torch==9.9 in ")
    assert "several GB" in told[0]
    assert "pip: Successfully installed torch-9.9" in told
    assert examine(python).torch == "9.9"
    assert subprocess.check_output([python, "-c", "import torch; print(torch.__version__)"]) == b"9.9\n"
    told.clear()
    assert made("torch==9.9", told.append) == python
    assert told == []


def test_a_release_that_pip_does_not_find(offline: Path) -> None:
    with pytest.raises(ReplayError, match=r"no environment with torch==8\.8 can be made: .*torch==8\.8"):
        made("torch==8.8", lambda line: None)
    assert list(environments_folder().iterdir()) == []


def test_one_that_others_can_write_to(offline: Path) -> None:
    offline.mkdir(mode=0o700)
    for folder in (offline / "rpcinspect", environments_folder()):
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(ReplayError, match="others can write there; set XDG_CACHE_HOME"):
        made("torch==9.9", lambda line: None)
