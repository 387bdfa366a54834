"""Names and comments of a reproducer."""

from __future__ import annotations

from rpcinspect.rpc.pickles.places import Step
from rpcinspect.views.reproducer.names import VARIABLE, accessor, comment


def test_accessors() -> None:
    assert accessor((Step(False, 0), Step(False, "it's"), Step(True, "x"))) == '[0]["it\'s"].x'


def test_comments_stay_comments() -> None:
    hostile = 'x"""\nimport os\r\u2028\u202e' + "y" * 500
    for line in comment(hostile).split("\n"):
        assert line.startswith("# ")
        assert line.isascii()
        assert line.isprintable()


def test_variables_are_names_with_a_number() -> None:
    assert [bool(VARIABLE.fullmatch(name)) for name in ("out6", "rref8", "context_0", "out", "output6")] == [
        *(True, True, True, False, False)
    ]
