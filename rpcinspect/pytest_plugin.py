"""The pytest plugin: tests whose RPC is recorded and held against a recording beside the test.

In: `@pytest.mark.rpc_golden` and the fixture `rpc_recording`, options of the command line. Out: files
`captures/<module>/<test>.rpclog`, and a failure that says where the two runs part. pytest loads this module
in every run, so it imports the rest of the package only for a test that is recorded.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from rpcinspect.library import Run
    from rpcinspect.library.golden import Golden

MARK, FIXTURE = "rpc_golden", "rpc_recording"
MODES = ("none", "once", "new_episodes", "all", "rewrite")
ACCEPT = "EXPECTTEST_ACCEPT"
"""PyTorch's own: what its expect tests take to write what they got."""
PROPERTY = "rpcinspect"
"""Of a report: what was written; it passes from workers of xdist to the terminal."""
MAX_NAME = 120
"""Characters of a file's name; of longer ones a digest tells the rest."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the group of options."""
    group = parser.getgroup("rpcinspect", "rpcinspect: recordings of torch.distributed.rpc")
    group.addoption(
        "--rpc-record",
        choices=MODES,
        default="none",
        help="What may be written for tests marked rpc_golden. none (default): nothing, only compare. "
        "once: record where no recording is, else compare. new_episodes: compare, add new calls. "
        "all: record, compare nothing. rewrite: remove first, then as all.",
    )
    group.addoption(
        "--rpc-update",
        action="store_true",
        help=f"Write recordings that differ or are not there; so does {ACCEPT}=1 in the environment.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known."""
    config.addinivalue_line(
        "markers",
        f"{MARK}(tolerance=False, rtol=None, atol=None, ignore=(), tensors=None, path=None): record this "
        "test's RPC, and compare it with the recording in captures/ beside the test.",
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Has a marked test use the fixture, before all others: what these start is recorded too."""
    names = getattr(item, "fixturenames", None)
    if names is not None and FIXTURE not in names and item.get_closest_marker(MARK) is not None:
        names.insert(0, FIXTURE)


class RpcRecording:
    """The recording of one test."""

    def __init__(self, item: pytest.Item, file: Path) -> None:
        from rpcinspect.errors import RpcInspectError
        from rpcinspect.recorder.family import FamilyRecording

        self._item = item
        self._golden = _golden_of(item)
        self._recorded: FamilyRecording | None = None
        self._passed = False
        self.file = file
        """What is recorded now."""
        if self._golden is not None and self._golden.lacking:
            return
        try:
            self._recorded = FamilyRecording(file, self._tell)
            if self._golden is not None:
                self._golden.begin()
        except RpcInspectError as error:
            if self._recorded is not None:
                self._recorded.close()
            self._fail(str(error))

    def open(self) -> Run:
        """Returns what was recorded until now; close it, or use `with`."""
        import rpcinspect

        if self._recorded is not None:
            self._recorded.flush()
        return rpcinspect.open(self.file)

    def check_that_it_records(self) -> None:
        """Fails a test that can't be compared, before it runs."""
        if self._golden is not None and self._golden.lacking:
            record = self._command("--rpc-record=once")
            self._fail(f"{self._golden.name}: no such recording", f"record it: {record}")

    def passed(self) -> None:
        """Compares, once the test itself has passed; where its workers still run, the fixture's end does."""
        self._passed = True
        if self._recorded is not None and not self._recorded.goes_on:
            self.end()

    def end(self) -> None:
        """Ends the recording; fails a test that has passed and differs."""
        from rpcinspect.errors import RpcInspectError

        recorded, self._recorded = self._recorded, None
        if recorded is None:
            return
        with recorded:
            if not self._passed or self._golden is None:
                return
            if lacks := recorded.finish():
                self._fail("the recording is not whole", *lacks)
        try:
            settled = self._golden.settle(self.file)
        except RpcInspectError as error:
            self._fail(str(error))
        if settled.what == "different":
            words = [self._golden.name, str(self.file), *self._golden.diff_options()]
            compare, update = shlex.join(words), self._command("--rpc-update")
            self._fail(*settled.lines, "", f"all: rpcinspect diff {compare}", f"accept: {update}")
        if settled.what != "same":
            self._item.user_properties.append((PROPERTY, f"{settled.what} {self._golden.name}"))

    def _command(self, option: str) -> str:
        place, test = _shown(self._item.path), self._item.nodeid.partition("::")[2]
        return shlex.join(["pytest", option, f"{place}::{test}"])

    def _fail(self, *lines: str) -> NoReturn:
        from rpcinspect.fields.phrases import printable

        told = "\n".join(map(printable, [f"{MARK}: {lines[0]}", *lines[1:]]))
        raise pytest.fail.Exception(told, pytrace=False) from None  # what was caught says no more

    def _tell(self, line: str) -> None:
        """Tells of what takes its time, past what pytest captures."""
        capture = self._item.config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:
            with capture.global_and_fixture_disabled():
                print(f"\nrpcinspect: {line}", flush=True)


RECORDING = pytest.StashKey[RpcRecording]()


@pytest.fixture
def rpc_recording(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RpcRecording]:
    """The RPC of this test, recorded; `open()` gives what there is until now as an `rpcinspect.Run`."""
    item = request.node
    file = tmp_path_factory.mktemp("rpc") / f"{_file_name(item)}.rpclog"
    recording = item.stash[RECORDING] = RpcRecording(item, file)
    yield recording
    recording.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Compares when the test has passed."""
    recording = item.stash.get(RECORDING, None)
    if recording is None:
        return (yield)
    recording.check_that_it_records()
    result = yield
    if not getattr(item, "_excinfo", None):  # where pytest puts the failure of a unittest.TestCase
        recording.passed()
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says which recordings were written."""
    reports = chain.from_iterable(terminalreporter.stats.values())
    told = [told for report in reports for told in getattr(report, "user_properties", ())]
    written = dict.fromkeys(what for name, what in told if name == PROPERTY)
    if written:
        terminalreporter.section("rpcinspect")
        for line in written:
            terminalreporter.line(line)


def _golden_of(item: pytest.Item) -> Golden | None:
    """What the marks of a test say, the closest last; None without one."""
    marks = list(item.iter_markers(MARK))
    if not marks:
        return None
    from rpcinspect.equality.rules import Rules
    from rpcinspect.library.golden import MOST_BYTES, Golden

    said: dict[str, Any] = {}
    for mark in reversed(marks):
        if mark.args:
            pytest.fail(f"{MARK}: takes options by name only", pytrace=False)
        said |= mark.kwargs
    tolerant = said.get("tolerance", False) or "rtol" in said or "atol" in said
    tensors = said.pop("tensors", None) or ("all" if tolerant else "small")
    path = said.pop("path", None) or Path("captures", item.path.stem, f"{_file_name(item)}.rpclog")
    if tensors not in MOST_BYTES:
        pytest.fail(f"{MARK}: tensors={tensors!r}: {', '.join(MOST_BYTES)}", pytrace=False)
    ignore = said.pop("ignore", ())
    try:
        rules = Rules(
            by_dtype=bool(said.pop("tolerance", False)),
            rtol=said.pop("rtol", None),
            atol=said.pop("atol", None),
            ignore=frozenset([ignore] if isinstance(ignore, str) else ignore),
        )
    except ValueError as error:
        pytest.fail(f"{MARK}: {error}", pytrace=False)
    if said:
        pytest.fail(f"{MARK}: has no option {next(iter(said))}", pytrace=False)
    place = item.path.parent / path
    return Golden(
        path=place,
        name=_shown(place),
        mode=item.config.getoption("--rpc-record"),
        update=item.config.getoption("--rpc-update") or bool(os.environ.get(ACCEPT)),
        rules=rules,
        tensors=tensors,
    )


def _file_name(item: pytest.Item) -> str:
    """The test's name with its classes and parameters, as a file can be called."""
    whole = item.getmodpath() if hasattr(item, "getmodpath") else item.name
    name = re.sub(r"[^\w.,=+@\[\]-]", "-", whole, flags=re.ASCII)
    if name == whole and len(name) <= MAX_NAME:
        return name
    return f"{name[:MAX_NAME]}-{hashlib.sha256(whole.encode(errors='replace')).hexdigest()[:8]}"


def _shown(path: Path) -> str:
    """A path from the current folder, where it lies in that."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
