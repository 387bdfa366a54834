"""Of which class the objects behind RRefs are."""

from __future__ import annotations

import pytest

from rpcinspect.session.callees import classes_of
from tests.checks.talks import of_path
from tests.places import recorded

OPTIM = "torch.distributed.optim.optimizer"


@pytest.mark.parametrize(
    ("capture", "classes"),
    [
        ("reports/findings/plain_sgd.pcap", {"__mp_main__.Server"}),  # plain_sgd.py
        (
            "reports/findings/stale_own.pcap",
            {"stale.make", f"{OPTIM}._new_script_local_optimizer"},
        ),  # functions
        (
            "reports/latency/rref_proxies.rpclog",
            {"torchrl.collectors._single.Collector"},
        ),
    ],
)
def test_what_jobs_made(capture: str, classes: set[str]) -> None:
    session, _ = of_path(str(recorded(capture)))
    assert {str(name) for name in classes_of(session).values()} == classes
