"""The ledger of remote references: who made, held and deleted them.

In: a run. Out: a table with a line for each reference, one with the forks of those that are still alive;
`rref` lines of JSON, which are the contract's and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpcinspect.fields.phrases import counted, end_label
from rpcinspect.fields.plain import Picked, each
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Fork, RRef
from rpcinspect.views.columns import Column, Links, Style, Table, json_of, table
from rpcinspect.views.graph_words import what_words
from rpcinspect.views.questions.question import Question
from rpcinspect.views.questions.session import RREF, numbered
from rpcinspect.views.text.columns import Part


def value_words(rref: RRef, run: RunModel) -> str:
    """What an RRef refers to: an object of a class, or the result of what was called."""
    call = None if rref.created is None or rref.what is None else run.calls.get(rref.created)
    made_by = rref.what if call is None else call.what
    what = what_words(made_by) if made_by is not None else "a local value"
    if rref.what is None and rref.created is not None:
        what = "? (its remote call does not name a plain function)"
    elif rref.what is None and rref.creator != rref.owner:
        what = "? (its remote call was not captured)"
    return f"{what} ✗ raised" if rref.failed else what


def _made(rref: RRef, _: RunModel) -> Links:
    return Links(() if rref.created is None else (rref.created,), end_label(rref.creator or "?"))


_stories = each(Picked("fork_id holder giver begin requested accepted deleted acknowledged state"))
COLUMNS = (
    *RREF,
    Column("creator", title="made by", cell=_made),
    Column("what", title="value of", cell=value_words, gives_way=True),
    *(Column(key) for key in ("created", "confirmed", "failed")),
    Column(title="forks", of=lambda rref: len(rref.forks), right=True),
    Column(title="alive", of=lambda rref: len(rref.alive), right=True),
    Column("fetches", title="fetched", words=Links),
    Column("backwards", title="backward", words=Links),
    Column("stories", of=lambda rref: _stories(rref.forks)),
)


def _number(index: int) -> Links:
    return Links((index,))


def _came(held: tuple[RRef, Fork], _: RunModel) -> str:
    fork = held[1]
    number = "" if fork.begin is None else f"#{fork.begin}"
    return number if fork.giver is None else f"{number} from {end_label(fork.giver)}"


def _end(held: tuple[RRef, Fork], _: RunModel) -> Links:
    deleted = held[1].deleted
    return Links((), held[1].state) if deleted is None else Links((deleted,), "deleted")


FORKS = (
    Column(title="fork", of=lambda held: held[1].fork_id, words=numbered),
    Column(title="rref", of=lambda held: held[0].rref_id, words=numbered),
    Column(title="held by", of=lambda held: held[1].holder or "?"),
    Column(title="came", cell=_came),
    Column(title="owner told", of=lambda held: held[1].requested, words=_number),
    Column(title="giver told", of=lambda held: held[1].accepted, words=_number),
    Column(title="end", cell=_end),
)


def _style(rref: RRef) -> Style:
    return "bad" if rref.failed else "odd" if rref.alive else ""


def rrefs_table(run: RunModel, most: int | None = None) -> Table:
    """A line for each reference."""
    return table(COLUMNS, run.rrefs, run, style=_style, most=most)


def forks_table(rrefs: Sequence[RRef], most: int | None = None, *, every: bool = False) -> Table:
    """A line for each fork that is alive, or for every one."""
    held = [(rref, fork) for rref in rrefs for fork in (rref.forks if every else rref.alive)]
    return table(FORKS, held, style=lambda one: "odd" if one[1].state == "alive" else "", most=most)


def _show(run: RunModel, every: bool) -> Iterator[Part]:
    if not run.rrefs:
        yield "no remote reference was seen", ""
        return
    yield rrefs_table(run)
    forks = forks_table(run.rrefs, every=every)
    if forks.rows:
        yield "", ""
        yield forks
    left = sum(len(rref.alive) for rref in run.rrefs)
    yield "", ""
    yield f"{counted(len(run.rrefs), 'RRef')}, {counted(left, 'fork')} alive when the capture ends", ""


rref_json = json_of(COLUMNS, "rref")
QUESTION = Question(
    noun="RRef",
    kinds=("rref",),
    count=lambda run, _: len(run.rrefs),
    show=_show,
    json=lambda run: map(rref_json, run.rrefs),
)
