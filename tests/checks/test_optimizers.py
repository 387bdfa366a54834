"""What the steps of recorded jobs change, and which RRefs are of one module."""

from __future__ import annotations

import pytest

from rpcinspect.checks.optimizers import STEPS, Optimizers
from rpcinspect.session.model import Session
from tests.checks.talks import of_path
from tests.places import recorded


def read(capture: str) -> tuple[Session, Optimizers]:
    """The steps are made in the contexts whose gradients they apply."""
    session, _ = of_path(str(recorded(capture)))
    provenance = session.provenance
    rows = [row for row in range(len(provenance.kind)) if provenance.kind_of(row).function in STEPS]
    return session, Optimizers(session, [(row, provenance.context[row]) for row in rows])


@pytest.mark.parametrize("name", ["stale_own", "stale_shared"])
def test_parameters_belong_to_the_module_that_was_asked_for_them(name: str) -> None:
    """Each of two trainers made a module, asked for RRefs of its weight and bias, and steps four times."""
    _, optimizers = read(f"reports/findings/{name}.pcap")
    assert len(optimizers.parameters) == 2
    assert len(optimizers.steps) == 8
    for step in optimizers.steps:
        trainer = step.context >> 48
        own = [rref for rref in step.trained if rref[0] == trainer]
        assert own == [(trainer, 0)]  # the first RRef that it made
        assert len(step.trained) == 3
    moments = [step.arrived_ns for step in optimizers.steps]
    assert moments == sorted(moments)


def test_modules_that_a_call_used() -> None:
    session, optimizers = read("reports/findings/stale_own.pcap")
    for context in session.contexts:
        trainer = context.context_id >> 48
        answers = [edge for edge in context.edges if edge.sender == "worker0"]
        assert [optimizers.used(context, edge) for edge in answers] == [{(trainer, 0)}] * len(answers)
        requests = [edge for edge in context.edges if edge.sender != "worker0"]
        assert all(optimizers.used(context, edge) == frozenset() for edge in requests)


@pytest.mark.parametrize(
    ("name", "one"), [("stale_own.pcap", False), ("stale_shared.pcap", True), ("twins.rpclog", False)]
)
def test_whether_two_modules_are_one(name: str, one: bool) -> None:
    _, optimizers = read(f"reports/findings/{name}")
    assert optimizers.one_object(0, (1, 0), (2, 0)) is one
    assert optimizers.one_object(0, (2, 0), (1, 0)) is one
