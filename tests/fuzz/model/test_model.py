"""What the gate lets through calls nothing but what the plan named: vectors, honest values, a short run.

The long run is `make fuzz`. The oracle is a process of its own; without torch only the vectors are looked at.
"""

from __future__ import annotations

import importlib
import pickletools
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rpcinspect.pickles.python import read_python_pickle_partial
from tests.fuzz.model import honest, programs, scripts
from tests.fuzz.model.assembly import shown
from tests.fuzz.model.client import Oracle
from tests.fuzz.model.hunt import hunt
from tests.fuzz.model.jobs import Job
from tests.fuzz.model.shrink import shrink
from tests.fuzz.model.vectors import HOSTILE
from tests.fuzz.model.verdicts import refused, strict
from tests.thorough import THOROUGH, some

HERE = Path(__file__).parent
SEED = 1
PICKLES = 15_000 if THOROUGH else 500
OPERATORS = 6
"""A quick run calls one in so many operators: to ask which of them pass takes most of the time."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    pytest.importorskip("torch")
    with Oracle() as found:
        yield found


@pytest.fixture(scope="module")
def job() -> Iterator[Any]:
    """The module of a user, of which names are allowed."""
    pytest.importorskip("torch")
    before = list(sys.path)
    sys.path += [str(HERE / "src"), str(HERE / "elsewhere")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about TorchScript, which torch wants to be rid of
        found = importlib.import_module("job")
    yield found
    sys.path[:] = before
    for name in ("job", "canary"):
        sys.modules.pop(name, None)


# --- by hand ---


@pytest.mark.parametrize("title", HOSTILE)
def test_each_route_is_refused(title: str) -> None:
    data, sort, decision = HOSTILE[title]
    assert refused(data, sort, decision), shown(data)


def test_what_is_honest_passes() -> None:
    pytest.importorskip("torch")
    bad = [(name, why) for name, data in honest.pickles() if (why := refused(data, "answer", "nothing"))]
    assert bad == []


def test_what_is_honest_and_refused() -> None:
    """So that the list is true: what passes one day belongs to the others."""
    pytest.importorskip("torch")
    passing = [
        name
        for name, value in honest.beyond().items()
        if not refused(honest.by_torch(value), "answer", "nothing")
    ]
    assert passing == []


def test_calls_of_what_a_file_defines_pass(job: Any) -> None:
    found = {name: honest.request(*call) for name, call in honest.requests(job).items()}
    bad = {name: why for name, data in found.items() if (why := refused(data, "request", "path"))}
    assert bad == {}


# --- the oracle itself: a gate that lets everything through ---

SEES = {
    "import": "name: a name that nobody allowed",
    "getattr": "method: a chain",
    "called": "by a fixed name: keys, by OrderedDict",
    "value": "passed on: behind partial behind partial",
    "codec": "called while loading: an import of a codec",
    "system": "called while loading: an import of a codec by str",
    "changed": "state: slots of a class",
    "crash": "state: objects of a list that grows when it was given",
}
"""Kind of a fault → a vector that shows it."""


@pytest.mark.parametrize("kind", SEES)
def test_the_oracle_sees(oracle: Oracle, kind: str) -> None:
    data, sort, decision = HOSTILE[SEES[kind]]
    named = () if kind == "import" else _trusted(data)
    seen = oracle.alone(Job(data, sort, named, strict(decision)))
    assert {fault.kind for fault in seen.faults} == {kind}


def _trusted(data: bytes) -> tuple[str, ...]:
    """Every name in it."""
    return tuple(str(name) for name in read_python_pickle_partial(data).globals)


def test_the_oracle_goes_on_behind_a_crash(oracle: Oracle) -> None:
    data, sort, _ = HOSTILE[SEES["crash"]]
    bad = Job(data, sort, _trusted(data), False)
    good = Job(b"\x80\x04K\x01.", "answer", (), False)
    seen = oracle.examine([good, bad, good, good])
    assert [[fault.kind for fault in one.faults] for one in seen] == [[], ["crash"], [], []]
    assert [one.loaded for one in seen] == [True, False, True, True]


def test_a_find_is_made_small() -> None:
    (data, _, _) = HOSTILE["passed on: in a tuple"]
    small = shrink(data, lambda less: b"_rref_typeof_on_owner\n" in less)
    assert small == b"ctorch.distributed.rpc.api\n_rref_typeof_on_owner\n"


# --- generated ---


def test_a_short_run(oracle: Oracle) -> None:
    """The same pickles each time; quick, 500 of them, and calls of each sixth operator. Thorough, 15,000."""
    draw = random.Random(SEED)
    tally = hunt(oracle, draw, PICKLES, schemas=some(scripts.schemas(), OPERATORS))
    found = "\n".join(map(str, tally.found.values()))
    assert not tally.found, f"seed {SEED}:\n{found}"
    assert tally.share() > 0.2, tally
    assert sum(tally.loaded.values()) > 0.5 * sum(tally.passed.values()), tally


def test_generated_pickles_use_every_opcode() -> None:
    pytest.importorskip("torch")
    draw = random.Random(SEED)
    codes = set()
    for _ in range(3_000):
        try:
            codes |= {opcode.name for opcode, _, _ in pickletools.genops(programs.generate(draw).data)}
        except ValueError:
            continue
    assert {opcode.name for opcode in pickletools.opcodes} - codes == set()
