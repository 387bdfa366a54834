"""Conversations of workers that a test makes up, as a plan reads them; and records with a given pickle."""

from __future__ import annotations

from collections.abc import Sequence

from rpcinspect.replayer.planning.gate import ExecutionPolicy
from rpcinspect.replayer.planning.model import Plan
from rpcinspect.replayer.planning.plan import PlanOptions, plan
from rpcinspect.rpc.command import Command, PythonCall, PythonResp, ScriptCall, ScriptResp
from rpcinspect.rpc.decode import DecodedRpc
from rpcinspect.rpc.message import RpcMessage
from rpcinspect.rpc.pickle_facts import FactsReader
from rpcinspect.rpc.record import RpcRecord
from rpcinspect.run.causes import Causes
from rpcinspect.run.exchanges import Exchange
from rpcinspect.run.run import RunModel
from rpcinspect.session.model import Session
from tests.session.records import Talk, pipe

# PROTO 2, GLOBAL PythonUDF, GLOBAL of the function, EMPTY_TUPLE, EMPTY_DICT, TUPLE3, NEWOBJ, STOP
UDF = b"\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\nc%s\n%s\n)}\x87\x81."
NONE = b"\x80\x02N."


def udf(function: str) -> bytes:
    """The pickle of a call without arguments of `module.name`."""
    module, _, name = function.rpartition(".")
    return UDF % (module.encode(), name.encode())


def record_of(command: Command) -> RpcRecord:
    """A record that says nothing of how it travelled."""
    message = RpcMessage(0, 0, b"", b"")
    rpc = DecodedRpc(message, (), command, ())
    return RpcRecord(0, None, rpc, FactsReader().read(command), ())  # type: ignore[arg-type]


def request_of(pickle: bytes) -> RpcRecord:
    """A PYTHON_CALL with this pickle."""
    return record_of(PythonCall(pickle, False))


def answer_of(pickle: bytes) -> RpcRecord:
    """A PYTHON_RET with this pickle."""
    return record_of(PythonResp(pickle))


class Workers(Talk):
    """Workers w0, w1, … with a pipe from each to each; calls are told by who, whom, what and when."""

    def __init__(self, count: int) -> None:
        pairs = [(a, b) for a in range(count) for b in range(count)]
        super().__init__(
            *(
                pipe(n, f"10.0.0.{a}:{1000 + n}", f"10.0.1.{b}:5000", name=f"w{a}")
                for n, (a, b) in enumerate(pairs)
            )
        )
        self._number = {pair: n for n, pair in enumerate(pairs)}
        self._count = count
        self._ids = 0
        for b in range(count):
            for n, (_, server) in enumerate(pairs):
                if server == b:
                    self.builder.evidence.name(n, False, f"w{b}")

    def call(
        self,
        caller: int,
        callee: int,
        begin: int,
        end: int | None,
        request: Command | str = "app.f",
        answer: Command | None = None,
        *,
        context: tuple[int, int] | None = None,
        grads: tuple[int, int] = (0, 0),
    ) -> None:
        """`context`: (context, autograd message id) of the request's envelope; the answer's id is 1000 more.
        `grads`: tensors of request and answer that require grad. `end` None: never answered.
        """
        if isinstance(request, str):
            builtin = request.startswith("aten::")
            request = (
                ScriptCall(args=(1,), schema=f"{request}(int a) -> int", qualified_name="torch.ops.aten.x")
                if builtin
                else PythonCall(udf(request), False)
            )
        pipe, identifier = self._number[caller, callee], self._ids
        self._ids += 1
        forth = None if context is None else (*context, caller)
        self.say(request, pipe=pipe, id=identifier, time_ns=begin, autograd=forth, tensors=grads[0])
        if end is None:
            return
        if answer is None:
            answer = ScriptResp(1) if isinstance(request, ScriptCall) else PythonResp(NONE)
        back = None
        if context is not None and grads[1]:
            back = (context[0], context[1] + 1000, callee)
        self.say(
            answer,
            pipe=pipe,
            id=identifier,
            from_client=False,
            time_ns=end - 1,
            autograd=back,
            tensors=grads[1],
        )

    def heard(self) -> tuple[Session, list[RpcRecord]]:
        """The session and its records in the order of time."""
        session = self.finish()
        return session, [self.records[row] for row in session.order.tolist()]

    def run(self) -> RunModel:
        """As a run whose tensors have no bytes."""
        return RunModel(*self.heard())

    def causes(self) -> Causes:
        """What each request was most likely sent for."""
        return self.run().causes.decided()

    def calls(self) -> Sequence[Exchange]:
        """As exchanges."""
        return self.run().exchanges.calls

    def plan(self, options: PlanOptions | None = None, gate: ExecutionPolicy | None = None) -> Plan:
        """As planned, with everything allowed unless a gate is given."""
        options = options or PlanOptions(trust=gate is None)
        return plan(self.run(), options, gate)
