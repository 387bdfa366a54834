"""Exports are byte for byte what the commands write that are shown for them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from rpcinspect.browse import growing_run
from rpcinspect.browse.export_forms import FORMS, ExportForm, paste_lines
from rpcinspect.browse.export_job import ExportJob
from rpcinspect.browse.export_scopes import ExportScope, part_of_scope
from rpcinspect.browse.growing_run import GrowingRun
from rpcinspect.pipeline import Options
from tests.browse.test_export_scopes import matching
from tests.browsing import read_whole
from tests.cli.runner import rpcinspect
from tests.places import CAPTURES, recorded

CAPTURE_NAMES = ["basic_chain.pcap", "dtype_zoo.pcap.gz", "reports/concurrent/forks_a1.rpclog"]
WHOLE = ExportScope("all")


def exported(reading: GrowingRun, scope: ExportScope, form: ExportForm, path: Path) -> str:
    """Writes; returns what was told."""
    job = ExportJob(reading, scope, form, path)
    job.start()
    job._thread.join(60)
    assert not job.why
    assert job.over
    assert job.words == ""
    return job.told


def content(path: Path) -> dict[str, bytes]:
    """A file, or the files of a folder."""
    if path.is_dir():
        return {one.name: one.read_bytes() for one in sorted(path.iterdir())}
    return {"": path.read_bytes()}


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("name", CAPTURE_NAMES)
def test_they_are_what_the_commands_write(
    tmp_path: Path, name: str, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`in_memory`: with its records; those of many messages are made again where they are asked for."""
    monkeypatch.chdir(tmp_path)
    if not in_memory:
        monkeypatch.setattr(growing_run, "MAX_RECORDS", 5)
    capture = recorded(name)
    reading = read_whole(capture)
    try:
        assert reading.in_memory == in_memory
        filtered = matching(reading, "body == PYTHON_CALL or tensor.dtype == float32", of_calls=True)
        few = tuple(range(3, reading.count, 4))
        scopes = [ExportScope("", numbers=few), ExportScope("", matching=filtered), WHOLE]
        for scope in scopes:
            part = part_of_scope(scope, reading)
            assert part.text is not None
            lines = paste_lines([str(capture)], Options(), None, part.text, "written")
            for line in lines[1:]:
                ran = rpcinspect(*shlex.split(line.text)[1:])
                assert ran.code == 0, ran.err
            for form in FORMS:
                if form.words:
                    exported(reading, scope, form, tmp_path / f"exported{form.suffix}")
                    ours, theirs = (
                        content(tmp_path / f"{one}{form.suffix}") for one in ("exported", "written")
                    )
                    assert ours == theirs, (form.name, part.text)
                    modes = {
                        oct((tmp_path / f"{o}{form.suffix}").stat().st_mode) for o in ("exported", "written")
                    }
                    assert len(modes) == 1, form.name
    finally:
        reading.close()


def test_a_text_has_each_message_with_its_note(tmp_path: Path) -> None:
    reading = read_whole(CAPTURES / "basic_chain.pcap")
    try:
        row = reading.row_of(13)
        assert row is not None
        form = next(one for one in FORMS if one.name == "notes")
        path = tmp_path / "run.txt"
        job = ExportJob(reading, ExportScope("", numbers=(6, 13)), form, path, {row: "NaN\x1b[31m\u202e"})
        job.start()
        job._thread.join(60)
        assert "2 messages" in job.told
        first, second, note = path.read_text().splitlines()
        assert first.startswith("#6  0.028726 s  worker0 → worker1  ")
        assert second.startswith("#13  0.037091 s  worker0 → worker1  gradients")
        assert note == "    NaN\\x1b[31m\\u202e"
    finally:
        reading.close()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_one_that_is_given_up_leaves_nothing(tmp_path: Path, form: ExportForm) -> None:
    reading = read_whole(CAPTURES / "basic_chain.pcap")
    try:
        job = ExportJob(reading, WHOLE, form, tmp_path / "out")
        job._stop.set()
        job.start()
        job._thread.join(60)
        assert "given up" in job.why
        assert [*tmp_path.iterdir()] == []
    finally:
        reading.close()


def test_what_can_not_be_written_is_told(tmp_path: Path) -> None:
    reading = read_whole(CAPTURES / "basic_chain.pcap")
    try:
        job = ExportJob(reading, WHOLE, FORMS[0], tmp_path / "nowhere" / "out.pcap")
        job.start()
        job._thread.join(60)
        assert "nowhere/out.pcap" in job.why
        assert job.told == ""
    finally:
        reading.close()
