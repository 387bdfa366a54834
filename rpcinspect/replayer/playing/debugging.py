"""What stops a session, and what is said of its messages while it is played.

In: what the user asks for, each request that the player is about to send and all that live workers tell. Out:
whether a live worker holds, for which the player waits; lines for people; gradients by their parameters. The
player's thread and that of the `DebugRelay` both use it.

A call of Python is recognised when its live worker gets it, by its bytes; the worker asks then what it is.
Everything else is announced to the worker's main thread before it is sent, which may hold there.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, to_builtins

from rpcinspect.equality.elements import ReadExtent
from rpcinspect.equality.nonfinite import broken_by
from rpcinspect.errors import ReplayError
from rpcinspect.replayer.planning.model import PlannedSession, Step
from rpcinspect.replayer.playing.inputs import SessionInputs
from rpcinspect.replayer.playing.stops import Stops, is_between
from rpcinspect.replayer.workers.live_group import LeafGradient, LiveWorker
from rpcinspect.replayer.workers.worker_protocol import Object, with_parts
from rpcinspect.rpc.command import PythonCall, PythonRemoteCall
from rpcinspect.rpc.command_codec import from_message
from rpcinspect.rpc.envelope import peel
from rpcinspect.rpc.message import RpcMessage, type_name
from rpcinspect.rpc.questions import CLEAN_UP, PASSES
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.rpc.tensor import TensorMeta
from rpcinspect.run.exchanges import Exchange
from rpcinspect.session.words import packed

Wait = Callable[[float], bool]
"""Returns whether something is over; waits so many seconds for it."""


class DebugOptions(Struct, frozen=True, kw_only=True):
    """What the user wants to see or to stop at."""

    stop_at: tuple[str, ...] = ()
    watch: bool = False
    """Say where NaN and Inf come first."""
    anomaly: bool = False
    """torch's anomaly mode in live workers."""
    hooks: tuple[str, ...] = ()
    """`module:function`, called in live workers with each message."""
    port: int | None = None
    """Where an editor's debugger finds the first live worker; the next one has the next port."""

    @property
    def asks(self) -> bool:
        """Returns whether live workers have to tell of each call."""
        return bool(self.stop_at or self.watch or self.hooks)

    def of_worker(self, place: int) -> Object:
        """Returns what a live worker has to know; `place`: its place among all."""
        numbers = "stop" if "nonfinite" in self.stop_at else "say" if self.watch else None
        return {
            "ask": self.asks,
            "nonfinite": numbers,
            "errors": "error" in self.stop_at,
            "anomaly": self.anomaly,
            "hooks": list(self.hooks),
            "port": None if self.port is None else self.port + place,
        }


class Debugging:
    """What all sessions of a replay have in common."""

    def __init__(self, options: DebugOptions, stops: Stops, say: Callable[[str], None]) -> None:
        """`say`: shows a line."""
        self.options = options
        self.stops = stops
        self.next_message = False
        """Whatever comes next stops."""
        self.quits = False
        """The user has ended the replay."""
        self.missed = set(stops.messages)
        """Messages to stop at that did not come."""
        self._say = say
        self._said = False

    def found(self, text: str) -> None:
        """Says where NaN or Inf came first, if that is asked for."""
        if self.options.watch and not self._said:
            self._said = True
            self._say(f"nonfinite: {text}")

    def take_next(self) -> bool:
        """Returns whether whatever comes next stops, once."""
        taken, self.next_message = self.next_message, False
        return taken


class _ExpectedCall(Struct):
    """A call of Python that may come to a live worker."""

    message: int
    type: str
    sender: str
    stops: bool
    between: bool = False
    """Of two live workers, so that nobody knew before that it would come."""


class SessionDebugger:
    """Stops and looks of one session."""

    def __init__(
        self, debugging: Debugging, inputs: SessionInputs, workers: Mapping[str, LiveWorker]
    ) -> None:
        """`workers`: the live ones, by their captured names."""
        self._all = debugging
        self._inputs = inputs
        self._workers = workers
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], deque[_ExpectedCall]] = defaultdict(deque)
        """(live worker, digest) → calls on their way to it."""
        self._holding: set[tuple[str, str]] = set()
        """(live worker, key): who holds."""
        self._coming: dict[int, tuple[str, str]] = {}
        """Messages that were sent to stop, and have not come."""
        self._expect_between(inputs.planned)

    # --- the player's thread --------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Returns whether a live worker holds: time stands still. Raises `KeyboardInterrupt` if the user ends
        the replay."""
        if self._all.quits:
            raise KeyboardInterrupt
        return bool(self._holding)

    @property
    def is_to_hold(self) -> bool:
        """Returns whether one holds, or will once it has got what is on its way: nothing else is sent."""
        return self.holds or bool(self._coming)

    def before(self, step: Step, call: Exchange, message: RpcMessage, storages: Sequence[bytes]) -> Wait:
        """A request is about to be sent, with these ids. Returns what to wait for."""
        stops = self._all.stops.at(call) or (call.kind not in CLEAN_UP and self._all.take_next())
        self._all.missed.discard(call.index)
        carries = None
        if self._all.stops.nonfinite or self._all.options.watch:
            carries = broken_by(call.request, self._inputs.read)
        if carries is not None:
            self._all.found(f"{step.to} gets {carries} in {described(call)}")
            stops = stops or self._all.stops.nonfinite
        _, kind, payload = peel(message.type, message.payload)
        command = from_message(kind, payload)
        if isinstance(command, (PythonCall, PythonRemoteCall)):
            if self._all.options.asks:
                digest = digest_of(command.serialized_py_obj, call.request.rpc.tensors, storages)
                with self._lock:
                    known = _ExpectedCall(call.index, call.type, call.caller, stops)
                    self._known[step.to, digest].append(known)
                    if stops:
                        self._coming[call.index] = (step.to, f"#{call.index}")
            return _over
        return self._announce(step, call, storages, stops, carries)

    def _announce(
        self, step: Step, call: Exchange, storages: Sequence[bytes], stops: bool, carries: str | None
    ) -> Wait:
        worker = self._workers.get(step.to)
        looks = self._all.stops.nonfinite or self._all.stops.errors or self._all.options.watch
        wanted = stops or self._all.options.hooks or (looks and call.kind in PASSES)
        if worker is None or not wanted:
            return _over
        about = {"message": call.index, "type": call.type, "sender": call.caller, "stops": stops}
        about |= {"function": call.function, "context_id": call.context}
        what: Object = {"about": about, "why": f"{carries} in " if carries is not None else None}
        rows = [{**to_builtins(meta), "device": "cpu"} for meta in call.request.rpc.tensors]
        worker.announce(what, with_parts(what, b"", rows, storages))
        return worker.announced

    def over(self, call: Exchange) -> None:
        """A request has its answer, or gets none: it no longer holds."""
        with self._lock:
            self._coming.pop(call.index, None)
            self._holding.discard((call.callee, f"#{call.index}"))

    def came(
        self, record: RpcRecord, read: ReadExtent, call: Exchange, sender: str, *, answers: bool
    ) -> None:
        """A live worker has sent a message: a request, or the answer to one."""
        if self._all.options.watch and (carries := broken_by(record, read)) is not None:
            verb = "returns" if answers else "sends"
            self._all.found(f"{sender} {verb} {carries} in {described(call, answer=answers)}")

    def _expect_between(self, planned: PlannedSession) -> None:
        """Calls between live workers, which nobody announces; they come with the captured bytes if they hold
        no id that live workers give out."""
        between = [step for step in planned.steps if is_between(step, planned)]
        nested = {step.message for step in between if step.code == "nested-in-answer"}
        alike: dict[tuple[str, str], list[Exchange]] = defaultdict(list)
        for step in between if self._all.options.asks else ():
            call = self._inputs.calls[step.message]
            command = call.request.rpc.command
            if isinstance(command, (PythonCall, PythonRemoteCall)):
                storages = self._inputs.storages(call.request)
                digest = digest_of(command.serialized_py_obj, call.request.rpc.tensors, storages)
                alike[call.callee, digest].append(call)
        for key, calls in alike.items():  # those of a worker's own program may be the same, and do not come
            sure = calls if len(calls) == 1 else [call for call in calls if call.index in nested]
            for call in sure:
                stops = self._all.stops.at(call)
                self._known[key].append(_ExpectedCall(call.index, call.type, call.caller, stops, True))

    # --- the relay's thread ---------------------------------------------------------------------------------

    def got(self, worker: str, what: Object) -> Object:
        """A worker got a call. Returns which message it is, and whether it stops."""
        with self._lock:
            calls = self._known.get((worker, str(what["digest"])))
            known = calls.popleft() if calls else None
            names = [str(name) for name in what["names"]]
            stops = known.stops if known is not None else self._all.stops.names(names)
            if not stops and (known is None or known.between):
                stops = self._all.take_next()
            if known is not None:
                self._all.missed.discard(known.message)
                self._coming.pop(known.message, None)
                if stops:
                    self._holding.add((worker, f"#{known.message}"))
        if known is None and what["nonfinite"]:
            self._all.found(f"{worker} gets NaN in a call of {names[-1]}")
            stops = stops or self._all.stops.nonfinite
        return {
            "message": None if known is None else known.message,
            "type": "PYTHON_CALL" if known is None else known.type,
            "sender": None if known is None else known.sender,
            "stops": stops,
        }

    def found(self, worker: str, text: str) -> bool:
        """A worker has found NaN or Inf. Returns whether it stops."""
        self._all.found(text)
        return self._all.stops.nonfinite

    def hold(self, worker: str, key: str) -> None:
        """A worker holds."""
        with self._lock:
            self._holding.add((worker, key))

    def go_on(self, worker: str, key: str, to: str) -> None:
        """It goes on, to the next stop or to the next message."""
        with self._lock:
            self._holding.discard((worker, key))
            if to == "message":
                self._all.next_message = True

    def quit(self) -> None:
        """The replay is to end."""
        self._all.quits = True


def described(call: Exchange, *, answer: bool = False) -> str:
    """Returns `#42, app.forward (FORWARD_AUTOGRAD_REQ from worker0, context 0:3)`."""
    number = call.answer if answer else call.index
    head = "a message" if number is None else f"#{number}"
    named = call.what if call.function is not None else type_name(call.kind)
    told = call.type if call.type != named else ""
    whose = f"the answer to #{call.index}" if answer else f"{told} from {call.caller}".strip()
    parts = [whose] if call.context is None else [whose, f"context {packed(call.context)}"]
    return f"{head}, {named} ({', '.join(parts)})"


def digest_of(data: bytes, metas: Sequence[TensorMeta], storages: Sequence[bytes]) -> str:
    """Returns what a live worker recognises a call by, see `live_debugger.digest_of`."""
    digest = hashlib.sha256(data)
    for meta in metas:
        plain = meta.layout == "strided" and meta.quantizer is None and meta.part_of is None
        if plain and meta.storage is not None and meta.storage < len(storages):
            digest.update(storages[meta.storage])
    return digest.hexdigest()


def _over(seconds: float) -> bool:
    return True


class Gradients:
    """What the leaves of live workers have accumulated, context by context, before it is cleaned up."""

    def __init__(self, workers: Mapping[str, LiveWorker]) -> None:
        self._workers = workers
        self.found: dict[str, dict[int, tuple[LeafGradient, ...]]] = {name: {} for name in workers}

    def collect(self, context: int) -> None:
        """Asks each live worker, once for each context; one that has no part in it is left out."""
        for name, worker in self._workers.items():
            if context not in self.found[name]:
                with contextlib.suppress(ReplayError):
                    self.found[name][context] = worker.gradients(context)
