"""The tools: each a question of the commands, with its parameters, answered by what the command prints.

In: the captures, and what an agent asks: the name of a tool and arguments. Out: a page of text in its frame.
To add a tool: a class here, of which the text tells an agent what it is for, and its line in `TOOLS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct, convert
from rich.console import Console
from rich.text import Text

from rpcinspect.agents.frame import FRAME_CHARACTERS, framed
from rpcinspect.agents.given import GivenCapture, GivenCaptures, ToolMistake
from rpcinspect.diff.compare import check_messages, compare_runs
from rpcinspect.equality.rules import Rules
from rpcinspect.errors import CaptureError
from rpcinspect.fields.body import tensor_text
from rpcinspect.fields.phrases import amount, counted, packed, path_label, read_packed, some
from rpcinspect.fields.table import field_lines
from rpcinspect.files.temporary import Temporary
from rpcinspect.filter.matches import Shown
from rpcinspect.library.run import Run
from rpcinspect.run.graph import ContextGraph
from rpcinspect.run.message import Message
from rpcinspect.run.run import RunModel
from rpcinspect.views.diff.table import show_diff
from rpcinspect.views.jsonl.calls import CallRows
from rpcinspect.views.questions.all import QUESTIONS
from rpcinspect.views.questions.contexts import graph_question
from rpcinspect.views.questions.question import Question, answer_parts
from rpcinspect.views.text.calls import show_calls
from rpcinspect.views.text.columns import show_lines
from rpcinspect.views.text.detail import HEX_ROWS, detail
from rpcinspect.views.text.summary import hidden_words, summary
from rpcinspect.views.text.table import MessageTable

MAX_BYTES = 1 << 20
"""Of a message whose every byte is shown."""
MAX_CONTEXTS = 8
ELEMENTS = 512
"""Of a tensor, in one answer."""
PER_LINE = 8

CaptureName = Annotated[
    int | str, Meta(description="Which capture: its number or name, as the tool captures lists them.")
]
FilterText = Annotated[
    str | None,
    Meta(
        description="Take only what matches, such as: error or latency > 50ms; call ~ 'forward'; "
        "src == worker0. The tool fields lists all fields."
    ),
]
AllRows = Annotated[bool, Meta(description="Housekeeping and all rows too; answers call this --all.")]


class AgentTool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question that an agent may ask, with the arguments that every tool takes."""

    NAME: ClassVar[str]
    captured: ClassVar[bool] = True
    """Whether the answer holds what was captured."""

    start: Annotated[int, Meta(ge=1, description="Line of the answer to begin with, for its next pages.")] = 1

    def captures(self, given: GivenCaptures) -> list[GivenCapture]:
        """Returns the captures that are asked about."""
        return []

    def show(self, given: GivenCaptures, console: Console, abandoned: Callable[[], bool]) -> None:
        """Prints the answer. Raises `RpcInspectError` where there is none."""
        raise NotImplementedError


class CapturesTool(AgentTool, frozen=True, kw_only=True):
    """Lists the captures that can be asked about, with their numbers, names and sizes."""

    NAME: ClassVar = "captures"

    def show(self, given: GivenCaptures, console: Console, abandoned: Callable[[], bool]) -> None:
        for one in given.captures:
            try:
                size = amount(sum(its[2] for its in one.state()))
            except CaptureError as error:
                size = str(error)
            console.print(Text(f"{one.number}  {', '.join(map(path_label, one.paths))}  {size}"))


class FieldsTool(AgentTool, frozen=True, kw_only=True):
    """Explains filters: their fields, operators and kinds of values."""

    NAME: ClassVar = "fields"
    captured: ClassVar = False

    def show(self, given: GivenCaptures, console: Console, abandoned: Callable[[], bool]) -> None:
        for line in field_lines():
            console.print(Text(line))


class CaptureTool(AgentTool, frozen=True, kw_only=True):
    """Asks about one capture."""

    capture: CaptureName = 1

    def captures(self, given: GivenCaptures) -> list[GivenCapture]:
        return [given.named(self.capture)]

    def show(self, given: GivenCaptures, console: Console, abandoned: Callable[[], bool]) -> None:
        (its,) = self.captures(given)
        self.show_run(its.run(abandoned), console)

    def show_run(self, run: Run, console: Console) -> None:
        """Prints the answer about a run."""
        raise NotImplementedError


class SummaryTool(CaptureTool, frozen=True, kw_only=True):
    """Shows what a capture holds: messages by type, workers, findings, problems. Begin here."""

    NAME: ClassVar = "summary"

    def show(self, given: GivenCaptures, console: Console, abandoned: Callable[[], bool]) -> None:
        super().show(given, console, abandoned)
        for one in self.captures(given):
            for line in one.notices:
                console.print(Text(line))

    def show_run(self, run: Run, console: Console) -> None:
        _, *parts = summary(run.model.session, 0)  # it begins with what separates it from a table
        for part in parts:
            console.print(part)


class FilterTool(CaptureTool, frozen=True, kw_only=True):
    """Asks about what of a capture matches a filter."""

    filter: FilterText = None
    all: AllRows = False

    def chosen(self, run: Run, *, of_calls: bool = False) -> Shown | None:
        """Returns what the filter picks; None without one. Raises `FilterError`."""
        return None if self.filter is None else run.select(self.filter, of_calls=of_calls)


class CallsTool(FilterTool, frozen=True, kw_only=True):
    """Lists calls: who calls whom with what, the result or error, how long it took; nested calls below the
    one that they were sent for."""

    NAME: ClassVar = "calls"

    def show_run(self, run: Run, console: Console) -> None:
        shown = self.chosen(run, of_calls=True)
        with spooled(run, CallRows) as view:
            calls = view.of(run.model.session, shown)
            show_calls(calls, run.model.session, console, show_all=self.all, shown=shown)


class MessagesTool(FilterTool, frozen=True, kw_only=True):
    """Lists messages, one line each: requests, answers, gradients, with their numbers. Prefer calls."""

    NAME: ClassVar = "messages"

    def show_run(self, run: Run, console: Console) -> None:
        shown, session = self.chosen(run), run.model.session
        every = self.all or shown is not None
        with spooled(run, lambda file: MessageTable(file, show_all=every)) as view:
            view.show(session, console, shown)
        console.print(Text(counted(len(run.model), "message")))
        hidden = 0 if every else session.messages.housekeeping().count(1)
        if hidden:
            console.print(Text(hidden_words(hidden)))
        if shown is not None:
            console.print(Text(shown.words(shown.count, len(run.model), "message")))
            for hint in shown.hints:
                console.print(Text(f"  {hint}"))


class MessageTool(CaptureTool, frozen=True, kw_only=True):
    """Shows one message in full: envelopes, arguments or result, the whole remote traceback, tensors and
    their first values."""

    NAME: ClassVar = "message"

    number: Annotated[int, Meta(ge=0, description="The message's number: of #12 it is 12.")]
    hex: Annotated[
        Literal["none", "some", "all"],
        Meta(description="Bytes in hexadecimal, too: of each part the beginning, or all of it (--all)."),
    ] = "none"

    def show_run(self, run: Run, console: Console) -> None:
        message = message_of(run, self.number)
        tp = message.record.tp
        size = tp.length + sum(storage.descriptor.length for storage in tp.tensors)
        if self.hex == "all" and size > MAX_BYTES:
            told = f"message {self.number} has {amount(size)}, and hex=all is for up to {amount(MAX_BYTES)}"
            raise ToolMistake(f"{told}: the tool tensor shows elements")
        model, rows = run.model, {"none": 0, "some": HEX_ROWS, "all": None}[self.hex]
        for part in detail(message.record, model.session, model.bytes, rows=rows):
            console.print(part)


class TensorTool(CaptureTool, frozen=True, kw_only=True):
    """Shows what the elements of a tensor come to (least, greatest, mean, norm, how many are NaN, infinite or
    zero), and some of them in row-major order."""

    NAME: ClassVar = "tensor"

    number: Annotated[int, Meta(ge=0, description="The message's number: of #12 it is 12.")]
    tensor: Annotated[int, Meta(ge=0, description="Of tensor#3 it is 3.")] = 0
    first: Annotated[int, Meta(ge=0, description=f"First of {ELEMENTS} elements.")] = 0

    def show_run(self, run: Run, console: Console) -> None:
        tensors = message_of(run, self.number).tensors
        if self.tensor >= len(tensors):
            raise ToolMistake(
                f"message {self.number} has {counted(len(tensors), 'tensor')}: no tensor#{self.tensor}"
            )
        its = tensors[self.tensor]
        console.print(Text(tensor_text(self.tensor, its.meta)))
        told = its.statistics()
        names = ("minimum", "maximum", "mean", "norm")
        sums = [f"{name} {value}" for name in names if (value := getattr(told, name)) is not None]
        counts = ((told.nan, "NaN"), (told.infinite, "infinite"), (told.zero, "zero"))
        sums += [f"{count:,} {name}" for count, name in counts if count]
        console.print(Text(f"{counted(told.count, 'element')}: {', '.join(sums)}"))
        elements = its.elements(self.first, ELEMENTS)
        for at in range(0, len(elements), PER_LINE):
            row = ["?" if one is None else str(one) for one in elements[at : at + PER_LINE]]
            console.print(Text(f"{self.first + at}: {', '.join(row)}"))
        left = math.prod(its.shape) - self.first - len(elements)
        if left > 0:
            console.print(Text(f"{counted(left, 'more element')}: first={self.first + len(elements)}"))


class QuestionTool(FilterTool, frozen=True, kw_only=True):
    """Asks a question of the commands."""

    @property
    def question(self) -> Question:
        """Returns the question of the commands that this tool asks."""
        return QUESTIONS[self.NAME]

    def show_run(self, run: Run, console: Console) -> None:
        shown, model = self.chosen(run), run.model
        part = model if shown is None else model.narrowed(shown.rows, shown.touched)
        show_lines(answer_parts(self.question, part, shown, self.all), console)


class FindingsTool(QuestionTool, frozen=True, kw_only=True):
    """Lists errors, warnings and hints about the run, each with its messages and what helps."""

    NAME: ClassVar = "findings"


class ContextsTool(QuestionTool, frozen=True, kw_only=True):
    """Lists distributed autograd contexts: which gradients came, which are missing, what was cleaned up."""

    NAME: ClassVar = "contexts"


class GraphTool(QuestionTool, frozen=True, kw_only=True):
    """Draws one autograd context as a graph: calls, gradients, times, the critical path."""

    NAME: ClassVar = "graph"

    context: Annotated[str, Meta(description="Id of the context, as the tool contexts shows it: 0:3.")]

    @property
    def question(self) -> Question:
        return graph_question(self._graphs)

    def _graphs(self, run: RunModel) -> tuple[ContextGraph, ...]:
        wanted = read_packed(self.context)
        found = () if wanted is None else run.graphs_of(wanted)
        if not found:
            known = some([packed(one.context_id) for one in run.whole.graphs], MAX_CONTEXTS)
            raise ToolMistake(
                f"context {self.context}: there is no such context; there are: {known or 'none'}"
            )
        return found


class LatencyTool(QuestionTool, frozen=True, kw_only=True):
    """Shows where the time of calls went: by function, by pair of workers, and what took unusually long."""

    NAME: ClassVar = "latency"


class RRefsTool(QuestionTool, frozen=True, kw_only=True):
    """Lists remote references: who owns, made and holds them, what was never deleted."""

    NAME: ClassVar = "rrefs"


class DisconnectsTool(QuestionTool, frozen=True, kw_only=True):
    """Shows who disconnected first, and which requests were pending then: which worker died first."""

    NAME: ClassVar = "disconnects"


class DevicesTool(QuestionTool, frozen=True, kw_only=True):
    """Lists devices that tensors moved between, and device maps that were needed."""

    NAME: ClassVar = "devices"


class ProfileTool(QuestionTool, frozen=True, kw_only=True):
    """Lists operators that ran at callees, as the caller's profiler shows them."""

    NAME: ClassVar = "profile"


class DiffTool(AgentTool, frozen=True, kw_only=True):
    """Compares two captures of a job, such as a good and a bad run: the first message that differs and the
    likely cause."""

    NAME: ClassVar = "diff"

    a: CaptureName = 1
    b: CaptureName = 2
    tolerance: Annotated[bool, Meta(description="Accept the tolerances of torch.testing.")] = False
    all: Annotated[bool, Meta(description="List every difference; answers call this --all.")] = False

    def captures(self, given: GivenCaptures) -> list[GivenCapture]:
        return [given.named(self.a), given.named(self.b)]

    def show(self, given: GivenCaptures, console: Console, abandoned: Callable[[], bool]) -> None:
        a, b = (one.run(abandoned).model for one in self.captures(given))
        check_messages(a, b)
        comparison = compare_runs(a, b, Rules(by_dtype=self.tolerance))
        show_diff(comparison, (a, b), console, show_all=self.all)


TOOLS: dict[str, type[AgentTool]] = {
    tool.NAME: tool
    for tool in (
        *(CapturesTool, SummaryTool, FindingsTool, CallsTool, MessagesTool, MessageTool, TensorTool),
        *(ContextsTool, GraphTool, LatencyTool, RRefsTool, DisconnectsTool, DevicesTool, ProfileTool),
        *(DiffTool, FieldsTool),
    )
}


def answered(
    given: GivenCaptures, name: str, arguments: dict[str, Any], room: int, abandoned: Callable[[], bool]
) -> str:
    """Returns a page of an answer, of `room` characters at most. Raises `ValidationError` for arguments that
    a tool does not take, `RpcInspectError` for what can't be answered."""
    if name not in TOOLS:
        raise ToolMistake(f"there is no tool {name}; there are {', '.join(TOOLS)}")
    asked = convert(arguments, TOOLS[name])
    states = tuple(one.state() for one in asked.captures(given))
    others = tuple(getattr(asked, field) for field in asked.__struct_fields__ if field != "start")
    lines = given.answer(
        (name, others, states), lambda console: asked.show(given, console, abandoned), abandoned
    )
    page = lines.page(asked.start - 1, room - FRAME_CHARACTERS)
    if not page and lines.count:
        raise ToolMistake(f"start={asked.start}: the answer has {counted(lines.count, 'line')}")
    last = asked.start - 1 + len(page)
    below = f"lines {asked.start} to {last} of {lines.count}" if page else "no lines"
    if last < lines.count:
        below += f"; more: the same question with start={last + 1}, or a filter"
    return framed(page, below) if asked.captured else "\n".join([*page, below])


def message_of(run: Run, number: int) -> Message:
    """Returns a message. Raises `ToolMistake` where there is none of that number."""
    try:
        return run.message(number)
    except IndexError as error:
        raise ToolMistake(str(error)) from error


@contextmanager
def spooled(run: Run, make: Callable[[Temporary], Any]) -> Iterator[Any]:
    """Gives a view that was fed every message in the order of completion."""
    with ExitStack() as stack:
        view = make(stack.enter_context(Temporary()))
        view.feed([run.model.messages[index] for index in run.model.session.index.tolist()])
        yield view
