"""Who is called: by what made the object behind an RRef, and by what its owner said of it."""

from __future__ import annotations

from rpcinspect.rpc.command import PythonCall, PythonRemoteCall, PythonResp, RemoteRet
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.session.callees import names_of
from tests.decoded import decode
from tests.places import recorded
from tests.replayer.planning.pickled import Raw, name, opcodes, request, rref
from tests.replayer.talks import Workers

PROXY = name("torch.distributed.rpc.rref_proxy", "_local_invoke")
TYPEOF = name("torch.distributed.rpc.api", "_rref_typeof_on_owner")
CREATE = name("torch.distributed.nn.api.remote_module", "_create_module_with_interface")


def make(workers: Workers, at: int, local: int, function: Raw) -> None:
    made = GloballyUniqueId(0, local)
    call = PythonRemoteCall(
        tensors=(),
        serialized_py_obj=request(function),
        ret_rref_id=made,
        ret_fork_id=made,
        is_async_execution=False,
    )
    workers.call(0, 1, at, at + 5, call, RemoteRet(made, made))


def step(workers: Workers, at: int, local: int) -> None:
    workers.call(0, 1, at, at + 5, PythonCall(request(PROXY, rref(local), "step", (), {}), False))


def answer(value: object) -> PythonResp:
    return PythonResp(b"\x80\x04" + opcodes(value) + b".")


def names(workers: Workers) -> dict[int, str]:
    """By when the request began."""
    session = workers.finish()
    return {session.messages.time_ns[row]: found.short for row, found in names_of(session).items()}


def test_the_class_that_made_an_object() -> None:
    workers = Workers(2)
    make(workers, 10, 1, name("app", "Net"))
    step(workers, 20, 1)
    step(workers, 30, 2)  # nobody knows what made that one
    assert names(workers) == {10: "app.Net", 20: "Net.step", 30: "step"}


def test_what_the_owner_says_counts_more_than_the_function_that_made_it() -> None:
    workers = Workers(2)
    make(workers, 10, 1, name("app", "build"))
    step(workers, 20, 1)
    assert names(workers)[20] == "build().step"
    workers.call(0, 1, 40, 45, PythonCall(request(TYPEOF, rref(1)), False), answer(name("app", "Net")))
    assert names(workers)[20] == "Net.step"


def test_the_module_behind_an_answer() -> None:
    asked = PythonCall(request(CREATE, name("app", "Net"), (), {}, "cpu", None), False)
    workers = Workers(2)
    workers.call(0, 1, 10, 15, asked, answer(rref(7)))
    step(workers, 20, 7)
    assert names(workers)[20] == "Net.step"


def test_two_makers_are_none() -> None:
    workers = Workers(2)
    make(workers, 10, 1, name("app", "Net"))
    make(workers, 20, 1, name("app", "Head"))
    step(workers, 30, 1)
    assert names(workers)[30] == "step"


def test_lines_tell_it() -> None:
    told = [m["call"] for m in decode(recorded("reports/latency/rref_proxies.rpclog")).messages]
    assert "Collector.next" in told
    assert "Collector._receive_weights_scheme" in told
