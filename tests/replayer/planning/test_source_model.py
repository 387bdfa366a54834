"""What is promised of a name that several places bind."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcinspect.replayer.planning.source_bindings import Scope
from rpcinspect.replayer.planning.source_model import (
    FUNCTION,
    LITERAL,
    OBJECT,
    Meaning,
    OwnClass,
    ParsedFile,
    alias,
    combined,
    foreign,
)

ONE = OwnClass("One", ParsedFile("job", Path("job.py"), True, Scope(), lambda name: False))
TWO = OwnClass("Two", ONE.file)
CLASS = Meaning("class", classes=(ONE,))
EITHER = Meaning("function", literal=True)
MODULE = foreign("helpers", "the module helpers")


@pytest.mark.parametrize(
    ("meanings", "expected"),
    [
        ([FUNCTION], FUNCTION),
        ([FUNCTION, FUNCTION], FUNCTION),
        ([LITERAL, LITERAL], LITERAL),
        ([LITERAL, OBJECT], OBJECT),
        ([OBJECT, FUNCTION], OBJECT),
        ([LITERAL, FUNCTION], EITHER),
        ([EITHER, LITERAL], EITHER),
        ([LITERAL, CLASS], CLASS),  # None where an import fails
        ([CLASS, Meaning("class", classes=(TWO,))], Meaning("class", classes=(ONE, TWO))),
        ([CLASS, OBJECT], alias("a class, or something else")),
        ([CLASS, FUNCTION], alias("a class, or something else")),
        ([FUNCTION, foreign("os.system")], alias("os.system")),
        ([foreign("os.system")] * 2, foreign("os.system")),
        ([foreign("a.x"), foreign("b.x")], Meaning("alias", of="a.x", foreign=("a.x", "b.x"))),
        ([foreign("torch"), LITERAL], foreign("torch")),
        ([foreign("torch"), OBJECT], alias("torch")),
        ([MODULE, MODULE], MODULE),
        ([MODULE, FUNCTION], alias("the module helpers")),
        ([FUNCTION, MODULE], alias("the module helpers")),
    ],
)
def test_the_meaning_that_promises_least(meanings: list[Meaning], expected: Meaning) -> None:
    assert combined(meanings) == expected
