"""torch's own helpers pass with what torch gives them, and with nothing that only looks alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.pickles.safe_names import HELPERS
from rpcinspect.pickles.tree import Global
from rpcinspect.replayer.planning.allowances import Allowance
from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.replayer.planning.torch_helpers import SIGNATURES, rref_classes
from rpcinspect.rpc.command import PythonCall, PythonRemoteCall, PythonResp, RemoteRet
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.session.provenance import Id
from tests.replayer.planning.pickled import Raw, name, opcodes, request, rref, tensor
from tests.replayer.talks import Workers, request_of

API, PROXY = "torch.distributed.rpc.api", "torch.distributed.rpc.rref_proxy"
MODULES, OPTIM = "torch.distributed.nn.api.remote_module", "torch.distributed.optim.optimizer"
LINEAR = name("torch.nn.modules.linear", "Linear")
SGD = name("torch.optim.sgd", "SGD")
DUCK = Raw(b"\x8c\x05types\x8c\x0fSimpleNamespace\x93)R}\x8c\x0blocal_valueNsb")
NET = Global("app", "Net")

SOURCE = """
import torch
class Net(torch.nn.Module):
    def forward(self, x): ...
    def helper(self): ...
    alias = print
class Runner:
    def step(self): ...
class Loader(type(print)): ...
def make(): ...
"""


@pytest.fixture
def files(tmp_path: Path) -> Sources:
    (tmp_path / "app.py").write_text(SOURCE, encoding="utf-8")
    return Sources(None, [tmp_path])


def refused(
    data: bytes, sources: Sources, made: Mapping[Id, Global] | None = None, allow: tuple[str, ...] = ()
) -> dict[str, str]:
    """Name → what `--allow` would let it pass."""
    found = [one for one in map(Allowance.parse, allow) if one is not None]
    named = ExecutionPolicy(found, sources).inspect(request_of(data), made)
    return {one.name: one.allow for one in named if not one.allowed}


def test_each_helper_has_a_form() -> None:
    assert {one.name for one in HELPERS} == set(SIGNATURES)
    assert len(HELPERS) == len(SIGNATURES)


HONEST: dict[str, tuple[Any, ...]] = {
    "get_worker_info": (name(API, "get_worker_info"), "worker1"),
    "_rref_typeof_on_owner": (name(API, "_rref_typeof_on_owner"), rref(1), True),
    "_param_rrefs": (name(MODULES, "_param_rrefs"), rref(1), True),
    "_create_module": (name(MODULES, "_create_module"), LINEAR, (20, 30), {}, "cpu"),
    "of the user's class": (name(MODULES, "_create_module"), name("app", "Net"), (), {"a": 1}, "cpu"),
    "_new_local_optimizer": (name(OPTIM, "_new_local_optimizer"), SGD, [rref(1), rref(2)]),
    "_local_optimizer_step": (name(OPTIM, "_local_optimizer_step"), rref(1), 5),
    "get_gradients": (name("torch._C._distributed_autograd", "get_gradients"), 5),
}


@pytest.mark.parametrize("case", HONEST)
def test_what_torch_sends_passes(case: str, files: Sources) -> None:
    function, *args = HONEST[case]
    optimizer = Global(OPTIM, "_new_local_optimizer")
    made = {(0, 1): optimizer if case == "_local_optimizer_step" else NET}
    assert refused(request(function, *args), files, made) == {}


def test_options_by_name(files: Sources) -> None:
    optimizer = name(OPTIM, "_new_local_optimizer")
    assert refused(request(optimizer, SGD, [rref(1)], lr=0.1, momentum=0.9), files) == {}
    assert refused(request(name(API, "_rref_typeof_on_owner"), rref(1), blocking=False), files) == {}


WRONG: dict[str, tuple[Any, ...]] = {
    "what looks like an RRef": (name(API, "_rref_typeof_on_owner"), DUCK),
    "what looks like a module": (name(MODULES, "_param_rrefs"), DUCK, True),
    "what looks like an optimizer": (name(OPTIM, "_local_optimizer_step"), DUCK, 5),
    "a list that is none": (name(OPTIM, "_new_local_optimizer"), SGD, DUCK),
    "not a class": (name(MODULES, "_create_module"), "Linear", (), {}, "cpu"),
    "a type of plain data": (name(MODULES, "_create_module"), name("builtins", "bytes"), (9,), {}, "cpu"),
    "too few": (name(MODULES, "_create_module"), LINEAR, ()),
    "too many": (name(API, "get_worker_info"), "a", "b"),
    "a fused optimizer by place": (name(OPTIM, "_new_local_optimizer"), SGD, [rref(1)], 0.1, 0, 0, 0, True),
    "a tensor instead of an RRef": (name(PROXY, "_local_invoke"), tensor(), "forward", (), {}),
    "a name that only loading shows": (name(PROXY, "_local_invoke"), rref(1), DUCK, (), {}),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_torch_never_sends_is_refused_and_no_option_is_offered(case: str, files: Sources) -> None:
    function, *args = WRONG[case]
    module, _, helper = function.opcodes[2:-1].decode("latin-1").partition("\x8c")
    assert refused(request(function, *args), files)[f"{module}.{helper[1:]}"] == ""


def test_fused_optimizers_are_refused(files: Sources) -> None:
    """They write as many elements as a tensor claims to have."""
    optimizer = name(OPTIM, "_new_local_optimizer")
    assert refused(request(optimizer, SGD, [rref(1)], lr=0.1, fused=True), files) != {}
    assert refused(request(optimizer, SGD, [rref(1)], lr=0.1, fused=None), files) == {}


def test_a_twice_given_argument_is_refused(files: Sources) -> None:
    function = name(API, "_rref_typeof_on_owner")
    assert refused(request(function, rref(1), rref=rref(2)), files) == {f"{API}._rref_typeof_on_owner": ""}


def test_classes_that_nobody_allowed(files: Sources) -> None:
    create = name(MODULES, "_create_module")
    other = request(create, name("lib", "Net"), (), {}, "cpu")
    assert refused(other, files) == {"lib.Net": "lib:Net"}
    assert refused(other, files, allow=("lib:Net",)) == {}
    optimizer = request(name(OPTIM, "_new_local_optimizer"), name("lib", "Adam"), [rref(1)])
    assert refused(optimizer, files) == {"lib.Adam": "lib:Adam"}
    process = request(create, name("subprocess", "Popen"), ("id",), {}, "cpu")
    assert refused(process, files) != {}


INVOKE = name(PROXY, "_local_invoke")


def call(method: str, function: Raw = INVOKE) -> bytes:
    return request(function, rref(1), method, (), {})


def test_a_method_of_the_class_that_made_the_object(files: Sources) -> None:
    made = {(0, 1): NET}
    assert refused(call("helper"), files, made) == {}
    assert refused(call("forward"), files, made) == {}
    assert refused(call("alias"), files, made) == {"app.Net.alias": "app:Net.alias"}
    assert refused(call("__setattr__"), files, made)["app.Net.__setattr__"] == ""
    assert refused(call("apply"), files, made) == {"app.Net.apply": "app:Net.apply"}
    assert refused(call("helper", name(PROXY, "_local_invoke_async_execution")), files, made) == {}


def test_a_class_inside_of_a_class_is_no_method(tmp_path: Path) -> None:
    text = "import subprocess\nclass Trainer:\n    class Shell(subprocess.Popen): ...\n    def run(self): ..."
    (tmp_path / "app.py").write_text(text, encoding="utf-8")
    made = {(0, 1): Global("app", "Trainer")}
    sources = Sources(None, [tmp_path])
    assert refused(call("run"), sources, made) == {}
    assert refused(call("Shell"), sources, made) == {"app.Trainer.Shell": "app:Trainer.Shell"}


def test_what_a_function_made_is_of_no_known_class(files: Sources) -> None:
    """It may return anything; the answer to `_rref_typeof_on_owner`, which names a class, may be forged."""
    made = {(0, 1): Global("app", "make")}
    assert refused(call("system"), files, made) == {"app.make.system": ""}
    assert refused(call("forward"), files, made) == {"app.make.forward": "app:make.forward"}
    assert refused(call("helper"), files, made).keys() == {"app.make.helper"}
    assert refused(call("helper"), files, made, allow=("app:make.helper",)) == {}


def test_an_object_of_which_no_message_tells_the_class(files: Sources) -> None:
    """Its line names the method; what reaches files has none, since the object may be a path."""
    line = f"{PROXY}:_local_invoke.forward"
    assert refused(call("forward"), files) == {f"{PROXY}._local_invoke.forward": line}
    assert refused(call("forward"), files, allow=(line,)) == {}
    assert refused(call("write_text"), files) == {f"{PROXY}._local_invoke.write_text": ""}


def test_methods_that_helpers_call_by_a_name_of_their_own(files: Sources) -> None:
    """Of an object whose class nobody allowed."""
    motor = {(0, 1): Global("app", "make")}
    step = request(name(OPTIM, "_local_optimizer_step"), rref(1), 7)
    assert refused(step, files, motor) == {"app.make.step": "app:make.step"}
    parameters = request(name(MODULES, "_param_rrefs"), rref(1), True)
    assert refused(parameters, files, motor) == {"app.make.parameters": "app:make.parameters"}


def test_forward_of_a_remote_module(files: Sources) -> None:
    forward = name("_remote_module_non_scriptable", "_remote_forward")
    data = request(forward, rref(1), "cpu", False, tensor())
    assert refused(data, files, {(0, 1): NET}) == {}
    linear = Global("torch.nn.modules.linear", "Linear")
    assert refused(data, files, {(0, 1): linear}) == {}
    runner = Global("app", "Runner")
    assert refused(data, files, {(0, 1): runner}) == {"app.Runner.forward": "app:Runner.forward"}
    line = "_remote_module_non_scriptable:_remote_forward.forward"
    assert refused(data, files) == {"_remote_module_non_scriptable._remote_forward.forward": line}


def test_what_is_no_class_where_a_class_belongs(files: Sources) -> None:
    """A list can't even be looked up in a list of classes."""
    for helper, module in (("_new_local_optimizer", OPTIM), ("_create_module", MODULES)):
        function = f"{module}.{helper}"
        assert refused(request(name(module, helper), [], [], {}), files) == {function: ""}


TYPEOF = name("torch.distributed.rpc.api", "_rref_typeof_on_owner")


def make(workers: Workers, at: int, local: int, function: Raw, *args: object) -> None:
    made, fork = GloballyUniqueId(0, local), GloballyUniqueId(0, local)
    call = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=request(function, *args),
        ret_rref_id=made,
        ret_fork_id=fork,
        is_async_execution=False,
    )
    workers.call(0, 1, at, at + 5, call, RemoteRet(made, fork))


def answer(value: object) -> PythonResp:
    return PythonResp(b"\x80\x04" + opcodes(value) + b".")


def test_what_makes_an_object() -> None:
    """What its owner says of it counts for nothing: the live one may say something else."""
    workers = Workers(2)
    make(workers, 10, 1, name("app", "Net"), 3)
    make(workers, 20, 2, name(MODULES, "_create_module"), name("app", "Head"), (), {}, "cpu")
    make(workers, 30, 3, name("app", "build"))
    workers.call(0, 1, 40, 45, PythonCall(request(TYPEOF, rref(3)), False), answer(name("app", "Net")))
    workers.call(0, 1, 50, 55, PythonCall(request(TYPEOF, rref(4)), False), answer(name("app", "Net")))
    net = Global("app", "Net")
    assert rref_classes(workers.calls()) == {
        (0, 1): net,
        (0, 2): Global("app", "Head"),
        (0, 3): Global("app", "build"),
    }


def test_what_a_helper_of_torch_made_is_of_no_known_class() -> None:
    """`_local_invoke` of a layer's `forward` gives what it was given."""
    workers = Workers(2)
    make(workers, 10, 1, name("torch.distributed.rpc.rref_proxy", "_local_invoke"))
    assert rref_classes(workers.calls()) == {}


def test_the_module_behind_an_answer() -> None:
    create = name(MODULES, "_create_module_with_interface")
    asked = PythonCall(request(create, name("app", "Net"), (), {}, "cpu", None), False)
    workers = Workers(2)
    workers.call(0, 1, 10, 15, asked, answer(rref(7)))
    assert rref_classes(workers.calls()) == {(0, 7): Global("app", "Net")}


def test_what_others_bring_is_of_no_known_class() -> None:
    """Live, an answer or another worker's request may bring another RRef by that name."""
    workers = Workers(3)
    make(workers, 10, 1, name("app", "Net"))
    workers.call(0, 1, 20, 25, "app.ref", answer(rref(1)))
    make(workers, 30, 2, name("app", "Net"))
    workers.call(2, 1, 40, 45, PythonCall(request(name("app", "use"), rref(2)), False))
    make(workers, 50, 3, name("app", "Net"))
    workers.call(0, 1, 60, 65, PythonCall(request(name("app", "use"), rref(3)), False))
    net = Global("app", "Net")
    assert rref_classes(workers.calls()) == {
        (0, 3): net,
    }


def test_two_stories_are_none() -> None:
    workers = Workers(2)
    make(workers, 10, 1, name("app", "Net"))
    make(workers, 20, 1, name("app", "Other"))
    workers.call(0, 1, 40, 45, PythonCall(request(TYPEOF, rref(1)), False), answer(name("app", "Net")))
    workers.call(0, 1, 50, 55, PythonCall(request(TYPEOF, rref(1)), False), answer("Net"))
    assert rref_classes(workers.calls()) == {}
