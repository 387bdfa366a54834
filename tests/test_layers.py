"""The shape of the package, read from its source: imports point down, and nothing captured is ever run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rpcinspect"

LAYERS = (
    {"errors", "problems", "limits", "exit_codes", "signals", "unexpected", "late_pattern"},
    {"files"},
    {"capture"},
    {"tcp"},
    {"store"},
    {"tensorpipe"},
    {"pickles"},
    {"rpc"},
    {"rpclog", "workerlog"},
    {"session"},
    {"equality"},
    {"checks"},
    {"sources"},
    {"pipeline"},
    {"run"},
    {"diff", "recorder"},
    {"replayer"},
    {"fields"},
    {"filter"},
    {"views"},
    {"export"},
    {"library"},
    {"engines"},
    {"browse", "agents"},
    {"cli", "pytest_plugin"},
    {"__main__"},
)
"""From the bottom up; a module may import from its own layer and from those below it."""
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

HOMES = {
    "daft": {"engines"},
    "jinja2": {"views", "export"},
    "lark": {"filter"},
    "mcp": {"agents"},
    "msgspec": set(RANK),
    "numpy": {
        *("capture", "tcp", "tensorpipe", "pickles", "rpc", "session", "equality", "checks", "run"),
        *("sources", "export", "browse", "cli"),
    },
    "orjson": {"views", "export", "browse"},
    "pyarrow": {"export", "library", "engines"},
    "pyshark": {"capture"},
    "pyspark": {"engines"},
    "pytest": {"pytest_plugin"},
    "ray": {"engines"},
    "re2": {"filter"},
    "rich": {"views", "browse", "agents", "cli"},
    "sortedcontainers": {"tcp"},
    "textual": {"browse"},
    "typer": {"cli"},
    "zstandard": {"capture", "sources"},
}
"""Every package that is not ours or Python's → the layers that may import it."""
EXTRAS = {
    "daft": "daft",
    "mcp": "mcp",
    "pyarrow": "parquet",
    "pyshark": "pyshark",
    "pyspark": "spark",
    "pytest": "pytest",
    "ray": "ray",
    "textual": "browse",
}
"""Those that come with an extra of ours only."""
HUGE = {"pyspark", "ray"}
"""Of these the ones that `make test` does without: their tests skip where they are not installed."""
DISTRIBUTIONS = {"re2": "google-re2"}
"""Packages that are published under another name."""

CHILDREN = (
    *(
        f"rpcinspect.replayer.{name}"
        for name in (
            *("workers.worker_main", "workers.worker_imports", "workers.worker_roles"),
            *("workers.live_worker", "workers.objects"),
            *("workers.live_gradients", "workers.live_debugger", "workers.live_nonfinite"),
            *("workers.called_functions", "workers.remote_pdb", "workers.editor_link"),
            *("workers.live_errors", "workers.live_hooks"),
            *("agent.main", "agent.nodes", "agent.tensors"),
        )
    ),
    *(
        f"rpcinspect.recorder.startup.{name}"
        for name in ("sitecustomize", "rpcinspect_notes", "rpcinspect_wire", "rpcinspect_agent")
    ),
    "rpcinspect.recorder.native.build",
)
"""What runs in processes of its own: live workers, where the user's code runs, torch's agents that play
workers, and what is in the processes of a recorded command. Nothing else of ours may import it."""
CHILD_MAY_IMPORT = {"torch", "importlib", "sitecustomize", "debugpy"}

IN_PROCESS = {
    ("rpcinspect.recorder.in_process", f"rpcinspect.recorder.startup.{name}")
    for name in ("rpcinspect_agent", "rpcinspect_notes")
}
"""(module, what it may import): recording from within a program that uses torch."""

MAY_LOOK_FOR_TORCH = "rpcinspect.cli.requirements"
LOOKS = {(MAY_LOOK_FOR_TORCH, "importlib.util.find_spec"), (MAY_LOOK_FOR_TORCH, "importlib.metadata.version")}
"""(module, what it may import): asking where a module is, or for its release, does not import it, if its name
has no dot."""

LOADS_COMMANDS = ("rpcinspect.cli.program", "importlib.import_module")
"""(module, what it may import): the command that is named, if it is in the program's own table."""

MAKES_TENSORS = ("rpcinspect.run.torch_tensors", "torch")
"""(module, what it may import), where a program asks a `Tensor` for torch's own: it makes tensors of checked
bytes and numbers alone, no name of a capture reaches torch, and no view or command calls it."""

ASKS_PYSHARK = "rpcinspect.capture.pyshark_packets"
"""The module that imports pyshark, where somebody asks for its packets."""

NEVER_IMPORTED = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}
NEVER_IMPORTED |= {"importlib", "runpy", "code", "codeop", "imp", "pkgutil", "torch", "pyshark"}
"""What could run or import something that a capture names, or takes seconds to import."""
NEVER_CALLED = {"eval", "exec", "compile", "__import__"}

WRITE_THEMSELVES = ("rpcinspect.recorder.namespace", "rpcinspect.replayer.workers.outputs", "rpcinspect.cli")
"""What writes to /proc, the output of live workers, and /dev/null."""

REPLAYER = (
    *("planning", "peers", "workers", "playing", "agent"),
    *("options", "requirements", "session_run", "replayer", "matrix", "against"),
)
"""The parts of `replayer`, from the bottom up."""
REPLAYER_UPWARDS = {
    ("rpcinspect.replayer.planning.plan", "rpcinspect.replayer.agent.passes"),
    ("rpcinspect.replayer.workers.worker_roles", "rpcinspect.replayer.agent.main"),
    ("rpcinspect.replayer.workers.live_debugger", "rpcinspect.replayer.agent.tensors"),
}
"""(who, what): a plan asks what an engine can't do; a process of torch may be played by its agent; a debugger
shows the tensors of a message as that agent would have them."""

PARTS = {
    "views": {"diff", "page", "replay"},
    "export": {"otlp", "parquet", "pcap", "perfetto", "redaction", "reproducer", "wireshark"},
}
"""The parts of a layer that stand for themselves; the others are there for all."""
PARTS_THAT_MEET = {("redaction", "pcap")}
"""(who, what): redacted messages are given in the form that the writers of captures take."""

PURE = {
    *("tcp", "store", "tensorpipe", "pickles", "rpc", "rpclog", "workerlog", "session", "equality", "checks"),
    *("run", "fields", "filter", "export.pcap", "export.redaction"),
}
"""Layers, and parts of one."""
NOT_PURE = {"os", "io", "sys", "time", "datetime", "random", "logging", "locale", "signal", "socket"}
NOT_PURE |= {"subprocess", "tempfile", "pathlib", "shutil", "select", "threading", "asyncio", "glob"}
NOT_PURE_CALLS = {"open", "print", "input"}


@dataclass(frozen=True)
class Said:
    """What is asked of a source file; its tree is not kept, of which there would be many."""

    docstring: str | None
    imports: tuple[tuple[str, int], ...]
    """(absolute name, line) of every import, also inside functions; `from x import y` gives `x.y`."""
    called_names: tuple[tuple[str, int], ...]
    """(name, line) of every call of a plain name."""
    types: tuple[str, ...]
    """Names of the classes and type aliases of the module."""


@dataclass(frozen=True)
class Module:
    """One source file of the package."""

    path: Path
    name: str

    @property
    def layer(self) -> str:
        """The first part of the name below the package; empty for the package itself."""
        return self.name.partition(".")[2].partition(".")[0]

    @property
    def said(self) -> Said:
        return read(self.path)


@cache
def read(path: Path) -> Said:
    """Parses a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    imports: list[tuple[str, int]] = []
    called: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            imports += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.append((node.func.id, node.lineno))
    types = tuple([name for node in tree.body for name in _type_names(node)])
    return Said(ast.get_docstring(tree), tuple(imports), tuple(called), types)


def _type_names(node: ast.stmt) -> Iterator[str]:
    """The name of the class or type alias that a statement defines."""
    match node:
        case (
            ast.ClassDef(name=name)
            | ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias"))
        ):
            yield name
        case ast.Assign(targets=[ast.Name(id=name)]) if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", name):
            yield name


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(path, name))
    return tuple(found)


def over_every_module(rule: Callable[[Module], Iterator[str]]) -> Callable[[], None]:
    """One test of a rule, which says of a module where it is broken: with all places, of all modules."""

    def broken_nowhere() -> None:
        broken = [text for module in modules() for text in rule(module)]
        assert not broken, "\n".join(broken)

    broken_nowhere.__doc__ = rule.__doc__
    return broken_nowhere


@over_every_module
def test_imports_point_down(module: Module) -> Iterator[str]:
    own = RANK[module.layer or "library"]  # the package itself offers what `library` has
    for name, line in module.said.imports:
        if name.partition(".")[0] != "rpcinspect":
            continue
        target = name.partition(".")[2].partition(".")[0]
        # What is no layer is a name of the package itself, such as __version__.
        if RANK.get(target, 0) > own:
            yield f"{module.path}:{line} imports {name}, which lies above it"


@over_every_module
def test_other_packages_are_imported_at_home_only(module: Module) -> Iterator[str]:
    for name, line in module.said.imports:
        package = name.partition(".")[0]
        if package in sys.stdlib_module_names or package == "rpcinspect":
            continue
        if module.name in CHILDREN and package in CHILD_MAY_IMPORT:
            continue
        if (module.name, name) == MAKES_TENSORS:
            continue
        if module.layer not in HOMES.get(package, ()):
            yield f"{module.path}:{line} imports {name}"


@over_every_module
def test_imports_point_down_within_the_replayer(module: Module) -> Iterator[str]:
    parts = module.name.split(".")
    if module.layer != "replayer" or len(parts) < 3:
        return
    for name, line in module.said.imports:
        if name.startswith("rpcinspect.replayer."):
            part = name.split(".")[2]
            allowed = (module.name, name.rpartition(".")[0]) in REPLAYER_UPWARDS
            if not allowed and REPLAYER.index(part) > REPLAYER.index(parts[2]):
                yield f"{module.path}:{line} imports {name}: that is a part above"


@over_every_module
def test_parts_that_stand_for_themselves_know_no_other(module: Module) -> Iterator[str]:
    layer, part = (*module.name.split("."), "", "")[1:3]
    others = PARTS.get(layer, set()) - {part}
    for name, line in module.said.imports:
        other = name.split(".")[2] if name.startswith(f"rpcinspect.{layer}.") else ""
        if other in others and part in PARTS[layer] and (part, other) not in PARTS_THAT_MEET:
            yield f"{module.path}:{line} imports {name}"


@cache
def circles() -> tuple[tuple[str, ...], ...]:
    """Modules that need each other, by their imports while they are loaded or later."""
    names = {module.name for module in modules()}
    needs = {
        module.name: {n if n in names else n.rpartition(".")[0] for n, _ in module.said.imports} & names
        for module in modules()
    }
    reach = {name: set(found) for name, found in needs.items()}
    for middle in reach:
        for name in reach:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    within = ((name, *sorted(o for o in reach[name] if name in reach[o] and o != name)) for name in reach)
    return tuple(sorted({tuple(sorted(one)) for one in within if len(one) > 1}))


def test_other_packages_are_dependencies() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    def listed(name: str) -> set[str]:
        block = re.search(rf"^{name} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
        assert block is not None
        return {name.lower() for name in re.findall(r'"([A-Za-z0-9_-]+)', block[1])}

    assert {DISTRIBUTIONS.get(name, name) for name in HOMES if name not in EXTRAS} <= listed("dependencies")
    for name, extra in EXTRAS.items():
        assert name in listed(extra)
        assert name in HUGE or name in listed("dev")


@over_every_module
def test_nothing_captured_can_be_run(module: Module) -> Iterator[str]:
    for name, line in module.said.imports:
        own = module.name in CHILDREN or (module.name, name) in IN_PROCESS
        if name.startswith(CHILDREN) and not own:
            yield f"{module.path}:{line} imports {name}"
        if module.name in CHILDREN and name.partition(".")[0] in CHILD_MAY_IMPORT:
            continue
        if (module.name, name) in (*LOOKS, LOADS_COMMANDS):
            continue
        if (module.name, name) == MAKES_TENSORS:
            continue
        if module.name == ASKS_PYSHARK and name.partition(".")[0] == "pyshark":
            continue
        if name.partition(".")[0] in NEVER_IMPORTED:
            yield f"{module.path}:{line} imports {name}"
    for name, line in module.said.called_names:
        if name in NEVER_CALLED:
            yield f"{module.path}:{line} calls {name}"


@over_every_module
def test_files_are_written_by_one_part(module: Module) -> Iterator[str]:
    """Others write into what `files` has opened, so that nothing is half there, or there for everybody."""
    if module.layer in {"files", *PURE} or module.name in (*CHILDREN, *WRITE_THEMSELVES):
        return
    tree = ast.parse(module.path.read_text(encoding="utf-8"))
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        modes = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        writes = name == "open" and any(re.fullmatch(r"[rbt]*[wxa+][rwxabt+]*", mode) for mode in modes)
        if name in ("write_bytes", "write_text", "TemporaryFile", "NamedTemporaryFile", "mkstemp") or writes:
            yield f"{module.path}:{call.lineno} writes a file by itself"


@over_every_module
def test_decoders_do_no_input_and_output(module: Module) -> Iterator[str]:
    if not PURE & {module.layer, ".".join(module.name.split(".")[1:3])}:
        return
    for name, line in module.said.imports:
        if name.partition(".")[0] in NOT_PURE:
            yield f"{module.path}:{line} imports {name}"
    for name, line in module.said.called_names:
        if name in NOT_PURE_CALLS:
            yield f"{module.path}:{line} calls {name}"


@over_every_module
def test_a_module_says_what_it_is_for(module: Module) -> Iterator[str]:
    docstring = module.said.docstring or ""
    if len(docstring) <= len("One line."):
        yield f"{module.path} does not say what it is for: {docstring!r}"


def test_no_two_classes_share_a_name() -> None:
    """Type aliases count too: a name that a reader has met once means the same everywhere."""
    homes: dict[str, list[str]] = {}
    for module in modules():
        for name in module.said.types:
            homes.setdefault(name, []).append(module.name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


TESTED_TOGETHER = {
    "cli/test_questions.py": (
        *("contexts", "devices", "disconnects", "findings"),
        *("graph", "latency", "profile", "rrefs"),
    ),
    "cli/test_decode.py": ("messages",),
    "cli/test_diff.py": ("comparing",),
    "cli/test_record.py": ("recording",),
    "cli/test_replay.py": ("replaying",),
    "cli/export/test_html.py": ("otlp", "perfetto"),
}
"""Tests of several commands, or of one that two modules make → names of modules at the same place."""


def test_every_module_has_its_tests() -> None:
    """At the same place: a file of its name, or of what is built on it there."""
    untested = []
    for folder in sorted({module.path.parent for module in modules()}):
        tests = ROOT / "tests" / folder.relative_to(PACKAGE)
        texts = {path.name: path.read_text(encoding="utf-8") for path in tests.glob("test_*.py")}
        there = [module for module in modules() if module.path.parent == folder]
        tested = {m.name for m in there if f"test_{m.path.name}" in texts}
        tested |= {m.name for m in there if any(f"from {m.name} import" in t for t in texts.values())}
        place = folder.relative_to(PACKAGE)
        together = {place / f"{n}.py" for test in texts for n in TESTED_TOGETHER.get(f"{place}/{test}", ())}
        tested |= {m.name for m in there if m.path.relative_to(PACKAGE) in together}
        before: set[str] = set()
        while tested != before:
            before = set(tested)
            tested |= {n.rpartition(".")[0] for m in there if m.name in tested for n, _ in m.said.imports}
        untested += [m.name for m in there if m.name not in tested and not m.path.name.startswith("__")]
    assert not untested, untested


def test_every_layer_is_known() -> None:
    assert {module.layer for module in modules() if module.layer} == set(RANK)


def test_no_modules_need_each_other() -> None:
    """But for the model of a run, whose parts know the whole that they belong to, and for commands with what
    they load once they run, which takes their options."""
    parts = ("rpcinspect.run.", "rpcinspect.cli.")
    assert [
        one for one in circles() if not any(all(name.startswith(part) for name in one) for part in parts)
    ] == []


def test_the_picture_of_the_data_path_is_that_of_the_imports() -> None:
    """Stages stand in it from the bottom up; what a line between two of them names, the one above made."""
    text = (ROOT / "docs" / "data-path.md").read_text(encoding="utf-8")
    drawn, stage = [], ""
    for line in text.split("```")[1].splitlines():
        if found := re.match(r" +▼ +([a-z]+)", line):
            stage = found[1]
            drawn.append(stage)
        elif stage and (found := re.match(r" ([A-Z][A-Za-z]+(?:, [A-Z][A-Za-z]+)*)", line)):
            own = "\n".join(m.path.read_text(encoding="utf-8") for m in modules() if m.layer == stage)
            for name in found[1].split(", "):
                assert re.search(rf"^(class )?{name}\b", own, re.MULTILINE), f"{stage} makes no {name}"
    layers = [
        layer for names in LAYERS for layer in names if (PACKAGE / layer).is_dir() or layer == "pipeline"
    ]
    assert set(drawn) == set(layers)
    assert [RANK[layer] for layer in drawn] == sorted(RANK[layer] for layer in drawn)
