"""Of which class the object behind an RRef is: what made it, what its owner said, and where both are open."""

from __future__ import annotations

from rpcinspect.replay.planning.rref_classes import Made, rref_classes
from rpcinspect.rpc.command import PythonCall, PythonRemoteCall, PythonResp, RemoteRet
from rpcinspect.rpc.pickles.tree import Global
from rpcinspect.rpc.types import GloballyUniqueId
from tests.replay.planning.pickled import Raw, name, opcodes, request, rref
from tests.replay.talks import Workers

MODULES = "torch.distributed.nn.api.remote_module"
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
        (0, 1): Made(by=net),
        (0, 2): Made(by=Global("app", "Head")),
        (0, 3): Made(by=Global("app", "build")),
    }


def test_what_a_helper_of_torch_made_is_of_no_known_class() -> None:
    """`_local_invoke` of a layer's `forward` gives what it was given."""
    workers = Workers(2)
    make(workers, 10, 1, name("torch.distributed.rpc.rref_proxy", "_local_invoke"))
    assert rref_classes(workers.calls()) == {(0, 1): Made()}


def test_the_module_behind_an_answer() -> None:
    create = name(MODULES, "_create_module_with_interface")
    asked = PythonCall(request(create, name("app", "Net"), (), {}, "cpu", None), False)
    workers = Workers(2)
    workers.call(0, 1, 10, 15, asked, answer(rref(7)))
    assert rref_classes(workers.calls()) == {(0, 7): Made(by=Global("app", "Net"))}


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
        (0, 1): Made(),
        (0, 2): Made(),
        (0, 3): Made(by=net),
    }


def test_two_stories_are_none() -> None:
    workers = Workers(2)
    make(workers, 10, 1, name("app", "Net"))
    make(workers, 20, 1, name("app", "Other"))
    workers.call(0, 1, 40, 45, PythonCall(request(TYPEOF, rref(1)), False), answer(name("app", "Net")))
    workers.call(0, 1, 50, 55, PythonCall(request(TYPEOF, rref(1)), False), answer("Net"))
    assert rref_classes(workers.calls()) == {(0, 1): Made()}
