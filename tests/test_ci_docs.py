"""The page about CI: its XML is what is written, and its workflows are ones that the action takes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.cli.runner import CAPTURES, rpcinspect
from tests.places import ROOT
from tests.test_action import ACTION

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
WORKFLOW, GITLAB = (yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S))


def test_the_xml_is_what_is_written(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```xml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    rpcinspect("findings", CAPTURES / "bwd_boom.pcap.gz", "--junit", tmp_path / "findings.xml")
    written = (tmp_path / "findings.xml").read_text().replace(str(CAPTURES).replace(".", "_"), "captures")
    real = iter(written.replace(str(CAPTURES), "captures").splitlines())
    for line in shown.splitlines():
        assert line == "…" or line in real, line


def test_the_workflow_gives_the_action_what_it_takes() -> None:
    uses = [step for step in WORKFLOW["jobs"]["rpc"]["steps"] if "actions/rpcinspect" in step.get("uses", "")]
    assert [step["with"].get("command", "findings") for step in uses] == ["findings", "diff"]
    for step in uses:
        assert step["with"].keys() <= ACTION["inputs"].keys()
        assert "/.github/actions/rpcinspect@" in step["uses"]
    table = set(re.findall(r"^\| `(\w+)` \| ", PAGE.partition("## GitLab")[0], re.MULTILINE))
    assert table == ACTION["inputs"].keys()


def test_gitlab_takes_the_files_that_are_written() -> None:
    written = [line for line in GITLAB["rpc"]["script"] if "--junit" in line]
    assert all(re.search(r"--junit \w+\.xml$", line) for line in written)
    assert len(written) == 2
    assert GITLAB["rpc"]["artifacts"] == {"when": "always", "reports": {"junit": ["*.xml"]}}
