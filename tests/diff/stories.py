"""Runs that a test makes up: who called whom with which number, and when."""

from __future__ import annotations

from rpcinspect.diff.compare import compare_runs
from rpcinspect.diff.model import Comparison
from rpcinspect.diff.side import DiffSide
from rpcinspect.equality.rules import Rules
from rpcinspect.rpc.command import (
    CleanupAutogradContextReq,
    CleanupAutogradContextResp,
    Command,
    PropagateGradientsReq,
    PropagateGradientsResp,
    PythonCall,
    PythonResp,
)
from rpcinspect.rpc.envelope import AutogradMetadata
from rpcinspect.run.run import RunModel
from rpcinspect.tcp.ranges import CaptureBytes
from tests.replayer.talks import Workers

# As `talks.udf`, with one int as argument.
UDF = b"\x80\x02ctorch.distributed.rpc.internal\nPythonUDF\nc%s\n%s\nJ%s\x85}\x87\x81."
# PROTO 2, BININT, STOP
NUMBER = b"\x80\x02J%s."
FAILURE = (
    b"\x80\x02ctorch.distributed.rpc.internal\nRemoteException\n"
    b"X\x05\x00\x00\x00oh nocbuiltins\nValueError\n\x86\x81."
)


def call(function: str, argument: int = 0) -> PythonCall:
    """A call of `module.name` with one number."""
    module, _, name = function.rpartition(".")
    return PythonCall(UDF % (module.encode(), name.encode(), argument.to_bytes(4, "little")), False)


def answer(value: int) -> PythonResp:
    return PythonResp(NUMBER % value.to_bytes(4, "little"))


class Story(Workers):
    """Calls one after the other; each takes 10 ns, and `at` says when it begins."""

    def __init__(self, count: int = 3, first_context: int = 0) -> None:
        super().__init__(count)
        self.now = 0
        self._context = first_context
        self._edge = 100 * first_context

    def ask(
        self,
        function: str,
        argument: int = 0,
        result: int | Command | None = 0,
        *,
        caller: int = 0,
        callee: int = 1,
        at: int | None = None,
        takes: int = 10,
        context: int | None = None,
    ) -> None:
        begin = self.now if at is None else at
        self.now = max(self.now, begin + takes + 2)
        self._edge += 1
        self.call(
            caller,
            callee,
            begin,
            None if result is None else begin + takes,
            call(function, argument),
            answer(result) if isinstance(result, int) else result,
            context=None if context is None else (context, self._edge),
        )

    def iteration(self, argument: int, *, calls: int = 2, gradient: bool = True) -> None:
        """A context of worker 0: calls of worker 1, one gradient back along the first, and the cleanup."""
        context, self._context = self._context, self._context + 1
        edge = self._edge + 1
        for n in range(calls):
            self._edge += 1
            self.call(
                0,
                1,
                self.now,
                self.now + 10,
                call("app.forward", 10 * argument + n),
                answer(argument),
                context=(context, self._edge),
                grads=(1, 0),
            )
            self.now += 12
        rest: list[tuple[Command, Command]] = []
        if gradient:
            metadata = AutogradMetadata(context, edge)
            rest.append((PropagateGradientsReq(metadata, (0,), False), PropagateGradientsResp()))
        rest.append((CleanupAutogradContextReq(context), CleanupAutogradContextResp()))
        for request, response in rest:
            self.call(0, 1, self.now, self.now + 5, request, response, grads=(1 if gradient else 0, 0))
            gradient = False
            self.now += 7

    def opened(self) -> RunModel:
        """As a run; the bytes of all tensors are zeros."""
        session, messages = self.heard()
        return RunModel(session, messages, source=CaptureBytes(lambda capture, offset, length: bytes(length)))

    def run(self) -> DiffSide:
        """As a run whose workers are called what they are called."""
        run = DiffSide(self.opened())
        run.recognise({})
        return run


def diff(a: Story, b: Story, **rules: object) -> Comparison:
    return compare_runs(a.opened(), b.opened(), Rules(**rules))  # type: ignore[arg-type]


def codes(comparison: Comparison) -> list[tuple[str, int | None, int | None]]:
    """(code, a, b) of all differences but latencies."""
    return [
        (one.difference.code, comparison.messages[one.message].a, comparison.messages[one.message].b)
        for one in comparison.found
        if one.difference.code != "latency"
    ]


def first(comparison: Comparison) -> tuple[str, int | None, int | None, str]:
    """(code, a, b, likely) of the place where the runs part."""
    assert comparison.first is not None
    found = comparison.found[comparison.first.found]
    message = comparison.messages[found.message]
    return found.difference.code, message.a, message.b, comparison.first.likely
