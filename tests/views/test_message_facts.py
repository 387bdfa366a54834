"""What a message says, name by name."""

from __future__ import annotations

from pathlib import Path

from rpcinspect.rpc.command import PythonCall, PythonResp
from rpcinspect.run.run import RunModel
from rpcinspect.views.message_facts import MAX_FACTS, MAX_TEXT, Fact, facts_of
from tests.diff.stories import Story
from tests.views.opened import CAPTURES


def of_capture(name: str, index: int) -> dict[str, str]:
    with RunModel.open([str(CAPTURES / Path(name))]) as opened:
        return dict(facts_of(opened.messages[index], opened.read))


def test_a_call_with_tensors_in_an_envelope() -> None:
    facts = of_capture("pairs/base.pcap.gz", 18)
    assert facts["type"] == "PYTHON_CALL"
    assert facts["function"] == "training.forward"
    assert facts["args[0]"] == "tensor#0[4,16] float32 grad"
    assert facts["kwargs['owner']"] == "'worker2'"
    assert facts["envelopes[0].context_id"] == "0:0 (0)"
    assert facts["envelopes[0].autograd_message_id"] == "0:0 (0)"
    assert facts["tensors[0]"] == "float32 grad [4, 16]"
    assert facts["tensors[0].elements"].count(",") == 8
    assert facts["tensors[0].elements"].endswith(", …")


def test_an_error_keeps_its_lines() -> None:
    facts = of_capture("pairs/error.pcap.gz", 117)
    assert "value" not in facts
    first, second, *_ = facts["error"].splitlines()
    assert first == "On WorkerInfo(id=2, name=worker2):"
    assert second.startswith("ArithmeticError(")


def of_answer(pickle: bytes) -> list[Fact]:
    story = Story()
    story.ask("app.f", result=PythonResp(pickle))
    heard = story.opened()
    return facts_of(heard.messages[1], heard.read)


def test_hostile_and_long_texts() -> None:
    raw = ("\x1b[2J\u202e" + "x" * 5000).encode()
    # PROTO 2, BINUNICODE, STOP
    facts = dict(of_answer(b"\x80\x02X" + len(raw).to_bytes(4, "little") + raw + b"."))
    assert facts["value"].isprintable()
    assert len(facts["value"]) <= MAX_TEXT


def test_not_too_many() -> None:
    # PROTO 2, PythonUDF of app.f, a tuple of 1000 zeros, no kwargs
    udf = b"\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\ncapp\nf\n(" + b"K\x00" * 1000 + b"t}\x87\x81."
    story = Story()
    story.call(0, 1, 0, None, PythonCall(udf, False))
    heard = story.opened()
    found = facts_of(heard.messages[0], heard.read)
    assert len(found) == MAX_FACTS + 1
    assert found[-1].name == "…"
