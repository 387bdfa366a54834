"""What captured messages would make a live process import and call, and whether the user agreed to it.

In: messages that are to reach a live worker: requests that are sent, and answers that are given in a captured
worker's place. Out: every name with whether it is allowed. Names and values are judged by
`pickles.judge`; this is its policy for replays: a name that is in no list of ours is allowed if `--allow`
names it, or if a file that the user named by `--main` or `--path` defines it. The function of a request is
judged here: it must be such a name, a method of such a class, or a helper of torch with the arguments that
torch gives it.

This stops gadgets. It does not make the functions harmless that were allowed: those are called, with
arguments that the capture chose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from rpcinspect.pickles import semantic
from rpcinspect.pickles.judge import Judge
from rpcinspect.pickles.judge_jit import judge_jit
from rpcinspect.pickles.python import PythonPickle
from rpcinspect.pickles.safe_names import EXCEPTIONS, HELPERS, LAYERS, has_dunder, is_dangerous
from rpcinspect.pickles.semantic import GETATTR, SCRIPT_PREFIX
from rpcinspect.pickles.tree import Call, Global
from rpcinspect.pickles.verdicts import Named, NameRuling, title
from rpcinspect.replayer.planning.allowances import BY_MAIN, Allowance, hint
from rpcinspect.replayer.planning.helpers import OF_FILES, Id, Made, is_data, judge_helper
from rpcinspect.replayer.planning.model import GlobalUse
from rpcinspect.replayer.planning.operators import judge_operator
from rpcinspect.replayer.planning.source_names import HARMLESS_METHODS
from rpcinspect.replayer.planning.sources import MAIN_NAMES, REASONS, Sources
from rpcinspect.rpc.command import (
    PythonCall,
    PythonRemoteCall,
    ScriptCall,
    ScriptRemoteCall,
    ScriptResp,
    ScriptRRefFetchRet,
    UnknownCommand,
)
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import Envelope, RpcWithAutograd, RpcWithProfilingReq
from rpcinspect.rpc.message import fits, type_name
from rpcinspect.rpc.record import RpcRecord

NOBODY = "nobody allowed it"
MADE = "what a call made would be called"
REBUILDS = "it would be called while the pickle is loaded, and no __reduce__ of its file returns it"
SCRIPTED = frozenset({Global("torch.distributed.optim.optimizer", "_script_local_optimizer_step")})
"""Helpers of torch that are functions of TorchScript."""
PROFILED = (1, 2, 3)
"""States of the legacy profiler: CPU, CUDA, NVTX."""


class Gate:
    """The user's decision; asks each record once."""

    keeps_getattr = False

    def __init__(self, allow: Sequence[Allowance] = (), sources: Sources | None = None) -> None:
        self._allow = tuple(allow)
        self._sources = sources or Sources()
        self._known: dict[Global, NameRuling] = {}

    def inspect(
        self, record: RpcRecord, made: Mapping[Id, Made] | None = None, *, answers: int | None = None
    ) -> tuple[Named, ...]:
        """Every name in a message's pickles, each once; refused ones as soon as one use of it is refused.

        `made`: of which class the objects behind RRefs are, for helpers that call their methods. `answers`:
        the type of the request that it answers, without envelopes.
        """
        judge = Judge(self)
        command = record.rpc.command
        kind = message_type_of(command)
        if answers is not None and not fits(answers, kind):
            judge.refuse(type_name(kind), f"torch never answers {type_name(answers)} with it")
        for envelope in record.rpc.envelopes:
            self._envelope(judge, envelope)
        if isinstance(command, (ScriptCall, ScriptRemoteCall)):
            self._script_function(judge, command)
            judge_jit(judge, command.args)
        elif isinstance(command, ScriptResp):
            judge_jit(judge, command.value)
        elif isinstance(command, ScriptRRefFetchRet):
            judge_jit(judge, command.values)
        elif isinstance(command, UnknownCommand):
            judge.refuse("a message that can't be read", "what it would do is not known")
        if record.facts.pickle is not None:
            if isinstance(command, (PythonCall, PythonRemoteCall)):
                self._request(judge, record.facts.pickle, made or {})
            else:
                self._answer(judge, record.facts.pickle)
        return tuple(judge.found.values())

    def _envelope(self, judge: Judge, envelope: Envelope) -> None:
        """torch trusts these: what it never sends ends the process."""
        if isinstance(envelope, RpcWithProfilingReq) and envelope.profiler_config.state not in PROFILED:
            judge.refuse("a profiler's state", "torch never sends it, and may end the process for it")
        if isinstance(envelope, RpcWithAutograd):
            pairs = envelope.device_map.items()
            if any(one.partition(":")[0] != other.partition(":")[0] for one, other in pairs):
                judge.refuse("a device map", "torch has none between devices of two kinds")

    # --- the policy ---------------------------------------------------------------------------------------

    def standing(self, name: Global) -> NameRuling:
        """What a name of a module may be used for, by the user's `--allow`, `--path` and `--main`."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._standing(name)
        return found

    def _standing(self, name: Global) -> NameRuling:
        if self._named(name):
            return NameRuling(True)
        found = self._sources.find(name.module, name.name)
        allow = self._hint(name)
        if found is None:
            reason = "an attribute chain" if "." in name.name else NOBODY
            return NameRuling(False, reason=reason, allow=allow, dangerous=is_dangerous(name))
        if found.kind == "alias":
            is_name = all(part.isidentifier() for part in found.of.split("."))
            what = "the file has it as another name" if is_name else "not the file's own"
            reason = f"{what}: {found.of}"
            return NameRuling(False, reason=reason, allow=allow, dangerous=_is_dangerous(found.of))
        if "." in name.name and has_dunder(name.name):
            return NameRuling(False, found.kind, "a special method, with an object of any class", allow)
        facts = self._sources.class_facts(name.module, name.name) if found.kind == "class" else None
        if found.kind == "value" and not found.literal:
            return NameRuling(True, "value", allow=allow, constructing=MADE)
        if facts is None:
            loading = "" if found.kind != "function" or found.rebuilds else REBUILDS
            return NameRuling(True, found.kind, allow=allow, loading=loading)
        reasons = {name: getattr(facts, name) for name in REASONS}
        return NameRuling(True, "class", allow=allow, bound=facts.bound, **reasons)

    def method(self, owner: Global, name: str, explicit: bool = False) -> NameRuling:
        """Whether a method may be called: defined in the class in the user's file, or named by `--allow`.
        `explicit`: only the latter counts.
        """
        chain = Global(owner.module, f"{owner.name}.{name}")
        allow = self._hint(chain) or self._method_hint(owner, name)
        if self._named(chain):
            return NameRuling(True)
        found = None if explicit else self._sources.find(chain.module, chain.name)
        if found is None:
            bad = has_dunder(name) or is_dangerous(owner)
            return NameRuling(False, reason="a method that nobody allowed", allow=allow, dangerous=bad)
        if found.kind == "alias":
            reason = f"not defined in the class: {found.of}"
            return NameRuling(False, "value", reason, allow, _is_dangerous(found.of))
        if found.kind != "function":
            return NameRuling(False, "value", f"a {found.kind} of the class, no method", allow)
        return NameRuling(True, found.kind, allow=allow)

    def _hint(self, name: Global) -> str:
        """The argument that a refusal offers for a name; `--main` for one of a script that is not given."""
        if name.module in MAIN_NAMES and not self._sources.has_main:
            return BY_MAIN
        return hint(name.module, name.name)

    def _method_hint(self, owner: Global, name: str) -> str:
        """The line for a method of what a function returned, of whatever class: one that classes of the
        user's files or modules of torch have.
        """
        if has_dunder(name) or name in OF_FILES or not (owner in HELPERS or hint(owner.module, owner.name)):
            return ""
        usual = name == "step" or name in HARMLESS_METHODS["torch.nn.Sequential"]
        return f"{owner.module}:{owner.name}.{name}" if usual or self._sources.has_method(name) else ""

    def _named(self, name: Global) -> bool:
        return any(one.covers(name.module, name.name) for one in self._allow)

    # --- Python: what the request itself runs -------------------------------------------------------------

    def _request(self, judge: Judge, pickle: PythonPickle, made: Mapping[Id, Made]) -> None:
        udf = semantic.python_udf(pickle.root)
        judge.python(pickle, request=udf is not None)
        if udf is None:
            judge.refuse(title(pickle.root), "a request that is no PythonUDF")
            return
        function = udf.func
        if type(function) is Global:
            self._function(judge, udf, made)
        elif type(function) is not Call or semantic.receiver(function) is not None:
            judge.refuse(title(function), "what only loading makes known would be called")
        elif function.function == PARTIAL:
            inner = function.args[0] if type(function.args) is tuple and function.args else None
            if type(inner) is not Global or not self._callable(judge, inner):
                judge.refuse(title(function), "what only loading makes known would be called")
        elif function.function != GETATTR:  # methods are judged where the pickle makes them
            self._object(judge, function)

    def _function(self, judge: Judge, udf: semantic.PythonUdf, made: Mapping[Id, Made]) -> None:
        if udf.func in HELPERS or udf.func in LAYERS:
            judge.imported(udf.func)
        if udf.func in HELPERS:
            judge_helper(judge, udf, made, self.method, allowed=self._named(udf.func))
        elif udf.func not in LAYERS:
            self._callable(judge, udf.func)
        elif not is_data(udf.args, *(value for _, value in udf.kwargs.pairs)):
            judge.refuse(str(udf.func), "a layer of torch would be given what is no data")

    def _callable(self, judge: Judge, name: Global) -> bool:
        """Whether a name may be the function of a request; keeps the judgement in `judge`."""
        standing = self.standing(name)
        reason = standing.reason or standing.constructing
        if standing.kind == "value":
            reason = reason or "no function of the file"
        judge.say(Named(str(name), not reason, reason, standing.allow, standing.dangerous))
        return not reason

    def _object(self, judge: Judge, function: Call) -> None:
        """An object that is called: its class must be the user's, and say what calling it does."""
        cls = function.function
        standing = self.standing(cls) if type(cls) is Global else NameRuling(False)
        if type(cls) is not Global or not standing.allowed or standing.kind == "function":
            judge.refuse(title(function), "what only loading makes known would be called")
        elif reason := self._calling(cls, standing):
            judge.refuse(f"{cls}.__call__", reason, hint(cls.module, f"{cls.name}.__call__"), dangerous=False)
        elif judge.states.hides(function, "forward"):
            judge.refuse(title(function), "an attribute in its state hides what calling it runs")

    def _calling(self, cls: Global, standing: NameRuling) -> str:
        """Why an object that a class made may not be called. A name that `--allow` has may as well be a
        function's, and what that returns is nobody's.
        """
        if any(self._named(Global(cls.module, f"{cls.name}.{name}")) for name in ("__call__", "forward")):
            return ""
        if standing.kind != "any":
            return standing.calling
        facts = self._sources.class_facts(cls.module, cls.name)
        return MADE if facts is None else facts.calling

    def _answer(self, judge: Judge, pickle: PythonPickle) -> None:
        """torch makes the exception that a failed call's answer names, with a text of the capture's
        choice.
        """
        judge.python(pickle)
        failure = semantic.remote_exception(pickle.root)
        if failure is None:
            return
        kind = failure.exception_type
        if kind is None:
            judge.refuse(title(pickle.root), "an exception without the name of its type")
        elif kind not in EXCEPTIONS:
            standing = self.standing(kind)
            if not standing.allowed or standing.kind not in ("class", "any"):
                judge.refuse(title(kind), "no class of an exception", standing.allow)

    # --- TorchScript: runs no Python, but operators, and functions that the live process has compiled -----

    def _script_function(self, judge: Judge, command: ScriptCall | ScriptRemoteCall) -> None:
        if command.schema is None:
            judge.say(self._script_name(command.qualified_name))
            return
        operator = judge_operator(command.schema, command.args)
        allow = f"aten::{operator.name.removeprefix('aten::')}"
        named = any(one.covers_operator(operator.name.removeprefix("aten::")) for one in self._allow)
        if operator.passes or (named and operator.allowable):
            judge.say(Named(operator.name, True))
        else:
            judge.say(Named(operator.name, False, operator.reason, allow if operator.allowable else "", True))

    def _script_name(self, qualified: str) -> Named:
        module, _, name = qualified.removeprefix(SCRIPT_PREFIX).rpartition(".")
        known = Global(module, name)
        if not qualified.startswith(SCRIPT_PREFIX):
            return Named(qualified, False, "no name of TorchScript")
        if known in SCRIPTED:
            return Named(qualified, True)
        if known in HELPERS:
            return Named(qualified, False, "no function of TorchScript", dangerous=True)
        standing = self.standing(known)
        reason = standing.reason or (
            "" if standing.kind in ("function", "any") else "no function of the file"
        )
        return Named(qualified, not reason, reason, standing.allow, standing.dangerous)


class Inspection(Struct, eq=False):
    """Asks a gate about the messages that are to reach a live process, and notes what they name."""

    gate: Gate
    classes: Mapping[Id, Made]
    """Of the objects behind RRefs."""
    trust: bool
    """Whether nothing is refused."""
    named: dict[int, tuple[Named, ...]] = field(default_factory=dict)
    """By row: each record is asked about once."""
    noted: dict[str, dict[int, Named]] = field(default_factory=lambda: defaultdict(dict))
    """Name → message → what was said of it there."""

    def names(self, record: RpcRecord, answers: int | None = None) -> tuple[Named, ...]:
        """As `Gate.inspect`; nothing is noted."""
        if record.row not in self.named:
            self.named[record.row] = self.gate.inspect(record, self.classes, answers=answers)
        return self.named[record.row]

    def refusal(self, record: RpcRecord, index: int, answers: int | None = None) -> str | None:
        """What is refused in the message of this index; None if nothing. Notes what it names."""
        for one in self.names(record, answers):
            self.noted[one.name][index] = one
        return self.objection(record, answers)

    def objection(self, record: RpcRecord, answers: int | None = None) -> str | None:
        """What is refused in a message, in words; None if nothing. Nothing is noted."""
        refused = [one for one in self.names(record, answers) if not one.allowed and not self.trust]
        return f"{refused[0].name}: {refused[0].reason}" if refused else None

    def uses(self) -> tuple[GlobalUse, ...]:
        """What was noted, as one line for each name, refused ones first."""
        found = []
        for name, messages in self.noted.items():
            bad = [one for _, one in sorted(messages.items()) if not one.allowed]
            allow = next((one.allow for one in bad if one.allow), "")
            allow = "" if any(one.dangerous for one in bad) else allow
            reason = bad[0].reason if bad else ""
            found.append(GlobalUse(name, not bad, tuple(sorted(messages)), reason, allow))
        return tuple(sorted(found, key=lambda use: (use.allowed, use.name)))


def _is_dangerous(target: str) -> bool:
    """Of what an alias stands for, if that is a name."""
    module, _, name = target.rpartition(".")
    return name.isidentifier() and is_dangerous(Global(module or "builtins", name))


PARTIAL = Global("functools", "partial")
