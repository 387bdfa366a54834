"""The command that is told installs into the environment that runs."""

from __future__ import annotations

import shlex
import sys

import pytest

from rpcinspect.commands.pip_hint import pip_install


def test_it_is_of_the_python_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for python in (sys.executable, "/an environment/bin/python"):
        monkeypatch.setattr(sys, "executable", python)
        told = shlex.split(pip_install("'rpcinspect[replay]'"))
        assert told == [python, "-m", "pip", "install", "rpcinspect[replay]"]
