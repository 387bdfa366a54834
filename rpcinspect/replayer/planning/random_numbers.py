"""Which messages depend on random numbers: layers with random weights, dropout, draws.

In: the names that messages would import and call, the user's source files, and what is known of RRefs. Out: a
note for the plan. RPC carries no random numbers, so that a live worker draws others unless it has the job's
seed. The user's functions and classes are read as text and never run: one may draw if it calls what draws, or
mentions a function or class of the same file that may, and does not seed. Nothing is said where no source
tells of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from rpcinspect.replayer.planning.facts import JobFacts, rrefs_in
from rpcinspect.replayer.planning.model import GlobalUse, Step, some_of
from rpcinspect.replayer.planning.sources import Sources
from rpcinspect.run.exchanges import Exchange


def random_note(
    uses: Iterable[GlobalUse],
    steps: Iterable[Step],
    calls: Mapping[int, Exchange],
    facts: Mapping[int, JobFacts],
    sources: Sources,
) -> str | None:
    """Returns which requests draw, and which answers may depend on it; None where nothing tells of any."""
    reasons: dict[int, str] = {}
    for use in uses:
        module, _, name = use.name.rpartition(".")
        drawn = draws(module, name, sources)
        if drawn is not None:
            reasons |= dict.fromkeys(use.messages, f"{name}: {drawn}" if drawn != name else name)
    happening = [step.message for step in steps if step.action == "send" or step.happens]
    direct = [index for index in sorted(set(happening)) if index in reasons]
    if not direct:
        return None
    users = [
        index for index in sorted(set(happening) - set(direct)) if _uses_made(calls[index], facts, reasons)
    ]
    told = some_of([f"#{index} ({reasons[index]})" for index in direct], 3)
    note = f"Random numbers may be drawn for {told}"
    if users:
        shown = some_of([f"#{index}" for index in users], 3)
        note += f"; {len(users)} more requests use what these make ({shown})"
    return (
        f"{note}. Their answers then differ unless the live workers draw what the job drew: --seed NAME=N "
        "seeds one, --search-seed 0:100 finds its seed; --restore-parameters or --checkpoint put weights in."
    )


def _uses_made(call: Exchange, facts: Mapping[int, JobFacts], reasons: Mapping[int, str]) -> bool:
    makers = facts[call.job].makers
    return any(rref in makers and makers[rref].request in reasons for rref in rrefs_in(call.request))


def draws(module: str, name: str, sources: Sources) -> str | None:
    """Returns what a function or class draws with; None where it draws nothing, or that is not known."""
    if module.partition(".")[0] in LIBRARIES or module.startswith("__torch__.torch"):
        last = name.rpartition(".")[2]
        return last if last in DRAWS else None
    path = sources.path_of(module)
    return None if path is None else _drawn(path).get(name.partition(".")[0])


@cache
def _drawn(path: Path) -> dict[str, str]:
    """Returns function or class of a file → what it draws with, itself or through others of the file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    ours = _aliases(tree)
    definitions = {
        node.name: node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    calls = {name: _called(node, ours) for name, node in definitions.items()}
    mentions = {name: _mentioned(node) for name, node in definitions.items() if SEEDS.isdisjoint(calls[name])}
    drawn = {name: next((word for word in calls[name] if word in DRAWS), None) for name in mentions}
    found = {name: its for name, its in drawn.items() if its is not None}
    before = -1
    while before < len(found):
        before = len(found)
        for name, words in mentions.items():
            through = next((word for word in words if word in found and word != name), None)
            if name not in found and through is not None:
                found[name] = found[through]
    return found


def _mentioned(node: ast.AST) -> Sequence[str]:
    """Returns the names and attributes in a definition."""
    nodes = list(ast.walk(node))
    names = [one.id for one in nodes if isinstance(one, ast.Name)]
    return [*names, *(one.attr for one in nodes if isinstance(one, ast.Attribute))]


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Returns name in a file → what of torch, `random` or NumPy it stands for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            its = [one for one in node.names if one.name.partition(".")[0] in LIBRARIES]
            found |= {one.asname or one.name.partition(".")[0]: one.name for one in its}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LIBRARIES:
            found |= {one.asname or one.name: one.name for one in node.names}
    return found


def _called(node: ast.AST, ours: Mapping[str, str]) -> Sequence[str]:
    """Returns the last names of what a definition calls, if it is of a library, or works in place as only
    methods of tensors do."""
    found = []
    for one in ast.walk(node):
        if not isinstance(one, ast.Call):
            continue
        root = one.func
        while isinstance(root, ast.Attribute):
            root = root.value
        name = root.id if isinstance(root, ast.Name) else ""
        last = one.func.attr if isinstance(one.func, ast.Attribute) else ours.get(name, name)
        if name in ours or last.endswith("_"):
            found.append(last)
    return found


LIBRARIES = ("torch", "numpy", "random")
SEEDS = frozenset({"manual_seed", "seed"})
LAYERS = (
    "Linear Bilinear LazyLinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d "
    "Embedding EmbeddingBag RNN LSTM GRU RNNCell LSTMCell GRUCell MultiheadAttention Transformer "
    "TransformerEncoderLayer TransformerDecoderLayer"
)
DROPOUTS = (
    "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout RReLU dropout dropout1d "
    "dropout2d dropout3d alpha_dropout feature_alpha_dropout rrelu gumbel_softmax"
)
FUNCTIONS = (
    "rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial normal "
    "poisson normal_ uniform_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ "
    "xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_ trunc_normal_ "
    "sparse_ shuffle sample choice choices uniform gauss randrange permutation standard_normal"
)
DRAWS = frozenset(f"{LAYERS} {DROPOUTS} {FUNCTIONS}".split())
"""Names of torch, `random` and NumPy that draw, as classes when an object is made or used."""
