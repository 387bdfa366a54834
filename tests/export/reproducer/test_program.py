"""What one worker does, as lines that a person would write."""

from __future__ import annotations

from typing import Any

from rpcinspect.export.reproducer.program import without_unused
from tests.export.reproducer.test_script import written


def lines_of(name: str, **options: Any) -> list[str]:
    return [line.strip() for line in written(name, **options).script.splitlines()]


def test_the_chain_as_a_person_would_write_it() -> None:
    lines = lines_of("basic_chain.pcap")
    for line in (
        "with dist_autograd.context() as context_id:",
        'in8 = through([t["8.0"], t["8.1"]], [out6], [[t["13.0"]]])',
        'out8 = rpc.rpc_sync("worker1", torch.add, args=(in8[0], in8[1]))',
        'check.answer(8, out8, t["9.0"])',
        'dist_autograd.backward(context_id, [recorded([out8], [t["10.0"]])])',
        "check.sent(10, 13)",
        'GROUPS = [{"worker0": worker0, "worker1": None}]',
        "GRADIENTS = (10, 11, 13, 15)",
        "ANSWERS = (6, 8)",
        "from basic_chain import scale",
        'sys.path.insert(1, str(HERE / "../src"))',
    ):
        assert line in lines, line


def test_rrefs_are_variables() -> None:
    lines = lines_of("rref_relay.pcap.gz")
    for line in (
        'own57 = rpc.RRef(t["58.0"])',
        'rref8 = rpc.remote("worker1", make, args=(4,))',
        "out9 = rref8.to_here()",
        'out12 = rpc.rpc_sync("worker2", use, args=(rref8, 1))',
        "rref76.backward(context_id)",
    ):
        assert line in lines, line


def test_optimizers_get_the_context() -> None:
    text = written("pairs/base.pcap.gz").script
    assert text.count("args=(out9, context_id)") == 3
    assert "from torch.distributed.optim.optimizer import (" in text


def test_errors_are_expected() -> None:
    text = " ".join(written("pairs/error.pcap.gz").script.split())
    assert "with check.error( 112, ArithmeticError, " in text or "with check.error(" in text
    assert "the norm of step 1" in text
    assert "with check.error(16, RuntimeError," in " ".join(written("bwd_boom.pcap.gz").script.split())


def test_contexts_at_once_and_their_ids() -> None:
    lines = lines_of("ctx_crowd.pcap.gz")
    assert "at_once(context_0, context_1, context_2, context_3)" in lines
    assert "def context_0(entered):" in lines


def test_names_that_nobody_uses() -> None:
    assert without_unused(
        ["    out6 = f()", "    rref8 = g()", "    out9 = h()", "    check.answer(9, out9, 1)"]
    ) == [
        "    f()",
        "    rref8 = g()  # noqa: F841",
        "    out9 = h()",
        "    check.answer(9, out9, 1)",
    ]


def test_what_was_never_answered() -> None:
    lines = lines_of("faults/dies.pcap.gz")
    assert any(line.startswith("check.unanswered(") for line in lines)
    assert any(line.endswith("# it was never answered") for line in lines_of("faults/unused_result.pcap.gz"))
