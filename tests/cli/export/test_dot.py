"""`rpcinspect export dot` as people type it; what is drawn: tests/export/test_dot.py."""

from __future__ import annotations

from tests.cli.runner import CAPTURES, CHAIN, HIDDEN, rpcinspect


def test_the_only_context_needs_no_name() -> None:
    ran = rpcinspect("export", "dot", CHAIN)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("digraph")
    assert ran.out == rpcinspect("export", "dot", CHAIN, "--context", "0:0").out


def test_contexts_that_are_none() -> None:
    ran = rpcinspect("export", "dot", CHAIN, "--context", "9:9")
    assert (ran.code, ran.out) == (2, "")
    assert "--context 9:9: there is no such context; there is 0:0" in ran.err
    assert "choose one with --context" in rpcinspect("export", "dot", CAPTURES / "ps_race.pcap.gz").err
    assert "no autograd context was seen" in rpcinspect("export", "dot", HIDDEN).err
