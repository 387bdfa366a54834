"""`rpcinspect export rpclog`: the same messages again, or redacted; more of it in tests/cli/test_logs.py."""

from __future__ import annotations

from pathlib import Path

from tests.cli.runner import CHAIN, decode, rpcinspect


def test_the_log_has_the_messages_of_the_capture(tmp_path: Path) -> None:
    log = tmp_path / "run.rpclog"
    ran = rpcinspect("export", "rpclog", CHAIN, "-o", log)
    assert (ran.code, ran.out, ran.err) == (0, "", "rpcinspect: 24 messages, as a log\n")
    assert rpcinspect("diff", CHAIN, log).code == 0


def test_redacted_it_shows_no_text_of_the_job(tmp_path: Path) -> None:
    log = tmp_path / "run.rpclog"
    ran = rpcinspect("export", "rpclog", CHAIN, "-o", log, "--redact", "--redact-seed", "s")
    assert ran.err == "rpcinspect: 24 messages, redacted, as a log\n"
    assert "basic_chain" in decode(CHAIN).out
    assert "basic_chain" not in decode(log).out


def test_a_seed_is_for_a_redaction() -> None:
    ran = rpcinspect("export", "rpclog", CHAIN, "--redact-seed", "s")
    assert (ran.code, ran.out, ran.err) == (2, "", "rpcinspect: --redact-seed is for --redact\n")
