"""What one worker does in a reproducer, as lines of Python: the body of a function.

In: a `WorkerProgram` with what it is part of. Out: lines, the messages that they compare, the helpers that
they use; their tensors go to the collection. `t` and `check` are the arguments of the function.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from rpcinspect.export.reproducer.calls import (
    Failure,
    Variables,
    answer_source,
    call_items,
    failure_of,
    integers_of,
)
from rpcinspect.export.reproducer.model import (
    Await,
    Block,
    Gradient,
    GradientLink,
    ProgramPass,
    Reproduction,
    RRefHandle,
    Send,
    Together,
    WorkerProgram,
)
from rpcinspect.export.reproducer.python_names import INDENT, Brackets, Item, SourceItem, lay_out, quoted
from rpcinspect.export.reproducer.python_source import SourceWriter
from rpcinspect.export.reproducer.tensors import TensorCollection, name_of
from rpcinspect.rpc.command import PropagateGradientsReq, RRefBackwardReq
from rpcinspect.rpc.questions import FETCHES, REMOTE, failed, rref_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import unpack_id
from rpcinspect.run.exchanges import Exchange


class ProgramWriter:
    """Writes the lines of one worker."""

    def __init__(
        self, made: Reproduction, program: WorkerProgram, writer: SourceWriter, tensors: TensorCollection
    ) -> None:
        self._made = made
        self._program = program
        self._writer = writer
        self._tensors = tensors
        self._its = Variables(made, program, tensors)
        self._depth = 1
        self._unanswered: list[Exchange] = []
        self.lines: list[str] = []
        self.uses = self._its.uses
        """Helpers of the script."""
        self.gradients: list[int] = []
        self.answers: list[int] = []
        """Messages that are compared."""

    @property
    def worker(self) -> str:
        """Returns the name of the worker."""
        return self._program.worker

    def write(self) -> None:
        """Writes all lines."""
        for handle in self._owned():
            self._own_rref(handle)
        for part in self._program.parts:
            if isinstance(part, Block):
                self._block(part)
            else:
                self._together(part)
        self._tell_unanswered()
        self.lines = without_unused(self.lines)

    def _tell_unanswered(self) -> None:
        """At the end of a function, of the calls that it made."""
        for call in self._unanswered:
            self._line(f"check.unanswered({call.index}, future{call.index})")
            self.answers.append(call.index)
        self._unanswered.clear()

    def _owned(self) -> list[RRefHandle]:
        program = self._program
        its = [
            handle
            for (job, worker, _), handle in self._made.handles.items()
            if (job, worker, handle.how) == (program.job, program.worker, "owned")
        ]
        return sorted(its, key=lambda handle: handle.request)

    def _own_rref(self, handle: RRefHandle) -> None:
        """An RRef of a worker's own value, of which an answer to a fetch tells."""
        fetch = self._made.fetched[handle.request]
        assert fetch.response is not None
        assert fetch.answer is not None
        self._tensors.add(fetch.answer, fetch.response)
        value = answer_source(fetch.response, self._writer, self._its.names(fetch.answer, {}))
        self._line(f"# its own object, as it was when message {fetch.answer} told of it")
        self._source(Brackets("rpc.RRef(", (value,), ")"), lead=f"own{fetch.index} = ")

    def _block(self, block: Block, *, entered: bool = False) -> None:
        if block.skips is not None:
            self.uses.add("skip_contexts")
            self._line(f"skip_contexts({block.skips})")
        head = len(self.lines)
        if block.context is not None:
            self._line("with dist_autograd.context() as context_id:")
            self._depth += 1
        if entered:
            self._line("entered()")
        for event in block.events:
            self._event(event, block)
        if block.context is None:
            return
        self._depth -= 1
        if not any("context_id" in line for line in self.lines[head + 1 :]):
            self.lines[head] = self.lines[head].replace(" as context_id", "")
        inside = [line for line in self.lines[head + 1 :] if self._is_statement(line)]
        if len(inside) == 1 and inside[0].lstrip().startswith("with "):
            self.lines[head] += "  # noqa: SIM117"  # one for each thing is clearer

    def _is_statement(self, line: str) -> bool:
        """Whether a line begins a statement of the block below the one that is written."""
        indent = INDENT * (self._depth + 1)
        return line.startswith(indent) and line[len(indent) :][:1] not in (" ", "#", ")", "")

    def _together(self, part: Together) -> None:
        """Contexts that overlapped."""
        self.uses.add("at_once")
        functions = []
        shared = self._its.shared(part)
        for index in sorted({index for its in shared for index in its}):
            self._line(f"{self._its.variable(index)} = None")
        for block, its in zip(part.lanes, shared, strict=True):
            name = "others" if block.context is None else f"context_{unpack_id(block.context)[1]}"
            functions.append(name)
            self.lines.append("")
            self._line(f"def {name}(entered):")
            self._depth += 1
            if its:
                self._line("nonlocal " + ", ".join(self._its.variable(index) for index in its))
            self._block(block, entered=True)
            self._tell_unanswered()
            self._depth -= 1
        self.lines.append("")
        self._source(Brackets("at_once(", functions, ")"))

    def _event(self, event: Send | Await | ProgramPass, block: Block) -> None:
        if isinstance(event, Send):
            self._send(event, block)
        elif isinstance(event, Await):
            self._await(event.call)
        else:
            self._pass(event)

    # --- calls ----------------------------------------------------------------------------------------------

    def _send(self, event: Send, block: Block) -> None:
        call = event.call
        self._tensors.add(call.index, call.request)
        if call.response is not None and call.answer is not None and call.index not in self._made.uncompared:
            self._tensors.add(call.answer, call.response)
        answered = f", answered by {call.answer}" if call.answer is not None else ", never answered"
        self._line(f"# message {call.index}{answered}")
        self._tell_tensors(call.index, call.request)
        self._after(event.after)
        if event.behind:
            self._source(Brackets("check.behind(", tuple(str(m) for m in event.behind), ")"))
        if call.kind in FETCHES:
            rref = rref_of(call.request)
            assert rref is not None
            if event.told:
                self._line(f"check.begun({call.index})")
            self._synchronous(call, f"{self._its.handle(rref)}.to_here()")
            return
        self._link(call)
        names = self._its.names(
            call.index, self._its.arguments(call), ours=True, integers=integers_of(call, block)
        )
        items = (quoted(call.callee), *call_items(call.request, self._writer, names))
        if call.kind in REMOTE:
            self._source(Brackets("rpc.remote(", items, ")"), lead=f"rref{call.index} = ")
            if event.told:
                self._line(f"check.begun({call.index})")
            if event.waits:
                self._await(call)
        elif event.waits and not event.told:
            self._synchronous(call, Brackets("rpc.rpc_sync(", items, ")"))
        else:
            self._source(Brackets("rpc.rpc_async(", items, ")"), lead=f"future{call.index} = ")
            if event.told:
                self._line(f"check.begun({call.index})")
            if call.response is None:
                self._unanswered.append(call)
            elif event.waits:
                self._await(call)

    def _await(self, call: Exchange) -> None:
        if call.kind in FETCHES or call.response is None:
            return
        if call.kind not in REMOTE:
            self._synchronous(call, f"future{call.index}.wait()")
        elif not failed(call.response):
            self._line(f"check.made({call.index}, rref{call.index})")
            self.answers.append(call.index)

    def _synchronous(self, call: Exchange, source: SourceItem) -> None:
        """What gives the answer, and what it is compared with."""
        record = call.response
        if record is None or call.answer is None or call.index in self._made.uncompared:
            self._source(source, lead=f"out{call.index} = ")
            return
        self.answers.append(call.index)
        if failed(record):
            self._expect_error(call.index, record, source)
            return
        expected = answer_source(record, self._writer, self._its.names(call.answer, {}))
        self._source(source, lead=f"out{call.index} = ")
        items = (str(call.index), f"out{call.index}", expected)
        self._source(Brackets("check.answer(", items, ")"))

    def _expect_error(self, message: int, record: RpcRecord | None, source: SourceItem) -> None:
        """`record`: None where no answer came, for which a script does not wait for ever."""
        failure = Failure("RuntimeError", None) if record is None else failure_of(record, self._writer)
        text = "None" if failure.text is None else quoted(failure.text)
        tail = ":" if record is not None else ":  # it was never answered"
        self._source(Brackets("with check.error(", (str(message), failure.type, text), ")"), tail=tail)
        self._depth += 1
        self._source(source)
        self._depth -= 1

    def _after(self, messages: Sequence[int]) -> None:
        if messages:
            self._source(Brackets("check.after(", tuple(str(m) for m in messages), ")"))

    def _tell_tensors(self, message: int, record: RpcRecord) -> None:
        shown = []
        for number, meta in enumerate(record.rpc.tensors):
            if meta.part_of is None:
                sizes = ", ".join(map(str, meta.sizes))
                grad = " requires grad" if meta.requires_grad else ""
                layout = "" if meta.layout == "strided" else f" {meta.layout}"
                shown.append(f"{name_of(message, number)} is {meta.dtype}[{sizes}]{layout}{grad}")
        if shown:
            more = f" and {len(shown) - MAX_TENSORS} more" if len(shown) > MAX_TENSORS else ""
            for line in textwrap.wrap("; ".join(shown[:MAX_TENSORS]) + more, 80 - 4 * self._depth):
                self._line(f"# {line}")

    # --- backward passes ------------------------------------------------------------------------------------

    def _link(self, call: Exchange) -> None:
        """Arguments that depend on answers to earlier calls."""
        link = self._program.links.get(call.index)
        if link is None:
            return
        self.uses |= {"recorded", "through"}
        tensors = self._its.leaves(call)
        outputs, rows = self._linked(link)
        items = (
            Brackets("[", [f't["{name}"]' for name in tensors], "]"),
            Brackets("[", list(outputs), "]"),
            Brackets("[", [Brackets("[", list(row), "]") for row in rows], "]"),
        )
        requests = ", ".join(str(index) for index in sorted(link.outputs))
        self._line(f"# they were computed from the answer to {requests}; no message says how")
        self._source(Brackets("through(", items, ")"), lead=f"in{call.index} = ")

    def _linked(self, link: GradientLink) -> tuple[list[str], list[list[str]]]:
        """Outputs of earlier calls, and for each pass the gradients that they are given."""
        count = 1 + max(number for passes in link.outputs.values() for number in passes)
        outputs: list[str] = []
        rows: list[list[str]] = [[] for _ in range(count)]
        for _, passes in sorted(link.outputs.items()):
            known = next(iter(passes.values()))
            outputs += self._its.outputs(known)
            for number, row in enumerate(rows):
                gradient = passes.get(number)
                row += ["None"] * len(known.tensors) if gradient is None else self._its.given(gradient)
        return outputs, rows

    def _pass(self, one: ProgramPass) -> None:
        sent = [g.call.index for g in one.sent]
        began = f"message {one.trigger.index}, " if one.trigger is not None else ""
        gave = f"gradients {_listed(sent)} were sent" if sent else "no gradients were sent"
        back = f", {_listed([g.call.index for g in one.back])} came back" if one.back else ""
        self._line(f"# backward: {began}{gave}{back}")
        for gradient in one.lost:
            self._line(f"# gradient {gradient.call.index} too: when is not known, so it is not sent")
        self._after(one.after)
        for gradient in one.back:
            self._expect_gradient(gradient)
        answered = [g.call for g in one.sent] + ([one.trigger] if one.trigger is not None else [])
        errors = [c for c in answered if c.failed]
        source = self._backward(one)
        for broken in (errors or [c for c in answered if c.response is None])[:1]:
            self._expect_error(broken.index, broken.response, source)
            (self.gradients if broken.index in sent else self.answers).append(broken.index)
            return
        self._source(source)
        over = [*sent, *([one.trigger.index] if one.trigger is not None else [])]
        self._source(Brackets("check.sent(", tuple(str(index) for index in over), ")"))
        self.gradients += sent
        if one.trigger is not None:
            self.answers.append(one.trigger.index)

    def _backward(self, one: ProgramPass) -> SourceItem:
        retain = _retains(one)
        grad = (Item("retain_graph=", "True"),) if retain else ()
        if one.trigger is not None:
            rref = rref_of(one.trigger.request)
            assert rref is not None
            return Brackets(f"{self._its.handle(rref)}.backward(", ("context_id", *grad), ")")
        self.uses.add("recorded")
        outputs = [source for gradient in one.roots for source in self._its.outputs(gradient)]
        given = [source for gradient in one.roots for source in self._its.given(gradient)]
        for gradient in one.linked:
            self._its.given(gradient)
        items = (Brackets("[", list(outputs), "]"), Brackets("[", list(given), "]"))
        root = Brackets("[", [Brackets("recorded(", items, ")")], "]")
        return Brackets("dist_autograd.backward(", ("context_id", root, *grad), ")")

    def _expect_gradient(self, gradient: Gradient) -> None:
        """Of tensors that are one and the same, the sum comes."""
        call = self._made.calls[gradient.request]
        names = self._its.arguments(call)
        came: dict[str, list[str]] = {}
        for i, given in zip(gradient.tensors, self._its.given(gradient), strict=True):
            came.setdefault(names.get(i, f't["{name_of(call.index, i)}"]'), []).append(given)
        items = (
            str(gradient.call.index),
            Brackets("[", list(came), "]"),
            Brackets("[", [" + ".join(given) for given in came.values()], "]"),
        )
        self._source(Brackets("check.gradient(", items, ")"))
        self.gradients.append(gradient.call.index)

    # --- lines ----------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self.lines.append(INDENT * self._depth + text)

    def _source(self, source: SourceItem, *, lead: str = "", tail: str = "") -> None:
        self.lines += lay_out(source, lead=lead, tail=tail, depth=self._depth).split("\n")


def _retains(one: ProgramPass) -> bool:
    commands = [gradient.call.request.rpc.command for gradient in one.sent]
    if one.trigger is not None:
        commands.append(one.trigger.request.rpc.command)
    return any(
        isinstance(command, (PropagateGradientsReq, RRefBackwardReq)) and command.retain_graph
        for command in commands
    )


def without_unused(lines: Sequence[str]) -> list[str]:
    """Names that nobody uses are left out, those of references marked: a reference lives as long as they."""
    text = "\n".join(lines)
    out = []
    for line in lines:
        found = ASSIGNED.match(line)
        if found is not None and len(re.findall(rf"\b{found[2]}\b", text)) == 1:
            if found[2].startswith(("rref", "own")):
                line = f"{line}  # noqa: F841"
            else:
                line = found[1] + line[found.end() :]
        out.append(line)
    return out


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


MAX_TENSORS = 8
ASSIGNED = re.compile(r"( *)((?:out|future|rref|own)\d+) = (?!None$)")
