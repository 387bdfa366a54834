"""Pickles by hand: one for each route by which a value may carry code, or a state may break a type.

Name → (pickle, what it is given to, what the user decided). The gate refuses each of them. What each would do
is seen by the oracle, in a process of its own, if a gate ever lets it through.
"""

from __future__ import annotations

from tests.fuzz.model.forms import Vector
from tests.fuzz.model.vectors_names import CALLED_WHILE_LOADING, FIXED_NAMES, METHODS, NAMES
from tests.fuzz.model.vectors_script import SCRIPT
from tests.fuzz.model.vectors_values import PASSED_ON, REQUESTS, STATES

HOSTILE: dict[str, Vector] = {
    f"{group}: {title}": vector
    for group, vectors in {
        "name": NAMES,
        "method": METHODS,
        "called while loading": CALLED_WHILE_LOADING,
        "by a fixed name": FIXED_NAMES,
        "passed on": PASSED_ON,
        "state": STATES,
        "request": REQUESTS,
        "script": SCRIPT,
    }.items()
    for title, vector in vectors.items()
}
