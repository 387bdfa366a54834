"""`rpcinspect decode --format parquet`: a session as a partition of the tables in a folder.

In: what the command line asked for, the session of a first pass, a second pass. Out: the tables, a line that
says how much that was; `OutputError` where pyarrow is missing, or the partition is that of other captures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpcinspect.commands.decode_request import Request
from rpcinspect.commands.installed import pip_install
from rpcinspect.commands.interrupt import held_back
from rpcinspect.errors import OutputError
from rpcinspect.fields.phrases import counted
from rpcinspect.filter.shown import Shown
from rpcinspect.pipeline import Decoding
from rpcinspect.session.model import Session
from rpcinspect.views.text.summary import moment

if TYPE_CHECKING:
    from rpcinspect.export.parquet.lake import Lake

EXTRA = "'rpcinspect[parquet]'"


def open_lake(request: Request) -> Lake:
    """The lake, with nothing written yet."""
    try:
        from rpcinspect.export.parquet.lake import Lake, partition_name
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        said = f"--format parquet needs pyarrow, which is not installed here: {pip_install(EXTRA)}"
        raise OutputError(said) from error
    assert request.output is not None
    name = request.partition
    if name is None:
        name = partition_name([request.named(file) for file in request.files])
    return Lake(request.output, name)


def fill(lake: Lake, request: Request, session: Session, shown: Shown | None, decoding: Decoding) -> str:
    """Writes everything and puts it in its place."""
    if request.partition is None:
        _must_be_free(lake, session)
    with held_back():  # what was begun is known before it can be dropped
        lake.begin(session, shown, decoding.bytes, hashes=request.hashes)
    for record in decoding.records():
        lake.feed(record)
    rows = lake.finish()
    with held_back():
        size = lake.publish()
    what = [counted(rows[name], name[:-1]) for name in ("messages", "tensors", "calls", "edges", "findings")]
    return f"{', '.join(what)} in {lake.place}, {size:,} bytes"


def _must_be_free(lake: Lake, session: Session) -> None:
    """Nobody's tables are replaced only because two captures have one name."""
    others = lake.others(session)
    if not others:
        return
    path, begin = others[0]
    when = "" if begin is None else f" of {moment(begin)}"
    raise OutputError(
        f"{lake.place}: another capture{when} is there, {path}: call this one otherwise with --partition, or "
        f"replace that one with --partition {lake.partition}"
    )
