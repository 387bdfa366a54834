"""A reproducer: one readable script that makes captured calls again with PyTorch alone.

In: a `Reproduction` and the bytes of its captures. Out: the text of the script and its tensors. The text is
ASCII; whatever is captured stands in it as a literal or as a checked name, or in a comment, escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct, field

from rpcinspect import __version__
from rpcinspect.export.reproducer.calls import answer_source, call_items, failure_of
from rpcinspect.export.reproducer.model import Reproduction, awaited
from rpcinspect.export.reproducer.program import ProgramWriter
from rpcinspect.export.reproducer.programs import programs
from rpcinspect.export.reproducer.python_names import (
    HELPERS,
    STANDARD,
    Brackets,
    Imports,
    Item,
    NoSourceError,
    RemoteModuleTemplate,
    SourceItem,
    comment,
    comment_text,
    is_name,
    lay_out,
    quoted,
)
from rpcinspect.export.reproducer.python_source import Names, SourceWriter
from rpcinspect.export.reproducer.reproduction import Unwritable
from rpcinspect.export.reproducer.tensors import TensorCollection, unwritable_tensors
from rpcinspect.pickles.tree import Global
from rpcinspect.replayer.workers.seeds import Seeds
from rpcinspect.rpc.callee import CREATE_WITH_INTERFACE
from rpcinspect.rpc.command import PythonCall, PythonRemoteCall, ScriptCall, ScriptRemoteCall
from rpcinspect.rpc.questions import failed, python_udf_of
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.exchanges import Exchange
from rpcinspect.tcp.ranges import CaptureBytes

TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = "reproduce.py"
TEST = "test_reproduce.py"
TENSORS = "tensors.safetensors"


class Wanted(Struct, frozen=True, kw_only=True):
    """Options of the command line for the script."""

    captures: tuple[str, ...]
    """How people call them."""
    folders: tuple[str, ...] = ()
    """Of the user's modules, from the script's own folder; the first is where the script lies: empty."""
    main: str | None = None
    """The module that the job's script is."""
    modules: tuple[str, ...] = ()
    """To be imported besides."""
    threads: int = 1
    seeds: Seeds = field(default_factory=Seeds)
    timeout_s: float = 60.0


class Reproducer(Struct, frozen=True, kw_only=True):
    """The outcome."""

    script: str
    test: str
    tensors: TensorCollection
    gradients: int
    answers: int
    skipped: tuple[tuple[int, str], ...]
    """(message, why it is not in the script)"""


def unwritable(wanted: Wanted) -> Unwritable:
    """Returns a function that says why a message can't be written as source, with a writer of its own."""
    writer = SourceWriter(Imports(wanted.main))
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


def _templates(calls: Iterable[Exchange]) -> dict[str, RemoteModuleTemplate]:
    """The templates of the scripted RemoteModules that these calls make, by the modules that they make."""
    found = []
    for call in calls:
        udf = python_udf_of(call.request)
        if udf is not None and udf.func == CREATE_WITH_INTERFACE and len(udf.args) == 5:
            *_, device, interface = udf.args
            if type(device) is str and type(interface) is Global:
                found.append(RemoteModuleTemplate(interface, device.startswith("cuda")))
    return {one.module: one for one in found}


class _Script:
    """The script while it is written."""

    def __init__(self, made: Reproduction, wanted: Wanted, source: CaptureBytes) -> None:
        self._made = made
        self._wanted = wanted
        self._imports = Imports(wanted.main, _templates(made.calls.values()))
        self._writer = SourceWriter(self._imports)
        self._tensors = TensorCollection(source)
        self._programs = programs(made)
        self._functions = self._name_functions()

    def write(self) -> Reproducer:
        """Writes all parts."""
        written = [ProgramWriter(self._made, p, self._writer, self._tensors) for p in self._programs]
        for one in written:
            one.write()
        uses = self._writer.helpers.union(*(one.uses for one in written))
        gradients = [index for one in written for index in one.gradients]
        answers = [index for one in written for index in one.answers]
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
        script = environment.get_template("reproduce.py.jinja").render(
            about=about,
            standard=sorted(self._standard(uses)),
            modules=sorted(self._imports.modules),
            folders=[quoted(folder) if folder else "" for folder in self._wanted.folders],
            imports=[*(f"import {name}" for name in self._wanted.modules), *self._imports.lines()],
            statements=self._imports.statements(),
            timeout=f"{self._wanted.timeout_s:g}",
            deadline=f"{self._wanted.timeout_s * 5:g}",
            programs=[
                {"function": function, "title": _title(one.worker), "lines": one.lines}
                for function, one in zip(self._functions.values(), written, strict=True)
            ],
            groups=_value("GROUPS", self._groups()),
            gradients=_value("GRADIENTS", _numbers(gradients)),
            answers=_value("ANSWERS", _numbers(answers)),
            awaited=_value("AWAITED", _numbers(awaited(self._programs))),
            threads=self._wanted.threads,
            seeded=bool(self._wanted.seeds.own) or self._wanted.seeds.everybody is not None,
            seeds=_value("SEEDS", self._seeds()),
            seed=self._wanted.seeds.everybody,
            uses_autograd=any("dist_autograd" in line for one in written for line in one.lines),
            **{f"uses_{name}": name in uses for name in HELPERS},
        )
        test = environment.get_template("test_reproduce.py.jinja").render(script=SCRIPT)
        return Reproducer(
            script=script,
            test=test,
            tensors=self._tensors,
            gradients=len(gradients),
            answers=len(answers),
            skipped=tuple(skipped),
        )

    # --- around the calls -----------------------------------------------------------------------------------

    def _name_functions(self) -> dict[tuple[int, str], str]:
        """Returns (job, worker) → the function with the worker's own actions."""
        found: dict[tuple[int, str], str] = {}
        for program in self._programs:
            name = program.worker if is_name(program.worker) else "worker"
            if len(self._made.workers) > 1:
                name = f"{name}_of_group_{program.job}"
            chosen, number = name, 2
            while self._imports.is_taken(chosen):
                chosen, number = f"{name}_{number}", number + 1
            found[program.job, program.worker] = chosen
            self._imports.reserve(chosen)
        return found

    def _groups(self) -> SourceItem:
        groups: list[SourceItem] = []
        for job, workers in self._made.workers.items():
            items = []
            for worker in workers:
                assert worker.name is not None
                function = self._functions.get((job, worker.name), "None")
                items.append(Item(f"{quoted(worker.name)}: ", function))
            groups.append(Brackets("{", tuple(items), "}"))
        return Brackets("[", groups, "]")

    def _standard(self, uses: set[str]) -> frozenset[str]:
        """Modules of Python's own that the script imports."""
        seeds = self._wanted.seeds
        more = {"threading"} if "at_once" in uses else set()
        more |= {"random"} if seeds.own or seeds.everybody is not None else set()
        return STANDARD | more

    def _seeds(self) -> SourceItem:
        own = sorted(self._wanted.seeds.own.items())
        return Brackets("{", tuple(Item(f"{quoted(name)}: ", str(seed)) for name, seed in own), "}")

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
                yield f"Ids of the workers were different in the capture ({ids}); here they count from 0."
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


def _title(worker: str) -> str:
    """Returns the title of a worker's function."""
    return f"What the program of {comment_text(worker)} sent.".replace("\\", "/").replace('"', "'")


def _numbers(numbers: Iterable[int]) -> SourceItem:
    """A tuple, in order."""
    return Brackets("(", [str(number) for number in sorted(numbers)], ")", single_comma=True)


def _value(name: str, source: SourceItem) -> str:
    """What stands behind `name = `, in lines that have room for that."""
    lead = f"{name} = "
    return lay_out(source, lead=lead).removeprefix(lead)


CALL_TYPES = (PythonCall, PythonRemoteCall, ScriptCall, ScriptRemoteCall)
MAX_SKIPPED = 50
