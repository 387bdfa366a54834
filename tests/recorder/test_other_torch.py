"""The agent on another release of torch, where an interpreter that has one is named: as on this one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

import pytest

from rpcinspect.errors import RecordError
from rpcinspect.recorder.library import build_agent
from tests.recorder.both import WORKLOADS, hold_against_each_other, record_both
from tests.recorder.parts import Part

pytestmark = [pytest.mark.slow, pytest.mark.rooted]

VARIABLE = "RPCINSPECT_OTHER_PYTHON"


@pytest.fixture(scope="module")
def other_python() -> str:
    """An interpreter with another torch; the agent is built for it."""
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no interpreter with another release of torch")
    try:
        library = build_agent(python)
    except RecordError as error:
        pytest.fail(f"{python}: {error}")
    told = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True, text=True
    )
    assert told.stdout.strip() == library.torch
    return python


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, other_python: str) -> Mapping[str, Part]:
    """The workloads, recorded by both."""
    return record_both(tmp_path_factory.mktemp("other"), other_python)


@pytest.mark.parametrize("name", WORKLOADS)
def test_wire_and_agent_say_the_same_of_a_run(recorded: Mapping[str, Part], name: str) -> None:
    hold_against_each_other(recorded[name])
