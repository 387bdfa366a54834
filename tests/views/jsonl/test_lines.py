"""JSON Lines: the fast way of writing them against the plain forms, and how they are put together. What each
line must hold is tested in tests/test_contract.py.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rpcinspect.fields.body import Body, envelope_json, tensor_text
from rpcinspect.rpc.message import type_name
from rpcinspect.run.message import Tensor
from rpcinspect.run.run import RunModel
from rpcinspect.run.tensors import LastRead
from rpcinspect.session.model import Finding
from rpcinspect.session.process_end import ProcessEnd
from rpcinspect.views.jsonl import lines as jsonl
from rpcinspect.views.jsonl.lines import (
    JsonLines,
    finding_json,
    head_lines,
    lines,
    message_line,
    tail_lines,
    worker_json,
)
from rpcinspect.views.jsonl.message import tensor_json
from tests.places import recorded
from tests.views.opened import CAPTURES, Opened, opened

CAPTURED = sorted(path.name for path in CAPTURES.glob("*.pcap*"))


def plain(capture: Opened, index: int, run: RunModel) -> dict[str, Any]:
    """A message's line from `message`, the session and the run, without any cache."""
    record, session = capture.messages[index], capture.session
    row, rpc, parameters = record.row, record.rpc, record.facts.parameters
    pickle = record.facts.pickle
    texts = [tensor_text(i, meta, parameter=i in parameters) for i, meta in enumerate(rpc.tensors)]
    tensors = []
    for number in range(len(rpc.tensors)):
        tensor = tensor_json(Tensor(record, number, LastRead(capture.bytes)))
        tensors.append(json.loads(json.dumps(tensor)))
    where = record.location
    call = run.calls.get(index)
    parents, certain = run.causes.of(index)
    return {
        "kind": "message",
        "index": index,
        "time_ns": record.tp.first_ns,
        "end_time_ns": record.tp.last_ns,
        "pipe": record.tp.pipe.number,
        "src": session.source(row),
        "dst": session.destination(row),
        "type": type_name(rpc.message.type),
        "id": rpc.message.id,
        "request": record.tp.from_client,
        "answers": session.answers(row),
        "answered_by": None if call is None else call.answer,
        "latency_ns": None if call is None else call.latency_ns,
        "parents": list(parents),
        "parent_certain": certain,
        "call": None if call is None or call.name is None else call.name.short,
        "housekeeping": session.messages.control[row] != 0
        or type_name(rpc.message.type).startswith(
            ("RREF_USER", "RREF_FORK", "RREF_CHILD", "RREF_ACK", "CLEANUP")
        ),
        "control": bool(session.messages.control[row]),
        "envelopes": [envelope_json(envelope) for envelope in rpc.envelopes],
        "body": Body(rpc.command, texts, pickle).json,
        "tensors": tensors,
        "problems": [
            {
                "layer": problem.layer,
                "reason": problem.reason,
                "packet": problem.location.packet,
                "offset": problem.location.offset,
            }
            for problem in record.problems
        ],
        "location": {
            "capture": where.capture,
            "packet": where.packet,
            "flow": where.flow,
            "offset": where.offset,
            "first_packet": record.tp.first_packet,
            "last_packet": record.tp.last_packet,
        },
    }


def every_plain(capture: Opened) -> list[dict[str, Any]]:
    run = RunModel(capture.session, capture.messages)
    return [plain(capture, index, run) for index in range(len(capture.records))]


def written(capture: Opened, *, hashes: bool = True) -> list[bytes]:
    with tempfile.TemporaryFile() as spool:
        view = JsonLines(spool, capture.bytes, hashes=hashes)
        for record in capture.records:
            view.feed([record])
        return list(view.finish(capture.session))


@pytest.mark.parametrize("name", CAPTURED)
def test_the_fast_form_is_the_plain_form(name: str) -> None:
    with opened(Path(name)) as capture:
        found = [json.loads(line) for line in b"".join(written(capture)).splitlines()]
        messages = [line for line in found if line["kind"] == "message"]
        assert messages == every_plain(capture)
        assert list(messages[0] if messages else {}) == list(every_plain(capture)[0] if messages else {})


@pytest.mark.parametrize("name", ["torch/snap300.pcap", "torch/sparse.pcap", "torch/chan_uvcma.pcap"])
def test_cut_sparse_and_invisible_tensors_too(name: str) -> None:
    with opened(recorded(name)) as capture:
        found = [json.loads(line) for line in b"".join(written(capture)).splitlines()]
        messages = [line for line in found if line["kind"] == "message"]
        assert messages == every_plain(capture)


def test_one_line_is_the_line_of_all() -> None:
    with opened(Path("rref_relay.pcap.gz")) as capture:
        every = [line for line in b"".join(written(capture)).splitlines(True) if b'"kind":"message"' in line]
        for index, line in enumerate(every):
            assert message_line(capture.messages[index], capture.session, capture.bytes) == line


def test_pieces_end_with_a_line_and_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(Path("basic_chain.pcap")) as capture:
        monkeypatch.setattr(jsonl, "BATCH", 10)
        pieces = written(capture, hashes=False)
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert [piece.count(b"\n") for piece in pieces[1:-1]] == [10, 10, 4]
    indexes = [json.loads(line)["index"] for piece in pieces[1:-1] for line in piece.splitlines()]
    assert indexes == [*range(24)]


def test_parts_come_in_the_order_of_the_contract() -> None:
    with opened(Path("rref_relay.pcap.gz")) as capture:
        before = [line["kind"] for line in head_lines(capture.session)]
        after = [line["kind"] for line in tail_lines(capture.session)]
    assert before == ["capture"] + ["worker"] * 3 + ["pipe"] * before.count("pipe")
    assert after == [*["context"] * 1, *["rref"] * 4, "summary"]


def test_text_that_utf8_lacks_is_escaped() -> None:
    with opened(Path("basic_chain.pcap")) as capture:
        worker = replace(capture.session.workers[0], name="\udcff\x1b", addresses=("a\ud800",))
    assert worker_json(worker)["name"] == "\\xff\x1b"
    assert "ended" not in worker_json(worker)
    ended = worker_json(replace(worker, ended=ProcessEnd(how="exit", status=1, error="\udcfe")))["ended"]
    assert ended == {
        "how": "exit",
        "status": 1,
        "signal": None,
        "error": "\\xfe",
        "time_ns": None,
        "pid": None,
        "oom_kills": 0,
    }
    finding = Finding(code="unsafe-pickle", severity="error", text="\udcfe", workers=("\udcff",))
    assert json.loads(lines(iter([finding_json(finding)]))) == {
        "kind": "finding",
        "code": "unsafe-pickle",
        "severity": "error",
        "messages": [],
        "workers": ["\\xff"],
        "text": "\\xfe",
        "remedy": None,
    }
