"""A reproducer: one readable script that makes captured calls again with PyTorch alone.

In: a `Reproduction` and the bytes of its captures. Out: the text of the script and its tensors. The text is
ASCII; whatever is captured stands in it as a literal or as a checked name, or in a comment, escaped.
"""

from __future__ import annotations

import builtins
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rpcinspect import __version__
from rpcinspect.causes.calls import FETCHES, Call, rref_of
from rpcinspect.causes.causality import REMOTE
from rpcinspect.replay.facts import Id
from rpcinspect.replay.programs import (
    Await,
    Block,
    Link,
    Pass,
    Program,
    Send,
    Together,
    awaited,
    is_optimizers,
    programs,
)
from rpcinspect.replay.reproduction import (
    Gradient,
    Handle,
    Reproduction,
    Unwritable,
    failed,
    needing_gradient,
    value_of,
)
from rpcinspect.rpc.command import (
    PropagateGradientsReq,
    PythonCall,
    PythonRemoteCall,
    RRefBackwardReq,
    ScriptCall,
    ScriptRemoteCall,
)
from rpcinspect.rpc.pickles.places import Place, tensor_places
from rpcinspect.rpc.pickles.semantic import RRefForkData
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.types import LOCAL_ID_BITS, unpack_id
from rpcinspect.views.layout import INDENT, Brackets, Item, Source, brackets, lay_out
from rpcinspect.views.python_source import Imports, Names, NoSourceError, SourceWriter, is_name, quoted
from rpcinspect.views.reproducer_calls import answer_source, call_items, failure_of
from rpcinspect.views.reproducer_tensors import TensorCollection, name_of, unwritable_tensors
from rpcinspect.wire.ranges import CaptureBytes

TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = "reproduce.py"
TEST = "test_reproduce.py"
TENSORS = "tensors.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line says of the script."""

    captures: tuple[str, ...]
    """How people call them."""
    folders: tuple[str, ...] = ()
    """Of the user's modules, from the script's own folder; the first is where the script lies: empty."""
    main: str | None = None
    """The module that the job's script is."""
    modules: tuple[str, ...] = ()
    """To be imported besides."""
    threads: int = 1
    seed: int | None = None
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproducer:
    """The outcome."""

    script: str
    test: str
    tensors: TensorCollection
    gradients: int
    answers: int
    skipped: tuple[tuple[int, str], ...]
    """(message, why it is not in the script)"""


def unwritable(wanted: Wanted) -> Unwritable:
    """Why a message can't be written down, by a writer of its own."""
    writer = SourceWriter(Imports(RESERVED, wanted.main))
    names = Names(lambda index: f"t{index}", lambda fork: "rref", {})

    def check(record: RpcRecord) -> str | None:
        try:
            if failed(record):
                failure_of(record, writer)
            elif isinstance(record.rpc.command, CALL_TYPES):
                call_items(record, writer, names)
            else:
                answer_source(record, writer, names)
        except NoSourceError as error:
            return str(error)
        return unwritable_tensors(record)

    return check


def reproducer(made: Reproduction, wanted: Wanted, source: CaptureBytes) -> Reproducer:
    """Writes the script."""
    return _Script(made, wanted, source).write()


class _Script:
    """One script while it is written."""

    def __init__(self, made: Reproduction, wanted: Wanted, source: CaptureBytes) -> None:
        self._made = made
        self._wanted = wanted
        self._imports = Imports(RESERVED, wanted.main)
        self._writer = SourceWriter(self._imports)
        self._tensors = TensorCollection(source)
        self._uses: set[str] = set()
        self._gradients: list[int] = []
        self._answers: list[int] = []
        self._programs = programs(made)
        self._awaited = awaited(self._programs)
        self._functions = self._name_functions()
        self._lines: list[str] = []
        self._depth = 1
        self._program: Program | None = None
        self._unanswered: list[Call] = []

    def write(self) -> Reproducer:
        """All of it."""
        shown = [self._written(program) for program in self._programs]
        skipped = [(s.call.index, f"{s.code}: {s.text}") for s in self._made.skipped]
        about = list(self._about(skipped))
        environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=False,  # the text is Python; what is captured comes as literals
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters["comment"] = comment
        self._uses |= self._writer.helpers
        awaited_here = sorted({index for _, index in self._awaited})
        script = environment.get_template("reproduce.py.jinja").render(
            about=about,
            standard=sorted(STANDARD | ({"threading"} if "at_once" in self._uses else set())),
            modules=sorted({*self._imports.modules, *self._wanted.modules}),
            folders=[quoted(folder) if folder else "" for folder in self._wanted.folders],
            imports=self._imports.lines(),
            timeout=f"{self._wanted.timeout_s:g}",
            deadline=f"{self._wanted.timeout_s * 5:g}",
            programs=shown,
            groups=lay_out(self._groups(), lead="GROUPS = ").removeprefix("GROUPS = "),
            gradients=_numbers(self._gradients, "GRADIENTS = "),
            answers=_numbers(self._answers, "ANSWERS = "),
            awaited=_numbers(awaited_here, "AWAITED = "),
            threads=self._wanted.threads,
            seed=self._wanted.seed,
            uses_autograd=any("dist_autograd" in line for program in shown for line in program["lines"]),
            **{f"uses_{name}": name in self._uses for name in HELPERS},
        )
        test = environment.get_template("test_reproduce.py.jinja").render(script=SCRIPT)
        return Reproducer(
            script=script,
            test=test,
            tensors=self._tensors,
            gradients=len(self._gradients),
            answers=len(self._answers),
            skipped=tuple(skipped),
        )

    # --- around the calls -----------------------------------------------------------------------------------

    def _name_functions(self) -> dict[tuple[int, str], str]:
        """(job, worker) → the function that does what it did of its own."""
        found: dict[tuple[int, str], str] = {}
        for program in self._programs:
            name = program.worker if is_name(program.worker) else "worker"
            if len(self._made.workers) > 1:
                name = f"{name}_of_group_{program.job}"
            chosen, number = name, 2
            while chosen in found.values() or chosen in RESERVED or chosen in vars(builtins):
                chosen, number = f"{name}_{number}", number + 1
            found[program.job, program.worker] = chosen
            self._imports.reserve(chosen)
        return found

    def _groups(self) -> Source:
        groups: list[Source] = []
        for job, workers in self._made.workers.items():
            items = []
            for worker in workers:
                assert worker.name is not None
                function = self._functions.get((job, worker.name), "None")
                items.append(Item(f"{quoted(worker.name)}: ", function))
            groups.append(Brackets("{", tuple(items), "}"))
        return brackets("[", groups, "]")

    def _about(self, skipped: Sequence[tuple[int, str]]) -> Iterator[str]:
        """The comment at the top."""
        captures = ", ".join(self._wanted.captures)
        yield f"Made by rpcinspect {__version__} from {captures}."
        yield ""
        named = sorted({line.split(" ")[1] for line in self._imports.lines()})
        if named:
            yield f"It imports {', '.join(named)} and runs functions of it with captured arguments."
            yield "sys.path below says where it looks; this folder comes first."
        else:
            yield "It needs no other code than PyTorch's."
        for workers in self._made.workers.values():
            if [worker.id for worker in workers] != list(range(len(workers))):
                ids = ", ".join(f"{worker.name}: {worker.id}" for worker in workers)
                yield f"Ids of the workers were others in the capture ({ids}); here they count from 0."
        if any(meta.device != "cpu" for _, record in self._messages() for meta in record.rpc.tensors):
            yield "Tensors that were on other devices are on the CPU here."
        if skipped:
            yield ""
            yield "Not in it:"
            for index, why in skipped[:MAX_SKIPPED]:
                yield f"  message {index}: {why}"
            if len(skipped) > MAX_SKIPPED:
                yield f"  and {len(skipped) - MAX_SKIPPED} more"
        if self._made.uncompared:
            yield ""
            yield "Answers that are not compared:"
            for index, why in sorted(self._made.uncompared.items())[:MAX_SKIPPED]:
                yield f"  to message {index}: {why}"

    def _messages(self) -> Iterator[tuple[int, RpcRecord]]:
        for call in self._made.calls.values():
            yield call.index, call.request
            if call.response is not None and call.answer is not None:
                yield call.answer, call.response

    # --- one worker -----------------------------------------------------------------------------------------

    def _written(self, program: Program) -> dict[str, Any]:
        self._lines, self._depth, self._program, self._unanswered = [], 1, program, []
        for handle in self._owned(program):
            self._own_rref(handle)
        for part in program.parts:
            if isinstance(part, Block):
                self._block(part)
            else:
                self._together(part)
        for call in self._unanswered:
            self._line(f"check.unanswered({call.index}, future{call.index})")
            self._answers.append(call.index)
        title = f"What {comment_text(program.worker)} sent of its own."
        return {
            "function": self._functions[program.job, program.worker],
            "title": title.replace("\\", "/").replace('"', "'"),
            "lines": self._lines,
        }

    def _owned(self, program: Program) -> list[Handle]:
        its = [
            handle
            for (job, worker, _), handle in self._made.handles.items()
            if (job, worker, handle.how) == (program.job, program.worker, "owned")
        ]
        return sorted(its, key=lambda handle: handle.request)

    def _own_rref(self, handle: Handle) -> None:
        """An RRef of a worker's own value, of which an answer to a fetch tells."""
        fetch = self._made.fetched[handle.request]
        assert fetch.response is not None
        assert fetch.answer is not None
        self._tensors.add(fetch.answer, fetch.response)
        value = answer_source(fetch.response, self._writer, self._names(fetch.answer, {}))
        self._line(f"# its own object, as it was when message {fetch.answer} told of it")
        self._source(Brackets("rpc.RRef(", (Item("", value),), ")"), lead=f"own{fetch.index} = ")

    def _block(self, block: Block, *, entered: bool = False) -> None:
        if block.context is None:
            if entered:
                self._line("entered()")
            for event in block.events:
                self._event(event, block)
            return
        if block.skips is not None:
            self._uses.add("skip_contexts")
            self._line(f"skip_contexts({block.skips})")
        head = len(self._lines)
        self._line("with dist_autograd.context() as context_id:")
        self._depth += 1
        if entered:
            self._line("entered()")
        for event in block.events:
            self._event(event, block)
        self._depth -= 1
        if not any("context_id" in line for line in self._lines[head + 1 :]):
            self._lines[head] = self._lines[head].replace(" as context_id", "")
        inside = [line for line in self._lines[head + 1 :] if self._is_statement(line)]
        if len(inside) == 1 and inside[0].lstrip().startswith("with "):
            self._lines[head] += "  # noqa: SIM117"  # one for each thing is clearer

    def _is_statement(self, line: str) -> bool:
        """Whether a line begins a statement of the block below the one that is written."""
        indent = INDENT * (self._depth + 1)
        return line.startswith(indent) and line[len(indent) :][:1] not in (" ", "#", ")", "")

    def _together(self, part: Together) -> None:
        """Contexts that overlapped."""
        self._uses.add("at_once")
        functions = []
        for block in part.lanes:
            name = "others" if block.context is None else f"context_{unpack_id(block.context)[1]}"
            functions.append(name)
            self._lines.append("")
            self._line(f"def {name}(entered):")
            self._depth += 1
            self._block(block, entered=True)
            self._depth -= 1
        self._lines.append("")
        self._source(Brackets("at_once(", tuple(Item("", name) for name in functions), ")"))

    def _event(self, event: Send | Await | Pass, block: Block) -> None:
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
            self._source(Brackets("check.behind(", tuple(Item("", str(m)) for m in event.behind), ")"))
        if call.kind in FETCHES:
            rref = rref_of(call.request)
            assert rref is not None
            if event.told:
                self._line(f"check.begun({call.index})")
            self._synchronous(call, f"{self._handle(rref)}.to_here()")
            return
        self._link(call)
        names = self._names(call.index, self._arguments(call), ours=True, integers=_integers(call, block))
        items = (Item("", quoted(call.callee)), *call_items(call.request, self._writer, names))
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

    def _await(self, call: Call) -> None:
        if call.kind in FETCHES or call.response is None:
            return
        if call.kind not in REMOTE:
            self._synchronous(call, f"future{call.index}.wait()")
        elif not failed(call.response):
            self._line(f"check.made({call.index}, rref{call.index})")
            self._answers.append(call.index)

    def _synchronous(self, call: Call, source: Source) -> None:
        """What gives the answer, and what it is compared with."""
        record = call.response
        if record is None or call.answer is None or call.index in self._made.uncompared:
            self._source(source, lead=f"out{call.index} = ")
            return
        self._answers.append(call.index)
        if failed(record):
            self._expect_error(call.index, record, source)
            return
        expected = answer_source(record, self._writer, self._names(call.answer, {}))
        self._source(source, lead=f"out{call.index} = ")
        items = (Item("", str(call.index)), Item("", f"out{call.index}"), Item("", expected))
        self._source(Brackets("check.answer(", items, ")"))

    def _expect_error(self, message: int, record: RpcRecord, source: Source) -> None:
        failure = failure_of(record, self._writer)
        text = "None" if failure.text is None else quoted(failure.text)
        items = tuple(Item("", part) for part in (str(message), failure.type, text))
        self._source(Brackets("with check.error(", items, ")"), tail=":")
        self._depth += 1
        self._source(source)
        self._depth -= 1

    def _after(self, messages: Sequence[int]) -> None:
        if messages:
            self._source(Brackets("check.after(", tuple(Item("", str(m)) for m in messages), ")"))

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

    def _link(self, call: Call) -> None:
        """Arguments that depend on answers to earlier calls."""
        assert self._program is not None
        link = self._program.links.get(call.index)
        if link is None:
            return
        self._uses |= {"recorded", "through"}
        tensors = self._leaves(call)
        outputs, rows = self._linked(link)
        items = (
            Item("", brackets("[", [f't["{name}"]' for name in tensors], "]")),
            Item("", brackets("[", list(outputs), "]")),
            Item("", brackets("[", [brackets("[", list(row), "]") for row in rows], "]")),
        )
        requests = ", ".join(str(index) for index in sorted(link.outputs))
        self._line(f"# they were computed from the answer to {requests}; how, no message tells")
        self._source(Brackets("through(", items, ")"), lead=f"in{call.index} = ")

    def _linked(self, link: Link) -> tuple[list[str], list[list[str]]]:
        """Outputs of earlier calls, and for each pass the gradients that they are given."""
        count = 1 + max(number for passes in link.outputs.values() for number in passes)
        outputs: list[str] = []
        rows: list[list[str]] = [[] for _ in range(count)]
        for _, passes in sorted(link.outputs.items()):
            known = next(iter(passes.values()))
            outputs += self._outputs(known)
            for number, row in enumerate(rows):
                gradient = passes.get(number)
                row += ["None"] * len(known.tensors) if gradient is None else self._given(gradient)
        return outputs, rows

    def _leaves(self, call: Call) -> list[str]:
        """The tensors of a request that get a gradient, each once."""
        record = call.request
        same = same_tensors(record)
        return list(dict.fromkeys(name_of(call.index, same.get(i, i)) for i in needing_gradient(record)))

    def _arguments(self, call: Call) -> dict[int, str]:
        """Tensor → what stands for it, where that is not the tensor of the file."""
        assert self._program is not None
        same = same_tensors(call.request)
        found = {i: f't["{name_of(call.index, j)}"]' for i, j in same.items()}
        if call.index in self._program.links:
            leaves = self._leaves(call)
            for i in needing_gradient(call.request):
                found[i] = f"in{call.index}[{leaves.index(name_of(call.index, same.get(i, i)))}]"
        return found

    def _outputs(self, gradient: Gradient) -> list[str]:
        """Where in an answer the tensors of a gradient are."""
        call = self._made.calls[gradient.request]
        assert call.response is not None
        places = tensor_places(value_of(call.response.rpc.command, call.response))
        return [f"out{call.index}{accessor(places[i])}" for i in gradient.tensors]

    def _given(self, gradient: Gradient) -> list[str]:
        """The recorded tensors of a gradient."""
        command = gradient.call.request.rpc.command
        assert isinstance(command, PropagateGradientsReq)
        self._tensors.add(gradient.call.index, gradient.call.request)
        return [f't["{name_of(gradient.call.index, i)}"]' for i in command.grads]

    def _pass(self, one: Pass) -> None:
        sent = [g.call.index for g in one.sent]
        began = f"message {one.trigger.index}, " if one.trigger is not None else ""
        gave = f"gradients {_listed(sent)} were sent" if sent else "no gradients were sent"
        back = f", {_listed([g.call.index for g in one.back])} came back" if one.back else ""
        self._line(f"# backward: {began}{gave}{back}")
        self._after(one.after)
        for gradient in one.back:
            self._expect_gradient(gradient)
        answered = [g.call for g in one.sent] + ([one.trigger] if one.trigger is not None else [])
        errors = [c for c in answered if c.response is not None and failed(c.response)]
        hung = [c for c in answered if c.response is None]
        source = self._backward(one)
        gradients = {g.call.index for g in one.sent}
        if errors:
            record = errors[0].response
            assert record is not None
            self._expect_error(errors[0].index, record, source)
            (self._gradients if errors[0].index in gradients else self._answers).append(errors[0].index)
            return
        if hung:
            self._line(f"with check.error({hung[0].index}, RuntimeError, None):  # it was never answered")
            self._depth += 1
            self._source(source)
            self._depth -= 1
            (self._gradients if hung[0].index in gradients else self._answers).append(hung[0].index)
            return
        self._source(source)
        over = [*sent, *([one.trigger.index] if one.trigger is not None else [])]
        self._source(Brackets("check.sent(", tuple(Item("", str(index)) for index in over), ")"))
        self._gradients += sent
        if one.trigger is not None:
            self._answers.append(one.trigger.index)

    def _backward(self, one: Pass) -> Source:
        retain = _retains(one)
        grad = (Item("retain_graph=", "True"),) if retain else ()
        if one.trigger is not None:
            rref = rref_of(one.trigger.request)
            assert rref is not None
            return Brackets(f"{self._handle(rref)}.backward(", (Item("", "context_id"), *grad), ")")
        self._uses.add("recorded")
        outputs = [source for gradient in one.roots for source in self._outputs(gradient)]
        given = [source for gradient in one.roots for source in self._given(gradient)]
        for gradient in one.linked:
            self._given(gradient)
        items = (Item("", brackets("[", list(outputs), "]")), Item("", brackets("[", list(given), "]")))
        root = brackets("[", [Brackets("recorded(", items, ")")], "]")
        return Brackets("dist_autograd.backward(", (Item("", "context_id"), Item("", root), *grad), ")")

    def _expect_gradient(self, gradient: Gradient) -> None:
        """Of tensors that are one and the same, the sum comes."""
        call = self._made.calls[gradient.request]
        names = self._arguments(call)
        came: dict[str, list[str]] = {}
        for i, given in zip(gradient.tensors, self._given(gradient), strict=True):
            came.setdefault(names.get(i, f't["{name_of(call.index, i)}"]'), []).append(given)
        items = (
            Item("", str(gradient.call.index)),
            Item("", brackets("[", list(came), "]")),
            Item("", brackets("[", [" + ".join(given) for given in came.values()], "]")),
        )
        self._source(Brackets("check.gradient(", items, ")"))
        self._gradients.append(gradient.call.index)

    # --- names ----------------------------------------------------------------------------------------------

    def _names(
        self,
        message: int,
        tensors: dict[int, str],
        *,
        ours: bool = False,
        integers: dict[int, str] | None = None,
    ) -> Names:
        """For one message; `ours`: a request, whose RRefs are those that its sender has."""

        def tensor(index: int) -> str:
            return tensors.get(index, f't["{name_of(message, index)}"]')

        def rref(fork: RRefForkData) -> str:
            if ours:
                return self._handle(fork.rref_id)
            self._uses.add("rref_of")
            return f"RRefOf({quoted(self._owner(fork))})"

        return Names(tensor, rref, integers or {})

    def _owner(self, fork: RRefForkData) -> str:
        assert self._program is not None
        for worker in self._made.workers[self._program.job]:
            if worker.id == fork.owner_id and worker.name is not None:
                return worker.name
        raise NoSourceError("an RRef of a worker that nobody knows")

    def _handle(self, rref: Id) -> str:
        assert self._program is not None
        handle = self._made.handles[self._program.job, self._program.worker, rref]
        if handle.how == "owned":
            return f"own{handle.request}"
        if handle.how == "made":
            return f"rref{handle.request}"
        return f"out{handle.request}{accessor(handle.place)}"

    # --- lines ----------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self._lines.append(INDENT * self._depth + text)

    def _source(self, source: Source, *, lead: str = "", tail: str = "") -> None:
        self._lines += lay_out(source, lead=lead, tail=tail, depth=self._depth).split("\n")


def accessor(place: Place) -> str:
    """`[0]["x"].y`"""
    text = ""
    for step in place:
        key = quoted(step.key) if isinstance(step.key, str) else str(step.key)
        text += f".{step.key}" if step.attribute else f"[{key}]"
    return text


def same_tensors(record: RpcRecord) -> dict[int, int]:
    """Arguments of an operator that are one tensor: later → first. Python's pickles write a tensor once."""
    if not isinstance(record.rpc.command, (ScriptCall, ScriptRemoteCall)):
        return {}
    found: dict[int, int] = {}
    for i, meta in enumerate(record.rpc.tensors):
        if meta.part_of is None and meta.storage is not None:
            first = record.rpc.tensors.index(meta)
            if first != i:
                found[i] = first
    return found


def comment_text(text: str) -> str:
    """Captured text for a comment or a docstring: ASCII, on one line."""
    return ascii(text)[1:-1]


def comment(line: str) -> str:
    """Comment lines of a sentence."""
    plain = comment_text(line)
    indent = "#   " if plain.startswith("  ") else "# "
    return "\n".join(textwrap.wrap(plain.strip(), 86, initial_indent=indent, subsequent_indent=indent)) or "#"


def _integers(call: Call, block: Block) -> dict[int, str]:
    """The id of the context in which a call is made, if it is surely that: a small number may be another."""
    context = block.context
    if context is None or (context >> LOCAL_ID_BITS == 0 and not is_optimizers(call)):
        return {}
    return {context: "context_id"}


def _retains(one: Pass) -> bool:
    commands = [gradient.call.request.rpc.command for gradient in one.sent]
    if one.trigger is not None:
        commands.append(one.trigger.request.rpc.command)
    return any(
        isinstance(command, (PropagateGradientsReq, RRefBackwardReq)) and command.retain_graph
        for command in commands
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _numbers(numbers: Sequence[int], lead: str) -> str:
    """A tuple, in order."""
    items: list[Source] = [str(number) for number in sorted(numbers)]
    source = brackets("(", items, ")", single_comma=True)
    return lay_out(source, lead=lead).removeprefix(lead)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CALL_TYPES = (PythonCall, PythonRemoteCall, ScriptCall, ScriptRemoteCall)
MAX_SKIPPED = 50
MAX_TENSORS = 8
HELPERS = ("recorded", "through", "make_object", "rref_of", "skip_contexts", "at_once")
STANDARD = _names(
    "contextlib functools json mmap multiprocessing os socket struct sys tempfile time traceback"
)
RESERVED = STANDARD | _names(
    """
    torch dist dist_autograd rpc Path HERE TIMEOUT DEADLINE GROUPS GRADIENTS ANSWERS AWAITED Recorded recorded
    through make_object RRefOf skip_contexts at_once Check wait_until difference tensor_difference parts
    bits_difference as_bytes load build work run run_group main t check context_id entered others numpy
    threading reproduce
    """
)
"""Names that the script itself has. Variables of calls (`out6`, `rref8`) are followed by a number."""
