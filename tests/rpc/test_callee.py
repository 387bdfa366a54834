"""Who is called, as a person says it; the recorded job says which methods of which classes ran."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from rpcinspect.pickles.tree import Global
from rpcinspect.rpc.callee import Callee, Name, callee_of, name_of
from rpcinspect.run.run import RunModel
from tests.checks.runs import traced
from tests.places import content, recorded
from tests.replayer.planning.pickled import Raw, name, opcodes, rebuilt, request, rref
from tests.replayer.talks import answer_of, request_of

HEAD = Global("app", "Head")
PROXY = ("torch.distributed.rpc.rref_proxy", "_local_invoke")
HELPER = name("app", "_call_method")


def called(function: Raw, *args: object, made: Global | None = None) -> Name:
    callee = callee_of(request_of(request(function, *args)))
    assert callee is not None
    return name_of(callee, made if callee.through else None)


@pytest.mark.parametrize("helper", ["_local_invoke", "_local_invoke_async_execution"])
def test_proxies_of_rrefs(helper: str) -> None:
    args: tuple[object, ...] = (rref(1), "step", (), {})
    proxy = name(PROXY[0], helper)
    assert called(proxy, *args, made=HEAD) == Name("Head.step", "app.Head.step", "step", "app.Head")
    assert called(proxy, *args) == Name("step", "step", "step")  # its maker was not captured


def test_remote_modules() -> None:
    forward = name("_remote_module_non_scriptable", "_remote_forward")
    assert called(forward, rref(1), "cpu", False, made=HEAD).short == "Head.forward"
    create = name("torch.distributed.nn.api.remote_module", "_create_module")
    assert called(create, name("app", "Head"), (), {}, "cpu").short == "app.Head"


def test_helpers_that_are_given_a_method_and_an_rref() -> None:
    method = name("app", "Base.step")
    assert called(HELPER, method, rref(1), 3).short == "Base.step"
    assert called(HELPER, method, rref(1), 3, made=HEAD).short == "Head.step"
    assert called(HELPER, rref(1), method, made=HEAD).short == "Head.step"
    build = Global("app", "build")
    assert called(HELPER, method, rref(1), made=build).short == "Base.step"


def test_what_a_function_made_is_named_by_it() -> None:
    proxy, build = name(*PROXY), Global("app", "build")
    assert called(proxy, rref(1), "step", (), {}, made=build) == Name(
        "build().step", "app.build().step", "step"
    )


def test_a_method_of_a_class_is_named_by_the_class() -> None:
    """`rpc_sync(to, str.upper, …)` pickles as `getattr(str, "upper")`: nothing is made on the way."""
    method = rebuilt(name("builtins", "getattr"), name("builtins", "str"), "upper")
    assert called(method, "abc") == Name("str.upper", "builtins.str.upper", "upper", "builtins.str")


@pytest.mark.parametrize("first", ["build", "Head", "Outer.Head"])
def test_a_function_or_class_that_a_helper_is_given_may_be_for_anything(first: str) -> None:
    assert called(HELPER, name("app", first), rref(1)).short == "app._call_method"


def test_functions_keep_their_names() -> None:
    assert called(name("app", "f"), rref(1)) == Name("app.f", "app.f")
    assert called(HELPER).short == "app._call_method"
    assert called(HELPER, rref(1), "step").short == "app._call_method"


def test_two_classes_of_one_name_differ_in_full() -> None:
    proxy = name(*PROXY)
    one, other = (called(proxy, rref(1), "f", (), {}, made=Global(m, "Head")) for m in ("a", "b"))
    assert one.short == other.short == "Head.f"
    assert one.full != other.full


def test_answers_and_damaged_pickles_call_nobody() -> None:
    assert callee_of(answer_of(b"\x80\x04" + opcodes(3) + b".")) is None
    whole = request(name("app", "f"))
    assert callee_of(request_of(whole[:-4])) in (None, Callee("app.f"))


def test_a_class_is_known_from_what_made_the_object() -> None:
    run = traced(recorded("reports/latency/waits.rpclog"))
    slept = [json.loads(line) for line in content("reports/latency/waits.truth").splitlines()]
    said = Counter(line["what"].partition(",")[0] for line in slept if "what" in line)
    told = names(run)
    assert told["Outer.forward"] == said["Outer"] / 2  # it says so twice
    assert told["Inner.forward"] == said["Inner"]
    assert told["Counter.tick"] == said["Counter.tick"]
    assert told["Fast.tick"] == said["Fast.tick"]
    for function in ("slow", "later", "outer", "inner", "use"):
        assert told[f"waits_parts.{function}"]
    assert not [what for what in told if "_local_invoke" in what or "_call_method" in what]


def test_scripted_modules() -> None:
    """Their RRef travels as the JIT's pickler writes it; a function made the module."""
    told = names(traced(recorded("torch-suite/RemoteModuleTest.test_forward_sync_script.pcap")))
    assert told["create_scripted_module().forward"] == 1


def names(run: RunModel) -> Counter[str]:
    return Counter(call.what for call in run.exchanges.calls if call.name is not None and not call.control)
