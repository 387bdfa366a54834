"""The texts of torch, as its users quote them in reports: of 1.6 to 2.14."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcinspect.workerlog.patterns import Statement, read_text

SHM = "eof (this error originated at tensorpipe/transport/shm/connection_impl.cc:259)"

TEXTS = {
    f"RPC agent for worker1 encountered error when reading incoming request from worker0: {SHM}": Statement(
        what="request-not-read", worker="worker1", peer="worker0", cause=SHM
    ),
    "RPC agent for worker3 encountered error when reading incoming response from worker0: EOF": Statement(
        what="response-not-read", worker="worker3", peer="worker0", cause="EOF"
    ),
    "RPC agent for 0 encountered error when reading incoming request from 27: x: Broken pipe": Statement(
        what="request-not-read", worker="0", peer="27", cause="x: Broken pipe"
    ),
    f"RPC agent for ps encountered error when sending response to request #4 to trainer_1: {SHM}": Statement(
        what="response-not-sent", worker="ps", peer="trainer_1", request=4, cause=SHM
    ),
    "RPC agent for a:b-c encountered error when sending outgoing request #12 to d: pipe closed": Statement(
        what="request-not-sent", worker="a:b-c", peer="d", request=12, cause="pipe closed"
    ),
    "RPC agent for worker0 encountered error when reading incoming request: EOF: end of file": Statement(
        what="request-not-read", worker="worker0", cause="EOF: end of file"
    ),
    "RPC agent for worker0 encountered error when writing outgoing response: EOF: end of file": Statement(
        what="response-not-sent", worker="worker0", cause="EOF: end of file"
    ),
    "RPC agent for worker0 encountered error when writing outgoing request: ECONNREFUSED: refused": Statement(
        what="request-not-sent", worker="worker0", cause="ECONNREFUSED: refused"
    ),
    "RPC agent for w encountered error when accepting incoming pipe: listener closed": Statement(
        what="pipe-not-accepted", worker="w", cause="listener closed"
    ),
    "RPC agent for w0 sent request #7 to w1": Statement(
        what="request-sent", worker="w0", peer="w1", request=7
    ),
    "RPC agent for w1 is running request #7 from w0 in thread pool": Statement(
        what="request-running", worker="w1", peer="w0", request=7
    ),
    "Received error while processing request type 275: Unexpected end of pickler archive": Statement(
        what="request-failed", type=275, cause="Unexpected end of pickler archive"
    ),
    "Could not release Dist Autograd Context on node 2: pipe closed": Statement(
        what="context-not-released", node=2, cause="pipe closed"
    ),
    "On WorkerInfo(id=1, name=worker1):": Statement(what="raised", node=1, worker="worker1"),
    "RuntimeError: RuntimeError: On WorkerInfo(id=2, name=worker2):": Statement(
        what="raised-elsewhere", node=2, peer="worker2", cause="On WorkerInfo(id=2, name=worker2):"
    ),
    "RuntimeError: RPCErr:1:RPC ran for more than set timeout (200 ms) and will now be marked": Statement(
        what="timed-out", cause="RPCErr:1:RPC ran for more than set timeout (200 ms) and will now be marked"
    ),
    "failed (exitcode: -9) local_rank: 1 (pid: 12) of binary: /usr/bin/python": Statement(
        what="ended", rank=1, cause="failed (exitcode: -9) local_rank: 1 (pid: 12) of binary: /usr/bin/python"
    ),
    "Fatal Python error: Segmentation fault": Statement(
        what="crashed", cause="Fatal Python error: Segmentation fault"
    ),
    "Failed to complete barrier": Statement(what="barrier-failed", cause="Failed to complete barrier"),
    "Server read message: EOF: end of file": Statement(what="request-not-read", cause="EOF: end of file"),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    assert read_text(text) == TEXTS[text]


@pytest.mark.parametrize(
    "text", ["", "epoch 3 loss 0.1", "Traceback (most recent call last):", "the worker is ready", "RPC"]
)
def test_lines_of_others(text: str) -> None:
    assert read_text(text) is None


def test_types_have_names() -> None:
    said = read_text("Received error while processing request type 275: x")
    assert said is not None
    assert said.type_name == "CLEANUP_AUTOGRAD_CONTEXT_REQ"


@pytest.mark.parametrize(
    ("cause", "lost"),
    [
        ("EOF: end of file", True),
        (SHM, True),
        ("ECONNRESET: connection reset by peer", True),
        ("sendmsg: Broken pipe", True),
        ("ECONNREFUSED: connection refused", False),
        ("bad handle", False),
    ],
)
def test_who_is_gone(cause: str, lost: bool) -> None:
    said = read_text(f"RPC agent for a encountered error when reading incoming request from b: {cause}")
    assert said is not None
    assert said.lost is lost


@given(st.text(max_size=300), st.sampled_from(list(TEXTS)))
def test_any_text_is_read(noise: str, text: str) -> None:
    read_text(noise)
    read_text(noise + text)


def test_a_request_is_the_speakers_or_its_peers() -> None:
    def pair(text: str) -> tuple[str, str] | None:
        said = read_text(text)
        assert said is not None
        return said.pair

    assert pair("RPC agent for w0 sent request #7 to w1") == ("w0", "w1")
    assert pair("RPC agent for w0 received request #7 from w1") == ("w1", "w0")
    assert pair("RPC agent for w0 is running") is None
