"""Questions to one message, asked of made and of recorded ones."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.rpc.command import (
    PythonRemoteCall,
    PythonResp,
    RRefUserDelete,
    ScriptCall,
    ScriptResp,
    ScriptRRefFetchRet,
)
from rpcinspect.rpc.questions import (
    arguments_of,
    context_of,
    created,
    element_bytes,
    failed,
    fork_of,
    result_of,
    rref_of,
    size_of,
)
from rpcinspect.rpc.types import GloballyUniqueId
from rpcinspect.run.run import open_run
from tests.decoded import decode
from tests.replayer.talks import answer_of, record_of, udf


def test_what_makes_uses_and_deletes_rrefs() -> None:
    rref, fork = GloballyUniqueId(0, 5), GloballyUniqueId(0, 6)
    made = record_of(
        PythonRemoteCall(
            tensors=(),
            serialized_py_obj=udf("app.f"),
            ret_rref_id=rref,
            ret_fork_id=fork,
            is_async_execution=False,
        )
    )
    assert created(made) == ((0, 5), (0, 6))
    gone = record_of(RRefUserDelete(rref, fork))
    assert (rref_of(gone), fork_of(gone), created(gone)) == ((0, 5), (0, 6), None)


def test_values_of_answers() -> None:
    answer = answer_of(b"\x80\x02K\x05.")
    assert isinstance(answer.rpc.command, PythonResp)
    assert result_of(answer) == 5
    for command, value in (
        (ScriptResp(7), 7),
        (ScriptRRefFetchRet((8,)), 8),
        (ScriptRRefFetchRet((8, 9)), (8, 9)),
    ):
        assert result_of(record_of(command)) == value


def test_what_a_function_is_given() -> None:
    assert arguments_of(record_of(RRefUserDelete(GloballyUniqueId(0, 5), GloballyUniqueId(0, 6)))) is None
    script = ScriptCall(args=(1, 2), schema=None, qualified_name="__torch__.app.f")
    args, kwargs = arguments_of(record_of(script)) or (None, None)
    assert args == (1, 2)
    assert kwargs.pairs == []


def test_recorded_messages_answer_as_decode_shows_them(repo: Path) -> None:
    path = repo / "captures" / "bwd_boom.pcap.gz"
    shown = decode(path).messages
    errors = 0
    with open_run(str(path)) as run:
        for record, line in zip(run.messages, shown, strict=True):
            contexts = [e["context_id"] for e in line["envelopes"] if "context_id" in e]
            if "context_id" in line["body"]:
                contexts.append(line["body"]["context_id"])
            assert context_of(record) == (contexts[0] if contexts else None)
            assert failed(record) == (line["body"].get("error") is not None)
            errors += failed(record)
            assert size_of(record) >= sum(tensor["storage_nbytes"] or 0 for tensor in line["tensors"])
            metas = record.rpc.tensors
            for meta, tensor in zip(metas, line["tensors"], strict=True):
                if tensor["dtype"] == "float32" and tensor["layout"] == "strided":
                    count = 1
                    for size in tensor["shape"]:
                        count *= size
                    assert element_bytes(metas, meta) == 4 * count
    assert errors > 0
