"""Who each request calls, as a person says it: `Head.forward`, where the wire says `_local_invoke`.

In: a session. Out: names by the row of the request.
"""

from __future__ import annotations

import numpy as np

from rpcinspect.pickles.tree import Global
from rpcinspect.rpc.callee import Name, name_of
from rpcinspect.session.classes import classes_of
from rpcinspect.session.model import Session
from rpcinspect.session.provenance import Id, What


def names_of(session: Session) -> dict[int, Name]:
    """Of every request that calls somebody who can be named."""
    provenance, columns = session.provenance, session.messages
    classes = classes_of(session)
    first: dict[int, Id] = {}
    for event in provenance.events():
        if event.what == What.BROUGHT:
            first.setdefault(event.row, event.rref)
    known: dict[tuple[int, Global | None], Name] = {}
    found: dict[int, Name] = {}
    callees = {number: kind.callee for number, kind in enumerate(provenance.kinds) if kind.callee is not None}
    kinds = np.asarray(provenance.kind)
    for row in np.flatnonzero(np.isin(kinds, list(callees))).tolist():
        number = provenance.kind[row]
        callee = callees[number]
        made = None
        if callee.through and row in first:
            made = classes.get((session.jobs[columns.pipe[row]], first[row]))
        name = known.get((number, made))
        if name is None:
            name = known[number, made] = name_of(callee, made)
        found[row] = name
    return found
