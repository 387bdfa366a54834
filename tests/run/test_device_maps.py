"""Device maps: those that the workers set, and what tensors on other devices would need."""

from __future__ import annotations

from msgspec.structs import replace

from rpcinspect.run.device_maps import DeviceMap, part_of, read_device_maps
from rpcinspect.run.exchanges import Exchange
from tests.checks.runs import traced, workload_trace
from tests.places import recorded
from tests.truth import capture_of, workload


def maps(name: str) -> dict[tuple[str, str], DeviceMap]:
    return {(one.caller, one.callee): one for one in workload_trace(name).device_maps}


def test_maps_seen_are_those_that_the_workers_set() -> None:
    printed = {event["worker"]: event["maps"] for event in workload("devmap_cpu").of("device-maps")}
    seen = maps("devmap_cpu")
    assert seen
    for (caller, callee), one in seen.items():
        assert one.seen == (tuple(printed[caller].get(callee, {}).items()),)


def test_gradients_go_by_the_map_of_their_call() -> None:
    assert set(maps("basic_chain")) == {("worker0", "worker1")}
    (one,) = maps("basic_chain").values()
    tensors = sum(len(m["tensors"]) for m in workload("basic_chain").decoded.messages)
    assert one.tensors == tensors


def test_a_device_of_an_answer_that_could_not_be_sent() -> None:
    (truth,) = workload("faults/unfit").of("fault", code="device-map-missing")
    one = maps("faults/unfit")[truth["caller"], truth["callee"]]
    assert (one.uncovered, one.uncovered_answers, one.tensors) == ((), (truth["device"],), 0)
    assert len(one.messages) == 1
    assert one.line is None  # no map may name that one
    other = replace(one, uncovered_answers=("cuda:1",))
    assert other.line == f"options.set_device_map({truth['callee']!r}, {{...: 'cuda:1'}})"


def test_a_part_of_a_run_keeps_what_its_answers_say() -> None:
    trace = workload_trace("faults/unfit")
    calls = trace.exchanges.calls
    (failed,) = [call for call in calls if call.function == "faults.on_meta"]
    assert part_of(trace.device_maps, calls, {failed.index}) == trace.device_maps
    assert part_of(trace.device_maps, calls, {failed.index + 2}) == ()


def test_the_cpu_needs_no_map() -> None:
    for name in ("basic_chain", "devmap_cpu", "ps_race"):
        for one in maps(name).values():
            assert one.used == (("cpu", "cpu"),) or one.tensors == 0
            assert (one.line, one.uncovered, one.messages) == (None, (), ())
    for one in traced(recorded("torch/devmap.pcap")).device_maps:
        assert one.messages == ()


def on_cuda(call: Exchange, *, answer: bool) -> None:
    """Makes the tensors of a decoded message say that they are on a GPU: no CPU can send such a one."""
    record = call.response if answer else call.request
    assert record is not None
    metas = tuple(replace(meta, device="cuda:1") for meta in record.rpc.tensors)
    record.rpc = replace(record.rpc, tensors=metas)
    for tensor in record.tp.tensors:
        tensor.descriptor = replace(tensor.descriptor, target_device=None)


def test_a_device_without_a_map_gets_its_line() -> None:
    trace = traced(capture_of("devmap_cpu"))
    calls = [call for call in trace.exchanges.calls if call.request.rpc.tensors and call.response is not None]
    first = calls[0]
    on_cuda(first, answer=False)
    try:
        (one,) = read_device_maps([first])
        assert one.uncovered == ("cuda:1",)
        assert one.messages == (first.index,)
        assert one.line == f"options.set_device_map({first.callee!r}, {{'cuda:1': ...}})"
    finally:
        traced.cache_clear()


def test_a_device_that_answers_come_from_is_told_apart() -> None:
    trace = traced(capture_of("devmap_cpu"))
    first = next(call for call in trace.exchanges.calls if call.response and call.response.rpc.tensors)
    on_cuda(first, answer=True)
    try:
        (one,) = read_device_maps([first])
        assert one.uncovered_answers == ("cuda:1",)
        assert one.messages == (first.answer,)
        assert one.line == f"options.set_device_map({first.callee!r}, {{...: 'cuda:1'}})"
    finally:
        traced.cache_clear()
