"""What captured messages would make a live process import and call, and whether the user agreed to it.

In: messages that are to reach a live worker: requests that are sent, and answers that are given in a captured
worker's place. Out: every name with whether it is allowed. `pickles.judge` judges names and values;
`ExecutionPolicy` tells it of names that are in no list of ours: one is allowed if `--allow` names it, or if a
file that the user named by `--main` or `--path` defines it. The function of a request is judged here: it must
be such a name, a method of such a class, or a helper of torch with the arguments that torch gives it.

This stops gadgets. It does not make the functions harmless that were allowed: those are called, with
arguments that the capture chose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from rpcinspect.pickles import semantic
from rpcinspect.pickles.judge import Judge
from rpcinspect.pickles.judge_jit import judge_jit
from rpcinspect.pickles.python import PythonPickle
from rpcinspect.pickles.safe_names import EXCEPTIONS, HELPERS, LAYERS, has_dunder, is_dangerous
from rpcinspect.pickles.semantic import GETATTR, SCRIPT_PREFIX
from rpcinspect.pickles.tree import Global, PickleCall
from rpcinspect.pickles.verdicts import Named, NameRuling, title
from rpcinspect.replayer.planning.allowances import ATEN, BY_MAIN, Allowance, hint
from rpcinspect.replayer.planning.model import GlobalUse
from rpcinspect.replayer.planning.operators import judge_operator
from rpcinspect.replayer.planning.source_names import HARMLESS_METHODS
from rpcinspect.replayer.planning.sources import MAIN_NAMES, Sources
from rpcinspect.replayer.planning.torch_helpers import OF_FILES, is_data, judge_helper
from rpcinspect.rpc.command import PythonCall, PythonRemoteCall, ScriptCall, ScriptRemoteCall, UnknownCommand
from rpcinspect.rpc.command_codec import message_type_of
from rpcinspect.rpc.envelope import Envelope, RpcWithAutograd, RpcWithProfilingReq
from rpcinspect.rpc.message import fits, type_name
from rpcinspect.rpc.pickle_facts import SCRIPT
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.session.model import Session
from rpcinspect.session.provenance import Id

NOBODY = "you haven't allowed it"
MADE = "the result of a call would be called"
REBUILDS = "it would be called while the pickle is loaded, and no __reduce__ of its file returns it"
SCRIPTED = frozenset({Global("torch.distributed.optim.optimizer", "_script_local_optimizer_step")})
"""Helpers of torch that are functions of TorchScript."""
PROFILED = (1, 2, 3)
"""States of the legacy profiler: CPU, CUDA, NVTX."""


class ExecutionPolicy:
    """The user's decision on what captured messages may run: `--allow`, `--main` and `--path`."""

    keeps_getattr = False

    def __init__(self, allow: Sequence[Allowance] = (), sources: Sources | None = None) -> None:
        self._allow = tuple(allow)
        self.sources = sources or Sources()
        self._known: dict[Global, NameRuling] = {}

    def inspect(
        self, record: RpcRecord, made: Mapping[Id, Global] | None = None, *, answers: int | None = None
    ) -> tuple[Named, ...]:
        """Judges every name in a message's pickles; a name is refused as soon as one use of it is.

        `made`: what has made the objects behind RRefs (`rref_classes`), for helpers that call their methods.
        `answers`: the type of the request that the message answers, envelopes off.
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
        if type(command) in SCRIPT:
            judge_jit(judge, SCRIPT[type(command)](command))
        if isinstance(command, UnknownCommand):
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
            judge.refuse("a profiler's state", "torch never sends it, and it may end the process")
        if isinstance(envelope, RpcWithAutograd):
            pairs = envelope.device_map.items()
            if any(one.partition(":")[0] != other.partition(":")[0] for one, other in pairs):
                judge.refuse("a device map", "torch has no map between devices of two kinds")

    # --- the policy ---------------------------------------------------------------------------------------

    def standing(self, name: Global) -> NameRuling:
        """Returns what a name of a module may be used for."""
        if name not in self._known:
            self._known[name] = self._standing(name)
        return self._known[name]

    def _standing(self, name: Global) -> NameRuling:
        if self._named(name):
            return NameRuling(True)
        found = self.sources.find(name.module, name.name)
        allow = self._hint(name)
        if found is None:
            reason = "an attribute chain" if "." in name.name else NOBODY
            return NameRuling(False, reason=reason, allow=allow, dangerous=is_dangerous(name))
        if found.kind == "alias":
            is_name = all(part.isidentifier() for part in found.of.split("."))
            what = "the file gives that name to something else" if is_name else "not defined in the file"
            reason = f"{what}: {found.of}"
            return NameRuling(False, reason=reason, allow=allow, dangerous=_is_dangerous(found.of))
        if "." in name.name and has_dunder(name.name):
            return NameRuling(False, found.kind, "a special method, with an object of any class", allow)
        of_class = self.sources.class_standing(name.module, name.name)
        if of_class is not None:
            return replace(of_class, allow=allow)
        if found.kind == "value":
            return NameRuling(True, "value", allow=allow, constructing="" if found.literal else MADE)
        loading = "" if self.sources.is_rebuilder(name.module, name.name) else REBUILDS
        return NameRuling(True, "function", allow=allow, loading=loading)

    def method(self, owner: Global, name: str, explicit: bool = False) -> NameRuling:
        """Returns whether a method may be called: the class defines it in the user's file, or `--allow` names
        it. `explicit`: only `--allow` counts."""
        chain = Global(owner.module, f"{owner.name}.{name}")
        allow = self._hint(chain) or self._method_hint(owner, name)
        if self._named(chain):
            return NameRuling(True)
        found = None if explicit else self.sources.find(chain.module, chain.name)
        if found is None:
            bad = has_dunder(name) or is_dangerous(owner)
            return NameRuling(False, reason="a method that you haven't allowed", allow=allow, dangerous=bad)
        if found.kind == "alias":
            reason = f"not defined in the class: {found.of}"
            return NameRuling(False, "value", reason, allow, _is_dangerous(found.of))
        if found.kind != "function":
            return NameRuling(False, "value", f"a {found.kind} of the class, not a method", allow)
        return NameRuling(True, "function", allow=allow)

    def _hint(self, name: Global) -> str:
        """The argument that a refusal offers for a name; `--main` for one of a script that is not given."""
        if name.module in MAIN_NAMES and not self.sources.has_main:
            return BY_MAIN
        return hint(name.module, name.name)

    def _method_hint(self, owner: Global, name: str) -> str:
        """The line for a method of what a function returned, of whatever class: one that classes of the
        user's files or modules of torch have.
        """
        if has_dunder(name) or name in OF_FILES or not (owner in HELPERS or hint(owner.module, owner.name)):
            return ""
        usual = name == "step" or name in HARMLESS_METHODS["torch.nn.Sequential"]
        return f"{owner.module}:{owner.name}.{name}" if usual or self.sources.has_method(name) else ""

    def _named(self, name: Global) -> bool:
        return any(one.covers(name.module, name.name) for one in self._allow)

    # --- Python: what the request itself runs -------------------------------------------------------------

    def _request(self, judge: Judge, pickle: PythonPickle, made: Mapping[Id, Global]) -> None:
        udf = semantic.python_udf(pickle.root)
        judge.python(pickle, request=udf is not None)
        if udf is None:
            judge.refuse(title(pickle.root), "a request that is not a PythonUDF")
            return
        function, unknown = udf.func, "something that only loading shows would be called"
        if type(function) is Global:
            self._function(judge, udf, made)
        elif type(function) is not PickleCall or semantic.receiver(function) is not None:
            judge.refuse(title(function), unknown)
        elif function.function == PARTIAL:
            inner = function.args[0] if type(function.args) is tuple and function.args else None
            if type(inner) is not Global or not self._callable(judge, inner):
                judge.refuse(title(function), unknown)
        elif function.function != GETATTR:  # methods are judged where the pickle makes them
            self._object(judge, function)

    def _function(self, judge: Judge, udf: semantic.PythonUdf, made: Mapping[Id, Global]) -> None:
        if udf.func in HELPERS or udf.func in LAYERS:
            judge.imported(udf.func)
        if udf.func in HELPERS:
            judge_helper(judge, udf, made, self.method, allowed=self._named(udf.func))
        elif udf.func not in LAYERS:
            self._callable(judge, udf.func)
        elif not is_data(udf.args, *(value for _, value in udf.kwargs.pairs)):
            judge.refuse(str(udf.func), "a layer of torch would be given something other than data")

    def _callable(self, judge: Judge, name: Global) -> bool:
        """Returns whether a name may be the function of a request; notes the judgement in `judge`."""
        standing = self.standing(name)
        no_function = "not a function of the file" if standing.kind == "value" else ""
        reason = standing.reason or standing.constructing or no_function
        judge.say(Named(str(name), not reason, reason, standing.allow, standing.dangerous))
        return not reason

    def _object(self, judge: Judge, function: PickleCall) -> None:
        """Judges an object that is called: its class must be the user's, and define the call."""
        cls = function.function
        standing = self.standing(cls) if type(cls) is Global else NameRuling(False)
        if type(cls) is not Global or not standing.allowed or standing.kind == "function":
            judge.refuse(title(function), "something that only loading shows would be called")
        elif reason := self._calling(cls, standing):
            judge.refuse(f"{cls}.__call__", reason, hint(cls.module, f"{cls.name}.__call__"), dangerous=False)
        elif judge.states.hides(function, "forward"):
            judge.refuse(title(function), "an attribute of its state hides what a call runs")

    def _calling(self, cls: Global, standing: NameRuling) -> str:
        """Why an object that a class made may not be called. A name that `--allow` has may as well be a
        function's, and what that returns is nobody's.
        """
        if any(self._named(Global(cls.module, f"{cls.name}.{name}")) for name in ("__call__", "forward")):
            return ""
        if standing.kind != "any":
            return standing.calling
        of_class = self.sources.class_standing(cls.module, cls.name)
        return MADE if of_class is None else of_class.calling

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
                judge.refuse(title(kind), "not an exception class", standing.allow)

    # --- TorchScript: runs no Python, but operators, and functions that the live process has compiled -----

    def _script_function(self, judge: Judge, command: ScriptCall | ScriptRemoteCall) -> None:
        if command.schema is None:
            judge.say(self._script_name(command.qualified_name))
            return
        operator = judge_operator(command.schema, command.args)
        name = operator.name.removeprefix(ATEN)
        if operator.allow and any(one.covers_operator(name) for one in self._allow):
            operator = Named(operator.name, True)
        judge.say(operator)

    def _script_name(self, qualified: str) -> Named:
        module, _, name = qualified.removeprefix(SCRIPT_PREFIX).rpartition(".")
        known = Global(module, name)
        if not qualified.startswith(SCRIPT_PREFIX):
            return Named(qualified, False, "not a TorchScript name")
        if known in SCRIPTED:
            return Named(qualified, True)
        if known in HELPERS:
            return Named(qualified, False, "not a TorchScript function", dangerous=True)
        standing = self.standing(known)
        no_function = "" if standing.kind in ("function", "any") else "not a function of the file"
        reason = standing.reason or no_function
        return Named(qualified, not reason, reason, standing.allow, standing.dangerous)


class Inspection(Struct, eq=False):
    """Applies a policy to the messages that are to reach a live process, and notes the names in them."""

    policy: ExecutionPolicy
    classes: Mapping[Id, Global]
    """What has made the objects behind RRefs."""
    trust: bool
    """Whether nothing is refused."""
    session: Session
    """Of the messages."""
    judged: dict[int, tuple[Named, ...]] = field(default_factory=dict)
    """By row: each record is judged once."""
    noted: dict[str, dict[int, Named]] = field(default_factory=lambda: defaultdict(dict))
    """Name → message → its judgement there."""

    def refusal(self, record: RpcRecord, answers: int | None = None) -> str | None:
        """The first refused name of a message with the reason, or None. Notes all its names. `answers`: as
        for `ExecutionPolicy.inspect`.
        """
        objection = self._objection(record, answers)
        for one in self.judged[record.row]:
            self.noted[one.name][int(self.session.index[record.row])] = one
        return objection

    def unasked_refusal(self, record: RpcRecord, answers: int | None = None) -> str | None:
        """Returns what `refusal` does, for an answer that only an unexpected request would get: its names are
        noted only where all of them may pass, since nobody should have to allow them."""
        return self._objection(record, answers) or self.refusal(record, answers)

    def _objection(self, record: RpcRecord, answers: int | None) -> str | None:
        if record.row not in self.judged:
            self.judged[record.row] = self.policy.inspect(record, self.classes, answers=answers)
        refused = [one for one in self.judged[record.row] if not one.allowed and not self.trust]
        return f"{refused[0].name}: {refused[0].reason}" if refused else None

    def uses(self) -> tuple[GlobalUse, ...]:
        """Returns every noted name, refused ones first."""
        found = []
        for name, messages in self.noted.items():
            bad = [one for _, one in sorted(messages.items()) if not one.allowed]
            allow = next((one.allow for one in bad if one.allow), "")
            allow = "" if any(one.dangerous for one in bad) else allow
            reason = bad[0].reason if bad else ""
            found.append(GlobalUse(name, not bad, tuple(sorted(messages)), reason, allow))
        return tuple(sorted(found, key=lambda use: (use.allowed, use.name)))


def _is_dangerous(target: str) -> bool:
    """Whether an alias stands for a dangerous name."""
    module, _, name = target.rpartition(".")
    return name.isidentifier() and is_dangerous(Global(module or "builtins", name))


PARTIAL = Global("functools", "partial")
