"""Who each request calls, as a person says it: `Head.forward`, where the wire says `_local_invoke`.

In: a session. Out: names by the row of the request; by job and RRef the class of the object, as its owner
said it, else what made it. Of an RRef that two messages make nothing is known.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

import numpy as np

from rpcinspect.pickles.tree import Global
from rpcinspect.rpc.callee import MAKERS, TYPE_OF, Name, name_of
from rpcinspect.session.model import NONE, Session
from rpcinspect.session.provenance import Id, What

JobRRef: TypeAlias = tuple[int, Id]


def classes_of(session: Session) -> dict[JobRRef, Global]:
    """Returns RRef → the class of its object, or the function that made it."""
    provenance, columns = session.provenance, session.messages
    makers: dict[JobRRef, set[Global | None]] = defaultdict(set)
    told: dict[JobRRef, set[Global | None]] = defaultdict(set)
    asked: dict[int, Id] = {}
    """Request that asks for the class of an RRef's object → the RRef."""
    for event in provenance.events():
        job, kind = session.job(event.row), provenance.kind_of(event.row)
        if event.what == What.MADE:
            makers[job, event.rref].add(kind.maker)
        elif event.what == What.BROUGHT and kind.function == str(TYPE_OF):
            asked[event.row] = event.rref
        elif event.what == What.BROUGHT and not columns.from_client[event.row]:
            partner = columns.partner[event.row]
            request = None if partner == NONE else provenance.kind_of(partner)
            if request is not None and request.maker is not None and request.function in MAKERS:
                makers[job, event.rref].add(request.maker)
    for row, rref in asked.items():
        partner = columns.partner[row]
        if partner != NONE:
            told[session.job(row), rref].add(provenance.kind_of(partner).value)
    found = {}
    for its in (makers, told):  # what the owner said counts more
        for rref_key, ones in its.items():
            (only, *others) = ones
            if not others and only is not None:
                found[rref_key] = only
    return found


def names_of(session: Session) -> dict[int, Name]:
    """Returns the name to show of each request's callee, by row; requests without one are left out."""
    provenance, classes = session.provenance, classes_of(session)
    brought = provenance.brought()
    known: dict[tuple[int, Global | None], Name] = {}
    found: dict[int, Name] = {}
    for row in np.flatnonzero(provenance.of_kinds(lambda kind: kind.callee is not None)).tolist():
        number, callee, made = provenance.kind[row], provenance.kind_of(row).callee, None
        assert callee is not None
        if callee.through and row in brought:
            made = classes.get((session.job(row), brought[row][0]))
        name = known.get((number, made))
        if name is None:
            name = known[number, made] = name_of(callee, made)
        found[row] = name
    return found
