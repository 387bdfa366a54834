"""Device maps on a terminal."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.views.questions.devices import QUESTION
from tests.checks.runs import workload_trace
from tests.cli.runner import visible
from tests.views.graphs import HOSTILE
from tests.views.opened import altered, told


def shown(maps: object) -> list[str]:
    return told(QUESTION.show(altered(workload_trace("devmap_cpu"), device_maps=maps), False))


def test_maps_and_what_they_need() -> None:
    maps = workload_trace("devmap_cpu").device_maps
    lines = shown(maps)
    assert len(lines) == 1 + len(maps) + 2
    assert any("cpu→cpu" in line for line in lines[1:])
    assert lines[-1] == "all tensors were on the CPU at both ends: no device map is needed"


def test_what_is_not_covered_has_its_line() -> None:
    one = workload_trace("devmap_cpu").device_maps[0]
    used = (("cuda:0", "cuda:1"), ("cpu", "cpu"))
    lines = shown([replace(one, used=used, uncovered=("cuda:2",), messages=(5,))])
    assert "cuda:0→cuda:1, cpu→cpu" in lines[1]
    assert lines[1].endswith("cuda:2 #5")
    assert lines[-1] == (
        f"on {one.caller}: options.set_device_map('{one.callee}', {{'cuda:0': 'cuda:1', 'cuda:2': ...}})"
    )


def test_a_device_that_no_map_may_name() -> None:
    lines = shown(workload_trace("faults/unfit").device_maps)
    assert lines[1].rstrip("#0123456789, ").endswith("meta in answers")
    assert lines[-1] == "a device map can't name the device meta: tensors on it can't be sent"


def test_captured_names_are_harmless() -> None:
    one = workload_trace("devmap_cpu").device_maps[0]
    hostile = replace(one, caller=HOSTILE, callee=HOSTILE, uncovered=(HOSTILE,), seen=(((HOSTILE, "cpu"),),))
    assert visible("\n".join(shown([hostile])))


def test_no_tensor_is_an_answer() -> None:
    assert shown([]) == ["no tensor was sent"]
