"""Remote references in the process that plays a worker; whole replays with them are in
test_agent_engine.py."""

from __future__ import annotations

import json

import pytest

from tests.replay.agent.test_tensors import in_process

pytest.importorskip("torch")

IDS = """
import json
from rpcinspect.replay.agent.rrefs import ids_of
guid = "GloballyUniqueId(created_on={}, local_id={})"
shown = f"UserRRef(RRefId = {guid.format(1, 20)}, ForkId = {guid.format(1, 21)})"
try:
    ids_of("OwnerRRef(GloballyUniqueId(created_on=0, local_id=1))")
    wrong = False
except RuntimeError:
    wrong = True
print(json.dumps([ids_of(shown), wrong]))
"""


def test_ids_as_torch_shows_them() -> None:
    assert json.loads(in_process(IDS)) == [[[1, 20], [1, 21]], True]
