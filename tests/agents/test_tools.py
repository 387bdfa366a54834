"""The tools, asked without a server: what docs/agents.md shows, and what the server's test does not reach."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rpcinspect.agents.given import GivenCaptures, ToolMistake
from rpcinspect.agents.tools import TOOLS, answered
from rpcinspect.errors import RpcInspectError
from rpcinspect.pipeline import Options
from tests.places import CAPTURES, ROOT
from tests.test_docs import FENCE

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SHOWN = [block for block in FENCE.findall(PAGE) if block.partition(" {")[0] in TOOLS]
PAIR = [[f"captures/pairs/{name}.pcap.gz"] for name in ("base", "error")]
MARK = re.compile(r"\b[0-9a-f]{16}\b")
ROOM = 20_000


def ask(given: GivenCaptures, tool: str, **arguments: object) -> str:
    """An answer, or why there is none."""
    try:
        return answered(given, tool, arguments, ROOM, lambda: False)
    except RpcInspectError as error:
        from rpcinspect.agents.server import error_text

        return error_text(error)


def test_answers_in_the_page_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with GivenCaptures(PAIR, Options()) as given:
        assert len(SHOWN) > 4
        for block in SHOWN:
            first, *lines = block.splitlines()
            tool, arguments = first.split(" ", 1)
            real = iter(MARK.sub("…", ask(given, tool, **json.loads(arguments))).splitlines())
            for line in lines:
                assert line in ("", "…") or MARK.sub("…", line) in real, line


def test_the_page_names_every_tool() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    assert {name for name in re.findall(r"`([a-z]+)`", table) if name in TOOLS} == TOOLS.keys()
    (configuration,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert json.loads(configuration)["mcpServers"]["rpcinspect"]["args"] == ["mcp", "good.pcap", "bad.pcap"]


def test_captures_go_by_number_and_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.pcap").symlink_to(CAPTURES / "basic_chain.pcap")
    paths = [str(tmp_path / folder / "run.pcap") for folder in ("a", "b")]
    with GivenCaptures([[one] for one in paths], Options()) as given:
        assert [given.named(one).number for one in (1, "2", paths[1])] == [1, 2, 2]
        with pytest.raises(
            ToolMistake, match=r"capture run.pcap: 2 captures are called so: give a number; the tool captures"
        ):
            given.named("run.pcap")
        with pytest.raises(ToolMistake, match="there is no such capture"):
            given.named(str(CAPTURES / "basic_chain.pcap"))


def test_captures_of_one_run_are_one() -> None:
    logs = [str(CAPTURES / "reports" / "job" / f"two_{host}.rpclog.gz") for host in "ab"]
    with GivenCaptures([logs], Options()) as given:
        told = ask(given, "findings", filter="finding == nonfinite-tensor")
        assert "#107 from worker2 to worker0 is the first message that carries NaN" in told
        assert "two_a.rpclog.gz, " in ask(given, "captures")


def test_a_capture_that_no_reader_knows_is_told() -> None:
    with GivenCaptures([[str(CAPTURES / "README.md")], ["/nowhere/run.pcap"]], Options()) as given:
        assert "README.md: not a pcap, pcapng or rpclog file" in ask(given, "summary")
        assert "\n| /nowhere/run.pcap: No such file or directory\n" in ask(given, "summary", capture=2)
        assert "| 2  /nowhere/run.pcap  /nowhere/run.pcap: No such file or directory" in ask(
            given, "captures"
        )


def test_bytes_come_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with GivenCaptures([[str(CAPTURES / "pairs" / "error.pcap.gz")]], Options()) as given:
        assert "bytes of" not in ask(given, "message", number=117)
        assert "more bytes (--all shows them)" in ask(given, "message", number=117, hex="some")
        assert "more bytes" not in ask(given, "message", number=117, hex="all")
        monkeypatch.setattr("rpcinspect.agents.tools.MAX_BYTES", 100)
        told = ask(given, "message", number=116, hex="all")
    assert told.startswith("message 116 has ")
    assert told.endswith(", and hex=all is for up to 100 bytes: the tool tensor shows elements")


def test_tensors_of_any_dtype_have_elements() -> None:
    with GivenCaptures([[str(CAPTURES / "dtype_zoo.pcap.gz")]], Options()) as given:
        told = [ask(given, "tensor", number=number) for number in range(40, 92)]
        assert sum("element" in one for one in told) > 40
        assert "| 2 elements: 1 NaN, 1 infinite\n| 0: (-0+nanj), (inf-0j)\n" in told[20]
        assert "a sparse_coo tensor has no bytes of its own" in told[-2]
        assert not [one for one in told if "rpcinspect itself failed" in one]
