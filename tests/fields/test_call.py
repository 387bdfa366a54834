"""What a request and an answer say of a call, in full and in short."""

from __future__ import annotations

import pytest

from rpcinspect.fields.call import MAX_ARGUMENT, MAX_ARGUMENTS, answer_json, request_json, short_tensors
from rpcinspect.rpc.record import RpcRecord
from tests.replayer.planning.pickled import name, rebuilt, request, rref
from tests.replayer.talks import request_of
from tests.views.opened import opened

PROXY = name("torch.distributed.rpc.rref_proxy", "_local_invoke")
FORWARD = name("_remote_module_non_scriptable", "_remote_forward")
CREATE = name("torch.distributed.nn.api.remote_module", "_create_module")


def asked(*what: object) -> RpcRecord:
    return request_of(request(*what))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "args", "short"),
    [
        (asked(name("app", "f"), 1, "x"), ["1", "'x'"], "(1, 'x')"),
        (asked(PROXY, rref(1), "step", (2, 3), {}), ["2", "3"], "(2, 3)"),
        (asked(FORWARD, rref(1), "cpu", False, 4), ["4"], "(4)"),
        (asked(FORWARD, rref(1), "cpu", 4), ["4"], "(4)"),
        (asked(CREATE, name("app", "Head"), (16,), {}, "cpu"), ["16"], "(16)"),
        (asked(name("app", "_call_method"), name("app", "Head.step"), rref(1), 5), ["5"], "(5)"),
    ],
)
def test_arguments_are_those_of_whoever_is_called(record: RpcRecord, args: list[str], short: str) -> None:
    told = request_json(record)
    assert told["type"] == "PYTHON_CALL"
    assert (told["args"], told["kwargs"], told["short"]) == (args, {}, short)


def test_an_object_that_is_called_is_told() -> None:
    """As `rpc_sync(to, K(5), (7,))` and functools.partial send them: neither has a name."""
    made = rebuilt(name("app", "K"), 5)
    told = request_json(asked(made, 7))
    assert (told["function"], told["args"], told["short"]) == (None, ["7"], "app.K(5)(7)")


def test_an_rref_is_called_by_its_id_alone() -> None:
    told = request_json(asked(name("app", "f"), rref(1)))
    assert told["short"].startswith("(RRef(")
    assert "fork" not in told["short"]
    assert "fork" in told["args"][0]


def test_long_arguments_and_many_are_cut_in_short_only() -> None:
    told = request_json(asked(name("app", "f"), *["x" * 500] * 20))
    assert len(told["args"]) == 20
    assert all(len(arg) == 502 for arg in told["args"])
    assert len(told["short"]) < (MAX_ARGUMENT + 2) * (MAX_ARGUMENTS + 1)
    assert told["short"].endswith(f"… ({20 - MAX_ARGUMENTS} more))")


def test_a_pickle_that_can_not_be_read_has_no_arguments() -> None:
    told = request_json(request_of(request(name("app", "f"))[:-4]))
    assert (told["args"], told["kwargs"]) == (None, None)
    assert told["short"].startswith("(?)")


def test_what_is_no_call() -> None:
    with opened("rref_relay.pcap.gz") as capture:
        shorts = {
            type(record.rpc.command).__name__: request_json(record)["short"]
            for record in capture.messages
            if record.tp.from_client
        }
        answers = {
            type(record.rpc.command).__name__: answer_json(record)
            for record in capture.messages
            if not record.tp.from_client
        }
        tensors = [short_tensors(record.rpc.tensors) for record in capture.messages]
    assert shorts["PythonRRefFetchCall"] == "RRef(0:0).to_here()"
    assert shorts["RRefBackwardReq"] == "RRef(0:11).backward()"
    assert shorts["PropagateGradientsReq"] == "tensor[3]"
    assert shorts["RRefUserDelete"].startswith("RREF_USER_DELETE RRef(")
    assert shorts["CleanupAutogradContextReq"] == "CLEANUP_AUTOGRAD_CONTEXT_REQ"
    assert answers["RemoteRet"]["result"] == "RRef(0:11)"
    assert answers["RRefAck"] == {"result": None, "error": None, "short": ""}
    assert ["tensor[4]"] in tensors
