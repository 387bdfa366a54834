"""The list is that of the Python that runs, and more."""

from __future__ import annotations

import sys

from rpcinspect.rpc.pickles.standard_library import STANDARD_LIBRARY


def test_nothing_of_this_python_is_missing() -> None:
    assert sys.stdlib_module_names <= STANDARD_LIBRARY
    assert "torch" not in STANDARD_LIBRARY
